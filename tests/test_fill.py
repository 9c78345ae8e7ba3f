"""Numbers in prose: a cell names a value, the build writes it into the text, `--check` compares; claims are tried together."""

import json
import os

import nbformat
import numpy as np
import pytest
import torch

from dspark_lite.course.lesson_text import MIME, claims, glue
from dspark_lite.course.replication.canonical import canonical_values
from tools.notebooks import build as notebooks, fill

HEADER = """# %% [markdown] tags=["header"]
# # {title}

# %% tags=["setup"]
pass

"""
# A drafter's checkpoint is a file; the lesson measures it, says what it found, and claims something.
LESSON = (
    HEADER.format(title="05 Measured")
    + """# %% [markdown]
# DSpark commits ⟦tau:.2f⟧ tokens, $\\frac{{x}}{2}$ of which ⟦drafts:words⟧ are drafts, ⟦gain:+.1 %⟧.

# %%
import json

from dspark_lite.course.lesson_text import claims, glue

found = json.load(open("drafter.json"))
print(found)
glue(tau=found["tau"], drafts=found["drafts"], gain=found["tau"] / 4 - 1)

# %% tags=["claim"]
claims({"DSpark commits more than four tokens": found["tau"] > 4, "the drafts are few": found["drafts"] < 7})

# %% tags=["claim"]
claims({"it drafts": found["drafts"] > 0})

# %% [markdown]
# And once more ⟦tau:.0f⟧.
"""
)
QUOTING = (
    HEADER.format(title="03 Quoting")
    + """# %% [markdown]
# Lesson 05 will find ⟦05.tau:.1f⟧; measured were ⟦canon.tau_dspark:.1f⟧.
"""
)
MEASURED = {"canon": {"tau_dspark": 5.72}}


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A repository of two lessons and a drafter; returns its folder."""
    (tmp_path / "notebooks/src").mkdir(parents=True)
    (tmp_path / "dspark_lite").symlink_to(notebooks.ROOT / "dspark_lite")
    (tmp_path / "notebooks/src/03_quoting.py").write_text(QUOTING)
    (tmp_path / "notebooks/src/05_measured.py").write_text(LESSON)
    (tmp_path / "notebooks/drafter.json").write_text(json.dumps({"tau": 4.375, "drafts": 5}))
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "SOURCES", tmp_path / "notebooks/src")
    monkeypatch.setattr(fill, "canonical_values", lambda: MEASURED["canon"])
    return tmp_path


def prose(course, name="05_measured"):
    """The markdown of a built notebook below its header."""
    return [
        cell.source
        for cell in nbformat.read(course / f"notebooks/{name}.ipynb", as_version=4).cells[1:]
        if cell.cell_type == "markdown"
    ]


def shown_to(notebook):
    """All code of a notebook."""
    return "\n".join(cell.source for cell in notebooks.code_cells(notebook))


def rewrite(path, before, after):
    """Edit a file by hand."""
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), encoding="utf-8")


def said_by(capsys, *options):
    """Run the command; returns its exit code and what it wrote to stderr, the progress bar left out."""
    code = notebooks.main([*options])
    return code, [
        line
        for line in capsys.readouterr().err.splitlines()
        if "cell/s" not in line and "%|" not in line and line
    ]


# What one build does


@pytest.mark.slow(reason="executes notebooks")
def test_numbers_are_filled_in_and_a_hand_that_edits_one_is_seen(course, capsys):
    assert said_by(capsys) == (0, [])
    assert prose(course) == [
        "DSpark commits 4.38 tokens, $\\frac{{x}}{2}$ of which five are drafts, +9.4 %.",
        "And once more 4.",
    ]
    assert prose(course, "solutions/05_measured") == prose(course)
    assert prose(course, "03_quoting") == ["Lesson 05 will find 4.4; measured were 5.7."], (
        "of a lesson that was built later"
    )
    assert said_by(capsys, "--check") == (0, [])

    built = nbformat.read(course / "notebooks/05_measured.ipynb", as_version=4)
    nbformat.validate(built)
    assert built.cells[2].metadata["glue"] == ["tau:.2f", "drafts:words", "gain:+.1 %"]
    shown, note = built.cells[3].outputs
    assert (
        shown.output_type == "stream"
        and note.data == {}
        and note.metadata == {MIME: {"tau": 4.375, "drafts": 5, "gain": 0.09375}}
    )
    assert [cell.cell_type for cell in built.cells[4:]] == ["markdown"]
    assert built.cells[3].source.endswith("print(found)") and "lesson_text" not in shown_to(built)
    solved = nbformat.read(course / "notebooks/solutions/05_measured.ipynb", as_version=4)
    claim = solved.cells[4]
    assert "glue(tau" in solved.cells[3].source and (
        claim.source.startswith("#@title ")
        and claim.outputs == []
        and claim.metadata
        == {"tags": ["claim"], "cellView": "form", "jupyter": {"source_hidden": True}}
    )

    rewrite(course / "notebooks/05_measured.ipynb", "commits 4.38 tokens", "commits 4.83 tokens")
    code, sentences = said_by(capsys, "--check")
    assert code == 1 and len(sentences) == 2
    assert (
        sentences[0].startswith("05_measured: cell 3 differs")
        and "4.83" in sentences[0]
        and "4.38" in sentences[0]
    )


@pytest.mark.slow(reason="executes notebooks")
def test_another_checkpoint_gives_new_numbers_and_the_sentences_that_became_false(course, capsys):
    assert said_by(capsys) == (0, [])
    (course / "notebooks/drafter.json").write_text(json.dumps({"tau": 3.0, "drafts": 13}))
    code, sentences = said_by(capsys)
    assert code == 1 and sentences == [
        f"05_measured{edition}, no longer true: {sentence}"
        for edition in ("", " (solutions)")
        for sentence in ("DSpark commits more than four tokens", "the drafts are few")
    ]
    assert prose(course) == [
        "DSpark commits 3.00 tokens, $\\frac{{x}}{2}$ of which 13 are drafts, -25.0 %.",
        "And once more 3.",
    ]
    assert prose(course, "03_quoting") == ["Lesson 05 will find 3.0; measured were 5.7."]
    solutions_alone = sentences[2:]
    assert said_by(capsys, "--check") == (
        1,
        [*solutions_alone, "Run `make notebooks` and commit what it writes."],
    )
    assert "Traceback" not in (course / "notebooks/05_measured.ipynb").read_text()
    (course / "notebooks/drafter.json").write_text(json.dumps({"tau": 5.0, "drafts": 6}))
    assert said_by(capsys, "--only", "05") == (0, []) and said_by(capsys, "--check") == (0, [])
    assert prose(course, "03_quoting") == ["Lesson 05 will find 5.0; measured were 5.7."], (
        "it quotes lesson 05 and was not executed"
    )


@pytest.mark.slow(reason="executes notebooks")
def test_a_lesson_that_does_not_run_stops_no_other_and_a_claim_that_cannot_be_tried_is_named(
    course, capsys
):
    rewrite(
        course / "notebooks/src/03_quoting.py",
        "pass\n",
        "pass\n\n# %%\nraise ValueError('broken')\n",
    )
    rewrite(course / "notebooks/src/05_measured.py", 'found["drafts"] > 0', 'missing["drafts"] > 0')
    code, sentences = said_by(capsys)
    assert code == 1 and sentences[:4] == [
        f"{name}{edition}, cell {said}"
        for name, said in (
            ("03_quoting", "3 (`raise ValueError('broken')`): ValueError: broken"),
            (
                "05_measured",
                "6 (`#@title A check of the text around it, for whoever builds the course`): NameError: name 'missing' is not defined",
            ),
        )
        for edition in ("", " (solutions)")
    ]


@pytest.mark.slow(reason="executes notebooks")
def test_a_false_claim_does_not_hide_what_stops_a_lesson(course, capsys):
    (course / "notebooks/drafter.json").write_text(json.dumps({"tau": 3.0, "drafts": 13}))
    with (course / "notebooks/src/05_measured.py").open("a") as source:
        source.write("\n# %%\nraise ValueError('broken')\n")
    _, sentences = said_by(capsys, "--only", "05")
    assert sentences[0] == "05_measured, cell 8 (`raise ValueError('broken')`): ValueError: broken"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("x = 1\nglue(a=1)\nclaims({'b': x})\ny = 2", "x = 1\ny = 2"),
        ("glue(\n    a=1,\n    b=2,\n)\nx = 1", "x = 1"),
        ("from dspark_lite.course.lesson_text import claims, glue\nx = 1", "x = 1"),
        ("from a import glue, other\nx = 1", "from a import glue, other\nx = 1"),
        ("def glue_in(a):\n    glue(a=a)\n", "def glue_in(a):\n    glue(a=a)\n"),
        ("x = 'glue(a=1)'\n# glue(a=1)", "x = 'glue(a=1)'\n# glue(a=1)"),
    ],
)
def test_readers_get_no_line_that_serves_the_text_alone(code, left):
    cell = nbformat.v4.new_code_cell(code)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("pass"), cell])
    notebooks.without_workshop(notebook)
    assert cell.source == left


def test_values_of_a_cell_that_goes_join_those_of_the_cell_before():
    first, second = code_cell("x = 1", a=1), code_cell("glue(b=2)", b=2)
    last = nbformat.v4.new_code_cell("print(x)")
    for count, cell in enumerate((first, second, last), start=1):
        cell.execution_count = count
    notebook = nbformat.v4.new_notebook(cells=[first, second, last])
    notebooks.without_workshop(notebook)
    assert notebook.cells == [first, last] and last.execution_count == 2
    assert fill.recorded(notebook) == ({"a": 1, "b": 2}, [])


# Without executing


def code_cell(source="x = 1", **values):
    """An executed cell that has glued these values."""
    return nbformat.v4.new_code_cell(
        source, outputs=[nbformat.v4.new_output("display_data", metadata={MIME: values})]
    )


def problems(course, text, *cells):
    """What `fill_in` says of a text above cells that have run."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text), *cells])
    return fill.fill_in(notebook, notebook, "05_measured", course)


