"""Fixtures of more than one test file, and what hypothesis does in all of them."""

import pytest
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
