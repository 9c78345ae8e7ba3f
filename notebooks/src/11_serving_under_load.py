# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=105 difficulty="hard"
# # 11 · Serving under load
#
# So far each request had the machine to itself. A server puts dozens into one pass, as they come and go. You write that engine in about fifteen
# lines, check that it is lossless, and then ask what a full machine does to a drafter's lead.
#
# **After this lesson you can**
# - put requests of different lengths into one pass, with two index tensors and a mask
# - write the step of a serving engine: admit, draft, schedule, verify, commit, evict
# - say from three numbers of a machine when a long block pays there, and what scheduling adds
# - say why a gain of several hundred percent can be true and mean little
#
# **What you need**: lessons 02 and 03 (`verify`, caches), lesson 10 (the scheduler); from lesson 06 what MTP-1 is: one draft from one
# layer. Two sittings: the engine (60 min), then its economics (45 min).
#
# **Sources**: the [DSpark paper](../docs/references.md#dspark), sections 5.2 to 5.4 with Figures 7 and 8; continuous batching goes back to
# [Orca](../docs/references.md#orca). [Notation](../docs/notation.md) · [glossary](../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import numpy as np
import torch

import dspark_lite
from dspark_lite.course.bets import bet, show_score
from dspark_lite.course.exercises import lesson_11 as exercises
from dspark_lite.course.own_decoder.keep import keep
from dspark_lite.course.figures import lesson_11 as figures
from dspark_lite.course.figures.living_round import living_round
from dspark_lite.course.lesson_text import claims, glue
from dspark_lite.course.measure.recorded_rounds import recorded_rounds
from dspark_lite.course.replication import machine_results, serving_results

torch.set_grad_enabled(False)
lab = dspark_lite.setup()
target, drafter = lab.target, lab.drafter("dspark")
report = serving_results.serving_run()
device, loads = report["device"], sorted({row["concurrency"] for row in report["policies"]})
idle, busy = loads[0], loads[-1]

# %% [markdown]
# ## The same server, light and full
#
# We compare three ways to serve, measured on one server, a CPU:
# - **MTP-1** drafts and verifies one token.
# - **DSpark** drafts seven and verifies all seven, whole blocks.
# - **DSpark, Algorithm 1** drafts seven; lesson 10's scheduler picks how many to verify.
#
# First, each user's speed with one request *under way* (being served). Times leave out the reading of prompts.

# %% tags=["folded"]
# @title Each user's speed, alone
whole = serving_results.record().gamma  # drafts of a whole block, of the drafter that was recorded


def measured_row(policy, load, name="dspark"):
    """The recorded turns of a policy at a load."""
    return serving_results.row("policies", concurrency=load, drafter=name, policy=policy)


def users(load):
    """The speed of each user of DSpark, and of MTP-1."""
    return [serving_results.value("per_user", row) for row in (measured_row(f"fixed {whole}", load), measured_row("all", load, "mtp"))]


ahead = {load: np.divide(*users(load)) for load in (idle, busy)}
print("alone, a user of MTP-1 gets {1:.1f} tokens/s, one of DSpark {0:.1f}: {2:.2f} times as many".format(*users(idle), ahead[idle]))

# %% [markdown]
# Alone, a user of DSpark is ⟦alone:.1f⟧ times as fast as one of MTP-1. And with ⟦busy⟧ requests under way, on the *full server*?

# %%
at_full = bet("11 the full server")

# %%
at_full.settle(min({"about twice as fast": 2.0, "about one and a half times as fast": 1.5, "no faster at all": 1.0}.items(),
                   key=lambda option: abs(option[1] - ahead[busy]))[0],
               "a user of MTP-1 gets {1:.1f} tokens/s, one of DSpark {0:.1f}: {2:.2f} times as many".format(*users(busy), ahead[busy]))

# %% tags=["claim"]
factor = serving_results.gain("throughput", measured_row(f"fixed {whole}", busy), measured_row("all", busy, "mtp"))
tokens_ahead = np.divide(*(serving_results.value("accepted_length", row) for row in (measured_row(f"fixed {whole}", busy), measured_row("all", busy, "mtp"))))
glue(alone=ahead[idle], full=ahead[busy], busy=busy)
claims({"alone DSpark is much faster, on the full server hardly": ahead[idle] > 1.5 > 1.3 > ahead[busy] > 0.9,
        "on the full server it cannot be told from 1": factor.low < 1 < factor.high, "with three times the tokens": 2.8 < tokens_ahead < 3.3})

# %% [markdown]
# <details><summary>After your bet</summary>
#
# Nothing is left of the lead: the factor is ⟦full:.2f⟧, which we cannot tell from 1. DSpark still commits three times as many tokens per step.
# So where does the gain go, and does it go on every machine?
#
# </details>
#
# To find out, we build a server, then look at its step times.
#
# ## One pass for many
#
# Take four requests. Their texts differ in length, and so do their numbers of drafts to verify. Padding them to one length would spend
# work on tokens that belong to no text. Instead all tokens stand in **one sequence**, request after request: a
# *[ragged batch](../docs/glossary.md#ragged-batch)*. Two index tensors say of each token to which request it belongs, and at which position of that request's text it stands.
#
# ### Exercise 1 · The index tensors (code)
# *8 minutes · easy · core.*
#
# Request $r$ brings `counts[r]` tokens, the first at position `starts[r]`. With `starts = [7, 3]` and
# `counts = [2, 3]` the requests are `0 0 1 1 1` and the positions `7 8 3 4 5`.
#
# <details><summary>Hint</summary>
#
# `torch.repeat_interleave` writes the requests. For the positions, number the tokens of the whole sequence. Subtract from each how many
# tokens stand before its request in the sequence, and add its request's start.
#
# </details>


# %% tags=["exercise"]
def index_tensors(starts, counts):
    """(request [N], position [N]) of a step's tokens, from tensors starts [R] and counts [R]."""
    ...


done = exercises.check_indices(index_tensors)


# %% tags=["solution"]
def index_tensors(starts, counts):
    """(request [N], position [N]) of a step's tokens, from tensors starts [R] and counts [R]."""
    request = torch.repeat_interleave(torch.arange(len(counts)), counts)
    first = counts.cumsum(0) - counts  # where each request begins in the sequence
    return request, starts[request] + torch.arange(len(request)) - first[request]


done = exercises.check_indices(index_tensors)

# %%
index_tensors = index_tensors if done else exercises.index_tensors  # yours once it is right

