"""Checkers of lesson 14: acceptance by round, memory, the power of a test, and the diagnoses of a ward."""

import numpy as np
import torch

from ...losslessness.toys import toy_models
from ..checkers.checking import (
    Comparison,
    Exercise,
    Mistake,
    as_truth,
    checker,
    finished,
    one_number,
)
from ..checkers.random_cases import Cases, distributions, number, numbers
from ..clinic import patients


def by_round(answers):
    """Return the mean accepted drafts of round 1, 2, ..., from a list of accepted counts for each
    answer."""
    longest = max(map(len, answers))
    return [
        sum(some) / len(some)
        for some in ([answer[k] for answer in answers if len(answer) > k] for k in range(longest))
    ]


PLAYED = [([[5, 3, 1], [7, 4], [6, 2, 0, 0]],), ([[2, 2, 2, 2, 2], [7]],)]


def played_case(generator):
    """Return one to six answers of one to eight rounds."""
    answers = number(generator, 1, 6)
    return ([numbers(generator, number(generator, 1, 8), 0, 7) for _ in range(answers)],)


check_by_round = Exercise(
    by_round,
    Comparison(
        Cases(PLAYED, played_case),
        {
            "a round that an answer does not have counts as no draft accepted; leave it out of the mean.": lambda answers: [
                sum(answer[k] for answer in answers if len(answer) > k) / len(answers)
                for k in range(max(map(len, answers)))
            ],
            "your list ends with the shortest answer; go on to the longest, with the answers that have the round.": lambda answers: [
                sum(column) / len(answers) for column in zip(*answers)
            ],
            "answers have different numbers of rounds, so they make no array; take each round from the answers that have it.": (
                lambda answers: np.array(answers).mean(0),
                lambda answers: np.mean(answers, axis=0),
            ),
            "that is a mean for each answer; asked is one for each round, over the answers.": lambda answers: [
                sum(answer) / len(answer) for answer in answers
            ],
            "those are sums over the answers; divide by how many answers have the round.": lambda answers: [
                len([a for a in answers if len(a) > k]) * mean
                for k, mean in enumerate(by_round(answers))
            ],
            "each round is averaged together with those before it; then a fall hides for long. Take each round by itself.": lambda answers: [
                float(np.mean([kept for answer in answers for kept in answer[: k + 1]]))
                for k in range(max(map(len, answers)))
            ],
            "you counted the token after the drafts as well; the list holds accepted drafts, so take them as they are.": lambda answers: [
                1 + mean for mean in by_round(answers)
            ],
        },
        "the k-th number is the mean of the k-th round's accepted drafts over the answers that have a k-th round.",
    ),
)


def same_block(drafter, features, anchor, cut):
    """Return whether the block is the same after features read at once and after two pieces with a
    block drafted in between."""
    at_once = drafter.block_hidden(drafter.begin(None, features), anchor)
    return torch.allclose(at_once, in_pieces(drafter, features, anchor, cut), atol=1e-4)


def in_pieces(drafter, features, anchor, cut, drafts=True, extend=True, second=None):
    """Return the block after two pieces; without a block drafted in between, or with a second piece
    of other `features`."""
    rest = features[:, cut:] if second is None else second(features, cut)
    state = drafter.begin(None, features[:, :cut])
    if drafts:
        drafter.block_hidden(state, anchor)
    if extend:
        drafter.extend(state, None, rest)
    else:
        state = drafter.begin(None, rest)
    return drafter.block_hidden(state, anchor)


def in_between(drafter, features, anchor, cut):
    """Return the block that is drafted between the two pieces."""
    return drafter.block_hidden(drafter.begin(None, features[:, :cut]), anchor)


def pieced(
    judge=lambda one, other: torch.allclose(one, other, atol=1e-4), block=in_pieces, **options
):
    """Return an answer that takes the second `block` in another way, or judges the two by another
    rule."""
    return lambda drafter, features, anchor, cut: judge(
        drafter.block_hidden(drafter.begin(None, features), anchor),
        block(drafter, features, anchor, cut, **options),
    )


