"""The gain of block verification over the token rule, on the same blocks.

A rule's accepted drafts are taken in expectation over its own coins, given the block: the two rules
then differ by nothing but the rule. The blocks are those that the token rule's rounds begin with.
"""

import sys
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from ...decoding.rounds import generate
from ...decoding.sampling import accept, probability_ratios
from ..estimates import Estimate, bootstrap, share_of_rows
from ..extensions.block_verification import block_ends


class Blocks(NamedTuple):
    """Blocks that were verified whole: the expected accepted drafts by the `token` rule and by
    `block` verification [N], and the prompt of each, `prompts` [N]."""

    token: np.ndarray
    block: np.ndarray
    prompts: np.ndarray


def watch(lab, drafter, texts: list[str], *, temperature: float = 1.0) -> Blocks:
    """Decode every prompt and note both rules' expectations of each block, but not of those that
    the end of the answer cuts short: nobody reads what comes after it (as in
    measure/confidence.py)."""
    rows = []
    for index, text in enumerate(tqdm(texts, desc="watch", unit="prompt", file=sys.stderr)):
        expected = []

        def accept_and_note(
            target_probs, draft_probs, draft_tokens, lengths, generator, expected=expected
        ):
            expected.append(expected_by_rule(target_probs, draft_probs, draft_tokens))
            return accept(target_probs, draft_probs, draft_tokens, lengths, generator)

        answer = generate(
            lab.target,
            drafter,
            lab.encode(text),
            max_new_tokens=lab.max_new_tokens,
            temperature=temperature,
            rule=accept_and_note,
            generator=lab.generator(lab.seed + index),
        )
        rows += [
            (*both, index)
            for both, r in zip(expected, answer.rounds)
            if r.committed > r.accepted and r.proposed == drafter.gamma
        ]
    return Blocks(*(np.array(column) for column in zip(*rows)))


def expected_by_rule(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, draft_tokens: torch.Tensor
) -> tuple[float, float]:
    """Return how many drafts of a block [1, g] the token rule and block verification accept on
    average over their coins."""
    ratios = probability_ratios(target_probs, draft_probs, draft_tokens)  # [1, g]
    ends, _, _ = block_ends(target_probs, draft_probs, draft_tokens, None)  # [1, g+1]
    return ratios.clamp(max=1).cumprod(1).sum().item(), (
        ends * torch.arange(ends.shape[1])
    ).sum().item()


def block_gain(blocks: Blocks) -> dict[str, Estimate]:
    """Return the mean committed tokens per round by each rule, and the gain of block verification
    as a fraction; intervals over prompts."""
    places = np.unique(blocks.prompts, return_inverse=True)[1]
    totals = np.stack(
        [
            np.bincount(places, values)
            for values in (blocks.token + 1, blocks.block + 1, np.ones(len(places)))
        ],
        1,
    )

    def over(column, other):
        return bootstrap(lambda groups: share_of_rows(groups[0][..., [column, other]]), [totals])

    return {"token": over(0, 2), "block": over(1, 2), "gain": over(1, 0).scaled(1.0, -1.0)}