# %% [markdown]
# Only attention looks at other tokens (the other layers run on the sequence as it is), and a **mask** tells it which keys each token may
# see. Keys have a request and a position, too. First come the keys of all cached texts, then those of this step. The key of a refused draft
# belongs to nobody any more: its request is -1.
#
# ### Exercise 2 · The mask (code)
# *5 minutes · easy · core.*
#
# Which of the K keys may each of the N tokens see? Return a bool tensor [N, K].
#
# <details><summary>Hint</summary>
#
# Two conditions, both needed: whose key is it, and is it from the future? `position[:, None]` makes rows of tokens.
#
# </details>


# %% tags=["exercise"]
def may_see(request, position, key_request, key_position):
    """Whether token n (request [N], position [N]) sees key k (key_request [K], key_position [K])."""
    return ...


done = exercises.check_mask(may_see)


# %% tags=["solution"]
def may_see(request, position, key_request, key_position):
    """Whether token n (request [N], position [N]) sees key k (key_request [K], key_position [K])."""
    return (request[:, None] == key_request) & (key_position <= position[:, None])


done = exercises.check_mask(may_see)

# %% [markdown]
# Now both run on the model itself. The folded cell makes four `prompts` and, in `entering`, for each an anchor with 2, 0, 7 or 3 made-up
# drafts. `of_prompts` and `of_step` hold their index tensors: row 0 the requests, row 1 the positions. Then one pass reads the prompts,
# and a second one the anchors and drafts.

# %% tags=["folded"]
# @title Four prompts, what enters after each, and the index tensors
may_see = may_see if done else exercises.may_see  # yours once it is right
texts = [text for domain in lab.prompts for text in lab.prompts[domain][:2]][:4]
prompts = [lab.encode(text)[0] for text in texts]
entering = [torch.randint(target.vocab_size, (count,), generator=lab.generator(), device=target.device) for count in (3, 1, 8, 4)]
lengths, counts = (torch.tensor([len(tokens) for tokens in part]) for part in (prompts, entering))
of_prompts = torch.stack(index_tensors(torch.zeros_like(lengths), lengths)).to(target.device)  # request and position, [2, N]
of_step = torch.stack(index_tensors(lengths, counts)).to(target.device)

# %%
from transformers import DynamicCache

cache = DynamicCache(config=target.config)


def one_pass(tokens, indices, keys):
    """The target on tokens [N] of one sequence; `keys` [2, K] are the indices of all that is in the cache, these tokens too."""
    visible = may_see(*indices, *keys)  # [N, K]
    mask = torch.zeros(visible.shape, dtype=target.dtype, device=target.device)
    mask.masked_fill_(~visible, torch.finfo(target.dtype).min)  # added to attention's scores
    return target.read(tokens[None], cache, attention_mask=mask[None, None], position_ids=indices[1][None]), visible


one_pass(torch.cat(prompts), of_prompts, of_prompts)
step, visible = one_pass(torch.cat(entering), of_step, torch.cat([of_prompts, of_step], 1))
picture = figures.ragged_batch(of_step[0], visible, of_prompts.shape[1])

# %% [markdown]
# This is the second pass's mask. Each request sees its own prompt (light blue, drawn short). Each dark triangle is a block, in which a
# token sees itself and those before it. In motion, with four recorded requests, whose blocks a made-up machine's scheduler has cut:

# %%
picture = living_round("ragged", recorded_rounds("step"))

# %% [markdown]
# Does sharing the pass change a request's logits?

# %%
for number, (prompt, tokens) in enumerate(zip(prompts, entering)):
    _, alone = target.prefill(prompt[None])
    apart = (step.logits[0, of_step[0] == number] - target.verify(tokens[None], alone).logits[0]).abs().max().item()
    print(f"request {'ABCD'[number]}: {len(tokens)} tokens after {len(prompt)}, logits off by {apart:.0e} from a pass of its own")
    assert apart < 64 * torch.finfo(target.dtype).eps * step.logits.abs().max()

# %% [markdown]
# No: up to rounding, each request gets the logits of a pass of its own.
#
# ## An engine
#
# An engine repeats one **step**: *admit* waiting requests to free seats and read their prompts; *draft* a block for each; *verify* all blocks
# in one pass; *commit*; *evict* those that are done. A new request waits at most for the step under way and for a free seat. It never waits
# until a batch is full or finished, hence *continuous batching*. (`engine.slots` is the number of seats. It has nothing to do with the slots of
# a block.)

# %%
picture = figures.engine_at_work()

# %% [markdown]
# `SmallEngine` is such an engine without its step. Each request has a number; prompts and answers are lists of token ids. The picture's
# names:
#
# | name | what it is |
# |---|---|
# | `engine.waiting` | pairs (number, prompt) in the order of arrival |
# | `engine.running`, `engine.answers` | {number: answer so far}, {number: finished answer} |
# | `engine.draft(number)` | returns a list of g token ids, and their distributions q [g, V] |
# | `engine.read(tokens)` | one pass over {number: list of k token ids}; returns {number: probabilities [k, V]}, a row for each token read, which predicts the next |
# | `engine.keep(number, count)` | keeps the first `count` of the tokens just read in the cache and forgets the rest; call it before the next `read` |
# | `engine.complete(number)` | cuts the answer where it ends, and returns whether it has ended |
#
# What becomes of one request's block in one step:

# %%
picture = figures.block_in_a_step()

# %% [markdown]
# Two functions come from lesson 02:

# %%
from dspark_lite.course.own_decoder.verifying import draw, verify

# verify(p, q, drafts, engine.generator) takes the target's p [g + 1, V], the drafter's q [g, V] and the list of the g drafts.
# It returns a list of token ids: the accepted drafts and one more.
# draw(probs, engine.generator) takes one row of probabilities [V] and returns one token id.

# %% [markdown]
# ### Exercise 3 · The step (code)
# *25 minutes · medium · core. If you do only one, do this.*
#
# Fill in the four holes of the step. The checker serves seven requests on a toy target, compares every answer with plain decoding, and
# counts the steps.
#
# <details><summary>Hint for hole 1</summary>
#
# `engine.read` returns a row for each token of the prompt. Which of them predicts the first token of the answer?
#
# </details>
# <details><summary>Hint for hole 3: what stays in the cache?</summary>
#
# Of what the pass has read, the anchor and the accepted drafts belong to the text. The last token that `verify` returns has not been
# read yet. So how many stay?
#
# </details>


