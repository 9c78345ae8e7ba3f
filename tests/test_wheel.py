"""The wheel: what is in it, and that its commands work where nothing of the repository is at hand."""

import ast
import json
import os
import re
import shutil
import site
import subprocess
import sys
import venv
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from dspark_lite.common.about import REPOSITORY, VERSION
from dspark_lite.common.files import DATA, ROOT
from dspark_lite.course import command_line
from helpers import DRAFT

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "dspark_lite", *DATA.values())
SHIPPED = {".py", ".js", ".css", ".typed"}
TINY_DRAFT = DRAFT | {
    "name": "mini",
    "extends": "tiny-dspark",
    "patience": None,
    "data": DRAFT["data"] | {"held_out": 0},
    "config": DRAFT["config"] | {"mask_token_id": 0},
}


def project():
    """What pyproject.toml says."""
    # pytest brings tomli where Python has none
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(*command, **options):
    """What a command that must succeed prints; PYTHONPATH does not lead it to this repository."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "HF_HUB_OFFLINE": "1"
    }
    finished = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=environment, **options
    )
    assert finished.returncode == 0, f"{command}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


def tracked(*paths):
    """The files below these paths that git tracks."""
    return [
        Path(name)
        for name in run("git", "ls-files", "-z", "--", *paths, cwd=ROOT).split("\0")
        if name
    ]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that the tracked files build; what earlier builds left in the repository takes no part."""
    folder = tmp_path_factory.mktemp("wheel")
    for path in tracked(*SOURCES):
        (folder / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / "source" / path)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        folder,
        folder / "source",
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A virtual environment with the wheel; the libraries that it needs are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        folder / "bin" / "python",
        "install",
        "--quiet",
        "--no-deps",
        wheel,
    )
    (packages,) = folder.glob("lib/python*/site-packages")
    # A folder in a .pth file is searched after this environment's own, and no .pth file in it is read: this repository is not found.
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages()))
    return folder


@pytest.fixture
def command(installed, tmp_path):
    """Runs the installed `dspark-lite` in an empty folder, away from the repository."""
    return lambda *arguments: run(installed / "bin" / "dspark-lite", *arguments, cwd=tmp_path)


DISTRIBUTIONS = {"PIL": "pillow", "IPython": "ipython"}  # of modules with another name


def imported_by_the_packages():
    """The distributions whose modules the package imports, at the top of a file or inside a function."""
    paths = [path for path in (ROOT / "dspark_lite").rglob("*.py")]
    nodes = [
        node for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    modules = {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names, "dspark_lite"}
    modules.discard("typing_extensions")  # type checkers bring it, and nothing else reads it
    return {DISTRIBUTIONS.get(module, module) for module in modules}


def test_the_wheel_needs_what_the_packages_import_and_readers_install_the_same():
    needed = project()["project"]["dependencies"]
    assert {Requirement(line).name for line in needed} == imported_by_the_packages()
    listed = [
        line
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert listed[: len(needed)] == needed and "jupyterlab" in {
        Requirement(line).name for line in listed[len(needed) :]
    }


def test_the_wheel_is_told_of_every_room_and_of_all_that_commands_read():
    told = project()["tool"]["setuptools"]
    rooms = {
        f"{path.parent.relative_to(ROOT).as_posix()}".replace("/", ".")
        for path in (ROOT / "dspark_lite").rglob("__init__.py")
    }
    carried = {f"dspark_lite.data.{name}": place for name, place in DATA.items()}
    assert (
        len(rooms) > 12
        and sorted(told["packages"]) == sorted({*rooms, *carried})
        and told["package-dir"] == carried
    )


def test_the_tests_import_the_package_of_their_own_checkout():
    assert ROOT == Path(__file__).resolve().parents[1]


@pytest.mark.slow(reason="builds a wheel")
def test_the_wheel_holds_the_packages_and_what_their_commands_read(wheel):
    with ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    carried = {
        Path("dspark_lite", "data", name, path.relative_to(place)).as_posix()
        for name, place in DATA.items()
        for path in tracked(place)
        if "golden" not in path.parts
    }
    assert (
        held
        == {path.as_posix() for path in tracked("dspark_lite") if path.suffix in SHIPPED} | carried
    )
    assert any(name.endswith("/tiny-dspark/model.safetensors") for name in held)


@pytest.mark.slow(reason="builds a wheel")
def test_the_wheel_says_its_version_and_what_it_needs(wheel):
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = archive.read(name).decode()
    assert re.findall(r"^Version: (.+)$", metadata, flags=re.M) == [VERSION]
    assert (
        set(re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", metadata, flags=re.M))
        == imported_by_the_packages()
    )


@pytest.mark.slow(reason="installs a wheel, decodes and trains with it")
def test_installed_commands_work_in_an_empty_folder_and_write_nowhere_else(
    command, installed, tmp_path
):
    """A prompt is decoded plainly and by DSpark to the same text; a measurement and a drafter trained go below the current folder."""
    before = {path for path in installed.rglob("*") if "__pycache__" not in path.parts}
    last = command("demo").splitlines()[-3:]
    assert (
        last[0].startswith("dspark: ")
        and last[1].startswith("plain: ")
        and last[1].endswith("; the same text")
    )
    assert "profile: tiny" in command("doctor")
    command("bench", "--prompts", "1", "--drafters", "dspark", "--json", "bench.json")
    assert {
        row["drafter"] for row in json.loads((tmp_path / "bench.json").read_text())["rows"]
    } == {"plain", "dspark"}
    (tmp_path / "mini.json").write_text(json.dumps(TINY_DRAFT))
    assert "written to build/checkpoints/mini" in command("train", "mini.json")
    assert (tmp_path / "build" / "checkpoints" / "mini" / "model.safetensors").exists()
    assert {path for path in installed.rglob("*") if "__pycache__" not in path.parts} == before


def test_the_lessons_open_in_a_clone_alone(monkeypatch, capfd, tmp_path):
    called = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command_line.os, "execv", lambda program, words: called.append(words))
    assert command_line.main(["lab", "--", "--no-browser"]) == 0
    assert (
        Path.cwd() == ROOT
        and called[0][1:3] == ["-m", "jupyterlab"]
        and called[0][-1] == "--no-browser"
    )
    monkeypatch.setattr(command_line, "find_spec", lambda name: None)
    assert command_line.main(["lab"]) == 2 and len(called) == 1
    assert "pip install jupyterlab" in capfd.readouterr().err
    monkeypatch.setattr(command_line, "IN_CLONE", False)
    assert command_line.main(["lab"]) == 2
    assert REPOSITORY in capfd.readouterr().err
