"""Confidences in rollouts and their outcomes: a calibration on one half of a lab's prompts, a
report on the other half, and a check of a stored calibration."""

import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from ...common.errors import RequestError
from ...common.fingerprint import fingerprint
from ...scheduling.calibration import (
    STS,
    Observations,
    by_position,
    check_calibration,
    check_confidence_head,
    ece_floor,
    fit_sts,
    survivals,
)
from .evaluation import prompt_key, rollout_journal, rollout_with_room
from .journal import Journal, header
from .lab import Lab


def observe(
    lab,
    drafter,
    texts: list[str],
    *,
    temperature: float = 1.0,
    name: str = "",
    journal: Journal | None = None,
) -> Observations:
    """Roll out every prompt with whole blocks; return the head's confidence logits and the accepted
    drafts.

    Blocks that the end of the answer cuts short are left out: nobody waits for what stands behind
    it; so are prompts that leave the target no position for an answer. What the `journal` holds of
    the prompts called `name` is not rolled out again. Raise RequestError for a drafter without a
    confidence head, and for answers too short for a block.
    """
    check_confidence_head(drafter)
    # The first token comes from the prompt's pass, the last one follows the block.
    if lab.max_new_tokens < drafter.gamma + 2:
        raise RequestError(
            f"max_new_tokens is {lab.max_new_tokens}, too few for a whole block of {drafter.gamma} drafts; allow longer answers, of "
            f"{drafter.gamma + 2} tokens or more"
        )
    logits, accepted, prompts = [], [], []
    journal = journal or Journal(None, {})
    fitted, drafter.temperatures = drafter.temperatures, None  # raw logits, whatever is in use
    try:
        for index, text in enumerate(tqdm(texts, desc="observe", unit="prompt", file=sys.stderr)):
            key = prompt_key("observed", name, index, text)
            if key not in journal:
                journal.add(key, _blocks_said(lab, drafter, text, index, temperature))
            for block_logits, count in journal[key]:
                logits.append(block_logits)
                accepted.append(count)
                prompts.append(index)
    finally:
        drafter.temperatures = fitted
    return Observations(
        np.array(logits).reshape(-1, drafter.gamma),
        np.array(accepted, dtype=int),
        np.array(prompts, dtype=int),
    )


def _blocks_said(
    lab, drafter, text: str, seed: int, temperature: float
) -> list[tuple[list[float], int]]:
    """Return the confidence logits of each whole block of an answer, and its number of accepted
    drafts."""
    logits = []

    def listen(proposal):
        logits.append(proposal.confidence_logits[0].double().tolist())
        return torch.tensor([proposal.tokens.shape[1]])

    answer = rollout_with_room(
        lab,
        drafter,
        text,
        seed,
        temperature=temperature,
        policy=listen,
        max_new_tokens=lab.max_new_tokens,
    )
    if answer is None:
        return []
    return [
        (block, r.accepted)
        for r, block in zip(answer.rounds, logits)
        if r.committed > r.accepted and len(block) == drafter.gamma
    ]


def observe_domains(
    lab: Lab, drafter, part, *, temperature: float = 1.0, journal: Journal | None = None
) -> dict[str, Observations]:
    """Return observations of each domain or benchmark, from the prompts of the lab that
    `part(texts)` selects; raise RequestError where those of one gave no whole block."""
    observations = {
        domain: observe(
            lab, drafter, part(texts), temperature=temperature, name=domain, journal=journal
        )
        for domain, texts in lab.prompts.items()
    }
    if empty := [domain for domain, seen in observations.items() if not len(seen.accepted)]:
        raise RequestError(
            f"no prompt of {', '.join(empty)} gave a whole block; take shorter prompts, more of them, or longer answers"
        )
    return observations


