"""`make release`: no answer comes along, and what comes along works; `make fork`: every address is the fork's."""

import ast
import json
import re
import runpy
import subprocess
import sys

import nbformat
import pytest

from dspark_lite.common import about
from dspark_lite.common.about import REPOSITORY
from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT
from dspark_lite.course.own_decoder.keep import EDITION, GIVEN, split
from test_setup_cell import at, git, run_setup_cell
from tools.kit import fork, lessons, release
from tools.notebooks import build as notebooks, setup_cell
from walking import markdown, wrong

PUBLIC = "ann/spec-course"


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """The student edition for a repository of its own."""
    folder = tmp_path_factory.mktemp("release") / "student"
    release.release(folder, PUBLIC, "2027-spring")
    return folder


def texts(folder):
    """{path: text} of a folder's files, binaries left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.suffix in {".py", ".md", ".ipynb", ".json", ".toml", ".txt"}
    }


def bodies(path):
    """The bodies of the functions in a lesson's solutions, as text, those of one short line left out."""
    for cell in lessons.read_notebook(path.parent / "solutions" / path.name).cells:
        for node in ast.parse(cell.source).body if lessons.tagged(cell, "solution") else []:
            if isinstance(node, ast.FunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                lines = cell.source.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
                text = "\n".join(line.strip() for line in lines)
                if len(text) > 50:
                    yield node.name, text


def test_no_answer_comes_along(student):
    """Neither of the exercises nor of my_dspark.py, in no file but the system's own."""
    flat = {
        name: "\n".join(line.strip() for line in text.replace('\\n",\n', "\n").splitlines())
        for name, text in texts(student).items()
        if not name.startswith("dspark_lite/") or name.startswith("dspark_lite/course/")
    }
    answers = [answer for path in lessons.lesson_paths() for answer in bodies(path)]
    assert len(answers) > 20
    assert [
        (name, answer) for answer, text in answers for name, whole in flat.items() if text in whole
    ] == []
    pieces = [
        piece.source
        for name, piece in split(EDITION.read_text(encoding="utf-8"))[1].items()
        if name not in GIVEN
    ]
    assert pieces and not any(piece in text for piece in pieces for text in texts(student).values())


def test_neither_solutions_nor_sources_nor_git_nor_tools_come_along(student):
    there = {path.relative_to(student).as_posix() for path in student.rglob("*")}
    assert not there & {
        "notebooks/solutions",
        "notebooks/src",
        ".git",
        "tests",
        "tools/notebooks/build.py",
        "docs/teaching",
        "tools/kit/hidden",
        "tools/kit/solutions",
        "tools/kit/grade.py",
    }
    assert {
        *(f"notebooks/{path.name}" for path in lessons.lesson_paths()),
        "docs/projects.md",
        "tools/kit/project.py",
    } < there


def test_notebooks_have_no_outputs_no_link_to_solutions_and_of_folds_in_exercises_only_hints(
    student,
):
    hints = 0
    for path in sorted((student / "notebooks").glob("*.ipynb")):
        cells = lessons.read_notebook(path).cells
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
        text = markdown(path)
        assert "solutions/" not in text
        exercises = re.findall(r"^### Exercise .*?(?=^#{1,6} |\Z)", text, re.M | re.S)
        folds = [
            fold
            for exercise in exercises
            for fold in re.findall("<summary>(.*?)</summary>", exercise)
        ]
        assert [
            fold for fold in folds if not fold.startswith("Hint")
        ] == [] and "<summary>Answer" not in text
        hints += len(folds)
        assert text.count("<details>") == text.count("</details>")
    assert hints > 20


def test_all_that_a_page_says_exists(student):
    pages = [*student.rglob("*.md"), *student.rglob("*.ipynb")]
    assert len(pages) > 30
    assert {path.name: found for path in pages if (found := wrong(student, path, PUBLIC))} == {}


def test_the_walk_finds_what_does_not_exist(tmp_path):
    (tmp_path / "page.md").write_text(
        "`make nothing`, `docs/none.md`, [a](b.md), `python -m tools.none`\n\n```\ngit clone x/course\ncd other\n```\n"
    )
    (tmp_path / "course.py").write_text("")
    assert len(wrong(tmp_path, tmp_path / "page.md", "ann/course")) == 5


def test_folds_go_by_where_they_stand():
    def fold(says):
        return f"<details><summary>{says}</summary>\n\ninside {says}\n\n</details>\n"

    text = "\n".join(
        [
            "## A section",
            fold("More"),
            fold("Answer"),
            "### Exercise 1 · A title (code)",
            fold("Hint 1"),
            fold("Why?"),
            "end",
        ]
    )
    sources = text, fold("What it was"), "## On\n" + fold("More")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell(source) for source in sources]
    )
    kept = [
        re.findall("inside (.*)", cell.source)
        for cell in release.without_answers(notebook, "x", False).cells
    ]
    assert kept == [["More", "Hint 1"], [], ["More"]]


