"""Checkers of lesson 01: the loop with a cache, bytes of the K/V cache, the room of a GPU, the time a draft may take."""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import torch

from dspark_lite.losslessness.toys import toy_models
from .checking import Exercise, Mistake, Step, finished


class WatchedTarget:
    """A small target with random weights that notes how many positions each of its passes reads."""

    def __init__(self):
        self.target, _ = toy_models(seed=6, vocab_size=11)
        self.device, self.reads = self.target.device, []

    def prefill(self, ids):
        """The target's own pass over a prompt, noted."""
        self.reads.append(ids.shape[1])
        return self.target.prefill(ids)

    def verify(self, tokens, cache=None):
        """The target's own pass over further tokens, noted."""
        if cache is None:
            raise Mistake("`verify` needs the cache that `prefill` has returned: pass it on beside the tokens")
        if getattr(tokens, "ndim", None) != 2:
            raise Mistake("`verify` takes a tensor of tokens [1, k]; for one token torch.tensor([[token]], device=target.device)")
        self.reads.append(tokens.shape[1])
        return self.target.verify(tokens, cache)


@dataclass(frozen=True)
class WatchedStep(Step):
    """A step of functions of a target, a prompt and a count: their tokens are compared, and how many positions each pass has read."""

    def result(self, function, case: tuple):
        """The tokens of `function`, and the positions of its passes but those after the last token that it needs."""
        def watched(ids, count):
            target = WatchedTarget()
            with torch.inference_mode():
                answer = finished(function(target, ids, count))
            tokens = self.tokens(answer)
            if not target.reads:
                raise Mistake("your function asks nothing of its argument `target`; read with that one, not with `lab.target` or `model`")
            return [tokens, target.reads[:count]]

        return super().result(watched, case)

    def tokens(self, answer) -> list[float]:
        """An answer's tokens; raises Mistake where it is no list of numbers."""
        if getattr(answer, "ndim", 1) == 2 or isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], list):
            raise Mistake("return one list of the tokens, without the dimension [1, ...] around it")
        try:
            return [float(token) for token in answer]
        except (TypeError, ValueError, RuntimeError):
            raise Mistake(f"a value of type {type(answer).__name__} cannot be read as the answer here; {self.otherwise}") from None


def first_token(target, ids):
    """The greedy token [1, 1] after a prompt [1, n], and the filled cache."""
    step, cache = target.prefill(ids)
    return step.logits[:, -1:].argmax(-1), cache


def decode_with_cache(target, ids, count, read=lambda ids, tokens: tokens[-1], start=(), told=lambda tokens: tokens):
    """`count` greedy tokens after ids [1, n]: after the prompt each pass reads `read(ids, tokens)`; `told` is returned of them."""
    token, cache = first_token(target, ids)
    tokens = [*start, token]
    while len(tokens) < count:
        tokens.append(target.verify(read(ids, tokens), cache).logits[:, -1:].argmax(-1))
    return [int(token) for token in told(tokens)]


def without_keeping(target, ids, count):
    """A new cache in each pass."""
    tokens = []
    for _ in range(count):
        token, _ = first_token(target, torch.cat([ids, *tokens], 1))
        tokens.append(token)
    return [int(token) for token in tokens]


def forgetting(target, ids, count):
    """A new cache in each pass, of the last token alone."""
    token, _ = first_token(target, ids)
    tokens = [token]
    while len(tokens) < count:
        token, _ = first_token(target, token)
        tokens.append(token)
    return [int(token) for token in tokens]


def unpacking(target, ids, count):
    """What `verify` returns is taken apart, as what `prefill` returns is."""
    step, cache = target.prefill(ids)
    tokens = [step.logits[:, -1:].argmax(-1)]
    while len(tokens) < count:
        step, cache = target.verify(tokens[-1], cache)
        tokens.append(step.logits[:, -1:].argmax(-1))
    return tokens


def last_token_apart(target, ids, count):
    """The prompt but for its last token is read first, then one token per pass: as good."""
    _, cache = target.prefill(ids[:, :-1])
    token, tokens = ids[:, -1:], []
    while len(tokens) < count:
        token = target.verify(token, cache).logits[:, -1:].argmax(-1)
        tokens.append(int(token))
    return tokens


def prompt_read_twice(target, ids, count):
    """The loop begins with the prompt's last token, which the cache holds already."""
    _, cache = target.prefill(ids)
    token, tokens = ids[:, -1:], []
    while len(tokens) < count:
        token = target.verify(token, cache).logits[:, -1:].argmax(-1)
        tokens.append(int(token))
    return tokens


