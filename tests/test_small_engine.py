"""The engine of lesson 11: its reference is lossless for requests that share steps, and the checker names what goes wrong."""

import pytest
import torch

from dspark_lite.course.own_decoder import my_dspark, small_engine
from dspark_lite.course.own_decoder.small_engine import (
    SmallEngine,
    check_engine,
    check_scheduled,
    step,
)
from dspark_lite.course.own_decoder.verifying import draw, verify
from dspark_lite.losslessness import outcomes, output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models


def line_of(answer, capsys) -> str:
    """The one line with which the checker refuses."""
    assert check_engine(answer) is False
    (line,) = capsys.readouterr().out.splitlines()
    return line


def test_the_reference_is_right_and_twenty_lines_are_enough(capsys):
    def written_out(engine):
        while engine.waiting and len(engine.running) < engine.slots:
            number, prompt = engine.waiting.pop(0)
            rows = engine.read({number: prompt})[number]
            engine.keep(number, len(prompt))
            engine.running[number] = [draw(rows[-1], engine.generator)]
        blocks = {number: engine.draft(number) for number in engine.running}
        rows = engine.read(
            {
                number: [engine.running[number][-1], *drafts]
                for number, (drafts, _) in blocks.items()
            }
        )
        for number, (drafts, q) in blocks.items():
            tokens = verify(rows[number], q, drafts, engine.generator)
            engine.keep(number, len(tokens))
            engine.running[number] += tokens
            if engine.complete(number):
                engine.answers[number] = engine.running.pop(number)

    assert check_engine(step) is True and check_engine(written_out) is True
    assert capsys.readouterr().out == "Correct.\nCorrect.\n"


@pytest.mark.parametrize("sentence", small_engine.WRONG_TEXT)
def test_a_known_mistake_is_named(sentence, capsys):
    line = line_of(small_engine.WRONG_TEXT[sentence], capsys)
    assert line.startswith("Not yet: ") and line.endswith(sentence)


def without_end(engine):
    """Never moves an answer out."""
    ended = engine.complete
    engine.complete = lambda number: ended(number) and False
    step(engine)
    del engine.complete


def drawing_nothing(p, q, drafts, generator):
    """The most likely tokens, at any temperature."""
    choices = p.argmax(-1).tolist()
    kept = next((k for k, draft in enumerate(drafts) if draft != choices[k]), len(drafts))
    return [*drafts[:kept], choices[kept]]


def first_token_likeliest(engine):
    """Admits with the most likely first token, at any temperature."""
    while engine.waiting and len(engine.running) < engine.slots:
        number, prompt = engine.waiting.pop(0)
        engine.running[number] = [engine.read({number: prompt})[number][-1].argmax().item()]
        engine.keep(number, len(prompt))
    small_engine.commit(engine)


def without_the_last_draft(engine):
    """Reads all drafts of a block but the last."""
    read = engine.read
    engine.read = lambda tokens: read(
        {number: part[:-1] if number in engine.running else part for number, part in tokens.items()}
    )
    try:
        step(engine)
    finally:
        del engine.read


def without_anchor(engine):
    """Reads the drafts alone."""
    small_engine.fill(engine)
    engine.read({number: engine.draft(number)[0] for number in engine.running})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (without_end, "after 60 steps 7 of 7 requests have no answer"),
        (small_engine.fill, "left the answer of request 0 as it was"),
        (
            small_engine.variant(written=lambda tokens: tokens[:-1]),
            "as it was; commit all that verify returns, the target's own token too",
        ),
        (
            small_engine.variant(written=lambda tokens: [tokens]),
            "holds a list; it is a list of token ids",
        ),
        (without_the_last_draft, "reads 3 tokens; its newest token and its 3 drafts are 4"),
        (first_token_likeliest, "at temperature 1 the first token is always the same"),
        (
            small_engine.variant(judge=drawing_nothing),
            "at temperature 1 nothing after the first token is drawn",
        ),
        (
            lambda engine: (engine.waiting.clear(), engine.running.clear()),
            "0 of 7 requests are answered",
        ),
        (
            small_engine.variant(kept=lambda tokens, drafts: 1, written=lambda tokens: tokens[:1]),
            "15 steps where 5 are enough",
        ),
        (without_anchor, "starts without its anchor"),
        (3, "takes the function itself, not a value of type int"),
        (None, "Not done yet"),
        (lambda engine: ..., "Not done yet"),
    ],
)
def test_what_else_may_be_wrong_ends_in_a_sentence(answer, said, capsys):
    assert said in line_of(answer, capsys)


def test_a_step_that_schedules_passes_both_checkers_and_whole_blocks_the_first_alone(capsys):
    def whole(engine):
        small_engine.fill(engine)
        small_engine.commit(
            engine, admit=lambda engine, blocks: [engine.drafter.gamma] * len(blocks)
        )

    assert check_scheduled(my_dspark.step) and check_engine(whole) and not check_scheduled(whole)
    assert "the pass reads whole blocks, where algorithm_1 admits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("admit", "said"),
    [
        (
            lambda engine, blocks: [
                max(0, length - 1)
                for length in my_dspark.algorithm_1(engine.survivals(), engine.sps)
            ],
            "reads 3 tokens",
        ),
        (
            lambda engine, blocks: [
                sum(word > 4 for word in drafts) for drafts, _ in blocks.values()
            ],
            "its newest token and its 3 drafts are 4",
        ),
    ],
)
def test_a_step_that_cuts_otherwise_is_told_so(admit, said, capsys):
    assert not check_scheduled(small_engine.variant(admit=admit))
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    "gamma",
    [1, pytest.param(2, marks=pytest.mark.slow(reason="visits every outcome of blocks of two"))],
)
def test_two_requests_that_share_steps_have_the_targets_distribution(gamma):
    target, drafters = toy_models(gamma=gamma)

    def served(path):
        engine = SmallEngine(
            target, drafters["dflash"], slots=2, longest=2, temperature=1.0, generator=path
        )
        engine.waiting = [(0, [0]), (1, [1, 0])]
        while engine.waiting or engine.running:
            step(engine)
        return tuple(engine.answers[0]), tuple(engine.answers[1])

    found = {}
    with torch.inference_mode():
        for answers, probability in outcomes(served):
            found[answers] = found.get(answers, 0.0) + probability
    alone = [
        output_distribution(target, None, None, length=2, prompt=prompt)
        for prompt in ((0,), (1, 0))
    ]
    exact = {
        (first, second): p * q for first, p in alone[0].items() for second, q in alone[1].items()
    }
    assert total_variation(found, exact) < 1e-5
