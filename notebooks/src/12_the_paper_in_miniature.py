# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=45 difficulty="medium"
# # 12 · The paper in miniature
#
# Does DSpark do here what the paper says? You say first what becomes of five of the paper's sentences. Then you see what we measured, and
# how far another training would have moved it.
#
# **After this lesson you can**
# - compare two drafters on the same prompts, and say how sure you are
# - tell "does not hold" from "we cannot tell", and say what chance alone would give
# - say why one training of each drafter is not enough
# - tell an experiment that takes the suspected cause away from one that only varies something
#
# **What you need**: lessons 05 to 07. The rows on confidence and load, beyond the core, also need 09 to 11.
#
# **Sources**: the [DSpark paper](../docs/references.md#dspark), sections 4 and 5; intervals are [bootstraps](../docs/references.md#bootstrap).
# [Notation](../docs/notation.md) · [glossary](../docs/glossary.md)

# %% tags=["setup"]
pass

# %%
import numpy as np

from dspark_lite.course.bets import show_score
from dspark_lite.course.exercises import lesson_12 as exercises
from dspark_lite.course.figures import lesson_12 as figures
from dspark_lite.course.figures import paper_figures
from dspark_lite.course.lesson_text import claims, glue
from dspark_lite.course.measure import studies
from dspark_lite.course.names import DOMAINS, DRAFTER_LABELS
from dspark_lite.course.replication import experiment_results


# %% [markdown]
# ## Five sentences of the paper
#
# We trained the paper's drafters anew: for one small target, on texts of our own. Then we measured how many tokens a round of each commits,
# on 100 prompts of each domain, at temperature 1. For each sentence of the paper that gives one of three verdicts:
#
# - **replicates**: what the sentence says is so here, and chance does not explain it
# - **does not hold**: the opposite is so here, and chance does not explain it
# - **we cannot tell**: what we measured fits both
#
# ### Exercise 1 · Your verdicts (think)
# *5 minutes · easy · core. If you do only one, do this.*
#
# Write down what becomes of each sentence here, before you look. Guess where you do not know. The score comes with the figure.
#
# 1. DSpark accepts longer than DFlash, on math, code and chat.
# 2. DSpark accepts longer than Eagle3, on math, code and chat.
# 3. DSpark accepts longest on math, then on code, then on chat. (So say the numbers of the paper's Table 1. Its text says only that math and
#    code lie above chat.)
# 4. DFlash's *first* draft is accepted more often than Eagle3's, on math and on chat. (DFlash drafts a
#    block at once, with four layers, Eagle3 token by token, with one.)
# 5. On chat, Eagle3's *last* draft is accepted more often than its first, counting only rounds in which all drafts before it were accepted.

# %% tags=["exercise"]
mine = {1: ..., 2: ..., 3: ..., 4: ..., 5: ...}  # "replicates", "does not hold" or "we cannot tell"

# %% tags=["solution"]
mine = {1: "replicates", 2: "replicates", 3: "does not hold", 4: "does not hold", 5: "we cannot tell"}

# %% [markdown]
# ## Who accepts longest?
#
# This is the paper's Table 1 as a picture, beside ours. Each of our points is the mean of three trainings that differ in their seed alone.

# %%
picture = paper_figures.table_1()

# %% [markdown]
# Targets and texts differ, so a height on the left says nothing about a height on the right. Compare who stands above whom. DSpark is on
# top on both sides, everywhere. Below it the order is turned round: here Eagle3 stands above DFlash.
#
# Is our side fair? The three drafters learned from the same answers of the same target, and answered the same prompts. The next cell
# checks that. Layers, heads, losses and learning rates belong to each method, so they differ. This is why the figure compares whole methods, and cannot say
# which part of DSpark earns its lead.

# %%
runs = [run for three in studies.SEEDS.values() for run in three]
made = {run: experiment_results.measured(run) for run in runs}
first = made[runs[0]]
for found in made.values():
    assert found["recipe"]["data"] == first["recipe"]["data"]
    assert found["recipe"]["target"] == first["recipe"]["target"]
    assert found["prompts"] == first["prompts"] and found["temperature"] == 1
print(f"{len(runs)} trainings, each on the same {sum(first['recipe']['data']['prompts'].values()):,} answers of one target")

