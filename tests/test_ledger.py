"""The ledger: the rule of its verdicts on constructed cases, and that no claim of the paper is left out."""

import json
import math
import re
from contextlib import nullcontext
from dataclasses import dataclass

import pytest

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import write_json
from dspark_lite.course import paper
from dspark_lite.course.data.recipes import load_recipe, parse_recipe
from dspark_lite.course.estimates import PAPER, RESULTS, Estimate, Quantity
from dspark_lite.course.figures import ledger_forest
from dspark_lite.course.measure import inspection, studies
from dspark_lite.course.names import DOMAINS
from dspark_lite.course.replication import (
    claims,
    experiment_results,
    experiments,
    ledger,
    serving_results,
    settings,
)
from dspark_lite.course.replication.experiment_results import Acceptance, Draft, gain
from dspark_lite.losslessness import toys
from dspark_lite.scheduling import policies
from made_measurements import forget, measurement, read_from

ABOVE, BELOW, AROUND = Estimate(0.2, 0.1, 0.3), Estimate(-0.2, -0.3, -0.1), Estimate(0.1, -0.1, 0.3)


@pytest.mark.parametrize(
    ("margins", "verdict"),
    [
        ([ABOVE], "replicates"),
        ([ABOVE, ABOVE], "replicates"),
        ([AROUND], "we cannot tell"),
        ([BELOW], "does not hold"),
        ([ABOVE, AROUND], "we cannot tell"),
        ([ABOVE, AROUND, BELOW], "does not hold"),
        # an interval that touches zero holds it
        (
            [Estimate(0.1, 0.0, 0.2)],
            "we cannot tell",
        ),
    ],
)
def test_verdict(margins, verdict):
    assert ledger.verdict(dict(enumerate(margins))) == verdict


def test_shortfall_tells_the_contrary_from_the_undecided():
    assert (
        ledger.shortfall({"math:": ABOVE, "code:": BELOW, "chat:": AROUND})
        == "the other way round (code); the interval holds zero (chat)"
    )
    assert (
        ledger.shortfall({"": AROUND})
        == ledger.shortfall({"": Estimate(-0.1, -0.2, 0.0)})
        == "the interval holds zero"
    )


def test_size_is_apart_from_the_verdict():
    assert [ledger.size_beside_paper(theirs, ABOVE) for theirs in (0.05, 0.1, 0.25, 0.4)] == [
        "larger",
        "same",
        "same",
        "smaller",
    ]
    assert ledger.size_beside_paper(0.3, BELOW) == "smaller"


@pytest.fixture(scope="module")
def made_entries(all_made):
    """The lines of the ledger of made measurements."""
    with pytest.MonkeyPatch.context() as patch:
        read_from(all_made, patch)
        found = ledger.entries()
    forget()
    return found


@pytest.fixture
def evaluated(made_entries, monkeypatch):
    """The ledger of made measurements, evaluated once."""
    monkeypatch.setattr(ledger, "entries", lambda: made_entries)


@dataclass(frozen=True)
class Given(Quantity):
    """A quantity with this result, or this error in its place; the paper has 0.3."""

    result: Estimate | DSparkLiteError

    def estimate(self, source=RESULTS):
        if source == PAPER:
            return Estimate.exactly(0.3)
        if isinstance(self.result, DSparkLiteError):
            raise self.result
        return self.result


TEST = experiments.Experiment("A test", {"was": experiments.form(".1f", Given(ABOVE))})
MISSING = Given(DSparkLiteError("there is no x.json"))


def constructed(**changes):
    """A claim whose paper says 0.3 and whose measurement says 0.2 ± 0.1."""
    return claims.Claim(
        **{
            "id": "more",
            "section": "9",
            "says": "more",
            "unit": "percent",
            "sense": "> 0",
            "results": {"": Given(ABOVE)},
            "figure": ("",),
            "experiments": (TEST,),
            **changes,
        }
    )


