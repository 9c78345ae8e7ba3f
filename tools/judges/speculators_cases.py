"""What speculators is asked of the tiny drafters, and our own answers; judge_speculators.py is who answers."""

from dataclasses import replace

import torch
from safetensors.torch import load_file, save_file

from dspark_lite.drafters.autoregressive import Autoregressive
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter, save_draft
from dspark_lite.models.export import export

FILLING = "dflash that fills itself in"
REDUCED = "dspark of half the vocabulary"
TINY = {
    "dspark": "tiny-dspark",
    "dspark_rnn": "tiny-dspark-rnn",
    "dflash": "tiny-dflash",
    "eagle3": "tiny-eagle3",
    "mtp": "tiny-mtp",
}
SAME = 1e-3  # between two programs' numbers in float32


def drafters(target):
    """The drafters asked about, by name: the tiny ones, a DFlash in its first layout and a DSpark that drafts every
    second id."""
    found = {name: load_drafter(folder, target) for name, folder in TINY.items()}
    return found | {
        FILLING: variant(found["dflash"], sample_from_anchor=False),
        REDUCED: halved(found["dspark"]),
    }


def variant(drafter, **fields):
    """A drafter of the same tensors under another config."""
    other = type(drafter)(replace(drafter.config, **fields)).requires_grad_(False).eval()
    other.load_state_dict(drafter.state_dict(), strict=False)
    return other


def halved(drafter):
    """A DSpark that has every second id of the vocabulary."""
    ids = torch.arange(0, drafter.config.vocab_size, 2)
    other = (
        type(drafter)(replace(drafter.config, draft_vocab_size=len(ids)))
        .requires_grad_(False)
        .eval()
    )
    other.load_state_dict(
        {
            name: value[ids] if name.split(".")[-2] in ("lm_head", "markov_w2") else value
            for name, value in drafter.state_dict().items()
        }
        | {"d2t": ids - torch.arange(len(ids))}
    )
    return other


@torch.inference_mode()
def answered(target, drafter, ids):
    """What a drafter is given after a prompt [1, n], and its greedy answer: logits [g, U] and confidence [g] by slot."""
    step, _ = target.prefill(ids, drafter.taps)
    state, anchor = drafter.begin(ids, step.features), step.logits[:, -1].argmax(-1)
    given, answer = (
        {"ids": ids, "features": step.features, "anchor": anchor, "previous": anchor[None]},
        {},
    )
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


def cases(target, prompts, scratch):
    """What is asked about each drafter after each of the prompts [1, n], with the drafters and our answers by
    "name/prompt/what"."""
    asked, given, ours = drafters(target), {}, {}
    scratch.mkdir(parents=True, exist_ok=True)
    folders = {}
    for name, drafter in asked.items():
        own = scratch / "own" / name.replace(" ", "-")
        save_draft(own, drafter, target)
        folders[name] = {what: str(scratch / what / own.name) for what in ("read", "write")}
        export(str(own), "speculators", scratch / "read" / own.name, str(EMBEDDED / "tiny-target"))
        for number, ids in enumerate(prompts):
            seen, answer = answered(target, drafter, ids)
            given |= {
                f"{name}/{number}/{what}": value.clone().contiguous()
                for what, value in seen.items()
            }
            ours |= {f"{name}/{number}/{what}": value for what, value in answer.items()}
    save_file(given, scratch / "given.safetensors")
    return (
        {
            "drafts": folders,
            "prompts": len(prompts),
            "given": str(scratch / "given.safetensors"),
            "found": str(scratch / "found.safetensors"),
        },
        asked,
        ours,
    )


def compared(target, asked, drafted, ours):
    """{what was compared: a truth a slot, or a tensor}, of what speculators has computed and written."""
    found, rows = load_file(asked["found"]), {}
    for name, drafter in drafted.items():
        for what in ("logits", "confidence"):
            keys = [key for key in ours if key.startswith(f"{name}/") and key.endswith(what)]
            agreed = [
                bool((one - other).abs().max() < SAME)
                for key in keys
                for one, other in zip(ours[key], found[key], strict=True)
            ]
            if keys:
                rows[f"{name}, {what} by slot"] = agreed
        written = load_drafter(asked["drafts"][name]["write"], target).state_dict()
        own = drafter.state_dict()
        rows[f"{name}, tensors of the draft that it writes"] = [
            tensor in own and tensor in written and torch.equal(own[tensor], written[tensor])
            for tensor in own.keys() | written.keys()
        ]
    return rows
