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
# ## 1 · How do we keep the device busy?
#
# The models run on the **device**, a GPU; the CPU beside it is the **host**. After each step the host turns tokens into text, looks for
# stop strings, and searches the next *budget*, the number of drafts that a step verifies. Meanwhile the expensive device waits: the
# white gaps in the upper lane below (times made up). An arrow leads from a budget to the step that spends it.

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
# Below, the same engine both ways. Follow the arrow from host 1: one after another it leads to step 2; overlapped, to step 3. Then the
# host is made slower than the device. What does the device wait for now? (In a running notebook, move the times.)

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
# Hiding the host also makes each request cheaper: what a request costs, in tokens (lesson 10's $n$), falls from ⟦n:.0f⟧ to about
# ⟦n_hidden:.0f⟧. So on an engine that overlaps, a draft must survive more often to pay, and Algorithm 1 finds somewhat more to cut than
# lessons 10 and 11 say.
#
# The lag costs no exactness. An old budget comes from drafts that are already judged, so the drafts of the new step have no say in how
# many are verified. Their confidences still choose which drafts fill that number. That is safe: whether a draft is verified never depends
# on its own draw or on later drafts of its block (lesson 10).
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
# - **This CPU's engine**, replayed with measured step times at ⟦busiest⟧ requests. A block's last two drafts are almost free there; Algorithm 1
#   cuts some, and is ⟦here:.0f⟧ % behind whole blocks.
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
# **A head that is too sure is nearly harmless**: at worst it verifies everything, and whole blocks are where we started. So it can lose little
# but the gain of scheduling: on V4's curve ⟦sure:.0f⟧ %, against the calibrated head. Here it even wins ⟦sure_gain_here:.0f⟧ %, since here the
# calibrated head was behind whole blocks. (*4 times as sure* also makes each doubtful draft more doubtful, so it still cuts some.)
#
# **A head that is too doubtful throws away drafts that were right and are paid for**: against the calibrated head it loses ⟦doubt_here:.0f⟧ %
# here, and ⟦doubt:.0f⟧ % on V4's curve.
#
# </details>
#
# And no calibration at all? On V4's curve our raw head is as good as the calibrated one. (The paper's raw confidences are often too high.)
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
    """Machines for 1,000 users, and the ends of the interval over turns of the measurement."""
    found = serving_results.by_load(name, policy)

    def of_resamples(groups):
        totals = np.stack([share_of_rows(group) for group in groups], -1)  # tokens/s in all, [resamples, loads]
        return np.array([1 / machines(rising(some, np.array(list(found))), 1000, promise) for some in totals])

    inverse = bootstrap(of_resamples, [serving_results.totals_by_turn("throughput", row) for row in found.values()])  # 0 for inf
    return [1 / end if end else np.inf for end in (inverse.value, inverse.high, inverse.low)]


fastest = serving_results.frontier("mtp", "all")[0, 0]  # that MTP-1 gives a user alone
needed = {share: [needed_for(name, policy, share * fastest) for name, policy in (("mtp", "all"), ("dspark", "lagged"))]
          for share in (0.3, 0.5, 0.7, 0.9, 1.5)}
print(f"machines for 1,000 users [95 % interval]; measured on {report['device']}; DSpark with a lagged budget")
print("promise (of MTP-1's fastest)   tokens/s              MTP-1             DSpark")
for share, found in needed.items():
    print(f"{share:28.0%} {share * fastest:10.0f} " + " ".join(f"{'{:.0f} [{:.0f}, {:.0f}]'.format(*one):>18}" for one in found))

# %% tags=["claim"]
claims({"at a slow promise both need about the same number": 0.8 < needed[0.3][0][0] / needed[0.3][1][0] < 1.25,
        "near its fastest MTP-1 clearly needs several times as many": needed[0.9][0][1] > 3 * needed[0.9][1][2],
        "and beyond it no number helps": needed[1.5][0][1] == np.inf > needed[1.5][1][2],
        "near its fastest a machine of MTP-1 keeps the promise for two or three": 2 < 1000 / needed[0.9][0][0] < 3})

# %% [markdown]
# The fastest that MTP-1 can promise is the speed of a user who has the machine alone. Close to it, a machine of MTP-1 keeps the promise for
# two or three users only, so the machines explode; beyond it no number helps (`inf`). So a gain of several hundred per cent is real for
# whoever must promise such a speed, and for nobody else.
#
# ## 4 · When is it better not to speculate?
#
# Some requests gain nothing, and a scheduler cannot save them: it cuts what is *verified*, after the draft has been paid for. Below, what is
# left of the throughput if seven drafts are drafted and none is verified; then, how many times as fast a lone user of DSpark gets a whole
# answer, prompt included.

