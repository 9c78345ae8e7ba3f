"""The checkers of all lessons: right functions pass, planted mistakes are named, wrong types and what is no answer yet get a sentence.

The lessons' own solutions and stubs are marked in test_kit_grade.py."""

import copy
import importlib
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dspark_lite.course.checkers.checking import (
    NOTHING_RETURNED,
    Exercise,
    as_values,
    same,
    unchanged,
)
from dspark_lite.course.checkers.random_cases import Cases, number
from dspark_lite.course.exercises import lesson_00, lesson_02, lesson_08, lesson_09, lesson_12
from tools.notebooks import build as notebooks

NUMBERS = [source.name[:2] for source in notebooks.lesson_sources()]
MODULES = {
    number: importlib.import_module(f"dspark_lite.course.exercises.lesson_{number}")
    for number in NUMBERS
}
EXERCISES = {
    f"{number} {name}": check
    for number, module in MODULES.items()
    for name, check in vars(module).items()
    if isinstance(check, Exercise)
}
PLANTED = [
    pytest.param(check, wrong, sentence, id=f"{name}: {sentence}")
    for name, check in EXERCISES.items()
    for step in check.comparisons
    for sentence, wrong in step.planted()
]
of_all_exercises = pytest.mark.parametrize("check", EXERCISES.values(), ids=EXERCISES)


def refusal(check, answer, capsys) -> str:
    """The one line with which a checker refuses an answer."""
    assert check(answer) is False
    (line,) = capsys.readouterr().out.splitlines()
    return line


@of_all_exercises
def test_every_right_function_passes(check, capsys):
    for right in (check.reference, *check.also_right):
        assert check(right) is True
        assert capsys.readouterr().out == "Correct.\n"


@pytest.mark.parametrize(("check", "wrong", "sentence"), PLANTED)
def test_a_planted_mistake_is_refused_by_its_sentence(check, wrong, sentence, capsys):
    line = refusal(check, wrong, capsys)
    assert line.startswith("Not yet: ") and line.endswith(sentence)


OTHER_VERDICT = dict(zip(lesson_12.VERDICTS, (*lesson_12.VERDICTS[1:], lesson_12.VERDICTS[0])))


def astray(value):
    """Values of the same form, each wrong in no way that anybody would make."""
    if isinstance(value, torch.Tensor):
        return (
            torch.rand(value.shape, generator=torch.Generator().manual_seed(1)) < 0.5
            if value.dtype == torch.bool
            else value + 0.37
        )
    if isinstance(value, np.ndarray):
        return value + 0.37
    if isinstance(value, (tuple, list)):
        return type(value)(astray(part) for part in value)
    if isinstance(value, set):
        return {"stray"}
    if isinstance(value, str):
        return OTHER_VERDICT.get(value, f"not {value}")
    return not value if isinstance(value, bool) else value + 0.37


@of_all_exercises
def test_a_wrong_answer_that_nobody_foresaw_is_told_what_is_right(check, capsys):
    step = check.comparisons[0]
    line = refusal(check, lambda *case: astray(check.reference(*case)), capsys)
    said = "|".join(re.escape(one.otherwise) for one in (step.parts or [step]))
    assert re.fullmatch(rf"Not yet: (right in \d+ of \d+ cases\. )?(wrong for .+: )?({said})", line)


def test_so_is_one_that_goes_astray_in_the_second_step(capsys):
    stray = lesson_02.after_refusal(lambda p, q, k: 0 * p[k])
    assert (
        refusal(lesson_02.check_next_distribution, stray, capsys)
        == f"Not yet: {lesson_02.CORRECTION.otherwise}"
    )


@of_all_exercises
def test_a_value_of_the_wrong_type_ends_in_a_sentence(check, capsys):
    for value in ("a word", object(), {"key": "value"}, ("a", "b"), [["a"]], torch, range):
        line = refusal(check, lambda *_, value=value: value, capsys)
        assert line.startswith("Not yet: ") and "raised" not in line, value


def unwritten(*_):
    """A stub that says so."""
    raise NotImplementedError


@pytest.mark.parametrize(
    "check",
    [lesson_00.check_speculate, lesson_02.check_keep],
    ids=["a step of its own", "a plain step"],
)
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        *(
            (stub, "Not done yet")
            for stub in (
                None,
                ...,
                lambda *_: None,
                lambda *_: ...,
                lambda *_: (..., ...),
                unwritten,
                lambda *_: (...).shape,
            )
        ),
        (lambda *_: [][1], "Not yet: your code raised IndexError: list index out of range"),
        *(
            (value, f"takes the function itself, not a value of type {type(value).__name__}")
            for value in (3, "a word", torch.zeros(2))
        ),
    ],
)
def test_what_is_no_answer_yet_ends_in_a_sentence(check, answer, said, capsys):
    assert said in refusal(check, answer, capsys)


@pytest.mark.parametrize("check", [lesson_02.check_keep, lesson_08.check_first_difference])
def test_a_learner_who_changes_the_arguments_does_not_change_the_cases(check):
    def spoiling(*case):
        for argument in case:
            if not isinstance(argument, float):
                argument.zero_() if isinstance(argument, torch.Tensor) else argument.clear()
        return 0

    check(spoiling)
    assert check(check.reference)


def test_an_answer_that_changes_its_arguments_is_refused(capsys):
    def in_place(p, q):
        p -= q
        return p.clamp_(min=0) / p.sum()

    assert "your function changes what it is given" in refusal(
        lesson_02.check_residual, in_place, capsys
    )


