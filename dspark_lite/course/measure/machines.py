"""A machine as three numbers, and recorded rounds replayed on it.

    step = fixed + per_request * requests + per_token * tokens

On a CPU we measure the three. On a GPU they follow from the roofline: a pass reads all weights
once, whatever it computes, so its first `free` tokens cost nothing more; each further token
costs its arithmetic. A request costs the reading of its keys and values, which the verified
tokens of its block share, and the host's work for it. Attention reads and the other layers
compute in different kernels, so the two times add up ("How to Scale Your Model",
jax-ml.github.io/scaling-book/inference, "theoretical step time").

What runs on a machine is real: blocks that our drafters drafted and the tiny target verified
whole. A block that a policy shortens accepts the smaller of what was accepted and what is kept.
A policy sees confidences alone.

Left out: prefill; padding to prepared batch sizes; writing a token's keys and values and its
logits (about half a microsecond on an H100); launches within the drafting pass; what speculation
adds to the host's work for a request.
"""

from dataclasses import dataclass, replace
from itertools import cycle
from math import floor
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from ...common.errors import RequestError
from ...models.weights import kv_bytes
from ...scheduling.additive_costs import AdditiveCosts
from ...scheduling.policies import (
    LaggedTopK,
    algorithm1,
    fixed,
    schedule,
    survival,
    threshold,
)
from .. import paper
from ..estimates import Estimate, interval_of
from . import shapes
from .roofline import DEVICES, Device
from .simulator import EngineModel, Record

LOADS = (1, 8, 32, 128, 256)  # requests under way
GPUS = {  # as their data sheets have them, dense 16-bit operations
    "T4": DEVICES["T4"],
    "H100": Device("H100", 3350e9, 989e12, 80e9),  # SXM
    "H200": DEVICES["H200"],
    "B200": Device("B200", 8000e9, 2250e12, 192e9),  # SXM
    "RTX 4090": Device("RTX 4090", 1008e9, 165e12, 24e9),
}
# Of the data sheet's bandwidth, measured: 2.89 of 3.35 TB/s (assets/measurements/gpu, H100,
# rounds-float16.json).
REACHED_BANDWIDTH = 0.863
# Of the data sheet's operations, measured by others: 794.5 of 989 TFLOPS on an H100 SXM
# (stas00/ml-engineering, compute/accelerator, "Maximum Achievable Matmul FLOPS").
REACHED_PEAK = 0.803
CONTEXT = 1000  # tokens of a request's K/V cache, chosen


class Host(NamedTuple):
    """Seconds of the host for a step, launches included, and for each request in it."""

    per_step: float
    per_request: float


# `fit_host` on the published steps of Qwen3-14B (vLLM on an H100), measured by others.
VLLM = Host(2.0e-3, 0.067e-3)
NO_HOST = Host(0.0, 0.0)


@dataclass(frozen=True)
class PassTime:
    """Seconds of a pass: `fixed`, `per_request` for each request, `per_token` for each token after
    the first `free` ones."""

    fixed: float
    per_request: float
    per_token: float
    free: float = 0.0

    def seconds(self, requests: float, tokens: float) -> float:
        """Return the seconds of a pass over `tokens` tokens of `requests` requests."""
        return (
            self.fixed + self.per_request * requests + self.per_token * max(tokens - self.free, 0.0)
        )


