"""What a committed lesson says and what it prints, so that a test can tie a number in a sentence to the output beside it.

A tie is a pair of patterns with the same groups: one for the prose, one for the output. The sentence must be there, the
output must be there, and what the groups caught must be equal; a number in the prose may be rounded, so that "1.6" says
"1.61". A timing is no number to repeat: `between` reads it and holds it in the band that the sentence needs.
"""

import re
from functools import cache

import nbformat
import notebooks


@cache
def cells(lesson: str) -> list:
    """The cells of a committed lesson, by its two digits."""
    (source,) = notebooks.lesson_sources(lesson)
    return nbformat.read(notebooks.notebook_path(source, solutions=False), as_version=4).cells


def prose(lesson: str) -> str:
    """All that a lesson says, on one line: a sentence can be looked for without its line ends."""
    return " ".join(" ".join(cell.source.split()) for cell in cells(lesson) if cell.cell_type == "markdown")


def printed(lesson: str) -> str:
    """All that a lesson prints, line by line."""
    return printed_by(cells(lesson))


def printed_by(executed: list) -> str:
    """All that executed cells print, line by line."""
    outputs = [output for cell in executed for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def caught(pattern: str, text: str, where: str) -> tuple[str, ...]:
    """The groups of the only place in a text that a pattern fits."""
    found = list(re.finditer(pattern, text, re.M))
    assert found, f"{where} has nothing like {pattern!r}"
    assert len({match.groups() for match in found}) == 1, f"{where} has {pattern!r} with {sorted({m.groups() for m in found})}"
    return found[0].groups()


def says(said: str, measured: str) -> bool:
    """Whether a word of the prose is what was measured: the same, or the same number rounded as the prose rounds it."""
    numbers = [re.fullmatch(r"-?\d+(?:\.(\d+))?(?:e-?\d+)?", word) for word in (said, measured)]
    if said == measured or None in numbers:
        return said == measured
    places = len(numbers[0][1] or "")
    return abs(float(said) - float(measured)) <= 0.5 * 10.0**-places + 1e-9


def tied(lesson: str, sentence: str, output: str) -> None:
    """The sentence stands in the lesson, and its numbers are those of the lesson's own output."""
    said, measured = caught(sentence, prose(lesson), "the prose"), caught(output, printed(lesson), "the output")
    assert len(said) == len(measured), "a group of the sentence needs one of the output"
    assert all(map(says, said, measured)), f"the prose says {said}, the output {measured}"


def between(lesson: str, sentence: str, output: str, *bands: tuple[float, float]) -> None:
    """The sentence stands in the lesson, and the numbers of the output lie in the bands that it needs."""
    caught(sentence, prose(lesson), "the prose")
    measured = [float(number) for number in caught(output, printed(lesson), "the output")]
    wrong = [(number, band) for number, band in zip(measured, bands, strict=True) if not band[0] <= number <= band[1]]
    assert not wrong, f"outside its band: {wrong}"
