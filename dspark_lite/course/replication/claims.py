"""The paper's claims in numbers beside our measurements: a row for each claim.

A row names its section and who states it: the paper, or this course where the inequality is ours. `results` are the quantities that
we measured and `margins` those that must be above zero; the paper's numbers are named by their text_claims in paper_numbers.json, or
are the same quantities read off its figures. `experiments` say what was run to test the reason of a failure, `settings` holds the
numbers that are choices, `ledger` evaluates every row in the same way and prints.
"""

from dataclasses import dataclass, field

import numpy as np

from ...common.errors import DSparkLiteError
from .. import paper
from ..estimates import PAPER, Quantity
from ..names import DOMAINS
from . import experiments, quantities
from .confidence_results import Forecast, Rate, Rise
from .experiment_results import (
    DEPTHS,
    FULL_DEPTH,
    FULL_DFLASH,
    PLACES,
    SEEDS,
    TABLE_1,
    Acceptance,
    Length,
    drafts_of,
    gain,
    longer_round,
)
from .experiments import Experiment
from .quantities import FIRST, LAST, SERVED, fall, length_gain, longer, static_loss
from .serving_results import HEAVY, LIGHT, FrontierGain, Served, speed_gain, throughput_gain

THE_PAPER, THIS_COURSE = "the paper", "this course"
ONE_TRAINING = "here one training of each"
ABOVE_ZERO, BELOW_PAPER, AS_PAPER = "above zero", "below the paper's", "equal to the paper's"


@dataclass(frozen=True)
class Claim:
    """A row of the ledger.

    `unit` is one of formats.FORMS; but for tokens, values are fractions. `results` are the quantities by label; without them a claim
    cannot be tested here, and `needs` says what it would take. `text` has the paper's numbers as {label, or a tuple of labels: name
    of the text claim}; `figure` names the labels of `results` that the paper's figures give. The claim holds if the `margins`
    (without them, the results) are ABOVE_ZERO; `relation` may compare the results with the paper's numbers of the same label
    instead. `covers` are names of text claims without a number of their own, `discrepancies` words of the paper's contradictions
    with itself that concern the claim.

    A comparison of trainings must be one of several seeds each, or say that it is of `one_training`; else DSparkLiteError is raised.
    """

    id: str
    section: str
    says: str
    unit: str
    sense: str
    stated_by: str = THE_PAPER
    results: dict[str, Quantity] = field(default_factory=dict)
    text: dict[str | tuple[str, ...], str] = field(default_factory=dict)
    figure: tuple[str, ...] = ()
    margins: dict[str, Quantity] = field(default_factory=dict)
    relation: str = ABOVE_ZERO
    experiments: tuple[Experiment, ...] = ()
    needs: str = ""
    covers: tuple[str, ...] = ()
    discrepancies: tuple[str, ...] = ()
    one_training: bool = False

    def __post_init__(self):
        compared = drafts_of(*self.results.values(), *self.margins.values())
        single = [draft.runs[0] for draft in compared if len(draft.runs) == 1]
        if len(compared) > 1 and bool(single) != self.one_training:
            raise DSparkLiteError(
                f"the claim {self.id!r} compares trainings, one seed each of {', '.join(single)}; give it several seeds, or say "
                "one_training=True"
                if single
                else f"the claim {self.id!r} compares several seeds of each training; leave out one_training"
            )

    @property
    def sentence(self) -> str:
        """Return what the claim says, and whether it is of one training."""
        return f"{self.says} ({ONE_TRAINING})" if self.one_training else self.says

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the names of the text claims that this row answers."""
        return (*self.text.values(), *self.covers)

    def paper(self) -> dict[str, float]:
        """Return the paper's numbers by label, those of its figures before those of its text."""
        numbers = {label: self.results[label].value(PAPER) for label in self.figure}
        for labels, name in self.text.items():
            labels = (labels,) if isinstance(labels, str) else labels
            numbers |= dict(zip(labels, paper.claim_values(name), strict=True))
        return numbers


