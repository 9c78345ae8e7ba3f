"""What a teacher reads of each lesson, from the lessons and their checkers: goals, exercises with
minutes, mistakes; a plan's minutes."""

import importlib
import re

from dspark_lite.course.checkers.checking import Exercise
from tools.notebooks.build import effort, lesson_sources, read_cells, tags, title

EXERCISE = re.compile(
    r"^### (Exercise \d+ · .+) \((code|think|open)\)$\n?(?:\*(\d+) minutes?(?: · (easy|medium|hard))?)?",
    re.M,
)
GOALS = re.compile(r"^- .+(?:\n {2,}.+)*", re.M)
NEEDS = re.compile(r"\*\*What you need:?\*\*:? *((?:.+\n?)+)")
LINK = re.compile(r"\]\((?!https?:)(\.\./docs/)?")
TOTAL = "| **in all** |"
WEEK = 90  # minutes of a term's week


def minutes(number: str) -> int | None:
    """Return a person's minutes for the lesson with these two digits, as its header states them;
    None if it does not."""
    (source,) = lesson_sources(number)
    return read_cells(source)[0].metadata.get("minutes")


def with_minutes(page: str) -> str:
    """Return a page of plans: the last cell of each row has the minutes of the lessons that the row
    links to, the last row of each table their sum; "?" stands for a lesson that states none."""
    lines, summed = [], []
    for line in page.splitlines():
        numbers = re.findall(r"notebooks/(\d\d)_", line) if line.startswith("|") else []
        stated = summed if line.startswith(TOTAL) else list(map(minutes, numbers))
        if stated:
            cells = line.strip("|").split("|")[:-1]
            said = f"{sum(filter(None, stated))}{' + ?' if None in stated else ''}"
            summed = [] if stated is summed else summed + stated
            line = f"|{'|'.join(cells)}| {said} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def term() -> str:
    """Return a table of all lessons in order, as many in a week as fit into its minutes."""
    weeks, spent = [], WEEK
    for source in lesson_sources():
        stated = minutes(source.name[:2]) or WEEK
        if spent + stated > WEEK:
            weeks, spent = [*weeks, []], 0
        weeks[-1].append(
            f"[{source.name[:2]}](../../notebooks/{source.stem}.ipynb) {title(source)}"
        )
        spent += stated
    rows = [f"| {week} | {', '.join(lessons)} | |" for week, lessons in enumerate(weeks, 1)]
    return with_minutes(
        "\n".join(["| week | lessons | minutes |", "|---|---|---|", *rows, f"{TOTAL} | |"])
    ).rstrip("\n")


def mistakes(check) -> list[str]:
    """Return the sentences with which a checker names mistakes. A checker that is no Exercise has
    them in a table of its module."""
    if isinstance(check, Exercise):
        return list(
            dict.fromkeys(sentence for step in check.comparisons for sentence in step.mistakes)
        )
    module = importlib.import_module(check.__module__)
    known = [value for value in vars(module).values() if isinstance(value, dict) and value]
    tables = [
        table
        for table in known
        if all(
            isinstance(key, str) and " " in key and callable(wrong) for key, wrong in table.items()
        )
    ]
    return list(dict.fromkeys(sentence for table in tables for sentence in table))


def lesson(source) -> str:
    """Return what a teacher reads of a lesson: goals, what it needs, and its exercises with the
    mistakes that their checkers know."""
    cells = read_cells(source)
    module = importlib.import_module(f"dspark_lite.course.exercises.lesson_{source.name[:2]}")
    header = LINK.sub(lambda link: "](../" if link[1] else "](../../notebooks/", cells[0].source)
    needs = NEEDS.search(header)
    lines = [
        f"## {source.name[:2]} · {title(source)}",
        "",
        f"{effort(cells[0]) or 'No minutes stated.'}",
        "",
        "Goals: a reader can",
        "",
        *GOALS.findall(header),
        "",
        f"Needs: {' '.join(needs[1].split()) if needs else 'nothing.'}",
        "",
    ]
    for cell in cells:
        if cell.cell_type == "markdown":
            lines += [
                f"- **{name}** ({kind}"
                + (f", {spent} min" if spent else "")
                + (f", {difficulty})" if difficulty else ")")
                for name, kind, spent, difficulty in EXERCISE.findall(cell.source)
            ]
        elif "solution" not in tags(cell):
            for name in re.findall(r"exercises\.(check_\w+)\(", cell.source):
                lines += [f"  - {sentence}" for sentence in mistakes(getattr(module, name))]
    return "\n".join(lines)


def lessons() -> str:
    """Return what a teacher reads of all lessons."""
    return "\n\n".join(lesson(source) for source in lesson_sources())
