"""What lies beyond the paper, each beside the paper's own on the very same blocks: block verification beside the token rule,
an estimated confidence beside the confidence head.

A rule's accepted drafts are taken in expectation over its own coins, given the block: the two rules then differ by nothing but
the rule. The blocks are those that the token rule's rounds begin with.
"""

import sys
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from dspark_course.common.estimates import Estimate, bootstrap, share_of_rows
from dspark_course.beyond.block_verification import block_ends
from dspark_lite.decoding.rounds import generate
from dspark_lite.decoding.sampling import accept, probability_ratios
from dspark_course.beyond.acceptance_estimator import AcceptanceEstimator, margins
from dspark_lite.scheduling.calibration import auc, survivals, survived


class Blocks(NamedTuple):
    """Blocks that were verified whole: expected accepted drafts by the `token` rule and by `block` verification [N], what was
    `accepted` [N], the `margins` [N, g] and confidence `logits` [N, g] of the drafts, and the prompt of each, `prompts` [N]."""

    token: np.ndarray
    block: np.ndarray
    accepted: np.ndarray
    margins: np.ndarray
    logits: np.ndarray
    prompts: np.ndarray


def watch(lab, drafter, texts: list[str], *, temperature: float = 1.0) -> Blocks:
    """Decodes every prompt with a drafter that has a confidence head and notes all about each block, but those that the end of
    the answer cuts short: nobody reads what comes after it (as in measure/confidence.py)."""
    rows = []
    for index, text in enumerate(tqdm(texts, desc="watch", unit="prompt", file=sys.stderr)):
        said, expected = [], []

        def listen(proposal, said=said):
            said.append((margins(proposal.probs)[0].double().numpy(), proposal.confidence_logits[0].double().numpy()))
            return torch.tensor([proposal.tokens.shape[1]])

        def judged(target_probs, draft_probs, draft_tokens, lengths, generator, expected=expected):
            expected.append(expected_by_rule(target_probs, draft_probs, draft_tokens))
            return accept(target_probs, draft_probs, draft_tokens, lengths, generator)

        answer = generate(lab.target, drafter, lab.encode(text), max_new_tokens=lab.max_new_tokens, temperature=temperature, policy=listen,
                          rule=judged, generator=lab.generator(lab.seed + index))
        rows += [(*both, r.accepted, *heard, index) for both, r, heard in zip(expected, answer.rounds, said)
                 if r.committed > r.accepted and r.proposed == drafter.gamma]
    return Blocks(*(np.array(column) for column in zip(*rows)))


def expected_by_rule(target_probs: torch.Tensor, draft_probs: torch.Tensor, draft_tokens: torch.Tensor) -> tuple[float, float]:
    """How many drafts of a block [1, g] the token rule and block verification accept on average over their coins."""
    ratios = probability_ratios(target_probs, draft_probs, draft_tokens)  # [1, g]
    ends, _, _ = block_ends(target_probs, draft_probs, draft_tokens, None)  # [1, g+1]
    return ratios.clamp(max=1).cumprod(1).sum().item(), (ends * torch.arange(ends.shape[1])).sum().item()


def block_gain(blocks: Blocks) -> dict[str, Estimate]:
    """Mean committed tokens per round by each rule, and by how much more with block verification, as a share; intervals over
    prompts."""
    places = np.unique(blocks.prompts, return_inverse=True)[1]
    totals = np.stack([np.bincount(places, values) for values in (blocks.token + 1, blocks.block + 1, np.ones(len(places)))], 1)

    def over(column, other):
        return bootstrap(lambda groups: share_of_rows(groups[0][..., [column, other]]), [totals])

    return {"token": over(0, 2), "block": over(1, 2), "gain": over(1, 0).scaled(1.0, -1.0)}


def estimated_logits(blocks: Blocks) -> np.ndarray:
    """What an estimator says of each block before it has seen what becomes of it, [N, g]: it learns in their order."""
    estimator = AcceptanceEstimator(blocks.margins.shape[1])
    said = []
    for found, accepted in zip(torch.from_numpy(blocks.margins), blocks.accepted.tolist()):
        said.append(estimator.logits(found).numpy())
        estimator.learn(found, len(found), accepted)
    return np.array(said, dtype=float)


def auc_by_position(blocks: Blocks, logits: np.ndarray) -> list[float]:
    """The chance that a prefix that survived was given more survival than one that did not, for each length."""
    predicted, observed = survivals(logits), survived(blocks.accepted, logits.shape[1])
    return [auc(p, o) for p, o in zip(predicted.T, observed.T)]
