"""Speculative decoding: draft a block, schedule, verify, accept, commit, repeat.

`generate` does this for one request. `Sequence` holds what a round needs and its five parts, for
rows of one request or of several (rows.py, serving/runner.py).
"""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from ..common.errors import RequestError
from ..common.timing import clock
from .answer import Generation, Outcome, Stopwatch
from .checks import check_models, check_request, stop_set
from .proposal import Drafter, Policy, Proposal, chosen_lengths, draft_length, start_policy
from .sampling import (
    NOT_FINITE,
    Randomness,
    Verdict,
    accept,
    accept_greedy,
    draw_at,
    is_greedy,
    probabilities,
    undefined,
)
from .target import Target, within_memory


@torch.inference_mode()
def generate(
    target: Target,
    drafter: Drafter | None,
    input_ids: torch.Tensor,
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    policy: Policy | Callable[[Proposal], torch.Tensor] | None = None,
    stop_token_ids: Iterable[int] | None = None,
    generator: Randomness = None,
    gamma: int | None = None,
    rule: Callable[..., Verdict] | None = None,
    prepare: Callable[..., tuple] | None = None,
) -> Generation:
    """Decode one request, input_ids [1, n]. Without a drafter, decoding is plain: a token a round.

    `policy(proposal) -> lengths` [1] chooses how many drafts to verify (None: all). `gamma` drafts
    fewer tokens than the drafter's block. `stop_token_ids` defaults to the target's. `rule`
    replaces `sampling.accept` (at temperature 0 `accept_greedy`). `prepare(target, drafter, gamma)`
    returns the (target, drafter, rule) to decode with; `fast_path` (fast/) compiles them. It writes
    the same tokens and takes a minute to prepare; it refuses forward hooks, autocast and quantised
    weights.

    The host waits for the device once a round, and once more if there is a policy. Raise
    RequestError for a request that cannot be decoded and for wrong lengths of a policy.
    """
    sequence = RequestSequence.begin(
        target,
        drafter,
        input_ids,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        stop_token_ids=stop_token_ids,
        generator=generator,
        gamma=gamma,
        rule=rule,
        prepare=prepare,
    )
    policy = start_policy(policy)
    while not sequence.finished:
        block = sequence.draft()  # tokens [1, k], each drawn from its row of probs [1, k, V]
        block = sequence.schedule(policy, block)  # to the policy's length; without one, whole
        logits = sequence.verify(block)  # [1, k+1, V], in one pass of the target
        verdict = sequence.accept(block, logits)  # a prefix of the drafts, and one token more
        sequence.commit(block, logits, verdict)  # to the caches and to the answer
    return sequence.answer


