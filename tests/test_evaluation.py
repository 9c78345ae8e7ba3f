"""Measuring: the arithmetic on hand-made generations, and the files that `evaluate` and `bench` write."""

import json
import math

import numpy as np
import pytest
import torch

from dspark_lite.__main__ import main
from dspark_lite.decoding import Generation, Round
from dspark_lite.evaluation import (
    answer_entropy,
    bootstrap,
    conditional_acceptance,
    macro_gain,
    mean_accepted_length,
    rollouts,
    tally,
    tokens_per_second,
)
from dspark_lite.lab import setup
from dspark_lite.losslessness import toy_models
from dspark_lite.training.corpus import DOMAINS


def generation(*rounds, seconds=1.0):
    """A generation of rounds (proposed, accepted), the last of which may name fewer committed tokens."""
    made = [Round(r[0], r[1], r[2] if len(r) > 2 else r[1] + 1, [0] * r[0], [], 0.0, 0.0) for r in rounds]
    return Generation([0] * (1 + sum(r.committed for r in made)), made, 0.5, seconds)


TEXTS = [generation((3, 0), (3, 3), (3, 1)), generation((3, 2), (3, 3, 1), seconds=3.0)]


def test_tally_counts_committed_tokens_and_rounds():
    assert tally(TEXTS).tolist() == [[7, 3], [4, 2]]
    assert tally([generation()]).tolist() == [[0, 0]]


def test_accepted_length_is_over_all_rounds_of_a_domain_and_averaged_over_domains():
    assert mean_accepted_length([tally(TEXTS)]) == 11 / 5
    assert mean_accepted_length([tally(TEXTS), tally(TEXTS[:1])]) == pytest.approx((11 / 5 + 7 / 3) / 2)


def test_conditional_acceptance_counts_who_reached_a_position():
    assert conditional_acceptance(TEXTS, 4) == [4 / 5, 3 / 4, 2 / 3, None]
    assert conditional_acceptance([generation((0, 0))], 1) == [None]  # nothing was proposed


def test_speed_is_tokens_of_rounds_over_seconds_of_decoding():
    assert tokens_per_second(TEXTS) == 11 / 4


def test_bootstrap_repeats_covers_and_narrows():
    rng = np.random.default_rng(1)
    few, many = (np.stack([rng.poisson(3.0, count) + 1.0, np.ones(count)], 1) for count in (20, 2000))
    wide, narrow = (bootstrap(mean_accepted_length, [rows]) for rows in (few, many))
    assert wide == bootstrap(mean_accepted_length, [few])
    assert wide.low < wide.value < wide.high and narrow.low < 4.0 < narrow.high
    # Of a mean of n Poisson counts: 1.96 sqrt(3 / n) on either side.
    assert narrow.high - narrow.low == pytest.approx(2 * 1.96 * math.sqrt(3 / 2000), rel=0.15)
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)
    constant = bootstrap(mean_accepted_length, [np.array([[4.0, 2.0]] * 5)])
    assert (constant.value, constant.low, constant.high) == (2.0, 2.0, 2.0)


def test_macro_gain_compares_the_same_prompts():
    """Lengths differ from prompt to prompt but ours is a fifth longer on each: paired, nothing is uncertain."""
    theirs = [np.array([[10.0, 5.0], [40.0, 5.0], [25.0, 5.0]]), np.array([[5.0, 5.0], [20.0, 5.0]])]
    ours = [group * [1.2, 1.0] for group in theirs]
    gain = macro_gain(ours, theirs)
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.2, 0.2, 0.2))
    back = macro_gain(theirs, ours)
    assert back.value == pytest.approx(1 / 1.2 - 1)


def test_entropy_of_answer_tokens_is_in_nats():
    target, _ = toy_models(vocab_size=5)
    target.model.lm_head.weight.zero_()  # every next token is equally likely
    assert answer_entropy(target, [[1, 2], [3]], [[4, 0, 1], [2]]) == pytest.approx(math.log(5))


# On the tiny profile -------------------------------------------------------------------------------------------------

HEADER = {"device", "versions", "seed", "profile", "temperature", "prompts", "rows"}