# %% [markdown]
# ## How sure is a comparison?
#
# The *gain* of one drafter over another says how much longer its accepted length is, as a fraction. Other prompts would give another gain.
# How far off could it be? The [bootstrap](../docs/glossary.md#bootstrap) draws from the prompts that we have, with replacement, and computes
# the gain again, many times. Each resample has as many prompts as the original; some come several times, some not at all. The middle 95 % of
# these gains are the gain's *interval*.
#
# ### Exercise 2 · One resample (code)
# *10 minutes · medium · core.*
#
# `ours` and `theirs` are [N, 2]: for each prompt, tokens committed and rounds. `index` [N] names the prompts of a resample, some more than once.
# Return the gain of ours over theirs on them, as a fraction.
#
# <details><summary>Hint</summary>
#
# Sum both columns of `ours[index]`, then divide. Both drafters answered the *same* prompts, so `theirs` takes the same `index`.
#
# </details>


# %% tags=["exercise"]
def resampled_gain(ours, theirs, index):
    """How much longer ours accepts than theirs, as a fraction, on the prompts `index`; both are [N, 2]."""
    ...


# %% tags=["solution"]
def resampled_gain(ours, theirs, index):
    """How much longer ours accepts than theirs, as a fraction, on the prompts `index`; both are [N, 2]."""
    tokens, rounds = ours[index].sum(0)
    their_tokens, their_rounds = theirs[index].sum(0)
    return (tokens / rounds) / (their_tokens / their_rounds) - 1


# %%
done = exercises.check_resampled_gain(resampled_gain)
resampled_gain = resampled_gain if done else exercises.resampled_gain  # yours once it is right

# %% [markdown]
# Now yours resamples 2,000 times: DSpark over Eagle3 on math, the two trainings that this course ships.

# %%
from dspark_lite.course import estimates


def tallies(name, domain):
    """Tokens and rounds of each prompt, [N, 2], of the shipped training of a drafter."""
    return dict(zip(DOMAINS, experiment_results.tallies(studies.TABLE_1[name])))[domain]


rng = np.random.default_rng(0)
ours, theirs = tallies("dspark", "math"), tallies("eagle3", "math")
draws = [resampled_gain(ours, theirs, rng.integers(0, len(ours), len(ours))) for _ in range(estimates.RESAMPLES)]
low, high = np.quantile(draws, [0.025, 0.975])
shipped = experiment_results.gains(studies.TABLE_1["dspark"], studies.TABLE_1["eagle3"])["math"]
assert np.allclose([low, high], [shipped.low, shipped.high])
print(f"{shipped.value:+.1%}, 95 % of the resamples between {low:+.1%} and {high:+.1%}")
glue(shipped=100 * shipped.value, low=100 * low, high=100 * high)

# %% [markdown]
# The interval is far from zero: with other prompts, too, this DSpark would accept longer than this Eagle3.
#
# ## The rule of the verdict
#
# Sentence 2 says that three numbers are above zero: DSpark's gains over Eagle3 on math, on code and on chat. Each of them has an interval.
# Whether chance explains a number is read off its interval's ends.
#
# ### Exercise 3 · The verdict (code)
# *5 minutes · easy · core.*
#
# `bounds` [M, 2] holds the lower and the upper end of the intervals of the M numbers that a sentence says are above zero. Return
# `"replicates"` if all intervals lie wholly above zero, `"does not hold"` if one lies wholly below, and `"we cannot tell"` otherwise.
#
# <details><summary>Hint</summary>
#
# Which end of an interval tells you that all of it lies above zero?
#
# </details>


# %% tags=["exercise"]
def verdict(bounds):
    """What becomes of a sentence, by the ends of its intervals, [M, 2]."""
    ...


# %% tags=["solution"]
def verdict(bounds):
    """What becomes of a sentence, by the ends of its intervals, [M, 2]."""
    low, high = bounds.T
    if (low > 0).all():
        return "replicates"
    return "does not hold" if (high < 0).any() else "we cannot tell"


# %%
done = exercises.check_verdict(verdict)
verdict = verdict if done else exercises.verdict  # yours once it is right

# %% [markdown]
# ## The five rows
#
# Your rule now judges the five sentences. All their numbers have one unit: by how many per cent the one is more than the other. In row 2
# *math* is DSpark's accepted length over Eagle3's; in row 5 *chat* is the acceptance of Eagle3's last draft over that of its first. Green
# lies wholly above zero, orange wholly below, grey holds zero.

