# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] tags=["header"]
# # 01 · Why decoding is slow
#
# **What you will learn**
#
# - what the K/V cache saves, and what it leaves: one pass of the target for every token
# - what a pass costs when it reads 1 to 32 tokens at once (its *positions*), measured on this machine, and why
# - the time per token, $L = (T_\text{draft} + T_\text{verify}) / \tau$, which the rest of the course tries to reduce
#
# **What you need:** lesson 00, and an idea of what attention does with keys and values. No GPU.
#
# **Sources:** the formula for $L$ is equation 1 of the [DSpark paper](references.md#dspark), section 2.1; the picture
# of two limits is the [roofline model](references.md#roofline). [Notation](notation.md) · [glossary](glossary.md)

# %% tags=["setup"]
pass

# %% [markdown]
# ## One token at a time
#
# A language model reads a text and answers with one distribution: that of the next token. To write a sentence we draw
# a token, append it, and ask again. In this lesson we always take the most probable token (greedy decoding), so that
# every way of doing it must give the same text.

# %%
import torch

import dspark_lite

torch.set_grad_enabled(False)  # nothing is trained here
lab = dspark_lite.setup()
model = lab.target.model
prompt = lab.prompts["math"][0]
ids = lab.encode(prompt)  # [1, n]
print(prompt)
print(f"\n{ids.shape[1]} tokens with the chat template, on {lab.device_name}")

# %% [markdown]
# One pass over the prompt. It returns logits for *every* position, each predicting the token after it; for writing we
# need the last row only.

# %%
logits = model(input_ids=ids).logits  # [1, n, V]
next_token = logits[0, -1].argmax()
print("logits", tuple(logits.shape), "-> the answer starts with", repr(lab.decode([next_token])))

# %% [markdown]
# Decoding by hand, in the most literal way: read the whole text again for each new token.

