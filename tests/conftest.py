"""Fixtures of every test and of more than one test file, and what hypothesis does in all of them."""

import os
import random

import matplotlib.pyplot as plt
import numpy
import pytest
import torch
from hypothesis import settings

settings.register_profile("dspark", deadline=None)  # how long an example takes says nothing about it
settings.load_profile("dspark")
pytest.register_assert_rewrite("helpers", "made_measurements")


def pytest_configure(config):
    """Takes in the fixtures, which import all of the package; who only hands out the tests to others needs none."""
    hands_out = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    if not hands_out:
        for module in ("helpers", "made_measurements"):
            config.pluginmanager.import_plugin(module)


@pytest.fixture(autouse=True, scope="session")
def short_answers():
    """The tiny lab's answers are 64 tokens at most; as long as the lessons' with DSPARK_THOROUGH=1 in the environment."""
    if os.environ.get("DSPARK_THOROUGH") != "1":
        from dspark_course.measure import lab

        lab.NEW_TOKENS["tiny"] = 64


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
