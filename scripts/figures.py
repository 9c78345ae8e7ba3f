"""Write the README's picture, assets/figures/round.png: one round, as lesson 00 draws it."""

import sys
from pathlib import Path

import matplotlib

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dspark_lite.plots import round_picture  # noqa: E402

PICTURE = ROOT / "assets" / "figures" / "round.png"


def main():
    """Draw the picture and save it; returns where."""
    matplotlib.use("Agg")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    round_picture().savefig(PICTURE, dpi=150, metadata={"Software": None})
    return PICTURE


if __name__ == "__main__":
    print(main().relative_to(ROOT))
