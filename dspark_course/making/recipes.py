"""From a recipe, a JSON file in recipes/, to a checkpoint: the one training command."""

import hashlib
import json
import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import IN_CLONE, WORK, data_folder, write_atomically, write_json
from dspark_lite.drafters import DSpark
from dspark_lite.models.checkpoints import EMBEDDED, default_dtype, load_target, save_draft
from dspark_lite.common.fingerprint import fingerprint
from dspark_lite.training.allowance import Allowance
from dspark_lite.training.cache import build_cache
from dspark_lite.training.drafts import held_out_losses, train_draft
from dspark_lite.training.online import OnlineFeatures
from dspark_lite.training.parallel import processes, training_device
from ..world.tokenizer import save_tokenizer, train_tokenizer
from .answers import answered_rows
from .language_model import train_language_model

RECIPES = data_folder("recipes")
BUILD = WORK / "build" / "training"
CHECKPOINTS = EMBEDDED if IN_CLONE else WORK / "build" / "checkpoints"  # where a training writes by default


def load_recipe(name: str) -> dict:
    """A recipe by its name in recipes/ or by the path of a JSON file; what it `extends` is filled in.

    Raises DSparkLiteError where there is none, or where a recipe extends itself.
    """
    return _extended(_find_recipe(name), Path(name).stem, ())


def _find_recipe(name: str) -> dict:
    for path in (RECIPES / f"{name}.json", Path(name)):
        if path.is_file():
            try:
                return json.loads(path.read_text())
            except json.JSONDecodeError as error:
                raise DSparkLiteError(f"{path.name} is not JSON ({error}); see recipes/ for examples") from None
    known = ", ".join(sorted(path.stem for path in RECIPES.glob("*.json")))
    raise DSparkLiteError(f"there is no recipe {name!r}; recipes are {known}, or the path of a JSON file")


def _extended(recipe: dict, name: str, below: tuple[str, ...]) -> dict:
    """The recipe laid over the one it extends; the inner objects (config, loss, data) are merged field by field."""
    if "extends" not in recipe:
        return recipe
    base = recipe["extends"]
    if base in (name, *below):
        raise DSparkLiteError(f"recipe {name} extends {base}, which extends it in turn; one of them must stand alone")
    merged = _extended(_find_recipe(base), base, (*below, name))
    for key, value in recipe.items():
        inner = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if inner else value
    del merged["extends"]
    return merged


def check_recipe(recipe: dict) -> None:
    """Raises DSparkLiteError for a recipe of a kind that is not trained here, or of a number format that is none."""
    for field, known in (("kind", tuple(TRAINERS)), ("precision", PRECISIONS), ("features", FEATURES)):
        found = recipe.get(field, "cached" if field == "features" else None)
        if found not in known:
            raise DSparkLiteError(f"the recipe's {field} is {found!r}; it must be one of {', '.join(known)}")


def train(name: str, *, device: str | None = None, out: Path | None = None, build: Path | None = None,
          endpoint: str | None = None, minutes: float | None = None) -> Path:
    """Trains what the recipe describes and writes the checkpoint to `out` (a folder in CHECKPOINTS by default).

    What is needed to resume is kept in `build`; a second call after a stop goes on from the last save. A drafter's
    answers are written by its target in this process, or by a server that has it at the URL `endpoint`. With `minutes`,
    all runs together take about so long: fewer answers, fewer updates, and a drafter in any case.
    """
    recipe = load_recipe(name)
    check_recipe(recipe)
    folder, out = (build or BUILD) / recipe["name"], out or CHECKPOINTS / recipe["name"]
    allowance = None if minutes is None else _allowance(recipe, folder, minutes)
    TRAINERS[recipe["kind"]](recipe, folder, out, training_device(device), endpoint, allowance)
    return out


def _allowance(recipe: dict, folder: Path, minutes: float) -> Allowance:
    if recipe["kind"] != "draft" or processes().num_processes > 1:
        raise DSparkLiteError("--minutes bounds the training of a drafter in one process; leave it out, or train so")
    return Allowance(folder / "seconds.json", 60 * minutes)


