# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"]
# # 08 · The released weights
#
# **What you will learn**
# - what is in the file of a draft, and how to prove that every tensor has found its place before a number is trusted
# - whether our modules compute what the reference computes, module by module, in 32 and in 16 bits
# - what "lossless" can mean in 16 bits, and how to judge two greedy answers that differ
# - what the drafts gain on this machine in speed, and cost in memory, beside what others measured and what can be
#   predicted without measuring
#
# **What you need**: lessons 04 and 05 (the modules). On a GPU with 14 GB free, such as Colab's T4, the cells load
# Qwen3-4B and DeepSeek's own drafts, some 15 GB to download; without one they run on the tiny models of this
# repository: of the released drafts you then see the tensor lists, predictions and what a public notebook printed. What is
# marked *(GPU)* shows with the released weights only.
# `python -m dspark_lite doctor` says beforehand what this machine has, what fits, and how long the download takes.
#
# **Sources**: [the released drafts](references.md#released-drafts) and their code, [DeepSpec](references.md#deepspec);
# numbers of a [public notebook](references.md#public-notebook). [Notation](notation.md) · [glossary](glossary.md)

# %% tags=["setup"]
pass

# %%
import torch

import dspark_lite
from dspark_lite.common.names import PROFILES
from dspark_course.exercises import lesson_08 as exercises

lab = dspark_lite.setup()
target = lab.target
draft = PROFILES[lab.profile]["dspark"]  # the name of an embedded checkpoint, or a Hub id
print(f"{target.name} on {lab.device_name}: {target.num_layers} layers, {target.vocab_size:,} tokens, {target.dtype}")
print(f"its DSpark is {draft}")

# %% [markdown]
# So far we trusted the lab's drafters. Here we ask for proof. A wrong load need not raise an error: the accept rule of
# lesson 02 corrects every bad draft, the answers stay right, and the only sign of the mistake is that you get less
# speed-up than others do.
#
# ## What is in the file
#
# A draft is a folder with two files. `config.json` says what it was made for and of which size.

# %%
from dspark_lite.models.checkpoints import load_draft_alone, load_target, read_config, resolve

config = read_config(resolve(draft))
for field in ("architectures", "num_target_layers", "target_layer_ids", "num_hidden_layers", "hidden_size",
              "block_size", "mask_token_id", "markov_head_type", "markov_rank", "enable_confidence_head"):
    print(f"{field:24} {config[field]}")

# %% [markdown]
# `model.safetensors` holds the weights. It begins with eight bytes that give the length of a table, then the table as
# JSON, then nothing but numbers. There is no code in it that could run, which is why this course reads no other format.

# %%
import json

from dspark_lite.models import inspection, weights

path = resolve(draft) / "model.safetensors"
with path.open("rb") as file:
    length = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(length))
header.pop("__metadata__", None)
stored = inspection.stored(draft)  # {tensor: shape and type}, as the package reads it
assert {name: tuple(entry["shape"]) for name, entry in header.items()} == {
    name: found.shape for name, found in stored.items()}
print(f"{len(stored)} tensors in {path.stat().st_size:,} bytes, of which the table takes {length + 8:,}")
for name in ("fc.weight", "layers.0.self_attn.k_proj.weight", "markov_head.markov_w1.weight", "lm_head.weight"):
    print(f"  {name:34} {stored[name].shape!s:18} {stored[name].dtype}")

# %% [markdown]
# Which part takes how much? The lower bar is the draft that DeepSeek released for Qwen3-4B, from a list of its tensors
# that this repository keeps. (The confidence head is too small to see.)

# %%
from dspark_lite.common import recorded
from dspark_course.figures import lesson_08 as figures

manifest = recorded.reference("released_manifest.json")
listed = manifest["deepseek-ai/dspark_qwen3_4b_block7"]["tensors"]
files = {"this lab": inspection.by_part({name: found.nbytes for name, found in stored.items()}),
         "DSpark for Qwen3-4B": inspection.by_part({name: 2 * torch.Size(shape).numel() for name, shape in listed.items()})}
picture = figures.file_parts(files, {"embedding", "LM head"})

# %% [markdown]
# The hatched parts are copies of the target's embedding and LM head, which were frozen while the draft was trained. A
# released file carries them so that it can be loaded without the target's file. In memory we keep one copy.
#
# ## Does every tensor find its place?
#
# Our module asks for tensors by name and shape; the file offers names and shapes. Three things can go wrong: a name is
# asked for and not there (*missing*), there and not asked for (*unexpected*), or there with another shape
# (*misshapen*). A loader that is told to overlook them (`strict=False` in torch) leaves random numbers where something
# is missing, and goes on.
#
# ### Exercise 1 · Compare the lists (code)
# Both arguments map names to shapes. Return three sets of names: missing, unexpected, misshapen.
#
# <details><summary>Hint</summary>
#
# The names of a dict behave like a set: which set operations give the first two? For the third, look at the names that both have.
#
# </details>


# %% tags=["exercise"]
def place(asked, found):
    """(missing, unexpected, misshapen), from {name: shape} of the module and of the file."""
    ...


done = exercises.check_place(place)


# %% tags=["solution"]
def place(asked, found):
    """(missing, unexpected, misshapen), from {name: shape} of the module and of the file."""
    both = asked.keys() & found.keys()
    return asked.keys() - both, found.keys() - both, {name for name in both if asked[name] != found[name]}


done = exercises.check_place(place)

# %% [markdown]
# The module is built on torch's *meta* device, which knows shapes and holds no numbers, so this costs no memory, and
# can be done for drafts that nobody has downloaded.

# %%
def report(name, placement):
    """One line: what is missing, unexpected, misshapen."""
    lists = zip(placement._fields, placement)
    print(f"{name:38}", "  ".join(f"{kind}: {', '.join(sorted(names)) or 'none'}" for kind, names in lists))


asked = inspection.asked_for(config)
placement = inspection.place(asked, {name: found.shape for name, found in stored.items()})
report(draft, placement)
assert not any(placement)

# %% [markdown]
# Now all nine drafts that DeepSeek released for Qwen3, from the list:

# %%
for name, released in manifest.items():
    shapes = {tensor: tuple(shape) for tensor, shape in released["tensors"].items()}
    placement = inspection.place(inspection.asked_for(released["config"]), shapes)
    report(name.removeprefix("deepseek-ai/"), placement)
    assert not any(placement)

