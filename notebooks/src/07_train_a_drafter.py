# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=105 difficulty="hard"
# # 07 · Train a drafter
#
# What must a drafter learn in order to be accepted? Not to be right: to be *as unsure as the target, about the same tokens*. This
# lesson turns that sentence into a loss and packs many blocks into one pass. At the end you train a part of a drafter.
#
# **After this lesson you can**
# - derive DSpark's loss from the accept rule, and say what cross-entropy and L1 each do for a drafter
# - train many blocks in one pass, each seeing only what it will see when it drafts
# - recognise a training that leaks, and name the experiment that finds it
# - train a sequential head for a drafter that has none
#
# **What you need**: lesson 02 (the accept rule), 04 and 05 (the block, the head). There are five core exercises; if you do only one, do
# exercise 3.
#
# **Sources**: the [DSpark paper](../docs/references.md#dspark), section 3.3 with equations 9 to 11; the training code it comes with,
# [DeepSpec](../docs/references.md#deepspec). [Notation](../docs/notation.md) · [glossary](../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import torch
import torch.nn.functional as F

import dspark_lite
from dspark_lite.course.bets import bet, show_score
from dspark_lite.course.exercises import lesson_07 as exercises
from dspark_lite.course.figures import lesson_07 as figures
from dspark_lite.course.figures import widgets
from dspark_lite.course.figures.living_round import living_round
from dspark_lite.course.lesson_text import claims, glue
from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.course.measure.recorded_rounds import recorded_rounds

lab = dspark_lite.setup()
lab.max_new_tokens = 64  # enough to tell drafters apart
target, domains = lab.target, list(lab.prompts)
recipe = load_recipe(f"lesson-{lab.profile}", {"data.prompts": dict.fromkeys(domains, 24), "data.max_new_tokens": 64, "epochs": 5,
                                                "config.num_anchors": 12})  # a head's
gamma = recipe.config.block_size

# %% [markdown]
# ## What being accepted takes
#
# Lesson 02 gave the chance that a draft is kept: the *overlap* of the drafter's distribution $q$ and the target's $p$. Write it once for
# whole batches, for it becomes the loss.
#
# ### Exercise 1 · The chance of acceptance (code)
# *5 minutes · easy · core.*
#
# Compute the chance that a token drawn from the drafter's distribution is kept. The last dimension is the vocabulary;
# there may be any others before it. A token may have probability 0 in both.
#
# <details><summary>Hint</summary>
#
# A token $x$ is drawn with chance $q(x)$. With what chance does the rule then keep it? Add over all tokens.
#
# </details>


# %% tags=["exercise"]
def acceptance(target_probs, draft_probs):
    """The chance [...] that a token drawn from draft_probs [..., V] is accepted by target_probs [..., V]."""
    ...


# %% tags=["solution"]
def acceptance(target_probs, draft_probs):
    """The chance [...] that a token drawn from draft_probs [..., V] is accepted by target_probs [..., V]."""
    return torch.minimum(target_probs, draft_probs).sum(-1)


# %%
done = exercises.check_acceptance(acceptance)
acceptance = acceptance if done else exercises.acceptance

# %%
p, q = torch.rand(2, 3, 7, 50, generator=torch.Generator().manual_seed(0)).softmax(-1)  # [3, 7, 50] each
assert torch.allclose(acceptance(p, q), 1 - (p - q).abs().sum(-1) / 2)

# %% [markdown]
# What $q$ has too much is as large as what it lacks, since both add up to one, and together they are the distance
# $\text{L1} = \sum_x |p(x) - q(x)|$. So
#
# $$\text{chance of acceptance} = \sum_x \min(p, q) = 1 - \tfrac{1}{2}\,\text{L1}.$$
#
# There is the loss: **to be accepted more, lower the L1 distance to the target.**
#
# ### Why that is not enough
#
# A drafter begins with guesses. Suppose a thousand tokens are possible, the target is certain of one, and the drafter gives that one the
# chance $q = 1/1000$. (In this section $q$ is this one number.) What does each loss look like?
#
# - L1: the right token lacks $1 - q$, the others together have $1 - q$ too much: $2(1 - q)$.
# - Cross-entropy with the text: $-\log q$.
#
# Training moves logits. How hard a loss *pulls* on a logit is the size of its gradient there: how much the loss falls when the logit rises
# a little.

# %%
pull = bet("07 which pulls harder")

# %% tags=["folded", "answer"]
# @title How hard each loss pulls at the right token's logit
from dspark_lite.course.figures import style as plots

logit = torch.linspace(-3, 16, 300, requires_grad=True)  # of the right token; the other 999 have 0
chance = logit.exp() / (logit.exp() + 999)
pulls = [-torch.autograd.grad(loss.sum(), logit, retain_graph=True)[0] for loss in (-chance.log(), 2 * (1 - chance))]
picture = figures.pull_figure(chance.tolist(), {
    "cross-entropy": (pulls[0].tolist(), plots.DRAFTER_STYLES["dflash"][0]),
    "L1": (pulls[1].tolist(), plots.DRAFTER_STYLES["dspark"][0])}, guess=1 / 1000)
