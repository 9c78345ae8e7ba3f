# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] tags=["header"]
# # 02 · The lossless rule
#
# **What you will learn**
#
# - how a token drawn from the drafter's distribution $q$ is turned into a token of the target's distribution $p$
# - why the chance of keeping it is one minus the total variation distance of $p$ and $q$
# - how the rule extends to a block, and how to prove a decoder exact by visiting every outcome of every random
#   decision
# - to write the verifier yourself: by the end of the lesson your own `verify` has passed an exact proof
# - how losslessness breaks: four mistakes in the verifier, one in the drafter, two in the choice of how much to verify
#
# **What you need:** lesson 01, and what a probability distribution is. No GPU.
#
# **Sources:** the rule is due to [Leviathan et al.](references.md#leviathan) and, independently,
# [Chen et al.](references.md#chen); the policies come from the [DSpark paper](references.md#dspark), section 3.2.2 and
# Appendix A. Symbols are listed on the page of [notation](notation.md), terms in the [glossary](glossary.md).

# %% tags=["setup"]
pass

# %% [markdown]
# ## One guess
#
# The target wants its next token drawn from $p$. A drafter has already drawn one from its own distribution $q$. We
# would like to use that token, as often as possible, and still end up with a token distributed exactly as $p$. Not
# approximately: a reader of the output must have no way to tell that a drafter was there. A rule that does this is called
# [*lossless*](glossary.md#lossless).
#
# Five words and two distributions to think with:

# %%
import torch

from dspark_course.exercises import lesson_02 as exercises
from dspark_course.figures import lesson_02 as figures
from dspark_course.figures import style

torch.set_grad_enabled(False)
words = ["the", "a", "my", "this", "no"]
p = torch.tensor([0.40, 0.30, 0.15, 0.10, 0.05])  # target
q = torch.tensor([0.20, 0.45, 0.20, 0.05, 0.10])  # drafter

# %% [markdown]
# Where $q(x) \le p(x)$ the drafter offers $x$ at most as often as the target wants it: whenever it is offered, keep it.
# Where $q(x) > p(x)$ it is offered too often: some of the offers must go.
#
# ### Exercise 1 · Keep it? (code)
# For every token: with which probability is it kept once it has been drafted?
#
# <details><summary>Hint</summary>
#
# The drafter offers "a" 45 times in 100 and the target wants it 30 times. How many of the 45 do you keep? And of the 20
# offers of "the", which is wanted 40 times?
#
# </details>

# %% tags=["exercise"]
def keep_probability(p, q):
    """The probability [V] of keeping each token, given that the drafter drew it from q; the target wants p."""
    return ...


done = exercises.check_keep(keep_probability)

# %% tags=["solution"]
def keep_probability(p, q):
    """The probability [V] of keeping each token, given that the drafter drew it from q; the target wants p."""
    return (p / q).clamp(max=1)


done = exercises.check_keep(keep_probability)

# %% [markdown]
# The share is $\min(1, p(x)/q(x))$. A token reaches the output this way if it is drafted *and* kept, which has
# probability
#
# $$q(x)\cdot\min\left(1, \frac{p(x)}{q(x)}\right) = \min(p(x), q(x)).$$

# %%
keep = (p / q).clamp(max=1)
kept = q * keep
assert torch.allclose(kept, torch.minimum(p, q))
print("        p     q   keep   drafted and kept")
for row in zip(words, p, q, keep, kept, strict=True):
    print("{:5}{:5.2f} {:5.2f}  {:5.2f}   {:5.2f}".format(*row))

# %% [markdown]
# The picture of the same numbers. Green is what is drafted and kept. Orange, cross-hatched, is offered too often and
# refused. Blue is what the target wants and has not yet got.

# %%
figure, axes = style.figure()
figures.overlap_panel(axes, p, q, words)

# %% [markdown]
# The green area is the **acceptance probability**. Both $p$ and $q$ have area 1, so green plus orange is 1, green plus
# blue is 1, and orange equals blue: *what is refused is exactly as much as what is owed*. That common area is the total
# variation distance,
#
# $$\text{TV}(p, q) = \tfrac12 \sum_x |p(x) - q(x)| = \tfrac12 L_1,$$
#
# $$P(\text{accept}) = \sum_x \min(p(x), q(x)) = 1 - \text{TV} = 1 - \tfrac12 L_1.$$

# %%
acceptance = kept.sum()
l1 = (p - q).abs().sum()
assert torch.isclose(acceptance, 1 - l1 / 2)
print(f"green {acceptance:.3f}   1 - L1/2 {1 - l1 / 2:.3f}   1 - TV/2 {1 - l1 / 4:.3f}")

