"""The reader's own experiment of lesson 13: two trainings that differ in one change, measured on the same prompts."""

import matplotlib.pyplot as plt
import numpy as np

from dspark_lite.common.files import write_json
from dspark_course.figures import lesson_13 as figures
from dspark_course.making import recipes
from dspark_course.making.recipes import load_recipe
from dspark_course.measure import trials


def test_an_experiment_trains_as_it_is_and_with_the_change_and_measures_both(monkeypatch, tmp_path):
    write_json(tmp_path / "short.json", {"name": "short", "extends": trials.RECIPE, "steps": 2, "batch": 2,
                                         "data": {"prompts": {"math": 2, "code": 2}, "max_new_tokens": 8}})
    monkeypatch.setattr(trials, "RECIPE", str(tmp_path / "short.json"))
    short, trained = load_recipe(trials.RECIPE), []
    monkeypatch.setattr(recipes, "train_draft", lambda recipe, *rest, train=recipes.train_draft: trained.append(recipe) or train(recipe, *rest))
    found, device = trials.experiment({"config": {"markov_rank": 4}}, prompts=1)
    assert [recipe.config.markov_rank for recipe in trained] == [short["config"]["markov_rank"], 4]
    assert list(found) == [trials.AS_IT_IS, trials.CHANGED] and device.startswith("CPU")
    for by_domain in found.values():
        assert list(by_domain) == ["math", "code", "chat"]
        assert all(tally.shape == (1, 2) and 1 <= tally[0, 0] / tally[0, 1] <= 8 for tally in by_domain.values())
    fig = figures.experiment_lengths(found, device)
    (axes,) = fig.axes
    drawn = [bars.lines[0].get_ydata() for bars in axes.containers]
    assert np.allclose(drawn, [[tally[:, 0].sum() / tally[:, 1].sum() for tally in by_domain.values()] for by_domain in found.values()])
    plt.close(fig)


def test_a_change_of_one_field_keeps_its_neighbours(tmp_path):
    base = load_recipe(trials.RECIPE)
    changed = load_recipe(str(trials.write_trial("changed", {"config": {"markov_rank": 4}, "seed": 2}, tmp_path)))
    assert changed == {**base, "name": "changed", "config": {**base["config"], "markov_rank": 4}, "seed": 2}