def of_ints(function):
    """Raises Mistake for the right tokens in another type than int."""
    with torch.inference_mode():
        tokens = function(WatchedTarget(), torch.tensor([[2, 7]]), 3)
    if not all(isinstance(token, int) for token in tokens):
        raise Mistake("the tokens are right; return a list of ints: `item()` takes the number out of a tensor, `tolist()` the list of all")


check_decode_with_cache = Exercise(decode_with_cache, WatchedStep([(torch.tensor([[3, 1, 4, 1, 5]]), 6), (torch.tensor([[2, 7]]), 4)], {
    "the tokens are right, but each pass reads the whole text again: keep the cache of the first pass and let `verify` read the last token":
        without_keeping,
    "`verify` appends what it reads to the cache, which holds the text already: pass in the last token alone":
        lambda target, ids, count: decode_with_cache(target, ids, count, read=lambda ids, tokens: torch.cat([ids, *tokens], 1)),
    "`verify` appends what it reads to the cache, which holds the earlier tokens already: pass in the last one alone":
        lambda target, ids, count: decode_with_cache(target, ids, count, read=lambda ids, tokens: torch.cat(tokens, 1)),
    "every pass reads the first new token; it must read the one drawn last":
        lambda target, ids, count: decode_with_cache(target, ids, count, read=lambda ids, tokens: tokens[0]),
    "every pass reads the prompt's last token; after the first one it must read the token drawn last":
        lambda target, ids, count: decode_with_cache(target, ids, count, read=lambda ids, tokens: ids[:, -1:]),
    "each pass forgets the text before its token: keep the cache of the first pass, and let `verify` add to it": forgetting,
    "`verify` returns the step alone and adds to the cache that it is given: step = target.verify(tokens, cache)": unpacking,
    "the prompt's last token is read twice: `prefill` has read it, and its last row gives the first new token": prompt_read_twice,
    "the first new token is missing: the prompt's own pass gives it":
        lambda target, ids, count: decode_with_cache(target, ids, count + 1, told=lambda tokens: tokens[1:]),
    "that is one token too many: the prompt's pass gives the first of them":
        lambda target, ids, count: decode_with_cache(target, ids, count + 1),
    "that is one token too few: the prompt's pass gives one, and each further pass one more":
        lambda target, ids, count: decode_with_cache(target, ids, count - 1),
    "return the new tokens alone, without the prompt's":
        lambda target, ids, count: [*ids[0].tolist(), *decode_with_cache(target, ids, count)],
}, "`prefill` reads the prompt once, and its last row gives the first token; then `verify` reads one token per pass, the last one"),
    also_right=(last_token_apart,), manner=of_ints)


def key_numbers(config, heads, layers=1):
    """How many numbers the keys of one token are."""
    return layers * heads * config.head_dim


def cache_bytes(config, context, size):
    """The bytes of one request's K/V cache."""
    return 2 * key_numbers(config, config.num_key_value_heads, config.num_hidden_layers) * context * size


def of_an_int(function):
    """Raises Mistake for the right number of bytes in another type than int."""
    if not isinstance(function(CONFIG, 11, 4), int):
        raise Mistake("the number is right; return it as an int, without a float among its factors")


