"""Record what drafting costs a target with recurrent states: `python -m tools.measure.hybrids`, in a minute.

Writes assets/measurements/hybrids.json. Two targets of one size with random weights, Qwen3 and
Qwen3.5 (three of four layers recurrent), decode plainly and with the tiny DSpark's shapes; acceptance
is forced to a pattern drawn from the paper. CPU time, one thread. After a block that was not
accepted whole, a recurrent target reads the accepted tokens again.
"""

import argparse
import json
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from dspark_lite.common.files import ROOT, write_json
from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.course.measure.forced_rounds import forced_text, measure_parts, paper_pattern
from dspark_lite.course.measure.journal import check_writable, machine_header
from dspark_lite.decoding.target import Target
from dspark_lite.training.drafts import new_draft
from tools.errors import report_errors

from .vocabulary import CPUSeconds

RECORDED = ROOT / "assets" / "measurements" / "hybrids.json"
SIZES = {
    "vocab_size": 3584,
    "hidden_size": 320,
    "intermediate_size": 896,
    "num_hidden_layers": 20,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "pad_token_id": 0,
}
STATES = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
}
TARGETS = {"qwen3": {}, "qwen3_5_text": STATES}
PROMPT_TOKENS, WARM_UP, ROUNDS = 100, 1, 20


def measured(kind: str) -> dict:
    """Return the milliseconds of a plain token and of a round's parts, and what follows from them."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SIZES, **TARGETS[kind])
    target = Target(AutoModelForCausalLM.from_config(config).requires_grad_(False), name=kind)
    drafter = new_draft(load_recipe("tiny-dspark"), target).eval().requires_grad_(False)
    pattern, prompt = paper_pattern("dspark", WARM_UP + ROUNDS), torch.arange(PROMPT_TOKENS)[None]
    texts = [
        forced_text(target, one, prompt, pattern, generator=torch.Generator().manual_seed(0))
        for one in (None, drafter)
    ]
    plain, drafted = zip(*[[measure_parts(text, CPUSeconds) for text in texts] for _ in pattern])
    token = sum(sum(parts.values()) for _, parts in plain[WARM_UP:]) * 1e3 / ROUNDS
    parts = {
        part: 1e3 * sum(parts[part] for _, parts in drafted[WARM_UP:]) / ROUNDS
        for part in drafted[0][1]
    }
    accepted = [outcome.accepted for outcome, _ in drafted[WARM_UP:]]
    length = sum(accepted) / ROUNDS + 1
    return {
        "target": kind,
        "recurrent_layers": sum(name != "full_attention" for name in config.layer_types),
        "layers": config.num_hidden_layers,
        "plain_milliseconds": token,
        "round_milliseconds": parts,
        "accepted_length": length,
        "rounds": ROUNDS,
        "rounds_not_accepted_whole": sum(count < drafter.gamma for count in accepted),
        "speedup": length * token / sum(parts.values()),
    }


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print the results; write nothing")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if not options.print:
        check_writable(RECORDED)
    found = [measured(kind) for kind in TARGETS]
    print(json.dumps(found, indent=2))
    if not options.print:
        made = machine_header(torch.device("cpu"))
        weights = "random, float32; acceptance forced to a pattern of the paper"
        write_json(RECORDED, {**made, "weights": weights, "targets": found})


if __name__ == "__main__":
    sys.exit(main())
