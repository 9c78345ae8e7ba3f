"""What every test, test worker and notebook kernel shares; pytest loads this file first, before anything imports torch."""

import os
from unittest.mock import patch

import pytest

os.environ["DSPARK_PROFILE"] = "tiny"
# Two workers on two cores: more threads would only wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Give the kernels that nbmake starts the environment in which the committed notebooks were built."""
    if not getattr(item, "nbmake", False):
        return (yield)
    from notebooks import KERNEL_SETTINGS

    with patch.dict(os.environ, KERNEL_SETTINGS):
        return (yield)