@pytest.mark.slow(reason="imports torch in a process of its own")
def test_packed_checkers_check_and_keep_keeps(student, tmp_path):
    code = f"""import inspect, sys
sys.path.insert(0, "")
from pathlib import Path
from dspark_lite.course.exercises import lesson_04, lesson_10, lesson_11
from dspark_lite.course.own_decoder import my_dspark
from dspark_lite.course.own_decoder.keep import keep
assert lesson_10.__file__.startswith({str(student)!r})
assert lesson_10.check_theta(lambda s, r, table: (r + sum(s)) * table.sps(r, r + len(s)))
assert not lesson_10.check_theta(lambda s, r, table: sum(s) * table.sps(r, r + len(s)))
assert lesson_04.check_block_pass(my_dspark.block_pass) and lesson_11.check_mask(lesson_11.may_see)
assert inspect.getsource(lesson_11.SmallEngine).startswith("class SmallEngine:") and "index_tensors" in inspect.getsource(lesson_11.SmallEngine)
my_dspark.algorithm_1.__module__ = "__main__"
inspect.getsource = lambda function: "def algorithm_1(survivals, sps):\\n    return []"
keep(my_dspark.algorithm_1, path=Path({str(tmp_path / "mine.py")!r}))
"""
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=student, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    said = finished.stdout
    assert (
        said.splitlines()[1].startswith("Not yet: the anchors are missing from tau")
        and "Kept in mine.py" in said
    )
    mine = (tmp_path / "mine.py").read_text()
    assert "def toss" in mine and "class Draft" in mine and "def residual" not in mine


def test_badges_and_setup_cells_lead_to_the_students_repository(student):
    text = (student / "notebooks" / lessons.lesson_paths()[0].name).read_text(encoding="utf-8")
    assert (
        "colab.research.google.com/github/ann/spec-course/blob/2027-spring/" in text
        and 'Path(\\"spec-course/' in text
    )
    assert '{clone} --branch 2027-spring\\"' in text and REPOSITORY not in text


