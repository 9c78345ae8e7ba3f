"""V4's draft in miniature and DFlash 2's selector: each part proved, and both behind the protocol, lossless by enumeration."""

import pytest
import torch

from dspark_lite.course.data.selector import CANDIDATES, Selector
from dspark_lite.course.data.v4_drafter import (
    Experts,
    HyperConnection,
    V4Config,
    V4Draft,
    WindowCache,
    drafter_sizes,
    sinkhorn,
    window_mask,
)
from dspark_lite.course.measure import production
from dspark_lite.course.measure.journal import Journal
from dspark_lite.decoding import generate
from dspark_lite.drafters.layers import ContextCache
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import EMBEDDED
from dspark_lite.training.blocks import dense_mask, packed_hidden
from tools.measure import production as script

SHAPE = dict(
    vocab_size=11,
    hidden_size=16,
    intermediate_size=48,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    num_hidden_layers=2,
    rms_norm_eps=1e-6,
    rope_theta=1e4,
    num_target_layers=3,
    target_layer_ids=(0, 1),
    block_size=3,
    mask_token_id=10,
    markov_rank=4,
    enable_confidence_head=True,
)


def config(**fields):
    """A small config of V4's draft."""
    return V4Config(**{**SHAPE, "experts": 4, "streams": 3, "window": 6, **fields})


def drafter(kind=V4Draft, **fields):
    """A draft of random weights, large enough to matter."""
    generator, made = torch.Generator().manual_seed(0), kind(config(**fields)).requires_grad_(False)
    for parameter in made.parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return made.eval()


# Experts


def test_routing_is_a_loop_over_tokens():
    torch.manual_seed(0)
    experts, x = Experts(config()), torch.randn(2, 5, 16)
    weights, chosen = experts.route(x.flatten(0, 1))
    for token, out in enumerate(experts(x).flatten(0, 1)):
        row = x.flatten(0, 1)[token : token + 1]
        alone = experts.shared(row) + sum(
            weight * experts.experts[number](row)
            for weight, number in zip(weights[token], chosen[token].tolist())
        )
        torch.testing.assert_close(out, alone[0])
    assert torch.allclose(weights.sum(-1), torch.ones(10)) and (chosen[:, 0] != chosen[:, 1]).all()


def test_experts_that_work_for_a_token_are_as_large_as_a_dense_network():
    for experts in (4, 8):
        everything, active = drafter_sizes(drafter(experts=experts, streams=1))
        dense, _ = drafter_sizes(drafter(experts=0, streams=1))
        assert active - dense == 2 * experts * 16 and everything > dense, (
            "the router is all there is more"
        )
    assert drafter_sizes(drafter(experts=0))[0] == drafter_sizes(drafter(experts=0))[1]


# Hyper-connections


def test_rows_and_columns_sum_to_one_and_do_so_in_products():
    matrices = sinkhorn(torch.randn(6, 4, 4, generator=torch.Generator().manual_seed(0)))
    product = torch.linalg.multi_dot(list(matrices))
    for matrix in (*matrices, product):
        assert (matrix > 0).all()
        for dim in (0, 1):
            torch.testing.assert_close(matrix.sum(dim), torch.ones(4), atol=1e-3, rtol=0)


def test_the_mean_of_the_streams_is_what_layers_add():
    torch.manual_seed(0)
    connection = HyperConnection(3, 16, 1e-6)
    torch.nn.init.normal_(connection.proj.weight, std=0.05)
    x, out = torch.randn(2, 48), torch.randn(2, 16)
    _, post, mix = connection.coefficients(x)
    mean = connection.write(x, out).unflatten(-1, (3, 16)).mean(-2)
    # Near the identity, Sinkhorn's rounds close in slowly.
    torch.testing.assert_close(
        mean,
        x.unflatten(-1, (3, 16)).mean(-2) + post.mean(-1, keepdim=True) * out,
        atol=0.03,
        rtol=0,
    )
    torch.testing.assert_close(mix.sum(-1), torch.ones(2, 3), atol=1e-5, rtol=0)


def test_hyper_connections_begin_as_the_usual_residual():
    connection = HyperConnection(4, 16, 1e-6)
    torch.nn.init.zeros_(connection.proj.weight)
    stream, out = torch.randn(2, 16), torch.randn(2, 16)
    x = torch.cat([stream] * 4, -1)
    torch.testing.assert_close(connection.read(x), stream, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        connection.write(x, out), torch.cat([stream + out] * 4, -1), atol=1e-3, rtol=1e-3
    )


# The window


def test_a_windows_cache_is_full_attention_under_a_mask():
    generator = torch.Generator().manual_seed(0)
    windowed, full = WindowCache(1, 6), ContextCache(1)
    for tokens in (4, 3, 1, 9, 2, 60, 70):
        keys, values = torch.randn(2, 1, 2, tokens, 8, generator=generator)
        for cache in (windowed, full):
            cache.append(0, keys, values)
            cache.advance(tokens)
        block = torch.randn(2, 1, 2, 3, 8, generator=generator)
        assert torch.equal(
            windowed.positions(block[0].transpose(1, 2)), full.positions(block[0].transpose(1, 2))
        )
        near, everything = (cache.append(0, *block) for cache in (windowed, full))
        for ours, theirs in zip(near, everything):
            assert torch.equal(ours, theirs[:, :, -min(6, full.length) - 3 :])
    assert (
        windowed.length == 6
        and windowed.begun == 143
        and windowed.keys[0].shape[2] <= 64 < full.keys[0].shape[2]
    )


