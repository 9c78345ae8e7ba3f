"""Record what a draft with a short vocabulary takes and costs: `python -m tools.measure.vocabulary`, in
five minutes.

Writes assets/measurements/vocabulary.json. The CPU time of a round is measured at the shapes of
Qwen3-0.6B and its draft, on one thread, with random weights and with acceptance forced to a pattern
drawn from the paper; whole and short vocabulary take turns, round by round. The accepted length is measured at the
tiny pair, greedy: the ids are the most frequent of the target's answers to other prompts.
"""

import argparse
import json
import sys
import time
from itertools import chain
from statistics import median

import torch
from tqdm import tqdm
from transformers import Qwen3Config, Qwen3ForCausalLM

from dspark_lite import generate, load_drafter
from dspark_lite.common.files import ROOT, write_json
from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.course.measure.forced_rounds import forced_text, measure_parts, paper_pattern
from dspark_lite.course.measure.journal import check_writable, header
from dspark_lite.course.measure.lab import setup
from dspark_lite.decoding.target import Target
from dspark_lite.models.short_vocabulary import frequent_ids, shorten
from dspark_lite.training.drafts import new_draft
from tools.errors import report_errors

RECORDED = ROOT / "assets" / "measurements" / "vocabulary.json"
RECIPE = "qwen3-0.6b-dspark"
SHORT = 32768
PROMPT_TOKENS, WARM_UP, ROUNDS = 128, 1, 6
TEMPERATURES = (0.0, 1.0)
TINY_SIZES = (128, 256, 512, 1024, 2048)
PROMPTS, NEW_TOKENS = 20, 128  # prompts of a domain: half are counted, half are measured


class CPUSeconds:
    """A context that measures the CPU seconds of this process as `total`. Other work on the machine
    does not count."""

    def __init__(self, device: torch.device):
        self.total = 0.0

    def __enter__(self) -> "CPUSeconds":
        self.started = time.process_time()
        return self

    def __exit__(self, *error) -> None:
        self.total = time.process_time() - self.started


def random_pair():
    """Return a target and two drafts of the recipe's shapes with random weights: one whole, one of
    SHORT ids."""
    recipe = load_recipe(RECIPE)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**recipe.target_config)).requires_grad_(False)
    target = Target(model, name=f"shapes of {recipe.target}")
    drafters = {}
    for ids in (target.vocab_size, SHORT):
        drafters[ids] = new_draft(recipe, target).eval().requires_grad_(False)
    shorten(drafters[SHORT], torch.arange(SHORT))
    return target, drafters


def round_times(target, drafters: dict, temperature: float) -> list[dict]:
    """Return the median milliseconds of the parts of a round, for the whole vocabulary and the
    short one."""
    prompt = torch.arange(PROMPT_TOKENS)[None]
    pattern = paper_pattern("dspark", WARM_UP + ROUNDS)
    texts = {
        ids: forced_text(
            target,
            drafter,
            prompt,
            pattern,
            temperature=temperature,
            generator=torch.Generator().manual_seed(0),
        )
        for ids, drafter in drafters.items()
    }
    times = {ids: [] for ids in texts}
    for _ in tqdm(range(WARM_UP + ROUNDS), unit="round", desc=f"temperature {temperature:g}"):
        for ids, text in texts.items():
            parts = measure_parts(text, CPUSeconds)[1]
            times[ids].append({part: 1e3 * seconds for part, seconds in parts.items()})
    rows = []
    for ids, rounds in times.items():
        parts = {part: median(row[part] for row in rounds[WARM_UP:]) for part in rounds[0]}
        whole = median(sum(row.values()) for row in rounds[WARM_UP:])
        rows.append(
            {"ids": ids, "temperature": temperature, "milliseconds": parts | {"round": whole}}
        )
    return rows


def accepted_lengths(lab) -> list[dict]:
    """Return the accepted length of the tiny draft by its number of ids, over all prompts."""
    half = PROMPTS // 2
    prompts = [
        [lab.encode(text) for texts in lab.prompts.values() for text in texts[part]]
        for part in (slice(half), slice(half, None))
    ]

    def answers(drafter, prompts):
        return [
            generate(lab.target, drafter, prompt, max_new_tokens=NEW_TOKENS)
            for prompt in tqdm(prompts, unit="answer", leave=False)
        ]

    counted, plain = ([answer.token_ids for answer in answers(None, part)] for part in prompts)
    rows = []
    for size in (*TINY_SIZES, lab.target.vocab_size):
        ids, vocabulary = range(size), None
        if size < lab.target.vocab_size:
            ids = vocabulary = frequent_ids(list(chain(*counted)), size, lab.target).tolist()
        drafter = load_drafter("tiny-dspark", lab.target, vocabulary=vocabulary)
        found = answers(drafter, prompts[1])
        rounds = [each for answer in found for each in answer.rounds]
        covered = set(ids)
        rows.append(
            {
                "ids": size,
                "covered": sum(token in covered for token in chain(*plain)) / sum(map(len, plain)),
                "accepted_length": sum(each.committed for each in rounds) / len(rounds),
                "same_text": sum(a.token_ids == b for a, b in zip(found, plain)),
                "prompts": len(plain),
            }
        )
    return rows


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print the results; write nothing")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if not options.print:
        check_writable(RECORDED)
    lab = setup("tiny", prompts=PROMPTS, device="cpu")
    rounds, ratios = [], []
    pair = random_pair()
    for temperature in TEMPERATURES:
        whole, short = round_times(*pair, temperature)
        before, after = whole["milliseconds"], short["milliseconds"]
        rounds += [whole, short]
        ratios.append(
            {
                "temperature": temperature,
                "ids": short["ids"],
                "of": whole["ids"],
                **{part: after[part] / before[part] for part in ("draft", "verify", "round")},
            }
        )
    found = {
        "shapes": RECIPE,
        "weights": "random, float32; acceptance forced to a pattern of the paper",
        "prompt_tokens": PROMPT_TOKENS,
        "rounds": rounds,
        "ratios": ratios,
        "tiny": accepted_lengths(lab),
    }
    print(json.dumps(found, indent=2))
    if not options.print:
        write_json(RECORDED, {**header(lab), **found})


if __name__ == "__main__":
    sys.exit(main())
