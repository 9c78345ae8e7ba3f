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
from transformers import Qwen3Config, Qwen3ForCausalLM

from .cost_table import CostTable
from .decoding import begin_together, step_together
from .drafters import MTP, DraftConfig, DSpark, DSparkConfig, Eagle3, Eagle3Config, PromptLookup, Proposal, SmallLM
from .errors import RequestError
from .sampling import RandomSource, draw
from .scheduling import started
from .target import Step, Target

MAX_PATHS = 200_000
LOSSY = 1e-5  # total variation beyond what float32 probabilities leave


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
            ends = alive - torch.cat([alive[1:], torch.zeros(1, dtype=torch.double)])  # stops exactly after k
            kept.append(self._choose(ends.clamp(min=0).tolist()))
        return torch.tensor(kept, device=keep.device)


def outcomes(work):
    """Yields (result, probability) of `work(path)` for every way its random decisions can fall.

    Raises RequestError where there are too many paths to visit.
    """
    waiting, visited = [[]], 0
    while waiting:
        visited += 1
        _check_paths(visited)
        path = Path(waiting.pop())
        result = work(path)
        waiting += path.open
        yield result, path.probability


def _check_paths(visited: int) -> None:
    if visited > MAX_PATHS:
        raise RequestError(f"more than {MAX_PATHS} paths; use a smaller vocabulary, block or length")


def output_distribution(target, drafter, policy, length: int, *, prompt=(0,), temperature: float = 1.0,
                        gamma: int | None = None) -> dict[tuple[int, ...], float]:
    """Exact probability of every sequence of `length` new tokens after `prompt`, as `generate` produces them.

    `drafter=None` gives the target's own distribution. Raises RequestError where there are too many paths to visit.
    """
    joint = joint_distribution(target, drafter, policy, length, [prompt], temperature=temperature, gamma=gamma)
    return {tokens: probability for (tokens,), probability in joint.items()}


def joint_distribution(target, drafter, policy, length: int, prompts, *, temperature: float = 1.0,
                       gamma: int | None = None) -> dict[tuple[tuple[int, ...], ...], float]:
    """`output_distribution` of requests that share every step: probability of each tuple of their answers."""
    lasting = (target, drafter, getattr(policy, "cost_table", None))

    def begin(path):
        requests = begin_together(target, drafter, [torch.tensor([list(prompt)]) for prompt in prompts], max_new_tokens=length,
                                  temperature=temperature, stop_token_ids=(), generator=path, gamma=gamma)
        return requests, started(_copied(policy, *lasting))

    found: dict[tuple, float] = {}
    waiting, followed = list(outcomes(begin)), 0
    while waiting:
        (requests, rule), probability = waiting.pop()
        if all(request.finished for request in requests):
            tokens = tuple(tuple(request.answer.token_ids) for request in requests)
            found[tokens] = found.get(tokens, 0.0) + probability
            continue
        after = [(state, probability * share) for state, share in outcomes(partial(_stepped, requests, rule, lasting))]
        followed += len(after)
        _check_paths(followed)
        waiting += after
    return found


def _stepped(requests: list, policy, lasting: tuple, path: Path) -> tuple[list, object]:
    """Copies of requests and policy, all but what is `lasting`, after a step whose random decisions follow `path`."""
    for request in requests:
        request.generator = path
        request.answer.rounds.clear()  # nobody reads them, and copies take time
    requests, policy = _copied((requests, policy), *lasting, path)
    step_together(requests, policy)
    return requests, policy


def _copied(state, *lasting):
    """A deep copy in which what is `lasting`, models above all, stays the very same object."""
    return copy.deepcopy(state, {id(one): one for one in lasting})


def total_variation(first: dict, second: dict) -> float:
    """Half the sum of absolute differences of two distributions over sequences: 0 equal, 1 disjoint."""
    return sum(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in first.keys() | second.keys()) / 2


class ToyTarget:
    """A target that is a table: `table` [V, V] holds the next-token probabilities after each last token."""

    def __init__(self, table):
        self.table = torch.as_tensor(table, dtype=torch.float32)
        self.vocab_size, self.max_positions, self.device = len(self.table), 1 << 20, torch.device("cpu")
        self.stop_token_ids = ()

    def prefill(self, input_ids, taps=()):
        """Logits [B, 1, V] after the prompt; the table needs no memory, so the cache is None."""
        return Step(self.table[input_ids[:, -1:]].log(), None), None

    def verify(self, token_ids, cache, taps=()):
        """Logits [B, k, V] after each of token_ids [B, k]."""
        return Step(self.table[token_ids].log(), None)

    def roll_back(self, cache, dropped):
        """Nothing to forget."""


class ToyDrafter:
    """A drafter that is two tables: next-token probabilities [V, V] after each token, and the confidence [V] in the
    position after each drafted token; `first_confidence` is that of position 1."""

    name = "toy"
    taps = ()

    def __init__(self, table, first_confidence: float, confidence, gamma: int):
        self.table, self.gamma = torch.as_tensor(table, dtype=torch.float32), gamma
        self.first_confidence = first_confidence
        self.confidence = torch.as_tensor(confidence, dtype=torch.float32)

    def begin(self, prompt_ids, features=None):
        """No state."""

    def extend(self, state, token_ids, features=None):
        """No state."""

    def propose(self, state, anchor, *, gamma=None, temperature, generator):
        """Draws the block token by token."""
        previous, drawn = anchor, []
        confidence = torch.full(anchor.shape, self.first_confidence)
        for _ in range(gamma or self.gamma):
            probs = self.table[previous]
            previous = draw(probs, generator)
            drawn.append((previous, probs, confidence.logit()))
            confidence = self.confidence[previous]
        return Proposal(*(torch.stack(part, 1) for part in zip(*drawn)))


