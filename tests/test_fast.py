"""The fast path writes what the eager path writes, token for token and round for round."""

import gc
import os
import threading
import weakref
from copy import copy
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP

from dspark_lite import scheduling
from dspark_lite.common.errors import RequestError
from dspark_lite.course.extensions.block_verification import accept_block
from dspark_lite.decoding import generate, stream
from dspark_lite.decoding.proposal import Drafter
from dspark_lite.decoding.sampling import draw
from dspark_lite.drafters.layers import ContextCache, block_sparse
from dspark_lite.fast import (
    drafter as fast_drafters,
    fast_path,
    passes,
    static_context,
    target as fast_targets,
)
from dspark_lite.fast.static_context import StaticContext
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, load_target
from dspark_lite.scheduling.calibration import STS

VOCAB, GAMMA = 13, 4
TARGET, DRAFTERS = toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)
DRAFTERS = {"plain": None, **DRAFTERS}
PROMPTS = [
    torch.randint(VOCAB, (1, 3 + n), generator=torch.Generator().manual_seed(n)) for n in range(4)
]
has_compiler = passes.compile_backend(torch.device("cpu")) == "inductor"


SLOW = pytest.mark.slow(reason="each drafter and temperature is a compilation of its own")


@pytest.fixture
def uncompiled(monkeypatch):
    """Passes in fixed shapes, called as they are: what is left of the fast path without a compiler."""
    monkeypatch.setattr(passes, "_compiled", lambda method, backend: method)


def on(path):
    """The `prepare` of generate: None for False, else the fast path with this backend (True: the best)."""
    return partial(fast_path, backend=None if path is True else path) if path else None


def run(drafter, prompt, path, seed=0, target=TARGET, new=20, **options):
    """Tokens, and what was drafted and accepted in each round."""
    made = generate(
        target,
        drafter,
        prompt,
        max_new_tokens=new,
        stop_token_ids=(),
        prepare=on(path),
        generator=torch.Generator(target.device).manual_seed(seed),
        **options,
    )
    return made.token_ids, [(r.draft_tokens, r.accepted) for r in made.rounds]


def assert_equal_paths(drafter, prompts, path, **options):
    for seed, prompt in enumerate(prompts):
        assert run(drafter, prompt, path, seed, **options) == run(
            drafter, prompt, False, seed, **options
        )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", DRAFTERS)
def test_both_paths_write_the_same(uncompiled, name, temperature):
    target, drafters = toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)
    assert_equal_paths(
        {"plain": None, **drafters}[name],
        PROMPTS[:2],
        "eager",
        target=target,
        temperature=temperature,
        new=12,
    )


@SLOW
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", DRAFTERS)
def test_compiled_passes_write_the_same(name, temperature):
    assert_equal_paths(DRAFTERS[name], PROMPTS, "eager", temperature=temperature)


def test_what_is_compiled_writes_the_same_and_is_not_compiled_twice(monkeypatch):
    assert_equal_paths(DRAFTERS["dspark"], PROMPTS[:2], "eager", temperature=1.0)
    monkeypatch.setattr(torch, "compile", None)
    assert_equal_paths(DRAFTERS["dspark"], PROMPTS[2:], "eager", temperature=1.0)
    streamed = stream(
        TARGET,
        DRAFTERS["dspark"],
        PROMPTS[0],
        max_new_tokens=20,
        stop_token_ids=(),
        prepare=on("eager"),
        temperature=1.0,
        generator=torch.Generator().manual_seed(0),
    )
    assert sum(streamed, []) == run(DRAFTERS["dspark"], PROMPTS[0], False, temperature=1.0)[0]


class Noted(list):
    """A rule, block verification, that notes the blocks it was asked for; it is an empty list at first, which counts as false."""

    def __call__(self, *arguments):
        self.append(arguments[2].shape[1])
        return accept_block(*arguments)


