"""Mistakes that raise nothing and only lower the accepted length: those that loading or asking can detect are detected here.

One test a row, with what of it can be seen before a token is drafted. What no loader can see:

- a tap that exists and is the wrong one, and one layout's weights under the other's config (lesson 08 stages both, and
  tests/test_layouts.py shows the symptom of the second);
- positions that restart at the block, rejected tokens left in a cache, the mask in the anchor's slot, a gate behind the
  verification: mistakes of code, not of a checkpoint. tests/test_drafters.py and tests/test_decoding.py hold ours against
  them; lesson 08 stages the stale cache;
- near-ties between one-token and block verification in 16 bit: no mistake at all; lesson 08 judges them by the gap.
"""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from helpers import PROMPT, assert_refused, set_config, set_tensors

from dspark_lite.common.errors import RequestError
from dspark_lite.decoding import generate
from dspark_lite.decoding.sampling import accept, probabilities
from dspark_course.measure.lab import setup
from dspark_lite.models.checkpoints import default_dtype, load_drafter, load_target


def draft(copy):
    """The name of the pair's draft."""
    return str(copy / "draft")


def answer(target, drafter=None, **options):
    """Token ids of a sampled run with a seed."""
    return generate(target, drafter, PROMPT, max_new_tokens=24, stop_token_ids=(), generator=torch.Generator().manual_seed(3), **options).token_ids


@pytest.mark.parametrize(("taps", "sentence"), [
    ([1, 2], "taps layer 2, but this target can be tapped at -1 .* the last is read after the norm"),
    ([0, 3], "taps layer 3"),
    ([-2, 0], "taps layer -2"),
    ([0], r"tensor fc.weight of draft has shape \(16, 32\); its config.json asks for \(16, 16\)"),
    ([0, 1, 1], r"tensor fc.weight of draft has shape \(16, 32\); its config.json asks for \(16, 48\)"),
    (..., "lacks a field .*target_layer_ids")])
def test_taps_that_do_not_exist_or_are_not_as_many_as_the_weights_read(copy, target, taps, sentence):
    set_config(copy / "draft", target_layer_ids=taps)
    assert_refused(sentence, load_drafter, draft(copy), target)


@pytest.mark.parametrize("mask", [-1, 11, 151669, ...])
def test_a_mask_token_that_the_embedding_does_not_have(copy, target, mask):
    set_config(copy / "draft", mask_token_id=mask)
    said = "mask token is .*; it must be one of its 11 tokens|lacks a field .*mask_token_id|mask_token_id of the draft is -1"
    assert_refused(said, load_drafter, draft(copy), target)


def test_the_anchor_stands_in_slot_0_and_masks_behind_it(copy, target):
    drafter = load_drafter(draft(copy), target)
    assert drafter.block_ids(torch.tensor([5])).tolist() == [[5] + [drafter.config.mask_token_id] * (drafter.gamma - 1)]


@pytest.mark.parametrize("section", [None, "dflash_config", "dspark_config"])
def test_a_checkpoint_that_fills_its_block_in_is_not_read_as_one_that_predicts_from_the_anchor(copy, target, section):
    said = {"sample_from_anchor": False}
    set_config(copy / "draft", **({section: said} if section else said))
    drafter = load_drafter(draft(copy), target)
    assert (drafter.first_slot, drafter.gamma) == (1, drafter.config.block_size - 1)


@pytest.mark.parametrize("said", ["false", 0, None, "anchor"])
def test_a_layout_that_is_not_plainly_said_is_not_guessed(copy, target, said):
    set_config(copy / "draft", sample_from_anchor=said)
    assert_refused("sample_from_anchor of this draft is .*; it must be true", load_drafter, draft(copy), target)


@pytest.mark.parametrize("gamma", [0, 5, 8])
def test_more_drafts_than_the_block_has(copy, target, gamma):
    with pytest.raises(RequestError, match=f"gamma is {gamma}; this drafter drafts between 1 and 4 tokens a block"):
        answer(target, load_drafter(draft(copy), target), gamma=gamma)


@pytest.mark.parametrize(("fields", "sentence"), [
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, "positions of rope_theta 1000000.0, this target has 10000.0"),
    ({"rope_parameters": ..., "rope_theta": 1e6}, "positions of rope_theta 1000000.0, this target has 10000.0"),
    ({"rope_theta": 1e6}, "names two bases of its rotary embedding"),
    ({"rope_parameters": ...}, "lacks a field .*rope_theta"),
    ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "scales its positions .yarn."),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "scales its positions .linear."),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "scales its positions .dynamic.")])
def test_positions_that_turn_otherwise_than_the_targets(copy, target, fields, sentence):
    set_config(copy / "draft", **fields)
    assert_refused(sentence, load_drafter, draft(copy), target)


@pytest.mark.parametrize("fields", [{"causal": True}, {"dflash_config": {"causal": True}}, {"use_sliding_window": True},
                                    {"layer_types": ["sliding_attention"]}])
def test_a_block_that_sees_less_than_ours(copy, target, fields):
    set_config(copy / "draft", **fields)
    assert_refused("only (blocks whose slots see|full_attention)", load_drafter, draft(copy), target)


@pytest.mark.parametrize(("fields", "sentence"), [
    ({"vocab_size": 12}, "made for a vocabulary of 12 tokens, this target has 11"),
    ({"hidden_size": 32}, "made for a hidden size of 32"), ({"num_target_layers": 4}, "made for a target of 4 layers")])
def test_a_draft_of_another_target(copy, target, fields, sentence):
    set_config(copy / "draft", **fields)
    assert_refused(f"{sentence}.* load the drafter that belongs to it", load_drafter, draft(copy), target)


