"""The target cache on disk: what is damaged is named and refused, and nothing else is lost."""

import copy
import json
import os

import pytest
import torch

from dspark_lite.common.errors import CheckpointError
from dspark_lite.decoding.target import Target
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.training import cache

TAPS = (0, 1)
ROWS = [([1, 0, 1, 1, 0][:length], 1) for length in (5, 2, 4, 3, 5, 1, 2)]


@pytest.fixture
def target():
    return toy_models(seed=3)[0]


@pytest.fixture
def folder(target, tmp_path, monkeypatch):
    """A cache of seven rows in three shards."""
    monkeypatch.setattr(cache, "SHARD", 3)
    cache.build_cache(target, ROWS, TAPS, tmp_path)
    return tmp_path


def read_all(target, folder):
    """Every row of the cache, padded."""
    return cache.build_cache(target, ROWS, TAPS, folder).batch(list(range(len(ROWS))), "cpu")


def shard(folder, number):
    (path,) = folder.glob(f"shard_{number:05d}-????????.safetensors")
    return path


def damage(path, how):
    """Spoils a shard in one way."""
    held = path.read_bytes()
    header = 8 + int.from_bytes(held[:8], "little")
    if how == "truncated":
        path.write_bytes(held[:-3])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "half a header":
        path.write_bytes(held[: header // 2])
    elif how == "another shard":
        path.write_bytes(shard(path.parent, 0).read_bytes())
    else:  # one bit of the hidden states, or of the checksums, which stand first because they are the widest numbers
        at = {
            "a flipped bit": len(held) - 5,
            "a flipped checksum": header + 1,
            "a flipped identity": held.index(b"identity") + 14,
        }[how]
        path.write_bytes(held[:at] + bytes([held[at] ^ 1]) + held[at + 1 :])


@pytest.mark.parametrize(
    "how",
    [
        "truncated",
        "empty",
        "half a header",
        "another shard",
        "a flipped bit",
        "a flipped checksum",
        "a flipped identity",
    ],
)
def test_a_damaged_shard_is_named_and_it_alone_is_written_anew(target, folder, how):
    whole = read_all(target, folder)
    others = {path: path.stat().st_mtime_ns for path in (shard(folder, 0), shard(folder, 2))}
    damage(shard(folder, 1), how)
    with pytest.raises(
        CheckpointError, match="shard_00001-.{8}.safetensors of the target cache .* delete this"
    ) as caught:
        read_all(target, folder)
    assert "\n" not in str(caught.value)
    shard(folder, 1).unlink()
    assert all(map(torch.equal, read_all(target, folder), whole))
    assert {path: path.stat().st_mtime_ns for path in others} == others


def test_every_flipped_byte_of_a_shard_is_noticed_or_without_effect(target, folder):
    """Also in the header, where a name or an offset may change into another one."""
    path, whole = shard(folder, 1), read_all(target, folder)
    held = path.read_bytes()
    for at in range(0, len(held), 7):
        path.write_bytes(held[:at] + bytes([held[at] ^ 0x10]) + held[at + 1 :])
        try:
            found = read_all(target, folder)
        except CheckpointError as error:
            assert path.name in str(error)
        else:
            assert all(map(torch.equal, found, whole)), at


def test_a_half_written_shard_is_not_taken_for_one(target, folder):
    whole = read_all(target, folder)
    shards = sorted(path.name for path in folder.glob("shard*"))
    half = shard(folder, 2).rename(folder / f"{shards[2]}.7.tmp")
    os.utime(half, (0, 0))  # of a process that was killed long ago
    assert all(map(torch.equal, read_all(target, folder), whole))
    assert sorted(path.name for path in folder.glob("shard*")) == shards and len(shards) == 3


@pytest.mark.parametrize("damaged", ["", "{", '{"target": 1}'])
def test_a_folder_whose_identity_is_damaged_is_refused(target, folder, damaged):
    (folder / "cache.json").write_text(damaged)
    with pytest.raises(CheckpointError, match="holds a target cache made for .*, not for"):
        read_all(target, folder)


def test_more_answers_and_other_answers_share_a_folder_and_the_shards_that_agree(target, folder):
    """A training goes on with more time and more answers; another recipe has fewer of them."""
    states = read_all(target, folder)
    first = {path: path.stat().st_mtime_ns for path in folder.glob("shard*")}
    more = cache.build_cache(target, ROWS * 2, TAPS, folder)
    assert [path in first for path in (shard.path for shard in more.shards)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    for found, wanted in zip(more.batch(list(range(7)), "cpu"), states, strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
    assert all(map(torch.equal, read_all(target, folder), states))
    assert {path: path.stat().st_mtime_ns for path in first} == first


def test_a_cache_of_another_target_or_other_taps_is_refused(target, folder):
    renamed = copy.copy(target)
    renamed.name = "other"
    for given in (
        (toy_models(seed=4)[0], ROWS, TAPS),
        (renamed, ROWS, TAPS),
        (target, ROWS, (0,)),
    ):
        with pytest.raises(
            CheckpointError, match="holds a target cache made for .*; use another folder"
        ):
            cache.build_cache(*given, folder)
    assert json.loads((folder / "cache.json").read_text())["taps"] == list(TAPS)


def test_shards_end_at_a_number_of_rows_or_of_bytes(monkeypatch):
    monkeypatch.setattr(cache, "SHARD", 3)
    monkeypatch.setattr(cache, "SHARD_BYTES", 100)
    assert cache.shard_spans([1] * 7, 10) == [(0, 3), (3, 6), (6, 7)]
    # one row is too long for any
    assert cache.shard_spans([4, 6, 1, 11, 2, 2], 10) == [
        (0, 2),
        (2, 3),
        (3, 4),
        (4, 6),
    ]
    assert cache.shard_spans([], 10) == []
    assert cache.token_bytes(5, 2560) == 30_720


def test_rows_are_read_where_they_lie_and_padded(target, folder):
    """Features and last hidden states of each row, as the target computes them, rounded to 16 bits; answers are supervised."""
    chosen = [2, 0, 4, 6, 1, 3, 5]
    ids, supervised, *states = cache.build_cache(target, ROWS, TAPS, folder).batch(chosen, "cpu")
    for place, (tokens, _) in enumerate(ROWS[index] for index in chosen):
        padding = [0] * (5 - len(tokens))
        assert (
            ids[place].tolist() == tokens + padding
            and supervised[place].int().tolist() == [0] + [1] * (len(tokens) - 1) + padding
        )
        last, features = target.last_hidden(torch.tensor([tokens]), TAPS)
        for found, wanted in zip(states, (features, last), strict=True):
            torch.testing.assert_close(
                found[place, : len(tokens)], wanted[0].bfloat16().float(), atol=1e-2, rtol=1e-2
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_hidden_states_computed_anew_are_those_of_the_cache_in_float32_whatever_the_targets_format(
    tmp_path, dtype
):
    model = copy.deepcopy(toy_models(seed=3)[0].model).to(dtype)
    target = Target(model)
    kept = cache.build_cache(target, ROWS, TAPS, tmp_path).batch([2, 1, 4], "cpu")
    anew = cache.OnlineFeatures(target, ROWS, TAPS).batch([2, 1, 4], "cpu")
    assert kept[0].equal(anew[0]) and kept[1].equal(anew[1])
    for ours, theirs in zip(anew[2:], kept[2:], strict=True):
        assert ours.dtype == theirs.dtype == torch.float32 and ours.shape == theirs.shape
        for row, length in enumerate((4, 2, 5)):
            torch.testing.assert_close(
                ours[row, :length], theirs[row, :length], rtol=1e-2, atol=1e-2
            )


def test_a_pass_of_the_target_has_so_many_sequences_and_tokens_at_most_and_all_rows_come_out(
    target, tmp_path, monkeypatch
):
    passes, work = [], target.last_hidden
    monkeypatch.setattr(
        target, "last_hidden", lambda ids, taps: passes.append(tuple(ids.shape)) or work(ids, taps)
    )
    found = []
    for number, (sequences, tokens, wanted) in enumerate(
        [
            (32, 16384, [(7, 5)]),
            (3, 16384, [(3, 5), (3, 3), (1, 1)]),
            (32, 10, [(2, 5), (2, 4), (3, 2)]),
            (32, 1, [(1, n) for n in (5, 5, 4, 3, 2, 2, 1)]),
        ]
    ):
        monkeypatch.setattr(cache, "PASS_SEQUENCES", sequences)
        monkeypatch.setattr(cache, "PASS_TOKENS", tokens)
        found.append(
            cache.build_cache(target, ROWS, TAPS, tmp_path / str(number)).batch(
                list(range(7)), "cpu"
            )
        )
        assert passes == wanted
        passes.clear()
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            torch.testing.assert_close(ours.float(), theirs.float(), rtol=1e-2, atol=1e-2)


def test_only_the_shards_that_are_missing_need_room(target, folder, monkeypatch):
    asked = []
    monkeypatch.setattr(cache, "_check_space", lambda folder, needed: asked.append(needed))
    read_all(target, folder)
    shard(folder, 1).unlink()
    read_all(target, folder)
    assert asked == [0, (3 + 5 + 1) * cache.token_bytes(2, 16)]
