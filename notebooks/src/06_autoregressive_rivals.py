# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=60 difficulty="medium"
# # 06 · Autoregressive rivals
#
# DSpark's network runs once for seven tokens. Its autoregressive rivals run once for each, so they have to be small: one layer, fed with
# the target's hidden states. This lesson builds the strongest of them, Eagle3, and finds out what each further token costs it.
#
# **After this lesson you can**
# - write Eagle3's chain: what each pass reads, and what its cache may keep after the round
# - say why a rival that sees all its drafts has only one layer
# - write the loss that teaches a drafter to live with its own mistakes, the training-time test
# - choose between a chain and a block for a given target and load
#
# **What you need**: taps and their keys and values (lesson 04), the sequential head (05).
# There are four core exercises; if you do only one, do exercise 2.
#
# **Sources**: [EAGLE-3](references.md#eagle3); MTP in the [report on DeepSeek-V3](references.md#mtp); conditional acceptance is
# Figure 2 of the [DSpark paper](references.md#dspark), section 4.3.1. [Notation](notation.md) · [glossary](glossary.md)

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite
from dspark_course.exercises import lesson_06 as exercises
from dspark_course.exercises.predictions import predict
from dspark_course.figures import lesson_06 as figures
from dspark_course.figures import widgets
from dspark_course.figures.strip import strip
from dspark_course.glue import claims, glue

lab = dspark_lite.setup()
lab.max_new_tokens = 80
target, prompt_ids = lab.target, lab.encode(lab.prompts["chat"][0])  # prompt_ids [1, n]
eagle3 = lab.drafter("eagle3")
layer, gamma = eagle3.layers[0], eagle3.gamma
picture = strip("draft")

# %% [markdown]
# ## Its own output as the feature
#
# The target has read the text and left its hidden states. One matrix mixes those of a few layers into a *feature* $f_i$
# per token. The feature knows the text up to $x_i$ and what the target expects next. It does not know which token was
# then drawn, so the drafter's one layer reads that token's embedding $E[x_{i+1}]$ beside it:
#
# $$[\,\text{norm}(E[x_{i+1}])\,;\,\text{norm}(f_i)\,] \;\longrightarrow\; x_{i+2}$$
#
# The next draft would need $f_{i+1}$ beside $E[x_{i+2}]$, and there is none: the target has not read $x_{i+1}$ yet.
# Eagle3's idea: *let the layer's own output
# stand in for it*. It has the same shape, and training can teach the layer to read it. So the chain goes on.
#
# A chess player who thinks ahead does the same. After the first imagined move there is no board to look at, only the
# position in the head.

# %%
picture = figures.wirings()

# %% [markdown]
# Left, Eagle3. Right, MTP-1, the module that DeepSeek-V3 was trained with: it reads the target's *last* hidden state
# only, and drafts one token.
#
# ### Exercise 1 · Pair them (code)
# *5 minutes · easy · core.*
#
# `token_ids` [n] are the tokens that the target has read, `features` [n, H] what it left at each. Return two tensors of
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
# The last feature *waits* until the target has drawn the anchor. The keys and values of the pairs stay in a cache, as
# in lesson 04. Here they are by hand, beside the package's:

# %%
from dspark_lite.losslessness.ties import agree


def side_by_side(token_ids, feature):
    """What the attention reads [B, T, 2 H]: features [B, T, H], each with the token [B, T] that followed it."""
    return torch.cat([layer.input_layernorm(eagle3.embed_tokens(token_ids)), layer.hidden_norm(feature)], -1)


step, _ = target.prefill(prompt_ids, eagle3.taps)
fused = step.features @ eagle3.fc.weight.T  # [1, n, H]
tokens, features = pairs(prompt_ids[0], fused[0])
positions = torch.arange(len(tokens), device=lab.device)[None]  # [1, n - 1]
keys, values = layer.self_attn.keys_values(side_by_side(tokens[None], features[None]), eagle3.rope(positions))
waiting = fused[:, -1:]  # [1, 1, H]

