"""A lesson's widgets in JupyterLab and a real browser: moving a control redraws the picture, once; the living round plays.

Skipped where playwright (`pip install playwright`) or a Chromium that the system brings is missing; no browser is
downloaded.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import nbformat
import pytest

from chromium import CHROMIUM, QUIET
from tools.notebooks import build as notebooks

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.slow(reason="a JupyterLab and a browser are started"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

PATIENCE = 120_000  # milliseconds
CELL = """from dspark_lite.course.figures import style, widgets


def draw(height, shape):
    fig, axes = style.figure()
    axes.plot([0, height], marker=shape)
    return fig


panel = widgets.explore(draw, height=widgets.slider("height", 1, 0, 5), shape=widgets.menu("shape", ["o", "s"]))"""
ROUND = """from dspark_lite.course.figures.living_round import living_round
from dspark_lite.course.measure.recorded_rounds import recorded_rounds

picture = living_round("words", recorded_rounds("greedy"))"""
GAME = """from dspark_lite.course.figures.drafter_game import drafter_game

game = drafter_game()"""
DONE = """() => {
    const panel = window.jupyterapp?.shell.currentWidget;
    return panel?.content?.widgets?.length && panel.content.widgets.every(cell => cell.model.executionCount)
        && panel.sessionContext.session.kernel.status == "idle";
}"""


@pytest.fixture
def address(tmp_path):
    """The address of a JupyterLab that has three notebooks with one widget each."""
    for name, cell in (("widget", CELL), ("round", ROUND), ("game", GAME)):
        nbformat.write(
            nbformat.v4.new_notebook(
                cells=[nbformat.v4.new_code_cell(cell)], metadata=notebooks.NOTEBOOK_METADATA
            ),
            tmp_path / f"{name}.ipynb",
        )
    folders = {
        f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "RUNTIME", "DATA")
    }
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--IdentityProvider.token=",
        "--LabApp.expose_app_in_browser=True",
        f"--ServerApp.root_dir={tmp_path}",
    ]
    environment = {**os.environ, **folders, "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings")}
    log = tmp_path / "server.log"
    with (
        log.open("w") as out,
        subprocess.Popen(command, env=environment, stdout=out, stderr=out) as server,
    ):
        try:
            assert answers(f"http://127.0.0.1:{port}/api"), log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def answers(address, deadline=PATIENCE / 1000):
    """Whether the address answers within `deadline` seconds."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        try:
            return urllib.request.urlopen(address).status == 200
        except OSError:
            time.sleep(0.2)
    return False


@contextmanager
def executed(address, name):
    """A page on which all cells of a notebook have run."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/lab/tree/{name}.ipynb?reset")
        page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"
        )
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
        page.wait_for_function(DONE)
        yield page
        browser.close()


def test_a_control_redraws_the_picture_once(address):
    with executed(address, "widget") as page:
        (picture,) = page.locator(
            ".jp-OutputArea-output img"
        ).all()  # the picture for readers without a kernel is not shown
        seen = [picture.get_attribute("src")]
        for move in (
            lambda: page.locator(".noUi-handle").press("ArrowRight"),
            lambda: page.locator(".jp-OutputArea-output select").select_option(index=1),
        ):
            move()
            page.wait_for_function(
                "old => [...document.querySelectorAll('.jp-OutputArea-output img')]"
                ".filter(image => !old.includes(image.src)).length == 1",
                arg=seen,
            )
            (picture,) = page.locator(".jp-OutputArea-output img").all()
            seen.append(picture.get_attribute("src"))


def test_the_living_round_plays_and_the_keys_are_its_own(address):
    pytest.importorskip("anywidget")
    with executed(address, "round") as page:
        place = page.locator(".jp-OutputArea-output .living-round")
        slider, said = place.get_by_role("slider"), place.locator(".says")
        assert not page.locator(".jp-OutputArea-output img").all()
        slider.press("Home")
        first = said.inner_text()
        assert "The anchor is" in first and slider.input_value() == "0"
        slider.press("ArrowRight")
        assert slider.input_value() == "1" and said.inner_text() != first
        slider.press(" ")
        page.wait_for_function("(slider) => Number(slider.value) >= 3", arg=slider.element_handle())


def test_a_game_takes_the_keys_in_a_notebook(address):
    pytest.importorskip("anywidget")
    with executed(address, "game") as page:
        place = page.locator(".jp-OutputArea-output .game")
        field = place.get_by_role("textbox")
        field.click()
        page.keyboard.type("it was the age")  # letters that are commands of JupyterLab, too
        field.press("Enter")
        assert "3 of 4 kept" in place.get_by_role("status").inner_text()
        assert place.locator(".refused").all_inner_texts() == ["age"]
