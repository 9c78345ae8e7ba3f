"""Prefill the admitted requests in one pass, then play one round of all running ones."""

from contextlib import contextmanager

import numpy as np
import torch

from ..common.timing import clock
from ..decoding.answer import Outcome
from ..decoding.lockstep import play_round
from ..decoding.proposal import Proposal
from ..decoding.rounds import Sequence
from ..decoding.sampling import RandomSource, draw, is_greedy, nucleus, probabilities, undefined
from .requests import RunningRequest
from .slots import Layout, SlotStore, drafter_slots, ragged_step, spans


class PerRequestRandom(RandomSource):
    """Draws of requests that share a step, from uniform numbers [R, k] of their own.

    The first `gamma` numbers of a request are for drafts, the next `gamma` for coins. So its draws
    depend neither on the other requests nor on how much of its block is drafted and verified.
    Without numbers (temperature 0) the most probable outcome is chosen.
    """

    def __init__(self, uniforms: torch.Tensor | None, gamma: int = 0):
        self.uniforms, self.gamma, self.used = uniforms, gamma, 0

    def _next(self, shape: torch.Size) -> torch.Tensor:
        """Return the next uniform numbers, [R] or [R, g]."""
        first, self.used = self.used, self.used + shape[1:].numel()
        return self.uniforms[:, first : self.used].reshape(shape)

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """Draw tokens [R] or [R, g] from distributions [..., V] by inverse transform sampling."""
        if self.uniforms is None:
            return probs.argmax(-1)
        cumulated = probs.double().cumsum(-1)
        # 1 - uniform is above 0, so a token of probability 0 is never drawn.
        at = (1 - self._next(probs.shape[:-1])).unsqueeze(-1) * cumulated[..., -1:]
        tokens = torch.searchsorted(cumulated, at).squeeze(-1)
        return tokens.clamp(max=probs.shape[-1] - 1)  # nan is found behind the last token

    def accepted_prefix_length(self, keep: torch.Tensor) -> torch.Tensor:
        """Toss coins [R, g]; return the number [R] of trues before the first false."""
        self.used = max(self.used, self.gamma)
        heads = keep >= 1 if self.uniforms is None else self._next(keep.shape) < keep
        self.used = max(self.used, 2 * self.gamma)
        return heads.long().cumprod(-1).sum(-1)


class StepWatch:
    """Observes a step: the time since the last part ended counts as this part's. Accepting counts
    as verifying."""

    def __init__(self, device: torch.device, seconds: dict[str, float]):
        self.device, self.seconds, self.last = device, seconds, clock(device)

    @contextmanager
    def __call__(self, part: str):
        yield
        if part != "verify":  # the host does not wait for the device between verify and accept
            now = clock(self.device)
            self.seconds["verify" if part == "accept" else part] += now - self.last
            self.last = now


