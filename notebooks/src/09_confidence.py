# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=70 difficulty="medium"
# # 09 · Confidence
#
# **After this lesson you can**
# - compute how likely each prefix of a block is to survive, before the target has read it
# - tell a forecast that ranks well from one whose numbers are true, and say how much of an error is chance
# - mend a head that is too sure, with one temperature per position
# - say what a confidence threshold saves, and what it cannot know
#
# **What you need**: lesson 02 (the accept rule), lesson 05 (the sequential head).
#
# **Sources**: the [DSpark paper](../docs/references.md#dspark), section 3.2.1 with equations 7 and 8, Figures 5 and 6; ECE from
# [Naeini and others](../docs/references.md#naeini), temperature scaling from [Guo and others](../docs/references.md#guo).
# [Notation](../docs/notation.md) · [glossary](../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import numpy as np
import torch
import torch.nn.functional as F

import dspark_lite
from dspark_lite.course.bets import bet, show_score
from dspark_lite.course.exercises import lesson_09 as exercises
from dspark_lite.course.own_decoder.keep import keep
from dspark_lite.course.figures import lesson_09 as figures
from dspark_lite.course.figures.living_round import living_round
from dspark_lite.course.lesson_text import claims, glue
from dspark_lite.course.measure.recorded_rounds import record_rounds

torch.set_grad_enabled(False)
lab = dspark_lite.setup()
target, dspark = lab.target, lab.drafter("dspark")
gamma, domains = dspark.gamma, list(lab.prompts)

# %% [markdown]
# ## A forecaster who is always right and never useful
#
# In a town where it rains on three days out of ten, somebody says every morning: thirty percent. Over a year that is exactly
# true, and nobody takes an umbrella by it. A good forecast does two things. It **ranks**: more rain on the days with the higher
# number. And its **numbers are true**: of all days with 80 percent, eight in ten are wet.
#
# DSpark has a forecaster. Verifying a token that is then refused wastes a place in the target's pass, so a very small third part, the
# confidence head, says of each slot how likely the target is to keep a token drawn there, before the target has seen the block. This
# lesson asks of the head what we ask of the weather.
#
# ## What the head reads
#
# $$c_k = \sigma\big(w^\top [\,h_k\,;\,W_1[x_{k-1}]\,] + b\big)$$
#
# $h_k$ is the hidden state of slot $k$. $W_1[x_{k-1}]$ is the row that the sequential head looked up for the token **before**
# (lesson 05), and $b$ is a number that the code adds (the paper's equation 7 has none). All are there when the block has been drawn, so
# the forecast costs one product.
#
# Here $x_0$ is the anchor. $c_k$, the [confidence](../docs/glossary.md#confidence), is the head's forecast of the chance that the target
# keeps a token drawn at slot $k$, whichever token that is, *if all before it survive*. Its forecast of the
# [survival](../docs/glossary.md#survival) of the prefix up to $k$ is the product: $a_k = c_1 c_2 \cdots c_k$.
#
# Keep four things apart:
#
# | what | symbol | known |
# |---|---|---|
# | the true chance of a slot, over all tokens that may be drawn there | $1 - \text{TV}(p, q)$ | once the target has read the block (given the tokens before the slot) |
# | the head's forecast of that chance | $c_k$ | once the token before is drawn |
# | the head's forecast for a prefix | $a_k$ | at the same time |
# | the outcome: was the draft kept? | yes or no | after the accept rule |
#
# Here are forecasts for blocks of one answer, each beside what then became of its drafts:

# %%
picture = living_round("forecast", record_rounds(lab, dspark, lab.prompts["chat"][0]))

# %% [markdown]
# ### Exercise 1 · Survival (code)
# *10 minutes · easy · core. If you do only one, do this.*
#
# `draft.w` holds the tensors of the checkpoint by name: `"markov_head.markov_w1.weight"` [V, r], `"confidence_head.proj.weight"`
# [1, H + r] and `"confidence_head.proj.bias"` [1]. You keep this function.
#
# <details><summary>Hint</summary>
#
# The tokens before the slots: the anchor, then every draft but the last. Concatenate along the last dimension, hidden state first.
#
# </details>


