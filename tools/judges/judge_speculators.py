"""speculators reads our drafts in its form, computes their passes, and writes them again: logits,
confidence, tensors.

`ask` runs here, `main` in an environment with speculators: judge_speculators.py CASES ANSWERS. A
block of DSpark and DFlash is put together from its layers and heads: its own `forward` also makes
the loss of a training.
"""

import json
import shutil
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

SPECULATORS = "0.9.0"
FILLING = "dflash that fills itself in"
REDUCED = "dspark of half the vocabulary"
TINY = {
    "dspark": "tiny-dspark",
    "dspark_rnn": "tiny-dspark-rnn",
    "dflash": "tiny-dflash",
    "eagle3": "tiny-eagle3",
    "mtp": "tiny-mtp",
}
GIVEN = ("ids", "features", "anchor", "previous")  # of each prompt
SAME = 1e-3  # between two programs' numbers in float32

# Here.


def ask(lab, options):
    """Return the rows of this judge."""
    from tools.judges import environments, questions

    scratch = questions.SCRATCH / "speculators"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    drafted = drafters(lab.target)
    prompts = [lab.encode(prompt) for prompt in questions.prompts_of(lab)]
    asked, own = cases(lab.target, drafted, prompts, scratch)
    python = environments.for_cpus("speculators", f"speculators=={SPECULATORS}")
    found = environments.answer(__file__, python, asked, questions.SCRATCH)
    return questions.rows_of(
        "speculators", found["version"], compared(lab.target, asked, drafted, own)
    )


def drafters(target):
    """Return the drafters asked about: the tiny ones, a DFlash in its first layout, a DSpark that
    drafts every second id."""
    from dspark_lite.models.checkpoints import load_drafter

    found = {name: load_drafter(folder, target) for name, folder in TINY.items()}
    filling = variant(found["dflash"], found["dflash"].state_dict(), sample_from_anchor=False)
    return found | {FILLING: filling, REDUCED: halved(found["dspark"])}


def variant(drafter, tensors, **fields):
    """Return a drafter of these tensors whose config has other fields."""
    other = type(drafter)(replace(drafter.config, **fields)).requires_grad_(False).eval()
    other.load_state_dict(tensors, strict=False)
    return other


def halved(drafter):
    """Return a DSpark that has every second id of the vocabulary."""
    ids = torch.arange(0, drafter.config.vocab_size, 2)
    tensors = {
        name: value[ids] if name.split(".")[-2] in ("lm_head", "markov_w2") else value
        for name, value in drafter.state_dict().items()
    }
    tensors["d2t"] = ids - torch.arange(len(ids))
    return variant(drafter, tensors, draft_vocab_size=len(ids))


@torch.inference_mode()
def answered(target, drafter, ids):
    """Return what a drafter reads after a prompt [1, n], and its greedy answer: logits [g, U] and
    confidence [g] by slot."""
    from dspark_lite.drafters.autoregressive import Autoregressive

    output, _ = target.prefill(ids, drafter.taps)
    state, anchor = drafter.begin(ids, output.features), output.logits[:, -1].argmax(-1)
    given = {"ids": ids, "features": output.features, "anchor": anchor, "previous": anchor[None]}
    answer = {}
    if isinstance(drafter, Autoregressive):
        _, logits, _ = drafter.draw_chain(state, anchor, 1, 0.0, None)
    else:
        hidden = drafter.block_hidden(state, anchor)
        tokens, logits, _ = drafter.draw_block(hidden, anchor, 0.0, None)
        given["previous"] = drafter.previous(anchor, tokens)
        if (confidence := drafter.confidence_logits(hidden, given["previous"])) is not None:
            answer["confidence"] = confidence[0]
    has = logits[0].isfinite()[0]
    return given, answer | {"logits": logits[0][:, has]}


