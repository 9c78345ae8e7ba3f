"""The claims on Table 1 and Figures 2 and 3 that the deep world tests, too: a claim by how it begins, and its margins there.

Table 1 and Figure 2 are of drafters that made two passes over the answers, gains over all seeds, positions of the first seed;
Figure 3 is of drafters that made one.
"""

from collections.abc import Callable

from dspark_lite.common.estimates import Estimate
from dspark_lite.common.names import DOMAINS
from ..measure.studies import DEEP, DEEP_DEPTHS, DEEP_PASSES
from . import our_results, quantities, worlds
from .our_results import PLACES

CLAIMED_PASSES = 2  # over the answers, of Table 1 and Figure 2
TRAINED = {name: recipes[0] for name, recipes in DEEP_PASSES[CLAIMED_PASSES].items()}  # drafter: recipe of the first seed
FULL = max(DEEP_DEPTHS)


def _longer_than(rival: str) -> dict[str, Estimate]:
    found = worlds.leads(rival)[CLAIMED_PASSES]
    return {title: found[place] for title, place in PLACES.items()}


def _gains(ours: str, theirs: str) -> dict[str, Estimate]:
    found = our_results.gains(ours, theirs)
    return {title: found[place] for title, place in PLACES.items()}


def _ahead(first: tuple[str, int], second: tuple[str, int], domains=DOMAINS) -> dict[str, Estimate]:
    return {domain: quantities.ahead(domain, first, second, TRAINED) for domain in domains}


def _half_falls() -> dict[str, Estimate]:
    groups = {**{domain: (domain,) for domain in DOMAINS}, "mean": DOMAINS}
    return {label: quantities.half_fall(domains, TRAINED) for label, domains in groups.items()}


def _domain_gaps() -> dict[str, Estimate]:
    pairs = (("math", "code"), ("code", "chat"))
    return {f"{first} over {second}": quantities.domain_gap(first, second, TRAINED["dspark"]) for first, second in pairs}


def _depth_steps() -> dict[str, Estimate]:
    steps = {"1 to 2 layers": (2, 1), f"2 to {FULL}": (FULL, 2)}
    return {**{label: quantities.depth_step(layers, DEEP_DEPTHS) for label, layers in steps.items()},
            "first over second": quantities.first_step_leads(DEEP_DEPTHS)}


DEEP_CLAIMS: dict[str, tuple[int, Callable[[], dict[str, Estimate]]]] = {  # how a claim begins: passes, its margins
    "DSpark accepts longer than Eagle3 in the mean and in every domain": (CLAIMED_PASSES, lambda: _longer_than("eagle3")),
    "DSpark accepts longer than DFlash in the mean and in every domain": (CLAIMED_PASSES, lambda: _longer_than("dflash")),
    "DSpark's accepted length is longest on math, shorter on code, shortest on chat": (CLAIMED_PASSES, _domain_gaps),
    "DFlash's first draft is accepted more often than Eagle3's": (
        CLAIMED_PASSES, lambda: _ahead(("dflash", 1), ("eagle3", 1), ("math", "chat"))),
    "Eagle3's conditional acceptance rises along the block on chat": (
        CLAIMED_PASSES, lambda: _ahead(("eagle3", 7), ("eagle3", 1), ("chat",))),
    "DFlash's conditional acceptance falls along the block": (
        CLAIMED_PASSES, lambda: _ahead(("dflash", 1), ("dflash", 7), ("code", "chat"))),
    "DSpark's first draft is accepted more often than DFlash's in every domain": (CLAIMED_PASSES, lambda: _ahead(("dspark", 1), ("dflash", 1))),
    "from position 1 to 7 DSpark's acceptance falls less than half as much as DFlash's": (CLAIMED_PASSES, _half_falls),
    "a DSpark of 2 layers accepts longer than a DFlash of full depth": (1, lambda: _gains(DEEP_DEPTHS[2], DEEP["dflash"][0])),
    "accepted length grows with depth": (1, _depth_steps)}


def claimed(says: str) -> str | None:
    """How the claim that says this is known in DEEP_CLAIMS; None where the deep world does not test it."""
    return next((begins for begins in DEEP_CLAIMS if says.startswith(begins)), None)


def deep_margins(says: str) -> dict[str, Estimate]:
    """The margins in the deep world of the claim that says this, by label; none where it is not tested there. Raises
    DSparkLiteError where a measurement is missing."""
    begins = claimed(says)
    return {} if begins is None else DEEP_CLAIMS[begins][1]()
