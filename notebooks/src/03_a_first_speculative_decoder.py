# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"]
# # 03 · A first speculative decoder
#
# **What you will learn**
# - to write the loop by hand in some twenty lines, at any temperature, around your own `verify`
# - what the two K/V caches must forget after a round, and what each kind of slip costs
# - two drafters that cost no training: a smaller language model, and prompt lookup
# - when speculation loses, from three numbers: acceptance, draft length, cost ratio
#
# **What you need**: lesson 01 (the K/V cache, what a pass costs) and lesson 02 (the accept rule).
#
# **Sources**: drafting with a smaller model is the setting of [Leviathan et al.](references.md#leviathan) and
# [Chen et al.](references.md#chen); the formula for the speed-up is in the former, section 3. Prompt lookup is
# [Saxena's](references.md#prompt-lookup). [Notation](notation.md) · [glossary](glossary.md)

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite
from dspark_lite.exercises import lesson_03 as exercises

lab = dspark_lite.setup()
lab.max_new_tokens = 80  # enough for what is measured here; a large target's answers may end in the middle
target, drafter = lab.target, lab.drafter("small_lm")
small = drafter.model
parameters = {name: sum(p.numel() for p in model.model.parameters())
              for name, model in (("target", target), ("small LM", small))}
print(f"target: {target.num_layers} layers, {parameters['target'] / 1e6:.2f} million parameters")
print(f"small LM: {small.num_layers} layers, {parameters['small LM'] / 1e6:.2f} million parameters")

# %% [markdown]
# Both models share one vocabulary and were trained on the same kind of text. The small one makes more mistakes. We let
# it guess ahead, and let the target correct it.
#
# ## The rule, from memory
#
# The loop needs the rule of lesson 02. You have written it once; write it again without looking.
#
# ### Exercise 1 · `verify` (code)
# `toss(chance, generator)` is true with probability `chance`, `draw_token(probs, generator)` draws from a distribution
# [V], `residual(p, q)` is $\max(p - q, 0)$, renormalised. The checker visits every outcome, as before.
#
# <details><summary>Hint</summary>
#
# A draft is kept with probability $\min(1, p/q)$. The first refusal ends the round with a token from the residual; a
# block without one ends with a token from row $\gamma$ of `p`.
#
# </details>

# %%
from dspark_lite.decoding.sampling import probabilities, residual
from dspark_lite.exercises.verifying import draw_token, toss


# %% tags=["exercise"]
def verify(p, q, drafts, generator):
    """The tokens that a round commits; p [g+1, V], q [g, V], `drafts` a list of g tokens drawn from q."""
    ...


# %% tags=["solution"]
def verify(p, q, drafts, generator):
    """The tokens that a round commits; p [g+1, V], q [g, V], `drafts` a list of g tokens drawn from q."""
    for k, draft in enumerate(drafts):
        if not toss(p[k, draft] / q[k, draft], generator):
            return [*drafts[:k], draw_token(residual(p[k], q[k]), generator)]
    return [*drafts, draw_token(p[len(drafts)], generator)]


# %%
done = exercises.check_verify(verify)

# %%
verify = exercises.in_use(verify, done)

# %% [markdown]
# ## The loop, by hand
#
# One round, at any temperature:
#
# 1. **Propose.** The small LM writes `gamma` tokens after the answer, one pass each, and keeps the distribution that
#    each was drawn from.
# 2. **Verify.** The target reads the anchor (the answer's last token) and the drafts in one pass. Row $k$ is its
#    distribution after $k$ drafts.
# 3. **Accept.** `verify` says which tokens the round commits.
# 4. **Roll back.** Both caches have read drafts that were refused. They must forget them.
#
# At temperature 0 each distribution has all its mass on one token, and `verify` keeps a draft if it *is* the target's
# choice: greedy decoding needs no code of its own. The two `slips` are there for an experiment below: they leave that
# many refused positions in the target's cache and in the small LM's.


# %%
from dspark_lite.decoding.rounds import until_stop


def read(model, tokens, cache, temperature):
    """The model's distributions [k, V] after each of k tokens that enter after the cache."""
    return probabilities(model.verify(torch.tensor([tokens], device=model.device), cache).logits[0], temperature)


