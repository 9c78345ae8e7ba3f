"""The cases: their form, that what is recorded is what the faulty code gives, the checker's answers, and that no reader's notebook
shows a verdict."""

import json
from importlib import import_module
from itertools import combinations

import nbformat
import pytest

from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT
from dspark_lite.course.bets import score
from dspark_lite.course.bets.questions import lessons_with_a_case
from dspark_lite.course.cases import case, records
from dspark_lite.course.cases.own_file import SEED
from dspark_lite.course.cases.records import read_case, scene
from dspark_lite.course.figures import widgets
from dspark_lite.course.figures.widgets import WEB
from tools.measure import cases as measured
from tools.measure.case_programs.recorded import Recorded
from tools.site import pages

CASE = import_module("dspark_lite.course.cases.case")  # `case` of the package is the function
NUMBERS = lessons_with_a_case()
LETTERS = 60  # of a line of a result, which a narrow page shows
SMALL = {
    "title": "Odd",
    "story": "Something is odd.",
    "measurements": {
        name: {"does": "look", "tells": f"{name} tells.", "result": [f"{name} 1"]}
        for name in "wxyz"
    },
    "suspects": {
        "a": {},
        "b": {"x": "b would be 2."},
        "c": {"y": "c would be 3.", "x": "c would be 4."},
    },
    "cause": "a",
    "why": "So it was.",
}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_case_can_be_decided_and_every_part_says_something(number):
    found = records.read_case(number)
    measurements, suspects = found["measurements"], found["suspects"]
    assert found["title"] and found["story"].endswith(".") and found["why"].endswith(".")
    assert 4 <= len(measurements) <= 6 and 3 <= len(suspects) <= 5
    for measurement in measurements.values():
        assert measurement["does"] and measurement["tells"].endswith(".") and measurement["result"]
        assert all(len(line) <= LETTERS for line in measurement["result"])
    assert [suspect for suspect, against in suspects.items() if not against] == [found["cause"]]
    for against in suspects.values():
        assert against.keys() <= measurements.keys() and all(
            why.endswith(".") for why in against.values()
        )
    decisive = [
        chosen
        for chosen in combinations(measurements, records.MAX_MEASUREMENTS)
        if records.left(found, chosen) == [found["cause"]]
    ]
    assert 0 < len(decisive) < len(list(combinations(measurements, records.MAX_MEASUREMENTS)))
    assert found["title"] not in found["cause"] and found["cause"] not in found["story"]


DEAR = {"00", "03", "04", "05", "06", "11"}  # whose programs run the tiny models or an engine


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(
            number,
            marks=[pytest.mark.slow(reason="five faulty decoders write answers")]
            * (number in DEAR),
        )
        for number in sorted(measured.CASES)
    ],
)
def test_what_is_recorded_is_what_the_faulty_code_gives(number):
    found = records.read_case(number)
    recorded = {name: m["result"] for name, m in found["measurements"].items()}
    assert measured.results(number) == recorded | (
        {"seen": found["seen"]} if "seen" in found else {}
    )


def test_a_measurement_that_gives_the_same_for_a_suspect_cannot_speak_against_it(monkeypatch):
    same = Recorded(None, {"a": 1, "b": 1}, lambda program: {"x": {"size": str(program)}})
    monkeypatch.setattr(measured, "read_case", lambda number: SMALL)
    monkeypatch.setitem(measured.CASES, "99", lambda: same)
    with pytest.raises(ValueError, match="case 99: x does not speak against b"):
        measured.results("99")


@pytest.mark.parametrize(
    ("taken", "suspect", "said"),
    [
        ([], "b", "Not “b”, though nothing that you measured could tell. What could have: x."),
        (
            ["y", "w"],
            "b",
            "Not “b”, though nothing that you measured could tell. What could have: x.",
        ),
        (["x"], "b", "Not “b”. x: b would be 2."),
        (["x", "y"], "c", "Not “c”. x: c would be 4. y: c would be 3."),
        (["y"], "a", "It is “a”, by luck: nothing that you measured speaks against “b”."),
        (["w", "z"], "a", "It is “a”, by luck: nothing that you measured speaks against “b”, “c”."),
        (["x"], "a", "It is “a”, and your measurements leave no other."),
    ],
)
def test_an_accusation_is_answered_by_name_with_what_speaks_against_it(taken, suspect, said):
    assert records.answer(SMALL, taken, suspect) == said


@pytest.fixture
def played(monkeypatch):
    """A function that returns the shown SMALL case and what was noted of it; without widgets, if asked for."""

    def make(with_widgets):
        noted = []
        monkeypatch.setattr(records, "read_case", lambda number: SMALL)
        monkeypatch.setattr(CASE, "note_case", lambda *given: noted.append(given))
        monkeypatch.setattr(widgets, "display", lambda *faces, **more: None)
        if not with_widgets:
            monkeypatch.setattr(widgets, "anywidget", None)
        return case("99"), noted

    return make