# %% [markdown]
# > **Margin note.** In lesson 07 DSpark learns to predict the acceptance probability before it drafts a token. An easy
# > slip is $1 - \text{TV}/2$; the last column shows that this is not the green area. The half belongs to $L_1$.
#
# ### Exercise 2 · No rule keeps more (think)
# Is there a cleverer rule, which keeps drafts more often and still ends in $p$? Prove that there is none: whatever a
# lossless rule does, the token it *commits* (appends to the text for good) equals the drafted one with probability at most
# $1 - \text{TV}(p, q)$.
#
# <details><summary>Hint</summary>
#
# Look at one token $x$. "The draft is $x$ and the output is $x$" is part of two events whose probabilities you know.
#
# </details>
# <details><summary>Answer</summary>
#
# Let $X$ be the drafted token and $Y$ the committed one. "$X = x$ and $Y = x$" happens only if $X = x$, which has
# probability $q(x)$, and only if $Y = x$, which has probability $p(x)$ because the rule is lossless. So it has at most
# the smaller of the two, and
#
# $$P(X = Y) = \sum_x P(X = x, Y = x) \le \sum_x \min(p(x), q(x)) = 1 - \text{TV}(p, q).$$
#
# Our rule reaches the bound for every $x$ at once. Two variables that agree as often as their distributions allow are
# called a *maximal coupling*. It follows that a better rule for one token cannot raise the acceptance; only a better
# drafter can.
#
# </details>
#
# ## The residual
#
# When the draft is refused we have to produce a token nonetheless.
#
# ### Exercise 3 · The replacement (code)
# From which distribution must the replacement be drawn, so that kept drafts and replacements together are distributed
# as $p$?
#
# <details><summary>Hint</summary>
#
# Subtract from $p$ what the kept drafts bring already. What is left must be scaled.
#
# </details>

# %% tags=["exercise"]
def replacement(p, q):
    """The distribution [V] from which a token is drawn after a refusal."""
    return ...


done = exercises.check_residual(replacement)

# %% tags=["solution"]
def replacement(p, q):
    """The distribution [V] from which a token is drawn after a refusal."""
    owed = (p - q).clamp(min=0)
    return owed / owed.sum()


done = exercises.check_residual(replacement)

# %% [markdown]
# It must be the blue area: what $p$ wants beyond $\min(p, q)$, scaled to be a distribution. That is the **residual**
#
# $$r(x) = \frac{\max(p(x) - q(x), 0)}{\sum_y \max(p(y) - q(y), 0)}.$$
#
# A refusal happens with probability TV, and TV is also the denominator, so the two cancel:
#
# $$\underbrace{\min(p, q)}_{\text{kept}} + \underbrace{\text{TV}\cdot r}_{\text{replaced}} =
# \min(p, q) + \max(p - q, 0) = p.$$
#
# This holds for *any* $p$ and $q$. The next cell tries 2,000 pairs, flat and peaked, with zeros, and stops with an error
# at the first that fails:

# %%
from dspark_lite.decoding.sampling import residual


def random_distribution(generator, size=6):
    """A distribution [size]: flat, peaked or with zeros."""
    weight = torch.rand(size, generator=generator).double() ** torch.randint(0, 12, (1,), generator=generator)
    weight = weight * (torch.rand(size, generator=generator) > 0.3)
    weight[torch.randint(size, (1,), generator=generator)] += 0.1
    return weight / weight.sum()


generator = torch.Generator().manual_seed(0)
for _ in range(2000):
    target_p, draft_q = random_distribution(generator), random_distribution(generator)
    kept_mass = torch.minimum(target_p, draft_q)
    assert torch.allclose(kept_mass + (1 - kept_mass.sum()) * residual(target_p, draft_q), target_p)
print("2,000 pairs: kept and replaced add up to p in every one")

# %% [markdown]
# `residual` is the package's. If $p$ and $q$ are equal everywhere, yours may divide 0 by 0, which does no harm: nothing is
# refused then. The package's returns $p$.
#
# ## Try it
#
# Three sliders move the drafter's logits of A, B and C, that of D stays 0; one moves the temperature of both models.
# Where no kernel runs you see three still pictures. Top: the drafter's favourite is B, the target's is A. Middle:
# both prefer A. Bottom: the same two at temperature 0: every draft is accepted, as both prefer A.
#
# How small can you make the green area at temperature 1? Can it be 0? And does a lower temperature raise it? Try it where the
# favourites differ and where they agree.
#
# <details><summary>Answer</summary>
#
# About 0.18, with all three sliders at $-3$. It is never 0: a softmax gives every token some probability, so each has
# a green part, however thin. Lowering the temperature moves the mass to the favourites. Where they differ, as at the
# sliders' start, the green area shrinks, to 0 at temperature 0; where they agree it ends at 1, but may fall first:
# with the logits 2, 1 and $-1$ of the middle picture it is 0.902 at temperature 2, 0.893 at 1.5 and 0.899 at 1.
#
# </details>

# %%
from dspark_lite.decoding.sampling import probabilities
from dspark_course.figures import widgets

target_logits = torch.tensor([1.5, 0.5, 0.0, -1.0])


def draw_overlap(first, second, third, temperature):
    """The picture for a drafter with these logits (the fourth is 0)."""
    draft_logits = torch.tensor([first, second, third, 0.0])
    p, q = (probabilities(logits, temperature) for logits in (target_logits, draft_logits))
    return figures.overlap_figure(p, q, list("ABCD"))


