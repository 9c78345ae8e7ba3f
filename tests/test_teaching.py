"""What teachers read: minutes add up, pages say what lessons and checkers say, exams have keys, forms are well formed."""

import re

import pytest
import yaml

from dspark_lite.common.about import REPOSITORY, VERSION
from dspark_lite.course.exercises import lesson_02, lesson_10
from tools.kit import exam, teaching
from tools.notebooks import build as notebooks, readme

ROOT = notebooks.ROOT
STATED = {
    path.name[:2]: re.search(r'tags=\["header"\] minutes=(\d+)', path.read_text(encoding="utf-8"))
    for path in notebooks.lesson_sources()
}


def rows(table):
    """(the lessons that a row links to, its last cell) of a table's rows."""
    return [
        (re.findall(r"notebooks/(\d\d)_", line), line.strip("|").split("|")[-1].strip())
        for line in table.splitlines()[2:]
    ]


def test_the_plans_minutes_are_the_sum_of_the_lessons():
    """From the lessons' headers, read here in another way than the page's maker reads them."""
    tables = re.findall(r"(?:^\|.*\n)+", readme.SYLLABUS.read_text(encoding="utf-8"), re.M)
    assert len(tables) == 3
    for table in tables:
        *plan, (_, total) = rows(table)
        for numbers, said in [*plan, (sum((numbers for numbers, _ in plan), []), total)]:
            known = [int(STATED[number][1]) for number in numbers if STATED[number]]
            assert said == f"{sum(known)}{' + ?' if len(known) < len(numbers) else ''}"
    # a term has all lessons
    assert [number for numbers, _ in rows(tables[-1]) for number in numbers] == sorted(STATED)


def test_the_syllabus_is_what_its_maker_writes():
    text = readme.SYLLABUS.read_text(encoding="utf-8")
    assert teaching.with_minutes(text) == text


def test_minutes_are_filled_into_tables_alone(monkeypatch):
    monkeypatch.setattr(teaching, "minutes", {"00": 10, "01": 20, "02": None}.get)
    page = "a notebooks/00_a line\n| w | [x](notebooks/00_x), [y](notebooks/01_y) | |\n| v | [z](notebooks/02_z) | 7 |\n| **in all** | | |\n"
    page += "\n| u | [x](notebooks/00_x) | |\n| **in all** | | 9 |\n"
    cells = [
        line.split("|")[-2].strip()
        for line in teaching.with_minutes(page).splitlines()
        if line.startswith("|")
    ]
    assert cells == ["30", "0 + ?", "30 + ?", "10", "10"]
    assert teaching.with_minutes(page).startswith("a notebooks/00_a line\n")


def test_a_plan_with_a_lesson_that_is_not_there_is_refused():
    with pytest.raises(notebooks.LessonError, match="No lesson 99"):
        teaching.with_minutes("| a | [x](notebooks/99_x.ipynb) | |\n")


@pytest.mark.parametrize("source", notebooks.lesson_sources(), ids=lambda path: path.stem)
def test_teachers_read_goals_needs_and_mistakes_of_a_lesson(source):
    text = teaching.lesson(source)
    goals, needs = text.split("Needs: ")
    assert len(re.findall(r"^- ", goals, re.M)) >= 3 and len(needs.splitlines()[0]) > 5
    assert len(re.findall(r"^- \*\*Exercise \d+ · ", needs, re.M)) >= 2
    assert len(re.findall(r"^  - ", needs, re.M)) >= 3


def test_mistakes_are_those_that_a_checker_names():
    assert teaching.mistakes(lesson_10.check_theta) == list(
        lesson_10.check_theta.comparisons[0].mistakes
    )
    assert any(
        "p and q are swapped in the coin" in sentence
        for sentence in teaching.mistakes(lesson_02.check_verify)
    )


def test_an_exam_is_its_seeds_and_the_key_is_not_on_the_sheet(tmp_path, monkeypatch, capsys):
    sheet, key = exam.exam(1)
    assert (sheet, key) == exam.exam(1) and sheet != exam.exam(2)[0] and key != exam.exam(2)[1]
    assert (
        len(re.findall(r"^\*\*\d+\.\*\*", sheet, re.M))
        == len(re.findall(r"^\*\*\d+\.\*\*", key, re.M))
        == len(exam.QUESTIONS)
    )
    assert "lesson" not in sheet
    monkeypatch.setattr(exam, "OUT", exam.ROOT / "build" / "test_exam")
    assert (
        exam.main(["--seed", "1"]) == 0 and (exam.OUT / "key.md").read_text(encoding="utf-8") == key
    )
    assert "questions" in capsys.readouterr().out


def test_the_key_is_right_where_it_can_be_worked_out_here():
    for seed in range(20):
        sheet, key = exam.exam(seed)
        asked, answers = (
            dict(re.findall(r"^\*\*(\d+)\.\*\* (.*)$", text, re.M)) for text in (sheet, key)
        )
        p, q = (
            list(map(float, numbers.split(", ")))
            for numbers in re.findall(r"is ([\d., ]+), the drafter's ([\d., ]+)\.", asked["1"])[0]
        )
        assert f"{sum(map(min, zip(p, q))):.2f} of all drafts" in answers["1"] and p != q
        plain, check, draft = map(int, re.findall(r"(\d+) ms", asked["2"]))
        tau = float(re.search(r"commits ([\d.]+) tokens", asked["2"])[1])
        assert f"{tau * plain / (check + draft):.2f} times" in answers["2"]
        lengths = re.findall(r"\[\d, \d\]", answers["6"])
        assert len(lengths) == 2 and lengths[0] != lengths[1]
        share = float(re.search(r"with probability ([\d.]+)", asked["7"])[1])
        drafted = float(re.search(r"the drafter with ([\d.]+);", asked["7"])[1])
        assert f"{drafted + (1 - drafted) * share:.2f} in place of" in answers["7"]


def test_the_citation_names_this_version_and_repository():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (
        cited["version"] == VERSION
        and cited["repository-code"] == f"https://github.com/{REPOSITORY}"
        and cited["license"] == "MIT"
    )
    assert f"## {VERSION}" in (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")),
    ids=lambda path: path.stem,
)
def test_issue_forms_are_forms(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(form)
    assert all(
        part["type"] in ("input", "textarea", "dropdown") and part["attributes"]["label"]
        for part in form["body"]
    )
