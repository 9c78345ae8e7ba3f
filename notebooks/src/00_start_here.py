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
# **Sources**: the idea is from [Leviathan and others](../docs/references.md#leviathan) and [Chen and others](../docs/references.md#chen); the
# course follows the [DSpark paper](../docs/references.md#dspark). Three pages go with the lessons: [notation](../docs/notation.md),
# [glossary](../docs/glossary.md), [references](../docs/references.md).

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite
from dspark_lite.course.exercises import lesson_00 as exercises
from dspark_lite.course.own_decoder.keep import keep
from dspark_lite.course.figures import lesson_00 as figures
from dspark_lite.course.figures.living_round import living_round
from dspark_lite.course.lesson_text import claims, glue
from dspark_lite.course.measure.recorded_rounds import record_rounds, recorded_rounds

# %% [markdown]
# ## The race
#
# The upper half shows the large model (*target*) alone, the lower half the same model with a small one that guesses for it, the *drafter*:
# DSpark's, which this course builds. Both write the same answer, recorded on a CPU. Green text was guessed, blue text is what the large model wrote itself.

# %% tags=["folded"]
# @title Show the race
from IPython.display import Image

from dspark_lite.common.files import ROOT

Image(data=(ROOT / "assets" / "figures" / "race.gif").read_bytes(), format="png")  # the format's name lets GitHub and Colab play it

# %% [markdown]
# Think of an intern and an editor. The intern is fast and often right. The editor is slow and has the last word: the newspaper
# prints only what the editor would have written. So the intern writes a line ahead. The editor reads the whole line at a
# glance, strikes out everything from the first wrong word on, writes the right word there, and hands the pen back. If the intern is
# good, one glance of the editor yields a whole line. If the intern is bad, the glance still yields a word. The newspaper reads the same.
#
# In our words: the intern is the **drafter**, the editor is the **target**, a line is a **block**, and one line written and read is
# a **round**. Play one, or step through it with the arrow keys. It returns in every lesson with one layer more.

# %%
picture = living_round("words", recorded_rounds("greedy"))  # three rounds of an answer of this course's tiny models

# %% [markdown]
# The black box is the newest word, the *anchor*. The drafter guesses seven more, and the target judges them one by one. The first refusal
# voids everything after it, and the target writes its own word there. That word is the next anchor.
#
# ## Why one glance is enough
#
# Why can one pass check seven words at once? Because a pass makes a prediction at every word that it reads. (Why such a pass can cost
# hardly more than a pass over one word is the question of lesson 01.)
#
# A language model is *causal*: what it computes at a word depends on that word and those before it. So a pass over eight words predicts
# what follows the first, what follows the first two, and so on: **eight words in, eight predictions out.** Now let the last seven of the
# eight words be guesses. Then the first seven predictions are the judgements that we need: each says what the target would write where a
# guess stands, provided that all guesses before it are right. The last prediction is the next word if all guesses are right. A guess is
# kept only if the target would have written it after the same text, so the text stays the target's.

# %%
read = "The cat sat on the mat and purred".split()  # a word that we have, and seven guesses
predicted = "cat sat on the sofa and slept .".split()
picture = figures.one_pass_figure(read, predicted)

# %% [markdown]
# The black word is text that we have; the seven after it are guesses. Read the picture column by column. After "The" the target would
# write "cat", and "cat" was the guess: right. This goes on until "mat", where the target wants "sofa". Four guesses are kept, and
# "sofa" comes for free: it is the target's own next word, found in the same pass. The dotted predictions are worthless, even "and",
# which agrees with its guess. They were made after "… on the mat", and the text goes on with "sofa".
#
# Five words for one pass of the target. That is the whole idea; now we write it.
#
# ## Twelve lines
#
# `setup()` loads a target, drafters for it, and prompts of three kinds: math, code and chat. On a CPU the models are tiny ones that
# this course has trained on made-up texts, so expect odd filler sentences in the answers: they are the target's own. On a GPU with
# 14 GB free the models are Qwen3-4B and released drafters.

# %%
lab = dspark_lite.setup()
torch.set_grad_enabled(False)  # nothing is trained here
small_model = lab.drafter("small_lm").model.model


