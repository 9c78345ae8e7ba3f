"""Checkers of lesson 05: the transition bias, drawing left to right, a table cut to a rank, a step of the recurrent head."""

import torch
from torch import sigmoid, tanh

from .checking import Exercise, Mistake, Step
from .verifying import check_verify as check_verify


def _random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _layer(inputs, outputs, seed):
    """A linear layer whose weight and bias are random but draw nothing from the global generator."""
    layer = torch.nn.utils.skip_init(torch.nn.Linear, inputs, outputs).requires_grad_(False)
    layer.weight.copy_(_random(outputs, inputs, seed=seed))
    layer.bias.copy_(_random(outputs, seed=seed + 1))
    return layer


def transition_bias(w1, w2, previous):
    """The bias [B, V] after tokens `previous` [B]; w1 and w2 are both [V, r]."""
    return w1[previous] @ w2.T


def tensor(answer):
    """The answer, which has to be a tensor: the lesson computes with it."""
    if isinstance(answer, (list, tuple)):
        raise Mistake(f"this is a {type(answer).__name__}; the bias is a tensor [B, V], to be added to logits.")
    return answer


BIAS_CASE = _random(6, 2, seed=1), _random(6, 2, seed=2), torch.tensor([4, 0, 4])
check_transition_bias = Exercise(transition_bias, Step([BIAS_CASE], {
    "W1 and W2 are swapped: this scores which token came before, not which comes next. W1 reads the token before.":
        (lambda w1, w2, x: w2[x] @ w1.T, lambda w1, w2, x: (w1 @ w2.T)[:, x].T),  # the latter reads the table by column
    "this is W1[x], a vector of rank r; W2 still has to turn it into one number per token.":
        lambda w1, w2, x: w1[x],
    "you made probabilities of it; the bias is added to logits, and softmax comes once, after the sum.":
        (lambda w1, w2, x: torch.softmax(w1[x] @ w2.T, -1), lambda w1, w2, x: torch.log_softmax(w1[x] @ w2.T, -1)),
    "this is the whole V x V table; only the rows of the previous tokens are wanted.":
        lambda w1, w2, x: w1 @ w2.T,
    "w2 is stored as [V, r] and W1[x] has a row for each previous token: multiply by w2.T from the right.":
        (lambda w1, w2, x: w1[x] @ w2, lambda w1, w2, x: w2 @ w1[x]),
    "only W1 is read at the previous tokens; all V rows of W2 are needed, one for each next token.":
        (lambda w1, w2, x: w1[x] @ w2[x].T, lambda w1, w2, x: w1[x] * w2[x]),
    "these are the right numbers in the shape [V, B]; each previous token has a row, so [B, V] is wanted.":
        lambda w1, w2, x: w2 @ w1[x].T,
    "this is the bias after the first token of the batch; each of the B previous tokens has a row, [B, V].":
        lambda w1, w2, x: w2 @ w1[x[0]],
}, "the bias is not W2 W1[x] of the previous tokens.", read=tensor))


def drafting(before, sign=1):
    """A greedy drafter that adds, at slot k, the bias of the token `before(k, anchor, tokens, favourites)` (None: none).

    `favourites` are the base logits' own; with a `sign` of -1 the bias is subtracted.
    """
    def draft(base_logits, anchor, bias):
        favourites, tokens = base_logits.argmax(-1), []
        for k, logits in enumerate(base_logits):
            token = before(k, anchor, tokens, favourites)
            tokens.append((logits if token is None else logits + sign * bias(token)).argmax())
        return torch.stack(tokens)

    return draft


def draft_greedily(base_logits, anchor, bias):
    """Greedy tokens [g] of base logits [g, V] after the token `anchor`; `bias(token)` gives [V]."""
    return drafting(token_before)(base_logits, anchor, bias)


def token_before(k, anchor, tokens, favourites):
    """The token chosen at the slot before, for the first slot the anchor."""
    return tokens[-1] if k else anchor


def at_each_slot(choose):
    """A greedy drafter whose token at a slot is `choose(the slot's base logits, the bias after the token before, all base logits)`."""
    def draft(base_logits, anchor, bias):
        tokens = [anchor]
        for logits in base_logits:
            tokens.append(choose(logits, bias(tokens[-1]), base_logits))
        return torch.stack(tokens[1:])

    return draft


