"""Figures of lesson 01: what a pass costs by context and by the positions that it carries."""

from matplotlib.ticker import LogLocator, NullFormatter

from .style import BLACK, BLUE, GREY, ORANGE, RED, figure, measured_on


def context_cost_figure(contexts, without_cache, with_cache, device: str):
    """Milliseconds of the next token by tokens of context, reading everything again and reading one token."""
    fig, axes = figure()
    axes.plot(contexts, without_cache, color=RED, marker="X", linestyle="--", label="without cache: the whole text")
    axes.plot(contexts, with_cache, color=BLUE, marker="o", label="with cache: the new token")
    axes.set_xscale("log", base=2)
    axes.set(xticks=contexts, xticklabels=contexts, yscale="log", xlabel="context (tokens), both scales logarithmic",
             ylabel="time of the next token (ms)")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    longer, slower, held = (series[-1] / series[0] for series in (contexts, without_cache, with_cache))
    axes.set_title(f"context × {longer:.0f}: time × {slower:.0f} without the cache, × {held:.1f} with it", fontsize=10)
    axes.legend()
    measured_on(axes, device)
    return fig


def pass_cost_figure(positions, milliseconds, device: str):
    """Two panels: milliseconds of one target pass by the positions it carries, and the same divided by them."""
    fig, (whole, each) = figure(2)
    last, top = positions[-1], 1.5 * max(milliseconds)
    whole.plot(positions, milliseconds, color=BLUE, marker="o")
    whole.text(last, milliseconds[-1] + 0.04 * top, "measured", color=BLUE, ha="right")
    whole.plot([0, last], [0, milliseconds[0] * last], color=GREY, linestyle=":")
    whole.text(0.93 * top / milliseconds[0] + 0.03 * last, 0.93 * top, "if every position\nwere paid in full", color=GREY, va="top")
    whole.set(xlabel="positions in the pass", ylabel="time of one pass (ms)", ylim=(0, top), xticks=positions)
    whole.set_title(f"{last} positions cost {milliseconds[-1] / milliseconds[0]:.1f} times as much as one", fontsize=10)
    each.plot(positions, [time / k for time, k in zip(milliseconds, positions)], color=BLUE, marker="o")
    each.set(xlabel="positions in the pass", ylabel="time of the pass / positions (ms)", ylim=(0, None), xticks=positions)
    each.set_title(f"each of {last} positions costs {milliseconds[-1] / last / milliseconds[0]:.0%} of a pass over one", fontsize=10)
    measured_on(each, device)
    return fig


def roofline_figure(bandwidth, peak, intensity, many, speed, positions, pass_speed, device: str):
    """Billions of multiply-adds a second by multiply-adds a byte, under the roof min(bandwidth * intensity, peak).

    `intensity` is that of one position; `speed` was measured at `many` positions with matrix products alone and
    `pass_speed` at `positions` with whole passes.
    """
    fig, axes = figure(width=6.4, height=3.8)
    bend, ends = peak / bandwidth, (intensity * many[0] / 1.5, intensity * many[-1] * 1.5)
    axes.plot([ends[0], bend, ends[1]], [bandwidth * ends[0], peak, peak], color=BLACK, linewidth=1, label="roof")
    axes.plot([intensity * k for k in many], speed, color=BLUE, marker="o", linestyle="", label="matrix products alone")
    axes.plot([intensity * k for k in positions], pass_speed, color=ORANGE, marker="s", linestyle="",
              label="whole pass")
    for k, height in zip(many, speed):
        axes.annotate(k, (intensity * k, height), (4, -2), textcoords="offset points", fontsize=7, va="top")
    for k, height in zip(positions, pass_speed):
        axes.annotate(k, (intensity * k, height), (0, -5), textcoords="offset points", fontsize=7, ha="center", va="top")
    axes.axvline(bend, color=GREY, linestyle=":", linewidth=1)
    axes.set(xscale="log", yscale="log", ylim=(min(pass_speed) / 2, None),
             xlabel="arithmetic intensity (multiply-adds per byte); numbers: positions in the pass",
             ylabel="billion multiply-adds per second")
    for side, text in (("right", "waits for weights ← "), ("left", " → multiplies")):
        axes.text(bend, axes.get_ylim()[0] * 1.15, text, fontsize=8, color=GREY, ha=side)
    axes.set_title(f"the roof bends at about {bend / intensity:.0f} positions", fontsize=10)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.08))
    measured_on(axes, device)
    return fig


def round_cost_figure(tau: float, draft: float, verify: float):
    """Two bars in units of one plain pass: tau tokens decoded plainly, and the one round that commits as many."""
    fig, axes = figure(width=8, height=2)
    for token in range(int(tau) + 1):
        axes.barh(1, min(1, tau - token), left=token, color=GREY, edgecolor="white", label="" if token else "plain pass")
    axes.barh(0, draft, color=ORANGE, edgecolor="white", label=f"draft {draft:.2f}")
    axes.barh(0, verify, left=draft, color=BLUE, edgecolor="white", label=f"verify {verify:.2f}")
    ratio = tau / (draft + verify)
    axes.set(yticks=[0, 1], yticklabels=["one round", "plain"], xlim=(0, max(9, draft + verify + 0.2)),
             xlabel=f"time to commit {tau:.2f} tokens (plain passes)")
    axes.set_title(f"{ratio:.2f} times plain decoding's speed; break-even at τ = {draft + verify:.2f}", fontsize=10)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9)
    axes.grid(False, axis="y")
    return fig
