# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=45 difficulty="medium"
# # 01 · Why guessing ahead pays
#
# **What you will be able to do**
#
# - say what a pass of a large model waits for, and work out from a data sheet how many tokens it can carry for the price of one
# - measure the same on your own machine
# - compute the time of a token, $L = (T_\text{draft} + T_\text{verify}) / \tau$, and use it to find what is wrong with a published speed-up
#
# **What you need:** lesson 00. No GPU.
#
# **Sources:** the formula for $L$ is equation 1 of the [DSpark paper](references.md#dspark), section 2.1; the two limits of a pass are the
# [roofline model](references.md#roofline); the run of exercise 3 is a [public notebook](references.md#public-notebook).
# [Notation](notation.md) · [glossary](glossary.md)

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite
from dspark_course.exercises import lesson_01 as exercises
from dspark_course.exercises.predictions import predict
from dspark_course.figures import lesson_01 as figures
from dspark_course.figures.strip import strip
from dspark_course.glue import claims, glue

here = strip("verify")

# %% [markdown]
# ## Eight predictions, seven thrown away
#
# This is plain decoding. The text stands already; the model reads it, and makes a prediction after every word.

# %%
from dspark_course.figures.lesson_00 import one_pass_figure

text = "The cat sat on the mat and purred".split()
picture = one_pass_figure(text, "cat sat on the mat and slept .".split(), guesses=False)

# %% [markdown]
# Only the last prediction is news. The other seven say what follows the beginnings of a text that we have already. They are computed all
# the same, because a *causal* model reads all positions at once, and each position looks at itself and at those before it.
#
# A decoder with a K/V cache does not read the old words again. It keeps their keys and values, and reads one new word in each pass. Then
# nothing is thrown away, and nothing is gained either: one pass, one word. Speculative decoding goes the other way. It fills the pass
# with guesses, so that up to the first wrong guess all its predictions are news.
#
# Does a pass over eight tokens make the same predictions as eight passes over one? And what does it cost? The first question is answered in
# one cell. `prefill` reads a prompt and fills a cache; `verify` reads further tokens and predicts after each.

# %%
from dspark_lite.losslessness.ties import same_or_tied

torch.set_grad_enabled(False)  # nothing is trained here
lab = dspark_lite.setup()
ids = lab.encode(lab.prompts["math"][0])  # [1, n]
answer = dspark_lite.generate(lab.target, None, ids, max_new_tokens=9, stop_token_ids=()).token_ids  # nine passes, one token each
step, cache = lab.target.prefill(ids)
together = lab.target.verify(torch.tensor([answer[:8]], device=lab.device), cache).logits[0].argmax(-1).tolist()
print("one pass over 8 tokens:", together)
print("eight passes over one: ", answer[1:])
assert same_or_tied(lab.target, ids, answer[:1] + together, answer)

# %% [markdown]
# ## What a pass waits for
#
# Now the price. Take a real pair: Qwen3-4B on an H100. Three lines of arithmetic are enough.
#
# Nearly all the work of a model is multiplying by its weights. Before a weight can be used it has to come from the GPU's memory, and it
# comes once per pass, however many tokens the pass reads. Then it is multiplied once *for every token*, which takes two operations, a
# multiplication and an addition.

# %%
weights, bytes_per_weight = 4e9, 2  # Qwen3-4B, in 16 bits
bandwidth, operations = 3.35e12, 990e12  # an H100's data sheet: bytes and 16-bit operations per second
reading = 1e3 * weights * bytes_per_weight / bandwidth  # milliseconds
multiplying = 1e3 * 2 * weights / operations  # milliseconds, for one token
print(f"reading the weights:            {reading:6.3f} ms")
print(f"multiplying them for one token: {multiplying:6.3f} ms")
print(f"for eight tokens:               {8 * multiplying:6.3f} ms")
glue(gigabytes=weights * bytes_per_weight / 1e9, reading=reading, multiplying=multiplying, eight=8 * multiplying,
     idle=1 - 8 * multiplying / reading)

