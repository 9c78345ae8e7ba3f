"""Measuring: the arithmetic on hand-made generations, and the files that `evaluate` and `bench` write."""

import gc
import json
import math
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from dspark_lite.__main__ import main
from dspark_lite.common.errors import DSparkLiteError, RequestError
from dspark_lite.common.fingerprint import fingerprint
from dspark_lite.course.estimates import bootstrap
from dspark_lite.course.measure import evaluation, journal
from dspark_lite.course.measure.evaluation import (
    acceptance_by_position,
    count_estimates,
    evaluate,
    mean_accepted_length,
    position_counts,
    relative_gain,
    rollouts,
    rollouts_side_by_side,
    row_tally,
    tally,
)
from dspark_lite.course.measure.journal import Journal, check_writable, commit
from dspark_lite.course.measure.lab import NEW_TOKENS, setup
from dspark_lite.course.measure.speed import speed_lead, tokens_per_second
from dspark_lite.course.names import DOMAINS
from dspark_lite.decoding import Generation, Round, generate
from dspark_lite.drafters import PromptLookup
from dspark_lite.fast import fast_path
from dspark_lite.models.checkpoints import EMBEDDED


def generation(*rounds, seconds=1.0):
    """A generation of rounds (proposed, accepted), the last of which may name fewer committed tokens."""
    made = [
        Round(r[0], r[1], r[2] if len(r) > 2 else r[1] + 1, [0] * r[0], [], 0.0, 0.0)
        for r in rounds
    ]
    return Generation([0] * (1 + sum(r.committed for r in made)), made, 0.5, seconds)


TEXTS = [generation((3, 0), (3, 3), (3, 1)), generation((3, 2), (3, 3, 1), seconds=3.0)]


def test_tokens_of_rounds_over_all_rounds_of_a_domain_averaged_over_domains_and_over_seconds():
    assert tally(TEXTS).tolist() == [[7, 3], [4, 2]] and tally([generation()]).tolist() == [[0, 0]]
    assert mean_accepted_length([tally(TEXTS)]) == 11 / 5
    assert mean_accepted_length([tally(TEXTS), tally(TEXTS[:1])]) == pytest.approx(
        (11 / 5 + 7 / 3) / 2
    )
    assert tokens_per_second(TEXTS) == 11 / 4


def test_conditional_acceptance_counts_who_reached_a_position_and_nothing_behind_the_end_of_an_answer():
    assert position_counts(TEXTS, 4).tolist() == [
        [[2, 3], [1, 2], [1, 1], [0, 0]],
        [[2, 2], [1, 1], [0, 1], [0, 0]],
    ]
    assert (
        acceptance_by_position(TEXTS, 4)
        == [4 / 5, 2 / 3, 1 / 2, None]
        == [e and e.value for e in count_estimates(position_counts(TEXTS * 5, 4))]
    )
    assert acceptance_by_position([generation((0, 0))], 1) == [None]  # nothing was proposed
    # the second draft was the stop token
    assert acceptance_by_position([generation((3, 2, 2))], 3) == [
        1,
        1,
        None,
    ]
    # the correction was, or came last
    assert acceptance_by_position([generation((3, 2, 3))], 3) == [
        1,
        1,
        0,
    ]


def test_a_prompt_without_a_round_counts_for_nothing():
    """Half of the resamples of two prompts hold a round, the others say nothing."""
    found = bootstrap(mean_accepted_length, [np.array([[0.0, 0.0], [6.0, 2.0]])])
    assert (found.value, found.low, found.high) == (3.0, 3.0, 3.0)
    assert math.isnan(bootstrap(mean_accepted_length, [tally([])]).low)


def test_an_interval_is_always_the_same_and_as_wide_as_that_of_a_mean_of_poisson_counts():
    rows = np.stack([np.random.default_rng(1).poisson(3.0, 2000) + 1.0, np.ones(2000)], 1)
    found = bootstrap(mean_accepted_length, [rows])
    assert found == bootstrap(mean_accepted_length, [rows]) and found.low < 4.0 < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.sqrt(3 / 2000), rel=0.15)


def test_macro_gain_compares_the_same_prompts():
    """Lengths differ from prompt to prompt but ours is a fifth longer on each: paired, nothing is uncertain."""
    theirs = [
        np.array([[10.0, 5.0], [40.0, 5.0], [25.0, 5.0]]),
        np.array([[5.0, 5.0], [20.0, 5.0]]),
    ]
    ours = [group * [1.2, 1.0] for group in theirs]
    gain = relative_gain(ours, theirs)
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.2, 0.2, 0.2))


