"""Lesson 04: the pieces that the lesson leans on hold."""

import pytest
import torch

from dspark_lite.measure import multimodality


def test_mutual_information_of_tables_known_by_hand():
    assert multimodality.mutual_information(torch.full((2, 2), 0.25)) == pytest.approx(0, abs=1e-6)
    assert multimodality.mutual_information(torch.eye(2)) == pytest.approx(0.6931, abs=1e-4)
