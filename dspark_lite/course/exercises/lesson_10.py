"""Checkers of lesson 10: expected throughput, Algorithm 1, the survival that pays, a lagged budget."""

import torch

from ...scheduling.cost_table import CostTable
from ...scheduling.policies import global_optimum, schedule, top_k
from ..checkers.checking import Comparison, Exercise
from ..checkers.random_cases import Cases, between, number
from ..own_decoder.my_dspark import algorithm_1


def expected_throughput(admitted, requests, cost_table):
    """Return theta for the survivals `admitted`, a list."""
    return (requests + sum(admitted)) * cost_table.sps(requests, requests + len(admitted))


RAGGED = CostTable(range(1, 9), [100, 96, 90, 81, 75, 60, 58, 50])


def steps_per_second(generator, tokens: int) -> list[float]:
    """Return the steps per second of a device, for steps of 1 to `tokens` tokens. A further token
    costs hardly anything, or much; the curve is uneven in any case."""
    fixed = (1, 8, 32, 128)[number(generator, 0, 3)]
    each = torch.rand(tokens, generator=generator, dtype=torch.float64)
    return (1000 / (fixed + each.cumsum(0))).tolist()


def table_of(generator, tokens: int) -> CostTable:
    """Return the cost table of such a device."""
    return CostTable(range(1, tokens + 1), steps_per_second(generator, tokens))


def admitted_case(generator):
    """Draw up to five survivals, one to five requests, and a table."""
    survivals = torch.rand(number(generator, 0, 5), generator=generator).tolist()
    return survivals, number(generator, 1, 5), table_of(generator, 12)


check_theta = Exercise(
    expected_throughput,
    Comparison(
        Cases(
            [
                ([], 2, RAGGED),
                ([0.9], 2, RAGGED),
                ([0.9, 0.7, 0.4], 2, RAGGED),
                ([0.8, 0.5], 3, RAGGED),
            ],
            admitted_case,
        ),
        {
            "the anchors are missing from B: each request sends one token into the pass besides its drafts.": lambda s, r, table: (
                (r + sum(s)) * table.sps(r, len(s))
            ),
            "the anchors are missing from tau: each request commits one token of the target's own besides its drafts.": lambda s, r, table: (
                sum(s) * table.sps(r, r + len(s))
            ),
            "the anchors are missing, from B and from tau: each request verifies and commits one token besides its drafts.": lambda s, r, table: (
                sum(s) * table.sps(r, len(s))
            ),
            "you counted one anchor for the whole batch; there is one per request.": lambda s, r, table: (
                (1 + sum(s)) * table.sps(r, 1 + len(s))
            ),
            "every admitted draft is counted as accepted; it commits a token only with its survival's chance.": lambda s, r, table: (
                (r + len(s)) * table.sps(r, r + len(s))
            ),
            "the survivals are summed for the whole batch already; do not multiply their sum by the requests.": lambda s, r, table: (
                r * (1 + sum(s)) * table.sps(r, r + len(s))
            ),
            "`admitted` holds survivals, not confidences: their products are taken already, so only sum them.": (
                lambda s, r, table: (
                    (r + torch.tensor(s).cumprod(0).sum()) * table.sps(r, r + len(s))
                ),
                lambda s, r, table: (r + torch.tensor(s).prod()) * table.sps(r, r + len(s)),
            ),
            "B is off by one: it is the anchors and the admitted drafts, no token more or less.": (
                lambda s, r, table: (r + sum(s)) * table.sps(r, r + len(s) - 1),
                lambda s, r, table: (r + sum(s)) * table.sps(r, r + len(s) + 1),
            ),
            "tau is divided by SPS. SPS is steps a second, so tokens per step times SPS are tokens a second.": lambda s, r, table: (
                (r + sum(s)) / table.sps(r, r + len(s))
            ),
            "that is tau per request; theta counts the tokens of the whole batch.": lambda s, r, table: (
                (1 + sum(s) / r) * table.sps(r, r + len(s))
            ),
        },
        "theta = (requests + sum of admitted survivals) * SPS(requests + number admitted).",
    ),
)


def speeds(*steps_per_second):
    """Return SPS as a function of the tokens in the batch. The first number is that of an empty
    batch, which nobody should ask for."""
    return lambda batch: steps_per_second[int(batch)]


