# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"]
# # 00 · Start here
#
# A language model writes one token at a time, and for each token the whole model runs once. Most of that time the machine
# waits. **Speculative decoding** lets a small, quick *drafter* guess the next few tokens and has the large model, the
# *target*, check all of them in one pass. What is guessed right costs next to nothing, what is guessed wrong is thrown
# away, and the text is exactly the one the target would have written: nothing is quantised, distilled or approximated. On
# one thread of a CPU that made the small models of this course about three times as fast; you measure it on your machine
# in this lesson.
#
# The rule that makes it exact was found twice, by [Leviathan and others](references.md#leviathan) in 2022 and by
# [Chen and others](references.md#chen) in 2023. Since then the drafters have changed. [EAGLE-3](references.md#eagle3)
# continues the target's own features token by token, [DFlash](references.md#dflash) drafts a whole block at once, and in
# 2026 DeepSeek and Peking University joined the two ideas in **DSpark**: a block drafted in parallel, a small sequential
# head that makes it coherent, and a confidence that decides how much of it is worth checking. The paper is
# [*DSpark: Confidence-Scheduled Speculative Decoding with Semi-Autoregressive Generation*](references.md#dspark) by Xin
# Cheng, Xingkai Yu, Chenze Shao, Jiashi Li, Yunfan Xiong and others.
#
# When you have worked through the course you will have written a lossless `verify` from memory and proved it, a decoder
# and a small serving engine around it, DSpark's loss, and an experiment of your own; and you will have laid the paper's
# table and figures beside ours, where they agree and where they do not.
#
# **What you will learn**
# - what happens in one round of speculative decoding with DSpark: a block is drafted, verified, committed
# - that the answer stays the one the target would have written by itself
# - how fast it is on the machine in front of you, and which two numbers decide that
# - what the course covers, and where to go next
#
# **What you need**: Python, and the idea that a language model gives a probability to every possible next token. No
# lesson comes before this one. Three pages stand beside the lessons: [references](references.md),
# [notation](notation.md) and a [glossary](glossary.md).

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite

lab = dspark_lite.setup()
target = lab.target
print(f"profile {lab.profile!r} on {lab.device_name}: "
      f"a target of {target.num_layers} layers and {target.vocab_size} tokens")

# %% [markdown]
# `setup()` gives a *lab*: a **target** (the language model whose answers we want), **drafters** for it, and prompts
# from three domains. Without a GPU these are the tiny models of this repository. On a GPU with 14 GB free they are
# Qwen3-4B and the weights that DeepSeek released. The code below is the same for both.
#
# ## One prompt, decoded twice
#
# First the target alone. Plain decoding runs the whole model once for every token.

# %%
prompt = lab.prompts["math"][0]
prompt_ids = lab.encode(prompt)  # [1, n], chat template applied
plain = dspark_lite.generate(target, None, prompt_ids, max_new_tokens=lab.max_new_tokens)
print(prompt, lab.decode(plain.token_ids), sep="\n\n")
print(f"\n{len(plain.token_ids)} tokens: one pass over the prompt and {len(plain.rounds)} passes after it")

# %% [markdown]
# Now the same prompt with DSpark's drafter. It guesses a block of tokens, and the target checks the block in one pass.

# %%
from dspark_lite.losslessness.ties import same_or_tied

drafter = lab.drafter("dspark")
answer = dspark_lite.generate(target, drafter, prompt_ids, max_new_tokens=lab.max_new_tokens)
assert same_or_tied(target, prompt_ids, answer.token_ids, plain.token_ids)
print(lab.decode(answer.token_ids))
print(f"\n{len(answer.token_ids)} tokens: one pass over the prompt and {len(answer.rounds)} passes after it")

# %% [markdown]
# The `assert` is the promise that the whole course keeps testing: **speculation changes the time, not the answer.**
# `same_or_tied` compares the two answers token for token. In float32 they are equal. In 16 bits a block and a single
# token round differently, so there it lets the answers part at one kind of place only: where the target's two best
# logits are a tie.
#
# Here is every round. A row is a block of drafts in the order in which they were guessed.

