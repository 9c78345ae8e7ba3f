"""The committed notebooks are what their sources give, executed; and the generator sees what is wrong."""

import base64
import io
import re

import nbformat
import numpy as np
import pytest
from PIL import Image

from tools.notebooks import build as notebooks

SOURCES = notebooks.lesson_sources()
COMMITTED = sorted(
    path
    for folder in ("notebooks", "notebooks/solutions", "notebooks/more")
    for path in (notebooks.ROOT / folder).glob("*.ipynb")
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


def source_in(folder, text=LESSON, name="07_a_title"):
    """Return a lesson source written into `folder`."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(text)
    return path


def code_cell(*given, **options):
    """Return a code cell."""
    return nbformat.v4.new_code_cell(*given, **options)


def executed(code, folder, **options):
    """Run a notebook of one cell, as lesson 07, in a folder; return it."""
    notebook = nbformat.v4.new_notebook(cells=[code_cell(code)])
    notebooks.execute(notebook, "07", folder, **options)
    return notebook


def names(path):
    """Return a readable parameter id."""
    return f"{path.parent.name}/{path.stem}"


def test_the_map_of_lesson_00_links_every_lesson_that_is_there_and_no_other():
    numbers = [source.name[:2] for source in SOURCES]
    assert numbers[0] == "00" and len(set(numbers)) == len(numbers)
    rows = re.findall(r"^# \| (\d\d) \| (.*) \|$", SOURCES[0].read_text(), re.M)
    linked = {number: re.search(r"\]\((.*?)\.ipynb\)", row) for number, row in rows}
    assert {number: link[1] for number, link in linked.items() if link} == {
        source.name[:2]: source.stem for source in SOURCES[1:]
    }
    assert [number for number, row in rows if row.endswith("you are here")] == ["00"]


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
def test_lesson_has_exercises_and_their_solutions(source):
    cells = notebooks.read_cells(source)
    stubs = [cell.source for cell in cells if "exercise" in notebooks.tags(cell)]
    solutions = [cell.source for cell in cells if "solution" in notebooks.tags(cell)]
    assert 2 <= len(stubs) <= 6
    assert all(stub != solution for stub, solution in zip(stubs, solutions, strict=True))


def test_generate_makes_student_and_solution_notebooks(tmp_path):
    source = source_in(tmp_path)
    student, solved = (notebooks.generate(source, solutions) for solutions in (False, True))
    assert [cell.source for cell in student.cells[2:]] == ["answer = None", "print(answer)"]
    assert [cell.source for cell in solved.cells[2:]] == ["answer = 42", "print(answer)"]
    assert notebooks.badge("notebooks/07_a_title.ipynb") in student.cells[0].source
    assert notebooks.badge("notebooks/solutions/07_a_title.ipynb") in solved.cells[0].source
    assert (
        "on a CPU: not measured yet" in student.cells[0].source
        and "work through" not in student.cells[0].source
    )
    assert student.cells[1].metadata["cellView"] == "form"
    assert student.cells[1].metadata["jupyter"] == {"source_hidden": True}
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
        (('["header"]', '["header"] minutes="40"'), "`minutes` is a whole number"),
        (('["header"]', '["header"] difficulty="simple"'), "one of easy, medium, hard"),
        (
            ("# %%\nprint", '# %% tags=["claim"]\nassert answer\nprint'),
            "cell 5: a cell tagged `claim` calls `claims",
        ),
    ],
)
def test_a_badly_tagged_source_is_named(tmp_path, change, sentence):
    source = source_in(tmp_path, LESSON.replace(*change))
    with pytest.raises(notebooks.LessonError, match="07_a_title.py.*" + sentence):
        notebooks.read_cells(source)


def test_the_header_states_a_persons_minutes(tmp_path):
    timed = source_in(
        tmp_path,
        LESSON.replace('tags=["header"]', 'tags=["header"] minutes=40 difficulty="medium"'),
    )
    assert (
        "To work through: 40 min (medium). To run on a CPU"
        in notebooks.generate(timed, solutions=False).cells[0].source
    )


def test_difference_sees_a_changed_cell_and_ignores_outputs(tmp_path):
    generated = notebooks.generate(source_in(tmp_path), solutions=False)
    committed = nbformat.from_dict(generated)
    committed.cells[-1].outputs = [nbformat.v4.new_output("stream", name="stdout", text="42")]
    assert notebooks.difference(committed, generated) is None
    committed.cells[-1].metadata["collapsed"] = True
    assert "cell 4 differs from its source: its id, kind or metadata" in notebooks.difference(
        committed, generated
    )
    generated.cells[-1].source += "\n# changed"
    assert (
        "cell 4 differs from its source: `nothing` should be `# changed`"
        in notebooks.difference(committed, generated)
    )


def test_a_notebook_too_large_to_commit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    large = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("x" * notebooks.SIZE_LIMIT)]
    )
    with pytest.raises(notebooks.LessonError, match="stays under 700 KB"):
        notebooks.write_notebook(tmp_path / "07_a_title.ipynb", large)
    assert not list(tmp_path.iterdir())


def saved_by_colab(notebook):
    """A copy of a notebook as Colab saves it after a run: its own metadata, widgets and outputs, one of them an error."""
    saved = nbformat.from_dict(notebook)
    state = {
        "model_module": "@jupyter-widgets/output",
        "model_name": "OutputModel",
        "model_module_version": "1.0.0",
        "state": {
            "outputs": [
                nbformat.v4.new_output(
                    "error", ename="ValueError", evalue="of an earlier run", traceback=[]
                )
            ]
        },
    }
    saved.metadata |= {
        "widgets": {notebooks.WIDGET_STATE: {"a1": state}},
        "language_info": {"name": "python", "version": "3.13.5"},
        "kernelspec": {"name": "conda-env-colab-py", "display_name": "Python 3 (colab)"},
        "colab": {"provenance": [], "gpuType": "T4", "collapsed_sections": ["x"]},
    }
    for number, cell in enumerate(saved.cells):
        cell.id = f"colab{number}"
        cell.metadata |= {
            "id": cell.id,
            "colab": {"base_uri": "https://localhost:8080/", "height": 17},
            "outputId": "f3",
        }
        if cell.cell_type == "code":
            cell.metadata["executionInfo"] = {
                "status": "ok",
                "elapsed": 5,
                "user": {"displayName": "", "userId": ""},
            }
            view = {
                notebooks.WIDGET_VIEW: {"model_id": "a1", "version_major": 2, "version_minor": 0}
            }
            cell.execution_count = 40 + number
            cell.outputs = [nbformat.v4.new_output("display_data", view)]
    return saved


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with one lesson, and nothing of the real one; returns the paths of its two notebooks."""
    for folder in ("notebooks/src", "dspark_lite"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "dspark_lite" / "__init__.py").touch()
    source = source_in(tmp_path / "notebooks" / "src")
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "SOURCES", source.parent)
    return [notebooks.notebook_path(source, solutions) for solutions in (False, True)]


