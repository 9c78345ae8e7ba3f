# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=85 difficulty="medium"
# # 04 · Draft a block at once
#
# The small LM of lesson 03 runs once for every token it drafts. Could *one* pass write all seven? It can, and this lesson
# builds that pass. But first comes what nobody can build away: seven *slots* (places of a block) that are filled at the same
# moment do not know what the others wrote.
#
# **After this lesson you can**
# - say which blocks a parallel drafter must get wrong, and count what that costs
# - show why the committed text is right all the same
# - draw DFlash: what it takes from the target, and where
# - write its pass over a block, and hold it against the package's
#
# **What you need**: the accept rule (lesson 02), the price of a draft (03), and attention with queries, keys and values.
# There are three core exercises; if you do only one, do exercise 3.
#
# **Sources**: [DFlash](../docs/references.md#dflash); the [DSpark paper](../docs/references.md#dspark), sections 2 and 3.1; the collision is
# known from [translation without autoregression](../docs/references.md#nat). [Notation](../docs/notation.md) · [glossary](../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import torch
import torch.nn.functional as F

import dspark_lite
from dspark_lite.course.bets import bet, show_score
from dspark_lite.course.exercises import lesson_04 as exercises
from dspark_lite.course.own_decoder.keep import keep
from dspark_lite.course.figures import lesson_04 as figures
from dspark_lite.course.figures import token_boxes, widgets
from dspark_lite.course.figures.living_round import living_round
from dspark_lite.course.lesson_text import claims, glue
from dspark_lite.course.measure.recorded_rounds import record_rounds

lab = dspark_lite.setup()
lab.max_new_tokens = 80  # enough for what we look at
dflash = lab.drafter("dflash")

# %% [markdown]
# ## Two slots, four words
#
# Somebody says thank you. The answer is "of course" or "no problem", each with probability one half. Two slots draft the two
# words in one pass. Slot 1 knows that "of" and "no" are equally likely. Slot 2 knows that "course" and "problem" are. Both
# are perfectly right, and each draws without seeing the other's draw. We call this *drawing apart*: the draws are independent.

# %%
two_kept = bet("04 two slots")

# %% [markdown]
# The draws can turn out in four ways. Here is each, with what lesson 02's rule keeps and commits:

# %% tags=["answer"]
from dspark_lite.course.own_decoder.verifying import verify

words = [["of", "no"], ["course", "problem"]]
joint = torch.tensor([[0.5, 0.0], [0.0, 0.5]])  # the target: rows "of", "no"; columns "course", "problem"
slot_1, slot_2 = joint.sum(1), joint.sum(0)  # both slots are right
after = joint / joint.sum(1, keepdim=True)  # the target's second word after each first
mean, committed_text = 0.0, {}
print("drafted        chance   kept   committed")
for first in range(2):
    for second in range(2):
        chance = float(slot_1[first] * slot_2[second])
        p = torch.stack([slot_1, after[first], after[first]])  # the last row draws the bonus token, cut off below
        text = verify(p, torch.stack([slot_1, slot_2]), [first, second], torch.Generator().manual_seed(0))
        kept = len(text) - 1
        block, committed = (f"{words[0][a]} {words[1][b]}" for a, b in ((first, second), text[:2]))
        print(f"{block:13} {chance:7.0%} {kept:6}   {committed}")
        mean += chance * kept
        committed_text[committed] = committed_text.get(committed, 0.0) + chance
assert committed_text == {"of course": 0.5, "no problem": 0.5}
two_kept.settle(f"{mean:.1f} of 2", "counted over the four ways")
glue(mean=mean)

# %% [markdown]
# The committed text is exactly the target's, half "of course" and half "no problem". *Quality of the draft decides how fast; the rule
# decides what.*
#
# <details><summary>After your bet</summary>
#
# Half of the blocks say "of problem" or "no course", which nobody would write. The rule keeps their first word and replaces the
# second, so ⟦mean:.1f⟧ of two drafts survive on average.
#
# </details>
#
# Such a wrong pair is a [multi-modal collision](../docs/glossary.md#collision): a *mode* is one of the ways in which a text can go on, and
# slots that draw apart may begin one and continue with another.

# %%
picture = figures.pair_maps({"the target": joint, "two slots, each one right": slot_1[:, None] * slot_2}, *words)

