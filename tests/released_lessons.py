"""A lesson on the released profile, from an empty cache to its last cell: what the files that split the lessons share."""

import re

import nbformat
import notebooks
import pytest
from hub_server import Hub
from released_hub import RELEASED, write_released
from transformers import AutoTokenizer

from dspark_lite.models.checkpoints import EMBEDDED

NEVER_FETCHED = "README.md"
# Run after the setup cell: from then on a drafter that is loaded while another is held stops the lesson, and answers of the
# random weights, which never end by themselves, are short.
ONE_AT_A_TIME = """
import gc
import weakref
from dspark_course.measure import lab

def load_alone(name, target, load=lab.load_drafter, loaded=[]):
    if name.startswith("tiny-"):  # a few MB, beside the released one
        return load(name, target)
    gc.collect()
    assert not any(drafter() for drafter in loaded), f"{name} is loaded while another drafter is held"
    drafter = load(name, target)
    loaded.append(weakref.ref(drafter))
    return drafter

lab.load_drafter = load_alone
lab.NEW_TOKENS["released"] = 24
del lab
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A Hub that holds all models of the released profile, in small shapes."""
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "tiny-target")
    folders = write_released(tmp_path_factory.mktemp("released"), tokenizer)
    with Hub({name: {"main": folder} for name, folder in folders.items()}) as served:
        yield served


def play(number, planted, environment):
    """Executes a lesson with its solutions, the code `planted` after its setup cell, and returns what it printed."""
    (source,) = notebooks.lesson_sources(number)
    notebook = notebooks.generate(source, solutions=True)
    notebook.cells.insert(2, nbformat.v4.new_code_cell(planted))
    notebooks.execute(notebook, source.stem, notebooks.ROOT / "notebooks", environment=environment)
    outputs = [output for cell in notebooks.code_cells(notebook) for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def asked_for(hub):
    """The models of which something was asked."""
    found = [re.match(r"/api/models/([^/]+/[^/]+)", request.path) for request in hub.requests]
    return {match[1] for match in found if match}


def released_environment(hub, folder):
    """A kernel's environment on the released profile, with everything that it keeps in `folder`."""
    return hub.environment(folder / "home", **notebooks.KERNEL_SETTINGS | {
        "DSPARK_PROFILE": "released", "HF_HUB_OFFLINE": "0", "DSPARK_MEASUREMENTS": str(folder / "measurements")})


def run_lesson(hub, number, folder):
    """Executes a lesson with its solutions, never with two drafters in memory, and what it measures kept in `folder`;
    returns what it printed."""
    hub.requests.clear()
    printed = play(number, ONE_AT_A_TIME, released_environment(hub, folder))
    assert "Not yet" not in printed and printed.count("Correct.") >= 2
    assert RELEASED["target"] in asked_for(hub) <= set(RELEASED.values())
    assert NEVER_FETCHED not in hub.sent()
    return printed