state = eagle3.begin(prompt_ids, step.features)
cached = state.cache.length
assert cached == len(tokens) and agree(waiting, state.waiting) and agree(keys, state.cache.keys[0][:, :, :cached])
print(f"{prompt_ids.shape[1]} tokens: keys and values of {cached} pairs by hand = the package's; one feature waits")

# %% [markdown]
# ## One pass, and the next
#
# One pass is a decoder layer that reads a pair and adds its result to the feature. Its output goes two ways: through
# the LM head it becomes a draft, and unchanged it becomes the next pass's feature.

# %%
import torch.nn.functional as F

from dspark_lite.decoding.sampling import draw, probabilities


def one_pass(cache, token, feature):
    """Output [1, 1, H] for a feature [1, 1, H] and the token [1] after it; `cache` (keys, values) with this pair appended."""
    keys, values = cache
    inputs, rope = side_by_side(token[:, None], feature), eagle3.rope(torch.tensor([[keys.shape[2]]], device=lab.device))
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
# Return the list of the `gamma` drafts after the anchor. `one_pass(cache, token, feature)` returns an output and the
# grown cache, `choose(output)` the token after it. The first pass reads the anchor and the feature that has waited for
# it. What does the second read?
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
picture = figures.chain_figure(lab, prompt_ids[0, -1:].tolist() + anchor.tolist(), drafted.tolist())

# %% [markdown]
# A column is one pass. Only the first reads a feature and a token of the target's (black). Each later one reads the
# output and the draft of the pass before it, and so every earlier mistake.
#
# (The published Eagle3 drafts a *tree* of continuations; here and in the paper's Table 1 every drafter drafts a single sequence.)
#
# ## After the round
#
# Each pass has left its keys and values in the cache. Only the first entry comes from a feature of the target's; all later ones come
# from the drafter's own output. For simplicity we drop them all and enter the right pairs anew. The target's verification brings the
# real features of the anchor and of every accepted draft.
#
# ### Exercise 3 · What stays, what enters (code)
# *10 minutes · medium · core.*
#
# Before the round the cache holds `cached` pairs. `gamma` passes then draft, and `accepted` of the drafts are kept.
# Drop all that the passes left; then enter, with the target's features, the committed tokens that have no pair yet.
# Only the new anchor's pair is left to the next round: its first pass reads it.
# How many entries stay, and how many pairs are entered?
#
# <details><summary>Hint</summary>
#
# The token that follows the last accepted draft is the new anchor. Which tokens stand before it, from the old anchor
# on?
#
# </details>


# %% tags=["exercise"]
def after_round(cached, gamma, accepted):
    """(entries that stay, pairs that are entered)."""
    return ...


# %% tags=["solution"]
def after_round(cached, gamma, accepted):
    """(entries that stay, pairs that are entered)."""
    return cached, accepted + 1


# %%
done = exercises.check_after_round(after_round)

# %%
stale = predict("No entry is ever taken back: (a) are the answers still the target's? (b) Are more, as many or fewer tokens "
                "committed per round?", ..., ...)

# %%
import copy

from dspark_course.measure import evaluation


class NeverRollsBack(type(eagle3)):
    """Leaves the entries of its own passes in the cache."""

    def draw_chain(self, state, anchor, length, temperature, generator):
        drawn = super().draw_chain(state, anchor, length, temperature, generator)
        state.cache.length += length
        return drawn


careless = copy.copy(eagle3)  # the same weights under another class; the lab's drafter stays as it is
careless.__class__ = NeverRollsBack
per_round = {}
for name, drafter in (("rolled back", eagle3), ("never rolled back", careless)):
    runs = evaluation.rollouts(lab, drafter, lab.prompts["chat"][:8], temperature=1.0)
    per_round[name] = evaluation.mean_accepted_length([evaluation.tally(runs)])
    print(f"{name:18} {per_round[name]:.2f} tokens per round on {len(runs)} chat prompts")
fewer = "{:.2f} tokens in place of {:.2f}".format(per_round["never rolled back"], per_round["rolled back"])
stale.beside(f"(a) still the target's, by lesson 02; (b) {fewer}, measured", label="answer")