# %% [markdown]
# Left, the target's chances of the four pairs; right, those of two slots that draw apart. Their table has to be a product, row times
# column, and a product that fills both cells of a diagonal fills the other two as well. These are framed: pairs that the target hardly ever
# writes (less than once in 200 times), the *waste*.
#
# ### Exercise 1 · What two slots are worth (code)
# *10 minutes · medium · core.*
#
# The target writes pairs with the chances `joint` [m, n]: a row for each first word, a column for each second. Two slots draw
# apart, from `q1` [m] and `q2` [n]. Return how many of the two drafts are kept on average. The second counts only where the
# first was kept.
#
# <details><summary>Hint</summary>
#
# With probability $\min(p(x_1), q_1(x_1))$ the first draft is the word $x_1$ and is kept. After $x_1$ the second is kept with
# probability $\sum_{x_2} \min(p(x_2 \mid x_1), q_2(x_2))$.
#
# </details>


# %% tags=["exercise"]
def kept(joint, q1, q2):
    """How many of two drafts are kept on average; joint [m, n], q1 [m] and q2 [n] of independent slots."""
    ...


# %% tags=["solution"]
def kept(joint, q1, q2):
    """How many of two drafts are kept on average; joint [m, n], q1 [m] and q2 [n] of independent slots."""
    p1 = joint.sum(1)
    second = torch.minimum(joint / p1[:, None], q2).sum(1)  # [m], kept after each first word
    return torch.minimum(p1, q1) @ (1 + second)


# %%
done = exercises.check_kept(kept)

# %% [markdown]
# ### Exercise 2 · The best that two slots can do (think)
# *10 minutes · hard · core.*
#
# Now "of course" has 0.6 and "no problem" 0.4. Three drafters: (A) each slot has the target's own shares; (B) each slot always
# drafts its likeliest word; (C) slot 1 has the target's shares, slot 2 always drafts "course". How many drafts are kept by
# each, and how many of their blocks are nonsense? Can other slots that draw apart do better? Your `kept` can check you:
# `kept(torch.diag(torch.tensor([0.6, 0.4])), q1, q2)`.
#
# <details><summary>Hint</summary>
#
# With $q_1 = (s, 1 - s)$ and $q_2 = (t, 1 - t)$ the second draft is kept with chance $t$ after "of", with $1 - t$ after
# "no".
#
# </details>
# <details><summary>Answer</summary>
#
# The number kept is $\min(0.6, s)(1 + t) + \min(0.4, 1 - s)(2 - t)$.
# (A) $1.52$, and 48 % of the blocks are nonsense. (B) $1.2$, and none is. (C) $1.6$, and 40 %.
# For every $t$ the best $s$ is 0.6; then the number is $1.4 + 0.2\,t$, so (C) is the best there is. A drafter whose second slot
# *knows* the first word keeps both, always.
#
# (B) never writes nonsense, yet it is the worst: it never drafts "no", so it loses many first drafts. (C) is right about the first
# word, gives up one second word, and wins. So training can only choose how to lose: slots that draw apart never keep two phrasings in
# full.
#
# </details>
#
# ## The same in a real answer
#
# DFlash drafts in this way, seven slots in one pass. We let the target answer a few chat prompts and look for the place where
# slots that draw apart would waste most; the output shows the end of the text there. Left, how often the target writes each pair of
# next tokens; right, how often DFlash's first two slots draw it. (A dot is a blank. Both tables show only
# a few likely tokens, and shares are of what is shown.)

# %% tags=["folded"]
# @title Find the place, and draw both tables of pairs
from dspark_lite.course.measure import multimodality

readings = [multimodality.read_answer(lab, dflash, prompt, seed) for seed, prompt in enumerate(lab.prompts["chat"][:4])]
reading, place = multimodality.colliding(lab, readings)
number = next(k for k, found in enumerate(readings) if found is reading)  # of the prompt
first, pairs = multimodality.target_pairs(lab.target, reading.ids[:, :place + 1])  # [5], [5, V]
second = pairs.sum(0).topk(5).indices
state = dflash.begin(reading.ids[:, :place], reading.features[:, :place])
slots = dflash.propose(state, reading.ids[:, place], temperature=1.0, generator=lab.generator()).probs[0]  # [g, V]
tables = {"the target": pairs[:, second], "DFlash's first two slots": slots[0, first][:, None] * slots[1, second]}
print("...", " ".join(lab.decode(reading.ids[0, reading.start:place + 1]).split()[-12:]))
picture = figures.pair_maps(tables, token_boxes.token_labels(lab, first), token_boxes.token_labels(lab, second))
drafted = tables["DFlash's first two slots"]
unwritten = torch.where(tables["the target"] < 0.005, drafted, 0.0)  # chances of the pairs that nobody would write
nonsense = multimodality.waste(drafted, tables["the target"])
at_best = multimodality.wasted(tables["the target"])  # of two slots with the target's own shares

