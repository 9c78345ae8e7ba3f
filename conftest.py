"""What every test, test worker and notebook kernel shares; set before torch is imported."""

import os
import random
from pathlib import Path
from unittest.mock import patch

# A notebook's kernel starts in the notebook's folder and would not find the package.
os.environ["PYTHONPATH"] = str(Path(__file__).parent)
os.environ["DSPARK_PROFILE"] = "tiny"
# Two workers on two cores: more threads would only wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"

import matplotlib.pyplot as plt  # noqa: E402
import numpy  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Give the kernels that nbmake starts the environment in which the committed notebooks were built."""
    if not getattr(item, "nbmake", False):
        return (yield)
    from notebooks import KERNEL_SETTINGS

    with patch.dict(os.environ, KERNEL_SETTINGS):
        return (yield)