def speculate(models, input_ids, gamma, longest, temperature=0.0, generator=None, stop=(), slips=(0, 0)):
    """The answer of models (target, small) to input_ids [1, n], and the number of drafts accepted in each round."""
    target, small = models
    step, cache = target.prefill(input_ids)
    _, small_cache = small.prefill(input_ids)
    answer, accepted_by_round = [draw_token(probabilities(step.logits[0, -1], temperature), generator)], []
    unread = answer[:]  # what the small LM has still to read of the answer
    while answer[-1] not in stop and len(answer) < longest:
        drafts, q, entering = [], [], unread
        for _ in range(gamma):
            q.append(read(small, entering, small_cache, temperature)[-1])
            drafts.append(draw_token(q[-1], generator))
            entering = drafts[-1:]
        p = read(target, [answer[-1], *drafts], cache, temperature)  # [g+1, V]
        tokens = verify(p, torch.stack(q), drafts, generator)
        accepted = len(tokens) - 1
        target.roll_back(cache, max(0, gamma - accepted - slips[0]))
        small.roll_back(small_cache, max(0, gamma - 1 - accepted - slips[1]))
        unread = drafts[-1:] * (accepted == gamma) + tokens[-1:]
        answer = until_stop(answer + tokens, stop)
        accepted_by_round.append(accepted)
    return answer[:longest], accepted_by_round


# %% [markdown]
# The package's `generate` runs the same loop for any drafter, and asks the host once per round where we ask at every
# token. At temperature 0 nothing is left to chance, so the two must agree token for token and round for round, and both
# must give the answer of plain decoding.

# %%
from functools import partial

from dspark_lite.figures import token_boxes
from dspark_lite.losslessness.ties import same_or_tied

ours = partial(speculate, (target, small), gamma=7, longest=lab.max_new_tokens, stop=lab.stop_token_ids)
ids = lab.encode(lab.prompts["math"][1])
answer, accepted_by_round = ours(ids)
packaged = dspark_lite.generate(target, drafter, ids, max_new_tokens=lab.max_new_tokens, gamma=7)
plain = dspark_lite.generate(target, None, ids, max_new_tokens=lab.max_new_tokens)
assert answer == packaged.token_ids
assert accepted_by_round == [r.accepted for r in packaged.rounds]
assert same_or_tied(target, ids, answer, plain.token_ids)
print(lab.decode(answer))
picture = token_boxes.rounds_figure(lab, packaged, count=10)

# %% [markdown]
# At temperature 1 the tokens are drawn, and two runs with different random numbers need not agree. What must agree is
# the distribution. The loop is small enough for the proof of lesson 02: on a toy pair, a random target and a random
# small LM over two tokens, we follow every outcome of every draft, coin and correction through *this* function.

# %%
from dspark_lite.losslessness import outcomes, output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models

toy, toy_drafters = toy_models()
toys = toy, toy_drafters["small_lm"].model
found = {}
for (tokens, _), probability in outcomes(
        lambda path: speculate(toys, torch.tensor([[0]]), gamma=2, longest=3, temperature=1.0, generator=path)):
    found[tuple(tokens)] = found.get(tuple(tokens), 0.0) + probability
exact = output_distribution(toy, None, None, length=3)
for tokens in sorted(exact):
    print(tokens, f"target {exact[tokens]:.4f}   our loop {found[tokens]:.4f}")
print(f"total variation {total_variation(found, exact):.1e}")
assert total_variation(found, exact) < 1e-5

# %% [markdown]
# Prefill, drafting, your rule, both roll-backs, several rounds: the distribution is the target's. Now on the real pair.

# %%
drawn, accepted_by_round = ours(ids, temperature=1.0, generator=lab.generator())
print(lab.decode(drawn))
print(f"\naccepted by round {accepted_by_round}: {1 + sum(accepted_by_round) / len(accepted_by_round):.2f} tokens per round")

# %% [markdown]
# ## What the caches must forget
#
# Follow one round with `gamma = 7` in which 3 drafts are accepted.
#
# | | has read in this round | of it stays | forgets |
# |---|---|---|---|
# | target | the anchor and 7 drafts | the anchor and 3 drafts | $7 - 3 = 4$ |
# | small LM | the anchor and 6 drafts (never its own last one) | the anchor and 3 drafts | $6 - 3 = 3$ |
#
# The token that the target added has been read by nobody: it is the next anchor. When all 7 are accepted, the small LM
# forgets nothing and has its own last draft still to read.
#
# Why care? Let us forget one refused draft too few, first in the target's cache, then in the small LM's.

