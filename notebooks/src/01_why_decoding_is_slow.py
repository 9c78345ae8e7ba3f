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
# **⟦printed:.2f⟧ times as fast.** This number was published and cannot be right; you will see why.
#
# **What you will be able to do**
#
# - say what a pass of a large model waits for, and work out from a data sheet how many tokens it can carry for the price of one
# - measure the same on your own machine
# - compute the time of a token, $L = (T_\text{draft} + T_\text{verify}) / \tau$, and use it to find what is wrong with a published speed-up
#
# **What you need:** lesson 00. No GPU.
#
# **Sources:** the formula for $L$ is equation 1 of the [DSpark paper](../docs/references.md#dspark), section 2.1; the two limits of a pass are the
# [roofline model](../docs/references.md#roofline); the run of case 01 is a [public notebook](../docs/references.md#public-notebook).
# [Notation](../docs/notation.md) · [glossary](../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite
from dspark_lite.course.bets import bet, show_score
from dspark_lite.course.exercises import lesson_01 as exercises
from dspark_lite.course.figures import lesson_01 as figures
from dspark_lite.course.figures.living_round import living_round
from dspark_lite.course.lesson_text import claims, glue
from dspark_lite.course.measure.recorded_rounds import recorded_rounds

# %% [markdown]
# The gain on lesson 00's clock was smaller than $\tau$, the tokens per round. To see why, we ask what one pass of the target costs.
#
# ## Eight predictions, seven thrown away
#
# Take one pass over a text that is already written. The model makes a prediction after every word. A prediction need not match the text:
# after "and" the model says "slept", where the text has "purred".

# %%
from dspark_lite.course.figures.lesson_00 import one_pass_figure

text = "The cat sat on the mat and purred".split()
picture = one_pass_figure(text, "cat sat on the mat and slept .".split(), guesses=False)

# %% [markdown]
# Only the last prediction (blue) is news. The seven dotted ones say what follows the beginnings of a text that we have already. The model
# computes them all the same: it reads all *positions* (places of tokens) at once, and, being *causal*, predicts at each from that one
# and those before it.
#
# A decoder with a K/V cache keeps the keys and values of the old words, and reads one new word in each pass. Nothing is thrown away, but
# a pass still brings only one word. This is *plain decoding* from here on. Speculative decoding fills the pass with guesses instead. The
# predictions then check the guesses in order. At the first one that is wrong, the target's prediction takes its place, and everything
# after it is thrown away.
#
# Does a pass over eight tokens make the same predictions as eight passes over one? And what does it cost? First the predictions:
# `prefill` reads a prompt and fills a cache; `verify` reads further tokens and predicts after each.

# %%
from dspark_lite.losslessness.ties import same_or_tied

torch.set_grad_enabled(False)  # nothing is trained here
lab = dspark_lite.setup()
ids = lab.encode(lab.prompts["math"][0])  # [1, n]
answer = dspark_lite.generate(lab.target, None, ids, max_new_tokens=9, stop_token_ids=()).token_ids
# The prompt's pass gave the first of these nine tokens, eight more passes the rest.
step, cache = lab.target.prefill(ids)
together = lab.target.verify(torch.tensor([answer[:8]], device=lab.device), cache).logits[0].argmax(-1).tolist()
print("one pass over 8 tokens:", together)
print("eight passes over one: ", answer[1:])
assert same_or_tied(lab.target, ids, answer[:1] + together, answer)

# %% [markdown]
# The same tokens: one pass does the work of eight, if the tokens that go in are known. A drafter guesses them.
#
# ## What a pass waits for
#
# Now the price. Take a real pair, Qwen3-4B on an H100.
#
# Where the text is short, nearly all the work of a model is multiplying by its weights. Before a weight can be used, it has to come from the
# GPU's memory. This happens once per pass, however many tokens the pass reads; the *bandwidth* is the bytes that arrive per second. Then the
# weight is multiplied once *for every token*, which takes two operations, a multiplication and an addition. Both happen at the same time.

# %%
carried = bet("01 tokens for the price of one")

