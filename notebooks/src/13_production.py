# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=75 difficulty="medium"
# # 13 · Production
#
# Draft, rule and scheduler are right, and they are not yet a service: a device waits for its host, passes come in prepared sizes, heads go
# wrong, and promises have a price.
#
# **After this lesson you can**
# - say what DeepSeek ships, and how it differs from the drafts in the paper's tables
# - write a loop in which the host works while the device does, and say which lag that needs
# - keep a calibration right while the traffic changes, and say what a wrong one costs
# - turn a promised speed into a number of machines, and read "+661 %" without being taken in
# - decide when not to speculate
#
# **What you need**: lesson 09 (STS), lesson 10 (Algorithm 1, the lagged budget), lesson 11 (the engine, frontiers).
#
# **Sources**: the [DSpark paper](references.md#dspark), section 5. [Notation](notation.md) · [glossary](glossary.md)

# %% tags=["setup"]
pass

# %%
import numpy as np
import torch

import dspark_lite
from dspark_course.exercises import lesson_13 as exercises
from dspark_course.figures import lesson_13 as figures
from dspark_course.figures.strip import strip
from dspark_course.glue import claims, glue

torch.set_grad_enabled(False)
lab = dspark_lite.setup()
target, drafter = lab.target, lab.drafter("dspark")
picture = strip(("schedule", "verify"))

# %% [markdown]
# ## What is shipped is not the paper's draft
#
# The paper's tables are about drafts for Qwen3 and Gemma. What runs behind DeepSeek's service is a relative with fewer layers, a short
# window and fewer drafts:
#
# | | the drafts of the tables | the draft that is shipped with DeepSeek-V4 |
# |---|---|---|
# | layers | five, dense | three, each a mixture of experts; hyper-connections (several residual streams) join them |
# | a layer sees | the whole context | a sliding window of 128 tokens |
# | drafts | 7 | 5 |
# | heads | Markov (or RNN), confidence | Markov, confidence, calibrated by STS |
# | comes as | a checkpoint of its own | the target's checkpoint plus a module |
# | ragged verification needs | a mask | new kernels for two parts of V4's attention |
# | not public | – | its training data, its calibration, its cost table, its engine |
#
# [The V4 draft in miniature](more/v4_drafter.ipynb) builds its parts, each on one screen, and trains them. Now to what stands around it.
#
# ## A gap that no algorithm sees
#
# An engine does more than draft and verify. After each step the CPU, the **host**, turns tokens into text, looks for stop strings, sends
# the text off, and searches the next budget. Meanwhile the expensive **device** waits. We serve twelve requests; here a thread plays the
# device.

# %%
from dspark_course.measure.step_time import profile
from dspark_lite.serving.engine import Engine, Request
from dspark_lite.serving.pipeline import serve

slots, new = 12, 40
longest = slots * (drafter.gamma + 1)
sizes = range(8, longest + 1, 8)  # of passes that were prepared: more below
table = profile(target, [1, *sizes], repeats=3)[0].in_buckets(sizes)
prompts = [lab.encode(texts[index]) for index in range(4) for texts in lab.prompts.values()]


class Host:
    """What a server does with the tokens of a step."""

    def __init__(self):
        self.reports, self.ids, self.stopped = [], {}, set()

    def deliver(self, report):
        self.reports.append(report)
        for number, tokens in report.written.items():
            self.ids[number] = self.ids.get(number, []) + tokens
            text = lab.decode(self.ids[number])  # the whole answer: how a token reads may depend on those before it
            self.stopped |= {number for stop in ("\n\n\n", "</answer>") if stop in text}


def served(overlapped):
    """The host of twelve requests that have been served."""
    engine, host = Engine(target, drafter, slots=slots, capacity=512, buckets=sizes), Host()
    for prompt in prompts:
        engine.submit(Request(prompt, new))
    serve(engine, table, host.deliver, overlapped=overlapped)
    return host


in_turn = served(overlapped=False)
print(f"{len(prompts)} answers in {len(in_turn.reports)} steps")

# %% [markdown]
# On this CPU a step is so slow that the host hardly shows. A GPU takes a few milliseconds, and the host's work stays what it is. So we
# play the same steps again at a GPU's `pace`: the device's thread only waits; the host's work is real, and measured.

# %%
from dspark_course.measure.paced import PacedEngine
from dspark_course.replication.recorded_steps import lengths_by, recorded_steps

