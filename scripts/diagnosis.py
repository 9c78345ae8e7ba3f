"""Why could a drafter not copy a name? Measures the drafters of recipes/diagnosis-*.json on answers they never saw.

Each recipe adds one change to the one before. What is measured, on the answers held out and along the target's own text:
the chance that the drafts of a function's name are accepted, where the prompt has told it, and the losses at the end.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from tqdm import tqdm  # noqa: E402

from dspark_lite.common.files import write_json  # noqa: E402
from dspark_lite.measure.journal import commit  # noqa: E402
from dspark_lite.measure.lab import device_name, versions  # noqa: E402
from dspark_lite.models.checkpoints import load_drafter, load_target  # noqa: E402
from dspark_lite.training.drafts import Rows, held_out_losses  # noqa: E402
from dspark_lite.training.losses import training_forward  # noqa: E402
from dspark_lite.training.recipes import BUILD, _cache, load_recipe  # noqa: E402

RECIPES = ("diagnosis-0-shipped", "diagnosis-1-width", "diagnosis-2-cross-entropy-first", "diagnosis-3-muon", "diagnosis-3-muon-rnn",
           "diagnosis-4-all-anchors")
NAME_TOKENS = 2  # of a function's name: its verb and its noun


@torch.no_grad()
def name_acceptance(drafter, rows, tokenizer):
    """Return the mean chance, by token of the name, that its draft is accepted after the text before it, and how many there were."""
    after = tokenizer("```python\ndef", add_special_tokens=False)["input_ids"][-1]
    chances = [[] for _ in range(NAME_TOKENS)]
    for batch in rows.held_out_batches():
        blocks = training_forward(drafter, batch.features, batch.ids, batch.supervised, batch.anchors, batch.valid, None)
        every_row = torch.arange(len(batch.ids))[:, None, None]
        target_probs = torch.softmax(drafter.lm_head(batch.last_hidden[every_row, blocks.target_position]).float(), -1)
        accepted = torch.minimum(target_probs, torch.softmax(blocks.logits.float(), -1)).sum(-1)
        for token in range(NAME_TOKENS):
            place = blocks.target_position - token  # of "def", where this slot drafts that token of the name
            here = batch.ids[every_row, place.clamp(min=0)].eq(after) & blocks.loss_mask
            chances[token] += accepted[here].tolist()
    return [sum(some) / len(some) for some in chances], len(chances[0])


def main(arguments=None):
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds a checkpoint for each recipe, as `train --out` wrote them")
    parser.add_argument("--json", type=Path, default=ROOT / "assets" / "measurements" / "diagnosis.json")
    options = parser.parse_args(arguments)
    target, measured = load_target("tiny-target"), []
    for name in tqdm([name for name in RECIPES if (options.folder / name).is_dir()], unit="drafter"):
        recipe = load_recipe(name)
        cache = _cache(recipe, target, BUILD)
        drafter = load_drafter(str(options.folder / name), target)
        chances, blocks = name_acceptance(drafter, Rows(recipe, cache), target.tokenizer)
        measured.append({"recipe": name, "name_acceptance": chances, "blocks": blocks, "held_out_losses": held_out_losses(drafter, recipe, cache)})
        print(name, [round(chance, 3) for chance in chances], {key: round(value, 4) for key, value in measured[-1]["held_out_losses"].items()})
    write_json(options.json, {"device": device_name(target.device), "versions": versions(), "commit": commit(), "rows": measured})
    return 0


if __name__ == "__main__":
    sys.exit(main())
