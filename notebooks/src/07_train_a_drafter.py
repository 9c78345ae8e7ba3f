# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=65 difficulty="hard"
# # 07 · Train a drafter
#
# What must a drafter learn in order to be accepted? Not to be right: to be *as unsure as the target, about the same tokens*. This
# lesson turns that sentence into a loss, packs many blocks into one pass, and has you write the loop that trains a drafter.
#
# **After this lesson you can**
# - derive DSpark's loss from the accept rule, and say why it needs a second one to get started
# - train many blocks in one pass, each seeing only what it will see when it drafts
# - write the training loop
# - look behind a mean: list what was refused
# - beyond the core: put a sequential head on a drafter that has none
#
# **What you need**: lesson 02 (the accept rule), 04 and 05 (the block, the head). The computer trains for some minutes.
# There are four core exercises; if you do only one, do exercise 3.
#
# **Sources**: the [DSpark paper](references.md#dspark), section 3.3 with equations 9 to 11; the training code it comes with,
# [DeepSpec](references.md#deepspec). [Notation](notation.md) · [glossary](glossary.md)

# %% tags=["setup"]
pass

# %%
import torch
import torch.nn.functional as F

import dspark_lite
from dspark_course.exercises import lesson_07 as exercises
from dspark_course.exercises.predictions import predict
from dspark_course.figures import lesson_07 as figures
from dspark_course.figures import widgets
from dspark_course.figures.strip import strip
from dspark_course.glue import claims, glue
from dspark_course.making.recipes import load_recipe

lab = dspark_lite.setup()
lab.max_new_tokens = 80  # enough to tell drafters apart
target, domains = lab.target, list(lab.prompts)
recipe = load_recipe(f"lesson-{lab.profile}")
gamma = recipe["config"]["block_size"]
picture = strip("draft")

# %% [markdown]
# ## What being accepted takes
#
# At one slot the drafter has a distribution $q$ and the target has $p$. A token is drawn from $q$ and goes through
# lesson 02's coin. How likely is it to be kept?
#
# ### Exercise 1 · The chance of acceptance (code)
# *10 minutes · easy · core.*
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
p, q = torch.tensor([0.45, 0.25, 0.15, 0.10, 0.05]), torch.tensor([0.30, 0.35, 0.05, 0.20, 0.10])
picture = figures.overlap(p, q)
assert torch.isclose(acceptance(p, q), 1 - (p - q).abs().sum() / 2)

# %% [markdown]
# The chance is the *overlap* of the two. The hatched part is as large as the yellow one, since both distributions add
# up to one, and together they are the distance $\text{L1} = \sum_x |p(x) - q(x)|$. So
#
# $$\text{chance of acceptance} = \sum_x \min(p, q) = 1 - \tfrac{1}{2}\,\text{L1}.$$
#
# There is the loss: **to be accepted more, lower the L1 distance to the target.**
#
# ### Why that is not enough
#
# A drafter begins with guesses. Suppose eight tokens are possible, the target is certain of one, and the drafter gives that one the
# chance $q$. (Here $q$ is one number.) The right token lacks $1 - q$, and the other tokens together have $1 - q$ too much, so L1 is
# $2(1 - q)$. Cross-entropy with the text is $-\log q$. The derivative of $q$ by its own logit is $q(1 - q)$. How hard does each *pull* at the
# logit of the right token while the drafter guesses, at $q = 1/8$?

# %%
pull = predict("At q = 1/8: is the pull of L1, the size of the derivative of 2(1 - q) by the right token's logit, larger or smaller than that "
               "of cross-entropy?", ...)

# %%
from dspark_course.figures import style as plots

logit = torch.linspace(-4, 7, 200, requires_grad=True)  # of the right token; the other seven have 0
chance = logit.exp() / (logit.exp() + 7)
pulls = [-torch.autograd.grad(loss.sum(), logit, retain_graph=True)[0] for loss in (-chance.log(), 2 * (1 - chance))]
picture = figures.pull_figure(chance.tolist(), {
    "cross-entropy": (pulls[0].tolist(), plots.DRAFTER_STYLES["dflash"][0]),
    "L1": (pulls[1].tolist(), plots.DRAFTER_STYLES["dspark"][0])}, guess=1 / 8)