@pytest.mark.parametrize(
    ("taken", "accused", "noted"),
    [
        (["x"], ["a"], [True]),
        (["y"], ["a"], [False]),
        (["x"], ["b", "a"], [False]),
        (["x"], ["b"], []),
    ],
)
@pytest.mark.parametrize("widgets", [True, False])
def test_a_case_is_solved_by_proof_at_the_first_accusation(played, widgets, taken, accused, noted):
    shown, found = played(widgets)
    for name in taken:
        shown.measure(name)
    for suspect in accused:
        shown.accuse(suspect)
    assert [solved for _, solved in found] == noted
    if widgets:
        assert shown.widget.chosen == {"taken": taken, "accused": accused}
        clicked, found = played(True)
        clicked.widget.chosen = {"taken": taken, "accused": accused}
        assert clicked.taken == taken and [solved for _, solved in found] == noted


def test_without_widgets_the_case_says_what_to_write_and_what_was_found(played, capsys):
    shown, _ = played(False)
    assert "NAME.measure" in capsys.readouterr().out
    shown.measure("y")
    said = capsys.readouterr().out
    assert "y 1" in said and "2" in said and "tells" not in said
    shown.accuse("b")
    assert SMALL["why"] not in capsys.readouterr().out
    shown.accuse("a")
    said = capsys.readouterr().out
    assert SMALL["why"] in said and all(m["tells"] in said for m in SMALL["measurements"].values())


def test_a_fourth_measurement_and_unknown_names_are_refused(played):
    shown, _ = played(False)
    for name in "wxy":
        shown.measure(name)
    shown.measure("w")  # to read it once more costs nothing
    with pytest.raises(RequestError, match="All 3"):
        shown.measure("z")
    with pytest.raises(RequestError, match="w, x, y, z"):
        shown.measure("v")
    with pytest.raises(RequestError, match="a; b; c"):
        shown.accuse("d")
    with pytest.raises(RequestError, match="no case '99'"):
        read_case("99")


def test_the_verdict_stands_in_the_solutions_alone(played, monkeypatch):
    monkeypatch.delenv("DSPARK_BUILD", raising=False)
    shown, _ = played(True)
    assert SMALL["why"] not in shown.still() and "tells" not in shown.still()
    monkeypatch.setenv("DSPARK_BUILD", "solutions")
    assert SMALL["why"] in shown.still() and "b would be 2." in shown.still()


def test_solved_cases_are_kept_and_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("DSPARK_MINE", str(tmp_path / "my_dspark.py"))
    monkeypatch.setattr(score, "in_notebook", lambda: True)
    score.note_case("02", True)
    score.note_case("03", False)
    score.note_case("03", True)  # a second try, after the verdict
    assert score.noted_cases() == {"02": True, "03": False}
    shown = []
    monkeypatch.setattr(score, "display", lambda faces, **more: shown.append(faces["text/plain"]))
    score.show_score("03")
    rows = {line[:2]: line for line in shown[0].splitlines()}
    assert f"1 of {len(NUMBERS)}" in shown[0] and "11" not in rows
    assert rows["02"].endswith(f"case {score.WON}") and rows["03"].endswith(f"case {score.LOST}")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_lesson_shows_its_case_and_its_student_edition_no_verdict(number):
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    for file, solved in ((path, False), (path.parent / "solutions" / path.name, True)):
        outputs = [
            output
            for cell in nbformat.read(file, as_version=4).cells
            for output in cell.get("outputs", [])
            if WEB in output.get("metadata", {})
            and json.loads(output.metadata[WEB])["drawing"] == "case"
        ]
        (output,) = outputs
        text = output.data["text/markdown"]
        assert (records.read_case(number)["why"] in text) is solved
        assert number == "14" or json.loads(output.metadata[WEB])["numbers"] == scene(number)


def test_a_page_plays_every_case():
    places = pages.case_places()
    assert places.count("course-case") == len(NUMBERS)
    assert all(json.dumps(records.read_case(number)["title"])[1:-1] in places for number in NUMBERS)


@pytest.mark.parametrize(
    ("seed", "own", "measured"),
    [(SEED, False, False), (SEED, True, True), (SEED + 1, False, True)],
    ids=["the course's file as recorded", "the reader's file", "another seed"],
)
def test_case_14_is_measured_anew_unless_it_is_the_recorded_one(
    tmp_path, monkeypatch, seed, own, measured
):
    file = tmp_path / "my_dspark.py"
    if own:
        file.write_text("")
    asked = []
    monkeypatch.setattr(CASE, "own_file", lambda: file)
    monkeypatch.setattr(
        CASE, "own_file_case", lambda seed: asked.append(seed) or records.read_case("14")
    )
    CASE.case("14", seed=seed)
    assert asked == [seed] * measured
