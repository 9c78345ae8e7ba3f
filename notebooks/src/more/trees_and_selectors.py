# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=30 difficulty="medium"
# # Trees and selectors
#
# Two ways to get more out of one block. A **tree** verifies several continuations at once. A **selector** looks at a few candidates for
# each position and walks through them. Both stand on what you know: the mask of [lesson 11](../11_serving_under_load.ipynb), the
# head of [lesson 05](../05_a_little_autoregression.ipynb).
#
# **Sources**: [SpecInfer](../../docs/references.md#specinfer), [EAGLE-2](../../docs/references.md#eagle2),
# [DDTree](../../docs/references.md#ddtree); [DFlash 2](../../docs/references.md#dflash2). [Notation](../../docs/notation.md) ·
# [glossary](../../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import inspect

import torch

import dspark_lite
from dspark_lite.course.figures import lesson_13 as figures
from dspark_lite.course.lesson_text import claims, glue
from dspark_lite.course.extensions import trees

torch.set_grad_enabled(False)
lab = dspark_lite.setup()
target, drafter = lab.target, lab.drafter("dspark")

# %% [markdown]
# ## A tree costs the drafter little
#
# A chain bets all on one word: if it is wrong, everything after it is void. A tree drafts the second-best word, too, and goes on from
# both. For a drafter that needs a pass for each token, branching is dear. DSpark has made its pass already: the hidden states belong to
# *positions*, and only the small head asks for the token before. So each node of a tree is one more step of the head.

# %%
prompt = lab.encode(lab.prompts["chat"][0])
step, cache = target.prefill(prompt, drafter.taps)
anchor, state = step.logits[0, -1:].argmax(-1), drafter.begin(prompt, step.features)
tree = trees.grow(drafter, state, anchor, nodes=15)
picture = figures.drafted_tree([lab.tokenizer.decode([token]) for token in [anchor.item(), *tree.tokens.tolist()]], tree.parents)

# %% [markdown]
# These are the fifteen most probable continuations, found best first: a node's chance is the product of those on the way to it.
#
# ## One pass, one mask
#
# All branches enter one pass of the target, after the context. A token sees the context and *its own way from the anchor*; its position is
# its depth, so two words at the same depth have the same position. That is lesson 11's mask with branches in place of requests.

# %%
print(inspect.getsource(trees.Tree.lines) + "\n" + inspect.getsource(trees.verify_tree))

# %%
entering = torch.cat([anchor, tree.tokens])[None]
together = trees.verify_tree(target, cache, entering, tree)
seen, depth = tree.lines()
picture = figures.tree_mask(seen)
for node in range(len(tree.parents) + 1):
    way = torch.nonzero(seen[node]).flatten()
    _, fresh = target.prefill(prompt)
    alone = target.verify(entering[:, way.to(lab.device)], fresh).logits[0, -1]
    assert (together.logits[0, node] - alone).abs().max() < 64 * torch.finfo(target.dtype).eps * alone.abs().max()
print(f"{len(tree.parents)} drafts, {depth.max()} deep, in one pass: each has the logits of its own branch read alone")

# %% [markdown]
# ## The rule
#
# Which branches are drafted was decided without a draw, so there is no draft distribution to divide by. The rule gets simpler than lesson
# 02's: **draw from the target, and go on as long as the tree has what was drawn.** Every token is the target's own draw; the tree only
# says how many draws one pass can answer.

# %%
print(inspect.getsource(trees.follow))

# %%
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.enumeration import outcomes, summed
from dspark_lite.losslessness.toys import toy_models

small, drafters = toy_models(seed=3, vocab_size=2, gamma=2)
start = torch.tensor([[0]])
found = summed(outcomes(lambda path: tuple(trees.generate_with_tree(
    small, drafters["dspark"], start, nodes=3, max_new_tokens=4, temperature=1.0, stop_token_ids=(), generator=path).token_ids)))
away = total_variation(found, output_distribution(small, None, None, 4))
print(f"every outcome of four tokens, by enumeration: off by a total variation of {away:.0e}")
assert away < 1e-6

# %%
from dspark_lite.losslessness.ties import same_or_tied

for texts in lab.prompts.values():
    ids = lab.encode(texts[1])
    plain = dspark_lite.generate(target, None, ids, max_new_tokens=32).token_ids
    assert same_or_tied(target, ids, trees.generate_with_tree(target, drafter, ids, nodes=15, max_new_tokens=32).token_ids, plain)
print("greedy, on the models: the target's own texts")

# %% [markdown]
# ## What a tree brings
#
# The fair comparison is at equal numbers of verified tokens: the chain verifies its whole block, so the first tree has as many nodes.
# Larger ones show what more verification buys.

# %%
from dspark_lite.course.measure.production import gain_in_length, length_in, mean_length
from dspark_lite.course.replication.production_results import production_rows

