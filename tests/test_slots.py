"""Slots: a step of requests of different lengths is each of them read alone, for the target and for every drafter served."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from dspark_lite.decoding import attention
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.drafters.layers import ContextCache
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.serving.slots import (
    Layout,
    SlotStore,
    drafter_slots,
    ragged_attention,
    ragged_step,
    sees,
)

VOCAB, GAMMA, SLOTS, CAPACITY = 13, 4, 5, 40
TARGET, DRAFTERS = toy_models(seed=2, vocab_size=VOCAB, gamma=GAMMA)
SERVED = ["dflash", "dspark", "dspark_gated", "dspark_rnn", "eagle3", "mtp"]
CPU = torch.device("cpu")


def random_ids(length, seed):
    """Token ids [length]."""
    return torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(seed))


def new_store(flex=False, layers=TARGET.num_layers):
    """A store for the toy target."""
    store = SlotStore(layers, SLOTS, CAPACITY, CPU)
    store.flex = flex
    return store


# The layout and its mask


@st.composite
def layouts(draw):
    """Some of the slots in any order, each with a context and new tokens."""
    slots = draw(st.permutations(range(SLOTS)))[: draw(st.integers(1, SLOTS))]
    if draw(st.booleans()):
        slots = list(range(len(slots)))  # then the store is read in place
    lengths = st.lists(st.integers(0, 12), min_size=len(slots), max_size=len(slots))
    return slots, draw(lengths), [1 + count for count in draw(lengths)]


def check_attention(slots, lengths, counts, seed, width, flex=False):
    """The ragged attention against every token before the whole store, behind the whole block-diagonal mask."""
    store, generator = new_store(flex, layers=1), torch.Generator().manual_seed(seed)
    store.write(
        0,
        torch.arange(SLOTS * CAPACITY),
        *torch.randn(2, 2, SLOTS * CAPACITY, width, generator=generator),
    )
    layout, (keys, values) = Layout(store, slots, lengths, counts), store.whole(0)
    query = torch.randn(1, 6, len(layout.slot_index), width, generator=generator)
    key = torch.arange(SLOTS * CAPACITY)
    hidden = ~sees(
        layout.slot_index[:, None] // CAPACITY,
        layout.position[:, None],
        key // CAPACITY,
        key % CAPACITY,
    )
    scores = query @ keys.repeat_interleave(3, 1).transpose(-1, -2) * 0.3
    wanted = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values.repeat_interleave(3, 1)
    read = (keys, values) if flex else store.read(0, layout.rows, layout.max_length)
    ours, _ = ragged_attention(None, query, *read, None, scaling=0.3, layout=layout)
    torch.testing.assert_close(ours, wanted.transpose(1, 2), atol=1e-5, rtol=1e-5)


@settings(max_examples=60)
@given(layouts(), st.integers(0, 1000))
def test_the_diagonal_blocks_are_the_whole_mask(drawn, seed):
    check_attention(*drawn, seed, width=8)


def test_flex_attention_sees_the_same():
    check_attention([3, 0], [7, 0], [2, 5], seed=0, width=16, flex=True)


def test_flex_attention_is_told_its_kernel(monkeypatch):
    """torch's own choice for fewer than 128 queries has no tile for 65 of them and two to a key head (seen on an H200)."""
    asked = {}
    monkeypatch.setattr(
        attention,
        "flex_attention",
        lambda device: lambda queries, *_, **options: asked.update(options) or queries,
    )
    attention.attend(
        torch.randn(1, 4, 65, 8), *torch.randn(2, 1, 2, 128, 8), mask="block-sparse", scale=1.0
    )
    assert asked["kernel_options"]["BACKEND"] == "TRITON"