# %% tags=["exercise"]
def survival(draft, hidden, anchor, drafts):
    """The chance [g] that the block survives up to each position, from hidden [g, H], the anchor and the drafts, a list [g]."""
    ...


done = exercises.check_survival(survival) and keep(survival)


# %% tags=["solution"]
def survival(draft, hidden, anchor, drafts):
    """The chance [g] that the block survives up to each position: the product of the confidences."""
    before = draft.w["markov_head.markov_w1.weight"][[anchor, *drafts[:-1]]]
    inputs = torch.cat([hidden, before], -1)
    logits = F.linear(inputs, draft.w["confidence_head.proj.weight"], draft.w["confidence_head.proj.bias"])[:, 0]
    return torch.sigmoid(logits).cumprod(0)


done = exercises.check_survival(survival) and keep(survival)

# %% [markdown]
# One block of the drafter:

# %% tags=["folded"]
# @title Draft one block, and let the target read it
from dspark_lite.decoding.sampling import accept, draw, probabilities


def first_block(text, seed):
    """The first block after a prompt: anchor [1], hidden [1, g, H], proposal, target's probabilities [1, g+1, V]."""
    ids, generator = lab.encode(text), lab.generator(seed)
    step, cache = target.prefill(ids, dspark.taps)
    anchor = draw(probabilities(step.logits[:, -1], 1.0), generator)
    state = dspark.begin(ids, step.features)
    proposal = dspark.propose(state, anchor, temperature=1.0, generator=generator)
    verified = target.verify(torch.cat([anchor[:, None], proposal.tokens], 1), cache)
    return anchor, dspark.block_hidden(state, anchor), proposal, probabilities(verified.logits, 1.0)


anchor, hidden, proposal, target_probs = first_block(lab.prompts["chat"][0], seed=0)

# %% [markdown]
# Each bar is the true chance that the target keeps a token drawn at this slot, averaged over all the tokens that the drafter might have
# drawn: $1 - \text{TV}(p, q)$ (lesson 02). The head was trained to say just that (equation 8). The diamonds are what the head said. A
# diamond high above its bar was too sure, but one block does not condemn the head: its numbers have to be right on average. The slots
# behind the refusal have bars too: their drafts are thrown away, but each had a chance, given the tokens before it.

# %%
label = 1 - (target_probs[:, :-1] - proposal.probs).abs().sum(-1) / 2  # [1, g]
accepted = accept(target_probs, proposal.probs, proposal.tokens, None, lab.generator(1)).accepted.item()
texts = [lab.tokenizer.decode([token]) for token in proposal.tokens[0].tolist()]
picture = figures.block(texts, proposal.confidence[0].tolist(), label[0].tolist(), accepted)

# %% [markdown]
# Your function on the same block must say what the package says:

# %% tags=["folded"]
# @title Your function beside the package's
from types import SimpleNamespace

heads = ("markov_head", "confidence_head")
weights = SimpleNamespace(w={name: tensor.float().cpu() for name, tensor in dspark.state_dict().items() if name.startswith(heads)})
ours = (survival if done else exercises.survival)(weights, hidden[0].float().cpu(), anchor.item(), proposal.tokens[0].tolist())
print("survival:", " ".join(f"{chance:.2f}" for chance in ours.tolist()))
assert torch.allclose(ours, proposal.confidence[0].cumprod(0).cpu(), atol=2e-2)

# %%
moves = bet("09 another token at position 3")