# %%
from dspark_lite.figures import token_boxes

picture = token_boxes.rounds_figure(lab, answer, count=12)

# %% [markdown]
# `·` is a blank and `↵` a line end. Read the filled boxes from left to right and from top to bottom: that is the
# answer, without its first token, which came from the prompt's own pass. Green tokens were guessed right. The blue one
# with a plus is the target's own: it stands where the first wrong guess (×) stood, or after a block that was right to
# its end. So every round yields at least one token, and no round yields a wrong one.
#
# A worked sum leaves little choice of words. Here is a question with many good answers.

# %%
chat_ids = lab.encode(lab.prompts["chat"][0])
advice = dspark_lite.generate(target, drafter, chat_ids, max_new_tokens=lab.max_new_tokens)
print(lab.prompts["chat"][0])
picture = token_boxes.rounds_figure(lab, advice, count=12)

# %% [markdown]
# Seven drafts in a row were right in most rounds of the sum; of the advice no block survived whole. The mean number of tokens
# per round is the **accepted length**, written $\tau$.
#
# ### Exercise 1 · Accepted length (code)
# `rounds` is a list like `answer.rounds`: each has `.proposed`, `.accepted` and `.committed`. The end of an answer can
# cut its last round short. Return $\tau$ for any such list, in one line.
#
# <details><summary>Hint</summary>
#
# A cut round has committed fewer tokens than it accepted. Which of the three numbers stays right?
#
# </details>

# %%
from dspark_lite.exercises import lesson_00 as exercises


# %% tags=["exercise"]
def accepted_length(rounds):
    ...


# %% tags=["solution"]
def accepted_length(rounds):
    return sum(r.committed for r in rounds) / len(rounds)


# %%
done = exercises.check_accepted_length(accepted_length)

# %%
for name, found in (("sum", answer), ("advice", advice)):
    committed = [r.committed for r in found.rounds]
    tau = sum(committed) / len(committed)
    assert tau == found.accepted_length
    print(f"{name:6} committed by round {committed}: tau = {tau:.2f} of at most {drafter.gamma + 1}")

# %% [markdown]
# The end of the sum cut its last round short: 2 tokens. On average a round brings 6.88 tokens of the sum and 4.13 of the
# advice, of at most 8. The drafter is the same; the text decides.
#
# ## One round, slowly
#
# This is Figure 1 of the paper, drawn anew: the corridor that every round walks, and in its middle a block on its way,
# made up for the picture. Each box is a lesson or two of this course.

# %%
from dspark_lite.figures import lesson_00 as figures

picture = figures.round_picture()

# %% [markdown]
# Now we walk it by hand for the question above, at temperature 1, where the tokens are drawn and not the likeliest ones
# taken.
#
# **Prefill.** The target reads the prompt once. Out come the next-token distribution, from which we draw the
# [*anchor*](glossary.md#anchor), and the hidden states of a few layers, the
# [*context features*](glossary.md#context-features), which the drafter will look at.

# %%
from dspark_lite.decoding.sampling import accept, draw, probabilities

generator = lab.generator(52)
step, target_cache = target.prefill(chat_ids, drafter.taps)
anchor = draw(probabilities(step.logits[:, -1], 1.0), generator)  # [1]
state = drafter.begin(chat_ids, step.features)
print(f"the anchor is {lab.decode(anchor)!r}; "
      f"{len(drafter.taps)} tapped layers give features {tuple(step.features.shape)}")

# %% [markdown]
# **Draft.** The parallel [*backbone*](glossary.md#backbone), the drafter's layers, makes one pass over the anchor and
# [*mask tokens*](glossary.md#mask-token), one for each place of the block that has no token yet. The
# [*sequential head*](glossary.md#sequential-head), a small table of what follows what, draws the tokens from left to
# right. For each place, before its token is drawn, the confidence head says how likely a token drawn there is to be
# kept, if those before it are.