@pytest.mark.parametrize(
    ("text", "cells", "sentence"),
    [
        (
            "⟦tua:.1f⟧ ⟦tau:.1f⟧",
            [code_cell(tau=4.0)],
            "05_measured, cell 1: ⟦tua⟧: no value has this name; there are tau",
        ),
        ("⟦x⟧", [], "05_measured, cell 1: ⟦x⟧: no value has this name; there are none"),
        ("⟦07.x⟧", [], "05_measured, cell 1: ⟦07.x⟧: no value has this name; there are none"),
        ("", [code_cell(other=4.0)], "05_measured, no text uses `other`, which a cell glues"),
        (
            "⟦tau:d⟧",
            [code_cell(tau=1), code_cell(tau=2)],
            "05_measured, cell 3: `tau` is glued a second time",
        ),
        (
            "⟦tau⟧",
            [code_cell(tau=4.0)],
            "05_measured, cell 1: ⟦tau:⟧, which is 4.0: a number with decimals needs a format, such as `:.1f`",
        ),
        (
            "⟦tau:.1f⟧",
            [code_cell(tau="nan")],
            "05_measured, cell 1: ⟦tau:.1f⟧, which is 'nan': Unknown format code 'f' for object of type 'str'",
        ),
        (
            "⟦tau:words⟧",
            [code_cell(tau="few")],
            "05_measured, cell 1: ⟦tau:words⟧, which is 'few': type str doesn't define __round__ method",
        ),
        (
            "⟦tau:.1f⟧ ⟦tau",
            [code_cell(tau=4.0)],
            "05_measured, cell 1: a ⟦ or ⟧ that is no part of a placeholder; "
            "a placeholder is ⟦name⟧ or ⟦name:format⟧",
        ),
    ],
)
def test_a_value_that_is_missing_unused_or_ambiguous_is_named(course, text, cells, sentence):
    assert problems(course, text, *cells) == [sentence]


