"""What sections 3 and 4 of the paper claim in numbers, and which of our measurements to hold against each claim.

The paper's values are read from paper_numbers.json by the names of its text_claims. `ledger` judges.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import confidence, contrasts, latency, miniature, paper
from .checkpoints import ROOT
from .contrasts import ahead, at, falls, gain_growth, half_fall, length_gain, paper_fall, paper_gain
from .evaluation import Estimate
from .miniature import DEPTHS, HEADS, LENGTH_STUDY, TABLE_1, gains
from .plots import DRAFTERS
from .tables import interval
from .training.corpus import DOMAINS


@dataclass(frozen=True)
class Claim:
    """What the paper says in a section, in plain words, and the same quantities in the paper and here, by label.

    `unit` is one of tables.FORMS; but for tokens, values are fractions. `margins` are what must be above zero for the
    claim to hold, `ours` where it is None. Without `ours` a claim cannot be tested here, and `reason` says why; else
    `reason` says what may lie behind a failure, with its measurements. `keys` name the text_claims that are covered,
    `discrepancies` are words of the paper's contradictions with itself that concern the claim.
    """

    section: str
    says: str
    unit: str
    paper: Callable[[], dict[str, float]]
    ours: Callable[[], dict[str, Estimate]] | None = None
    margins: Callable[[], dict[str, Estimate]] | None = None
    reason: Callable[[], str] | None = None
    keys: tuple[str, ...] = ()
    discrepancies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """A choice of the paper's authors, by the name of its text claim, and ours: there is nothing in it to replicate."""

    section: str
    key: str
    ours: Callable[[], str]


def recipe(name: str) -> dict:
    """The recipe from which a measured drafter was trained."""
    return miniature.measured(name)["recipe"]


def by_domain(value: Callable) -> dict:
    """What `value(domain)` gives, labelled by domain."""
    return {f"{domain}:": value(domain) for domain in DOMAINS}


# What may lie behind a failure ---------------------------------------------------------------------------------------


def first_draft() -> str:
    """Eagle3 and DSpark at position 1, here and there: what depth buys."""
    names = ("eagle3", "dspark")
    ours = [np.mean([at(name, domain, 1).value for domain in DOMAINS]) for name in names]
    theirs = [np.mean([paper.conditional_acceptance(name, domain)[0] for domain in DOMAINS]) for name in names]
    return (f"at position 1, in the mean over the domains, {ours[0]:.2f} of the drafts of Eagle3's single layer are "
            f"accepted and {ours[1]:.2f} of those of DSpark's three, in the paper {theirs[0]:.2f} and {theirs[1]:.2f}: "
            "depth decides less about the next token of a small target")


def memory() -> str:
    """`first_draft`, and whether a head that remembers more than one token closes the distance to Eagle3."""
    markov, rnn = (gains(HEADS[head], TABLE_1["eagle3"])["all"] for head in ("dspark", "dspark_rnn"))
    return (f"{first_draft()}. Behind it each of Eagle3's passes sees all that was drafted, the Markov head one token; "
            f"DSpark's gain over Eagle3 is {interval(markov, 'percent')} with this head, and with the RNN head, which "
            f"remembers more, {interval(rnn, 'percent')}")


def answer_entropy() -> dict[str, float]:
    """How much choice the target's answers leave, by domain: the mean entropy in nats a token at temperature 1."""
    rows = json.loads((ROOT / "assets" / "measurements" / "target_quality.json").read_text())["rows"]
    return {row["domain"]: row["entropy_nats"] for row in rows}


def little_choice() -> str:
    """What the head and what the third layer bring by domain, beside how uncertain the target's answers are."""
    entropy = answer_entropy()
    head, layer = gains(TABLE_1["dspark"], TABLE_1["dflash"]), gains(DEPTHS[3], DEPTHS[2])
    parts = [f"on {domain} {head[domain].value:+.0%}, {layer[domain].value:+.0%}, {entropy[domain]:.2f} nats a token"
             for domain in DOMAINS]
    return ("the head has something to repair where the target's answers leave a choice. What the head brings at "
            f"full depth, what the third layer brings, and the entropy of the answers: {'; '.join(parts)}")