rows = production_rows("trees")
picture = figures.tree_lengths(rows)
by = {(row["temperature"], row["name"], row["nodes"]): row for row in rows}
chain = {temperature: next(row for row in rows if row["temperature"] == temperature and row["name"] == "chain") for temperature in (0.0, 1.0)}
for row in rows:
    if row["name"] == "tree":
        gain = gain_in_length(row, chain[row["temperature"]])
        print(f"temperature {row['temperature']:.0f}, {row['nodes']:2} nodes: {mean_length(row).value:.2f} tokens per round, over the chain of "
              f"{chain[row['temperature']]['nodes']} {gain.value:+.1%} [{gain.low:+.1%}, {gain.high:+.1%}]")
most = max(nodes for _, _, nodes in by)
least = min(nodes for _, name, nodes in by if name == "tree")
equal, large = (gain_in_length(by[0.0, "tree", nodes], chain[0.0]) for nodes in (least, most))
glue(most=most, large=100 * large.value)

# %% tags=["claim"]
claims({"at equal numbers of verified tokens the tree is not ahead, and a large one is": equal.low < 0.02 and large.low > 0,
        "more nodes, longer accepted": all(mean_length(by[t, "tree", 7]).value < mean_length(by[t, "tree", 15]).value < mean_length(by[t, "tree", 31]).value
                                           for t in (0.0, 1.0))})

# %% [markdown]
# **At equal numbers of verified tokens the tree is not ahead.** A branch is paid with depth, and this drafter's chain often holds to its end. Only
# with more places than a block has does a tree bring what no chain of seven can: with ⟦most⟧ nodes a greedy round is
# ⟦large:.0f⟧ % longer. Its places are paid like a chain's, and [a table](../../docs/production.md#where-a-draft-stops-being-free) says up to which batch they are nearly free. So trees are for one
# user and an idle device, schedulers for many and a busy one. At temperature 1 the rule has its price, too: it does not use the draft's own
# draws, and a place is worth what the target's draw hits.
#
# ## The selector of DFlash 2
#
# DFlash 2 keeps DFlash's backbone and replaces the independent draws. For each position it takes the 16 most probable candidates, scores
# each *pair* of neighbours by a low-rank product under a gate from the hidden state, and walks once from the anchor. You have seen this
# score: it is lesson 05's gated head. **A selector is a gated head that may only choose among candidates**, and its draft distribution
# lives on them.

# %%
from dspark_lite.course.data.selector import Selector

print(inspect.getsource(Selector.draw_block))

# %% [markdown]
# Behind the same protocol it is as lossless as every drafter; the tests enumerate it. We trained two heads for minutes on the frozen backbone
# of our DFlash, Markov and gated, and let the gated one draft both ways.

# %%
heads = {row["name"]: row for row in production_rows("heads")}
labels = {"dflash": "DFlash, no head", "markov": "+ Markov head", "gated": "+ gated head", "selector": "+ selector (16 candidates)"}
print(f"{'':28}" + "".join(f"{domain:>22}" for domain in lab.prompts) + "   over DFlash")
for name, row in heads.items():
    lengths = [length_in(row, domain) for domain in lab.prompts]
    gain = "" if name == "dflash" else f"   {gain_in_length(row, heads['dflash']).value:+.1%}"
    print(f"{labels[name]:28}" + "".join(f"{f'{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]':>22}" for one in lengths) + gain)
over_gated = gain_in_length(heads["selector"], heads["gated"])
print(f"the selector over the gated head that it is made of: {over_gated.value:+.1%} [{over_gated.low:+.1%}, {over_gated.high:+.1%}]")
glue(markov=100 * gain_in_length(heads["markov"], heads["dflash"]).value, selector=100 * gain_in_length(heads["selector"], heads["dflash"]).value)

# %% tags=["claim"]
claims({"a head helps a backbone that was trained without one": gain_in_length(heads["markov"], heads["dflash"]).low > 0,
        "sixteen candidates are as good as all": over_gated.low < 0.02 and over_gated.high > -0.02})

# %% [markdown]
# On a backbone that never knew a head, the Markov head brings ⟦markov:.0f⟧ % and the selector ⟦selector:.0f⟧ % (one training of each). With the same
# gated head, sixteen candidates do as well as the whole vocabulary. A selector scores only pairs of candidates, so it stays cheap at 150,000
# words. (How often what the target wants is among the sixteen, we have not counted.)
#
# Published for Qwen3.5-4B on gsm8k are 4.78 tokens per round for MTP, 4.99 for DFlash, 5.69 for DSpark and 6.20 for DFlash 2. The last is
# disputed: others could not repeat its lead over DSpark.
#
# > **How sure are we?** Trees: one drafter, intervals over prompts. Heads: one seed, minutes of training, a backbone trained for cross-entropy
# > alone. DFlash 2 also has a convolution in each layer, which is left out here.
#
# Back to [lesson 13](../13_production.ipynb).
