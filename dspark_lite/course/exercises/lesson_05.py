"""Checkers of lesson 05: the transition bias, and a block drawn from left to right, by the texts that the accept rule makes of it."""

from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from ...decoding.sampling import probabilities
from ...losslessness.enumeration import outcomes, summed, total_variation
from ..checkers.checking import Comparison, Exercise, Mistake, as_values, checker, finished, same
from ..checkers.random_cases import RANDOM_CASES, SEED, Cases, drawn, number
from ..own_decoder import verifying
from ..own_decoder.my_dspark import transition_bias
from ..own_decoder.verifying import ANCHOR, DRAFTS, EXACT, TARGET, draw, target_texts, verify

W1, W2, LM_HEAD = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight", "lm_head.weight"


def _random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def one_row(answer):
    """Return the answer, which has to be a tensor: the lesson adds it to logits."""
    if not isinstance(answer, torch.Tensor):
        raise Mistake(
            f"this is a {type(answer).__name__}; the bias is a tensor [V], to be added to logits."
        )
    return answer


def of_factors(rule):
    """Return a bias made of the two matrices [V, r] and the previous token by another rule."""
    return lambda draft, previous: rule(draft.w[W1], draft.w[W2], previous)


BIAS_CASE = SimpleNamespace(w={W1: _random(6, 2, seed=1), W2: _random(6, 2, seed=2)}), 4


def bias_case(generator):
    """Return matrices of another vocabulary and rank, and any previous token."""
    vocab, rank = number(generator, 3, 12), number(generator, 1, 8)
    weights = {name: torch.randn(vocab, rank, generator=generator) for name in (W1, W2)}
    return SimpleNamespace(w=weights), number(generator, 0, vocab - 1)


check_transition_bias = Exercise(
    transition_bias,
    Comparison(
        Cases([BIAS_CASE], bias_case),
        {
            "W1 and W2 are swapped: this scores which token came before, not which comes next. W1 reads the token before.": of_factors(
                lambda w1, w2, x: w1 @ w2[x]
            ),
            "this is W1[x], a vector of rank r; W2 still has to turn it into one number per token.": of_factors(
                lambda w1, w2, x: w1[x]
            ),
            "this is a row of W2, a vector of rank r; W1 is looked up, and all of W2 turns the row into one number per token.": of_factors(
                lambda w1, w2, x: w2[x]
            ),
            "you made probabilities of it; the bias is added to logits, and softmax comes once, after the sum.": (
                of_factors(lambda w1, w2, x: torch.softmax(w2 @ w1[x], -1)),
                of_factors(lambda w1, w2, x: torch.log_softmax(w2 @ w1[x], -1)),
            ),
            "this is the whole V x V table; only the row of the previous token is wanted.": (
                of_factors(lambda w1, w2, x: w1 @ w2.T),
                of_factors(lambda w1, w2, x: w2 @ w1.T),
            ),
            "W1 and W2 are both read at the previous token; all V rows of W2 are needed, one for each next token.": (
                of_factors(lambda w1, w2, x: w1[x] * w2[x]),
                of_factors(lambda w1, w2, x: w1[x] @ w2[x]),
            ),
            "these are the right numbers in a matrix of one row; the bias of one token is a vector [V].": (
                of_factors(lambda w1, w2, x: (w2 @ w1[x])[None]),
                of_factors(lambda w1, w2, x: (w2 @ w1[x])[:, None]),
            ),
            "the bias already has base logits in it; return W2 W1[x] alone, the sum comes with the block.": of_factors(
                lambda w1, w2, x: w2 @ w1[x] + w2.sum(-1)
            ),
        },
        "the bias is not W2 W1[x] of the previous token.",
        read=one_row,
    ),
)


# The block: drawn in another way it is repaired by the rule, if its q is its own, and costs only length. So blocks are compared
# first, then the texts that the rule of lesson 02 commits.
# Base logits [g, V]. The first favourite is not the anchor.
ROUND_BASE = torch.tensor([[0.0, -0.5, 0.5], [-0.3, 0.2, 0.6], [0.4, 0.1, -0.2]])
# The bias after each token, [V, V].
ROUND_TABLE = torch.tensor([[0.2, 1.0, -0.6], [-0.8, 0.1, 0.9], [0.7, -0.5, 0.0]])
TOY_DRAFT = SimpleNamespace(
    w={LM_HEAD: torch.eye(3), W1: torch.eye(3), W2: ROUND_TABLE.T.contiguous()},
    gamma=len(ROUND_BASE),
)
TEMPERATURES = (1.0, 0.5)