# %%
from dspark_lite.course.replication.five_claims import FIVE

rows, verdicts = [], {}
for number, claim in enumerate(FIVE, 1):
    more = {label: quantity.estimate() for label, quantity in claim.more.items()}
    verdicts[number] = verdict(np.array([(found.low, found.high) for found in more.values()]))
    rows.append((claim, more, verdicts[number]))
picture = figures.five_rows(rows, first["device"])
right = exercises.score(mine, verdicts)

# %% [markdown]
# - **Rows 1 and 2**: DSpark's lead replicates. Over DFlash it is larger here than in the paper, over Eagle3 smaller: on code its
#   interval just misses zero.
# - **Row 3**: our math lies far below our code. One orange interval refutes the sentence, however green the other. What the paper's
#   text says holds here: math and code both lie above chat.
# - **Row 4**: on math the two draw level, on chat Eagle3's first draft is better. Again one orange interval is enough.
# - **Row 5**: the interval holds zero, so a rise and a fall both fit. That is no refutation: we measured too little to say.
#
# **Case 12.** Two groups, one recipe, and half of the gain. Measure at most three things, then accuse.

# %%
from dspark_lite.course.cases import case

investigation = case("12")

# %% [markdown]
# ## Train it again
#
# Row 2 has ⟦three:.1f⟧ % on math. But you have just found ⟦shipped:.1f⟧ %, with an interval from ⟦low:.1f⟧ to ⟦high:.1f⟧ %. Both are DSpark
# over Eagle3 on math, on the same prompts. The difference: yours compared *one* training of each. We trained both again, twice, and changed
# nothing but the seed.

# %%
from scipy.stats import ttest_ind

pairs = list(zip(studies.SEEDS["dspark"], studies.SEEDS["eagle3"]))
apart = [experiment_results.gains(*pair)["math"] for pair in pairs]
together = experiment_results.gains_over_seeds(studies.SEEDS["dspark"], studies.SEEDS["eagle3"])["math"]
words = "DSpark over Eagle3 on math: accepts longer by (%)"
picture = figures.gain_by_training(apart, together, words, first["device"])
lengths = [[experiment_results.accepted_lengths(run)["math"].value for run in studies.SEEDS[name]]
           for name in ("dspark", "eagle3")]
student = ttest_ind(*np.log(lengths), equal_var=False).confidence_interval()  # of the logarithm of the ratio
print(f"Student's interval of the three trainings: {np.exp(student.low) - 1:+.1%} to {np.exp(student.high) - 1:+.1%}")
glue(three=100 * together.value, student_low=100 * (np.exp(student.low) - 1), student_high=100 * (np.exp(student.high) - 1))

# %% [markdown]
# The shaded band is the first interval. **It holds neither of the other trainings, nor the mean of the three.** It was no mistake: it
# says how the gain moves with the prompts, for these two drafters. What other *drafters* of the same kind would do, it cannot know. The
# course ships the training with seed 1. It happens to be the luckiest of the three on math.
#
# The interval of the mean redraws trainings as well as prompts, so it is wider. It is still too narrow: of three trainings a redraw can show
# little. Student's interval, made for so few, runs from ⟦student_low:.0f⟧ to ⟦student_high:.0f⟧ % on math, and holds zero. So take row 2's
# math for likely, not for proved. **With one training of each you have compared two
# drafters, not two methods.** All dots of the five rows are means of three trainings. Wherever this course writes *one training*, remember
# this figure.
#
# ### Exercise 4 · By chance (think)
# *5 minutes · medium · core.*
#
# Suppose that nothing in the paper were true: every number is zero, and they are independent. How many of the sentences about *one* number
# would replicate all the same? Of those about *three*? And of those about three, how many would be called refuted?
#
# <details><summary>Hint</summary>
#
# A 95 % interval misses the truth one time in twenty, on either side equally often.
#
# </details>
# <details><summary>Answer</summary>
#
# One in forty of those about one number: the interval misses zero one time in twenty, and half of these times it lies above. Of those about
# three, one in forty cubed: hardly any. So row 1 is no luck of the prompts.
#
# Refuting is easier. One interval below zero is enough, and three give three chances: 7 % of these sentences would be called refuted. Look
# at row 4: its orange interval ends close to zero. Row 3's is far from it.
#
# </details>
#
# ## Why does a row fail?
#
# A failed row has suspects: the texts, the size of the target, a loss, a number of layers. There are two kinds of experiments on a suspect.
# One **takes the suspect away** and leaves the rest as it is. It can convict. The other **varies something that goes along with it**. It
# shows that the result can move, and not why.
#
# Take row 4. The paper's reason for its sentence: DFlash can afford more layers, so it begins better. Here DFlash has four layers and Eagle3
# one, and DFlash begins no better. Two suspects: DFlash's *losses*, and the *layers*, which might matter less here. We have trained two
# more kinds of drafters:
#
# - **A**: DFlash with DSpark's losses. Layers, data and all the rest are DFlash's own.
# - **B**: DSpark with one layer, as many as Eagle3.