def ceiling(drafter: str, domain: str) -> str:
    """How little room the first position leaves."""
    return f"{at(drafter, domain, 1).value:.2f} of {paper.LABELS[drafter]}'s first drafts are accepted here already"


def fall_by_head() -> str:
    """How far each head's conditional acceptance falls, by domain: does memory of more than one token help?"""
    parts = [f"{DRAFTERS[head][0]} " + ", ".join(f"{falls(name, (domain,)).value:+.2f}" for domain in DOMAINS)
             for head, name in HEADS.items()]
    return f"the fall on {', '.join(DOMAINS)} by head: {'; '.join(parts)}"


def full_training() -> str:
    """The RNN head over the Markov head as trained for Table 1."""
    found = gains(HEADS["dspark_rnn"], HEADS["dspark"])["all"]
    epochs = recipe(HEADS["dspark_rnn"])["epochs"]
    return (f"trained as for Table 1 ({epochs} epochs at draft length 8) the RNN head's gain over the Markov head is "
            f"{interval(found, 'percent')}")


def small_target() -> str:
    """What a round costs besides the head."""
    measured = miniature.measured(miniature.LATENCY)
    dflash, dspark = (latency.full_round(latency.round_times(measured, name, 16)) for name in ("dflash", "dspark"))
    theirs = paper.numbers()["figure4"]["latency"]["values"]["DFlash"][-1]
    where = f"{measured['device']}, batch {measured['batch']}"
    return (f"at length 16 the head adds {dspark - dflash:.1f} ms to a round of {dflash:.0f} ms here ({where}), where "
            f"the target is tiny; in the paper to one of {theirs:.0f} ms, nearly all of it the target's")


def other_targets() -> str:
    """Why one target stands for none of the larger ones."""
    return ("the miniature has one target; on a large GPU `python -m dspark_lite evaluate --target` measures this one "
            "with a drafter trained for it")


def calibrated_already() -> str:
    """How much calibration error there was to take away."""
    floors = [row["ece_floor"] for row in confidence.report()["rows"] if row["domain"] == "all"]
    raw = confidence.over_positions("ece", np.mean)
    return (f"the raw error is {interval(raw, 'rate')} here, and predictions that are exactly right would show "
            f"{np.mean(floors):.1%} on as many blocks: there is little to mend")


# The claims ----------------------------------------------------------------------------------------------------------

MACRO = "macro-average accepted length gain of DSpark over {}, {}"
OVERHEAD = "round latency overhead of DSpark over DFlash, draft length 4 and 16"


def macro(rival: str) -> Claim:
    """DSpark over a rival in Table 1's mean."""
    name = MACRO.format(paper.LABELS[rival], paper.TARGETS[0])
    return Claim(
        "4.2", f"DSpark accepts longer than {paper.LABELS[rival]} in the mean over the benchmarks (Qwen3-4B)",
        "percent", lambda: {"": paper.claim(name) / 100}, lambda: {"": gains(TABLE_1["dspark"], TABLE_1[rival])["all"]},
        reason=memory if rival == "eagle3" else little_choice, keys=(name,))


def macro_elsewhere(target: str) -> Claim:
    """The same on a target that is not here."""
    names = {f"over {label}:": MACRO.format(label, target) for label in ("Eagle3", "DFlash")}
    return Claim("4.2", f"and on {target}", "percent",
                 lambda: {label: paper.claim(name) / 100 for label, name in names.items()},
                 reason=other_targets, keys=tuple(names.values()))


def every_domain(rival: str) -> Claim:
    """DSpark over a rival in each domain of Table 1."""
    def theirs():
        ours, other = (paper.domain_means(paper.TARGETS[0], name) for name in ("dspark", rival))
        return by_domain(lambda domain: ours[domain] / other[domain] - 1)

    return Claim(
        "4.2, Table 1", f"DSpark accepts longer than {paper.LABELS[rival]} in every domain", "percent", theirs,
        lambda: by_domain(lambda domain: gains(TABLE_1["dspark"], TABLE_1[rival])[domain]),
        reason=memory if rival == "eagle3" else little_choice)


