"""Checkers of lesson 11: index tensors of a ragged batch, its mask, an engine, a fixed length's throughput, matched throughput,
seconds of a request alone."""

import numpy as np
import torch

from dspark_lite.scheduling.step_costs import StepCosts
from dspark_lite.serving.simulator import Record
from .checking import Exercise, Mistake, Step
from .ragged import before, index_tensors, may_see, own
from .small_engine import SmallEngine as SmallEngine
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
    """Two tensors [7]."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Mistake("return two tensors, request and position.")
    if not all(isinstance(part, torch.Tensor) for part in answer):
        raise Mistake("request and position must be tensors; the mask compares them all at once.")
    shapes = [tuple(part.shape) for part in answer]
    if shapes != [(7,), (7,)]:
        raise Mistake(f"request and position have the shapes {shapes}; "
                      "each holds one number per token, as many as the counts add up to.")
    if any(part.is_floating_point() and torch.equal(part, part.round()) for part in answer):
        raise Mistake("request and position are indices; make them tensors of whole numbers.")
    return answer


check_indices = Exercise(index_tensors, Step([(torch.tensor([7, 3, 5]), torch.tensor([2, 4, 1]))], {
    "the two are swapped: return request first, then position.":
        lambda s, c: index_tensors(s, c)[::-1],
    "positions count from 0 in each request; its context stands before, so they begin at its start.":
        lambda s, c: index_tensors(torch.zeros_like(s), c),
    "positions run on through the whole batch, as if it were one text; each request has its own.":
        lambda s, c: (index_tensors(s, c)[0], through(c)),
    "you added the start to a count through the whole batch; begin anew at each request.":
        lambda s, c: (index_tensors(s, c)[0], s[index_tensors(s, c)[0]] + through(c)),
    "positions are off by counts[r]: counts.cumsum(0) counts the request itself too; it begins at cumsum - counts.":
        lambda s, c: (index_tensors(s, c)[0], index_tensors(s - c, c)[1]),
    "all tokens of a request have the position of its first; each stands one after the one before.":
        lambda s, c: (index_tensors(s, c)[0], s[index_tensors(s, c)[0]]),
    "positions are one too high: the anchor stands at the start itself, right after the last committed token.":
        lambda s, c: index_tensors(s + 1, c),
    "requests take turns; a request's tokens stand together, in order.":
        alternating,
    "requests are counted from 1; count them from 0, they are indices.":
        lambda s, c: (index_tensors(s, c)[0] + 1, index_tensors(s, c)[1]),
    "each holds one number per token, as many as the counts add up to.":
        lambda s, c: (torch.arange(3), s),
    "return two tensors, request and position.":
        lambda s, c: index_tensors(s, c)[1],
}, "request r stands counts[r] times in a row, with the positions starts[r], starts[r] + 1, and so on.",
    one_number_per_token))


def entering(request, key_request):
    """Whether a key is one of the step's own, which stand last."""
    return torch.arange(len(key_request)) >= len(key_request) - len(request)


def boolean(answer):
    """A mask of type bool."""
    if torch.as_tensor(answer).dtype != torch.bool:
        raise Mistake(f"the mask holds {torch.as_tensor(answer).dtype}; it should say True where a token sees a key and "
                      "False elsewhere.")
    return answer


REQUEST, POSITION = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([2, 3, 1, 2, 3])
CACHED_REQUEST, CACHED_POSITION = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0])
MASK_CASE = REQUEST, POSITION, torch.cat([CACHED_REQUEST, REQUEST]), torch.cat([CACHED_POSITION, POSITION])
check_mask = Exercise(may_see, Step([MASK_CASE], {
    "that is the mask among the step's own tokens; the keys are the cached context too.":
        lambda r, p, kr, kp: may_see(r, p, r, p),
    "a token sees keys after it in its own request. Drafts that come later would decide about it; also ask for "
    "key_position <= position.":
        lambda r, p, kr, kp: own(r, kr),
    "a token sees other requests: positions alone do not tell whose key it is.":
        lambda r, p, kr, kp: before(p, kp),
    "the cached context is forgotten: a token sees the step's own tokens and nothing before them.":
        lambda r, p, kr, kp: may_see(r, p, kr, kp) & entering(r, kr),
    "a token does not see itself; its own position belongs to it (<=, not <).":
        lambda r, p, kr, kp: own(r, kr) & (kp < p[:, None]),
    "it is turned around: tokens are rows, keys are columns.":
        lambda r, p, kr, kp: may_see(r, p, kr, kp).T,
    "it is the wrong way round: True where a token sees a key.":
        lambda r, p, kr, kp: ~may_see(r, p, kr, kp),
    "tokens see what stands after them and not what stands before.":
        lambda r, p, kr, kp: own(r, kr) & ~(kp < p[:, None]),
    "you compared places in the batch; compare positions.":
        lambda r, p, kr, kp: own(r, kr) & before(torch.arange(len(r)), torch.arange(len(kr))),
    "a key must be of the same request and not after the token: both, not one of them.":
        lambda r, p, kr, kp: own(r, kr) | before(p, kp),
    "tokens and keys are not paired: request[:, None] and position[:, None] make rows of tokens, so that each meets each key.":
        (lambda r, p, kr, kp: (r == kr) & (kp <= p), lambda r, p, kr, kp: (kr == r) & (kp <= p)),
    "`and` asks for one truth value; between two tensors of them write &.":
        lambda r, p, kr, kp: own(r, kr) and before(p, kp),
    "the mask holds torch.int64; it should say True where a token sees a key and False elsewhere.":
        lambda *indices: may_see(*indices).long(),
}, "a token sees a key if it is of the same request and its position is not above the token's own.", boolean))


