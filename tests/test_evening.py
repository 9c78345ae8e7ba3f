"""A training that is bounded by minutes, with hidden states computed anew: it ends in time, resumes, and is evaluated."""

import json
import math

import pytest
import torch

from dspark_lite.__main__ import main
from dspark_lite.common.errors import CheckpointError, DSparkLiteError
from dspark_lite.course.data import answers, estimate, language_model, recipes
from dspark_lite.course.measure.lab import NEW_TOKENS
from dspark_lite.models.checkpoints import load_drafter, load_target
from dspark_lite.models.export import export
from dspark_lite.training import train as training
from dspark_lite.training.plan import ANSWER_TIME_SHARE, FINAL_SHARE, Allowance, Plan
from helpers import DRAFT, LANGUAGE_MODEL, recipe_of


class Clock:
    """Seconds that pass by `tick` each time one looks at them."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 0.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now


@pytest.fixture(scope="module")
def target():
    """The tiny target."""
    return load_target("tiny-target")


def test_the_time_of_all_runs_of_a_recipe_is_counted_together(tmp_path):
    clock = Clock()
    first = Allowance(tmp_path / "seconds.json", 100, "a recipe", clock)
    clock.now = 30
    assert first.spent() == 0.3 and first.spent(ANSWER_TIME_SHARE, 1) == 0
    first.keep()
    clock.now = 1000  # the machine was off
    second = Allowance(tmp_path / "seconds.json", 100, "a recipe", clock)
    assert second.spent() == 0.3
    clock.now += 40
    assert (
        second.spent(ANSWER_TIME_SHARE, 1)
        == pytest.approx((0.7 - ANSWER_TIME_SHARE) / (1 - ANSWER_TIME_SHARE))
        and second.spent(0, 0.5) == 1
    )
    clock.now += 40
    assert second.spent() == second.spent(ANSWER_TIME_SHARE, 1) == 1
    assert Allowance(tmp_path / "seconds.json", 100, "a changed recipe", clock).spent() == 0


@pytest.mark.parametrize(
    "damaged", ["{", "[]", '{"identity": ""}', '{"seconds": "x", "identity": ""}']
)
def test_a_damaged_file_of_seconds_is_one_sentence(tmp_path, damaged):
    (tmp_path / "seconds.json").write_text(damaged)
    with pytest.raises(CheckpointError, match="seconds.json") as error:
        Allowance(tmp_path / "seconds.json", 100)
    assert "\n" not in str(error.value)


def test_no_time_and_time_without_end_are_refused(tmp_path):
    for minutes in (-1, math.inf, math.nan):
        with pytest.raises(
            DSparkLiteError,
            match=f"--minutes is {minutes:g}; a training needs some time and an end",
        ):
            Allowance(tmp_path / "seconds.json", 60 * minutes)


def test_a_schedule_that_is_short_of_time_is_run_through_in_fewer_steps(tmp_path):
    clock = Clock()
    plan = Plan(
        steps=100,
        learning_rate=1.0,
        allowance=Allowance(tmp_path / "seconds.json", 1000, clock=clock),
        time_share=(ANSWER_TIME_SHARE, 1.0),
    )
    places = []
    for step in range(60):
        clock.now = 1000 * ANSWER_TIME_SHARE + 20 * step
        places.append(plan.progress(step))
    assert places[0] == 0 and places == sorted(places) and places[29] < 1 == places[30]
    # the rate comes down to its end
    assert plan.rate(30, 1.0) == pytest.approx(FINAL_SHARE) and plan.rate(20, places[20]) > 0.1
    clock.now = 0
    assert [plan.progress(step) for step in (0, 33, 99)] == [0, pytest.approx(1 / 3), 1]


@pytest.mark.parametrize(("seconds", "made"), [(1e9, 20), (650.0, 14)])
def test_the_loop_ends_with_its_steps_or_its_time_and_goes_on_after_a_stop(
    tmp_path, monkeypatch, seconds, made
):
    def trained(stop_at=None, seconds=seconds):
        torch.manual_seed(0)
        model, clock = torch.nn.Linear(2, 1), Clock()
        plan = Plan(
            20,
            0.1,
            allowance=Allowance(tmp_path / "seconds.json", seconds, clock=clock),
        )

        def batch_at(step):
            if step == stop_at:
                raise KeyboardInterrupt
            return (torch.full((4, 2), 1.0 + step),)

        def loss_of(batch, progress):
            clock.now += 50  # what an update takes
            loss = model(batch[0]).square().sum()
            return loss, torch.tensor(1.0), {"loss": loss}

        monkeypatch.setattr(training, "SAVE_SECONDS", -1.0)
        return training.optimise(model, batch_at, loss_of, plan, tmp_path, title="test")

    with pytest.raises(KeyboardInterrupt):
        trained(stop_at=3)
    log = trained()
    # 650 seconds are over after 13 updates; then the last is made.
    assert [record["step"] for record in log] == list(range(made)) and trained() == log
    assert len(trained(seconds=1e9)) == 20, "with more time it goes on"


def test_a_language_models_phases_share_the_time_in_proportion_to_their_updates(
    tmp_path, monkeypatch
):
    """Every batch takes 10 of 100 seconds: of six and two updates there is time for some eight, two at the end of each phase."""
    clock, work, made = Clock(), language_model.pad, []
    monkeypatch.setattr(
        recipes,
        "Allowance",
        lambda path, seconds, identity: Allowance(path, seconds, identity, clock),
    )
    monkeypatch.setattr(
        language_model,
        "pad",
        lambda *given: (
            setattr(clock, "now", clock.now + 10) or made.append(clock.now) or work(*given)
        ),
    )
    recipe = {
        **LANGUAGE_MODEL,
        "phases": [
            {"examples": {"math": 72}, "learning_rate": 0.01},
            {"examples": {"math": 24}, "learning_rate": 0.01},
        ],
    }
    (tmp_path / "mini.json").write_text(json.dumps(recipe))
    recipes.train(
        str(tmp_path / "mini.json"),
        device="cpu",
        out=tmp_path / "out",
        build=tmp_path / "build",
        minutes=80 / 60,
    )
    counts = [
        len(training.read_log(tmp_path / "build" / "mini" / f"phase_{number}" / "log.jsonl"))
        for number in (1, 2)
    ]
    # of 9 and 3: 60 of 80 seconds are the first's; each ends with one more
    assert counts == [7, 2] and clock.now == 90
    assert load_target(str(tmp_path / "out")).num_layers == 3


def test_answers_end_with_their_share_of_the_time_and_go_on_with_more(target, tmp_path):
    data = recipe_of(DRAFT, data={"chunk": 4}).data
    clock = Clock()
    bounded = Allowance(tmp_path / "seconds.json", 100, clock=clock)
    clock.now = (
        99  # the first chunk is written in any case: without answers there is nothing to learn from
    )
    few = answers.answered_rows(target, data, tmp_path / "answers.jsonl", None, bounded)
    assert len(few) == 4 and json.loads((tmp_path / "seconds.json").read_text())["seconds"] == 99
    assert answers.answered_rows(target, data, tmp_path / "answers.jsonl", None, bounded) == few
    everything = answers.answered_rows(target, data, tmp_path / "answers.jsonl")
    assert len(everything) == 14 and everything[:4] == few


@pytest.mark.slow(reason="a whole training, from answers to evaluation")
def test_an_evening_from_answers_to_evaluation(capsys, monkeypatch, tmp_path):
    """The one command, on the tiny target: estimate, answers, updates, a drafter that engines load, accepted length by domain."""
    monkeypatch.setitem(NEW_TOKENS, "tiny", 12)
    recipe = {
        "name": "short",
        "extends": "evening-tiny",
        "epochs": 1,
        "batch": 4,
        "evaluate": 1,
        "data": {"prompts": {"math": 6, "code": 6, "chat": 6}, "max_new_tokens": 12, "chunk": 6},
    }
    (tmp_path / "short.json").write_text(json.dumps(recipe))
    clock = Clock()
    monkeypatch.setattr(
        recipes,
        "Allowance",
        lambda path, seconds, identity: Allowance(path, seconds, identity, clock),
    )
    work = answers.write_answers
    monkeypatch.setattr(
        answers,
        "write_answers",
        lambda *given, **options: setattr(clock, "now", clock.now + 15) or work(*given, **options),
    )
    call = [
        "train",
        str(tmp_path / "short.json"),
        "--minutes",
        "1",
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "drafter"),
    ]
    assert main(call) == 0
    said = capsys.readouterr().out
    assert "target cache   none" in said and "minutes        1 in all runs" in said
    assert [line.split()[:2] for line in said.splitlines() if "accepted length" in line] == [
        ["short", d] for d in ("math", "code", "chat")
    ]
    build = tmp_path / "drafter" / "training"
    (written,) = build.glob("data-*/answers.jsonl")
    # of 18: after the second chunk, 30 of 60 seconds are over
    assert len(written.read_text().splitlines()) == 12
    assert len((build / "short" / "log.jsonl").read_text().splitlines()) == 3
    assert not list(build.glob("data-*/taps_*"))
    assert load_drafter(str(tmp_path / "drafter"), load_target("tiny-target")).gamma == 7
    for engine in ("vllm", "sglang", "llama.cpp"):
        export(str(tmp_path / "drafter"), engine, tmp_path / engine, "TARGET")
    assert main(call) == 0  # nothing is left to do: the same answer
    assert [line for line in capsys.readouterr().out.splitlines() if "accepted length" in line] == [
        line for line in said.splitlines() if "accepted length" in line
    ]


def test_unknown_features_are_refused():
    with pytest.raises(
        DSparkLiteError, match="features is 'none'; it must be one of 'cached', 'online'"
    ):
        recipes.load_recipe("evening-tiny", {"features": "none"})


@pytest.mark.parametrize("name", ["evening", "evening-1.7b"])
def test_an_evenings_training_fits_a_t4(name):
    """Weights, gradients, AdamW, activations and the target, by the estimate: under 13 of the T4's 14.7 GiB."""
    recipe = recipes.load_recipe(name)
    found = estimate.cost(recipe, estimate.target_config(recipe))
    weights = 16 * found.trained + 4 * found.tables + 2 * found.target
    assert weights + recipe.batch * found.activations < 13 * 2**30
