# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=90 difficulty="medium"
# # 06 · Autoregressive rivals
#
# DSpark's network runs once for seven tokens. The rivals of this lesson are *autoregressive*: their network runs once per token, so it
# has to be small: one layer, fed with the target's hidden states. This lesson builds the strongest of them,
# [Eagle3](../docs/glossary.md#eagle3), and finds out what each further token costs it.
#
# **After this lesson you can**
# - write Eagle3's chain: what each pass reads, and what its cache may keep after the round
# - say why a rival that sees all its drafts has only one layer, and why its first draft counts most
# - write the loss that teaches a drafter to live with its own mistakes, the training-time test
# - choose a drafter and a length by what a draft and a verification cost
#
# **What you need**: taps and their keys and values (lesson 04), the sequential head (05). There are five core exercises; if you do only
# one, do exercise 2.
#
# **Sources**: [EAGLE-3](../docs/references.md#eagle3); MTP in the [report on DeepSeek-V3](../docs/references.md#mtp); conditional acceptance is
# Figure 2 of the [DSpark paper](../docs/references.md#dspark), section 4.3.1. [Notation](../docs/notation.md) · [glossary](../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite
from dspark_lite.course.bets import bet, show_score
from dspark_lite.course.exercises import lesson_06 as exercises
from dspark_lite.course.figures import lesson_06 as figures
from dspark_lite.course.figures import widgets
from dspark_lite.course.figures.living_round import living_round
from dspark_lite.course.lesson_text import claims, glue
from dspark_lite.course.measure.recorded_rounds import record_rounds

lab = dspark_lite.setup()
lab.max_new_tokens = 80
target, prompt_ids = lab.target, lab.encode(lab.prompts["chat"][0])  # prompt_ids [1, n]
eagle3 = lab.drafter("eagle3")
layer, gamma = eagle3.layers[0], eagle3.gamma

# %% [markdown]
# ## Its own output as the feature
#
# The target has read *The cat*, and *sat* has just been drawn. What can a drafter read?
#
# - What the target left at *cat*. One matrix mixes the tapped layers (lesson 04) into one vector, the *feature*. It knows the text up to
#   *cat*, and what the target expects next, but not that *sat* was drawn.
# - The embedding of *sat*.
#
# So one layer reads both, the feature of *cat* beside the token *sat*, and drafts the next word, say *on*. In symbols, with $f_i$ the
# feature of token $x_i$ and $E$ the embedding:
#
# $$[\,\text{norm}(E[x_{i+1}])\,;\,\text{norm}(f_i)\,] \;\longrightarrow\; x_{i+2}$$
#
# Now the second draft. Beside *on* should stand the feature of *sat*, but the target has not read *sat*. The idea of the EAGLE family:
# *let the layer's own output stand in for the missing feature*. It has the same shape, and training can teach the layer to read it. So
# one pass can follow another: a *chain*. (Earlier EAGLEs were also trained to predict the feature. EAGLE-3 dropped that loss: the output
# need only be useful.)

# %%
picture = figures.wiring()

# %% [markdown]
# The orange arrows make the chain. The grey line is what a pass attends to: the pairs cached so far, and those of the passes before it.
# Here the chain runs in rounds of an answer. The dot under a word is the feature that a pass reads beside it,
# blue if it is the target's, orange if the drafter made it itself. When a draft is accepted, the verification brings the target's feature,
# and its dot turns blue. A cross: this word, or one before it, was refused, so its pair leaves the cache.

# %%
picture = living_round("wire", record_rounds(lab, eagle3, lab.prompts["chat"][0]))

# %% [markdown]
# ### Exercise 1 · Pair them (code)
# *5 minutes · easy · core.*
#
# A pass reads a *pair*: a token and, beside it, the feature of the token before it. `token_ids` [n] are the tokens that the target has
# read, `features` [n, H] what it left at each. Return two tensors of
# equal length: row $j$ of the first is the token that the layer reads beside row $j$ of the second. Form every pair
# that can be formed now. Which feature is left over, and until when?
#
# <details><summary>Hint</summary>
#
# n tokens give fewer than n pairs: the token after the last one has not been drawn.
#
# </details>


# %% tags=["exercise"]
def pairs(token_ids, features):
    """(tokens [P], features [P, H]), a row for each pair that the layer can read."""
    ...


# %% tags=["solution"]
def pairs(token_ids, features):
    """(tokens [P], features [P, H]), a row for each pair that the layer can read."""
    return token_ids[1:], features[:-1]


# %%
done = exercises.check_pairs(pairs)
pairs = pairs if done else exercises.pairs

# %% [markdown]
# The last feature *waits* until the target has drawn the token after it, the anchor. The layer's attention looks back at the earlier
# pairs, so their keys and values stay in a cache, as in lesson 04. The folded cell makes them by hand.