def big(ids):
    """The target: logits [1, n, V] after each of the tokens ids [1, n]; V is the size of the vocabulary."""
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
# Fill in the three holes, so that `speculate` returns `ids` with `count` more tokens: those that `big` alone would write, each time its
# likeliest. (Always taking the likeliest token is called *greedy* decoding; lesson 02 deals with random draws.) `gamma` is the number of
# guesses in a block. Each hole takes one line.
#
# <details><summary>Hint</summary>
#
# Let n be the number of known tokens. `draft` has n + 7 of them. The prediction that judges the first guess is made at the last
# known token, in row n − 1 of `big(draft)[0]`. With `.argmax(-1)` it becomes a token. How many rows are there from n − 1 on?
#
# For the second hole: `guess == want[:-1]` is a row of true and false. `cumprod(0)` of it is 1 up to the first false, and 0 from there on.
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
        # hole 1, one pass of big: its likeliest token after the known text and after
        # every guess, [gamma + 1]
        want = ...
        guess = draft[0, ids.shape[1]:]  # the guesses, [gamma]
        # hole 2: how many guesses are right, up to the first wrong one
        right = ...
        # hole 3: ids, the right guesses, and big's own next token, [1, more]
        ids = ...
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
# `keep` writes a function that is right into a file of your own, `my_dspark.py`, which grows from lesson to lesson.
#
# Now run your loop on the prompt, beside the target alone. `counted` counts the passes. Until your function is right, the course's own
# takes its place, here and later.
#
# Before a measurement this course asks for a bet: choose, and the answer appears once it is measured.

# %%
from dspark_lite.course.bets import bet, show_score

passes_needed = bet("00 passes needed")

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
passes_needed.settle(100 * len(passes) / count, f"{count} tokens in {len(passes)} passes of the target; alone it needs {count}")
assert same_or_tied(lab.target, ids, mine, plain.token_ids)
glue(count=count, passes=len(passes))

# %% tags=["claim"]
exact = mine == plain.token_ids or lab.target.dtype != torch.float32  # in 16 bits they may part at a tie
claims({"fewer passes than tokens, by far": len(passes) < count / 3, "the target's own, token for token": exact})

# %% [markdown]
# **The text is the target's own, token for token.** The whole course keeps testing this promise: *speculation changes the time, not the
# answer.* The `assert` checks it. (In a GPU's 16-bit arithmetic two tokens can be equally likely up to rounding; there, and only there, `same_or_tied` lets the answers differ.) Such decoding is called [*lossless*](../docs/glossary.md#lossless):
# equal to the target, not correct. Where the target is wrong, the answer is wrong in the same way. (A quantised or distilled model is faster,
# too, but it is another model and says other things. Speculation can be added to it.)
#
# Your loop is still slow on the clock, and one reason is that each pass reads the whole text again. Caches, which keep what a pass has
# computed, mend the rereading (lesson 03). Whether that is enough is that lesson's surprise. The count of passes is already right.

# %% [markdown]
# ### Exercise 2 · Delete one word (think)
# *5 minutes · easy · core.*
#
# In hole 2, delete `.cumprod(0)`, so that *all* matching guesses are counted, not only those before the first wrong one. Take the
# picture with the cat: how many guesses are counted then, and what is *committed*, that is, joins the text for good? Will Python raise
# an error anywhere? Decide, then run the cell.
#
# <details><summary>Answer</summary>
#
# Five guesses match: cat, sat, on, the, and. So the loop keeps the first five guesses, *cat sat on the mat*. The wrong "mat" is in,
# because the match at "and" was counted, though it means nothing. Then comes the prediction in row 5 (rows count from 0), "and", so
# *cat sat on the mat and* is committed, as if the target had wanted "mat". Every shape fits, so nothing is raised, and since more is
# kept the broken decoder even looks faster.
#
# </details>

