# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=80 difficulty="hard"
# # 02 · The lossless rule
#
# **What you will be able to do**
#
# - turn a token drawn from the drafter's distribution $q$ into a token of the target's distribution $p$, exactly
# - say how often a draft is kept, and (exercise 2) why no lossless rule keeps a single token more often
# - write `verify`, the rule for a whole block, and check it by visiting every outcome
# - run it inside the package's `generate`
#
# **What you need:** lesson 00, and what a probability distribution is. No GPU.
#
# **Sources:** the rule is due to [Leviathan et al.](../docs/references.md#leviathan) and, independently, to [Chen and others](../docs/references.md#chen).
# Symbols are listed on the page of [notation](../docs/notation.md), terms in the [glossary](../docs/glossary.md).

# %% tags=["setup"]
pass

# %%
import torch

from dspark_lite.course.bets import bet, show_score
from dspark_lite.course.exercises import lesson_02 as exercises
from dspark_lite.course.own_decoder.keep import keep
from dspark_lite.course.figures import lesson_02 as figures
from dspark_lite.course.figures import style
from dspark_lite.course.figures.living_round import living_round
from dspark_lite.course.lesson_text import claims, glue
from dspark_lite.course.measure.recorded_rounds import recorded_rounds

_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## Offered 45 times, wanted 30
#
# In lesson 00 a guess was right or wrong, because we always took the likeliest token. But models usually *draw* their tokens at random.
# A question with many good answers should get many answers. What is a right guess then?
#
# The target wants its next token drawn from $p$. The drafter has already drawn one from its own distribution $q$. We would like to use that
# token as often as possible, and still end up with a token distributed exactly as $p$. A rule that does this is called
# [*lossless*](../docs/glossary.md#lossless): the text alone never tells that a drafter was there; only the clock does.
#
# Five words to think with:

# %%
words = ["the", "a", "my", "this", "no"]
p = torch.tensor([0.40, 0.30, 0.15, 0.10, 0.05])  # target
q = torch.tensor([0.20, 0.45, 0.20, 0.05, 0.10])  # drafter
picture = figures.outlines_figure(p, q, words)

# %%
drafts_kept = bet("02 drafts kept")

# %% [markdown]
# Look at the first two. In a hundred draws the drafter offers "the" 20 times, and the target wants it 40 times: keep every one. It offers
# "a" 45 times, and the target wants it 30 times: some of the offers must go.
#
# ### Exercise 1 · Keep it? (code)
# *5 minutes · easy · core.*
#
# For every token: with which probability is it kept, once it has been drafted?
#
# <details><summary>Hint</summary>
#
# How many of the 45 offers of "a" do you keep? Turn this into a share. And which share of the 20 offers of "the"?
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
# The same picture, coloured. Green is what is drafted and kept. Orange, cross-hatched, is offered too often and refused. Blue is what the target
# wants and has not got yet.

# %% tags=["answer"]
keep_probability = keep_probability if done else exercises.keep_probability  # yours, once it is right
figure, axes = style.figure()
figures.overlap_panel(axes, p, q, words)
kept = q * keep_probability(p, q)  # [V]: drafted and kept
assert torch.allclose(kept, torch.minimum(p, q))
drafts_kept.settle(f"about {100 * kept.sum():.0f}", f"the green area is {kept.sum():.2f}; half of the differences' sum, {(p - q).abs().sum() / 2:.2f}, is refused")

