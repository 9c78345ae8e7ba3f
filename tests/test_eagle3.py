"""Eagle3, and what it shares with MTP: the cached chain is the cache-free one, and what is trained is what drafts."""

import json

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

from dspark_lite.common.errors import CheckpointError, DSparkLiteError
from dspark_lite.common.files import ROOT
from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.decoding import generate
from dspark_lite.decoding.sampling import probabilities
from dspark_lite.drafters import MTP, DSpark, Eagle3
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, load_target, save_draft
from dspark_lite.models.draft_config import parse_draft_config
from dspark_lite.training.blocks import TrainingBatch, block_targets, draw_anchors
from dspark_lite.training.chains import unrolled_hidden
from dspark_lite.training.drafts import OBJECTIVES, class_and_loss, new_draft
from dspark_lite.training.optimisers import trainable
from dspark_lite.training.recipe import LossWeights, without_nones
from dspark_lite.training.train import train_draft
from helpers import assert_refused, recipe_of, set_config

VOCAB, GAMMA = 11, 4
TARGET, DRAFTERS = toy_models(seed=4, vocab_size=VOCAB, gamma=GAMMA)
NAMES = ["eagle3", "mtp"]
LENGTHS = [(12, 5), (9, 2), (12, 11), (7, 1)]  # of some rows: all tokens, and those of the prompt


def random_ids(length, batch=1, seed=0):
    """Token ids [batch, length]."""
    return torch.randint(VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


def cache_free(drafter, text, anchor, drafted):
    """Draft logits [g, V] from the definition: every pair of a feature and its next token, read anew for each token."""
    layer, attention = drafter.layers[0], drafter.layers[0].self_attn
    hidden = drafter.project(TARGET.prefill(text, drafter.taps)[0].features)
    following, logits = torch.cat([text[:, 1:], anchor[:, None]], 1), []
    for token in drafted:
        residual, inputs = drafter.layer_input(following, hidden)
        rope = drafter.rope(torch.arange(following.shape[1])[None])
        keys, values = (
            part.repeat_interleave(attention.heads // attention.key_heads, 1)
            for part in attention.keys_values(inputs, rope)
        )
        mixed = F.scaled_dot_product_attention(
            attention.queries(inputs, rope), keys, values, is_causal=True
        )
        output = layer.after_attention(
            residual, attention.o_proj(mixed.transpose(1, 2).flatten(2))
        )[:, -1:]
        logits.append(drafter.lm_head(drafter.norm(output))[0, 0])
        hidden = torch.cat([hidden, output], 1)
        following = torch.cat([following, token.view(1, 1)], 1)
    return torch.stack(logits)


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("name", NAMES)
def test_rounds_with_rejections_draft_what_a_cache_free_pass_drafts(name, length):
    drafter, anchor, text = DRAFTERS[name], torch.tensor([3]), random_ids(length)
    output, cache = TARGET.prefill(text, drafter.taps)
    state = drafter.begin(text, output.features)
    for number, accepted in enumerate([0, GAMMA, 1, 2, 0, 0, 3]):
        proposal = drafter.propose(
            state, anchor, temperature=0.7, generator=torch.Generator().manual_seed(number)
        )
        wanted = cache_free(drafter, text, anchor, proposal.tokens[0])
        torch.testing.assert_close(proposal.probs[0], probabilities(wanted, 0.7), atol=1e-5, rtol=0)
        assert state.cache.length == text.shape[1] - 1  # the drafts left nothing behind
        accepted = min(accepted, drafter.gamma)
        entering = torch.cat([anchor[:, None], proposal.tokens], 1)
        output = TARGET.verify(entering, cache, drafter.taps)
        TARGET.roll_back(cache, drafter.gamma - accepted)
        drafter.extend(state, entering[:, : accepted + 1], output.features[:, : accepted + 1])
        text, anchor = torch.cat([text, entering[:, : accepted + 1]], 1), torch.tensor([number])


@pytest.mark.parametrize("context", [10, 50])
@pytest.mark.parametrize("name", NAMES)
def test_a_round_reads_the_new_tokens_and_its_own_drafts_only(name, context):
    drafter, ids = DRAFTERS[name], random_ids(context + 3)
    features = TARGET.prefill(ids, drafter.taps)[0].features
    state = drafter.begin(ids[:, :context], features[:, :context])
    seen = []
    hook = drafter.layers[0].self_attn.k_proj.register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].shape[1])
    )
    drafter.extend(state, ids[:, context:], features[:, context:])
    drafter.propose(state, torch.tensor([1]), temperature=0, generator=None)
    hook.remove()
    assert seen == [3] + [1] * drafter.gamma


# Checkpoints


