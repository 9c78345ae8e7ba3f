"""Fixtures of every test and of more than one test file, and what hypothesis does in all of them."""

import random

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


def pytest_configure(config):
    """Takes in the fixtures, which import all of the package; who only hands out the tests to others needs none."""
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
