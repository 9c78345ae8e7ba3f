"""Symptoms of a decoder: the chart of a clinic's patient, and the distance of each symptom from a
healthy one's.

A chart is measured on the first rounds of answers, so that a slow decoder costs no more time than a
fast one. A symptom is a ratio of sums over rounds; its standard error comes from the answers,
because the rounds of one answer resemble each other.
"""

from typing import NamedTuple

import numpy as np
import torch
from transformers import DynamicCache

from ...decoding.lockstep import begin_together, play_round
from ...decoding.proposal import start_policy
from ...decoding.rounds import generate
from ...decoding.sampling import probabilities, residual
from ...losslessness.enumeration import LOSSY_DISTANCE
from ...scheduling.cost_table import CostTable
from ...scheduling.policies import schedule, survival
from .chi_square import MIN_EXPECTED, pooled_cells

CHART_ANSWERS, CHART_ROUNDS = 4, 6  # of a chart: answers of each domain, and rounds of each answer
EARLY, LATE = 2, 4  # rounds up to the first and from the second are compared
CLEAR = 3.0  # standard errors from healthy at which a symptom counts
LEAST_COUNT = 10  # rounds below which a ratio says nothing


class Symptom(NamedTuple):
    """A symptom's value and its standard error; nan where hardly a round says anything about it."""

    value: float
    error: float


class Chart(NamedTuple):
    """Rounds of a decoder: `rounds` [N] holds a column for each name of NOTED, `drafts` is the
    length of a whole block."""

    rounds: np.ndarray
    drafts: int
    # What the cost table takes for its largest pass, a whole block's, in passes of one token
    price: float
    distance: float = 0.0  # of the text's distribution from the target's, by enumeration


NOTED = (
    "domain",
    "answer",
    "round",
    "accepted",
    "committed",
    "whole",
    "promised",
    "odds",
    "scheduled",
    "left_before",
    "left",
    "read",
)


def price_table(milliseconds: dict[int, list[float]]) -> CostTable:
    """Return the cost table of a line through the median times of passes, {tokens: milliseconds of
    each repeat}.

    The time of a pass without a token is 1, and a token costs at least a hundredth of it, whatever
    the noise says.
    """
    sizes = np.array(list(milliseconds))
    slope, start = np.polyfit(sizes, [np.median(times) for times in milliseconds.values()], 1)
    return CostTable(sizes, 1 / (1 + max(slope / start, 0.01) * sizes))


@torch.inference_mode()
def take_chart(
    service, prompts: dict[str, list[str]], *, seed: int = 0, distance: float = 0.0
) -> Chart:
    """Return the chart of a service (clinic/patients.py) on the first CHART_ANSWERS prompts of
    each domain, at temperature 1."""
    rows, read = [], []
    hook = service.drafter.fc.register_forward_hook(
        lambda module, inputs, output: read.append(output.shape[1])
    )
    try:
        for domain, texts in enumerate(prompts.values()):
            for index, text in enumerate(texts[:CHART_ANSWERS]):
                generator = torch.Generator(service.target.device).manual_seed(seed + index)
                rows += [
                    (domain, CHART_ANSWERS * domain + index, *row)
                    for row in _rounds(service, text, generator, read)
                ]
    finally:
        hook.remove()
    rounds = np.array(
        [tuple(map(float, row)) for row in rows], dtype=[(name, float) for name in NOTED]
    )
    costs = service.costs
    return Chart(
        rounds,
        service.drafter.gamma,
        costs.sps(1, 1) / costs.sps(1, costs.max_batch_tokens),
        distance,
    )