# %%
from dspark_lite.exercises.predictions import predict

harm = predict("Which slip changes the text, which one the speed: in the target's cache, in the small LM's?", ...)

# %%
tried = [lab.encode(prompt) for prompts in lab.prompts.values() for prompt in prompts[:2]]
truth = [dspark_lite.generate(target, None, ids, max_new_tokens=lab.max_new_tokens).token_ids for ids in tried]
written, results = {}, []
for label, slips in (("clean caches", (0, 0)), ("a refused draft stays in the target's", (1, 0)),
                     ("a refused draft stays in the small LM's", (0, 1))):
    written[label] = [ours(ids, slips=slips) for ids in tried]
    right = sum(same_or_tied(target, ids, answer, plain) for ids, (answer, _), plain in zip(tried, written[label], truth))
    rounds = [accepted for _, by_round in written[label] for accepted in by_round]
    results.append(f"{label:40} {right} of {len(tried)} answers are the target's own, "
                   f"{1 + sum(rounds) / len(rounds):.2f} tokens per round")
harm.beside("\n             ".join(results))

# %% [markdown]
# The two slips do different harm, and the difference is worth remembering.
#
# - In the **target's** cache a phantom token stands in the context and moves everything after it by one position. From
#   then on the target answers another question: 0 of 6 answers are its own, and nothing raises an error.
# - In the **small LM's** cache the same phantom leaves 6 of 6 answers right. Losslessness never rests on the drafter,
#   which only drafts worse: 3.82 tokens per round in place of 4.76.

# %%
assert all(same_or_tied(target, ids, answer, plain) for ids, (answer, _), plain in
           zip(tried, written["a refused draft stays in the small LM's"], truth))
broken = [answer for answer, _ in written["a refused draft stays in the target's"]]
worst = max(range(len(tried)), key=lambda k: sum(a != b for a, b in zip(broken[k], truth[k])))
print("as it should be:\n" + lab.decode(truth[worst]))
print("\nwith phantoms in the target's cache:\n" + lab.decode(broken[worst]))

# %% [markdown]
# ### Exercise 2 · Forget the right number (code)
# Now a policy sits in between (lesson 00): of `gamma` drafts it sends only the first `length` to the target, and
# `accepted` of these are kept. How many positions must the target's cache forget, and how many the small LM's? Return
# both numbers.
#
# <details><summary>Hint</summary>
#
# Fill in the table above for `gamma = 7`, `length = 4`, `accepted = 4`: what has each model read, and what of it stays?
#
# </details>


# %% tags=["exercise"]
def forget(gamma, length, accepted):
    ...


# %% tags=["solution"]
def forget(gamma, length, accepted):
    return length - accepted, max(0, gamma - 1 - accepted)


# %%
done = exercises.check_forget(forget)

# %% [markdown]
# ## A drafter without a model: prompt lookup
#
# Answers repeat what they were asked: names, numbers, a function's words. So look for the last place where the text
# went through the same few tokens as now, and copy what followed. We try the last three tokens first, then two, then
# one.


# %%
def look_up(text, length, longest=3):
    """Up to `length` tokens that followed the latest earlier occurrence of the longest matching ending of `text`."""
    for size in range(longest, 0, -1):
        starts = [at for at in range(len(text) - size) if text[at:at + size] == text[-size:]]
        if starts:
            found = starts[-1] + size
            return text[found:found + length]
    return []


from dspark_lite.drafters import PromptLookup

text = lab.encode(lab.prompts["code"][0])[0].tolist() + truth[2]
lookup = PromptLookup(target.vocab_size)
generator = lab.generator()
shuffled = [torch.randint(4, (20,), generator=generator, device=lab.device).tolist() for _ in range(200)]
for sample in [*shuffled, *(text[:end] for end in range(1, len(text)))]:
    assert look_up(sample, 7) == lookup.continuation(sample, 7)
end = max(range(len(text) - len(truth[2]) + 1, len(text)), key=lambda end: len(look_up(text[:end], 7)))
print("the text ends with ", [lab.tokenizer.decode(t) for t in text[end - 3:end]])
print("last time followed ", [lab.tokenizer.decode(t) for t in look_up(text[:end], 7)])
print("this time follows  ", [lab.tokenizer.decode(t) for t in text[end:end + 7]])

