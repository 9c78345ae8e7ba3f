# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=60 difficulty="medium"
# # 10 · The scheduler
#
# **After this lesson you can**
# - say what a token's place in the batch costs, and when a draft is worth it
# - write Algorithm 1, the paper's scheduler, and prove that it is lossless
# - say how looking further breaks it, and why a greedy test does not see the fault
# - choose a scheduler for a smooth cost table, for stairs, and for an engine that fixes a step's size early
#
# **What you need**: lesson 02 (the lossless rule), lesson 09 (survival).
#
# **Sources**: the [DSpark paper](../docs/references.md#dspark), sections 3.2.2 (Algorithm 1) and 5.2 (lagged budget), Appendix A.
# [Notation](../docs/notation.md) · [glossary](../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import numpy as np
import torch

from dspark_lite.course.exercises import lesson_10 as exercises
from dspark_lite.course.exercises.keep import keep
from dspark_lite.course.figures import lesson_10 as figures
from dspark_lite.course.figures.strip import strip
from dspark_lite.course.lesson_text import claims, glue

torch.set_grad_enabled(False)
picture = strip("schedule")

# %% [markdown]
# ## A seat in the minibus
#
# Lesson 09 cut each block by itself, at a threshold that somebody had to choose. But is a doubtful draft worth checking? That
# depends on who else rides. A half-empty minibus takes a doubtful passenger at almost no cost. In a full one, every extra passenger
# makes the trip longer for all.
#
# A step of the target is the bus. It carries one **anchor** per request, the last token already committed, which must go, and the
# drafts that we choose to verify. On a made-up machine a step with $B$ tokens lasts $128 + B$ units: 128 to read the weights, one
# for each token. Each request has five drafts, which survive (they and all drafts before them are right) with 0.9, 0.65, 0.6, 0.3 and
# 0.2. All requests verify equally many.

# %%
from dspark_lite.course.exercises.predictions import predict

guess = predict("The best number of drafts, 0 to 5, with 4, with 32 and with 256 requests?", ...)

# %%
alive = np.array([0.9, 0.65, 0.6, 0.3, 0.2])  # survival of draft 1, 2, ...: the chance that it and all before it are right
committed = np.concatenate([[1], 1 + alive.cumsum()])  # tokens per request with 0, 1, ..., 5 drafts
speed = {R: R * committed / (128 + R * np.arange(1, 7)) for R in (4, 32, 256)}
best = {R: int(values.argmax()) for R, values in speed.items()}
guess.beside(best, "computed")
picture = figures.best_lengths({f"{R} requests": values / values[0] for R, values in speed.items()})

# %% [markdown]
# With few requests the 128 dominates, and a draft that survives one time in five is worth its seat. With many, that one unit delays all
# the tokens that the other requests would bring, so a draft must survive more often to make up for it. **What a draft is worth depends
# on its chance; whether it pays depends on the load.** A scheduler weighs the two, over all requests of a step.
#
# ## The cost table
#
# A real machine is not $128 + B$, so we measure: $\text{SPS}(B)$ is the number of [steps per second](../docs/glossary.md#sps) that the
# target makes when a step carries $B$ tokens. All sizes together are the **cost table**. On a GPU, SPS falls in stairs: kernels, the GPU's
# programs, compute **tiles** of a fixed number of tokens, and an engine pads a batch to the next prepared size. One more token is free
# inside a tile, and expensive at its edge.
#
# ## What a choice is worth
#
# Let $R$ requests share a step, and *admit* some of their drafts, that is, verify them in it. The step is expected to commit
#
# $$\tau = R + \sum_{\text{admitted}} \text{survival}, \qquad B = R + \text{number admitted}, \qquad
# \theta = \tau \cdot \text{SPS}(B).$$
#
# The $R$ in $\tau$ counts the tokens that the target adds itself, one per request; the $R$ in $B$ counts the anchors. Our goal
# is $\theta$: expected tokens per second of all requests (the paper's $\Theta$).
#
# ### Exercise 1 · Expected throughput (code)
# *5 minutes · easy · core.*
#
# `cost_table.sps(requests, B)` is SPS at one size; here only $B$ counts.


# %% tags=["exercise"]
def expected_throughput(admitted, requests, cost_table):
    """theta when drafts with the survivals `admitted`, a list, go in besides the anchors of so many requests."""
    return ...


done = exercises.check_theta(expected_throughput)


