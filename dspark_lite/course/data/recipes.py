"""From a recipe, a JSON file in assets/recipes/, to a checkpoint: the one training command.

`train` reads as a training runs. For a drafter: the recipe (training/recipe.py says what each field
means), the target's answers to its prompts (answers.py), their hidden states (training/cache.py),
the drafter before its first update (training/drafts.py), the training (training/train.py, with
the losses of training/blocks.py or chains.py), and the checkpoint, written as drafts are released.
"""

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from ...common.errors import DSparkLiteError, near_miss
from ...common.files import (
    IN_CLONE,
    WORK,
    data_folder,
    read_json,
    write_atomically,
    write_json,
)
from ...common.fingerprint import fingerprint
from ...drafters import DSpark
from ...models.checkpoints import (
    EMBEDDED,
    default_dtype,
    load_target,
    read_config,
    save_draft,
)
from ...training.cache import OnlineFeatures, TargetCache, build_cache
from ...training.devices import processes, training_device
from ...training.drafts import class_and_loss, draft_config, for_target, new_draft
from ...training.plan import Allowance
from ...training.recipe import Data, DraftRecipe, read_fields, without_nones
from ...training.train import check_patience, held_out_losses, train_draft
from ..world.examples import MAKERS
from ..world.tokenizer import train_tokenizer
from .answers import answered_rows
from .language_model import LanguageModelRecipe, train_language_model

RECIPES = data_folder("recipes")
RECIPE_KINDS = {"language_model": LanguageModelRecipe, "draft": DraftRecipe}
BUILD = WORK / "build" / "training"
# The folder of the checkpoints that a training writes by default.
CHECKPOINTS = EMBEDDED if IN_CLONE else WORK / "build" / "checkpoints"


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
    """Train what the recipe `name`, with `changes`, describes (`load_recipe`), and return the
    folder of the checkpoint.

    The checkpoint goes to `out` (`checkpoint_folder`), saves go to the recipe's folder in `build`;
    a second call resumes from the last save. The target answers the prompts in this process, or on
    a server at the URL `endpoint`. With `minutes` all runs together take about that time: fewer
    answers, fewer updates, and a checkpoint in any case. Raise DSparkLiteError as `load_recipe` and
    `checkpoint_folder` do, and for `minutes` in several processes.
    """
    recipe = load_recipe(name, changes)
    saves, out = (build or BUILD) / recipe.name, checkpoint_folder(recipe, out, build)
    allowance = None
    if minutes is not None:
        if processes().num_processes > 1:
            raise DSparkLiteError(
                "--minutes works in one process only; drop it, or run without accelerate launch"
            )
        allowance = Allowance(saves / "seconds.json", 60 * minutes, recipe.digest)
    if isinstance(recipe, LanguageModelRecipe):
        _train_language_model(recipe, saves, out, training_device(device), allowance)
    else:
        _train_draft(recipe, saves, out, training_device(device), endpoint, allowance)
    if processes().is_main_process:
        write_json(saves / "written.json", {"recipe": recipe.digest, "out": str(out)})
    return out


def _train_draft(
    recipe: DraftRecipe,
    saves: Path,
    out: Path,
    device: torch.device,
    endpoint: str | None,
    allowance: Allowance | None,
) -> None:
    """Train a drafter and write its checkpoint to `out`: config.json, and weights in bfloat16."""
    check_patience(recipe, allowance)
    target = load_target(recipe.target, device=device, dtype=default_dtype(device))
    recipe = for_target(recipe, target)
    cache = recipe_states(recipe, target, saves.parent, endpoint, allowance)
    drafter = train_draft(recipe, target, cache, saves, allowance)
    if not processes().is_main_process:
        return
    if recipe.data.held_out and recipe.patience is None:
        write_json(saves / "held_out.json", held_out_losses(drafter, recipe, cache))
    anchors = recipe.config.num_anchors if isinstance(drafter, DSpark) else None
    save_draft(out, drafter, target, {"num_anchors": anchors} if anchors else None)


