"""Compare this package with a folder of reference tensors, greedy runs and losses."""

import json
import math
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ..common.errors import CheckpointError
from ..common.files import read_json
from ..decoding.rounds import generate
from ..drafters.autoregressive import Autoregressive
from ..drafters.layers import ContextCache
from ..models.checkpoints import load_draft_alone, load_drafter, load_target
from ..scheduling import policies
from ..training.blocks import block_losses, block_mask, training_forward

TOLERANCE = 2e-4


class Report:
    """The largest absolute error of each tensor of a case, and its equal greedy runs."""

    def __init__(self, case: str):
        self.case, self.errors, self.runs, self.equal_runs = case, {}, 0, 0

    def compare(self, ours: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> None:
        """Note the largest absolute error of each of our tensors.

        A tensor of another shape has an infinite error, one with a NaN the error NaN.
        """
        for name, tensor in ours.items():
            same_shape = tensor is not None and tensor.shape == reference[name].shape
            error = (
                (tensor.double() - reference[name].double()).abs().max().item()
                if same_shape
                else float("inf")
            )
            worst = self.errors.get(name, 0.0)
            self.errors[name] = worst if error <= worst or math.isnan(worst) else error

    @property
    def passed(self) -> bool:
        """Return whether every tensor is within tolerance and every greedy run is equal."""
        return (
            all(error <= TOLERANCE for error in self.errors.values())
            and self.equal_runs == self.runs
        )

    def __str__(self) -> str:
        errors = "  ".join(f"{name} {error:.1e}" for name, error in self.errors.items())
        return f"{'ok  ' if self.passed else 'FAIL'} {self.case}: greedy runs equal {self.equal_runs}/{self.runs}  {errors}"


@torch.inference_mode()
def check_case(folder: Path) -> Report:
    """Return the report of a case folder.

    It has draft/, tensors.safetensors, expected.json, and target/ for greedy runs. Raise
    CheckpointError if a part is missing or damaged.
    """
    for part in ("draft", "tensors.safetensors", "expected.json"):
        if not (folder / part).exists():
            raise CheckpointError(
                f"{folder} has no {part}; a case folder holds draft/, tensors.safetensors, expected.json and, for greedy "
                "runs, target/"
            )
    reference, expected = _read_reference(folder)
    report = Report(folder.name)
    try:
        _compare(report, folder, reference, expected)
    except KeyError as error:
        raise CheckpointError(
            f"{folder} has no {error.args[0]} in tensors.safetensors or expected.json; copy it again"
        ) from None
    return report


def _compare(report: Report, folder: Path, reference, expected) -> None:
    """Compare all that a case folder has references for."""
    if not (folder / "target").exists():
        if expected.get("greedy_runs"):
            raise CheckpointError(
                f"{folder} has greedy runs and no target/ to make them with; copy it again"
            )
        _compare_blocks(report, load_draft_alone(folder / "draft"), reference)
        return
    target = load_target(str(folder / "target"))
    drafter = load_drafter(str(folder / "draft"), target)
    _compare_prefill(report, target, drafter, reference)
    if isinstance(drafter, Autoregressive):
        _compare_chain(report, drafter, reference)
    else:
        _compare_blocks(report, drafter, reference)
        _compare_training(report, target, drafter, reference, expected)
    for run in expected["greedy_runs"]:
        report.runs += 1
        report.equal_runs += _same_run(target, drafter, run)


def _read_reference(folder: Path) -> tuple[dict[str, torch.Tensor], dict]:
    """Return the reference tensors and the expected runs and losses of a case.

    Raise CheckpointError if they are damaged.
    """
    try:
        return load_file(folder / "tensors.safetensors"), read_json(folder / "expected.json")
    except (SafetensorError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"the reference tensors or runs of {folder} are damaged ({error}); copy them again"
        ) from None


def _compare_prefill(report: Report, target, drafter, reference) -> None:
    """Compare the target's pass over the prompt."""
    output, _ = target.prefill(reference["prompt_ids"], drafter.taps)
    report.compare(
        {"context_features": output.features, "anchor": output.logits[:, -1].argmax(-1)}, reference
    )


def _compare_chain(report: Report, drafter, reference) -> None:
    """Compare a chain of an Eagle3 or MTP draft."""
    state = drafter.begin(reference["prompt_ids"], reference["context_features"])
    tokens, logits, _ = drafter.draw_chain(state, reference["anchor"], drafter.gamma, 0.0, None)
    hidden = drafter.next_hidden(state.cache, reference["anchor"], state.waiting)
    report.compare(
        {"draft_tokens": tokens, "draft_logits": logits, "prefill_hidden": hidden}, reference
    )


def _compare_blocks(report: Report, drafter, reference) -> None:
    """Compare a block draft's first block, and its block after more committed tokens."""
    state = _context_cache(drafter, reference["context_features"])
    hidden = drafter.block_hidden(state, reference["anchor"])
    tokens, logits, _ = drafter.draw_block(hidden, reference["anchor"], 0.0, None)
    report.compare(
        {
            "block_hidden": hidden,
            "base_logits": drafter.lm_head(hidden),
            "draft_tokens": tokens,
            "corrected_logits": logits,
        },
        reference,
    )
    if "confidence_logits" in reference:
        confidence = drafter.confidence_logits(
            hidden, drafter.previous(reference["anchor"], tokens)
        )
        report.compare({"confidence_logits": confidence}, reference)
    drafter.extend_context(state, reference["cycle2_new_features"])
    seconds = [state]
    if "cycle2_full_features" in reference:
        seconds.append(_context_cache(drafter, reference["cycle2_full_features"]))
    for second in seconds:
        report.compare(
            {"cycle2_block_hidden": drafter.block_hidden(second, reference["cycle2_anchor"])},
            reference,
        )


def _context_cache(drafter, features: torch.Tensor) -> ContextCache:
    """Return a cache with the context of features [1, n, taps * H].

    The reference has no ids for `begin`.
    """
    cache = ContextCache(len(drafter.layers))
    drafter.extend_context(cache, features)
    return cache


def _compare_training(report: Report, target, drafter, reference, expected) -> None:
    """Compare the training pass over packed blocks, and its losses."""
    ids, anchors = reference["train_input_ids"], reference["train_anchors"]
    supervised = reference["train_loss_mask"].bool()
    valid = torch.ones_like(anchors, dtype=torch.bool)
    last_hidden, features = target.last_hidden(ids, drafter.taps)
    mask = block_mask(anchors, ids.shape[1], drafter.gamma)
    blocks = training_forward(
        drafter, reference["train_features"], ids, supervised, anchors, valid, mask
    )
    rows = torch.arange(len(ids))[:, None, None]
    target_logits = target.model.lm_head(
        reference["train_last_hidden"][rows, blocks.target_position]
    )
    report.compare(
        {
            "train_features": features,
            "train_last_hidden": last_hidden,
            "train_draft_logits": blocks.logits,
            "train_target_ids": blocks.tokens,
            "train_eval_mask": blocks.loss_mask,
            "train_target_logits": target_logits,
        },
        reference,
    )
    if blocks.confidence_logits is not None:
        report.compare({"train_confidence_logits": blocks.confidence_logits}, reference)
    losses = block_losses(
        blocks.logits, target_logits, blocks.tokens, blocks.loss_mask, blocks.confidence_logits
    )
    wanted = {name: torch.tensor(value) for name, value in expected["loss"].items()}
    for name, ours in (
        ("ce", losses.cross_entropy),
        ("l1", losses.l1),
        ("confidence", losses.confidence),
    ):
        if wanted[f"{name}_loss_den"]:
            report.compare({f"{name}_loss_num": ours, f"{name}_loss_den": losses.weight}, wanted)
    report.compare(
        {"loss_total": losses.total(0.1, 0.9, 1.0)},
        {"loss_total": torch.tensor(expected["loss_total_decay4"])},
    )


def _same_run(target, drafter, run: dict) -> bool:
    """Return whether a greedy run gives the reference's tokens, proposals and commits."""
    prompt, output, rounds = run["prompt"], run["output"], len(run["proposal_lengths"])
    wanted = output[len(prompt) :]
    policy = policies.threshold(run["threshold"]) if run["threshold"] else None
    # The reference stops when its anchor fills the last position: its last round may overrun.
    ours = generate(
        target,
        drafter,
        torch.tensor([prompt]),
        max_new_tokens=len(wanted) + drafter.gamma + 1,
        policy=policy,
        stop_token_ids=(),
    )
    return (
        ours.token_ids[: len(wanted)] == wanted
        and [r.proposed for r in ours.rounds[:rounds]] == run["proposal_lengths"]
        and [r.committed for r in ours.rounds[:rounds]] == run["acceptance_lengths"]
    )
