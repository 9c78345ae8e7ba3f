"""Why could a drafter not copy a name? Measures the drafters of recipes/diagnosis-*.json on answers none of them saw.

Each recipe adds a change to the one that it extends. Beside them stand the committed drafters of the same target. What is
measured, along the target's own text: the chance that the drafts of a function's name are accepted, where the prompt has
told it; by position in the blocks that begin after `def`; the losses, while training and at the end; and the accepted
length on held-out prompts at temperature 1.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from tqdm import tqdm  # noqa: E402

from dspark_lite.common.files import write_json  # noqa: E402
from dspark_course.measure.evaluation import evaluate  # noqa: E402
from dspark_course.measure.journal import commit  # noqa: E402
from dspark_course.measure.lab import device_name, setup, versions  # noqa: E402
from dspark_lite.models.checkpoints import load_drafter  # noqa: E402
from dspark_lite.training.drafts import Rows, held_out_losses  # noqa: E402
from dspark_lite.training.losses import training_forward  # noqa: E402
from dspark_course.making.recipes import BUILD, load_recipe, recipe_states  # noqa: E402

COMMITTED = ("tiny-dspark", "tiny-dspark-rnn", "tiny-dflash")
RECIPES = ("diagnosis-0-shipped", "diagnosis-1-width", "diagnosis-2-cross-entropy-first", "diagnosis-3-muon", "diagnosis-3-muon-rnn",
           "diagnosis-4-all-anchors", "diagnosis-5-full-length", "diagnosis-5-full-length-rnn")
PROMPTS, SEED = {"math": 30, "code": 100, "chat": 30}, 11  # a seed that no recipe's data has
EVALUATED, SLOTS = 40, 16  # prompts a domain, and how many of them are under way at once
NAME_TOKENS = 2  # of a function's name: its verb and its noun
POINTS = 60  # of a loss curve


class Acceptance:
    """The chance that a draft is accepted, 1 - TV(p, q), around `def`, gathered over batches of blocks."""

    def __init__(self, gamma: int, tokenizer):
        self.define = tokenizer("```python\ndef", add_special_tokens=False)["input_ids"][-1]
        self.by_name_token = [[] for _ in range(NAME_TOKENS)]
        self.by_position = [[] for _ in range(gamma)]

    def add(self, batch, blocks, target_probs: torch.Tensor) -> None:
        """Counts the blocks of one batch; target probabilities [B, K, g, V]."""
        draft_probs = torch.softmax(blocks.logits.float(), -1)
        accepted = torch.minimum(target_probs, draft_probs).sum(-1)
        every_row = torch.arange(len(batch.ids))[:, None]
        for token, chances in enumerate(self.by_name_token):
            place = (blocks.target_position - token).clamp(min=0)  # of "def", where this slot drafts that token of the name
            chances += accepted[batch.ids[every_row[:, None], place].eq(self.define) & blocks.loss_mask].tolist()
        begins = (batch.ids[every_row, batch.anchors].eq(self.define) & batch.valid)[..., None] & blocks.loss_mask
        for position, chances in enumerate(self.by_position):
            chances += accepted[..., position][begins[..., position]].tolist()

    def record(self) -> dict:
        """The means, and how many blocks they are of."""
        return {"name_acceptance": [float(np.mean(some)) for some in self.by_name_token], "blocks": len(self.by_name_token[0]),
                "position_acceptance": [float(np.mean(some)) for some in self.by_position]}


@torch.no_grad()
def around_def(drafter, rows, tokenizer) -> dict:
    """The record of `Acceptance` over all rows held out, the drafts given the text before them."""
    acceptance = Acceptance(drafter.gamma, tokenizer)
    for batch in rows.held_out_batches():
        blocks = training_forward(drafter, batch.features, batch.ids, batch.supervised, batch.anchors, batch.valid, None)
        every_row = torch.arange(len(batch.ids))[:, None, None]
        acceptance.add(batch, blocks, torch.softmax(drafter.lm_head(batch.last_hidden[every_row, blocks.target_position]).float(), -1))
    return acceptance.record()


def loss_curve(name: str) -> dict[str, list[float]]:
    """Steps and L1 losses of a training's log, each the mean of a stretch of it; nothing where there is no log."""
    path = BUILD / name / "log.jsonl"
    if not path.exists():
        return {}
    log = [json.loads(line) for line in path.read_text().splitlines()]
    parts = np.array_split(np.arange(len(log)), min(POINTS, len(log)))
    return {"step": [float(part.mean()) for part in parts], "l1": [float(np.mean([log[i]["l1"] for i in part])) for part in parts]}


def measure(name: str, source: str, lab, rows, probe: dict, cache) -> dict:
    """What is recorded of the drafter in `source`."""
    drafter = load_drafter(source, lab.target)
    lengths = {row["domain"]: row["accepted_length"] for row in evaluate(lab, {name: source}, lab.prompts, slots=SLOTS)["rows"]}
    return {"drafter": name, **around_def(drafter, rows, lab.tokenizer), "loss_curve": loss_curve(name), "accepted_length": lengths,
            "held_out_losses": held_out_losses(drafter, probe, cache), "commit": commit()}


def main(arguments=None):
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds a checkpoint for each recipe, as `train --out` wrote them; a recipe without one "
                                                  "keeps what an earlier run has measured of it")
    parser.add_argument("--json", type=Path, default=ROOT / "assets" / "measurements" / "diagnosis.json")
    options = parser.parse_args(arguments)
    lab = setup("tiny", prompts=EVALUATED)
    # One recipe for all: the same answers, all their anchors and the final loss.
    probe = {**load_recipe("diagnosis-4-all-anchors"), "name": "diagnosis-probe"}
    probe["data"] = {**probe["data"], "prompts": PROMPTS, "seed": SEED}
    cache = recipe_states(probe, lab.target, BUILD)
    probe["data"] = {**probe["data"], "held_out": len(cache.rows) - 1}
    rows = Rows(probe, cache)
    measured = {row["drafter"]: row for row in json.loads(options.json.read_text())["drafters"]} if options.json.exists() else {}
    trained = {name: str(options.folder / name) for name in RECIPES if (options.folder / name).is_dir()}
    for name, source in tqdm({**{name: name for name in COMMITTED}, **trained}.items(), unit="drafter"):
        row = measured[name] = measure(name, source, lab, rows, probe, cache)
        print(name, [round(chance, 3) for chance in row["name_acceptance"]],
              {key: round(value, 4) for key, value in row["held_out_losses"].items()})
    drafters = [measured[name] for name in (*COMMITTED, *RECIPES) if name in measured]
    write_json(options.json, {"device": device_name(lab.device), "versions": versions(), "drafters": drafters})
    return 0


if __name__ == "__main__":
    sys.exit(main())