panel = widgets.explore(
    draw_overlap, *({"first": 2.0, "second": 1.0, "third": -1.0, "temperature": value} for value in (1.0, 0.0)),
    first=widgets.slider("drafter's logit of A", 0.5, -3.0, 3.0, 0.1),
    second=widgets.slider("drafter's logit of B", 1.5, -3.0, 3.0, 0.1),
    third=widgets.slider("drafter's logit of C", -1.0, -3.0, 3.0, 0.1),
    temperature=widgets.slider("temperature", 1.0, 0.0, 2.0, 0.1),
)

# %% [markdown]
# At temperature 0 both distributions have all their mass on one token, and the rule becomes: keep the draft if it is
# the target's favourite, else take the favourite. Greedy decoding is a special case and needs no code of its own. In
# general the output is distributed as the $p$ that the rule is given, after temperature and truncation (top-$p$,
# say); $q$ may have other settings.
#
# ## Proof by visiting everything
#
# The argument above is about formulas. Code can still get it wrong, so we test the code itself. Its random decisions are
# of two kinds, and only two functions take them:
#
# - `toss(chance, generator)` is true with probability `chance`;
# - `draw_token(probs, generator)` draws a token from the distribution `probs` [V].
#
# Given a random generator they toss and draw. They can be given a *path* instead, a list of outcomes to take: for a
# toss 0 (false) or 1 (true), for a draw the token. When the list is used up they take the first outcome with a
# probability above 0 and note on `path.open` one path for each of the others; `path.probability` is the product of
# the probabilities taken. For example, a toss with chance 0.25 and, where it is false, a draw from (0.5, 0.5):
#
# | path | decisions | `path.probability` | opens |
# |---|---|---|---|
# | `[]` | false, then token 0 | 0.75 · 0.5 = 0.375 | `[1]` and `[0, 1]` |
# | `[0, 1]` | false, then token 1 | 0.75 · 0.5 = 0.375 | |
# | `[1]` | true | 0.25 | |
#
# The probabilities sum to 1. Following every open path visits all outcomes, without sampling noise:

# %%
import inspect

from dspark_course.exercises.verifying import draw_token, toss
from dspark_lite.losslessness import outcomes

print(inspect.getsource(outcomes))

# %% [markdown]
# Now the rule for one guess, as code. How many paths has it?

# %%
def one_guess(path):
    """Draws a draft, keeps or replaces it, and says what came out and how."""
    draft = draw_token(q, path)
    if toss(keep[draft], path):
        return words[draft], "kept"
    return words[draw_token(residual(p, q), path)], f"for a refused '{words[draft]}'"


found = {word: {} for word in words}
for (word, how), probability in outcomes(one_guess):
    found[word][how] = found[word].get(how, 0.0) + probability
for word, ways in found.items():
    print(f"{word:5} {sum(ways.values()):.4f} = " + " + ".join(f"{value:.4f} {how}" for how, value in ways.items()))
assert torch.allclose(torch.tensor([sum(found[word].values()) for word in words]), p)

# %% [markdown]
# Eleven paths: five kept drafts, and three words that can be refused, each with two replacements. The sums are $p$.
#
# ## A block
#
# A drafter proposes $\gamma$ tokens after the [*anchor*](glossary.md#anchor), the last committed token, and one pass of the
# target gives $\gamma + 1$ rows: row $k$ is the target's distribution after the anchor and the first $k$ drafts.
#
# **The prefix rule.** Draft 1 is judged by row 0, draft 2 by row 1, and so on, until the first refusal. Row $k$ was
# computed from a text that contains drafts 1 to $k$; if one of them has been refused, that text does not exist, and
# everything after it is void, however good it looks.
#
# ### Exercise 4 · The token after them (code)
# A block has been judged and `accepted` drafts were kept. One more token is drawn, from rows that are there already.
# Write its distribution.
#
# <details><summary>Hint</summary>
#
# There are two cases, and they read different rows. With none kept, row 0 has refused. With all $\gamma$ kept, no row
# of `draft_probs` is left.
#
# </details>

# %% tags=["exercise"]
def next_distribution(target_probs, draft_probs, accepted):
    """The distribution [V] of the token after `accepted` kept drafts.

    target_probs [g+1, V], draft_probs [g, V]; `residual(p, q)` is at hand.
    """
    return ...


done = exercises.check_next_distribution(next_distribution)

# %% tags=["solution"]
def next_distribution(target_probs, draft_probs, accepted):
    """The distribution [V] of the token after `accepted` kept drafts.

    target_probs [g+1, V], draft_probs [g, V]; `residual(p, q)` is at hand.
    """
    if accepted == len(draft_probs):
        return target_probs[accepted]
    return residual(target_probs[accepted], draft_probs[accepted])


done = exercises.check_next_distribution(next_distribution)