# %% [markdown]
# **⟦gigabytes:.0f⟧ GB of weights take ⟦reading:.1f⟧ ms to arrive. Multiplying them for a token takes ⟦multiplying:.3f⟧ ms, for eight tokens
# ⟦eight:.2f⟧ ms.** Even with eight tokens the part that multiplies waits for ⟦idle:.0 %⟧ of the time. Seven guesses travel in a bus that
# is leaving anyway.
#
# For how many tokens does this hold? Until multiplying takes as long as reading. Work the number out from the two times before you
# go on.

# %%
room_guess = predict("How many tokens can a pass of Qwen3-4B on an H100 carry for the price of one?", ...)

# %%
room = reading / multiplying
room_guess.beside(f"{room:.0f}", label="by data sheet")
picture = figures.envelope_figure([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], reading, multiplying, "Qwen3-4B on an H100")
glue(room=room)

# %% [markdown]
# About ⟦room:.0f⟧ tokens. We call this number the *room* of the machine, $k^*$. An anchor and seven drafts use a small part of it (if all seven
# are right, the target's own token comes on top, and the pass has brought eight); the rest can go to other requests that share the pass, and lessons 10 and 11 are about sharing it.
#
# ### Exercise 1 · The envelope (code)
# *10 minutes · easy · core. If you do only one, do this.*
#
# Write the least time of a pass over `k` tokens, in seconds. Reading and multiplying happen at the same time, and the pass ends when both
# are done.
#
# <details><summary>Hint</summary>
#
# Two times, as above. Which of them contains `k`? And how long does it take to do two things at once?
#
# </details>

# %% tags=["exercise"]
def pass_seconds(k, weights, bytes_per_weight, bandwidth, operations):
    """The least seconds of a pass over k tokens; bandwidth in bytes per second, operations per second."""
    return ...


done = exercises.check_pass_seconds(pass_seconds)

# %% tags=["solution"]
def pass_seconds(k, weights, bytes_per_weight, bandwidth, operations):
    """The least seconds of a pass over k tokens; bandwidth in bytes per second, operations per second."""
    reading = weights * bytes_per_weight / bandwidth  # once per pass
    multiplying = 2 * k * weights / operations  # two operations per weight, for every token
    return max(reading, multiplying)


done = exercises.check_pass_seconds(pass_seconds)

# %%
from dspark_course.measure.roofline import DEVICES, Device

my_pass = pass_seconds if done else exercises.pass_seconds  # yours, once it is right
print("Qwen3-4B in 16 bits, by data sheet")
print("GPU        1 token   8 tokens   300 tokens      room")
rooms = {}
for gpu in (*DEVICES.values(), Device("H100", bandwidth, operations, 80e9)):
    times = [1e3 * my_pass(k, weights, 2, gpu.bandwidth, gpu.operations) for k in (1, 8, 300)]
    rooms[gpu.name] = gpu.operations / gpu.bandwidth
    print(f"{gpu.name:6} {times[0]:8.1f} ms {times[1]:7.1f} ms {times[2]:9.1f} ms  {rooms[gpu.name]:8.0f}")
glue(t4=rooms["T4"], h200=rooms["H200"], faster=DEVICES["H200"].bandwidth / DEVICES["T4"].bandwidth)

# %% tags=["claim"]
claims({"the H200 and the T4 have about the same room": abs(rooms["H200"] / rooms["T4"] - 1) < 0.1,
        "no room is below a hundred": min(rooms.values()) > 100})

# %% [markdown]
# The H200 of 2024 reads about ⟦faster:.0f⟧ times as fast as the small T4 of 2018, and yet the two have about the same room, ⟦h200:.0f⟧ and ⟦t4:.0f⟧
# tokens: reading and multiplying have both grown. On each of these GPUs a pass over one token leaves more than nine tenths of the arithmetic idle. (The size of
# the model cancels: the time of reading and the time of multiplying both grow with it.)
#
# ## On this machine
#
# A data sheet promises what nobody quite reaches. So we measure a pass of this lab's target over 1 to 32 tokens, after the prompt.

