# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=65 difficulty="medium"
# # 13 · Production
#
# The draft, the acceptance rule and the scheduler now work. A service asks for more, and each demand leads to the next:
#
# 1. **Keep the device busy.** Then the scheduler must decide early, by what the confidence head said some steps ago.
# 2. **Watch the head.** All decisions hang on it. What if it goes wrong?
# 3. **Keep a promise.** Fast on average is not enough: how many machines give every user the speed that was promised?
# 4. **Know when to stop.** Sometimes no draft is the best draft. When?
#
# **After this lesson you can**
# - write a loop in which the host works while the device does, and say which lag that needs
# - see when a calibration has gone wrong, mend it, and say what a wrong one costs on which machine
# - turn a promised speed into a number of machines
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
from dspark_lite.course.bets import bet, show_score
from dspark_lite.course.exercises import lesson_13 as exercises
from dspark_lite.course.own_decoder.keep import keep
from dspark_lite.course.figures import lesson_13 as figures
from dspark_lite.course.lesson_text import claims, glue

torch.set_grad_enabled(False)
lab = dspark_lite.setup()
target, drafter = lab.target, lab.drafter("dspark")

# %% [markdown]
# > **To recall.** A *whole block*: all its drafts are verified, seven here. [Budget](../docs/glossary.md#budget): how many drafts a step verifies in all.
# > *Algorithm 1* searches it in a cost table. *STS* calibrates confidences; *ECE* is how far off they are. *Frontier*: throughput against
# > each user's speed, by load. *Seats*: the requests that an engine holds at once. *V4's curve*: the paper's throughput of DeepSeek-V4 by
# > load, where scheduling gains most. *MTP-1* drafts a single token.
#
# ## 1 · How do we keep the device busy?
#
# The models run on the **device**, a GPU; the CPU beside it is the **host**. After each step the host turns tokens into text, looks for
# stop strings, and searches the next budget. Meanwhile the expensive device waits: the white gaps in the upper lane below (times made up). A
# step drafts (light), then verifies (dark). A box of the host has the number of the step whose confidences it works on. The arrow leads from
# the budget that it finds to the step that spends it; host 1 and that step have one colour.

# %%
picture = figures.model_lanes(draft=1.0, verify=4.0, host=2.0, modes=(False,))

# %%
overlap = bet("13 overlap")

# %% [markdown]
# ### Work on the step before
#
# The cure is called **[zero-overhead scheduling](../docs/glossary.md#zos)**: while the device runs step $t$, the host works on what step
# $t - 1$ has left.
#
# The price is an older budget. A step, draft and verification together, starts as one piece, so its budget must be known when it begins.
# Follow step 1 in our loop: when it ends, step 2 begins at once, and the host searches step 1's confidences while step 2 runs. Step 3 is
# the first that can spend the result. So step $t + 1$ spends a budget found from the confidences of step $t - 1$: the *lag* is two.
#
# Below, the same engine both ways. Follow the orange: one after another, host 1 feeds step 2; overlapped, step 3. Then the host is made
# slower than the device. What does the device wait for now? (In a running notebook, move the times.)

# %%
from dspark_lite.course.figures import widgets

panel = widgets.explore(figures.model_lanes, {"host": 6.0}, draft=widgets.slider("draft (ms)", 1.0, 0.5, 4.0, 0.5),
                        verify=widgets.slider("verify (ms)", 4.0, 1.0, 10.0, 0.5), host=widgets.slider("host (ms)", 2.0, 0.5, 10.0, 0.5))
hosts = np.arange(0.5, 100.5, 0.5)  # milliseconds of the host; the device takes 5
faster = (5 + hosts) / np.maximum(5, hosts)
best = faster.argmax()
overlap.settle(f"{faster[best]:.0f} times" if best < len(hosts) - 1 else "any number, if the host is slow enough",
               f"computed for a device of 5 ms and hosts of 0.5 to 100: {faster[best]:.2f} times, with a host of {hosts[best]:.0f} ms")

