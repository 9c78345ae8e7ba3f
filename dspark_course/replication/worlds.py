"""The two miniature worlds side by side: is either like the real one, and who wins in which?

The first world's text is shallow: a small language model knows it by heart. The deeper one has an encyclopedia to recall,
sums to compute and many ways to say a thing. The gates are measured by `python -m dspark_lite world`.
"""

from dspark_lite.common.formats import interval, markdown
from dspark_lite.common.names import DRAFTER_LABELS
from dspark_lite.common.recorded import read
from ..measure.gates import depth_gate, ending_gate
from ..measure.studies import DEEP, DEEP_ONE_LAYER, DEPTHS, TABLE_1
from . import our_results

FOLDER = our_results.MEASUREMENTS.parent / "worlds"
WORLDS = {"shallow": {name: TABLE_1[name] for name in DEEP}, "deep": DEEP}  # world: drafter: recipe
WORLD_PROFILES = {"shallow": "tiny", "deep": "deep"}
ONE_LAYER = {"shallow": DEPTHS[1], "deep": DEEP_ONE_LAYER}  # world: recipe


def gates(world: str) -> dict[tuple[str, str], dict]:
    """The gates of a world, by name and domain: those of target and text as recorded, those of the drafters from their rows."""
    profile = WORLD_PROFILES[world]
    full, one_layer = (our_results.measured(recipe)["rows"] for recipe in (WORLDS[world]["dspark"], ONE_LAYER[world]))
    recorded = read(FOLDER / f"{profile}.json", f"DSPARK_PROFILE={profile} python -m dspark_lite world --json {profile}.json")["gates"]
    return {(row["name"], row["domain"]): row for row in [*recorded, depth_gate(full, one_layer), ending_gate(full)]}


def gates_table() -> str:
    """Each gate: its bounds, what either world has (bold where the bounds are not met), and the real world's figure."""
    found = {world: gates(world) for world in WORLDS}
    rows = []
    for key, row in {**found["deep"], **found["shallow"]}.items():
        cells = [_cell(found[world].get(key)) for world in WORLDS]
        rows.append([*key, _bounds(row), *cells, row["real"] or "-"])
    return markdown(["gate", "domain", "asked for", *WORLDS, "the real world"], rows)


def _cell(row: dict | None) -> str:
    if row is None:
        return "-"
    return f"{row['value']:.2f}" if row["met"] else f"**{row['value']:.2f}**"


def _bounds(row: dict) -> str:
    parts = [f"{words} {row[name]:g}" for name, words in (("at_least", "≥"), ("at_most", "≤")) if row[name] is not None]
    return ", ".join(parts) or "reported"


def gains_table() -> str:
    """How much longer DSpark accepts than each rival in either world, by domain and in the mean."""
    rows = []
    for world, recipes in WORLDS.items():
        for rival in [name for name in recipes if name != "dspark"]:
            found = our_results.gains(recipes["dspark"], recipes[rival])
            rows.append([world, DRAFTER_LABELS[rival], *(interval(found[place], "percent") for place in our_results.PLACES.values())])
    return markdown(["world", "DSpark over", *our_results.PLACES], rows)