def cases(target, drafted, prompts, scratch):
    """Return what is asked about each drafter after each of the prompts [1, n], and our answers by
    "name/prompt/what"."""
    from dspark_lite.models.checkpoints import EMBEDDED, save_draft
    from dspark_lite.models.export import export

    folders, given, own = {}, {}, {}
    for name, drafter in drafted.items():
        saved = scratch / "own" / name.replace(" ", "-")
        save_draft(saved, drafter, target)
        folders[name] = {what: str(scratch / what / saved.name) for what in ("read", "write")}
        export(
            str(saved), "speculators", Path(folders[name]["read"]), str(EMBEDDED / "tiny-target")
        )
        for number, ids in enumerate(prompts):
            for kept, answers in zip((given, own), answered(target, drafter, ids)):
                kept |= {f"{name}/{number}/{what}": value for what, value in answers.items()}
    given = {name: value.clone().contiguous() for name, value in given.items()}
    files = {what: str(scratch / f"{what}.safetensors") for what in ("given", "found")}
    save_file(given, files["given"])
    return {"drafts": folders, "prompts": len(prompts), **files}, own


def compared(target, asked, drafted, own):
    """Return {what was compared: a truth a slot, or a tensor} of what speculators has computed and
    written."""
    from dspark_lite.models.checkpoints import load_drafter

    found, rows = load_file(asked["found"]), {}
    for name, drafter in drafted.items():
        for what in ("logits", "confidence"):
            keys = [key for key in own if key.startswith(f"{name}/") and key.endswith(what)]
            agreed = [
                bool((ours - theirs).abs().max() < SAME)
                for key in keys
                for ours, theirs in zip(own[key], found[key], strict=True)
            ]
            if keys:
                rows[f"{name}, {what} by slot"] = agreed
        written = load_drafter(asked["drafts"][name]["write"], target).state_dict()
        tensors = drafter.state_dict()
        rows[f"{name}, tensors of the draft that it writes"] = [
            key in tensors and key in written and torch.equal(tensors[key], written[key])
            for key in tensors.keys() | written.keys()
        ]
    return rows


# In its environment.


@torch.inference_mode()
def main(cases, answers):
    """Read every draft, answer every prompt, write the draft in bfloat16."""
    asked = json.loads(Path(cases).read_text())
    given, found = load_file(asked["given"]), {}
    for name, folders in asked["drafts"].items():
        model = read(folders["read"])
        first = first_draft if model.config.speculators_model_type in ("eagle3", "mtp") else block
        for prompt in range(asked["prompts"]):
            answer = first(model, *(given[f"{name}/{prompt}/{what}"] for what in GIVEN))
            found |= {f"{name}/{prompt}/{what}": value for what, value in answer.items()}
        model.to(torch.bfloat16).save_pretrained(folders["write"])
    save_file({name: value.contiguous() for name, value in found.items()}, asked["found"])
    Path(answers).write_text(json.dumps({"version": version("speculators")}))


def read(folder):
    """Return the draft in a folder, with embedding and LM head of the verifier that it names."""
    from speculators import SpeculatorModel, SpeculatorModelConfig

    config = SpeculatorModelConfig.from_pretrained(folder)
    attention = "sdpa" if config.speculators_model_type == "mtp" else "eager"
    config.transformer_layer_config._attn_implementation = attention
    return SpeculatorModel.from_pretrained(folder, config=config, dtype=torch.float32).eval()


def block(model, ids, features, anchor, previous):
    """Return logits [g, U] of the slots that predict, and the confidence [g] in each if there is a
    head for it."""
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
        seen = torch.cat([hidden, model.markov_head.prev_embeddings(previous)], -1)
        found["confidence"] = model.confidence_head(seen).flatten()
    return found


def first_draft(model, ids, features, anchor, previous):
    """Return logits [1, U] of the first draft after a prompt [1, n] of Eagle3 or MTP, by
    speculators' own pass."""
    seen, shifted = [], torch.cat([ids[:, 1:], anchor[None]], 1)
    watch = model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(output))
    # MTP shifts by itself, and needs two tokens to come.
    if model.config.speculators_model_type == "mtp":
        whole = torch.cat([ids, anchor[None], anchor[None]], 1)
        model(input_ids=whole, hidden_states=torch.cat([features, features[:, :2]], 1))
    else:
        documents = torch.zeros_like(shifted)
        model(hidden_states=features, input_ids=shifted, document_ids=documents, ttt_steps=1)
    watch.remove()
    return {"logits": seen[0][0, ids.shape[1] - 1 : ids.shape[1]]}


if __name__ == "__main__":
    main(*sys.argv[1:])
