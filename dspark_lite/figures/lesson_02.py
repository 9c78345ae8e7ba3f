"""Figures of lesson 02: where target and drafter overlap, which rules are exact, counts of draws."""

import numpy as np

from .style import ACCEPTED, BLACK, GREY, NEXT, REJECTED, figure


def overlap_panel(axes, p, q, names) -> None:
    """Two distributions over a few tokens, p [V] of the target and q [V] of the drafter, as three areas: kept (green,
    the smaller of both), refused (red, what q has more) and owed (blue, what p has more)."""
    x, p, q = np.arange(len(names)), np.asarray(p), np.asarray(q)
    kept, owed, refused = np.minimum(p, q), np.maximum(p - q, 0), np.maximum(q - p, 0)
    axes.bar(x, kept, color=ACCEPTED, label=f"kept: {kept.sum():.2f}")
    axes.bar(x, refused, bottom=kept, color="white", edgecolor=REJECTED, hatch="xxx",
             label=f"refused: {refused.sum():.2f}")
    axes.bar(x, owed, bottom=kept, color="white", edgecolor=NEXT, hatch="///", label=f"owed: {owed.sum():.2f}")
    for values, style, label in ((p, "-", "p, target"), (q, ":", "q, drafter")):
        axes.hlines(values, x - 0.45, x + 0.45, color=BLACK, linestyle=style, linewidth=2, label=label)
    axes.set(xticks=x, xticklabels=names, xlabel="token", ylabel="probability", ylim=(0, 1.4 * max(p.max(), q.max())))
    axes.legend(ncols=2, fontsize=8, loc="upper right")
    axes.set_title(f"kept {kept.sum():.2f}; refused {refused.sum():.2f} = owed {owed.sum():.2f}", fontsize=10)


def overlap_figure(p, q, names):
    """The three areas of `overlap_panel` with the acceptance probability, and the residual of p and q [V] beside it."""
    fig, (left, right) = figure(2, width=4.8, height=3.2, gridspec_kw={"width_ratios": [3, 2]})
    overlap_panel(left, p, q, names)
    owed = np.maximum(np.asarray(p) - np.asarray(q), 0)
    total = owed.sum()
    right.bar(names, owed / total if total > 0 else 0 * owed, color=NEXT)
    right.set(xlabel="token", ylabel="probability", ylim=(0, 1.05))
    right.set_title("residual: the owed, scaled to 1" if total > 0 else "no residual: nothing is refused", fontsize=10)
    return fig


def total_variation_figure(distances: dict[str, float]):
    """Total variation from the target by rule, on a logarithmic axis: exact rules green, lossy ones red."""
    fig, axes = figure(width=7.5, height=0.36 * len(distances) + 0.9)
    for row, distance in enumerate(distances.values()):
        exact = distance < 1e-5
        look = {"color": ACCEPTED, "marker": "o"} if exact else {"color": REJECTED, "marker": "X"}
        axes.plot(max(distance, 1e-9), -row, markersize=9, **look)
    axes.axvline(np.finfo(np.float32).eps, color=GREY, linestyle=":")
    axes.text(np.finfo(np.float32).eps * 1.3, -0.2, "float32 rounds here", fontsize=8, color=GREY)
    lossy = sum(distance >= 1e-5 for distance in distances.values())
    axes.set_title(f"{lossy} of {len(distances)} decoders write another distribution", fontsize=10)
    axes.set(xscale="log", xlim=(5e-10, 1), xlabel="total variation from the target's distribution",
             yticks=-np.arange(len(distances)), yticklabels=distances.keys(), ylim=(0.6 - len(distances), 0.4))
    return fig


def counts_figure(tokens, probs, draws: int, counts: dict[str, list[int]]):
    """Expected counts of tokens in `draws` draws with two standard deviations, and observed ones by verifier."""
    fig, axes = figure(width=8.5, height=3.2)
    x, probs = np.arange(len(tokens)), np.array(probs)
    deviation = np.sqrt(draws * probs * (1 - probs))
    axes.bar(x, draws * probs, color="white", edgecolor=GREY, yerr=2 * deviation, ecolor=GREY, capsize=6,
             label="target, ± 2 standard deviations")
    looks = ((ACCEPTED, "o"), (REJECTED, "X"))
    for (label, observed), (colour, marker), shift in zip(counts.items(), looks, (-0.15, 0.15)):
        axes.plot(x + shift, observed, color=colour, marker=marker, linestyle="", label=label)
    axes.set(xticks=x, xticklabels=[token.replace(" ", "·") for token in tokens], xlabel="token after the anchor",
             ylabel=f"count in {draws:,} draws")
    axes.legend()
    inside = [f"{label}: {int((abs(np.array(observed) - draws * probs) <= 2 * deviation).sum())}" for label, observed in counts.items()]
    axes.set_title(f"counts within the bars, of {len(tokens)}: " + "; ".join(inside), fontsize=10)
    return fig