# %% [markdown]
# <details><summary>After your bet</summary>
#
# At most twice as fast, where both take equally long. One after another, a step takes the device's time plus the host's; overlapped, only
# the longer of the two. With the slower host the device waits again, now for budgets, and the engine keeps the host's pace.
#
# </details>
#
# So **overlapping hides the shorter one**, and no more.
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
# first; `host` asks `algorithm_1` for the next budget. In the table, *a round* is tokens per round.

# %% tags=["folded"]
# @title Serve six texts: whole blocks, scheduled, and by your loop
from dspark_lite.course.own_decoder.engine_board import SLOTS, Board
from dspark_lite.course.own_decoder.judge import own_or_course
from dspark_lite.course.replication import machine_results

engine = own_or_course("step", "algorithm_1")
board = Board(lab, drafter, machine_results.engine_seconds(SLOTS), f"modelled H100, {SLOTS} seats × {256 // SLOTS}")
board.serve("whole blocks", engine.step)
board.serve("scheduled", engine.step, board.sps)
board.pipeline("pipelined", engine.step, pipelined if done else exercises.pipelined, engine.algorithm_1)
board.show()
rates = board.rates()
full = 256, 256 * (drafter.gamma + 1)  # requests and tokens of a full step with whole blocks
gpu, bare = (machine_results.machines()[name].step("dspark") for name in ("H100", "H100, no host"))
device_ms, host_ms = 1e3 * bare.seconds(*full), 1e3 * (gpu.seconds(*full) - bare.seconds(*full))
print(f"a full step: device {device_ms:.0f} ms, host {host_ms:.0f} ms; one after another {device_ms + host_ms:.0f} ms, "
      f"overlapped {max(device_ms, host_ms):.0f} ms")
(_, request, token), (_, bare_request, bare_token) = (step.line(*full) for step in (gpu, bare))
glue(device=device_ms, host=host_ms, overlap_gain=100 * (rates["pipelined"] / rates["scheduled"] - 1), n=request / token, n_hidden=bare_request / bare_token)

# %% tags=["claim"]
claims({"every version writes plain decoding's texts": set(board.texts().values()) == {len(board.prompts)},
        "the gain follows from a full step": abs((device_ms + host_ms) / max(device_ms, host_ms) - rates["pipelined"] / rates["scheduled"]) < 0.05,
        "a hidden host about halves the price of a request": 0.4 < bare_request / request < 0.6 and bare_token == token,
        "pipelined, the first two steps take whole blocks": all(step.tokens == step.requests * (drafter.gamma + 1)
                                                                for name, steps, *_ in board.rows if name == "pipelined" for step in steps[:2]),
        "hiding the host brings far more than scheduling": rates["pipelined"] - rates["scheduled"] > 5 * abs(rates["scheduled"] - rates["whole blocks"])})

# %% [markdown]
# The texts are the same. A full step took the device's ⟦device:.0f⟧ ms and the host's ⟦host:.0f⟧; now it takes the longer of the two:
# ⟦overlap_gain:.0f⟧ % more tokens per second. (Texts are real, seconds are modelled, and the model hides all of the host's work.)
#
# With the host hidden, a request's fixed cost falls from ⟦n:.0f⟧ tokens' worth of time (lesson 10's $n$) to about ⟦n_hidden:.0f⟧. Beside that
# smaller cost each draft weighs more.
#
# The lag costs no exactness. An old budget comes from drafts that are already judged, so the drafts of the new step have no say in how
# many are verified. Their confidences still choose which drafts fill that number. That is safe: whether a draft is verified never depends
# on its own draw or on later drafts of its block (lesson 10). [Production: what an engine adds](../docs/production.md) counts every outcome,
# and has what else an engine needs.
#
# ## 2 · What if the confidence head goes wrong?
#
# Every budget now rests on the head. Would we notice if it went wrong? And what would that cost?
#
# ### Do we notice?
#
# Lesson 09 calibrated the head once (STS: a temperature per position), on one mix of prompts. Now we let a service run, and plant two
# accidents. At the first dotted line of the next picture the *traffic* shifts from math to chat. At the second, an update doubles the
# *head's* logits by mistake.
#
# Above are the tokens per round. Below is the ECE, the mean gap between what the head forecasts and how often it comes true, in
# percentage points, three times:
#
# - *As stored*: lesson 09's calibration.
# - *Kept online*: `OnlineSTS` tries temperatures fitted to the newest blocks that were verified whole, and takes them (a diamond) if their
#   error *on these blocks* is clearly lower.
# - *Fitted to this traffic*: about the best that one can hope for.

