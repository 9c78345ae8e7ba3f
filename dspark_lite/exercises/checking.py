"""What all checkers share: an unfinished stub is a reminder, a known mistake is named, an exception is reported."""

import functools

import torch


class Mistake(Exception):
    """The learner's answer is wrong in the way the message says."""


class Unfinished(Exception):
    """The learner has not written the answer yet."""


def checker(check):
    """Makes a checker of a function that raises Mistake: it prints one line and returns whether the answer is right."""

    @functools.wraps(check)
    def run(*answers) -> bool:
        try:
            check(*answers)
        except (Unfinished, NotImplementedError):
            print("Not done yet: replace the dots above and run both cells again.")
        except Mistake as mistake:
            print(f"Not yet: {mistake}")
        except Exception as error:
            print(f"Not yet: your code raised {type(error).__name__}: {error}")
        else:
            print("Correct.")
            return True
        return False

    return run


def finished(value):
    """The learner's value, or Unfinished where the stub still returns None or `...`."""
    if value is None or value is ...:
        raise Unfinished
    return value


def same(answer, right, tolerance: float = 1e-5) -> bool:
    """Whether two tensors or numbers have one shape and agree within `tolerance`."""
    answer, right = torch.as_tensor(answer), torch.as_tensor(right)
    return answer.shape == right.shape and torch.allclose(answer.double(), right.double(), atol=tolerance, rtol=0)


def name_mistake(answer, right, mistakes: dict[str, object], otherwise: str) -> None:
    """Raises Mistake unless `answer` equals `right`, with the sentence of the wrong answer it equals or `otherwise`.

    `mistakes` maps a sentence to the value that this mistake gives.
    """
    if same(answer, right):
        return
    for sentence, wrong in mistakes.items():
        if same(answer, wrong):
            raise Mistake(sentence)
    raise Mistake(otherwise)
