"""Checkers of lesson 08: placing tensors, what a draft adds to the memory, ties of logits, causes of failures."""

import numpy as np
import torch

from .checking import Exercise, Mistake, Step, checker, finished


def missing(asked, found):
    """Names that the module asks for and the file does not have."""
    return set(asked) - set(found)


def unexpected(asked, found):
    """Names that the file has and the module does not ask for."""
    return set(found) - set(asked)


def misshapen(asked, found):
    """Names that both have, with two shapes."""
    return {name for name in set(asked) & set(found) if asked[name] != found[name]}


def place(asked, found):
    """Sets of names that are missing, unexpected, misshapen, from two {name: shape}."""
    return missing(asked, found), unexpected(asked, found), misshapen(asked, found)


def third(names):
    """An answer with the right first two sets and the third of `names(asked, found)`."""
    return lambda asked, found: (missing(asked, found), unexpected(asked, found), names(asked, found))


def numel(shape):
    """How many numbers a tensor of this shape has."""
    return torch.Size(shape).numel()


def differing(part):
    """An answer whose third set holds the names that both have with two values of `part(shape)`."""
    return third(lambda asked, found: {name for name in set(asked) & set(found) if part(asked[name]) != part(found[name])})


def three_sets(answer):
    """Three sets of names."""
    if isinstance(answer, dict):
        raise Mistake("return the three sets one after the other, `return missing, unexpected, misshapen`; yours is one dict.")
    if len(answer) != 3:
        raise Mistake(f"there are {len(answer)} sets; the three are missing, unexpected and misshapen.")
    for names in answer:
        if isinstance(names, (list, tuple, dict)):
            raise Mistake(f"the names come in three sets; one of yours is a {type(names).__name__}.")
    return tuple(map(set, answer))


ASKED = {"fc.weight": (4, 8), "norm.weight": (4,), "markov_head.markov_w1.weight": (9, 2), "lm_head.weight": (9, 4),
         "layers.0.self_attn.q_proj.weight": (6, 4), "layers.0.self_attn.o_proj.weight": (4, 6)}
FOUND = {"fc.weight": (4, 8), "norm.weight": (4,), "markov_head.markov_w1.weight": (2, 9), "confidence_head.proj.bias": (1,),
         "layers.0.self_attn.q_proj.weight": (5, 4), "layers.0.self_attn.o_proj.weight": (4, 5)}
check_place = Exercise(place, Step([(ASKED, FOUND)], {
    "missing and unexpected have changed places: missing is what the module asks for and the file has not.":
        lambda a, f: (unexpected(a, f), missing(a, f), misshapen(a, f)),
    "a tensor of another shape is there, so it is neither missing nor unexpected; name it in the third set alone.":
        lambda a, f: (missing(a, f) | misshapen(a, f), unexpected(a, f) | misshapen(a, f), misshapen(a, f)),
    "a tensor of another shape went unnoticed: equal names are not enough, compare their shapes.":
        third(lambda a, f: set()),
    "compare whole shapes: two of them may agree in one dimension, or in how many numbers they hold.": (
        differing(lambda shape: shape[0]), differing(lambda shape: shape[-1]), differing(numel)),
    "you listed the tensors that fit; the third set holds those whose shapes differ.":
        third(lambda a, f: {name for name in a if a[name] == f.get(name)}),
    "the third set holds all names that both know; only those whose shapes differ are misshapen.":
        third(lambda a, f: set(a) & set(f)),
    "a tensor that only one side knows has no second shape to differ from; it is not misshapen.":
        third(lambda a, f: {name for name in {*a, *f} if a.get(name) != f.get(name)}),
    "a tensor that the file lacks has no second shape to differ from; it is missing, not misshapen.":
        third(lambda a, f: {name for name in a if a[name] != f.get(name)}),
    "a tensor that only the file has was not asked for in another shape; it is unexpected, not misshapen.":
        third(lambda a, f: {name for name in f if f[name] != a.get(name)}),
    "a tensor of another shape is neither missing nor unexpected; it belongs in the third set, and in that alone.":
        lambda a, f: (missing(a, f) | misshapen(a, f), unexpected(a, f) | misshapen(a, f), set()),
    "there are 2 sets; the three are missing, unexpected and misshapen.":
        lambda a, f: (missing(a, f), unexpected(a, f)),
}, "missing is asked for and not found, unexpected is found and not asked for, misshapen is in both with two shapes.",
    three_sets))