def committed(mean, length):
    """Tokens that a request is expected to commit."""
    return 1 + mean[:length].sum()


def step_seconds(costs, length, requests):
    """Seconds of a step that verifies the anchor and `length` drafts of each request."""
    return costs.seconds(requests, requests * (1 + length))


def throughput(tokens=committed, seconds=step_seconds):
    """An answer: requests times `tokens(mean survival, length)`, over `seconds(costs, length, requests)`."""
    return lambda alive, length, requests, costs: (
        requests * tokens(alive.mean(0), length) / seconds(costs, length, requests))


def fixed_throughput(alive, length, requests, costs):
    """Expected tokens a second of one fixed length at a load."""
    return throughput()(alive, length, requests, costs)


def one_number(answer):
    """Tokens per second in all."""
    if np.ndim(answer):
        raise Mistake(f"that is {np.size(answer)} values, not a number; take the mean block of the recorded ones.")
    if np.isnan(float(answer)):
        raise Mistake("the answer is not a number for `length` 0, where a mean has nothing to go over; add up the survivals.")
    return answer


ALIVE = np.array([[0.9, 0.7, 0.6], [0.8, 0.4, 0.1], [1.0, 0.9, 0.3]])
COSTS = StepCosts([1, 8], [1, 2, 4], [[0.010, 0.011, 0.012], [0.014, 0.022, 0.040]])
LOADS = [(ALIVE, length, requests, COSTS) for length, requests in [(2, 4), (3, 8), (1, 1), (0, 2)]]
check_fixed_throughput = Exercise(fixed_throughput, Step(LOADS, {
    "that is the speed of one request; a step commits the tokens of all of them.":
        lambda alive, length, requests, costs: fixed_throughput(alive, length, requests, costs) / requests,
    "the token that the target adds itself is missing: each request commits it, whatever becomes of the drafts.":
        throughput(lambda mean, length: mean[:length].sum()),
    "the anchors are missing from the tokens that are verified: each request sends one besides its drafts.":
        throughput(seconds=lambda costs, length, requests: costs.seconds(requests, requests * max(length, 1))),
    "every verified draft is counted as accepted; a draft is committed with its survival's chance.":
        throughput(lambda mean, length: 1 + length),
    "the survival at the last position is the chance that the whole prefix is accepted; expected drafts are the sum over "
    "its positions.":
        throughput(lambda mean, length: 1 + (length * mean[length - 1] if length else 0)),
    "only the last survival is counted; a block that is refused earlier commits the drafts before: add up the first `length`.":
        (throughput(lambda mean, length: 1 + (mean[length - 1] if length else 0)),
         throughput(lambda mean, length: 1 + mean[length - 1])),
    "one survival too many is added up; `length` drafts have the first `length` survivals.":
        throughput(lambda mean, length: committed(mean, length + 1)),
    "early drafts survive more often than late ones: add up the first `length` survivals, not `length` times the mean of all.":
        throughput(lambda mean, length: 1 + length * mean.mean()),
    "one anchor is counted for the whole step; each request sends one.":
        throughput(seconds=lambda costs, length, requests: costs.seconds(requests, requests * length + 1)),
    "all positions are counted; drafts after the length are not verified.":
        throughput(lambda mean, length: committed(mean, len(mean))),
    "the step is that of one request; all of them share it, and it verifies the tokens of all.":
        throughput(seconds=lambda costs, length, requests: step_seconds(costs, length, 1)),
    "the step is given the tokens of one request; it verifies the drafts and anchors of all of them.":
        throughput(seconds=lambda costs, length, requests: costs.seconds(requests, 1 + length)),
    "costs.seconds gives seconds per step, so divide by it.":
        throughput(seconds=lambda costs, length, requests: 1 / step_seconds(costs, length, requests)),
    "it is upside down, seconds per token; divide the tokens by the seconds.":
        lambda alive, length, requests, costs: 1 / fixed_throughput(alive, length, requests, costs),
    "the mean survival of the verified positions is not yet a number of drafts; add up over the positions.":
        throughput(lambda mean, length: 1 + (mean[:length].mean() if length else 0)),
    "survivals are added up over the recorded blocks too; take their mean block.":
        lambda alive, length, requests, costs:
            requests * (1 + alive[:, :length].sum()) / step_seconds(costs, length, requests),
    "survivals are added up over the recorded blocks too, each as if it were one of the requests; take their mean block.":
        lambda alive, length, requests, costs:
            (requests + alive[:, :length].sum()) / step_seconds(costs, length, requests),
    "survivals are products already: each is the chance that all drafts up to there are accepted. Don't multiply them again.":
        (lambda alive, length, requests, costs: fixed_throughput(alive.cumprod(1), length, requests, costs),
         throughput(lambda mean, length: committed(mean.cumprod(), length))),
}, "the tokens that a step commits for all requests, over the seconds of a step that verifies the tokens of all of them. "
   "Check both parts for `length` 0: one token for each request, in a step of the anchors alone.", one_number))


