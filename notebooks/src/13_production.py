# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=65 difficulty="medium"
# # 13 · Production
#
# The draft, the acceptance rule and the scheduler now work. A service asks four more questions, answered here in order:
#
# 1. After each step the device waits for its host. How do we keep it busy?
# 2. The scheduler believes the confidence head. What if the head goes wrong?
# 3. The paper reports gains of up to +661 %. What is a promised speed worth?
# 4. When is it better not to speculate?
#
# **After this lesson you can**
# - write a loop in which the host works while the device does, and say which lag that needs
# - see when a calibration has gone wrong, mend it, and say what a wrong one costs
# - turn a promised speed into a number of machines, and read "+661 %" without being taken in
# - decide when not to speculate
#
# **What you need**: lesson 09 (STS, ECE), lesson 10 (Algorithm 1, the lagged budget), lesson 11 (MTP-1, frontiers).
#
# **Sources**: the [DSpark paper](../docs/references.md#dspark), section 5. [Notation](../docs/notation.md) · [glossary](../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import numpy as np
import torch

import dspark_lite
from dspark_lite.course.exercises import lesson_13 as exercises
from dspark_lite.course.exercises.keep import keep
from dspark_lite.course.figures import lesson_13 as figures
from dspark_lite.course.figures.strip import strip
from dspark_lite.course.lesson_text import claims, glue

torch.set_grad_enabled(False)
lab = dspark_lite.setup()
target, drafter = lab.target, lab.drafter("dspark")
picture = strip(("schedule", "verify"))

# %% [markdown]
# ## 1 · How do we keep the device busy?
#
# The models run on the **device**, a GPU; the CPU beside it is the **host**. After each step the host turns tokens into text, looks for
# stop strings, and searches the next *budget*, the number of drafts that a step verifies. Meanwhile the expensive device waits: that is
# the white in the upper lane of this made-up engine. An arrow leads from a budget to the step that spends it.

# %%
picture = figures.model_lanes(draft=1.0, verify=4.0, host=2.0, modes=(False,))

# %%
from dspark_lite.course.exercises.predictions import predict

overlap = predict("A device needs 8 ms for a step, its host 2 ms. How many times as fast does the engine get if the two overlap?", ...)

# %% [markdown]
# ### Work on the step before
#
# The cure is called **[zero-overhead scheduling](../docs/glossary.md#zos)**: while the device runs step $t$, the host works on what step
# $t - 1$ has left.
#
# The price is an older budget. A step, draft and verification together, starts as one piece, so its budget must be known when it begins.
# Follow step 1 in our loop: when it ends, step 2 begins at once, and the host searches step 1's confidences while step 2 runs. Step 3 is
# the first that can spend the result. In general, step $t + 1$ spends a budget found from the confidences of step $t - 1$: the *lag* is
# two. Here is the made-up engine again, both ways; in the second picture its host is slower (in a running notebook, move `host`).

# %%
from dspark_lite.course.figures import widgets

panel = widgets.explore(figures.model_lanes, {"host": 6.0}, draft=widgets.slider("draft (ms)", 1.0, 0.5, 4.0, 0.5),
                        verify=widgets.slider("verify (ms)", 4.0, 1.0, 10.0, 0.5), host=widgets.slider("host (ms)", 2.0, 0.5, 10.0, 0.5))
overlap.beside(f"{(8 + 2) / 8:.2f}", "computed")

# %% [markdown]
# Overlapped, the gaps in the device's lane close, and each arrow leads two steps on. One after another, a step takes the device's time plus
# the host's; overlapped, only the longer of the two: **overlapping hides the shorter one**. With the slower host the device waits again, now
# for budgets, and the engine keeps the host's pace.
#
# ### Exercise 1 · The loop (code)
# *20 minutes · medium · core. If you do only one, do this.*
#
# `device.start(budget)` begins a step and returns at once. `device.finish()` waits for it and returns its confidences.
# `host(confidences)` works for a while and returns a budget. Run `steps` steps such that the host works while the device runs. The first
# two steps get `None`, for whole blocks. Your function need not work on the last step's confidences, and returns nothing.
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


done = exercises.check_pipeline(pipelined) and keep(pipelined)


# %% tags=["solution"]
def pipelined(device, host, steps):
    """Runs `steps` steps; the host works on a step's confidences while the next one runs."""
    budget, confidences = None, None
    for _ in range(steps):
        device.start(budget)
        if confidences is not None:
            budget = host(confidences)
        confidences = device.finish()


