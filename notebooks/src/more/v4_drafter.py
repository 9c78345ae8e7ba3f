# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=30 difficulty="medium"
# # The V4 draft in miniature
#
# [A table](../../docs/production.md#what-is-shipped-is-not-the-papers-draft) says what DeepSeek ships with V4: a DSpark of three layers with experts, hyper-connections and a
# window. Here each part stands on one screen, is checked against a second way to compute it, and is put into a drafter that trains in
# minutes.
#
# **Sources**: the [DSpark paper](../../docs/references.md#dspark), section 5.1; [experts](../../docs/references.md#moe), [hyper-connections](../../docs/references.md#mhc). Sizes are
# ours: the DSpark paper names the parts and not how large they are.
# [Notation](../../docs/notation.md) · [glossary](../../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import inspect

import torch

import dspark_lite
from dspark_lite.course.figures import lesson_13 as figures
from dspark_lite.course.lesson_text import claims
from dspark_lite.course.data import v4_drafter as v4

torch.set_grad_enabled(False)
lab = dspark_lite.setup()


def show(*parts):
    """Prints the source of parts of the drafter."""
    print("\n".join(inspect.getsource(part) for part in parts))


# %% [markdown]
# ## Experts
#
# A feed-forward network spends the same weights on every token. A **mixture of experts** has many small networks and a router: each token
# gets the few that the router likes best for it, and one that all share. More weights to remember with, hardly more to multiply with.

# %%
show(v4.Experts)

# %% [markdown]
# The loop goes over experts, so that each is called once for all tokens that asked for it. The proof: token by token, with no loop over
# experts at all, the same comes out.

# %%
generator = lab.generator()
shape = dict(vocab_size=lab.target.vocab_size, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6, rope_theta=1e4, target_layer_ids=(1, 2), block_size=5, mask_token_id=0)
config = v4.V4Config(**shape)
experts, x = v4.Experts(config), torch.randn(40, 64)
weights, chosen = experts.route(x)
for token, out in enumerate(experts(x[None])[0]):
    alone = sum(weights[token, k] * experts.experts[chosen[token, k]](x[token:token + 1]) for k in range(config.active))
    torch.testing.assert_close(out, (experts.shared(x[token:token + 1]) + alone)[0])
print(f"{len(x)} tokens, each by {config.active} of {config.experts} experts and the shared one: routing equals the loop")

# %% [markdown]
# A real router must also be kept from sending everybody to the same expert. That part, *balancing*, is left out here.
#
# ## Hyper-connections
#
# A residual stream carries a token's state through the layers, and each layer adds to it. **Hyper-connections** widen the one stream to
# several. A layer reads a weighted sum of them, and what it makes is written to all, each with a weight of its own. Between, the streams
# are mixed by a small matrix. Without care that matrix, multiplied layer after layer, makes some streams explode and others vanish.
#
# They are *manifold-constrained*, and that is the cure: the matrix is kept **doubly stochastic**, all entries positive, rows and columns summing to one. It
# can move and blend, but neither create nor destroy. Sinkhorn's recipe makes one of any matrix: norm the columns, norm the rows, repeat.

# %%
show(v4.sinkhorn, v4.HyperConnection)

# %% [markdown]
# Three proofs. Rows and columns sum to one. The product of such matrices, which is what many layers make of them, is one again. And so
# the mean of the streams changes by what layers add, and by nothing else.

# %%
matrices = v4.sinkhorn(2 * torch.randn(12, 4, 4, generator=generator))
product = torch.linalg.multi_dot(list(matrices))
wild = torch.linalg.multi_dot(list(torch.randn(12, 4, 4, generator=generator).exp()))
for matrix in (*matrices, product):
    for dim in (0, 1):
        torch.testing.assert_close(matrix.sum(dim), torch.ones(4), atol=1e-2, rtol=0)
connection = v4.HyperConnection(4, 64, 1e-6)
streams, added = torch.randn(5, 4 * 64), torch.randn(5, 64)
_, post, _ = connection.coefficients(streams)
before, after = (one.unflatten(-1, (4, 64)).mean(-2) for one in (streams, connection.write(streams, added)))
torch.testing.assert_close(after, before + post.mean(-1, keepdim=True) * added, atol=1e-2, rtol=1e-2)
print(f"largest entry after twelve layers: {product.max():.2f} doubly stochastic, {wild.max():.0f} of positive matrices as they come")

