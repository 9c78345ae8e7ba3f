"""What a reader meets first is in order: README, licence, requirements, the rooms, no trace of anybody's machine."""

import ast
import importlib
import re
import subprocess
import sys
from functools import cache

import grimp
import numpy as np
import pytest
from importlinter.cli import lint_imports
from packaging.requirements import Requirement

import dspark_lite
from dspark_lite.common.about import REPOSITORY
from dspark_lite.common.supported import OLDEST
from dspark_lite.course.measure import studies
from dspark_lite.course.names import DOMAINS, DRAFTER_LABELS
from dspark_lite.course.replication import benchmark_results, experiment_results
from test_wheel import project
from tools.notebooks import build as notebooks, readme, run_course

ROOT = notebooks.ROOT
# Folders that exist on somebody's machine only; in two halves so that this file does not contain them.
FOLDERS = "|".join(
    a + b for a, b in [("ho", "me"), ("ro", "ot"), ("Us", "ers"), ("wo", "rk"), ("tm", "p")]
)
# Not the end of a longer path or of an address.
MACHINE_PATH = re.compile(rf"(?<![\w.~*\])}}-])/(?:{FOLDERS})/[^\s\"']*")


@cache
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
    """Return the requirements of a file, or of an extra of the package, that apply to this Python."""
    extras = project()["project"]["optional-dependencies"]
    lines = (
        extras[name]
        if name in extras
        else [line.strip() for line in (ROOT / name).read_text().splitlines()]
    )
    parsed = [Requirement(line) for line in lines if line and not line.startswith(("#", "-r"))]
    return [
        requirement
        for requirement in parsed
        if not requirement.marker or requirement.marker.evaluate()
    ]


def pinned(name="constraints/pins.txt"):
    """Return {package: exact version} of the constraints that apply to this Python, ranges left out."""
    found = {c.name: re.fullmatch(r"==([\w.]+)", str(c.specifier)) for c in requirements(name)}
    return {package: match.group(1) for package, match in found.items() if match}


def test_readme_table_is_what_the_generator_writes():
    for page in readme.TABLES:
        assert readme.render(page, page.read_text(encoding="utf-8")) == page.read_text(
            encoding="utf-8"
        )
    text = readme.README.read_text(encoding="utf-8")
    assert all(
        f"| {source.name[:2]} | [{notebooks.title(source)}]" in text
        for source in notebooks.lesson_sources()
    )


def test_readmes_drafters_are_the_stored_benchmarks_and_the_studies():
    """The fastest first; tokens per round are the mean of the trainings that the studies have."""
    lines = [line for line in benchmark_results.drafters().splitlines() if line.startswith("| ")]
    table = [line.strip("| ").split(" | ") for line in lines[2:]]
    overall, found = (
        benchmark_results.benchmark()["macro_speedup"],
        benchmark_results.benchmark_rows(),
    )
    names = {DRAFTER_LABELS[name]: name for name in overall}
    drafters = [names[row[0]] for row in table]
    assert drafters == sorted(set(overall) - {"plain"}, key=overall.get, reverse=True)
    for name, (_, speed, *lengths, trainings) in zip(drafters, table, strict=True):
        assert abs(float(speed) - overall[name]) <= 0.05
        runs = studies.TRAININGS.get(name, ())
        assert trainings == (str(len(runs)) if runs else "none")
        for domain, shown in zip(DOMAINS, lengths, strict=True):
            means = [experiment_results.accepted_lengths(run)[domain].value for run in runs]
            expected = np.mean(means) if runs else found[name, domain]["accepted_length"]
            assert abs(float(shown.split(" ")[0]) - expected) <= 0.05


def test_readme_without_markers_is_refused():
    with pytest.raises(notebooks.LessonError, match="markers"):
        readme.render(readme.README, "# no markers")


def test_readme_shows_a_persons_minutes_where_a_lesson_states_them(tmp_path, monkeypatch):
    lesson = tmp_path / "07_a_title.py"
    text = '# %% [markdown] tags=["header"]\n# # A title\n\n# %% tags=["setup"]\npass\n'
    monkeypatch.setattr(readme, "lesson_sources", lambda: [lesson])
    lesson.write_text(text)
    assert [line.count("|") for line in readme.lessons().splitlines()] == [5, 5, 5]
    lesson.write_text(text.replace('["header"]', '["header"] minutes=40 difficulty="medium"'))
    lines = readme.lessons().splitlines()
    assert [line.count("|") for line in lines] == [6, 6, 6] and lines[2].endswith(
        "| 40 min (medium) | not measured yet |"
    )


