"""Checkers of lesson 11: index tensors of a ragged batch, its mask, an engine's step, throughput at a promised speed."""

import numpy as np
import torch

from .checking import Exercise, Mistake, Step, boolean
from .random_cases import Cases, number
from .small_engine import SmallEngine as SmallEngine
from .small_engine import before, index_tensors, may_see, own
from .small_engine import check_engine as check_engine
from .small_engine import engine_in_use as engine_in_use


def through(counts):
    """A count [N] through the whole batch."""
    return torch.arange(int(counts.sum()))


def alternating(starts, counts):
    """Requests take turns, token by token."""
    request = through(counts) % len(counts)
    return request, starts[request] + through(counts) // len(counts)


def one_number_per_token(answer):
    """Two tensors of whole numbers."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Mistake("return two tensors, request and position.")
    if not all(isinstance(part, torch.Tensor) for part in answer):
        raise Mistake("request and position must be tensors; the mask compares them all at once.")
    shapes = [tuple(part.shape) for part in answer]
    if shapes[0] != shapes[1]:
        raise Mistake(
            f"request and position have the shapes {shapes[0]} and {shapes[1]}; each holds one number per token."
        )
    if any(part.is_floating_point() and torch.equal(part, part.round()) for part in answer):
        raise Mistake("request and position are indices; make them tensors of whole numbers.")
    return answer


def tokens_case(generator):
    """One to five requests that start anywhere, with one to four tokens each."""
    requests = number(generator, 1, 5)
    starts = torch.randint(0, 50, (requests,), generator=generator)
    return starts, torch.randint(1, 5, (requests,), generator=generator)


check_indices = Exercise(
    index_tensors,
    Step(
        Cases([(torch.tensor([7, 3, 5]), torch.tensor([2, 4, 1]))], tokens_case),
        {
            "the two are swapped: return request first, then position.": lambda s, c: index_tensors(
                s, c
            )[::-1],
            "positions count from 0 in each request; its context stands before, so they begin at its start.": lambda s, c: (
                index_tensors(torch.zeros_like(s), c)
            ),
            "positions run on through the whole batch, as if it were one text; each request has its own.": lambda s, c: (
                index_tensors(s, c)[0],
                through(c),
            ),
            "you added the start to a count through the whole batch; begin anew at each request.": lambda s, c: (
                index_tensors(s, c)[0],
                s[index_tensors(s, c)[0]] + through(c),
            ),
            "positions are off by counts[r]: counts.cumsum(0) counts the request itself too; it begins at cumsum - counts.": lambda s, c: (
                index_tensors(s, c)[0],
                index_tensors(s - c, c)[1],
            ),
            "all tokens of a request have the position of its first; each stands one after the one before.": lambda s, c: (
                index_tensors(s, c)[0],
                s[index_tensors(s, c)[0]],
            ),
            "positions are one too high: the anchor stands at the start itself, right after the last committed token.": lambda s, c: (
                index_tensors(s + 1, c)
            ),
            "requests take turns; a request's tokens stand together, in order.": alternating,
            "each holds one number per token, as many as the counts add up to; yours have one per request.": lambda s, c: (
                torch.arange(len(s)),
                s,
            ),
            "requests are numbered from 0, in their order.": lambda s, c: (
                index_tensors(s, c)[0] + 1,
                index_tensors(s, c)[1],
            ),
            "return two tensors, request and position.": lambda s, c: index_tensors(s, c)[1],
        },
        "request r stands counts[r] times in a row, with the positions starts[r], starts[r] + 1, and so on.",
        one_number_per_token,
    ),
)


REQUEST, POSITION = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([2, 3, 1, 2, 3])
CACHED_REQUEST, CACHED_POSITION = (
    torch.tensor([0, -1, 0, 1]),
    torch.tensor([0, 0, 1, 0]),
)  # -1: a key that is nobody's any more
MASK_CASE = (
    REQUEST,
    POSITION,
    torch.cat([CACHED_REQUEST, REQUEST]),
    torch.cat([CACHED_POSITION, POSITION]),
)


def keys_case(generator):
    """A step of one to four requests over a cache in which some keys are nobody's."""
    starts, counts = torch.randint(1, 5, (2, number(generator, 1, 4)), generator=generator)
    cached, token = index_tensors(torch.zeros_like(starts), starts), index_tensors(starts, counts)
    owner = torch.where(torch.rand(len(cached[0]), generator=generator) < 0.2, -1, cached[0])
    return (*token, torch.cat([owner, token[0]]), torch.cat([cached[1], token[1]]))