# %%
# `exercises.decoding` is the same loop with another hole 2 (`judge`): here without `.cumprod(0)`.
broken_speculate = exercises.decoding(judge=lambda guess, want: int((guess == want[:-1]).sum()))
written = {domain: [dspark_lite.generate(lab.target, None, lab.encode(lab.prompts[domain][0]), max_new_tokens=48).token_ids]
           for domain in ("code", "chat")}
written = {"math": [plain.token_ids], **written}  # math's whole answer, of which we print the last line
for domain, both in written.items():
    start = lab.encode(lab.prompts[domain][0])
    both.append(broken_speculate(big, little, start, len(both[0]))[0, start.shape[1]:].tolist())
    print(f"{domain}: {lab.prompts[domain][0]}")
    for name, found in zip(("the target", "broken"), map(lab.decode, both)):
        print(f"  {name:11}{found.splitlines()[-1] if domain == 'math' else found!r}")

# %% tags=["claim"]
ends = [lab.decode(found).splitlines()[-1].split() for found in written["math"]]
claims({"all three answers changed": all(right != wrong for right, wrong in written.values()),
        "the first ends with somebody else and another number": all(
            ends[0][place] != ends[1][place] for place in (1, 3)) and all(end[3].isdigit() for end in ends)})

# %% [markdown]
# All three answers have changed. They read as fluently as before, and nothing was raised. Only a reader who checks notices that
# the first story now ends with somebody else and another number. This is why the course proves things: **a broken speculative decoder looks
# like a good one.** What you deleted is the *prefix rule*: after the first wrong guess, everything is void.
#
# ## How long is a round?
#
# The mean number of tokens that a round adds to the answer is the **accepted length**, written $\tau$ (tau). Despite its name it
# counts the target's own token with the right guesses, so $\tau$ lies between 1 and $\gamma + 1$, where $\gamma$ (gamma) is the number
# of guesses in a block, here 7.
#
# From here on we use the package. `generate` plays the same rounds, with caches, and keeps a record of each. The drafter is now
# **DSpark's**, which writes its whole block in one pass, where `little` needed seven.

# %%
drafter = lab.drafter("dspark")
answers = {domain: dspark_lite.generate(lab.target, drafter, lab.encode(texts[0]), max_new_tokens=lab.max_new_tokens)
           for domain, texts in lab.prompts.items()}
assert same_or_tied(lab.target, ids, answers["math"].token_ids, plain.token_ids)

# %%
from dspark_lite.course.figures import token_boxes

picture = token_boxes.rounds_figure(lab, answers["math"], count=10)

# %% tags=["claim"]
claims({"in most of these rounds the whole block was right": sum(r.accepted == r.proposed for r in answers["math"].rounds[:10]) > 5})

# %% [markdown]
# Each row is a round. Green boxes are guesses that were right. The blue box with a plus is the target's own token: it replaces the first
# wrong guess (the orange box with a cross; the dotted guesses after it are void), or it follows a block that was right to its end. In
# most of these rounds the whole block was right. A dot is a blank, a bent arrow a line end. The filled boxes, read row by row, are the
# answer without its first token, which came from the pass over the prompt.
#
# ### Exercise 3 · Accepted length (code)
# *5 minutes · easy · core.*
#
# Your function gets a list of what `generate` returned (not the dictionary above), each with a list `.rounds` of at least one round. A
# round has `.proposed` (guesses that were checked), `.accepted` (guesses that were right) and `.committed` (tokens that joined the
# answer; the end of an answer can cut its last round short). Return $\tau$ over all rounds of all answers, a float.
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

# %% [markdown]
# Does $\tau$ depend on the text? Bet again.

# %%
shortest = bet("00 shortest rounds")

# %%
tau_of = accepted_length if done else exercises.accepted_length
tau = {domain: tau_of([answer]) for domain, answer in answers.items()}
shortest.settle(
    {"math": "a sum (math)", "code": "a program (code)", "chat": "small talk (chat)"}[min(tau, key=tau.get)],
    ", ".join(f"{domain} {value:.2f}" for domain, value in tau.items()) + f" tokens per round, of at most {drafter.gamma + 1}")

# %% tags=["claim"]
claims({"a sum has the longer rounds, small talk the shortest": min(tau, key=tau.get) == "chat" and tau["math"] > tau["chat"] + 1})

