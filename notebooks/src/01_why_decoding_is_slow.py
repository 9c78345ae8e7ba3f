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
# - what a pass costs as it carries 1 to 32 positions, measured on this machine, and why the later positions are cheap
# - the one formula that every later lesson tries to make smaller, $L = (T_\text{draft} + T_\text{verify}) / \tau$
#
# **What you need:** lesson 00, and an idea of what attention does with keys and values. No GPU.
#
# **Sources:** the formula for $L$ is equation 1 of the [DSpark paper](references.md#dspark), section 2.1; the picture of two limits is
# the [roofline model](references.md#roofline). [Notation](notation.md) · [glossary](glossary.md)

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

from dspark_lite.measure.lab import setup

torch.set_grad_enabled(False)  # nothing is trained here
lab = setup()
model = lab.target.model
prompt = lab.prompts["math"][0]
ids = lab.encode(prompt)  # [1, n]
print(prompt)
print(f"\n{ids.shape[1]} tokens with the chat template, on {lab.device_name}")

# %% [markdown]
# One pass over the prompt. It returns logits for *every* position, each predicting the token after it; for writing
# we need the last row only.

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
# `Target.prefill` reads a prompt and returns the filled cache; `Target.verify` reads further tokens after it.

# %%
def decode_with_cache(ids, count):
    """`count` greedy tokens after ids [1, n]; after the prompt each pass reads one token."""
    step, cache = lab.target.prefill(ids)
    tokens = [step.logits[0, -1].argmax().item()]
    while len(tokens) < count:
        step = lab.target.verify(torch.tensor([tokens[-1:]], device=lab.device), cache)
        tokens.append(step.logits[0, -1].argmax().item())
    return tokens

# %% [markdown]
# The claim is that the cache changes nothing but the time: the same tokens, one for one. (In 16 bits the two ways
# round differently and may part where two tokens are nearly equally probable; `same_or_tied` allows that and nothing
# else.) `generate` without a drafter is the same loop in the package.

# %%
from dspark_lite import generate
from dspark_lite.losslessness.ties import same_or_tied

fast = decode_with_cache(ids, 24)
package = generate(lab.target, None, ids, max_new_tokens=24, stop_token_ids=()).token_ids
agree = sum(a == b for a, b in zip(slow, fast, strict=True))
print(f"{agree} of {len(slow)} tokens equal with and without cache")
assert fast == package
assert same_or_tied(lab.target, ids, slow, fast)

# %% [markdown]
# How much time does it save? We take contexts of several lengths and time the *next* token both ways. Which tokens
# stand in the context makes no difference to the cost, so we fill it with random ones. `milliseconds` gives the
# median time of each of several pieces of work that take turns, so that a busy moment of the machine meets all of
# them.

# %%
from functools import partial

from dspark_lite.common.timing import milliseconds


def read(tokens, cache):
    """One pass over tokens [1, k] after the cache, which is left as it was."""
    lab.target.verify(tokens, cache)
    lab.target.roll_back(cache, tokens.shape[1])


contexts = [64, 128, 256, 512, 1024]
text = torch.randint(lab.target.vocab_size, (1, 1025), device=lab.device, generator=lab.generator())
everything = {n: partial(model, input_ids=text[:, :n + 1], use_cache=False, logits_to_keep=1) for n in contexts}
one_token = {n: partial(read, text[:, n:n + 1], lab.target.prefill(text[:, :n])[1]) for n in contexts}
without_cache = milliseconds(everything, lab.device, repeats=5)
with_cache = milliseconds(one_token, lab.device, repeats=15)

# %%
from dspark_lite.figures import lesson_01 as figures

picture = figures.context_cost_figure(contexts, list(without_cache.values()), list(with_cache.values()), lab.device_name)
print(f"At 1,024 tokens of context the next token costs {without_cache[1024]:.1f} ms without the cache and "
      f"{with_cache[1024]:.1f} ms with it.")

