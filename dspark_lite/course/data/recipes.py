"""From a recipe, a JSON file in assets/recipes/, to a checkpoint: the one training command.

`train`, from top to bottom, for a drafter: the file's fields become a checked DraftRecipe (training/recipe.py says what each one
means); the target answers the prompts (answers.py); its hidden states at these answers go into a cache (training/cache.py); the
drafter is made, and the batches it learns from (training/drafts.py); updates come in training/loop.py, with the loss of a block
drafter (training/blocks.py) or of a chain (training/unrolled.py); the checkpoint is written as drafts are released.
"""

import hashlib
import json
import re
import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import IN_CLONE, WORK, data_folder, write_atomically, write_json
from dspark_lite.common.fingerprint import fingerprint
from dspark_lite.drafters import DSpark
from dspark_lite.models.checkpoints import (
    EMBEDDED,
    default_dtype,
    load_target,
    read_config,
    save_draft,
)
from dspark_lite.training.cache import OnlineFeatures, build_cache
from dspark_lite.training.drafts import (
    check_end,
    draft_config,
    held_out_losses,
    new_draft,
    objective,
    train_draft,
)
from dspark_lite.training.loop import Allowance, processes, training_device
from dspark_lite.training.recipe import Data, DraftRecipe, read_fields
from ..world.examples import MAKERS
from ..world.tokenizer import train_tokenizer
from .answers import answered_rows
from .language_model import LanguageModelRecipe, train_language_model

RECIPES = data_folder("recipes")
BUILD = WORK / "build" / "training"
CHECKPOINTS = (
    EMBEDDED if IN_CLONE else WORK / "build" / "checkpoints"
)  # where a training writes by default


def load_recipe(name: str, changes: dict | None = None) -> dict:
    """The fields of a recipe by its name in assets/recipes/ or by the path of a JSON file, checked; what it `extends` is filled in.

    Its name is the file's. With `changes`, {field: value} with a dot before an inner field, as in {"loss.l1": 0.5}, it is a
    recipe of its own, whose name says what was set: `tiny-dspark+loss.l1=0.5`.

    Raises DSparkLiteError where there is none, where a recipe extends itself, and for a field that does not fit.
    """
    stem = Path(name).name.removesuffix(".json")
    fields = _extended(_find_recipe(name), stem, ())
    for place, value in (changes or {}).items():
        *outer, last = place.split(".")
        inside = fields
        for part in outer:
            inside = inside.setdefault(part, {})
            if not isinstance(inside, dict):
                raise DSparkLiteError(
                    f"recipe {stem} has no inner fields in {part!r}, so {place} cannot be set"
                )
        inside[last] = value
    fields["name"] = "+".join(
        [stem, *(f"{place}={_in_a_name(value)}" for place, value in (changes or {}).items())]
    )
    parse_recipe(fields, f"{stem}.json")
    return fields


def _in_a_name(value) -> str:
    """A value as a part of a folder's name."""
    return re.sub(
        r"[^\w.,=-]+",
        "_",
        value if isinstance(value, str) else json.dumps(value, separators=(",", "=")),
    )


def read_changes(settings: list[str]) -> dict:
    """{field: value} of settings such as "loss.l1=0.5"; what is no JSON is a text. Raises DSparkLiteError for one without "="."""
    changes = {}
    for setting in settings:
        place, equals, value = setting.partition("=")
        if not (place and equals):
            raise DSparkLiteError(
                f"--set {setting} has no value; write FIELD=VALUE, as in --set seed=2 or --set loss.l1=0.5"
            )
        try:
            changes[place] = json.loads(value)
        except json.JSONDecodeError:
            changes[place] = value
    return changes


def _find_recipe(name: str) -> dict:
    for path in (RECIPES / f"{name}.json", Path(name)):
        if path.is_file():
            try:
                found = json.loads(path.read_text())
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                raise DSparkLiteError(
                    f"{path.name} is not JSON ({error}); see assets/recipes/ for examples"
                ) from None
            if not isinstance(found, dict):
                raise DSparkLiteError(
                    f"{path.name} holds a {type(found).__name__}; a recipe is an object, see assets/recipes/ for examples"
                )
            return found
    known = ", ".join(sorted(path.stem for path in RECIPES.glob("*.json")))
    raise DSparkLiteError(
        f"there is no recipe {name!r}; recipes are {known}, or the path of a JSON file"
    )


def _extended(recipe: dict, name: str, below: tuple[str, ...]) -> dict:
    """The recipe laid over the one it extends; the inner objects (config, loss, data) are merged field by field."""
    if "extends" not in recipe:
        return recipe
    base = recipe["extends"]
    if base in (name, *below):
        raise DSparkLiteError(
            f"recipe {name} extends {base}, which extends it in turn; one of them must stand alone"
        )
    merged = _extended(_find_recipe(base), base, (*below, name))
    for key, value in recipe.items():
        inner = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if inner else value
    del merged["extends"]
    return merged


