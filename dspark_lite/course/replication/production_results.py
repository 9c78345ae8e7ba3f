"""Results on the drafters of lesson 13: assets/measurements/production.json, written by tools/measure/production.py."""

from ...common.files import ROOT
from ..result_files import read

PRODUCTION = ROOT / "assets" / "measurements" / "production.json"


def production_rows(part: str) -> list[dict]:
    """Return the rows of a part: "v4", "heads", "trees" or "wrong_heads"."""
    return read(PRODUCTION, "make production")[part]["rows"]
