"""My own DSpark: what the course asks its reader to write, in the order in which data walks through a round.

Shapes: n committed tokens, g drafts, H hidden size, V vocabulary, d head size. One request, no batch dimension.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import DynamicCache


# Lesson 00: the whole idea, greedy and without a cache. `big` and `little` map ids [1, n] to logits [1, n, V].
def speculate(big, little, ids, count, gamma=7):
    """`count` new tokens after ids [1, n]: the big model's own greedy text."""
    end = ids.shape[1] + count
    while ids.shape[1] < end:
        draft = ids
        for _ in range(gamma):  # the little model writes ahead
            draft = torch.cat([draft, little(draft)[:, -1:].argmax(-1)], 1)
        want = big(draft)[0, ids.shape[1] - 1:].argmax(-1)  # one pass: what the big one writes after every prefix
        guess = draft[0, ids.shape[1]:]
        right = int((guess == want[:-1]).cumprod(0).sum())  # right up to the first difference
        ids = torch.cat([ids, guess[None, :right], want[None, right:right + 1]], 1)  # those, and its own next token
    return ids[:, :end]


# Lesson 02: the lossless rule.
def toss(chance, generator):
    """A coin that comes up true with probability `chance`."""
    return bool(torch.rand((), generator=generator) < chance)


def draw(probs, generator):
    """One token from probs [V]."""
    return int(torch.multinomial(probs, 1, generator=generator))


def probabilities(logits, temperature):
    """Float32 probabilities [..., V] of logits [..., V]; at temperature 0 all mass is on the largest."""
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    return torch.softmax(logits.float() / temperature, -1)


def residual(p, q):
    """What the target still owes after the draft's share: max(p - q, 0), renormalised, [V]."""
    owed = (p - q).clamp(min=0)
    return owed / owed.sum()


def verify(p, q, drafts, generator):
    """The tokens that a round commits: the drafts that are kept and one more. p [g+1, V], q [g, V], drafts a list."""
    for k, x in enumerate(drafts):
        if not toss(p[k, x] / q[k, x], generator):
            return [*drafts[:k], draw(residual(p[k], q[k]), generator)]
    return [*drafts, draw(p[len(drafts)], generator)]


# Lesson 03: the target reads each token once.
def read(model, token_ids, cache, taps=()):
    """One pass over new tokens: logits [k, V] after each, and the tapped hidden states [k, taps * H]."""
    out = model(input_ids=torch.tensor([token_ids]), past_key_values=cache, use_cache=True, output_hidden_states=True)
    features = torch.cat([out.hidden_states[layer + 1][0] for layer in taps], -1) if taps else None
    return out.logits[0].float(), features


def forget(gamma, accepted):
    """How many tokens the target's cache and a small LM's must forget after a round."""
    return gamma - accepted, max(0, gamma - 1 - accepted)


# Lesson 04: a drafter that writes a block in one pass.
class Draft:
    """The weights of a released DSpark draft, by name, and its context: keys and values [heads, n, d] of each layer."""

    def __init__(self, folder):
        self.config = json.loads((Path(folder) / "config.json").read_text())
        weights = load_file(Path(folder) / "model.safetensors")
        self.w = {name: tensor.float() for name, tensor in weights.items()}
        self.gamma, self.taps = self.config["block_size"], self.config["target_layer_ids"]
        self.context = []

    def norm(self, x, name):
        """Root-mean-square norm over the last dimension, with the weight of this name."""
        return F.rms_norm(x, x.shape[-1:], self.w[f"{name}.weight"], self.config["rms_norm_eps"])

    def heads(self, x, name):
        """A linear map of x [k, H], split into heads: [heads, k, d]."""
        return F.linear(x, self.w[f"{name}.weight"]).unflatten(-1, (-1, self.config["head_dim"])).transpose(0, 1)

    def rotate(self, x, start):
        """Turns x [heads, k, d] by its positions start, start + 1, ..."""
        size = x.shape[-1]
        frequency = self.config["rope_parameters"]["rope_theta"] ** -(torch.arange(0, size, 2) / size)
        angle = torch.arange(start, start + x.shape[1])[:, None] * torch.cat([frequency, frequency])
        left, right = x.chunk(2, -1)
        return x * angle.cos() + torch.cat([-right, left], -1) * angle.sin()

    def keys_values(self, x, layer, start):
        """Keys and values [heads, k, d] of x [k, H] in a layer; its first row stands at position `start`."""
        keys = self.norm(self.heads(x, f"{layer}.self_attn.k_proj"), f"{layer}.self_attn.k_norm")
        return self.rotate(keys, start), self.heads(x, f"{layer}.self_attn.v_proj")

    def mlp(self, x, layer):
        """What a layer's MLP adds to x [k, H], the norm before it included."""
        y = self.norm(x, f"{layer}.post_attention_layernorm")
        gate, up = (F.linear(y, self.w[f"{layer}.mlp.{part}_proj.weight"]) for part in ("gate", "up"))
        return F.linear(F.silu(gate) * up, self.w[f"{layer}.mlp.down_proj.weight"])

    @property
    def length(self):
        """Tokens in the context."""
        return self.context[0][0].shape[1] if self.context else 0

    def extend(self, features):
        """Appends committed tokens, features [k, taps * H]: their keys and values, in every layer."""
        x = self.norm(F.linear(features, self.w["fc.weight"]), "hidden_norm")
        new = [self.keys_values(x, f"layers.{n}", self.length) for n in range(self.config["num_hidden_layers"])]
        if self.context:
            new = [tuple(torch.cat(pair, 1) for pair in zip(old, own)) for old, own in zip(self.context, new)]
        self.context = new


