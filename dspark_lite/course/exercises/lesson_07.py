"""Checkers of lesson 07: the chance of acceptance, the loss, the mask predicate, a head's loss, refusals."""

import torch
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

from ...decoding import Round
from ..checkers.checking import Comparison, Exercise, Mistake, boolean, same
from ..checkers.random_cases import Cases, number, numbers


def seeing(context, slots):
    """Return a mask predicate of what is seen of the context, `context(key, anchor)`, and of the
    slots.

    `slots(block, owner, slot, other)` takes the blocks of query and key and their slots in them.
    """

    def sees(anchors, length, gamma, query, key):
        block, owner = query // gamma, (key - length) // gamma
        inside = slots(block, owner, query % gamma, (key - length) % gamma)
        return torch.where(key < length, context(key, anchors[block]), inside)

    return sees


def before(key, anchor):
    """Return whether a key stands before the anchor."""
    return key < anchor


def own(block, owner, slot, other):
    """Return whether a key is of the query's block."""
    return owner == block


def sees(anchors, length, gamma, query, key):
    """Return whether slot `query` may see `key`; index tensors that broadcast."""
    return seeing(before, own)(anchors, length, gamma, query, key)


def packed_case(generator):
    """Return one to four blocks of one to four slots behind a text, their anchors in order."""
    blocks, gamma = number(generator, 1, 4), number(generator, 1, 4)
    length = number(generator, blocks, 8)
    anchors = torch.randperm(length, generator=generator)[:blocks].sort().values
    query = torch.arange(blocks * gamma)[:, None]
    return anchors, length, gamma, query, torch.arange(length + blocks * gamma)