def tokens_of(survivals):
    """Return the triples (-survival, position, request) of all drafts [R, g]; sorted, they are in
    the order of admission."""
    return [
        (-chance, k, r) for r, row in enumerate(survivals.tolist()) for k, chance in enumerate(row)
    ]


def admitting(
    survivals,
    sps,
    *,
    order=sorted,
    anchors=None,
    committed=None,
    admit=lambda after, before: after > before,
    over=0,
):
    """Return lengths by Algorithm 1, or by one of its misreadings: another order of `tokens_of`,
    other numbers of anchors in the batch or of tokens that they commit, another rule to admit, some
    tokens too many."""
    lengths = [0] * len(survivals)
    batch = len(survivals) if anchors is None else anchors
    expected = float(len(survivals) if committed is None else committed)
    for minus_chance, _, request in order(tokens_of(survivals)):
        if not admit((expected - minus_chance) * sps(batch + 1), expected * sps(batch)):
            lengths[request] += over
            break
        expected, batch, lengths[request] = expected - minus_chance, batch + 1, lengths[request] + 1
    return lengths


def admitting_while(worth, sign=1):
    """Return lengths by the order of Algorithm 1, admitted while `worth(sps, requests, expected,
    admitted, survival)` holds; an admitted token's survival is added to `expected`, with this sign.
    """

    def lengths_of(survivals, sps):
        lengths, expected, requests = [0] * len(survivals), float(len(survivals)), len(survivals)
        for minus_chance, _, request in sorted(tokens_of(survivals)):
            if not worth(sps, requests, expected, sum(lengths), -minus_chance):
                break
            expected -= sign * minus_chance
            lengths[request] += 1
        return lengths

    return lengths_of


stale_expected = admitting_while(
    lambda sps, requests, expected, admitted, survival: (
        (requests + survival) * sps(requests + admitted + 1) > requests * sps(requests + admitted)
    )
)
stale_batch = admitting_while(
    lambda sps, requests, expected, admitted, survival: (
        (expected + survival) * sps(requests + 1) > expected * sps(requests)
    )
)
falling_expected = admitting_while(
    lambda sps, requests, expected, admitted, survival: (
        (expected + survival) * sps(requests + admitted + 1) > expected * sps(requests + admitted)
    ),
    sign=-1,
)
# sps falls with each token: compared alone, with a survival below 1 or with a tau that shrinks, it admits none
never_admitting = (
    admitting_while(
        lambda sps, requests, expected, admitted, survival: (
            sps(requests + admitted + 1) > sps(requests + admitted)
        )
    ),
    admitting_while(
        lambda sps, requests, expected, admitted, survival: (
            survival * sps(requests + admitted + 1) > sps(requests + admitted)
        )
    ),
    admitting_while(
        lambda sps, requests, expected, admitted, survival: (
            survival * sps(requests + admitted + 1) > expected * sps(requests + admitted)
        )
    ),
    admitting_while(
        lambda sps, requests, expected, admitted, survival: (
            (expected - survival) * sps(requests + admitted + 1)
            > expected * sps(requests + admitted)
        )
    ),
)
bringing_without_tau = admitting_while(
    lambda sps, requests, expected, admitted, survival: (
        (1 + survival) * sps(requests + admitted + 1) > sps(requests + admitted)
    )
)
likelier_than_not = (
    admitting_while(lambda sps, requests, expected, admitted, survival: survival > 0.5),
    admitting_while(lambda sps, requests, expected, admitted, survival: survival >= 0.5),
)
against_none = admitting_while(
    lambda sps, requests, expected, admitted, survival: (
        (expected + survival) * sps(requests + admitted + 1) > requests * sps(requests)
    )
)


def highest(survivals, sps):
    """Return the lengths with the highest theta of all."""
    sizes = range(1, survivals.numel() + len(survivals) + 1)
    return global_optimum(survivals, CostTable(sizes, list(map(sps, sizes)))).tolist()


def every_rise(survivals, sps):
    """Return lengths that count each token at which theta of the whole order rises."""
    lengths, expected = [0] * len(survivals), float(len(survivals))
    for batch, (minus_chance, _, request) in enumerate(
        sorted(tokens_of(survivals)), len(survivals)
    ):
        lengths[request] += (expected - minus_chance) * sps(batch + 1) > expected * sps(batch)
        expected -= minus_chance
    return lengths


