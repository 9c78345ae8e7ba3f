"""The two miniature worlds side by side: is either like the real one, and who wins in which?

The first world's text is shallow: a small language model knows it by heart. The deeper one has an encyclopedia to recall,
sums to compute and many ways to say a thing. The gates are measured by `python -m dspark_lite world`.
"""

from dspark_lite.common.formats import interval, markdown
from dspark_lite.common.names import DRAFTER_LABELS
from dspark_lite.common.recorded import read
from ..measure.gates import depth_gate, ending_gate
from ..measure.studies import DEEP, DEEP_DEPTHS, DEEP_TWO_PASSES, DEPTHS, TABLE_1
from . import our_results

FOLDER = our_results.MEASUREMENTS.parent / "worlds"
WORLDS = {"shallow": {name: (TABLE_1[name],) for name in DEEP}, "deep": DEEP}  # world: drafter: recipes that differ in their seed
WORLD_PROFILES = {"shallow": "tiny", "deep": "deep"}
ONE_LAYER = {"shallow": DEPTHS[1], "deep": DEEP_DEPTHS[1]}  # world: recipe


def gates(world: str) -> dict[tuple[str, str], dict]:
    """The gates of a world, by name and domain: those of target and text as recorded, those of the drafters from their rows."""
    full, one_layer = (our_results.measured(recipe)["rows"] for recipe in (WORLDS[world]["dspark"][0], ONE_LAYER[world]))
    of_drafters = {(row["name"], row["domain"]): row for row in (depth_gate(full, one_layer), ending_gate(full))}
    return recorded_gates(world) | of_drafters


def recorded_gates(world: str) -> dict[tuple[str, str], dict]:
    """Those on target, text and small LM, as recorded."""
    profile = WORLD_PROFILES[world]
    found = read(FOLDER / f"{profile}.json", f"DSPARK_PROFILE={profile} python -m dspark_lite world --json {profile}.json")["gates"]
    return {(row["name"], row["domain"]): row for row in found}


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
    """How much longer DSpark accepts than each rival in either world, by domain and in the mean: of each training seed with the
    interval over prompts, and of the mean of all seeds with the interval over prompts and seeds."""
    rows = []
    for world, recipes in WORLDS.items():
        for rival in [name for name in recipes if name != "dspark"]:
            found = {f"{seed}": our_results.gains(*pair) for seed, pair in enumerate(zip(recipes["dspark"], recipes[rival]), 1)}
            if len(found) > 1:
                found["all"] = our_results.gains_over_seeds(recipes["dspark"], recipes[rival])
            rows += [[world, DRAFTER_LABELS[rival], seed, *(interval(gains[place], "percent") for place in our_results.PLACES.values())]
                     for seed, gains in found.items()]
    return markdown(["world", "DSpark over", "seed", *our_results.PLACES], rows)


def searched_rates() -> dict[str, dict[float, float]]:
    """The loss on answers held out after short trainings in the deep world, by recipe and rate of Muon (`train --search`)."""
    found = read(FOLDER / "rates.json", "python -m dspark_lite train deep-dspark --search 0.01 0.02 0.04 0.08")["losses"]
    return {recipe: {float(rate): loss for rate, loss in losses.items()} for recipe, losses in found.items()}


def one_rate() -> dict:
    """The first comparison in the deep world, at one rate for all: settings, and what each of the "drafters" accepted."""
    return read(FOLDER / "one_rate.json", "git checkout assets/measurements/worlds/one_rate.json")


def lengths_table() -> str:
    """Accepted length in the deep world by domain and in the mean, a row for each training: seeds, two passes, fewer layers."""
    trainings = [(name, f"seed {seed}", recipe) for name, recipes in WORLDS["deep"].items() for seed, recipe in enumerate(recipes, 1)]
    trainings += [(name, "seed 1, two passes", recipe) for name, recipe in DEEP_TWO_PASSES.items()]
    trainings += [("dspark", f"seed 1, {layers} of {max(DEEP_DEPTHS)} layers", recipe) for layers, recipe in DEEP_DEPTHS.items()
                  if layers < max(DEEP_DEPTHS)]
    rows = [[DRAFTER_LABELS[name], training, *(interval(our_results.accepted_lengths(recipe)[place], "tokens") for place in
                                              our_results.PLACES.values())] for name, training, recipe in trainings]
    return markdown(["drafter", "training", *our_results.PLACES], rows)
