"""Every checker on random cases that it has not seen: no planted mistake passes them all, no right answer fails one."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import expit

from dspark_lite.course.checkers.checking import Comparison, Mistake, same
from dspark_lite.course.checkers.random_cases import drawn, number, numbers
from dspark_lite.course.exercises import (
    lesson_04,
    lesson_05,
    lesson_09,
    lesson_10,
    lesson_11,
    lesson_13,
)
from dspark_lite.course.own_decoder import pipeline, small_engine, verifying
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.scheduling.policies import schedule
from test_exercises import EXERCISES
from test_lesson_05 import in_another_way
from test_lesson_13 import in_turn, three_old, two_at_once, without_host, working_to_the_end
from test_verifying import NAMED, composed

CASES = 200
SEED = 8  # not the checkers' own


# Right answers, written in another way than the checker's.


def speculate(big, little, ids, count, gamma=7):
    """One guess after the other, in a loop."""
    known = ids[0].tolist()
    end = len(known) + count
    while len(known) < end:
        draft = list(known)
        for _ in range(gamma):
            draft.append(int(little(torch.tensor([draft]))[0, -1].argmax()))
        want = big(torch.tensor([draft]))[0].argmax(-1).tolist()
        for guess in draft[len(known) :]:
            if guess != want[len(known) - 1]:
                break
            known.append(guess)
        known.append(want[len(known) - 1])
    return torch.tensor([known[:end]])


def kept(joint, q1, q2):
    """Pair by pair."""
    total, p1 = 0.0, joint.sum(1)
    for first in range(len(q1)):
        second = sum(min(joint[first, b] / p1[first], q2[b]) for b in range(len(q2)))
        total += min(p1[first], q1[first]) * (1 + second)
    return total


def chain_loss(one_pass, loss_of, cache, tokens, features, decay):
    """Losses and weights in two lists."""
    feature, losses = features[0], []
    for k, token in enumerate(tokens, 1):
        feature, cache = one_pass(cache, token, feature)
        losses.append(loss_of(feature, k))
    weights = torch.tensor([float(decay**k) for k in range(len(losses))])
    return (torch.stack(losses) * weights).sum() / weights.sum()


def draft_chain(one_pass, choose, cache, anchor, waiting, gamma):
    """By recursion."""
    if not gamma:
        return []
    output, cache = one_pass(cache, anchor, waiting)
    token = choose(output)
    return [token, *draft_chain(one_pass, choose, cache, token, output, gamma - 1)]


def sees(anchors, length, gamma, query, key):
    """A table of every pair, slot by slot."""
    mask = torch.zeros(len(query), len(key), dtype=torch.bool)
    for slot in range(len(query)):
        own = slot // gamma
        mask[slot, : anchors[own]] = True
        mask[slot, length + own * gamma : length + (own + 1) * gamma] = True
    return mask


def dspark_loss(draft_logits, target_logits, labels, counted, confidence, factors):
    """By torch's own losses."""
    q, p = draft_logits.softmax(-1), target_logits.softmax(-1)
    parts = {
        "cross_entropy": F.cross_entropy(draft_logits.transpose(1, 2), labels, reduction="none"),
        "l1": (q - p).abs().sum(-1),
        "confidence": F.binary_cross_entropy(
            confidence.sigmoid(), torch.minimum(p, q).sum(-1).detach(), reduction="none"
        ),
    }
    weights = torch.exp(-torch.arange(labels.shape[1]) / 4).expand_as(counted)[counted]
    return sum(
        factors[name] * (part[counted] * weights).sum() / weights.sum()
        for name, part in parts.items()
    )


def sequential(logits, outcome, grid, error):
    """With the survival so far carried along."""
    alive, chosen = np.ones(len(logits)), []
    for k in range(logits.shape[1]):
        best = min(grid, key=lambda t: error(alive * expit(logits[:, k] / t), outcome[:, k]))
        alive = alive * expit(logits[:, k] / best)
        chosen.append(best)
    return chosen