pace = {"draft": 1e-3, "verify": 4e-3}  # seconds


def paced(overlapped):
    """What was done when, at the pace of a GPU; the recorded steps five times over."""
    return serve(PacedEngine(target, 5 * in_turn.reports, pace, recorded_steps(slots)[0]), table, Host().deliver, overlapped=overlapped)


waiting = paced(overlapped=False)
picture = figures.two_lanes({"one after another": waiting}, 4, f"{lab.device_name}; the device only waits")

# %% [markdown]
# The white in the upper lane is the gap: an expensive device that stands still. (Where the host rests too, a thread woke late.)

# %%
from dspark_course.exercises.predictions import predict

overlap = predict("A device needs 8 ms for a step, its host 2 ms. How many times as fast does the engine get if the two overlap?", ...)

# %% [markdown]
# ## Work on the step before
#
# The cure is called **zero-overhead scheduling**: while the device runs step $t$, the host does what step $t - 1$ left. Then the device
# goes from step to step without a pause. But step $t + 1$ must be ready, with its size, when step $t$ ends. Until then the host has worked
# on the confidences of step $t - 1$; those of step $t$ come too late. So the budget of step $t + 1$ comes from step $t - 1$.
# Exercise 1 asks what the times would allow if the host could read confidences in mid-step.
#
# ### Exercise 1 · How old? (code)
# *8 minutes · easy · core.*
#
# A step drafts for `draft` milliseconds and verifies for `verify`; the next begins at once. A step's confidences exist when its draft is
# done. The host then searches for `host` milliseconds. The size of a step must be told `ahead` milliseconds before it begins; just in time
# will do. How many steps old are the newest confidences that can set a step's budget?
#
# <details><summary>Hint</summary>
#
# Step $s$ begins at $s\,T$, where $T$ is the length of a step. Write down when the search of its confidences ends, and by when step $t$
# must know its size. Solve for $t - s$.
#
# </details>


# %% tags=["exercise"]
def lag_needed(draft, verify, host, ahead):
    """How many steps old the newest confidences are that set a budget in time, a whole number."""
    return ...


done = exercises.check_lag(lag_needed)


# %% tags=["solution"]
def lag_needed(draft, verify, host, ahead):
    """How many steps old the newest confidences are that set a budget in time, a whole number."""
    return int(np.ceil((draft + host + ahead) / (draft + verify)))


done = exercises.check_lag(lag_needed)

# %% [markdown]
# An engine that queues a step while the one before begins has `ahead` = one whole step. Then any search that is shorter than a
# verification pass gives 2. **That is the paper's lag of two.**
#
# ### Exercise 2 · The loop (code)
# *20 minutes · medium · core. If you do only one, do this.*
#
# `device.start(budget)` begins a step and returns at once. `device.finish()` waits for it and returns its confidences. `host(confidences)`
# works for a while and returns a budget. Run `steps` steps such that the device never waits for the host. The first two steps get `None`,
# for whole blocks.
#
# <details><summary>Hint 1</summary>
#
# Where must `host` stand, between which two calls?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Two variables live from one turn of the loop to the next: the budget of the coming step, and the confidences that nobody has worked on.
#
# </details>


# %% tags=["exercise"]
def pipelined(device, host, steps):
    """Runs `steps` steps; the host works on a step's confidences while the next one runs."""
    ...


done = exercises.check_pipeline(pipelined)


# %% tags=["solution"]
def pipelined(device, host, steps):
    """Runs `steps` steps; the host works on a step's confidences while the next one runs."""
    budget, confidences = None, None
    for _ in range(steps):
        device.start(budget)
        if confidences is not None:
            budget = host(confidences)
        confidences = device.finish()


done = exercises.check_pipeline(pipelined)

# %% [markdown]
# The engine's loop is yours with some bookkeeping: `told` is what the head said of a step, `policy.plan`
# searches the budget. `wait([running])` keeps the host idle until the device is done: so the requests above
# were served. Now without it:

# %%
import inspect

from dspark_lite.serving import pipeline

print(inspect.getsource(pipeline.serve).split("number = 0\n")[1].split("    return")[0])
hidden = paced(overlapped=True)
picture = figures.two_lanes({"one after another": waiting, "overlapped": hidden}, 4, f"{lab.device_name}; the device only waits")

# %%
from dspark_lite.losslessness.ties import same_or_tied