# %% [markdown]
# Without a cache the price of a token grows with everything written so far; the price of a whole answer grows with
# the square of its length. With the cache it grows by little: only the attention over the stored keys and values gets
# longer.
#
# The cache is paid for in memory. Here is what one holds for our prompt, counted.

# %%
_, cache = lab.target.prefill(ids)
keys, values = cache.layers[0].keys, cache.layers[0].values  # [1, key heads, n, head size]
held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
print(f"layer 0 holds keys {tuple(keys.shape)} and values {tuple(values.shape)} in {lab.target.dtype}")
print(f"all {len(cache.layers)} layers: {held:,} bytes for {ids.shape[1]} tokens")

# %% [markdown]
# ### Exercise 1 · Bytes of a context (code)
# Write that number as a formula of the model's shape. `config` has `num_hidden_layers`, `num_attention_heads`,
# `num_key_value_heads` and `head_dim`.
#
# <details><summary>Hint</summary>
#
# The printed shapes are those of one layer's keys. What do the other dimensions stand for, and which of the four fields
# does not enter?
#
# </details>

# %%
from dspark_lite.exercises import lesson_01 as exercises

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

# %% [markdown]
# ## What one pass costs as it carries more positions
#
# The cache took the repeated reading away. What it leaves is the floor of the lower curve: even the shortest context
# pays a full pass for one token, and then another for the next. Is a pass expensive because of the token it reads, or
# because it is a pass?
#
# We can ask. `verify` takes any number of tokens at once, and its rows are the same predictions as if they had been
# read one by one:

# %%
step, cache = lab.target.prefill(ids)
together = lab.target.verify(torch.tensor([fast[:8]], device=lab.device), cache).logits[0].argmax(-1).tolist()
print("after each of 8 tokens, in one pass:", together)
print("one token at a time, eight passes:  ", fast[1:9])
assert same_or_tied(lab.target, ids, fast[:1] + together, fast[:9])

# %% [markdown]
# So if somebody *told* us the next 8 tokens, a single pass would confirm them all. Now its price, for 1 to 32 positions
# after the prompt. What do you expect of 8 positions: as much as one, twice as much, eight times as much?

# %%
from dspark_lite.exercises.predictions import predict

price = predict("A pass over 8 positions takes how many times as long as a pass over one?", ...)

# %%
positions = [1, 2, 4, 8, 12, 16, 24, 32]
_, cache = lab.target.prefill(ids)
pass_ms = milliseconds({k: partial(read, text[:, :k], cache) for k in positions}, lab.device, repeats=25)
picture = figures.pass_cost_figure(positions, list(pass_ms.values()), lab.device_name)
eight = pass_ms[8] / pass_ms[1]
price.beside(f"{eight:.2f} times, on {lab.device_name}, now; in 8 passes 8 times")
assert pass_ms[32] / 32 < pass_ms[1]  # the price of a position falls

# %% [markdown]
# The dotted line is what a pass would cost if every position had to be paid in full. Eight positions cost less than twice as
# much as one, and 32 positions less than five times: the first position is the expensive one, each further one is cheap.
# (The ratio belongs to this machine and this model, and a pass inside a real round does a little more. What it is made
# of, we see next.)
#
# ## Why: reading weights against multiplying
#
# Nearly all of a pass is multiplication by the model's weight matrices. Each matrix has to be read from memory once per
# pass, however many positions there are. Each weight is then multiplied once *per position*. We count both.

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
# per weight. A machine can bring a certain number of bytes per second and can do a certain number of multiply-adds per
# second. A pass needs both, so it takes at least
#
# $$T(k) \ \ge\ \max\left(\frac{\text{bytes of the weights}}{\text{bytes per second}},\ \
# \frac{k \cdot \text{weights}}{\text{multiply-adds per second}}\right).$$
#
# The first term does not contain $k$. While it is the larger one, more positions are free: that is a floor, which real
# kernels come near to and do not reach.
#
# To measure both speeds here, we multiply with the target's own matrices and do nothing else, from 1 to 256
# positions.