def reported_half(texts: list[str]) -> list[str]:
    """Return the first half of a domain's prompts, on which a calibration is tested."""
    return texts[: len(texts) // 2]


def fitted_half(texts: list[str]) -> list[str]:
    """Return the second half of a domain's prompts, on which a calibration is fitted."""
    return texts[len(texts) // 2 :]


def pooled(observations: dict[str, Observations]) -> Observations:
    """Return the observations of all domains as one; numbers of prompts then tell prompts of a
    domain apart, not domains."""
    return Observations(*map(np.concatenate, zip(*observations.values())))


def calibrate(
    lab: Lab, drafter, *, temperature: float = 1.0, path: Path | None = None
) -> tuple[STS, dict]:
    """Fit a calibration on the second half of each domain's prompts, all domains together, and test
    it on the first; return (STS, report).

    With a `path`, that of the calibration to be, finished answers are kept in a journal beside it,
    and the same call goes on where it was stopped. Raise RequestError where a domain has a single
    prompt, or none of its prompts gave a whole block.
    """
    if short := [domain for domain, texts in lab.prompts.items() if len(texts) < 2]:
        raise RequestError(
            f"{', '.join(short)} has fewer than two prompts, and a calibration is fitted on one half and judged on the other; "
            "give more"
        )
    journal = rollout_journal(path, lab, drafter, temperature)
    by_domain = observe_domains(lab, drafter, fitted_half, temperature=temperature, journal=journal)
    fitted_on = pooled(by_domain)
    count = sum(len(fitted_half(texts)) for texts in lab.prompts.values())
    name = (
        f"{lab.target.name}, {', '.join(lab.prompts)}, {count} prompts, temperature {temperature}"
    )
    sts = fit_sts(fitted_on.logits, fitted_on.accepted, dataset=name, draft=fingerprint(drafter))
    measured = calibration_report(
        lab,
        drafter,
        sts,
        observe_domains(lab, drafter, reported_half, temperature=temperature, journal=journal),
        "is not as good on this half as on the one that it was fitted on: give more prompts",
    )
    return sts, measured | {"temperature": temperature, "num_samples": sts.num_samples}


def check_stored(lab: Lab, drafter, sts: STS, *, temperature: float = 1.0) -> dict:
    """Return whether a stored calibration still fits fresh rollouts on the first half of each
    domain's prompts.

    Raise RequestError for a calibration of another draft or of blocks of another length.
    """
    sts.check_draft(drafter)
    observations = observe_domains(lab, drafter, reported_half, temperature=temperature)
    return calibration_report(lab, drafter, sts, observations) | {"temperature": temperature}


def calibration_report(
    lab: Lab,
    drafter,
    sts: STS,
    observations: dict[str, Observations],
    otherwise: str = "does not fit any more: calibrate again",
) -> dict:
    """Return ECE, AUC and Brier by domain ("all" for all together) and position, before and after,
    and whether it fits, or what else is said of it."""
    together = pooled(observations)
    rows = [
        row
        for domain, observed in {"all": together, **observations}.items()
        for row in _report_rows(domain, observed, sts)
    ]
    result = check_calibration(sts, together.logits, together.accepted)
    conclusion = "fits" if result.fits else otherwise
    stored = {
        domain: {
            "logits": observed.logits.round(3).tolist(),
            "accepted": observed.accepted.tolist(),
            "prompts": observed.prompts.tolist(),
        }
        for domain, observed in observations.items()
    }
    return {
        **header(lab),
        "drafter": drafter.name,
        "blocks": len(together.logits),
        "temperatures": sts.temperatures,
        "rows": rows,
        "mean_ece": result._asdict(),
        "fits": result.fits,
        "observations": stored,
        "verdict": f"mean ECE of {len(together.logits)} blocks: {result.raw:.2%} raw, {result.stored:.2%} calibrated, "
        f"{result.fresh:.2%} with temperatures fitted to these very blocks; the calibration {conclusion}",
    }


def _report_rows(domain: str, observed: Observations, sts: STS) -> list[dict]:
    before = by_position(observed.logits, observed.accepted)
    after = by_position(observed.logits, observed.accepted, sts.temperatures)
    floor = [ece_floor(predicted) for predicted in survivals(observed.logits, sts.temperatures).T]
    return [
        {
            "domain": domain,
            "position": k + 1,
            "temperature": temperature,
            "survived": float((observed.accepted > k).mean()),
            "ece_floor": floor[k],
            **{f"{name}_before": before[name][k] for name in before},
            **{f"{name}_after": after[name][k] for name in after},
        }
        for k, temperature in enumerate(sts.temperatures)
    ]


def cut_lengths(confidence: np.ndarray, least: float) -> np.ndarray:
    """Return drafts [N] before the first whose confidence [N, g] is below `least`."""
    return (confidence >= least).cumprod(1).sum(1)


def replay(observations: Observations, confidence: np.ndarray, least: float) -> tuple[float, float]:
    """Return (accepted, rejected) tokens a step of stored blocks cut at `least`, confidence [N, g];
    bonus included.

    Exact for the recorded steps; what follows a cut would have begun at other places, which only
    measure/threshold_sweep.py sees.
    """
    length = cut_lengths(confidence, least)
    accepted = np.minimum(observations.accepted, length)
    return float(accepted.mean() + 1), float((length - accepted).mean())
