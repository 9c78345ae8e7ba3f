"""Lesson 04: the checkers know right from wrong, and the pieces that the lesson leans on hold."""

import lesson_cells
import pytest
import torch

from dspark_lite import collisions
from dspark_lite.exercises import lesson_04


def test_solutions_pass(capsys):
    assert lesson_cells.run("04", "solution", exercises=lesson_04) == 4
    assert capsys.readouterr().out == 4 * "Correct.\n"


def test_stubs_are_reminders(capsys):
    assert lesson_cells.run("04", "exercise", exercises=lesson_04) == 4
    assert capsys.readouterr().out.count("Not done yet") == 4


def masks(anchor, gamma, mask_id):
    """Ids [B, gamma], all masks."""
    return torch.full((len(anchor), gamma), mask_id)


WRONG = {
    lesson_04.check_features: {
        lambda states, taps: torch.cat([states[i] for i in taps], -1): "index 0 is the embedding",
        lambda states, taps: sum(states[i + 1] for i in taps): "added the taps up",
        lambda states, taps: torch.cat([states[i + 1] for i in taps], 1): "along the last axis",
        lambda states, taps: torch.cat([states[i + 1] for i in reversed(taps)], -1): "in reverse",
        lambda states, taps: states[-1]: "are not hidden_states[i + 1]",
    },
    lesson_04.check_block_ids: {
        masks: "the anchor is missing",
        lambda a, g, m: torch.cat([a[:, None], masks(a, g, m)], 1): "gamma masks behind the anchor",
        lambda a, g, m: torch.cat([masks(a, g - 1, m), a[:, None]], 1): "stands at the end",
        lambda a, g, m: a[:, None].repeat(1, g): "every slot holds the anchor",
    },
    lesson_04.check_positions: {
        lambda n, g: torch.arange(g): "restart at 0",
        lambda n, g: n + 1 + torch.arange(g): "one place too far right",
        lambda n, g: n - 1 + torch.arange(g): "shares the last context token's position",
        lambda n, g: torch.full((g,), n): "all slots stand at one position",
    },
    lesson_04.check_block_mask: {
        lambda n, g: torch.ones(g, n + g).tril(n).bool(): "causal mask",
        lambda n, g: torch.arange(n + g).expand(g, -1) < n: "do not see one another",
        lambda n, g: torch.cat([torch.ones(g, n), torch.eye(g)], 1).bool(): "only itself",
        lambda n, g: torch.arange(n + g).expand(g, -1) >= n: "do not see the context",
        lambda n, g: torch.ones(n + g, n + g).bool(): "a row for every key",
    },
}


@pytest.mark.parametrize(("check", "answer", "name"), [(c, a, n) for c, wrong in WRONG.items() for a, n in wrong.items()],
                         ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_named(check, answer, name, capsys):
    assert check(answer) is False
    assert name in capsys.readouterr().out


def test_mutual_information_of_tables_known_by_hand():
    assert collisions.mutual_information(torch.full((2, 2), 0.25)) == pytest.approx(0, abs=1e-6)
    assert collisions.mutual_information(torch.eye(2)) == pytest.approx(0.6931, abs=1e-4)
