"""What was varied to test why a claim does not hold here, a table: what it was, and what came out under each condition."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dspark_lite.course.estimates import Estimate
from dspark_lite.course.formats import interval
from dspark_lite.course.names import DOMAINS, DRAFTER_LABELS
from ..measure.studies import DEPTHS, HEADS, LATENCY, LENGTH_STUDY, LENGTHS, LOSSES, SEEDS, TABLE_1
from . import experiment_results, serving_results
from .experiment_results import gains
from .quantities import ahead, falls

MANY = 4096  # requests under way, to which the costs of a step are extended
HEAD_AND_LOSSES = {  # what DSpark has and DFlash has not, each exchanged alone: the runs with it, and those without
    "the head, both with cross-entropy alone": (LOSSES["dspark"], SEEDS["dflash"]),
    "the head, both with DSpark's losses": (SEEDS["dspark"], LOSSES["dflash"]),
    "DSpark's losses over cross-entropy, without a head": (LOSSES["dflash"], SEEDS["dflash"]),
    "DSpark's losses over cross-entropy, with the head": (SEEDS["dspark"], LOSSES["dspark"]),
}


def first_position(run: str) -> float:
    """The share of a run's first drafts that are accepted, in the mean over the domains."""
    return float(np.mean([first_draft(run, domain) for domain in DOMAINS]))


def first_draft(run: str, domain: str) -> float:
    """The share of a run's first drafts that are accepted in a domain."""
    return experiment_results.conditional_acceptance(run, domain)[0].value


def head_and_losses() -> dict[str, dict[str, Estimate]]:
    """By how much DSpark's head, and its losses, lengthen what is accepted, over all seeds, by domain and in the mean."""
    return {
        title: experiment_results.gains_over_seeds(*pair) for title, pair in HEAD_AND_LOSSES.items()
    }


def overheads_by_context() -> dict[int, float]:
    """How much longer DSpark's rounds are than DFlash's at draft length 16, by the tokens of the context: the target's pass grows
    with them, the head's loop does not."""
    measured = experiment_results.measured(LATENCY)
    contexts = sorted({row["context"] for row in measured["rows"]})
    ours, theirs = (
        np.median(experiment_results.round_times(measured, name, 16), 0)
        for name in ("dspark", "dflash")
    )
    return dict(zip(contexts, (ours / theirs - 1).tolist()))


def additive_step() -> np.ndarray:
    """Seconds of DSpark's step, of each request and of each verified token in it: least relative squares over the measured loads."""
    costs = serving_results.engine_costs("dspark")
    requests, tokens = np.meshgrid(costs.requests, costs.tokens_per_request, indexing="ij")
    measured = np.asarray(costs.step_seconds)
    terms = (
        np.stack([np.ones_like(measured), requests, requests * tokens], -1) / measured[..., None]
    )
    return np.linalg.lstsq(terms.reshape(-1, 3), np.ones(measured.size), rcond=None)[0]


def seven_over_one() -> tuple[float, float]:
    """(throughput of seven drafts over that of one with MANY requests under way; how many times as costly a verified token would have
    to be for one to give as much), in the fit of the measured costs."""
    heavy = max(
        row["concurrency"]
        for row in serving_results.rows("policies", drafter="dspark", policy="fixed 7")
    )
    one, seven = (
        serving_results.value(
            "accepted_length",
            serving_results.row(
                "policies", drafter="dspark", policy=f"fixed {count}", concurrency=heavy
            ),
        )
        for count in (1, 7)
    )
    step, request, token = additive_step()
    many = [
        committed / (step / MANY + request + verified * token)
        for committed, verified in ((one, 2), (seven, 8))
    ]
    return many[1] / many[0], request * (seven - one) / (token * (8 * one - 2 * seven))


