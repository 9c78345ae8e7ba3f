"""transformers' own `generate` with a drafter: its tokens, its arguments, one sentence for each that is not honoured. And `stream`.

On the tiny models with two prompts a domain; with twenty where DSPARK_THOROUGH=1 is in the environment.
"""

import inspect
import os
import threading

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StopStringCriteria,
    SynthIDTextWatermarkingConfig,
    TemperatureLogitsWarper,
    TextIteratorStreamer,
    WatermarkingConfig,
    pipeline,
)
from transformers.generation.streamers import BaseStreamer

from dspark_lite import CustomGenerate, generate, scheduling, setup, stream
from dspark_lite.common.errors import CheckpointError, RequestError
from dspark_lite.custom_generate.request_batch import SCORE_WARPERS, Payoff, Warped
from dspark_lite.decoding import rows as rows_of_a_pass
from dspark_lite.decoding.target import Target
from dspark_lite.drafters import SmallLM
from dspark_lite.losslessness import total_variation
from dspark_lite.losslessness.enumeration import outcomes, summed
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, load_target
from dspark_lite.scheduling.cost_table import CostTable
from helpers import GAMMA, VOCAB

PROMPTS = [
    torch.randint(VOCAB, (1, 3 + n), generator=torch.Generator().manual_seed(n)) for n in range(10)
]
NEW = 20
TINY_PROMPTS = 20 if os.environ.get("DSPARK_THOROUGH") == "1" else 2  # a domain


@pytest.fixture(scope="module")
def model(pair):
    """A reader's own model object."""
    return load_target(str(pair / "target")).model


@pytest.fixture(scope="module")
def dspark(pair, model):
    return CustomGenerate(str(pair / "draft"), model)


@pytest.fixture(scope="module")
def twin(model):
    """The model as its own drafter: everything is accepted."""
    return CustomGenerate(SmallLM(Target(model), GAMMA), model)


def new(model, prompt, **options):
    """The new tokens of transformers' `generate`."""
    return model.generate(prompt, **{"max_new_tokens": NEW, "do_sample": False, **options})[
        0, prompt.shape[1] :
    ].tolist()


def test_greedy_tokens_are_those_of_transformers_own_loop(model, dspark):
    accepted = set()
    for prompt in PROMPTS:
        assert new(model, prompt, custom_generate=dspark) == new(model, prompt)
        (answer,) = dspark.answers
        accepted |= {r.accepted for r in answer.rounds}
        assert (
            answer.token_ids
            == generate(dspark.target, dspark.drafter, prompt, max_new_tokens=NEW).token_ids
        )
    assert 0 in accepted and max(accepted) > 0


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.6, 0), (0.5, VOCAB)])
def test_sampled_tokens_are_those_of_generate_with_the_same_seed(model, dspark, temperature, top_k):
    """A top-k that cuts nothing changes nothing: the temperature among processors counts once."""
    for seed, prompt in enumerate(PROMPTS[:4]):
        torch.manual_seed(seed)
        own = generate(
            dspark.target, dspark.drafter, prompt, max_new_tokens=NEW, temperature=temperature
        ).token_ids
        torch.manual_seed(seed)
        assert (
            new(
                model,
                prompt,
                do_sample=True,
                top_k=top_k,
                temperature=temperature,
                custom_generate=dspark,
            )
            == own
        )


@pytest.mark.parametrize(
    ("prompts", "longest"),
    [
        (1, 24),
        pytest.param(
            TINY_PROMPTS,
            64,
            marks=pytest.mark.slow(reason="whole answers of the tiny models, each five times"),
        ),
    ],
)
def test_real_answers_are_those_of_transformers_own_loop_and_of_generate(prompts, longest):
    lab = setup("tiny", prompts=prompts)
    model, dspark = lab.target.model, CustomGenerate("tiny-dspark", lab.target.model)
    options = {"max_new_tokens": longest, "eos_token_id": list(lab.stop_token_ids)}
    for seed, prompt in enumerate(
        lab.encode(text) for texts in lab.prompts.values() for text in texts
    ):
        greedy = new(model, prompt, custom_generate=dspark, **options)
        assert (
            greedy
            == new(model, prompt, **options)
            == generate(dspark.target, dspark.drafter, prompt, max_new_tokens=longest).token_ids
        )
        torch.manual_seed(seed)
        own = generate(
            dspark.target, dspark.drafter, prompt, max_new_tokens=longest, temperature=1.0
        ).token_ids
        torch.manual_seed(seed)
        assert new(model, prompt, do_sample=True, top_k=0, custom_generate=dspark, **options) == own
    assert seed == 3 * prompts - 1


def padded(prompts, fill=0):
    """Ids and attention mask [B, N] of prompts, padded on the left."""
    longest = max(prompt.shape[1] for prompt in prompts)
    rows = [
        (
            torch.cat([torch.full((1, longest - p.shape[1]), fill), p], 1),
            torch.cat(
                [torch.zeros(1, longest - p.shape[1], dtype=torch.long), torch.ones_like(p)], 1
            ),
        )
        for p in prompts
    ]
    return {
        "input_ids": torch.cat([ids for ids, _ in rows]),
        "attention_mask": torch.cat([mask for _, mask in rows]),
    }


