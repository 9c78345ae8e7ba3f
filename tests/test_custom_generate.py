"""transformers' own `generate` with a drafter: its tokens, its arguments, one sentence for each that is not honoured. And `stream`.

On the tiny models with two prompts a domain; with twenty where DSPARK_THOROUGH=1 is in the environment.
"""

import os

import pytest
import torch
from helpers import GAMMA, VOCAB
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteria,
    TopKLogitsWarper,
)
from transformers.generation.streamers import BaseStreamer

from dspark_lite import CustomGenerate, generate, scheduling, setup, stream
from dspark_lite.common.errors import CheckpointError, RequestError
from dspark_lite.decoding.target import Target
from dspark_lite.drafters import SmallLM
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_target
from dspark_lite.models.custom_generate import Processed

PROMPTS = [torch.randint(VOCAB, (1, 3 + n), generator=torch.Generator().manual_seed(n)) for n in range(10)]
NEW = 20
TINY_PROMPTS = 20 if os.environ.get("DSPARK_THOROUGH") == "1" else 2  # a domain


@pytest.fixture(scope="module")
def model(pair):
    """A reader's own model object."""
    return load_target(str(pair / "target")).model


@pytest.fixture(scope="module")
def dspark(pair, model):
    return CustomGenerate(str(pair / "draft"), model)


def new(model, prompt, **options):
    """The new tokens of transformers' `generate`."""
    return model.generate(prompt, **{"max_new_tokens": NEW, "do_sample": False, **options})[0, prompt.shape[1]:].tolist()


def test_greedy_tokens_are_those_of_transformers_own_loop(model, dspark):
    accepted = set()
    for prompt in PROMPTS:
        assert new(model, prompt, custom_generate=dspark) == new(model, prompt)
        (answer,) = dspark.answers
        accepted |= {r.accepted for r in answer.rounds}
        assert answer.token_ids == generate(dspark.target, dspark.drafter, prompt, max_new_tokens=NEW).token_ids
    assert 0 in accepted and max(accepted) > 0


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampled_tokens_are_those_of_generate_with_the_same_seed(model, dspark, temperature):
    for seed, prompt in enumerate(PROMPTS):
        torch.manual_seed(seed)
        own = generate(dspark.target, dspark.drafter, prompt, max_new_tokens=NEW, temperature=temperature).token_ids
        torch.manual_seed(seed)
        assert new(model, prompt, do_sample=True, top_k=0, temperature=temperature, custom_generate=dspark) == own


def test_real_answers_are_those_of_transformers_own_loop_and_of_generate():
    lab = setup("tiny", prompts=TINY_PROMPTS)
    dspark, prompts = CustomGenerate("tiny-dspark", lab.target.model), [lab.encode(text) for texts in lab.prompts.values() for text in texts]
    assert len(prompts) == 3 * TINY_PROMPTS
    for seed, prompt in enumerate(prompts):
        options = {"max_new_tokens": 64, "eos_token_id": list(lab.stop_token_ids)}
        greedy = new(lab.target.model, prompt, custom_generate=dspark, **options)
        assert greedy == new(lab.target.model, prompt, **options)
        assert greedy == generate(dspark.target, dspark.drafter, prompt, max_new_tokens=64).token_ids
        torch.manual_seed(seed)
        own = generate(dspark.target, dspark.drafter, prompt, max_new_tokens=64, temperature=1.0).token_ids
        torch.manual_seed(seed)
        assert new(lab.target.model, prompt, do_sample=True, top_k=0, custom_generate=dspark, **options) == own


def test_processors_see_the_text_before_each_position(model, dspark):
    options = {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "min_new_tokens": 3, "bad_words_ids": [[4]]}
    for prompt in PROMPTS:
        penalised = new(model, prompt, **options)
        assert new(model, prompt, custom_generate=dspark, **options) == penalised
    assert penalised != new(model, prompt) and 4 not in penalised


def test_processed_logits_stay_lossless_by_enumeration():
    """The distribution with a drafter is that of the processed target alone; the cases differ from the bare target."""
    target, drafters = toy_models(vocab_size=3)
    processors = LogitsProcessorList([TopKLogitsWarper(2), RepetitionPenaltyLogitsProcessor(3.0)])
    processed = Processed(target.model, processors, 0.7)
    plain = output_distribution(processed, None, None, 3, prompt=(0, 1), temperature=0.7)
    found = output_distribution(processed, drafters["dspark"], None, 3, prompt=(0, 1), temperature=0.7)
    assert total_variation(found, plain) < 1e-5
    assert total_variation(plain, output_distribution(target, None, None, 3, prompt=(0, 1), temperature=0.7)) > 0.01


