"""One engine that grows, on one board: lesson 11 writes its step and lets it schedule, lesson 13
gives it a loop, lesson 14 a chart.

Every version serves the same prompts. Its texts are those that the tiny models write; its seconds
are a machine's, replayed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ...losslessness.ties import same_or_tied
from .small_engine import SmallEngine

SLOTS, PROMPTS, LONGEST = 4, 2, 24  # prompts of each domain; tokens of an answer
MOST_STEPS = 80  # enough for all prompts, even if nothing is accepted


class Served(NamedTuple):
    """A step of an engine: requests in it, tokens that it verified, tokens that it committed,
    cached tokens that belong to no text."""

    requests: int
    tokens: int
    committed: int
    left: int


class Device:
    """An engine as the device of lesson 13's loop.

    `start(budget)` begins a step that verifies at most `budget` drafts (None: whole blocks), and
    `finish()` carries it out and returns the survivals [R, g] of its blocks. The steps that had a
    request are collected in `steps`.
    """

    def __init__(self, engine: SmallEngine, step: Callable[[SmallEngine], None]):
        self.engine, self.step, self.steps = engine, step, []

    def start(self, budget: int | None) -> None:
        """Let the next step verify the likeliest `budget` drafts: each of them raises tokens per
        second, and none behind them."""
        running = self.engine.running
        self.engine.sps = lambda tokens: float(budget is None or tokens <= len(running) + budget)

    def finish(self) -> torch.Tensor:
        """Carry the step out; without any request it is empty."""
        engine = self.engine
        if not (engine.waiting or engine.running):
            return torch.zeros(0, engine.drafter.gamma)
        before = {number: len(answer) for number, answer in engine.running.items()}
        self.step(engine)
        after = {
            number: len(answer) for number, answer in (engine.running | engine.answers).items()
        }
        read = engine.passes[-1]
        self.steps.append(
            Served(
                len(read),
                sum(read.values()),
                sum(after[number] - before.get(number, 1) for number in read),
                sum(engine.surplus(number) for number in engine.running),
            )
        )
        return torch.stack([engine.chances[number] for number in read])


@dataclass
class Board:
    """Versions of an engine that serve the first prompts of a lab, with a machine's `seconds` for
    each step.

    `seconds` holds functions of the requests and tokens of a step: of "plain" decoding, of a step
    "in turn", device and host one after the other, and of one whose host works "meanwhile"
    (machine_results.engine_seconds).
    """

    lab: object
    drafter: object
    seconds: dict[str, Callable[[int, int], float]]
    machine: str
    rows: list[tuple] = field(default_factory=list)

    def __post_init__(self):
        self.prompts = [
            self.lab.encode(text) for texts in self.lab.prompts.values() for text in texts[:PROMPTS]
        ]

    def sps(self, tokens: int) -> float:
        """Return the steps per second of steps over this number of tokens, with full slots."""
        return 1 / self.seconds["in turn"](SLOTS, tokens)

    def device(self, step, sps=None) -> Device:
        """Return an engine with these prompts waiting that runs `step`; `sps` lets it schedule."""
        engine = SmallEngine(
            self.lab.target, self.drafter, SLOTS, LONGEST, stop=self.lab.stop_token_ids
        )
        engine.waiting = [(number, ids[0].tolist()) for number, ids in enumerate(self.prompts)]
        engine.sps = sps or engine.sps
        return Device(engine, step)

    def serve(self, name: str, step, sps=None) -> None:
        """Serve all prompts with a `step`, and add a row."""
        device = self.device(step, sps)
        for _ in range(MOST_STEPS):
            device.finish()
        self._add(name, device, "in turn")

    def pipeline(self, name: str, step, loop, algorithm_1) -> None:
        """Serve all prompts with a `step` in a `loop` like lesson 13's `pipelined`, whose host
        searches budgets; add a row."""
        device = self.device(step)
        loop(device, lambda survivals: sum(algorithm_1(survivals, self.sps)), MOST_STEPS)
        self._add(name, device, "meanwhile")

    def _add(self, name: str, device: Device, way: str) -> None:
        answers = device.engine.answers
        if not self.rows:  # each of plain decoding's steps gives each text a token
            steps = plain_steps(map(len, answers.values()))
            self.rows.append(("plain decoding", steps, "plain", len(self.prompts)))
        same = sum(self.is_greedy(ids, answers.get(n)) for n, ids in enumerate(self.prompts))
        self.rows.append((name, device.steps, way, same))

    @torch.inference_mode()
    def is_greedy(self, ids: torch.Tensor, answer: list[int] | None) -> bool:
        """Return whether plain greedy decoding gives an answer: each token is the target's choice
        after those before it, ties in rounding aside, and the last one is the first to end it."""
        if not answer:
            return False
        stop, target = self.lab.stop_token_ids, self.lab.target
        ends = len(answer) == LONGEST or answer[-1] in stop
        first, cache = target.prefill(ids)
        others = target.verify(torch.tensor([answer], device=ids.device), cache)
        logits = torch.cat([first.logits[:, -1:], others.logits[:, :-1]], 1)[0]
        whole = ends and not set(answer[:-1]) & set(stop)
        return whole and same_or_tied(target, ids, answer, logits.argmax(-1).tolist())

    def rates(self) -> dict[str, float]:
        """Return tokens a second of each version."""
        return {
            name: sum(step.committed for step in steps)
            / sum(self.seconds[way](step.requests, step.tokens) for step in steps)
            for name, steps, way, _ in self.rows
        }

    def texts(self) -> dict[str, int]:
        """Return how many texts of each version are plain decoding's, ties in rounding aside."""
        return {name: same for name, _, _, same in self.rows}

    def left(self) -> dict[str, float]:
        """Return the mean number of cached tokens of a request that belong to no text, by version."""
        return {
            name: sum(step.left for step in steps) / sum(step.requests for step in steps)
            for name, steps, *_ in self.rows
        }

    def show(self) -> None:
        """Print a line for each version, with the cached tokens that belong to no text if a version has any."""
        rates, left = self.rates(), self.left()
        over = any(left.values())
        print(
            f"{self.machine:44}{'tokens/s':>9}{'drafts':>8}{'a round':>9}{'left' if over else '':>6}   texts equal"
        )
        for name, steps, _, same in self.rows:
            requests = sum(step.requests for step in steps)
            drafts = sum(step.tokens for step in steps) / requests - 1
            committed = sum(step.committed for step in steps) / requests
            print(
                f"{name:44}{rates[name]:9.0f}{drafts:8.2f}{committed:9.2f}{f'{left[name]:.1f}' if over else '':>6}   {same} of {len(self.prompts)}"
            )


def plain_steps(lengths) -> list[Served]:
    """Return the steps of plain decoding in full slots for answers of these lengths; a prompt's
    pass gives the first token."""
    waiting, running, steps = [length - 1 for length in lengths], [], []
    while waiting or running:
        while waiting and len(running) < SLOTS:
            running.append(waiting.pop(0))
        running = [left for left in running if left]
        if running:
            steps.append(Served(len(running), len(running), len(running), 0))
        running = [left - 1 for left in running]
    return steps
