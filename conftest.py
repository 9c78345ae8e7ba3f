"""What every test, test worker and notebook kernel shares; set before torch is imported."""

import os
import random
from pathlib import Path

# A notebook's kernel starts in the notebook's folder and would not find the package.
os.environ["PYTHONPATH"] = str(Path(__file__).parent)
os.environ["DSPARK_PROFILE"] = "tiny"
# Two workers on two cores: more threads would only wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"

import matplotlib.pyplot as plt  # noqa: E402
import numpy  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from kernel_replies import wait_in_turns  # noqa: E402

wait_in_turns()


@pytest.fixture(autouse=True)
def seeded():
    """Start every test from the same global random state, whatever ran before it."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def figures_closed():
    """Leave no figure open for the tests that count them."""
    yield
    plt.close("all")