# %% [markdown]
# It begins as the residual that you know: the mean is read, each stream keeps itself, all get the same. What is better is learned.
#
# ## A window
#
# The layers see the last 128 tokens of the context. A draft that has the target's features needs little of the far past, and its cache
# stays as small as it is, even at a context of a million tokens.

# %%
show(v4.WindowCache)

# %% [markdown]
# Forgetting must change nothing but what is seen. So: a cache that forgets, beside the usual one of which the mask shows the last 6
# entries alone, while tokens come in.

# %%
from dspark_lite.drafters.layers import ContextCache

windowed, full = v4.WindowCache(1, 6), ContextCache(1)
for tokens in (4, 3, 1, 9, 2):
    committed, block = (torch.randn(2, 1, 2, count, 8, generator=generator) for count in (tokens, 3))
    for cache in (windowed, full):
        cache.append(0, *committed)
        cache.advance(tokens)
    near, everything = (cache.append(0, *block) for cache in (windowed, full))
    seen = min(6, full.length) + 3
    assert all(torch.equal(ours, theirs[:, :, -seen:]) for ours, theirs in zip(near, everything))
    assert torch.equal(windowed.positions(block[0].transpose(1, 2)), full.positions(block[0].transpose(1, 2)))
print(f"{full.length} tokens came in, {windowed.length} are held, and positions go on as if nothing had been forgotten")

# %% [markdown]
# ## The drafter
#
# All three go into a DSpark: a layer's norms now read streams, its network has experts, its cache forgets. Block, Markov head and
# confidence head stay, and so does the protocol: `begin`, `propose`, `extend`. And therefore the text.

# %%
from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.losslessness.ties import same_or_tied
from dspark_lite.training.drafts import new_draft

recipe = load_recipe("production-v4")
if lab.profile == "tiny":
    untrained = new_draft(recipe, lab.target, v4.V4Draft).eval()
    for texts in lab.prompts.values():
        prompt = lab.encode(texts[0])
        plain, drafted = (dspark_lite.generate(lab.target, one, prompt, max_new_tokens=24).token_ids for one in (None, untrained))
        assert same_or_tied(lab.target, prompt, drafted, plain)
    print("untrained, it drafts nonsense, and the text is the target's: quality decides how fast, the rule decides what")

# %% [markdown]
# ## What each costs and brings
#
# Five drafters, trained alike by `assets/recipes/production-v4.json`: the same answers, the same updates, three layers, blocks of five. One is a
# plain DSpark, three have one part of V4 each, one has all. (`make production` trains them, in minutes.)

# %%
from dspark_lite.course.measure.production import gain_in_length, mean_length
from dspark_lite.course.replication.production_results import production_rows

rows = {row["name"]: row for row in production_rows("v4")}
labels = {"dspark": "DSpark", "window": "+ window", "experts": "+ experts", "streams": "+ hyper-connections", "v4": "all: V4 in miniature"}
print(f"{'':22} parameters   of them active   ms a block   seconds to train   tokens per round, over DSpark")
for name, row in rows.items():
    gain = "" if name == "dspark" else f"{(found := gain_in_length(row, rows['dspark'])).value:+.1%} [{found.low:+.1%}, {found.high:+.1%}]"
    print(f"{labels[name]:22} {row['parameters']:10,} {row['active']:16,} {row['block_milliseconds']:12.1f} {row['train_seconds']:18.0f} "
          f"{mean_length(row).value:17.2f}  {gain}")
picture = figures.v4_variants({labels[name]: row for name, row in rows.items()})

# %% tags=["claim"]
window = gain_in_length(rows["window"], rows["dspark"])
claims({"experts have more weights, and hardly more that work": rows["v4"]["parameters"] > 1.5 * rows["dspark"]["parameters"]
        and rows["v4"]["active"] < 1.2 * rows["dspark"]["active"],
        "the window costs nothing measurable": window.low < 0 < window.high and abs(window.value) < 0.01})

# %% [markdown]
# After minutes of training on a few hundred answers nobody should expect a winner; look at the prices. Experts multiply the weights, hardly
# the multiplications; that the block takes longer all the same, on this CPU, we put down to the loop over experts, untested. Hyper-connections
# add little to count, and many small operations. Prompt and answer together often outgrow the window of 128 tokens, so blocks late in an
# answer see a part of the text only; in this one training that cost nothing that we could measure. Its reward is a draft cache that does not
# grow.
#
# > **How sure are we?** One seed each, the intervals over prompts alone. Another seed moves such short trainings by more than many of these
# > differences.
#
# Back to [lesson 13](../13_production.ipynb).
