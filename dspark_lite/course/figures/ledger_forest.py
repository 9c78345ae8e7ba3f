"""The ledger as forest plots, one for each part of the paper: each margin of each claim, ours with its interval and the paper's, and
the verdict."""

from textwrap import wrap
from typing import NamedTuple

from ..estimates import Estimate
from ..replication import ledger
from ..replication.claims import AS_PAPER, THIS_COURSE
from ..replication.quantities import EXACT
from .style import BLACK, GREEN, GREY, MEDIUM, RED, SMALL, figure

PANELS = {  # title: (what its margins are multiplied by, linear within, ticks), one for each group of ledger.UNITS
    "per cent longer, faster, more; logarithmic beyond ±20": (
        100,
        20,
        (-30, -10, 0, 10, 30, 100, 700),
    ),
    "percentage points: shares, calibration; logarithmic beyond ±10": (
        100,
        10,
        (-10, -5, 0, 5, 10, 20, 50),
    ),
    "tokens": (1, 2, (0, 0.5, 1, 1.5, 2)),
}
# {one of ledger.SECTIONS: its title}
PARTS = {
    "drafts": "Sections 4.2 to 4.3.2: drafts that are accepted longer",
    "confidence": "Section 4.3.3: confidence",
    "serving": "Section 5 and Appendix A: serving",
}
VERDICTS = {
    ledger.REPLICATES: ("✓ replicates", GREEN),
    ledger.DOES_NOT: ("✗ does not hold", RED),
    ledger.UNDECIDED: ("? we cannot tell", GREY),
    ledger.UNTESTABLE: ("– not testable", GREY),
    ledger.MISSING: ("– not measured", GREY),
}
KEY = (
    ("o", GREEN, "ours, above zero"),
    ("o", GREY, "ours, zero inside"),
    ("o", RED, "ours, below zero"),
    ("D", BLACK, "the paper's"),
)
WIDE = 43  # letters of a claim in a line
LINE_INCHES = 0.165
GAP_LINES = 4  # between two panels, for ticks and a title


class Row(NamedTuple):
    """A margin's line: its place, its label, ours and the paper's (None where there is none), and whether ours is exact."""

    place: float
    label: str
    ours: Estimate | None
    paper: float | None
    exact: bool = False


def forest(part: str):
    """Draw the claims of a part of the paper, a panel for each unit of margins. A claim holds if its margins lie to the right
    of zero; the notes have the reasons."""
    panels = {title: entries for title, entries in zip(PANELS, ledger.by_units(part)) if entries}
    heights = [sum(map(lines, entries)) for entries in panels.values()]
    between = GAP_LINES * (len(panels) - 1)
    fig, axes_of = figure(
        rows=len(panels),
        width=9.6,
        height=LINE_INCHES * (sum(heights) + between + 9) / len(panels),
        layout="none",
        squeeze=False,
        gridspec_kw={"height_ratios": heights, "hspace": GAP_LINES * len(panels) / sum(heights)},
    )
    for (axes,), (unit, entries) in zip(axes_of, panels.items()):
        _draw_panel(axes, unit, entries)
    _head(fig, axes_of[0][0], PARTS[part])
    return fig


def _head(fig, axes, title: str) -> None:
    """Write the part's title and the key, and leave room beside the panels."""
    inch = 1 / fig.get_figheight()
    fig.subplots_adjust(left=0.46, right=0.775, top=1 - 0.85 * inch, bottom=0.4 * inch)
    fig.suptitle(title, x=0.02, ha="left", y=1 - 0.08 * inch, va="top")
    handles = [
        axes.plot(
            [],
            [],
            linestyle="",
            marker=marker,
            color=colour,
            markersize=5,
            label=label,
            **({"markerfacecolor": "none"} if marker == "D" else {}),
        )[0]
        for marker, colour, label in KEY
    ]
    fig.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.01, 1 - 0.33 * inch),
        ncols=len(KEY),
    )
    marks = "† an inequality of this course   ‡ one training of each"
    fig.text(0.99, 1 - 0.45 * inch, marks, ha="right", fontsize=MEDIUM)