# %% tags=["folded"]
# @title Keys and values of the pairs, by hand and the package's
from dspark_lite.losslessness.ties import agree


def side_by_side(token_ids, feature):
    """What the attention reads [B, T, 2 H]: features [B, T, H], each with the token [B, T] that followed it."""
    return torch.cat([layer.input_layernorm(eagle3.embed_tokens(token_ids)), layer.hidden_norm(feature)], -1)


step, _ = target.prefill(prompt_ids, eagle3.taps)
fused = step.features @ eagle3.fc.weight.T  # a feature per token, mixed by the one matrix: [1, n, H]
tokens, features = pairs(prompt_ids[0], fused[0])
positions = torch.arange(len(tokens), device=lab.device)[None]  # [1, n - 1]
keys, values = layer.self_attn.keys_values(side_by_side(tokens[None], features[None]), eagle3.rope(positions))
waiting = fused[:, -1:]  # [1, 1, H]

state = eagle3.begin(prompt_ids, step.features)
cached = state.cache.length
assert cached == len(tokens) and agree(waiting, state.waiting)
assert agree(keys, state.cache.keys[0][:, :, :cached]) and agree(values, state.cache.values[0][:, :, :cached])
print(f"{prompt_ids.shape[1]} tokens: keys and values of {cached} pairs by hand = the package's; one feature waits")

# %% [markdown]
# ## One pass, and the next
#
# In one pass the attention reads the pair and all pairs before it. To the feature it adds its result, and the MLP adds another. This sum is
# the pass's *output*. The LM head makes a draft of it; unchanged, it is the next pass's feature. (`side_by_side`, from the folded cell,
# joins a token and a feature to the pair that attention reads.)

# %%
import torch.nn.functional as F

from dspark_lite.decoding.sampling import draw, probabilities


def one_pass(cache, token, feature):
    """Output [1, 1, H] for a feature [1, 1, H] and the token [1] after it; `cache` (keys, values) with this pair appended."""
    keys, values = cache
    position = torch.tensor([[keys.shape[2]]], device=lab.device)  # of this pair: as many pairs stand before it
    inputs, rope = side_by_side(token[:, None], feature), eagle3.rope(position)
    keys, values = (torch.cat(pair, 2) for pair in zip(cache, layer.self_attn.keys_values(inputs, rope)))
    mixed = F.scaled_dot_product_attention(layer.self_attn.queries(inputs, rope), keys, values, enable_gqa=True)
    hidden = feature + layer.self_attn.o_proj(mixed.transpose(1, 2).flatten(2))
    return hidden + layer.mlp(layer.post_attention_layernorm(hidden)), (keys, values)


def favourite(output):
    """The most probable token [1] after a pass's output [1, 1, H]."""
    return eagle3.lm_head(eagle3.norm(output[:, 0])).argmax(-1)


# %% [markdown]
# ### Exercise 2 · Pass after pass (code)
# *15 minutes · medium · core. If you do only one, do this.*
#
# Return the list of the `gamma` drafts after the anchor. `one_pass(cache, token, feature)` returns an output and the grown cache,
# `choose(output)` the token drafted from that output. The first pass reads the `anchor` [1] and the feature that has waited for it,
# `waiting` [1, 1, H]. What does the second read?
#
# <details><summary>Hint</summary>
#
# A loop over `gamma` passes that carries three things from one to the next. The output has the shape of a feature.
#
# </details>


# %% tags=["exercise"]
def draft_chain(one_pass, choose, cache, anchor, waiting, gamma):
    """The list of gamma tokens drafted after the anchor, from the waiting feature."""
    ...


# %% tags=["solution"]
def draft_chain(one_pass, choose, cache, anchor, waiting, gamma):
    """The list of gamma tokens drafted after the anchor, from the waiting feature."""
    drafted, token, feature = [], anchor, waiting
    for _ in range(gamma):
        feature, cache = one_pass(cache, token, feature)
        token = choose(feature)
        drafted.append(token)
    return drafted


# %%
done = exercises.check_draft_chain(draft_chain)
draft_chain = draft_chain if done else exercises.draft_chain

# %%
with torch.inference_mode():
    anchor = draw(probabilities(step.logits[:, -1], 1.0), lab.generator())  # [1]
    drafted = exercises.in_a_row(draft_chain(one_pass, favourite, (keys, values), anchor, waiting, gamma))
    theirs = eagle3.draw_chain(state, anchor, gamma, temperature=0.0, generator=None)[0]  # [1, gamma]
assert torch.equal(drafted, theirs[0])
print(f"{len(drafted)} drafts after {lab.tokenizer.decode(anchor)!r}, by hand = the package's: {lab.decode(drafted.tolist())!r}")

