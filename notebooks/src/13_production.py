# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=65 difficulty="medium"
# # 13 · Production
#
# Draft, rule and scheduler are right, and they are not yet a service: a device waits for its host, passes come in fixed sizes, heads go
# wrong, and promises have a price.
#
# **After this lesson you can**
# - say how the draft that DeepSeek ships differs from those in the paper's tables
# - write a loop in which the host works while the device does, and say which lag that needs
# - see when a calibration has gone wrong, mend it, and say what a wrong one costs
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
# Behind DeepSeek's service runs a relative of the drafts in the paper's tables: fewer layers, a short window, fewer drafts (table beyond
# the core).
#
# ## A gap that no algorithm sees
#
# An engine does more than draft and verify. After each step the CPU, the **host**, turns tokens into text, looks for stop strings, sends
# the text off, and searches the next budget. Meanwhile the expensive **device** waits: that is the white in the upper lane of this made-up
# engine.

# %%
picture = figures.model_lanes(draft=1.0, verify=4.0, host=2.0, modes=(False,))

# %%
from dspark_course.exercises.predictions import predict

overlap = predict("A device needs 8 ms for a step, its host 2 ms. How many times as fast does the engine get if the two overlap?", ...)

# %% [markdown]
# ## Work on the step before
#
# The cure is called **zero-overhead scheduling**: while the device runs step $t$, the host does what step $t - 1$ left, and the device
# need not pause. But step $t + 1$ must know its size when step $t$ ends. Our loop reads a step's confidences only when the step has ended, so
# those of step $t$ come too late: the budget comes from step $t - 1$, and the lag is two. Would reading them as soon as the draft is done
# shorten the lag? Exercise 1 works it out.
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
# If a size may be told just in time (`ahead` = 0), reading early helps: the lag is one when draft and search fit into a step. But an
# engine that queues each step as the one before begins has `ahead` = one whole step. Then any search no longer than a verification pass
# gives 2, however early you read. **That is the paper's lag of two.**
#
# ### Exercise 2 · The loop (code)
# *20 minutes · medium · core. If you do only one, do this.*
#
# `device.start(budget)` begins a step and returns at once. `device.finish()` waits for it and returns its confidences. `host(confidences)`
# works for a while and returns a budget. Run `steps` steps such that the host works while the device runs. The first two steps get `None`,
# for whole blocks. Nobody works on the last step's confidences; return nothing.
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
# The engine's loop, `serve`, is yours with some bookkeeping. With it we serve twelve requests, one after another and overlapped; a thread
# plays the device. Both ways spend the same budgets, two steps old: only the order of the work differs.

# %%
from dspark_course.measure.step_time import profile
from dspark_lite.serving.engine import Engine, Request
from dspark_lite.serving.pipeline import serve

slots, new = 12, 40
longest = slots * (drafter.gamma + 1)
sizes = range(8, longest + 1, 8)  # captured sizes of a pass: more below
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


in_turn, both = served(overlapped=False), served(overlapped=True)
print(f"{len(prompts)} answers in {len(in_turn.reports)} steps")

# %% [markdown]
# On this CPU a step is so slow that the host hardly shows. So we play the same steps again at a GPU's `pace`: the device's thread only
# waits; the host's work is real, and measured.

# %%
from dspark_course.measure.paced import PacedEngine
from dspark_course.replication.recorded_steps import recorded_steps

pace = {"draft": 1e-3, "verify": 4e-3}  # seconds


def paced(overlapped):
    """What was done when, at the pace of a GPU; the recorded steps five times over."""
    return serve(PacedEngine(target, 5 * in_turn.reports, pace, recorded_steps(slots)[0]), table, Host().deliver, overlapped=overlapped)


waiting, hidden = paced(overlapped=False), paced(overlapped=True)
picture = figures.two_lanes({"one after another": waiting, "overlapped": hidden}, 4, f"{lab.device_name}; the device only waits")