def draw_block_variant(
    before=lambda k, anchor, drafts, base: drafts[-1] if k else anchor,
    pick=draw,
    scale=lambda temperature: temperature,
    sign=1,
    kept=lambda k, anchor, drafts, base, bias, row: row,
):
    """Return a `draw_block` that may be wrong: slot k is biased by the token `before` (None: not at
    all), `pick` picks its token, and `kept` is the row of q that is kept for it, once the block has
    been drawn."""

    def draw_block(draft, hidden, anchor, temperature, generator):
        def bias(token):
            return sign * transition_bias(draft, token)

        base, drafts, rows = F.linear(hidden, draft.w[LM_HEAD]), [], []
        for k, logits in enumerate(base):
            token = before(k, anchor, drafts, base)
            rows.append(
                probabilities(logits + (0 if token is None else bias(token)), scale(temperature))
            )
            drafts.append(pick(rows[k], generator))
        return drafts, torch.stack(
            [
                kept(k, anchor, drafts, base / max(temperature, 1e-9), bias, row)
                for k, row in enumerate(rows)
            ]
        )

    return draw_block


def adding_up(draft, hidden, anchor, temperature, generator):
    """Return a block in which every slot has the biases of all tokens before it."""
    base, drafts, rows = F.linear(hidden, draft.w[LM_HEAD]), [], []
    for logits in base:
        biases = sum(transition_bias(draft, token) for token in (anchor, *drafts))
        rows.append(probabilities(logits + biases, temperature))
        drafts.append(draw(rows[-1], generator))
    return drafts, torch.stack(rows)


def most_likely(probs, generator):
    """Return the most probable token of probs [V]; nothing is drawn."""
    return int(probs.argmax())


draw_block = draw_block_variant()
WRONG_BLOCKS = {  # the texts would still be the target's own, for the rule repairs any block
    "no bias reached the block; slot k is drawn after the bias of the token before it": draw_block_variant(
        before=lambda k, anchor, drafts, base: None
    ),
    "every slot is biased by the anchor; after each draw the token just drawn becomes the previous one": draw_block_variant(
        before=lambda k, anchor, drafts, base: anchor
    ),
    "every slot after the first is biased by the first draft, drafts[0]; the token before slot k is the newest, drafts[-1]": draw_block_variant(
        before=lambda k, anchor, drafts, base: drafts[0] if k else anchor
    ),
    "the biases of all tokens before a slot add up; it has that of the token just before it alone": adding_up,
    "the first slot has no bias; its previous token is the anchor": draw_block_variant(
        before=lambda k, anchor, drafts, base: drafts[-1] if k else None
    ),
    "slot k is biased by the favourite of the base logits at k - 1, not by the token that was drawn there": draw_block_variant(
        before=lambda k, anchor, drafts, base: int(base[k - 1].argmax()) if k else anchor
    ),
    "the bias is subtracted; it is added to the base logits": draw_block_variant(sign=-1),
    "the drafts are the most probable tokens; draw them with `draw`": draw_block_variant(
        pick=most_likely
    ),
    "the temperature is not used; probabilities(logits, temperature) takes it": draw_block_variant(
        scale=lambda temperature: 1.0
    ),
}
WRONG_ROWS = {
    "you return the q of the base logits; the rule needs the one that the token was drawn from, after the bias": draw_block_variant(
        kept=lambda k, anchor, drafts, base, bias, row: torch.softmax(base[k], -1)
    ),
    "every row of q has the anchor's bias; the rule needs the one that the token was drawn from, after the token before it": draw_block_variant(
        kept=lambda k, anchor, drafts, base, bias, row: torch.softmax(base[k] + bias(anchor), -1)
    ),
    "q holds logits; the rule compares probabilities, so each row needs a softmax": draw_block_variant(
        kept=lambda k, anchor, drafts, base, bias, row: (
            base[k] + bias(drafts[k - 1] if k else anchor)
        )
    ),
}


def blocks_and_texts(learners, temperature: float, block: int = DRAFTS) -> tuple[dict, dict, float]:
    """Return the probability of each block that a learner's `draw_block` drafts; of each text of a
    round's full length by the rule of lesson 02, its missing tokens drawn from the target; and the
    mean tokens per round."""
    rounds = list(outcomes(lambda path: _judged(learners, temperature, path, block)))
    blocks = summed((drafts, probability) for (drafts, _), probability in rounds)
    return blocks, *verifying.texts_of(
        ((tokens, probability) for (_, tokens), probability in rounds), block
    )


def long_blocks(learners, temperature: float) -> dict[tuple[int, ...], float]:
    """Return the probability of each block of all slots: with two, the first draft is the newest as
    well."""
    return summed(
        (tuple(drafts), probability)
        for (drafts, _), probability in outcomes(
            lambda path: _drawn(learners, temperature, path, len(ROUND_BASE))
        )
    )


def _drawn(learners, temperature: float, generator, block: int) -> tuple[list[int], torch.Tensor]:
    """Return the block that a learner's function draws of the toy draft, and its q."""
    return as_block(
        learners(TOY_DRAFT, ROUND_BASE[:block].clone(), ANCHOR, temperature, generator), block, 3
    )


