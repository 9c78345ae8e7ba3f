"""Drafts as others publish them: the weights of one drafter in every form, and the tokens of that drafter out of each."""

import json
import re
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    RwkvConfig,
    RwkvForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from dspark_lite import CustomGenerate
from dspark_lite.decoding import generate
from dspark_lite.decoding.target import Target
from dspark_lite.drafters import Eagle3, Eagle3Config
from dspark_lite.fast import fast_path
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_draft_alone, load_drafter, load_target, save_draft
from dspark_lite.models.draft_forms import SPECULATORS, read_draft
from dspark_lite.models.export import export
from dspark_lite.models.weights import target_weights
from dspark_lite.training.drafts import new_draft
from dspark_lite.training.recipe import DraftRecipe, DraftShape
from helpers import GAMMA, PROMPT, VOCAB, assert_refused, set_config, set_tensors

LENT = ("embed_tokens.weight", "lm_head.weight")
KINDS = ("dspark", "dspark_gated", "dspark_rnn", "dflash", "eagle3", "mtp")
# kind, and is the head the target's?
QUICK = {
    ("dspark", True),
    ("eagle3", False),
}
ENUMERATED = pytest.mark.slow(reason="every outcome of three tokens, for each other kind of draft")


def lend(target, *drafters) -> None:
    """Rounds a target's numbers to 16 bit and copies its embedding and LM head into drafters."""
    for parameter in target.model.parameters():
        parameter.copy_(parameter.bfloat16())
    for drafter in drafters:
        for name, weight in target_weights(target).items():
            drafter.get_parameter(name).copy_(weight)


@pytest.fixture(scope="module")
def drafts(tmp_path_factory):
    """A folder with a target and a draft of each kind, with copies of its embedding and LM head."""
    folder = tmp_path_factory.mktemp("forms")
    target, drafters = toy_models(vocab_size=VOCAB, gamma=GAMMA)
    lend(target, *(drafters[kind] for kind in KINDS))
    for kind in KINDS:
        save_draft(folder / kind, drafters[kind], target)
    target.model.save_pretrained(folder / "target")
    return folder


@pytest.fixture(scope="module")
def target(drafts):
    return load_target(str(drafts / "target"))


def without_lent(tensors: dict) -> dict:
    return {name: value for name, value in tensors.items() if name not in LENT}


def rounds(target, drafter, temperature: float) -> list:
    """Every draft and what became of it, of one answer."""
    answer = generate(
        target,
        drafter,
        PROMPT,
        max_new_tokens=24,
        temperature=temperature,
        stop_token_ids=(),
        generator=torch.Generator().manual_seed(3),
    )
    return [(r.draft_tokens, r.accepted, r.tokens) for r in answer.rounds]


def assert_same(target, folder: Path, other: Path) -> None:
    """Two folders hold one draft: greedy and sampled, drafts and answers are equal."""
    one, two = (load_drafter(str(name), target) for name in (folder, other))
    for temperature in (0.0, 1.0):
        assert rounds(target, one, temperature) == rounds(target, two, temperature)


def assert_greedy_text_stays(target, *drafters) -> None:
    """Drafted, the text is the target's own."""
    plain, *drafted = (
        generate(target, one, PROMPT, max_new_tokens=30, stop_token_ids=()).token_ids
        for one in (None, *drafters)
    )
    assert drafted == [plain] * len(drafters)


def changed(source: Path, folder: Path, **fields) -> Path:
    """A copy of a folder with other fields in its config.json."""
    shutil.copytree(source, folder)
    set_config(folder, **fields)
    return folder


def bare(source: Path, folder: Path) -> Path:
    """A copy of a draft without what its target lends it."""
    set_tensors(changed(source, folder), without_lent)
    return folder


def speculators(source: Path, folder: Path, layer=(), **fields) -> Path:
    """A draft in the form of speculators with other fields in its config, those of its layers among them."""
    export(str(source), "speculators", folder)
    held = json.loads((folder / "config.json").read_text())["transformer_layer_config"]
    set_config(folder, transformer_layer_config=held | dict(layer), **fields)
    return folder


