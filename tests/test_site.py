"""The web edition without a browser: its rules in JavaScript, and what becomes of notebooks and pages."""

import json
import re
import shutil
import subprocess

import nbformat
import pytest
import torch

from dspark_lite.common.files import ROOT
from dspark_lite.course.checkers.checking import NOT_DONE
from dspark_lite.course.figures import lesson_03, style, widgets
from dspark_lite.decoding.sampling import residual
from tools.site import light, pages

LESSONS = [path for path in pages.own_files() if path.endswith(".ipynb")]
FILES = {"notebooks/00_a.ipynb", "docs/glossary.md", "docs/decoding.md"}

CASES = 200  # random cases for the playground's rules (tools/site/scripts/rules.js)
# What a script that has imported rules.js as `rules` answers to a case.
ANSWER = """({ target, draft }) => {
    const chances = rules.keepChances(target, draft), owed = rules.residual(target, draft);
    return { kept: rules.kept(draft, chances), owed, committed: rules.committed(draft, chances, owed) };
}"""


def distributions(*shape, generator):
    """Random distributions; a third of the weights is 0."""
    weights = torch.rand(shape, generator=generator) * (
        torch.rand(shape, generator=generator) > 1 / 3
    )
    weights[..., 0] += 0.01
    return weights / weights.sum(-1, keepdim=True)


def rule_case(generator):
    """Two distributions, now and then the same one, and what the package says of them."""
    target, draft = distributions(2, 5, generator=generator)
    draft = target if torch.rand((), generator=generator) < 0.1 else draft
    return {
        "target": target.tolist(),
        "draft": draft.tolist(),
        "kept": torch.minimum(target, draft).sum().item(),
        "owed": residual(target, draft).tolist(),
    }


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_playgrounds_rule_answers_as_the_package_does():
    generator = torch.Generator().manual_seed(0)
    cases = [rule_case(generator) for _ in range(CASES)]
    script = f"""import * as rules from "{(ROOT / "tools/site/scripts/rules.js").as_uri()}";
        import {{ readFileSync }} from "node:fs";
        console.log(JSON.stringify(JSON.parse(readFileSync(0)).map({ANSWER})));"""
    told = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    for case, answer in zip(cases, json.loads(told.stdout), strict=True):
        assert answer["kept"] == pytest.approx(case["kept"], abs=1e-6)
        assert answer["owed"] == pytest.approx(case["owed"], abs=1e-5)
        assert answer["committed"] == pytest.approx(case["target"], abs=1e-6)


@pytest.mark.parametrize(
    ("link", "address"),
    [
        ("../docs/glossary.md#anchor", "../docs/glossary.html#anchor"),
        ("00_a.ipynb", "00_a.html"),
        ("../docs/decoding.md", "../docs/decoding.html"),
        ("solutions/00_a.ipynb", f"{pages.GITHUB}/notebooks/solutions/00_a.ipynb"),
        ("../assets/a b.json#c", f"{pages.GITHUB}/assets/a%20b.json#c"),
    ],
)
def test_a_link_leads_to_a_page_or_to_the_file(link, address):
    assert pages.address(link, "notebooks/00_a.ipynb", FILES) == address


def test_only_relative_links_outside_code_and_formulas_become_html():
    link = "[a *b* `c`](../docs/glossary.md)"
    text = (
        link
        + " [x](https://x.org) [y](#here) ![p](p.png) `[k](v.md)` $[i](j)$\n```\n[m](n.md)\n```"
    )
    written = '<a class="reference internal" href="../docs/glossary.html">a *b* `c`</a>'
    assert pages.linked(text, "notebooks/00_a.ipynb", FILES) == text.replace(link, written)


def test_a_link_to_a_reference_says_what_it_cites():
    files = {"docs/references.md", "docs/notation.md"}
    link = "[Leviathan et al.](../docs/references.md#leviathan), [notation](../docs/notation.md)"
    cites, other = re.findall("<a[^>]*>", pages.linked(link, "notebooks/00_a.ipynb", files))
    said = re.search('aria-description="([^"]*)"', cites)[1]
    assert said == (
        "Leviathan, Kalman, Matias. Fast Inference from Transformers via Speculative Decoding. "
        "2022, ICML 2023. arXiv 2211.17192"
    )
    assert "aria-description" not in other


