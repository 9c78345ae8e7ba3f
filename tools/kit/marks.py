"""What becomes of marks: a row an exercise, a row a student, a page of feedback for each, and the
answers in words, for whoever marks them."""

import csv
import io
import math
import re
import unicodedata
from pathlib import Path

from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import write_text

from .lessons import EXERCISE, NAMED_CHECKER, by_hand, code_exercises, headings

COLUMNS = [
    "student",
    "lesson",
    "exercise",
    "checker",
    "points",
    "of",
    "notebook",
    "said",
    "noticed",
]
# The points of exercises that a person marks, by kind; docs/teaching/README.md says for what.
BY_HAND = {"think": 2, "open": 4}
# The cell that a student edition has for an answer in words.
PLACE = "**Your answer to exercise {number}**"
PLACE_LINE = re.compile(re.escape(PLACE).replace(r"\{number\}", r"\d+"))
PLACEHOLDER = "*Write it in place of this line; it is handed in with the notebook.*"
RULE = """What your notebook calls "Correct." is a point. The grader runs your exercises again, in the notebook's order, with all that they
use: functions, constants and imports of yours from any cell. Where an exercise is wrong, the course's function stands in for it
afterwards, as in the lesson, so a mistake costs its own point and no other. There are four exceptions:

- A code exercise is also asked on cases with other numbers.
- The course's own function, handed in as yours, is no answer.
- The solutions are not there when a notebook is marked, and lines that replace parts of torch or of the course are left out.
- What takes longer than the time limit, by default a minute, is not waited for.

A person reads answers in words. Write them below the exercise, where the notebook has a place for them."""


def exercises(lesson) -> list[tuple[str, str, int]]:
    """Return (heading, checker, points) of a lesson's exercises; the checker of one that a person
    marks is ""."""
    checkers = {}
    for exercise in code_exercises(lesson):
        checkers.setdefault(exercise.heading, []).append(exercise.checker)
    found = []
    for heading in headings(lesson):
        kind = re.search(r"\((\w+)\)$", heading)[1]
        by_hand = [(heading, "", BY_HAND[kind])] if heading not in checkers else []
        found += [(heading, name, 1) for name in checkers.get(heading, [])] or by_hand
    return found


def notebook_said(cells: list) -> dict[str, str]:
    """Return what a saved notebook's checkers had printed: "Correct." if one call did, else the
    last line."""
    said = {}
    for cell in cells:
        checkers = NAMED_CHECKER.findall(cell.source)
        printed = "".join(
            "".join(output.get("text", "")) for output in cell.get("outputs", []) if output
        )
        lines = [line for line in printed.splitlines() if re.match(r"Correct\.|Not ", line)]
        for checker, line in zip(checkers[::-1], lines[::-1]):
            if said.get(checker) != "Correct.":
                said[checker] = line
    return said


def paragraphs(text: str) -> list[str]:
    """Return a text's paragraphs."""
    return [part.strip("\n") for part in re.split(r"\n\s*\n", text) if part.strip()]


def answers_in_words(notebook, lesson) -> dict[str, str]:
    """Return what a reader has written below each exercise that a person marks: paragraphs and
    cells of code that the lesson does not have."""
    theirs, heading, found = {"code": set(), "markdown": set()}, "", {}
    for cell in lesson.cells:
        if cell.cell_type in theirs:
            theirs[cell.cell_type] |= {cell.source.strip(), *paragraphs(cell.source)}
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.strip() not in theirs["code"]:
            found.setdefault(heading, []).append(f"```python\n{cell.source.strip()}\n```")
        for part in paragraphs(cell.source) if cell.cell_type == "markdown" else []:
            lines = [line for line in part.splitlines() if not PLACE_LINE.fullmatch(line)]
            text = "\n".join(lines).replace(PLACEHOLDER, "").strip()
            if text in theirs["markdown"] or EXERCISE.match(text):
                if text.startswith("#"):
                    heading = (EXERCISE.findall(text) or [""])[0]
            elif text and not any(text in known for known in theirs["markdown"]):
                found.setdefault(heading, []).append(text)
    return {name: "\n\n".join(found[name]) for name in by_hand(lesson) if name in found}


# Tables.


