"""Draft and verify the rows of a call of transformers' `generate` together.

All rows get their next token together. Rows accept different numbers of drafts. A round begins when
a row has no token left, and the others join it: their texts run ahead of what the caller has seen,
and wait in queues.

If logits processors look at the text, they decide about a token when its turn comes. A row that
runs ahead of them is a guess, which is verified like a draft: a token from the model's own
distribution is kept with probability min(1, p / own). `p` is the processors' distribution, `own`
the model's. Applying the rule twice gives the processors' distribution.

Shapes: B rows, R of them in a round, k drafts, V vocabulary.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from transformers import LogitsProcessorList, generation

from ..common.errors import RequestError
from ..common.timing import clock
from ..decoding.answer import Generation, Round, Stopwatch
from ..decoding.checks import check_request
from ..decoding.proposal import Policy, Proposal
from ..decoding.row_caches import ReadText
from ..decoding.rows import Rows
from ..decoding.sampling import (
    LEAST_TEMPERATURE,
    NOT_FINITE,
    Randomness,
    RandomSource,
    Verdict,
    accept,
    accept_greedy,
    accepted_prefix_length,
    draw,
    probabilities,
    residual,
    undefined,
)

# Processors that read the scores only, so they can warp drafts too; the temperature comes first.
SCORE_WARPERS = tuple(
    getattr(generation, f"{name}LogitsWarper")
    for name in ("Temperature", "TopK", "TopP", "MinP", "Typical", "Epsilon", "Eta")
)

NO_COIN = 1.0  # the coin of a position without a guess; other coins are smaller


class Warped(RandomSource):
    """Draws from warped distributions: drafts respect the request's top-k, top-p and similar."""

    def __init__(self, warpers: list, generator: Randomness):
        self.warpers, self.generator = LogitsProcessorList(warpers), generator

    def warp(self, probs: torch.Tensor) -> torch.Tensor:
        """Return distributions [..., V] after the warpers.

        Warps one at a time, so that a batch rounds as a single row.
        """
        rows = [self.warpers(None, row[None].log()).softmax(-1) for row in probs.flatten(0, -2)]
        return torch.cat(rows).view_as(probs) if rows else probs

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """Warp distributions [..., V] and draw tokens [...] from them."""
        return draw(self.warp(probs), self.generator)


class GenerateCall:
    """A call's prompts, ids [B, n], and its rules for choosing tokens and ending answers.

    `warpers` are the processors that warp drafts and guesses too; a temperature in front of the
    others is the drafters' own. Raise RequestError for one that is too small.
    """

    def __init__(self, ids, processors, criteria, config, generator: Randomness):
        self.ids, self.processors, self.criteria = ids, processors, criteria
        self.config, self.generator, self.sampled = config, generator, config.do_sample
        self.max_new_tokens = (criteria.max_length or config.max_length) - ids.shape[1]
        # As in transformers' loop, an ended row gets no padding without a criterion for EOS tokens.
        stops = [each.eos_token_id for each in criteria if hasattr(each, "eos_token_id")]
        self.stops = {token for tokens in stops for token in tokens.tolist()}
        self.padding = config._pad_token_tensor if stops else None
        returned = config.return_dict_in_generate
        self.outputs = (
            bool(returned and config.output_scores),
            bool(returned and config.output_logits),
        )
        self.warpers = [each for each in processors if type(each) in SCORE_WARPERS]
        self.reads_no_text = len(self.warpers) == len(processors)
        self.temperature, self.source = 0.0, generator  # of the drafts
        if self.sampled:
            self._warp_drafts()

    def _warp_drafts(self) -> None:
        """Set the temperature and the source of randomness of the drafts."""
        others, self.temperature = list(self.warpers), 1.0
        while others and type(others[0]) is SCORE_WARPERS[0]:
            self.temperature *= others.pop(0).temperature
        if self.temperature < LEAST_TEMPERATURE:
            raise RequestError(
                f"the temperature is {self.temperature}, and logits over it overflow float32; give do_sample=False for greedy text"
            )
        self.source = Warped(others, self.generator) if others else self.generator

    def distributions(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the distributions [..., V] that the warpers make of logits [..., V]."""
        scores = LogitsProcessorList(self.warpers)(None, logits.flatten(0, -2).clone())
        return scores.softmax(-1).view_as(logits)


class RequestRows(Rows):
    """The rows of a request. A draft is accepted by what the warpers make of the logits."""

    def __init__(
        self, target, drafter, prompts, call: GenerateCall, observe, gamma=None, begun=None
    ):
        longest = max(prompt.shape[1] for prompt in prompts) + call.max_new_tokens
        super().__init__(
            target,
            drafter,
            prompts,
            longest,
            call.temperature,
            call.source,
            begun,
            observe=observe,
            gamma=gamma,
        )
        self.call = call

    def draft(self) -> Proposal:
        """Draft a block [R, k]; its `probs` are those after the warpers."""
        block = super().draft()
        if isinstance(self.generator, Warped):
            block.probs = self.generator.warp(block.probs)
        return block

    def accept(self, block: Proposal, logits: torch.Tensor) -> Verdict:
        """Accept a prefix of each row's drafts and draw the token after it."""
        lengths = torch.tensor(block.lengths, device=logits.device)
        if not self.call.sampled:
            return accept_greedy(logits, block.tokens, lengths)
        probs = self.call.distributions(logits)
        return accept(probs, block.probs, block.tokens, lengths, self.call.generator)


@dataclass(eq=False)
class Block:
    """A verified block of a row: the drafts, what the row took of it, and the seconds for drafting
    and verifying."""

    drafts: list[int]
    tokens: list[int] = field(default_factory=list)
    accepted: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)

    def as_round(self) -> Round:
        """Return the round that the block was."""
        taken = self.accepted, len(self.tokens), self.drafts, self.tokens
        return Round(len(self.drafts), *taken, *self.seconds)


