"""Which recipes are measured for the paper's table and figures."""

LATENCY = "round_latency"
TABLE_1 = {"small_lm": "tiny-small-lm", "mtp": "tiny-mtp", "eagle3": "tiny-eagle3", "dflash": "tiny-dflash",
           "dspark": "tiny-dspark"}  # drafter: recipe
DEEP = {name: (f"deep-{name}", *(f"deep-{name}-seed-{seed}" for seed in range(2, seeds + 1)))  # of the deeper world, drafter: recipes
        for name, seeds in {"eagle3": 3, "dflash": 2, "dspark": 3}.items()}  # that differ in their seed
DEEP_DEPTHS = {1: "deep-dspark-1-layer", 4: "deep-dspark"}  # layers of DSpark: recipe
DEEP_TWO_PASSES = {name: f"deep-{name}-two-passes" for name in ("eagle3", "dspark")}  # over the answers; the others make one
HEADS = {"dspark": "tiny-dspark", "dspark_gated": "tiny-dspark-gated", "dspark_rnn": "tiny-dspark-rnn"}
DEPTHS = {1: "tiny-dspark-1-layer", 2: "tiny-dspark-2-layers", 3: "tiny-dspark"}  # layers of DSpark: recipe
PAPER_DEPTHS = {1: 1, 2: 2, 3: 5}  # layers here: layers in the paper; the last are full depth
LENGTHS = (4, 8, 12, 16)  # the anchor counts: gamma is one less
LENGTH_STUDY = {(drafter, length): f"{recipe}-length-{length}" for length in LENGTHS
                for drafter, recipe in {"dflash": TABLE_1["dflash"], **HEADS}.items() if drafter != "dspark_gated"}
DIRECT_ACCEPTANCE = tuple(f"{losses}-seed-{seed}" for seed in (1, 2) for losses in ("three-losses", "direct-acceptance"))  # lesson 06
MEASURED_RECIPES = tuple(dict.fromkeys([*TABLE_1.values(), *HEADS.values(), *DEPTHS.values(), *LENGTH_STUDY.values(),
                                        *(recipe for seeds in DEEP.values() for recipe in seeds), *DEEP_DEPTHS.values(),
                                        *DEEP_TWO_PASSES.values(), *DIRECT_ACCEPTANCE]))