# Forms


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_draft_leaves_out_is_the_targets(drafts, target, tmp_path, kind):
    folder = bare(drafts / kind, tmp_path / "bare")
    assert_same(target, drafts / kind, folder)
    drafter = load_drafter(str(folder), target)
    assert all(
        drafter.get_parameter(name).data_ptr() == weight.data_ptr()
        for name, weight in target_weights(target).items()
    )
    assert_refused(
        "bare has no tensor embed_tokens.weight, and there is none to share: load it with a target",
        load_draft_alone,
        folder,
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_written_in_the_form_of_speculators_it_is_the_same_draft(
    drafts, target, tmp_path, kind, shared
):
    command = export(str(drafts / kind), "speculators", tmp_path / "out", "org/target")
    assert (
        command == f"vllm serve {tmp_path / 'out'}"
        and command in (tmp_path / "out" / "README.md").read_text()
    )
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    read = read_draft("out", config)
    assert (read.publisher, read.target, read.max_positions) == (
        SPECULATORS,
        "org/target",
        target.max_positions,
    )
    taps = (
        config.get("aux_hidden_state_layer_ids")
        or config.get("eagle_aux_hidden_state_layer_ids")
        or [3]
    )
    assert [layer - 1 for layer in taps] == list(read.config.target_layer_ids)
    assert config.get("num_nextn_predict_layers") == (1 if kind == "mtp" else None)
    if shared:
        set_tensors(tmp_path / "out", without_lent)
    assert_same(target, drafts / kind, tmp_path / "out")


def z_lab(source: Path, folder: Path) -> Path:
    """A DFlash as z-lab publishes one: fields nested, neither embedding nor LM head."""
    nested = {"mask_token_id": VOCAB - 1, "target_layer_ids": [0, 1]}
    set_config(
        bare(source, folder),
        architectures=["DFlashDraftModel"],
        auto_map={"AutoModel": "dflash.DFlashDraftModel"},
        dflash_config=nested,
        **dict.fromkeys(
            [
                *nested,
                "sample_from_anchor",
                "markov_rank",
                "markov_head_type",
                "enable_confidence_head",
            ],
            ...,
        ),
    )
    return folder


@pytest.mark.parametrize("form", ["z-lab", "speculators"])
def test_a_block_that_fills_itself_in_is_read_from_both_forms_of_it(drafts, target, tmp_path, form):
    own = changed(drafts / "dflash", tmp_path / "own", sample_from_anchor=False)
    if form == "z-lab":
        z_lab(drafts / "dflash", tmp_path / "out")
    else:
        # as written before speculators had the field
        speculators(own, tmp_path / "out", sample_from_anchor=...)
    assert_same(target, own, tmp_path / "out")
    assert load_drafter(str(tmp_path / "out"), target).gamma == GAMMA - 1


REFUSALS = {
    "another type": (
        "dspark",
        {"speculators_model_type": "peagle"},
        "its types here are dspark, dflash, eagle3, mtp",
    ),
    "layers of another model": (
        "dspark",
        {"layer": {"model_type": "gpt2"}},
        "has layers of type 'gpt2'; .* qwen3 or llama",
    ),
    "a bias": (
        "eagle3",
        {"layer": {"model_type": "llama", "mlp_bias": True}},
        "has a bias in its feed-forward network",
    ),
    "no such field": (
        "dspark",
        {"layer": {"hidden_size": "wide"}},
        "transformer_layer_config of .* is none of qwen3",
    ),
    "windows": (
        "dspark",
        {"layer": {"layer_types": ["sliding_attention"], "use_sliding_window": True}},
        "only full_attention is drafted here",
    ),
    "scaled positions": (
        "dspark",
        {
            "layer": {
                "rope_parameters": {
                    "rope_type": "dynamic",
                    "rope_theta": 1e4,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64,
                }
            }
        },
        "scales its positions",
    ),
    "another hidden size": (
        "dspark",
        {"target_hidden_size": 32},
        "is for a target of hidden size 32, its own is 16",
    ),
    "features normed elsewhere": (
        "eagle3",
        {"norm_before_fc": True},
        "has norm_before_fc, which is not drafted here",
    ),
    "no draft length": (
        "eagle3",
        {"speculators_config": None},
        "does not say how many tokens it drafts",
    ),
    "an anchor that cannot be told": (
        "dspark",
        {"sample_from_anchor": ...},
        "does not say whether its anchor's slot predicts",
    ),
    "no taps": (
        "dspark",
        {"aux_hidden_state_layer_ids": None},
        "names no aux_hidden_state_layer_ids",
    ),
    "the last layer": (
        "dspark",
        {"aux_hidden_state_layer_ids": [1, 3]},
        "taps layer 2, but this target can be tapped",
    ),
    "a layer too many": ("eagle3", {"eagle_aux_hidden_state_layer_ids": [1, 9]}, "taps layer 8"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_told_or_drafted_of_a_speculators_draft_is_refused(
    drafts, target, tmp_path, case
):
    kind, fields, sentence = REFUSALS[case]
    assert_refused(
        sentence, load_drafter, str(speculators(drafts / kind, tmp_path / "out", **fields)), target
    )


def test_an_eagle3_that_names_no_taps_has_those_that_speculators_takes(drafts, tmp_path):
    folder = speculators(drafts / "eagle3", tmp_path / "out", eagle_aux_hidden_state_layer_ids=None)
    assert read_draft(
        "out", json.loads((folder / "config.json").read_text()), 36
    ).config.target_layer_ids == (1, 17, 32)


def test_an_eagle3_with_the_layer_of_llama_has_no_norms_of_queries_and_keys(target, tmp_path):
    """Lossless whatever its numbers are; the norm before the residual changes what it drafts."""
    shape = vars(toy_models(vocab_size=VOCAB, gamma=GAMMA)[1]["eagle3"].config)
    found = []
    for first in (False, True):
        torch.manual_seed(1)
        drafter = (
            Eagle3(Eagle3Config(**shape | {"qk_norm": False, "norm_before_residual": first}))
            .requires_grad_(False)
            .eval()
        )
        assert not any("q_norm" in name or "k_norm" in name for name in drafter.state_dict())
        save_draft(tmp_path / f"own-{first}", drafter, target)
        folder = speculators(
            tmp_path / f"own-{first}", tmp_path / f"out-{first}", {"model_type": "llama"}
        )
        assert_same(target, tmp_path / f"own-{first}", folder)
        found.append(rounds(target, load_drafter(str(folder), target), 0.0))
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (z_lab, "is in the form of z-lab DFlash, and drafts are exported from DeepSpec's"),
        (speculators, "is in the form of speculators"),
    ],
)
def test_drafts_of_other_forms_are_not_exported(drafts, tmp_path, form, sentence):
    assert_refused(
        sentence, export, str(form(drafts / "dflash", tmp_path / "in")), "vllm", tmp_path / "out"
    )


# Vocabularies

IDS = torch.tensor([2, 0])  # of three, in an order of their own


def reduced(kind: str):
    """A target of three tokens and a draft that knows two of them."""
    target, drafters = toy_models(vocab_size=3, gamma=2)
    config = drafters[kind].config
    drafter = (
        type(drafters[kind])(type(config)(**vars(config) | {"draft_vocab_size": len(IDS)}))
        .requires_grad_(False)
        .eval()
    )
    drafter.load_state_dict(
        {
            name: value[IDS] if name.split(".")[-2] in ("lm_head", "markov_w2") else value
            for name, value in drafters[kind].state_dict().items()
        }
        | {"d2t": IDS - torch.arange(2)}
    )
    return target, drafters[kind], drafter


@pytest.mark.parametrize(
    "kind",
    [
        "dspark",
        "eagle3",
        pytest.param("dspark_rnn", marks=ENUMERATED),
        pytest.param("dflash", marks=ENUMERATED),
    ],
)
def test_a_reduced_vocabulary_is_lossless_by_enumeration(kind):
    target, _, drafter = reduced(kind)
    plain, drafted = (output_distribution(target, one, None, 3) for one in (None, drafter))
    assert total_variation(plain, drafted) < 1e-5


@pytest.mark.parametrize("kind", ["dspark", "eagle3"])
@torch.inference_mode()
def test_its_probabilities_are_the_whole_drafts_among_the_ids_that_it_has(kind):
    target, whole, drafter = reduced(kind)
    output, _ = target.prefill(torch.tensor([[1, 2, 0]]), whole.taps)
    anchor = output.logits[:, -1].argmax(-1)
    draws = {"gamma": 1, "temperature": 0.7, "generator": None}
    p, q = (
        one.propose(one.begin(torch.tensor([[1, 2, 0]]), output.features), anchor, **draws).probs[
            0, 0
        ]
        for one in (whole, drafter)
    )
    wanted = torch.zeros(3).index_copy(0, IDS, p[IDS])
    torch.testing.assert_close(q, wanted / wanted.sum())


@pytest.mark.parametrize("form", ["DeepSpec", "speculators"])
def test_it_is_saved_and_read_in_both_forms_with_and_without_t2d(tmp_path, form):
    target, _, drafter = reduced("dspark")
    save_draft(tmp_path / "draft", drafter, target)
    if form == "speculators":
        export(str(tmp_path / "draft"), "speculators", tmp_path / "out")
        assert load_file(tmp_path / "out" / "model.safetensors")["t2d"].tolist() == [
            True,
            False,
            True,
        ]
    folder = tmp_path / ("draft" if form == "DeepSpec" else "out")
    loaded = load_drafter(str(folder), target)
    assert (loaded.d2t + torch.arange(2)).equal(IDS) and loaded.lm_head.weight.shape[
        0
    ] == loaded.markov_head.markov_w2.weight.shape[0] == 2
    set_tensors(
        folder,
        lambda tensors: {
            name: value for name, value in tensors.items() if name not in ("t2d", "lm_head.weight")
        },
    )
    assert load_drafter(str(folder), target).lm_head.weight.equal(
        target.model.get_output_embeddings().weight[IDS]
    )


def test_without_a_head_it_is_exported_with_one_of_zeros_that_loads(tmp_path):
    target, _, drafter = reduced("dflash")
    save_draft(tmp_path / "draft", drafter, target)
    export(str(tmp_path / "draft"), "vllm", tmp_path / "out")
    loaded = load_drafter(str(tmp_path / "out"), target)
    assert loaded.markov_head.markov_w1.weight.shape[0] == 3
    assert loaded.markov_head.markov_w2.weight.shape[0] == len(IDS)
    prompt = torch.tensor([[1, 2, 0]])
    runs = [generate(target, one, prompt, max_new_tokens=12) for one in (drafter, loaded)]
    assert [run.rounds[0].draft_tokens for run in runs] == 2 * [runs[0].rounds[0].draft_tokens]


@pytest.mark.parametrize(
    ("size", "tensors", "sentence"),
    [
        (
            2,
            {"d2t": torch.tensor([2, 2])},
            r"d2t of draft maps its id 1 to 3 \(1 \+ 2\); the target's ids are 0 to 2",
        ),
        (2, {"d2t": torch.tensor([2, -2])}, r"d2t of draft maps its id 1 to -1 \(1 \+ -2\)"),
        (2, {"d2t": torch.tensor([2, 1])}, "maps two of its ids to one of the target's"),
        (2, {"t2d": torch.tensor([True, True, False])}, "t2d and d2t of draft name different ids"),
        (
            2,
            {"t2d": torch.ones(4, dtype=torch.bool)},
            r"tensor t2d of draft has shape \(4,\); its config.json asks for \(3,\)",
        ),
        (2, {"d2t": None}, "tensor d2t of draft has shape none"),
        (4, {}, "draws from 4 ids of 3"),
    ],
)
def test_a_map_that_is_none_is_refused(tmp_path, size, tensors, sentence):
    target, _, drafter = reduced("dspark")
    save_draft(tmp_path / "draft", drafter, target)
    set_config(tmp_path / "draft", draft_vocab_size=size)
    set_tensors(
        tmp_path / "draft",
        lambda held: {name: value for name, value in (held | tensors).items() if value is not None},
    )
    assert_refused(sentence, load_drafter, str(tmp_path / "draft"), target)


def grown(target, rows: int) -> Target:
    """A copy of a target whose vocabulary has so many more ids, all of which it may write."""
    model = type(target.model)(
        target.config.__class__(
            **target.config.to_dict() | {"vocab_size": target.vocab_size + rows}
        )
    )
    more = torch.randn(rows, target.hidden_size, generator=torch.Generator().manual_seed(2)) * 0.6
    tensors = target.model.state_dict()
    model.load_state_dict(
        tensors
        | {
            name: torch.cat([tensors[name], more])
            for name in ("model.embed_tokens.weight", "lm_head.weight")
        }
    )
    return Target(model.requires_grad_(False))


def assert_lossless_without_the_added_ids(target, drafter, known: int, gamma: int) -> None:
    """By enumeration the text is the target's, the ids from `known` on included, of which none is ever drafted, also where one of
    them was written last."""
    plain, drafted = (output_distribution(target, one, None, 3) for one in (None, drafter))
    assert total_variation(plain, drafted) < 1e-5 and any(
        max(text) >= known for text, p in plain.items() if p > 1e-3
    )
    output, _ = target.prefill(PROMPT % known, drafter.taps)
    for anchor in range(target.vocab_size):
        proposal = drafter.propose(
            drafter.begin(PROMPT % known, output.features),
            torch.tensor([anchor]),
            temperature=1.0,
            generator=None,
        )
        assert not proposal.probs[..., known:].any() and torch.allclose(
            proposal.probs.sum(-1), torch.ones(1, gamma)
        )


@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        pytest.param(kind, shared, marks=() if (kind, shared) in QUICK else ENUMERATED)
        for kind in KINDS
        for shared in (False, True)
    ],
)
def test_a_target_whose_vocabulary_has_grown_is_served_as_it_is_and_nothing_is_drafted_from_the_padding(
    tmp_path, kind, shared
):
    small, drafters = toy_models(vocab_size=2, gamma=2)
    lend(small, drafters[kind])
    save_draft(tmp_path / "draft", drafters[kind], small)
    if shared:
        set_tensors(tmp_path / "draft", without_lent)
    target = grown(small, 1)
    drafter = load_drafter(str(tmp_path / "draft"), target)
    assert (
        drafter.embed_tokens.weight.data_ptr()
        == target.model.get_input_embeddings().weight.data_ptr()
    )
    assert_lossless_without_the_added_ids(target, drafter, 2, drafter.gamma)


