"""Build the notebooks from their py:percent sources: generate, execute, fill the numbers into the
text, keep the outputs.

`python -m tools.notebooks.build` writes notebooks/NN_name.ipynb and
notebooks/solutions/NN_name.ipynb for every notebooks/src/NN_name.py, and notebooks/more/name.ipynb,
which has no exercises and one edition, for every notebooks/src/more/name.py
(tools/notebooks/fill.py says how a text names numbers). The readers' notebooks come without the
workshop: what checks and fills the text runs in the build and stands in the solutions alone. The
build tries every lesson, prints the sentences that are no longer true, and exits 1 if there is one.
`--check` compares what is committed with its sources and executes nothing. `--inputs-only` rewrites
text, comments and imports and keeps the outputs.
"""

import argparse
import ast
import base64
import io
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from PIL import Image
from tqdm import tqdm

from dspark_lite.common.about import REPOSITORY, TAG
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import ROOT, read_json, write_text
from dspark_lite.course.figures.widgets import WEB
from dspark_lite.course.lesson_text import MIME
from tools.notebooks.fill import fill_in, placeholders, quotes
from tools.notebooks.setup_cell import SETUP

SOURCES = ROOT / "notebooks" / "src"
MORE = "more"  # the folder, of sources and of notebooks, of what stands beside the lessons
MEASURED = ROOT / "assets" / "measurements" / "lessons.json"
DIFFICULTIES = ("easy", "medium", "hard")
SIZE_LIMIT = 700_000  # bytes a committed notebook stays under, so that GitHub shows it
CELL_SECONDS = 900  # far more than any cell takes, so that a busy machine ends none
BADGE_IMAGE = "https://colab.research.google.com/assets/colab-badge.svg"
PICTURE = "image/png"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
WORKSHOP = {"claims", "glue"}  # what a lesson calls for its builders alone
CLAIMS_TITLE = "#@title A check of the text around it, for whoever builds the course"
# What stands beside the lessons, seen from a folder further down.
PAGE_LINK = re.compile(rf"\]\(((?:\.\./)?\w+/\w+\.md|{MORE}/\w+\.ipynb)")
NOTEBOOK_METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4", "provenance": [], "toc_visible": True},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# One thread, no GPU, no network, figures inline: the same outputs on every run.
KERNEL_SETTINGS = {
    "DSPARK_PROFILE": "tiny",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}


class LessonError(DSparkLiteError):
    """A lesson that cannot be built or does not run; the message is one sentence for the command
    line."""


# Sources.


def lesson_sources(only: str | None = None) -> list[Path]:
    """Return the source paths in lesson order; `only` is a lesson's two digits or None for all."""
    sources = sorted(SOURCES.glob("[0-9][0-9]_*.py"))
    chosen = [source for source in sources if only in (None, source.name[:2])]
    if only and not chosen:
        there = ", ".join(source.name[:2] for source in sources) or "none"
        raise LessonError(f"No lesson {only} in notebooks/src; there are {there}.")
    return chosen


def more_sources() -> list[Path]:
    """Return the source paths of what stands beside the lessons, in the order of their names."""
    return sorted((SOURCES / MORE).glob("*.py"))


def chosen_sources(only: str | None = None) -> list[Path]:
    """Return the sources of `only`, a lesson's two digits or the name of a notebook beside the
    lessons; all for None."""
    beside = more_sources()
    if only is None:
        return lesson_sources() + beside
    return [source for source in beside if source.stem == only] or lesson_sources(only)


def is_beside(source: Path) -> bool:
    return source.parent.name == MORE


def tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def read_cells(source: Path) -> list[NotebookNode]:
    """Return a source's cells. Raise LessonError unless they are one header (first), one setup,
    exercises each followed by its solution, and claims that are made."""
    cells = jupytext.read(source, fmt="py:percent").cells
    special = ("header", "setup", "exercise", "solution")
    kinds = [next((tag for tag in tags(cell) if tag in special), "") for cell in cells]
    first = cells[0] if cells else nbformat.v4.new_raw_cell()

    def require(holds: bool, sentence: str) -> None:
        if not holds:
            raise LessonError(source.name + sentence)

    require(
        not (is_beside(source) and {"exercise", "solution"} & set(kinds)),
        ": a notebook beside the lessons has one edition, so none of its cells is an `exercise` or a `solution`.",
    )
    require(
        first.cell_type == "markdown" and kinds[0] == "header" and kinds.count("header") == 1,
        ": the first cell, and no other, must be markdown tagged `header`.",
    )
    require(first.source.startswith("# "), ": the header must begin with the title as a `# ` line.")
    setups = kinds.count("setup")
    require(setups == 1, f": exactly one cell must be tagged `setup`, found {setups}.")
    require(
        isinstance(first.metadata.get("minutes", 1), int)
        and first.metadata.get("difficulty", "easy") in DIFFICULTIES,
        f": the header's `minutes` is a whole number, its `difficulty` one of {', '.join(DIFFICULTIES)}.",
    )
    around = zip(cells, kinds, ["", *kinds], [*kinds[1:], ""])
    for number, (cell, kind, before, after) in enumerate(around, start=1):
        where = f", cell {number}: "
        require(
            kind != "exercise" or after == "solution",
            where + "the exercise must be followed by its `solution` cell.",
        )
        require(
            kind != "solution" or before == "exercise",
            where + "the solution must follow its `exercise` cell.",
        )
        require(
            "claim" not in tags(cell) or len(re.findall(r"\bclaims\(", cell.source)) == 1,
            where + "a cell tagged `claim` calls `claims({sentence: whether it is true})` once.",
        )
    return cells


def title(source: Path) -> str:
    """Return the lesson's title, without a leading number."""
    first_line = read_cells(source)[0].source.splitlines()[0]
    return re.sub(r"^# (Lesson )?(\d+\W+)?", "", first_line).strip()


def recorded_seconds() -> dict[str, float]:
    """Return {lesson: seconds on a CPU} as tools/notebooks/run_course.py recorded them, which may
    be none."""
    return read_json(MEASURED)["cpu"]["seconds"] if MEASURED.exists() else {}


def minutes(lesson: str) -> str:
    """Return the time that a lesson's cells take on a CPU in words."""
    seconds = recorded_seconds().get(lesson)
    if seconds is None:
        return "not measured yet"
    return "under 1 min" if seconds < 60 else f"{math.ceil(seconds / 60)} min"


def effort(cell: NotebookNode) -> str:
    """Return the minutes that a person needs, and the difficulty, as the header's metadata state
    them; "" if they do not."""
    difficulty = f" ({cell.metadata['difficulty']})" if "difficulty" in cell.metadata else ""
    return f"{cell.metadata['minutes']} min{difficulty}" if "minutes" in cell.metadata else ""


# Generated notebooks.


def notebook_path(source: Path, solutions: bool) -> Path:
    """Return where the notebook of a source is kept."""
    folder = MORE if is_beside(source) else "solutions" if solutions else ""
    return ROOT / "notebooks" / folder / f"{source.stem}.ipynb"


def both_editions(sources: Iterable[Path]) -> list[tuple[Path, bool]]:
    """Return (source, solutions) for the student's notebook and the one with solutions of every
    source; beside the lessons is one."""
    return [
        (source, solutions)
        for source in sources
        for solutions in ((False,) if is_beside(source) else (False, True))
    ]


def edition(source: Path, solutions: bool) -> str:
    """Return what a message calls the notebook of a source."""
    return source.stem + (" (solutions)" if solutions else "")


def colab_url(path: str) -> str:
    """Return the address that opens the notebook at `path` (relative to the repository root) in
    Colab."""
    return f"https://colab.research.google.com/github/{REPOSITORY}/blob/{TAG or 'main'}/{path}"


def badge(path: str) -> str:
    """Return the markdown of the Colab badge for the notebook at `path`, relative to the root."""
    return f"[![Open in Colab]({BADGE_IMAGE})]({colab_url(path)})"


