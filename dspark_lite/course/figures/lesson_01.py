"""Figures of lesson 01: what a pass costs by the positions that it carries, and what a round costs."""

from matplotlib.ticker import NullLocator

from .style import BLACK, BLUE, GREY, MEDIUM, ORANGE, figure, measured_on


def pass_cost_figure(positions, milliseconds, device: str):
    """Draw the milliseconds of one target pass by its positions, beside their cost one by one."""
    fig, axes = figure()
    last, top = positions[-1], 1.5 * max(milliseconds)
    axes.plot(positions, milliseconds, color=BLUE, marker="o")
    axes.text(last, milliseconds[-1] + 0.04 * top, "measured", color=BLUE, ha="right")
    axes.plot([0, last], [0, milliseconds[0] * last], color=GREY, linestyle=":")
    axes.text(
        0.93 * top / milliseconds[0] + 0.03 * last,
        0.93 * top,
        "if every position\nwere paid in full",
        color=GREY,
        va="top",
    )
    axes.set(
        xlabel="positions in the pass",
        ylabel="time of one pass (ms)",
        ylim=(0, top),
        xticks=positions,
    )
    axes.set_title(
        f"{last} positions cost {milliseconds[-1] / milliseconds[0]:.1f} times as much as one",
    )
    measured_on(axes, device)
    return fig


def envelope_figure(positions, reading: float, multiplying: float, device: str):
    """Draw the milliseconds of a pass by its positions, from a data sheet: `reading` the weights, or `multiplying` for each
    position, whichever takes longer."""
    fig, axes = figure(width=6.2)
    room = reading / multiplying
    at = sorted({*positions, room})
    axes.plot(
        at,
        [max(reading, k * multiplying) for k in at],
        color=BLACK,
        linewidth=3,
        label="the pass: the longer of both",
    )
    axes.axhline(reading, color=BLUE, linestyle="--", label="reading the weights, once")
    axes.plot(
        at,
        [k * multiplying for k in at],
        color=ORANGE,
        linestyle=":",
        label="multiplying, for each position",
    )
    for k, side in ((1, "left"), (8, "center")):
        axes.plot(k, reading, color=BLACK, marker="o")
        axes.annotate(
            f"{k} position{'s' * (k > 1)}",
            (k, reading),
            (0, -8),
            textcoords="offset points",
            ha=side,
            va="top",
            fontsize=MEDIUM,
        )
    axes.plot([room, room], [multiplying, reading], color=GREY, linewidth=1, linestyle=":")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="positions in the pass",
        ylabel="time of one pass (ms)",
        ylim=(multiplying, 40 * reading),
    )
    axes.set_xticks(positions, labels=positions)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(loc="upper left")
    axes.set_title(f"predicted for {device}: up to {room:.0f} positions for the price of one")
    return fig


def round_cost_figure(tau: float, draft: float, verify: float):
    """Draw two bars in units of one plain pass: tau tokens decoded plainly, and the one round that commits as many."""
    fig, axes = figure(width=8, height=2)
    for token in range(int(tau) + 1):
        axes.barh(
            1,
            min(1, tau - token),
            left=token,
            color=GREY,
            edgecolor="white",
            label="" if token else "plain pass",
        )
    axes.barh(0, draft, color=ORANGE, edgecolor="white", label=f"draft {draft:.2f}")
    axes.barh(0, verify, left=draft, color=BLUE, edgecolor="white", label=f"verify {verify:.2f}")
    ratio = tau / (draft + verify)
    axes.set(
        yticks=[0, 1],
        yticklabels=["one round", "plain"],
        xlim=(0, max(9, draft + verify + 0.2)),
        xlabel=f"time to commit {tau:.2f} tokens (plain passes)",
    )
    axes.set_title(
        f"{ratio:.2f} times plain decoding's speed; break-even at τ = {draft + verify:.2f}",
    )
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    axes.grid(False, axis="y")
    return fig
