"""The race that ends a lesson as a figure: a lane for each decoder, a box for each of its rounds."""

from typing import NamedTuple

import numpy as np

from .style import BLACK, MEDIUM, figure, measured_on

COLUMNS = ("tokens\na round", "ms\na token", "times\nplain", "verified\na token")


class Lane(NamedTuple):
    """A decoder in the race: its label and colour, tokens a round, milliseconds a token, tokens that
    the target reads in rounds for each one committed, and whether its texts are plain decoding's."""

    label: str
    colour: str
    tokens_a_round: float
    ms_a_token: float
    verified_a_token: float
    lossless: bool = True


def lanes_figure(lesson: str, lanes: list[Lane], tokens: int, device: str, places: bool):
    """Draw the lanes: how long a decoder takes to write `tokens` tokens, cut into its rounds.

    The first lane is plain decoding's; a column says how many times as fast as it a lane is. With
    `places` another says how many tokens the target reads for each one that is committed. A lane
    whose text is not plain decoding's has no boxes.
    """
    fig, axes = figure(width=4.8, height=0.9 + 0.5 * len(lanes))
    columns = list(zip(COLUMNS, (0.58, 0.71, 0.84, 1.0) if places else (0.64, 0.82, 1.0)))
    across = axes.get_yaxis_transform()

    def write(x, y, text, **options):
        """Write a text with its baseline over a lane; x in parts of the width."""
        axes.text(x, y, text, transform=across, fontsize=MEDIUM, va="bottom", **options)

    for title, x in columns:
        write(x, -0.75, title, ha="right", linespacing=0.95, color=BLACK)
    for row, lane in enumerate(lanes):
        whole = lane.ms_a_token * tokens
        said = [
            f"{lane.tokens_a_round:.1f}",
            f"{lane.ms_a_token:.1f}",
            f"{lanes[0].ms_a_token / lane.ms_a_token:.1f}",
            f"{lane.verified_a_token:.2f}",
        ]
        if lane.lossless:
            ends = [*np.arange(0, whole, lane.ms_a_token * lane.tokens_a_round), whole]
            axes.barh(
                np.full(len(ends) - 1, row),
                np.diff(ends),
                0.34,
                ends[:-1],
                color=lane.colour,
                edgecolor="white",
                linewidth=0.7,
            )[0].set_label(f"{lane.label} {said[0]}")
        else:
            said = ["not plain decoding's text"] + [""] * (len(columns) - 1)
        weight = "bold" if lane.label.startswith("mine") else "normal"
        write(0, row - 0.2, lane.label, ha="left", weight=weight)
        for (_, x), text in zip(columns, said):
            write(x, row - 0.2, text, ha="right", weight=weight)
    axes.set(
        ylim=(len(lanes) - 0.6, -1.5),
        yticks=[],
        xlabel=f"milliseconds until {tokens} tokens are written; a box is a round",
        title=f"The race after lesson {lesson}",
    )
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    measured_on(axes, device)
    return fig