# %% tags=["exercise"]
def step(engine):
    """One step: admit, draft, verify all in one pass, commit, evict."""
    while engine.waiting and len(engine.running) < engine.slots:
        number, prompt = engine.waiting.pop(0)
        rows = engine.read({number: prompt})[number]  # one row for each token of the prompt
        engine.keep(number, len(prompt))
        # hole 1: the answer's first token, drawn from what the target predicts after the
        # prompt
        engine.running[number] = [...]
    blocks = {number: engine.draft(number) for number in engine.running}  # {number: (drafts, q)}
    # hole 2: {number: its anchor (the newest token of its answer), then its drafts}, for all
    # running requests
    rows = engine.read(...)
    for number, (drafts, q) in blocks.items():  # rows[number] is p
        # hole 3, three lines: `verify`; add the tokens to the answer; `keep` those of the
        # pass that now belong to the text
        ...
        if engine.complete(number):
            # hole 4, one line: move the answer from engine.running to engine.answers
            ...


done = exercises.check_engine(step) and keep(step)


# %% tags=["solution"]
def step(engine):
    """One step: admit, draft, verify all in one pass, commit, evict."""
    while engine.waiting and len(engine.running) < engine.slots:
        number, prompt = engine.waiting.pop(0)
        rows = engine.read({number: prompt})[number]  # one row for each token of the prompt
        engine.keep(number, len(prompt))
        engine.running[number] = [draw(rows[-1], engine.generator)]
    blocks = {number: engine.draft(number) for number in engine.running}  # {number: (drafts, q)}
    rows = engine.read({number: [engine.running[number][-1], *drafts] for number, (drafts, q) in blocks.items()})
    for number, (drafts, q) in blocks.items():
        tokens = verify(rows[number], q, drafts, engine.generator)
        engine.running[number] += tokens
        engine.keep(number, len(tokens))  # the anchor and the accepted drafts
        if engine.complete(number):
            engine.answers[number] = engine.running.pop(number)


done = exercises.check_engine(step) and keep(step)

# %%
from dspark_lite.course.own_decoder.engine_board import SLOTS, Board

step = exercises.engine_in_use(step, done)  # yours once it is right
copies = 256 // SLOTS
board = Board(lab, drafter, machine_results.engine_seconds(SLOTS), f"modelled H100, {SLOTS} seats × {copies}")
glue(copies=copies)
board.serve("whole blocks", step)
board.show()

# %% tags=["claim"]
claims({"every text of the engine is plain decoding's": set(board.texts().values()) == {len(board.prompts)}})

# %% [markdown]
# Six requests have shared four seats, at temperature 0, where lossless means the same tokens: every text is plain decoding's, ties in
# rounding aside. So mask and caches are right; that sampled texts are exact, too, lesson 14's judge shows by enumeration. The texts are real, the clock is not this computer's: we count what each step did, and
# charge what lesson 10's H100 would take for so many copies of it: four seats × ⟦copies⟧ = 256 requests. (*a round*: tokens that a step
# commits for a request, in these six texts.)
#
# Next, the engine gets a scheduler.
#
# ### Exercise 4 · The step schedules (code)
# *8 minutes · medium · core.*
#
# Copy your step, and let it verify only the drafts that lesson 10's `algorithm_1(survivals, sps)` admits; it returns a list of lengths.
# `engine.survivals()` gives the survivals [R, g] of the blocks just drafted, in the order of `engine.running`, and `engine.sps` the steps
# per second by a step's tokens.
#
# <details><summary>Hint</summary>
#
# Between drafting and `engine.read`, cut each block: its drafts, and their q.
#
# </details>
# <details><summary>No step of your own to copy? The course's</summary>
#
# ```python
# def step(engine):
#     """One step: admit, draft, verify all in one pass, commit, evict."""
#     while engine.waiting and len(engine.running) < engine.slots:
#         number, prompt = engine.waiting.pop(0)
#         rows = engine.read({number: prompt})[number]  # one row for each token of the prompt
#         engine.keep(number, len(prompt))
#         engine.running[number] = [draw(rows[-1], engine.generator)]
#     blocks = {number: engine.draft(number) for number in engine.running}  # {number: (drafts, q)}
#     rows = engine.read({number: [engine.running[number][-1], *drafts] for number, (drafts, q) in blocks.items()})
#     for number, (drafts, q) in blocks.items():
#         tokens = verify(rows[number], q, drafts, engine.generator)
#         engine.running[number] += tokens
#         engine.keep(number, len(tokens))  # the anchor and the accepted drafts
#         if engine.complete(number):
#             engine.answers[number] = engine.running.pop(number)
# ```
#
# </details>

# %%
from dspark_lite.course.own_decoder.judge import own_or_course
from dspark_lite.course.own_decoder.my_dspark import algorithm_1

algorithm_1 = own_or_course("algorithm_1").algorithm_1  # yours, if you have kept it


# %% tags=["exercise"]
def step(engine):
    """One step: admit, draft, schedule, verify all in one pass, commit, evict."""
    ...


done = exercises.check_scheduled(step) and keep(step)


# %% tags=["solution"]
def step(engine):
    """One step: admit, draft, schedule, verify all in one pass, commit, evict."""
    while engine.waiting and len(engine.running) < engine.slots:
        number, prompt = engine.waiting.pop(0)
        rows = engine.read({number: prompt})[number]  # one row for each token of the prompt
        engine.keep(number, len(prompt))
        engine.running[number] = [draw(rows[-1], engine.generator)]
    blocks = {number: engine.draft(number) for number in engine.running}  # {number: (drafts, q)}
    lengths = algorithm_1(engine.survivals(), engine.sps)
    blocks = {number: (drafts[:length], q[:length]) for (number, (drafts, q)), length in zip(blocks.items(), lengths)}
    rows = engine.read({number: [engine.running[number][-1], *drafts] for number, (drafts, q) in blocks.items()})
    for number, (drafts, q) in blocks.items():
        tokens = verify(rows[number], q, drafts, engine.generator)
        engine.running[number] += tokens
        engine.keep(number, len(tokens))  # the anchor and the accepted drafts
        if engine.complete(number):
            engine.answers[number] = engine.running.pop(number)


done = exercises.check_scheduled(step) and keep(step)

# %%
step = exercises.engine_in_use(step, done)
board.serve("scheduled", step, board.sps)
board.show()

# %% tags=["claim"]
claims({"scheduled, the texts are the same": set(board.texts().values()) == {len(board.prompts)}})