# %% tags=["answer"]
other = proposal.tokens.clone()
other[0, 2] = (other[0, 2] + 1) % target.vocab_size
moved = dspark.confidence_logits(hidden, dspark.previous(anchor, other)).float().sigmoid() - proposal.confidence
which = [place for place, by in enumerate(moved[0].abs().tolist(), 1) if by > 1e-3]
moves.settle({(3,): "c_3 alone", (4,): "c_4 alone"}.get(tuple(which), "c_3 and all after it" if 3 in which else "c_4 and all after it"),
             f"c_1 to c_{gamma} moved by " + " ".join(f"{by:+.3f}" for by in moved[0].tolist()))

# %% tags=["claim"]
claims({"only the confidence after the changed token moves": moved[0].abs().argmax().item() == 3
        and torch.cat([moved[0, :3], moved[0, 4:]]).abs().max() < 1e-3})

# %% [markdown]
# Why does it matter which tokens a confidence reads? To cut a block at place $k$ means to send only the drafts
# before $k$; the target then draws the token at $k$ itself. Suppose drafter and target both say "the" or "a" with one half each, and we
# cut whenever the draft is "a". Half of the time the draft is "the", and is kept. Half of the time we cut, and the target draws again:
# "a" comes out in one quarter of all cases, where it should be one half. So a cut at $k$ may depend on the tokens before $k$, never on
# token $k$. $c_1, \dots, c_k$ obey this, and cutting stays lossless.
#
# ## Survival falls faster than confidence
#
# From here on we use recorded blocks, thousands of each domain, from prompts that the drafter has not seen. Intervals in the figures are
# bootstrap intervals over whole prompts, because blocks of one prompt resemble each other.

# %%
from scipy.special import expit, logit

from dspark_lite.course.measure.confidence import pooled
from dspark_lite.course.replication import confidence_results
from dspark_lite.scheduling import calibration

recorded = confidence_results.observations()
run = confidence_results.calibration_run()
picture = figures.decay(recorded, f"{run['device']}, {run['target']}")

# %% [markdown]
# How likely does a **whole** block survive? One can multiply the mean confidences of the positions (the grey line), or multiply within
# each block and average the products. First a toy of two kinds of blocks, then the recorded ones.

# %%
whole_block = bet("09 whole block")

# %% tags=["answer"]
toy = np.repeat([[0.99], [0.7]], gamma, 1)  # two kinds of blocks, equally often: one nearly sure all along, one doubtful
print(f"toy   whole block survives: {toy.prod(1).mean():.2f} truly, {toy.prod(1).mean():.2f} mean of the products, "
      f"{toy.mean(0).prod():.2f} product of the means")
for domain, blocks in recorded.items():
    chances = expit(blocks.logits)
    print(f"{domain:5} whole block survives: {(blocks.accepted == gamma).mean():.2f} observed, "
          f"{chances.cumprod(1)[:, -1].mean():.2f} mean of the products, {chances.mean(0).prod():.2f} product of the means")
offers = {"about 0.3": 0.3, "about 0.5": 0.5, "about 0.85": 0.85}
whole_block.settle(min(offers, key=lambda text: abs(toy.prod(1).mean() - offers[text])),
                   f"{toy.prod(1).mean():.2f}, the mean of {toy[0].prod():.2f} and {toy[1].prod():.2f}; the product of the means is {toy.mean(0).prod():.2f}")

# %% tags=["claim"]
claims({"the mean of the products is larger, in every domain": all(
    expit(blocks.logits).mean(0).prod() < expit(blocks.logits).cumprod(1)[:, -1].mean() for blocks in recorded.values()),
        "on chat the head promises more than comes, and the product of the means lands between": (recorded["chat"].accepted == gamma).mean()
            < expit(recorded["chat"].logits).mean(0).prod() < expit(recorded["chat"].logits).cumprod(1)[:, -1].mean()})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# In the toy (first line) the forecasts are true, half of the blocks are nearly sure all along, and these make up nearly all that survive
