"""Comparing this package with a folder of reference tensors: every tensor, every greedy run, every loss."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ..common.errors import CheckpointError
from ..decoding.rounds import generate
from ..drafters.autoregressive import Autoregressive
from ..models.checkpoints import load_draft_alone, load_drafter, load_target
from ..scheduling import policies
from ..training.anchors import block_mask
from ..training.losses import block_losses, training_forward

TOLERANCE = 2e-4


class Report:
    """The largest absolute error of each tensor of one case, and whether its greedy runs are equal."""

    def __init__(self, case: str):
        self.case, self.errors, self.runs, self.equal_runs = case, {}, 0, 0

    def compare(self, name: str, ours: torch.Tensor, reference: torch.Tensor) -> None:
        """Notes the largest absolute difference; tensors of different shapes or kinds differ infinitely."""
        same_shape = ours is not None and tuple(ours.shape) == tuple(reference.shape)
        error = (ours.double() - reference.double()).abs().max().item() if same_shape else float("inf")
        self.errors[name] = max(self.errors.get(name, 0.0), error)

    @property
    def passed(self) -> bool:
        """Whether every tensor is within tolerance and every greedy run is equal."""
        return all(error <= TOLERANCE for error in self.errors.values()) and self.equal_runs == self.runs

    def __str__(self) -> str:
        errors = "  ".join(f"{name} {error:.1e}" for name, error in self.errors.items())
        return f"{'ok  ' if self.passed else 'FAIL'} {self.case}: greedy runs equal {self.equal_runs}/{self.runs}  {errors}"


@torch.inference_mode()
def check_case(folder: Path) -> Report:
    """Compares one case folder (draft/, tensors.safetensors, expected.json, and target/ where there are greedy runs).

    Raises CheckpointError if it is not one.
    """
    for part in ("draft", "tensors.safetensors", "expected.json"):
        if not (folder / part).exists():
            raise CheckpointError(f"{folder} has no {part}; a case folder holds draft/, tensors.safetensors, expected.json and, for greedy "
                                  "runs, target/")
    reference, expected = _read_reference(folder)
    report = Report(folder.name)
    if not (folder / "target").exists():
        if expected.get("greedy_runs"):
            raise CheckpointError(f"{folder} has greedy runs and no target/ to make them with; copy it again")
        _block(report, load_draft_alone(folder / "draft"), reference)
        return report
    target = load_target(str(folder / "target"))
    drafter = load_drafter(str(folder / "draft"), target)
    _context(report, target, drafter, reference)
    if isinstance(drafter, Autoregressive):
        _chain(report, drafter, reference)
    else:
        _block(report, drafter, reference)
        _training(report, target, drafter, reference, expected)
    for run in expected["greedy_runs"]:
        report.runs += 1
        report.equal_runs += _same_run(target, drafter, run)
    return report


def _read_reference(folder: Path) -> tuple[dict[str, torch.Tensor], dict]:
    try:
        return load_file(folder / "tensors.safetensors"), json.loads((folder / "expected.json").read_text())
    except (SafetensorError, json.JSONDecodeError) as error:
        raise CheckpointError(f"the reference tensors or runs of {folder} are damaged ({error}); copy them again") from None


def _context(report: Report, target, drafter, reference) -> None:
    step, _ = target.prefill(reference["prompt_ids"], drafter.taps)
    report.compare("context_features", step.features, reference["context_features"])
    anchor = step.logits[:, -1].argmax(-1)
    report.compare("anchor", anchor, reference["anchor"])


def _chain(report: Report, drafter, reference) -> None:
    state = drafter.begin(reference["prompt_ids"], reference["context_features"])
    tokens, logits, _ = drafter.draw_chain(state, reference["anchor"], drafter.gamma, 0.0, None)
    report.compare("draft_tokens", tokens, reference["draft_tokens"])
    report.compare("draft_logits", logits, reference["draft_logits"])
    hidden = drafter.next_hidden(state.cache, reference["anchor"], state.waiting)
    report.compare("prefill_hidden", hidden, reference["prefill_hidden"])


def _block(report: Report, drafter, reference) -> None:
    state = drafter.begin(None, reference["context_features"])
    hidden = drafter.block_hidden(state, reference["anchor"])
    tokens, logits, _ = drafter.draw_block(hidden, reference["anchor"], 0.0, None)
    report.compare("block_hidden", hidden, reference["block_hidden"])
    report.compare("base_logits", drafter.lm_head(hidden), reference["base_logits"])
    report.compare("draft_tokens", tokens, reference["draft_tokens"])
    report.compare("corrected_logits", logits, reference["corrected_logits"])
    if "confidence_logits" in reference:
        confidence = drafter.confidence_logits(hidden, drafter.previous(reference["anchor"], tokens))
        report.compare("confidence_logits", confidence, reference["confidence_logits"])
    drafter.extend(state, None, reference["cycle2_new_features"])
    report.compare("cycle2_block_hidden", drafter.block_hidden(state, reference["cycle2_anchor"]), reference["cycle2_block_hidden"])
    if "cycle2_full_features" in reference:
        fresh = drafter.begin(None, reference["cycle2_full_features"])
        report.compare("cycle2_block_hidden", drafter.block_hidden(fresh, reference["cycle2_anchor"]), reference["cycle2_block_hidden"])


def _training(report: Report, target, drafter, reference, expected) -> None:
    ids, anchors = reference["train_input_ids"], reference["train_anchors"]
    supervised, valid = reference["train_loss_mask"].bool(), torch.ones_like(anchors, dtype=torch.bool)
    last_hidden, features = target.last_hidden(ids, drafter.taps)
    report.compare("train_features", features, reference["train_features"])
    report.compare("train_last_hidden", last_hidden, reference["train_last_hidden"])
    mask = block_mask(anchors, ids.shape[1], drafter.gamma)
    logits, confidence, tokens, counted, before = training_forward(drafter, reference["train_features"], ids, supervised, anchors, valid, mask)
    target_logits = target.model.lm_head(reference["train_last_hidden"][torch.arange(len(ids))[:, None, None], before])
    report.compare("train_draft_logits", logits, reference["train_draft_logits"])
    report.compare("train_target_ids", tokens, reference["train_target_ids"])
    report.compare("train_eval_mask", counted, reference["train_eval_mask"])
    report.compare("train_target_logits", target_logits, reference["train_target_logits"])
    if confidence is not None:
        report.compare("train_confidence_logits", confidence, reference["train_confidence_logits"])
    losses = block_losses(logits, target_logits, tokens, counted, confidence)
    for name, ours in (("ce", losses.cross_entropy), ("l1", losses.l1), ("confidence", losses.confidence)):
        if expected["loss"][f"{name}_loss_den"]:
            report.compare(f"{name}_loss_num", ours, torch.tensor(expected["loss"][f"{name}_loss_num"]))
            report.compare(f"{name}_loss_den", losses.weight, torch.tensor(expected["loss"][f"{name}_loss_den"]))
    report.compare("loss_total", losses.total(0.1, 0.9, 1.0), torch.tensor(expected["loss_total_decay4"]))


def _same_run(target, drafter, run: dict) -> bool:
    """Whether a greedy run gives the reference's tokens and, round by round, what it proposed and committed."""
    prompt, output, rounds = run["prompt"], run["output"], len(run["proposal_lengths"])
    wanted = output[len(prompt):]
    policy = policies.threshold(run["threshold"]) if run["threshold"] else None
    # The reference goes on until its anchor fills the last position, so its last round may run past the end.
    ours = generate(target, drafter, torch.tensor([prompt]), max_new_tokens=len(wanted) + drafter.gamma + 1, policy=policy,
                    stop_token_ids=())
    return (ours.token_ids[:len(wanted)] == wanted
            and [r.proposed for r in ours.rounds[:rounds]] == run["proposal_lengths"]
            and [r.committed for r in ours.rounds[:rounds]] == run["acceptance_lengths"])
