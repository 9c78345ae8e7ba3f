# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=40 difficulty="easy"
# # 00 · A race, and twelve lines
#
# A large language model writes one token at a time, and the whole model runs for each of them. **Speculative decoding** lets
# a small, quick model guess a few tokens ahead, and the large one check all the guesses in a single pass. The text stays
# exactly the text that the large model would have written. Only the time changes.
#
# **What you will be able to do**
# - say why one pass of a model can check seven guesses at once
# - write a speculative decoder in twelve lines, and see it produce the large model's own text in far fewer passes
# - break it with one deletion, and explain why nothing warns you
# - read one round of DSpark: draft, verify, accept
#
# **What you need**: Python with a little PyTorch, and the idea that a language model gives a probability to every possible next
# token. No GPU.
#
# **Sources**: the idea is from [Leviathan and others](references.md#leviathan) and [Chen and others](references.md#chen); the
# course follows the [DSpark paper](references.md#dspark). Three pages go with the lessons: [notation](notation.md),
# [glossary](glossary.md), [references](references.md).

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite
from dspark_course.exercises import lesson_00 as exercises
from dspark_course.exercises.keep import keep
from dspark_course.figures import lesson_00 as figures
from dspark_course.figures.strip import strip
from dspark_course.glue import claims, glue

here = strip(("draft", "verify", "accept"))

# %% [markdown]
# The strip shows one *round* of the whole method. It stands at the top of every lesson, and the steps that the lesson is about
# are filled in.
#
# ## The race
#
# Above, the large model alone; below, the same model with a drafter. Both write the same answer, recorded on a CPU.

# %%
from IPython.display import Image

from dspark_lite.common.files import ROOT

Image(data=(ROOT / "assets" / "figures" / "race.gif").read_bytes(), format="png")  # the format's name lets GitHub and Colab play it

# %% [markdown]
# Think of an intern and an editor. The intern is fast and often right. The editor is slow and always right, and the newspaper
# prints only what the editor would have written. So the intern writes a line ahead. The editor reads the whole line at a
# glance, strikes at the first wrong word, writes the right one in its place, and hands the pen back. If the intern is good, one
# glance of the editor yields a whole line. If the intern is bad, it still yields a word, and the newspaper reads exactly the same.
#
# In our words: the intern is the **drafter**, the editor is the **target**, a line is a **block**, and one line written and read is
# a **round**. (Processors play the same game: they guess which way a branch will go, compute ahead, and throw the work away if
# the guess was wrong. They call it *speculative execution*, hence the name.)
#
# ## Why one glance is enough
#
# Why can a model check seven words for the price of one? Because it makes all the predictions anyway.
#
# A language model is *causal*: what it computes at a word depends on that word and those before it. So a pass over eight words
# predicts what follows the first, what follows the first two, and so on: **eight words in, eight predictions out.** Plain
# decoding uses the last prediction and throws the others away. Speculative decoding feeds in guesses, and then the other seven
# predictions are exactly the judgements that we need.

# %%
read = "The cat sat on the mat and purred".split()  # a word that we have, and seven guesses
predicted = "cat sat on the sofa and slept .".split()
picture = figures.one_pass_figure(read, predicted)

# %% [markdown]
# Read it column by column. After "The" the target would write "cat", and "cat" was the guess: right. This goes on until "mat",
# where the target wants "sofa". Four guesses are kept, and "sofa" comes for free: it is the target's own next word, found in the
# same pass. The dotted predictions are worthless, even where they agree. They were made after "… on the mat", and that text no
# longer exists.
#
# Five words for one pass of the target. That is the whole idea; now we write it.
#
# ## Twelve lines
#
# `setup()` loads a target, drafters for it, and prompts of three kinds: math, code and chat. On a CPU the models are tiny ones that
# this course has trained. On a GPU with 14 GB free they are Qwen3-4B and released drafters. The code is the same.

# %%
lab = dspark_lite.setup()
torch.set_grad_enabled(False)  # nothing is trained here
small_model = lab.drafter("small_lm").model.model


def big(ids):
    """The target: logits [1, n, V] after each of the tokens ids [1, n]."""
    return lab.target.model(input_ids=ids).logits


def little(ids):
    """A small language model, our first drafter: logits [1, n, V], too."""
    return small_model(input_ids=ids).logits