hard, soft = 1 - 1 / 1000, 2 / 1000 * (1 - 1 / 1000)  # cross-entropy's, L1's
pull.settle("cross-entropy" if hard > 1.2 * soft else "L1" if soft > 1.2 * hard else "about equally hard",
            f"1 - q = {hard:.3f} by cross-entropy, 2q(1 - q) = {soft:.3f} by L1")
of_lab, of_dflash = (load_recipe(name).loss for name in ("tiny-dspark", "tiny-dflash"))
glue(hard=hard, soft=soft, alone=of_lab.cross_entropy_first)

# %% tags=["claim"]
claims({"DFlash was trained by cross-entropy alone": (of_dflash.cross_entropy, of_dflash.l1) == (1, 0),
        "with DSpark's factors cross-entropy pulls fifty times as hard": 50 < 0.1 * hard / (0.9 * soft) < 60,
        "L1 pulls hardest at even odds": abs(chance.detach()[pulls[1].argmax()].item() - 0.5) < 0.05})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# Cross-entropy. By the chain rule the pull is $|d\,\text{loss}/dq| \cdot q(1-q)$, where $|d\,\text{loss}/dq|$ is $2$ for L1 and $1/q$ for
# cross-entropy. So cross-entropy pulls with $1 - q$ = ⟦hard:.3f⟧, L1 with $2q(1 - q)$ = ⟦soft:.3f⟧. A token that has no chance yet is
# invisible to L1, which pulls hardest at even odds. DSpark mixes 0.1 of cross-entropy with 0.9 of L1 (below); even so, cross-entropy pulls
# more than fifty times as hard here. So for the first ⟦alone:.0 %⟧ of its training the lab's DSpark learned by cross-entropy alone. (This
# start is our choice; the paper names only the two factors.)
#
# </details>
#
# ### Where no drafter can be right
#
# In the mean over texts both losses are smallest at $q = p$, so a drafter that could match $p$ everywhere would end at the same place by
# either. But it cannot: a slot does not see what the others drew. Take lesson 04's exercise 2. The target says "of course" with 0.6 and
# "no problem" with 0.4. Slot 1 has learned these shares. Slot 2 does not see the first word, and learns how often to say "course".

# %%
which = bet("07 a slot that cannot see")

# %%
from dspark_lite.course.exercises.lesson_04 import kept

course, first = torch.linspace(0, 1, 101), torch.tensor([0.6, 0.4])  # chances that slot 2 says "course"; of the first words
losses = {"cross-entropy": -(first[0] * course.log() + first[1] * (1 - course).log()),
          "L1": first[0] * 2 * (1 - course) + first[1] * 2 * course}  # after "of" p is all on "course", after "no" on "problem"
learned = {name: float(course[loss.argmin()]) for name, loss in losses.items()}
two_drafts = {name: float(kept(torch.diag(first), first, torch.tensor([share, 1 - share]))) for name, share in learned.items()}
ahead = two_drafts["L1"] - two_drafts["cross-entropy"]
which.settle("by L1" if ahead > 0.02 else "by cross-entropy" if ahead < -0.02 else "by both as many",
             "; ".join(f'{name} says "course" with {learned[name]:.1f}, {two_drafts[name]:.2f} of two drafts are kept' for name in losses))
glue(copied=learned["cross-entropy"], kept_copied=two_drafts["cross-entropy"], kept_whole=two_drafts["L1"])

# %% tags=["claim"]
claims({"cross-entropy learns the target's share, L1 the likelier word": abs(learned["cross-entropy"] - 0.6) < 0.005 and learned["L1"] == 1,
        "exercise 2 of lesson 04 has the same numbers": abs(two_drafts["cross-entropy"] - 1.52) < 0.005 and abs(two_drafts["L1"] - 1.6) < 0.005})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# Cross-entropy copies the shares: "course" with ⟦copied:.1f⟧, and ⟦kept_copied:.2f⟧ of two drafts are kept. L1 goes to the end: "course" always,
# and ⟦kept_whole:.2f⟧ are kept, the best that lesson 04 found. No wonder: half of L1 *is* the chance of being refused. **Where a drafter
# must be wrong, L1 chooses the mistake that is refused least;** cross-entropy spreads its bets, and pays for each.
#
# </details>
#
# DSpark takes both losses, 0.1 of cross-entropy and 0.9 of L1. Its head does see the word before, but not the one before that, and no
# drafter this small matches $p$ everywhere. So there are mistakes left to choose.
#
# ### What belongs to which slot
#
# A text *A B C D E*, places counted from 0, and a block of three slots whose anchor is *C*:

# %%
picture = figures.slots_picture()