# %% [markdown]
# So this is what the passes of a round read:
#
# | pass | the token | the feature beside it | drafts |
# |---|---|---|---|
# | 1 | the anchor | the one that waited, the target's | draft 1 |
# | 2 | draft 1 | the output of pass 1 | draft 2 |
# | 3 | draft 2 | the output of pass 2 | draft 3 |
#
# Only pass 1 has the target's feature *beside its token*. Later passes meet the target only through the cache, and inherit every earlier
# mistake.
#
# ## After the round
#
# Each pass has left a *cell* in the cache: the keys and values of its pair. Here is the cache after a round with five drafts, two of them
# accepted. (No pass has read draft 5.)

# %%
in_text = exercises.cells(cached=3, gamma=5, accepted=2)
picture = figures.cache_cells(in_text, gamma=5)

# %% [markdown]
# ### Exercise 3 · Mark the cells (code)
# *6 minutes · easy · core.*
#
# Which cells may stay for the next round? A cell stays if it is what the target's own features would have put there. `in_text` is the
# picture's row, a list of True and False with a place for each cell; the last `gamma` cells are those of this round's passes. Return such
# a list: True where the cell stays.
#
# <details><summary>Hint</summary>
#
# Draft 1 was accepted, so its token is right. Which feature stood beside it?
#
# </details>


# %% tags=["exercise"]
def survives(in_text, gamma):
    """For each cell of the cache, whether it stays after the round; `in_text` says of each whether its token is in the text."""
    ...


# %% tags=["solution"]
def survives(in_text, gamma):
    """For each cell of the cache, whether it stays after the round; `in_text` says of each whether its token is in the text."""
    first = len(in_text) - gamma  # the cell of pass 1, which has read the feature that waited: the target's
    return [place <= first for place in range(len(in_text))]


# %%
done = exercises.check_survives(survives)
if done:  # the picture once more, with your marks
    picture = figures.cache_cells(in_text, 5, survives(in_text, 5))

# %% [markdown]
# The accepted drafts enter anew: the verification has brought the target's features, and each draft pairs with that of the token before
# it. The last of these features waits for the new anchor.
#
# What if no cell is ever taken back? The answers stay the target's, by the rule of lesson 02.

# %%
stale = bet("06 never taken back")

# %% tags=["folded"]
# @title Let one drafter take its cells back, and another never
import copy

from dspark_lite.course.measure import evaluation


class NeverRollsBack(type(eagle3)):
    """Leaves the entries of its own passes in the cache."""

    def draw_chain(self, state, anchor, length, temperature, generator):
        drawn = super().draw_chain(state, anchor, length, temperature, generator)
        state.cache.length += length  # the package has just rolled back: count these entries in again
        return drawn


careless = copy.copy(eagle3)  # the same weights under another class; the lab's drafter stays as it is
careless.__class__ = NeverRollsBack
per_round = {}
for name, drafter in (("rolled back", eagle3), ("never rolled back", careless)):
    runs = evaluation.rollouts(lab, drafter, lab.prompts["math"][:4], temperature=1.0)
    per_round[name] = evaluation.mean_accepted_length([evaluation.tally(runs)])
careful, forgetful = per_round["rolled back"], per_round["never rolled back"]
stale.settle("fewer than with cells taken back" if forgetful < 0.95 * careful else
             "as many" if forgetful < 1.05 * careful else "more than with cells taken back",
             f"{forgetful:.2f} tokens per round in place of {careful:.2f}, on {len(runs)} math prompts")


# %% tags=["claim"]
claims({"entries that are never taken back cost many tokens": forgetful < 0.85 * careful})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# Fewer, and no answer changes. The cache holds accepted drafts twice, and refused ones, words that the text does not contain. Every later
# pass attends to all of this, and counts its position too high. The drafts get worse; the rule refuses them; nothing is raised.
#
# </details>
#
# ## What a longer draft costs
#
# Each further token costs the chain another pass. A block drafter's layers compute the whole block; only the LM head and the draws stop
# at the length asked for. The times are from lesson 05's recording (`time_here = True` takes yours).

# %%
from dspark_lite.course.measure import clocks

time_here = False
eagle3 = layer = careless = None  # only the lab holds a drafter from here on: two beside the target may not fit
times = clocks.measured(lab) if time_here else clocks.recorded()
draft_ms = {name: times["draft"][name] for name in ("eagle3", "dflash", "dspark")}  # {drafter: {drafts: ms}}
plain_ms, verify_ms = times["verify"][0], times["verify"][gamma]
meets = {name: next(length for length, ms in draft_ms["eagle3"].items() if ms >= draft_ms[name][length]) for name in ("dflash", "dspark")}
glue(meets_dflash=meets["dflash"], meets_dspark=meets["dspark"])
picture = figures.draft_cost(draft_ms, times["device"])

