"""Write the table of lessons into README.md, between its two comment markers, from the notebook sources."""

import sys

from notebooks import ROOT, LessonError, badge, lesson_sources, minutes, title

from dspark_lite.common.files import write_text

README = ROOT / "README.md"
BEGIN, END = "<!-- lessons: written by make notebooks -->", "<!-- end of lessons -->"


def table():
    """Return the lessons as a markdown table: number, title, Colab badge, measured minutes."""
    rows = ["| | lesson | | CPU | T4 |", "|---|---|---|---|---|"]
    for source in lesson_sources():
        path = f"notebooks/{source.stem}.ipynb"
        times = f"{minutes(source.stem, 'cpu')} | {minutes(source.stem, 't4')}"
        rows.append(f"| {source.name[:2]} | [{title(source)}]({path}) | {badge(path)} | {times} |")
    return "\n".join(rows)


def render(text):
    """Return README text with the table between the markers made anew."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise LessonError(f"README.md must contain the markers `{BEGIN}` and `{END}`, in this order.")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main():
    """Run the command line; returns the exit code."""
    try:
        write_text(README, render(README.read_text(encoding="utf-8")))
    except LessonError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
