"""Sliders and menus that redraw a figure; they work on ipywidgets 7 (Colab) and 8, and each has a static twin."""

import ipywidgets
import matplotlib.pyplot as plt
from IPython.display import display


def explore(draw, **controls):
    """Shows `controls` above a figure that `draw(**values)` makes anew at every change, and first a static twin of it.

    Controls are ipywidgets (IntSlider, FloatSlider, Dropdown, ToggleButtons); `draw` returns a matplotlib figure. The
    twin, drawn at the starting values, is what readers without a running kernel see.
    """
    twin = draw(**{name: control.value for name, control in controls.items()})
    display(twin)
    plt.close(twin)

    def redraw(**values):
        figure = draw(**values)
        display(figure)
        plt.close(figure)

    panel = ipywidgets.VBox([*controls.values(), ipywidgets.interactive_output(redraw, controls)])
    display(panel)
    return panel


def slider(description: str, value, low, high, step=1):
    """An IntSlider or FloatSlider that redraws when let go."""
    kind = ipywidgets.IntSlider if isinstance(value, int) else ipywidgets.FloatSlider
    return kind(description=description, value=value, min=low, max=high, step=step, continuous_update=False,
                style={"description_width": "initial"}, layout=ipywidgets.Layout(width="420px"))


def menu(description: str, options):
    """A Dropdown."""
    return ipywidgets.Dropdown(description=description, options=options, style={"description_width": "initial"},
                               layout=ipywidgets.Layout(width="420px"))
