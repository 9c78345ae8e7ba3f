"""Figures of lesson 14: the chart of one patient, and all patients by all symptoms."""

import textwrap

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from ..measure.symptoms import CHART_ROUNDS, CLEAR, Chart, Symptom, ratio, standard_errors, symptoms
from .style import ALTERED, BLACK, BLUE, GREY, MEDIUM, ORANGE, SMALL, figure, write, zero_line

HEALTHY = {"color": GREY, "marker": "o", "label": "healthy"}
SICK = {"color": ALTERED, "marker": "D", "label": "the patient"}
DIVERGING = LinearSegmentedColormap.from_list("changes", [BLUE, "white", ORANGE])
FORMATS = {"drafts": "{:.0f}", "left at start": "{:.0f}", "distance": "{:.0e}"}
QUESTIONS = {  # what the columns of a chart answer, in their order
    "exact?": ("distance",),
    "anything left?": ("left at start", "left by a round", "read per token"),
    "drafts good?": (
        "drafts",
        "first draft",
        "later drafts",
        "last draft",
        "τ math",
        "τ code",
        "τ chat",
        "τ rounds 1, 2",
        "τ rounds 4 on",
    ),
    "decision right?": ("promised − kept", "scheduled", "block's price"),
    "sure?": ("own odds",),
}
SHADES = 12.0  # standard errors at which a colour is full
PALEST = 0.35  # the share of a full colour that a symptom has which is just clear


def _drawn(axes, places, found: list[Symptom], style: dict, shift: float) -> None:
    """Draw symptoms at `places` with twice their standard error."""
    value, error = np.array(found).T
    axes.errorbar(np.asarray(places) + shift, value, 2 * error, capsize=2, elinewidth=1, **style)


def _kept_by_position(chart: Chart) -> list[Symptom]:
    """Return conditional acceptance by draft position."""
    whole = chart.rounds[chart.rounds["whole"] == 1]
    reached = [whole[whole["accepted"] >= k] for k in range(chart.drafts)]
    return [
        ratio((rounds["accepted"] > k).astype(float), np.ones(len(rounds)), rounds["answer"])
        for k, rounds in enumerate(reached)
    ]


def _mean_by_round(chart: Chart, column: str) -> list[Symptom]:
    """Return the mean of a column over the answers, round by round; whole rounds only."""
    rounds = [
        chart.rounds[(chart.rounds["round"] == number) & (chart.rounds["whole"] == 1)]
        for number in range(1, CHART_ROUNDS + 1)
    ]
    return [ratio(some[column], np.ones(len(some)), some["answer"]) for some in rounds]


def patient(chart: Chart, healthy: Chart, domains, title: str = ""):
    """Draw one patient beside a healthy drafter: accepted length by domain, acceptance by position, accepted drafts by round,
    and surplus entries of the draft's cache; bars are two standard errors."""
    fig, panels = figure(4, width=2.75, height=2.7)
    for shown, style, shift in ((healthy, HEALTHY, -0.07), (chart, SICK, 0.07)):
        found = symptoms(shown, domains)
        _drawn(
            panels[0],
            range(len(domains)),
            [found[f"τ {name}"] for name in domains],
            style | {"linestyle": ""},
            shift,
        )
        _drawn(panels[1], range(1, shown.drafts + 1), _kept_by_position(shown), style, shift)
        _drawn(
            panels[2], range(1, CHART_ROUNDS + 1), _mean_by_round(shown, "accepted"), style, shift
        )
        _drawn(panels[3], range(1, CHART_ROUNDS + 1), _mean_by_round(shown, "left"), style, shift)
    panels[0].set(
        xticks=range(len(domains)),
        xticklabels=domains,
        ylim=(0, None),
        xlim=(-0.5, len(domains) - 0.5),
    )
    panels[1].set(xlabel="draft position", ylim=(0, 1.04), xticks=range(1, healthy.drafts + 1))
    panels[2].set(xlabel="round of the answer", ylim=(0, None), xticks=range(1, CHART_ROUNDS + 1))
    panels[3].set(xlabel="round of the answer", xticks=range(1, CHART_ROUNDS + 1))
    low, high = panels[3].get_ylim()
    panels[3].set_ylim(min(low, -1), max(high, 10))
    for axes, what in zip(
        panels,
        (
            "tokens per round",
            "accepted, if all before were",
            "drafts accepted",
            "cache entries too many",
        ),
    ):
        axes.set_title(what)
    panels[3].legend(loc="upper left")
    fig.suptitle(f"{title} (tiny models, measured on a CPU; bars: two standard errors)")
    return fig


def entry(name: str, value: float) -> str:
    """Return a symptom's value as a chart shows it; a dash where too few rounds say anything about it."""
    if np.isnan(value):
        return "–"
    return "0" if value == 0 else FORMATS.get(name, "{:.2f}").format(value).replace("-0.00", "0.00")


def _shades(far: np.ndarray) -> np.ndarray:
    """Return the colours of symptoms that are `far` standard errors from healthy: 0 where that is not clear, else from PALEST of
    SHADES to SHADES."""
    beyond = (np.minimum(np.abs(far), SHADES) - CLEAR) / (SHADES - CLEAR)
    return np.where(beyond > 0, np.sign(far) * SHADES * (PALEST + (1 - PALEST) * beyond), 0)


def ward_table(found: dict[str, dict[str, Symptom]], healthy: dict[str, Symptom], title: str):
    """Draw all patients, {label: symptoms}, by all symptoms, in groups of QUESTIONS: values, coloured where they are CLEAR standard
    errors from healthy."""
    rows, columns = {"healthy": healthy, **found}, list(healthy)
    far = np.array(
        [
            [standard_errors(patient[name], healthy[name]) for name in columns]
            for patient in rows.values()
        ]
    )
    fig, axes = figure(width=10.5, height=0.28 * len(rows) + 1.5)
    axes.imshow(
        _shades(far),
        cmap=DIVERGING,
        vmin=-1.6 * SHADES,
        vmax=1.6 * SHADES,
        aspect="auto",
    )
    for row, patient in enumerate(rows.values()):
        for column, name in enumerate(columns):
            value, clear = patient[name].value, abs(far[row, column]) > CLEAR
            text = entry(name, value)
            write(axes, column, row, text, size=MEDIUM, colour=BLACK if clear or not row else GREY)
    axes.set(yticks=range(len(rows)), yticklabels=rows)
    fig.suptitle(title)
    wrapped = [textwrap.fill(name, 9, break_long_words=False) for name in columns]
    axes.set_xticks(range(len(columns)), wrapped, fontsize=SMALL)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    for question, names in QUESTIONS.items():
        places = [place for place, name in enumerate(columns) if name in names]
        if not places:
            continue
        axes.annotate(
            question,
            ((places[0] + places[-1]) / 2, 1),
            (0, 36),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL,
            weight="bold",
        )
        if places[-1] < len(columns) - 1:
            axes.axvline(places[-1] + 0.5, color=GREY, linewidth=0.8)
    zero_line(axes, 0.5)
    axes.grid(False)
    return fig
