"""The two miniature worlds side by side: is either like the real one, and who wins in which?

The first world's text is shallow: a small language model knows it by heart. The deep one has an encyclopedia to recall,
sums to compute and many ways to say a thing. The gates are measured by `python -m dspark_lite world`.
"""


from dspark_lite.common.estimates import Estimate
from dspark_lite.common.formats import interval, markdown
from dspark_lite.common.names import DRAFTER_LABELS
from dspark_lite.common.recorded import read
from ..measure.gates import depth_gate, ending_gate
from ..measure.studies import (
    DEEP, DEEP_DEPTHS, DEEP_HEADS, DEEP_HEADS_TWO_PASSES, DEEP_LOSSES, DEEP_PASSES, DEEP_TAPS, DEPTHS, SHALLOW_ALIKE,
    SHALLOW_PASSES, TABLE_1)
from . import our_results, recorded_serving

FOLDER = our_results.MEASUREMENTS.parent / "worlds"
WORLDS = {"shallow": {name: (TABLE_1[name],) for name in DEEP}, "deep": DEEP}  # world: drafter: recipes that differ in their seed
PASSES = {"shallow": SHALLOW_PASSES, "deep": DEEP_PASSES}  # world: passes over the answers, trained alike: drafter: recipes
WORLD_PROFILES = {"shallow": "tiny", "deep": "deep"}
ONE_LAYER = {"shallow": DEPTHS[1], "deep": DEEP_DEPTHS[1]}  # world: recipe


HEAD_AND_LOSSES = {  # what DSpark has and DFlash has not, each exchanged alone: the recipes with it, and those without
    "the head, both with cross-entropy alone": (DEEP_LOSSES["dspark"], DEEP["dflash"]),
    "the head, both with DSpark's losses": (DEEP["dspark"], DEEP_LOSSES["dflash"]),
    "DSpark's losses over cross-entropy, without a head": (DEEP_LOSSES["dflash"], DEEP["dflash"]),
    "DSpark's losses over cross-entropy, with the head": (DEEP["dspark"], DEEP_LOSSES["dspark"])}


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


def leads_table(*passes: int) -> str:
    """How much longer DSpark accepts than each rival in the deep world, by domain and in the mean, after so many passes over the
    answers: over all seeds that were trained of both."""
    rows = [[number, DRAFTER_LABELS[rival], len(DEEP_PASSES[number][rival]), *_shown_by_place(leads(rival)[number])]
            for number in passes for rival in DEEP_PASSES[number] if rival != "dspark"]
    return markdown(["passes", "DSpark over", "seeds", *our_results.PLACES], rows)


def gains_table(*passes: int) -> str:
    """`leads_table` with each seed: there the interval is over prompts, in the rows "all" over prompts and seeds."""
    rows = []
    for number in passes:
        recipes = DEEP_PASSES[number]
        for rival in [name for name in recipes if name != "dspark"]:
            found = {f"{seed}": our_results.gains(*pair) for seed, pair in enumerate(zip(recipes["dspark"], recipes[rival]), 1)}
            if max(len(recipes["dspark"]), len(recipes[rival])) > 1:
                found["all"] = our_results.gains_over_seeds(recipes["dspark"], recipes[rival])
            rows += [[number, DRAFTER_LABELS[rival], seed, *_shown_by_place(gains)] for seed, gains in found.items()]
    return markdown(["passes", "DSpark over", "seed", *our_results.PLACES], rows)


def _shown_by_place(gains: dict[str, Estimate]) -> list[str]:
    return [interval(gains[place], "percent") for place in our_results.PLACES.values()]


def worlds_and_trainings() -> dict[str, dict[str, tuple[str, ...]]]:
    """Recipes of Table 1's neural drafters, by drafter: in the shallow world as trained for Table 1, there trained as in the deep world,
    and in the deep world after one pass."""
    return {"shallow, as for Table 1": WORLDS["shallow"], "shallow, trained alike": SHALLOW_ALIKE, "deep, one pass": DEEP}


def training_and_world(rival: str) -> dict[str, dict[str, Estimate]]:
    """What the training and what the world adds to DSpark's gain over a rival, by domain and in the mean: the differences between
    neighbours of `worlds_and_trainings`."""
    old, alike, deep = ((recipes["dspark"], recipes[rival]) for recipes in worlds_and_trainings().values())
    return {"training": our_results.gain_difference(alike, old, same_prompts=True),
            "world": our_results.gain_difference(deep, alike, same_prompts=False)}


def training_and_world_table(*rivals: str) -> str:
    """DSpark's gain over each rival in `worlds_and_trainings`, and `training_and_world`, all in percent."""
    rows = []
    for rival in rivals:
        rows += [[DRAFTER_LABELS[rival], title, *_shown_by_place(our_results.gains_over_seeds(recipes["dspark"], recipes[rival]))]
                 for title, recipes in worlds_and_trainings().items()]
        rows += [[DRAFTER_LABELS[rival], f"added by the {cause}", *_shown_by_place(found)]
                 for cause, found in training_and_world(rival).items()]
    return markdown(["DSpark over", "", *our_results.PLACES], rows)


def searched_rates(world: str = "deep") -> dict[str, dict[float, float]]:
    """The loss on answers held out after short trainings in a world, by recipe and rate of Muon (`train --search`)."""
    found = read(FOLDER / f"rates_{world}.json", f"python -m dspark_lite train {world}-dspark --search 0.01 0.02 0.04 0.08")["losses"]
    return {recipe: {float(rate): loss for rate, loss in losses.items()} for recipe, losses in found.items()}


def trainings(name: str, world: str = "deep") -> dict[int, tuple[str, ...]]:
    """The recipes of a drafter in a world, which differ in their seed, by passes over the answers."""
    return {passes: recipes[name] for passes, recipes in PASSES[world].items() if name in recipes}