# whole. The product of the means treats the positions as if they were unrelated, and falls far short.
#
# </details>
#
# On real blocks the gap between the
# two ways is small, a few points, and it does not decide which lands nearer: the head's own errors are as large. So it is the toy that
# tells: multiply within a block, and average afterwards.
#
# ## Is it true?
#
# In use nobody computes $1 - \text{TV}(p, q)$: a draft is kept or refused, once, and one block cannot tell whether 0.8 was true. So put
# blocks with about the same forecast into a bin, and compare the mean forecast with the share that survived. Here is the survival of
# the first three drafts, all domains together.

# %%
together = pooled(recorded)
said, true = calibration.survivals(together.logits)[:, 2], calibration.survived(together.accepted, gamma)[:, 2]
curve = [point for point in calibration.reliability(said, true) if point]
picture = figures.gaps(curve, drafts=3)

# %% [markdown]
# ### Exercise 2 · One number for the curve (code)
# *10 minutes · easy · core.*
#
# The *expected calibration error* ([ECE](../docs/glossary.md#ece)) averages |mean forecast − share that survived| over the bins, each bin
# weighted by its number of blocks. Return the ECE from these three, arrays [m].
#
# <details><summary>Hint</summary>
#
# A gap counts without its sign, and a bin of 500 blocks counts 500 times.
#
# </details>


# %% tags=["exercise"]
def calibration_error(predicted, observed, count):
    """ECE of bins, arrays [m] each; a number from 0 to 1."""
    ...


done = exercises.check_ece(calibration_error)


# %% tags=["solution"]
def calibration_error(predicted, observed, count):
    """ECE of bins, arrays [m] each; a number from 0 to 1."""
    return np.sum(count * np.abs(predicted - observed)) / np.sum(count)


done = exercises.check_ece(calibration_error)

# %% [markdown]
# ECE asks only whether numbers are true. Two more measures: **[AUC](../docs/glossary.md#auc)**: draw one block that survived and one that
# fell; AUC is the chance that the first had the higher forecast, a tie counting as half (does it rank?).
# **[Brier](../docs/glossary.md#brier)** is the mean squared difference between forecast and outcome (both at once; lower is better). Four
# forecasters:

# %%
error_of = calibration_error if done else exercises.calibration_error  # yours once it is right
assert np.isclose(error_of(*np.array(curve).T), calibration.ece(said, true))
forecasts = {"the head": said, "always the mean": np.full_like(said, true.mean()),
             "the head, logits doubled": calibration.survivals(2 * together.logits)[:, 2],
             "the head, shuffled": np.random.default_rng(0).permutation(said)}
scores = {name: (calibration.ece(forecast, true), calibration.auc(forecast, true), calibration.brier(forecast, true))
          for name, forecast in forecasts.items()}
for name, (error, auc, brier) in scores.items():
    print(f"{name:26} ECE {error:6.1%}   AUC {auc:.2f}   Brier {brier:.2f}")
floor = calibration.ece_floor(said)  # mean ECE of outcomes drawn as forecast

# %% tags=["claim"]
claims({"always the mean has the lowest ECE and an AUC of one half": min(scores, key=lambda name: scores[name][0]) == "always the mean"
        and scores["always the mean"][1] == 0.5,
        "the head has the best Brier score": min(scores, key=lambda name: scores[name][2]) == "the head",
        "doubled logits rank nearly as well": scores["the head, logits doubled"][1] > scores["the head"][1] - 0.03,
        "the head's error is real, and small": floor < scores["the head"][0] < 0.03})

# %% [markdown]
# There is the town's forecaster: *always the mean*, taken from these very blocks, has the best ECE, and knows nothing. Doubled logits
# rank nearly as well as the head and are far too sure. (Only nearly: at one position doubling keeps the order, but products over several
# positions can change places. So the paper's word for scaling, "order-preserving", holds position by position.) **Ranking needs training;
# true numbers can be had afterwards.**
#
# What ECE would a perfect forecaster have? Pretend that the forecasts of a thousand of our blocks are exactly true, draw outcomes from them
# many times, and take the mean ECE.