# %% [markdown]
# And a file in which somebody has renamed one tensor. The comparison names both sides of the mistake; `load_drafter` compares
# in the same way and raises an error.

# %%
renamed = {name.replace("hidden_norm", "context_norm"): found.shape for name, found in stored.items()}
report("one tensor renamed", inspection.place(asked, renamed))

# %% [markdown]
# ### Exercise 2 · What a draft adds (code)
# How many bytes, a whole number, does a draft add to a target that is in memory already? Given are the shapes of its
# tensors by name, the names that are copies of the target's, and the bytes that a number takes (2 in 16 bits, 4 in 32).


# %% tags=["exercise"]
def added_bytes(shapes, copies, bytes_per_number):
    """Bytes that a draft of these {name: shape} adds to the target."""
    ...


done = exercises.check_added_bytes(added_bytes)


# %% tags=["solution"]
def added_bytes(shapes, copies, bytes_per_number):
    """Bytes that a draft of these {name: shape} adds to the target."""
    return sum(torch.Size(shape).numel() for name, shape in shapes.items() if name not in copies) * bytes_per_number


done = exercises.check_added_bytes(added_bytes)

# %% [markdown]
# All names fit, so we load the draft. The embedding and the LM head of the draft are compared with the target's while
# they are read; where they are equal, the target's own tensors are used. (In float32 a number takes 4 bytes, twice what it
# takes in the file.)

# %%
dspark = lab.drafter("dspark")
own = {"embed_tokens.weight": target.model.get_input_embeddings().weight,
       "lm_head.weight": target.model.get_output_embeddings().weight}
shared = {name for name, weight in own.items() if dspark.get_parameter(name).data_ptr() == weight.data_ptr()}
added = sum(value.nbytes for name, value in dspark.named_parameters() if name not in shared)
print("shared with the target:", ", ".join(sorted(shared)) or "nothing")
print(f"in memory {added / 1e6:,.1f} MB are the draft's own; in {target.dtype} the whole draft would take "
      f"{sum(value.nbytes for value in dspark.parameters()) / 1e6:,.1f} MB")
assert added == weights.held(target, dspark, 0)["drafter"]

# %% [markdown]
# ## Does it compute the same?
#
# Names and shapes say nothing about what is done with the numbers. For that the repository keeps *reference tensors*:
# small random models that were run once through DeepSeek's public code, with the inputs and outputs of each part
# written down. We give each of our modules the reference's own input, so that an error belongs to one module alone. What we
# put down to rounding is an error of at most 2e-4 (`TOLERANCE`).

# %%
from safetensors.torch import load_file

from dspark_lite.losslessness.parity import TOLERANCE

folder = recorded.REFERENCE / "golden" / "dspark_vanilla"
little, reference = load_draft_alone(folder / "draft"), load_file(folder / "tensors.safetensors")
anchor, hidden = reference["anchor"], reference["block_hidden"]  # [1], [1, g, H]
previous = torch.cat([anchor[:, None], reference["draft_tokens"][:, :-1]], 1)  # [1, g], the token before each slot
with torch.inference_mode():
    state = little.begin(None, reference["context_features"])
    embedded = little.markov_head.markov_w1(previous)  # [1, g, r]
    outputs = {"backbone": (little.block_hidden(state, anchor), hidden),
               "LM head": (little.lm_head(hidden), reference["base_logits"]),
               "sequential head": (reference["base_logits"] + little.markov_head.markov_w2(embedded),
                                   reference["corrected_logits"]),
               "confidence head": (little.confidence_head(torch.cat([hidden, embedded], -1)),
                                   reference["confidence_logits"])}
for module, (ours, theirs) in outputs.items():
    error = (ours - theirs).abs().max().item()
    print(f"{module:16} {tuple(theirs.shape)!s:12} largest absolute error {error:.1e}, "
          f"largest number {theirs.abs().max():.2f}")
    assert error < TOLERANCE and inspection.module_errors("dspark_vanilla")[module] < TOLERANCE

# %% [markdown]
# What is left is the rounding of float32, more than a hundred times below the tolerance. A real mistake is thousands of
# times above it; further down we make three and measure them. `python -m dspark_lite parity assets/reference/golden/*/`
# does this (in the repository's root) for every case, with caches, training pass and whole greedy runs.
#
# A T4 computes in float16, newer GPUs in bfloat16. The same modules once more in each type, and with them the gated and the
# RNN head of lesson 05, a confidence head that sees no token (`conf_plain`), and DFlash, which has no heads:

# %%
cases = ("dspark_vanilla", "dspark_gated", "dspark_rnn", "dspark_conf_plain", "dflash")
types = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
errors = {name: [inspection.module_errors(case, dtype) for case in cases] for name, dtype in types.items()}
picture = figures.module_error_figure(errors, TOLERANCE)
for name, dtype in types.items():
    worst = max(error for case in errors[name] for error in case.values())
    print(f"{name:9} rounds to {torch.finfo(dtype).eps:.0e} of a number, largest error of all modules {worst:.0e}")

# %% [markdown]
# The error is set by the number type. float16 has three more fraction bits than bfloat16, so its rounding step is an eighth
# as wide; but its largest number is 65,504, far below bfloat16's. So check once for infinities after loading a draft in
# float16, as the line `assert torch.isfinite(hidden).all()` below does.
#
# ## The first block
#
# Now this lab's draft at work, on a prompt from the public notebook. The target reads the prompt and chooses the anchor; the
# backbone makes one pass; then the block is drawn greedily, once with the sequential head (a Markov head) and once without.

# %%
public = recorded.reference("public_run.json")
prompt = public["first_block"]["prompt"]
prompt_ids = lab.encode(prompt)


@torch.inference_mode()
def draw_at(ids):
    """The block after ids [1, n], whose last token is the anchor: drawn with head, without, and its confidences."""
    dspark = lab.drafter("dspark")
    step, _ = target.prefill(ids[:, :-1], dspark.taps)
    state, anchor = dspark.begin(ids[:, :-1], step.features), ids[:, -1]
    hidden = dspark.block_hidden(state, anchor)  # [1, g, H]
    assert torch.isfinite(hidden).all()
    tokens, _, _ = dspark.draw_block(hidden, anchor, 0.0, None)  # [1, g]
    confidence = dspark.propose(state, anchor, temperature=0.0, generator=None).confidence
    return tokens[0].tolist(), dspark.lm_head(hidden)[0].argmax(-1).tolist(), confidence[0].tolist()


