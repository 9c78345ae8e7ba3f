"""Record what a batch costs in `model.generate`, with the tiny DSpark drafter and without:
`python -m tools.measure.batches`, in ten minutes.

Writes assets/measurements/batches.json. Each repeat times transformers' own loop and then
CustomGenerate, on one thread, with the same prompts, greedy and sampled. Sampled answers have no
end before their last token, so both loops write as many tokens. Seconds are of the CPU and of the
wall; the least of the repeats counts. The peak memory is that of a process of its own (on Linux).
"""

import argparse
import json
import re
import subprocess
import sys
import time
from functools import cached_property
from pathlib import Path

import torch
from tqdm import tqdm

from dspark_lite import CustomGenerate
from dspark_lite.common.files import ROOT, write_json
from dspark_lite.course.measure.journal import check_writable, header
from dspark_lite.course.measure.lab import setup
from tools.errors import report_errors

RECORDED = ROOT / "assets" / "measurements" / "batches.json"
ROWS = (1, 4, 16, 32)
NEW_TOKENS = 60
REPEATS = 5
METHODS = ("plain", "dspark")


class Batches:
    """The tiny pair, and prompts of all domains in turn."""

    def __init__(self):
        self.lab = setup("tiny", prompts=11, device="cpu")
        self.model = self.lab.target.model
        self.prompts = [
            self.lab.encode(text) for texts in zip(*self.lab.prompts.values()) for text in texts
        ]

    @cached_property
    def drafted(self) -> CustomGenerate:
        """Return the drafting loop; a process that decodes plainly does without."""
        return CustomGenerate("tiny-dspark", self.model)

    def padded(self, rows: int) -> dict[str, torch.Tensor]:
        """Return ids and mask [rows, n] of the first prompts, padded on the left."""
        prompts = self.prompts[:rows]
        ids = torch.zeros(rows, max(prompt.shape[1] for prompt in prompts), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, -prompt.shape[1] :], mask[row, -prompt.shape[1] :] = prompt[0], 1
        return {"input_ids": ids, "attention_mask": mask}

    def texts(self, method: str, rows: int, sampled: bool = False) -> list[list[int]]:
        """Return the new tokens of each row."""
        batch = self.padded(rows)
        torch.manual_seed(0)
        stops = None if sampled else list(self.lab.stop_token_ids)
        self.model.generation_config.eos_token_id = stops
        written = self.model.generate(
            **batch,
            max_new_tokens=NEW_TOKENS,
            do_sample=sampled,
            top_k=0 if sampled else None,
            pad_token_id=0,
            custom_generate=self.drafted if method == "dspark" else None,
        )
        return written[:, batch["input_ids"].shape[1] :].tolist()

    def measured(self, rows: int, repeats: int, sampled: bool) -> dict:
        """Return both methods' seconds, the ratios, and how many rows have the same greedy text."""
        texts = {method: self.texts(method, rows, sampled) for method in METHODS}  # a warm-up, too
        found = {method: [] for method in METHODS}
        for _ in range(repeats):
            for method in METHODS:
                wall, cpu = time.perf_counter(), time.process_time()
                self.texts(method, rows, sampled)
                found[method].append((time.process_time() - cpu, time.perf_counter() - wall))
        cpu, wall = (
            {method: min(times[clock] for times in found[method]) for method in METHODS}
            for clock in (0, 1)
        )
        rounds = [len(answer.rounds) for answer in self.drafted.answers]
        return {
            "rows": rows,
            "sampled": sampled,
            "cpu_seconds": cpu,
            "wall_seconds": wall,
            "cpu_ratio": cpu["dspark"] / cpu["plain"],
            "wall_ratio": wall["dspark"] / wall["plain"],
            "rounds": max(rounds),
            "same_text": None
            if sampled
            else sum(ours == theirs for ours, theirs in zip(*texts.values())),
        }


def peak_megabytes(method: str, rows: int) -> float:
    """Return the peak memory of a process that writes one batch."""
    command = [sys.executable, "-m", "tools.measure.batches", "--peak", method, str(rows)]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--print", action="store_true", help="print the times; write nothing")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.peak:
        method, rows = options.peak
        Batches().texts(method, int(rows))
        # Not getrusage's maximum: that of a started process begins with its parent's.
        status = Path("/proc/self/status").read_text()
        print(int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024)
        return
    if not options.print:
        check_writable(RECORDED)
    batches, found = Batches(), []
    asked = [(rows, sampled) for sampled in (False, True) for rows in options.rows]
    for rows, sampled in tqdm(asked, unit="batch", disable=options.print):
        found.append(batches.measured(rows, options.repeats, sampled))
        if not options.print and not sampled:
            found[-1]["peak_megabytes"] = {
                method: peak_megabytes(method, rows) for method in METHODS
            }
        print(json.dumps(found[-1]), flush=True)
    if not options.print:
        write_json(RECORDED, {**header(batches.lab), "new_tokens": NEW_TOKENS, "batches": found})


if __name__ == "__main__":
    sys.exit(main())
