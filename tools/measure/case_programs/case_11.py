"""Case 11: `keep` one too many."""

from dspark_lite.course.own_decoder import small_engine

from .recorded import Recorded, Rows

LENGTH, SLOTS = 16, 3


def engine_measured(step) -> dict[str, Rows]:
    """Serve small_engine's prompts on a toy target; `step` is a step of the engine, or a step and a class of engine."""
    step, kind = step if isinstance(step, tuple) else (step, small_engine.SmallEngine)
    plain = small_engine.plain_answers()

    def serve(drafter, slots):
        target, drafters = small_engine.toy_models(vocab_size=11, gamma=small_engine.GAMMA)
        engine = kind(target, drafter(target, drafters), slots, LENGTH, small_engine.STOP)
        engine.waiting = list(enumerate(small_engine.PROMPTS))
        steps, over, added, firsts = 0, {}, [], {}
        while engine.waiting or engine.running:
            step(engine)
            steps += 1
            now = {number: engine.surplus(number) for number in engine.running}
            added += [size - over.get(number, 0) for number, size in now.items()]
            over = now
            firsts |= {n: answer[0] for n, answer in (engine.running | engine.answers).items()}
        right = sum(engine.answers[n] == wanted for n, wanted in plain.items())
        return right, steps, max(added, key=abs), sum(firsts[n] == w[0] for n, w in plain.items())

    many = f"of {len(plain)}"
    shared, alone = serve(small_engine.drafting, SLOTS), serve(small_engine.drafting, 1)
    mirror = serve(small_engine.never_wrong, SLOTS)
    return {
        "texts together": {"the target's own": f"{shared[0]} {many}"},
        "texts one by one": {"the target's own": f"{alone[0]} {many}"},
        "a drafter never refused": {
            "the target's own": f"{mirror[0]} {many}",
            "steps": str(mirror[1]),
        },
        "first tokens": {"the target's own": f"{shared[3]} {many}"},
        "what stays cached": {"a round adds, at most": f"{shared[2]:+d}"},
    }


class Neighbourly(small_engine.SmallEngine):
    """An engine whose requests see each other's keys."""

    def read(self, tokens):
        own, small_engine.own = (
            small_engine.own,
            lambda request, keys: (request[:, None] >= 0) & (keys >= 0),
        )
        try:
            return super().read(tokens)
        finally:
            small_engine.own = own


def case_11() -> Recorded:
    variant = small_engine.variant
    return Recorded(
        small_engine.step,
        {
            "one token too many is kept": variant(kept=lambda tokens, drafts: len(tokens) + 1),
            "one token too few is kept": variant(kept=lambda tokens, drafts: len(tokens) - 1),
            "the whole block is kept": variant(kept=lambda tokens, drafts: 1 + len(drafts)),
            "requests see each other": (small_engine.step, Neighbourly),
            "the first token comes from the wrong row": variant(row=0),
        },
        engine_measured,
    )