def recipe_states(
    recipe: DraftRecipe,
    target,
    build: Path,
    endpoint: str | None = None,
    allowance: Allowance | None = None,
) -> TargetCache | OnlineFeatures:
    """Return the answers of a recipe with their hidden states.

    `build` stores answers and cache, and all recipes with the same target and data share them. A
    drafter that does not fit the target is refused before the target answers. Raise as
    `draft_config` and `new_draft` do, and DSparkLiteError for a cache without the drafter's taps.
    """
    (new_draft if recipe.initial else draft_config)(recipe, target)
    taps = recipe.cached_taps
    if recipe.cached_layer_ids:
        target.check_taps(taps)
    # An MTP reads no taps, only the last hidden states, which every cache holds.
    if recipe.config.drafter != "mtp" and taps != recipe.config.target_layer_ids:
        raise DSparkLiteError(
            f"recipe {recipe.name} reads layers {list(recipe.config.target_layer_ids)} and its cache holds {list(taps)}; leave "
            "cached_layer_ids out: only an MTP, which reads no taps, shares a cache of others"
        )
    shared = build / data_name(recipe, target)
    with processes().main_process_first():  # the main process writes, the others read
        rows = answered_rows(target, recipe.data, shared / "answers.jsonl", endpoint, allowance)
        if recipe.features == "online":
            return OnlineFeatures(target, rows, taps)
        return build_cache(target, rows, taps, shared / ("taps_" + "_".join(map(str, taps))))


def data_name(recipe: DraftRecipe, target) -> str:
    """Return the name of the folder of a recipe's answers and caches. It differs for other weights
    and other data."""
    return f"data-{recipe.target.replace('/', '--')}-{fingerprint(target)}-{recipe.data.digest}"


def search(
    name: str,
    rates: list[float],
    steps: int,
    *,
    changes: dict | None = None,
    device: str | None = None,
    build: Path | None = None,
) -> dict[float, float]:
    """Train `steps` updates with each rate of Muon and return the losses on the held-out answers,
    by rate.

    Comparing drafters is fair only if each has its best rate. The drafters are not saved; a rate
    that was tried before is not tried again. Raise DSparkLiteError if the recipe holds no answers
    out.
    """
    build, recipe, losses = build or BUILD, load_recipe(name, changes), {}
    short = {**(changes or {}), "steps": steps, "patience": None}
    trials = {
        rate: replace(
            load_recipe(name, {**short, "matrix_rate": rate}), name=f"{recipe.name} at {rate:g}"
        )
        for rate in rates
    }
    if not recipe.data.held_out:
        raise DSparkLiteError(
            f'recipe {name} holds no answers out, so there is nothing to judge by; give its data a "held_out"'
        )
    device = training_device(device)
    target = load_target(recipe.target, device=device, dtype=default_dtype(device))
    cache = recipe_states(for_target(recipe, target), target, build)
    for rate, trial in trials.items():
        trial = for_target(trial, target)
        saves = build / f"{recipe.name}-search" / f"{rate:g}-{steps}-{trial.digest}"
        path = saves / "held_out.json"
        if not path.exists():
            write_json(
                path, held_out_losses(train_draft(trial, target, cache, saves), trial, cache)
            )
        losses[rate] = read_json(path)["loss"]
    return losses


def _train_language_model(
    recipe: LanguageModelRecipe,
    saves: Path,
    out: Path,
    device: torch.device,
    allowance: Allowance | None,
) -> None:
    """Train a language model and write it to `out` with its tokenizer, in bfloat16."""
    tokenizer = _tokenizer(recipe, out)
    model = train_language_model(recipe, tokenizer, saves, device, allowance)
    if not processes().is_main_process:
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        model.to("cpu", torch.bfloat16).save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        for path in sorted(Path(temporary).iterdir()):
            write_atomically(out / path.name, lambda target, path=path: path.rename(target))


