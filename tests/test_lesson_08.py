"""Lesson 08: what it prints of checkpoints is true, and its figures show it."""

import json

import numpy as np
import pytest
import torch
from helpers import drawn, written
from safetensors.torch import save_file

from dspark_lite.common.estimates import Estimate
from dspark_lite.common.recorded import reference
from dspark_lite.figures import lesson_08 as figures
from dspark_lite.losslessness.parity import TOLERANCE
from dspark_lite.losslessness.ties import Parting, parted
from dspark_lite.models import inspection
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter, load_target, read_config
from dspark_lite.models.weights import held


# What is said of checkpoints ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny-dspark", "tiny-dflash", "tiny-eagle3", "tiny-dspark-rnn"])
def test_every_tensor_of_our_drafts_finds_its_place(name):
    found = {tensor: entry.shape for tensor, entry in inspection.stored(name).items()}
    assert inspection.place(inspection.asked_for(read_config(EMBEDDED / name)), found) == (set(), set(), set())


def test_placement_names_what_does_not_fit():
    asked, found = {"a": (1, 2), "b": (3,), "c": (4,)}, {"a": (2, 1), "c": [4], "d": (5,)}
    assert inspection.place(asked, found) == ({"b"}, {"d"}, {"a"})


def test_stored_reads_shards_and_types(tmp_path):
    save_file({"a": torch.zeros(2, 3, dtype=torch.bfloat16)}, tmp_path / "x.safetensors")
    save_file({"b": torch.zeros(4)}, tmp_path / "y.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}))
    stored = inspection.stored(str(tmp_path))
    assert stored == {"a": ((2, 3), torch.bfloat16), "b": ((4,), torch.float32)}
    assert [entry.nbytes for entry in stored.values()] == [12, 16]


def test_parts_are_all_of_the_file():
    sizes = {name: entry.nbytes for name, entry in inspection.stored("tiny-dspark").items()}
    parts = inspection.by_part(sizes)
    assert list(parts) == ["embedding", "LM head", "context projection", "backbone", "sequential head", "confidence head"]
    assert sum(parts.values()) == sum(sizes.values())


@pytest.mark.parametrize(("dtype", "least", "most"), [(torch.float32, 0, TOLERANCE), (torch.float16, 1e-4, 2e-2), (torch.bfloat16, 1e-3, 0.2)])
def test_modules_err_as_far_as_their_type_rounds(dtype, least, most):
    errors = inspection.module_errors("dspark_vanilla", dtype)
    assert list(errors) == list(inspection.MODULES)
    assert all(least <= error <= most for error in errors.values())


def test_a_module_without_a_head_has_no_error_of_it():
    assert list(inspection.module_errors("dflash")) == ["backbone", "LM head"]


def test_what_is_held_is_counted_once():
    target = load_target("tiny-target")
    weights = sum(value.nbytes for value in target.model.parameters())
    alone = held(target, None, 10)
    assert alone["drafter"] == 0 and weights <= alone["target"] < 1.01 * weights  # and a few buffers
    assert alone["keys and values"] == 10 * 2 * 12 * 2 * 32 * 4  # keys and values, layers, key heads, head size, bytes
    draft, small = (held(target, load_drafter(name, target), 10) for name in ("tiny-dspark", "tiny-small-lm"))
    stored = inspection.by_part({name: 2 * entry.nbytes for name, entry in inspection.stored("tiny-dspark").items()})  # 32 bits in memory
    assert draft["drafter"] == sum(stored.values()) - stored["embedding"] - stored["LM head"]
    assert draft["keys and values"] == alone["keys and values"] + 10 * 2 * 3 * 2 * 32 * 4
    assert draft["target"] == small["target"] == alone["target"] and small["drafter"] > 0


def test_the_public_run_is_the_issues_and_names_its_source():
    public = reference("public_run.json")
    assert public["accepted_length"] == {"math": 3.25, "code": 6.40, "chat": 3.96} and public["speedup"] == 3.66
    block = public["first_block"]
    assert "".join(block["tokens"]) == " sky is blue because of a shorter" and len(block["tokens"]) == len(block["confidence"]) == 7
    assert "not measured by this project" in public["source"]


# Ties ----------------------------------------------------------------------------------------------------------------


def test_parted_says_where_and_how_near():
    target = load_target("tiny-target")
    ids = torch.tensor([[5, 6, 7]])
    assert parted(target, ids, [1, 2], [1, 2]) is None
    assert parted(target, ids, [1], [1, 2]) == Parting(1, float("inf"), 0.0)
    found = parted(target, ids, [1, 2, 3], [1, 4, 3])
    logits = target.prefill(torch.tensor([[5, 6, 7, 1]]))[0].logits[0, -1]
    assert found.at == 1 and found.gap == pytest.approx(float(logits.max() - logits[[2, 4]].min()))
    assert found.allowed == pytest.approx(8 * torch.finfo(torch.float32).eps * float(logits.abs().max())) and not found.tied


# Figures -------------------------------------------------------------------------------------------------------------


def test_drafts_are_judged_up_to_the_first_that_is_not_wanted():
    assert figures.judged(["a", "b", "c"], ["a", "x", "c"]) == [("a", "kept"), ("b", "refused"), ("c", "unread")]
    assert figures.judged(["a", "b"], ["a", "b"]) == [("a", "kept"), ("b", "kept")]


def test_parts_of_files_are_shares_and_copies_are_hatched(closing):
    fig = figures.file_parts({"one": {"embedding": 5e6, "backbone": 10e6}, "two": {"embedding": 1e6, "backbone": 1e6}},
                             {"embedding"})
    assert [bar.get_width() for bar in fig.axes[0].patches] == pytest.approx([1 / 3, 2 / 3, 1 / 2, 1 / 2])
    assert [bar.get_hatch() for bar in fig.axes[0].patches] == ["///", None] * 2
    assert written(fig) == ["33%", "67%", "15.0 MB", "50%", "50%", "2.0 MB"]


def test_errors_of_modules_stand_beside_the_tolerance(closing):
    (axes,) = figures.module_error_figure({"float32": [{"backbone": 1e-6}], "bfloat16": [{"backbone": 1e-2}]}, 1e-4).axes
    assert drawn(axes) == {"computed in float32": [1e-6], "computed in bfloat16": [1e-2], "tolerance in float32, 1e-04": [1e-4] * 2}


def test_blocks_stand_under_one_another(closing):
    fig = figures.blocks({"ours": [("a", "kept"), (" b", "refused")], "shorter": [("$", "added")]})
    assert written(fig) == ["1", "2", "ours", "a", "×·b", "shorter", "+$"]


def test_confidences_stand_beside_those_of_the_public_run(closing):
    public = reference("public_run.json")["first_block"]
    (axes,) = figures.confidences([0.9, 0.4], ["a", "$"], public, "CPU").axes
    assert drawn(axes) == {"here": [0.9, 0.4], "public notebook": public["confidence"]}


def test_rounding_rings_the_choices_that_change(closing):
    numbers = np.array([0.0, 1e-3, 5.0]), np.array([0.0, 1e-2, 1e-3]), np.array([False, True, False])
    fig = figures.rounding({"float32": numbers, "float16": (*numbers[:2], ~numbers[2])})
    assert [axes.get_title() for axes in fig.axes] == ["float32: 1 of 3 choices change", "float16: 2 of 3 choices change"]
    assert [list(axes.lines[1].get_ydata()) for axes in fig.axes] == [[1e-2], [1e-6, 1e-3]]


def test_the_public_run_is_hollow_beside_ours(closing):
    public, places = reference("public_run.json"), ("math", "code", "chat")
    estimates = {domain: Estimate(2.0 + k, 1.5, 5.5) for k, domain in enumerate(places)}
    speeds = {"math": 1.0, "code": 2.0, "chat": 3.0, "all": 2.0}
    length, speed = figures.beside_public({"small_lm": estimates, "dspark": estimates},
                                          {"small_lm": speeds, "dspark": speeds}, public, "CPU").axes
    (theirs,) = [label for label in drawn(length) if label.endswith("public")]
    assert drawn(length)[theirs] == [public["accepted_length"][place] for place in places] and drawn(speed)[theirs] == [3.66]
    assert drawn(speed)["DSpark"] == [1.0, 2.0, 3.0, 2.0]
    middle = [list(container.lines[0].get_ydata()) for container in length.containers]
    assert middle == [[2.0, 3.0, 4.0]] * 2


def test_memory_adds_up(closing):
    fig = figures.memory_bars({"plain": {"target": 10**6, "drafter": 0, "keys and values": 10**5}}, 1024)
    assert [bar.get_width() for bar in fig.axes[0].patches] == pytest.approx([1.0, 0.0, 0.1]) and written(fig) == [" 1.1"]
    assert fig.axes[0].get_xlabel() == "memory held (MB), caches of 1,024 tokens"
