"""The capstone of lesson 02: a `verify` from memory, graded by visiting every outcome of its random
decisions.

Lessons 02 and 03 ask for it; 03, 05 and 11 run it in a loop and in an engine of the reader's own.
"""

import torch

from ...decoding import sampling
from ...decoding.sampling import Randomness, Verdict, accepted_prefix_length, residual
from ...losslessness.enumeration import outcomes, summed, total_variation
from ..checkers.checking import Mistake, as_function, checker, finished
from ..checkers.random_cases import SEED, distributions, drawn

DRAFTS = 2
# Distributions of the next token after each last one, [V, V].
TARGET = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.15, 0.6]])
# After a 0 two tokens are owed, 0 and 1.
DRAFTER = torch.tensor([[0.3, 0.2, 0.5], [0.6, 0.1, 0.3], [0.3, 0.3, 0.4]])
TABLES = TARGET, DRAFTER
IN_WORDS = {1: "one", 3: "three"}
BLOCKS = 1, 3  # other lengths of a block; with two drafts, the second row is the last one as well
ANCHOR = 0
EXACT = 1e-5  # what float32 probabilities leave of a total variation
VISITS = 8  # more, of a function whose distributions are wrong
SMALL = 0.01  # every known mistake moves the texts by more


def toss(chance, generator: Randomness) -> bool:
    """Return a coin that comes up true with probability `chance` (above 1: always, below 0: never)."""
    keep = torch.as_tensor(chance, dtype=torch.float32).clamp(0, 1)
    if keep.numel() != 1:
        raise ValueError(f"toss takes the chance of one draft, not {keep.numel()} numbers")
    return bool(accepted_prefix_length(keep.view(1, 1), generator))


def draw(probs: torch.Tensor, generator: Randomness) -> int:
    """Return one token from the distribution probs [V]."""
    return sampling.draw(probs[None], generator).item()


def verify(p, q, drafts, generator):
    """Return the tokens that a round commits: the drafts that are kept, and one more.

    p [g+1, V] are the target's distributions, q [g, V] the drafter's, `drafts` a list of the g
    tokens drawn from q.
    """
    for k, x in enumerate(drafts):
        if not toss(p[k, x] / q[k, x], generator):
            return [*drafts[:k], draw(residual(p[k], q[k]), generator)]
    return [*drafts, draw(p[len(drafts)], generator)]


def as_accept(verify):
    """Return `verify` in the form in which `generate` calls its rule: a batch of one request."""

    def accept(target_probs, draft_probs, draft_tokens, lengths, generator) -> Verdict:
        tokens = verify(target_probs[0], draft_probs[0], draft_tokens[0].tolist(), generator)
        return Verdict(torch.tensor([len(tokens) - 1]), torch.tensor([tokens[-1]]))

    return accept


def in_use(learners, done: bool):
    """Return the learner's `verify` if it is right, else the reference, so that the cells below run
    either way."""
    print(
        "From here on your own verify decides."
        if done
        else "Until yours is right, the package's verify decides below."
    )
    return learners if done else verify


# What may go wrong in a round: the coin of draft x, the distribution after a refusal at k, and the
# one after a whole block.


def variant(
    coin=lambda p, q, k, x: p[k, x] / q[k, x],
    correction=lambda p, q, k: residual(p[k], q[k]),
    bonus=lambda p, q: p[len(q)],
):
    """Return a verifier with one of its decisions taken in another way."""

    def wrong(p, q, drafts, generator):
        for k, x in enumerate(drafts):
            if not toss(coin(p, q, k, x), generator):
                return [*drafts[:k], draw(correction(p, q, k), generator)]
        return [*drafts, draw(bonus(p, q), generator)]

    return wrong


def without_bonus(p, q, drafts, generator):
    """Commit the block alone when all of it was kept."""
    tokens = verify(p, q, drafts, generator)
    return tokens[: len(drafts)]


def going_on(p, q, drafts, generator):
    """Replace every refused draft and draw the bonus, for want of a `return` after a refusal."""
    tokens = [
        x if toss(p[k, x] / q[k, x], generator) else draw(residual(p[k], q[k]), generator)
        for k, x in enumerate(drafts)
    ]
    return [*tokens, draw(p[len(drafts)], generator)]


def going_on_to_the_end(p, q, drafts, generator):
    """Replace every refused draft, and draw the bonus where there is none."""
    tokens = going_on(p, q, drafts, generator)
    return tokens if tokens[:-1] == drafts else tokens[:-1]


