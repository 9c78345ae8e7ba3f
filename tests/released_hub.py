"""Small-shaped checkpoints under the ids of the released profile: what a Hub on loopback serves in their place.

Files, shards and config fields are those of the released repositories (the drafts' from the manifest, with smaller
numbers), and the tokenizer is the tiny target's. The target follows a bigram table, so that its answers vary and end;
the drafts hold copies of its embedding and LM head, and DSpark's Markov head holds the same table.
"""

import json
import math
import shutil
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from dspark_lite.common.files import ROOT
from dspark_lite.course.names import PROFILES
from dspark_lite.course.world.tokenizer import chat_ids
from dspark_lite.models.checkpoints import EMBEDDED
from dspark_lite.models.draft_config import DRAFTS, parse_draft_config

RELEASED = {kind: name for kind, name in PROFILES["released"].items() if "/" in name}
MANIFEST = json.loads((ROOT / "assets" / "reference" / "released_manifest.json").read_text())
VOCAB, STOP, PAD, MASK = 3584, 3580, 3578, 3583
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": VOCAB}
SHAPES = {
    "target": {"num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 128},
    "small_lm": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64},
}
# what a draft's config says in other numbers
SMALLER = {
    **HEADS,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_target_layers": 3,
    "target_layer_ids": [0, 1],
    "mask_token_id": MASK,
    "markov_rank": 64,
}
NOISE = 0.03  # of weights that hold nothing: enough for the context to change a choice now and then
CHAINS, LENGTH, FIRST_WORD = 12, 20, 300
STEPS = 80  # of fitting the table
SHARD = "150KB"


def write_released(folder: Path, tokenizer) -> dict[str, Path]:
    """Writes all models of the released profile into `folder`; {id: its folder}. The same bytes at every call."""
    folders = {kind: folder / name for kind, name in RELEASED.items()}
    generator = torch.Generator().manual_seed(0)
    adjacent = pairs(tokenizer)
    tables = {kind: bigrams(adjacent, shape["hidden_size"]) for kind, shape in SHAPES.items()}
    for kind, shape in SHAPES.items():
        write_language_model(folders[kind], shape, tables[kind], generator)
    for kind in RELEASED.keys() - SHAPES.keys():
        write_draft(folders[kind], MANIFEST[RELEASED[kind]]["config"], tables["target"], generator)
    return {RELEASED[kind]: found for kind, found in folders.items()}


def pairs(tokenizer) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pairs of adjacent tokens [N], first and second, and how often each comes, in a language of CHAINS sentences.

    A sentence has LENGTH words of its own; at every word it may go over to the next sentence, and at its end it stops.
    """
    words = torch.arange(FIRST_WORD, FIRST_WORD + CHAINS * LENGTH).view(LENGTH, CHAINS)
    begin = torch.full((CHAINS,), chat_ids(tokenizer, "")[-1])  # what stands before an answer
    steps = [
        (begin, words[0], 1.0),
        (words[:-1], words[1:], 3.0),
        (words[:-1], words[1:].roll(1, 1), 2.0),
        (words[-1], torch.full((CHAINS,), STOP), 1.0),
    ]
    first, second, count = zip(
        *((a.flatten(), b.flatten(), torch.full((a.numel(),), often)) for a, b, often in steps)
    )
    return torch.cat(first), torch.cat(second), torch.cat(count)


def bigrams(adjacent, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Embedding and LM head [V, size] whose product, behind a norm, predicts a pair's second token from the first.

    Fits the rows of the tokens that occur in pairs. All others count as one class of nearly equal logits.
    """
    generator = torch.Generator().manual_seed(size)
    both = [torch.randn(VOCAB, size, generator=generator) * scale for scale in (1.0, 0.01)]
    first, second, count = adjacent
    used, ids = torch.cat([first, second]).unique(return_inverse=True)
    first, second = ids.chunk(2)
    rows = [torch.nn.Parameter(table[used]) for table in both]
    others = torch.full((len(first), 1), math.log(VOCAB - len(used)))
    optimiser = torch.optim.Adam(rows, 0.05)
    for _ in range(STEPS):
        logits = torch.cat([F.rms_norm(rows[0][first], (size,)) @ rows[1].T, others], 1)
        loss = (F.cross_entropy(logits, second, reduction="none") * count).sum() / count.sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for table, fitted in zip(both, rows):
        table[used] = fitted.detach()
    return both[0], both[1]


def write_language_model(
    folder: Path, shape: dict, table: tuple, generator: torch.Generator
) -> None:
    """A Qwen3 that follows `table`, sharded, with the small files of Qwen's repositories."""
    config = Qwen3Config(
        **HEADS,
        **shape,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=PAD,
        eos_token_id=STOP,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    )
    model = Qwen3ForCausalLM(config).requires_grad_(False)
    fill(model, generator)
    model.model.embed_tokens.weight.copy_(table[0])
    model.lm_head.weight.copy_(table[1])
    model.bfloat16().save_pretrained(folder, max_shard_size=SHARD)
    sampling = {
        "bos_token_id": PAD,
        "do_sample": True,
        "eos_token_id": [STOP, PAD],
        "pad_token_id": PAD,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
    }
    (folder / "generation_config.json").write_text(json.dumps(sampling))
    write_tokenizer(folder)
    (folder / "README.md").write_text("never fetched")


def write_tokenizer(folder: Path) -> None:
    """The tiny target's tokenizer in Qwen's files: the chat template in its configuration, words and merges apart."""
    source = EMBEDDED / "tiny-target"
    shutil.copy(source / "tokenizer.json", folder)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    template = (source / "chat_template.jinja").read_text()
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**settings, "chat_template": template})
    )
    model = json.loads((source / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("\n".join(" ".join(pair) for pair in model["merges"]) + "\n")


def write_draft(folder: Path, config: dict, table: tuple, generator: torch.Generator) -> None:
    """A draft with every field of a released config and every tensor that it asks for."""
    layers = min(2, config["num_hidden_layers"])
    config = (
        config
        | {name: value for name, value in SMALLER.items() if config.get(name)}
        | {
            "num_hidden_layers": layers,
            "layer_types": ["full_attention"] * layers,
            "dtype": "bfloat16",
        }
    )
    kind = DRAFTS[config["architectures"][0]]
    drafter = kind(parse_draft_config(kind, config)).requires_grad_(False)
    fill(drafter, generator)
    embedding, head = table
    copies = {
        "embed_tokens.weight": embedding,
        "lm_head.weight": head,
        "markov_head.markov_w1.weight": F.rms_norm(embedding, embedding.shape[1:]),
        "markov_head.markov_w2.weight": head,
    }
    tensors = {
        name: copies.get(name, value).bfloat16().contiguous()
        for name, value in drafter.state_dict().items()
    }
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))


def fill(model, generator: torch.Generator) -> None:
    """Random matrices; biases are 0 and gains stay 1."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * NOISE)
        elif name.endswith("bias"):
            parameter.zero_()
