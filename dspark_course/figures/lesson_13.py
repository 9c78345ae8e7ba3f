"""The figure of the reader's own experiment in lesson 13."""

from dspark_lite.common import estimates
from ..measure import evaluation
from .style import BLUE, ORANGE, draw_estimates, figure, measured_on


def experiment_lengths(found: dict, device: str):
    """Accepted length by domain of the recipe as it is and with its change, with intervals over prompts; `found` as `trials.experiment`
    returns it."""
    fig, axes = figure()
    for shift, color, (label, by_domain) in zip((-0.05, 0.05), (BLUE, ORANGE), found.items()):
        values = [estimates.bootstrap(evaluation.mean_accepted_length, [counts]) for counts in by_domain.values()]
        draw_estimates(axes, [k + shift for k in range(len(values))], values, {"label": label, "marker": "o", "linestyle": "", "color": color})
    axes.set(xticks=range(len(by_domain)), xticklabels=list(by_domain), ylabel="accepted length (tokens per round)")
    axes.legend()
    measured_on(axes, device)
    return fig