# %%
accidents = bet("13 two accidents")

# %% tags=["answer"]
from dspark_lite.course.replication import confidence_results
from dspark_lite.course.replication.drift import Phase, drift

phases = [Phase("math", 1.0, 1600), Phase("chat", 1.0, 2600), Phase("chat", 2.0, 2600)]
found = drift(confidence_results.observations(), confidence_results.stored_sts(), phases)
picture = figures.drift_series(found, phases)

# %% tags=["folded", "answer"]
# @title The ECE after each accident
late = {}
for number, name in ((1, "the traffic shifts"), (2, "the head goes wrong")):
    late[number] = found.after(number, 2000)
    points = [f"{100 * ece:4.1f}" for ece in late[number]]
    print(f"2,000 blocks after {name:19}: ECE, in percentage points, {points[0]} as stored, {points[1]} kept online, {points[2]} fitted to this traffic")
lengths = {number: np.mean([point.accepted_length for point in found.points if point.phase == number]) for number in (0, 1, 2)}
fewer = [lengths[number - 1] - lengths[number] > 0.5 for number in late]  # tokens per round
misjudged = [as_stored > 2 * fitted for as_stored, _, fitted in late.values()]  # the ECE, of the calibration as stored
panels = {((True, False), (False, True)): "tokens per round show the first, the ECE the second",
          ((True, True), (False, True)): "tokens per round show both, the ECE the second",
          ((True, False), (True, True)): "the ECE shows both, tokens per round the first", ((True, True), (True, True)): "both panels show both"}
accidents.settle(panels[tuple(fewer), tuple(misjudged)],
                 "replayed: " + ", ".join(f"{lengths[number]:.1f}" for number in lengths) + " tokens per round; ECE as stored "
                 + ", then ".join(f"{100 * as_stored:.0f}" for as_stored, *_ in late.values()) + " points")

# %% tags=["claim"]
claims({"online, 2,000 blocks after each change, the error is within 1.5 times a stationary fit's": all(o < 1.5 * f for _, o, f in late.values()),
        "the stored calibration stands the shift of the traffic": late[1][0] < 1.5 * late[1][2],
        "and not a head that has gone wrong": late[2][0] > 2 * late[2][2],
        "the three errors are close after the shift": max(late[1]) - min(late[1]) < 0.015,
        "after the shift the one kept online takes fresh temperatures, and its error is the larger": 0.005 < late[1][1] - late[1][0] < 0.015
        and any(phases[0].blocks < at <= phases[0].blocks + 2000 for at in found.refits),
        "the shift costs tokens": lengths[0] - lengths[1] > 0.5,
        "the head that goes wrong costs none here": abs(lengths[1] - lengths[2]) < 0.3})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# **The traffic shifts**: a round brings fewer tokens, but the stored calibration holds. The head reads the text, and sees by itself that
# chat is harder. The online calibration refits here, too, and ends a point *worse*: nothing was broken, and its sample is small.
#
# **The head goes wrong**: tokens per round stay, because these blocks are verified whole. But the stored calibration's ECE jumps, and stays
# high. The online one recovers as new blocks come in.
#
# </details>
#
# Watch both, and each domain by itself, or a mere change of the mix looks like a fault.
#
# ### What does a wrong head cost?
#
# An update has made the head too sure, or too doubtful. Nobody notices for a day. What does the day cost? We replay recorded blocks on two
# machines:
#
# - **This CPU's engine**, replayed with measured step times at ⟦busiest⟧ requests. In these times a block's last two drafts are almost free;
#   Algorithm 1 cuts some, and in the replay is ⟦here:.0f⟧ % behind whole blocks. (Lesson 11 measured this load, and could not tell.)
# - **V4's curve**, with 256 requests, which flatters scheduling (lesson 10).
#
# We change nothing but what the head says: its logits are moved up or down by 2 *nats* (a nat is a logit's unit), or multiplied by 4, which
# pushes confidences away from one half.

