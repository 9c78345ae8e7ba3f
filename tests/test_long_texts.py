"""Long prompts in pieces, and chats that read each token once."""

import pytest
import torch
from transformers import DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig, StoppingCriteria

from dspark_lite import CustomGenerate, generate
from dspark_lite.common.errors import RequestError
from dspark_lite.decoding.lockstep import generate_together
from dspark_lite.decoding.target import Target
from dspark_lite.drafters import PromptLookup

NEW = 12
DRAFTERS = ["tiny-dspark", "tiny-eagle3", "tiny-small-lm", "prompt_lookup", None]


def watched(target) -> list[int]:
    """The lengths of the target's later passes, as they come."""
    lengths, read = [], target.read

    def noted(token_ids, *arguments, **options):
        lengths.append(token_ids.shape[1])
        return read(token_ids, *arguments, **options)

    target.read = noted
    return lengths


# A prompt in pieces --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prompts(tiny_lab):
    """Three prompts of different lengths."""
    ids = [tiny_lab.encode(texts[0]) for texts in tiny_lab.prompts.values()]
    return [ids[0], ids[1][:, :5], torch.cat(ids, 1)]


def test_a_prompt_in_pieces_gives_the_logits_and_taps_of_one_pass(tiny_lab, prompts):
    model, taps = tiny_lab.target.model, (1, 6)
    whole, _ = Target(model).prefill(prompts[2], taps)
    for size in (1, 7, prompts[2].shape[1], 10_000):
        target = Target(model, prefill_chunk_size=size)
        lengths = watched(target)
        made, cache = target.prefill(prompts[2], taps)
        assert max(lengths) <= size and sum(lengths) == cache.get_seq_length()
        torch.testing.assert_close(made.logits, whole.logits, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(made.features, whole.features, atol=1e-3, rtol=1e-3)


def test_texts_are_those_of_prompts_in_one_piece(tiny_lab, prompts):
    """Alone, together in padded passes, and in transformers' own generate."""
    drafter, options = tiny_lab.drafter("dspark"), {"max_new_tokens": NEW}
    plain = [generate(tiny_lab.target, None, prompt, **options).token_ids for prompt in prompts]
    model = tiny_lab.target.model
    for size in (1, 7):
        target = Target(model, tiny_lab.target.tokenizer, prefill_chunk_size=size)
        alone = [generate(target, drafter, prompt, **options) for prompt in prompts]
        lengths = watched(target)
        together = generate_together(target, drafter, prompts, **options)
        assert max(lengths) <= max(size, drafter.gamma + 1)
        for answers in (alone, together):
            assert [answer.token_ids for answer in answers] == plain
    custom = CustomGenerate(drafter, model)
    lengths = watched(custom.target)
    written = model.generate(
        prompts[2],
        attention_mask=torch.ones_like(prompts[2]),
        do_sample=False,
        prefill_chunk_size=16,
        custom_generate=custom,
        **options,
    )
    assert written[0, prompts[2].shape[1] :].tolist() == plain[2] and max(lengths) == 16


def test_a_sliding_window_reads_pieces_as_a_whole():
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        initializer_range=0.3,
    )
    model, prompt = Gemma3ForCausalLM(config), torch.arange(3, 40)[None]
    options = {"max_new_tokens": NEW, "stop_token_ids": ()}
    whole = generate(Target(model), None, prompt, **options)
    target = Target(model, prefill_chunk_size=6)
    assert target.has_windows
    for drafter in (None, PromptLookup(64)):
        assert generate(target, drafter, prompt, **options).token_ids == whole.token_ids


@pytest.mark.parametrize("size", [0, -1, 2.5, "many"])
def test_a_size_that_is_no_number_of_tokens_is_refused(tiny_lab, prompts, size):
    target = Target(tiny_lab.target.model, prefill_chunk_size=size)
    with pytest.raises(RequestError, match=f"prefill_chunk_size is {size!r}; it is a number of"):
        generate(target, None, prompts[0], max_new_tokens=2)


# A chat --------------------------------------------------------------------------------------------------------------


def asked(text, **options):
    return {
        "inputs": text,
        "attention_mask": torch.ones_like(text),
        "max_new_tokens": NEW,
        "do_sample": False,
        "return_dict_in_generate": True,
        **options,
    }


