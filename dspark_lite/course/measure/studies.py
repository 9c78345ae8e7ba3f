"""The trainings behind the paper's table and figures, by name of their file in
assets/measurements/experiments."""

from typing import NamedTuple


class Run(NamedTuple):
    """A training of a study: a recipe and its changes (`load_recipe`)."""

    recipe: str
    changes: dict = {}


LATENCY = "round_latency"
# drafter: run
TABLE_1 = {
    "small_lm": "tiny-small-lm",
    "mtp": "tiny-mtp",
    "eagle3": "tiny-eagle3",
    "dflash": "tiny-dflash",
    "dspark": "tiny-dspark",
}
HEADS = {
    "dspark": "tiny-dspark",
    "dspark_gated": "tiny-dspark-gated",
    "dspark_rnn": "tiny-dspark-rnn",
}
# layers of DSpark: run
DEPTHS = {
    1: "tiny-dspark-1-layer",
    2: "tiny-dspark-2-layers",
    4: "tiny-dspark",
}
PAPER_DEPTHS = {1: 1, 2: 2, 4: 5}  # layers here: layers in the paper; the last are full depth
# what DSpark reads of the target: run
TAPS = {
    "four layers": "tiny-dspark",
    "the last of the four": "tiny-dspark-last-tap",
}
LENGTHS = (4, 8, 12, 16)  # the anchor counts: gamma is one less
RUNS = {name: Run(name) for name in dict.fromkeys([*TABLE_1.values(), *HEADS.values()])}
RUNS |= {
    DEPTHS[layers]: Run("tiny-dspark", {"config.num_hidden_layers": layers}) for layers in (1, 2)
}
RUNS[TAPS["the last of the four"]] = Run("tiny-dspark", {"config.target_layer_ids": [17]})


def _seeds(name: str, recipe: str, changes: dict | None = None) -> tuple[str, ...]:
    """Return three runs that differ in their seed alone, entered in RUNS; the recipe's own is the
    first."""
    names = (name, f"{name}-seed-2", f"{name}-seed-3")
    RUNS.update(
        {
            each: Run(recipe, {**(changes or {}), **({"seed": seed} if seed > 1 else {})})
            for seed, each in enumerate(names, 1)
        }
    )
    return names


def _of_length(recipe: str, length: int) -> str:
    """Return a run that trains a finished drafter on for drafts of another length, the anchor
    counted, entered in RUNS; the length it has is trained on as well."""
    RUNS[f"{recipe}-length-{length}"] = Run(
        recipe,
        {
            "initial": f"build/experiments/checkpoints/{recipe}",
            "config.block_size": length - 1,
            "steps": 800,
            "patience": None,
        },
    )
    return f"{recipe}-length-{length}"


# drafter: runs
SEEDS = {name: _seeds(TABLE_1[name], TABLE_1[name]) for name in ("eagle3", "dflash", "dspark")}
# The runs of each drafter of Table 1: three seeds if there are three, else its only one.
TRAININGS = {name: SEEDS.get(name, (run,)) for name, run in TABLE_1.items()}
LOSSES = {
    # drafter: runs
    "dflash": _seeds(
        "tiny-dflash-losses-of-dspark", "tiny-dflash", {"loss.cross_entropy": 0.1, "loss.l1": 0.9}
    ),
    "dspark": _seeds(
        "tiny-dspark-cross-entropy",
        "tiny-dspark",  # with the other's losses
        {"loss.cross_entropy": 1.0, "loss.l1": 0.0, "loss.confidence": 0.0},
    ),
}
LENGTH_STUDY = {
    (drafter, length): _of_length(recipe, length)
    for length in LENGTHS
    for drafter, recipe in {
        "dflash": TABLE_1["dflash"],
        "dspark": HEADS["dspark"],
        "dspark_rnn": HEADS["dspark_rnn"],
    }.items()
}