# %% tags=["folded"]
# @title Drafts in vain, and answers of a lone user, over plain decoding
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
glue(vain=in_vain[busiest].value, vain_alone=in_vain[loads[0]].value, least_full=1 / in_vain[busiest].value, least_alone=1 / in_vain[loads[0]].value)

# %% tags=["claim"]
claims({"drafting in vain loses at every load": max(value.value for value in in_vain.values()) < 1,
        "a short answer gains less than a long one": shorter[8] < shorter[32] < shorter[128]})

# %% [markdown]
# A short answer gains less than a long one, since the prompt takes about as long as ever. For what comes after the prompt, one rule decides:
# **speculate while $\tau > (T_\text{draft} + T_\text{verify}) / T_\text{plain}$, measured at your load.** The right side is the length of a
# round in plain steps, each of which writes one token.
#
# Invert the first printed line: with nothing verified a round already lasts $1/⟦vain_alone:.2f⟧ = ⟦least_alone:.1f⟧$ plain steps alone, and
# $1/⟦vain:.2f⟧ = ⟦least_full:.1f⟧$ on the full server. **Below that many tokens per round nothing can save you, however cleverly you cut.**
# [Which drafter, and when not to](../docs/which_drafter.md) is the page to keep.
#
# ### Exercise 3 · Five services (think)
# *10 minutes · medium · core.*
#
# For each service: *speculate*, *gate* (switch drafting off for some requests or hours), or *leave it*? Decide, and say which number you
# would measure first. Then open the card.
#
# <details><summary>1 · Questions about long contracts: 60,000 tokens of prompt, two sentences of answer. The draft reaches τ = 6.</summary>
#
# *Speculate, but it hardly matters.* By the rule it pays ($\tau$ = 6). But nearly all the time goes into the prompt, which no draft
# shortens, and the draft must read that prompt, too. Measure the share of a request's time that comes after its prompt.
#
# </details>
# <details><summary>2 · Nightly summaries. Nobody waits, and the batch is as large as memory allows.</summary>
#
# *Speculate if memory is what is full, as it often is.* Then a pass is still spent on reading, and drafts are nearly free.
# (If arithmetic is full, leave it: each further token costs its full share.) Measure the time of a pass with one token more per request.
#
# </details>
# <details><summary>3 · A chat service. By day its scheduler cuts blocks to 0.3 drafts per request. Measured by day: drafting takes 0.5 plain steps, verifying 1.2; τ = 1.25.</summary>
#
# 1.25 < 1.7: *gate by day.* The scheduler looks like a safety net, and is none: all seven drafts were drafted and paid for. Measure both
# sides of the rule at night, too; there it may pay.
#
# </details>
# <details><summary>4 · The target was fine-tuned yesterday, the draft was not. All answers are fine.</summary>
#
# *Speculate where the rule still holds.* Fine answers prove nothing: acceptance keeps them right with any draft. Measure $\tau$ by domain. Then
# fine-tune the draft on the new target's answers.
#
# </details>
# <details><summary>5 · One user, and a target hardly larger than its draft, whose seven drafts take 3.5 plain steps.</summary>
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
#   loses at most what scheduling gains.
# - A promised speed is paid in machines. Close to the fastest that a rival can promise, the rival's number explodes.
# - Not speculating must mean not drafting.
#
# **Next**: [14, the clinic](14_the_clinic.ipynb): drafters that run, answer correctly, and are slow.

# %% [markdown]
# **Case 13.** A loop that should overlap, and two workers that wait. Measure at most three things, then accuse.

# %%
from dspark_lite.course.cases import case

investigation = case("13")

# %%
show_score("13")

# %% [markdown]
# ## Beyond the core
#
# The lesson is complete without these sections.
#
# ### ★ Could a host that reads earlier do with a smaller lag?
#
# In exercise 1's engine the host reads a step's confidences when the step has ended. But they are there as soon as the draft is done. Does it
# help to read them then? The picture draws such an engine with made-up times. The host searches a budget in the confidences of step $s$. A
# dashed line marks the *deadline* of a later step: by then the engine must know how many drafts that step verifies. The arrow leads to the
# first deadline that the search meets.

# %%
picture = figures.search_in_time(draft=2.0, verify=6.0, host=5.0, aheads=(0.0, 2.0))

