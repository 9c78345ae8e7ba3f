"""DSpark in transformers' own `generate`: `custom_generate=CustomGenerate("tiny-dspark", model)`.

transformers calls us in place of its own loop. All rows of a batch get their next token together.
So logits processors, stopping criteria and a streamer see the same arguments in the same order as
in transformers' loop, and never a draft that was not accepted.
"""

import inspect
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
import transformers
from transformers import DynamicCache

from ..common.errors import RequestError
from ..decoding.answer import Generation
from ..decoding.proposal import Drafter, Policy, draft_length, start_policy
from ..decoding.row_caches import ReadText
from ..decoding.sampling import Randomness
from ..decoding.target import Target, input_device
from ..models.checkpoints import check_loaded, load_drafter
from .request_batch import GenerateBatch, GenerateCall

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


class CustomGenerate:
    """A drafter for `model.generate(..., custom_generate=this object)`.

    `drafter` is a name or a drafter that was loaded for this model (None: plain decoding). `policy`
    chooses the verification lengths, `num_speculative_tokens` limits the drafts of a round (None:
    whole blocks). Draws come from `generator` (None: torch's own). `answers`
    holds a Generation for each row of the last call.

    Supports length limits, `do_sample`, every logits processor of transformers, `eos_token_id`,
    `stopping_criteria`, `streamer`, `num_return_sequences`, `output_scores`, `output_logits`,
    `prefill_chunk_size`, and batches padded on the left. The rows of a batch are verified in one
    pass if the target can do so (`decoding.rows.can_share_passes`), otherwise one after the other.
    Temperature, top-k, top-p and similar warpers apply to drafts too. A greedy batch without a
    policy stops drafting if that does not pay (`request_batch.Payoff`). A single prompt may begin
    with the text of `past_key_values` that an answer of this object has filled: then both models
    read only what is new. transformers refuses `stop_strings` with `custom_generate`: give a
    StopStringCriteria in `stopping_criteria`. Raise RequestError for a setting that is not
    supported, CheckpointError for a drafter of another model.
    """

    def __init__(
        self,
        drafter: str | Drafter | None,
        model,
        policy: Policy | None = None,
        generator: Randomness = None,
        num_speculative_tokens: int | None = None,
    ):
        with in_its_modes(model):
            self.target = Target(model)
        self.policy, self.generator = policy, generator
        self.num_speculative_tokens = num_speculative_tokens
        self.drafter = (
            load_drafter(drafter, self.target)
            if isinstance(drafter, (str, Path))
            else drafter and check_loaded(drafter, self.target)
        )
        if self.drafter:
            draft_length(num_speculative_tokens, self.drafter.gamma)  # raises for too many
        self.answers: list[Generation] = []
        # What both models have read of the texts in caches that the caller holds.
        self._texts: WeakKeyDictionary[DynamicCache, ReadText] = WeakKeyDictionary()

    def __repr__(self) -> str:
        drafter = self.drafter.name if self.drafter else "no drafter"
        return f"CustomGenerate({drafter} for a {type(self.target.model).__name__})"

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
        streamer, assistant = _arguments_of_caller()
        self._check(model, input_ids, generation_config, model_kwargs, streamer, assistant)
        prompts = unpadded(
            input_ids, model_kwargs.get("attention_mask"), model_kwargs.get("position_ids")
        )
        cache, begun = model_kwargs.get("past_key_values"), None
        if len(prompts) == 1 and cache is not None:
            begun = self._begun(cache, prompts[0])
        self.target.prefill_chunk_size = generation_config.prefill_chunk_size
        with in_its_modes(model):
            model.eval()
            call = GenerateCall(
                input_ids, logits_processor, stopping_criteria, generation_config, self.generator
            )
            batch = GenerateBatch.begin(
                self.target, self.drafter, prompts, call, self.num_speculative_tokens, begun
            )
            self.answers = [row.answer for row in batch.rows]
            for tokens in batch.steps(start_policy(self.policy)):
                if streamer is not None:
                    streamer.put(tokens.cpu())
        if streamer is not None:
            streamer.end()
        return batch.result(self._filled(cache, batch))

    def _begun(self, cache: DynamicCache, prompt: torch.Tensor) -> ReadText | None:
        """Return what both models have read of the text in a cache; None if it is empty.

        Raise RequestError unless the prompt [1, n] begins with this text.
        """
        text = self._texts.get(cache)
        if text is None:
            return None
        length = text.ids.shape[1]
        if length >= prompt.shape[1] or not prompt[:, :length].equal(text.ids.to(prompt.device)):
            raise RequestError(
                f"past_key_values holds {length} tokens with which this prompt does not begin; give the whole text so far and what is "
                "new, or the prompt and no cache"
            )
        del self._texts[cache]  # after an error nothing can go on from it
        return text._replace(cache=cache)

    def _filled(self, cache: DynamicCache | None, batch: GenerateBatch) -> DynamicCache | None:
        """Fill the cache of a call with one prompt and return it; None for several."""
        if len(batch.rows) > 1 or cache is None:
            return None
        text = batch.read_text()
        vars(cache).update(vars(text.cache))
        self._texts[cache] = text._replace(cache=None)  # the key itself, which is held weakly
        return cache

    def _check(self, model, input_ids, config, model_kwargs, streamer, assistant_model) -> None:
        """Raise RequestError for a request that this loop does not support."""
        if model is not self.target.model:
            raise RequestError(
                "this drafter was loaded for another model object; make a CustomGenerate for the one that generates"
            )
        then, now = (
            f"{each.dtype} on {device} with {size} tokens"
            for each, device, size in (
                (self.target, self.target.device, self.target.vocab_size),
                (model, input_device(model), model.config.get_text_config().vocab_size),
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
        known = self._texts.get(cache) if isinstance(cache, DynamicCache) else None
        if cache is not None and not (
            isinstance(cache, DynamicCache)
            and cache.get_seq_length() == (0 if known is None else known.ids.shape[1])
        ):
            raise RequestError(
                "past_key_values holds tokens that the drafter has not read, or is no DynamicCache; give the one that an answer of this "
                "CustomGenerate has filled, or the prompt and no cache"
            )
        if known is not None and len(input_ids) > 1:
            raise RequestError(
                f"past_key_values holds one text, and {len(input_ids)} answers are asked for; go on with one prompt at a time"
            )
        if streamer is not None and len(input_ids) > 1:
            raise RequestError(
                f"a streamer takes one answer, and {len(input_ids)} are asked for; stream one prompt at a time"
            )


def _arguments_of_caller() -> tuple:
    """Return the `streamer` and the `assistant_model` of the `generate` that called CustomGenerate.

    transformers (5.23) does not pass them on, but its frame has them. Raise RequestError for a
    frame of another function, or without them.
    """
    caller = inspect.currentframe().f_back.f_back  # the frame behind CustomGenerate.__call__
    name, given = caller.f_code.co_name, caller.f_locals
    if name != "generate" or not {"streamer", "assistant_model"} <= given.keys():
        raise RequestError(
            f"CustomGenerate takes streamer and assistant_model from the frame of transformers' generate, and {name} called it; call "
            f"model.generate(..., custom_generate=...), with transformers 5.23 if {transformers.__version__} keeps them elsewhere"
        )
    return given["streamer"], given["assistant_model"]


@contextmanager
def in_its_modes(model):
    """Restore the training mode of every module of a model afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


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