def counting(numbers_of=numel, counted=lambda name, copies: name not in copies, factor=lambda size: size):
    """The bytes of tensors that are `counted`, of `numbers_of(shape)` numbers with `factor(bytes_per_number)` bytes."""
    return lambda shapes, copies, size: factor(size) * sum(
        numbers_of(shape) for name, shape in shapes.items() if counted(name, copies))


def added_bytes(shapes, copies, size):
    """Bytes that a draft adds to the target that lies in memory."""
    return counting()(shapes, copies, size)


def whole(answer):
    """A whole number of bytes."""
    if isinstance(answer, float) and answer.is_integer():
        raise Mistake("bytes are counted in whole numbers; yours is a float.")
    return answer


SHAPES = {"embed_tokens.weight": (50, 8), "lm_head.weight": (50, 8), "fc.weight": (8, 24), "norm.weight": (8,)}
COPIES = {"embed_tokens.weight", "lm_head.weight"}
OWN_HEAD = {"embed_tokens.weight": (50, 8), "lm_head.weight": (20, 8), "markov_head.markov_w1.weight": (50, 2)}
check_added_bytes = Exercise(added_bytes, Step([(SHAPES, COPIES, 2), (SHAPES, COPIES, 4), (OWN_HEAD, {"embed_tokens.weight"}, 2)], {
    "the copies are counted too. The draft uses the target's own tensors in their place; they are held once.":
        counting(counted=lambda name, copies: True),
    "those are the copies alone, which add nothing; count everything else.":
        counting(counted=lambda name, copies: name in copies),
    "one of the two copies is still counted; both the embedding and the LM head are shared.":
        counting(counted=lambda name, copies: name != "embed_tokens.weight"),
    "a name does not say whether its tensor is a copy, `copies` does: a draft may have an LM head of its own.": (
        counting(counted=lambda name, copies: name not in COPIES),
        counting(counted=lambda name, copies: "embed" not in name and "head" not in name)),
    "those are numbers; each takes `bytes_per_number` bytes.":
        counting(factor=lambda size: 1),
    "every number is taken for 2 bytes; how many it takes is `bytes_per_number`.":
        counting(factor=lambda size: 2),
    "a matrix holds rows times columns numbers, not rows plus columns.":
        counting(sum),
    "those are bits; a number of 16 bits takes 2 bytes.":
        counting(factor=lambda size: 8 * size),
    "a norm's weight has one dimension, so there is no `shape[1]`; multiply as many dimensions as a shape has.":
        counting(lambda shape: shape[0] * shape[1]),
}, "add up the numbers of all tensors that are no copies, times the bytes of a number.", whole))


def is_tie(logits, ours, theirs, allowed):
    """May rounding make the target choose either of two tokens?"""
    return logits.max() - min(logits[ours], logits[theirs]) <= allowed


def as_truth(answer):
    """True or False of a Python truth value or a tensor that holds one."""
    if not isinstance(answer, (bool, int, np.bool_, torch.Tensor)):
        raise TypeError
    return bool(answer)


NEAR, CLEAR = torch.tensor([10.0, 9.95, 9.9, 3.0, 2.98]), torch.tensor([10.0, 5.0, 4.0, 3.0, 2.0])
CROWDED = torch.tensor([10.0, 9.99, 9.98, 3.0, 2.0])
BELOW = torch.tensor([10.0, 9.95, 9.94, 3.0, 2.0])  # two tokens near the top, whose distances add up to more than 0.08
FLAT = torch.tensor([0.2, 0.0, 0.0, 0.0, 0.0])  # probabilities 0.04 apart, logits 0.2
EXACT = torch.tensor([10.0, 9.5, 9.0, 3.0, 2.0])  # gaps that binary numbers hold exactly
TIES = [(NEAR, 0, 1), (NEAR, 3, 4), (NEAR, 0, 2), (NEAR, 1, 2), (NEAR, 0, 3), (NEAR, 3, 0), (CLEAR, 0, 1), (CROWDED, 1, 2), (BELOW, 1, 2),
        (FLAT, 0, 1)]
