"""The exact output distribution of a speculative decoder, by visiting every outcome.

The decoder itself runs. Each round runs once for each path of choices (drawn tokens, accepted
prefixes), from a copy of its state. The probability of an answer is the product of the
probabilities of its choices. Nothing is sampled and nothing is modelled a second time, so a result
holds for the code that decodes. This is feasible for a few tokens and a few rounds.
"""

import copy
from functools import partial
from typing import NamedTuple

import torch

from ..common.errors import RequestError
from ..decoding.lockstep import begin_together, play_round
from ..decoding.proposal import start_policy
from ..decoding.sampling import RandomSource
from ..scheduling.cost_table import CostTable
from .toys import ToyDrafter, ToyTarget, random_case

MAX_PATHS = 200_000
LOSSY_DISTANCE = 1e-5  # a total variation beyond the rounding of float32 probabilities


class ChoicePath(RandomSource):
    """A source of randomness that follows a list of choices, then takes the first possible outcome.

    It collects the choices that it could have made instead in `open`.
    """

    def __init__(self, choices: list[int]):
        self.choices, self.taken, self.open, self.probability = choices, [], [], 1.0

    def _choose(self, outcomes: list[float]) -> int:
        """Return the index of the next outcome on this path."""
        possible = [index for index, probability in enumerate(outcomes) if probability > 0]
        if not possible:
            raise RequestError("A draw has no possible outcome: its probabilities are no numbers.")
        step = len(self.taken)
        pick = self.choices[step] if step < len(self.choices) else possible[0]
        if step >= len(self.choices):
            self.open += [self.taken + [other] for other in possible[1:]]
        self.taken = self.taken + [pick]
        self.probability *= outcomes[pick]
        return pick

    def draw(self, probs):
        """Choose tokens [...] for distributions [..., V]."""
        flat = probs.double().flatten(0, -2)
        picks = [self._choose((row / row.sum()).tolist()) for row in flat]
        return torch.tensor(picks, device=probs.device).view(probs.shape[:-1])

    def accepted_prefix_length(self, keep):
        """Choose lengths [B] of accepted prefixes; draft k is kept with probability keep[:, k]."""
        lengths = []
        for row in keep.double():
            alive = torch.cat([torch.ones(1, dtype=torch.double), row.cumprod(0)])
            # The probability that the prefix ends exactly after k.
            ends = alive - torch.cat([alive[1:], torch.zeros(1, dtype=torch.double)])
            lengths.append(self._choose(ends.clamp(min=0).tolist()))
        return torch.tensor(lengths, device=keep.device)


def outcomes(work):
    """Yield (result, probability) of `work(path)` for every combination of its random decisions.

    Raise RequestError if there are more than MAX_PATHS.
    """
    waiting, visited = [[]], 0
    while waiting:
        visited += 1
        _check_paths(visited)
        path = ChoicePath(waiting.pop())
        result = work(path)
        waiting += path.open
        yield result, path.probability


def summed(pairs) -> dict:
    """Return the distribution {result: probability} of (result, probability) pairs."""
    distribution: dict = {}
    for result, probability in pairs:
        distribution[result] = distribution.get(result, 0.0) + probability
    return distribution


def _check_paths(visited: int) -> None:
    """Raise RequestError if there are too many paths."""
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
    """Return the exact probability of every beginning of `length` tokens of an answer.

    The answers are those of `generate` after `prompt`, with `max_new_tokens`, which shortens their
    last blocks (None: every block is whole). `drafter=None` gives the target's own distribution.
    `rule` replaces `sampling.accept`. Raise RequestError if there are more than MAX_PATHS paths.
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
    """Return the exact probability of each tuple of answers of requests that share every step.

    Arguments are as in `output_distribution`, with a prompt for each request.
    """
    shared = (target, drafter, getattr(policy, "cost_table", None))
    longest = max_new_tokens or length + (drafter.gamma if drafter else 0)

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
        return requests, start_policy(_copied(policy, *shared))

    ended: list[tuple[tuple, float]] = []
    waiting, followed = list(outcomes(begin)), 0
    while waiting:
        (requests, running), probability = waiting.pop()
        if all(len(request.answer.token_ids) >= length for request in requests):
            tokens = tuple(tuple(request.answer.token_ids[:length]) for request in requests)
            ended.append((tokens, probability))
            continue
        after = [
            (state, probability * share)
            for state, share in outcomes(partial(_stepped, requests, running, shared, length))
        ]
        followed += len(after)
        _check_paths(followed)
        waiting += after
    return summed(ended)


def _stepped(
    requests: list, policy, shared: tuple, length: int, path: ChoicePath
) -> tuple[list, object]:
    """Return copies of the requests and the policy after a step along `path`.

    Requests with `length` tokens or more take no part. Objects in `shared` are not copied.
    """
    requests, policy = _copied((requests, policy), *shared, requests[0].generator)
    for request in requests:
        request.generator = path
    play_round([request for request in requests if len(request.answer.token_ids) < length], policy)
    for request in requests:
        request.answer.rounds.clear()  # nobody reads them, and the next copies take time
    return requests, policy


def _copied(state, *shared):
    """Return a deep copy of `state` that refers to the same `shared` objects, such as models."""
    return copy.deepcopy(state, {id(part): part for part in shared})


def total_variation(first: dict, second: dict) -> float:
    """Return the total variation of two distributions: 0 if equal, 1 if disjoint."""
    return (
        sum(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in first.keys() | second.keys())
        / 2
    )


def marginal(distribution: dict, position: int) -> dict[int, float]:
    """Return the distribution of the token at a position (from 0) of the sequences."""
    return summed((tokens[position], probability) for tokens, probability in distribution.items())


class Violation(NamedTuple):
    """A case in which a policy changes the output: its number, the total variation, the models."""

    number: int
    distance: float
    target: ToyTarget
    drafter: ToyDrafter
    cost_table: CostTable


def find_violation(
    policy_of, *, cases: int = 100, seed: int = 0, requests: int = 1, length: int = 2
) -> Violation | None:
    """Return a random case in which the policy `policy_of(cost_table)` is lossy, or None.

    A case has a vocabulary of two tokens and blocks of two, a random target, drafter and
    confidences, and a jagged cost table. Its `requests` share every step. Searches `cases` cases.
    """
    generator = torch.Generator().manual_seed(seed)
    for number in range(cases):
        target, drafter, cost_table = random_case(generator, requests)
        prompts = [(request % 2,) for request in range(requests)]
        exact = joint_distribution(target, None, None, length, prompts)
        drafted = joint_distribution(target, drafter, policy_of(cost_table), length, prompts)
        distance = total_variation(drafted, exact)
        if not distance <= LOSSY_DISTANCE:  # a NaN is lossy, too
            return Violation(number, distance, target, drafter, cost_table)
    return None
