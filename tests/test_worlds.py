"""The two worlds side by side, from made files: what is bold, what is missing, who is compared with whom."""

import numpy as np
import pytest
from made_measurements import measurement

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import write_json
from dspark_course.figures import paper_figures
from dspark_course.making.recipes import load_recipe
from dspark_course.measure import studies
from dspark_course.measure.gates import gate
from dspark_course.replication import our_results, worlds

RATES = {"shallow": {"dspark": 0.8, "dflash": 0.7, "eagle3": 0.9},
         "deep": {"dspark": 0.8, "dflash": 0.7, "eagle3": 0.5}}


@pytest.fixture
def two_worlds(tmp_path, monkeypatch):
    """Gates and measurements of a shallow world in which Eagle3 wins and of a deep one in which DSpark does."""
    for seed, (world, recipes) in enumerate(worlds.WORLDS.items()):
        for index, (name, of_all_seeds) in enumerate(recipes.items()):
            for training, recipe in enumerate(of_all_seeds):
                write_json(tmp_path / f"{recipe}.json", measurement(recipe, RATES[world][name], 100 * training + 10 * seed + index))
        write_json(tmp_path / f"{worlds.ONE_LAYER[world]}.json", measurement(worlds.ONE_LAYER[world], 0.5, 20 + seed))
    write_json(tmp_path / "tiny.json", {"gates": [gate("answers that are right", "math", 0.98, at_least=0.9),
                                                  gate("length", "chat", 6.444, 2.0, 3.5, "2.40 there")]})
    write_json(tmp_path / "deep.json", {"gates": [gate("answers that are right", "math", 0.75, at_least=0.9),
                                                  gate("facts recalled", "chat", 0.9, at_least=0.9),
                                                  gate("share (reported)", "chat", 0.5),
                                                  gate("length", "chat", 3.0, 2.0, 3.5, "2.40 there")]})
    monkeypatch.setattr(worlds, "FOLDER", tmp_path)
    monkeypatch.setattr(our_results, "MEASUREMENTS", tmp_path)
    for cached in (our_results.accepted_lengths, our_results.gains):
        cached.cache_clear()
    yield tmp_path
    for cached in (our_results.accepted_lengths, our_results.gains):
        cached.cache_clear()


def test_a_gate_that_is_not_met_is_bold_and_one_that_a_world_has_not_is_a_dash(two_worlds):
    _, _, *rows, depth, ending = worlds.gates_table().splitlines()
    assert depth.startswith("| first position of DSpark at full depth") and ending.startswith("| rounds cut by an answer's end")
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in rows] == [
        ["answers that are right", "math", "≥ 0.9", "0.98", "**0.75**", "-"],
        ["facts recalled", "chat", "≥ 0.9", "-", "0.90", "-"],
        ["share (reported)", "chat", "reported", "-", "0.50", "-"],
        ["length", "chat", "≥ 2, ≤ 3.5", "**6.44**", "3.00", "2.40 there"]]


def test_each_world_compares_dspark_with_its_own_rivals(two_worlds):
    _, _, *rows = worlds.gains_table().splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    seeds = {("deep", "Eagle3"): ["1", "2", "3", "all"], ("deep", "DFlash"): ["1", "2", "all"]}
    assert [row[:3] for row in cells] == [[world, rival, seed] for world in worlds.WORLDS for rival in ("Eagle3", "DFlash")
                                          for seed in seeds.get((world, rival), ["1"])]
    over_eagle3 = {(row[0], row[2]): row[-1] for row in cells if row[1] == "Eagle3"}
    assert all(found.startswith("-" if world == "shallow" else "+") for (world, _), found in over_eagle3.items())


