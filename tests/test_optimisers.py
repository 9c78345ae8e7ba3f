"""What moves the weights, how they begin, and how a loss turns from one into another."""

import platform
import resource
import subprocess
import sys

import pytest
import torch
from torch import nn

from dspark_lite.course.command_line import main
from dspark_lite.course.data import recipes
from dspark_lite.drafters import DSpark, DSparkConfig
from dspark_lite.training import devices, train as training
from dspark_lite.training.blocks import loss_factors
from dspark_lite.training.drafts import initialise
from dspark_lite.training.optimisers import Muon, make_optimisers
from dspark_lite.training.plan import Plan
from dspark_lite.training.recipe import LossWeights

WIDTH, VOCAB, LAYERS = 64, 96, 3


def drafter():
    """A small DSpark with every kind of parameter, drawn as `initialise` does."""
    torch.manual_seed(0)
    model = DSpark(
        DSparkConfig(
            vocab_size=VOCAB,
            hidden_size=WIDTH,
            intermediate_size=128,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            rms_norm_eps=1e-6,
            rope_theta=1e4,
            target_layer_ids=(0, 1),
            block_size=4,
            mask_token_id=95,
            markov_rank=16,
            enable_confidence_head=True,
            confidence_head_with_markov=True,
            num_target_layers=4,
        )
    )
    initialise(model, LAYERS)
    return model


RESIDENT = """
import pathlib, tempfile, torch
from dspark_lite.training import devices
from dspark_lite.training.plan import Plan
from dspark_lite.training.train import UPDATES_PER_TRIM, optimise
found = []
devices.keep_freed_memory(torch.device("cpu"))
def loss_of(batch, progress):
    with open("/proc/self/statm") as counts:
        found.append(int(counts.read().split()[1]))
    del [torch.ones(1_000_000) for _ in range(64)][:]  # 256 MB, freed before the update ends
    loss = model(batch[0]).square().sum()
    return loss, torch.tensor(1.0), {"loss": loss}
model = torch.nn.Linear(2, 1)
optimise(model, lambda step: (torch.ones(1, 2),), loss_of, Plan(UPDATES_PER_TRIM + 2, 0.1), pathlib.Path(tempfile.mkdtemp()), title="test")
first, kept, given_back = found[0], found[UPDATES_PER_TRIM - 1], found[UPDATES_PER_TRIM]
print(kept - first, given_back - first)
"""


@pytest.mark.slow(reason="resident memory is that of a process of its own, which imports torch")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps memory at a word")
def test_the_loop_keeps_freed_memory_and_gives_it_back_after_some_updates():
    found = subprocess.run(
        [sys.executable, "-c", RESIDENT], check=True, capture_output=True, text=True
    ).stdout
    kept, left = map(int, found.split())
    assert left < kept / 2 and kept * resource.getpagesize() > 100e6


def test_where_the_c_library_cannot_keep_memory_or_there_is_none_of_a_cpu_nothing_is_done(
    monkeypatch,
):
    assert devices.c_library(torch.device("cuda")) is None
    for platform_name, library in (("linux", object()), ("win32", None)):
        monkeypatch.setattr(devices.sys, "platform", platform_name)
        monkeypatch.setattr(devices.ctypes, "CDLL", lambda name, library=library: library)
        assert devices.c_library(torch.device("cpu")) is None
        devices.keep_freed_memory(torch.device("cpu"))


class CLibrary:
    """glibc as the loop sees it; remembers what is asked of it."""

    def __init__(self):
        self.calls = []

    def mallopt(self, parameter, value):
        self.calls.append(("mallopt", parameter, value))

    def malloc_trim(self, left):
        self.calls.append(("malloc_trim", left))


@pytest.fixture
def library(monkeypatch):
    made = CLibrary()
    monkeypatch.setattr(devices.sys, "platform", "linux")
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: made)
    return made


def test_the_loop_gives_memory_back_and_changes_no_setting_of_its_process(library, tmp_path):
    model = nn.Linear(2, 1)

    def loss_of(batch, progress):
        loss = model(batch[0]).square().sum()
        return loss, torch.tensor(1.0), {"loss": loss}

    training.optimise(
        model,
        lambda step: (torch.ones(1, 2),),
        loss_of,
        Plan(2 * training.UPDATES_PER_TRIM + 1, 0.1),
        tmp_path,
        title="test",
    )
    assert library.calls == [("malloc_trim", 0)] * 2


