"""The course's code on a device that is not the CPU (tests/stand_in_device.py), in processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

import notebooks
import pytest
import stand_in_device
from released_lessons import play

TESTS = Path(__file__).parent
# Run after a lesson's setup cell: the lab's target, and whatever follows it, is on the card.
SWITCH_ON = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
import stand_in_device
stand_in_device.switch_on()
import torch
from dspark_course.measure import lab
lab._device = lambda asked, profile: torch.device(stand_in_device.CARD)
del lab, torch
"""
THOROUGH = os.environ.get("DSPARK_THOROUGH") == "1"

pytestmark = pytest.mark.skipif(not stand_in_device.AVAILABLE, reason="this PyTorch takes no device written in Python")


@pytest.mark.parametrize("name", ["card_itself.py", "card_decoding.py", "card_measuring.py", "card_training.py"])
def test_on_the_card(name):
    """The tests of a file, all of which pass there."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "stand_in_device", "-p", "no:cacheprovider", TESTS / name]
    environment = {**os.environ, "PYTHONPATH": path}
    finished = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout[-8000:] + finished.stderr[-2000:]


@pytest.mark.skipif(not THOROUGH, reason="DSPARK_THOROUGH=1: minutes each")
@pytest.mark.parametrize("number", ["00", "01", "02", "03"])  # ten to twenty times as slow: the later ones take hours
def test_a_lesson_on_the_card(number, tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "CELL_SECONDS", None)  # a cell that measures takes a quarter of an hour there
    printed = play(number, SWITCH_ON, notebooks.KERNEL_SETTINGS | {"DSPARK_MEASUREMENTS": str(tmp_path)})
    assert "Not yet" not in printed and printed.count("Correct.") >= 2
