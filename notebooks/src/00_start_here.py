# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"]
# # 00 · Start here
#
# A language model writes one token at a time, and for each token the whole model runs once. In a large model most of
# that time goes into reading weights from memory, and a pass over several tokens reads them only once (lesson 01).
# **Speculative decoding** uses this: a small, quick *drafter* guesses the next few tokens, and the large model, the
# *target*, checks all of them in one pass. Each right guess saves a pass; wrong ones are thrown away. Nothing is
# approximated: at temperature 0 the text is the target's own, token for token; above it, the text is drawn from
# exactly the target's distribution. On one thread of a CPU this makes the small models of this course two to three
# times as fast, depending on the text; here you measure it on yours.
#
# The rule that makes it exact was found twice, by [Leviathan and others](references.md#leviathan) in 2022 and by
# [Chen and others](references.md#chen) in 2023. Drafters have improved since: [EAGLE-3](references.md#eagle3) drafts
# token by token from the target's hidden states, [DFlash](references.md#dflash) drafts a whole block at once, and in
# 2026 DeepSeek and Peking University joined the two ideas in **DSpark**: a block drafted in parallel, a small
# sequential head that makes it coherent, and a confidence that decides how much of it is worth checking. The paper is
# [*DSpark: Confidence-Scheduled Speculative Decoding with Semi-Autoregressive Generation*](references.md#dspark) by
# Xin Cheng and others.
#
# By the end of the course you will have written a lossless `verify` from memory and proved it, a decoder and a small
# serving engine around it, DSpark's loss, and an experiment of your own; and you will have seen where our results
# agree with the paper's and where they do not.
#
# **What you will learn**
# - what happens in one round of speculative decoding with DSpark: a block is drafted, verified, committed
# - that the answer stays the one the target would have written by itself
# - how fast it is on your machine, and what decides that: the cost of a round and the tokens it brings
#
# **What you need**: Python with a little PyTorch, the idea that a language model gives a probability to every
# possible next token, and roughly what a transformer's layers are. Reading and exercises take you about 45 minutes.
# Three pages go with the lessons: [references](references.md), [notation](notation.md), [glossary](glossary.md).
# Exercises are marked *code* (a checker names your mistake), *think* (the answer folds out) or *open* (there is no
# given answer).

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite

lab = dspark_lite.setup()
target = lab.target
print(f"profile {lab.profile!r} on {lab.device_name}: "
      f"a target of {target.num_layers} layers with a vocabulary of {target.vocab_size} tokens")

# %% [markdown]
# `setup()` gives a *lab*: a **target** (the language model whose answers we want), **drafters** for it, and prompts
# from three domains: math, code and chat. Without a GPU these are the tiny models of this repository, whose numbers
# the text quotes. On a GPU with 14 GB free they are Qwen3-4B and the weights that DeepSeek released. The code is the
# same for both.
#
# ## One prompt, decoded twice
#
# First the target alone. Plain decoding runs the whole model once for every token.

# %%
prompt = lab.prompts["math"][0]
prompt_ids = lab.encode(prompt)  # [1, n], chat template applied
plain = dspark_lite.generate(target, None, prompt_ids, max_new_tokens=lab.max_new_tokens)  # temperature 0: the likeliest token
print(prompt, lab.decode(plain.token_ids), sep="\n\n")
print(f"\n{len(plain.token_ids)} tokens: one pass over the prompt and {len(plain.rounds)} passes of the target after it")

# %% [markdown]
# Now the same prompt with DSpark's drafter. It guesses a block of tokens, and the target checks the block in one
# pass.

# %%
from dspark_lite.losslessness.ties import same_or_tied

drafter = lab.drafter("dspark")
answer = dspark_lite.generate(target, drafter, prompt_ids, max_new_tokens=lab.max_new_tokens)
assert same_or_tied(target, prompt_ids, answer.token_ids, plain.token_ids)
print(lab.decode(answer.token_ids))
print(f"\n{len(answer.token_ids)} tokens: one pass over the prompt and {len(answer.rounds)} passes of the target after it")

# %% [markdown]
# The `assert` is the promise that the whole course keeps testing: **speculation changes the time, not the answer.**
# Both runs were *greedy*, at temperature 0: the likeliest token is taken each time, so the two answers must be equal
# token for token. In float32 they were in all our runs. In 16 bits, rounding can swap two tokens whose logits are
# almost equal; there, and only there, `same_or_tied` lets the answers differ.
#
# Here is every round: a row is a block of drafts in their order. A draft is right if it is the target's likeliest
# token there.