def row(words):
    """The claim that begins with these words."""
    return next(claim for claim in claims.CLAIMS if claim.says.startswith(words))


@pytest.mark.parametrize(
    ("changes", "verdict", "why"),
    [
        ({}, "replicates", ""),
        (
            {"results": {"": Given(AROUND)}},
            "we cannot tell",
            "the interval holds zero. A test: was 0.2",
        ),
        (
            {"margins": {"a": Given(BELOW)}, "experiments": ()},
            "does not hold",
            f"the other way round (a). {ledger.NO_EXPERIMENT}",
        ),
        ({"relation": claims.BELOW_PAPER}, "we cannot tell", "the interval holds zero"),
        ({"relation": claims.AS_PAPER}, "does not hold", "the other way round"),
        (
            {"results": {"": Given(Estimate.exactly(0.3))}, "relation": claims.AS_PAPER},
            "replicates",
            "",
        ),
        (
            {"results": {}, "figure": (), "needs": "a larger world"},
            "cannot be tested here",
            "it would take a larger world",
        ),
        ({"results": {"": MISSING}}, "not measured yet", "there is no x.json"),
        (
            {
                "results": {"": Given(BELOW)},
                "experiments": (
                    experiments.Experiment("A test", {"was": experiments.form(".1f", MISSING)}),
                ),
            },
            "does not hold",
            "the other way round. The experiment that tests a reason was not run yet, there is no x.json",
        ),
    ],
)
def test_a_claim_has_a_verdict_and_a_reason(changes, verdict, why):
    entry = ledger.evaluate(constructed(**changes))
    assert entry.verdict == verdict and entry.why.startswith(why) and bool(entry.why) == bool(why)
    assert bool(entry.results) == (verdict in ("replicates", "does not hold", "we cannot tell"))


def test_the_papers_margins_are_its_own_numbers_unless_a_claim_compares_with_them():
    assert ledger.evaluate(constructed()).paper_margins == {"": 0.3}
    twice = {"twice": Given(ABOVE)}
    assert ledger.evaluate(constructed(margins=twice)).paper_margins == {"twice": 0.3}
    assert ledger.evaluate(constructed(relation=claims.BELOW_PAPER)).paper_margins == {}


def test_every_claim_of_the_text_has_its_row_and_no_other():
    covered = [key for claim in claims.CLAIMS for key in claim.keys]
    covered += [setting.name for setting in settings.SETTINGS if setting.words is None]
    named = {claim["claim"] for claim in paper.numbers()["text_claims"]}
    assert len(named) > 60 and set(covered) == named
    twice = {key for key in covered if covered.count(key) > 1}
    # compared with more than one other
    assert all(
        key.startswith(("conditional acceptance", "mean accepted length of DSpark"))
        for key in twice
    )


def test_the_papers_contradictions_stand_in_the_margin():
    words = [words for claim in claims.CLAIMS for words in claim.discrepancies]
    found = paper.numbers()["meta"]["discrepancies"]
    assert sorted(paper.discrepancy(one) for one in words) == sorted(found)


def test_the_papers_values_are_those_of_its_text(evaluated):
    """Typed in once more here, from the paper, to see that keys and units were not mixed up."""
    by_words = {entry.claim.says: entry.paper for entry in ledger.entries()}
    rival = by_words["DSpark accepts longer than Eagle3 in the mean and in every domain (Qwen3-4B)"]
    assert rival["mean:"] == 0.309 and rival["math:"] == pytest.approx(5.5667 / 4.56 - 1, abs=1e-3)
    lengths = by_words[
        "DSpark accepts longer than DFlash at draft lengths 8 and 16, and more so at 16"
    ]
    assert lengths["math, 16:"] == 0.30 and lengths["code, 8:"] == 0.15
    speed = by_words["at the same throughput DSpark serves each user faster than MTP-1"]
    assert speed == {
        "moderate:": 0.60,
        "strict:": 0.85,
        "Pro, moderate:": 0.57,
        "Pro, strict:": 0.78,
    }
    example = by_words[
        "choosing the length after the draws changes the output; the example's numbers"
    ]
    assert list(example.values()) == [1.0, 0.9, 1.134, 0.85, 0.15, 0.7, 0.3]
    falls = by_words["Eagle3's conditional acceptance rises along the block on chat"]
    assert falls == {"chat at 7:": 0.74, "chat at 1:": 0.53}
    cost = by_words[
        "the sequential head makes a round longer than DFlash's by no more than in the paper"
    ]
    assert cost == pytest.approx({"length 4:": 0.002, "length 16:": 0.013})