@pytest.fixture
def saved(tmp_path):
    """The loaded toy target, and a function that saves a drafter with changed config fields and gives its path."""
    TARGET.model.save_pretrained(tmp_path / "target")

    def save(name, **fields):
        save_draft(tmp_path / name, DRAFTERS[name], TARGET)
        set_config(tmp_path / name, **fields)
        return str(tmp_path / name)

    return load_target(str(tmp_path / "target")), save


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_draft_loads_as_the_same_model(saved, name):
    target, save = saved
    loaded, original = load_drafter(save(name), target), DRAFTERS[name]
    assert type(loaded) is type(original) and loaded.config == original.config
    assert (loaded.name, loaded.gamma, loaded.taps) == (name, original.gamma, original.taps)
    for key, value in original.state_dict().items():
        assert loaded.state_dict()[key].equal(value.bfloat16().float()), key
    prompt = random_ids(6)
    plain, drafted = (
        generate(target, d, prompt, max_new_tokens=20, stop_token_ids=()).token_ids
        for d in (None, loaded)
    )
    assert plain == drafted


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        (
            "eagle3",
            {"num_hidden_layers": 2},
            "has 2 layers; a Qwen3Eagle3Model is drafted here with one",
        ),
        ("mtp", {"num_hidden_layers": 2}, "has 2 layers; a Qwen3MTPModel is drafted here with one"),
        (
            "eagle3",
            {"target_layer_ids": [0, 2]},
            "taps layer 2, but this target can be tapped at -1",
        ),
        ("eagle3", {"target_layer_ids": [0]}, "tensor fc.weight of eagle3 has shape .*asks for"),
        (
            "mtp",
            {"target_layer_ids": [1]},
            "taps layers 1, but it is made for the hidden state after the final norm",
        ),
        (
            "mtp",
            {"target_layer_ids": [1, 2]},
            "taps layers 1, 2, but .* this target has at layer 2 alone",
        ),
        ("eagle3", {"ttt_length": None}, "lacks a field .*ttt_length"),
        ("eagle3", {"num_target_layers": 36}, "made for a target of 36 layers, this target has 3"),
        (
            "mtp",
            {"architectures": ["Qwen3Eagle3Model"], "ttt_length": 1},
            "taps layer 2, but this target can be tapped at -1",
        ),
    ],
)
def test_a_draft_that_does_not_fit_is_refused(saved, name, fields, sentence):
    target, save = saved
    assert_refused(sentence, load_drafter, save(name, **fields), target)


def test_a_block_draft_may_not_tap_the_last_layer():
    TARGET.check_taps((2,), after_norm=True)
    with pytest.raises(CheckpointError, match="taps layer 2"):
        TARGET.check_taps((2,))


def test_tensor_names_are_those_of_the_released_layout():
    with safe_open(
        ROOT / "assets" / "reference" / "golden" / "eagle3" / "draft" / "model.safetensors", "pt"
    ) as tensors:
        assert set(DRAFTERS["eagle3"].state_dict()) == set(tensors.keys())


# Training


def training_batch(drafter):
    """A padded batch as the loop makes it: rows of different lengths, all anchors of each."""
    ids = torch.zeros(len(LENGTHS), 12, dtype=torch.long)
    supervised = torch.zeros(len(LENGTHS), 12, dtype=torch.bool)
    for row, (length, prompt) in enumerate(LENGTHS):
        ids[row, :length] = random_ids(length, seed=row)
        supervised[row, prompt:length] = True
    taps = drafter.taps if drafter.name == "eagle3" else (0, 1)
    last_hidden, features = TARGET.last_hidden(ids, taps)
    anchors, valid = draw_anchors(
        supervised, int(supervised.sum(1).max()), torch.Generator().manual_seed(0)
    )
    return TrainingBatch(ids, supervised, features, last_hidden, anchors, valid)


def loss_of(drafter, batch):
    """Numerator and weight of the drafter's objective."""
    numerator, weight, record = OBJECTIVES[drafter.name][1](drafter, batch, LossWeights(), 1.0)
    assert record["cross_entropy"].equal(numerator) and not weight.requires_grad
    return numerator, weight


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_training_forward_computes_what_drafting_computes(name):
    drafter = DRAFTERS[name]
    batch = training_batch(drafter)
    ids, supervised, _, _, anchors, valid = batch
    features = batch.features if name == "eagle3" else batch.last_hidden
    tokens, counted, _ = block_targets(ids, supervised, anchors, valid, drafter.gamma)
    passes = list(unrolled_hidden(drafter, features, ids, tokens[..., :-1], anchors.clamp(min=1)))
    assert len(passes) == drafter.gamma
    compared = 0
    for row, chain in valid.nonzero().tolist():
        anchor = anchors[row, chain]
        state = drafter.begin(ids[row : row + 1, :anchor], features[row : row + 1, :anchor])
        hidden = state.waiting
        for k in range(int(counted[row, chain].sum())):
            hidden = drafter.next_hidden(state.cache, tokens[row, chain, k : k + 1], hidden)
            torch.testing.assert_close(
                passes[k][row, chain], drafter.norm(hidden)[0, 0], atol=1e-5, rtol=0
            )
            compared += 1
    assert compared == counted.sum()