def words(tokens):
    """The text of each token."""
    return [lab.tokenizer.decode([token]) for token in tokens]


answer = dspark_lite.generate(target, None, prompt_ids, max_new_tokens=dspark.gamma + 1, stop_token_ids=()).token_ids
ids = torch.cat([prompt_ids, torch.tensor([answer[:1]], device=lab.device)], 1)  # up to the anchor
tokens, base_tokens, confidence = draw_at(ids)
print(prompt, "\nanchor:", words(answer[:1]))

# %%
wanted = words(answer[1:])
same_target = public if target.name == public["target"] else None  # the public run is of Qwen3-4B
rows = {"the target's own": [(text, "added") for text in wanted],
        "DSpark": figures.judged(words(tokens), wanted),
        "without its head": figures.judged(words(base_tokens), wanted)}
if same_target:
    rows[f"public, {public['device']}"] = [(text, "drafted") for text in public["first_block"]["tokens"]]
picture = figures.blocks(rows)
with_head, without_head = (sum(kind == "kept" for _, kind in rows[name]) for name in ("DSpark", "without its head"))
print(f"{with_head} of {dspark.gamma} drafts are the target's own, {without_head} without the head")

# %% [markdown]
# Blue is what the target itself writes. Green drafts agree with it; the one outlined in orange (×) is the first that does
# not, and the tokens after it (dotted) are ignored. *(GPU)* A last row shows the block that the public notebook printed. Ours
# should be the same, unless two tokens are almost equally likely (a *tie*, see below).
#
# **On the tiny models this block fails**, and the head makes it worse: after ' are' it replaces the right ' s' by ' many'.
# 1 draft is kept with the head, 2 without. The tiny target never learned to answer such a question, and what it writes is
# beside the point.
#
# The confidence head judges the same block:

# %%
picture = figures.confidences(confidence, words(tokens), same_target and public["first_block"], lab.device_name)
for text, said in zip(words(tokens), confidence):
    print(f"{text!r:14} {said:.3f}")

# %% [markdown]
# The confidence of a position is the head's estimate of the chance that its token is accepted if those before it are. On
# the tiny models this head is as mistaken as the draft: it gives the refused ' many' 0.993; lesson 09 measures how often
# that happens. *(GPU)* Hollow marks are the public notebook's.
#
# Look at other places: choose a prompt and how many tokens of the target's answer stand before the anchor. Find a place
# where the sequential head saves all seven drafts, with none kept without it, and one where it loses four or more. (On
# the tiny models the code prompt has both.)

# %%
from dspark_course.figures import widgets

answers = {}


def explore_block(chosen, place):
    """The block after `place` tokens of the target's answer."""
    if chosen not in answers:
        answers[chosen] = dspark_lite.generate(target, None, lab.encode(chosen), max_new_tokens=60).token_ids
    text = answers[chosen][:min(place + 1, len(answers[chosen]))]
    ids = torch.cat([lab.encode(chosen), torch.tensor([text], device=lab.device)], 1)
    tokens, base_tokens, confidence = draw_at(ids)
    wanted = words(dspark_lite.generate(target, None, ids, max_new_tokens=len(tokens), stop_token_ids=()).token_ids)
    return figures.blocks({
        "the target's own": [(word, "added") for word in wanted],
        "DSpark": figures.judged(words(tokens), wanted),
        "without its head": figures.judged(words(base_tokens), wanted),
        "confidence": [(f"{said:.2f}", "drafted") for said in confidence]})


questions = [lab.prompts["chat"][0], lab.prompts["code"][0], lab.prompts["math"][0], prompt]
panel = widgets.explore(explore_block, {"place": 20}, chosen=widgets.menu("prompt", questions),
                        place=widgets.slider("answer token", 6, 0, 50))

# %% [markdown]
# ## What lossless means in 16 bits
#
# In exact arithmetic greedy speculation gives the target's own answer. Numbers are rounded, and a pass over many tokens may
# add them up in another order than passes over one. How much is that? We let the tiny target, which is small enough for any
# machine, write six texts of 32 tokens, one by one, and read each once more in one pass, in each type. For each of the 192
# places we record two numbers: the gap between its two best logits, and how far the gap has moved.
#
# As a start: the three types round to 1e-7, 1e-3 and 8e-3 of a number; the best logits here are 8 to 20; and in about 10
# of 100 places the two best are less than 0.1 apart. Write three numbers, in a list.

# %%
from dspark_course.exercises.predictions import predict

turned = predict("At how many of 100 places does the choice change: in float32, float16, bfloat16?", ...)


# %%
from dspark_course.world.tokenizer import chat_ids


@torch.inference_mode()
def both_ways(model, ids, count):
    """Logits [count, V] at the places after ids [1, n], token by token and in one pass over the same tokens."""
    step, cache = model.prefill(ids)
    tokens, singly = [step.logits[0, -1].argmax()], []
    while len(singly) < count:
        singly.append(model.verify(tokens[-1].view(1, 1), cache).logits[0, -1])
        tokens.append(singly[-1].argmax())
    _, cache = model.prefill(ids)
    return torch.stack(singly), model.verify(torch.stack(tokens[:count])[None], cache).logits[0]


texts = [text for domain in lab.prompts.values() for text in domain[:2]]
moved, largest = {}, {}
for name, dtype in types.items():
    tiny = load_target("tiny-target", device="cpu", dtype=dtype)
    pairs = [both_ways(tiny, torch.tensor([chat_ids(tiny.tokenizer, text)]), 32) for text in texts]
    singly, together = (torch.cat(logits) for logits in zip(*pairs))  # [places, V] each
    largest[name] = singly.abs().max().item()
    best = singly.topk(2).indices
    gap, other = (logits.gather(1, best).diff().neg()[:, 0] for logits in (singly, together))
    moved[name] = gap.numpy(), (gap - other).abs().numpy(), (singly.argmax(-1) != together.argmax(-1)).numpy()
picture = figures.rounding(moved)
turned.beside(", ".join(f"{name} {100 * changed.mean():.1f}" for name, (_, _, changed) in moved.items()))
steps = {name: shift.max() / (torch.finfo(types[name]).eps * largest[name]) for name, (_, shift, _) in moved.items()}
print("largest move, in rounding steps of the largest logit:", ", ".join(f"{name} {step:.1f}" for name, step in steps.items()))

