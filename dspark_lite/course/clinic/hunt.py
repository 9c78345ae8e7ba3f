"""The hunt of lesson 08: the tensors that a DSpark computes, programs with a secret mistake, and
what a look at a tensor can tell."""

import random
from collections.abc import Callable
from functools import cache

import torch

from ...decoding.target import Target
from ...drafters import DSpark
from ...models.checkpoints import load_drafter, load_target
from . import patients
from .patients import Service, altered

LOOKS = 6  # tensors of a program that a reader may look at
PROGRAMS = 3
SEED = 2  # of the lesson: one of its three programs has the mistake of an engine
ALLOWED = 1e-3  # a difference that rounding explains
PROMPT = "Please recommend a quiet place for lunch."


def context_norm_left_out(service: Service) -> Service:
    """Let the context's vectors enter without their norm."""
    drafter = altered(service.drafter)
    drafter.hidden_norm = torch.nn.Identity()
    return Service(service.target, drafter)


def key_norms_left_out(service: Service) -> Service:
    """Let the context's keys enter the cache without their norm."""

    def extend_context(self, cache, features):
        norms = [layer.self_attn.k_norm for layer in self.layers]
        for layer in self.layers:
            layer.self_attn.k_norm = torch.nn.Identity()
        DSpark.extend_context(self, cache, features)
        for layer, norm in zip(self.layers, norms):
            layer.self_attn.k_norm = norm

    return Service(service.target, altered(service.drafter, extend_context=extend_context))


def context_late(service: Service) -> Service:
    """Begin the context's positions at 1; the block's are right."""

    def extend_context(self, cache, features):
        late = altered(self, rope=lambda self, positions: DSpark.rope(self, positions + 1))
        DSpark.extend_context(late, cache, features)

    return Service(service.target, altered(service.drafter, extend_context=extend_context))


MISTAKES: dict[str, Callable[[Service], Service]] = {
    "taps one layer early": patients.taps_early,
    "context norm left out": context_norm_left_out,
    "key norms left out": key_norms_left_out,
    "one norm for all keys": patients.key_norms,
    "another rotary base": patients.rotary_base,
    "context one place late": context_late,
    "mask for the anchor": patients.mask_for_anchor,
    "final norm left out": patients.norm_missing,
    "head left out": patients.head_left_out,
    "block left in the cache": patients.block_kept,
}


@torch.inference_mode()
def trace(target: Target, drafter: DSpark, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what a DSpark computes in two rounds after ids [1, n], {name: tensor} in the order of
    computation.

    The second round begins with the target's own token; it is the first round's anchor that enters
    the context.
    """
    output, _ = target.prefill(ids, drafter.taps)
    anchor = output.logits[:, -1].argmax(-1)
    tensors = {
        "taps of the target": output.features,
        "taps, projected": drafter.fc(output.features),
        "taps, normed": drafter.context(output.features),
    }
    attentions, normed, last = [layer.self_attn for layer in drafter.layers], [], []

    def note(module, given, output):
        if any(module is attention.k_norm for attention in attentions):
            normed.append(output)
        if module is drafter.norm:
            last.append(given[0])

    hook = torch.nn.modules.module.register_module_forward_hook(note)
    try:
        cache = drafter.begin(ids, output.features)
        read = cache.length
        context = [(keys[:, :, :read].clone(), values[:, :, :read]) for keys, values in cache.pairs]
        hidden = drafter.block_hidden(cache, anchor)
    finally:
        hook.remove()
    for index, (attention, (keys, values)) in enumerate(zip(attentions, context)):
        tensors |= {
            f"layer {index + 1}: values": values.clone(),
            f"layer {index + 1}: keys, projected": attention.split(
                attention.k_proj(tensors["taps, normed"])
            ),
            f"layer {index + 1}: keys, normed": normed[index],
            f"layer {index + 1}: keys, rotated": keys,
        }
        if not index:
            tensors["layer 1: keys, rotated, of the first token"] = keys[:, :, :1]
    tensors |= {
        "block: embedded": drafter.embed(drafter.block_ids(anchor)),
        "block: after the last layer": last[0],
        "block: hidden states": hidden,
        "block: base logits": drafter.lm_head(hidden),
        "block: logits with the head": drafter.draw_block(hidden, anchor, 0.0, None)[1],
    }
    after, _ = target.prefill(torch.cat([ids, anchor[None]], 1), drafter.taps)
    drafter.extend(cache, None, after.features[:, -1:])
    second = drafter.block_hidden(cache, after.logits[:, -1].argmax(-1))
    return tensors | {"second block: hidden states": second}


def largest_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the largest absolute difference of two tensors [1, n, ...] and [1, m, ...] in the
    places that both have."""
    shared = min(ours.shape[1], theirs.shape[1])
    return (ours[:, :shared] - theirs[:, :shared]).abs().max().item()


@cache
def differences() -> dict[str, dict[str, float]]:
    """Return {mistake: {tensor: largest difference}} of the tiny DSpark with each mistake from the
    tiny DSpark as it is."""
    target = load_target("tiny-target", device="cpu")
    healthy = Service(target, load_drafter("tiny-dspark", target))
    ids = target.tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPT}],
        add_generation_prompt=True,
        enable_thinking=False,
        return_dict=False,
    )
    ids = torch.tensor([ids])
    ours, sizes = trace(target, healthy.drafter, ids), {}
    for name, mistake in MISTAKES.items():
        theirs = trace(target, mistake(healthy).drafter, ids)
        sizes[name] = {tensor: largest_difference(ours[tensor], theirs[tensor]) for tensor in ours}
    return sizes


