"""DSpark in transformers' own `generate`: `custom_generate=CustomGenerate("tiny-dspark", model)`.

transformers calls us in place of its own loop. All rows of a batch get their next token together.
So logits processors, stopping criteria and a streamer see the same arguments in the same order as
in transformers' loop, and never a draft that was not accepted.
"""

import inspect
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from transformers import DynamicCache, LogitsProcessorList, generation

from ..common.errors import RequestError
from ..common.timing import clock
from ..decoding.answer import Generation, Round, Stopwatch
from ..decoding.checks import check_request
from ..decoding.proposal import Drafter, Policy, Proposal, start_policy
from ..decoding.sampling import (
    LEAST_TEMPERATURE,
    Randomness,
    RandomSource,
    accepted_prefix_length,
    draw,
    probabilities,
    residual,
    undefined,
)
from ..decoding.sequence import NOT_FINITE, Sequence
from ..decoding.target import Target, within_memory
from ..decoding.lockstep import schedule_together
from .checkpoints import check_loaded, load_drafter

# Arguments that transformers prepares for its own loop, and that this loop builds itself.
LOOP_ARGUMENTS = {
    "attention_mask",
    "position_ids",
    "past_key_values",
    "cache_position",
    "logits_to_keep",
    "use_cache",
    "mm_encoder_outputs",
}
# Settings of a GenerationConfig that this loop does not support, and their neutral values.
UNSUPPORTED_SETTINGS = {
    "num_beams": (None, 1),
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
    "use_cache": (None, True),
    "cache_implementation": (None, "dynamic"),
    "token_healing": (None, False),
    "force_words_ids": (None,),
    "constraints": (None,),
    "penalty_alpha": (None,),
    "dola_layers": (None,),
    "prompt_lookup_num_tokens": (None,),
    "assistant_early_exit": (None,),
}
# Processors that read the scores only, so they can warp drafts too; the temperature comes first.
SCORE_WARPERS = tuple(
    getattr(generation, f"{name}LogitsWarper")
    for name in ("Temperature", "TopK", "TopP", "MinP", "Typical", "Epsilon", "Eta")
)

NO_DRAFT = 1.0  # the coin of a position without a draft; other coins are smaller