# %%
kinds = {"DFlash": studies.SEEDS["dflash"], "A: DFlash, DSpark's losses": studies.LOSSES["dflash"],
         "Eagle3, one layer": studies.SEEDS["eagle3"], "B: DSpark, one layer": (studies.DEPTHS[1],)}
begins = {name: [np.mean([experiment_results.conditional_acceptance(run, domain)[0].value for domain in ("math", "chat")]) for run in kind]
          for name, kind in kinds.items()}  # the mean of row 4's domains, by training
picture = figures.first_drafts(begins, first["device"])

# %% [markdown]
# ### Exercise 5 · Which one convicts? (think)
# *5 minutes · medium · core.*
#
# Each dot is one training. Of which kind is experiment A, of which B? What follows from each?
#
# <details><summary>Answer</summary>
#
# A takes a suspect away: only the losses differ. Every training of A begins above every one of DFlash, and above Eagle3. So the losses are a
# cause of row 4's failure: with DSpark's, it would have come out as in the paper. (On code, of which the row does not speak, A still begins
# below Eagle3. What else sets Eagle3 ahead there we do not know.)
#
# B only varies something. DSpark with one layer and Eagle3 have as many layers, yet they differ in what they read, in losses and in learning
# rates, and B begins lowest. Nothing follows for the layers, and B is one training.
#
# </details>
#
# And row 3? There the suspect is the texts. Before anything was measured we set bounds on how like the real world ours must be
# ([how certain a real model is](../docs/references.md#tokens)). Three were missed:

# %%
from dspark_lite.common.files import ROOT
from dspark_lite.course import result_files

gates = result_files.read(ROOT / "assets" / "measurements" / "gates.json", "git checkout assets")["gates"]
failing = [gate for gate in gates if not gate["met"]]
for gate in failing:
    print(f"{gate['name']}, {gate['domain']}: {gate['value']:.2f}, allowed {gate['at_most']:.2f}, in the real world {gate['real']}")
glue(gates=len(gates))

# %% [markdown]
# On math and code our target is certain of its next token too often, and our code is too easy to guess, even for a small model that reads
# nothing of the target. *Every* drafter of ours has its longest rounds on code. So row 3 says something about our texts, and nothing against
# the paper. (The other bounds, of ⟦gates⟧ in all, are kept.)
#
# > **How sure are we?** Intervals are 95 %, over 100 prompts per domain and over three trainings. One small target, texts of our making: what
# > replicates here needs no large model; what does not may need one.
#
# ## Recap
#
# - Compare drafters on the same data, prompts and temperature. Across targets and texts compare who is ahead, not lengths.
# - Redraw the same prompts for both: a hard prompt shortens both lengths, so much of its effect cancels in the gain.
# - An interval over prompts knows nothing of the training. Three trainings moved DSpark's gain over Eagle3 on math from ⟦shipped:.1f⟧ to
#   ⟦three:.1f⟧ %.
# - "We cannot tell" is not "does not hold".
# - A suspected cause stays a guess until an experiment takes it away and leaves the rest.
# - Here DSpark's leads over DFlash and Eagle3 replicate. The paper's order of math and code does not: we suspect our texts, and no
#   experiment has taken them away. DFlash's better first draft does not, but with DSpark's losses it would. All claims are in the ledger, beyond the core: of the ⟦measured⟧ that the paper
#   itself states and that we measured, ⟦replicate⟧ replicate.
#
# **Next**: [13, production](13_production.ipynb). A service is more than a decoder.

# %%
show_score("12")