def test_only_the_command_lines_own_process_has_freed_memory_kept(library, monkeypatch, tmp_path):
    """A program that calls the command, a notebook, say, keeps its malloc: mallopt cannot be taken back."""
    trained = []
    monkeypatch.setattr(
        recipes, "train", lambda *given, **options: trained.append(list(library.calls)) or tmp_path
    )
    command = ["train", "tiny-target", "--device", "cpu", "--out", str(tmp_path)]
    assert main(command) == 0
    monkeypatch.setattr(sys, "argv", ["dspark_lite", *command])
    assert main() == 0
    assert trained == [[], [("mallopt", -4, 0), ("mallopt", -1, -1)]]


def test_muon_moves_the_layers_matrices_and_adamw_everything_else():
    model = drafter()
    adamw, muon = make_optimisers(model, 0.003, 0.02)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    moved = [
        {names[id(p)] for group in optimiser.param_groups for p in group["params"]}
        for optimiser in (adamw, muon)
    ]
    assert moved[0].isdisjoint(moved[1]) and moved[0] | moved[1] == set(names.values())
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in moved[1]} == {
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
        "fc",
    }
    assert [group["lr"] for optimiser in (adamw, muon) for group in optimiser.param_groups] == [
        0.003,
        0.02,
    ]
    assert [type(optimiser) for optimiser in make_optimisers(model, 0.003)] == [
        torch.optim.AdamW
    ], "without a rate for Muon"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_muon_moves_matrices_as_torchs_does(dtype):
    """Of tall, wide and square matrices, two of a shape, over three updates, but for what rounding to 8 bits in five iterations makes."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(24, 8), (8, 24), (24, 8), (12, 12)]
    begun = [torch.randn(shape, generator=generator) for shape in shapes]
    ours, theirs = ([nn.Parameter(matrix.clone()) for matrix in begun] for _ in range(2))
    options = {"lr": 1.0, "momentum": 0.95, "weight_decay": 0.1}
    optimisers = Muon(ours, dtype, **options), torch.optim.Muon(theirs, **options)
    for _ in range(3):
        for one, other in zip(ours, theirs):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        for optimiser in optimisers:
            optimiser.step()
    for one, other, start in zip(ours, theirs, begun):
        assert (one - other).norm() < 0.06 * (other - start).norm()
        torch.testing.assert_close(
            optimisers[0].state[one]["momentum_buffer"],
            optimisers[1].state[other]["momentum_buffer"],
        )


def test_a_matrix_without_a_gradient_stays():
    still, moved = (nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    moved.grad = torch.eye(4)
    Muon([still, moved], torch.float32, lr=0.1).step()
    assert torch.equal(still, torch.ones(4, 4)) and not torch.equal(moved, torch.ones(4, 4))


def test_what_a_layer_gives_has_the_scale_of_what_it_is_given():
    model = drafter()
    layer, x = model.layers[0], torch.randn(500, WIDTH)
    assert layer.mlp.gate_proj(x).std().item() == pytest.approx(1.0, rel=0.15)
    assert layer.self_attn.q_proj(x).std().item() == pytest.approx(1.0, rel=0.15)
    assert layer.self_attn.o_proj(torch.randn(500, 64)).std().item() == pytest.approx(
        (2 * LAYERS) ** -0.5, rel=0.15
    )
    assert model.lm_head(x).std().item() == pytest.approx(1.0, rel=0.15)


def test_a_sequential_head_begins_without_a_say_but_with_a_gradient():
    model = drafter()
    head, tokens = model.markov_head, torch.arange(20)
    bias, _ = head.step(tokens, torch.zeros(20, WIDTH), None)
    assert not bias.any()
    torch.nn.functional.cross_entropy(bias, (tokens + 1) % VOCAB).backward()
    assert head.markov_w2.weight.grad.abs().max() > 1e-3


@pytest.mark.parametrize(
    ("first", "progress", "expected"),
    [
        (0.3, 0.0, (1, 0, 0)),
        (0.3, 0.29, (1, 0, 0)),
        (0.3, 0.35, (0.55, 0.45, 0.5)),
        (0.3, 0.4, (0.1, 0.9, 1)),
        (0.3, 1.0, (0.1, 0.9, 1)),
        (0.0, 0.0, (0.1, 0.9, 1)),
        (0.0, 0.5, (0.1, 0.9, 1)),
    ],
)
def test_cross_entropy_comes_first_where_a_recipe_asks_for_it_and_turns_into_the_papers_loss(
    first, progress, expected
):
    factors = loss_factors(
        LossWeights(cross_entropy=0.1, l1=0.9, confidence=1.0, cross_entropy_first=first), progress
    )
    assert tuple(factors) == ("cross_entropy", "l1", "confidence") and tuple(
        factors.values()
    ) == pytest.approx(expected)