def corrected_logits(base_logits, anchor, bias):
    """The logits [g, V] that the greedy block is chosen from."""
    before = [anchor, *draft_greedily(base_logits, anchor, bias)[:-1]]
    return torch.stack([logits + bias(token) for logits, token in zip(base_logits, before)])


def adding_up(base_logits, anchor, bias):
    """Every slot gets the biases of all tokens before it."""
    tokens = [anchor]
    for logits in base_logits:
        tokens.append((logits + sum(map(bias, tokens))).argmax())
    return torch.stack(tokens[1:])


# After token t the table asks for t + 1 and is stronger than the base logits, whose favourites lie elsewhere: each wrong
# way of looking back ends in another block. (With anchor 4 it asks for 0, the first favourite, so that a bias with the wrong
# sign shows.) All is small, so that tokens that are drawn and not chosen hardly ever give the greedy block. Then the base
# logits are the stronger, so that a block without them shows: a little, where softmax would undo it, and much, where not.
TABLE = 0.3 * torch.eye(5).roll(1, 1)
BASE = 0.1 * torch.nn.functional.one_hot(torch.tensor([0, 3, 1, 0]), 5).float()
LOOKING_BACK = [(times * BASE, torch.tensor(anchor), lambda token: TABLE[token]) for times, anchor in ((1, 1), (1, 4), (4, 1), (20, 1))]
check_left_to_right = Exercise(draft_greedily, Step(LOOKING_BACK, {
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
    "the bias is subtracted; it is added to the base logits.":
        drafting(token_before, sign=-1),
    "the base logits are missing; the bias is added to them and decides nothing alone.":
        (at_each_slot(lambda logits, bias, base_logits: bias.argmax()),
         lambda base_logits, anchor, bias: bias(anchor).argmax().repeat(len(base_logits))),
    "every slot has the base logits of the first; slot k reads its own row.":
        at_each_slot(lambda logits, bias, base_logits: (base_logits[0] + bias).argmax()),
    "the bias is added to probabilities; it is added to the base logits, before any softmax.":
        at_each_slot(lambda logits, bias, base_logits: (torch.softmax(logits, -1) + bias).argmax()),
    "these are logits; a draft is a token, the place of the largest: argmax.":
        (corrected_logits, lambda *case: corrected_logits(*case).max(-1).values),
    "the biases add up from slot to slot; each slot gets that of the token before it alone.":
        adding_up,
    "these are g - 1 tokens; each of the g slots drafts one, the first after the anchor.":
        (lambda *case: draft_greedily(*case)[:-1], lambda *case: draft_greedily(*case)[1:]),
    "these are g + 1 tokens; the anchor is committed already, so the block begins after it.":
        lambda base_logits, anchor, bias: torch.cat([anchor.view(1), draft_greedily(base_logits, anchor, bias)]),
}, "this is not the greedy block: from left to right, at each slot the largest logit, not a draw, after the bias of the token "
   "just chosen."))


def cut_to_rank(w1, w2, rank):
    """Matrices a, b [V, rank] whose product a @ b.T is the best approximation of the table w1 @ w2.T [V, V]."""
    basis, rest = torch.linalg.qr(w2)  # the table of a large vocabulary does not fit into memory; [V, r] does
    u, s, vh = torch.linalg.svd(w1 @ rest.T, full_matrices=False)
    return u[:, :rank] * s[:rank], basis @ vh[:rank].T


def terms(choose):
    """A cut to what `choose(U, S, Vh, rank)` makes of the singular value decomposition of the whole table."""
    return lambda w1, w2, rank: choose(*torch.linalg.svd(w1 @ w2.T), rank)


def product(factors):
    """The table that the two factors stand for: every way to share the singular values between them gives the same."""
    if not isinstance(factors, (tuple, list)) or len(factors) != 2:
        raise Mistake("return two matrices, a and b, each [V, rank]; their product is the table.")
    a, b = (torch.as_tensor(factor, dtype=torch.float64) for factor in factors)
    if a.shape[-1] != b.shape[-1]:
        raise Mistake("a and b are both [V, rank], as W1 and W2 are; Vh has a row for each term, so b is made of Vh transposed.")
    return a @ b.T