# %% [markdown]
# The texts stay, and the speed hardly moves. Has Algorithm 1 found nothing to cut, or does cutting bring nothing
# on this machine?
#
# *Half-way, and a good place to stop: you have a lossless server. Open is the first bet's question: where did the lead go?*
#
# ## What a step costs
#
# From here on we read recorded measurements. The load is a *[closed loop](../docs/glossary.md#closed-loop)*: $R$
# requests are always under way, and whoever ends is replaced at once. The table takes steps apart. A user's speed is the tokens that a step
# commits for their request, over the length of the step.

# %% tags=["folded"]
# @title The length of a step, its tokens, and what a user gets
from dspark_lite.serving.requests import STEP_PARTS

decoding = [part for part in STEP_PARTS if part != "prefill"]
lead, drafting = {}, {}  # {load: DSpark over MTP-1: length of a step, tokens, speed of each user}, {load: milliseconds of its draft}
print("milliseconds  ", "".join(f"{part:>10}" for part in decoding), f"{'= a step':>12} {'tokens per request':>21} {'tokens/s of its user':>22}")
for load in (idle, busy):
    found = []
    print(f"{load} under way")
    for label, name, policy in (("MTP-1", "mtp", "all"), ("DSpark", "dspark", f"fixed {whole}")):
        row = measured_row(policy, load, name)
        parts = [1e3 * serving_results.value(f"{part}_seconds", row) for part in decoding]
        tokens = serving_results.value("accepted_length", row)  # committed in a step
        found.append((sum(parts), tokens, 1e3 * tokens / sum(parts)))
        print(f"  {label:12}", "".join(f"{spent:10.1f}" for spent in parts), "{:12.1f} {:21.2f} {:22.1f}".format(*found[-1]))
    drafting[load] = parts[decoding.index("draft")]
    lead[load] = [ours / theirs for theirs, ours in zip(*found)]
    print(f"  {'DSpark/MTP-1':12}", " " * 10 * len(decoding), "{:12.2f} {:21.2f} {:22.2f}".format(*lead[load]))
glue(longer_light=lead[idle][0], longer_full=lead[busy][0], more_full=lead[busy][1])

# %% tags=["claim"]
claims({"tokens over the length of a step is the speed of the first numbers": all(abs(lead[load][2] / ahead[load] - 1) < 0.01 for load in ahead),
        "the lead in tokens hardly changes with the load": 0.8 < lead[busy][1] / lead[idle][1] < 1.25,
        "the lead in length does": lead[busy][0] > 2 * lead[idle][0]})

# %% [markdown]
# On the full server DSpark commits ⟦more_full:.1f⟧ times the tokens in ⟦longer_full:.1f⟧ times the time: **that is where the gain goes.** Alone it
# takes only ⟦longer_light:.1f⟧ times the time.
#
# What makes a step longer? In the picture every step drafts seven tokens for each request, and we set how many of them are verified. A
# faint dot is one turn, some steps in a row; a large mark is the mean of all turns.

# %% tags=["folded"]
# @title The length of a step, by load and tokens verified
machines = machine_results.machines()
here = machines[machine_results.CPU].step("dspark")
measured = {load: {round(serving_results.value("budget", row)): row for row in serving_results.rows("costs", drafter="dspark", concurrency=load)}
            for load in (idle, 16, busy)}
turns = {load: {tokens: np.divide(*serving_results.totals_by_turn("step_seconds", row).T) for tokens, row in found.items()}
         for load, found in measured.items()}
means = {load: {tokens: serving_results.with_interval("step_seconds", row) for tokens, row in found.items()} for load, found in measured.items()}
picture = figures.step_times(turns, means, here.seconds, device)
fixed, per_request, per_token = (1e3 * seconds for seconds in here.line(busy, busy * (whole + 1)))
glue(fixed=fixed, per_request=per_request, per_token=per_token, in_figure=1e3 * means[busy][whole + 1].value, in_table=found[-1][0])

# %% tags=["claim"]
claims({"whole blocks on the full server lie below the line": means[busy][whole + 1].high < here.seconds(busy, busy * (whole + 1)),
        "the table's step is the figure's last mark, measured again, and the intervals overlap": means[busy][whole + 1].high
            > serving_results.with_interval("step_seconds", measured_row(f"fixed {whole}", busy)).low,
        "a request costs about five tokens": 4.5 < per_request / per_token < 5.5,
        "about half of that is its drafting": 0.4 < (drafting[busy] - drafting[idle]) / (busy - idle) / per_request < 0.6,
        "one line is near all steps": machine_results.cpu_scatter()["median"] < 0.1})

# %% [markdown]
# Roughly, $R$ requests that verify $t$ tokens take $⟦fixed:.0f⟧ + ⟦per_request:.1f⟧\,R + ⟦per_token:.2f⟧\,t$ milliseconds. A request costs about as
# much as five tokens, and half of that is its drafting. **A scheduler shortens what is verified, after the draft has been paid for.**
#
# (The same step was timed twice, in two parts of one recording: ⟦in_table:.0f⟧ ms in the table, ⟦in_figure:.0f⟧ at the arrow. So trust these
# times to some 15 %.)
#
# ### Exercise 5 · The seventh draft (code)
# *10 minutes · medium · core.*
#
# Lesson 10 asked which draft pays at a given load. Turn it round: at which load does a given draft stop paying?
#
# A step takes `fixed + per_request * R + per_token * B` seconds. Now each request verifies seven tokens (its anchor and six drafts) and
# commits `each` tokens. The seventh draft adds one token to what each request verifies, and `chance` to what it commits. Return the $R$ at
# which tokens per second are the same with and without it, and `np.inf` if the draft pays at every load.
#
# <details><summary>Hint</summary>
#
# Use $s / \Delta > \theta$ for all requests together: $s$ is `chance * R`, $\Delta$ is `per_token * R`. Set both sides equal and solve for $R$. If
# the denominator is not positive, the draft always pays.
#
# </details>


# %% tags=["exercise"]
def stops_paying(fixed, per_request, per_token, each, chance):
    """The load at which a seventh draft stops paying; inf where it pays at every load."""
    return ...


done = exercises.check_stops_paying(stops_paying)


# %% tags=["solution"]
def stops_paying(fixed, per_request, per_token, each, chance):
    """The load at which a seventh draft stops paying; inf where it pays at every load."""
    # chance / per_token = each * R / (fixed + per_request * R + per_token * 7 * R)
    left_over = each * per_token - chance * (per_request + 7 * per_token)
    return chance * fixed / left_over if left_over > 0 else np.inf


