"""Checkers of lesson 08: the first difference of two programs, a hunt for mistakes, ties of logits, causes of failures."""

import torch

from ..checkers.checking import Comparison, Exercise, Mistake, as_truth, checker, finished
from ..checkers.random_cases import Cases, number
from ..clinic import hunt


def first_difference(ours, theirs, allowed):
    """Return the name of the first tensor that two programs compute differently, by more than
    `allowed`, or "nowhere"."""
    for name, tensor in ours.items():
        if (tensor - theirs[name]).abs().max() > allowed:
            return name
    return "nowhere"


def named(name):
    """Return a name, or "nowhere"."""
    if not isinstance(name, str):
        raise Mistake('return the name of a tensor, or "nowhere" where no two differ.')
    return {name}


def _traced(*tensors):
    return dict(
        zip(("features", "layer 1: values", "layer 1: keys", "layer 2: keys", "logits"), tensors)
    )


A, B = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([[0.5, 4.0]])
TRACES = [
    (_traced(A, B, A, B, A), _traced(A, B + 1e-6, A, B - 0.5, A + 3.0), 1e-4),
    (_traced(A, B, A, B, A), _traced(A + 0.2, B, A - 5.0, B, A), 1e-4),
    (_traced(A, B, A, B, A), _traced(A, B, A + 1e-5, B, A), 1e-4),
    (_traced(A, B, A, B, A), _traced(A, B, A + torch.tensor([0.9, -0.9, 0.0]), B, A + 0.1), 1e-4),
    (_traced(A, B, A, B, A), _traced(A, B - 1.0, A - 1.0, B, A + 2.0), 1e-4),
    (_traced(A, B, A, B, A), _traced(A, B, A + torch.tensor([0.0, 0.0, 0.5]), B, A + 2.0), 0.25),
    (_traced(A, B, A, B, A), _traced(A + 0.25, B, A, B, A - 1.0), 0.25),  # as far as is allowed
]


def traces_case(generator):
    """Return traces of two to six tensors in an order of their own, in which single numbers differ;
    all in eighths, so that some differ by just what is allowed."""
    names = [f"tensor {at}" for at in torch.randperm(number(generator, 2, 6), generator=generator)]
    ours = {}
    for name in names:
        ours[name] = torch.randint(-16, 17, (number(generator, 1, 4), 3), generator=generator) / 8
    theirs = {}
    for name, tensor in ours.items():
        off = torch.randint(-6, 7, tensor.shape, generator=generator) / 8
        few = torch.rand(tensor.shape, generator=generator) < 0.3
        theirs[name] = tensor + off * few * number(generator, 0, 1)
    return ours, theirs, (1e-4, 0.25, 0.5)[number(generator, 0, 2)]


def by(
    error,
    choose=lambda errors, allowed: next(
        (name for name, value in errors.items() if value > allowed), "nowhere"
    ),
):
    """Return an answer that chooses from {name: error}."""
    return lambda ours, theirs, allowed: choose(
        {name: error(ours[name], theirs[name]) for name in ours}, allowed
    )


def largest(ours, theirs):
    """Return the largest absolute error."""
    return (ours - theirs).abs().max()


check_first_difference = Exercise(
    first_difference,
    Comparison(
        Cases(TRACES, traces_case),
        {
            "that is the tensor with the largest error. Errors grow on their way; the first one names the place.": by(
                largest,
                lambda errors, allowed: (
                    max(errors, key=errors.get) if max(errors.values()) > allowed else "nowhere"
                ),
            ),
            "that is the last one that differs, and all after the first only pass its error on.": by(
                largest,
                lambda errors, allowed: next(
                    (name for name, value in reversed(errors.items()) if value > allowed), "nowhere"
                ),
            ),
            "rounding is not excused: compare with `allowed`.": by(
                largest,
                lambda errors, allowed: next(
                    (name for name, value in errors.items() if value > 0), "nowhere"
                ),
            ),
            "a difference below zero counts as well; take absolute values first.": by(
                lambda ours, theirs: (ours - theirs).max()
            ),
            "differences of opposite sign cancel in a sum or a mean; take the largest absolute one.": (
                by(lambda ours, theirs: (ours - theirs).sum().abs()),
                by(lambda ours, theirs: (ours - theirs).mean().abs()),
            ),
            "that is the mean difference; one wrong number hides among many right ones, so take the largest.": by(
                lambda ours, theirs: (ours - theirs).abs().mean()
            ),
            "you added the differences up, or their squares; many that are allowed would make one that is not. Take the largest.": (
                by(lambda ours, theirs: (ours - theirs).abs().sum()),
                by(lambda ours, theirs: (ours - theirs).norm()),
                by(lambda ours, theirs: (ours - theirs).square().sum()),
                by(lambda ours, theirs: (ours - theirs).square().mean()),
            ),
            "the names are in alphabetical order; the order of computation is that of the dict.": (
                by(
                    largest,
                    lambda errors, allowed: next(
                        (name for name in sorted(errors) if errors[name] > allowed), "nowhere"
                    ),
                ),
                by(
                    largest,
                    lambda errors, allowed: min(
                        (name for name in errors if errors[name] > allowed), default="nowhere"
                    ),
                ),
            ),
            "a difference of just `allowed` is excused: it must be more.": by(
                largest,
                lambda errors, allowed: next(
                    (name for name, value in errors.items() if value >= allowed), "nowhere"
                ),
            ),
            "that is a share of the value; `allowed` is the difference itself.": by(
                lambda ours, theirs: ((ours - theirs) / theirs).abs().max()
            ),
            "you return the first name whether it differs or not.": lambda ours, theirs, allowed: (
                next(iter(ours))
            ),
            "those are all names that differ; return the first.": lambda ours, theirs, allowed: (
                ",".join(name for name in ours if largest(ours[name], theirs[name]) > allowed)
            ),
        },
        "go through the tensors in order and return the name of the first whose largest absolute difference is above `allowed`.",
        named,
    ),
)