def test_readme_names_the_commands_and_what_it_shows_exists():
    text = readme.README.read_text(encoding="utf-8")
    named = set(re.findall(r"`?\bmake ([a-z]+(?:-[a-z]+)*)\b", re.sub(r"<!--.*?-->", "", text)))
    assert {"run", "test", "test-all", "lab"} <= named
    subprocess.run(["make", "-n", *named], cwd=ROOT, capture_output=True, check=True)
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_addresses_of_the_repository_come_from_the_constant():
    owner = re.compile(
        r"github\.com/([\w.-]+/[\w.-]+)|colab\.research\.google\.com/github/([\w.-]+/[\w.-]+)/blob"
    )
    for name, text in tracked_text().items():
        found = {first or second for first, second in owner.findall(text)}
        strange = {
            repository
            for repository in found
            if repository.endswith("/" + REPOSITORY.split("/")[1])
        } - {REPOSITORY}
        assert not strange, name
    lessons = readme.lessons()
    assert all(
        notebooks.colab_url(f"notebooks/{source.stem}.ipynb") in lessons
        for source in notebooks.lesson_sources()
    )


def test_no_path_of_a_machine_is_tracked():
    found = {name: MACHINE_PATH.findall(text) for name, text in tracked_text().items()}
    assert {name: paths for name, paths in found.items() if paths} == {}


@pytest.mark.parametrize("name", ["requirements.txt", "dev", "site"])
def test_constraints_pin_every_requirement_within_its_bounds(name):
    versions = pinned()
    for requirement in requirements(name):
        assert requirement.name in versions, (
            f"{requirement.name} has no pin in constraints/pins.txt"
        )
        assert versions[requirement.name] in requirement.specifier, requirement


@pytest.mark.parametrize("runtime", ["oldest", "middle", "colab"])
def test_lower_bounds_admit_what_colab_has(runtime):
    """Nothing is installed there."""
    bounds = {
        requirement.name: requirement.specifier for requirement in requirements("requirements.txt")
    }
    versions = pinned(f"constraints/{runtime}.txt")
    assert (
        versions
        and {name: version for name, version in versions.items() if version not in bounds[name]}
        == {}
    )


def test_the_oldest_versions_tested_are_the_lower_bounds():
    bounds = {
        requirement.name: requirement.specifier for requirement in requirements("requirements.txt")
    }
    oldest = pinned("constraints/oldest.txt")
    for name in ("transformers", "huggingface_hub"):
        assert str(bounds[name]) == ">=" + oldest[name].removesuffix(".0")
    assert {name: str(bounds[name]) for name in OLDEST} == {
        name: f">={version}" for name, version in OLDEST.items()
    }


@pytest.mark.parametrize(
    "command", [["check", "--quiet"], ["format", "--check", "--quiet"]], ids=["check", "format"]
)
def test_ruff_finds_nothing(command):
    finished = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


# First words that are no verb in base form: articles and the like, question words, and endings of
# third persons, participles and nouns. Other nouns get by.
NO_VERB = re.compile(
    "A|An|The|This|All|Both|Each|Every|One|Two|Three|Another|Other|Which|What|Whether|How|Why|Who|"
    "By|For|From|In|Inside|Of|On|With|May|Never|True|.*([^s]s|[^be]ed|[^r]ing|ion|ity|al)"
)


def opens_with_a_verb(docstring: str) -> bool:
    """Return whether the first word is capitalised, of letters alone, and not one of NO_VERB."""
    word = docstring.split()[0].rstrip(",:")
    return bool(re.fullmatch("[A-Z][a-z]+", word)) and not NO_VERB.fullmatch(word)


def functions_docstrings(source: str):
    """Yield the name and the docstring of every function of a source that has one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            yield node.name, ast.get_docstring(node)


def test_docstrings_of_functions_begin_with_a_verb():
    """The reader's file is not asked: its docstrings stand in the lessons as a reader writes them."""
    found = [
        f"{path.relative_to(ROOT)}: {name}: {docstring.splitlines()[0]}"
        for path in (
            ROOT / "course.py",
            *sorted((ROOT / "dspark_lite").rglob("*.py")),
            *sorted((ROOT / "tools").rglob("*.py")),
        )
        if path.name != "my_dspark.py"
        for name, docstring in functions_docstrings(path.read_text(encoding="utf-8"))
        if not opens_with_a_verb(docstring)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("docstring", "right"),
    [
        ("Return the lengths [R].", True),
        ("Draft, verify and commit one step.", True),
        ("Toss a coin.", True),
        ("The lengths [R].", False),
        ("Whether a coin comes up.", False),
        ("Returns the lengths [R].", False),
        ("Survival [g] of a block.", False),
        ("return the lengths [R].", False),
        ("`verify` as a rule.", False),
    ],
)
def test_a_docstring_that_begins_otherwise_is_found(docstring, right):
    source = f'class Block:\n    def lengths(self):\n        """{docstring}"""\n'
    ((name, found),) = functions_docstrings(source)
    assert (name, opens_with_a_verb(found)) == ("lengths", right)


def test_no_comment_stands_behind_a_closing_bracket():
    """The formatter moves it there when a line gets too long; it belongs above the statement."""
    found = {
        name: re.findall(r"^ *[])}]+:?,? +# (?!fmt: )(.*)", text, flags=re.M)
        for name, text in tracked_text().items()
        if name.endswith(".py")
    }
    assert {name: comments for name, comments in found.items() if comments} == {}


