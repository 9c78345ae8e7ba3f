"""Wrong input on the command line: one sentence on stderr, nothing else, and exit code 2."""

import io
import json
import os
import shutil
import sys

import pytest
import torch

from dspark_lite.__main__ import main
from dspark_lite.course.command_line import COMMANDS, GROUPS
from dspark_lite.course.measure.lab import NEW_TOKENS
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import EMBEDDED, save_draft
from helpers import cut_short, refused


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """Checkpoints that do not belong to the tiny target, and a damaged one."""
    folder = tmp_path_factory.mktemp("toys")
    target, drafters = toy_models()
    target.model.save_pretrained(folder / "target")
    save_draft(folder / "draft", drafters["dspark"], target)
    shutil.copytree(EMBEDDED / "tiny-dspark", folder / "truncated")
    cut_short(folder / "truncated" / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--target", "nonsense"], "there is no checkpoint 'nonsense'"),
        (
            ["--drafter", "nonsense"],
            "there is no drafter 'nonsense' in this lab; drafters are dspark,",
        ),
        (["--temperature", "-1"], "the temperature is -1.0; it must be 0"),
        (["--temperature", "nan"], "the temperature is nan"),
        (["--gamma", "8"], "gamma is 8; this drafter drafts between 1 and 7"),
        (["--gamma", "0"], "gamma is 0"),
        (["--drafter", "small_lm", "--gamma", "8"], "gamma is 8"),
        ([""], "the prompt is empty"),
        ([" \n"], "the prompt is empty"),
        (["word " * 2100], r"positions for at most"),
    ],
)
def test_a_request_that_cannot_be_decoded(capfd, arguments, sentence):
    assert sentence in refused(capfd, "demo", *arguments)


def test_a_checkpoint_that_is_damaged_or_made_for_another_or_cannot_read(capfd, toys):
    assert "is not a whole safetensors file" in refused(
        capfd, "demo", "--drafter", toys / "truncated"
    )
    for name in ("draft", "target"):
        assert "made for a vocabulary of 2 tokens" in refused(
            capfd, "demo", "--drafter", toys / name
        )
    assert "is a Qwen3DSparkModel, not a target; targets are causal language models" in refused(
        capfd, "demo", "--target", toys / "draft"
    )
    assert "has no tokenizer.json" in refused(
        capfd, "demo", "--target", toys / "target", "--drafter", toys / "draft"
    )


@pytest.mark.parametrize("command", ["evaluate", "bench"])
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--prompts", "0"], "--prompts is 0"),
        (["--prompts", "1", "--temperature", "-0.5"], "the temperature is -0.5"),
        (["--prompts", "1", "--drafters", "dspark", "nonsense"], "there is no drafter 'nonsense'"),
    ],
)
def test_a_measurement_is_refused_before_it_starts(capfd, command, arguments, sentence):
    assert sentence in refused(capfd, command, *arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--benchmark", "mmlu"], "there is no benchmark 'mmlu'"),
        (["--benchmark", "gsm8k", "--benchmark-dir", "nowhere"], "gsm8k.jsonl is missing"),
        (["--benchmark-dir", "nowhere"], "--benchmark-dir is given without --benchmark"),
        (["--target", "tiny-target"], "--target is given without --drafters"),
        (["--target", "nonsense", "--drafters", "dspark"], "there is no checkpoint 'nonsense'"),
        (["--drafters", "./nowhere"], "there is no checkpoint './nowhere'"),
        (
            ["--drafters", "dspark", "small_lm", "--slots", "2"],
            "small_lm keeps no context that the engine can hold in slots",
        ),
        (["--slots", "0"], "the engine has 0 slots"),
    ],
)
def test_an_evaluation_is_refused_before_it_starts(capfd, arguments, sentence):
    assert sentence in refused(capfd, "evaluate", *arguments, "--prompts", "1")


@pytest.mark.parametrize("command", [["evaluate"], ["calibrate", "--out", "never.json"], ["sweep"]])
def test_an_answer_without_a_token_is_refused(capfd, command):
    assert "--max-new-tokens is 0; it must be 1 or more" in refused(
        capfd, *command, "--prompts", "1", "--max-new-tokens", "0"
    )