# %% tags=["claim"]
claims({"for one token the chain is cheaper than a block": draft_ms["eagle3"][1] < min(draft_ms["dspark"][1], draft_ms["dflash"][1]),
        "for seven it is dearer": draft_ms["eagle3"][7] > draft_ms["dspark"][7],
        "the lines cross once": all((draft_ms["eagle3"][length] >= ms) == (length >= meets[name]) for name in meets for length, ms in draft_ms[name].items())})

# %% [markdown]
# Eagle3's line climbs by about one pass's time per token, a block drafter's far less. For one token the chain is cheaper; it meets DFlash's
# line at ⟦meets_dflash:words⟧ tokens and DSpark's at ⟦meets_dspark:words⟧. **This is why an autoregressive drafter has few layers:** it pays for them once per token, a block drafter once per block.
#
# ## What the drafts are worth
#
# Let $\alpha_k$ be lesson 04's conditional acceptance: of the rounds that *reached* position $k$, the share that accepted it, too. Above, ours
# on chat, each line the mean of three trainings; below, the same panel of the paper's Figure 2.

# %% tags=["folded"]
# @title Read the recorded acceptances, and draw them
import numpy as np

from dspark_lite.course import paper
from dspark_lite.course.measure import studies
from dspark_lite.course.replication import acceptance_over_seeds, experiment_results

seeds = {name: studies.SEEDS[name] for name in paper.LABELS}  # three trainings of each
here = {name: acceptance_over_seeds.acceptances(runs, "chat") for name, runs in seeds.items()}
there = {name: paper.conditional_acceptance(name, "chat") for name in seeds}
picture = figures.here_and_paper(here, there, "chat")
gains = experiment_results.gains_over_seeds(seeds["dspark"], seeds["eagle3"])
gain = gains["all"]
glue(paper_gain=paper.macro_gain("Qwen3-4B", "dspark", "eagle3"), gain=gain.value, gain_low=gain.low, gain_high=gain.high)

# %% tags=["claim"]
lead = {at: acceptance_over_seeds.lead(seeds["dspark"], seeds["eagle3"], "chat", at) for at in range(1, gamma + 1)}
claims({"on chat DFlash falls most": there["dflash"][-1] < min(there["dspark"][-1], there["eagle3"][-1])
            and here["dflash"][-1].value < min(here["dspark"][-1].value, here["eagle3"][-1].value),
        "on chat DSpark begins above Eagle3, here and in the paper": lead[1].low > 0 and there["dspark"][0] > there["eagle3"][0],
        "in the paper Eagle3 rises there and nearly catches up": there["eagle3"][-1] - there["eagle3"][0] > 0.15
            and 0 < there["dspark"][-1] - there["eagle3"][-1] < 0.05,
        "in the paper DSpark leads there at every position": all(ours > theirs for ours, theirs in zip(there["dspark"], there["eagle3"])),
        "here DSpark leads in the mean at the first six": all(lead[at].value > 0 for at in range(1, gamma)),
        "here the two cannot be told apart at position 7": lead[gamma].low < 0 < lead[gamma].high,
        "over the domains DSpark commits more than Eagle3, and on chat": min(gain.low, gains["chat"].low) > 0})

# %% [markdown]
# Read two things off a curve. Where it *falls*, the drafter misses something that it would need to see: of the drafts before a position
# DFlash sees none, DSpark the last one, Eagle3 all. (Eagle3's rises in the paper: presumably rounds reach late positions in easy text
# only.) Its *height at position 1* tells how good network and training are: there DSpark begins above Eagle3, in both panels. At position 7
# Eagle3 has caught up, or nearly. Which end of a curve counts more?
#
# ### Exercise 4 · Two shapes (think)
# *8 minutes · medium · core.*
#
# Drafter A accepts every position with chance 0.8. Drafter B begins with 0.7 and rises by 0.05 per position to 1.0 at
# the seventh. Which has the larger $\tau$ with two drafts, and with seven? What does that say about a table of mean
# acceptances?
#
# <details><summary>Hint</summary>
#
# $\tau = 1 + \alpha_1 + \alpha_1 \alpha_2 + \dots$
#
# </details>
# <details><summary>Answer</summary>
#
# With two drafts 2.44 against 2.23, with seven 4.16 against 3.93: A, both times. B's mean acceptance is the larger, 0.85 against 0.8, so such a
# table ranks B first, wrongly. An early position is a factor of everything after it.
#
# </details>