@dataclass(eq=False)
class PendingToken:
    """A token of a row that waits for its turn: `logits` [V] are the target's for it.

    `token` is a guess (None: none), drawn from `probs` [V] and kept if a `coin` says so. The guess
    is `settled` if the row goes on from it, and `drafted` if it is a draft of its `block`.
    """

    logits: torch.Tensor | None
    token: int | None = None
    settled: bool = False
    drafted: bool = False
    block: Block | None = None
    probs: torch.Tensor | None = None
    coin: float = NO_COIN


class Row:
    """A row of a batch: its newest token, a `queue` of the tokens whose logits are there, and its
    answer. The row goes on after the answer has `ended`."""

    def __init__(self, number: int, prompt: torch.Tensor, first: PendingToken):
        self.number, self.prompt_length, self.written = number, prompt.shape[1], 0
        self.newest, self.queue, self.head = None, deque([first]), first
        self.answer, self.ended = Generation(), False

    @property
    def settled(self) -> list[int]:
        """Return the tokens that the row has beyond those that the caller has seen."""
        return [pending.token for pending in self.queue if pending.settled]

    @property
    def anchor(self) -> int:
        """Return the token that the row goes on from."""
        return (self.settled or [self.newest])[-1]

    @property
    def cached(self) -> int:
        """Return the number of tokens before the anchor."""
        return self.prompt_length + self.written + len(self.settled) - 1

    def take(self, token: int, ended: bool) -> None:
        """Write the next token; `ended`: it ends the answer. What was read behind another token is
        forgotten."""
        self.head, self.newest, self.written = self.queue.popleft(), token, self.written + 1
        kept = token == self.head.token
        if not kept:
            self.queue.clear()
        if self.ended:
            return
        self.ended = ended
        self.answer.token_ids.append(token)
        if (block := self.head.block) is not None:
            block.tokens.append(token)
            block.accepted += kept and self.head.drafted
            if ended or not self.queue or self.queue[0].block is not block:
                self.answer.rounds.append(block.as_round())