both = served(overlapped=True)
for number, prompt in enumerate(prompts):
    plain = dspark_lite.generate(target, None, prompt, max_new_tokens=new).token_ids
    assert same_or_tied(target, prompt, in_turn.ids[number], plain) and same_or_tied(target, prompt, both.ids[number], plain)
print(f"on the models: {len(prompts)} answers, each the target's own, one after another and overlapped")
step_times = [figures.typical(events, 4)[1] for events in (waiting, hidden)]
work = [np.median([event.ended - event.began for event in waiting if event.part == part]) for part in ("plan", "deliver")]
print(f"at a GPU's pace: a step takes {1e3 * step_times[0]:.1f} ms one after another and {1e3 * step_times[1]:.1f} overlapped, "
      f"{step_times[0] / step_times[1]:.2f} times as fast; of it {1e3 * sum(work):.1f} ms are the host's")
overlap.beside(f"{(8 + 2) / 8:.2f}", "computed")

# %% [markdown]
# Overlapping hides the shorter of the two, and no more.
# (White left in the lower device lane: the thread that plays the device woke late, or waited for the host's to let it run.)
# Try it: with a host slower than its device, whose lane has the gaps?

# %%
from dspark_course.figures import widgets

panel = widgets.explore(figures.model_lanes, {"host": 6.0}, draft=widgets.slider("draft (ms)", 1.0, 0.5, 4.0, 0.5),
                        verify=widgets.slider("verify (ms)", 4.0, 1.0, 10.0, 0.5), host=widgets.slider("host (ms)", 2.0, 0.5, 10.0, 0.5))

# %% [markdown]
# ### Is it still lossless?
#
# Lesson 10 broke the scheduler by letting it look ahead. A lagged budget comes from drafts that are judged already. We count every outcome
# of Appendix A's example, four tokens long, so that a lag of two takes hold.

# %%
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import appendix_a
from dspark_lite.scheduling import LaggedTopK, retrospective

target_a, drafter_a, table_a = appendix_a()
alone = output_distribution(target_a, None, None, 4)
away = {}
for name, policy in (("two steps old", LaggedTopK(table_a)), ("one step old", LaggedTopK(table_a, lag=1)), ("of the step itself", retrospective(table_a))):
    away[name] = total_variation(output_distribution(target_a, drafter_a, policy, 4), alone)
    print(f"budget from confidences {name:18}: off by a total variation of {away[name]:.3f}")

# %% tags=["claim"]
claims({"a lag is lossless, and none is not": max(away["two steps old"], away["one step old"]) < 1e-9 < 0.1 < away["of the step itself"]})

# %% [markdown]
# Speed asked for the lag, and exactness comes with it.
#
# ## Sizes that were prepared
#
# A GPU engine does not launch each operation of a step anew. It **replays a recording**, and a recording has a fixed size. So passes are
# recorded at, say, every eighth number of tokens, and a pass of 43 is padded to 48.
#
# Who chooses first and pads afterwards wastes on average half of the spacing. But a budget that is searched in a price list *of recorded
# sizes* (`table.in_buckets(sizes)`) fills a recording to its end by itself: up to there a draft is free.

# %%
from dspark_course.replication.recorded_steps import replayed_speed, tokens_and_seconds
from dspark_lite.scheduling import algorithm1, threshold
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.serving.engine import next_size

requests = 16
steps, accepted = recorded_steps(requests)
most = requests * (steps[0].tokens.shape[1] + 1)
batch = np.arange(1, most + 1)
smooth = CostTable(batch, 1 / (0.010 * np.sqrt(1 + (batch / 96) ** 2)))  # lesson 10's smooth machine
whole = replayed_speed(tokens_and_seconds(torch.full_like(accepted, steps[0].tokens.shape[1]), accepted, smooth))
padding, speeds = {}, {}
for spacing in (1, 4, 8, 16, 32):
    prepared = range(spacing, most + 1, spacing)
    prices = smooth.in_buckets(prepared)
    for name, policy in {"threshold": threshold(0.5), "convex": algorithm1(prices.lower_hull()), "lagged": LaggedTopK(prices)}.items():
        lengths = lengths_by(policy, steps)
        tokens = requests + lengths.sum(1)
        padding.setdefault(name, {})[spacing] = 1 - float(tokens.sum()) / sum(next_size(prepared, size) for size in tokens.tolist())
        speeds.setdefault(name, {})[spacing] = replayed_speed(tokens_and_seconds(lengths, accepted, prices)) / whole