# %%
proposal = drafter.propose(state, anchor, temperature=1.0, generator=generator)
drafts = [lab.tokenizer.decode(token) for token in proposal.tokens[0]]
print(drafts)
print("confidence", [round(c, 2) for c in proposal.confidence[0].tolist()])

# %% [markdown]
# **Policy.** Checking costs the target time, so a policy may cut the block where the drafter is unsure. Here is what a
# threshold of 0.5 would do. This walk, like most of the course, verifies the whole block: a policy pays where many requests
# share the machine (lessons 09 to 11).

# %%
from dspark_lite import scheduling

length = scheduling.threshold(0.5)(proposal).item()
print(f"a threshold of 0.5 would verify {length} of {len(drafts)} drafts")

# %% [markdown]
# **Verify.** One pass of the target over the anchor and all drafts gives its distribution after each of them.

# %%
entering = torch.cat([anchor[:, None], proposal.tokens], 1)  # [1, g+1]
step = target.verify(entering, target_cache, drafter.taps)
target_probs = probabilities(step.logits, 1.0)  # [1, g+1, V]
print("the target's distribution after each of", entering.shape[1], "tokens:", tuple(target_probs.shape))

# %% [markdown]
# **Accept.** Draft $x$ is kept with probability $\min(1, p(x)/q(x))$, where $q$ is the drafter's and $p$ the target's
# probability of it. At the first refusal the rest of the block falls. Lesson 02 shows why this leaves the target's
# distribution untouched.

# %%
verdict = accept(target_probs, proposal.probs, proposal.tokens, None, generator)
accepted = verdict.accepted.item()
p, q = (table[0, :len(drafts)].gather(-1, proposal.tokens[0, :, None])[:, 0].tolist()
        for table in (target_probs, proposal.probs))
picture = figures.block_figure(drafts, p, q, proposal.confidence[0].tolist(), accepted)
for draft, wanted, offered in list(zip(drafts, p, q))[:accepted + 1]:
    print(f"{draft!r:10} q {offered:.2f}   p {wanted:.2f}   kept with chance {min(1, wanted / offered):.2f}")

# %% [markdown]
# The third draft was an unlikely one, $q = 0.13$, and a safe one: the target gives it $p = 0.24$, and where $p$ is the larger
# the token is kept for certain. The confidence of that place was 0.44 and could not know it, because it is given *before*
# the token is drawn: it is the chance that whatever is drawn there will be kept. The fourth draft had been offered more
# often than the target wants it, 0.68 against 0.49, so it had a chance of 0.72, and the coin fell against it. The fifth
# looks perfect and does not count: its $p$ was computed after a token that is not in the answer.
#
# **Commit.** The accepted prefix and one token more join the answer. The target's cache forgets the refused drafts, the
# drafter gets the features of what was accepted, and the new token is the next anchor.

# %%
target.roll_back(target_cache, len(drafts) - accepted)
drafter.extend(state, entering[:, :accepted + 1], step.features[:, :accepted + 1])
print(f"accepted {drafts[:accepted]}, then {lab.decode(verdict.next_token)!r}: "
      f"{accepted + 1} token{'s' * (accepted > 0)} for one pass of the target")
assert target_cache.get_seq_length() == chat_ids.shape[1] + 1 + accepted

# %% [markdown]
# ## Watch any block
#
# Choose a domain, a prompt, a temperature and a round. In which domain do whole blocks survive, and what does a higher
# temperature do to them? The picture has a round of advice, one of a sum, and the same round of the sum at temperature 1.5.


# %%
from functools import cache

from dspark_lite.figures import widgets


@cache
def decoded(domain, number, temperature):
    """The answer to a prompt, decoded once for each setting of the controls."""
    return dspark_lite.generate(target, drafter, lab.encode(lab.prompts[domain][number - 1]), temperature=temperature,
                                max_new_tokens=lab.max_new_tokens, generator=lab.generator())