def test_an_evaluation_on_benchmarks_names_the_broken_line_and_resumes(capfd, tmp_path, toys):
    lines = [json.dumps({"turns": [f"What is {number} plus 2?"]}) for number in range(3)]
    (tmp_path / "humaneval.jsonl").write_text("\n".join(lines))
    (tmp_path / "mt-bench.jsonl").write_text(lines[0] + "\n{")
    called = [
        "evaluate",
        "--benchmark-dir",
        tmp_path,
        "--max-new-tokens",
        "8",
        "--target",
        "tiny-target",
        "--draft",
        str(EMBEDDED / "tiny-dspark"),
        "--json",
        tmp_path / "e.json",
        "--prompts",
        "2",
        "--benchmark",
    ]
    assert "mt-bench.jsonl, line 2 is not JSON" in refused(capfd, *called, "humaneval", "mt-bench")
    assert main([str(word) for word in [*called, "humaneval"]]) == 0
    assert capfd.readouterr().out.count("humaneval") == 1
    measured = json.loads((tmp_path / "e.json").read_text())
    assert (
        measured["seed"] == 980406
        and measured["target"] == "tiny-target"
        and measured["max_new_tokens"] == 8
    )
    (row,) = measured["rows"]
    assert (
        row["benchmark"] == "humaneval" and row["domain"] == "code" and len(row["committed"]) == 2
    )
    assert main([str(word) for word in [*called, "humaneval"]]) == 0
    assert json.loads((tmp_path / "e.json").read_text()) == measured
    capfd.readouterr()
    assert "was begun with seed 980406, not 1" in refused(
        capfd, *called, "humaneval", "--seed", "1"
    )
    unread = refused(
        capfd,
        "evaluate",
        "--target",
        toys / "target",
        "--drafters",
        "prompt_lookup",
        "--prompts",
        "1",
    )
    assert "has no tokenizer.json" in unread


@pytest.mark.slow(reason="fits twice, sweeps twice and profiles")
def test_calibration_sweep_and_profile_take_the_prompts_of_benchmarks(capfd, tmp_path):
    """Both halves of each; a sweep that was stopped goes on; of a benchmark nothing but its prompts is taken."""
    prompts = [
        "Add 2 and 5.",
        "Add 3 and 4.",
        "Write a function that adds two numbers.",
        "Name a colour.",
    ]
    for name in ("humaneval", "mt-bench"):
        (tmp_path / f"{name}.jsonl").write_text(
            "\n".join(json.dumps({"turns": [text]}) for text in prompts)
        )
    given = [
        "--benchmark",
        "humaneval",
        "mt-bench",
        "--benchmark-dir",
        str(tmp_path),
        "--max-new-tokens",
        "16",
    ]
    fitting = [
        "calibrate",
        "--prompts",
        "2",
        "--out",
        str(tmp_path / "sts.json"),
        "--json",
        str(tmp_path / "c.json"),
    ]
    for wrong, sentence in (
        (["--max-new-tokens", "8"], "allow longer answers"),
        (["--drafter", "dflash"], "has no confidence head"),
    ):
        assert sentence in refused(capfd, *fitting, *given, *wrong)
    assert main([*fitting, *given]) == 0, "a journal of a refused call holds nothing"
    measured = json.loads((tmp_path / "c.json").read_text())
    assert measured["fits"] or "any more" not in measured["verdict"], "it has only just been fitted"
    assert (
        not (tmp_path / "sts.journal.jsonl").exists()
        and main([*fitting, *given, "--temperature", "0.7"]) == 0
    )
    assert (
        list(measured["observations"]) == ["humaneval", "mt-bench"]
        and measured["seed"] == 980406
        and measured["num_samples"] > 0
    )
    sweep = ["sweep", "--prompts", "1", "--json", str(tmp_path / "s.json"), *given, "--thresholds"]
    assert main([*sweep, "0"]) == 0
    held = (tmp_path / "s.journal.jsonl").read_text()
    assert main([*sweep, "0", "0.9"]) == 0
    assert (tmp_path / "s.journal.jsonl").read_text().startswith(held), (
        "what was swept before is not swept again"
    )
    rows = json.loads((tmp_path / "s.json").read_text())["rows"]
    assert [(row["domain"], row["threshold"]) for row in rows] == [
        (name, least) for name in ("humaneval", "mt-bench") for least in (0, 0.9)
    ]
    given = given[:-2]
    assert (
        main(
            [
                "profile",
                "--sizes",
                "1",
                "2",
                "--context",
                "8",
                "--out",
                str(tmp_path / "sps.json"),
                *given,
            ]
        )
        == 0
    )
    assert "steps of eager transformers, not of a serving engine" in capfd.readouterr().out
    for words in ([], ["--format", "additive"]):
        assert "the context has 0 tokens" in refused(
            capfd, "profile", "--context", "0", "--out", tmp_path / "no.json", *words
        )
    (tmp_path / "gsm8k.jsonl").write_text(json.dumps({"turns": ["One?"]}))
    assert "gsm8k has fewer than two prompts" in refused(
        capfd,
        "calibrate",
        "--out",
        tmp_path / "never.json",
        "--benchmark",
        "gsm8k",
        "--benchmark-dir",
        tmp_path,
    )
    assert "name the benchmarks to take from it" in refused(
        capfd, "sweep", "--benchmark-dir", tmp_path
    )
    dflash = ["--drafter", "dflash", "--prompts", "1"]
    assert "has no confidence head" in refused(capfd, "sweep", *dflash)


# Commands, and the option that says where their result goes.
MEASURING = {
    "evaluate": "--json",
    "bench": "--json",
    "bench --shapes tiny": "--json",
    "doctor": "--json",
    "profile": "--out",
    "profile --out sps.json": "--json",
    "calibrate": "--out",
    "calibrate --out sts.json": "--json",
    "sweep": "--json",
    "train tiny-dspark": "--out",
}