# %% tags=["answer"]
weights, bytes_per_weight = 4e9, 2  # Qwen3-4B, in 16 bits
bandwidth, operations = 3.35e12, 990e12  # an H100's data sheet: bytes and 16-bit operations per second
reading = 1e3 * weights * bytes_per_weight / bandwidth  # milliseconds
multiplying = 1e3 * 2 * weights / operations  # milliseconds, for one token
print(f"reading the weights:            {reading:6.3f} ms")
print(f"multiplying them for one token: {multiplying:6.3f} ms")
print(f"for eight tokens:               {8 * multiplying:6.3f} ms")
room = reading / multiplying  # tokens whose multiplying takes as long as the reading
offers = {"about 10": 10, "about 50": 50, "about 300": 300, "about 3,000": 3000}
carried.settle(min(offers, key=lambda text: abs(room / offers[text] - 1)),
               f"{room:.0f}, by data sheet: reading takes {reading:.1f} ms, multiplying {multiplying:.3f} ms for each token")
glue(gigabytes=weights * bytes_per_weight / 1e9, reading=reading, multiplying=multiplying, eight=8 * multiplying,
     idle=1 - 8 * multiplying / reading)

# %% [markdown]
# <details><summary>After your bet</summary>
#
# **⟦gigabytes:.0f⟧ GB of weights take ⟦reading:.1f⟧ ms to arrive. Multiplying them for one token takes ⟦multiplying:.3f⟧ ms, for eight
# tokens ⟦eight:.3f⟧ ms.** Even with eight tokens the part that multiplies waits for ⟦idle:.0 %⟧ of the time. Seven guesses travel in a
# bus that is leaving anyway.
#
# </details>
#
# Here is lesson 00's round with that pass drawn to scale:

# %%
picture = living_round("time", recorded_rounds("greedy"))

# %% [markdown]
# Further tokens are free until multiplying takes as long as reading. The figure draws both.

# %% tags=["answer"]
picture = figures.envelope_figure([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], reading, multiplying, "Qwen3-4B on an H100")
glue(filled=8 / room)

# %% [markdown]
# The black line is flat as long as a pass takes as long as reading the weights. Where it bends, each further token (or position, one per
# token) makes the pass longer. We call the number of tokens up to there the [*room*](../docs/glossary.md#room) of the machine.
#
# The anchor (the newest token) and seven guesses fill ⟦filled:.0 %⟧ of the room; others can share it (lesson 11).
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

# %% [markdown]
# Now the same model on five GPUs, by your function.

# %%
wider = bet("01 room of a faster GPU")

# %% tags=["folded", "answer"]
# @title Print the times on five GPUs
from dspark_lite.course.measure.roofline import DEVICES, Device

my_pass = pass_seconds if done else exercises.pass_seconds  # yours, once it is right
print("Qwen3-4B in 16 bits, by data sheet")
print("GPU        1 token   8 tokens   300 tokens      room")
rooms = {}
for gpu in (*DEVICES.values(), Device("H100", bandwidth, operations, 80e9)):
    times = [1e3 * my_pass(k, weights, 2, gpu.bandwidth, gpu.operations) for k in (1, 8, 300)]
    rooms[gpu.name] = gpu.operations / gpu.bandwidth
    print(f"{gpu.name:6} {times[0]:8.1f} ms {times[1]:7.1f} ms {times[2]:9.1f} ms  {rooms[gpu.name]:8.0f}")
ratio = rooms["A100"] / rooms["T4"]
wider.settle("much larger" if ratio > 2 else "smaller" if ratio < 0.9 else "about the same",
             f"{rooms['A100']:.0f} tokens against the T4's {rooms['T4']:.0f}")

# %% tags=["claim"]
claims({"no room is below a hundred, so eight tokens take as long as one": min(rooms.values()) > 100,
        "some rooms are well below 300": min(rooms.values()) < 250})