done = exercises.check_stops_paying(stops_paying)

# %% [markdown]
# ## Three machines
#
# Now lesson 10's three machines ([how we found their numbers](../docs/scheduling.md#two-machines)).

# %% tags=["folded"]
# @title Where the seventh draft stops paying, by your function
stops = stops_paying if done else exercises.stops_paying  # yours once it is right
accepted = machine_results.records().dspark.accepted  # lesson 10's blocks
survive = [(accepted >= k).mean() for k in range(1, whole + 1)]
six, seventh = 1 + sum(survive[:-1]), survive[-1]
V4 = machine_results.V4_FLASH
last_load, always = {}, {}
print(f"with six drafts a request commits {six:.2f} tokens; the seventh survives with {seventh:.2f}")
print(f"\n{'':27}   a request costs   to pay at every load,      the seventh draft\n{'':27}          (tokens)   it must survive with      pays up to")
for name in (machine_results.CPU, "H100", V4):
    a, b, c = machines[name].step("dspark").line(256, 256 * (whole + 1))
    last_load[name], always[name] = stops(a, b, c, six, seventh), six * c / (b + 7 * c)
    upto = f"{last_load[name]:.0f} requests" if np.isfinite(last_load[name]) else "any load"
    print(f"{name + ', by the line' * (name == machine_results.CPU):27}   {b / c:15.1f}   {always[name]:20.2f}      {upto}")
a, b, c = machines["H100"].step("dspark").line(256, 256 * (whole + 1))
glue(six=six, h100_always=always["H100"], h100_places=b / c + 7, v4_always=always[V4], seventh=seventh, v4_upto=last_load[V4])

# %% tags=["claim"]
claims({"the seventh draft pays at every load here and on the H100": last_load[machine_results.CPU] == last_load["H100"] == np.inf,
        "easily there, barely here": always["H100"] < 0.6 * seventh and 0.8 * seventh < always[machine_results.CPU],
        "on the V4 curve it stops": 64 < last_load[V4] < 350})

# %% [markdown]
# Among very many requests the fixed part, which all share, hardly counts. Then a request takes the time of $n + 7$ tokens, with lesson 10's
# $n$ for itself, and commits $c$. So a draft that survives with more than $c / (n + 7)$ pays at every load:
# $⟦six:.2f⟧ / ⟦h100_places:.0f⟧ = ⟦h100_always:.2f⟧$ on the H100, $⟦six:.2f⟧ / 7 = ⟦v4_always:.2f⟧$ on V4's curve. The seventh draft survives
# with ⟦seventh:.2f⟧: it pays at every load on the H100, up to ⟦v4_upto:.0f⟧ requests on V4's curve. **What decides is what a request costs,
# against a verified token.**
#
# ### The long block (the paper's Figure 7)
#
# With $R$ requests under way, each user's speed is tied to the *throughput*, the tokens per second of all of them (refused drafts do not
# count): *throughput = R × speed of each user* ([Little's law](../docs/references.md#little)). Each load gives a point, and a way to serve
# is the curve through its points, its **[frontier](../docs/glossary.md#pareto-frontier)**. All points of one load lie on one ray from the origin
# (grey): more load turns the ray upwards. On the left is the engine that we measured; on the right, the blocks that our small models
# drafted are charged what the steps of a model with 4 billion weights would take on an H100.

# %% tags=["folded"]
# @title Two frontiers
blocks = f"fixed {whole}"  # DSpark's whole blocks
frontiers = {"CPU": {"mtp": serving_results.frontier("mtp", "all"), "dspark": serving_results.frontier("dspark", blocks)},
             "H100": {"mtp": machine_results.frontier("H100", "mtp"), "dspark": machine_results.frontier("H100", blocks)}}
drawn = [loads.index(load) for load in (idle, 8, 32, busy)]
picture = figures.two_machines({"this CPU, measured": {name: curve[drawn] for name, curve in frontiers["CPU"].items()}, "an H100, modelled": frontiers["H100"]})
glue(long_h100=machine_results.replayed_row("H100", blocks, 256)["gains"]["mtp"].scaled(1, plus=1).value)

# %% tags=["claim"]
free = machines["H100"].step("dspark").verify.free
claims({"on the H100 DSpark is far ahead of MTP-1 at every load": (frontiers["H100"]["dspark"][:, 1] / frontiers["H100"]["mtp"][:, 1]).min() > 1.8,
        "the H100's free tokens are used up at 256, and a request costs more than its whole block": free < 256 * (whole + 1)
            and b > (whole + 1) * c,
        "here the curves meet on the full server": abs(frontiers["CPU"]["dspark"][-1, 1] / frontiers["CPU"]["mtp"][-1, 1] - 1) < 0.1})

# %% [markdown]
# On the CPU the curves meet on the full server. On the H100 DSpark's lies outside MTP-1's at every load, the shape of the paper's Figure 7.
# With 256 under way whole blocks write ⟦long_h100:.2f⟧ times MTP-1's tokens there, though no token is free any more, because **a request is
# dear** (the host's work counted; lesson 13 hides it): its price is paid once a step, and the longer block brings more tokens for it.
#
# ### What scheduling adds (the paper's Figure 8)
#
# Does Algorithm 1 verify less on a busy server, and what does that bring over whole blocks?

# %% tags=["folded"]
# @title What Algorithm 1 verifies, and what it brings
from dspark_lite.course.estimates import Estimate

held = {name: {row["load"]: row for row in machine_results.replayed() if (row["machine"], row["policy"]) == (name, "algorithm1")} for name in ("H100", V4)}
verified = {"this CPU, measured": {load: serving_results.with_interval("budget", measured_row("algorithm1", load)).scaled(100 / whole, plus=-100 / whole) for load in loads}}
brought = {"this CPU, measured": {load: serving_results.gain("throughput", measured_row("algorithm1", load), measured_row(f"fixed {whole}", load)).scaled(100, plus=-100)
                        for load in loads}}
for label, name in (("H100, modelled", "H100"), ("V4-Flash, derived", V4)):
    shares = {load: 100 * row["drafts"] / whole for load, row in held[name].items()}
    verified[label] = {load: Estimate(share, share, share) for load, share in shares.items()}
    brought[label] = {load: row["gains"]["whole"].scaled(100) for load, row in held[name].items()}
