"""The fast path: the same rounds in fixed shapes, each part one compiled pass.

On CUDA each part is one captured graph.

At batch 1 a round is thousands of small operations, and calling them costs more than computing
them. So each part is compiled once and called as a whole. For this, keys and values are in storage
that never moves (static_context.py), a verification always has gamma + 1 slots, the last ones
perhaps padding, and random numbers are drawn before a pass. The fast path compiles the target's and
the drafter's own code. Both paths draw the same random numbers in the same order, so they write the
same tokens, up to ties that rounding decides.
"""

import copy
import types

import torch

from ..common.errors import RequestError
from ..common.fingerprint import network
from .attention import attending
from .proposal import Drafter, Proposal, draft_length
from .sampling import Randomness, RandomSource, Verdict, accept, first_to_ring
from .static_context import STATIC, StaticContext
from .target import TargetOutput, Target
from .model_snapshot import snapshot


def compile_backend(device: torch.device) -> str:
    """Return "inductor" if it has a compiler for this device, else "eager" (fixed shapes only)."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch.utils._triton import has_triton

    if device.type == "cuda":
        return "inductor" if has_triton() else "eager"
    try:
        return "inductor" if get_cpp_compiler() else "eager"
    except Exception:  # without a compiler, each platform raises another error
        return "eager"


KEPT_TEMPERATURES = 4  # a drafter keeps a compiled pass for each of the last temperatures


class CompiledPass:
    """A compiled function without arguments. Its shapes are fixed, except for the context's limit.

    On CUDA it is captured once for each limit and replayed. Calling it again must not change its
    result.
    """

    def __init__(self, function, context: StaticContext | None, backend: str, device: torch.device):
        self.function, self.context, self.backend, self.device = function, context, backend, device
        self.capacity: int | None = None

    def __call__(self, limit: int = 0):
        capacity = self.context.capacity if self.context else 0
        if capacity != self.capacity:  # the context has new storage
            self.capacity, self.graphs, self.compiled = (
                capacity,
                {},
                _compiled(self.function, self.backend),
            )
        if self.device.type != "cuda":
            return self.compiled()
        if limit not in self.graphs:
            self.graphs[limit] = self._capture()
        graph, results = self.graphs[limit]
        graph.replay()
        return results

    def _capture(self):
        side, main = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            for _ in range(2):  # capture neither compilation nor first allocations
                self.compiled()
        main.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = self.compiled()
        return graph, results


def _compiled(method, backend: str):
    """Return a bound method, compiled without guards.

    The caller ensures that only the contents of tensors change between calls.
    """
    # dynamo stores compilations with the code object, which all objects of a class share.
    # Without guards each object needs its own code object.
    code = method.__func__.__code__.replace()
    own = types.FunctionType(code, method.__func__.__globals__, closure=method.__func__.__closure__)
    options = {"guard_filter_fn": lambda guards: [False] * len(guards)}
    return torch.compile(
        types.MethodType(own, method.__self__), fullgraph=True, backend=backend, options=options
    )


def column_major(model: torch.nn.Module) -> torch.nn.Module:
    """On a CPU, return a copy of the model whose linear weights are column-major, which multiplies
    few rows faster.

    All other tensors are shared, an LM head tied to the embedding too. On other devices return the
    model itself. Raise RequestError for a model that cannot be copied.
    """
    tensors = [*model.parameters(), *model.buffers()]
    if not tensors or tensors[0].device.type != "cpu":
        return model
    shared = {id(tensor): tensor for tensor in tensors}
    # The copy begins without prepared passes.
    made = {
        id(vars(model)[name]): {} for name in ("prepared", "prepared_for") if name in vars(model)
    }
    try:
        second = copy.deepcopy(model, shared | made)
    except (TypeError, RuntimeError) as error:
        raise RequestError(
            f"a {type(model).__name__} cannot be copied ({error}), as the fast path does on a CPU: decode with "
            "fast=False"
        ) from error
    embeddings = {
        module.weight.data_ptr()
        for module in model.modules()
        if isinstance(module, torch.nn.Embedding)
    }
    for module in second.modules():
        if type(module) is torch.nn.Linear and module.weight.data_ptr() not in embeddings:
            with torch.inference_mode(module.weight.is_inference()):
                module.weight = torch.nn.Parameter(
                    module.weight.detach().t().contiguous().t(), requires_grad=False
                )
    return second


class FastTarget(Target):
    """A target that verifies in passes of `slots` tokens, the last ones perhaps padding. It decodes
    one text at a time."""

    def __init__(self, target: Target, slots: int, backend: str):
        self.__dict__.update(target.__dict__)
        if target.has_windows or target.has_states:
            raise RequestError(
                f"{target.name} has layers with a sliding window or a recurrent state; the fast path holds full attention alone: "
                "decode with fast=False"
            )
        if not hasattr(target.config, "num_key_value_heads"):
            raise RequestError(
                f"{target.name} is a {type(target.model).__name__}, whose config does not tell its key heads; the fast path runs "
                "models with rotary positions and heads that share keys: decode with fast=False"
            )
        self.model = column_major(self.model)
        self.slots, self.backend, self.context = slots, backend, None
        self.token_ids = torch.zeros(1, slots, dtype=torch.long, device=target.device)

    @torch.inference_mode()
    def prefill(self, input_ids: torch.Tensor, taps=()) -> tuple[TargetOutput, "TextHandle"]:
        """Read the prompt as the target does, then copy its keys and values to static storage."""
        step, cache = super().prefill(input_ids, taps)
        pairs = [(layer.keys, layer.values) for layer in cache.layers]
        if self.context is None:
            self.taps, self.context = taps, StaticContext(pairs)
            self.reading = CompiledPass(self._read, self.context, self.backend, self.device)
        self.context.take_over(pairs, input_ids.shape[1])
        self.text = TextHandle(self.context)
        return step, self.text

    @torch.inference_mode()
    def verify(self, token_ids: torch.Tensor, cache: "TextHandle", taps=()) -> TargetOutput:
        """Return logits [1, k, V] and features [1, k, taps * H] of tokens [1, k], k <= `slots`."""
        self._check_newest(cache)
        count = token_ids.shape[1]
        self.token_ids[:, :count] = token_ids
        with attending(self.model, STATIC):
            logits, features = self.reading(self.context.enter(self.slots))
        self.context.commit(count)
        return TargetOutput(logits[:, :count], None if features is None else features[:, :count])

    def roll_back(self, cache: "TextHandle", dropped: int) -> None:
        """Forget the last `dropped` positions."""
        self._check_newest(cache)
        self.context.commit(-dropped)

    def _check_newest(self, cache: "TextHandle") -> None:
        if cache is not self.text:
            raise RequestError(
                "the fast path has begun another text since; decode one after the other, or with fast=False"
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


class PreparedNoise(RandomSource):
    """Random numbers drawn before a pass.

    A trial pass records which numbers are needed, in order; `refill` draws them as a generator
    would have.
    """

    def __init__(self):
        # Each with True for exponential numbers (tokens), False for uniform ones (coins).
        self.numbers: list[tuple[torch.Tensor, bool]] = []
        self.next = 0

    def refill(self, generator: torch.Generator | None, positions: int) -> None:
        """Draw the numbers of the next pass's first `positions` drafts.

        They are [1, V] for each draft, or [1, g, V] for all. Those of later drafts stay as they
        were.
        """
        for numbers, exponential in self.numbers[:positions]:
            numbers = numbers if numbers.ndim == 2 else numbers[:, :positions]
            if exponential:
                numbers.exponential_(generator=generator)
            else:
                numbers.uniform_(generator=generator)

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """Draw tokens [...] from distributions [..., V]."""
        return first_to_ring(probs, self._take(probs, exponential=True))

    def accepted_prefix_length(self, keep: torch.Tensor) -> torch.Tensor:
        """Toss coins [B, g], each true with probability `keep`. Return the number [B] of trues
        before the first false."""
        return (self._take(keep, exponential=False) < keep).long().cumprod(-1).sum(-1)

    def _take(self, like: torch.Tensor, exponential: bool) -> torch.Tensor:
        if self.next == len(self.numbers):
            self.numbers.append((torch.full_like(like, 0.5), exponential))
        self.next += 1
        return self.numbers[self.next - 1][0]


class FastDrafter(Drafter):
    """A trained drafter in fixed shapes, with blocks of `gamma` drafts.

    `make_static(state)` returns a copy of a drafter's state in static storage. The copy has a
    `context`, `load(state)` to copy another state into it, and a StaticContext's `enter` and
    `commit`.
    """

    def __init__(self, drafter, make_static, gamma: int, backend: str):
        self.drafter, self.backend = column_major(drafter), backend
        self.make_static = make_static
        self.name, self.gamma, self.taps = drafter.name, gamma, drafter.taps
        self.slots, self.state, self.drafting = drafter.gamma + 1, None, {}

    def begin(self, prompt_ids: torch.Tensor, features: torch.Tensor):
        """Return the state after prompts [1, n]. It overwrites the last text's state."""
        state, device = self.drafter.begin(prompt_ids, features), prompt_ids.device
        if self.state is None:
            self.state = self.make_static(state)
            self.anchor, self.token_ids = (
                torch.zeros(shape, dtype=torch.long, device=device)
                for shape in ((1,), (1, self.slots))
            )
            self.features = features.new_zeros(1, self.slots, features.shape[2])
            self.extending = CompiledPass(self._extend, self.state.context, self.backend, device)
        self.state.load(state)
        return self.state

    @torch.inference_mode()
    def propose(
        self,
        state,
        anchor: torch.Tensor,
        *,
        gamma: int | None = None,
        temperature: float,
        generator: Randomness,
    ) -> Proposal:
        """Draft a block after `anchor` [1], with the draws that the drafter itself would make.

        A shorter block, near an answer's end, is cut from a whole one, so nothing new is compiled.
        """
        if isinstance(generator, RandomSource):
            raise RequestError(
                f"the generator is a {type(generator).__name__}; the fast path draws from a torch.Generator or, with None, from "
                "torch's own"
            )
        self.anchor.copy_(anchor)
        limit = state.enter(self.slots)
        if temperature not in self.drafting:
            if len(self.drafting) == KEPT_TEMPERATURES:
                del self.drafting[next(iter(self.drafting))]
            self.drafting[temperature] = Drafting(self, temperature, anchor.device)
        return self.drafting[temperature](limit, draft_length(gamma, self.gamma), generator)

    @torch.inference_mode()
    def extend(self, state, token_ids: torch.Tensor, features: torch.Tensor) -> None:
        """Add newly committed tokens [1, t] and their features [1, t, taps * H]. The other slots
        are padding."""
        count = token_ids.shape[1]
        self.token_ids[:, :count], self.features[:, :count] = token_ids, features
        hidden = self.extending(state.enter(self.slots))
        if hidden is not None:
            state.hidden = hidden  # set here, because a replayed pass runs no Python
        state.commit(count)

    def _extend(self) -> torch.Tensor | None:
        self.drafter.extend(self.state, self.token_ids, self.features)
        return getattr(self.state, "hidden", None)


