"""Which recipes are measured for the paper's table and figures."""

LATENCY = "round_latency"
TABLE_1 = {"small_lm": "tiny-small-lm", "mtp": "tiny-mtp", "eagle3": "tiny-eagle3", "dflash": "tiny-dflash",
           "dspark": "tiny-dspark"}  # drafter: recipe
DEEP = {"eagle3": "deep-eagle3", "dflash": "deep-dflash", "dspark": "deep-dspark"}  # of the deeper world
DEEP_ONE_LAYER = "deep-dspark-1-layer"
HEADS = {"dspark": "tiny-dspark", "dspark_gated": "tiny-dspark-gated", "dspark_rnn": "tiny-dspark-rnn"}
DEPTHS = {1: "tiny-dspark-1-layer", 2: "tiny-dspark-2-layers", 3: "tiny-dspark"}  # layers of DSpark: recipe
PAPER_DEPTHS = {1: 1, 2: 2, 3: 5}  # layers here: layers in the paper; the last are full depth
LENGTHS = (4, 8, 12, 16)  # the anchor counts: gamma is one less
LENGTH_STUDY = {(drafter, length): f"{recipe}-length-{length}" for length in LENGTHS
                for drafter, recipe in {"dflash": TABLE_1["dflash"], **HEADS}.items() if drafter != "dspark_gated"}
DIRECT_ACCEPTANCE = tuple(f"{losses}-seed-{seed}" for seed in (1, 2) for losses in ("three-losses", "direct-acceptance"))  # lesson 06
MEASURED_RECIPES = tuple(dict.fromkeys([*TABLE_1.values(), *HEADS.values(), *DEPTHS.values(), *LENGTH_STUDY.values(), *DEEP.values(),
                                        DEEP_ONE_LAYER, *DIRECT_ACCEPTANCE]))