# %% [markdown]
# The places where the choice changed are ringed; rings can coincide. For the second token to overtake the first, rounding must
# move the gap by at least its width: on or above the dashed line. (A ring below it, or in the lower left corner, means that a
# third token overtook both.) In float32 none of 192 gaps is that narrow. In float16 and bfloat16 up to a few of 100 places
# change (how many depends on the processor): there the target was undecided, and both texts are its own as far as its numbers
# can tell. In an answer of hundreds of tokens one such place is enough: from there on each text continues from its own
# token. (Counted in rounding steps float32 moves furthest, presumably because products of 16-bit numbers are summed in float32
# and rounded once.)
#
# So in 16 bits equality must be judged at the *first* difference: could rounding have made the target choose either token?
# If so, it is a *tie*. If not, something is wrong.
#
# ### Exercise 3 · Is it a tie? (code)
# From the target's `logits` [V] at the first difference, the tokens that two answers chose there, and the distance
# `allowed` that rounding excuses: say True or False. Just `allowed` is excused.
#
# <details><summary>Hint</summary>
#
# What would the target have chosen, and which distances from it must rounding explain?
#
# </details>


# %% tags=["exercise"]
def is_tie(logits, ours, theirs, allowed):
    """Whether the target could have chosen either token."""
    ...


done = exercises.check_is_tie(is_tie)


# %% tags=["solution"]
def is_tie(logits, ours, theirs, allowed):
    """Whether the target could have chosen either token."""
    return (logits.max() - torch.minimum(logits[ours], logits[theirs])) <= allowed


done = exercises.check_is_tie(is_tie)

# %% [markdown]
# ## Measure
#
# Four prompts per domain, greedy. The lab holds the target and one drafter: each drafter is freed before the next is loaded.
# It alternates with plain decoding, prompt by prompt, so that a slow phase of the machine hits both alike. On a T4 this is
# the longest cell, some minutes.

# %%
from dspark_lite.common.names import DRAFTER_LABELS
from dspark_course.measure import evaluation, roofline

del dspark  # nobody but the lab may hold it, or it stays in memory beside the next
rivals = ("small_lm", "dflash", "dspark")
few = {domain: texts[:4] for domain, texts in lab.prompts.items()}
runs, beside = ({(name, domain): [] for name in rivals for domain in few} for _ in range(2))  # beside: plain decoding's
held = {"plain": weights.held(target, None, 1024)}


def measure(name):
    """All prompts answered with one drafter and, in turns with it, by plain decoding; what both hold in memory."""
    drafter = lab.drafter(name)
    for chosen in (None, drafter):  # the first run of a shape pays for memory
        dspark_lite.generate(target, chosen, prompt_ids, max_new_tokens=16, stop_token_ids=())
    for domain, prompts in few.items():
        for text in prompts:
            for chosen, answers in ((drafter, runs[name, domain]), (None, beside[name, domain])):
                answers.append(dspark_lite.generate(target, chosen, lab.encode(text), max_new_tokens=lab.max_new_tokens))
    return weights.held(target, drafter, 1024)


for name in rivals:
    held[name] = measure(name)
    peak = weights.peak(lab.device) if lab.device.type == "cuda" else "peak memory is not measured on a CPU"
    print(f"{name:9} measured on {sum(map(len, few.values()))} prompts; {peak}")

# %% [markdown]
# ### Are the answers the target's own?
# For every answer that differs from plain decoding's, `parted` says where, how far the lower of the two tokens' logits
# lies below the largest, and how much rounding excuses: eight rounding steps of the largest logit, more than any move
# above (in 16 bits far more). The price: a real mistake that moves logits by less passes unseen.

# %%
from dspark_lite.losslessness.ties import parted

for name in rivals:
    found = [parted(target, lab.encode(text), ours.token_ids, plain.token_ids)
             for domain in few for text, ours, plain in zip(few[domain], runs[name, domain], beside[name, domain])]
    partings = [parting for parting in found if parting]
    print(f"{name:9} {len(found) - len(partings)} of {len(found)} answers are equal token for token in {target.dtype}")
    for parting in partings:
        print(f"          parts at token {parting.at}: gap {parting.gap:.4f}, excused up to {parting.allowed:.4f}")
    assert all(parting.tied for parting in partings)

# %% [markdown]
# In float32 no answer should differ. So that you see some that do, the tiny models answer the same prompts in bfloat16. (A gap
# of 0 means that both tokens had the very same logit.)

# %%
from dspark_lite.models.checkpoints import load_drafter

tiny = load_target("tiny-target", device="cpu", dtype=torch.bfloat16)
tiny_draft = load_drafter("tiny-dspark", tiny)
for text in (text for prompts in few.values() for text in prompts):
    ids = torch.tensor([chat_ids(tiny.tokenizer, text)])
    ours, theirs = (dspark_lite.generate(tiny, chosen, ids, max_new_tokens=64).token_ids for chosen in (tiny_draft, None))
    if parting := parted(tiny, ids, ours, theirs):
        print(f"{text[:40]!r} parts at token {parting.at}: gap {parting.gap:.4f}, excused up to {parting.allowed:.4f}")
        assert parting.tied

# %% [markdown]
# ### What is gained
# Accepted length and speed. The bars in the left panel are 95 % bootstrap intervals over the prompts. The right panel divides
# each drafter's tokens per second by those of the plain decoding that alternated with it; its points have no intervals, so
# small differences mean nothing. In the table plain decoding's tokens/s, from the same prompts and turns, stand in brackets:
# divide by those, since the rows were measured at different times. *(GPU)* What the public notebook measured on a GB200 stands
# beside ours (hollow); expect agreement within a token or so, since its prompts are not ours and it states no interval.

# %%
from dspark_lite.common import estimates, formats

lengths = {name: {domain: estimates.bootstrap(evaluation.mean_accepted_length,
                                              [evaluation.tally(runs[name, domain])]) for domain in few}
           for name in rivals}


def by_place(answers, names):
    """The generations of some drafters (of `runs` or `beside`) by domain and in "total"."""
    found = {domain: [one for name in names for one in answers[name, domain]] for domain in few}
    return {**found, "total": sum(found.values(), [])}