class Drafting:
    """A FastDrafter's pass that drafts whole blocks at one temperature."""

    def __init__(self, fast: FastDrafter, temperature: float, device: torch.device):
        self.fast, self.temperature, self.noise = fast, temperature, PreparedNoise()
        self._propose()  # the trial pass that records its random numbers
        self.run = CompiledPass(self._propose, fast.state.context, fast.backend, device)

    def __call__(self, limit: int, length: int, generator) -> Proposal:
        self.noise.refill(generator, length)
        parts = self.run(limit)
        # Copied, because the next round overwrites the originals.
        return Proposal(*(part if part is None else part[:, :length].clone() for part in parts))

    def _propose(self):
        self.noise.next = 0
        block = self.fast.drafter.propose(
            self.fast.state,
            self.fast.anchor,
            gamma=self.fast.gamma,
            temperature=self.temperature,
            generator=self.noise,
        )
        return block.tokens, block.probs, block.confidence_logits


class FastAccept:
    """`sampling.accept` in fixed shapes, for blocks of up to `gamma` drafts."""

    def __init__(self, gamma: int, vocab_size: int, device: torch.device, backend: str):
        self.target_probs, self.draft_probs = (
            torch.ones(1, count, vocab_size, device=device) for count in (gamma + 1, gamma)
        )
        self.draft_tokens = torch.zeros(1, gamma, dtype=torch.long, device=device)
        self.lengths = torch.zeros(1, dtype=torch.long, device=device)
        self.uniform, self.exponential = (
            torch.ones(1, gamma, device=device),
            torch.ones(1, vocab_size, device=device),
        )
        self.noise = PreparedNoise()
        self.noise.numbers = [(self.uniform, False), (self.exponential, True)]
        self.run = CompiledPass(self._accept, None, backend, device)

    def __call__(
        self, target_probs, draft_probs, draft_tokens, lengths, generator: Randomness
    ) -> Verdict:
        """Return the verdict on a whole block (`lengths` is None).

        Shapes: target_probs [1, g+1, V], draft_probs [1, g, V], draft_tokens [1, g].
        """
        count = draft_tokens.shape[1]
        (
            self.target_probs[:, : count + 1],
            self.draft_probs[:, :count],
            self.draft_tokens[:, :count],
        ) = target_probs, draft_probs, draft_tokens
        self.lengths.fill_(count)
        self.uniform[:, :count] = torch.rand(
            1, count, generator=generator, device=self.uniform.device
        )
        self.exponential.exponential_(generator=generator)
        return Verdict(*(part.clone() for part in self.run()))

    def _accept(self) -> Verdict:
        self.noise.next = 0
        return accept(
            self.target_probs, self.draft_probs, self.draft_tokens, self.lengths, self.noise
        )