done = exercises.check_pipeline(pipelined) and keep(pipelined)

# %% [markdown]
# Now your loop runs lesson 11's engine. `device.finish()` is a step of it, which verifies as many drafts as `budget` says, the likeliest
# first; `host` asks `algorithm_1` for the next budget.

# %%
from dspark_lite.course.exercises.engine_board import SLOTS, Board
from dspark_lite.course.exercises.judge import own_or_course
from dspark_lite.course.replication import machine_results

engine = own_or_course("step", "algorithm_1")
board = Board(lab, drafter, machine_results.engine_seconds(SLOTS), "an H100, modelled, 256 under way")
board.serve("whole blocks", engine.step)
board.serve("scheduled", engine.step, board.sps)
board.pipeline("pipelined", engine.step, pipelined if done else exercises.pipelined, engine.algorithm_1)
board.show()
rates = board.rates()
glue(overlap_gain=100 * (rates["pipelined"] / rates["scheduled"] - 1))

# %% tags=["claim"]
claims({"every version writes plain decoding's texts": set(board.texts().values()) == {len(board.prompts)},
        "hiding the host brings far more than scheduling": rates["pipelined"] - rates["scheduled"] > 5 * abs(rates["scheduled"] - rates["whole blocks"])})

# %% [markdown]
# The texts are the same, and a step takes only the longer of device and host: ⟦overlap_gain:.0f⟧ % more tokens per second. (Texts are real,
# seconds are replayed. The model lets all that the host does hide behind the device, so this is the most that overlapping can bring.)
#
# The engine's own loop, `serve`, is your loop with some bookkeeping; beyond the core it runs on real threads. (Exercise 4, there: could
# a host that reads earlier do with a smaller lag?) The lag costs no exactness: an old budget comes from drafts that are already judged,
# so the drafts of the new step have no say in how many are verified. Their confidences still choose which drafts fill that number. That
# is safe: whether a draft is verified never depends on its own draw or on later drafts of its block (lesson 10).
#
# ## 2 · What if the confidence head goes wrong?
#
# Two things matter: whether we notice the fault, and what it costs.
#
# ### Do we notice?
#
# Lesson 09 calibrated the head once (STS: a temperature per position), on one mix of prompts. Now we let a service run, and plant two
# accidents. First the *traffic* shifts, from math to chat. Then an update doubles the *head's* logits by mistake, so that the head is twice
# as sure as it should be.
#
# `OnlineSTS` keeps a calibration up to date. Its window holds the newest blocks that were *verified whole*: all their drafts were sent
# to the target, accepted or not. (Beyond the core: which blocks a service should choose.) At regular intervals `OnlineSTS` fits fresh
# temperatures to the window. If these have a clearly lower error there, they replace the old ones.
#
# The figure has a dotted line at each accident. Above are the tokens per round. Below is the ECE, the mean gap between what is forecast
# and how often it comes true, of three calibrations: one as it was stored, one kept online (a diamond marks fresh temperatures), and, as
# a yardstick, one fitted to the very traffic of each part.

# %%
from dspark_lite.course.replication import confidence_results
from dspark_lite.course.replication.drift import Phase, drift

phases = [Phase("math", 1.0, 1600), Phase("chat", 1.0, 2600), Phase("chat", 2.0, 2600)]
found = drift(confidence_results.observations(), confidence_results.stored_sts(), phases)
picture = figures.drift_series(found, phases)

# %%
late = {}
for number, name in ((1, "the traffic shifts"), (2, "the head goes wrong")):
    late[number] = found.after(number, 2000)
    points = [f"{100 * ece:4.1f}" for ece in late[number]]
    print(f"2,000 blocks after {name:19}: ECE, in points, {points[0]} as stored, {points[1]} kept online, {points[2]} fitted to this traffic")
lengths = {number: np.mean([value for value, phase in zip(found.accepted_length, found.phase) if phase == number]) for number in (0, 1, 2)}

# %% tags=["claim"]
claims({"online, 2,000 blocks after each change, the error is within 1.5 times a stationary fit's": all(o < 1.5 * f for _, o, f in late.values()),
        "the stored calibration stands the shift of the traffic": late[1][0] < 1.5 * late[1][2],
        "and not a head that has gone wrong": late[2][0] > 2 * late[2][2],
        "the three errors are close after the shift": max(late[1]) - min(late[1]) < 0.015,
        "one fitted to this traffic need not be the lowest": late[1][0] < late[1][2],
        "the shift costs tokens": lengths[0] - lengths[1] > 0.5,
        "the head that goes wrong costs none here": abs(lengths[1] - lengths[2]) < 0.3})