# %% [markdown]
# As a distribution a copied token is certain: $q = 1$ for it. The accept rule $\min(1, p/q)$ then keeps it with
# probability $p$, and the rest of the loop stays as it is. Where nothing matches, the block is empty and the round is
# one of plain decoding.

# %%
ids = lab.encode(lab.prompts["code"][0])
copied = dspark_lite.generate(target, lookup, ids, max_new_tokens=lab.max_new_tokens)
plain = dspark_lite.generate(target, None, ids, max_new_tokens=lab.max_new_tokens)
assert same_or_tied(target, ids, copied.token_ids, plain.token_ids)
print(f"{len(copied.token_ids)} tokens in {len(copied.rounds)} rounds, accepted length {copied.accepted_length:.2f}")
picture = token_boxes.rounds_figure(lab, copied, count=14)

# %% [markdown]
# Forty rounds for 52 tokens: most rounds found nothing to copy or copied what was not wanted. The names and the closing words of
# the task are what it gets right.
#
# ## Does it pay? Measure
#
# A round costs $T_\text{draft} + T_\text{verify}$ and yields $\tau$ tokens, so the time of one token is
#
# $$L = \frac{T_\text{draft} + T_\text{verify}}{\tau}.$$
#
# It is a plain quotient of totals: all the seconds of all rounds over all their tokens. Speculation wins where $L$ is
# below the time of one plain pass, $T$. We measure every part at temperature 1 on three prompts per domain, one drafter
# after the other on each prompt, so that a slow moment of the machine meets all. All have run above, so no first run is
# in the count.

# %%
from dspark_lite.common import names
from dspark_lite.figures import lesson_03 as figures
from dspark_lite.measure.evaluation import acceptance_by_position, rollout, tokens_per_second

drafters = {"plain": None, "small_lm": drafter, "prompt_lookup": lookup}
runs = {(name, domain): [] for name in drafters for domain in lab.prompts}
for domain, prompts in lab.prompts.items():
    for index, prompt in enumerate(prompts[:3]):
        for name, chosen in drafters.items():
            runs[name, domain].append(rollout(lab, chosen, prompt, index, temperature=1.0))


# %%
def parts(generations):
    """Accepted length, and the mean seconds that a round spends drafting and verifying."""
    rounds = [r for g in generations for r in g.rounds]
    return tuple(sum(getattr(r, name) for r in rounds) / len(rounds)
                 for name in ("committed", "draft_seconds", "verify_seconds"))


costs = {key: parts(generations) for key, generations in runs.items()}
for (name, domain), (tau, draft, verify) in costs.items():
    speedup = tokens_per_second(runs[name, domain]) / tokens_per_second(runs["plain", domain])
    print(f"{names.DRAFTER_LABELS[name]:15} {domain:5} ({draft * 1e3:5.2f} + {verify * 1e3:5.2f}) ms / {tau:.2f} tokens = "
          f"{(draft + verify) / tau * 1e3:5.2f} ms per token, {speedup:.2f} times plain")
picture = figures.latency_bars(costs, lab.device_name)

# %% [markdown]
# Each bar is $L$: the hatched part is drafting, the rest verifying, both divided by $\tau$. The number on top is $\tau$.
#
# Prompt lookup drafts almost for free and gains almost nothing: 1.27 tokens per round on math, 1.20 on code, and on chat,
# where an answer repeats nothing, 1.04. Verifying a block costs a little more than a plain pass, so there it *loses* (the
# scoreboard below, measured on more prompts and a quiet machine, has it at 0.89 times plain decoding on chat). The small LM
# guesses anywhere, 5.06 to 5.94 tokens per round, and is faster everywhere, but by far less than $\tau$ says: it pays with
# `gamma` passes one after another, and half of its time or more is drafting. How expensive is such a pass?

# %%
plain_pass = sum(costs["plain", domain][2] for domain in lab.prompts) / len(lab.prompts)
small_pass = sum(costs["small_lm", domain][1] for domain in lab.prompts) / len(lab.prompts) / drafter.gamma
verify_pass = sum(costs["small_lm", domain][2] for domain in lab.prompts) / len(lab.prompts)
c, v = small_pass / plain_pass, verify_pass / plain_pass
print(f"parameters: the small LM has {parameters['small LM'] / parameters['target']:.0%} of the target's")
print(f"layers:     {small.num_layers / target.num_layers:.0%}")
print(f"time:       one pass takes c = {c:.0%} of a plain pass of the target, "
      f"{drafter.gamma} of them {drafter.gamma * c:.0%}")