from_32 = {name: {load: gain for load, gain in gains.items() if load >= 32} for name, gains in brought.items()}
picture = figures.scheduling_pays(verified, from_32)
measured_share, at_32 = verified["this CPU, measured"], brought["this CPU, measured"][32]
shorter = serving_results.gain("step_seconds", measured_row("algorithm1", 32), measured_row(f"fixed {whole}", 32))
line_shorter = here.seconds(32, 32 * serving_results.value("budget", measured_row("algorithm1", 32))) / here.seconds(32, 32 * (whole + 1))
glue(shorter=100 - 100 * shorter.value, line_shorter=100 - 100 * line_shorter)
glue(loss=-at_32.value, loss_least=-at_32.high, loss_most=-at_32.low)
glue(adds_h100=brought["H100, modelled"][256].value, adds_v4=brought["V4-Flash, derived"][256].value)

# %% tags=["claim"]
claims({"the scheduler is not measurably ahead of whole blocks here, at any load": all(gain.low < 0 for gain in brought["this CPU, measured"].values()),
        "on the H100 it adds about one percent": 0 < brought["H100, modelled"][256].low and brought["H100, modelled"][256].high < 2,
        "on the V4 curve less than a tenth": 5 < brought["V4-Flash, derived"][256].low and brought["V4-Flash, derived"][256].value < 10,
        "at six loads of seven nothing can be told": sum(gain.low < 0 < gain.high for gain in brought["this CPU, measured"].values()) == 6,
        "at 32 a step hardly shorter, where the line has it 5 % or more shorter": shorter.high > 1 and line_shorter < 0.95,
        "at 32 it measurably loses, at no other load": [load for load, gain in brought["this CPU, measured"].items() if gain.high < 0] == [32],
        "the share has no trend here: it rises, falls, and rises": measured_share[idle].high < measured_share[2].low
            and measured_share[16].high < min(measured_share[8].low, measured_share[32].low),
        "it falls most on the V4 curve": verified["V4-Flash, derived"][256].value < 70 < min(verified["H100, modelled"][256].value, measured_share[busy].value)
            and verified["H100, modelled"][256].value < verified["H100, modelled"][1].value})

# %% [markdown]
# On the H100 the scheduler brings about ⟦adds_h100:.0f⟧ %. That answers the board's question: a request is dear there, so nearly every draft
# pays, and Algorithm 1 finds little to cut. On V4's curve, with tokens alone to pay for, it cuts far more as the load rises, and brings up to
# ⟦adds_v4:.0f⟧ %.
#
# **On this CPU** no gain was measured at any of seven loads. At one of them, 32, we measured a loss, of ⟦loss:.0f⟧ %
# [⟦loss_least:.0f⟧, ⟦loss_most:.0f⟧]; among seven that may be chance. There the line had promised a step ⟦line_shorter:.0f⟧ % shorter, and it
# became ⟦shorter:.0f⟧ % shorter. **A scheduler is as good as its table.**
#
# ## Under a promise
#
# Whoever runs a service promises a speed: at least so many tokens per second for each user (a *service level*,
# [SLA](../docs/glossary.md#sla)). `exercises.throughput_at(curve, least_speed)` reads the highest throughput under a promise off a
# frontier. MTP-1's *reach* is the speed that it gives a user alone. We promise each user 40 % of it, and then 90 %.

# %%
at_promises = bet("11 two promises")

# %% tags=["folded", "answer"]
# @title Throughput under two promises
gain_at, few = {}, {}
for machine, curves in frontiers.items():
    for share in (0.4, 0.9):
        promise = share * curves["mtp"][0, 0]
        theirs, ours = (exercises.throughput_at(curves[name], promise) for name in ("mtp", "dspark"))
        gain_at[machine, share], few[machine, share] = 100 * (ours / theirs - 1), theirs / promise
        print(f"{machine:5} {share:.0%} of MTP-1's reach, {promise:4.0f} tokens/s: MTP-1 {theirs:6.0f} tokens/s for {theirs / promise:5.1f} users, "
              f"DSpark {ours:6.0f}: {gain_at[machine, share]:+.0f} %")
ratio = gain_at["CPU", 0.9] / gain_at["CPU", 0.4]
at_promises.settle("several times as large at 90 %" if ratio > 2 else "smaller at 90 %" if ratio < 0.5 else "about the same at both",
                   f"on this CPU {gain_at['CPU', 0.4]:+.0f} % and {gain_at['CPU', 0.9]:+.0f} %")
glue(slow_promise=gain_at["CPU", 0.4], fast_promise=gain_at["CPU", 0.9], few=few["CPU", 0.9])

# %% [markdown]
# <details><summary>After your bet</summary>
#
# The same two ways to serve on the same CPU: the gain is ⟦slow_promise:.0f⟧ % or ⟦fast_promise:.0f⟧ %, depending on the promise. MTP-1 can keep the
# faster one for about ⟦few:.0f⟧ users only: there **the ratio explodes**, because we divide by a small number.
#
# </details>
#
# Now the paper's curves. DSpark-5 is its DSpark, with blocks of five drafts.

# %% tags=["answer"]
picture = figures.paper_frontier()

# %% tags=["claim"]
claims({"near MTP-1's reach the gain is several times that of a slow promise": gain_at["CPU", 0.9] > 3 * gain_at["CPU", 0.4],
        "because MTP-1 serves only a few users there": few["CPU", 0.9] < 5 < few["CPU", 0.4]})

# %% [markdown]
# <details><summary>After your bet: the same on the paper's curves</summary>
#
# Take two points of MTP-1's curve. At the slow one DSpark gives 51 % more throughput at the same speed (*up*), or 60 % more speed at the
# same throughput (*right*). At the fast one it is 661 % up and 85 % right. Up explodes because MTP-1's throughput there is nearly zero, and
# we divide by it. Right stays tame. The paper itself says that the 661 shows how far the frontier reaches, not a typical factor. **Before
# you believe a ratio, look at what it is divided by.**
#
# </details>
#
# ## The race
#
# In the last lane your `step` writes the three answers at once, in shared passes. Its milliseconds are a token's, whichever answer it is in.

# %%
from dspark_lite.course.race import race

picture = race("11", lab)