def as_block(returned, block: int, vocab: int) -> tuple[list[int], torch.Tensor]:
    """Return what a learner's function returned; raise Mistake where it is no list of drafts with
    its q [g, V]."""
    if not isinstance(finished(returned), tuple) or len(returned) != 2:
        raise Mistake(
            "return two things: the list of drafts, and q, a tensor [g, V] of the distributions they were drawn from"
        )
    drafts, q = finished(returned)
    drafts = [int(draft) for draft in drafts]
    if len(drafts) != block:
        raise Mistake(
            f"{block} slots draft {block} tokens, the anchor not among them; you returned {len(drafts)}"
        )
    if not isinstance(q, torch.Tensor) or q.shape != (block, vocab):
        shape = f"a {type(q).__name__}" if not isinstance(q, torch.Tensor) else str(list(q.shape))
        raise Mistake(
            f"q is a tensor [g, V], here [{block}, {vocab}], a row for each draft (torch.stack makes it of a list); yours is {shape}"
        )
    return drafts, q


def _judged(learners, temperature: float, path, block: int) -> tuple[tuple[int, ...], list[int]]:
    """Return the block that a learner's function draws and what a round commits of it; every draw
    follows `path`."""
    drafts, q = _drawn(learners, temperature, path, block)
    return tuple(drafts), verify(TARGET[[ANCHOR, *drafts]], q, drafts, path)


def judge_at(temperature: float, learners) -> None:
    """Raise Mistake unless a function like `draw_block` drafts the right blocks at this
    temperature, and the rule commits with its q exactly what the target would write, as much as it
    can."""
    blocks_at = partial(long_blocks, temperature=temperature)
    blocks = verifying.visited(blocks_at, learners)
    if total_variation(blocks, blocks_at(draw_block)) > EXACT:
        verifying.visit_again(lambda function: [blocks_at(function)], learners, [blocks])
        known = verifying.matching_mistake(blocks, WRONG_BLOCKS, blocks_at)
        raise Mistake(
            "the block is not drawn left to right from base logits plus bias"
            + (f": {known}" if known else ", a softmax and a draw at each slot")
        )
    at_this = partial(blocks_and_texts, temperature=temperature)
    (_, texts, length), (_, _, possible) = at_this(learners), at_this(draw_block)
    distance = total_variation(texts, target_texts())
    if distance > EXACT:
        verifying.visit_again(lambda function: [at_this(function)[1]], learners, [texts])
        known = verifying.matching_mistake(texts, WRONG_ROWS, lambda wrong: at_this(wrong)[1])
        raise Mistake(
            f"the block is right, but with your q the committed texts are off by a total variation of "
            f"{verifying.shown(distance)}: "
            + (known or "is row k of q what draft k was drawn from?")
        )
    if length < possible - EXACT:
        raise Mistake(
            f"the texts are right, but a round commits {length:.2f} tokens on average where {possible:.2f} are possible: q says "
            "that each draft was certain, a one-hot row; the rule keeps more with the distribution it was drawn from"
        )


def block_case(generator):
    """Draw another draft, hidden states of one to six slots, an anchor, a temperature, and the seed
    of the draws."""
    vocab, rank, hidden_size = (number(generator, low, 7) for low in (3, 1, 2))
    weights = {
        LM_HEAD: torch.randn(vocab, hidden_size, generator=generator),
        W1: torch.randn(vocab, rank, generator=generator),
        W2: torch.randn(vocab, rank, generator=generator),
    }
    hidden = torch.randn(number(generator, 1, 6), hidden_size, generator=generator)
    draft = SimpleNamespace(w=weights, gamma=len(hidden))
    temperature = (0.0, 0.5, 1.0, 2.0)[number(generator, 0, 3)]
    return draft, hidden, number(generator, 0, vocab - 1), temperature, number(generator, 0, 10**6)


def draws_as_the_reference(learners, case: tuple) -> bool:
    """Return whether a learner's function drafts the right block, with the right q, from the same
    draws."""
    draft, hidden, anchor, temperature, seed = case
    blocks = [
        as_block(
            function(
                draft, hidden.clone(), anchor, temperature, torch.Generator().manual_seed(seed)
            ),
            len(hidden),
            len(draft.w[LM_HEAD]),
        )
        for function in (learners, draw_block)
    ]
    return same(*map(as_values, blocks))


@checker
def check_draw_block(learners):
    """Check a function like `draw_block` by the exact distribution of the blocks it drafts and of
    the texts a round commits."""
    for temperature in TEMPERATURES:
        judge_at(temperature, learners)
    if not same(
        *(
            as_values(_drawn(function, 0.0, torch.Generator(), DRAFTS))
            for function in (learners, draw_block)
        )
    ):
        raise Mistake(
            "right at temperature 1, wrong at 0: probabilities(logits, 0) has all its mass on the largest logit, in q as well"
        )
    if total_variation(blocks_and_texts(learners, 1.0, 1)[1], target_texts(1)) > EXACT:
        raise Mistake(
            "right for a block of three drafts, wrong for a block of one; how long a block is, the rows of `hidden` say"
        )
    for case in drawn(block_case, RANDOM_CASES, SEED):
        if not draws_as_the_reference(learners, case):
            raise Mistake(
                f"right for the small draft, wrong for another with {len(case[1])} slots, {len(case[0].w[LM_HEAD])} tokens, hidden states "
                f"of size {case[1].shape[1]} and temperature {case[3]}: is row k of q what draft k was drawn from, and does every size "
                "come from an argument?"
            )
