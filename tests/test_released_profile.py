"""The released profile from end to end: a Hub on loopback, the real client, and the lessons as they are committed."""

import json
import re

import nbformat
import notebooks
import pytest
from hub_server import Hub
from released_hub import MANIFEST, RELEASED, write_released
from transformers import AutoTokenizer

from dspark_lite.models.checkpoints import EMBEDDED

LESSONS = ("00", "01", "02", "03", "04", "05", "06", "08")
NEVER_FETCHED = "README.md"
# Run behind the setup cell: from then on a drafter that is loaded while another is held stops the lesson.
ONE_AT_A_TIME = """
import gc
import weakref
from dspark_lite.measure import lab

def load_alone(name, target, load=lab.load_drafter, loaded=[]):
    gc.collect()
    assert not any(drafter() for drafter in loaded), f"{name} is loaded while another drafter is held"
    drafter = load(name, target)
    loaded.append(weakref.ref(drafter))
    return drafter

lab.load_drafter = load_alone
del lab
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A Hub that holds all models of the released profile, in small shapes."""
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "tiny-target")
    folders = write_released(tmp_path_factory.mktemp("released"), tokenizer)
    with Hub({name: {"main": folder} for name, folder in folders.items()}) as served:
        yield served


def asked_for(hub):
    """The models of which something was asked."""
    found = [re.match(r"/api/models/([^/]+/[^/]+)", request.path) for request in hub.requests]
    return {match[1] for match in found if match}


def test_the_small_shapes_have_the_released_files_and_fields(hub):
    for name in RELEASED.values():
        folder = hub.models[name]["main"]
        config = json.loads((folder / "config.json").read_text())
        if name in MANIFEST:
            assert MANIFEST[name]["config"].keys() <= config.keys()
            assert config["architectures"] == MANIFEST[name]["config"]["architectures"]
        else:
            assert (folder / "tokenizer.json").exists() and (folder / "merges.txt").exists() and config["architectures"] == ["Qwen3ForCausalLM"]
    target = hub.models[RELEASED["target"]]["main"]
    assert len(list(target.glob("model-*.safetensors"))) > 1 and (target / "model.safetensors.index.json").exists()


@pytest.mark.parametrize("number", LESSONS)
def test_a_lesson_runs_on_the_released_profile(hub, number, tmp_path):
    """From an empty cache, with the solutions, to its last cell, and never with two drafters in memory."""
    (source,) = notebooks.lesson_sources(number)
    notebook = nbformat.read(notebooks.notebook_path(source, solutions=True), as_version=4)
    notebook.cells.insert(2, nbformat.v4.new_code_cell(ONE_AT_A_TIME))
    environment = hub.environment(tmp_path / "home", **notebooks.KERNEL_SETTINGS | {"DSPARK_PROFILE": "released", "HF_HUB_OFFLINE": "0"})
    hub.requests.clear()
    notebooks.execute(notebook, source.stem, notebooks.ROOT / "notebooks", environment=environment)
    printed = "".join(output.text for cell in notebooks.code_cells(notebook) for output in cell.outputs if output.output_type == "stream")
    assert "Not yet" not in printed and printed.count("Correct.") >= 2
    assert RELEASED["target"] in asked_for(hub) <= set(RELEASED.values())
    assert NEVER_FETCHED not in hub.sent()
