"""What lessons beside the thirteenth show of drafters that were trained here for minutes: V4's
parts, heads on one backbone, trees."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ...common.timing import clock
from ...drafters import DSpark
from ...training.cache import build_cache
from ...training.recipe import DraftRecipe
from ...training.train import read_log, train_draft
from ..data.answers import answered_rows
from ..data.recipes import load_recipe, train
from ..data.selector import Selector
from ..data.v4_drafter import V4Draft, drafter_sizes
from ..estimates import Estimate, bootstrap
from ..extensions.trees import generate_with_tree
from .evaluation import mean_accepted_length, relative_gain, rollouts, tally
from .lab import Lab, setup

PLAIN_PARTS = {"experts": 0, "streams": 1, "window": None}  # V4's parts left out: a DSpark
V4_VARIANTS = {
    "dspark": PLAIN_PARTS,
    "window": {**PLAIN_PARTS, "window": 128},
    "experts": {**PLAIN_PARTS, "experts": 8},
    "streams": {**PLAIN_PARTS, "streams": 4},
    "v4": {},
}
TREE_NODES = (7, 15, 31)
TIMED_BLOCKS = 30


def cached_rows(lab: Lab, recipe: DraftRecipe, folder: Path):
    """Return the target's answers to a recipe's prompts with its hidden states."""
    rows = answered_rows(lab.target, recipe.data, folder / "answers.jsonl")
    return build_cache(lab.target, rows, recipe.config.target_layer_ids, folder / "cache")


def counted(generations: list) -> list[list[float]]:
    """Return tokens and rounds of each generation, for a JSON file."""
    return tally(generations).tolist()


def lengths_of(lab: Lab, drafter, prompts: int, temperature: float) -> dict[str, list]:
    """Return tokens and rounds of each of the first `prompts` prompts, by domain."""
    return {
        domain: counted(rollouts(lab, drafter, texts[:prompts], temperature=temperature))
        for domain, texts in lab.prompts.items()
    }


def block_milliseconds(lab: Lab, drafter) -> float:
    """Return the median time of drafting a block after a prompt."""
    ids, took = lab.encode(lab.prompts["chat"][0]), []
    output, _ = lab.target.prefill(ids, drafter.taps)
    with torch.inference_mode():
        state = drafter.begin(ids, output.features)
        for _ in range(TIMED_BLOCKS):
            began = clock(lab.device)
            drafter.propose(state, ids[:, -1], temperature=0.0, generator=None)
            took.append(clock(lab.device) - began)
    return 1e3 * float(np.median(took))


def v4_row(lab: Lab, name: str, cache, folder: Path, prompts: int) -> dict:
    """Train one of V4_VARIANTS, all by the same recipe, and says what it costs and brings."""
    began = time.monotonic()
    drafter = train_draft(
        load_recipe("production-v4"),
        lab.target,
        cache,
        folder / name,
        kind=V4Draft,
        **V4_VARIANTS[name],
    )
    seconds, log = time.monotonic() - began, read_log(folder / name / "log.jsonl")
    everything, active = drafter_sizes(drafter)
    return {
        "name": name,
        "parameters": everything,
        "active": active,
        "steps": len(log),
        "train_seconds": round(seconds, 1),
        "l1": [
            float(np.mean([entry["l1"] for entry in part]))
            for part in np.array_split(np.array(log, dtype=object), 20)
        ],
        "block_milliseconds": block_milliseconds(lab, drafter),
        "tallies": lengths_of(lab, drafter, prompts, 1.0),
    }


# name: class, head
HEAD_KINDS = {
    "dflash": (None, None),
    "markov": (DSpark, "vanilla"),
    "gated": (DSpark, "gated"),
    "selector": (Selector, "gated"),
}


def head_row(lab: Lab, name: str, cache, folder: Path, prompts: int) -> dict:
    """Return one of HEAD_KINDS, trained on the frozen backbone of DFlash: none, the Markov head,
    the gated one, and the gated one as a selector."""
    recipe, (kind, head) = load_recipe("production-heads"), HEAD_KINDS[name]
    if kind is None:
        drafter = lab.drafter(recipe.initial)
    else:
        recipe = replace(recipe, config=replace(recipe.config, markov_head_type=head))
        drafter = train_draft(recipe, lab.target, cache, folder / head, kind=kind)
    return {
        "name": name,
        "block_milliseconds": block_milliseconds(lab, drafter),
        "tallies": lengths_of(lab, drafter, prompts, 1.0),
    }


def tree_row(lab: Lab, nodes: int, temperature: float, prompts: int) -> dict:
    """Return the lab's DSpark with trees of `nodes` nodes; 0: its chain."""
    drafter = lab.drafter("dspark")
    if not nodes:
        return {
            "name": "chain",
            "nodes": drafter.gamma,
            "temperature": temperature,
            "tallies": lengths_of(lab, drafter, prompts, temperature),
        }
    draw = partial(
        generate_with_tree,
        lab.target,
        drafter,
        nodes=nodes,
        max_new_tokens=lab.max_new_tokens,
        temperature=temperature,
    )
    lengths = {
        domain: counted(
            [
                draw(lab.encode(text), generator=lab.generator(lab.seed + index))
                for index, text in enumerate(texts[:prompts])
            ]
        )
        for domain, texts in lab.prompts.items()
    }
    return {"name": "tree", "nodes": nodes, "temperature": temperature, "tallies": lengths}


def retold_lab(lab: Lab, folder: Path, prompts: int) -> Lab:
    """Return the lab with its target fine-tuned, in `folder`, to tell the same in other words."""
    target = train("production-retold", out=folder / "target", build=folder)
    return setup(lab.profile, seed=lab.seed, prompts=prompts, target=str(target))


def retold_row(lab: Lab, name: str, prompts: int, folder: Path | None = None) -> dict:
    """Return how long the DSpark of the untouched target is accepted by a lab's; with the `folder`
    of a retold one, after a fine-tuning, there, on that one's answers."""
    began, drafter = time.monotonic(), "dspark"
    if folder:
        drafter = str(
            train(
                "production-refitted",
                changes={"target": str(folder / "target")},
                out=folder / "draft",
                build=folder,
            )
        )
    seconds = time.monotonic() - began
    return {
        "name": name,
        "train_seconds": round(seconds, 1),
        "tallies": lengths_of(lab, lab.drafter(drafter), prompts, 1.0),
    }


def length_in(row: dict, domain: str) -> Estimate:
    """Return the accepted length of a row in a domain, with its interval over prompts."""
    return bootstrap(mean_accepted_length, [np.array(row["tallies"][domain])])


def mean_length(row: dict) -> Estimate:
    """Return the mean of the domains' accepted lengths."""
    return bootstrap(mean_accepted_length, [np.array(counts) for counts in row["tallies"].values()])


def gain_in_length(ours: dict, theirs: dict) -> Estimate:
    """Return how much longer `ours` accepts than `theirs` in the mean of the domains, as a
    fraction."""
    return relative_gain(
        *([np.array(counts) for counts in row["tallies"].values()] for row in (ours, theirs))
    )
