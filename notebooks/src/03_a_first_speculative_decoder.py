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
# - to build the loop, at any temperature, around functions of your own: `verify`, and what ends a round
# - what the two K/V caches must forget after a round, and what each kind of slip costs
# - two drafters that cost no training: a smaller language model, and prompt lookup
# - when speculation loses, from four numbers: acceptance, draft length, and what drafting and verifying cost
#
# **What you need**: lesson 01 (the K/V cache, what a pass costs) and lesson 02 (the accept rule).
#
# **Sources**: drafting with a smaller model is the setting of [Leviathan et al.](references.md#leviathan) and
# [Chen et al.](references.md#chen); the formula for the speed-up is in the former, section 3 (the cost of verifying in it is
# ours). Prompt lookup is [Saxena's](references.md#prompt-lookup). [Notation](notation.md) · [glossary](glossary.md)

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite
from dspark_course.exercises import lesson_03 as exercises

lab = dspark_lite.setup()
lab.max_new_tokens = 80  # enough for what is measured here
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
# The loop needs the rule of lesson 02. Write it again without looking, or paste what you wrote there.
#
# ### Exercise 1 · `verify` (code)
# `toss(chance, generator)` is true with probability `chance`, `draw_token(probs, generator)` draws from a distribution
# [V], `residual(p, q)` is $\max(p - q, 0)$, renormalised. The checker follows every outcome of every coin and draw.

# %%
from dspark_lite.decoding.sampling import probabilities, residual
from dspark_course.exercises.verifying import draw_token, toss


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
# ## A round
#
# 1. **Propose.** The small LM writes `gamma` tokens after the answer, one pass each, and keeps the distribution that
#    each was drawn from.
# 2. **Verify.** The target reads the anchor (the answer's last token) and the drafts in one pass. Row $k$ is its
#    distribution after $k$ drafts.
# 3. **Accept.** `verify` says which tokens the round commits. With 3 accepted drafts these are 4, the last one the target's
#    own. Their number, as a mean over rounds, is the **accepted length** $\tau$, also called tokens per round.
# 4. **Roll back.** Both caches have read drafts that were refused. They must forget them.
#
# Temperature 0 needs no code of its own (lesson 02).
#
# What must the caches forget? Follow one round with `gamma = 7` in which 3 drafts are accepted.
#
# | | has read in this round | keeps | forgets |
# |---|---|---|---|
# | target | the anchor and 7 drafts | the anchor and 3 drafts | $7 - 3 = 4$ |
# | small LM | the anchor and 6 drafts (never its own last one) | the anchor and 3 drafts | $6 - 3 = 3$ |
#
# The token that the target added has been read by nobody: it is the next anchor.
#
# ### Exercise 2 · Forget the right number (code)
# Our loop verifies every draft, a scheduler (lesson 10) may send fewer. Write the function for both: the small LM drafts
# `gamma` tokens, the first `length` of them go to the target, and `accepted` of these are kept. How many positions must the
# target's cache forget, and how many the small LM's? Return both numbers.
#
# <details><summary>Hint</summary>
#
# Fill in the table above for `gamma = 7`, `length = 4`, `accepted = 4`: what has each model read, and what does it keep?
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
forget = forget if done else exercises.forget  # until yours is right, the package's

# %% [markdown]
# ### Exercise 3 · End a round (code)
# Write steps 3 and 4 with `verify` and `forget`. `models` and `caches` are pairs, the target's first; the target has read the
# anchor and all drafts. `model.roll_back(cache, n)` forgets the last `n` positions. Return two lists: the tokens that the
# round commits, and those that the small LM must still read before it drafts again.
#
# <details><summary>Hint</summary>
#
# `len(tokens) - 1` drafts were accepted. The last committed token is always unread. When is there a second one?
#
# </details>


# %% tags=["exercise"]
def settle(models, caches, p, q, drafts, generator):
    """(Tokens committed, tokens that the small LM has still to read); p, q, drafts as for `verify`. Rolls the caches back."""
    ...