@pytest.mark.parametrize(
    ("name", "own"), [(name, False) for name in DRAFTERS] + [("tiny-dspark", True)]
)
def test_a_chat_reads_each_token_once(tiny_lab, name, own):
    """Its answers, and every round of them, are those of a drafter that reads the whole text each time."""
    model = tiny_lab.target.model
    going_on, anew = CustomGenerate(name, model), CustomGenerate(name, model)
    lengths, text = watched(going_on.target), tiny_lab.encode(tiny_lab.prompts["chat"][0])
    cache, read = DynamicCache() if own else None, 0
    for turn in (1, 2):
        lengths.clear()
        answer = model.generate(**asked(text), past_key_values=cache, custom_generate=going_on)
        plain = model.generate(**asked(text))
        model.generate(**asked(text), custom_generate=anew)
        assert answer.sequences.equal(plain.sequences)
        assert lengths[0] == text.shape[1] - read
        rounds = [
            [(each.draft_tokens, each.accepted) for each in custom.answers[0].rounds]
            for custom in (going_on, anew)
        ]
        assert rounds[0] == rounds[1]
        assert cache is None or answer.past_key_values is cache
        cache = answer.past_key_values
        read = cache.get_seq_length()
        # The newest token is not read, as in transformers' own loop.
        assert read == plain.past_key_values.get_seq_length() == answer.sequences.shape[1] - 1
        asking = tiny_lab.encode(tiny_lab.prompts["chat"][turn])
        text = torch.cat([answer.sequences, asking], 1)


def test_transformers_own_loop_goes_on_from_the_cache(tiny_lab):
    model, text = tiny_lab.target.model, tiny_lab.encode(tiny_lab.prompts["math"][0])
    custom = CustomGenerate("tiny-dspark", model)
    answer = model.generate(**asked(text), custom_generate=custom)
    longer = torch.cat([answer.sequences, text], 1)
    went_on = model.generate(**asked(longer), past_key_values=answer.past_key_values)
    assert went_on.sequences.equal(model.generate(**asked(longer)).sequences)


def test_a_padded_prompt_and_logits_processors_fill_the_cache_too(tiny_lab):
    model, text = tiny_lab.target.model, tiny_lab.encode(tiny_lab.prompts["math"][0])
    custom, options = CustomGenerate("tiny-dspark", model), {"repetition_penalty": 1.2}
    padded = torch.cat([text.new_zeros(1, 3), text], 1)
    mask = torch.ones_like(padded).index_fill_(1, torch.arange(3), 0)
    answer = model.generate(
        **asked(padded, **options) | {"attention_mask": mask}, custom_generate=custom
    )
    longer = torch.cat([answer.sequences[:, 3:], text], 1)
    lengths = watched(custom.target)
    cache = answer.past_key_values
    went_on = model.generate(
        **asked(longer, **options), past_key_values=cache, custom_generate=custom
    )
    assert lengths[0] == text.shape[1] + 1
    assert went_on.sequences.equal(model.generate(**asked(longer, **options)).sequences)


class Failing(StoppingCriteria):
    def __call__(self, input_ids, scores, **more):
        raise ArithmeticError


def test_caches_that_cannot_be_gone_on_from_are_refused(tiny_lab):
    model, text = tiny_lab.target.model, tiny_lab.encode(tiny_lab.prompts["math"][0])
    custom = CustomGenerate("tiny-dspark", model)

    def go_on(ids, cache, **options):
        return model.generate(
            **asked(ids, **options), past_key_values=cache, custom_generate=custom
        )

    def refused(sentence, *arguments, **options):
        with pytest.raises(RequestError, match=sentence) as caught:
            go_on(*arguments, **options)
        assert "\n" not in str(caught.value)

    not_read = "past_key_values holds tokens that the drafter has not read"
    refused(not_read, torch.cat([text, text], 1), model.generate(**asked(text)).past_key_values)

    answer = go_on(text, None)
    cache, longer = answer.past_key_values, torch.cat([answer.sequences, text], 1)
    other = longer.clone()
    other[0, 3] = (other[0, 3] + 1) % tiny_lab.target.vocab_size
    read = cache.get_seq_length()
    refused(f"holds {read} tokens with which this prompt does not begin", other, cache)
    refused(
        "holds one text, and 2 answers are asked for",
        longer,
        cache,
        num_return_sequences=2,
        do_sample=True,
    )
    # A refusal leaves the cache as it was; an answer that an error ends does not.
    with pytest.raises(ArithmeticError):
        go_on(longer, cache, stopping_criteria=[Failing()])
    refused(not_read, longer, cache)
    cache = go_on(text, None).past_key_values
    cache.crop(-2)
    refused(not_read, longer, cache)


def test_several_rows_return_no_cache(tiny_lab):
    model, text = tiny_lab.target.model, tiny_lab.encode(tiny_lab.prompts["math"][0])
    custom = CustomGenerate("tiny-dspark", model)
    answer = model.generate(**asked(text.repeat(2, 1)), custom_generate=custom)
    assert answer.past_key_values is None