print(f"verifying a block takes v = {v:.2f} plain passes")

# %% [markdown]
# Compare the three shares. If time followed the parameters, the third would equal the first, 8%; it lies nearer the
# second, 25%. A pass over one token is short of work: it waits for one small operation after another, and their number grows with the
# *layers*, which must be passed in sequence, and hardly with the width. So at batch 1 a small LM costs more than its
# size says, and it is asked `gamma` times per round. This is the opening that block drafters use (lesson 04): one pass
# of few layers for the whole block.
#
# > **On a large pair.** A [public notebook](references.md#public-notebook) drafts 4 tokens per round with Qwen3-0.6B for
# > Qwen3-4B: 2.30, 3.06 and 2.40 tokens per round on a math, a code and a chat prompt, and 13.1 tokens per second where
# > plain decoding gives 15.3. The small LM has 28 layers, the target 36, so a pass of the one costs nearly as much as a
# > pass of the other, and speculation *loses*: 0.85 times plain.
#
# ## When does speculation lose?
#
# Make a model of it. Let every draft be accepted with the same chance $a$, given that all before it were. Then $k$
# drafts or more are accepted with probability $a^k$, and the expected accepted length is the sum of these, plus one for
# the target's own token:
#
# $$\tau = 1 + a + a^2 + \dots + a^\gamma.$$
#
# We count in plain passes $T$. Drafting costs $\gamma c$ of them, verifying $v$, which is close to 1 where a pass is
# bound by memory (lesson 01).
#
# $$\text{speed-up} = \frac{T}{L} = \frac{1 + a + \dots + a^\gamma}{\gamma c + v}.$$
#
# **Speculation loses where $\tau < \gamma c + v$.** With $v = 1$ that is where $a + \dots + a^\gamma < \gamma c$: on
# average a draft must be worth more than its own price. So no draft length helps when $a < c$.
#
# There are two ways to lose, then: to be wrong too often, as prompt lookup is on chat, and to cost too much. For the second here is the drafter that is never wrong: the target itself. With $c = 1$ and $a = 1$ the formula
# says $(\gamma + 1)/(\gamma + v)$.

# %%
mirrored_speed = predict("The target drafts for itself, 7 tokens, all right: how many times as fast as plain decoding?", ...)

# %%
from dspark_lite.drafters import SmallLM

mirror, plain_runs, mirrored = SmallLM(target, gamma=7), [], []
for index, prompt in enumerate(lab.prompts["math"][:2]):
    for found, chosen in ((plain_runs, None), (mirrored, mirror)):
        found.append(rollout(lab, chosen, prompt, index, temperature=1.0))
speedup = tokens_per_second(mirrored) / tokens_per_second(plain_runs)
accepted = [r.accepted for g in mirrored for r in g.rounds]
print(f"accepted by round {accepted}")
mirrored_speed.beside(f"{parts(mirrored)[0]:.2f} tokens per round, {speedup:.2f} times plain decoding; "
                      f"the formula gives {8 / (7 + v):.2f}")

# %% [markdown]
# Every guess is right, a round brings 7.50 tokens (the ends of the answers cut the last ones short), and it is still slower than
# plain decoding: somewhat slower than the formula, because those ends are drafted, too, and not used. A drafter has to be
# cheap before it has to be good.
#
# What if the drafts are wrong now and then? Here is the sum as a function, and a check by tossing coins.


# %%
def expected_tau(a, gamma):
    """Accepted length if every draft is accepted with chance `a`, given that all before it were."""
    return sum(a**k for k in range(gamma + 1))


coins = torch.rand(100_000, 7, generator=lab.generator(), device=lab.device) < 0.8
kept = coins.long().cumprod(1).sum(1)  # the drafts before the first refusal
tossed = 1 + kept.double().mean().item()
print(f"a = 0.8, gamma = 7: formula {expected_tau(0.8, 7):.3f}, 100,000 tossed blocks {tossed:.3f}")
assert abs(tossed - expected_tau(0.8, 7)) < 0.05

# %% [markdown]
# Move the sliders. Start from a good drafter, $a = 0.8$, $c = 0.1$: how long should the block be? What happens to that length
# as $a$ falls, as $c$ grows? The picture below shows the start, then $a = 0.5$, then $c = 0.5$.

