"""The time of a whole step of a serving engine, by its requests and its verified tokens.

The scheduler maximises expected tokens per second, theta = (R + admitted survivals) * SPS (paper,
section 3.2.2), and the seconds in it are those of the step: drafting, the host's work and
committing count like verification. At a given number of requests they are constant, but a constant
matters: the longer the rest of a step takes, the less a further token prolongs it.
"""

import numpy as np
import torch

from ...common.errors import RequestError


class StepCosts:
    """Seconds of a step by requests R and by verified tokens B, anchors included; takes a
    CostTable's place in a policy.

    `step_seconds` [n, k] were measured at `requests` [n] and at `tokens_per_request` [k]; in
    between, the step's time is linear. Nothing is known beyond the most requests or tokens per
    request. Raise RequestError for grids that do not increase, times that are not positive numbers,
    shapes that do not fit.
    """

    def __init__(self, requests, tokens_per_request, step_seconds):
        self.requests, self.tokens_per_request, self.step_seconds = (
            np.asarray(values, dtype=float)
            for values in (requests, tokens_per_request, step_seconds)
        )
        self._check()
        self.max_batch_tokens = int(self.requests[-1] * self.tokens_per_request[-1])
        self._curves: dict[tuple[int, range], torch.Tensor] = {}

    def _check(self) -> None:
        grids = self.requests, self.tokens_per_request
        if (
            self.step_seconds.shape != tuple(len(grid) for grid in grids)
            or not self.step_seconds.size
        ):
            raise RequestError(
                f"the step costs have shape {self.step_seconds.shape}; they need a row for each of {len(grids[0])} "
                f"numbers of requests and a column for each of {len(grids[1])} numbers of tokens a request"
            )
        if any(grid[0] < 1 or (np.diff(grid) <= 0).any() for grid in grids):
            raise RequestError(
                "requests or tokens a request of the step costs do not increase from 1 or more; sort them "
                "and drop repeats"
            )
        if not (np.isfinite(self.step_seconds) & (self.step_seconds > 0)).all():
            raise RequestError(
                "a step of the cost grid does not take a positive number of seconds; measure it again"
            )

    def most_tokens(self, requests: int) -> int:
        """Return the largest number of tokens a request that was measured; 0 beyond the most
        requests."""
        return int(requests * self.tokens_per_request[-1]) if requests <= self.requests[-1] else 0

    def seconds(self, requests: int, tokens: float | range) -> float | torch.Tensor:
        """Return the seconds of a step of `requests` requests that verifies `tokens`; float64 [n]
        for a range of n.

        Fewer tokens than requests cost as much as the anchors alone. Raise RequestError beyond what
        was measured.
        """
        if not 1 <= requests <= self.requests[-1]:
            raise RequestError(
                f"the step costs cover 1 to {int(self.requests[-1])} requests; {requests} were asked for, so "
                "measure more"
            )
        most = tokens[-1] if isinstance(tokens, range) else tokens
        covered = requests * self.tokens_per_request[-1]
        if most > covered:
            raise RequestError(
                f"the step costs of {requests} requests cover up to {int(covered)} tokens; {most} were asked "
                "for, so measure longer blocks"
            )
        of_requests = [np.interp(requests, self.requests, column) for column in self.step_seconds.T]
        if isinstance(tokens, range):
            return torch.from_numpy(
                np.interp(np.asarray(tokens) / requests, self.tokens_per_request, of_requests)
            )
        return float(np.interp(tokens / requests, self.tokens_per_request, of_requests))

    def sps(self, requests: int, tokens: float | range) -> float | torch.Tensor:
        """Return steps per second, 1 / seconds; ranges are cached, because a scheduler asks for the
        same one in every step."""
        if not isinstance(tokens, range):
            return 1 / self.seconds(requests, tokens)
        if (requests, tokens) not in self._curves:
            self._curves[requests, tokens] = 1 / self.seconds(requests, tokens)
        return self._curves[requests, tokens]

    def convex_fit(self) -> "StepCosts":
        """Return a least-squares fit at each number of requests: convex, non-decreasing, and
        nowhere below the fastest measurement.

        A lower hull would bend at the measurements that were short by chance.
        """
        from scipy.optimize import nnls  # slow to import, and needed here only

        grid = self.tokens_per_request
        # [k, k-1]: the slope and where it may grow
        hinges = np.maximum(grid[:, None] - grid[:-1], 0)
        shapes = np.column_stack([np.ones(len(grid)), hinges])
        fitted = [
            row.min() + shapes @ nnls(shapes, row - row.min())[0] for row in self.step_seconds
        ]
        return StepCosts(self.requests, grid, fitted)