def parse_recipe(fields: dict, where: str) -> DraftRecipe | LanguageModelRecipe:
    """The recipe that the merged fields of a file are; `where` names the file in errors.

    Raises DSparkLiteError for an unknown or a missing field, a value of another type and an unknown kind.
    """
    if fields.get("kind") not in RECIPE_KINDS:
        raise DSparkLiteError(
            f"{where}: kind is {fields.get('kind')!r}; it must be one of {', '.join(map(repr, RECIPE_KINDS))}"
        )
    recipe = read_fields(RECIPE_KINDS[fields["kind"]], fields, where)
    for name in ("target", "data") if isinstance(recipe, DraftRecipe) else ():
        if getattr(recipe, name) is None:
            raise DSparkLiteError(
                f"{where} has no field {name!r}; a drafter's recipe must say {'whose' if name == 'target' else 'which'} answers "
                "it is trained on"
            )
    if isinstance(recipe, DraftRecipe):
        _check_data(recipe.data, where)
    return recipe


def _check_data(data: Data, where: str) -> None:
    """Raises DSparkLiteError for prompts of a data set or of the tiny world that there are not, and where all of them are held out."""
    counts = data.prompts if isinstance(data.prompts, dict) else None
    if data.dataset and (
        counts is not None or not data.split or (data.max_length or 0) <= data.max_new_tokens
    ):
        raise DSparkLiteError(
            f'{where}: data: {data.dataset} is read by a number of "prompts", a "split" and a "max_length" above '
            f"max_new_tokens; these are {data.prompts}, {data.split!r} and {data.max_length}"
        )
    if not data.dataset and (counts is None or counts.keys() - MAKERS.keys()):
        raise DSparkLiteError(
            f'{where}: data: prompts is {data.prompts}; without a "dataset" it must be an object with a number of prompts for '
            f"domains of the tiny world, which are {', '.join(MAKERS)}"
        )
    if data.held_out >= (total := data.prompts if counts is None else sum(counts.values())):
        raise DSparkLiteError(
            f"{where}: data: held_out is {data.held_out} of {total} prompts, which leaves none to learn from; hold out fewer, or "
            "ask for more prompts"
        )


def checkpoint_folder(recipe: dict, out: Path | None = None) -> Path:
    """Where the checkpoint of a recipe is written: `out`, or else a folder of the recipe's name in CHECKPOINTS.

    Raises DSparkLiteError where `out` holds a checkpoint of another architecture, and the other folder one that no training here of
    this very recipe has written.
    """
    parsed, folder = parse_recipe(recipe, recipe["name"]), out or CHECKPOINTS / recipe["name"]
    if not (folder / "config.json").is_file():
        return folder
    ours = (
        objective(parsed)[0].architecture
        if isinstance(parsed, DraftRecipe)
        else Qwen3ForCausalLM.__name__
    )
    theirs = read_config(folder).get("architectures")
    if theirs != [ours]:
        raise DSparkLiteError(
            f"{folder} holds a checkpoint of {theirs}, and this recipe trains a {ours}; give --out another folder"
        )
    kept = BUILD / recipe["name"] / "written.json"
    if out is None and not (
        kept.exists() and json.loads(kept.read_text())["recipe"] == parsed.digest
    ):
        raise DSparkLiteError(
            f"{folder} holds a checkpoint, and not of this recipe trained here; give --out FOLDER, {folder} itself to write "
            "over it"
        )
    return folder


def train(
    name: str,
    *,
    changes: dict | None = None,
    device: str | None = None,
    out: Path | None = None,
    build: Path | None = None,
    endpoint: str | None = None,
    minutes: float | None = None,
) -> Path:
    """Trains what the recipe, with `changes` (load_recipe), describes and writes the checkpoint to `out` (checkpoint_folder).

    What is needed to resume is kept in `build`; a second call after a stop goes on from the last save. A drafter's
    answers are written by its target in this process, or by a server that has it at the URL `endpoint`. With `minutes`,
    all runs together take about so long: fewer answers, fewer updates, and a checkpoint in any case.
    """
    fields = load_recipe(name, changes)
    recipe = parse_recipe(fields, fields["name"])
    folder, out = (build or BUILD) / recipe.name, checkpoint_folder(fields, out)
    allowance = None
    if minutes is not None:
        if processes().num_processes > 1:
            raise DSparkLiteError(
                "--minutes bounds a training in one process; leave it out, or train so"
            )
        allowance = Allowance(folder / "seconds.json", 60 * minutes, recipe.digest)
    train_kind = _language_model if isinstance(recipe, LanguageModelRecipe) else _draft
    train_kind(fields, recipe, folder, out, training_device(device), endpoint, allowance)
    if processes().is_main_process:
        write_json(folder / "written.json", {"recipe": recipe.digest, "out": str(out)})
    return out


def _language_model(
    _: dict, recipe: LanguageModelRecipe, folder: Path, out: Path, device, endpoint, allowance
) -> None:
    tokenizer = _tokenizer(recipe, out)
    model = train_language_model(recipe, tokenizer, folder, device, allowance)
    if not processes().is_main_process:
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        model.to("cpu", torch.bfloat16).save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        for path in sorted(Path(temporary).iterdir()):
            write_atomically(out / path.name, lambda target, path=path: path.rename(target))