guessing = 1 / 8
pull.beside(f"smaller: 2q(1 - q) = {2 * guessing * (1 - guessing):.3f} against 1 - q = {1 - guessing:.3f}", label="computed")

# %% [markdown]
# Cross-entropy pulls hardest where the drafter is most wrong. L1 pulls hardest at even odds, and hardly at all where the right token
# has no chance yet. A beginner needs the first. An expert is better served by the second: cross-entropy hears only of the one token
# that the target happened to write, L1 of all that it could have written. Cross-entropy with all of $p$ would hear of them, too; but
# where a drafter cannot match $p$, only L1 says what that costs in acceptance.
#
# DSpark takes both, 0.1 of cross-entropy and 0.9 of L1. With these factors cross-entropy pulls harder only below $q = 1/18$. An
# untrained drafter is below that: it guesses among thousands of tokens.
#
# A third loss trains the [confidence](glossary.md#confidence) head. This head gives one logit per slot, and the sigmoid of the logit,
# $c$, predicts the overlap (lesson 09). Its loss is binary cross-entropy, and its label is the number from exercise 1.
#
# ### What belongs to which slot
#
# For a block whose anchor stands at place $a$ of the text:
#
# | slot | reads | its head is given | its label | its $p$ is the target's at |
# |---|---|---|---|---|
# | 1 | the anchor | token $a$ | token $a + 1$ | place $a$ |
# | 2 | a mask | token $a + 1$ | token $a + 2$ | place $a + 1$ |
# | $k$ | a mask | token $a + k - 1$ | token $a + k$ | place $a + k - 1$ |
#
# Take the text *A B C D E*, with places from 0, and the anchor *C*, so $a = 2$. Slot 2 reads a mask, its head is given *D*, and its
# label is *E*. Its $p$ is what the target expects at place 3, after *A B C D*.
#
# Slots behind the end of the answer do not count. Early slots matter more, since a late draft counts only if all before it were
# accepted. So slot $k$ weighs $e^{-(k-1)/4}$ in the loss.
#
# ### Exercise 2 · The loss of DSpark (code)
# *20 minutes · hard · core.*
#
# Put it together: cross-entropy with the text, L1 distance to the target, binary cross-entropy of the confidence with its label.
# `weighted_loss` averages each over the slots that count. Multiply the three by their `factors` and add. The checker looks at the
# value *and* at its gradients.
#
# <details><summary>Hint 1</summary>
#
# `torch.log_softmax` and `gather` give the cross-entropy of each slot; `F.binary_cross_entropy_with_logits(..., reduction="none")` takes the
# confidence head's logits as they are.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The confidence's label describes the drafter. If a gradient could pass through it, the drafter would learn to be easy to describe.
# `.detach()` makes a constant of a tensor.
#
# </details>


# %%
def weighted_loss(losses, counted):
    """The weighted mean of losses [K, g] over the slots that count (boolean [K, g])."""
    weight = torch.exp(-torch.arange(losses.shape[-1], device=losses.device) / 4) * counted
    return (losses * weight).sum() / weight.sum()


# %% tags=["exercise"]
def dspark_loss(draft_logits, target_logits, tokens, counted, confidence, factors):
    """The training loss of K blocks, one number.

    draft_logits and target_logits [K, g, V]; tokens [K, g] of the text; counted [K, g] boolean; confidence [K, g] are the logits
    of c; `factors` has the keys cross_entropy, l1, confidence.
    """
    ...


# %% tags=["solution"]
def dspark_loss(draft_logits, target_logits, tokens, counted, confidence, factors):
    """The training loss of K blocks, one number.

    draft_logits and target_logits [K, g, V]; tokens [K, g] of the text; counted [K, g] boolean; confidence [K, g] are the logits
    of c; `factors` has the keys cross_entropy, l1, confidence.
    """
    log_q, p = torch.log_softmax(draft_logits, -1), torch.softmax(target_logits, -1)
    label = acceptance(p, log_q.exp()).detach()
    losses = {"cross_entropy": -log_q.gather(-1, tokens[..., None])[..., 0],
              "l1": (p - log_q.exp()).abs().sum(-1),
              "confidence": F.binary_cross_entropy_with_logits(confidence, label, reduction="none")}
    return sum(factors[name] * weighted_loss(loss, counted) for name, loss in losses.items())