check_mask = Exercise(
    may_see,
    Step(
        Cases([MASK_CASE], keys_case),
        {
            "a token sees keys after it in its own request. Drafts that come later would decide about it; also ask for "
            "key_position <= position.": lambda r, p, kr, kp: own(r, kr),
            "a token sees other requests: positions alone do not tell whose key it is.": lambda r, p, kr, kp: (
                before(p, kp)
            ),
            "the cached context is forgotten: a token sees the step's own tokens and nothing before them.": lambda r, p, kr, kp: (
                may_see(r, p, kr, kp) & (torch.arange(len(kr)) >= len(kr) - len(r))
            ),
            "a token does not see itself; its own position belongs to it (<=, not <).": lambda r, p, kr, kp: (
                own(r, kr) & (kp < p[:, None])
            ),
            "it is turned around: tokens are rows, keys are columns.": lambda r, p, kr, kp: (
                may_see(r, p, kr, kp).T
            ),
            "tokens see what stands after them and not what stands before.": lambda r, p, kr, kp: (
                own(r, kr) & ~(kp < p[:, None])
            ),
            "a key must be of the same request and not after the token: both, not one of them.": lambda r, p, kr, kp: (
                own(r, kr) | before(p, kp)
            ),
            "tokens and keys are not paired: request[:, None] and position[:, None] make rows of tokens, so that each meets each key.": (
                lambda r, p, kr, kp: (r == kr) & (kp <= p),
                lambda r, p, kr, kp: (kr == r) & (kp <= p),
            ),
            "`and` asks for one truth value; between two tensors of them write &.": lambda r, p, kr, kp: (
                own(r, kr) and before(p, kp)
            ),
            "the mask is turned round: True says that a token sees a key, not that the key is hidden.": lambda *indices: (
                ~may_see(*indices)
            ),
            "the mask holds torch.int64; it should say True where a token sees a key and False elsewhere.": lambda *indices: (
                may_see(*indices).long()
            ),
        },
        "a token sees a key if it is of the same request and its position is not above the token's own.",
        boolean,
    ),
)


def throughput_at(curve, least_speed):
    """The highest throughput of a frontier [n, 2], rows (speed of each user, throughput) by rising load, at which each user still has
    `least_speed`; 0 where no load reaches it."""
    speeds, totals = curve[::-1].T  # np.interp wants rising speeds
    return 0.0 if least_speed > speeds[-1] else float(np.interp(least_speed, speeds, totals))


FRONTIER = np.array([[200.0, 200.0], [150.0, 300.0], [80.0, 640.0], [30.0, 720.0]])


def frontier_case(generator):
    """A frontier of two to five loads, each of twice the requests of the one before, and a speed: inside, that of a load, below
    or above."""
    loads = number(generator, 2, 5)
    speeds = 400.0 - torch.randint(10, 60, (loads,), generator=generator).double().cumsum(0)
    requests = number(generator, 1, 3) * 2.0 ** torch.arange(loads)
    curve = torch.stack([speeds, speeds * requests], 1).numpy()
    fastest, slowest = curve[0, 0], curve[-1, 0]
    inside = slowest + torch.rand((), generator=generator).item() * (fastest - slowest)
    at_a_load = curve[number(generator, 0, loads - 1), 0]
    asked = (inside, inside, at_a_load, at_a_load, slowest / 2, fastest + 50)
    return curve, float(asked[number(generator, 0, len(asked) - 1)])


check_throughput_at = Exercise(
    throughput_at,
    Step(
        Cases(
            [(FRONTIER, speed) for speed in (110.0, 45.0, 250.0, 80.0, 20.0, 200.0)], frontier_case
        ),
        {
            "np.interp needs speeds that rise; along the curve they fall. Turn the rows round first.": (
                lambda curve, least: (
                    0.0 if least > curve[:, 0].max() else float(np.interp(least, *curve.T))
                ),
                lambda curve, least: float(np.interp(least, *curve.T)),
                lambda curve, least: (
                    0.0
                    if least > curve[:, 0].max()
                    else float(np.interp(least, curve[::-1, 0], curve[:, 1]))
                ),
            ),
            "the lightest load gives just this speed, so its throughput can be promised; only above it return 0.": lambda curve, least: (
                0.0 if least >= curve[:, 0].max() else throughput_at(curve, least)
            ),
            "no load gives a user that speed, so nothing can be promised: return 0. (np.interp gives the value of the curve's end without a "
            "word.)": lambda curve, least: float(np.interp(least, *curve[::-1].T)),
            (
                "where even the heaviest load is faster than promised, its throughput, the last "
                "row's, is the highest; you return 0."
            ): lambda curve, least: float(np.interp(least, *curve[::-1].T, left=0, right=0)),
            "you took the throughput of the nearest measured load; read between the points with np.interp.": lambda curve, least: (
                0.0
                if least > curve[:, 0].max()
                else float(curve[np.abs(curve[:, 0] - least).argmin(), 1])
            ),
            "you took the measured loads alone; between two of them the line counts, too.": lambda curve, least: (
                float(max([0.0, *curve[curve[:, 0] >= least, 1]]))
            ),
            "that is the speed of each user; return the throughput of all of them.": lambda curve, least: (
                0.0 if least > curve[:, 0].max() else least
            ),
            "that is the number of requests under way; return the throughput.": lambda curve, least: (
                throughput_at(curve, least) / least
            ),
            "the columns are exchanged: the first is the speed of each user, the second the throughput.": lambda curve, least: (
                0.0
                if least > curve[:, 0].max()
                else float(np.interp(least, curve[:, 1], curve[:, 0]))
            ),
        },
        "read the curve at this speed, from slow to fast, with np.interp; 0 where even the lightest load is slower.",
    ),
)