# %% [markdown]
# ## You are the drafter
#
# Two minutes: you guess, and a novel is the target. Type up to seven words. Those before the first difference are kept, and the author adds one.
# The two drafters beside you guess the same words. *Prompt lookup* copies what followed the same words earlier, and a *bigram table* knows which
# word follows which in the rest of the page.

# %%
from dspark_lite.course.figures.drafter_game import drafter_game, game_scene

game = drafter_game()

# %% tags=["claim"]
ends = game_scene()["others"]["prompt lookup"]
repeating = next(k for k, end in enumerate(ends, start=1) if end >= 40)
claims({"prompt lookup brings more where the text repeats itself": ends[repeating - 1] / repeating > 1.3 * (ends[-1] - ends[repeating - 1]) / (len(ends) - repeating)})

# %% [markdown]
# Where the text repeats itself, prompt lookup keeps up with you. Further on it finds nothing to copy, and you still know how English goes on.
#
# ## And the clock?
#
# Fewer passes are not yet less time: a round also drafts, and a pass over eight tokens may cost more than a pass over one. So we time
# two prompts of each kind, for 32 tokens each, plainly and with DSpark in turn; the clock starts after the *prefill*, the
# target's pass over the prompt.

# %%
from dspark_lite.course.measure.speed import tokens_per_second

runs = {}  # (drafter, domain) -> answers
for turn in range(2):
    for domain, texts in lab.prompts.items():
        start = lab.encode(texts[turn])
        for name, chosen in {"plain": None, "dspark": drafter}.items():
            answer = dspark_lite.generate(lab.target, chosen, start, max_new_tokens=32)
            runs.setdefault((name, domain), []).append(answer)
        assert same_or_tied(lab.target, start, answer.token_ids, runs["plain", domain][-1].token_ids)
speeds = {name: {domain: tokens_per_second(runs[name, domain]) for domain in lab.prompts} for name in ("plain", "dspark")}
for domain in lab.prompts:
    gain = speeds["dspark"][domain] / speeds["plain"][domain]
    print(f"{domain}: {tau_of(runs['dspark', domain]):.2f} tokens per round, {gain:.2f} times as fast as plain decoding")
picture = figures.speed_bars(speeds, lab.device_name)

# %% [markdown]
# On this machine the gain is real, and in each domain it is smaller than $\tau$. Lesson 01 finds out why, with three numbers.
#
# <details><summary>How sure are we?</summary>
#
# That the answers are equal, up to ties, is certain: the `assert` checks it. The speeds are of six prompts on one machine, and they
# change by some tenths from run to run, so the domain with the longest rounds need not show the largest gain. Lesson 12 has two
# hundred prompts of each kind, with intervals.
#
# </details>
#
# ## One round in DSpark's words
#
# Here is one round of the picture above, with guesses kept and one refused, in the package's words. Comments quote what does the same in
# `speculate`. The newest token, the [*anchor*](../docs/glossary.md#anchor), came out of the target's last pass as a prediction, so the target has
# not read it yet. What it has read leaves a `cache`, and [`features`](../docs/glossary.md#context-features): inner states of the target, from
# which `drafter.begin` makes the drafter's `state`.

# %% tags=["folded"]
# @title Choose a round of the picture, and read everything before its anchor
rounds = answers["math"].rounds[:10]
kept = [r.accepted if r.accepted < min(r.proposed, r.committed) else -1 for r in rounds]  # -1: no guess was refused
shown = kept.index(max(kept))
before = 1 + sum(r.committed for r in rounds[:shown])  # tokens of the answer that stand before this round
known = torch.cat([ids, ids.new_tensor([answers["math"].token_ids[:before]])], 1)  # [1, n]
anchor = known[:, -1]  # [1]
step, cache = lab.target.prefill(known[:, :-1], drafter.taps)
state = drafter.begin(known[:, :-1], step.features)


def words(tokens):
    """The text of each token."""
    return [lab.tokenizer.decode(token) for token in tokens]


print(f"round {shown + 1} of the picture; the newest words are {lab.decode(known[0, -8:-1].tolist())!r}, the anchor is {lab.decode(anchor)!r}")