# %%
from dspark_course.figures import token_boxes

picture = token_boxes.rounds_figure(lab, answer, count=12)

# %% [markdown]
# `·` is a blank and `↵` a line end. The filled boxes, read row by row, are the answer without its first token, which
# came from the prompt's own pass. Green tokens were guessed right. The blue one with a plus is the target's own: it
# replaces the first wrong guess (×, drawn to its right), or follows a block that was right to its end. Round 8 has
# none: the answer ended inside its block. So every round yields at least one token, and none yields a wrong one.
#
# A worked sum leaves little choice of words. Here is a question with many good answers, of which the drafter has to
# guess the target's.

# %%
chat_ids = lab.encode(lab.prompts["chat"][0])
advice = dspark_lite.generate(target, drafter, chat_ids, max_new_tokens=lab.max_new_tokens)
print(lab.prompts["chat"][0])
picture = token_boxes.rounds_figure(lab, advice, count=20)

# %% [markdown]
# In most rounds of the sum all seven drafts were kept, but in no round of the advice. The mean number of tokens per
# round is the **accepted length**, written $\tau$: the paper's name, though the target's own token counts, too. A
# block has $\gamma$ drafts, here 7, so $\tau$ is at most $\gamma + 1 = 8$.
#
# ### Exercise 1 · Accepted length (code)
# `answers` is a list like `[answer, advice]`; each has `.rounds`, at least one. A round has `.proposed` (drafts that
# were checked), `.accepted` (drafts that passed) and `.committed` (tokens that joined the answer; the end of the
# answer can cut its last round short). Return $\tau$ over all rounds of all answers, a float.
#
# <details><summary>Hint</summary>
#
# `answer` has 56 tokens, all but the first from its rounds. Which of the three numbers adds up to 55? And should a
# round of a short answer weigh more than others?
#
# </details>

# %%
from dspark_course.exercises import lesson_00 as exercises


# %% tags=["exercise"]
def accepted_length(answers):
    ...


# %% tags=["solution"]
def accepted_length(answers):
    rounds = [r for found in answers for r in found.rounds]
    return sum(r.committed for r in rounds) / len(rounds)


# %%
done = exercises.check_accepted_length(accepted_length)

# %%
for name, found in (("sum", answer), ("advice", advice)):
    committed = [r.committed for r in found.rounds]
    print(f"{name:6} committed by round {committed}: tau = {found.accepted_length:.2f} of at most {drafter.gamma + 1}")

# %% [markdown]
# On average a round brings 6.88 tokens of the sum and 4.13 of the advice, of at most 8. The drafter is the same; the
# text decides. The end cut both last rounds short, that of the sum to 2 tokens: without it the sum had 7.57.
#
# ## One round, slowly
#
# This is Figure 1 of the paper, drawn anew. The boxes are the steps of a round (prompt and prefill come once); the
# rows in the middle show an example block, made up for the picture.

# %%
from dspark_course.figures import lesson_00 as figures

picture = figures.round_picture()

# %% [markdown]
# Now we walk it by hand for the singer's question, at temperature 1: tokens are drawn, not just the likeliest taken.
# We chose the seed so that much happens in one block.
#
# **Prefill.** The target reads the prompt once. From the next-token distribution that comes out we draw the first
# token. The drafter will read the hidden states of a few layers, the [*context
# features*](glossary.md#context-features). The newest token, after which the next block is drafted, is the
# [*anchor*](glossary.md#anchor).

# %%
from dspark_lite.decoding.sampling import accept, draw, probabilities

generator = lab.generator(52)
step, target_cache = target.prefill(chat_ids, drafter.taps)  # taps: the layers that the drafter reads
anchor = draw(probabilities(step.logits[:, -1], 1.0), generator)  # [1]
state = drafter.begin(chat_ids, step.features)
print(f"the anchor is {lab.decode(anchor)!r}; features {tuple(step.features.shape)}: "
      f"for each prompt token the states of {len(drafter.taps)} layers, joined")

