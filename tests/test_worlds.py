"""The two worlds side by side, from made files: what is bold, what is missing, who is compared with whom."""

import numpy as np
import pytest
from made_measurements import forget, measurement, recorded_recipe, served_row

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import write_json
from dspark_course.figures import paper_figures
from dspark_course.measure import studies
from dspark_course.measure.gates import gate
from dspark_course.replication import our_results, recorded_serving, worlds

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
    forget()
    yield tmp_path
    forget()


def test_a_gate_that_is_not_met_is_bold_and_one_that_a_world_has_not_is_a_dash(two_worlds):
    _, _, *rows, depth, ending = worlds.gates_table().splitlines()
    assert depth.startswith("| first position of DSpark at full depth") and ending.startswith("| rounds cut by an answer's end")
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in rows] == [
        ["answers that are right", "math", "≥ 0.9", "0.98", "**0.75**", "-"],
        ["facts recalled", "chat", "≥ 0.9", "-", "0.90", "-"],
        ["share (reported)", "chat", "reported", "-", "0.50", "-"],
        ["length", "chat", "≥ 2, ≤ 3.5", "**6.44**", "3.00", "2.40 there"]]


def test_each_number_of_passes_is_compared_with_each_seed_and_with_all(two_worlds):
    write_trainings(two_worlds)
    _, _, *rows = worlds.gains_table(1, 2).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    every = ["1", "2", "3", "all"]
    assert [row[:3] for row in cells] == [[passes, rival, seed] for passes in ("1", "2") for rival in ("Eagle3", "DFlash") for seed in every]
    assert all(found.startswith("+") for row in cells for found in row[3:])
    _, _, *rows = worlds.leads_table(1, 4).splitlines()
    shown = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[:3] for row in shown] == [["1", "Eagle3", "3"], ["1", "DFlash", "3"], ["4", "Eagle3", "1"], ["4", "DFlash", "1"]]
    assert [row[3:] for row in shown[:2]] == [row[3:] for row in cells if row[0] == "1" and row[2] == "all"]


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


def write_trainings(folder):
    """Measurements of trainings of two and four passes, of other heads, depths and taps, in which DSpark is ahead; in the shallow
    world it is so after one pass alone."""
    longer = {recipe: 0.9 if name == "dspark" else 0.75 for passes, trained in studies.DEEP_PASSES.items() if passes > 1
              for name, recipes in trained.items() for recipe in recipes}
    heads = {recipe: rate for by_head in studies.DEEP_HEADS.values() for recipe, rate in zip(by_head.values(), (0.8, 0.9))}
    heads |= {"deep-dspark-rnn-two-passes": 0.95}
    fewer = {recipe: 0.9 for layers, recipe in studies.DEEP_DEPTHS.items() if layers < max(studies.DEEP_DEPTHS)}
    taps = {recipe: 0.6 for recipe in list(studies.DEEP_TAPS.values())[1:]}
    losses = {recipe: 0.75 for recipes in studies.DEEP_LOSSES.values() for recipe in recipes}
    alike = {recipe: RATES["deep"][name] for name, recipes in studies.SHALLOW_ALIKE.items() for recipe in recipes}
    alike |= {recipe: 0.75 for passes, trained in studies.SHALLOW_PASSES.items() if passes > 1 for recipes in trained.values() for recipe in recipes}
    for seed, (recipe, rate) in enumerate({**longer, **heads, **fewer, **taps, **losses, **alike}.items(), 50):
        write_json(folder / f"{recipe}.json", measurement(recipe, rate, seed))


def test_what_training_and_world_add_are_differences_of_gains(two_worlds):
    write_trainings(two_worlds)
    old, alike, deep = ({place: found.value for place, found in our_results.gains_over_seeds(recipes["dspark"], recipes["eagle3"]).items()}
                        for recipes in worlds.worlds_and_trainings().values())
    added = worlds.training_and_world("eagle3")
    for place in our_results.PLACES.values():
        assert added["training"][place].value == pytest.approx(alike[place] - old[place])
        assert added["world"][place].value == pytest.approx(deep[place] - alike[place])
    assert all(found.low > 0 for found in added["training"].values()), "trained alike Eagle3 accepts 0.5 in place of 0.9"
    assert all(found.low < 0 < found.high for found in added["world"].values()), "there it accepts as much as in the deep world"
    _, _, *rows = worlds.training_and_world_table("eagle3", "dflash").splitlines()
    assert [row.split("|")[2].strip() for row in rows[:5]] == [*worlds.worlds_and_trainings(), "added by the training", "added by the world"]
    axes = paper_figures.gain_by_training_and_world().axes[-1]
    assert any(np.allclose(line.get_ydata(), [100 * gain["all"] for gain in (old, alike, deep)]) for line in axes.lines
               if len(line.get_ydata()) == 3)


