"""The quantities that the paper's claims compare, ours with intervals and, under `paper_`, the paper's: who is ahead, what
falls, what grows.

Ours come from `experiment_results`, of drafters that answered the same prompts; the paper's from `paper`. Each quantity is of one
domain (or several), drafter and length; `claims` says of which.
"""

import numpy as np
import torch

from dspark_lite.course import paper
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.course.estimates import Estimate, bootstrap, paired, share_of_rows
from dspark_lite.course.names import DOMAINS
from dspark_lite.losslessness import enumeration, toys
from dspark_lite.scheduling import policies as scheduling
from ..measure import studies
from ..measure.evaluation import mean_accepted_length
from ..measure.studies import DEPTHS, LENGTH_STUDY, SEEDS, TABLE_1
from . import experiment_results, confidence_results, serving_results
from .experiment_results import gains

FULL_DEPTH = max(DEPTHS)  # layers
FALL = (1, 7)  # the positions between which Figure 2's lines fall or rise
SERVED = "lagged"  # the policy of the production system
APPENDIX_THROUGHPUT = ("0 drafts:", "1 draft:", "2 drafts:")
APPENDIX_OUTPUT = ("retrospective, A:", "retrospective, B:", "lossless, A:", "lossless, B:")
EXACT = 1e-6  # rounding of a number that is computed, not measured


def at(domain: str, drafter: str, position: int) -> Estimate:
    """Conditional acceptance of a drafter of Table 1 at a position (from 1); raises DSparkLiteError where hardly a round
    came so far."""
    found = experiment_results.conditional_acceptance(TABLE_1[drafter], domain)[position - 1]
    if found is None:
        raise DSparkLiteError(
            f"hardly a round of {paper.LABELS[drafter]} came to position {position} on {domain}; measure "
            "more prompts"
        )
    return found


def paper_at(domain: str, drafter: str, position: int) -> float:
    """`at` in Figure 2."""
    return paper.conditional_acceptance(drafter, domain)[position - 1]


def acceptance(counts: np.ndarray, position: int) -> np.ndarray:
    """Conditional acceptance [...] at a position (from 1) from counts [..., N, gamma, 2]; nan where no round reached it."""
    return share_of_rows(counts[..., position - 1, :])


def ahead(domain: str, first: tuple[str, int], second: tuple[str, int]) -> Estimate:
    """How much higher the conditional acceptance of one (drafter, position) is than that of another."""
    counts = [
        [experiment_results.counts_by_position(TABLE_1[drafter], domain)]
        for drafter, _ in (first, second)
    ]
    return paired(lambda a, b: acceptance(a[0], first[1]) - acceptance(b[0], second[1]), *counts)


def paper_ahead(domain: str, first: tuple[str, int], second: tuple[str, int]) -> float:
    """`ahead` in Figure 2."""
    return paper_at(domain, *first) - paper_at(domain, *second)


def fall(counts: list[np.ndarray]) -> np.ndarray:
    """How far conditional acceptance falls from position 1 to 7, the mean over domains."""
    return np.mean(
        [acceptance(rows, FALL[0]) - acceptance(rows, FALL[1]) for rows in counts], axis=0
    )


def falls(domains, recipe: str) -> Estimate:
    """`fall` of a recipe's drafter."""
    return paired(
        fall, [experiment_results.counts_by_position(recipe, domain) for domain in domains]
    )


def paper_fall(domains, drafter: str) -> float:
    """`fall` in Figure 2."""
    return float(
        np.mean(
            [
                paper_at(domain, drafter, FALL[0]) - paper_at(domain, drafter, FALL[1])
                for domain in domains
            ]
        )
    )


def half_fall(domains) -> Estimate:
    """By how much DSpark's fall stays under half of DFlash's."""
    counts = [
        [experiment_results.counts_by_position(TABLE_1[name], domain) for domain in domains]
        for name in ("dspark", "dflash")
    ]
    return paired(lambda ours, theirs: fall(theirs) / 2 - fall(ours), *counts)


def paper_half_fall(domains) -> float:
    """`half_fall` in Figure 2."""
    return paper_fall(domains, "dflash") / 2 - paper_fall(domains, "dspark")


def recipe_gain(place: str, ours: str, theirs: str) -> Estimate:
    """How much longer recipe `ours` accepts than `theirs`, in a domain or, as "all", in the mean over domains."""
    return gains(ours, theirs)[place]


def lead(place: str, rival: str) -> Estimate:
    """How much longer DSpark accepts than a rival, over the seeds of both, in a domain or, as "all", in the mean over domains."""
    return experiment_results.gains_over_seeds(SEEDS["dspark"], SEEDS[rival])[place]


def paper_table_1_gain(domain: str, rival: str) -> float:
    """DSpark over a rival in Table 1 (Qwen3-4B)."""
    ours, theirs = (
        paper.domain_means(paper.TARGETS[0], name)[domain] for name in ("dspark", rival)
    )
    return ours / theirs - 1