# %% [markdown]
# **Draft.** The parallel [*backbone*](glossary.md#backbone), the drafter's layers, makes one pass over `[anchor,
# mask, …, mask]`; a [*mask token*](glossary.md#mask-token) is a placeholder. The anchor's place predicts the first
# draft, each of the six masks one more. The [*sequential head*](glossary.md#sequential-head), a small table of what
# follows what, corrects each prediction for the token before it and draws from left to right. The confidence head
# reads a place's hidden state and the token before it, but not the draft itself: it estimates the chance that a draft
# in this place is kept if all before it are.

# %%
proposal = drafter.propose(state, anchor, temperature=1.0, generator=generator)
drafts = [lab.tokenizer.decode(token) for token in proposal.tokens[0]]
print(drafts)
print("confidence", [round(c, 2) for c in proposal.confidence[0].tolist()])

# %% [markdown]
# **Policy.** Checking takes time of the target, so a policy may cut the block where the drafter is unsure. A
# threshold of 0.5 cuts it before the first place whose confidence is lower. This walk verifies the whole block:
# cutting matters most where many requests share a pass (lessons 09 to 11).

# %%
from dspark_lite import scheduling

length = scheduling.threshold(0.5)(proposal).item()
print(f"a threshold of 0.5 would verify {length} of {len(drafts)} drafts")

# %% [markdown]
# **Verify.** One pass of the target over the anchor and all drafts gives its distribution after each of them. The one
# after the anchor judges draft 1, the one after draft 6 judges draft 7, and the eighth gives the next token if all
# are kept.

# %%
entering = torch.cat([anchor[:, None], proposal.tokens], 1)  # [1, g+1]
step = target.verify(entering, target_cache, drafter.taps)
target_probs = probabilities(step.logits, 1.0)  # [1, g+1, V]
print("the target's distribution after each of", entering.shape[1], "tokens:", tuple(target_probs.shape))

# %% [markdown]
# **Accept.** A draft that is offered more often than the target wants it must sometimes be refused: draft $x$ is kept
# with probability $\min(1, p(x)/q(x))$, where $q$ is the drafter's and $p$ the target's probability of it. The first
# refusal discards the rest of the block, and a token from a corrected distribution takes the refused one's place.
# Lesson 02 shows why this leaves the target's distribution untouched.

# %%
verdict = accept(target_probs, proposal.probs, proposal.tokens, None, generator)  # None: no policy
accepted = verdict.accepted.item()
p, q = (table[0, :len(drafts)].gather(-1, proposal.tokens[0, :, None])[:, 0].tolist()
        for table in (target_probs, proposal.probs))
picture = figures.block_figure(drafts, p, q, proposal.confidence[0].tolist(), accepted)
any_draft = torch.minimum(target_probs[0, :-1], proposal.probs[0]).sum(-1)  # [g]: the chance that whatever is drawn is kept
for k, (draft, wanted, offered) in enumerate(zip(drafts, p, q)):
    judged = f"kept with chance {min(1, wanted / offered):.2f}" if k <= accepted else "void"
    print(f"{draft!r:10} q {offered:.2f}   p {wanted:.2f}   {judged:21}   any draft {any_draft[k]:.2f}, "
          f"confidence {proposal.confidence[0, k]:.2f}")

# %% [markdown]
# With the tiny models:
#
# - The third draft was unlikely, $q = 0.13$, yet certain to be kept, because the target likes it more: $p = 0.24$.
#   The confidence of that place was only 0.44 all the same: it does not depend on the draft but estimates the chance
#   that whatever is drawn there will be kept, which was 0.37. (Lesson 02 shows how the column "any draft" is
#   computed.)
# - The fourth was offered more often than the target wants it, 0.68 against 0.49, so it had a chance of 0.72, and the
#   random draw refused it.
# - The fifth looks perfect and does not count: its $p$ was computed after a token that is not in the answer. Its
#   confidence is wrong, too, 0.32 where nearly every draft would be kept: of the drafts the head sees only `ake`
#   there, not the `t` before it. Lesson 09 asks how far a confidence can be trusted.
# - The sixth was a rare draw: its bars are too low to see.
#
# **Commit.** The accepted prefix and one more token join the answer. The target's cache forgets the refused drafts,
# and the drafter gets the features of what was kept. The new token is the next anchor; the target reads it in the
# next round.

# %%
from dspark_lite.decoding.sampling import residual