@dataclass(frozen=True)
class Varied:
    """What was varied, with its recipe or command, and {condition: what came out, in words}."""

    what: str
    found: Callable[[], dict[str, str]]

    def __call__(self) -> str:
        return f"{self.what}: {'; '.join(f'{condition} {value}' for condition, value in self.found().items())}"


def several(*experiments: Varied) -> Callable[[], str]:
    """Several experiments on one claim, as sentences."""
    return lambda: ". ".join(experiment() for experiment in experiments)


def percent(found: Estimate) -> str:
    """An estimate with its interval, in percent."""
    return interval(found, "percent")


DEPTH = Varied(
    "Depth in layers, first drafts accepted in the mean over the domains",
    lambda: {
        **{f"{layers} ({run})": f"{first_position(run):.2f}" for layers, run in DEPTHS.items()},
        "Eagle3's 1": f"{first_position(TABLE_1['eagle3']):.2f}",
    },
)
MEMORY = Varied(
    "The head's memory, mean gain over Eagle3",
    lambda: {
        DRAFTER_LABELS[head]: percent(gains(HEADS[head], TABLE_1["eagle3"])["all"])
        for head in ("dspark", "dspark_rnn")
    },
)
HEAD_OR_LOSSES = Varied(
    "Head and losses exchanged one at a time, mean gain",
    lambda: {condition: percent(found["all"]) for condition, found in head_and_losses().items()},
)
FALL_BY_HEAD = Varied(
    f"The head, fall of conditional acceptance on {', '.join(DOMAINS)}",
    lambda: {
        f"{DRAFTER_LABELS[head]} ({run})": ", ".join(
            f"{falls((domain,), run).value:+.2f}" for domain in DOMAINS
        )
        for head, run in HEADS.items()
    },
)
RNN_OVER_MARKOV = Varied(
    "The draft length, the RNN head's mean gain over the Markov head",
    lambda: {
        f"{length}": percent(
            gains(LENGTH_STUDY["dspark_rnn", length], LENGTH_STUDY["dspark", length])["all"]
        )
        for length in LENGTHS
    },
)
FIRST_DRAFT_BY_HEAD = Varied(
    "The head, first drafts accepted on chat",
    lambda: {
        run: f"{first_draft(run, 'chat'):.3f}" for run in (TABLE_1["dflash"], *HEADS.values())
    },
)
RISE_BY_DOMAIN = Varied(
    "The domain, where Eagle3's conditional acceptance begins and how far it rises",
    lambda: {
        domain: f"{first_draft(TABLE_1['eagle3'], domain):.3f}, {interval(ahead(domain, ('eagle3', 7), ('eagle3', 1)), 'share')}"
        for domain in DOMAINS
    },
)
LENGTHS_BY_DRAFTER = Varied(
    f"The drafter, tokens per round on {', '.join(DOMAINS)}",
    lambda: {
        DRAFTER_LABELS[name]: ", ".join(
            f"{experiment_results.accepted_lengths(run)[domain].value:.2f}" for domain in DOMAINS
        )
        for name, run in TABLE_1.items()
    },
)
RIVAL_BY_DOMAIN = Varied(
    "The domain, the small LM's first draft and DSpark's gain over it",
    lambda: {
        domain: f"{first_draft(TABLE_1['small_lm'], domain):.3f}, {gains(TABLE_1['dspark'], TABLE_1['small_lm'])[domain].value:+.0%}"
        for domain in DOMAINS
    },
)
OVERHEAD_BY_CONTEXT = Varied(
    "The context's tokens, how much longer a round is at draft length 16",
    lambda: {str(context): f"{found:+.1%}" for context, found in overheads_by_context().items()},
)
ONE_AGAINST_SEVEN = Varied(
    "The load, in a fit of the measured costs, throughput of 7 drafts over that of 1",
    lambda: {
        f"with {MANY:,} requests under way": f"{seven_over_one()[0]:.2f}",
        "no gain once verifying a token costs more than here by a factor of": f"{seven_over_one()[1]:.1f}",
    },
)
