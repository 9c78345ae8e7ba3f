"""Lessons and the pages beside them: links hold, exercises are of three kinds with hints folded in, words are the house's."""

import ast
import re

import nbformat
import pytest

from tools.notebooks import build as notebooks

ROOT = notebooks.ROOT
SOURCES = notebooks.lesson_sources()
BESIDE = notebooks.more_sources()
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / ".github").glob("*.md"), *(ROOT / "docs").rglob("*.md")]
)
LESSONS = sorted(
    [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "notebooks/solutions").glob("*.ipynb")]
)
COMMITTED = LESSONS + sorted((ROOT / "notebooks/more").glob("*.ipynb"))
EXERCISE = re.compile(r"^### Exercise (\d+) · (.+) \((code|think|open)\)$", re.M)
LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")


def name_of(path):
    """Return a readable parameter id."""
    return f"{path.parent.name}/{path.name}"


def prose(source) -> list[str]:
    """Return the markdown cells of a lesson's source."""
    return [cell.source for cell in notebooks.read_cells(source) if cell.cell_type == "markdown"]


def anchors(path) -> set[str]:
    """Return what a link to a page may name after #: its own anchors and its headings as GitHub writes them."""
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {
        *re.findall(r'<a id="([\w-]+)"></a>', text),
        *(re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings),
    }


def broken(path, text) -> list[str]:
    """Return the relative links of a text at `path` whose file or anchor is not there."""
    found = []
    for link in LINK.findall(text):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if (
            not target.exists()
            or anchor
            and target.suffix == ".md"
            and anchor not in anchors(target)
        ):
            found.append(link)
    return found


@pytest.mark.parametrize("path", [*PAGES, *COMMITTED], ids=name_of)
def test_every_link_leads_somewhere(path):
    if path.suffix == ".md":
        text = path.read_text(encoding="utf-8")
    else:
        text = "\n".join(
            cell.source
            for cell in nbformat.read(path, as_version=4).cells
            if cell.cell_type == "markdown"
        )
    assert broken(path, text) == []


def test_what_the_pages_define_is_named_once():
    for page in PAGES:
        found = re.findall(r'<a id="([\w-]+)"></a>', page.read_text(encoding="utf-8"))
        assert len(found) == len(set(found)), page.name


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_every_lesson_cites_and_names_the_three_pages_where_it_begins(source):
    header = prose(source)[0]
    assert "references.md#" in header and "notation.md" in header and "glossary.md" in header


def test_every_lesson_leads_to_the_next():
    for source, following in zip(SOURCES, SOURCES[1:]):
        core = "\n\n".join(prose(source)).split("\n## Beyond the core")[0]
        assert f"]({following.stem}.ipynb)" in core.rpartition("**Next")[2], source.name


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_exercises_are_numbered_and_of_three_kinds(source):
    found = EXERCISE.findall("\n\n".join(prose(source)))
    assert [int(number) for number, *_ in found] == list(range(1, len(found) + 1))
    kinds = {kind for *_, kind in found}
    if "**Case" in "\n".join(prose(source)):
        kinds.add("think")  # what a case asks for
    assert {"code", "think"} <= kinds <= {"code", "think", "open"}
    assert not re.search(
        r"^\W*(\*\*Exercise|###? Exercise (?!\d+ · .+ \((code|think|open)\)$))",
        "\n".join(prose(source)),
        re.M,
    )


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_code_exercises_have_a_stub_and_the_others_fold_out_an_answer_or_a_hint(source):
    text = "\n\n".join(prose(source))
    parts = EXERCISE.split(text)
    bodies = list(zip(parts[3::4], parts[4::4]))
    stubs = [cell for cell in notebooks.read_cells(source) if "exercise" in notebooks.tags(cell)]
    coded = sum(kind == "code" for kind, _ in bodies)
    assert coded <= len(stubs) <= coded + sum(kind == "think" for kind, _ in bodies)
    assert text.count("<details>") == text.count("</details>")
    assert sum("<details>" in body for _, body in bodies) >= 0.6 * len(bodies)


MOST_NAMES = 10


@pytest.mark.parametrize("source", SOURCES + BESIDE, ids=name_of)
def test_a_lesson_opens_with_few_imports(source):
    """The first cell after the setup that imports anything; later cells import where a name first matters."""
    code = [
        cell.source
        for cell in notebooks.code_cells(notebooks.generate(source, solutions=False))
        if "setup" not in notebooks.tags(cell)
    ]
    first = next(text for text in code if re.search(r"^(import|from) ", text, re.M))
    imports = [
        node for node in ast.parse(first).body if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    assert len(imports) <= MOST_NAMES


def test_lessons_and_solutions_lead_to_each_other():
    for path in LESSONS:
        header = nbformat.read(path, as_version=4).cells[0].source
        assert (
            f"](../{path.name})" if path.parent.name == "solutions" else f"](solutions/{path.name})"
        ) in header


def outside(tree, kind):
    """Yield the nodes below a tree; of a function no more than its decorators and defaults, of the kind nothing inside."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, ast.FunctionDef):
            node = ast.Tuple([*node.decorator_list, *node.args.defaults])
        if not isinstance(node, kind):
            yield from outside(node, kind)


def bound(tree) -> set[str]:
    """Return the names that statements bind, functions' own left out."""
    names = set()
    for node in outside(tree, ast.ClassDef):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, ast.arg):
            names.add(node.arg)
        if isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def used_at_once(tree) -> set[str]:
    """Return the names that running a cell reads, bodies of functions and of lambdas left out."""
    return {
        node.id
        for node in outside(tree, ast.Lambda)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def read_inside(tree) -> set[str]:
    """Return the names that functions of a cell read and do not bind themselves."""
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    return {
        name.id
        for function in functions
        for name in ast.walk(function)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
    } - {name for function in functions for name in bound(function)}


@pytest.mark.parametrize(("source", "solutions"), notebooks.both_editions(SOURCES + BESIDE))
def test_a_cell_uses_names_that_earlier_cells_have_given(source, solutions):
    given, late, inside = {*dir(__builtins__), *__builtins__, "display"}, [], set()
    for cell in notebooks.code_cells(notebooks.generate(source, solutions)):
        tree = ast.parse(cell.source)
        late += sorted(used_at_once(tree) - given - bound(tree))
        given |= bound(tree)
        inside |= read_inside(tree)
    assert late == [] and sorted(inside - given) == []