class CustomGenerate:
    """A drafter for `model.generate(..., custom_generate=this object)`.

    `drafter` is a name or a drafter that was loaded for this model (None: plain decoding). `policy`
    chooses the verification lengths. Draws come from `generator` (None: torch's own). `answers`
    holds a Generation for each row of the last call.

    Supports length limits, `do_sample`, every logits processor of transformers, `eos_token_id`,
    `stopping_criteria`, `streamer`, `num_return_sequences`, `output_scores`, `output_logits`, and
    batches padded on the left, whose rows are verified one after the other. Temperature, top-k,
    top-p and similar warpers apply to drafts too. transformers refuses `stop_strings` with
    `custom_generate`: give a StopStringCriteria in `stopping_criteria`. Raise RequestError for a
    setting that is not supported, CheckpointError for a drafter of another model.
    """

    def __init__(
        self,
        drafter: str | Drafter | None,
        model,
        policy: Policy | None = None,
        generator: Randomness = None,
    ):
        with in_its_modes(model):
            self.target = Target(model)
        self.policy, self.generator = policy, generator
        self.drafter = (
            load_drafter(drafter, self.target)
            if isinstance(drafter, str)
            else drafter and check_loaded(drafter, self.target)
        )
        self.answers: list[Generation] = []

    def __call__(
        self,
        model,
        input_ids,
        *,
        logits_processor,
        stopping_criteria,
        generation_config,
        **model_kwargs,
    ):
        """Return prompts with their answers, ids [B, n + m], as transformers' own loop does."""
        # transformers (5.23) does not pass `streamer` and `assistant_model` on. Its frame has them.
        caller = inspect.currentframe().f_back.f_locals
        streamer = caller.get("streamer")
        self._check(
            model,
            input_ids,
            generation_config,
            model_kwargs,
            streamer,
            caller.get("assistant_model"),
        )
        prompts = unpadded(
            input_ids, model_kwargs.get("attention_mask"), model_kwargs.get("position_ids")
        )
        most = (stopping_criteria.max_length or generation_config.max_length) - input_ids.shape[1]
        temperature, source = self._drafting(
            logits_processor if generation_config.do_sample else None
        )
        with in_its_modes(model):
            model.eval()
            rows = [
                _BatchRow(
                    self.target,
                    self.drafter,
                    prompt.to(self.target.device),
                    most,
                    temperature,
                    source,
                )
                for prompt in prompts
            ]
            batch = _Batch(
                rows,
                input_ids,
                logits_processor,
                stopping_criteria,
                generation_config,
                self.generator,
            )
            policy = start_policy(self.policy)
            while not all(row.ended for row in rows):
                tokens = batch.step(policy)
                if streamer is not None:
                    streamer.put(tokens.cpu())
        if streamer is not None:
            streamer.end()
        self.answers = [row.answer for row in rows]
        result = generation.GenerateDecoderOnlyOutput(
            sequences=batch.ids, scores=batch.scores, logits=batch.logits
        )
        return result if generation_config.return_dict_in_generate else batch.ids

    def _drafting(self, processors) -> tuple[float, Randomness]:
        """Return the temperature of the drafts (0: greedy) and their source of randomness."""
        if processors is None:
            return 0.0, self.generator
        warpers, temperature = [each for each in processors if type(each) in SCORE_WARPERS], 1.0
        while warpers and type(warpers[0]) is SCORE_WARPERS[0]:
            temperature *= warpers.pop(0).temperature
        if temperature < LEAST_TEMPERATURE:
            raise RequestError(
                f"the temperature is {temperature}, and logits over it overflow float32; give do_sample=False for greedy text"
            )
        return temperature, Warped(warpers, self.generator) if warpers else self.generator

    def _check(self, model, input_ids, config, model_kwargs, streamer, assistant_model) -> None:
        """Raise RequestError for a request that this loop does not support."""
        if model is not self.target.model:
            raise RequestError(
                "this drafter was loaded for another model object; make a CustomGenerate for the one that generates"
            )
        then, now = (
            f"{each.dtype} on {each.device} with {size} tokens"
            for each, size in (
                (self.target, self.target.vocab_size),
                (model, model.config.get_text_config().vocab_size),
            )
        )
        if then != now:
            raise RequestError(
                f"this drafter was loaded for a model of {then}, and the model is one of {now} now; make a CustomGenerate anew after "
                "changing its number format, device or vocabulary"
            )
        if assistant_model is not None:
            raise RequestError("assistant_model and custom_generate both draft; give one of them")
        for name, allowed in UNSUPPORTED_SETTINGS.items():
            if (value := getattr(config, name, None)) not in allowed:
                raise RequestError(
                    f"{name} is {value!r}, which is not honoured with a drafter; leave it out, or leave out custom_generate"
                )
        if unknown := sorted(
            name for name in model_kwargs.keys() - LOOP_ARGUMENTS if model_kwargs[name] is not None
        ):
            raise RequestError(
                f"{', '.join(unknown)} cannot be handed to the model here; leave it out, or leave out custom_generate"
            )
        cache = model_kwargs.get("past_key_values")
        if cache is not None and not (
            isinstance(cache, DynamicCache) and cache.get_seq_length() == 0
        ):
            raise RequestError(
                "past_key_values holds tokens that the drafter has not read, or is no DynamicCache; give the prompt and no cache"
            )
        if streamer is not None and len(input_ids) > 1:
            raise RequestError(
                f"a streamer takes one answer, and {len(input_ids)} are asked for; stream one prompt at a time"
            )