def test_the_package_imports_itself_by_relative_names():
    """ruff can refuse relative imports, but not absolute ones. Left out: the reader's file, which stands alone, and the
    command, which is run."""
    found = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in sorted((ROOT / "dspark_lite").rglob("*.py"))
        if path.name not in ("my_dspark.py", "__main__.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and not node.level
        if node.module.partition(".")[0] == "dspark_lite"
    ]
    assert found == []


def test_closing_table_has_a_line_a_drafter_and_a_dash_for_what_is_missing():
    row = {
        "drafter": "plain",
        "domain": "math",
        "tokens_per_second": 90.0,
        "speedup": 1.0,
        "accepted_length": 1.0,
    }
    rows = [
        row,
        {**row, "domain": "chat", "speedup": 2.0},
        {**row, "drafter": "dspark", "speedup": 2.5, "accepted_length": 4.25},
    ]
    lines = run_course.closing_table(rows).splitlines()
    assert lines[1].split() == ["drafter", "math", "chat", "mean", "math", "chat", "mean"]
    assert lines[2].split() == ["plain", "1.00", "1.00", "1.00", "1.00", "2.00", "1.50"]
    assert lines[3].split() == ["dspark", "4.25", "-", "-", "2.50", "-", "-"]
    assert len({len(line) for line in lines}) == 1


def rooms():
    """Return the rooms of the system and of the course."""
    return {path.parent.name for path in (ROOT / "dspark_lite").rglob("__init__.py")} - {
        "dspark_lite",
        "course",
    }


def test_imports_point_one_way(monkeypatch, capsys):
    """The contracts stand in pyproject.toml."""
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True, no_logo=True) == 0, capsys.readouterr().out


def test_the_page_on_the_house_shows_the_rooms_and_what_they_import():
    def room(module):
        name = module.removeprefix("dspark_lite.").removeprefix("course.").partition(".")[0]
        return name if name in rooms() else None

    graph = grimp.build_graph("dspark_lite", cache_dir=None)
    imported = {name: set() for name in rooms()}
    for module in graph.modules:
        if room(module):
            others = map(room, graph.find_modules_directly_imported_by(module))
            imported[room(module)].update(set(others) - {room(module), None})
    text = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+)/` \|[^|]*\|([^|]*)\|$", text, flags=re.M)
    assert {name: set(re.findall(r"`(\w+)`", names)) for name, names in shown} == imported


@pytest.mark.parametrize(
    ("code", "absent", "present"),
    [
        pytest.param(
            "from dspark_lite import generate",
            {"dspark_lite.course", "dspark_lite.training", "dspark_lite.losslessness"}
            | {"matplotlib", "ipywidgets", "IPython", "datasets"},
            "dspark_lite.decoding",
            marks=pytest.mark.slow(reason="imports torch in a process of its own"),
        ),
        ("import dspark_lite", {"torch", "transformers", "numpy"}, "dspark_lite.common"),
        (
            "from dspark_lite.__main__ import main; main([])",
            {"torch", "transformers", "numpy"},
            "dspark_lite.course",
        ),
    ],
)
def test_an_import_brings_no_more_than_is_asked_for(code, absent, present):
    """The list of commands comes without torch, decoding without course, training and what draws."""
    finished = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(); print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = finished.stdout.splitlines()[-1].split()
    imported = {".".join(name.split(".")[:2]) for name in names}
    assert present in imported and imported & absent == set()


def test_every_public_name_is_found_where_readers_and_type_checkers_look():
    tree = ast.parse((ROOT / "dspark_lite" / "__init__.py").read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))  # TYPE_CHECKING
    told = {name.name: f".{node.module}" for node in checked.body for name in node.names}
    assert told == dspark_lite.PLACES
    assert dir(dspark_lite) == dspark_lite.__all__ == sorted({*told, "__version__"})
    assert all(getattr(dspark_lite, name) is not None for name in dspark_lite.__all__)
    with pytest.raises(AttributeError, match="no attribute 'generated'"):
        _ = dspark_lite.generated


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("dspark_lite", "load_target"),
        ("dspark_lite", "load_drafter"),
        ("dspark_lite", "generate"),
        ("dspark_lite", "setup"),
        ("dspark_lite", "fit_sts"),
        ("dspark_lite", "schedule"),
        ("dspark_lite", "CostTable"),
        ("dspark_lite.scheduling.calibration", "fit_sts"),
        ("dspark_lite.scheduling.policies", "schedule"),
        ("dspark_lite.scheduling.cost_table", "CostTable"),
        ("dspark_lite.losslessness", "output_distribution"),
    ],
)
def test_names_that_other_programs_rely_on_are_where_they_were(module, name):
    assert callable(getattr(importlib.import_module(module), name))
