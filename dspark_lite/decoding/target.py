"""The target: a language model of transformers that reads prompts, verifies blocks and rolls back
its cache."""

import inspect
import sys
from contextlib import contextmanager
from functools import cached_property
from numbers import Integral
from typing import NamedTuple

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from ..common.errors import CheckpointError, DSparkLiteError, RequestError

try:
    from transformers.utils.output_capturing import selected_hidden_states as _selection
except ImportError:
    _selection = None


class TargetOutput(NamedTuple):
    """The output of one pass of the target: float32 `logits` [B, k, V] of the last k positions, and
    the tapped hidden states `features` [B, n, taps * H] of all n positions (None without taps)."""

    logits: torch.Tensor
    features: torch.Tensor | None


@contextmanager
def within_memory(work: str):
    """Raise DSparkLiteError if the GPU has no memory for the `work` inside."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DSparkLiteError(
            f"{work} does not fit beside what the GPU's memory holds; take a shorter prompt or fewer requests at once, "
            "or restart the kernel and end what else runs on the GPU (python -m dspark_lite doctor says what fits)"
        ) from error


def unwrapped(model):
    """Return the transformers model inside a wrapper: of PEFT, of torch.compile, or a module of the
    user's own. Raise CheckpointError for a PEFT wrapper that adds tokens to the prompt."""
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise CheckpointError(
            "PEFT puts learned tokens before each prompt of this model (prompt or prefix tuning), which the model inside never "
            "sees; drafting needs an adapter inside the layers, such as LoRA"
        )
    return next(
        (module for module in model.modules() if isinstance(module, PreTrainedModel)), model
    )


def input_device(model) -> torch.device:
    """Return the device of a model's inputs; that of its passes if its embedding is offloaded."""
    if model.device.type != "meta":
        return model.device
    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    return torch.device(getattr(hook, "execution_device", None) or model.device)