def watch(domain, number, temperature, round_number):
    """The block of one round; beyond the last round the last one is shown."""
    found = decoded(domain, number, temperature)
    return figures.round_figure(lab, found, min(round_number, len(found.rounds)))


panel = widgets.explore(
    watch, {"domain": "math"}, {"domain": "math", "temperature": 1.5},
    domain=widgets.menu("domain", list(lab.prompts)[::-1]), number=widgets.slider("prompt", 1, 1, 20),
    temperature=widgets.slider("temperature", 0.0, 0.0, 1.5, 0.1), round_number=widgets.slider("round", 4, 1, 30))

# %% [markdown]
# ## How fast is it here?
#
# Four prompts per domain. Each is decoded plainly and with DSpark, one right after the other, so that a slow moment of the
# machine meets both. Both have run above, so no first run is in the count. The clock runs from the end of the prompt's
# pass to the end of the answer. Before you look: which domain gains most?

# %%
from dspark_lite.exercises.predictions import predict
from dspark_lite.measure.evaluation import tokens_per_second

fastest = predict("How many times as fast is DSpark on math, on code, on chat?", ...)

# %%
runs = {}
for domain, prompts in lab.prompts.items():
    for prompt in prompts[:4]:
        for name, chosen in {"plain": None, "dspark": drafter}.items():
            found = dspark_lite.generate(target, chosen, lab.encode(prompt), max_new_tokens=lab.max_new_tokens)
            runs.setdefault((name, domain), []).append(found)
speeds = {name: {domain: tokens_per_second(runs[name, domain]) for domain in lab.prompts}
          for name in ("plain", "dspark")}
picture = figures.speed_bars(speeds, lab.device_name)
fastest.beside(", ".join(f"{domain} {speeds['dspark'][domain] / speeds['plain'][domain]:.2f}" for domain in lab.prompts))

# %% [markdown]
# Math gains most and chat least. And the answers? The same comparison as above, for each of them.

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
# A round costs the time to draft plus the time to verify, and yields $\tau$ tokens. The time of one token is therefore
#
# $$L = \frac{T_\text{draft} + T_\text{verify}}{\tau}.$$
#
# Plain decoding is the case without drafts: $T_\text{draft} = 0$ and $\tau = 1$. All of DSpark serves this fraction:
# the parallel backbone keeps $T_\text{draft}$ small, the sequential head makes $\tau$ larger, confidence and policy
# spend $T_\text{verify}$ where it pays.

# %%
for domain in lab.prompts:
    rounds = [r for found in runs["dspark", domain] for r in found.rounds]
    draft = sum(r.draft_seconds for r in rounds) / len(rounds) * 1e3
    verify = sum(r.verify_seconds for r in rounds) / len(rounds) * 1e3
    tau = sum(r.committed for r in rounds) / len(rounds)
    print(f"{domain:5} ({draft:.1f} ms draft + {verify:.1f} ms verify) / {tau:.2f} tokens = "
          f"{(draft + verify) / tau:.2f} ms per token, plain {1e3 / speeds['plain'][domain]:.2f} ms")