def test_a_word_is_defined_by_the_lesson_of_its_name_or_the_first_that_prints_it_so():
    cells = [
        "# 01 · First\n\nThe **Residual**, a confidence.",
        "# 02 · Confidence\n\n[r](x/glossary.md#residual)",
    ]
    books = {
        f"notebooks/{k}.ipynb": nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_markdown_cell(text)]
        )
        for k, text in enumerate(cells)
    }
    found = {"confidence": "notebooks/1", "residual": "notebooks/0"}
    assert pages.defining_lessons(books) == found
    books["notebooks/1.ipynb"].cells[
        0
    ].source += '\n\n<a href="../docs/glossary.html#waste">waste</a>'
    assert pages.defining_lessons(books) == found | {"waste": "notebooks/1"}


def test_a_style_sheet_keeps_the_rules_for_what_a_page_or_a_script_names():
    sheet = (
        "h1{a:b}.used,.gone{a:b}.gone .used{a:b}.used:not(.gone){a:b}:is(.gone,.used){a:b}"
        "@media print{.gone{a:b}}@media screen{.used{a:b}.bs-new{a:b}}"
        "@font-face{src:url(fontawesome.woff)}@font-face{src:url(own.woff)}"
    )
    kept = (
        "h1{a:b}.used{a:b}.used:not(.gone){a:b}:is(.gone,.used){a:b}"
        "@media screen{.used{a:b}.bs-new{a:b}}@font-face{src:url(own.woff)}"
    )
    assert light.used_rules(sheet, {"used"}) == kept


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_modules_become_one_script_in_the_order_of_their_imports():
    script = light.bundle("page")
    order = re.findall(r"^modules\.(\w+) =", script, re.M)
    assert order[0] == "elements" and order[-1] == "page" and len(order) == len(set(order))
    assert order.index("rules") < order.index("playground")
    assert not re.search(r"^(import|export) ", script, re.M)
    subprocess.run(["node", "--check", "-"], input=script, text=True, check=True)


def lesson(*outputs, code="picture = figures.two_caches(7, 3)"):
    """A lesson's notebook whose last cell has these outputs."""
    new = nbformat.v4
    header = "# 03 · A title\n\n[![Open in Colab](badge.svg)](https://colab) · [Solutions](solutions/03_a.ipynb)\n\nText."
    return new.new_notebook(
        cells=[
            new.new_markdown_cell(header),
            new.new_code_cell("import os", metadata={"tags": ["setup"]}),
            new.new_code_cell("from dspark_lite.course.figures import lesson_03 as figures"),
            new.new_markdown_cell("## A heading"),
            new.new_code_cell(code, outputs=list(outputs)),
        ]
    )


def page_of(*outputs, **options):
    """What becomes of such a lesson; its last cell has the place of the pictures."""
    page = lesson(*outputs, **options)
    pages.lesson_page(page, "notebooks/03_a.ipynb", FILES)
    return page


def alt(cell):
    """A cell's picture in words."""
    return cell.metadata["mystnb"]["image"]["alt"]


def picture(text="<Figure size 3x4>", metadata=None):
    """An output with a picture."""
    return nbformat.v4.new_output(
        "display_data", {"image/png": "", "text/plain": text}, metadata=metadata or {}
    )


def test_a_page_has_doors_no_setup_and_pictures_in_words():
    page = page_of(nbformat.v4.new_output("display_data", {}, metadata={"glue": 1}), picture())
    assert (
        "colab.research.google.com/github" in page.cells[0].source
        and "badge.svg" not in page.cells[0].source
    )
    assert '<a href="03_a.ipynb" download>' in page.cells[0].source
    assert [cell.source for cell in page.cells[1:3]] == [
        "from dspark_lite.course.figures import lesson_03 as figures",
        "## A heading",
    ]
    assert len(page.cells[-1].outputs) == 1
    said = pages.first_paragraph(lesson_03.two_caches).replace("`", "")
    assert alt(page.cells[-1]) == "A" + said.removeprefix("Draw a")


def test_a_folded_cell_is_closed_under_its_title_and_a_stubs_dots_show_nothing():
    page = page_of(
        nbformat.v4.new_output("execute_result", {"text/plain": "Ellipsis"}),
        picture(),
        code="# @title Draw\npicture = mine(1)",
    )
    cell = page.cells[-1]
    assert (
        cell.source == "picture = mine(1)"
        and "hide-input" in cell.metadata["tags"]
        and len(cell.outputs) == 1
    )
    assert (
        "Draw" in cell.metadata["mystnb"]["code_prompt_show"]
        and alt(cell) == "A picture: A heading"
    )
    assert "hide-input" not in page_of(picture()).cells[-1].metadata.get("tags", [])


MOVING = "In a running notebook this figure moves."


@pytest.mark.parametrize(
    ("says", "code", "told"),
    [
        (MOVING, "x = 1", MOVING),
        ("<Figure size 3x4>", "picture = mine(1)", "A picture: A heading"),
        (repr(style.DescribedFigure()), "picture = mine(1)", "A picture: A heading"),
    ],
)
def test_pictures_of_widgets_and_of_unknown_functions_are_described_too(says, code, told):
    assert alt(page_of(picture(says), code=code).cells[-1]) == told


