"""speculators as a judge, run by its own Python: judge_speculators.py CASES ANSWERS.

It reads drafts in its form, computes their passes in float32 and writes the drafts again. A block of DSpark and DFlash
is put together here from speculators' layers and heads: its own `forward` also makes the loss of a training.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from speculators import SpeculatorModel, SpeculatorModelConfig

GIVEN = ("ids", "features", "anchor", "previous")  # of each prompt, from speculators_cases.py


def read(folder):
    """The draft in a folder, with embedding and LM head of the verifier that it names."""
    config = SpeculatorModelConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = (
        "sdpa" if config.speculators_model_type == "mtp" else "eager"
    )
    return SpeculatorModel.from_pretrained(folder, config=config, dtype=torch.float32).eval()


def block(model, features, anchor, previous):
    """Logits [g, U] of the slots that predict, and the confidence [g] in each where there is a head for it."""
    ids = torch.full((1, model.block_size), model.mask_token_id)
    ids[0, 0] = anchor
    x, context = model.embed_tokens(ids), model.hidden_norm(model.fc(features))
    positions = torch.arange(features.shape[1] + ids.shape[1])[None]
    turned = model.rotary_emb(x, positions)
    for layer in model.layers:
        x = layer(
            hidden_states=x,
            target_hidden=context,
            attention_mask=None,
            position_ids=positions,
            position_embeddings=turned,
        )
    hidden = model.norm(x)[:, 0 if model.config.sample_from_anchor else 1 :]
    found = {"logits": model.lm_head(hidden)[0]}
    if model.config.speculators_model_type == "dspark":
        bias = model.markov_head.block_bias(prev_token_ids=previous, hidden_states=hidden)
        found["logits"] = found["logits"] + bias[0]
        read = torch.cat([hidden, model.markov_head.prev_embeddings(previous)], -1)
        found["confidence"] = model.confidence_head(read).flatten()
    return found


def first_draft(model, ids, features, anchor):
    """Logits [1, U] of the first draft after a prompt [1, n] of Eagle3 or MTP, by speculators' own pass."""
    seen = []
    watch = model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(output))
    entered = torch.cat([ids[:, 1:], anchor[None]], 1)
    if (
        model.config.speculators_model_type == "mtp"
    ):  # which reads a token later itself, and needs two to come
        model(
            input_ids=torch.cat([ids, anchor[None], anchor[None]], 1),
            hidden_states=torch.cat([features, features[:, :2]], 1),
        )
    else:
        model(
            hidden_states=features,
            input_ids=entered,
            document_ids=torch.zeros_like(entered),
            ttt_steps=1,
        )
    watch.remove()
    return {"logits": seen[0][0, ids.shape[1] - 1 : ids.shape[1]]}


@torch.inference_mode()
def main(cases, answers):
    """Read every draft, answer every prompt, write the draft in bfloat16."""
    asked = json.loads(Path(cases).read_text())
    given, found = load_file(asked["given"]), {}
    for name, folders in asked["drafts"].items():
        model = read(folders["read"])
        for prompt in range(asked["prompts"]):
            ids, features, anchor, previous = (given[f"{name}/{prompt}/{what}"] for what in GIVEN)
            chain = model.config.speculators_model_type in ("eagle3", "mtp")
            answer = (
                first_draft(model, ids, features, anchor)
                if chain
                else block(model, features, anchor, previous)
            )
            found |= {
                f"{name}/{prompt}/{what}": value.contiguous() for what, value in answer.items()
            }
        model.to(torch.bfloat16).save_pretrained(folders["write"])
    save_file(found, asked["found"])
    Path(answers).write_text(json.dumps({"version": version("speculators")}))


if __name__ == "__main__":
    main(*sys.argv[1:])