def test_the_temperature_among_processors_counts_once(model, dspark):
    """With a top-k that cuts nothing the tokens are those of plain sampling."""
    for seed, prompt in enumerate(PROMPTS):
        torch.manual_seed(seed)
        own = generate(dspark.target, dspark.drafter, prompt, max_new_tokens=NEW, temperature=0.5).token_ids
        torch.manual_seed(seed)
        assert new(model, prompt, do_sample=True, top_k=VOCAB, temperature=0.5, custom_generate=dspark) == own


def padded(prompts, fill=0):
    """Ids and attention mask [B, N] of prompts, padded on the left."""
    longest = max(prompt.shape[1] for prompt in prompts)
    rows = [(torch.cat([torch.full((1, longest - p.shape[1]), fill), p], 1),
             torch.cat([torch.zeros(1, longest - p.shape[1], dtype=torch.long), torch.ones_like(p)], 1)) for p in prompts]
    return {"input_ids": torch.cat([ids for ids, _ in rows]), "attention_mask": torch.cat([mask for _, mask in rows])}


def test_a_batch_padded_on_the_left_is_what_its_rows_are_alone(model, dspark):
    batch = padded(PROMPTS[:4])
    out = model.generate(**batch, max_new_tokens=NEW, do_sample=False, custom_generate=dspark)
    assert torch.equal(out[:, :batch["input_ids"].shape[1]], batch["input_ids"])
    assert out[:, batch["input_ids"].shape[1]:].tolist() == [new(model, prompt) for prompt in PROMPTS[:4]]
    assert len(dspark.answers) == 4


def test_rows_that_end_early_are_padded_on_the_right(model, dspark):
    texts = [new(model, prompt) for prompt in PROMPTS[:4]]
    stop = texts[0][2]
    batch, pad = padded(PROMPTS[:4]), VOCAB - 1
    options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": stop, "pad_token_id": pad}
    out = model.generate(**batch, **options, custom_generate=dspark)
    assert torch.equal(out, model.generate(**batch, **options))
    assert len({row.index(pad) if pad in row else NEW for row in out[:, batch["input_ids"].shape[1]:].tolist()}) > 1


def test_several_answers_to_a_prompt(model, dspark):
    torch.manual_seed(0)
    out = model.generate(PROMPTS[0], max_new_tokens=NEW, do_sample=True, top_k=0, num_return_sequences=3, custom_generate=dspark)
    assert out.shape == (3, PROMPTS[0].shape[1] + NEW) and len({tuple(row) for row in out.tolist()}) == 3


class AfterThree(StoppingCriteria):
    """Ends an answer after a token of three."""

    def __call__(self, input_ids, scores, **_):
        return input_ids[:, -1] == 3


def test_stopping_criteria_are_asked_after_each_token(model, dspark):
    early = 0
    for prompt in PROMPTS:
        own = new(model, prompt, stopping_criteria=[AfterThree()])
        assert new(model, prompt, stopping_criteria=[AfterThree()], custom_generate=dspark) == own
        early += own[-1] == 3
    assert early > 2


def test_stop_tokens_and_lengths_are_those_of_the_generation_config(model, dspark):
    text = new(model, PROMPTS[0])
    assert new(model, PROMPTS[0], eos_token_id=[text[4], text[7]], custom_generate=dspark) == text[:1 + min(text.index(text[4]), text.index(text[7]))]
    config = GenerationConfig(max_length=PROMPTS[0].shape[1] + 7, do_sample=False)
    out = model.generate(PROMPTS[0], generation_config=config, custom_generate=dspark)
    assert out[0].tolist() == PROMPTS[0][0].tolist() + text[:7]


class Collected(BaseStreamer):
    """Keeps what a streamer is given."""

    def __init__(self):
        self.tokens, self.ended = [], False

    def put(self, value):
        self.tokens += value.flatten().tolist()

    def end(self):
        self.ended = True


def test_a_streamer_gets_prompt_and_tokens_and_its_end(model, dspark):
    streamer = Collected()
    out = model.generate(PROMPTS[1], max_new_tokens=NEW, do_sample=False, custom_generate=dspark, streamer=streamer)
    assert streamer.tokens == out[0].tolist() and streamer.ended