# %% [markdown]
# **The traffic shifts**: a round brings fewer tokens, but the stored calibration holds, and the three ECEs stay close. (The two fitted
# ones are even slightly higher: they were fitted on some prompts and are measured on others.) The head reads the text, and sees by
# itself that chat is harder.
#
# **The head goes wrong**: tokens per round stay about the same, because target and drafts are unchanged and these blocks are verified
# whole. But the stored calibration's ECE jumps, and stays high. The online one's jumps, too, and recovers as new blocks fill its window.
# So watch both series: tokens per round show when drafts fit less well, the ECE when the head misjudges them. Watch each domain by
# itself, or a mere change of the mix looks like a fault.
#
# ### What does a wrong head cost?
#
# The paper's reason for STS: raw confidences are often too high, which distorts the throughput that the scheduler expects. What does that
# cost? We built a model of lesson 11's engine from its measured costs and recorded blocks, changed the head's logits in it, and recorded
# the throughput. A *factor* above 1 pushes confidences away from one half; a factor below 1 pulls them towards it, so it makes those above
# one half more doubtful. A *constant* (in *nats*, a logit's unit) moves all confidences up, or all down.
#
# What a block's last drafts cost on that engine we do not know: in one part of lesson 11's measurement they are free, in the other dear.
# So the model runs twice: with a step's costs *as measured* where the last drafts are free, and with a smooth curve *fitted* to them, on
# which every draft costs about the same. Believe what both say.

# %%
guess = predict("Algorithm 1 on a full server. Which costs more: a head that is 4 times as sure (logits times 4), or one that is too doubtful "
                "(logits minus 3)? And what does Algorithm 1 do with a head that is sure of every draft?", ...)

# %%
from dspark_lite.course.estimates import Estimate
from dspark_lite.course.replication import serving_results
from dspark_lite.course.replication.production_results import production_rows

report = serving_results.serving_run()
loads = sorted({row["concurrency"] for row in report["policies"]})
busiest = loads[-1]
heads = {paid: {row["name"]: Estimate(row["value"], row["low"], row["high"]) for row in production_rows("wrong_heads") if row["paid"] == paid}
         for paid in ("measured", "fitted")}
picture = figures.wrong_heads(heads, busiest, report["device"])
guess.beside("; ".join(f"{name}: {heads['measured'][name].value:.2f} or {heads['fitted'][name].value:.2f}"
                       for name in ("as calibrated", "4 times as sure", "3 nats too doubtful", "2 nats too sure")), "recorded")
glue(**{f"{name}_{paid}": by_head[head].value for paid, by_head in heads.items()
        for name, head in (("doubtful", "3 nats too doubtful"), ("calibrated", "as calibrated"))}, sure_fitted=heads["fitted"]["4 times as sure"].value)

# %% tags=["claim"]
costs = serving_results.engine_costs("dspark")
places = costs.tokens_per_request[-1]
last, viewed = (table.seconds(busiest, busiest * places) - table.seconds(busiest, busiest * (places - 2)) for table in (costs, costs.convex_fit()))
slopes = np.diff(costs.convex_fit().step_seconds[-1])
claims({"the heads were recorded at the heaviest load": {row["requests"] for row in production_rows("wrong_heads")} == {busiest},
        "in the convex view every draft costs the same": np.ptp(slopes) < 0.05 * slopes.mean(),
        "as measured, the last ones cost almost nothing": last < 0.25 * viewed,
        "sure of all, Algorithm 1 comes to whole blocks, either way": min(by_head["2 nats too sure"].value for by_head in heads.values()) > 0.98,
        "doubt costs far more than being 4 times as sure, either way": all(
            by_head["as calibrated"].value - by_head["3 nats too doubtful"].value > 5 * abs(by_head["as calibrated"].value - by_head["4 times as sure"].value)
            for by_head in heads.values()),
        "doubt ends below whole blocks, either way": all(by_head["3 nats too doubtful"].high < 1 for by_head in heads.values()),
        "where the last drafts are free, the calibrated head stays below whole blocks, and a surer one comes closer":
            heads["measured"]["as calibrated"].high < heads["measured"]["4 times as sure"].value < 1,
        "on the fitted curve the calibrated head is ahead of whole blocks and of every other": heads["fitted"]["as calibrated"].low > 1
            and max(heads["fitted"], key=lambda name: heads["fitted"][name].value) == "as calibrated"})

