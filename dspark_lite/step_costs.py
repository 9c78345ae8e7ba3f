"""What a whole step of a serving engine costs, by the requests that share it and the tokens that it verifies.

The scheduler maximises expected tokens a second, theta = (R + admitted survivals) * SPS (paper, section 3.2.2), and the
seconds in it are those of the step: drafting, the host's work and committing count like verification. At a given number
of requests they are constant, but a constant matters: the longer the rest of a step takes, the less a further token
prolongs it.
"""

import numpy as np
import torch

from .errors import RequestError


class StepCosts:
    """Seconds of a step by requests R and by verified tokens B, anchors included; takes a CostTable's place in a policy.

    `seconds` [n, k] were measured at `requests` [n] and at `tokens_per_request` [k]; in between, the step's time is
    linear. Nothing is known beyond the most requests or tokens a request. Raises RequestError for grids that do not
    increase, times that are not positive numbers, shapes that do not fit.
    """

    def __init__(self, requests, tokens_per_request, seconds):
        self.requests, self.tokens_per_request, self.seconds = (
            np.asarray(numbers, dtype=float) for numbers in (requests, tokens_per_request, seconds))
        self._check()
        self.max_batch_tokens = int(self.requests[-1] * self.tokens_per_request[-1])
        self._speeds: dict[int, torch.Tensor] = {}

    def _check(self) -> None:
        grids = self.requests, self.tokens_per_request
        if self.seconds.shape != tuple(len(grid) for grid in grids) or not self.seconds.size:
            raise RequestError(f"the step costs have shape {self.seconds.shape}; they need a row for each of {len(grids[0])} "
                               f"numbers of requests and a column for each of {len(grids[1])} numbers of tokens a request")
        if any(grid[0] < 1 or (np.diff(grid) <= 0).any() for grid in grids):
            raise RequestError("requests or tokens a request of the step costs do not increase from 1 or more; sort them "
                               "and drop repeats")
        if not (np.isfinite(self.seconds) & (self.seconds > 0)).all():
            raise RequestError("a step of the cost grid does not take a positive number of seconds; measure it again")

    def __call__(self, requests: int, tokens) -> np.ndarray:
        """Seconds of steps of so many requests that verify `tokens`, a number or an array."""
        if not 1 <= requests <= self.requests[-1]:
            raise RequestError(f"the step costs cover 1 to {int(self.requests[-1])} requests; {requests} were asked for, so "
                               "measure more")
        of_requests = [np.interp(requests, self.requests, column) for column in self.seconds.T]
        return np.interp(np.asarray(tokens) / requests, self.tokens_per_request, of_requests)

    def between(self, requests: int, most: int, device=None) -> torch.Tensor:
        """SPS of so many requests, float64, from `requests` tokens, the anchors alone, to `most`."""
        covered = int(requests * self.tokens_per_request[-1])
        if most > covered:
            raise RequestError(f"the step costs of {requests} requests cover up to {covered} tokens; {most} were asked for, "
                               "so measure longer blocks")
        if requests not in self._speeds:
            self._speeds[requests] = torch.from_numpy(1 / self(requests, np.arange(requests, covered + 1)))
        return self._speeds[requests][:most - requests + 1].to(device)

    def convex(self) -> "StepCosts":
        """The costs whose seconds are, at each number of requests, the convex curve next to these in least squares, among
        those that rise from the least measured time or more: on them Algorithm 1 stops at the top (lesson 10).

        The lower hull would follow the measurements that came out short by chance, and bend where they stand.
        """
        from scipy.optimize import nnls  # slow to import, and needed here only

        grid = self.tokens_per_request
        hinges = np.maximum(grid[:, None] - grid[:-1], 0)  # [k, k-1]: the slope and where it may grow
        shapes = np.column_stack([np.ones(len(grid)), hinges])
        fitted = [row.min() + shapes @ nnls(shapes, row - row.min())[0] for row in self.seconds]
        return StepCosts(self.requests, grid, fitted)