HUNT_FORM = "`causes` is a dictionary, {1: cause, 2: cause, 3: cause}, and `looks` is `hunt.looks`, the tensors you looked at."


@checker
def check_hunt(causes, looks, seed=hunt.SEED):
    """Check `causes`: {program: mistake} of three programs, proven by `looks`: {program:
    [tensors]}, six of each at most."""
    if not isinstance(finished(causes), dict) or not isinstance(finished(looks), dict):
        raise Mistake(HUNT_FORM)
    for program, right in hunt.secret(seed).items():
        judge_find(program, finished(causes.get(program)), looks.get(program, []), right)


def judge_find(program: int, cause: str, looked: list[str], right: str) -> None:
    """Raise Mistake unless the looks at a program leave its cause, and no other."""
    if cause not in hunt.MISTAKES:
        raise Mistake(
            f"program {program} is {cause!r}; the mistakes are {', '.join(sorted(hunt.MISTAKES))}."
        )
    if len(set(looked)) > hunt.LOOKS:
        raise Mistake(f"program {program}: {hunt.LOOKS} tensors of it may be looked at, no more.")
    left, tensors = set(hunt.MISTAKES), next(iter(hunt.differences().values()))
    if unknown := [tensor for tensor in looked if tensor not in tensors]:
        raise Mistake(
            f"program {program}: there is no tensor {unknown[0]!r}; `hunt.tensors` lists the names."
        )
    for tensor, seen, ruled_out in hunt.findings_of(right, looked):
        if cause in ruled_out:
            raise Mistake(
                f"program {program}: with {cause!r} the tensor {tensor!r} would {'be equal' if seen else 'differ'}, and you saw that "
                f"it {'differs' if seen else 'is equal'}."
            )
        left -= ruled_out
    if left != {cause}:
        raise Mistake(
            f"program {program}: {cause!r} fits what you saw, and so do others: {', '.join(sorted(left - {cause}))}. Look at a tensor "
            "in which they part."
        )


def is_tie(logits, ours, theirs, allowed):
    """Return whether rounding may make the target choose either of two tokens."""
    return logits.max() - min(logits[ours], logits[theirs]) <= allowed


NEAR, CLEAR = torch.tensor([10.0, 9.95, 9.9, 3.0, 2.98]), torch.tensor([10.0, 5.0, 4.0, 3.0, 2.0])
CROWDED = torch.tensor([10.0, 9.99, 9.98, 3.0, 2.0])
# Two tokens near the top, whose distances add up to more than 0.08.
BELOW = torch.tensor([10.0, 9.95, 9.94, 3.0, 2.0])
FLAT = torch.tensor([0.2, 0.0, 0.0, 0.0, 0.0])  # probabilities 0.04 apart, logits 0.2
EXACT = torch.tensor([10.0, 9.5, 9.0, 3.0, 2.0])  # gaps that binary numbers hold exactly
TIES = [
    (NEAR, 0, 1),
    (NEAR, 3, 4),
    (NEAR, 0, 2),
    (NEAR, 1, 2),
    (NEAR, 0, 3),
    (NEAR, 3, 0),
    (CLEAR, 0, 1),
    (CROWDED, 1, 2),
    (BELOW, 1, 2),
    (FLAT, 0, 1),
]


def logits_case(generator):
    """Draw three of six logits near the top, and any two of the six; all in sixteenths, so that
    some are just as far as is allowed."""
    sixteenths = torch.cat(
        [
            160 - torch.randint(4, (3,), generator=generator),
            torch.randint(80, (3,), generator=generator),
        ]
    )
    logits = sixteenths[torch.randperm(6, generator=generator)] / 16
    return (logits, *torch.randperm(6, generator=generator)[:2].tolist(), 0.125)


