"""Lesson 03: its figures show what they are given, and its checker of a round names what went wrong."""

import pytest
import torch
from helpers import bars, drawn, written

from dspark_course.exercises import lesson_03 as exercises
from dspark_course.exercises.verifying import verify
from dspark_course.figures import lesson_03 as figures


def test_bars_of_latency_divide_a_rounds_seconds_by_its_tokens(closing):
    fig = figures.latency_bars({("plain", "math"): (1.0, 0.0, 0.004), ("small_lm", "math"): (4.0, 0.01, 0.006)}, "a made device")
    verify, draft, of_small, of_its_drafts, _ = bars(fig.axes[0])
    assert [verify, draft, of_small, of_its_drafts] == [[4.0], [0.0], [pytest.approx(1.5)], [pytest.approx(2.5)]]
    assert written(fig) == ["τ 1.00", "τ 4.00", "measured on a made device"]
    assert fig.axes[0].get_title() == "drafting is 62% of a round of the small LM\nslower than plain decoding: none"


def test_the_title_of_the_latencies_names_what_loses(closing):
    costs = {("plain", "chat"): (1.0, 0.0, 0.004), ("prompt_lookup", "chat"): (1.1, 0.0, 0.005),
             ("plain", "code"): (1.0, 0.0, 0.004), ("prompt_lookup", "code"): (1.0, 0.0, 0.00404)}  # no more than a measurement varies
    assert figures.latency_bars(costs, "CPU").axes[0].get_title().endswith("\nslower than plain decoding: prompt lookup on chat")
    costs |= {("plain", "math"): (1.0, 0.0, 0.004), ("prompt_lookup", "math"): (1.1, 0.0, 0.005), ("prompt_lookup", "code"): (1.0, 0.0, 0.005)}
    assert figures.latency_bars(costs, "CPU").axes[0].get_title().endswith(": prompt lookup on chat, code and math")


def test_the_sweep_of_draft_lengths_shows_measurement_and_formula(closing):
    sweep = {("math", 7): (4.0, 0.8), ("math", 1): (1.7, 1.1)}
    sweep |= {("chat", length): (2.0, 0.5 * length) for length in (1, 7)}
    model = {key: (tau + 0.1, speedup + 0.2) for key, (tau, speedup) in sweep.items()}
    fig = figures.draft_length_sweep(sweep, model, "CPU")
    math, chat, math_speed, chat_speed = fig.axes
    assert drawn(math) == {"measured": [1.7, 4.0], "formula": [1.8, 4.1]}
    assert drawn(math_speed) == {"measured": [1.1, 0.8], "formula": [1.3, 1.0]}
    assert drawn(chat) == {"measured": [2.0, 2.0], "formula": [2.1, 2.1]}
    assert [math.get_title(), chat.get_title()] == ["math: fastest at γ = 1", "chat: fastest at γ = 7"]
    assert written(fig).count("slower than plain") == 2 and chat_speed.get_ylim()[1] == pytest.approx(1.2 * 3.7)


def test_the_figure_of_when_it_pays_marks_the_best_length_and_where_it_breaks_even(closing):
    left, right = figures.when_it_pays(0.8, 7, 0.1, 1.0).axes
    tokens = {gamma: (1 - 0.8 ** (gamma + 1)) / 0.2 for gamma in (6, 7)}  # in rounds of 1.6 and 1.7 plain passes
    assert drawn(left) == {"best": [pytest.approx(tokens[6] / 1.6)], "here: 2.45": [pytest.approx(tokens[7] / 1.7)]}
    assert drawn(right) == {"breaks even": [1], "here: 2.45": [pytest.approx(tokens[7] / 1.7)]}
    assert [left.get_title(), right.get_title()] == ["best γ = 6, 2.47 times plain decoding", "γ = 7 breaks even at a = 0.41"]
    _, never = figures.when_it_pays(0.05, 16, 1.0, 3.0).axes
    assert list(drawn(never)) == ["here: 0.06"] and never.get_title() == "γ = 16 never breaks even"
    assert [left.get_ylim(), never.get_ylim()] == [(0, 3)] * 2, "settings can be compared"


# The checker of a round ----------------------------------------------------------------------------------------------