def test_a_gain_over_seeds_is_that_of_their_mean_and_its_interval_is_wider_than_over_prompts_alone(two_worlds):
    for seed, rate in enumerate((0.6, 0.75, 0.9), 1):  # trainings that differ much
        recipe = studies.DEEP["dspark"][seed - 1]
        write_json(two_worlds / f"{recipe}.json", measurement(recipe, rate, seed))
    ours, theirs = studies.DEEP["dspark"], studies.DEEP["dflash"]
    for place in our_results.PLACES.values():
        means = [np.mean([our_results.accepted_lengths(recipe)[place].value for recipe in recipes]) for recipes in (ours, theirs)]
        assert our_results.lengths_over_seeds(ours)[place].value == pytest.approx(means[0])
        found = our_results.gains_over_seeds(ours, theirs)[place]
        assert found.value == pytest.approx(means[0] / means[1] - 1)
        alone = our_results.gains(ours[1], theirs[1])[place]
        assert found.low < found.value < found.high and found.high - found.low > 1.5 * (alone.high - alone.low)


def test_of_one_recipe_the_mean_over_seeds_is_the_recipe(two_worlds):
    ours, theirs = studies.DEEP["dspark"][0], studies.DEEP["eagle3"][0]
    for place in our_results.PLACES.values():
        for over_seeds, alone in ((our_results.lengths_over_seeds((ours,)), our_results.accepted_lengths(ours)),
                                  (our_results.gains_over_seeds((ours,), (theirs,)), our_results.gains(ours, theirs))):
            assert over_seeds[place].value == pytest.approx(alone[place].value)
            assert over_seeds[place].low == pytest.approx(alone[place].low, abs=0.02)


def test_the_table_of_lengths_has_a_row_for_each_training(two_worlds):
    for recipe in (*studies.DEEP_TWO_PASSES.values(), *studies.DEEP_DEPTHS.values()):
        write_json(two_worlds / f"{recipe}.json", measurement(recipe, 0.6, 40))
    _, _, *rows = worlds.lengths_table().splitlines()
    assert [tuple(cell.strip() for cell in row.split("|")[1:3]) for row in rows] == [
        *((name, f"seed {seed}") for name, seeds in (("Eagle3", 3), ("DFlash", 2), ("DSpark", 3)) for seed in range(1, seeds + 1)),
        ("Eagle3", "seed 1, two passes"), ("DSpark", "seed 1, two passes"), ("DSpark", "seed 1, 1 of 4 layers")]


def test_the_figure_draws_each_drafters_length_in_its_world(two_worlds):
    fig = paper_figures.two_worlds()
    for axes, recipes in zip(fig.axes, worlds.WORLDS.values()):
        drawn = [line.get_ydata() for line in axes.lines if len(line.get_ydata()) == len(our_results.PLACES)]
        for of_all_seeds in recipes.values():
            lengths = [our_results.lengths_over_seeds(of_all_seeds)[place].value for place in our_results.PLACES.values()]
            assert any(np.allclose(found, lengths) for found in drawn), of_all_seeds


def test_a_missing_file_names_the_command(two_worlds):
    (two_worlds / "deep.json").unlink()
    with pytest.raises(DSparkLiteError, match="DSPARK_PROFILE=deep python -m dspark_lite world --json deep.json"):
        worlds.gates("deep")


def test_each_drafter_of_the_deep_world_is_trained_at_the_rate_that_its_search_found():
    found = worlds.searched_rates()
    assert set(found) == {recipes[0] for recipes in studies.DEEP.values()}
    for name, (first, *others) in studies.DEEP.items():
        losses = found[first]
        rates = sorted(losses)
        best = min(losses, key=losses.get)
        assert rates[0] < best < rates[-1], "the search went on until a rate was too small and one too large"
        assert all(big == pytest.approx(2 * small) for small, big in zip(rates, rates[1:]))
        assert {load_recipe(recipe)["matrix_rate"] for recipe in (first, *others)} == {best}, name


def test_both_worlds_have_the_same_drafters():
    assert list(worlds.WORLDS["shallow"]) == list(worlds.WORLDS["deep"]) == list(studies.DEEP)