@contextmanager
def in_its_modes(model):
    """Restore the training mode of every module of a model afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


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


class _BatchRow(Sequence):
    """A row of a batch: its text, and its block with the target's logits.

    `logits` [1, k+1, V] belong to the anchor and to each of the `drafts` [k+1], padded by one.
    `position` counts the drafts kept so far. The block is `spent` when a token that is no draft
    follows them.
    """

    def __init__(self, target, drafter, prompt, most: int, temperature: float, source: Randomness):
        check_request(target, prompt, most, temperature)
        self.most, self.count, self.answer, self.ended = most, 0, Generation(), False
        begun = clock(target.device)
        with torch.inference_mode(), within_memory("the prompt's context"):
            step, cache = target.prefill(prompt, drafter.taps if drafter else ())
            self.begun = clock(target.device)
            self.answer.prefill_seconds = self.begun - begun
            state = drafter.begin(prompt, step.features) if drafter else None
        super().__init__(target, drafter, cache, state, prompt[:, -1], temperature, source)
        self.entering, self.seconds = None, (0.0, 0.0)
        self.hold(step.logits, Proposal(prompt[:, :0], step.logits[:, :0]), None)

    @property
    def room(self) -> list[int]:
        """Return how many drafts the answer has room for: its last token is always drawn."""
        return [max(0, self.most - self.count - 1)]

    def hold(self, logits: torch.Tensor, block: Proposal, generator: Randomness) -> None:
        """Start a verified block, with a coin for each draft.

        The position after the drafts gets NO_DRAFT.
        """
        self.logits, self.position, self.spent, self.drafted = (
            logits,
            0,
            False,
            len(block.tokens[0]),
        )
        # [k+1], [k+1, V]
        self.drafts, self.probs = (
            F.pad(block.tokens, (0, 1))[0],
            F.pad(block.probs, (0, 0, 0, 1))[0],
        )
        coins = torch.rand(
            self.drafted,
            generator=None if isinstance(generator, RandomSource) else generator,
            device=logits.device,
        )
        self.coins = F.pad(coins, (0, 1), value=NO_DRAFT)

    def take(self, token: int, kept: bool, ended: bool) -> None:
        """Add a token to the row, and to the answer unless it has ended.

        `kept`: the token is a draft; `ended`: it ends the answer.
        """
        self.count += 1
        self.position, self.spent = self.position + kept, not kept
        if self.ended:
            return
        self.ended, self.answer.token_ids = ended, [*self.answer.token_ids, token]
        if self.entering is not None and (self.spent or ended):
            tokens = self.answer.token_ids[-self.position - self.spent :]
            self.answer.rounds.append(
                Round(
                    self.drafted,
                    self.position,
                    len(tokens),
                    self.drafts[:-1].tolist(),
                    tokens,
                    *self.seconds,
                )
            )
            self.answer.decode_seconds = clock(self.target.device) - self.begun


class _Batch:
    """The rows of a batch, whose texts, ids [B, n], grow by a token at every step.

    As in transformers' own loop, a row continues with padding after an EOS token. The target reads
    the padding only if the caller asks for scores or logits.
    """

    def __init__(
        self, rows: list[_BatchRow], ids, processors, criteria, config, generator: Randomness
    ):
        self.rows, self.ids, self.processors, self.criteria, self.generator = (
            rows,
            ids,
            processors,
            criteria,
            generator,
        )
        self.sampled = config.do_sample
        # As in transformers' loop, an ended row gets no padding without a criterion for EOS tokens.
        self.padding = (
            config._pad_token_tensor
            if any(hasattr(criterion, "eos_token_id") for criterion in criteria)
            else None
        )
        outputs = (config.output_scores, config.output_logits)
        self.scores, self.logits = (
            () if config.return_dict_in_generate and output else None for output in outputs
        )

    def step(self, policy: Policy | None) -> torch.Tensor:
        """Add a token to every row and return them, [B].

        The host waits for the device twice, and once for each drafted block.
        """
        padded = [row.ended and self.padding is not None for row in self.rows]
        idle = padded if self.scores is None and self.logits is None else [False] * len(padded)
        spent = [index for index, row in enumerate(self.rows) if row.spent and not idle[index]]
        watch = self._verify(spent, policy) if spent else None
        # [B, V]
        logits = torch.cat([row.logits[:, row.position] for row in self.rows]).to(self.ids.device)
        scores = self.processors(self.ids, logits.clone())
        tokens, kept = self._choose(scores, padded)
        for index in spent:
            self.rows[index].seconds = watch.seconds()
        self.scores = None if self.scores is None else (*self.scores, scores)
        self.logits = None if self.logits is None else (*self.logits, logits)
        self.ids = torch.cat([self.ids, tokens[:, None]], 1)
        ended = self.criteria(self.ids, self.scores)
        for row, waits, keeps, token, ends in zip(
            self.rows, idle, kept, *torch.stack([tokens, ended.to(tokens)]).tolist()
        ):
            if not waits:
                row.take(token, keeps, bool(ends))
        return tokens

    @torch.inference_mode()
    def _verify(self, spent: list[int], policy: Policy | None) -> Stopwatch:
        """Draft and verify the next blocks of the rows at these indices.

        A padded row reads padding instead of drafts.
        """
        rows = [self.rows[index] for index in spent]
        for index, row in zip(spent, rows):
            row.anchor = self.ids[index, -1:].to(row.anchor)
            if row.entering is not None:  # after the prompt's pass there is nothing to roll back
                row.keep([row.position + 1], row.anchor)
        watch, drafting = (
            Stopwatch(rows[0].target.device),
            [row for row in rows if not row.ended or self.padding is None],
        )
        watch("draft")
        drafted = (
            schedule_together(policy, drafting, [row.draft() for row in drafting])
            if drafting
            else []
        )
        blocks = list(zip(drafting, drafted))
        for row in (row for row in rows if row not in drafting):
            tokens = self.padding.to(row.anchor).expand(1, min(row.block_size, *row.room))
            blocks.append(
                (
                    row,
                    Proposal(
                        tokens,
                        torch.zeros(*tokens.shape, row.target.vocab_size, device=tokens.device),
                    ),
                )
            )
        watch("verify")
        for row, block in blocks:
            if isinstance(row.generator, Warped):
                block.probs = row.generator.warp(block.probs)
            row.hold(row.verify(block), block, self.generator)
        return watch

    def _choose(self, scores, padded: list[bool]) -> tuple[torch.Tensor, list[bool]]:
        """Return the next token [B] of each row, and which rows keep a draft.

        The accept rule works on scores [B, V]. A coin decides on each row's next draft. After a
        rejection, or without a draft, the token is drawn from the residual. A `padded` row gets
        padding; it keeps a draft that is padding too.
        """
        drafts, draft_probs, coins = self._next_drafts(scores.device)
        probs = probabilities(scores, float(self.sampled))  # [B, V]
        keep = _keep_probabilities(probs, draft_probs, drafts, coins)  # [B]
        if isinstance(self.generator, RandomSource):
            tossed = accepted_prefix_length(keep[:, None], self.generator) > 0
        else:
            tossed = coins < keep
        is_padding = drafts == (-1 if self.padding is None else self.padding.to(drafts))
        failed = undefined(scores) if self.sampled else scores.isnan().any(1)
        tossed, is_padding, failed, broken = torch.stack(
            [tossed, is_padding, failed, keep.isnan()]
        ).tolist()  # the host waits once for all four
        _check_finite(failed, broken, padded)
        kept = [
            row.position < row.drafted and pads if ended else toss
            for row, toss, pads, ended in zip(self.rows, tossed, is_padding, padded)
        ]
        tokens = self._draw_rejected(probs, draft_probs, drafts, kept)
        if any(padded):
            tokens[torch.tensor(padded, device=tokens.device)] = self.padding.to(tokens)
        return tokens.to(self.ids), kept

    def _next_drafts(self, device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return each row's next draft [B], its distribution [B, V] and its coin [B].

        A row without a draft gives token 0, zeros and NO_DRAFT.
        """
        drafts = torch.stack([row.drafts[row.position] for row in self.rows])
        draft_probs = torch.stack([row.probs[row.position] for row in self.rows])
        coins = torch.stack([row.coins[row.position] for row in self.rows])
        return drafts.to(device), draft_probs.to(device), coins.to(device)

    def _draw_rejected(self, probs, draft_probs, drafts, kept: list[bool]) -> torch.Tensor:
        """Return tokens [B]: the draft of each row that keeps it, else a draw from the residual."""
        tokens = drafts.clone()
        if rejected := [index for index, keeps in enumerate(kept) if not keeps]:
            rows = torch.tensor(rejected, device=tokens.device)
            tokens[rows] = draw(residual(probs[rows], draft_probs[rows]), self.generator)
        return tokens