def last_refusal(p, q, drafts, generator):
    """Let a later refusal overwrite what was kept before the first, for want of a `return`."""
    tokens = []
    for k, x in enumerate(drafts):
        if not toss(p[k, x] / q[k, x], generator):
            tokens = [*drafts[:k], draw(residual(p[k], q[k]), generator)]
    return tokens or [*drafts, draw(p[len(drafts)], generator)]


def without_effect(p, q, drafts, generator):
    """Draw the replacement and throw it away."""
    for k, x in enumerate(drafts):
        if not toss(p[k, x] / q[k, x], generator):
            draw(residual(p[k], q[k]), generator)
    return [*drafts, draw(p[len(drafts)], generator)]


def skipping(p, q, drafts, generator):
    """Go on after a refusal: keep each draft whose coin came up true, then draw from the last row of
    p."""
    accepted = [x for k, x in enumerate(drafts) if toss(p[k, x] / q[k, x], generator)]
    return [*accepted, draw(p[len(drafts)], generator)]


def refusing(change):
    """Return a verifier that commits `change(tokens, p, drafts, generator)` in place of the right
    tokens of a round with a refusal."""

    def wrong(p, q, drafts, generator):
        tokens = verify(p, q, drafts, generator)
        return tokens if len(tokens) > len(drafts) else change(tokens, p, drafts, generator)

    return wrong


returning_the_refused = refusing(lambda tokens, p, drafts, generator: drafts[: len(tokens)])
# A refused draft is distributed as residual(q, p), so the texts of two mistakes are the same; draft
# by draft they differ.
OFFERED = (
    "after a refusal comes what was offered too often: the refused draft itself, or a draw from residual(q, p); "
    "draw the replacement from residual(p[k], q[k])"
)
NEVER = "nothing is ever refused"
LOST_RETURN = {
    "a refusal has no effect: your loop goes on with the next draft, and what it drew is thrown away. `return` the kept drafts and the "
    "replacement there": without_effect
}
REFUSED_SECOND = [2, 0]  # after a 2 two tokens are offered too often, 0 and 1
WHICH_OFFERED = {
    "the refused draft is returned; draw a replacement from residual(p[k], q[k]) in its place": returning_the_refused,
    "p and q are swapped in the residual": variant(correction=lambda p, q, k: residual(q[k], p[k])),
}
MISTAKES = {
    "p and q are swapped in the coin: a draft is kept with min(1, p/q)": variant(
        coin=lambda p, q, k, x: q[k, x] / p[k, x]
    ),
    "the coin is tossed with p(x); x was drawn from q already, so compare the two: min(1, p/q)": variant(
        coin=lambda p, q, k, x: p[k, x]
    ),
    "every draft with p < q is refused; keep it with probability p/q": variant(
        coin=lambda p, q, k, x: p[k, x] >= q[k, x]
    ),
    NEVER: variant(coin=lambda p, q, k, x: 1.0),
    "after a refusal your loop goes on; the round is over, so `return` the kept drafts and the replacement there": going_on,
    "after a refusal your loop goes on and replaces later drafts as well; the round is over, so `return` there": going_on_to_the_end,
    "you return what the last refusal gave; the first one ends the round, so `return` right there": last_refusal,
    "the coin reads row k + 1 of p, which stands after draft k; row k judges it": variant(
        coin=lambda p, q, k, x: p[k + 1, x] / q[k, x]
    ),
    "the residual takes row k + 1 of p, which stands after the refused draft; take row k of both": variant(
        correction=lambda p, q, k: residual(p[k + 1], q[k])
    ),
    "after a refusal you draw from p, which gives the tokens that were already kept a second chance; "
    "draw from the residual": variant(correction=lambda p, q, k: p[k]),
    OFFERED: returning_the_refused,
    "after a refusal you draw the bonus, from row g; draw the replacement from residual(p[k], q[k])": variant(
        correction=lambda p, q, k: p[len(q)]
    ),
    "the bonus comes from row g - 1, which judged the last draft; it stands in row g": variant(
        bonus=lambda p, q: p[len(q) - 1]
    ),
    "a refused draft is left out and the next one judged; a refusal ends the round, with a draw from residual(p[k], q[k])": skipping,
    "the refused draft is committed, too; its replacement takes its place": refusing(
        lambda tokens, p, drafts, generator: [*drafts[: len(tokens)], tokens[-1]]
    ),
    "a bonus is drawn after a refusal, too; the replacement is the last token of the round": refusing(
        lambda tokens, p, drafts, generator: [*tokens, draw(p[len(drafts)], generator)]
    ),
    "after the replacement you draw from row k + 1, which stands after the refused draft; the replacement is the last token "
    "of the round": refusing(
        lambda tokens, p, drafts, generator: [*tokens, draw(p[len(tokens)], generator)]
    ),
}