# %% tags=["folded"]
# @title The same answers, in less time
from dspark_lite.losslessness.ties import same_or_tied

for number, prompt in enumerate(prompts):
    plain = dspark_lite.generate(target, None, prompt, max_new_tokens=new).token_ids
    assert same_or_tied(target, prompt, in_turn.ids[number], plain) and same_or_tied(target, prompt, both.ids[number], plain)
print(f"on the models: {len(prompts)} answers, each the target's own, one after another and overlapped")
step_times = [figures.typical(events, 4)[1] for events in (waiting, hidden)]
work = [np.median([event.ended - event.began for event in waiting if event.part == part]) for part in ("plan", "deliver")]
print(f"at a GPU's pace, medians: a step takes {1e3 * step_times[0]:.1f} ms one after another and {1e3 * step_times[1]:.1f} overlapped, "
      f"{step_times[0] / step_times[1]:.2f} times as fast; the host works {1e3 * sum(work):.1f} ms of it")
overlap.beside(f"{(8 + 2) / 8:.2f}", "computed")

# %% [markdown]
# Overlapping hides the shorter of the two, and no more.
# Try it: with a host slower than its device, whose lane has the gaps?

# %%
from dspark_course.figures import widgets

panel = widgets.explore(figures.model_lanes, {"host": 6.0}, draft=widgets.slider("draft (ms)", 1.0, 0.5, 4.0, 0.5),
                        verify=widgets.slider("verify (ms)", 4.0, 1.0, 10.0, 0.5), host=widgets.slider("host (ms)", 2.0, 0.5, 10.0, 0.5))

# %% [markdown]
# ### Is it still lossless?
#
# Lesson 10 broke the scheduler by letting it look ahead. A lagged budget comes from drafts already judged. We count every outcome
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
# Speed asked for the lag, and exactness comes with it: for exactness one step would do.
#
# ## Captured sizes
#
# A GPU engine does not launch each operation of a step anew. It captures a pass once, as a **CUDA graph**, and replays that; a graph has a
# fixed size. So passes are captured at, say, every eighth number of tokens, and a pass of 43 is padded to 48.
#
# A policy that chooses first and pads afterwards pays for places that nobody uses. But a budget searched in a cost table *of captured
# sizes* (`table.in_buckets(sizes)`, as above) fills such a size to its end by itself: up to there a draft is free.
#
# ## Calibration that lives
#
# A scheduler believes its head. Lesson 09 calibrated it once, on one mix of prompts; then the service runs for months. We plant two
# accidents. The traffic shifts from math to chat. Then an update scales the head's output by mistake, and the head is twice as sure as it
# should be: its logits double.
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
for number, name in ((1, "the traffic shifts"), (2, "the head goes wrong")):
    late[number] = found.after(number, 2000)
    points = [f"{100 * ece:4.1f}" for ece in late[number]]
    print(f"2,000 blocks after {name:19}: ECE, in points, {points[0]} as stored, {points[1]} kept online, {points[2]} fitted to this traffic")
lengths = {number: np.mean([value for value, phase in zip(found.accepted_length, found.phase) if phase == number]) for number in (0, 1)}

# %% tags=["claim"]
claims({"online, 2,000 blocks after each change, the error is within 1.5 times a stationary fit's": all(o < 1.5 * f for _, o, f in late.values()),
        "the stored calibration stands the shift of the traffic": late[1][0] < 1.5 * late[1][2],
        "and not a head that has gone wrong": late[2][0] > 2 * late[2][2],
        "the one kept online is worse then": late[1][0] < late[1][1],
        "the shift costs tokens": lengths[0] - lengths[1] > 0.5})