# %% [markdown]
# On each GPU eight tokens take as long as one; 300 take longer where the room is well below 300. (In the room the number of weights cancels.
# In 16 bits so do the two bytes of a weight and its two operations, so the room is simply operations divided by bandwidth.)
#
# ## On this machine
#
# A data sheet promises what nobody quite reaches. What does your own machine do? We time passes of this lab's target over 1 to 32 tokens
# after the prompt, and keep the shortest of ten repeats. A processor does little arithmetic at a time, so its room is small: expect a line
# that rises from the start, and ask how steeply. (The axes are linear here.)

# %%
eight_here = bet("01 eight tokens here")

# %% tags=["answer"]
from functools import partial

from dspark_lite.common.timing import least_milliseconds

some = torch.randint(lab.target.vocab_size, (1, 32), device=lab.device, generator=lab.generator())
step, cache = lab.target.prefill(ids)


def read(tokens):
    """One pass over tokens [1, k] after the prompt; the cache is left as it was."""
    lab.target.verify(tokens, cache)
    lab.target.roll_back(cache, tokens.shape[1])


positions = [1, 2, 4, 8, 16, 24, 32]
pass_ms = least_milliseconds({k: partial(read, some[:, :k]) for k in positions}, lab.device, repeats=10)  # {tokens: milliseconds}
price = pass_ms[8] / pass_ms[1]
picture = figures.pass_cost_figure(positions, list(pass_ms.values()), lab.device_name)
eight_here.settle(price, f"{pass_ms[8]:.1f} ms against {pass_ms[1]:.1f} ms, on {lab.device_name}")
glue(price=price)

# %% tags=["claim"]
claims({}, by_clock={"eight tokens cost far less than eight passes": price < 3, "and more than one pass": price > 1.05})

# %% [markdown]
# The dotted line is what the tokens would cost in passes of their own. (A processor's times vary, so look at the trend.)
#
# <details><summary>After your bet</summary>
#
# The measured line stays far below the dotted one: eight tokens cost about ⟦price:.1f⟧ passes, not eight. Much of a pass is paid once,
# however many tokens it reads: on a large GPU reading the weights; with a tiny model on a processor presumably starting its many small
# operations, but we have not profiled it. The rest is arithmetic.
#
# </details>
#
# ## The time of a token
#
# Three numbers decide how fast speculative decoding is. A round drafts a block, in $T_\text{draft}$ seconds. Then the target reads it and
# the tokens are committed, in $T_\text{verify}$. A round brings $\tau$ tokens on average, the *accepted length*; it counts the target's own
# token, so seven drafts give at most eight. So a token takes
#
# $$\boxed{L = \frac{T_\text{draft} + T_\text{verify}}{\tau}}$$
#
# In plain decoding nothing is drafted and $\tau = 1$, so $L$ is $T_\text{plain}$, the time of a pass over one token. The later
# lessons make $T_\text{draft}$ small, raise $\tau$, and keep $T_\text{verify}$ small on a busy server.
#
# ### Exercise 2 · The speed-up (code)
# *10 minutes · easy · core.*
#
# How many times as fast as plain decoding is speculative decoding? 1 means no gain, less is a loss. The three times are in one unit, and
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
# Now a real run: DSpark and plain decoding in turn, on one prompt. The clock starts after the *prefill*, the target's pass over the
# prompt, which no drafter can shorten: counted in, it would draw all methods towards one another. "L by the formula" comes from the three
# numbers to its left, "L by the clock" is the time of decoding divided by the number of tokens. The two differ if a round holds anything
# else that takes time.

# %%
clocked_gain = bet("01 gain by the clock")

# %% tags=["folded", "answer"]
# @title Decode a prompt with and without DSpark, in turn, and print the terms
import numpy as np

drafter = lab.drafter("dspark")
my_speedup = speedup if done else exercises.speedup  # yours, once it is right
runs = {"plain": [], "dspark": []}
for _ in range(3):  # in turn, so that a busy moment of the machine meets both
    for name, used in (("plain", None), ("dspark", drafter)):
        runs[name].append(dspark_lite.generate(lab.target, used, ids, max_new_tokens=64))