@pytest.mark.parametrize("command", MEASURING)
def test_a_result_that_could_not_be_written_is_refused_before_it_is_measured(
    capfd, tmp_path, monkeypatch, command
):
    """Nothing is loaded, measured or trained."""
    for name in (
        "measure.lab.setup",
        "measure.random_weights.measure_shapes",
        "measure.doctor.examine",
        "data.recipes.train",
    ):
        monkeypatch.setattr(
            f"dspark_lite.course.{name}", lambda *_, **__: pytest.fail("it was measured")
        )
    monkeypatch.setattr("dspark_lite.course.data.estimate.estimate", lambda *_: [])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "config.json").mkdir(parents=True)
    for path, sentence in (
        ("folder", "is a folder"),
        ("file/result.json", "nothing can be written to"),
    ):
        assert main([*command.split(), MEASURING[command], path]) == 2
        err = capfd.readouterr().err
        assert sentence in err and err.count("\n") == 1
    assert not (tmp_path / "sps.json").exists() and not (tmp_path / "sts.json").exists()


def test_other_commands(capfd, tmp_path, monkeypatch):
    assert "--prompts is 0" in refused(capfd, "evaluate", "--prompts", "0")
    assert "there is no recipe 'nonsense'" in refused(capfd, "train", "nonsense")
    assert "has no draft" in refused(capfd, "parity", tmp_path)
    monkeypatch.setenv("DSPARK_PROFILE", "huge")
    assert "the profile is 'huge'; it must be one of tiny, released" in refused(capfd, "demo")


def test_an_embedded_checkpoint_of_another_training_is_not_written_over(capfd, monkeypatch):
    monkeypatch.setattr(
        "dspark_lite.course.data.recipes.train", lambda *_, **__: pytest.fail("it was trained")
    )
    assert (
        "tiny-dspark holds a checkpoint, and not of this recipe trained here; give --out"
        in refused(capfd, "train", "tiny-dspark")
    )
    assert "holds a checkpoint of ['Qwen3ForCausalLM']" in refused(
        capfd, "train", "tiny-dspark", "--out", EMBEDDED / "tiny-small-lm"
    )


def test_a_stop_by_the_keyboard_is_no_traceback(capfd, monkeypatch, tmp_path):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("dspark_lite.course.data.recipes.train", stopped)
    assert main(["train", "tiny-dspark", "--out", str(tmp_path / "out")]) == 130
    assert capfd.readouterr().err == "dspark_lite: stopped; what was saved is kept\n"


def test_without_a_command_each_is_listed_once_under_what_it_is_for(capfd):
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    assert main([]) == 0
    listed = [
        line.split()[0] for line in capfd.readouterr().out.splitlines() if line.startswith("  ")
    ]
    assert set(COMMANDS) <= set(listed)


def test_demo_answers(capfd, monkeypatch):
    monkeypatch.setitem(NEW_TOKENS, "tiny", 24)
    assert main(["demo", "--drafter", "plain"]) == 0
    assert main(["demo", "--temperature", "1"]) == 0
    out = capfd.readouterr().out
    assert out.count("accepted length") == 2 and "round  1: " in out


@pytest.mark.parametrize(
    "words",
    [
        ["demo", "--seed", "1" + 23 * "0"],
        ["demo", "--seed", "-1"],
        ["sweep", "--thresholds", "nan"],
        ["sweep", "--thresholds", "2"],
        ["evaluate", "--seed", "x"],
        ["train", "--endpoint", ""],
        ["train", "--endpoint", "localhost:8000"],
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_their_option(capfd, words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and f"argument {words[1]}" in capfd.readouterr().err


def test_a_device_that_is_not_there_and_bytes_that_are_no_text_are_refused(capfd, tmp_path):
    if not torch.cuda.is_available():
        assert "torch finds no such GPU" in refused(
            capfd, "train", "tiny-dspark", "--device", "cuda", "--out", tmp_path / "x"
        )
    for name in ("cudaa", "meta"):
        assert "it must be cpu or cuda" in refused(
            capfd, "train", "tiny-dspark", "--device", name, "--out", tmp_path / "x"
        )
    assert "no UTF-8" in refused(capfd, "demo", "\udce4")


def test_a_disk_that_takes_nothing_more_is_a_sentence(capfd, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", str(tmp_path / "out"))

    monkeypatch.setattr("dspark_lite.models.export.export", full)
    assert "out cannot be read or written (No space left on device)" in refused(
        capfd, "export", "tiny-dspark", "--for", "vllm", "--out", tmp_path / "out"
    )


def test_a_console_that_lacks_a_character_shows_the_others(monkeypatch):
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", narrow)
    monkeypatch.setattr(
        "dspark_lite.models.export.export", lambda *_: "caf\u00e9 \u2192 \U0001f600"
    )
    assert main(["export", "tiny-dspark", "--for", "vllm", "--out", "never"]) == 0
    narrow.flush()
    assert narrow.buffer.getvalue().decode("cp1252") == f"caf\u00e9 ? ?{os.linesep}"