def generate(source: Path, solutions: bool, workshop: bool = False) -> NotebookNode:
    """Return the notebook of a source, not executed: the student's, or with the solutions in place
    of the stubs. The student's has what checks and fills its text only with `workshop`.

    Its text still has the placeholders; a cell's metadata list them under "glue", where they stay
    when they are filled in.
    """
    dropped = "exercise" if solutions else "solution"
    notebook = nbformat.v4.new_notebook(metadata=NOTEBOOK_METADATA)
    for cell in read_cells(source):
        if dropped in tags(cell):
            continue
        cell.metadata.pop("lines_to_next_cell", None)  # jupytext's note on the layout of the source
        if "header" in tags(cell):
            cell.source = header(cell, source, solutions)
        if cell.cell_type == "markdown":
            cell.source = PAGE_LINK.sub(r"](../\1", cell.source) if solutions else cell.source
            if marks := [f"{name}:{spec}".rstrip(":") for name, spec in placeholders(cell.source)]:
                cell.metadata["glue"] = marks
        if "setup" in tags(cell):
            cell.source = SETUP
        if "claim" in tags(cell):
            cell.source = f"{CLAIMS_TITLE}\n{cell.source}"
        if {"setup", "claim", "folded"} & set(tags(cell)):  # hidden in Colab, in Jupyter
            cell.metadata |= {"cellView": "form", "jupyter": {"source_hidden": True}}
        cell.id = f"cell-{len(notebook.cells):03d}"
        notebook.cells.append(cell)
    if not (solutions or workshop):
        without_workshop(notebook)
    return notebook


def workshop_lines(code: str) -> set[int]:
    """Return the numbers of the lines, from 1, that serve the text alone: calls of `claims` and
    `glue` and their import."""

    def serves_the_text(node: ast.stmt) -> bool:
        if isinstance(node, ast.ImportFrom):
            return {name.name for name in node.names} <= WORKSHOP
        call = node.value if isinstance(node, ast.Expr) else None
        return isinstance(call, ast.Call) and getattr(call.func, "id", "") in WORKSHOP

    nodes = [node for node in ast.parse(code).body if serves_the_text(node)]
    return {line for node in nodes for line in range(node.lineno, node.end_lineno + 1)}


def without_workshop(notebook: NotebookNode) -> None:
    """Take out of a notebook what only its builders need: claims, `glue`, their import.

    The values that a cell glued stay in its outputs, which show nothing; those of a cell that goes
    join the outputs of the cell before.
    """
    kept = []
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.strip():
            lines, dropped = cell.source.split("\n"), workshop_lines(cell.source)
            left = [line for number, line in enumerate(lines, start=1) if number not in dropped]
            if "claim" in tags(cell) or dropped and not "".join(left).strip():
                earlier = next(cell for cell in reversed(kept) if cell.cell_type == "code")
                earlier.outputs += [
                    output for output in cell.outputs if MIME in output.get("metadata", {})
                ]
                continue
            cell.source = "\n".join(left).strip("\n") if dropped else cell.source
        kept.append(cell)
    notebook.cells = kept
    for count, cell in enumerate(code_cells(notebook), start=1):
        if cell.execution_count is not None:
            cell.execution_count = count


def without_answers(notebook: NotebookNode) -> None:
    """Take out of the cells tagged `answer` what they show, but for the bet and the values for the
    text: a reader bets before the answer can be seen."""
    for cell in code_cells(notebook):
        if "answer" in tags(cell):
            cell.outputs = [
                output for output in cell.outputs if {MIME, WEB} & output.get("metadata", {}).keys()
            ]


def header(cell: NotebookNode, source: Path, solutions: bool) -> str:
    """Return the text of a lesson's first cell: title, badge, the link to the solutions or back,
    what the source says, time."""
    first, _, rest = cell.source.partition("\n")
    doors = badge(notebook_path(source, solutions).relative_to(ROOT).as_posix())
    if not is_beside(source):
        doors += (
            f" · [The lesson](../{source.stem}.ipynb)"
            if solutions
            else f" · [Solutions](solutions/{source.stem}.ipynb)"
        )
    time = f"To work through: {effort(cell)}. " if effort(cell) else ""
    time += f"To run on a CPU: {minutes(source.stem)}."
    return "\n\n".join(filter(None, [first, doors, rest.strip(), f"*{time}*"]))