# %%
# 1 draft. In speculate, seven times: draft = torch.cat([draft, little(draft)[:, -1:].argmax(-1)], 1)
guess = drafter.propose(state, anchor, temperature=0.0, generator=None).tokens[0]  # [g], greedy, in one pass of the drafter
print("drafted", words(guess))

# 2 verify. In speculate: want = big(draft)[0, ids.shape[1] - 1:].argmax(-1)
want = lab.target.verify(torch.cat([anchor, guess])[None], cache).logits[0].argmax(-1)  # [g + 1], in one pass of the target
print("wanted ", words(want))

# 3 accept. In speculate the same two lines, with `ids` in the place of `known` and `longer`
right = int((guess == want[:-1]).cumprod(0).sum())
longer = torch.cat([known, guess[None, :right], want[None, right:right + 1]], 1)
print("kept   ", words(guess[:right]), "and then", words(want[right:right + 1]))

committed = longer[0, known.shape[1]:].tolist()
recorded = answers["math"].token_ids[before:][:len(committed)]  # what `generate` wrote there
assert same_or_tied(lab.target, known, committed[:len(recorded)], recorded)

# %% tags=["claim"]
claims({"guesses kept and one refused": 0 < right < len(guess)})

# %% [markdown]
# The first difference between drafted and wanted tokens ends the block, and the target's token replaces the wrong guess. So draft, verify,
# accept are your loop. DSpark's drafter reads the target's `features`, does its heavy work in one pass, and lets a tiny head tie each guess to the
# one before. And there is a fourth step, *schedule*, between draft and verify: DSpark says how sure it is of each guess, so that a busy server can
# throw the doubtful ones away unread. Lessons 04 to 11 build all of that.

# %% [markdown]
# **Case 00.** Somebody else's twelve lines have another slip than that of exercise 2. Measure at most three things, then accuse.

# %%
from dspark_lite.course.cases import case

investigation = case("00")

# %% [markdown]
# ## Recap
#
# - A causal model predicts after every token that it reads, so one pass over a word and seven guesses checks all seven.
# - Keep the guesses up to the first wrong one, add the target's own next token, and the text is the target's: your loop needed ⟦passes⟧
#   passes for ⟦count⟧ tokens.
# - After the first wrong guess everything is void. Forget this, and the text changes without an error.
# - $\tau$, the accepted length, counts the tokens of a round. With one and the same drafter it differs from text to text.
#
# **Next:** [lesson 01](01_why_decoding_is_slow.ipynb) asks why a pass over eight tokens can cost hardly more than a pass over one.
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

# %%
show_score("00")

# %% [markdown]
# ## Beyond the core
#
# The lesson is complete without what follows.
#
# ### ★ Watch any answer
#
# At which tokens do blocks break off: in sums, in code, in small talk? Take other requests, of `lab.prompts` or your own.
#
# <details><summary>What to look for</summary>
#
# In sums, look at digits that must be computed. In code, look at names, copied or free. In small talk, look for places where two words
# are almost equally likely: there the target hesitates, and its choice is hard for a drafter to guess.
#
# </details>

# %%
request = lab.prompts["code"][0]
picture = living_round("words", record_rounds(lab, drafter, request, temperature=0.0))

# %% [markdown]
# ### Exercise 4 · Find its weakness (open)
# *10 minutes · easy · optional.*
#
# Write prompts for which you expect short rounds, and others for which you expect long ones, and look at $\tau$. Stay close to
# `lab.prompts`: the tiny target knows such texts only.
#
# <details><summary>Hint</summary>
#
# `picture = token_boxes.rounds_figure(lab, answer, count=30)` shows where the blocks of an answer end.
#
# </details>

# %%
mine = [lab.prompts["chat"][1]]  # put your prompts in its place
for text in mine:
    answer = dspark_lite.generate(lab.target, drafter, lab.encode(text), max_new_tokens=lab.max_new_tokens)
    print(f"tau {answer.accepted_length:.2f}: {text}\n          {lab.decode(answer.token_ids)!r}")
