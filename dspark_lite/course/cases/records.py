"""The cases of assets/cases/NN.json, one a lesson, and what measurements tell of their suspects.

A case is {"title", "story", "measurements": {name: {"does", "tells", "result"}}, "suspects": {suspect:
{measurement: why it speaks against this suspect}}, "cause", "why", "seen"?}. `result` and `seen` are lists of lines that
`python -m tools.measure.cases` writes, of code that has the fault; the rest is written by hand.
"""

from ...common.errors import RequestError
from ...common.files import ROOT, read_json

FOLDER = ROOT / "assets" / "cases"
MAX_MEASUREMENTS = 3  # measurements of a case that a reader may take


def read_case(number: str) -> dict:
    """Return the case of a lesson ("03"). Raise RequestError if it has none."""
    path = FOLDER / f"{number}.json"
    if not path.exists():
        there = ", ".join(sorted(found.stem for found in FOLDER.glob("*.json")))
        raise RequestError(f"There is no case {number!r}; there are {there}.")
    return read_json(path)


def scene(number: str, found: dict | None = None) -> dict:
    """Return what bet.js draws of a case: the recorded one, or `found`."""
    return {"name": f"case {number}", "most": MAX_MEASUREMENTS, **(found or read_case(number))}


def left(found: dict, taken: list[str]) -> list[str]:
    """Return the suspects that none of the `taken` measurements speaks against."""
    return [
        suspect for suspect, against in found["suspects"].items() if not against.keys() & set(taken)
    ]


def is_solved(found: dict, taken: list[str], accused: list[str]) -> bool:
    """Return whether the first to be accused was the cause, and the measurements left no other."""
    return accused == [found["cause"]] == left(found, taken)


def answer(found: dict, taken: list[str], suspect: str) -> str:
    """Return what the measurements say of an accused suspect."""
    against = found["suspects"][suspect]
    if suspect != found["cause"]:
        said = [f"{name}: {against[name]}" for name in taken if name in against]
        if said:
            return f"Not “{suspect}”. {' '.join(said)}"
        return (
            f"Not “{suspect}”, though nothing that you measured could tell. "
            f"What could have: {', '.join(against)}."
        )
    others = [other for other in left(found, taken) if other != suspect]
    if others:
        return f"It is “{suspect}”, by luck: nothing that you measured speaks against “{'”, “'.join(others)}”."
    return f"It is “{suspect}”, and your measurements leave no other."
