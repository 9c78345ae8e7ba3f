"""Write tables between comment markers: the drafters as measured and the lessons into README.md,
the judges into docs/judges.md, the forms of drafts and what was inspected into docs/drafts.md, what
teachers read of the lessons into docs/teaching/."""

import sys

from dspark_lite.common.files import write_text
from dspark_lite.course.formats import markdown
from dspark_lite.course.replication.benchmark_results import drafters
from dspark_lite.course.result_files import read
from tools.errors import report_errors
from tools.kit import teaching
from tools.notebooks.build import (
    ROOT,
    LessonError,
    badge,
    effort,
    lesson_sources,
    minutes,
    more_sources,
    notebook_path,
    read_cells,
    title,
)

README = ROOT / "README.md"
TEACHING = ROOT / "docs" / "teaching"
SYLLABUS = TEACHING / "syllabus.md"


def recorded(name):
    """Return the measurement of this name, `make NAME`'s."""
    return read(ROOT / "assets" / "measurements" / f"{name}.json", f"make {name}")


def row_of(source, path):
    """Return a notebook's title, Colab badge, a person's minutes where it states them, a CPU's."""
    return [
        f"[{title(source)}]({path})",
        badge(path),
        effort(read_cells(source)[0]),
        minutes(source.stem),
    ]


def lessons():
    """Return the lessons as a markdown table, without a person's minutes where none states them."""
    rows = [
        [source.name[:2], *row_of(source, f"notebooks/{source.stem}.ipynb")]
        for source in lesson_sources()
    ]
    rows = [["", "lesson", "", "to work through", "to run on a CPU"], *rows]
    if not any(row[3] for row in rows[1:]):
        rows = [[*row[:3], row[4]] for row in rows]
    return markdown(rows[0], rows[1:])


def beside():
    """Return what stands beside the lessons as a markdown table."""
    rows = [
        row_of(source, notebook_path(source, False).relative_to(ROOT).as_posix())
        for source in more_sources()
    ]
    return markdown(["beside the lessons", "", "to work through", "to run on a CPU"], rows)


def judges():
    """Return what outside judges said, as recorded, as a markdown table: a line per comparison."""
    lines, named = ["| judge | asked | agreed |", "|---|---|---|"], set()
    for row in recorded("judges")["rows"]:
        judge = f"{row['judge']} {row.get('version', '')}".strip()
        result = (
            f"not run: {row['not_run']}" if "not_run" in row else f"{row['agreed']} of {row['of']}"
        )
        lines.append(
            f"| {'' if judge in named else judge} | {row.get('compared', '')} | {result} |"
        )
        named.add(judge)
    return "\n".join(lines)


def forms():
    """Return the forms of drafts that were loaded, as recorded, as a markdown table: a line a
    form."""
    rows, lines = recorded("judges")["rows"], []
    confirmed = {
        row["compared"].partition(",")[0]
        for row in rows
        if row["judge"] == "speculators" and "not_run" not in row
    }
    for row in recorded("drafts")["forms"]:
        too = row["form"].startswith("speculators") and row["drafter"] in confirmed
        equal = (f"{row[how]} of {row['of']}" for how in ("greedy", "sampled"))
        judge = "the drafter itself" + ", speculators" * too
        lines.append([row["drafter"], row["form"], *equal, judge])
    head = ["drafter", "form", "greedy, drafts and tokens equal", "sampled", "judge"]
    return markdown(head, lines)


def inspected():
    """Return what `inspect` said of each released draft, as recorded, as a markdown table."""
    rows, lines = recorded("drafts")["inspected"], []
    for row in rows:
        fits = "fits" if row["fits"] else f"does not fit: {row['reason'].partition(': load')[0]}"
        lines.append(
            [
                row["draft"],
                row["target"],
                f"{row['kind']}, {row['layers']}",
                f"{', '.join(map(str, row['taps']))} of {row['of_layers']}",
                f"{row['vocabulary']:,}",
                f"{row['bytes'] / 1e9:.2f} GB",
                f"{row['fetched'] / 1e3:.0f} kB",
                fits,
            ]
        )
    head = ["draft", "made for", "kind, layers", "taps", "ids", "weights", "fetched"]
    return markdown([*head, rows[0]["asked"]], lines)


# by page: the goal of make that writes its tables
TABLES = {
    README: ("notebooks", [drafters, lessons, beside]),
    ROOT / "docs" / "judges.md": ("judges", [judges]),
    ROOT / "docs" / "drafts.md": ("drafts", [forms, inspected]),
    SYLLABUS: ("notebooks", [teaching.term]),
    TEACHING / "lessons.md": ("notebooks", [teaching.lessons]),
}


def render(page, text):
    """Return the text of a page with the tables between its markers made anew."""
    goal, tables = TABLES[page]
    for table in tables:
        begin = f"<!-- {table.__name__}: written by make {goal} -->"
        end = f"<!-- end of {table.__name__} -->"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise LessonError(
                f"{page.name} must contain the markers `{begin}` and `{end}`, in this order."
            )
        text = f"{before}{begin}\n{table()}\n{end}{after}"
    return text


@report_errors
def main(_):
    for page in TABLES:
        write_text(page, render(page, page.read_text(encoding="utf-8")))
    write_text(SYLLABUS, teaching.with_minutes(SYLLABUS.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