def _rounds(service, text: str, generator, read: list):
    """Yield a row of NOTED, from the round's number on, for each of the first CHART_ROUNDS rounds
    of an answer."""
    seen = []

    def whole_blocks(proposal):
        seen.append(proposal)
        return torch.tensor([proposal.tokens.shape[1]])

    ids, policy, gamma = service.encode(text), start_policy(whole_blocks), service.drafter.gamma
    (request,) = begin_together(
        service.target,
        service.drafter,
        [ids],
        max_new_tokens=CHART_ROUNDS * (gamma + 1) + 1,
        temperature=1.0,
        generator=generator,
        rule=service.rule,
    )
    left = request.state.length - ids.shape[1]
    for number in range(1, CHART_ROUNDS + 1):
        if request.finished:
            return
        read.clear()
        play_round([request], policy)
        played, proposal, before = request.answer.rounds[-1], seen[-1], left
        left = request.state.length - ids.shape[1] - len(request.answer.token_ids) + 1
        alive = survival(proposal.confidence)
        odds = proposal.probs.gather(-1, proposal.tokens[..., None]).mean()
        # nothing cut short
        whole = (
            proposal.tokens.shape[1] == gamma
            and played.committed > played.accepted
            and not request.finished
        )
        yield (
            number,
            played.accepted,
            played.committed,
            whole,
            alive.sum(),
            odds,
            schedule(alive, service.costs).sum(),
            before,
            left,
            sum(read),
        )


def ratio(above: np.ndarray, below: np.ndarray, answers: np.ndarray) -> Symptom:
    """Return the sum of one column [N] over that of another, with its standard error over the
    answers [N] that the rounds are from."""
    place = np.unique(answers, return_inverse=True)[1]
    above, below = np.bincount(place, above), np.bincount(place, below)
    if below.sum() < LEAST_COUNT:
        return Symptom(float("nan"), float("nan"))
    value, many = above.sum() / below.sum(), len(above)
    return Symptom(
        value,
        float(
            np.sqrt(((above - value * below) ** 2).sum() * many / max(many - 1, 1)) / below.sum()
        ),
    )


def symptoms(chart: Chart, domains=("math", "code", "chat")) -> dict[str, Symptom]:
    """Return all symptoms of a chart by name, in the order of a round: is the text exact, is anything left, are drafts good, is the
    decision right, how sure is the draft."""
    all_rounds, gamma = chart.rounds, chart.drafts
    whole = all_rounds[all_rounds["whole"] == 1]

    def of(rounds, above, below=None):
        return ratio(
            np.asarray(above, float),
            np.ones(len(rounds)) if below is None else np.asarray(below, float),
            rounds["answer"],
        )

    def tau(chosen):
        rounds = all_rounds[chosen]
        return of(rounds, rounds["committed"])

    accepted, number = whole["accepted"], all_rounds["round"]
    # drafts 2 to gamma; those that were judged
    later = np.maximum(accepted - 1, 0)
    reached = np.clip(np.minimum(accepted, gamma - 1), 0, None)
    last = whole[accepted >= gamma - 1]
    return {
        "distance": Symptom(chart.distance if chart.distance > LOSSY_DISTANCE else 0.0, 0.0),
        "left at start": of(all_rounds[number == 1], all_rounds["left_before"][number == 1]),
        "left by a round": of(whole, whole["left"] - whole["left_before"]),
        "read per token": of(whole, whole["read"], whole["committed"]),
        "drafts": Symptom(gamma, 0.0),
        "first draft": of(whole, accepted >= 1),
        "later drafts": of(whole, later, reached),
        "last draft": of(last, last["accepted"] >= gamma),
        **{f"τ {name}": tau(all_rounds["domain"] == place) for place, name in enumerate(domains)},
        "τ rounds 1, 2": tau(number <= EARLY),
        f"τ rounds {LATE} on": tau(number >= LATE),
        "promised − kept": of(whole, whole["promised"] - accepted),
        "scheduled": of(whole, whole["scheduled"]),
        "block's price": Symptom(chart.price, 0.0),
        "own odds": of(whole, whole["odds"]),
    }


def standard_errors(sick: Symptom, healthy: Symptom) -> float:
    """Return how many standard errors a symptom is from the healthy one; infinite for exact ones
    that differ, 0 for unknown ones."""
    difference, error = sick.value - healthy.value, np.hypot(sick.error, healthy.error)
    if np.isnan(difference) or difference == 0:
        return 0.0
    return float(difference / error) if error else float(np.copysign(np.inf, difference))


