"""The reader's own file: it grows in order, its judge passes the course's edition and finds what is wrong with another."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest
import torch

from dspark_lite.common.errors import RequestError
from dspark_lite.course.own_decoder import judge, keep
from dspark_lite.course.replication.lab_results import with_prompts
from tools.notebooks import build as notebooks

HEAD, PIECES = keep.split(keep.EDITION.read_text(encoding="utf-8"))
WRITTEN = [name for name in PIECES if name not in keep.GIVEN]


@pytest.fixture(scope="module")
def lab(short_lab):
    """One prompt a domain; the judge compares answers of 32 tokens."""
    lab = with_prompts(short_lab, 1)
    lab.max_new_tokens = 32
    return lab


@pytest.fixture
def edition():
    return judge.load(keep.EDITION)


def computed(source: str) -> dict[str, str]:
    """What the functions of a source compute, by name: their code without comments and docstrings."""
    functions = {
        node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
    }
    for node in functions.values():
        node.body = node.body[ast.get_docstring(node) is not None :]
    return {name: ast.dump(node) for name, node in functions.items()}


def test_what_the_lessons_solutions_keep_is_the_edition():
    """A lesson shows the function in its place, the edition in the file; one is read, the other collected."""
    kept = {}
    for source in notebooks.lesson_sources():
        code = [cell for cell in notebooks.read_cells(source) if cell.cell_type == "code"]
        names = {name for cell in code for name in re.findall(r"\bkeep\((\w+)\)", cell.source)}
        for cell in code:
            if "solution" in notebooks.tags(cell):
                kept |= {
                    name: one
                    for name, one in computed(cell.source).items()
                    if name in names & PIECES.keys()
                }
    assert {
        "speculate",
        "verify",
        "residual",
        "forget",
        "block_pass",
        "survival",
        "algorithm_1",
    } <= kept.keys()
    assert {name: computed(PIECES[name].source)[name] for name in kept} == kept


@pytest.mark.slow(reason="every outcome of the edition's functions, and its greedy answers")
def test_the_edition_passes_its_judge(lab):
    findings = judge.judge(keep.EDITION, lab, prompts=1)
    assert [finding for finding in findings if not finding.right] == [] and len(findings) == 11


def changed(folder, asked, right, wrong, lab):
    """The judge's finding on the edition with a piece of its text exchanged."""
    text = keep.EDITION.read_text(encoding="utf-8")
    assert text.count(right) >= 1
    (folder / "my_dspark.py").write_text(text.replace(right, wrong), encoding="utf-8")
    _, check = judge.questions(judge.load(folder / "my_dspark.py"), lab, 1)[asked]
    return judge.answered(asked, check)


PLANTED = {  # what is asked: (right, wrong)
    "speculate writes the big model's text": [(".cumprod(0).sum()", ".sum()")],
    "verify is lossless, every outcome visited": [
        ("owed = (p - q).clamp(min=0)", "owed = p"),
        ("draw(p[len(drafts)]", "draw(p[0]"),
    ],
    "generate is lossless, every outcome visited": [
        ("count - len(text) - 1", "count - len(text)"),
        ("text[-1], *drafts]", "*drafts, text[-1]]"),
    ],
    "algorithm_1 is the paper's": [
        ("(batch + 1) <= expected", "(batch + 1) < expected"),
        ("batch = float(len(survivals))", "batch = 0.0"),
        ("enumerate(row)))", "enumerate(row)), key=lambda one: (one[0], one[1], -one[2]))"),
        ("enumerate(survivals.tolist())", "enumerate(survivals.cumprod(1).tolist())"),
    ],
    "greedy tokens and rounds are the package's": [
        ("hidden_states[layer + 1]", "hidden_states[layer]"),
        ("extend(features[:len(new)])", "extend(features)"),
        ("drafts[-1] if drafts else anchor", "anchor"),
        ("drafts[-1] if drafts else anchor", "drafts[0] if drafts else anchor"),
    ],
}


DECODING = (
    "generate is lossless, every outcome visited",
    "greedy tokens and rounds are the package's",
)
slow = pytest.mark.slow(
    reason="decodes, or visits every outcome of four tokens; of each question the first error is quick enough"
)


@pytest.mark.parametrize(
    ("asked", "right", "wrong"),
    [
        pytest.param(asked, *pair, marks=slow if place and asked in DECODING else ())
        for asked, pairs in PLANTED.items()
        for place, pair in enumerate(pairs)
    ],
)
def test_the_judge_finds_a_planted_error(lab, tmp_path, asked, right, wrong):
    found = changed(tmp_path, asked, right, wrong, lab)
    assert not found.right and found.said