def test_a_value_that_only_another_lesson_quotes_is_used(course):
    assert problems(course, "", code_cell(tau=4.0)) == []
    (course / "notebooks/src/03_quoting.py").unlink()
    assert problems(course, "", code_cell(tau=4.0)) == [
        "05_measured, no text uses `tau`, which a cell glues"
    ]


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (4.375, ".1f", "4.4"),
        (0.475, "+.1%", "+47.5%"),
        (-0.0825, "+.1 %", "-8.2 %"),
        (38_000, ",", "38,000"),
        (191, "", "191"),
        (4.8, "words", "five"),
        (0, "words", "zero"),
        (12, "Words", "Twelve"),
        (12.6, "words", "13"),
        (-2, "words", "-2"),
        (1500, "words", "1,500"),
        ("chat", "", "chat"),
    ],
)
def test_formats(value, spec, text):
    assert fill.shown(value, spec) == text


def with_outputs_of(course, name="05_measured"):
    """Put both notebooks of a lesson there as if they had run: the cells' counts and values."""
    for which in notebooks.both_editions(notebooks.lesson_sources(name[:2])):
        notebook = notebooks.generate(*which)
        for count, cell in enumerate(notebooks.code_cells(notebook), start=1):
            cell.execution_count = count
            if "print(found" in cell.source:
                cell.outputs = code_cell(tau=4.0, drafts=5, gain=0.0).outputs
        notebooks.write_notebook(notebooks.notebook_path(*which), notebook)


def test_text_imports_and_comments_are_written_without_executing(course, capsys):
    with_outputs_of(course)
    source = course / "notebooks/src/05_measured.py"
    rewrite(source, "And once more ⟦tau:.0f⟧.", "At last ⟦tau:.3f⟧.")
    rewrite(source, "import json\n", "import json  # a format\n")
    rewrite(
        source,
        "from dspark_lite.course.lesson_text import claims, glue",
        "import os\nfrom dspark_lite.course.lesson_text import glue, claims",
    )
    assert said_by(capsys, "--inputs-only", "--only", "05") == (0, [])
    built = nbformat.read(course / "notebooks/05_measured.ipynb", as_version=4)
    assert built.cells[-1].source == "At last 4.000." and "a format" in built.cells[3].source
    counts = [cell.execution_count for cell in notebooks.code_cells(built)]
    assert counts == [1, 2] and built.cells[3].outputs[0].metadata[MIME]
    assert said_by(capsys, "--check", "--only", "05") == (0, [])