def table(rows: list[dict], columns: list[str]) -> str:
    """Return rows as CSV."""
    written = io.StringIO()
    writer = csv.DictWriter(written, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def read_table(path: Path) -> tuple[list[str], list[dict]]:
    """Return the columns and rows of a CSV. Raise RequestError if it cannot be read."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            return list(reader.fieldnames or []), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RequestError(f"{path} cannot be read as a table: {error}") from None


def number(text) -> float:
    """Return points as a finite number, 0 for an empty cell. Raise RequestError for anything else."""
    try:
        points = float(str(text).replace(",", ".") or 0)
    except ValueError:
        points = math.nan
    if not math.isfinite(points):
        raise RequestError(f"{text!r} in the column points is no number")
    return int(points) if points.is_integer() else points


def marked(rows: list[dict]) -> list[dict]:
    """Return the rows that count: those of exercises that have points, from a checker or from a
    person, for somebody."""
    given = {(row["lesson"], row["exercise"]) for row in rows if str(row["points"]) != ""}
    return [row for row in rows if (row["lesson"], row["exercise"]) in given]


def totals(rows: list[dict]) -> tuple[dict[str, float], float]:
    """Return the points of each student, and the most that one can have: of all lessons in the
    rows, as whoever has not handed one in has no points there."""
    found, most = {row["student"]: 0 for row in rows}, {}
    for row in marked(rows):
        found[row["student"]] += number(row["points"])
        most[row["lesson"], row["exercise"], row["checker"]] = number(row["of"])
    return found, sum(most.values())


# Who is who.


def plain(text: str) -> str:
    """Return letters and digits alone, in one case."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(letter for letter in folded if letter.isalnum())


def identity(student: str) -> tuple[str, str]:
    """Return (id, name) that a folder's or file's name holds, as Moodle and Canvas pack them:
    `Ann Bell_1234_assignsubmission_file`, `bellann_LATE_104_2305`. Elsewhere both are the name."""
    moodle = re.fullmatch(r"(.+?)_(\d+)_assignsubmission_file_?", student)
    canvas = re.fullmatch(r"(.+?)(?:_LATE)?_(\d+)_\d+", student)
    found = moodle or canvas
    return (found[2], found[1]) if found else (student, student)


def of_row(row: dict, columns: list[str]) -> tuple[set[str], set[str]]:
    """Return the ids in a row of a roster, and the forms of the name."""
    ids, words = set(), []
    for column in columns:
        value, head = (row[column] or "").strip(), column.casefold()
        if re.search(r"\b(id|login|email|username|number)\b", head):
            ids |= {value, value.partition("@")[0]} - {""}
        elif re.search(r"\b(name|student|surname)\b", head):
            words += re.split(r"[\s,]+", value)
    words = [plain(word) for word in words if plain(word)]
    turns = [words[at:] + words[:at] for at in range(len(words))]
    return ids, {"".join(turn) for turn in turns}


def students(rows: list[dict], roster: Path | None) -> tuple[list[str], list[dict]]:
    """Return the columns and rows of the table of students: the roster's with `total` and
    `maximum`, or `id` and `name` with them, from the names of what was handed in.

    Who is in the roster and handed nothing in has no total. Who is not in it comes last.
    """
    found, most = totals(rows)
    if roster is None:
        known = {student: identity(student) for student in found}
        columns, people = ["id", "name"], []
        for student, (ident, name) in known.items():
            people.append({"id": ident, "name": name, "student": student})
    else:
        columns, people = read_table(roster)
        columns = [column for column in columns if column not in ("total", "maximum")]
        people = match(people, columns, list(found))
    for person in people:
        total = found.get(person.get("student"), "")
        if any("Points Possible" in (person.get(column) or "") for column in columns):
            total = most  # Canvas's second row
        person |= {"total": total, "maximum": most}
    return [*columns, "total", "maximum"], people


def match(people: list[dict], columns: list[str], handed_in: list[str]) -> list[dict]:
    """Return a roster's rows with the `student` whose work is theirs, by id or by name; and a row
    each for work that is nobody's."""
    left = dict.fromkeys(handed_in)
    for person in people:
        ids, names = of_row(person, columns)
        for student in left:
            ident, name = identity(student)
            words = re.split(r"[\s_()]+", student)
            if ids & {student, ident, *words} or plain(name) in names:
                person["student"] = student
                del left[student]
                break
    extra = [{columns[0]: student, "student": student} for student in left]
    if extra:
        print(f"Not in the roster: {', '.join(left)}")
    return people + extra


# Pages.


def feedback(student: str, rows: list[dict], total: float, most: float) -> str:
    """Return a student's page."""
    lines = [f"# {identity(student)[1]}: {total} of {most}", ""]
    for lesson in dict.fromkeys(row["lesson"] for row in rows):
        lines += [f"## {lesson}", "", "| exercise | points | |", "|---|---|---|"]
        for row in (row for row in rows if row["lesson"] == lesson):
            points = f"{row['points']} of {row['of']}" if str(row["points"]) else "not marked yet"
            said = " ".join(filter(None, [row["said"], noted(row)])).replace("|", "\\|")
            lines.append(f"| {row['exercise']} | {points} | {said} |")
        lines.append("")
    return "\n".join([*lines, "How it was marked:", "", RULE, ""])


def noted(row: dict) -> str:
    """Return what was noticed about an answer, and where the notebook said something else."""
    words = [f"Noticed: {row['noticed']}."] if row["noticed"] else []
    if differs(row):
        words.append(f"Your notebook had said: {row['notebook']}")
    return " ".join(words)


def differs(row: dict) -> bool:
    """Return whether a saved notebook says otherwise than its mark."""
    right = row["notebook"] == "Correct."
    return bool(row["checker"] and row["notebook"]) and right != (number(row["points"]) > 0)


def write(out: Path, rows: list[dict], roster: Path | None) -> None:
    """Write exercises.csv, students.csv and feedback/STUDENT.md."""
    columns, people = students(rows, roster)
    write_text(out / "exercises.csv", table(rows, COLUMNS))
    write_text(out / "students.csv", table(people, columns))
    found, most = totals(rows)
    for student, total in found.items():
        file = re.sub(r'[\\/:*?"<>|]', "_", student)
        page = feedback(student, [row for row in rows if row["student"] == student], total, most)
        write_text(out / "feedback" / f"{file}.md", page)
