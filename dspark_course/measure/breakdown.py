"""Where a round's time goes, batch 1, on the eager path and on the fast one, and how far both are from what they must do."""

import functools
import sys

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from tqdm import tqdm

from dspark_lite.common.errors import RequestError
from dspark_lite.common.timing import WallSeconds, bytes_a_second, clock, wall_seconds
from dspark_lite.decoding.fast import Pass
from dspark_lite.decoding.rounds import ROUND_PARTS, begin_together
from dspark_lite.decoding.sampling import check_temperature
from .forced_rounds import measure_parts
from .journal import header
from .lab import Lab

bandwidth = functools.cache(bytes_a_second)
PRODUCTS = {"aten.mm", "aten.addmm", "aten.bmm", "aten.linear", "aten.matmul", "aten.scaled_dot_product_attention",
            "aten._scaled_dot_product_flash_attention_for_cpu", "aten._scaled_dot_product_flash_attention",
            "aten._scaled_dot_product_efficient_attention"}


class OperatorSeconds(TorchDispatchMode):
    """Adds up the seconds that pass inside PyTorch's operators, those of the device included; noting them slows a work down,
    but not the operators."""

    def __init__(self, device: torch.device):
        super().__init__()
        self.device, self.total = device, 0.0

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        started = clock(self.device)
        result = operation(*arguments, **(named or {}))
        self.total += clock(self.device) - started
        return result


class BoundSeconds(TorchDispatchMode):
    """The seconds that a work must take: on a CPU those of its matrix products and attentions alone, called again without
    anything between them; on a GPU those of reading what they read, once, at the bandwidth measured here."""

    def __init__(self, device: torch.device):
        super().__init__()
        self.device, self.total, self.calls = device, 0.0, []

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        if str(operation.overloadpacket) in PRODUCTS:
            self.calls.append((operation, arguments, named or {}))
        return operation(*arguments, **(named or {}))

    def __exit__(self, *error) -> None:
        super().__exit__(*error)
        if self.device.type == "cuda":
            read = sum(value.nbytes for _, arguments, _ in self.calls for value in arguments if isinstance(value, torch.Tensor))
            self.total = read / bandwidth(self.device)
        else:
            self.total = min(wall_seconds(self._again, self.device) for _ in range(2))

    def _again(self) -> None:
        for operation, arguments, named in self.calls:
            operation(*arguments, **named)


class PassSeconds:
    """Adds up the seconds that pass inside compiled passes."""

    def __init__(self, device: torch.device):
        self.device, self.total = device, 0.0

    def __enter__(self) -> "PassSeconds":
        self.call = call = Pass.__call__

        def timed(one, limit=0):
            started = clock(self.device)
            results = call(one, limit)
            self.total += clock(self.device) - started
            return results

        Pass.__call__ = timed
        return self

    def __exit__(self, *error) -> None:
        Pass.__call__ = self.call


@torch.inference_mode()
def breakdown(lab: Lab, drafters: list[str], *, prompts: int, temperature: float = 1.0, backend: bool | str = True) -> dict:
    """Where the time of a round goes, batch 1: for plain decoding and each drafter a row of the eager and one of the fast
    path, whose `backend` is as `fast` of `generate`; `refused` says why a fast one is missing.

    A row holds means over all rounds: milliseconds of each of ROUND_PARTS, how many of them passed inside operators (on the
    fast path: inside compiled passes), the sum of the parts, `python_milliseconds`, what is left of the sum, and the round's
    `bound_milliseconds`. A fast row has `times_eager`. Each prompt is decoded anew for every clock, with the same draws.
    """
    check_temperature(temperature)
    for name in drafters:
        lab.check_drafter(name)  # before the first one is measured
    rows, refused, texts = [], {}, [(index, text) for some in lab.prompts.values() for index, text in enumerate(some[:prompts])]
    for name in tqdm(("plain", *drafters), desc="breakdown", unit="drafter", file=sys.stderr):
        drafter = None if name == "plain" else lab.drafter(name)
        eager = _timed_row(lab, name, drafter, texts, temperature, (WallSeconds, OperatorSeconds))
        bound = 1e3 * np.sum(_measured_rounds(lab, drafter, texts, temperature, BoundSeconds), 1).mean()
        rows.append({**eager, "path": "eager", "bound_milliseconds": float(bound)})
        try:
            fast = _timed_row(lab, name, drafter, texts, temperature, (WallSeconds, PassSeconds), backend)
            rows.append({**fast, "path": "fast", "bound_milliseconds": float(bound),
                         "times_eager": fast["round_milliseconds"] / eager["round_milliseconds"]})
        except RequestError as error:
            refused[name] = str(error)
    return {**header(lab), "temperature": temperature, "prompts": prompts, "rows": rows, "refused": refused}


def _timed_row(lab: Lab, name: str, drafter, texts, temperature: float, clocks, fast: bool | str = False) -> dict:
    """A row of `breakdown`, from the parts' seconds by either clock: in all and inside operators or passes."""
    _measured_rounds(lab, drafter, texts[:1], temperature, WallSeconds, fast)  # the first run of a shape pays for memory
    times, inside = (_measured_rounds(lab, drafter, texts, temperature, gauge, fast) for gauge in clocks)
    spent, operators = (dict(zip(ROUND_PARTS, (1e3 * np.mean(rows, 0)).tolist())) for rows in (times, inside))
    total = sum(spent.values())
    return {"drafter": name, "rounds": len(times), "milliseconds": spent, "operator_milliseconds": operators,
            "round_milliseconds": total, "python_milliseconds": total - sum(operators.values())}


def _measured_rounds(lab: Lab, drafter, texts: list[tuple[int, str]], temperature: float, gauge, fast: bool | str = False) -> list[list[float]]:
    """What `gauge(device)` says of each of ROUND_PARTS, for every round of the answers to texts, each with its seed's index."""
    rounds = []
    for index, text in texts:
        (request,) = begin_together(lab.target, drafter, [lab.encode(text)], max_new_tokens=lab.max_new_tokens,
                                    temperature=temperature, generator=lab.generator(lab.seed + index), fast=fast)
        while not request.finished:
            outcome, parts = measure_parts(request, gauge)
            rounds.append(list(parts.values()))
            request.write(outcome)
    return rounds


def breakdown_lines(measured: dict) -> list[str]:
    """`breakdown` for a reader, a line a row."""
    lines = []
    for row in measured["rows"]:
        total, python, bound = (row[f"{part}_milliseconds"] for part in ("round", "python", "bound"))
        parts = ", ".join(f"{part} {spent:.2f} ({spent / total:.0%})" for part, spent in row["milliseconds"].items())
        ratio = f"{row['times_eager']:.2f} x eager, " if "times_eager" in row else ""
        lines.append(f"{row['drafter']:14} {row['path']:5} {total:6.2f} ms a round: {parts}; Python {python:.2f} ({python / total:.0%}) of it; "
                     f"{ratio}{total / bound:.2f} x the bound of {bound:.2f}")
    return lines + [f"{name:14} fast path: {why}" for name, why in measured["refused"].items()]
