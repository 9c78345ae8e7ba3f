"""The quantities that the paper's claims compare, ours with intervals and the paper's: who is ahead, what falls, what
grows.

Ours come from `our_results`, of drafters that answered the same prompts; the paper's from `paper`.
"""

import numpy as np
import torch

from ..common import paper
from ..common.errors import DSparkLiteError
from ..common.estimates import Estimate, bootstrap
from ..common.names import DOMAINS
from ..losslessness import enumeration, toys
from ..measure import studies
from ..measure.evaluation import mean_accepted_length
from ..measure.studies import DEPTHS, LENGTH_STUDY, TABLE_1
from ..scheduling import policies as scheduling
from . import our_results, recorded_confidence, recorded_serving, round_times
from .our_results import gains, paired

FALL = (1, 7)  # the positions between which Figure 2's lines fall or rise
EACH_AND_ALL = {**{domain: (domain,) for domain in DOMAINS}, "mean": DOMAINS}
LOADS = {"moderate": 16, "strict": 4}  # requests under way with MTP-1: it serves each user at a moderate, a high speed
SERVED = "lagged"  # the policy of the production system
APPENDIX_THROUGHPUT = ("0 drafts:", "1 draft:", "2 drafts:")
APPENDIX_OUTPUT = ("retrospective, A:", "retrospective, B:", "lossless, A:", "lossless, B:")
EXACT = 1e-6  # rounding of a number that is computed, not measured


def acceptance(counts: np.ndarray, position: int) -> float:
    """Conditional acceptance at a position (from 1) from counts [N, gamma, 2]; nan where no round reached it."""
    accepted, reached = counts[:, position - 1].sum(0)
    return accepted / reached if reached else float("nan")


def at(drafter: str, domain: str, position: int) -> Estimate:
    """Conditional acceptance of a drafter of Table 1 at a position (from 1); raises DSparkLiteError where hardly a round
    came so far."""
    found = our_results.conditional_acceptance(TABLE_1[drafter], domain)[position - 1]
    if found is None:
        raise DSparkLiteError(f"hardly a round of {paper.LABELS[drafter]} came to position {position} on {domain}; measure "
                              "more prompts")
    return found


def ahead(first: tuple[str, int], second: tuple[str, int], domain: str) -> Estimate:
    """How much higher the conditional acceptance of one (drafter, position) is than that of another."""
    counts = [[our_results.counts_by_position(TABLE_1[drafter], domain)] for drafter, _ in (first, second)]
    return paired(lambda a, b: acceptance(a[0], first[1]) - acceptance(b[0], second[1]), *counts)


def fall(counts: list[np.ndarray]) -> float:
    """How far conditional acceptance falls from position 1 to 7, the mean over domains."""
    return float(np.mean([acceptance(rows, FALL[0]) - acceptance(rows, FALL[1]) for rows in counts]))


def falls(recipe: str, domains) -> Estimate:
    """`fall` of a recipe's drafter."""
    return paired(fall, [our_results.counts_by_position(recipe, domain) for domain in domains])


def first_drafts(first: str, second: str, domains) -> dict[str, Estimate]:
    """Conditional acceptance of two drafters at position 1, by domain."""
    return {f"{domain} {paper.LABELS[name]}:": at(name, domain, 1) for domain in domains for name in (first, second)}


def first_draft_leads(first: str, second: str, domains) -> dict[str, Estimate]:
    """How far the first of two drafters is ahead at position 1, by domain."""
    return {domain: ahead((first, 1), (second, 1), domain) for domain in domains}


def paper_first_drafts(first: str, second: str, domains) -> dict[str, float]:
    """`first_drafts` in Figure 2."""
    return {f"{domain} {paper.LABELS[name]}:": paper.conditional_acceptance(name, domain)[0]
            for domain in domains for name in (first, second)}


def gains_by_domain(ours: str, theirs: str) -> dict[str, Estimate]:
    """How much longer recipe `ours` accepts than `theirs`, in each domain and in the mean over domains."""
    return {f"{'mean' if place == 'all' else place}:": found for place, found in gains(ours, theirs).items()}


def paper_gains_by_domain(ours: dict[str, float], theirs: dict[str, float]) -> dict[str, float]:
    """How much longer one drafter accepts than another by domain, from accepted lengths by domain."""
    return {f"{domain}:": ours[domain] / theirs[domain] - 1 for domain in DOMAINS}