# %% tags=["solution"]
def settle(models, caches, p, q, drafts, generator):
    """(Tokens committed, tokens that the small LM has still to read); p, q, drafts as for `verify`. Rolls the caches back."""
    tokens = verify(p, q, drafts, generator)
    gamma, accepted = len(drafts), len(tokens) - 1
    for model, cache, dropped in zip(models, caches, forget(gamma, gamma, accepted)):
        model.roll_back(cache, dropped)
    return tokens, tokens[-1:] if accepted < gamma else [drafts[-1], tokens[-1]]


# %%
done = exercises.check_settle(settle)
settle = settle if done else exercises.settle  # until yours is right, the package's

# %% [markdown]
# ## The loop
#
# The prefill gives the first anchor, which the small LM has not read. `model.verify(tokens, cache)` shares only its name with
# your `verify`: it lets either model read tokens that follow its cache. In `propose` the small LM's first pass reads one
# token or two (your second list), and its last draft is drawn, but never read.

# %%
from dspark_lite.decoding.rounds import until_stop


def read(model, tokens, cache, temperature):
    """The model's distributions [k, V] after each of k tokens that enter after the cache."""
    return probabilities(model.verify(torch.tensor([tokens], device=model.device), cache).logits[0], temperature)


def propose(small, unread, cache, gamma, temperature, generator):
    """A list of gamma drafts, and the distributions q [g, V] that they were drawn from."""
    drafts, q, entering = [], [], unread
    for _ in range(gamma):
        q.append(read(small, entering, cache, temperature)[-1])
        drafts.append(draw_token(q[-1], generator))
        entering = drafts[-1:]
    return drafts, torch.stack(q)


def speculate(models, input_ids, gamma, longest, temperature=0.0, generator=None, stop=()):
    """The answer of models (target, small) to input_ids [1, n], and the number of drafts accepted in each round."""
    target, small = models
    step, cache = target.prefill(input_ids)
    _, small_cache = small.prefill(input_ids)
    answer, accepted_by_round = [draw_token(probabilities(step.logits[0, -1], temperature), generator)], []
    unread = answer[:]  # what the small LM has still to read of the answer
    while answer[-1] not in stop and len(answer) < longest:
        drafts, q = propose(small, unread, small_cache, gamma, temperature, generator)
        p = read(target, [answer[-1], *drafts], cache, temperature)  # [g+1, V]
        tokens, unread = settle(models, (cache, small_cache), p, q, drafts, generator)
        answer = until_stop(answer + tokens, stop)
        accepted_by_round.append(len(tokens) - 1)
    return answer[:longest], accepted_by_round


# %% [markdown]
# The package's `generate` runs the same loop for any drafter. At temperature 0 nothing is left to chance, so the two must
# agree token for token and round for round, and both must give the answer of plain decoding (or first differ at a tie:
# `same_or_tied`, lesson 01).

# %%
from functools import partial

from dspark_course.figures import token_boxes
from dspark_lite.losslessness.ties import same_or_tied

pair, prompt = (target, small), lab.prompts["math"][1]
ours, ids = partial(speculate, gamma=7, longest=lab.max_new_tokens, stop=lab.stop_token_ids), lab.encode(prompt)
answer, accepted_by_round = ours(pair, ids)
packaged = dspark_lite.generate(target, drafter, ids, max_new_tokens=lab.max_new_tokens, gamma=7)
plain = dspark_lite.generate(target, None, ids, max_new_tokens=lab.max_new_tokens)
assert answer == packaged.token_ids
assert accepted_by_round == [r.accepted for r in packaged.rounds]
assert same_or_tied(target, ids, answer, plain.token_ids)
print(f"{prompt}\n\n{lab.decode(answer)}\n\ngreedy, {len(accepted_by_round)} rounds")
picture = token_boxes.rounds_figure(lab, packaged, count=10)

# %% [markdown]
# A row is a round, a dot a blank, ↵ a line end; the first token, `Felix`, came from the prefill. Five rounds keep all 7
# drafts, rounds 1 and 6 meet a refusal, and what was drafted after `<|im_end|>` is thrown away.
#
# At temperature 1 the tokens are drawn, and what must agree is the distribution. We check it exactly, as in lesson 02, on a random
# target and a random small LM over two tokens: `outcomes` runs `speculate` once for each way in which its drafts, coins
# and corrections can turn out, and gives the probability of each.

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
# The distribution is the target's. (Three tokens leave no room for a round after a whole block; the greedy comparison above
# had such rounds.) Now the real pair.