def test_the_mask_of_the_training_hides_what_the_cache_forgets():
    anchors = torch.tensor([[2, 9]])
    near, wide = window_mask(anchors, 12, 3, 4), window_mask(anchors, 12, 3, 100)
    assert torch.equal(wide, dense_mask(anchors, 12, 3))
    assert torch.nonzero(near[0, 0, 0]).flatten().tolist() == [0, 1, 12, 13, 14]
    assert torch.nonzero(near[0, 0, 3]).flatten().tolist() == [5, 6, 7, 8, 15, 16, 17]


@torch.inference_mode()
@pytest.mark.parametrize(
    "fields",
    [{}, {"experts": 0}, {"streams": 1}, {"window": None}, production.PLAIN_PARTS],
    ids=str,
)
def test_packed_for_training_is_drafted_one_at_a_time(fields):
    made, generator = drafter(**fields), torch.Generator().manual_seed(1)
    features = torch.randn(1, 12, 32, generator=generator)
    ids = torch.tensor([[3, 5]])
    anchors = torch.tensor([[2, 9]])
    packed = packed_hidden(made, features, ids, anchors, None)
    for place, anchor in enumerate(anchors[0].tolist()):
        state = made.begin(ids[:, :1], features[:, :anchor])
        torch.testing.assert_close(
            packed[:, place], made.block_hidden(state, ids[:, place]), atol=1e-4, rtol=1e-4
        )


# Behind the protocol


TARGET, _ = toy_models(seed=1, vocab_size=11, gamma=3)


@pytest.mark.parametrize(
    "made", [drafter(), drafter(Selector, markov_head_type="gated")], ids=["v4", "selector"]
)
def test_they_draft_behind_the_protocol_and_the_text_stays_the_targets(made):
    for seed in range(3):
        prompt = torch.randint(11, (1, 9), generator=torch.Generator().manual_seed(seed))
        plain = generate(TARGET, None, prompt, max_new_tokens=20, stop_token_ids=()).token_ids
        assert (
            generate(TARGET, made, prompt, max_new_tokens=20, stop_token_ids=()).token_ids == plain
        )


@pytest.mark.slow(reason="every outcome of passes that are long")
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (V4Draft, {}),
        (Selector, {"markov_head_type": "gated"}),
    ],
    ids=["v4", "selector"],
)
def test_they_are_lossless_by_enumeration(kind, fields, monkeypatch):
    monkeypatch.setattr("dspark_lite.course.data.selector.CANDIDATES", 2)
    target, _ = toy_models(seed=2, vocab_size=3, gamma=2)
    made = drafter(kind, vocab_size=3, mask_token_id=2, block_size=2, **fields)
    found = output_distribution(target, made, None, 3)
    assert total_variation(found, output_distribution(target, None, None, 3)) < 1e-6


@torch.inference_mode()
def test_a_selector_draws_from_its_candidates_and_is_the_gated_head_where_all_are(monkeypatch):
    made = drafter(Selector, markov_head_type="gated")
    gated = drafter(production.DSpark, markov_head_type="gated")
    gated.load_state_dict(made.state_dict())
    hidden = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0))
    anchor = torch.tensor([1, 4])
    assert CANDIDATES == 16 and torch.allclose(
        made.draw_block(hidden, anchor, 1.0, torch.Generator().manual_seed(0))[2],
        gated.draw_block(hidden, anchor, 1.0, torch.Generator().manual_seed(0))[2],
        atol=1e-6,
    )
    monkeypatch.setattr("dspark_lite.course.data.selector.CANDIDATES", 4)
    tokens, logits, probs = made.draw_block(hidden, anchor, 1.0, torch.Generator().manual_seed(0))
    best = made.lm_head(hidden).topk(4, -1).indices
    assert (
        ((probs > 0).sum(-1) == 4).all()
        and (best == tokens[..., None]).any(-1).all()
        and torch.isinf(logits).sum(-1).eq(7).all()
    )


@pytest.mark.slow(reason="three drafters answer prompts of every domain")
def test_a_retold_target_is_trained_once_and_its_draft_only_for_the_last_row(
    short_lab, short_answers, tmp_path, monkeypatch
):
    """The part of `make production`, with checkpoints of the lab in place of trained ones."""
    trained = []

    def train(name, *, out, build, changes=None):
        trained.append((name, changes))
        return (
            EMBEDDED / {"production-retold": "tiny-target", "production-refitted": "tiny-mtp"}[name]
        )

    monkeypatch.setattr(production, "train", train)
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    rows = script.retold_rows(short_lab, prompts=1, journal=Journal(tmp_path / "j.jsonl", {}))
    assert trained == [
        ("production-retold", None),
        ("production-refitted", {"target": str(tmp_path / "retold" / "target")}),
    ]
    assert [row["name"] for row in rows] == ["as they are", "target retold", "draft refitted"]
    assert rows[0]["tallies"] == rows[1]["tallies"] and rows[2]["tallies"] != rows[1]["tallies"]