def _tokenizer(recipe: LanguageModelRecipe, out: Path):
    """Return the tokenizer of another checkpoint, the one in `out` (drafters rely on its
    vocabulary), or a new one."""
    if recipe.tokenizer_of:
        return load_target(recipe.tokenizer_of).tokenizer
    if (out / "tokenizer.json").exists():
        return PreTrainedTokenizerFast.from_pretrained(out)
    if recipe.tokenizer is None:
        raise DSparkLiteError(
            f'recipe {recipe.name} says nothing of a tokenizer; give it a "tokenizer" or a "tokenizer_of"'
        )
    return train_tokenizer(**without_nones(recipe.tokenizer))


def load_recipe(name: str, changes: dict | None = None) -> DraftRecipe | LanguageModelRecipe:
    """Return the recipe of a name in assets/recipes/ or of the path of a JSON file.

    Fields that the file leaves out are those of the recipe it `extends`, if any. The recipe has the
    file's name. `changes` {field: value}, with a dot before an inner field as in {"loss.l1": 0.5},
    make another recipe, whose name lists them: `tiny-dspark+loss.l1=0.5`.

    Raise DSparkLiteError for a file that is missing or no JSON object, a recipe that extends
    itself, a field that does not fit, and a file of prompts that is not there.
    """
    stem, changes = Path(name).name.removesuffix(".json"), changes or {}
    fields = _extended(_file(name), ())
    if changes.get("target", fields.get("target")) != fields.get("target"):
        fields.pop("target_config", None)  # it is the other target's
    for place, value in changes.items():
        *outer, last = place.split(".")
        inside = fields
        for part in outer:
            inside = inside.setdefault(part, {})
            if not isinstance(inside, dict):
                raise DSparkLiteError(
                    f"recipe {stem} has no inner fields in {part!r}, so {place} cannot be set"
                )
        inside[last] = value
    words = [f"{place}={_in_a_name(value)}" for place, value in changes.items()]
    if "target" not in fields and fields.get("kind") == "draft":
        raise DSparkLiteError(
            f"recipe {stem} names no target; name the model to draft for with --target, and the prompts with --data"
        )
    recipe = parse_recipe({**fields, "name": "+".join([stem, *words])}, f"{stem}.json")
    if isinstance(recipe, DraftRecipe) and recipe.data.dataset:
        _check_file(Path(recipe.data.dataset))
    return recipe


def _check_file(dataset: Path) -> None:
    """Raise DSparkLiteError for the name of a file of prompts that is not there. Other names may be
    those of data sets on the Hub."""
    if dataset.suffix in (".txt", ".json", ".jsonl") and not dataset.exists():
        raise DSparkLiteError(
            f"there is no file {dataset}; give the path of a file or a folder, or a data set on the Hub"
        )


def _in_a_name(value) -> str:
    """Return a value as a part of a folder's name."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", "="))
    text = Path(text).name if isinstance(value, str) and Path(value).exists() else text
    return re.sub(r"[^\w.,=-]+", "_", text)


def read_changes(settings: list[str]) -> dict:
    """Return {field: value} of settings like "loss.l1=0.5". A value that is no JSON is a text.

    Raise DSparkLiteError for a setting without "=".
    """
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


def _file(name: str) -> Path:
    """Return the file of a recipe: the course's of this name, or the path of another."""
    for path in (RECIPES / f"{name}.json", Path(name)):
        if path.is_file():
            return path.resolve()
    known = ", ".join(sorted(path.stem for path in RECIPES.glob("*.json")))
    raise DSparkLiteError(
        f"there is no recipe {name!r}; recipes are {known}, or the path of a JSON file"
        + near_miss(name, known.split(", "))
    )


def _read_file(path: Path) -> dict:
    """Return the JSON object of a recipe's file."""
    try:
        fields = read_json(path)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DSparkLiteError(
            f"{path.name} is not JSON ({error}); see assets/recipes/ for examples"
        ) from None
    if not isinstance(fields, dict):
        raise DSparkLiteError(
            f"{path.name} holds a {type(fields).__name__}; a recipe is an object, see assets/recipes/ for examples"
        )
    return fields


