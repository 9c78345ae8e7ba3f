"""Rounds of one answer with all that decided them: drafts, probabilities, coins, verdicts, caches.
The living round draws them."""

from dataclasses import asdict, dataclass, field

import torch

from ...common.errors import RequestError
from ...decoding.answer import Outcome
from ...decoding.proposal import Proposal
from ...decoding.rounds import RequestSequence
from ...decoding.sampling import probabilities
from ...drafters.layers import ContextCache
from ...drafters.small_lm import SmallLMState
from ..result_files import reference

RECORDED = "recorded_rounds.json"  # tools/measure/rounds.py writes it
TOP = 5  # tokens of a slot whose probabilities are kept
SO_FAR = 90  # letters of the text before a round


@dataclass
class RecordedDraft:
    """One draft: its text, its probabilities `p` by the target and `q` by the drafter, the number
    in [0, 1) that its `coin` showed, whether it was `kept` (None behind the first refusal), and its
    confidence (None without a head).

    `top` are the likeliest tokens of its slot, each [text, p, q, base], where `base` is the
    probability by the base logits (None without a sequential head). `rest` is the area of all other
    tokens that is kept, refused and owed: the sums of min(p, q), max(q - p, 0) and max(p - q, 0).
    """

    text: str
    p: float
    q: float
    coin: float
    kept: bool | None
    confidence: float | None
    top: list[list]
    rest: list[float]


@dataclass
class RecordedRound:
    """One round: the end of the text `before` its anchor, the anchor, the drafts, how many were
    accepted, and the text that the target `added`.

    `bonus` are the likeliest tokens [text, p] behind a block that was accepted whole, else empty. `caches` holds the number of
    tokens in the target's and in the drafter's cache, if it has one: before the round, before the round
    forgets, and after it. Times are milliseconds.
    """

    before: str
    anchor: str
    drafts: list[RecordedDraft]
    accepted: int
    added: str
    bonus: list[list] = field(default_factory=list)
    caches: dict[str, list[int]] = field(default_factory=dict)
    draft_ms: float = 0.0
    verify_ms: float = 0.0

    @classmethod
    def of(cls, stored: dict) -> "RecordedRound":
        """Return a round as `asdict` wrote it."""
        drafts = [RecordedDraft(**draft) for draft in stored["drafts"]]
        return cls(**{**stored, "drafts": drafts})


@torch.inference_mode()
def record_rounds(
    lab,
    drafter,
    request: str,
    *,
    temperature: float = 1.0,
    seed: int = 0,
    count: int = 3,
    max_new_tokens: int = 80,
) -> list[RecordedRound]:
    """Decode a request as `generate` does and return `count` rounds in a row: from the first that
    keeps a draft and refuses one, so that there is something to see, else from the first round of
    the answer.

    Only whole rounds count, whose block the end of the answer has not cut. Raise RequestError if
    the answer has no whole round.
    """
    ids = lab.encode(request)
    sequence = RequestSequence.begin(
        lab.target,
        drafter,
        ids,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        generator=lab.generator(seed),
    )
    rounds, first = [], None
    while not sequence.finished and sequence.room[0] >= sequence.block_size:
        r = _played(lab, sequence)
        if sequence.answer.rounds[-1].committed <= r.accepted:
            break  # a stop token has cut it
        if first is None and 0 < r.accepted < len(r.drafts):
            first = len(rounds)
        rounds.append(r)
        if first is not None and len(rounds) == first + count:
            break
    if not rounds:
        raise RequestError(
            f"the answer to {request[:40]!r} has no whole round; it ends within a block of tokens"
        )
    return rounds[first or 0 :][:count]


def recorded_rounds(name: str) -> list[RecordedRound]:
    """Return the rounds recorded under a name, "greedy", "sampled" or "step": the tiny models'
    answers on a CPU."""
    return [RecordedRound.of(stored) for stored in reference(RECORDED)[name]]


def as_json(rounds: list[RecordedRound]) -> list[dict]:
    """Return rounds as JSON has them, probabilities with four digits."""
    return _rounded([asdict(r) for r in rounds])


def _rounded(thing):
    """Return nested lists and dictionaries with floats of four significant digits."""
    if isinstance(thing, dict):
        return {name: _rounded(value) for name, value in thing.items()}
    if isinstance(thing, list):
        return [_rounded(value) for value in thing]
    return float(f"{thing:.4g}") if isinstance(thing, float) else thing