def run(command, path, *arguments):
    """What a measuring command writes."""
    assert main([command, "--json", str(path), *arguments]) == 0
    measured = json.loads(path.read_text())
    assert HEADER <= set(measured) and measured["device"].startswith("CPU") and measured["profile"] == "tiny"
    assert {"torch", "transformers"} <= set(measured["versions"])
    return measured


def test_evaluate_writes_its_rows(tmp_path, capsys):
    measured = run("evaluate", tmp_path / "new" / "e.json", "--prompts", "2", "--drafters", "dspark", "dflash", "prompt_lookup", "--seed", "3")
    assert measured["seed"] == 3 and measured["prompts"] == 2 and measured["temperature"] == 1.0
    assert [(row["drafter"], row["domain"]) for row in measured["rows"]] == [
        (drafter, domain) for drafter in ("dspark", "dflash", "prompt_lookup") for domain in ("math", "code", "chat")]
    for row in measured["rows"]:
        assert set(row) == {"drafter", "domain", "accepted_length", "low", "high", "conditional_acceptance"}
        assert 1 <= row["low"] <= row["accepted_length"] <= row["high"] <= 8
        assert len(row["conditional_acceptance"]) == 7
        assert all(rate is None or 0 <= rate <= 1 for rate in row["conditional_acceptance"])
    assert set(measured["dspark_over_dflash"]) == {"value", "low", "high"}
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 10 and out[-1].startswith("DSpark over DFlash, macro-average: ")


def test_bench_writes_speeds_relative_to_plain_decoding(tmp_path):
    measured = run("bench", tmp_path / "b.json", "--prompts", "1", "--drafters", "dspark", "prompt_lookup")
    names = ["plain", "dspark", "prompt_lookup"]
    assert [(row["drafter"], row["domain"]) for row in measured["rows"]] == [(n, d) for d in DOMAINS for n in names]
    plain = {row["domain"]: row for row in measured["rows"] if row["drafter"] == "plain"}
    for row in measured["rows"]:
        assert set(row) == {"drafter", "domain", "tokens_per_second", "speedup", "accepted_length"}
        assert row["speedup"] == pytest.approx(row["tokens_per_second"] / plain[row["domain"]]["tokens_per_second"])
    assert all((row["speedup"], row["accepted_length"]) == (1.0, 1.0) for row in plain.values())
    for name in names:
        speedups = [row["speedup"] for row in measured["rows"] if row["drafter"] == name]
        assert measured["macro_speedup"][name] == pytest.approx(sum(speedups) / len(DOMAINS))
    assert set(measured["draft_milliseconds_by_context"]) == {"dspark"}
    assert set(measured["draft_milliseconds_by_context"]["dspark"]) == {"100", "1500"}


def test_quality_writes_what_is_right_and_how_uncertain_it_is(tmp_path):
    assert main(["quality", "--prompts", "2", "--json", str(tmp_path / "q.json")]) == 0
    rows = json.loads((tmp_path / "q.json").read_text())["rows"]
    assert [row["domain"] for row in rows] == list(DOMAINS)
    assert all(("right" in row) == (row["domain"] != "chat") and row["entropy_nats"] > 0 for row in rows)


def test_more_prompts_begin_with_the_same_generations():
    lab = setup(prompts=2, seed=5)
    texts = lab.prompts["chat"]
    one, two = (rollouts(lab, lab.drafter("dspark"), texts[:count], temperature=1.0) for count in (1, 2))
    assert one[0].token_ids == two[0].token_ids


def test_the_lab_holds_one_drafter_and_repeats_itself():
    lab = setup(prompts=3)
    assert lab.drafter("dspark") is lab.drafter("dspark") and lab.drafters == ["dspark", "dflash", "small_lm", "prompt_lookup"]
    first = lab.drafter("dspark")
    lab.drafter("dflash")
    assert lab.drafter("dspark") is not first
    assert setup(prompts=2).prompts == {domain: texts[:2] for domain, texts in lab.prompts.items()}
    ids = lab.encode("Hi")
    assert ids.shape[0] == 1 and lab.decode(ids[0]).startswith("user\nHi\nassistant")
    assert torch.rand(1, generator=lab.generator(3)) == torch.rand(1, generator=lab.generator(3))
