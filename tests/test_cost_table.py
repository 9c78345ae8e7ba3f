"""The cost table: looked up, saved in SGLang's format, measured, refused where it makes no sense."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from dspark_lite.__main__ import main
from dspark_lite.common.errors import CheckpointError, RequestError
from dspark_lite.common.origin import Origin, check_origin, why_stale
from dspark_lite.course.measure import step_time
from dspark_lite.course.measure.step_time import profile, profiled_tokens
from dspark_lite.course.replication import confidence_results
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling.additive_costs import AdditiveCosts
from dspark_lite.scheduling.cost_table import CostTable


def test_a_look_up_takes_the_largest_measured_size_not_above():
    table = CostTable([2, 4, 8], [10.0, 9.0, 5.0], 12)
    assert [table.sps(1, size) for size in (1, 2, 3, 4, 7, 8, 12)] == [10, 10, 10, 9, 9, 5, 5]
    assert table.sps(1, range(3, 6)).tolist() == [10, 9, 9]
    with pytest.raises(RequestError, match="covers batches of up to 12 tokens; 13 were asked for"):
        table.sps(1, 13)
    assert table.seconds(2, 4) == 1 / 9 and table.seconds(1, range(7, 9)).tolist() == [1 / 9, 1 / 5]


@pytest.mark.parametrize(
    ("sizes", "speeds", "most", "sentence"),
    [
        ([], [], None, "needs one speed a size, and at least one"),
        ([1, 2], [1.0], None, "2 sizes and 1 speeds"),
        ([2, 1], [1.0, 1.0], None, "do not increase"),
        ([1, 1], [1.0, 1.0], None, "do not increase"),
        ([0, 1], [1.0, 1.0], None, "do not increase"),
        ([1, 2], [1.0, 0.0], None, "not a positive number"),
        ([1, 2], [1.0, float("nan")], None, "not a positive number"),
        ([1.5, 2.7], [2.0, 1.0], None, "must be whole numbers"),
        ([1, 2], [1.0, 1.0], 1, "max_batch_tokens is 1; it must be at least"),
        *(
            (
                [1, 2],
                [1.0, 1.0],
                most,
                f"max_batch_tokens is {most}; .* at least the largest .* 2, and at most 1048576",
            )
            for most in (1e13, 2.5, "many")
        ),
        ([1, 10**13], [1.0, 1.0], None, "max_batch_tokens is 10000000000000; "),
    ],
)
def test_tables_that_make_no_sense_are_refused(sizes, speeds, most, sentence):
    with pytest.raises(RequestError, match=sentence):
        CostTable(sizes, speeds, most)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=30))
def test_the_monotone_view_never_speeds_up_and_keeps_the_total(seconds):
    table = CostTable(range(1, len(seconds) + 1), 1 / torch.tensor(seconds, dtype=torch.float64))
    monotone = 1 / table.monotone().steps_per_second
    assert (monotone.diff() >= -1e-9).all() and float(monotone.sum()) == pytest.approx(sum(seconds))
    torch.testing.assert_close(1 / table.monotone().monotone().steps_per_second, monotone)


VIEWS = {
    "monotone": (CostTable.monotone, [4, 4, 2, 2, 2, 1, 1, 1]),
    "lower hull": (CostTable.lower_hull, [4, 4, 3, 2.4, 2, 1.5, 1.2, 1]),
    "buckets": (lambda table: table.in_buckets([6, 99, 3]), [2, 2, 2, 1, 1, 1]),
}


@pytest.mark.parametrize(("view", "speeds"), VIEWS.values(), ids=VIEWS)
def test_a_view_covers_the_batches_of_its_table_and_says_where_that_was_measured(view, speeds):
    """Beyond the last measured size, too: in buckets, up to the largest one that it covers."""
    origin = Origin("Tesla T4", "target")
    found = view(CostTable([1, 3, 6], [4.0, 2.0, 1.0], 8, origin))
    assert found.max_batch_tokens == len(speeds) and found.origin is origin
    assert found.sps(1, range(1, len(speeds) + 1)).tolist() == pytest.approx(speeds)


def test_what_a_table_is_not_told():
    table = CostTable([1, 3], [2.0, 1.0])
    assert (table.max_batch_tokens, table.origin) == (3, None)
    assert table.most_tokens(1) == table.most_tokens(99) == 3


def test_the_file_has_the_fields_that_sglang_reads(tmp_path):
    CostTable([8, 16, 32], [1000.0, 950.5, 500.0], 128).save(tmp_path / "sps.json")
    held = json.loads((tmp_path / "sps.json").read_text())
    assert held == {
        "sample_batch_tokens": [8, 16, 32],
        "sample_steps_per_sec": [1000.0, 950.5, 500.0],
        "max_batch_tokens": 128,
    }
    assert all(
        type(size) is int for size in [*held["sample_batch_tokens"], held["max_batch_tokens"]]
    )
    assert all(type(speed) is float for speed in held["sample_steps_per_sec"])
    again = CostTable.load(tmp_path / "sps.json")
    assert (
        again.sps(1, range(129)).tolist()
        == CostTable([8, 16, 32], [1000.0, 950.5, 500.0], 128).sps(1, range(129)).tolist()
    )


@pytest.mark.parametrize(
    ("held", "sentence"),
    [
        ("{}", "has no field sample_batch_tokens, sample_steps_per_sec, max_batch_tokens"),
        ("nonsense", "is not JSON"),
        (
            '{"sample_batch_tokens": [2, 1], "sample_steps_per_sec": [1, 1], "max_batch_tokens": 2}',
            "do not increase",
        ),
        *(
            (
                f'{{"sample_batch_tokens": {sizes}, "sample_steps_per_sec": [1], "max_batch_tokens": 2}}',
                "sps.json",
            )
            for sizes in ('["a"]', "null")
        ),
        *(
            (
                '{"sample_batch_tokens": [1], "sample_steps_per_sec": [1], "max_batch_tokens": 2, "device": "CPU", '
                + told,
                "the origin is .* are texts",
            )
            for told in ('"versions": "2.0"}', '"versions": {"torch": 2}}', '"dtype": 16}')
        ),
    ],
)
def test_a_broken_file_is_refused(tmp_path, held, sentence):
    (tmp_path / "sps.json").write_text(held)
    with pytest.raises(CheckpointError, match=sentence):
        CostTable.load(tmp_path / "sps.json")


def test_a_profile_measures_every_size_and_leaves_the_cache_alone(monkeypatch):
    target, _ = toy_models()
    sizes = []
    verify = target.verify
    monkeypatch.setattr(
        target,
        "verify",
        lambda ids, cache: (
            sizes.append((ids.shape[1], cache.get_seq_length())),
            verify(ids, cache),
        )[1],
    )
    table, spent = profile(target, [3, 1, 2, 3], context=8, repeats=2)
    assert table.batch_tokens.tolist() == [1, 2, 3] and sizes == [(1, 8), (2, 8), (3, 8)] * 3
    assert {size: len(times) for size, times in spent.items()} == {1: 2, 2: 2, 3: 2}
    assert table.sps(1, 2) == pytest.approx(2e3 / sum(spent[2]))


def test_a_busy_moment_does_not_make_a_size_slow(monkeypatch):
    target, _ = toy_models()
    times = [2.0, 50.0, 1.0, 2.0, 3.0]  # milliseconds
    monkeypatch.setattr(
        step_time,
        "time_interleaved",
        lambda functions, *rest: {
            (r, size): [size * time for time in times] for r, size in functions
        },
    )
    table, _ = profile(target, [1, 2], context=8)
    assert table.steps_per_second.tolist() == [500.0, 250.0]


def test_sizes_that_cannot_be_profiled_are_refused():
    target, _ = toy_models()
    with pytest.raises(RequestError, match="exceed the 64 positions of this target"):
        profile(target, [60], context=8)
    with pytest.raises(RequestError, match="a step carries at least one token"):
        profile(target, [0, 1], context=8)


def test_the_command_writes_both_files(capsys, tmp_path):
    assert (
        main(
            [
                "profile",
                "--sizes",
                "1",
                "4",
                "--context",
                "16",
                "--out",
                str(tmp_path / "sps.json"),
                "--json",
                str(tmp_path / "steps.json"),
            ]
        )
        == 0
    )
    assert "4 tokens:" in capsys.readouterr().out
    assert CostTable.load(tmp_path / "sps.json").batch_tokens.tolist() == [1, 4]
    assert set(json.loads((tmp_path / "steps.json").read_text())) >= {
        "device",
        "versions",
        "context",
        "milliseconds",
    }
    assert main(["profile", "--sizes", "9999", "--out", str(tmp_path / "never.json")]) == 2
    assert not (tmp_path / "never.json").exists()


# Where it was measured


def test_a_table_keeps_where_it_was_measured_beside_what_sglang_reads(tmp_path):
    target, _ = toy_models()
    table, _ = profile(target, [1, 2], context=8, repeats=1)
    assert table.origin == Origin.of(target) == table.monotone().origin == table.lower_hull().origin
    table.save(tmp_path / "sps.json")
    held = json.loads((tmp_path / "sps.json").read_text())
    assert {
        "device",
        "target",
        "versions",
        "dtype",
        "fingerprint",
    } < held.keys() and "bias_seconds" not in json.dumps(held)
    assert (
        CostTable.load(tmp_path / "sps.json").origin == table.origin
        and why_stale(table.origin, target) is None
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"device": "Tesla T4"}, "device Tesla T4, not CPU"),
        ({"dtype": "bfloat16"}, "number format bfloat16, not float32"),
        ({"versions": {"torch": "1.0"}}, "torch 1.0, not "),
        ({"versions": {"transformers": "4.0"}}, "transformers 4.0, not "),
        ({"fingerprint": "0123"}, r"target target \(0123\), not target \("),
        ({"fingerprint": "", "target": "gpt"}, "target gpt, not target"),
    ],
)
def test_a_stale_table_is_named(changed, words):
    target, _ = toy_models()
    origin = replace(Origin.of(target), **changed)
    with pytest.raises(
        RequestError,
        match=f"measured elsewhere .{words}.*measure one with python -m dspark_lite profile",
    ):
        check_origin(origin, target)


def test_the_same_weights_under_another_name_are_the_same_target_and_what_was_not_told_is_not_compared():
    target, _ = toy_models()
    for origin in (
        None,
        replace(Origin.of(target), target="another folder"),
        Origin(Origin.of(target).device, target.name),
    ):
        check_origin(origin, target)


def test_a_lab_refuses_costs_of_another_device_and_the_command_says_so(tiny_lab, capsys, tmp_path):
    lab = tiny_lab
    table = CostTable([1, 2], [2.0, 1.0], origin=Origin.of(lab.target))
    additive = AdditiveCosts(
        0.1, [1, 2], [0, 0.1], [1, 2], [0, 0.1], replace(table.origin, device="Tesla T4")
    )
    table.save(tmp_path / "here.json")
    additive.save(tmp_path / "there.json")
    assert lab.costs(tmp_path / "here.json").sps(1, 2) == 1.0
    with pytest.raises(RequestError, match="device Tesla T4, not CPU"):
        lab.costs(tmp_path / "there.json")
    CostTable([1], [1.0]).save(tmp_path / "untold.json")
    asked = {
        name: main(["profile", "--check", str(tmp_path / f"{name}.json")])
        for name in ("here", "there", "untold")
    }
    assert asked == {"here": 0, "there": 1, "untold": 2}
    said = capsys.readouterr()
    assert (
        "was measured here" in said.out
        and "device Tesla T4, not CPU" in said.out
        and "does not say where it was measured" in said.err
    )
    assert main(["profile"]) == 2 and "either --out FILE" in capsys.readouterr().err


def test_a_profile_may_carry_the_tokens_of_a_text():
    target, _ = toy_models()
    assert profiled_tokens(target, (2, 4), torch.tensor([5, 6, 7])).tolist() == [
        [5, 6, 7, 5],
        [6, 7, 5, 6],
    ]
    assert profiled_tokens(target, (1, 5), None).equal(profiled_tokens(target, (1, 5), None))


def test_the_stored_table_follows_from_its_single_measurements():
    table, steps = confidence_results.stored_cost_table(), confidence_results.steps()
    medians = [
        1e3 / np.median(steps["milliseconds"][str(size)]) for size in table.batch_tokens.tolist()
    ]
    assert table.steps_per_second.tolist() == pytest.approx(medians)
    assert table.origin.device == steps["device"] and table.origin.versions == steps["versions"]
    assert steps["device"] and (np.diff(medians) > 0).any(), "a measured table is jagged"
