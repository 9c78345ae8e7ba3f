"""Checkers of lesson 02: keeping a draft, the residual, the next token of a block, the whole verifier."""

from functools import partial

import torch

from ..checkers.checking import Comparison, Exercise, Mistake
from ..checkers.random_cases import Cases, distributions, number, numbers
from ..own_decoder.verifying import check_verify as check_verify, in_use as in_use

P = torch.tensor([0.50, 0.25, 0.15, 0.10])
Q = torch.tensor([0.25, 0.40, 0.05, 0.30])


def apart(generator, rows: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return distributions [rows, V] of a target and a drafter, so far apart that a residual does
    not magnify rounding."""
    while True:
        p, q = distributions(generator, 2, rows, size)
        if ((p - q).abs().sum(-1) > 0.1).all():
            return p, q


def pair(generator):
    """Return a target's distribution and a drafter's, of two to nine tokens."""
    p, q = apart(generator, 1, number(generator, 2, 9))
    return p[0], q[0]


def keep_probability(p, q):
    """Return the probability [V] of keeping each drafted token."""
    return (p / q).clamp(max=1)


def scaled(values):
    """Return values [V] that sum to 1."""
    return values / values.sum()


def residual(p, q):
    """Return the distribution [V] of the token that replaces a refused draft."""
    return scaled((p - q).clamp(min=0))


check_keep = Exercise(
    keep_probability,
    Comparison(
        Cases([(P, Q)], pair),
        {
            "p and q are swapped: a token that the target wants more often than it is offered is always kept": lambda p, q: (
                (q / p).clamp(max=1)
            ),
            "a probability is at most 1: where p exceeds q every draft is kept": lambda p, q: p / q,
            "1 - p/q is the chance of a refusal, where it is positive; asked is the chance that the draft is kept": (
                lambda p, q: 1 - p / q,
                lambda p, q: (1 - p / q).clamp(min=0),
            ),
            "that is drafted and kept; divide by the chance q that it was drafted": torch.minimum,
            "a token that is offered too often is kept with probability p/q, not never": lambda p, q: (
                (p >= q).float()
            ),
            "Python's `min` and `max` take whole tensors apart; `.clamp(max=1)` and torch.minimum take the smaller number at each token": (
                lambda p, q: min(torch.tensor(1.0), p / q),
                lambda p, q: min(p / q, 1),
            ),
            "of the offers of a token q - p are refused; that is a share (q - p) / q of them": lambda p, q: (
                1 - (q - p).clamp(min=0)
            ),
            "that is p itself; the draft has already been drawn from q, so compare the two": lambda p, q: (
                p
            ),
            "that is the residual, which is for refused drafts": residual,
            "that is one number; asked is one probability for each token": (
                lambda p, q: keep_probability(p, q).sum(),
                lambda p, q: torch.minimum(p, q).sum(),
            ),
        },
        "where p >= q keep always, elsewhere keep the share of offers that leaves p",
    ),
)


def distribution(answer):
    """Return the answer, unless it is one number."""
    if torch.as_tensor(answer).numel() == 1:
        raise Mistake(
            "that is one number; asked is the distribution from which a token is drawn, one probability for each token"
        )
    return answer


check_residual = Exercise(
    residual,
    Comparison(
        Cases([(P, Q)], pair),
        {
            "it is not renormalised: a distribution sums to 1": lambda p, q: (p - q).clamp(min=0),
            "p and q are swapped: that is what was offered too often": lambda p, q: residual(q, p),
            "that draws from p, which gives the tokens that were already kept a second chance": lambda p, q: (
                p
            ),
            "that draws from q, which the target has just refused": lambda p, q: q,
            "something is owed only where p exceeds q; take 0 elsewhere, not the absolute value": lambda p, q: (
                scaled((p - q).abs())
            ),
            "negative entries are no probabilities; set them to 0": lambda p, q: p - q,
            "p - q sums to 0, so dividing by its sum means nothing; where q exceeds p nothing is owed: set these entries to 0 first": (
                lambda p, q: scaled(p - q),
                lambda p, q: (p - q) / (p.sum() - q.sum()),
            ),
            "a softmax gives every token something; take max(p - q, 0) and divide it by its sum": (
                lambda p, q: (p - q).softmax(-1),
                lambda p, q: (p - q).clamp(min=0).softmax(-1),
            ),
            "that is the part that was kept; the residual is the rest of p": lambda p, q: scaled(
                torch.minimum(p, q)
            ),
        },
        "what does p want beyond min(p, q)? Scale that to sum 1",
        read=distribution,
    ),
)


def block_case(generator, whole):
    """Return a block of one to six drafts, kept to its end or refused somewhere."""
    gamma, size = numbers(generator, 2, 1, 6)
    p, q = apart(generator, gamma + 1, size + 1)
    return p, q[:-1], gamma if whole else number(generator, 0, gamma - 1)


def next_distribution(target_probs, draft_probs, accepted):
    """Return the distribution [V] of the token after `accepted` kept drafts."""
    if accepted == len(draft_probs):
        return target_probs[accepted]
    return residual(target_probs[accepted], draft_probs[accepted])


def after_refusal(correction):
    """Return a right bonus, and `correction(target_probs, draft_probs, accepted)` after a refusal."""
    return lambda p, q, accepted: p[accepted] if accepted == len(q) else correction(p, q, accepted)


TARGET = torch.tensor(
    [[0.4, 0.3, 0.2, 0.1], [0.1, 0.5, 0.15, 0.25], [0.3, 0.1, 0.5, 0.1], [0.25, 0.35, 0.1, 0.3]]
)
DRAFT = torch.tensor([[0.3, 0.1, 0.4, 0.2], [0.3, 0.2, 0.4, 0.1], [0.1, 0.4, 0.2, 0.3]])
BONUS = Comparison(
    Cases([(TARGET, DRAFT, 3)], partial(block_case, whole=True)),
    {
        "that is the bonus from the wrong row: row g - 1 judged the last draft, the bonus comes from row g after it": lambda p, q, k: (
            p[k - 1] if k == len(q) else residual(p[k], q[k])
        ),
        "that is the bonus from the wrong row: row 0 stands after the anchor, the bonus after the last draft": lambda p, q, k: (
            p[0]
        ),
        "after a whole block nothing was refused, so nothing is subtracted from the target's row": lambda p, q, k: (
            residual(p[k], q[min(k, len(q) - 1)])
        ),
        "you read row `accepted` of draft_probs; after a whole block there is none, since all g drafts were kept. Treat "
        "that case by itself: nothing was refused": lambda p, q, k: residual(p[k], q[k]),
    },
    "after a whole block the next token comes from the target's last row",
)
CORRECTION = Comparison(
    Cases(
        [(TARGET, DRAFT, 1), (TARGET, DRAFT, 0), (TARGET, DRAFT, 2)],
        partial(block_case, whole=False),
    ),
    {
        "that is p on a refusal; subtract what the drafter offered: the residual": lambda p, q, k: (
            p[k]
        ),
        "with none kept, row 0 has refused: a refusal like any other, so its residual is asked, not the row itself": after_refusal(
            lambda p, q, k: residual(p[k], q[k]) if k else p[0]
        ),
        "that is the residual of the wrong row: with one draft kept, row 1 judged the refused one": after_refusal(
            lambda p, q, k: residual(p[k - 1], q[k - 1])
        ),
        "p and q are swapped in the residual": after_refusal(lambda p, q, k: residual(q[k], p[k])),
        "the residual is not renormalised": after_refusal(
            lambda p, q, k: (p[k] - q[k]).clamp(min=0)
        ),
        "after a refusal there is no bonus: the last row stands after drafts that are void": lambda p, q, k: (
            p[-1]
        ),
    },
    "after a refusal the next token comes from the residual of the row that refused",
)
check_next_distribution = Exercise(next_distribution, BONUS, CORRECTION)
