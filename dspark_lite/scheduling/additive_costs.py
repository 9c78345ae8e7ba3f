"""SGLang's additive cost table: a step takes a fixed time, plus a time for its requests, plus a
time for its tokens.

The table by tokens alone (cost_table.py) knows one price for a batch of B tokens; a step of few
requests with long blocks and one of many requests with short ones differ. This form holds both as a
sum and is read with the same option, --speculative-dspark-sps-table-path.
"""

import json
from pathlib import Path

import numpy as np
import torch

from ..common.errors import RequestError
from ..common.files import load_fields, read_object, write_text
from ..common.origin import ORIGIN_FIELDS, Origin
from .cost_table import CostTable

# A fit's bias is at least this share of the shortest step: every step takes some time
LEAST_BIAS = 1e-3
ADDITIVE_FIELDS = ("bias_seconds", "bs_probes", "alpha_seconds", "m_probes", "theta_seconds")


def _whole(probes) -> np.ndarray:
    """Return probes as whole numbers. Raise RequestError for fractions."""
    found = np.asarray(probes)
    if (found != found.astype(int)).any():
        raise RequestError(f"the probes are {found.tolist()}; they must be whole numbers")
    return found.astype(int)


class AdditiveCosts:
    """Seconds of a step: `bias_seconds` + alpha(requests) + theta(tokens, anchors included). A
    policy takes it like a CostTable.

    alpha and theta are linear between their probes and constant outside; `origin` says where it was
    measured (None: unknown). Raise RequestError for probes that do not increase, seconds that are
    not numbers, a bias or a sum that is not positive, lists of different lengths.
    """

    def __init__(
        self,
        bias_seconds: float,
        bs_probes,
        alpha_seconds,
        m_probes,
        theta_seconds,
        origin: Origin | None = None,
    ):
        self.origin = origin
        self.bias_seconds = float(bias_seconds)
        self.bs_probes, self.m_probes = map(_whole, (bs_probes, m_probes))
        self.alpha_seconds = np.asarray(alpha_seconds, dtype=float)
        self.theta_seconds = np.asarray(theta_seconds, dtype=float)
        self._check()
        self.max_batch_tokens = int(self.m_probes[-1])

    def _check(self) -> None:
        for what, probes, seconds in (
            ("requests", self.bs_probes, self.alpha_seconds),
            ("tokens", self.m_probes, self.theta_seconds),
        ):
            if probes.ndim != 1 or probes.shape != seconds.shape or not probes.size:
                raise RequestError(
                    f"the additive costs have {probes.size} probes of {what} and {seconds.size} times; they need one time "
                    "for each probe, and at least one"
                )
            if probes[0] < 1 or (np.diff(probes) <= 0).any():
                raise RequestError(
                    f"the probes of {what} do not increase from 1 or more; sort them and drop repeats"
                )
            if not np.isfinite(seconds).all():
                raise RequestError(
                    f"a time of the probes of {what} is not a finite number of seconds; measure it again"
                )
        shortest = self.bias_seconds + self.alpha_seconds.min() + self.theta_seconds.min()
        if not (np.isfinite(self.bias_seconds) and self.bias_seconds > 0 and shortest > 0):
            raise RequestError(
                f"bias_seconds is {self.bias_seconds} and the shortest step of the additive costs {shortest:g} s; a step takes a "
                "positive number of seconds"
            )

    def most_tokens(self, requests: int) -> int:
        """Return the last probe of tokens; 0 beyond the last probe of requests."""
        return self.max_batch_tokens if requests <= self.bs_probes[-1] else 0

    def seconds(self, requests: int, tokens: float | range) -> float | torch.Tensor:
        """Return the seconds of a step; float64 [n] for a range of n. Raise RequestError beyond the
        last probes."""
        most = tokens[-1] if isinstance(tokens, range) else tokens
        if requests > self.bs_probes[-1] or most > self.max_batch_tokens:
            raise RequestError(
                f"the additive costs cover up to {self.bs_probes[-1]} requests and {self.max_batch_tokens} tokens; "
                f"{requests} and {most} were asked for, so measure more"
            )
        fixed_part = self.bias_seconds + np.interp(requests, self.bs_probes, self.alpha_seconds)
        seconds = fixed_part + np.interp(np.asarray(tokens), self.m_probes, self.theta_seconds)
        return torch.from_numpy(seconds) if isinstance(tokens, range) else float(seconds)

    def sps(self, requests: int, tokens: float | range) -> float | torch.Tensor:
        """Return the steps per second, 1 / seconds."""
        return 1 / self.seconds(requests, tokens)

    @classmethod
    def fit(cls, requests, tokens, seconds, origin: Origin | None = None) -> "AdditiveCosts":
        """Return the sum nearest to measured steps: `seconds` [n] of steps with `requests[i]`
        requests and `tokens[i]` tokens.

        Least squares of the relative errors, with a probe at each number that occurs; neither more
        requests nor more tokens ever cost less, and the bias is at least LEAST_BIAS of the shortest
        step. Raise RequestError for fewer than four steps, or one that took no time.
        """
        from scipy.optimize import nnls  # slow to import, and needed here only

        requests, tokens, seconds = (
            np.asarray(values, dtype=float) for values in (requests, tokens, seconds)
        )
        if len(seconds) < 4 or not (np.isfinite(seconds) & (seconds > 0)).all():
            raise RequestError(
                f"there are {len(seconds)} measured steps; a fit needs at least four, each of a positive number of seconds"
            )
        bs_probes, m_probes = np.unique(requests), np.unique(tokens)
        # Each column is a rise from a probe to the next, so that coefficients of zero or more never
        # fall.
        rises = [
            _rises(values, probes) for values, probes in ((requests, bs_probes), (tokens, m_probes))
        ]
        shapes = np.column_stack([np.ones(len(seconds)), *rises])
        coefficients, _ = nnls(shapes / seconds[:, None], np.ones(len(seconds)))
        alpha, theta = (
            np.concatenate([[0.0], part.cumsum()])
            for part in np.split(coefficients[1:], [len(bs_probes) - 1])
        )
        bias = max(coefficients[0], LEAST_BIAS * seconds.min())
        return cls(bias, bs_probes, alpha, m_probes, theta, origin)

    def relative_errors(self, requests, tokens, seconds) -> np.ndarray:
        """Return the errors of the sum against measured steps, as shares of their seconds [n]."""
        predicted = [self.seconds(int(r), float(m)) for r, m in zip(requests, tokens)]
        return np.array(predicted) / np.asarray(seconds, dtype=float) - 1

    def save(self, path: Path | str) -> None:
        """Write SGLang's file; the fields of the origin are ours, and SGLang passes over them."""
        fields = {
            **{name: np.asarray(getattr(self, name)).tolist() for name in ADDITIVE_FIELDS},
            **(self.origin.fields() if self.origin else {}),
        }
        write_text(Path(path), json.dumps(fields) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> "AdditiveCosts":
        """Read SGLang's file. Raise CheckpointError for one that is missing, broken or lacks a
        field (an origin may)."""

        def make(**found):
            costs = [found.pop(name) for name in ADDITIVE_FIELDS]
            return cls(*costs, Origin.from_fields(**found))

        return load_fields(make, path, *ADDITIVE_FIELDS, **ORIGIN_FIELDS)


def load_costs(path: Path | str) -> CostTable | AdditiveCosts:
    """Read a cost table of either form, which a field decides, as in SGLang. Raise CheckpointError
    as their `load` do."""
    return (AdditiveCosts if "bias_seconds" in read_object(Path(path)) else CostTable).load(path)


def _rises(values: np.ndarray, probes: np.ndarray) -> np.ndarray:
    """Return how much of the way from each probe to the next lies below a value, [n, probes - 1],
    each from 0 to 1."""
    return np.clip((values[:, None] - probes[:-1]) / np.diff(probes), 0, 1)