corrected = target_probs[0, accepted]  # [V]: as it is where no draft was refused
if accepted < len(drafts):
    corrected = residual(corrected, proposal.probs[0, accepted])
likeliest = corrected.topk(3).indices.tolist()
print("corrected distribution", {lab.tokenizer.decode([token]): round(corrected[token].item(), 2) for token in likeliest})
target.roll_back(target_cache, len(drafts) - accepted)
drafter.extend(state, entering[:, :accepted + 1], step.features[:, :accepted + 1])
print(f"accepted {drafts[:accepted]}, then {lab.decode(verdict.next_token)!r}: "
      f"{accepted + 1} token{'s' * (accepted > 0)} for one pass of the target")
assert target_cache.get_seq_length() == chat_ids.shape[1] + 1 + accepted

# %% [markdown]
# ## Watch any block
#
# At which tokens do blocks break off: in sums, in code, in advice? Does the target hesitate there? The last row shows
# its probabilities $p$ (at temperature 1, wherever the slider stands) after the last kept draft: of its two likeliest
# tokens and of the refused draft. Try more rounds than these four, and other temperatures.
#
# <details><summary>Answer</summary>
#
# In sums mostly at a digit that must be computed: 8 was drafted where the target is sure of 9. In code mostly at a
# name, copied or free: `get_score` was drafted where the request says `get_report`. In advice mostly where words are
# almost equally likely: after `Many people pl`, `ay` wins over `an` by a hair. But not only there: after `someone you
# tru` the target is certain of `st`, and the small drafter offered `p`.
#
# At temperature 1.5 the text usually falls apart, and blocks break off sooner. At 1 advice does better than at 0:
# over the first five requests $\tau$ rises from 4.1 to 5.2. A draft need not be *the* likeliest token, only one that
# the target also likes.
#
# </details>


# %%
from functools import cache

from dspark_course.figures import widgets


@cache
def decoded(request, temperature):
    """The answer to a request, decoded once for each temperature."""
    return dspark_lite.generate(target, drafter, lab.encode(request), temperature=temperature,
                                max_new_tokens=lab.max_new_tokens, generator=lab.generator())


def target_there(request, found, number):
    """The target's probabilities [V] at temperature 1 after the accepted drafts of a round (from 1)."""
    before = 1 + sum(r.committed for r in found.rounds[:number - 1]) + found.rounds[number - 1].accepted
    ids = lab.encode(request)
    step, _ = target.prefill(torch.cat([ids, ids.new_tensor([found.token_ids[:before]])], 1))
    return probabilities(step.logits[0, -1], 1.0)


def watch(domain, number, temperature, round_number):
    """The block of one round; beyond the last round the last one is shown."""
    request = lab.prompts[domain][number - 1]
    found = decoded(request, temperature)
    shown = min(round_number, len(found.rounds))
    return figures.round_figure(lab, found, shown, request, target_there(request, found, shown))


panel = widgets.explore(
    watch, {"round_number": 4}, {"domain": "math", "round_number": 6}, {"domain": "code", "round_number": 1},
    domain=widgets.menu("domain", list(lab.prompts)[::-1]), number=widgets.slider("prompt", 1, 1, 20),
    temperature=widgets.slider("temperature", 0.0, 0.0, 1.5, 0.1), round_number=widgets.slider("round", 5, 1, 30))

# %% [markdown]
# ## How fast is it here?
#
# Four prompts per domain. Each is decoded plainly and with DSpark, one right after the other, and the domains
# alternate, so that a slow moment of the machine hits all; the ratios still change by some tenths from run to run.
# The clock runs from the end of the prompt's pass to the end of the answer. Before you look, guess three speed-ups,
# such as `(2.0, 2.0, 2.0)`; `predict` keeps them beside the result and grades nothing.

# %%
from dspark_course.exercises.predictions import predict
from dspark_course.measure.evaluation import round_milliseconds, tokens_per_second

gains = predict("How many times as fast is DSpark on math, on code, on chat?", ...)

# %%
runs = {}
for turn in range(4):
    for domain, prompts in lab.prompts.items():
        for name, chosen in {"plain": None, "dspark": drafter}.items():
            found = dspark_lite.generate(target, chosen, lab.encode(prompts[turn]), max_new_tokens=lab.max_new_tokens)
            runs.setdefault((name, domain), []).append(found)
speeds = {name: {domain: tokens_per_second(runs[name, domain]) for domain in lab.prompts}
          for name in ("plain", "dspark")}