@pytest.mark.parametrize("tied", [False, pytest.param(True, marks=ENUMERATED)])
def test_a_small_language_model_reads_the_added_ids_as_nothing_and_drafts_none(tmp_path, tied):
    small, drafters = toy_models(vocab_size=2, gamma=2)
    model = drafters["small_lm"].model.model
    if tied:
        model.config.tie_word_embeddings = True
        model.lm_head.weight = model.get_input_embeddings().weight
    model.save_pretrained(tmp_path / "small")
    target = grown(small, 1)
    drafter = load_drafter(str(tmp_path / "small"), target)
    drafter.gamma = 2
    assert (
        drafter.model.model.get_input_embeddings().weight[2:].count_nonzero() == 0
        and len(drafter.model.model.lm_head.weight) == 2
    )
    assert_lossless_without_the_added_ids(target, drafter, 2, 2)


@pytest.mark.slow(reason="the fast path's compiler is loaded and traces both models")
def test_a_small_language_model_reads_the_added_ids_as_nothing_on_the_fast_path_too(tmp_path):
    small, drafters = toy_models(vocab_size=2, gamma=2)
    drafters["small_lm"].model.model.save_pretrained(tmp_path / "small")
    target = grown(small, 1)
    drafter = load_drafter(str(tmp_path / "small"), target)
    slow, fast = (
        generate(target, drafter, PROMPT % 3, max_new_tokens=12, stop_token_ids=(), prepare=prepare)
        for prepare in (None, fast_path)
    )
    assert slow.token_ids == fast.token_ids


