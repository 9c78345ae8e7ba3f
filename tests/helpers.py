"""What several test files use: a pair of small checkpoints and ways to damage it, the tiny lab, recipes of a small training,
wrong lengths, what a figure shows, and the one line that a refused command prints."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_lite.__main__ import main
from dspark_lite.common.errors import CheckpointError, DSparkLiteError
from dspark_lite.course.measure.lab import NEW_TOKENS, setup
from dspark_lite.decoding import generate
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_target, save_draft
from dspark_lite.training.recipe import DraftRecipe, read_fields

# A pair of checkpoints

VOCAB, GAMMA = 11, 4
PROMPT = torch.tensor([[1, 2, 3, 4, 1, 2]])


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A folder with the checkpoints `target`, `draft` (which holds the target's embedding) and `small`."""
    folder = tmp_path_factory.mktemp("pair")
    target, drafters = toy_models(vocab_size=VOCAB, gamma=GAMMA)
    for parameter in target.model.parameters():
        # so that the draft's 16-bit copies of them can be equal
        parameter.copy_(parameter.bfloat16())
    drafters["dspark"].embed_tokens.weight.copy_(target.model.get_input_embeddings().weight)
    target.model.save_pretrained(folder / "target")
    drafters["small_lm"].model.model.save_pretrained(folder / "small")
    save_draft(folder / "draft", drafters["dspark"], target)
    return folder


@pytest.fixture
def copy(pair, tmp_path):
    """Copies of the pair's folders that a test may damage."""
    return Path(shutil.copytree(pair, tmp_path / "copy"))


@pytest.fixture(scope="module")
def target(pair):
    """The target of the pair."""
    return load_target(str(pair / "target"))


def set_config(folder, **fields):
    """Changes fields of a config.json; a field set to `...` is removed."""
    config = json.loads((folder / "config.json").read_text()) | fields
    kept = {name: value for name, value in config.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(kept))


def set_tensors(folder, change):
    """Rewrites model.safetensors with what `change` makes of its tensors."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def cut_short(path):
    """Drops the last bytes of a file."""
    path.write_bytes(path.read_bytes()[:-100])


def greedy(target, drafter=None):
    """The ids that a pair writes after the prompt."""
    return generate(target, drafter, PROMPT, max_new_tokens=16, stop_token_ids=()).token_ids


def assert_refused(sentence, load, *arguments, **options):
    """The call raises our own error, in one line that contains `sentence`."""
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(*arguments, **options)
    assert isinstance(caught.value, DSparkLiteError) and "\n" not in str(caught.value)


def shard(folder):
    """Splits model.safetensors into two files and an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for part, held in parts.items():
        save_file({name: tensors[name] for name in held}, folder / part, metadata={"format": "pt"})
    weight_map = {name: part for part, held in parts.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )


# The tiny lab

SHORT = 64  # tokens of an answer, where a test needs no more


@pytest.fixture(scope="session")
def tiny_lab():
    """The tiny lab with six prompts a domain, shared by the tests of a process. They read from it and leave it as it is."""
    return setup("tiny", prompts=6)


@pytest.fixture(scope="session")
def short_lab(tiny_lab):
    """As `tiny_lab`, with answers of at most SHORT tokens."""
    lab = replace(tiny_lab)
    lab.max_new_tokens = SHORT
    return lab


@pytest.fixture
def short_answers(monkeypatch):
    """Has the tiny labs that a test or a command of it sets up answer with at most SHORT tokens."""
    monkeypatch.setitem(NEW_TOKENS, "tiny", SHORT)


# Wrong verification lengths

# Policies for a step of four requests and blocks of four drafts: what each gives is refused, and with which words.
BAD_LENGTHS = {
    "too short a tensor": (
        lambda proposal: torch.zeros(1, dtype=torch.long),
        "gave torch.int64 of shape .1,.; a policy gives whole numbers, one for each of the 4",
    ),
    "too long a tensor": (lambda proposal: torch.ones(5, dtype=torch.long), r"of shape \(5,\)"),
    "a column": (lambda proposal: torch.zeros(4, 1, dtype=torch.long), r"of shape \(4, 1\)"),
    "numbers with a point": (lambda proposal: torch.full((4,), 1.5), "torch.float32"),
    "not a number": (lambda proposal: torch.full((4,), torch.nan), "torch.float32"),
    "a list": (lambda proposal: [1, 1, 1, 1], "gave a list"),
    "nothing": (lambda proposal: None, "gave a NoneType"),
    "truth values": (lambda proposal: torch.ones(4, dtype=torch.bool), "torch.bool"),
    "below zero": (
        lambda proposal: torch.tensor([0, -1, 2, 2]),
        "from -1 to 2; in blocks of 4 drafts they lie between 0 and 4",
    ),
    "beyond the block": (lambda proposal: torch.tensor([0, 5, 2, 2]), "from 0 to 5"),
    "far beyond the block": (lambda proposal: torch.full((4,), 99), "from 99 to 99"),
}


# Recipes


def recipe_of(fields, **changes):
    """The recipe of a JSON object with changes; those of `config`, `data` and `loss` are merged field by field."""
    inner = {
        name: {**fields.get(name, {}), **changes[name]}
        for name in ("config", "data", "loss")
        if name in changes
    }
    return read_fields(DraftRecipe, {**fields, **changes, **inner}, "recipe")


# Figures


def written(fig):
    """All that is written into a figure's panels, in the order of drawing."""
    return [text.get_text() for axes in fig.axes for text in axes.texts]


def bars(axes):
    """The heights of a panel's bars, a list a call of `bar`."""
    return [[bar.get_height() for bar in container] for container in axes.containers]


def drawn(axes):
    """The heights of a panel's lines and markers, {label: list}; intervals and lines across the panel have no label."""
    return {
        line.get_label(): list(line.get_ydata())
        for line in axes.lines
        if not line.get_label().startswith("_")
    }


# Commands


def refused(capfd, *arguments):
    """The one line on stderr of a command that must fail with exit code 2."""
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("dspark_lite: "), (out, err)
    return err


# Recipes of a training that takes seconds

LANGUAGE_MODEL = {
    "name": "mini",
    "kind": "language_model",
    "seed": 1,
    "tokenizer": {"vocab_size": 399, "seed": 1, "per_domain": 40},
    "config": {
        "vocab_size": 400,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    },
    "phases": [
        {"examples": {"math": 16, "code": 16, "chat": 16}, "learning_rate": 0.01},
        {"examples": {"math": 16}, "learning_rate": 0.005},
    ],
    "batch": 8,
    "weight_decay": 0.0,
    "precision": "float32",
}
DRAFT = {
    "name": "mini-draft",
    "kind": "draft",
    "seed": 1,
    "epochs": 2,
    "batch": 4,
    "learning_rate": 0.01,
    "precision": "float32",
    "data": {"prompts": {"math": 5, "code": 5, "chat": 4}, "seed": 7, "max_new_tokens": 12},
    "config": {
        "num_hidden_layers": 1,
        "block_size": 3,
        "mask_token_id": 399,
        "target_layer_ids": [0, 1],
        "num_anchors": 4,
        "markov_rank": 4,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    },
    "loss": {"cross_entropy": 0.1, "l1": 0.9, "confidence": 1.0},
}