# %% [markdown]
# - **The correction.** After a refusal the replacement comes from the residual of *that* row.
# - **The bonus.** After a whole block row $\gamma$ is still unused. No draft competes there; a token is drawn from it.
#
# So a round commits between 1 and $\gamma + 1$ tokens, the last of which never comes from the drafter. Rounds differ
# in length, and tosses decide the length. Why is the text still the target's?
#
# Look at one position of the text, given the tokens before it and the tosses that committed them. These settle whether
# a draft is judged here. If so, it was drawn from $q$ after exactly these tokens, no earlier toss looked at it, and the
# row of $p$ that judges it stands after the same tokens. What comes out, *kept or replaced*, is then distributed as
# this row: it is one guess. If not, the block has ended, and the bonus is drawn from the target's row itself. Either
# way the token has the target's conditional distribution. The product of these over the positions is the target's
# distribution of the text, for every $\gamma$ and wherever rounds end.
#
# The statement is about a position before its own toss: kept drafts alone are not distributed as $p$, nor are
# replacements.
#
# ## Capstone: your verifier
#
# You have the three pieces: which coin, which replacement, which row. Put them together.
#
# ### Exercise 5 · `verify` (code)
# One round, from the distributions and the drafts to the tokens that are committed: the drafts that are kept, and one
# more. Toss with `toss(chance, generator)` and draw with `draw_token(probs, generator)`, which scales `probs` to sum 1. You
# may call your functions from above, and `residual(p, q)`.
#
# The checker does not compare your code with anybody's. It visits every outcome of your function on a vocabulary of
# three tokens and blocks of two, adds up the texts, and tells you how far their distribution is from the target's.
# Keep it: lesson 03 asks for it again, and lesson 11 builds an engine around it.
#
# <details><summary>Hint 1</summary>
#
# Go through the drafts in order. At the first coin that comes up false the round is decided: what is returned then?
#
# </details>
# <details><summary>Hint 2</summary>
#
# After the loop every draft has been kept, and row $\gamma$ of `p` has not been used yet.
#
# </details>

# %% tags=["exercise"]
def verify(p, q, drafts, generator):
    """The tokens that a round commits: the drafts that are kept, and one more.

    p [g+1, V] and q [g, V] are exercise 4's target_probs and draft_probs, their rows the p and q of exercises 1 and 3;
    `drafts` is a list of g tokens, each drawn from its row of q. Returns a list of 1 to g + 1 tokens.
    """
    return ...


done = exercises.check_verify(verify)

# %% tags=["solution"]
def verify(p, q, drafts, generator):
    """The tokens that a round commits: the drafts that are kept, and one more.

    p [g+1, V] and q [g, V] are exercise 4's target_probs and draft_probs, their rows the p and q of exercises 1 and 3;
    `drafts` is a list of g tokens, each drawn from its row of q. Returns a list of 1 to g + 1 tokens.
    """
    accepted = 0
    while accepted < len(drafts):
        chance = keep_probability(p[accepted], q[accepted])[drafts[accepted]]
        if not toss(chance, generator):
            break
        accepted += 1
    return [*drafts[:accepted], draw_token(next_distribution(p, q, accepted), generator)]


done = exercises.check_verify(verify)

# %%
verify = exercises.in_use(verify, done)

# %% [markdown]
# The package's `accept` judges a whole batch of requests at once, without a Python loop. Is it the same rule? On random
# blocks we visit every outcome of both, and compare the probabilities of every pair (drafts kept, next token).
# `as_accept` hands a batch of one to a `verify`; `None` means that the whole block is judged.

# %%
from dspark_lite.decoding.sampling import accept, draw
from dspark_course.exercises.verifying import as_accept
from dspark_lite.losslessness import total_variation


def decisions(rule, *block):
    """The probability of each (drafts kept, next token) that a rule decides for a block."""
    found = {}
    for verdict, probability in outcomes(lambda path: rule(*block, None, path)):
        decision = verdict.accepted.item(), verdict.next_token.item()
        found[decision] = found.get(decision, 0.0) + probability
    return found


largest = 0.0
for _ in range(100):
    rows = torch.stack([random_distribution(generator) for _ in range(5)]).float()
    block = rows[None, :3], rows[None, 3:], draw(rows[None, 3:], generator)  # [1, 3, V], [1, 2, V], [1, 2]
    largest = max(largest, total_variation(decisions(accept, *block), decisions(as_accept(verify), *block)))
print(f"100 blocks: the same rule, up to a total variation of {largest:.0e}")
assert largest < 1e-5

# %% [markdown]
# ## The whole decoder
#
# Now the same proof for several rounds, with all the bookkeeping between them, such as making both models forget the refused
# drafts. `output_distribution` runs the rounds of the package's `generate`, each once for every path through it, and adds
# up the probabilities of the texts. It is feasible for a toy: `toy_models` makes a target and a drafter of each kind in this
# course, real code with random weights, two tokens in the vocabulary and blocks of two. A text has four tokens. The target
# itself draws the first, which is the first anchor. The other three have room for a whole block with its bonus, or for a second
# round after a refusal.

# %%
from dspark_lite.losslessness import output_distribution
from dspark_lite.losslessness.toys import toy_models

target, drafters = toy_models()
exact = output_distribution(target, None, None, length=4)  # no drafter, no policy
for tokens, probability in sorted(exact.items()):
    print(tokens, f"{probability:.4f}")