# %% tags=["solution"]
def expected_throughput(admitted, requests, cost_table):
    """theta when drafts with the survivals `admitted`, a list, go in besides the anchors of so many requests."""
    return (requests + sum(admitted)) * cost_table.sps(requests, requests + len(admitted))


done = exercises.check_theta(expected_throughput)

# %% [markdown]
# ## Algorithm 1, by hand
#
# Which drafts go in? Whatever their number, $\tau$ is highest if we take those with the highest survival. Survival never grows
# along a block, so these are the beginnings of blocks, without holes.
#
# Take two requests, X and Y, with three drafts each (X1 is the first draft of X), and a cost table for up to eight tokens.

# %%
from dspark_lite.scheduling import schedule, survival
from dspark_lite.scheduling.cost_table import CostTable

confidence = torch.tensor([[0.9, 0.8, 0.5], [0.6, 0.9, 0.9]])  # [R, gamma]
by_hand = CostTable(range(1, 9), [110, 100, 95, 90, 85, 70, 68, 66])
for name, said, chances in zip("XY", confidence.tolist(), survival(confidence).tolist()):
    print(f"request {name}: confidence", *(f"{value:.2f}" for value in said), "  survival", *(f"{value:.3f}" for value in chances))
print("SPS(2..8):", *(f"{speed:.0f}" for speed in by_hand.sps(2, range(2, 9)).tolist()))

# %% [markdown]
# **Algorithm 1** admits the likeliest draft, here X1, if it raises $\theta$. Then the next likeliest, and so on. The first draft that
# does not raise $\theta$ ends the search.
#
# ### Exercise 2 · Algorithm 1 (code)
# *25 minutes · medium · core. If you do only one, do this.*
#
# Return how many drafts of each request are verified. `sps(B)` is the cost table with $R$ already filled in. Of equal survivals the
# earlier position comes first, then the earlier request. Your function goes into your `my_dspark.py`.
#
# <details><summary>Hint</summary>
#
# Begin with `expected` and `batch` at R. A list of triples `(-chance, position, request)` sorts itself in the right order. For each
# draft compare `(expected + chance) * sps(batch + 1)` with `expected * sps(batch)`.
#
# </details>


# %% tags=["exercise"]
def algorithm_1(survivals, sps):
    """Verification lengths, a list, for survivals [R, gamma]; sps(B) is steps per second with B tokens in the batch."""
    ...


done = exercises.check_algorithm_1(algorithm_1) and keep(algorithm_1)


# %% tags=["solution"]
def algorithm_1(survivals, sps):
    """Verification lengths, a list, for survivals [R, g]: admit the likeliest token while each one raises
    (R + sum of admitted survivals) * sps(R + number admitted)."""
    lengths = [0] * len(survivals)
    expected, batch = float(len(survivals)), len(survivals)
    order = sorted(((-chance, k, r) for r, row in enumerate(survivals.tolist()) for k, chance in enumerate(row)))
    for minus_chance, _, request in order:
        if (expected - minus_chance) * sps(batch + 1) <= expected * sps(batch):
            break
        expected, batch, lengths[request] = expected - minus_chance, batch + 1, lengths[request] + 1
    return lengths


done = exercises.check_algorithm_1(algorithm_1) and keep(algorithm_1)

# %% [markdown]
# Here is $\theta$ along the whole order of the example. (`schedule` is the package's version of your function; `algorithm1` makes of it
# a **[policy](../docs/glossary.md#policy)**, which an engine asks for lengths in every step.)

# %%
from dspark_lite.scheduling import throughput

scheduler = algorithm_1 if done else exercises.algorithm_1  # yours once it is right
lengths = scheduler(survival(confidence), lambda batch: by_hand.sps(2, batch))
assert lengths == schedule(survival(confidence), by_hand).tolist()
order, theta = throughput(survival(confidence), by_hand)  # the order counts positions first: draft k of request r is k * R + r
picture = figures.by_hand(theta, [f"{'XY'[index % 2]}{index // 2 + 1}" for index in order.tolist()])
print(f"verified: {lengths[0]} drafts of X, {lengths[1]} of Y")