# %%
done = exercises.check_dspark_loss(dspark_loss)
dspark_loss = dspark_loss if done else exercises.dspark_loss

# %% [markdown]
# ## What it learns from
#
# A drafter is asked only about text that its target writes. So the target answers prompts, at temperature 1, and the
# drafter learns from the answers.
#
# The target is frozen, so it reads every answer once. We keep the tapped hidden states of every place, for the drafter to read, and the
# last layer's, but not the distributions: $p$ is as wide as the vocabulary, and one product with the LM head brings it back.

# %% tags=["folded"]
# @title Let the target answer, and cache what it reads
import tempfile
from pathlib import Path

from dspark_course.making.answers import answered_rows
from dspark_lite.training.cache import build_cache
from dspark_lite.training.drafts import Rows

folder = Path(tempfile.mkdtemp())
answers = answered_rows(target, recipe["data"], folder / "answers.jsonl")  # (token ids, length of the prompt)
cache = build_cache(target, answers, recipe["config"]["target_layer_ids"], folder / "cache")
rows = Rows(recipe, cache)  # its batches, in a new order each epoch
print(f"{len(answers)} answers; the first: {lab.decode(answers[0][0][answers[0][1]:])[:200]}")

# %% [markdown]
# ## Many blocks in one pass
#
# A round may begin anywhere in an answer, so we draw random *anchors* all over it. One pass per block would be slow,
# and most of it would be spent on the same context, whose keys and values do not depend on the block. So the blocks of
# an answer are [packed](glossary.md#packing): one copy of the context, all blocks after it, and a mask that says who
# sees what:
#
# - a slot sees the context **before** its anchor. Not the anchor's own features (the cross in the figure): when the
#   block is drafted, the target has not read the anchor;
# - and the slots of its own block, on both sides, never another block's. Slot 1 holds the anchor, which is already known; the others
#   hold masks. So no slot can copy its label from another. (The head is given the token before its slot, but only after attention,
#   so no other slot sees it.)

# %%
from dspark_lite.training.blocks import block_targets, dense_mask, draw_anchors


def explore_packing(count, size, seed):
    """The mask of `count` random anchors with blocks of `size` over a text of 24 tokens, the last 16 of them an answer."""
    answer = torch.arange(24)[None] >= 8
    drawn, valid = draw_anchors(answer, count, torch.Generator().manual_seed(seed))
    _, learned, _ = block_targets(torch.zeros(1, 24).long(), answer, drawn, valid, size)
    return figures.packing_picture(dense_mask(drawn[valid][None], 24, size)[0, 0], drawn[valid].tolist(), 24, int(learned.sum()))