# %% [markdown]
# So a slot's head knows the word *before* the one that it must say, its *label*. The network reads the anchor in slot 1, a mask in all
# others. Slot 3 has no label, so it does not count.
#
# Early slots matter more, since a late draft counts only if all before it were accepted. So slot $k$ weighs $e^{-(k-1)/4}$. (Why 4: this
# lesson's last section.)
#
# A third loss trains the [confidence](../docs/glossary.md#confidence) head. This head gives one logit per slot, and the sigmoid of the logit,
# $c$, predicts the overlap (lesson 09). Its loss is binary cross-entropy, and its label is the number from exercise 1.
#
# One trap. The drafter makes this overlap itself. If a gradient passed through the label, the drafter would learn to be easy to describe.
# So the label has to be a constant.
#
# ### Exercise 2 · The loss of DSpark (code)
# *15 minutes · medium · core.*
#
# Write the three losses of each slot, [K, g]: cross-entropy with the text's token, L1 distance to the target, binary cross-entropy of the
# confidence with its own label, the chance of acceptance. The last line averages each over the slots that count (`weighted_loss`),
# multiplies it by its factor and adds.
# The checker looks at the value *and* at its gradients.
#
# <details><summary>Hint 1</summary>
#
# `gather` picks the text's token from `log_q`; `F.binary_cross_entropy_with_logits(..., reduction="none")` takes the confidence head's
# logits as they are.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `.detach()` makes a constant of a tensor.
#
# </details>


# %%
def weighted_loss(losses, counted):
    """The weighted mean of losses [K, g] over the slots that count (boolean [K, g])."""
    weight = torch.exp(-torch.arange(losses.shape[-1], device=losses.device) / 4) * counted
    return (losses * weight).sum() / weight.sum()


# %% tags=["exercise"]
def dspark_loss(draft_logits, target_logits, labels, counted, confidence, factors):
    """The training loss of K blocks, one number.

    draft_logits [K, g, V]; target_logits [K, g, V] of the p that each slot has to match (grey in the picture); labels [K, g], what
    each slot must say (orange); counted [K, g] boolean; confidence [K, g], the logits of c; `factors` has the keys cross_entropy,
    l1, confidence.
    """
    log_q, p = torch.log_softmax(draft_logits, -1), torch.softmax(target_logits, -1)
    losses = {"cross_entropy": ...,
              "l1": ...,
              "confidence": ...}
    return sum(factors[name] * weighted_loss(loss, counted) for name, loss in losses.items())


# %% tags=["solution"]
def dspark_loss(draft_logits, target_logits, labels, counted, confidence, factors):
    """The training loss of K blocks, one number.

    draft_logits [K, g, V]; target_logits [K, g, V] of the p that each slot has to match (grey in the picture); labels [K, g], what
    each slot must say (orange); counted [K, g] boolean; confidence [K, g], the logits of c; `factors` has the keys cross_entropy,
    l1, confidence.
    """
    log_q, p = torch.log_softmax(draft_logits, -1), torch.softmax(target_logits, -1)
    overlap = acceptance(p, log_q.exp()).detach()
    losses = {"cross_entropy": -log_q.gather(-1, labels[..., None])[..., 0],
              "l1": (p - log_q.exp()).abs().sum(-1),
              "confidence": F.binary_cross_entropy_with_logits(confidence, overlap, reduction="none")}
    return sum(factors[name] * weighted_loss(loss, counted) for name, loss in losses.items())


# %%
done = exercises.check_dspark_loss(dspark_loss)
dspark_loss = dspark_loss if done else exercises.dspark_loss

# %% [markdown]
# Here are recorded rounds of the lab's DSpark, whose training is over. Play them: what is left for the three losses to pull? Two bars stand
# under a slot that was judged: green, the overlap, which L1 pulls to 1; blue, $q$ of the target's word, which cross-entropy pulls to 1. The
# tick is the confidence, which should stand at the end of the green bar. In the first round's refused slot it does not: the head was
# sure, and wrong. Lesson 09 asks how often.

# %%
picture = living_round("losses", recorded_rounds("sampled"))

# %% tags=["claim"]
refused = recorded_rounds("sampled")[0].drafts[recorded_rounds("sampled")[0].accepted]
claims({"in the first round's refused slot the head was sure, and wrong": refused.confidence > 0.85 and sum(
    min(p, q) for _, p, q, _ in refused.top) + refused.rest[0] < 0.25})