def test_the_shallow_world_trained_alike_differs_from_the_deep_one_in_what_the_lesson_says():
    for name, (recipe,) in studies.SHALLOW_ALIKE.items():
        alike, deep, old = (recorded_recipe(one) for one in (recipe, studies.DEEP[name][0], studies.TABLE_1[name]))
        assert all(alike[key] == deep[key] for key in ("loss", "initialisation", "learning_rate", "precision", "seed")), name
        assert alike["config"]["num_anchors"] == deep["config"]["num_anchors"] and alike["data"]["prompts"] == deep["data"]["prompts"]
        assert alike["target"] == old["target"] and alike["config"] == {**old["config"], "num_anchors": alike["config"]["num_anchors"]}
        assert (alike["epochs"], alike["batch"]) == (3 * deep["epochs"], 3 * deep["batch"])


def test_a_gain_less_itself_is_nothing_where_the_prompts_are_the_same(two_worlds):
    pair = studies.DEEP["dspark"][:1], studies.DEEP["eagle3"][:1]
    same, apart = (our_results.gain_difference(pair, pair, same_prompts=same)["all"] for same in (True, False))
    assert (same.value, same.low, same.high) == (0, 0, 0)
    assert apart.value == 0 and apart.low < 0 < apart.high
    alone = our_results.gains(pair[0][0], pair[1][0])["all"]
    assert apart.high - apart.low == pytest.approx(2 ** 0.5 * (alone.high - alone.low), rel=0.15)


def test_a_contrast_is_the_gain_of_one_training_over_another(two_worlds):
    write_trainings(two_worlds)
    found = worlds.contrasts()
    assert list(found) == ["DSpark of 1 over DFlash of 4 layers", "DSpark of 2 over DFlash of 4 layers",
                           "RNN head over Markov head, draft length 8", "RNN head over Markov head, draft length 16",
                           "RNN head over Markov head, draft length 8, two passes",
                           "DSpark that reads four layers over one that reads the last of the four",
                           "DSpark that reads four layers over one that reads them in its first layer alone"]
    assert all(gain.low > 0 for gains in found.values() for gain in gains.values())
    _, _, *rows = worlds.contrasts_table().splitlines()
    assert [row.split("|")[1].strip() for row in rows] == list(found)
    _, _, *rows = worlds.contrasts_table("RNN head").splitlines()
    assert [row.split("|")[1].strip() for row in rows] == [title for title in found if title.startswith("RNN head")]


def test_the_lead_by_passes_is_that_of_all_trainings(two_worlds):
    write_trainings(two_worlds)
    assert list(worlds.leads("eagle3")) == [1, 2, 4] and list(worlds.leads("dflash")) == [1, 2, 4]
    two = studies.DEEP_PASSES[2]
    means = [np.mean([our_results.accepted_lengths(recipe)["all"].value for recipe in two[name]]) for name in ("dspark", "eagle3")]
    assert worlds.leads("eagle3")[2]["all"].value == pytest.approx(means[0] / means[1] - 1)
    fig = paper_figures.longer_training()
    for axes, place in zip(fig.axes, our_results.PLACES.values()):
        for name in worlds.WORLDS["deep"]:
            lengths = [our_results.lengths_over_seeds(recipes)[place].value for recipes in worlds.trainings(name).values()]
            assert any(np.allclose(line.get_ydata(), lengths) for line in axes.lines if len(line.get_ydata()) == len(lengths)), name


