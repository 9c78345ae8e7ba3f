"""Checkers of lesson 11: index tensors of a ragged batch, its mask, an engine's step, the load at which a draft stops paying."""

import numpy as np
import torch

from ..checkers.checking import Comparison, Exercise, Mistake, boolean
from ..checkers.random_cases import Cases, between, number
from ..own_decoder.small_engine import (
    SmallEngine as SmallEngine,
    before,
    check_engine as check_engine,
    check_scheduled as check_scheduled,
    engine_in_use as engine_in_use,
    index_tensors,
    may_see,
    own,
)


def through(counts):
    """Return a count [N] through the whole batch."""
    return torch.arange(int(counts.sum()))


def alternating(starts, counts):
    """Let requests take turns, token by token."""
    request = through(counts) % len(counts)
    return request, starts[request] + through(counts) // len(counts)


def one_number_per_token(answer):
    """Raise Mistake unless the answer is two tensors of whole numbers, one number per token."""
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
    """Return one to five requests that start anywhere, with one to four tokens each."""
    requests = number(generator, 1, 5)
    starts = torch.randint(0, 50, (requests,), generator=generator)
    return starts, torch.randint(1, 5, (requests,), generator=generator)


check_indices = Exercise(
    index_tensors,
    Comparison(
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
CACHED_REQUEST = torch.tensor([0, -1, 0, 1])  # -1: a key of a request that has left
CACHED_POSITION = torch.tensor([0, 0, 1, 0])
MASK_CASE = (
    REQUEST,
    POSITION,
    torch.cat([CACHED_REQUEST, REQUEST]),
    torch.cat([CACHED_POSITION, POSITION]),
)


def keys_case(generator):
    """Return a step of one to four requests over a cache in which some keys are nobody's."""
    starts, counts = torch.randint(1, 5, (2, number(generator, 1, 4)), generator=generator)
    cached, token = index_tensors(torch.zeros_like(starts), starts), index_tensors(starts, counts)
    owner = torch.where(torch.rand(len(cached[0]), generator=generator) < 0.2, -1, cached[0])
    return (*token, torch.cat([owner, token[0]]), torch.cat([cached[1], token[1]]))


check_mask = Exercise(
    may_see,
    Comparison(
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


def stops_paying(fixed, per_request, per_token, each, chance):
    """Return the load R at which a seventh draft of every request stops paying, in steps of fixed +
    per_request R + per_token B seconds that verify B tokens: with six drafts a request commits
    `each` tokens of seven verified, the seventh adds `chance`; inf where it pays at every load."""
    left_over = each * per_token - chance * (per_request + 7 * per_token)
    return chance * fixed / left_over if left_over > 0 else np.inf


def machine_case(generator):
    """Return a machine and a block: the cheaper a request, the sooner a seventh draft stops paying;
    on some machines it never does."""
    a, b, c = between(generator, 1, 50), between(generator, 0.1, 4), between(generator, 0.1, 2)
    return a, b, c, between(generator, 2, 6.5), between(generator, 0.05, 0.9)


def one_token(instead):
    """Return a function like `stops_paying` that counts one token of the whole step for the seventh
    drafts of all requests, and has `instead` where no load above 0 solves that (None: the load
    below 0)."""

    def wrong(a, b, c, committed, chance):
        load = (committed * c / chance - a) / (b + 7 * c)
        return load if load > 0 or instead is None else instead

    return wrong


def paying(verified=7, requests=1.0, endless=True):
    """Return a function like `stops_paying` that counts other `verified` tokens of a request, or
    its own costs in another way."""

    def wrong(a, b, c, committed, chance):
        left_over = committed * c - chance * (requests * b + verified * c)
        return chance * a / left_over if left_over > 0 or not endless else np.inf

    return wrong


check_stops_paying = Exercise(
    stops_paying,
    Comparison(
        Cases(
            [
                (32.0, 2.0, 0.5, 5.0, 0.2),
                (32.0, 2.0, 0.5, 5.0, 0.6),
                (8.0, 0.0, 0.5, 5.0, 0.6),
                (4.0, 3.0, 0.25, 4.0, 0.25),
            ],
            machine_case,
        ),
        {
            "a load below 0 says that no load is too heavy: the draft pays at every one, so return np.inf.": paying(
                endless=False
            ),
            "where no load is too heavy, the draft pays at every one: return np.inf, not 0.": lambda a, b, c, committed, chance: (
                found if np.isfinite(found := stops_paying(a, b, c, committed, chance)) else 0.0
            ),
            "without the seventh draft a step verifies seven tokens of each request, the anchor too: B = 7 R.": (
                paying(verified=6),
                paying(verified=6, endless=False),
            ),
            "the seventh draft makes it eight tokens of each request; without it there are seven: B = 7 R against 8 R.": (
                paying(verified=8),
                paying(verified=8, endless=False),
            ),
            "a seventh draft of every request is R more verified tokens, not one for the whole step: B = 7 R against 8 R.": (
                one_token(None),
                one_token(np.inf),
            ),
            "a request costs something for itself, per_request, however few of its drafts are verified.": (
                paying(requests=0.0),
                paying(requests=0.0, endless=False),
            ),
            "a step costs something for itself, fixed, whatever is verified; without it no load would be special.": (
                lambda a, b, c, committed, chance: committed * c - chance * (b + 7 * c),
                lambda a, b, c, committed, chance: (
                    0.0 if committed * c > chance * (b + 7 * c) else np.inf
                ),
            ),
            "the other way round: the seventh draft adds `chance` tokens to `each`.": lambda a, b, c, committed, chance: (
                stops_paying(a, b, c, chance, committed)
            ),
            "that is 1 / R; turn it over.": lambda a, b, c, committed, chance: (
                1 / found
                if np.isfinite(found := stops_paying(a, b, c, committed, chance))
                else np.inf
            ),
        },
        "chance / per_token = each R / (fixed + per_request R + per_token 7 R), solved for R; np.inf where no positive R does it.",
    ),
)


def throughput_at(curve, least_speed):
    """Return the highest throughput of a frontier [n, 2], rows (speed of each user, throughput)
    joined by straight lines, at which each user still has `least_speed`; 0 where no load reaches
    it."""
    reached = [0.0, *(float(total) for speed, total in curve if speed >= least_speed)]
    for (speed_before, low), (speed_after, high) in zip(curve, curve[1:]):
        if min(speed_before, speed_after) < least_speed < max(speed_before, speed_after):
            reached.append(
                float(
                    low + (speed_before - least_speed) / (speed_before - speed_after) * (high - low)
                )
            )
    return max(reached)


def frontier_case(generator):
    """Return a frontier of two to five loads, each of twice the requests of the one before, and a
    speed: inside, that of a load, below or above."""
    loads = number(generator, 2, 5)
    speeds = 400.0 - torch.randint(10, 60, (loads,), generator=generator).double().cumsum(0)
    requests = number(generator, 1, 3) * 2.0 ** torch.arange(loads)
    curve = torch.stack([speeds, speeds * requests], 1).numpy()
    fastest, slowest = curve[0, 0], curve[-1, 0]
    inside = slowest + torch.rand((), generator=generator).item() * (fastest - slowest)
    at_a_load = curve[number(generator, 0, loads - 1), 0]
    asked = (inside, inside, at_a_load, at_a_load, slowest / 2, fastest + 50)
    return curve, float(asked[number(generator, 0, len(asked) - 1)])