def _language_model(recipe: dict, folder: Path, out: Path, device, endpoint, allowance) -> None:
    tokenizer = _tokenizer(recipe, out)
    model = train_language_model(recipe, tokenizer, folder, device)
    if not processes().is_main_process:
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        model.to("cpu", torch.bfloat16).save_pretrained(temporary)
        save_tokenizer(tokenizer, temporary)
        for path in sorted(Path(temporary).iterdir()):
            write_atomically(out / path.name, lambda target, path=path: path.rename(target))


def _tokenizer(recipe: dict, out: Path):
    """The tokenizer of another checkpoint, the one that `out` has (drafters rely on its vocabulary), or a new one."""
    if "tokenizer_of" in recipe:
        return load_target(recipe["tokenizer_of"]).tokenizer
    if (out / "tokenizer.json").exists():
        return PreTrainedTokenizerFast.from_pretrained(out)
    return train_tokenizer(**recipe["tokenizer"])


def data_name(recipe: dict, target) -> str:
    """The folder of a recipe's answers and caches: another target or other prompts never find them."""
    data = hashlib.sha256(json.dumps(recipe["data"], sort_keys=True).encode()).hexdigest()[:8]
    return f"data-{recipe['target'].replace('/', '--')}-{fingerprint(target)}-{data}"


def _draft(recipe: dict, folder: Path, out: Path, device, endpoint, allowance) -> None:
    target = load_target(recipe["target"], device=device, dtype=default_dtype(device))
    cache = recipe_states(recipe, target, folder.parent, endpoint, allowance)
    drafter = train_draft(recipe, target, cache, folder, allowance)
    if processes().is_main_process:
        if recipe["data"].get("held_out"):
            write_json(folder / "held_out.json", held_out_losses(drafter, recipe, cache))
        anchors = {"num_anchors": recipe["config"]["num_anchors"]} if isinstance(drafter, DSpark) else None
        save_draft(out, drafter, target, anchors)


def recipe_states(recipe: dict, target, build: Path, endpoint: str | None = None, allowance: Allowance | None = None):
    """A recipe's answers with their hidden states, the answers and the cache if there is one kept in `build` and shared by
    all recipes with the same data."""
    shared = build / data_name(recipe, target)
    # Every cache holds the last hidden states beside the taps, so MTP, which reads nothing else, shares one of others.
    taps = recipe.get("cached_layer_ids", recipe["config"]["target_layer_ids"])
    with processes().main_process_first():  # which writes what is missing; the others then find it
        rows = answered_rows(target, recipe["data"], shared / "answers.jsonl", endpoint, allowance)
        if recipe.get("features") == "online":
            return OnlineFeatures(target, rows, taps)
        return build_cache(target, rows, taps, shared / ("taps_" + "_".join(map(str, taps))))


def search(name: str, rates: list[float], steps: int, *, device: str | None = None, build: Path | None = None) -> dict[float, float]:
    """The loss on the rows held out after short trainings of `steps` updates, one for each rate of Muon.

    The same search for every drafter: a rival that loses because its rate was wrong is no rival. Nothing is kept of the
    drafters; finished ones are not trained again.
    """
    build = build or BUILD
    recipe, losses = load_recipe(name), {}
    check_recipe(recipe)
    if not recipe["data"].get("held_out"):
        raise DSparkLiteError(f"recipe {name} holds no answers out, so there is nothing to judge by; give its data a \"held_out\"")
    target = load_target(recipe["target"], device=device, dtype=default_dtype(training_device(device)))
    cache = recipe_states(recipe, target, build)
    for rate in rates:
        short = {**recipe, "name": f"{recipe['name']} at {rate:g}", "matrix_rate": rate, "steps": steps}
        folder = build / f"{recipe['name']}-search" / f"{rate:g}-{steps}"
        path = folder / "held_out.json"
        if not path.exists():
            write_json(path, held_out_losses(train_draft(short, target, cache, folder), short, cache))
        losses[rate] = json.loads(path.read_text())["loss"]
    return losses


TRAINERS = {"language_model": _language_model, "draft": _draft}
FEATURES = ("cached", "online")  # hidden states on the disk, or computed anew for each batch
PRECISIONS = ("float32", "bfloat16", "float16")
