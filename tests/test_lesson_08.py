"""Lesson 08: what it prints of checkpoints is true, and its figures show it."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_lite.common.files import ROOT
from dspark_lite.course.clinic import hunt
from dspark_lite.course.clinic.patients import Service
from dspark_lite.course.exercises.lesson_08 import check_hunt
from dspark_lite.course.figures import lesson_08 as figures
from dspark_lite.course.measure import inspection, roofline, shapes
from dspark_lite.course.result_files import REFERENCE, read, reference
from dspark_lite.losslessness.parity import TOLERANCE
from dspark_lite.losslessness.ties import Divergence, divergence
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter, load_target, read_config
from dspark_lite.models.weights import memory_bytes
from helpers import written

# What is said of checkpoints


@pytest.mark.parametrize("name", ["tiny-dspark", "tiny-dflash", "tiny-eagle3", "tiny-dspark-rnn"])
def test_every_tensor_of_our_drafts_finds_its_place(name):
    found = {tensor: entry.shape for tensor, entry in inspection.stored(name).items()}
    assert inspection.place(inspection.asked_for(read_config(EMBEDDED / name)), found) == (
        set(),
        set(),
        set(),
    )


def test_placement_names_what_does_not_fit():
    asked, found = {"a": (1, 2), "b": (3,), "c": (4,)}, {"a": (2, 1), "c": [4], "d": (5,)}
    assert inspection.place(asked, found) == ({"b"}, {"d"}, {"a"})


def test_stored_reads_shards_and_types(tmp_path):
    save_file({"a": torch.zeros(2, 3, dtype=torch.bfloat16)}, tmp_path / "x.safetensors")
    save_file({"b": torch.zeros(4)}, tmp_path / "y.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}})
    )
    stored = inspection.stored(str(tmp_path))
    assert stored == {"a": ((2, 3), torch.bfloat16), "b": ((4,), torch.float32)}
    assert [entry.nbytes for entry in stored.values()] == [12, 16]


def test_parts_are_all_of_the_file():
    sizes = {name: entry.nbytes for name, entry in inspection.stored("tiny-dspark").items()}
    parts = inspection.by_part(sizes)
    assert list(parts) == [
        "embedding",
        "LM head",
        "context projection",
        "backbone",
        "sequential head",
        "confidence head",
    ]
    assert sum(parts.values()) == sum(sizes.values())


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [(torch.float32, 0, TOLERANCE), (torch.float16, 1e-4, 2e-2), (torch.bfloat16, 1e-3, 0.2)],
)
def test_modules_err_as_far_as_their_type_rounds(dtype, least, most):
    errors = inspection.module_errors("dspark_vanilla", dtype)
    assert list(errors) == list(inspection.MODULES)
    assert all(least <= error <= most for error in errors.values())


def test_a_module_without_a_head_has_no_error_of_it():
    assert list(inspection.module_errors("dflash")) == ["backbone", "LM head"]


def test_shared_weights_are_counted_once():
    target = load_target("tiny-target")
    weights = sum(value.nbytes for value in target.model.parameters())
    alone = memory_bytes(target, None, 10)
    # and a few buffers
    assert alone["drafter"] == 0 and weights <= alone["target"] < 1.01 * weights
    # keys and values, layers, key heads, head size, bytes
    assert alone["keys and values"] == 10 * 2 * 20 * 3 * 32 * 4
    draft, small = (
        memory_bytes(target, load_drafter(name, target), 10)
        for name in ("tiny-dspark", "tiny-small-lm")
    )
    # 32 bits in memory
    stored = inspection.by_part(
        {name: 2 * entry.nbytes for name, entry in inspection.stored("tiny-dspark").items()}
    )
    assert draft["drafter"] == sum(stored.values()) - stored["embedding"] - stored["LM head"]
    assert draft["keys and values"] == alone["keys and values"] + 10 * 2 * 4 * 3 * 32 * 4
    assert draft["target"] == small["target"] == alone["target"] and small["drafter"] > 0


def test_the_public_run_is_the_issues_and_names_its_source():
    public = reference("public_run.json")
    assert (
        public["accepted_length"] == {"math": 3.25, "code": 6.40, "chat": 3.96}
        and public["speedup"] == 3.66
    )
    block = public["first_block"]
    assert (
        "".join(block["tokens"]) == " sky is blue because of a shorter"
        and len(block["tokens"]) == len(block["confidence"]) == 7
    )
    assert "not measured by this project" in public["source"]
    assert (
        public["settings"]["temperature"] == 0
        and public["settings"]["max_new_tokens"] == 96
        and public["speed_is_of"] == "one prompt"
    )
    assert public["places_per_token"] == {"0.0": 1.88, "0.5": 1.62, "0.7": 1.34, "0.9": 1.11}
    speeds = public["tokens_per_second"]
    assert round(speeds["dspark"] / speeds["plain"], 1) == round(public["speedup"], 1), (
        "a ratio of printed, rounded speeds"
    )


# The hunt

PROOFS = {  # of each mistake: looks that leave no other
    "taps one layer early": ["taps of the target"],
    "context norm left out": ["taps, normed", "taps, projected"],
    "key norms left out": ["layer 1: keys, normed", "taps, normed"],
    "one norm for all keys": ["layer 2: keys, normed", "layer 1: keys, normed"],
    "another rotary base": [
        "layer 4: keys, rotated",
        "layer 4: keys, normed",
        "layer 1: keys, rotated, of the first token",
    ],
    "context one place late": [
        "layer 1: keys, rotated, of the first token",
        "layer 1: keys, normed",
    ],
    "mask for the anchor": ["taps of the target", "block: embedded"],
    "final norm left out": ["block: base logits", "block: after the last layer"],
    "head left out": ["block: logits with the head", "block: base logits"],
    "block left in the cache": ["block: logits with the head"],
}


def proven(seed):
    """The right causes of a hunt, and looks that prove them."""
    causes = hunt.secret(seed)
    return causes, {program: PROOFS[cause] for program, cause in causes.items()}


def seed_with(cause):
    """The first seed whose program 1 has a mistake."""
    return next(seed for seed in range(200) if hunt.secret(seed)[1] == cause)


@pytest.mark.parametrize("cause", hunt.MISTAKES)
def test_each_mistake_can_be_proven_and_is_not_without_its_last_look(cause, capsys):
    seed = seed_with(cause)
    causes, looks = proven(seed)
    assert check_hunt(causes, looks, seed), capsys.readouterr().out
    assert not check_hunt(causes, {**looks, 1: PROOFS[cause][:-1]}, seed)
    assert f"program 1: {cause!r} fits what you saw, and so do" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", hunt.MISTAKES)
def test_a_wrong_mistake_is_refused_by_a_look(wrong, capsys):
    causes, looks = proven(hunt.SEED)
    if wrong != causes[1]:
        assert not check_hunt({**causes, 1: wrong}, looks)
        said = capsys.readouterr().out
        assert f"with {wrong!r} the tensor" in said and "and you saw that it" in said


@pytest.mark.parametrize(
    ("causes", "looks", "said"),
    [
        ({}, {}, "Not done yet"),
        ({1: ..., 2: ..., 3: ...}, {}, "Not done yet"),
        ([], {}, "is a dictionary"),
        ({1: "a bug"}, {}, "program 1 is 'a bug'; the mistakes are another rotary base"),
        ({1: "another rotary base"}, {1: [f"layer {k}: values" for k in range(7)]}, "6 tensors"),
        ({1: "another rotary base"}, {1: ["layer 9: values"]}, "there is no tensor"),
    ],
)
def test_a_find_in_another_form_ends_in_a_sentence(causes, looks, said, capsys):
    assert not check_hunt(causes, looks)
    assert said in capsys.readouterr().out


def test_six_tensors_of_a_program_can_be_looked_at_and_each_again(capsys):
    game = hunt.Hunt()
    for tensor in game.tensors[:8]:
        game.look(1, tensor)
    game.look(1, game.tensors[0])
    game.look(4, game.tensors[0])
    game.look(2, "taps")
    game.look(..., ...)
    assert game.looks == {1: game.tensors[:6], 2: [], 3: []}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == lines[8] and lines[0].endswith("equal")
    assert ["are spent" in line for line in lines] == [False] * 6 + [True] * 2 + [False] * 4
    assert lines[9:] == [
        "There is no program 4; they are 1 to 3.",
        "There is no tensor 'taps'; `hunt.tensors` lists the names.",
        "Put the number of a program and the name of a tensor in the place of the dots.",
    ]


def test_a_program_is_the_healthy_one_with_its_secret_mistake(monkeypatch):
    game = hunt.Hunt()
    named = {
        name: lambda healthy, name=name: Service(None, (name, healthy)) for name in hunt.MISTAKES
    }
    monkeypatch.setattr(hunt, "MISTAKES", named)
    for program, cause in hunt.secret().items():
        assert game.drafter(program, "healthy") == (cause, "healthy")


def test_the_lessons_hunt_has_the_engines_mistake_and_its_report_says_what_a_look_could_not_tell(
    capsys,
):
    program = {cause: program for program, cause in hunt.secret().items()}["one norm for all keys"]
    hunt.report({1: [], 2: [], 3: [], program: ["layer 2: keys, normed", "layer 3: keys, normed"]})
    lines = capsys.readouterr().out.splitlines()
    assert "differs  rules out another rotary base, block left in the cache" in lines[-2]
    assert lines[-1].endswith("could tell nothing: whatever was left agrees here")


# Ties


def test_divergence_says_where_and_how_near():
    target = load_target("tiny-target")
    ids = torch.tensor([[5, 6, 7]])
    assert divergence(target, ids, [1, 2], [1, 2]) is None
    assert divergence(target, ids, [1], [1, 2]) == Divergence(1, float("inf"), 0.0)
    found = divergence(target, ids, [1, 2, 3], [1, 4, 3])
    logits = target.prefill(torch.tensor([[5, 6, 7, 1]]))[0].logits[0, -1]
    assert found.at == 1 and found.gap == pytest.approx(float(logits.max() - logits[[2, 4]].min()))
    assert (
        found.allowed
        == pytest.approx(8 * torch.finfo(torch.float32).eps * float(logits.abs().max()))
        and not found.tied
    )


# Figures


def test_drafts_are_judged_up_to_the_first_that_is_not_wanted():
    assert figures.judged(["a", "b", "c"], ["a", "x", "c"]) == [
        ("a", "kept"),
        ("b", "refused"),
        ("c", "unread"),
    ]
    assert figures.judged(["a", "b"], ["a", "b"]) == [("a", "kept"), ("b", "kept")]


def test_parts_of_files_are_shares_and_copies_are_hatched():
    fig = figures.file_parts(
        {"one": {"embedding": 5e6, "backbone": 10e6}, "two": {"embedding": 1e6, "backbone": 1e6}},
        {"embedding"},
    )
    assert [bar.get_width() for bar in fig.axes[0].patches] == pytest.approx(
        [1 / 3, 2 / 3, 1 / 2, 1 / 2]
    )
    assert [bar.get_hatch() for bar in fig.axes[0].patches] == ["///", None] * 2
    assert written(fig) == ["33%", "67%", "15.0 MB", "50%", "50%", "2.0 MB"]


def test_blocks_stand_under_one_another():
    fig = figures.blocks(
        {"ours": [("a", "kept"), (" b", "refused")], "shorter": [("$", "added")]}, anchor="def"
    )
    assert written(fig) == ["anchor", "def", "1", "2", "ours", "a", "×·b", "shorter", "+$"]
    places = {text.get_text(): text.get_position() for text in fig.axes[0].texts}
    assert places["def"][1] == places["a"][1] and places["def"][0] < places["a"][0], (
        "the anchor leads the first row"
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "case", ["dspark_vanilla", "dspark_gated", "dspark_rnn", "dspark_conf_plain", "dflash"]
)
def test_in_16_bits_heads_stay_below_a_rounding_step_and_the_backbone_below_two(case, dtype):
    expected = load_file(REFERENCE / "golden" / case / "tensors.safetensors")
    for module, error in inspection.module_errors(case, dtype).items():
        step = torch.finfo(dtype).eps * expected[inspection.MODULES[module]].abs().max().item()
        assert error < (2 if module == "backbone" else 1) * step, module


def test_a_round_with_a_draft_starts_more_to_enter_what_was_committed():
    plain = roofline.launches("plain")
    for name in ("dflash", "dspark"):
        more = {
            part: count - plain[part]
            for part, count in roofline.launches(name).items()
            if part != "draft"
        }
        assert more["commit"] > sum(more.values()) / 2


def test_the_small_lm_adds_least():
    """As the lesson says of the tiny models, which it shows, and of the released ones, which it predicts."""
    target = load_target("tiny-target")
    tiny = [
        sum(memory_bytes(target, load_drafter(f"tiny-{name}", target), 1024).values())
        for name in ("small-lm", "dflash", "dspark")
    ]
    released = [roofline.predict("T4", name).memory for name in ("small_lm", "dflash", "dspark")]
    assert tiny[0] == min(tiny) and released[0] == min(released)
    for config in (
        lambda role: read_config(EMBEDDED / f"tiny-{role.replace('_', '-')}"),
        shapes.config,
    ):
        width, small, *drafts = (
            config(role)["hidden_size"] for role in ("target", "small_lm", "dflash", "dspark")
        )
        assert drafts == [width, width] and small < width


def test_the_recorded_engine_writes_our_texts_and_yet_accepts_other_drafts():
    """What the lesson says before it searches for the cause."""
    engine = ROOT / "assets" / "measurements" / "engine.json"
    rows = read(engine, "git restore assets/measurements")["rows"]
    assert all(row["same_texts"] == row["of"] for row in rows)
    for row in (row for row in rows if row["drafter"] != "plain"):
        ours, theirs = row["generate"], row["vllm"]
        assert ours["accepted_by_position"] != theirs["accepted_by_position"]