# %% [markdown]
# > **How sure are we?** One CPU, one thread, small models, one training of each. The H100 is a model that meets published steps within some
# > ten percent; these blocks are not measured on it. Bars are 95 % intervals, over repeats or over requests.
#
# ## Recap
# - A ragged batch is one sequence with a request and a position for each token, and a mask that keeps requests apart. Each request is
#   verified as if alone.
# - An engine's step admits, drafts, schedules, verifies, commits and evicts.
# - A step costs something for itself, for each request, and for each verified token. Where a request is dear against a token, as on
#   the H100, the long block stays ahead under load; on this CPU it does not.
# - A scheduler shortens what is verified, after the draft has been paid for. It gains where a token costs much against a request.
# - A way to serve is a curve of throughput against speed. Compare curves at equal throughput or equal load: near the fastest speed that
#   the rival can give, a ratio explodes.
#
# **Next**: [lesson 12](12_the_paper_in_miniature.ipynb) lays our numbers beside the paper's.

# %% [markdown]
# **Case 11.** An engine whose answers are fluent, and not the target's. Measure at most three things, then accuse.

# %%
from dspark_lite.course.cases import case

investigation = case("11")

# %%
show_score("11")

# %% [markdown]
# ## Beyond the core
#
# The lesson is complete without these sections.
#
# ### ★ The source of `SmallEngine`
#
# In `read` you find your index tensors and your mask again; `hidden` is what is added to attention's scores. A request's number is never
# reused, so the keys of a finished request need not be cleared.

# %% tags=["folded"]
# @title Print the class
import inspect

print(inspect.getsource(exercises.SmallEngine))

# %% [markdown]
# ### ★ Watch an engine
#
# The package's engine also drafts for all requests in one pass, and lets a policy choose how many drafts to verify: here Algorithm 1,
# with a cost table that the cell measures first (the progress bar). It is measured at one moment and of the target's pass alone, so how much
# is cut differs from run to run. Nine requests arrive at different steps, for four seats. In the figure, a row is a seat and a column a step. A frame is a drafted block; orange and green together were verified, green was accepted. An
# empty frame had no draft verified; its request still gets one token.

# %% tags=["folded"]
# @title Nine requests through four seats
from dspark_lite.course.measure.step_time import profile
from dspark_lite.losslessness.ties import same_or_tied
from dspark_lite.scheduling import algorithm1
from dspark_lite.serving.engine import Engine, Request

slots, new = 4, 40
table = profile(target, range(1, slots * (drafter.gamma + 1) + 1), repeats=3)[0]
engine = Engine(target, drafter, policy=algorithm1(table.lower_hull()), slots=slots, capacity=512)
asked = [Request(lab.encode(lab.prompts[domain][index]), new, domain=domain) for index in range(3) for domain in lab.prompts]
plan = {0: asked[:3], 1: asked[3:5], 3: asked[5:7], 6: asked[7:]}  # {step: who arrives before it}
steps, answers, arrived, admitted = [], {}, {}, {}
while not engine.idle or len(steps) <= max(plan):
    now = len(steps)
    arrived |= {engine.submit(request): now for request in plan.get(now, [])}
    if now == 4 and (answer := engine.abort(2)):
        answers[answer.id] = answer
    steps.append(engine.step())
    answers |= {answer.id: answer for answer in steps[-1].answers}
    admitted |= {number: now for number in [*engine.running, *answers] if number not in admitted}
journeys = [figures.Journey(f"{number}: {answer.request.domain}", arrived[number], admitted[number], answer.rounds, answer.reason)
            for number, answer in sorted(answers.items())]
picture = figures.timeline(journeys, slots, drafter.gamma)

# %% tags=["claim"]
def as_alone(number, answer):
    """Whether plain decoding gives this answer, as far as an aborted one goes."""
    alone = dspark_lite.generate(target, None, asked[number].input_ids, max_new_tokens=new).token_ids
    alone = alone[:len(answer.token_ids)] if answer.reason == "aborted" else alone
    return same_or_tied(target, asked[number].input_ids, answer.token_ids, alone)


claims({"every answer is plain decoding's": len(answers) == len(asked) and all(as_alone(*item) for item in answers.items()),
        "a waiting request takes the aborted one's slot in the same step": admitted[4] == 4 > arrived[4] and len(answers[2].rounds) == 4})

# %% [markdown]
# Request 2 is aborted, and request 4, which waited, has its seat in the next column. Here, too, every answer is plain decoding's, ties in
# rounding aside.
#
# ### ★ One length for all
#
# Let everybody get the same number of drafts verified.

# %%
one_length = bet("11 one length")

# %% tags=["folded", "answer"]
# @title Throughput of each length
against_plain, scheduled = {}, {}
for load in loads:
    plain, own = measured_row("all", load, "plain"), measured_row("algorithm1", load)
    against_plain[load] = {length: serving_results.gain("throughput", measured_row(f"fixed {length}", load), plain)
                           for length in range(1, whole + 1)}
    scheduled[load] = serving_results.value("budget", own) - 1, serving_results.gain("throughput", own, plain)
rivals = {load: serving_results.gain("throughput", measured_row("all", load, "mtp"), measured_row("all", load, "plain")).value for load in loads}
picture = figures.static_lengths(against_plain, scheduled, rivals, device)

# %% tags=["answer"]
rival = measured_row("all", busy, "mtp")
static = {length: serving_results.gain("throughput", measured_row(f"fixed {length}", busy), rival) for length in range(2, whole + 1)}
for length, found in static.items():
    print(f"{length} drafts for everybody, {busy} under way: {found.value:.2f} [{found.low:.2f}, {found.high:.2f}] times MTP-1's throughput")
one_length.settle("verifying 6" if static[2].high < static[6].low else "verifying 2" if static[6].high < static[2].low else "the same, as far as one can tell",
                  ", ".join(f"{length} drafts {static[length].value:.2f} [{static[length].low:.2f}, {static[length].high:.2f}]" for length in (2, 6)) + " times MTP-1's")
# The last two drafts of a block: a step with all seven over one with five, each measured twice.
last_two = {"with lengths by survival": serving_results.gain("step_seconds", *(serving_results.row(
                "costs", concurrency=busy, drafter="dspark", policy=f"budget {tokens}") for tokens in (whole + 1, whole - 1))),
            "with one length for all": serving_results.gain("step_seconds", measured_row(f"fixed {whole}", busy), measured_row(f"fixed {whole - 2}", busy))}
for name, ratio in last_two.items():
    print(f"{busy} under way, {name}: seven drafts take {ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] times as long as five")
glue(last_free=last_two["with lengths by survival"].value, last_dear=last_two["with one length for all"].value)

# %% tags=["claim"]
claims({"a short block of DSpark is worse than MTP-1 on the full server, and than a long one": static[2].high < min(1, static[6].low),
        "a whole block cannot be told apart from MTP-1 there": static[whole].low < 1 < static[whole].high,
        "the last two drafts cost nothing in one part and much in the other": last_two["with lengths by survival"].low < 1
            < last_two["with one length for all"].low})