# %% tags=["claim"]
row, column = divmod(unwritten.argmax().item(), unwritten.shape[1])
glue(nonsense=nonsense, at_best=at_best, pair=lab.decode([first[row], second[column]]).strip())
favourites = [slot.argmax().item() for slot in slots[:2]]
claims({"at this place a third or more of what DFlash drafts is hardly ever written": nonsense > 1 / 3,
        "most of it perfect slots would waste, too, and not all": nonsense / 2 < at_best < nonsense - 0.05,
        "the worst pair joins the likeliest tokens of the two slots": favourites == [first[row].item(), second[column].item()]})

# %% [markdown]
# Of what DFlash draws ⟦nonsense:.0 %⟧ is waste, "⟦pair⟧" above all: each of its words has a place in some phrasing; the pair has none. Two
# *perfect* slots, with the target's own shares of first and of second words, would still waste ⟦at_best:.0 %⟧.
#
# In rounds of another answer to the same prompt you see all slots draw at once, and what becomes of it. The first refusal is a collision:
# "⟦before⟧" and "⟦refused⟧" come from two phrasings ("here is", "let us"). Later ones may be a slot's own mistake.

# %%
played = record_rounds(lab, dflash, lab.prompts["chat"][number])
picture = living_round("collide", played)

# %% tags=["claim"]
r = played[0]
refused, before = r.drafts[r.accepted], r.drafts[r.accepted - 1]
claims({"the first refused draft is likely by its own slot, impossible after the drafts before it": refused.q > 0.3 and refused.p < 0.005,
        "the draft before it is kept, and another phrasing": before.kept and r.accepted > 0 and (before.text, refused.text) == (" here", " us"),
        "each slot has the other phrasing's word, too": all(
            word in [text for text, *_ in draft.top] for word, draft in ((" let", before), (" is", refused)))})
glue(before=before.text.strip(), refused=refused.text.strip())

# %% [markdown]
# Collisions can get worse along the block: the second slot has to cover what may follow any first word, the seventh what may follow any
# six. We measure [**conditional acceptance**](../docs/glossary.md#conditional-acceptance): of the drafts whose predecessors were all kept,
# the share that is kept, too. Beside DFlash (the mean of three trainings) stands the small LM (one training), which sees its own drafts. The
# titles give DFlash's first and last position.

# %%
better_first = bet("04 first drafts")

# %% tags=["folded", "answer"]
# @title Draw the share that is kept at each position
from dspark_lite.course.measure import studies
from dspark_lite.course.replication import acceptance_over_seeds, experiment_results

by_position = {domain: {"dflash": acceptance_over_seeds.acceptances(studies.SEEDS["dflash"], domain),
                        "small_lm": experiment_results.conditional_acceptance(studies.TABLE_1["small_lm"], domain)} for domain in lab.prompts}
picture = figures.falling_acceptance({domain: by_position[domain] for domain in ("math", "chat")})
firsts = {name: {domain: found[name][0] for domain, found in by_position.items()} for name in ("dflash", "small_lm")}
ahead = {name: all(firsts[name][domain].low > firsts[other][domain].high for domain in lab.prompts)
         for name, other in (("dflash", "small_lm"), ("small_lm", "dflash"))}
better_first.settle("DFlash's" if ahead["dflash"] else "the small LM's" if ahead["small_lm"] else "neither in every domain",
                    "; ".join(f"{domain}: DFlash {firsts['dflash'][domain].value:.0%}, small LM {firsts['small_lm'][domain].value:.0%}"
                              for domain in lab.prompts))
chat = by_position["chat"]["dflash"]
with_a_head = acceptance_over_seeds.rise(studies.LOSSES["dspark"], "chat")  # as DFlash, and a head: lesson 05
alone = acceptance_over_seeds.rise(studies.SEEDS["dflash"], "chat")
glue(first_draft=chat[0].value, late_draft=chat[4].value, last_draft=chat[-1].value, fall=-100 * alone.value, mended=-100 * with_a_head.value)