# %%
drawn, accepted_by_round = ours(pair, ids, temperature=1.0, generator=lab.generator())
print(lab.decode(drawn))
print(f"\ndrawn, {len(accepted_by_round)} rounds, accepted {accepted_by_round}: "
      f"{1 + sum(accepted_by_round) / len(accepted_by_round):.2f} tokens per round")

# %% [markdown]
# The target is so sure of this answer that it draws the greedy one. Only the drafts differ: 9 rounds in place of 8. (Our
# loop counts the drafts after an answer's end, too; the package's $\tau$, below, leaves them out.)
#
# ## A slip in a cache
#
# Now one cache keeps a refused draft, a *phantom*, from every round that has one to forget: first the target's, then the
# small LM's.

# %%
from dspark_course.exercises.predictions import predict

harm = predict("Which slip changes the text, which one the speed: in the target's cache, in the small LM's?", ...)

# %%
class Careless:
    """A model that forgets `more` positions too many whenever it is rolled back; below 0, too few."""

    def __init__(self, model, more):
        self.model, self.more = model, more
        self.device, self.prefill, self.verify = model.device, model.prefill, model.verify

    def roll_back(self, cache, dropped):
        self.model.roll_back(cache, max(0, dropped + self.more))


tried = [lab.encode(prompt) for prompts in lab.prompts.values() for prompt in prompts[:2]]
truth = [dspark_lite.generate(target, None, ids, max_new_tokens=lab.max_new_tokens).token_ids for ids in tried]


def write(models):
    """The answers of models (target, small) to the prompts that we try, and what they are like."""
    answers, by_round = zip(*(ours(models, ids) for ids in tried))
    right = sum(same_or_tied(target, ids, answer, plain) for ids, answer, plain in zip(tried, answers, truth))
    rounds = sum(by_round, [])
    return answers, f"{right} of {len(tried)} answers are the target's own, {1 + sum(rounds) / len(rounds):.2f} tokens per round"


_, clean = write(pair)
broken, in_targets = write((Careless(target, -1), small))
_, in_small_lms = write((target, Careless(small, -1)))
harm.beside("\n             ".join(f"{label:40} {found}" for label, found in (
    ("clean caches", clean), ("a refused draft stays in the target's", in_targets),
    ("a refused draft stays in the small LM's", in_small_lms))))

# %% [markdown]
# - In the **target's** cache a phantom stands in the context and moves everything after it by one position. From then on
#   the target continues a text that holds refused tokens: 0 of 6 answers are its own, and nothing raises an error. (The
#   4.58 tokens per round are those of other texts.)
# - In the **small LM's** cache the same phantom leaves 6 of 6 answers right. Losslessness never rests on the drafter,
#   which only drafts worse: 3.82 tokens per round in place of 4.76. No check of the text can see
#   it; a check of the accepted drafts, round for round as above, can.

# %%
worst = max(range(len(tried)), key=lambda k: sum(a != b for a, b in zip(broken[k], truth[k])))
print("as it should be:\n" + lab.decode(truth[worst]))
print("\nwith phantoms in the target's cache:\n" + lab.decode(broken[worst]))

# %% [markdown]
# Both answers read well: nothing in the second shows that it is wrong.
#
# ### Exercise 4 · Three other slips (think)
# What becomes of the text and of the tokens per round (a) if the target forgets one position too *many*, (b) if the small LM
# does, (c) if `settle` names only the target's token as unread, even after a whole block? Think first, then measure: print
# `write(...)[1]` with `Careless(..., 1)` for (a) and (b), with such a `settle` for (c).

# %% tags=["exercise"]
...

# %% tags=["solution"]
print("(a)", write((Careless(target, 1), small))[1])
print("(b)", write((target, Careless(small, 1)))[1])

careful = settle


def settle(*of_a_round):
    tokens, unread = careful(*of_a_round)
    return tokens, unread[-1:]


