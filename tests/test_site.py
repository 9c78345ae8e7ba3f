"""The web edition without a browser: its rules in JavaScript, and what becomes of notebooks and pages."""

import json
import re
import shutil
import subprocess

import nbformat
import pytest
import torch

from dspark_lite.common.files import ROOT
from dspark_lite.decoding.sampling import RandomSource, accept, residual
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.scheduling.policies import global_optimum, schedule, survival, throughput, top_k
from dspark_lite.course.exercises.checking import NOT_DONE
from dspark_lite.course.figures import lesson_03, style, widgets
from tools.site import pages

LESSONS = [path for path in pages.own_files() if path.endswith(".ipynb")]
FILES = {"notebooks/00_a.ipynb", "docs/glossary.md", "docs/decoding.md"}

# Random cases for the playground's rules (tools/site/static/rules.js), with the package's answers.

CASES = 200
# What a script that has imported rules.js as `rules` answers to each kind of case.
ANSWERS = """({
    rule: ({ target, draft }) => ({ overlap: rules.overlap(target, draft), residual: rules.residual(target, draft) }),
    accept: ({ targets, drafts, tokens, coins, last }) => rules.accept(targets, drafts, tokens, coins, last),
    schedule: ({ confidences, alive, sizes, speeds, budget, least }) => {
        const table = rules.costTable(sizes, speeds), found = rules.throughput(alive, table);
        return {
            survival: confidences.map(rules.survival), theta: found.theta, schedule: rules.schedule(alive, table),
            optimum: rules.lengthsOf(found.order, rules.topOf(found), alive.length), topK: rules.topK(alive, budget),
            threshold: rules.thresholdLengths(confidences, least),
        };
    },
})"""


class Given(RandomSource):
    """Coins and a number that are given beforehand, in place of a generator's."""

    def __init__(self, coins, last):
        self.coins, self.last = coins, last

    def accepted_prefix_length(self, keep):
        return (self.coins < keep).long().cumprod(-1).sum(-1)

    def draw(self, probs):
        return (probs.double().cumsum(-1) <= self.last).sum(-1)


def distributions(*shape, generator):
    """Random distributions; a third of the weights is 0."""
    weights = torch.rand(shape, generator=generator) * (
        torch.rand(shape, generator=generator) > 1 / 3
    )
    weights[..., 0] += 0.01
    return weights / weights.sum(-1, keepdim=True)


def rule_case(generator):
    """Two distributions (now and then the same one), how much they overlap and what is owed."""
    target, draft = distributions(2, 5, generator=generator)
    draft = target if torch.rand((), generator=generator) < 0.1 else draft
    answer = {
        "overlap": torch.minimum(target, draft).sum().item(),
        "residual": residual(target, draft).tolist(),
    }
    return {"target": target.tolist(), "draft": draft.tolist()}, answer


def accept_case(generator):
    """A block of up to four drafts, and what is kept and drawn after it."""
    gamma = int(torch.randint(1, 5, (), generator=generator))
    targets = distributions(gamma + 1, 4, generator=generator)
    drafts = distributions(gamma, 4, generator=generator)
    tokens = torch.multinomial(drafts, 1, generator=generator)[:, 0]
    coins = torch.rand(gamma, generator=generator)
    last = torch.rand((), generator=generator).double() * 0.999
    verdict = accept(targets[None], drafts[None], tokens[None], None, Given(coins, last))
    case = {"targets": targets, "drafts": drafts, "tokens": tokens, "coins": coins, "last": last}
    answer = {"accepted": verdict.accepted.item(), "next": verdict.next_token.item()}
    return {name: tensor.tolist() for name, tensor in case.items()}, answer


def schedule_case(generator):
    """Confidences (with ties, and zeros), a cost table with bumps that may end early, a budget, a threshold."""
    requests, gamma = (int(torch.randint(1, most, (), generator=generator)) for most in (6, 6))
    confidence = (torch.rand(requests, gamma, generator=generator) * 8).round() / 8
    alive = survival(confidence)
    last = requests + int(torch.randint(0, requests * gamma + 1, (), generator=generator))
    sizes = sorted({1, last, *torch.randint(1, last + 1, (4,), generator=generator).tolist()})
    speeds = (
        100 * torch.rand(len(sizes), generator=generator).sort(descending=True).values + 20
    ).double()
    table, least = CostTable(sizes, speeds), 0.45
    budget = int(torch.randint(0, requests * gamma + 1, (), generator=generator))
    answer = {
        "survival": alive,
        "theta": throughput(alive, table)[1],
        "schedule": schedule(alive, table),
        "optimum": global_optimum(alive, table),
        "topK": top_k(alive, budget),
        "threshold": (confidence >= least).long().cumprod(-1).sum(-1),
    }
    case = {
        "confidences": confidence.tolist(),
        "alive": alive.tolist(),
        "sizes": sizes,
        "speeds": speeds.tolist(),
        "budget": budget,
        "least": least,
    }
    return case, {name: tensor.tolist() for name, tensor in answer.items()}


def random_cases() -> dict[str, list[tuple[dict, dict]]]:
    """CASES pairs of a case and the package's answer, of each kind."""
    generator = torch.Generator().manual_seed(0)
    makers = {"rule": rule_case, "accept": accept_case, "schedule": schedule_case}
    return {kind: [make(generator) for _ in range(CASES)] for kind, make in makers.items()}


def differing(answer, expected) -> bool:
    """Whether two answers of the same form differ; numbers may by a millionth."""
    if isinstance(expected, dict):
        return answer.keys() != expected.keys() or any(
            differing(answer[name], value) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return len(answer) != len(expected) or any(map(differing, answer, expected))
    return (
        answer != expected
        if isinstance(expected, int)
        else abs(answer - expected) > 1e-6 * max(1, abs(expected))
    )


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_playgrounds_rules_answer_as_the_package_does():
    cases = random_cases()
    script = f"""import * as rules from "{(ROOT / "tools/site/static/rules.js").as_uri()}";
        import {{ readFileSync }} from "node:fs";
        const answers = {ANSWERS}, cases = JSON.parse(readFileSync(0));
        const told = Object.entries(cases).map(([kind, all]) => [kind, all.map(answers[kind])]);
        console.log(JSON.stringify(Object.fromEntries(told)));"""
    asked = json.dumps({kind: [case for case, _ in pairs] for kind, pairs in cases.items()})
    told = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        input=asked,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(told.stdout)
    for kind, pairs in cases.items():
        assert len(answers[kind]) == CASES == len(pairs), kind
        assert [
            case
            for (case, expected), answer in zip(pairs, answers[kind])
            if differing(answer, expected)
        ] == [], kind


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
    assert alt(page.cells[-1]) == pages.first_paragraph(lesson_03.two_caches).replace("`", "")


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
        ("Figure.", "picture = mine(1)", "A picture: A heading"),
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
    page = lesson(nbformat.v4.new_output("stream", name="stdout", text=f"{NOT_DONE}\n"), code="done = ...")
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
    scripts = (ROOT / "tools/site/static/widgets.js").read_text()
    names = {json.loads(widget)["drawing"] for widget in drawn} - {"living_round", *pages.BETS}
    assert all(re.search(rf"^function {name}\(", scripts, re.M) for name in names)


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