# %%
perfect = bet("09 perfect forecaster")

# %% tags=["answer"]
thousand = calibration.ece_floor(np.random.default_rng(0).permutation(said)[:1000])
offers = {"0 %": 0.0, "about 0.3 %": 0.003, "about 3 %": 0.03, "about 10 %": 0.1}
perfect.settle(min(offers, key=lambda text: abs(np.log((thousand + 1e-6) / (offers[text] + 1e-6)))),
               f"{thousand:.1%} on a thousand blocks, {floor:.1%} on all {len(said):,}")
glue(error_all=100 * scores["the head"][0], floor_all=100 * floor)

# %% [markdown]
# That mean is the *floor* of the ECE. Always read an ECE next to its floor, and compare only samples of similar size.
#
# <details><summary>After your bet</summary>
#
# Outcomes are drawn, so even a perfect forecast has an ECE above zero. On all blocks our head's ECE is ⟦error_all:.1f⟧ % against a floor of
# ⟦floor_all:.1f⟧ %: the error is real, and small.
#
# </details>
#
# ## A head that is really wrong
#
# Ours (one training) has little to mend. The paper's had much: on the questions of Alpaca the confidence head of Qwen3-4B's draft is too
# sure at every position shown (Figure 6, whose bins we read off its vector graphic). Position 1 first, where survival is a single sigmoid:
# what happens if its logit is divided by a temperature, $c = \sigma(z / T)$?

# %%
from dspark_lite.course import paper

theirs = paper.calibration(1)["before"]
promised, came, blocks = (theirs[name] for name in ("predicted", "observed", "count"))


def scaled(temperature):
    """The paper's forecasts [m] at position 1, their logits divided by a temperature."""
    return expit(logit(promised) / temperature)


grid = np.geomspace(0.5, 4, 43)
search = [error_of(scaled(T), came, blocks) for T in grid]
best = grid[int(np.argmin(search))]
errors = {"as trained": error_of(promised, came, blocks), f"T = {best:.2f}": min(search)}
picture = figures.one_temperature({"as trained": list(zip(promised, came, blocks)), f"T = {best:.2f}": list(zip(scaled(best), came, blocks))},
                                  errors, calibration.ece_floor(np.repeat(promised, blocks), draws=10), (grid, search))
glue(paper_before=100 * errors["as trained"], paper_after=100 * min(search), paper_T=best)

# %% tags=["claim"]
claims({"one temperature takes away more than half of the paper's error at position 1": min(search) < errors["as trained"] / 2})

# %% [markdown]
# One number, ⟦paper_T:.1f⟧, takes the error from ⟦paper_before:.1f⟧ to ⟦paper_after:.1f⟧ %. A temperature above 1 pulls every forecast
# towards one half: those above it come down, those below it move up. In the left panel most of the low ones were too high already, so
# they get worse. So one number does not bring the error down to its floor. (We scale the means of the paper's bins, the paper scaled
# single forecasts; so its own ECE after scaling differs a little.)
#
# Position 3 is a product of three confidences, and errors multiply. So the paper fits the temperatures **one after the other**
# (sequential temperature scaling, [STS](../docs/glossary.md#sts)): first the $T_1$ with the least ECE of $\sigma(z_1/T_1)$; with it fixed,
# the $T_2$ with the least ECE of $\sigma(z_1/T_1)\,\sigma(z_2/T_2)$; and so on.
#
# ### Exercise 3 · Position by position (code)
# *20 minutes · medium · core.*
#
# Return the temperatures, a list of g values from `grid`. `outcome[:, k]` is true where the first k + 1 drafts **all** survived. Arrays
# are NumPy. `error(predicted, survived)` returns the ECE of two arrays [N].
#
# <details><summary>Hint</summary>
#
# Keep `alive` [N], the survival of the positions before. What is it before position 1?
#
# </details>


# %% tags=["exercise"]
def sequential(logits, outcome, grid, error):
    """Temperatures [g] for logits [N, g] and outcomes [N, g]; each is one of `grid`."""
    ...