@pytest.mark.parametrize(
    ("before", "after", "number", "edition"),
    [
        ("print(found)", "print(found, found)", 2, ""),
        ('found["tau"] > 4', 'found["tau"] > 3', 3, " (solutions)"),
        (
            '# %% tags=["claim"]\nclaims({"it',
            '# %%\nx = 1\n\n# %% tags=["claim"]\nclaims({"it',
            3,
            "",
        ),
        ("pass", "pass", None, ""),
    ],
)
def test_what_would_compute_something_else_or_never_ran_is_not_written(
    course, capsys, before, after, number, edition
):
    built = course / "notebooks" / ("solutions" if edition else "") / "05_measured.ipynb"
    if number:
        with_outputs_of(course)
    rewrite(course / "notebooks/src/05_measured.py", before, after)
    committed = built.read_bytes() if number else None
    code, (sentence, *_) = said_by(capsys, "--inputs-only", "--only", "05")
    assert code == 1 and sentence == (
        f"05_measured{edition}: code cell {number} is not the one that ran; execute it, with `python -m tools.notebooks.build --only 05`."
        if number
        else "05_measured was never executed; `python -m tools.notebooks.build --only 05` does it."
    )
    assert committed == (built.read_bytes() if built.exists() else None)


# What a lesson calls


def test_glue_shows_nothing_outside_a_notebook(capsys):
    glue(x=1)
    assert capsys.readouterr() == ("", "")


def test_glue_takes_plain_values(monkeypatch):
    published = []
    monkeypatch.setattr("dspark_lite.course.lesson_text.get_ipython", lambda: "a shell")
    monkeypatch.setattr(
        "dspark_lite.course.lesson_text.publish_display_data",
        lambda data, metadata: published.append((data, metadata)),
    )
    glue(a=1, b=np.float32(0.5), c=torch.tensor(3), d="chat", e=float("nan"), f=np.int64(7))
    assert published == [({}, {MIME: {"a": 1, "b": 0.5, "c": 3, "d": "chat", "e": "nan", "f": 7}})]
    assert json.loads(json.dumps(published[0][1], allow_nan=False))
    for wrong in ([1], torch.zeros(2), True, None, 1j):
        with pytest.raises(TypeError, match="x is of type .*; the text takes numbers and strings"):
            glue(x=wrong)


def test_false_claims_stop_a_run_of_the_tiny_models_and_no_reader(monkeypatch, capsys):
    monkeypatch.setenv("DSPARK_PROFILE", "tiny")
    claims({"a": True, "b": np.True_})
    with pytest.raises(AssertionError) as raised:
        claims({"one": False, "two": True, "three": np.False_})
    assert str(raised.value) == "one\nthree" and capsys.readouterr().out == ""
    claims({}, by_clock={"late": False})
    assert capsys.readouterr().out == "Not so in this run: late\n"
    monkeypatch.setenv("DSPARK_BUILD", "1")
    with pytest.raises(AssertionError, match="one\nlate"):
        claims({"one": False}, by_clock={"late": False, "in time": True})
    monkeypatch.delenv("DSPARK_BUILD")
    for profile in ("released", None):
        monkeypatch.setenv("DSPARK_PROFILE", profile) if profile else monkeypatch.delenv(
            "DSPARK_PROFILE"
        )
        claims({"one": False, "two": True})
        assert capsys.readouterr().out == "Not so in this run: one\n"
    assert os.environ.get("DSPARK_PROFILE") is None


def test_canonical_values_are_those_of_the_measurements():
    values = canonical_values()
    bench = json.loads((notebooks.ROOT / "assets/measurements/bench.json").read_text())
    assert values["speedup_dspark"] == bench["macro_speedup"]["dspark"]
    rows = json.loads(
        (notebooks.ROOT / "assets/measurements/experiments/tiny-dspark.json").read_text()
    )["rows"]
    assert {row["domain"]: row["accepted_length"] for row in rows} == {
        d: values[f"tau_dspark_{d}"] for d in ("math", "code", "chat")
    }
    assert values["tau_dspark"] == pytest.approx(np.mean([row["accepted_length"] for row in rows]))
    chat = values["tau_dspark_chat"] / values["tau_dflash_chat"] - 1
    assert values["gain_over_dflash_chat"] == pytest.approx(chat)
    assert values["gain_over_dflash_chat_low"] < chat < values["gain_over_dflash_chat_high"]
