"""`make project`: the reference solutions pass, and what is wrong with another is said."""

import textwrap

import pytest

from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT
from dspark_lite.losslessness import find_violation
from tools.kit import project

SOLUTIONS = ROOT / "tools" / "kit" / "solutions"


def failing(kind, path, seed=0):
    """The questions that a project's file does not pass."""
    return [finding.asked for finding in project.grade(kind, path, seed) if not finding.passes]


@pytest.fixture
def written(tmp_path):
    """Writes a project's file."""

    def write(text):
        (tmp_path / "mine.py").write_text(textwrap.dedent(text))
        return tmp_path / "mine.py"

    return write


SLOW = {"head": "trains a head", "policy": "visits every outcome of a policy in several tables"}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow(reason=SLOW[kind])) if kind in SLOW else kind
        for kind in project.GRADERS
    ],
)
def test_the_reference_solution_passes(kind, capsys):
    assert (
        project.main(
            [kind, str(SOLUTIONS / f"{kind}.py"), "--seed", "0" if kind == "head" else "5"]
        )
        == 0
    )
    assert all(line.startswith("ok ") for line in capsys.readouterr().out.splitlines())


def test_a_lossy_policy_is_caught(written, monkeypatch):
    def alone(policy, requests, **asked):
        return find_violation(policy, **asked) if requests == 1 else None

    monkeypatch.setattr(project, "TABLES", {})
    monkeypatch.setattr(project, "find_violation", alone)
    path = written("from dspark_lite.scheduling import retrospective as policy")
    assert "lossless with 1 request in a step" in failing("policy", path)


def test_the_papers_policy_is_no_new_one(written, monkeypatch):
    # it is lossless: tests/test_scheduling.py
    monkeypatch.setattr(project, "find_violation", lambda policy, **asked: None)
    path = written("from dspark_lite.scheduling import algorithm1 as policy")
    assert failing("policy", path) == [
        f"{table}: at least 1.01 of Algorithm 1's throughput" for table in ("tiles of 16", "jagged")
    ]


EMPTY = """
    import torch
    from torch import nn

    class Head(nn.Module):
        def __init__(self, vocab_size, rank, hidden_size):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(vocab_size))

        def begin(self, hidden):
            return None

        def step(self, previous, hidden, state):
            return (0 * self.table).expand(*previous.shape, -1), state
    """


@pytest.mark.slow(reason="trains a head as the project does")
def test_a_head_that_sees_nothing_brings_too_little(written, monkeypatch):
    """However little it learns from."""
    monkeypatch.setattr(project, "BLOCKS", {"to learn from": 1, "to be graded by": 1})
    monkeypatch.setattr(project, "UPDATES", 2)
    assert failing("head", written(EMPTY)) == [
        "more tokens per round than without a head",
        "at least a third of the Markov head's gain",
    ]


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("def example(rng): return 'Say one.', 'one two three four five.', 1", 3),
        (
            "import random\ndef example(rng): return str(random.random()), str(random.random()), 1",
            2,
        ),
    ],
)
def test_a_world_that_is_none_is_told_why(written, text, failed):
    found = failing("world", written(f"{text}\ndef is_right(check, answer): return True"))
    assert len(found) >= failed and "another example's answer is right in at most 10 %" in found


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no example and no is_right"),
        ("def (", "cannot be run: SyntaxError"),
        (
            "def example(rng): return 1\ndef is_right(*_): return True",
            "your world raised TypeError",
        ),
    ],
)
def test_a_file_that_cannot_be_graded_is_a_sentence(written, capsys, text, sentence):
    path = written(text)
    assert project.main(["world", str(path)]) == 2 and sentence in capsys.readouterr().err
    with pytest.raises(RequestError, match="there is no"):
        project.grade("world", path.with_name("none.py"), 0)
