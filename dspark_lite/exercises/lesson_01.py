"""Checkers of lesson 01: bytes of the K/V cache, the time a draft may take."""

from types import SimpleNamespace

from .checking import Exercise, Step


def key_numbers(config, heads, layers=1):
    """How many numbers the keys of one token are."""
    return layers * heads * config.head_dim


def cache_bytes(config, context, size):
    """The bytes of one request's K/V cache."""
    return 2 * key_numbers(config, config.num_key_value_heads, config.num_hidden_layers) * context * size


# Seven attention heads per key head: no product of other factors is 7, so no two mistakes cancel.
CONFIG = SimpleNamespace(num_hidden_layers=3, num_attention_heads=35, num_key_value_heads=5, head_dim=13)
check_cache_bytes = Exercise(cache_bytes, Step([(CONFIG, 11, 4)], {
    "that is the keys or the values; the cache holds both":
        lambda c, n, size: key_numbers(c, c.num_key_value_heads, c.num_hidden_layers) * n * size,
    "you counted the attention heads; queries are not kept, only keys and values are: num_key_value_heads":
        lambda c, n, size: 2 * key_numbers(c, c.num_attention_heads, c.num_hidden_layers) * n * size,
    "two things: count num_key_value_heads, not the attention heads, and both keys and values":
        lambda c, n, size: key_numbers(c, c.num_attention_heads, c.num_hidden_layers) * n * size,
    "that is one layer; every layer keeps its own keys and values":
        lambda c, n, size: 2 * key_numbers(c, c.num_key_value_heads) * n * size,
    "that is one token; every token of the context is kept":
        lambda c, n, size: 2 * key_numbers(c, c.num_key_value_heads, c.num_hidden_layers) * size,
    "that is how many numbers there are; multiply by the bytes of one":
        lambda c, n, size: 2 * key_numbers(c, c.num_key_value_heads, c.num_hidden_layers) * n,
}, "multiply keys and values, layers, key heads, head size, tokens and the bytes of a number"))


def draft_budget(tau, verify, plain, wanted):
    """The longest draft time that reaches the wanted speed-up."""
    return tau * plain / wanted - verify


check_draft_budget = Exercise(draft_budget, Step([(6.0, 7.0, 5.0, 2.0), (2.0, 9.0, 5.0, 4.0)], {  # the second budget is negative
    "that is the time for draft and verification together; take the verification off":
        lambda tau, verify, plain, wanted: tau * plain / wanted,
    "you solved for one token per round; a round gives tau of them":
        lambda tau, verify, plain, wanted: plain / wanted - verify,
    "the wanted speed-up is upside down: a token may cost plain / wanted, not plain * wanted":
        lambda tau, verify, plain, wanted: tau * plain * wanted - verify,
    "that breaks even with plain decoding; the wanted speed-up is missing":
        lambda tau, verify, plain, wanted: tau * plain - verify,
    "tau counts the token that the target adds: all of tau is gained, not tau - 1":
        lambda tau, verify, plain, wanted: (tau - 1) * plain / wanted - verify,
    "plain decoding's pass takes plain, not verify: a token may cost plain / wanted":
        lambda tau, verify, plain, wanted: tau * verify / wanted - verify,
    "a negative budget is an answer too; return it as it is, without a lower limit of 0":
        lambda tau, verify, plain, wanted: max(0.0, tau * plain / wanted - verify),
    "the whole round, draft and verification, is divided by tau":
        lambda tau, verify, plain, wanted: tau * (plain / wanted - verify),
}, "put L = (draft + verify) / tau equal to plain / wanted and solve for draft"))
