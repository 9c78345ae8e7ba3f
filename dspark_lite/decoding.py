"""One request from prompt to answer: draft a block, choose how much of it to verify, verify, accept, commit."""

import time
from dataclasses import dataclass, field

import torch

from .drafters.base import Proposal, together
from .errors import RequestError
from .sampling import Randomness, accept, check_temperature, draw, probabilities


@dataclass
class Round:
    """One trip around the corridor: how many tokens were `proposed` for verification, `accepted` and `committed`
    (accepted ones and the one drawn after them, less what lies behind a stop token), the `draft_tokens` verified,
    the `tokens` committed, and the seconds spent drafting and verifying."""

    proposed: int
    accepted: int
    committed: int
    draft_tokens: list[int]
    tokens: list[int]
    draft_seconds: float
    verify_seconds: float


@dataclass
class Generation:
    """New tokens, the rounds that made them, and the seconds for the prompt and for everything after it.

    The first token comes from the prompt's own pass and belongs to no round.
    """

    token_ids: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def accepted_length(self) -> float:
        """Mean committed tokens a round, bonus included (tau); nan where there was no round."""
        return sum(r.committed for r in self.rounds) / len(self.rounds) if self.rounds else float("nan")


def check_request(target, input_ids: torch.Tensor, max_new_tokens: int, temperature: float) -> None:
    """Raises RequestError for an empty or overlong prompt, a negative temperature or nothing to generate."""
    check_temperature(temperature)
    if input_ids.ndim != 2 or input_ids.shape[0] != 1:
        raise RequestError(f"input_ids has shape {tuple(input_ids.shape)}; generate takes one request, [1, n]")
    if input_ids.shape[1] == 0:
        raise RequestError("the prompt is empty; give at least one token")
    if max_new_tokens < 1:
        raise RequestError(f"max_new_tokens is {max_new_tokens}; it must be 1 or more")
    longest = target.max_positions - max_new_tokens
    if input_ids.shape[1] > longest:
        raise RequestError(f"the prompt has {input_ids.shape[1]} tokens; with {max_new_tokens} new ones this target "
                           f"has positions for at most {longest}")