def of_w1(w1, w2, rank):
    """The largest terms of W1 in place of the table's."""
    u, s, vh = torch.linalg.svd(w1, full_matrices=False)
    return u[:, :rank] * s[:rank], w2 @ vh[:rank].T


CUT_CASES = [(_random(6, 3, seed=1), _random(6, 3, seed=2), rank) for rank in (1, 2)]
check_cut = Exercise(cut_to_rank, Step(CUT_CASES, {
    "the singular values are missing: each term is s times a column of U times a row of Vh.":
        terms(lambda u, s, vh, rank: (u[:, :rank], vh[:rank].T)),
    "the singular values came in twice; each term has its own once, in a or in b (or its root in both).":
        terms(lambda u, s, vh, rank: (u[:, :rank] * s[:rank], vh[:rank].T * s[:rank])),
    "these are the smallest terms; svd gives the largest first, and those stay.":
        (terms(lambda u, s, vh, rank: (u[:, -rank:] * s[-rank:], vh[-rank:].T)),
         terms(lambda u, s, vh, rank: (u[:, 3 - rank:3] * s[3 - rank:3], vh[3 - rank:3].T))),  # of those that are not zero
    "you took columns of Vh; it is V transposed already, so a term is a row of it.":
        terms(lambda u, s, vh, rank: (u[:, :rank] * s[:rank], vh[:, :rank])),
    "these are the first columns of W1 and W2, which are in no order; the largest terms come from the svd of the table.":
        lambda w1, w2, rank: (w1[:, :rank], w2[:, :rank]),
    "these are the largest terms of W1; the table is W1 times W2 transposed, and its own are wanted.":
        of_w1,
    "nothing is cut: this is the whole table.":
        (lambda w1, w2, rank: (w1, w2), terms(lambda u, s, vh, rank: (u * s, vh.T))),
    "a and b are swapped: a has a row for each previous token, b for each next one.":
        lambda *case: cut_to_rank(*case)[::-1],
}, "a @ b.T is not the best approximation of w1 @ w2.T with this rank: the largest terms of its singular value decomposition.",
    read=product))


def rnn_step(state, embedded, hidden, joint_proj, w2):
    """The bias [V] of a slot and the state [r] after it, from the state before, W1[x] [r] and h [H]; w2 is [V, r]."""
    update, candidate, output = joint_proj(torch.cat([state, embedded, hidden])).chunk(3)
    share = sigmoid(update)
    return w2 @ tanh(output), share * state + (1 - share) * tanh(candidate)


def stepping(joined=lambda s, e, h: (s, e, h), mix=lambda s, u, c, o: sigmoid(u) * s + (1 - sigmoid(u)) * tanh(c),
             spoken=lambda s, o: tanh(o), order=(0, 1, 2), layer=lambda proj, x: proj(x)):
    """A step of the RNN head with one of its parts made in another way.

    What J reads is `joined`, and `layer` applies it; gate, candidate and output are its thirds in this `order`; `mix` makes
    the state after the slot, and W2 reads what `spoken` makes of that and the output.
    """
    def step(state, embedded, hidden, joint_proj, w2):
        thirds = layer(joint_proj, torch.cat(joined(state, embedded, hidden))).chunk(3)
        update, candidate, output = (thirds[k] for k in order)
        after = mix(state, update, candidate, output)
        return w2 @ spoken(after, output), after

    return step


def from_the_new_state(state, embedded, hidden, joint_proj, w2):
    """A step whose output third comes from the state after the slot."""
    _, after = rnn_step(state, embedded, hidden, joint_proj, w2)
    return rnn_step(after, embedded, hidden, joint_proj, w2)[0], after


def without_w2(squash):
    """A step that returns the output third, squashed, in place of the bias."""
    def step(state, embedded, hidden, joint_proj, w2):
        output = joint_proj(torch.cat([state, embedded, hidden])).chunk(3)[2]
        return squash(output), rnn_step(state, embedded, hidden, joint_proj, w2)[1]

    return step


