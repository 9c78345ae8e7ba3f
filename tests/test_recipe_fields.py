"""What each field of a recipe does, on a toy that trains in a fraction of a second: a field that is read and then forgotten fails here."""

import copy
import dataclasses
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import Qwen3ForCausalLM

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.course.data import answers, language_model, recipes
from dspark_lite.course.data.language_model import LanguageModelRecipe, train_language_model
from dspark_lite.course.world.tokenizer import train_tokenizer
from dspark_lite.decoding.target import Target
from dspark_lite.drafters import MTP, DSpark, Eagle3
from dspark_lite.drafters.dspark import GatedHead, MarkovHead, RNNHead
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import save_draft
from dspark_lite.training import blocks, chains, drafts, train as training
from dspark_lite.training.cache import OnlineFeatures, TargetCache
from dspark_lite.training.drafts import draft_config, new_draft
from dspark_lite.training.recipe import Data, DraftRecipe, DraftShape, LossWeights, read_fields
from dspark_lite.training.train import TrainingRows, held_out_losses, train_draft
from helpers import LANGUAGE_MODEL, recipe_of

VOCAB, ANSWERS, CPU = 12, 14, torch.device("cpu")
SHAPE = {
    "num_hidden_layers": 1,
    "block_size": 3,
    "mask_token_id": VOCAB - 1,
    "target_layer_ids": [0, 1],
    "num_anchors": 4,
    "markov_rank": 4,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}
FIELDS = {
    "name": "fields",
    "kind": "draft",
    "seed": 1,
    "epochs": 3,
    "batch": 4,
    "learning_rate": 0.01,
    "precision": "float32",
    "target": "toy",
    "data": {"prompts": ANSWERS, "seed": 1, "max_new_tokens": 10, "held_out": 3},
    "config": SHAPE,
}
TARGET = toy_models(vocab_size=VOCAB, seed=3)[0]


recipe = partial(recipe_of, FIELDS)
RECIPE = recipe()


def features(target=TARGET, taps=(0, 1)):
    """Random texts and the target's hidden states for them."""
    generator = torch.Generator().manual_seed(0)
    rows = [
        (torch.randint(VOCAB, (8 + index % 4,), generator=generator).tolist(), 2)
        for index in range(ANSWERS)
    ]
    return OnlineFeatures(target, rows, taps)


def train(folder, target=TARGET, **changes):
    """The drafter after the training that RECIPE with changes describes."""
    made = recipe(**changes)
    return train_draft(made, target, features(target, made.config.target_layer_ids), folder)


def log(folder):
    return training.read_log(folder / "log.jsonl")


# The shape

SHAPES = {  # field of the config: a value, and what the drafter then has
    "num_hidden_layers": (2, lambda drafter: len(drafter.layers)),
    "target_layer_ids": (
        [-1, 0, 1],
        lambda drafter: (
            [*drafter.taps] if drafter.fc.in_features == 16 * len(drafter.taps) else None
        ),
    ),
    "block_size": (5, lambda drafter: drafter.block_ids(torch.tensor([1])).shape[-1]),
    "mask_token_id": (7, lambda drafter: drafter.block_ids(torch.tensor([1]))[0, -1].item()),
    "markov_rank": (6, lambda drafter: drafter.markov_head.markov_w1.weight.shape[1]),
    "markov_head_type": (
        "gated",
        lambda drafter: {MarkovHead: "vanilla", GatedHead: "gated", RNNHead: "rnn"}[
            type(drafter.markov_head)
        ],
    ),
    "enable_confidence_head": (False, lambda drafter: drafter.confidence_head is not None),
    "confidence_head_with_markov": (
        False,
        lambda drafter: drafter.confidence_head.proj.in_features == 16 + 4,
    ),
    "draft_vocab_size": (5, lambda drafter: drafter.markov_head.markov_w2.out_features),
    "intermediate_size": (40, lambda drafter: drafter.layers[0].mlp.up_proj.out_features),
    "num_attention_heads": (
        4,
        lambda drafter: drafter.layers[0].self_attn.q_proj.out_features // 8,
    ),
    "num_key_value_heads": (
        2,
        lambda drafter: drafter.layers[0].self_attn.k_proj.out_features // 8,
    ),
    "head_dim": (4, lambda drafter: drafter.layers[0].self_attn.q_norm.weight.numel()),
}
# asserted below
ELSEWHERE = {
    "drafter",
    "num_anchors",
    "sample_from_anchor",
    "ttt_length",
    "step_loss_decay",
}