def algorithm_1(survivals, sps):
    """The package's."""
    sizes = range(1, survivals.numel() + len(survivals) + 1)
    return schedule(survivals, CostTable(sizes, list(map(sps, sizes))))


def index_tensors(starts, counts):
    """Token by token."""
    pairs = [
        (request, start + k)
        for request, (start, count) in enumerate(zip(starts.tolist(), counts.tolist()))
        for k in range(count)
    ]
    request, position = zip(*pairs)
    return torch.tensor(request), torch.tensor(position)


def stops_paying(a, b, c, committed, chance):
    """By bisection of what throughput gains."""

    def gain(requests):
        seven, eight = (a + requests * (b + count * c) for count in (7, 8))
        return (committed + chance) * seven - committed * eight

    low, high = 0.0, 1e12
    if gain(high) > 0:
        return np.inf
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if gain(middle) > 0 else (low, middle)
    return low


def by_round(answers):
    """Sums and counts, grown as the rounds are seen."""
    sums, counts = [0] * 8, [0] * 8
    for answer in answers:
        for k, accepted in enumerate(answer):
            sums[k] += accepted
            counts[k] += 1
    return [total / count for total, count in zip(sums, counts) if count]


def same_block(drafter, features, anchor, cut):
    """The pieces first."""
    state = drafter.begin(None, features[:, :cut])
    drafter.block_hidden(state, anchor)
    drafter.extend(state, None, features[:, cut:])
    pieces = drafter.block_hidden(state, anchor)
    whole = drafter.block_hidden(drafter.begin(None, features), anchor)
    return (whole - pieces).abs().max() <= 1e-4


