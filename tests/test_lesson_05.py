"""Lesson 05: the paper's numbers are read as they are printed."""

import pytest

from dspark_lite.common import paper
from dspark_lite.common.errors import DSparkLiteError


def test_paper_gains_are_those_of_its_text():
    gains = {target: round(100 * paper.macro_gain(target, "dspark", "dflash"), 1) for target in paper.TARGETS[:3]}
    assert gains == {"Qwen3-4B": 16.3, "Qwen3-8B": 18.4, "Qwen3-14B": 18.3}
    assert paper.domain_means("Qwen3-4B", "dspark") == pytest.approx({"math": 5.57, "code": 5.12, "chat": 3.49}, abs=0.005)


def test_paper_refuses_what_it_does_not_have():
    with pytest.raises(DSparkLiteError, match="Table 1 has no 'mtp'"):
        paper.table1("Qwen3-4B", "mtp")
