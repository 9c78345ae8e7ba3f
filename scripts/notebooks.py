"""Generate the notebooks from their py:percent sources, execute them and keep the outputs.

`python scripts/notebooks.py build` writes notebooks/NN_name.ipynb and notebooks/solutions/NN_name.ipynb for every
notebooks/src/NN_name.py; `--check` compares the committed notebooks with their sources and executes nothing.
"""

import argparse
import base64
import io
import json
import math
import os
import re
import sys

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from PIL import Image
from tqdm import tqdm

from dspark_lite.common.about import REPOSITORY
from dspark_lite.common.files import ROOT, write_text

SOURCES = ROOT / "notebooks" / "src"
MEASURED = ROOT / "assets" / "measurements" / "lessons.json"
PREDICTED = MEASURED.with_name("lessons_t4_predicted.json")
PREDICTED_T4 = "t4, predicted"
COLUMNS = {"cpu": "CPU", "t4": "T4", PREDICTED_T4: "T4, predicted"}  # what a device's times are headed
SIZE_LIMIT = 700_000  # bytes a committed notebook stays under, so that GitHub shows it
CELL_SECONDS = 900  # far more than any cell takes, so that a busy machine ends none
BADGE_IMAGE = "https://colab.research.google.com/assets/colab-badge.svg"
PICTURE = "image/png"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"

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


def repository_url() -> str:
    """Return the address that `git clone` takes."""
    return f"https://github.com/{REPOSITORY}"


def colab_url(path: str) -> str:
    """Return the address that opens the notebook at `path` (relative to the repository root) in Colab."""
    return f"https://colab.research.google.com/github/{REPOSITORY}/blob/main/{path}"


CLONE = REPOSITORY.split("/")[1]
SETUP = f'''#@title Find the course: clones it on Colab, looks upwards from here elsewhere
import os
import subprocess
import sys
from pathlib import Path


def course_folder():
    """Return the folder that holds dspark_lite/, here or above; None if there is none."""
    folders = (Path.cwd(), *Path.cwd().parents)
    return next((folder for folder in folders if (folder / "dspark_lite" / "__init__.py").is_file()), None)


if course_folder() is None and "google.colab" in sys.modules:
    if not Path("{CLONE}").is_dir():
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", "{repository_url()}"], check=True)
    os.chdir(Path("{CLONE}") / "notebooks")
if course_folder() is None:
    raise FileNotFoundError("This notebook must be opened inside a clone of {repository_url()}")
if str(course_folder()) not in sys.path:
    sys.path.insert(0, str(course_folder()))'''


class LessonError(Exception):
    """A lesson that cannot be built or does not run; the message is one sentence for the command line."""


def lesson_sources(only=None):
    """Return the source paths in lesson order; `only` is a lesson's two digits or None for all."""
    sources = sorted(SOURCES.glob("[0-9][0-9]_*.py"))
    if only is None:
        return sources
    chosen = [source for source in sources if source.name[:2] == only]
    if not chosen:
        raise LessonError(
            f"No lesson {only} in notebooks/src; there are {', '.join(s.name[:2] for s in sources) or 'none'}."
        )
    return chosen


def tags(cell):
    """Return a cell's tags."""
    return cell.metadata.get("tags", [])


def read_cells(source):
    """Return a source's cells, checked: one header (first), one setup, every exercise followed by its solution."""
    cells = jupytext.read(source, fmt="py:percent").cells
    kinds = [next((t for t in tags(c) if t in ("header", "setup", "exercise", "solution")), "") for c in cells]
    if kinds.count("header") != 1 or kinds[0] != "header" or cells[0].cell_type != "markdown":
        raise LessonError(f"{source.name}: the first cell, and no other, must be markdown tagged `header`.")
    if not cells[0].source.startswith("# "):
        raise LessonError(f"{source.name}: the header must begin with the title as a `# ` line.")
    if kinds.count("setup") != 1:
        raise LessonError(f"{source.name}: exactly one cell must be tagged `setup`, found {kinds.count('setup')}.")
    for number, (kind, before, after) in enumerate(zip(kinds, ["", *kinds], [*kinds[1:], ""], strict=False), start=1):
        if kind == "exercise" and after != "solution":
            raise LessonError(f"{source.name}, cell {number}: the exercise must be followed by its `solution` cell.")
        if kind == "solution" and before != "exercise":
            raise LessonError(f"{source.name}, cell {number}: the solution must follow its `exercise` cell.")
    return cells


def title(source):
    """Return the lesson's title, without a leading number."""
    first_line = read_cells(source)[0].source.splitlines()[0]
    return re.sub(r"^# (Lesson )?(\d+\W+)?", "", first_line).strip()


def badge(path):
    """Return the markdown of the Colab badge for the notebook at `path`, relative to the root."""
    return f"[![Open in Colab]({BADGE_IMAGE})]({colab_url(path)})"


