"""Fixtures of more than one test file."""

import pytest

pytest.register_assert_rewrite("helpers")

from helpers import copy, pair, target  # noqa: E402, F401
from made_measurements import all_made, made  # noqa: E402, F401