# %%
wrong_head = bet("13 wrong head")

# %% tags=["folded", "answer"]
# @title Replay four heads on two machines
from dspark_lite.course.estimates import Estimate
from dspark_lite.course.replication import machine_results, serving_results
from dspark_lite.course.replication.machine_results import HEADS, RAW_HEAD, V4_FLASH
from dspark_lite.course.replication.production_results import production_rows

report = serving_results.serving_run()
loads = sorted({row["concurrency"] for row in report["policies"]})
busiest = loads[-1]
here = {row["name"]: Estimate(row["value"], row["low"], row["high"]).scaled(1.0, plus=-1.0)
        for row in production_rows("wrong_heads") if row["paid"] == "measured" and row["name"] in HEADS}
stored = machine_results.gains_by_head(V4_FLASH, 256)
there = {head: stored[head]["whole"] for head in HEADS}
titles = f"modelled: this CPU's engine, {busiest} requests under way", "derived: V4's curve, at most, 256 requests under way"
picture = figures.wrong_heads(dict(zip(titles, (here, there))))


def against_calibrated(gains):
    """What a head that is too sure and one that is too doubtful lose against the calibrated head, as fractions."""
    return [1 - (1 + gains[head].value) / (1 + gains[HEADS[0]].value) for head in HEADS[2:]]


(sure_here, doubt_here), (sure_there, doubt_there) = map(against_calibrated, (here, there))
dearer = ["sure" if sure > doubt + 0.02 else "doubtful" if doubt > sure + 0.02 else "same"
          for sure, doubt in ((sure_there, doubt_there), (sure_here, doubt_here))]
verdicts = {("sure", "sure"): "too sure, on both machines", ("doubtful", "doubtful"): "too doubtful, on both machines",
            ("sure", "doubtful"): "too sure on V4's curve, too doubtful on this CPU", ("same", "same"): "about the same either way"}
wrong_head.settle(verdicts[tuple(dearer)], f"replayed; too sure against too doubtful: {-100 * sure_here:+.0f} and {-100 * doubt_here:+.0f} % on this "
                  f"CPU, {-100 * sure_there:+.0f} and {-100 * doubt_there:+.0f} % on V4's curve")
glue(busiest=busiest, here=-100 * here[HEADS[0]].value,
     doubt_here=100 * doubt_here, sure_gain_here=-100 * sure_here, doubt=100 * doubt_there, sure=100 * sure_there)

# %% tags=["claim"]
costs = serving_results.engine_costs("dspark")
places = costs.tokens_per_request[-1]
last, viewed = (table.seconds(busiest, busiest * places) - table.seconds(busiest, busiest * (places - 2)) for table in (costs, costs.convex_fit()))
slopes = np.diff(costs.convex_fit().step_seconds[-1])
claims({"the heads were recorded at the heaviest load": {row["requests"] for row in production_rows("wrong_heads")} == {busiest},
        "as measured, a block's last two drafts cost almost nothing, and in the smoothed table as much as the others":
            last < 0.25 * viewed and np.ptp(slopes) < 0.05 * slopes.mean(),
        "here the calibrated head stays below whole blocks, and surer ones come closer": here[HEADS[0]].high < here[HEADS[1]].value
            < here[HEADS[2]].value < 0,
        "there it is ahead of whole blocks and of every wrong head": there[HEADS[0]].low > 0
            and max(stored[head]["calibrated"].high for head in HEADS[1:]) < 0,
        "there sure heads keep a part of the gain": min(there[head].low for head in HEADS[1:3]) > 0,
        "on both, doubt loses more than a tenth against the calibrated head, and sureness about half of that at most":
            min(doubt_here, doubt_there) > 0.1 and max(sure_here, sure_there) < 0.6 * min(doubt_here, doubt_there),
        "uncalibrated confidences cost a tenth of a per cent at most": abs(stored[RAW_HEAD]["calibrated"].value) < 0.001})