class Payoff:
    """Measures whether drafting pays for a batch: a drafted round takes longer than a plain one, so
    it must bring more tokens.

    The second round is plain. From the `EARLIEST` to the `LATEST` round, `lost` says whether the
    drafted rounds took more seconds a token than the plain one.
    """

    EARLIEST, LATEST = 4, 12

    def __init__(self):
        self.number, self.last = -1, (0.0, 0)
        self.spent = {True: [0.0, 0], False: [0.0, 0]}  # plain: seconds and tokens

    @property
    def plain(self) -> bool:
        """Return whether the round that begins is the plain one."""
        return self.number == 1

    def begin_round(self, seconds: float, tokens: int) -> None:
        """Note the time and the tokens of all rows at the beginning of a round."""
        if self.number >= 0:
            spent = self.spent[self.plain]
            spent[0] += seconds - self.last[0]
            spent[1] += tokens - self.last[1]
        self.number, self.last = self.number + 1, (seconds, tokens)

    @property
    def lost(self) -> bool:
        """Return whether plain rounds would have been faster so far."""
        (plain, one_each), (drafted, tokens) = self.spent[True], self.spent[False]
        decides = self.EARLIEST <= self.number <= self.LATEST
        return decides and drafted * one_each > plain * tokens


class GenerateBatch:
    """The rows of a request, whose texts, ids [B, n], grow by a token at every step.

    As in transformers' own loop, a row continues with padding after an EOS token. The target reads
    the padding only if the caller asks for scores or logits.
    """

    def __init__(self, sequence: RequestRows, rows: list[Row], begun: float):
        call, drafter = sequence.call, sequence.drafter
        self.call, self.ids, self.device = call, call.ids, sequence.target.device
        self.sequence, self.rows, self.begun = sequence, rows, begun
        self.scores, self.logits = (() if output else None for output in call.outputs)
        self.watch, self.fresh = sequence.observe, []
        # Without a drafter nothing runs ahead, and rows draw together as in transformers' loop.
        self.settles = call.reads_no_text and drafter is not None
        # Timing decides when drafting ends. That leaves greedy text as it is, and would change what
        # sampled text a seed gives.
        measured = drafter is not None and len(rows) > 1 and not call.sampled
        self.payoff = Payoff() if measured else None

    @classmethod
    def begin(
        cls,
        target,
        drafter,
        prompts: list[torch.Tensor],
        call: GenerateCall,
        gamma: int | None = None,
        begun: ReadText | None = None,
    ):
        """Read the prompts [1, n] and return their batch, in rounds of at most `gamma` drafts (None:
        whole blocks); rows that settle have their first token.
        A single prompt may go on from a text that was `begun`.

        Raise RequestError for a prompt that the target cannot read.
        """
        prompts = [prompt.to(target.device) for prompt in prompts]
        for prompt in prompts:
            check_request(target, prompt, call.max_new_tokens, call.temperature)
        watch, started = Stopwatch(target.device), clock(target.device)
        with torch.inference_mode():
            sequence = RequestRows(target, drafter, prompts, call, watch, gamma, begun)
        begun = clock(target.device)
        rows = [
            Row(number, prompt, PendingToken(logits[-1]))
            for number, (prompt, logits) in enumerate(zip(prompts, sequence.logits))
        ]
        for row in rows:
            row.answer.prefill_seconds = begun - started
        batch = cls(sequence, rows, begun)
        if batch.settles:
            batch.settle_first()
        return batch

    def settle_first(self) -> None:
        """Settle the token after every prompt, as that of a round without drafts."""
        logits = self.sequence.logits  # [B, 1, V]
        nothing = Proposal(self.ids[:, :0].to(self.device), logits[:, :0])
        nothing.lengths = [0] * len(self.rows)
        tokens = self.sequence.accept(nothing, logits).next_token.tolist()
        self._check(logits, nothing, nothing.lengths)
        for row, token in zip(self.rows, tokens):
            row.head.token, row.head.settled = token, True

    def result(self, cache=None):
        """Return what transformers' loop returns, with a `cache`."""
        if not self.call.config.return_dict_in_generate:
            return self.ids
        return generation.GenerateDecoderOnlyOutput(
            sequences=self.ids, scores=self.scores, logits=self.logits, past_key_values=cache
        )

    @torch.inference_mode()
    def read_text(self) -> ReadText:
        """Return the text of a single row as both models have read it: up to its newest token."""
        (row,) = self.rows
        padding = self.ids.shape[1] - row.prompt_length - row.written
        return self.sequence.read_text(self.ids[:, padding:-1].to(self.device))

    def steps(self, policy: Policy | None) -> Iterator[torch.Tensor]:
        """Yield the next tokens [B] of all rows, until every row has ended."""
        while not all(row.ended for row in self.rows):
            spent = [row for row in self.rows if not row.queue and not self.needs_no_logits(row)]
            padded = [row for row in spent if self.padded(row)]
            if padded:
                self.read_padding(padded)
            if len(padded) < len(spent):
                self.round(policy)
            yield self.step()

    def padded(self, row: Row) -> bool:
        """Return whether a row continues with padding."""
        return row.ended and self.call.padding is not None

    def needs_no_logits(self, row: Row) -> bool:
        """Return whether a row's logits are unused."""
        return self.padded(row) and not any(self.call.outputs)

    @torch.inference_mode()
    def round(self, policy: Policy | None) -> None:
        """Play a round of the rows that join it. Their queues hold what comes of it."""
        if self.payoff and policy is None:
            self.measure()
        self.join()
        block = self.sequence.draft()  # tokens [R, k], each drawn from its row of probs [R, k, V]
        block = self.sequence.schedule(policy, block)
        logits = self.sequence.verify(block)  # [R, k+1, V], in one pass of the target
        if self.settles:
            self.enqueue_settled(block, logits, self.sequence.accept(block, logits))
        else:
            self.enqueue_guesses(block, logits)

    def measure(self) -> None:
        """Draft no more if it does not pay."""
        tokens = sum(row.written + len(row.settled) for row in self.rows)
        self.payoff.begin_round(clock(self.device), tokens)
        if self.payoff.lost:
            self.sequence.drafter = self.payoff = None

    def join(self) -> None:
        """Begin a round of the rows that have nothing left, and of those that may run ahead. Those
        that need no round any more leave."""
        rows = [row for row in self.rows if not self.padded(row)]
        rows = [row for row in rows if not row.queue or self.runs_ahead(row)]
        if not any(self.call.outputs):
            stay = [row.number for row in self.rows if not (self.padded(row) or self.finished(row))]
            self.sequence.select(stay)
        self._join(rows, plain=self.payoff is not None and self.payoff.plain)

    def _join(self, rows: list[Row], plain: bool = False) -> None:
        self.sequence.join(
            [row.number for row in rows],
            [row.cached for row in rows],
            [row.anchor for row in rows],
            [0 if plain else max(0, self.lacking(row) - 1) for row in rows],
        )

    def lacking(self, row: Row) -> int:
        """Return how many tokens a row can still get behind the settled ones."""
        return self.call.max_new_tokens - row.written - len(row.settled)

    def finished(self, row: Row) -> bool:
        """Return whether a row has all its tokens, though the caller has not seen them yet."""
        return self.settles and (
            self.lacking(row) < 1 or not self.call.stops.isdisjoint(row.settled)
        )

    def runs_ahead(self, row: Row) -> bool:
        """Settle a row that has tokens left. Return whether it joins the round early: it is at most
        one block ahead, and no EOS token waits in it.

        Whether a row is settled must not depend on its drafts. It does not: only on earlier tokens.
        """
        block_size = self.sequence.block_size
        if len(row.queue) > block_size or not (self.settles or self.sequence.can_rewind):
            return False
        if not self.settles:
            self.settle(row)
        return self.lacking(row) > 0 and self.call.stops.isdisjoint(row.settled)

    def settle(self, row: Row) -> None:
        """Accept a prefix of the drafts that wait in a row, and draw a guess for the token after
        them, by the warpers alone."""
        tail = [pending for pending in row.queue if not pending.settled]
        if not tail:
            return
        logits = torch.stack([pending.logits for pending in tail])[None]  # [1, k+1, V]
        tokens = torch.tensor([[pending.token for pending in tail[:-1]]], device=logits.device)
        block = Proposal(tokens.long(), logits[:, :0], lengths=[len(tail) - 1])
        if self.call.sampled:
            guessed = [pending.probs for pending in tail[:-1]]
            block.probs = torch.stack([*guessed, torch.zeros_like(logits[0, 0])])[None, :-1]
        accepted, token = torch.stack(self.sequence.accept(block, logits)).flatten().tolist()
        coins = self._coins(1, accepted + 1)[0]
        for pending, coin in zip(tail, coins):
            pending.settled, pending.coin = True, coin
            if self.call.sampled:
                pending.probs = self.call.distributions(pending.logits[None])[0]
        tail[accepted].token, tail[accepted].drafted = token, False
        for _ in tail[accepted + 1 :]:
            row.queue.pop()

    def enqueue_settled(self, block: Proposal, logits: torch.Tensor, verdict: Verdict) -> None:
        """Append the tokens that a verdict settles to the queues of the round's rows."""
        taken, tokens = torch.stack(verdict).tolist()
        self._check(logits, block, taken)
        wanted = any(self.call.outputs)
        for (row, made), read, count, token in zip(self._blocks(block), logits, taken, tokens):
            for k, settled in enumerate([*made.drafts[:count], token]):
                pending = PendingToken(read[k] if wanted else None, settled, settled=True)
                pending.drafted, pending.block = k < count, made
                row.queue.append(pending)

    def enqueue_guesses(self, block: Proposal, logits: torch.Tensor) -> None:
        """Append all tokens of a round to the queues of its rows: each draft is a guess."""
        coins = self._coins(*block.tokens.shape)
        for index, (row, made) in enumerate(self._blocks(block)):
            for k, token in enumerate(made.drafts):
                pending = PendingToken(logits[index, k], token, drafted=True, block=made)
                pending.probs, pending.coin = block.probs[index, k], coins[index][k]
                row.queue.append(pending)
            row.queue.append(PendingToken(logits[index, len(made.drafts)], block=made))

    def _blocks(self, block: Proposal) -> list[tuple[Row, Block]]:
        """Return the rows of the round, each with its verified block."""
        rows = [self.rows[number] for number in self.sequence.joined]
        drafts = zip(block.tokens.tolist(), block.lengths)
        made = [Block(tokens[:length]) for tokens, length in drafts]
        self.fresh += made
        return list(zip(rows, made))

    @torch.inference_mode()
    def read_padding(self, rows: list[Row]) -> None:
        """Read the next tokens of rows that continue with padding."""
        self._join(rows)
        room = [min(max(1, self.sequence.block_size), room) for room in self.sequence.rooms]
        tokens = self.call.padding.to(self.device).expand(len(rows), max(room))
        logits = self.sequence.verify(Proposal(tokens, logits_of_none(tokens), lengths=room))
        for row, count, read in zip(rows, room, logits):
            for token_logits in read[: count + 1]:
                row.queue.append(PendingToken(token_logits, int(self.call.padding), settled=True))

    def step(self) -> torch.Tensor:
        """Add a token to every row and return them, [B]."""
        heads = [row.queue[0] if row.queue else row.head for row in self.rows]
        padded, logits, scores = [self.padded(row) for row in self.rows], None, None
        if any(self.call.outputs) or not self.settles:
            logits = torch.stack([head.logits for head in heads]).to(self.ids.device)  # [B, V]
            scores = self.call.processors(self.ids, logits.clone())
        tokens = (
            [head.token for head in heads] if self.settles else self.choose(heads, scores, padded)
        )
        padding = self.call.padding
        tokens = [int(padding) if pads else token for token, pads in zip(tokens, padded)]
        self.scores = None if self.scores is None else (*self.scores, scores)
        self.logits = None if self.logits is None else (*self.logits, logits)
        added = self.ids.new_tensor(tokens)
        self.ids = torch.cat([self.ids, added[:, None]], 1)
        self.advance(tokens, self.call.criteria(self.ids, self.scores).tolist())
        return added

    def advance(self, tokens: list[int], ended: list[bool]) -> None:
        """Write its token to every row that is read, and end the answers that have `ended`."""
        seconds = clock(self.device) - self.begun
        if self.fresh:
            spent = self.watch.seconds()
            for block in self.fresh:
                block.seconds = spent
            self.fresh = []
        for row, token, ends in zip(self.rows, tokens, ended):
            if self.needs_no_logits(row):
                continue
            if not row.ended:
                row.answer.decode_seconds = seconds
                row.take(token, ends)
                if self.padded(row):
                    row.queue.clear()  # it goes on with padding
            else:
                row.take(token, ends)

    def choose(self, heads: list[PendingToken], scores, padded: list[bool]) -> list[int]:
        """Return the next token of each row, by the processors' scores [B, V]."""
        if self.call.sampled:
            return self._choose_sampled(heads, scores, padded)
        return _choose_greedy(scores, padded)

    def _choose_sampled(self, heads: list[PendingToken], scores, padded: list[bool]) -> list[int]:
        """Return sampled tokens: a coin decides about a guess, and after a rejection or without a
        guess the token is drawn from the residual. Padded rows take part in the draws."""
        device = scores.device
        guesses = torch.tensor([head.token or 0 for head in heads], device=device)
        coins = torch.tensor([head.coin for head in heads], device=device)
        guess_probs = torch.stack(
            [
                torch.zeros_like(row) if head.probs is None else head.probs.to(device)
                for head, row in zip(heads, scores)
            ]
        )
        probs = probabilities(scores, 1.0)  # [B, V]
        keep = _keep_probabilities(probs, guess_probs, guesses, coins)  # [B]
        if isinstance(self.call.generator, RandomSource):
            tossed = accepted_prefix_length(keep[:, None], self.call.generator) > 0
        else:
            tossed = coins < keep
        failed, broken, tossed = torch.stack([undefined(scores), keep.isnan(), tossed]).tolist()
        _check_finite(_unpadded(failed, padded), _unpadded(broken, padded))
        rejected = [n for n, (keeps, pads) in enumerate(zip(tossed, padded)) if pads or not keeps]
        if rejected:
            rows = torch.tensor(rejected, device=device)
            left = residual(probs[rows], guess_probs[rows])
            guesses[rows] = draw(left, self.call.generator)
        return guesses.tolist()

    def _coins(self, rows: int, count: int) -> list[list[float]]:
        """Return coins, numbers from 0 to 1. Greedy text needs none."""
        if not self.call.sampled or isinstance(self.call.generator, RandomSource):
            return [[0.0] * count] * rows
        coins = torch.rand(rows, count, generator=self.call.generator, device=self.device)
        return coins.tolist()

    def _check(self, logits: torch.Tensor, block: Proposal, accepted: list[int]) -> None:
        """Raise RequestError if the drafts' probabilities are not finite, or logits [R, k+1, V] up
        to the first position that was not `accepted`."""
        failed = undefined(logits) if self.call.sampled else logits.isnan().any(-1)
        reached = torch.arange(logits.shape[1]) <= torch.tensor(accepted)[:, None]
        broken = self.call.sampled and block.probs.isnan().any()
        _check_finite((failed & reached.to(failed.device)).any(1).tolist(), [broken])


