"""Targets with a recurrent state: rejected drafts are taken back by the state before the block."""

import random
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM, cache_utils

from dspark_lite import CustomGenerate, generate
from dspark_lite.decoding.lockstep import generate_together
from dspark_lite.decoding.proposal import Drafter, Proposal
from dspark_lite.decoding.target import Target
from dspark_lite.drafters import PromptLookup
from helpers import assert_refused

if not hasattr(cache_utils, "LinearAttentionLayer"):
    pytest.skip("an older transformers reads no block after a state", allow_module_level=True)

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "eos_token_id": None,
}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8}
HYBRIDS = {
    "qwen3_next": DELTA | EXPERTS,
    "qwen3_5_text": DELTA,
    "olmo_hybrid": DELTA,
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 64, "mamba_n_groups": 1},
    "granitemoehybrid": MAMBA | {"layer_types": ["mamba", "attention"] * 2},
}
# Its mixers read a block of several tokens without the state before it.
JAMBA = {
    "mamba_d_state": 8,
    "num_experts": 2,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "use_mamba_kernels": False,
}


def hybrid(kind: str, fields: dict):
    torch.manual_seed(1)
    config = AutoConfig.for_model(kind, **SMALL, **fields)
    return AutoModelForCausalLM.from_config(config).eval()


class Erring(Drafter):
    """Drafts a text that it knows, with a wrong token here and there: blocks are accepted in part."""

    name, taps, gamma = "erring", (), 5

    def __init__(self, text: list[int]):
        self.text, self.dice = text, random.Random(0)

    def begin(self, prompt_ids, features):
        return {"read": 0}

    def extend(self, state, token_ids, features):
        state["read"] += token_ids.shape[1]

    def propose(self, state, anchor, *, gamma=None, temperature, generator):
        start = state["read"] + 1
        drafts = (self.text[start : start + gamma] + [0] * gamma)[:gamma]
        drafts = [x if self.dice.random() < 0.75 else (x + 1) % 64 for x in drafts]
        tokens = torch.tensor([drafts])
        return Proposal(tokens, F.one_hot(tokens, 64).float())


@pytest.mark.parametrize("kind", HYBRIDS)
def test_greedy_text_is_plain_decodings(kind):
    target = Target(hybrid(kind, HYBRIDS[kind]))
    assert target.has_states
    prompt = torch.arange(3, 12)[None]
    options = {"max_new_tokens": 32, "stop_token_ids": ()}
    plain = generate(target, None, prompt, **options)
    drafted = generate(target, Erring(plain.token_ids), prompt, **options)
    assert drafted.token_ids == plain.token_ids and len(set(plain.token_ids)) > 9
    accepted = {each.accepted for each in drafted.rounds}
    assert 0 in accepted and len(accepted) > 2


def test_several_rows_and_transformers_own_generate_write_plain_decodings_text():
    model = hybrid("qwen3_5_text", DELTA)
    target, drafter = Target(model), PromptLookup(64)
    prompts = [torch.arange(3, 9).repeat(2)[None], torch.arange(5, 9).repeat(3)[None]]
    options = {"max_new_tokens": 12, "stop_token_ids": ()}
    together = generate_together(target, drafter, prompts, **options)
    ids = torch.cat(prompts)
    asked = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    written = model.generate(ids, **asked)
    assert [answer.token_ids for answer in together] == written[:, 12:].tolist()
    drafted = CustomGenerate("prompt_lookup", model)
    assert model.generate(ids, **asked, custom_generate=drafted).equal(written)
    assert any(x.accepted < x.proposed for answer in drafted.answers for x in answer.rounds)


def test_a_class_that_forgets_its_state_is_refused_before_the_first_token():
    model = hybrid("jamba", JAMBA)
    sentence = "transformers does not read several tokens on from it, so rejected drafts cannot be"
    assert_refused(sentence, CustomGenerate, "prompt_lookup", model)
    by_hand = partial(generate, Target(model), PromptLookup(64), torch.tensor([[1, 2]]))
    assert_refused(sentence, partial(by_hand, max_new_tokens=4))
