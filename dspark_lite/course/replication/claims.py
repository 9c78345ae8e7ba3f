"""What the paper claims in numbers, and which of our measurements to hold against it: a row for each claim.

A row names its section and who states it: the paper, or this course where the inequality is ours. The paper's numbers are
named by their text_claims in paper_numbers.json or read off a figure; ours are quantities of `quantities`. The sense says
what must hold, and `margins` are what must be above zero for it. `experiments` says what was run to test the reason of a
failure, `settings` holds the numbers that are choices, `ledger` judges and prints.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from dspark_lite.course import paper
from dspark_lite.course.estimates import Estimate
from dspark_lite.course.names import DOMAINS
from ..measure.studies import DEPTHS, TABLE_1
from . import experiments, experiment_results, quantities, confidence_results, serving_results
from .experiment_results import PLACES
from .quantities import (
    FALL,
    SERVED,
    ahead,
    at,
    falls,
    length_gain,
    paper_ahead,
    paper_at,
    paper_gain,
    recipe_gain,
)

PAPER, COURSE = "the paper", "this course"


@dataclass(frozen=True)
class Claim:
    """A row of the ledger.

    `unit` is one of formats.FORMS; but for tokens, values are fractions. `text` has the paper's numbers as {label, or a
    tuple of labels: name of the text claim}, `figure` those read off its figures, by label. `ours` gives our estimates by
    label, `margins` what must be above zero, `ours` where it is None; `paper_margins` has what the paper's own figures give for
    them, where they give it. Without `ours` a claim cannot be tested here, and
    `needs` says what it would take. `covers` are names of text claims without a number of their own, `discrepancies`
    words of the paper's contradictions with itself that concern the claim.
    """

    section: str
    says: str
    unit: str
    sense: str
    stated_by: str = PAPER
    text: dict[str | tuple[str, ...], str] | None = None
    figure: Callable[[], dict[str, float]] = dict
    ours: Callable[[], dict[str, Estimate]] | None = None
    margins: Callable[[], dict[str, Estimate]] | None = None
    paper_margins: Callable[[], dict[str, float]] = dict
    experiment: Callable[[], str] | None = None
    needs: str = ""
    covers: tuple[str, ...] = ()
    discrepancies: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the text claims that this row answers."""
        return (*(self.text or {}).values(), *self.covers)

    def paper(self) -> dict[str, float]:
        """The paper's numbers by label, those of its text before those of its figures."""
        return self.figure() | stated(self.text or {})


def each(template: str, quantity: Callable, *axes) -> Callable[[], dict]:
    """A function that gives {label: quantity(*values)} for every combination of values of the axes, the last varying fastest.

    An axis is {name: value}, or values that are their own names; the template makes labels of the names.
    """
    named = [axis if isinstance(axis, dict) else {value: value for value in axis} for axis in axes]
    return lambda: {
        template.format(*(name for name, _ in chosen)): quantity(*(value for _, value in chosen))
        for chosen in product(*(axis.items() for axis in named))
    }


def joined(*tables: Callable[[], dict]) -> Callable[[], dict]:
    """A function that gives the rows of several tables in one."""
    return lambda: {label: found for table in tables for label, found in table().items()}


def labelled(*drafters: str) -> dict[str, str]:
    """An axis of drafters under the paper's names for them."""
    return {paper.LABELS[name]: name for name in drafters}


def stated(text: dict[str | tuple[str, ...], str]) -> dict[str, float]:
    """The numbers of text claims by label, from {label, or a tuple of labels: name of the text claim}."""
    found = {}
    for labels, name in text.items():
        found |= dict(
            zip(
                (labels,) if isinstance(labels, str) else labels,
                paper.claim_values(name),
                strict=True,
            )
        )
    return found


