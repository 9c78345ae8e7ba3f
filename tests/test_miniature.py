"""Our measurements in the shape of the paper's figures: read as they were made, compared prompt by prompt, drawn."""

import re
from dataclasses import replace

import numpy as np
import pytest

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import write_json
from dspark_lite.course import estimates, formats, paper
from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.course.figures import paper_figures
from dspark_lite.course.measure import round_latency, studies
from dspark_lite.course.replication import experiment_results, experiments, paper_tables
from made_measurements import PROMPTS, forget, measurement
from tools.notebooks import figures


def test_the_runs_of_the_studies_are_those_that_their_places_say():
    recipes = {name: load_recipe(*run) for name, run in studies.RUNS.items()}
    named = (studies.TABLE_1, studies.HEADS, studies.DEPTHS, studies.TAPS, studies.LENGTH_STUDY)
    seeds = [*studies.SEEDS.values(), *studies.LOSSES.values()]
    assert {
        *(name for study in named for name in study.values()),
        *(name for names in seeds for name in names),
    } == recipes.keys()
    for names in seeds:
        first, *others = (recipes[name] for name in names)
        assert [recipe.seed for recipe in others] == [2, 3] != [first.seed] * 2
        assert all(
            replace(recipe, seed=1, name="") == replace(first, seed=1, name="") for recipe in others
        )
    assert [recipes[name].config.num_hidden_layers for name in studies.DEPTHS.values()] == list(
        studies.DEPTHS
    )
    assert (
        recipes[studies.TAPS["the last of the four"]].config.target_layer_ids
        == recipes["tiny-dspark"].config.target_layer_ids[-1:]
    )
    assert all(
        recipes[name].config.block_size + 1 == length
        for (_, length), name in studies.LENGTH_STUDY.items()
    )
    drafts = [recipe for recipe in recipes.values() if recipe.kind == "draft"]
    assert {recipe.target for recipe in drafts} == {"tiny-target"} and all(
        recipe.data == drafts[0].data for recipe in drafts
    )


def test_head_and_losses_are_exchanged_one_at_a_time():
    recipes = {
        name: load_recipe(*studies.RUNS[name])
        for name in (*studies.TABLE_1.values(), *(names[0] for names in studies.LOSSES.values()))
    }
    for name, other in (("dflash", "dspark"), ("dspark", "dflash")):
        own = recipes[studies.TABLE_1[name]]
        exchanged = recipes[studies.LOSSES[name][0]]
        theirs = recipes[studies.TABLE_1[other]]
        assert exchanged == replace(own, name=exchanged.name, loss=exchanged.loss)
        assert all(
            getattr(exchanged.loss, term) == getattr(theirs.loss, term)
            for term in ("cross_entropy", "l1", "cross_entropy_first")
        )
    assert recipes["tiny-dflash"].matrix_rate == recipes["tiny-dspark"].matrix_rate


def test_a_gain_over_seeds_is_that_of_their_mean_and_its_interval_is_wider_than_over_prompts_alone(
    made,
):
    ours, theirs = studies.SEEDS["dspark"], studies.SEEDS["dflash"]
    # Trainings that differ much.
    for seed, (run, acceptance) in enumerate(zip(ours, (0.6, 0.75, 0.9))):
        write_json(made / f"{run}.json", measurement(run, acceptance, seed))
    forget()
    for place in experiment_results.PLACES.values():
        means = [
            np.mean([experiment_results.accepted_lengths(run)[place].value for run in runs])
            for runs in (ours, theirs)
        ]
        assert experiment_results.lengths_over_seeds(ours)[place].value == pytest.approx(means[0])
        found = experiment_results.gains_over_seeds(ours, theirs)[place]
        assert found.value == pytest.approx(means[0] / means[1] - 1)
        alone = experiment_results.gains(ours[1], theirs[1])[place]
        assert found.low < found.value < found.high and found.high - found.low > 1.5 * (
            alone.high - alone.low
        )


