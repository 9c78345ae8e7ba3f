"""Checkers of lesson 06: pairs of feature and token, a chain of passes and its loss, and which cells of the cache stay after a round."""

import torch

from ..checkers.checking import Comparison, Exercise, Mistake, same
from ..checkers.random_cases import Cases, number


def pairs(token_ids, features):
    """Return what Eagle3's layer reads of n tokens that the target has read, (tokens [P], features
    [P, H])."""
    return token_ids[1:], features[:-1]


def paired(answer):
    """Return tokens [P] and features [P, H], in this order and equally many."""
    if len(answer) != 2:
        raise Mistake(
            "two tensors are asked for, the tokens and the features, not a row or a list item for each pair."
        )
    if not all(isinstance(part, torch.Tensor) for part in answer):
        raise Mistake(
            "two tensors are asked for, the tokens and the features; yours are not both tensors."
        )
    tokens, features = answer
    if tokens.ndim > features.ndim:
        raise Mistake("the features came first; return the tokens, then the features.")
    if (tokens.ndim, features.ndim) != (1, 2):
        raise Mistake(
            f"the shapes asked for are [P] and [P, H]; yours are {list(tokens.shape)} and {list(features.shape)}."
        )
    if len(tokens) != len(features):
        raise Mistake(
            f"there are {len(tokens)} tokens and {len(features)} features; every feature has one token."
        )
    return tokens, features


def pairs_case(generator):
    """Return a text of two to nine tokens, and features of any width."""
    length, width = number(generator, 2, 9), number(generator, 1, 6)
    return torch.randint(100, (length,), generator=generator), torch.randn(
        length, width, generator=generator
    )


check_pairs = Exercise(
    pairs,
    Comparison(
        Cases([(torch.tensor([7, 3, 9, 4, 8]), torch.arange(10.0).view(5, 2))], pairs_case),
        {
            "each feature stands beside its own token, which it already knows; pair it with the token after it, i + 1.": lambda ids, features: (
                ids,
                features,
            ),
            "each feature stands beside the token before it; it must be the one after it, i + 1.": lambda ids, features: (
                ids[:-1],
                features[1:],
            ),
            "the last feature got the first token (torch.roll wraps around); it waits for the anchor, not here yet.": lambda ids, features: (
                ids.roll(-1),
                features,
            ),
            "the last feature got a token made up for it, a padding or the last token again; it waits for the anchor, not here yet.": (
                lambda ids, features: (torch.cat([ids[1:], ids.new_zeros(1)]), features),
                lambda ids, features: (torch.cat([ids[1:], ids[-1:]]), features),
            ),
            "the first pair is missing: the first token's feature stands beside the second token.": lambda ids, features: (
                ids[2:],
                features[1:-1],
            ),
            "the features came first; return the tokens, then the features.": lambda ids, features: (
                features[:-1],
                ids[1:],
            ),
            "two tensors are asked for, the tokens and the features, not a row or a list item for each pair.": lambda ids, features: (
                list(zip(ids[1:], features[:-1]))
            ),
            "two tensors are asked for, the tokens and the features; yours are not both tensors.": (
                lambda ids, features: (ids[1:].tolist(), features[:-1].tolist()),
                lambda ids, features: (ids[1:].tolist(), features[:-1]),
            ),
            "the shapes asked for are [P] and [P, H]; yours are [1, 4] and [1, 4, 2].": lambda ids, features: (
                ids[None, 1:],
                features[None, :-1],
            ),
            "there are 4 tokens and 5 features; every feature has one token.": lambda ids, features: (
                ids[1:],
                features,
            ),
        },
        "the pairs are not (token i + 1, feature i) for i = 0 to n - 2.",
        paired,
    ),
)


def draft_chain(one_pass, choose, cache, anchor, waiting, gamma):
    """Return the list of the gamma tokens [1] drafted after the anchor [1], from the waiting
    feature [1, 1, H]."""
    return chaining()(one_pass, choose, cache, anchor, waiting, gamma)


def in_a_row(drafted):
    """Return drafted tokens [g], from a list of them or from a tensor that holds them one after the
    other."""
    parts = [torch.as_tensor(token).flatten() for token in drafted]
    return torch.cat(parts) if parts else torch.zeros(0)