# %%
from functools import partial

from dspark_lite.common.timing import least_milliseconds

some = torch.randint(lab.target.vocab_size, (1, 32), device=lab.device, generator=lab.generator())
step, cache = lab.target.prefill(ids)


def read(tokens):
    """One pass over tokens [1, k] after the prompt; the cache is left as it was."""
    lab.target.verify(tokens, cache)
    lab.target.roll_back(cache, tokens.shape[1])


positions = [1, 2, 4, 8, 16, 24, 32]
pass_ms = least_milliseconds({k: partial(read, some[:, :k]) for k in positions}, lab.device, repeats=40)  # {tokens: milliseconds}
price = pass_ms[8] / pass_ms[1]
picture = figures.pass_cost_figure(positions, list(pass_ms.values()), lab.device_name)
print(f"a pass over 8 tokens takes {price:.2f} times as long as a pass over one")
glue(price=price)

# %% tags=["claim"]
claims({"eight tokens cost far less than eight passes": price < 3, "and more than one pass": price > 1.05})

# %% [markdown]
# The dotted line is what one token per pass would take. The measured line stays far below it. Eight tokens cost about ⟦price:.1f⟧ passes
# here, not eight, and not quite one either: a tiny model on a processor waits less for its weights than a large one on a GPU, and more for
# starting its many small operations. These are paid once per pass. The rest is arithmetic, of which a processor does little at a time: its room
# is small.
#
# ## The time of a token
#
# Three numbers decide how fast speculative decoding is. A round drafts a block, in $T_\text{draft}$ seconds. Then the target reads it and
# the tokens are committed, in $T_\text{verify}$. Together they bring $\tau$ tokens on average. So a token takes
#
# $$\boxed{L = \frac{T_\text{draft} + T_\text{verify}}{\tau}}$$
#
# Plain decoding is the case of no draft and $\tau = 1$, with $T_\text{plain}$ for its pass. Everything in this course pulls at this
# fraction. A parallel drafter makes $T_\text{draft}$ small, a sequential head raises $\tau$, and a scheduler keeps $T_\text{verify}$ small on a
# busy server.
#
# ### Exercise 2 · The speed-up (code)
# *10 minutes · easy · core.*
#
# How many times as fast as plain decoding is speculation? 1 means no gain, less is a loss. The three times are in one unit, and
# `draft_seconds` is the time of the whole block.
#
# <details><summary>Hint</summary>
#
# Write down the seconds of one token both ways, and divide.
#
# </details>

# %% tags=["exercise"]
def speedup(tau, draft_seconds, verify_seconds, plain_seconds):
    """How many times as fast as plain decoding a round of speculative decoding is."""
    return ...


done = exercises.check_speedup(speedup)

# %% tags=["solution"]
def speedup(tau, draft_seconds, verify_seconds, plain_seconds):
    """How many times as fast as plain decoding a round of speculative decoding is."""
    return tau * plain_seconds / (draft_seconds + verify_seconds)


done = exercises.check_speedup(speedup)

# %% [markdown]
# Before the next cell: suppose that drafts cost nothing and are always right, seven of them in a block. What is the most that you can gain
# here, at your price of a pass over eight tokens?

# %%
most = predict("How many times as fast as plain decoding, at the very best?", ...)

# %%
my_speedup = speedup if done else exercises.speedup
best = my_speedup(8, 0.0, pass_ms[8], pass_ms[1])
most.beside(f"{best:.1f} times", label="at most")
glue(best=best)

# %% [markdown]
# Now a real run with DSpark's drafter, one prompt, in turn with plain decoding. Does the formula agree with the clock? (Its three terms come from the
# very rounds that the clock sees, so the question is whether a round holds anything else that takes time.)

# %%
import numpy as np

drafter = lab.drafter("dspark")
runs = {"plain": [], "dspark": []}
for _ in range(6):  # in turn, so that a busy moment of the machine meets both
    for name, used in (("plain", None), ("dspark", drafter)):
        runs[name].append(dspark_lite.generate(lab.target, used, ids, max_new_tokens=lab.max_new_tokens))
