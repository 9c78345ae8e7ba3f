"""Replays of stored blocks, side by side: the drafts that a policy would have verified, and the time of each step.

R requests decode side by side, each through its own prompts, block after block as recorded. What was accepted of a whole
block says what would have been accepted of any prefix. The next block is the recorded one whatever was verified, so a replay
compares policies on the same blocks; it does not simulate texts.
"""

from functools import cache

import numpy as np
import torch

from ...decoding.proposal import Proposal, start_policy
from ...scheduling.cost_table import CostTable
from ..names import DOMAINS
from . import confidence_results


@cache
def stored_blocks(domains: tuple[str, ...] = DOMAINS) -> tuple[torch.Tensor, torch.Tensor]:
    """Return calibrated confidence logits [N, g] of the stored blocks of these domains and their accepted drafts [N]; prompts in a fixed
    random order, the blocks of a prompt in theirs."""
    temperatures = torch.tensor(confidence_results.stored_sts().temperatures)
    prompts = []
    for domain in domains:
        observed = confidence_results.observations()[domain]
        for prompt in np.unique(observed.prompts):
            rows = observed.prompts == prompt
            prompts.append(
                (
                    torch.tensor(observed.logits[rows]).float() / temperatures,
                    torch.tensor(observed.accepted[rows]),
                )
            )
    shuffled = [prompts[index] for index in np.random.default_rng(0).permutation(len(prompts))]
    logits, accepted = (torch.cat(part) for part in zip(*shuffled))
    return logits, accepted


def stored_steps(
    requests: int, most: int = 240, *, domains: tuple[str, ...] | None = None
) -> tuple[list[Proposal], torch.Tensor]:
    """Return up to `most` consecutive steps of `requests` requests: their proposals, and the accepted drafts [steps, R].

    The requests are of all domains in a random order, or the same number of each of `domains`. A proposal holds confidences only;
    what was drafted makes no difference to a policy.
    """
    parts = [stored_blocks((domain,)) for domain in domains] if domains else [stored_blocks()]
    share = requests // len(parts)  # requests of each part
    steps = min(most, *(len(accepted) // share for _, accepted in parts))
    # [steps, R, g], [steps, R]
    logits, accepted = (
        torch.cat([rows[_side_by_side(len(rows), share)[:steps]] for rows in kind], 1)
        for kind in zip(*parts)
    )
    tokens = torch.zeros(accepted.shape[1], logits.shape[-1], dtype=torch.long)
    return [
        Proposal(tokens, torch.empty(*tokens.shape, 0), logits_of_step) for logits_of_step in logits
    ], accepted


def _side_by_side(blocks: int, requests: int) -> torch.Tensor:
    """Return which of `blocks` blocks each step takes, [steps, R]: each request goes through its own part of them."""
    steps = blocks // requests
    return torch.arange(steps)[:, None] + steps * torch.arange(requests)


def lengths_by(policy, steps: list[Proposal]) -> torch.Tensor:
    """Return the verification lengths [steps, R] of a policy; a policy with a memory begins with an empty one."""
    policy = start_policy(policy)
    return torch.stack([policy(proposal) for proposal in steps])


def tokens_and_seconds(
    lengths: torch.Tensor, accepted: torch.Tensor, cost_table: CostTable
) -> np.ndarray:
    """Return the committed tokens and the seconds of each step, [steps, 2], from lengths and accepted drafts [steps, R]."""
    requests = lengths.shape[1]
    batch = requests + lengths.sum(1)
    seconds = 1 / cost_table.sps(requests, range(int(batch.max()) + 1))[batch]
    return torch.stack([torch.minimum(lengths, accepted).sum(1) + requests, seconds], 1).numpy()


def replayed_speed(rows: np.ndarray) -> np.ndarray:
    """Return tokens per second [...] of rows [..., steps, 2]."""
    return rows[..., 0].sum(-1) / rows[..., 1].sum(-1)