prompt = lab.prompts["math"][0]
ids = lab.encode(prompt)  # [1, n]: the prompt's tokens
print(prompt)
print(f"\n{ids.shape[1]} tokens; logits of one pass over them: {tuple(big(ids).shape)}, a prediction after every token")

# %% [markdown]
# ### Exercise 1 · Twelve lines (code)
# *15 minutes · medium · core. If you do only one, do this.*
#
# Fill in the three holes, so that `speculate` returns `ids` with `count` more tokens: those that `big` alone would write, each time
# its likeliest. (Always taking the likeliest token is called *greedy* decoding.) Each hole takes one line.
#
# <details><summary>Hint</summary>
#
# Let n be the number of known tokens. `draft` has n + 7 of them. The prediction that judges the first guess is made at the last
# known token, in row n − 1 of `big(draft)[0]`. With `.argmax(-1)` it becomes a token. How many rows are there from n − 1 on?
#
# For the second hole: `guess == want[:-1]` is a row of true and false. `cumprod(0)` of it stays 1 up to the first false.
#
# For the third: `want[right:right + 1]` keeps its dimension, and `[None]` puts a batch dimension in front.
#
# </details>


# %% tags=["exercise"]
def speculate(big, little, ids, count, gamma=7):
    """`count` new tokens after ids [1, n]: the big model's own greedy text."""
    end = ids.shape[1] + count
    while ids.shape[1] < end:
        draft = ids
        for _ in range(gamma):  # the intern writes ahead, token by token
            draft = torch.cat([draft, little(draft)[:, -1:].argmax(-1)], 1)
        want = ...  # hole 1, one pass of big: its likeliest token after the known text and after every guess, [gamma + 1]
        guess = draft[0, ids.shape[1]:]  # the guesses, [gamma]
        right = ...  # hole 2: how many guesses are right, up to the first wrong one
        ids = ...  # hole 3: ids, the right guesses, and big's own next token, [1, more]
    return ids[:, :end]


done = exercises.check_speculate(speculate) and keep(speculate)


# %% tags=["solution"]
def speculate(big, little, ids, count, gamma=7):
    """`count` new tokens after ids [1, n]: the big model's own greedy text."""
    end = ids.shape[1] + count
    while ids.shape[1] < end:
        draft = ids
        for _ in range(gamma):  # the intern writes ahead, token by token
            draft = torch.cat([draft, little(draft)[:, -1:].argmax(-1)], 1)
        want = big(draft)[0, ids.shape[1] - 1:].argmax(-1)  # one pass of big: its likeliest token after every prefix
        guess = draft[0, ids.shape[1]:]
        right = int((guess == want[:-1]).cumprod(0).sum())  # how many guesses are right, up to the first wrong one
        ids = torch.cat([ids, guess[None, :right], want[None, right:right + 1]], 1)  # those, and big's own next token
    return ids[:, :end]


done = exercises.check_speculate(speculate) and keep(speculate)

# %% [markdown]
# `keep` collects what you have written, once it is right, in a file of your own, `my_dspark.py`. It grows from lesson to lesson,
# and at the end it is a DSpark that loads the released weights.
#
# Now run it on the prompt, beside the target alone. `counted` counts passes. Until your function is right, the course's own
# takes its place, here and in every cell like this one.

# %%
from dspark_lite.losslessness.ties import same_or_tied

my_speculate = speculate if done else exercises.speculate


def counted(model):
    """The same model, and a list that grows by one entry with each of its passes."""
    passes = []
    return lambda ids: passes.append(ids.shape[1]) or model(ids), passes


plain = dspark_lite.generate(lab.target, None, ids, max_new_tokens=lab.max_new_tokens)  # greedy, the target alone
count = len(plain.token_ids)
watched, passes = counted(big)
mine = my_speculate(watched, little, ids, count)[0, ids.shape[1]:].tolist()
print(lab.decode(mine))
print(f"\n{count} tokens in {len(passes)} passes of the target; alone it needs {count}")
assert same_or_tied(lab.target, ids, mine, plain.token_ids)
glue(count=count, passes=len(passes))

# %% tags=["claim"]
claims({"far fewer passes": len(passes) < count / 3})

