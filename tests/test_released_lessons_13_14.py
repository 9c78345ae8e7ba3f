"""The released profile: lesson 13 serves the lab's own models and shows what was recorded of the tiny ones beside them; lesson 14
breaks the lab's own drafter, and never holds another one."""

from released_lessons import hub, run_lesson  # noqa: F401


def test_production_runs_on_the_released_profile(hub, tmp_path):  # noqa: F811
    printed = run_lesson(hub, "13", tmp_path)
    assert "each the target's own, one after another and overlapped" in printed and not (tmp_path / "measurements").exists()


def test_the_clinic_runs_on_the_released_profile(hub, tmp_path):  # noqa: F811
    run_lesson(hub, "14", tmp_path)