# Execution.


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells that a kernel runs."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def errors_in(holder: dict) -> list[dict]:
    """Return the errors among the outputs of a cell or of a widget's state."""
    return [output for output in holder.get("outputs", []) if output["output_type"] == "error"]


def widget_errors(notebook: NotebookNode) -> list[dict]:
    """Return the errors raised inside widgets, which end in the widget state and stop nothing."""
    models = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {}).values()
    return [error for model in models for error in errors_in(model.get("state", {}))]


def strip(notebook: NotebookNode) -> None:
    """Remove what differs from run to run or from machine to machine: metadata, and widgets' views,
    whose picture stays."""
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [
                output
                for output in cell.outputs
                if output.get("data", {}).pop(WIDGET_VIEW, None) is None
                or output.data.keys() - {"text/plain"}
            ]


def execute(
    notebook: NotebookNode,
    lesson: str,
    folder: Path,
    on_cell: Callable[[], object] = lambda: None,
    environment: dict[str, str] | None = None,
    allowed: Sequence[str] = (),
) -> None:
    """Run a notebook in a fresh kernel that starts in `folder`, in place; `on_cell` is called after
    each code cell.

    `environment` is the kernel's (default: this process's with KERNEL_SETTINGS); errors of the
    names `allowed` stop nothing. What another program has saved with the notebook is dropped first.
    Widget views and state are dropped afterwards: their ids are random, and each has a picture in
    the same bundle, which stays. Raise LessonError with the lesson, the cell and the error, errors
    inside widgets included.
    """
    strip(notebook)
    begun = []
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        startup_timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        allow_error_names=list(allowed),
        # A warning about plain TCP would break the progress bar.
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=lambda cell, cell_index: begun.append(cell_index),
        on_cell_executed=lambda **_: on_cell(),
    )
    # What the solutions keep does not go into the reader's own file.
    with tempfile.TemporaryDirectory() as kept:
        mine = {"DSPARK_MINE": os.path.join(kept, "my_dspark.py")}
        try:
            client.execute(env=(environment or {**os.environ, **KERNEL_SETTINGS}) | mine)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise LessonError(f"{lesson}, {failure(notebook, begun[-1], error)}") from error
        finally:
            failed = widget_errors(notebook)
            strip(notebook)
    if failed:
        message = f"{failed[0]['ename']}: {failed[0]['evalue'].splitlines()[0]}"
        raise LessonError(f"{lesson}, inside a widget: {message}")


def failure(notebook: NotebookNode, index: int, error: Exception) -> str:
    """Return "cell 7 (`first line`): ValueError: what it said" for the cell that an error
    stopped."""
    where = f"cell {index + 1} (`{notebook.cells[index].source.splitlines()[0]}`)"
    if isinstance(error, CellExecutionError):
        return f"{where}: " + f"{error.ename}: {error.evalue}".splitlines()[0]
    return (
        f"{where} {'took too long' if isinstance(error, CellTimeoutError) else 'ended its kernel'}."
    )


def execute_with_claims(
    notebook: NotebookNode, lesson: str, solutions: bool, on_cell: Callable[[], object]
) -> None:
    """Execute a notebook, trying all of its claims; a false one leaves an error in its cell's
    output and stops nothing."""
    which = {"DSPARK_BUILD": "solutions" if solutions else "lesson"}
    environment = os.environ | KERNEL_SETTINGS | which
    folder, false = ROOT / "notebooks", ("AssertionError",)
    execute(notebook, lesson, folder, on_cell, environment, allowed=false)
    for index, cell in enumerate(notebook.cells):
        for error in errors_in(cell):
            if "claim" not in tags(cell):
                where = f"cell {index + 1} (`{cell.source.splitlines()[0]}`)"
                raise LessonError(
                    f"{lesson}, {where}: {error.ename}: {error.evalue}".splitlines()[0]
                )
            error.traceback = []  # it has paths of this machine