# %%
from dspark_lite.figures import widgets

panel = widgets.explore(
    figures.when_it_pays, {"acceptance": 0.5}, {"cost": 0.5}, acceptance=widgets.slider("acceptance a", 0.8, 0.05, 0.95, 0.05),
    gamma=widgets.slider("draft length γ", 7, 1, 16), cost=widgets.slider("cost ratio c", 0.1, 0.0, 1.0, 0.05),
    verify=widgets.slider("cost of verifying v", 1.0, 1.0, 3.0, 0.1))

# %% [markdown]
# ### Exercise 3 · Accepted length in closed form (code)
# Return $\tau$ for $0 \le a \le 1$ without a loop or a sum. Mind $a = 1$.
#
# <details><summary>Hint</summary>
#
# Write $\tau$ and $a\tau$ below each other. Which terms are left of the difference?
#
# </details>


# %% tags=["exercise"]
def tau_of(a, gamma):
    ...


# %% tags=["solution"]
def tau_of(a, gamma):
    return gamma + 1 if a == 1 else (1 - a ** (gamma + 1)) / (1 - a)


# %%
done = exercises.check_expected_tau(tau_of)

# %% [markdown]
# ### Exercise 4 · The best draft length (code)
# Verifying costs one plain pass ($v = 1$). Which `gamma` from 0 to 16 gives the largest speed-up? `gamma = 0` means: do
# not speculate.


# %% tags=["exercise"]
def best_gamma(a, c):
    ...


# %% tags=["solution"]
def best_gamma(a, c):
    return max(range(17), key=lambda gamma: expected_tau(a, gamma) / (gamma * c + 1))


# %%
done = exercises.check_best_gamma(best_gamma)

# %% [markdown]
# ### Exercise 5 · When does it lose? (think)
# A small LM costs a tenth of a plain pass per token, its drafts are accepted with chance 0.8, and verifying costs one
# plain pass. With $\gamma = 5$, what is the speed-up? How low may the acceptance fall before it is lost? And what if
# the small LM cost half a pass?
#
# <details><summary>Hint</summary>
#
# Count everything in plain passes: what does a round cost, what does it yield?
#
# </details>
# <details><summary>Answer</summary>
#
# $\tau = (1 - 0.8^6)/(1 - 0.8) = 3.69$. A round costs $5 \cdot 0.1 + 1 = 1.5$ plain passes, so the speed-up is
# $3.69 / 1.5 = 2.46$.
#
# It is lost where $\tau = 1.5$, that is $a + a^2 + \dots + a^5 = 0.5$. One draft alone would need $a = 0.5$; with five,
# $a = 0.33$ is enough.
#
# At $c = 0.5$ a round costs $3.5$ plain passes and the speed-up is $3.69 / 3.5 = 1.05$: the same guesses, and almost
# nothing gained. It breaks even at $a = 0.78$.
#
# </details>
#
# ## Theory against this machine
#
# Is one number $a$ enough? First look at the acceptance position by position, for the small LM at temperature 1. A
# position counts only in rounds that reached it.

# %%
chances = {}
for domain in lab.prompts:
    rounds = [r for g in runs["small_lm", domain] for r in g.rounds]
    judged = sum(min(r.accepted + 1, r.proposed) for r in rounds)  # after the first refusal no draft is judged
    chances[domain] = sum(r.accepted for r in rounds) / judged
    by_position = acceptance_by_position(runs["small_lm", domain], drafter.gamma)
    shown = " ".join("  - " if rate is None else f"{rate:.2f}" for rate in by_position)
    print(f"{domain:5} by position {shown}   all together a = {chances[domain]:.2f}")

# %% [markdown]
# A language model drafts its seventh token as carefully as its first: chat keeps 0.91 of the first drafts and 0.90 of the
# seventh, math 0.87 and 0.85. Nothing decays with the position. (Two things could have moved the rows, selection and
# chance: a round that comes far is in an easy stretch, such as the rest of a word, and on three prompts few come that
# far. Code has 0.68 at one place and 1.00 at the next.) So one number $a$ describes this drafter. Lesson 04 asks the same
# question of a drafter whose positions do not see one another, and gets another answer.
#
# Now let the small LM draft 1, 2, 4 and 7 tokens per round on three prompts per domain, and lay the measured $\tau$ beside
# the formula's.