picture = figures.padding_by_spacing(padding, speeds, requests)
wide = max(padding["lagged"])
glue(threshold_waste=100 * padding["threshold"][wide])
padded, verified = (sum(getattr(report, what) for report in both.reports) for what in ("padding", "verified"))
print(f"in the engine above: {padded / (padded + verified):.1%} of the tokens of its passes were padding, where answers begin or end")

# %% tags=["claim"]
claims({"a lagged budget pads nothing": max(padding["lagged"].values()) < 1e-9,
        "what chooses first pads, and more with coarser recordings": padding["threshold"][wide] > padding["threshold"][4] > 0})

# %% [markdown]
# With recordings far apart, ⟦threshold_waste:.0f⟧ % of a threshold's passes are padding. Algorithm 1
# pads as well: it decides by the convex view (lesson 10), which smooths the sizes away. The lagged budget fills the same
# places with drafts. What its lag costs shows on the right, where the spacing is one.
#
# ## Calibration that lives
#
# A scheduler believes its head. Lesson 09 calibrated it once, on one mix of prompts; then the service runs for months. We plant two
# accidents. The traffic drifts from math to chat. Then an update scales the head's output by mistake, and the head is twice as sure as it
# should be: its logits double. (We plant the doubling alone: target and drafts stay as they were.)
#
# `OnlineSTS` keeps a window of the newest blocks that were verified whole. Every few blocks it asks lesson 09's question, whether a
# fresh fit would do better, and if so takes it.

# %%
from dspark_course.replication import recorded_confidence
from dspark_course.replication.drift import Phase, drift

phases = [Phase("math", 1.0, 1600), Phase("chat", 1.0, 2600), Phase("chat", 2.0, 2600)]
found = drift(recorded_confidence.observations(), recorded_confidence.stored_sts(), phases)
picture = figures.drift_series(found, phases)

# %%
late = {}
for number, name in ((1, "traffic drifts"), (2, "the head goes wrong")):
    late[number] = found.after(number, 2000)
    points = [f"{100 * ece:4.1f}" for ece in late[number]]
    print(f"2,000 blocks after {name:20}: ECE, in points, {points[0]} as stored, {points[1]} kept online, {points[2]} fitted to this traffic")
lengths = {number: np.mean([value for value, phase in zip(found.accepted_length, found.phase) if phase == number]) for number in (0, 1)}

# %% tags=["claim"]
claims({"online, 2,000 blocks after each change, the error is within 1.5 times a stationary fit's": all(o < 1.5 * f for _, o, f in late.values()),
        "the stored calibration stands the drift of the traffic": late[1][0] < 1.5 * late[1][2],
        "and not a head that has gone wrong": late[2][0] > 2 * late[2][2],
        "the drift costs tokens": lengths[0] - lengths[1] > 0.5})

# %% [markdown]
# The two changes look opposite. When the *traffic* drifts, a round brings fewer tokens, and the old calibration, fitted to all domains,
# holds: the head reads the text and says by itself that chat is harder. When the *head* goes wrong, tokens per round tell nothing, and the
# ECE jumps. (Where the blue curve bulges, its last fit was to the traffic before. A fit can
# also raise it a little: the window is small, and ECE is measured on other prompts.)
# So watch both series, by domain. A third thing ages, SPS,
# with drivers and kernels: profile it anew when the software changes.
#
# **Who may teach the window?** Blocks verified whole, *by lot*. Those that the scheduler itself verified whole are the ones that the head
# trusted. A head that trusts too little would never hear that it was wrong.
#
# ## What is a wrong head worth?
#
# The paper gives this reason for STS: over-confidence makes the scheduler waste verification. How much? In lesson 11's model of the engine
# we bend the head's logits, by a factor or by a constant (in nats).

# %%
guess = predict("Algorithm 1 on a full server. Which costs more: a head that is 4 times as sure (logits times 4), or one that is too doubtful "
                "(logits minus 3)? What is the most that over-confidence of any size can cost?", ...)

# %%
from dspark_course.replication import recorded_serving
from dspark_course.replication.drift import throughput_by_head