def accepted_by_domain() -> dict[str, Estimate]:
    """DSpark's accepted length in each domain."""
    return {f"{domain}:": our_results.accepted_lengths(TABLE_1["dspark"])[domain] for domain in DOMAINS}


def domain_gaps() -> dict[str, Estimate]:
    """`domain_gap` of each domain to the next in the paper's order."""
    return {f"{first} over {second}": domain_gap(first, second) for first, second in zip(DOMAINS, DOMAINS[1:])}


def ends(drafter: str, domains) -> dict[str, Estimate]:
    """Conditional acceptance of a drafter at both positions of FALL, by domain."""
    return {f"{domain} at {position}:": at(drafter, domain, position) for domain in domains for position in FALL}


def end_falls(drafter: str, domains) -> dict[str, Estimate]:
    """By how much a drafter's acceptance at the first position of FALL exceeds that at the last, by domain."""
    return {domain: ahead((drafter, FALL[0]), (drafter, FALL[1]), domain) for domain in domains}


def falls_by_drafter() -> dict[str, Estimate]:
    """`falls` of DFlash and DSpark in each domain and in the mean over domains."""
    return {f"{label} {paper.LABELS[name]}:": falls(TABLE_1[name], domains)
            for label, domains in EACH_AND_ALL.items() for name in ("dflash", "dspark")}


def half_falls() -> dict[str, Estimate]:
    """`half_fall` in each domain and in the mean over domains."""
    return {label: half_fall(domains) for label, domains in EACH_AND_ALL.items()}


def paper_falls() -> dict[str, float]:
    """`falls_by_drafter` in Figure 2."""
    return {f"{label} {paper.LABELS[name]}:": paper_fall(name, domains)
            for label, domains in EACH_AND_ALL.items() for name in ("dflash", "dspark")}


def paper_fall(drafter: str, domains) -> float:
    """`fall` in Figure 2."""
    rates = [paper.conditional_acceptance(drafter, domain) for domain in domains]
    return float(np.mean([values[FALL[0] - 1] - values[FALL[1] - 1] for values in rates]))


def half_fall(domains) -> Estimate:
    """By how much DSpark's fall stays under half of DFlash's."""
    counts = [[our_results.counts_by_position(TABLE_1[name], domain) for domain in domains] for name in ("dspark", "dflash")]
    return paired(lambda ours, theirs: fall(theirs) / 2 - fall(ours), *counts)


def domain_gap(first: str, second: str) -> Estimate:
    """How much longer DSpark accepts in one domain than in another; their prompts differ, so nothing is paired."""
    by_domain = dict(zip(DOMAINS, our_results.tallies(TABLE_1["dspark"])))
    return bootstrap(lambda groups: mean_accepted_length(groups[:1]) - mean_accepted_length(groups[1:]),
                     [by_domain[first], by_domain[second]])


def depth_steps() -> dict[str, Estimate]:
    """What each step in depth adds to DSpark's accepted length, in the mean over the domains."""
    one, two, full = map(our_results.tallies, DEPTHS.values())
    return {"1 to 2 layers:": paired(_longer, two, one), "2 to full:": paired(_longer, full, two)}