# %% [markdown]
# The grey line is the throughput of whole blocks, with every draft verified.
#
# **Over-confidence loses what scheduling gains.** A head that is sure of every draft gets whole blocks, no worse. On the fitted curve the
# calibrated head is ahead of them, at ⟦calibrated_fitted:.3f⟧, and one 4 times as sure keeps ⟦sure_fitted:.3f⟧. On the costs as measured,
# where the last drafts are free, *the calibrated head itself* stays below, at ⟦calibrated_measured:.2f⟧, and a surer one comes closer:
# there scheduling gains nothing, so over-confidence costs nothing. (Why, beyond the core.)
#
# **Doubt is expensive, either way.** A doubtful head throws away drafts that were right and paid for; the most doubtful one leaves
# ⟦doubtful_measured:.2f⟧ or ⟦doubtful_fitted:.2f⟧ of whole blocks' throughput.
#
# ## 3 · What is a promised speed worth?
#
# Lesson 11 read off a frontier what throughput is left if each user is promised a speed. The figure divides DSpark by MTP-1, which drafts
# one token: on the left throughput at the same promise, on the right each user's speed at the same throughput. Thin lines are the
# paper's fits. MTP-1's *reach* is the fastest promise that it can keep: its speed for a single user.

# %%
from dspark_lite.course import paper


def rising(name, policy):
    """A frontier [n, 2] of rising speeds; where noise made a heavier load look faster, that speed counts for both."""
    curve = serving_results.frontier(name, policy)[::-1]
    return np.stack([np.maximum.accumulate(curve[:, 0]), curve[:, 1]], 1)


ours, theirs = rising("dspark", "lagged"), rising("mtp", "all")
picture = figures.promises(ours, theirs, report["device"])
twin = (theirs[:-1, 0] / theirs[1:, 0]).argmax()  # the load at which MTP-1 is nearly as fast as at the next lighter one
faster_users = [anchor["annotated_tps_gain_pct"] for model in paper.numbers()["figure7"]["models"].values() for anchor in model["anchors"]]
glue(jump=100 * theirs[twin, 0] / theirs[-1, 0], least_faster=min(faster_users), most_faster=max(faster_users))

# %% tags=["claim"]
(promised, more), (_, faster) = (ratios.T for ratios in figures.promise_ratios(ours, theirs))
steepest = np.diff(np.log(more)).argmax()
claims({"the ratio at a promise explodes": more.max() > 1.5 * faster.max(),
        "at equal throughput ours ends below 1": faster[-1] < 1,
        "MTP-1 was almost as fast with twice the users, so that its throughput halves": theirs[twin, 0] > 0.97 * theirs[twin + 1, 0]
        and 1.8 < theirs[twin, 1] / theirs[twin + 1, 1] < 2.1,
        "our curve jumps there": promised[steepest] - 0.02 < theirs[twin, 0] / theirs[-1, 0] < promised[steepest + 1] + 0.02})

# %% [markdown]
# The paper takes its headline gains **at the same promise** (left; a gain of +100 % is a ratio of two there). Its +51 and +661 % lie on
# **one curve** (dashed, V4-Flash), its +52 and +406 % on another (dotted, V4-Pro): only the promise differs. The faster the promise, the
# fewer users MTP-1 can serve, and the smaller the number that we divide by. So the ratio climbs long before the reach and is large near
# it (mind the axis: each mark doubles the ratio). Beyond the reach MTP-1 delivers nothing, and there is no ratio. (The jump of ours at
# ⟦jump:.0f⟧ % is noise: MTP-1 came out almost as fast with twice the users.)
#
# **At the same throughput** (right) the ratio does not explode; ours falls below 1 on the fullest server. Quote this ratio, with the
# throughput at which it holds. The press made of all this "50 to 400 % faster". Those are throughput gains, at two promises; at the same
# throughput the paper's users are ⟦least_faster:.0f⟧ to ⟦most_faster:.0f⟧ % faster.
#
# ### Exercise 2 · How many machines? (code)
# *10 minutes · easy · core.*
#
# `curve` [n, 2] is the frontier of one machine, rows (speed of each user, throughput) by rising load. `exercises.throughput_at(curve,
# promise)` is lesson 11's: 0 where even a single user is slower. How many machines give `users` users the promised speed? Return a whole
# number, or `np.inf` where a machine does not give it to a single user. Do not round the users per machine; round only the number of
# machines, up.
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
print("promise (of MTP-1's reach)     machines for 1,000 users: MTP-1   DSpark")
needed = {}
for share in (0.3, 0.5, 0.7, 0.9, 1.2):
    needed[share] = [machines(curve[::-1], 1000, share * theirs[-1, 0]) for curve in (theirs, ours)]
    print(f"{share:27.0%} {needed[share][0]:36} {needed[share][1]:8}")