def appendix_a() -> tuple[ToyTarget, ToyDrafter, CostTable]:
    """The example of the paper's Appendix A: target (0.7, 0.3), a drafter accepted with probability 0.8, and SPS(1..3).

    After a drafted 0 the second position is trusted (0.9), after a drafted 1 it is not, so the drafted token itself tips
    the retrospective choice. The first new token comes from the prompt's pass; the example speaks of the second.
    """
    target = ToyTarget([[0.7, 0.3]] * 2)
    drafter = ToyDrafter([[0.5, 0.5]] * 2, first_confidence=0.8, confidence=[0.9, 0.0], gamma=2)
    return target, drafter, CostTable([1, 2, 3], [1.0, 0.5, 0.45])


def marginal(distribution: dict, position: int) -> dict[int, float]:
    """The distribution of the token at one position (from 0) of the sequences."""
    found: dict[int, float] = {}
    for tokens, probability in distribution.items():
        found[tokens[position]] = found.get(tokens[position], 0.0) + probability
    return found


class Violation(NamedTuple):
    """A small case in which a policy changes the output: its number, how far (total variation), and the case itself."""

    number: int
    distance: float
    target: ToyTarget
    drafter: ToyDrafter
    cost_table: CostTable


def find_violation(policy_of, *, cases: int = 100, seed: int = 0, requests: int = 1, length: int = 2) -> Violation | None:
    """Searches random cases of two tokens and blocks of two for one in which `policy_of(cost_table)` is lossy.

    A case has a random target, drafter, confidences and jagged cost table; `requests` share its steps. None where every
    case gave the target's distribution up to rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    for number in range(cases):
        target, drafter, cost_table = random_case(generator, requests)
        prompts = [(request % 2,) for request in range(requests)]
        exact = joint_distribution(target, None, None, length, prompts)
        found = joint_distribution(target, drafter, policy_of(cost_table), length, prompts)
        if (distance := total_variation(found, exact)) > LOSSY:
            return Violation(number, distance, target, drafter, cost_table)
    return None


def random_case(generator: torch.Generator, requests: int = 1) -> tuple[ToyTarget, ToyDrafter, CostTable]:
    """A random target and drafter of two tokens with blocks of two, and a cost table for so many requests."""
    def uniform(*shape):
        return torch.rand(shape, generator=generator)

    target, table = ToyTarget(_pairs(0.1 + 0.8 * uniform(2))), _pairs(0.1 + 0.8 * uniform(2))
    drafter = ToyDrafter(table, uniform(1).item(), uniform(2).round(decimals=1), gamma=2)
    sizes = torch.arange(1, 3 * requests + 1)
    return target, drafter, CostTable(sizes, 1 / (1 + uniform(len(sizes)).cumsum(0) * uniform(1)) * (0.8 + 0.4 * uniform(len(sizes))))


def _pairs(first: torch.Tensor) -> torch.Tensor:
    """Distributions [n, 2] over two tokens from the first one's shares [n]."""
    return torch.stack([first, 1 - first], 1)


def toy_models(seed: int = 0, vocab_size: int = 2, gamma: int = 2) -> tuple[Target, dict[str, object]]:
    """A random Qwen3 target over a few tokens and one drafter of each kind, all real code at toy size.

    The last token doubles as the mask, so every token can be drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = dict(vocab_size=vocab_size, hidden_size=16, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=8)
    target = Target(_random_language_model(3, shape, generator))
    drafters = {"small_lm": SmallLM(Target(_random_language_model(1, shape, generator)), gamma),
                "prompt_lookup": PromptLookup(vocab_size, gamma)}
    shape |= dict(num_hidden_layers=1, rms_norm_eps=1e-6, rope_theta=1e4, num_target_layers=3)
    untrained = {}
    for name, rank, head in (("dflash", 0, "vanilla"), ("dspark", 4, "vanilla"), ("dspark_gated", 4, "gated"), ("dspark_rnn", 4, "rnn")):
        untrained[name] = DSpark(DSparkConfig(**shape, target_layer_ids=(0, 1), block_size=gamma, mask_token_id=vocab_size - 1,
                                              markov_rank=rank, markov_head_type=head, enable_confidence_head=rank > 0))
    untrained["eagle3"] = Eagle3(Eagle3Config(**shape, target_layer_ids=(0, 1), ttt_length=gamma))
    untrained["mtp"] = MTP(DraftConfig(**shape, target_layer_ids=(2,)))
    return target, drafters | {name: _randomised(drafter.requires_grad_(False).eval(), generator) for name, drafter in untrained.items()}


def _random_language_model(layers: int, shape: dict, generator) -> Qwen3ForCausalLM:
    config = Qwen3Config(**shape, num_hidden_layers=layers, max_position_embeddings=64, tie_word_embeddings=False, eos_token_id=None,
                         bos_token_id=None, pad_token_id=None)
    return _randomised(Qwen3ForCausalLM(config).requires_grad_(False), generator)


def _randomised(model, generator):
    """Weights large enough that every context gives a different distribution; no biases, gains of one."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
        elif name.endswith("bias"):
            parameter.zero_()
    return model