def speed(found):
    """Tokens per second by place."""
    return {place: evaluation.tokens_per_second(some) for place, some in found.items()}


generations = {"plain": by_place(beside, rivals), **{name: by_place(runs, [name]) for name in rivals}}
speeds = {name: speed(found) for name, found in generations.items()}
plain_beside = {name: speed(by_place(beside, [name])) for name in rivals}  # plain decoding in turns with each drafter
speedups = {name: {place: speeds[name][place] / plain for place, plain in plain_beside[name].items()} for name in rivals}
picture = figures.beside_public(lengths, speedups, same_target, lab.device_name)

# %%
from IPython.display import Markdown

rows = [[DRAFTER_LABELS[name], *(f"{lengths[name][domain].value:.2f}" for domain in few),
         *(f"{speeds[name][place]:.1f} ({plain:.1f})" for place, plain in plain_beside[name].items()),
         f"{speedups[name]['total']:.2f}"] for name in rivals]
rows += [[f"DSpark, public, {found['device']}", *(f"{found['accepted_length'][domain]:.2f}" for domain in few),
          *["-"] * 4, f"{found['speedup']:.2f}"] for found in [same_target] if found]
Markdown(formats.markdown(["drafter", *(f"accepted length, {domain}" for domain in few),
                           *(f"tokens/s (plain), {place}" for place in [*few, "total"]), "times plain, total"], rows))

# %%
for domain in few:
    first, second = sorted(("dflash", "dspark"), key=lambda name: -lengths[name][domain].value)
    overlap = lengths[first][domain].low <= lengths[second][domain].high
    print(f"{domain}: {DRAFTER_LABELS[first]} accepts longer, the intervals {'overlap' if overlap else 'are apart'}")

# %% [markdown]
# On four greedy prompts per domain DFlash accepts longer than DSpark on math and code. Is that so? On 200 prompts, drawn
# at temperature 1, DSpark is ahead on math (6.49 against 6.09 tokens) and level on code (5.79 against 5.65; lesson 06
# prints them). Prompts and temperature both differ; which of them turns the order is open. But on math and code the
# intervals overlap, and **four prompts do not rank drafters whose intervals overlap.** (From four prompts intervals are
# too narrow, so the one on chat is weak evidence, too.)
#
# ### The public notebook's run
# Once more, under its settings: one prompt of each domain, greedy, 96 tokens, and a small LM that drafts four. In
# brackets stand its numbers, of Qwen3-4B on a GB200, from other prompts, the speeds from one: with the tiny models read
# only those. On that GPU the small LM makes decoding slower: drafting four tokens takes four passes of a whole model.
# (Our "times plain" is rough here, from three answers each, not alternating; trust the one above.)

# %%
settings = public["settings"]
assert settings["temperature"] == 0.0  # greedy, as `generate` is unless told otherwise
theirs = {"plain": dict.fromkeys(few, 1.0), "small_lm": public["small_lm_accepted_length"], "dspark": public["accepted_length"]}


def as_public(name):
    """Accepted lengths [3] and tokens per second of a drafter's answers to the first prompt of each domain."""
    chosen = None if name == "plain" else lab.drafter(name)
    answers = [dspark_lite.generate(target, chosen, lab.encode(prompts[0]), max_new_tokens=settings["max_new_tokens"],
                                    gamma=settings["small_lm_gamma"] if name == "small_lm" else None) for prompts in few.values()]
    return [evaluation.mean_accepted_length([evaluation.tally([one])]) for one in answers], evaluation.tokens_per_second(answers)


found = {name: as_public(name) for name in theirs}
base, their_base = found["plain"][1], public["tokens_per_second"]["plain"]
rows = [[DRAFTER_LABELS[name], *(f"{value:.2f} ({there:.2f})" for value, there in zip(values, theirs[name].values())),
         f"{speed:.1f} ({public['tokens_per_second'][name]:.1f})",
         f"{speed / base:.2f} ({public['tokens_per_second'][name] / their_base:.2f})"] for name, (values, speed) in found.items()]
Markdown(formats.markdown([f"{lab.device_name} (public, {public['device']})", *(f"accepted length, {domain}" for domain in few),
                           "tokens/s", "times plain"], rows))

# %% [markdown]
# ### What it costs
# What each of them holds in memory: the target, what the drafter adds, and the keys and values of 1,024 tokens.

# %%
picture = figures.memory_bars(held, 1024)
print(f"the public notebook names {public['memory_gigabytes']} GB in all, on a {public['device']} in bfloat16")

# %% [markdown]
# The small LM is a whole model with an embedding of its own, a draft shares the target's; and yet the small LM adds
# least, with the tiny models and in the prediction below. The bars leave out what CUDA keeps for itself and what a pass
# needs for a moment. The public notebook's 12.4 GB are 2.6 more than we predict below for DSpark; what they include we
# don't know.
#
# ## What should it be?
#
# Lesson 01 gave two floors of a pass: the weights have to be read, and its operations have to be started one after the
# other. For the released models both can be counted without a GPU: bytes from the shapes, operations by running the
# same code on a model as deep as the released one but very narrow. Their sum, as if reading and starting never overlapped,
# with the bandwidth of a data sheet and 10 µs for each start, is a prediction for four GPUs. A plain pass on a T4 takes
# 25.3 ms to read the weights and some 1,800 starts, 43 ms in all. "Bandwidth bound" is the bytes' part of draft and verify
# together; break-even is (draft + verify) / plain pass. The accepted lengths are the paper's, which has none for a small LM
# (it drafts seven here); so its speed is left out.

# %%
competitors = ("plain", *rivals)
picture = figures.predicted_speed(roofline.predictions(drafters=competitors))

# %%
Markdown(roofline.table(("T4", "H200"), competitors))

# %% [markdown]
# Predicted for plain decoding are 51 tokens per second on an H200. The public notebook measured 15.3 on a GB200, a newer
# GPU: its loop takes more than three times as long as predicted, and where that time goes we can't tell. Its ratio is
# nearer: DSpark is 3.67 times as fast as plain decoding there, 4.03 times in the prediction, at other accepted lengths.
#
# Here is what was measured above, in the same units. In the prediction a verification takes hardly longer than a plain
# pass; on one CPU thread clearly longer. Plain decoding's row is the mean of all its turns, the brackets hold the turns
# of that drafter. The last column is how long a user waits for the *first* token: the prompt's pass, which no drafter
# shortens. (Where it is shorter with one, that is noise; so are differences of verify between the drafters, which all
# send eight tokens.)