TRIE = {
    (): [5],
    (5,): [6, 8],
    (5, 6): [7],
    (5, 8): [9, 10],
    (5, 6, 7): [2],
    (5, 8, 9): [2],
    (5, 8, 10): [1],
    (5, 8, 10, 1): [2],
}


class Remembering(LogitsProcessor):
    """Allows what it has counted its calls to; every text it sees is the last one and a token."""

    def __init__(self):
        self.calls, self.length = 0, None

    def __call__(self, input_ids, scores):
        assert self.length in (None, input_ids.shape[1] - 1)
        self.length, self.calls = input_ids.shape[1], self.calls + 1
        allowed = torch.full_like(scores, -torch.inf)
        allowed[:, [[1, 2], [3, 4, 5]][self.calls % 2]] = 0
        return scores + allowed


class ByRow(LogitsProcessor):
    """Has a bias for each row of the batch that it was made for."""

    def __call__(self, input_ids, scores):
        return scores + torch.arange(len(scores))[:, None] * torch.arange(VOCAB).remainder(7)


PROCESSORS = {
    "repetition_penalty": {"repetition_penalty": 1.6},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 1.6},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 2},
    "min_new_tokens": {"min_new_tokens": 9, "eos_token_id": [0, 4, 8]},
    "min_length": {"min_length": 14, "eos_token_id": [0, 4, 8]},
    "bad_words_ids": {"bad_words_ids": [[4], [7, 3]]},
    "sequence_bias": {"sequence_bias": [[[3], 4.0], [[3, 9], 8.0]]},
    "forced_eos_token_id": {"forced_eos_token_id": 7},
    "forced_bos_token_id": {"forced_bos_token_id": 7},
    "suppress_tokens": {"suppress_tokens": list(range(0, VOCAB, 3))},
    "begin_suppress_tokens": {"begin_suppress_tokens": list(range(0, VOCAB, 2))},
    "exponential_decay_length_penalty": {
        "exponential_decay_length_penalty": (3, 1.5),
        "eos_token_id": 7,
    },
    "remove_invalid_values": {"remove_invalid_values": True},
    "renormalize_logits": {"renormalize_logits": True},
    "guidance_scale": {"guidance_scale": 1.5},
    "watermark": {"watermarking_config": WatermarkingConfig(bias=3.0)},
    "synthid": {
        "watermarking_config": SynthIDTextWatermarkingConfig(
            ngram_len=3, keys=[3, 5, 7], context_history_size=8
        )
    },
    "prefix by row": {"prefix_allowed_tokens_fn": lambda row, _: [[1, 2, 3], [4, 5, 6]][row]},
    "prefix by trie": {
        "prefix_allowed_tokens_fn": lambda _, ids: TRIE.get(
            tuple(ids[12:].tolist()), [0] if 2 in ids[12:] else []
        ),
        "eos_token_id": 2,
    },
    "several": {
        "repetition_penalty": 1.7,
        "no_repeat_ngram_size": 2,
        "min_new_tokens": 3,
        "bad_words_ids": [[4]],
    },
    "by row": {"logits_processor": lambda: [ByRow()]},
    "with memory": {"logits_processor": lambda: [Remembering()]},
}
WARPERS = {
    "temperature": {"temperature": 0.6},
    "the caller's temperature": {"logits_processor": lambda: [TemperatureLogitsWarper(0.3)]},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.1},
    "typical_p": {"typical_p": 0.6},
    "epsilon_cutoff": {"epsilon_cutoff": 0.01},
    "eta_cutoff": {"eta_cutoff": 0.01},
    "all": {"temperature": 0.8, "top_k": 9, "top_p": 0.9},
}


def both(model, custom, options, seed=0, **more):
    """What transformers' loop and a CustomGenerate make of two prompts of 12 and 3 tokens, padded on the left."""
    options = {"max_new_tokens": 14, "pad_token_id": VOCAB - 1, **options, **more}
    for generating in (None, custom):
        torch.manual_seed(seed)
        fresh = {
            name: LogitsProcessorList(value()) if name == "logits_processor" else value
            for name, value in options.items()
        }
        yield model.generate(
            **padded([PROMPTS[9], PROMPTS[0]]), **fresh, custom_generate=generating
        )


@pytest.mark.parametrize("options", PROCESSORS.values(), ids=PROCESSORS)
def test_processors_are_handed_what_transformers_own_loop_hands_them(model, dspark, options):
    """In two rows, one of them padded; greedy text with a drafter, and sampled text in the same loop without one."""
    plain, drafted = both(model, dspark, options, do_sample=False)
    assert torch.equal(plain, drafted) and dspark.answers[0].rounds
    plain, sampled = both(model, CustomGenerate(None, model), options, do_sample=True, top_k=0)
    assert torch.equal(plain, sampled)


