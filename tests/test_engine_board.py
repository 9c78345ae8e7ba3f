"""The board of the reader's engine: tokens, seconds and texts counted by hand, budgets two steps old."""

from types import SimpleNamespace

import pytest
import torch

from dspark_lite.course.own_decoder import engine_board, my_dspark, small_engine
from dspark_lite.course.own_decoder.engine_board import SLOTS, Board, plain_steps
from dspark_lite.course.replication import machine_results
from dspark_lite.losslessness.toys import toy_models

SECONDS = {
    "plain": lambda requests, tokens: 1.0,
    "in turn": lambda requests, tokens: 2.0 + 0.1 * tokens,
    "meanwhile": lambda requests, tokens: 1.0 + 0.1 * tokens,
}


@pytest.fixture
def board():
    """A board of toy models."""
    target, drafters = toy_models(vocab_size=11, gamma=3)
    lab = SimpleNamespace(
        target=target,
        prompts={"one": small_engine.PROMPTS[:3], "two": small_engine.PROMPTS[3:6]},
        encode=lambda text: torch.tensor([text]),
        stop_token_ids=small_engine.STOP,
    )
    with torch.inference_mode():
        yield Board(lab, drafters["dspark"], SECONDS, "made")


def test_versions_write_the_same_texts_and_their_seconds_are_those_of_their_steps(board, capsys):
    board.serve("whole", my_dspark.step)
    board.serve("scheduled", my_dspark.step, board.sps)
    board.pipeline("pipelined", my_dspark.step, my_dspark.pipelined, my_dspark.algorithm_1)
    assert set(board.texts().values()) == {len(board.prompts)} and set(board.left().values()) == {0}
    tokens = {sum(step.committed for step in steps) for _, steps, *_ in board.rows}
    assert len(tokens) == 1, "the same texts"
    (_, whole, _, _), (_, scheduled, _, _) = board.rows[1:3]
    assert all(step.tokens == 4 * step.requests for step in whole)
    assert sum(step.tokens for step in scheduled) < sum(step.tokens for step in whole)
    seconds = sum(2 + 0.1 * step.tokens for step in whole)
    assert board.rates()["whole"] == pytest.approx(tokens.pop() / seconds)
    board.show()
    written = capsys.readouterr().out
    assert "4 of 4" in written and "left" not in written


def test_an_engine_that_keeps_too_much_shows_it(board, capsys):
    board.serve("sick", small_engine.variant(kept=lambda tokens, drafts: 1 + len(drafts)))
    board.show()
    assert "left" in capsys.readouterr().out
    assert board.left()["sick"] > 0 and board.texts()["sick"] < len(board.prompts)


def test_a_budget_comes_from_the_step_before_the_last_and_is_kept(board):
    device, budgets = board.device(my_dspark.step), []

    def host(survivals):
        budgets.append(sum(my_dspark.algorithm_1(survivals, board.sps)))
        return budgets[-1]

    my_dspark.pipelined(device, host, 6)
    drafts = [step.tokens - step.requests for step in device.steps]
    assert drafts[:2] == [3 * step.requests for step in device.steps[:2]]
    assert drafts[2:] == [
        min(budget, 3 * step.requests) for budget, step in zip(budgets, device.steps[2:])
    ]


def test_without_requests_a_step_is_empty(board):
    device = board.device(my_dspark.step)
    device.engine.waiting.clear()
    assert device.finish().shape == (0, 3) and device.steps == []


def test_plain_decoding_gives_each_text_a_token_a_step():
    steps = plain_steps([3, 1, 4, 2, 2])
    assert sum(step.committed for step in steps) == 3 + 1 + 4 + 2 + 2 - 5
    assert [step.requests for step in steps] == [3, 3, 1] and SLOTS == 4


def test_an_answer_is_greedy_if_each_token_is_the_targets_choice_and_it_ends(board):
    ids = board.prompts[0]
    right = small_engine.generate(
        board.lab.target, None, ids, max_new_tokens=engine_board.LONGEST, stop_token_ids=(0,)
    ).token_ids
    assert board.is_greedy(ids, right)
    assert not board.is_greedy(ids, right[:-1]) and not board.is_greedy(ids, None)
    assert not board.is_greedy(ids, [right[0], (right[1] + 1) % 11, *right[2:]])


def test_a_slot_has_its_share_of_the_gpus_seconds():
    seconds = machine_results.engine_seconds(4)
    served = machine_results.machines()["H100"]
    bare = machine_results.machines()["H100, no host"].step("dspark").seconds(256, 2048)
    in_turn = served.step("dspark").seconds(256, 2048)
    assert seconds["in turn"](4, 32) == pytest.approx(in_turn / 64)
    assert seconds["plain"](4, 4) == pytest.approx(served.step("plain").seconds(256, 256) / 64)
    assert seconds["meanwhile"](4, 32) == pytest.approx(max(bare, in_turn - bare) / 64)