# %% [markdown]
# A [*policy*](glossary.md#policy) chooses how many drafts of a block are verified; the rest are dropped unread. We try three:
# all, a fixed number, or up to the first position with a low [*confidence*](glossary.md#confidence), which is the drafter's
# own estimate, made before the draft is drawn, of the chance that it will be kept. What speculative decoding promises is that
# none of this matters for the text. *Total variation* is as above, but over whole texts: 0 for equal distributions, 1 for
# those that share nothing.

# %%
from dspark_lite import scheduling

policies = {"all": None, "fixed": scheduling.fixed(1), "threshold": scheduling.threshold(0.5)}
distances = {}
for name in ("small_lm", "prompt_lookup", "dflash", "dspark", "eagle3", "mtp"):
    drafter = drafters[name]
    for rule, policy in policies.items():
        if rule == "threshold" and not getattr(drafter, "confidence_head", None):
            continue  # only DSpark knows how sure it is
        distances[name, rule] = total_variation(output_distribution(target, drafter, policy, length=4), exact)
        print(f"{name:14} {rule:10} total variation from the target {distances[name, rule]:.1e}")
assert max(distances.values()) < 1e-5

# %% [markdown]
# What is left is float32 rounding. Up to that, this proves the code for these models, texts of four tokens and blocks
# of two. The argument for a block has no such limits; larger models run the same code, and the last section tests one
# by counting. Now your `verify`, once it is right, in the place of the package's rule, in the same `generate`:

# %%
from unittest.mock import patch

from dspark_lite.decoding import rounds

with patch.object(rounds, "accept", as_accept(verify)):
    distance = total_variation(output_distribution(target, drafters["dspark"], None, length=4), exact)
print(f"dspark, the verify in use: total variation from the target {distance:.1e}")
assert distance < 1e-5

# %% [markdown]
# Nobody has trained these drafters, and still the text has exactly the target's distribution.
# **Quality of the draft decides how fast, the rule decides what.**
#
# ## A tempting policy
#
# Is choosing how much to verify a question of speed alone? The example of the paper's Appendix A has two tokens and
# blocks of two:
#
# - the target wants (0.7, 0.3) everywhere, the drafter draws both tokens equally often;
# - the drafter's confidence in the first position is 0.8, which is right: $1 - \text{TV}$;
# - for the second position it says 0.9 after a drafted 0 and 0 after a drafted 1. Both are wrong (the chance is 0.8 again), on
#   purpose: what a drafter believes must never change the text;
# - passes get slower with length: $\text{SPS}(B)$ is how many passes per second the target makes when each reads $B$ tokens,
#   the anchor and $B - 1$ drafts.
#
# The policy looks at the finished block and keeps the length that promises the most tokens per second: the expected
# tokens of a round, $1$, $1 + c_1$ or $1 + c_1 + c_1 c_2$ with confidences $c_1$ and $c_2$, times $\text{SPS}$.

# %%
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.losslessness import marginal
from dspark_lite.losslessness.toys import appendix_a

target_a, drafter_a, cost_table = appendix_a()
retrospective = scheduling.retrospective(cost_table)
print("SPS(1..3):", cost_table.sps(1, range(1, 4)).tolist())
for first in (0, 1):
    confidence = [0.8, 0.9 if first == 0 else 0.0]
    proposal = Proposal(torch.tensor([[first, 0]]), torch.full((1, 2, 2), 0.5), torch.tensor([confidence]).logit())
    expected = [1, 1 + confidence[0], 1 + confidence[0] + confidence[0] * confidence[1]]
    promised = [round(tokens * cost_table.sps(1, length + 1), 3) for length, tokens in enumerate(expected)]
    print(f"first draft {first}: confidence {confidence}, tokens per second {promised} -> verify {int(retrospective(proposal))} drafts")

# %% [markdown]
# The verifier is the right one. How often is the token after the anchor a 0? Work it out from these two cases.

# %%
from dspark_course.exercises.predictions import predict

zeros = predict("The target wants a 0 with probability 0.7. With which probability does it come out?", ...)

# %%
wanted = marginal(output_distribution(target_a, None, None, length=2), 1)
got = marginal(output_distribution(target_a, drafter_a, retrospective, length=2), 1)
zeros.beside(f"{got[0]:.4f}; without a drafter {wanted[0]:.4f}")