print("(c)", write(pair)[1])
settle = careful

# %% [markdown]
# <details><summary>Answer to exercise 4</summary>
#
# (a) An accepted token is missing from what the target has read. The text is wrong (0 of 6), and few drafts are kept, since
# the small LM has read that token: 1.95 tokens per round. (b) The text is right and the drafts get worse: 2.91. Every round
# leaves a hole, while a phantom stays only where there was something to forget. (c) The text is right. Only a whole block
# leaves a hole, so it costs least: 4.57.
#
# </details>
#
# ## A drafter without a model: prompt lookup
#
# Answers repeat what they were asked: names, numbers, a function's words. So look for the last place where the text went
# through the same few tokens as now, and copy what followed there. We try the last three tokens, then two, then one.


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

prompt = lab.prompts["code"][0]
its_answer = truth[2]  # the target's; above this prompt was the third
text = lab.encode(prompt)[0].tolist() + its_answer
copies = {end: look_up(text[:end], 7) for end in range(len(text) - len(its_answer) + 1, len(text))}
end = max(copies, key=lambda end: len(copies[end]))  # the first place with the longest copy
print(prompt)
print("the text ends with  ", [lab.tokenizer.decode(t) for t in text[end - 3:end]])
print("what followed before", [lab.tokenizer.decode(t) for t in copies[end]])
print("what follows now    ", [lab.tokenizer.decode(t) for t in text[end:end + 7]])

lookup = PromptLookup(target.vocab_size)
assert all(look_up(text[:end], 7) == lookup.continuation(text[:end], 7) for end in range(1, len(text)))

# %% [markdown]
# The prompt has no `def get`, so only ` get` was matched. Seven tokens are copied, and one is right. As a distribution a copied token is certain: $q = 1$ for it. The accept
# rule $\min(1, p/q)$ then keeps it with probability $p$. Where nothing matches, the block is empty and the
# round is one of plain decoding. Our `speculate` knows only a small LM, so we go on with the package's `generate`.

# %%
ids = lab.encode(prompt)
copied = dspark_lite.generate(target, lookup, ids, max_new_tokens=lab.max_new_tokens)
assert same_or_tied(target, ids, copied.token_ids, its_answer)
print(f"1 token from the prefill, {len(copied.token_ids) - 1} in {len(copied.rounds)} rounds: accepted length {copied.accepted_length:.2f}")
picture = token_boxes.rounds_figure(lab, copied, count=14)

# %% [markdown]
# Forty rounds for 51 tokens, so only 11 copied tokens were kept: most rounds found nothing to copy (a blue box alone) or
# copied what was not wanted. Ten of the 11 stand in the first 14 rounds, above: the end of the function's name, `of the` and
# `are positive, each times 2`, all from the task.
#
# ## Does it pay? Measure
#
# A round costs $T_\text{draft} + T_\text{verify}$ and yields $\tau$ tokens, so the time of one token is
#
# $$L = \frac{T_\text{draft} + T_\text{verify}}{\tau}.$$
#
# Speculation wins where $L$ is below the time of one plain pass, $T_\text{plain}$. We measure at temperature 1 on three prompts per
# domain, one drafter after the other on each prompt, so that a slow moment of the machine hits all alike. (The runs with 1, 2
# and 4 drafts are for later.)
#
# You have seen the small LM make about five tokens per round, and prompt lookup 1.27.

# %%
faster = predict("How many times as fast as plain decoding is the small LM? And prompt lookup?", ..., ...)

# %%
from dspark_lite.common import names
from dspark_course.figures import lesson_03 as figures
from dspark_course.measure.evaluation import acceptance_by_position, rollout, tokens_per_second

drafters = {"plain": None, "small_lm": drafter, "prompt_lookup": lookup}
runs = {(name, domain): [] for name in drafters for domain in lab.prompts}
shorter = {(domain, gamma): [] for domain in lab.prompts for gamma in (1, 2, 4)}
for domain, prompts in lab.prompts.items():
    for index, prompt in enumerate(prompts[:3]):
        for name, chosen in drafters.items():
            runs[name, domain].append(rollout(lab, chosen, prompt, index, temperature=1.0))
        for gamma in (1, 2, 4):
            shorter[domain, gamma].append(rollout(lab, drafter, prompt, index, temperature=1.0, gamma=gamma))


