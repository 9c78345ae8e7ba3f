"""Checkers of lesson 01: bytes of the K/V cache, the time a draft may take, the accepted length that breaks even."""

from types import SimpleNamespace

from .checking import checker, finished, name_mistake


@checker
def check_cache_bytes(function):
    """Checks `function(config, context, bytes_per_number)`: the bytes of one request's K/V cache."""
    config = SimpleNamespace(num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5, head_dim=7)
    context, size = 11, 4
    right = 2 * 3 * 5 * 7 * context * size
    name_mistake(finished(function(config, context, size)), right, {
        "that is the keys or the values; the cache holds both": right / 2,
        "you counted the attention heads; queries are not kept, only keys and values are: num_key_value_heads":
            right * 2,
        "that is one layer; every layer keeps its own keys and values": right / 3,
        "that is one token; every token of the context is kept": right / context,
        "that is how many numbers there are; multiply by the bytes of one": right / size,
    }, "multiply keys and values, layers, key heads, head size, tokens and the bytes of a number")


@checker
def check_draft_budget(function):
    """Checks `function(tau, verify, plain, wanted)`: the longest draft time that reaches the wanted speed-up."""
    tau, verify, plain, wanted = 6.0, 7.0, 5.0, 2.0
    name_mistake(finished(function(tau, verify, plain, wanted)), tau * plain / wanted - verify, {
        "that is the time for draft and verification together; take the verification off": tau * plain / wanted,
        "you solved for one token a round; a round gives tau of them": plain / wanted - verify,
        "the wanted speed-up is upside down: a token may cost plain / wanted, not plain * wanted":
            tau * plain * wanted - verify,
        "that breaks even with plain decoding; the wanted speed-up is missing": tau * plain - verify,
        "tau counts the token that the target adds: all of tau is gained, not tau - 1":
            (tau - 1) * plain / wanted - verify,
        "the whole round, draft and verification, is divided by tau": tau * (plain / wanted - verify),
    }, "put L = (draft + verify) / tau equal to plain / wanted and solve for draft")


@checker
def check_break_even_tau(function):
    """Checks `function(draft, verify, plain)`: the accepted length at which L is plain decoding's time of a token."""
    draft, verify, plain = 3.0, 9.0, 5.0
    name_mistake(finished(function(draft, verify, plain)), (draft + verify) / plain, {
        "you left out the time of drafting": verify / plain,
        "you left out the time of verifying": draft / plain,
        "turn the fraction over: the costlier the round, the more tokens it must give": plain / (draft + verify),
        "that counts the accepted drafts; tau counts the target's own token too": (draft + verify) / plain - 1,
        "that is a difference of times, not a number of tokens": draft + verify - plain,
    }, "put L = (draft + verify) / tau equal to plain and solve for tau")