def round_with(target=lambda drafts, accepted: len(drafts) - accepted, small=lambda drafts, accepted: max(0, len(drafts) - 1 - accepted),
               tokens=lambda tokens: tokens, unread=lambda drafts, tokens: drafts[-1:] * (len(tokens) > len(drafts)) + tokens[-1:]):
    """A `settle` with one of its parts done in another way."""
    def settle(models, caches, p, q, drafts, generator):
        committed = verify(p, q, drafts, generator)
        for model, cache, dropped in zip(models, caches, (target, small)):
            model.roll_back(cache, dropped(drafts, len(committed) - 1))
        return tokens(committed), unread(drafts, committed)
    return settle


def test_a_right_round_passes(capsys):
    assert exercises.check_settle(exercises.settle) and exercises.check_settle(round_with())
    assert capsys.readouterr().out == "Correct.\n" * 2


@pytest.mark.parametrize(("settle", "said"), [
    (round_with(target=lambda drafts, accepted: 0), "with 1 of 3 drafts accepted the target's cache still holds refused drafts, 2 too many"),
    (round_with(target=lambda drafts, accepted: len(drafts)), "the target's cache has forgotten 1 too many"),
    (round_with(small=lambda drafts, accepted: len(drafts) - accepted), "the small LM's cache has forgotten 1 too many"),
    (round_with(small=lambda drafts, accepted: len(drafts) - 1 - accepted), "the small LM's cache holds 5 positions and cannot forget -1"),
    (round_with(unread=lambda drafts, tokens: tokens[-1:]), "with 3 of 3 drafts accepted the small LM has still to read its own last draft"),
    (round_with(unread=lambda drafts, tokens: tokens), "with 1 of 3 drafts accepted the small LM has still to read the target's own token and"),
    (round_with(unread=lambda drafts, tokens: tokens[-2:] if len(tokens) >= len(drafts) else tokens[-1:]),
     "with 2 of 3 drafts accepted the small LM has still to read the target's own token and nothing else"),
    (round_with(tokens=lambda tokens: tokens[:-1]), "the first list is not what verify(p, q, drafts, generator) returns"),
    (round_with(tokens=len), "return two lists"), (lambda *_: [1, 4], "return two lists"),
    (3, "takes the function itself, not a value of type int"), (None, "Not done yet"), (lambda *_: None, "Not done yet")])
def test_a_wrong_round_is_told_what_is_wrong(settle, said, capsys):
    assert exercises.check_settle(settle) is False
    (line,) = capsys.readouterr().out.splitlines()
    assert said in line and "raised" not in line


def in_place(p, q, drafts, generator):
    """A right `verify` that writes its tokens into `drafts`."""
    drafts[:] = verify(p, q, drafts, generator)
    return drafts


def settle_with(verify):
    """A right `settle`, with the drafts counted after `verify`."""
    def settle(models, caches, p, q, drafts, generator):
        tokens = verify(p, q, drafts, generator)
        gamma, accepted = len(drafts), len(tokens) - 1
        for model, cache, dropped in zip(models, caches, exercises.forget(gamma, gamma, accepted)):
            model.roll_back(cache, dropped)
        return tokens, drafts[-1:] * (accepted == gamma) + tokens[-1:]
    return settle


def test_a_verify_that_changes_the_drafts_is_named_where_it_makes_a_round_wrong(capsys):
    assert exercises.check_settle(settle_with(exercises.in_use(in_place, True))) and exercises.check_settle(settle_with(verify))
    assert exercises.check_settle(settle_with(in_place)) is False
    *right, line = capsys.readouterr().out.splitlines()
    assert right[1:] == ["Correct."] * 2 and line.endswith(exercises.CHANGED)


@pytest.mark.parametrize("verify", [lambda *round_: torch.tensor(verify(*round_)), in_place], ids=["a tensor", "the drafts, changed in place"])
def test_a_right_verify_in_another_form_serves_the_loop(verify, capsys):
    assert exercises.check_verify(verify)
    ours, drafts = exercises.in_use(verify, True), [1, 2, 3]
    p, q = exercises.one_hot([1, 2, 4, 4]), exercises.one_hot(drafts)
    assert ours(p, q, drafts, None) == [1, 2, 4] and drafts == [1, 2, 3]
    assert capsys.readouterr().out.startswith("Correct.\nFrom here on your own verify decides.")