# %%
def parts(generations):
    """Accepted length, and the mean seconds that a round spends drafting and verifying."""
    rounds = [r for g in generations for r in g.rounds]
    return tuple(sum(getattr(r, name) for r in rounds) / len(rounds)
                 for name in ("committed", "draft_seconds", "verify_seconds"))


costs, speedups = {key: parts(generations) for key, generations in runs.items()}, {}
for (name, domain), (tau, drafting, verifying) in costs.items():
    speedup = tokens_per_second(runs[name, domain]) / tokens_per_second(runs["plain", domain])
    speedups.setdefault(name, []).append(speedup)
    print(f"{names.DRAFTER_LABELS[name]:15} {domain:5} ({drafting * 1e3:5.2f} + {verifying * 1e3:5.2f}) ms / {tau:.2f} tokens = "
          f"{(drafting + verifying) / tau * 1e3:5.2f} ms per token, {speedup:.2f} times plain")
faster.beside(", ".join(f"{names.DRAFTER_LABELS[name]} {min(speedups[name]):.2f} to {max(speedups[name]):.2f}"
                        for name in ("small_lm", "prompt_lookup")))
picture = figures.latency_bars(costs, lab.device_name)

# %% [markdown]
# Each bar is $L$: the hatched part is drafting, the rest verifying, both divided by $\tau$, which stands on top. The domains
# were measured one after the other, so compare bars within a domain only.
#
# Prompt lookup drafts almost for free and gains almost nothing: 1.27 tokens per round on math, 1.20 on code, and on chat,
# where an answer repeats hardly anything, 1.04. Reading a block takes longer than a plain pass, and that can cost more than
# the copies save. The figure's title says where it did so here. On twenty prompts (the table at the end of this lesson)
# prompt lookup *loses* on chat, at 0.90 times plain decoding.
#
# The small LM guesses anywhere, 5.06 to 5.94 tokens per round, and is faster everywhere, but by far less than $\tau$ says:
# it needs `gamma` passes one after another, and about half of its time is drafting. How expensive is such a pass? We call
# its share of a plain pass $c$. The first cell printed the layers and the parameters of both models.

# %%
share = predict("One pass of the small LM takes which share of a plain pass of the target, in percent?", ...)

# %%
plain_pass = sum(costs["plain", domain][2] for domain in lab.prompts) / len(lab.prompts)
small_pass = sum(costs["small_lm", domain][1] for domain in lab.prompts) / len(lab.prompts) / drafter.gamma
verify_pass = sum(costs["small_lm", domain][2] for domain in lab.prompts) / len(lab.prompts)
c, v = small_pass / plain_pass, verify_pass / plain_pass
print(f"parameters: the small LM has {parameters['small LM'] / parameters['target']:.0%} of the target's")
print(f"layers:     {small.num_layers / target.num_layers:.0%}")
share.beside(f"one pass takes c = {c:.0%} of a plain pass of the target, {drafter.gamma} of them {drafter.gamma * c:.0%}")
print(f"verifying a block takes v = {v:.2f} plain passes")