def one_state(drafter, features, anchor, cut):
    """Go both ways in one state: read the pieces after the whole."""
    state = drafter.begin(None, features)
    at_once = drafter.block_hidden(state, anchor)
    drafter.extend(state, None, features[:, :cut])
    drafter.block_hidden(state, anchor)
    drafter.extend(state, None, features[:, cut:])
    return torch.allclose(at_once, drafter.block_hidden(state, anchor), atol=1e-4)


def memory_cases():
    """Return (drafter, features [1, 9, taps * H], anchor [1], cut) of a healthy toy and of patients
    that remember rightly or wrongly."""
    target, drafters = toy_models(seed=4, vocab_size=11, gamma=4)
    ids, anchor = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5]]), torch.tensor([7])
    features = target.prefill(ids, drafters["dspark"].taps)[0].features.clone()
    healthy = patients.Service(target, drafters["dspark"])
    chosen = [
        lambda service: service,
        patients.block_kept,
        patients.positions_restart,
        patients.features_late,
        patients.rotary_base,
    ]
    return [
        (mistake(healthy).drafter, features, anchor, cut)
        for mistake, cut in zip(chosen, (3, 6, 3, 6, 3))
    ]


class Memory:
    """A drafter in miniature that remembers one thing: its block is a number that `recall` makes of a state, the list of the
    pieces that were read, with None for each block that was drafted."""

    def __init__(self, recall):
        self.recall = recall

    def begin(self, tokens, features):
        """Return a state that has read the features [1, n, ...]."""
        return [features]

    def extend(self, state, tokens, features):
        """Read on into the state."""
        state.append(features)

    def block_hidden(self, state, anchor):
        """Return the block [1, 1, 1]; the state notes that it was drafted."""
        read = torch.cat([piece for piece in state if piece is not None], 1)
        block = torch.as_tensor(self.recall(read, state) + anchor.sum(), dtype=torch.float64)
        state.append(None)
        return block.view(1, 1, 1)


MEMORIES = {  # what a drafter may remember: right ones, whose block is the same, and wrong ones, whose block is not
    "nothing": lambda read, state: 0.0,
    "all": lambda read, state: read.sum(),
    "the first": lambda read, state: read[:, :1].sum(),
    "the newest": lambda read, state: read[:, -1:].sum(),
    "how many": lambda read, state: read.shape[1],
    "five or more": lambda read, state: float(read.shape[1] >= 5),
    "all, rounded": lambda read, state: read.sum() + 1e-5 * len(state),
    "its blocks": lambda read, state: read.sum() + state.count(None),
    "the newest piece": lambda read, state: [p for p in state if p is not None][-1].shape[1],
    "pieces": lambda read, state: len(state) - state.count(None),
    "pieces, odd or even": lambda read, state: (len(state) - state.count(None)) % 2,
}


def memory_case(generator):
    """Return one of the drafters in miniature, two to nine features, an anchor, and where the text
    is cut."""
    recall = list(MEMORIES.values())[number(generator, 0, len(MEMORIES) - 1)]
    features = 0.5 + torch.rand(1, number(generator, 2, 9), 2, generator=generator)
    cut = number(generator, 1, features.shape[1] - 1)
    return Memory(recall), features, torch.tensor([number(generator, 0, 9)]), cut


with torch.no_grad():
    MEMORY_CASES = memory_cases()
    MEMORY_CASES += [(Memory(recall), *MEMORY_CASES[0][1:]) for recall in MEMORIES.values()]
check_same_block = Exercise(
    same_block,
    Comparison(
        Cases(MEMORY_CASES, memory_case),
        {
            "a cache that keeps the drafted block looks right as long as nothing is drafted: draft a block between the two pieces.": pieced(
                drafts=False
            ),
            "that is the block in between; its result is thrown away. Read the rest into the same state, and take the block that follows.": pieced(
                block=in_between
            ),
            "the rest is features[:, cut:]; you extend by all features, so that the first piece is read twice.": pieced(
                second=lambda features, cut: features
            ),
            "the state lacks one of the two pieces: `begin` with features[:, :cut], then `extend` the same state with features[:, cut:].": (
                pieced(extend=False),
                pieced(second=lambda features, cut: features[:, :0]),
            ),
            "you extend by the first piece again; the rest is features[:, cut:].": pieced(
                second=lambda features, cut: features[:, :cut]
            ),
            "the rest begins at `cut`: the feature at `cut` itself is missing.": pieced(
                second=lambda features, cut: features[:, cut + 1 :]
            ),
            "both ways share one state; the pieces are read after the whole. Begin a new state for each way.": one_state,
            "rounding may differ, and torch.equal forgives none of it: take torch.allclose(one, other, atol=1e-4).": pieced(
                torch.equal
            ),
            "with so wide a tolerance any two blocks agree; rounding leaves less than 1e-4.": pieced(
                lambda one, other: torch.allclose(one, other, atol=1e3)
            ),
        },
        "read all features at once and take the block; then read features[:, :cut], draft a block, extend by the rest, take the block; "
        "return whether the two agree within 1e-4.",
        as_truth,
    ),
)


