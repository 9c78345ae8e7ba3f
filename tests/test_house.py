"""What a reader meets first is in order: README, licence, requirements, no trace of anybody's machine."""

import re
import subprocess
import sys

import notebooks
import pytest
import readme
import run_course
from hypothesis import settings
from packaging.requirements import Requirement

from dspark_lite.common.about import REPOSITORY, VERSION

ROOT = notebooks.ROOT
# Colab as of August 2026: nothing of this is installed there, so the lower bounds must admit it.
COLAB = {
    "torch": "2.11.0",
    "transformers": "5.15.0",
    "huggingface_hub": "1.27.0",
    "matplotlib": "3.10.0",
    "ipywidgets": "7.7.1",
}
# Folders that exist on somebody's machine only; in two halves so that this file does not contain them.
FOLDERS = "|".join(a + b for a, b in [("ho", "me"), ("ro", "ot"), ("Us", "ers"), ("wo", "rk"), ("tm", "p")])
# Not the end of a longer path or of an address.
MACHINE_PATH = re.compile(rf"(?<![\w.~*\])}}-])/(?:{FOLDERS})/[^\s\"']*")


def tracked_text():
    """Return {path: text} of the files that git tracks, binaries left out."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    texts = {}
    for name in listed:
        try:
            texts[name] = (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
    return texts


def requirements(name):
    """Return the requirements of a file that apply to this Python."""
    lines = [line.strip() for line in (ROOT / name).read_text().splitlines()]
    parsed = [Requirement(line) for line in lines if line and not line.startswith(("#", "-r"))]
    return [requirement for requirement in parsed if not requirement.marker or requirement.marker.evaluate()]


def pinned():
    """Return {package: exact version} of the constraints that apply to this Python."""
    return {c.name: re.fullmatch(r"==([\w.]+)", str(c.specifier)).group(1) for c in requirements("constraints.txt")}


def test_readme_table_is_what_the_generator_writes():
    text = readme.README.read_text(encoding="utf-8")
    assert readme.render(text) == text
    assert all(f"| {source.name[:2]} | [{notebooks.title(source)}]" in text for source in notebooks.lesson_sources())


def test_readme_without_markers_is_refused():
    with pytest.raises(notebooks.LessonError, match="markers"):
        readme.render("# no markers")


def test_readme_names_the_commands_and_what_it_shows_exists():
    text = readme.README.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert set(re.findall(r"`?make (run|test|lab|notebooks|record|test-matrix)\b", text)) <= targets
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_addresses_of_the_repository_come_from_the_constant():
    owner = re.compile(r"github\.com/([\w.-]+/[\w.-]+)|colab\.research\.google\.com/github/([\w.-]+/[\w.-]+)/blob")
    for name, text in tracked_text().items():
        found = {first or second for first, second in owner.findall(text)}
        strange = {repository for repository in found if repository.endswith("/" + REPOSITORY.split("/")[1])} - {
            REPOSITORY
        }
        assert not strange, name
    for source in notebooks.lesson_sources():
        assert notebooks.colab_url(f"notebooks/{source.stem}.ipynb") in readme.table()


def test_no_path_of_a_machine_is_tracked():
    found = {name: MACHINE_PATH.findall(text) for name, text in tracked_text().items()}
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_machine_paths_are_recognised():
    assert MACHINE_PATH.search("see /" + "home/ann/x.py") and MACHINE_PATH.search('"/' + 'tmp/a"')
    assert not MACHINE_PATH.search("assets/" + "work/x") and not MACHINE_PATH.search("https://example.org/" + "home/")


def test_no_example_of_hypothesis_has_a_deadline():
    """A busy machine is no defect: neither the profile nor a single test sets one."""
    assert settings().deadline is None
    own = {path.name: re.findall(r"settings\([^)]*deadline", path.read_text()) for path in (ROOT / "tests").glob("test_*.py")}
    assert {name: found for name, found in own.items() if found} == {}


# The paper's sections, and those that the modules of a topic name.
SECTIONS = {"1", "2", "2.1", "2.2", "3", "3.1", "3.2", "3.2.1", "3.2.2", "3.3", "4", "4.1", "4.2", "4.3", "4.3.1", "4.3.2",
            "4.3.3", "5", "5.1", "5.2", "5.3", "5.4", "6", "7"}
TOPICS = {"heads.py": {"3.1", "3.2.1"}, "backbone.py": {"3.1"}, "calibration.py": {"3.2.1"}, "cost_table.py": {"3.2.2"},
          "step_costs.py": {"3.2.2"}, "anchors.py": {"3.3"}, "losses.py": {"3.3"}, "drafts.py": {"3.3"}}


def sections_in(text):
    """The numbers that stand behind "section", "sections" or, in a list of them, "and"."""
    found = re.findall(r"(?i)\bsections? (\d(?:\.\d)*)(?:[^.;]{0,40}? and (\d(?:\.\d)+))?", text)
    return {number for pair in found for number in pair if number}


def test_sections_that_are_named_are_in_the_paper():
    named = {path: sections_in(text) for path, text in tracked_text().items() if path.endswith((".py", ".md", ".ipynb"))}
    assert {path: found - SECTIONS for path, found in named.items() if found - SECTIONS} == {}
    assert sum(map(len, named.values())) > 20


@pytest.mark.parametrize("name", TOPICS)
def test_each_topic_names_its_own_sections(name):
    (path,) = (ROOT / "dspark_lite").rglob(name)
    assert sections_in(path.read_text()) == TOPICS[name]


def test_licence_and_version():
    assert "MIT License" in (ROOT / "LICENSE").read_text()
    assert "the dspark-lite authors" in (ROOT / "LICENSE").read_text()
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_constraints_pin_every_requirement_within_its_bounds(name):
    versions = pinned()
    for requirement in requirements(name):
        assert requirement.name in versions, f"{requirement.name} has no pin in constraints.txt"
        assert versions[requirement.name] in requirement.specifier, requirement


def test_lower_bounds_admit_what_colab_has():
    bounds = {requirement.name: requirement.specifier for requirement in requirements("requirements.txt")}
    assert {name: version for name, version in COLAB.items() if version not in bounds[name]} == {}


def test_ruff_finds_nothing():
    finished = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--quiet", "."], cwd=ROOT, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_closing_table_has_a_line_a_drafter_and_a_dash_for_what_is_missing():
    row = {"drafter": "plain", "domain": "math", "tokens_per_second": 90.0, "speedup": 1.0, "accepted_length": 1.0}
    rows = [row, {**row, "domain": "chat"}, {**row, "drafter": "dspark", "speedup": 2.5, "accepted_length": 4.25}]
    lines = run_course.closing_table(rows).splitlines()
    assert lines[1].split() == ["drafter", "math", "chat", "math", "chat"]
    assert lines[2].split() == ["plain", "1.00", "1.00", "1.00", "1.00"]
    assert lines[3].split() == ["dspark", "4.25", "-", "2.50", "-"]
    assert len({len(line) for line in lines}) == 1