check_is_tie = Exercise(
    is_tie,
    Comparison(
        Cases(
            [*((*tie, 0.08) for tie in TIES), (EXACT, 0, 1, 0.5), (EXACT, 1, 0, 0.5)], logits_case
        ),
        {
            "a gap of just `allowed` is excused as well.": lambda z, a, b, allowed: (
                z.max() - min(z[a], z[b]) < allowed
            ),
            "the difference of the two tokens has a sign: where the first is the smaller one, it passes every bound. And compare each "
            "with what the target would have chosen, not with the other.": (
                lambda z, a, b, allowed: z[a] - z[b] <= allowed,
                lambda z, a, b, allowed: z[b] - z[a] <= allowed,
            ),
            "those are probabilities; `allowed` is a distance between logits.": lambda z, a, b, allowed: (
                z.softmax(-1).max() - min(z.softmax(-1)[a], z.softmax(-1)[b]) <= allowed
            ),
            "you compare the two tokens with each other. Both may be far below the largest logit, and then neither is a choice "
            "that rounding could explain.": lambda z, a, b, allowed: abs(z[a] - z[b]) <= allowed,
            "one of the two is measured from the other; measure each from the largest logit.": lambda z, a, b, allowed: (
                z.max() - max(z[a], z[b]) <= allowed and abs(z[a] - z[b]) <= allowed
            ),
            "`allowed` is already the whole distance that rounding excuses; do not double it.": lambda z, a, b, allowed: (
                z.max() - min(z[a], z[b]) <= 2 * allowed
            ),
            "you judge our token alone; the other answer chose a token as well, and that must be near the top too.": lambda z, a, b, allowed: (
                z.max() - z[a] <= allowed
            ),
            "one of the two near the top is not enough; rounding must be able to lift either to the first place.": lambda z, a, b, allowed: (
                z.max() - max(z[a], z[b]) <= allowed
            ),
            "you look at the two best logits; ask about the two tokens that were chosen.": lambda z, a, b, allowed: (
                z.topk(2).values.diff().abs() <= allowed
            ),
            "being among the two best says nothing about how far apart they are, and a third may be as near.": (
                lambda z, a, b, allowed: {a, b} == set(z.topk(2).indices.tolist()),
                lambda z, a, b, allowed: (
                    {a, b} == set(z.topk(2).indices.tolist()) and is_tie(z, a, b, allowed)
                ),
            ),
        },
        "say for each of the two tokens whether a logit moved by `allowed` could have made it the target's choice.",
        as_truth,
    ),
)


RIGHT = {"A": "cache out of step", "B": "beyond the block", "C": "other layout", "D": "wrong tap"}
NOT_THIS = {  # (symptom, cause): why it cannot be
    (
        "A",
        "wrong tap",
    ): "a wrong tap is there in every round alike; A gets worse from round to round.",
    (
        "A",
        "beyond the block",
    ): "drafts beyond the block fail in every round alike; A gets worse from round to round.",
    (
        "A",
        "other layout",
    ): "the other layout fails from the first token on; A gets worse from round to round.",
    (
        "B",
        "cache out of step",
    ): "a cache out of step would spoil blocks of five drafts as well; in B those are fine.",
    (
        "B",
        "wrong tap",
    ): "a wrong tap would cost blocks of five drafts as much; in B those are fine.",
    (
        "B",
        "other layout",
    ): "the layout of blocks of five drafts would be as wrong; in B those are fine.",
    (
        "C",
        "cache out of step",
    ): "a cache gets out of step during an answer, whose first drafts are fine; in C next to none is ever right.",
    (
        "C",
        "wrong tap",
    ): "neighbouring layers resemble each other, so a wrong tap still guesses most; in C next to nothing is right.",
    ("C", "beyond the block"): "C asks for fewer drafts than the block has, not for more.",
    (
        "D",
        "cache out of step",
    ): "a cache falls further out of step with every refusal, as in another report; D loses about one draft, no more.",
    (
        "D",
        "beyond the block",
    ): "beyond the block nearly all drafts are lost, as another report shows; in D most survive.",
    (
        "D",
        "other layout",
    ): "read in the other layout nearly all drafts stand in a wrong place; in D most are right.",
}


@checker
def check_diagnosis(diagnosis):
    """Check `diagnosis`: {"A": cause, ...} for four symptoms."""
    if not isinstance(finished(diagnosis), dict):
        name = type(diagnosis).__name__
        raise Mistake(
            f'the diagnosis is a dictionary, {{"A": cause, ...}}, not a value of type {name}.'
        )
    for symptom, right in RIGHT.items():
        cause = finished(diagnosis.get(symptom))
        if cause not in RIGHT.values():
            raise Mistake(
                f"{symptom} is {cause!r}; the causes are {', '.join(sorted(RIGHT.values()))}."
            )
        if cause != right:
            raise Mistake(f"{symptom}: {NOT_THIS[symptom, cause]}")
