"""Machines: three numbers against steps counted by hand, rooflines against their limits, records
replayed as they were made."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from dspark_lite.common.errors import DSparkLiteError, RequestError
from dspark_lite.common.files import ROOT
from dspark_lite.course.figures import lesson_11 as figures
from dspark_lite.course.measure import machines as model, roofline, shapes
from dspark_lite.course.measure.forced_rounds import ROUND_PARTS
from dspark_lite.course.measure.machines import NO_HOST, VLLM, Machine, PassTime, Records, StepTime
from dspark_lite.course.measure.roofline import Device, Work
from dspark_lite.course.measure.simulator import EngineModel, Record
from dspark_lite.course.replication import machine_results
from dspark_lite.course.result_files import read, reference
from dspark_lite.scheduling import schedule
from tools.measure.machines import summary

HAND = StepTime(PassTime(2.0, 0.5, 0.25, free=4), PassTime(1.0, 0.25, 0.5, free=3), drafted=2)
NUMBERS = st.floats(0.001, 10)


@pytest.fixture(scope="module")
def records():
    """The recorded rounds of DSpark and MTP-1."""
    return machine_results.records()


def machine(**steps) -> Machine:
    """Return a made machine."""
    return Machine("made", "made", "here", steps)


# Three numbers


def test_a_step_is_what_one_counts_by_hand():
    """Draft: 1 + 3 * 0.25 + (6 - 3) * 0.5 = 3.25; verify: 2 + 3 * 0.5 + (9 - 4) * 0.25 = 4.75."""
    assert HAND.seconds(3, 9) == 8.0
    assert HAND.costs(5, 40).seconds(3, 9) == pytest.approx(8.0)
    assert StepTime(PassTime(1.0, 2.0, 3.0)).seconds(4, 5) == 1 + 2 * 4 + 3 * 5
    fixed, request, token = HAND.line(3, 9)
    assert (request, token) == (0.5 + 0.25 + 2 * 0.5, 0.25) and fixed + 3 * request + 9 * token == 8


@settings(max_examples=60)
@given(
    st.tuples(NUMBERS, NUMBERS, NUMBERS, st.floats(0, 50)),
    st.tuples(NUMBERS, NUMBERS, NUMBERS, st.floats(0, 50)),
    st.integers(0, 8),
)
def test_a_step_and_its_additive_costs_are_equal_at_whole_numbers(verify, draft, drafted):
    step = StepTime(PassTime(*verify), PassTime(*draft), drafted)
    costs = step.costs(9, 72)
    for requests in range(1, 10):
        expected = [step.seconds(requests, tokens) for tokens in range(1, 73)]
        np.testing.assert_allclose(costs.seconds(requests, range(1, 73)), expected, rtol=1e-12)


def test_a_fit_finds_the_line_that_measured_steps_lie_on():
    requests, tokens = np.array([1, 1, 8, 8, 64]), np.array([1, 8, 8, 64, 64])
    found, errors = model.fit_pass(requests, tokens, 5 + 0.5 * requests + 0.25 * tokens)
    assert (found.fixed, found.per_request, found.per_token) == pytest.approx((5, 0.5, 0.25))
    np.testing.assert_allclose(errors, 0, atol=1e-12)


@pytest.mark.parametrize("chance", [0.05, 0.1, 0.2, 0.5, 0.9])
def test_a_token_pays_above_the_least_survival_and_algorithm_1_agrees(chance):
    step = StepTime(PassTime(1.0, 0.5, 0.25))
    pays = chance > step.least_survival(1, 1, committed=1.0)
    assert schedule(torch.tensor([[chance]]), step.costs(1, 2)).item() == pays
    assert step.least_survival(1, 1, committed=1.0) == pytest.approx(0.25 / 1.75)


# Rooflines


@pytest.mark.parametrize("tokens", [1, 100, 275, 276, 4000])
def test_a_pass_takes_the_longer_of_reading_and_computing(tokens):
    reached = Device("x", 0.863 * 3350e9, 0.803 * 989e12, 1)
    line = model.roofline_pass(model.GPUS["H100"], 8e9, 0.0, 8e9)
    assert line.seconds(3, tokens) == pytest.approx(Work(8e9, 8e9 * tokens, 0).bound(reached) / 1e3)
    assert line.per_token * line.free == pytest.approx(line.fixed)


def test_a_request_costs_its_keys_and_values_and_the_host():
    bare, served = (
        model.gpu("H200", context=500, host=host).step("plain") for host in (NO_HOST, VLLM)
    )
    cached = 500 * 2 * 2 * 36 * 8 * 128
    assert bare.verify.per_request == pytest.approx(cached / (0.863 * 4800e9))
    assert served.seconds(7, 7) - bare.seconds(7, 7) == pytest.approx(
        VLLM.per_step + 7 * VLLM.per_request
    )


def test_what_a_pass_reads_is_what_the_released_models_hold(monkeypatch):
    monkeypatch.setattr(roofline, "launches", lambda drafter: dict.fromkeys(ROUND_PARTS, 0))
    target = roofline.multiplied(shapes.module("target"))
    assert model.read_bytes(shapes.config("target")) == pytest.approx(target, rel=1e-3)
    device = model.GPUS["H100"]
    draft = roofline.draft_work("dspark", 0).bytes / (0.863 * device.bandwidth)
    # The roofline of a single round also counts the projection of the features, read once.
    assert model.dspark_pass(device, 0).fixed == pytest.approx(draft, rel=0.04)
    assert model.mtp_pass(device, 0).fixed < draft / 2


def test_the_memory_of_a_gpu_bounds_its_requests(records):
    t4, h200 = model.gpu("T4"), model.gpu("H200")
    assert 8 < t4.most < 64 < 256 < h200.most
    assert model.held_loads(t4) == [load for load in model.LOADS if load <= t4.most]
    assert [row["load"] for row in model.replay(t4, "fixed 1", records, (8, 64))] == [8]


def test_the_host_is_what_published_steps_say():
    runs = reference("published_steps.json")["runs"]
    (run,) = (each for each in runs if each["name"] == "Qwen3-14B, chat, vLLM, H100")
    found = model.fit_host(
        model.GPUS[run["gpu"]],
        run["shape"],
        run["context"],
        run["requests"],
        np.array(run["milliseconds"]) / 1e3,
    )
    assert (found.per_step, found.per_request) == pytest.approx(tuple(VLLM), rel=0.02)


def test_the_model_is_near_published_steps_that_it_was_not_fitted_to():
    ratios, bare = (
        {
            run: np.array([row["ratio"] for row in rows if row["run"] == run])
            for run in {row["run"] for row in rows}
        }
        for rows in (
            machine_results.published_steps(),
            machine_results.published_steps(NO_HOST),
        )
    )
    chat = ratios["Qwen3-8B, chat, vLLM, H100"][:8]  # up to 256 requests, as in LOADS
    assert np.abs(chat - 1).max() < 0.13 and np.median(np.abs(chat - 1)) < 0.03
    assert np.median(np.abs(ratios["Qwen3-8B, long reasoning, vLLM, H100"] - 1)) < 0.1
    assert all((found < 1).all() for found in bare.values()), "nobody is faster than the roofline"
    assert min(found.min() for found in bare.values()) < 0.6, "and an engine is no roofline"


def test_the_papers_line_is_straight():
    requests, slope, fixed_part = model.paper_line("DeepSeek-V4-Flash")
    fitted = dict(
        model.paper.numbers()["figure8"]["models"]["DeepSeek-V4-Flash"]["throughput"]["fit"][
            "MTP-1"
        ]
    )
    seconds = np.array([r / fitted[r] for r in requests])
    assert np.abs((fixed_part + slope * requests) / seconds - 1).max() < 0.02
    assert model.paper_machine().step("mtp").seconds(10, 20) == pytest.approx(
        fixed_part + 10 * slope
    )


# Replay


def made(accepted, blocks, gamma=7, seed=0) -> Record:
    """Return a record whose answers are written by whole blocks exactly, with confidences by
    chance."""
    accepted, blocks = np.array(accepted), np.array(blocks)
    first = blocks.cumsum() - blocks
    logits = torch.randn(len(accepted), gamma, generator=torch.Generator().manual_seed(seed))
    return Record(gamma, logits, accepted, np.add.reduceat(accepted + 1, first), first, blocks)


MADE = made([7, 0, 3, 7, 7, 1], [2, 3, 1])


def of(record: Record) -> Records:
    """Return records that are the same for all drafters."""
    return Records(record, record, record, np.array(["math", "code", "chat"]))


def test_whole_blocks_replay_the_record_exactly():
    found = model.play(HAND, "fixed 7", 1, of(MADE))
    assert found.committed == MADE.tokens.sum() / MADE.blocks.sum() and found.drafts == 7
    assert found.shares[:, 0].tolist() == (MADE.tokens).tolist()
    np.testing.assert_allclose(found.shares[:, 1], MADE.blocks * HAND.seconds(1, 8))


def test_whole_blocks_of_the_recorded_answers_have_their_mean_length(records):
    found = model.play(HAND, "fixed 7", 32, records)
    whole = records.dspark.tokens.sum() / (records.dspark.blocks + 1).sum()
    assert found.committed == pytest.approx(whole, rel=0.05)


def test_plain_decoding_is_the_machine_alone():
    (row,) = model.replay(machine(plain=HAND), "plain", of(MADE), (3,))
    assert row["tokens_per_second"].value == pytest.approx(3 / HAND.seconds(3, 3))
    assert (row["committed"], row["drafts"]) == (1, 0)
    assert row["per_user"].value == pytest.approx(row["tokens_per_second"].value / 3)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 7), min_size=6, max_size=6),
    st.sampled_from([p for p in model.POLICIES if p not in ("plain", "mtp")]),
    st.integers(1, 5),
    st.integers(0, 100),
)
def test_no_step_accepts_more_than_was_recorded_or_kept(accepted, policy, load, seed):
    record = made(accepted, [2, 3, 1], seed=seed)
    costs = HAND.costs(load, 8 * load)
    engine = EngineModel(record, costs, model.policy_on(policy, costs), slots=load)
    for answer in range(load):
        engine.submit(answer % 3, 0.0)
    for step in range(4):
        answers = engine.answer[engine.answer >= 0] if step else np.arange(load) % 3
        rounds = engine.rounds[engine.answer >= 0] if step else np.zeros(load, dtype=int)
        blocks = record.first[answers] + rounds % record.blocks[answers]
        report = engine.step()
        assert report.accepted <= min(record.accepted[blocks].sum(), report.proposed)
        assert report.committed <= report.accepted + len(answers)


@pytest.mark.parametrize("policy", ["threshold 0.5", "algorithm1", "lagged"])
def test_a_schedule_knows_confidences_alone(policy):
    """Nothing was accepted in the other record: the first step verifies the same."""
    proposed = []
    for record in (MADE, replace(MADE, accepted=0 * MADE.accepted)):
        costs = HAND.costs(3, 24)
        engine = EngineModel(record, costs, model.policy_on(policy, costs), slots=3)
        for answer in range(3):
            engine.submit(answer, 0.0)
        proposed.append(engine.step().proposed)
    assert proposed[0] == proposed[1]


def test_the_dearer_a_token_or_the_fuller_the_machine_the_less_is_verified(records):
    drafts = [
        model.play(StepTime(PassTime(1.0, 0.0, price)), "algorithm1", 8, records).drafts
        for price in (0.0, 0.02, 0.5)
    ]
    assert drafts[0] == 7 and drafts == sorted(drafts, reverse=True) and drafts[-1] < 2
    bare = model.gpu("H100", host=NO_HOST).step("dspark")
    idle, full = (model.play(bare, "algorithm1", load, records).drafts for load in (8, 64))
    assert idle == 7 > full + 0.5


def test_a_head_that_is_sure_of_every_draft_gets_whole_blocks(records):
    """And one that doubts every draft gets none of it verified."""
    step = machine_results.machines()[machine_results.V4_FLASH].step("dspark")
    whole = model.play(step, "fixed 7", 32, records)
    for plus, drafts in ((50.0, 7.0), (-50.0, 0.0)):
        wrong = machine_results.with_logits(records, 1.0, plus)
        found = model.play(step, "algorithm1", 32, wrong)
        assert found.drafts == drafts
        assert np.array_equal(found.shares, whole.shares) == (plus > 0)


def test_gains_are_of_the_same_requests():
    """A policy gains nothing over itself in any resample; steps twice as long halve everything."""
    found = model.play(HAND, "fixed 3", 2, of(MADE))
    slower = found._replace(shares=found.shares * [1, 2])
    rows = model.compare({"a": found, "b": slower}, 2, of(MADE).domains, {"over a": "a"})
    for policy, expected in (("a", 0.0), ("b", -0.5)):
        gain = rows[policy]["gains"]["over a"]
        assert (gain.value, gain.low, gain.high) == pytest.approx((expected,) * 3)
    rate = rows["a"]["tokens_per_second"]
    assert rate.value == pytest.approx(found.shares[:, 0].sum() / found.shares[:, 1].sum())
    assert rate.low <= rate.value <= rate.high


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: model.gpu("H300"), "no data sheet of 'H300'; GPUs are T4, H100"),
        (
            lambda: machine(mtp=HAND).step("plain"),
            "nothing is known of 'plain' on made; it has mtp",
        ),
        (lambda: model.policy_on("best", None), "no policy 'best'; policies are plain, mtp"),
    ],
)
def test_unknown_names_are_refused(wrong, sentence):
    with pytest.raises(RequestError, match=sentence):
        wrong()


# What is stored


def test_both_drafters_were_recorded_on_the_same_prompts(records):
    answers = 3 * machine_results.PROMPTS
    assert len(records.dspark.tokens) == len(records.mtp.tokens) == len(records.domains) == answers
    assert records.mtp.gamma == 1 and set(np.unique(records.mtp.accepted)) == {0, 1}
    temperatures = torch.tensor(machine_results.confidence_results.stored_sts().temperatures)
    torch.testing.assert_close(records.dspark.logits * temperatures, records.raw.logits)


@pytest.mark.parametrize(("name", "policy"), [("H100", "fixed 7"), ("H200", "algorithm1")])
def test_the_stored_rows_are_what_the_replay_gives(records, name, policy):
    (row,) = model.replay(machine_results.machines()[name], policy, records, (256,))
    stored = machine_results.replayed_row(name, policy, 256)
    assert row["tokens_per_second"].value == pytest.approx(
        stored["tokens_per_second"].value, rel=1e-4
    )
    with pytest.raises(DSparkLiteError, match="was not replayed on H100 with 3 requests"):
        machine_results.replayed_row("H100", policy, 3)


def test_a_frontier_is_the_stored_rows_by_load():
    curve = machine_results.frontier("H100", "fixed 7")
    assert curve[:, 1] / curve[:, 0] == pytest.approx(model.LOADS, rel=1e-4)
    assert (np.diff(curve[:, 1]) > 0).all() and (np.diff(curve[:, 0]) < 0).all()


def test_the_figure_has_a_panel_a_machine_a_label_a_line_and_rays():
    curves = {
        name: machine_results.frontier("H100", way)
        for name, way in (("mtp", "mtp"), ("dspark", "fixed 7"))
    }
    drawn = figures.two_machines({"one": curves, "two": curves})
    for axes in drawn.axes:
        labels = {text.get_text() for text in axes.texts}
        assert {"MTP-1", "DSpark", "R = 1", "R = 256"} <= labels
        rays = [line.get_xydata() for line in axes.lines if len(line.get_xdata()) == 2]
        assert sorted(round(end[1] / end[0]) for _, end in rays) == list(model.LOADS)
    plt.close(drawn)


def test_the_page_shows_what_is_stored():
    page = (ROOT / "docs" / "scheduling.md").read_text(encoding="utf-8")
    found = read(machine_results.REPLAYED, machine_results.WRITTEN_BY)
    for line in summary(found).splitlines():
        assert line in page
    scatter, stored = machine_results.cpu_scatter(), found["cpu_scatter"]
    assert scatter == pytest.approx(stored, rel=1e-4)


def test_the_stored_wrong_heads_are_what_the_replay_gives():
    """On one machine at one load; the calibrated head's row is the replay of `algorithm1`."""
    stored = machine_results.gains_by_head("H100", 128)
    assert list(stored) == [*machine_results.HEADS, machine_results.RAW_HEAD]
    rows = machine_results.replay_wrong_heads(("H100",), (128,))
    for row in rows:
        for against, gain in row["gains"].items():
            expected = stored[row["head"]][against]
            assert gain.value == pytest.approx(expected.value, abs=1e-5)
    known = machine_results.replayed_row("H100", "algorithm1", 128)["gains"]["whole"]
    assert stored[machine_results.HEADS[0]]["whole"].value == pytest.approx(known.value, abs=1e-5)
    assert machine_results.gains_by_head("H100", 3) == {}