def test_every_field_of_a_shape_is_one_of_these():
    assert SHAPES.keys() | ELSEWHERE == {field.name for field in dataclasses.fields(DraftShape)}


@pytest.mark.parametrize("field", SHAPES)
def test_a_field_of_the_shape_shapes_the_drafter(field):
    value, found = SHAPES[field]
    assert (
        found(new_draft(recipe(config={field: value}), TARGET))
        == value
        != found(new_draft(RECIPE, TARGET))
    )


def test_what_a_shape_leaves_out_is_the_targets():
    drafter, theirs = new_draft(RECIPE, TARGET), TARGET.model.model.layers[0]
    for name in ("mlp.up_proj", "self_attn.q_proj", "self_attn.k_proj"):
        assert (
            drafter.layers[0].get_submodule(name).weight.shape
            == theirs.get_submodule(name).weight.shape
        )
    bare = {
        key: value
        for key, value in SHAPE.items()
        if key in ("num_hidden_layers", "target_layer_ids", "block_size", "mask_token_id")
    }
    plain = new_draft(read_fields(DraftRecipe, {**FIELDS, "config": bare}, "recipe"), TARGET)
    assert (
        plain.markov_head is None
        and plain.confidence_head is None
        and plain.config.sample_from_anchor
    )


def test_the_class_and_its_loss_are_those_the_shape_names(tmp_path):
    chain = {"num_hidden_layers": 1, "target_layer_ids": [0, 1]}
    for name, kind, loss in (
        ("block", DSpark, blocks.block_loss),
        ("eagle3", Eagle3, chains.eagle3_loss),
        ("mtp", MTP, chains.mtp_loss),
    ):
        config = (
            {**SHAPE, "drafter": name}
            if name == "block"
            else {**chain, "drafter": name, "ttt_length": 2}
            if name == "eagle3"
            else {"num_hidden_layers": 1, "target_layer_ids": [2], "drafter": name}
        )
        made = read_fields(DraftRecipe, {**FIELDS, "config": config, "steps": 1}, "recipe")
        assert drafts.class_and_loss(made) == (kind, loss)
        assert (
            type(
                train_draft(
                    made, TARGET, features(taps=config["target_layer_ids"]), tmp_path / name
                )
            )
            is kind
        )
        assert log(tmp_path / name)[0].keys() - {"step"} == (
            {"cross_entropy", "l1", "confidence"} if name == "block" else {"cross_entropy"}
        )
    with pytest.raises(DSparkLiteError, match="sample_from_anchor"):
        draft_config(recipe(config={"sample_from_anchor": False}), TARGET)


def test_passes_of_an_eagle3_and_what_each_weighs():
    rows = features()
    made = {
        length: replace(RECIPE, config=DraftShape(1, (0, 1), "eagle3", **length_and_decay))
        for length, length_and_decay in (
            (1, {"ttt_length": 1}),
            (3, {"ttt_length": 3}),
            ("half", {"ttt_length": 3, "step_loss_decay": 0.5}),
            ("none", {"ttt_length": 3, "step_loss_decay": 0.0}),
        )
    }
    assert [new_draft(made[length], TARGET).gamma for length in (1, 3)] == [1, 3]
    found = {}
    for name, one in made.items():
        batch = TrainingRows(one, rows).at(0)
        found[name] = [
            value.item()
            for value in chains.eagle3_loss(new_draft(one, TARGET), batch, LossWeights(), 1.0)[:2]
        ]
    assert found["none"] == pytest.approx(found[1]) and found[3][1] > found["half"][1] > found[1][1]


