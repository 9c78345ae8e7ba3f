"""Figures of the released models: what roofline.py predicts, hollow, beside what was measured, filled."""

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from . import roofline
from .plots import BLACK, DRAFTERS, GREY, drafter_style, figure, measured_on


def predicted(style: dict) -> dict:
    """The style of predicted values: the drafter's colour and marker, not filled."""
    return {**style, "markerfacecolor": "none", "linestyle": "none", "markersize": 8}


def predicted_speed(rows: list[roofline.Prediction], accepted: dict[str, float] | None = None,
                    measured: list[dict] | None = None, device: str | None = None):
    """Tokens a second by GPU, and what a round takes on the first of them.

    `rows` are those of roofline.predictions(), `accepted` {drafter: accepted length} (default: the paper's mean on
    Qwen3-4B; drafters without one are left out of the left panel). `measured` rows ({"drafter", "tokens_per_second"},
    as `bench` writes them) of a `device` stand, filled, at the right end.
    """
    accepted = roofline.paper_lengths() if accepted is None else {"plain": 1.0, **accepted}
    fig, (speed, parts) = figure(2, width=5.6, height=3.9)
    _speeds(speed, rows, accepted, measured or [], device)
    _parts(parts, [row for row in rows if row.device == rows[0].device])
    title = "Qwen3-4B and the released drafts, batch 1: a prediction"
    fig.suptitle(title + (", and what was measured" if measured else ""), fontsize=10)
    return fig


def _speeds(axes, rows, accepted: dict[str, float], measured: list[dict], device: str | None) -> None:
    places = list(dict.fromkeys(row.device for row in rows))
    drafters = [name for name in dict.fromkeys(row.drafter for row in rows) if name in accepted]
    for index, name in enumerate(drafters):
        x = np.arange(len(places)) + 0.09 * (index - (len(drafters) - 1) / 2)
        speeds = [row.tokens_per_second(accepted[name]) for row in rows if row.drafter == name]
        axes.plot(x, speeds, **predicted(drafter_style(name)))
    for row in measured:
        style = {**drafter_style(row["drafter"]), "label": "_"}
        axes.plot(len(places), row["tokens_per_second"], linestyle="none", **style)
    places += ["here"] if measured else []
    axes.set(xticks=range(len(places)), xticklabels=places, yscale="log", xlim=(-0.5, len(places) - 0.5),
             ylabel="tokens a second", xlabel="predicted for (hollow)")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(fontsize=8, loc="upper left")
    if measured:
        measured_on(axes, device)


def _parts(axes, rows) -> None:
    y, names = np.arange(len(rows)), [row.drafter for row in rows]
    colours = [DRAFTERS[name][1] for name in names]
    verify, draft, bound = zip(*((row.verify, row.draft, row.bound) for row in rows))
    axes.barh(y, verify, 0.6, color="white", edgecolor=GREY, hatch="///", label="verify, predicted")
    axes.barh(y, draft, 0.6, verify, color="none", edgecolor=colours, linewidth=1.6, label="draft, predicted")
    axes.plot(bound, y, linestyle="none", marker="|", markersize=16, color=BLACK, label="bandwidth bound of both")
    axes.set(yticks=y, yticklabels=[DRAFTERS[name][0] for name in names],
             xlabel=f"milliseconds a round on {rows[0].device}")
    axes.invert_yaxis()
    axes.legend(fontsize=8)