def _extended(path: Path, below: tuple[Path, ...]) -> dict:
    """Return the fields of a recipe's file over those of the recipe that it extends. Inner objects
    (config, loss, data) merge field by field."""
    fields = _read_file(path)
    if "extends" not in fields:
        return fields
    base = _file(fields["extends"])
    if base in (path, *below):
        raise DSparkLiteError(
            f"recipe {path.stem} extends {base.stem}, which extends it in turn; one of them must stand alone"
        )
    merged = _extended(base, (*below, path))
    if "target" in fields and "target_config" not in fields:
        merged.pop("target_config", None)  # it is the other target's
    for key, value in fields.items():
        inner = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if inner else value
    del merged["extends"]
    return merged


def parse_recipe(fields: dict, where: str) -> DraftRecipe | LanguageModelRecipe:
    """Return the recipe of a JSON object; `where` names the object in errors.

    Raise DSparkLiteError for an unknown kind, an unknown or a missing field, a value of another
    type, and prompts that do not exist.
    """
    if fields.get("kind") not in RECIPE_KINDS:
        raise DSparkLiteError(
            f"{where}: kind is {fields.get('kind')!r}; it must be one of {', '.join(map(repr, RECIPE_KINDS))}"
        )
    recipe = read_fields(RECIPE_KINDS[fields["kind"]], fields, where)
    if isinstance(recipe, LanguageModelRecipe):
        return recipe
    for name in ("target", "data"):
        if getattr(recipe, name) is None:
            raise DSparkLiteError(
                f"{where} has no field {name!r}; a drafter's recipe must say {'whose' if name == 'target' else 'which'} answers "
                "it is trained on"
            )
    _check_data(recipe.data, where)
    # What Data.digest hashes. A frozen dataclass takes an attribute in no other way.
    object.__setattr__(recipe.data, "source_fields", fields["data"])
    return recipe


def _check_data(data: Data, where: str) -> None:
    """Raise DSparkLiteError for prompts that neither a data set nor the tiny world has, and if all
    of them are held out."""
    by_domain = isinstance(data.prompts, dict)
    short = data.max_length is not None and data.max_length <= data.max_new_tokens
    if data.dataset and (by_domain or short):
        raise DSparkLiteError(
            f'{where}: data: {data.dataset} is read by a number of "prompts" and a "max_length" above '
            f"max_new_tokens; these are {data.prompts} and {data.max_length}"
        )
    if not data.dataset and (not by_domain or data.prompts.keys() - MAKERS.keys()):
        raise DSparkLiteError(
            f'{where}: data: prompts is {data.prompts}; without a "dataset" it must be an object with a number of prompts for '
            f"domains of the tiny world, which are {', '.join(MAKERS)}"
        )
    if data.held_out >= data.count:
        raise DSparkLiteError(
            f"{where}: data: held_out is {data.held_out} of {data.count} prompts, which leaves none to learn from; hold out fewer, or "
            "ask for more prompts"
        )


def checkpoint_folder(
    recipe: DraftRecipe | LanguageModelRecipe, out: Path | None = None, build: Path | None = None
) -> Path:
    """Return the folder of a recipe's checkpoint: `out`, by default the folder of its name in
    CHECKPOINTS.

    Raise DSparkLiteError if `out` holds a checkpoint of another architecture, and if the default
    folder holds one that no training of this recipe with its saves in `build` has written.
    """
    folder = out or CHECKPOINTS / recipe.name
    if not (folder / "config.json").is_file():
        return folder
    ours = (
        class_and_loss(recipe)[0].architecture
        if isinstance(recipe, DraftRecipe)
        else Qwen3ForCausalLM.__name__
    )
    theirs = read_config(folder).get("architectures")
    if theirs != [ours]:
        raise DSparkLiteError(
            f"{folder} holds a checkpoint of {theirs}, and this recipe trains a {ours}; give --out another folder"
        )
    written = (build or BUILD) / recipe.name / "written.json"
    if out is None and not (written.exists() and read_json(written)["recipe"] == recipe.digest):
        raise DSparkLiteError(
            f"{folder} holds a checkpoint, and not of this recipe trained here; give --out FOLDER, {folder} itself to write "
            "over it"
        )
    return folder
