"""Our measurements in the shape of the paper's figures: read as they were made, compared prompt by prompt, drawn."""

import re
from pathlib import Path

import figures
import numpy as np
import pytest
from made_measurements import PROMPTS, latency, measurement, recorded_recipe

from dspark_lite.common import estimates, formats, paper
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.estimates import bootstrap, paired
from dspark_lite.common.names import DOMAINS
from dspark_course.figures import paper_figures
from dspark_course.measure import studies
from dspark_course.measure.evaluation import mean_accepted_length
from dspark_course.replication import our_results, paper_tables
from dspark_course.replication.our_results import full_round, overhead, round_times
from dspark_course.making.recipes import load_recipe


def test_every_recipe_of_the_figures_is_recorded_and_names_itself():
    assert all(recorded_recipe(recipe)["name"] == recipe for recipe in studies.MEASURED_RECIPES)
    for study in (studies.LENGTH_STUDY, studies.DEEP_LENGTH_STUDY):
        assert all(recorded_recipe(recipe)["config"]["block_size"] + 1 == length for (_, length), recipe in study.items())
    layers = {depth: recorded_recipe(recipe)["config"]["num_hidden_layers"] for depth, recipe in studies.DEPTHS.items()}
    assert layers == {1: 1, 2: 2, 3: 3}


def test_the_next_worlds_trainings_are_those_that_their_places_say():
    runs = studies.next_runs()
    names = [load_recipe(*run)["name"] for run in runs]
    assert len(set(names)) == len(runs) and all(run.recipe.startswith("next-") for run in runs)
    study = studies.NEXT_STUDIES
    for seeds in (trained for of_all in study.values() for trained in of_all.values()):
        recipes = [load_recipe(*run) for run in seeds]
        assert [recipe["seed"] for recipe in recipes] == [recipes[0]["seed"], *range(2, len(seeds) + 1)]
        assert all({**recipe, "seed": 1, "name": ""} == {**recipes[0], "seed": 1, "name": ""} for recipe in recipes)
    assert {len(study["table 1"][name]) for name in ("dspark", "dflash", "eagle3")} == {3}
    for layers, (run,) in study["depths"].items():
        assert load_recipe(*run)["config"]["num_hidden_layers"] == layers
    for (_, length), (run,) in study["lengths"].items():
        made = load_recipe(*run)
        assert made["config"]["block_size"] + 1 == length and names.index(Path(made["initial"]).name) < names.index(made["name"])
    of_all = {load_recipe(*run)["target"] for run in runs if "small-lm" not in run.recipe}
    data = [load_recipe(*run)["data"] for run in runs if "small-lm" not in run.recipe]
    assert of_all == {"next-target"} and all(one == data[0] for one in data), "answers are written once"


def test_accepted_lengths_and_their_mean(made):
    found = our_results.accepted_lengths("tiny-dflash")
    made = measurement("tiny-dflash", 0.7, studies.MEASURED_RECIPES.index("tiny-dflash"))
    for domain, row in zip(DOMAINS, made["rows"]):
        assert found[domain].value == sum(row["committed"]) / sum(row["rounds"])
    assert found["all"].value == pytest.approx(np.mean([found[domain].value for domain in DOMAINS]))
    assert found["all"].low < found["all"].value < found["all"].high


def test_conditional_acceptance_is_that_of_the_row_with_intervals(made):
    found = our_results.conditional_acceptance("tiny-dspark", "chat")
    assert [e.value for e in found] == pytest.approx(our_results.recipe_row("tiny-dspark", "chat")["conditional_acceptance"])
    # 30 prompts of 6 rounds, rate 0.85: the 95 % interval of a share of 180, twice as wide for a false alarm in 10^4.
    assert abs(found[0].value - 0.85) < 2 * 1.96 * (0.85 * 0.15 / 180)**0.5
    assert all(e.low <= e.value <= e.high for e in found)


def test_gains_are_paired(made):
    same = our_results.gains("tiny-dspark", "tiny-dspark")
    assert {(e.value, e.low, e.high) for e in same.values()} == {(0.0, 0.0, 0.0)}
    pair = "tiny-dspark", "tiny-dflash"
    gain = our_results.gains(*pair)
    ours, theirs = map(our_results.accepted_lengths, pair)
    assert gain["code"].value == pytest.approx(ours["code"].value / theirs["code"].value - 1)
    assert gain["all"].value == pytest.approx(ours["all"].value / theirs["all"].value - 1)


def test_paired_draws_the_same_prompts_for_all(made):
    rows = our_results.tallies("tiny-dspark")
    alone = paired(mean_accepted_length, rows)
    assert alone == bootstrap(mean_accepted_length, rows) == our_results.accepted_lengths("tiny-dspark")["all"]
    longer = [group * [2, 1] for group in rows]  # twice as long on every prompt
    twice = paired(lambda a, b: mean_accepted_length(a) / mean_accepted_length(b), longer, rows)
    assert (twice.value, twice.low, twice.high) == pytest.approx((2, 2, 2))


def test_a_missing_measurement_is_named(made):
    (made / "tiny-mtp.json").unlink()
    sentence = r"there is no experiments/tiny-mtp\.json; `make experiments` writes it"
    with pytest.raises(DSparkLiteError, match=sentence):
        our_results.accepted_lengths("tiny-mtp")