@pytest.mark.slow(reason="executes four notebooks")
def test_notebooks_saved_by_colab_are_seen_and_built_anew(clone):
    assert notebooks.main([]) == 0
    built = [path.read_bytes() for path in clone]
    for path in clone:
        nbformat.write(saved_by_colab(nbformat.read(path, as_version=4)), path)
    sentences = notebooks.check(notebooks.lesson_sources())
    assert sentences == [
        "07_a_title: the metadata differs",
        "07_a_title (solutions): the metadata differs",
    ]
    assert notebooks.main(["--check"]) == 1
    assert notebooks.main([]) == 0
    assert notebooks.main(["--check"]) == 0 and [path.read_bytes() for path in clone] == built


BESIDE = LESSON.replace(
    '# %% tags=["exercise"]\nanswer = None\n\n# %% tags=["solution"]\n', "# %%\n"
).replace("# # 07 A title", "# # A second look")


def test_what_stands_beside_the_lessons_has_one_edition(clone, capsys):
    source = source_in(notebooks.SOURCES / "more", BESIDE, "a_second_look")
    assert notebooks.main(["--only", "a_second_look"]) == 0
    (built,) = notebooks.ROOT.glob("notebooks/more/*.ipynb")
    assert not any(path.exists() for path in clone) and notebooks.both_editions([source]) == [
        (source, False)
    ]
    assert notebooks.chosen_sources() == [*notebooks.lesson_sources(), source]
    notebook = nbformat.read(built, as_version=4)
    assert (
        notebook.cells[-1].outputs[0].text == "42\n" and "Solutions" not in notebook.cells[0].source
    )
    assert "blob/main/notebooks/more/a_second_look.ipynb" in notebook.cells[0].source
    assert notebooks.check([source]) == []
    source.write_text(LESSON)
    capsys.readouterr()
    assert (
        notebooks.main(["--only", "a_second_look"]) == 1
        and "has one edition" in capsys.readouterr().err
    ), "it has an exercise"
    source.unlink()
    assert "more/a_second_look.ipynb has no source in notebooks/src" in notebooks.check(
        notebooks.chosen_sources()
    )