def test_a_figure_says_its_titles_its_axes_and_its_lines():
    fig, (left, right) = style.figure(2)
    left.plot([1, 2], label="plain")
    left.plot([2, 1], label="DSpark")
    left.set(title="Speed, measured", xlabel="requests", ylabel="tokens a second")
    left.legend()
    words = repr(fig)
    style.plt.close(fig)
    assert words == (
        "Figure. Speed, measured; tokens a second against requests; shown: plain, DSpark."
    )


def test_an_exercise_has_a_door_in_place_of_what_its_checker_says_of_dots():
    page = lesson(
        nbformat.v4.new_output("stream", name="stdout", text=f"{NOT_DONE}\n"), code="done = ..."
    )
    page.cells[-1].metadata["tags"] = ["exercise"]
    pages.lesson_page(page, "notebooks/03_a.ipynb", FILES)
    (door,) = page.cells[-1].outputs
    links = re.findall('href="([^"]*)"', door.data["text/html"])
    assert links == [f"{pages.COLAB}/notebooks/03_a.ipynb", "../docs/install.html"]


def test_a_widget_with_numbers_gets_a_place_before_its_picture():
    page = page_of(
        picture(
            metadata={
                widgets.WEB: json.dumps({"drawing": "frontier", "numbers": {"text": "</script>"}})
            }
        )
    )
    place, still = page.cells[-1].outputs
    held = re.search(r'<script type="application/json">(.*)</script>', place.data["text/html"])[1]
    assert (
        "</script>" not in held
        and json.loads(held)["numbers"] == {"text": "</script>"}
        and "image/png" in still.data
    )


def test_names_in_code_lead_to_their_place_until_the_lesson_defines_its_own():
    page = lesson(code="def two_caches(): ...")
    page.cells[2].source += "\nfrom dspark_lite.course.figures.lesson_03 import two_caches"
    _, before, after = pages.known_names(page)
    block = (
        '<span class="n">figures</span><span class="o">.</span><span class="n">two_caches</span>'
    )
    places = {lesson_03.__name__ + ".two_caches": "x.html"}
    assert (
        pages.with_references(block, before, places)
        == f'<a class="in-reference" href="x.html">{block}</a>'
    )
    assert (
        pages.with_references('<span class="n">os</span>', before, places)
        == '<span class="n">os</span>'
    )
    assert "two_caches" in before and "two_caches" not in after


@pytest.mark.parametrize("path", LESSONS)
def test_every_committed_lesson_becomes_a_page(path):
    page = nbformat.read(ROOT / path, as_version=4)
    outputs = [output for cell in pages.code_cells(page) for output in cell.outputs]
    drawn = [
        output.metadata[widgets.WEB]
        for output in outputs
        if widgets.WEB in output.get("metadata", {})
    ]
    pages.lesson_page(page, path, set(pages.own_files()))
    alts = [alt(cell) for cell in pages.code_cells(page) if "image" in cell.metadata["mystnb"]]
    assert (alts or path.startswith(pages.MORE)) and all(len(one) > 15 for one in alts)
    assert sum(map(len, drawn)) < 1_000_000
    script = (ROOT / "tools/site/scripts/page.js").read_text()
    known = re.search(r"DRAWINGS = \{(.*?)\}", script, re.S)[1]
    assert {json.loads(widget)["drawing"] for widget in drawn} <= set(re.findall(r"\w+", known))


def test_the_first_page_has_a_line_a_lesson_with_its_minutes():
    with_minutes, without = lesson(), lesson()
    with_minutes.cells[0].metadata.update(minutes=60, difficulty="hard")
    books = {"notebooks/03_a.ipynb": with_minutes, "notebooks/04_b.ipynb": without}
    title, _, _, _, *rows = pages.lesson_tables(books).splitlines()
    assert title == f"### {pages.PARTS[0]}" and pages.hours(books) == 1
    assert rows == [
        "| [03 · A title](notebooks/03_a.ipynb) | 60 min (hard) |",
        "| [03 · A title](notebooks/04_b.ipynb) |  |",
    ]


def test_every_room_has_its_page_of_the_reference():
    assert {"dspark_lite.decoding", "dspark_lite.course.figures"} < set(pages.rooms())
    text = pages.reference_page("dspark_lite.decoding")
    assert text.startswith("# dspark_lite.decoding\n") and "\n## rounds\n" in text
    assert text.count("automodule::") == 1 + len(pages.inside("dspark_lite.decoding"))
