"""Checkers of lesson 08: placing tensors, what a draft adds to the memory, ties of logits, causes of failures."""

import torch

from .checking import Mistake, checker, finished, name_mistake

ASKED = {"fc.weight": (4, 8), "norm.weight": (4,), "markov_head.markov_w1.weight": (9, 2), "lm_head.weight": (9, 4)}
FOUND = {"fc.weight": (4, 8), "norm.weight": (4,), "markov_head.markov_w1.weight": (2, 9),
         "confidence_head.proj.bias": (1,)}


@checker
def check_place(place):
    """`place(asked, found)`: sets of names that are missing, unexpected, misshapen, from two {name: shape}."""
    answer = finished(place(dict(ASKED), dict(FOUND)))
    if len(answer) != 3:
        raise Mistake(f"there are {len(answer)} sets; the three are missing, unexpected and misshapen.")
    names = sorted({*ASKED, *FOUND})
    absent, strange, bent = {"lm_head.weight"}, {"confidence_head.proj.bias"}, {"markov_head.markov_w1.weight"}

    def of(*sets):
        return torch.tensor([[name in some for name in names] for some in sets])

    name_mistake(of(*map(set, answer)), of(absent, strange, bent), {
        "missing and unexpected have changed places: missing is what the module asks for and the file has not.":
            of(strange, absent, bent),
        "a tensor of another shape is there, so it is neither missing nor unexpected; name it in the third set alone.":
            of(absent | bent, strange | bent, bent),
        "a tensor of another shape went unnoticed: equal names are not enough, compare their shapes.":
            of(absent, strange, set()),
        "you listed the tensors that fit; the third set holds those whose shapes differ.":
            of(absent, strange, {"fc.weight", "norm.weight"}),
        "the third set holds all names that both know; only those whose shapes differ are misshapen.":
            of(absent, strange, {*ASKED} & {*FOUND}),
        "a tensor that only one side knows has no second shape to differ from; it is not misshapen.":
            of(absent, strange, absent | strange | bent),
    }, "missing is asked for and not found, unexpected is found and not asked for, misshapen is in both with two "
       "shapes.")


@checker
def check_added_bytes(added_bytes):
    """`added_bytes(shapes, copies, bytes_per_number)`: bytes that a draft adds to the target that lies in memory."""
    shapes = {"embed_tokens.weight": (50, 8), "lm_head.weight": (50, 8), "fc.weight": (8, 24), "norm.weight": (8,)}
    copies, size = {"embed_tokens.weight", "lm_head.weight"}, 2
    numbers = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
    own = sum(count for name, count in numbers.items() if name not in copies)
    every = sum(numbers.values())
    answer = torch.as_tensor(finished(added_bytes(dict(shapes), set(copies), size)), dtype=torch.double)
    name_mistake(answer, torch.tensor(float(size * own)), {
        "the copies are counted too. The draft uses the target's own tensors in their place; they are held once.":
            torch.tensor(float(size * every)),
        "those are the copies alone, which add nothing; count everything else.":
            torch.tensor(float(size * (every - own))),
        "one of the two copies is still counted; both the embedding and the LM head are shared.":
            torch.tensor(float(size * (own + numbers["lm_head.weight"]))),
        "those are numbers; each takes `bytes_per_number` bytes.": torch.tensor(float(own)),
        "a matrix holds rows times columns numbers, not rows plus columns.":
            torch.tensor(float(size * sum(sum(shape) for name, shape in shapes.items() if name not in copies))),
        "those are bits; a number of 16 bits takes 2 bytes.": torch.tensor(float(8 * size * own)),
    }, "add up the numbers of all tensors that are no copies, times the bytes of a number.")


@checker
def check_is_tie(is_tie):
    """`is_tie(logits, ours, theirs, allowed)`: may rounding make the target choose either of two tokens?"""
    near, clear = torch.tensor([10.0, 9.95, 9.9, 3.0, 2.98]), torch.tensor([10.0, 5.0, 4.0, 3.0, 2.0])
    crowded = torch.tensor([10.0, 9.99, 9.98, 3.0, 2.0])
    cases = [(near, 0, 1), (near, 3, 4), (near, 1, 2), (near, 0, 3), (near, 3, 0), (clear, 0, 1), (crowded, 1, 2)]
    allowed = 0.08

    def of(rule):
        return torch.tensor([bool(rule(logits, ours, theirs)) for logits, ours, theirs in cases])

    answer = torch.tensor([bool(finished(is_tie(logits, ours, theirs, allowed))) for logits, ours, theirs in cases])
    name_mistake(answer, of(lambda z, a, b: z.max() - min(z[a], z[b]) <= allowed), {
        "you compare the two tokens with each other. Both may be far below the largest logit, and then neither is a "
        "choice that rounding could explain.": of(lambda z, a, b: abs(z[a] - z[b]) <= allowed),
        "you judge our token alone; the other answer chose a token as well, and that must be near the top too.":
            of(lambda z, a, b: z.max() - z[a] <= allowed),
        "you judge the other answer's token alone; ours must be near the top too.":
            of(lambda z, a, b: z.max() - z[b] <= allowed),
        "one of the two near the top is not enough; rounding must be able to lift either to the first place.":
            of(lambda z, a, b: z.max() - max(z[a], z[b]) <= allowed),
        "you look at the two best logits; ask about the two tokens that were chosen.":
            of(lambda z, a, b: z.topk(2).values.diff().abs() <= allowed),
        "being among the two best says nothing about how far apart they are, and a third may be as near.":
            of(lambda z, a, b: {a, b} == set(z.topk(2).indices.tolist())),
    }, "both tokens' logits must lie within `allowed` of the largest logit.")


RIGHT = {"A": "stale cache", "B": "beyond the block", "C": "other layout", "D": "wrong tap"}
NOT_THIS = {  # (symptom, cause): why it cannot be
    ("A", "wrong tap"): "a wrong tap is there from the first round on; A begins well.",
    ("A", "beyond the block"): "drafts beyond the block fail in every round alike; A gets worse from round to round.",
    ("A", "other layout"): "the other layout fails from the first token on; A begins well.",
    ("B", "stale cache"): "a stale cache spoils all positions, more with every round; in B the first seven are fine.",
    ("B", "wrong tap"): "a wrong tap lowers every position, the first one too; in B the first seven are fine.",
    ("B", "other layout"): "read in the other layout not even position 1 is right; in B the first seven are fine.",
    ("C", "stale cache"): "with a stale cache the first round is still right; in C nothing ever is.",
    ("C", "wrong tap"): "neighbouring layers resemble each other, so a wrong tap still guesses some; in C nothing is.",
    ("C", "beyond the block"): "within the block such a draft is as good as ever; in C nothing is right.",
    ("D", "stale cache"): "with a stale cache the first round is as good as ever; D is low from the first one.",
    ("D", "beyond the block"): "within the block such a draft is as good as ever; in D position 1 has dropped.",
    ("D", "other layout"): "read in the other layout next to nothing is accepted; in D something is.",
}


@checker
def check_diagnosis(diagnosis):
    """`diagnosis`: {"A": cause, ...} for four symptoms."""
    for symptom, right in RIGHT.items():
        cause = finished(finished(diagnosis).get(symptom))
        if cause not in RIGHT.values():
            raise Mistake(f"{symptom} is {cause!r}; the causes are {', '.join(sorted(RIGHT.values()))}.")
        if cause != right:
            raise Mistake(f"{symptom}: {NOT_THIS[symptom, cause]}")
