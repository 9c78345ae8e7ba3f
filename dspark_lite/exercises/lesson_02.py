"""Checkers of lesson 02: keeping a draft, the residual, the next token of a block, policies that are lossy."""

import torch

from ..sampling import residual
from .checking import Mistake, checker, finished, name_mistake

P = torch.tensor([0.50, 0.25, 0.15, 0.10])
Q = torch.tensor([0.25, 0.40, 0.05, 0.30])


@checker
def check_keep(function):
    """Checks `function(p, q)`: the probability [V] of keeping each drafted token."""
    answer = finished(function(P, Q))
    name_mistake(answer, (P / Q).clamp(max=1), {
        "p and q are swapped: a token that the target wants more often than it is offered is always kept":
            (Q / P).clamp(max=1),
        "a probability is at most 1: where p exceeds q every draft is kept": P / Q,
        "that is drafted and kept; divide by the chance q that it was drafted": torch.minimum(P, Q),
        "a token that is offered too often is kept with probability p/q, not never": (P >= Q).float(),
        "that is p itself; the draft has already been drawn from q, so compare the two": P,
        "that is the residual, which is for refused drafts": residual(P, Q),
    }, "where p >= q keep always, elsewhere keep the share of offers that leaves p")


@checker
def check_residual(function):
    """Checks `function(p, q)`: the distribution [V] of the token that replaces a refused draft."""
    answer = finished(function(P, Q))
    owed = (P - Q).clamp(min=0)
    name_mistake(answer, owed / owed.sum(), {
        "it is not renormalised: a distribution sums to 1": owed,
        "p and q are swapped: that is what was offered too often": residual(Q, P),
        "that draws from p, which gives the tokens that were already kept a second chance": P,
        "that draws from q, which the target has just refused": Q,
        "something is owed only where p exceeds q; take 0 elsewhere, not the absolute value":
            (P - Q).abs() / (P - Q).abs().sum(),
        "negative entries are no probabilities; set them to 0": P - Q,
        "that is the part that was kept; the residual is the rest of p":
            torch.minimum(P, Q) / torch.minimum(P, Q).sum(),
    }, "what does p want beyond min(p, q)? Scale that to sum 1")


@checker
def check_next_distribution(function):
    """Checks `function(target_probs, draft_probs, accepted)`: the distribution [V] after the kept drafts."""
    target = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.1, 0.5, 0.15, 0.25], [0.3, 0.1, 0.5, 0.1], [0.25, 0.35, 0.1, 0.3]])
    draft = torch.tensor([[0.3, 0.1, 0.4, 0.2], [0.3, 0.2, 0.4, 0.1], [0.1, 0.4, 0.2, 0.3]])
    owed = target[1] - draft[1]
    after_block = finished(function(target, draft, 3))
    name_mistake(after_block, target[3], {
        "that is the bonus from the wrong row: row g - 1 judged the last draft, the bonus comes from row g behind it":
            target[2],
        "that is the bonus from the wrong row: row 0 stands behind the anchor, the bonus behind the last draft":
            target[0],
        "after a whole block nothing was refused, so nothing is subtracted from the target's row":
            residual(target[3], draft[2]),
        "that is a residual; the bonus comes from the target's last row as it is": residual(target[2], draft[2]),
    }, "after a whole block the next token comes from the target's last row")
    name_mistake(finished(function(target, draft, 1)), residual(target[1], draft[1]), {
        "that is p on a refusal; subtract what the drafter offered: the residual": target[1],
        "that is the residual of the wrong row: with one draft kept, row 1 judged the refused one":
            residual(target[0], draft[0]),
        "that is the residual of the row behind the refused draft, a text that does not exist":
            residual(target[2], draft[2]),
        "p and q are swapped in the residual": residual(draft[1], target[1]),
        "the residual is not renormalised": owed.clamp(min=0),
        "after a refusal there is no bonus: the last row stands behind drafts that are void": target[3],
    }, "after a refusal the next token comes from the residual of the row that refused")


REASONS = {
    "A": "A is lossless: a fixed length looks at nothing that was drawn",
    "B": "B is lossless: the confidence in a position is known before its token is drawn",
    "C": "C is lossy: later confidences come from the drafted token, so it helps to decide whether it is verified "
         "(Appendix A)",
    "D": "D is lossy: which token was drawn decides whether it is verified, so unlikely drafts are withdrawn instead "
         "of judged",
    "E": "E is lossless: the previous round was over before anything of this one was drawn",
}
LOSSY = {"C", "D"}


@checker
def check_lossy_policies(answer):
    """Checks a set of the letters A to E."""
    letters = {str(letter).strip().upper() for letter in finished(answer)}
    if letters - REASONS.keys():
        raise Mistake('write a set of letters from A to E, as {"A", "B"}')
    wrong = sorted(letters ^ LOSSY)
    if wrong:
        raise Mistake("; ".join(REASONS[letter] for letter in wrong))
