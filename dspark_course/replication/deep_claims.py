"""The claims that the deep world tests, too: a claim by how it begins, and its margins there.

Table 1 and Figure 2 are of drafters that made two passes over the answers, gains over all seeds, positions of the first seed;
Figures 3, 4, 7 and 8 are of drafters that made one; confidences are those of a DSpark of two passes. The quantities are those of
`claims`, of other recipes.
"""

from collections.abc import Callable

from dspark_lite.common.estimates import Estimate
from dspark_lite.common.names import DOMAINS
from ..measure.studies import DEEP, DEEP_DEPTHS, DEEP_LENGTH_STUDY, DEEP_PASSES
from . import our_results, quantities, recorded_confidence, recorded_serving
from .claims import EACH_AND_ALL, LOADS, STATIC_LENGTHS, each, joined
from .our_results import PLACES
from .quantities import SERVED, ahead

CLAIMED_PASSES = 2  # over the answers, of Table 1 and Figure 2
SEEDS = DEEP_PASSES[CLAIMED_PASSES]  # drafter: recipes
TRAINED = {"": {name: recipes[0] for name, recipes in SEEDS.items()}}  # an axis: the recipe of each drafter's first seed
DEPTHS_THERE = {"": DEEP_DEPTHS}  # an axis
FULL = max(DEEP_DEPTHS)
BLOCKS = (["dspark"], ["dflash"], {"": DEEP_LENGTH_STUDY})  # axes: who drafts longer than whom, in which study
WORLD, SERVER = ("deep",), (recorded_serving.BESIDE_MTP,)  # axes


def lead(place: str, rival: str) -> Estimate:
    """How much longer DSpark accepts than a rival, over all seeds of both, in a domain or, as "all", in the mean."""
    return our_results.gains_over_seeds(SEEDS["dspark"], SEEDS[rival])[place]


def gap(first: str, second: str) -> Callable[[], dict[str, Estimate]]:
    """How much longer DSpark accepts in one domain than in another."""
    return each("{} over {}", quantities.domain_gap, [first], [second], [SEEDS["dspark"][0]])


DEEP_CLAIMS: dict[str, tuple[int, Callable[[], dict[str, Estimate]]]] = {  # how a claim begins: passes, its margins
    "DSpark accepts longer than Eagle3 in the mean and in every domain": (CLAIMED_PASSES, each("{}", lead, PLACES, ["eagle3"])),
    "DSpark accepts longer than DFlash in the mean and in every domain": (CLAIMED_PASSES, each("{}", lead, PLACES, ["dflash"])),
    "DSpark's accepted length is longest on math, shorter on code, shortest on chat": (
        CLAIMED_PASSES, joined(gap("math", "code"), gap("code", "chat"))),
    "DFlash's first draft is accepted more often than Eagle3's": (
        CLAIMED_PASSES, each("{}", ahead, ("math", "chat"), [("dflash", 1)], [("eagle3", 1)], TRAINED)),
    "Eagle3's conditional acceptance rises along the block on chat": (
        CLAIMED_PASSES, each("{}", ahead, ["chat"], [("eagle3", 7)], [("eagle3", 1)], TRAINED)),
    "DFlash's conditional acceptance falls along the block": (
        CLAIMED_PASSES, each("{}", ahead, ("code", "chat"), [("dflash", 1)], [("dflash", 7)], TRAINED)),
    "DSpark's first draft is accepted more often than DFlash's in every domain": (
        CLAIMED_PASSES, each("{}", ahead, DOMAINS, [("dspark", 1)], [("dflash", 1)], TRAINED)),
    "from position 1 to 7 DSpark's acceptance falls less than half as much as DFlash's": (
        CLAIMED_PASSES, each("{}", quantities.half_fall, EACH_AND_ALL, TRAINED)),
    "a DSpark of 2 layers accepts longer than a DFlash of full depth": (
        1, each("{}", quantities.recipe_gain, PLACES, [DEEP_DEPTHS[2]], [DEEP["dflash"][0]])),
    "accepted length grows with depth": (
        1, joined(each("{}", quantities.depth_step, {"1 to 2 layers": (2, 1), f"2 to {FULL}": (FULL, 2)}, DEPTHS_THERE),
                  each("first over second", quantities.first_step_leads, DEPTHS_THERE))),
    "DSpark accepts longer than DFlash at draft lengths 8 and 16": (
        1, joined(each("{}, {}", quantities.length_gain, DOMAINS, (8, 16), *BLOCKS),
                  each("{0}, {2} over {1}", quantities.gain_growth, {name: (name,) for name in DOMAINS}, [8], [16], *BLOCKS))),
    "at the same speed per user DSpark gives more throughput": (
        1, each("{2}", recorded_serving.gain_over_mtp, [recorded_serving.throughput_gain], [SERVED], LOADS, SERVER)),
    "at the same throughput DSpark serves each user faster": (
        1, each("{2}", recorded_serving.gain_over_mtp, [recorded_serving.speed_gain], [SERVED], LOADS, SERVER)),
    "the scheduler verifies fewer tokens per request as the load grows": (1, each("", quantities.budget_drop, SERVER)),
    "under high load a static block of several drafts gives less": (1, each("{} drafts", quantities.static_loss, STATIC_LENGTHS, SERVER)),
    "a confidence threshold of 0.9 raises the share": (CLAIMED_PASSES, each("{}", quantities.rate_rise, DOMAINS, WORLD)),
    "the raw confidence tells accepted from refused drafts": (CLAIMED_PASSES, each("above chance", quantities.above_chance, WORLD)),
    "the raw confidence is over-confident": (
        CLAIMED_PASSES, each("least excess", recorded_confidence.over_positions, ["excess"], [min], [False], WORLD)),
    "sequential temperature scaling lowers the expected calibration error": (
        CLAIMED_PASSES, each("", recorded_confidence.gain_in_ece, WORLD))}


def claimed(says: str) -> str | None:
    """How the claim that says this is known in DEEP_CLAIMS; None where the deep world does not test it."""
    return next((begins for begins in DEEP_CLAIMS if says.startswith(begins)), None)


def deep_margins(says: str) -> dict[str, Estimate]:
    """The margins in the deep world of the claim that says this, by label; none where it is not tested there. Raises
    DSparkLiteError where a measurement is missing."""
    begins = claimed(says)
    return {} if begins is None else DEEP_CLAIMS[begins][1]()