def clock(device: torch.device) -> float:
    """Seconds, after the device has finished what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def until_stop(tokens: list[int], stop_token_ids) -> list[int]:
    """The tokens up to and including the first stop token."""
    for index, token in enumerate(tokens):
        if token in stop_token_ids:
            return tokens[:index + 1]
    return tokens


def nothing_drafted(anchor: torch.Tensor, vocab_size: int) -> Proposal:
    """The empty block of plain decoding after `anchor` [B]."""
    batch = len(anchor)
    return Proposal(anchor.new_empty(batch, 0), torch.empty(batch, 0, vocab_size, device=anchor.device))


def chosen_lengths(policy, proposal: Proposal) -> list[int]:
    """The verification length that a policy (None: whole blocks) gives each request; asks the host once.

    Raises RequestError unless the policy gives an integer tensor [R] of lengths between 0 and the drafted length.
    """
    requests, drafted = proposal.tokens.shape
    if policy is None or not requests:
        return [drafted] * requests
    lengths = policy(proposal)
    if not isinstance(lengths, torch.Tensor):
        raise RequestError(f"the policy {_name(policy)} gave a {type(lengths).__name__}; a policy gives a tensor of lengths")
    if lengths.shape != (requests,) or lengths.dtype not in (torch.int32, torch.int64):
        raise RequestError(f"the policy {_name(policy)} gave {lengths.dtype} of shape {tuple(lengths.shape)}; a policy gives "
                           f"whole numbers, one for each of the {requests} requests")
    lengths = lengths.tolist()
    if min(lengths) < 0 or max(lengths) > drafted:
        raise RequestError(f"the policy {_name(policy)} gave verification lengths from {min(lengths)} to {max(lengths)}; in "
                           f"blocks of {drafted} drafts they lie between 0 and {drafted}")
    return lengths


def _name(policy) -> str:
    """What a policy is called in an error: the function that made it, or its class."""
    return getattr(policy, "__qualname__", type(policy).__name__).partition(".<locals>")[0]


class _Request:
    """What one request carries from round to round: both caches, the anchor, and the answer so far."""

    def __init__(self, target, drafter, input_ids, *, max_new_tokens, temperature, stop_token_ids, generator, gamma):
        check_request(target, input_ids, max_new_tokens, temperature)
        self.target, self.drafter, self.taps = target, drafter, drafter.taps if drafter else ()
        self.max_new_tokens, self.temperature, self.gamma, self.generator = max_new_tokens, temperature, gamma, generator
        self.stop = set(target.stop_token_ids if stop_token_ids is None else stop_token_ids)
        started = clock(target.device)
        step, self.cache = target.prefill(input_ids, self.taps)
        self.anchor = draw(probabilities(step.logits[:, -1], temperature), generator)  # [1]
        self.result = Generation(token_ids=self.anchor.tolist())
        self.result.prefill_seconds = clock(target.device) - started
        self.prompt, self.state = (input_ids, step.features), None

    def begin(self) -> None:
        """Has the drafter read the prompt, which counts as decoding: plain decoding does without."""
        self.begun = clock(self.target.device)
        if self.drafter:
            self.state = self.drafter.begin(*self.prompt)
        self.prompt = None

    @property
    def finished(self) -> bool:
        """Whether the answer has its last token."""
        return len(self.result.token_ids) >= self.max_new_tokens or self.result.token_ids[-1] in self.stop

    def draft(self) -> Proposal:
        """The drafted block; an empty one for plain decoding."""
        self.drafting = clock(self.target.device)
        if self.drafter is None:
            return nothing_drafted(self.anchor, self.target.vocab_size)
        return self.drafter.propose(self.state, self.anchor, gamma=self.gamma, temperature=self.temperature,
                                    generator=self.generator)

    def verify(self, proposal: Proposal) -> None:
        """Verifies a block, commits what is accepted and the token after it, and notes the round."""
        verifying = clock(self.target.device)
        entering = torch.cat([self.anchor[:, None], proposal.tokens], 1)  # [1, g+1]
        step = self.target.verify(entering, self.cache, self.taps)
        verdict = accept(probabilities(step.logits, self.temperature), proposal.probs, proposal.tokens, None, self.generator)
        proposed = proposal.tokens.shape[1]
        # The one question to the host: how many were accepted, what follows them, and what they were.
        accepted, following, *drafts = torch.cat([verdict.accepted, verdict.next_token, proposal.tokens[0]]).tolist()
        room = self.max_new_tokens - len(self.result.token_ids)
        tokens = until_stop(drafts[:accepted] + [following], self.stop)[:room]
        self.target.roll_back(self.cache, proposed - accepted)
        if self.drafter:
            features = None if step.features is None else step.features[:, :accepted + 1]
            self.drafter.extend(self.state, entering[:, :accepted + 1], features)
        self.anchor = verdict.next_token
        finished = clock(self.target.device)
        self.result.token_ids += tokens
        self.result.rounds.append(Round(proposed, accepted, len(tokens), drafts, tokens, verifying - self.drafting,
                                        finished - verifying))


def generate(target, drafter, input_ids: torch.Tensor, *, max_new_tokens: int, temperature: float = 0.0, policy=None,
             stop_token_ids=None, generator: Randomness = None, gamma: int | None = None) -> Generation:
    """Decodes one request, input_ids [1, n]; `drafter=None` is plain decoding, one token a round.

    `policy(proposal) -> lengths` [1] chooses how many drafts to verify (None: all); `gamma` drafts fewer than the
    drafter's block; `stop_token_ids` defaults to the target's. Raises RequestError for input that cannot be decoded.
    A policy whose lengths are not whole numbers from 0 to the drafted length raises RequestError, too.
    The host is asked once a round for the outcome, and once more where a policy chooses a length.
    """
    return generate_together(target, drafter, [input_ids], max_new_tokens=max_new_tokens, temperature=temperature,
                             policy=policy, stop_token_ids=stop_token_ids, generator=generator, gamma=gamma)[0]


@torch.inference_mode()
def generate_together(target, drafter, prompts: list[torch.Tensor], *, max_new_tokens: int, temperature: float = 0.0,
                      policy=None, stop_token_ids=None, generator: Randomness = None,
                      gamma: int | None = None) -> list[Generation]:
    """Decodes requests [1, n] side by side, one round of each a step; arguments as of `generate`.

    The policy sees the blocks of all unfinished requests at once and gives each its length; each is then verified by
    itself. A request's seconds include its waiting for the others.
    """
    requests = begin_together(target, drafter, prompts, max_new_tokens=max_new_tokens, temperature=temperature, policy=policy,
                              stop_token_ids=stop_token_ids, generator=generator, gamma=gamma)
    while not all(request.finished for request in requests):
        step_together(requests, policy)
    return [request.result for request in requests]


@torch.inference_mode()
def begin_together(target, drafter, prompts: list[torch.Tensor], *, policy=None, **options) -> list["_Request"]:
    """Reads the prompts [1, n], draws the token after each, and has the drafter read them; a policy that remembers earlier
    steps starts anew."""
    if hasattr(policy, "begin"):
        policy.begin()
    requests = [_Request(target, drafter, prompt, **options) for prompt in prompts]
    for request in requests:
        request.begin()
    return requests


@torch.inference_mode()
def step_together(requests: list["_Request"], policy=None) -> None:
    """One round of every request that is not finished."""
    active = [request for request in requests if not request.finished]
    proposals = [request.draft() for request in active]
    if policy is not None and active[0].drafter is not None:
        lengths = chosen_lengths(policy, together(proposals))
        proposals = [proposal.cut(length) for proposal, length in zip(proposals, lengths)]
    for request, proposal in zip(active, proposals):
        request.verify(proposal)
    for request in active:
        request.result.decode_seconds = clock(request.target.device) - request.begun