# %%
rows = []
for name in competitors:
    rounds = [r for generation in generations[name]["total"] for r in generation.rounds]
    draft_ms, verify_ms = (1e3 * sum(getattr(r, part) for r in rounds) / len(rounds)
                           for part in ("draft_seconds", "verify_seconds"))
    tau = sum(r.committed for r in rounds) / len(rounds)
    prefills = [generation.prefill_seconds for generation in generations[name]["total"]]
    tokens_per_second, gained = f"{speeds[name]['total']:.0f}", "1.00"
    if name != "plain":
        tokens_per_second += f" ({plain_beside[name]['total']:.0f})"
        gained = f"{speedups[name]['total']:.2f}"
    rows.append([lab.device_name, DRAFTER_LABELS[name], f"{draft_ms:.1f}", f"{verify_ms:.1f}", f"{tau:.2f}",
                 tokens_per_second, gained, f"{1e3 * sum(prefills) / len(prefills):.1f}"])
heads = ["measured on", "drafter", "draft (ms)", "verify (ms)", "accepted length", "tokens/s (plain)", "times plain", "first token (ms)"]
Markdown(formats.markdown(heads, rows))

# %% [markdown]
# On a T4 reading the weights is most of a pass; on an H200 it is the small part, and starting the many operations from
# Python takes longer than they do. Serving engines record the operations once and replay them: "start of an operation" at 0
# below. Does DSpark's speed-up then rise or fall? Guess first.

# %%
from dspark_course.figures import lesson_01


def explore_device(device, launch, tau):
    """Plain decoding of tau tokens and one round that commits as many, as predicted."""
    row = roofline.predict(device, "dspark", launch=launch)
    return lesson_01.round_cost_figure(tau, row.draft / row.plain, row.verify / row.plain)


panel = widgets.explore(
    explore_device, {"device": "H200"}, {"launch": 0.0}, device=widgets.menu("device", list(roofline.DEVICES)),
    launch=widgets.slider("start of an operation (µs)", 10.0, 0.0, 25.0, 0.5),
    tau=widgets.slider("accepted length τ", 4.0, 1.0, 8.0, 0.1))

# %% [markdown]
# It falls. With starts at 0 only bytes count, so every GPU has the same speed-up, 3.08 at an accepted length of 4. At 10 µs
# per operation it is 3.22 on a T4 and 3.41 on an H200. DSpark's draft reads 30 % of a plain pass's bytes but has only 12 % of
# its starts: the larger the share of the starts, the cheaper the draft.
#
# ### One call for a part of a round
#
# Starting operations one by one is the overhead that we just predicted. `generate(..., fast=True)` is there to remove it on a
# GPU: it gives every round fixed shapes, so that `torch.compile` can translate each part of a round as a whole, and the GPU
# records it once and replays it with a single start (a *CUDA graph*). It draws the same random numbers in the same order, so
# it must write the same text:

# %%
ids, drafter = lab.encode(few["math"][0]), lab.drafter("dspark")
texts = {path: dspark_lite.generate(target, drafter, ids, max_new_tokens=48, temperature=1.0, generator=lab.generator(), fast=fast)
         for path, fast in (("step by step", False), ("fixed shapes", "eager"))}
print(f"the same tokens: {texts['step by step'].token_ids == texts['fixed shapes'].token_ids}, in {len(texts['fixed shapes'].rounds)} rounds")

# %% [markdown]
# `fast="eager"` is fixed shapes without a compiler; `True` compiles, which takes a minute the first time. (In 16 bits
# rounding may part the two texts.) Where the milliseconds of a round go was recorded with the tiny models on one thread,
# at another time than the tables above, so compare within this one only: *eager* is step by step, *fast* is compiled. The
# bound is the time of the matrix products and attentions alone. Python's share is the round's time less that inside
# PyTorch's operators (the functions that compute): near zero it is noise, of either sign.

# %%
from dspark_course.measure.breakdown import breakdown_table, recorded_breakdown

measured = recorded_breakdown()
print(f"{measured['device']}, torch {measured['versions']['torch']}")
Markdown(breakdown_table(measured))

# %% [markdown]
# Plain decoding gains as well, and it gains more: its compiled round takes 0.48 of the time, DSpark's 0.56. So at the
# same accepted length the fast path leaves DSpark 0.86 of its speed-up. That is the direction of the prediction, but not
# its cause: on this CPU Python's share was small before, and what falls by about half is the time in the operators. A
# speed-up is honest only if both sides take the same path: `python -m dspark_lite bench --fast` measures all on the fast
# one, with `--breakdown` it makes this table.

# %% [markdown]
# ## When it is wrong and nobody says so
#
# Three mistakes on the loaded draft, of kinds met in public code (exercise 4 has reports). First, it reads its taps one layer
# early. Second, it is read in the *other layout*, in which slot $k$ predicts the token at its own place instead of the next
# one, so that the anchor's slot predicts nothing and six drafts are left. Third, its own block stays in its cache after every
# round. None raises anything, and by the rule of lesson 02 all answers stay right. Which costs most, which least? Guess first.

# %%
import copy

dspark = lab.drafter("dspark")


class NeverForgets(type(dspark)):
    """Leaves every block that it has drafted in its cache."""

    def block_hidden(self, state, anchor):
        hidden = super().block_hidden(state, anchor)
        state.length += self.config.block_size
        return hidden


def with_mistakes(draft):
    """A draft as it is and with each of the three mistakes, by name; all share its weights."""
    early, other, stale = (copy.copy(draft) for _ in range(3))
    early.taps = tuple(max(layer - 1, 0) for layer in draft.taps)
    other.first_slot, other.gamma = 1, draft.gamma - 1
    stale.__class__ = NeverForgets
    return {"as released": draft, "taps one layer early": early, "read in the other layout": other,
            "block left in the cache": stale}


variants = with_mistakes(dspark)
asked_of = [text for prompts in few.values() for text in prompts[:2]]
broken = {label: [evaluation.rollout(lab, variant, text, number, temperature=1.0, max_new_tokens=64)
                  for number, text in enumerate(asked_of)] for label, variant in variants.items()}
