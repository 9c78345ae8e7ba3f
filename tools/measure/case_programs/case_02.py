"""Case 02: a replacement drawn from p."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from dspark_lite.course.own_decoder import verifying
from dspark_lite.losslessness.enumeration import outcomes, total_variation

from .recorded import Recorded, Rows

WORDS = ("the", "a", "my")
TARGET = torch.tensor([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.3, 0.5, 0.2]])  # after each word
DRAFTER = torch.tensor([[0.4, 0.45, 0.15], [0.3, 0.1, 0.6], [0.5, 0.3, 0.2]])
BLOCK = 2


def likeliest(table: torch.Tensor) -> torch.Tensor:
    """Return the table [V, V] at temperature 0."""
    return torch.nn.functional.one_hot(table.argmax(-1), table.shape[-1]).float()


class Rule(NamedTuple):
    """A verifier, and what drafts are really drawn from where DRAFTER is claimed."""

    verify: Callable = verifying.verify
    drawn: Callable[[torch.Tensor], torch.Tensor] = lambda table: table


def rule_measured(program: Rule) -> dict[str, Rows]:
    """Enumerate a round after the word "the", and texts of three words."""

    def a_round(path, tables=(TARGET, DRAFTER), anchor=0):
        target, claimed = tables
        drafts, last, drawn = [], anchor, program.drawn(claimed)
        for _ in range(BLOCK):
            last = verifying.draw(drawn[last], path)
            drafts.append(last)
        before = [anchor, *drafts]
        tokens = program.verify(target[before], claimed[before[:-1]], list(drafts), path)
        return tuple(drafts), tuple(tokens)

    def opening(which):
        return [sum(p for pair, p in pairs if which(*pair) == word) for word in range(len(WORDS))]

    def greedy_is_right(anchor):
        tables = likeliest(TARGET), likeliest(DRAFTER)
        ((_, tokens), _), *_ = outcomes(lambda path: a_round(path, tables, anchor))
        text = [anchor, *tokens]
        return text[1:] == TARGET[text[:-1]].argmax(-1).tolist()

    pairs = list(outcomes(a_round))
    texts = verifying.texts_of(
        [(list(tokens)[: BLOCK + 1], p) for (_, tokens), p in pairs], BLOCK, TARGET
    )[0]
    wanted = verifying.texts_of(
        [([word], float(TARGET[0, word])) for word in range(3)], BLOCK, TARGET
    )[0]
    length = sum(len(tokens) * p for (_, tokens), p in pairs)
    return {
        "greedy text": {
            f"after “{word}”": "right" if greedy_is_right(place) else "wrong"
            for place, word in enumerate(WORDS)
        },
        "tokens a round": {"mean": f"{length:.3f}"},
        "first word": {
            word: f"{share:.3f}"
            for word, share in zip(WORDS, opening(lambda drafts, tokens: tokens[0]))
        },
        "what is drafted": {
            word: f"{share:.3f}"
            for word, share in zip(WORDS, opening(lambda drafts, tokens: drafts[0]))
        },
        "distance of the text": {"total variation": f"{total_variation(texts, wanted):.3f}"},
    }


def case_02() -> Recorded:
    return Recorded(
        Rule(),
        {
            "after a refusal it draws from p": Rule(
                verifying.variant(correction=lambda p, q, k: p[k])
            ),
            "after a refusal it goes on": Rule(verifying.going_on),
            "the bonus comes from the row before": Rule(
                verifying.variant(bonus=lambda p, q: p[len(q) - 1])
            ),
            "the coin is tossed with p alone": Rule(
                verifying.variant(coin=lambda p, q, k, x: p[k, x])
            ),
            "the likeliest word is drafted, and q claimed": Rule(drawn=likeliest),
        },
        rule_measured,
    )