class Target:
    """A causal language model of transformers with its tokenizer (None without one).

    `has_windows`: some layers attend only to a sliding window. `has_states`: some layers store a
    recurrent state instead of keys and values. A state cannot be cut, so `roll_back` reads the
    accepted tokens again.

    With a `prefill_chunk_size` a prompt is read in pieces of so many tokens, which bounds what a
    pass computes at once; a target with recurrent states reads it whole.
    """

    def __init__(
        self,
        model,
        tokenizer=None,
        name: str = "target",
        prefill_chunk_size: int | None = None,
    ):
        model = unwrapped(model)
        self.prefill_chunk_size = prefill_chunk_size
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        if (
            model.config.is_encoder_decoder
            or "past_key_values" not in inspect.signature(model.forward).parameters
        ):
            raise CheckpointError(
                f"{name} is a {type(model).__name__}, which is no causal model with a cache of keys and values; a target is one, "
                "such as a Qwen3ForCausalLM"
            )
        self.config = model.config.get_text_config()  # a multimodal model has several
        layers = DynamicCache(config=self.config).layers
        self.has_windows = any(getattr(layer, "is_sliding", False) for layer in layers)
        # In transformers 5.0 the cache of a recurrent layer looks like any other.
        self.has_states = (
            getattr(model, "_is_stateful", False)
            or any(hasattr(layer, "recurrent_states") for layer in layers)
            or ("linear_attention" in (getattr(self.config, "layer_types", None) or ()))
        )
        self.vocab_size = self.config.vocab_size
        self.hidden_size = self.config.hidden_size
        self.num_layers = self.config.num_hidden_layers
        # Models that see distances alone (ALiBi, recurrence) have no last position.
        self.max_positions = getattr(self.config, "max_position_embeddings", None) or sys.maxsize
        self.device, self.dtype = input_device(model), model.dtype

    def __repr__(self) -> str:
        return (
            f"Target({self.name}: {type(self.model).__name__}, {self.num_layers} layers, hidden size {self.hidden_size:,}, "
            f"{self.vocab_size:,} ids, {self.dtype} on {self.device})"
        )

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Return the ids that end an answer, from the generation config."""
        stop = self.model.generation_config.eos_token_id
        return () if stop is None else (stop,) if isinstance(stop, int) else tuple(stop)

    def check_rollback(self) -> None:
        """Raise CheckpointError for a target that cannot roll back rejected drafts."""
        if prefix := getattr(self.config, "prompt_length", 0):  # CPM-Ant's
            raise CheckpointError(
                f"{self.name} puts a learned prefix of {prefix} tokens before each prompt, behind which it reads no block of drafts; "
                "decode it without a drafter"
            )
        if self.has_states and self.device.type != "meta" and not self._goes_on_from_states:
            raise CheckpointError(
                f"{self.name} has layers with a recurrent state, and transformers does not read several tokens on from it, so "
                "rejected drafts cannot be taken back; decode it without a drafter, or take another target"
            )

    @cached_property
    def _goes_on_from_states(self) -> bool:
        """Return whether a target with recurrent states rolls back and reads on as if it had read the
        text in one pass. Some classes of transformers read a block without the state before it."""
        prompt, block, others = (
            torch.arange(*span, device=self.device)[None] % self.vocab_size
            for span in ((1, 7), (7, 12), (20, 23))
        )
        try:
            _, cache = self.prefill(prompt)
            self.verify(block, cache)
            self.roll_back(cache, 3)
            found = self.verify(others, cache).logits
            read, _ = self.prefill(torch.cat([prompt, block[:, :2], others], 1))
            whole = read.logits[:, -1]
        except Exception:  # transformers' classes raise what they please
            return False
        tolerance = 1e-3 if self.dtype == torch.float32 else 0.1
        return bool((found[:, -1] - whole).norm() <= tolerance * whole.norm())

    def check_taps(self, taps, after_norm: bool = False) -> None:
        """Raise CheckpointError unless every tapped layer exists and is read before the final norm. A
        drafter for the hidden state `after_norm` (MTP) taps only the last layer."""
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
    def prefill(
        self, input_ids: torch.Tensor, taps=(), cache: DynamicCache | None = None
    ) -> tuple[TargetOutput, DynamicCache]:
        """Read prompts [B, n] after a `cache` (None: a new one). Return the logits [B, 1, V] after them
        with all features, and the cache."""
        if cache is None:
            # A cache of a sliding window drops tokens and then cannot be rolled back. So it stores
            # all of them, and the mask hides those outside the window.
            cache = DynamicCache() if self.has_windows else DynamicCache(config=self.config)
        features = []
        for piece in self.pieces(input_ids):
            output = self.read(piece, cache, taps, logits_to_keep=1)
            features.append(output.features)
        return TargetOutput(output.logits, joined(features) if taps else None), cache

    def pieces(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the pieces in which prompts [B, n] are read. Raise RequestError for a size that is
        no number of tokens."""
        size = self.prefill_chunk_size
        if size is None or self.has_states:
            return (input_ids,)
        if not isinstance(size, Integral) or size < 1:
            raise RequestError(
                f"prefill_chunk_size is {size!r}; it is a number of tokens, 1 or more, or None"
            )
        return input_ids.split(size, 1)

    @torch.inference_mode()
    def verify(self, token_ids: torch.Tensor, cache: DynamicCache, taps=()) -> TargetOutput:
        """Read the anchor and k drafts [B, k+1] after the cache in one pass. Return logits and features
        of all k+1 positions."""
        if self.has_states and token_ids.shape[1] > 1:
            cache.before_block = _states(cache), token_ids
        return self.read(token_ids, cache, taps)

    @torch.inference_mode()
    def roll_back(self, cache: DynamicCache, dropped: int) -> None:
        """Remove the last `dropped` positions from the cache.

        A recurrent state cannot be cut: it is set to what it was before the last block, and the
        tokens of the block that stay are read again.
        """
        if not dropped:
            return
        if not self.has_states:
            cache.crop(-dropped)  # negative: how many to drop, in every supported transformers
            return
        states, token_ids = cache.before_block
        for layer in cache.layers:
            if isinstance(layer, DynamicLayer):
                DynamicLayer.crop(layer, -token_ids.shape[1])
        for held, before in zip(_states(cache, copied=False), states):
            held.copy_(before)
        kept = token_ids[:, : token_ids.shape[1] - dropped]
        cache.before_block = states, kept
        if kept.shape[1]:
            self.read(kept, cache, logits_to_keep=1)

    def last_hidden(self, input_ids: torch.Tensor, taps=()) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the final-norm hidden states [B, n, H] and features [B, n, taps * H] of whole
        sequences, for training."""
        states = self.model.base_model(
            input_ids=input_ids, use_cache=False, output_hidden_states=_tapped(taps)
        )
        return states.last_hidden_state, self._tap(states.hidden_states, taps)

    def read(
        self, input_ids: torch.Tensor, cache, taps=(), logits_to_keep=0, **options
    ) -> TargetOutput:
        """Run one pass over tokens [B, n]. Return the logits of all positions, of the last
        `logits_to_keep`, or at a tensor of indices. `options` are passed to the model and its
        attention (serving/slots.py). Raise DSparkLiteError if the GPU has no memory for the pass."""
        with within_memory(f"a pass of {self.name} over {input_ids.numel()} tokens"):
            out = self.model(
                input_ids=input_ids,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=logits_to_keep,
                output_hidden_states=_tapped(taps),
                **options,
            )
        return TargetOutput(
            out.logits.float(), self._tap(out.hidden_states, taps) if taps else None
        )

    @staticmethod
    def _tap(hidden_states, taps) -> torch.Tensor:
        """Return the hidden states of the tapped layers, side by side. Layer i is at index i + 1: index
        0 is the embedding."""
        return torch.cat([hidden_states[layer + 1] for layer in taps], -1)


def joined(pieces: list[torch.Tensor]) -> torch.Tensor:
    """Return the pieces [B, n, ...] of a text as one; a single piece is not copied."""
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)


def _states(cache: DynamicCache, copied: bool = True) -> list[torch.Tensor]:
    """Return the recurrent and convolutional states of a cache, or copies of them."""
    return [
        state.clone() if copied else state
        for layer in cache.layers
        for states in (getattr(layer, "recurrent_states", {}), getattr(layer, "conv_states", {}))
        for state in states.values()
        if state is not None
    ]


def _tapped(taps) -> bool | list[int]:
    """Return which hidden states a pass stores: the indices of those of the tapped layers. Those of
    all layers take far more memory for a long prompt. transformers returns a tuple of all layers
    with None at the others, so that `_tap` finds each at its index. Older versions store all."""
    return [layer + 1 for layer in taps] if taps and _selection else len(taps) > 0
