"""A drafter for the model that somebody has: families, their positions and LM heads, own text, a stop by Ctrl-C."""

import inspect
import json
import os
import signal
import warnings
from dataclasses import replace

import pytest
import torch
import transformers

import dspark_lite
from dspark_lite import MTP, CustomGenerate, DSpark, Eagle3, RequestError
from dspark_lite.__main__ import main
from dspark_lite.common.errors import CheckpointError
from dspark_lite.common.files import ROOT
from dspark_lite.course.measure import speed
from dspark_lite.course.world.tokenizer import train_tokenizer
from dspark_lite.decoding import Generation, Round, generate
from dspark_lite.decoding.target import Target
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, load_target, save_draft, unloaded_target
from dspark_lite.models.weights import kv_bytes
from dspark_lite.training import train as training
from dspark_lite.training.cache import OnlineFeatures
from dspark_lite.training.drafts import (
    default_taps,
    draft_config,
    for_target,
    new_draft,
    spare_token,
)
from helpers import DRAFT, recipe_of

SIZES = dict(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=256,
)
GPT2 = dict(n_embd=32, n_layer=4, n_head=4, n_inner=48)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LINEAR = {"rope_type": "linear", "rope_theta": 5e3, "factor": 3.0}
FAMILIES = {
    "LlamaForCausalLM": {},
    "LlamaForCausalLM, scaled": {"rope_parameters": LLAMA3},
    "Qwen2ForCausalLM": {},
    "Qwen3MoeForCausalLM": EXPERTS,
    "Gemma2ForCausalLM": {},
    "Gemma3ForCausalLM": {},
    "MistralForCausalLM": {"sliding_window": None},
    "GptOssForCausalLM": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "GPT2LMHeadModel": GPT2,
    "BloomForCausalLM": {"n_layer": 4, "n_head": 4},
    "OPTForCausalLM": {"ffn_dim": 48, "word_embed_proj_dim": 32},
}


def model_of(family: str, **fields):
    """Return a random model of a family."""
    kind = getattr(transformers, family.partition(",")[0])
    torch.manual_seed(1)
    return kind(kind.config_class(**{**SIZES, **FAMILIES.get(family, {}), **fields})).eval()


