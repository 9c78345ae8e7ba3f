"""Which recipes are measured for the paper's table and figures."""

LATENCY = "round_latency"
TABLE_1 = {"small_lm": "tiny-small-lm", "mtp": "tiny-mtp", "eagle3": "tiny-eagle3", "dflash": "tiny-dflash",
           "dspark": "tiny-dspark"}  # drafter: recipe
DEEP = {name: (f"deep-{name}", *(f"deep-{name}-seed-{seed}" for seed in (2, 3))) for name in ("eagle3", "dflash", "dspark")}  # of the
# deeper world, drafter: recipes that differ in their seed; they make one pass over the answers
DEEP_PASSES = {passes: {name: f"deep-{name}-{word}-passes" for name in ("eagle3", "dspark")} for passes, word in ((2, "two"), (4, "four"))}
DEEP_DEPTHS = {1: "deep-dspark-1-layer", 2: "deep-dspark-2-layers", 4: "deep-dspark"}  # layers of DSpark: recipe
DEEP_HEADS = {8: {"dspark": "deep-dspark", "dspark_rnn": "deep-dspark-rnn"},  # draft length as in LENGTHS: sequential head: recipe
              16: {"dspark": "deep-dspark-length-16", "dspark_rnn": "deep-dspark-rnn-length-16"}}
HEADS = {"dspark": "tiny-dspark", "dspark_gated": "tiny-dspark-gated", "dspark_rnn": "tiny-dspark-rnn"}
DEPTHS = {1: "tiny-dspark-1-layer", 2: "tiny-dspark-2-layers", 3: "tiny-dspark"}  # layers of DSpark: recipe
PAPER_DEPTHS = {1: 1, 2: 2, 3: 5}  # layers here: layers in the paper; the last are full depth
LENGTHS = (4, 8, 12, 16)  # the anchor counts: gamma is one less
LENGTH_STUDY = {(drafter, length): f"{recipe}-length-{length}" for length in LENGTHS
                for drafter, recipe in {"dflash": TABLE_1["dflash"], **HEADS}.items() if drafter != "dspark_gated"}
DIRECT_ACCEPTANCE = tuple(f"{losses}-seed-{seed}" for seed in (1, 2) for losses in ("three-losses", "direct-acceptance"))  # lesson 07
MEASURED_RECIPES = tuple(dict.fromkeys([
    *TABLE_1.values(), *HEADS.values(), *DEPTHS.values(), *LENGTH_STUDY.values(), *(recipe for seeds in DEEP.values() for recipe in seeds),
    *(recipe for trained in (*DEEP_PASSES.values(), *DEEP_HEADS.values()) for recipe in trained.values()), *DEEP_DEPTHS.values(),
    *DIRECT_ACCEPTANCE]))