RIGHT = {
    "00 check_speculate": speculate,
    "00 check_accepted_length": lambda answers: np.mean(
        [one.committed for answer in answers for one in answer.rounds]
    ),
    "01 check_pass_seconds": lambda k, n, b, r, o: n * max(b / r, 2 * k / o),
    "01 check_speedup": lambda tau, draft, verify, plain: plain / ((draft + verify) / tau),
    "02 check_keep": lambda p, q: torch.where(p >= q, 1.0, p / q),
    "02 check_residual": lambda p, q: (p - torch.minimum(p, q)) / (p - q).abs().sum() * 2,
    "02 check_next_distribution": lambda p, q, k: (
        p[-1] if k == q.shape[0] else torch.relu(p[k] - q[k]) / torch.relu(p[k] - q[k]).sum()
    ),
    "03 check_forget": lambda g, a: [g - a, g - a - (a < g)],
    "03 check_still_unread": lambda drafts, tokens: tokens[len(drafts) - 1 :] or tokens[-1:],
    "04 check_kept": kept,
    "04 check_block_pass": lesson_04.passing(),
    "05 check_transition_bias": lambda draft, x: (draft.w[lesson_05.W1] @ draft.w[lesson_05.W2].T)[
        x
    ],
    "06 check_pairs": lambda ids, features: (
        torch.stack([*ids[1:]]),
        torch.stack([*features[:-1]]),
    ),
    "06 check_draft_chain": draft_chain,
    "06 check_chain_loss": chain_loss,
    "06 check_survives": lambda in_text, gamma: (
        torch.arange(len(in_text)) < len(in_text) - gamma + 1
    ),
    "07 check_sees": sees,
    "07 check_acceptance": lambda p, q: 1 - torch.relu(q - p).sum(-1),
    "07 check_dspark_loss": dspark_loss,
    "07 check_refusals": lambda rounds: [
        (draft, token)
        for one in rounds
        for draft, token in zip(
            one.draft_tokens[one.accepted : one.accepted + 1], one.tokens[one.accepted :]
        )
    ],
    "07 check_head_loss": lambda backbone, biases, batch: (
        lambda base, wanted, tokens, counted: dspark_loss(
            base + biases(tokens[:, :-1]),
            wanted,
            tokens[:, 1:],
            counted,
            torch.ones_like(base[..., 0]),
            {"cross_entropy": 0.1, "l1": 0.9, "confidence": 0},
        )
    )(*backbone(batch)),
    "08 check_first_difference": lambda ours, theirs, allowed: next(
        (name for name in ours if ((ours[name] - theirs[name]).abs() > allowed).any()), "nowhere"
    ),
    "08 check_is_tie": lambda z, a, b, allowed: all(z[t] >= z.max() - allowed for t in (a, b)),
    "09 check_survival": lambda draft, hidden, anchor, drafts: torch.stack(
        [
            torch.sigmoid(
                F.linear(
                    torch.cat([h, draft.w[lesson_09.W1][x]]),
                    draft.w[lesson_09.PROJ],
                    draft.w[lesson_09.BIAS],
                )
            )[0]
            for h, x in zip(hidden, [anchor, *drafts])
        ]
    ).cumprod(0),
    "09 check_ece": lambda predicted, observed, count: np.average(
        np.abs(observed - predicted), weights=count
    ),
    "09 check_sequential": sequential,
    "10 check_theta": lambda survivals, requests, table: (
        (requests + math.fsum(survivals)) * table.sps(requests, len(survivals) + requests)
    ),
    "10 check_algorithm_1": algorithm_1,
    "10 check_least_survival": lambda fixed, request, token, r, t, tau: (
        tau / (fixed / token + r * request / token + t)
    ),
    "10 check_lagged": lambda old, now, table: lesson_10.top_k(
        now, int(lesson_10.global_optimum(old, table).sum())
    ),
    "11 check_indices": index_tensors,
    "11 check_mask": lambda r, p, kr, kp: torch.tensor(
        [[bool(a == c and d <= b) for c, d in zip(kr, kp)] for a, b in zip(r, p)]
    ),
    "11 check_stops_paying": stops_paying,
    "12 check_resampled_gain": lambda ours, theirs, index: (
        lambda a, b: (a[0] * b[1]) / (a[1] * b[0]) - 1
    )(sum(ours[i] for i in index), sum(theirs[i] for i in index)),
    "12 check_verdict": lambda bounds: (
        "does not hold"
        if bounds[:, 1].min() < 0
        else "replicates"
        if bounds[:, 0].min() > 0
        else "we cannot tell"
    ),
    "13 check_machines": lambda curve, users, promise: (
        np.ceil(users * promise / lesson_11.throughput_at(curve, promise))
        if promise <= curve[0, 0]
        else np.inf
    ),
    "14 check_by_round": by_round,
    "14 check_same_block": same_block,
    "14 check_excess": lambda p, wrong, draws: draws * ((wrong * wrong / p).sum() - 1),
}


# Checkers of their own making: what one random case is, and whether a function is right in it.


class Judged(NamedTuple):
    """How a random case of a checker is drawn and judged, and functions that are wrong and right."""

    draw: Callable
    agrees: Callable
    wrong: list
    right: list


def raises_no_mistake(judge, *case) -> bool:
    """Whether a judge has nothing to object to."""
    try:
        judge(*case)
    except Mistake:
        return False
    return True


def models_case(generator):
    """The length of a block and two random models of few tokens; the target's texts, and what a round commits at best."""
    block = number(generator, 1, 2)
    tables = verifying.random_tables(generator, number(generator, 2, 4 - block))
    right = verifying.target_texts(block, tables[0])
    return block, tables, right, verifying.texts(verifying.verify, block, tables)[1]


def is_exact(verify, case) -> bool:
    """Whether rounds of `verify` give the target's texts, and commit as much as they can."""
    block, tables, right, possible = case
    found, length = verifying.texts(verify, block, tables)
    distance = verifying.total_variation(found, right)
    return distance < verifying.EXACT and length > possible - verifying.EXACT


