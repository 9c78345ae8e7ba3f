"""Which trainings are measured for the paper's table and figures: the next world's, and the names of those recorded before."""

from typing import NamedTuple

LATENCY = "round_latency"
TABLE_1 = {"small_lm": "tiny-small-lm", "mtp": "tiny-mtp", "eagle3": "tiny-eagle3", "dflash": "tiny-dflash",
           "dspark": "tiny-dspark"}  # drafter: recipe


def _of_seeds(recipe: str, seeds: int = 3) -> tuple[str, ...]:
    """The recipes that differ from this one in their seed alone, itself the first."""
    return (recipe, *(f"{recipe}-seed-{seed}" for seed in range(2, seeds + 1)))


DEEP_PASSES = {  # in the deep world, by passes over the answers: drafter: recipes that differ in their seed
    1: {name: _of_seeds(f"deep-{name}") for name in ("eagle3", "dflash", "dspark")},
    2: {name: _of_seeds(f"deep-{name}-two-passes") for name in ("eagle3", "dflash", "dspark")},
    4: {name: (f"deep-{name}-four-passes",) for name in ("eagle3", "dflash", "dspark")}}
DEEP = DEEP_PASSES[1]
SHALLOW_PASSES = {  # the shallow world's drafters, trained as the deep world's, with as many updates in a pass: drafter: recipes
    1: {name: (f"shallow-{name}",) for name in DEEP},
    2: {name: (f"shallow-{name}-two-passes",) for name in DEEP},
    4: {name: (f"shallow-{name}-four-passes",) for name in ("eagle3", "dspark")}}
SHALLOW_ALIKE = SHALLOW_PASSES[1]
DEEP_DEPTHS = {1: "deep-dspark-1-layer", 2: "deep-dspark-2-layers", 4: "deep-dspark"}  # layers of DSpark: recipe
DEEP_HEADS = {8: {"dspark": "deep-dspark", "dspark_rnn": "deep-dspark-rnn"},  # draft length as in LENGTHS: sequential head: recipe
              16: {"dspark": "deep-dspark-length-16", "dspark_rnn": "deep-dspark-rnn-length-16"}}
DEEP_HEADS_TWO_PASSES = {"dspark": "deep-dspark-two-passes", "dspark_rnn": "deep-dspark-rnn-two-passes"}
DEEP_TAPS = {"four layers": "deep-dspark", "the last of the four": "deep-dspark-last-tap",  # what DSpark reads of the target: recipe
             "them in its first layer alone": "deep-dspark-first-layer-context"}
DEEP_LOSSES = {"dflash": _of_seeds("deep-dflash-losses-of-dspark", 2),  # drafter: recipes with the other's losses, which differ in their seed
               "dspark": _of_seeds("deep-dspark-cross-entropy", 2)}
HEADS = {"dspark": "tiny-dspark", "dspark_gated": "tiny-dspark-gated", "dspark_rnn": "tiny-dspark-rnn"}
DEPTHS = {1: "tiny-dspark-1-layer", 2: "tiny-dspark-2-layers", 3: "tiny-dspark"}  # layers of DSpark: recipe
PAPER_DEPTHS = {1: 1, 2: 2, 3: 5}  # layers here: layers in the paper; the last are full depth
LENGTHS = (4, 8, 12, 16)  # the anchor counts: gamma is one less
LENGTH_STUDY = {(drafter, length): f"{recipe}-length-{length}" for length in LENGTHS
                for drafter, recipe in {"dflash": TABLE_1["dflash"], **HEADS}.items() if drafter != "dspark_gated"}
DEEP_LENGTH_STUDY = {(drafter, length): f"deep-{drafter}-length-{length}" for length in LENGTHS for drafter in ("dflash", "dspark")}
DEEP_LENGTH_STUDY |= {("dspark_rnn", 16): DEEP_HEADS[16]["dspark_rnn"]}
DEEP_MTP = {1: "deep-mtp", 2: "deep-mtp-two-passes"}  # served beside DSpark: passes over the answers: recipe
DIRECT_ACCEPTANCE = tuple(f"{losses}-seed-{seed}" for seed in (1, 2) for losses in ("three-losses", "direct-acceptance"))  # lesson 07
MEASURED_RECIPES = tuple(dict.fromkeys([
    *TABLE_1.values(), *HEADS.values(), *DEPTHS.values(), *LENGTH_STUDY.values(), *DEEP_LENGTH_STUDY.values(), DEEP_MTP[1],
    *(recipe for passes in (DEEP_PASSES, SHALLOW_PASSES) for trained in passes.values() for seeds in trained.values() for recipe in seeds),
    *(recipe for heads in (*DEEP_HEADS.values(), DEEP_HEADS_TWO_PASSES) for recipe in heads.values()),
    *DEEP_DEPTHS.values(), *DEEP_TAPS.values(),
    *(recipe for recipes in DEEP_LOSSES.values() for recipe in recipes), *DIRECT_ACCEPTANCE]))
# Recipes that the above names and recipes/ has no longer stand in their recorded measurements.


class Run(NamedTuple):
    """A training of a study: a recipe and what is changed of it (`load_recipe`)."""

    recipe: str
    changes: dict = {}


def _seeds(recipe: str, changes: dict | None = None, seeds: int = 3) -> list[Run]:
    """Trainings that differ in their seed alone; the recipe's own is the first."""
    return [Run(recipe, {**(changes or {}), **({"seed": seed} if seed > 1 else {})}) for seed in range(1, seeds + 1)]


def _of_length(recipe: str, length: int) -> Run:
    """A finished drafter trained on for drafts of another length, the anchor counted; the length it has is trained on as well."""
    return Run(recipe, {"initial": f"build/experiments/checkpoints/{recipe}", "config.block_size": length - 1, "steps": 800, "patience": None})


NEXT_HEADS = {"dspark": "next-dspark", "dspark_gated": "next-dspark-gated", "dspark_rnn": "next-dspark-rnn"}  # drafter: recipe
NEXT_STUDIES = {  # study: drafter or what is varied: trainings that differ in their seed
    "table 1": {**{name: _seeds(f"next-{name}") for name in ("dspark", "dflash", "eagle3")}, "mtp": [Run("next-mtp")],
                "small_lm": [Run("next-small-lm")]},
    "heads": {name: [Run(recipe)] for name, recipe in NEXT_HEADS.items()},
    "depths": {1: [Run("next-dspark", {"config.num_hidden_layers": 1})], 2: [Run("next-dspark", {"config.num_hidden_layers": 2})],
               4: [Run("next-dspark")]},
    "lengths": {(name, length): [_of_length(recipe, length)] for length in LENGTHS
                for name, recipe in {"dflash": "next-dflash", "dspark": "next-dspark", "dspark_rnn": "next-dspark-rnn"}.items()},
    "head or losses": {"dflash, losses of dspark": _seeds("next-dflash", {"loss.cross_entropy": 0.1, "loss.l1": 0.9}),
                       "dspark, losses of dflash": _seeds("next-dspark", {"loss.cross_entropy": 1.0, "loss.l1": 0.0, "loss.confidence": 0.0})},
    "taps": {"four layers": [Run("next-dspark")], "the last of the four": [Run("next-dspark", {"config.target_layer_ids": [17]})]},
}


def next_runs() -> list[Run]:
    """Every training of NEXT_STUDIES once, those that others begin from first."""
    runs = [run for study in NEXT_STUDIES.values() for seeds in study.values() for run in seeds]
    return sorted({str(run): run for run in runs}.values(), key=lambda run: "initial" in run.changes)