# %% tags=["claim"]
claims({"on chat DFlash falls": alone.high < -0.15, "from the fifth position on it stays about level": chat[-1].value > chat[4].value - 0.05,
        "the small LM does not fall on chat": by_position["chat"]["small_lm"][-1].value > by_position["chat"]["small_lm"][0].value - 0.02,
        "in every domain DFlash's first drafts are kept more often": all(firsts["dflash"][domain].low > firsts["small_lm"][domain].high for domain in lab.prompts),
        "with a head and nothing else changed the fall is less than half": alone.high < 2 * with_a_head.low})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# On chat, where there are many ways to go on, ⟦first_draft:.0 %⟧ of DFlash's first drafts are kept, ⟦late_draft:.0 %⟧ at the fifth
# position, ⟦last_draft:.0 %⟧ at the last. The small LM does not fall there: it reads each draft before it writes the next. (It even rises,
# presumably because a round reaches late positions in easy text only.)
#
# DFlash's first slot has nothing to collide with, so it shows how good the *network* and its training are: there DFlash beats the small LM in
# every domain.
#
# </details>
#
# How much of this fall is *drawing apart*? Lesson 05 adds a head that lets a slot see the draft before it. With it, and
# nothing else changed, the fall on chat is ⟦mended:.0f⟧ points instead of ⟦fall:.0f⟧ (three trainings of each). So most of the fall
# ([suffix decay](../docs/glossary.md#suffix-decay)) is what slots cannot see. What the rest is, we do not know.
#
# ## What one pass saves
#
# A small LM pays for $\gamma$ passes per block, DFlash for one (each drafter has its own price $c$ of a pass).

# %%
beside_small = bet("04 tokens a round")

# %% tags=["answer"]
from dspark_lite.course.replication.benchmark_results import BEST, by_domain, cost_in_passes

lengths = {name: by_domain(name, "accepted_length") for name in ("dflash", "small_lm")}
ratio = (lengths["dflash"] / lengths["small_lm"]).mean()
beside_small.settle("clearly more" if ratio > 1.15 else "clearly fewer" if ratio < 0.85 else "about as many",
                    "; ".join(f"{domain}: {ours:.1f} against {theirs:.1f}" for domain, ours, theirs in zip(lab.prompts, *lengths.values())))

# %% tags=["claim"]
drafting = {name: cost_in_passes(name, "draft").mean() for name in ("small_lm", "dflash")}
whole = {name: drafting[name] + cost_in_passes(name, "verify").mean() for name in drafting}
glue(cheaper=drafting["small_lm"] / drafting["dflash"], **{f"share_{name}": drafting[name] / whole[name] for name in drafting},
     faster=(by_domain("dflash", "speedup") / by_domain("small_lm", "speedup")).mean())
least = [list(lab.prompts)[by_domain("dflash", column).argmin()] for column in ("accepted_length", "speedup")]
claims({"drafting costs DFlash less than half of what it costs the small LM": 2 * drafting["dflash"] < drafting["small_lm"],
        "in every domain DFlash brings about as many tokens per round as the small LM": abs(
            by_domain("dflash", "accepted_length") / by_domain("small_lm", "accepted_length") - 1).max() < 0.1,
        "and so do all three trainings": all(abs(gain.value) < 0.15 for seed in studies.SEEDS["dflash"]
                                             for gain in experiment_results.gains(seed, studies.TABLE_1["small_lm"]).values()),
        "in every domain DFlash is faster than the small LM, at its best length, too": all(
            (by_domain("dflash", "speedup") > by_domain(name, "speedup")).all() for name in ("small_lm", BEST)),
        "of the domains, DFlash brings the fewest tokens per round on chat, and gains least": least == ["chat", "chat"],
        "so does the small LM": [by_domain("small_lm", column).argmin() for column in ("accepted_length", "speedup")] == [2, 2]})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# A round of DFlash brings about as many tokens as one of the small LM with seven drafts, in every domain.
#
# </details>
#
# Drafting has become about ⟦cheaper:words⟧ times as cheap. It took ⟦share_small_lm:.0 %⟧ of the small LM's round, and takes ⟦share_dflash:.0 %⟧ of
# DFlash's. So DFlash is about ⟦faster:.1f⟧ times as fast as the small LM with seven drafts, and the small LM at its best lengths does not come near it.
#
# On chat, where many phrasings compete, both have their shortest rounds and gain least over plain decoding. Yet you pay for seven slots as
# everywhere, and the last ones are most often thrown away.
#
# ## How one pass fills seven slots
#
# Now build the network. A small LM reads the prompt with its own, weaker layers. DFlash reads what the *target* has computed about it.