def recipe_for(target, **changes):
    """Return a small recipe that leaves taps and mask to the target."""
    recipe = recipe_of(DRAFT, target=target.name, **changes)
    return replace(recipe, config=replace(recipe.config, target_layer_ids=None, mask_token_id=None))


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_draft_of_any_family_loads_as_it_was_trained_and_decodes_the_targets_text(
    family, tmp_path
):
    target = Target(model_of(family), name=family)
    ids = torch.randint(97, (1, 12), generator=torch.Generator().manual_seed(3))
    recipe = for_target(recipe_for(target), target)
    drafter = new_draft(recipe, target)
    hidden, features = target.last_hidden(ids, recipe.config.target_layer_ids)
    logits = drafter.capped(drafter.lm_head(hidden))
    assert torch.allclose(logits, target.model(ids).logits, atol=1e-5)
    assert features.shape[-1] == 32 * len(recipe.config.target_layer_ids)
    save_draft(tmp_path, drafter, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        loaded = load_drafter(str(tmp_path), target)
    assert loaded.config == drafter.config
    plain, drafted = (
        generate(target, draft, ids, max_new_tokens=20, stop_token_ids=()).token_ids
        for draft in (None, loaded)
    )
    assert plain == drafted


@pytest.mark.parametrize("scaling", [YARN, LLAMA3, LINEAR], ids=lambda rope: rope["rope_type"])
def test_a_drafts_positions_are_scaled_as_its_targets(scaling):
    model = model_of("LlamaForCausalLM", rope_parameters=scaling)
    drafter = new_draft(recipe_for(target := Target(model, name="llama")), target)
    positions = torch.tensor([[0, 1, 63, 64, 200]])
    wanted = model.model.rotary_emb(torch.zeros(1, 5, 32), positions)
    found = drafter.rope(positions)
    assert all(torch.allclose(a[:, 0], b, atol=1e-6) for a, b in zip(found, wanted))
    plain = new_draft(recipe_for(t := Target(model_of("LlamaForCausalLM"), name="l")), t)
    assert not torch.allclose(plain.rope(positions)[0], found[0], atol=1e-3)


@pytest.mark.parametrize(
    ("family", "fields", "sentence"),
    [
        ("GraniteForCausalLM", {"logits_scaling": 4.0}, "has logits_scaling 4.0, which"),
        ("CohereForCausalLM", {"logit_scale": 0.5}, "has logit_scale 0.5, which"),
        ("PhiForCausalLM", {}, "has a bias, which"),
    ],
)
def test_a_head_that_a_draft_cannot_have_is_refused_with_and_without_weights(
    family, fields, sentence
):
    model = model_of(family, **fields)
    config = {**model.config.to_dict(), "architectures": [family]}
    for target in (Target(model, name="mine"), unloaded_target("mine", config)):
        with pytest.raises(CheckpointError, match=sentence):
            draft_config(recipe_for(target), target)


def test_taps_are_those_of_the_released_drafts_and_fit_shallow_targets():
    assert default_taps(36) == (1, 9, 17, 25, 33) and default_taps(28) == (1, 7, 13, 19, 25)
    assert default_taps(40) == (1, 10, 19, 28, 37)
    for layers in range(1, 12):
        taps = default_taps(layers)
        assert sorted(set(taps)) == list(taps) and -1 <= taps[0] and taps[-1] < max(layers - 1, 0)


def test_the_mask_is_a_token_that_the_target_does_not_write():
    tokenizer = train_tokenizer(400, seed=1, per_domain=40)
    target, _ = toy_models(vocab_size=401)
    assert spare_token(target) == 400  # without a tokenizer, the last
    target.tokenizer = tokenizer
    assert spare_token(target) == len(tokenizer) == 400
    target.vocab_size = 400  # no id is left over: padding, which ends no answer here
    assert spare_token(target) == tokenizer.pad_token_id not in target.stop_token_ids


def test_gradients_in_pieces_make_the_same_update(tmp_path):
    target = Target(model_of("LlamaForCausalLM"), name="llama")
    draw = torch.Generator().manual_seed(0)
    rows = [
        (torch.randint(97, (length,), generator=draw).tolist(), 3)
        for length in (20, 9, 14, 4, 17, 6, 30, 11)
    ]
    weights = []
    for size in (None, 1, 3):
        recipe = for_target(
            recipe_for(target, batch=4, micro_batch=size, precision="float32"), target
        )
        cache = OnlineFeatures(target, rows, recipe.config.target_layer_ids)
        drafter = training.train_draft(recipe, target, cache, tmp_path / str(size))
        weights.append(torch.cat([value.flatten() for value in drafter.parameters()]))
    for other in weights[1:]:
        assert torch.allclose(weights[0], other, atol=2e-4)
    fresh = new_draft(for_target(recipe_for(target), target), target)
    before = torch.cat([value.flatten() for value in fresh.parameters()])
    assert (weights[0] - before).abs().max() > 1e-2


def test_ctrl_c_ends_the_update_it_meets_and_saves_it(tmp_path):
    def trained(folder, stop_at=None):
        torch.manual_seed(0)
        model, steps = torch.nn.Linear(2, 1), []

        def loss_of(batch, progress):
            steps.append(len(steps))
            if len(steps) == stop_at:
                os.kill(os.getpid(), signal.SIGINT)
            loss = model(batch[0]).square().sum()
            return loss, torch.tensor(1.0), {"loss": loss}

        plan = training.Plan(8, 0.1)
        log = training.optimise(
            model, lambda step: (torch.full((4, 2), 1.0 + step),), loss_of, plan, folder, title="t"
        )
        return log, len(steps)

    usual = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "stopped", stop_at=3)
    assert signal.getsignal(signal.SIGINT) == usual
    log, made = trained(tmp_path / "stopped")
    assert made == 5 and log == trained(tmp_path / "whole")[0]