def excess(p, wrong, draws):
    """Return by how much a mistake raises the chi-square of `draws` draws on average: draws times
    the sum of (wrong - p)^2 / p."""
    return draws * ((wrong - p) ** 2 / p).sum()


CELLS = [
    (np.array([0.5, 0.3, 0.2]), np.array([0.52, 0.27, 0.21]), 2000),
    (np.array([0.9, 0.06, 0.04]), np.array([0.88, 0.09, 0.03]), 500),
]


def cells_case(generator):
    """Return distributions of two to six tokens, and how often they are drawn."""
    p, wrong = distributions(generator, 2, number(generator, 2, 6)).double()
    return (p / p.sum()).numpy(), (wrong / wrong.sum()).numpy(), number(generator, 100, 5000)


check_excess = Exercise(
    excess,
    Comparison(
        Cases(CELLS, cells_case),
        {
            "divide by p, what is expected if nothing is wrong; the test does not know the other distribution.": lambda p, wrong, draws: (
                draws * ((wrong - p) ** 2 / wrong).sum()
            ),
            "the number of draws is missing: twice the draws, twice the excess.": lambda p, wrong, draws: (
                ((wrong - p) ** 2 / p).sum()
            ),
            "squared counts over probabilities: with counts in the numerator the expected counts, draws * p, belong below.": lambda p, wrong, draws: (
                (draws**2 * (wrong - p) ** 2 / p).sum()
            ),
            "differences below zero cancel those above; square them.": lambda p, wrong, draws: (
                draws * ((wrong - p) / p).sum()
            ),
            "that sums absolute differences; chi-square squares each and divides it by p.": (
                lambda p, wrong, draws: draws * (np.abs(wrong - p) / p).sum(),
                lambda p, wrong, draws: draws * np.abs(wrong - p).sum(),
                lambda p, wrong, draws: np.abs(wrong - p).sum() / 2,
            ),
            (
                "each squared difference is divided by its own p; otherwise a rare token that "
                "comes twice as often counts for nothing."
            ): lambda p, wrong, draws: draws * ((wrong - p) ** 2).sum(),
            "that is the mean over the tokens; add them up.": lambda p, wrong, draws: (
                draws * ((wrong - p) ** 2 / p).mean()
            ),
            "return one number, the sum.": lambda p, wrong, draws: draws * (wrong - p) ** 2 / p,
        },
        "the excess is draws * sum((wrong - p)**2 / p).",
        one_number,
    ),
)