def block_pass(draft, anchor):
    """Hidden states [g, H] of one pass over the block, `draft.gamma` slots that begin with the anchor, a token id."""
    ids = torch.tensor([anchor, *[draft.config["mask_token_id"]] * (draft.gamma - 1)])  # the block's tokens [g]
    start = draft.length  # where its first slot stands
    mask = torch.ones(draft.gamma, draft.length + draft.gamma, dtype=torch.bool)  # which keys (columns) a slot (row) may see
    x = draft.w["embed_tokens.weight"][ids]
    for number, context in enumerate(draft.context):
        layer = f"layers.{number}"
        y = draft.norm(x, f"{layer}.input_layernorm")
        queries = draft.norm(draft.heads(y, f"{layer}.self_attn.q_proj"), f"{layer}.self_attn.q_norm")
        keys, values = (torch.cat(pair, 1) for pair in zip(context, draft.keys_values(y, layer, start)))
        mixed = F.scaled_dot_product_attention(draft.rotate(queries, start)[None], keys[None], values[None], mask, enable_gqa=True)[0]
        x = x + F.linear(mixed.transpose(0, 1).flatten(1), draft.w[f"{layer}.self_attn.o_proj.weight"])
        x = x + draft.mlp(x, layer)
    return draft.norm(x, "norm")


# Lesson 05: each token follows the one before.
def transition_bias(draft, previous):
    """The bias [V] that the token before gives the next slot: W2 W1[previous]."""
    return draft.w["markov_head.markov_w2.weight"] @ draft.w["markov_head.markov_w1.weight"][previous]


def draw_block(draft, hidden, anchor, temperature, generator):
    """Drafts [g], a list, and the probabilities q [g, V] they were drawn from: base logits + bias, left to right."""
    base, drafts, q = F.linear(hidden, draft.w["lm_head.weight"]), [], []
    for logits in base:
        previous = drafts[-1] if drafts else anchor
        q.append(probabilities(logits + transition_bias(draft, previous), temperature))
        drafts.append(draw(q[-1], generator))
    return drafts, torch.stack(q)


# Lesson 09: how likely each prefix is to survive.
def survival(draft, hidden, anchor, drafts):
    """The chance [g] that the block survives up to each position: the product of the confidences."""
    before = draft.w["markov_head.markov_w1.weight"][[anchor, *drafts[:-1]]]
    inputs = torch.cat([hidden, before], -1)
    logits = F.linear(inputs, draft.w["confidence_head.proj.weight"], draft.w["confidence_head.proj.bias"])[:, 0]
    return torch.sigmoid(logits).cumprod(0)


# Lesson 10: verify what is worth its place in the batch.
def algorithm_1(survivals, sps):
    """Verification lengths, a list, for survivals [R, g]: admit the likeliest token while each one raises
    (R + sum of admitted survivals) * sps(R + number admitted)."""
    lengths = [0] * len(survivals)
    expected, batch = float(len(survivals)), len(survivals)
    order = sorted(((-chance, k, r) for r, row in enumerate(survivals.tolist()) for k, chance in enumerate(row)))
    for minus_chance, _, request in order:
        if (expected - minus_chance) * sps(batch + 1) <= expected * sps(batch):
            break
        expected, batch, lengths[request] = expected - minus_chance, batch + 1, lengths[request] + 1
    return lengths


def generate(model, draft, ids, count, temperature=0.0, generator=None, sps=None, stop=()):
    """All of it together: at most `count` new tokens after the ids, a list, up to a stop token; and how many each round
    committed."""
    cache = DynamicCache(config=model.config)
    logits, features = read(model, ids, cache, draft.taps)
    draft.context = []
    draft.extend(features)
    text, rounds = [draw(probabilities(logits[-1], temperature), generator)], []
    while len(text) < count and text[-1] not in stop:
        hidden = block_pass(draft, text[-1])
        drafts, q = draw_block(draft, hidden, text[-1], temperature, generator)
        worth = algorithm_1(survival(draft, hidden, text[-1], drafts)[None], sps)[0] if sps else draft.gamma
        drafts = drafts[:min(worth, count - len(text) - 1)]  # what is past the end cannot count
        logits, features = read(model, [text[-1], *drafts], cache, draft.taps)
        new = verify(probabilities(logits, temperature), q, drafts, generator)
        if refused := forget(len(drafts), len(new) - 1)[0]:  # the target's; the draft has no cache of drafts
            cache.crop(-refused)
        draft.extend(features[:len(new)])
        ends = [k for k, token in enumerate(new, 1) if token in stop]
        text += new[:ends[0]] if ends else new
        rounds.append(len(new[:ends[0]]) if ends else len(new))
    return text, rounds


# Lesson 11: the step of an engine, the course's SmallEngine.
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


# Lesson 13: the host works while the device does.
def pipelined(device, host, steps):
    """Runs `steps` steps; the host works on a step's confidences while the next one runs."""
    budget, confidences = None, None
    for _ in range(steps):
        device.start(budget)
        if confidences is not None:
            budget = host(confidences)
        confidences = device.finish()
