"""Measurements of the serving engine: the times of its steps, and the policies at each load.

A load is a closed loop at fixed concurrency: each request that ends is replaced at once.
Configurations of one load take turns of a few steps each, so that a busy moment of the machine
meets all of them; those of one drafter share an engine and its requests. What is kept are totals of
each turn.
"""

import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice

import numpy as np
import torch
from tqdm import tqdm

from ...decoding.proposal import Memoryless, Policy
from ...scheduling.policies import (
    LaggedTopK,
    algorithm1,
    fixed,
    survival,
    threshold,
    top_k,
)
from ...serving.engine import Engine
from ...serving.requests import STEP_PARTS, Request, StepReport
from .lab import Lab
from .step_costs import StepCosts

CONCURRENCY = (1, 2, 4, 8, 16, 32, 64)
TEMPERATURE = 1.0  # as in the paper's evaluation
PROMPT_ROOM = 224  # positions of a slot beside the answer: prompt and block
SERVED_THRESHOLDS, SCHEDULED = (0.5, 0.7, 0.9), ("algorithm1", "lagged")
# Counted in a step. `committed` are the tokens of rounds: the first token of an answer comes from
# its prefill, and is not among them.
STEP_COUNTS = (
    "requests",
    "verified",
    "padding",
    "proposed",
    "accepted",
    "committed",
    "admitted",
    "prefilled",
)
WARM = 2  # steps of a turn that are not counted: a lagged policy looks two steps back


def budget(tokens_per_request: float) -> Policy:
    """Return a policy that verifies `tokens_per_request` tokens on average, anchors included, where
    survival is highest."""
    return Memoryless(
        lambda proposal: top_k(
            survival(proposal.confidence), round((tokens_per_request - 1) * len(proposal.tokens))
        )
    )


def requests(
    prompts: dict[str, list[torch.Tensor]],
    generator: torch.Generator,
    *,
    new_tokens: tuple[int, int],
) -> Iterator[Request]:
    """Yield an endless stream of requests for prompts [1, n] by domain: a random domain, a random
    prompt of it, a longest answer between two bounds, a seed of its own."""
    domains, weights = list(prompts), torch.ones(len(prompts))

    def integer(low, high):
        return int(torch.randint(low, high, (1,), generator=generator))

    while True:
        domain = domains[torch.multinomial(weights, 1, generator=generator).item()]
        ids = prompts[domain][integer(0, len(prompts[domain]))]
        yield Request(
            ids, integer(new_tokens[0], new_tokens[1] + 1), seed=integer(0, 2**31), domain=domain
        )


def closed_loop(
    engine: Engine, stream: Iterator[Request], concurrency: int
) -> Iterator[StepReport]:
    """Yield steps of an engine that always has `concurrency` requests under way: it replaces each
    that ends at once."""
    while True:
        for request in islice(stream, concurrency - len(engine.running) - len(engine.waiting)):
            engine.submit(request)
        yield engine.step()


class LoadedEngine:
    """An engine in a closed loop at fixed concurrency, burnt in until as many requests ended as
    run, twice over."""

    def __init__(self, lab: Lab, drafter, concurrency: int):
        self.engine = Engine(
            lab.target,
            drafter,
            slots=concurrency,
            capacity=lab.max_new_tokens + PROMPT_ROOM,
            temperature=TEMPERATURE,
        )
        prompts = {
            domain: [lab.encode(text) for text in texts] for domain, texts in lab.prompts.items()
        }
        stream = requests(
            prompts, torch.Generator().manual_seed(lab.seed), new_tokens=(lab.max_new_tokens,) * 2
        )
        self.steps = closed_loop(self.engine, stream, concurrency)
        ended = 0
        while ended < 2 * concurrency:
            ended += len(next(self.steps).answers)

    def turn(self, policy, steps: int) -> dict[str, float]:
        """Return the totals of `steps` steps under a policy."""
        self.engine.set_policy(policy)
        for _ in range(WARM):
            next(self.steps)
        return totals([next(self.steps) for _ in range(steps)])


