"""Checkers of lesson 05: the transition bias, drawing left to right, a table cut to a rank, a step of the recurrent head, and
a whole round whose drafts each depend on the one before."""

import torch
from torch import sigmoid, tanh

from dspark_lite.losslessness.enumeration import outcomes, summed, total_variation
from . import verifying
from .checking import Exercise, Mistake, Step, checker, finished
from .verifying import ANCHOR, DRAFTS, EXACT, TARGET, draw, target_texts, verify


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
        (lambda w1, w2, x: w2[x] @ w1.T, lambda w1, w2, x: (w1 @ w2.T)[:, x].T,  # the latter reads the table by column,
         lambda w1, w2, x: (w1 @ w2.T)[:, x]),  # this one, too, in the shape [V, B]
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


def alone(w, rank):
    """The best approximation [V, r] of one factor, and its largest terms without their rows, [V, rank]."""
    u, s, vh = torch.linalg.svd(w, full_matrices=False)
    return u[:, :rank] * s[:rank] @ vh[:rank], u[:, :rank] * s[:rank]


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
    "you cut each factor alone; what W1 holds most of need not be what W2 reads, so cut their product, the table.":
        (lambda w1, w2, rank: (alone(w1, rank)[0], alone(w2, rank)[0]), lambda w1, w2, rank: (alone(w1, rank)[1], alone(w2, rank)[1])),
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


# A round: the block drawn left to right, the distribution that each draft was drawn from, and the rule. A block drawn in another
# way is repaired by the rule, if its q is its own, and costs only length. So blocks are compared first, then texts.
ROUND_BASE = torch.tensor([[0.0, -0.5, 0.5], [-0.3, 0.2, 0.6]])  # base logits [g, V]; the first favourite is not the anchor
ROUND_TABLE = torch.tensor([[0.2, 1.0, -0.6], [-0.8, 0.1, 0.9], [0.7, -0.5, 0.0]])  # the bias after each token, [V, V]


def corrected(logits, bias_row):
    """The distribution [V] of a slot after the bias."""
    return torch.softmax(logits + bias_row, -1)


def drafting_round(before=lambda k, anchor, drafts, base: drafts[-1] if k else anchor, pick=draw,
                   kept=lambda k, anchor, drafts, base, bias, drawn_from: drawn_from):
    """Draws a block in a way that may be wrong: slot k is biased by the token `before` (None: not at all), and `kept` is the row
    of q that is kept for it, once the block has been drawn."""
    def draw_block(base, anchor, bias, generator):
        drafts, rows = [], []
        for k, logits in enumerate(base):
            token = before(k, anchor, drafts, base)
            rows.append(corrected(logits, 0 if token is None else bias(token)))
            drafts.append(pick(rows[k], generator))
        return drafts, torch.stack([kept(k, anchor, drafts, base, bias, row) for k, row in enumerate(rows)])
    return draw_block


def most_likely(probs, generator):
    """The most probable token of probs [V]; nothing is drawn."""
    return int(probs.argmax())


drawn_block = drafting_round()


def round_of(draw_block=drawn_block, rule=verify):
    """A whole round, made of a way to draw the block and a rule that verifies it."""
    def one_round(base_logits, anchor, bias, p_of, generator):
        drafts, q = draw_block(base_logits, anchor, bias, generator)
        return rule(p_of(drafts), q, drafts, generator)
    return one_round