# %% [markdown]
# Zero is whole blocks: every draft verified. Above, four runs differ by less than the dot; below, a bar is a 95 % interval over requests.
#
# <details><summary>After your bet</summary>
#
# **Where whole blocks are nearly harmless, so is a head that is too sure**: at worst it verifies everything. So it can hardly lose more
# than scheduling gains: on V4's curve it loses ⟦sure:.0f⟧ % against the calibrated head. Here it even wins ⟦sure_gain_here:.0f⟧ %, since here the
# calibrated head was behind whole blocks. On a machine where whole blocks cost throughput, as DeepSeek says of its own under load
# (lesson 06), the same head is a real fault.
#
# **A head that is too doubtful throws away drafts that were right and are paid for**: against the calibrated head it loses ⟦doubt_here:.0f⟧ %
# here, and ⟦doubt:.0f⟧ % on V4's curve.
#
# </details>
#
# And no calibration at all? On V4's curve our raw head is as good as the calibrated one. (The paper's raw confidences are often too high.)
#
# ### The target was fine-tuned
#
# The third accident leaves the head alone: the target moves under its draft. We fine-tune the tiny target on texts that say the same in
# other words, and keep its DSpark. Then we fine-tune the DSpark, too, on a few hundred of the new target's answers.

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
# All answers are the new target's own; the old draft only costs speed, and nothing warns of it. In the mean of the domains $\tau$ goes
# ⟦tau_before:.1f⟧ → ⟦tau_moved:.1f⟧ → ⟦tau_refitted:.1f⟧; the cure took ⟦refit_minutes:.0f⟧ minutes on one CPU core. (One training of each.)
# The released drafts learned answers without thinking: let Qwen3 think, and a draft wants the same cure ([training](../docs/training.md#thinking)).
#
# ## 3 · How many machines does a promise take?
#
# Users were promised a speed, and lesson 11's frontier says what throughput is left under a promise. Whoever buys machines needs one number
# more.
#
# ### Exercise 2 · How many machines? (code)
# *10 minutes · easy · core.*
#
# `curve` [n, 2] is the frontier of one machine, rows (speed of each user, throughput) by rising load. `exercises.throughput_at(curve,
# promise)` is the throughput at which each user still gets the promised speed; 0 where even a single user is slower. How many machines
# give `users` users the promised speed? Return a whole number, or `np.inf` where a machine does not give it to a single user. Do not
# round the users per machine, which are a mean (users come and go); round only the number of machines, up.
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

# %% tags=["folded"]
# @title Machines for 1,000 users, by the promised speed
from dspark_lite.course.estimates import bootstrap, share_of_rows

machines = machines_for if done else exercises.machines_for  # yours once it is right


def rising(totals, loads):
    """A frontier [n, 2] of rising load from tokens/s in all [n]; where noise made a heavier load look faster, that speed counts for both."""
    return np.stack([np.maximum.accumulate((totals / loads)[::-1])[::-1], totals], 1)


def needed_for(name, policy, promise):
    """Machines for 1,000 users, with the interval over turns of the measurement."""
    found = serving_results.by_load(name, policy)

    def of_resamples(groups):
        totals = np.stack([share_of_rows(group) for group in groups], -1)  # tokens/s in all, [resamples, loads]
        return np.array([1 / machines(rising(some, np.array(list(found))), 1000, promise) for some in totals])

    inverse = bootstrap(of_resamples, [serving_results.totals_by_turn("throughput", row) for row in found.values()], resamples=400)
    return Estimate(*(1 / end if end else np.inf for end in (inverse.value, inverse.high, inverse.low)))  # 0 for inf