TELLING = {  # cause: the columns that speak for it, the first of them for the table
    "features one late": ("newest features", "later drafts", "promised − kept", "τ code"),
    "empty embedding": ("anchor", "first draft"),
    "mask for the anchor": ("anchor", "first draft"),
    "thinking on": ("τ rounds 1, 2", "first draft", "template"),
    "other layout": ("drafts", "one place on"),
    "rotary base": ("later drafts", "last draft", "τ rounds 4 on"),
    "positions restart": ("memory",),
    "head left out": ("head",),
    "final norm missing": ("own odds",),
    "block kept": ("left by a round", "memory"),
    "refused kept": ("left by a round", "read per token"),
    "leak between requests": ("left at start",),
    "reads all again": ("read per token",),
    "another draft's calibration": ("promised − kept",),
    "stale cost table": ("block's price", "scheduled"),
    "bonus lost": ("last draft",),
    "16-bit draws": ("distance",),
    "best one, claimed as drawn": ("distance",),
}
WOULD = {  # cause: what the chart or a test would show of it
    "features one late": "then the block would not react to the newest features, and the cache would hold what it should",
    "empty embedding": "then the block would not react to the anchor, and later drafts would be bad, too",
    "mask for the anchor": "then the block would not react to the anchor, while later drafts would be nearly healthy: the sequential head knows what "
    "was drawn",
    "thinking on": "then hardly a draft of the first rounds would be accepted, while all tests pass: they read the usual prompt",
    "other layout": "then a block would have one draft fewer, and drafts would fit one place on",
    "rotary base": "then later drafts would be low, more so towards a block's end, while all tests pass",
    "positions restart": "then the block would change when the same text is read in two pieces, while the cache has the right length",
    "head left out": "then a slot's logits would not react to the token before it",
    "final norm missing": "then the draft would be almost certain of its own drafts, and few would be kept",
    "block kept": "then each round would leave a whole block in the draft's cache",
    "refused kept": "then the draft's cache would grow by what was refused, and more would be read than committed",
    "leak between requests": "then the draft's cache would not be empty when a request begins",
    "reads all again": "then all drafts would be healthy and the draft would read several tokens for each one committed",
    "another draft's calibration": "then all drafts would be healthy and only what is promised would be wrong",
    "stale cost table": "then all drafts would be healthy, and the cost table would say that a block costs many passes",
    "bonus lost": "then the last draft of a block would never count as accepted",
    "16-bit draws": "then all drafts would be healthy, and enumeration would find a small distance",
    "best one, claimed as drawn": "then enumeration would find a large distance",
}


# Beds of the lesson's ward: each of the round's six points decides one of them, and bed 1 is worked
# out.
FIRST_BEDS = range(1, 8)


@checker
def check_first_beds(diagnosis):
    """Check `diagnosis`: {bed: (cause, evidence)} for the first beds of the lesson's ward."""
    _judge(diagnosis, {bed: cause for bed, cause in patients.ward().items() if bed in FIRST_BEDS})


@checker
def check_diagnosis(diagnosis, seed: int = patients.SEED):
    """Check `diagnosis`: {bed: (cause, evidence)} for a ward, by default that of the lesson."""
    _judge(diagnosis, patients.ward(seed))


def _judge(diagnosis, beds: dict[int, str]) -> None:
    """Raise Mistake unless all of these beds, {bed: its cause}, are right: how many are, and what is
    wrong with the first that is not."""
    if not isinstance(finished(diagnosis), dict):
        raise Mistake(
            f"the diagnosis is a dictionary, {{bed: (cause, evidence)}}, not a value of type {type(diagnosis).__name__}."
        )
    faults = [
        (bed, fault)
        for bed, cause in beds.items()
        if (fault := _fault(finished(diagnosis.get(bed)), bed, cause))
    ]
    if faults:
        raise Mistake(
            f"{len(beds) - len(faults)} of {len(beds)} beds are right. Bed {faults[0][0]}: {faults[0][1]}"
        )


def _fault(said, bed: int, right: str) -> str:
    """Return what is wrong with a bed's diagnosis; empty where nothing is."""
    if not isinstance(said, (tuple, list)) or len(said) != 2:
        raise Mistake(
            f'bed {bed} has {said!r}; give a cause and the evidence, ("cause", "column").'
        )
    columns = sorted({column for telling in TELLING.values() for column in telling})
    cause, evidence = _named(said[0], patients.CAUSES), _named(said[1], columns)
    if cause is None:
        raise Mistake(
            f"bed {bed}: the cause is {said[0]!r}; the causes are {', '.join(patients.CAUSES)}."
        )
    if evidence is None:
        raise Mistake(f"bed {bed}: the evidence is {said[1]!r}; it is one of {', '.join(columns)}.")
    if cause != right:
        return f"if that were {cause!r}, {WOULD[cause]}."
    return (
        ""
        if evidence in TELLING[cause]
        else f"the cause is right, and {evidence!r} does not tell it from its neighbours."
    )


def _named(said, names) -> str | None:
    """Return the one of `names` that is meant, whatever its case and with a hyphen for the minus;
    None where none is."""
    if not isinstance(said, str):
        return None
    plain = {name.lower().replace("−", "-"): name for name in names}
    return plain.get(said.strip().lower().replace("−", "-"))