# %% [markdown]
# If time followed the parameters, $c$ would be 8%; it lies nearer the share of the layers, 25%. Lesson 01 found two
# floors under a pass: reading the weights, which grows with the parameters, and starting small operations one after
# another, which grows with the *layers*. In models this small the second counts. So at batch 1 a small LM costs more than
# its size says, `gamma` times per round.
#
# > **On a large pair.** A [public notebook](references.md#public-notebook) drafts 4 tokens per round with Qwen3-0.6B for
# > Qwen3-4B. On three prompts it makes 2.30 to 3.06 tokens per round. On one of these, it does not say which, speculation
# > *loses*, at 0.86 times plain decoding. The cost of a round is $\tau$ over this speed-up: between 2.7 and 3.6 plain passes.
# > The small LM has 15% of the parameters and 78% of the layers. With $c = 0.15$, 4 drafts and a verifying pass would cost
# > 1.6, with $c = 0.78$ they would cost 4.1. The truth lies between the two.
#
# ## When does speculation lose?
#
# Make a model of it. Let every draft be accepted with the same chance $a$, given that all before it were. (At one position
# that chance is $1 - \text{TV}(p, q)$, lesson 02; $a$ is a mean of it.) Then $k$ drafts or more are accepted with
# probability $a^k$, and the expected accepted length is the sum of these, plus one for the target's own:
#
# $$\tau = 1 + a + a^2 + \dots + a^\gamma.$$
#
# We count in plain passes. A draft costs $c$ of them, so drafting costs $\gamma c$; verifying costs $v$. Where a pass is
# bound by memory, $v$ is close to 1 (lesson 01), and Leviathan et al. set it to 1; here it was more, as printed above.
#
# $$\text{speed-up} = \frac{T_\text{plain}}{L} = \frac{1 + a + \dots + a^\gamma}{\gamma c + v}.$$
#
# **Speculation loses where $\tau < \gamma c + v$.** With $v = 1$, the best case, that is where
# $a + \dots + a^\gamma < \gamma c$: a draft must bring more tokens, on average, than the plain passes it costs. The sum is
# at most $\gamma a$, so no draft length helps when $a < c$.
#
# So there are three ways to lose: drafts that are wrong too often, that cost too much, and that cost more to verify than they
# bring. The last one catches even free drafts, those of prompt lookup on chat.
#
# Now take the drafter that is never wrong, the target itself: $a = 1$ and $c = 1$.

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
tau = parts(mirrored)[0]
mirrored_speed.beside(f"{tau:.2f} tokens per round, {speedup:.2f} times plain decoding; "
                      f"the formula gives {8 / (7 + v):.2f} for 8 tokens per round, {tau / (7 + v):.2f} for {tau:.2f}")

# %% [markdown]
# Every guess is right, a round brings 7.50 tokens (the ends of the answers cut the last ones short), and nothing is gained:
# the formula says $(\gamma + 1)/(\gamma + v)$, below 1 for every $v > 1$. A drafter has to be cheap before it has to be good.
#
# How long should a block be? Take a good drafter, $a = 0.8$, $c = 0.1$ and $v = 1$. Then change one number at a time.

# %%
fastest = predict("The best draft length for a = 0.8, c = 0.1, v = 1? If a is 0.5? If, instead, c is 0.5? If, instead, v is 2?",
                  ..., ..., ..., ...)


# %%
def expected_tau(a, gamma):
    """Accepted length if every draft is accepted with chance `a`, given that all before it were."""
    return sum(a**k for k in range(gamma + 1))


from dspark_course.figures import widgets

panel = widgets.explore(
    figures.when_it_pays, {"acceptance": 0.5}, {"cost": 0.5}, {"verify": 2.0}, acceptance=widgets.slider("acceptance a", 0.8, 0.05, 0.95, 0.05),
    gamma=widgets.slider("draft length γ", 7, 1, 16), cost=widgets.slider("cost ratio c", 0.1, 0.0, 1.0, 0.05),
    verify=widgets.slider("cost of verifying v", 1.0, 1.0, 3.0, 0.1))
settings = (0.8, 0.1, 1), (0.5, 0.1, 1), (0.8, 0.5, 1), (0.8, 0.1, 2)
best = [max(range(1, 17), key=lambda g: expected_tau(a, g) / (g * cost + verifying)) for a, cost, verifying in settings]
fastest.beside(f"γ = {best}", "formula")

