"""Cases 04, 05 and 06: a drafter that is read, biased or fed wrongly."""

from dataclasses import replace

import torch

from dspark_lite.course.clinic import patients
from dspark_lite.course.clinic.patients import Service
from dspark_lite.course.measure import symptoms
from dspark_lite.decoding.rounds import generate
from dspark_lite.decoding.sampling import RandomSource
from dspark_lite.drafters import DSpark, Eagle3

from .recorded import Recorded, Rows, tiny

BLOCKS_OF = 32  # tokens of an answer


class Fixed(RandomSource):
    """A source whose every draw is the same token."""

    def __init__(self, token: int = 5):
        self.token = token

    def draw(self, probs):
        return torch.full(probs.shape[:-1], self.token)


@torch.inference_mode()
def chart(drafter) -> dict[str, Rows]:
    """Write greedy answers with a drafter."""
    lab, prompts, plain = tiny()
    answers = [
        generate(lab.target, drafter, ids, max_new_tokens=BLOCKS_OF, stop_token_ids=())
        for ids in prompts
    ]
    right = sum(a.token_ids == wanted[:BLOCKS_OF] for a, wanted in zip(answers, plain))
    rounds = [r for a in answers for r in a.rounds[:-1]]  # the last one may be cut
    kept = [r.accepted for r in rounds]
    later = [r for a in answers for r in a.rounds[3:-1]]
    early = [r for a in answers for r in a.rounds[:2]]
    reached = [min(k, drafter.gamma - 1) for k in kept]

    def mean(values):
        return sum(values) / len(values)

    return {
        "texts": {"the target's own": f"{right} of {len(prompts)}"},
        "tokens a round": {"mean": f"{1 + mean(kept):.2f}"},
        "early and late": {
            "tokens a round, rounds 1 and 2": f"{1 + mean([r.accepted for r in early]):.2f}",
            "from round 4 on": f"{1 + mean([r.accepted for r in later]):.2f}",
        },
        "first and later drafts": {
            "first drafts kept": f"{mean([k > 0 for k in kept]):.0%}",
            "later ones, once judged": f"{sum(max(k - 1, 0) for k in kept) / max(sum(reached), 1):.0%}",
        },
    }


def service(name: str) -> Service:
    """Return the tiny target with a drafter of the lab."""
    lab = tiny()[0]
    return Service(lab.target, lab.drafter(name), lab.encode)


def slots_measured(program) -> dict[str, Rows]:
    """Measure a DFlash with a fault."""
    lab, prompts, plain = tiny()
    served = program(service("dflash"))
    reacts = symptoms.reactions(served, prompts[0])
    own, next_one = symptoms.place_of_drafts(served, prompts[0], plain[0])
    moves = {True: "moves", False: "stays"}
    found = chart(served.drafter)
    return {
        "texts": found["texts"],
        "first and later drafts": found["first and later drafts"],
        "another anchor": {"the block": moves[reacts["anchor"]]},
        "newest features blanked": {"the block": moves[reacts["newest features"]]},
        "where the drafts fit": {
            "in their own place": f"{own:.0%}",
            "one place on": f"{next_one:.0%}",
        },
    }


def one_slot_on(served: Service) -> Service:
    """Read each slot as the guess for the place before its own."""

    def block_hidden(self, state, anchor):
        return DSpark.block_hidden(self, state, anchor).roll(-1, 1)

    return replace(served, drafter=patients.altered(served.drafter, block_hidden=block_hidden))


def case_04() -> Recorded:
    return Recorded(
        lambda served: served,
        {
            "slots are read one place off": one_slot_on,
            "the target's embedding was not handed over": patients.embedding_empty,
            "the block begins with a mask, not the anchor": patients.mask_for_anchor,
            "features enter one token late": patients.features_late,
            "positions start anew in every pass": patients.positions_restart,
        },
        slots_measured,
    )


def head_measured(program) -> dict[str, Rows]:
    """Measure a DSpark with a fault."""
    lab, prompts, _ = tiny()
    served = program(service("dspark"))
    drafter, ids = served.drafter, prompts[0]
    with torch.inference_mode():
        features = lab.target.prefill(ids[:, :-1], drafter.taps)[0].features
        hidden = drafter.block_hidden(drafter.begin(ids[:, :-1], features), ids[:, -1])
        one, other = (
            drafter.draw_block(hidden, torch.tensor([token]), 1.0, Fixed())[1] for token in (7, 9)
        )
        sure = drafter.draw_block(hidden, ids[:, -1], 1.0, lab.generator())[2].amax(-1).mean()
    moved = ((one - other).abs().amax(-1) > 1e-4)[0].tolist()
    found = chart(drafter)
    return {
        "texts": found["texts"],
        "tokens a round": found["tokens a round"],
        "first and later drafts": found["first and later drafts"],
        "another anchor, the same guesses": {
            "slot 1": "moves" if moved[0] else "stays",
            "slots 2 to 7": "move"
            if all(moved[1:])
            else "stay"
            if not any(moved[1:])
            else "some move",
        },
        "how sure it is": {"chance of the likeliest token": f"{sure:.0%}"},
    }