# On the tiny profile

HEADER = {
    "device",
    "versions",
    "commit",
    "seed",
    "profile",
    "target",
    "temperature",
    "prompts",
    "rows",
}
ROW = {
    "drafter",
    "domain",
    "accepted_length",
    "low",
    "high",
    "conditional_acceptance",
    "committed",
    "rounds",
    "position_counts",
    "skipped",
}


def run(command, path, *arguments):
    """What a measuring command writes."""
    assert main([command, "--json", str(path), *arguments]) == 0
    measured = json.loads(path.read_text())
    assert (
        HEADER <= set(measured)
        and measured["device"].startswith("CPU")
        and measured["profile"] == "tiny"
    )
    assert {"torch", "transformers"} <= set(measured["versions"])
    return measured


def test_evaluate_writes_its_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(NEW_TOKENS, "tiny", 10)
    measured = run(
        "evaluate",
        tmp_path / "new" / "e.json",
        "--prompts",
        "2",
        "--drafters",
        "dspark",
        "dflash",
        "prompt_lookup",
        "--seed",
        "3",
    )
    assert (
        measured["seed"] == 3
        and measured["prompts"] == dict.fromkeys(DOMAINS, 2)
        and measured["temperature"] == 1.0
    )
    assert measured["commit"] == commit() and measured["max_new_tokens"] == 10
    assert [(row["drafter"], row["domain"]) for row in measured["rows"]] == [
        (drafter, domain)
        for drafter in ("dspark", "dflash", "prompt_lookup")
        for domain in ("math", "code", "chat")
    ]
    for row in measured["rows"]:
        assert (
            set(row) == ROW
            and len(row["committed"]) == len(row["rounds"]) == 2
            and row["skipped"] == 0
        )
        assert row["accepted_length"] == sum(row["committed"]) / sum(row["rounds"])
        assert 1 <= row["low"] <= row["accepted_length"] <= row["high"] <= 8
        kept, reached = np.array(row["position_counts"]).sum(0).T
        assert (
            row["conditional_acceptance"] == [k / n if n else None for k, n in zip(kept, reached)]
            and len(kept) == 7
        )
        assert all(rate is None or 0 <= rate <= 1 for rate in row["conditional_acceptance"])
    assert set(measured["dspark_over_dflash"]) == {"value", "low", "high"}
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 10 and out[-1].startswith("DSpark over DFlash, macro-average: ")


def test_bench_writes_speeds_relative_to_plain_decoding(tmp_path, monkeypatch):
    monkeypatch.setitem(NEW_TOKENS, "tiny", 10)
    measured = run(
        "bench", tmp_path / "b.json", "--prompts", "1", "--drafters", "dspark", "prompt_lookup"
    )
    names = ["plain", "dspark", "prompt_lookup"]
    assert [(row["drafter"], row["domain"]) for row in measured["rows"]] == [
        (n, d) for d in DOMAINS for n in names
    ]
    plain = {row["domain"]: row for row in measured["rows"] if row["drafter"] == "plain"}
    for row in measured["rows"]:
        assert set(row) == {
            "drafter",
            "domain",
            "tokens_per_second",
            "speedup",
            "accepted_length",
            "draft_milliseconds",
            "verify_milliseconds",
        }
        assert row["speedup"] == pytest.approx(
            row["tokens_per_second"] / plain[row["domain"]]["tokens_per_second"]
        )
    assert all((row["speedup"], row["accepted_length"]) == (1.0, 1.0) for row in plain.values())
    for name in names:
        speedups = [row["speedup"] for row in measured["rows"] if row["drafter"] == name]
        assert measured["macro_speedup"][name] == pytest.approx(sum(speedups) / len(DOMAINS))
    fastest = max(names, key=measured["macro_speedup"].get)
    rates = {(row["drafter"], row["domain"]): row["tokens_per_second"] for row in measured["rows"]}
    assert set(measured["leads"]) == set(names) - {fastest}
    for name, found in measured["leads"].items():
        assert found["value"] == pytest.approx(
            sum(rates[fastest, d] / rates[name, d] for d in DOMAINS) / len(DOMAINS) - 1
        )
        assert found["low"] == found["high"] == pytest.approx(found["value"]), (
            "with a prompt a domain there is nothing to redraw"
        )


