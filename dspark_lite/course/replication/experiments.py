"""Experiments on why a claim does not hold here, a table: what was varied, and what came out under each condition."""

from dataclasses import dataclass

import numpy as np

from ..estimates import Estimate, Quantity, mean_of
from ..formats import FORMS, interval
from ..measure.round_latency import LATENCY_CONTEXTS
from ..measure.studies import DEPTHS, HEADS, LENGTHS, LOSSES, SEEDS
from ..names import DOMAINS, DRAFTER_LABELS
from . import experiment_results, machine_results, serving_results
from .experiment_results import (
    TRAININGS,
    Acceptance,
    Draft,
    Length,
    drafts_of,
    gain,
    longer_round,
)
from .quantities import FIRST, LAST, Computed, fall, length_gain

MANY = 4096  # requests under way, to which the costs of a step are extended
HEAD_AND_LOSSES = {  # what DSpark has and DFlash has not, each exchanged alone: the runs with it, and those without
    "the head, both with cross-entropy alone": (LOSSES["dspark"], SEEDS["dflash"]),
    "the head, both with DSpark's losses": (SEEDS["dspark"], LOSSES["dflash"]),
    "DSpark's losses over cross-entropy, without a head": (LOSSES["dflash"], SEEDS["dflash"]),
    "DSpark's losses over cross-entropy, with the head": (SEEDS["dspark"], LOSSES["dspark"]),
}


@dataclass(frozen=True)
class Experiment:
    """What was varied, and what came out under each condition: `form` gives quantities with their formats."""

    varied: str
    outcomes: dict[str, tuple[tuple[Quantity, str], ...]]

    def words(self) -> str:
        """Return the experiment as a sentence. Raise DSparkLiteError where a measurement is missing."""
        shown = (
            f"{condition} {', '.join(_shown(*outcome) for outcome in outcomes)}"
            for condition, outcomes in self.outcomes.items()
        )
        quantities = [quantity for outcomes in self.outcomes.values() for quantity, _ in outcomes]
        compared = drafts_of(*quantities)
        single = [draft.runs[0] for draft in compared if len(draft.runs) == 1]
        of_one = f" (one training: {', '.join(single)})" if len(compared) > 1 and single else ""
        return f"{self.varied}{of_one}: {'; '.join(shown)}"


def form(spec: str, *quantities: Quantity) -> tuple[tuple[Quantity, str], ...]:
    """Return quantities with their format: a unit of FORMS, which shows the interval, or a format of Python."""
    return tuple((quantity, spec) for quantity in quantities)


def _shown(quantity: Quantity, spec: str) -> str:
    if spec in FORMS:
        return interval(quantity.estimate(), spec)
    return format(quantity.value(), spec)


def percent(found: Estimate) -> str:
    """Return an estimate with its interval, in percent."""
    return interval(found, "percent")


def first_draft(run: str, domain: str) -> Quantity:
    """Return the share of a run's first drafts that are accepted in a domain."""
    return Acceptance(over_seeds(run), domain, FIRST)


def first_drafts(run: str) -> Quantity:
    """Return the share of a run's first drafts that are accepted, in the mean over the domains."""
    return mean_of(first_draft(run, domain) for domain in DOMAINS)


def over_seeds(run: str) -> Draft:
    """Return a run with the other seeds of its training, where there are some."""
    return Draft(next((runs for runs in SEEDS.values() if run in runs), (run,)))


def head_and_losses() -> dict[str, dict[str, Estimate]]:
    """Return the gains in accepted length of DSpark's head, and of its losses, over all seeds, by domain and in the mean."""
    return {
        title: experiment_results.gains_over_seeds(*pair) for title, pair in HEAD_AND_LOSSES.items()
    }


def additive_step() -> np.ndarray:
    """Return the seconds of DSpark's step on this CPU, of each request and of each verified token in it."""
    step, _ = machine_results.cpu_fit("dspark")
    return np.array([step.fixed, step.per_request, step.per_token])


def committed_at_most_load() -> tuple[float, float]:
    """Return the tokens that one draft and seven drafts commit per request and step, at the heaviest measured load."""
    heavy = max(
        row["concurrency"]
        for row in serving_results.rows("policies", drafter="dspark", policy="fixed 7")
    )
    one_draft, seven_drafts = (
        serving_results.value(
            "accepted_length",
            serving_results.row(
                "policies", drafter="dspark", policy=f"fixed {count}", concurrency=heavy
            ),
        )
        for count in (1, 7)
    )
    return one_draft, seven_drafts