# %%
picture = figures.dflash_picture(lab.target.num_layers, dflash.taps, len(dflash.layers), dflash.gamma)

# %% [markdown]
# Read the figure from the left, in three steps.
#
# 1. [**Taps**](../docs/glossary.md#context-features) (blue). While the target reads, it computes a hidden state after every layer anyway. For
#    each token the states of a few layers, spread evenly over the target's depth, are laid side by side; a matrix ($W_c$) and a norm make one
#    *context vector* of them.
# 2. **Keys and values** (blue arrows). Each layer of the draft turns the context vectors into keys and values, with matrices of its own. The
#    block's slots look at them; the context vectors themselves look at nothing, so no layer changes them. Hence the keys and values of a
#    token are computed once, and kept for all later rounds.
# 3. **The block** (orange). The anchor and six [*masks*](../docs/glossary.md#mask-token) go in below, a mask being a token that says
#    "unknown". All masks have the same embedding: only its *position* (RoPE) tells a mask that it is, say, the third. Each slot comes out
#    above as a distribution, through the target's own LM head: the anchor's slot drafts the first token, each mask one more. That this works
#    is training: each slot had to name the token that the target wrote there.
#
# Why does the anchor stand in the block, and not in the context? The target has not read this newest token yet, so there are no hidden
# states to tap. The target reads the anchor with the drafts; then the anchor and the accepted drafts move into the context.
#
# One question the figure leaves open. A target that verifies a block hides from each token all that stand to its right: a *causal mask*.

# %%
hidden_from_a_slot = bet("04 hidden from a slot")

# %% [markdown]
# Now build it. `Draft` is a gift for your own file. It holds a released draft's weights, and small parts of a layer that you know from any
# transformer. First steps 1 and 2, ours beside the package's, at the place of the tables of pairs. In the folded cell `features` are the
# target's tapped states of the text there, one row per token, and `state` is the context that the package makes of them.

# %% tags=["folded"]
# @title Take the text before that place, and let the package make its context
def agree(ours, theirs):
    """Whether two tensors are equal up to rounding in the data type of the second."""
    return (ours.cpu() - theirs.float().cpu()).abs().max() <= 32 * torch.finfo(theirs.dtype).eps * theirs.abs().max().cpu()


read_ids, anchor = reading.ids[:, :place], reading.ids[:, place]  # [1, n], [1]; the anchor is the newest token, not read yet
state = dflash.begin(read_ids, reading.features[:, :place])  # the package's context
features = reading.features[0, :place].float().cpu()  # [n, taps * H]

# %%
from dspark_lite.course.names import PROFILES
from dspark_lite.course.own_decoder.my_dspark import Draft
from dspark_lite.models.checkpoints import resolve

draft = Draft(resolve(PROFILES[lab.profile]["dflash"]))
context = draft.norm(F.linear(features, draft.w["fc.weight"]), "hidden_norm")  # 1: context vectors [n, H]
keys, values = draft.keys_values(context, "layers.0", start=0)  # 2: of the first layer, [heads, n, d]
n = len(context)
assert agree(keys, state.keys[0][0, :, :n]) and agree(values, state.values[0][0, :, :n])

draft.extend(features)  # the same for all layers, kept in draft.context
print(f"One of {n} context tokens: {features.shape[1]} numbers from {len(dflash.taps)} taps\n-> a context vector of {context.shape[1]}"
      f"\n-> in each of {len(draft.context)} layers a key and a value, {len(keys)} heads of {keys.shape[2]} each")

