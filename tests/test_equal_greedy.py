"""Greedy text of every drafter equals the target's own on held-out prompts, in float32, token for token.

The beginning of one answer a domain. The slow form: two answers a domain to their ends, or a hundred with DSPARK_THOROUGH=1 in
the environment, which takes far longer than the other slow tests.
"""

import os

import pytest
import torch

from dspark_lite.course.measure.lab import setup
from dspark_lite.course.names import DOMAINS
from dspark_lite.decoding import generate

TO_THE_END = pytest.param(
    (100 if os.environ.get("DSPARK_THOROUGH") == "1" else 2, 160),
    id="to their ends",
    marks=pytest.mark.slow(reason="writes 42 whole answers or more"),
)
DRAFTERS = ["dspark", "dflash", "eagle3", "mtp", "small_lm", "prompt_lookup"]


@pytest.fixture(scope="module", params=[pytest.param((1, 40), id="beginnings"), TO_THE_END])
def lab(request):
    """The tiny lab in float32, of so many prompts a domain and tokens an answer."""
    prompts, length = request.param
    found = setup(prompts=prompts)
    found.max_new_tokens = length
    assert found.target.dtype == torch.float32
    return found


@pytest.fixture(scope="module")
def plain(lab):
    """What the target writes by itself, {domain: list of ids a prompt}."""
    return {
        domain: [answer(lab, None, text) for text in texts] for domain, texts in lab.prompts.items()
    }


def answer(lab, drafter, text):
    """The greedy answer's ids, stop token included."""
    return generate(
        lab.target, drafter, lab.encode(text), max_new_tokens=lab.max_new_tokens
    ).token_ids


def gap_where_they_part(lab, text, ours, wanted):
    """Where two answers split, and how far apart the target's logits of the two tokens are there."""
    at = next(
        (k for k, pair in enumerate(zip(ours, wanted, strict=False)) if pair[0] != pair[1]),
        min(len(ours), len(wanted)),
    )
    if at >= min(len(ours), len(wanted)):
        return f"one answer ends at token {at}"
    context = torch.cat([lab.encode(text), torch.tensor([wanted[:at]], dtype=torch.long)], 1)
    logits = lab.target.prefill(context)[0].logits[0, -1]
    return f"they split at token {at}, where the logits differ by {(logits[wanted[at]] - logits[ours[at]]).item():.2e}"


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_answers_equal_plain_decoding(lab, plain, name, domain):
    drafter = lab.drafter(name)
    for text, wanted in zip(lab.prompts[domain], plain[domain], strict=True):
        ours = answer(lab, drafter, text)
        assert ours == wanted, f"{name} on {text!r}: " + gap_where_they_part(
            lab, text, ours, wanted
        )


@pytest.mark.parametrize("lab", [TO_THE_END], indirect=True)
def test_answers_differ_and_some_end_with_a_stop_token(lab, plain):
    answers = [tokens for texts in plain.values() for tokens in texts]
    assert len({tuple(tokens) for tokens in answers}) > len(answers) // 2
    assert len(answers) / 4 < sum(tokens[-1] in lab.stop_token_ids for tokens in answers), (
        "the others are cut at the lab's length"
    )