picture = figures.speed_bars(speeds, lab.device_name)
gains.beside(", ".join(f"{domain} {speeds['dspark'][domain] / speeds['plain'][domain]:.2f}" for domain in lab.prompts))

# %% [markdown]
# Here chat gained least. And the answers? The same comparison as above, for each of them.

# %%
equal = 0
for domain, prompts in lab.prompts.items():
    for prompt, ours, alone in zip(prompts, runs["dspark", domain], runs["plain", domain]):
        assert same_or_tied(target, lab.encode(prompt), ours.token_ids, alone.token_ids)
        equal += ours.token_ids == alone.token_ids
print(f"{equal} of {sum(map(len, runs.values())) // 2} greedy answers are equal token for token")

# %% [markdown]
# ## Which numbers decide the speed?
#
# ### Exercise 2 · Speed-up (code)
# A round takes $T_\text{draft}$ to draft the whole block and $T_\text{verify}$ to check it. From $\tau$, these two,
# and the time of one pass of plain decoding, all floats above 0 and the times in seconds: how many times as fast as
# plain decoding is speculation? 1 means no gain, less is a loss.
#
# <details><summary>Hint</summary>
#
# Write down the seconds of one token both ways. How many tokens does a round bring, and how many a plain pass?
#
# </details>


# %% tags=["exercise"]
def speedup(tau, draft_seconds, verify_seconds, plain_seconds):
    ...


# %% tags=["solution"]
def speedup(tau, draft_seconds, verify_seconds, plain_seconds):
    return tau * plain_seconds / (draft_seconds + verify_seconds)


# %%
done = exercises.check_speedup(speedup)

# %% [markdown]
# The time of one token is therefore
#
# $$L = \frac{T_\text{draft} + T_\text{verify}}{\tau}.$$
#
# All of DSpark serves this fraction: the parallel backbone keeps $T_\text{draft}$ small, the sequential head makes
# $\tau$ larger, confidence and policy spend $T_\text{verify}$ where it pays.
#
# For math the formula has to agree with the clock, which gave all its numbers. The test is to foretell the gains of
# code and chat from the times of math and their own $\tau$.

# %%
first, *others = lab.prompts  # math; code and chat
draft, verify = round_milliseconds(runs["dspark", first]).values()
plain_pass = 1e3 / speeds["plain"][first]
tau = {domain: exercises.accepted_length(runs["dspark", domain]) for domain in lab.prompts}
foretold = {domain: exercises.speedup(tau[domain], draft, verify, plain_pass) for domain in lab.prompts}
measured = {domain: speeds["dspark"][domain] / speeds["plain"][domain] for domain in lab.prompts}
print(f"{first:5} ({draft:.1f} ms draft + {verify:.1f} ms verify) / {tau[first]:.2f} tokens = {(draft + verify) / tau[first]:.2f} ms per token; "
      f"plain {plain_pass:.2f} ms, a round {(draft + verify) / plain_pass:.2f} times that; gain "
      f"{foretold[first]:.2f} by the formula, {measured[first]:.2f} measured")
for domain in others:
    print(f"{domain:5} {tau[domain]:.2f} tokens in a round that costs what {first}'s does: gain {foretold[domain]:.2f} foretold, "
          f"{measured[domain]:.2f} measured")

# %% [markdown]
# A round of math takes as long as about two plain passes; checking eight tokens took about one and a half of them,
# not one (lesson 01). It brings 6.24 tokens of math, 5.49 of code and 4.32 of chat. What this foretells for code and
# chat misses the measured gain by less than a tenth: a round costs much the same everywhere, and the text decides
# through $\tau$. (The functions here are the course's own, equal to yours.)
#
# ### Exercise 3 · Which lever? (think)
# Your drafter gives $\tau = 4$ at $T_\text{draft} = 3$ ms and $T_\text{verify} = 9$ ms, and a plain pass takes 6 ms.
# You may either halve the time of drafting or raise $\tau$ by one. Which is worth more? And how slow must drafting
# be, with the other two numbers as they are, before it is the other one?
#
# <details><summary>Hint</summary>
#
# Compute $L$ three times, then set two of them equal.
#
# </details>
# <details><summary>Answer</summary>
#
# Now $L = 12/4 = 3$ ms, twice as fast as plain. Halving the draft gives $10.5/4 = 2.63$ ms, one token more gives
# $12/5 = 2.4$ ms: the token. With a draft time of $d$ the two are equal where $(d/2 + 9)/4 = (d + 9)/5$, so $d = 6$
# ms. In this example, above 6 ms, halving the draft is worth more.
#
# </details>
#
# ### Exercise 4 · Find its weakness (open)
# Write three prompts for which you expect DSpark to be slow, and three for which you expect it to be fast, into the
# cell below, which also prints the target's largest probability at each refusal. What do the slow ones have in
# common: does the target hesitate, or does the drafter not know what the target is sure of? Stay close to
# `lab.prompts`: the tiny target has learned from such texts only.
#
# <details><summary>Hint</summary>
#
# `picture = token_boxes.rounds_figure(lab, found, count=30)` shows where blocks end. Take $\tau$ for the speed.
#
# </details>