def test_of_one_training_the_mean_over_seeds_is_its_own(made, monkeypatch):
    monkeypatch.setattr(estimates, "RESAMPLES", 2000)
    ours, theirs = "tiny-dspark", "tiny-eagle3"
    for place in experiment_results.PLACES.values():
        for over_seeds, alone in (
            (
                experiment_results.lengths_over_seeds((ours,)),
                experiment_results.accepted_lengths(ours),
            ),
            (
                experiment_results.gains_over_seeds((ours,), (theirs,)),
                experiment_results.gains(ours, theirs),
            ),
        ):
            assert over_seeds[place].value == pytest.approx(alone[place].value)
            assert over_seeds[place].low == pytest.approx(alone[place].low, abs=0.02)


def test_head_and_losses_are_gains_over_all_trainings(made):
    found = experiments.head_and_losses()
    ours = [
        np.mean([experiment_results.accepted_lengths(run)["all"].value for run in runs])
        for runs in (studies.SEEDS["dspark"], studies.LOSSES["dflash"])
    ]
    assert found["the head, both with DSpark's losses"]["all"].value == pytest.approx(
        ours[0] / ours[1] - 1
    )
    _, _, *rows = paper_tables.head_and_losses_table().splitlines()
    assert [row.split("|")[1].strip() for row in rows] == list(found)
    for axes, place in zip(
        paper_figures.lengths_by_head_and_losses().axes, experiment_results.PLACES.values()
    ):
        for pair in (
            (studies.SEEDS["dflash"], studies.LOSSES["dflash"]),
            (studies.LOSSES["dspark"], studies.SEEDS["dspark"]),
        ):
            lengths = [experiment_results.lengths_over_seeds(runs)[place].value for runs in pair]
            assert any(
                len(line.get_ydata()) == 2 and np.allclose(line.get_ydata(), lengths)
                for line in axes.lines
            )


def test_every_experiment_says_what_was_varied_and_what_came_out(made):
    table = [
        entry for entry in vars(experiments).values() if isinstance(entry, experiments.Experiment)
    ]
    assert len(table) >= 9
    for entry in table:
        words = entry.words().removeprefix(f"{entry.varied}: ").split("; ")
        assert len(words) == len(entry.outcomes)
        for found, condition in zip(words, entry.outcomes):
            assert re.search(r"\d", found.removeprefix(f"{condition} "))
    by_context = experiments.OVERHEAD_BY_CONTEXT.outcomes
    assert list(by_context) == list(map(str, round_latency.LATENCY_CONTEXTS))
    # a millisecond of a hundred
    assert [quantity.value() for ((quantity, _),) in by_context.values()] == pytest.approx(
        [0.01] * len(by_context)
    )


def test_the_paper_by_figure():
    assert paper.conditional_acceptance("dspark", "math")[0] == 0.9053
    assert paper.by_depth("dflash", 5) == pytest.approx(
        paper.domain_means("Qwen3-4B", "dflash"), abs=0.005
    )
    assert paper.by_draft_length("dspark_rnn", "chat")[16] == 3.80813
    assert paper.overhead("dspark")[16] == pytest.approx(0.0131)
    with pytest.raises(DSparkLiteError, match="no claim 'speed of light'"):
        paper.claim("speed of light")


def test_the_papers_benchmarks_stand_beside_the_means_of_their_domains():
    head, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in paper_tables.paper_benchmarks_table().splitlines()
    ]
    rows = {(row[0], row[1]): dict(zip(head, row)) for row in lines}
    assert len(rows) == 12 and len(head) == 2 + 9 + 3 + 1
    found = rows["Eagle3", "Gemma4-12B"]
    shown = [found[name] for name in ("GSM8K", "Arena-Hard v2", "math, mean", "chat, mean", "mean")]
    assert shown == ["5.87", "2.72", "5.39", "2.99", "4.38"]


