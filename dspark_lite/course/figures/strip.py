"""The strip "you are here" at the top of a lesson: the four steps of a round, the lesson's own filled."""

from matplotlib.patches import FancyBboxPatch

from .style import BLACK, GREY
from .token_boxes import inch_canvas

STRIP_STEPS = {  # in the order of a round
    "draft": "guess a few tokens",
    "schedule": "how many to check",
    "verify": "one pass of the target",
    "accept": "keep what is right",
}
STRIP_WIDTH, STRIP_GAP, STRIP_HEIGHT = 1.68, 0.42, 0.5  # inches


def strip(here: str | tuple[str, ...]):
    """A round as a row of four boxes, draft, schedule, verify, accept, and back; the steps in `here` are filled."""
    here = (here,) if isinstance(here, str) else here
    if unknown := set(here) - STRIP_STEPS.keys():
        raise ValueError(
            f"{', '.join(sorted(unknown))} is no step of a round; the steps are {', '.join(STRIP_STEPS)}."
        )
    fig, axes = inch_canvas(4 * STRIP_WIDTH + 3 * STRIP_GAP + 0.2, 0.95)
    arrow = {"arrowstyle": "-|>", "lw": 1.2, "color": GREY, "shrinkA": 0, "shrinkB": 0}
    for number, (name, work) in enumerate(STRIP_STEPS.items()):
        left, filled = 0.1 + number * (STRIP_WIDTH + STRIP_GAP), name in here
        axes.add_patch(
            FancyBboxPatch(
                (left, -0.1 - STRIP_HEIGHT),
                STRIP_WIDTH,
                STRIP_HEIGHT,
                boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=BLACK if filled else "white",
                edgecolor=BLACK if filled else GREY,
                lw=1.2,
            )
        )
        for down, text, size in ((0.25, name, 10.5), (0.45, work, 8)):
            axes.text(
                left + STRIP_WIDTH / 2,
                -down,
                text,
                ha="center",
                va="center",
                fontsize=size,
                color="white" if filled else GREY,
                weight="bold" if text == name else "normal",
            )
        if number:
            axes.annotate(
                "",
                (left, -0.1 - STRIP_HEIGHT / 2),
                (left - STRIP_GAP, -0.1 - STRIP_HEIGHT / 2),
                arrowprops=arrow,
            )
    first, last, bottom, foot = (
        0.1 + STRIP_WIDTH / 2,
        axes.get_xlim()[1] - 0.1 - STRIP_WIDTH / 2,
        -0.1 - STRIP_HEIGHT,
        -0.82,
    )
    axes.plot([last, last, first], [bottom, foot, foot], color=GREY, lw=1.2)
    axes.annotate("", (first, bottom), (first, foot), arrowprops=arrow)
    axes.text(
        (first + last) / 2,
        foot,
        " next round ",
        ha="center",
        va="center",
        fontsize=8,
        color=GREY,
        backgroundcolor="white",
    )
    return fig