@pytest.mark.parametrize("change", ["missing", "left over"])
def test_a_head_of_which_the_config_says_another_thing_than_the_weights(copy, target, change):
    """A draft without its sequential head drafts, only worse: nothing may be filled in, nothing passed over."""
    if change == "missing":
        set_tensors(copy / "draft", lambda tensors: {name: value for name, value in tensors.items() if "markov" not in name})
    else:
        set_config(copy / "draft", markov_rank=0, confidence_head_with_markov=False)
    assert_refused("tensor (confidence_head.proj|markov_head.markov_w1).weight of draft has shape", load_drafter, draft(copy), target)


def test_a_lab_encodes_prompts_with_thinking_off():
    lab = setup("tiny", prompts=1)
    thought = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    prompt = lab.prompts["math"][0]
    assert lab.tokenizer.decode(lab.encode(prompt)[0]).endswith(thought)
    on = lab.tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True, enable_thinking=True)
    assert not on.endswith(thought)  # so the template does react


def test_blocks_are_drawn_from_the_float32_numbers_that_are_claimed(copy):
    """Also of 16-bit weights: a softmax rounded to bfloat16 sums to 1 only within a part in a hundred."""
    half = load_target(str(copy / "target"), dtype=torch.bfloat16)
    drafter = load_drafter(draft(copy), half)
    step, cache = half.prefill(PROMPT, drafter.taps)
    anchor = step.logits[:, -1].argmax(-1)
    proposal = drafter.propose(drafter.begin(PROMPT, step.features), anchor, temperature=1.0, generator=torch.Generator().manual_seed(0))
    judged = probabilities(half.verify(torch.cat([anchor[:, None], proposal.tokens], 1), cache, drafter.taps).logits, 1.0)
    for probs in (proposal.probs, judged):
        assert probs.dtype == torch.float32 and (probs.sum(-1) - 1).abs().max() < 1e-6
    rounded = proposal.probs.bfloat16().float()
    assert (rounded.sum(-1) - 1).abs().max() > 1e-4  # what would be claimed otherwise
    assert accept(judged, proposal.probs, proposal.tokens, None, torch.Generator().manual_seed(0)).accepted.shape == (1,)


@pytest.mark.parametrize("left", [{"top_k": 1}, {"do_sample": False}, {"temperature": 0.01}, {"top_k": 20, "top_p": 0.1, "do_sample": True}])
def test_sampling_defaults_of_a_checkpoint_are_not_read(copy, target, left):
    path = copy / "target" / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | left))
    loaded = load_target(str(copy / "target"))
    sampled = answer(loaded, temperature=1.0)
    assert sampled == answer(target, temperature=1.0) and sampled != answer(target)
    drafter = load_drafter(draft(copy), loaded)
    assert answer(loaded, drafter, temperature=1.0) == answer(target, load_drafter(draft(copy), target), temperature=1.0)


def test_bfloat16_is_refused_on_a_gpu_that_would_emulate_it(copy, monkeypatch):
    assert_refused("cannot be loaded on a GPU, because torch finds none; load with device=", load_target, str(copy / "target"), device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))  # a T4
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)  # its answer
    assert default_dtype(torch.device("cuda")) == torch.float16
    assert_refused(r"this GPU \(compute capability 7.5\) has no bfloat16 .*; load with dtype=torch.float16", load_target, str(copy / "target"),
                   device="cuda", dtype=torch.bfloat16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
    assert default_dtype(torch.device("cuda")) == torch.bfloat16
    assert load_target(str(copy / "target"), dtype=torch.bfloat16).dtype == torch.bfloat16  # a CPU computes in it natively or slowly, as it can


def test_a_vocabulary_that_the_tokenizer_exceeds(copy):
    from dspark_lite.models.checkpoints import EMBEDDED

    shutil.copy(EMBEDDED / "tiny-target" / "tokenizer.json", copy / "target")
    assert_refused("knows [0-9]+ tokens, its model 11", load_target, str(copy / "target"))


@pytest.mark.parametrize("position", [0, 1, -1])
def test_one_overflowed_position_of_a_block_is_enough(copy, target, monkeypatch, position):
    drafter, sound, passes = load_drafter(draft(copy), target), target.verify, []

    def overflowed(*given, **options):
        step = sound(*given, **options)
        passes.append(1)
        if len(passes) == 1:
            step.logits[:, position] = torch.nan
        return step

    monkeypatch.setattr(target, "verify", overflowed)
    with pytest.raises(RequestError, match="the target's logits are not finite"):
        answer(target, drafter)


@pytest.mark.parametrize(("broken", "sentence"), [("target", "the target's logits are not finite"),
                                                  ("draft", "the drafter's probabilities are not finite")])
@pytest.mark.parametrize("reads_prompt", [True, False])
def test_overflowed_numbers_end_in_a_sentence_and_not_in_a_text(copy, target, monkeypatch, broken, sentence, reads_prompt):
    """As float16 does to activations above 65,504: nan in every logit, from the prompt's pass or from a later one on."""
    drafter = load_drafter(draft(copy), target)
    if broken == "draft":
        propose = drafter.propose
        monkeypatch.setattr(drafter, "propose", lambda *given, **options: replace(propose(*given, **options),
            probs=torch.full((1, drafter.gamma, target.vocab_size), float("nan"))))
    else:
        name = "prefill" if reads_prompt else "verify"
        sound = getattr(target, name)

        def overflowed(*given, **options):
            found = sound(*given, **options)
            step = found[0] if reads_prompt else found
            broken_step = step._replace(logits=step.logits * float("nan"))
            return (broken_step, found[1]) if reads_prompt else broken_step

        monkeypatch.setattr(target, name, overflowed)
    with pytest.raises(RequestError, match=f"{sentence}; load the model in bfloat16 or float32"):
        answer(target, drafter)