ENGINE = [  # what is asked of the engine: right, wrong, what the judge says
    (
        "the engine's step serves the target's texts",
        "engine.keep(number, len(tokens))",
        "engine.keep(number, len(tokens) - 1)",
        "one token too few stays",
    ),
    (
        "the engine's step serves the target's texts",
        "engine.keep(number, len(tokens))",
        "engine.keep(number, len(tokens) + 1)",
        "one token too many stays",
    ),
    (
        "the engine's step serves the target's texts",
        "engine.running[number] += tokens",
        "engine.running[number] += tokens[:-1] or tokens",
        "is missing from the answer",
    ),
    (
        "the engine verifies what algorithm_1 admits",
        "(drafts[:length], q[:length])",
        "(drafts, q)",
        "the pass reads whole blocks",
    ),
    (
        "the engine verifies what algorithm_1 admits",
        "lengths = algorithm_1(engine.survivals(), engine.sps)",
        "lengths = [sum(word % 2 for word in drafts) for drafts, q in blocks.values()]",
        "not the drafted words",
    ),
    (
        "the engine verifies what algorithm_1 admits",
        "lengths = algorithm_1(engine.survivals(), engine.sps)",
        "lengths = algorithm_1(engine.survivals(), engine.sps)[::-1]",
        "where algorithm_1 admits",
    ),
    (
        "the engine is lossless, every outcome visited",
        "lengths = algorithm_1(engine.survivals(), engine.sps)",
        "lengths = [drafts[0] for drafts, q in blocks.values()]",
        "a draw helps decide whether it is verified",
    ),
    (
        "the engine's budgets are two steps old",
        "            budget = host(confidences)\n        confidences = device.finish()",
        "            pass\n        budget = host(device.finish())",
        "that is one after another",
    ),
    (
        "the engine's budgets are two steps old",
        "            budget = host(confidences)\n",
        "            budget = host(confidences) - 1\n",
        "step t takes what the host made of step t - 2",
    ),
]


@pytest.mark.parametrize(
    ("asked", "right", "wrong", "said"),
    [pytest.param(*row, marks=slow if place in (1, 2) else ()) for place, row in enumerate(ENGINE)],
)
def test_the_judge_names_a_planted_error_of_the_engine(tmp_path, asked, right, wrong, said):
    found = changed(tmp_path, asked, right, wrong, None)
    assert not found.right and said in found.said


LOOKS_AHEAD = """def algorithm_1(survivals, sps):
    chances = survivals[0].tolist()
    return [max(range(len(chances) + 1), key=lambda k: (1 + sum(chances[:k])) * sps(1 + k))]"""


# 2e-4 from the target's
@pytest.mark.parametrize(
    ("asked", "right", "wrong"),
    [
        pytest.param(
            "scheduled, it is lossless still",
            PIECES["algorithm_1"].source,
            LOOKS_AHEAD,
            id="a scheduler that looks ahead",
        ),
        pytest.param(
            "generate is lossless, every outcome visited",
            "toss(p[k, x] / q[k, x]",
            "toss(0.999 * p[k, x] / q[k, x]",
            id="coins that are a little too low",
        ),
    ],
)
def test_the_judge_finds_texts_of_another_distribution(lab, tmp_path, asked, right, wrong):
    found = changed(tmp_path, asked, right, wrong, lab)
    assert not found.right and "total variation" in found.said


def test_what_is_missing_is_named_and_the_rest_is_judged(lab, tmp_path, capsys, edition):
    keep.keep(edition.speculate, edition.verify, edition.residual, path=tmp_path / "mine.py")
    first, *others = judge.judge(tmp_path / "mine.py", lab)
    assert not first.right and "block_pass" in first.said and "verify" not in first.said
    assert [finding.right for finding in others] == [True, True]
    assert judge.report([first, *others]).endswith("1 of 3 not yet.")


def test_all_pieces_kept_in_any_order_make_the_edition(tmp_path, edition, capsys):
    for name in reversed(WRITTEN):
        assert keep.keep(getattr(edition, name), path=tmp_path / "mine.py")
    assert (tmp_path / "mine.py").read_text(encoding="utf-8") == keep.EDITION.read_text(
        encoding="utf-8"
    )
    assert f"{len(WRITTEN)} of {len(WRITTEN)} pieces" in capsys.readouterr().out


def test_the_file_runs_from_the_first_piece_on_and_a_piece_is_replaced(tmp_path, edition, capsys):
    path = tmp_path / "mine.py"
    keep.keep(edition.speculate, path=path)
    assert hasattr(judge.load(path), "speculate") and not hasattr(judge.load(path), "toss")
    keep.keep(edition.residual, path=path)
    own = "def residual(p, q):\n    return p  # mine\n"
    keep.keep(function_of(tmp_path, own, "residual"), path=path)
    text = path.read_text()
    assert (
        "# mine" in text
        and text.count("def residual") == 1
        and text.index("def speculate") < text.index("def toss") < text.index("def residual")
    )
    assert [line for line in text.splitlines() if line.startswith("# Lesson")] == [
        PIECES["speculate"].comment.splitlines()[0],
        PIECES["toss"].comment.splitlines()[0],
    ]