def paper_two_layer_gain(domain: str) -> float:
    """DSpark of 2 layers over DFlash of 5 in Figure 3."""
    return paper.by_depth("dspark", 2)[domain] / paper.by_depth("dflash", 5)[domain] - 1


def domain_gap(first: str, second: str) -> Estimate:
    """How much longer DSpark accepts in one domain than in another; their prompts differ, so nothing is paired."""
    by_domain = dict(zip(DOMAINS, experiment_results.tallies(TABLE_1["dspark"])))
    return bootstrap(
        lambda groups: mean_accepted_length(groups[:1]) - mean_accepted_length(groups[1:]),
        [by_domain[first], by_domain[second]],
    )


def paper_domain_gap(first: str, second: str) -> float:
    """`domain_gap` in Table 1 (Qwen3-4B)."""
    means = paper.domain_means(paper.TARGETS[0], "dspark")
    return means[first] - means[second]


def _longer(ours: list[np.ndarray], theirs: list[np.ndarray]) -> np.ndarray:
    return mean_accepted_length(ours) - mean_accepted_length(theirs)


def depth_step(layers: tuple[int, int]) -> Estimate:
    """What the first number of layers adds to DSpark's accepted length at the second, in the mean over the domains."""
    return paired(_longer, *(experiment_results.tallies(DEPTHS[count]) for count in layers))


def first_step_leads() -> Estimate:
    """By how much the step from 1 to 2 layers exceeds that from 2 to full depth."""
    tallies = map(experiment_results.tallies, DEPTHS.values())
    return paired(lambda one, two, full: _longer(two, one) - _longer(full, two), *tallies)


def paper_depth_step(layers: tuple[int, int]) -> float:
    """`depth_step` in Figure 3; `layers` are ours, and the paper's are those of PAPER_DEPTHS."""
    more, fewer = (
        np.mean(list(paper.by_depth("dspark", studies.PAPER_DEPTHS[count]).values()))
        for count in layers
    )
    return float(more - fewer)


def paper_first_step_leads() -> float:
    """`first_step_leads` in Figure 3."""
    return paper_depth_step((2, 1)) - paper_depth_step((FULL_DEPTH, 2))


def length_gain(domain: str, length: int, ours: str = "dspark", theirs: str = "dflash") -> Estimate:
    """`recipe_gain` of one drafter over another at a draft length of Figure 4."""
    return recipe_gain(domain, LENGTH_STUDY[ours, length], LENGTH_STUDY[theirs, length])


def paper_gain(domain: str, length: int, ours: str = "dspark", theirs: str = "dflash") -> float:
    """`length_gain` in the paper."""
    domains = DOMAINS if domain == "all" else (domain,)
    mine, other = (
        np.mean([paper.by_draft_length(name, place)[length] for place in domains])
        for name in (ours, theirs)
    )
    return float(mine / other - 1)


def gain_growth(
    domains, short: int, long: int, ours: str = "dspark", theirs: str = "dflash"
) -> Estimate:
    """By how much a gain at draft length `long` exceeds that at `short`, in the mean over domains."""
    groups = [
        _tallies_of(LENGTH_STUDY[name, length], domains)
        for length in (long, short)
        for name in (ours, theirs)
    ]
    return paired(lambda a, b, c, d: _length_ratio(a, b) - _length_ratio(c, d), *groups)


def paper_gain_growth(
    domain: str, short: int, long: int, ours: str = "dspark", theirs: str = "dflash"
) -> float:
    """`gain_growth` in Figure 4, of a domain or, as "all", in the mean over domains."""
    return paper_gain(domain, long, ours, theirs) - paper_gain(domain, short, ours, theirs)


def rnn_stays_behind() -> Estimate:
    """By how much the Markov head's gain over DFlash exceeds the RNN head's over the Markov head, at length 16."""
    groups = [
        _tallies_of(LENGTH_STUDY[name, 16], DOMAINS) for name in ("dspark", "dflash", "dspark_rnn")
    ]
    return paired(
        lambda markov, dflash, rnn: _length_ratio(markov, dflash) - _length_ratio(rnn, markov),
        *groups,
    )


def paper_rnn_stays_behind() -> float:
    """`rnn_stays_behind` in Figure 4."""
    return paper_gain("all", 16) - paper_gain("all", 16, "dspark_rnn", "dspark")


def _tallies_of(recipe: str, domains) -> list[np.ndarray]:
    return [
        rows
        for domain, rows in zip(DOMAINS, experiment_results.tallies(recipe))
        if domain in domains
    ]


def _length_ratio(ours: list[np.ndarray], theirs: list[np.ndarray]) -> np.ndarray:
    return mean_accepted_length(ours) / mean_accepted_length(theirs)


def round_overhead(length: int) -> Estimate:
    """How much longer a round of DSpark takes than DFlash's at a draft length."""
    return experiment_results.overhead(
        experiment_results.measured(studies.LATENCY), "dspark", length
    )


