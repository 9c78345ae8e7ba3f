"""Checkers of lesson 04: how many of two independent drafts are kept, and the pass over a block."""

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ..checkers.checking import Comparison, Exercise, Mistake, Unfinished
from ..checkers.random_cases import Cases, distributions, number
from ..own_decoder.my_dspark import Draft, block_pass


def kept_after(joint, q2):
    """Return how often a second draft is kept after each first token, [m], for the target's pairs
    [m, n] and a slot's q2 [n]."""
    return torch.minimum(joint / joint.sum(1, keepdim=True), q2).sum(1)


def first_kept(joint, q1):
    """Return how often the first draft is kept and is this token, [m]."""
    return torch.minimum(joint.sum(1), q1)


def kept(joint, q1, q2):
    """Return how many of two independent drafts are kept on average, for joint [m, n], q1 [m] and
    q2 [n]."""
    return first_kept(joint, q1) @ (1 + kept_after(joint, q2))


PAIRS = (
    torch.tensor([[0.3, 0.1, 0.0], [0.05, 0.25, 0.3]]),
    torch.tensor([0.6, 0.4]),
    torch.tensor([0.5, 0.2, 0.3]),
)


def pairs_case(generator):
    """Return pairs of two to five first and second words, and two slots that know nothing of each
    other."""
    m, n = number(generator, 2, 5), number(generator, 2, 5)
    joint = distributions(generator, m * n).view(m, n)
    return joint, distributions(generator, m), distributions(generator, n)


check_kept = Exercise(
    kept,
    Comparison(
        Cases([PAIRS], pairs_case),
        {
            "this is how often both drafts are kept; a first draft that is kept alone counts, too.": lambda joint, q1, q2: (
                first_kept(joint, q1) @ kept_after(joint, q2)
            ),
            "this is how often the first draft is kept; the second counts as well, where it is reached.": lambda joint, q1, q2: (
                first_kept(joint, q1).sum()
            ),
            "this is how often the second is kept where the first is; add the two drafts up over all rounds.": lambda joint, q1, q2: (
                first_kept(joint, q1) @ kept_after(joint, q2) / first_kept(joint, q1).sum()
            ),
            "you count the second draft in every round; after a refusal it is not judged at all.": (
                lambda joint, q1, q2: (
                    first_kept(joint, q1).sum() + joint.sum(1) @ kept_after(joint, q2)
                ),
                lambda joint, q1, q2: first_kept(joint, q1).sum() + q1 @ kept_after(joint, q2),
                lambda joint, q1, q2: (
                    first_kept(joint, q1).sum() + torch.minimum(joint.sum(0), q2).sum()
                ),
            ),
            "you judged the second draft as if the first were unknown: by how often the target writes it at all, joint.sum(0). Once the "
            "first word is kept, what follows is its row of `joint`.": (
                lambda joint, q1, q2: (
                    first_kept(joint, q1).sum() * (1 + torch.minimum(joint.sum(0), q2).sum())
                ),
                lambda joint, q1, q2: (
                    first_kept(joint, q1).sum() * torch.minimum(joint.sum(0), q2).sum()
                ),
            ),
            "rows of `joint` are first words, columns second words: the first words' chances are joint.sum(1), and a row is divided by its sum.": (
                lambda joint, q1, q2: kept(joint.T, q1, q2),
                lambda joint, q1, q2: (
                    torch.minimum(joint / joint.sum(0)[:, None], q2).sum(1)
                    @ torch.minimum(joint.sum(0), q1)
                ),
                lambda joint, q1, q2: (
                    first_kept(joint, q1) @ (1 + torch.minimum(joint / joint.sum(0), q2).sum(1))
                ),
            ),
            "you weighted the first words by how often they are drafted; only those that are kept count, min(p(x1), q1(x1)).": lambda joint, q1, q2: (
                q1 @ (1 + kept_after(joint, q2))
            ),
            (
                "you weighted the first words by how often the target writes them; those that "
                "are drafted and kept count, min(p(x1), q1(x1))."
            ): lambda joint, q1, q2: joint.sum(1) @ (1 + kept_after(joint, q2)),
            (
                "you compared q2 with the pairs; once the first word is known, the target's "
                "distribution is its row divided by the row's sum."
            ): lambda joint, q1, q2: first_kept(joint, q1) @ (1 + torch.minimum(joint, q2).sum(1)),
            "you compared pairs with pairs; the accept rule judges the first draft by itself, then the second by the row of the first.": (
                lambda joint, q1, q2: torch.minimum(joint, q1[:, None] * q2).sum(),
                lambda joint, q1, q2: (
                    first_kept(joint, q1).sum() + torch.minimum(joint, q1[:, None] * q2).sum()
                ),
            ),
            "you multiplied p by q; the accept rule keeps a draft with min(1, p / q), so the two share their minimum.": (
                lambda joint, q1, q2: (
                    first_kept(joint, q1) @ (1 + (joint / joint.sum(1, keepdim=True) * q2).sum(1))
                ),
                lambda joint, q1, q2: (
                    joint.sum(1) * q1 @ (1 + (joint / joint.sum(1, keepdim=True) * q2).sum(1))
                ),
            ),
            "the target's own token is no draft; leave it out.": lambda joint, q1, q2: (
                1 + kept(joint, q1, q2)
            ),
        },
        "the number is not the sum over x1 of min(p(x1), q1(x1)) times one, for the first draft, plus the chance that the second is kept after x1.",
    ),
)


