"""The exact output distribution of a speculative decoder, by visiting every outcome of every random decision.

The decoder itself is run, round by round: every round once for every path of choices (drawn tokens, accepted prefixes)
through it, from a copy of all that was carried into it. The probability of an answer is the product of the probabilities
of its choices. Nothing is sampled and nothing is modelled a second time, so what holds here holds of the code that
decodes. Feasible for vocabularies of a few tokens and a few rounds.
"""

import copy
from functools import partial
from typing import NamedTuple

import torch

from ..common.errors import RequestError
from ..decoding.proposal import started
from ..decoding.together import begin_together, play_round
from ..decoding.sampling import RandomSource
from ..scheduling.cost_table import CostTable
from .toys import ToyDrafter, ToyTarget, random_case

MAX_PATHS = 200_000
LOSSY_DISTANCE = 1e-5  # total variation beyond what float32 probabilities leave


class Path(RandomSource):
    """Follows a given list of choices, then the first possible outcome, and notes what else could have been chosen."""

    def __init__(self, choices: list[int]):
        self.choices, self.taken, self.open, self.probability = choices, [], [], 1.0

    def _choose(self, outcomes: list[float]) -> int:
        possible = [index for index, probability in enumerate(outcomes) if probability > 0]
        step = len(self.taken)
        pick = self.choices[step] if step < len(self.choices) else possible[0]
        if step >= len(self.choices):
            self.open += [self.taken + [other] for other in possible[1:]]
        self.taken = self.taken + [pick]
        self.probability *= outcomes[pick]
        return pick

    def draw(self, probs):
        flat = probs.double().flatten(0, -2)
        picks = [self._choose((row / row.sum()).tolist()) for row in flat]
        return torch.tensor(picks, device=probs.device).view(probs.shape[:-1])

    def accepted_prefix_length(self, keep):
        kept = []
        for row in keep.double():
            alive = torch.cat([torch.ones(1, dtype=torch.double), row.cumprod(0)])
            # The probability that the prefix ends exactly after k.
            ends = alive - torch.cat([alive[1:], torch.zeros(1, dtype=torch.double)])
            kept.append(self._choose(ends.clamp(min=0).tolist()))
        return torch.tensor(kept, device=keep.device)


def outcomes(work):
    """Yield (result, probability) of `work(path)` for every way its random decisions can fall.

    Raise RequestError where there are too many paths to visit.
    """
    waiting, visited = [[]], 0
    while waiting:
        visited += 1
        _check_paths(visited)
        path = Path(waiting.pop())
        result = work(path)
        waiting += path.open
        yield result, path.probability


def summed(pairs) -> dict:
    """The distribution that (result, probability) pairs make, as `outcomes` gives them: equal results are added up."""
    found: dict = {}
    for result, probability in pairs:
        found[result] = found.get(result, 0.0) + probability
    return found


def _check_paths(visited: int) -> None:
    if visited > MAX_PATHS:
        raise RequestError(
            f"more than {MAX_PATHS} paths; use a smaller vocabulary, block or length"
        )


def output_distribution(
    target,
    drafter,
    policy,
    length: int,
    *,
    prompt=(0,),
    temperature: float = 1.0,
    gamma: int | None = None,
    max_new_tokens: int | None = None,
    rule=None,
) -> dict[tuple[int, ...], float]:
    """Exact probability of every sequence of `length` new tokens after `prompt`, as `generate` produces them.

    `drafter=None` gives the target's own distribution. The sequences begin answers of `max_new_tokens`, which cut the last
    blocks where they are near (None: so many that every block is whole). `rule` replaces `sampling.accept`. Raise RequestError
    where there are too many paths to visit.
    """
    joint = joint_distribution(
        target,
        drafter,
        policy,
        length,
        [prompt],
        temperature=temperature,
        gamma=gamma,
        max_new_tokens=max_new_tokens,
        rule=rule,
    )
    return {tokens: probability for (tokens,), probability in joint.items()}


def joint_distribution(
    target,
    drafter,
    policy,
    length: int,
    prompts,
    *,
    temperature: float = 1.0,
    gamma: int | None = None,
    max_new_tokens: int | None = None,
    rule=None,
) -> dict[tuple[tuple[int, ...], ...], float]:
    """`output_distribution` of requests that share every step: probability of each tuple of their answers."""
    lasting, longest = (
        (target, drafter, getattr(policy, "cost_table", None)),
        max_new_tokens or length + (drafter.gamma if drafter else 0),
    )

    def begin(path):
        requests = begin_together(
            target,
            drafter,
            [torch.tensor([list(prompt)]) for prompt in prompts],
            max_new_tokens=longest,
            temperature=temperature,
            stop_token_ids=(),
            generator=path,
            gamma=gamma,
            rule=rule,
        )
        return requests, started(_copied(policy, *lasting))

    found: dict[tuple, float] = {}
    waiting, followed = list(outcomes(begin)), 0
    while waiting:
        (requests, rule), probability = waiting.pop()
        if all(len(request.answer.token_ids) >= length for request in requests):
            tokens = tuple(tuple(request.answer.token_ids[:length]) for request in requests)
            found[tokens] = found.get(tokens, 0.0) + probability
            continue
        after = [
            (state, probability * share)
            for state, share in outcomes(partial(_stepped, requests, rule, lasting, length))
        ]
        followed += len(after)
        _check_paths(followed)
        waiting += after
    return found


def _stepped(
    requests: list, policy, lasting: tuple, length: int, path: Path
) -> tuple[list, object]:
    """Return copies of the requests and the policy after a step of the requests that have fewer than `length` tokens. Its random
    decisions follow `path`. What is `lasting` is not copied."""
    for request in requests:
        request.generator = path
        request.answer.rounds.clear()  # nobody reads them, and copies take time
    requests, policy = _copied((requests, policy), *lasting, path)
    play_round([request for request in requests if len(request.answer.token_ids) < length], policy)
    return requests, policy


def _copied(state, *lasting):
    """A deep copy in which what is `lasting`, models above all, stays the very same object."""
    return copy.deepcopy(state, {id(one): one for one in lasting})


def total_variation(first: dict, second: dict) -> float:
    """Half the sum of absolute differences of two distributions over sequences: 0 equal, 1 disjoint."""
    return (
        sum(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in first.keys() | second.keys())
        / 2
    )


def marginal(distribution: dict, position: int) -> dict[int, float]:
    """The distribution of the token at one position (from 0) of the sequences."""
    return summed((tokens[position], probability) for tokens, probability in distribution.items())


class Violation(NamedTuple):
    """A small case in which a policy changes the output: its number, how far (total variation), and the case itself."""

    number: int
    distance: float
    target: ToyTarget
    drafter: ToyDrafter
    cost_table: CostTable


def find_violation(
    policy_of, *, cases: int = 100, seed: int = 0, requests: int = 1, length: int = 2
) -> Violation | None:
    """Search random cases of two tokens and blocks of two for one in which `policy_of(cost_table)` is lossy.

    A case has a random target, drafter, confidences and jagged cost table; `requests` share its steps. None where every
    case gave the target's distribution up to rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    for number in range(cases):
        target, drafter, cost_table = random_case(generator, requests)
        prompts = [(request % 2,) for request in range(requests)]
        exact = joint_distribution(target, None, None, length, prompts)
        found = joint_distribution(target, drafter, policy_of(cost_table), length, prompts)
        if (distance := total_variation(found, exact)) > LOSSY_DISTANCE:
            return Violation(number, distance, target, drafter, cost_table)
    return None