def test_made_measurements_give_the_verdicts_that_they_were_made_for(made):
    longer = row("DSpark accepts longer than DFlash in")  # made with rates 0.85 and 0.7
    assert ledger.evaluate(longer).verdict == "replicates"
    for seed, run in enumerate(studies.SEEDS["dspark"]):
        write_json(made / f"{run}.json", measurement(run, 0.3, seed))
    forget()
    entry = ledger.evaluate(longer)
    assert entry.verdict == "does not hold" and entry.why.startswith(
        "the other way round (math, code, chat, mean). "
    )
    # A round of DSpark is made 1 % longer: more than the paper's 0.2 %, less than its 1.3 %.
    assert ledger.evaluate(row("the sequential head")).why.startswith(
        "the other way round (length 4)"
    )


def test_ledger_table_has_a_line_a_claim_and_all_verdicts_are_known(evaluated):
    lines = ledger.ledger_table().splitlines()
    assert (
        len(lines) == 2 + len(claims.CLAIMS) and len({line.count(" | ") for line in lines[2:]}) == 1
    )
    known = set(ledger_forest.VERDICTS)
    assert {entry.verdict for entry in ledger.entries()} <= known
    assert all(entry.why for entry in ledger.entries() if entry.verdict != ledger.REPLICATES)


def test_a_position_that_hardly_a_round_reached_is_no_number(made):
    write_json(made / "tiny-eagle3.json", measurement("tiny-eagle3", 0.2))
    forget()
    rise = row("Eagle3's conditional acceptance rises")
    assert (
        ledger.evaluate(rise).why
        == "hardly a round of Eagle3 came to position 7 on chat; measure more prompts"
    )


def test_settings_are_those_of_the_measured_recipes(made):
    table = ledger.settings_table()
    assert "| 3.1 | Markov head rank | 256 | 64 |" in table
    assert "| 4.1 | training samples | 1,300,000 | 8,400 |" in table
    (made / "round_latency.json").unlink()
    forget()
    assert "there is no experiments/round_latency.json" in ledger.settings_table()