# %% [markdown]
# So this policy is not harmless. Follow the two cases. What they promise, in tokens per second:
#
# | drafts verified | 0 | 1 | 2 |
# |---|---|---|---|
# | draft 1 is a 0 | 1.0 | 0.9 | **1.134** |
# | draft 1 is a 1 | **1.0** | 0.9 | 0.81 |
#
# A drafted 0 is verified, and always kept, since $0.7 > 0.5$. A drafted 1 is *not verified*: the round falls back to a
# fresh draw from the target, which is a 0 in 70 % of the cases. So a 0 comes out with probability
# $0.5 + 0.5 \cdot 0.7 = 0.85$.
#
# Each verification was done correctly. The error lies before it: **the drawn token took part in deciding whether it
# would be verified.** The rule's arithmetic needs every offer of a 1 to be judged, so that the right share of them,
# $0.3/0.5 = 60$ %, survives; the argument for a block lets only the past settle whether a draft is judged. Here the
# offers of 1 were withdrawn. A decision about position $k$ may look at everything that was known before token $k$ was
# drawn, and at nothing later: such a choice is called [*non-anticipating*](glossary.md#non-anticipating). The
# confidence threshold obeys. It too reads the 0.9 or 0 that draft 1 has caused, but only to decide about draft 2; the
# retrospective policy lets it decide about draft 1 as well. Lesson 10 builds a scheduler under this constraint.
#
# ### Exercise 6 · Which of them look ahead? (think)
# Which of these policies are lossy? Write the set of their letters, each in quotes.
#
# - A: verify 3 drafts, always.
# - B: always verify draft 1; verify the drafts after it only if draft 1 is not a full stop.
# - C: verify the whole block, but nothing of it if draft 2 repeats draft 1.
# - D: stop before the first drafted token that the drafter itself gave less than 30 %: it was an unlikely draw.
# - E: verify everything if the previous round was accepted in full, else 2 drafts.
#
# <details><summary>Answer</summary>
#
# C and D. In D a draft decides about itself; in C draft 2 decides about itself and about draft 1 before it. A and E know the
# length before the block is drafted; B lets draft 1 decide about later drafts only.
#
# </details>

# %% tags=["exercise"]
lossy = ...

done = exercises.check_lossy_policies(lossy)

# %% tags=["solution"]
lossy = {"C", "D"}

done = exercises.check_lossy_policies(lossy)

# %% [markdown]
# ## Seven ways to break the rule
#
# Now we break it. The models are tables now: row $i$ is the distribution of the token after token $i$, which is 0 or 1. (Only
# the policies further down use the confidences.)

# %%
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget

table_target = ToyTarget([[0.7, 0.3], [0.4, 0.6]])
draft_table = torch.tensor([[0.45, 0.55], [0.8, 0.2]])
table_drafter = ToyDrafter(draft_table, first_confidence=0.5, confidence=[0.5, 0.5], gamma=2)
table_exact = output_distribution(table_target, None, None, length=4)

# %% [markdown]
# Four mistakes in the verifier first:
#
# 1. $p$ and $q$ swapped in the coin
# 2. the correction drawn from $p$, not from the residual
# 3. the residual not renormalised
# 4. the bonus drawn from the row before
#
# The third deserves a word: `torch.multinomial` renormalises silently, and so does our `draw_token`, so forgetting it does no
# harm there. A hand-written draw along the cumulative sum gives the missing mass to the last token.
#
# Which of them changes the text most, which least? Write their two numbers in place of the dots, the most harmful
# first.

# %%
guess = predict("Which of the four changes the text most, which least?", ...)

# %% [markdown]
# Solve exercise 5 first: the next cell prints one solution, a `verify` of the package's, to lay beside yours.

# %%
from dspark_course.exercises import verifying

source = inspect.getsource(verifying.verify)
print(source)


def changed(old, new):
    """The function above with the expression `old` replaced by `new`, which may call your own functions."""
    assert source.count(old) == 1, f"{old!r} must stand in verify exactly once"
    names = dict(globals())
    exec(source.replace(old, new), names)
    return names["verify"]

# %% [markdown]
# `distance_with` puts a verifier into the real `generate` and measures how far the text is from the target's. The unbroken
# verifier first:

# %%
def distance_with(rule, drafter=table_drafter, policy=None):
    """Total variation of generate's output from the target's, with the verifier `rule` in the package's place."""
    with patch.object(rounds, "accept", as_accept(rule)):
        return total_variation(output_distribution(table_target, drafter, policy, length=4), table_exact)


measured = {"the rule as derived": distance_with(verify)}
assert measured["the rule as derived"] < 1e-5
print(f"total variation {measured['the rule as derived']:.1e}")

# %%
def not_renormalised(p, q):
    """max(p - q, 0) [V] as a cumulative-sum draw sees it: what is missing to 1 goes to the last token."""
    owed = (p - q).clamp(min=0)
    owed[-1] += 1 - owed.sum()
    return owed


mistakes = {
    "1 p and q swapped in the coin": changed("p[k, x] / q[k, x]", "q[k, x] / p[k, x]"),
    "2 correction drawn from p": changed("residual(p[k], q[k])", "p[k]"),
    "3 residual not renormalised": changed("residual(p[k], q[k])", "not_renormalised(p[k], q[k])"),
    "4 bonus from the row before": changed("p[len(drafts)]", "p[len(drafts) - 1]"),
}
found = {name: distance_with(rule) for name, rule in mistakes.items()}
measured |= found
guess.beside(", then ".join(f"{name} ({found[name]:.3f})" for name in sorted(found, key=found.get, reverse=True)))

