"""Figures of lesson 02: where target and drafter overlap, simulated draws, the ways to a text, which rules are exact."""

import numpy as np
from matplotlib.patches import Rectangle

from .style import ACCEPTED, BLACK, GREY, MEDIUM, NEXT, REJECTED, SMALL, figure, write


def outlines_figure(p, q, names):
    """Draw two distributions over a few tokens as outlines, p [V] of the target and q [V] of the drafter."""
    fig, axes = figure()
    x, p, q = np.arange(len(names)), np.asarray(p), np.asarray(q)
    axes.bar(x, p, 0.8, fill=False, edgecolor=GREY, linewidth=4, label="p, target")
    axes.bar(x, q, 0.6, fill=False, edgecolor=BLACK, linestyle=":", linewidth=2, label="q, drafter")
    axes.set(xticks=x, xticklabels=names, xlabel="token", ylabel="probability")
    axes.legend(loc="upper right")
    axes.set_title("what the target wants, and what the drafter offers")
    return fig


def overlap_panel(axes, p, q, names) -> None:
    """Draw two distributions over a few tokens, p [V] of the target and q [V] of the drafter, as three areas: kept (green, the
    smaller of both), refused (orange, the excess of q) and owed (blue, the excess of p)."""
    x, p, q = np.arange(len(names)), np.asarray(p), np.asarray(q)
    common, owed, refused = np.minimum(p, q), np.maximum(p - q, 0), np.maximum(q - p, 0)
    axes.bar(x, common, color=ACCEPTED, label=f"kept: {common.sum():.2f}")
    axes.bar(
        x,
        refused,
        bottom=common,
        color="white",
        edgecolor=REJECTED,
        hatch="xxx",
        label=f"refused: {refused.sum():.2f}",
    )
    axes.bar(
        x,
        owed,
        bottom=common,
        color="white",
        edgecolor=NEXT,
        hatch="///",
        label=f"owed: {owed.sum():.2f}",
    )
    axes.hlines(p, x - 0.45, x + 0.45, color=GREY, linewidth=4, label="p, target")
    # Drawn on p, so that both are seen where they agree.
    axes.hlines(q, x - 0.45, x + 0.45, color=BLACK, linestyle=":", linewidth=2, label="q, drafter")
    top = 1.4 * max(p.max(), q.max())
    axes.set(xticks=x, xticklabels=names, xlabel="token", ylabel="probability", ylim=(0, top))
    # No probability is above 1.
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= min(top, 1.01)])
    axes.legend(ncols=2, loc="upper right")
    axes.set_title(f"kept {common.sum():.2f}; refused {refused.sum():.2f} = owed {owed.sum():.2f}")


def overlap_figure(p, q, names):
    """Draw the three areas of `overlap_panel` with the acceptance probability, and the residual of p and q [V] beside it."""
    fig, (left, right) = figure(2, width=4.8, height=3.2, gridspec_kw={"width_ratios": [3, 2]})
    overlap_panel(left, p, q, names)
    owed = np.maximum(np.asarray(p) - np.asarray(q), 0)
    total = owed.sum()
    right.bar(names, owed / total if total > 0 else 0 * owed, color=NEXT)
    right.set(xlabel="token", ylabel="probability", ylim=(0, 1.05))
    if total == 0:
        right.set_axis_off()
    right.set_title(
        "residual: the owed, scaled to 1" if total > 0 else "no residual: nothing is refused",
    )
    return fig