@pytest.fixture(scope="module")
def own_llama(tmp_path_factory):
    """The folder of a small Llama with scaled positions, a tokenizer without chat template and padding token."""
    folder = tmp_path_factory.mktemp("own") / "my-llama"
    tokenizer = train_tokenizer(400, seed=1, per_domain=40)
    tokenizer.chat_template = tokenizer.pad_token = None
    model = model_of(
        "LlamaForCausalLM, scaled", vocab_size=400, eos_token_id=tokenizer.eos_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_llama_of_ones_own_is_trained_for_on_a_text_of_ones_own(own_llama, tmp_path, capsys):
    text = tmp_path / "my-text.txt"
    text.write_text(
        "\n\n".join(f"Passage {number}. " + "One and two are three. " * 8 for number in range(120)),
        encoding="utf-8-sig",
    )
    out = tmp_path / "my-drafter"
    call = ["train", "--target", str(own_llama), "--data", str(text), "--device", "cpu"]
    small = ["data.max_new_tokens=12", "data.prompts=12", "epochs=1", "config.markov_rank=8"]
    settings = [part for setting in small for part in ("--set", setting)]
    assert main([*call, *settings, "--estimate"]) == 0 and not out.exists()
    assert ": 12 samples of" in capsys.readouterr().out
    assert main([*call, *settings, "--out", str(out)]) == 0
    assert "my-text" in capsys.readouterr().out
    evaluation = json.loads(next(out.rglob("evaluation.json")).read_text(encoding="utf-8"))
    assert [row["domain"] for row in evaluation["rows"]] == ["my-text"]
    assert {path.name for path in out.rglob("*")} >= {"answers.jsonl", "loss.png", "log.jsonl"}
    target = load_target(str(own_llama))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        drafter = load_drafter(str(out), target)
    ids = target.tokenizer("One and two", return_tensors="pt")["input_ids"]
    texts = [generate(target, draft, ids, max_new_tokens=30).token_ids for draft in (None, drafter)]
    assert texts[0] == texts[1]
    own = ["--target", str(own_llama), "--drafters", str(out), "--prompts-file", str(text)]
    for command in ("bench", "evaluate"):
        file = tmp_path / f"{command}.json"
        few = ["--prompts", "2", "--max-new-tokens", "6", "--json", str(file)]
        assert main([command, *own, *few, "--held-out"]) == 0
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        assert {row["domain"] for row in rows} == {"my-text"}


def test_a_recipe_without_a_target_asks_for_one(capsys):
    assert main(["train", "--estimate"]) == 2
    assert "--target" in capsys.readouterr().err


# A draft as transformers' users save and share it ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dspark", "eagle3", "mtp"])
def test_a_draft_is_saved_and_loaded_as_a_model_of_transformers_is(tmp_path, monkeypatch, kind):
    target, drafters = toy_models(vocab_size=23, gamma=4)
    drafter = drafters[kind]
    drafter.max_positions = 64
    drafter.save_pretrained(tmp_path / "mine")
    loaded = type(drafter).from_pretrained(tmp_path / "mine", target)
    assert loaded.max_positions == 64 and loaded.config == drafter.config
    for name, value in drafter.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value.to(torch.bfloat16).float())
    other = {"dspark": Eagle3, "eagle3": MTP, "mtp": DSpark}[kind]
    with pytest.raises(CheckpointError, match=f"not a {other.__name__}; load it with load_drafter"):
        other.from_pretrained(tmp_path / "mine", target)
    seen = {}

    class Hub:
        def __init__(self, token):
            seen["token"] = token

        def create_repo(self, name, private, exist_ok):
            seen["repository"] = (name, private, exist_ok)
            return f"https://hub/{name}"

        def upload_folder(self, repo_id, folder_path):
            seen["files"] = (repo_id, sorted(os.listdir(folder_path)))

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert drafter.push_to_hub("me/mine", private=True, token="t") == "https://hub/me/mine"
    assert seen == {
        "token": "t",
        "repository": ("me/mine", True, True),
        "files": ("me/mine", ["config.json", "model.safetensors"]),
    }
    monkeypatch.setattr(Hub, "create_repo", None)
    with pytest.raises(CheckpointError, match="'me/mine' could not be uploaded") as caught:
        drafter.push_to_hub("me/mine")
    assert "\n" not in str(caught.value)


def test_rounds_of_transformers_generate_have_as_many_drafts_as_asked_for():
    target, drafters = toy_models(vocab_size=23, gamma=4)
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    own = target.model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    for count in (1, 3, None):
        drafted = CustomGenerate(
            drafters["dspark"],
            target.model,
            num_speculative_tokens=count,
            policy=lambda p: whole(p),
        )
        found = target.model.generate(
            ids, attention_mask=torch.ones_like(ids), custom_generate=drafted, **options
        )
        assert torch.equal(own, found)
        rounds = [played for answer in drafted.answers for played in answer.rounds]
        assert max(played.proposed for played in rounds) == (count or 4)
    for count in (0, 5, 1.5):
        with pytest.raises(RequestError, match="drafts between 1 and 4"):
            CustomGenerate(drafters["dspark"], target.model, num_speculative_tokens=count)


def whole(proposal):
    """The lengths of whole blocks."""
    return torch.full((len(proposal.tokens),), proposal.tokens.shape[1])


# Names ---------------------------------------------------------------------------------------------------------------


