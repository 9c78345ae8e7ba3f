"""The strip "you are here" at the top of a lesson: the four steps of a round, the lesson's own filled."""

from .style import BLACK, GREY, write
from .token_boxes import arrow, inch_canvas, rounded_box

STRIP_STEPS = {  # in the order of a round
    "draft": "guess a few tokens",
    "schedule": "how many to check",
    "verify": "one pass of the target",
    "accept": "keep what is right",
}
STRIP_WIDTH, STRIP_GAP, STRIP_HEIGHT = 1.68, 0.42, 0.5  # inches


def strip(here: str | tuple[str, ...]):
    """Draw a round as a row of four boxes, draft, schedule, verify, accept, and back; the steps in `here` are filled."""
    here = (here,) if isinstance(here, str) else here
    if unknown := set(here) - STRIP_STEPS.keys():
        raise ValueError(
            f"{', '.join(sorted(unknown))} is no step of a round; the steps are {', '.join(STRIP_STEPS)}."
        )
    fig, axes = inch_canvas(4 * STRIP_WIDTH + 3 * STRIP_GAP + 0.2, 0.95)
    middle = -0.1 - STRIP_HEIGHT / 2
    for number, (name, work) in enumerate(STRIP_STEPS.items()):
        left, filled = 0.1 + number * (STRIP_WIDTH + STRIP_GAP), name in here
        face, edge = (BLACK, BLACK) if filled else ("white", GREY)
        rounded_box(axes, left, middle, STRIP_WIDTH, STRIP_HEIGHT, face, edge)
        for down, text, size in ((0.25, name, 10.5), (0.45, work, 8)):
            write(
                axes,
                left + STRIP_WIDTH / 2,
                -down,
                text,
                size=size,
                colour="white" if filled else GREY,
                weight="bold" if text == name else "normal",
            )
        if number:
            arrow(axes, (left - STRIP_GAP, middle), (left, middle), GREY)
    first, last, bottom, foot = (
        0.1 + STRIP_WIDTH / 2,
        axes.get_xlim()[1] - 0.1 - STRIP_WIDTH / 2,
        -0.1 - STRIP_HEIGHT,
        -0.82,
    )
    axes.plot([last, last, first], [bottom, foot, foot], color=GREY, lw=1.2)
    arrow(axes, (first, foot), (first, bottom), GREY)
    write(axes, (first + last) / 2, foot, " next round ", colour=GREY, backgroundcolor="white")
    return fig