def test_a_solution_links_what_stands_beside_the_lessons_from_one_folder_above(clone):
    source = notebooks.lesson_sources()[0]
    source.write_text(
        LESSON.replace("What you will learn.", "See [more](more/a_second_look.ipynb).")
    )
    links = [notebooks.generate(source, solutions).cells[0].source for solutions in (False, True)]
    assert (
        "](more/a_second_look.ipynb)" in links[0] and "](../more/a_second_look.ipynb)" in links[1]
    )


def test_a_notebook_saved_by_colab_runs_as_it_is(clone):
    """`make run` executes what lies there, and what its last run left is no error of this one."""
    notebook = saved_by_colab(notebooks.generate(notebooks.lesson_sources()[0], solutions=True))
    notebooks.execute(notebook, "07", clone[0].parent)
    assert [cell.outputs for cell in notebooks.code_cells(notebook)][-1] == [
        nbformat.v4.new_output("stream", text="42\n")
    ]
    assert notebook.metadata == notebooks.NOTEBOOK_METADATA


def test_what_a_solution_keeps_is_not_in_the_readers_file(tmp_path, monkeypatch):
    """The reader's file stands beside the notebook, where the build, `make run` and the tests execute it, too."""
    monkeypatch.delenv("DSPARK_MINE", raising=False)
    (tmp_path / "my_dspark.py").write_text("mine")
    code = "import os\nfrom pathlib import Path\nPath(os.environ.get('DSPARK_MINE', 'my_dspark.py')).write_text('the solution')"
    executed(code, tmp_path, environment=notebooks.KERNEL_SETTINGS)
    assert (tmp_path / "my_dspark.py").read_text() == "mine"


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
        pytest.param(
            "import os\nos._exit(1)",
            "07, cell 1 .`import os`. ended its kernel",
            marks=pytest.mark.slow(reason="waits until a kernel is taken for dead"),
        ),
    ],
)
def test_execute_names_lesson_cell_and_error(tmp_path, code, sentence):
    with pytest.raises(notebooks.LessonError, match=sentence):
        executed(code, tmp_path)


def test_execute_drops_widget_views_and_keeps_the_rest(tmp_path):
    code = """import ipywidgets
view = ipywidgets.IntSlider()
display(view)
print("kept")
bundle = {"application/vnd.jupyter.widget-view+json": {"model_id": view.model_id}, "image/png": "", "text/plain": "a caption"}
display(bundle, raw=True)"""
    notebook = executed(code, tmp_path)
    stream, shown = notebook.cells[0].outputs
    assert stream.text == "kept\n" and shown.data == {"image/png": "", "text/plain": "a caption"}
    assert notebook.metadata == notebooks.NOTEBOOK_METADATA


def test_pictures_of_a_built_notebook_have_a_palette_and_one_that_moves_keeps_moving():
    """A drawing of two hundred shades keeps its size and its colours, in fewer bytes."""
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("white", "black")]
    frames[0].save(moving := io.BytesIO(), "GIF", save_all=True, append_images=frames[1:])
    shades = np.random.default_rng(0).integers(200, size=(100, 100), dtype=np.uint8)
    drawn = Image.fromarray(np.stack([shades, shades // 2, shades // 3], -1))
    drawn.save(still := io.BytesIO(), "PNG")
    pictures = [base64.b64encode(file.getvalue()).decode() for file in (moving, still)]
    outputs = [
        nbformat.v4.new_output("display_data", {"image/png": picture, "text/plain": "drawn"})
        for picture in pictures
    ]
    cell = code_cell("x", outputs=outputs)
    notebooks.lighten(nbformat.v4.new_notebook(cells=[cell]))
    kept, found = (output.data for output in cell.outputs)
    light = Image.open(io.BytesIO(base64.b64decode(found["image/png"])))
    assert (
        light.mode == "P"
        and light.size == drawn.size
        and len(found["image/png"]) < len(pictures[1])
        and found["text/plain"] == "drawn"
    )
    assert np.array_equal(light.convert("RGB"), drawn) and kept["image/png"] == pictures[0]