# %% [markdown]
# **⟦count⟧ tokens in ⟦passes⟧ passes, and the text is the target's own, token for token.** The `assert` says so, and this is the
# promise that the whole course keeps testing: *speculation changes the time, not the answer.* (In 16-bit arithmetic two tokens can
# be equally likely up to rounding; there, and only there, `same_or_tied` lets the answers differ.) Where the target is wrong, the
# answer is wrong in the same way: lossless means equal to the target, not correct.
#
# Lossless also sets this apart from making the model itself smaller. Quantised or distilled, a model writes other texts.
#
# Your loop is still slow on the clock, because each pass reads the whole text again. Lesson 03 mends that with caches. The count
# of passes is already right.
#
# ### Exercise 2 · Delete one word (think)
# *5 minutes · easy · core.*
#
# In hole 2, delete `.cumprod(0)`, so that *all* matching guesses are counted, not only those before the first wrong one. Take the
# picture with the cat: how many guesses are counted then, and what is committed? Will Python raise an error anywhere? Decide,
# then run the cell.
#
# <details><summary>Answer</summary>
#
# Five guesses match (cat, sat, on, the, and), so five are kept: *cat sat on the mat*. The wrong "mat" is in, the right "and" is
# counted for it, and then comes the prediction in row 5, "and". The text goes on from "mat" as if the target had wanted it.
# Every shape fits, so nothing is raised, and since more is kept the broken decoder even looks faster.
#
# </details>

# %%
# The same loop, and hole 2 without `.cumprod(0)`.
broken_speculate = exercises.decoding(judge=lambda guess, want: int((guess == want[:-1]).sum()))
changed = 0
for domain, texts in lab.prompts.items():
    start = lab.encode(texts[0])
    right = dspark_lite.generate(lab.target, None, start, max_new_tokens=48).token_ids
    wrong = broken_speculate(big, little, start, len(right))[0, start.shape[1]:].tolist()
    changed += wrong != right
    print(f"{domain}: {texts[0]}\n  the target  {lab.decode(right)!r}\n  broken      {lab.decode(wrong)!r}\n")

# %% tags=["claim"]
claims({"all three answers changed": changed == 3})

# %% [markdown]
# All three answers have changed. They read as fluently as before, and nothing was raised. A sum may be wrong, a function may have
# another name than the request says. This is why the course proves things: **a broken speculative decoder looks like a good one.**
# The rule you have just met is the *prefix rule*: after the first wrong guess, everything is void.
#
# ## How long is a round?
#
# The mean number of tokens that a round adds to the answer is the **accepted length**, written $\tau$ (tau). It counts the target's
# own token, too, so $\tau$ lies between 1 and $\gamma + 1$, where $\gamma$ (gamma) is the number of guesses in a block, here 7.
#
# From here on we use the package. `generate` plays the same rounds, with caches, and keeps a record of each. The drafter is now
# **DSpark's**, which writes its whole block in one pass.

# %%
drafter = lab.drafter("dspark")
answers = {domain: dspark_lite.generate(lab.target, drafter, lab.encode(texts[0]), max_new_tokens=lab.max_new_tokens)
           for domain, texts in lab.prompts.items()}
assert same_or_tied(lab.target, ids, answers["math"].token_ids, plain.token_ids)

# %%
from dspark_course.figures import token_boxes

picture = token_boxes.rounds_figure(lab, answers["math"], count=10)

# %% [markdown]
# A row is a round. Green boxes are guesses that were right. The blue box with a plus is the target's own token: it replaces the first
# wrong guess (the red box with a cross), or follows a block that was right to its end. Where the answer itself ends inside a block
# there is neither. A dot is a blank, a bent arrow a line end.
# The filled boxes, read row by row, are the answer without its first token, which came from the prompt's own pass.
#
# ### Exercise 3 · Accepted length (code)
# *5 minutes · easy · core.*
#
# `answers` is a list of generations, each with `.rounds`, at least one. A round has `.proposed` (guesses that were checked),
# `.accepted` (guesses that were right) and `.committed` (tokens that joined the answer; the end of an answer can cut its last round
# short). Return $\tau$ over all rounds of all answers, a float.
#
# <details><summary>Hint</summary>
#
# Which of the three numbers, summed over the rounds of one answer, gives its length without the first token? And should a round of
# a short answer weigh more than others?
#
# </details>


# %% tags=["exercise"]
def accepted_length(answers):
    """The mean number of tokens that a round adds, over all rounds of all answers."""
    ...


done = exercises.check_accepted_length(accepted_length)