def measured_times():
    """Return what scripts/run_course.py recorded by device; empty where nothing was."""
    return json.loads(MEASURED.read_text()) if MEASURED.exists() else {}


def known_times():
    """Return the measured times by device, and those that scripts/predict_t4.py predicted for a T4."""
    return {**measured_times(), **({PREDICTED_T4: json.loads(PREDICTED.read_text())} if PREDICTED.exists() else {})}


def timed_devices():
    """Return the devices of COLUMNS whose times a reader is shown: the CPU, and a T4, predicted until the lessons were timed on one."""
    return ["cpu", *[device for device in ("t4", PREDICTED_T4) if device in known_times()][:1]]


def minutes(lesson, device):
    """Return the time of a lesson in words; `device` is one of `timed_devices()`."""
    seconds = known_times().get(device, {}).get("seconds", {}).get(lesson)
    if seconds is None:
        return "not predicted" if device == PREDICTED_T4 else "not measured yet"
    return "under 1 min" if seconds < 60 else f"{math.ceil(seconds / 60)} min"


def time_line(lesson):
    """Return the markdown of a lesson's times, a prediction said to be one."""
    times = []
    for device in timed_devices():
        said = minutes(lesson, device)
        note = " (predicted, without download)" if device == PREDICTED_T4 and said.endswith("min") else ""
        times.append(f"{COLUMNS[device].partition(',')[0]} {said}{note}")
    return f"*Time: {', '.join(times)}.*"


PAGE_LINK = re.compile(r"\]\((\w+\.md)")


def relative_links(text, solutions):
    """Return markdown whose links to the pages beside the lessons hold in the solutions' folder, too."""
    return PAGE_LINK.sub(r"](../\1", text) if solutions else text


def companion(source, solutions):
    """Return the markdown of the link from a lesson to its solutions, or back."""
    return f"[The lesson](../{source.stem}.ipynb)" if solutions else f"[Solutions](solutions/{source.stem}.ipynb)"


def notebook_path(source, solutions):
    """Return where the notebook of a source is kept."""
    folder = ROOT / "notebooks" / ("solutions" if solutions else "")
    return folder / f"{source.stem}.ipynb"


def generate(source, solutions):
    """Return the notebook of a source, not executed: the student's, or with the solutions in place of the stubs."""
    dropped = "exercise" if solutions else "solution"
    notebook = nbformat.v4.new_notebook(metadata=NOTEBOOK_METADATA)
    for cell in read_cells(source):
        if dropped in tags(cell):
            continue
        if "header" in tags(cell):
            path = f"notebooks/{'solutions/' if solutions else ''}{source.stem}.ipynb"
            first, _, rest = cell.source.partition("\n")
            badges = f"{badge(path)} · {companion(source, solutions)}"
            cell.source = "\n\n".join(filter(None, [first, badges, rest.strip(), time_line(source.stem)]))
        if cell.cell_type == "markdown":
            cell.source = relative_links(cell.source, solutions)
        if "setup" in tags(cell):
            cell.source = SETUP
            cell.metadata["cellView"] = "form"
        cell.metadata.pop("lines_to_next_cell", None)  # jupytext's note on the layout of the source
        cell.id = f"cell-{len(notebook.cells):03d}"
        notebook.cells.append(cell)
    return notebook


def code_cells(notebook):
    """Return the cells that a kernel runs."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def widget_errors(notebook):
    """Return the errors raised inside widgets, which end in the widget state and stop nothing."""
    models = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {}).values()
    outputs = [output for model in models for output in model.get("state", {}).get("outputs", [])]
    return [output for output in outputs if output["output_type"] == "error"]


def describe_failure(notebook, error):
    """Return "cell 7 (`first line`): ValueError: what it said" for the cell that stopped the run."""
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                message = f"{output.ename}: {output.evalue}".splitlines()[0]
                return f"cell {number} (`{cell.source.splitlines()[0]}`): {message}"
    done = [n for n, cell in enumerate(notebook.cells, start=1) if cell.get("execution_count")]
    kind = "took too long" if isinstance(error, CellTimeoutError) else "ended its kernel"
    return f"cell {done[-1] if done else 1} or the one after it {kind}."


def execute(notebook, lesson, folder, on_cell=lambda: None, environment=None):
    """Run a notebook in a fresh kernel that starts in `folder`, in place; `on_cell` is called after each code cell.

    `environment` is the kernel's (default: this process's with KERNEL_SETTINGS). What another program has
    saved with the notebook, such as the widgets of its last run, is dropped first. Widget views and state are dropped
    afterwards: their ids are random, and each has a picture in the same bundle, which stays.
    Raises LessonError with the lesson, the cell and the error, errors inside widgets included.
    """
    strip(notebook)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],  # a warning about plain TCP would break the progress bar
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
        on_cell_executed=lambda **_: on_cell(),
    )
    try:
        client.execute(env=environment or {**os.environ, **KERNEL_SETTINGS})
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise LessonError(f"{lesson}, {describe_failure(notebook, error)}") from error
    finally:
        failed = widget_errors(notebook)
        strip(notebook)
    if failed:
        raise LessonError(f"{lesson}, inside a widget: {failed[0]['ename']}: {failed[0]['evalue'].splitlines()[0]}")


def strip(notebook):
    """Remove what differs from run to run or from machine to machine."""
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [without_view(output) for output in cell.outputs if not is_view(output)]


def is_view(output):
    """Return whether an output is a widget's view and nothing that can be shown without a kernel."""
    data = output.get("data", {})
    return WIDGET_VIEW in data and not data.keys() - {WIDGET_VIEW, "text/plain"}