# %% [markdown]
# The green area is the chance that a draft is kept. Both $p$ and $q$ have area 1. So green plus orange is 1, and green plus
# blue is 1, and therefore orange equals blue: **what is refused is exactly as much as what is owed.** That common area is the *total
# variation distance* TV, half of the sum $L_1$ of all differences:
#
# $$P(\text{keep}) = \sum_x \min(p(x), q(x)) = 1 - \text{TV}(p, q) = 1 - \tfrac12 L_1.$$
#
# This is how good a drafter's guess is, in one number. Lesson 07 trains drafters on it.
#
# ### Exercise 2 · No rule keeps more (think)
# *10 minutes · hard · optional.*
#
# Is there a cleverer rule for this one token, which keeps the draft more often and is still lossless? Prove that there is none: the token
# that goes into the text equals the drafted one with probability $1 - \text{TV}$ at most.
#
# <details><summary>Hint</summary>
#
# Take one token $x$. "The draft is $x$ and the output is $x$" is part of two events whose probabilities you know.
#
# </details>
# <details><summary>Answer</summary>
#
# Let $X$ be the drafted token and $Y$ the token of the text. "$X = x$ and $Y = x$" happens only if $X = x$, which has probability $q(x)$,
# and only if $Y = x$, which has probability $p(x)$ since the rule is lossless. So its probability is at most the smaller of the two, and
#
# $$P(X = Y) = \sum_x P(X = x, Y = x) \le \sum_x \min(p(x), q(x)).$$
#
# Our rule reaches the bound for every $x$ at once: it is a maximal [coupling](../docs/glossary.md#coupling). Only a better drafter is kept
# more often. (All of this is about one token. A rule that looks at a whole block can keep more of it:
# [judge the block](more/block_verification.ipynb).)
#
# </details>
#
# ## The replacement
#
# A refused draft has to be replaced by something.
#
# ### Exercise 3 · What is owed (code)
# *10 minutes · medium · core.*
#
# From which distribution must the replacement be drawn, so that kept drafts and replacements together are distributed as $p$?
#
# <details><summary>Hint</summary>
#
# Subtract from $p$ what the kept drafts bring already. What is left must be scaled to sum to 1.
#
# </details>

# %% tags=["exercise"]
def residual(p, q):
    """The distribution [V] from which a token is drawn after a refusal."""
    return ...


done = exercises.check_residual(residual) and keep(residual)

# %% tags=["solution"]
def residual(p, q):
    """The distribution [V] from which a token is drawn after a refusal."""
    owed = (p - q).clamp(min=0)
    return owed / owed.sum()


done = exercises.check_residual(residual) and keep(residual)

# %% [markdown]
# <details><summary>Why it works</summary>
#
# It is the blue area, scaled. It is called the [**residual**](../docs/glossary.md#residual), $r(x) = \max(p(x) - q(x), 0) / \text{TV}$. A refusal happens with probability
# TV, so the scaling cancels:
#
# $$\underbrace{\min(p, q)}_{\text{kept}} + \underbrace{\text{TV}\cdot r}_{\text{replaced}} = \min(p, q) + \max(p - q, 0) = p.$$
#
# </details>
#
# Do kept drafts and replacements together give $p$? Let us try it out, fifty thousand times: draw a draft, toss a coin that says "keep"
# with the probability of exercise 1, and replace the draft where it is refused. Beside it stands a tempting shortcut: after a refusal
# simply ask the target, and draw from $p$ itself. What comes out then can be worked out from the areas.

# %%
asked_again = bet("02 replaced from p")

# %% tags=["answer"]
residual = residual if done else exercises.residual


def simulated(replacement, draws=50_000):
    """The share [V] of each word among simulated tokens; refused drafts are replaced by draws from `replacement` [V]."""
    generator = torch.Generator().manual_seed(0)
    drafts = torch.multinomial(q, draws, replacement=True, generator=generator)
    kept = torch.rand(draws, generator=generator) < keep_probability(p, q)[drafts]
    tokens = torch.where(kept, drafts, torch.multinomial(replacement, draws, replacement=True, generator=generator))
    return torch.bincount(tokens, minlength=len(p)) / draws