# Three blocks of two slots after a context of five tokens.
SLOTS = torch.arange(6)[:, None]
KEYS = torch.arange(5 + 6)
check_sees = Exercise(
    sees,
    Comparison(
        Cases([(torch.tensor([1, 3, 4]), 5, 2, SLOTS, KEYS)], packed_case),
        {
            "the anchor's own context position is visible: when the block is drafted the target has not read the anchor yet, "
            "so its features do not exist. The context ends before the anchor (key < anchor).": seeing(
                lambda key, anchor: key <= anchor, own
            ),
            "the whole context is visible, the tokens to be predicted among it: the drafter would learn to copy.": seeing(
                lambda key, anchor: anchor >= 0, own
            ),
            "the slots of all blocks see one another; other blocks are drafted at other times, this one must not know them.": seeing(
                before, lambda block, owner, slot, other: other >= 0
            ),
            "your slots also see the blocks before theirs; a block is drafted alone, so it sees its own slots and no others.": seeing(
                before, lambda block, owner, slot, other: owner <= block
            ),
            "the slots are causal: they see all slots before them, other blocks' too, and none after them. A slot sees its own block, in both "
            "directions, and no other.": seeing(
                before,
                lambda block, owner, slot, other: (
                    (owner < block) | (owner == block) & (other <= slot)
                ),
            ),
            "the mask is causal inside the block; its slots see each other in both directions.": seeing(
                before, lambda block, owner, slot, other: (owner == block) & (other <= slot)
            ),
            "no slot sees a block; keys from `length` on are slots, and those of the query's own block are visible.": seeing(
                before, lambda block, owner, slot, other: other < 0
            ),
            "no slot sees any key; a key stands in the text or in a block, never in both, so join the two conditions with |, not with &.": seeing(
                lambda key, anchor: anchor < 0, lambda block, owner, slot, other: other < 0
            ),
            "you compared whole key indices with blocks; a slot's block is (key - length) // gamma.": (
                lambda anchors, length, g, query, key: (
                    (key < anchors[query // g]) | (key // g == query // g)
                ),
                lambda anchors, length, g, query, key: torch.where(
                    key < length, key < anchors[query // g], key // g == query // g
                ),
            ),
            "a block's slots are `gamma` neighbours: the block of slot `query` is query // gamma, not query % gamma.": (
                lambda anchors, length, g, query, key: torch.where(
                    key < length,
                    key < anchors[(query % g).clamp(max=len(anchors) - 1)],
                    (key - length) % g == query % g,
                )
            ),
            "the mask holds torch.float32; it should say True where a token sees a key and False elsewhere.": lambda *indices: (
                sees(*indices).float()
            ),
        },
        "a slot sees keys below its block's anchor, and from `length` on those of its own block.",
        boolean,
    ),
)


def distance(target_probs, draft_probs):
    """Return the L1 distance [...] of distributions [..., V]."""
    return (target_probs - draft_probs).abs().sum(-1)


def acceptance(target_probs, draft_probs):
    """Return the chance [...] that a draft token is accepted, of [..., V]."""
    return 1 - distance(target_probs, draft_probs) / 2


def no_nan(answer):
    """Return the answer, if no number in it is NaN."""
    if torch.as_tensor(answer).isnan().any():
        raise Mistake(
            "your answer is NaN where p and q are both 0 for a token: 0 / 0. Avoid the quotient, or bound it from below."
        )
    return answer


def kept(target_probs, draft_probs):
    """Return the chance [..., V] that a token is kept once it was drawn."""
    return (target_probs / draft_probs.clamp(min=1e-30)).clamp(max=1)


IMPOSSIBLE_CASE = (
    torch.tensor([[[0.6, 0.4, 0.0]], [[0.5, 0.5, 0.0]]]),
    torch.tensor([[[0.3, 0.7, 0.0]], [[1.0, 0.0, 0.0]]]),
)
LABEL_CASE = (
    torch.tensor([[[0.5, 0.3, 0.2]], [[0.1, 0.1, 0.8]]]),
    torch.tensor([[[0.2, 0.3, 0.5]], [[0.1, 0.7, 0.2]]]),
)


def label_case(generator):
    """Return distributions over two to six tokens, some of them impossible, behind none to three
    other dimensions."""
    shape = (*numbers(generator, number(generator, 0, 3), 1, 3), number(generator, 2, 6))
    values = torch.rand(2, *shape, generator=generator)
    possible = torch.rand(2, *shape, generator=generator) > 0.2
    values = values * possible + 1e-3 * torch.eye(shape[-1])[0]  # the first one always is
    return tuple(values / values.sum(-1, keepdim=True))


check_acceptance = Exercise(
    acceptance,
    Comparison(
        Cases([LABEL_CASE, IMPOSSIBLE_CASE], label_case),
        {
            "this is 1 - TV / 2. TV is half the L1 distance already, so the chance is 1 - TV = 1 - L1 / 2.": lambda p, q: (
                1 - distance(p, q) / 4
            ),
            "this is 1 - L1; every unit of probability that moves is counted twice in L1, so it must be halved.": lambda p, q: (
                1 - distance(p, q)
            ),
            "this is the chance of a refusal; the chance of acceptance is one minus it.": lambda p, q: (
                distance(p, q) / 2
            ),
            "this is the L1 distance itself; the chance is 1 - L1 / 2.": distance,
            "this is the sum of max(p, q); it must be the smaller of the two.": lambda p, q: (
                torch.maximum(p, q).sum(-1)
            ),
            "this is the chance that two independent draws agree; the rule keeps far more than that.": lambda p, q: (
                (p * q).sum(-1)
            ),
            "the vocabulary is the last dimension: add over dim=-1, however many stand before it.": (
                lambda p, q: torch.minimum(p, q).sum(0),
                lambda p, q: torch.minimum(p, q).sum(1),
                lambda p, q: torch.minimum(p, q).sum(2),
                lambda p, q: torch.minimum(p, q).sum(),
            ),
            "you forgot to add over the vocabulary: that is how often each token is drafted and kept.": torch.minimum,
            "take a sum over the vocabulary, not a mean.": (
                lambda p, q: 1 - (p - q).abs().mean(-1) / 2,
                lambda p, q: torch.minimum(p, q).mean(-1),
            ),
            "you count all tokens alike; a token is drawn with chance q(x), so what becomes of it counts q(x) times.": (
                lambda p, q: kept(p, q).mean(-1),
                lambda p, q: kept(p, q).sum(-1),
            ),
            "this is the chance of the drafter's likeliest token alone; the draft is drawn, so every token counts q(x) times.": lambda p, q: (
                kept(p, q).gather(-1, q.argmax(-1, keepdim=True))[..., 0]
            ),
            "your answer is NaN where p and q are both 0 for a token: 0 / 0. Avoid the quotient, or bound it from below.": lambda p, q: (
                (q * (p / q).clamp(max=1)).sum(-1)
            ),
        },
        "a token is drawn with chance q(x) and then kept with chance min(1, p(x) / q(x)); add the products over the vocabulary.",
        no_nan,
    ),
)


def weighted_loss(losses, counted):
    """Return a number from both [K, g]; position k (from 1) weighs exp(-(k - 1) / 4)."""
    weights = torch.exp(-torch.arange(losses.shape[1], device=losses.device) / 4) * counted
    return (losses * weights).sum() / weights.sum()


def one_number(answer):
    """Return a tensor of one number, which `backward()` can begin from."""
    if not isinstance(answer, torch.Tensor):
        raise Mistake(NO_TENSOR)
    if answer.numel() > 1:
        raise Mistake(
            f"your answer has shape {list(answer.shape)}; the loss is one number: add over slots and blocks, then divide."
        )
    return answer


LOST_GRADIENT = (
    "the value is right, but nothing can be learned from it: the loss has lost its gradient (.item(), .detach() or torch.no_grad() "
    "on the way)."
)
NO_TENSOR = "return a tensor, not a Python number (.item() or float() on the way?): nothing can be learned from a number."
COUNTED = torch.tensor([[1] * 7, [1, 1, 1, 0, 0, 0, 0], [0] * 7]).bool()


def text_loss(log_q, p, labels):
    """Return the cross-entropy [K, g] with the text."""
    return -log_q.gather(-1, labels[..., None])[..., 0]


def target_loss(log_q, p, labels):
    """Return the L1 distance [K, g] to the target."""
    return distance(p, log_q.exp())


def constant_label(p, q):
    """Return the chance of acceptance, a constant for the optimiser."""
    return acceptance(p, q).detach()


def loss_with(
    text=text_loss,
    match=target_loss,
    label=constant_label,
    mean=weighted_loss,
    read=lambda confidence: confidence,
    judge=binary_cross_entropy_with_logits,
):
    """Return DSpark's loss made of these parts.

    `text` and `match` are the losses against the text and the target, `label` is the confidence's
    label, `mean` averages a loss over the slots, `read` reads the confidence's logits, and `judge`
    compares them with the label."""

    def loss(draft_logits, target_logits, labels, counted, confidence, factors):
        log_q, p = torch.log_softmax(draft_logits, -1), torch.softmax(target_logits, -1)
        parts = {
            "cross_entropy": text(log_q, p, labels),
            "l1": match(log_q, p, labels),
            "confidence": judge(read(confidence), label(p, log_q.exp()), reduction="none"),
        }
        return sum(factors[name] * mean(part, counted) for name, part in parts.items())

    return loss


def dspark_loss(draft_logits, target_logits, labels, counted, confidence, factors):
    """Return the loss of K blocks: cross-entropy, L1 and the confidence's binary cross-entropy,
    weighed and added."""
    return loss_with()(draft_logits, target_logits, labels, counted, confidence, factors)


FACTORS = {"cross_entropy": 0.2, "l1": 0.7, "confidence": 0.5}
_numbers = torch.Generator().manual_seed(3)
LOSS_CASE = (
    torch.randn(3, 7, 5, generator=_numbers),
    torch.randn(3, 7, 5, generator=_numbers),
    torch.randint(5, (3, 7), generator=_numbers),
    COUNTED,
    torch.randn(3, 7, generator=_numbers),
    FACTORS,
)


def loss_case(generator):
    """Return one to four blocks of one to eight slots, of which some count, and other factors."""
    blocks, gamma, vocab = (number(generator, *ends) for ends in ((1, 4), (1, 8), (2, 7)))
    counted = torch.rand(blocks, gamma, generator=generator) < 0.7
    counted[0, 0] = True
    factors = dict(zip(FACTORS, torch.rand(len(FACTORS), generator=generator).tolist()))
    return (
        torch.randn(blocks, gamma, vocab, generator=generator),
        torch.randn(blocks, gamma, vocab, generator=generator),
        torch.randint(vocab, (blocks, gamma), generator=generator),
        counted,
        torch.randn(blocks, gamma, generator=generator),
        factors,
    )


def gradients(function) -> tuple[torch.Tensor, ...]:
    """Return the gradients that `function` gives the drafter's logits and the confidence's."""
    with torch.enable_grad():
        leaves = [LOSS_CASE[0].clone().requires_grad_(), LOSS_CASE[4].clone().requires_grad_()]
        loss = function(leaves[0], *LOSS_CASE[1:4], leaves[1], dict(FACTORS))
        return torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)


def trains_the_right_parts(function) -> None:
    """Raise Mistake unless the gradients are those of the reference."""
    try:
        computed = gradients(function)
    except RuntimeError:
        raise Mistake(LOST_GRADIENT) from None
    for sentence, wrong in WRONG_GRADIENTS.items():
        if same(computed, gradients(wrong)):
            raise Mistake(f"the value is right, but {sentence}")
    if not same(computed, gradients(dspark_loss)):
        raise Mistake(
            "the value is right, but its gradient is not; detach the label and nothing else"
        )


WRONG_GRADIENTS = {
    "the confidence's label moves the drafter: it is a constant for the optimiser, so detach it": loss_with(
        label=acceptance
    ),
    "its L1 term does not reach the drafter: you detached the distance itself; detach the label alone": loss_with(
        match=lambda *case: target_loss(*case).detach()
    ),
}


def part_alone(name, sentence):
    """Return a comparison in which the factors of the other two losses are 0."""
    factors = dict.fromkeys(FACTORS, 0.0) | {name: 1.0}
    return Comparison([(*LOSS_CASE[:-1], factors)], {}, sentence, one_number)


check_dspark_loss = Exercise(
    dspark_loss,
    Comparison(
        Cases([LOSS_CASE], loss_case),
        {
            "the L1 term is halved; the loss is the L1 distance itself, and its factor does the rest.": loss_with(
                match=lambda log_q, p, labels: target_loss(log_q, p, labels) / 2
            ),
            "the L1 term is averaged over the vocabulary; it is a sum.": loss_with(
                match=lambda log_q, p, labels: (p - log_q.exp()).abs().mean(-1)
            ),
            "the second loss is a KL divergence; it is the L1 distance, the sum of |p - q|.": (
                loss_with(match=lambda log_q, p, labels: (p * (p.log() - log_q)).sum(-1)),
                loss_with(match=lambda log_q, p, labels: (log_q.exp() * (log_q - p.log())).sum(-1)),
            ),
            "the confidence's label is 1 - L1; the chance of acceptance is 1 - L1 / 2.": (
                loss_with(label=lambda p, q: 1 - distance(p, q)),
                loss_with(label=lambda p, q: (1 - distance(p, q)).clamp(0, 1)),
            ),
            "the second loss compares logits; L1 is the distance of probabilities, so take a softmax of both first.": lambda *case: (
                loss_with(match=lambda *_: (case[0] - case[1]).abs().sum(-1))(*case)
            ),
            "the confidence's label is hard, a 0 or a 1; it is the chance of acceptance, a number between them.": (
                loss_with(label=lambda p, q: (p.argmax(-1) == q.argmax(-1)).float()),
                loss_with(label=lambda p, q: acceptance(p, q).round()),
                lambda *case: loss_with(
                    label=lambda p, q: (q.argmax(-1) == case[2]).float(),
                )(*case),
            ),
            "the confidence's label is the survival of the whole prefix; it is the chance at a slot itself, so multiply nothing.": loss_with(
                label=lambda p, q: acceptance(p, q).cumprod(-1)
            ),
            "the cross-entropy is with all of the target's distribution; it is with the text: -log q of its one token.": loss_with(
                text=lambda log_q, p, labels: -(p * log_q).sum(-1)
            ),
            "the cross-entropy has the wrong sign: it is -log q.": loss_with(
                text=lambda *case: -text_loss(*case)
            ),
            "the cross-entropy is of the target's distribution; the drafter is to be trained, so take -log q of the token.": loss_with(
                text=lambda log_q, p, labels: text_loss(p.log(), p, labels)
            ),
            "the slots that count weigh alike; weighted_loss gives earlier positions more weight.": loss_with(
                mean=lambda losses, counted: (losses * counted).sum() / counted.sum()
            ),
            "slots that do not count are in the mean; hand `counted` to weighted_loss.": loss_with(
                mean=lambda losses, counted: weighted_loss(losses, torch.ones_like(counted))
            ),
            "the factors are missing: multiply each of the three losses by its own.": lambda *case: (
                dspark_loss(*case[:-1], dict.fromkeys(FACTORS, 1.0))
            ),
            "the confidence's loss is missing; three losses are added.": lambda *case: dspark_loss(
                *case[:-1], case[-1] | {"confidence": 0.0}
            ),
            "the confidence goes through a sigmoid twice: binary_cross_entropy_with_logits takes the logits as they are.": loss_with(
                read=torch.sigmoid
            ),
            "F.cross_entropy takes logits and applies the softmax itself; you gave it probabilities.": loss_with(
                text=lambda log_q, p, labels: text_loss(
                    torch.log_softmax(log_q.exp(), -1), p, labels
                )
            ),
            "the losses are plain means over all slots; average each with weighted_loss.": loss_with(
                mean=lambda losses, counted: losses.mean()
            ),
            "the factors are typed in; take them from the argument `factors`, here they are others than the recipe's.": lambda *case: (
                dspark_loss(*case[:-1], {"cross_entropy": 0.1, "l1": 0.9, "confidence": 1.0})
            ),
            'a loss is one number before weighted_loss gets it; reduction="none" keeps one for each slot.': loss_with(
                judge=lambda logits, label, reduction: binary_cross_entropy_with_logits(
                    logits, label
                )
            ),
            "the confidence is given as logits, not as probabilities; take F.binary_cross_entropy_with_logits.": loss_with(
                judge=binary_cross_entropy
            ),
            "your answer has shape [3, 7]; the loss is one number: add over slots and blocks, then divide.": loss_with(
                mean=lambda losses, counted: losses * counted
            ),
            NO_TENSOR: lambda *case: dspark_loss(*case).item(),
        },
        "add factor * weighted mean of -log q(x), of the L1 distance, and of the confidence's binary cross-entropy with its label.",
        one_number,
        [
            part_alone(
                "cross_entropy",
                "the cross-entropy is wrong: it is -log q of the text's token, at each slot.",
            ),
            part_alone(
                "l1",
                "the L1 distance is wrong: it is the sum of |p - q| over the vocabulary, at each slot.",
            ),
            part_alone(
                "confidence",
                "the confidence's loss is wrong: it is the binary cross-entropy of its logit with the chance of acceptance, at each slot.",
            ),
        ],
    ),
    manner=trains_the_right_parts,
)


def refusing(
    draft=lambda r: r.draft_tokens[r.accepted],
    token=lambda r: r.tokens[r.accepted],
    refused=lambda r: r.accepted < min(len(r.draft_tokens), len(r.tokens)),
):
    """Return the pairs of `draft(round)` and `token(round)` of the rounds that `refused` holds to
    have a refusal."""
    return lambda rounds: [(draft(r), token(r)) for r in rounds if refused(r)]


def refusals(rounds):
    """Return pairs (refused draft, the target's token in its place), in the order of the rounds."""
    return refusing()(rounds)


def incomplete(one):
    """Return whether fewer drafts were accepted than verified."""
    return one.accepted < len(one.draft_tokens)


def newest(one):
    """Return the last token that a round committed."""
    return one.tokens[-1]


def pairs_of_tokens(answer):
    """Return a list of pairs."""
    if not isinstance(answer, (list, tuple)):
        raise Mistake(f"return a list of pairs, not a value of type {type(answer).__name__}.")
    if any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in answer):
        raise Mistake(
            "each entry is a pair: the refused draft and the token that stands there instead."
        )
    return answer


REFUSED = [
    Round(3, 1, 2, [11, 12, 13], [11, 22]),
    Round(3, 0, 1, [18, 19, 20], [21]),
    Round(3, 2, 3, [26, 27, 28], [26, 27, 29]),
]
WHOLE = [REFUSED[0], Round(3, 3, 4, [14, 15, 16], [14, 15, 16, 17])]
ENDED = [REFUSED[1], Round(3, 2, 2, [23, 24, 25], [23, 24])]  # an accepted draft ends the answer


def rounds_case(generator):
    """Return one to four rounds: refused somewhere, accepted whole, or ended by an accepted draft."""

    def one():
        drafts = numbers(generator, number(generator, 0, 4), 10, 99)
        accepted = number(generator, 0, len(drafts))
        ended = accepted > 0 and number(generator, 0, 3) == 0
        tokens = drafts[:accepted] + ([] if ended else numbers(generator, 1, 100, 199))
        return Round(len(drafts), accepted, len(tokens), drafts, tokens)

    return ([one() for _ in range(number(generator, 1, 4))],)


check_refusals = Exercise(
    refusals,
    Comparison(
        Cases([(REFUSED,), (WHOLE,), (ENDED,)], rounds_case),
        {
            "where an accepted draft ends the answer, nothing was refused and `tokens` has no entry at `accepted`: leave such a round out.": (
                refusing(refused=incomplete),
                refusing(token=newest, refused=incomplete),
            ),
            "where all drafts are accepted nothing is refused: leave such a round out.": (
                refusing(refused=lambda one: True),
                refusing(token=newest, refused=lambda one: True),
                refusing(refused=lambda one: one.accepted < len(one.tokens)),
            ),
            "this is the last draft that was accepted; counted from 0, the refused one has the index `accepted`.": (
                refusing(draft=lambda one: one.draft_tokens[one.accepted - 1]),
                refusing(
                    draft=lambda one: one.draft_tokens[one.accepted - 1],
                    token=lambda one: one.tokens[one.accepted - 1],
                ),
            ),
            "this is the last draft of the block; the refused one is the first that was not accepted.": refusing(
                draft=lambda one: one.draft_tokens[-1]
            ),
            "only the first draft that was not accepted was refused; those after it were never judged.": lambda rounds: [
                (draft, one.tokens[one.accepted])
                for one in rounds
                if one.accepted < len(one.tokens)
                for draft in one.draft_tokens[one.accepted :]
            ],
            "the pair is turned: first the refused draft, then the token that stands there instead.": lambda rounds: [
                pair[::-1] for pair in refusals(rounds)
            ],
            "each entry is a pair: the refused draft and the token that stands there instead.": lambda rounds: [
                draft for draft, _ in refusals(rounds)
            ],
        },
        "a round's refused draft is draft_tokens[accepted], and tokens[accepted] stands in its place, if both are there.",
        pairs_of_tokens,
    ),
)


# A head alone, on a backbone that is a constant.

HEAD_TABLE = torch.randn(5, 5, generator=torch.Generator().manual_seed(8))
# Base, wanted, tokens, counted.
HEAD_BATCH = (
    *LOSS_CASE[:2],
    torch.randint(5, (3, 8), generator=torch.Generator().manual_seed(9)),
    COUNTED,
)


def losing_head(
    before=lambda tokens: tokens[:, :-1],
    label=lambda tokens: tokens[:, 1:],
    sign=1.0,
    factors=(0.1, 0.9),
):
    """Return a head's loss in which the token before or the label of a slot, the bias or the
    factors may be wrong."""

    def loss(backbone, biases, batch):
        base, wanted, tokens, counted = backbone(batch)
        return dspark_loss(
            base + sign * biases(before(tokens)),
            wanted,
            label(tokens),
            counted,
            torch.zeros(counted.shape, device=counted.device),
            {"cross_entropy": factors[0], "l1": factors[1], "confidence": 0.0},
        )

    return loss


def teaches_the_head(function) -> None:
    """Raise Mistake unless the loss has a gradient that reaches the head."""
    table = HEAD_TABLE.clone().requires_grad_()
    with torch.enable_grad():
        loss = function(lambda batch: HEAD_BATCH, lambda previous: table[previous], None)
    if not loss.requires_grad:
        raise Mistake(LOST_GRADIENT)


def unpacked(batch):
    """Return what the checker's backbone gives of a batch: its parts."""
    return batch


def head_case(generator):
    """Return a backbone's output and a head's table of other sizes."""
    logits, wanted, tokens, counted, _, _ = loss_case(generator)
    vocab = logits.shape[-1]
    anchors = torch.randint(vocab, (len(tokens), 1), generator=generator)
    batch = (logits, wanted, torch.cat([anchors, tokens], 1), counted)
    table = torch.randn(vocab, vocab, generator=generator)
    return unpacked, lambda previous: table[previous], batch


head_loss = losing_head()
check_head_loss = Exercise(
    head_loss,
    Comparison(
        Cases([(unpacked, lambda previous: HEAD_TABLE[previous], HEAD_BATCH)], head_case),
        {
            "the head is given the token that the slot predicts; it reads the one before, tokens[:, :-1].": losing_head(
                before=lambda tokens: tokens[:, 1:]
            ),
            "each slot is scored on the token before it; it predicts the next one, tokens[:, 1:].": losing_head(
                label=lambda tokens: tokens[:, :-1]
            ),
            "every slot is given the anchor; slot k reads the token before it.": losing_head(
                before=lambda tokens: tokens[:, :1].expand(-1, tokens.shape[1] - 1)
            ),
            "the bias is missing, so the head has nothing to learn from; add it to the base logits.": losing_head(
                sign=0.0
            ),
            "the bias is subtracted; it is added to the base logits.": losing_head(sign=-1.0),
            "the two factors are exchanged: 0.1 of cross-entropy, 0.9 of L1.": losing_head(
                factors=(0.9, 0.1)
            ),
        },
        "the loss is dspark_loss of base logits + biases after tokens[:, :-1], scored on tokens[:, 1:], with factors 0.1, 0.9 and 0.",
        one_number,
    ),
    manner=teaches_the_head,
)
