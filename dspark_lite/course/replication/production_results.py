"""Results on the drafters of lesson 13: assets/measurements/production.json, written by tools/measure/production.py."""

from dspark_lite.common.files import ROOT
from dspark_lite.course.result_files import read

PRODUCTION = ROOT / "assets" / "measurements" / "production.json"


def production_rows(part: str) -> list[dict]:
    """Return the rows of a part: "v4", "heads", "trees" or "wrong_heads"."""
    return read(PRODUCTION, "make production")[part]["rows"]