def test_a_name_that_is_nearly_right_is_hinted_at(capsys):
    def said(*arguments):
        assert main([*arguments]) == 2
        return capsys.readouterr().err

    assert "did you mean train?" in said("trian")
    assert "did you mean tiny-target?" in said("demo", "--target", "tiny-taget")
    assert "did you mean evening-tiny?" in said("train", "evening-tny", "--estimate")
    assert "did you mean epochs?" in said("train", "evening-tiny", "--set", "epoch=3", "--estimate")
    assert "did you mean gsm8k?" in said("evaluate", "--benchmark", "gsm8")
    with pytest.raises(AttributeError, match="did you mean generate?"):
        getattr(dspark_lite, "".join(["gen", "rate"]))


def test_every_public_name_is_there_and_on_the_page_of_the_api():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in set(dspark_lite.__all__) - {"__version__"}:
        assert getattr(dspark_lite, name).__doc__ and f"`{name}" in page, name


def test_one_target_that_cannot_be_read_hides_no_other(capsys, tmp_path):
    file = tmp_path / "fits.json"
    call = ["inspect", "tiny-dspark", "--json", str(file), "--target"]
    assert main([*call, "tiny-target"]) == 0
    capsys.readouterr()
    assert main([*call, "tiny-target", "tiny-dspark", "nowhere"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("target ")]
    assert "tiny-target: fits" in lines[0]
    assert "tiny-dspark: does not fit" in lines[1] and "not a target" in lines[1]
    assert "nowhere: does not fit" in lines[2] and "there is no checkpoint" in lines[2]
    assert [fit["fits"] for fit in json.loads(file.read_text())["targets"]] == [True, False, False]


@pytest.mark.parametrize(
    "function",
    [
        dspark_lite.load_target,
        dspark_lite.load_drafter,
        dspark_lite.generate,
        dspark_lite.stream,
        dspark_lite.stream_text,
        dspark_lite.Engine.__init__,
        dspark_lite.Engine.generate,
        dspark_lite.Engine.stream,
    ],
    ids=lambda function: function.__qualname__,
)
def test_what_a_program_calls_is_annotated_for_checkers(function):
    signature = inspect.signature(function)
    open_ended = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    bare = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.name != "self"
        and parameter.kind not in open_ended
        and parameter.annotation is parameter.empty
    ]
    assert not bare
    if function.__name__ != "__init__":
        assert signature.return_annotation is not signature.empty


def test_ctrl_c_in_a_bench_keeps_the_prompts_that_all_drafters_have_answered(tiny_lab, monkeypatch):
    calls = []

    def rollout(lab, drafter, text, index, *, temperature):
        calls.append(index)
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        played = Round(2, 1, 2, [1, 2], [1, 3], 0.1, 0.1)
        return Generation([1, 1, 3], [played] * (1 + index), 0.1, 0.2 * (1 + index))

    monkeypatch.setattr(speed, "rollout", rollout)
    stop_at = 2 + 2 * 3 + 2  # two warm up, two answer each prompt; the fourth prompt has one answer
    measured = speed.bench(tiny_lab, ["prompt_lookup"], prompts=5, temperature=0.0)
    assert measured["interrupted"] and [row["drafter"] for row in measured["rows"]] == [
        "plain",
        "prompt_lookup",
    ]
    assert {row["accepted_length"] for row in measured["rows"]} == {2.0}
    calls, stop_at = [], 4  # before all have answered one
    with pytest.raises(KeyboardInterrupt):
        speed.bench(tiny_lab, ["prompt_lookup"], prompts=5, temperature=0.0)


def test_a_target_with_a_learned_prefix_of_its_own_is_refused_in_a_sentence():
    kind = transformers.CpmAntForCausalLM
    model = kind(
        kind.config_class(
            vocab_size=96,
            hidden_size=32,
            num_attention_heads=4,
            dim_head=8,
            dim_ff=32,
            num_hidden_layers=2,
        )
    )
    with pytest.raises(CheckpointError, match="a learned prefix of 32 tokens"):
        CustomGenerate("prompt_lookup", model.eval())


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (
            transformers.Qwen2Config(
                hidden_size=48, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2
            ),
            2 * 8,
        ),
        (transformers.GPT2Config(n_embd=48, n_layer=3, n_head=6), 6 * 8),
        (
            transformers.Qwen3Config(
                hidden_size=48,
                num_hidden_layers=3,
                num_attention_heads=6,
                num_key_value_heads=2,
                head_dim=16,
            ),
            2 * 16,
        ),
    ],
)
def test_the_keys_and_values_of_a_token_are_counted_for_every_family(config, size):
    assert kv_bytes(config, 2) == 2 * 3 * size * 2