# %% tags=["claim"]
without_y3 = throughput(torch.tensor([[0.9, 0.72, 0.36], [0.6, 0.54, 0.0]]), by_hand)[1]
claims({"X1, X2 and Y1 are admitted, then Y2 would be next": order.tolist()[:4] == [0, 2, 1, 3] and sum(lengths) == 3,
        "Y2 lowers theta, and behind it theta climbs higher": bool(theta[4] < theta[3] < theta[6]),
        "with a hopeless Y3 the top would not take Y2": int(without_y3.argmax()) == 3})

# %% [markdown]
# ## Why it must stop
#
# In the figure Algorithm 1 admits X1, X2 and Y1, sees that Y2 lowers $\theta$, and stops. Further on $\theta$ is higher. Why not
# **take the top**? (`global_optimum` gives its lengths, `retrospective` is its policy.) That is a bug that no single generated text shows.
#
# The paper's Appendix A has the smallest example. One request, two drafts, two words. The target writes the word 0 with probability 0.7,
# the drafter with 0.5. A drafted 0 is always accepted, a drafted 1 in 0.6 of the cases, so the first draft survives with 0.8. The second
# survives with $0.8 \cdot 0.9$ **if the first word drawn was 0, and not at all if it was 1**. (The first factor stays 0.8 even after a
# 0, which is always accepted: the confidence at a position is computed before its word is drawn.) The cost table is SPS(1..3) = 1, 0.5,
# 0.45.

# %%
from dspark_lite.losslessness.toys import appendix_a
from dspark_lite.scheduling import global_optimum

target_a, drafter_a, table_a = appendix_a()
curves = {}
for first, second in ((0, 0.9), (1, 0.0)):
    alive = survival(torch.tensor([[0.8, second]]))
    curves[f"drafted word: {first}"] = throughput(alive, table_a)[1].tolist()
    print(f"drafted word: {first}  theta:", *(f"{value:.3f}" for value in curves[f"drafted word: {first}"]),
          f"  Algorithm 1 verifies {schedule(alive, table_a).item()}, the top is at {global_optimum(alive, table_a).item()}")

# %%
tempting = predict("A scheduler that takes the top: how often does the next word come out as 0? (The target's share is 0.7.)", ...)

# %% [markdown]
# We count exactly, over every outcome as in lesson 02, and by drawing answers.

# %%
from scipy.stats import binomtest

from dspark_lite.decoding import generate
from dspark_lite.losslessness import marginal, output_distribution
from dspark_lite.scheduling import algorithm1, retrospective

policies = {"all": None, "algorithm1": algorithm1(table_a), "retrospective": retrospective(table_a)}
exact = {name: marginal(output_distribution(target_a, drafter_a, policy, length=2), 1)[0] for name, policy in policies.items()}
draws, drawn = 600, {}
for name, policy in policies.items():
    generator = torch.Generator().manual_seed(1)
    zeros = sum(generate(target_a, drafter_a, torch.tensor([[0]]), max_new_tokens=4, temperature=1.0, policy=policy,
                         generator=generator).token_ids[1] == 0 for _ in range(draws))
    interval = binomtest(zeros, draws).proportion_ci(0.999)
    drawn[name] = zeros / draws, interval.low, interval.high
tempting.beside(f"{exact['retrospective']:.2f}", "exactly")
picture = figures.appendix(curves, exact, drawn)

# %% tags=["claim"]
claims({"Algorithm 1 leaves the target's share": abs(exact["algorithm1"] - 0.7) < 1e-6,
        "taking the top gives 0.85": abs(exact["retrospective"] - 0.85) < 1e-6,
        "both are seen in draws": drawn["retrospective"][1] > 0.7 and drawn["algorithm1"][1] < 0.7 < drawn["algorithm1"][2]})

