"""Lesson 02: its figures show what they are given, and what it says is what it prints."""

import re

import pytest
import stated
import torch
from helpers import bars, drawn

from dspark_lite.figures import lesson_02 as figures

P, Q = torch.tensor([0.6, 0.4]), torch.tensor([0.25, 0.75])


def test_what_is_refused_is_what_is_owed(closing):
    left, right = figures.overlap_figure(P, Q, ["A", "B"]).axes
    assert left.get_title() == "kept 0.65; refused 0.35 = owed 0.35" and bars(right) == [[1.0, 0.0]]
    _, none = figures.overlap_figure(P, P, ["A", "B"]).axes
    assert none.get_title() == "no residual: nothing is refused" and bars(none) == [[0.0, 0.0]]


def test_lossy_decoders_are_counted(closing):
    (axes,) = figures.total_variation_figure({"exact": 1e-8, "wrong": 0.1, "worse": 0.3}).axes
    assert axes.get_title() == "2 of 3 decoders write another distribution"


def test_counts_within_two_deviations_are_counted(closing):
    """Of 100 draws with p = 0.5 the bar reaches from 40 to 60."""
    (axes,) = figures.counts_figure([" a", " b"], [0.5, 0.5], 100, {"right": [41, 59], "wrong": [39, 60]}).axes
    assert axes.get_title() == "counts within the bars, of 2: right: 2; wrong: 1"
    assert drawn(axes) == {"right": [41, 59], "wrong": [39, 60]}


# What the lesson says is what it prints ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sentence", "output"), [
    (r"does most harm, ([\d.]+): it refuses", r"p and q swapped \(([\d.]+)\), then"),
    (r"wrong correction \(([\d.]+) and ([\d.]+)\) acts", r"residual not renormalised \(([\d.]+)\), then correction drawn from p \(([\d.]+)\)"),
    (r"a wrong bonus \(([\d.]+)\)", r"bonus from the row before \(([\d.]+)\)$"),
    (r"moves the text by ([\d.]+), and still", r"^drawn in 16 bits, float32 claimed +([\d.e-]+)$"),
    (r"A drafted 0 promises ([\d.]+) tokens per second", r"^first draft 0: .* per second \[.*, ([\d.]+)\] -> verify 2 drafts"),
    (r"more than the ([\d.]+) of verifying nothing", r"^first draft 1: .* per second \[([\d.]+), .* -> verify 0 drafts"),
    (r"the smallest p-value is ([\d.]+)\.", r"^dflash +p-value ([\d.]+)"),
])
def test_its_numbers_are_its_outputs(sentence, output):
    stated.tied("02", sentence, output)


def test_none_of_the_six_is_rejected_and_the_planted_error_is():
    found = dict(re.findall(r"^(\w+(?: error)?) +p-value (\S+)", stated.printed("02"), re.M))
    assert "None of the six is rejected" in stated.prose("02") and len(found) == 7 and found.pop("planted error") == "below"
    assert min(map(float, found.values())) == float(found["dflash"]) >= 1e-3