done = exercises.check_sequential(sequential)


# %% tags=["solution"]
def sequential(logits, outcome, grid, error):
    """Temperatures [g] for logits [N, g] and outcomes [N, g]; each is one of `grid`."""
    alive, temperatures = np.ones(len(logits)), []
    for z, true in zip(logits.T, outcome.T):
        tried = [alive * expit(z / temperature) for temperature in grid]
        best = int(np.argmin([error(forecast, true) for forecast in tried]))
        temperatures.append(grid[best])
        alive = tried[best]
    return temperatures


done = exercises.check_sequential(sequential)

# %% [markdown]
# Does the fit find an error that we know? We double all logits of our own head, fit on half of the prompts, and judge on the other
# half: a fit that is judged on its own data is praised for chance as well.

# %%
fit = sequential if done else exercises.sequential  # yours once it is right
halves = together.prompts % 2 == 1
outcome = calibration.survived(together.accepted, gamma)
temperatures = fit(2 * together.logits[halves], outcome[halves], calibration.GRID.tolist(), calibration.ece)
before, after = (np.mean(calibration.by_position(2 * together.logits[~halves], together.accepted[~halves], chosen)["ece"])
                 for chosen in (None, temperatures))
print("temperatures:", " ".join(f"{T:.1f}" for T in temperatures))
print(f"mean ECE over the {gamma} positions, on the other half: {before:.1%} -> {after:.1%}")
glue(doubled_before=100 * before, doubled_after=100 * after)

# %% tags=["claim"]
claims({"the fit finds temperatures around 2 and takes away more than half of the error":
        1.5 < np.median(temperatures) < 2.7 and after < before / 2})

# %% [markdown]
# It does, nearly: most temperatures lie near the 2 that undoes the doubling. They need not equal it: our head had a small error of its
# own, and each fit also makes up for what the earlier ones left. The error falls from ⟦doubled_before:.1f⟧ to ⟦doubled_after:.1f⟧ %.
# Whether such an error costs speed depends on who uses the numbers; exercise 4 asks.
#
# ## A threshold, and what it cannot know
#
# The simplest use: cut the block at the first $c_k$ below a threshold. The draft at that place and all after it are not sent. The
# confidences are first taken as the head gives them ("raw"; whether the paper's Figure 5 does so, it does not say). In a running notebook a
# control switches to calibrated confidences. Each draft that is sent takes a place in the target's pass and makes the pass
# longer; by how much depends on the load. Left, what a round commits (accepted drafts and the target's own token) and what it
# [wastes](../docs/glossary.md#waste) (sent drafts that are not kept). Both together are the places that the round takes in the pass: one
# for each draft sent, and the anchor's, which pays for the target's own token. Right, the time of verification per committed token.

# %% tags=["folded"]
# @title The explorer of thresholds
from ipywidgets import ToggleButtons

from dspark_lite.course.figures import widgets

sts, table = confidence_results.stored_sts(), confidence_results.stored_cost_table()
most_requests = table.max_batch_tokens // (gamma + 1)


def explore_threshold(domain, scaling, least, requests):
    """Recorded blocks of a domain cut at `least`, on raw or calibrated confidences: accepted, wasted, cost per token."""
    confidence = expit(recorded[domain].logits / (sts.temperatures if scaling == "calibrated" else 1.0))
    return figures.threshold_explorer(recorded[domain], confidence, least, table, requests)


panel = widgets.explore(
    explore_threshold, {"requests": 1}, domain=widgets.menu("domain", domains[::-1]),
    scaling=ToggleButtons(description="confidences", options=["raw", "calibrated"]), least=widgets.slider("threshold", 0.5, 0.0, 0.95, 0.05),
    requests=widgets.slider("requests", most_requests, 1, most_requests),
    frames={"requests": sorted({1, 2, 4, 8, 16, most_requests})})