STEP_CASE = _random(2, seed=1), _random(2, seed=2), _random(3, seed=3), _layer(7, 6, seed=4), _random(5, 2, seed=5)
check_rnn_step = Exercise(rnn_step, Step([STEP_CASE], {
    "the gate is the wrong way round: it is the share of the old state, 1 minus it that of the candidate.":
        stepping(mix=lambda s, u, c, o: (1 - sigmoid(u)) * s + sigmoid(u) * tanh(c)),
    "the candidate has no tanh; without it the state can grow without bound.":
        stepping(mix=lambda s, u, c, o: sigmoid(u) * s + (1 - sigmoid(u)) * c),
    "the candidate goes through tanh, not through a sigmoid.":
        stepping(mix=lambda s, u, c, o: sigmoid(u) * s + (1 - sigmoid(u)) * sigmoid(c)),
    "tanh is missing twice, on the candidate and on the output third.":
        stepping(mix=lambda s, u, c, o: sigmoid(u) * s + (1 - sigmoid(u)) * c, spoken=lambda s, o: o),
    "the gate is squashed by tanh; a share between 0 and 1 comes from the sigmoid.":
        stepping(mix=lambda s, u, c, o: tanh(u) * s + (1 - tanh(u)) * tanh(c)),
    "the gate has no sigmoid, so the two shares are not between 0 and 1.":
        stepping(mix=lambda s, u, c, o: u * s + (1 - u) * tanh(c)),
    "gate and candidate are swapped: the first third of what J gives is the gate.":
        stepping(mix=lambda s, u, c, o: sigmoid(c) * s + (1 - sigmoid(c)) * tanh(u)),
    "the thirds of what J gives are gate, candidate and output, in this order.":
        (stepping(order=(0, 2, 1)), stepping(order=(2, 1, 0)), stepping(order=(1, 2, 0)), stepping(order=(2, 0, 1))),
    "J has a bias of its own besides its weight; call joint_proj(...).":
        stepping(layer=lambda proj, x: proj.weight @ x),
    "the candidate enters whole; its share is 1 minus the gate.":
        stepping(mix=lambda s, u, c, o: sigmoid(u) * s + tanh(c)),
    "the candidate replaces the old state; the gate says how much of the old state stays.":
        stepping(mix=lambda s, u, c, o: tanh(c)),
    "the old state is forgotten: its share of the new one is the gate.":
        stepping(mix=lambda s, u, c, o: (1 - sigmoid(u)) * tanh(c)),
    "you mixed the output third into the state; the state is made of gate and candidate.":
        stepping(mix=lambda s, u, c, o: sigmoid(u) * s + (1 - sigmoid(u)) * tanh(o)),
    "the state did not change.":
        stepping(mix=lambda s, u, c, o: s),
    "J reads state, W1[x] and hidden state in this order.":
        (stepping(joined=lambda s, e, h: (e, s, h)), stepping(joined=lambda s, e, h: (h, s, e)),
         stepping(joined=lambda s, e, h: (h, e, s)), stepping(joined=lambda s, e, h: (s, h, e))),
    "the bias is made of the state; W2 reads tanh of the output third.":
        (stepping(spoken=lambda s, o: s), stepping(spoken=lambda s, o: tanh(s))),
    "the state enters the bias here, as in an LSTM; W2 reads tanh of the output third and nothing else.":
        (stepping(spoken=lambda s, o: sigmoid(o) * tanh(s)), stepping(spoken=lambda s, o: tanh(o) * s)),
    "the bias is the Markov head's; W2 reads tanh of the output third.":
        lambda s, e, h, proj, w2: (w2 @ e, rnn_step(s, e, h, proj, w2)[1]),
    "the output third goes through tanh before W2 reads it.":
        (stepping(spoken=lambda s, o: o), stepping(spoken=lambda s, o: sigmoid(o))),
    "W2 is missing: it turns tanh of the output third, r numbers, into one number for every token.":
        (without_w2(tanh), without_w2(lambda x: x)),
    "the output comes from the new state; J is applied once, to the state before the slot, and gives all three thirds.":
        from_the_new_state,
    "the pair is the other way round: the bias [V] first, then the state [r].":
        lambda *case: rnn_step(*case)[::-1],
    "return both, the bias [V] of this slot and the state [r] after it.":
        (lambda *case: rnn_step(*case)[0], lambda *case: rnn_step(*case)[1]),
}, "the step is not bias W2 tanh(o) and state sigmoid(u) * s + (1 - sigmoid(u)) * tanh(c)."))