def total_variation_figure(distances: dict[str, float]):
    """Draw the total variation from the target by rule, on a logarithmic axis: exact rules green, lossy ones orange."""
    limit = 1e-5  # float32 rounding stays below it
    fig, axes = figure(width=7.5, height=0.36 * len(distances) + 0.9)
    for row, distance in enumerate(distances.values()):
        look = (
            {"color": ACCEPTED, "marker": "o"}
            if distance < limit
            else {"color": REJECTED, "marker": "X"}
        )
        axes.plot(max(distance, 1e-9), -row, markersize=9, **look)
    axes.axvline(limit, color=GREY, linestyle=":")
    axes.text(
        limit / 1.5,
        -0.1,
        "rounding stays\non this side",
        fontsize=SMALL,
        color=GREY,
        ha="right",
        va="top",
    )
    lossy = sum(distance >= limit for distance in distances.values())
    axes.set_title(
        f"{lossy} of {len(distances)} decoders do not reproduce the target's distribution",
    )
    axes.set(
        xscale="log",
        xlim=(5e-10, 1),
        xlabel="total variation from the target's distribution",
        yticks=-np.arange(len(distances)),
        yticklabels=distances.keys(),
        ylim=(0.6 - len(distances), 0.4),
    )
    return fig


def simulation_figure(tokens, wanted, simulated: dict[str, list[float]]):
    """Draw the target's probabilities as bars, and the shares of simulated draws by rule as markers on top of them."""
    fig, axes = figure(width=6.2, height=3.2)
    x = np.arange(len(tokens))
    axes.bar(x, wanted, color="white", edgecolor=GREY, label="p, target")
    for (label, shares), (colour, marker), shift in zip(
        simulated.items(), ((ACCEPTED, "o"), (REJECTED, "X")), (-0.12, 0.12)
    ):
        axes.plot(x + shift, shares, color=colour, marker=marker, linestyle="", label=label)
    axes.set(xticks=x, xticklabels=tokens, xlabel="token", ylabel="share of the draws")
    axes.legend()
    axes.set_title(
        "largest distance from p: "
        + ", ".join(
            f"{max(abs(np.asarray(shares) - np.asarray(wanted))):.3f} ({label})"
            for label, shares in simulated.items()
        ),
    )
    return fig


def two_tokens_figure(
    first: tuple[float, float], second: tuple[float, float], words: tuple[str, str]
):
    """Draw the ways to a text of two tokens as areas: across, the first token kept or replaced, upwards the second given the
    first.

    `first` and `second` are (p, q) of the two words of the text, the second after the first. All ways together fill a rectangle that is
    p wide and p high.
    """
    (p1, q1), (p2, q2) = first, second
    kept1, kept2 = min(p1, q1), min(p2, q2)
    fig, axes = figure(width=6.6, height=4.0)
    names = [
        "both kept",
        f"“{words[0]}” kept,\n“{words[1]}” replaced",
        f"“{words[0]}” replaced; the round\nends, and the next one\nbrings “{words[1]}”, with chance {p2:.2f}",
    ]
    ways = [
        ((0, 0), kept1, kept2, ACCEPTED, None, names[0]),
        ((0, kept2), kept1, p2 - kept2, NEXT, "///", names[1]),
        ((kept1, 0), p1 - kept1, p2, NEXT, "///", names[2]),
    ]
    for (x, y), width, height, colour, hatch, name in ways:
        axes.add_patch(
            Rectangle(
                (x, y),
                width,
                height,
                facecolor=colour if hatch is None else "white",
                edgecolor=colour,
                hatch=hatch,
                linewidth=1.5,
            )
        )
        write(
            axes,
            x + width / 2,
            y + height / 2,
            f"{name}\n{width * height:.3f}",
            size=MEDIUM,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
        )
    axes.add_patch(Rectangle((0, 0), p1, p2, fill=False, edgecolor=BLACK, linewidth=2.5))
    axes.set(
        xlim=(0, 1.25 * p1),
        ylim=(0, 1.25 * p2),
        xticks=[0, kept1, p1],
        yticks=[0, kept2, p2],
        xlabel=f"first token “{words[0]}”: kept up to {kept1:.2f}, with replacements {p1:.2f} = p",
        ylabel=f"then “{words[1]}”: kept up to {kept2:.2f},\nwith replacements {p2:.2f} = p",
    )
    areas = [width * height for _, width, height, *_ in ways]
    axes.set_title(
        " + ".join(f"{area:.3f}" for area in areas) + f" = {sum(areas):.3f} = {p1:.2f} × {p2:.2f}",
    )
    axes.grid(False)
    return fig