def without_view(output):
    """Return an output whose bundle has lost its widget's view."""
    output.get("data", {}).pop(WIDGET_VIEW, None)
    return output


def lighten(notebook):
    """Give every picture a palette of 256 colours: a third of the bytes, and nobody sees the difference."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if PICTURE in output.get("data", {}):
                output.data[PICTURE] = with_palette(output.data[PICTURE])


def with_palette(png):
    """Return a PNG, in base64, with a palette of its own 256 colours."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    reduced = picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    reduced.save(written := io.BytesIO(), "PNG", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


def write_notebook(path, notebook):
    """Write an executed notebook to keep in git; raises LessonError when it is too large for that."""
    text = nbformat.writes(notebook).rstrip("\n") + "\n"
    size = len(text.encode())
    if size >= SIZE_LIMIT:
        raise LessonError(
            f"{path.relative_to(ROOT)} would have {size // 1000} KB; a committed notebook stays under "
            f"{SIZE_LIMIT // 1000} KB, so show fewer or smaller figures."
        )
    write_text(path, text)


def difference(path, notebook):
    """Return how the file at `path` differs from the generated `notebook`, outputs aside; None if it does not."""
    if not path.exists():
        return f"{path.name} is missing in {path.parent.name}/"
    committed = nbformat.read(path, as_version=4)
    if committed.metadata != notebook.metadata:
        return f"{path.parent.name}/{path.name}: the metadata differs"
    if len(committed.cells) != len(notebook.cells):
        return f"{path.parent.name}/{path.name}: {len(committed.cells)} cells, the source gives {len(notebook.cells)}"
    for number, pair in enumerate(zip(committed.cells, notebook.cells, strict=True), start=1):
        ours, theirs = ([cell.id, cell.cell_type, cell.source, cell.metadata] for cell in pair)
        if ours != theirs:
            return f"{path.parent.name}/{path.name}: cell {number} differs from its source"
    return None


def check(sources):
    """Return one sentence for every committed notebook that is not what its source gives, or has no source."""
    expected = {
        notebook_path(source, solutions): (source, solutions) for source in sources for solutions in (False, True)
    }
    found = [difference(path, generate(source, solutions)) for path, (source, solutions) in expected.items()]
    known = {notebook_path(source, solutions) for source in lesson_sources() for solutions in (False, True)}
    present = {*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "notebooks" / "solutions").glob("*.ipynb")}
    orphans = [f"{path.parent.name}/{path.name} has no source in notebooks/src" for path in sorted(present - known)]
    return [sentence for sentence in found if sentence] + orphans


def build(sources):
    """Generate, execute and write both notebooks of every source, with a progress bar over the code cells."""
    if not sources:
        raise LessonError("There is no lesson in notebooks/src; a lesson is a file NN_name.py.")
    work = [(source, solutions, generate(source, solutions)) for source in sources for solutions in (False, True)]
    with tqdm(total=sum(len(code_cells(notebook)) for *_, notebook in work), unit="cell") as bar:
        for source, solutions, notebook in work:
            lesson = source.stem + (" (solutions)" if solutions else "")
            bar.set_description(lesson)
            execute(notebook, lesson, ROOT / "notebooks", on_cell=bar.update)
            lighten(notebook)
            write_notebook(notebook_path(source, solutions), notebook)


def main(arguments=None):
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["build"])
    parser.add_argument("--check", action="store_true", help="compare with the committed notebooks, execute nothing")
    parser.add_argument("--only", metavar="NN", help="one lesson, by its two digits")
    options = parser.parse_args(arguments)
    try:
        sources = lesson_sources(options.only)
        if not options.check:
            build(sources)
            return 0
        sentences = check(sources)
    except LessonError as error:
        sentences = [str(error)]
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    if options.check and sentences:
        print("Run `make notebooks` and commit what it writes.", file=sys.stderr)
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