def totals(steps: list[StepReport]) -> dict[str, float]:
    """Return sums over steps, by name: their number, those with a prefill, STEP_COUNTS, seconds by
    STEP_PARTS."""
    counted = {name: sum(getattr(step, name) for step in steps) for name in STEP_COUNTS}
    seconds = {
        f"{part}_seconds": round(sum(step.seconds[part] for step in steps), 6)
        for part in STEP_PARTS
    }
    return {
        "steps": len(steps),
        "prefills": sum(step.admitted > 0 for step in steps),
        **counted,
        **seconds,
    }


def policy_of(name: str, costs: StepCosts | None = None) -> Policy | None:
    """Return the policy of this name; `costs` of a whole step for those that schedule, which take a
    convex fit of them."""
    kind, _, number = name.partition(" ")
    return {
        "all": lambda: None,
        "fixed": lambda: fixed(int(number)),
        "threshold": lambda: threshold(float(number)),
        "algorithm1": lambda: algorithm1(costs.convex_fit()),
        "lagged": lambda: LaggedTopK(costs.convex_fit()),
        "budget": lambda: budget(float(number)),
    }[kind]()


def decoding_seconds(row: dict) -> np.ndarray:
    """Return seconds of each turn of a row spent on rounds, prompts left out."""
    return np.sum([row[f"{part}_seconds"] for part in STEP_PARTS if part != "prefill"], axis=0)


def step_costs(rows: list[dict], middle=np.median) -> StepCosts:
    """Return the costs of one drafter's steps, prompts left out, from its rows of "costs": the
    median turn of each, which a moment that the machine was busy does not move, or another
    `middle`."""
    seconds = {
        (row["concurrency"], round(sum(row["verified"]) / sum(row["requests"]))): middle(
            decoding_seconds(row) / np.array(row["steps"])
        )
        for row in rows
    }
    requests, tokens = (sorted(set(grid)) for grid in zip(*seconds))
    return StepCosts(requests, tokens, [[seconds[r, b] for b in tokens] for r in requests])


def take_turns(works: dict, turns: int, description: str) -> list[dict]:
    """Return a row for each of `works`, {(drafter, policy): turn}: its names, and the totals of its
    turns by what they count."""
    times = {name: [] for name in works}
    with tqdm(total=turns * len(works), desc=description, unit="turn", file=sys.stderr) as bar:
        for _ in range(turns):
            for name, work in works.items():
                times[name].append(work())
                bar.update(1)
    return [
        {
            **dict(zip(("drafter", "policy"), name)),
            **{field: [turn[field] for turn in of_turns] for field in of_turns[0]},
        }
        for name, of_turns in times.items()
    ]


def measure_load(
    lab: Lab, drafters: dict, concurrency: int, turns: int, steps: int
) -> dict[str, list[dict]]:
    """Return rows of one concurrency by part: "deciding", every verification budget of DSpark;
    "policies", which schedule with the costs of those; "costs", every budget of each drafter in
    turns with the policies, for the engine's model.

    `drafters` are "plain" (None), "dspark" and, where there is one, "mtp"; each configuration takes
    `turns` turns of `steps` counted steps.
    """
    stations = {name: LoadedEngine(lab, drafter, concurrency) for name, drafter in drafters.items()}

    def take(part: str, names: list[tuple], costs: StepCosts | None = None) -> list[dict]:
        works = {
            name: partial(stations[name[0]].turn, policy_of(name[1], costs), steps)
            for name in names
        }
        return [
            {"concurrency": concurrency, **row}
            for row in take_turns(works, turns, f"{part}, {concurrency} requests")
        ]

    lengths = range(1, drafters["dspark"].gamma + 1)
    budgets = [("dspark", f"budget {b}") for b in (1, *(length + 1 for length in lengths))]
    deciding = take("step costs", budgets)
    costs = step_costs(deciding)
    names = [
        *(f"fixed {length}" for length in lengths),
        *(f"threshold {least}" for least in SERVED_THRESHOLDS),
        *SCHEDULED,
    ]
    # name: draft length
    rivals = {
        name: 0 if drafter is None else drafter.gamma
        for name, drafter in drafters.items()
        if name != "dspark"
    }
    policies = [*((name, "all") for name in rivals), *(("dspark", name) for name in names)]
    priced = [
        (name, f"fixed {length}")
        for name, longest in rivals.items()
        for length in range(longest + 1)
    ]
    rows = take("policies", [*policies, *priced, *budgets], costs)
    return {"deciding": deciding, "policies": rows[: len(policies)], "costs": rows[len(policies) :]}
