"""MTP: one draft a round or several, from the target's last hidden state, as DeepSeek-V3's module computes it."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from dspark_lite.decoding import generate
from dspark_lite.drafters import MTP
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter
from dspark_lite.serving.engine import Engine
from dspark_lite.training.blocks import TrainingBatch, draw_anchors
from dspark_lite.training.chains import mtp_loss
from dspark_lite.training.drafts import new_draft
from dspark_lite.training.recipe import LossWeights
from helpers import DRAFT, recipe_of

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
    output, _ = TARGET.prefill(IDS, MODULE.taps)
    torch.testing.assert_close(TARGET.model.lm_head(output.features[:, -1:]), output.logits)
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


# Several drafts a round ----------------------------------------------------------------------------------------------


def module_of(drafts):
    """The module with the same weights, for this many drafts a round."""
    module = MTP(replace(MODULE.config, ttt_length=drafts)).eval().requires_grad_(False)
    module.load_state_dict(MODULE.state_dict())
    return module


@torch.no_grad()
def test_a_further_draft_reads_the_modules_own_normed_output_in_the_place_of_a_feature():
    features = TARGET.prefill(IDS, MODULE.taps)[0].features
    three, anchor = module_of(3), torch.tensor([4])
    block = three.propose(three.begin(IDS, features), anchor, temperature=0.0, generator=None)
    state, token = MODULE.begin(IDS, features), anchor
    hidden = state.waiting
    for position in range(3):
        feature = MODULE.norm(hidden) if position else hidden
        hidden = MODULE.next_hidden(state.cache, token, feature)
        token = MODULE.lm_head(MODULE.norm(hidden))[:, 0].argmax(-1)
        assert token == block.tokens[0, position]
    assert block.tokens.shape == (1, 3)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_several_drafts_a_round_change_no_text_and_no_distribution(temperature):
    three = module_of(3)
    if temperature == 0:
        plain = generate(TARGET, None, IDS, max_new_tokens=24, stop_token_ids=())
        drafted = generate(TARGET, three, IDS, max_new_tokens=24, stop_token_ids=())
        assert drafted.token_ids == plain.token_ids
        assert max(r.proposed for r in drafted.rounds) == 3
        served = Engine(TARGET, three, slots=2, capacity=64, stop_token_ids=())
        assert [a.token_ids for a in served.generate([IDS, IDS], 24)] == [plain.token_ids] * 2
        return
    target, drafters = toy_models(seed=3, vocab_size=2, gamma=2)
    module = MTP(replace(drafters["mtp"].config, ttt_length=2)).eval().requires_grad_(False)
    module.load_state_dict(drafters["mtp"].state_dict())
    prompt = (1, 0)
    with_drafts, without = (
        output_distribution(target, drafter, None, 4, prompt=prompt) for drafter in (module, None)
    )
    assert total_variation(with_drafts, without) < 1e-6


@torch.no_grad()
def test_training_unrolls_the_passes_that_drafting_makes():
    three, supervised = module_of(3), torch.tensor([[False, False, True, True, True, True, True]])
    last_hidden, _ = TARGET.last_hidden(IDS, (0,))
    anchors, valid = draw_anchors(supervised, 5, None)
    batch = TrainingBatch(IDS, supervised, None, last_hidden, anchors, valid)
    numerator, weight, _ = mtp_loss(three, batch, LossWeights(), 1.0)
    wanted = weights = 0.0
    for anchor in (2, 3, 4, 5):
        state = MODULE.begin(IDS[:, :anchor], last_hidden[:, :anchor])
        hidden = state.waiting
        for k in range(min(3, 6 - anchor)):
            hidden = MODULE.next_hidden(
                state.cache, IDS[:, anchor + k], MODULE.norm(hidden) if k else hidden
            )
            logits = MODULE.lm_head(MODULE.norm(hidden))[0, 0]
            wanted -= 0.8**k * torch.log_softmax(logits, -1)[IDS[0, anchor + k + 1]].item()
            weights += 0.8**k
    assert weight.item() == pytest.approx(weights, rel=1e-6)
    assert numerator.item() == pytest.approx(wanted, rel=1e-5)


def test_the_number_of_drafts_is_saved_and_one_where_a_config_has_none(tmp_path):
    module_of(3).save_pretrained(tmp_path)
    assert load_drafter(str(tmp_path), TARGET).gamma == 3
    config = json.loads((tmp_path / "config.json").read_text())
    del config["ttt_length"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_drafter(str(tmp_path), TARGET).gamma == 1
    recipe = recipe_of(DRAFT, target="t", config={"drafter": "mtp", "num_hidden_layers": 1})
    recipe = replace(recipe, config=replace(recipe.config, ttt_length=5, target_layer_ids=None))
    assert new_draft(recipe, TARGET).gamma == 5