def chaining(
    token=lambda tokens: tokens[-1],
    feature=lambda features: features[-1],
    keep=lambda grown, given: grown,
):
    """Return a chain of passes with one of its parts made in another way.

    A pass reads `token` of the anchor and the drafts so far, and `feature` of the waiting feature
    and the outputs so far; `keep` is the cache that the next pass gets, of the grown one and the
    one given.
    """

    def chain(one_pass, choose, cache, anchor, waiting, gamma):
        tokens, features = [anchor], [waiting]
        for _ in range(gamma):
            output, grown = one_pass(cache, token(tokens), feature(features))
            cache = keep(grown, cache)
            features.append(output)
            tokens.append(choose(output))
        return tokens[1:]

    return chain


def choosing_first(one_pass, choose, cache, anchor, waiting, gamma):
    """Choose before the pass, from the feature that it reads."""
    drafted, token, feature = [], anchor, waiting
    for _ in range(gamma):
        drafted.append(choose(feature))
        feature, cache = one_pass(cache, token, feature)
        token = drafted[-1]
    return drafted


def first(offered):
    """Return what the first pass reads of all tokens, or features, that there are so far."""
    return offered[0]


def given(grown, cache):
    """Return the cache that the pass was given."""
    return cache


_numbers = torch.Generator().manual_seed(43)
# Embeddings of tokens, a matrix, a head.
EMBEDDED, MIXED, HEAD = (
    torch.randn(shape, generator=_numbers) for shape in ((11, 4), (4, 4), (4, 11))
)


def small_pass(cache, token, feature):
    """Return a pass in miniature: the output [1, 1, 4] depends on what it reads and on every pair
    in the grown cache."""
    cache = torch.cat([cache, feature + EMBEDDED[token][:, None]], 1)
    return torch.tanh(
        feature @ MIXED + EMBEDDED[token][:, None] + cache.mean(1, keepdim=True)
    ), cache


def small_choice(output):
    """Return the most probable token [1] after an output [1, 1, 4]."""
    return (output[:, 0] @ HEAD).argmax(-1)


def chain_case(seed, anchor, gamma):
    """Return what a chain is asked for, with a cache of three pairs."""
    generator = torch.Generator().manual_seed(seed)
    cache, waiting = (torch.randn(1, length, 4, generator=generator) for length in (3, 1))
    return small_pass, small_choice, cache, torch.tensor([anchor]), waiting, gamma


check_draft_chain = Exercise(
    draft_chain,
    Comparison(
        Cases(
            [chain_case(1, 4, 6), chain_case(2, 7, 7), chain_case(3, 0, 5)],
            lambda generator: chain_case(
                number(generator, 4, 10**6), number(generator, 0, 10), number(generator, 1, 8)
            ),
        ),
        {
            "every pass reads the waiting feature; from the second pass on the output of the pass before takes its place.": chaining(
                feature=first
            ),
            "every pass reads the anchor; the token that follows a drafted feature is the draft that the pass before has chosen.": chaining(
                token=first
            ),
            "every pass gets the cache that you were given; give it the grown one, in which the pairs of the passes before it stand.": chaining(
                keep=given
            ),
            "the token is one pass late: a pass reads the newest draft, the one that the pass before has chosen.": chaining(
                token=lambda tokens: tokens[max(0, len(tokens) - 2)]
            ),
            "you choose from the feature that a pass reads; choose from the output of the pass, and run it first.": choosing_first,
            "these are gamma + 1 tokens; the anchor is committed already and is no draft.": lambda *case: [
                case[3],
                *draft_chain(*case),
            ],
            "the anchor stands first and the last draft is missing; the anchor is committed already and is no draft.": lambda *case: [
                case[3],
                *draft_chain(*case)[:-1],
            ],
            "that is one draft too many: gamma passes give gamma drafts.": lambda *case: (
                draft_chain(*case[:-1], case[-1] + 1)
            ),
            "that is one draft too few: the first pass gives a draft as well, so gamma passes are needed.": lambda *case: (
                draft_chain(*case[:-1], case[-1] - 1)
            ),
            "`one_pass` takes the cache, the token and the feature, in this order; you swapped the last two.": lambda one_pass, *rest: (
                draft_chain(lambda cache, token, feature: one_pass(cache, feature, token), *rest)
            ),
            "`one_pass` returns the output first, then the grown cache; you took them the other way round.": lambda one_pass, *rest: (
                draft_chain(lambda *read: one_pass(*read)[::-1], *rest)
            ),
        },
        "the chain is not right: a pass reads the cache, the newest token and the newest feature, and its output gives the draft.",
        in_a_row,
    ),
)


