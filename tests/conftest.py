"""What every test, worker and notebook kernel shares: settings that come before torch, fixtures, what hypothesis does in all tests."""

import os
import random
from unittest.mock import patch

os.environ["DSPARK_PROFILE"] = "tiny"
# Two workers on two cores: more threads would only wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"

import matplotlib.pyplot as plt
import numpy
import pytest
import torch
from hypothesis import settings

# How long an example takes says nothing about it. `make test-all` runs the property tests with "thorough".
settings.register_profile("dspark", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("dspark")
pytest.register_assert_rewrite("helpers", "made_measurements")


class NotebookKernels:
    """A plugin of the whole session: a hook of this file itself would hold for tests/ alone."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """Give the kernels that nbmake starts the environment in which the committed notebooks were built."""
        if not getattr(item, "nbmake", False):
            return (yield)
        from tools.notebooks.build import KERNEL_SETTINGS

        with patch.dict(os.environ, KERNEL_SETTINGS):
            return (yield)


def pytest_configure(config):
    """Takes in the fixtures, which import all of the package; who only hands out the tests to others needs none."""
    config.pluginmanager.register(NotebookKernels())
    hands_out = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    if not hands_out:
        for module in ("helpers", "made_measurements"):
            config.pluginmanager.import_plugin(module)


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