def speed(curve, level):
    """The speed at a throughput."""
    return np.interp(level, curve[:, 1], curve[:, 0])


def total(curve, user):
    """The throughput at a speed."""
    return np.interp(user, curve[::-1, 0], curve[::-1, 1])


def nearest(curve, level):
    """The speed at the measured point whose throughput is nearest."""
    return curve[abs(curve[:, 1] - level).argmin(), 0]


def speed_gain(ours, theirs, level):
    """How much faster each user of ours is where both reach this throughput."""
    return speed(ours, level) / speed(theirs, level) - 1


def same_row(ours, theirs, level):
    """The gain between points of the same row, the one nearest to this throughput."""
    row = abs(theirs[: len(ours), 1] - level).argmin()
    return ours[row, 0] / theirs[row, 0] - 1


THEIRS = np.array([[90.0, 90.0], [60.0, 240.0], [30.0, 480.0], [10.0, 640.0]])
OURS = np.array([[150.0, 150.0], [120.0, 480.0], [50.0, 800.0]])
check_speed_gain = Exercise(speed_gain, Step([(OURS, THEIRS, level) for level in (240.0, 400.0, 500.0)], {
    "it is upside down: ours over theirs.":
        lambda ours, theirs, level: speed_gain(theirs, ours, level),
    "that is the ratio; of a gain, one is still to be taken off.":
        lambda ours, theirs, level: speed(ours, level) / speed(theirs, level),
    "that is a difference in tokens a second; a gain is relative to theirs.":
        lambda ours, theirs, level: speed(ours, level) - speed(theirs, level),
    "that is how much more throughput ours has where its users are as fast as theirs: the other way across the picture. "
    "Keep the throughput, compare the speeds.":
        lambda ours, theirs, level: total(ours, speed(theirs, level)) / level - 1,
    "np.interp reads past the end of a curve: either the columns are exchanged (the first is the speed, the second the "
    "throughput), or the rows are turned round, so that the throughputs fall.":
        lambda ours, theirs, level: total(ours, level) / total(theirs, level) - 1,
    "np.interp needs its grid to rise: along the speeds it falls. Interpolate over the throughputs.":
        lambda ours, theirs, level: np.interp(level, *ours.T) / np.interp(level, *theirs.T) - 1,
    "you compared points of the same row, that is of the same concurrency; at the same concurrency the throughputs "
    "differ.":
        same_row,
    "you took the nearest measured points; read between the points with np.interp.":
        lambda ours, theirs, level: nearest(ours, level) / nearest(theirs, level) - 1,
    "that is by how much theirs is slower; a gain is relative to theirs: ours over theirs, less one.":
        lambda ours, theirs, level: 1 - speed(theirs, level) / speed(ours, level),
    "that is in percent; return a fraction.":
        lambda ours, theirs, level: 100 * speed_gain(ours, theirs, level),
}, "read each curve's speed at this throughput (np.interp over the second column), and take ours over theirs less one."))


def gives(accepted, length):
    """Tokens that a round commits."""
    return min(accepted, length) + 1