SURVIVALS = torch.tensor([[0.9, 0.72, 0.36], [0.6, 0.54, 0.48]])
SCHEDULES = [
    (SURVIVALS, speeds(120, 115, 110, 100, 95, 90, 85, 70, 68)),
    (SURVIVALS, speeds(130, 120, 110, 100, 85, 84, 83, 82, 81)),
    (torch.tensor([[0.5], [0.5]]), speeds(12, 11, 10, 7.9, 7)),
    (torch.tensor([[0.5], [0.5]]), speeds(12, 11, 10, 8, 5)),
    (torch.tensor([[0.5], [0.5]]), speeds(12, 11, 10, 8.5, 5)),
    (torch.tensor([[0.5, 0.5], [0.5, 0.2]]), speeds(10, 10, 9, 8.6, 8.2, 5, 4)),
    (torch.tensor([[0.8, 0.8, 0.1]]), speeds(9, 8, 7, 6, 5.5)),
    (torch.tensor([[0.6, 0.3], [0.5, 0.1]]), speeds(21, 20, 19, 12, 11.5, 11.4, 11.3)),
    (torch.tensor([[0.9, 0.1, 0.05], [0.8, 0.7, 0.6]]), speeds(40, 39, 38, 37, 36, 35, 33, 20, 10)),
]


def step_case(generator):
    """Return one to four requests with blocks of one to four drafts. Many survive equally well,
    across requests too; now and then the first token leaves theta just as it is."""
    requests, gamma = number(generator, 1, 4), number(generator, 1, 4)
    survivals = (torch.randint(1, 5, (requests, gamma), generator=generator) / 4).cumprod(1)
    steps = steps_per_second(generator, requests * (gamma + 1))
    if number(generator, 0, 3) == 0:
        steps[requests - 1 : requests + 1] = requests + survivals.max().item(), float(requests)
    return survivals, speeds(2 * steps[0], *steps)


check_algorithm_1 = Exercise(
    algorithm_1,
    Comparison(
        Cases(SCHEDULES, step_case),
        {
            "those are the lengths with the highest theta of all. A place after the first fall is reached because of survivals that were "
            "computed from drafts already drawn: lossy. Stop at the first token that does not raise theta.": highest,
            "you counted every rise of theta, those after the first fall too; the first failure ends the search.": every_rise,
            "a token that leaves theta as it is was admitted; it must raise theta.": lambda s, sps: (
                admitting(s, sps, admit=lambda after, before: after >= before)
            ),
            "the token that failed is counted too; it is not admitted.": lambda s, sps: admitting(
                s, sps, over=1
            ),
            "the anchors are missing from the batch: each request sends one token into the pass besides its drafts.": lambda s, sps: (
                admitting(s, sps, anchors=0)
            ),
            "the anchors are missing from tau: each request commits one token of the target's own besides its drafts.": lambda s, sps: (
                admitting(s, sps, committed=0)
            ),
            "you went request by request; all tokens of the batch compete, so sort them together.": lambda s, sps: (
                admitting(
                    s,
                    sps,
                    order=lambda tokens: sorted(tokens, key=lambda token: (token[2], token[1])),
                )
            ),
            "you went position by position; a sure second draft comes before another request's doubtful first.": lambda s, sps: (
                admitting(s, sps, order=lambda tokens: sorted(tokens, key=lambda token: token[1:]))
            ),
            "of equal survivals the earlier position comes first, then the earlier request.": (
                lambda s, sps: admitting(
                    s,
                    sps,
                    order=lambda tokens: sorted(tokens, key=lambda token: (*token[:2], -token[2])),
                ),
                lambda s, sps: admitting(
                    s,
                    sps,
                    order=lambda tokens: sorted(tokens, key=lambda token: (token[0], token[2])),
                ),
            ),
            "survivals are products of confidences already; do not multiply them along the block again.": lambda s, sps: (
                admitting(s.cumprod(1), sps)
            ),
            "the least likely come first; sort the highest survival to the front.": lambda s, sps: (
                admitting(s, sps, order=lambda tokens: sorted(tokens, reverse=True))
            ),
            "`expected` stays what it was at the beginning; add the survival of each token that you admit.": (
                stale_expected
            ),
            "no draft is ever admitted. sps alone always falls; what grows is tau: compare (expected + chance) * sps(batch + 1) "
            "with expected * sps(batch). The triples hold -chance.": never_admitting,
            "tau is missing from the comparison: a draft raises expected to expected + chance, not 1 to 1 + chance.": (
                bringing_without_tau
            ),
            "a survival alone decides nothing: a threshold does not know the load. Compare theta with and without the next "
            "token.": likelier_than_not,
            "`expected` must grow: the triples hold -chance, so take it off, or add the chance.": falling_expected,
            "`batch` stays what it was at the beginning; count each token that you admit.": stale_batch,
            "theta is compared with that of no draft at all; compare it with theta before this token.": (
                against_none
            ),
            "every admitted draft is counted as accepted; it commits a token only with its survival's chance.": lambda s, sps: (
                admitting((s > 0).double(), sps)
            ),
            "every token is admitted. tau alone always grows: compare theta, tau * sps, with and without the next one.": lambda s, sps: (
                [s.shape[1]] * len(s)
            ),
        },
        "sort all tokens by survival, the highest first, and admit them as long as each raises (R + survivals admitted) * "
        "sps(R + tokens admitted).",
    ),
)