class Table:
    """An embedding that a stub's dots are not an index of."""

    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, ids):
        if ids is ... or ids is None:
            raise Unfinished
        return self.rows[ids]


class SmallDraft(Draft):
    """A draft of two random layers that has read `length` tokens of context."""

    def __init__(self, gamma: int, length: int, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        self.config = {
            "head_dim": 4,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_theta": 1e4},
            "num_hidden_layers": 2,
            "mask_token_id": 9,
        }
        shapes = {"embed_tokens": (10, 8), "fc": (8, 16), "hidden_norm": (8,), "norm": (8,)}
        for layer in ("layers.0", "layers.1"):
            shapes |= {
                f"{layer}.{name}": shape
                for name, shape in {
                    "input_layernorm": (8,),
                    "post_attention_layernorm": (8,),
                    "self_attn.q_norm": (4,),
                    "self_attn.k_norm": (4,),
                    "self_attn.q_proj": (16, 8),
                    "self_attn.k_proj": (8, 8),
                    "self_attn.v_proj": (8, 8),
                    "self_attn.o_proj": (8, 16),
                    "mlp.gate_proj": (12, 8),
                    "mlp.up_proj": (12, 8),
                    "mlp.down_proj": (8, 12),
                }.items()
            }
        self.w = {
            f"{name}.weight": torch.randn(shape, generator=generator)
            for name, shape in shapes.items()
        }
        self.w["embed_tokens.weight"] = Table(self.w["embed_tokens.weight"])
        self.gamma, self.taps, self.context = gamma, (0, 1), []
        self.extend(torch.randn(length, 16, generator=generator))


def block_ids(draft, anchor):
    """Return the block's tokens [g]."""
    return torch.tensor([anchor, *[9] * (draft.gamma - 1)])


def open_mask(draft):
    """Return the block's mask [g, n + g], nothing hidden."""
    return torch.ones(draft.gamma, draft.length + draft.gamma)


def passing(ids=block_ids, start=lambda draft: draft.length, mask=open_mask, kind=torch.bool):
    """Run `block_pass` with other tokens, another start, another mask or a mask of another
    `kind`."""

    def pass_over(draft, anchor):
        first = start(draft)
        seen = mask(draft).to(kind)
        x = draft.w["embed_tokens.weight"][ids(draft, anchor)]
        for n, context in enumerate(draft.context):
            y = draft.norm(x, f"layers.{n}.input_layernorm")
            queries = draft.norm(
                draft.heads(y, f"layers.{n}.self_attn.q_proj"), f"layers.{n}.self_attn.q_norm"
            )
            keys, values = (
                torch.cat(pair, 1)
                for pair in zip(context, draft.keys_values(y, f"layers.{n}", first))
            )
            mixed = F.scaled_dot_product_attention(
                draft.rotate(queries, first)[None], keys[None], values[None], seen, enable_gqa=True
            )[0]
            projection = draft.w[f"layers.{n}.self_attn.o_proj.weight"]
            x = x + F.linear(mixed.transpose(0, 1).flatten(1), projection)
            x = x + draft.mlp(x, f"layers.{n}")
        return draft.norm(x, "norm")

    return pass_over


def of_slots(draft, mask):
    """Return the block's mask whose part between slots is `mask(ones [g, g])`; the context is seen."""
    seen = open_mask(draft)
    seen[:, draft.length :] = mask(seen[:, draft.length :])
    return seen


def pass_case(generator):
    """Return a draft of one to five slots behind a context of any length, and an anchor."""
    gamma, length = number(generator, 1, 5), number(generator, 1, 8)
    return SmallDraft(gamma, length, number(generator, 2, 10**6)), number(generator, 0, 9)


FLOAT_MASK = (
    "hole 3: the mask holds numbers, and attention adds these to its scores: a 0 would hide nothing. Make it Boolean, "
    "dtype=torch.bool: True where a slot sees a key."
)


class WatchedMasks(TorchFunctionMode):
    """Looks at the mask that attention is given."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if function is F.scaled_dot_product_attention:
            mask = arguments[3] if len(arguments) > 3 else options.get("attn_mask")
            if isinstance(mask, torch.Tensor) and mask.dtype != torch.bool:
                raise Mistake(FLOAT_MASK)
        return function(*arguments, **options)


class PassComparison(Comparison):
    """A step of functions like `block_pass`: the mask is looked at, too."""

    def result(self, function, case: tuple):
        """Return the hidden states, or the mistake in the mask."""

        def watched(*given):
            with WatchedMasks():
                return function(*given)

        return super().result(watched, case)


check_block_pass = Exercise(
    block_pass,
    PassComparison(
        Cases([(SmallDraft(4, 6), 3), (SmallDraft(3, 2, seed=1), 5)], pass_case, count=100),
        {
            "hole 1: the anchor is missing; slot 0 holds a mask, so the block does not know which token it continues.": passing(
                ids=lambda draft, anchor: torch.full((draft.gamma,), 9)
            ),
            "hole 1: you put gamma masks after the anchor; its own slot predicts the first draft, so gamma slots draft gamma tokens.": passing(
                ids=lambda draft, anchor: torch.tensor([anchor, *[9] * draft.gamma]),
                mask=lambda draft: torch.ones(draft.gamma + 1, draft.length + draft.gamma + 1),
            ),
            "hole 1: the anchor stands at the end; it comes first, and the masks wait for what follows it.": passing(
                ids=lambda draft, anchor: block_ids(draft, anchor).flip(0)
            ),
            'hole 1: after the anchor stand zeros; an empty slot holds the mask token, draft.config["mask_token_id"].': passing(
                ids=lambda draft, anchor: torch.tensor([anchor, *[0] * (draft.gamma - 1)])
            ),
            "hole 1: the anchor stands in every slot; after it come masks, which wait for what follows it.": passing(
                ids=lambda draft, anchor: torch.full((draft.gamma,), anchor)
            ),
            "hole 2: one place too far left; there the last context token stands, and the anchor comes after it, at n.": passing(
                start=lambda draft: draft.length - 1
            ),
            "hole 2: the block starts at 0 or 1 again; the context's keys were turned by absolute positions, so the block counts on.": (
                passing(start=lambda draft: 0),
                passing(start=lambda draft: 1),
            ),
            "hole 2: one place too far right; n context tokens fill 0 to n - 1, so the anchor stands at n.": passing(
                start=lambda draft: draft.length + 1
            ),
            "hole 3: this is the target's causal mask; the slots of a block see each other in both directions.": passing(
                mask=lambda draft: of_slots(draft, torch.tril)
            ),
            "hole 3: this is tril() without an offset; every slot sees the whole context.": passing(
                mask=lambda draft: open_mask(draft).tril()
            ),
            "hole 3: the mask hides every key; it says True where a slot sees a key.": passing(
                mask=lambda draft: ~open_mask(draft).bool()
            ),
            "hole 3: the mask hides the block; a slot sees all slots of its block, not the context alone.": passing(
                mask=lambda draft: of_slots(draft, torch.zeros_like)
            ),
            "hole 3: of its block each slot sees only itself; it sees all slots.": passing(
                mask=lambda draft: of_slots(draft, lambda seen: torch.eye(len(seen)))
            ),
            "hole 3: a slot sees itself and those after it; it sees those before it, too.": passing(
                mask=lambda draft: of_slots(draft, torch.triu)
            ),
            FLOAT_MASK: passing(kind=torch.float32),
            "hole 3: no slot sees itself; it sees all slots, its own as well.": passing(
                mask=lambda draft: of_slots(draft, lambda seen: 1 - torch.eye(len(seen)))
            ),
            "hole 3: the slots do not see the context; without it the block knows nothing but the anchor.": passing(
                mask=lambda draft: (
                    torch.arange(draft.length + draft.gamma) >= draft.length
                ).expand(draft.gamma, -1)
            ),
        },
        "the hidden states are not those of [anchor, mask, ..., mask] right after the context, with every slot seeing all of both: "
        "[4, 8] for gamma = 4 here.",
    ),
)