# %% [markdown]
# When the *traffic* shifts, a round brings fewer tokens, and the old calibration, fitted to all domains,
# holds: the head reads the text and says by itself that chat is harder. (The fit kept online is even a little worse: its window is
# small, and ECE is measured on other prompts.) When the *head* goes wrong, blocks verified whole bring as many tokens as before, because
# target and drafts are unchanged; only the ECE jumps. So watch both series, by domain. (Under a scheduler tokens per round would move too:
# a doubtful head cuts its drafts.)
#
# **Who may teach the window?** Blocks verified whole, *chosen at random*. Those that the scheduler itself verified whole are the
# ones that the head trusted. A head that trusts too little would never hear that it was wrong.
#
# ## What is a wrong head worth?
#
# The paper gives this reason for STS: over-confidence makes the scheduler waste verification. How much? In lesson 11's model of the
# engine we bend the head's logits, by a factor or by a constant (in nats). A factor pushes confidences away from one half, or towards
# it; a constant moves all of them the same way.

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
        "no head beats whole blocks": all(value.low < 1 for value in by_head.values()),
        "a surer head comes closer": right.value < sure.value})

# %% [markdown]
# On this engine whole blocks are the best policy, so the calibrated head stays below 1, at ⟦calibrated:.2f⟧, and a surer one comes closer.
# (Scheduling wins where verifying costs a larger share of a step, as in lesson 10.) In general, a head that is too sure can at worst ask
# for whole blocks: it loses no more than scheduling would have gained. A doubtful head throws away drafts that were right and paid for;
# here its throughput falls to ⟦doubtful:.2f⟧. **On this engine, fear the doubtful head.**
#
# ## The price of a promise
#
# Lesson 11 read throughput off a frontier at a promised speed. Here are DSpark and MTP-1 at every promise, ours and the paper's (its
# own fits to live traffic). MTP-1's *reach* is its speed for a single user.

# %%
def rising(name, policy):
    """A frontier [n, 2] of rising speeds; where noise made a heavier load look faster, that speed counts for both."""
    curve = recorded_serving.frontier(name, policy)[::-1]
    return np.stack([np.maximum.accumulate(curve[:, 0]), curve[:, 1]], 1)


ours, theirs = rising("dspark", "lagged"), rising("mtp", "all")
picture = figures.promises(ours, theirs, report["device"])

# %% tags=["claim"]
more, faster = (ratios[:, 1] for ratios in figures.promise_ratios(ours, theirs))
claims({"the ratio at a promise explodes": more.max() > 1.5 * faster.max(),
        "at equal throughput ours ends below 1": faster[-1] < 1})

# %% [markdown]
# The paper's +51 and +661 % lie on **one curve** (dashed, V4-Flash), its +52 and +406 % on another (dotted, V4-Pro). Both gains of a
# model are read off the same pair of frontiers; only the promise differs. The faster the promise, the fewer users MTP-1 can serve, and
# the smaller the number that we divide by: the ratio climbs long before the reach, and explodes near it. At equal throughput (right) the
# factor does not explode; ours falls below 1 on the fullest server. Quote that one.
#
# ### Exercise 3 · How many machines? (code)
# *10 minutes · easy · core.*
#
# `curve` [n, 2] is the frontier of one machine, rows (speed of each user, throughput) by rising load.
# `exercises.throughput_at(curve, promise)` is lesson 11's: 0 where even a single user is slower. How many machines give `users` users the
# promised speed? Return a whole number, or `np.inf` where a machine does not give it to a single user. A machine may serve a fraction of a
# user: it is a mean over time.
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
# Three choices: *speculate* always; *gate*, that is, switch drafting off for some requests or hours; *leave it*, that is, never draft. To
# gate is not to draft: a policy that drafts and verifies nothing has paid for the draft. The cell prints the throughput that is left when
# drafts are made and never verified, and how much faster a whole answer gets, prompt included (from mean speeds).

# %%
in_vain = {load: recorded_serving.gain("throughput", recorded_serving.row("costs", concurrency=load, drafter="dspark", policy="budget 1"),
                                       recorded_serving.row("costs", concurrency=load, drafter="plain", policy="fixed 0")) for load in loads}
