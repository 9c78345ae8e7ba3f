"""Fill the numbers of a lesson's text in from the values that were recorded under their names.

A lesson's markdown says `⟦name:format⟧`, and a cell of the lesson calls `glue(name=value)`
(dspark_lite/course/lesson_text.py). `05.name` is a value of lesson 05, `canon.name` one of
canonical_values(). A page has no source apart from itself, so it names no number: what it shows of
measurements stands in tables (tools/notebooks/readme.py).

A format is one of Python's, or one that ends in ` %` (a percentage after a space), or `words` or
`Words` ("five", "Five"; digits from thirteen on).
"""

import re
from difflib import get_close_matches

import nbformat

from dspark_lite.course.lesson_text import MIME
from dspark_lite.course.replication.canonical import canonical_values

PLACEHOLDER = re.compile(r"⟦([\w.]+)(?::([^⟦⟧]+))?⟧")
WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()


def placeholders(text):
    """Return the placeholders of a lesson's markdown as (name, format)."""
    return PLACEHOLDER.findall(text)


def quotes(text):
    """Return the names in a lesson that belong to other places, such as `05.name`."""
    return {name for name, _ in placeholders(text) if "." in name}


def shown(value, spec):
    """Return a value in its format. Raise ValueError or TypeError if that is not possible."""
    if spec in ("words", "Words"):
        number = round(value)
        word = WORDS[number] if 0 <= number < len(WORDS) else f"{number:,}"
        return word.capitalize() if spec == "Words" else word
    if isinstance(value, float) and not spec:
        raise ValueError("a number with decimals needs a format, such as `:.1f`")
    if spec.endswith(" %"):
        return format(value, spec[:-2] + "%").replace("%", " %")
    return format(value, spec)


def fill(text, values):
    """Return a lesson's markdown with its placeholders filled in, and a sentence for each that
    cannot be."""
    problems = []

    def filled(match):
        name, spec = match[1], match[2] or ""
        if name not in values:
            near = get_close_matches(name, values) or [
                known for known in values if "." not in known
            ]
            there = ", ".join(near) or "none"
            problems.append(f"⟦{name}⟧: no value has this name; there are {there}")
            return match[0]
        try:
            return shown(values[name], spec)
        except (TypeError, ValueError) as error:
            problems.append(f"⟦{name}:{spec}⟧, which is {values[name]!r}: {error}")
            return match[0]

    text = PLACEHOLDER.sub(filled, text)
    if not problems and re.search("[⟦⟧]", text):
        problems.append(
            "a ⟦ or ⟧ that is no part of a placeholder; a placeholder is ⟦name⟧ or ⟦name:format⟧"
        )
    return text, problems


def recorded(notebook):
    """Return the values {name: value} in a notebook's outputs, and a sentence for each name that
    was recorded twice."""
    values, problems = {}, []
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            for name, value in output.get("metadata", {}).get(MIME, {}).items():
                if name in values:
                    problems.append(f"cell {number}: `{name}` is glued a second time")
                values[name] = value
    return values, problems


def quoted_values(names, root):
    """Return the values of other places among `names`: `05.name` of lesson 05 as it is committed,
    `canon.name` as measured."""
    values = {}
    for place in {name.partition(".")[0] for name in names if "." in name}:
        given = canonical_values() if place == "canon" else {}
        for path in root.glob(f"notebooks/{place}_*.ipynb"):
            given, _ = recorded(nbformat.read(path, as_version=4))
        values |= {f"{place}.{name}": value for name, value in given.items()}
    return values


def fill_in(notebook, outputs, lesson, root):
    """Fill the text of a generated notebook in, from the values in the executed notebook `outputs`
    and those of other places.

    Return a sentence for each placeholder without a value, and each value that is recorded twice or
    used nowhere.
    """
    own, wrong = recorded(outputs)
    cells = list(enumerate(notebook.cells, start=1))
    texts = [(number, cell) for number, cell in cells if cell.cell_type == "markdown"]
    names = {name for _, cell in texts for name, _ in placeholders(cell.source)}
    values = own | quoted_values(names, root)
    for number, cell in texts:
        cell.source, unfilled = fill(cell.source, values)
        wrong += [f"cell {number}: {sentence}" for sentence in unfilled]
    if unused := own.keys() - names:
        sources = root.glob("notebooks/src/**/*.py")
        elsewhere = set().union(*(quotes(path.read_text(encoding="utf-8")) for path in sources))
        unused = {name for name in unused if f"{lesson[:2]}.{name}" not in elsewhere}
    wrong += [f"no text uses `{name}`, which a cell glues" for name in sorted(unused)]
    return [f"{lesson}, {sentence}" for sentence in wrong]