fastest = serving_results.frontier("mtp", "all")[0, 0]  # that MTP-1 gives a user alone
shares = {"mtp": np.linspace(0.3, 1.0, 8), "dspark": np.array([0.3, 0.5, 0.7, 0.8, 0.9, 1.1, 1.3, 1.5])}  # promises over `fastest`
needed = {name: {round(share, 1): needed_for(name, policy, share * fastest) for share in shares[name]}
          for name, policy in (("mtp", "all"), ("dspark", "lagged"))}
picture = figures.machines_needed({name: (fastest * shares[name], list(found.values())) for name, found in needed.items()},
                                  fastest, 1000, report["device"])

# %% tags=["claim"]
mtp, dspark = needed["mtp"], needed["dspark"]
claims({"at a slow promise both need about the same number": 0.8 < mtp[0.3].value / dspark[0.3].value < 1.25,
        "at 80 % of MTP-1's fastest DSpark needs about a fifth": 0.16 < dspark[0.8].value / mtp[0.8].value < 0.24 and mtp[0.8].low > 3 * dspark[0.8].high,
        "near its fastest MTP-1 clearly needs several times as many": mtp[0.9].low > 3 * dspark[0.9].high,
        "and beyond it no number helps": needed_for("mtp", "all", 1.5 * fastest).value == np.inf > dspark[1.5].high,
        "near its fastest a machine of MTP-1 keeps the promise for two or three": 2 < 1000 / mtp[0.9].value < 3})

# %% [markdown]
# (Bands: 95 % intervals; DSpark with a lagged budget.) The fastest that MTP-1 can promise is the speed of a user who has the machine alone.
# Close to it, a machine keeps the promise for two or three users only, so the machines explode; beyond it no number helps.
#
# **At 80 % of MTP-1's top speed DSpark needs a fifth of the machines; at 30 %, as many.** Ask at which promise a gain was measured.
#
# ## 4 · When is it better not to speculate?
#
# Take a plain step, which writes one token, as the unit of time. A round of DSpark drafts and verifies, and so lasts several of them. It pays
# if it also brings that many tokens: **speculate while $\tau > (T_\text{draft} + T_\text{verify}) / T_\text{plain}$, measured at your load.**
#
# The third row is a chat service. By day its scheduler cuts blocks to 0.3 drafts per request. Drafting takes 0.5 plain steps, verifying 1.2;
# $\tau$ is 1.25.

# %% tags=["folded"]
# @title Rounds in plain steps; drafts in vain; answers of a lone user
def costs(load, drafter, policy):
    """The measured row of a drafter's steps at a load."""
    return serving_results.row("costs", concurrency=load, drafter=drafter, policy=policy)


# In these rows a budget counts the tokens of a request: 8 is the whole block, 1 the anchor alone, with seven drafts drafted and none verified.
in_vain = {load: serving_results.gain("throughput", costs(load, "dspark", "budget 1"), costs(load, "plain", "fixed 0")) for load in loads}
rounds = {}
for load in (loads[0], busiest):
    vain, full_block, step = (serving_results.value("step_seconds", costs(load, *way))
                              for way in (("dspark", "budget 1"), ("dspark", "budget 8"), ("plain", "fixed 0")))
    rounds[f"here, {load} under way"] = vain / step - 1, (full_block - vain) / step + 1, serving_results.value("accepted_length", costs(load, "dspark", "budget 8"))
rounds["chat, by day"] = 0.5, 1.2, 1.25
picture = figures.rounds_in_plain_steps(rounds)

tokens_alone = {name: serving_results.value("per_user", serving_results.row("policies", concurrency=1, drafter=name, policy=policy))
                for name, policy in (("plain", "all"), ("dspark", "lagged"))}
prompt = {name: sum(serving_results.prefill_costs(name)) for name in tokens_alone}  # seconds
whole = {name: {length: prompt[name] + length / tokens_alone[name] for length in (8, 32, 128)} for name in tokens_alone}  # from mean speeds
shorter = {length: seconds / whole["dspark"][length] for length, seconds in whole["plain"].items()}
print("alone, times as fast as plain, prompt included:", ", ".join(f"{length} tokens {ratio:.2f}" for length, ratio in shorter.items()))
glue(least_full=1 / in_vain[busiest].value, least_alone=1 / in_vain[loads[0]].value)