print("drafts that nobody verifies, throughput over plain:", ", ".join(f"{load} under way {value.value:.2f}" for load, value in in_vain.items()))

tokens_alone = {name: recorded_serving.value("per_user", recorded_serving.row("policies", concurrency=1, drafter=name, policy=policy))
                for name, policy in (("plain", "all"), ("dspark", "lagged"))}
prompt = sum(recorded_serving.prefill_costs("dspark"))
shorter = {length: (prompt + length / tokens_alone["plain"]) / (prompt + length / tokens_alone["dspark"]) for length in (8, 32, 128)}
print("times as fast, prompt included:", ", ".join(f"{length} tokens {ratio:.2f}" for length, ratio in shorter.items()))
glue(vain=in_vain[busiest].value)

# %% tags=["claim"]
claims({"drafting in vain loses at every load": max(value.value for value in in_vain.values()) < 1,
        "a short answer gains less than a long one": shorter[8] < shorter[32] < shorter[128]})

# %% [markdown]
# On a full server, drafting in vain leaves ⟦vain:.2f⟧ of plain decoding's throughput. The rule behind all cases is one line: **speculate
# while $\tau > (T_\text{draft} + T_\text{verify}) / T_\text{plain}$, measured at your load.**
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
# (a) Leave it: the answer is one token, and the prompt's pass gives it; measure the length of an answer. (b) Speculate, whole blocks;
# measure $\tau$. (c) Leave it, if the pass is at its arithmetic limit: measure the time of a pass with one token more per request. Where
# memory, not arithmetic, fills first, it may still pay. (d) Speculate with a scheduler: by night it verifies whole blocks, by day it
# cuts them; if by day it verifies hardly anything, gate. (e) Measure $\tau$ by domain against the base model's; nothing warns of it.
# Then fine-tune the draft on the new target's answers.
#
# </details>
#
# > **How sure are we?** A thread stands for the device: the gain printed above is this machine's, under the load it had. Wrong heads run in a
# > model of the engine, on recorded blocks. The shifting traffic is one stream of such blocks, its ECE measured on other prompts.
#
# ## Recap
# - Zero-overhead scheduling hides the host behind the device. It needs budgets two steps old. Any lag makes even a search without a
#   stop lossless.
# - A budget that knows the captured sizes turns padding into drafts.
# - Traffic may shift and a calibration hold; a head that goes wrong shows in its ECE. On our engine doubt costs more than confidence.
# - Ratios at a promise explode near a rival's reach; those at equal throughput do not.
# - Not speculating must mean not drafting.
#
# **Next**: [14, the clinic](14_the_clinic.ipynb): drafters that run, answer correctly, and are slow.
#
# ## Beyond the core
#
# The lesson is complete without these sections.
#
# ### ★ What is shipped is not the paper's draft
#
# | | the paper's drafts for Qwen3 and Gemma | the draft that is shipped with DeepSeek-V4 |
# |---|---|---|
# | layers | five, dense | three, each a mixture of experts; hyper-connections (several residual streams) join them |
# | a layer sees | the whole context | a sliding window of 128 tokens |
# | drafts | 7 | 5 |
# | heads | Markov (or RNN), confidence | Markov, confidence, calibrated by STS |
# | comes as | a checkpoint of its own | the target's checkpoint plus a module |
# | ragged verification needs | a mask | new kernels for two parts of V4's attention |
# | not public | – | its training data, its calibration, its cost table, its engine |
#
# [The V4 draft in miniature](more/v4_drafter.ipynb) builds its parts and trains them.
# [Trees and selectors](more/trees_and_selectors.ipynb) has a drafted tree in one pass, and DFlash 2's head.
#
# ### ★ What padding costs
#
# Recorded blocks on lesson 10's smooth machine, passes captured at different spacings:

