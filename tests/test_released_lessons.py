"""Lessons on the released profile, with their solutions, from an empty cache of the Hub to the last cell.

A Hub on loopback serves small shapes (released_hub.py) to the real client.
"""

import json
import re

import nbformat
import pytest
from transformers import AutoTokenizer

from dspark_lite.models.checkpoints import EMBEDDED
from released_hub import RELEASED, write_released
from tools.hub_server import Hub
from tools.notebooks import build as notebooks

pytestmark = pytest.mark.slow(
    reason="each lesson is executed in a kernel of its own, from the download on"
)

NEVER_FETCHED = "README.md"
# Run after the setup cell. A drafter that is loaded while another is held stops the lesson. Prompts are few, and answers,
# which random weights never end, are short.
PLANTED = """
import gc
import weakref
from dspark_lite.course.measure import lab

def load_alone(name, target, load=lab.load_drafter, loaded=[]):
    if name.startswith("tiny-"):  # a few MB, beside the released one
        return load(name, target)
    gc.collect()
    assert not any(drafter() for drafter in loaded), f"{name} is loaded while another drafter is held"
    drafter = load(name, target)
    loaded.append(weakref.ref(drafter))
    return drafter

def setup_small(profile=None, setup=lab.setup, **options):
    return setup(profile, **{"prompts": 40 if profile else 8, **options})

lab.load_drafter, lab.setup = load_alone, setup_small
lab.NEW_TOKENS["released"] = 24
del lab
"""
CONFIDENCE = {"calibration.json", "steps.json", "sts.json", "sps.json"}
# what a lesson measures
KEPT = {
    "09": CONFIDENCE,
    "11": CONFIDENCE | {"serving.json"},
    "12": {"evaluate-dspark.json"},
}
WITH_ORIGIN = ("calibration.json", "steps.json", "serving.json", "evaluate-dspark.json")
PRINTED = {
    **dict.fromkeys(("09", "12"), f"{RELEASED['target']} on CPU (1 thread)"),
    "13": "one after another",
}


@pytest.fixture(scope="session")
def hub(tmp_path_factory):
    """A Hub that holds all models of the released profile, in small shapes."""
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "tiny-target")
    folders = write_released(tmp_path_factory.mktemp("released"), tokenizer)
    assert len(list(folders[RELEASED["target"]].glob("model-*.safetensors"))) > 1, (
        "the target has one shard"
    )
    with Hub({name: {"main": folder} for name, folder in folders.items()}) as served:
        yield served


def play(number, planted, environment):
    """Execute a lesson with its solutions, the code `planted` after its setup cell; return what it printed."""
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


# Lesson 02 needs no large model, and 07 trains a tiny drafter on any profile.
@pytest.mark.parametrize(
    "number", ["00", "01", "03", "04", "05", "06", "08", "09", "10", "11", "12", "13", "14"]
)
def test_a_lesson_runs_on_the_released_profile(hub, number, tmp_path):
    hub.requests.clear()
    printed = play(
        number,
        PLANTED,
        hub.environment(
            tmp_path / "home",
            **notebooks.KERNEL_SETTINGS
            | {
                "DSPARK_PROFILE": "released",
                "HF_HUB_OFFLINE": "0",
                "DSPARK_MEASUREMENTS": str(tmp_path / "measurements"),
            },
        ),
    )
    assert "Not yet" not in printed and PRINTED.get(number, "") in printed
    assert RELEASED["target"] in asked_for(hub) <= set(RELEASED.values())
    assert NEVER_FETCHED not in hub.sent()
    folders = list((tmp_path / "measurements").glob("*"))
    assert [folder.name for folder in folders] == ["qwen3-4b-cpu-1-thread"] * (number in KEPT)
    assert {path.name for folder in folders for path in folder.glob("*.json")} == KEPT.get(
        number, set()
    )
    for name in KEPT.get(number, set()) & set(WITH_ORIGIN):
        kept = json.loads((folders[0] / name).read_text())
        assert kept["target"] == RELEASED["target"] and kept["device"] == "CPU (1 thread)"
        assert kept["versions"] and kept["made_of"]["draft"]
