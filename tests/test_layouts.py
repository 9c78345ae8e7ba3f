"""Blocks whose anchor slot predicts, and blocks that fill themselves in: each drafted as its checkpoint says.

The second layout (`sample_from_anchor: false`) is that of the original DFlash: slot k is its own token, the anchor's slot is
nobody's. The reference tensors hold every slot of a block, so what a checkpoint read this way has to draft is written down
here slot by slot.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dspark_lite.common.errors import DSparkLiteError, RequestError
from dspark_lite.common.files import ROOT
from dspark_lite.course.measure.evaluation import mean_accepted_length, rollouts, tally
from dspark_lite.decoding import generate
from dspark_lite.drafters import DSpark, DSparkConfig
from dspark_lite.losslessness import output_distribution
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_draft_alone, load_drafter, load_target, save_draft
from dspark_lite.training.drafts import new_draft
from dspark_lite.training.recipe import DraftRecipe, DraftShape

GOLDEN = ROOT / "assets" / "reference" / "golden"
CASES = ["dspark_vanilla", "dspark_gated", "dspark_conf_plain", "dflash"]


def fill_in(folder: Path, copy: Path, section: str | None = None) -> Path:
    """A copy of a draft whose config says that the anchor's slot does not predict, on top or in a publisher's section."""
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    said = {"sample_from_anchor": False}
    (copy / "config.json").write_text(json.dumps(config | ({section: said} if section else said)))
    return copy


def literal_block(drafter, hidden, anchor):
    """Tokens and confidence logits of one block, written from the definition: slot k of hidden [g + 1, H], k from 1, is the
    token k places behind the anchor, and what the heads know before it is the token in slot k - 1."""
    tokens, confidence, previous = [], [], anchor
    for slot in range(1, len(hidden)):
        logits, inputs = drafter.lm_head(hidden[slot]), hidden[slot]
        if drafter.markov_head is not None:
            logits = logits + drafter.markov_head.step(previous, hidden[slot], None)[0]
            if drafter.config.confidence_head_with_markov:
                inputs = torch.cat([hidden[slot], drafter.markov_head.markov_w1(previous)])
        if drafter.confidence_head is not None:
            confidence.append(drafter.confidence_head(inputs))
        previous = logits.argmax()
        tokens.append(previous.item())
    return tokens, confidence


@pytest.mark.parametrize("section", [None, "dflash_config", "dspark_config"])
@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_a_block_that_fills_itself_in_is_the_reference_without_its_anchor(tmp_path, case, section):
    drafter = load_draft_alone(fill_in(GOLDEN / case / "draft", tmp_path / "draft", section))
    reference = load_file(GOLDEN / case / "tensors.safetensors")
    state, anchor = drafter.begin(None, reference["context_features"]), reference["anchor"]
    assert drafter.gamma == drafter.config.block_size - 1
    torch.testing.assert_close(
        drafter.block_hidden(state, anchor), reference["block_hidden"][:, 1:], atol=2e-4, rtol=0
    )
    proposal = drafter.propose(state, anchor, temperature=0.0, generator=None)
    tokens, confidence = literal_block(drafter, reference["block_hidden"][0], anchor[0])
    assert proposal.tokens.tolist() == [tokens]
    assert (proposal.confidence_logits is None) == (confidence == [])
    if confidence:
        torch.testing.assert_close(
            proposal.confidence_logits[0], torch.stack(confidence), atol=2e-4, rtol=0
        )
    drafter.extend(state, None, reference["cycle2_new_features"])
    second = drafter.block_hidden(state, reference["cycle2_anchor"])
    torch.testing.assert_close(second, reference["cycle2_block_hidden"][:, 1:], atol=2e-4, rtol=0)


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_the_same_weights_draft_another_block_in_the_other_layout(tmp_path, case):
    """So that neither reading can stand in for the other unnoticed."""
    reference = load_file(GOLDEN / case / "tensors.safetensors")
    drafters = [
        load_draft_alone(folder)
        for folder in (
            GOLDEN / case / "draft",
            fill_in(GOLDEN / case / "draft", tmp_path / "draft"),
        )
    ]
    hidden = [
        drafter.block_hidden(
            drafter.begin(None, reference["context_features"]), reference["anchor"]
        )
        for drafter in drafters
    ]
    tokens, logits, _ = zip(
        *(
            drafter.draw_block(states, reference["anchor"], 0.0, None)
            for drafter, states in zip(drafters, hidden)
        )
    )
    assert (
        tokens[0].equal(reference["draft_tokens"]) and tokens[1].shape[1] == tokens[0].shape[1] - 1
    )
    assert (logits[0][:, :-1] - logits[1]).abs().max() > 0.1


@pytest.mark.parametrize("rank", [0, 4])
def test_a_block_that_fills_itself_in_is_lossless(rank):
    target, drafters = toy_models(gamma=3)
    shape = {
        name: getattr(drafters["dspark"].config, name) for name in DSparkConfig.__dataclass_fields__
    }
    drafter = DSpark(
        DSparkConfig(
            **shape
            | {
                "sample_from_anchor": False,
                "markov_rank": rank,
                "confidence_head_with_markov": rank > 0,
            }
        )
    )
    with torch.no_grad():
        for parameter in drafter.requires_grad_(False).eval().parameters():
            parameter.copy_(
                torch.randn(
                    parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())
                )
                * 0.6
            )
    assert drafter.gamma == 2
    plain, speculative = (output_distribution(target, one, None, 3) for one in (None, drafter))
    assert speculative.keys() == plain.keys() and all(
        abs(speculative[key] - plain[key]) < 1e-6 for key in plain
    )


def test_it_loads_drafts_and_is_asked_for_no_more_than_it_has(tmp_path):
    target, drafters = toy_models(vocab_size=11, gamma=4)
    target.model.save_pretrained(tmp_path / "target")
    save_draft(tmp_path / "draft", drafters["dspark"], target)
    assert (
        json.loads((tmp_path / "draft" / "config.json").read_text())["sample_from_anchor"] is True
    )
    target = load_target(str(tmp_path / "target"))
    drafter = load_drafter(str(fill_in(tmp_path / "draft", tmp_path / "other")), target)
    prompt = torch.tensor([[1, 2, 3]])
    asked = {"max_new_tokens": 12, "stop_token_ids": ()}
    drafted = generate(target, drafter, prompt, **asked)
    assert (
        drafted.token_ids == generate(target, None, prompt, **asked).token_ids
        and max(r.proposed for r in drafted.rounds) == 3
    )
    with pytest.raises(RequestError, match="gamma is 4; this drafter drafts between 1 and 3"):
        generate(target, drafter, prompt, gamma=4, **asked)


@pytest.mark.parametrize(("name", "kept"), [("dflash", 1.1), ("dspark", 3.0)])
def test_read_in_the_wrong_layout_little_is_accepted(tiny_lab, tmp_path, name, kept):
    """The symptom, on tiny drafters, whose anchor slot does predict: nothing is raised. A Markov head knows the token before, whichever
    slot it corrects, and so DSpark still guesses some."""
    lab = replace(tiny_lab)
    lab.max_new_tokens = 24
    texts = [prompts[0] for prompts in lab.prompts.values()]
    folder = fill_in(ROOT / "assets" / "checkpoints" / f"tiny-{name}", tmp_path / "draft")
    right, wrong = (
        mean_accepted_length([tally(rollouts(lab, lab.drafter(one), texts, temperature=0.0))])
        for one in (name, str(folder))
    )
    assert right > 3.5 and wrong < kept


def test_training_in_the_other_layout_is_refused():
    shape = DraftShape(1, (0,), block_size=3, mask_token_id=1, sample_from_anchor=False)
    recipe = DraftRecipe("new", 0, 1, 1, learning_rate=0.01, precision="float32", config=shape)
    with pytest.raises(
        DSparkLiteError,
        match="such drafts are read, but only those that predict from it are trained here",
    ):
        new_draft(recipe, toy_models()[0])