# %% tags=["claim"]
claims({"at a slow promise both need about the same number": 0.8 < needed[0.3][0] / needed[0.3][1] < 1.25,
        "near the reach MTP-1 needs several times as many, and beyond it no number helps": needed[0.9][0] > 3 * needed[0.9][1]
        and needed[1.2][0] == np.inf > needed[1.2][1]})

# %% [markdown]
# At the slowest promise both need about as many machines. Near its reach MTP-1 needs several times as many as DSpark, because each of its
# machines serves few users; beyond the reach no number helps (`inf`). MTP-1's column divided by DSpark's is the left panel again. So a
# large gain is real for whoever must promise that speed, but it is not typical.
#
# ## 4 · When is it better not to speculate?
#
# A service can *speculate* always, *gate* (switch drafting off for some requests or hours), or *leave it* (never draft). To gate means to
# skip the draft itself: a policy that drafts and verifies nothing has still paid for the draft. The cell prints the throughput left then,
# and how many times as fast a lone user of DSpark gets a whole answer, prompt included.

# %%
# Seven drafts drafted, none verified: this policy's budget counts tokens per request, so its 1 is the anchor alone.
in_vain = {load: serving_results.gain("throughput", serving_results.row("costs", concurrency=load, drafter="dspark", policy="budget 1"),
                                       serving_results.row("costs", concurrency=load, drafter="plain", policy="fixed 0")) for load in loads}
print("seven drafts drafted, none verified, throughput over plain:", ", ".join(f"{load} under way {in_vain[load].value:.2f}" for load in (loads[0], busiest)))

tokens_alone = {name: serving_results.value("per_user", serving_results.row("policies", concurrency=1, drafter=name, policy=policy))
                for name, policy in (("plain", "all"), ("dspark", "lagged"))}
prompt = {name: sum(serving_results.prefill_costs(name)) for name in tokens_alone}  # seconds
print("a prompt's pass:", ", ".join(f"{name} {1e3 * spent:.0f} ms" for name, spent in prompt.items()))
# From mean speeds:
whole = {name: {length: prompt[name] + length / tokens_alone[name] for length in (8, 32, 128)} for name in tokens_alone}
shorter = {length: seconds / whole["dspark"][length] for length, seconds in whole["plain"].items()}
print("alone, times as fast as plain, prompt included:", ", ".join(f"{length} tokens {ratio:.2f}" for length, ratio in shorter.items()))
glue(vain=in_vain[busiest].value)

# %% tags=["claim"]
claims({"drafting in vain loses at every load": max(value.value for value in in_vain.values()) < 1,
        "a short answer gains less than a long one": shorter[8] < shorter[32] < shorter[128]})