@dataclass(eq=False)
class Sequence:
    """The caches of a target and its drafter for B sequences that advance together. Without a
    drafter, decoding is plain.

    `cache` and `state` cover every committed token except the newest, the `anchor` [B]. A round
    calls `draft`, `schedule`, `verify`, `accept` and `commit` in this order. Each runs inside
    `observe(part)`, a context for whoever measures. `verify` sets what `commit` reads: `entering`
    [B, k+1], the anchors and the drafts, and their `features` [B, k+1, taps * H] (None without
    taps).
    """

    target: Target
    drafter: Drafter | None
    cache: object
    state: object
    anchor: torch.Tensor
    temperature: float | torch.Tensor  # or one of each row, [B]
    generator: Randomness
    gamma: int | None = None  # drafts in a block, None: as many as the drafter has
    rule: Callable[..., Verdict] | None = None  # None: accept, greedily accept_greedy
    observe: Callable[[str], AbstractContextManager] = nullcontext

    @property
    def block_size(self) -> int:
        """Return the number of drafts in a block."""
        return draft_length(self.gamma, self.drafter.gamma) if self.drafter else 0

    @property
    def room(self) -> list[int]:
        """Return, for each sequence, the number of drafts in the next block that can still count."""
        return [self.block_size] * len(self.anchor)

    def draft(self) -> Proposal:
        """Draft a block [B, k] after the anchors. It ends where no sequence has room for more, and
        is empty without a drafter."""
        with self.observe("draft"):
            room = self.room
            length = min(self.block_size, max(room))
            if length < 1:
                vocab_size, device = self.target.vocab_size, self.anchor.device
                return Proposal(
                    self.anchor.new_empty(len(self.anchor), 0),
                    torch.empty(len(self.anchor), 0, vocab_size, device=device),
                )
            with within_memory(f"a block of {self.drafter.name}"):
                return self.propose(length).within(room)

    def schedule(self, policy: Policy | None, block: Proposal) -> Proposal:
        """Return a block cut to the verification lengths that the policy chooses (None: whole)."""
        with self.observe("schedule"):
            return block.scheduled(chosen_lengths(policy, block, self.block_size), self.room)

    def verify(self, block: Proposal) -> torch.Tensor:
        """Read the anchors and the drafts [B, k] in one pass of the target. Return float32 logits
        [B, k+1, V]; row b counts up to `block.lengths[b]`."""
        with self.observe("verify"):
            return self.read(block)

    def accept(self, block: Proposal, logits: torch.Tensor) -> Verdict:
        """Accept a prefix of each row's drafts and draw the token after it.

        A draft x is kept with probability min(1, p(x) / q(x)). The first rejected draft is replaced
        by a draw from max(p - q, 0), normalised (Leviathan et al., 2023, Algorithm 1). At
        temperature 0 a draft is kept while it is the target's most probable token; the first that
        is not is replaced by that token (`accept_greedy`).
        """
        with self.observe("accept"):
            lengths = None
            if min(block.lengths) < max(block.lengths):
                lengths = torch.tensor(block.lengths, device=logits.device)
            if self.rule is None and is_greedy(self.temperature):
                return accept_greedy(logits, block.tokens, lengths)
            rule = accept if self.rule is None else self.rule
            return rule(
                self.target_probs(logits),
                block.probs,
                block.tokens,
                lengths,
                self.generator,
            )

    def target_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the target's distributions [B, k+1, V], by which drafts are accepted."""
        return probabilities(logits, self.temperature)

    def commit(self, block: Proposal, logits: torch.Tensor, verdict: Verdict) -> list[Outcome]:
        """Keep what was accepted, forget the rest, and return what became of each row.

        The host waits for the device once, here. Raise RequestError, before anything is
        committed, if the drafter's probabilities are not finite.
        """
        with self.observe("commit"):
            failed = undefined(logits).any(1)
            broken = block.probs.isnan().flatten(1).any(1) & ~failed
            columns = torch.stack([broken, failed, verdict.accepted, verdict.next_token], 1)
            rows = torch.cat([columns, block.tokens], 1).tolist()
            if any(broken for broken, *_ in rows):
                raise RequestError(NOT_FINITE.format("drafter's probabilities"))
            outcomes = [
                Outcome(accepted, next_token, drafts[:length], bool(failed))
                for (_, failed, accepted, next_token, *drafts), length in zip(rows, block.lengths)
            ]
            self.keep([outcome.accepted + 1 for outcome in outcomes], verdict.next_token)
        return outcomes

    def propose(self, length: int) -> Proposal:
        """Do the drafter's part of `draft`: propose a block [B, length]."""
        return self.drafter.propose(
            self.state,
            self.anchor,
            gamma=length,
            temperature=self.temperature,
            generator=self.generator,
        )

    def read(self, block: Proposal) -> torch.Tensor:
        """Run the target's pass for `verify`. Store the tokens read and their features for `keep`."""
        self.entering = torch.cat([self.anchor[:, None], block.tokens], 1)  # [B, k+1]
        output = self.target.verify(
            self.entering, self.cache, self.drafter.taps if self.drafter else ()
        )
        self.features = output.features
        return output.logits

    def keep(self, counts: list[int], next_token: torch.Tensor) -> None:
        """Keep the first tokens of the last pass in both models, the same number of every row, and
        make next_token [B] the anchors."""
        count = counts[0]
        self.target.roll_back(self.cache, self.entering.shape[1] - count)
        if self.drafter:
            features = None if self.features is None else self.features[:, :count]
            with within_memory(f"the context of {self.drafter.name}"):
                self.drafter.extend(self.state, self.entering[:, :count], features)
        self.anchor = next_token