report = recorded_serving.serving_run()
loads = sorted({row["concurrency"] for row in report["policies"]})
busiest = loads[-1]
by_head = throughput_by_head(busiest)
picture = figures.wrong_heads(by_head, busiest, report["device"])
guess.beside(", ".join(f"{name}: {value.value:.3f}" for name, value in by_head.items()), "model")
glue(doubtful=by_head["3 nats too doubtful"].value, calibrated=by_head["as calibrated"].value)

# %% tags=["claim"]
right, sure, doubtful = (by_head[name] for name in ("as calibrated", "4 times as sure", "3 nats too doubtful"))
claims({"doubt costs far more than being 4 times as sure": right.value - doubtful.value > 5 * abs(right.value - sure.value),
        "doubt ends below whole blocks": doubtful.high < 1,
        "on the full server the calibrated head does not beat whole blocks": right.low < 1})

# %% [markdown]
# Being four times as sure costs next to nothing: confidences move away from one half, and what was likelier than not stays so. However sure
# a head is, the worst that it can ask for is the whole block, which is 1 here: no more is lost than the scheduler had gained. (On this
# engine it gains nothing, as in lesson 11: the calibrated head stands at ⟦calibrated:.2f⟧, and a surer one comes nearer to whole blocks.)
# Doubt has no such floor. It throws away drafts that were right and paid for, and ends *below* whole blocks, at ⟦doubtful:.2f⟧. **Fear the doubtful head**,
# which no report of wasted tokens shows.
#
# ## The price of a promise
#
# Lesson 11 read throughput off a frontier at a promised speed. Here are DSpark and MTP-1 at every promise, ours and the paper's.

# %%
def rising(name, policy):
    """A frontier [n, 2] of rising speeds; where noise made a heavier load look faster, that speed counts for both."""
    curve = recorded_serving.frontier(name, policy)[::-1]
    return np.stack([np.maximum.accumulate(curve[:, 0]), curve[:, 1]], 1)


ours, theirs = rising("dspark", "lagged"), rising("mtp", "all")
picture = figures.promises(ours, theirs, report["device"])

# %% [markdown]
# The paper's +51 and +661 % lie on **one curve** (dashed, V4-Flash), its +52 and +406 % on another
# (dotted, V4-Pro). The two gains of a curve differ only in how near the promise is to MTP-1's reach, its speed for a user who is
# alone. There MTP-1 has hardly a user left; a bit further, the gain would be infinite. At equal throughput (right) the same servers differ
# by a factor that never explodes. Quote that one. Where something other than arithmetic limits how
# many requests are under way (memory, a cap), there is nothing to trade: throughput is that number times the speed of each.
#
# ### Exercise 3 · How many machines? (code)
# *10 minutes · easy · core.*
#
# `curve` [n, 2] is the frontier of one machine, rows (speed of each user, throughput) by rising load.
# `exercises.throughput_at(curve, promise)` is lesson 11's. How many machines give `users` users the promised speed? Return a whole number,
# or `np.inf` where a machine does not give it to a single user. A machine may serve a fraction of a user: it is a mean over time.
#
# <details><summary>Hint</summary>
#
# How many users does one machine serve at the promised speed?
#
# </details>


# %% tags=["exercise"]
def machines_for(curve, users, promise):
    """How many machines give so many users a promised speed."""
    return ...


done = exercises.check_machines(machines_for)


# %% tags=["solution"]
def machines_for(curve, users, promise):
    """How many machines give so many users a promised speed."""
    served = exercises.throughput_at(curve, promise) / promise
    return np.inf if served < 1 else int(np.ceil(users / served))


done = exercises.check_machines(machines_for)

# %%
machines = machines_for if done else exercises.machines_for  # yours once it is right
print("promise (of MTP-1's fastest)   machines for 1,000 users: MTP-1   DSpark")
for share in (0.3, 0.5, 0.7, 0.9, 1.2):
    needed = [machines(curve[::-1], 1000, share * theirs[-1, 0]) for curve in (theirs, ours)]
    print(f"{share:27.0%} {needed[0]:36} {needed[1]:8}")

# %% [markdown]
# ## When not to
#
# A policy that verifies nothing is not the same as not speculating: the draft has been paid for. So to **gate** a class of requests means
# not to draft for them, either. The cell measures what drafting in vain costs, and what short answers gain, whose prompt nobody speeds up.
# It predicts how many requests a GPU takes into one pass before arithmetic lasts longer than reading the weights.

# %%
from dspark_course.measure import roofline

