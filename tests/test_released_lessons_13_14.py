"""The released profile: lesson 14 breaks the lab's own drafter, and never holds another one."""

from released_lessons import hub, run_lesson  # noqa: F401


def test_the_clinic_runs_on_the_released_profile(hub, tmp_path):  # noqa: F811
    run_lesson(hub, "14", tmp_path)