# Rows and batches


def test_epochs_batch_steps_and_held_out_make_the_updates():
    rows = features()
    sizes = {
        name: [len(batch) for batch in TrainingRows(recipe(**changes), rows).batches]
        for name, changes in {
            "as it is": {},
            "epochs": {"epochs": 2},
            "batch": {"batch": 6},
            "steps": {"steps": 4},
            "held out": {"data": {"held_out": 10}},
        }.items()
    }
    assert {name: (len(found), sum(found)) for name, found in sizes.items()} == {
        "as it is": (9, 33),
        "epochs": (6, 22),
        "batch": (6, 33),
        "steps": (4, 15),
        "held out": (3, 12),
    }
    assert max(sizes["batch"]) == 6 and max(sizes["as it is"]) == 4


def test_a_row_has_at_most_so_many_anchors():
    rows = features()
    counts = [
        TrainingRows(recipe(config={"num_anchors": count}), rows).at(0).valid.sum(1)
        for count in (2, 4, None)
    ]
    assert counts[0].eq(2).all() and counts[1].eq(4).all()
    # Supervised from place 2 on and followed by another token: all of an answer but its last.
    assert counts[2].tolist() == [
        len(rows.rows[index][0]) - 3 for index in TrainingRows(RECIPE, rows).batches[0]
    ]


def test_a_seed_is_that_of_the_weights_the_batches_and_the_anchors():
    rows, again, other = (
        TrainingRows(recipe(seed=seed, config={"num_anchors": 2}), features()) for seed in (1, 1, 2)
    )
    assert rows.batches == again.batches != other.batches
    for one in (rows, again, other):
        one.batches = [[0, 1, 2, 3]]
    assert rows.at(0).anchors.equal(again.at(0).anchors) and not rows.at(0).anchors.equal(
        other.at(0).anchors
    )
    first, same, second = (new_draft(recipe(seed=seed), TARGET) for seed in (1, 1, 2))
    for name in ("fc", "layers.0.mlp.up_proj", "markov_head.markov_w1"):
        weights = [drafter.get_submodule(name).weight for drafter in (first, same, second)]
        assert weights[0].equal(weights[1]) and not weights[0].equal(weights[2])


# Weights as they begin


def test_the_deviations_are_the_targets_or_those_of_a_width():
    """At 16 inputs a width asks for 1/4; the toy target's is 0.02. What adds to the residual stream
    has less by sqrt(2 layers). `fc` has 32 inputs, of two taps."""
    for kind, plain, residual, markov in (
        (None, 0.02, 0.02, 0.02),
        ("width", 32**-0.5, 16**-0.5 / 2**0.5, drafts.MARKOV_DEVIATION),
    ):
        drafter = new_draft(recipe(initialisation=kind), TARGET)
        found = [
            drafter.get_submodule(name).weight.std().item()
            for name in ("fc", "layers.0.self_attn.o_proj", "markov_head.markov_w1")
        ]
        assert found == pytest.approx([plain, residual, markov], rel=0.3)
        assert not drafter.markov_head.markov_w2.weight.any()
        assert (
            drafter.lm_head.weight.equal(TARGET.model.lm_head.weight)
            and not drafter.lm_head.weight.requires_grad
        )


@pytest.fixture
def initial(tmp_path):
    """A function that writes another draft of RECIPE's shape to one and the same folder, and returns it with its name."""

    def write(seed):
        drafter = new_draft(recipe(seed=seed, initialisation="width"), TARGET)
        torch.nn.init.normal_(
            drafter.markov_head.markov_w2.weight, generator=torch.Generator().manual_seed(seed)
        )
        save_draft(tmp_path / "initial", drafter, TARGET)
        return drafter, str(tmp_path / "initial")

    return write