@pytest.mark.parametrize("options", WARPERS.values(), ids=WARPERS)
def test_sampling_without_a_drafter_is_that_of_transformers_own_loop(model, options):
    plain, sampled = both(
        model, CustomGenerate(None, model), {"top_k": 0, **options}, do_sample=True
    )
    assert torch.equal(plain, sampled)


@pytest.mark.parametrize("sampled", [False, True])
def test_scores_and_logits_are_those_of_transformers_own_loop(model, dspark, sampled):
    """Of every row at every step, after its end too."""
    options = {
        "repetition_penalty": 1.3,
        "return_dict_in_generate": True,
        "output_scores": True,
        "output_logits": True,
        "eos_token_id": [4, 8, 12],
    }
    custom = CustomGenerate(None, model) if sampled else dspark
    plain, drafted = both(model, custom, options, do_sample=sampled, top_k=20)
    assert (
        torch.equal(plain.sequences, drafted.sequences)
        and (drafted.sequences[:, -1] == VOCAB - 1).any()
    ), "no row ended early"
    for part in ("scores", "logits"):  # float32 in other shapes; another token's are off by 1
        torch.testing.assert_close(
            torch.stack(getattr(drafted, part)),
            torch.stack(getattr(plain, part)),
            atol=1e-4,
            rtol=1e-4,
        )


ASKED = {
    "return_dict_in_generate": True,
    "output_scores": True,
    "output_logits": True,
    "max_new_tokens": 12,
    "top_k": 0,
}


def ends_within_a_block(answer):
    """Whether a draft ended the answer, with others behind it."""
    return any(r.accepted == r.committed < r.proposed for r in answer.rounds[-1:])


@pytest.mark.parametrize(
    ("name", "policy"),
    [("twin", None), ("twin", scheduling.fixed(2)), ("dspark", None)],
    ids=["twin", "twin of two", "dspark"],
)
def test_behind_a_rows_end_scores_and_logits_are_those_after_padding(
    model, twin, dspark, name, policy
):
    """Wherever in a block it ends: the drafts that are left over are not what the row goes on with."""
    custom, inside = (
        CustomGenerate({"twin": twin, "dspark": dspark}[name].drafter, model, policy=policy),
        0,
    )
    for stop in {*new(model, PROMPTS[9])[:8], *new(model, PROMPTS[0])[:8]}:
        plain, drafted = both(
            model, custom, {**ASKED, "eos_token_id": [VOCAB + 5, stop]}, do_sample=False
        )
        assert torch.equal(plain.sequences, drafted.sequences)
        for part in ("scores", "logits"):
            torch.testing.assert_close(
                torch.stack(getattr(drafted, part)),
                torch.stack(getattr(plain, part)),
                atol=1e-5,
                rtol=1e-5,
            )
        inside += any(map(ends_within_a_block, custom.answers))
    assert inside or name == "dspark", "no row ended inside a block"


def test_sampled_logits_are_the_models_own_for_the_very_sequences_behind_a_rows_end_too(
    model, twin
):
    inside, prompts = 0, [PROMPTS[9], PROMPTS[0]]
    for seed in range(6):
        torch.manual_seed(seed)
        out = model.generate(
            **padded(prompts),
            **ASKED,
            do_sample=True,
            eos_token_id=[4, 8],
            pad_token_id=VOCAB - 1,
            custom_generate=twin,
        )
        for row, prompt in enumerate(prompts):
            told = model(out.sequences[row : row + 1, 12 - prompt.shape[1] :]).logits[
                0, prompt.shape[1] - 1 : -1
            ]
            torch.testing.assert_close(
                torch.stack([logits[row] for logits in out.logits]), told, atol=1e-5, rtol=1e-5
            )
        inside += any(map(ends_within_a_block, twin.answers))
    assert inside, "no row ended inside a block"


def test_every_answer_to_a_prompt_has_its_own_place_in_the_batch(model, dspark):
    options = {"max_new_tokens": 6, "num_return_sequences": 2, "do_sample": True, "pad_token_id": 0}
    out = model.generate(
        **padded([PROMPTS[9], PROMPTS[0]]),
        **options,
        prefix_allowed_tokens_fn=lambda row, _: [[1, 2], [3, 4], [5, 6], [7, 8]][row],
        custom_generate=dspark,
    )
    assert [
        set(row.tolist()) <= {2 * place + 1, 2 * place + 2} for place, row in enumerate(out[:, 12:])
    ] == [True] * 4


# Distributions

STEPS = 4


def exact(model, processors, prompt):
    """The probability of each answer of STEPS tokens, token by token from the model and the processors alone."""
    found = {(): 1.0}
    for _ in range(STEPS):
        longer = {}
        for answer, probability in found.items():
            ids = torch.tensor([[*prompt, *answer]])
            probs = processors(ids, model(ids).logits[:, -1]).softmax(-1)[0]
            longer |= {
                (*answer, token): probability * share
                for token, share in enumerate(probs.tolist())
                if share > 0
            }
        found = longer
    return found