picture = figures.diagnosed(broken, dspark.gamma)
for label, found in broken.items():
    early_rounds, late_rounds = ([r.committed for g in found for r in part(g.rounds)]
                                 for part in (lambda rounds: rounds[:1], lambda rounds: rounds[1:]))
    print(f"{label:25} accepted length {evaluation.mean_accepted_length([evaluation.tally(found)]):.2f}: "
          f"{sum(early_rounds) / len(early_rounds):.2f} in the first round, "
          f"{sum(late_rounds) / max(1, len(late_rounds)):.2f} in later ones")

# %% [markdown]
# By position the wrong layout and the stale cache look alike: both lose most drafts at once. The first round tells them
# apart. A cache that is never cleaned begins as well as the right one (5.50 tokens in the first round, 1.73 in later
# ones), and the wrong layout is wrong from the start (1.00). (The right panel jumps: a point has six answers or fewer,
# and in round 2 the draft as released dips as well.) What the wrong layout keeps is mostly the sequential head's doing:
# with `markov_w2` set to zero (in the way of exercise 5), position 1 falls from 0.36 of the rounds to 0.09.
#
# **Taps that are off by one do not show at all**: 5.44 tokens per round, more than the 5.29 of the draft as released. In a
# small target neighbouring layers seem to hold nearly the same. So a healthy accepted length does not prove that a draft is
# read as it was trained.
#
# Does the comparison with reference tensors prove it? Not the one above, which handed each module the reference's own input.
# Let us run all of it, from the prompt on, and compare the target's features, the first block, and after a round the second.
# Write down first, for each mistake, in which of these three its first large error will stand.

# %%
golden_target = load_target(str(folder / "target"))


@torch.inference_mode()
def against_reference(draft):
    """Largest errors, from the prompt on, of the features and of two blocks of a draft with the weights of `little`."""
    step, _ = golden_target.prefill(reference["prompt_ids"], draft.taps)
    state = draft.begin(None, step.features)
    first = draft.block_hidden(state, reference["anchor"])  # [1, g, H]
    draft.extend(state, None, reference["cycle2_new_features"])
    second = draft.block_hidden(state, reference["cycle2_anchor"])
    pairs = {"features": (step.features, reference["context_features"]), "first block": (first, reference["block_hidden"]),
             "second block": (second, reference["cycle2_block_hidden"])}
    return {part: (ours - theirs[:, :ours.shape[1]]).abs().max().item() for part, (ours, theirs) in pairs.items()}


for label, variant in with_mistakes(little).items():
    found = against_reference(variant)
    print(f"{label:25}", "  ".join(f"{part} {error:.0e}" for part, error in found.items()))
    assert (max(found.values()) < TOLERANCE) == (label == "as released")

# %% [markdown]
# Each mistake shows, and the first column in which it does says where to look: the taps in the features, the layout in the
# first block, the stale cache in the second. Compare a *whole run*; a part that is handed the right input is silent about
# what comes before it.
#
# ### Exercise 4 · Name the cause (think)
# Four reports from public issue trackers, all about large models, each with another cause: `"wrong tap"`, `"stale cache"` (the
# draft's, not put back to what was committed), `"other layout"` or `"beyond the block"` (asked for more drafts than it was
# trained for). Which has which?
#
# - A: With every round that refuses a draft the next drafts get worse, until drafting costs more than it gains.
# - B: Of seven drafts a round, 4 % are accepted, and at position 1 only 18 %. Of five drafts a round, 35 % are.
# - C: In a window of four tokens, shorter than the block, the accepted length is 1.06. The draft's publisher states 2.76.
# - D: About one draft a round is lost: 5.56 were accepted on average, and 6.61 after the repair.
#
# <details><summary>Hint</summary>
#
# Which mistake grows from round to round, and which ends when fewer drafts are asked for? Of the other two, one puts every
# draft in a wrong place, the other reads a neighbour of the right layer.
#
# </details>

# %% tags=["exercise"]
diagnosis = {"A": ..., "B": ..., "C": ..., "D": ...}

done = exercises.check_diagnosis(diagnosis)

# %% tags=["solution"]
diagnosis = {"A": "stale cache", "B": "beyond the block", "C": "other layout", "D": "wrong tap"}

done = exercises.check_diagnosis(diagnosis)

# %% [markdown]
# [The four reports](references.md#reports), and what was found in each. (B loses position 1, too: in a parallel backbone
# all slots read each other.)
#
# ### Exercise 5 · A silent mistake of your own (open)
# Break the loaded draft in a fourth way that raises nothing: transpose an `o_proj` (here a square matrix), leave out a
# norm, swap two layers, or double `markov_head.markov_w2`. Write down first how the accepted length by position will
# change, then see. Break `little` in the same way: does `against_reference` show it? One of the four it cannot show.
# Which, does the accepted length show it, and which comparison above would?
#
# <details><summary>Hint</summary>
#
# `copy.deepcopy(dspark)` has weights of its own; then the cell that makes `broken`, with one more entry added inside it,
# below `variants = ...`. Change a weight within `torch.no_grad()`; transpose with `weight.copy_(weight.T.clone())`; put
# `torch.nn.Identity()` in the place of `hidden_norm`; exchange two entries of `layers`.
#
# </details>

# %% [markdown]
# ## In a real engine
#
# What does the same folder do in an engine that people serve with? vLLM has a build for CPUs that drafts with our files.
# `make engine` gives it an environment of its own, starts its OpenAI server on this machine with the tiny target and a
# drafter, sends chat requests through the ordinary client, and reads from the server's metrics what was accepted at each
# position. It takes a while (without a GPU vLLM's drafting kernels are interpreted), so its result is kept. (A prefix
# cache keeps the keys and values of a prompt's beginning for the next request that begins alike; two processes hold half
# of every layer each.)

# %%
from dspark_lite.common.files import ROOT

served = recorded.read(ROOT / "assets" / "measurements" / "engine.json", "make engine")
answered = [row for row in served["rows"] if "not_run" not in row]
heads = ["drafter", "prefix cache", "requests at once", "processes", "texts as ours", "rounds, vLLM", "rounds, generate"]
Markdown(formats.markdown(heads, [
    [DRAFTER_LABELS[row["drafter"]], "on" if row["prefix_cache"] else "off", str(row["at_once"]), str(row["processes"]),
     f"{row['same_texts']} of {row['of']}", *(str(row[who]["rounds"] or "-") for who in ("vllm", "generate"))]
    for row in answered]))

