"""A widget is one output with two faces: its panel, and a picture with what moves for a reader without a kernel."""

import base64
import io
import json

import matplotlib.pyplot as plt
import pytest

from dspark_lite.common.errors import RequestError
from dspark_lite.course.figures import style, widgets


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


def test_the_web_edition_has_a_frame_for_each_value_where_the_course_is_built(shown, monkeypatch):
    monkeypatch.setenv("DSPARK_BUILD", "1")
    widgets.explore(draw, frames={"share": [0.0, 0.4, 1.0]}, **controls())
    given = json.loads(shown["bundles"][-1][widgets.WEB])
    assert given["drawing"] == "frames"
    film = given["numbers"]
    assert film["label"] == "share of $1" and film["begin"] == 1  # the value nearest to 0.5
    assert [words for words, _ in film["frames"]] == [f"share of $1 {v}" for v in ("0", "0.4", "1")]
    images = [image_of({"image/png": drawn}) for _, drawn in film["frames"]]
    assert len({image.shape for image in images}) == 1 and not (images[0] == images[2]).all()
    monkeypatch.delenv("DSPARK_BUILD")
    widgets.explore(draw, frames={"share": [0.0, 1.0]}, **controls())
    assert widgets.WEB not in shown["bundles"][-1]


def test_frames_of_unequal_size_stand_on_sheets_of_one_size():
    def wide(height):
        fig, axes = style.figure(width=2 + height, height=2)
        axes.plot([0, height])
        return fig

    control = {"height": widgets.slider("height", 1, 0, 3)}
    film = widgets.film(wide, {"height": 1}, "height", [1, 3], control)
    narrow, full = (image_of({"image/png": drawn}) for _, drawn in film["frames"])
    assert narrow.shape == full.shape and narrow[:, -50:, :3].min() > 0.98 > full[:, -50:, :3].min()


def test_a_module_for_a_notebook_imports_nothing():
    bundled = widgets.module(widgets.HERE / "living_round.js")
    assert "import " not in bundled and "export default" in bundled
    assert bundled.count("function svg(") == 1
