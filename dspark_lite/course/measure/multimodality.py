"""Where slots that draw apart waste most: pairs of adjacent tokens that depend on each other
(lessons 04 and 05)."""

from typing import NamedTuple

import torch
from transformers import DynamicCache

from ...decoding.rounds import generate
from ...decoding.sampling import probabilities


class Reading(NamedTuple):
    """A sampled answer and what the target made of it: `ids` [1, n + T] of prompt and answer,
    tapped `features` [1, n + T, taps * H], the target's `probs` [1, n + T, V] of the token after
    each, and `start`, where the answer begins."""

    ids: torch.Tensor
    features: torch.Tensor
    probs: torch.Tensor
    start: int


def read_answer(lab, drafter, prompt: str, seed: int) -> Reading:
    """Let the target answer a prompt at temperature 1, and read the whole text again in one pass."""
    prompt_ids = lab.encode(prompt)
    answer = generate(
        lab.target,
        drafter,
        prompt_ids,
        max_new_tokens=lab.max_new_tokens,
        temperature=1.0,
        generator=lab.generator(seed),
    )
    ids = torch.cat([prompt_ids, torch.tensor([answer.token_ids], device=lab.device)], 1)
    step = lab.target.verify(ids, DynamicCache(config=lab.target.config), drafter.taps)
    return Reading(ids, step.features, probabilities(step.logits, 1.0), prompt_ids.shape[1])


def target_pairs(target, ids: torch.Tensor, count: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `count` likeliest tokens after ids [1, n] and the joint probability [count, V] of
    each and the next."""
    output, _ = target.prefill(ids)
    first_probs, first = probabilities(output.logits[0, -1], 1.0).topk(count)
    output, _ = target.prefill(torch.cat([ids.expand(count, -1), first[:, None]], 1))
    return first, first_probs[:, None] * probabilities(output.logits[:, -1], 1.0)


def drafted_pairs(lab, drafter, ids: torch.Tensor, first, second) -> torch.Tensor:
    """Return the probabilities [rows, columns] with which a drafter's first two slots draw a token
    of `first`, then one of `second`, at temperature 1. The last of ids [1, n] is the anchor."""
    features = lab.target.prefill(ids[:, :-1], drafter.taps)[0].features
    hidden = drafter.block_hidden(drafter.begin(ids[:, :-1], features), ids[:, -1])
    base = drafter.lm_head(hidden)[0, :2].float()  # [2, V]
    if head := getattr(drafter, "markov_head", None):
        before = torch.cat([ids[0, -1:], first])  # the anchor before slot 1, the rows before slot 2
        w1, w2 = head.markov_w1.weight.float(), head.markov_w2.weight.float()  # [V, r] each
        # [1 + rows, V]
        base = torch.cat([base[:1], base[1:].expand(len(first), -1)]) + w1[before] @ w2.T
    slot_1, *slot_2 = probabilities(base, 1.0)
    return slot_1[first][:, None] * torch.stack(slot_2)[:, second]


def waste(table: torch.Tensor, joint: torch.Tensor) -> float:
    """Return the share of a table of pairs [rows, columns] that lies where the target's `joint` is
    below 0.5 %, that is, on pairs that it hardly writes."""
    return (table[joint < 0.005].sum() / table.sum()).item()


def wasted(joint: torch.Tensor) -> float:
    """Return the share of two independent slots' pairs, each slot with the right chances, that the
    target hardly writes (below 0.5 %): for a joint [rows, columns] of any sum."""
    joint = joint / joint.sum()
    return waste(joint.sum(1, keepdim=True) * joint.sum(0), joint)


def colliding(lab, readings: list[Reading], places: int = 8) -> tuple[Reading, int]:
    """Return the reading and the place of an anchor in it after which two independent slots waste
    most; collisions of whole words go before those of parts of words.

    Candidates: the `places` positions of each answer with the most probable runner-up token.
    """

    def begins_word(token: int) -> bool:
        text = lab.tokenizer.decode([token])
        return (
            text[:1] == " " and text[1:].isalpha() or not any(letter.isalnum() for letter in text)
        )

    whole = torch.tensor(
        [begins_word(token) for token in range(lab.target.vocab_size)], device=lab.device
    )
    tried = []
    for number, reading in enumerate(readings):
        second_best = reading.probs[0, reading.start : -1].topk(2, -1).values[:, 1]
        for place in (
            reading.start + second_best.topk(min(places, len(second_best))).indices
        ).tolist():
            first, joint = target_pairs(lab.target, reading.ids[:, : place + 1])
            of_words = (joint[whole[first]][:, whole].sum() / joint.sum()).item()
            tried.append((of_words > 0.95, wasted(joint), number, place))
    *_, number, place = max(tried)
    return readings[number], place