# %% tags=["solution"]
def accepted_length(answers):
    """The mean number of tokens that a round adds, over all rounds of all answers."""
    rounds = [r for answer in answers for r in answer.rounds]
    return sum(r.committed for r in rounds) / len(rounds)


done = exercises.check_accepted_length(accepted_length)

# %%
from dspark_course.exercises.predictions import predict

longest = predict("Which domain has the longest rounds, which the shortest: math, code or chat?", ...)

# %%
tau_of = accepted_length if done else exercises.accepted_length
tau = {domain: tau_of([answer]) for domain, answer in answers.items()}
longest.beside(", ".join(f"{domain} {value:.2f}" for domain, value in tau.items()) + f", of at most {drafter.gamma + 1}")

# %% tags=["claim"]
claims({"a sum has the longer rounds, small talk the shortest": min(tau, key=tau.get) == "chat" and tau["math"] > tau["chat"] + 1})

# %% [markdown]
# The drafter is the same and the text decides. A program or a sum leaves little choice of words. Small talk can be phrased in many good
# ways, and the drafter has to hit the one that the target takes. Much of this course is about that difference.
#
# ## One round in DSpark's words
#
# The three filled steps of the strip are three calls. First the target reads the prompt: that is the *prefill*, which every decoder
# pays once. Its likeliest next token is the [*anchor*](glossary.md#anchor), the newest token of the text.

# %%
chat_ids = lab.encode(lab.prompts["chat"][0])
step, cache = lab.target.prefill(chat_ids, drafter.taps)
anchor = step.logits[:, -1].argmax(-1)  # [1]
state = drafter.begin(chat_ids, step.features)

# 1 draft: one pass of the drafter writes the block after the anchor
block = drafter.propose(state, anchor, temperature=0.0, generator=lab.generator()).tokens  # [1, g]
print("anchor ", repr(lab.decode(anchor)))
print("drafted", [lab.tokenizer.decode(token) for token in block[0]])

# %%
# 2 verify: one pass of the target over the anchor and the block predicts after each of them
want = lab.target.verify(torch.cat([anchor[:, None], block], 1), cache).logits[0].argmax(-1)  # [g + 1]
print("wanted ", [lab.tokenizer.decode(token) for token in want])

# %%
# 3 accept: the guesses up to the first wrong one, and the target's own next token
right = int((block[0] == want[:-1]).cumprod(0).sum())
committed = [*block[0, :right].tolist(), want[right].item()]
print("kept   ", [lab.tokenizer.decode(token) for token in block[0, :right]], "and then", repr(lab.decode(committed[-1:])))
assert same_or_tied(lab.target, chat_ids, [anchor.item(), *committed], answers["chat"].token_ids[:1 + len(committed)])

# %% [markdown]
# These are the lines of your loop. What DSpark adds is in the drafter, which reads the target's mind: `features` are hidden states of a
# few of its layers. And it is in the fourth step, *schedule*: DSpark also says how sure it is of each guess, so that a busy server can
# throw the doubtful ones away unread. Lessons 04 to 11 build all of that.
#
# ## Watch any block
#
# At which tokens do blocks break off: in sums, in code, in small talk? The last row shows how likely the target found its own token
# and the refused guess. Where no kernel runs you see two still pictures.
#
# <details><summary>What to look for</summary>
#
# In sums, look at digits that must be computed. In code, look at names, copied or free. In small talk, look for places where two words
# are almost equally likely: there the target hesitates, and no drafter can know what it will say.
#
# </details>

# %%
from functools import cache as cached

from dspark_lite.decoding.sampling import probabilities
from dspark_course.figures import web, widgets


@cached
def decoded(request):
    """The greedy answer to a request, decoded once."""
    return dspark_lite.generate(lab.target, drafter, lab.encode(request), max_new_tokens=lab.max_new_tokens)


def target_there(request, found, number):
    """The target's probabilities [V] after the accepted guesses of a round (from 1)."""
    before = 1 + sum(r.committed for r in found.rounds[:number - 1]) + found.rounds[number - 1].accepted
    text = lab.encode(request)
    step, _ = lab.target.prefill(torch.cat([text, text.new_tensor([found.token_ids[:before]])], 1))
    return probabilities(step.logits[0, -1], 1.0)


