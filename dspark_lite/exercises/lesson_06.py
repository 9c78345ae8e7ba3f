"""Checkers of lesson 06: pairs of feature and token, what a round leaves in the cache, conditional acceptance."""

import torch

from .checking import Mistake, checker, finished, name_mistake, same


@checker
def check_pairs(pairs):
    """`pairs(token_ids, features)`: what Eagle3's layer reads of n committed tokens, (tokens [m], features [m, H])."""
    ids, features = torch.tensor([7, 3, 9, 4, 8]), torch.arange(10.0).view(5, 2)
    tokens, paired = finished(pairs(ids, features))
    if len(tokens) != len(paired):
        raise Mistake(f"there are {len(tokens)} tokens and {len(paired)} features; every feature has one token.")
    answer = torch.cat([torch.as_tensor(tokens)[:, None].float(), torch.as_tensor(paired).float()], 1)

    def of(some, others):
        return torch.cat([ids[some][:, None].float(), features[others]], 1)

    name_mistake(answer, of(slice(1, 5), slice(0, 4)), {
        "each feature stands beside its own token, which it already knows; pair it with the token after it, i + 1.":
            of(slice(0, 5), slice(0, 5)),
        "each feature stands beside its own token, and one pair is missing; the token must be the one after it, i + 1.":
            of(slice(0, 4), slice(0, 4)),
        "each feature stands beside the token before it; it must be the one after it, i + 1.":
            of(slice(0, 4), slice(1, 5)),
        "each feature stands beside the token two places on; that one is what the layer is to predict.":
            of(slice(2, 5), slice(0, 3)),
        "the last feature got the first token (torch.roll wraps around); it waits for the anchor, not here yet.":
            of([1, 2, 3, 4, 0], slice(0, 5)),
    }, "the pairs are not (token i + 1, feature i) for i = 0 to n - 2.")


@checker
def check_after_round(after_round):
    """`after_round(cached, gamma, accepted)`: (entries of the cache to keep, pairs to enter) after a round."""
    cases = [(20, 7, 3), (20, 7, 0), (31, 5, 5)]

    def of(rule):
        return [rule(*case) for case in cases]

    answer = [tuple(finished(after_round(*case))) for case in cases]
    # The first pass read the waiting feature, which was the target's own: keeping that one entry is right as well.
    if same(answer, of(lambda cached, gamma, accepted: (cached + 1, accepted))):
        return
    name_mistake(answer, of(lambda cached, gamma, accepted: (cached, accepted + 1)), {
        "the drafted entries are still in the cache: without rolling back, refused drafts stay in sight for good.":
            of(lambda cached, gamma, accepted: (cached + gamma, accepted + 1)),
        "nothing is rolled back and nothing entered; the cache holds refused drafts and no feature of the target's.":
            of(lambda cached, gamma, accepted: (cached + gamma, 0)),
        "you kept the entries of accepted drafts. Their tokens are right, but they were computed from the drafter's "
        "own output; enter them again with the target's features.":
            of(lambda cached, gamma, accepted: (cached + accepted, 1)),
        "you kept the entries of accepted drafts and entered nothing: the cache would drift away from the target.":
            of(lambda cached, gamma, accepted: (cached + accepted + 1, 0)),
        "the anchor is forgotten: it was committed before the drafts, and its pair belongs into the cache too.":
            of(lambda cached, gamma, accepted: (cached, accepted)),
        "the token after the accepted drafts is the new anchor; it is entered after the next round, as this round's "
        "anchor is now.":
            of(lambda cached, gamma, accepted: (cached, accepted + 2)),
        "only accepted tokens are committed; drafts that were refused are not entered.":
            of(lambda cached, gamma, accepted: (cached, gamma + 1)),
    }, "keep what was committed before the round, and enter the anchor and the accepted drafts.")


@checker
def check_conditional(conditional):
    """`conditional(accepted, gamma)`: of the rounds that reached position k, the share that accepted it, [gamma]."""
    accepted, gamma = [4, 0, 2, 1, 4, 0, 1, 3], 4
    survived = torch.tensor([sum(a >= k for a in accepted) for k in range(gamma + 1)], dtype=torch.double)
    ended = torch.tensor([sum(a == k for a in accepted) for k in range(gamma + 1)], dtype=torch.double)
    answer = torch.as_tensor(finished(conditional(accepted, gamma)), dtype=torch.double)
    name_mistake(answer, survived[1:] / survived[:-1], {
        "you divided by all rounds. That is the share that survives to k; divide by the rounds that reached k, those "
        "that accepted at least k - 1.": survived[1:] / len(accepted),
        "you divided by all rounds and counted those that came to the position, not those that accepted it.":
            survived[:-1] / len(accepted),
        "off by one: position k is accepted where at least k drafts were, and reached where at least k - 1 were.":
            torch.cat([survived[2:] / survived[1:-1], torch.zeros(1, dtype=torch.double)]),
        "this is the share refused at k; one minus it is accepted.": ended[:-1] / survived[:-1],
        "you counted rounds that accept exactly k; a round that accepts more has accepted position k as well.":
            ended[1:] / survived[:-1],
        "you divided by the first position's count every time.": survived[1:] / survived[1],
    }, "position k is reached where at least k - 1 drafts were accepted, and accepted where at least k were.")
