"""What the paper claims in numbers, and which of our measurements to hold against it: a row for each claim.

A row names its section and who states it: the paper, or this course where the inequality is ours. The paper's numbers are
named by their text_claims in paper_numbers.json or read off a figure; ours are quantities of `quantities`. The sense says
what must hold, and `margins` are what must be above zero for it. `experiments` says what was run to test the reason of a
failure, `settings` holds the numbers that are choices, `ledger` judges and prints.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..common import paper
from ..common.estimates import Estimate
from ..common.names import DOMAINS
from ..measure.studies import DEPTHS, TABLE_1
from . import experiments, quantities, recorded_confidence
from .quantities import gains_by_domain
from .recorded_serving import speed_gain, throughput_gain

PAPER, COURSE = "the paper", "this course"


@dataclass(frozen=True)
class Claim:
    """A row of the ledger.

    `unit` is one of formats.FORMS; but for tokens, values are fractions. `text` has the paper's numbers as {label, or a
    tuple of labels: name of the text claim}, `figure` those read off its figures, by label. `ours` gives our estimates by
    label, `margins` what must be above zero, `ours` where it is None. Without `ours` a claim cannot be tested here, and
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


MACRO = "macro-average accepted length gain of DSpark over {}, {}"
AT = "conditional acceptance, {} {} {}"
LENGTH = "accepted length gain of DSpark over DFlash, draft length {} (gamma {}), {}"
FIGURE_7 = "{} gain at {}{} token/s/user, DeepSeek-V4-{}"
V4 = (("moderate:", 80, "Flash"), ("strict:", 120, "Flash"), ("Pro, moderate:", 35, "Pro"), ("Pro, strict:", 50, "Pro"))
OVERHEAD = {("length 4:", "length 16:"): "round latency overhead of DSpark over DFlash, draft length 4 and 16"}


def table_1_gains_over(rival: str) -> dict[str, float]:
    """DSpark over a rival by domain in Table 1 (Qwen3-4B)."""
    return quantities.paper_gains_by_domain(*(paper.domain_means(paper.TARGETS[0], name) for name in ("dspark", rival)))


def shallow() -> dict[str, float]:
    """DSpark of 2 layers over DFlash of 5 by domain in Figure 3."""
    return quantities.paper_gains_by_domain(paper.by_depth("dspark", 2), paper.by_depth("dflash", 5))


def overhead_room() -> dict[str, Estimate]:
    """By how much our overheads stay under the paper's."""
    return quantities.room_under(stated(OVERHEAD), quantities.overheads())


APPENDIX = {quantities.APPENDIX_THROUGHPUT: "appendix example throughput for 0, 1, 2 tokens in case 1",
            quantities.APPENDIX_OUTPUT: "appendix example output distribution against target"}


def stated(text: dict[str | tuple[str, ...], str]) -> dict[str, float]:
    """The numbers of text claims by label, from {label, or a tuple of labels: name of the text claim}."""
    found = {}
    for labels, name in text.items():
        found |= dict(zip((labels,) if isinstance(labels, str) else labels, paper.claim_values(name), strict=True))
    return found


def appendix_room() -> dict[str, Estimate]:
    """How near our numbers of Appendix A are to the paper's."""
    return quantities.equal(stated(APPENDIX), quantities.appendix_a_numbers())