def test_a_training_begins_from_its_initial_draft_and_anew_where_that_has_been_retrained(
    initial, tmp_path, capsys
):
    for round_number, seed in enumerate((5, 6)):
        begun, name = initial(seed)
        for _ in range(2):  # the second finds the first's save and returns it
            found = train(tmp_path / "run", initial=name, steps=1, learning_rate=1e-6)
            assert ("starts from the beginning" in capsys.readouterr().out) == (
                round_number == 1 and _ == 0
            )
            for ours, theirs in zip(found.parameters(), begun.parameters(), strict=True):
                # it is written in 16 bit
                torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=1e-2)


def test_with_heads_alone_nothing_else_moves_and_it_is_held_in_the_targets_format(
    initial, tmp_path
):
    begun, name = initial(5)
    target = Target(copy.deepcopy(TARGET.model).bfloat16())
    made = new_draft(recipe(initial=name, trained="heads"), target)
    assert {
        parameter.dtype
        for key, parameter in made.named_parameters()
        if not key.startswith(drafts.TRAINED_HEADS)
    } == {torch.bfloat16}
    assert {
        parameter.dtype for key, parameter in made.named_parameters() if parameter.requires_grad
    } == {torch.float32}
    before = {
        key: value.clone()
        for key, value in new_draft(
            recipe(initial=name, trained="heads"), TARGET
        ).named_parameters()
    }
    after = dict(train(tmp_path / "run", initial=name, trained="heads", steps=2).named_parameters())
    for key, value in before.items():
        assert after[key].equal(value) != key.startswith(drafts.TRAINED_HEADS), key


# Rates, precision, losses


def test_adamws_rate_moves_each_number_by_itself_and_muons_a_matrix_along_an_orthogonal_one(
    tmp_path,
):
    """The first step of Adam is the rate wherever there is a gradient; Muon's has singular values of
    at most about 1, times its rate."""
    begun = new_draft(RECIPE, TARGET)
    for rates in (
        {"learning_rate": 0.01},
        {"learning_rate": 0.003},
        {"learning_rate": 0.003, "matrix_rate": 0.05},
    ):
        found = train(tmp_path / str(rates), steps=1, **rates)
        norm = (found.norm.weight - begun.norm.weight).abs()
        assert norm.max().item() == pytest.approx(rates["learning_rate"], rel=1e-3)
        matrix = found.layers[0].mlp.up_proj.weight - begun.layers[0].mlp.up_proj.weight  # [32, 16]
        if "matrix_rate" in rates:
            largest = torch.linalg.svdvals(matrix).max().item() / 2**0.5  # 32 rows, 16 columns
            assert 0.05 * 0.6 < largest < 0.05 * 1.3
        else:
            assert matrix.abs().max().item() == pytest.approx(rates["learning_rate"], rel=1e-3)


@pytest.mark.parametrize("asked", ["float32", "bfloat16", "float16"])
def test_a_precision_is_that_of_the_products_of_training_and_judging_and_float16_scales_its_loss(
    tmp_path, monkeypatch, asked
):
    # this CPU might be slower in 16 bit
    monkeypatch.setattr(training, "precision_on", lambda device, precision: precision)
    plans, dtypes, work, losses = [], [], training.update, blocks.block_losses
    monkeypatch.setattr(
        training,
        "update",
        lambda accelerator, loss_module, optimisers, scaler, *rest: (
            plans.append(scaler.get_scale())
            or work(accelerator, loss_module, optimisers, scaler, *rest)
        ),
    )
    monkeypatch.setattr(
        blocks,
        "block_losses",
        lambda draft, target, *rest: (
            dtypes.append((draft.dtype, target.dtype)) or losses(draft, target, *rest)
        ),
    )
    drafter = train(tmp_path, precision=asked, steps=2)
    assert {parameter.dtype for parameter in drafter.parameters()} == {torch.float32}
    held_out_losses(drafter, recipe(precision=asked), features())
    assert set(dtypes) == {(getattr(torch, asked), getattr(torch, asked))} and len(dtypes) == 3
    assert (plans[0] > 1) == (asked == "float16")