def _tokenizer(recipe: LanguageModelRecipe, out: Path):
    """The tokenizer of another checkpoint, the one that `out` has (drafters rely on its vocabulary), or a new one."""
    if recipe.tokenizer_of:
        return load_target(recipe.tokenizer_of).tokenizer
    if (out / "tokenizer.json").exists():
        return PreTrainedTokenizerFast.from_pretrained(out)
    if recipe.tokenizer is None:
        raise DSparkLiteError(
            f'recipe {recipe.name} says nothing of a tokenizer; give it a "tokenizer" or a "tokenizer_of"'
        )
    return train_tokenizer(
        **{name: value for name, value in vars(recipe.tokenizer).items() if value is not None}
    )


def data_name(recipe: dict, target) -> str:
    """The folder of a recipe's answers and caches: another target or other prompts never find them."""
    data = hashlib.sha256(json.dumps(recipe["data"], sort_keys=True).encode()).hexdigest()[:8]
    return f"data-{recipe['target'].replace('/', '--')}-{fingerprint(target)}-{data}"


def _draft(
    fields: dict, recipe: DraftRecipe, folder: Path, out: Path, device, endpoint, allowance
) -> None:
    check_end(recipe, allowance)
    target = load_target(recipe.target, device=device, dtype=default_dtype(device))
    cache = recipe_states(fields, target, folder.parent, endpoint, allowance)
    drafter = train_draft(recipe, target, cache, folder, allowance)
    if processes().is_main_process:
        if recipe.data.held_out and recipe.patience is None:
            write_json(folder / "held_out.json", held_out_losses(drafter, recipe, cache))
        anchors = (
            {"num_anchors": recipe.config.num_anchors}
            if isinstance(drafter, DSpark) and recipe.config.num_anchors
            else None
        )
        save_draft(
            out, drafter, target, anchors
        )  # as drafts are released: config.json, and weights in bfloat16


def recipe_states(
    recipe: dict,
    target,
    build: Path,
    endpoint: str | None = None,
    allowance: Allowance | None = None,
):
    """A recipe's answers with their hidden states, the answers and the cache if there is one kept in `build` and shared by
    all recipes with the same data. What the target could not have, and an initial draft that does not fit, is refused before hours go
    into answers."""
    (new_draft if recipe.get("initial") else draft_config)(recipe, target)
    shared = build / data_name(recipe, target)
    taps = recipe.get("cached_layer_ids") or recipe["config"]["target_layer_ids"]
    target.check_taps(recipe.get("cached_layer_ids") or ())
    # Every cache holds the last hidden states beside the taps, so MTP, which reads nothing else, shares one of others.
    if recipe["config"].get("drafter") != "mtp" and list(taps) != list(
        recipe["config"]["target_layer_ids"]
    ):
        raise DSparkLiteError(
            f"recipe {recipe['name']} reads layers {recipe['config']['target_layer_ids']} and its cache holds {taps}; leave "
            "cached_layer_ids out: only an MTP, which reads no taps, shares a cache of others"
        )
    with processes().main_process_first():  # which writes what is missing; the others then find it
        rows = answered_rows(target, recipe["data"], shared / "answers.jsonl", endpoint, allowance)
        if recipe.get("features") == "online":
            return OnlineFeatures(target, rows, taps)
        return build_cache(target, rows, taps, shared / ("taps_" + "_".join(map(str, taps))))


def search(
    name: str,
    rates: list[float],
    steps: int,
    *,
    changes: dict | None = None,
    device: str | None = None,
    build: Path | None = None,
) -> dict[float, float]:
    """The loss on the rows held out after short trainings of `steps` updates, one for each rate of Muon.

    The same search for every drafter: a rival that loses because its rate was wrong is no rival. Nothing is kept of the
    drafters; finished ones are not trained again.
    """
    build = build or BUILD
    fields, losses = load_recipe(name, changes), {}
    if not fields["data"].get("held_out"):
        raise DSparkLiteError(
            f'recipe {name} holds no answers out, so there is nothing to judge by; give its data a "held_out"'
        )
    device = training_device(device)
    shorts = {
        rate: DraftRecipe.of(
            {
                **fields,
                "name": f"{fields['name']} at {rate:g}",
                "matrix_rate": rate,
                "steps": steps,
                "patience": None,
            }
        )
        for rate in rates
    }
    target = load_target(fields["target"], device=device, dtype=default_dtype(device))
    cache = recipe_states(fields, target, build)
    for rate, short in shorts.items():
        folder = build / f"{fields['name']}-search" / f"{rate:g}-{steps}-{short.digest}"
        path = folder / "held_out.json"
        if not path.exists():
            write_json(
                path, held_out_losses(train_draft(short, target, cache, folder), short, cache)
            )
        losses[rate] = json.loads(path.read_text())["loss"]
    return losses


RECIPE_KINDS = {"language_model": LanguageModelRecipe, "draft": DraftRecipe}