@pytest.mark.parametrize("flex", [False, True])
def test_a_layout_returns_the_keys_and_values_that_it_has_appended_to(flex):
    """As every context does: of each slot all that is committed up to the new ones, and none of another slot."""
    store, starts, counts, slots = new_store(flex, layers=1), [2, 0], [1, 4], [3, 1]
    generator = torch.Generator().manual_seed(0)
    # keys and values [2, m, S, d]
    held = [
        torch.randn(2, 2, start + count, 4, generator=generator)
        for start, count in zip(starts, counts)
    ]
    for slot, start, both in zip(slots, starts, held):
        store.write(0, slot * CAPACITY + torch.arange(start + 1), *both[:, :, : start + 1])
    layout = Layout(store, slots, starts, counts)
    new = torch.cat([both[:, :, start:] for start, both in zip(starts, held)], 2)
    found = layout.append(0, *new[:, None])
    assert [tuple(part.shape) for part in found] == [
        (1, 2, SLOTS * CAPACITY, 4) if flex else (2, 2, layout.max_length, 4)
    ] * 2
    for row, (slot, both) in enumerate(zip(slots, held)):
        for part, wanted in zip(found, both):
            of_slot = part[0, :, slot * CAPACITY :] if flex else part[row]
            assert torch.equal(of_slot[:, : wanted.shape[1]], wanted)
    assert all(map(torch.equal, layout.update(*new[:, None], 0), found)), (
        "as transformers asks for it"
    )


@pytest.mark.parametrize("flex", [False, True])
def test_a_layout_of_one_request_is_the_drafters_own_context(flex):
    """It takes in committed tokens in the place of a ContextCache."""
    store, cache = new_store(flex, layers=1), ContextCache(1)
    for start, count in ((0, 3), (3, 2)):
        keys, values = torch.randn(2, 1, 2, count, 4)
        layout = Layout(store, [0], [start], [count])
        assert (
            layout.positions(keys.transpose(1, 2)).tolist()
            == cache.positions(keys.transpose(1, 2)).tolist()
        )
        for ours, wanted in zip(layout.append(0, keys, values), cache.append(0, keys, values)):
            assert torch.equal(ours[:, :, : start + count], wanted)
        layout.advance(count)
        cache.advance(count)


# The target


