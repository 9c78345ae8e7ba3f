"""What all checkers share: an unfinished stub is a reminder, a known mistake is named, an exception
is reported.

A checker of a function knows a right function and, by the sentence that names it, each wrong one.
All run on the same cases, so a learner's mistake is found by what it computes and is written down
once, for the checker and for its test.
"""

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import SimpleNamespace

import numpy as np
import torch

from .progress import note

NOT_DONE = "Not done yet: replace the dots above, or add the missing `return`, then run your code and this check again."
NOTHING_RETURNED = (
    "for some arguments your function returns nothing: every way through it ends with a `return`."
)
CHANGED_ARGUMENT = (
    "the answer is right, but your function changes what it is given, and whoever calls it still needs that. Work on a copy: "
    "`x = x - y` makes one, `x -= y` does not."
)
FIRST_CASES = 30


class Mistake(Exception):
    """The learner's answer is wrong in the way the message says."""


class Unfinished(Exception):
    """The learner has not written the answer yet."""


def checker(check):
    """Turn a function that raises Mistake into a checker: it prints one line, records a right answer,
    and returns whether the answer is right."""

    @functools.wraps(check)
    def run(*answers) -> bool:
        try:
            check(*answers)
        except (Unfinished, NotImplementedError):
            print(NOT_DONE)
        except Mistake as mistake:
            print(f"Not yet: {mistake}")
        except Exception as error:
            print(
                NOT_DONE
                if "ellipsis" in str(error)
                else f"Not yet: your code raised {type(error).__name__}: {error}"
            )
        else:
            print("Correct.")
            note(answers[0] if answers and isinstance(answers[0], Exercise) else run)
            return True
        return False

    return run


def finished(value):
    """Return the learner's value, or Unfinished where the stub still returns None or `...`, alone
    or as a part."""
    parts = value if isinstance(value, (tuple, list)) else [value]
    if any(part is None or part is ... for part in parts):
        raise Unfinished
    return value


def as_function(answer):
    """Return the learner's function; raise Mistake for a value in its place."""
    if not callable(finished(answer)):
        raise Mistake(
            f"the checker takes the function itself, not a value of type {type(answer).__name__}."
        )
    return answer


def boolean(mask):
    """Return a mask as it is. Raise Mistake unless its type is bool."""
    if (dtype := torch.as_tensor(mask).dtype) != torch.bool:
        raise Mistake(
            f"the mask holds {dtype}; it should say True where a token sees a key and False elsewhere."
        )
    return mask


def one_number(answer):
    """Return the answer. Raise Mistake unless it is a single number."""
    if np.ndim(answer):
        raise Mistake("return one number, the sum.")
    return answer


def as_truth(answer):
    """Return True or False of a Python truth value or a tensor that holds one."""
    if not isinstance(answer, (bool, int, np.bool_, torch.Tensor)):
        raise TypeError
    return bool(answer)


def as_values(answer):
    """Return what a function returned, for `same`: a float64 tensor, a tuple where the parts differ
    in shape, or a set."""
    if isinstance(finished(answer), (set, frozenset)):
        return answer
    if isinstance(answer, (tuple, list)):
        parts = tuple(as_values(part) for part in answer)
        stackable = all(
            isinstance(part, torch.Tensor) and part.shape == parts[0].shape for part in parts
        )
        return torch.stack(parts) if parts and stackable else parts
    return torch.as_tensor(answer, dtype=torch.float64)


def same(answer, right) -> bool:
    """Return whether two results have the same form and the same values.

    Numbers agree within 1e-5, or a relative 1e-6. Exceptions agree in type and message.
    """
    if type(answer) is not type(right):
        return False
    if isinstance(right, torch.Tensor):
        return answer.shape == right.shape and torch.allclose(answer, right, atol=1e-5, rtol=1e-6)
    if isinstance(right, tuple):
        return len(answer) == len(right) and all(map(same, answer, right))
    return repr(answer) == repr(right) if isinstance(right, Exception) else answer == right


def unchanged(given, before) -> bool:
    """Return whether tensors, arrays, numbers and texts, alone or in a container, are as they were.

    Containers are lists, tuples, dicts and namespaces. A NaN equals a NaN.
    """
    if isinstance(given, torch.Tensor):
        return given.shape == before.shape and torch.allclose(
            given, before, rtol=0, atol=0, equal_nan=True
        )
    if isinstance(given, np.ndarray):
        return np.array_equal(given, before, equal_nan=given.dtype.kind in "fc")
    if isinstance(given, dict):
        return list(given) == list(before) and all(map(unchanged, given.values(), before.values()))
    if isinstance(given, (tuple, list)):
        return len(given) == len(before) and all(map(unchanged, given, before))
    if isinstance(given, (int, float, str)):
        return given == before or given != given
    return not isinstance(given, SimpleNamespace) or unchanged(vars(given), vars(before))


