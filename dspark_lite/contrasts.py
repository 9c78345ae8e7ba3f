"""The quantities that the paper's claims compare, ours with intervals and the paper's: who is ahead, what falls, what
grows.

Ours come from `miniature`, of drafters that answered the same prompts; the paper's from `paper`.
"""

import numpy as np

from . import confidence, latency, miniature, paper
from .errors import DSparkLiteError
from .evaluation import Estimate, bootstrap, mean_accepted_length
from .miniature import DEPTHS, LENGTH_STUDY, TABLE_1, gains, paired
from .training.corpus import DOMAINS

FALL = (1, 7)  # the positions between which Figure 2's lines fall or rise


def acceptance(counts: np.ndarray, position: int) -> float:
    """Conditional acceptance at a position (from 1) from counts [N, gamma, 2]; nan where no round reached it."""
    accepted, reached = counts[:, position - 1].sum(0)
    return accepted / reached if reached else float("nan")


def at(drafter: str, domain: str, position: int) -> Estimate:
    """Conditional acceptance of a drafter of Table 1 at a position (from 1); raises DSparkLiteError where hardly a round
    came so far."""
    found = miniature.conditional_acceptance(TABLE_1[drafter], domain)[position - 1]
    if found is None:
        raise DSparkLiteError(f"hardly a round of {paper.LABELS[drafter]} came to position {position} on {domain}; measure "
                              "more prompts")
    return found


def ahead(first: tuple[str, int], second: tuple[str, int], domain: str) -> Estimate:
    """How much higher the conditional acceptance of one (drafter, position) is than that of another."""
    counts = [[miniature.position_counts(TABLE_1[drafter], domain)] for drafter, _ in (first, second)]
    return paired(lambda a, b: acceptance(a[0], first[1]) - acceptance(b[0], second[1]), *counts)


def fall(counts: list[np.ndarray]) -> float:
    """How far conditional acceptance falls from position 1 to 7, the mean over domains."""
    return float(np.mean([acceptance(rows, FALL[0]) - acceptance(rows, FALL[1]) for rows in counts]))


def falls(recipe: str, domains) -> Estimate:
    """`fall` of a recipe's drafter."""
    return paired(fall, [miniature.position_counts(recipe, domain) for domain in domains])


def paper_fall(drafter: str, domains) -> float:
    """`fall` in Figure 2."""
    rates = [paper.conditional_acceptance(drafter, domain) for domain in domains]
    return float(np.mean([values[FALL[0] - 1] - values[FALL[1] - 1] for values in rates]))


def half_fall(domains) -> Estimate:
    """By how much DSpark's fall stays under half of DFlash's."""
    counts = [[miniature.position_counts(TABLE_1[name], domain) for domain in domains] for name in ("dspark", "dflash")]
    return paired(lambda ours, theirs: fall(theirs) / 2 - fall(ours), *counts)


def domain_gap(first: str, second: str) -> Estimate:
    """How much longer DSpark accepts in one domain than in another; their prompts differ, so nothing is paired."""
    by_domain = dict(zip(DOMAINS, miniature.tallies(TABLE_1["dspark"])))
    return bootstrap(lambda groups: mean_accepted_length(groups[:1]) - mean_accepted_length(groups[1:]),
                     [by_domain[first], by_domain[second]])


def depth_steps() -> dict[str, Estimate]:
    """What each step in depth adds to DSpark's accepted length, in the mean over the domains."""
    one, two, full = map(miniature.tallies, DEPTHS.values())
    return {"1 to 2 layers:": paired(_longer, two, one), "2 to full:": paired(_longer, full, two)}


def _longer(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    return mean_accepted_length(ours) - mean_accepted_length(theirs)


def first_step_leads() -> Estimate:
    """By how much the step from 1 to 2 layers exceeds that from 2 to full depth."""
    tallies = map(miniature.tallies, DEPTHS.values())
    return paired(lambda one, two, full: _longer(two, one) - _longer(full, two), *tallies)


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
    mine, other = (np.mean([paper.by_length(name, place)[length] for place in domains]) for name in (ours, theirs))
    return float(mine / other - 1)


def gain_growth(domains, short: int, long: int, ours: str = "dspark", theirs: str = "dflash") -> Estimate:
    """By how much a gain at draft length `long` exceeds that at `short`, in the mean over domains."""
    groups = [_study(name, length, domains) for length in (long, short) for name in (ours, theirs)]
    return paired(lambda a, b, c, d: _ratio(a, b) - _ratio(c, d), *groups)


def rnn_stays_behind() -> Estimate:
    """By how much the Markov head's gain over DFlash exceeds the RNN head's over the Markov head, at length 16."""
    groups = [_study(name, 16, DOMAINS) for name in ("dspark", "dflash", "dspark_rnn")]
    return paired(lambda markov, dflash, rnn: _ratio(markov, dflash) - _ratio(rnn, markov), *groups)


def _study(drafter: str, length: int, domains) -> list[np.ndarray]:
    tallies = zip(DOMAINS, miniature.tallies(LENGTH_STUDY[drafter, length]))
    return [rows for domain, rows in tallies if domain in domains]


def _ratio(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    return mean_accepted_length(ours) / mean_accepted_length(theirs)


def overheads() -> dict[str, Estimate]:
    """How much longer a round of DSpark takes than DFlash's at draft lengths 4 and 16."""
    measured = miniature.measured(miniature.LATENCY)
    return {f"length {length}:": latency.overhead(measured, "dspark", length) for length in (4, 16)}


def room_under(theirs: dict[str, float], ours: dict[str, Estimate]) -> dict[str, Estimate]:
    """By how much ours stay under the paper's values."""
    return {label: Estimate(theirs[label] - found.value, theirs[label] - found.high, theirs[label] - found.low)
            for label, found in ours.items()}


def rate_rise(domain: str) -> Estimate:
    """How much a confidence threshold of 0.9 raises a domain's acceptance rate; the interval is the widest that both
    ends' intervals leave, as they were measured apart."""
    low, high = confidence.rate(domain, 0), confidence.rate(domain, 0.9)
    return Estimate(high.value - low.value, high.low - low.high, high.high - low.low)


def above_chance() -> Estimate:
    """How far the lowest area under the ROC curve of all positions is above that of a guess."""
    least = confidence.over_positions("auc", min)
    return Estimate(*(end - 0.5 for end in (least.value, least.low, least.high)))
