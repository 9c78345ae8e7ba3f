"""`python -m dspark_lite parity` on the reference tensors: passes on them, fails on altered ones, refuses what is no case."""

import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from dspark_lite.__main__ import main
from dspark_lite.losslessness.parity import TOLERANCE

GOLDEN = Path(__file__).parent.parent / "assets" / "reference" / "golden"
CASES = ["dflash", "dspark_conf_plain", "dspark_gated", "dspark_rnn", "dspark_vanilla", "eagle3"]
QUICK = ["dflash", "dspark_vanilla", "eagle3"]
VARIANT = pytest.mark.slow(reason="the same comparison, for each other head")
ALONE = ["dspark_gemma4", "dspark_gemma4_kv"]  # drafts without a target
GIVEN = {
    "prompt_ids",
    "cycle2_anchor",
    "cycle2_new_features",
    "cycle2_full_features",
    "train_input_ids",
    "train_anchors",
    "train_loss_mask",
}


def errors_of(line):
    """{tensor: largest absolute error} of one line of the report."""
    return {
        name: float(error) for name, error in re.findall(r"(\w+) (\d\.\de[+-]\d+|inf|nan)", line)
    }


@pytest.fixture
def case(tmp_path):
    """A copy of the smallest case, to be altered."""
    return Path(shutil.copytree(GOLDEN / "dflash", tmp_path / "dflash"))


def alter(folder, tensor, change):
    """Replaces one reference tensor of a case by `change` of it."""
    tensors = load_file(folder / "tensors.safetensors")
    tensors[tensor] = change(tensors[tensor])
    save_file(tensors, folder / "tensors.safetensors")


def without(path, field):
    """Removes a tensor or field from a file of a case."""
    if path.suffix == ".json":
        content = json.loads(path.read_text())
        del content[field]
        path.write_text(json.dumps(content))
    else:
        tensors = load_file(path)
        del tensors[field]
        save_file(tensors, path)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else VARIANT) for name in CASES]
)
def test_every_case_passes(capsys, name):
    assert main(["parity", str(GOLDEN / name)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    runs = len(json.loads((GOLDEN / name / "expected.json").read_text())["greedy_runs"])
    assert line.split()[:2] == ["ok", f"{name}:"] and f"greedy runs equal {runs}/{runs}" in line
    errors = errors_of(line)
    compared = set(load_file(GOLDEN / name / "tensors.safetensors")) - GIVEN
    assert compared <= set(errors), "a reference tensor is not compared"
    assert name == "eagle3" or {"ce_loss_num", "l1_loss_num", "l1_loss_den", "loss_total"} <= set(
        errors
    )
    assert ("confidence_loss_num" in errors) == (name not in ("dflash", "eagle3"))
    assert max(errors.values()) <= TOLERANCE == 2e-4


def test_drafts_without_a_target_pass_and_fail(capsys, tmp_path):
    assert main(["parity", *(str(GOLDEN / name) for name in ALONE)]) == 0
    for name, line in zip(ALONE, capsys.readouterr().out.splitlines(), strict=True):
        assert set(load_file(GOLDEN / name / "tensors.safetensors")) - GIVEN - {
            "anchor",
            "context_features",
        } == set(errors_of(line)), name
        assert line.startswith(f"ok   {name}")
        assert max(errors_of(line).values()) <= TOLERANCE
    altered = Path(shutil.copytree(GOLDEN / ALONE[0], tmp_path / ALONE[0]))
    alter(altered, "confidence_logits", lambda t: t + 1e-3)
    capsys.readouterr()
    assert main(["parity", str(altered), str(GOLDEN / ALONE[1])]) == 1
    assert [line[:4] for line in capsys.readouterr().out.splitlines()] == ["FAIL", "ok  "]


@pytest.mark.parametrize(
    ("tensor", "change"),
    [
        ("block_hidden", lambda t: t + 1e-3),
        ("cycle2_block_hidden", lambda t: t * 1.01),
        ("draft_tokens", lambda t: t.roll(1, -1)),
        ("train_draft_logits", lambda t: t[:, :, :-1].contiguous()),
        ("train_target_ids", lambda t: t + 1),
        ("block_hidden", lambda t: t * float("nan")),
        ("cycle2_block_hidden", lambda t: t * float("nan")),
    ],
)
def test_an_altered_tensor_fails_and_is_shown(case, capsys, tensor, change):
    alter(case, tensor, change)
    assert main(["parity", str(case)]) == 1
    (altered,) = capsys.readouterr().out.splitlines()
    assert altered.startswith("FAIL dflash")
    assert [name for name, error in errors_of(altered).items() if not error <= TOLERANCE] == [
        tensor
    ]


@pytest.mark.parametrize("field", ["output", "acceptance_lengths", "proposal_lengths"])
def test_a_greedy_run_that_differs_fails(case, capsys, field):
    expected = json.loads((case / "expected.json").read_text())
    expected["greedy_runs"][0][field][-1] += 1
    (case / "expected.json").write_text(json.dumps(expected))
    assert main(["parity", str(case)]) == 1
    runs = len(expected["greedy_runs"])
    assert f"greedy runs equal {runs - 1}/{runs}" in capsys.readouterr().out


def test_a_loss_that_differs_fails(case, capsys):
    expected = json.loads((case / "expected.json").read_text())
    expected["loss_total_decay4"] += 1e-3
    (case / "expected.json").write_text(json.dumps(expected))
    assert main(["parity", str(case)]) == 1
    assert errors_of(capsys.readouterr().out)["loss_total"] == pytest.approx(1e-3, rel=0.1)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda case: shutil.rmtree(case), "has no draft"),
        (
            lambda case: shutil.rmtree(case / "target"),
            "has greedy runs and no target/ to make them with",
        ),
        (
            lambda case: (case / "tensors.safetensors").unlink(),
            "has no tensors.safetensors; a case folder holds",
        ),
        (lambda case: (case / "expected.json").write_text("{"), "are damaged"),
        (
            lambda case: (case / "tensors.safetensors").write_bytes(
                (case / "tensors.safetensors").read_bytes()[:-9]
            ),
            "are damaged",
        ),
        (
            lambda case: without(case / "tensors.safetensors", "block_hidden"),
            "has no block_hidden in tensors.safetensors or expected.json",
        ),
        (
            lambda case: without(case / "tensors.safetensors", "prompt_ids"),
            "has no prompt_ids in tensors.safetensors or expected.json",
        ),
        (
            lambda case: without(case / "expected.json", "greedy_runs"),
            "has no greedy_runs in tensors.safetensors or expected.json",
        ),
        (
            lambda case: without(case / "expected.json", "loss"),
            "has no loss in tensors.safetensors or expected.json",
        ),
    ],
)
def test_what_is_no_case_is_refused_with_one_sentence(case, capfd, damage, sentence):
    damage(case)
    assert main(["parity", str(case)]) == 2
    out, err = capfd.readouterr()
    assert out == "" and sentence in err and err.count("\n") == 1