def test_a_vocabulary_that_differs_by_more_than_padding_is_another_one(drafts, target):
    other = grown(target, VOCAB + 1)
    assert_refused(
        f"made for a vocabulary of {VOCAB} tokens, this target has {2 * VOCAB + 1}",
        load_drafter,
        str(drafts / "dspark"),
        other,
    )
    assert load_drafter(str(drafts / "dspark"), grown(target, VOCAB)).gamma == GAMMA


# Positions and caches


@pytest.mark.parametrize(
    ("draft", "head_of", "told"),
    [
        ("dspark", lambda head: head, 0),
        ("dspark", lambda head: head.bfloat16(), 0),
        ("dspark", lambda head: 1.03 * head, 0),
        ("dspark", lambda head: 1.1 * head, 1),
        ("dspark", lambda head: head.flip(0), 1),
        ("eagle3", lambda head: head.flip(0), 0),
    ],
    ids=[
        "the target's",
        "in 16 bit",
        "3 per cent off",
        "10 per cent off",
        "another",
        "an Eagle3's own",
    ],
)
def test_a_block_drafts_lm_head_of_other_weights_is_told_of(
    drafts, target, tmp_path, recwarn, draft, head_of, told
):
    folder = changed(drafts / draft, tmp_path / draft)
    head = target.model.get_output_embeddings().weight.detach()
    set_tensors(folder, lambda tensors: tensors | {"lm_head.weight": head_of(head).clone()})
    load_drafter(str(folder), target)
    assert sum("has an LM head of other weights" in str(one.message) for one in recwarn) == told