WARPED = {
    "top-k": {"top_k": 2},
    "top-p and temperature": {"top_k": 0, "top_p": 0.8, "temperature": 0.7},
    "top-k and repetition": {"top_k": 2, "repetition_penalty": 3.0},
}
LIGHT = [
    ("dspark", "top-p and temperature"),
    ("small_lm", "top-k"),
    ("prompt_lookup", "top-k and repetition"),
]
SLOW_WARPED = pytest.mark.slow(reason="every path of choices for each other drafter and warper")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, WARPED[which]) for name, which in LIGHT),
        *(
            pytest.param(name, options, marks=SLOW_WARPED)
            for which, options in WARPED.items()
            for name in (
                "small_lm",
                "prompt_lookup",
                "dflash",
                "dspark",
                "dspark_rnn",
                "eagle3",
                "mtp",
            )
            if (name, which) not in LIGHT
        ),
    ],
)
def test_drafts_through_warpers_are_lossless_by_enumeration(name, options):
    """Every path of choices of the whole call, against a product of the processed model's own probabilities."""
    target, drafters = toy_models(vocab_size=3)
    prompt, custom = (0, 1), CustomGenerate(drafters[name], target.model)

    def call(path):
        custom.generator = path
        out = target.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, 2),
            max_new_tokens=STEPS,
            do_sample=True,
            **options,
            logits_processor=LogitsProcessorList([lambda input_ids, scores: scores]),
            custom_generate=custom,
        )
        return tuple(out[0, 2:].tolist())

    config = GenerationConfig(do_sample=True, **options)
    processors = target.model._get_logits_processor(config, input_ids_seq_length=2, device="cpu")
    assert total_variation(summed(outcomes(call)), exact(target.model, processors, prompt)) < 1e-5


def test_drafts_lie_within_the_requests_top_k_and_are_accepted_as_greedy_ones_are(model, dspark):
    """Top-k 1 is greedy decoding: the same text in the same rounds."""

    def answer(prompt, **options):
        return new(model, prompt, custom_generate=dspark, **options), [
            r.accepted for r in dspark.answers[0].rounds
        ]

    for prompt in PROMPTS[::3]:
        assert answer(prompt, do_sample=True, top_k=1) == answer(prompt)


@pytest.mark.parametrize("warper", SCORE_WARPERS, ids=lambda warper: warper.__name__)
def test_a_certain_draft_stays_certain(warper):
    certain = torch.eye(VOCAB)[None, :3]
    arguments = {"TopKLogitsWarper": 3}.get(warper.__name__, 0.5)
    assert torch.equal(Warped([warper(arguments)], None).warp(certain), certain)


def test_a_batch_padded_on_the_left_is_what_its_rows_are_alone(model, dspark):
    batch = padded(PROMPTS[:4])
    ids, start = batch["input_ids"], batch["input_ids"].shape[1]
    out = model.generate(**batch, max_new_tokens=NEW, do_sample=False, custom_generate=dspark)
    assert out[:, :start].equal(ids) and out[:, start:].tolist() == [
        new(model, prompt) for prompt in PROMPTS[:4]
    ]
    assert len(dspark.answers) == 4


def test_several_answers_to_a_prompt(model, dspark):
    torch.manual_seed(0)
    out = model.generate(
        PROMPTS[0],
        max_new_tokens=NEW,
        do_sample=True,
        top_k=0,
        num_return_sequences=3,
        custom_generate=dspark,
    )
    assert (
        out.shape == (3, PROMPTS[0].shape[1] + NEW)
        and len({tuple(row) for row in out.tolist()}) == 3
    )


def test_stop_tokens_and_lengths_are_those_of_the_generation_config(model, dspark):
    text = new(model, PROMPTS[0])
    for stops in (
        [text[4], text[7]],
        [text[7], text[4]],
        [VOCAB + 5, text[7]],
        [text[7], VOCAB + 5],
        text[7],
    ):
        end = 1 + min(text.index(stop) for stop in np.ravel(stops) if stop in text)
        assert new(model, PROMPTS[0], eos_token_id=stops, custom_generate=dspark) == text[:end]
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


def test_a_policy_chooses_what_is_verified(pair, model):
    short = CustomGenerate(str(pair / "draft"), model, policy=scheduling.fixed(2))
    assert new(model, PROMPTS[2], custom_generate=short) == new(model, PROMPTS[2])
    assert max(r.proposed for r in short.answers[0].rounds) == 2 < GAMMA


def test_a_policy_that_remembers_starts_anew_with_every_call(pair, model):
    table = CostTable(range(1, 6), [1 / (1 + size) for size in range(1, 6)])
    lagged = CustomGenerate(str(pair / "draft"), model, policy=scheduling.LaggedTopK(table))
    proposed = []
    for prompt in (PROMPTS[2], PROMPTS[5], PROMPTS[2]):
        new(model, prompt, custom_generate=lagged)
        proposed.append([r.proposed for r in lagged.answers[0].rounds])
    assert proposed[0] == proposed[2] and len(set(proposed[0])) > 1