def prepare_fast_path(
    target: Target, drafter, gamma: int | None, backend: str | bool
) -> tuple[FastTarget, object, FastAccept]:
    """Return the fast path's target, drafter (None without one) and accept rule.

    They are stored with the target and the drafter, so that nothing is compiled twice. They are
    made anew after either has changed (model_snapshot.py). `backend` is one of torch.compile's, or True
    for the best one here. Raise RequestError if the target or the drafter has no fast path.
    """
    if target.device.type not in ("cpu", "cuda"):
        raise RequestError(
            f"the target is on {target.device.type}; the fast path runs on a CPU or with CUDA: decode with fast=False"
        )
    for one, needed in ((target, "prepared"), (drafter, "fast")):
        if one is not None and not hasattr(one, needed):
            raise RequestError(f"a {type(one).__name__} has no fast path; decode with fast=False")
    length = draft_length(gamma, drafter.gamma) if drafter else 0
    backend = compile_backend(target.device) if backend is True else backend
    if backend not in (known := torch.compiler.list_backends(exclude_tags=())):
        raise RequestError(
            f"fast is {backend!r}; it must be True, False or a backend of torch.compile: {', '.join(known)}"
        )

    for owner in (target, drafter) if drafter else (target,):
        model = network(owner)
        made_of = None if model is None else snapshot(model, owner.name)
        if vars(owner).get("prepared_for", ()) != made_of:
            owner.prepared, owner.prepared_for = {}, made_of

    taps = drafter.taps if drafter else ()
    return (
        _prepared(
            target, ((length, taps), backend), lambda: FastTarget(target, length + 1, backend)
        ),
        drafter and _prepared(drafter, (length, backend), lambda: drafter.fast(length, backend)),
        _prepared(
            target,
            (length, backend),
            lambda: FastAccept(length, target.vocab_size, target.device, backend),
        ),
    )


def _prepared(owner, key, make):
    """Return `owner.prepared[key]`. If there is none, store what `make()` returns."""
    if key not in owner.prepared:
        owner.prepared[key] = make()
    return owner.prepared[key]