# %% tags=["folded"]
# @title The same with your lab's models, if others
from dspark_lite.course.replication.lab_results import measure_confidence, measure_lab_load

lab_confidence = measure_confidence(lab, drafter)  # None for the models that were recorded; with others their own load is measured, once
if lab_confidence:
    there = {"fixed": {load: found[whole].value for load, found in against_plain.items()},
             "algorithm1": {load: found.value for load, (_, found) in scheduled.items()}}
    picture = figures.draw_lab_load(measure_lab_load(lab, drafter, lab_confidence.table), there, f"{report['target']} on {device}")

# %% [markdown]
# <details><summary>After your bet</summary>
#
# The paper says that a static draft of several tokens costs throughput on a full server; so its production system drafted one token until
# two weeks after the V4 preview's release. Here DSpark's *short* lengths lose: the block of seven has been drafted and paid for, and most
# of it is thrown away. (The paper means MTP-3 and MTP-5, which draft three and five. We have measured no such drafter.) The paper names
# this limit, and a drafter that leaves early on hard text as a way on. Where verified tokens alone make a step longer (lesson 10's $n = 0$),
# cutting drafts saves more. Exercise 6 asks which length is best.
#
# What a block's *last* drafts cost we measured twice, and do not know: once a step with all seven took ⟦last_free:.2f⟧ times as long as one with
# five, once ⟦last_dear:.2f⟧ times. Lesson 13 replays the first.
#
# </details>
#
# ### Exercise 6 · When is one length right? (think)
# *15 minutes · hard · optional.*
#
# A step of $R$ requests that verifies $\ell$ drafts of each takes $c_0 + R\,(c_r + c_1 (\ell + 1))$ seconds. Every draft is accepted
# with the same chance $0 < \alpha < 1$, given that those before it were. What does the best $\ell$ tend to as $R$ grows, with $c_r = 0$
# and with $c_r > 0$?
#
# <details><summary>Answer</summary>
#
# With $\ell$ drafts a step commits $R\,(1 + \alpha + \dots + \alpha^\ell)$ tokens. The $\ell$-th draft pays if
# $f(\ell) = \sum_{i \le \ell} (\alpha^{-i} - 1) < (c_0 / R + c_r) / c_1$. $f$ grows with $\ell$: drafts pay up to some length and not
# beyond. As $R$ grows, $c_0 / R$ goes to 0. With $c_r = 0$ the best length goes to 0: a draft would have to yield as much as an
# anchor, which commits one token for certain. With $c_r > 0$ it stops at the largest $\ell$ with $f(\ell) < c_r / c_1$. On this
# course's engine $c_r / c_1$ is large, so long blocks stay right up to high loads.
#
# </details>
#
# ### ★ Move the load
#
# On the left are the frontiers, measured (marks) and from a model of the engine (lines: its measured costs, recorded blocks); the ring
# is where the slider puts the server. At heavy load the model flatters DSpark, because it charges nothing for a block's last drafts. On the right is one step. With one request under way, how many drafts does it get? With 24, does any get none? What does
# *DSpark, whole block* do to the ring?
#
# <details><summary>Answer</summary>
#
# Alone, nearly all seven: a place costs next to nothing. With 24, doubtful blocks are cut, and now and then one gets none. With whole
# blocks the ring hardly moves, as "One length for all" has shown.
#
# </details>

# %% tags=["folded"]
# @title Move the load
from functools import cache

from dspark_lite.course.figures import widgets
from dspark_lite.course.measure.serving_load import policy_of
from dspark_lite.course.replication.serving_results import WAYS
from dspark_lite.decoding.proposal import Proposal, chosen_lengths
from dspark_lite.scheduling import LAG, survival

record, costs, measured = serving_results.record(), serving_results.engine_costs("dspark"), serving_results.frontiers()


@cache
def point(whose, policy, load):
    """(tokens/s of each user, tokens/s in all) of the model."""
    steps = serving_results.modelled(whose, policy, load, requests=30 + 3 * load)
    total = sum(step.committed for step in steps) / sum(step.seconds["round"] for step in steps)
    return total / load, total


def one_step(policy, load, step):
    """Lengths, drafts accepted and survivals of as many recorded blocks as the load."""
    policy = policy_of(policy, costs)
    for number in range(step - LAG, step + 1):  # a policy that remembers is shown the steps before
        blocks = np.random.default_rng(number).integers(len(record.accepted), size=load)
        tokens = torch.zeros(load, record.gamma, dtype=torch.long)
        proposal = Proposal(tokens, torch.empty(load, record.gamma, 0), record.logits[blocks])
        lengths = np.array(chosen_lengths(policy, proposal))
    return lengths, record.accepted[blocks], survival(proposal.confidence).numpy()


def move(load, policy, step):
    """The operating point and one step."""
    curves = {name: np.array([point(*WAYS[name], R) for R in loads]) for name in ("mtp", policy)}
    lengths, accepted, alive = one_step(policy, load, step)
    title = f"{load} under way: {lengths.mean():.2f} drafts verified per request"
    return figures.operating_point(curves, measured, policy, point("dspark", policy, load), lengths, accepted, alive, title, device)


panel = widgets.explore(
    move, {"load": 1}, {"policy": f"fixed {whole}"}, load=widgets.slider(figures.UNDER_WAY, min(24, busy), 1, busy),
    policy=widgets.menu("policy", [(figures.style(name)["label"], name) for name in sorted(WAYS, key=lambda name: name != "algorithm1") if name != "mtp"]),
    step=widgets.slider("step", 3, LAG, 40), frames={"load": [load for load in (1, 4, 8, 16, 24, 32, 48, 64) if load <= busy]})

# %% [markdown]
# ### Exercise 7 · Traffic of your own (open)
# *40 minutes · optional.*
#
# Requests rarely come at a constant rate. Draw arrivals of your own (a burst every minute, a slow rise, two kinds of requests), serve
# them in the model, `simulate(EngineModel(record, costs, policy, slots=busy), arrivals, rng)` of `dspark_lite.course.measure.simulator`, and
# compare two policies by the time of the slowest tenth of the answers. Write down first which will win, and why.
#
# <details><summary>Hint</summary>
#
# `arrivals` are seconds in rising order (`poisson`, in the same file, draws those of a steady rate); each answer of
# `step.answers` knows when it `arrived`, had its `first_token` and `ended`.
#
# </details>