def test_settings_that_are_written_down_are_those_of_recipes_and_measurements():
    """Counted again, of the committed files."""
    quality = json.loads(
        (experiment_results.MEASUREMENTS.parent / "target_quality.json").read_text()
    )
    recipe = experiment_results.measured("tiny-dspark")["recipe"]
    here = {setting.name: setting.results for setting in settings.SETTINGS}
    prompts, loss = recipe["data"]["prompts"].values(), recipe["loss"]
    assert here["training samples"] == f"{sum(prompts):,}" and len(set(prompts)) == 1
    decay = loss.get("position_decay", recipe["config"]["block_size"])  # unless it is given: gamma
    assert here["weight of position k in the losses"] == f"exp(-(k-1)/{decay:g})"
    assert here["vocabulary"] == f"{load_recipe(recipe['target']).config.vocab_size:,}"
    assert [recipe["data"][name] for name in ("temperature", "top_k", "top_p")] == [1, 0, 1]
    assert not {"num_experts", "sliding_window"} & set(recipe["config"])
    target, *own = (
        sum(
            math.prod(entry.shape)
            for part, entry in inspection.stored(f"tiny-{name}").items()
            if "embed_tokens" not in part and "lm_head" not in part
        )
        for name in ("target", "eagle3", "dflash", "dspark")
    )
    assert [f"{weights / target:.1%}" for weights in own] == re.findall(
        r"[\d.]+%", here["drafters' share of the target's weights without embeddings (Qwen3-4B)"]
    )
    assert here["tokens of an answer, mean"] == ", ".join(
        f"{row['domain']} {row['answer_tokens']:.0f}" for row in quality["rows"]
    )
    contexts = sorted(
        {row["context"] for row in experiment_results.measured(studies.LATENCY)["rows"]}
    )
    assert here["latency context lengths"] == ", ".join(f"{context:,}" for context in contexts)
    budget = serving_results.value("budget", serving_results.rows("policies", drafter="mtp")[-1])
    assert here["MTP-1 verification budget"] == f"{budget:.10g}"
    assert here["steps of delay of the scheduler capacity estimate"] == str(policies.LAG)
    _, drafter, table = toys.appendix_a()
    assert here["appendix example SPS(1..3)"] == settings.listed(table.steps_per_second.tolist())
    assert (
        here["appendix example a1, c2 case 1"]
        == f"{drafter.first_confidence:g}, {drafter.confidence[0].item():g}"
    )


def test_an_empty_folder_gives_a_ledger_of_what_is_missing(tmp_path, monkeypatch):
    read_from(tmp_path, monkeypatch)
    monkeypatch.setattr(serving_results, "MEASURED", tmp_path / "engine.json")
    untestable = [
        entry.claim.says for entry in ledger.entries() if entry.verdict == "cannot be tested here"
    ]
    found = {
        entry.claim.section: entry.verdict
        for entry in ledger.entries()
        if entry.verdict != "cannot be tested here"
    }
    forget()
    assert found.pop("A") == "replicates"  # computed, not measured
    assert set(found.values()) == {"not measured yet"} and untestable == [
        "DSpark accepts longer than Eagle3 and DFlash on larger targets, too"
    ]