def test_each_world_has_its_own_lead_by_passes(two_worlds):
    write_trainings(two_worlds)
    deep, shallow = worlds.leads("eagle3"), worlds.leads("eagle3", "shallow")
    assert list(shallow) == [1, 2, 4] and list(worlds.leads("dflash", "shallow")) == [1, 2]
    (ours,), (theirs,) = (studies.SHALLOW_PASSES[4][name] for name in ("dspark", "eagle3"))
    assert shallow[4]["code"].value == pytest.approx(our_results.gains(ours, theirs)["code"].value)
    added = worlds.added_by_the_world("eagle3")
    assert list(added) == [1, 2, 4]
    assert added[2]["all"].value == pytest.approx(deep[2]["all"].value - shallow[2]["all"].value) and added[2]["all"].low > 0
    assert added[1]["all"].low < 0 < added[1]["all"].high
    _, _, *rows = worlds.passes_and_worlds_table("eagle3", 2, 4).splitlines()
    assert [[cell.strip() for cell in row.split("|")[1:3]] for row in rows] == [
        [passes, said] for passes in ("2", "4") for said in ("shallow world", "deep world", "added by the world")]
    for axes, place in zip(paper_figures.gain_by_passes_and_world().axes, our_results.PLACES.values()):
        for found in (deep, shallow):
            gains = [100 * lead[place].value for lead in found.values()]
            assert any(np.allclose(line.get_ydata(), gains) for line in axes.lines if len(line.get_ydata()) == len(gains))


def test_the_deep_worlds_figures_draw_its_own_recipes(two_worlds):
    write_trainings(two_worlds)
    for fig, recipe in ((paper_figures.figure_2_deep(), studies.DEEP_PASSES[2]["dspark"][0]), (paper_figures.figure_3_deep(), None)):
        for axes, domain in zip(fig.axes, our_results.PLACES):
            lines = [line.get_ydata() for line in axes.lines]
            wanted = ([found.value for found in our_results.conditional_acceptance(recipe, domain)] if recipe else
                      [our_results.accepted_lengths(one)[domain].value for one in studies.DEEP_DEPTHS.values()])
            assert any(len(found) == len(wanted) and np.allclose(found, wanted) for found in lines)


@pytest.fixture
def served(monkeypatch):
    """A deep world in which 2 drafts are best with 4 requests under way, and a shallow one in which 7 are."""
    def rows(best, loads):
        made = {"fixed 2": 100, "fixed 7": 100, "algorithm1": 110, f"fixed {best}": 120}
        return [row for load in loads for row in (served_row("plain", "all", load, 80, 10), *(
            served_row("dspark", policy, load, committed, 10 * (1 + 4 * (policy != "fixed 2"))) for policy, committed in made.items()))]

    found = {"shallow": {"policies": rows(7, (4, 16)), "device": "CPU"}, "deep": {"policies": rows(2, (4,)), "device": "CPU"},
             "deep-two-passes": {"policies": rows(7, (4,)), "device": "CPU"}}
    monkeypatch.setattr(recorded_serving, "serving_run", lambda world: found[world])


def test_serving_is_compared_with_the_best_fixed_length_at_the_loads_of_all_servers(served):
    length, whole, scheduled = worlds.over_best_fixed("deep")[4]
    assert length == 2 and whole.value == pytest.approx(100 / 120 - 1) and scheduled.value == pytest.approx(110 / 120 - 1)
    _, _, *rows = worlds.serving_table().splitlines()
    assert [[cell.strip() for cell in row.split("|")[1:4]] for row in rows] == [
        ["shallow world", "4", "7"], ["deep world, one pass", "4", "2"], ["deep world, two passes", "4", "7"]]


def test_the_figure_of_servers_draws_lengths_and_the_scheduler_over_plain_decoding(served):
    found = worlds.throughputs("deep", 4)
    assert {policy: (drafts, gain.value) for policy, (drafts, gain) in found.items()} == {
        "fixed 2": (0, 1.5), "fixed 7": (4, 1.25), "algorithm1": (4, 1.375)}
    axes = paper_figures.servers(4).axes[1]
    assert axes.get_title() == "deep world, one pass: most with 0 drafts"
    assert np.allclose(axes.lines[0].get_ydata(), [1.5, 1.25])


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


def test_each_recipe_makes_the_passes_with_the_seed_that_its_place_says():
    for passes, trained in studies.DEEP_PASSES.items():
        for name, recipes in trained.items():
            of_one_pass = recorded_recipe(studies.DEEP[name][0])
            for seed, recipe in enumerate(recipes, 1):
                assert recorded_recipe(recipe) == {**of_one_pass, "name": recipe, "seed": seed, "epochs": passes}
    for passes, trained in studies.SHALLOW_PASSES.items():
        for name, (recipe,) in trained.items():
            of_one_pass = recorded_recipe(studies.SHALLOW_ALIKE[name][0])
            assert recorded_recipe(recipe) == {**of_one_pass, "name": recipe, "epochs": passes * of_one_pass["epochs"]}
    base, last, first_layer = (recorded_recipe(recipe) for recipe in studies.DEEP_TAPS.values())
    changed = (last, {"target_layer_ids": base["config"]["target_layer_ids"][-1:]}), (first_layer, {"drafter": "block, context in the first layer"})
    assert all(recipe == {**base, "name": recipe["name"], "config": {**base["config"], **change}} for recipe, change in changed)


