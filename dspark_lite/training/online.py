"""Hidden states without a cache: the target computes them for each batch anew, and nothing of them is kept on the disk."""

import torch

from .cache import padded_ids


class OnlineFeatures:
    """`rows` of (ids, prompt length) and what `target` computes of them, in the place of a TargetCache."""

    def __init__(self, target, rows: list[tuple[list[int], int]], taps):
        self.target, self.rows, self.taps = target, rows, taps

    @torch.no_grad()
    def batch(self, indices: list[int], device):
        """Padded ids and supervised [B, n] on `device`, features [B, n, taps * H] and last hidden states [B, n, H] where
        the target computes."""
        ids, supervised = padded_ids(self.rows, indices)
        # Padding stands on the right, where a causal target cannot see it from any real token.
        last_hidden, features = self.target.last_hidden(ids.to(self.target.device), self.taps)
        return ids.to(device), supervised.to(device), features.float(), last_hidden.float()
