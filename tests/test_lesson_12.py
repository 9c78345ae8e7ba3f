"""Lesson 12: the checkers know right from wrong, and the lesson ends with the ledger."""

import lesson_cells
import notebooks
import numpy as np
import pytest

from dspark_lite.exercises import lesson_12


def test_solutions_pass(capsys):
    assert lesson_cells.run("12", "solution", exercises=lesson_12, np=np) == 4
    assert capsys.readouterr().out == 4 * "Correct.\n"


def test_stubs_are_reminders(capsys):
    assert lesson_cells.run("12", "exercise", exercises=lesson_12, np=np) == 4
    assert capsys.readouterr().out.count("Not done yet") == 4


def test_the_ledger_is_the_last_figure():
    (source,) = notebooks.lesson_sources("12")
    cells = [cell.source for cell in notebooks.read_cells(source) if cell.cell_type == "code"]
    assert [cell for cell in cells if "Markdown(" in cell and "import" not in cell][-2:] == \
        ["Markdown(ledger.ledger_table())", "Markdown(ledger.settings_table())"]


def length(tally):
    """Tokens a round."""
    return tally[:, 0].sum() / tally[:, 1].sum()


def gain(ours, theirs):
    """Ours over theirs."""
    return length(ours) / length(theirs) - 1


def over_domains(value):
    """An exercise's macro-average of `value(tally)`."""
    return lambda tallies: np.mean([value(tally) for tally in tallies.values()])


def pooled(tallies):
    """All prompts of all domains."""
    return np.concatenate(list(tallies.values()))


def shares(counts):
    """An exercise's conditional acceptance from `counts(accepted, k)` for k = 1, ..., gamma."""
    return lambda accepted, gamma: np.array([counts(accepted, k) for k in range(1, gamma + 1)])


WRONG = {
    lesson_12.check_macro_average: {
        lambda tallies: length(pooled(tallies)): "pooled the rounds",
        over_domains(lambda tally: (tally[:, 0] / tally[:, 1]).mean()): "averaged the accepted lengths of prompts",
        lambda tallies: (pooled(tallies)[:, 0] / pooled(tallies)[:, 1]).mean(): "over the prompts of all domains",
        over_domains(lambda tally: length(tally) - 1): "the bonus is missing",
        lambda tallies: sum(map(length, tallies.values())): "the sum over the domains",
        over_domains(lambda tally: 1 / length(tally)): "divided rounds by tokens",
        lambda tallies: 0.0: "not the mean over domains",
    },
    lesson_12.check_resampled_gain: {
        lambda ours, theirs, index: gain(ours[index], theirs): "their prompts were not redrawn",
        lambda ours, theirs, index: gain(ours, theirs[index]): "our prompts were not redrawn",
        lambda ours, theirs, index: gain(ours, theirs): "nothing was redrawn",
        lambda ours, theirs, index: gain(ours[[0, 2]], theirs[[0, 2]]): "each prompt was taken once",
        lambda ours, theirs, index: length(ours[index]) - length(theirs[index]): "a difference in tokens",
        lambda ours, theirs, index: gain(ours[index], theirs[index]) + 1: "one is still to be taken off",
        lambda ours, theirs, index: gain(theirs[index], ours[index]): "upside down",
        lambda ours, theirs, index: length(ours): "on the prompts drawn",
    },
    lesson_12.check_conditional_acceptance: {
        shares(lambda accepted, k: (accepted >= k).mean()): "prefix survival",
        shares(lambda accepted, k: (accepted == k).mean()): "exactly k accepted",
        shares(lambda accepted, k: 1 - (accepted >= k).sum() / (accepted >= k - 1).sum()): "share refused",
        shares(lambda accepted, k: 1.0): "rounds that kept the draft at k",
        shares(lambda accepted, k: (accepted >= k - 1).sum() / (accepted >= max(k - 2, 0)).sum()): "shifted by one",
        shares(lambda accepted, k: 0.5): "for each position k",
    },
    lesson_12.check_net_gain: {
        lambda gain, overhead: gain - overhead: "a difference of percents",
        lambda gain, overhead: (1 + overhead) / (1 + gain) - 1: "upside down",
        lambda gain, overhead: gain / overhead: "both are fractions",
        lambda gain, overhead: (1 + gain) / (1 + overhead): "one is still to be taken off",
        lambda gain, overhead: (1 + gain) * (1 + overhead) - 1: "slower, not faster",
        lambda gain, overhead: gain: "(1 + gain) / (1 + overhead) - 1",
    },
}


@pytest.mark.parametrize(("check", "answer", "name"),
                         [(check, answer, name) for check, wrong in WRONG.items() for answer, name in wrong.items()],
                         ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_named(check, answer, name, capsys):
    assert check(answer) is False
    assert name in capsys.readouterr().out