# %% tags=["claim"]
claims({"entries that are never taken back cost tokens": per_round["never rolled back"] < per_round["rolled back"]})

# %% [markdown]
# The rule of lesson 02 corrects any drafter, so the answers do not show the mistake. Only the speed does: old guesses
# stay in view as if they were text, and push the later pairs further from their place.
#
# ## What a longer draft costs
#
# Each further token costs the chain another pass. A block drafter's layers compute the whole
# block in any case; only the LM head and the draws stop at the length asked for. We time drafts
# of 1 to 7 tokens, each right after a verification.

# %%
from dspark_course.measure.draft_times import draft_times

eagle3 = layer = careless = None  # only the lab holds a drafter from here on: two beside the target may not fit
names = [name for name in ("mtp", "eagle3", "dflash", "dspark") if name in lab.drafters]
draft_ms, plain_ms, verify_ms = draft_times(lab, names, prompt_ids, gamma)
picture = figures.draft_cost(draft_ms, lab.device_name)

# %% [markdown]
# Eagle3's line climbs by a pass per token, a block drafter's far less. For one or two tokens the chain is
# cheaper; somewhere before seven the lines cross. **This is why an autoregressive drafter has few layers:** it pays for
# them once per token, a block drafter once per block. So the paper compares drafters of equal *latency*, one layer of
# Eagle3 beside five of DSpark. Here, too, DSpark has more layers.
#
# MTP-1 stops after one token. On a full machine, one whose room (lesson 01) other requests have filled, a pass of the target
# takes time in proportion to the tokens sent. Is stopping so
# early timid there, or wise?

# %%
crowded = predict("Each draft is accepted with chance 0.8, given those before. Which commits most per token sent through the target: plain "
                  "decoding, MTP-1, or the same module chained for 3 or 5 tokens?", ...)

# %%
per_token_sent = {}
for name, k in {"plain decoding": 0, "MTP-1": 1, "MTP-3": 3, "MTP-5": 5}.items():
    per_token_sent[name] = sum(0.8**j for j in range(k + 1)) / (k + 1)
    print(f"{name:14} {per_token_sent[name] * (k + 1):.2f} tokens per round, {per_token_sent[name]:.2f} per token sent")
crowded.beside(max(per_token_sent, key=per_token_sent.get), label="computed")

# %% [markdown]
# On a full machine every drafter loses, and the one that drafts least loses least; on an emptier one a draft still pays. MTP-1 is the
# cautious compromise. So DeepSeek kept MTP-1 in production for a long time (section 5.4 of the DSpark paper). DSpark's answer is to cut
# its blocks as the machine fills: lessons 09 to 11.
#
# ## What the drafts are worth
#
# Of the rounds that *reached* position $k$, let $\alpha_k$ be the share that accepted it. A round with three accepted
# drafts has reached positions 1 to 4, and was refused at 4. Above, ours, from 100 prompts per domain; below, the
# paper's Figure 2.

# %%
from dspark_course.common import paper
from dspark_course.measure import studies
from dspark_course.replication import our_results

stored = {name: studies.TABLE_1[name] for name in paper.LABELS}
here = {domain: {name: our_results.conditional_acceptance(recipe, domain) for name, recipe in stored.items()} for domain in lab.prompts}
there = {domain: {name: paper.conditional_acceptance(name, domain) for name in stored} for domain in lab.prompts}
taus = ({domain: {name: our_results.accepted_lengths(recipe)[domain].value for name, recipe in stored.items()} for domain in lab.prompts},
        {domain: {name: paper.domain_means("Qwen3-4B", name)[domain] for name in stored} for domain in lab.prompts})
best = [{domain: max(found, key=found.get) for domain, found in by_domain.items()} for by_domain in taus]
picture = figures.here_and_paper(here, there, best)
glue(paper_gain=paper.macro_gain("Qwen3-4B", "dspark", "eagle3"))

