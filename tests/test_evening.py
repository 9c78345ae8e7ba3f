"""A training that is bounded by minutes, with hidden states computed anew: it ends in time, resumes, and is evaluated."""

import json

import pytest
import torch
from helpers import DRAFT

from dspark_lite.__main__ import main
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.models.checkpoints import load_drafter, load_target
from dspark_lite.models.export import export
from dspark_course.making import answers, estimate, recipes
from dspark_lite.training import cache, loop, online
from dspark_lite.training.allowance import ANSWERING, Allowance


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


def test_the_time_of_all_runs_is_counted_together(tmp_path):
    clock = Clock()
    first = Allowance(tmp_path / "seconds.json", 100, clock)
    clock.now = 30
    assert first.spent() == 0.3 and first.answering() and first.learned() == 0
    first.keep()
    clock.now = 1000  # the machine was off
    second = Allowance(tmp_path / "seconds.json", 100, clock)
    assert second.spent() == 0.3
    clock.now += 40
    assert not second.answering() and second.learned() == pytest.approx((0.7 - ANSWERING) / (1 - ANSWERING))
    clock.now += 40
    assert second.spent() == second.learned() == 1


def test_no_time_is_refused(tmp_path):
    with pytest.raises(DSparkLiteError, match="--minutes is -1; a training needs some time"):
        Allowance(tmp_path / "seconds.json", -60)


def test_a_schedule_that_is_short_of_time_is_run_through_in_fewer_steps(tmp_path):
    clock = Clock()
    plan = loop.Plan(steps=100, learning_rate=1.0, allowance=Allowance(tmp_path / "seconds.json", 1000, clock))
    places = []
    for step in range(60):
        clock.now = 1000 * ANSWERING + 20 * step
        places.append(plan.place(step))
    assert places[0] == 0 and places == sorted(places) and places[30] == 100
    assert plan.share(places[29]) < 0.01 < plan.share(places[20])  # the rate comes down to its end
    clock.now = 0
    assert [plan.place(step) for step in (0, 7, 99, 100)] == [0, 7, 99, 100]


@pytest.mark.parametrize("seconds", [1e9, 700.0])
def test_the_loop_ends_with_its_steps_or_its_time_and_goes_on_after_a_stop(tmp_path, seconds):
    def trained(stop_at=None):
        torch.manual_seed(0)
        model, clock = torch.nn.Linear(2, 1), Clock()
        plan = loop.Plan(20, 0.1, save_seconds=-1.0, stop_at=stop_at, allowance=Allowance(tmp_path / "seconds.json", seconds, clock))

        def loss_of(batch):
            clock.now += 50  # what an update takes
            loss = model(batch[0]).square().sum()
            return loss, torch.tensor(1.0), {"loss": loss}

        return loop.optimise(model, lambda step: (torch.full((4, 2), 1.0 + step),), loss_of, plan, tmp_path, title="test")

    assert len(trained(stop_at=3)) == 3
    log = trained()
    # The first 280 of 700 seconds are the answers', which took none; in the others 20 steps do not fit.
    assert len(log) == (20 if seconds == 1e9 else 14)
    assert [record["step"] for record in log] == list(range(len(log))) and trained() == log


def test_answers_end_with_their_share_of_the_time_and_go_on_with_more(target, tmp_path):
    data = {**DRAFT["data"], "chunk": 4}
    clock = Clock()
    bounded = Allowance(tmp_path / "seconds.json", 100, clock)
    clock.now = 99  # the first chunk is written in any case: without answers there is nothing to learn from
    few = answers.answered_rows(target, data, tmp_path / "answers.jsonl", None, bounded)
    assert len(few) == 4 and json.loads((tmp_path / "seconds.json").read_text()) == {"seconds": 99}
    assert answers.answered_rows(target, data, tmp_path / "answers.jsonl", None, bounded) == few
    everything = answers.answered_rows(target, data, tmp_path / "answers.jsonl")
    assert len(everything) == 14 and everything[:4] == few