def test_a_lead_in_speed_is_resampled_by_prompts():
    ours, theirs = [np.array([[10, 1.0], [30, 2.0]])], [np.array([[10, 2.0], [30, 3.0]])]
    found = speed_lead(ours, theirs)
    assert found.value == pytest.approx((40 / 3) / (40 / 5) - 1)
    assert (found.low, found.high) == pytest.approx((3 / 2 - 1, 2 / 1 - 1)), (
        "the one prompt twice, or the other"
    )


def test_the_lab_holds_one_drafter_and_repeats_itself():
    lab = setup(prompts=3)
    assert lab.drafter("dspark") is lab.drafter("dspark")
    assert lab.drafters == ["dspark", "dflash", "eagle3", "mtp", "small_lm", "prompt_lookup"]
    first = lab.drafter("dspark")
    lab.drafter("dflash")
    assert lab.drafter("dspark") is not first
    assert setup(prompts=2).prompts == {domain: texts[:2] for domain, texts in lab.prompts.items()}
    ids = lab.encode("Hi")
    assert ids.shape[0] == 1 and lab.decode(ids[0]).startswith("user\nHi\nassistant")
    assert torch.rand(1, generator=lab.generator(3)) == torch.rand(1, generator=lab.generator(3))


FAST = partial(fast_path, backend="eager")
TRACED = pytest.mark.slow(reason="the fast path's compiler is loaded and traces the models")


@pytest.mark.parametrize(
    "names, fast",
    [
        (["dspark", "dflash", "eagle3", "mtp", "small_lm", "prompt_lookup"], None),
        pytest.param(["dspark"], FAST, marks=TRACED),
    ],
)
def test_a_drafter_that_is_let_go_leaves_the_memory(names, fast, monkeypatch):
    lab, collected = setup(prompts=1), []
    monkeypatch.setattr(
        gc,
        "collect",
        lambda generation=2, collect=gc.collect: (
            collected.append(generation) or collect(generation)
        ),
    )
    ids = lab.encode(lab.prompts["math"][0])
    gc.disable()
    try:
        for name in names:
            held = weakref.ref(lab.drafter(name))
            generate(lab.target, held(), ids, max_new_tokens=8, prepare=fast)
            lab.drafter("dflash" if name == "dspark" else "dspark")
            assert held() is None, f"{name} is still there"
    finally:
        gc.enable()
    # it takes a third of a second, so only where it is needed
    assert (2 in collected) == bool(fast)


@TRACED
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.enable_grad])
def test_weights_stay_what_they_are_where_the_fast_path_lays_out_its_own(mode):
    with mode():
        lab = setup(prompts=1)
        drafter = lab.drafter("dspark")
    weight = drafter.layers[0].mlp.down_proj.weight
    was = weight.is_inference()
    generate(
        lab.target, drafter, lab.encode(lab.prompts["math"][0]), max_new_tokens=4, prepare=FAST
    )
    (made,) = drafter.prepared.values()
    assert weight.stride(1) == 1 and weight.is_inference() is was is (mode is torch.inference_mode)
    assert made.drafter.layers[0].mlp.down_proj.weight.stride(0) == 1


# Resuming

FEW = {"max_new_tokens": 6}


@pytest.fixture(scope="module")
def lab(short_lab):
    """The shared lab with three prompts a domain and a seed that is not the default."""
    found = replace(
        short_lab,
        prompts={domain: texts[:3] for domain, texts in short_lab.prompts.items()},
        seed=4,
    )
    found.max_new_tokens = 16
    return found


@pytest.fixture
def decoded(monkeypatch):
    """The prompts that were decoded, in order."""
    seen, decode = [], evaluation.rollout

    def watched(lab, drafter, prompt, *arguments, **options):
        seen.append(prompt)
        return decode(lab, drafter, prompt, *arguments, **options)

    monkeypatch.setattr(evaluation, "rollout", watched)
    return seen


def prompts_of(lab, count):
    return {"math": lab.prompts["math"][:count], "humaneval": lab.prompts["code"][:count]}