runs = {name: found[1:] for name, found in runs.items()}  # the first of each warms up
table = {}
print(f"{'':8}{'T_draft':>10}{'T_verify':>10}{'tau':>7}{'L by the formula':>19}{'L by the clock':>17}")
for name, found in runs.items():
    rounds = [r for run in found for r in run.rounds]
    draft, verify = (1e3 * np.mean(times) for times in ([r.draft_seconds for r in rounds], [r.verify_seconds for r in rounds]))
    if name == "plain":
        draft, verify = 0.0, draft + verify  # it drafts nothing: the loop's bookkeeping counts as part of the pass
    tau = np.mean([r.committed for r in rounds])
    clocked = 1e3 * sum(run.decode_seconds for run in found) / (tau * len(rounds))
    table[name] = {"tau": tau, "draft": draft, "verify": verify, "L": (draft + verify) / tau, "clock": clocked}
    print(f"{name:8}{draft:7.2f} ms{verify:7.2f} ms{tau:7.2f}{(draft + verify) / tau:16.2f} ms{clocked:14.2f} ms")
row, plain = table["dspark"], table["plain"]
predicted = my_speedup(row["tau"], row["draft"], row["verify"], plain["verify"])
measured = plain["clock"] / row["clock"]
clocked_gain.settle(measured, f"{predicted:.2f} by the formula: a round brings {row['tau']:.1f} tokens, and its draft and its pass cost "
                    f"{row['draft'] / plain['verify']:.2f} and {row['verify'] / plain['verify']:.2f} plain passes")
glue(tau=row["tau"], measured=measured, cost=(row["draft"] + row["verify"]) / plain["verify"], price_of_seven=row["verify"] / plain["verify"],
     best=my_speedup(8, 0.0, row["verify"], plain["verify"]))

# %% tags=["claim"]
claims({}, by_clock={
    "formula and clock agree within a tenth": abs(predicted / measured - 1) < 0.1,
    "a round costs more than a plain pass and less than what it brings": 1 < row["L"] * row["tau"] / plain["L"] < row["tau"]})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# A round costs about ⟦cost:.1f⟧ plain passes and brings ⟦tau:.1f⟧ tokens: ⟦measured:.1f⟧ times plain decoding's speed. Free drafts that are
# always right would gain ⟦best:.1f⟧, not eight, since a pass over eight tokens costs ⟦price_of_seven:.1f⟧ plain ones.
#
# </details>
#
# Formula and clock agree. (The times and their ratio differ from the figure's above: the table has means over whole answers, the figure the
# shortest of ten passes; and $T_\text{verify}$ includes committing the tokens.)
#
# ## Turn the three knobs
#
# Both times are in plain passes; the sliders start at what was measured, to two decimals. The upper bar is $\tau$ tokens of plain decoding, the
# lower bar is the one round that brings them. Make the lower bar the longer one: once with a cheap draft that is seldom right, once with
# a draft that is always right and slow.

# %%
from dspark_lite.course.figures import widgets

unit = plain["verify"]
panel = widgets.explore(
    figures.round_cost_figure, {"tau": 1.2}, {"tau": 8.0, "draft": 7.0},
    tau=widgets.slider("accepted length τ", round(float(row["tau"]), 2), 1.0, 8.0, 0.01),
    draft=widgets.slider("T_draft (plain passes)", round(float(row["draft"] / unit), 2), 0.0, 8.0, 0.01),
    verify=widgets.slider("T_verify (plain passes)", round(float(row["verify"] / unit), 2), 1.0, 8.0, 0.01))

# %% [markdown]
# Speculation pays while $\tau$ is larger than the cost of a round in plain passes. The figure's title calls that point *break-even*. A draft
# that is seldom right brings $\tau$ below that point; a slow draft moves the point above $\tau$.
#
# ## Never more than $\tau$
#
# A round contains a pass of the target over the anchor and the drafts. A plain pass reads the anchor alone, so it takes no longer, a
# processor's moods aside, and the round drafts besides. So a round costs at least one plain pass:
#
# $$T_\text{draft} + T_\text{verify} \ge T_\text{plain} \quad\Rightarrow\quad
# \text{speed-up} = \frac{\tau \, T_\text{plain}}{T_\text{draft} + T_\text{verify}} \le \tau$$
#
# **The speed-up can never exceed $\tau$**, for one request at a time and two loops of the same code on the same machine.
#
# **Case 01.** A public run's gain that looks a little too good. Measure at most three things, then accuse. (DSpark's tokens and seconds are
# worked out from what is printed: rounds, tokens per round, tokens per second. Both decoders are far slower than the data sheet allows,
# presumably because of the software around the pass. Leave that aside.)