# Text claims, and axes that several rows share.
MACRO = "macro-average accepted length gain of DSpark over {}, {}"
AT = "conditional acceptance, {} {} {}"
LENGTH = "accepted length gain of DSpark over DFlash, draft length {} (gamma {}), {}"
FIGURE_7 = "{} gain at {}{} token/s/user, DeepSeek-V4-{}"
V4 = (
    ("moderate:", 80, "Flash"),
    ("strict:", 120, "Flash"),
    ("Pro, moderate:", 35, "Pro"),
    ("Pro, strict:", 50, "Pro"),
)
OVERHEAD = {
    (
        "length 4:",
        "length 16:",
    ): "round latency overhead of DSpark over DFlash, draft length 4 and 16"
}
APPENDIX = {
    quantities.APPENDIX_THROUGHPUT: "appendix example throughput for 0, 1, 2 tokens in case 1",
    quantities.APPENDIX_OUTPUT: "appendix example output distribution against target",
}
DSPARK, DFLASH, RNN = [TABLE_1["dspark"]], [TABLE_1["dflash"]], (["dspark_rnn"], ["dspark"])
EACH_AND_ALL = {**{domain: (domain,) for domain in DOMAINS}, "mean": DOMAINS}
DEPTH_PAIRS = {"1 to 2 layers:": (2, 1), "2 to full:": (quantities.FULL_DEPTH, 2)}  # layers here
ENDS = {"from": min, "to": max}
STATIC_LENGTHS = (3, 5, 7)  # drafts of a block that is always verified whole
LOADS = {
    "moderate": 16,
    "strict": 4,
}  # requests under way with MTP-1: it serves each user at a moderate, a high speed
ROUNDS_LONGER = each("length {}:", quantities.round_overhead, (4, 16))
DEPTH_STEPS = each("{}", quantities.depth_step, DEPTH_PAIRS)
GAINS_BY_LENGTH = each("{}, {}:", length_gain, DOMAINS, (8, 16))