def test_a_resumed_evaluation_equals_an_uninterrupted_one(lab, tmp_path, decoded):
    drafters = {"dspark": "dspark", "lookup": "prompt_lookup"}
    whole = evaluate(lab, drafters, prompts_of(lab, 2), **FEW, path=tmp_path / "whole.json")
    assert len(decoded) == 8
    assert [(row["drafter"], row.get("benchmark"), row["domain"]) for row in whole["rows"]] == [
        ("dspark", None, "math"),
        ("dspark", "humaneval", "code"),
        ("lookup", None, "math"),
        ("lookup", "humaneval", "code"),
    ]
    lines = (tmp_path / "whole.journal.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 9
    for kept in (0, 1, 4, 8):  # settings and finished prompts, then half a line
        (tmp_path / "cut.journal.jsonl").write_bytes(b"".join(lines[:kept]) + lines[kept][:-2])
        decoded.clear()
        assert (
            evaluate(lab, drafters, prompts_of(lab, 2), **FEW, path=tmp_path / "cut.json") == whole
        )
        assert len(decoded) == 8 - max(0, kept - 1)
        assert (tmp_path / "cut.journal.jsonl").read_bytes() == b"".join(lines)
    assert evaluate(lab, drafters, prompts_of(lab, 2), **FEW) == whole  # and without a journal


def test_side_by_side_the_answers_are_those_of_one_by_one(lab):
    alone, together = (
        evaluate(lab, ["dspark", "eagle3"], prompts_of(lab, 4), **FEW, temperature=0.0, slots=slots)
        for slots in (1, 3)
    )
    assert alone["rows"] == together["rows"]


def test_rollouts_side_by_side_keep_the_order_of_the_prompts(lab):
    prompts, drafter = [texts[0] for texts in lab.prompts.values()], lab.drafter("dspark")
    alone, together = (
        decode(lab, drafter, prompts, temperature=0.0)
        for decode in (rollouts, rollouts_side_by_side)
    )
    assert [answer.token_ids for answer in alone] == [answer.token_ids for answer in together]


def test_side_by_side_draws_depend_neither_on_the_neighbours_nor_on_a_stop(lab, tmp_path):
    def rows(count, slots=2, **options):
        return evaluate(
            lab, ["dflash"], {"chat": lab.prompts["chat"][:count]}, **FEW, slots=slots, **options
        )["rows"]

    two, six = rows(2, gamma=3)[0], rows(6, 4, gamma=3)[0]
    assert six["rounds"][:2] == two["rounds"] and len(two["conditional_acceptance"]) == 3
    rows(1, path=tmp_path / "e.json")
    assert rows(3, path=tmp_path / "e.json") == rows(3)


def test_the_same_prompt_in_two_places_is_answered_by_other_draws(lab):
    prompt = lab.prompts["chat"][0]
    first, second = rollouts(lab, lab.drafter("dflash"), [prompt, prompt], temperature=1.0)
    assert first.token_ids != second.token_ids


def test_more_prompts_and_other_texts_are_decoded_and_the_rest_is_not(lab, tmp_path, decoded):
    path = tmp_path / "e.json"
    first = evaluate(lab, ["prompt_lookup"], prompts_of(lab, 2), **FEW, path=path)
    decoded.clear()
    more = evaluate(lab, ["prompt_lookup"], prompts_of(lab, 3), **FEW, path=path)
    assert decoded == [lab.prompts["math"][2], lab.prompts["code"][2]]
    assert [row["committed"][:2] for row in more["rows"]] == [
        row["committed"] for row in first["rows"]
    ]
    decoded.clear()
    evaluate(
        lab, ["prompt_lookup"], {"math": [lab.prompts["math"][0], "Another?"]}, **FEW, path=path
    )
    assert decoded == ["Another?"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"temperature": 0.5}, "temperature 1.0, not 0.5"),
        ({"max_new_tokens": 7}, "max_new_tokens 6, not 7"),
        ({"gamma": 3}, "gamma None, not 3"),
        ({"drafters": ["dspark"]}, r"drafters \['prompt_lookup'\], not \['dspark'\]"),
        ({"seed": 5}, "seed 4, not 5"),
        ({"drafters": {"prompt_lookup": "dflash"}}, "weights "),
    ],
)
def test_a_journal_of_other_settings_is_refused(
    lab, tmp_path, monkeypatch, decoded, change, sentence
):
    path, prompts = tmp_path / "e.json", {"chat": lab.prompts["chat"][:1]}
    evaluate(lab, ["prompt_lookup"], prompts, **FEW, path=path)
    monkeypatch.setattr(lab, "seed", change.get("seed", 4))
    options = {
        **FEW,
        **{name: value for name, value in change.items() if name not in ("drafters", "seed")},
    }
    with pytest.raises(DSparkLiteError, match=rf"e.journal.jsonl was begun with {sentence}"):
        evaluate(lab, change.get("drafters", ["prompt_lookup"]), prompts, **options, path=path)
    assert len(decoded) == 1


