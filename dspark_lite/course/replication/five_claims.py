"""Five of the paper's claims on drafts in one unit (lesson 12): by how much one thing is more than
another, as a fraction."""

from typing import NamedTuple

from ..estimates import Quantity
from ..names import DOMAINS
from .claims import MATH_AND_CHAT
from .experiment_results import SEEDS, Acceptance, Length, gain
from .quantities import FIRST, LAST

DSPARK, DFLASH, EAGLE3 = (SEEDS[name] for name in ("dspark", "dflash", "eagle3"))


class Ratios(NamedTuple):
    """A claim of the ledger, by its `id`, as fractions that it says are above zero, {label: Quantity}."""

    id: str
    says: str
    more: dict[str, Quantity]


def relative_excess(one: Quantity, other: Quantity) -> Quantity:
    """Return by how much one quantity is above another, as a fraction of that."""
    return one / other - 1


FIVE = (
    Ratios(
        "longer than DFlash",
        "1  DSpark accepts longer than DFlash",
        {domain: gain(DSPARK, DFLASH, domain) for domain in DOMAINS},
    ),
    Ratios(
        "longer than Eagle3",
        "2  DSpark accepts longer than Eagle3",
        {domain: gain(DSPARK, EAGLE3, domain) for domain in DOMAINS},
    ),
    Ratios(
        "order of domains",
        "3  DSpark: longest on math, then code, then chat",
        {
            f"{longer} over {shorter}": relative_excess(
                Length(DSPARK, longer), Length(DSPARK, shorter)
            )
            for longer, shorter in zip(DOMAINS, DOMAINS[1:])
        },
    ),
    Ratios(
        "first draft of DFlash",
        "4  First draft: DFlash's beats Eagle3's",
        {
            domain: relative_excess(
                Acceptance(DFLASH, domain, FIRST), Acceptance(EAGLE3, domain, FIRST)
            )
            for domain in MATH_AND_CHAT
        },
    ),
    Ratios(
        "rise of Eagle3",
        "5  Eagle3: its last draft beats its first",
        {
            "chat": relative_excess(
                Acceptance(EAGLE3, "chat", LAST), Acceptance(EAGLE3, "chat", FIRST)
            )
        },
    ),
)
