"""Figures of lesson 03: where the time of a token goes, and when speculation pays."""

from dspark_lite.common.names import DRAFTER_LABELS
from .style import ALTERED, BLACK, DRAFTER_STYLES, GREY, RED, domain_axes, domain_style, figure, measured_on

SLOWER = 1.02  # times the time of plain decoding: less is within what a measurement of it varies


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
        axes.annotate(f"τ {tau:.2f}", (x, verify + draft), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=8)
    axes.bar(0, 0, facecolor="white", edgecolor=GREY, hatch="////", label="hatched: drafting")
    domain_axes(axes, domains, "time of one token, L (ms)", device)
    slower = []
    for name in names:
        lost = [domain for domain in domains if sum(costs[name, domain][1:]) / costs[name, domain][0] > SLOWER * sum(costs["plain", domain][1:])]
        if lost:
            slower.append(f"{DRAFTER_LABELS[name]} on {' and '.join(filter(None, (', '.join(lost[:-1]), lost[-1])))}")
    name, share = most_drafting(costs)
    axes.set_title(f"drafting is {share:.0%} of a round of the {DRAFTER_LABELS[name]}\n"
                   f"slower than plain decoding: {', '.join(slower) or 'none'}", fontsize=10)
    return fig


def most_drafting(costs: dict[tuple[str, str], tuple[float, float, float]]) -> tuple[str, float]:
    """The drafter, in `costs` of latency_bars, that spends the largest share of its rounds' time drafting, and that share."""
    shares = {}
    for name in dict.fromkeys(name for name, _ in costs):
        _, draft, verify = map(sum, zip(*(cost for (drafter, _), cost in costs.items() if drafter == name)))
        shares[name] = draft / (draft + verify)
    return max(shares.items(), key=lambda item: item[1])


def when_it_pays(acceptance: float, gamma: int, cost: float, verify: float):
    """Speed-up of a drafter whose drafts are accepted with a constant chance, by draft length and by acceptance.

    `cost` is that of drafting one token and `verify` that of verifying a block, both in plain passes of the target.
    """
    def speedup(a, length):
        return sum(a**k for k in range(length + 1)) / (length * cost + verify)

    fig, (left, right) = figure(2, width=4.3, height=3.2)
    lengths, chances, here = range(1, 17), [k / 1000 for k in range(1000)], speedup(acceptance, gamma)
    curve = [speedup(acceptance, length) for length in lengths]
    top = next(top for top in (3, 6, 12, 24) if top > max(curve))  # few scales, so that most settings can be compared
    best = max(lengths, key=lambda length: speedup(acceptance, length))
    marked = {"linestyle": "", "color": BLACK, "markerfacecolor": "white"}
    left.plot(lengths, curve, color=ALTERED, marker=".")
    left.plot(best, max(curve), **marked, marker="*", markersize=14, label="best")
    left.set(xlabel="draft length γ (tokens)", xticks=lengths[::3])
    left.set_title(f"best γ = {best}, {max(curve):.2f} times plain decoding", fontsize=10)
    shown = [a for a in chances if speedup(a, gamma) <= top]
    right.plot(shown, [speedup(a, gamma) for a in shown], color=ALTERED)
    even = next((a for a in chances if speedup(a, gamma) >= 1), None)
    if even is not None:
        right.plot(even, 1, **marked, marker="D", label="breaks even")
    right.set(xlabel="acceptance a", xlim=(-0.05, 1.05))
    right.set_title(f"γ = {gamma} never breaks even" if even is None else f"γ = {gamma} breaks even at a = {even:.2f}", fontsize=10)
    for axes, x in ((left, gamma), (right, acceptance)):
        axes.axhspan(0, 1, color=RED, alpha=0.08, lw=0)
        axes.text(0.98, 0.03, "slower than plain decoding", transform=axes.transAxes, ha="right", fontsize=8, color=RED)
        axes.plot(x, here, linestyle="", marker="o", markersize=9, color=BLACK, label=f"here: {here:.2f}")
        axes.set(ylabel="speed-up over plain decoding", ylim=(0, top))
        axes.legend(fontsize=8, loc="best")
    return fig


def draft_length_sweep(measured: dict[tuple[str, int], tuple[float, float]], model: dict[tuple[str, int], tuple[float, float]],
                       device: str):
    """Measured {(domain, draft length): (accepted length, speed-up)} in a column per domain, accepted lengths above and
    speed-ups below, each beside those of a model (same keys). The title names the length with the largest measured speed-up."""
    domains, lengths = list(dict.fromkeys(domain for domain, _ in measured)), sorted({length for _, length in measured})
    fig, panels = figure(len(domains), 2, width=3.1, height=2.4, sharex=True, sharey="row", squeeze=False)
    for column, domain in zip(panels.T, domains):
        style = domain_style(domain)
        for axes, found, expected in zip(column, zip(*(measured[domain, length] for length in lengths)),
                                         zip(*(model[domain, length] for length in lengths))):
            axes.plot(lengths, found, **{**style, "label": "measured"})
            axes.plot(lengths, expected, linestyle="", marker=style["marker"], markerfacecolor="none", markersize=11, color=BLACK,
                      label="formula")
        best = max(lengths, key=lambda length: measured[domain, length][1])
        column[0].set_title(f"{domain}: fastest at γ = {best}", fontsize=10)
        column[0].legend(fontsize=8, loc="upper left")
        column[1].axhspan(0, 1, color=RED, alpha=0.08, lw=0)
        column[1].text(0.97, 0.04, "slower than plain", transform=column[1].transAxes, ha="right", fontsize=8, color=RED)
        column[1].set(xlabel="draft length γ (tokens)", xticks=lengths)
    panels[0, 0].set(ylabel="tokens per round, τ", ylim=(1, None))
    panels[1, 0].set(ylabel="times plain decoding", ylim=(0, 1.2 * max(speedup for _, speedup in [*measured.values(), *model.values()])))
    measured_on(panels[1, -1], device)
    return fig
