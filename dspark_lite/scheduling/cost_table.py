"""The cost table SPS(B): how many steps per second a target makes when a step verifies B tokens
(paper, section 3.2.2).

B counts every token that enters the pass: one anchor a request and the drafts to verify. Files are
those that SGLang reads with --speculative-dspark-sps-table-path.
"""

import json
from pathlib import Path

import numpy as np
import torch

from ..common.errors import RequestError
from ..common.files import load_fields, write_text
from ..common.origin import ORIGIN_FIELDS, Origin

# More than any engine verifies in a step; a table holds a speed for each size up to its largest
MOST_BATCH_TOKENS = 2**20


class CostTable:
    """Steps per second by tokens in the batch, a step function: between two measured sizes the
    smaller one's speed holds. How many requests share the batch makes no difference.

    Below the first measured size its speed holds too. Nothing is known above `max_batch_tokens`
    (by default the largest measured size), so a scheduler never fills a batch beyond it. `origin`
    says where it was measured (None: unknown). Raise RequestError for sizes that do not increase,
    speeds that are not positive numbers, lists of different lengths, more than MOST_BATCH_TOKENS.
    """

    def __init__(
        self,
        batch_tokens,
        steps_per_second,
        max_batch_tokens: int | None = None,
        origin: Origin | None = None,
    ):
        self.origin = origin
        sizes = torch.as_tensor(batch_tokens)
        if (sizes != sizes.long()).any():
            raise RequestError(
                f"the sizes of the cost table are {sizes.tolist()}; they must be whole numbers"
            )
        self.batch_tokens = sizes.long().contiguous()
        self.steps_per_second = torch.as_tensor(steps_per_second, dtype=torch.float64)
        self._check()
        largest = int(self.batch_tokens[-1])
        most = largest if max_batch_tokens is None else max_batch_tokens
        if most not in range(largest, MOST_BATCH_TOKENS + 1):
            raise RequestError(
                f"max_batch_tokens is {most}; it must be at least the largest measured size, {largest}, and at most "
                f"{MOST_BATCH_TOKENS}, a whole number"
            )
        self.max_batch_tokens = int(most)
        sizes = torch.arange(self.max_batch_tokens + 1)
        above = torch.searchsorted(self.batch_tokens, sizes, right=True)
        self._by_size = self.steps_per_second[(above - 1).clamp(min=0)]  # SPS(0..max_batch_tokens)

    def _check(self) -> None:
        sizes, speeds = self.batch_tokens, self.steps_per_second
        if sizes.ndim != 1 or sizes.shape != speeds.shape or not len(sizes):
            raise RequestError(
                f"the cost table has {sizes.numel()} sizes and {speeds.numel()} speeds; it needs one "
                "speed a size, and at least one"
            )
        if sizes[0] < 1 or (sizes.diff() <= 0).any():
            raise RequestError(
                "the sizes of the cost table do not increase from 1 or more; sort them and drop repeats"
            )
        if not (speeds.isfinite() & (speeds > 0)).all():
            raise RequestError(
                "a speed of the cost table is not a positive number of steps a second; measure it again"
            )

    def most_tokens(self, requests: int) -> int:
        """Return `max_batch_tokens`, however many requests there are."""
        return self.max_batch_tokens

    def sps(self, requests: int, tokens: int | range) -> float | torch.Tensor:
        """Return SPS(tokens); float64 [n] for a range of n. Raise RequestError beyond
        `max_batch_tokens`."""
        first, last = (tokens[0], tokens[-1]) if isinstance(tokens, range) else (tokens, tokens)
        if first < 0 or last > self.max_batch_tokens:
            raise RequestError(
                f"the cost table covers batches of up to {self.max_batch_tokens} tokens; {last} were "
                "asked for, so profile larger batches"
            )
        if isinstance(tokens, range):
            return self._by_size[tokens.start : tokens.stop : tokens.step]
        return self._by_size[tokens].item()

    def seconds(self, requests: int, tokens: int | range) -> float | torch.Tensor:
        """Return the seconds of a step, 1 / SPS."""
        return 1 / self.sps(requests, tokens)

    def monotone(self) -> "CostTable":
        """Return the nearest table (least squares in seconds per step) in which a larger batch
        never makes a step shorter."""
        from scipy.optimize import isotonic_regression

        seconds = isotonic_regression((1 / self.steps_per_second).numpy()).x
        return CostTable(self.batch_tokens, 1 / seconds, self.max_batch_tokens, self.origin)

    def lower_hull(self) -> "CostTable":
        """Return the table of all sizes whose seconds per step are the largest convex curve nowhere
        above these: on it Algorithm 1 stops at the top (lesson 10)."""
        sizes = np.arange(1, self.max_batch_tokens + 1)
        return CostTable(
            sizes, 1 / lower_hull(sizes, 1 / self._by_size[1:].numpy()), origin=self.origin
        )

    def in_buckets(self, sizes) -> "CostTable":
        """Return the table of an engine that pads each pass to the next of `sizes`: the speed of
        that size, for every batch up to the largest that the table covers."""
        sizes_covered = sorted({size for size in sizes if size <= self.max_batch_tokens})
        if not sizes_covered or sizes_covered[0] < 1:
            raise RequestError(
                f"no size of {list(sizes)} lies between 1 and {self.max_batch_tokens}, the batches that the cost table covers"
            )
        # The smallest batch that is filled up to each size
        begins = [
            1,
            *(size + 1 for size in sizes_covered[:-1]),
        ]
        return CostTable(
            begins, [self.sps(1, size) for size in sizes_covered], sizes_covered[-1], self.origin
        )

    def save(self, path: Path | str) -> None:
        """Write SGLang's file; the fields of the origin are ours, and SGLang passes over them."""
        fields = {
            "sample_batch_tokens": self.batch_tokens.tolist(),
            "sample_steps_per_sec": self.steps_per_second.tolist(),
            "max_batch_tokens": self.max_batch_tokens,
            **(self.origin.fields() if self.origin else {}),
        }
        write_text(Path(path), json.dumps(fields) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> "CostTable":
        """Read SGLang's file. Raise CheckpointError for one that is missing, broken or lacks a
        field (an origin may)."""

        def make(sample_batch_tokens, sample_steps_per_sec, max_batch_tokens, **origin):
            return cls(
                sample_batch_tokens,
                sample_steps_per_sec,
                max_batch_tokens,
                Origin.from_fields(**origin),
            )

        return load_fields(
            make,
            path,
            "sample_batch_tokens",
            "sample_steps_per_sec",
            "max_batch_tokens",
            **ORIGIN_FIELDS,
        )


def lower_hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the values at increasing x [N] of the largest convex curve that is nowhere above y
    [N]."""
    corners = []

    def slope(one, other):
        return (other[1] - one[1]) / (other[0] - one[0])

    for corner in zip(x, y):
        while len(corners) > 1 and slope(corners[-1], corner) <= slope(corners[-2], corners[-1]):
            corners.pop()
        corners.append(corner)
    return np.interp(x, *zip(*corners))