def test_the_manifest_names_every_file(student):
    files = {
        path.relative_to(student).as_posix()
        for path in student.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    named = {line.split("  ")[1] for line in (student / "MANIFEST.txt").read_text().splitlines()}
    assert named == files - {"MANIFEST.txt"}


def test_a_header_without_a_repository_has_no_badge():
    notebook = lessons.read_notebook(lessons.lesson_paths()[0])
    header = (
        release.without_answers(notebook, lessons.lesson_paths()[0].stem, badge=False)
        .cells[0]
        .source
    )
    assert (
        "colab" not in header
        and header.splitlines()[0].startswith("# ")
        and header.splitlines()[1:2] == [""]
    )


def test_a_release_needs_a_clone(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(RequestError, match="no clone"):
        release.tracked()
    for words, sentence in (
        (["--repository", "no repository"], "is no repository"),
        (["--tag", "x"], "give --repository"),
        (["--repository", "a/b", "--tag", "a b"], "is no tag"),
    ):
        assert release.main(words) == 2 and sentence in capsys.readouterr().err


# A fork.


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """The whole repository under another name, its files without text empty."""
    folder = tmp_path_factory.mktemp("fork") / "spec-unit"
    for name in release.tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        is_text = (ROOT / name).suffix in fork.PAGES or name == "Makefile"
        (folder / name).write_bytes((ROOT / name).read_bytes() if is_text else b"")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    fork.fork(folder, "unihd/spec-unit", "2027-spring")
    return folder


def test_all_that_a_forks_pages_say_exists(forked):
    """But for the log of changes, which names what there was, and for pages that become the site's."""
    pages = [path for path in [*forked.rglob("*.md"), *forked.rglob("*.ipynb")]]
    pages = [path for path in pages if path.name != "changelog.md" and "site" not in path.parts]
    assert {
        path.name: found for path in pages if (found := wrong(forked, path, "unihd/spec-unit"))
    } == {}


@pytest.mark.parametrize("edition", ["student", "forked"])
def test_a_badge_of_a_tag_opens_a_notebook_that_runs_the_tags_code(edition, request, tmp_path):
    """Of two commits at the repository's address the tag is the older one."""
    folder, bare = request.getfixturevalue(edition), tmp_path / "bare.git"
    address = f"https://github.com/{PUBLIC if edition == 'student' else 'unihd/spec-unit'}"
    work = tmp_path / "work"
    for commit in ("2027-spring", "main"):
        for name in ("dspark_lite/code", "notebooks/code"):
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(commit)
        git(work, "init", "-q", "-b", "main")
        git(work, "add", ".")
        git(work, "commit", "-q", "-m", commit)
        git(work, "tag", commit) if commit != "main" else None
    subprocess.run(["git", "clone", "-q", "--bare", work, bare], check=True)
    for path in sorted((folder / "notebooks").glob("*.ipynb"))[:2]:
        cells = lessons.read_notebook(path).cells
        assert (
            f"github/{address.partition('.com/')[2]}/blob/2027-spring/notebooks/{path.name}"
            in cells[0].source
        )
        setup = next(cell.source for cell in cells if lessons.tagged(cell, "setup"))
        content = tmp_path / path.stem
        content.mkdir()
        finished = run_setup_cell(content, setup=setup, **at(address, bare))
        assert finished.returncode == 0, finished.stderr
        assert (
            content / address.rpartition("/")[2] / "notebooks" / "code"
        ).read_text() == "2027-spring"


@pytest.fixture
def small_clone(tmp_path):
    """A repository with the files that name it."""
    for name in [
        "README.md",
        fork.ABOUT.as_posix(),
        "tools/notebooks/build.py",
        f"notebooks/{lessons.lesson_paths()[0].name}",
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_a_fork_has_another_name_everywhere(small_clone):
    changed = fork.fork(small_clone, "unihd/spec-unit")
    assert set(changed) == {
        "README.md",
        fork.ABOUT.as_posix(),
        f"notebooks/{lessons.lesson_paths()[0].name}",
    }
    for name in changed:
        text = (small_clone / name).read_text(encoding="utf-8")
        assert "unihd/spec-unit" in text and REPOSITORY not in text
    nbformat.read(small_clone / changed[-1], as_version=4)
    assert fork.fork(small_clone, REPOSITORY) == changed  # and back
    assert (
        subprocess.run(
            ["git", "diff", "--stat"], cwd=small_clone, capture_output=True, text=True
        ).stdout
        == ""
    )


def test_a_fork_is_what_the_builder_would_write(monkeypatch):
    """And so is a fork of it with another tag, and the way back."""
    new = "unihd/spec-unit"
    texts = {
        place: written_by_the_builder(monkeypatch, *place)
        for place in ((REPOSITORY, ""), (new, ""), (new, "2027-spring"))
    }
    for (old, _), before in texts.items():
        for (repository, wanted), after in texts.items():
            assert [fork.renamed(text, old, repository, wanted) for text in before] == after
            assert [
                json.loads(fork.renamed(json.dumps(text), old, repository, wanted))
                for text in before
            ] == after, "in a notebook"


def written_by_the_builder(monkeypatch, repository, tag):
    """Badge and setup cell as tools/notebooks writes them in a repository."""
    monkeypatch.setattr(about, "REPOSITORY", repository)
    monkeypatch.setattr(about, "TAG", tag)
    builder, cell = map(runpy.run_path, (notebooks.__file__, setup_cell.__file__))
    monkeypatch.undo()
    return [builder["badge"]("notebooks/x.ipynb"), cell["SETUP"]]


def test_a_fork_with_a_tag_leads_there_from_page_constant_and_notebook(small_clone):
    fork.fork(small_clone, "unihd/spec-unit", "2027-spring")
    about_text, page, notebook = (
        (small_clone / name).read_text(encoding="utf-8")
        for name in (fork.ABOUT, "README.md", f"notebooks/{lessons.lesson_paths()[0].name}")
    )
    assert 'TAG = "2027-spring"' in about_text
    for text in (page, notebook):
        assert (
            "google.com/github/unihd/spec-unit/blob/2027-spring/notebooks/" in text
            and "/blob/main/notebooks/" not in text
        )
    setup = next(
        cell
        for cell in nbformat.reads(notebook, as_version=4).cells
        if "setup" in cell.metadata.get("tags", [])
    )
    assert '{clone} --branch 2027-spring"' in setup.source


@pytest.mark.parametrize("tag", ["a b", "a/b", "-a", "a..b", 'a"', "a.lock"])
def test_what_cannot_be_a_tag_is_refused(tag, capsys):
    assert fork.main(["a/b", f"--tag={tag}"]) == 2 and "is no tag" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "name", "a/b/c", "a b/c", "a-/b", "https://github.com/a/b"])
def test_what_cannot_be_a_repository_is_refused(name, capsys):
    assert fork.main([name]) == 2 and "OWNER/NAME" in capsys.readouterr().err


def test_other_addresses_stay():
    text = "github.com/deepseek-ai/DeepSpec github.com/dspark-lite/dspark-lite-more dspark-lite 0.1"
    assert fork.renamed(text, "dspark-lite/dspark-lite", "a/b") == text
