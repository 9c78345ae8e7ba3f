"""MTP-1: one draft a round from the target's last hidden state, as DeepSeek-V3's module computes it."""

import pytest
import torch
import torch.nn.functional as F

from dspark_lite.decoding import generate
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.training.blocks import TrainingBatch, draw_anchors
from dspark_lite.training.recipe import LossWeights
from dspark_lite.training.chains import mtp_loss

VOCAB = 11
TARGET, DRAFTERS = toy_models(seed=5, vocab_size=VOCAB, gamma=4)
MODULE = DRAFTERS["mtp"]
IDS = torch.tensor([[1, 7, 3, 3, 9, 0, 2]])


def normed(x, norm):
    """Root-mean-square norm from its definition."""
    return x / (x.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight


def first_logits(hidden, token):
    """Logits [V] of the module on one pair alone, from the formulas: attention to itself is its own value."""
    layer = MODULE.layers[0]
    attention = layer.self_attn
    joined = torch.cat(
        [normed(hidden, MODULE.hnorm), normed(MODULE.embed_tokens.weight[token], MODULE.enorm)]
    )
    x = MODULE.eh_proj.weight @ joined
    value = attention.v_proj.weight @ normed(x, layer.input_layernorm)
    x = (
        x
        + attention.o_proj.weight
        @ value.view(attention.key_heads, -1)
        .repeat_interleave(attention.heads // attention.key_heads, 0)
        .flatten()
    )
    y = normed(x, layer.post_attention_layernorm)
    x = x + layer.mlp.down_proj.weight @ (
        F.silu(layer.mlp.gate_proj.weight @ y) * (layer.mlp.up_proj.weight @ y)
    )
    return MODULE.lm_head.weight @ normed(x, MODULE.norm)


def test_the_module_follows_the_formulas():
    features = TARGET.prefill(IDS[:, :1], MODULE.taps)[0].features
    proposal = MODULE.propose(
        MODULE.begin(IDS[:, :1], features),
        torch.tensor([4]),
        temperature=1.0,
        generator=torch.Generator().manual_seed(0),
    )
    torch.testing.assert_close(
        proposal.probs[0, 0], torch.softmax(first_logits(features[0, 0], 4), -1), atol=1e-5, rtol=0
    )


def test_its_feature_is_the_hidden_state_that_the_lm_head_reads():
    step, _ = TARGET.prefill(IDS, MODULE.taps)
    torch.testing.assert_close(TARGET.model.lm_head(step.features[:, -1:]), step.logits)
    assert MODULE.taps == (TARGET.num_layers - 1,)


def test_it_drafts_one_token_a_round_and_is_lossless():
    plain = generate(TARGET, None, IDS, max_new_tokens=24, stop_token_ids=())
    drafted = generate(TARGET, MODULE, IDS, max_new_tokens=24, stop_token_ids=())
    assert drafted.token_ids == plain.token_ids and max(r.proposed for r in drafted.rounds) == 1


@torch.no_grad()
def test_its_loss_is_the_cross_entropy_of_every_supervised_successor():
    supervised = torch.tensor([[False, False, True, True, True, True, False]])
    last_hidden, _ = TARGET.last_hidden(IDS, (0,))
    anchors, valid = draw_anchors(supervised, 4, None)
    numerator, weight, _ = mtp_loss(
        MODULE,
        TrainingBatch(IDS, supervised, None, last_hidden, anchors, valid),
        LossWeights(),
        1.0,
    )
    wanted = 0.0
    for anchor in (2, 3, 4):
        state = MODULE.begin(IDS[:, :anchor], last_hidden[:, :anchor])
        hidden = MODULE.next_hidden(state.cache, IDS[:, anchor], state.waiting)
        wanted -= torch.log_softmax(MODULE.lm_head(MODULE.norm(hidden)), -1)[
            0, 0, IDS[0, anchor + 1]
        ].item()
    assert weight == 3 and numerator.item() == pytest.approx(wanted, rel=1e-5)