# %% [markdown]
# Ours agree with the package's. The output follows one token from its taps to its keys. Four members of `draft` fill the holes below:
#
# | Member | What it is |
# |---|---|
# | `draft.gamma` | how many tokens a block drafts |
# | `draft.length` | n, the number of tokens in the context |
# | `draft.context` | per layer, keys and values of the context: [kv heads, n, d] each |
# | `draft.config["mask_token_id"]` | the token that says "unknown" |
#
# <details><summary>The members that the rest of the pass calls</summary>
#
# | Member | What it is |
# |---|---|
# | `draft.w[name]` | a weight of the draft, by its name in the file |
# | `draft.norm(x, name)` | x, normed with the weight of this name |
# | `draft.heads(x, name)` | a linear map of x [k, H], split into heads: [heads, k, d] |
# | `draft.rotate(x, start)` | x [heads, k, d], rotated by positions start, start + 1, ... (RoPE) |
# | `draft.keys_values(x, layer, start)` | keys (rotated) and values of x in a layer: [kv heads, k, d] each |
# | `draft.mlp(x, layer)` | what the layer's MLP adds to x |
# | `draft.extend(features)` | appends tapped tokens to the context (steps 1 and 2, all layers) |
#
# </details>
#
# (H is the hidden size, d a head's; a kv head, of keys and values, serves several heads of queries.)
#
# ### Exercise 3 · The pass (code)
# *15 minutes · medium · core. If you do only one, do this.*
#
# Here is step 3 up to the LM head. It is any transformer's attention, but for one line: the keys and values of the context come
# before the block's own. Three holes are left, each a decision about blocks: what goes in, where it stands, who sees whom. The context
# stands at positions 0 to n - 1. (Code and checker count from 0: slot 0, the anchor's, writes draft 1.)
#
# <details><summary>Hint</summary>
#
# (1) How many slots draft `gamma` tokens, if the anchor's own slot drafts the first? (2) Keys were rotated by absolute
# positions; which is the first free one? (3) A causal mask hides the answer that stands to the right. What stands to the
# right of a slot in a block?
#
# </details>


# %% tags=["exercise"]
def block_pass(draft, anchor):
    """Hidden states [g, H] of one pass over the block, `draft.gamma` slots that begin with the anchor, a token id."""
    # hole 1: the block's tokens [g]
    ids = ...
    # hole 2: the position of its first slot
    start = ...
    # hole 3: Boolean [g, draft.length + g], True where a slot (row) may see a key (column),
    # the context's keys first
    mask = ...
    x = draft.w["embed_tokens.weight"][ids]  # [g, H]
    for number, context in enumerate(draft.context):  # context: the layer's keys and values, [kv heads, n, d] each
        layer = f"layers.{number}"
        y = draft.norm(x, f"{layer}.input_layernorm")  # [g, H]
        queries = draft.norm(draft.heads(y, f"{layer}.self_attn.q_proj"), f"{layer}.self_attn.q_norm")  # [heads, g, d]
        keys, values = (torch.cat(pair, 1) for pair in zip(context, draft.keys_values(y, layer, start)))  # [kv heads, n + g, d] each
        mixed = F.scaled_dot_product_attention(
            draft.rotate(queries, start)[None], keys[None], values[None], mask, enable_gqa=True)[0]  # [heads, g, d]
        x = x + F.linear(mixed.transpose(0, 1).flatten(1), draft.w[f"{layer}.self_attn.o_proj.weight"])  # [g, heads * d] -> [g, H]
        x = x + draft.mlp(x, layer)  # each slot by itself
    return draft.norm(x, "norm")


# %% tags=["solution"]
def block_pass(draft, anchor):
    """Hidden states [g, H] of one pass over the block, `draft.gamma` slots that begin with the anchor, a token id."""
    ids = torch.tensor([anchor, *[draft.config["mask_token_id"]] * (draft.gamma - 1)])  # the block's tokens [g]
    start = draft.length  # where its first slot stands
    mask = torch.ones(draft.gamma, draft.length + draft.gamma, dtype=torch.bool)  # which keys (columns) a slot (row) may see
    x = draft.w["embed_tokens.weight"][ids]  # [g, H]
    for number, context in enumerate(draft.context):  # context: the layer's keys and values, [kv heads, n, d] each
        layer = f"layers.{number}"
        y = draft.norm(x, f"{layer}.input_layernorm")  # [g, H]
        queries = draft.norm(draft.heads(y, f"{layer}.self_attn.q_proj"), f"{layer}.self_attn.q_norm")  # [heads, g, d]
        keys, values = (torch.cat(pair, 1) for pair in zip(context, draft.keys_values(y, layer, start)))  # [kv heads, n + g, d] each
        mixed = F.scaled_dot_product_attention(
            draft.rotate(queries, start)[None], keys[None], values[None], mask, enable_gqa=True)[0]  # [heads, g, d]
        x = x + F.linear(mixed.transpose(0, 1).flatten(1), draft.w[f"{layer}.self_attn.o_proj.weight"])  # [g, heads * d] -> [g, H]
        x = x + draft.mlp(x, layer)  # each slot by itself
    return draft.norm(x, "norm")


# %%
done = exercises.check_block_pass(block_pass) and keep(block_pass)