@torch.inference_mode()
def reactions(service, ids: torch.Tensor) -> dict[str, bool]:
    """Return whether the block after ids [1, n] reacts: its hidden states to the anchor, the last
    of ids, and to the newest features, and the first slot's logits, through the head alone, to the
    token before it."""
    drafter, anchor = service.drafter, ids[:, -1]
    features = service.target.prefill(ids[:, :-1], drafter.taps)[0].features
    blanked = torch.cat([features[:, :-1], 0 * features[:, -1:]], 1)
    another = (anchor + 1) % service.target.vocab_size

    def block(features, anchor):
        return drafter.block_hidden(drafter.begin(ids[:, :-1], features), anchor)

    usual = block(features, anchor)
    first, other_first = (
        drafter.draw_block(usual, before, 0.0, None)[1][:, 0] for before in (anchor, another)
    )
    return {
        name: not torch.allclose(before, after, atol=1e-4)
        for name, before, after in (
            ("anchor", usual, block(features, another)),
            ("newest features", usual, block(blanked, anchor)),
            ("head", first, other_first),
        )
    }


@torch.inference_mode()
def place_of_drafts(
    service, ids: torch.Tensor, answer: list[int], places: int = 12
) -> tuple[float, float]:
    """Return two shares of the greedy drafts after each of the first `places` tokens of an answer
    to ids [1, n]: those that are the token of their own place, and those that are the one after it.
    `answer` is the target's own, with `places` + gamma + 1 tokens at least."""
    gamma, hits = service.drafter.gamma, []
    text = torch.cat([ids, torch.tensor([answer], device=ids.device)], 1)
    features = service.target.prefill(text, service.drafter.taps)[
        0
    ].features  # causal: a prefix of the text has a prefix of them
    for end in range(ids.shape[1], ids.shape[1] + places):
        state = service.drafter.begin(text[:, :end], features[:, :end])
        drafts = service.drafter.propose(
            state, text[:, end], temperature=0.0, generator=None
        ).tokens[0]
        hits.append(
            [
                (drafts == text[0, end + 1 + shift : end + 1 + shift + gamma]).float().mean()
                for shift in (0, 1)
            ]
        )
    return tuple(torch.tensor(hits).mean(0).tolist())


@torch.inference_mode()
def most_telling_place(
    target, drafter, prompts: list[torch.Tensor], change, draws: int, tokens: int = 16
):
    """Return the place in the target's answers to prompts [1, n] where a chi-square test finds a
    drafter most easily that draws by `change(q)` and claims q: (ids [1, n] up to the anchor, the
    target's distribution [V] after it, the one [V] that the mistake makes of it).

    The measure is how much the mistake raises chi-square, with cells pooled as in
    measure/chi_square.py.
    """
    best = (-1.0,)
    for ids in prompts:
        answer = generate(target, None, ids, max_new_tokens=tokens, stop_token_ids=()).token_ids
        text = torch.cat([ids, torch.tensor([answer], device=ids.device)], 1)
        # all places in one pass
        step = target.verify(text, DynamicCache(config=target.config), drafter.taps)
        for end in range(ids.shape[1], text.shape[1]):
            before, p = text[:, :end], probabilities(step.logits[0, end], 1.0)
            state = drafter.begin(before, step.features[:, :end])
            q = drafter.propose(
                state, text[:, end], temperature=1.0, generator=None, gamma=1
            ).probs[0, 0]
            drawn = change(q)
            accepted = drawn / drawn.sum() * (p / q).clamp(max=1)
            wrong = accepted + (1 - accepted.sum()) * residual(p, q)
            if p.max() * draws < draws - MIN_EXPECTED:  # else only one cell expects enough
                observed, expected = pooled_cells(draws * wrong, p)
                best = max(
                    best,
                    (float(((observed - expected) ** 2 / expected).sum()), before, p, wrong),
                    key=lambda place: place[0],
                )
    return best[1:]
