"""The questions of the bets, from assets/bets/NN.json, one file a lesson.

A question is {"question", "why", "options": [{"text", "belief"?, "betrays"?}]} or, for a number, {"question", "why", "range":
[low, high, step], "unit", "within", "low": {"belief", "betrays"}, "high": {"belief", "betrays"}}. `belief` says what a wrong
choice takes for granted, `betrays` is one of BELIEFS, and `within` is the relative distance at which a number still wins. The
answers do not stand there: the lessons find them.
"""

from functools import cache

from ...common.errors import RequestError
from ...common.files import ROOT, read_json

FOLDER = ROOT / "assets" / "bets"
BELIEFS = {
    "drafter": "you trust drafters too much",
    "text": "you misjudge what is easy to draft",
    "check": "you trust the check too little",
    "clock": "you forget what a pass costs",
    "average": "you let an average speak for every case",
    "place": "you look for a mistake where it was made, not where it shows",
}


@cache
def questions() -> dict[str, dict]:
    """Return {"NN name": question} of all lessons, in their order."""
    return {
        f"{path.stem} {name}": question
        for path in sorted(FOLDER.glob("*.json"))
        for name, question in read_json(path).items()
    }


def question(name: str) -> dict:
    """Return the question "NN name". Raise RequestError if there is none."""
    if name not in questions():
        there = ", ".join(key for key in questions() if key[:2] == name[:2]) or "none"
        raise RequestError(f"There is no bet {name!r}; those of lesson {name[:2]} are {there}.")
    return questions()[name]


def by_lesson() -> dict[str, list[str]]:
    """Return {lesson: its bets} of all lessons."""
    lessons = {}
    for name in questions():
        lessons.setdefault(name[:2], []).append(name)
    return lessons


def lessons_with_a_case() -> list[str]:
    """Return the lessons that have a case in assets/cases."""
    return sorted(path.stem for path in (ROOT / "assets" / "cases").glob("*.json"))


def is_right(asked: dict, choice, answer) -> bool:
    """Return whether a choice wins: the same option, or a number within the tolerance of the answer."""
    if "range" in asked:
        return abs(choice - answer) <= asked["within"] * abs(answer)
    return choice == answer


def wrong_choice(asked: dict, choice, answer) -> dict:
    """Return what a wrong choice takes for granted: {"belief", "betrays"}, or {} where it was never expected to be wrong."""
    if "range" in asked:
        return asked["low"] if choice < answer else asked["high"]
    return next(option for option in asked["options"] if option["text"] == choice)