def _played(lab, sequence: RequestSequence) -> RecordedRound:
    """Play one round of a sequence and return its record."""

    def word(token) -> str:
        return lab.tokenizer.decode([int(token)])

    before, anchor = lab.decode(sequence.answer.token_ids[:-1])[-SO_FAR:], word(sequence.anchor)
    base = _base_probabilities(sequence)  # [g, V]
    block, logits, coins, outcome, caches = _watched_round(sequence)
    target_probs = probabilities(logits, sequence.temperature)[0]  # [g+1, V]
    drafts = [
        _recorded_draft(
            word, k, outcome, block, target_probs[k], coins[k], None if base is None else base[k]
        )
        for k in range(len(outcome.drafts))
    ]
    bonus = target_probs[-1] if outcome.accepted == len(drafts) else target_probs[-1, :0]
    shown = _likeliest(bonus, [outcome.next_token]) if len(bonus) else []
    last = sequence.answer.rounds[-1]
    return RecordedRound(
        before,
        anchor,
        drafts,
        outcome.accepted,
        word(outcome.next_token),
        [[word(token), bonus[token].item()] for token in shown],
        caches,
        1e3 * last.draft_seconds,
        1e3 * last.verify_seconds,
    )


def _watched_round(
    sequence: RequestSequence,
) -> tuple[Proposal, torch.Tensor, list[float], Outcome, dict[str, list[int]]]:
    """Play one round. Return its block, the target's logits [1, g+1, V], the coins of its drafts,
    its outcome, and the sizes of the caches before it, before it forgets, and after it."""
    sizes = [_cache_sizes(sequence)]
    block = sequence.schedule(None, sequence.draft())
    logits = sequence.verify(block)
    sizes.append(_cache_sizes(sequence))
    coins = _coins_to_come(sequence.generator, block.probs.shape[1], block.probs.device)
    verdict = sequence.accept(block, logits)
    (outcome,) = sequence.commit(block, logits, verdict)
    sizes.append(_cache_sizes(sequence))
    return (
        block,
        logits,
        coins,
        outcome,
        {name: [size[name] for size in sizes] for name in sizes[0]},
    )


def _recorded_draft(
    word, k: int, outcome: Outcome, block: Proposal, p: torch.Tensor, coin: float, base
) -> RecordedDraft:
    """Return the record of draft `k` (from 0), with the target's probabilities `p` [V] of its slot
    and those by the base logits, `base` [V] (None without a sequential head)."""
    token, q = outcome.drafts[k], block.probs[0, k]
    rows = torch.stack([p, q] if base is None else [p, q, base])
    chosen = _likeliest(rows.amax(0), [token] + [outcome.next_token] * (k == outcome.accepted))
    others = torch.ones_like(p, dtype=torch.bool).index_fill(0, torch.tensor(chosen), False)
    areas = (torch.minimum(p, q), (q - p).clamp(min=0), (p - q).clamp(min=0))
    return RecordedDraft(
        word(token),
        p[token].item(),
        q[token].item(),
        coin,
        k < outcome.accepted if k <= outcome.accepted else None,
        None if block.confidence is None else block.confidence[0, k].item(),
        [[word(other), *rows[:, other].tolist(), None][:4] for other in chosen],
        [area[others].sum().item() for area in areas],
    )


def _likeliest(probs: torch.Tensor, named: list[int]) -> list[int]:
    """Return the tokens `named` and the likeliest others of probs [V], TOP in all, the likeliest
    first."""
    tokens = dict.fromkeys(named + probs.topk(TOP).indices.tolist())
    return sorted(list(tokens)[:TOP], key=lambda token: -probs[token].item())


def _coins_to_come(generator: torch.Generator, count: int, device: torch.device) -> list[float]:
    """Return the numbers that `accept` will draw from a generator for `count` drafts, and leave the
    generator as it is."""
    copy = torch.Generator(device).set_state(generator.get_state())
    return torch.rand(1, count, generator=copy, device=device)[0].tolist()


def _cache_sizes(sequence: RequestSequence) -> dict[str, int]:
    """Return the number of tokens in the target's cache, and in the drafter's if it has one."""
    sizes = {"target": sequence.cache.get_seq_length()}
    if isinstance(sequence.state, SmallLMState):
        sizes["drafter"] = sequence.state.cache.get_seq_length()
    elif isinstance(sequence.state, ContextCache):
        sizes["drafter"] = sequence.state.length
    return sizes


def _base_probabilities(sequence: RequestSequence) -> torch.Tensor | None:
    """Return the probabilities [g, V] of the next block by its base logits; None without a
    sequential head."""
    drafter = sequence.drafter
    if getattr(drafter, "markov_head", None) is None:
        return None
    hidden = drafter.block_hidden(sequence.state, sequence.anchor)  # draws nothing
    logits = drafter.over_target(drafter.lm_head(hidden))
    return probabilities(logits, sequence.temperature)[0]
