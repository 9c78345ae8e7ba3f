"""Case 03: a refused draft stays in the small LM's cache."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from dspark_lite.course.exercises import lesson_03

from .recorded import WRITTEN, Recorded, Rows, tiny

GAMMA = 7  # drafts


class Loop(NamedTuple):
    """Lesson 03's loop: how many positions too few the target's cache and the small LM's forget, which committed tokens
    count as unread, and what is added to the small LM's logits."""

    kept: tuple[int, int] = (0, 0)
    unread: Callable = lesson_03.still_unread
    noise: float = 0.0


@torch.inference_mode()
def loop_measured(program: Loop) -> dict[str, Rows]:
    """Write greedy answers with the target and the small LM."""
    lab, prompts, plain = tiny()
    models = lab.target, lab.drafter("small_lm").model
    doubt = program.noise * torch.randn(
        lab.target.vocab_size, generator=torch.Generator().manual_seed(0)
    )
    # Of a round: drafts kept, entries too many in each cache, whether the round before was whole.
    right, rounds = 0, []
    for ids, wanted in zip(prompts, plain):
        answer, caches = [wanted[0]], [model.prefill(ids)[1] for model in models]
        unread, whole, before = answer[:], None, (0, 0)
        while len(answer) < WRITTEN:
            drafts, entering = [], unread
            for _ in range(GAMMA):
                logits = read(models[1], entering, caches[1])[-1] + doubt
                drafts.append(int(logits.argmax()))
                entering = drafts[-1:]
            choice = read(models[0], [answer[-1], *drafts], caches[0]).argmax(-1).tolist()
            kept = next((k for k, (x, y) in enumerate(zip(drafts, choice)) if x != y), GAMMA)
            tokens = [*drafts[:kept], choice[kept]]
            for model, cached, dropped, more in zip(
                models, caches, lesson_03.forget(GAMMA, kept), program.kept
            ):
                model.roll_back(cached, max(0, dropped - more))
            unread = program.unread(drafts, tokens)
            answer += tokens
            text = ids.shape[1] + len(answer) - 1
            small = text - len(lesson_03.still_unread(drafts, tokens)) + 1
            over = [c.get_seq_length() - size for c, size in zip(caches, (text, small))]
            rounds.append((kept, *(now - then for now, then in zip(over, before)), whole))
            before = over
            whole = kept == GAMMA
        right += answer[:WRITTEN] == wanted

    def mean(place, when=lambda one: True):
        chosen = [one[place] for one in rounds if when(one)]
        return sum(chosen) / len(chosen)

    def most(place):
        return max((one[place] for one in rounds), key=abs)

    return {
        "texts": {"the target's own": f"{right} of {len(prompts)}"},
        "tokens a round": {"mean": f"{1 + mean(0):.2f}"},
        "target's cache": {"a round adds, at most": f"{most(1):+d}"},
        "small LM's cache": {"a round adds, at most": f"{most(2):+d}"},
        "after which round": {
            "after a whole block": f"{1 + mean(0, lambda one: one[3] is True):.2f}",
            "after a refusal": f"{1 + mean(0, lambda one: one[3] is False):.2f}",
        },
    }


def read(model, tokens: list[int], cached) -> torch.Tensor:
    """Return logits [k, V] after each of k tokens that follow what the cache holds."""
    return model.verify(torch.tensor([tokens], device=model.device), cached).logits[0]


def case_03() -> Recorded:
    return Recorded(
        Loop(),
        {
            "a refused draft stays in the small LM's cache": Loop(kept=(0, 1)),
            "a refused draft stays in the target's cache": Loop(kept=(1, 0)),
            "the small LM never reads its last draft": Loop(
                unread=lambda drafts, tokens: tokens[-1:]
            ),
            "the small LM forgets one entry too many": Loop(kept=(0, -1)),
            "a worse small LM was loaded": Loop(noise=1.0),
        },
        loop_measured,
    )
