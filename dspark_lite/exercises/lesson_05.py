"""Checkers of lesson 05: the transition bias, drawing left to right, the gate and the recurrent state."""

import torch

from .checking import checker, finished, name_mistake


def _random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@checker
def check_transition_bias(transition_bias):
    """`transition_bias(w1, w2, previous)`: the bias [B, V] after tokens `previous` [B]; w1 and w2 are both [V, r]."""
    w1, w2, previous = _random(6, 2, seed=1), _random(6, 2, seed=2), torch.tensor([4, 0])
    right = w1[previous] @ w2.T
    name_mistake(finished(transition_bias(w1, w2, previous)), right, {
        "W1 and W2 are swapped: this scores which token came before, not which comes next. W1 reads the token before.":
            w2[previous] @ w1.T,
        "this is W1[x], a vector of rank r; W2 still has to turn it into one number a token.": w1[previous],
        "you made probabilities of it; the bias is added to logits, and softmax comes once, after the sum.":
            torch.softmax(right, -1),
        "this is the whole V x V table; only the rows of the previous tokens are wanted.": w1 @ w2.T,
    }, "the bias is not W2 W1[x] of the previous tokens.")


def _greedy(base_logits, bias_at):
    """Greedy tokens [g] of base logits [g, V]; `bias_at(k, done)` is the bias [V] of slot k after the tokens `done`."""
    done = []
    for k, logits in enumerate(base_logits):
        done.append((logits + bias_at(k, done)).argmax())
    return torch.stack(done)


@checker
def check_left_to_right(draft_greedily):
    """`draft_greedily(base_logits, anchor, bias)`: greedy tokens [g] of base logits [g, V]; `bias(token)` gives [V]."""
    # After token t the table asks for t + 1 and is stronger than the base logits, whose favourites lie elsewhere: each
    # wrong way of looking back ends in another block.
    table = 3 * torch.eye(5).roll(1, 1)
    favourite, anchor = torch.tensor([0, 3, 1, 0]), torch.tensor(1)
    base = torch.nn.functional.one_hot(favourite, 5).float()
    name_mistake(finished(draft_greedily(base, anchor, lambda token: table[token])),
                 _greedy(base, lambda k, done: table[done[-1] if k else anchor]), {
        "slot k is biased by x_k, the token it is about to choose; the bias belongs to the token before it, x_{k-1}.":
            _greedy(base, lambda k, done: table[favourite[k]]),
        "every slot is biased by the anchor; after each choice the token just chosen becomes the previous one.":
            _greedy(base, lambda k, done: table[anchor]),
        "slot k is biased by the favourite of the base logits at k - 1, not by the token that was chosen there.":
            _greedy(base, lambda k, done: table[favourite[k - 1] if k else anchor]),
        "the first slot has no bias; its previous token is the anchor, x_0.":
            _greedy(base, lambda k, done: table[done[-1]] if k else 0 * table[0]),
        "no bias arrived anywhere: these are the favourites of the base logits.": favourite,
    }, "the block is not drawn left to right, each slot biased by the token just chosen.")


@checker
def check_gate(gated_bias):
    """`gated_bias(hidden, embedded, gate_proj, w2)`: W2 (sigmoid(G [h; e]) * e), [V], of h [H] and e = W1[x] [r]."""
    hidden, embedded, w2 = _random(3, seed=1), _random(2, seed=2), _random(5, 2, seed=3)
    weight = _random(2, 5, seed=4)

    def gate_proj(inputs):
        return inputs @ weight.T

    right_order, other_order = gate_proj(torch.cat([hidden, embedded])), gate_proj(torch.cat([embedded, hidden]))
    gate = torch.sigmoid(right_order)
    name_mistake(finished(gated_bias(hidden, embedded, gate_proj, w2)), w2 @ (gate * embedded), {
        "the gate has no sigmoid; without it the gate is not a share between 0 and 1.": w2 @ (right_order * embedded),
        "the gate is added; it multiplies, so that it can close.": w2 @ (gate + embedded),
        "G reads [h; W1[x]], the hidden state first; you gave it the two in the other order.":
            w2 @ (torch.sigmoid(other_order) * embedded),
        "W2 reads the gate alone; the gate scales W1[x], which still has to be there.": w2 @ gate,
        "there is no gate here: this is the Markov head's bias.": w2 @ embedded,
    }, "the bias is not W2 (sigmoid(G [h; W1[x]]) * W1[x]).")


@checker
def check_state(rnn_state):
    """`rnn_state(state, joint)`: the next state [r] from the old one and joint [3 r] = gate, candidate, output."""
    state, joint = _random(2, seed=1), _random(6, seed=2)
    gate, candidate, output = joint.chunk(3)
    share = torch.sigmoid(gate)
    name_mistake(finished(rnn_state(state, joint)), share * state + (1 - share) * torch.tanh(candidate), {
        "the gate is the wrong way round: g is the share of the old state, 1 - g that of the candidate.":
            (1 - share) * state + share * torch.tanh(candidate),
        "the candidate has no tanh; without it the state can grow without bound.":
            share * state + (1 - share) * candidate,
        "the gate has no sigmoid, so the two shares are not between 0 and 1.":
            gate * state + (1 - gate) * torch.tanh(candidate),
        "gate and candidate are swapped: the first third of the joint vector is the gate.":
            torch.sigmoid(candidate) * state + (1 - torch.sigmoid(candidate)) * torch.tanh(gate),
        "the old state is forgotten: g times it belongs to the sum.": (1 - share) * torch.tanh(candidate),
        "you used the output third; the state is made of gate and candidate.":
            share * state + (1 - share) * torch.tanh(output),
        "the state did not change.": state,
    }, "the state is not g * s + (1 - g) * tanh(candidate).")