# %%
from dspark_course.replication.recorded_steps import lengths_by, replayed_speed, tokens_and_seconds
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
    captured = range(spacing, most + 1, spacing)
    prices = smooth.in_buckets(captured)
    for name, policy in {"threshold": threshold(0.5), "convex": algorithm1(prices.lower_hull()), "lagged": LaggedTopK(prices)}.items():
        lengths = lengths_by(policy, steps)
        tokens = requests + lengths.sum(1)
        padding.setdefault(name, {})[spacing] = 1 - float(tokens.sum()) / sum(next_size(captured, size) for size in tokens.tolist())
        speeds.setdefault(name, {})[spacing] = replayed_speed(tokens_and_seconds(lengths, accepted, prices)) / whole
picture = figures.padding_by_spacing(padding, speeds, requests)
wide = max(padding["lagged"])
glue(threshold_waste=100 * padding["threshold"][wide])
padded, verified = (sum(getattr(report, what) for report in both.reports) for what in ("padding", "verified"))
print(f"in the engine above: {padded / (padded + verified):.1%} of the tokens were padding, where answers begin or end")

# %% tags=["claim"]
claims({"a lagged budget pads nothing": max(padding["lagged"].values()) < 1e-9,
        "what chooses first pads, and more with larger spacing": padding["threshold"][wide] > padding["threshold"][4] > 0,
        "Algorithm 1 pads far more": padding["convex"][wide] > 2 * padding["threshold"][wide],
        "and falls below whole blocks": speeds["convex"][wide] < 1})

# %% [markdown]
# With captured sizes far apart, ⟦threshold_waste:.0f⟧ % of the tokens in a threshold's passes are padding. Algorithm 1 pads far more and
# falls below whole blocks: it decides by the convex view (lesson 10), which smooths the sizes away. The lagged budget fills the same places
# with drafts. What its lag costs shows on the right, where the spacing is one.
#
# ### ★ Where a draft stops being free
#
# From data sheets: the pass size at which a GPU's arithmetic takes as long as reading the weights. Up to there a further draft costs
# little.

# %%
from dspark_course.measure import roofline

print("Qwen3-4B, predicted:  a pass holds   requests with 8 tokens   break-even tokens per round")
for name, gpu in roofline.DEVICES.items():
    free = gpu.operations / gpu.bandwidth  # tokens at which arithmetic takes as long as reading 16-bit weights
    print(f"{name:>20} {free:8.0f} tokens {free / 8:20.0f} {roofline.predict(name, 'dspark').break_even:27.1f}")

# %% [markdown]
# The last column is the rule's right side under light load. In this lab a draft costs more beside its small target.
#
# ### ★ The target was fine-tuned
#
# A draft is made for one target. What if that target moves? We fine-tune the tiny target on texts that say the same in other words, and
# keep its DSpark. Then we fine-tune the DSpark, too, on a few hundred of the new target's answers.

# %%
from dspark_course.measure.production import length_in, mean_length
from dspark_course.replication.recorded_production import production_rows

retold = {row["name"]: row for row in production_rows("retold")}
for name, row in retold.items():
    print(f"{name:15}", "   ".join(f"{domain} {length_in(row, domain).value:.1f}" for domain in row["tallies"]), "  tokens per round")
before, moved, refitted = map(mean_length, retold.values())
glue(tau_before=before.value, tau_moved=moved.value, tau_refitted=refitted.value, refit_minutes=retold["draft refitted"]["train_seconds"] / 60)

# %% tags=["claim"]
claims({"the draft is accepted less by the fine-tuned target": moved.high < before.low,
        "a fine-tuning of its own brings a part back": refitted.low > moved.high})

# %% [markdown]
# All answers are the new target's own; the old draft only costs speed, and nothing warns of it. In the mean of the domains $\tau$ falls
# from ⟦tau_before:.1f⟧ to ⟦tau_moved:.1f⟧. After ⟦refit_minutes:.0f⟧ minutes of fine-tuning on one CPU core it is ⟦tau_refitted:.1f⟧.
