"""Lesson 05: the checkers know right from wrong; the paper's numbers are read as they are printed."""

import lesson_cells
import pytest
import torch

from dspark_lite import paper
from dspark_lite.errors import DSparkLiteError
from dspark_lite.exercises import lesson_05


def test_solutions_pass(capsys):
    assert lesson_cells.run("05", "solution", exercises=lesson_05) == 4
    assert capsys.readouterr().out == 4 * "Correct.\n"


def test_stubs_are_reminders(capsys):
    assert lesson_cells.run("05", "exercise", exercises=lesson_05) == 4
    assert capsys.readouterr().out.count("Not done yet") == 4


def drafting(before):
    """A greedy drafter that adds, at slot k, the bias of the token `before(k, anchor, tokens, favourites)` (None: no bias)."""
    def draft(base_logits, anchor, bias):
        favourites, tokens = base_logits.argmax(-1), []
        for k, logits in enumerate(base_logits):
            token = before(k, anchor, tokens, favourites)
            tokens.append((logits if token is None else logits + bias(token)).argmax())
        return torch.stack(tokens)

    return draft


def gate_of(hidden, embedded, gate_proj):
    """The right gate [r]."""
    return torch.sigmoid(gate_proj(torch.cat([hidden, embedded])))


def state_from(mix):
    """An exercise's `rnn_state` that mixes state, gate, candidate and output, still without sigmoid and tanh."""
    return lambda state, joint: mix(state, *joint.chunk(3))


sigmoid, tanh = torch.sigmoid, torch.tanh
WRONG = {
    lesson_05.check_transition_bias: {
        lambda w1, w2, x: w2[x] @ w1.T: "W1 and W2 are swapped",
        lambda w1, w2, x: (w1 @ w2.T)[:, x].T: "W1 and W2 are swapped",  # the table read by column
        lambda w1, w2, x: w1[x]: "a vector of rank r",
        lambda w1, w2, x: torch.softmax(w1[x] @ w2.T, -1): "made probabilities of it",
        lambda w1, w2, x: w1 @ w2.T: "the whole V x V table",
        lambda w1, w2, x: w1[x] @ w2: "raised RuntimeError",
    },
    lesson_05.check_left_to_right: {
        drafting(lambda k, anchor, tokens, favourites: favourites[k]): "biased by x_k, the token it is about to choose",
        drafting(lambda k, anchor, tokens, favourites: anchor): "every slot is biased by the anchor",
        drafting(lambda k, anchor, tokens, favourites: favourites[k - 1] if k else anchor): "favourite of the base logits at k - 1",
        drafting(lambda k, anchor, tokens, favourites: tokens[-1] if k else None): "the first slot has no bias",
        drafting(lambda k, anchor, tokens, favourites: None): "no bias arrived anywhere",
    },
    lesson_05.check_gate: {
        lambda h, e, proj, w2: w2 @ (proj(torch.cat([h, e])) * e): "no sigmoid",
        lambda h, e, proj, w2: w2 @ (gate_of(h, e, proj) + e): "the gate is added",
        lambda h, e, proj, w2: w2 @ (gate_of(e, h, proj) * e): "in the other order",
        lambda h, e, proj, w2: w2 @ gate_of(h, e, proj): "W2 reads the gate alone",
        lambda h, e, proj, w2: w2 @ e: "no gate here",
    },
    lesson_05.check_state: {
        state_from(lambda s, g, c, o: (1 - sigmoid(g)) * s + sigmoid(g) * tanh(c)): "the wrong way round",
        state_from(lambda s, g, c, o: sigmoid(g) * s + (1 - sigmoid(g)) * c): "the candidate has no tanh",
        state_from(lambda s, g, c, o: g * s + (1 - g) * tanh(c)): "the gate has no sigmoid",
        state_from(lambda s, g, c, o: sigmoid(c) * s + (1 - sigmoid(c)) * tanh(g)): "gate and candidate are swapped",
        state_from(lambda s, g, c, o: (1 - sigmoid(g)) * tanh(c)): "the old state is forgotten",
        state_from(lambda s, g, c, o: sigmoid(g) * s + (1 - sigmoid(g)) * tanh(o)): "used the output third",
        state_from(lambda s, g, c, o: s): "did not change",
    },
}


@pytest.mark.parametrize(("check", "answer", "name"), [(c, a, n) for c, wrong in WRONG.items() for a, n in wrong.items()],
                         ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_named(check, answer, name, capsys):
    assert check(answer) is False
    assert name in capsys.readouterr().out


def test_paper_gains_are_those_of_its_text():
    gains = {target: round(100 * paper.macro_gain(target, "dspark", "dflash"), 1) for target in paper.TARGETS[:3]}
    assert gains == {"Qwen3-4B": 16.3, "Qwen3-8B": 18.4, "Qwen3-14B": 18.3}
    assert paper.domain_means("Qwen3-4B", "dspark") == pytest.approx({"math": 5.57, "code": 5.12, "chat": 3.49}, abs=0.005)


def test_paper_refuses_what_it_does_not_have():
    with pytest.raises(DSparkLiteError, match="Table 1 has no 'mtp'"):
        paper.table1("Qwen3-4B", "mtp")