@dataclass(eq=False, kw_only=True)
class RequestSequence(Sequence):
    """One request as a sequence of one row, with its `answer`, which grows by the tokens of each
    round up to `max_new_tokens` or a token of `stop`."""

    answer: Generation
    max_new_tokens: int
    stop: set[int]
    began: float  # when the prompt was read and the first token drawn

    @classmethod
    def begin(
        cls,
        target,
        drafter,
        input_ids: torch.Tensor,
        *,
        max_new_tokens,
        temperature=0.0,
        stop_token_ids=None,
        generator=None,
        gamma=None,
        rule=None,
        prepare=None,
        stopwatch=None,
    ) -> "RequestSequence":
        """Check the request, read its prompt [1, n] with both models and draw the first token,
        which is the anchor.

        Options are those of `generate`; requests that share their rounds share a `stopwatch`.
        Raise RequestError as `generate` does, and if the target's logits are not finite.
        """
        check_models(target, drafter)
        check_request(target, input_ids, max_new_tokens, temperature)
        stop = stop_set(target, stop_token_ids)
        if drafter:
            draft_length(gamma, drafter.gamma)  # raises for a block that it does not draft
        if prepare:
            target, drafter, prepared_rule = prepare(target, drafter, gamma)
            rule = prepared_rule if rule is None else rule
        stopwatch, arrived = stopwatch or Stopwatch(target.device), clock(target.device)
        output, cache = target.prefill(input_ids, drafter.taps if drafter else ())
        logits = output.logits[:, -1]
        anchor = draw_at(probabilities(logits, temperature), temperature, generator)  # [1]
        token, failed = torch.cat([anchor, undefined(logits)]).tolist()
        if failed:
            raise RequestError(NOT_FINITE.format("target's logits"))
        began, state = clock(target.device), None
        if drafter:  # counts as decoding: plain decoding does without
            with within_memory(f"the context of {drafter.name}"):
                state = drafter.begin(input_ids, output.features)
            drafter.see_committed(state, [[token]])
        return cls(
            target,
            drafter,
            cache,
            state,
            anchor,
            temperature,
            generator,
            gamma,
            rule,
            stopwatch,
            answer=Generation([token], prefill_seconds=began - arrived),
            max_new_tokens=max_new_tokens,
            stop=stop,
            began=began,
        )

    @property
    def finished(self) -> bool:
        """Return whether the answer has its last token."""
        tokens = self.answer.token_ids
        return len(tokens) >= self.max_new_tokens or tokens[-1] in self.stop

    @property
    def room(self) -> list[int]:
        """Return one token less than the answer lacks: the round draws the last one itself."""
        return [self.max_new_tokens - len(self.answer.token_ids) - 1]

    def commit(self, block: Proposal, logits: torch.Tensor, verdict: Verdict) -> list[Outcome]:
        """Commit the round and add its tokens to the answer, up to a stop token. Raise RequestError
        if the target's logits are not finite."""
        (outcome,) = super().commit(block, logits, verdict)
        if outcome.failed:
            raise RequestError(NOT_FINITE.format("target's logits"))
        if self.drafter:
            self.drafter.see_committed(self.state, [[self.answer.token_ids[-1], *outcome.tokens]])
        self.answer.add(outcome, self.stop, self.observe.seconds())
        self.answer.decode_seconds = time.perf_counter() - self.began
        return [outcome]