def test_overhead_of_a_round_compares_the_same_turns():
    measured = latency({"dspark": 5.0})  # slow turns are up to 50 % slow, for all alike
    found = overhead(measured, "dspark", 16)
    assert (found.value, found.low, found.high) == pytest.approx((0.05, 0.05, 0.05))
    times = round_times(measured, "dflash", 4)
    assert times.shape == (8, 2)  # turns, contexts
    assert full_round(times) == pytest.approx(np.median(times[:, 0]))


def test_the_paper_by_figure():
    assert paper.conditional_acceptance("dspark", "math")[0] == 0.9053
    assert paper.by_depth("dflash", 5) == pytest.approx(paper.domain_means("Qwen3-4B", "dflash"), abs=0.005)
    assert paper.by_draft_length("dspark_rnn", "chat")[16] == 3.80813
    assert paper.overhead("dspark")[16] == pytest.approx(0.0131)
    with pytest.raises(DSparkLiteError, match="no claim 'speed of light'"):
        paper.claim("speed of light")


def test_the_papers_benchmarks_stand_beside_the_means_of_their_domains():
    head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in paper_tables.paper_benchmarks_table().splitlines()]
    rows = {(row[0], row[1]): dict(zip(head, row)) for row in lines}
    assert len(rows) == 12 and len(head) == 2 + 9 + 3 + 1
    found = rows["Eagle3", "Gemma4-12B"]
    shown = [found[name] for name in ("GSM8K", "Arena-Hard v2", "math, mean", "chat, mean", "mean")]
    assert shown == ["5.87", "2.72", "5.39", "2.99", "4.38"]


def test_tables_escape_and_align():
    assert formats.markdown(["a", "b"], [["x|y", 1]]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 |"
    assert formats.interval(None, "tokens") == "-"
    assert formats.interval(estimates.Estimate(0.1234, -0.1, 0.25), "percent") == "+12.3% [-10.0%, +25.0%]"


def test_filled_is_ours_and_hollow_the_papers(made):
    panel = paper_figures.figure_2().axes[0]
    lines = [line for line in panel.lines if line.get_marker() == "o" and len(line.get_xdata()) == 7]
    filled, hollow = ([line for line in lines if (line.get_markerfacecolor() == "none") == empty]
                      for empty in (False, True))
    ours = [e.value for e in our_results.conditional_acceptance("tiny-dspark", "math")]
    assert [list(line.get_ydata()) for line in filled] == [ours]
    assert [list(line.get_ydata()) for line in hollow] == [paper.conditional_acceptance("dspark", "math")]


def test_gains_stand_in_figure_4(made):
    below = paper_figures.figure_4().axes[3]
    ends = [round(line.get_ydata()[-1], 1) for line in below.lines if line.get_marker() == "o"]
    gain = our_results.gains("tiny-dspark-length-16", "tiny-dflash-length-16")["math"].value
    assert sorted(ends) == sorted([round(100 * gain, 1), 29.9]), "ours, and the paper's, which its text rounds to 30"


def test_the_deep_worlds_figure_4_draws_the_lengths_that_were_trained(made):
    panel, _, _, below, *_ = paper_figures.figure_4_deep().axes
    lengths = {name: [n for n in studies.LENGTHS if (name, n) in studies.DEEP_LENGTH_STUDY] for name in paper.STUDY}
    for name, trained in lengths.items():
        values = [our_results.accepted_lengths(studies.DEEP_LENGTH_STUDY[name, n])["math"].value for n in trained]
        assert any(list(line.get_ydata()) == values for line in panel.lines) == (len(trained) > 1), name
    assert len(lengths["dspark_rnn"]) == 1, "a drafter of one length alone"
    gain = our_results.gains("deep-dspark-length-16", "deep-dflash-length-16")["math"].value
    assert any(line.get_ydata()[-1] == pytest.approx(100 * gain) for line in below.lines)


def test_figures_and_tables_are_rebuilt_to_the_same_bytes(made, tmp_path, monkeypatch):
    """Figures 5 and 6 need the recorded confidences, of which none are made."""
    monkeypatch.setattr(figures, "FIGURES", {name: draw for name, draw in figures.FIGURES.items() if name not in ("figure_5", "figure_6")})
    first, second = tmp_path / "first", tmp_path / "second"
    assert figures.main(first) == figures.main(second) == 0
    names = {path.name for path in first.iterdir()}
    assert names == {*(f"{name}.png" for name in figures.FIGURES), "round.png", "tables.md"}
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    page = (first / "tables.md").read_text()
    assert all(re.search(rf"^## {re.escape(title)}\n\n(\| |1\. |- )", page, re.M) for title in figures.TABLES), "a table, or a list of notes"


def test_what_lacks_a_measurement_is_a_sentence_and_the_rest_is_drawn(made, tmp_path, capsys):
    (made / "tiny-dspark-1-layer.json").unlink()
    out = tmp_path / "out"
    assert figures.main(out) == 1
    assert not (out / "figure_3.png").exists() and (out / "figure_2.png").exists()
    assert "figure_3.png was not drawn: there is no experiments/tiny-dspark-1-layer.json" in capsys.readouterr().err
    page = (out / "tables.md").read_text()
    assert "Not there: there is no experiments/tiny-dspark-1-layer.json" in page and "not measured yet" in page
    assert PROMPTS == len(our_results.recipe_row("tiny-dspark", "math")["rounds"])
