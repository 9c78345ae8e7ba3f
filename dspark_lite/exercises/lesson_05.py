"""Checkers of lesson 05: the transition bias, drawing left to right, the gate and the recurrent state."""

import torch
from torch import sigmoid, tanh

from .checking import Exercise, Step
from .verifying import check_verify as check_verify


def _random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def transition_bias(w1, w2, previous):
    """The bias [B, V] after tokens `previous` [B]; w1 and w2 are both [V, r]."""
    return w1[previous] @ w2.T


BIAS_CASE = _random(6, 2, seed=1), _random(6, 2, seed=2), torch.tensor([4, 0])
check_transition_bias = Exercise(transition_bias, Step([BIAS_CASE], {
    "W1 and W2 are swapped: this scores which token came before, not which comes next. W1 reads the token before.":
        (lambda w1, w2, x: w2[x] @ w1.T, lambda w1, w2, x: (w1 @ w2.T)[:, x].T),  # the latter reads the table by column
    "this is W1[x], a vector of rank r; W2 still has to turn it into one number per token.":
        lambda w1, w2, x: w1[x],
    "you made probabilities of it; the bias is added to logits, and softmax comes once, after the sum.":
        lambda w1, w2, x: torch.softmax(w1[x] @ w2.T, -1),
    "this is the whole V x V table; only the rows of the previous tokens are wanted.":
        lambda w1, w2, x: w1 @ w2.T,
    "w2 is stored as [V, r], so W1[x] meets its rows: multiply by w2.T.":
        lambda w1, w2, x: w1[x] @ w2,
}, "the bias is not W2 W1[x] of the previous tokens."))


def drafting(before):
    """A greedy drafter that adds, at slot k, the bias of the token `before(k, anchor, tokens, favourites)` (None: none).

    `favourites` are the base logits' own.
    """
    def draft(base_logits, anchor, bias):
        favourites, tokens = base_logits.argmax(-1), []
        for k, logits in enumerate(base_logits):
            token = before(k, anchor, tokens, favourites)
            tokens.append((logits if token is None else logits + bias(token)).argmax())
        return torch.stack(tokens)

    return draft


def draft_greedily(base_logits, anchor, bias):
    """Greedy tokens [g] of base logits [g, V] after the token `anchor`; `bias(token)` gives [V]."""
    return drafting(lambda k, anchor, tokens, favourites: tokens[-1] if k else anchor)(base_logits, anchor, bias)


# After token t the table asks for t + 1 and is stronger than the base logits, whose favourites lie elsewhere: each wrong
# way of looking back ends in another block.
TABLE = 3 * torch.eye(5).roll(1, 1)
BASE = torch.nn.functional.one_hot(torch.tensor([0, 3, 1, 0]), 5).float()
check_left_to_right = Exercise(draft_greedily, Step([(BASE, torch.tensor(1), lambda token: TABLE[token])], {
    "slot k is biased by x_k, the token it is about to choose; the bias belongs to the token before it, x_{k-1}.":
        drafting(lambda k, anchor, tokens, favourites: favourites[k]),
    "every slot is biased by the anchor; after each choice the token just chosen becomes the previous one.":
        drafting(lambda k, anchor, tokens, favourites: anchor),
    "slot k is biased by the favourite of the base logits at k - 1, not by the token that was chosen there.":
        drafting(lambda k, anchor, tokens, favourites: favourites[k - 1] if k else anchor),
    "the first slot has no bias; its previous token is the anchor, x_0.":
        drafting(lambda k, anchor, tokens, favourites: tokens[-1] if k else None),
    "no bias arrived anywhere: these are the favourites of the base logits.":
        drafting(lambda k, anchor, tokens, favourites: None),
}, "the block is not drawn left to right, each slot biased by the token just chosen."))


def gate_of(hidden, embedded, gate_proj):
    """The gate [r]."""
    return sigmoid(gate_proj(torch.cat([hidden, embedded])))


def gated_bias(hidden, embedded, gate_proj, w2):
    """W2 (sigmoid(G [h; e]) * e), [V], of h [H] and e = W1[x] [r]."""
    return w2 @ (gate_of(hidden, embedded, gate_proj) * embedded)


GATE_WEIGHT = _random(2, 5, seed=4)
GATE_CASE = _random(3, seed=1), _random(2, seed=2), lambda inputs: inputs @ GATE_WEIGHT.T, _random(5, 2, seed=3)
check_gate = Exercise(gated_bias, Step([GATE_CASE], {
    "the gate has no sigmoid; without it the gate is not a share between 0 and 1.":
        lambda h, e, proj, w2: w2 @ (proj(torch.cat([h, e])) * e),
    "the gate is added; it multiplies, so that it can close.":
        lambda h, e, proj, w2: w2 @ (gate_of(h, e, proj) + e),
    "G reads [h; W1[x]], the hidden state first; you gave it the two in the other order.":
        lambda h, e, proj, w2: w2 @ (gate_of(e, h, proj) * e),
    "W2 reads the gate alone; the gate scales W1[x], which still has to be there.":
        lambda h, e, proj, w2: w2 @ gate_of(h, e, proj),
    "there is no gate here: this is the Markov head's bias.":
        lambda h, e, proj, w2: w2 @ e,
}, "the bias is not W2 (sigmoid(G [h; W1[x]]) * W1[x])."))


def mixing(mix):
    """A state update that mixes state, gate, candidate and output, still without sigmoid and tanh."""
    return lambda state, joint: mix(state, *joint.chunk(3))


def rnn_state(state, joint):
    """The next state [r] from the old one and joint [3 r] = gate, candidate, output."""
    gate, candidate, _ = joint.chunk(3)
    return sigmoid(gate) * state + (1 - sigmoid(gate)) * tanh(candidate)


check_state = Exercise(rnn_state, Step([(_random(2, seed=1), _random(6, seed=2))], {
    "the gate is the wrong way round: g is the share of the old state, 1 - g that of the candidate.":
        mixing(lambda s, g, c, o: (1 - sigmoid(g)) * s + sigmoid(g) * tanh(c)),
    "the candidate has no tanh; without it the state can grow without bound.":
        mixing(lambda s, g, c, o: sigmoid(g) * s + (1 - sigmoid(g)) * c),
    "the gate has no sigmoid, so the two shares are not between 0 and 1.":
        mixing(lambda s, g, c, o: g * s + (1 - g) * tanh(c)),
    "gate and candidate are swapped: the first third of the joint vector is the gate.":
        mixing(lambda s, g, c, o: sigmoid(c) * s + (1 - sigmoid(c)) * tanh(g)),
    "the old state is forgotten: g times it belongs to the sum.":
        mixing(lambda s, g, c, o: (1 - sigmoid(g)) * tanh(c)),
    "you used the output third; the state is made of gate and candidate.":
        mixing(lambda s, g, c, o: sigmoid(g) * s + (1 - sigmoid(g)) * tanh(o)),
    "the state did not change.":
        mixing(lambda s, g, c, o: s),
}, "the state is not g * s + (1 - g) * tanh(candidate)."))
