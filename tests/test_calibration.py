"""Sequential temperature scaling equals the reference; reliability, ECE, AUC and Brier are what their names say."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.special import expit

from dspark_lite.__main__ import main
from dspark_lite.common.errors import CheckpointError, RequestError
from dspark_lite.common.files import ROOT
from dspark_lite.common.fingerprint import fingerprint
from dspark_lite.course.extensions import online_sts
from dspark_lite.course.extensions.online_sts import OnlineSTS
from dspark_lite.course.measure import confidence
from dspark_lite.course.measure.confidence import observe, replay
from dspark_lite.course.measure.journal import journal_path
from dspark_lite.course.measure.lab import Lab
from dspark_lite.course.measure.threshold_sweep import step_counts, sweep
from dspark_lite.course.replication import confidence_results
from dspark_lite.decoding import Round
from dspark_lite.scheduling import calibration
from dspark_lite.scheduling.calibration import (
    STS,
    auc,
    brier,
    by_position,
    check_calibration,
    ece,
    ece_floor,
    fit_sts,
    reliability,
    survivals,
    survived,
)
from tools.measure import confidence as confidence_script

REFERENCE = json.loads(
    (ROOT / "assets" / "reference" / "golden" / "sts_reference.json").read_text()
)
GAMMA = 4


def made(count=2000, gamma=GAMMA, heat=2.0, seed=0):
    """Logits [N, gamma] that are `heat` times too far from zero, and accepted counts [N] drawn from the true ones."""
    rng = np.random.default_rng(seed)
    true = rng.normal(1.5, 1.2, (count, gamma))
    accepted = (rng.random((count, gamma)) < expit(true)).cumprod(1).sum(1)
    return true * heat, accepted


@pytest.mark.parametrize("count", range(2, 8))
def test_no_prompt_is_both_fitted_on_and_reported(count):
    texts = [str(number) for number in range(count)]
    halves = confidence.reported_half(texts), confidence.fitted_half(texts)
    assert sum(halves, []) == texts and abs(len(halves[0]) - len(halves[1])) <= 1


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: f"gamma {case['gamma']}")
def test_the_fit_equals_the_reference(case):
    found = fit_sts(case["logits"], case["accepted"], bins=case["num_bins"])
    assert np.all(np.array(found.ece_after) <= np.array(case["ece_after"]) + 1e-3)
    assert found.ece_before == pytest.approx(case["ece_before"], abs=1e-6)
    assert len(set(calibration.GRID)) == 41
    assert found.temperatures == case["temperatures"]


def test_a_known_temperature_is_found_at_every_position():
    logits, accepted = made(20_000)
    assert fit_sts(logits, accepted, grid=[0.5, 1.0, 2.0, 4.0]).temperatures == [2.0] * GAMMA


@given(st.integers(0, 1000), st.sampled_from([0.5, 1.0, 3.0]))
def test_a_fit_never_makes_the_first_position_worse_where_one_is_on_the_grid(seed, heat):
    found = fit_sts(*made(200, heat=heat, seed=seed))
    assert 1.0 in [float(t) for t in calibration.GRID]
    assert found.ece_after[0] <= found.ece_before[0]


def test_reliability_and_ece_by_hand():
    predicted, observed = [0.05, 0.15, 0.15, 1.0], [0, 1, 0, 1]
    bins = reliability(predicted, observed, bins=10)
    assert bins[0] == (0.05, 0.0, 1) and bins[9] == (1.0, 1.0, 1) and bins[5] is None
    assert bins[1] == (pytest.approx(0.15), 0.5, 2)
    assert ece(predicted, observed, bins=10) == pytest.approx((0.05 + 2 * 0.35 + 0) / 4)
    assert brier(predicted, observed) == pytest.approx((0.05**2 + 0.85**2 + 0.15**2) / 4)


def test_bins_and_grid_are_those_asked_for():
    """Fifteen bins and the whole grid unless told; each option reaches the numbers that it is for."""
    logits, accepted = made(200)
    predicted, observed = survivals(logits), survived(accepted, GAMMA)
    assert len(reliability(predicted[:, 0], observed[:, 0])) == 15
    for options, bins in (({}, 15), ({"bins": 4}, 4)):
        by_hand = [ece(predicted[:, k], observed[:, k], bins) for k in range(GAMMA)]
        found = fit_sts(logits, accepted, **options)
        assert by_position(logits, accepted, **options)["ece"] == found.ece_before == by_hand
        after = survivals(logits, found.temperatures)
        assert found.ece_after == pytest.approx(
            [ece(after[:, k], observed[:, k], bins) for k in range(GAMMA)]
        )
    assert (
        ece(predicted[:, 0], observed[:, 0])
        == ece(predicted[:, 0], observed[:, 0], 15)
        != ece(predicted[:, 0], observed[:, 0], 4)
    )
    assert set(fit_sts(logits, accepted, grid=[0.5, 3.0]).temperatures) <= {0.5, 3.0}
    assert calibration.GRID[[0, 20, 40]].tolist() == pytest.approx([0.1, 1, 10])


def test_the_floor_is_the_mean_ece_of_outcomes_drawn_from_the_forecast():
    predicted = survivals(made(200)[0])[:, 1]
    for options, seed, draws, bins in (
        ({}, 0, 100, 15),
        ({"seed": 3, "draws": 2, "bins": 5}, 3, 2, 5),
    ):
        rng = np.random.default_rng(seed)
        wanted = np.mean([ece(predicted, rng.random(200) < predicted, bins) for _ in range(draws)])
        assert ece_floor(predicted, **options) == pytest.approx(wanted)


def test_what_a_calibration_is_not_told():
    assert STS([2.0]) == STS([2.0], [], [], "", 0, "")
    fitted = fit_sts(*made(50), dataset="chat", draft="0123")
    assert (fitted.dataset, fitted.draft, fitted.num_samples) == ("chat", "0123", 50)


def stream(*heats):
    """Blocks [40 each] whose logits are so many times too far from zero."""
    parts = [made(40, heat=heat, seed=seed) for seed, heat in enumerate(heats)]
    return [np.concatenate(part) for part in zip(*parts)]


@pytest.mark.parametrize(
    ("options", "checks"),
    [
        ({"window": 40, "every": 20}, [40, 60, 80, 100, 120]),
        ({"window": 80, "every": 40}, [80, 120]),
        ({"window": 120, "every": 1}, [120]),
        ({"window": 121, "every": 1}, []),
    ],
)
def test_the_newest_window_is_checked_after_every_so_many_blocks(options, checks, monkeypatch):
    asked, seen = [], stream(1.0, 4.0, 4.0)
    live = OnlineSTS(STS([1.0] * GAMMA, dataset="chat", draft="0123"), **options)

    def checking(sts, logits, accepted):
        asked.append((block, len(logits), sts.temperatures))
        np.testing.assert_array_equal(logits, seen[0][block - options["window"] : block])
        np.testing.assert_array_equal(accepted, seen[1][block - options["window"] : block])
        return check_calibration(sts, logits, accepted)

    monkeypatch.setattr(online_sts, "check_calibration", checking)
    changed = []
    for block, (row, count) in enumerate(zip(*seen), start=1):
        if live.observe([row], [count]):
            changed.append(block)
    assert [at for at, *_ in asked] == checks and all(
        length == options["window"] for _, length, _ in asked
    )
    assert live.refits == len(changed) and set(changed) <= set(checks)
    if changed:
        wanted = fit_sts(
            *(part[changed[-1] - options["window"] : changed[-1]] for part in seen),
            dataset="chat",
            draft="0123",
        )
        assert live.sts == wanted
    else:
        assert live.sts.temperatures == [1.0] * GAMMA


def test_a_live_calibration_has_a_window_of_a_thousand_blocks():
    live = OnlineSTS(STS([1.0]))
    assert not live.observe(np.ones((999, 1)), np.zeros(999, int)) and live.observe(
        np.ones((1, 1)), np.zeros(1, int)
    )
    assert live.every == 200


def test_auc_is_the_share_of_pairs_in_the_right_order():
    predicted, observed = np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, True, False, True])
    pairs = [
        (up > down) + 0.5 * (up == down)
        for up in predicted[observed]
        for down in predicted[~observed]
    ]
    assert auc(predicted, observed) == pytest.approx(np.mean(pairs))
    assert np.isnan(auc([0.5, 0.6], [True, True]))


def test_survival_is_the_product_and_a_prefix_survives_with_all_its_tokens():
    np.testing.assert_allclose(
        survivals([[0.0, 0.0, 2.0]], [1.0, 1.0, 2.0]), [[0.5, 0.25, 0.25 * expit(1)]]
    )
    assert survived([0, 2, 3], 3).tolist() == [[False] * 3, [True, True, False], [True] * 3]


def test_by_position_is_about_survival():
    logits, accepted = made()
    found = by_position(logits, accepted)
    assert found["ece"][1] == pytest.approx(ece(survivals(logits)[:, 1], accepted >= 2))
    assert found["auc"][2] == pytest.approx(auc(survivals(logits)[:, 2], accepted >= 3))


def test_a_stale_calibration_is_told_from_one_that_fits():
    logits, accepted = made()
    sts = fit_sts(logits, accepted)
    assert check_calibration(sts, *made(seed=1)).fits
    stale = check_calibration(sts, *made(seed=1, heat=0.5))
    assert not stale.fits and stale.stored > stale.fresh + calibration.STALE
    with pytest.raises(RequestError, match="blocks of 4 drafts, and these have 7"):
        check_calibration(sts, *made(gamma=7))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda logits, accepted: (logits * np.nan, accepted), "not a finite number"),
        (lambda logits, accepted: (logits, accepted + GAMMA), "they lie between 0 and 4"),
        (lambda logits, accepted: (logits, accepted - 5), "they lie between 0 and 4"),
        (lambda logits, accepted: (logits, accepted[1:]), "with at least one block"),
        (lambda logits, accepted: (logits[:0], accepted[:0]), "with at least one block"),
    ],
)
def test_observations_that_cannot_be_fitted_are_refused(change, sentence):
    with pytest.raises(RequestError, match=sentence):
        fit_sts(*change(*made(50)))


def test_the_file_has_the_fields_that_sglang_reads(tmp_path):
    sts = fit_sts(*made(), dataset="made")
    sts.save(tmp_path / "sts.json")
    held = json.loads((tmp_path / "sts.json").read_text())
    assert set(held) == {
        "temperatures",
        "dataset",
        "num_samples",
        "ece_before",
        "ece_after",
        "draft",
    }
    assert (
        isinstance(held["dataset"], str)
        and isinstance(held["num_samples"], int)
        and held["num_samples"] == 2000
    )
    for name in ("temperatures", "ece_before", "ece_after"):
        assert len(held[name]) == GAMMA and all(isinstance(value, float) for value in held[name])
    assert all(temperature > 0 for temperature in held["temperatures"])
    assert STS.load(tmp_path / "sts.json") == sts


WHOLE = {
    "temperatures": [1.0],
    "dataset": "",
    "num_samples": 1,
    "ece_before": [0.1],
    "ece_after": [0.1],
}


@pytest.mark.parametrize(
    ("held", "sentence"),
    [
        (WHOLE | {"temperatures": [1.0, 0.0]}, "one positive number a position"),
        (WHOLE | {"temperatures": [1.0, float("nan")]}, "one positive number"),
        (WHOLE | {"temperatures": []}, "one positive number"),
        ({"temperatures": [1.0]}, "has no field dataset"),
        *(
            (WHOLE | {"temperatures": wrong}, "the temperatures are .* needs a list")
            for wrong in (["a"], [[1]], [None], None, 1.0, "ab", {"a": 1})
        ),
        ([1], "not a JSON object"),
        (None, "cannot be read"),
    ],
)
def test_a_broken_calibration_is_refused(tmp_path, held, sentence):
    path = tmp_path / "sts.json"
    if held:
        path.write_text(json.dumps(held))
    with pytest.raises(CheckpointError, match=sentence):
        STS.load(path)


@pytest.fixture
def lab(short_lab) -> Lab:
    """The shared lab."""
    return short_lab


@pytest.fixture
def dspark(lab):
    """Its drafter, on which a test may leave temperatures."""
    yield lab.drafter("dspark")
    lab.drafter("dspark").temperatures = None


def test_observations_come_from_whole_blocks_of_rollouts_and_are_of_raw_logits(lab, dspark):
    texts = lab.prompts["math"][:2]
    STS([3.0] * 7).attach(dspark)
    found = observe(lab, dspark, texts)
    assert dspark.temperatures is not None
    dspark.temperatures = None
    again = observe(lab, dspark, texts)
    assert found.logits.shape == (len(found.accepted), 7) and set(found.prompts) == {0, 1}
    np.testing.assert_array_equal(found.logits, again.logits)
    assert found.accepted.min() >= 0 and found.accepted.max() <= 7


def test_an_attached_calibration_divides_the_logits_and_nothing_else(lab, dspark):
    ids, temperatures = lab.encode(lab.prompts["chat"][0]), [2.0, 1.0, 4.0, 1.0, 1.0, 1.0, 0.5]
    output, _ = lab.target.prefill(ids, dspark.taps)

    def propose():
        with torch.inference_mode():
            return dspark.propose(
                dspark.begin(ids, output.features),
                ids[:, -1],
                temperature=1.0,
                generator=lab.generator(),
            )

    raw = propose()
    STS(temperatures).attach(dspark)
    fitted = propose()
    torch.testing.assert_close(
        fitted.confidence_logits, raw.confidence_logits / torch.tensor(temperatures)
    )
    assert torch.equal(raw.tokens, fitted.tokens) and torch.equal(raw.probs, fitted.probs)


def test_a_calibration_for_another_drafter_is_refused(lab, dspark):
    dflash, own = lab.drafter("dflash"), fingerprint(dspark)
    for attempt, sentence in (
        (lambda: STS([1.0] * 5).attach(dspark), "blocks of 5 drafts, and dspark drafts 7"),
        (lambda: STS([1.0] * 8).attach(dspark), "blocks of 8 drafts, and dspark drafts 7"),
        (
            lambda: STS([1.0] * 7, draft="0123").attach(dspark),
            f"for the draft with the fingerprint 0123, and dspark has {own}; fit one",
        ),
        (lambda: STS([1.0] * 7).attach(dflash), "has no confidence head"),
        (lambda: observe(lab, dflash, ["x"]), "has no confidence head"),
    ):
        with pytest.raises(RequestError, match=sentence):
            attempt()
    STS([1.0] * 7, draft=own).attach(dspark)


def test_a_calibration_without_a_whole_block_is_refused(lab, dspark, monkeypatch):
    monkeypatch.setattr(lab, "max_new_tokens", 8)
    with monkeypatch.context() as patched:
        patched.setattr(
            confidence, "rollout_with_room", lambda *_, **__: pytest.fail("an answer was written")
        )
        with pytest.raises(
            RequestError,
            match="max_new_tokens is 8, too few for a whole block of 7 drafts; allow longer answers, of 9",
        ):
            confidence.calibrate(lab, dspark)
    monkeypatch.setattr(
        confidence,
        "observe",
        lambda *_, **__: calibration.Observations(
            np.zeros((0, 7)), np.zeros(0, int), np.zeros(0, int)
        ),
    )
    with pytest.raises(
        RequestError,
        match="no prompt of math, code, chat gave a whole block; take shorter prompts, more of them, or longer answers",
    ):
        confidence.calibrate(lab, dspark)
    monkeypatch.undo()
    monkeypatch.setattr(lab, "max_new_tokens", 9)
    assert len(observe(lab, dspark, lab.prompts["math"]).accepted), (
        "nine tokens have room for a block"
    )


def test_a_report_counts_every_domain(lab, monkeypatch):
    monkeypatch.setattr(lab, "max_new_tokens", 20)
    sts, measured = confidence.calibrate(lab, lab.drafter("dspark"))
    assert len(sts.temperatures) == 7 and measured["num_samples"] == sts.num_samples > 0
    assert [(row["domain"], row["position"]) for row in measured["rows"][:8]] == [
        *(("all", k) for k in range(1, 8)),
        ("math", 1),
    ]
    assert measured["blocks"] == sum(
        len(found["accepted"]) for found in measured["observations"].values()
    )
    assert measured["fits"] == (
        measured["mean_ece"]["stored"] <= measured["mean_ece"]["fresh"] + calibration.STALE
    )


def test_the_command_says_whether_a_stored_calibration_fits(capsys, tmp_path, monkeypatch):
    logits, accepted = made(gamma=7)
    fake = calibration.Observations(logits, accepted, np.zeros(len(accepted), dtype=int))
    monkeypatch.setattr(confidence, "observe", lambda *arguments, **options: fake)
    fit_sts(logits, accepted).save(tmp_path / "good.json")
    STS([0.2] * 7, [0.1] * 7, [0.1] * 7).save(tmp_path / "stale.json")
    for options, code, said in (
        (["--check", str(tmp_path / "good.json")], 0, "the calibration fits"),
        (["--check", str(tmp_path / "stale.json")], 1, "does not fit any more"),
        ([], 2, "either --out FILE"),
    ):
        assert main(["calibrate", *options, "--prompts", "1"]) == code
        assert said in "".join(capsys.readouterr())


@pytest.mark.slow(reason="writes whole answers at three thresholds")
def test_a_sweep_counts_rounds_and_its_replay_agrees_where_nothing_is_cut(lab):
    drafter = lab.drafter("dspark")
    few = Lab("tiny", lab.target, {"math": lab.prompts["math"]}, lab.seed)
    few.max_new_tokens = 400  # room for the whole answers
    rows = {row["threshold"]: row for row in sweep(few, drafter, thresholds=(0.0, 1.1))["rows"]}
    assert rows[1.1]["accepted"] == rows[1.1]["total"] == 1 and rows[1.1]["rate"] == 1
    seen = observe(few, drafter, few.prompts["math"])
    accepted, rejected = replay(seen, expit(seen.logits), 0.0)
    assert (accepted, rejected) == pytest.approx((rows[0.0]["accepted"], rows[0.0]["rejected"]))
    assert (
        rows[0.0]["total"] == pytest.approx(8)
        and rows[0.0]["low"] <= rows[0.0]["rate"] <= rows[0.0]["high"]
    )


def test_step_counts_leave_out_a_round_that_the_end_cut_short():
    # the last two ended within the accepted drafts, and with them
    made = (
        (7, 3, 4),
        (5, 5, 6),
        (7, 4, 2),
        (7, 4, 4),
    )
    rounds = [Round(*counts, [], [], 0.0, 0.0) for counts in made]
    assert step_counts(rounds) == [4 + 6, 4 + 0, 2]


def test_each_part_is_measured_of_the_tiny_dspark_into_its_file(monkeypatch, tmp_path):
    asked = []

    def lab_of(profile, prompts):
        return SimpleNamespace(profile=profile, count=prompts, drafter=lambda name: name)

    def measured(kind, lab, chosen, path):
        asked.append((kind, lab.profile, lab.count, chosen))
        journal_path(path).touch()
        return {"kind": kind}

    for name in ("STS_FILE", "STEPS", "CALIBRATION", "SWEEP"):
        monkeypatch.setattr(confidence_script, name, tmp_path / f"{name}.json")
    monkeypatch.setattr(confidence_script, "setup", lab_of)
    monkeypatch.setattr(
        confidence_script,
        "calibrate",
        lambda *given, path: (STS([1.0]), measured("calibration", *given, path)),
    )
    monkeypatch.setattr(
        confidence_script, "sweep", lambda *given, path: measured("sweep", *given, path)
    )
    assert confidence_script.main(["--calibration", "--sweep"]) == 0
    assert asked == [
        ("calibration", "tiny", 2 * confidence_script.PROMPTS, "dspark"),
        ("sweep", "tiny", confidence_script.SWEPT, "dspark"),
    ]
    assert {path.name for path in tmp_path.iterdir()} == {
        "CALIBRATION.json",
        "SWEEP.json",
        "STS_FILE.json",
    }


# What is committed (assets/measurements/confidence): the acceptance of the issue that asked for it.


def test_the_stored_calibration_leaves_little_error():
    measured = confidence_results.calibration_run()
    assert measured["fits"]
    before, after = measured["mean_ece"]["raw"], measured["mean_ece"]["stored"]
    assert after <= before / 3 or after < 0.015
    assert confidence_results.stored_sts().temperatures == measured["temperatures"]


def test_the_stored_report_follows_from_its_observations():
    measured = confidence_results.calibration_run()
    for domain, found in confidence_results.observations().items():
        again = by_position(found.logits, found.accepted, measured["temperatures"])["ece"]
        rows = [row for row in measured["rows"] if row["domain"] == domain]
        assert [row["ece_after"] for row in rows] == pytest.approx(again, abs=2e-3)


def test_the_acceptance_rate_rises_with_the_threshold_most_in_chat():
    rise = {}
    for domain in ("math", "code", "chat"):
        rates = [
            row["rate"]
            for row in confidence_results.threshold_sweep()["rows"]
            if row["domain"] == domain
        ]
        rise[domain] = rates[-1] - rates[0]
        assert rise[domain] > 0 and np.polyfit(range(len(rates)), rates, 1)[0] > 0
    assert max(rise, key=rise.get) == "chat"