def test_the_factors_of_a_recipes_losses_are_those_of_its_training_and_of_its_judgement(tmp_path):
    """The least and the largest: with one factor alone the other terms do not move what is trained."""
    drafter = new_draft(recipe(initialisation="width"), TARGET)
    weights = [
        {"cross_entropy": 1.0, "l1": 0.0, "confidence": 0.0},
        {"cross_entropy": 0.0, "l1": 1.0, "confidence": 0.0},
        {"cross_entropy": 0.0, "l1": 0.0, "confidence": 1.0},
        {"acceptance": 2.0, "cross_entropy": 0.0, "l1": 0.0, "confidence": 0.0},
    ]
    for one in weights:
        found = held_out_losses(drafter, recipe(loss=one), features())
        name = next(name for name, factor in one.items() if factor)
        assert (
            found["loss"] == pytest.approx(one[name] * found[name])
            and found.keys() == {"loss", "cross_entropy", "l1", "confidence"} | one.keys()
        )
    usual = held_out_losses(drafter, RECIPE, features())
    assert usual["loss"] == pytest.approx(
        0.1 * usual["cross_entropy"] + 0.9 * usual["l1"] + usual["confidence"]
    ), "the paper's are the defaults"
    first = held_out_losses(drafter, recipe(loss={"cross_entropy_first": 0.3}), features())
    assert first == pytest.approx(usual), "judged by the losses in their final form"
    begun = new_draft(RECIPE, TARGET)
    alone = train(tmp_path, loss=weights[0], steps=1)
    assert alone.confidence_head.proj.weight.equal(
        begun.confidence_head.proj.weight
    ) and not alone.fc.weight.equal(begun.fc.weight)
    other = train(tmp_path / "other", loss={"cross_entropy_first": 0.3}, steps=1)
    assert other.fc.weight.equal(alone.fc.weight), "the first update has cross-entropy alone"


def test_positions_decay_by_the_draft_length_or_as_a_recipe_says():
    drafter, rows = new_draft(recipe(initialisation="width"), TARGET), features()
    given, usual, flat = (
        held_out_losses(drafter, recipe(loss={"position_decay": decay}), rows)["cross_entropy"]
        for decay in (3.0, None, 1e9)
    )
    assert given == usual != flat
    batch = TrainingRows(RECIPE, rows).at(0)
    *_, counted, _ = blocks.training_forward(
        drafter, batch.features, batch.ids, batch.supervised, batch.anchors, batch.valid, None
    )
    _, weight, _ = blocks.block_loss(drafter, batch, LossWeights(), 1.0)
    assert weight.item() == pytest.approx(
        sum(math.exp(-k / 3) * counted[..., k].sum().item() for k in range(3))
    )


# Answers and hidden states


def test_answers_are_drawn_as_the_data_says(monkeypatch):
    """By default all candidates at temperature 1."""
    asked = []
    monkeypatch.setattr(
        answers,
        "write_answers",
        lambda target, prompts, *rest, **options: asked.append((rest, options)) or [[5]],
    )
    for changes in ({}, {"top_p": 0.9, "temperature": 0.5, "top_k": 7}):
        data = recipe(data=changes).data
        list(answers._answers_to_missing(None, data, [[1]], {}, None, None))
    assert asked == [
        ((1.0, 10, 1), {"top_k": 0, "top_p": 1.0}),
        ((0.5, 10, 1), {"top_k": 7, "top_p": 0.9}),
    ]


def test_hidden_states_of_a_16_bit_target_computed_anew_train_a_draft_in_float32(tmp_path):
    for dtype in (torch.bfloat16, torch.float16):
        target = Target(copy.deepcopy(TARGET.model).to(dtype))
        drafter = train(tmp_path / str(dtype), target=target, features="online", steps=1)
        assert drafter.fc.weight.dtype == torch.float32 and len(log(tmp_path / str(dtype))) == 1