def test_a_policy_chooses_what_is_verified(pair, model):
    short = CustomGenerate(str(pair / "draft"), model, policy=scheduling.fixed(2))
    assert new(model, PROMPTS[2], custom_generate=short) == new(model, PROMPTS[2])
    assert max(r.proposed for r in short.answers[0].rounds) == 2 < GAMMA


@pytest.mark.parametrize(("options", "sentence"), [
    ({"num_beams": 2}, "num_beams is 2, which is not honoured with a drafter"),
    ({"return_dict_in_generate": True}, "return_dict_in_generate is True"),
    ({"output_scores": True, "return_dict_in_generate": True}, "return_dict_in_generate is True"),
    ({"use_cache": False}, "use_cache is False"),
    ({"cache_implementation": "static"}, "cache_implementation is 'static'"),
    ({"guidance_scale": 1.5}, "guidance_scale is 1.5"),
    ({"assistant_model": "self"}, "both draft; give one of them"),
    ({"streamer": Collected(), "num_return_sequences": 2, "do_sample": True}, "a streamer takes one answer, and 2 are asked for"),
    ({"attention_mask": torch.tensor([[1, 0, 1]])}, "hides tokens inside or at the end of a prompt"),
    ({"max_new_tokens": 90}, "has positions for at most"),
])
def test_what_is_not_honoured_is_refused_in_one_sentence(model, dspark, options, sentence):
    given = {name: model if name == "assistant_model" else value for name, value in options.items()}
    with pytest.raises(RequestError, match=sentence) as caught:
        model.generate(PROMPTS[0], custom_generate=dspark, **{"max_new_tokens": 4, "do_sample": False, **given})
    assert "\n" not in str(caught.value)


def test_another_model_a_filled_cache_and_another_drafter_are_refused(pair, model, dspark):
    with pytest.raises(RequestError, match="loaded for another model object"):
        new(load_target(str(pair / "target")).model, PROMPTS[0], custom_generate=dspark)
    _, cache = dspark.target.prefill(PROMPTS[0][:, :2])
    with pytest.raises(RequestError, match="past_key_values holds tokens that the drafter has not read"):
        new(model, PROMPTS[0], custom_generate=dspark, past_key_values=cache)
    with pytest.raises(CheckpointError, match="made for a vocabulary of"):
        CustomGenerate("tiny-dspark", model)


@pytest.mark.parametrize("policy", [None, scheduling.fixed(1)], ids=["whole", "one"])
@pytest.mark.parametrize("plain", [False, True])
def test_a_stream_yields_what_generate_commits_round_for_round(dspark, plain, policy):
    drafter = None if plain else dspark.drafter
    for seed, prompt in enumerate(PROMPTS[:4]):
        options = {"max_new_tokens": NEW, "temperature": 1.0, "policy": policy, "stop_token_ids": (5,)}
        run = generate(dspark.target, drafter, prompt, generator=torch.Generator().manual_seed(seed), **options)
        first, *rounds = stream(dspark.target, drafter, prompt, generator=torch.Generator().manual_seed(seed), **options)
        assert first + sum(rounds, []) == run.token_ids and rounds == [r.tokens for r in run.rounds]


def test_a_stream_of_a_wrong_request_says_so_at_the_first_token(dspark):
    with pytest.raises(RequestError, match="max_new_tokens is 0"):
        next(stream(dspark.target, dspark.drafter, PROMPTS[0], max_new_tokens=0))


@pytest.mark.parametrize("seed", range(8))
def test_an_answer_may_fill_the_last_learned_position(seed):
    """GPT-2's table of positions ends with the answer: a block that reached past it would be an IndexError."""
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=10, n_positions=32, n_embd=16, n_layer=1, n_head=2, eos_token_id=None, bos_token_id=None, initializer_range=1.0)
    gpt2, prompt = GPT2LMHeadModel(config).eval(), torch.arange(28)[None] % 10
    options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 4, "pad_token_id": 0}
    plain = new(gpt2, prompt, **options)
    assert len(plain) == 4 and new(gpt2, prompt, custom_generate=CustomGenerate("prompt_lookup", gpt2), **options) == plain
    target = Target(gpt2)
    for gamma in (1, 3, 7):  # the drafter has the same table
        assert generate(target, SmallLM(target, gamma), prompt, max_new_tokens=4, stop_token_ids=()).token_ids == plain