# %% [markdown]
# ## Beyond the core
#
# The lesson is complete without these sections.
#
# ### ★ The whole ledger
#
# The *[ledger](../docs/glossary.md#ledger)* is our table of the paper's claims. Each number that a claim says is above zero is called a
# *[margin](../docs/glossary.md#margin)*, and your rule judges its margins. Where the paper states no inequality that can be tested, this course drew one
# up (†). Such claims, and the one that is computed, count apart:

# %% tags=["folded"]
# @title The verdicts, counted
from collections import Counter

from dspark_lite.course.replication import ledger


def kind_of(claim):
    """Who states a claim, and whether what stands against it was measured."""
    if claim.sense == "equal":
        return "computed, not measured"
    return "stated by the paper" if claim.stated_by == "the paper" else "an inequality of this course (†)"


counts = {}
for entry in ledger.entries():
    bounds = np.array([(margin.low, margin.high) for margin in entry.margins.values()])
    judged = verdict(bounds) if entry.margins else "cannot be tested here"
    assert not entry.margins or judged == entry.verdict
    counts.setdefault(kind_of(entry.claim), Counter())[judged] += 1
for kind, found in counts.items():
    print(f"{kind:33}", ", ".join(f"{outcome}: {number}" for outcome, number in found.items()))
stated = counts["stated by the paper"]
glue(replicate=stated["replicates"], measured=sum(stated[outcome] for outcome in exercises.VERDICTS))

# %% [markdown]
# Each line below is a margin: ours a dot with its interval, the paper's hollow where it gives the number. Trainings are means of three; a double
# dagger (‡) marks a row that compares single ones. Mind the axes: one unit a panel, and logarithmic far from zero. A number beside
# a verdict is that of a note in `assets/figures/tables.md`: what failed, and which experiments were made.

# %%
from dspark_lite.course.figures import ledger_forest

picture = ledger_forest.forest("drafts")

# %%
picture = ledger_forest.forest("confidence")

# %%
picture = ledger_forest.forest("serving")

# %% [markdown]
# On static blocks we cannot tell: there a DSpark drafts seven and verifies three, five or seven, where the paper's MTP-3 drafts three.
# Appendix A's example, the last row, is computed and has the paper's numbers.
#
# ### ★ The head, or the losses?
#
# DSpark has a head and losses that DFlash lacks. Which of them earns the lead of row 1? Each line is the gain in accepted length from
# changing one while the other stays, three trainings of each.

# %%
from dspark_lite.course.replication import experiments

for exchanged, found in experiments.head_and_losses().items():
    print(f"{exchanged:51} {experiments.percent(found['all'])}")

# %% [markdown]
# Both. Each gains without the other, so each is a cause.
#
# ### ★ Depth
#
# In the paper's Figure 3 two layers of DSpark accept longer than five of DFlash. Do two of our layers with a head beat a DFlash of full depth?

# %%
picture = paper_figures.figure_3()

# %% [markdown]
# Yes: at 2 layers the filled blue mark lies above the solid orange line, DFlash at full depth, in every domain, and by more than in the
# paper. But DSpark's losses differ from DFlash's, too: the head need not be the only reason. (One training of each depth.)
#
# ### ★ Draft length
#
# The longer the block, the more a head should bring, Markov or RNN (Figure 4). Does DSpark's gain over DFlash rise, in the lower row?

# %%
picture = paper_figures.figure_4()

# %% [markdown]
# Yes, it rises in every domain. For this figure finished drafters were trained on, *one* training of each. On math the Markov head's one
# training is its luckiest of three, so the RNN head (black) below it there proves nothing.
#
# A round with a head takes longer than DFlash's, by the per cent below (timings, so no training's luck). The head's small step per slot is
# the suspect; no experiment has settled that guess.

# %%
picture = paper_figures.figure_4_latency()

# %% [markdown]
# ### Exercise 6 · A claim of your own (open)
# *20 minutes · hard · optional.*
#
# `tallies(name, domain)` has tokens and rounds of each prompt, [N, 2]; `experiment_results.counts_by_position(studies.TABLE_1["dspark"], "math")`
# [N, gamma, 2] how many of its rounds accepted the draft at a position and how many reached it. Choose a claim that these can answer
# ("DSpark's lead over DFlash is larger late in a block than early"). Write it as a number that must be above zero *before* you compute
# anything, then let your `verdict` speak, as the cell does.
#
# `paired(statistic, ours, theirs)` draws the same prompts for both sides, each a list of arrays, one for each domain. `statistic` gets both
# lists with the R resamples as a new first axis, [R, N, 2] or [R, N, gamma, 2], and returns [R].