def logits_of_none(tokens: torch.Tensor) -> torch.Tensor:
    """Return the `probs` of tokens [R, k] that were not drawn."""
    return torch.empty(*tokens.shape, 0, device=tokens.device)


def _choose_greedy(scores: torch.Tensor, padded: list[bool]) -> list[int]:
    """Return the token with the largest score [B, V] of each row."""
    tokens, failed = torch.stack([scores.argmax(-1), scores.isnan().any(1)]).tolist()
    _check_finite(_unpadded(failed, padded), [])
    return tokens


def _unpadded(flags: list[bool], padded: list[bool]) -> list[bool]:
    """Return the flags of rows, False for those that continue with padding."""
    return [flag and not pads for flag, pads in zip(flags, padded)]


def _keep_probabilities(probs, draft_probs, drafts, coins) -> torch.Tensor:
    """Return the probability [B] with which each row keeps its guess [B]; 0 without a guess.

    `probs` and `draft_probs` [B, V] are the distributions of the processors and of the guesses.
    """
    index = drafts[:, None]
    ratio = (probs.gather(1, index) / draft_probs.gather(1, index))[:, 0]
    return torch.where(coins < NO_COIN, ratio.clamp(max=1), 0)


def _check_finite(failed: list[bool], broken: list[bool]) -> None:
    """Raise RequestError if the target `failed` or the drafter is `broken` in a row."""
    for fails, name in (
        (failed, "target's logits, as the request's processors leave them,"),
        (broken, "drafter's probabilities"),
    ):
        if any(fails):
            raise RequestError(NOT_FINITE.format(name))