FAR = {"max_position_embeddings": 256}
SCALED = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
    }
}


@pytest.mark.parametrize(
    ("draft", "targets", "own", "told"),
    [
        (
            "dspark",
            {},
            {"max_position_embeddings": 63},
            "was made for 63 positions, and .* has 64: beyond them the text stays exact",
        ),
        (
            "dspark",
            SCALED,
            {},
            r"does not scale its positions, and .* does \(yarn\): the text stays exact",
        ),
        ("target", FAR, {}, "was made for 64 positions, and .* has 256"),
        ("target", FAR | SCALED, FAR, r"does not scale its positions, and .* does \(yarn\)"),
        ("target", FAR | SCALED, FAR | SCALED, None),
    ],
)
def test_a_draft_or_small_model_that_cannot_follow_far_says_so_once_and_changes_no_text(
    drafts, tmp_path, draft, targets, own, told
):
    """One that scales its positions as the target does says nothing."""
    target = load_target(str(changed(drafts / "target", tmp_path / "target", **targets)))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        drafter = load_drafter(str(changed(drafts / draft, tmp_path / "draft", **own)), target)
    assert [
        bool(re.search(told or "", str(one.message)))
        for one in found
        if "positions" in str(one.message)
    ] == [True] * bool(told)
    assert_greedy_text_stays(target, drafter)


