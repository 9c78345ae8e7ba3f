"""The first cell of every notebook: it finds the clone, or clones the code of its own version, and deletes nothing."""

import os
import subprocess
import sys

import pytest

from dspark_lite.common.about import REPOSITORY, VERSION
from tools.kit.fork import renamed
from tools.notebooks import build as notebooks, setup_cell

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


def run_setup_cell(folder, setup=notebooks.SETUP, **environment):
    """Run a setup cell in a fresh interpreter that starts in `folder`; return the finished process, which says where it is then."""
    code = f"{setup}\nprint(Path.cwd().name, sys.path[0])"
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


def assert_cloned(content, version, **given):
    """The cell clones this version, and goes to its notebooks."""
    finished = run_setup_cell(content, **given)
    assert finished.stdout.split() == ["notebooks", str(content / CLONE)], finished.stderr
    assert (content / CLONE / "version").read_text() == version


def test_it_finds_the_clone_from_any_folder_inside_and_stays_there():
    finished = run_setup_cell(notebooks.ROOT / "notebooks" / "src")
    assert finished.stdout.split() == ["src", str(notebooks.ROOT)], finished.stderr


def test_it_is_as_short_as_a_reader_will_read():
    assert len([line for line in notebooks.SETUP.splitlines()[1:] if line]) <= 8


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
    assert "RuntimeError: The course cannot be cloned" in finished.stderr and not list(
        (tmp_path / "other").iterdir()
    )


def files(folder):
    """{path: text} of the files below a folder, git's own left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"PATH": ""}, "git"),
        (at(f"https://github.com/{REPOSITORY}", "/nowhere"), "/nowhere"),
        ({}, "already exists"),
    ],
)
def test_what_keeps_it_from_cloning_is_a_sentence_and_changes_nothing(
    content, origin, environment, sentence
):
    mine = {} if environment else {f"{CLONE}/mine.txt": "mine"}
    for name, text in mine.items():
        (content / name).parent.mkdir()
        (content / name).write_text(text)
    environment = environment or at(f"https://github.com/{REPOSITORY}", origin)
    finished = run_setup_cell(content, **environment)
    assert finished.returncode != 0 and "cannot be cloned into" in finished.stderr
    assert sentence in finished.stderr.partition("RuntimeError")[2]
    assert files(content) == mine
