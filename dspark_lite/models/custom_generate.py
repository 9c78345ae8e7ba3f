"""DSpark in transformers' own `generate`: `model.generate(**inputs, custom_generate=CustomGenerate("tiny-dspark", model))`.

transformers prepares everything as for its own loops and hands over the loop. What it asks for beyond tokens is refused.
"""

import inspect

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from ..common.errors import RequestError
from ..decoding.policy import Policy, started
from ..decoding.rounds import Generation, begin_together, step_together
from ..decoding.target import Step, Target
from .checkpoints import load_drafter

# What transformers prepares for its own loops, made here anew.
PREPARED = {"attention_mask", "position_ids", "past_key_values", "cache_position", "logits_to_keep", "use_cache"}
# Settings of a GenerationConfig that this loop cannot honour, and what they would have to be.
REFUSED = {"num_beams": (None, 1), "return_dict_in_generate": (None, False), "output_scores": (None, False), "output_logits": (None, False),
           "output_attentions": (None, False), "output_hidden_states": (None, False), "use_cache": (None, True),
           "cache_implementation": (None, "dynamic"), "guidance_scale": (None, 1), "watermarking_config": (None,), "token_healing": (None, False),
           "penalty_alpha": (None,), "dola_layers": (None,), "prompt_lookup_num_tokens": (None,), "assistant_early_exit": (None,)}


class CustomGenerate:
    """A drafter, loaded by name for a model of transformers, as its `generate` takes it: `custom_generate=` this object.

    Honoured: `max_new_tokens`, `max_length`, `do_sample`, `temperature`, `top_k`, `top_p` and whatever else transformers
    makes a logits processor of, `eos_token_id`, `stopping_criteria` (asked after each token, with scores None),
    `streamer`, `num_return_sequences`, and batches padded on the left, whose rows are verified one by one. Raises
    RequestError for what is not, CheckpointError for a drafter of another model. (`stop_strings` transformers itself
    refuses where the loop is not its own: give a StopStringCriteria among `stopping_criteria`.)

    `policy` chooses what of a block is verified; `answers` are the generations of the last call, a row each.
    """

    def __init__(self, drafter: str, model, policy: Policy | None = None):
        self.target, self.policy = Target(model), policy
        self.drafter = load_drafter(drafter, self.target)
        self.answers: list[Generation] = []

    def __call__(self, model, input_ids, *, logits_processor, stopping_criteria, generation_config, **model_kwargs) -> torch.Tensor:
        """Prompts with their answers, ids [B, n + m], the shorter ones padded on the right."""
        # transformers (5.23) hands a callable neither of these two: without a look at its frame a streamer would wait forever.
        given = inspect.currentframe().f_back.f_locals
        streamer = given.get("streamer")
        self._check(model, input_ids, generation_config, model_kwargs, streamer, given.get("assistant_model"))
        sampled = generation_config.do_sample
        temperature = float(generation_config.temperature or 1.0) if sampled else 0.0
        prompts = unpadded(input_ids, model_kwargs.get("attention_mask"))
        target = Processed(model, logits_processor, temperature) if _reshapes(logits_processor) else self.target
        requests = begin_together(target, self.drafter, [prompt.to(target.device) for prompt in prompts], temperature=temperature,
                                  max_new_tokens=generation_config.max_length - input_ids.shape[1],
                                  stop_token_ids=_ids(generation_config.eos_token_id))
        rows = [_Row(row, request, stopping_criteria, streamer) for row, request in zip(input_ids, requests)]
        self._play(rows)
        if streamer is not None:
            streamer.end()
        self.answers = [row.request.answer for row in rows]
        padding, *_ = *_ids(generation_config.pad_token_id), 0
        answers = pad_sequence([input_ids.new_tensor(row.tokens) for row in rows], batch_first=True, padding_value=padding)
        return torch.cat([input_ids, answers], 1)

    def _play(self, rows: list["_Row"]) -> None:
        """Rounds of all rows until each is at its end."""
        policy = started(self.policy)
        while active := [row for row in rows if not row.ended]:
            step_together([row.request for row in active], policy)
            for row in active:
                row.take(row.request.answer.rounds[-1].tokens)

    def _check(self, model, input_ids, config, model_kwargs, streamer, assistant_model) -> None:
        """Raises RequestError for what is asked for and cannot be given."""
        if model is not self.target.model:
            raise RequestError("this drafter was loaded for another model object; make a CustomGenerate for the one that generates")
        if assistant_model is not None:
            raise RequestError("assistant_model and custom_generate both draft; give one of them")
        for name, allowed in REFUSED.items():
            if (value := getattr(config, name, None)) not in allowed:
                raise RequestError(f"{name} is {value!r}, which is not honoured with a drafter; leave it out, or leave out custom_generate")
        if unknown := sorted(name for name in model_kwargs.keys() - PREPARED if model_kwargs[name] is not None):
            raise RequestError(f"{', '.join(unknown)} cannot be handed to the model here; leave it out, or leave out custom_generate")
        cache = model_kwargs.get("past_key_values")
        if cache is not None and not (isinstance(cache, DynamicCache) and cache.get_seq_length() == 0):
            raise RequestError("past_key_values holds tokens that the drafter has not read, or is no DynamicCache; give the prompt and no cache")
        if streamer is not None and len(input_ids) > 1:
            raise RequestError(f"a streamer takes one answer, and {len(input_ids)} are asked for; stream one prompt at a time")