# %% [markdown]
# Worse drafts ask for shorter blocks, and so do more expensive ones. A larger $v$ asks for longer blocks: it is paid once
# per round, and more drafts share it. (The formula takes $v$ as fixed. Is it? We measure it below.)
#
# ### Exercise 5 · Accepted length in closed form (code)
# Return $\tau$ for $0 \le a \le 1$ without a loop or a sum. Your function must be right at $a = 1$, too.
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
# ### Exercise 6 · When does it lose? (think)
# A small LM costs a tenth of a plain pass per token, its drafts are accepted with chance 0.8, and verifying costs one
# plain pass. With $\gamma = 5$, what is the speed-up? How low may the acceptance fall before nothing is gained (try values of
# $a$ in your `tau_of`)? And what if the small LM cost half a pass?
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
# Nothing is gained below $\tau = 1.5$, that is $a + a^2 + \dots + a^5 = 0.5$, which is so at $a = 0.334$.
#
# At $c = 0.5$ a round costs $3.5$ plain passes and the speed-up is $3.69 / 3.5 = 1.05$: the same guesses, and almost
# nothing gained. It breaks even at $a = 0.78$.
#
# </details>
#
# ## Theory against this machine
#
# Is one number $a$ enough? Here is the small LM's acceptance from the first draft to the seventh, each in the rounds that
# reached it. Three prompts are few, so 200 per domain, measured before, stand below.

# %%
from dspark_course.measure import studies
from dspark_course.replication import our_results

chances = {}
for domain in lab.prompts:
    rounds = [r for g in runs["small_lm", domain] for r in g.rounds]
    judged = sum(min(r.accepted + 1, r.proposed) for r in rounds)  # after the first refusal no draft is judged
    chances[domain] = sum(r.accepted for r in rounds) / judged
    few = acceptance_by_position(runs["small_lm", domain], drafter.gamma)
    many = our_results.recipe_row(studies.TABLE_1["small_lm"], domain)["conditional_acceptance"]
    for count, rates, more in ((3, few, f"   all together a = {chances[domain]:.2f}"), (200, many, "")):
        print(f"{domain:5} {count:3} prompts " + " ".join("  - " if rate is None else f"{rate:.2f}" for rate in rates) + more)

# %% [markdown]
# A language model drafts its seventh token with the six before it in view. On 200 prompts the target keeps 0.86 of the
# first drafts and 0.93 of the seventh on math, 0.97 and 0.98 on code, 0.94 and 0.95 on chat. Nothing decays with the
# position, so one number $a$ describes this drafter fairly well. (Part of this is selection: the rounds that reach the
# seventh draft are the easier ones.) One draft stands out, the fifth on code: 0.86 on 200 prompts, for no reason that we know,
# and 0.68 on three. Lesson 04 asks the same of a drafter whose positions do not see one another.
#
# Now lay the formula beside runs with 1, 2, 4 and 7 drafts. Its $a$ comes from the runs with 7 (drafts after an answer's end
# counted), so for $\tau$ the others are the test. For the speed-up it takes the cost of a round as measured, and $\gamma c + v$
# stands beside that cost. Its $c$ and $v$ come from rounds of 7 drafts, too.

# %%
short = predict("In rounds of 1 draft: does a draft cost more than c or less? Does verifying cost more than v or less?", ..., ...)

# %%
sweep, model, paid = {}, {}, {}
print("           tokens per round, τ           a round costs, plain passes          times plain\n"
      "       γ   measured with ends formula    a draft verifying  total γc + v    measured formula")
for domain, gamma in ((domain, gamma) for domain in lab.prompts for gamma in (1, 2, 4, 7)):
    generations = shorter.get((domain, gamma), runs["small_lm", domain])
    tau, *seconds = parts(generations)
    drafting, verifying = (part / costs["plain", domain][2] for part in seconds)  # in plain passes
    rounds = [r for g in generations for r in g.rounds]
    whole = 1 + sum(r.accepted for r in rounds) / len(rounds)  # with what the answers' ends cut off
    cost, expected, paid[domain, gamma] = drafting + verifying, expected_tau(chances[domain], gamma), (drafting / gamma, verifying)
    sweep[domain, gamma] = tau, tokens_per_second(generations) / tokens_per_second(runs["plain", domain])
    model[domain, gamma] = expected, expected / cost
    print(f"{domain:5}  {gamma}   {tau:8.2f} {whole:9.2f} {expected:7.2f}   {drafting / gamma:8.2f} {verifying:9.2f} {cost:6.2f} "
          f"{gamma * c + v:6.2f}   {sweep[domain, gamma][1]:9.2f} {expected / cost:7.2f}")
