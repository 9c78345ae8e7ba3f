"""Figures of lesson 02: where target and drafter overlap, which rules are exact, counts of draws."""

import numpy as np

from .style import ACCEPTED, BLACK, GREY, NEXT, REJECTED, figure


def overlap_panel(axes, p, q, names) -> None:
    """Two distributions over a few tokens, p [V] of the target and q [V] of the drafter, as three areas: kept (green,
    the smaller of both), refused (orange, what q has more) and owed (blue, what p has more)."""
    x, p, q = np.arange(len(names)), np.asarray(p), np.asarray(q)
    kept, owed, refused = np.minimum(p, q), np.maximum(p - q, 0), np.maximum(q - p, 0)
    axes.bar(x, kept, color=ACCEPTED, label=f"kept: {kept.sum():.2f}")
    axes.bar(x, refused, bottom=kept, color="white", edgecolor=REJECTED, hatch="xxx",
             label=f"refused: {refused.sum():.2f}")
    axes.bar(x, owed, bottom=kept, color="white", edgecolor=NEXT, hatch="///", label=f"owed: {owed.sum():.2f}")
    axes.hlines(p, x - 0.45, x + 0.45, color=GREY, linewidth=4, label="p, target")
    axes.hlines(q, x - 0.45, x + 0.45, color=BLACK, linestyle=":", linewidth=2, label="q, drafter")  # seen on p where both agree
    top = 1.4 * max(p.max(), q.max())
    axes.set(xticks=x, xticklabels=names, xlabel="token", ylabel="probability", ylim=(0, top))
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= min(top, 1.01)])  # no probability is above 1
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
    if total == 0:
        right.set_axis_off()
    right.set_title("residual: the owed, scaled to 1" if total > 0 else "no residual: nothing is refused", fontsize=10)
    return fig


def total_variation_figure(distances: dict[str, float], limit: float = 1e-5):
    """Total variation from the target by rule, on a logarithmic axis: exact ones, below the `limit` that float32 rounding
    stays under, green, lossy ones orange."""
    fig, axes = figure(width=7.5, height=0.36 * len(distances) + 0.9)
    for row, distance in enumerate(distances.values()):
        look = {"color": ACCEPTED, "marker": "o"} if distance < limit else {"color": REJECTED, "marker": "X"}
        axes.plot(max(distance, 1e-9), -row, markersize=9, **look)
    axes.axvline(limit, color=GREY, linestyle=":")
    axes.text(limit / 1.5, -0.1, "rounding stays\non this side", fontsize=8, color=GREY, ha="right", va="top")
    lossy = sum(distance >= limit for distance in distances.values())
    axes.set_title(f"{lossy} of {len(distances)} decoders do not reproduce the target's distribution", fontsize=10)
    axes.set(xscale="log", xlim=(5e-10, 1), xlabel="total variation from the target's distribution",
             yticks=-np.arange(len(distances)), yticklabels=distances.keys(), ylim=(0.6 - len(distances), 0.4))
    return fig


def counts_figure(tokens, probs, draws: int, counts: dict[str, list[int]]):
    """Expected counts of tokens in `draws` draws with two standard deviations, and observed ones by verifier; the last
    bar holds all tokens that are not named."""
    fig, axes = figure(width=8.5, height=3.2)
    probs = np.append(probs, max(1 - sum(probs), 0))
    counts = {label: np.append(observed, draws - sum(observed)) for label, observed in counts.items()}
    x, names = np.arange(len(probs)), [*(token.replace(" ", "·") for token in tokens), "all others"]
    deviation = np.sqrt(draws * probs * (1 - probs))
    axes.bar(x, draws * probs, color="white", edgecolor=GREY, yerr=2 * deviation, ecolor=GREY, capsize=6,
             label="target, ± 2 standard deviations")
    looks = ((ACCEPTED, "o"), (REJECTED, "X"))
    for (label, observed), (colour, marker), shift in zip(counts.items(), looks, (-0.15, 0.15)):
        axes.plot(x + shift, observed, color=colour, marker=marker, linestyle="", label=label, clip_on=False, zorder=5)
    axes.set(xticks=x, xticklabels=names, xlabel="token after the anchor (· is a space)", ylabel=f"count in {draws:,} draws",
             ylim=(0, None))
    axes.legend(loc="upper center")
    inside = [f"{int((abs(observed - draws * probs) <= 2 * deviation).sum())} of {len(names)} ({label})" for label, observed in counts.items()]
    axes.set_title("counts within the bars: " + ", ".join(inside), fontsize=10)
    return fig