def test_hidden_states_computed_anew_are_those_of_the_cache(target, tmp_path):
    rows = [(list(range(3, 3 + length)), length // 2) for length in (9, 14, 6)]
    kept = cache.build_cache(target, rows, (1, 4), tmp_path).batch([2, 1], "cpu")
    anew = online.OnlineFeatures(target, rows, (1, 4)).batch([2, 1], "cpu")
    assert kept[0].equal(anew[0]) and kept[1].equal(anew[1])
    for ours, theirs in zip(anew[2:], kept[2:]):
        assert ours.dtype == theirs.dtype == torch.float32 and ours.shape == theirs.shape
        for row, length in enumerate((6, 14)):
            torch.testing.assert_close(ours[row, :length], theirs[row, :length], rtol=1e-2, atol=1e-2)


def test_an_evening_from_answers_to_evaluation(capsys, monkeypatch, tmp_path):
    """The one command, on the tiny target: estimate, answers, updates, a drafter that engines load, accepted length by domain."""
    recipe = {"name": "short", "extends": "evening-tiny", "epochs": 1, "batch": 4, "evaluate": 1,
              "data": {"prompts": {"math": 6, "code": 6, "chat": 6}, "max_new_tokens": 12, "chunk": 6}}
    (tmp_path / "short.json").write_text(json.dumps(recipe))
    monkeypatch.setattr("dspark_course.making.recipes.BUILD", tmp_path / "build")
    clock = Clock()
    monkeypatch.setattr(recipes, "Allowance", lambda path, seconds: Allowance(path, seconds, clock))
    work = answers.write_answers
    monkeypatch.setattr(answers, "write_answers", lambda *given, **options: setattr(clock, "now", clock.now + 15) or work(*given, **options))
    call = ["train", str(tmp_path / "short.json"), "--minutes", "1", "--device", "cpu", "--out", str(tmp_path / "drafter")]
    assert main(call) == 0
    said = capsys.readouterr().out
    assert "target cache   none" in said and "minutes        1 in all runs" in said
    assert [line.split()[:2] for line in said.splitlines() if "accepted length" in line] == [["short", d] for d in ("math", "code", "chat")]
    (written,) = (tmp_path / "build").glob("data-*/answers.jsonl")
    assert len(written.read_text().splitlines()) == 12  # of 18: after the second chunk, 30 of 60 seconds are over
    assert len((tmp_path / "build" / "short" / "log.jsonl").read_text().splitlines()) == 3
    assert not list((tmp_path / "build").glob("data-*/taps_*"))
    assert load_drafter(str(tmp_path / "drafter"), load_target("tiny-target")).gamma == 7
    for engine in ("vllm", "sglang", "llama.cpp"):
        export(str(tmp_path / "drafter"), engine, tmp_path / engine, "TARGET")
    assert main(call) == 0  # nothing is left to do: the same answer
    assert [line for line in capsys.readouterr().out.splitlines() if "accepted length" in line] == \
        [line for line in said.splitlines() if "accepted length" in line]


def test_minutes_are_a_drafters(tmp_path):
    with pytest.raises(DSparkLiteError, match="--minutes bounds the training of a drafter in one process"):
        recipes.train("tiny-target", device="cpu", out=tmp_path / "out", build=tmp_path / "build", minutes=5)


def test_unknown_features_are_refused():
    with pytest.raises(DSparkLiteError, match="the recipe's features is 'none'; it must be one of cached, online"):
        recipes.check_recipe({**recipes.load_recipe("evening-tiny"), "features": "none"})


@pytest.mark.parametrize("name", ["evening", "evening-1.7b"])
def test_an_evenings_training_fits_a_t4(name):
    """Weights, gradients, AdamW, activations and the target, by the estimate: under 13 of the T4's 14.7 GiB."""
    recipe = recipes.load_recipe(name)
    step = estimate.dry_step(recipe, estimate.target_config(recipe), recipe["mean_tokens"])
    line = estimate.memory_line(step, recipe["batch"], 4 * step.frozen, torch.device("cpu"))
    weights = 4 * (step.trained + step.frozen) + 12 * step.trained + 2 * step.target
    assert weights + recipe["batch"] * step.activations < 13 * 2**30, line