runs = {name: found[1:] for name, found in runs.items()}  # the first of each warms up
table = {}
print(f"{'':8}{'prefill':>10}{'T_draft':>10}{'T_verify':>10}{'tau':>7}{'L by the formula':>19}{'L by the clock':>17}")
for name, found in runs.items():
    rounds = [r for run in found for r in run.rounds]
    prefill, draft, verify = (1e3 * np.mean(times) for times in (
        [run.prefill_seconds for run in found], [r.draft_seconds for r in rounds], [r.verify_seconds for r in rounds]))
    tau = np.mean([r.committed for r in rounds])
    clocked = 1e3 * sum(run.decode_seconds for run in found) / (tau * len(rounds))
    table[name] = {"tau": tau, "draft": draft, "verify": verify, "L": (draft + verify) / tau, "clock": clocked}
    print(f"{name:8}{prefill:7.1f} ms{draft:7.2f} ms{verify:7.2f} ms{tau:7.2f}{(draft + verify) / tau:16.2f} ms{clocked:14.2f} ms")
row, plain = table["dspark"], table["plain"]
predicted = my_speedup(row["tau"], row["draft"], row["verify"], plain["draft"] + plain["verify"])
measured = plain["clock"] / row["clock"]
print(f"speed-up: {predicted:.2f} by the formula, {measured:.2f} by the clock")
glue(tau=row["tau"], measured=measured, cost=(row["draft"] + row["verify"]) / (plain["draft"] + plain["verify"]))

# %% tags=["claim"]
claims({"formula and clock agree within a tenth": abs(predicted / measured - 1) < 0.1,
        "a round costs more than a plain pass and less than what it brings": 1 < row["L"] * row["tau"] / plain["L"] < row["tau"]})

# %% [markdown]
# A round costs about ⟦cost:.1f⟧ plain passes and brings ⟦tau:.1f⟧ tokens: ⟦measured:.1f⟧ times plain decoding. The formula says the same
# within a few percent.
#
# The *prefill*, the target's pass over the prompt, is left out of both. It is the same work for every method (small differences are chance), and no drafter can
# shorten it. Counted
# in, it would drag every speed-up towards one, most of all in short answers. The reader of an answer waits for it all the same, so a
# server reports it by itself, as the *time to first token*.
#
# ## Turn the three knobs
#
# Times are in plain passes; the sliders start at what was measured. The upper bar is $\tau$ tokens of plain decoding, the lower bar is the
# one round that brings them. Make the lower bar the longer one: once with a cheap draft that is seldom right, once with a draft that is
# always right and slow.

# %%
from dspark_course.figures import widgets

unit = plain["draft"] + plain["verify"]
panel = widgets.explore(
    figures.round_cost_figure, {"tau": 1.2}, {"tau": 8.0, "draft": 7.0},
    tau=widgets.slider("accepted length τ", round(float(row["tau"]), 2), 1.0, 8.0, 0.01),
    draft=widgets.slider("T_draft (plain passes)", round(float(row["draft"] / unit), 2), 0.0, 8.0, 0.01),
    verify=widgets.slider("T_verify (plain passes)", round(float(row["verify"] / unit), 2), 0.5, 8.0, 0.01))

# %% [markdown]
# Speculation pays while $\tau$ is larger than the cost of a round in plain passes. The figure's title calls that point *break-even*.
#
# ### Exercise 3 · What is wrong with this run? (think)
# *10 minutes · hard · core.*
#
# A public notebook measured the released DSpark with Qwen3-4B on a GB200, on the prompt "In one short paragraph, explain why the sky is
# blue." It prints a speed-up of 3.66. These are its own numbers. One of the two decoders cannot have
# been measured at its best. Which, and how do you know? And there is a second, smaller slip: compare the lengths of the two answers.

# %%
from dspark_course.common.recorded import reference