one = [sum(paid[domain, 1][part] for domain in lab.prompts) / len(lab.prompts) for part in (0, 1)]
short.beside(f"a draft {one[0]:.2f}, c = {c:.2f}; verifying {one[1]:.2f}, v = {v:.2f}")
picture = figures.draft_length_sweep(sweep, model, lab.device_name)

# %% [markdown]
# The upper row is $\tau$. On chat the formula is right to a tenth for 1, 2 and 4 drafts. At 2 drafts on math it says 2.68
# tokens where 2.32 were measured, at 4 on code 4.00 where 4.65 were. That may be chance: each length draws other answers,
# and three prompts are few.
#
# At $\gamma = 7$ the formula is too high everywhere, on chat 6.28 where 5.94 were measured. The end of an answer cuts its last
# block short; with what it cuts off counted, all three domains lie nearer to the formula.
#
# The lower row is the speed-up. The formula misses it by the same share as $\tau$, since the costs are measured. The table
# tests $\gamma c + v$: it lies within 15% of all twelve totals. With 1 draft two errors work against each other. Verifying costs
# less than $v$, since the target reads 2 positions in place of 8. The draft costs more than $c$, in part because a round's
# first pass reads two tokens after a whole block.
#
# Each extra draft adds a pass of the small LM and is reached less often. By the formula 7 drafts are less than a fifth faster
# than 4. In our run the gain was smaller than the formula's in every domain, and on code it was a loss.
#
# ### Exercise 7 · A better look-up (open)
# `look_up` copies what followed the *latest* earlier place. Is that the best choice? Write a variant (the earliest place,
# matches of more than three tokens, a match in the prompt before one in the answer, fewer tokens copied after a short match):
# `mine = PromptLookup(target.vocab_size)`, then `mine.continuation = my_look_up`, called with `(text, length)`. Measure it on
# ten prompts of the domain where you expect most, beside `lookup`. Compare $\tau$ and $L$: a variant that copies fewer
# tokens can only save verifying. What did you predict, and what happened?
#
# <details><summary>Hint</summary>
#
# `rollout(lab, mine, prompt, index, temperature=1.0)` decodes a prompt (`index` seeds the draws). `parts([...])` gives
# $\tau$ and the seconds of drafting and of verifying.
#
# </details>
# <details><summary>What we found</summary>
#
# On ten math prompts longer matches changed nothing. The earliest place kept a little more than the latest, but over
# resampled prompts (a bootstrap) the difference had either sign: noise. Fewer tokens after a short match lost $\tau$, beyond
# noise, and gave the target far fewer drafts to read. Whether that lowers $L$ depends on what a longer block costs your
# machine.
#
# </details>
#
# ## The scoreboard
#
# From here to lesson 06 a table grows: every drafter, measured side by side on more prompts than above
# (`python -m dspark_lite bench`, temperature 1). Its middle says what a round costs in plain passes, as a mean over the
# domains: $\tau$ divided by it is roughly the speed-up.

# %%
from dspark_course.figures.scoreboard import scoreboard

print(scoreboard("small_lm", "prompt_lookup"))

# %% [markdown]
# The small LM brings 4.95 to 6.71 tokens per round, and a round costs 2.83 plain passes: 1.43 for drafting, 1.38 for
# verifying, the rest for its reading of the prompt. So it is 1.75 to 2.36 times as fast, not five to seven. A drafter that
# brings as much for less is what lessons 04 to 06 look for.
#
# ## Recap
#
# - The loop is propose, verify, accept, roll back; with a lossless `verify` the text has exactly the target's distribution,
#   at any temperature. A phantom in the target's cache changes the text silently, one in the drafter's only costs speed.
# - Prompt lookup is nearly free and right only where the answer repeats something; where it does not, the more expensive
#   verifying pass makes it lose. A small LM guesses anywhere and pays one pass per draft.
# - Speed-up is $\tau / (\gamma c + v)$, and no draft length helps when $a < c$.
# - At batch 1 a pass of our small LM costs a share of a plain pass that lies nearer its share of the layers
#   (25%) than that of the parameters (8%).
#
# **Next:** [lesson 04](04_draft_a_block_at_once.ipynb) drafts the whole block in one pass, so that $\gamma c$ becomes $c$.
