"""The measuring command for the released shapes, tried out on tiny ones: random checkpoints, forced rounds, the report."""

import json

import pytest
import torch
from safetensors import safe_open

from dspark_lite.__main__ import main
from dspark_lite.common import errors
from dspark_lite.course import paper
from dspark_lite.course.measure import random_weights, shapes as released
from dspark_lite.course.measure.forced_rounds import (
    ROUND_PARTS,
    forced_text,
    measure_parts,
    paper_pattern,
    timed_rounds,
)
from dspark_lite.decoding import generate
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, load_target
from helpers import refused

TARGET, DRAFTERS = toy_models(vocab_size=11, gamma=4)
PROMPT = torch.tensor([[1, 2, 3]])


# Forced rounds


@pytest.mark.parametrize("name", ["dspark", "dflash", "eagle3", "small_lm"])
@torch.inference_mode()
def test_a_forced_round_commits_what_the_pattern_says_and_leaves_the_caches_so(name):
    pattern = [0, 4, 2, 9, 1]  # at most the block, of 4
    text = forced_text(
        TARGET, DRAFTERS[name], PROMPT, pattern, generator=torch.Generator().manual_seed(0)
    )
    times = timed_rounds(text, len(pattern))
    committed = 0 + 4 + 2 + 4 + 1 + len(pattern)
    assert text.cache.get_seq_length() == PROMPT.shape[1] + committed
    assert [row.keys() for row in times] == [dict.fromkeys(ROUND_PARTS).keys()] * len(
        pattern
    ) and min(min(row.values()) for row in times) >= 0
    held = (
        text.state.committed
        if name == "small_lm"
        else (text.state.cache if name == "eagle3" else text.state).length
    )
    # a feature of which waits for its token
    assert held == PROMPT.shape[1] + committed - (name == "eagle3")


@torch.inference_mode()
def test_rounds_forced_to_what_would_be_accepted_write_what_generate_writes():
    wanted = generate(TARGET, DRAFTERS["dspark"], PROMPT, max_new_tokens=20, stop_token_ids=())
    accepted = [played.accepted for played in wanted.rounds]
    text = forced_text(TARGET, DRAFTERS["dspark"], PROMPT, accepted, temperature=0.0)
    written = text.anchor.tolist()
    for count in accepted:
        outcome, _ = measure_parts(text)
        assert outcome.accepted == count
        written += outcome.tokens
    assert written[: len(wanted.token_ids)] == wanted.token_ids


@torch.inference_mode()
def test_plain_decoding_commits_a_token_a_round():
    text = forced_text(TARGET, None, PROMPT, [3, 0, 7])
    assert len(timed_rounds(text, 3)) == 3
    assert text.cache.get_seq_length() == PROMPT.shape[1] + 3


def test_the_pattern_is_the_papers_and_the_same_for_a_seed():
    pattern = paper_pattern("dspark", 3000)
    assert pattern[:50] == paper_pattern("dspark", 50)[:50] != paper_pattern("dspark", 50, seed=1)
    implied = paper.numbers()["figure2"]["derived"]["implied_accepted_length"]
    for index, domain in enumerate(("math", "code", "chat")):
        drawn = [accepted + 1 for accepted in pattern[index::3]]
        # 1,000 rounds of a deviation below 3 tokens: off by 0.35 less than once in 4,000 seeds, and the seed is fixed.
        assert (
            sum(drawn) / len(drawn) == pytest.approx(implied[domain]["DSpark"], abs=0.35)
            and max(drawn) <= 8
        )


# Random checkpoints