OPTIONS = {
    "temperature": {"temperature": 0.3},
    "greedy": {"temperature": 0.0},
    "a fixed policy": {"policy": scheduling.fixed(2)},
    "a threshold": {"policy": scheduling.threshold(0.5)},
    "gamma": {"gamma": 2},
    "a stop id": {"stop_token_ids": [4, 7]},
    "fewer tokens": {"max_new_tokens": 5},
    "a rule": {"rule": Noted},
    "another seed": {"seed": 1},
    "torch's own generator": {"seed": None},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_does_the_same_on_both_paths(uncompiled, name):
    """And something: the text or its rounds differ from those without it."""

    def answers(path, options):
        options = {
            "temperature": 1.0,
            "stop_token_ids": (),
            "max_new_tokens": 14,
            "seed": 0,
            **options,
        }
        seed, rule = options.pop("seed"), options.pop("rule", lambda: None)()
        written = []
        for prompt in PROMPTS[:2]:
            torch.manual_seed(5)
            generator = None if seed is None else torch.Generator().manual_seed(seed)
            answer = generate(
                TARGET,
                DRAFTERS["dspark"],
                prompt,
                prepare=on(path),
                generator=generator,
                rule=rule,
                **options,
            )
            written.append(
                (
                    answer.token_ids,
                    [(r.proposed, r.accepted, r.committed, r.tokens) for r in answer.rounds],
                )
            )
        return written, rule

    TARGET.prepared, DRAFTERS["dspark"].prepared = {}, {}
    fast_answers = answers("eager", OPTIONS[name])
    slow_answers = answers(False, OPTIONS[name])
    usual = answers(False, {})
    TARGET.prepared, DRAFTERS["dspark"].prepared = {}, {}
    assert fast_answers == slow_answers and fast_answers[0] != usual[0]
    assert fast_answers[1] is None or len(fast_answers[1]) > 2


def test_storage_that_is_outgrown_is_exchanged(uncompiled, monkeypatch):
    """Of 20 entries: then of 32, with the same text."""
    monkeypatch.setattr(static_context, "MIN_CAPACITY", 20)
    target, drafters = toy_models(seed=2, vocab_size=VOCAB, gamma=GAMMA)
    assert_equal_paths(
        drafters["eagle3"], PROMPTS[:1], "eager", target=target, new=22, temperature=1.0
    )
    held = [part for part in target.prepared.values() if isinstance(part, fast_targets.FastTarget)]
    assert [part.context.capacity for part in held] == [32]


class Replayed(passes.CompiledPass):
    """What a CompiledPass does with CUDA: for each limit the first call is recorded, and its operations are played again into the same tensors."""

    def __call__(self, limit=0):
        if limit not in (played := self.__dict__.setdefault("played", {})):
            with Recording() as recording:
                results = self.function()
            played[limit] = recording.operations, results
        operations, results = played[limit]
        for operation, arguments, options, results_then in operations:
            for old, new in zip(
                tree_leaves(results_then), tree_leaves(operation(*arguments, **options))
            ):
                if (
                    isinstance(old, torch.Tensor)
                    and old.numel()
                    and old.data_ptr() != new.data_ptr()
                ):
                    old.copy_(new)
        return results


class Recording(TorchDispatchMode):
    """The operations that are done within."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        result = operation(*arguments, **(options or {}))
        self.operations.append((operation, arguments, options or {}, result))
        return result


@pytest.mark.parametrize("name", ["dspark", "eagle3", "mtp"])
def test_a_short_text_after_a_long_one_is_drafted_from_its_own_features(monkeypatch, name):
    """Where passes are replayed no Python runs: what they leave behind belongs to the limit that was replayed."""
    monkeypatch.setattr(passes.CompiledPass, "__call__", Replayed.__call__)
    monkeypatch.setattr(
        static_context, "_rounded", lambda needed, device: max(16, 1 << (needed - 1).bit_length())
    )
    target, drafters = toy_models(seed=1, vocab_size=8, gamma=3)
    for new in (8, 30, 8):
        for seed, prompt in enumerate(PROMPTS[:1]):
            assert run(
                drafters[name], prompt % 8, "eager", seed, target, new, temperature=1.0
            ) == run(drafters[name], prompt % 8, False, seed, target, new, temperature=1.0)


class Adapted(nn.Module):
    """A linear layer with two adapters, of which the active one counts unless they are off; trained, they count twice."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base = base
        self.active_adapter = "a"
        self.off = False
        self.scaling = {"a": 1.0, "b": 1.0}
        self.steering = SimpleNamespace(strength=0.0)
        self.adapters = nn.ModuleDict(
            {name: nn.Linear(base.in_features, base.out_features, bias=False) for name in "ab"}
        )
        for seed, adapter in enumerate(self.adapters.values()):
            adapter.weight.data = torch.randn(
                adapter.weight.shape, generator=torch.Generator().manual_seed(seed)
            )

    def forward(self, x):
        scale = 0.0 if self.off else self.scaling[self.active_adapter] * (2 if self.training else 1)
        return self.base(x) + self.steering.strength + scale * self.adapters[self.active_adapter](x)


def noise(tensor, seed=0):
    return 2 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed))


