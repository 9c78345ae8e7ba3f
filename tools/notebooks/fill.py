"""Fill the numbers of a text in from the values that were recorded under their names.

A lesson's markdown says `⟦name:format⟧`, and a cell of the lesson calls `glue(name=value)` (dspark_lite/course/lesson_text.py). README.md and
the pages in notebooks/ and docs/, which have no source apart from themselves, keep the value between two comments:
`<!--⟦canon.name:format-->4.1<!--⟧-->`. `05.name` is a value of lesson 05, `canon.name` one of canonical_values().

A format is one of Python's, or one that ends in ` %` (a percentage after a space), or `words` or `Words` ("five", "Five"; digits
from thirteen on).
"""

import re
from difflib import get_close_matches
from itertools import zip_longest

import nbformat

from dspark_lite.course.lesson_text import MIME
from dspark_lite.course.replication.canonical import canonical_values
from dspark_lite.common.files import write_text

PLACEHOLDER = re.compile(r"⟦([\w.]+)(?::([^⟦⟧]+))?⟧")
MARKED = re.compile(r"(<!--⟦(\w+\.\w+)(?::([^⟦⟧]+?))?-->)[^⟦⟧]*?(<!--⟧-->)")
WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()


def placeholders(text):
    """Return the placeholders of a lesson's markdown as (name, format)."""
    return PLACEHOLDER.findall(text)


def quotes(text):
    """Return the names in a lesson or a page that belong to other places, such as `05.name`."""
    return set(re.findall(r"⟦(\w+\.\w+)", text))


def shown(value, spec):
    """Return a value in its format; raises ValueError or TypeError where that is not possible."""
    if spec in ("words", "Words"):
        number = round(value)
        word = WORDS[number] if 0 <= number < len(WORDS) else f"{number:,}"
        return word.capitalize() if spec == "Words" else word
    if isinstance(value, float) and not spec:
        raise ValueError("a number with decimals needs a format, such as `:.1f`")
    if spec.endswith(" %"):
        return format(value, spec[:-2] + "%").replace("%", " %")
    return format(value, spec)


def filled(name, spec, values, problems):
    """Return the value of this name in its format; None, and a sentence more in `problems`, where there is none."""
    if name not in values:
        near = get_close_matches(name, values) or [known for known in values if "." not in known]
        problems.append(f"⟦{name}⟧: no value has this name; there are {', '.join(near) or 'none'}")
        return None
    try:
        return shown(values[name], spec or "")
    except (TypeError, ValueError) as error:
        problems.append(f"⟦{name}:{spec or ''}⟧, which is {values[name]!r}: {error}")
        return None


def fill(text, values):
    """Return a lesson's markdown with its placeholders filled in, and a sentence for each that cannot be."""
    problems = []
    text = PLACEHOLDER.sub(
        lambda match: filled(*match.groups(), values, problems) or match[0], text
    )
    if not problems and re.search("[⟦⟧]", text):
        problems.append(
            "a ⟦ or ⟧ that is no part of a placeholder; a placeholder is ⟦name⟧ or ⟦name:format⟧"
        )
    return text, problems


def fill_page(text, values):
    """Return a page with the values between its comments made anew, and a sentence for each that cannot be."""
    problems = []

    def keep_marks(match):
        begin, name, spec, end = match.groups()
        value = filled(name, spec, values, problems)
        return match[0] if value is None else begin + value + end

    if re.search(r"<!--⟦\w+\.", MARKED.sub("", text)):
        problems.append(
            "a value whose comments are not a pair; the form is `<!--⟦canon.name:format-->4.1<!--⟧-->`"
        )
    return MARKED.sub(keep_marks, text), problems


def recorded(notebook):
    """Return the values {name: value} in a notebook's outputs, and a sentence for each name that was recorded twice."""
    values, problems = {}, []
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            for name, value in output.get("metadata", {}).get(MIME, {}).items():
                if name in values:
                    problems.append(f"cell {number}: `{name}` is glued a second time")
                values[name] = value
    return values, problems


def quoted_values(names, root):
    """Return the values of other places among `names`: `05.name` of lesson 05 as it is committed, `canon.name` as measured."""
    values = {}
    for place in {name.partition(".")[0] for name in names if "." in name}:
        given = canonical_values() if place == "canon" else {}
        for path in root.glob(f"notebooks/{place}_*.ipynb"):
            given, _ = recorded(nbformat.read(path, as_version=4))
        values |= {f"{place}.{name}": value for name, value in given.items()}
    return values


def pages(root):
    """Return the texts without a source in which values are filled in."""
    return [path for pattern in ("README.md", "docs/*.md") for path in sorted(root.glob(pattern))]


def fill_in(notebook, outputs, lesson, root):
    """Fill the text of a generated notebook in, from the values in the executed notebook `outputs` and those of other places.

    Returns a sentence for each placeholder without a value, and each value that is recorded twice or used nowhere.
    """
    own, wrong = recorded(outputs)
    texts = [
        (number, cell)
        for number, cell in enumerate(notebook.cells, start=1)
        if cell.cell_type == "markdown"
    ]
    names = {name for _, cell in texts for name, _ in placeholders(cell.source)}
    values = own | quoted_values(names, root)
    for number, cell in texts:
        cell.source, unfilled = fill(cell.source, values)
        wrong += [f"cell {number}: {sentence}" for sentence in unfilled]
    if unused := own.keys() - names:
        elsewhere = [
            path.read_text(encoding="utf-8")
            for path in [*root.glob("notebooks/src/**/*.py"), *pages(root)]
        ]
        unused -= {
            name.partition(".")[2]
            for text in elsewhere
            for name in quotes(text)
            if name.startswith(f"{lesson[:2]}.")
        }
    wrong += [f"no text uses `{name}`, which a cell glues" for name in sorted(unused)]
    return [f"{lesson}, {sentence}" for sentence in wrong]


def fill_pages(root, write=True):
    """Fill the values of the pages in, or only compare them; returns a sentence for each that has no value or differs."""
    problems = []
    for path in pages(root):
        text = path.read_text(encoding="utf-8")
        expected, wrong = fill_page(text, quoted_values(quotes(text), root))
        problems += [f"{path.name}, {sentence}" for sentence in wrong]
        if expected != text and write:
            write_text(path, expected)
        elif expected != text:
            problems.append(f"{path.name}: {first_difference(text, expected)}")
    return problems


def first_difference(committed, expected):
    """Return the first line of a text that differs from the one expected, and that one."""
    pairs = zip_longest(committed.split("\n"), expected.split("\n"), fillvalue="nothing")
    ours, theirs = next((ours, theirs) for ours, theirs in pairs if ours != theirs)
    return f"`{ours}` should be `{theirs}`"