def seven_over_one() -> float:
    """Return the throughput of seven drafts over that of one with MANY requests under way, in the fit of the measured costs."""
    step, request, token = additive_step()
    one_draft, seven_drafts = (
        committed / (step / MANY + request + verified * token)
        for committed, verified in zip(committed_at_most_load(), (2, 8))
    )
    return seven_drafts / one_draft


def costlier_token() -> float:
    """Return how many times as costly a verified token would have to be for one draft to give as much throughput as seven."""
    one_draft, seven_drafts = committed_at_most_load()
    _, request, token = additive_step()
    return request * (seven_drafts - one_draft) / (token * (8 * one_draft - 2 * seven_drafts))


EAGLE3 = TRAININGS["eagle3"]
DEPTH = Experiment(
    "Depth in layers, first drafts accepted in the mean over the domains",
    {
        **{f"{layers} ({run})": form(".2f", first_drafts(run)) for layers, run in DEPTHS.items()},
        "Eagle3's 1": form(".2f", first_drafts(EAGLE3.runs[0])),
    },
)
MEMORY = Experiment(
    "The head's memory, mean gain over Eagle3",
    {
        DRAFTER_LABELS[head]: form("percent", gain(over_seeds(HEADS[head]), EAGLE3, "all"))
        for head in ("dspark", "dspark_rnn")
    },
)
HEAD_OR_LOSSES = Experiment(
    "Head and losses exchanged one at a time, mean gain",
    {
        condition: form("percent", gain(Draft(with_it), Draft(without), "all"))
        for condition, (with_it, without) in HEAD_AND_LOSSES.items()
    },
)
FALL_BY_HEAD = Experiment(
    f"The head, fall of conditional acceptance on {', '.join(DOMAINS)}",
    {
        f"{DRAFTER_LABELS[head]} ({run})": form(
            "+.2f", *(fall(over_seeds(run), (domain,)) for domain in DOMAINS)
        )
        for head, run in HEADS.items()
    },
)
RNN_OVER_MARKOV = Experiment(
    "The draft length, the RNN head's mean gain over the Markov head",
    {
        f"{length}": form("percent", length_gain("all", length, "dspark_rnn", "dspark"))
        for length in LENGTHS
    },
)
FIRST_DRAFT_BY_HEAD = Experiment(
    "The head, first drafts accepted on chat",
    {
        run: form(".3f", first_draft(run, "chat"))
        for run in (TRAININGS["dflash"].runs[0], *HEADS.values())
    },
)
RISE_BY_DOMAIN = Experiment(
    "The domain, where Eagle3's conditional acceptance begins and how far it rises",
    {
        domain: form(".3f", Acceptance(EAGLE3, domain, FIRST))
        + form("share", Acceptance(EAGLE3, domain, LAST) - Acceptance(EAGLE3, domain, FIRST))
        for domain in DOMAINS
    },
)
LENGTHS_BY_DRAFTER = Experiment(
    f"The drafter, tokens per round on {', '.join(DOMAINS)}",
    {
        DRAFTER_LABELS[name]: form(".2f", *(Length(draft, domain) for domain in DOMAINS))
        for name, draft in TRAININGS.items()
    },
)
RIVAL_BY_DOMAIN = Experiment(
    "The domain, the small LM's first draft and DSpark's gain over it",
    {
        domain: form(".3f", Acceptance(TRAININGS["small_lm"], domain, FIRST))
        + form("+.0%", gain(TRAININGS["dspark"], TRAININGS["small_lm"], domain))
        for domain in DOMAINS
    },
)
OVERHEAD_BY_CONTEXT = Experiment(
    "The context's tokens, how much longer a round is at draft length 4",
    {
        str(context): form("percent", longer_round("dspark", 4, context))
        for context in LATENCY_CONTEXTS
    },
)
ONE_AGAINST_SEVEN = Experiment(
    "The load, in a fit of the measured costs, throughput of 7 drafts over that of 1",
    {
        f"with {MANY:,} requests under way": form(".2f", Computed(seven_over_one)),
        "no gain once verifying a token costs more than here by a factor of": form(
            ".1f", Computed(costlier_token)
        ),
    },
)