def prompts_case(generator):
    """Two to five prompts, and what plain decoding answers."""
    prompts = [
        numbers(generator, number(generator, 2, 5), 1, 9) for _ in range(number(generator, 2, 5))
    ]
    return prompts, small_engine.plain_answers(prompts)


def serves(step, case) -> bool:
    """Whether an engine with this step gives the answers of plain decoding to the prompts."""
    prompts, right = case
    try:
        return small_engine.served(step, small_engine.drafting, prompts)[0] == right
    except Mistake:
        return False


JUDGED = {
    "02 check_verify": Judged(
        models_case,
        is_exact,
        [*NAMED.values(), verifying.without_bonus, verifying.without_effect],
        [verifying.verify, composed],
    ),
    "05 check_draw_block": Judged(
        lesson_05.block_case,
        lesson_05.draws_as_the_reference,
        [*lesson_05.WRONG_BLOCKS.values(), *lesson_05.WRONG_ROWS.values()],
        [lesson_05.draw_block, in_another_way],
    ),
    "11 check_engine": Judged(
        prompts_case,
        serves,
        list(small_engine.WRONG_TEXT.values()),
        [small_engine.step],
    ),
    "13 check_pipeline": Judged(
        lambda generator: number(generator, 1, 20),
        lambda loop, steps: raises_no_mistake(pipeline.judge_run, loop, steps),
        [in_turn, two_at_once, three_old, without_host],
        [lesson_13.pipelined, working_to_the_end],
    ),
}


# The table: of every checker, on as many random cases.


class Row(NamedTuple):
    """Of one checker: how many planted mistakes there are, how many of them no random case shows, in how many cases the rarest
    of the others is wrong, how many right functions there are, and in how many cases one of them fails."""

    checker: str
    planted: int
    passed: int
    rarest: int
    right: int
    failed: int

    def __str__(self):
        return (
            f"{self.checker:26} {self.planted:7} {self.passed:6} {self.rarest:6} "
            f"{self.right:5} {self.failed:6}"
        )


HEADER = f"{'checker':26} planted passed rarest right failed"


def wrong_in(step: Comparison, function, right: list, cases: list):
    """Whether `function` is wrong, case by case."""
    for case in cases:
        try:
            answer = step.result(function, case)
        except Mistake:
            yield True
        else:
            yield not any(same(answer, step.result(one, case)) for one in right)


def row(name: str, seed: int, count: int) -> Row:
    """What `count` random cases from a seed show of a checker."""
    if name in JUDGED:
        draw, agrees, wrong, right = JUDGED[name]
        cases = drawn(draw, count, seed)
        found = [sum(not agrees(one, case) for case in cases) for one in wrong]
        failed = sum(not agrees(one, case) for one in right for case in cases)
    else:
        check, found, failed = EXERCISES[name], [], 0
        references = [check.reference, *check.also_right]
        right = [check.reference, RIGHT[name]]
        for step in check.comparisons:
            cases = drawn(step.cases.draw, count, seed)
            found += [sum(wrong_in(step, one, references, cases)) for _, one in step.planted()]
            failed += sum(wrong_in(step, RIGHT[name], references, cases))
    rarest = min((hits for hits in found if hits), default=0)
    return Row(name, len(found), found.count(0), rarest, len(right), failed)


@pytest.mark.slow(reason="counts every mistake in every case")
@pytest.mark.parametrize("name", [*EXERCISES, *JUDGED])
def test_the_table_of_all_mistakes_on_all_random_cases(name):
    found = row(name, SEED, CASES)
    print(found)
    assert (found.passed, found.failed) == (0, 0), f"{HEADER}\n{found}"


@pytest.mark.slow(reason="all cases of all checkers once more, for the right answers")
@pytest.mark.parametrize("name", EXERCISES)
def test_answers_written_in_another_way_are_right(name, capsys):
    assert EXERCISES[name](RIGHT[name]) is True, capsys.readouterr().out