def committed(verify, path, block: int, tables=TABLES) -> list[int]:
    """Return the tokens of one round of `verify` on `block` drafts from the drafter's table; every
    draw follows `path`."""
    drafts, last = [], ANCHOR
    for _ in range(block):
        last = draw(tables[1][last], path)
        drafts.append(last)
    return judged(verify, drafts, path, tables)


def judged(verify, drafts: list[int], path, tables=TABLES) -> list[int]:
    """Return the tokens of one round of `verify` on these drafts; every draw follows `path`."""
    drafted, before = len(path.taken), [ANCHOR, *drafts]
    target, drafter = tables
    tokens = verify(target[before], drafter[before[:-1]], list(drafts), path)
    return well_formed(tokens, drafts, decided=len(path.taken) > drafted)


def well_formed(tokens, drafts: list[int], decided: bool) -> list[int]:
    """Return the returned tokens as whole numbers; raise Mistake where they cannot be a round's."""
    if isinstance(finished(tokens), torch.Tensor):
        tokens = tokens.tolist()
    if not isinstance(tokens, (list, tuple)):
        raise Mistake(
            f"return the list of tokens that the round commits, not a value of type {type(tokens).__name__}"
        )
    if not tokens:
        raise Mistake(
            "you returned an empty list; a round commits at least one token: after a refusal, the replacement"
        )
    try:
        tokens = [int(token) for token in tokens]
    except (TypeError, ValueError):
        raise Mistake("the list holds token ids, whole numbers, and nothing else") from None
    if not decided:
        raise Mistake(
            "nothing was decided with `generator`; use toss(chance, generator) and draw(probs, generator), "
            "so that every outcome can be visited"
        )
    if len(tokens) > len(drafts) + 1:
        raise Mistake(
            f"{len(tokens)} tokens from a block of {len(drafts)}; a round commits the kept drafts and one more"
        )
    return tokens


def texts(verify, block: int = DRAFTS, tables=TABLES) -> tuple[dict[tuple[int, ...], float], float]:
    """Return probability of each text of a whole round's length, what is missing drawn from the
    target; mean tokens per round."""
    rounds = outcomes(lambda path: committed(verify, path, block, tables))
    return texts_of(rounds, block, tables[0])


def texts_of(rounds, block: int, target=TARGET) -> tuple[dict[tuple[int, ...], float], float]:
    """Return what `texts` gives, from pairs of the tokens that a round of `block` drafts commits
    and their probability."""
    rounds = list(rounds)
    distribution = summed(
        (text, probability * share)
        for tokens, probability in rounds
        for text, share in continued(tokens, block + 1, target)
    )
    return distribution, sum(probability * len(tokens) for tokens, probability in rounds)


def continued(tokens: list[int], length: int, target=TARGET) -> list[tuple[tuple[int, ...], float]]:
    """Return all texts of `length` tokens that begin so, with the target's probabilities of what
    follows."""
    if len(tokens) == length:
        return [(tuple(tokens), 1.0)]
    return [
        (text, float(chance) * share)
        for token, chance in enumerate(target[tokens[-1]])
        for text, share in continued([*tokens, token], length, target)
    ]


def exact(verify, block: int, tables=TABLES) -> bool:
    """Return whether rounds of `block` drafts give the target's own texts; False where `verify`
    raises."""
    try:
        distribution = texts(verify, block, tables)[0]
        return total_variation(distribution, target_texts(block, tables[0])) < EXACT
    except Exception:
        return False


def judge_verify(learners):
    """Raise Mistake unless a function like `verify` commits exactly what the target would write,
    as much as it can."""
    try:
        distribution, length = visited(texts, learners)
    except IndexError:
        raise Mistake(
            "you read a row or a draft that does not exist: for g drafts p has the rows 0 to g, q and the drafts 0 to g - 1; "
            "after a whole block nothing was refused, so no row of q is needed"
        ) from None
    distance, (_, possible) = total_variation(distribution, target_texts()), texts(verify)
    if distance > EXACT:
        visit_again(texts, learners, [distribution])
        known = matching_mistake(distribution, MISTAKES, lambda wrong: texts(wrong)[0])
        if known == NEVER and branches(learners, REFUSED_SECOND) > len(TARGET):
            (known,) = LOST_RETURN
        if known == OFFERED:
            known = (
                matching_mistake(
                    committed_after(learners, REFUSED_SECOND),
                    WHICH_OFFERED,
                    lambda wrong: committed_after(wrong, REFUSED_SECOND),
                )
                or known
            )
        raise Mistake(
            f"your total variation is {shown(distance)}"
            + (f": {known}" if known else unnamed(learners, distance))
        )
    if length < possible - EXACT:
        raise Mistake(
            f"your total variation is 0, the text is right, but a round commits {length:.2f} tokens on average "
            f"where {possible:.2f} are possible{shortfall(learners, length)}"
        )
    for block in BLOCKS:
        wasteful = (
            exact(learners, block) and texts(learners, block)[1] < texts(verify, block)[1] - EXACT
        )
        if wasteful or not exact(learners, block):
            raise Mistake(
                f"right for a block of two drafts, wrong for a block of {IN_WORDS[block]}; how long a block is, len(drafts) says, and row "
                "k of p and of q is that of draft k"
            )
    if not all(exact(learners, DRAFTS, tables) for tables in drawn(random_tables, 5, SEED)):
        raise Mistake(
            "right for one pair of models, wrong for others; no probability is to be typed in"
        )