def blocks_gone_through(record, answer, length, tokens=gives, after=lambda number, blocks: number % blocks, start=0):
    """The blocks of the rounds until a recorded answer is written, `start` tokens before the first; the block after each is
    `after(rounds, blocks)`."""
    written, gone = start, []
    while written < record.tokens[answer]:
        gone.append(record.first[answer] + after(len(gone), record.blocks[answer]))
        written += tokens(record.accepted[gone[-1]], length)
    return gone


def alone(**replay):
    """An answer: the rounds of a replay, times the seconds of a step of one request."""
    return lambda record, answer, length, costs: len(blocks_gone_through(record, answer, length, **replay)) * costs.seconds(1, 1 + length)


def seconds_alone(record, answer, length, costs):
    """Seconds in which a request alone writes a recorded answer when `length` drafts are verified in each step."""
    return alone()(record, answer, length, costs)


def in_rounds(seconds):
    """An answer: `seconds(rounds, length, costs)`."""
    return lambda record, answer, length, costs: seconds(len(blocks_gone_through(record, answer, length)), length, costs)


def by_accepted(record, answer, length, costs):
    """Each round billed by the drafts that it accepts."""
    return sum(costs.seconds(1, gives(record.accepted[block], length)) for block in blocks_gone_through(record, answer, length))


def of_the_first(record, answer, length, costs):
    """The replay goes through the first answer's blocks."""
    begun = Record(record.gamma, None, record.accepted, record.tokens, np.zeros_like(record.first), record.blocks)
    return seconds_alone(begun, answer, length, costs)


def one_time(answer):
    """Seconds in all."""
    if np.ndim(answer):
        raise Mistake(f"that is {np.size(answer)} values, not a number; return the seconds of all rounds together.")
    return answer


RECORDED = Record(3, None, np.array([3, 1, 0, 2, 3, 1]), np.array([15, 17, 5]), np.array([0, 3, 5]), np.array([3, 2, 1]))
ANSWERS = [(RECORDED, answer, length, COSTS) for answer, length in [(1, 2), (0, 3), (2, 1), (1, 3), (0, 1)]]
check_seconds_alone = Exercise(seconds_alone, Step(ANSWERS, {
    "the token that the target adds itself is missing: a round writes it besides the accepted drafts.":
        alone(tokens=lambda accepted, length: min(accepted, length)),
    "drafts that were not verified are counted: of a block with more accepted only the first `length` are written.":
        alone(tokens=lambda accepted, length: accepted + 1),
    "every verified draft is counted as accepted; the record says how many were.":
        alone(tokens=lambda accepted, length: length + 1),
    "the answer's blocks begin at record.first[answer]; you went through those of the first answer.":
        of_the_first,
    "after its last block you went on to the next answer's; begin with its own first block again.":
        alone(after=lambda number, blocks: number),
    "after its last block you stayed there; begin with the first block again.":
        alone(after=lambda number, blocks: min(number, blocks - 1)),
    "every round took the first block; go on to the next one.":
        alone(after=lambda number, blocks: 0),
    "that is one round more than it takes: it ends as soon as record.tokens[answer] are written.":
        in_rounds(lambda rounds, length, costs: (rounds + 1) * costs.seconds(1, 1 + length)),
    "you go on when exactly record.tokens[answer] are written; then the answer is complete: < instead of <=.":
        alone(start=-1),
    "one token is counted before the first round; record.tokens are those that rounds write.":
        alone(start=1),
    "you stopped when the recorded blocks were used up; a request that verifies less needs more rounds.":
        lambda record, answer, length, costs: record.blocks[answer] * costs.seconds(1, 1 + length),
    "the anchor is missing from the tokens that a step verifies.":
        in_rounds(lambda rounds, length, costs: rounds * costs.seconds(1, length)),
    "a step is billed by what it verifies, `length` drafts and the anchor, whatever is accepted of them.":
        by_accepted,
    "the step of a whole block is billed; it verifies `length` drafts and the anchor.":
        in_rounds(lambda rounds, length, costs: rounds * costs.seconds(1, 4)),
    "that is the number of rounds; each takes costs.seconds(1, 1 + length).":
        in_rounds(lambda rounds, length, costs: rounds),
    "that is one round; add up all of them.":
        in_rounds(lambda rounds, length, costs: costs.seconds(1, 1 + length)),
    "costs.seconds takes requests first, then tokens: a request alone, with its anchor and `length` drafts.":
        in_rounds(lambda rounds, length, costs: rounds * costs.seconds(1 + length, 1)),
}, "go through the answer's blocks until record.tokens[answer] are written, each round min(accepted, length) + 1 of them, and "
   "multiply the rounds by the seconds of a step with the anchor and `length` drafts.", one_time))