# %% tags=["claim"]
shapes = {"A": np.full(7, 0.8), "B": np.arange(0.7, 1.01, 0.05)}
found = [1 + np.cumprod(rates[:k]).sum() for rates in shapes.values() for k in (2, 7)]
claims({"exercise 4's numbers": np.allclose([*found, shapes["B"].mean()], [2.44, 4.16, 2.23, 3.93, 0.85], atol=0.006)})

# %% [markdown]
# So **position 1 counts most:** raise any $\alpha_k$ by a hundredth of itself, and each product that contains it grows by a hundredth; all
# contain $\alpha_1$. DSpark, ahead at the first positions, commits ⟦gain:.0 %⟧ more tokens per round than Eagle3 in the mean of our three
# domains (interval ⟦gain_low:.0 %⟧ to ⟦gain_high:.0 %⟧), and ⟦paper_gain:.0 %⟧ more in the paper (with Qwen3-4B as the target).
#
# ## Learning from one's own mistakes
#
# A draft counts only if all before it were accepted, so a training may feed the text's own tokens. Two trainings differ in the feature
# beside a token:
#
# - [*Teacher forcing*](../docs/glossary.md#teacher-forcing) gives the target's feature at every place. It never shows the layer what it
#   reads from pass 2 on, its own output.
# - The [*training-time test*](../docs/glossary.md#training-time-test) unrolls a chain like yours from every place of the text. Only its
#   first pass gets the target's feature, each later one the output before it. Every pass is scored.
#
# ### Exercise 5 · Train as you draft (code)
# *15 minutes · hard · core.*
#
# Write the loss of one chain of the training-time test. `tokens` is a Python list of the text's tokens, each of shape [1], the anchor
# first; pass $k$ reads the $k$-th of them. `features` is a list as long, of the target's features that pair with them, each of shape
# [1, 1, H]. Which of these does the chain read? `loss_of(output, k)` gives the loss of pass $k$, counted from 1. Return the weighted
# mean; pass $k$ weighs `decay ** (k - 1)`.
#
# <details><summary>Hint</summary>
#
# Exercise 2 with two sums: of the weighted losses, and of the weights.
#
# </details>


# %% tags=["exercise"]
def chain_loss(one_pass, loss_of, cache, tokens, features, decay):
    """The mean loss of a chain of passes over the text's tokens, in which each pass weighs `decay` of the one before."""
    ...


# %% tags=["solution"]
def chain_loss(one_pass, loss_of, cache, tokens, features, decay):
    """The mean loss of a chain of passes over the text's tokens, in which each pass weighs `decay` of the one before."""
    total, weights, feature = 0.0, 0.0, features[0]
    for k, token in enumerate(tokens, 1):
        feature, cache = one_pass(cache, token, feature)
        total += decay ** (k - 1) * loss_of(feature, k)
        weights += decay ** (k - 1)
    return total / weights


# %%
done = exercises.check_chain_loss(chain_loss)

# %% [markdown]
# With `decay` 0 only a chain's first pass counts, and that pass reads the target's feature: teacher forcing. We train two small Eagle3
# drafters on a toy target, with `decay` 0 and above, and run chains of ten passes on new texts. Above, how likely the draft of pass $k$ is to
# be accepted; below, which training commits more tokens per round, by the length of the chain.

# %% tags=["folded"]
# @title Train two toy drafters, and let both read new texts
import tempfile
from pathlib import Path

from dspark_lite.course.measure.chains import by_pass, chances
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.training.cache import build_cache
from dspark_lite.training.recipe import DraftRecipe, DraftShape
from dspark_lite.training.train import train_draft

toy_target, _ = toy_models(seed=4, vocab_size=11)
toy_target.model.lm_head.weight.mul_(0.5)  # a target that is easier to match
folder, generator = Path(tempfile.mkdtemp()), torch.Generator().manual_seed(0)
texts = torch.randint(11, (768, 2), generator=generator)
with torch.inference_mode():
    while texts.shape[1] < 24:  # texts [768, 24], drawn from the toy target
        texts = torch.cat([texts, draw(probabilities(toy_target.model(texts).logits[:, -1], 1.0), generator)[:, None]], 1)
toy_cache = build_cache(toy_target, [(text, 1) for text in texts[:512].tolist()], (0, 1), folder / "cache")
curves = {}
for name, decay, passes in (("teacher forcing", 0.0, 1), ("training-time test", 0.8, 5)):  # with decay 0 later passes count nothing
    shape = DraftShape(drafter="eagle3", num_hidden_layers=1, ttt_length=passes, target_layer_ids=(0, 1), step_loss_decay=decay)
    recipe = DraftRecipe(name, seed=1, epochs=6, batch=64, learning_rate=0.01, precision="float32", config=shape)
    trained = train_draft(recipe, toy_target, toy_cache, folder / name)
    trained.gamma = 10  # passes of a chain on the new texts
    curves[name] = by_pass([chances(toy_target, trained, texts[512:], 1)])