check_verify = checker(judge_verify)  # prints its verdict and returns it


def random_tables(generator, vocab: int = 3):
    """Draw another target and another drafter, as tables [V, V]."""
    return tuple(distributions(generator, 2, vocab, vocab))


def target_texts(block: int = DRAFTS, target=TARGET) -> dict[tuple[int, ...], float]:
    """Return the target's own probability of each text of block + 1 tokens after the anchor."""
    return {
        text: float(chance) * share
        for token, chance in enumerate(target[ANCHOR])
        for text, share in continued([token], block + 1, target)
    }


def visited(distributions, learners):
    """Return `distributions` of the learner's function over all outcomes. Raise Mistake where it is
    none or needs a real generator."""
    try:
        return distributions(as_function(learners))
    except TypeError as error:
        if "generator" in str(error):
            raise Mistake(
                "toss coins with toss(chance, generator) and draw tokens with draw(probs, generator): "
                "here every outcome is visited, none is drawn"
            ) from None
        raise


def visit_again(distributions, learners, found: list[dict]):
    """Raise Mistake where further visits give others than the first distributions, `found`: then
    not every draw follows the path."""
    if any(
        total_variation(again, before) > EXACT
        for _ in range(VISITS)
        for again, before in zip(distributions(learners), found)
    ):
        raise Mistake(
            "visited again, your function commits other texts: something is drawn at random without `generator`; "
            "use toss(chance, generator) and draw(probs, generator)"
        )


def matching_mistake(found: dict, mistakes: dict, distribution) -> str:
    """Return the sentence of `mistakes`, {sentence: function}, whose function gives `found`.

    `distribution(function)` is what is compared with `found`. Return "" if no function gives it.
    """
    return next(
        (
            sentence
            for sentence, wrong in mistakes.items()
            if total_variation(found, distribution(wrong)) < EXACT
        ),
        "",
    )


def shown(distance: float) -> str:
    """Return a total variation as a learner reads it: two places, or its first digit where it is
    smaller."""
    return f"{distance:.2f}" if distance >= SMALL else f"{distance:.1g}"


def unnamed(learners, distance: float) -> str:
    """Return where to look for a mistake that is not known, as the end of a sentence."""
    if distance < SMALL:
        return (
            ". So little comes from a number that is almost right: is p, q, their ratio or the residual rounded, clamped, or "
            "changed by a small constant?"
        )
    if exact(learners, block=1):
        return (
            ". With a block of one draft it is exact, so the error is in the block: is each draft judged by its own row, is "
            "nothing used after the first refusal, and does the bonus come only after a whole block, from row g?"
        )
    return ". Take one draft alone first: which coin, which distribution after a refusal, and which once it is kept?"


def committed_after(verify, drafts: list[int]) -> dict[tuple[int, ...], float]:
    """Return probability of each list of tokens that a round of `verify` commits on these drafts."""
    return summed(outcomes(lambda path: tuple(judged(verify, drafts, path))))


def branches(verify, drafts: list[int]) -> int:
    """Return in how many ways a round of `verify` on these drafts can end.

    With no coin tossed there are three.
    """
    return len(list(outcomes(lambda path: judged(verify, drafts, path))))


def passes_over_draft_2(verify) -> bool:
    """Return whether it makes no difference which the second draft is: a 1, which the target wants
    more often, or a 2."""
    return total_variation(committed_after(verify, [0, 1]), committed_after(verify, [0, 2])) < EXACT


def shortfall(learners, length: float) -> str:
    """Return why a right verifier may commit too few tokens, as the end of a sentence."""
    if abs(length - texts(without_bonus)[1]) > EXACT:
        return ": keep a draft as often as you can, min(1, p/q)"
    if passes_over_draft_2(learners):
        return ": you never judge draft 2; judge every draft, until the first refusal"
    return ": after a whole block one more token is drawn, the bonus"