# %%
import torch.nn.functional as F

widths = {matrix.shape[1] for matrix in matrices}
inputs = {width: torch.randn(256, width, device=lab.device, dtype=lab.target.dtype) for width in widths}


def multiply(k):
    """All matrix products of one pass over k positions, without attention, norms and the rest."""
    for matrix in matrices:
        F.linear(inputs[matrix.shape[1]][:k], matrix)


many = [1, 2, 4, 8, 16, 32, 64, 128, 256]
bare_ms = milliseconds({k: partial(multiply, k) for k in many}, lab.device, repeats=9)
speed = [k * weights / bare_ms[k] / 1e6 for k in many]  # billions of multiply-adds a second
pass_speed = [k * weights / pass_ms[k] / 1e6 for k in positions]

# %%
bandwidth, peak = weight_bytes / bare_ms[1] / 1e6, max(speed)  # billions of bytes, of multiply-adds, a second
picture = figures.roofline_figure(bandwidth, peak, weights / weight_bytes, many, speed, positions, pass_speed,
                                  lab.device_name)
print(f"{bandwidth:.1f} billion bytes and {peak:.1f} billion multiply-adds per second: "
      f"the roof bends at {peak / bandwidth:.1f} multiply-adds per byte.")

# %% [markdown]
# Left of the bend the machine waits for weights: intensity grows with $k$ and speed grows with it, at little extra
# time. Right of the bend it waits for the multiplications, and each position costs its full share. Real kernels (dots) round
# the corner: near the bend both terms are paid, in part one after the other. Real passes (squares) lie below the dots:
# they also compute norms and attention, and they start hundreds of small operations one after the other. How much of a
# pass is that, here?

# %%
for k in (1, 8, 32):
    print(f"{k:2} positions: pass {pass_ms[k]:5.2f} ms = matrix products {bare_ms[k]:5.2f} ms "
          f"+ everything else {pass_ms[k] - bare_ms[k]:5.2f} ms")

# %% [markdown]
# Read the last column before you believe the roofline: a third or more of a pass over one position is no matrix product but
# overhead. It too is paid once per pass and not once per position: for eight positions it is far from eight times as much.
# So in this small model two floors stand side by side, reading and overhead; in a model of billions of weights the matrix
# products are most of a pass, and reading is the floor. One position pays either of them in full.
#
# Where does the room end? Put $k$ where both terms are equal:
#
# $$k^* = b \cdot \frac{\text{multiply-adds per second}}{\text{bytes per second}}.$$
#
# Model size has cancelled. Only the machine's two speeds and the bytes of a weight are left.

# %%
from dspark_lite.measure.roofline import DEVICES


def free_positions(multiply_adds_per_second, bytes_per_second, bytes_per_weight):
    """How many positions a pass can carry before multiplying takes longer than reading the weights."""
    return bytes_per_weight * multiply_adds_per_second / bytes_per_second


bytes_per_weight = weight_bytes / weights
room = free_positions(peak, bandwidth, bytes_per_weight)
print(f"here, with {bytes_per_weight:.0f} bytes per weight: about {room:.0f} positions")
for name, device in DEVICES.items():  # a multiply-add is two operations, a weight has 16 bits
    print(f"{name:5} {device.operations / 1e12:4.0f} trillion operations and {device.bandwidth / 1e9:5.0f} billion bytes per second: "
          f"{free_positions(device.operations / 2, device.bandwidth, 2):4.0f} positions")

