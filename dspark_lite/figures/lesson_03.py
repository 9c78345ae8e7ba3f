"""Figures of lesson 03: where the time of a token goes, and when speculation pays."""

from ..common.names import DRAFTER_LABELS
from .style import BLACK, BLUE, DRAFTER_STYLES, GREY, ORANGE, RED, domain_axes, domain_style, figure, measured_on


def latency_bars(costs: dict[tuple[str, str], tuple[float, float, float]], device: str):
    """Milliseconds of one token by domain, from {(drafter, domain): (accepted length, draft seconds, verify seconds)}.

    Seconds are those of a round. A bar is L, its hatched part the drafting; above it stands the accepted length.
    """
    fig, axes = figure(width=7.4)
    names, domains = list(dict.fromkeys(name for name, _ in costs)), list(dict.fromkeys(domain for _, domain in costs))
    width = 0.8 / len(names)
    for (name, domain), (tau, draft, verify) in costs.items():
        label, colour = DRAFTER_LABELS[name], DRAFTER_STYLES[name][0]
        x = domains.index(domain) + (names.index(name) - (len(names) - 1) / 2) * width
        draft, verify = draft / tau * 1e3, verify / tau * 1e3
        axes.bar(x, verify, width * 0.92, color=colour, label=label if domain == domains[0] else None)
        axes.bar(x, draft, width * 0.92, bottom=verify, facecolor="white", edgecolor=colour, hatch="////")
        axes.text(x, verify + draft, f"τ {tau:.2f}", ha="center", va="bottom", fontsize=8)
    axes.bar(0, 0, facecolor="white", edgecolor=GREY, hatch="////", label="drafting, a part of it")
    domain_axes(axes, domains, "time of one token, L (ms)", device)
    slower = [f"{DRAFTER_LABELS[name]} on {domain}" for name, domain in costs
              if sum(costs[name, domain][1:]) / costs[name, domain][0] > sum(costs["plain", domain][1:])]
    axes.set_title("slower than plain decoding: " + (", ".join(slower) or "none"), fontsize=10)
    return fig


def when_it_pays(acceptance: float, gamma: int, cost: float, verify: float):
    """Speed-up of a drafter whose drafts are accepted with a constant chance, by draft length and by acceptance.

    `cost` is that of drafting one token and `verify` that of verifying a block, both in plain passes of the target.
    """
    def speedup(a, length):
        return sum(a**k for k in range(length + 1)) / (length * cost + verify)

    fig, (left, right) = figure(2, width=4.3, height=3.2)
    lengths, chances = range(1, 17), [k / 100 for k in range(100)]
    curve = [speedup(acceptance, length) for length in lengths]
    best = max(lengths, key=lambda length: speedup(acceptance, length))
    left.plot(lengths, curve, color=BLUE, marker=".")
    left.plot(best, speedup(acceptance, best), linestyle="", marker="*", markersize=14, color=ORANGE,
              label=f"best: γ = {best}")
    left.set(xlabel="draft length γ (tokens)", xticks=lengths[::3],
             title=f"a = {acceptance:.2f}, c = {cost:.2f}, v = {verify:.1f}")
    right.plot(chances, [speedup(a, gamma) for a in chances], color=BLUE)
    even = next((a for a in chances if speedup(a, gamma) >= 1), None)
    if even is not None:
        right.plot(even, 1, linestyle="", marker="D", color=RED, label=f"breaks even at a = {even:.2f}")
    right.set(xlabel="acceptance a", title=f"γ = {gamma}, c = {cost:.2f}, v = {verify:.1f}")
    here = speedup(acceptance, gamma)
    for axes, x in ((left, gamma), (right, acceptance)):
        axes.axhspan(0, 1, color=RED, alpha=0.08, lw=0)
        axes.text(0.98, 0.03, "slower than plain decoding", transform=axes.transAxes, ha="right", fontsize=8, color=RED)
        axes.plot(x, here, linestyle="", marker="o", markersize=9, color=BLACK, label=f"here: {here:.2f}")
        axes.set(ylabel="speed-up over plain decoding", ylim=(0, 1.15 * max([1.2, here, *curve])))
        axes.legend(fontsize=8, loc="best")
    return fig


def draft_length_sweep(measured: dict[tuple[str, int], tuple[float, float]], model: dict[str, list[float]],
                       device: str):
    """Measured {(domain, draft length): (accepted length, speed-up)} in a column per domain: above, accepted lengths
    beside those of a model; below, speed-ups with the best length marked."""
    fig, panels = figure(len(model), 2, width=3.1, height=2.4, sharex=True, sharey="row")
    for (above, below), (domain, expected) in zip(panels.T, model.items()):
        lengths = sorted(length for name, length in measured if name == domain)
        taus, speedups = zip(*(measured[domain, length] for length in lengths))
        style = domain_style(domain)
        above.plot(lengths, taus, **{**style, "label": "measured"})
        above.plot(lengths, expected, linestyle="", marker=style["marker"], markerfacecolor="none", markersize=11,
                   color=BLACK, label="formula")
        above.set_title(f"{domain}: τ {taus[-1]:.1f} at γ = {lengths[-1]}", fontsize=10)
        above.legend(fontsize=8, loc="upper left")
        below.plot(lengths, speedups, **style)
        below.axhspan(0, 1, color=RED, alpha=0.08, lw=0)
        best = max(lengths, key=lambda length: measured[domain, length][1])
        below.annotate(f"best: γ = {best}", (best, measured[domain, best][1]), (0, 7), textcoords="offset points", ha="center", fontsize=8)
        below.set(xlabel="draft length γ (tokens)", xticks=lengths)
    panels[0, 0].set(ylabel="tokens per round, τ", ylim=(1, None))
    panels[1, 0].set(ylabel="times plain decoding", ylim=(0, 1.2 * max(speedup for _, speedup in measured.values())))
    panels[1, 0].text(0.97, 0.04, "slower than plain", transform=panels[1, 0].transAxes, ha="right", fontsize=8, color=RED)
    measured_on(panels[1, -1], device)
    return fig