SMALL = {
    "vocab_size": 12,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": 0,
}


def randomised(model):
    generator = torch.Generator().manual_seed(1)
    for parameter in model.requires_grad_(False).parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
    return model.eval()


def test_windows_of_a_model_that_names_no_layer_types_are_rolled_back():
    """Mistral: its cache knows, its config has `sliding_window` alone."""
    model = randomised(
        MistralForCausalLM(MistralConfig(num_hidden_layers=2, sliding_window=16, **SMALL))
    )
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7] * 5])
    drafter = CustomGenerate("prompt_lookup", model)
    plain, drafted = (
        model.generate(ids, max_new_tokens=40, do_sample=False, **options)
        for options in ({}, {"custom_generate": drafter})
    )
    assert drafter.target.has_windows and plain.equal(drafted)
    assert any(r.accepted < r.proposed for r in drafter.answers[0].rounds), (
        "nothing was rolled back"
    )


def test_a_target_without_a_last_position_decodes_as_plain():
    model = randomised(
        BloomForCausalLM(BloomConfig(vocab_size=16, hidden_size=16, n_layer=2, n_head=2))
    )
    prompt = torch.tensor([[3, 1, 2, 3, 1, 2]])
    asked = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    drafted = model.generate(
        prompt, **asked, custom_generate=CustomGenerate("prompt_lookup", model)
    )
    assert drafted.equal(model.generate(prompt, **asked))


