"""The checkers of lesson 01 accept the solutions, remind of stubs, and name planted mistakes."""

import lesson_cells
import pytest

from dspark_lite.exercises.lesson_01 import check_break_even_tau, check_cache_bytes, check_draft_budget


@pytest.mark.parametrize(("tag", "said"), [("solution", "Correct."), ("exercise", "Not done yet")])
def test_solutions_pass_and_stubs_are_reminded_of(tag, said, capsys):
    count = lesson_cells.run("01", tag)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == count and all(line.startswith(said) for line in lines)


def per_token(config, heads, layers=1):
    """Numbers that one token keeps in keys alone."""
    return layers * heads * config.head_dim


MISTAKES = [
    (check_cache_bytes, lambda c, n, b: per_token(c, c.num_key_value_heads, c.num_hidden_layers) * n * b, "holds both"),
    (check_cache_bytes, lambda c, n, b: 2 * per_token(c, c.num_attention_heads, c.num_hidden_layers) * n * b, "attention heads"),
    (check_cache_bytes, lambda c, n, b: 2 * per_token(c, c.num_key_value_heads) * n * b, "one layer"),
    (check_cache_bytes, lambda c, n, b: 2 * per_token(c, c.num_key_value_heads, c.num_hidden_layers) * n, "how many numbers"),
    (check_cache_bytes, lambda c, n, b: 2 * per_token(c, c.num_key_value_heads, c.num_hidden_layers) * b, "one token"),
    (check_draft_budget, lambda tau, verify, plain, wanted: tau * plain / wanted, "take the verification off"),
    (check_draft_budget, lambda tau, verify, plain, wanted: plain / wanted - verify, "one token a round"),
    (check_draft_budget, lambda tau, verify, plain, wanted: tau * plain * wanted - verify, "upside down"),
    (check_draft_budget, lambda tau, verify, plain, wanted: tau * plain - verify, "wanted speed-up is missing"),
    (check_draft_budget, lambda tau, verify, plain, wanted: (tau - 1) * plain / wanted - verify, "tau - 1"),
    (check_break_even_tau, lambda draft, verify, plain: verify / plain, "time of drafting"),
    (check_break_even_tau, lambda draft, verify, plain: draft / plain, "time of verifying"),
    (check_break_even_tau, lambda draft, verify, plain: plain / (draft + verify), "turn the fraction over"),
    (check_break_even_tau, lambda draft, verify, plain: (draft + verify) / plain - 1, "accepted drafts"),
    (check_break_even_tau, lambda draft, verify, plain: 1 / 0, "raised ZeroDivisionError"),
]


@pytest.mark.parametrize(("check", "answer", "named"), MISTAKES)
def test_a_planted_mistake_is_rejected_and_named(check, answer, named, capsys):
    assert check(answer) is False
    (line,) = capsys.readouterr().out.splitlines()
    assert named in line