def least_survival(fixed, per_request, per_token, requests, tokens, committed):
    """Return the survival above which one more draft raises theta."""
    return committed * per_token / (fixed + per_request * requests + per_token * tokens)


def machine_case(generator):
    """Return a machine of three numbers; a step of one to 64 requests with up to eight tokens each,
    of which some are committed."""
    prices = [between(generator, 0.01, 100) for _ in range(3)]
    requests = number(generator, 1, 64)
    tokens = number(generator, requests, 8 * requests)
    committed = requests + (tokens - requests) * torch.rand((), generator=generator).item()
    return *prices, requests, tokens, committed


check_least_survival = Exercise(
    least_survival,
    Comparison(
        Cases(
            [
                (32.0, 2.0, 0.5, 8, 64, 40.0),
                (128.0, 0.0, 1.0, 256, 512, 480.0),
                (0.0, 3.0, 1.5, 4, 20, 12.0),
            ],
            machine_case,
        ),
        {
            "that is the part by which the step gets longer; the draft must bring this part of what the step commits: multiply "
            "by `committed`.": lambda fixed, request, token, r, t, tau: (
                token / (fixed + request * r + token * t)
            ),
            "the step's time has the new draft in it already; compare with what the step brings without it.": (
                lambda fixed, request, token, r, t, tau: (
                    tau * token / (fixed + request * r + token * (t + 1))
                )
            ),
            "a draft adds a token, and no request: it makes the step longer by per_token alone.": (
                lambda fixed, request, token, r, t, tau: (
                    tau * (request + token) / (fixed + request * r + token * t)
                )
            ),
            "`tokens` counts the anchors already; do not add the requests.": (
                lambda fixed, request, token, r, t, tau: (
                    tau * token / (fixed + request * r + token * (t + r))
                )
            ),
            "the fixed part is missing from the time of the step.": (
                lambda fixed, request, token, r, t, tau: tau * token / (request * r + token * t)
            ),
            "the requests are missing from the time of the step.": (
                lambda fixed, request, token, r, t, tau: tau * token / (fixed + token * t)
            ),
            "the tokens are missing from the time of the step.": (
                lambda fixed, request, token, r, t, tau: tau * token / (fixed + request * r)
            ),
            "the fixed part is paid once a step, not once a request.": (
                lambda fixed, request, token, r, t, tau: (
                    tau * token / ((fixed + request) * r + token * t)
                )
            ),
            "per_request is paid by each request: multiply it by `requests`.": (
                lambda fixed, request, token, r, t, tau: tau * token / (fixed + request + token * t)
            ),
            "that is theta, tokens a second; the draft lasts per_token seconds, so multiply by it.": (
                lambda fixed, request, token, r, t, tau: tau / (fixed + request * r + token * t)
            ),
            "what counts is what the step commits, not what it verifies.": (
                lambda fixed, request, token, r, t, tau: (
                    t * token / (fixed + request * r + token * t)
                )
            ),
            "`committed` is that of the whole step, as its time is; do not divide by the requests.": (
                lambda fixed, request, token, r, t, tau: (
                    tau / r * token / (fixed + request * r + token * t)
                )
            ),
            "that is upside down: the draft's tokens over its seconds must be above the step's tokens over its seconds.": (
                lambda fixed, request, token, r, t, tau: (
                    (fixed + request * r + token * t) / (tau * token)
                )
            ),
        },
        "s / per_token must be above committed / (fixed + per_request * requests + per_token * tokens).",
    ),
)