# %% [markdown]
# On a full server, drafting in vain leaves ⟦vain:.2f⟧ of plain decoding's throughput. A short answer gains less than a long one, since
# the prompt takes about as long as ever. For what comes after the prompt, one rule decides: **speculate while $\tau > (T_\text{draft} +
# T_\text{verify}) / T_\text{plain}$, measured at your load.** That is: a speculative round takes as long as some number of plain steps,
# and each plain step writes one token. Speculate if the round brings more tokens ($\tau$) than those plain steps would. [Which drafter,
# and when not to](../docs/which_drafter.md) is the page to keep.
#
# ### Exercise 3 · Five services (think)
# *10 minutes · medium · core.*
#
# For each: speculate, gate, or leave it? Which number would you measure first? (a) a classifier that answers "yes" or "no"; (b) one
# engineer, one H200, long programs; (c) nightly summaries, the batch as large as memory allows; (d) a chat service, busy by day and idle by
# night; (e) yesterday's fine-tuned target with the draft of the base model.
#
# <details><summary>Answer</summary>
#
# (a) Leave it: the answer is one token, and the prompt's pass gives it. Measure the length of an answer.
#
# (b) Speculate, whole blocks. Measure $\tau$. (Alone, throughput and speed are one goal.)
#
# (c) Leave it, if the batch is so large that the time of a pass goes into arithmetic: then each further token costs its full share. If
# memory fills before that, drafting may still pay. Measure the time of a pass with one token more per request.
#
# (d) Speculate with a scheduler, which cuts blocks by day. Measure the drafts verified per request by day: if hardly any, gate by day.
#
# (e) Speculate where $\tau$ satisfies the rule, gate elsewhere. Measure $\tau$ by domain: the answers look right either way. Then fine-tune
# the draft on the new target's answers.
#
# </details>
#
# > **How sure are we?** Wrong heads run in a model of the engine, on recorded blocks. All costs are one CPU's, with small models, one
# > training of each. [What all of this does not show](../docs/limits.md).
#
# ## Recap
# - Zero-overhead scheduling hides the host behind the device, with budgets two steps old. A lagged budget is lossless: its search sees
#   only drafts already judged, never those whose number it decides.
# - Traffic may shift and a calibration hold; a head that goes wrong shows in its ECE. A doubtful head costs much. An over-confident one
#   loses what scheduling would gain, and that depends on the engine.
# - Ratios at a promise climb towards a rival's reach, and beyond it there is none; those at equal throughput do not explode.
# - Not speculating must mean not drafting.
#
# **Next**: [14, the clinic](14_the_clinic.ipynb): drafters that run, answer correctly, and are slow.
#
# ## Beyond the core
#
# The lesson is complete without these sections.
#
# ### ★ Could a host that reads earlier do with a smaller lag?
#
# In exercise 1's engine the host reads a step's confidences when the step has ended. But they are there earlier, as soon as the draft is
# done. Does it help to read them then?
#
# ### Exercise 4 · How old? (code)
# *8 minutes · easy · optional.*
#
# In this engine the host reads a step's confidences as soon as that step's draft is done. A step drafts for `draft` milliseconds and
# verifies for `verify`; the next step begins at once. The host searches a budget for `host` milliseconds; searches do not hold each other
# up.
#
# An engine must know how many drafts a step verifies, the step's *size*, by the time that the step begins. An engine that queues its steps
# in advance must know the size earlier: `ahead` says by how many milliseconds; it is 0 where nothing is queued. A search that ends
# exactly at this deadline is in time. If the newest confidences in time for step $t$ come from step $s$, return $t - s$.
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
# Take a search no longer than a verification pass. It ends by the end of the step whose confidences it reads. If nothing is queued
# (`ahead` = 0), the next step can spend the budget: reading early helps, and the lag is one. But an engine that queues each step when the
# one before begins has `ahead` = one whole step. Then the lag is two, however early the host reads. The paper's engine has a lag of two;
# that it comes about like this is our derivation. (The paper says that a step's size must be known before the step before is done.)
#
# ### ★ The loop with real threads
#
# `serve` is the loop of exercise 1 with some bookkeeping; a thread plays the device. We serve twelve requests together, once with device
# and host one after another, once overlapped. Both ways spend budgets that are two steps old, so they differ only in the order of the work.
# (One after another, budgets could be one step old, as in section 1.)

# %% tags=["folded"]
# @title Serve twelve requests; the host turns tokens into text and looks for stop strings
from dspark_lite.course.measure.step_time import profile
from dspark_lite.serving.engine import Engine, Request
from dspark_lite.serving.pipeline import serve

slots, new = 12, 28
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
# This CPU's steps are so slow that the host's work hardly shows beside them. So we play the recorded steps again at a GPU's pace: the
# device's thread only waits, but the host's work is real. *Plan* searches a budget, and *deliver* works on the text, both for the step
# before. The small number says which step that is (0: the one before those shown).

# %% tags=["folded"]
# @title Play the steps again at a GPU's pace
from dspark_lite.course.measure.paced import PacedEngine
from dspark_lite.course.replication.block_replay import stored_steps

pace = {"draft": 1e-3, "verify": 4e-3}  # seconds


def paced(overlapped):
    """What was done when, at the pace of a GPU; the recorded steps five times over."""
    return serve(PacedEngine(target, 5 * in_turn.reports, pace, stored_steps(slots)[0]), table, Host().deliver, overlapped=overlapped)


waiting, hidden = paced(overlapped=False), paced(overlapped=True)
picture = figures.two_lanes({"one after another, budgets two steps old": waiting, "overlapped, budgets two steps old": hidden}, 4,
                            f"{lab.device_name}; the device only waits")