# %% [markdown]
# A round costs about the same in the three domains; it brings 6.24 tokens of math, 5.49 of code and 4.32 of chat. The gain
# follows $\tau$.
#
# ### Exercise 2 · Speed-up (code)
# From $\tau$, the seconds that a round spends drafting and verifying, and the seconds of one pass of plain decoding:
# how many times as fast as plain decoding is speculation?
#
# <details><summary>Hint</summary>
#
# Write down the seconds of one token both ways.
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
# ### Exercise 3 · Which lever? (think)
# Your drafter gives $\tau = 4$ at $T_\text{draft} = 3$ ms and $T_\text{verify} = 9$ ms, and a plain pass takes 6 ms. You
# may either halve the time of drafting or raise $\tau$ by one. Which is worth more? From which $T_\text{draft}$ on is it
# the other one?
#
# <details><summary>Hint</summary>
#
# Compute $L$ three times, then set two of them equal.
#
# </details>
# <details><summary>Answer</summary>
#
# Now $L = 12/4 = 3$ ms, twice as fast as plain. Halving the draft gives $10.5/4 = 2.63$ ms, one token more gives
# $12/5 = 2.4$ ms: the token. With a draft time of $d$ the two are equal where $(d/2 + 9)/4 = (d + 9)/5$, that is
# $5d/2 + 45 = 4d + 36$, so $d = 6$ ms. A drafter that takes longer than that should first become quicker.
#
# </details>
#
# ### Exercise 4 · Find its weakness (open)
# Write three prompts of your own for which you expect DSpark to be slow, and three for which you expect it to be fast.
# Decode them (`lab.encode` takes any text) and compare the accepted lengths. What do the slow ones have in common?
#
# <details><summary>Hint</summary>
#
# Where does the next token depend on a choice that the target has not made yet? The widget above shows at which tokens
# blocks end.
#
# </details>
#
# ## Map of the course
#
# | | lesson | figure of the paper | |
# |---|---|---|---|
# | 00 | Start here | 1 | you are here |
# | 01 | [Why decoding is slow](01_why_decoding_is_slow.ipynb): the K/V cache, what a pass costs | | ready |
# | 02 | [The lossless rule](02_the_lossless_rule.ipynb), proved by enumeration; how it breaks | | ready |
# | 03 | [A first speculative decoder](03_a_first_speculative_decoder.ipynb): small LM, prompt lookup | | ready |
# | 04 | [Draft a block at once](04_draft_a_block_at_once.ipynb): DFlash's parallel backbone | | ready |
# | 05 | [A little autoregression](05_a_little_autoregression.ipynb): Markov, gated and RNN heads | | ready |
# | 06 | [Autoregressive rivals](06_autoregressive_rivals.ipynb): Eagle3, MTP; acceptance by position | 2 | ready |
# | 07 | [Train a drafter](07_train_a_drafter.ipynb): anchors, packing, target cache, three losses | | ready |
# | 08 | [The released weights](08_released_weights.ipynb): load, prove, measure on a T4 | | ready |
# | 09 | [Confidence](09_confidence.ipynb): reliability, calibration, thresholds | 5, 6 | ready |
# | 10 | [The scheduler](10_the_scheduler.ipynb): Algorithm 1, why it must stop early, lagged budgets | Appendix A | ready |
# | 11 | [Serving under load](11_serving_under_load.ipynb): ragged batches, budgets that shrink | 7, 8 | ready |
# | 12 | [The paper in miniature](12_the_paper_in_miniature.ipynb): ours beside theirs | Table 1, 3, 4 | ready |
# | 13 | Production: V4's drafter, deploying, limits | | planned |
# | 14 | Clinic: silent failures and how the accepted length gives them away | | planned |
#
# The lessons build on one another; 01 and 02 can be read in either order. A function is derived in a lesson once,
# proved equal to the one in `dspark_lite`, and imported from there afterwards. The most important one, `verify`, you
# write yourself, and it stays in use. What the course leaves out stands on the page of
# [related work](related_work.md).
#
# Exercises are marked *code* (a checker names your mistake), *think* (the answer folds out) or *open* (nobody knows
# before you do). A guess asked for by `predict` is kept, shown beside the result, and never graded.
#
# ## Recap
#
# - A drafter guesses a block, the target reads it in one pass, and the longest prefix that the rule allows is committed
#   with one token more.
# - The answer is the target's own; only the time changes.
# - $L = (T_\text{draft} + T_\text{verify})/\tau$ says how long a token takes. $\tau$ depends on the text: a worked sum leaves
#   little choice of words, advice leaves much.
#
# **Next:** [lesson 01](01_why_decoding_is_slow.ipynb) takes the numerator apart: where the time of
# a pass goes, and what a pass over eight tokens costs beside a pass over one.