def swap(weight):
    weight.data[:] = weight.data.flip(0)


def change_a_number(weight, row=-1, column=-1):
    weight.detach().numpy()[row, column] += 100


CHANGES = {  # of a target's second layer, or of the drafter
    "another adapter": lambda layer, drafter: setattr(layer.mlp.down_proj, "active_adapter", "b"),
    "adapters off": lambda layer, drafter: setattr(layer.mlp.down_proj, "off", True),
    "an adapter's scale": lambda layer, drafter: layer.mlp.down_proj.scaling.update(a=-2.0),
    "train mode": lambda layer, drafter: layer.train(),
    "all rows but the first": lambda layer, drafter: layer.mlp.up_proj.weight[1:].add_(
        noise(layer.mlp.up_proj.weight[1:])
    ),
    "the same, uncounted": lambda layer, drafter: layer.mlp.up_proj.weight.data[1:].add_(
        noise(layer.mlp.up_proj.weight[1:])
    ),
    "the last number, by NumPy": lambda layer, drafter: change_a_number(layer.mlp.up_proj.weight),
    "the order of rows": lambda layer, drafter: swap(layer.mlp.gate_proj.weight),
    "a parameter": lambda layer, drafter: setattr(
        layer.mlp.up_proj, "weight", nn.Parameter(noise(layer.mlp.up_proj.weight))
    ),
    "a module": lambda layer, drafter: setattr(layer, "mlp", nn.Identity()),
    "a setting of a module": lambda layer, drafter: setattr(layer.self_attn, "scaling", 5.0),
    "an object in a module": lambda layer, drafter: setattr(
        layer.mlp.down_proj.steering, "strength", -3.0
    ),
    "a draft's last number": lambda layer, drafter: change_a_number(drafter.lm_head.weight),
    "a draft's softcap": lambda layer, drafter: setattr(drafter, "logit_softcap", 0.01),
    "a draft's calibration": lambda layer, drafter: STS([0.2] * GAMMA).attach(drafter),
    "a draft's calibration, in place": lambda layer, drafter: drafter.temperatures.mul_(0.2),
}


@pytest.mark.parametrize(
    ("name", "copied"),
    [
        *((name, True) for name in CHANGES),
        ("another adapter", False),
        ("a parameter", False),
        ("a setting of a module", False),
        ("a draft's softcap", False),
    ],
)
def test_a_change_counts_from_the_next_answer_on(monkeypatch, name, copied):
    """Weights, modules, adapters and settings, with replayed passes: of the model itself, as on a GPU, and of a copy."""
    monkeypatch.setattr(passes.CompiledPass, "__call__", Replayed.__call__)
    if not copied:
        for room in (fast_targets, fast_drafters):
            monkeypatch.setattr(room, "column_major", lambda model: model)
    target, drafters = toy_models(seed=5, vocab_size=VOCAB, gamma=GAMMA)
    drafter, layer = drafters["dspark"], target.model.model.layers[1]
    options = {"target": target, "policy": scheduling.threshold(0.2), "temperature": 1.0, "new": 9}
    layer.mlp.down_proj = Adapted(layer.mlp.down_proj).eval()
    STS([1.0] * GAMMA).attach(drafter)
    before = run(drafter, PROMPTS[1], "eager", **options)
    made = (target.prepared, drafter.prepared)
    assert (
        run(drafter, PROMPTS[1], False, **options)
        == run(drafter, PROMPTS[1], "eager", **options)
        == before
    )
    assert target.prepared is made[0] and drafter.prepared is made[1], "nothing has changed"
    with torch.no_grad():
        CHANGES[name](layer, drafter)
    slow = run(drafter, PROMPTS[1], False, **options)
    assert slow != before
    assert run(drafter, PROMPTS[1], "eager", **options) == slow


