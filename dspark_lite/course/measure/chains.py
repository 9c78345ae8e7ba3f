"""Acceptance of an autoregressive drafter on the target's features and on its own output: chains of
passes from every place of a text (the training-time test of lesson 06)."""

import torch

from ...training.chains import unrolled_hidden


@torch.inference_mode()
def chances(target, drafter, ids: torch.Tensor, first: int) -> torch.Tensor:
    """Return the chance of acceptance, the sum of min(p, q), of each pass of chains: [B, K, gamma].
    Chains start at the places from `first` on of texts ids [B, n] and read the text's tokens and
    their own output."""
    last_hidden, features = target.last_hidden(ids, drafter.taps)
    end, chances_by_pass = ids.shape[1] - drafter.gamma, []
    starts = torch.arange(first, end, device=ids.device).expand(len(ids), -1)  # [B, K]
    tokens = ids.unfold(1, drafter.gamma, 1)[:, first:end]  # [B, K, gamma]
    for k, hidden in enumerate(unrolled_hidden(drafter, features, ids, tokens, starts)):
        # [B, K, V]
        p, q = (
            torch.softmax(drafter.lm_head(each).float(), -1)
            for each in (last_hidden[:, first + k : end + k], hidden)
        )
        chances_by_pass.append(torch.minimum(p, q).sum(-1))
    return torch.stack(chances_by_pass, -1)


def by_pass(all_found: list[torch.Tensor]) -> tuple[list[float], list[float]]:
    """Return the mean chance of every pass on the target's features and on its own output, over the
    same slots, from chances [B, K, gamma] each.

    At the slot of pass k of a chain another chain begins, whose first pass reads the target's
    feature.
    """
    with_features, with_outputs = [], []
    for of_prompt in all_found:
        gamma = of_prompt.shape[2]
        # the last gamma - 1 chains have no later chain to be compared with
        with_outputs.append(of_prompt[:, : 1 - gamma].flatten(0, 1))
        with_features.append(of_prompt[..., 0].unfold(1, gamma, 1).flatten(0, 1))
    return torch.cat(with_features).mean(0).tolist(), torch.cat(with_outputs).mean(0).tolist()
