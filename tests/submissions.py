"""Submissions of lesson 02, as readers hand them in: the student edition's notebook with answers in its cells."""

import ast
import copy
import functools

import nbformat

from tools.kit import lessons, release

LESSON = next(path for path in lessons.lesson_paths() if path.name.startswith("02"))
OTHER = next(path for path in lessons.lesson_paths() if path.name.startswith("12"))
LOOP = "def residual(p, q):\n    while True:\n        pass\n"
FROM_P = "def residual(p, q):\n    return p\n"
READS = """def residual(p, q):
    from dspark_lite.common.files import ROOT
    text = (ROOT / "notebooks" / "solutions" / "02_the_lossless_rule.ipynb").read_text()
    found = {}
    for cell in __import__("json").loads(text)["cells"]:
        source = "".join(cell["source"])
        if source.startswith("def residual"):
            exec("import torch\\n" + source[: source.index("done =")], found)
    return found["residual"](p, q)
"""
HELPERS = """ONE = 1.0
TABLES = {}
TABLES["most"] = ONE
share = lambda p, q: p / q  # noqa: E731
%matplotlib inline
"""
WITH_HELPERS = """def keep_probability(p, q):
    return share(p, q).clamp(max=TABLES["most"])
"""
WRONG_ROW = """def next_distribution(target_probs, draft_probs, accepted):
    if accepted == len(draft_probs):
        return target_probs[accepted - 1]
    return residual(target_probs[accepted], draft_probs[accepted])
"""


@functools.cache
def answers():
    """The solutions of lesson 02, by name."""
    found = {}
    for cell in lessons.read_notebook(LESSON.parent / "solutions" / LESSON.name).cells:
        if lessons.tagged(cell, "solution"):
            nodes = [node for node in ast.parse(cell.source).body if hasattr(node, "name")]
            found |= {node.name: ast.get_source_segment(cell.source, node) + "\n" for node in nodes}
    return found


@functools.cache
def edition(path=LESSON):
    """A lesson's notebook in the student edition."""
    return release.without_answers(lessons.read_notebook(path), path.stem, badge=False)


def notebook(own=(), first="", path=LESSON):
    """A lesson's notebook with the solutions in its cells, but for the answers of `own` ({name: source}); a cell `first`
    stands before the first exercise."""
    made, given = copy.deepcopy(edition(path)), {**answers(), **dict(own)}
    for cell in made.cells:
        for name, source in given.items():
            if lessons.tagged(cell, "exercise") and cell.source.startswith(f"def {name}("):
                cell.source = f"{source}\n\n{cell.source[cell.source.index('done = ') :]}"
    at = next(at for at, cell in enumerate(made.cells) if lessons.tagged(cell, "exercise"))
    if first:
        made.cells.insert(at, nbformat.v4.new_code_cell(first))
    return made


def text(made):
    """The text of a notebook's file."""
    return nbformat.writes(made)


def without_json():
    """A file of prose."""
    return "My answers are on paper.\n"


# (name, the file's text, points of the exercises 1, 3, 4 and 5, what the marks say somewhere).
SUBMISSIONS = {
    "04_loop": (lambda: text(notebook({"residual": LOOP})), [1, 0, 1, 1], "longer than"),
    "05_reads_solutions": (
        lambda: text(notebook({"residual": READS})),
        [1, 0, 1, 1],
        "opens notebooks/solutions",
    ),
    "06_patches_checkers": (
        lambda: text(
            notebook(
                {
                    "keep_probability": "def keep_probability(p, q):\n    return p\n",
                    "residual": FROM_P,
                },
                "from dspark_lite.course.exercises import lesson_02\n"
                "lesson_02.check_keep = lesson_02.check_residual = lambda *_: print('Correct.') or True",
            )
        ),
        [0, 0, 1, 1],
        "replaces dspark_lite.course.exercises.lesson_02.check_keep",
    ),
    "07_courses_own": (
        lambda: text(
            notebook(
                {
                    "verify": "verify = exercises.verify\n",
                    "residual": "def residual(p, q):\n    return exercises.residual(p, q)\n",
                }
            )
        ),
        [1, 1, 1, 0],
        "uses the course's own residual",
    ),
    "08_replaces_torch": (
        lambda: text(
            notebook(
                {"keep_probability": "def keep_probability(p, q):\n    return p\n"},
                "import torch\ntorch.allclose = lambda *_, **__: True",
            )
        ),
        [0, 1, 1, 1],
        "replaces torch.allclose",
    ),
    "09_ends_python": (
        lambda: text(
            notebook({"residual": "def residual(p, q):\n    __import__('os')._exit(0)\n"})
        ),
        [1, 0, 1, 1],
        "ended Python",
    ),
    "10_no_json": (without_json, [0, 0, 0, 0], "no JSON"),
    "11_endless_cell": (
        lambda: text(notebook(first="import torch\nwhile torch is not None:\n    pass")),
        [1, 1, 1, 1],
        "",
    ),
    "12_one_wrong": (lambda: text(notebook({"residual": FROM_P})), [1, 0, 1, 1], "draws from p"),
    "13_helpers": (
        lambda: text(notebook({"keep_probability": WITH_HELPERS}, HELPERS)),
        [1, 1, 1, 1],
        "",
    ),
    "14_two_wrong": (
        lambda: text(notebook({"residual": FROM_P, "next_distribution": WRONG_ROW})),
        [1, 0, 0, 1],
        "bonus from the wrong row",
    ),
    "15_another_lesson": (
        lambda: text(lessons.read_notebook(OTHER)),
        [0, 0, 0, 0],
        "another lesson, 12",
    ),
}


def write_all(folder, chosen=tuple(SUBMISSIONS)):
    """Write submissions into a folder, one for each student."""
    for name in chosen:
        path = folder / name / LESSON.name
        path.parent.mkdir(parents=True)
        path.write_text(SUBMISSIONS[name][0](), encoding="utf-8")
    return folder
