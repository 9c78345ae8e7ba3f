"""The committed notebooks are what their sources give, executed; and the generator sees what is wrong."""

import os
import re
import subprocess
import sys

import nbformat
import notebooks
import pytest

SOURCES = notebooks.lesson_sources()
COMMITTED = sorted(
    [*(notebooks.ROOT / "notebooks").glob("*.ipynb"), *(notebooks.ROOT / "notebooks/solutions").glob("*.ipynb")]
)

LESSON = """# %% [markdown] tags=["header"]
# # 07 A title
#
# What you will learn.

# %% tags=["setup"]
pass

# %% tags=["exercise"]
answer = None

# %% tags=["solution"]
answer = 42

# %%
print(answer)
"""


def source_in(folder, text=LESSON):
    """Return a lesson source written into `folder`."""
    path = folder / "07_a_title.py"
    path.write_text(text)
    return path


def names(path):
    """Return a readable parameter id."""
    return f"{path.parent.name}/{path.stem}"


def test_the_map_of_lesson_00_links_every_lesson_that_is_there_and_no_other():
    numbers = [source.name[:2] for source in SOURCES]
    assert numbers[0] == "00" and len(set(numbers)) == len(numbers)
    rows = re.findall(r"^# \| (\d\d) \| (.*) \|$", SOURCES[0].read_text(), re.M)
    linked = {number: re.search(r"\]\((.*?)\.ipynb\)", row) for number, row in rows}
    assert {number: link[1] for number, link in linked.items() if link} == {source.name[:2]: source.stem for source in SOURCES[1:]}
    assert all(row.endswith("| ready" if linked[number] else ("| you are here", "| planned")) for number, row in rows)


@pytest.mark.parametrize("source", SOURCES, ids=names)
def test_generated_equals_committed(source):
    assert notebooks.check([source]) == []


@pytest.mark.parametrize("path", COMMITTED, ids=names)
def test_committed_is_executed_in_order_without_error_and_small(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in notebooks.code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in notebooks.code_cells(notebook) for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert "widgets" not in notebook.metadata
    assert path.stat().st_size < notebooks.SIZE_LIMIT


@pytest.mark.parametrize("source", SOURCES, ids=names)
def test_lesson_has_two_to_four_exercises_and_their_solutions(source):
    cells = notebooks.read_cells(source)
    stubs = [cell.source for cell in cells if "exercise" in notebooks.tags(cell)]
    solutions = [cell.source for cell in cells if "solution" in notebooks.tags(cell)]
    assert 2 <= len(stubs) <= 4
    assert all(stub != solution for stub, solution in zip(stubs, solutions, strict=True))


def test_generate_makes_student_and_solution_notebooks(tmp_path):
    source = source_in(tmp_path)
    student, solved = (notebooks.generate(source, solutions) for solutions in (False, True))
    assert [cell.source for cell in student.cells[2:]] == ["answer = None", "print(answer)"]
    assert [cell.source for cell in solved.cells[2:]] == ["answer = 42", "print(answer)"]
    assert notebooks.badge("notebooks/07_a_title.ipynb") in student.cells[0].source
    assert notebooks.badge("notebooks/solutions/07_a_title.ipynb") in solved.cells[0].source
    assert "CPU not measured yet" in student.cells[0].source
    assert student.cells[1].metadata["cellView"] == "form"
    assert notebooks.title(source) == "A title"
    assert nbformat.writes(student) == nbformat.writes(notebooks.generate(source, False))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('tags=["header"]', ""), "tagged `header`"),
        (("# # 07 A title", "# no title"), "`# ` line"),
        (('tags=["setup"]', ""), "exactly one cell must be tagged `setup`"),
        (('# %% tags=["solution"]', "# %%"), "followed by its `solution`"),
        (('# %% tags=["exercise"]', "# %%"), "must follow its `exercise`"),
    ],
)
def test_a_badly_tagged_source_is_named(tmp_path, change, sentence):
    source = source_in(tmp_path, LESSON.replace(*change))
    with pytest.raises(notebooks.LessonError, match="07_a_title.py.*" + sentence):
        notebooks.read_cells(source)


def test_difference_sees_a_changed_cell_and_ignores_outputs(tmp_path):
    generated = notebooks.generate(source_in(tmp_path), solutions=False)
    path = tmp_path / "07_a_title.ipynb"
    assert "missing" in notebooks.difference(path, generated)
    committed = nbformat.from_dict(generated)
    committed.cells[-1].outputs = [nbformat.v4.new_output("stream", name="stdout", text="42")]
    nbformat.write(committed, path)
    assert notebooks.difference(path, generated) is None
    generated.cells[-1].source += "\n# changed"
    assert "cell 4" in notebooks.difference(path, generated)


def test_a_notebook_too_large_to_commit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    large = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("x" * notebooks.SIZE_LIMIT)])
    with pytest.raises(notebooks.LessonError, match="stays under 700 KB"):
        notebooks.write_notebook(tmp_path / "07_a_title.ipynb", large)
    assert not list(tmp_path.iterdir())


WIDGET_ERROR = """import ipywidgets
out = ipywidgets.Output()
display(out)
with out:
    raise ValueError("inside")"""


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("x = 1\nraise ValueError('outside')", r"07, cell 1 \(`x = 1`\): ValueError: outside"),
        (WIDGET_ERROR, "07, inside a widget: ValueError: inside"),
        ("import os\nos._exit(1)", "07, cell 1 or the one after it ended its kernel"),
    ],
)
def test_execute_names_lesson_cell_and_error(tmp_path, code, sentence):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    with pytest.raises(notebooks.LessonError, match=sentence):
        notebooks.execute(notebook, "07", tmp_path)


def test_execute_drops_widget_views_and_keeps_the_rest(tmp_path):
    code = "import ipywidgets\ndisplay(ipywidgets.IntSlider())\nprint('kept')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    notebooks.execute(notebook, "07", tmp_path)
    assert [output.output_type for output in notebook.cells[0].outputs] == ["stream"]
    assert notebook.metadata == notebooks.NOTEBOOK_METADATA


def run_setup_cell(folder, before="", **environment):
    """Run the generated setup cell in a fresh interpreter that starts in `folder`; returns the finished process."""
    code = f"{before}\n{notebooks.SETUP}\nprint(Path.cwd().name, sys.path[0])"
    environment = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)


def test_setup_cell_finds_the_clone_from_any_folder_inside():
    finished = run_setup_cell(notebooks.ROOT / "notebooks" / "src")
    assert finished.stdout.split() == ["src", str(notebooks.ROOT)], finished.stderr


def test_setup_cell_says_what_is_missing_outside_a_clone(tmp_path):
    finished = run_setup_cell(tmp_path)
    assert finished.returncode != 0
    assert f"inside a clone of {notebooks.repository_url()}" in finished.stderr


def test_setup_cell_clones_on_colab(tmp_path):
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    name = notebooks.CLONE
    git.write_text(
        f"#!/bin/sh\necho called >&2\nmkdir -p {name}/dspark_lite {name}/notebooks\ntouch {name}/dspark_lite/about.py\n"
    )
    git.chmod(0o755)
    colab = "import sys; sys.modules['google.colab'] = sys"
    content = tmp_path / "content"
    content.mkdir()
    for _ in range(2):  # the second run is a restarted kernel: nothing is cloned again
        finished = run_setup_cell(content, before=colab, PATH=f"{git.parent}:{os.environ['PATH']}")
        assert finished.stdout.split() == ["notebooks", str(content / name)], finished.stderr
    assert finished.stderr == ""