# %% tags=["claim"]
first, last = ({name: here["chat"][name][at].value for name in stored} for at in (0, -1))
claims({"on chat DFlash falls furthest": max(stored, key=lambda name: first[name] - last[name]) == "dflash"})

# %% [markdown]
# Read a curve from both ends. Its *height at the first position* tells how good the network is before anything was drafted: a block
# drafter can afford more layers, and may begin higher. Its *fall* tells what the drafter cannot see. DFlash sees none of its drafts,
# DSpark one, Eagle3 all of them: its curve hardly falls, and in places it rises, since the rounds that come far have, mostly, easy text.
# So DSpark wins where it begins high enough to stay ahead, as in the paper's three panels and on math here. On code and chat here the
# two begin at about the same height, and its lead in $\tau$ is smaller.
#
# In tokens per round, over the three domains, DSpark stands at ⟦paper_gain:+.0 %⟧ against Eagle3 in the paper, at
# ⟦canon.gain_over_eagle3:+.0 %⟧ here.
#
# ### Exercise 4 · Two shapes, one length (think)
# *10 minutes · medium.*
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
#
# ## Learning from one's own mistakes
#
# From the second pass on Eagle3 reads its own output. The obvious training never shows it such an input: it gives the
# layer the target's features all along the text. That is *teacher forcing*, like learning to drive beside somebody who
# turns the wheel back at once. The *training-time test* trains Eagle3 as it will draft: it unrolls a chain like yours
# from every place of the text, and scores every pass.
#
# ### Exercise 5 · Train as you draft (code)
# *15 minutes · hard · core.*
#
# Write the loss of one chain. `tokens` are the text's, the anchor first. Run one pass for each of them: pass $k$ reads the $k$-th,
# whatever the drafter would have chosen: a later draft counts only if those before it were accepted, so that they are the text.
# `features` are the target's, one beside each token. Which of them does a chain read? `loss_of(output, k)` gives the loss of pass $k$,
# from 1 on. Return the weighted mean of the losses; pass $k$ weighs `decay ** (k - 1)`.
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
# With `decay` 0 only the first pass of each chain counts, and that one reads the target's feature. A chain starts at every
# place of the text, so this is teacher forcing. We train two
# small Eagle3 on a toy target, alike but for `decay`, and let both read new texts. Pass $k$ reads the target's features
# (grey) or its own output (colour).

# %%
import tempfile
from pathlib import Path

from dspark_course.measure.chains import by_pass, chances
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.training.cache import build_cache
from dspark_lite.training.drafts import train_draft

toy_target, _ = toy_models(seed=4, vocab_size=11)
folder, generator = Path(tempfile.mkdtemp()), torch.Generator().manual_seed(0)
texts = torch.randint(11, (768, 2), generator=generator)
with torch.inference_mode():
    while texts.shape[1] < 24:  # texts [768, 24], drawn from the toy target
        texts = torch.cat([texts, draw(probabilities(toy_target.model(texts).logits[:, -1], 1.0), generator)[:, None]], 1)
toy_cache = build_cache(toy_target, [(text, 1) for text in texts[:512].tolist()], (0, 1), folder / "cache")
curves = {}
for name, decay in (("teacher forcing", 0.0), ("training-time test", 0.8)):
    recipe = {"name": name, "seed": 1, "epochs": 24, "batch": 64, "learning_rate": 0.01, "precision": "float32", "config": {
        "drafter": "eagle3", "num_hidden_layers": 1, "ttt_length": 5, "target_layer_ids": [0, 1], "step_loss_decay": decay}}
    curves[name] = by_pass([chances(toy_target, train_draft(recipe, toy_target, toy_cache, folder / name), texts[512:], 1)])
picture = figures.passes_figure(curves)
glue(forced=curves["teacher forcing"][1][-1], unrolled=curves["training-time test"][1][-1])

# %% tags=["claim"]
forced, unrolled = (curves[name] for name in ("teacher forcing", "training-time test"))
claims({"by the grey lines teacher forcing ends higher": forced[0][-1] > unrolled[0][-1],
        "on its own output the training-time test ends higher": unrolled[1][-1] > forced[1][-1],
        "the training-time test begins lower": unrolled[1][0] < forced[1][0]})