def chain_loss(one_pass, loss_of, cache, tokens, features, decay):
    """Return the mean loss of a chain of passes over the text's tokens, in which each pass weighs
    `decay` of the one before."""
    return unrolling()(one_pass, loss_of, cache, tokens, features, decay)


def unrolling(
    read=lambda outputs, features, k: outputs[-1] if outputs else features[0],
    token=lambda tokens, k: tokens[k],
    keep=lambda grown, given: grown,
    weight=lambda decay, k: decay**k,
    scored=lambda k: k + 1,
    mean=lambda total, weights: total / weights,
):
    """Return a chain's loss with one of its parts made in another way; k counts passes from 0.

    Pass k reads the feature `read` and the token `token`; `keep` is the cache of the next pass; it
    weighs `weight`, is scored as pass `scored`, and `mean` is made of the weighted total and the
    weights.
    """

    def loss(one_pass, loss_of, cache, tokens, features, decay):
        outputs, total, weights = [], 0.0, 0.0
        for k in range(len(tokens)):
            output, grown = one_pass(cache, token(tokens, k), read(outputs, features, k))
            cache = keep(grown, cache)
            outputs.append(output)
            total = total + weight(decay, k) * loss_of(output, scored(k))
            weights += weight(decay, k)
        return mean(total, weights)

    return loss


def squared(output, k):
    """Return a loss in miniature, of pass k of 1, 2, ...; [] from an output [1, 1, 4]."""
    return (output.sum() - k / 3) ** 2


def loss_case(seed, decay, gamma=4):
    """Return what a chain's loss is asked for: a cache of three pairs, the text's tokens, the
    target's features."""
    generator = torch.Generator().manual_seed(seed)
    cache, *features = (
        torch.randn(1, length, 4, generator=generator) for length in (3, *[1] * gamma)
    )
    tokens = list(torch.randint(11, (gamma,), generator=generator).split(1))
    return small_pass, squared, cache, tokens, features, decay


def decayed_case(generator):
    """Return a chain of one to six passes; now and then its first pass alone counts, or all count
    alike."""
    decay = number(generator, 0, 20) / 20
    return loss_case(number(generator, 4, 10**6), decay, number(generator, 1, 6))


EMPTY_WEIGHTS = (
    "at decay 0 your answer is 0 / 0. Pass k weighs decay ** (k - 1), so the first weighs 1 at any decay; decay ** k gives the same "
    "mean until decay is 0."
)


def no_nan(loss):
    """Return the loss, if it is a number."""
    if torch.as_tensor(loss).isnan().any():
        raise Mistake(EMPTY_WEIGHTS)
    return loss


def learns_through_all_passes(function) -> None:
    """Raise Mistake where the gradient of what `function` returns does not run back through the
    chain."""
    scale = torch.ones((), requires_grad=True)
    _, _, cache, tokens, features, decay = loss_case(1, 0.8)
    with torch.enable_grad():
        answer, right = (
            loss(
                lambda cache, token, feature: (scale * feature, cache),
                squared,
                cache,
                tokens,
                features,
                decay,
            )
            for loss in (function, chain_loss)
        )
        if not getattr(answer, "requires_grad", False):
            raise Mistake(
                "the value is right, but it has lost its gradient (.item(), .detach() or torch.no_grad() on the way)."
            )
        if not same(*(torch.autograd.grad(loss, scale)[0] for loss in (answer, right))):
            raise Mistake(
                "the value is right, but its gradient stops between two passes (.detach() on the way?); a later pass's loss "
                "must teach the passes before it what to hand on."
            )