NO_PASS = PassTime(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class StepTime:
    """A step of an engine: a pass of the drafter that computes `drafted` tokens for each request,
    and one of the target."""

    verify: PassTime
    draft: PassTime = NO_PASS
    drafted: int = 0

    def seconds(self, requests: float, tokens: float) -> float:
        """Return the seconds of a step that verifies `tokens` tokens, anchors included."""
        return self.draft.seconds(requests, requests * self.drafted) + self.verify.seconds(
            requests, tokens
        )

    def costs(self, requests: int, tokens: int) -> AdditiveCosts:
        """Return the step as additive costs up to `requests` and `tokens`; they are equal at whole
        numbers."""
        draft, verify = self.draft, self.verify
        probed = _bends(requests, draft.free / self.drafted if self.drafted else 0.0)
        alpha = [self.seconds(r, 0) - draft.fixed - verify.fixed for r in probed]
        counted = _bends(tokens, verify.free)
        theta = [verify.seconds(0, t) - verify.fixed for t in counted]
        return AdditiveCosts(draft.fixed + verify.fixed, probed, alpha, counted, theta)

    def line(self, requests: int, tokens: int) -> tuple[float, float, float]:
        """Return seconds (fixed, of a request, of a token) of the line on which the step lies at so
        many requests and tokens, anchors included."""
        here = self.seconds(requests, tokens)
        request = self.seconds(requests + 1, tokens) - here
        token = self.seconds(requests, tokens + 1) - here
        return here - requests * request - tokens * token, request, token

    def least_survival(self, requests: int, tokens: int, committed: float) -> float:
        """Return the survival above which one more token pays, in a step that verifies `tokens` and
        commits `committed`: it must bring more tokens for its seconds than the step does (lesson
        10)."""
        price = self.seconds(requests, tokens + 1) - self.seconds(requests, tokens)
        return committed * price / self.seconds(requests, tokens)


def _bends(most: int, bend: float) -> list[int]:
    """Return the whole numbers from 1 to `most` between which a line that bends at `bend` is
    straight."""
    return sorted({1, most, *(n for n in (floor(bend), floor(bend) + 1) if 1 <= n <= most)})


@dataclass(frozen=True)
class Machine:
    """A machine: `kind` says how its numbers were found ("measured", "modelled", "derived"),
    `source` where.

    `steps` are those of "plain" decoding, "mtp" (one draft) and "dspark"; `most` requests fit
    its memory (None: not known).
    """

    name: str
    kind: str
    source: str
    steps: dict[str, StepTime]
    most: int | None = None

    def step(self, way: str) -> StepTime:
        """Return the step of a way to decode. Raise RequestError for one that is not known of this
        machine."""
        if way not in self.steps:
            raise RequestError(
                f"nothing is known of {way!r} on {self.name}; it has {', '.join(self.steps)}"
            )
        return self.steps[way]


# Machines


def read_bytes(shape: dict) -> int:
    """Return the bytes that a pass reads of a Qwen3's weights, in 16 bit: attention, feed-forward
    network, LM head."""
    hidden, head = shape["hidden_size"], shape["head_dim"]
    attention = 2 * hidden * head * (shape["num_attention_heads"] + shape["num_key_value_heads"])
    layer = attention + 3 * hidden * shape["intermediate_size"]
    return shapes.ITEM * (shape["num_hidden_layers"] * layer + shape["vocab_size"] * hidden)


def roofline_pass(
    device: Device, read: float, keys_values: float, operations: float, host: Host = NO_HOST
) -> PassTime:
    """Return a pass on a GPU that reads `read` bytes once and `keys_values` bytes for each request,
    and does `operations` for each token: time = max(bytes / bandwidth, operations / peak) of the
    weights, and bytes / bandwidth of the caches."""
    bandwidth, peak = REACHED_BANDWIDTH * device.bandwidth, REACHED_PEAK * device.operations
    reading, per_token = read / bandwidth, operations / peak
    return PassTime(
        host.per_step + reading,
        host.per_request + keys_values / bandwidth,
        per_token,
        reading / per_token,
    )


def target_pass(device: Device, shape: dict, context: float, host: Host) -> PassTime:
    """Return the pass of a Qwen3 of this shape, whose requests have `context` tokens cached."""
    read = read_bytes(shape)
    cached = context * kv_bytes(SimpleNamespace(**shape), shapes.ITEM)
    return roofline_pass(device, read, cached, 2 * read / shapes.ITEM, host)


def dspark_pass(device: Device, context: float) -> PassTime:
    """Return the drafting pass of the released DSpark: its layers over a block in parallel, then
    its Markov head, whose table is read at each position."""
    shape = shapes.config("dspark")
    head = shapes.ITEM * shape["vocab_size"] * shape["markov_rank"]
    read, cached = read_bytes(shape), context * kv_bytes(SimpleNamespace(**shape), shapes.ITEM)
    return roofline_pass(
        device, read + shape["block_size"] * head, cached, 2 * (read + head) / shapes.ITEM
    )


def mtp_pass(device: Device, context: float) -> PassTime:
    """Return the drafting pass of an MTP-1 for Qwen3-4B, which nobody released: one layer of the
    target, its LM head, and the projection of two vectors to one (drafters/mtp.py)."""
    shape = {**shapes.config("target"), "num_hidden_layers": 1}
    read = read_bytes(shape) + shapes.ITEM * 2 * shape["hidden_size"] ** 2
    cached = context * kv_bytes(SimpleNamespace(**shape), shapes.ITEM)
    return roofline_pass(device, read, cached, 2 * read / shapes.ITEM)


def gpu(name: str, *, context: int = CONTEXT, host: Host = VLLM) -> Machine:
    """Return Qwen3-4B and its DSpark on one of GPUS, modelled. Raise RequestError for another."""
    if name not in GPUS:
        raise RequestError(f"there is no data sheet of {name!r}; GPUs are {', '.join(GPUS)}")
    device = GPUS[name]
    verify = target_pass(device, shapes.config("target"), context, host)
    drafts = shapes.config("dspark")
    cached = sum(
        context * kv_bytes(SimpleNamespace(**shape), shapes.ITEM)
        for shape in (shapes.config("target"), drafts)
    )
    # The draft shares its embedding and LM head with the target.
    weights = (
        shapes.weight_bytes("target")
        + shapes.weight_bytes("dspark")
        - 2 * shapes.ITEM * drafts["vocab_size"] * drafts["hidden_size"]
    )
    return Machine(
        name if host == VLLM else f"{name}, no host",
        "modelled",
        "data sheet; shapes of the released models"
        + ("; host as vLLM's published steps" if host == VLLM else ""),
        {
            "plain": StepTime(verify),
            "mtp": StepTime(verify, mtp_pass(device, context), 1),
            "dspark": StepTime(verify, dspark_pass(device, context), drafts["block_size"]),
        },
        floor((device.memory - weights - shapes.CUDA) / cached),
    )


def paper_machine(model: str = "DeepSeek-V4-Flash") -> Machine:
    """Return the paper's machine as far as section 5 gives it, if all that a request costs were its
    tokens.

    Requests over throughput of MTP-1 (Figure 8, fitted line) are the seconds of a step over the
    tokens that it commits for a request, which are not given: so seconds here are in units of
    those tokens, and only ratios mean something. The line is straight; how its slope divides
    into requests and tokens is not given either. With all of it for the two verified tokens a
    request, this is the machine on which scheduling gains most.
    """
    requests, slope, fixed_part = paper_line(model)
    verify = PassTime(fixed_part, 0.0, slope / 2)
    return Machine(
        f"{model}, at most",
        "derived",
        "the paper's Figure 8, MTP-1, fitted line; all of a request's seconds counted as tokens'",
        {"mtp": StepTime(verify), "dspark": StepTime(verify)},
        floor(requests[-1]),
    )


def paper_line(model: str) -> tuple[np.ndarray, float, float]:
    """Return the requests of MTP-1's fitted line in Figure 8, and slope and intercept of requests
    over throughput, seconds."""
    fitted = np.array(paper.numbers()["figure8"]["models"][model]["throughput"]["fit"]["MTP-1"])
    requests, throughput = fitted[fitted[:, 0] > 1].T
    slope, fixed_part = np.polyfit(requests, requests / throughput, 1)
    return requests, float(slope), float(fixed_part)


def fit_pass(requests, tokens, seconds) -> tuple[PassTime, np.ndarray]:
    """Return the three numbers nearest to measured steps [n], none below zero, by the relative
    error, and these errors [n]."""
    from scipy.optimize import nnls  # slow to import, and needed here only

    seconds = np.asarray(seconds, dtype=float)
    shape = np.column_stack([np.ones(len(seconds)), requests, tokens]) / seconds[:, None]
    numbers, _ = nnls(shape, np.ones(len(seconds)))
    return PassTime(*map(float, numbers)), shape @ numbers - 1


def fit_host(device: Device, shape: dict, context: float, requests, seconds) -> Host:
    """Return the host's seconds that bring the model nearest to published steps [n] of plain
    decoding, by the relative error."""
    bare = target_pass(device, shape, context, NO_HOST)
    requests, seconds = (np.asarray(values, dtype=float) for values in (requests, seconds))
    rest = seconds - [bare.seconds(r, r) for r in requests]
    design = np.column_stack([np.ones(len(seconds)), requests]) / seconds[:, None]
    numbers, *_ = np.linalg.lstsq(design, rest / seconds, rcond=None)
    return Host(*map(float, numbers))


# Replay

DRAFT_LENGTHS = range(1, 8)
THRESHOLDS = (0.5, 0.7, 0.9)  # of the served engine (measure/serving_load.py)
POLICIES = (
    "plain",
    "mtp",
    *(f"fixed {length}" for length in DRAFT_LENGTHS),
    *(f"threshold {least}" for least in THRESHOLDS),
    "algorithm1",
    "algorithm1 raw",
    "lagged",
)


class Records(NamedTuple):
    """Recorded blocks: of DSpark with calibrated and with raw confidences, and of MTP-1; the same
    answers' prompts in all, `domains` [A] names the domain of each."""

    dspark: Record
    raw: Record
    mtp: Record
    domains: np.ndarray


def way_of(policy: str) -> str:
    """Return the way to decode of one of POLICIES: "plain", "mtp" or "dspark"."""
    return policy if policy in ("plain", "mtp") else "dspark"


def policy_on(policy: str, costs: AdditiveCosts):
    """Return one of POLICIES as the engine takes it, for DSpark's blocks. Raise RequestError for
    another name."""
    kind, _, number = policy.partition(" ")
    if policy not in POLICIES:
        raise RequestError(f"there is no policy {policy!r}; policies are {', '.join(POLICIES)}")
    return {
        "plain": lambda: fixed(0),
        "mtp": lambda: None,
        "fixed": lambda: fixed(int(number)),
        "threshold": lambda: threshold(float(number)),
        "algorithm1": lambda: algorithm1(costs),
        "lagged": lambda: LaggedTopK(costs),
    }[kind]()


class Replayed(NamedTuple):
    """What a policy gave at a load: of each recorded answer the tokens that it wrote and its equal
    share of the seconds of its steps, `shares` [A, 2]; drafts verified and tokens committed for
    a request in a step, on average."""

    shares: np.ndarray
    drafts: float
    committed: float


def play(step: StepTime, policy: str, load: int, records: Records, *, seed: int = 0) -> Replayed:
    """Replay recorded answers with `load` requests always under way: the next answer takes the
    place of one that ends.

    Counting begins when as many answers have ended as run, and ends after as many as there are,
    or twice as many as run. The order of the answers depends on the seed and their number alone.
    """
    record = {"mtp": records.mtp, "algorithm1 raw": records.raw}.get(policy, records.dspark)
    costs = step.costs(load, load * (record.gamma + 1))
    model = EngineModel(record, costs, policy_on(policy, costs), slots=load)
    answers = len(record.tokens)
    order, ended = cycle(np.random.default_rng(seed).permutation(answers)), 0
    for due in (load, load + max(answers, 2 * load)):
        model.shares[:], counted = 0, []
        while ended < due:
            for _ in range(load - model.running):
                model.submit(int(next(order)), model.now)
            report = model.step()
            counted.append((report.requests, report.proposed, report.committed))
            ended += len(report.answers)
    requests, proposed, committed = np.sum(counted, 0)
    return Replayed(model.shares, float(proposed / requests), float(committed / requests))


def tokens_per_request(step: StepTime) -> float:
    """Return what a request costs, drafting included, in verified tokens."""
    return (step.draft.per_request + step.verify.per_request) / step.verify.per_token


def scheduled_on_average(step: StepTime, load: float, record: Record) -> tuple[float, float]:
    """Return the drafts that Algorithm 1 verifies for a request, and the fraction by which its
    tokens a second are above those of whole blocks, where `load` requests share a step whose
    blocks are those of the record in equal shares.

    One long step of all recorded blocks stands for `requests / load` steps: it has their fixed
    parts and their free tokens. Milliseconds, where `play` takes a second; with few requests the
    blocks of a real step differ from the mean.
    """
    requests = len(record.accepted)
    verify, draft = (
        replace(part, fixed=part.fixed * requests / load, free=part.free * requests / load)
        for part in (step.verify, step.draft)
    )
    long = StepTime(verify, draft, step.drafted)
    costs = long.costs(requests, requests * (record.gamma + 1))
    lengths = schedule(survival(record.logits.sigmoid()), costs).numpy()

    def rate(kept):
        committed = requests + np.minimum(kept, record.accepted).sum()
        return committed / long.seconds(requests, requests + kept.sum())

    whole = np.full(requests, record.gamma)
    return float(lengths.mean()), float(rate(lengths) / rate(whole) - 1)


def replay(
    machine: Machine, policy: str, records: Records, loads=LOADS, *, seed: int = 0
) -> list[dict]:
    """Return a row for each load that the machine's memory holds: tokens a second in all and for
    each user, with intervals over requests, drafts verified and tokens committed for a request
    in a step."""
    return [
        compare(
            {policy: play(machine.step(way_of(policy)), policy, load, records, seed=seed)},
            load,
            records.domains,
        )[policy]
        for load in held_loads(machine, loads)
    ]


def held_loads(machine: Machine, loads=LOADS) -> list[int]:
    """Return the loads whose requests fit the machine's memory."""
    return [load for load in loads if machine.most is None or load <= machine.most]


def compare(
    by_policy: dict[str, Replayed],
    load: int,
    domains: np.ndarray,
    against: dict[str, str] | None = None,
) -> dict[str, dict]:
    """Return a row for each policy replayed at a load: tokens a second in all and for each user,
    and `gains`, the fraction by which they are above those of the policies `against`, {name of
    the gain: policy}; a resample draws the same requests, domain by domain, for all policies."""
    against, names = against or {}, list(by_policy)
    base = [names.index(policy) for policy in against.values()]
    shares = np.stack([replayed.shares for replayed in by_policy.values()], 1)  # [A, policies, 2]

    def rates_and_gains(groups):
        tokens, seconds = np.moveaxis(sum(group.sum(1) for group in groups), -1, 0)
        rates = tokens / seconds
        gains = rates[:, :, None] / rates[:, None, base] - 1
        return np.concatenate([rates[:, :, None], gains], 2)  # [resamples, policies, 1 + gains]

    groups = [shares[domains == domain] for domain in np.unique(domains)]
    [values] = rates_and_gains([group[None] for group in groups])
    ends = interval_of(rates_and_gains, groups)
    rows = {}
    for index, (policy, replayed) in enumerate(by_policy.items()):
        estimates = [Estimate(*map(float, three)) for three in zip(values[index], *ends[:, index])]
        rows[policy] = {
            "policy": policy,
            "load": load,
            "drafts": replayed.drafts,
            "committed": replayed.committed,
            "tokens_per_second": estimates[0],
            "per_user": estimates[0].scaled(1 / load),
            "gains": dict(zip(against, estimates[1:])),
        }
    return rows