shares = {"the rule": simulated(residual(p, q)), "replaced from p": simulated(p)}
picture = figures.simulation_figure(words, p.tolist(), {name: share.tolist() for name, share in shares.items()})
surplus = (shares["replaced from p"] - p)[1]  # of "a"
asked_again.settle("too often" if surplus > 0.02 else "too rarely" if surplus < -0.02 else "as often as it should",
                   f"wanted {p[1]:.2f}, it comes {shares['replaced from p'][1]:.2f}; by the rule {shares['the rule'][1]:.2f}")

# %% tags=["claim"]
claims({"the rule stays within the noise, the mistake does not": (shares["the rule"] - p).abs().max() < 0.01 < (shares["replaced from p"] - p).abs().max(),
        "drawn from p, what was offered too often comes too often": shares["replaced from p"][1] > p[1] + 0.02})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# The rule lies on top of $p$. The shortcut gives "a" a second chance: all that is wanted of it has been kept already, and now some more
# comes with the replacements. So it is with "my" and "no", and "the" and "this" come too rarely.
#
# </details>
#
# One token is settled. Here is the rule at work in recorded rounds of the course's tiny models: the areas of $p$ and $q$ at each slot, and a
# coin for each draft. The black tick is the coin: left of the green bar's end it keeps the draft. Framed is what was drawn.

# %%
picture = living_round("coins", recorded_rounds("sampled")[1:])

# %% [markdown]
# The *temperature* divides the logits before the softmax: below 1 likely tokens become likelier, and at 0 the likeliest has all.
# The sliders below move a drafter's logits and the temperature of both models. How small can you make the green area
# at temperature 1? And what happens at temperature 0?

# %%
from dspark_lite.decoding.sampling import probabilities
from dspark_lite.course.figures import widgets

target_logits = torch.tensor([1.5, 0.5, 0.0, -1.0])


def draw_overlap(first, second, third, temperature):
    """The picture for a drafter with these logits (the fourth is 0)."""
    draft_logits = torch.tensor([first, second, third, 0.0])
    target_probs, draft_probs = (probabilities(logits, temperature) for logits in (target_logits, draft_logits))
    return figures.overlap_figure(target_probs, draft_probs, list("ABCD"))


panel = widgets.explore(
    draw_overlap, {"first": -3.0, "second": -3.0, "third": -3.0}, {"temperature": 0.0},
    first=widgets.slider("drafter's logit of A", 0.5, -3.0, 3.0, 0.1),
    second=widgets.slider("drafter's logit of B", 1.5, -3.0, 3.0, 0.1),
    third=widgets.slider("drafter's logit of C", -1.0, -3.0, 3.0, 0.1),
    temperature=widgets.slider("temperature", 1.0, 0.0, 2.0, 0.1), frames={"second": [-3.0, -2.0, -1.0, 0.0, 1.0, 1.5, 2.0, 3.0]})
target_probs, draft_probs = (logits.softmax(-1) for logits in (target_logits, torch.tensor([-3.0, -3.0, -3.0, 0.0])))
glue(least_green=torch.minimum(target_probs, draft_probs).sum())

# %% [markdown]
# With all three logits at −3 the drafter nearly always offers D, which the target hardly wants: ⟦least_green:.2f⟧ is left, and at temperature 1 no setting of the
# sliders leaves less. At temperature 0 both distributions put everything on one token. If it is the same one, all is green; if not, nothing is.
# The rule becomes: keep the draft if it is the target's favourite, else take the favourite. That is lesson 00. Greedy decoding is a special
# case and needs no code of its own.
#
# ## Every outcome instead of many
#
# A simulation has noise: of $n$ draws it sees differences of about $1/\sqrt n$. To see an error ten times smaller takes a hundred times the draws. So we do what
# a toy allows: we visit *every* outcome and add up the probabilities. Only two functions decide anything at random:
#
# - `toss(chance, generator)` is true with probability `chance`, and always where that is 1 or more;
# - `draw(probs, generator)` draws a token from the distribution `probs` [V].
#
# Instead of a generator, `outcomes` hands them a *path*: a list of decisions to take. It follows one path after another until every coin has
# come up each way that it can and every token has been drawn, and multiplies the chances along each: the path *draft "a", refuse it, draw "the"* has
# $0.45 \cdot \tfrac13 \cdot 0.8 = 0.12$.