def lines(entry: ledger.Entry) -> float:
    """Return the height of a claim, in lines."""
    return max(len(margin_rows(entry, 0)), 0.95 * len(wrap(said(entry), WIDE)), 1) + 0.7


def said(entry: ledger.Entry) -> str:
    """Return the sentence of a claim; marks tell the course's own inequalities and comparisons of one training each."""
    marks = ("†" if entry.claim.stated_by == THIS_COURSE else "") + (
        "‡" if entry.claim.one_training else ""
    )
    return entry.claim.says + ("\u00a0" + marks if marks else "")


def margin_rows(entry: ledger.Entry, top: float) -> list[Row]:
    """Return the margins of a claim from `top` downwards; an exact example has one row, its largest difference from the paper's
    numbers."""
    if entry.claim.relation == AS_PAPER:
        largest = max(EXACT - margin.value for margin in entry.margins.values())
        return [
            Row(top, "distance from paper", Estimate(largest, largest, largest), 0.0, exact=True)
        ]
    labels = entry.margins or entry.paper
    theirs = entry.paper_margins if entry.margins else entry.paper
    return [
        Row(top + number, label.strip(":"), entry.margins.get(label), theirs.get(label))
        for number, label in enumerate(labels)
    ]


def _draw_panel(axes, title: str, entries: list[ledger.Entry]) -> None:
    """Draw the claims of a unit from top to bottom; shade every other one."""
    times, linear, ticks = PANELS[title]
    top, labels = 0.0, {}
    for index, entry in enumerate(entries):
        if index % 2 == 0:
            axes.axhspan(top - 0.5, top - 0.5 + lines(entry), color=GREY, alpha=0.12, lw=0)
            axes.axhspan(
                top - 0.5,
                top - 0.5 + lines(entry),
                -1.3,
                0,
                color=GREY,
                alpha=0.12,
                lw=0,
                clip_on=False,
            )
        _draw_claim(axes, entry, top + (lines(entry) - 1) / 2)
        for row in margin_rows(entry, top + 0.35):
            labels[row.place] = row.label
            _draw_row(axes, row, times)
        top += lines(entry)
    axes.axvline(0, color=BLACK, linewidth=0.8, zorder=1)
    axes.set_xscale("symlog", linthresh=linear)
    axes.set_xticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks], fontsize=MEDIUM)
    axes.set_yticks(list(labels), list(labels.values()), fontsize=SMALL)
    axes.set_xlim(right=1.25 * max(ticks))
    axes.minorticks_off()
    axes.tick_params(axis="y", length=0, pad=2)
    axes.set_ylim(top - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_title(title, loc="left")
    axes.spines["left"].set_visible(False)


def _draw_row(axes, row: Row, times: float) -> None:
    """Draw our margin filled, in the colour of its interval's sign, and the paper's hollow."""
    if row.ours is not None:
        colour = GREEN if row.ours.low > 0 else RED if row.ours.high < 0 else GREY
        if row.exact:
            colour = GREEN if row.ours.value < EXACT else RED
        axes.hlines(
            row.place, times * row.ours.low, times * row.ours.high, color=colour, linewidth=1.6
        )
        axes.plot(times * row.ours.value, row.place, marker="o", markersize=5.5, color=colour)
    if row.paper is not None:
        axes.plot(
            times * row.paper,
            row.place,
            marker="D",
            markersize=10 if row.exact else 5.5,
            markerfacecolor="none",
            color=BLACK,
            linestyle="",
            markeredgewidth=0.9,
        )


def _draw_claim(axes, entry: ledger.Entry, middle: float) -> None:
    """Write the sentence of a claim left of the panel, and its verdict with the number of its note right of it."""
    words, colour = VERDICTS[entry.verdict]
    note = ledger.note_numbers().get(entry.claim.says)
    place = axes.get_yaxis_transform()
    axes.text(
        -1.28,
        middle,
        "\n".join(wrap(said(entry), WIDE)),
        fontsize=SMALL,
        va="center",
        transform=place,
    )
    axes.text(
        1.015,
        middle,
        words + (f", note {note}" if note else ""),
        color=colour,
        fontsize=MEDIUM,
        va="center",
        transform=place,
    )