# %%
from dspark_lite.course.estimates import paired


def must_be_above_zero(ours, theirs):
    """DSpark's accepted length less twice MTP-1's, in each of the R resamples; `ours` and `theirs` have an array [R, N, 2] per domain."""
    dspark, mtp = (tally[..., 0].sum(-1) / tally[..., 1].sum(-1) for tally in (ours[0], theirs[0]))  # the one domain; [R] each
    return dspark - 2 * mtp


found = paired(must_be_above_zero, [tallies("dspark", "math")], [tallies("mtp", "math")])
print(f"{found.value:+.2f} tokens per round [{found.low:+.2f}, {found.high:+.2f}]: {verdict(np.array([[found.low, found.high]]))}")

# %% [markdown]
# ### ★ Measure a row yourself
#
# We measure every fifth prompt of a stored row again, with other draws. The two values should lie close together, though twenty prompts are
# not a hundred. (A first try with ten had landed outside of the stored interval, so we doubled them. That is how one should *not* choose a
# size. The stored row is the measurement, this a demonstration.)

# %%
import dspark_lite
from dspark_lite.course.measure import evaluation

stored = made[studies.TABLE_1["dspark"]]["prompts"]["chat"]
lab = dspark_lite.setup("tiny", prompts=stored, seed=1000)
drafter = lab.drafter("dspark")
fresh = evaluation.tally(evaluation.rollouts_side_by_side(lab, drafter, lab.prompts["chat"][::5], temperature=1.0))
once, whole = estimates.bootstrap(evaluation.mean_accepted_length, [fresh]), experiment_results.accepted_lengths(studies.TABLE_1["dspark"])["chat"]
print(f"{len(fresh):3} prompts, other draws: {once.value:.2f} [{once.low:.2f}, {once.high:.2f}]")
print(f"{stored:3} prompts, stored:     {whole.value:.2f} [{whole.low:.2f}, {whole.high:.2f}]")

# %% tags=["folded"]
# @title Measures your lab's DSpark, where its models are not the recorded ones
from dspark_lite.course import paper
from dspark_lite.course.replication.lab_results import measure_lengths

your_lab = dspark_lite.setup()
lab_lengths, lab_name = measure_lengths(your_lab), f"{your_lab.target.name} on {your_lab.device_name}"
if lab_lengths:  # a few prompts of each domain, measured once, and kept
    for domain, found in lab_lengths.items():
        print(f"{lab_name}, DSpark, {domain:5} {found.value:.2f} [{found.low:.2f}, {found.high:.2f}]; paper (its own prompts) "
              f"{paper.domain_means('Qwen3-4B', 'dspark')[domain]:.2f}")
    picture = paper_figures.draw_lab_lengths(lab_lengths, lab_name)
del your_lab

# %% [markdown]
# Hold any drafter against any other, beside the paper's. The key says how many trainings of each stand behind our marks. On which of its
# four targets does Eagle3 come closest to DSpark?
#
# <details><summary>Answer</summary>
#
# On Gemma4-12B, in every domain. There Eagle3 is also ahead of DFlash, as it is here, though not on the Qwen3 targets.
#
# </details>

# %% tags=["folded"]
# @title Any drafter against any other
from dspark_lite.course.figures import widgets

choices = [(DRAFTER_LABELS[name], name) for name in ("dspark", "dflash", "eagle3", "mtp", "small_lm")]
panel = widgets.explore(paper_figures.gain_by_domain, {"theirs": "eagle3"}, ours=widgets.menu("drafter", choices),
                        theirs=widgets.menu("against", [*choices[1:], choices[0]]), target=widgets.menu("paper's target", paper.TARGETS))

# %% tags=["claim"]
from dspark_lite.course.replication import acceptance_over_seeds

