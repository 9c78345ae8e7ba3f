"""A policy that crosses the steps of a cost table and stays lossless: Algorithm 1 with hope.

Algorithm 1 ends at the first token that does not pay, even where the next one would be nearly free.
This one asks of each token whether it would pay together with up to a tile of followers. Of these
it knows nothing but that none survives likelier than the token itself, so it supposes that each
survives a little less than the one before. What it asks depends on the token's own survival and on
those ranked before it, never on a later draw, so the argument of lesson 10 holds as it stands.
"""

import torch

from dspark_lite.scheduling import survival

AHEAD, FALL = 16, 0.9  # followers that are hoped for, and how much less each survives


def policy(cost_table):
    """Return lengths [R] for a proposal of R requests."""

    def lengths(proposal):
        alive = survival(proposal.confidence)
        requests, drafts = alive.shape
        # positions first: a prefix has no holes
        ranked, order = alive.t().flatten().sort(descending=True, stable=True)
        most, batch, expected, taken = (
            cost_table.most_tokens(requests),
            requests,
            float(requests),
            0,
        )
        for chance in ranked.double().tolist():
            now, hoped, pays = expected * float(cost_table.sps(requests, batch)), expected, False
            for ahead in range(min(AHEAD, most - batch)):
                hoped += chance * FALL**ahead
                pays = pays or hoped * float(cost_table.sps(requests, batch + ahead + 1)) > now
            if not pays or chance == 0:
                break
            batch, expected, taken = batch + 1, expected + chance, taken + 1
        return torch.bincount(order[:taken] % requests, minlength=requests)

    return lengths
