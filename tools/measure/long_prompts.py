"""Record the memory of reading a long prompt: `python -m tools.measure.long_prompts`, in three minutes (on Linux).

Writes assets/measurements/long_prompts.json: the peak memory of reading 8,192 tokens beyond that of
the loaded models, for a target of 24 layers with random weights, without taps, with three tapped
layers, and with these in pieces. Each has a process of its own.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from dspark_lite.common.files import ROOT, write_json
from dspark_lite.course.measure.journal import check_writable, machine_header
from dspark_lite.decoding.target import Target
from tools.errors import report_errors

RECORDED = ROOT / "assets" / "measurements" / "long_prompts.json"
TOKENS, TAPS = 8192, (3, 11, 19)
PIECE = 1024
# name: taps, prefill_chunk_size
READINGS = {"plain": ((), None), "taps": (TAPS, None), "taps in pieces": (TAPS, PIECE)}


def peak_megabytes() -> float:
    """Return the peak memory of this process."""
    # Not getrusage's maximum: that of a started process begins with its parent's.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024


def read_prompt(reading: str) -> dict[str, float]:
    """Return the megabytes that reading the prompt takes, and those of its taps and its cache."""
    taps, size = READINGS[reading]
    config = Qwen3Config(
        vocab_size=2000,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=24,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=2 * TOKENS,
    )
    target = Target(Qwen3ForCausalLM(config).requires_grad_(False), prefill_chunk_size=size)
    ids = torch.arange(TOKENS)[None] % target.vocab_size
    target.prefill(ids[:, :16], taps)  # what torch allocates once
    before = peak_megabytes()
    output, cache = target.prefill(ids, taps)
    pairs = [(layer.keys, layer.values) for layer in cache.layers]
    return {
        "megabytes": peak_megabytes() - before,
        "of_taps": 0 if output.features is None else output.features.nbytes / 2**20,
        "of_cache": sum(part.nbytes for pair in pairs for part in pair) / 2**20,
    }


def in_a_process(reading: str) -> dict[str, float]:
    """Return what `read_prompt` returns in a process of its own."""
    command = [sys.executable, "-m", "tools.measure.long_prompts", "--read", reading]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print the results; write nothing")
    parser.add_argument("--read", choices=READINGS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.read:
        print(json.dumps(read_prompt(options.read)))
        return
    if not options.print:
        check_writable(RECORDED)
    found = {reading: in_a_process(reading) for reading in READINGS}
    print(json.dumps(found, indent=2))
    if not options.print:
        made = machine_header(torch.device("cpu"))
        write_json(RECORDED, {**made, "tokens": TOKENS, "piece": PIECE, "readings": found})


if __name__ == "__main__":
    sys.exit(main())
