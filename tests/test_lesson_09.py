"""Lesson 09: what its prose states is what its cells print; its figures show what they are given."""

import re

import numpy as np
import pytest
import stated
from helpers import bars

from dspark_lite.figures import lesson_09 as figures

TIES = [
    (r"On chat the head is off by ([\d.]+), where somebody who always says the mean is off by ([\d.]+)",
     r"^chat  mean confidence .* off by ([\d.]+) on average \(always saying the mean: ([\d.]+)\)"),
    (r"the head has noticed, and is off by (\d\.\d+)", r"^code  mean confidence .* off by ([\d.]+) on average"),
    (r"is safe, and ([\d.]+) against ([\d.]+) is hardly", r"^math  mean confidence .* off by ([\d.]+) on average .*mean: ([\d.]+)\)"),
    (r"the ECE falls from ([\d.]+) to ([\d.]+) %\. Our own", r"^logits doubled .*\n +mean ECE ([\d.]+)% -> ([\d.]+)%"),
    (r"\*rises\*, from ([\d.]+) to ([\d.]+) %: near the floor of ([\d.]+) %",
     r"^the head  .*\n +mean ECE ([\d.]+)% -> ([\d.]+)%, floor ([\d.]+)%"),
    (r"takes its mean ECE from ([\d.]+) to ([\d.]+) %", r"of the fit ([\d.]+)% -> ([\d.]+)%, floor"),
    (r"on math at 0\.9, ([\d.]+) accepted tokens against ([\d.]+):", r"^math  threshold 0\.9: replayed ([\d.]+) accepted, .* decoded ([\d.]+),"),
    (r"on chat from ([\d.]+) to ([\d.]+) %, because", r"^chat  rate ([\d.]+)% -> ([\d.]+)%"),
    (r"on chat (\d+) % of the accepted tokens per step are lost", r"^chat  rate .* accepted (\d+)% less"),
    (r"a token of chat costs ([\d.]+) verified positions, at 0\.9 it costs ([\d.]+)", r"^chat  0\.0: ([\d.]+) .* 0\.9: ([\d.]+) \("),
    (r"notebook's ([\d.]+) and ([\d.]+)\. On math", r"^chat  0\.0: [\d.]+ \(([\d.]+)\).* 0\.9: [\d.]+ \(([\d.]+)\)"),
    (r"the best threshold is ([\d.]+) on math and chat", r"^math   32 requests: best threshold ([\d.]+)"),
    (r"the best threshold is ([\d.]+) on math and chat", r"^chat   32 requests: best threshold ([\d.]+)"),
    (r"on math and chat, ([\d.]+) on code", r"^code   32 requests: best threshold ([\d.]+)"),
    (r"the head promises ([\d.]+) for a whole block", r"^greedy: predicted .* ([\d.]+)$"),
    (r"and ([\d.]+) come: over-confident", r"^ +observed .* ([\d.]+)$"),
    (r"from ([\d.]+) to ([\d.]+) %, over a floor of ([\d.]+) %", r"^fitted on half: .* ([\d.]+)% -> ([\d.]+)%, floor ([\d.]+)%"),
]


@pytest.mark.parametrize(("sentence", "output"), TIES)
def test_what_the_lesson_states_is_what_it_prints(sentence, output):
    stated.tied("09", sentence, output)


def test_whole_blocks_are_best_for_one_request_in_every_domain():
    assert "With one request per step whole blocks are best in every domain" in stated.prose("09")
    assert re.findall(r"^(\w+) +1 requests: best threshold ([\d.]+)", stated.printed("09"), re.M) == \
        [("math", "0.00"), ("code", "0.00"), ("chat", "0.00")]


def test_the_head_is_over_confident_at_every_greedy_position():
    predicted, observed = ([float(value) for value in re.search(pattern, stated.printed("09"), re.M)[1].split()]
                           for pattern in (r"^greedy: predicted (.*)$", r"^ +observed ([\d. ]+)$"))
    assert all(p > o for p, o in zip(predicted, observed, strict=True))


def test_few_prompts_call_a_calibration_stale_and_sixteen_do_not():
    assert "With 4 or 8 prompts per domain a calibration that fits is called stale. From 16 on the check is right" in stated.prose("09")
    found = re.findall(r"^ *(\d+) prompts per domain,.*: (fits|stale\?)$", stated.printed("09"), re.M)
    assert {int(count): verdict for count, verdict in found} == {4: "stale?", 8: "stale?", 16: "fits", 32: "fits", 400: "fits"}


def test_the_gaps_are_drawn_and_weighted_by_blocks(closing):
    curve = [(0.2, 0.1, 10), (0.8, 0.9, 30), (0.9, 0.9, 60)]
    fig = figures.gaps(curve, "made")
    drawn = [bars(axes) for axes in fig.axes if axes.containers]
    assert np.allclose(drawn[0], [[-10, 10, 0]]) and drawn[1] == [[10, 30, 60]]
    assert "weighted by blocks they are 4.0 points" in fig.axes[1].get_title()