def room_under(theirs: dict[str, float], ours: dict[str, Estimate]) -> dict[str, Estimate]:
    """By how much ours stay under the paper's values."""
    return {label: found.scaled(-1, theirs[label]) for label, found in ours.items()}


def rate_rise(domain: str) -> Estimate:
    """How much a confidence threshold of 0.9 raises a domain's acceptance rate; the interval is the widest that both
    ends' intervals leave, as they were measured apart."""
    low, high = (confidence_results.rate(domain, least) for least in (0, 0.9))
    return Estimate(high.value - low.value, high.low - low.high, high.high - low.low)


def paper_rate_rise(domain: str) -> float:
    """`rate_rise` in Figure 5."""
    rates = paper.threshold_sweep(domain)["rate"]
    return float(rates[-1] - rates[0])


def above_chance() -> Estimate:
    """How far the lowest area under the ROC curve of all positions is above that of a guess."""
    return confidence_results.over_positions("auc", min).scaled(1, -0.5)


def paper_excess(summary) -> float:
    """By how much the raw confidence promises more than comes in Figure 6: `summary` (min or max) of its four positions."""
    curves = [paper.calibration(position)["before"] for position in (1, 3, 5, 7)]
    return summary(
        float(np.average(curve["predicted"] - curve["observed"], weights=curve["count"]))
        for curve in curves
    )


def paper_gain_in_ece() -> float:
    """How much lower the mean ECE of Figure 6's four positions is after the calibration."""
    found = [paper.calibration(position) for position in (1, 3, 5, 7)]
    return float(np.mean([one["ece_before"] - one["ece_after"] for one in found]))


def _served(policy: str, concurrency: int) -> dict:
    return serving_results.row("policies", drafter="dspark", policy=policy, concurrency=concurrency)


def _lightest_and_heaviest() -> tuple[int, int]:
    loads = [
        row["concurrency"]
        for row in serving_results.rows("policies", drafter="dspark", policy=SERVED)
    ]
    return min(loads), max(loads)


def budgets() -> dict[str, Estimate]:
    """Tokens that the scheduler verifies per request and step, at the lightest and the heaviest load."""
    return {
        f"{load} under way:": serving_results.with_interval("budget", _served(SERVED, load))
        for load in _lightest_and_heaviest()
    }


def budget_drop() -> Estimate:
    """By how many tokens the scheduler's budget at the lightest load exceeds that at the heaviest."""
    turns = [
        serving_results.totals_by_turn("budget", _served(SERVED, load))
        for load in _lightest_and_heaviest()
    ]
    return bootstrap(lambda groups: share_of_rows(groups[0]) - share_of_rows(groups[1]), turns)


def paper_budget_drop() -> float:
    """By how many tokens Figure 8's fitted budget falls from its first load to its last, the mean of the two models."""
    fits = [
        model["verification_budget"]["fit"]["DSpark-5"]
        for model in paper.numbers()["figure8"]["models"].values()
    ]
    return float(np.mean([fit[0][1] - fit[-1][1] for fit in fits]))


def static_loss(length: int) -> Estimate:
    """By how much MTP-1 gives more throughput at the heaviest load than a DSpark of which this many drafts are always verified, as a
    fraction."""
    _, heavy = _lightest_and_heaviest()
    rival = serving_results.row("policies", drafter="mtp", policy="all", concurrency=heavy)
    return serving_results.gain("throughput", rival, _served(f"fixed {length}", heavy)).scaled(
        1, -1
    )


def appendix_a_numbers() -> dict[str, Estimate]:
    """The numbers of Appendix A, computed exactly: throughput of 0, 1, 2 drafts in case 1, and the distribution of the
    output of the retrospective scheduler and of Algorithm 1."""
    target, drafter, table = toys.appendix_a()
    confidence_of_case_1 = torch.tensor([[drafter.first_confidence, drafter.confidence[0]]])
    _, theta = scheduling.throughput(scheduling.survival(confidence_of_case_1), table)
    numbers = dict(zip(APPENDIX_THROUGHPUT, theta.tolist()))
    policies = (scheduling.retrospective(table), scheduling.algorithm1(table))
    outputs = [
        enumeration.marginal(enumeration.output_distribution(target, drafter, policy, 3), 1)
        for policy in policies
    ]
    numbers |= dict(zip(APPENDIX_OUTPUT, (found[token] for found in outputs for token in (0, 1))))
    return {
        label: Estimate(number, number - EXACT, number + EXACT) for label, number in numbers.items()
    }


def equal(theirs: dict[str, float], ours: dict[str, Estimate]) -> dict[str, Estimate]:
    """By how much ours stay within EXACT of the paper's values: above zero where they are equal."""
    room = {label: EXACT - abs(found.value - theirs[label]) for label, found in ours.items()}
    return {label: Estimate(left, left, left) for label, left in room.items()}
