"""Write tables between comment markers: the drafters as measured and the lessons into README.md, the judges into docs/judges.md, the
forms of drafts and what was inspected into docs/drafts.md, what teachers read of the lessons into teaching/."""

import json
import sys

import teaching
from notebooks import ROOT, LessonError, badge, effort, lesson_sources, minutes, more_sources, notebook_path, read_cells, title

from dspark_lite.common.files import write_text
from dspark_course.common.formats import markdown
from dspark_course.common.names import DOMAINS, DRAFTER_LABELS
from dspark_course.figures.scoreboard import benchmark, benchmark_rows

README = ROOT / "README.md"
JUDGES_PAGE = ROOT / "docs" / "judges.md"
JUDGES = ROOT / "assets" / "measurements" / "judges.json"
DRAFTS_PAGE = ROOT / "docs" / "drafts.md"
DRAFTS = ROOT / "assets" / "measurements" / "drafts.json"
TEACHING = ROOT / "teaching"
SYLLABUS = TEACHING / "syllabus.md"
NOT_MEASURED = "Not measured yet: `make drafts` does."


def lessons():
    """Return the lessons as a markdown table: number, title, Colab badge, a person's minutes where a lesson states them, a CPU's."""
    rows = []
    for source in lesson_sources():
        path = f"notebooks/{source.stem}.ipynb"
        rows.append([source.name[:2], f"[{title(source)}]({path})", badge(path), effort(read_cells(source)[0]), minutes(source.stem)])
    rows = [["", "lesson", "", "to work through", "to run on a CPU"], ["---"] * 5, *rows]
    if not any(row[3] for row in rows[2:]):
        rows = [[*row[:3], row[4]] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def beside():
    """Return what stands beside the lessons as a markdown table: title, Colab badge, a person's minutes, a CPU's."""
    lines = [["beside the lessons", "", "to work through", "to run on a CPU"], ["---"] * 4]
    for source in more_sources():
        path = notebook_path(source, False).relative_to(ROOT).as_posix()
        lines.append([f"[{title(source)}]({path})", badge(path), effort(read_cells(source)[0]), minutes(source.stem)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def drafters():
    """Return the stored benchmark as a markdown table: times as fast as plain decoding, and tokens per round."""
    found, overall = benchmark_rows(), benchmark()["macro_speedup"]
    lines = ["| drafter | times as fast as plain decoding | tokens per round: " + ", ".join(DOMAINS) + " |", "|---|---|---|"]
    for name in sorted((name for name in overall if name != "plain"), key=overall.get, reverse=True):
        lengths = ", ".join(f"{found[name, domain]['accepted_length']:.1f}" for domain in DOMAINS)
        lines.append(f"| {DRAFTER_LABELS[name]} | {overall[name]:.1f} | {lengths} |")
    note = f"(Mean over {len(DOMAINS)} domains, temperature {benchmark()['temperature']:g}, the tiny models on {benchmark()['device']}.)"
    return "\n".join([*lines, "", note])


def judges():
    """Return what outside judges said, as recorded, as a markdown table: a line per comparison."""
    rows, lines, named = json.loads(JUDGES.read_text(encoding="utf-8"))["rows"], ["| judge | asked | agreed |", "|---|---|---|"], set()
    for row in rows:
        judge = f"{row['judge']} {row.get('version', '')}".strip()
        said = f"not run: {row['not_run']}" if "not_run" in row else f"{row['agreed']} of {row['of']}"
        lines.append(f"| {'' if judge in named else judge} | {row.get('compared', '')} | {said} |")
        named.add(judge)
    return "\n".join(lines)


def forms():
    """Return the forms of drafts that were loaded, as recorded, as a markdown table: a line a form."""
    if not DRAFTS.exists():
        return NOT_MEASURED
    rows, said = json.loads(DRAFTS.read_text(encoding="utf-8"))["forms"], json.loads(JUDGES.read_text(encoding="utf-8"))["rows"]
    asked = {row["compared"].partition(",")[0] for row in said if row["judge"] == "speculators" and "not_run" not in row}
    lines = []
    for row in rows:
        judge = "the drafter itself" + (", speculators" if row["form"].startswith("speculators") and row["drafter"] in asked else "")
        lines.append([row["drafter"], row["form"], f"{row['greedy']} of {row['of']}", f"{row['sampled']} of {row['of']}", judge])
    return markdown(["drafter", "form", "greedy, drafts and tokens equal", "sampled", "judge"], lines)


def inspected():
    """Return what `inspect` said of each released draft, as recorded, as a markdown table."""
    if not DRAFTS.exists():
        return NOT_MEASURED
    rows, lines = json.loads(DRAFTS.read_text(encoding="utf-8"))["inspected"], []
    for row in rows:
        fits = "fits" if row["fits"] else f"does not fit: {row['reason'].partition(': load')[0]}"
        lines.append([row["draft"], row["target"], f"{row['kind']}, {row['layers']}", f"{', '.join(map(str, row['taps']))} of {row['of_layers']}",
                      f"{row['vocabulary']:,}", f"{row['bytes'] / 1e9:.2f} GB", f"{row['fetched'] / 1e3:.0f} kB", fits])
    return markdown(["draft", "made for", "kind, layers", "taps", "ids", "weights", "fetched", rows[0]["asked"]], lines)


TABLES = {  # by page: (begin, end): what stands between them
    README: {("<!-- drafters: written by make notebooks -->", "<!-- end of drafters -->"): drafters,
             ("<!-- lessons: written by make notebooks -->", "<!-- end of lessons -->"): lessons,
             ("<!-- beside: written by make notebooks -->", "<!-- end of beside -->"): beside},
    JUDGES_PAGE: {("<!-- judges: written by make judges -->", "<!-- end of judges -->"): judges},
    DRAFTS_PAGE: {("<!-- forms: written by make drafts -->", "<!-- end of forms -->"): forms,
                  ("<!-- inspected: written by make drafts -->", "<!-- end of inspected -->"): inspected},
    SYLLABUS: {("<!-- term: written by make notebooks -->", "<!-- end of term -->"): teaching.term},
    TEACHING / "lessons.md": {("<!-- lessons: written by make notebooks -->", "<!-- end of lessons -->"): teaching.lessons}}


def render(page, text):
    """Return the text of a page with the tables between its markers made anew."""
    for (begin, end), table in TABLES[page].items():
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise LessonError(f"{page.name} must contain the markers `{begin}` and `{end}`, in this order.")
        text = f"{before}{begin}\n{table()}\n{end}{after}"
    return text


def main():
    """Run the command line; returns the exit code."""
    try:
        for page in TABLES:
            write_text(page, render(page, page.read_text(encoding="utf-8")))
        write_text(SYLLABUS, teaching.with_minutes(SYLLABUS.read_text(encoding="utf-8")))
    except LessonError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