# Text claims, and parts that several rows share.
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
DSPARK, DFLASH, EAGLE3 = (SEEDS[name] for name in ("dspark", "dflash", "eagle3"))
SMALL_LM = TABLE_1["small_lm"]
RNN = ("dspark_rnn", "dspark")  # drafters that a gain of the RNN head compares
EACH_AND_ALL = {**{domain: (domain,) for domain in DOMAINS}, "mean": DOMAINS}
MATH_AND_CHAT, CODE_AND_CHAT = ("math", "chat"), ("code", "chat")
STATIC_LENGTHS = (3, 5, 7)  # drafts of a block that is always verified whole
# requests under way with MTP-1: it serves each user at a moderate, a high speed
LOADS = {
    "moderate": 16,
    "strict": 4,
}
ENDS = {"from": min, "to": max}
DOMAIN_LABELS = tuple(f"{domain}:" for domain in DOMAINS)
DEPTH_STEPS = {
    "1 to 2 layers:": longer(DEPTHS[2], DEPTHS[1]),
    "2 to full:": longer(DEPTHS[FULL_DEPTH], DEPTHS[2]),
}
GAINS_BY_LENGTH = {
    f"{domain}, {length}:": length_gain(domain, length) for domain in DOMAINS for length in (8, 16)
}
RNN_GAINS = {f"length {length}:": length_gain("all", length, *RNN) for length in (4, 16)}
FALLS = {
    f"{place} {paper.LABELS[name]}:": fall(SEEDS[name], domains)
    for place, domains in EACH_AND_ALL.items()
    for name in ("dflash", "dspark")
}
FIRST_DRAFTS = {
    f"{domain} {paper.LABELS[name]}:": Acceptance(SEEDS[name], domain, FIRST)
    for domain in DOMAINS
    for name in ("dspark", "dflash")
}
APPENDIX = {
    quantities.APPENDIX_THROUGHPUT: "appendix example throughput for 0, 1, 2 tokens in case 1",
    quantities.APPENDIX_OUTPUT: "appendix example output distribution against target",
}