rivals = ("eagle3", "dflash")
over = {rival: experiment_results.gains_over_seeds(studies.SEEDS["dspark"], studies.SEEDS[rival]) for rival in rivals}
turned = experiment_results.gains_over_seeds(studies.SEEDS["eagle3"], studies.SEEDS["dflash"])
theirs = {name: paper.domain_means("Qwen3-4B", name) for name in ("dspark", *rivals)}
by_row = {number: more for number, (_, more, _) in enumerate(rows, 1)}
math_lengths = [experiment_results.accepted_lengths(run)["math"].value for run in studies.SEEDS["dspark"]]
by_gain = [experiment_results.gains(*(studies.LENGTH_STUDY[name, length] for name in ("dspark", "dflash"))) for length in studies.LENGTHS]
growth = [[gains[domain].value for gains in by_gain] for domain in DOMAINS]
overheads = [experiment_results.longer_round(name, length).estimate()
             for name in ("dspark", "dspark_rnn") for length in studies.LENGTHS]
with_losses = {domain: acceptance_over_seeds.lead(studies.LOSSES["dflash"], studies.SEEDS["eagle3"], domain, 1) for domain in DOMAINS}
noted = {part: [entry for group in ledger.by_units(part) for entry in group if entry.why] for part in ledger.SECTIONS}
claims({"DSpark is on top everywhere, here and in the paper": all(over[rival][domain].low > 0 for rival in rivals for domain in DOMAINS)
            and all(theirs["dspark"][domain] > theirs[rival][domain] for rival in rivals for domain in DOMAINS),
        "Eagle3 is ahead of DFlash here in every domain, and behind it in the paper": all(
            turned[domain].low > 0 and theirs["dflash"][domain] > theirs["eagle3"][domain] for domain in DOMAINS),
        "two replicate, two do not hold, of one we cannot tell": list(verdicts.values())
            == ["replicates", "replicates", "does not hold", "does not hold", "we cannot tell"],
        "over DFlash the lead is larger than in the paper, over Eagle3 smaller": all(
            by_row[1][domain].value > theirs["dspark"][domain] / theirs["dflash"][domain] - 1
            and by_row[2][domain].high < theirs["dspark"][domain] / theirs["eagle3"][domain] - 1 for domain in DOMAINS),
        "over DFlash it is 30 % and more": min(found.value for found in by_row[1].values()) > 0.3,
        "on code the lead over Eagle3 just misses zero": 0 < by_row[2]["code"].low < 0.01,
        "row 3: math far below code, the other green": by_row[3]["math over code"].high < -0.1 < 0 < by_row[3]["code over chat"].low,
        "row 4: math holds zero, chat lies below, and ends close to it": by_row[4]["math"].low < 0 < by_row[4]["math"].high
            and -0.01 < by_row[4]["chat"].high < 0,
        "the first interval holds neither of the other trainings, nor the mean": all(
            not shipped.low <= found.value <= shipped.high for found in (*apart[1:], together)),
        "the interval over trainings is wider": together.high - together.low > shipped.high - shipped.low,
        "the shipped DSpark is the luckiest of three on math": math_lengths[0] == max(math_lengths),
        "each training of A begins above each of DFlash and of Eagle3": min(begins["A: DFlash, DSpark's losses"])
            > max(*begins["DFlash"], *begins["Eagle3, one layer"]),
        "DFlash begins no better than Eagle3, and B lowest": np.mean(begins["DFlash"]) < np.mean(begins["Eagle3, one layer"])
            and max(begins["B: DSpark, one layer"]) < min(begins["DFlash"]),
        "with DSpark's losses row 4 would replicate, and on code it would not": all(
            found.low > 0 for found in (with_losses["math"], with_losses["chat"])) and with_losses["code"].high < 0,
        "three bounds fail: certainty on math and code, and the small LM on code": [(gate["name"].split()[0], gate["domain"]) for gate in failing]
            == [("tokens", "math"), ("tokens", "code"), ("accepted", "code")],
        "all drafters accept longest on code": all(
            np.argmax([experiment_results.accepted_lengths(run)[domain].value for domain in DOMAINS]) == DOMAINS.index("code")
            for kind in (*studies.SEEDS.values(), studies.TABLE_1.values()) for run in kind),
        "of serving one row stays undecided, that on static blocks": [entry.claim.id for entry in noted["serving"]] == ["static blocks"],
        "head and losses each gain without the other": all(found["all"].low > 0 for found in experiments.head_and_losses().values()),
        "the gain over DFlash rises with the draft length": all(rises == sorted(rises) for rises in growth),
        "a round with a head takes longer than DFlash's": all(found.value > 0 for found in overheads)})
