"""Bytes, seconds, numbers with intervals and tables, for a reader."""

import math

from .estimates import Estimate

# all but tokens are fractions
FORMS = {
    "tokens": "{:.2f}",
    "percent": "{:+.1%}",
    "rate": "{:.1%}",
    "share": "{:.3f}",
}


def size(count: float) -> str:
    """Return bytes for a reader, in powers of ten as disks are sold: "38.0 TB"."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000


def duration(seconds: float) -> str:
    """Return seconds for a reader: "4 min", "2.5 h", "30 d"."""
    for unit, length, limit in (("s", 1, 90), ("min", 60, 90 * 60), ("h", 3600, 48 * 3600)):
        if seconds < limit:
            return (
                f"{seconds / length:.1f} h"
                if unit == "h"
                else f"{math.ceil(seconds / length)} {unit}"
            )
    return f"{seconds / 86400:,.0f} d"


def number(value: float, unit: str) -> str:
    """Return a number in its unit, one of FORMS."""
    return FORMS[unit].format(value)


def interval(found: Estimate | None, unit: str) -> str:
    """Return an estimate with its interval, or a dash."""
    if found is None:
        return "-"
    return f"{number(found.value, unit)} [{number(found.low, unit)}, {number(found.high, unit)}]"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Return a markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |" for line in lines
    )