CLAIMS = (
    Claim(
        "4.2",
        "DSpark accepts longer than Eagle3 in the mean and in every domain (Qwen3-4B)",
        "percent",
        "each > 0",
        text={"mean:": MACRO.format("Eagle3", "Qwen3-4B")},
        figure=each("{}:", quantities.paper_table_1_gain, DOMAINS, ["eagle3"]),
        ours=each("{}:", quantities.lead, PLACES, ["eagle3"]),
        experiment=experiments.several(experiments.MEMORY, experiments.DEPTH),
    ),
    Claim(
        "4.2",
        "DSpark accepts longer than DFlash in the mean and in every domain (Qwen3-4B)",
        "percent",
        "each > 0",
        text={"mean:": MACRO.format("DFlash", "Qwen3-4B")},
        figure=each("{}:", quantities.paper_table_1_gain, DOMAINS, ["dflash"]),
        ours=each("{}:", quantities.lead, PLACES, ["dflash"]),
        experiment=experiments.HEAD_OR_LOSSES,
    ),
    Claim(
        "4.2",
        "DSpark accepts longer than Eagle3 and DFlash on larger targets, too",
        "percent",
        "each > 0",
        text={
            f"{target} over {rival}:": MACRO.format(rival, target)
            for target in ("Qwen3-8B", "Qwen3-14B")
            for rival in ("Eagle3", "DFlash")
        },
        needs="a large GPU, and these targets with a drafter trained for each: `python -m dspark_lite evaluate --target`",
    ),
    Claim(
        "4.2",
        "DSpark accepts longer than a small language model that drafts as many tokens",
        "percent",
        "each > 0",
        COURSE,
        ours=each("{}:", recipe_gain, PLACES, DSPARK, [TABLE_1["small_lm"]]),
        experiment=experiments.RIVAL_BY_DOMAIN,
    ),
    Claim(
        "4.2",
        "DSpark's accepted length is longest on math, shorter on code, shortest on chat",
        "tokens",
        "math > code > chat",
        text={
            f"{domain}:": f"mean accepted length of DSpark, Qwen3-4B, {domain}"
            for domain in DOMAINS
        },
        ours=each(
            "{}:",
            lambda domain: experiment_results.accepted_lengths(TABLE_1["dspark"])[domain],
            DOMAINS,
        ),
        margins=joined(
            each("{} over {}", quantities.domain_gap, ["math"], ["code"]),
            each("{} over {}", quantities.domain_gap, ["code"], ["chat"]),
        ),
        paper_margins=joined(
            each("{} over {}", quantities.paper_domain_gap, ["math"], ["code"]),
            each("{} over {}", quantities.paper_domain_gap, ["code"], ["chat"]),
        ),
        experiment=experiments.LENGTHS_BY_DRAFTER,
    ),
    Claim(
        "4.3.1",
        "DFlash's first draft is accepted more often than Eagle3's",
        "share",
        "DFlash > Eagle3",
        text={
            f"{domain} {name}:": AT.format(name, domain, "position 1")
            for domain in ("math", "chat")
            for name in ("DFlash", "Eagle3")
        },
        ours=each("{} {}:", at, ("math", "chat"), labelled("dflash", "eagle3"), [1]),
        margins=each("{}", ahead, ("math", "chat"), [("dflash", 1)], [("eagle3", 1)]),
        paper_margins=each("{}", paper_ahead, ("math", "chat"), [("dflash", 1)], [("eagle3", 1)]),
        experiment=experiments.DEPTH,
    ),
    Claim(
        "4.3.1",
        "Eagle3's conditional acceptance rises along the block on chat",
        "share",
        "7 > 1",
        text={
            "chat at 1:": AT.format("Eagle3", "chat", "position 1"),
            "chat at 7:": AT.format("Eagle3", "chat", "end of rise"),
        },
        ours=each("{0} at {2}:", at, ["chat"], ["eagle3"], FALL),
        margins=each("", ahead, ["chat"], [("eagle3", 7)], [("eagle3", 1)]),
        paper_margins=each("", paper_ahead, ["chat"], [("eagle3", 7)], [("eagle3", 1)]),
        experiment=experiments.RISE_BY_DOMAIN,
        discrepancies=("0.74 for the end",),
    ),
    Claim(
        "4.3.1",
        "DFlash's conditional acceptance falls along the block",
        "share",
        "1 > 7",
        text={
            f"{domain} at {position}:": AT.format("DFlash", domain, words)
            for domain in ("code", "chat")
            for position, words in ((1, "position 1"), (7, "end of drop"))
        },
        ours=each("{0} at {2}:", at, ("code", "chat"), ["dflash"], FALL),
        margins=each("{}", ahead, ("code", "chat"), [("dflash", 1)], [("dflash", 7)]),
        paper_margins=each("{}", paper_ahead, ("code", "chat"), [("dflash", 1)], [("dflash", 7)]),
        discrepancies=("0.63 for the end",),
    ),
    Claim(
        "4.3.1, Figure 2",
        "DSpark's first draft is accepted more often than DFlash's in every domain",
        "share",
        "DSpark > DFlash",
        COURSE,
        text={"math DSpark:": AT.format("DSpark", "math", "position 1")},
        figure=each("{} {}:", paper_at, DOMAINS, labelled("dspark", "dflash"), [1]),
        ours=each("{} {}:", at, DOMAINS, labelled("dspark", "dflash"), [1]),
        margins=each("{}", ahead, DOMAINS, [("dspark", 1)], [("dflash", 1)]),
        paper_margins=each("{}", paper_ahead, DOMAINS, [("dspark", 1)], [("dflash", 1)]),
        experiment=experiments.FIRST_DRAFT_BY_HEAD,
        discrepancies=("0.93 for DSpark",),
    ),
    Claim(
        "4.3.1, Figure 2",
        "from position 1 to 7 DSpark's acceptance falls less than half as much as DFlash's",
        "share",
        "DSpark < DFlash / 2",
        COURSE,
        figure=each("{} {}:", quantities.paper_fall, EACH_AND_ALL, labelled("dflash", "dspark")),
        ours=each(
            "{} {}:",
            falls,
            EACH_AND_ALL,
            {paper.LABELS[name]: TABLE_1[name] for name in ("dflash", "dspark")},
        ),
        margins=each("{}", quantities.half_fall, EACH_AND_ALL),
        paper_margins=each("{}", quantities.paper_half_fall, EACH_AND_ALL),
        experiment=experiments.FALL_BY_HEAD,
    ),
    Claim(
        "4.3.2",
        f"a DSpark of 2 layers accepts longer than a DFlash of full depth (there 5, here {quantities.FULL_DEPTH}) in every domain",
        "percent",
        "each > 0",
        figure=each("{}:", quantities.paper_two_layer_gain, DOMAINS),
        ours=each("{}:", recipe_gain, PLACES, [DEPTHS[2]], DFLASH),
        experiment=experiments.HEAD_OR_LOSSES,
        covers=("2-layer DSpark above 5-layer DFlash in every domain",),
    ),
    Claim(
        "4.3.2",
        f"accepted length grows with depth (there to 5 layers, here to {quantities.FULL_DEPTH}), most from 1 to 2",
        "tokens",
        "first step > second > 0",
        figure=each("{}", quantities.paper_depth_step, DEPTH_PAIRS),
        ours=DEPTH_STEPS,
        margins=joined(DEPTH_STEPS, each("first over second", quantities.first_step_leads)),
        paper_margins=joined(
            each("{}", quantities.paper_depth_step, DEPTH_PAIRS),
            each("first over second", quantities.paper_first_step_leads),
        ),
        covers=("accepted length grows with depth, largest step from 1 to 2 layers",),
    ),
    Claim(
        "4.3.2",
        "DSpark accepts longer than DFlash at draft lengths 8 and 16, and more so at 16",
        "percent",
        "16 > 8 > 0",
        text={
            f"{domain}, {length}:": LENGTH.format(length, length - 1, domain)
            for domain in DOMAINS
            for length in (8, 16)
        },
        ours=GAINS_BY_LENGTH,
        margins=joined(
            GAINS_BY_LENGTH,
            each(
                "{0}, {2} over {1}",
                quantities.gain_growth,
                {name: (name,) for name in DOMAINS},
                [8],
                [16],
            ),
        ),
        paper_margins=joined(
            each("{}, {}:", paper_gain, DOMAINS, (8, 16)),
            each("{0}, {2} over {1}", quantities.paper_gain_growth, DOMAINS, [8], [16]),
        ),
        experiment=experiments.HEAD_OR_LOSSES,
    ),
    Claim(
        "4.3.2",
        "the sequential head makes a round longer than DFlash's by no more than in the paper",
        "percent",
        "here < paper",
        COURSE,
        text=OVERHEAD,
        ours=ROUNDS_LONGER,
        margins=lambda: quantities.room_under(stated(OVERHEAD), ROUNDS_LONGER()),
        experiment=experiments.OVERHEAD_BY_CONTEXT,
    ),
    Claim(
        "4.3.2",
        "in the mean the RNN head accepts a little longer than the Markov head, mostly in long drafts (a little: "
        "less than the Markov head gains over DFlash)",
        "percent",
        "16 > 4, 16 > 0, < Markov head's",
        COURSE,
        figure=each("length {1}:", paper_gain, ["all"], (4, 16), *RNN),
        ours=each("length {1}:", length_gain, ["all"], (4, 16), *RNN),
        margins=joined(
            each("above zero at {1}", length_gain, ["all"], [16], *RNN),
            each("more at {2} than at {1}", quantities.gain_growth, {"": DOMAINS}, [4], [16], *RNN),
            each("below Markov's gain", quantities.rnn_stays_behind),
        ),
        paper_margins=joined(
            each("above zero at {1}", paper_gain, ["all"], [16], *RNN),
            each("more at {2} than at {1}", quantities.paper_gain_growth, ["all"], [4], [16], *RNN),
            each("below Markov's gain", quantities.paper_rnn_stays_behind),
        ),
        experiment=experiments.RNN_OVER_MARKOV,
        covers=("RNN head gain over the Markov head is marginal, mostly at long draft lengths",),
    ),
    Claim(
        "4.3.3",
        "a confidence threshold of 0.9 raises the share of verified tokens that are accepted",
        "rate",
        "0.9 > 0",
        text={
            tuple(
                f"{domain}, {end}:" for end in (0, 0.9)
            ): f"acceptance rate at threshold 0 and 0.9, {domain}"
            for domain in DOMAINS
        },
        ours=each("{}, {}:", confidence_results.rate, DOMAINS, (0, 0.9)),
        margins=each("{}", quantities.rate_rise, DOMAINS),
        paper_margins=each("{}", quantities.paper_rate_rise, DOMAINS),
        discrepancies=("figure 5 panels", "figure 5 acceptance rates"),
    ),
    Claim(
        "4.3.3",
        "the raw confidence tells accepted from refused drafts (area under the ROC curve)",
        "share",
        "each > 0.5",
        COURSE,
        text={("from", "to"): "ROC-AUC range of the raw confidence"},
        ours=each("{1}", confidence_results.over_positions, ["auc"], ENDS),
        margins=each("above chance", quantities.above_chance),
        paper_margins=lambda: {
            "above chance": min(paper.claim("ROC-AUC range of the raw confidence")) - 0.5
        },
        discrepancies=("AUC up to",),
    ),
    Claim(
        "4.3.3",
        "the raw confidence is over-confident: at every position it promises more than comes",
        "rate",
        "excess > 0",
        text={("ECE, from", "ECE, to"): "ECE before calibration, range"},
        figure=each("excess, {}", quantities.paper_excess, ENDS),
        ours=each(
            "{}, {}", confidence_results.over_positions, {"ECE": "ece", "excess": "excess"}, ENDS
        ),
        margins=each("least excess", confidence_results.over_positions, ["excess"], [min]),
        paper_margins=each("least excess", quantities.paper_excess, [min]),
    ),
    Claim(
        "4.3.3",
        "sequential temperature scaling lowers the expected calibration error",
        "rate",
        "after < before",
        text={"after": "ECE after calibration, average"},
        ours=each(
            "{2}",
            confidence_results.over_positions,
            ["ece"],
            [np.mean],
            {"before": False, "after": True},
        ),
        margins=each("", confidence_results.gain_in_ece),
        paper_margins=each("", quantities.paper_gain_in_ece),
        discrepancies=("figure 6: the calibrated",),
    ),
    Claim(
        "5.4, Figure 7",
        "at the same speed per user DSpark gives more throughput than MTP-1",
        "percent",
        "each > 0",
        text={
            label: FIGURE_7.format("throughput", "", speed, engine) for label, speed, engine in V4
        },
        ours=each(
            "{2}:",
            serving_results.gain_over_mtp,
            [serving_results.throughput_gain],
            [SERVED],
            LOADS,
        ),
    ),
    Claim(
        "abstract, 5.4, Figure 7",
        "at the same throughput DSpark serves each user faster than MTP-1",
        "percent",
        "each > 0",
        text={
            label: FIGURE_7.format("speed", "the MTP-1 throughput of ", speed, engine)
            for label, speed, engine in V4
        },
        ours=each(
            "{2}:", serving_results.gain_over_mtp, [serving_results.speed_gain], [SERVED], LOADS
        ),
        discrepancies=("section 5.4 calls",),
    ),
    Claim(
        "5.4, Figure 8",
        "the scheduler verifies fewer tokens per request as the load grows",
        "tokens",
        "light > heavy load",
        text={
            (
                "moderate load, from",
                "moderate load, to",
            ): "DSpark verification budget under moderate concurrency (below 200 requests Flash, 150 Pro)"
        },
        ours=quantities.budgets,
        margins=each("", quantities.budget_drop),
        paper_margins=each("", quantities.paper_budget_drop),
        discrepancies=("section 5.4 gives a budget",),
    ),
    Claim(
        "5.4",
        "under high load a static block of several drafts gives less throughput than MTP-1",
        "percent",
        "MTP-1 > 3, 5 and 7 drafts",
        ours=each("{} drafts", quantities.static_loss, STATIC_LENGTHS),
        experiment=experiments.ONE_AGAINST_SEVEN,
    ),
    Claim(
        "A",
        "choosing the length after the draws changes the output; the example's numbers",
        "share",
        "equal",
        text=APPENDIX,
        ours=quantities.appendix_a_numbers,
        margins=lambda: quantities.equal(stated(APPENDIX), quantities.appendix_a_numbers()),
    ),
)