# %% [markdown]
# Why in this order?
#
# - **1, the coin** (0.381): every token that is offered too often is kept. What is refused was offered too rarely, and
#   comes back from the residual; so with two tokens the result is $q$ itself.
# - **3, not renormalised** (0.191): after a 0 only a 0 is owed, but three of four replacements are a 1. After a 1 the
#   missing mass lands where it is owed.
# - **2, drawn from $p$** (0.141): 30 % of the replacements after a 0 and 40 % of those after a 1 are not owed. 51 first
#   blocks in 100 have a refusal.
# - **4, the bonus** (0.072): acts only after 24 first blocks in 100, those kept whole whose two drafts differ (after
#   equal ones the row before is the same row). A later bonus is no longer in the four tokens.
#
# With other tables mistakes 2, 3 and 4 may change places.
#
# Mistake 5 is in the drafter. The rule is right for the $q$ that the token was *drawn* from. A drafter that draws
# from a softmax in 16 bits and hands over float32 probabilities claims a $q$ it did not use. What is its total
# variation, do you think: about a tenth, a hundredth, a thousandth, less?
#
# > **Margin note.** [DeepSpec](references.md#deepspec), the paper's own code, did this in June 2026
# > ([issue 31](https://github.com/deepseek-ai/DeepSpec/issues/31); [pull request
# > 30](https://github.com/deepseek-ai/DeepSpec/pull/30) proposes the repair). The package draws and accepts with the same
# > float32 tensor.

# %%
class Claiming(ToyDrafter):
    """Draws from `table` and claims to have drawn from `claimed` [V, V]."""

    def propose(self, state, anchor, **how):
        proposal = super().propose(state, anchor, **how)
        before = torch.cat([anchor[:, None], proposal.tokens[:, :-1]], 1)
        return Proposal(proposal.tokens, self.claimed[before], proposal.confidence_logits)


def claiming(drawn, claimed):
    """A table drafter that draws from one table and claims another, both [V, V]."""
    drafter = Claiming(drawn, first_confidence=0.5, confidence=[0.5, 0.5], gamma=2)
    drafter.claimed = claimed
    return drafter


rounded = torch.softmax(draft_table.log().bfloat16(), -1).float()
measured["5 drawn in 16 bits, float32 claimed"] = distance_with(verify, claiming(rounded, draft_table))
honest = rounded / rounded.sum(-1, keepdim=True)
measured["drawn in 16 bits, the same claimed"] = distance_with(verify, claiming(honest, honest))

# %% [markdown]
# Mistakes 6 and 7 are policies around the right verifier: Appendix A's, and D of the exercise.

# %%
def unlikely_draws(proposal):
    """Policy D: whether a token is verified depends on which token it is."""
    drawn = proposal.probs.gather(-1, proposal.tokens.unsqueeze(-1)).squeeze(-1)
    return (drawn >= 0.3).long().cumprod(-1).sum(-1)


table_drafter.confidence = torch.tensor([0.9, 0.0])  # as in Appendix A
table_drafter.first_confidence = 0.8
measured["policy: confidence threshold"] = distance_with(verify, policy=scheduling.threshold(0.5))
measured["6 policy: retrospective length"] = distance_with(verify, policy=retrospective)
measured["7 policy: unlikely draws withheld"] = distance_with(verify, policy=unlikely_draws)

# %% [markdown]
# Green points are exact up to rounding, which stays left of the dotted line; orange ones are another distribution.

# %%
picture = figures.total_variation_figure(measured)
for name, distance in measured.items():
    print(f"{name:36} {distance:.1e}")
broken = [name for name, distance in measured.items() if distance > 1e-5]
assert len(broken) == 7

# %% [markdown]
# The two policies again: 6 withholds every block that begins with a 1, as in Appendix A, now on other tables. 7 withholds only
# a 1 drafted after a 1 (the drafter gives it 0.2), so it acts less often: 0.050, not 0.13.
#
# Seven lossy decoders, and none of them raises an error: only a proof like this one, or a count, tells. The quietest
# is the fifth: rounding to 16 bits moves the text by only 0.00018. That is still far above what float32 rounding
# leaves.
#
# ### Exercise 7 · The quietest mistake (open)
# Invent a mistake of your own with `changed(old, new)`, one that somebody might really make, and measure it with
# `distance_with`, as the cell below does with one. Can you find one whose total variation is not zero and yet below 0.01?
# About how many draws would a count need to notice it? Policies can be measured, too: try C of exercise 6 with
# `distance_with(verify, policy=...)`.
#
# <details><summary>Hint</summary>
#
# Where does a number get a little wrong in real code? Think of precision, and of safeguards. A count of $n$ draws sees
# differences of about $1/\sqrt{n}$.
#
# </details>
# <details><summary>Answer</summary>
#
# Some of many:
#
# | `old` | `new` | total variation |
# |---|---|---|
# | `p[k, x] / q[k, x]` | `p[k, x] / (q[k, x] + 1e-3)` | 0.0007 |
# | `p[k, x] / q[k, x]` | `(p[k, x] / q[k, x]).bfloat16()` | 0.0009 |
# | `p[k, x] / q[k, x]` | `(p[k, x] / q[k, x]).round(decimals=2)` | 0.0029 |
# | `residual(p[k], q[k])` | `residual(p[k], q[k]).clamp(min=0.01)` | 0.0041 |
#
# For the third a count needs about $1/0.0029^2$, some 120,000 draws. For mistake 5 it would be 30 million. Policy C, as
# `lambda proposal: torch.where(proposal.tokens[:, 0] == proposal.tokens[:, 1], 0, 2)`, moves the text by 0.10.
#
# </details>