forced, unrolled = (curves[name] for name in ("teacher forcing", "training-time test"))  # (with features, with its own output)
picture = figures.passes_figure(forced, unrolled)
leads = figures.lead_by_length(forced[1], unrolled[1])  # in per cent of tokens per round
ahead_from = next(length for length, lead in enumerate(leads, 1) if lead > 0)
glue(forced=forced[1][-1], unrolled=unrolled[1][-1], ahead_from=ahead_from, lead=leads[-1])

# %% tags=["claim"]
claims({"by the blue line teacher forcing ends higher": forced[0][-1] > unrolled[0][-1],
        "on its own output the training-time test ends clearly higher": unrolled[1][-1] > forced[1][-1] + 0.06,
        "the training-time test begins lower": unrolled[1][0] < forced[1][0],
        "a short chain is better off with teacher forcing, a long one with the training-time test": leads[0] < 0 and leads[-1] > 2,
        "the two change places once": all((lead > 0) == (length >= ahead_from) for length, lead in enumerate(leads, 1)) and 3 <= ahead_from <= 6,
        "after teacher forcing the curve falls": forced[1][-1] < forced[1][0] - 0.08,
        "after the training-time test it falls by less than a third as much": unrolled[1][0] - unrolled[1][-1] < (forced[1][0] - forced[1][-1]) / 3})

# %% [markdown]
# By blue, teacher forcing is the better training. But after pass 1 a chain has no feature of the target's to read beside its token, only its
# own output.
#
# - Teacher forcing starts higher, and falls: its tenth draft is accepted with chance ⟦forced:.2f⟧.
# - The training-time test starts a little lower, and **falls far less**: ⟦unrolled:.2f⟧ at the tenth.
#
# So a chain of one or two drafts wants teacher forcing. From about ⟦ahead_from:words⟧ drafts on the training-time test is ahead, at ten by
# ⟦lead:.1f⟧ % more tokens per round.
#
# (Both were trained by the package's loss: your `chain_loss` from every place at once.) DSpark needs no such training: it never reads a
# hidden state that it made itself.
#
# ## Cost and worth together
#
# Lesson 01's time per token, $L = (T_\text{draft} + T_\text{verify}) / \tau$, once more, by draft length. Here
# $\tau = 1 + \alpha_1 + \alpha_1 \alpha_2 + \dots$ comes from acceptances as above. A short block is cheaper to verify (lesson 03), so
# $T_\text{verify}$ is the recorded time at each length.

# %% tags=["folded"]
# @title Model the time per token by draft length
rates = {domain: {name: [found.value for found in acceptance_over_seeds.acceptances(seeds[name], domain)]
                  for name in ("eagle3", "dspark")} for domain in lab.prompts}


def by_length(domain, verify):
    """Milliseconds per token at each draft length, for both drafters, where verifying `gamma` drafts takes `verify` milliseconds."""
    scale = verify / verify_ms  # of every pass of the target
    return {name: [(draft + scale * times["verify"][length]) / tau
                   for (length, draft), tau in zip(draft_ms[name].items(), 1 + np.cumsum(np.cumprod(found)))]
            for name, found in rates[domain].items()}


def explore_length(domain, verify):
    """The figure of `by_length`, with plain decoding."""
    return figures.token_cost(by_length(domain, verify), verify * plain_ms / verify_ms, f"{domain}, modelled: verifying {gamma} drafts takes {verify:.1f} ms")
glue(verify_ms=verify_ms, plain_ms=plain_ms, single_ms=draft_ms["eagle3"][1], block_ms=draft_ms["dspark"][gamma])

# %% [markdown]
# As recorded, verifying seven drafts takes ⟦verify_ms:.0f⟧ ms, a plain pass ⟦plain_ms:.0f⟧, one Eagle3 draft ⟦single_ms:.1f⟧ and DSpark's
# block of seven ⟦block_ms:.1f⟧; DSpark with seven is cheapest. Now make the target smaller and leave the drafters as they are. All the
# target's passes get cheaper alike.

# %%
nearly_free = bet("06 a verification nearly free")

# %% tags=["folded", "answer"]
# @title What writes a token cheapest, and with how many drafts
def cheapest(domain, verify):
    """What writes a token cheapest, and with how many drafts."""
    costs = {("plain", 0): verify * plain_ms / verify_ms}
    for name, row in by_length(domain, verify).items():
        costs |= {(name, length): cost for length, cost in enumerate(row, 1)}
    return min(costs, key=costs.get), costs