def false_sentences(notebook: NotebookNode, lesson: str) -> list[str]:
    """Return a sentence for each claim that was false when the notebook was executed."""
    errors = [
        error for cell in notebook.cells if "claim" in tags(cell) for error in errors_in(cell)
    ]
    lines = [line for error in errors for line in error.evalue.splitlines()]
    return [f"{lesson}, no longer true: {line}" for line in lines]


def lighten(notebook: NotebookNode) -> None:
    """Give every picture that stands still a palette of 256 colours: a third of the bytes, and
    nobody sees the difference."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    for output in (output for output in outputs if PICTURE in output.get("data", {})):
        picture = Image.open(io.BytesIO(base64.b64decode(output.data[PICTURE])))
        if getattr(picture, "is_animated", False):
            continue
        palette = {"method": Image.Quantize.MEDIANCUT, "dither": Image.Dither.NONE}
        reduced = picture.convert("RGB").quantize(256, **palette)
        reduced.save(written := io.BytesIO(), "PNG", optimize=True)
        output.data[PICTURE] = base64.b64encode(written.getvalue()).decode()


# Commands.


def computation(cell: NotebookNode) -> str | list[str]:
    """Return what a code cell computes, in a form that comments, layout and imports do not change;
    the setup's is no lesson's own."""
    if "setup" in tags(cell):
        return "setup"
    imports = (ast.Import, ast.ImportFrom)
    return [ast.dump(node) for node in ast.parse(cell.source).body if not isinstance(node, imports)]


def with_outputs(notebook: NotebookNode, source: Path, solutions: bool) -> None:
    """Give a generated notebook the outputs of the committed one. Raise LessonError if a cell
    computes something else."""
    path, lesson = notebook_path(source, solutions), edition(source, solutions)
    only = source.stem if is_beside(source) else source.name[:2]
    again = f"`python -m tools.notebooks.build --only {only}`"
    if not path.exists():
        raise LessonError(f"{lesson} was never executed; {again} does it.")
    books = notebook, nbformat.read(path, as_version=4)
    columns = ([cell for cell in book.cells if cell.cell_type == "code"] for book in books)
    for number, (cell, before) in enumerate(zip_longest(*columns), start=1):
        if cell is None or before is None or computation(cell) != computation(before):
            raise LessonError(
                f"{lesson}: code cell {number} is not the one that ran; execute it, with {again}."
            )
        cell.outputs, cell.execution_count = before.outputs, before.execution_count


def write_notebook(path: Path, notebook: NotebookNode) -> None:
    """Write an executed notebook to keep in git. Raise LessonError if it is too large for that."""
    text = nbformat.writes(notebook).rstrip("\n") + "\n"
    size = len(text.encode())
    if size >= SIZE_LIMIT:
        raise LessonError(
            f"{path.relative_to(ROOT)} would have {size // 1000} KB; a committed notebook stays under "
            f"{SIZE_LIMIT // 1000} KB, so show fewer or smaller figures."
        )
    write_text(path, text)


def build(sources: list[Path]) -> list[str]:
    """Generate, execute, fill in and write both notebooks of every source, then whatever quotes
    them; show a progress bar.

    Return a sentence for each lesson that does not run, claim that is false, and value that is
    missing or not used.
    """
    if not sources:
        raise LessonError("There is no lesson in notebooks/src; a lesson is a file NN_name.py.")
    work = [(*which, generate(*which, workshop=True)) for which in both_editions(sources)]
    failures, built = [], []
    with tqdm(total=sum(len(code_cells(notebook)) for *_, notebook in work), unit="cell") as bar:
        for source, solutions, notebook in work:
            lesson = edition(source, solutions)
            bar.set_description(lesson)
            try:
                execute_with_claims(notebook, lesson, solutions, bar.update)
                failures += false_sentences(notebook, lesson)
                if not solutions:
                    without_workshop(notebook)
                    without_answers(notebook)
                lighten(notebook)
                fill_in(notebook, notebook, lesson, ROOT)  # `write_inputs` names what is missing
                write_notebook(notebook_path(source, solutions), notebook)
                built.append((source, solutions))
            except LessonError as error:
                failures.append(str(error))
    quoting = [source for source in chosen_sources() if quotes(source.read_text(encoding="utf-8"))]
    return [*dict.fromkeys(failures + write_inputs(dict.fromkeys(built + both_editions(quoting))))]


def write_inputs(editions: Iterable[tuple[Path, bool]]) -> list[str]:
    """Write the notebooks of (source, solutions) anew with the outputs that they have; return a
    sentence for each problem."""
    problems = []
    for source, solutions in editions:
        lesson, notebook = edition(source, solutions), generate(source, solutions)
        try:
            with_outputs(notebook, source, solutions)
            problems += fill_in(notebook, notebook, lesson, ROOT)
            problems += false_sentences(notebook, lesson)
            write_notebook(notebook_path(source, solutions), notebook)
        except LessonError as error:
            problems.append(str(error))
    return problems


def difference(committed: NotebookNode, notebook: NotebookNode) -> str | None:
    """Return how a committed notebook differs from the generated one, outputs aside; None if it
    does not."""
    if committed.metadata != notebook.metadata:
        return "the metadata differs"
    if len(committed.cells) != len(notebook.cells):
        return f"{len(committed.cells)} cells, the source gives {len(notebook.cells)}"
    for number, (ours, theirs) in enumerate(zip(committed.cells, notebook.cells), start=1):
        if ours.cell_type == theirs.cell_type and ours.source != theirs.source:
            where = first_difference(ours.source, theirs.source)
            return f"cell {number} differs from its source: {where}"
        if any(ours[name] != theirs[name] for name in ("id", "cell_type", "metadata")):
            return f"cell {number} differs from its source: its id, kind or metadata"
    return None


def first_difference(committed: str, expected: str) -> str:
    """Return the first line of a text that differs from the one expected, and that one."""
    pairs = zip_longest(committed.split("\n"), expected.split("\n"), fillvalue="nothing")
    ours, theirs = next((ours, theirs) for ours, theirs in pairs if ours != theirs)
    return f"`{ours}` should be `{theirs}`"


def check(sources: list[Path]) -> list[str]:
    """Return one sentence for everything in which the committed notebooks are not what their
    sources give."""
    problems = []
    for source, solutions in both_editions(sources):
        path, lesson = notebook_path(source, solutions), edition(source, solutions)
        if not path.exists():
            problems.append(f"{lesson} is missing in {path.parent.name}/")
            continue
        notebook, committed = generate(source, solutions), nbformat.read(path, as_version=4)
        problems += fill_in(notebook, committed, lesson, ROOT) + false_sentences(committed, lesson)
        if found := difference(committed, notebook):
            problems.append(f"{lesson}: {found}")
    wanted = {notebook_path(*which) for which in both_editions(chosen_sources())}
    present = {
        path
        for folder in ("", "solutions", MORE)
        for path in (ROOT / "notebooks" / folder).glob("*.ipynb")
    }
    return problems + [
        f"{path.parent.name}/{path.name} has no source in notebooks/src"
        for path in sorted(present - wanted)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    manner = parser.add_mutually_exclusive_group()
    help_text = "compare with the committed notebooks, execute nothing"
    manner.add_argument("--check", action="store_true", help=help_text)
    help_text = "keep the outputs; refused if a cell computes something else"
    manner.add_argument("--inputs-only", action="store_true", help=help_text)
    help_text = "one lesson, by its two digits, or the name of one beside them"
    parser.add_argument("--only", metavar="NN", help=help_text)
    options = parser.parse_args(arguments)
    try:
        sources = chosen_sources(options.only)
        if options.check:
            sentences = check(sources)
        elif options.inputs_only:
            sentences = write_inputs(both_editions(sources))
        else:
            sentences = build(sources)
    except LessonError as error:
        sentences = [str(error)]
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    if options.check and sentences:
        print("Run `make notebooks` and commit what it writes.", file=sys.stderr)
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