# %% tags=["folded"]
# @title The same answers, and the time of a step
from dspark_lite.losslessness.ties import same_or_tied

for number, prompt in enumerate(prompts):
    plain = dspark_lite.generate(target, None, prompt, max_new_tokens=new).token_ids
    assert same_or_tied(target, prompt, in_turn.ids[number], plain) and same_or_tied(target, prompt, both.ids[number], plain)
print(f"on the models: {len(prompts)} answers, each the target's own, one after another and overlapped")
step_times = [figures.typical(events, 4)[1] for events in (waiting, hidden)]
work = [sum(np.median([event.ended - event.began for event in events if event.part == part]) for part in ("plan", "deliver"))
        for events in (waiting, hidden)]
print("at a GPU's pace, milliseconds (one after another, overlapped):")
print(f"  a step, in the steps drawn        {1e3 * step_times[0]:4.1f} {1e3 * step_times[1]:4.1f}, {step_times[0] / step_times[1]:.2f} times as fast")
print(f"  plan and deliver, in the median   {1e3 * work[0]:4.1f} {1e3 * work[1]:4.1f}, by the clock")

# %% [markdown]
# Every answer is the target's own, so overlapping has changed no token. In the figure the black line is the start of the next step. A bar
# runs from start to end by the clock, so it also holds the time in which its thread was kept waiting: Python's own code runs in one thread
# at a time, and other programs want the processor, too. That is why some bars can be far longer than others.
#
# One after another, the device waits for the host's work and for the hand-over from thread to thread. Overlapped, the host works while the
# device runs. Where the host's thread was kept waiting, its work ends late and runs into a gap; the other gaps are hand-overs. The model
# of section 1 has no hand-overs. They may take more or less time when the two overlap, so the measured gain need not equal the model's.
#
# > **How sure are we?** A thread stands for the device: the gain printed above is this machine's, under the load that it had.
#
# ### ★ Is it still lossless?
#
# Lesson 10 broke the scheduler by letting it look ahead. A lagged budget comes from drafts already judged. We count every outcome of
# Appendix A's example (lesson 10), with texts of four tokens, long enough for a budget two steps old to be spent.

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
# A total variation of zero means: exactly the target's own distribution. A budget from the step's own confidences changes it. We took
# the lag for speed, and exactness comes with it; for exactness one step would do.
#
# ### ★ Captured sizes, and what padding costs
#
# A GPU engine captures a pass once, as a **CUDA graph**, and replays the graph instead of launching each operation anew. A graph has a
# fixed size. So passes are captured at, say, every eighth number of tokens, and a pass of 43 is padded to 48.
#
# A policy that chooses first and pads afterwards pays for places that nobody uses. The lagged budget need not. Its search looks at every
# possible budget in a cost table *of captured sizes* (`table.in_buckets(sizes)`), where one more draft costs nothing until the next
# captured size. So the search fills a captured size with drafts. Algorithm 1 decides by a convex view of that table (lesson 10), which
# smooths the captured sizes away, so it pads.
#
# We replay recorded blocks on lesson 10's smooth machine, with passes captured at different spacings:

# %%
from dspark_lite.course.replication.block_replay import (
    lengths_by,
    replayed_speed,
    tokens_and_seconds,
)
from dspark_lite.scheduling import algorithm1, threshold
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.serving.runner import next_size

requests = 16
steps, accepted = stored_steps(requests)
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
print(f"among the twelve requests above: {padded / (padded + verified):.1%} of the tokens were padding, where answers begin or end")

# %% tags=["claim"]
claims({"a lagged budget pads nothing": max(padding["lagged"].values()) < 1e-9,
        "what chooses first pads, and more with larger spacing": padding["threshold"][wide] > padding["threshold"][4] > 0,
        "Algorithm 1 pads far more": padding["convex"][wide] > 2 * padding["threshold"][wide],
        "both fall below whole blocks": max(speeds["convex"][wide], speeds["threshold"][wide]) < 1,
        "where every size is captured Algorithm 1 is ahead of the lagged budget": speeds["convex"][1] > speeds["lagged"][1]})