one_round = round_of()
WRONG_BLOCKS = {  # the texts would still be the target's own, for the rule repairs any block
    "no bias reached the block; slot k is drawn after the bias of the token before it":
        drafting_round(before=lambda k, anchor, drafts, base: None),
    "every slot is biased by the anchor; after each draw the token just drawn becomes the previous one":
        drafting_round(before=lambda k, anchor, drafts, base: anchor),
    "the first slot has no bias; its previous token is the anchor":
        drafting_round(before=lambda k, anchor, drafts, base: drafts[-1] if k else None),
    "slot k is biased by the favourite of the base logits at k - 1, not by the token that was drawn there":
        drafting_round(before=lambda k, anchor, drafts, base: int(base[k - 1].argmax()) if k else anchor),
    "the drafts are the most probable tokens; draw them with draw_token":
        drafting_round(pick=most_likely),
}
WRONG_ROWS = {
    "you verify with the q of the base logits; the rule needs the one that the token was drawn from, after the bias":
        drafting_round(kept=lambda k, anchor, drafts, base, bias, row: corrected(base[k], 0)),
    "every row of q has the anchor's bias; the rule needs the one that the token was drawn from, after the token before it":
        drafting_round(kept=lambda k, anchor, drafts, base, bias, row: corrected(base[k], bias(anchor))),
    "row k of q has the bias of draft k itself; it was drawn after that of the token before it":
        drafting_round(kept=lambda k, anchor, drafts, base, bias, row: corrected(base[k], bias(drafts[k]))),
    "all rows of q have the bias of the last draft; keep each row when its token is drawn":
        drafting_round(kept=lambda k, anchor, drafts, base, bias, row: corrected(base[k], bias(drafts[-1]))),
    "q holds logits; the rule compares probabilities, so each row needs a softmax":
        drafting_round(kept=lambda k, anchor, drafts, base, bias, row: base[k] + bias(drafts[k - 1] if k else anchor)),
}
WRONG_ROUNDS = {**{sentence: round_of(wrong) for sentence, wrong in WRONG_ROWS.items()},
                **{sentence: round_of(rule=wrong) for sentence, wrong in verifying.MISTAKES.items()}}


def committed(learners, path, block: int):
    """The drafts that a learner's round shows the target and the tokens that it commits; every draw follows `path`."""
    shown = []

    def p_of(drafts):
        tokens = [int(token) for token in drafts]
        if len(tokens) != block:
            raise Mistake(f"p_of takes the {block} drafts of the block, without the anchor; it got {len(tokens)} tokens")
        shown.append(tuple(tokens))
        return TARGET[[ANCHOR, *tokens]]

    tokens = finished(learners(ROUND_BASE[:block].clone(), ANCHOR, lambda token: ROUND_TABLE[int(token)].clone(), p_of, path))
    if len(set(shown)) > 1:
        raise Mistake("two different blocks were shown to the target; a round drafts one and asks once")
    tokens = verifying.well_formed(tokens, list(range(block)), decided=bool(path.taken))
    if not shown:
        raise Mistake("nobody asked the target; p_of(drafts) gives its distributions")
    return shown[0], tokens


def blocks_and_texts(learners, block: int = DRAFTS) -> tuple[dict, dict, float]:
    """Probability of each block that is drafted and of each text of a round's full length, what is missing drawn from the
    target; mean tokens per round."""
    rounds = list(outcomes(lambda path: committed(learners, path, block)))
    blocks = summed((drafts, probability) for (drafts, _), probability in rounds)
    return blocks, *verifying.texts_of(((tokens, probability) for (_, tokens), probability in rounds), block)


@checker
def check_round(learners):
    """Checks a function like `one_round` by the exact distribution of the blocks it drafts and of the texts it commits."""
    blocks, texts, length = verifying.visited(blocks_and_texts, learners)
    right_blocks, _, possible = blocks_and_texts(one_round)
    distance, wrong_blocks = total_variation(texts, target_texts()), total_variation(blocks, right_blocks) > EXACT
    if wrong_blocks or distance > EXACT:
        verifying.visit_again(blocks_and_texts, learners, [blocks, texts])
    if wrong_blocks:
        known = verifying.like(blocks, WRONG_BLOCKS, lambda wrong: blocks_and_texts(round_of(wrong))[0])
        raise Mistake("the block is not drawn left to right from base logits plus bias" + (f": {known}" if known else
                      ", a softmax and a draw at each slot"))
    if distance > EXACT:
        known = verifying.like(texts, WRONG_ROUNDS, lambda wrong: blocks_and_texts(wrong)[1])
        raise Mistake(f"your total variation is {verifying.shown(distance)}: " + (known or
                      "the block is right, so look at the rule: is row k of q what draft k was drawn from? Which coin, which "
                      "distribution after a refusal, and which after a whole block?"))
    if length < possible - EXACT:
        raise Mistake(f"your total variation is 0, the text is right, but a round commits {length:.2f} tokens on average where "
                      f"{possible:.2f} are possible: every draft is judged with min(1, p/q), and a whole block gets one more token")
    if total_variation(blocks_and_texts(learners, 1)[1], target_texts(1)) > EXACT:
        raise Mistake("right for a block of two drafts, wrong for a block of one; how long a block is, len(base_logits) says")
