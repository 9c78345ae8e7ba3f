"""The checkers of lesson 02 accept the solutions, remind of stubs, and name planted mistakes."""

import lesson_cells
import pytest
import torch

from dspark_lite.exercises.lesson_02 import check_keep, check_lossy_policies, check_next_distribution, check_residual
from dspark_lite.sampling import residual


@pytest.mark.parametrize(("tag", "said"), [("solution", "Correct."), ("exercise", "Not done yet")])
def test_solutions_pass_and_stubs_are_reminded_of(tag, said, capsys):
    count = lesson_cells.run("02", tag, residual=residual)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == count and all(line.startswith(said) for line in lines)


def scaled(values):
    """Values [V] that sum to 1."""
    return values / values.sum()


def row_before(target_probs, draft_probs, accepted):
    """The bonus from the row that judged the last draft."""
    if accepted == len(draft_probs):
        return target_probs[accepted - 1]
    return residual(target_probs[accepted], draft_probs[accepted])


def residual_everywhere(target_probs, draft_probs, accepted):
    """The last draft's share is subtracted from the bonus."""
    return residual(target_probs[accepted], draft_probs[min(accepted, len(draft_probs) - 1)])


def with_correction(correction):
    """A right bonus, and `correction(target_probs, draft_probs, accepted)` after a refusal."""
    return lambda p, q, accepted: p[accepted] if accepted == len(q) else correction(p, q, accepted)


MISTAKES = [
    (check_keep, lambda p, q: (q / p).clamp(max=1), "p and q are swapped"),
    (check_keep, lambda p, q: p / q, "at most 1"),
    (check_keep, torch.minimum, "drafted and kept"),
    (check_keep, lambda p, q: (p >= q).float(), "not never"),
    (check_residual, lambda p, q: (p - q).clamp(min=0), "not renormalised"),
    (check_residual, lambda p, q: scaled((q - p).clamp(min=0)), "p and q are swapped"),
    (check_residual, lambda p, q: p, "draws from p"),
    (check_residual, lambda p, q: scaled((p - q).abs()), "absolute value"),
    (check_residual, lambda p, q: p - q, "negative"),
    (check_next_distribution, row_before, "bonus from the wrong row"),
    (check_next_distribution, residual_everywhere, "nothing is subtracted"),
    (check_next_distribution, lambda p, q, accepted: p[accepted], "that is p on a refusal"),
    (check_next_distribution, with_correction(lambda p, q, k: residual(p[k - 1], q[k - 1])), "residual of the wrong row"),
    (check_next_distribution, with_correction(lambda p, q, k: residual(q[k], p[k])), "swapped in the residual"),
    (check_next_distribution, with_correction(lambda p, q, k: (p[k] - q[k]).clamp(min=0)), "not renormalised"),
    (check_next_distribution, with_correction(lambda p, q, k: p[-1]), "no bonus"),
    (check_lossy_policies, {"C"}, "D is lossy"),
    (check_lossy_policies, {"D"}, "C is lossy"),
    (check_lossy_policies, {"B", "C", "D"}, "B is lossless"),
    (check_lossy_policies, {"C", "D", "E"}, "E is lossless"),
    (check_lossy_policies, {"F"}, "letters from A to E"),
]


@pytest.mark.parametrize(("check", "answer", "named"), MISTAKES)
def test_a_planted_mistake_is_rejected_and_named(check, answer, named, capsys):
    assert check(answer) is False
    (line,) = capsys.readouterr().out.splitlines()
    assert named in line