def _keep_probabilities(probs, draft_probs, drafts, coins) -> torch.Tensor:
    """Return the probability [B] with which each row keeps its draft [B]; 0 without a draft.

    `probs` and `draft_probs` [B, V] are the distributions of the target and the drafter.
    """
    index = drafts[:, None]
    ratio = (probs.gather(1, index) / draft_probs.gather(1, index))[:, 0]
    return torch.where(coins < NO_DRAFT, ratio.clamp(max=1), 0)


def _check_finite(failed: list[bool], broken: list[bool], padded: list[bool]) -> None:
    """Raise RequestError if the target `failed` or the drafter is `broken` in an unpadded row."""
    for fails, name in (
        (failed, "target's logits, as the request's processors leave them,"),
        (broken, "drafter's probabilities"),
    ):
        if any(fail and not ended for fail, ended in zip(fails, padded)):
            raise RequestError(NOT_FINITE.format(name))


def unpadded(
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_ids: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Return the prompts [1, n] of a batch [B, N] that is padded on the left.

    Raise RequestError for any other mask, and for positions that do not count a prompt's tokens
    from 0.
    """
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.to(input_ids)
    kept = mask.sum(1, keepdim=True)
    if not torch.equal(
        (torch.arange(mask.shape[1], device=mask.device) >= mask.shape[1] - kept).to(mask), mask
    ):
        raise RequestError(
            "the attention mask hides tokens inside or at the end of a prompt; pad on the left, with zeros before the prompt alone"
        )
    counted = mask.cumsum(1) - 1
    if position_ids is not None and not torch.equal(
        position_ids.expand_as(mask)[mask > 0], counted[mask > 0]
    ):
        raise RequestError(
            "position_ids do not count each prompt's tokens from 0, as the drafter does; leave them out"
        )
    return [row[None, len(row) - count :] for row, count in zip(input_ids, kept[:, 0].tolist())]