CLAIMS = (
    Claim(
        "longer than Eagle3",
        "4.2",
        "DSpark accepts longer than Eagle3 in the mean and in every domain (Qwen3-4B)",
        "percent",
        "each > 0",
        results={f"{title}:": gain(DSPARK, EAGLE3, place) for title, place in PLACES.items()},
        text={"mean:": MACRO.format("Eagle3", "Qwen3-4B")},
        figure=DOMAIN_LABELS,
        experiments=(experiments.MEMORY, experiments.DEPTH),
    ),
    Claim(
        "longer than DFlash",
        "4.2",
        "DSpark accepts longer than DFlash in the mean and in every domain (Qwen3-4B)",
        "percent",
        "each > 0",
        results={f"{title}:": gain(DSPARK, DFLASH, place) for title, place in PLACES.items()},
        text={"mean:": MACRO.format("DFlash", "Qwen3-4B")},
        figure=DOMAIN_LABELS,
        experiments=(experiments.HEAD_OR_LOSSES,),
    ),
    Claim(
        "larger targets",
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
        "longer than a small LM",
        "4.2",
        "DSpark accepts longer than a small language model that drafts as many tokens",
        "percent",
        "each > 0",
        THIS_COURSE,
        results={f"{title}:": gain(DSPARK, SMALL_LM, place) for title, place in PLACES.items()},
        experiments=(experiments.RIVAL_BY_DOMAIN,),
        one_training=True,
    ),
    Claim(
        "structured tasks",
        "4.2",
        "DSpark's accepted length is longer on math and on code than on chat",
        "tokens",
        "math > chat, code > chat",
        results={f"{domain}:": Length(DSPARK, domain) for domain in DOMAINS},
        text={
            f"{domain}:": f"mean accepted length of DSpark, Qwen3-4B, {domain}"
            for domain in DOMAINS
        },
        margins={
            f"{domain} over chat": Length(DSPARK, domain) - Length(DSPARK, "chat")
            for domain in ("math", "code")
        },
    ),
    Claim(
        "order of domains",
        "4.2",
        "DSpark's accepted length is longest on math, shorter on code, shortest on chat",
        "tokens",
        "math > code > chat",
        THIS_COURSE,
        results={f"{domain}:": Length(DSPARK, domain) for domain in DOMAINS},
        text={
            f"{domain}:": f"mean accepted length of DSpark, Qwen3-4B, {domain}"
            for domain in DOMAINS
        },
        margins={
            "math over code": Length(DSPARK, "math") - Length(DSPARK, "code"),
            "code over chat": Length(DSPARK, "code") - Length(DSPARK, "chat"),
        },
        experiments=(experiments.LENGTHS_BY_DRAFTER,),
    ),
    Claim(
        "first draft of DFlash",
        "4.3.1",
        "DFlash's first draft is accepted more often than Eagle3's",
        "share",
        "DFlash > Eagle3",
        results={
            f"{domain} {paper.LABELS[draft.drafter]}:": Acceptance(draft, domain, FIRST)
            for domain in MATH_AND_CHAT
            for draft in (DFLASH, EAGLE3)
        },
        text={
            f"{domain} {name}:": AT.format(name, domain, "position 1")
            for domain in MATH_AND_CHAT
            for name in ("DFlash", "Eagle3")
        },
        margins={
            domain: Acceptance(DFLASH, domain, FIRST) - Acceptance(EAGLE3, domain, FIRST)
            for domain in MATH_AND_CHAT
        },
        experiments=(experiments.DEPTH,),
    ),
    Claim(
        "rise of Eagle3",
        "4.3.1",
        "Eagle3's conditional acceptance rises along the block on chat",
        "share",
        "7 > 1",
        results={
            f"chat at {position}:": Acceptance(EAGLE3, "chat", position)
            for position in (FIRST, LAST)
        },
        text={
            "chat at 1:": AT.format("Eagle3", "chat", "position 1"),
            "chat at 7:": AT.format("Eagle3", "chat", "end of rise"),
        },
        margins={"": Acceptance(EAGLE3, "chat", LAST) - Acceptance(EAGLE3, "chat", FIRST)},
        experiments=(experiments.RISE_BY_DOMAIN,),
        discrepancies=("0.74 for the end",),
    ),
    Claim(
        "fall of DFlash",
        "4.3.1",
        "DFlash's conditional acceptance falls along the block",
        "share",
        "1 > 7",
        results={
            f"{domain} at {position}:": Acceptance(DFLASH, domain, position)
            for domain in CODE_AND_CHAT
            for position in (FIRST, LAST)
        },
        text={
            f"{domain} at {position}:": AT.format("DFlash", domain, words)
            for domain in CODE_AND_CHAT
            for position, words in ((FIRST, "position 1"), (LAST, "end of drop"))
        },
        margins={domain: fall(DFLASH, (domain,)) for domain in CODE_AND_CHAT},
        discrepancies=("0.63 for the end",),
    ),
    Claim(
        "first draft of DSpark",
        "4.3.1, Figure 2",
        "DSpark's first draft is accepted more often than DFlash's in every domain",
        "share",
        "DSpark > DFlash",
        THIS_COURSE,
        results=FIRST_DRAFTS,
        text={"math DSpark:": AT.format("DSpark", "math", "position 1")},
        figure=tuple(FIRST_DRAFTS),
        margins={
            domain: Acceptance(DSPARK, domain, FIRST) - Acceptance(DFLASH, domain, FIRST)
            for domain in DOMAINS
        },
        experiments=(experiments.FIRST_DRAFT_BY_HEAD,),
        discrepancies=("0.93 for DSpark",),
    ),
    Claim(
        "half the fall",
        "4.3.1, Figure 2",
        "from position 1 to 7 DSpark's acceptance falls less than half as much as DFlash's",
        "share",
        "DSpark < DFlash / 2",
        THIS_COURSE,
        results=FALLS,
        figure=tuple(FALLS),
        margins={
            place: fall(DFLASH, domains) / 2 - fall(DSPARK, domains)
            for place, domains in EACH_AND_ALL.items()
        },
        experiments=(experiments.FALL_BY_HEAD,),
    ),
    Claim(
        "two layers",
        "4.3.2",
        f"a DSpark of 2 layers accepts longer than a DFlash of full depth (there 5, here {FULL_DEPTH}) in every domain",
        "percent",
        "each > 0",
        results={
            f"{title}:": gain(DEPTHS[2], FULL_DFLASH, place) for title, place in PLACES.items()
        },
        figure=DOMAIN_LABELS,
        experiments=(experiments.HEAD_OR_LOSSES,),
        covers=("2-layer DSpark above 5-layer DFlash in every domain",),
        one_training=True,
    ),
    Claim(
        "depth",
        "4.3.2",
        f"accepted length grows with depth (there to 5 layers, here to {FULL_DEPTH}), most from 1 to 2",
        "tokens",
        "first step > second > 0",
        results=DEPTH_STEPS,
        figure=tuple(DEPTH_STEPS),
        margins={
            **DEPTH_STEPS,
            "first over second": DEPTH_STEPS["1 to 2 layers:"] - DEPTH_STEPS["2 to full:"],
        },
        covers=("accepted length grows with depth, largest step from 1 to 2 layers",),
        one_training=True,
    ),
    Claim(
        "draft lengths",
        "4.3.2",
        "DSpark accepts longer than DFlash at draft lengths 8 and 16, and more so at 16",
        "percent",
        "16 > 8 > 0",
        results=GAINS_BY_LENGTH,
        text={
            f"{domain}, {length}:": LENGTH.format(length, length - 1, domain)
            for domain in DOMAINS
            for length in (8, 16)
        },
        margins={
            **GAINS_BY_LENGTH,
            **{
                f"{domain}, 16 over 8": length_gain(domain, 16) - length_gain(domain, 8)
                for domain in DOMAINS
            },
        },
        experiments=(experiments.HEAD_OR_LOSSES,),
        one_training=True,
    ),
    Claim(
        "cost of the head",
        "4.3.2",
        "the sequential head makes a round longer than DFlash's by no more than in the paper",
        "percent",
        "here < paper",
        THIS_COURSE,
        results={f"length {length}:": longer_round("dspark", length) for length in (4, 16)},
        text={
            (
                "length 4:",
                "length 16:",
            ): "round latency overhead of DSpark over DFlash, draft length 4 and 16"
        },
        relation=BELOW_PAPER,
        experiments=(experiments.OVERHEAD_BY_CONTEXT,),
    ),
    Claim(
        "RNN head",
        "4.3.2",
        "in the mean the RNN head accepts a little longer than the Markov head, mostly in long drafts (a little: "
        "less than the Markov head gains over DFlash)",
        "percent",
        "16 > 4, 16 > 0, < Markov head's",
        THIS_COURSE,
        results=RNN_GAINS,
        figure=tuple(RNN_GAINS),
        margins={
            "above zero at 16": RNN_GAINS["length 16:"],
            "more at 16 than at 4": RNN_GAINS["length 16:"] - RNN_GAINS["length 4:"],
            "below Markov's gain": length_gain("all", 16) - RNN_GAINS["length 16:"],
        },
        experiments=(experiments.RNN_OVER_MARKOV,),
        covers=("RNN head gain over the Markov head is marginal, mostly at long draft lengths",),
        one_training=True,
    ),
    Claim(
        "confidence threshold",
        "4.3.3",
        "a confidence threshold of 0.9 raises the share of verified tokens that are accepted",
        "rate",
        "0.9 > 0",
        results={
            f"{domain}, {threshold}:": Rate(domain, threshold)
            for domain in DOMAINS
            for threshold in (0, 0.9)
        },
        text={
            tuple(
                f"{domain}, {end}:" for end in (0, 0.9)
            ): f"acceptance rate at threshold 0 and 0.9, {domain}"
            for domain in DOMAINS
        },
        margins={domain: Rise(domain) for domain in DOMAINS},
        discrepancies=("figure 5 panels", "figure 5 acceptance rates"),
    ),
    Claim(
        "ROC",
        "4.3.3",
        "the raw confidence tells accepted from refused drafts (area under the ROC curve)",
        "share",
        "each > 0.5",
        THIS_COURSE,
        results={label: Forecast("auc", end) for label, end in ENDS.items()},
        text={("from", "to"): "ROC-AUC range of the raw confidence"},
        margins={"above chance": Forecast("auc above chance", min)},
        discrepancies=("AUC up to",),
    ),
    Claim(
        "over-confidence",
        "4.3.3",
        "the raw confidence is over-confident: at every position it promises more than comes",
        "rate",
        "excess > 0",
        results={
            f"{title}, {label}": Forecast(measure, end)
            for title, measure in (("ECE", "ece"), ("excess", "excess"))
            for label, end in ENDS.items()
        },
        text={("ECE, from", "ECE, to"): "ECE before calibration, range"},
        figure=("excess, from", "excess, to"),
        margins={"least excess": Forecast("excess", min)},
    ),
    Claim(
        "calibration",
        "4.3.3",
        "sequential temperature scaling lowers the expected calibration error",
        "rate",
        "after < before",
        results={
            "before": Forecast("ece", np.mean),
            "after": Forecast("ece calibrated", np.mean),
        },
        text={"after": "ECE after calibration, average"},
        margins={"": Forecast("ece gain", np.mean)},
        discrepancies=("figure 6: the calibrated",),
    ),
    Claim(
        "throughput over MTP-1",
        "5.4, Figure 7",
        "at the same speed per user DSpark gives more throughput than MTP-1",
        "percent",
        "each > 0",
        results={
            f"{name}:": FrontierGain(throughput_gain, SERVED, load) for name, load in LOADS.items()
        },
        text={
            label: FIGURE_7.format("throughput", "", speed, engine) for label, speed, engine in V4
        },
    ),
    Claim(
        "speed over MTP-1",
        "abstract, 5.4, Figure 7",
        "at the same throughput DSpark serves each user faster than MTP-1",
        "percent",
        "each > 0",
        results={
            f"{name}:": FrontierGain(speed_gain, SERVED, load) for name, load in LOADS.items()
        },
        text={
            label: FIGURE_7.format("speed", "the MTP-1 throughput of ", speed, engine)
            for label, speed, engine in V4
        },
        discrepancies=("section 5.4 calls",),
    ),
    Claim(
        "budget by load",
        "5.4, Figure 8",
        "the scheduler verifies fewer tokens per request as the load grows",
        "tokens",
        "light > heavy load",
        results={
            f"{load} under way:": Served("budget", "dspark", SERVED, load)
            for load in (LIGHT, HEAVY)
        },
        text={
            (
                "moderate load, from",
                "moderate load, to",
            ): "DSpark verification budget under moderate concurrency (below 200 requests Flash, 150 Pro)"
        },
        margins={
            "": Served("budget", "dspark", SERVED, LIGHT)
            - Served("budget", "dspark", SERVED, HEAVY)
        },
        discrepancies=("section 5.4 gives a budget",),
    ),
    Claim(
        "static blocks",
        "5.4",
        "under high load a static block of several drafts gives less throughput than MTP-1",
        "percent",
        "MTP-1 > 3, 5 and 7 drafts",
        results={f"{length} drafts": static_loss(length) for length in STATIC_LENGTHS},
        experiments=(experiments.ONE_AGAINST_SEVEN,),
    ),
    Claim(
        "appendix A",
        "A",
        "choosing the length after the draws changes the output; the example's numbers",
        "share",
        "equal",
        results={
            label: quantities.appendix_a(label)
            for label in (*quantities.APPENDIX_THROUGHPUT, *quantities.APPENDIX_OUTPUT)
        },
        text=APPENDIX,
        relation=AS_PAPER,
    ),
)
