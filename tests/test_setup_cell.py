"""The first cell of every notebook: it finds the clone, or on Colab clones the code of its own version, and deletes nothing."""

import os
import re
import subprocess
import sys

import pytest

from dspark_lite.common.about import REPOSITORY, VERSION
from tools.kit.fork import renamed
from tools.notebooks import build as notebooks, setup_cell

COLAB = "import sys; sys.modules['google.colab'] = sys"
WHO = ("-c", "user.name=a", "-c", "user.email=a@b")
CLONE = setup_cell.CLONE


def git(folder, *words):
    """Run git in a folder."""
    subprocess.run(["git", "-C", folder, *WHO, *words], check=True, capture_output=True)


def at(address, folder):
    """The environment in which git finds the repository in a folder at an address."""
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{folder}.insteadOf",
        "GIT_CONFIG_VALUE_0": address,
    }


def run_setup_cell(folder, before=COLAB, setup=notebooks.SETUP, **environment):
    """Run a setup cell in a fresh interpreter that starts in `folder`; return the finished process, which says where it is then."""
    code = f"{before}\n{setup}\nprint(Path.cwd().name, sys.path[0])"
    environment = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A bare repository like the course's: the tags v{VERSION} and 2027-spring, and a newer main branch; a file says which one it is."""
    work, bare = (tmp_path_factory.mktemp("origin") / name for name in ("work", "bare.git"))
    for name in ("dspark_lite/__init__.py", "notebooks/lesson.ipynb"):
        (work / name).parent.mkdir(parents=True)
        (work / name).write_text("")
    git(work, "init", "-q", "-b", "main")
    for tag in ("v0.0.1", "2027-spring", f"v{VERSION}", "main"):
        (work / "version").write_text(tag)
        git(work, "add", ".")
        git(work, "commit", "-q", "-m", tag)
        if tag != "main":
            git(work, "tag", tag)
    subprocess.run(["git", "clone", "-q", "--bare", work, bare], check=True)
    return bare


@pytest.fixture
def content(tmp_path):
    """The folder in which Colab starts a notebook."""
    (tmp_path / "content").mkdir()
    return tmp_path / "content"


def assert_cloned(content, version, aside=0, **given):
    """The cell clones this version, and leaves beside it what it has moved aside; return that."""
    finished = run_setup_cell(content, **given)
    assert finished.stdout.split()[-2:] == ["notebooks", str(content / CLONE)], finished.stderr
    assert (content / CLONE / "version").read_text() == version
    others = [path for path in content.iterdir() if path.name != CLONE]
    assert len(others) == aside and all(
        re.fullmatch(rf"{CLONE}\.[\d-]+", path.name) for path in others
    )
    return others


def test_it_finds_the_clone_from_any_folder_inside_and_says_what_is_missing_outside(tmp_path):
    finished = run_setup_cell(notebooks.ROOT / "notebooks" / "src", before="")
    assert finished.stdout.split() == ["src", str(notebooks.ROOT)], finished.stderr
    outside = run_setup_cell(tmp_path, before="")
    assert (
        outside.returncode != 0
        and f"inside a clone of https://github.com/{REPOSITORY}" in outside.stderr
    )


def without(bare, folder, *tags):
    """A copy of a bare repository without some tags."""
    subprocess.run(["git", "clone", "-q", "--bare", bare, folder], check=True)
    git(folder, "tag", "-d", *tags)
    return folder


@pytest.mark.parametrize("released", [True, False])
def test_it_clones_the_tag_of_its_version_once_there_is_one_and_only_once(
    content, origin, tmp_path, released
):
    bare = origin if released else without(origin, tmp_path / "bare.git", f"v{VERSION}")
    version = f"v{VERSION}" if released else "main"
    assert_cloned(content, version, **at(f"https://github.com/{REPOSITORY}", bare))
    assert_cloned(content, version)  # a restarted kernel, and no network any more


def test_that_of_an_instructors_edition_clones_its_tag_and_nothing_else(content, origin, tmp_path):
    address = "https://github.com/ann/course"
    setup = renamed(notebooks.SETUP, REPOSITORY, f"ann/{CLONE}", "2027-spring")
    assert_cloned(
        content, "2027-spring", setup=setup, **at(f"https://github.com/ann/{CLONE}", origin)
    )
    bare = without(origin, tmp_path / "bare.git", "2027-spring")
    (tmp_path / "other").mkdir()
    finished = run_setup_cell(
        tmp_path / "other",
        setup=renamed(setup, f"ann/{CLONE}", "ann/course", "2027-spring"),
        **at(address, bare),
    )
    assert f"RuntimeError: git cannot clone {address}" in finished.stderr and not list(
        (tmp_path / "other").iterdir()
    )


def files(folder):
    """{path: text} of the files below a folder, git's own left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


MINE = {
    "notebooks/my_dspark.py": "mine",
    "notebooks/my_progress.json": "{}",
    "assets/measurements/own/sts.json": "[1]",
}


def test_a_folder_without_the_course_is_moved_aside_with_all_that_is_in_it(content, origin):
    for name, text in MINE.items():
        (content / CLONE / name).parent.mkdir(parents=True, exist_ok=True)
        (content / CLONE / name).write_text(text)
    (content / f"{CLONE}.part").mkdir()
    (content / f"{CLONE}.part" / "mine.txt").write_text("too")
    finished = run_setup_cell(content, **at(f"https://github.com/{REPOSITORY}", origin))
    (aside,) = content.glob(f"{CLONE}.2*")
    assert aside.name in finished.stdout and files(aside) == MINE
    assert files(content / f"{CLONE}.part") == {"mine.txt": "too"}
    cloned = files(content / CLONE)
    assert cloned["version"] == f"v{VERSION}" and MINE.items() & cloned.items() == {
        (name, MINE[name]) for name in list(MINE)[:2]
    }


def test_a_file_of_that_name_is_moved_aside(content, origin):
    (content / CLONE).write_text("a note")
    (aside,) = assert_cloned(
        content, f"v{VERSION}", aside=1, **at(f"https://github.com/{REPOSITORY}", origin)
    )
    assert aside.read_text() == "a note"


def test_a_fork_is_cloned_from_where_the_half_clone_came(content, origin):
    subprocess.run(["git", "clone", "-q", origin, content / CLONE], check=True)
    (content / CLONE / "dspark_lite" / "__init__.py").unlink()
    assert_cloned(content, f"v{VERSION}", aside=1)


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"PATH": ""}, "RuntimeError: The course cannot be cloned into .*'git'"),
        (at(f"https://github.com/{REPOSITORY}", "/nowhere"), "RuntimeError: git cannot clone"),
    ],
)
def test_what_keeps_it_from_cloning_is_a_sentence_and_changes_nothing(
    content, environment, sentence
):
    (content / CLONE).mkdir()
    (content / CLONE / "mine.txt").write_text("mine")
    finished = run_setup_cell(content, **environment)
    assert finished.returncode != 0 and re.match(sentence, finished.stderr.splitlines()[-1])
    assert files(content) == {f"{CLONE}/mine.txt": "mine"}


def test_a_folder_that_cannot_be_written_to_is_a_sentence(content):
    """root may write everywhere, so the cell asks for a folder that is a file."""
    finished = run_setup_cell(
        content,
        before=f"{COLAB}\nimport tempfile; tempfile.TemporaryDirectory = lambda **_: open('no/such/folder')",
    )
    assert finished.stderr.splitlines()[-1].startswith(
        "RuntimeError: The course cannot be cloned into"
    )