# %%
from dspark_lite.course.cases import case

investigation = case("01")

# %% tags=["folded"]
# @title Read the public run's numbers
from dspark_lite.course.result_files import reference

public = reference("public_run.json")
run = public["speed_run"]
same_answer = run["plain_seconds"] / run["dspark_seconds"]
glue(round_ms=1e3 * run["dspark_seconds"] / run["dspark_rounds"], pass_ms=1e3 * run["plain_seconds"] / run["plain_tokens"],
     printed=public["speedup"], public_tau=run["dspark_accepted_length"], same_answer=same_answer,
     extra=run["dspark_tokens"] - run["plain_tokens"])

# %% tags=["claim"]
claims({"the printed round is shorter than the printed plain pass":
        run["dspark_seconds"] / run["dspark_rounds"] < run["plain_seconds"] / run["plain_tokens"],
        "the printed speed-up exceeds the accepted length": public["speedup"] > run["dspark_accepted_length"] and same_answer > 3.14,
        "the printed speed-up compares tokens per second":
        abs(public["speedup"] / (same_answer * run["dspark_tokens"] / run["plain_tokens"]) - 1) < 0.01})

# %% [markdown]
# <details><summary>After your case</summary>
#
# The printed speed-up, ⟦printed:.2f⟧, is larger than $\tau$, ⟦public_tau:.2f⟧. The times show why: ⟦round_ms:.0f⟧ ms for a round,
# ⟦pass_ms:.0f⟧ ms for a plain pass. The round contains a pass over more tokens and a draft, so it should take longer. It is *plain
# decoding* that was too slow. Why, the numbers do not say: it had written some tokens before the clock started, so warming up is hardly the
# cause; perhaps its loop does more for each token.
#
# The second slip: the printed speed-up compares tokens per second, and DSpark's ⟦extra⟧ additional tokens stand after the end of the
# answer, unseen by a reader. To the same answer the ratio of the times is ⟦same_answer:.2f⟧, still more than $\tau$.
#
# Keep the test: whenever you read a speed-up at batch 1, ask for $\tau$, and be suspicious where the speed-up is the larger one.
#
# </details>
#
# <details><summary>How sure are we?</summary>
#
# The times of GPUs come from data sheets' peaks: take the room as an order of magnitude. The measured times are of this machine and one
# prompt; another run may differ by a tenth.
#
# </details>
#
# ## Recap
#
# - A pass reads every weight once, however many tokens it carries. On a large GPU reading takes so long that a hundred tokens or more
#   ride along for free.
# - Here a pass that checks seven guesses costs about ⟦price_of_seven:.1f⟧ plain passes, and a whole round with its draft ⟦cost:.1f⟧.
# - $L = (T_\text{draft} + T_\text{verify})/\tau$ is the time of a token. The gain is never more than $\tau$.
#
# **Next:** all of this was greedy, where a guess is right or wrong. But models usually draw their tokens at random. What does it mean for
# a guess to be right then? [Lesson 02](02_the_lossless_rule.ipynb) derives the rule.

# %%
show_score("01")

# %% [markdown]
# ## Beyond the core
#
# The lesson is complete without this exercise.
#
# ### Exercise 3 · Your machine (open)
# *20 minutes · medium · optional.*
#
# How does the price of eight tokens depend on the number of threads (`torch.set_num_threads`), or on the length of the context? Choose one,
# write down what you expect, measure with `least_milliseconds`, and plot it.
#
# <details><summary>Hint</summary>
#
# For the context, fill a cache of each length with random tokens and time 1 and 8 tokens after it. Attention is paid for every token, and
# there is more of it in a longer context.
#
# </details>