def domain_order() -> Claim:
    """Which domains are easy."""
    name = "mean accepted length of DSpark, Qwen3-4B, {}"
    return Claim(
        "4.2", "DSpark's accepted length is longest on math, shorter on code, shortest on chat", "tokens",
        lambda: by_domain(lambda domain: paper.claim(name.format(domain))),
        lambda: by_domain(lambda domain: miniature.accepted_lengths(TABLE_1["dspark"])[domain]),
        lambda: {f"{first} over {second}": contrasts.domain_gap(first, second)
                 for first, second in zip(DOMAINS, DOMAINS[1:])},
        keys=tuple(name.format(domain) for domain in DOMAINS))


def compared(says: str, domain: str, high: tuple[str, int, str], low: tuple[str, int, str], reason=None,
             discrepancies: tuple[str, ...] = ()) -> Claim:
    """One conditional acceptance above another; each is (drafter, position, how text_claims calls the place)."""
    called = [(paper.LABELS[drafter], position, words) for drafter, position, words in (high, low)]
    names = {f"{label} at {position}:": f"conditional acceptance, {label} {domain} {words}"
             for label, position, words in called}
    return Claim(
        "4.3.1", says, "share", lambda: {label: paper.claim(name) for label, name in names.items()},
        lambda: {label: at(place[0], domain, place[1]) for label, place in zip(names, (high, low))},
        lambda: {"": ahead(high[:2], low[:2], domain)}, reason, tuple(names.values()), discrepancies)


def half(says: str, groups: dict[str, tuple[str, ...]]) -> Claim:
    """DSpark falls less than half as much as DFlash, in groups of domains by label."""
    def labelled(value):
        return {f"{label} {paper.LABELS[name]}:".strip(): value(name, domains) for label, domains in groups.items()
                for name in ("dflash", "dspark")}

    return Claim(
        "4.3.1, Figure 2", says, "share", lambda: labelled(paper_fall),
        lambda: labelled(lambda name, domains: falls(TABLE_1[name], domains)),
        lambda: {label: half_fall(domains) for label, domains in groups.items()}, fall_by_head)


def shallow() -> Claim:
    """Two layers with a head against full depth without."""
    def theirs():
        ours, other = paper.by_depth("dspark", 2), paper.by_depth("dflash", 5)
        return by_domain(lambda domain: ours[domain] / other[domain] - 1)

    return Claim(
        "4.3.2", "a DSpark of 2 layers accepts longer than a DFlash of full depth (there 5, here 3) in every domain",
        "percent", theirs, lambda: by_domain(lambda domain: gains(DEPTHS[2], TABLE_1["dflash"])[domain]),
        reason=little_choice, keys=("2-layer DSpark above 5-layer DFlash in every domain",))


def depth() -> Claim:
    """What layers add."""
    return Claim(
        "4.3.2", "accepted length grows with depth (there to 5 layers, here to 3), most from 1 to 2", "tokens",
        contrasts.paper_depth_steps, contrasts.depth_steps,
        lambda: {**contrasts.depth_steps(), "first over second": contrasts.first_step_leads()},
        keys=("accepted length grows with depth, largest step from 1 to 2 layers",))


def at_length(length: int, domain: str) -> Claim:
    """DSpark over DFlash at a draft length."""
    name = f"accepted length gain of DSpark over DFlash, draft length {length} (gamma {length - 1}), {domain}"
    return Claim(
        "4.3.2", f"at draft length {length} DSpark accepts longer than DFlash on {domain}", "percent",
        lambda: {"": paper.claim(name) / 100}, lambda: {"": length_gain(domain, length)}, reason=little_choice,
        keys=(name,))