def test_random_checkpoints_load_as_released_ones_and_share_what_they_hold_in_common(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(random_weights, "FILE_BYTES", 20_000)
    for role in ("target", "dspark"):
        random_weights.write_random(
            tmp_path / role, released.narrow_config(role), torch.device("cpu")
        )
    files = list((tmp_path / "target").glob("*.safetensors"))
    # with their headers
    assert len(files) > 3 and all(path.stat().st_size < 40_000 for path in files)
    target = load_target(str(tmp_path / "target"), dtype=torch.float16)
    drafter = load_drafter(str(tmp_path / "dspark"), target)
    assert (
        target.num_layers == 36 and len(drafter.layers) == 5 and drafter.taps == (1, 9, 17, 25, 33)
    )
    embedding = target.model.get_input_embeddings().weight  # tied, as that of Qwen3-4B
    assert {drafter.embed_tokens.weight.data_ptr(), drafter.lm_head.weight.data_ptr()} == {
        embedding.data_ptr()
    }
    assert {drafter.fc.weight.dtype, target.dtype} == {torch.float16}


def test_a_tensor_is_the_same_for_its_name_and_embeddings_for_all():
    device, shape = torch.device("cpu"), torch.Size([6, 4])
    first, again, other, copied = (
        random_weights.random_tensor(name, shape, device)
        for name in ("a.weight", "a.weight", "lm_head.weight", "model.embed_tokens.weight")
    )
    assert (
        first.equal(again)
        and other.equal(copied)
        and not first.equal(other)
        and first.dtype == torch.bfloat16
    )
    assert random_weights.random_tensor("norm.weight", torch.Size([3]), device).tolist() == [
        1,
        1,
        1,
    ]
    assert random_weights.random_tensor("proj.bias", torch.Size([1]), device).tolist() == [0]


# The command


def test_it_measures_tiny_shapes_on_a_cpu_and_labels_what_is_forced(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(random_weights.ROUNDS, "tiny", 2)
    monkeypatch.setattr(
        random_weights,
        "_speed",
        lambda device: {"bytes_per_second": 1e9, "launch_microseconds": 5.0},
    )
    assert (
        main(
            [
                "bench",
                "--shapes",
                "tiny",
                "--drafters",
                "dspark",
                "--json",
                str(tmp_path / "b.json"),
            ]
        )
        == 0
    )
    out, measured = capsys.readouterr().out, json.loads((tmp_path / "b.json").read_text())
    assert [row["phase"] for row in measured["phases"]] == [
        "load target",
        "prefill, plain",
        "rounds, plain",
        "load dspark",
        "prefill, dspark",
        "rounds, dspark",
    ]
    plain, dspark = measured["phases"][2], measured["phases"][5]
    assert plain["accepted_length"] == 1 and "accepted" not in plain
    pattern = paper_pattern("dspark", 5)[3:]
    assert dspark["accepted"] == pattern and dspark["accepted_length"] == sum(pattern) / 2 + 1
    assert set(dspark["milliseconds"]) == set(ROUND_PARTS) and dspark["tokens_per_second"] > 0
    assert {
        "device",
        "versions",
        "commit",
        "seed",
        "weights",
        "prompt_tokens",
    } <= measured.keys() and measured["memory_cap_bytes"] is None
    assert (
        "FORCED" in out
        and "acceptance forced to a pattern drawn from the paper's Figure 2" in out
        and "FORCED" not in out.split("load dspark")[0]
    )


def test_without_a_gpu_the_released_shapes_are_refused_in_a_sentence(capfd):
    assert (
        "there is no GPU, and the released shapes are measured on one; run this where"
        in refused(capfd, "bench", "--shapes", "released")
    )
    assert "there are no released shapes of mtp; drafters are dspark," in refused(
        capfd, "bench", "--shapes", "tiny", "--drafters", "mtp"
    )


def test_the_bound_is_that_of_the_roofline_at_the_measured_rate():
    measured = {"device": "a GPU", "bytes_per_second": 320e9, "prompt_tokens": 256}
    bound = random_weights.bound("plain", measured)
    # 8.08 GB at 320 GB/s
    assert bound["draft"] == 0 and bound["verify"] == pytest.approx(25.26, abs=0.01)


def test_memory_of_a_gpu_is_reported_by_phase(monkeypatch):
    measured = {
        "shapes": "released",
        "weights": "random, float16",
        "device": "a GPU",
        "memory_cap_bytes": 15 * 10**9,
        "prompt_tokens": 1024,
        "bytes_per_second": 3e11,
        "launch_microseconds": 8.0,
        "acceptance": random_weights.FORCED,
        "phases": [
            {
                "phase": "load target",
                "seconds": 20.0,
                "peak_bytes": 81 * 10**8,
                "reserved_bytes": 82 * 10**8,
                "held_bytes": 8 * 10**9,
            }
        ],
    }
    text = "\n".join(random_weights.shapes_report(measured))
    assert (
        "memory capped at 15.0 GB" in text
        and "peak 8.1 GB (reserved 8.2 GB), after it 8.0 GB" in text
    )


def test_a_gpu_that_does_not_hold_them_is_told(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr(random_weights, "_phases", full)
    monkeypatch.setattr(random_weights, "_speed", lambda device: {})
    with pytest.raises(
        errors.DSparkLiteError,
        match="15 GB of GPU memory do not hold these shapes .CUDA out of memory..",
    ):
        random_weights.measure_shapes("tiny")


def test_weights_are_bfloat16_in_the_file(tmp_path):
    random_weights.write_random(
        tmp_path / "dflash", released.narrow_config("dflash"), torch.device("cpu")
    )
    with safe_open(tmp_path / "dflash" / "model.safetensors", "pt") as weights:
        assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.bfloat16}