def test_tables_escape_and_align():
    assert formats.markdown(["a", "b"], [["x|y", 1]]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 |"
    assert formats.interval(None, "tokens") == "-"
    assert (
        formats.interval(estimates.Estimate(0.1234, -0.1, 0.25), "percent")
        == "+12.3% [-10.0%, +25.0%]"
    )


def test_filled_is_ours_and_hollow_the_papers(made):
    panel = paper_figures.figure_2().axes[0]
    lines = [
        line for line in panel.lines if line.get_marker() == "o" and len(line.get_xdata()) == 7
    ]
    filled, hollow = (
        [line for line in lines if (line.get_markerfacecolor() == "none") == empty]
        for empty in (False, True)
    )
    trainings = [
        [e.value for e in experiment_results.conditional_acceptance(run, "math")]
        for run in studies.SEEDS["dspark"]
    ]
    assert [list(line.get_ydata()) for line in filled] == [pytest.approx(np.mean(trainings, 0))]
    assert [list(line.get_ydata()) for line in hollow] == [
        paper.conditional_acceptance("dspark", "math")
    ]


@pytest.mark.parametrize("draw", [paper_figures.figure_3, paper_figures.figure_4])
def test_panels_that_share_an_axis_hide_no_point(draw):
    """Of what is recorded: a limit that is set after the first panel has drawn cuts the others off."""
    for axes in draw().axes:
        low, high = axes.get_ylim()
        heights = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
        assert low <= np.nanmin(heights) and np.nanmax(heights) <= high


def test_gains_stand_in_figure_4(made):
    below = paper_figures.figure_4().axes[3]
    ends = [round(line.get_ydata()[-1], 1) for line in below.lines if line.get_marker() == "o"]
    gain = experiment_results.gains("tiny-dspark-length-16", "tiny-dflash-length-16")["math"].value
    assert sorted(ends) == sorted([round(100 * gain, 1), 29.9]), (
        "ours, and the paper's, which its text rounds to 30"
    )


@pytest.mark.slow(reason="draws every figure of the paper twice")
def test_figures_and_tables_are_rebuilt_to_the_same_bytes(made, tmp_path, monkeypatch):
    """Figures 5 and 6 need the recorded confidences, of which none are made."""
    monkeypatch.setattr(
        figures,
        "FIGURES",
        {
            name: draw
            for name, draw in figures.FIGURES.items()
            if name not in ("figure_5", "figure_6")
        },
    )
    first, second = tmp_path / "first", tmp_path / "second"
    assert figures.main(first) == figures.main(second) == 0
    names = {path.name for path in first.iterdir()}
    assert names == {*(f"{name}.png" for name in figures.FIGURES), "round.png", "tables.md"}
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    page = (first / "tables.md").read_text()
    assert all(
        re.search(rf"^## {re.escape(title)}\n\n(\| |1\. |- )", page, re.M)
        for title in figures.TABLES
    ), "a table, or a list of notes"


@pytest.mark.slow(reason="draws the paper's figures from made measurements")
def test_what_lacks_a_measurement_is_a_sentence_and_the_rest_is_drawn(
    made, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(
        figures, "FIGURES", {name: figures.FIGURES[name] for name in ("figure_2", "figure_3")}
    )
    (made / "tiny-dspark-1-layer.json").unlink()
    out = tmp_path / "out"
    assert figures.main(out) == 1
    assert not (out / "figure_3.png").exists() and (out / "figure_2.png").exists()
    assert (
        "figure_3.png was not drawn: there is no experiments/tiny-dspark-1-layer.json"
        in capsys.readouterr().err
    )
    page = (out / "tables.md").read_text()
    assert (
        "Not there: there is no experiments/tiny-dspark-1-layer.json" in page
        and "not measured yet" in page
    )
    assert PROMPTS == len(experiment_results.recipe_row("tiny-dspark", "math")["rounds"])