def check_step(store, texts, caches, slots, new, seed, taps=(0, 1)):
    """Enters `new` tokens of each request behind its text, and compares with the target reading each by itself."""
    pieces = [random_ids(count, seed + index) for index, count in enumerate(new)]
    layout = Layout(store, slots, [len(texts[slot]) for slot in slots], new)
    step = ragged_step(TARGET, torch.cat(pieces), layout, taps)
    for slot, piece, logits, features in zip(
        slots,
        pieces,
        *(flat[0].split(layout.counts.tolist()) for flat in (step.logits, step.features)),
    ):
        alone = TARGET.verify(piece[None], caches[slot], taps)
        torch.testing.assert_close(logits, alone.logits[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(features, alone.features[0], atol=1e-4, rtol=1e-4)
    return pieces


@pytest.mark.parametrize("flex", [False, True])
def test_ragged_steps_are_requests_read_alone(flex):
    """Prefill in two parts, then rounds of which a part is rejected each time: rolling back is overwriting."""
    store, rng = new_store(flex), np.random.default_rng(0)
    texts, caches = {}, {}
    for slots in ([1, 3], [0, 4, 2]):
        texts |= {slot: random_ids(0, 0) for slot in slots}
        caches |= {slot: TARGET.prefill(random_ids(1, 0)[None])[1] for slot in slots}
        for slot in slots:
            caches[slot].crop(-1)
        for slot, piece in zip(
            slots,
            check_step(
                store, texts, caches, slots, [3 + 2 * slot for slot in slots], seed=slots[0]
            ),
        ):
            texts[slot] = piece
    for round_ in range(2 if flex else 6):
        slots = rng.permutation(SLOTS)[: rng.integers(1, SLOTS + 1)].tolist()
        new = rng.integers(1, GAMMA + 2, len(slots)).tolist()
        for slot, piece in zip(
            slots, check_step(store, texts, caches, slots, new, seed=100 + 10 * round_)
        ):
            kept = int(rng.integers(1, len(piece) + 1))
            texts[slot] = torch.cat([texts[slot], piece[:kept]])
            TARGET.roll_back(caches[slot], len(piece) - kept)


def test_a_step_leaves_the_model_as_others_use_it(monkeypatch):
    ids, usual = random_ids(6, 3)[None], TARGET.model.config._attn_implementation
    before = TARGET.prefill(ids)[0].logits
    layout = Layout(new_store(), [0], [0], [6])
    ragged_step(TARGET, ids[0], layout)
    assert TARGET.model.config._attn_implementation == usual and torch.equal(
        TARGET.prefill(ids)[0].logits, before
    )
    # in the midst of a pass
    monkeypatch.setattr(TARGET.model.model.layers[1], "forward", lambda *unused, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ragged_step(TARGET, ids[0], layout)
    monkeypatch.undo()
    assert TARGET.model.config._attn_implementation == usual and torch.equal(
        TARGET.prefill(ids)[0].logits, before
    )


def test_a_cleared_slot_has_forgotten_what_was_not_finite():
    store = new_store()
    ragged_step(TARGET, random_ids(9, 1), Layout(store, [1], [0], [9]))
    for held in (*store.keys, *store.values):
        held[:, 1] = torch.nan
    # the shorter one reads, behind a mask, what the slot held
    short = Layout(store, [0, 1], [0, 0], [7, 2])
    assert ragged_step(TARGET, random_ids(9, 2), short).logits.isnan().any()
    store.clear(1)
    assert ragged_step(TARGET, random_ids(9, 2), short).logits.isfinite().all()


# The drafters


def assert_rows(proposal, row, alone: Proposal):
    """One row of a proposal equals a proposal."""
    assert proposal.tokens[row].tolist() == alone.tokens[0].tolist()
    torch.testing.assert_close(proposal.probs[row], alone.probs[0], atol=1e-5, rtol=0)
    if alone.confidence_logits is not None:
        torch.testing.assert_close(
            proposal.confidence_logits[row], alone.confidence_logits[0], atol=1e-4, rtol=0
        )


@pytest.mark.parametrize("name", SERVED)
def test_slotted_drafts_are_those_of_each_request_alone(name):
    """Prompts of different lengths, one of a single token, then rounds in which each request commits another number."""
    drafter, rng = DRAFTERS[name], np.random.default_rng(1)
    contexts = drafter_slots(drafter, SLOTS, CAPACITY, CPU)
    slots, counts = [3, 0, 4], np.array([5, 1, 9])
    texts = {slot: random_ids(int(count), slot) for slot, count in zip(slots, counts)}
    features = {
        slot: TARGET.prefill(text[None], drafter.taps)[0].features for slot, text in texts.items()
    }
    state = contexts.append_context(slots, np.zeros(3, dtype=int), counts)
    drafter.extend(
        state,
        torch.cat([texts[slot] for slot in slots])[None],
        torch.cat([features[slot] for slot in slots], 1),
    )
    for round_ in range(5):
        slots = [[3, 0, 4], [0, 4], [4], [0, 3, 4], [3, 4]][round_]
        lengths, anchor = [len(texts[slot]) for slot in slots], random_ids(len(slots), 50 + round_)
        # what it says does not depend on random numbers
        greedy = {
            "temperature": 0,
            "generator": None,
        }
        proposal = drafter.propose(contexts.draft_context(slots, lengths), anchor, **greedy)
        for row, slot in enumerate(slots):
            alone = drafter.begin(
                texts[slot][None], TARGET.prefill(texts[slot][None], drafter.taps)[0].features
            )
            assert_rows(proposal, row, drafter.propose(alone, anchor[row : row + 1], **greedy))
        counts = rng.integers(1, GAMMA + 2, len(slots))
        pieces = [random_ids(int(count), 70 + round_ + slot) for slot, count in zip(slots, counts)]
        for slot, piece in zip(slots, pieces):
            texts[slot] = torch.cat([texts[slot], piece])
        read = [
            TARGET.prefill(texts[slot][None], drafter.taps)[0].features[:, -len(piece) :]
            for slot, piece in zip(slots, pieces)
        ]
        drafter.extend(
            contexts.append_context(slots, lengths, counts),
            torch.cat(pieces)[None],
            torch.cat(read, 1),
        )


def test_the_first_slots_are_read_in_place():
    store = SlotStore(1, 3, 8, CPU)
    store.write(0, torch.arange(24), torch.randn(2, 24, 4), torch.randn(2, 24, 4))
    keys, _ = store.read(0, store.rows([0, 1]), 5)
    assert keys.untyped_storage().data_ptr() == store.keys[0].untyped_storage().data_ptr()
    other, _ = store.read(0, store.rows([1, 2]), 5)
    assert torch.equal(other[0], keys[1])