# %%
own_prompts = [prompts[4] for prompts in lab.prompts.values()]  # put yours in their place
for text in own_prompts:
    found = decoded(text, 0.0)
    refusals = [k for k, r in enumerate(found.rounds, 1) if r.accepted < min(r.proposed, r.committed)]
    print(f"tau {found.accepted_length:.2f}: {text}\n          {lab.decode(found.token_ids)!r}")
    print("          at refusals", *(f"{target_there(text, found, k).max():.2f}" for k in refusals))

# %% [markdown]
# Where the tiny target is wrong, the answer with a drafter is wrong in the same way: lossless means equal to the
# target, not right.
#
# ## Map of the course
#
# | | lesson | in the paper | status |
# |---|---|---|---|
# | 00 | Start here | Figure 1 | you are here |
# | 01 | [Why decoding is slow](01_why_decoding_is_slow.ipynb): the K/V cache, what a pass costs | | ready |
# | 02 | [The lossless rule](02_the_lossless_rule.ipynb), proved by enumeration; how it breaks | | ready |
# | 03 | [A first speculative decoder](03_a_first_speculative_decoder.ipynb): small LM, prompt lookup | | ready |
# | 04 | [Draft a block at once](04_draft_a_block_at_once.ipynb): DFlash's parallel backbone | | ready |
# | 05 | [A little autoregression](05_a_little_autoregression.ipynb): Markov, gated and RNN heads | | ready |
# | 06 | [Autoregressive rivals](06_autoregressive_rivals.ipynb): Eagle3, MTP; acceptance by position | Figure 2 | ready |
# | 07 | [Train a drafter](07_train_a_drafter.ipynb): anchors, packing, target cache, three losses | | ready |
# | 08 | [The released weights](08_released_weights.ipynb): load, prove, measure on a T4 | | ready |
# | 09 | [Confidence](09_confidence.ipynb): reliability, calibration, thresholds | Figures 5, 6 | ready |
# | 10 | [The scheduler](10_the_scheduler.ipynb): Algorithm 1, why it must stop early, lagged budgets | Appendix A | ready |
# | 11 | [Serving under load](11_serving_under_load.ipynb): ragged batches, budgets that shrink | Figures 7, 8 | ready |
# | 12 | [The paper in miniature](12_the_paper_in_miniature.ipynb): ours beside theirs | Table 1, Figures 3, 4 | ready |
# | 13 | [Is it the world?](13_is_it_the_world.ipynb): the largest failure, taken apart | Table 1, Figures 2, 3, 8 | ready |
# | 14 | Production: V4's drafter, deploying, limits | | planned |
# | 15 | Clinic: silent failures and how the accepted length gives them away | | planned |
#
# 01 and 02 can be read in either order. A function is derived once, proved equal to the one in `dspark_lite`, and
# imported from there afterwards. What the course leaves out is on the page of [related work](related_work.md).
#
# ## Recap
#
# - A drafter guesses a block, the target reads it in one pass, and the longest prefix that the rule allows is
#   committed plus one more token.
# - Only the time changes: at temperature 0 the answer is the target's own, above it the answer has the target's
#   distribution.
# - $L = (T_\text{draft} + T_\text{verify})/\tau$ says how long a token takes, and $\tau$ depends on the text.
#
# **Next:** [lesson 01](01_why_decoding_is_slow.ipynb) takes the numerator apart: where the time of a pass goes, and
# what a pass over eight tokens costs beside a pass over one.