(who, drafts), costs = cheapest("chat", verify_ms / 20)
panel = widgets.explore(explore_length, {"verify": round(verify_ms / 20, 1)}, domain=widgets.menu("domain", list(lab.prompts)[::-1]),
                        verify=widgets.slider("verifying seven (ms)", round(verify_ms, 1), 0.5, round(20 * verify_ms, 1), 0.1))
least = {name: min(cost for (whose, _), cost in costs.items() if whose == name) for name in ("plain", "dspark", "eagle3")}
nearly_free.settle({"plain": "plain decoding", "dspark": "DSpark with a block"}.get(
    who, "Eagle3 with one draft" if drafts == 1 else "Eagle3 with a longer chain"),
    "plain {plain:.2f} ms per token, DSpark {dspark:.2f} at best, Eagle3 {eagle3:.2f}, modelled".format(**least))

# %% tags=["claim"]
prices = np.arange(0.1, 20 * verify_ms, 0.1)
best = {domain: [cheapest(domain, price)[0] for price in prices] for domain in lab.prompts}
pays_from = prices[next(at for at, found in enumerate(best["chat"]) if found[0] != "plain")]
at_the_turn = by_length("chat", pays_from)
misses = min(at_the_turn["eagle3"]) / min(at_the_turn["dspark"]) - 1
glue(pays_from=pays_from)
claims({"DSpark's whole block or no draft is cheapest at every price, in every domain": {found for row in best.values() for found in row}
            == {("plain", 0), ("dspark", gamma)},
        "as measured, it is the whole block": all(cheapest(domain, verify_ms)[0] == ("dspark", gamma) for domain in lab.prompts),
        "on chat plain decoding is cheapest at every price below that": all(found[0] == "plain" for price, found in zip(prices, best["chat"])
            if price < pays_from),
        "where plain decoding gives way on chat, Eagle3 is clearly dearer than DSpark": misses > 0.05})

# %% [markdown]
# Choose a domain, and what verifying seven drafts costs.
#
# <details><summary>After your bet</summary>
#
# Plain decoding: a draft that costs more than the target's passes that it saves is no use. On chat DSpark's block pays from about
# ⟦pays_from:.1f⟧ ms on. **For this pair on this CPU, with one request, it is a long block or none.**
#
# </details>
#
# ## One draft on a full machine
#
# A near relative of Eagle3 stops after one token: [MTP-1](../docs/glossary.md#mtp) (multi-token prediction), the module that DeepSeek-V3
# was trained with. In place of the mixed feature it reads the hidden state of the target's *last layer* alone, beside the same token.
# Is that timid, or wise? A server works in *steps*: in each, one pass of the target serves all its requests. There every draft takes its share
# of the pass. With 256 requests at once, a step with blocks of seven verifies four times as many tokens as one with MTP-1. We take recorded
# rounds of our tiny pair, and let models of three machines say how long each step takes
# ([two machines](../docs/scheduling.md#two-machines)).

# %%
crowded = bet("06 a full machine")

# %% tags=["folded", "answer"]
# @title Blocks of seven over MTP-1, by requests, on three machines
from dspark_lite.course.replication import machine_results

requests, over_mtp, longer = 256, {}, {}
for name in ("H100", machine_results.CPU):
    machine = machine_results.machines()[name]
    block, single = machine.step("dspark"), machine.step("mtp")
    longer[name] = block.seconds(requests, requests * 8) / single.seconds(requests, requests * 2)
    over_mtp[name] = 1 + machine_results.replayed_row(name, "fixed 7", requests)["gains"]["mtp"].value
labels = {"H100": "H100, modelled", machine_results.V4_FLASH: "V4's curve, derived", machine_results.CPU: "this CPU, fitted"}
picture = figures.over_mtp({label: {load: machine_results.replayed_row(name, "fixed 7", load)["gains"]["mtp"].scaled(1.0, plus=1.0)
                                    for load in (1, 8, 32, 128, requests)} for name, label in labels.items()})
more = machine_results.replayed_row("H100", "fixed 7", requests)["committed"] / machine_results.replayed_row("H100", "mtp", requests)["committed"]
times_as_many = over_mtp["H100"]
crowded.settle("fewer than MTP-1" if times_as_many < 0.8 else "about as many as MTP-1" if times_as_many < 1.4 else
               "about twice as many" if times_as_many < 2.6 else "three times as many or more",
               f"{times_as_many:.2f} times: a step takes {longer['H100']:.1f} times as long and commits {more:.1f} times as many tokens, replayed")
glue(long_block=over_mtp["H100"], level=over_mtp[machine_results.CPU])
fewest = {name: machine_results.replayed_row(name, "fixed 7", requests)["gains"]["mtp"] for name in labels}

