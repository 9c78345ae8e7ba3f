"""The target: a transformers language model that reads prompts, verifies blocks and rolls its cache back."""

import inspect
from contextlib import contextmanager
from typing import NamedTuple

import torch
from transformers import DynamicCache, PreTrainedModel

from ..common.errors import CheckpointError, DSparkLiteError


class Step(NamedTuple):
    """One pass of the target: float32 `logits` [B, k, V] of the last k positions, and the tapped hidden states
    `features` [B, n, taps * H] of all n positions that went in (None without taps)."""

    logits: torch.Tensor
    features: torch.Tensor | None


@contextmanager
def within_memory(work: str):
    """Raises DSparkLiteError where the GPU's memory has no room for the `work` done inside."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DSparkLiteError(
            f"{work} does not fit beside what the GPU's memory holds; take a shorter prompt or fewer requests at once, "
            "or restart the kernel and end what else runs on the GPU (python -m dspark_lite doctor says what fits)"
        ) from error


def unwrapped(model):
    """The model of transformers inside what PEFT, torch.compile or a module of one's own has put around it: what `generate`
    runs, also when it is called on the wrapper. Raises CheckpointError for a wrapper of PEFT that is more than layers inside."""
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise CheckpointError(
            "PEFT puts learned tokens before each prompt of this model (prompt or prefix tuning), which the model inside never "
            "sees; drafting needs an adapter inside the layers, such as LoRA"
        )
    return next(
        (module for module in model.modules() if isinstance(module, PreTrainedModel)), model
    )


class Target:
    """A causal language model of transformers, its tokenizer (None where there is none), and what drafters ask of it.

    `has_windows` says whether some of its layers see a sliding window alone, `has_states` whether some keep a recurrent state
    in the place of keys and values, from which no token can be taken back: such a target decodes without a drafter.
    """

    def __init__(self, model, tokenizer=None, name: str = "target"):
        model = unwrapped(model)
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        if (
            model.config.is_encoder_decoder
            or "past_key_values" not in inspect.signature(model.forward).parameters
        ):
            raise CheckpointError(
                f"{name} is a {type(model).__name__}, which is no causal model with a cache of keys and values; a target is one, "
                "such as a Qwen3ForCausalLM"
            )
        self.config = (
            model.config.get_text_config()
        )  # of a model that also sees or hears, what its language model is
        layers = DynamicCache(
            config=self.config
        ).layers  # each of the kind that its layer of the model asks for
        self.has_windows = any(getattr(layer, "is_sliding", False) for layer in layers)
        # The caches of transformers 5.0 do not tell these.
        self.has_states = (
            getattr(model, "_is_stateful", False)
            or any(hasattr(layer, "recurrent_states") for layer in layers)
            or ("linear_attention" in (getattr(self.config, "layer_types", None) or ()))
        )
        self.vocab_size = self.config.vocab_size
        self.hidden_size = self.config.hidden_size
        self.num_layers = self.config.num_hidden_layers
        self.max_positions = self.config.max_position_embeddings
        self.device, self.dtype = model.device, model.dtype
        self.fast_parts: dict = {}  # what decoding/fast.py has made of it

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The ids that end an answer, from the generation config."""
        stop = self.model.generation_config.eos_token_id
        return () if stop is None else (stop,) if isinstance(stop, int) else tuple(stop)

    def check_rollback(self) -> None:
        """Raises CheckpointError for a target whose rejected drafts could not be forgotten."""
        if self.has_states:
            raise CheckpointError(
                f"{self.name} has layers with a recurrent state (linear attention), from which rejected drafts cannot be taken "
                "back; decode it without a drafter, or take a target whose layers all attend to keys and values"
            )

    def check_taps(self, taps, after_norm: bool = False) -> None:
        """Raises CheckpointError unless every tapped layer exists and is read before the final norm; a drafter made for the
        hidden state `after_norm` (MTP) taps the last layer and no other."""
        last = self.num_layers - 1
        if after_norm and tuple(taps) != (last,):
            raise CheckpointError(
                f"the drafter taps layers {', '.join(map(str, taps))}, but it is made for the hidden state after the "
                f"final norm, which this target has at layer {last} alone"
            )
        for layer in () if after_norm else taps:
            if not -1 <= layer < last:
                raise CheckpointError(
                    f"the drafter taps layer {layer}, but this target can be tapped at -1 (the embedding) to "
                    f"{last - 1}: it has {self.num_layers} layers and the last is read after the norm"
                )

    @torch.inference_mode()
    def prefill(self, input_ids: torch.Tensor, taps=()) -> tuple[Step, DynamicCache]:
        """Reads prompts [B, n]; returns the logits [B, 1, V] after them with their features, and the new cache."""
        # Layers that see a window would forget what lies before it, and then cannot be rolled back: they keep all, and the
        # mask hides it.
        cache = DynamicCache() if self.has_windows else DynamicCache(config=self.config)
        return self.read(input_ids, cache, taps, logits_to_keep=1), cache

    @torch.inference_mode()
    def verify(self, token_ids: torch.Tensor, cache: DynamicCache, taps=()) -> Step:
        """Reads [anchor, drafts] [B, k] after the cache in one pass; logits and features of all k positions."""
        return self.read(token_ids, cache, taps)

    def roll_back(self, cache: DynamicCache, dropped: int) -> None:
        """Forgets the last `dropped` positions. A negative crop means "drop" in every supported transformers."""
        if dropped:
            cache.crop(-dropped)

    def last_hidden(self, input_ids: torch.Tensor, taps=()) -> tuple[torch.Tensor, torch.Tensor]:
        """Final-norm hidden states [B, n, H] and features [B, n, taps * H] of whole sequences (training)."""
        states = self.model.model(input_ids=input_ids, use_cache=False, output_hidden_states=True)
        return states.last_hidden_state, self._tap(states.hidden_states, taps)

    def read(self, input_ids: torch.Tensor, cache, taps=(), logits_to_keep=0, **options) -> Step:
        """One pass over tokens [B, n]: logits of all, of the last `logits_to_keep`, or at a tensor of indices; `options` go
        to the model and its attention (serving/slots.py). Raises DSparkLiteError where the GPU's memory has no room for it."""
        with within_memory(f"a pass of {self.name} over {input_ids.numel()} tokens"):
            out = self.model(
                input_ids=input_ids,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=logits_to_keep,
                output_hidden_states=len(taps) > 0,
                **options,
            )
        return Step(out.logits.float(), self._tap(out.hidden_states, taps) if taps else None)

    @staticmethod
    def _tap(hidden_states, taps) -> torch.Tensor:
        """Index 0 of transformers' hidden states is the embedding, so layer i stands at i + 1."""
        return torch.cat([hidden_states[layer + 1] for layer in taps], -1)