# %% [markdown]
# ## What it learns from
#
# A drafter is asked only about text that its target writes. So the target answers prompts, at temperature 1, and the
# drafter learns from the answers.
#
# The target is frozen, so it reads every answer once. We keep the tapped hidden states of every place, for the drafter to read, and the
# last layer's, but not the distributions: $p$ is as wide as the vocabulary, and one product with the LM head brings it back.
#
# ## Many blocks in one pass
#
# A round may begin anywhere in an answer, so we draw random *anchors* all over it. One pass per block would spend most of its time on the same
# context, whose keys and values do not depend on the block. So the blocks of an answer are [packed](../docs/glossary.md#packing): one copy of
# the context, all blocks after it, and a mask that says who sees what:
#
# - a slot sees the context **before** its anchor. Not the anchor's own features (the cross in the figure): when the
#   block is drafted, the target has not read the anchor;
# - and the slots of its own block, on both sides. There is nothing to copy: slot 1 holds the anchor, which is known, the others hold
#   masks. Another block's anchor, though, may be the very token that this block has to name. So other blocks are hidden.
#   (The sequential head is given a word of the text, but only after the attention, so it cannot leak into another slot.)

# %%
from dspark_lite.training.blocks import block_targets, dense_mask, draw_anchors, packed_hidden


def explore_packing(count, size, seed):
    """The mask of `count` random anchors with blocks of `size` over a text of 24 tokens, the last 16 of them an answer."""
    answer = torch.arange(24)[None] >= 8
    drawn, valid = draw_anchors(answer, count, torch.Generator().manual_seed(seed))
    _, learned, _ = block_targets(torch.zeros(1, 24).long(), answer, drawn, valid, size)
    return figures.packing_picture(dense_mask(drawn[valid][None], 24, size)[0, 0], drawn[valid].tolist(), 24, 8, int(learned.sum()))


panel = widgets.explore(explore_packing, count=widgets.slider("anchors", 3, 1, 20),
                        size=widgets.slider("slots per block", 4, 1, 7), seed=widgets.slider("seed", 0, 0, 9))

# %% [markdown]
# ### Exercise 3 · Who sees what (code)
# *15 minutes · hard · core. If you do only one, do this.*
#
# K blocks of g slots (`gamma`) are packed after a text of n tokens (`length`). Keys 0 to n - 1 are the text, the others are the slots;
# `query` counts slots from 0 to K g - 1; `anchors` [K] are places in the text. May the slot `query` see the key `key`? Both are index
# tensors; return a boolean of their broadcast shape. Mind that one and the same slot is query $j$ and key $n + j$.
#
# <details><summary>Hint</summary>
#
# To which block does a slot belong, and to which does a key from n on? Whole-number division tells. A key below n is text: compare it
# with the anchor of the query's block.
#
# </details>


# %% tags=["exercise"]
def sees(anchors, length, gamma, query, key):
    """Boolean, shaped as `query` and `key` broadcast; anchors [K], context of `length` tokens."""
    ...