# %% [markdown]
# The lines below the first are data sheets': memory bandwidth and dense 16-bit throughput. They give peaks, so take the
# answer as an order of magnitude: 153 to 403 positions, on the small T4 of 2018 as on the H200 of 2024. There one
# block of 8 positions leaves nearly all of a pass's room unused.
#
# One caution for later: the room belongs to the machine, not to a request. $R$ requests decoded together, each with a
# block of $\gamma$ drafts and an anchor, fill $R(\gamma + 1)$ positions. Under load the same room is shared, which is
# what lessons 10 and 11 are about.
#
# ### Exercise 2 · Where the memory goes (think)
# The formula for $k^*$ leaves out the K/V cache. Suppose that each of $R$ requests has a long context, whose keys and
# values every pass must read. Does $k^*$ per request grow or fall with the length of the contexts? With $R$?
#
# <details><summary>Hint</summary>
#
# Write the bytes of a pass as weights + $R \cdot$ context. Then ask how many positions can be computed in the time that
# reading takes.
#
# </details>
# <details><summary>Answer</summary>
#
# A pass reads $W + R\,C$ bytes, $C$ for each request's context, and computes $k R$ positions. Computing takes longer than
# reading once $kR \cdot \text{weights}/\text{speed} > (W + R\,C)/\text{bandwidth}$, so the room per request is
# $k^* \propto W/R + C$. More requests share the room that the weights give; each brings room of its own with its
# context, because its keys are read once for all of its positions. With long contexts speculation pays even on a busy
# machine.
#
# </details>
#
# ## What a token costs when somebody guesses ahead
#
# A **round** of speculative decoding drafts a block ($T_\text{draft}$), reads it with the target in one pass
# ($T_\text{verify}$), and keeps what the target agrees with plus one token of the target's own: $\tau$ tokens on
# average, the **accepted length**. $N$ rounds take $N (T_\text{draft} + T_\text{verify})$ and yield $N\tau$ tokens.
# The time per token is their ratio:
#
# $$\boxed{L = \frac{T_\text{draft} + T_\text{verify}}{\tau}}$$
#
# Plain decoding is the case without a draft, $\tau = 1$ and $T_\text{verify} = T(1)$. Three ways to a smaller $L$:
# draft faster, verify cheaper, or be right more often. We look at all three terms in a real run of DSpark, against
# plain decoding of the same prompt.

# %%
drafter = lab.drafter("dspark")
runs = {"plain": [], "dspark": []}
for _ in range(6):  # one after the other, so that a busy moment of the machine meets both
    for name, used in (("plain", None), ("dspark", drafter)):
        runs[name].append(generate(lab.target, used, ids, max_new_tokens=lab.max_new_tokens))
runs = {name: found[1:] for name, found in runs.items()}  # the first run of a shape pays for memory
assert same_or_tied(lab.target, ids, runs["plain"][0].token_ids, runs["dspark"][0].token_ids)
print(lab.decode(runs["dspark"][0].token_ids))

# %%
import numpy as np

print(f"{'':8}{'T_draft':>10}{'T_verify':>10}{'tau':>7}{'L by the formula':>19}{'L by the clock':>17}")
for name, found in runs.items():
    rounds = [r for run in found for r in run.rounds]
    draft_ms = 1e3 * np.mean([r.draft_seconds for r in rounds])
    verify_ms = 1e3 * np.mean([r.verify_seconds for r in rounds])
    tau = np.mean([r.committed for r in rounds])
    clocked = 1e3 * sum(run.decode_seconds for run in found) / (tau * len(rounds))
    formula = (draft_ms + verify_ms) / tau
    print(f"{name:8}{draft_ms:7.2f} ms{verify_ms:7.2f} ms{tau:7.2f}{formula:16.2f} ms{clocked:14.2f} ms")

# %% [markdown]
# Formula and clock agree: it is an identity, not a model. A round of DSpark costs more than a plain pass and brings
# 6.88 tokens. The ratio of the two $L$ is the speed-up.
#
# What speculation does not touch is the time before the first token, the prompt's own pass: it is the same with and without
# a drafter, but for handing out the features that the drafter reads.