def test_a_journal_without_entries_begins_anew_with_other_settings(tmp_path):
    for seed in (1, 2):
        held = Journal(tmp_path / "x", {"seed": seed})
    held.add(("a",), 3)
    assert (tmp_path / "x").read_text() == '{"settings": {"seed": 2}}\n[["a"], 3]\n'


def test_every_drafter_is_checked_before_the_first_prompt(lab, tmp_path, decoded):
    drafters = {"seven": "prompt_lookup", "three": PromptLookup(lab.target.vocab_size, gamma=3)}
    with pytest.raises(RequestError, match="gamma is 5; this drafter drafts between 1 and 3"):
        evaluate(lab, drafters, prompts_of(lab, 1), gamma=5)
    with pytest.raises(RequestError, match="prompt_lookup keeps no context"):
        evaluate(
            lab,
            {"first": "dspark", **drafters},
            prompts_of(lab, 1),
            slots=2,
            path=tmp_path / "never.json",
        )
    assert not decoded and not list(tmp_path.iterdir())


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    for text in (
        "{}\n",
        "[1]\n",
        "nothing\n",
        '{"settings": {}}\n{"a": 1}\n',
        '{"settings": {}}\n[1]\n',
    ):
        (tmp_path / "x").write_text(text)
        with pytest.raises(DSparkLiteError, match="is not the journal of a measurement"):
            Journal(tmp_path / "x", {})
        assert (tmp_path / "x").read_text() == text


def test_a_drafter_may_be_an_object_or_a_folder(lab, tmp_path):
    given = {"name": "dspark", "folder": EMBEDDED / "tiny-dspark", "object": lab.drafter("dspark")}
    rows = evaluate(lab, given, {"math": lab.prompts["math"][:2]}, **FEW)["rows"]
    assert [row.pop("drafter") for row in rows] == list(given) and rows[0] == rows[1] == rows[2]
    answers = rollouts(lab, lab.drafter("dspark"), lab.prompts["math"][:2], temperature=1.0)
    full = evaluate(lab, ["dspark"], {"math": lab.prompts["math"][:2]})["rows"][0]
    assert row_tally(full).tolist() == tally(answers).tolist()
    assert full["conditional_acceptance"] == acceptance_by_position(answers, 7)


def test_a_long_prompt_gets_a_short_answer_and_a_longer_one_is_skipped(lab, monkeypatch, decoded):
    texts = lab.prompts["math"]
    monkeypatch.setattr(lab.target, "max_positions", lab.encode(texts[0]).shape[1] + 5)
    longer = texts[0] + " " + texts[0]
    (row,) = evaluate(
        lab, ["prompt_lookup"], {"math": [longer, texts[0], longer]}, max_new_tokens=2048
    )["rows"]
    assert decoded == [texts[0]] and row["skipped"] == 2
    # the first of five belongs to no round
    assert len(row["rounds"]) == 1 and row["committed"][0] <= 4
    (row,) = evaluate(lab, ["prompt_lookup"], {"math": [longer]}, max_new_tokens=2048)["rows"]
    assert (row["accepted_length"], row["low"], row["high"], row["skipped"]) == (
        None,
        None,
        None,
        1,
    )
    assert row["conditional_acceptance"] == [None] * 7


def test_a_fingerprint_tells_weights_apart(lab):
    marks = [fingerprint(lab.drafter(name)) for name in ("dspark", "dflash", "small_lm")] + [
        fingerprint(lab.target)
    ]
    assert len(set(marks)) == 4 and fingerprint(lab.drafter("dspark")) == marks[0]
    assert fingerprint(lab.drafter("prompt_lookup")) is None


def test_the_commit_is_that_of_the_clone_and_none_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "ROOT", tmp_path)
    assert commit() is None
    (tmp_path / ".git").mkdir()
    assert commit() is None  # no repository after all
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() is None  # no git


def test_a_result_can_be_written_where_its_folder_is_or_can_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "file", tmp_path / "new.json", tmp_path / "a" / "b" / "new.json"):
        check_writable(path)
    monkeypatch.chdir(tmp_path)
    check_writable(Path("new.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (
        tmp_path / "file"
    ).read_text() == "kept"

    def refuses(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(journal, "TemporaryFile", refuses)
    with pytest.raises(
        DSparkLiteError,
        match=r"\(Permission denied\), so the result could not be kept in .*new.json",
    ):
        check_writable(tmp_path / "new.json")