# %% [markdown]
# The milliseconds come from how long a pass of this target takes by its size, measured once (lesson 10 makes that table). Move the number of
# requests that share a step, and watch the diamonds, the thresholds near the cheapest. **The best threshold is
# no property of the drafter.** Alone, a cut gains nothing; on a full machine it pays. A threshold knows neither the load
# nor who else wants the place.
#
# ### Exercise 4 · Ranks or numbers? (think)
# *10 minutes · medium · core.*
#
# Three users of a confidence: (A) a threshold that is tuned again on data; (B) a scheduler that admits the drafts of highest
# survival until a fixed budget is spent; (C) one that maximises (expected tokens) / (time of the step). Somebody replaces every
# $c_k$ by $c_k^2$. Which of the three changes what it does? Which of ECE, AUC and Brier notices?
#
# <details><summary>Hint</summary>
#
# Squaring keeps order. Does it keep the order of products? And what becomes of a sum of survivals?
#
# </details>
# <details><summary>Answer</summary>
#
# The square of a product is the product of the squares, so survivals keep their order, within a block and across requests. (A)
# finds the squared threshold and does what it did. (B) changes nothing at all. (C) changes: it adds survivals up and weighs them
# against seconds, and 0.8 is not 0.64. AUC sees only the order and notices nothing; ECE and Brier notice. **The right order is
# enough to spend a budget; true numbers are needed to choose one.**
#
# </details>
#
# ## The race
#
# A third number is new: how many tokens the target reads for each one committed. Your new lane verifies a draft if your `survival` gives it
# one half or more.

# %%
from dspark_lite.course.race import race

picture = race("09", lab)

# %% [markdown]
# ## Recap
# - $c_k$ predicts whether a token drawn at slot $k$ is kept if all before it were, and never looks at that token: that keeps cutting lossless.
# - Survival is the product along a block. Multiply first, average afterwards.
# - AUC asks whether a forecast ranks, ECE whether its numbers are true, Brier both. An ECE has a floor.
# - One temperature per position, fitted one after the other on survival, mends a head that is too sure. Judge it on other prompts.
# - A threshold wastes fewer places, and leaves fewer tokens a round. What is best depends on the price of a place, which it
#   does not know.
#
# **Next**: [lesson 10](10_the_scheduler.ipynb) gives each place in the batch to the token that is worth it.

# %% [markdown]
# **Case 09.** A head, a threshold, and a word that comes too rarely. Measure at most three things, then accuse.

# %%
from dspark_lite.course.cases import case

investigation = case("09")

# %%
show_score("09")

# %% [markdown]
# ## Beyond the core
#
# The lesson is complete without what follows.
#
# ### ★ How much of it is chance
#
# Here are ECE and floor on fewer blocks.

# %%
shuffled = np.random.default_rng(0).permutation(len(said))
measured = {}
for count in (100, 1000, len(said)):
    some = shuffled[:count]
    error, floor = measured[count] = calibration.ece(said[some], true[some]), calibration.ece_floor(said[some])
    print(f"{count:6} blocks: ECE {error:5.1%}, floor {floor:5.1%}")

# %% tags=["claim"]
claims({"only on all blocks does the ECE exceed its floor":
        all((error > floor) == (count == len(said)) for count, (error, floor) in measured.items())})

# %% [markdown]
# On the 100 and on the 1000 blocks drawn here the ECE is no larger than its floor: we cannot tell this head from a perfect one. On all
# blocks we can.
#
# ### ★ Figure 6, theirs and ours
#
# Upper row before, lower row after calibration (ours was fitted on other prompts). The bins are narrower than before, so the ECE of
# position 3 differs a little from ours above.

# %%
from dspark_lite.course.replication.lab_results import measure_confidence

lab_confidence = measure_confidence(lab, dspark)  # None for the models that were recorded; others are measured, once, and drawn beside them
picture = figures.figure_6(lab_confidence)
if lab_confidence:
    own_ece = lab_confidence.report["mean_ece"]
    print(f"{lab_confidence.label}: mean ECE {own_ece['raw']:.2%} -> {own_ece['stored']:.2%}")