# %% [markdown]
# Above, a step's deadline is its own start. Below, the engine prepares steps in advance, so the deadline is `ahead` = 2 ms earlier. The
# search is as long as before, but now it misses step $s + 1$.
#
# ### Exercise 4 · How old? (code)
# *8 minutes · easy · optional.*
#
# Steps follow one another without a gap; each drafts for `draft` milliseconds and verifies for `verify`. A search takes `host` milliseconds
# and begins when a step's draft is done. A step's deadline is `ahead` milliseconds before its start; a search that ends exactly then is in
# time. The budget of step $t$ comes from the newest confidences that are in time, those of step $s$. Return $t - s$.
#
# <details><summary>Hint</summary>
#
# Step $s$ begins at $s\,T$, where $T$ is the length of a step. Write down when the search of its confidences ends, and what the
# deadline of step $t$ is. Solve for $t - s$.
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
# If a search takes no longer than a verification pass and nothing is prepared (`ahead` = 0), the next step can spend its budget: reading early
# helps. An engine that prepares each step when the one before begins has `ahead` = one whole step. Then the lag is two, however early the
# host reads. The paper's engine has a lag of two; that it comes about like this is our derivation.
#
# ### ★ The loop with real threads
#
# `serve` is the loop of exercise 1 with some bookkeeping; a thread plays the device. We serve twelve requests, once with device and host one
# after another, once overlapped. Both spend budgets that are two steps old (one after another, one step would do), so that only the order
# of the work differs.

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
# before. The small number says which step that is (0: the one before those shown). A long hole, where the picture has one, is not the
# engine's: this machine gave its core to other work for a moment.

# %% tags=["folded"]
# @title Play the steps again at a GPU's pace
from dspark_lite.course.measure.paced import PacedEngine
from dspark_lite.course.replication.block_replay import stored_steps

pace = {"draft": 1e-3, "verify": 4e-3}  # seconds


def paced(overlapped):
    """What was done when, at the pace of a GPU; the recorded steps five times over."""
    return serve(PacedEngine(target, 5 * in_turn.reports, pace, stored_steps(slots)[0]), table, Host().deliver, overlapped=overlapped)


waiting, hidden = paced(overlapped=False), paced(overlapped=True)
picture = figures.two_lanes({"one after another": waiting, "overlapped": hidden}, 4,
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
# Overlapping has changed no token. A black line is the start of the next step; a bar also holds the time in which its thread was kept waiting.
# One after another, the device waits for the host's work and for the hand-over from thread to thread. Overlapped, hand-overs remain. The
# model of section 1 has none, so the measured gain need not equal the model's.
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
# Zero means: exactly the target's own distribution. We took the lag for speed, and exactness comes with it; for exactness one step would
# do.
#
# ### ★ Captured sizes, and what padding costs
#
# A GPU engine captures a pass once, as a **CUDA graph**, and replays it instead of launching each operation anew. A graph has a fixed size,
# so passes are captured at, say, every eighth number of tokens, and a pass of 43 is padded to 48. A policy that chooses first and pads
# afterwards pays for places that nobody uses. The lagged budget searches a cost table *of captured sizes* (`table.in_buckets(sizes)`), where
# one more draft costs nothing until the next size, so it fills them with drafts. Algorithm 1 decides by a convex view of that table
# (lesson 10), which smooths the sizes away. We replay recorded blocks on lesson 10's smooth machine:

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
# With sizes far apart, ⟦threshold_waste:.0f⟧ % of the tokens in a threshold's passes are padding, and far more in Algorithm 1's; both then
# fall below whole blocks. At a spacing of one nobody pads, and Algorithm 1 is a little ahead: the difference is what the lag costs.
#
# ### ★ Two notes on the head
#
# **Who may teach the window?** Only blocks that a service picked *at random* to be verified whole. The scheduler verifies some whole by its own
# choice, but those are the ones that the head trusted: from them, a head that trusts too little would hardly ever hear that it was wrong.
#
# **Why does the calibrated head lose to whole blocks on this CPU?** In the costs as measured a block's last two drafts are almost free.
# Algorithm 1 decides by a convex view of the costs, in which no draft is cheaper than the one before (lesson 10). It spreads the cost
# evenly, so the last drafts look dear, and it cuts some that would have paid.
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
from dspark_lite.course.measure.machines import GPUS

print("Qwen3-4B, predicted:  a pass holds   requests with 8 tokens")
for name, gpu in {**roofline.DEVICES, "H100": GPUS["H100"]}.items():
    free = gpu.operations / gpu.bandwidth  # tokens at which arithmetic takes as long as reading 16-bit weights
    print(f"{name:>20} {free:8.0f} tokens {free / 8:20.0f}")
glue(break_even=max(roofline.predict(name, "dspark").break_even for name in roofline.DEVICES))

# %% tags=["claim"]
h100 = machine_results.machines()["H100"]
claims({"the modelled H100's is about as large": abs(h100.step("dspark").seconds(1, 8) / h100.step("plain").seconds(1, 1)
                                                    - max(roofline.predict(name, "dspark").break_even for name in roofline.DEVICES)) < 0.1})

# %% [markdown]
# The last column says how many requests with whole blocks still fit in such a pass. Under light load the right side of the lesson's rule is
# about ⟦break_even:.1f⟧ on these GPUs: so few tokens per round already pay. In this lab a draft costs more beside its small target.
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
