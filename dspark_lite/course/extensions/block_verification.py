"""Block verification: the accept rule that looks at the whole block, and keeps at least as many drafts (Sun et al. 2024,
arXiv 2403.10444).

The token rule (sampling.py) tosses a coin for each draft and forgets what earlier ratios left over. This one carries it
along: with p and q the target's and the draft's probabilities of the drafted tokens, the weight of a prefix is
w_k = min(1, w_{k-1} p_k / q_k), w_0 = 1. The longest prefix k whose own coin comes up is kept; its chance is

    h_k = S_k / (S_k + 1 - w_k)    with S_k = sum over x of max(0, w_k p(x | prefix) - q(x | prefix)),

and h = w at the end of the block, where nothing was drafted and q is zero. The next token comes from
max(0, w_k p - q), renormalised. A prefix then ends an answer's block with the mass S_k that the target still owes there, so
the text is the target's own; no lossless rule that sees the drafted path alone accepts more on average. What a block is cut
to may depend on the tokens before the cut, as with the token rule.
"""

import torch
import torch.nn.functional as F

from ...decoding.sampling import Randomness, Verdict, draw, probability_ratios, residual


def accept_block(
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    draft_tokens: torch.Tensor,
    lengths: torch.Tensor | None,
    generator: Randomness,
) -> Verdict:
    """Accept by block verification: the arguments of `sampling.accept`, the same distribution of
    the text, longer prefixes."""
    ends, weights, drafted = block_ends(target_probs, draft_probs, draft_tokens, lengths)
    accepted = draw(ends, generator)  # [B]
    row = torch.arange(len(accepted), device=accepted.device)
    weight = weights[row, accepted][:, None]
    return Verdict(
        accepted,
        draw(residual(weight * target_probs[row, accepted], drafted[row, accepted]), generator),
    )


def block_ends(
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    draft_tokens: torch.Tensor,
    lengths: torch.Tensor | None,
):
    """Return the chance [B, g+1] that 0 to g drafts of a block are kept; the prefixes' weights [B,
    g+1]; and the draft's distributions [B, g+1, V], zero where nothing was drafted or verified."""
    batch, gamma = draft_tokens.shape
    weights = prefix_weights(target_probs, draft_probs, draft_tokens)  # [B, g+1]
    if lengths is None:
        lengths = torch.full((batch,), gamma, device=draft_tokens.device)
    position = torch.arange(gamma + 1, device=draft_tokens.device)
    # Where the block ends nothing was drafted: a zero row, after which all of w p is owed.
    # [B, g+1, V]
    drafted = F.pad(draft_probs, (0, 0, 0, 1)) * (position < lengths[:, None])[..., None]
    owed = (weights[..., None] * target_probs - drafted).clamp(min=0).sum(-1)  # S_k, [B, g+1]
    possible = owed + (1 - weights)
    # Nothing owed and a full weight: both models agree here, and a later prefix is certain to be kept.
    weight = torch.where(
        possible > 0, owed / possible.clamp(min=torch.finfo(owed.dtype).tiny), 1.0
    ).clamp(max=1)
    weight = torch.where(position == 0, 1.0, weight * (position <= lengths[:, None]))
    return longest_kept(weight), weights, drafted


def prefix_weights(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, draft_tokens: torch.Tensor
) -> torch.Tensor:
    """Return w_0 .. w_g [B, g+1] of a block's prefixes: how much of the draft's mass the target
    takes over, at most all of it."""
    ratios = probability_ratios(target_probs, draft_probs, draft_tokens)  # [B, g]
    weights = [torch.ones(len(ratios), device=ratios.device)]
    for ratio in ratios.unbind(1):
        weights.append((weights[-1] * ratio).clamp(max=1))
    return torch.stack(weights, 1)


def longest_kept(kept: torch.Tensor) -> torch.Tensor:
    """Return the chance [B, g+1] that each prefix is the longest whose coin, true with probability
    `kept` [B, g+1], comes up."""
    none_after = (1 - kept[:, 1:]).flip(1).cumprod(1).flip(1)
    return kept * F.pad(none_after, (0, 1), value=1.0)
