"""One value per quantity: lessons and pages quote stored measurements as `⟦canon.name⟧`.

Nothing is stored: the values are computed from assets/measurements whenever a text is filled in, so a new measurement changes
every text that quotes it at the next build.
"""

from functools import cache

from ...common.files import ROOT
from ..measure.studies import TABLE_1
from ..result_files import read
from . import experiment_results


@cache
def canonical_values() -> dict[str, float]:
    """Return the values by name, for the drafters of Table 1 (`dspark`, `dflash`, `eagle3`, `mtp`, `small_lm`).

    `tau_dspark_code`: tokens per round, 100 prompts per domain at temperature 1; `tau_dspark` is the mean of the domains.
    `gain_over_dflash_chat`: how much longer DSpark accepts than this drafter, as a fraction, with `_low` and `_high` for the ends
    of the 95 % interval. `speedup_dspark_code`: times as fast as plain decoding, from the stored benchmark.
    """
    values = {}
    for drafter, recipe in TABLE_1.items():
        lengths = experiment_results.accepted_lengths(recipe)
        values |= {
            _value_name("tau", drafter, place): length.value for place, length in lengths.items()
        }
        if drafter != "dspark":
            for place, gain in experiment_results.gains(TABLE_1["dspark"], recipe).items():
                name = _value_name("gain_over", drafter, place)
                values |= {name: gain.value, f"{name}_low": gain.low, f"{name}_high": gain.high}
    bench = read(
        ROOT / "assets" / "measurements" / "bench.json",
        "OMP_NUM_THREADS=1 python -m dspark_lite bench --json assets/measurements/bench.json",
    )
    values |= {
        _value_name("speedup", row["drafter"], row["domain"]): row["speedup"]
        for row in bench["rows"]
    }
    return values | {
        _value_name("speedup", drafter, "all"): speedup
        for drafter, speedup in bench["macro_speedup"].items()
    }


def _value_name(quantity: str, drafter: str, place: str) -> str:
    """Return a name such as `tau_dspark_code`; the mean of the domains has no place in it."""
    return "_".join([quantity, drafter] if place == "all" else [quantity, drafter, place])