# %%
from dspark_lite.course.own_decoder.verifying import draw, toss
from dspark_lite.losslessness import outcomes


def one_guess(path):
    """Draws a draft, keeps or replaces it, and says what came out and how."""
    draft = draw(q, path)
    if toss(keep_probability(p, q)[draft], path):
        return words[draft], "kept"
    return words[draw(residual(p, q), path)], f"for a refused '{words[draft]}'"


ways, paths = {word: {} for word in words}, 0
for (word, how), probability in outcomes(one_guess):
    ways[word][how] = ways[word].get(how, 0.0) + probability
    paths += 1
for word, found in ways.items():
    print(f"{word:5} {sum(found.values()):.4f} = " + " + ".join(f"{value:.4f} {how}" for how, value in found.items()))
assert torch.allclose(torch.tensor([sum(ways[word].values()) for word in words]), p)
glue(paths=paths)

# %% [markdown]
# ⟦paths:Words⟧ paths, no noise, and the sums are $p$. The algebra above proves the rule; this checks the code, every path of it, and it is our test from now on.
#
# ## A block
#
# A drafter proposes $\gamma$ tokens after the [*anchor*](../docs/glossary.md#anchor), the newest token of the text. One pass of the target gives
# $\gamma + 1$ rows: row $k$ is its distribution after the anchor and the first $k$ drafts. All rows have to be computed before anybody
# knows where the first refusal will fall. To compute no row beyond the first refusal, we would have to judge each draft before computing
# the next row: one pass per token, as in plain decoding.
#
# **The prefix rule.** Row 0 judges draft 1, row 1 judges draft 2, and so on until the first refusal. Everything after it is void, however
# good it looks: its rows were computed after a text that does not exist.
#
# ### Exercise 4 · The token after them (code)
# *10 minutes · medium · core.*
#
# A block has been judged, and `accepted` drafts were kept. One more token is drawn, from rows that are there already. Return its
# distribution. There are two cases.
#
# <details><summary>Hint</summary>
#
# With none kept, row 0 has refused. With all $\gamma$ kept, nothing was refused, and one row of the target is still unused.
#
# </details>

# %% tags=["exercise"]
def next_distribution(target_probs, draft_probs, accepted):
    """The distribution [V] of the token after `accepted` kept drafts; target_probs [g+1, V], draft_probs [g, V].

    `residual(p, q)` is at hand.
    """
    return ...


done = exercises.check_next_distribution(next_distribution)

# %% tags=["solution"]
def next_distribution(target_probs, draft_probs, accepted):
    """The distribution [V] of the token after `accepted` kept drafts; target_probs [g+1, V], draft_probs [g, V].

    `residual(p, q)` is at hand.
    """
    if accepted == len(draft_probs):
        return target_probs[accepted]
    return residual(target_probs[accepted], draft_probs[accepted])


done = exercises.check_next_distribution(next_distribution)

# %% [markdown]
# After a refusal comes the **correction**, from the residual of the row that refused. After a whole block comes the [**bonus**](../docs/glossary.md#bonus), from the last
# row as it is: no draft competes there. So a round adds between 1 and $\gamma + 1$ tokens, and the last of them is never a draft.
#
# Rounds differ in length, and coins decide the length. Why is a text of two tokens still the target's? Draw all the ways to it. Across: the
# first word is kept (green) or comes as a replacement (blue). Upwards: the same for the second word, given the first.

# %%
picture = figures.two_tokens_figure((0.40, 0.20), (0.60, 0.35), ("the", "cat"))