def lagged_lengths(old, current, cost_table):
    """Return lengths [R] from survivals two steps old and from those of now."""
    return top_k(current, global_optimum(old, cost_table).sum())


STAIRS = CostTable(range(1, 13), [98, 97, 96, 95, 94, 80, 79, 66, 66, 63, 50, 50])
OLD = torch.tensor([[0.75, 0.74, 0.73], [0.73, 0.72, 0.71], [0.72, 0.71, 0.70]])
CURRENT = torch.tensor([[0.3, 0.1, 0.02], [0.95, 0.92, 0.9], [0.9, 0.85, 0.7]])
OLD_4 = torch.tensor([[0.5, 0.2], [0.9, 0.1], [0.4, 0.1], [0.3, 0.1]])
CURRENT_4 = torch.tensor([[0.1, 0.05], [0.2, 0.1], [0.95, 0.9], [0.9, 0.2]])
STEEP = CostTable(range(1, 13), [100, 98, 96, 94, 90, 82, 70, 60, 50, 45, 40, 35])


def lagged_case(generator):
    """Return one to four requests, old and current survivals drawn apart."""
    requests, gamma = number(generator, 1, 4), number(generator, 1, 4)
    old, current = (0.3 + 0.7 * torch.rand(2, requests, gamma, generator=generator)).cumprod(2)
    return old, current, table_of(generator, requests * (gamma + 1))


check_lagged = Exercise(
    lagged_lengths,
    Comparison(
        Cases([(OLD, CURRENT, STAIRS), (OLD_4, CURRENT_4, STEEP)], lagged_case),
        {
            "the budget comes from the current survivals, which know what was drawn: that is the retrospective choice. Take it "
            "from the old ones.": (
                lambda old, now, table: global_optimum(now, table),
                lambda old, now, table: top_k(now, global_optimum(now, table).sum()),
            ),
            "these are the lengths that were right two steps ago. That is lossless, but the places go to requests whose new "
            "drafts may be weak; take only the sum from the old survivals.": lambda old, now, table: (
                global_optimum(old, table)
            ),
            "the budget was found with the early stop. The old draws are over and can bias nothing, so search without it.": lambda old, now, table: (
                top_k(now, schedule(old, table).sum())
            ),
            "that is Algorithm 1 on the current survivals; here the budget is to be known before this step's drafts.": lambda old, now, table: (
                schedule(now, table)
            ),
            "old and current are swapped: the old survivals set the budget, the current ones hand it out.": lambda old, now, table: (
                top_k(old, global_optimum(now, table).sum())
            ),
            "the anchors are in the budget; it counts drafts, and anchors always go in.": lambda old, now, table: (
                top_k(now, global_optimum(old, table).sum() + len(old))
            ),
            "survivals are products of confidences already; do not multiply them along the block again.": (
                lambda old, now, table: lagged_lengths(old.cumprod(1), now, table),
                lambda old, now, table: lagged_lengths(old, now.cumprod(1), table),
                lambda old, now, table: lagged_lengths(old.cumprod(1), now.cumprod(1), table),
            ),
            "the budget is spread evenly; top_k gives it to the highest survivals.": lambda old, now, table: (
                torch.full((len(now),), int(global_optimum(old, table).sum()) // len(now))
            ),
            "that is one number for the whole batch; hand the budget out with top_k.": lambda old, now, table: (
                global_optimum(old, table).sum()
            ),
            "top_k takes one number as its budget, and you gave it a length for each request: add them up.": lambda old, now, table: (
                top_k(now, global_optimum(old, table))
            ),
        },
        "the budget is the sum of the lengths that are best for the old survivals; top_k hands it out by the current.",
    ),
)
