"""Passes in fixed shapes: compiled once, captured on CUDA, with random numbers drawn before they run."""

import copy
import types

import torch

from ..common.errors import RequestError
from ..decoding.sampling import RandomSource, first_to_ring
from .static_context import StaticContext


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


class CompiledPass:
    """A compiled function without arguments. Its shapes are fixed, except for the context's limit.

    On CUDA it is captured once for each limit and replayed. A capture calls the function three
    times, so calls must be idempotent.
    """

    def __init__(self, function, context: StaticContext | None, backend: str, device: torch.device):
        self.function, self.context, self.backend, self.device = function, context, backend, device
        self.capacity: int | None = None

    def __call__(self, limit: int = 0):
        capacity = self.context.capacity if self.context else 0
        if capacity != self.capacity:  # the context has new storage
            self.compiled = _compiled(self.function, self.backend)
            self.graphs = {}
            self.capacity = capacity
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
        with torch.cuda.device(self.device), torch.cuda.stream(side):
            for _ in range(2):  # capture neither compilation nor first allocations
                self.compiled()
        main.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device), torch.cuda.graph(graph):
            results = self.compiled()
        return graph, results


def _compiled(method, backend: str):
    """Return a bound method, compiled without guards.

    The caller ensures that only the contents of tensors change between calls.
    """
    # dynamo stores compilations with the code object, which all objects of a class share.
    # Without guards each object needs its own code object.
    code = method.__func__.__code__.replace()
    function = types.FunctionType(
        code, method.__func__.__globals__, closure=method.__func__.__closure__
    )
    options = {"guard_filter_fn": lambda guards: [False] * len(guards)}
    return torch.compile(
        types.MethodType(function, method.__self__),
        fullgraph=True,
        backend=backend,
        options=options,
    )


def column_major(model: torch.nn.Module) -> torch.nn.Module:
    """Return, on a CPU, a copy of the model whose linear weights are column-major, which multiplies
    few rows faster.

    All other tensors are shared, an LM head tied to the embedding too. On other devices return the
    model itself. Raise RequestError for a model that cannot be copied.
    """
    tensors = [*model.parameters(), *model.buffers()]
    if not tensors or tensors[0].device.type != "cpu":
        return model
    shared = {id(tensor): tensor for tensor in tensors}
    # The copy begins without prepared passes.
    emptied = {
        id(vars(model)[name]): {} for name in ("prepared", "prepared_for") if name in vars(model)
    }
    try:
        second = copy.deepcopy(model, shared | emptied)
    except (TypeError, RuntimeError) as error:
        raise RequestError(
            f"a {type(model).__name__} cannot be copied ({error}), as the fast path does on a CPU: decode without it"
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