# Seven attention heads per key head: no product of other factors is 7, so no two mistakes cancel. Two sizes of a number: no
# power of 2 is a size for both. The tiny target has 12 layers, 2 key heads of 32 numbers, 45 tokens of prompt, 4-byte numbers.
CONFIG = SimpleNamespace(num_hidden_layers=3, num_attention_heads=35, num_key_value_heads=5, head_dim=13)
check_cache_bytes = Exercise(cache_bytes, Step([(CONFIG, 11, 4), (CONFIG, 11, 8)], {
    "that is the keys or the values; the cache holds both":
        lambda c, n, size: key_numbers(c, c.num_key_value_heads, c.num_hidden_layers) * n * size,
    "you counted the attention heads; queries are not kept, only keys and values are: num_key_value_heads": (
        lambda c, n, size: 2 * key_numbers(c, c.num_attention_heads, c.num_hidden_layers) * n * size,
        lambda c, n, size: key_numbers(c, c.num_attention_heads + 2 * c.num_key_value_heads, c.num_hidden_layers) * n * size),
    "num_key_value_heads is enough; the attention heads leave nothing of their own in the cache":
        lambda c, n, size: 2 * key_numbers(c, c.num_attention_heads * c.num_key_value_heads, c.num_hidden_layers) * n * size,
    "keys and values are kept once per token, not once per pair of tokens: context enters once":
        lambda c, n, size: cache_bytes(c, n, size) * n,
    "two things: count num_key_value_heads, not the attention heads, and both keys and values":
        lambda c, n, size: key_numbers(c, c.num_attention_heads, c.num_hidden_layers) * n * size,
    "that is one layer; every layer keeps its own keys and values":
        lambda c, n, size: 2 * key_numbers(c, c.num_key_value_heads) * n * size,
    "each key and value is a vector of head_dim numbers":
        lambda c, n, size: 2 * c.num_hidden_layers * c.num_key_value_heads * n * size,
    "that is one head per layer; each layer has num_key_value_heads of them":
        lambda c, n, size: 2 * key_numbers(c, 1, c.num_hidden_layers) * n * size,
    "hidden_size has no part in it: a key or value of a layer is num_key_value_heads times head_dim numbers": lambda c, n, size: c.hidden_size,
    "that is in bits; bytes_per_number counts bytes already":
        lambda c, n, size: 8 * cache_bytes(c, n, size),
    "that is one token; every token of the context is kept":
        lambda c, n, size: 2 * key_numbers(c, c.num_key_value_heads, c.num_hidden_layers) * size,
    "that is how many numbers there are; multiply by the bytes of one":
        lambda c, n, size: 2 * key_numbers(c, c.num_key_value_heads, c.num_hidden_layers) * n,
    "that holds for this lesson's model and prompt only; take every factor but the 2 from the arguments": (
        lambda c, n, size: 276_480,
        lambda c, n, size: 6_144 * n,
        lambda c, n, size: 2 * key_numbers(c, c.num_key_value_heads, 12) * n * size,
        lambda c, n, size: 2 * key_numbers(c, 2, c.num_hidden_layers) * n * size,
        lambda c, n, size: 2 * 32 * c.num_key_value_heads * c.num_hidden_layers * n * size,
        lambda c, n, size: 2 * key_numbers(c, c.num_key_value_heads, c.num_hidden_layers) * 45 * size,
        lambda c, n, size: 2 * key_numbers(c, c.num_key_value_heads, c.num_hidden_layers) * n * 4),
}, "count the numbers that one token leaves in one layer; then all layers, all tokens, and the bytes of a number"), manner=of_an_int)


def gpu_room(operations, bandwidth, bits):
    """The room k* of a GPU for weights of `bits` bits, by its data sheet."""
    return bits / 8 * (operations / 2) / bandwidth


check_gpu_room = Exercise(gpu_room, Step([(6e12, 3e11, 12), (7e12, 9e11, 4)], {  # in 16 bits the factors 2 and 8 would cancel
    "a multiply-add is two operations: there are half as many multiply-adds per second":
        lambda operations, bandwidth, bits: bits / 8 * operations / bandwidth,
    "a multiply-add is two operations, so divide by 2: there are fewer multiply-adds per second than operations":
        lambda operations, bandwidth, bits: bits / 8 * operations * 2 / bandwidth,
    "b counts bytes per weight, and a byte has 8 bits":
        lambda operations, bandwidth, bits: bits * (operations / 2) / bandwidth,
    "b counts bytes per weight: divide the bits by 8, do not multiply":
        lambda operations, bandwidth, bits: 8 * bits * (operations / 2) / bandwidth,
    "two things: b counts bytes, of 8 bits each, and a multiply-add is two operations":
        lambda operations, bandwidth, bits: bits * operations / bandwidth,
    "that is right in 16 bits alone; the room depends on `bits`, too": (
        lambda operations, bandwidth, bits: operations / bandwidth,
        lambda operations, bandwidth, bits: 2 * (operations / 2) / bandwidth),
    "that is k*/b, multiply-adds per byte; the room counts positions, each of which takes one multiply-add per weight":
        lambda operations, bandwidth, bits: operations / 2 / bandwidth,
    "the ratio is upside down: faster multiplying makes room, faster reading takes it away": (
        lambda operations, bandwidth, bits: bits / 8 * bandwidth / (operations / 2),
        lambda operations, bandwidth, bits: bandwidth / (operations / 2)),
    "narrower weights are read sooner, so they leave less room: multiply by the bytes per weight, do not divide": (
        lambda operations, bandwidth, bits: operations / 2 / bandwidth / (bits / 8),
        lambda operations, bandwidth, bits: operations / 2 / bandwidth / bits),
    "`bits` counts as it stands: 4 bits are half a byte, not 0 bytes and not a whole one": (
        lambda operations, bandwidth, bits: bits // 8 * (operations / 2) / bandwidth,
        lambda operations, bandwidth, bits: math.ceil(bits / 8) * (operations / 2) / bandwidth),
    "return the room as it is, not rounded": (
        lambda operations, bandwidth, bits: bits / 8 * (operations / 2) // bandwidth,
        lambda operations, bandwidth, bits: round(bits / 8 * (operations / 2) / bandwidth),
        lambda operations, bandwidth, bits: math.ceil(bits / 8 * (operations / 2) / bandwidth),
        lambda operations, bandwidth, bits: round(bits / 8 * (operations / 2) / bandwidth, 1)),
}, "bring the three numbers into the formula's units: bytes per weight, multiply-adds per second, bytes per second"))