# %%
printed = [paper.calibration(position) for position in (1, 3, 5, 7)]
paper_gain = 100 * np.mean([numbers["ece_before"] - numbers["ece_after"] for numbers in printed])
raw, mended = (np.mean(np.array(calibration.by_position(together.logits, together.accepted, chosen, figures.FIGURE_6_BINS)["ece"])[::2])
               for chosen in (None, sts.temperatures))
glue(paper_gain=paper_gain, our_gain=100 * (raw - mended))

# %% tags=["claim"]
claims({"our head has less than a point to gain, the paper's several": 100 * (raw - mended) < 1 < 3 < paper_gain,
        "with fewer blocks our error is below the paper's gain": len(said) < sum(blocks) and 100 * raw < paper_gain})

# %% [markdown]
# Over the four positions the paper's mean ECE falls by ⟦paper_gain:.1f⟧ points, ours by ⟦our_gain:.1f⟧. We have fewer blocks, so chance adds
# more to our ECE; even so, our whole ECE is smaller than the paper's gain.
#
# ### ★ The rate, and the price of a token
#
# The paper's Figure 5 shows the **rate**: (accepted drafts + 1) / (verified drafts + 1), where the 1 is the target's own token.

# %%
from dspark_lite.course import result_files

sweep = confidence_results.threshold_sweep()
picture = figures.threshold_rates(sweep["device"], sweep["rows"])
public = result_files.reference("public_run.json")["places_per_token"]
print("places per committed token, by threshold")
print("  a public notebook, Qwen3-4B:", "  ".join(f"{least}: {price:.2f}" for least, price in public.items()))
for domain in domains:
    print(f"  here, {domain:5}               :", "  ".join(
        f"{row['threshold']:.1f}: {1 / row['rate']:.2f}" for row in sweep["rows"] if row["domain"] == domain and f"{row['threshold']:.1f}" in public))

# %% tags=["claim"]
rates = {(row["domain"], row["threshold"]): row for row in sweep["rows"]}
highest = max(least for _, least in rates)
claims({"the public notebook's prices fall, too": list(public.values()) == sorted(public.values(), reverse=True),
        "the rate rises in every domain": all(rates[domain, highest]["rate"] > rates[domain, 0.0]["rate"] for domain in domains),
        "and every domain's rounds get shorter": all(rates[domain, highest]["accepted"] < rates[domain, 0.0]["accepted"] for domain in domains)})

# %% [markdown]
# A round takes one place in the target's pass for the anchor and one for each verified draft. It commits the accepted drafts and the
# target's own token. So **one over the rate is the price of a token**: places per committed token. By that price plain decoding is
# best, with exactly 1.00. But rounds get shorter (the grey line), and each costs a pass.
#
# The printed prices fall with the threshold in [a public notebook](../docs/references.md#public-notebook) as they do here. Compare no
# further: it decodes greedily, pools the rounds of three prompts, and sends at least one draft.
#
# ### Exercise 5 · Make it stale (open)
# *40 minutes · optional.*
#
# A calibration belongs to a drafter, a target, a temperature and a kind of text. Find a change of the traffic that makes the
# stored one wrong: temperature 0.5 or 2, prompts of your own, only the first blocks of answers. Predict whether the head becomes
# too sure or not sure enough. Then observe at least 32 prompts of each domain (`from dspark_lite.course.measure.confidence import observe`;
# `observe(lab, dspark, texts, temperature=0.5)`), and as a control the same prompts at temperature 1.
# `calibration.check_calibration(sts, logits, accepted)` compares the stored fit with a fresh one.
#
# <details><summary>Hint</summary>
#
# Few blocks make any stored calibration look stale, because the fresh fit also learns their chance. That is what the control is
# for.
#
# </details>