# %%
def decode_without_cache(ids, count):
    """`count` greedy tokens after ids [1, n]; each pass reads everything from the start."""
    for _ in range(count):
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=1).logits  # [1, 1, V]
        ids = torch.cat([ids, logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ids[0, -count:].tolist()


slow = decode_without_cache(ids, 24)
print(lab.decode(slow))

# %% [markdown]
# ## The K/V cache
#
# That repeats work. Attention is causal: what a position computes depends on itself and on earlier positions, never
# on later ones, so appending a token changes nothing before it. And all that a later position ever asks of an earlier
# one is its key and its value in every layer. We keep those and pass in the new token alone.
#
# `Target.prefill` reads a prompt and fills a cache; `Target.verify` reads further tokens and appends them to the cache
# (later it checks guesses, hence its name); `Target.roll_back` removes the last ones again.
#
# ### Exercise 1 · Decode with a cache (code)
# Return the list of the `count` greedy tokens after ids [1, n], as ints. The first pass reads the prompt, each further
# pass one token. `step, cache = target.prefill(ids)` gives the logits of the prompt's last row: `step.logits`
# [1, 1, V]. `step = target.verify(tokens, cache)`, with tokens [1, k], gives those of all k rows, [1, k, V].
#
# <details><summary>Hint</summary>
#
# The prompt's own pass gives the first token. Which token has no pass read yet? `torch.tensor([[token]],
# device=target.device)` makes it [1, 1].
#
# </details>

# %%
from dspark_course.exercises import lesson_01 as exercises

# %% tags=["exercise"]
def decode_with_cache(target, ids, count):
    """`count` greedy tokens after ids [1, n]; after the prompt each pass reads one token."""
    ...


done = exercises.check_decode_with_cache(decode_with_cache)

# %% tags=["solution"]
def decode_with_cache(target, ids, count):
    """`count` greedy tokens after ids [1, n]; after the prompt each pass reads one token."""
    step, cache = target.prefill(ids)
    tokens = [step.logits[0, -1].argmax().item()]
    while len(tokens) < count:
        step = target.verify(torch.tensor([tokens[-1:]], device=target.device), cache)
        tokens.append(step.logits[0, -1].argmax().item())
    return tokens


done = exercises.check_decode_with_cache(decode_with_cache)

# %% [markdown]
# The claim is that the cache changes nothing but the time: the same tokens, one for one. (Their
# rounding differs: in 16-bit arithmetic they may pick different tokens where two are nearly equally probable.
# `same_or_tied` allows that and nothing else.) `generate` without a drafter is the same loop in the package.

# %%
from dspark_lite import generate
from dspark_lite.losslessness.ties import same_or_tied

fast = (decode_with_cache if done else exercises.decode_with_cache)(lab.target, ids, 24)  # yours, once it is right
package = generate(lab.target, None, ids, max_new_tokens=24, stop_token_ids=()).token_ids
agree = sum(a == b for a, b in zip(slow, fast, strict=True))
print(f"{agree} of {len(slow)} tokens equal with and without cache")
assert fast == package
assert same_or_tied(lab.target, ids, slow, fast)

# %% [markdown]
# How much time does it save? We take contexts of several lengths and time the *next* token both ways. The cost does
# not depend on which tokens are in the context, so we fill it with random ones. `least_milliseconds` takes {name:
# function}, runs all functions `repeats` times, each time in another order, and returns the shortest time of each:
# other work on the machine can only lengthen a time. Guess two numbers first.

# %%
from dspark_course.exercises.predictions import predict

longer = predict("From 64 to 1,024 tokens of context: how many times as long does the next token take without the cache, and with it?", ...)

# %%
from functools import partial

from dspark_lite.common.timing import least_milliseconds


def read(tokens, cache):
    """One pass over tokens [1, k] after the cache, which is left as it was."""
    lab.target.verify(tokens, cache)
    lab.target.roll_back(cache, tokens.shape[1])


contexts = [64, 128, 256, 512, 1024]
text = torch.randint(lab.target.vocab_size, (1, 1025), device=lab.device, generator=lab.generator())
everything = {n: partial(model, input_ids=text[:, :n + 1], use_cache=False, logits_to_keep=1) for n in contexts}
one_token = {n: partial(read, text[:, n:n + 1], lab.target.prefill(text[:, :n])[1]) for n in contexts}
without_cache = least_milliseconds(everything, lab.device, repeats=5)
with_cache = least_milliseconds(one_token, lab.device, repeats=15)

# %%
from dspark_course.figures import lesson_01 as figures

picture = figures.context_cost_figure(contexts, list(without_cache.values()), list(with_cache.values()), lab.device_name)
for way, found in (("without the cache", without_cache), ("with the cache", with_cache)):
    print(f"{way:17} {found[64]:7.1f} ms after 64 tokens of context, {found[1024]:7.1f} ms after 1,024")
longer.beside(" and ".join(f"{found[1024] / found[64]:.1f} times" for found in (without_cache, with_cache)))

# %% [markdown]
# Without a cache the price of a token grows with everything written so far: slowly at first, as every pass has a
# fixed part; in a long text faster than the text itself, as attention compares each position with all before it. The
# price of a long answer grows at least with the square of its length. With the cache 16 times the context costs less
# than twice as much (the title has your ratio): only attention has more to do, as it reads more keys and values.
#
# The cache is paid for in memory. Here is what one holds for our prompt.

# %%
_, cache = lab.target.prefill(ids)
keys, values = cache.layers[0].keys, cache.layers[0].values  # [1, key heads, n, head size]
held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
print(f"layer 0 holds keys {tuple(keys.shape)} and values {tuple(values.shape)} in {lab.target.dtype}")
print(f"all {len(cache.layers)} layers: {held:,} bytes for {ids.shape[1]} tokens")

# %% [markdown]
# ### Exercise 2 · Bytes of a context (code)
# Return the bytes of a cache, as an int, for any model, context and size of a number. Of `config` use only
# `num_hidden_layers`, `num_attention_heads`, `num_key_value_heads` and `head_dim`. For our prompt,
# `cache_bytes(model.config, ids.shape[1], lab.target.dtype.itemsize)` must be `held`.
#
# <details><summary>Hint</summary>
#
# Each layer has two tensors. Count the numbers in one, then the layers, then the bytes. Which heads leave something
# in the cache?
#
# </details>

# %% tags=["exercise"]
def cache_bytes(config, context, bytes_per_number):
    """Bytes of K/V cache that one request with `context` tokens holds."""
    return ...


done = exercises.check_cache_bytes(cache_bytes)

# %% tags=["solution"]
def cache_bytes(config, context, bytes_per_number):
    """Bytes of K/V cache that one request with `context` tokens holds."""
    numbers_per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return numbers_per_token * context * bytes_per_number


done = exercises.check_cache_bytes(cache_bytes)

# %%
gigabytes = predict("Qwen3-4B has about 8 GB of weights in 16 bits. How many GB is its cache for one request of 32,768 tokens?", ...)

# %%
from types import SimpleNamespace

qwen = SimpleNamespace(num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128)  # Qwen3-4B
gigabytes.beside(f"{(cache_bytes if done else exercises.cache_bytes)(qwen, 32_768, 2) / 1e9:.1f} GB")

# %% [markdown]
# Two such requests hold more bytes than the weights. Exercise 4 asks what follows from that.
#
# ## What one pass costs as it carries more positions
#
# There is a limit to what the cache saves: however short the context, each token pays a full pass (the left end of
# the lower curve). Is a pass expensive because of the token it reads, or because it is a pass?
#
# `verify` takes any number of tokens at once, and its rows are the same predictions as if they had been read one by
# one:

# %%
step, cache = lab.target.prefill(ids)
together = lab.target.verify(torch.tensor([fast[:8]], device=lab.device), cache).logits[0].argmax(-1).tolist()
print("after each of 8 tokens, in one pass:", together)
print("one token at a time, eight passes:  ", fast[1:9])
assert same_or_tied(lab.target, ids, fast[:1] + together, fast[:9])

# %% [markdown]
# This pass read one token that we had and seven that could have been guesses. Each row's prediction says whether the
# guess after it is right: so one pass checks all seven, up to the first wrong one, and adds a token of its own.
#
# Now its price, for 1 to 32 positions after the prompt. Put two numbers in the place of the dots.

# %%
price = predict("Passes over 8 and over 32 positions take how many times as long as a pass over one?", ...)

# %%
from itertools import combinations

positions = [1, 2, 4, 8, 12, 16, 24, 32]
_, cache = lab.target.prefill(ids)
first_ms = least_milliseconds({k: partial(read, text[:, :k], cache) for k in positions}, lab.device, repeats=40)
picture = figures.pass_cost_figure(positions, list(first_ms.values()), lab.device_name)
eight, most = first_ms[8] / first_ms[1], first_ms[32] / first_ms[1]
price.beside(f"{eight:.2f} and {most:.2f} times on {lab.device_name}; separate passes would take 8 and 32 times as long")


def is_credible(times):
    """Whether no pass was quicker, by more than a tenth, than one over fewer positions."""
    return all(times[more] > 0.9 * times[fewer] for fewer, more in combinations(times, 2))


if not is_credible(first_ms):
    print("A pass over more positions came out quicker than one over fewer: the machine was busy. Run this cell again.")

# %% [markdown]
# The dotted line is a pass in which every position has to be paid in full. The measured line stays far below it:
# eight positions cost less than twice as much as one. On the right is the same time per position. (Compare times only
# within one table or figure: the load changes.)
#
# ## Why: reading weights against multiplying
#
# Most of the work of a large model is multiplication by weight matrices. Each matrix has to be read from memory once
# per pass, however many positions there are; each weight is then multiplied once *per position*. We count both for
# the matrices alone; below we measure how much of a pass they are in a small model.

# %%
matrices = [module.weight for module in model.modules() if isinstance(module, torch.nn.Linear)]
weights = sum(matrix.numel() for matrix in matrices)
weight_bytes = sum(matrix.nbytes for matrix in matrices)
print(f"{len(matrices)} matrices with {weights:,} weights")
print("positions   bytes read   multiply-adds   multiply-adds per byte")
for k in (1, 8, 32):
    print(f"{k:9}   {weight_bytes / 1e6:7.1f} MB   {k * weights / 1e6:11.1f} M   {k * weights / weight_bytes:20.2f}")

# %% [markdown]
# The last column is the **arithmetic intensity**: $k$ positions do $k/b$ multiply-adds for every byte, with $b$ bytes
# per weight. A machine can read only so many bytes per second from memory, and do only so many multiply-adds per
# second. A pass needs both, so it takes at least
#
# $$T(k) \ \ge\ \max\left(\frac{\text{bytes of the weights}}{\text{bytes per second}},\ \
# \frac{k \cdot \text{weights}}{\text{multiply-adds per second}}\right).$$
#
# The first term does not contain $k$. While it is larger, further positions cost nothing in this bound. That ends
# where both terms are equal, at a number of positions that we call the **room**:
#
# $$k^* = b \cdot \frac{\text{multiply-adds per second}}{\text{bytes per second}}.$$
#
# Model size has cancelled.
#
# To measure both speeds, we multiply with the target's own matrices and do nothing else. At few positions the time is
# almost all reading: the shortest time of all gives the bytes per second. At many positions it is almost all
# multiplying: the highest speed gives the multiply-adds per second.
#
# The figure draws the bound as a speed, over the intensity. While the machine waits for weights, twice the positions
# mean twice the speed; from the room on the line is level. This line is the **roof**. It is drawn through the best of
# what we measured, so no dot lies above it; how closely the others follow tests it.

# %%
import torch.nn.functional as F

widths = {matrix.shape[1] for matrix in matrices}
inputs = {width: torch.randn(256, width, device=lab.device, dtype=lab.target.dtype) for width in widths}


def multiply(k, rows=None):
    """All matrix products of one pass over k positions, or with the first `rows` of each matrix only."""
    for matrix in matrices:
        F.linear(inputs[matrix.shape[1]][:k], matrix[:rows])


many = [1, 2, 4, 8, 16, 32, 64, 128, 256]
work = {k: partial(multiply, k) for k in many} | {"calls": partial(multiply, 1, rows=1)}
work |= {("pass", k): partial(read, text[:, :k], cache) for k in positions}  # again, in turn with these
bare_ms = least_milliseconds(work, lab.device, repeats=25)
pass_ms = {k: bare_ms["pass", k] for k in positions}
speed = [k * weights / bare_ms[k] / 1e6 for k in many]  # billions of multiply-adds a second
pass_speed = [k * weights / pass_ms[k] / 1e6 for k in positions]

# %%
reading_ms = min(bare_ms[k] for k in many)  # every pass reads all weights
bandwidth, peak = weight_bytes / reading_ms / 1e6, max(speed)  # billions of bytes, of multiply-adds, a second
picture = figures.roofline_figure(bandwidth, peak, weights / weight_bytes, many, speed, positions, pass_speed,
                                  lab.device_name)
print(f"{bandwidth:.1f} billion bytes and {peak:.1f} billion multiply-adds per second: "
      f"the roof bends at {peak / bandwidth:.1f} multiply-adds per byte.")
print(f"At one position {bare_ms[1]:.2f} ms; the same {len(matrices)} calls with one row per matrix {bare_ms['calls']:.2f} ms.")

# %% [markdown]
# Left of the bend all passes take equally long in the bound. Measured on one CPU thread, the second position costs
# more than each of the six after it, and from there each doubling costs more. Far to the right, from
# 128 to 256, each position costs about its full share. Between, dots fall below the roof: reading and multiplying
# overlap only in part, and a few rows keep the processor less busy than many.
#
# Whole passes (squares) are slower: they also compute norms and attention and start hundreds of small operations.
# Read off the two marks at one position: how much of such a pass is matrix products?

# %%
share = predict("What percentage of a pass over one position goes into matrix products?", ...)

# %%
share.beside(f"{bare_ms[1] / pass_ms[1]:.0%} on {lab.device_name}")
for k in (1, 2, 8, 32):
    rest = pass_ms[k] - bare_ms[k]
    print(f"positions {k:2}: pass {pass_ms[k]:6.2f} ms = matrix products {bare_ms[k]:6.2f} ms + everything else {rest:6.2f} ms "
          f"({rest / pass_ms[k]:.0%})")
print(f"8 positions to one: {pass_ms[8] / pass_ms[1]:.2f} times in this table, {eight:.2f} times in the first measurement")
if not is_credible(pass_ms) or any(pass_ms[k] < bare_ms[k] for k in (1, 2, 8, 32)):
    print("This table contradicts itself: the machine was busy. Measure again, from `work` on.")

# %% [markdown]
# On one CPU thread most of a pass over one position is not matrix products: the roofline explains the smaller part. A
# pass of this small model has two floors: the weights have to be read, and the operations have to be started. Both
# are paid once per pass, and at eight positions neither the products nor the rest take anything near eight times as
# long. More weights raise the first floor; servers lower the second by recording the operations of a pass and
# replaying them (lesson 08).
#
# <details><summary>How far to trust these numbers</summary>
#
# - The line `8 positions to one` has one ratio, measured twice: its two values show how far to trust either.
# - Weights that fit into the processor's cache may be read from there, faster than from memory.
# - Starting the products takes time, too: the same calls with one row per matrix take less than half as long. That is
#   in our numbers, so the weights are read faster than we say, and the true bend lies further left.
#
# </details>
#
# ### Exercise 3 · The room of a GPU (code)
# A data sheet gives operations per second, two for each multiply-add, and the memory's bytes per second. Return $k^*$
# for weights of `bits` bits each. Take both speeds as given, whatever the bits.
#
# <details><summary>Hint</summary>
#
# In which units does the formula for $k^*$ take its three numbers?
#
# </details>

# %% tags=["exercise"]
def gpu_room(operations, bandwidth, bits):
    """How many positions a pass can carry before multiplying takes longer than reading the weights."""
    return ...


done = exercises.check_gpu_room(gpu_room)

# %% tags=["solution"]
def gpu_room(operations, bandwidth, bits):
    """How many positions a pass can carry before multiplying takes longer than reading the weights."""
    return bits / 8 * (operations / 2) / bandwidth


done = exercises.check_gpu_room(gpu_room)

# %%
roomier = predict("The H200 of 2024 has how many times the room of the small T4 of 2018?", ...)

# %%
from dspark_course.measure.roofline import DEVICES

print(f"here, with {weight_bytes / weights:.0f} bytes per weight: about {weight_bytes / weights * peak / bandwidth:.0f} positions")
rooms = {}
for name, device in DEVICES.items():
    rooms[name] = (gpu_room if done else exercises.gpu_room)(device.operations, device.bandwidth, 16)  # yours, once it is right
    print(f"{name:5} {device.operations / 1e12:4.0f} trillion operations and {device.bandwidth / 1e9:5.0f} billion bytes per second: "
          f"{rooms[name]:4.0f} positions")
roomier.beside(f"{rooms['H200'] / rooms['T4']:.2f} times")

# %% [markdown]
# The GPUs' numbers are from data sheets: memory bandwidth and dense 16-bit throughput. They are peaks, so take the
# answer as an order of magnitude: 153 to 403 positions.
#
# The H200 of 2024 reads 15 times as fast as the small T4 of 2018, and yet the room is about the same, 206 against
# 203: both speeds have grown together. To check DSpark's guesses the target reads the newest committed token, the
# [anchor](glossary.md#anchor), and $\gamma = 7$ drafts: 8 positions. On these GPUs nearly all of the room stays
# unused. But the room belongs to the machine, not to a request. $R$ requests decoded together fill $R(\gamma + 1)$
# positions of it; lessons 10 and 11 are about sharing it.
#
# ### Exercise 4 · Where the memory goes (think)
# The formula for $k^*$ leaves out the K/V cache. Let $R$ requests share a pass. It reads $W$ bytes of weights and,
# for each request, $C$ bytes of keys and values. A position multiplies every weight once. It multiplies every stored
# number of its own request's keys and values $m$ times, once for each of the $m$ attention heads that share a key
# head (here 3: 6 share 2). How many positions of each request can be computed in the time that reading takes? Does
# this room of one request grow or fall with $R$? For which $R$ does it grow with longer contexts, that is with $C$?
#
# <details><summary>Hint</summary>
#
# Write down the bytes of a pass and the multiply-adds of $kR$ positions. Try $C = 0$, then $C$ much larger than $W$.
#
# </details>
# <details><summary>Answer</summary>
#
# A pass reads $W + R\,C$ bytes, and each of $kR$ positions takes $(W + m\,C)/b$ multiply-adds. Both take equally long
# at
#
# $$k = k^* \cdot \frac{W/R + C}{W + m\,C}.$$
#
# It falls with $R$: requests share the room that the weights give, $k^*/R$ at $C = 0$. But each brings room of its
# own, because its keys are read once for all of its positions: with long contexts $k$ tends to $k^*/m$, whatever $R$
# is. On the way from $k^*/R$ to $k^*/m$ it never turns back: it grows with $C$ where $R > m$ and falls where $R < m$.
# With more than $m$ requests long contexts make room for speculation, in a longer pass.
#
# </details>
#
# ## What a token costs when somebody guesses ahead
#
# A **round** of speculative decoding drafts a block ($T_\text{draft}$). Then the target reads it in one pass, and
# what the target agrees with is kept, plus one token of the target's own ($T_\text{verify}$: all that follows the
# draft). That makes $\tau$ tokens on average, the **accepted length**; $\tau = 1$ means that every draft was refused.
# $N$ rounds take $N (T_\text{draft} + T_\text{verify})$ and yield $N\tau$ tokens. The time per token is their ratio:
#
# $$\boxed{L = \frac{T_\text{draft} + T_\text{verify}}{\tau}}$$
#
# Plain decoding is the case without a draft, with $\tau = 1$; we write $T_\text{plain}$ for the time of its round,
# which is a pass over one position and the choice of the next token. Three ways to a smaller $L$: draft faster,
# verify cheaper, or be right more often. We look at all three terms in a real run of DSpark, against plain decoding
# of the same prompt. If drafts cost nothing and were always right, the speed-up would be about 8, divided by your price
# of 8 positions.

# %%
gained = predict("How many times as fast as plain decoding is DSpark on this prompt?", ...)

# %%
drafter = lab.drafter("dspark")
runs = {"plain": [], "dspark": []}
for _ in range(6):  # one after the other, so that a busy moment of the machine meets both
    for name, used in (("plain", None), ("dspark", drafter)):
        runs[name].append(generate(lab.target, used, ids, max_new_tokens=lab.max_new_tokens))
runs = {name: found[1:] for name, found in runs.items()}  # the first run of each warms up
assert same_or_tied(lab.target, ids, runs["plain"][0].token_ids, runs["dspark"][0].token_ids)
print(lab.decode(runs["dspark"][0].token_ids))

# %%
import numpy as np

print(f"{'':8}{'T_draft':>10}{'T_verify':>10}{'rounds':>8}{'tau':>7}{'L by the formula':>19}{'L by the clock':>17}")
per_token = {}
for name, found in runs.items():
    rounds = [r for run in found for r in run.rounds]
    draft_ms = 1e3 * np.mean([r.draft_seconds for r in rounds])
    verify_ms = 1e3 * np.mean([r.verify_seconds for r in rounds])
    tau = np.mean([r.committed for r in rounds])
    clocked = 1e3 * sum(run.decode_seconds for run in found) / (tau * len(rounds))
    formula = (draft_ms + verify_ms) / tau
    per_token[name] = np.array([formula, clocked])
    print(f"{name:8}{draft_ms:7.2f} ms{verify_ms:7.2f} ms{len(found[0].rounds):8}{tau:7.2f}{formula:16.2f} ms{clocked:14.2f} ms")
formula, clocked = per_token["plain"] / per_token["dspark"]
print(f"{'speed-up':43}{formula:16.2f}   {clocked:14.2f}")
gained.beside(f"{clocked:.2f} times")

# %% [markdown]
# A round of DSpark costs more than a plain pass and brings 6.88 tokens; this easy answer took 8 rounds. (Lesson 00's
# math answers bring fewer tokens per round on average, and gain less.) Its $T_\text{verify}$ holds a pass over 8
# positions, the accept rule, and the commit, in which the drafter reads what was kept. The ratio of the two $L$ is
# the speed-up. (Plain decoding's $T_\text{draft}$ is the moment that it takes to make an empty block.)
#
# Formula and clock agree within a few percent. The clock also counts DSpark's reading of the prompt and the moments
# between rounds. Neither counts the target's reading of the prompt, a wait that no drafter can shorten.
#
# ### Exercise 5 · A budget for the draft (code)
# Somebody builds a better drafter that takes longer. How long may it take at most, if the speed-up over plain
# decoding is to be `wanted`? All arguments are floats above 0, the times in one unit. Return a negative budget as it
# is.
#
# <details><summary>Hint</summary>
#
# Start from $L$. What may a token cost at most? What may a round, which yields $\tau$ of them?
#
# </details>

# %% tags=["exercise"]
def draft_budget(tau, verify, plain, wanted):
    """The longest T_draft that is still `wanted` times faster than plain decoding, whose pass takes `plain`."""
    return ...


done = exercises.check_draft_budget(draft_budget)

# %% tags=["solution"]
def draft_budget(tau, verify, plain, wanted):
    """The longest T_draft that is still `wanted` times faster than plain decoding, whose pass takes `plain`."""
    latency = plain / wanted  # what a token may cost
    return tau * latency - verify


done = exercises.check_draft_budget(draft_budget)

# %% [markdown]
# Now with the times from above: what does the budget mean for `wanted = 1`, and what does a negative one mean?

# %%
plain_ms = per_token["plain"][0]  # tau, draft_ms and verify_ms are DSpark's
if done:
    print({wanted: f"{draft_budget(tau, verify_ms, plain_ms, wanted):.1f} ms" for wanted in range(1, 7)})

# %% [markdown]
# <details><summary>Answer</summary>
#
# With the budget at 1, speculation breaks even: it pays while
# $\tau > (T_\text{draft} + T_\text{verify})/T_\text{plain}$. Below zero, no drafter with this $\tau$ will do, not
# even one that takes no time: verification alone limits the speed-up to $\tau\,T_\text{plain}/T_\text{verify}$, where
# the budget is 0.
#
# </details>
#
# ## Choose the three numbers
#
# Times are in plain passes; the sliders start at what was measured above. Upper bar: $\tau$ tokens of plain decoding.
# Lower bar: the one round that commits them. Make the lower bar the longer one in two ways: with a cheap draft that is
# seldom right, and with a draft that is always right and costs nearly as much as the target. A third is a slow
# verification: how slow, from the starting values? Exercise 5 tells; check it with the last slider.
#
# <details><summary>Answer</summary>
#
# $T_\text{verify} > \tau - T_\text{draft}$ in plain passes: nearly $\tau$ of them, as this draft is cheap.
#
# </details>

# %%
from dspark_course.figures import widgets

panel = widgets.explore(
    figures.round_cost_figure, {"tau": 1.2}, {"tau": 8.0, "draft": 7.0},
    tau=widgets.slider("accepted length τ", round(float(tau), 2), 1.0, 8.0, 0.01),
    draft=widgets.slider("T_draft (plain passes)", round(float(draft_ms / plain_ms), 2), 0.0, 8.0, 0.01),
    verify=widgets.slider("T_verify (plain passes)", round(float(verify_ms / plain_ms), 2), 0.5, 8.0, 0.01),
)

# %% [markdown]
# ### Exercise 6 · Your machine (open)
# How does $T(8)/T(1)$ depend on the number of threads (`torch.set_num_threads`), or on the length of the context?
# Choose one, write down what you expect, measure with `least_milliseconds`, and plot it. How much of the result is
# matrix products, how much everything else?
#
# <details><summary>Hint</summary>
#
# For each number of threads, fill tables like `bare_ms` and `pass_ms` under other names (the last cell reads these)
# and print them; then set the threads back. For the context, fill a cache of each length as in the first measurement
# and time 1 and 8 positions after it; the products do not change.
#
# </details>
# <details><summary>What we found for the context</summary>
#
# Attention is paid per position, and more of it in a longer context, so the ratio rises: in one run on one CPU thread
# from about 1.4 at 64 tokens to 1.7 at 1,024.
#
# </details>
#
# ## Recap
#
# - The K/V cache makes the next token cost one pass over one position.
# - A pass has a floor: the weights are read once and the operations are started once, for one position as for many.
#   The arithmetic grows with the positions; in a large model the reading hides it as long as they are far fewer than
#   $k^* = b \cdot$ (multiply-adds per second) / (bytes per second).
# - $L = (T_\text{draft} + T_\text{verify})/\tau$ is the time per token; speculation pays while
#   $\tau > (T_\text{draft} + T_\text{verify})/T_\text{plain}$.

# %%
low, high = sorted([eight, pass_ms[8] / pass_ms[1]])
if is_credible(first_ms) and is_credible(pass_ms):
    print(f"Eight positions cost {low:.2f} to {high:.2f} passes over one, not 8, on {lab.device_name}: that is why guessing ahead can pay.")
else:
    print("The machine was too busy for a closing number: run both measurements again.")

# %% [markdown]
# **Next:** the target can check seven guesses in one pass, at the price above. But when it draws its tokens at
# random, what does it mean for a guess to be right? [Lesson 02](02_the_lossless_rule.ipynb) derives the rule that
# keeps the output distribution exactly the target's.