def growing() -> Claim:
    """Longer drafts, larger gains."""
    return Claim(
        "4.3.2, Figure 4", "the gain of DSpark over DFlash grows from draft length 8 to 16 (by so many percent points)",
        "percent", lambda: by_domain(lambda domain: paper_gain(domain, 16) - paper_gain(domain, 8)),
        lambda: by_domain(lambda domain: gain_growth((domain,), 8, 16)))


def cheap() -> Claim:
    """What the head costs."""
    def theirs():
        return {f"length {length}:": percent / 100 for length, percent in zip((4, 16), paper.claim(OVERHEAD))}

    return Claim(
        "4.3.2", "the sequential head makes a round longer than DFlash's by no more than", "percent", theirs,
        contrasts.overheads, lambda: contrasts.room_under(theirs(), contrasts.overheads()), small_target, (OVERHEAD,))


def recurrent() -> Claim:
    """The RNN head beside the Markov head."""
    def at_both(gain):
        return {f"length {length}:": gain("all", length, "dspark_rnn", "dspark") for length in (4, 16)}

    return Claim(
        "4.3.2", "the RNN head accepts a little longer than the Markov head, mostly in long drafts: more at 16 than at "
        "4, and less than the Markov head gains over DFlash", "percent", lambda: at_both(paper_gain),
        lambda: at_both(length_gain),
        lambda: {"above zero at 16": length_gain("all", 16, "dspark_rnn", "dspark"),
                 "more at 16 than at 4": gain_growth(DOMAINS, 4, 16, "dspark_rnn", "dspark"),
                 "less than the Markov head's": contrasts.rnn_stays_behind()},
        full_training, ("RNN head gain over the Markov head is marginal, mostly at long draft lengths",))


def threshold() -> Claim:
    """Figure 5's ends."""
    name = "acceptance rate at threshold 0 and 0.9, {}"
    return Claim(
        "4.3.3", "a confidence threshold of 0.9 raises the share of verified tokens that are accepted", "rate",
        lambda: {f"{domain}, {end}:": value / 100 for domain in DOMAINS
                 for end, value in zip((0, 0.9), paper.claim(name.format(domain)))},
        lambda: {f"{domain}, {end}:": confidence.rate(domain, end) for domain in DOMAINS for end in (0, 0.9)},
        lambda: by_domain(contrasts.rate_rise), keys=tuple(name.format(domain) for domain in DOMAINS),
        discrepancies=("figure 5 panels", "figure 5 acceptance rates"))


def ranking() -> Claim:
    """The confidence as a classifier."""
    name = "ROC-AUC range of the raw confidence"
    return Claim("4.3.3", "the raw confidence tells accepted from refused drafts (area under the ROC curve)", "share",
                 lambda: dict(zip(("from", "to"), paper.claim(name))),
                 lambda: {"from": confidence.over_positions("auc", min), "to": confidence.over_positions("auc", max)},
                 lambda: {"above chance": contrasts.above_chance()}, keys=(name,), discrepancies=("AUC up to",))


def calibration() -> Claim:
    """The calibration error before and after."""
    before, after = "ECE before calibration, range", "ECE after calibration, average"
    return Claim(
        "4.3.3", "sequential temperature scaling lowers the expected calibration error", "rate",
        lambda: {**{f"before, {end}": value / 100 for end, value in zip(("from", "to"), paper.claim(before))},
                 "after": paper.claim(after) / 100},
        lambda: {"before, from": confidence.over_positions("ece", min), "before, to": confidence.over_positions("ece", max),
                 "after": confidence.over_positions("ece", np.mean, calibrated=True)},
        lambda: {"": confidence.gain_in_ece()}, calibrated_already, keys=(before, after), discrepancies=("figure 6: the calibrated",))


