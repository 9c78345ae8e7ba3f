"""Plain names that more than one room uses: domains, what drafters are called, the models of each profile."""

DOMAINS = ("math", "code", "chat")
DRAFTER_LABELS = {  # name: label
    "plain": "plain decoding",
    "dspark": "DSpark",
    "dspark_gated": "DSpark, gated head",
    "dspark_rnn": "DSpark, RNN head",
    "dflash": "DFlash",
    "small_lm": "small LM",
    "prompt_lookup": "prompt lookup",
    "eagle3": "Eagle3",
    "mtp": "MTP-1",
}
PROFILES = {
    "tiny": {
        "target": "tiny-target",
        "dspark": "tiny-dspark",
        "dflash": "tiny-dflash",
        "eagle3": "tiny-eagle3",
        "mtp": "tiny-mtp",
        "small_lm": "tiny-small-lm",
        "prompt_lookup": "prompt_lookup",
    },
    "released": {
        "target": "Qwen/Qwen3-4B",
        "dspark": "deepseek-ai/dspark_qwen3_4b_block7",
        "dflash": "deepseek-ai/dflash_qwen3_4b_block7",
        "eagle3": "deepseek-ai/eagle3_qwen3_4b_ttt7",
        "small_lm": "Qwen/Qwen3-0.6B",
        "prompt_lookup": "prompt_lookup",
    },
}