# %% [markdown]
# Three ways lead to "the cat", and they fill one rectangle: as wide as the target's chance of "the", as high as its chance of "cat" after "the".
# Its area is the target's probability of the text. The right column is whole: the replacement has ended the round, and the next round brings "cat" with its chance,
# by the same rule. **Wherever a round ends, each token has the target's distribution, given the tokens before it.** With more
# tokens the picture gets more dimensions and stays a box.
#
# ## Your verifier
#
# You know the three pieces: which coin, which replacement, which row. Write them anew in one function, a line each.
#
# ### Exercise 5 · `verify` (code)
# *20 minutes · hard · core. If you do only one, do this.*
#
# One round, from distributions and drafts to the tokens that are committed: the kept drafts and one more. Use `toss(chance, generator)`,
# `draw(probs, generator)` and `residual(p, q)`, and nothing else of this notebook, since the function goes into your file.
#
# The checker visits every outcome of your function, on three tokens and blocks of two, adds up the texts, and says how far they are from the
# target's.
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

    p [g+1, V] and q [g, V] are the target's and the drafter's rows, `drafts` a list of g tokens, each drawn from its row of q.
    Returns a list of 1 to g + 1 tokens.
    """
    return ...


done = exercises.check_verify(verify) and keep(verify)

# %% tags=["solution"]
def verify(p, q, drafts, generator):
    """The tokens that a round commits: the drafts that are kept, and one more.

    p [g+1, V] and q [g, V] are the target's and the drafter's rows, `drafts` a list of g tokens, each drawn from its row of q.
    Returns a list of 1 to g + 1 tokens.
    """
    for k, x in enumerate(drafts):
        if not toss(p[k, x] / q[k, x], generator):
            return [*drafts[:k], draw(residual(p[k], q[k]), generator)]
    return [*drafts, draw(p[len(drafts)], generator)]


done = exercises.check_verify(verify) and keep(verify)

# %% [markdown]
# If it says "Correct.", you have written the function that makes speculative decoding exact, and checked every path of it. Nearly everything else in this course
# is about speed.
#
# ## Your `verify` inside `generate`
#
# Does it still hold over several rounds, with all the bookkeeping between them? `output_distribution` runs the package's `generate` through
# every path, here with random models of two tokens: a target and four drafters of this course. The distributions of all texts of four
# tokens are compared. Total variation is 0 for equal distributions and 1 for those that share nothing.

# %%
from dspark_lite.course.own_decoder.verifying import as_accept
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models

verify = exercises.in_use(verify, done)
target, drafters = toy_models()
exact = output_distribution(target, None, None, length=4)  # the target alone
distances = {}
for name in ("prompt_lookup", "dflash", "dspark", "eagle3"):  # a drafter of each kind
    drafter = drafters[name]
    found = output_distribution(target, drafter, None, length=4, rule=as_accept(verify))  # your function decides
    distances[name] = total_variation(found, exact)
    print(f"{name:14} {len(exact)} texts, total variation from the target {distances[name]:.0e}")
assert max(distances.values()) < 1e-5

# %% [markdown]
# What is left is rounding. Nobody has trained these drafters; they guess badly, and still every text has the target's probability.
# **Quality of the draft decides how fast, the rule decides what.**
#
# Two conditions hide in the rule. First, $q$ must be the distribution that the token was *really*
# drawn from: a drafter that draws in 16 bits and reports probabilities in 32 is already lossy. Second, **the drawn token must never
# decide whether it is checked.** If it may, the words that are passed over are offered less often than $q$ says, and the arithmetic no
# longer adds up: let $p$ and $q$ both be one half "yes", one half "no". A drafted "yes" is checked, and kept. A drafted "no" is thrown
# away unchecked, and the target draws a token in its place. So "no" comes out in a quarter of the cases. A block may be cut by what
# stands *before* a token (lesson 09 does), never by the token itself. Lesson 10 shows an honest-looking scheduler that breaks this.
#
# ### Exercise 6 · Break it (open)
# *15 minutes · medium · optional.*
#
# Here are four slips that are easily made, each in the real `generate`. Add one of your own: can you find one whose distance is not zero and
# below 0.01? How many draws would a simulation need to notice it?
#
# <details><summary>Hint</summary>
#
# Where does a number get a little wrong in real code? Think of rounding, and of safeguards such as `q + 1e-3`. A slip at distance $d$ takes
# about $1/d^2$ draws.
#
# </details>

# %%
to_notice = bet("02 draws to notice")

# %% tags=["answer"]
from dspark_lite.course.own_decoder.verifying import variant
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget

table_target = ToyTarget([[0.7, 0.3], [0.4, 0.6]])  # row i: the next token after token i
table_drafter = ToyDrafter([[0.45, 0.55], [0.8, 0.2]], first_confidence=0.5, confidence=[0.5, 0.5], gamma=2)
table_exact = output_distribution(table_target, None, None, length=4)
slips = {
    "the rule": variant(),
    "p and q swapped in the coin": variant(coin=lambda p, q, k, x: q[k, x] / p[k, x]),
    "replacement drawn from p": variant(correction=lambda p, q, k: p[k]),
    "bonus from the row before": variant(bonus=lambda p, q: p[len(q) - 1]),
    "coin rounded to two digits": variant(coin=lambda p, q, k, x: (p[k, x] / q[k, x]).round(decimals=2)),
}
measured = {}
for name, rule in slips.items():
    found = output_distribution(table_target, table_drafter, None, length=4, rule=as_accept(rule))
    measured[name] = total_variation(found, table_exact)
picture = figures.total_variation_figure(measured)
assert measured["the rule"] < 1e-5
rounded = measured["coin rounded to two digits"]
offers = {"about 1,000": 1e3, "about 10,000": 1e4, "about 100,000": 1e5}
to_notice.settle(min(offers, key=lambda text: abs(torch.tensor(offers[text] * rounded**2).log())),
                 ", ".join(f"{name} {distance:.1g}" for name, distance in measured.items()))

# %% tags=["claim"]
quietest = min(distance for name, distance in measured.items() if name != "the rule")
glue(draws=round(1 / quietest**2, -4))
claims({"all four slips are lossy": quietest > 1e-5,
        "the quietest is the rounded coin, below a hundredth": measured["coin rounded to two digits"] == quietest < 0.01})

# %% [markdown]
# Four lossy decoders, and none of them raises an error.
#
# <details><summary>After your bet</summary>
#
# The rounded coin is the quietest: a simulation would need about ⟦draws:,.0f⟧ draws to see it, and the enumeration needs a second.
#
# </details>
#
# <details><summary>How sure are we?</summary>
#
# The enumeration is exact for the code that ran, for these models, texts of four tokens and blocks of two. The argument of the rectangle has no such limits,
# and larger models run the same code. The course's tests also count draws of its tiny models and compare them with the target's probabilities.
#
# </details>

# %% [markdown]
# **Case 02.** A `verify` written from memory passes every test at temperature 0. What is wrong with it? Measure at most three things, then accuse.

# %%
from dspark_lite.course.cases import case

investigation = case("02")

# %% [markdown]
# ## Recap
#
# - Keep a drafted $x$ with probability $\min(1, p(x)/q(x))$, else draw from the residual $\max(p - q, 0)$, scaled to sum to 1. The result is $p$, for
#   every $q$.
# - A draft is kept with probability $1 - \text{TV}(p, q)$. Of one token no lossless rule keeps more; only a better drafter does. (Of a block
#   [one does](more/block_verification.ipynb).)
# - In a block, judge up to the first refusal. The next token comes from that row's residual, or after a whole block from the last row.
# - Your `verify` is in `my_dspark.py`, and it is exact.
#
# **Next:** [lesson 03](03_a_first_speculative_decoder.ipynb) builds the decoder around it, with caches, and finds out when speculation loses.

# %%
show_score("02")