class RunningSequence(Sequence):
    """The running requests as one sequence of R rows of different lengths. Their contexts are in
    slots, and one ragged pass verifies the scheduled part of each block."""

    def __init__(self, runner: "Runner", running: list[RunningRequest], observe):
        self.runner = runner
        self.slots = [request.slot for request in running]
        self.starts = [request.length for request in running]
        self.running = running
        self.draft_limits = [request.draft_limit for request in running]
        drafter = runner.drafter
        state = runner.contexts.draft_context(self.slots, self.starts) if drafter else None
        anchor = torch.tensor([request.anchor for request in running], device=runner.target.device)
        random = runner.random(running, 2 * runner.gamma + 1)
        super().__init__(
            runner.target,
            drafter,
            runner.store,
            state,
            anchor,
            runner.temperature_of(running),
            random,
            rule=runner.rule,
            observe=observe,
        )

    @property
    def room(self) -> list[int]:
        """Return, for each request, the number of drafts in the next block that can count."""
        return self.draft_limits

    def target_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the target's distributions [R, k+1, V], each within its request's top-p."""
        return self.runner.distributions(logits, self.running, self.temperature)

    def read(self, block: Proposal) -> torch.Tensor:
        """Read the anchors and the first `block.lengths` of the drafts [R, k] in one sequence.
        Return float32 logits [R, k+1, V], zeros where nothing was read."""
        counts = np.array(block.lengths) + 1
        size = next_size(self.runner.buckets, counts.sum())
        counts = padded_to(counts, size, self.block_size + 1)
        self.layout = Layout(self.cache, self.slots, self.starts, counts)
        tokens = torch.cat([self.anchor[:, None], block.tokens], 1)  # [R, k+1]
        offset = self.layout.offset.clamp(max=block.tokens.shape[1])  # padding may be any token
        self.entering = tokens[self.layout.row, offset]  # [N]
        output = ragged_step(self.target, self.entering, self.layout, self.runner.taps)
        self.features = output.features  # [1, N, taps * H]
        # Padding may give every request more than k+1 tokens.
        return self.layout.by_request(output.logits[0])[:, : tokens.shape[1]]

    def keep(self, counts: list[int], next_token: torch.Tensor) -> None:
        """Extend the drafter by the first `counts` tokens of each request. In the target's slots
        the next step overwrites the rest of a block."""
        if self.drafter:
            counts, (row, offset) = np.array(counts), spans(self.layout.counts)
            committed = torch.from_numpy(np.flatnonzero(offset < counts[row])).to(
                self.entering.device
            )
            state = self.runner.contexts.append_context(self.slots, self.starts, counts)
            self.drafter.extend(state, self.entering[None, committed], self.features[:, committed])


def next_size(sizes, tokens: int) -> int:
    """Return the smallest of the increasing `sizes` that holds `tokens`, or `tokens` if none does."""
    return next((size for size in sizes if size >= tokens), int(tokens))


def padded_to(counts: np.ndarray, size: int, most: int) -> np.ndarray:
    """Return token counts [R] that fill a pass of `size`, at most `most` a request. The first
    requests add what is lacking."""
    spare = np.maximum(most - counts, 0)
    return counts + np.clip(size - counts.sum() - (spare.cumsum() - spare), 0, spare)


class Runner:
    """The models of an engine and the slots with their keys and values.

    With `buckets`, a verification pass is padded to the next of these sizes, as in an engine that
    replays recorded passes.
    """

    def __init__(
        self, target, drafter, slots: int, capacity: int, temperature: float, buckets, rule
    ):
        self.target, self.drafter, self.temperature, self.rule = target, drafter, temperature, rule
        self.taps, self.gamma = (drafter.taps, drafter.gamma) if drafter else ((), 0)
        self.buckets = sorted(buckets)
        self.store = SlotStore(target.num_layers, slots, capacity, target.device)
        self.contexts = drafter_slots(drafter, slots, capacity, target.device) if drafter else None

    def random(self, running: list[RunningRequest], count: int) -> PerRequestRandom:
        """Return the random numbers of a step, `count` for each request."""
        if is_greedy(self.temperature_of(running)):
            return PerRequestRandom(None)
        uniforms = torch.stack([request.uniforms(count) for request in running])
        return PerRequestRandom(uniforms.to(self.target.device), count // 2)

    def temperature_of(self, running: list[RunningRequest]) -> float | torch.Tensor:
        """Return the temperature of all these requests, or theirs [R] if they differ."""
        asked = [request.answer.request.temperature for request in running]
        own = [self.temperature if value is None else value for value in asked]
        if len(set(own)) == 1:
            return own[0]
        return torch.tensor(own, dtype=torch.float32, device=self.target.device)

    def distributions(
        self,
        logits: torch.Tensor,
        running: list[RunningRequest],
        temperature: float | torch.Tensor,
    ) -> torch.Tensor:
        """Return the distributions [R, ..., V] of logits at the requests' temperatures, each within
        its request's top-p."""
        probs = probabilities(logits, temperature)
        shares = [request.answer.request.top_p for request in running]
        if min(shares) >= 1:
            return probs
        return nucleus(probs, torch.tensor(shares, dtype=torch.float32, device=probs.device))

    def prefill(self, fresh: list[RunningRequest]) -> list[Outcome]:
        """Read the prompts of requests that get a slot in one pass, and draw their first tokens."""
        device = self.target.device
        token_ids = torch.cat([request.answer.request.input_ids[0] for request in fresh]).to(device)
        slots = [request.slot for request in fresh]
        counts = np.array([request.length for request in fresh])
        starts, last = np.zeros_like(counts), torch.from_numpy(counts.cumsum() - 1).to(device)
        layout = Layout(self.store, slots, starts, counts)
        output = ragged_step(self.target, token_ids, layout, self.taps, last)
        if self.drafter:
            state = self.contexts.append_context(slots, starts, counts)
            self.drafter.extend(state, token_ids[None], output.features)
        logits = output.logits[0]  # [R, V]
        probs = self.distributions(logits, fresh, self.temperature_of(fresh))
        first = draw(probs, self.random(fresh, 1))
        rows = torch.stack([first, undefined(logits)], 1).tolist()
        return [Outcome(0, token, [], bool(failed)) for token, failed in rows]

    def round(
        self, running: list[RunningRequest], policy, observe: StepWatch
    ) -> tuple[list[Outcome], int]:
        """Play one round of all running requests. Return what became of each, and the tokens in
        the verification pass, padding included."""
        batch = RunningSequence(self, running, observe)
        return play_round([batch], policy), len(batch.layout.row)

    def clear(self, slot: int) -> None:
        """Zero a slot that may hold numbers that are not finite."""
        self.store.clear(slot)
        if self.contexts:
            self.contexts.clear(slot)