def _longer(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    return mean_accepted_length(ours) - mean_accepted_length(theirs)


def first_step_leads() -> Estimate:
    """By how much the step from 1 to 2 layers exceeds that from 2 to full depth."""
    tallies = map(our_results.tallies, DEPTHS.values())
    return paired(lambda one, two, full: _longer(two, one) - _longer(full, two), *tallies)


def depth_margins() -> dict[str, Estimate]:
    """`depth_steps` and by how much the first exceeds the second."""
    return {**depth_steps(), "first over second": first_step_leads()}


def paper_depth_steps() -> dict[str, float]:
    """`depth_steps` from Figure 3, where full depth is 5 layers."""
    one, two, full = (float(np.mean(list(paper.by_depth("dspark", layers).values()))) for layers in (1, 2, 5))
    return {"1 to 2 layers:": two - one, "2 to full:": full - two}


def length_gain(domain: str, length: int, ours: str = "dspark", theirs: str = "dflash") -> Estimate:
    """The gain of one drafter over another at a draft length of Figure 4, in a domain or, as "all", in the mean."""
    return gains(LENGTH_STUDY[ours, length], LENGTH_STUDY[theirs, length])[domain]


def paper_gain(domain: str, length: int, ours: str = "dspark", theirs: str = "dflash") -> float:
    """`length_gain` in the paper."""
    domains = DOMAINS if domain == "all" else (domain,)
    mine, other = (np.mean([paper.by_draft_length(name, place)[length] for place in domains]) for name in (ours, theirs))
    return float(mine / other - 1)


def gain_growth(domains, short: int, long: int, ours: str = "dspark", theirs: str = "dflash") -> Estimate:
    """By how much a gain at draft length `long` exceeds that at `short`, in the mean over domains."""
    groups = [_study(name, length, domains) for length in (long, short) for name in (ours, theirs)]
    return paired(lambda a, b, c, d: _length_ratio(a, b) - _length_ratio(c, d), *groups)


def gains_by_length() -> dict[str, Estimate]:
    """DSpark over DFlash at draft lengths 8 and 16, by domain."""
    return {f"{domain}, {length}:": length_gain(domain, length) for domain in DOMAINS for length in (8, 16)}


def gains_and_growth() -> dict[str, Estimate]:
    """`gains_by_length`, and by how much each domain's gain at 16 exceeds that at 8."""
    return {**gains_by_length(), **{f"{domain}, 16 over 8": gain_growth((domain,), 8, 16) for domain in DOMAINS}}


def rnn_gains() -> dict[str, Estimate]:
    """The RNN head over the Markov head in the mean over domains, at draft lengths 4 and 16."""
    return {f"length {length}:": length_gain("all", length, "dspark_rnn", "dspark") for length in (4, 16)}


def paper_rnn_gains() -> dict[str, float]:
    """`rnn_gains` in Figure 4."""
    return {f"length {length}:": paper_gain("all", length, "dspark_rnn", "dspark") for length in (4, 16)}


def rnn_margins() -> dict[str, Estimate]:
    """What must be above zero for the RNN head's gain to be small and mostly in long drafts."""
    return {"above zero at 16": length_gain("all", 16, "dspark_rnn", "dspark"),
            "more at 16 than at 4": gain_growth(DOMAINS, 4, 16, "dspark_rnn", "dspark"),
            "less than the Markov head's": rnn_stays_behind()}


def rnn_stays_behind() -> Estimate:
    """By how much the Markov head's gain over DFlash exceeds the RNN head's over the Markov head, at length 16."""
    groups = [_study(name, 16, DOMAINS) for name in ("dspark", "dflash", "dspark_rnn")]
    return paired(lambda markov, dflash, rnn: _length_ratio(markov, dflash) - _length_ratio(rnn, markov), *groups)


def _study(drafter: str, length: int, domains) -> list[np.ndarray]:
    tallies = zip(DOMAINS, our_results.tallies(LENGTH_STUDY[drafter, length]))
    return [rows for domain, rows in tallies if domain in domains]


def _length_ratio(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    return mean_accepted_length(ours) / mean_accepted_length(theirs)


def overheads() -> dict[str, Estimate]:
    """How much longer a round of DSpark takes than DFlash's at draft lengths 4 and 16."""
    measured = our_results.measured(studies.LATENCY)
    return {f"length {length}:": round_times.overhead(measured, "dspark", length) for length in (4, 16)}


def room_under(theirs: dict[str, float], ours: dict[str, Estimate]) -> dict[str, Estimate]:
    """By how much ours stay under the paper's values."""
    return {label: Estimate(theirs[label] - found.value, theirs[label] - found.high, theirs[label] - found.low)
            for label, found in ours.items()}


def rates() -> dict[str, Estimate]:
    """The share of verified tokens that were accepted at confidence thresholds 0 and 0.9, by domain."""
    return {f"{domain}, {end}:": recorded_confidence.rate(domain, end) for domain in DOMAINS for end in (0, 0.9)}


def rate_rise(domain: str) -> Estimate:
    """How much a confidence threshold of 0.9 raises a domain's acceptance rate; the interval is the widest that both
    ends' intervals leave, as they were measured apart."""
    low, high = recorded_confidence.rate(domain, 0), recorded_confidence.rate(domain, 0.9)
    return Estimate(high.value - low.value, high.low - low.high, high.high - low.low)


def auc_range() -> dict[str, Estimate]:
    """Area under the ROC curve of the raw confidence, least and most by position."""
    return {"from": recorded_confidence.over_positions("auc", min), "to": recorded_confidence.over_positions("auc", max)}


def above_chance() -> Estimate:
    """How far the lowest area under the ROC curve of all positions is above that of a guess."""
    return shifted(recorded_confidence.over_positions("auc", min), -0.5)


def mean_ece() -> dict[str, Estimate]:
    """Mean calibration error over positions, raw and calibrated."""
    return {name: recorded_confidence.over_positions("ece", np.mean, calibrated=name == "after") for name in ("before", "after")}


def over_confidence() -> dict[str, Estimate]:
    """Calibration error of the raw confidence and by how much it promises more than comes, least and most by position."""
    measures = {"ECE": "ece", "excess": "excess"}
    return {f"{label}, {end}": recorded_confidence.over_positions(name, summary) for label, name in measures.items()
            for end, summary in (("from", min), ("to", max))}


def paper_excess() -> dict[str, float]:
    """By how much the raw confidence promises more than comes in Figure 6 (positions 1, 3, 5, 7), least and most."""
    curves = [paper.calibration(position)["before"] for position in (1, 3, 5, 7)]
    found = [float(np.average(curve["predicted"] - curve["observed"], weights=curve["count"])) for curve in curves]
    return {"excess, from": min(found), "excess, to": max(found)}


def served(gain) -> dict[str, Estimate]:
    """`gain` (recorded_serving.speed_gain or throughput_gain) of DSpark over MTP-1 at MTP-1's points in LOADS."""
    return {f"{label}:": recorded_serving.gain_over_mtp(gain, SERVED, load) for label, load in LOADS.items()}


def _served(policy: str, concurrency: int) -> dict:
    return recorded_serving.row("policies", drafter="dspark", policy=policy, concurrency=concurrency)


def budgets() -> dict[str, Estimate]:
    """Tokens that the scheduler verifies per request and step, at the lightest and the heaviest load."""
    light, heavy = _lightest_and_heaviest()
    return {f"{load} under way:": recorded_serving.with_interval("budget", _served(SERVED, load)) for load in (light, heavy)}


def budget_drop() -> Estimate:
    """By how many tokens the scheduler's budget at the lightest load exceeds that at the heaviest."""
    turns = [np.stack(recorded_serving.SERVING_MEASURES["budget"](_served(SERVED, load)), 1) for load in _lightest_and_heaviest()]

    def drop(groups):
        light, heavy = (group[:, 0].sum() / group[:, 1].sum() for group in groups)
        return light - heavy

    return bootstrap(drop, turns)


def static_loss() -> Estimate:
    """By how much one draft per request gives more throughput than seven at the heaviest load, as a fraction."""
    _, heavy = _lightest_and_heaviest()
    return shifted(recorded_serving.gain("throughput", _served("fixed 1", heavy), _served("fixed 7", heavy)), -1)


def _lightest_and_heaviest() -> tuple[int, int]:
    loads = [row["concurrency"] for row in recorded_serving.rows("policies", drafter="dspark", policy=SERVED)]
    return min(loads), max(loads)


def shifted(found: Estimate, by: float) -> Estimate:
    """An estimate and its interval, moved by a constant."""
    return Estimate(found.value + by, found.low + by, found.high + by)


def appendix_a_numbers() -> dict[str, Estimate]:
    """The numbers of Appendix A, computed exactly: throughput of 0, 1, 2 drafts in case 1, and the distribution of the
    output of the retrospective scheduler and of Algorithm 1."""
    target, drafter, table = toys.appendix_a()
    confidence_of_case_1 = torch.tensor([[drafter.first_confidence, drafter.confidence[0]]])
    _, theta = scheduling.throughput(scheduling.survival(confidence_of_case_1), table)
    numbers = dict(zip(APPENDIX_THROUGHPUT, theta.tolist()))
    policies = (scheduling.retrospective(table), scheduling.algorithm1(table))
    outputs = [enumeration.marginal(enumeration.output_distribution(target, drafter, policy, 3), 1)
               for policy in policies]
    numbers |= dict(zip(APPENDIX_OUTPUT, (found[token] for found in outputs for token in (0, 1))))
    return {label: Estimate(number, number - EXACT, number + EXACT) for label, number in numbers.items()}


def equal(theirs: dict[str, float], ours: dict[str, Estimate]) -> dict[str, Estimate]:
    """By how much ours stay within EXACT of the paper's values: above zero where they are equal."""
    room = {label: EXACT - abs(found.value - theirs[label]) for label, found in ours.items()}
    return {label: Estimate(left, left, left) for label, left in room.items()}