def watch(domain, number, round_number):
    """The block of one round; beyond the last round the last one is shown."""
    request = lab.prompts[domain][number - 1]
    found = decoded(request)
    shown = min(round_number, len(found.rounds))
    return figures.round_figure(lab, found, shown, request, target_there(request, found, shown))


panel = widgets.explore(
    watch, {"domain": "math", "round_number": 6}, domain=widgets.menu("domain", list(lab.prompts)[::-1]),
    number=widgets.slider("prompt", 1, 1, 20), round_number=widgets.slider("round", 5, 1, 30),
    web=("round", lambda: web.watched_answers(lab, decoded, prompts=4, most_rounds=30)))

# %% [markdown]
# ### Exercise 4 · Find its weakness (open)
# *10 minutes · easy · optional.*
#
# Write prompts for which you expect short rounds, and others for which you expect long ones, and look at $\tau$. Stay close to
# `lab.prompts`: the tiny target knows such texts only.
#
# <details><summary>Hint</summary>
#
# `picture = token_boxes.rounds_figure(lab, decoded(text), count=30)` shows where blocks end.
#
# </details>

# %%
for text in [texts[4] for texts in lab.prompts.values()]:  # put your prompts in their place
    print(f"tau {decoded(text).accepted_length:.2f}: {text}\n          {lab.decode(decoded(text).token_ids)!r}")

# %% [markdown]
# ## And the clock?
#
# Fewer passes are not yet less time: a round also drafts, and a pass over eight tokens may cost more than a pass over one. Three prompts of each
# kind, plainly and with DSpark in turn; the clock starts after the prompt's pass.

# %%
from dspark_course.measure.evaluation import tokens_per_second

runs = {}
for turn in range(3):
    for domain, texts in lab.prompts.items():
        for name, chosen in {"plain": None, "dspark": drafter}.items():
            found = dspark_lite.generate(lab.target, chosen, lab.encode(texts[turn]), max_new_tokens=lab.max_new_tokens)
            runs.setdefault((name, domain), []).append(found)
speeds = {name: {domain: tokens_per_second(runs[name, domain]) for domain in lab.prompts} for name in ("plain", "dspark")}
picture = figures.speed_bars(speeds, lab.device_name)

# %% [markdown]
# On this machine the gain is real, and it is smaller than $\tau$. Lesson 01 finds out why, with three numbers.
#
# <details><summary>How sure are we?</summary>
#
# That the answers are equal is certain: it is checked token by token, here and in the tests of the course. The speeds are of nine prompts
# on one machine, and they change by some tenths from run to run. Lesson 12 has two hundred prompts of each kind, with intervals.
#
# </details>
#
# ## Map of the course
#
# | | lesson |
# |---|---|
# | 00 | A race, and twelve lines: you are here |
# | 01 | [Why guessing ahead pays](01_why_decoding_is_slow.ipynb) |
# | 02 | [The lossless rule](02_the_lossless_rule.ipynb) |
# | 03 | [A first decoder](03_a_first_speculative_decoder.ipynb) |
# | 04 | [Draft a block at once](04_draft_a_block_at_once.ipynb) |
# | 05 | [A little autoregression](05_a_little_autoregression.ipynb) |
# | 06 | [Autoregressive rivals](06_autoregressive_rivals.ipynb) |
# | 07 | [Train a drafter](07_train_a_drafter.ipynb) |
# | 08 | [The released weights](08_released_weights.ipynb) |
# | 09 | [Confidence](09_confidence.ipynb) |
# | 10 | [The scheduler](10_the_scheduler.ipynb) |
# | 11 | [Serving under load](11_serving_under_load.ipynb) |
# | 12 | [The paper in miniature](12_the_paper_in_miniature.ipynb) |
# | 13 | [Production](13_production.ipynb) |
# | 14 | [The clinic](14_the_clinic.ipynb) |
#
# ## Recap
#
# - A causal model predicts after every token that it reads, so one pass over a word and seven guesses checks all seven.
# - Keep the guesses up to the first wrong one, add the target's own next token, and the text is the target's: your loop needed ⟦passes⟧
#   passes for ⟦count⟧ tokens.
# - After the first wrong guess everything is void. Forget this, and the text changes without an error.
# - $\tau$, the accepted length, counts the tokens of a round. The text decides it as much as the drafter does.
#
# **Next:** [lesson 01](01_why_decoding_is_slow.ipynb) asks why a pass over eight tokens costs hardly more than a pass over one.