# %%
first = milliseconds({"plain": partial(lab.target.prefill, ids), "dspark": partial(lab.target.prefill, ids, drafter.taps)},
                     lab.device, repeats=25)
for name, found in runs.items():
    print(f"{name:8} first token after {first[name]:.1f} ms, the other {len(found[0].token_ids) - 1} "
          f"in {1e3 * np.median([run.decode_seconds for run in found]):.0f} ms")

# %% [markdown]
# ### Exercise 3 · A budget for the draft (code)
# Somebody builds a better drafter that takes longer. How long may it take at most, if the speed-up
# over plain decoding is to be `wanted`? Start from $L$.
#
# <details><summary>Hint</summary>
#
# What may a token cost at most? What may a round, which yields $\tau$ of them?
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
# ### Exercise 4 · Break even (code)
# Guessing ahead can also lose. At which accepted length does speculation break even with plain decoding?

# %% tags=["exercise"]
def break_even_tau(draft, verify, plain):
    """The accepted length at which a round costs as much per token as plain decoding."""
    return ...


done = exercises.check_break_even_tau(break_even_tau)

# %% tags=["solution"]
def break_even_tau(draft, verify, plain):
    """The accepted length at which a round costs as much per token as plain decoding."""
    return (draft + verify) / plain


done = exercises.check_break_even_tau(break_even_tau)

# %% [markdown]
# ## Choose the three numbers
#
# Times are in units of one plain pass, so the picture holds on any device; the sliders start at what was measured
# above. Upper bar: plain decoding of $\tau$ tokens. Lower bar: one round that commits the same $\tau$ tokens. There are two
# ways to make the lower bar the longer one, and the picture shows both: a cheap draft that is seldom right, and a draft
# that is always right and costs as much as the target.

# %%
from dspark_lite.figures import widgets

plain_ms = 1e3 * np.mean([r.verify_seconds for run in runs["plain"] for r in run.rounds])  # tau, draft_ms and verify_ms are DSpark's
panel = widgets.explore(
    figures.round_cost_figure, {"tau": 1.2}, {"tau": 8.0, "draft": 7.0},
    tau=widgets.slider("accepted length τ", float(tau), 1.0, 8.0, 0.01),
    draft=widgets.slider("T_draft (plain passes)", float(draft_ms / plain_ms), 0.0, 8.0, 0.01),
    verify=widgets.slider("T_verify (plain passes)", float(verify_ms / plain_ms), 0.5, 4.0, 0.01),
)

# %% [markdown]
# ### Exercise 5 · Your machine (open)
# How does $T(8)/T(1)$ depend on the machine's load, on the number of threads (`torch.set_num_threads`), and on the length
# of the context? Choose one, write down what you expect, measure with `milliseconds`, and plot it. What of the result is
# reading, what computing, what overhead?
#
# <details><summary>Hint</summary>
#
# The three-column print above separates matrix products from everything else; repeat it at each setting.
#
# </details>
#
# ## Recap
#
# - The K/V cache makes the next token cost one pass over one position. It holds a key and a value per layer for every
#   token.
# - A pass has a floor: the weights are read once and the operations are started once, for one position as for many.
#   The arithmetic grows with the positions but stays hidden until $k^* = b \cdot$ (multiply-adds per second) / (bytes
#   per second).
# - $L = (T_\text{draft} + T_\text{verify})/\tau$ is the time per token; speculation pays while
#   $\tau > (T_\text{draft} + T_\text{verify})/T(1)$.

# %%
print(f"A pass over 8 positions took {eight:.2f} times as long as a pass over one on {lab.device_name}:")
print("that is the room speculation lives in.")

# %% [markdown]
# **Next:** the target can check eight guesses in one pass, at the price above. But when it draws its tokens at random,
# what does it mean for a guess to be right? [Lesson 02](02_the_lossless_rule.ipynb) derives the rule that keeps the
# output distribution exactly the target's.