def biased_by_the_first(served: Service) -> Service:
    """Give every slot the bias of the anchor."""

    def draw_block(self, hidden, anchor, temperature, generator):
        head, drafter = patients.altered(self.markov_head), patients.altered(self)
        head.step = lambda previous, hidden, state: type(head).step(head, anchor, hidden, state)
        drafter.markov_head = head
        return DSpark.draw_block(drafter, hidden, anchor, temperature, generator)

    return replace(served, drafter=patients.altered(served.drafter, draw_block=draw_block))


def case_05() -> Recorded:
    return Recorded(
        lambda served: served,
        {
            "every slot is biased by the anchor": biased_by_the_first,
            "the head was not loaded": patients.head_left_out,
            "the norm before the LM head is missing": patients.norm_missing,
            "features enter one token late": patients.features_late,
            "the block begins with a mask, not the anchor": patients.mask_for_anchor,
        },
        head_measured,
    )


def chain_measured(program) -> dict[str, Rows]:
    """Measure an Eagle3 with a fault."""
    lab, prompts, _ = tiny()
    drafter = program(service("eagle3").drafter)
    found, ids = chart(drafter), prompts[0]
    with torch.inference_mode():
        features = lab.target.prefill(ids[:, :-1], drafter.taps)[0].features
        state = drafter.begin(ids[:, :-1], features)
        before = state.cache.length
        drafter.propose(state, ids[:, -1], temperature=0.0, generator=None)
        left = state.cache.length - before
        blanked = torch.cat([features[:, :-1], 0 * features[:, -1:]], 1)
        usual, unfed, other = (
            drafter.propose(
                drafter.begin(ids[:, :-1], given),
                ids[:, -1],
                temperature=1.0,
                generator=Fixed(token),
            ).probs[0]
            for given, token in ((features, 5), (blanked, 5), (features, 6))
        )
    moves = {True: "move", False: "stay"}
    return {
        "first and later drafts": found["first and later drafts"],
        "early and late": found["early and late"],
        "newest features blanked": {
            "the first draft's chances": moves[not torch.allclose(usual[0], unfed[0], atol=1e-4)]
        },
        "another first draft": {
            "the second draft's chances": moves[not torch.allclose(usual[1], other[1], atol=1e-4)]
        },
        "cells left by a block": {"in the draft's cache": f"{left:+d}"},
    }


def never_taken_back(eagle3):
    """Leave the cells of its own passes in the cache."""

    def draw_chain(self, state, anchor, length, temperature, generator):
        drawn = Eagle3.draw_chain(self, state, anchor, length, temperature, generator)
        state.cache.advance(length)
        return drawn

    return patients.altered(eagle3, draw_chain=draw_chain)


def stale_feature(eagle3):
    """Let every pass read the target's last feature, where later ones should read the pass
    before."""

    def draw_chain(self, state, anchor, length, temperature, generator):
        waiting = state.waiting
        again = patients.altered(
            self,
            next_hidden=lambda self, cache, token, hidden: Eagle3.next_hidden(
                self, cache, token, waiting
            ),
        )
        return Eagle3.draw_chain(again, state, anchor, length, temperature, generator)

    return patients.altered(eagle3, draw_chain=draw_chain)


def token_before(eagle3):
    """Let every pass but the first read the token before the newest."""

    def draw_chain(self, state, anchor, length, temperature, generator):
        seen = [anchor]

        def next_hidden(self, cache, token, hidden):
            seen.append(token)
            return Eagle3.next_hidden(self, cache, seen[-2], hidden)

        again = patients.altered(self, next_hidden=next_hidden)
        return Eagle3.draw_chain(again, state, anchor, length, temperature, generator)

    return patients.altered(eagle3, draw_chain=draw_chain)


def blind(eagle3):
    """Leave out the target's features: they are not handed over."""

    def project(self, features):
        return 0 * Eagle3.project(self, features)

    return patients.altered(eagle3, project=project)


def case_06() -> Recorded:
    return Recorded(
        lambda eagle3: eagle3,
        {
            "every pass reads the target's last feature": stale_feature,
            "the cells of its own passes are never taken back": never_taken_back,
            "the target's features do not arrive": blind,
            "every pass reads the token before the newest": token_before,
            "nothing is wrong: chains fade": lambda eagle3: eagle3,
        },
        chain_measured,
    )