def test_draws_come_from_the_generator_that_is_given(pair, model):
    """The second call goes on where the first one ended; torch's own generator is not asked."""

    def answers(seed, calls=2):
        custom = CustomGenerate(
            str(pair / "draft"), model, generator=torch.Generator().manual_seed(seed)
        )
        return [
            new(model, PROMPTS[3], do_sample=True, top_k=0, custom_generate=custom)
            for _ in range(calls)
        ]

    before = torch.get_rng_state()
    first, again, other = answers(1), answers(1), answers(2)
    assert torch.equal(torch.get_rng_state(), before)
    assert first == again != other and first[0] != first[1]
    own = generate(
        Target(model),
        load_drafter(str(pair / "draft"), Target(model)),
        PROMPTS[3],
        max_new_tokens=NEW,
        temperature=1.0,
        generator=torch.Generator().manual_seed(1),
    )
    assert own.token_ids == first[0]


def test_the_answers_are_those_of_the_last_call(model, dspark):
    """A batch, then one prompt; each in rounds of its own."""
    list(both(model, dspark, {}, do_sample=False))
    assert len(dspark.answers) == 2
    text = new(model, PROMPTS[4], custom_generate=dspark)
    assert [answer.token_ids for answer in dspark.answers] == [text]


@pytest.mark.parametrize("most", [1, None])
def test_a_round_drafts_at_most_what_is_asked(model, dspark, most):
    custom = CustomGenerate(dspark.drafter, model, num_speculative_tokens=most)
    model.generate(
        torch.tensor([[1, 2, 3]]), custom_generate=custom, max_new_tokens=12, do_sample=False
    )
    drafted = [played.proposed for answer in custom.answers for played in answer.rounds]
    assert max(drafted) == (dspark.drafter.gamma if most is None else most)
    for wrong in (0, dspark.drafter.gamma + 1):
        with pytest.raises(RequestError):
            CustomGenerate(dspark.drafter, model, num_speculative_tokens=wrong)


def test_no_option_is_without_a_test():
    assert list(inspect.signature(CustomGenerate).parameters) == [
        "drafter",
        "model",
        "policy",
        "generator",
        "num_speculative_tokens",
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_beams": 2}, "num_beams is 2, which is not honoured with a drafter"),
        (
            {"output_hidden_states": True, "return_dict_in_generate": True},
            "output_hidden_states is True",
        ),
        (
            {"position_ids": torch.tensor([[0, 1, 7]])},
            "position_ids do not count each prompt's tokens from 0",
        ),
        ({"force_words_ids": [[5]]}, "force_words_ids is"),
        ({"use_cache": False}, "use_cache is False"),
        ({"cache_implementation": "static"}, "cache_implementation is 'static'"),
        ({"assistant_model": "self"}, "both draft; give one of them"),
        (
            {"streamer": Collected(), "num_return_sequences": 2, "do_sample": True},
            "a streamer takes one answer, and 2 are asked for",
        ),
        (
            {"attention_mask": torch.tensor([[1, 0, 1]])},
            "hides tokens inside or at the end of a prompt",
        ),
        ({"max_new_tokens": 90}, "has positions for at most"),
        ({"do_sample": True, "temperature": 1e-31}, "the temperature is 1e-31, and logits"),
    ],
)
def test_what_is_not_honoured_is_refused_in_one_sentence(model, dspark, options, sentence):
    given = {name: model if name == "assistant_model" else value for name, value in options.items()}
    with pytest.raises(RequestError, match=sentence) as caught:
        model.generate(
            PROMPTS[0], custom_generate=dspark, **{"max_new_tokens": 4, "do_sample": False, **given}
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("generate", "streamer"), ("_sample", "streamer, assistant_model=None")],
)
def test_a_caller_that_is_not_transformers_generate_is_refused(model, dspark, name, parameters):
    """A changed transformers must not lose a streamer silently."""
    calls = f"def {name}(custom, {parameters}, **given): return custom(**given)"
    exec(calls, functions := {})
    with pytest.raises(RequestError, match=f"and {name} called it; call") as caught:
        functions[name](
            dspark,
            streamer=Collected(),
            model=model,
            input_ids=PROMPTS[0],
            logits_processor=LogitsProcessorList(),
            stopping_criteria=[],
            generation_config=model.generation_config,
        )
    assert "\n" not in str(caught.value)


def test_another_model_a_filled_cache_and_another_drafter_are_refused(pair, model, dspark):
    with pytest.raises(RequestError, match="loaded for another model object"):
        new(load_target(str(pair / "target")).model, PROMPTS[0], custom_generate=dspark)
    _, cache = dspark.target.prefill(PROMPTS[0][:, :2])
    with pytest.raises(
        RequestError, match="past_key_values holds tokens that the drafter has not read"
    ):
        new(model, PROMPTS[0], custom_generate=dspark, past_key_values=cache)
    with pytest.raises(CheckpointError, match="made for a vocabulary of"):
        CustomGenerate("tiny-dspark", model)


