"""The released profile: lessons 04, 05, 06, 08 and 10 (07 trains a tiny drafter on any profile)."""

import pytest
from released_lessons import hub, run_lesson  # noqa: F401


@pytest.mark.parametrize("number", ["04", "05", "06", "08", "10"])
def test_a_lesson_runs_on_the_released_profile(hub, number, tmp_path):  # noqa: F811
    run_lesson(hub, number, tmp_path)