def draft_budget(tau, verify, plain, wanted):
    """The longest draft time that reaches the wanted speed-up."""
    return tau * plain / wanted - verify


check_draft_budget = Exercise(draft_budget, Step([(6.0, 7.0, 5.0, 2.0), (2.0, 9.0, 5.0, 3.0)], {  # the second budget is negative and no round number
    "that is the time for draft and verification together; take the verification off":
        lambda tau, verify, plain, wanted: tau * plain / wanted,
    "you solved for one token per round; a round gives tau of them":
        lambda tau, verify, plain, wanted: plain / wanted - verify,
    "the wanted speed-up is upside down: a token may cost plain / wanted, not plain * wanted":
        lambda tau, verify, plain, wanted: tau * plain * wanted - verify,
    "plain and wanted are exchanged: a token may cost plain / wanted":
        lambda tau, verify, plain, wanted: tau * wanted / plain - verify,
    "that breaks even with plain decoding; the wanted speed-up is missing":
        lambda tau, verify, plain, wanted: tau * plain - verify,
    "tau counts the token that the target adds: all of tau is gained, not tau - 1":
        lambda tau, verify, plain, wanted: (tau - 1) * plain / wanted - verify,
    "plain decoding's pass takes plain, not verify: a token may cost plain / wanted":
        lambda tau, verify, plain, wanted: tau * verify / wanted - verify,
    "a negative budget is an answer too; return it as it is, without a lower limit of 0":
        lambda tau, verify, plain, wanted: max(0.0, tau * plain / wanted - verify),
    "a negative budget keeps its sign":
        lambda tau, verify, plain, wanted: abs(tau * plain / wanted - verify),
    "the verification takes its part of the round's time: take it off, do not add it":
        lambda tau, verify, plain, wanted: tau * plain / wanted + verify,
    "you exchanged verify and plain: plain is a pass of plain decoding, verify belongs to the round":
        lambda tau, verify, plain, wanted: tau * verify / wanted - plain,
    "tau is upside down: a round may cost tau times as much as a token":
        lambda tau, verify, plain, wanted: plain / wanted / tau - verify,
    "that is the budget times wanted; divide all of it by wanted at the end":
        lambda tau, verify, plain, wanted: tau * plain - wanted * verify,
    "the draft's round takes verify beside the draft, not plain":
        lambda tau, verify, plain, wanted: tau * plain / wanted - plain,
    "that is the budget for one token; a round gives tau of them":
        lambda tau, verify, plain, wanted: plain / wanted - verify / tau,
    "wanted is the ratio of the two speeds: divide by wanted itself, not by one more or one less": (
        lambda tau, verify, plain, wanted: tau * plain / (1 + wanted) - verify,
        lambda tau, verify, plain, wanted: tau * plain / (wanted - 1) - verify),
    "the whole round, draft and verification, is divided by tau":
        lambda tau, verify, plain, wanted: tau * (plain / wanted - verify),
    "the sign is turned around: the draft has what the verification leaves":
        lambda tau, verify, plain, wanted: verify - tau * plain / wanted,
    "only plain decoding's time is divided by wanted; the verification takes as long as it takes": (
        lambda tau, verify, plain, wanted: (tau * plain - verify) / wanted,
        lambda tau, verify, plain, wanted: tau * plain - verify / wanted),
    "tau has the target's own token in it already: tau, not tau + 1":
        lambda tau, verify, plain, wanted: (tau + 1) * plain / wanted - verify,
    "return the budget as it is, not rounded": (
        lambda tau, verify, plain, wanted: int(tau * plain / wanted - verify),
        lambda tau, verify, plain, wanted: math.floor(tau * plain / wanted - verify),
        lambda tau, verify, plain, wanted: round(tau * plain / wanted - verify, 1),
        lambda tau, verify, plain, wanted: round(tau * plain / wanted - verify, 2)),
}, "what may a token cost at most, and so a round, which gives tau of them? The draft has what the verification leaves"))