public = reference("public_run.json")
run = public["speed_run"]
print(f"plain    {run['plain_tokens']} tokens in {run['plain_seconds']} s: {1e3 * run['plain_seconds'] / run['plain_tokens']:.0f} ms per token")
print(f"DSpark   {run['dspark_tokens']} tokens in {run['dspark_seconds']} s, {run['dspark_rounds']} rounds: "
      f"{1e3 * run['dspark_seconds'] / run['dspark_rounds']:.0f} ms per round, accepted length {run['dspark_accepted_length']}")
print(f"printed speed-up {public['speedup']}")
same_answer = run["plain_seconds"] / run["dspark_seconds"]
glue(round_ms=1e3 * run["dspark_seconds"] / run["dspark_rounds"], pass_ms=1e3 * run["plain_seconds"] / run["plain_tokens"],
     printed=public["speedup"], public_tau=run["dspark_accepted_length"], same_answer=same_answer,
     extra=run["dspark_tokens"] - run["plain_tokens"])

# %% tags=["claim"]
claims({"the printed round is shorter than the printed plain pass":
        run["dspark_seconds"] / run["dspark_rounds"] < run["plain_seconds"] / run["plain_tokens"],
        "the printed speed-up exceeds the accepted length": public["speedup"] > run["dspark_accepted_length"] and same_answer > 3.14})

# %% [markdown]
# <details><summary>Hint</summary>
#
# A round contains a pass of the target over eight tokens, and a draft. Which is longer, such a round or a pass over one token? What follows
# for the largest speed-up that a given $\tau$ allows?
#
# </details>
# <details><summary>Answer</summary>
#
# A round can never be shorter than a plain pass, for it contains a pass of the same model over more tokens. So
# $T_\text{draft} + T_\text{verify} \ge T_\text{plain}$, and **the speed-up can never exceed $\tau$**. Here $\tau$ is ⟦public_tau:.2f⟧ and the
# printed speed-up ⟦printed:.2f⟧. The numbers contradict each other: ⟦round_ms:.0f⟧ ms for a round, ⟦pass_ms:.0f⟧ ms for a plain pass. It is *plain
# decoding* that was too slow, by something that the speculative loop does not pay. A first run that warms up would do it, or a slower loop.
#
# The second slip: DSpark's ⟦extra⟧ additional tokens stand after the end of the answer, and a reader never sees them. To the same answer the
# ratio of the times is ⟦same_answer:.2f⟧. That is still more than $\tau$ allows.
#
# Keep the test: whenever you read a speed-up at batch 1, ask for $\tau$, and be suspicious where the speed-up is the larger one.
#
# </details>
#
# ### Exercise 4 · Your machine (open)
# *20 minutes · medium · optional.*
#
# How does the price of eight tokens depend on the number of threads (`torch.set_num_threads`), or on the length of the context? Choose one, write down
# what you expect, measure with `least_milliseconds`, and plot it.
#
# <details><summary>Hint</summary>
#
# For the context, fill a cache of each length with random tokens and time 1 and 8 tokens after it. Attention is paid for every token, and
# there is more of it in a longer context.
#
# </details>
#
# <details><summary>How sure are we?</summary>
#
# The times of GPUs are data sheets' peaks: take the room as an order of magnitude. The measured times are of this machine and one prompt, a pass
# alone the shortest of forty repeats; another run may differ by a tenth. That the speed-up cannot exceed $\tau$ is arithmetic, for one request at a
# time and two loops of the same code.
#
# </details>
#
# ## Recap
#
# - A pass reads every weight once, however many tokens it carries. On a large GPU reading takes so long that a hundred tokens or more
#   ride along for free.
# - So a round can check seven guesses for little more than the price of one pass: about ⟦price:.1f⟧ passes here.
# - $L = (T_\text{draft} + T_\text{verify})/\tau$ is the time of a token. At best you would gain ⟦best:.1f⟧ here, and never more than $\tau$.
#
# **Next:** all of this was greedy, where a guess is right or wrong. But models usually draw their tokens at random. What does it mean for
# a guess to be right then? [Lesson 02](02_the_lossless_rule.ipynb) derives the rule.