@pytest.mark.parametrize(("world", "drafters"), [("deep", {**studies.DEEP, "mtp": (studies.DEEP_MTP[1],)}),
                                                 ("shallow", studies.SHALLOW_ALIKE)])
def test_each_drafter_is_trained_at_the_rate_that_its_search_found(world, drafters):
    found = worlds.searched_rates(world)
    assert set(found) == {recipes[0] for recipes in drafters.values()}
    for name, (first, *others) in drafters.items():
        losses = found[first]
        rates = sorted(losses)
        best = min(losses, key=losses.get)
        assert rates[0] < best < rates[-1], "the search went on until a rate was too small and one too large"
        assert all(big == pytest.approx(2 * small) for small, big in zip(rates, rates[1:]))
        assert {recorded_recipe(recipe)["matrix_rate"] for recipe in (first, *others)} == {best}, name


def test_draft_lengths_of_the_deep_world_go_on_from_one_pass_alike():
    for (name, length), recipe in studies.DEEP_LENGTH_STUDY.items():
        before = f"deep-{name.replace('_', '-')}"
        base = recorded_recipe(before)
        changed = {"name": recipe, "initial": f"build/experiments/checkpoints/{before}", "steps": 400,
                   "config": {**base["config"], "block_size": length - 1}}
        assert recorded_recipe(recipe) == {**base, **changed}


def test_both_worlds_have_the_same_drafters():
    assert list(worlds.WORLDS["shallow"]) == list(worlds.WORLDS["deep"]) == list(studies.DEEP)


def test_head_and_losses_are_exchanged_one_at_a_time():
    recipes = {name: recorded_recipe(recipe) for name, recipe in (
        ("dflash", studies.DEEP["dflash"][0]), ("dspark", studies.DEEP["dspark"][0]), *((f"{name} exchanged", first)
                                                                                       for name, (first, _) in studies.DEEP_LOSSES.items()))}
    for name, other in (("dflash", "dspark"), ("dspark", "dflash")):
        own, exchanged, theirs = recipes[name], recipes[f"{name} exchanged"], recipes[other]
        assert {key for key in own if own[key] != exchanged[key]} == {"name", "loss"}
        assert all(exchanged["loss"][term] == theirs["loss"][term] for term in ("cross_entropy", "l1", "cross_entropy_first"))
    assert recipes["dflash"]["matrix_rate"] == recipes["dspark"]["matrix_rate"]
    for first, second in studies.DEEP_LOSSES.values():
        assert recorded_recipe(second) == {**recorded_recipe(first), "name": second, "seed": 2}


def test_head_and_losses_are_gains_over_all_trainings(two_worlds):
    write_trainings(two_worlds)
    found = worlds.head_and_losses()
    ours = [np.mean([our_results.accepted_lengths(recipe)["all"].value for recipe in recipes])
            for recipes in (studies.DEEP["dspark"], studies.DEEP_LOSSES["dflash"])]
    assert found["the head, both with DSpark's losses"]["all"].value == pytest.approx(ours[0] / ours[1] - 1)
    assert all(by_place["all"].value > 0 for by_place in found.values())
    _, _, *rows = worlds.head_and_losses_table().splitlines()
    assert [row.split("|")[1].strip() for row in rows] == list(found)


def test_the_figure_of_head_and_losses_draws_both_without_and_with(two_worlds):
    write_trainings(two_worlds)
    fig = paper_figures.lengths_by_head_and_losses()
    for axes, place in zip(fig.axes, our_results.PLACES.values()):
        for pair in ((studies.DEEP["dflash"], studies.DEEP_LOSSES["dflash"]), (studies.DEEP_LOSSES["dspark"], studies.DEEP["dspark"])):
            lengths = [our_results.lengths_over_seeds(recipes)[place].value for recipes in pair]
            assert any(len(line.get_ydata()) == 2 and np.allclose(line.get_ydata(), lengths) for line in axes.lines)
