"""A widget is one output with two faces: its panel, and a picture with what moves for a reader without a kernel."""

import base64
import io
import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.special import expit

from dspark_lite.common.errors import RequestError
from dspark_lite.scheduling.calibration import STS, Observations
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.course.figures import lesson_09, style, web, widgets
from dspark_lite.course.replication.block_replay import stored_steps


@pytest.fixture
def shown(monkeypatch):
    """What is displayed, and every sheet of stills that is closed."""
    found = {"bundles": [], "figures": []}
    monkeypatch.setattr(
        widgets,
        "display",
        lambda data, raw=False, metadata=None: (
            raw and found["bundles"].append({**data, **metadata})
        ),
    )
    close = plt.close
    monkeypatch.setattr(
        plt, "close", lambda figure: (found["figures"].append(figure), close(figure))
    )
    return found


def draw(height, shape, share):
    """A line to `height`."""
    fig, axes = style.figure()
    axes.plot([0, height], marker=shape, alpha=share)
    return fig


def controls():
    """A slider of each kind and a menu whose labels are not its values."""
    return {
        "height": widgets.slider("height", 1, 0, 5),
        "shape": widgets.menu("shape", [("round", "o"), ("square", "s")]),
        "share": widgets.slider("share of $1", 0.5, 0.0, 1.0, 0.1),
    }


def image_of(bundle):
    """The picture of a bundle as an array [height, width, 4]."""
    return plt.imread(io.BytesIO(base64.b64decode(bundle["image/png"])))


def lines_of(sheet):
    """What is written on a sheet of stills, from its top."""
    return [text.get_text().replace("\n", " ") for text in sheet.texts]


def test_a_widget_is_one_output_with_its_panel_and_its_picture(shown):
    panel = widgets.explore(draw, **controls())
    (bundle,) = shown["bundles"]
    assert bundle[widgets.WIDGET_VIEW]["model_id"] == panel.model_id
    assert "height, shape, share of $1" in bundle["text/plain"]
    assert image_of(bundle).std() > 0 and not plt.get_fignums()
    assert lines_of(shown["figures"][-1]) == [
        "height 1, shape round, share of $1 0.5",
        bundle["text/plain"],
    ]


def test_each_still_says_what_differs_and_shows_it(shown):
    widgets.explore(draw, {"shape": "s"}, {"height": 3, "share": 0.25}, **controls())
    sheet = shown["figures"][-1]
    assert lines_of(sheet)[1:3] == ["shape square", "height 3, share of $1 0.25"]
    first, second, third = (image.get_array() for image in sheet.images)
    assert not (first == second).all() and third.shape == first.shape
    one, three = (
        widgets.explore(draw, *stills, **controls()) and image_of(shown["bundles"][-1])
        for stills in ((), ({"height": 2}, {"height": 3}))
    )
    assert one.shape[1] == three.shape[1] and 2.5 * one.shape[0] < three.shape[0] < 3 * one.shape[0]


def test_stills_stand_in_columns_row_by_row(shown):
    def drawn(columns):
        widgets.explore(draw, {"height": 2}, {"height": 3}, columns=columns, **controls())
        return image_of(shown["bundles"][-1]).shape, shown["figures"][-1].images

    (tall, narrow, _), _ = drawn(1)
    (low, wide, _), (first, second, third) = drawn(2)
    assert wide == 2 * narrow and low < tall
    places = [(image.ox, image.oy) for image in (first, second, third)]
    assert places[0][0] == places[2][0] == 0 and places[1][0] == narrow
    assert places[0][1] == places[1][1] > places[2][1]


def test_a_still_of_a_control_that_is_not_there_is_refused(shown):
    with pytest.raises(
        RequestError, match="A still sets depth; the controls are height, shape, share"
    ):
        widgets.explore(draw, {"depth": 3}, **controls())


def test_the_web_edition_is_given_numbers_and_controls_where_the_course_is_built(
    shown, monkeypatch
):
    def numbers():
        return {"heights": [1, 2], "controls": {"height": widgets.slider("height", 2, 1, 2)}}

    monkeypatch.setenv("DSPARK_BUILD", "1")
    widgets.explore(draw, web=("heights", numbers), **controls())
    given = json.loads(shown["bundles"][-1][widgets.WEB])
    assert (
        given["drawing"] == "heights"
        and given["numbers"] == {"heights": [1, 2]}
        and list(given["controls"]) == list(controls())
    )
    assert given["controls"]["height"] == {
        "label": "height",
        "value": 2,
        "min": 1,
        "max": 2,
        "step": 1,
    }
    assert given["controls"]["shape"] == {
        "label": "shape",
        "value": "o",
        "options": [["round", "o"], ["square", "s"]],
    }
    monkeypatch.delenv("DSPARK_BUILD")
    widgets.explore(draw, web=("heights", numbers), **controls())
    assert widgets.WEB not in shown["bundles"][-1]


def test_the_boards_numbers_are_those_of_the_record():
    """What the web edition computes from: confidences of a few recorded steps, and the speeds of a table and of the string below it."""
    table = CostTable([1, 16, 64], [100.0, 50.0, 20.0])
    found = web.board_steps({"stairs": table})
    assert {requests: np.shape(steps)[:2] for requests, steps in found["confidence"].items()} == {
        requests: (web.BOARD_STEPS, requests) for requests in web.BOARD_REQUESTS
    }
    recorded = stored_steps(4, most=web.BOARD_STEPS)[0]
    assert (
        np.abs(
            np.array(found["confidence"][4])
            - np.stack([proposal.confidence for proposal in recorded])
        ).max()
        < 1e-3
    )
    assert found["tables"]["stairs"]["table"][1:] == [100.0] * 15 + [50.0] * 48 + [20.0]
    assert np.all(
        np.array(found["tables"]["stairs"]["hull"])
        >= np.array(found["tables"]["stairs"]["table"]) - 1e-3
    )


def test_the_thresholds_numbers_are_those_that_the_lessons_figure_draws():
    logits, accepted = np.array([[2.0, 0.5], [1.0, -1.0], [3.0, 3.0]]), np.array([2, 0, 1])
    blocks = Observations(logits, accepted, np.arange(3))
    table = CostTable([1, 2, 4, 6], [100.0, 90.0, 60.0, 40.0])
    found = web.threshold_costs({"math": blocks}, STS([1.0, 1.0], 0.0, 0.0), table, most_requests=2)
    at = found["thresholds"].index(0.5)
    raw = found["blocks"]["math"]["raw"]
    assert raw == found["blocks"]["math"]["calibrated"]
    assert (raw["accepted"][at], raw["wasted"][at]) == pytest.approx((1 + 3 / 3, 2 / 3), rel=1e-3)
    assert raw["cost"][1][at] == pytest.approx(
        lesson_09.token_milliseconds(table, 2, blocks, expit(logits), 0.5), rel=1e-3
    )