def function_of(folder, source: str, name: str):
    """A function that a cell defines with this source."""
    path = folder / f"cell_{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    cell = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cell)
    return getattr(cell, name)


def test_a_decorator_stays_with_its_function_at_the_next_keep(tmp_path, edition, capsys):
    path = tmp_path / "mine.py"
    source = (
        "import torch\n\n\n@torch.no_grad()\ndef verify(p, q, drafts, generator):\n    return []\n"
    )
    verify = function_of(tmp_path, source, "verify")
    keep.keep(verify, path=path)
    keep.keep(edition.residual, path=path)
    keep.keep(verify, path=path)
    assert path.read_text().count("@torch.no_grad()\ndef verify") == 1


def test_what_the_reader_added_by_hand_stays(tmp_path, edition, capsys):
    path = tmp_path / "mine.py"
    keep.keep(edition.verify, path=path)
    text = path.read_text()
    own = text.replace("import json", "import json\nimport math\n\nLIMIT = math.inf")
    own = own.replace("def verify(", "# mine\nNEAR = 1e-6\n\n\ndef verify(") + "\n\nLAST = 3\n"
    own = own.replace("import torch.nn.functional as F\n", "")
    path.write_text(own)
    keep.keep(edition.residual, edition.survival, path=path)
    text = path.read_text()
    for line in ("import math", "LIMIT = math.inf", "# mine", "NEAR = 1e-6", "LAST = 3"):
        assert text.splitlines().count(line) == 1, line
    mine = judge.load(path)
    assert mine.NEAR == 1e-6 and mine.F is torch.nn.functional and mine.survival


def test_a_comment_about_a_lesson_is_no_heading(tmp_path, edition, capsys):
    path = tmp_path / "mine.py"
    keep.keep(edition.verify, path=path)
    path.write_text(path.read_text() + "\n\n# Lesson notes: mine\ndef own():\n    return 3\n")
    keep.keep(edition.survival, path=path)
    assert judge.load(path).own() == 3 and "# Lesson notes: mine" in path.read_text()


def test_a_file_that_is_no_python_is_one_sentence_and_stays(tmp_path, edition):
    path = tmp_path / "mine.py"
    for broken in (b"x = 1\ndef (", b"\xff"):
        path.write_bytes(broken)
        with pytest.raises(RequestError, match="mine.py cannot be read as Python"):
            keep.keep(edition.verify, path=path)
        assert path.read_bytes() == broken


def test_the_place_is_beside_the_notebook_or_where_the_environment_says(tmp_path, monkeypatch):
    assert keep.own_file() == Path("my_dspark.py")
    monkeypatch.setenv("DSPARK_MINE", str(tmp_path / "drive.py"))
    assert keep.own_file() == tmp_path / "drive.py"


def test_a_function_without_a_place_or_a_source_is_refused(tmp_path):
    def other():
        """No piece."""

    with pytest.raises(RequestError, match="no piece of my_dspark.py"):
        keep.keep(other, path=tmp_path / "mine.py")
    made = {}
    exec("def verify(): pass", made)
    with pytest.raises(RequestError, match="cannot be read"):
        keep.keep(made["verify"], path=tmp_path / "mine.py")
    assert not (tmp_path / "mine.py").exists()


def test_a_missing_or_broken_file_is_one_sentence(tmp_path):
    with pytest.raises(RequestError, match="there is no"):
        judge.load(tmp_path / "none.py")
    (tmp_path / "broken.py").write_text("def (")
    with pytest.raises(RequestError, match="cannot be run: SyntaxError"):
        judge.load(tmp_path / "broken.py")


def test_own_randomness_is_back_after_the_visits(edition):
    usual = edition.toss, edition.draw
    judge._verifies(edition)
    assert (edition.toss, edition.draw) == usual
    assert edition.draw(torch.tensor([0.0, 1.0]), torch.Generator().manual_seed(0)) == 1


def test_the_courses_functions_stand_in_for_those_that_are_missing(
    tmp_path, monkeypatch, edition, capsys
):
    monkeypatch.setenv("DSPARK_MINE", str(tmp_path / "mine.py"))
    assert judge.own_or_course().step.__module__ == keep.EDITION.stem
    keep.keep(edition.step)
    capsys.readouterr()
    mine = judge.own_or_course("step", "pipelined")
    assert mine.step.__module__ == "mine" and mine.pipelined.__module__ == keep.EDITION.stem
    assert mine.step.__globals__["algorithm_1"] is mine.algorithm_1
    assert capsys.readouterr().out == "step is yours\npipelined is the course's\n"