# %%
block_pass = block_pass if done else exercises.block_pass  # until yours is right, the package's
hidden = block_pass(draft, anchor.item())  # [g, H]
assert agree(hidden, dflash.block_hidden(state, anchor)[0])
print("your pass" if done else "the course's pass", "equals the package's:", tuple(hidden.shape))

# %% tags=["answer"]
other_anchor = block_pass(draft, (anchor.item() + 1) % lab.target.vocab_size)  # another first slot, then other masks behind it
draft.config = {**draft.config, "mask_token_id": draft.config["mask_token_id"] - 1}
other_masks = block_pass(draft, anchor.item())
draft.config["mask_token_id"] += 1
sees_earlier, sees_later = not torch.allclose(other_anchor[-1], hidden[-1]), not torch.allclose(other_masks[0], hidden[0])
hidden_from_a_slot.settle(
    {(True, True): "neither", (True, False): "the later slots", (False, True): "the earlier slots", (False, False): "both"}[sees_earlier, sees_later],
    "another token in the first slot changes the last slot's state; other masks behind it change the first's")
picture = figures.attention_picture(context=6, gamma=dflash.gamma)

# %% [markdown]
# The figure shows hole 3. Above, the target verifies a block: the answer stands to the right of each row, so it is hidden. Below, the
# draft: to the right of a slot stand only masks, so every slot sees the context and all slots.
#
# <details><summary>After your bet</summary>
#
# There is nothing to copy, so nothing is hidden. The slots do see each other's hidden states, but the words are drawn only after the last
# layer: a slot can know what its neighbour may write, never what it has drawn.
#
# </details>
#
# A wrong value in any of the holes (of the right shape) raises no error and changes no answer, since the rule of lesson 02 corrects
# every bad draft. The mistake only costs tokens per round, silently. So compare tensors with a reference, as we did above.
#
# ## Draw the block
#
# What is left is one LM head, one softmax and one draw per slot. We draw two blocks from the same slots, with seeds 0 and 1. With the same
# generator the package draws the same tokens.

# %%
from dspark_lite.decoding.sampling import draw, probabilities

base_logits = dflash.lm_head(dflash.block_hidden(state, anchor))  # [1, g, V]
probs = probabilities(base_logits, 1.0)  # [1, g, V]
chances = []  # of each seed's drafts, by their slots and by the target
for seed in range(2):
    tokens = draw(probs, lab.generator(seed))  # [1, g]
    proposal = dflash.propose(state, anchor, temperature=1.0, generator=lab.generator(seed))
    assert torch.equal(tokens, proposal.tokens) and torch.equal(probs, proposal.probs)
    _, cache = lab.target.prefill(read_ids)
    wanted = probabilities(lab.target.verify(torch.cat([anchor[:, None], tokens], 1), cache).logits[0], 1.0)  # [g + 1, V]
    chances.append([(probs[0, slot, token].item(), wanted[slot, token].item()) for slot, token in enumerate(tokens[0])])
    print(f"seed {seed}, after {lab.tokenizer.decode(anchor)!r}\nslot  drafted      its chance   the target's, after the drafts before it")
    for (slot, token), (q, p) in zip(enumerate(tokens[0], 1), chances[-1]):
        print(f"{slot:4}  {lab.tokenizer.decode(token)!r:12}{q:10.2f}{p:14.2f}")

# %% tags=["claim"]
(collides, fits), slot_1, slot_2 = chances, 0, 1
claims({"with seed 0 both drafts are likely by their slots, and the second is impossible after the first":
            min(collides[slot_1]) > 0.2 and collides[slot_2][0] > 0.2 and collides[slot_2][1] < 0.005,
        "with seed 1 the two fit": min(p for _, p in fits[:2]) > 0.2,
        "and the third is a bad draw, unlikely by its own slot, too": max(fits[2]) < 0.01})

# %% [markdown]
# Read the last column from above. With seed 0 slot 1 is fine and slot 2 collides: each token is likely by its own slot, and the second is
# impossible after the first. With seed 1 the same two slots happen to draw words that fit. Then slot 3 dies of a bad draw, one that it
# gave hardly a chance itself. Behind the first bad token the rest is lost in both blocks.
#
# ## The race
#
# Your lane now drafts with `block_pass`, and draws each slot by itself.

# %% tags=["answer"]
from dspark_lite.course.race import race

picture = race("04", lab)