CLAIMS = (
    Claim("4.2", "DSpark accepts longer than Eagle3 in the mean and in every domain (Qwen3-4B)", "percent", "each > 0",
          text={"mean:": MACRO.format("Eagle3", "Qwen3-4B")}, figure=partial(table_1_gains_over, "eagle3"),
          ours=partial(gains_by_domain, TABLE_1["dspark"], TABLE_1["eagle3"]), experiment=experiments.depth_and_memory),
    Claim("4.2", "DSpark accepts longer than DFlash in the mean and in every domain (Qwen3-4B)", "percent", "each > 0",
          text={"mean:": MACRO.format("DFlash", "Qwen3-4B")}, figure=partial(table_1_gains_over, "dflash"),
          ours=partial(gains_by_domain, TABLE_1["dspark"], TABLE_1["dflash"]), experiment=experiments.layer_and_choice),
    Claim("4.2", "and on larger targets", "percent", "each > 0",
          text={f"{target} over {rival}:": MACRO.format(rival, target)
                for target in ("Qwen3-8B", "Qwen3-14B") for rival in ("Eagle3", "DFlash")},
          needs="a large GPU, and these targets with a drafter trained for each: `python -m dspark_lite evaluate --target`"),
    Claim("4.2", "DSpark accepts longer than a small language model that drafts as many tokens", "percent",
          "each > 0", COURSE,
          ours=partial(gains_by_domain, TABLE_1["dspark"], TABLE_1["small_lm"])),
    Claim("4.2", "DSpark's accepted length is longest on math, shorter on code, shortest on chat", "tokens",
          "math > code > chat",
          text={f"{domain}:": f"mean accepted length of DSpark, Qwen3-4B, {domain}" for domain in DOMAINS},
          ours=quantities.accepted_by_domain, margins=quantities.domain_gaps),
    Claim("4.3.1", "DFlash's first draft is accepted more often than Eagle3's", "share", "DFlash > Eagle3",
          text={f"{domain} {name}:": AT.format(name, domain, "position 1")
                for domain in ("math", "chat") for name in ("DFlash", "Eagle3")},
          ours=partial(quantities.first_drafts, "dflash", "eagle3", ("math", "chat")),
          margins=partial(quantities.first_draft_leads, "dflash", "eagle3", ("math", "chat")),
          experiment=experiments.first_draft_by_depth),
    Claim("4.3.1", "Eagle3's conditional acceptance rises along the block on chat", "share", "7 > 1",
          text={"chat at 1:": AT.format("Eagle3", "chat", "position 1"),
                "chat at 7:": AT.format("Eagle3", "chat", "end of rise")},
          ours=partial(quantities.ends, "eagle3", ("chat",)),
          margins=lambda: {"": quantities.ahead(("eagle3", 7), ("eagle3", 1), "chat")}, discrepancies=("0.74 for the end",)),
    Claim("4.3.1", "DFlash's conditional acceptance falls along the block", "share", "1 > 7",
          text={f"{domain} at {position}:": AT.format("DFlash", domain, words) for domain in ("code", "chat")
                for position, words in ((1, "position 1"), (7, "end of drop"))},
          ours=partial(quantities.ends, "dflash", ("code", "chat")),
          margins=partial(quantities.end_falls, "dflash", ("code", "chat")), discrepancies=("0.63 for the end",)),
    Claim("4.3.1, Figure 2", "DSpark's first draft is accepted more often than DFlash's in every domain", "share",
          "DSpark > DFlash", COURSE, text={"math DSpark:": AT.format("DSpark", "math", "position 1")},
          figure=partial(quantities.paper_first_drafts, "dspark", "dflash", DOMAINS),
          ours=partial(quantities.first_drafts, "dspark", "dflash", DOMAINS),
          margins=partial(quantities.first_draft_leads, "dspark", "dflash", DOMAINS), discrepancies=("0.93 for DSpark",)),
    Claim("4.3.1, Figure 2", "from position 1 to 7 DSpark's acceptance falls less than half as much as DFlash's", "share",
          "DSpark < DFlash / 2", COURSE, figure=quantities.paper_falls, ours=quantities.falls_by_drafter,
          margins=quantities.half_falls, experiment=experiments.fall_by_head),
    Claim("4.3.2", "a DSpark of 2 layers accepts longer than a DFlash of full depth (there 5, here 3) in every domain",
          "percent", "each > 0", figure=shallow, ours=partial(quantities.gains_by_domain, DEPTHS[2], TABLE_1["dflash"]),
          experiment=experiments.layer_and_choice,
          covers=("2-layer DSpark above 5-layer DFlash in every domain",)),
    Claim("4.3.2", "accepted length grows with depth (there to 5 layers, here to 3), most from 1 to 2", "tokens",
          "first step > second > 0", figure=quantities.paper_depth_steps, ours=quantities.depth_steps,
          margins=quantities.depth_margins, covers=("accepted length grows with depth, largest step from 1 to 2 layers",)),
    Claim("4.3.2", "DSpark accepts longer than DFlash at draft lengths 8 and 16, and more so at 16", "percent", "16 > 8 > 0",
          text={f"{domain}, {length}:": LENGTH.format(length, length - 1, domain)
                for domain in DOMAINS for length in (8, 16)},
          ours=quantities.gains_by_length, margins=quantities.gains_and_growth, experiment=experiments.layer_and_choice),
    Claim("4.3.2", "the sequential head makes a round longer than DFlash's by no more than in the paper", "percent",
          "here < paper", COURSE, text=OVERHEAD, ours=quantities.overheads,
          margins=overhead_room),
    Claim("4.3.2", "the RNN head accepts a little longer than the Markov head, mostly in long drafts (a little: less than "
          "the Markov head gains over DFlash)", "percent", "16 > 4, 16 > 0, < Markov head's", COURSE,
          figure=quantities.paper_rnn_gains, ours=quantities.rnn_gains, margins=quantities.rnn_margins,
          experiment=experiments.full_training,
          covers=("RNN head gain over the Markov head is marginal, mostly at long draft lengths",)),
    Claim("4.3.3", "a confidence threshold of 0.9 raises the share of verified tokens that are accepted", "rate", "0.9 > 0",
          text={tuple(f"{domain}, {end}:" for end in (0, 0.9)): f"acceptance rate at threshold 0 and 0.9, {domain}"
                for domain in DOMAINS},
          ours=quantities.rates, margins=lambda: {domain: quantities.rate_rise(domain) for domain in DOMAINS},
          discrepancies=("figure 5 panels", "figure 5 acceptance rates")),
    Claim("4.3.3", "the raw confidence tells accepted from refused drafts (area under the ROC curve)", "share",
          "each > 0.5", COURSE,
          text={("from", "to"): "ROC-AUC range of the raw confidence"}, ours=quantities.auc_range,
          margins=lambda: {"above chance": quantities.above_chance()}, discrepancies=("AUC up to",)),
    Claim("4.3.3", "the raw confidence is over-confident: at every position it promises more than comes", "rate",
          "excess > 0",
          text={("ECE, from", "ECE, to"): "ECE before calibration, range"}, figure=quantities.paper_excess,
          ours=quantities.over_confidence, margins=lambda: {"excess, from": recorded_confidence.over_positions("excess", min)}),
    Claim("4.3.3", "sequential temperature scaling lowers the expected calibration error", "rate", "after < before",
          text={"after": "ECE after calibration, average"}, ours=quantities.mean_ece,
          margins=lambda: {"": recorded_confidence.gain_in_ece()}, discrepancies=("figure 6: the calibrated",)),
    Claim("5.4, Figure 7", "at the same speed per user DSpark gives more throughput than MTP-1", "percent", "each > 0",
          text={label: FIGURE_7.format("throughput", "", speed, engine) for label, speed, engine in V4},
          ours=partial(quantities.served, throughput_gain)),
    Claim("abstract, 5.4, Figure 7", "at the same throughput DSpark serves each user faster than MTP-1", "percent",
          "each > 0",
          text={label: FIGURE_7.format("speed", "the MTP-1 throughput of ", speed, engine) for label, speed, engine in V4},
          ours=partial(quantities.served, speed_gain), discrepancies=("section 5.4 calls",)),
    Claim("5.4, Figure 8", "the scheduler verifies fewer tokens per request as the load grows", "tokens",
          "light > heavy load",
          text={("moderate load, from", "moderate load, to"):
                "DSpark verification budget under moderate concurrency (below 200 requests Flash, 150 Pro)"},
          ours=quantities.budgets, margins=lambda: {"": quantities.budget_drop()},
          discrepancies=("section 5.4 gives a budget",)),
    Claim("5.4", "under high load a static block of several drafts gives less throughput than one draft per request "
          "(here 7 against 1)", "percent", "1 draft > 7", ours=lambda: {"": quantities.static_loss()}),
    Claim("A", "choosing the length after the draws changes the output; the example's numbers", "share", "equal",
          text=APPENDIX, ours=quantities.appendix_a_numbers, margins=appendix_room),
)