panel = widgets.explore(explore_packing, {"count": 12}, count=widgets.slider("anchors", 3, 1, 20),
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
# ## The loop
#
# ### Exercise 4 · Train (code)
# *15 minutes · medium · core.*
#
# For each of `steps` updates: set the learning rate to `rate_at(step)`, compute `loss_of(batch_at(step))`, and let AdamW take one step
# along the gradient of *this* batch. Return the losses as a list of numbers.
#
# <details><summary>Hint</summary>
#
# `backward()` adds to the gradients that are there. The rate of an optimiser stands in `optimiser.param_groups`, a list of dictionaries,
# under `"lr"`.
#
# </details>


# %% tags=["exercise"]
def train(parameters, batch_at, loss_of, steps, rate_at):
    """Trains the parameters, a list, by AdamW; returns the loss of each step."""
    optimiser = torch.optim.AdamW(parameters)
    ...


# %% tags=["solution"]
def train(parameters, batch_at, loss_of, steps, rate_at):
    """Trains the parameters, a list, by AdamW; returns the loss of each step."""
    optimiser, losses = torch.optim.AdamW(parameters), []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate_at(step)
        loss = loss_of(batch_at(step))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


# %%
done = exercises.check_train(train)
train = train if done else exercises.train

# %% [markdown]
# Now train. `loss_of`, in the folded cell, joins your mask and your loss by the table above. The drafter has one layer. Embedding and
# LM head are the target's, and frozen; all else begins at random. A training this short hardly gets beyond guessing, where
# cross-entropy does the work. So we raise its factor from 0.1 to 1 and keep 0.9 for L1.

# %% tags=["folded"]
# @title Join mask and loss, and train
from tqdm.auto import tqdm

from dspark_lite.training.blocks import TrainingBatch, training_forward
from dspark_lite.training.drafts import new_draft

drafter = new_draft(recipe, target)
learning = [parameter for parameter in drafter.parameters() if parameter.requires_grad]
steps = len(rows.batches)


def batch_at(step):
    """Rows of the cache with freshly drawn anchors, on the lab's device."""
    return TrainingBatch(*(part.to(lab.device) for part in rows.at(step)))


def rate_at(step):
    """Up for twenty steps, then down to nothing."""
    return recipe["learning_rate"] * min(1, (step + 1) / 20) * (1 - step / steps)


def loss_of(batch, shift=0):
    """The loss of a batch; with a `shift` of one every slot is scored on the token before its own."""
    length = batch.ids.shape[1]
    slots, keys = (torch.arange(size, device=lab.device) for size in (batch.anchors.shape[1] * gamma, length + batch.anchors.shape[1] * gamma))
    mask = torch.stack([sees(anchors, length, gamma, slots[:, None], keys[None]) for anchors in batch.anchors])[:, None]  # [B, 1, K g, n + K g]
    blocks = training_forward(drafter, batch.features, batch.ids, batch.supervised, batch.anchors, batch.valid, mask)
    with torch.no_grad():
        in_row = torch.arange(len(batch.ids), device=lab.device)[:, None, None]
        wanted = drafter.lm_head(batch.last_hidden[in_row, blocks.target_position - shift])  # the target's logits
    tokens = batch.ids[in_row, blocks.target_position + 1 - shift]  # each slot's token in the text
    tokens, logits, wanted, counted, confidence = (part.flatten(0, 1) for part in (
        tokens, blocks.logits, wanted, blocks.loss_mask, blocks.confidence_logits))
    return dspark_loss(logits, wanted, tokens, counted, confidence, {name: recipe["loss"][name] for name in ("cross_entropy", "l1", "confidence")})


progress = tqdm(total=steps, desc="training", unit="step")


def shown(step):
    """A batch, and a tick of the progress bar."""
    progress.update()
    return batch_at(step)


losses = train(learning, shown, loss_of, steps, rate_at)
progress.close()
picture = figures.loss_curves([{"step": step, "loss": loss} for step, loss in enumerate(losses)])

# %% [markdown]
# This loss proves little. The drafter has seen the texts, and its head was given the text's token before every slot, not one that it
# drew. What counts is tokens per round, $\tau$ (the paper's accepted length), on held-out prompts.

# %% tags=["folded"]
# @title Count tokens per round, yours and the lab's
from dspark_course.measure import evaluation
from dspark_lite.models.checkpoints import save_draft


def tokens_per_round(drafter, prompts=3):
    """Accepted length on so many prompts of each domain at temperature 1, and the rounds themselves."""
    runs = {domain: evaluation.rollouts(lab, drafter, texts[:prompts], temperature=1.0) for domain, texts in lab.prompts.items()}
    return {domain: evaluation.mean_accepted_length([evaluation.tally(found)]) for domain, found in runs.items()}, runs


save_draft(folder / "mine", drafter, target)
lengths, runs = {}, {}
for name, which in (("yours", str(folder / "mine")), ("the lab's DSpark", "dspark")):
    lengths[name], runs[name] = tokens_per_round(lab.drafter(which))
    print(f"{name:18}" + "".join(f"{domain:>7} {length:.2f}" for domain, length in lengths[name].items()))
share = sum(lengths["yours"].values()) - 3, sum(lengths["the lab's DSpark"].values()) - 3
print(f"\nbeyond the one token that every round commits, yours brings {share[0] / share[1]:.0%} of what the lab's does")
glue(share=share[0] / share[1])

# %% tags=["claim"]
claims({"some minutes bring a part of what the lab's drafter has, and less than a third": share[1] / 20 < share[0] < share[1] / 3})

# %% [markdown]
# After some minutes yours has ⟦share:.0 %⟧ of the lab's gain. The lab's drafter has more layers, and learned from more answers, for
# longer; this comparison cannot separate the three.
#
# ### Labels off by one
#
# Now a mistake that is quickly made, and off by one. Slot $k$ is scored on token $a + k - 1$, the one its head is given, and on the
# target's $p$ at place $a + k - 2$: the table's last two columns are one place too early.

# %%
leak = predict("Labels off by one: where does the loss go, and what is accepted afterwards?", ...)

# %%
drafter = new_draft(recipe, target)
learning = [parameter for parameter in drafter.parameters() if parameter.requires_grad]
shifted = train(learning, batch_at, lambda batch: loss_of(batch, shift=1), max(60, steps // 6), rate_at)
save_draft(folder / "shifted", drafter, target)
after, _ = tokens_per_round(lab.drafter(str(folder / "shifted")), prompts=1)
fell = sum(shifted[-10:]) / sum(shifted[:10])
same = sum(losses[len(shifted) - 10:len(shifted)]) / sum(losses[:10])
print(f"after {len(shifted)} steps the loss is at {fell:.0%} of where it began (the right labels: {same:.0%}); tokens per round: "
      + ", ".join(f"{domain} {length:.2f}" for domain, length in after.items()))
leak.beside(f"it falls to {fell:.0%}, faster than the right one; {sum(after.values()) / 3:.2f} tokens per round")

# %% tags=["claim"]
claims({"with shifted labels the loss falls further in as many steps": fell < same,
        "and hardly anything is accepted": sum(after.values()) / 3 < 1.5})

# %% [markdown]
# The loss falls like a stone: the head has learned to say the previous token again. Hardly anything is accepted. *A loss that falls
# too well is a symptom.*
#
# ### Exercise 5 · Two more leaks (think)
# *5 minutes · medium · optional.*
#
# A mask can leak, too. Name two ways in which it may show a block what it has to predict, and for each the one experiment that would
# find it.
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
# So do not trust the curve. Print one slot's input beside its label, change a token and see what moves, and let the drafter draft.
#
# ## What a mean hides
#
# A mean says how often a drafter is refused, not where. Two drafters with the same mean may fail at different places: one at digits, the
# other at any word. A list of refusals shows where.
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
from dspark_course.figures import token_boxes

for name in runs:
    print(f"{name}: refused → written in its place")
    for domain in domains:
        pairs = [pair for generation in runs[name][domain] for pair in refusals(generation.rounds)]
        digits = sum(lab.decode([wanted]).strip().isdigit() for _, wanted in pairs)
        print(f"   {domain:5} {len(pairs):3} refusals, {digits:2} where a digit was wanted; the first:",
              ",  ".join("{} → {}".format(*token_boxes.token_labels(lab, pair)) for pair in pairs[:5]))

# %% [markdown]
# Yours is refused in nearly every round, on math often at digits, which have to be computed. The lab's drafter is refused far less
# often. In some of its pairs both tokens would do: there a refusal is the price of drawing. At a digit, often only one does.
#
# > **How sure are we?** Five prompts per domain, one training each: enough to see a large difference, not a small one.
#
# ## Recap
#
# - The chance of acceptance is the overlap of $p$ and $q$, $1 - \text{L1}/2$. Cross-entropy starts what is wrong; L1
#   finishes what is half right.
# - Early slots weigh more.
# - A drafter learns from its target's own text. Blocks are packed after one context, and a mask ends it before each
#   anchor.
# - A loss that falls too well is a symptom. Let the drafter draft.
# - A mean hides what is refused. List it.
#
# **Next**: [08, the released weights](08_released_weights.ipynb): the drafters that DeepSeek trained, in this very code. At home, with
# a GPU and an evening: [train one for your own model](evening.md).
#
# ## Beyond the core
#
# The lesson is complete without these two sections.
#
# ### ★ Which slots matter
#
# A late draft counts only if all before it were accepted (the thin line below). An early one also opens the way for those after it.
# With $\alpha_k$, the chance that draft $k$ is accepted once it is reached, a round accepts $\sum_k \prod_{i \le k} \alpha_i$ drafts.
# The derivative of this sum by $\alpha_k$ is what position $k$ is *worth*. The loss uses the weight $e^{-(k-1)/d}$ instead: the
# released code sets $d = 4$, the paper $d = \gamma = 7$. Which is nearer to the worth?

# %%
from dspark_course.measure import studies
from dspark_course.replication import our_results
from dspark_lite.training.blocks import position_weights

alpha = torch.tensor([[rate.value for rate in our_results.conditional_acceptance(studies.TABLE_1["dspark"], domain)]
                      for domain in domains]).mean(0).requires_grad_()
reached = torch.cat([torch.ones(1), alpha.detach().cumprod(0)[:-1]])  # the share of rounds that come so far
(worth,) = torch.autograd.grad(alpha.cumprod(0).sum(), alpha)
weights = {"the code's": position_weights(gamma, decay=4).tolist(), "the paper's": position_weights(gamma, decay=7).tolist()}
picture = figures.position_weight_figure(weights, reached.tolist(), (worth / worth[0]).tolist())

# %% [markdown]
# **The code's weights are nearer to what a position is worth.** So `weighted_loss` takes the code's. (The worth comes from 100 prompts
# per domain.)
#
# ### ★ A head for a drafter that has none
#
# Take the lab's DFlash, freeze it, and train a Markov head on top ("vanilla" in a config). The backbone's logits are constants; only
# $W_1$ and $W_2$ learn.
#
# ### Exercise 7 · Head alone (code)
# *20 minutes · hard · optional.*
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

# %%
from dspark_lite.drafters.dspark import SEQUENTIAL_HEADS, transition_biases

drafter = None
dflash = lab.drafter("dflash")
lengths["DFlash"], _ = tokens_per_round(dflash)
torch.manual_seed(0)
head = SEQUENTIAL_HEADS["vanilla"](target.vocab_size, recipe["config"]["markov_rank"], target.hidden_size).to(lab.device)
torch.nn.init.zeros_(head.markov_w2.weight)  # it begins without a say


@torch.no_grad()
def backbone(batch):
    """Base logits [K, g, V], the target's [K, g, V], tokens [K, g + 1] and the slots that count [K, g] of packed blocks."""
    tokens, counted, before = block_targets(batch.ids, batch.supervised, batch.anchors, batch.valid, gamma)
    hidden = dflash.packed_hidden(batch.features.to(target.dtype), tokens[..., 0], batch.anchors, dense_mask(batch.anchors, batch.ids.shape[1], gamma))
    in_row = torch.arange(len(batch.ids), device=lab.device)[:, None, None]
    wanted = dflash.lm_head(batch.last_hidden.to(target.dtype)[in_row, before])
    return tuple(part.flatten(0, 1) for part in (dflash.lm_head(hidden).float(), wanted.float(), tokens, counted))


def biases(previous):
    """The head's biases [K, g, V] after tokens [K, g]; this head does not look at hidden states."""
    return transition_biases(head, previous, torch.empty(*previous.shape, 0, device=lab.device))


few_steps = min(300, steps)
train(list(head.parameters()), batch_at, lambda batch: head_loss(backbone, biases, batch), few_steps, lambda step: 0.01 * (1 - step / few_steps))
dflash.markov_head = head.requires_grad_(False)
lengths["DFlash and your head"], _ = tokens_per_round(dflash)
dflash.markov_head = None
picture = figures.lengths_figure({name: lengths[name] for name in ("DFlash", "DFlash and your head", "the lab's DSpark")})
gain = sum(lengths["DFlash and your head"][domain] - lengths["DFlash"][domain] for domain in domains) / len(domains)
glue(head_gain=gain)

# %% tags=["claim"]
claims({"in the mean of the domains the head alone brings tokens": gain > 0.15})

# %% [markdown]
# Two small matrices, trained for a few hundred steps on a backbone that never had a head, bring ⟦head_gain:.1f⟧ tokens per round more
# in the mean of the domains: where slots are drawn independently and collide, one look back helps. The backbone of the lab's DSpark
# learned together with its head, for longer and with other losses; these bars cannot separate the three.