# %% [markdown]
# On the left: with captured sizes far apart, ⟦threshold_waste:.0f⟧ % of the tokens in a threshold's passes are padding, and far more in
# Algorithm 1's. The lagged budget fills the same places with drafts. On the right: the other two then fall below whole blocks. At a spacing
# of one every size is captured, and nobody pads; there Algorithm 1 is a little ahead, and the difference is what the lag costs.
#
# ### ★ Who may teach the window?
#
# `OnlineSTS` learns from blocks verified whole. Now and then a service picks a block at random and verifies it whole, whatever the head
# says. Only such blocks may enter the window. The scheduler verifies some blocks whole by its own choice, but those are the ones that the
# head trusted: from them, a head that trusts too little would hardly ever hear that it was wrong.
#
# In the figure of section 2 the fresh temperatures do a little worse on chat than the stored ones, and so does the yardstick. What looks
# better on a small window may be worse on new prompts, and each ECE is measured on other prompts than those of the fit.
#
# ### ★ Why a calibrated head can lose to whole blocks
#
# Algorithm 1 decides by a *convex* view of the measured costs (lesson 10), a fitted curve in which no further draft is cheaper than the
# one before. In the costs as measured a block's last drafts are free, so a convex curve cannot follow them. Here the fit is a straight
# line: it spreads the total cost evenly, so the last drafts look dearer than they are in these costs, and Algorithm 1 cuts some that would
# have paid. Whether the line or the measured costs are nearer the truth, the measurement does not say: it is five turns of four steps, and
# its other part (lesson 11, "One length for all") has the last drafts dearer than the line.
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
# | ragged verification needs | a mask | changes in two kernels of V4's attention alone, *index-attention* and *compress* |
# | public as | `dspark_qwen3_4b_block7` and eleven more | DeepSeek-V4-Flash-DSpark and -Pro-DSpark, with an example of inference |
# | not public | – | its training data, its calibration, its cost table, its engine |
#
# [The V4 draft in miniature](more/v4_drafter.ipynb) builds its parts and trains them.
# [Trees and selectors](more/trees_and_selectors.ipynb) has a drafted tree in one pass, and DFlash 2's head.
#
# ### ★ Where a draft stops being free
#
# From data sheets: the pass size at which a GPU's arithmetic takes as long as reading the weights. Up to that size a further draft costs
# little.

# %%
from dspark_lite.course.measure import roofline

print("Qwen3-4B, predicted:  a pass holds   requests with 8 tokens   break-even tokens per round")
for name, gpu in roofline.DEVICES.items():
    free = gpu.operations / gpu.bandwidth  # tokens at which arithmetic takes as long as reading 16-bit weights
    print(f"{name:>20} {free:8.0f} tokens {free / 8:20.0f} {roofline.predict(name, 'dspark').break_even:27.1f}")

# %% [markdown]
# The middle column says how many requests with whole blocks still fit in such a pass. The last one is the right side of the lesson's rule
# under light load: so few tokens per round already pay. In this lab a draft costs more beside its small target.
#
# ### ★ The target was fine-tuned
#
# A draft is made for one target. What if that target moves? We fine-tune the tiny target on texts that say the same in other words, and
# keep its DSpark. Then we fine-tune the DSpark, too, on a few hundred of the new target's answers.

# %%
from dspark_lite.course.measure.production import length_in, mean_length

retold = {row["name"]: row for row in production_rows("retold")}
for name, row in retold.items():
    print(f"{name:15}", "   ".join(f"{domain} {length_in(row, domain).value:.2f}" for domain in row["tallies"]), "  tokens per round")
before, moved, refitted = map(mean_length, retold.values())
glue(tau_before=before.value, tau_moved=moved.value, tau_refitted=refitted.value, refit_minutes=retold["draft refitted"]["train_seconds"] / 60)

# %% tags=["claim"]
claims({"the draft is accepted less by the fine-tuned target": moved.high < before.low,
        "a fine-tuning of its own brings a part back": refitted.low > moved.high})

# %% [markdown]
# All answers are the new target's own; the old draft only costs speed, and nothing warns of it. In the mean of the domains $\tau$ falls
# from ⟦tau_before:.1f⟧ to ⟦tau_moved:.1f⟧. After ⟦refit_minutes:.0f⟧ minutes of fine-tuning on one CPU core it is ⟦tau_refitted:.1f⟧.
# (One training of each: another would move all three numbers.)
#
# The released drafts are such a case as they are: they were trained on answers without thinking. Let Qwen3 think, or take it to a domain
# of your own, and a draft wants the same cure. A recipe's `"initial"` names the draft that it begins with, and its `"data"` may say
# `"enable_thinking": true` ([training](../docs/training.md#thinking)).