def test_a_change_in_a_small_language_model_or_a_class_counts_too(monkeypatch):
    monkeypatch.setattr(passes.CompiledPass, "__call__", Replayed.__call__)
    target, drafters = toy_models(seed=5, vocab_size=VOCAB, gamma=GAMMA)
    drafter, usual = drafters["small_lm"], Qwen3MLP.forward
    for change in (
        lambda: None,
        lambda: change_a_number(drafter.model.model.lm_head.weight, row=3),
        lambda: monkeypatch.setattr(Qwen3MLP, "forward", lambda self, x: -usual(self, x)),
    ):
        change()
        assert_equal_paths(drafter, PROMPTS[:2], "eager", target=target, new=8)


def test_autocast_is_refused(uncompiled):
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(RequestError, match="autocast is on; .*decode without it"),
    ):
        run(None, PROMPTS[0], "eager")


class Int8Weights(nn.Parameter):
    """As a library of quantised weights has them."""


REFUSED = {
    "forward hook": (
        lambda model: model.model.layers[1].register_forward_hook(lambda *given: None),
        "target's model.layers.1 has a forward hook",
    ),
    "hook before": (
        lambda model: model.lm_head.register_forward_pre_hook(lambda *given: None),
        "target's lm_head has a forward hook",
    ),
    "hook of all": (
        lambda model: nn.modules.module.register_module_forward_hook(lambda *given: None),
        "forward hook of all modules",
    ),
    "hook before all": (
        lambda model: nn.modules.module.register_module_forward_pre_hook(lambda *given: None),
        "forward hook of all modules",
    ),
    "own forward": (
        lambda model: setattr(model.model.layers[0].mlp, "forward", lambda x: x),
        "layers.0.mlp has a forward of its own",
    ),
    "int8": (
        lambda model: setattr(
            model.lm_head, "weight", Int8Weights(model.lm_head.weight.char(), requires_grad=False)
        ),
        r"lm_head.weight is no plain tensor \(Int8Weights\)",
    ),
    "float8": (
        lambda model: setattr(
            model.lm_head,
            "weight",
            nn.Parameter(model.lm_head.weight.to(torch.float8_e4m3fn), False),
        ),
        "float8",
    ),
    "sparse": (
        lambda model: setattr(
            model.lm_head, "weight", nn.Parameter(model.lm_head.weight.to_sparse(), False)
        ),
        "sparse",
    ),
    "offloaded": (
        lambda model: setattr(
            model.lm_head, "weight", nn.Parameter(model.lm_head.weight.to("meta"), False)
        ),
        "offloaded",
    ),
    "quantised": (
        lambda model: setattr(model, "is_quantized", True),
        "target's Qwen3ForCausalLM is quantised",
    ),
    "no copy": (lambda model: setattr(model, "lock", threading.Lock()), "cannot be copied"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_be_watched_is_refused_in_a_sentence(uncompiled, name):
    """Before the first answer and after it."""
    change, sentence = REFUSED[name]
    for answers in (0, 1):
        target, _ = toy_models(seed=5, vocab_size=VOCAB, gamma=GAMMA)
        for _ in range(answers):
            run(None, PROMPTS[0], "eager", target=target)
        handle = change(target.model)
        try:
            with pytest.raises(RequestError, match=f"{sentence}.*decode without it"):
                run(None, PROMPTS[0], "eager", target=target)
        finally:
            handle and handle.remove()


def test_a_hook_that_was_removed_and_a_forward_that_was_restored_do_not_count(uncompiled):
    target, drafters = toy_models(seed=5, vocab_size=VOCAB, gamma=GAMMA)
    layer = target.model.model.layers[1]
    layer.register_forward_hook(lambda *given: None).remove()
    layer.forward = layer.forward
    assert_equal_paths(drafters["dspark"], PROMPTS[:1], "eager", target=target, new=6)


def test_plain_linear_layers_alone_are_copied():
    class Own(nn.Linear):
        """A layer with a weight that other code may look for."""

    model = nn.Sequential(nn.Linear(3, 4), Own(4, 5), nn.Embedding(5, 6))
    second = passes.column_major(model)
    copied = [one.weight.data_ptr() != two.weight.data_ptr() for one, two in zip(model, second)]
    assert copied == [True, False, False] and second[0].weight.stride() == (1, 4)


def test_models_are_left_as_they_were(uncompiled, tmp_path):
    """The layout of their weights, what they share, and that they can be saved."""
    target, drafters = toy_models(seed=3, vocab_size=VOCAB, gamma=GAMMA)
    target.model.lm_head.weight = target.model.model.embed_tokens.weight
    drafter = drafters["dspark"]
    drafter.embed_tokens.weight = target.model.lm_head.weight
    drafter.lm_head.weight = drafters["dflash"].lm_head.weight
    models = (target.model, drafter)
    before = [
        [(name, value.data_ptr(), value.stride()) for name, value in model.state_dict().items()]
        for model in models
    ]
    assert_equal_paths(drafter, PROMPTS[:1], "eager", target=target)
    assert [
        [(name, value.data_ptr(), value.stride()) for name, value in model.state_dict().items()]
        for model in models
    ] == before
    save_file(drafter.state_dict(), tmp_path / "drafter.safetensors")


def test_compiled_parts_go_with_their_drafter_and_few_temperatures_stay(uncompiled):
    target, drafters = toy_models(seed=4, vocab_size=VOCAB, gamma=GAMMA)
    drafter = drafters["dflash"]
    for temperature in (0.0, 0.5, 0.6, 0.7, 0.8, 0.9):
        run(drafter, PROMPTS[0], "eager", target=target, new=3, temperature=temperature)
    (part,) = drafter.prepared.values()
    assert len(part.drafting) == fast_drafters.KEPT_TEMPERATURES
    alive = weakref.ref(drafter), weakref.ref(part)
    del drafter, drafters, part
    gc.collect()
    assert [one() for one in alive] == [None, None]


def test_an_older_text_takes_nothing_back_from_the_newer_one():
    target = fast_targets.FastTarget(TARGET, 2, "eager")
    (_, older), (_, newer) = (target.prefill(prompt) for prompt in PROMPTS[:2])
    with pytest.raises(RequestError, match="has begun another text since"):
        target.roll_back(older, 1)
    assert newer.get_seq_length() == PROMPTS[1].shape[1]


def test_two_texts_at_once_are_refused(uncompiled):
    streams = [
        stream(TARGET, None, prompt, max_new_tokens=9, stop_token_ids=(), prepare=on("eager"))
        for prompt in PROMPTS[:2]
    ]
    for one in streams:
        next(one)
    with pytest.raises(RequestError, match="has begun another text since"):
        next(streams[0])
    assert len(next(streams[1])) == 1


def test_what_has_no_fast_path_is_refused_in_a_sentence():
    def changed(**attributes):
        other = copy(TARGET)
        vars(other).update(attributes, prepared={})
        return other

    elsewhere = changed(device=torch.device("meta"))
    with pytest.raises(
        RequestError,
        match="is on meta; the fast path runs on a CPU or with CUDA: decode without it",
    ):
        fast_path(elsewhere, None)
    sliding = changed(has_windows=True)
    with pytest.raises(
        RequestError,
        match="layers with a sliding window or a recurrent state; the fast path holds full attention alone",
    ):
        fast_path(sliding, None, backend="eager")
    untold = changed(config=SimpleNamespace(num_attention_heads=2))
    with pytest.raises(
        RequestError, match="whose config does not tell its key heads; .*decode without it"
    ):
        fast_path(untold, None, backend="eager")
    with pytest.raises(
        RequestError,
        match="backend is 'swift'; it must be None or one of torch.compile: .*inductor",
    ):
        fast_path(TARGET, None, backend="swift")
    with pytest.raises(RequestError, match="a SimpleNamespace has no fast path"):
        fast_path(SimpleNamespace(), None)
    own = type(
        "Own", (Drafter,), dict(name="own", gamma=2, taps=(), begin=len, propose=len, extend=len)
    )
    with pytest.raises(RequestError, match="a Own has no fast path; decode without it"):
        generate(TARGET, own(), PROMPTS[0], max_new_tokens=3, prepare=on("eager"))
    choices = passes.PreparedNoise()
    with pytest.raises(RequestError, match="the generator is a PreparedNoise"):
        generate(
            TARGET,
            DRAFTERS["mtp"],
            PROMPTS[0],
            max_new_tokens=3,
            generator=choices,
            prepare=on("eager"),
        )


def test_a_draw_is_that_of_multinomial():
    probs = torch.rand(2, 3, 40).softmax(-1) * (torch.rand(2, 3, 40) > 0.3)
    ours, theirs = (torch.Generator().manual_seed(7) for _ in range(2))
    for _ in range(50):
        expected = torch.multinomial(probs.flatten(0, 1), 1, generator=theirs).view(2, 3)
        assert torch.equal(draw(probs, ours), expected)
    assert torch.equal(ours.get_state(), theirs.get_state())


def test_static_storage_is_written_and_read_where_the_growing_one_is():
    growing = ContextCache(1)
    first, second = (torch.randn(2, 1, 2, 5, 8) for _ in range(2))
    growing.append(0, *first)
    growing.advance(5)
    static = StaticContext(growing.pairs)
    static.take_over(growing.pairs, 5)
    limit = static.begin_pass(5)
    keys, values = static.append(0, *second)
    seen = growing.append(0, *second)
    assert (
        limit == 64
        and keys.shape[2] == 64
        and static.positions(second[0].transpose(1, 2)).tolist() == [[5, 6, 7, 8, 9]]
    )
    assert torch.equal(keys[:, :, :10], seen[0]) and torch.equal(values[:, :, :10], seen[1])
    assert (static.mask(5)[0, 0, 0] == 0).tolist() == [True] * 10 + [False] * 54
    causal = static.causal_mask(torch.tensor([[5, 6]]))
    assert (causal[0, 0] == 0).sum(-1).tolist() == [6, 7]


def test_storage_that_grows_keeps_its_text():
    static = StaticContext([(torch.zeros(1, 1, 0, 2),) * 2])
    held = torch.randn(2, 1, 1, static_context.MIN_CAPACITY - 3, 2)
    static.take_over([tuple(held)], held.shape[3])
    entering = torch.randn(2, 1, 1, 7, 2)
    assert static.begin_pass(7) > static_context.MIN_CAPACITY
    for stored, old, new in zip(static.append(0, *entering), held, entering, strict=True):
        assert torch.equal(stored[:, :, : held.shape[3] + 7], torch.cat([old, new], 2))


@pytest.mark.parametrize(
    ("capability", "serves"), [((7, 5), False), ((8, 0), True), ((9, 0), True)]
)
def test_one_rule_says_where_flex_attention_serves(monkeypatch, capability, serves):
    from dspark_lite.serving.slots import SlotStore
    from dspark_lite.training import blocks

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    monkeypatch.setattr(blocks, "sparse_mask", lambda *given: "sparse")
    gpu = torch.device("cuda")
    assert block_sparse(gpu) == SlotStore(1, 1, 8, gpu).flex == serves
    assert blocks.block_mask(SimpleNamespace(device=gpu), 8, 4) == ("sparse" if serves else None)
    assert not block_sparse(torch.device("cpu"))


@pytest.mark.skipif(
    not (has_compiler and os.environ.get("DSPARK_THOROUGH")),
    reason="DSPARK_THOROUGH=1 and a C++ compiler: minutes",
)
@pytest.mark.parametrize("name", [None, "tiny-dspark", "tiny-dflash", "tiny-eagle3"])
def test_inductor_writes_the_same_with_the_tiny_models(name):
    target = load_target("tiny-target")
    drafter, generator = name and load_drafter(name, target), torch.Generator().manual_seed(3)
    prompts = [torch.randint(1000, (1, length), generator=generator) for length in (9, 60, 200)]
    for temperature in (0.0, 1.0):
        assert_equal_paths(
            drafter, prompts, "inductor", target=target, new=60, temperature=temperature
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", ["plain", "dspark", "dflash", "eagle3"])
@pytest.mark.parametrize("path", ["eager", True])
def test_captured_graphs_write_the_same(name, temperature, path):
    target, drafters = toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)
    target.model.cuda()
    target.device, drafter = torch.device("cuda"), {"plain": None, **drafters}[name]
    assert_equal_paths(
        drafter and drafter.cuda(),
        [prompt.cuda() for prompt in PROMPTS],
        path,
        target=target,
        temperature=temperature,
    )


def test_drafters_of_one_block_size_and_other_taps_take_turns_on_one_target(uncompiled):
    target, drafters = toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)
    for name in ("prompt_lookup", "dspark", "prompt_lookup"):
        slow, quick = (
            run(drafters[name], PROMPTS[0], path, target=target) for path in (False, "eager")
        )
        assert slow == quick, name