# %% [markdown]
# On the left, $\theta$ with two drafts is known only once the word is drawn. **So the policy that takes the top looks at the drawn
# word.** After a drafted 0 the policy verifies both drafts, and the 0 stays. After a drafted 1 the policy verifies nothing, and the
# target writes the word itself: a 0 in 0.7 of the cases. In total $0.5 + 0.5 \cdot 0.7 = 0.85$, the line on the right. **The drawn word
# helped to decide whether it is checked.** Algorithm 1 never verifies a draft here, so its 0.70 proves little. Why is it right in
# general?
#
# > **A test at temperature 0 does not see this.** Greedy decoding puts all the target's mass on one word, so no choice of drafts
# > can change it: taking the top passes every comparison of greedy texts. An engine's tests need the exact distribution of a
# > small model, or very many draws.
#
# ### Exercise 3 · Why is Algorithm 1 allowed? (think)
# *10 minutes · hard · core.*
#
# Lesson 02 says: what decides about position $k$ must be known before token $k$ is drawn. With several requests: the decision must
# not depend on token $k$, nor on anything computed from it (it is [non-anticipating](../docs/glossary.md#non-anticipating)). Lesson 09
# says: the survival at position $k$ is computed from the tokens before $k$, never from token $k$. But Algorithm 1 sorts *all* survivals of
# the step. Why does it keep the rule all the same? Where does the argument need the order, and where the stop?
#
# <details><summary>Answer</summary>
#
# *Order*: survival never grows along a block, so the later positions of its block always stand behind token $k$. *Stop*: $\theta$
# behind token $k$'s place is never asked for.
#
# </details>
#
# <details><summary>The argument, on X and Y</summary>
#
# What has Algorithm 1 used when it admits Y1?
#
# - The cost table, which was fixed before anything was drawn.
# - Survivals of X. They belong to another request, which draws on its own, so they say nothing about the word Y1.
# - The survival of Y1 itself, which was computed before the word Y1 was drawn.
#
# Not used are the survivals of Y2 and Y3, the only ones computed from the word Y1. Whatever that word is, they are never above the
# survival of Y1, so they always stand behind it and cannot move its place; and the decision about Y1 falls before they are looked at.
# **So the word Y1 had no say in whether it is checked.** (It has a say about Y2, and may: it comes before Y2.) The same holds for every
# draft, so by lesson 02 the output keeps the target's distribution.
#
# </details>
#
# Taking the top breaks the argument. Y2 lowers $\theta$, so it gets in only if drafts behind it lift $\theta$ again. One of them is
# Y3, whose survival was computed from the word Y2. **Now the word Y2 helps to decide whether it is checked.**
#
# ## What the stop costs
#
# Sometimes nothing. A draft raises $\theta$ exactly if it brings more tokens per extra second than the step brings so far. Along the
# order, drafts survive less and less. **If each further token also lengthens the step by no less than the one before** (the time is
# *convex* in $B$), no draft can pay after one that did not: the stop is the only top. (The proof is beyond the core.)
#
# Tiles break that. The figure shows a smooth machine and the same machine with tiles of 16 tokens: on the left the time of a step; in
# the middle and on the right $\theta$ along the order on each machine, for one step of sixteen requests (recorded blocks of lesson 09).

# %% tags=["folded"]
# @title Two made-up machines, one recorded step on each, and the replay, given_up
from dspark_lite.course.replication.block_replay import (
    lengths_by,
    stored_steps,
    tokens_and_seconds,
    replayed_speed,
)

sizes = np.arange(1, 513)


def seconds(tokens):
    """A made-up machine: 10 ms while memory is the limit, growing with the batch above 96 tokens."""
    return 0.010 * np.sqrt(1 + (tokens / 96) ** 2)


def given_up(decides, pays, R):
    """What Algorithm 1 on the table `decides` loses of taking the top; R requests share a step, and steps last as `pays` says."""
    steps, accepted = stored_steps(R)
    ours, top = (replayed_speed(tokens_and_seconds(lengths_by(policy, steps), accepted, pays))
                 for policy in (algorithm1(decides), retrospective(pays)))
    return 1 - ours / top