# %% tags=["claim"]
claims({"on the H100 the long block writes about twice as much": abs(over_mtp["H100"] - 2) < 0.15,
        "no machine is below level": min(gain.low for gain in fewest.values()) > 0,
        "on this CPU the two are nearly level": abs(over_mtp[machine_results.CPU] - 1) < 0.05,
        "a step of blocks commits about three times as many": abs(more - 3) < 0.3,
        "on the H100 it takes less than twice as long, on this CPU about three times": longer["H100"] < 2 < 2.7 < longer[machine_results.CPU]})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# On the H100 blocks of seven write ⟦long_block:.2f⟧ times as many tokens per second as MTP-1; on this CPU, where a step's time nearly
# follows the tokens, ⟦level:.2f⟧ times. With few requests a single draft is timid. As a machine fills, the lines fall towards level; none of
# ours goes below.
#
# </details>
#
# **The rule: a round with a block of seven commits three times as many tokens as one with a single draft, so it wins unless its step takes
# three times as long.** On DeepSeek's machines, the paper says, fixed drafts of three or five tokens (MTP-3, MTP-5) lowered the total
# throughput under high load: there one draft was wise, until DSpark took its place (section 5.4).
#
# DSpark need not choose: it drafts long, and cuts as the machine fills.
#
# ## The race

# %%
from dspark_lite.course.race import race

picture = race("06", lab)

# %% tags=["claim"]
from dspark_lite.course.replication.benchmark_results import by_domain

tokens, speeds = ({name: by_domain(name, column) for name in ("dflash", "eagle3", "dspark")} for column in ("accepted_length", "speedup"))
slower = 1 - speeds["eagle3"][1] / speeds["dspark"][1]
on_math = tokens["dspark"][0] / tokens["eagle3"][0] - 1
glue(slower=slower, on_math=on_math, math_gain=gains["math"].value)
claims({"on code Eagle3 commits nearly as many tokens as DSpark": 0.97 < tokens["eagle3"][1] / tokens["dspark"][1] < 1,
        "and writes clearly fewer per second": slower > 0.06,
        "on math the shipped training is further ahead than the mean of three": on_math > gains["math"].value + 0.03,
        "DFlash commits fewer than Eagle3 and is slower, in every domain": (tokens["dflash"] < tokens["eagle3"]).all()
            and (speeds["dflash"] < speeds["eagle3"]).all()})

# %% [markdown]
# Read the picture first: *tokens a round* are a property of the drafters; *ms a token* also of the machine at that moment. Three short
# answers were timed for it, so lanes that end close together are a draw. The recorded benchmark took twenty prompts per domain, and there
# Eagle3 commits nearly as many tokens per round as DSpark on code, and writes ⟦slower:.0 %⟧ fewer per second.
#
# **Tokens per round are not speed.** For a block Eagle3 takes seven light passes, DFlash one, DSpark one and seven tiny steps. Nor is
# drafting a block enough: in the benchmark DFlash commits fewer tokens than Eagle3 and is slower. (In the paper it commits more on every
# Qwen3.) [Which drafter, and when not to](../docs/which_drafter.md) is a page to keep.
#
# > **How sure are we?** Acceptances and leads come from a hundred prompts per domain and three trainings; the benchmark has the shipped
# > trainings alone. The shipped DSpark is lucky on math (lesson 05): ⟦on_math:.0 %⟧ above Eagle3 in the benchmark, ⟦math_gain:.0 %⟧ in the
# > mean of three trainings. The toys are one seed each. The machines of the full server are models, their rounds those of a tiny pair.
#
# ## Recap
#
# - Eagle3 reads a feature and the token after it; while it drafts, its own output takes the feature's place.
# - After a round only cells made from the target's features stay; accepted drafts enter anew. Who forgets that loses speed,
#   never correctness.
# - A chain pays a pass per token, so it has one layer; a block pays for its depth once.
# - A curve's first point tells how good network and training are, its fall what the drafter does not see. The first point counts most.
# - Teacher forcing shows a drafter what it will not have. The training-time test unrolls the chain while it learns, which pays for long chains.
# - With one request: a long block where a verification is dear, no draft where it is cheap. On a full machine a block of seven wins over
#   a single draft unless its step takes three times as long.
#
# **Next**: [07, train a drafter](07_train_a_drafter.ipynb). What must a drafter learn in order to be accepted?

# %% [markdown]
# **Case 06.** An Eagle3, rewritten for speed, has lost what it had. Measure at most three things, then accuse.

# %%
from dspark_lite.course.cases import case

investigation = case("06")

# %%
show_score("06")

# %% [markdown]
# ## Beyond the core
#
# The lesson is complete without this section.
#
# ### ★ A tree of drafts
#
# The published Eagle3 drafts a *tree* of continuations; here and in the paper's Table 1 every drafter drafts a single sequence.
# [Trees and selectors](more/trees_and_selectors.ipynb) shows how a tree is verified.
