"""Mistakes that raise nothing and only lower the accepted length: those that loading or asking can detect are detected here.

What a config says (taps, mask token, layout, positions, another target) tests/test_checkpoints.py has. What no loader can see:

- a tap that exists and is the wrong one, and one layout's weights under the other's config (lesson 08 stages both, and
  tests/test_layouts.py shows the symptom of the second);
- positions that restart at the block, rejected tokens left in a cache, the mask in the anchor's slot, a gate behind the
  verification: mistakes of code, not of a checkpoint. tests/test_drafters.py and tests/test_decoding.py hold ours against
  them; lesson 08 stages the stale cache;
- near-ties between one-token and block verification in 16 bit: no mistake at all; lesson 08 judges them by the gap.
"""

import json
from dataclasses import replace

import pytest
import torch

from dspark_lite.common.errors import RequestError
from dspark_lite.decoding import generate
from dspark_lite.decoding.sampling import accept, probabilities
from dspark_lite.models.checkpoints import default_dtype, load_drafter, load_target
from helpers import PROMPT, assert_refused, set_config, set_tensors


def draft(copy):
    """The name of the pair's draft."""
    return str(copy / "draft")


def answer(target, drafter=None, **options):
    """Token ids of a sampled run with a seed."""
    return generate(
        target,
        drafter,
        PROMPT,
        max_new_tokens=24,
        stop_token_ids=(),
        generator=torch.Generator().manual_seed(3),
        **options,
    ).token_ids


@pytest.mark.parametrize("change", ["missing", "left over"])
def test_a_head_of_which_the_config_says_another_thing_than_the_weights(copy, target, change):
    """A draft without its sequential head drafts, only worse: nothing may be filled in, nothing passed over."""
    if change == "missing":
        set_tensors(
            copy / "draft",
            lambda tensors: {
                name: value for name, value in tensors.items() if "markov" not in name
            },
        )
    else:
        set_config(copy / "draft", markov_rank=0, confidence_head_with_markov=False)
    assert_refused(
        "tensor (confidence_head.proj|markov_head.markov_w1).weight of draft has shape",
        load_drafter,
        draft(copy),
        target,
    )


THOUGHT = "<think>\n\n</think>\n\n"


def test_a_lab_encodes_prompts_with_thinking_off_unless_it_is_asked_for(tiny_lab):
    lab = tiny_lab
    prompt = lab.prompts["math"][0]
    assert lab.tokenizer.decode(lab.encode(prompt)[0]).endswith("assistant\n" + THOUGHT)
    on = lab.tokenizer.decode(lab.encode(prompt, enable_thinking=True)[0])
    assert on == lab.tokenizer.decode(lab.encode(prompt)[0]).removesuffix(THOUGHT)


def test_blocks_are_drawn_from_the_float32_numbers_that_are_claimed(copy):
    """Also of 16-bit weights: a softmax rounded to bfloat16 sums to 1 only within a part in a hundred."""
    half = load_target(str(copy / "target"), dtype=torch.bfloat16)
    drafter = load_drafter(draft(copy), half)
    output, cache = half.prefill(PROMPT, drafter.taps)
    anchor = output.logits[:, -1].argmax(-1)
    proposal = drafter.propose(
        drafter.begin(PROMPT, output.features),
        anchor,
        temperature=1.0,
        generator=torch.Generator().manual_seed(0),
    )
    judged = probabilities(
        half.verify(torch.cat([anchor[:, None], proposal.tokens], 1), cache, drafter.taps).logits,
        1.0,
    )
    for probs in (proposal.probs, judged):
        assert probs.dtype == torch.float32 and (probs.sum(-1) - 1).abs().max() < 1e-6
    rounded = proposal.probs.bfloat16().float()
    assert (rounded.sum(-1) - 1).abs().max() > 1e-4  # what would be claimed otherwise
    assert accept(
        judged, proposal.probs, proposal.tokens, None, torch.Generator().manual_seed(0)
    ).accepted.shape == (1,)


@pytest.mark.parametrize(
    "left",
    [
        {"top_k": 1},
        {"do_sample": False},
        {"temperature": 0.01},
        {"top_k": 20, "top_p": 0.1, "do_sample": True},
    ],
)
def test_sampling_defaults_of_a_checkpoint_are_not_read(copy, target, left):
    path = copy / "target" / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | left))
    loaded = load_target(str(copy / "target"))
    sampled = answer(loaded, temperature=1.0)
    assert sampled == answer(target, temperature=1.0) and sampled != answer(target)
    drafter = load_drafter(draft(copy), loaded)
    assert answer(loaded, drafter, temperature=1.0) == answer(
        target, load_drafter(draft(copy), target), temperature=1.0
    )


def test_bfloat16_is_refused_on_a_gpu_that_would_emulate_it(copy, monkeypatch):
    for name in ("cuda", "cuda:1"):
        with pytest.raises(RequestError, match=f"{name}', and torch finds no such GPU"):
            load_target(str(copy / "target"), device=name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))  # a T4
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)  # its answer
    assert default_dtype(torch.device("cuda")) == torch.float16
    assert_refused(
        r"this GPU \(compute capability 7.5\) has no bfloat16 .*; load with dtype=torch.float16",
        load_target,
        str(copy / "target"),
        device="cuda",
        dtype=torch.bfloat16,
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
    assert default_dtype(torch.device("cuda")) == torch.bfloat16
    # a CPU computes in it natively or slowly, as it can
    assert load_target(str(copy / "target"), dtype=torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("where", ["prompt", 0, 1, -1, "draft"])
def test_overflowed_numbers_end_in_a_sentence_and_not_in_a_text(copy, target, monkeypatch, where):
    """As float16 does to activations above 65,504: nan in the logits after the prompt, at one position of a block, or in the draft's."""
    drafter, whose = load_drafter(draft(copy), target), "target's logits"
    prefill, verify, propose = target.prefill, target.verify, drafter.propose

    def overflowed(step):
        step.logits[:, -1 if where == "prompt" else where] = torch.nan
        return step

    if where == "draft":
        whose = "drafter's probabilities"
        monkeypatch.setattr(
            drafter,
            "propose",
            lambda *given, **options: replace(
                propose(*given, **options),
                probs=torch.full((1, drafter.gamma, target.vocab_size), torch.nan),
            ),
        )
    elif where == "prompt":
        monkeypatch.setattr(
            target,
            "prefill",
            lambda *given, **options: (
                overflowed((read := prefill(*given, **options))[0]),
                read[1],
            ),
        )
    else:
        monkeypatch.setattr(
            target, "verify", lambda *given, **options: overflowed(verify(*given, **options))
        )
    with pytest.raises(
        RequestError, match=f"the {whose} are not finite; load the model in bfloat16 or float32"
    ):
        answer(target, drafter)