# %%
lengths = [1, 2, 4, 7]
sweep = {}
for domain, prompts in lab.prompts.items():
    found = {gamma: [] for gamma in [0, *lengths]}  # 0 is plain decoding
    for index, prompt in enumerate(prompts[:3]):
        for gamma, generations in found.items():
            chosen = drafter if gamma else None
            generations.append(rollout(lab, chosen, prompt, index, temperature=1.0, gamma=gamma or None))
    for gamma in lengths:
        speedup = tokens_per_second(found[gamma]) / tokens_per_second(found[0])
        sweep[domain, gamma] = (parts(found[gamma])[0], speedup)
model = {domain: [expected_tau(chances[domain], gamma) for gamma in lengths] for domain in lab.prompts}
picture = figures.draft_length_sweep(sweep, model, lab.device_name)

# %%
for domain in lab.prompts:
    measured = {gamma: sweep[domain, gamma][1] for gamma in lengths}
    formula = {gamma: expected_tau(chances[domain], gamma) / (gamma * c + v) for gamma in lengths}
    best, expected = (max(lengths, key=speedups.get) for speedups in (measured, formula))
    print(f"{domain:5} a = {chances[domain]:.2f}: at γ = 7 measured τ {sweep[domain, 7][0]:.2f}, formula {model[domain][-1]:.2f}; "
          f"best length {best}, {measured[best]:.2f} times plain (formula: {expected}, {formula[expected]:.2f})")

# %% [markdown]
# Above, $\tau$ grows with every draft, and the formula follows it: at $\gamma = 7$ it gives 6.28 on chat where 5.94 were
# measured, 5.47 against 5.08 on code. It is too high by as much as the ends of the answers cut off, and short answers
# have many ends. Below, the speed-up: each extra draft adds the same cost, so a curve turns down once acceptance no
# longer covers it, and the last three drafts of seven hardly pay for themselves.
#
# ### Exercise 6 · A better reader (open)
# `look_up` copies what followed the *latest* earlier place. Is that the best choice? Write a variant (the earliest place,
# the longest match, a match in the prompt before one in the answer, fewer tokens copied after a short match) and measure
# it: put it into a copy of `lookup` as its `continuation`, decode ten prompts of the domain where you expect most, and
# compare tokens per round. What did you predict, and what happened?
#
# <details><summary>Hint</summary>
#
# `lookup.continuation = my_look_up` replaces it for one drafter; `rollout(lab, lookup, prompt, index, temperature=1.0)`
# decodes one prompt, and `parts([...])[0]` is the accepted length.
#
# </details>
#
# ## The scoreboard
#
# From here to lesson 06 a table grows: every drafter, measured side by side on more prompts than above
# (`python -m dspark_lite bench`, temperature 1, stored in `assets/measurements/bench.json`). Its middle says what a round
# costs, in plain passes of the target: $\tau$ divided by it is the speed-up.

# %%
from dspark_lite.figures.scoreboard import scoreboard

print(scoreboard("small_lm", "prompt_lookup"))

# %% [markdown]
#
# The small LM brings 5.32 to 6.48 tokens per round, and a round costs 2.83 plain passes: so it is about twice as fast, not six
# times. A drafter that brings as much for less is what lessons 04 to 06 look for.
#
# > **Paper and figures.** In the paper's Table 1, as in $\tau$ here, the target's own token counts. Its Figure 2, as
# > `acceptance_by_position` here, counts drafts only. Lay numbers of one kind beside each other.
#
# ## Recap
#
# - The loop is propose, verify, accept, roll back, and with your `verify` in it the text has exactly the target's
#   distribution, at any temperature. A stale target cache changes the text silently, a stale drafter
#   cache only costs speed.
# - Prompt lookup is nearly free and right only where the answer repeats something, and where it does not, it loses; a small
#   LM guesses anywhere and pays one pass per draft.
# - Speed-up is $\tau / (\gamma c + v)$. It is below 1 where $\tau < \gamma c + v$, and no draft length helps when
#   $a < c$.
# - At batch 1 the time of a small model follows its layers (25% of the target's) more than its parameters (8%).
#
# **Next:** [lesson 04](04_draft_a_block_at_once.ipynb) drafts the whole block in one pass, so that $\gamma$ leaves the denominator.