def differing(mistake: str) -> set[str]:
    """Return the tensors that a mistake makes differ."""
    return {tensor for tensor, size in differences()[mistake].items() if size > ALLOWED}


def secret(seed: int = SEED) -> dict[int, str]:
    """Return which mistake stands in which program, 1 to PROGRAMS, drawn by the seed."""
    return dict(enumerate(random.Random(seed).sample(sorted(MISTAKES), PROGRAMS), start=1))


class Hunt:
    """Three programs with one secret mistake each; `tensors` are the names that may be looked at,
    `looks` {program: [names]} those that were."""

    def __init__(self, seed: int = SEED):
        self._secret = secret(seed)
        self.tensors = list(next(iter(differences().values())))
        self.looks: dict[int, list[str]] = {program: [] for program in self._secret}

    def drafter(self, program: int, healthy: Service) -> DSpark:
        """Return the drafter of a healthy service with a program's mistake."""
        return MISTAKES[self._secret[program]](healthy).drafter

    def look(self, program: int, tensor: str) -> None:
        """Print how far a program's tensor is from ours; at most LOOKS tensors of each program."""
        if program is ... or tensor is ...:
            print("Put the number of a program and the name of a tensor in the place of the dots.")
        elif program not in self.looks:
            print(f"There is no program {program!r}; they are 1 to {PROGRAMS}.")
        elif tensor not in self.tensors:
            print(f"There is no tensor {tensor!r}; `hunt.tensors` lists the names.")
        elif tensor not in self.looks[program] and len(self.looks[program]) == LOOKS:
            print(f"Program {program}: your {LOOKS} looks are spent. Reason, or begin a new hunt.")
        else:
            if tensor not in self.looks[program]:
                self.looks[program].append(tensor)
            size = differences()[self._secret[program]][tensor]
            answer = f"differs by {size:.0e}" if size > ALLOWED else "equal"
            print(
                f"program {program}, look {self.looks[program].index(tensor) + 1}: {tensor:42} {answer}"
            )


def findings_of(cause: str, looks: list[str]) -> list[tuple[str, bool, set[str]]]:
    """Return (tensor, whether it differs, causes that it rules out among those that the looks
    before left) of each look at a program with a mistake."""
    left, findings = set(MISTAKES), []
    for tensor in looks:
        seen = tensor in differing(cause)
        ruled_out = {other for other in left if (tensor in differing(other)) != seen}
        findings.append((tensor, seen, ruled_out))
        left -= ruled_out
    return findings


def report(looks: dict[int, list[str]], seed: int = SEED) -> None:
    """Print what each look ruled out, and which could rule out nothing."""
    for program, cause in secret(seed).items():
        print(f"program {program}: {cause}")
        for tensor, seen, ruled_out in findings_of(cause, looks[program]):
            what = (
                f"rules out {', '.join(sorted(ruled_out))}"
                if ruled_out
                else "could tell nothing: whatever was left agrees here"
            )
            print(f"   {tensor:42} {'differs' if seen else 'equal':8} {what}")