# %% [markdown]
# By the grey lines, which are all that teacher forcing ever sees, it is the better training. But no drafter has the
# target's features there. Each on its own output, the last draft is accepted with chance ⟦forced:.2f⟧ after teacher
# forcing, with ⟦unrolled:.2f⟧ after the training-time test. One layer has to serve five passes; that costs a little at
# the first draft and pays after it. DSpark needs none of this: its backbone never reads a draft.
#
# ## Cost and worth together
#
# Lesson 01's $L = (T_\text{draft} + T_\text{verify}) / \tau$ once more, by draft length, with the acceptances above. Choose the domain,
# and what a verification costs: on a large model it dwarfs the draft. (The panel charges the same at every draft length, so it does not
# describe the full machine above.)

# %%
import numpy as np

rates = {domain: {name: [estimate.value for estimate in our_results.conditional_acceptance(studies.TABLE_1[name], domain)]
                  for name in names} for domain in lab.prompts}


def explore_length(domain, verify):
    """Milliseconds per token by draft length, for every drafter, where a verification takes `verify` milliseconds."""
    curves = {name: [(draft + verify) / tau for draft, tau in zip(cost.values(), 1 + np.cumsum(np.cumprod(rates[domain][name])))]
              for name, cost in draft_ms.items()}
    return figures.token_cost(curves, verify * plain_ms / verify_ms, f"{domain}, a verification takes {verify:.1f} ms")


panel = widgets.explore(explore_length, {"verify": 0.5}, domain=widgets.menu("domain", list(lab.prompts)[::-1]),
                        verify=widgets.slider("verification (ms)", round(verify_ms, 1), 0.5, round(20 * verify_ms, 1), 0.5))

# %% [markdown]
# At the slider's right end the draft costs next to nothing, and the larger $\tau$ wins. At the left end a further pass
# costs the chain more than it brings, the block is paid already, and plain decoding may beat them all.
#
# ## The scoreboard

# %%
from dspark_course.figures.scoreboard import by_domain, scoreboard_figure

picture = scoreboard_figure("small_lm", "dflash", "eagle3", "mtp", "dspark")

# %% tags=["claim"]
claims({"the small LM is never the fastest, however many tokens it commits": all(
    by_domain("small_lm", "speedup") < np.maximum(by_domain("eagle3", "speedup"), by_domain("dspark", "speedup"))),
        "on code it commits more than DFlash and is less than half as fast":
            by_domain("small_lm", "accepted_length")[1] > by_domain("dflash", "accepted_length")[1]
            and by_domain("small_lm", "speedup")[1] < by_domain("dflash", "speedup")[1] / 2})

# %% [markdown]
# **Tokens per round are not speed.** Many heavy steps (the small LM), several light ones (Eagle3), one (DFlash), one
# and seven tiny ones (DSpark): each pays differently for the same block. On code the small LM commits a little more than
# DFlash per round, and is less than half as fast.
# [Which drafter, and when not to](which_drafter.md) is a page to keep.
#
# > **How sure are we?** All drafters learned from the same answers, each at the learning rate that suits it. Acceptance
# > comes from 100 prompts per domain, speed from twenty on one thread; the toys are one seed each. Lesson 12 says which
# > of the paper's claims about these rivals hold here.
#
# ## Recap
#
# - Eagle3 reads a feature and the token after it; while it drafts, its own output takes the feature's place.
# - After a round its cache is rolled back and filled again with the target's features. Who forgets that loses speed,
#   never correctness.
# - A chain pays a pass per token, so it has one layer; a block pays for its depth once.
# - A curve's first point is the network, its fall is what the drafter does not see.
# - Teacher forcing shows a drafter what it will not have. The training-time test unrolls the chain while it learns.
#
# **Next**: [07, train a drafter](07_train_a_drafter.ipynb). What must a drafter learn in order to be accepted?