# %% tags=["claim"]
claims({"drafting in vain loses at every load": max(value.value for value in in_vain.values()) < 1,
        "whole blocks pay here, alone and on the full server": all(tokens > sum(parts) for *parts, tokens in list(rounds.values())[:2]),
        "a short answer gains less than a long one": shorter[8] < shorter[32] < shorter[128]})

# %% [markdown]
# 1.25 < 1.7: the chat service loses by day. Its scheduler looks like a safety net, and is none: it cuts what is *verified*, and all seven
# drafts were drafted and paid for. The cure is a *gate*, which switches drafting off for some requests or hours. At night the rule may hold.
#
# So cutting has a floor. With seven drafts drafted and none verified, a round here still lasts ⟦least_alone:.1f⟧ plain steps alone and
# ⟦least_full:.1f⟧ on the full server. **Below that many tokens per round nothing can save you, however cleverly you cut.** And the rule
# counts only what comes after the prompt, which takes about as long as ever: a short answer gains less than a long one (printed above).
# [Which drafter, and when not to](../docs/which_drafter.md) is the page to keep.
#
# ### Exercise 3 · Four services (think)
# *10 minutes · medium · core.*
#
# For each service: *speculate*, *gate*, or *leave it*? Decide, and say which number you would measure first. Then open the card.
#
# <details><summary>1 · Questions about long contracts: 60,000 tokens of prompt, two sentences of answer. The draft reaches τ = 6.</summary>
#
# *Speculate, but it hardly matters.* By the rule it pays ($\tau$ = 6). But nearly all the time goes into the prompt, which no draft
# shortens, and the draft must read that prompt, too. Measure the share of a request's time that comes after its prompt.
#
# </details>
# <details><summary>2 · Nightly summaries. Nobody waits, and the batch is as large as memory allows.</summary>
#
# *Speculate if a pass still waits for memory's bandwidth.* The batch ended where memory's *capacity* did, often long before arithmetic takes as
# long as reading; then drafts are nearly free. (If arithmetic is the limit, leave it: each further token costs its full share.) Measure the
# time of a pass with one token more per request.
#
# </details>
# <details><summary>3 · The target was fine-tuned yesterday, the draft was not. All answers are fine.</summary>
#
# *Speculate where the rule still holds.* Fine answers prove nothing: acceptance keeps them right with any draft. Measure $\tau$ by domain. Then
# fine-tune the draft on the new target's answers.
#
# </details>
# <details><summary>4 · One user, and a target hardly larger than its draft, whose seven drafts take 3.5 plain steps.</summary>
#
# A round must bring more than 4.5 tokens, since verifying takes a plain step at least. *Leave it, unless $\tau$ is larger.* A lone user is the
# best case, but for a *large* target, beside which a draft costs next to nothing. Measure $\tau$.
#
# </details>
#
# > **How sure are we?** Wrong heads run in models of the machines, on recorded blocks; V4's curve is an upper bound. All other costs
# > are one CPU's, with small models, one training of each. [What all of this does not show](../docs/limits.md).
#
# ## Recap
# - Zero-overhead scheduling hides the host behind the device, with budgets two steps old. A lagged budget is lossless.
# - Traffic may shift and a calibration hold; a head that goes wrong shows in its ECE. A doubtful head costs much on both machines. A sure one
#   loses at most what scheduling gains. A target that moves takes its draft's acceptance away, and nothing warns.
# - A promised speed is paid in machines. Close to the fastest that a rival can promise, the rival's number explodes.
# - A round pays if it brings more tokens than it takes plain steps. Not speculating must mean not drafting.
#
# **Next**: [14, the clinic](14_the_clinic.ipynb): drafters that run, answer correctly, and are slow.

# %% [markdown]
# **Case 13.** An engine on a new machine, at half its speed. Measure at most three things, then accuse.

# %%
from dspark_lite.course.cases import case

investigation = case("13")

# %%
show_score("13")