tables = {"smooth": CostTable(sizes, 1 / seconds(sizes)), "tiles of 16": CostTable(sizes, 1 / seconds(16 * np.ceil(sizes / 16)))}
steps, _ = stored_steps(16)
alive = survival(steps[len(steps) // 2].confidence)
picture = figures.stairs(tables, tables["tiles of 16"].lower_hull(),
                         {name: throughput(alive, table)[1].tolist() for name, table in tables.items()})

# %% [markdown]
# On the smooth machine the stop is at the top, on tiles far below. Within a tile each token is free; the first token of a new tile
# must pay for all of it. At the first edge $\theta$ is low and the stair small, and one draft can pay. At the next edge $\theta$ is
# higher and the stair taller: a whole tile of drafts would pay, one draft cannot.
#
# A cheap cure: the argument above asks only that the table is fixed before anything is drawn, not that it is true. So **decide by
# one table and pay by another**. Stretch a string below the stairs (dotted): $\theta$ computed with this *convex view* has one top.
# (`lower_hull` in the code; the course's idea, not the paper's.)
#
# A **replay** (`given_up`) shows what is lost. It asks a policy for its lengths on recorded confidences, looks up how many of these
# drafts the target had accepted, and takes the step's time from the table that pays. The yardstick is taking the top, which is not
# lossless.

# %%
lost = {}  # given_up(decides, pays, R): Algorithm 1 decides by one table, steps last as the other says
for name, table in tables.items():
    for R in (4, 32):
        lost[name, R] = {"raw": given_up(table, table, R), "convex": given_up(table.lower_hull(), table, R)}
        print(f"{name:11} {R:2} requests: Algorithm 1 loses {lost[name, R]['raw']:6.1%} on the table itself, "
              f"{lost[name, R]['convex']:5.1%} on its convex view")
glue(lost_raw=100 * lost["tiles of 16", 32]["raw"], lost_convex=100 * max(values["convex"] for values in lost.values()))

# %% tags=["claim"]
claims({"on a smooth table the stop costs nothing": max(abs(lost["smooth", R]["raw"]) for R in (4, 32)) < 1e-6,
        "on tiles the stop costs more than a third among 32 requests": lost["tiles of 16", 32]["raw"] > 1 / 3,
        "almost nothing among four": lost["tiles of 16", 4]["raw"] < 0.01,
        "the convex view loses a few percent at most": max(values["convex"] for values in lost.values()) < 0.06})

# %% [markdown]
# On tiles the stop costs ⟦lost_raw:.0f⟧ % of the throughput among 32 requests, but almost nothing among four, whose steps meet
# only one edge. On the convex view at most ⟦lost_convex:.0f⟧ % is lost.
#
# ## What engines do: a budget from two steps ago
#
# There is a second way around the stop. Take the top, but **of survivals whose drafts are already judged**: their draws are over and
# can bias nothing. Keep one number, how many drafts this top verifies: the **[lagged](../docs/glossary.md#lag) budget**. It is fixed before
# any word of the new step is drawn, like the cost table.
#
# Engines need old confidences anyway: the host (the CPU) prepares step t while the GPU still runs step t - 1, and the newest confidences
# it has are those of step t - 2. So the paper's production system decides **how many** by the confidences of two steps ago, and
# **which ones** by the current confidences.

# %%
picture = figures.lag_timeline()

# %% [markdown]
# Step t's own drafts fill the budget. [SGLang](../docs/references.md#sglang) and [vLLM](../docs/references.md#vllm) both take a lagged
# budget; neither has Algorithm 1's stop.
#
# ### Exercise 4 · A lagged budget (code)
# *10 minutes · easy · core.*
#
# `global_optimum(survival, cost_table)` takes the top: it gives the lengths [R] with the highest $\theta$.
# `top_k(survival, budget)` hands a budget of drafts to the highest survivals.

# %%
from dspark_lite.scheduling import top_k


# %% tags=["exercise"]
def lagged_lengths(old, current, cost_table):
    """Verification lengths [R] of this step from survivals [R, gamma] two steps old and from those of now."""
    return ...


done = exercises.check_lagged(lagged_lengths)


# %% tags=["solution"]
def lagged_lengths(old, current, cost_table):
    """Verification lengths [R] of this step from survivals [R, gamma] two steps old and from those of now."""
    return top_k(current, global_optimum(old, cost_table).sum())


done = exercises.check_lagged(lagged_lengths)

# %% [markdown]
# Handing out by the *current* survivals is safe by the order of exercise 3: a drafted word cannot move its own place. A stop is not
# needed, because no draw of this step touches the budget.
#
# ## What it brings
#
# The recorded blocks are replayed on three cost tables (smooth, tiles, and one measured with the tiny target) under three
# policies: the threshold of 0.5, Algorithm 1 on the convex view, and the lagged budget. **The tables price verification alone**, no
# drafting and no request.

# %% tags=["folded"]
# @title The replay: three cost tables, three policies, 1 to 32 requests
from dspark_lite.course.estimates import bootstrap
from dspark_lite.course.replication import confidence_results
from dspark_lite.scheduling import LAG, LaggedTopK, threshold

priced = {**{f"made up: {name}": tables[name] for name in ("smooth", "tiles of 16")},
          f"verification alone, measured: tiny target, {confidence_results.steps()['device'].split(',')[0]}": confidence_results.stored_cost_table()}
gains = {}
for name, table in priced.items():
    policies = {"threshold": threshold(0.5), "convex": algorithm1(table.lower_hull()), "lagged": LaggedTopK(table)}
    for R in (1, 4, 16, 32):
        steps, accepted = stored_steps(R)
        whole = tokens_and_seconds(torch.full_like(accepted, steps[0].tokens.shape[1]), accepted, table)
        for policy, choose in policies.items():
            pair = np.concatenate([tokens_and_seconds(lengths_by(choose, steps), accepted, table), whole], 1)
            gains.setdefault(name, {}).setdefault(policy, {})[R] = bootstrap(
                lambda groups: replayed_speed(groups[0][..., :2]) / replayed_speed(groups[0][..., 2:]), [pair])
picture = figures.ratios(gains)
smooth = gains["made up: smooth"]
glue(gain_full=100 * (smooth["convex"][32].value - 1), threshold_full=100 * (smooth["threshold"][32].value - 1))

# %% tags=["claim"]
_, tiled, measured = gains.values()
claims({"on the tiny target the lagged budget is ahead of the convex view among 32": measured["lagged"][32].low > measured["convex"][32].high,
        "on tiles, too": tiled["lagged"][32].low > tiled["convex"][32].value,
        "with one and with four requests all policies lie close to whole blocks":
            max(abs(values[R].value - 1) for by_policy in gains.values() for values in by_policy.values() for R in (1, 4)) < 0.02,
        "among 32 requests every policy gains": min(values[32].value for by_policy in gains.values() for values in by_policy.values()) > 1,
        "Algorithm 1 is ahead of the threshold on the smooth machine": smooth["convex"][32].low > smooth["threshold"][32].value})

# %% [markdown]
# **With few requests, verify everything; with many, choose.** With one request or four, all policies lie close to whole blocks. Among
# 32 all gain, on the smooth machine ⟦gain_full:.0f⟧ % with Algorithm 1 and ⟦threshold_full:.0f⟧ % with the threshold, which knows no
# load. On tiles and on the measured table the lagged budget leads among 32: it can fill a tile to its edge, while Algorithm 1 on the
# convex view may stop inside a tile already paid. On this CPU's whole server, where drafting and requests cost much, lesson 11 measures no
# gain.
#
# | your cost table | take |
# |---|---|
# | smooth | Algorithm 1 as it is |
# | stairs: tiles, padded sizes | a lagged budget if the engine prepares steps ahead, else Algorithm 1 on the convex view |
#
# > **How sure are we?** One training. The bars (95 %) take steps as independent; blocks of one prompt resemble each other, so the true
# > intervals are wider. On the measured table part of the lagged budget's lead may be luck: it picks sizes that were measured as fast, and pays by the
# > same measurements.
#
# ## Recap
# - $\theta = \tau \cdot \text{SPS}(B)$ weighs what drafts bring against what their places in the batch cost.
# - Algorithm 1 admits drafts by survival and stops at the first that does not raise $\theta$. Further on, drawn tokens would decide
#   whether they are checked, and no greedy test sees it.
# - Where the time of a step is convex, the stop costs nothing. On stairs decide on the convex view, or by a lagged budget.
# - Alone, no policy beats whole blocks. The more of a step's time goes into verifying, and the fuller the machine, the more a scheduler
#   is worth.
#
# **Next**: [lesson 11](11_serving_under_load.ipynb) puts the scheduler into a server.
#
# ## Beyond the core
#
# The lesson is complete without what follows.
#
# ### ★ Why the stop is the only top on a convex table
#
# Write $T = 1/\text{SPS}(B)$ for the time of a step, so $\theta = \tau / T$. The next draft has survival $s$ and lengthens the step by
# $\Delta$. It makes $\theta$ into $(\tau + s)/(T + \Delta)$, a weighted average of $\tau/T$ and $s/\Delta$. So it raises $\theta$
# exactly if $s / \Delta > \theta$: it must bring more tokens per extra second than the step brings so far.
#
# Along the order $s$ never grows. If $\Delta$ never shrinks, $s / \Delta$ never grows. Now a draft fails: its $s / \Delta$ is at most
# $\theta$. Suppose that it goes in all the same. The new $\theta$ is an average of the old $\theta$ and this $s / \Delta$, so it is
# still at least this $s / \Delta$. The next draft's $s / \Delta$ is no higher, so it is at most the new $\theta$: the next draft fails
# as well, and so on to the end of the order.
#
# ### ★ The cost table of your machine
#
# The target of this course on your machine. Run the cell twice: a jag that moves is chance. On a noisy table let Algorithm 1 decide
# by the convex view: on the table itself, one size that was slow by chance can stop it. A lagged budget may chase the noise.

# %%
import dspark_lite
from dspark_lite.course.measure.step_time import profile

lab = dspark_lite.setup()
here, spent = profile(lab.target, [*range(1, 25), 32, 40, 48, 56, 64], repeats=5)
picture = figures.steps_per_second(here, spent, lab.device_name)

# %% [markdown]
# ### ★ Does mixed traffic gain most?
#
# Math and code are accepted far into a block, chat is not. One length for all cannot suit all three, so a scheduler should gain most where
# they share a step. We test this: 24 requests of one domain share a step, or eight of each, on the smooth machine. Algorithm 1 is compared
# with whole blocks, and with the best single length for *this* traffic, the harder rival.

# %%
from dspark_lite.course.names import DOMAINS

mixed = {}  # {traffic: Algorithm 1's gain over whole blocks, over the best single length}
for name, domains in {**{domain: (domain,) for domain in DOMAINS}, "all three": DOMAINS}.items():
    steps, accepted = stored_steps(24, domains=domains)
    table, whole = tables["smooth"], steps[0].tokens.shape[1]
    chosen = tokens_and_seconds(lengths_by(algorithm1(table), steps), accepted, table)
    single = [tokens_and_seconds(torch.full_like(accepted, length), accepted, table) for length in range(whole + 1)]
    best_single = int(np.argmax([replayed_speed(rows) for rows in single]))
    mixed[name] = [bootstrap(lambda groups: replayed_speed(groups[0][..., :2]) / replayed_speed(groups[0][..., 2:]) - 1,
                             [np.concatenate([chosen, rows], 1)]) for rows in (single[whole], single[best_single])]
    over_whole, over_single = (f"{gain.value:+.1%} [{gain.low:+.1%}, {gain.high:+.1%}]" for gain in mixed[name])
    print(f"{name:9}   over whole blocks {over_whole}   over {best_single} drafts for everybody {over_single}")
glue(mixed_gain=100 * mixed["all three"][1].value, chat_gain=100 * mixed["chat"][1].value)

# %% tags=["claim"]
claims({"over the best single length mixed traffic gains more than each domain": all(
            mixed["all three"][1].value > mixed[domain][1].value for domain in DOMAINS),
        "than code and chat clearly": mixed["all three"][1].low > max(mixed[domain][1].high for domain in ("code", "chat")),
        "over whole blocks chat gains at least as much": mixed["chat"][0].value > mixed["all three"][0].value,
        "one domain by itself is left with little": 0 < mixed["chat"][1].value < 0.05})

# %% [markdown]
# It holds against the harder rival. Chat alone is served nearly as well by one short length for all, so Algorithm 1 adds only
# ⟦chat_gain:.0f⟧ %; mixed traffic has no such length, and it adds ⟦mixed_gain:.0f⟧ % (to math nearly as much: its blocks differ among
# themselves). Over whole blocks chat gains most, because whole blocks suit it least. So part of what a scheduler gains is won by a single
# number, chosen for the traffic. (One training, one made-up machine; the intervals take steps as independent.)
#
# ### ★ A table with gaps
#
# A table measured at few sizes has stairs on any machine, because a size between two measured ones gets the speed of the smaller
# one. Here the smooth machine pays, and the table knows every 16th size. The cure is the same.

# %%
coarse = np.array([1, *range(16, 513, 16)])
tables["coarse table"] = CostTable(coarse, 1 / seconds(coarse))
gaps = {}
for R in (4, 32):
    gaps[R] = [given_up(table, tables["smooth"], R) for table in (tables["coarse table"], tables["coarse table"].lower_hull())]
    print(f"coarse table {R:2} requests: Algorithm 1 loses {gaps[R][0]:6.1%} on the table itself, {gaps[R][1]:5.1%} on its convex view")

# %% tags=["claim"]
claims({"gaps are stairs": gaps[32][0] > 1 / 3, "the convex view mends them": gaps[32][1] < 0.01})

# %% [markdown]
# ### ★ A machine that searches for faults
#
# One example could be an accident. `find_violation` makes up small cases (a target, a drafter with confidences, a jagged cost
# table), computes every output distribution exactly, and returns the first case in which a policy has changed one. First
# Algorithm 1. (All cases have one request.)

# %% tags=["folded"]
# @title Refute a policy
from dspark_lite.losslessness import find_violation


def try_to_refute(name, policy_of):
    """Says what the search finds against a policy, made from a cost table."""
    found = find_violation(policy_of, cases=60)
    print(f"{name:15}", "no fault found" if found is None else f"case {found.number} is off by a total variation of {found.distance:.3f}")


def policy_from(lengths_of):
    """Policies for the package from a scheduler of the form of exercise 2."""
    return lambda table: lambda proposal: torch.tensor(
        lengths_of(survival(proposal.confidence), lambda batch: table.sps(len(proposal.tokens), batch)))


try_to_refute("Algorithm 1", policy_from(scheduler))

# %% [markdown]
# **Now break it.** Here is the algorithm without its stop: it goes on to the end and takes the top. Change it as you like, and try
# again.

# %%
def without_a_stop(survivals, sps):
    """The lengths with the highest theta along the whole order."""
    lengths, expected, batch = [0] * len(survivals), float(len(survivals)), len(survivals)
    best, kept = expected * sps(batch), list(lengths)
    for minus_chance, _, request in sorted((-chance, k, r) for r, row in enumerate(survivals.tolist()) for k, chance in enumerate(row)):
        expected, batch, lengths[request] = expected - minus_chance, batch + 1, lengths[request] + 1
        if expected * sps(batch) > best:
            best, kept = expected * sps(batch), list(lengths)
    return kept


try_to_refute("without a stop", policy_from(without_a_stop))

# %% [markdown]
# ### ★ Why handing out is lossless
#
# A token gets a seat if fewer than `budget` survivals are ahead of it, and none of those was computed from it. At a lag of 0 the
# argument is gone: the step's own draws would set the budget.
#
# ### ★ The scheduler board
#
# Outlined is what the policy admits of one recorded step; below is $\theta$ along the order. Begin with Algorithm 1 on the smooth
# table and add requests: which share of the drafts goes in with 4, 24, 64? Then take the tiles. Then let the lagged policy choose,
# and step through the record.

# %% tags=["folded"]
# @title The scheduler board
from dspark_lite.course.figures import style, web, widgets
from dspark_lite.scheduling import fixed

gamma = stored_steps(1, most=1)[0][0].tokens.shape[1]
choices = {"algorithm1": algorithm1, "convex": lambda table: algorithm1(table.lower_hull()), "lagged": LaggedTopK,
           "retrospective": retrospective, "threshold": lambda table: threshold(0.5), "all": lambda table: fixed(gamma)}
records = {}


def draw_board(requests, table, policy, step):
    """The board of one recorded step."""
    records.setdefault(requests, stored_steps(requests, most=64)[0])
    return figures.board(records[requests], min(step, len(records[requests]) - 1), policy, choices[policy](tables[table]), tables[table],
                         f"requests: {requests}; {table}; {style.policy_style(policy)['label']}")


panel = widgets.explore(
    draw_board, {"table": "tiles of 16"}, {"table": "tiles of 16", "policy": "lagged"},
    requests=widgets.slider("requests", 24, 1, 64), table=widgets.menu("cost table", list(tables)),
    policy=widgets.menu("policy", [(style.policy_style(name)["label"], name) for name in choices]),
    step=widgets.slider("step of the record", 20, LAG, 60), web=("board", lambda: web.board_steps(tables)))

# %% [markdown]
# ### Exercise 5 · A policy of your own (open)
# *40 minutes · hard · optional.*
#
# Write a policy (a function of a proposal that returns lengths [R]) that you expect to beat Algorithm 1 on the convex view, on tiles
# of 16 with 16 requests. Say first why it is lossless. Choose among your ideas by the even steps of `stored_steps(16)`, and report
# the odd ones. Then let `find_violation` try to refute you: it has one request, tables of its own, and three tokens at most, so make
# the tile that your policy rounds to an argument and try 2, 3 and 5. A search that finds nothing is no proof.
#
# <details><summary>Two ideas, one of them lossy</summary>
#
# Round the batch that Algorithm 1 chooses on the convex view *up* to the end of its tile: whether a tile is taken is known at its
# first token, so this is lossless. Round to the *nearest* end, and survivals in the middle of a tile decide about the tokens before
# them: lossy. The search may miss the fault, since with batches of three tokens at most the policy hardly ever rounds down.
#
# </details>
