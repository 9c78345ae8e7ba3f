"""Case 00: a wrong guess is kept."""

import torch

from dspark_lite.course.exercises import lesson_00
from dspark_lite.decoding.rounds import generate

from .recorded import Recorded, Rows, tiny

BRICKS, TAIL = 0, 200  # the prompt of the case among those of math; tokens of an answer at most


def twelve_lines_measured(speculate) -> dict[str, Rows]:
    """Write with lesson 00's twelve lines, or with one of their faults."""
    lab = tiny()[0]
    big, little = (
        (lambda ids: lab.target.model(input_ids=ids).logits),
        (lambda ids: lab.drafter("small_lm").model.model(input_ids=ids).logits),
    )
    ids = lab.encode(lab.prompts["math"][BRICKS])
    plain = generate(lab.target, None, ids, max_new_tokens=TAIL).token_ids
    again = generate(lab.target, None, ids, max_new_tokens=TAIL).token_ids
    passes = []

    def counted(ids):
        return passes.append(ids.shape[1]) or big(ids)

    with torch.inference_mode():
        mine, alone, mirror = (
            found(ids)[0, ids.shape[1] :].tolist()
            for found in (
                lambda ids: speculate(counted, little, ids, len(plain)),
                lambda ids: speculate(big, little, ids, 32, gamma=1),
                lambda ids: speculate(big, big, ids, 32),
            )
        )

    def same(found):
        return "the target's" if found == plain[: len(found)] else "another"

    return {
        "seen": {
            "the target": lab.decode(plain).splitlines()[-1],
            "the twelve lines": lab.decode(mine).splitlines()[-1],
        },
        "the target again": {"text": same(again)},
        "blocks of one guess": {"text": same(alone)},
        "a guesser never wrong": {"text": same(mirror)},
        "passes": {"for as many tokens": str(len(passes))},
    }


def case_00() -> Recorded:
    decoding = lesson_00.decoding
    return Recorded(
        lesson_00.speculate,
        {
            "guesses count that match after a wrong one": decoding(
                judge=lambda guess, want: int((guess == want[:-1]).sum())
            ),
            "one guess too many is kept": decoding(
                judge=lambda guess, want: min(
                    len(guess), 1 + int((guess == want[:-1]).cumprod(0).sum())
                )
            ),
            "the target's own token comes from the row before": decoding(
                added=lambda guess, want, right: torch.cat(
                    [guess[:right], want[max(right - 1, 0) : max(right, 1)]]
                )
            ),
        },
        twelve_lines_measured,
    )
