"""Checkers of lesson 11: the index tensors of a ragged batch, its mask, throughput of a fixed length, matched throughput."""

import numpy as np
import torch

from ..step_costs import StepCosts
from .checking import Mistake, checker, finished, name_mistake


@checker
def check_indices(index_tensors):
    """`index_tensors(starts, counts)`: (request [N], position [N]) of a step's tokens."""
    starts, counts = torch.tensor([7, 3, 5]), torch.tensor([2, 4, 1])
    request = torch.repeat_interleave(torch.arange(3), counts)
    place = torch.arange(7)
    offset = place - torch.tensor([0, 2, 6])[request]
    answer = finished(index_tensors(starts, counts))
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise Mistake("return two tensors, request and position.")
    if any(part is None or part is ... for part in answer):
        finished(None)
    numbers, positions = (torch.as_tensor(part) for part in answer)
    if numbers.shape != (7,) or positions.shape != (7,):
        raise Mistake(f"request has shape {tuple(numbers.shape)} and position {tuple(positions.shape)}; each holds one number a token, as many as "
                      "the counts add up to.")
    right = request, starts[request] + offset
    name_mistake(torch.stack([numbers, positions]), torch.stack(right), {
        "the two are swapped: return request first, then position.": torch.stack(right[::-1]),
        "positions count from 0 in each request; its context stands before, so they begin at its start.": torch.stack([request, offset]),
        "positions run on through the whole batch, as if it were one text; each request has its own.": torch.stack([request, place]),
        "you added the start to a count through the whole batch; begin anew at each request.": torch.stack([request, starts[request] + place]),
        "all tokens of a request have the position of its first; each stands one behind the one before.": torch.stack([request, starts[request]]),
        "positions are one too high: the anchor stands at the start itself, right behind the last committed token.":
            torch.stack([request, starts[request] + offset + 1]),
        "requests take turns; a request's tokens stand together, in order.": torch.stack([place % 3, starts[place % 3] + place // 3]),
        "requests are counted from 1; count them from 0, they are indices.": torch.stack([request + 1, right[1]]),
    }, "request r stands counts[r] times in a row, with the positions starts[r], starts[r] + 1, and so on.")


@checker
def check_mask(sees):
    """`sees(request, position, key_request, key_position)`: which keys [N, K] each token sees, bool."""
    request, position = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([2, 3, 1, 2, 3])
    key_request, key_position = (torch.cat([torch.tensor(cached), entering]) for cached, entering in (([0, 0, 1], request), ([0, 1, 0], position)))
    answer = torch.as_tensor(finished(sees(request, position, key_request, key_position)))
    own, causal = request[:, None] == key_request, key_position <= position[:, None]
    right = own & causal
    entering = torch.arange(8) >= 3
    if answer.shape == (5, 5) and torch.equal(answer.bool(), right[:, 3:]):
        raise Mistake("that is the mask among the step's own tokens; the keys are the cached context too.")
    if answer.dtype != torch.bool:
        raise Mistake(f"the mask holds {answer.dtype}; it should say True where a token sees a key and False elsewhere.")
    name_mistake(answer, right, {
        "a token sees keys behind it in its own request. Drafts that come later would decide about it; also ask for key_position <= position.": own,
        "a token sees other requests: positions alone do not tell whose key it is.": causal,
        "the cached context is forgotten: a token sees the step's own tokens and nothing before them.": right & entering,
        "a token does not see itself; its own position belongs to it (<=, not <).": own & (key_position < position[:, None]),
        "it is turned around: tokens are rows, keys are columns.": right.T,
        "it is the wrong way round: True where a token sees a key.": ~right,
        "tokens see what stands behind them and not what stands before.": own & (key_position >= position[:, None]),
        "you compared places in the batch; compare positions.": own & (torch.arange(8) <= torch.arange(5)[:, None]),
        "a key must be of the same request and not behind the token: both, not one of them.": own | causal,
    }, "a token sees a key if it is of the same request and its position is not above the token's own.")


@checker
def check_fixed_throughput(fixed_throughput):
    """`fixed_throughput(alive, length, requests, costs)`: expected tokens a second of one fixed length at a load."""
    alive = np.array([[0.9, 0.7, 0.6], [0.8, 0.4, 0.1], [1.0, 0.9, 0.3]])
    costs = StepCosts([1, 8], [1, 2, 4], [[0.010, 0.011, 0.012], [0.014, 0.022, 0.040]])
    cases = [(2, 4), (3, 8), (1, 1), (0, 2)]
    mean = alive.mean(0)

    def of(rule):
        return [float(rule(length, requests)) for length, requests in cases]

    def seconds(length, requests):
        return costs(requests, requests * (1 + length))

    answer = [float(finished(fixed_throughput(alive, length, requests, costs))) for length, requests in cases]
    name_mistake(answer, of(lambda k, R: R * (1 + mean[:k].sum()) / seconds(k, R)), {
        "that is the speed of one request; a step commits the tokens of all of them.": of(lambda k, R: (1 + mean[:k].sum()) / seconds(k, R)),
        "the token that the target adds itself is missing: each request commits it, whatever becomes of the drafts.":
            of(lambda k, R: R * mean[:k].sum() / seconds(k, R)),
        "the anchors are missing from the tokens that are verified: each request sends one besides its drafts.":
            of(lambda k, R: R * (1 + mean[:k].sum()) / costs(R, R * max(k, 1))),
        "every verified draft is counted as accepted; a draft is committed with its survival's chance.": of(lambda k, R: R * (1 + k) / seconds(k, R)),
        "the survival at the last position is the chance that the whole prefix is accepted; expected drafts are the sum over its positions.":
            of(lambda k, R: R * (1 + (k * mean[k - 1] if k else 0)) / seconds(k, R)),
        "all positions are counted; drafts behind the length are not verified.": of(lambda k, R: R * (1 + mean.sum()) / seconds(k, R)),
        "the step is that of one request; all of them share it, and it verifies the tokens of all.":
            of(lambda k, R: R * (1 + mean[:k].sum()) / seconds(k, 1)),
        "costs gives seconds a step, so divide by it.": of(lambda k, R: R * (1 + mean[:k].sum()) * seconds(k, R)),
        "survivals are added up over the recorded blocks too; take their mean block.": of(lambda k, R: R * (1 + alive[:, :k].sum()) / seconds(k, R)),
    }, "requests * (1 + mean survival, summed over the first `length` positions), over the seconds of a step of requests * (1 + length) tokens.")


@checker
def check_speed_gain(speed_gain):
    """`speed_gain(ours, theirs, throughput)`: how much faster each user of ours is where both reach this throughput."""
    theirs = np.array([[90.0, 90.0], [60.0, 240.0], [30.0, 480.0], [10.0, 640.0]])
    ours = np.array([[150.0, 150.0], [120.0, 480.0], [50.0, 800.0]])
    cases = [240.0, 400.0, 500.0]

    def of(rule):
        return [float(rule(level)) for level in cases]

    def speed(curve, level):
        return np.interp(level, curve[:, 1], curve[:, 0])

    def total(curve, user):
        return np.interp(user, curve[::-1, 0], curve[::-1, 1])

    answer = [float(finished(speed_gain(ours, theirs, level))) for level in cases]
    name_mistake(answer, of(lambda level: speed(ours, level) / speed(theirs, level) - 1), {
        "it is upside down: ours over theirs.": of(lambda level: speed(theirs, level) / speed(ours, level) - 1),
        "that is the ratio; of a gain, one is still to be taken off.": of(lambda level: speed(ours, level) / speed(theirs, level)),
        "that is a difference in tokens a second; a gain is relative to theirs.": of(lambda level: speed(ours, level) - speed(theirs, level)),
        "that is how much more throughput ours has where its users are as fast as theirs: the other way across the picture. "
        "Keep the throughput, compare the speeds.": of(lambda level: total(ours, speed(theirs, level)) / level - 1),
        "np.interp was asked for a throughput at that speed; the first column is the speed, the second the throughput.":
            of(lambda level: total(ours, level) / total(theirs, level) - 1),
        "np.interp needs its grid to rise: along the speeds it falls. Interpolate over the throughputs.":
            of(lambda level: np.interp(level, ours[:, 0], ours[:, 1]) / np.interp(level, theirs[:, 0], theirs[:, 1]) - 1),
        "you compared points of the same row, that is of the same concurrency; at the same concurrency the throughputs differ.":
            of(lambda level: ours[abs(theirs[:3, 1] - level).argmin(), 0] / theirs[abs(theirs[:3, 1] - level).argmin(), 0] - 1),
        "that is in percent; return a fraction.": of(lambda level: 100 * (speed(ours, level) / speed(theirs, level) - 1)),
    }, "read each curve's speed at this throughput (np.interp over the second column), and take ours over theirs less one.")