@dataclass(frozen=True)
class Comparison:
    """One comparison of an exercise.

    `cases` are tuples of arguments. `mistakes` maps the sentence that names a mistake to the
    function that makes it, or to several. `otherwise` is said of a wrong answer that no mistake
    gives. `read(answer)` is what is compared of a returned value; it may raise Mistake, too, where
    the value has the wrong form. `parts` are narrower comparisons: the first of them that a wrong answer
    fails says which part of it is wrong, in place of `otherwise`. With `names`, those of the
    arguments, a case that is wrong stands before `otherwise`.
    """

    cases: Sequence[tuple]
    mistakes: dict[str, Callable | tuple[Callable, ...]]
    otherwise: str
    read: Callable = lambda answer: answer
    parts: Sequence["Comparison"] = ()
    names: tuple[str, ...] = ()

    def planted(self) -> list[tuple[str, Callable]]:
        """Return (sentence, wrong function) of every known mistake."""
        several = (
            (sentence, wrong if isinstance(wrong, tuple) else (wrong,))
            for sentence, wrong in self.mistakes.items()
        )
        return [(sentence, function) for sentence, functions in several for function in functions]

    def result(self, function, case: tuple):
        """Return what `function` gives for a case; an exception that it raises is a result as well."""
        try:
            # A function that changes its arguments changes copies only.
            answer = function(*copy.deepcopy(case))
        except (Unfinished, NotImplementedError):
            raise
        except Exception as error:
            return error
        try:
            return as_values(self.read(finished(answer)))
        except (Unfinished, Mistake):
            raise
        except Exception:
            name = type(answer).__name__
            raise Mistake(
                f"a value of type {name} cannot be read as the answer here; {self.otherwise}"
            ) from None

    def results(self, function) -> list:
        """Return what `function` gives for each case; raise Mistake where it answers some and
        returns nothing in others."""
        answers = []
        for case in self.cases:
            try:
                answers.append(self.result(function, case))
            except Unfinished:
                if all(isinstance(answer, Exception) for answer in answers):
                    raise
                raise Mistake(NOTHING_RETURNED) from None
        return answers

    def differing(self, answers: list, function) -> Iterator[tuple]:
        """Return (case, answer, what `function` gives) of the cases in which the two differ."""
        for answer, case in zip(answers, self.cases):
            other = self.result(function, case)
            if not same(answer, other):
                yield case, answer, other

    def place(self, case: tuple) -> str:
        """Return the arguments for which a function is wrong, in words; nothing without `names`."""
        arguments = ", ".join(f"{name} = {value}" for name, value in zip(self.names, case))
        return f"wrong for {arguments}: " if arguments else ""

    def makes(self, wrong, answers: list) -> bool:
        """Return whether `wrong` gives these results. One that `read` refuses gives none: its
        sentence comes from there."""
        try:
            return not any(True for _ in self.differing(answers, wrong))
        except Mistake:
            return False

    def check(self, function, right: tuple) -> None:
        """Raise Mistake, or what `function` itself raised, unless it gives the results of a
        function in `right` and leaves its arguments as they are. The first cases find most
        mistakes; all are asked where these find none."""
        first = replace(self, cases=[*islice(self.cases, FIRST_CASES)])
        for comparison in (first, self):
            comparison.compare(function, right)
        if first.changes_arguments(function):
            raise Mistake(CHANGED_ARGUMENT)

    def compare(self, function, right: tuple) -> None:
        """Raise Mistake, or what `function` itself raised, unless it gives the results of a
        function in `right`."""
        answers = self.results(function)
        if any(self.makes(reference, answers) for reference in right):
            return
        for sentence, wrong in self.planted():
            if self.makes(wrong, answers):
                raise Mistake(sentence)
        wrong = list(self.differing(answers, right[0]))
        for case, answer, wanted in wrong:
            if isinstance(answer, Exception):
                raise answer
            if sentence := _wrong_shape(answer, wanted):
                raise Mistake(f"{self.place(case)}{sentence}{self.otherwise}")
        for part in self.parts:
            part.compare(function, right)
        some = f"right in {len(answers) - len(wrong)} of {len(answers)} cases. "
        some = some if 2 * len(wrong) < len(answers) else ""
        raise Mistake(some + self.place(wrong[0][0]) + self.otherwise)

    def changes_arguments(self, function) -> bool:
        """Return whether `function` changes what it is given."""
        changed = []

        def watched(*given):
            before = copy.deepcopy(given)
            answer = function(*given)
            changed.append(not all(map(unchanged, given, before)))
            return answer

        for case in self.cases:
            self.result(watched, case)
        return any(changed)


def _wrong_shape(answer, wanted) -> str:
    """Return a sentence on two tensors of different shapes, "" for anything else."""
    tensors = isinstance(answer, torch.Tensor) and isinstance(wanted, torch.Tensor)
    if not tensors or answer.shape == wanted.shape:
        return ""
    return f"your answer has shape {list(answer.shape)}; it must be {list(wanted.shape)}. "


class Exercise:
    """A checker of a function: called with the learner's it prints one line and returns whether the
    answer is right.

    The comparisons are made in their order; `also_right` are functions with other results that are
    right as well. `manner` raises Mistake for a function whose results are right but which the
    exercise does not allow.
    """

    def __init__(self, reference, *comparisons: Comparison, also_right: tuple = (), manner=None):
        self.reference, self.comparisons = reference, comparisons
        self.also_right, self.manner = also_right, manner
        self.__doc__ = f"Check a function like `{reference.__name__}`. {reference.__doc__}"

    @checker
    def __call__(self, function):
        for comparison in self.comparisons:
            comparison.check(as_function(function), (self.reference, *self.also_right))
        if self.manner:
            self.manner(function)