def pairs(rival: str, world: str = "deep") -> dict[int, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The recipes of DSpark and of a rival in a world, by passes over the answers that both have made."""
    ours, theirs = trainings("dspark", world), trainings(rival, world)
    return {passes: (ours[passes], theirs[passes]) for passes in ours if passes in theirs}


def leads(rival: str, world: str = "deep") -> dict[int, dict[str, Estimate]]:
    """By how much DSpark accepts longer than a rival in a world, by passes over the answers, over all seeds trained."""
    return {passes: our_results.gains_over_seeds(*pair) for passes, pair in pairs(rival, world).items()}


def added_by_the_world(rival: str) -> dict[int, dict[str, Estimate]]:
    """DSpark's gain over a rival in the deep world less that in the shallow one, trained alike, by passes over the answers."""
    deep, shallow = pairs(rival, "deep"), pairs(rival, "shallow")
    return {passes: our_results.gain_difference(pair, shallow[passes], same_prompts=False) for passes, pair in deep.items() if passes in shallow}


def passes_and_worlds_table(rival: str, *passes: int) -> str:
    """DSpark's gain over a rival after so many passes in either world, and `added_by_the_world`, all in percent."""
    of_worlds, added = {world: leads(rival, world) for world in PASSES}, added_by_the_world(rival)
    rows = []
    for number in passes:
        rows += [[number, f"{world} world", *_shown_by_place(found[number])] for world, found in of_worlds.items()]
        rows.append([number, "added by the world", *_shown_by_place(added[number])])
    return markdown(["passes", f"DSpark over {DRAFTER_LABELS[rival]}", *our_results.PLACES], rows)


def head_and_losses() -> dict[str, dict[str, Estimate]]:
    """By how much DSpark's head, and its losses, lengthen what is accepted in the deep world, over all trainings, by domain and in the
    mean."""
    return {title: our_results.gains_over_seeds(*pair) for title, pair in HEAD_AND_LOSSES.items()}


def head_and_losses_table() -> str:
    """`head_and_losses` with their intervals over trainings and prompts."""
    return _gains_as_table("in the deep world", head_and_losses())


def contrasts() -> dict[str, dict[str, Estimate]]:
    """In the deep world, of trainings with one seed, and one pass where nothing else is said: by how much one accepts longer than
    another, by domain and in the mean."""
    full = max(DEEP_DEPTHS)
    pairs = {f"DSpark of {layers} over DFlash of {full} layers": (recipe, DEEP["dflash"][0])
             for layers, recipe in DEEP_DEPTHS.items() if layers < full}
    pairs |= {f"RNN head over Markov head, draft length {length}": (heads["dspark_rnn"], heads["dspark"])
              for length, heads in DEEP_HEADS.items()}
    pairs["RNN head over Markov head, draft length 8, two passes"] = DEEP_HEADS_TWO_PASSES["dspark_rnn"], DEEP_HEADS_TWO_PASSES["dspark"]
    everything, *fewer = DEEP_TAPS
    pairs |= {f"DSpark that reads {everything} over one that reads {taps}": (DEEP_TAPS[everything], DEEP_TAPS[taps]) for taps in fewer}
    return {title: our_results.gains(*pair) for title, pair in pairs.items()}


def contrasts_table(begins: str = "") -> str:
    """Those of `contrasts` whose title begins so, with their intervals over prompts."""
    return _gains_as_table("in the deep world", {title: found for title, found in contrasts().items() if title.startswith(begins)})


def _gains_as_table(head: str, gains: dict[str, dict[str, Estimate]]) -> str:
    return markdown([head, *our_results.PLACES], [[title, *_shown_by_place(found)] for title, found in gains.items()])


def throughputs(world: str, load: int) -> dict[str, tuple[float, Estimate]]:
    """Of DSpark's fixed lengths and of Algorithm 1, in that order: drafts verified per request, and throughput over that of plain
    decoding at the same load, with its interval over turns."""
    plain = recorded_serving.row("policies", world, concurrency=load, drafter="plain")
    served = [row for row in recorded_serving.rows("policies", world, concurrency=load, drafter="dspark")
              if row["policy"].startswith("fixed") or row["policy"] == "algorithm1"]
    return {row["policy"]: (recorded_serving.value("budget", row) - 1, recorded_serving.gain("throughput", row, plain)) for row in served}


def over_best_fixed(world: str) -> dict[int, tuple[int, Estimate, Estimate]]:
    """By requests under way: the fixed length with the highest throughput, and by how much, a fraction with its interval over turns,
    the throughput of 7 drafts and of Algorithm 1 differs from it."""
    found = {}
    for load in sorted({row["concurrency"] for row in recorded_serving.rows("policies", world)}):
        best = recorded_serving.best_fixed(load, world)
        rows = (recorded_serving.row("policies", world, concurrency=load, policy=policy) for policy in ("fixed 7", "algorithm1"))
        gains = [recorded_serving.gain("throughput", row, best).scaled(1.0, -1.0) for row in rows]
        found[load] = (int(best["policy"].split()[1]), *gains)
    return found


def serving_table() -> str:
    """`over_best_fixed` at the loads that were measured of all servers."""
    found = {world: over_best_fixed(world) for world in recorded_serving.SERVERS}
    rows = [[recorded_serving.SERVERS[world], load, length, *(interval(gain, "percent") for gain in gains)] for world, by_load in found.items()
            for load, (length, *gains) in by_load.items() if all(load in others for others in found.values())]
    return markdown(["server", "requests under way", "best fixed length", "7 drafts over it", "Algorithm 1 over it"], rows)
