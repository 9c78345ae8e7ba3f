"""Conditional acceptance by draft position: small multiples with their lines labelled where they end."""

from .style import draw_positions, figure, label_ends


def position_panels(found: dict, styles: dict, titles: dict):
    """A panel per domain, {domain: {name: [Estimate or None] by position}}, with its title; `styles` are keywords of
    `plot` by name, labels included. A line ends before the first position that hardly a round reached."""
    fig, panels = figure(len(found), width=4.0, sharey=True)
    for axes, (domain, by_name) in zip(panels, found.items()):
        for index, (name, estimates) in enumerate(by_name.items()):
            draw_positions(axes, estimates, styles[name], shift=0.08 * (index - (len(by_name) - 1) / 2))
        axes.set_xticks(range(1, max(map(len, by_name.values())) + 1))
        axes.set_title(titles[domain], fontsize=10)
        axes.label_outer()
    ends = [(*last_point(estimates, styles[name]), estimates) for name, estimates in by_name.items()]
    right = max(x for x, *_ in ends)
    # A line that ends early has its label under its interval.
    label_ends(panels[-1], [(x, y if x == right else estimates[x - 1].low, *rest) for x, y, *rest, estimates in ends])
    return fig


def last_point(estimates: list, style: dict) -> tuple:
    """Where a line of estimates ends, and what to call it: (x, y, label, colour)."""
    last = max(k for k, estimate in enumerate(estimates) if estimate is not None)
    return last + 1, estimates[last].value, style["label"], style["color"]