@pytest.mark.parametrize(
    "model",
    [
        lambda: RwkvForCausalLM(
            RwkvConfig(vocab_size=16, hidden_size=8, num_hidden_layers=2, attention_hidden_size=8)
        ),
        lambda: MambaForCausalLM(MambaConfig(vocab_size=16, hidden_size=8, num_hidden_layers=1)),
        lambda: T5ForConditionalGeneration(
            T5Config(vocab_size=16, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
        ),
    ],
)
def test_what_keeps_no_keys_and_values_of_its_own_is_no_target(model):
    assert_refused("is no causal model with a cache of keys and values", Target, model())


# Targets in wrappers


class Wrapper(nn.Module):
    """What PEFT puts around a model: an outer object with its config, whose `generate` is the inner one's."""

    def __init__(self, inner):
        super().__init__()
        self.base_model, self.config = nn.ModuleDict({"model": inner}), inner.config

    def generate(self, *arguments, **options):
        return self.base_model["model"].generate(*arguments, **options)


class Quantised(nn.Module):
    """A linear layer of 8-bit weights, one scale a row."""

    def __init__(self, linear):
        super().__init__()
        self.scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.weight = nn.Parameter(
            (linear.weight.detach() / self.scale).round().to(torch.int8), requires_grad=False
        )

    def forward(self, x):
        return x @ (self.weight * self.scale).T


def quantise(model, parts) -> None:
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name.startswith(parts):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, Quantised(module))


@pytest.mark.parametrize(
    "wrap",
    [Wrapper, lambda model: torch.compile(model, backend="eager")],
    ids=["as PEFT", "compiled"],
)
@pytest.mark.parametrize(
    "inner", [False, True], ids=["the wrapper generates", "what is inside generates"]
)
def test_a_wrapped_model_is_the_one_that_generates(drafts, wrap, inner):
    model = load_target(str(drafts / "target")).model
    options = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    plain, wrapped = model.generate(PROMPT, **options), wrap(model)
    drafter = CustomGenerate(str(drafts / "dspark"), wrapped)
    assert (
        (model if inner else wrapped)
        .generate(PROMPT, **options, custom_generate=drafter)
        .equal(plain)
    )
    assert drafter.answers[0].rounds


def test_tokens_that_peft_puts_before_a_prompt_are_not_drafted_around(drafts):
    wrapped = Wrapper(load_target(str(drafts / "target")).model)
    wrapped.active_peft_config = SimpleNamespace(is_prompt_learning=False)
    assert (
        CustomGenerate(str(drafts / "dspark"), wrapped).target.model is wrapped.base_model["model"]
    )
    wrapped.active_peft_config.is_prompt_learning = True
    assert_refused(
        "PEFT puts learned tokens before each prompt",
        CustomGenerate,
        str(drafts / "dspark"),
        wrapped,
    )


def test_a_quantised_target_lends_what_is_not_quantised(drafts, tmp_path):
    target = load_target(str(drafts / "target"))
    folder = str(bare(drafts / "dspark", tmp_path / "bare"))
    quantise(target.model, "model.layers")
    assert_greedy_text_stays(
        target, load_drafter(folder, target), load_drafter(str(drafts / "dspark"), target)
    )
    quantise(target.model, "lm_head")
    assert_refused(
        "bare has no tensor lm_head.weight, .* whose lm_head is neither quantised nor offloaded",
        load_drafter,
        folder,
        target,
    )
    # which has a head of its own
    assert_greedy_text_stays(target, load_drafter(str(drafts / "dspark"), target))


def shadow(model, part: str) -> None:
    """Give a part a weight that calls itself floating point and is no plain tensor, as torchao's."""
    module = getattr(model, f"get_{part}_embeddings")()
    weight = module.weight.detach()
    module.weight = nn.Parameter(TwoTensor(weight, weight.clone()), requires_grad=False)


@pytest.mark.parametrize("part", ["input", "output"])
def test_weights_that_are_no_plain_tensors_are_not_shared_and_train_no_draft(drafts, part):
    target = load_target(str(drafts / "target"))
    recipe = DraftRecipe(
        "new", 0, 1, 1, 0.01, "float32", DraftShape(1, (0,), block_size=3, mask_token_id=1)
    )
    new_draft(recipe, target)
    shadow(target.model, part)
    (kept,) = target_weights(target)
    assert kept == {"input": "lm_head.weight", "output": "embed_tokens.weight"}[part]
    load_drafter(str(drafts / "dspark"), target)
    assert_refused(".* of .*target is quantised or offloaded, .*", new_draft, recipe, target)


