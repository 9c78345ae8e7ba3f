"""Fixtures of more than one test file, and what hypothesis does in all of them."""

import pytest
from hypothesis import settings

settings.register_profile("dspark", deadline=None)  # how long an example takes says nothing about it
settings.load_profile("dspark")
pytest.register_assert_rewrite("helpers")

from helpers import closing, copy, pair, target  # noqa: E402, F401
from made_measurements import all_made, made  # noqa: E402, F401