in_vain = {load: recorded_serving.gain("throughput", recorded_serving.row("costs", concurrency=load, drafter="dspark", policy="budget 1"),
                                       recorded_serving.row("costs", concurrency=load, drafter="plain", policy="fixed 0")) for load in loads}
print("drafts that nobody verifies, throughput over plain:", ", ".join(f"{load} under way {value.value:.2f}" for load, value in in_vain.items()))

tokens_alone = {name: recorded_serving.value("per_user", recorded_serving.row("policies", concurrency=1, drafter=name, policy=policy))
                for name, policy in (("plain", "all"), ("dspark", "lagged"))}
prompt = sum(recorded_serving.prefill_costs("dspark"))
shorter = {length: (prompt + length / tokens_alone["plain"]) / (prompt + length / tokens_alone["dspark"]) for length in (2, 8, 32, 128)}
print("times as fast, prompt included:", ", ".join(f"{length} tokens {ratio:.2f}" for length, ratio in shorter.items()))

print("\nQwen3-4B, predicted:  a pass holds   requests with 8 tokens   break-even tokens per round")
for name, gpu in roofline.DEVICES.items():
    free = gpu.operations / gpu.bandwidth  # tokens at which arithmetic takes as long as reading 16-bit weights
    print(f"{name:>20} {free:8.0f} tokens {free / 8:20.0f} {roofline.predict(name, 'dspark').break_even:27.1f}")
glue(vain=in_vain[busiest].value)

# %% tags=["claim"]
claims({"drafting in vain loses at every load": max(value.value for value in in_vain.values()) < 1,
        "a short answer gains less than a long one": shorter[2] < shorter[8] < shorter[128]})

# %% [markdown]
# On a full server, drafting in vain leaves ⟦vain:.2f⟧ of plain decoding's throughput. The rule behind all cases is one line: **speculate
# while $\tau > (T_\text{draft} + T_\text{verify}) / T_\text{plain}$, measured at your load.** The table's last column is its right side for
# Qwen3-4B under light load; in this lab a draft costs more beside its small target, as the first printed line shows.
# [Which drafter, and when not to](which_drafter.md) is the page to keep: a decision table, and what vLLM and SGLang call each thing.
#
# ### Exercise 4 · Five services (think)
# *10 minutes · medium · core.*
#
# For each: speculate, gate, or leave it? Which number would you measure first? (a) a classifier that answers "yes" or "no"; (b) one
# engineer, one H200, long programs; (c) nightly summaries, the batch as large as memory allows; (d) a chat service, busy by day and idle by
# night; (e) yesterday's fine-tuned target with the draft of the base model.
#
# <details><summary>Answer</summary>
#
# (a) Leave it: the answer is one token, and the prompt's pass gives it. (Above, two tokens gain because our prompts are short.)
# (b) Speculate, whole blocks; measure $\tau$. (c) Leave it, if the pass is at its arithmetic limit:
# measure the time of a pass with one token more per request. Where memory, not arithmetic, fills first, it may still pay. (d)
# Speculate with a scheduler: by night it verifies whole blocks, by day it cuts them; if by day it verifies hardly anything, gate, so that
# nothing is drafted either. (e) Measure $\tau$ by domain against the base model's; nothing warns of it. Then fine-tune the draft on the
# new target's answers.
#
# </details>
#
# > **How sure are we?** A thread stands for the device: the gain printed above is this machine's, under the load it had. Wrong heads run in a
# > model of the engine, on recorded blocks. The drift is one stream of such blocks, its ECE measured on other prompts. The roofline is
# > computed from data sheets.
#
# **More**: [trees and selectors](more/trees_and_selectors.ipynb), a drafted tree in one pass, and DFlash 2's head; [the V4 draft in
# miniature](more/v4_drafter.ipynb).
#
# ## Recap
# - Zero-overhead scheduling hides the host behind the device. It needs budgets that are two steps old, and those make even a search
#   without a stop lossless.
# - A budget that knows the prepared sizes turns padding into drafts.
# - Traffic may drift and a calibration hold; a head that goes wrong shows in its ECE alone. Doubt costs more than confidence.
# - Ratios at a promise explode near a rival's reach; those at equal throughput do not.
# - Not speculating must mean not drafting.
#
# **Next**: [14, the clinic](14_the_clinic.ipynb): drafters that run, answer correctly, and are slow.