check_is_tie = Exercise(is_tie, Step([*((*tie, 0.08) for tie in TIES), (EXACT, 0, 1, 0.5), (EXACT, 1, 0, 0.5)], {
    "a gap of just `allowed` is excused as well.":
        lambda z, a, b, allowed: z.max() - min(z[a], z[b]) < allowed,
    "the difference of the two tokens has a sign: where the first is the smaller one, it passes every bound. And compare each "
    "with what the target would have chosen, not with the other.":
        (lambda z, a, b, allowed: z[a] - z[b] <= allowed, lambda z, a, b, allowed: z[b] - z[a] <= allowed),
    "those are probabilities; `allowed` is a distance between logits.":
        lambda z, a, b, allowed: z.softmax(-1).max() - min(z.softmax(-1)[a], z.softmax(-1)[b]) <= allowed,
    "you compare the two tokens with each other. Both may be far below the largest logit, and then neither is a choice "
    "that rounding could explain.":
        lambda z, a, b, allowed: abs(z[a] - z[b]) <= allowed,
    "one of the two is measured from the other; measure each from the largest logit.":
        lambda z, a, b, allowed: z.max() - max(z[a], z[b]) <= allowed and abs(z[a] - z[b]) <= allowed,
    "`allowed` is already the whole distance that rounding excuses; do not double it.":
        lambda z, a, b, allowed: z.max() - min(z[a], z[b]) <= 2 * allowed,
    "you judge our token alone; the other answer chose a token as well, and that must be near the top too.":
        lambda z, a, b, allowed: z.max() - z[a] <= allowed,
    "you judge the other answer's token alone; ours must be near the top too.":
        lambda z, a, b, allowed: z.max() - z[b] <= allowed,
    "one of the two near the top is not enough; rounding must be able to lift either to the first place.":
        lambda z, a, b, allowed: z.max() - max(z[a], z[b]) <= allowed,
    "you add the two distances from the largest logit; each is judged by itself.":
        lambda z, a, b, allowed: (z.max() - z[a]) + (z.max() - z[b]) <= allowed,
    "you look at the two best logits; ask about the two tokens that were chosen.":
        lambda z, a, b, allowed: z.topk(2).values.diff().abs() <= allowed,
    "being among the two best says nothing about how far apart they are, and a third may be as near.":
        (lambda z, a, b, allowed: {a, b} == set(z.topk(2).indices.tolist()),
         lambda z, a, b, allowed: {a, b} == set(z.topk(2).indices.tolist()) and is_tie(z, a, b, allowed)),
}, "say for each of the two tokens whether a logit moved by `allowed` could have made it the target's choice.", as_truth))


RIGHT = {"A": "cache out of step", "B": "beyond the block", "C": "other layout", "D": "wrong tap"}
NOT_THIS = {  # (symptom, cause): why it cannot be
    ("A", "wrong tap"): "a wrong tap is there in every round alike; A gets worse from round to round.",
    ("A", "beyond the block"): "drafts beyond the block fail in every round alike; A gets worse from round to round.",
    ("A", "other layout"): "the other layout fails from the first token on; A gets worse from round to round.",
    ("B", "cache out of step"): "a cache out of step would spoil blocks of five drafts as well; in B those are fine.",
    ("B", "wrong tap"): "a wrong tap would cost blocks of five drafts as much; in B those are fine.",
    ("B", "other layout"): "the layout of blocks of five drafts would be as wrong; in B those are fine.",
    ("C", "cache out of step"): "a cache gets out of step during an answer, whose first drafts are fine; in C next to none is ever right.",
    ("C", "wrong tap"): "neighbouring layers resemble each other, so a wrong tap still guesses most; in C next to nothing is right.",
    ("C", "beyond the block"): "C asks for fewer drafts than the block has, not for more.",
    ("D", "cache out of step"): "a cache falls further out of step with every refusal, as in another report; D loses about one draft, no more.",
    ("D", "beyond the block"): "beyond the block nearly all drafts are lost, as another report shows; in D most survive.",
    ("D", "other layout"): "read in the other layout nearly all drafts stand in a wrong place; in D most are right.",
}


@checker
def check_diagnosis(diagnosis):
    """`diagnosis`: {"A": cause, ...} for four symptoms."""
    if not isinstance(finished(diagnosis), dict):
        name = type(diagnosis).__name__
        raise Mistake(f'the diagnosis is a dictionary, {{"A": cause, ...}}, not a value of type {name}.')
    for symptom, right in RIGHT.items():
        cause = finished(diagnosis.get(symptom))
        if cause not in RIGHT.values():
            raise Mistake(f"{symptom} is {cause!r}; the causes are {', '.join(sorted(RIGHT.values()))}.")
        if cause != right:
            raise Mistake(f"{symptom}: {NOT_THIS[symptom, cause]}")