# %%
alone = {row["drafter"]: row for row in answered if not row["prefix_cache"]}
picture = figures.engine_acceptance([alone["dspark"], alone["dflash"]], served["engine"])
for name in ("dspark", "dflash"):
    for who in ("vllm", "generate"):
        counts = alone[name][who]["accepted_by_position"]
        print(f"{DRAFTER_LABELS[name]:7} {who:9} accepted at positions 1 to 7: {'  '.join(f'{n:2}' for n in counts)}, in all {sum(counts)}")

# %% [markdown]
# Every text is ours, token for token: another program, another cache, another scheduler, the same answers. The number of
# rounds is the same, too; then the accepted drafts must add up to the same sum (246 with DSpark, 232 with DFlash), and
# the accepted length cannot show anything. And yet the counts by position differ by one here and there. Noise? Nothing
# here is random: the same weights, the same prompts, greedy. How would you find the cause? This is how we did; the cell
# below checks it.
#
# **Who is right?** We asked two more programs that nobody here wrote: mlx-dspark (a port to Apple's MLX), which reads the same
# folders, and llama.cpp, whose converter does. Both keep exactly our drafts, round by round (`make judges`), so the search is
# in vLLM.
#
# **Is it rounding?** We compared the logits of one block, position by position. Both programs compute in float32, which leaves
# errors of some 1e-5. In vLLM's first block of the first prompt the logits were off by more than ten thousand times as much,
# at the first position already. So it is no number format and nothing that builds up over rounds: the block starts from another
# context, or stands in another place.
#
# **Context or place?** We compared what lies in the draft's cache, layer by layer. The values were equal everywhere; the keys
# were equal in the first layer and in no other. What is done to keys and not to values, and differently in each layer? Think
# before you read on.
#
# <details><summary>Answer</summary>
#
# Keys go through a norm and a rotation. The rotation is the same in all layers; the norm has a weight in each. There it was:
# [vLLM](references.md#vllm) norms the context's keys of all layers in one call, with the weights of all layers, a row each.
# The kernel behind that call on a CPU reads one row: the first layer's weight norms the keys of every layer.
#
# </details>
#
# If that is all, then our drafter must make exactly vLLM's rounds as soon as it makes the same mistake. We can try:

# %%
from dspark_lite.drafters import DSpark


class FirstNorm(DSpark):
    """Norms the context's keys of every layer with the first layer's weight, as vLLM does on a CPU."""

    def extend_context(self, cache, features):
        norms = [layer.self_attn.k_norm for layer in self.layers]
        for layer in self.layers:
            layer.self_attn.k_norm = norms[0]
        super().extend_context(cache, features)
        for layer, norm in zip(self.layers, norms):
            layer.self_attn.k_norm = norm


tiny = dspark_lite.setup("tiny", prompts=served["prompts"])
asked = [tiny.encode(text) for texts in tiny.prompts.values() for text in texts]
ours = tiny.drafter("dspark")
theirs = copy.copy(ours)
theirs.__class__ = FirstNorm


@torch.inference_mode()
def begun(drafter):
    """The logits [g, V] of the first block after the first prompt, and the context's keys by layer."""
    step, _ = tiny.target.prefill(asked[0], drafter.taps)
    cache, anchor = drafter.begin(asked[0], step.features), step.logits[:, -1].argmax(-1)
    keys = [layer[:, :, :cache.length].clone() for layer in cache.keys]
    return drafter.draw_block(drafter.block_hidden(cache, anchor), anchor, 0.0, None)[1][0], keys


(right, right_keys), (wrong, wrong_keys) = begun(ours), begun(theirs)
print("keys differ by layer:       ", "  ".join(f"{(a - b).abs().max():.2g}" for a, b in zip(right_keys, wrong_keys)))
print("logits differ by position:  ", "  ".join(f"{gap:.2g}" for gap in (right - wrong).abs().amax(-1)))

# %%
for name in ("dspark", "dflash"):
    ours = tiny.drafter(name)
    theirs = copy.copy(ours)
    theirs.__class__ = FirstNorm
    for label, drafter in (("ours", ours), ("with the mistake", theirs)):
        played = [dspark_lite.generate(tiny.target, drafter, ids, max_new_tokens=served["tokens"]) for ids in asked]
        print(f"{DRAFTER_LABELS[name]:7} {label:17} rounds by answer: {[len(answer.rounds) for answer in played]}")
    kept = [sum(r.accepted > k for answer in played for r in answer.rounds) for k in range(ours.gamma)]
    print(f"{DRAFTER_LABELS[name]:7} with the mistake  accepted at positions 1 to 7: {kept}")
    assert kept == alone[name]["vllm"]["accepted_by_position"]

# %% [markdown]
# With the mistake ours accepts at each position exactly as many drafts as vLLM's server counted. (That the rounds added up to
# as many was chance: one answer takes one more, another one fewer.) From the other side, `make judges` calls vLLM's kernel
# once per layer, and its rounds are ours.
#
# On these small weights it costs next to nothing, perhaps because the norms of a briefly trained draft are still alike (in
# DSpark's second and third layer 4 % and 10 % off the first's). Large weights are hit harder: vLLM's kernels for Intel GPUs
# had the same mistake until September 2026, and [the test that found it](references.md#vllm-norm) saw an accepted length of
# 1.08 with DSpark on Qwen3-4B where 3.99 was expected.
#
# ## Recap
# - A draft is a table of names and shapes and the numbers that follow it. Compare the table with what the module asks for:
#   nothing missing, nothing unexpected, no other shape.
# - Module by module against reference tensors, errors are the rounding of the type and nothing else.
# - In 16 bits two greedy answers may part at a tie of the target's logits. Judge the first difference, by its gap.
# - A draft shares the target's embedding and LM head, which at 4B are more than half of its file.
# - Bytes over bandwidth plus operations started give a first estimate of a round. A public loop took over three times as long.
# - An engine that accepts other drafts: the same input in both programs, and the first number that differs.
# - A wrong load need not raise an error. The accepted length by position and by round shows some mistakes; it did not show the
#   taps that were one layer early. A whole run against reference tensors, features and second round included, showed all three.
#
# **Next**: [lesson 09](09_confidence.ipynb) asks how far the confidences that we printed can be believed.