check_chain_loss = Exercise(
    chain_loss,
    Comparison(
        Cases([loss_case(1, 0.8), loss_case(2, 0.5), loss_case(3, 0.0)], decayed_case),
        {
            "that is teacher forcing: every pass reads the target's feature. While it drafts it will not have them, only the first.": unrolling(
                read=lambda outputs, features, k: features[k]
            ),
            "every pass reads the first feature; from the second on it is the output of the pass before.": unrolling(
                read=lambda outputs, features, k: features[0]
            ),
            "every pass reads the anchor; pass k reads the text's k-th token.": unrolling(
                token=lambda tokens, k: tokens[0]
            ),
            "every pass gets the cache that you were given; give it the grown one.": unrolling(
                keep=given
            ),
            "all passes weigh the same; pass k weighs decay ** (k - 1).": unrolling(
                weight=lambda decay, k: 1.0
            ),
            EMPTY_WEIGHTS: unrolling(weight=lambda decay, k: decay ** (k + 1)),
            "later passes weigh more; pass k weighs decay ** (k - 1), so the first one weighs most.": lambda *case: (
                unrolling(weight=lambda decay, k: decay ** (len(case[3]) - 1 - k))(*case)
            ),
            "that is the weighted sum; divide it by the sum of the weights.": unrolling(
                mean=lambda total, weights: total
            ),
            "you divided by the number of passes; divide by the sum of their weights.": lambda *case: (
                unrolling(mean=lambda total, weights: total / len(case[3]))(*case)
            ),
            "only the first pass is scored; each has a loss.": unrolling(
                weight=lambda decay, k: float(k == 0)
            ),
            "`loss_of` counts passes from 1.": unrolling(scored=lambda k: k),
            "`one_pass` returns the output first, then the grown cache; you took them the other way round.": lambda one_pass, *rest: (
                chain_loss(lambda *read: one_pass(*read)[::-1], *rest)
            ),
        },
        "it is not the weighted mean of the losses of passes that read the text's tokens and, after the first, their own output.",
        no_nan,
    ),
    manner=learns_through_all_passes,
)


def cells(cached, gamma, accepted):
    """Return for each cell of the cache after a round whether its token is in the text.

    Before the round there are `cached` cells. Each pass adds one, the first pass from the feature
    that waited. No pass has read the last draft, so it has no cell.
    """
    kept = min(accepted, gamma - 1)
    return [True] * (cached + 1 + kept) + [False] * (gamma - 1 - kept)


def survives(in_text, gamma):
    """Return for each cell of the cache whether it stays after a round: whether its pair had a
    feature of the target."""
    return staying(lambda place, first: place <= first)(in_text, gamma)


def staying(stays):
    """Return the marks of a rule `stays` of a cell's place and the place of pass 1's."""
    return lambda in_text, gamma: [
        stays(place, len(in_text) - gamma) for place in range(len(in_text))
    ]


def marks(answer):
    """Return one True or False per cell."""
    cells = torch.as_tensor(answer)
    if cells.dtype != torch.bool:
        raise Mistake("return True or False for each cell, not places or a number of cells.")
    return cells


def ended_round(generator):
    """Return the cells after a block of which any number was accepted."""
    gamma = number(generator, 1, 16)
    return cells(number(generator, 1, 200), gamma, number(generator, 0, gamma)), gamma


check_survives = Exercise(
    survives,
    Comparison(
        Cases([(cells(3, 5, 2), 5), (cells(20, 7, 0), 7), (cells(31, 5, 5), 5)], ended_round),
        {
            "you kept the cells of accepted drafts. Their tokens are right, but they were made from the drafter's own output; they enter "
            "again, with the target's features.": lambda in_text, gamma: in_text,
            "you threw away the anchor's cell. Pass 1 made it from the feature that waited, and that one is the target's.": staying(
                lambda place, first: place < first
            ),
            "you kept draft 1's cell. Pass 2 made it from the output of pass 1; only pass 1 has read a feature of the target's.": staying(
                lambda place, first: place <= first + 1
            ),
            "all cells stay: without rolling back, refused drafts stay in sight for good.": staying(
                lambda place, first: True
            ),
            "no cell stays; those of the text were made from the target's features, and are right as before.": staying(
                lambda place, first: False
            ),
            "you kept the accepted drafts' cells alone; the cells of the text stay, and these go.": lambda in_text, gamma: [
                kept and place > len(in_text) - gamma for place, kept in enumerate(in_text)
            ],
        },
        "a cell stays if the target's features would have put the same there: its token is in the text, and its feature is the target's.",
        marks,
    ),
)