@torch.no_grad()
def test_eagle3s_loss_is_the_weighted_cross_entropy_with_the_target_of_every_pass():
    drafter = DRAFTERS["eagle3"]
    batch = training_batch(drafter)
    ids, _, features, last_hidden, _, _ = batch
    numerator = weight = 0.0
    for row, (length, prompt) in enumerate(LENGTHS):
        for anchor in range(prompt, length - 1):
            state = drafter.begin(ids[row : row + 1, :anchor], features[row : row + 1, :anchor])
            hidden = state.waiting
            for k in range(min(GAMMA, length - 1 - anchor)):
                hidden = drafter.next_hidden(state.cache, ids[row : row + 1, anchor + k], hidden)
                wanted = torch.softmax(drafter.lm_head(last_hidden[row, anchor + k]), -1)
                logits = drafter.lm_head(drafter.norm(hidden))[0, 0]
                numerator -= 0.8**k * (wanted * torch.log_softmax(logits, -1)).sum().item()
                weight += 0.8**k
    found = loss_of(drafter, batch)
    assert found[0].item() == pytest.approx(numerator, rel=1e-5) and found[
        1
    ].item() == pytest.approx(weight)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_rows_taken_apart_sum_to_the_whole_batch(name):
    drafter = DRAFTERS[name]
    batch = training_batch(drafter)
    parts = [loss_of(drafter, tuple(tensor[rank::2] for tensor in batch)) for rank in range(2)]
    for whole, *shares in zip(loss_of(drafter, batch), *parts):
        torch.testing.assert_close(sum(shares), whole)


class Cache:
    """A target cache of one batch that is given out again and again."""

    def __init__(self, drafter):
        self.held = training_batch(drafter)[:4]
        self.rows = [(ids.tolist(), 1) for ids in self.held[0]]

    def batch(self, indices, device):
        return tuple(tensor[indices].to(device) for tensor in self.held)


def small_recipe(name, **changes):
    """A small recipe of a drafter, with changes."""
    shape = {
        "num_hidden_layers": 1,
        "target_layer_ids": [0, 1] if name == "eagle3" else [2],
        "ttt_length": 3,
    }
    fields = {
        "name": name,
        "seed": 3,
        "epochs": 20,
        "batch": 4,
        "learning_rate": 0.02,
        "precision": "float32",
        "config": {"drafter": name, **shape},
    }
    return recipe_of(fields, **changes)


@pytest.mark.parametrize(
    ("name", "precision"), [("eagle3", "float32"), ("mtp", "float32"), ("mtp", "bfloat16")]
)
def test_training_lowers_the_loss_and_leaves_the_targets_weights(tmp_path, name, precision):
    recipe = small_recipe(name, precision=precision)
    drafter = train_draft(recipe, TARGET, Cache(DRAFTERS[name]), tmp_path)
    log = [
        json.loads(line)["cross_entropy"]
        for line in (tmp_path / "log.jsonl").read_text().splitlines()
    ]
    assert len(log) == 20 and log[-1] < log[0] - 0.2
    assert drafter.embed_tokens.weight.equal(TARGET.model.get_input_embeddings().weight)
    assert drafter.lm_head.weight.equal(TARGET.model.get_output_embeddings().weight)
    fresh = new_draft(recipe, TARGET).state_dict()
    for key, value in trainable(drafter).items():
        assert not value.equal(fresh[key]), f"{key} was not trained"


def test_an_unknown_drafter_of_a_recipe_is_refused():
    with pytest.raises(
        DSparkLiteError, match="drafter is 'medusa'; it must be one of 'block', 'eagle3', 'mtp'"
    ):
        small_recipe("medusa")


@pytest.mark.parametrize(
    ("name", "kind", "taps"),
    [
        ("tiny-eagle3", Eagle3, (1, 6, 11, 17)),
        ("tiny-mtp", MTP, (19,)),
        ("tiny-dspark", DSpark, (1, 6, 11, 17)),
    ],
)
def test_the_recipes_share_data_and_cache_of_dspark(name, kind, taps):
    recipe, base = load_recipe(name), load_recipe("tiny-dspark")
    assert class_and_loss(recipe)[0] is kind
    shape = dict.fromkeys(
        (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "rms_norm_eps",
            "rope_theta",
            "num_target_layers",
        ),
        20,
    )
    assert parse_draft_config(kind, shape | without_nones(recipe.config)).target_layer_ids == taps
    for field in ("data", "target", "seed", "batch", "epochs", "precision"):
        assert getattr(recipe, field) == getattr(base, field)
    assert recipe.cached_taps == base.config.target_layer_ids