@pytest.mark.parametrize(
    "argument",
    [
        torch.tensor([1.0, torch.nan]),
        torch.tensor([True, False]),
        torch.tensor([1, 2]),
        np.array([1.0, np.nan]),
        np.array(["a", "b"]),
    ],
    ids=str,
)
def test_an_argument_that_stays_is_unchanged_also_with_nan(argument):
    changed = copy.deepcopy(argument)
    changed[0] = changed[1]
    assert unchanged([argument], [copy.deepcopy(argument)]) and not unchanged(argument, changed)


@pytest.mark.parametrize(
    ("before", "given"),
    [([2, 1], [1, 2]), ({"a": 0.5}, {"a": 0.25}), (["x"], ["y"]), ([True], [False])],
)
def test_numbers_and_texts_that_were_sorted_or_overwritten_are_changed(before, given):
    assert unchanged(before, list(before) if isinstance(before, list) else dict(before))
    assert not unchanged(given, before)
    assert unchanged([float("nan"), len], [float("nan"), len])


def test_a_way_through_without_a_return_is_named(capsys):
    def silent(ours, theirs, allowed):
        name = lesson_08.first_difference(ours, theirs, allowed)
        return None if name == "nowhere" else name

    said = refusal(lesson_08.check_first_difference, silent, capsys)
    assert said == f"Not yet: {NOTHING_RETURNED}"


def test_an_answer_that_is_seldom_wrong_is_told_how_often(capsys):
    """Wrong in two of a hundred random cases, and in none of the chosen ones."""

    def seldom(p, q):
        return lesson_02.keep_probability(p, q) * (not 0.48 < p.max() < 0.49)

    said = refusal(lesson_02.check_keep, seldom, capsys)
    assert re.match(r"Not yet: right in \d+ of 501 cases\. where p >= q", said)


def test_random_cases_are_the_same_every_time_and_come_after_the_chosen():
    cases = [Cases([(0,)], lambda generator: (number(generator, 1, 10**6),)) for _ in range(2)]
    assert list(cases[0]) == list(cases[1]) and len(cases[0]) == len(list(cases[0])) == 501
    assert cases[0][0] == (0,) and cases[0][-1] == cases[1].drawn[-1] and len(set(cases[0])) > 400


# Values are compared by what they are, not by how they are written.


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, torch.tensor(1), True),
        ((1, 2), np.array([1.0, 2.0]), True),
        ([torch.tensor(1.0), torch.tensor(2.0)], torch.tensor([1, 2]), True),
        (True, 1, True),
        ((1, [2, 3]), [1, (2, 3)], True),
        (1.0, 1.0 + 1e-6, True),
        (1.0, 1.0 + 1e-4, False),
        (float("nan"), float("nan"), False),
        ([1], 1, False),
        ((1, [2, 3]), (1, [2, 3], 4), False),
        ({"a"}, frozenset("a"), False),
        ({"a"}, {"a"}, True),
        ({"a"}, {"b"}, False),
        (IndexError("a"), IndexError("a"), True),
        (IndexError("a"), IndexError("b"), False),
        (IndexError("a"), KeyError("a"), False),
        (IndexError("a"), 1.0, False),
    ],
)
def test_results_are_compared_by_value_exceptions_too(one, other, equal):
    assert (
        same(
            *(value if isinstance(value, Exception) else as_values(value) for value in (one, other))
        )
        is equal
    )


# Single exercises.


def test_tensors_are_answers_in_lessons_that_use_arrays(capsys):
    def in_torch(predicted, observed, count):
        predicted, observed, count = map(torch.tensor, (predicted, observed, count))
        return ((predicted - observed).abs() * count).sum() / count.sum()

    assert lesson_09.check_ece(in_torch)
    assert capsys.readouterr().out == "Correct.\n"


@pytest.mark.parametrize(
    "one", [lambda p, q: torch.multinomial((p - q).clamp(min=0), 1), lambda p, q: 2]
)
def test_one_token_is_no_distribution(one, capsys):
    assert "that is one number; asked is the distribution" in refusal(
        lesson_02.check_residual, one, capsys
    )


def causes(**changed):
    """The right diagnosis but for some."""
    return {**lesson_08.RIGHT, **changed}


@pytest.mark.parametrize(("symptom", "cause"), lesson_08.NOT_THIS)
def test_a_wrong_cause_is_refused_by_its_sentence(symptom, cause, capsys):
    line = refusal(lesson_08.check_diagnosis, causes(**{symptom: cause}), capsys)
    assert line == f"Not yet: {symptom}: {lesson_08.NOT_THIS[symptom, cause]}"


def test_every_wrong_cause_has_its_sentence():
    symptoms, known = lesson_08.RIGHT, set(lesson_08.RIGHT.values())
    assert set(lesson_08.NOT_THIS) == {
        (symptom, cause) for symptom in symptoms for cause in known - {symptoms[symptom]}
    }


@pytest.mark.parametrize(
    ("diagnosis", "said"),
    [
        *(
            (causes(A=cause), f"A is {cause!r}; the causes are")
            for cause in ("thinking", 3, ["cache out of step"])
        ),
        (causes(D=...), "Not done yet"),
        (3, "is a dictionary"),
        (["cache out of step"], "is a dictionary"),
    ],
)
def test_a_diagnosis_in_another_form_ends_in_a_sentence(diagnosis, said, capsys):
    assert said in refusal(lesson_08.check_diagnosis, diagnosis, capsys)


@pytest.mark.parametrize(
    ("before", "given"),
    [
        ([1, 2], [1]),
        ([1, 2], [1, 2, 3]),
        ((1,), (1, 2)),
        ({"a": 1}, {}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": [1]}, {"a": []}),
        (SimpleNamespace(left=[1, 2]), SimpleNamespace(left=[1])),
        (torch.zeros(2), torch.zeros(3)),
    ],
    ids=str,
)
def test_a_container_that_grew_or_shrank_is_changed(before, given):
    assert unchanged(before, copy.deepcopy(before)) and not unchanged(given, before)