class Processed(Target):
    """A target whose logits pass through transformers' processors, each position's with the text before it, which lies
    with the cache. The processors divide by the temperature, and so does the round: it is multiplied in between."""

    def __init__(self, model, processors, temperature: float):
        super().__init__(model)
        self.processors, self.scale = processors, temperature or 1.0

    def prefill(self, input_ids, taps=()):
        """The prompt [1, n] is the beginning of the text."""
        step, cache = super().prefill(input_ids, taps)
        cache.text = input_ids
        return Step(self._processed(step.logits, input_ids), step.features), cache

    def verify(self, token_ids, cache, taps=()):
        """What the cache holds of the text stays, the tokens [1, k] are read after it."""
        cache.text = torch.cat([cache.text[:, :cache.get_seq_length()], token_ids], 1)
        step = super().verify(token_ids, cache, taps)
        return Step(self._processed(step.logits, cache.text), step.features)

    def _processed(self, logits, text) -> torch.Tensor:
        """Logits [1, k, V] after the last k tokens of a text [1, n], processed."""
        count = logits.shape[1]
        ends = range(text.shape[1] - count + 1, text.shape[1] + 1)
        return torch.stack([self.processors(text[:, :end], logits[:, k].clone()) for k, end in enumerate(ends)], 1) * self.scale


def _ids(given) -> list[int]:
    """The ids of a setting that holds none, one, or several."""
    return [] if given is None else [given] if isinstance(given, int) else list(given)


def _reshapes(processors) -> bool:
    """Whether processors do more than divide by the temperature, which a round does itself."""
    from transformers import TemperatureLogitsWarper

    return any(type(one) is not TemperatureLogitsWarper for one in processors)


class _Row:
    """A row of a batch: its prompt [n] as it came, its request, and the tokens that count, up to what ended it."""

    def __init__(self, prompt, request, criteria, streamer):
        self.prompt, self.request, self.criteria, self.streamer = prompt, request, criteria, streamer
        self.tokens, self.ended = [], False
        self.take(request.answer.token_ids)

    def take(self, tokens: list[int]) -> None:
        """Adds committed tokens until a criterion says that the answer ends, and shows them to the streamer."""
        for token in tokens:
            self.tokens.append(token)
            if self.streamer is not None:
                self.streamer.put(torch.tensor([token]))
            text = torch.cat([self.prompt, self.prompt.new_tensor(self.tokens)])[None]
            self.ended = bool(self.criteria(text, None).all())
            if self.ended:
                break
        self.ended = self.ended or self.request.finished  # also where the caller's own criterion of length is longer than what was prepared
        if self.ended:
            self.request.answer.token_ids = list(self.tokens)


def unpadded(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> list[torch.Tensor]:
    """The prompts [1, n] of a batch [B, N] that is padded on the left; raises RequestError for another mask."""
    if attention_mask is None:
        return list(input_ids.split(1))
    kept = attention_mask.sum(1).tolist()
    from_left = torch.arange(input_ids.shape[1], device=attention_mask.device) >= input_ids.shape[1] - attention_mask.sum(1, keepdim=True)
    if not torch.equal(from_left.to(attention_mask.dtype), attention_mask):
        raise RequestError("the attention mask hides tokens inside or at the end of a prompt; pad on the left, with zeros before the prompt alone")
    return [row[None, len(row) - count:] for row, count in zip(input_ids, kept)]
