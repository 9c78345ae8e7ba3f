"""The target on the fast path: every verification is one pass of the same shape."""

import torch

from ..common.errors import RequestError
from ..decoding.attention import use_attention
from ..decoding.target import Target, TargetOutput
from .passes import CompiledPass, column_major
from .static_context import STATIC, StaticContext


class FastTarget(Target):
    """A target that verifies in passes of `slots` tokens, the last ones perhaps padding. It decodes
    one text at a time."""

    def __init__(self, target: Target, slots: int, backend: str):
        self.__dict__.update(target.__dict__)  # Target's constructor would end a train mode
        if target.has_windows or target.has_states:
            raise RequestError(
                f"{target.name} has layers with a sliding window or a recurrent state; the fast path holds full attention alone: "
                "decode without it"
            )
        if not hasattr(target.config, "num_key_value_heads"):
            raise RequestError(
                f"{target.name} is a {type(target.model).__name__}, whose config does not tell its key heads; the fast path runs "
                "models with rotary positions and heads that share keys: decode without it"
            )
        self.model = column_major(self.model)
        self.slots, self.backend, self.context = slots, backend, None
        self.token_ids = torch.zeros(1, slots, dtype=torch.long, device=target.device)

    @torch.inference_mode()
    def prefill(self, input_ids: torch.Tensor, taps=()) -> tuple[TargetOutput, "TextHandle"]:
        """Read the prompt as the target does, then copy its keys and values to static storage."""
        output, cache = super().prefill(input_ids, taps)
        pairs = [(layer.keys, layer.values) for layer in cache.layers]
        if self.context is None:
            self.taps, self.context = taps, StaticContext(pairs)
            self.reading = CompiledPass(self._read, self.context, self.backend, self.device)
        self.context.take_over(pairs, input_ids.shape[1])
        self.text = TextHandle(self.context)
        return output, self.text

    @torch.inference_mode()
    def verify(self, token_ids: torch.Tensor, cache: "TextHandle", taps=()) -> TargetOutput:
        """Return logits [1, k, V] and features [1, k, taps * H] of tokens [1, k], k <= `slots`."""
        self._check_newest(cache)
        count = token_ids.shape[1]
        self.token_ids[:, :count] = token_ids
        with use_attention(self.model, STATIC):
            logits, features = self.reading(self.context.begin_pass(self.slots))
        self.context.commit(count)
        return TargetOutput(logits[:, :count], None if features is None else features[:, :count])

    def roll_back(self, cache: "TextHandle", dropped: int) -> None:
        """Forget the last `dropped` positions."""
        self._check_newest(cache)
        self.context.commit(-dropped)

    def _check_newest(self, cache: "TextHandle") -> None:
        if cache is not self.text:
            raise RequestError(
                "the fast path has begun another text since; decode one after the other, or without the fast path"
            )

    def _read(self) -> TargetOutput:
        positions = self.context.positions(self.token_ids)
        mask = self.context.causal_mask(positions)
        return self.read(
            self.token_ids,
            self.context,
            self.taps,
            position_ids=positions,
            attention_mask={"full_attention": mask},
        )


class TextHandle:
    """The `cache` of a FastTarget's newest text. Once another one begins, the target refuses it."""

    def __init__(self, context: StaticContext):
        self.context = context

    def get_seq_length(self) -> int:
        """Return the number of tokens read so far. A small language model calls this."""
        return self.context.length