# %%
own = changed("p[k, x] / q[k, x]", "p[k, x]")  # put yours in its place
print(f"total variation {distance_with(own):.2g}")

# %% [markdown]
# ## A count on the real model
#
# With a real vocabulary there are too many paths to visit, so we count instead. We take a place in an answer where the target
# hesitates and DSpark disagrees with it. `next_token_counts` runs one round there many times, with blocks of one draft,
# and counts the token that comes after the anchor. The target's own probabilities say how often each should come. The
# chi-square test turns the difference into a p-value: how probable are counts at least this far off, if the decoder is exact?
# Tokens expected fewer than five times are counted together. We reject a decoder below $10^{-3}$, which happens to an exact one
# once in a thousand tests.

# %%
from dspark_lite.losslessness.chi_square import after_anchor, chi_square, next_token_counts, up_to_a_fork
from dspark_course.measure.lab import setup

lab = setup()
ids = up_to_a_fork(lab.target, lab.drafter("dspark"), lab.encode(lab.prompts["chat"][0]))
anchor, target_next = after_anchor(lab.target, ids, temperature=1.0)  # the second is [V]
likely = target_next.argsort(descending=True)[:10]
print(" ".join(lab.decode(ids[0]).split()), "| anchor:", lab.decode([anchor]))
print("\nmost probable then:", [lab.decode([token]) for token in likely])

# %%
def report(name, counts, note=""):
    """Prints the p-value of counts [V], what follows from it, and a note."""
    value = chi_square(counts, target_next)
    shown = f"{value:.3f}" if value >= 1e-3 else "below 0.001"
    print(f"{name:14} p-value {shown:12} {'rejected' if value < 1e-3 else 'not rejected'}{note}")


def watched(*block):
    """The package's rule, which also writes down the share of rounds whose draft it keeps."""
    verdict = accept(*block)
    kept_shares.append(verdict.accepted.float().mean())
    return verdict


draws, counts = 2000, {}
for name in lab.drafters:
    kept_shares = []
    counts[name] = next_token_counts(lab.target, lab.drafter(name), ids, draws, 1.0, lab.generator(), gamma=1, accept=watched)
    report(name, counts[name], f", draft kept in {torch.stack(kept_shares).mean():.0%} of the rounds")

# %% [markdown]
# None of the six is rejected; the smallest p-value is 0.379. Prompt lookup's draft is hardly ever kept here, so its count tests
# little more than the correction. Now a verifier with a planted error: $p$ and $q$ are handed over the wrong way round, so they
# are swapped in the residual as well as in the coin.

# %%
def swapped(target_probs, draft_probs, draft_tokens, lengths, generator):
    """The package's rule with the drafter's rows in the target's place and the target's in the drafter's."""
    wrong_way = torch.cat([draft_probs, target_probs[:, -1:]], 1)
    return accept(wrong_way, target_probs[:, :-1], draft_tokens, lengths, generator)


drafter = lab.drafter("dspark")
planted = next_token_counts(lab.target, drafter, ids, draws, 1.0, lab.generator(), gamma=1, accept=swapped)
report("planted error", planted)

# %% [markdown]
# Where do its draws go: nearer to $p$ than the drafter's $q$, or further away? (Tokens such as " bre" begin words.)

# %%
shown = {"DSpark, exact rule": counts["dspark"], "DSpark, p and q swapped": planted}
shown = {label: count[likely].tolist() for label, count in shown.items()}
picture = figures.counts_figure([lab.decode([token]) for token in likely], target_next[likely].tolist(), draws, shown)
outside = 1 - planted[likely].sum() / draws
print(f"outside these ten tokens: {outside:.0%} of the planted draws, {1 - target_next[likely].sum():.0%} of the target's")

# %% [markdown]
# About one count of twenty of an exact decoder lies outside its bar of two standard deviations. The swapped one stays
# inside only once: it draws most of the target's favourites too rarely, and 61 % of its draws go to tokens outside
# these ten, where the target puts 2 %. It keeps all that the drafter offers too often, refuses some of what is offered
# too rarely, and puts more of the former in its place: at no token is it nearer to $p$ than $q$ is.
#
# A count sees only what is larger than its own noise: a few thousand draws find an error of a few percent, never one of a
# millionth. That is why the proof by enumeration comes first.
#
# ## Recap
#
# - Keep a drafted $x$ with probability $\min(1, p/q)$, else draw from the residual $\max(p - q, 0)$, renormalised.
#   The sum is $p$, for every $q$.
# - The chance of keeping it is $1 - \text{TV}(p, q) = 1 - L_1/2$: how good a drafter's guess is, in one number. No rule for
#   one token keeps more.
# - In a block, judge until the first refusal; the next token comes from that row's residual, or after a whole block
#   from the target's last row. Given what came before, each token is then distributed as the target's.
# - Nothing that depends on the drawn token may decide whether it is verified, and $q$ must be the distribution that
#   was really drawn from.
#
# **Next:** [lesson 03](03_a_first_speculative_decoder.ipynb) puts the rule to work with two drafters that need no
# training of their own, and finds where speculation loses.
