"""The accept rule on the fast path."""

import torch

from ..decoding.sampling import Randomness, Verdict, accept
from .passes import CompiledPass, PreparedNoise


class FastAccept:
    """`sampling.accept` in fixed shapes, for blocks of up to `gamma` drafts."""

    def __init__(self, gamma: int, vocab_size: int, device: torch.device, backend: str):
        self.target_probs, self.draft_probs = (
            torch.ones(1, count, vocab_size, device=device) for count in (gamma + 1, gamma)
        )
        self.draft_tokens = torch.zeros(1, gamma, dtype=torch.long, device=device)
        self.lengths = torch.zeros(1, dtype=torch.long, device=device)
        self.uniform = torch.ones(1, gamma, device=device)
        self.exponential = torch.ones(1, vocab_size, device=device)
        self.noise = PreparedNoise()
        self.noise.numbers = [(self.uniform, False), (self.exponential, True)]
        self.run = CompiledPass(self._accept, None, backend, device)

    def __call__(
        self, target_probs, draft_probs, draft_tokens, lengths, generator: Randomness
    ) -> Verdict:
        """Return the verdict on a whole block (`lengths` is None).

        Shapes: target_probs [1, g+1, V], draft_probs [1, g, V], draft_tokens [1, g].
        """
        count = draft_tokens.shape[1]
        (
            self.target_probs[:, : count + 1],
            self.draft_probs[:, :count],
            self.draft_tokens[:, :count],
        ) = target_probs, draft_probs, draft_tokens
        self.lengths.fill_(count)
        self.uniform[:, :count] = torch.rand(
            1, count, generator=generator, device=self.uniform.device
        )
        self.exponential.exponential_(generator=generator)
        return Verdict(*(part.clone() for part in self.run()))

    def _accept(self) -> Verdict:
        self.noise.next = 0
        return accept(
            self.target_probs, self.draft_probs, self.draft_tokens, self.lengths, self.noise
        )