@pytest.fixture
def states(monkeypatch, tmp_path):
    """The hidden states that a changed RECIPE has for ready answers."""
    monkeypatch.setattr(recipes, "answered_rows", lambda *given: features().rows)
    return lambda **changes: recipes.recipe_states(recipe(**changes), TARGET, tmp_path)


def test_hidden_states_are_cached_or_computed_anew_of_the_layers_that_the_draft_reads(
    states, tmp_path
):
    cached = states()
    online = states(features="online")
    wide = states(config={"target_layer_ids": [1, 0]}, cached_layer_ids=None)
    assert (
        isinstance(cached, TargetCache)
        and isinstance(online, OnlineFeatures)
        and len(list(tmp_path.glob("data-*/taps_*"))) == 2
    )
    _, wanted = TARGET.last_hidden(torch.tensor([cached.rows[0][0]]), (1, 0))
    torch.testing.assert_close(wide.batch([0], "cpu")[2], wanted, atol=2e-2, rtol=1e-2)
    torch.testing.assert_close(
        online.batch([0], "cpu")[2], cached.batch([0], "cpu")[2], atol=2e-2, rtol=1e-2
    )


def test_a_cache_of_other_layers_is_for_drafts_that_read_none(states):
    mtp = {"drafter": "mtp", "num_hidden_layers": 1, "target_layer_ids": [2]}
    shared = states(config=mtp, cached_layer_ids=[0, 1])
    assert (
        shared.batch([0], "cpu")[2].shape[-1] == 32
        and states().shards[0].path == shared.shards[0].path
    )
    for kind in ({}, {"drafter": "eagle3", "ttt_length": 2}):
        with pytest.raises(
            DSparkLiteError, match="reads layers .0, 1. and its cache holds .-1, 1."
        ):
            states(config=kind, cached_layer_ids=[-1, 1])


def test_a_field_that_is_null_says_what_one_left_out_says():
    """null takes back what an extended recipe says."""
    nothing = {
        field.name: None
        for field in dataclasses.fields(DraftRecipe)
        if field.default is None and field.name not in FIELDS
    }
    data = {field.name: None for field in dataclasses.fields(Data) if field.default is None}
    made = recipe(**nothing, data=data)
    assert made == RECIPE and made.digest == RECIPE.digest


def test_a_chunk_is_written_at_once(monkeypatch):
    for chunk, calls in ((None, 1), (2, 2)):
        asked = []
        monkeypatch.setattr(
            answers,
            "write_answers",
            lambda target, prompts, *rest, asked=asked, **options: (
                asked.append(rest) or [[5]] * len(prompts)
            ),
        )
        found = dict(
            answers._answers_to_missing(
                SimpleNamespace(name="x"),
                replace(RECIPE.data, chunk=chunk),
                [[1], [2], [3]],
                {},
                None,
                None,
            )
        )
        assert found == {0: [5], 1: [5], 2: [5]} and len(asked) == calls


# Language models


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(400, seed=1, per_domain=40)