# %% tags=["solution"]
def sees(anchors, length, gamma, query, key):
    """Boolean, shaped as `query` and `key` broadcast; anchors [K], context of `length` tokens."""
    block = query // gamma
    return (key < anchors[block]) | ((key >= length) & ((key - length) // gamma == block))


# %%
done = exercises.check_sees(sees)
sees = sees if done else exercises.sees

# %% [markdown]
# ### Exercise 4 · Two leaks (think)
# *5 minutes · medium · core.*
#
# A training *leaks* if it shows the drafter what it has to predict. Name two ways in which a wrong mask may
# show a block what it has to predict, and for each the one experiment that would find it.
#
# <details><summary>Hint</summary>
#
# Which column of the mask stands for the anchor's own features? Which region must be empty?
#
# </details>
# <details><summary>Answer</summary>
#
# The block sees its anchor's features: they hold what the target thinks of the next token, and do not exist when the block is drafted.
# Change the anchor's token only in the text that the target reads; leave it unchanged in slot 1 of the block. The block's hidden
# states must stay the same.
#
# Or blocks see one another: the anchor of a later block can be a label of this one. Change a later block's anchor alone. This block's
# hidden states must stay the same.
#
# </details>
#
# Both experiments, with your mask and with each leak: how far do the hidden states of block 1 move?

# %% tags=["folded"]
# @title Change one token, and see what moves
from dspark_lite.course.measure import whole_drafter

dflash = lab.drafter("dflash")
text, anchors = lab.encode(lab.prompts["chat"][0]), torch.tensor([[12, 15]], device=lab.device)  # places in text [1, n]; two blocks
leaky = {"your mask": sees,
         "anchor's features seen": lambda anchors, *rest: sees(anchors + 1, *rest),  # <= in the place of <
         "other blocks seen": lambda anchors, length, gamma, query, key: sees(anchors, length, gamma, query, key) | (key >= length)}


@torch.inference_mode()
def first_block(rule, read_by_target, in_the_slots):
    """Hidden states [g, H] of block 1 for the target's text [1, n] and the anchors' tokens [1, 2] in the blocks."""
    mask = whole_drafter.packed_mask(rule, anchors, text.shape[1], dflash.gamma)
    return packed_hidden(dflash, target.prefill(read_by_target, dflash.taps)[0].features, in_the_slots, anchors, mask)[0, 0]


slots = text.gather(1, anchors)  # the anchors' tokens
in_text, other_block = text.clone(), slots.clone()
in_text[0, anchors[0, 0]] = other_block[0, 1] = text[0, 0]  # another token: block 1's anchor, in the text only; block 2's anchor
moved = {}
for name, rule in leaky.items():
    usual = first_block(rule, text, slots)
    moved[name] = [(first_block(rule, *changed) - usual).abs().max().item() for changed in ((in_text, slots), (text, other_block))]
    print(f"{name:23} its own anchor changed in the text: {moved[name][0]:.3f}   block 2's anchor changed: {moved[name][1]:.3f}")

# %% tags=["claim"]
claims({"each experiment finds its leak, and the first one finds both": [[move > 1e-3 for move in row] for row in moved.values()]
        == [[False, False], [True, False], [True, True]]})

# %% [markdown]
# With your mask nothing moves. (Where blocks see one another, the first experiment moves, too: block 2 may read the anchor's features of
# block 1, and block 1 reads block 2.)
#
# ## A whole drafter
#
# With the mask and the loss a whole drafter can be trained. Ours has one layer. Embedding and LM head are the target's, and frozen; all
# else begins at random and learns. A training this short hardly gets beyond guessing, where cross-entropy does the work. So its recipe
# raises the factor of cross-entropy from 0.1 to 1 and keeps 0.9 for L1.
#
# Now a mistake that is easily made: every label, with its $p$, stands one place too early. Nothing is raised: every shape fits. Three
# trainings start from the same random weights: ⟦whole_steps⟧ steps with right labels, the same stopped after ⟦few_steps⟧, and
# ⟦few_steps⟧ off by one. Compare the last two.
#
# They take minutes on a CPU, so they are recorded (`python -m tools.measure.whole_drafter`). To train them here, with your mask and your
# loss, write `train_here = True`.

# %%
leak = bet("07 labels off by one")

# %%
train_here = False

# %% tags=["folded", "answer"]
# @title Read the recorded trainings, or train here
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
whole = whole_drafter.train_whole(lab, folder / "whole", sees, dspark_loss, prompts=3) if train_here else whole_drafter.recorded()
taus = {name: sum(found.values()) / len(found) for name, found in whole["accepted_length"].items()}
picture = figures.loss_comparison(whole["losses"], taus, f"{whole['device']}, {whole['target']}")
same, fell = (sum(whole["losses"][name][-10:]) / sum(whole["losses"][name][:10]) for name in ("stopped early", "off by one"))
leak.settle(f"the loss is {'lower' if fell < same else 'higher'}, and {'fewer' if taus['off by one'] < taus['stopped early'] else 'more'} drafts are accepted",
            f"the loss has fallen to {fell:.0%}, with the right labels to {same:.0%}; {taus['off by one']:.2f} tokens per round against "
            f"{taus['stopped early']:.2f}, of which one is the target's own")
glue(wrong=taus["off by one"], early=taus["stopped early"], whole_steps=len(whole["losses"]["right labels"]), few_steps=len(whole["losses"]["off by one"]),
     whole_tau=taus["right labels"], lab_tau=taus["the lab's DSpark"], whole_prompts=whole["prompts"])

# %% tags=["claim"]
claims({"with shifted labels the loss falls further in as many steps": fell < 0.7 * same,
        "both short trainings have as many steps": len(whole["losses"]["off by one"]) == len(whole["losses"]["stopped early"]),
        "and hardly anything is accepted": taus["off by one"] < 1.03,
        "the right labels bring more than that after as many steps": taus["stopped early"] > taus["off by one"] + 0.1,
        "and after all steps less than a third of what the lab's drafter brings": taus["right labels"] - 1 < (taus["the lab's DSpark"] - 1) / 3})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# With labels off by one each slot has to say the very token that its head is given. So the loss falls too well: the head has learned to
# say that token again. Of ⟦wrong:.2f⟧ tokens per round one is the target's own, so hardly any draft is accepted; the right labels have
# come to ⟦early:.2f⟧ in as many steps. Two things can warn you: a correct run beside it, and a floor. The target draws its tokens by chance, so no honest drafter's
# cross-entropy stays below the target's own entropy on new text. *A loss that falls too well is a symptom.*
#
# </details>
#
# Do not trust a curve alone. Print one slot's input beside its label, change a token and see what moves, and let the drafter draft.
#
# The right labels are no triumph: after ⟦whole_steps⟧ steps a round brings ⟦whole_tau:.2f⟧ tokens, where the lab's DSpark brings
# ⟦lab_tau:.1f⟧. That one has more layers, and learned from more answers, for longer.
#
# ## Your head
#
# So begin where a long training has ended. The lab's DFlash (lesson 04) drafts all slots of a block independently, and it has no
# sequential head (lesson 05). We freeze all of it, and you train a Markov head on top ("vanilla" in a config). The backbone's logits are
# constants; only $W_1$ and $W_2$ learn.
#
# ### Exercise 5 · Head alone (code)
# *15 minutes · medium · core.*
#
# `backbone(batch)` gives, of packed blocks, the base logits [K, g, V], the target's logits [K, g, V], the tokens [K, g + 1] (the
# anchor first) and the slots that count [K, g]. `biases(previous)` gives the head's biases [K, g, V] after tokens [K, g]. Return the
# loss: 0.1 of cross-entropy and 0.9 of L1, no confidence.
#
# <details><summary>Hint</summary>
#
# Which token stands before each slot, and which one does the slot predict? `dspark_loss` with a factor of 0 needs a confidence of any value.
#
# </details>


# %% tags=["exercise"]
def head_loss(backbone, biases, batch):
    """The loss of a sequential head on a frozen backbone, one number."""
    base, wanted, tokens, counted = backbone(batch)
    ...


# %% tags=["solution"]
def head_loss(backbone, biases, batch):
    """The loss of a sequential head on a frozen backbone, one number."""
    base, wanted, tokens, counted = backbone(batch)
    logits = base + biases(tokens[:, :-1])
    return dspark_loss(logits, wanted, tokens[:, 1:], counted, torch.zeros(counted.shape, device=base.device),
                       {"cross_entropy": 0.1, "l1": 0.9, "confidence": 0.0})


# %%
done = exercises.check_head_loss(head_loss)
head_loss = head_loss if done else exercises.head_loss

# %% [markdown]
# The target has answered ⟦head_prompts⟧ prompts. The folded cell has it read the answers, caches what it finds, and packs blocks by your
# mask.

# %% tags=["folded"]
# @title Have the target read its answers, cache what it finds, and pack blocks
from dspark_lite.course.measure.whole_drafter import expected_length
from dspark_lite.drafters.dspark import SEQUENTIAL_HEADS, transition_biases
from dspark_lite.training.blocks import TrainingBatch
from dspark_lite.training.cache import build_cache
from dspark_lite.training.train import TrainingRows

asked = {domain: lab.prompts[domain][:10] for domain in domains}  # held out
answers, held_out_answers = whole_drafter.lesson_answers(lab, recipe.data, asked, folder)  # (token ids, length of the prompt) each
rows = TrainingRows(recipe, build_cache(target, answers, recipe.config.target_layer_ids, folder / "cache"))  # batches, in a new order each epoch
held_out = whole_drafter.held_out_blocks(lab, recipe.config.target_layer_ids, asked, held_out_answers)
expected = {"the lab's DSpark": expected_length(lab, lab.drafter("dspark"), held_out)}  # {whose: {domain: tokens and rounds of each answer}}
expected["DFlash"] = expected_length(lab, dflash, held_out)


def batch_at(step):
    """Rows of the cache with freshly drawn anchors, on the lab's device."""
    return TrainingBatch(*(part.to(lab.device) for part in rows.at(step)))


@torch.no_grad()
def backbone(batch):
    """Base logits [K, g, V], the target's [K, g, V], tokens [K, g + 1] and the slots that count [K, g] of packed blocks."""
    tokens, counted, before = block_targets(batch.ids, batch.supervised, batch.anchors, batch.valid, gamma)
    mask = whole_drafter.packed_mask(sees, batch.anchors, batch.ids.shape[1], gamma)
    hidden = packed_hidden(dflash, batch.features.to(target.dtype), tokens[..., 0], batch.anchors, mask)
    in_row = torch.arange(len(batch.ids), device=lab.device)[:, None, None]
    wanted = dflash.lm_head(batch.last_hidden.to(target.dtype)[in_row, before])
    return tuple(part.flatten(0, 1) for part in (dflash.lm_head(hidden).float(), wanted.float(), tokens, counted))


def biases(previous):
    """The head's biases [K, g, V] after tokens [K, g]; this head does not look at hidden states."""
    return transition_biases(head, previous, torch.empty(*previous.shape, 0, device=lab.device))


glue(head_prompts=len(answers))
print("the first answer:", lab.decode(answers[0][0][answers[0][1]:])[:200])

# %%
brings = bet("07 the head alone")

# %% [markdown]
# Now train, with your loss and the usual loop of PyTorch. $W_2$ begins at zero, so the head begins without a say.

# %%
from tqdm.auto import tqdm

torch.manual_seed(0)
head = SEQUENTIAL_HEADS["vanilla"](target.vocab_size, recipe.config.markov_rank, target.hidden_size).to(lab.device)
torch.nn.init.zeros_(head.markov_w2.weight)
optimiser, steps = torch.optim.AdamW(head.parameters()), len(rows.batches)
for step in tqdm(range(steps), desc="training", unit="step"):
    optimiser.param_groups[0]["lr"] = 0.01 * (1 - step / steps)  # a rate that falls to nothing
    loss = head_loss(backbone, biases, batch_at(step))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

dflash.markov_head = head.requires_grad_(False)
expected["DFlash and your head"] = expected_length(lab, dflash, held_out)
dflash.markov_head = None

# %% [markdown]
# What counts is the accepted length on held-out prompts. We let rounds begin at random places of the target's own answers, and compute
# the expected length of a round there, for DFlash with your head and without. (Real rounds begin where the last one broke off, so compare
# these lengths only with each other.)
#
# <details><summary>How do we measure it without the luck of draws?</summary>
#
# Draw a token $x$ from $p$ and take $\min(1, q(x)/p(x))$. Its mean is the overlap, $\sum_x p \min(1, q/p) = \sum_x \min(p, q)$. The
# target's answer is drawn from $p$ already. So the chance that the first $k$ drafts are all accepted is the mean of
#
# $$\prod_{i \le k} \min\left(1, \frac{q_i(x_i)}{p_i(x_i)}\right)$$
#
# over the target's own texts. Its sum over $k$, and one for the target's own token, is the expected length. One packed pass gives it for
# all places.
#
# </details>

# %% tags=["folded", "answer"]
# @title The expected length of a round, with your head and without
from dspark_lite.course.estimates import paired, share_of_rows

lengths = {whose: {domain: share_of_rows(found[domain]) for domain in domains} for whose, found in expected.items()}
picture = figures.lengths_figure({name: lengths[name] for name in ("DFlash", "DFlash and your head", "the lab's DSpark")}, lab.device_name)


def mean_gain(after, before):
    """How many more tokens per round, in the mean of the domains."""
    return sum(share_of_rows(a) - share_of_rows(b) for a, b in zip(after, before)) / len(domains)


gain = paired(mean_gain, *(list(expected[name].values()) for name in ("DFlash and your head", "DFlash")))
brings.settle("less than a tenth of a token" if gain.value < 0.1 else "between a tenth and a whole token" if gain.value < 1 else "more than a token",
              f"{gain.value:.2f}, 95 % interval {gain.low:.2f} to {gain.high:.2f}")
glue(head_gain=gain.value, head_low=gain.low, head_high=gain.high, head_steps=steps)

# %% tags=["claim"]
more = {domain: lengths["DFlash and your head"][domain] - lengths["DFlash"][domain] for domain in domains}
claims({"in the mean of the domains the head alone brings tokens": gain.low > 0,
        "most of them on code": more["code"] > max(more["math"], 0) + max(more["chat"], 0),
        "on chat the lab's DSpark is ahead by more than a token": lengths["the lab's DSpark"]["chat"] > lengths["DFlash and your head"]["chat"] + 1})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# **Two small matrices, trained by you for ⟦head_steps⟧ steps, bring ⟦head_gain:.2f⟧ tokens per round more** in the mean of the domains (95 %
# interval over answers: ⟦head_low:.2f⟧ to ⟦head_high:.2f⟧; one training), nearly all on code. Where slots are drawn independently they
# collide, and one look back helps. On chat, where they collide most, it shows no gain after so few steps, and we do not know why. The
# lab's DSpark is ahead there, too: its head learned together with its backbone, and for longer.
#
# </details>
#
# ## The race
#
# Your head has a lane of its own, on DFlash: longer rounds than DFlash alone, at nearly its price. The lab's DSpark stays ahead of both.

# %% tags=["answer"]
from dspark_lite.course.race import race

picture = race("07", lab, head)

# %% [markdown]
# > **How sure are we?** Ten held-out answers per domain for the head, ⟦whole_prompts:words⟧ prompts per domain for the recorded trainings,
# > one training each: enough to see a large difference, not a small one.
#
# ## Recap
#
# - The chance of acceptance is the overlap of $p$ and $q$, $1 - \text{L1}/2$. Cross-entropy gets a beginner started; L1 chooses the
#   mistakes that are refused least.
# - A drafter learns from its target's own text. Blocks are packed after one context, and a mask ends it before each
#   anchor.
# - A loss that falls too well is a symptom. Let the drafter draft.
# - A sequential head can be trained alone, on a frozen backbone.
#
# **Next**: [08, the released weights](08_released_weights.ipynb): the drafters that DeepSeek trained, in this very code. At home, with
# a GPU and an evening: [train one for your own model](../docs/evening.md).

# %% [markdown]
# **Case 07.** A training's curve is too good. What has the drafter learned? (A toy text of eight tokens, trained in a second.) Measure at most three things, then accuse.

# %%
from dspark_lite.course.cases import case

investigation = case("07")

# %%
show_score("07")

# %% [markdown]
# ## Beyond the core
#
# The lesson is complete without these sections.
#
# ### ★ What a mean hides
#
# Two drafters that are refused equally often may fail at different places: one at digits, the other at any word. A list shows where.
#
# ### Exercise 6 · The list of refusals (code)
# *10 minutes · easy · optional.*
#
# A round knows its `draft_tokens`, how many of them were `accepted`, and the `tokens` that it committed: the accepted ones, then one
# of the target's own. If an accepted draft ended the answer, there is no token of the target's, and no refusal even if drafts are left
# over. Return the pairs (refused draft, the target's token in its place) of all rounds with a refusal.

# %% tags=["exercise"]
def refusals(rounds):
    """Pairs (refused draft, the target's token in its place), in the order of the rounds."""
    ...


# %% tags=["solution"]
def refusals(rounds):
    """Pairs (refused draft, the target's token in its place), in the order of the rounds."""
    return [(one.draft_tokens[one.accepted], one.tokens[one.accepted]) for one in rounds
            if one.accepted < min(len(one.draft_tokens), len(one.tokens))]


# %%
done = exercises.check_refusals(refusals)
refusals = refusals if done else exercises.refusals

# %% tags=["folded"]
# @title Count the refusals
from dspark_lite.course.figures import token_boxes
from dspark_lite.course.measure.evaluation import rollouts_side_by_side

counts = {}  # {whose: {domain: (refusals, those where a digit was wanted, share of digits in the text)}}


def at_digit(token):
    """Whether a token is a digit."""
    return lab.decode([token]).strip().isdigit()


prompts = [prompt for domain in domains for prompt in lab.prompts[domain][:3]]
for name, trained in (("DFlash", None), ("DFlash and your head", head)):
    dflash.markov_head = trained
    played = rollouts_side_by_side(lab, dflash, prompts, temperature=1.0)  # three answers of each domain, in turn
    print(f"{name}: refused → written in its place")
    counts[name] = {}
    for at, domain in enumerate(domains):
        rounds = [one for generation in played[3 * at:3 * at + 3] for one in generation.rounds]
        pairs, text = refusals(rounds), [token for one in rounds for token in one.tokens]
        digits, share = sum(at_digit(wanted) for _, wanted in pairs), sum(map(at_digit, text)) / len(text)
        counts[name][domain] = len(pairs), digits, share
        print(f"   {domain:5} {len(pairs):3} refusals, {digits:2} where a digit was wanted ({share:.0%} of the text is digits); the first:",
              ",  ".join("{} → {}".format(*token_boxes.token_labels(lab, pair)) for pair in pairs[:5]))
dflash.markov_head = None

# %% tags=["claim"]
at_digits = {domain: sum(found[domain][1] for found in counts.values()) for domain in domains}
by_chance = {domain: sum(found[domain][0] * found[domain][2] for found in counts.values()) for domain in domains}
claims({"most refusals at digits are on math": at_digits["math"] > 2 * max(found for domain, found in at_digits.items() if domain != "math"),
        "but as many as the digits of the text explain": 0.7 < at_digits["math"] / by_chance["math"] < 1.4})

# %% [markdown]
# Refusals at digits are frequent on math, and rare elsewhere. Is math refused at its digits, then? A third of its text is digits, too,
# and three answers cannot tell whether digits are refused more often than other tokens. *A count of mistakes needs the count of chances.*
#
# ### ★ Training in the large
#
# The paper takes the 1.3 million prompts of Open-PerfectBlend, and lets each target answer them without thinking, by its recommended sampling.
# What such a training asks of storage, bandwidth and masks is on [a page of its own](../docs/training.md).
#
# ### ★ Which slots matter
#
# A late draft counts only if all before it were accepted (the thin line below). An early one also opens the way for those after it.
# With $\alpha_k$, the chance that draft $k$ is accepted once it is reached, a round accepts $\sum_k \prod_{i \le k} \alpha_i$ drafts.
# The derivative of this sum by $\alpha_k$ is what position $k$ *adds*. The loss uses the weight $e^{-(k-1)/d}$ instead: the
# released code sets $d = 4$, the paper $d = \gamma = 7$. Which is nearer to what a position adds?

# %%
from dspark_lite.course.measure import studies
from dspark_lite.course.replication import experiment_results
from dspark_lite.training.blocks import position_weights

alpha = torch.tensor([[rate.value for rate in experiment_results.conditional_acceptance(studies.TABLE_1["dspark"], domain)]
                      for domain in domains]).mean(0).requires_grad_()
reached = torch.cat([torch.ones(1), alpha.detach().cumprod(0)[:-1]])  # the share of rounds that come so far
(added,) = torch.autograd.grad(alpha.cumprod(0).sum(), alpha)
weights = {"the code's": position_weights(gamma, decay=4).tolist(), "the paper's": position_weights(gamma, decay=7).tolist()}
picture = figures.position_weight_figure(weights, reached.tolist(), (added / added[0]).tolist())

# %% [markdown]
# **The code's weights are nearer to what a position adds.** So `weighted_loss` takes the code's. The lab's drafters were trained with the
# paper's, and we have not compared the two by training. (What a position adds comes from 100 prompts per domain and the one training that
# is shipped; with
# either of the other two trainings the code's are nearer, too.)