@pytest.mark.parametrize("policy", [None, scheduling.fixed(1)], ids=["whole", "one"])
@pytest.mark.parametrize("plain", [False, True])
def test_a_stream_yields_what_generate_commits_round_for_round(dspark, plain, policy):
    drafter = None if plain else dspark.drafter
    for seed, prompt in enumerate(PROMPTS[:4]):
        options = {
            "max_new_tokens": NEW,
            "temperature": 1.0,
            "policy": policy,
            "stop_token_ids": (5,),
        }
        run = generate(
            dspark.target, drafter, prompt, generator=torch.Generator().manual_seed(seed), **options
        )
        first, *rounds = stream(
            dspark.target, drafter, prompt, generator=torch.Generator().manual_seed(seed), **options
        )
        assert first + sum(rounds, []) == run.token_ids and rounds == [r.tokens for r in run.rounds]


def test_a_stream_of_a_wrong_request_says_so_at_the_first_token(dspark):
    with pytest.raises(RequestError, match="max_new_tokens is 0"):
        next(stream(dspark.target, dspark.drafter, PROMPTS[0], max_new_tokens=0))


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_may_fill_the_last_learned_position(seed):
    """GPT-2's table of positions ends with the answer: a block that reached past it would be an IndexError."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=10,
        n_positions=32,
        n_embd=16,
        n_layer=1,
        n_head=2,
        eos_token_id=None,
        bos_token_id=None,
        initializer_range=1.0,
    )
    gpt2, prompt = GPT2LMHeadModel(config).eval(), torch.arange(28)[None] % 10
    options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 4, "pad_token_id": 0}
    plain = new(gpt2, prompt, **options)
    assert (
        len(plain) == 4
        and new(gpt2, prompt, custom_generate=CustomGenerate("prompt_lookup", gpt2), **options)
        == plain
    )
    target = Target(gpt2)
    for gamma in (1, 3, 7):  # the drafter has the same table
        assert (
            generate(
                target, SmallLM(target, gamma), prompt, max_new_tokens=4, stop_token_ids=()
            ).token_ids
            == plain
        )


# Ends


class RowsEndApart(StoppingCriteria):
    """Ends the rows of a batch after so many tokens each."""

    def __call__(self, input_ids, scores, **_):
        return input_ids.shape[1] - 12 >= torch.tensor([3, 6])


@pytest.mark.parametrize(
    "options",
    [
        {"eos_token_id": [4, 8]},
        {"eos_token_id": torch.tensor(8)},
        {"eos_token_id": np.int64(8)},
        {"eos_token_id": 8, "pad_token_id": torch.tensor(0)},
        {"eos_token_id": 8, "pad_token_id": None},
        {},
    ],
    ids=[
        "two EOS tokens",
        "a tensor",
        "of NumPy",
        "padding as a tensor",
        "no padding",
        "no EOS token",
    ],
)
def test_a_criterion_is_asked_once_for_all_rows_and_each_ends_where_it_says(model, dspark, options):
    plain, drafted = both(
        model, dspark, options, do_sample=False, stopping_criteria=[RowsEndApart()]
    )
    assert torch.equal(plain, drafted)
    if not options:
        assert [len(answer.token_ids) for answer in dspark.answers] == [3, 6]


def test_a_mask_of_floats_is_one_of_ints(model, dspark):
    batch = padded([PROMPTS[0][:, :3], PROMPTS[1]])
    options = {
        **batch,
        "attention_mask": batch["attention_mask"].float(),
        "max_new_tokens": 6,
        "do_sample": False,
        "pad_token_id": 0,
    }
    assert torch.equal(model.generate(**options), model.generate(**options, custom_generate=dspark))


def test_an_answer_counts_what_stands_before_its_end(model, dspark):
    """A block of which a criterion lets the first tokens count: the rounds say no more than the text."""
    inside = 0
    for prompt in PROMPTS[::9]:
        text = new(model, prompt, custom_generate=dspark)
        for length in range(2, NEW):
            criteria = [
                lambda ids, scores, end=prompt.shape[1] + length: torch.tensor(
                    [ids.shape[1] >= end]
                )
            ]
            ended = new(model, prompt, custom_generate=dspark, stopping_criteria=criteria)
            (answer,) = dspark.answers
            assert (
                ended == text[:length] == answer.token_ids
                and 1 + sum(r.committed for r in answer.rounds) == length
            )
            assert sum((r.tokens for r in answer.rounds), answer.token_ids[:1]) == ended
            inside += answer.rounds[-1].accepted == answer.rounds[-1].committed
    assert inside, "no answer ended inside a block"


@pytest.mark.parametrize("count", [1, 2])
def test_a_streamer_gets_prompt_and_tokens_and_nothing_after_an_eos_token(model, twin, count):
    """Wherever in a block it stands, with one such token or two; and where none comes. The rounds are those of `generate`."""
    inside = 0
    for prompt in PROMPTS[::9]:
        text = new(model, prompt)
        for stop in {*text, VOCAB + 5}:
            stops, streamer = [text[7], stop][-count:], Collected()
            own = generate(
                twin.target, twin.drafter, prompt, max_new_tokens=NEW, stop_token_ids=stops
            )
            assert (
                new(model, prompt, custom_generate=twin, eos_token_id=stops, streamer=streamer)
                == own.token_ids
            )
            assert (
                own.token_ids
                == text[: 1 + min([text.index(one) for one in stops if one in text], default=NEW)]
            )
            assert streamer.tokens == prompt[0].tolist() + own.token_ids and streamer.ended
            rounds, theirs = (
                [(r.proposed, r.accepted, r.tokens) for r in run.rounds]
                for run in (twin.answers[0], own)
            )
            assert rounds == theirs
            inside += ends_within_a_block(twin.answers[0])
    assert inside, "no EOS token was a draft before others"


@pytest.fixture(scope="module")
def tiny():
    """The embedded pair with its tokenizer."""
    lab = setup("tiny", prompts=2)
    return lab, CustomGenerate("tiny-dspark", lab.target.model)


@pytest.mark.parametrize("stops", [["a"], ["is", ","], ["e t"], ["."]])
def test_a_stop_string_ends_the_answer_where_it_ends_the_plain_one(tiny, stops):
    lab, dspark = tiny
    prompt, criteria = (
        lab.encode(lab.prompts["chat"][0]),
        [StopStringCriteria(lab.tokenizer, stops)],
    )
    plain = new(lab.target.model, prompt, stopping_criteria=criteria, max_new_tokens=40)
    assert (
        new(
            lab.target.model,
            prompt,
            stopping_criteria=criteria,
            max_new_tokens=40,
            custom_generate=dspark,
        )
        == plain
    )


# Models and drafters


def test_the_model_keeps_its_modes_also_where_it_fails(pair):
    """Every module its own; in training mode it decodes as in the other one."""
    model = load_target(str(pair / "target")).model.train()
    model.lm_head.eval()
    modes = [module.training for module in model.modules()]
    dspark = CustomGenerate(str(pair / "draft"), model)
    assert (
        new(model, PROMPTS[0], custom_generate=dspark)
        and [module.training for module in model.modules()] == modes
    )
    with pytest.raises(RequestError, match="has positions for at most"):
        new(model, PROMPTS[0], custom_generate=dspark, max_new_tokens=90)
    assert [module.training for module in model.modules()] == modes


def test_a_model_that_has_changed_is_answered_in_a_sentence(pair):
    model = load_target(str(pair / "target")).model
    dspark = CustomGenerate(str(pair / "draft"), model)
    model.to(torch.bfloat16)
    with pytest.raises(
        RequestError,
        match="loaded for a model of torch.float32 .* one of torch.bfloat16 .* make a CustomGenerate anew",
    ):
        new(model, PROMPTS[0], custom_generate=dspark)
    assert new(
        model, PROMPTS[0], custom_generate=CustomGenerate(str(pair / "draft"), model)
    ) == new(model, PROMPTS[0])
    model.to(torch.float32).resize_token_embeddings(VOCAB + 3)
    with pytest.raises(
        RequestError,
        match=f"with {VOCAB} tokens, and the model is one of .* with {VOCAB + 3} tokens",
    ):
        new(model, PROMPTS[0], custom_generate=dspark)


def test_a_loaded_drafter_is_taken_and_a_wrong_one_refused(pair, model, dspark):
    loaded = CustomGenerate(dspark.drafter, model)
    assert loaded.drafter is dspark.drafter and new(
        model, PROMPTS[0], custom_generate=loaded
    ) == new(model, PROMPTS[0])
    assert new(
        model, PROMPTS[0], custom_generate=CustomGenerate(SmallLM(dspark.target), model)
    ) == new(model, PROMPTS[0])
    target, drafters = toy_models(vocab_size=5)
    for wrong, sentence in (
        (drafters["dspark"], "made for a vocabulary of 5"),
        (drafters["small_lm"], "made for a vocabulary of 5"),
        (
            load_target(str(pair / "target"), dtype=torch.bfloat16),
            "the drafter is a Target; give the name",
        ),
    ):
        with pytest.raises(CheckpointError, match=sentence):
            CustomGenerate(wrong, model)
    half = load_target(str(pair / "target"), dtype=torch.bfloat16)
    with pytest.raises(CheckpointError, match="made for a target in torch.bfloat16"):
        CustomGenerate(load_drafter(str(pair / "draft"), half), model)


def test_a_pipeline_writes_the_same_text_in_batches(tiny):
    lab, dspark = tiny
    writer = pipeline("text-generation", model=lab.target.model, tokenizer=lab.tokenizer)
    lab.tokenizer.padding_side = "left"
    options = {"max_new_tokens": 24, "do_sample": False, "batch_size": 2}
    chats = [
        [{"role": "user", "content": text}]
        for text in lab.prompts["math"][:2] + lab.prompts["chat"][:1]
    ]
    assert writer(chats, **options, custom_generate=dspark) == writer(chats, **options)
    assert len(dspark.answers) == 1 and dspark.answers[0].rounds  # of the last batch


def test_a_streamer_in_a_thread_shows_the_plain_text(tiny):
    lab, dspark = tiny
    prompt = lab.encode(lab.prompts["code"][0])
    plain = lab.decode(new(lab.target.model, prompt, max_new_tokens=40))
    streamer = TextIteratorStreamer(
        lab.tokenizer, skip_prompt=True, skip_special_tokens=True, timeout=600
    )
    options = {"max_new_tokens": 40, "custom_generate": dspark, "streamer": streamer}
    thread = threading.Thread(target=new, args=(lab.target.model, prompt), kwargs=options)
    thread.start()
    shown = "".join(streamer)
    thread.join()
    assert shown == plain and dspark.answers[0].rounds


# Batches


class Favours(LogitsProcessor):
    """Reads the text: a token is less likely right after itself, and more likely one step later."""

    def __call__(self, input_ids, scores):
        last, before = input_ids[:, -1:], input_ids[:, -2:-1]
        change = torch.zeros_like(scores).scatter_(1, last, -1.5)
        return scores + change.scatter_add_(1, before, torch.full_like(change[:, :1], 0.7))


@pytest.mark.parametrize("processors", [[], [Favours()]], ids=["warpers", "a reader of the text"])
def test_rows_that_run_ahead_of_the_processors_are_lossless(processors):
    """1,600 answers in batches of 100, by a chi-square test at 1 in 10,000; rows of two lengths."""
    target, drafters = toy_models(vocab_size=3)
    custom, rows, found = CustomGenerate(drafters["dspark"], target.model), 100, {}
    batch = padded([torch.tensor([[1, 0, 1]]), torch.tensor([[0, 1]])] * (rows // 2))
    options = {"do_sample": True, "top_k": 0, "temperature": 0.8}
    torch.manual_seed(0)
    for _ in range(16):
        out = target.model.generate(
            **batch,
            max_new_tokens=STEPS,
            pad_token_id=0,
            **options,
            logits_processor=LogitsProcessorList(processors),
            custom_generate=custom,
        )
        for answer in map(tuple, out[1::2, 3:].tolist()):
            found[answer] = found.get(answer, 0) + 1
    config = GenerationConfig(**options)
    warpers = target.model._get_logits_processor(config, input_ids_seq_length=2, device="cpu")
    expected = exact(target.model, LogitsProcessorList([*processors, *warpers]), (0, 1))
    answers = sum(found.values())
    often = {answer: answers * share for answer, share in expected.items() if answers * share > 5}
    rest = answers - sum(often.values())
    pairs = [(found.get(answer, 0), share) for answer, share in often.items()]
    pairs.append((answers - sum(count for count, _ in pairs), rest))
    statistic = sum((count - share) ** 2 / share for count, share in pairs if share > 1)
    assert statistic < stats.chi2.ppf(1 - 1e-4, len(often))


def counted(monkeypatch, target):
    """How many rows each pass of the target reads."""
    rows, read = [], target.read

    def counting(input_ids, *given, **options):
        rows.append(len(input_ids))
        return read(input_ids, *given, **options)

    monkeypatch.setattr(target, "read", counting)
    return rows


@pytest.mark.parametrize("name", ["twin", "dspark"])
def test_rows_share_the_passes_of_the_target_and_leave_when_they_have_ended(
    monkeypatch, model, twin, dspark, name
):
    custom = CustomGenerate({"twin": twin, "dspark": dspark}[name].drafter, model)
    rows = counted(monkeypatch, custom.target)
    stop = new(model, PROMPTS[1])[4]
    options = {"max_new_tokens": NEW, "pad_token_id": 0, "eos_token_id": stop, "do_sample": False}
    written = model.generate(**padded(PROMPTS[:4]), **options, custom_generate=custom)
    assert rows[0] == 4 and rows == sorted(rows, reverse=True) and rows[-1] < 4
    assert torch.equal(written, model.generate(**padded(PROMPTS[:4]), **options))


def test_a_target_whose_rows_cannot_share_a_pass_reads_them_one_after_the_other(
    monkeypatch, model, dspark
):
    rows = counted(monkeypatch, dspark.target)
    monkeypatch.setattr(rows_of_a_pass, "can_share_passes", lambda target, longest: False)
    options = {**padded(PROMPTS[:3]), "max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    written = model.generate(**options, custom_generate=dspark)
    assert set(rows) == {1} and torch.equal(written, model.generate(**options))


def test_greedy_text_takes_no_random_numbers(model, dspark):
    before = torch.get_rng_state()
    model.generate(
        **padded(PROMPTS[:3]),
        max_new_tokens=NEW,
        do_sample=False,
        pad_token_id=0,
        custom_generate=dspark,
    )
    generate(dspark.target, dspark.drafter, PROMPTS[0], max_new_tokens=NEW)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("plain", "lost"), [(1.0, True), (2.0, False)])
def test_drafting_ends_where_a_plain_round_is_faster_by_the_token(plain, lost):
    """Drafted rounds of 3 seconds bring 2 tokens a row; the plain one brings one."""
    payoff, seconds, tokens, found = Payoff(), 0.0, 0, []
    for _ in range(Payoff.LATEST):
        payoff.begin_round(seconds, tokens)
        found.append(payoff.lost)
        seconds, tokens = (
            (seconds + plain, tokens + 4) if payoff.plain else (seconds + 3, tokens + 8)
        )
    assert found == [False] * Payoff.EARLIEST + [lost] * (Payoff.LATEST - Payoff.EARLIEST)
