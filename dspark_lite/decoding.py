"""One request from prompt to answer: draft a block, choose how much of it to verify, verify, accept, commit."""

import time
from dataclasses import dataclass, field

import torch

from .drafters.base import Proposal
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


@torch.inference_mode()
def generate(target, drafter, input_ids: torch.Tensor, *, max_new_tokens: int, temperature: float = 0.0, policy=None,
             stop_token_ids=None, generator: Randomness = None, gamma: int | None = None) -> Generation:
    """Decodes one request, input_ids [1, n]; `drafter=None` is plain decoding, one token a round.

    `policy(proposal) -> lengths` [1] chooses how many drafts to verify (None: all); `gamma` drafts fewer than the
    drafter's block; `stop_token_ids` defaults to the target's. Raises RequestError for input that cannot be decoded.
    The host is asked once a round for the outcome, and once more where a policy chooses a length.
    """
    check_request(target, input_ids, max_new_tokens, temperature)
    stop = set(target.stop_token_ids if stop_token_ids is None else stop_token_ids)
    taps = drafter.taps if drafter else ()
    started = clock(target.device)
    step, cache = target.prefill(input_ids, taps)
    anchor = draw(probabilities(step.logits[:, -1], temperature), generator)  # [1]
    result = Generation(token_ids=anchor.tolist())
    result.prefill_seconds = clock(target.device) - started

    started = clock(target.device)
    state = drafter.begin(input_ids, step.features) if drafter else None
    while len(result.token_ids) < max_new_tokens and result.token_ids[-1] not in stop:
        drafting = clock(target.device)
        proposal = _propose(target, drafter, state, anchor, gamma, temperature, policy, generator)
        verifying = clock(target.device)
        entering = torch.cat([anchor[:, None], proposal.tokens], 1)  # [1, g+1]
        step = target.verify(entering, cache, taps)
        verdict = accept(probabilities(step.logits, temperature), proposal.probs, proposal.tokens, None, generator)
        proposed = proposal.tokens.shape[1]
        # The one question to the host: how many were accepted, what follows them, and what they were.
        accepted, following, *drafts = torch.cat([verdict.accepted, verdict.next_token, proposal.tokens[0]]).tolist()
        tokens = until_stop(drafts[:accepted] + [following], stop)[:max_new_tokens - len(result.token_ids)]
        target.roll_back(cache, proposed - accepted)
        if drafter:
            features = None if step.features is None else step.features[:, :accepted + 1]
            drafter.extend(state, entering[:, :accepted + 1], features)
        anchor = verdict.next_token
        finished = clock(target.device)
        result.token_ids += tokens
        result.rounds.append(Round(proposed, accepted, len(tokens), drafts, tokens, verifying - drafting,
                                   finished - verifying))
    result.decode_seconds = clock(target.device) - started
    return result


def _propose(target, drafter, state, anchor, gamma, temperature, policy, generator) -> Proposal:
    """The drafted block cut to its verification length; an empty block for plain decoding."""
    if drafter is None:
        empty = torch.empty(1, 0, dtype=torch.long, device=anchor.device)
        return Proposal(empty, torch.empty(1, 0, target.vocab_size, device=anchor.device))
    proposal = drafter.propose(state, anchor, gamma=gamma, temperature=temperature, generator=generator)
    return proposal if policy is None else proposal.cut(int(policy(proposal)))