@pytest.fixture
def planned(monkeypatch, tokenizer, tmp_path):
    """What the trainings of a changed LANGUAGE_MODEL are asked for, a namespace a phase: nothing is trained."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr(language_model, "precision_on", lambda device, precision: precision)

    def plan(**changes):
        found = []
        monkeypatch.setattr(
            language_model,
            "optimise",
            lambda model, batch_at, loss_of, plan, folder, **rest: found.append(
                SimpleNamespace(
                    model=model,
                    batch_at=batch_at,
                    loss_of=loss_of,
                    plan=plan,
                    folder=folder,
                    **rest,
                )
            ),
        )
        made = read_fields(LanguageModelRecipe, {**LANGUAGE_MODEL, **changes}, "recipe")
        model = train_language_model(made, tokenizer, tmp_path / "build", CPU)
        assert not model.training and all(one.model is model for one in found)
        return found

    return plan


TWO = [
    {"examples": {"math": 10}, "learning_rate": 0.01, "matrix_rate": 0.3, "batch": 5},
    {"examples": {"math": 10}, "learning_rate": 0.02},
]


def test_a_phase_has_its_examples_batch_and_rates_and_a_recipe_its_weight_decay_and_precision(
    planned,
):
    first, second = planned(phases=TWO, weight_decay=0.25, precision="bfloat16")
    assert [
        (one.plan.steps, one.plan.learning_rate, one.plan.matrix_rate) for one in (first, second)
    ] == [(2, 0.01, 0.3), (2, 0.02, None)]
    assert {(one.plan.weight_decay, one.plan.precision) for one in (first, second)} == {
        (0.25, "bfloat16")
    }
    assert [one.plan.time_share for one in (first, second)] == [(0, 0.5), (0.5, 1)]
    assert [len(one.batch_at(step)[0]) for one in (first, second) for step in range(2)] == [
        5,
        5,
        8,
        2,
    ] or [len(one.batch_at(step)[0]) for one in (first, second) for step in range(2)] == [
        5,
        5,
        2,
        8,
    ]
    ids, weight = first.batch_at(0)
    assert first.loss_of((ids, weight), 0.0)[0].dtype == torch.float32
    assert {tuple(row) for step in range(2) for row in first.batch_at(step)[0].tolist()}.isdisjoint(
        tuple(row) for step in range(2) for row in second.batch_at(step)[0].tolist()
    ), "each phase draws examples of its own"
    (plain,) = planned(phases=TWO[:1])
    assert (plain.plan.weight_decay, plain.plan.precision) == (0.0, "float32")


def test_a_prompts_token_weighs_what_the_recipe_says_and_the_record_is_of_answers_alone(planned):
    for given, weighs in (({}, 0.1), ({"prompt_weight": 0.5}, 0.5), ({"prompt_weight": 0.0}, 0.0)):
        (phase,) = planned(phases=TWO[:1], **given)
        ids, weight = phase.batch_at(0)
        assert weight[:, 0].eq(weighs).all() and weight.unique().tolist() == pytest.approx(
            sorted({0.0, weighs, 1.0})
        )
        numerator, total, record = phase.loss_of((ids, weight), 1.0)
        each = F.cross_entropy(
            phase.model(input_ids=ids).logits[:, :-1].mT, ids[:, 1:], reduction="none"
        )
        assert total.item() == pytest.approx(weight[:, 1:].sum().item())
        assert numerator.item() == pytest.approx((each * weight[:, 1:]).sum().item(), rel=1e-5)
        assert (record["loss"] / total).item() == pytest.approx(
            each[weight[:, 1:] == 1].mean().item(), rel=1e-5
        )


def test_a_language_models_seed_and_initialisation_are_those_of_its_weights_and_examples(planned):
    one, again, other, wide = (
        planned(phases=TWO[:1], **changes)[0]
        for changes in ({}, {}, {"seed": 2}, {"initialisation": "width"})
    )
    weights = [
        found.model.model.layers[0].mlp.up_proj.weight for found in (one, again, other, wide)
    ]
    assert weights[0].equal(weights[1]) and not weights[0].equal(weights[2])
    assert weights[0].std().item() == pytest.approx(0.02, rel=0.2) and weights[
        3
    ].std().item() == pytest.approx(0.25, rel=0.2)
    batches = [found.batch_at(0)[0] for found in (one, again, other)]
    assert batches[0].equal(batches[1]) and not batches[0].equal(batches[2])


def test_a_language_model_has_the_shape_of_its_config(planned):
    config = {
        **LANGUAGE_MODEL["config"],
        "num_hidden_layers": 2,
        "hidden_size": 24,
        "intermediate_size": 20,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "tie_word_embeddings": False,
        "max_position_embeddings": 77,
        "rope_parameters": {"rope_type": "default", "rope_theta": 55.0},
    }
    model = planned(config=config, phases=TWO[:1])[0].model
    layer = model.model.layers[0]
    assert (
        len(model.model.layers) == 2
        and layer.mlp.up_proj.weight.shape == (20, 24)
        and layer.self_attn.q_norm.weight.shape == (6,)
    )
    assert (layer.self_attn.q_proj.out_features, layer.self_attn.k_proj.out_features) == (
        24,
        12,
    ) and model.config.max_position_embeddings == 77
    assert (
        model.lm_head.weight is not model.model.embed_tokens.weight
        and model.config.rope_parameters["rope_theta"] == 55.0
    )
    tied = planned(phases=TWO[:1])[0].model
    assert tied.lm_head.weight is tied.model.embed_tokens.weight


def test_layers_are_compiled_only_where_a_recipe_asks_for_it(planned, monkeypatch):
    compiled = []
    monkeypatch.setattr(
        torch.nn.Module,
        "compile",
        lambda module, **options: compiled.append((type(module).__name__, options)),
    )
    planned(phases=TWO[:1])
    assert compiled == []
    planned(phases=TWO[:1], compile=True)
    assert compiled == [("Qwen3DecoderLayer", {"dynamic": True})] * 3


def test_a_language_model_begins_from_its_initial_checkpoint_and_anew_where_that_or_the_recipe_has_changed(
    planned, monkeypatch
):
    initial = Target(Qwen3ForCausalLM(planned(phases=TWO[:1])[0].model.config))
    monkeypatch.setattr(
        language_model, "load_target", lambda name: initial if name == "theirs" else None
    )
    one = planned(phases=TWO[:1], initial="theirs", initialisation="width")[0]
    again = planned(phases=TWO[:1], initial="theirs", initialisation="width")[0]
    assert all(
        ours.equal(theirs)
        for ours, theirs in zip(one.model.parameters(), initial.model.parameters(), strict=True)
    )
    changed = planned(phases=TWO[:1], initial="theirs", initialisation="width", batch=9)[0]
    with torch.no_grad():
        for parameter in initial.model.parameters():
            parameter.mul_(1.5)
    other = planned(phases=TWO[:1], initial="theirs", initialisation="width")[0]
    assert (
        one.identity == again.identity
        and len(
            {one.identity, changed.identity, other.identity, planned(phases=TWO[:1])[0].identity}
        )
        == 4
    )


def test_what_was_saved_of_another_recipe_is_forgotten_in_every_phase(planned, tmp_path, capsys):
    """Its saves and logs; a training's own stay."""

    def save(identity):
        for folder in ("phase_1", "phase_2"):
            model = torch.nn.Linear(1, 1)
            scaler = torch.amp.GradScaler("cpu", enabled=False)
            place = tmp_path / "build" / folder
            training.Saves(place, model, [], scaler, identity)._write_progress(1, True)
            (tmp_path / "build" / folder / "log.jsonl").write_text("{}\n")

    def left():
        return sorted(path.name for path in (tmp_path / "build").rglob("*") if path.is_file())

    own = planned(phases=TWO)[0].identity
    save(own)
    planned(phases=TWO)
    assert len(left()) == 4 and "starts from the beginning" not in capsys.readouterr().out
    planned(phases=TWO, seed=9)
    assert left() == [] and "starts from the beginning" in capsys.readouterr().out


def test_every_language_model_keeps_what_it_trained_in_float32(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    made = read_fields(
        LanguageModelRecipe,
        {**LANGUAGE_MODEL, "phases": [{"examples": {"math": 8}, "learning_rate": 0.01}]},
        "recipe",
    )
    model = train_language_model(made, tokenizer, tmp_path, CPU)
    saved = load_file(tmp_path / "phase_1" / "progress.safetensors")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(
        saved[f"model.{name}"].equal(parameter) for name, parameter in model.named_parameters()
    )