@pytest.mark.parametrize("parts", [("lm_head",), ("model.embed_tokens",), ("model", "lm_head")])
def test_an_offloaded_target_drafts_with_the_drafts_own_tables(drafts, tmp_path, parts):
    """transformers puts the parts that a GPU has no room for on the disk."""
    modules = ["model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"]
    modules += [f"model.layers.{layer}" for layer in range(3)]
    model = AutoModelForCausalLM.from_pretrained(
        drafts / "target",
        device_map={name: "disk" if name.startswith(parts) else "cpu" for name in modules},
        offload_folder=tmp_path / "disk",
        dtype=torch.float32,
    )
    whole = load_target(str(drafts / "target")).model
    options = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    for name in ("prompt_lookup", str(drafts / "dspark"), str(drafts / "eagle3")):
        drafted = CustomGenerate(name, model)
        text = model.generate(PROMPT, **options, custom_generate=drafted)
        assert torch.equal(text, whole.generate(PROMPT, **options))
    shared = str(bare(drafts / "dspark", tmp_path / "bare"))
    assert_refused("bare has no tensor .*, .* nor offloaded", CustomGenerate, shared, model)


# Scale and soft cap


def gemma(folder: Path, soft_cap: float | None) -> Target:
    """A small Gemma 4 text model whose sizes the toy drafts share."""
    gemma4 = pytest.importorskip(
        "transformers.models.gemma4", reason="transformers 5.0 has no Gemma 4"
    )
    text = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "global_head_dim": 8,
        "sliding_window": 8,
        "hidden_size_per_layer_input": 0,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "vocab_size_per_layer_input": VOCAB,
        "num_kv_shared_layers": 0,
        "max_position_embeddings": 64,
        "eos_token_id": None,
        "final_logit_softcapping": soft_cap,
        "rope_parameters": dict.fromkeys(
            ("full_attention", "sliding_attention"), {"rope_type": "default", "rope_theta": 1e4}
        ),
    }
    model = randomised(gemma4.Gemma4ForCausalLM(gemma4.Gemma4TextConfig(**text)))
    target = Target(model)
    lend(target)
    return target


def test_with_the_targets_head_come_its_soft_cap_and_in_z_labs_form_its_scale(drafts, tmp_path):
    target = gemma(tmp_path, 2.0)
    torch.testing.assert_close(target.model.get_input_embeddings().embed_scale, torch.tensor(4.0))
    drafter = load_drafter(str(z_lab(drafts / "dflash", tmp_path / "z-lab")), target)
    assert (drafter.logit_softcap, drafter.embedding_scale.item()) == (2.0, 4.0)
    ids = torch.tensor([3, 5])
    assert drafter.embed(ids).equal(target.model.get_input_embeddings()(ids))
    hidden = torch.randn(1, 2, 16, generator=torch.Generator().manual_seed(0))
    _, logits, _ = drafter.draw_block(
        hidden, torch.tensor([1]), 1.0, torch.Generator().manual_seed(1)
    )
    torch.testing.assert_close(logits, 2.0 * torch.tanh(target.model.lm_head(hidden) / 2.0))
    assert_greedy_text_stays(target, drafter)
    own = load_drafter(str(drafts / "dflash"), target)  # its head is another model's
    assert own.logit_softcap is None and own.embedding_scale is None


def test_a_copy_of_a_capped_head_and_none_at_all_draft_the_same(drafts, tmp_path):
    target = gemma(tmp_path, 2.0)
    copies = {name: value.bfloat16() for name, value in target_weights(target).items()}
    whole = changed(drafts / "dspark", tmp_path / "whole")
    folder = bare(drafts / "dspark", tmp_path / "bare")
    set_tensors(
        whole, lambda tensors: tensors | {key: value.clone() for key, value in copies.items()}
    )
    assert_same(target, whole, folder)
    assert load_drafter(str(folder), target).logit_softcap == 2.0