# %% [markdown]
# A box of DFlash's lane is much shorter than the small LM's and brings about as many tokens: one pass in place of seven.
#
# > **How sure are we?** Acceptance is measured on 100 prompts per domain and drawn with intervals, for DFlash over three trainings; the small LM
# > is one training. Speed is measured on twenty prompts, on one CPU thread, with the drafters that are shipped.

# %% [markdown]
# **Case 04.** A DFlash in a new engine: right answers, and hardly a draft is kept. Measure at most three things, then accuse.

# %%
from dspark_lite.course.cases import case

investigation = case("04")

# %% [markdown]
# ## Recap
#
# - Slots that draw apart mix phrasings: two right slots can make a wrong pair, and no training keeps two phrasings in full. The
#   committed text is exact all the same.
# - DFlash reads the target's own hidden states: taps, one matrix, keys and values in every layer, computed once.
# - Its block is `[anchor, mask, ..., mask]`, right after the context, every slot seeing all; the anchor's slot drafts the first
#   token.
# - One pass makes drafting cheap, whatever the block's length; where phrasings compete, acceptance falls along the block.
#
# Your file now has `Draft` and `block_pass`.
#
# **Next**: [05, a little autoregression](05_a_little_autoregression.ipynb) lets the second slot see what the first has drawn,
# for a few multiplications. The pass stays as it is.

# %%
show_score("04")

# %% [markdown]
# ## Beyond the core
#
# The lesson is complete without what follows.
#
# ### ★ How many taps?
#
# Of a token four layers are tapped. Would the last of them do? We trained a DSpark that reads it alone.

# %%
last_tap = experiment_results.gains_over_seeds((studies.TAPS["the last of the four"],), studies.SEEDS["dspark"])["all"]
print(f"tokens per round with the last tap alone: {last_tap.value:+.1%} [{last_tap.low:+.1%}, {last_tap.high:+.1%}]")
glue(fewer=-last_tap.value)

# %% tags=["claim"]
claims({"with the last tap alone it accepts less, by little": -0.15 < last_tap.low and last_tap.high < 0})

# %% [markdown]
# It accepts ⟦fewer:.1 %⟧ less (one training against three with all four), so most of what is needed stands in the last tap, and the early ones
# add a little.
#
# ### ★ Look into the slots (try it)
#
# Each column is one slot, with its likeliest tokens and their probabilities. All columns come from one pass. Where two neighbouring
# columns both have several tokens, they may collide. The figure starts at the place of the tables of pairs.

# %% tags=["folded"]
# @title The slots of a block, at any place of an answer
def explore_block(answer, place, temperature):
    """The marginals of the block after token `place` of an answer."""
    ids, features, _, start = readings[answer]
    at = min(start + place, ids.shape[1] - 1)
    state = dflash.begin(ids[:, :at], features[:, :at])
    proposal = dflash.propose(state, ids[:, at], temperature=temperature, generator=lab.generator())
    return figures.block_marginals(lab, proposal.probs[0], lab.tokenizer.decode(ids[0, at]))


prompts = [(prompt, k) for k, prompt in enumerate(lab.prompts["chat"][:4])]
panel = widgets.explore(explore_block, {"temperature": 0.4}, answer=widgets.menu("answer to", prompts[number:] + prompts[:number]),
                        place=widgets.slider("answer token", place - reading.start, 0, lab.max_new_tokens - 1),
                        temperature=widgets.slider("temperature", 1.0, 0.2, 2.0, 0.2))

# %% [markdown]
# A lower temperature (second picture) makes each slot surer of its likeliest token, and the target, which is not shown, surer of its own. So
# collisions may become rarer. They do not vanish: two likeliest tokens need not fit together, as in "⟦pair⟧".
#
# ### ★ Step 1 and step 2 in the paper's symbols
#
# Equation 2 makes the context vectors: $H_\text{ctx} = \text{RMSNorm}(W_c\,[H^{(l_1)}; \dots; H^{(l_m)}])$, where $H^{(l_j)}$ are the
# target's hidden states after the tapped layer $l_j$. By equation 3 layer $i$ of the draft attends to the keys
# $K_i = [W_i^K H_\text{ctx};\ W_i^K H_d]$: those of the context, then those of the block, whose states are $H_d$. Values are made alike.
#
# ### ★ A single round of diffusion
#
# Diffusion language models fill masks, too, in many rounds of refinement. DFlash takes one round. Its result would be poor as a text,
# and is good enough as a draft: the target corrects it.