COMMITTED = sorted(experiment_results.MEASUREMENTS.glob("*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_measurements_say_where_they_were_made_and_are_those_of_their_recipes(path):
    measured = json.loads(path.read_text())
    assert (
        measured["device"]
        and measured["versions"]["torch"]
        and measured["commit"]
        and "seed" in measured
    )
    if path.stem in studies.RUNS:
        assert parse_recipe(measured["recipe"], path.name) == load_recipe(*studies.RUNS[path.stem])
        assert [row["domain"] for row in measured["rows"]] == list(DOMAINS)


def test_the_papers_margins_are_above_zero(evaluated):
    """The forest draws the paper's on the side that the paper claims."""
    for entry in ledger.entries():
        assert all(value >= 0 for value in entry.paper_margins.values()), entry.claim.says


def test_ids_and_sentences_of_claims_are_their_own():
    for name in ("id", "says"):
        assert len({getattr(claim, name) for claim in claims.CLAIMS}) == len(claims.CLAIMS)


def test_the_notes_number_every_claim_that_its_verdict_does_not_tell(evaluated):
    numbers = ledger.note_numbers()
    assert list(numbers.values()) == list(range(1, len(numbers) + 1))
    assert set(numbers) == {
        entry.claim.says for entry in ledger.entries() if entry.verdict != "replicates"
    }
    lines = ledger.notes().splitlines()
    assert [line.split(".")[0] for line in lines if line[0] != " "] == list(
        map(str, numbers.values())
    )
    assert all(line.startswith("    - ") and line.endswith(".") for line in lines if line[0] == " ")
    first, last = min(numbers.values()), max(numbers.values())
    assert [
        int(line.split(".")[0]) for line in ledger.notes(first, last).splitlines() if line[0] != " "
    ] == [first, last]
    assert set(ledger.notes(first, last).splitlines()) < set(lines)
    assert len(ledger.contradictions().splitlines()) == len(
        paper.numbers()["meta"]["discrepancies"]
    )


def test_the_forest_tells_what_is_turned_round_from_what_cannot_be_told(evaluated):
    texts = [
        text.get_text()
        for part in ledger_forest.PARTS
        for axes in ledger_forest.forest(part).axes
        for text in axes.texts
    ]
    for entry in ledger.entries():
        if entry.verdict in (ledger.DOES_NOT, ledger.UNDECIDED):
            turned = any(margin.high < 0 for margin in entry.margins.values())
            number = ledger.note_numbers()[entry.claim.says]
            assert f"{'✗ does not hold' if turned else '? we cannot tell'}, note {number}" in texts


def test_notes_are_numbered_as_the_figure_shows_their_claims(evaluated):
    assert sorted(map(repr, ledger.in_order())) == sorted(map(repr, ledger.entries()))
    shown = [
        entry.claim.says
        for part in ledger_forest.PARTS
        for panel in ledger.by_units(part)
        for entry in panel
        if entry.why
    ]
    assert list(ledger.note_numbers()) == shown and len(ledger_forest.PANELS) == len(ledger.UNITS)
    assert list(ledger_forest.PARTS) == list(ledger.SECTIONS)


def test_the_forest_draws_every_margin_of_ours_and_of_the_papers(evaluated):
    panels = [axes for part in ledger_forest.PARTS for axes in ledger_forest.forest(part).axes]
    filled = sum(
        line.get_marker() == "o" and len(line.get_xdata()) == 1
        for axes in panels
        for line in axes.lines
    )
    hollow = sum(
        line.get_marker() == "D" and len(line.get_xdata()) == 1
        for axes in panels
        for line in axes.lines
    )
    drawn = [row for entry in ledger.entries() for row in ledger_forest.margin_rows(entry, 0.0)]
    assert filled == sum(row.ours is not None for row in drawn) and hollow == sum(
        row.paper is not None for row in drawn
    )
    assert (
        filled
        == sum(
            1 if entry.claim.relation == claims.AS_PAPER else len(entry.margins)
            for entry in ledger.entries()
        )
        > 30
    )


@pytest.mark.slow(reason="evaluates every claim with 2000 resamples, as lesson 12 does")
def test_no_failure_is_left_without_an_experiment_that_was_run():
    """Of the committed measurements."""
    assert len(ledger.entries()) == len(claims.CLAIMS)
    assert not [
        entry.claim.says
        for entry in ledger.entries()
        if ledger.NO_EXPERIMENT in entry.why or "not run yet" in entry.why
    ]


ONE, OTHER = Draft(("one",), "dspark"), Draft(("other",), "dflash")
THREE = Draft(("one", "two", "three"), "dspark")


@pytest.mark.parametrize(
    "compared, one_training, sound",
    [
        ((ONE, OTHER), False, False),
        ((THREE, OTHER), False, False),  # one seed on one side is luck as well
        ((ONE, OTHER), True, True),
        ((THREE, Draft(("4", "5"), "dflash")), False, True),
        ((THREE, Draft(("4", "5"), "dflash")), True, False),  # says less than was measured
        ((ONE, ONE), False, True),  # domains of one draft: no comparison of trainings
    ],
)
def test_a_comparison_of_trainings_has_several_seeds_or_says_that_it_has_one(
    compared, one_training, sound
):
    ours, theirs = compared
    expected = nullcontext() if sound else pytest.raises(DSparkLiteError, match="one_training")
    with expected:
        # fmt: skip
        claim = claims.Claim(
            "made",
            "0",
            "ours accepts longer",
            "percent",
            "each > 0",
            results={"math": gain(ours, theirs, "math")},
            margins={"first": Acceptance(ours, "math", 1) - Acceptance(theirs, "math", 1)},
            one_training=one_training,
        )
        assert ("one training" in claim.sentence) == one_training
