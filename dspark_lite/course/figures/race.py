"""The race of lesson 00 as an animation: one recorded answer, written token by token and block by block."""

from collections.abc import Iterator
from functools import cache

from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

from .style import ACCEPTED, BLACK, GREY, NEXT

# Pixels; an answer begins at RACE_TOP.
RACE_WIDTH, MARGIN, RACE_TOP = 760, 14, 38
RACE_LINE, RACE_LETTERS = 19, 13
STRIDE = 3  # plain passes from frame to frame
TICK, PAUSE = 280, 3500  # milliseconds of a frame: while they run, and of the finished race


@cache
def race_font(bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return the monospace face of the house."""
    return ImageFont.truetype(
        findfont("DejaVu Sans Mono:bold" if bold else "DejaVu Sans Mono"), RACE_LETTERS
    )


def race_frames(run: dict) -> list[Image.Image]:
    """Return the frames of a race; the first is the finished one, so that a viewer that does not animate shows how it ends.

    `run` has the `tokens` of an answer as texts, with the first from the prompt's own pass, the `rounds` as pairs (drafts
    kept, tokens committed), and the mean milliseconds of a plain pass and of a round, `plain_ms` and `round_ms`.
    """
    passes = len(run["tokens"]) - 1
    frames = [
        race_frame(
            run, tick, min(int(tick * run["plain_ms"] / run["round_ms"]), len(run["rounds"]))
        )
        for tick in (*range(0, passes, STRIDE), passes)
    ]
    return [frames[-1], *frames]


def race_frame(run: dict, passes: int, rounds: int) -> Image.Image:
    """Return both answers after `passes` plain passes and `rounds` rounds."""
    height = panel_height(run["tokens"])
    image = Image.new("RGB", (RACE_WIDTH, 2 * height), "white")
    pen = ImageDraw.Draw(image)
    last = len(run["tokens"]) - 1
    plain = [
        (text, "added" if k == passes > 0 and passes < last else "text")
        for k, text in enumerate(run["tokens"][: passes + 1])
    ]
    drafted, at = [(run["tokens"][0], "text")], 1
    for number, (accepted, committed) in enumerate(run["rounds"][:rounds], start=1):
        for place in range(committed):
            kind = (
                "text"
                if number < rounds and passes < last
                else "kept"
                if place < accepted
                else "added"
            )
            drafted.append((run["tokens"][at], kind))
            at += 1
    ended = rounds == len(run["rounds"])
    _panel(pen, 0, height, "the target alone: one token per pass", passes, plain, passes == last)
    _panel(
        pen,
        height,
        height,
        "a drafter guesses, the target checks: a block per pass",
        rounds,
        drafted,
        ended,
    )
    return image


def _laid_out(tokens: list[tuple[str, str]]) -> Iterator[tuple[float, int, str, str]]:
    """Yield the pieces of lines of tokens (text, kind), each with its place in the panel: (x, y, piece, kind)."""
    x, y, letter = MARGIN, RACE_TOP, race_font().getlength("m")
    for text, kind in tokens:
        for piece in text.splitlines(keepends=True):
            shown = piece.rstrip("\n")
            if x + letter * len(shown) > RACE_WIDTH - MARGIN:
                x, y = MARGIN, y + RACE_LINE
            yield x, y, shown, kind
            x += letter * len(shown)
            if piece.endswith("\n"):
                x, y = MARGIN, y + RACE_LINE


def panel_height(texts: list[str]) -> int:
    """Return pixels of a panel that has room for an answer of these texts."""
    return max(y for _, y, *_ in _laid_out([(text, "text") for text in texts])) + RACE_LINE + 5


def _panel(
    pen: ImageDraw.ImageDraw,
    top: int,
    height: int,
    name: str,
    passes: int,
    tokens: list[tuple[str, str]],
    ended: bool,
) -> None:
    """Draw one side of the race: its name, its passes of the target, and its text; a token may be marked."""
    pen.rectangle((4, top + 4, RACE_WIDTH - 5, top + height - 5), outline=GREY)
    pen.text((MARGIN, top + 11), name, fill=BLACK, font=race_font(bold=True))
    count = f"{passes} passes of the target" + (", done" if ended else "")
    pen.text(
        (RACE_WIDTH - MARGIN - pen.textlength(count, race_font()), top + 11),
        count,
        fill=ACCEPTED if ended else GREY,
        font=race_font(),
    )
    letter = race_font().getlength("m")
    for x, y, shown, kind in _laid_out(tokens):
        if shown and kind != "text":
            pen.rectangle(
                (x, top + y - 1, x + letter * len(shown) - 1, top + y + RACE_LINE - 4),
                fill={"kept": ACCEPTED, "added": NEXT}[kind],
            )
        pen.text((x, top + y), shown, fill=BLACK if kind == "text" else "white", font=race_font())


def save_race(run: dict, file) -> None:
    """Write the animation as a GIF that runs for ever."""
    # This frame has every colour. One palette for all frames makes the file small.
    palette = race_frame(run, 1, 1).quantize(24)
    frames = [
        frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in race_frames(run)
    ]
    frames[0].save(
        file,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        loop=0,
        optimize=False,
        disposal=1,
        duration=[1200, *[TICK] * (len(frames) - 2), PAUSE],
    )