CLAIMS = (
    macro("eagle3"), macro("dflash"), macro_elsewhere("Qwen3-8B"), macro_elsewhere("Qwen3-14B"),
    domain_order(), every_domain("eagle3"), every_domain("dflash"),
    compared("on math DFlash's first draft is accepted more often than Eagle3's", "math",
             ("dflash", 1, "position 1"), ("eagle3", 1, "position 1"), first_draft),
    compared("and on chat", "chat", ("dflash", 1, "position 1"), ("eagle3", 1, "position 1"), first_draft),
    compared("Eagle3's conditional acceptance rises along the block on chat", "chat",
             ("eagle3", 7, "end of rise"), ("eagle3", 1, "position 1"), lambda: ceiling("eagle3", "chat"),
             ("0.74 for the end",)),
    compared("DFlash's falls along the block on code", "code",
             ("dflash", 1, "position 1"), ("dflash", 7, "end of drop")),
    compared("and on chat", "chat",
             ("dflash", 1, "position 1"), ("dflash", 7, "end of drop"), None, ("0.63 for the end",)),
    compared("on math DSpark's first draft is accepted more often than DFlash's", "math",
             ("dspark", 1, "position 1"), ("dflash", 1, "position 1"), lambda: ceiling("dflash", "math"),
             ("0.93 for DSpark",)),
    half("from position 1 to 7 DSpark's falls less than half as much as DFlash's, in the mean over the domains",
         {"": DOMAINS}),
    half("and in each domain", {domain: (domain,) for domain in DOMAINS}),
    shallow(), depth(), *(at_length(length, domain) for length in (8, 16) for domain in DOMAINS), growing(), cheap(),
    recurrent(), threshold(), ranking(), calibration(),
)


# The settings --------------------------------------------------------------------------------------------------------


def listed(value) -> str:
    """A number or a list of numbers in words."""
    return ", ".join(f"{number:,.10g}" for number in (value if isinstance(value, list) else [value]))


def from_recipe(*keys: str) -> Callable[[], str]:
    """A value of DSpark's recipe, by the path to it."""
    def read():
        value = recipe(TABLE_1["dspark"])
        for key in keys:
            value = value[key]
        return listed(list(value.values()) if isinstance(value, dict) else value)

    return read


def layers() -> str:
    """Layers of the three drafters."""
    return listed([recipe(TABLE_1[name])["config"]["num_hidden_layers"] for name in ("eagle3", "dflash", "dspark")])


def samples() -> dict[str, int]:
    """Training prompts of each domain, in the paper's order."""
    prompts = recipe(TABLE_1["dspark"])["data"]["prompts"]
    return {domain: prompts[domain] for domain in ("chat", "math", "code")}


def mix() -> str:
    """The domains' shares of the training prompts in percent; the tiny world has no instructions."""
    return listed([round(100 * count / sum(samples().values()), 1) for count in samples().values()] + [0])


def epochs() -> str:
    """Epochs of Table 1 and of the study of draft lengths."""
    study = recipe(LENGTH_STUDY["dspark", 8])
    more = " more" if "initial" in study else ""
    return f"{recipe(TABLE_1['dspark'])['epochs']}; {study['epochs']}{more} in the study of draft lengths"


def contexts() -> str:
    """Contexts at which rounds were timed."""
    return listed(sorted({row["context"] for row in miniature.measured(miniature.LATENCY)["rows"]}))


SETTINGS = (
    Setting("3.1", "Markov head rank", from_recipe("config", "markov_rank")),
    Setting("3.3", "default loss weights ce, tv, conf", from_recipe("loss")),
    Setting("4.1", "block size of the offline experiments", from_recipe("config", "block_size")),
    Setting("4.1", "drafter layers Eagle3, DFlash, DSpark", layers),
    Setting("4.1", "training samples", lambda: listed(sum(samples().values()))),
    Setting("4.1", "training epochs", epochs),
    Setting("4.1", "training mix chat, math, code, instruction following", mix),
    Setting("4.1", "sampling temperature", lambda: listed(miniature.measured(TABLE_1["dspark"])["temperature"])),
    Setting("4.3.2", "latency batch size", lambda: listed(miniature.measured(miniature.LATENCY)["batch"])),
    Setting("4.3.2", "latency context lengths", contexts),
)
