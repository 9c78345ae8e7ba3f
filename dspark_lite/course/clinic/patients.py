"""The clinic's patients: a decoder as it is served, and one-line mistakes that raise nothing and cost the speed.

Each mistake takes a healthy `Service` and returns a sick one that shares its weights. Lesson 14 has them diagnosed by what
measure/symptoms.py measures.
"""

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ...decoding.rounds import generate
from ...decoding.sampling import Randomness, RandomSource, accept, draw
from ...decoding.target import Target
from ...drafters import DSpark
from ...losslessness.enumeration import (
    outcomes,
    output_distribution,
    summed,
    total_variation,
)
from ...losslessness.toys import toy_models
from ...scheduling.cost_table import CostTable

TOKEN_PRICE = 5.0  # what a token costs on the stale cost table, in passes without a token


@dataclass(frozen=True)
class Service:
    """A decoder as it is served: `encode` makes a prompt's token ids [1, n], `rule` accepts, and `costs` is the cost table that
    the scheduler reads."""

    target: Target
    drafter: DSpark
    encode: Callable[[str], torch.Tensor] | None = None
    rule: Callable = accept
    costs: CostTable | None = None


def altered(model, **methods):
    """Return a copy of a drafter or a target with other methods. It shares the weights; what is set
    on it stays its own."""
    other = copy.copy(model)
    if isinstance(model, torch.nn.Module):
        other._modules = dict(model._modules)
    other.__class__ = type(type(model).__name__, (type(model),), methods)
    return other


# What the draft reads


def taps_early(service: Service) -> Service:
    """Let the draft read each tapped layer one too early."""
    drafter = altered(service.drafter)
    drafter.taps = tuple(max(layer - 1, -1) for layer in drafter.taps)
    return replace(service, drafter=drafter)


def features_late(service: Service) -> Service:
    """Let each token enter with the features of the token before it."""

    def extend_context(self, cache, features):
        late = torch.cat([getattr(cache, "newest", features[:, :1]), features[:, :-1]], 1)
        cache.newest = features[:, -1:]
        DSpark.extend_context(self, cache, late)

    return replace(service, drafter=altered(service.drafter, extend_context=extend_context))


def embedding_empty(service: Service) -> Service:
    """Leave the draft's embedding empty: the target's was not handed over."""
    return replace(
        service,
        drafter=altered(service.drafter, embed=lambda self, ids: 0 * DSpark.embed(self, ids)),
    )


def mask_for_anchor(service: Service) -> Service:
    """Begin the block with a mask instead of the anchor."""
    return replace(
        service,
        drafter=altered(
            service.drafter,
            block_ids=lambda self, anchor: DSpark.block_ids(
                self, torch.full_like(anchor, self.config.mask_token_id)
            ),
        ),
    )


def thinking_on(service: Service) -> Service:
    """Leave thinking on in the chat template; the draft has learned answers without."""
    tokenizer, device = service.target.tokenizer, service.target.device

    def encode(prompt: str) -> torch.Tensor:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            add_generation_prompt=True,
            enable_thinking=True,
            return_dict=False,
        )
        return torch.tensor([ids], device=device)

    return replace(service, encode=encode)


def target_scaled(service: Service) -> Service:
    """Scale the target's positions for long texts (YaRN, factor 4); the draft was trained
    without."""
    rotary, plain = service.target.model.model.rotary_emb, service.target.config
    config = copy.deepcopy(plain)
    config.rope_parameters |= {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": plain.max_position_embeddings,
    }
    scaled = type(rotary)(config=config).to(service.target.device)

    def read(self, *given, **options):
        self.model.model.rotary_emb = scaled
        try:
            return Target.read(self, *given, **options)
        finally:
            self.model.model.rotary_emb = rotary

    return replace(service, target=altered(service.target, read=read))


# How the draft computes


def other_layout(service: Service) -> Service:
    """Read slot k as the guess for its own place, not for the next one."""
    drafter = altered(service.drafter)
    drafter.first_slot, drafter.gamma = 1, drafter.gamma - 1
    return replace(service, drafter=drafter)


def norm_missing(service: Service) -> Service:
    """Leave out the norm before the LM head."""
    drafter = altered(service.drafter)
    drafter.norm = torch.nn.Identity()
    return replace(service, drafter=drafter)


def rotary_base(service: Service) -> Service:
    """Let the draft turn its queries and keys by another base than it was trained with."""
    drafter = altered(service.drafter)
    drafter.config = replace(drafter.config, rope_theta=100 * drafter.config.rope_theta)
    return replace(service, drafter=drafter)


def positions_restart(service: Service) -> Service:
    """Let every pass of the draft count its positions from 0."""
    return replace(
        service,
        drafter=altered(
            service.drafter,
            rope=lambda self, positions: DSpark.rope(self, positions - positions[:, :1]),
        ),
    )


def as_in_the_engine(drafter):
    """Return the drafter, which shares its weights, with the mistake that stood in an engine: the
    context's keys of every layer are normed with the first layer's weight."""

    def extend_context(self, cache, features):
        norms = [layer.self_attn.k_norm for layer in self.layers]
        for layer in self.layers:
            layer.self_attn.k_norm = norms[0]
        type(drafter).extend_context(self, cache, features)
        for layer, norm in zip(self.layers, norms):
            layer.self_attn.k_norm = norm

    return altered(drafter, extend_context=extend_context)


def key_norms(service: Service) -> Service:
    """Make the engine's mistake of lesson 08."""
    return replace(service, drafter=as_in_the_engine(service.drafter))


def head_left_out(service: Service) -> Service:
    """Load no sequential head: its bias is zero."""
    drafter, head = altered(service.drafter), altered(service.drafter.markov_head)
    head.step = lambda previous, hidden, state: (
        0 * type(service.drafter.markov_head).step(head, previous, hidden, state)[0],
        state,
    )
    drafter.markov_head = head
    return replace(service, drafter=drafter)


# What the draft remembers


def block_kept(service: Service) -> Service:
    """Keep the draft's own block in its cache after every round."""

    def block_hidden(self, state, anchor):
        hidden = DSpark.block_hidden(self, state, anchor)
        state.advance(self.config.block_size)
        return hidden

    return replace(service, drafter=altered(service.drafter, block_hidden=block_hidden))


def refused_kept(service: Service) -> Service:
    """Let the features of refused drafts enter the draft's cache with the others."""

    def verify(self, *given):
        step = Target.verify(self, *given)
        self.verified = step.features
        return step

    def extend(self, state, token_ids, features):
        self.extend_context(state, features if target.verified is None else target.verified)

    target = altered(service.target, verify=verify)
    drafter = altered(service.drafter, extend=extend)
    target.verified = None
    return replace(service, target=target, drafter=drafter)


def leaks(service: Service) -> Service:
    """Let a request find the draft's cache as the request before has left it."""

    def begin(self, prompt_ids, features):
        if hasattr(self, "left"):
            self.extend_context(self.left, features)
        else:
            self.left = DSpark.begin(self, prompt_ids, features)
        return self.left

    return replace(service, drafter=altered(service.drafter, begin=begin))


def reads_again(service: Service) -> Service:
    """Throw away the draft's cache after every round, and read the whole text again."""

    def extend(self, state, token_ids, features):
        state.read = torch.cat([state.read, features], 1)
        state.advance(-state.length)
        self.extend_context(state, state.read)

    def begin(self, prompt_ids, features):
        state = DSpark.begin(self, prompt_ids, features)
        state.read = features
        return state

    return replace(service, drafter=altered(service.drafter, extend=extend, begin=begin))


# How the service decides


def other_calibration(service: Service) -> Service:
    """Divide the confidence by the temperatures of another draft, which was too sure."""
    drafter = altered(service.drafter)
    drafter.temperatures = torch.full((drafter.gamma,), 2.5)
    return replace(service, drafter=drafter)


def stale_costs(service: Service) -> Service:
    """Take the cost table of a full server: each token costs as much as many passes of this one."""
    sizes = service.costs.batch_tokens
    return replace(service, costs=CostTable(sizes, 1 / (1 + TOKEN_PRICE * sizes)))


def bonus_lost(service: Service) -> Service:
    """Throw away the token that a whole accepted block earns."""

    def rule(target_probs, draft_probs, draft_tokens, lengths, generator):
        verdict = accept(target_probs, draft_probs, draft_tokens, lengths, generator)
        if not draft_tokens.shape[1]:
            return verdict
        whole = verdict.accepted == draft_tokens.shape[1]
        return verdict._replace(
            accepted=verdict.accepted - whole.long(),
            next_token=torch.where(whole, draft_tokens[:, -1], verdict.next_token),
        )

    return replace(service, rule=rule)


# What is not lossless


class _Through(RandomSource):
    """A random source that draws by `change(probs)`, from another `source`."""

    def __init__(self, source: Randomness, change: Callable[[torch.Tensor], torch.Tensor]):
        self.source, self.change = source, change

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        return draw(self.change(probs), self.source)


def _drawing(service: Service, change) -> Service:
    """Return the service whose drafts are drawn by `change(probs)` and claimed to be drawn by
    probs."""

    def propose(self, state, anchor, *, gamma=None, temperature, generator):
        return DSpark.propose(
            self,
            state,
            anchor,
            gamma=gamma,
            temperature=temperature,
            generator=_Through(generator, change),
        )

    return replace(service, drafter=altered(service.drafter, propose=propose))


def summed_in_16_bits(probs: torch.Tensor) -> torch.Tensor:
    """Return what is drawn by probs [..., V] if their running sum, in which a random number is
    looked up, has 16 bits."""
    return (
        probs.cumsum(-1)
        .bfloat16()
        .float()
        .diff(dim=-1, prepend=torch.zeros_like(probs[..., :1]))
        .clamp(min=0)
    )


def sixteen_bits(service: Service) -> Service:
    """Draw drafts by a running sum of probabilities in 16 bits, and accept them by the exact
    ones."""
    return _drawing(service, summed_in_16_bits)


def best_claimed_drawn(service: Service) -> Service:
    """Draft the most probable token, and claim that it was drawn."""
    return _drawing(
        service,
        lambda probs: torch.nn.functional.one_hot(probs.argmax(-1), probs.shape[-1]).float(),
    )


CAUSES = {  # of the ward: each shows on the chart
    "features one late": features_late,
    "empty embedding": embedding_empty,
    "mask for the anchor": mask_for_anchor,
    "thinking on": thinking_on,
    "other layout": other_layout,
    "rotary base": rotary_base,
    "positions restart": positions_restart,
    "head left out": head_left_out,
    "final norm missing": norm_missing,
    "block kept": block_kept,
    "refused kept": refused_kept,
    "leak between requests": leaks,
    "reads all again": reads_again,
    "another draft's calibration": other_calibration,
    "stale cost table": stale_costs,
    "bonus lost": bonus_lost,
    "16-bit draws": sixteen_bits,
    "best one, claimed as drawn": best_claimed_drawn,
}
QUIET = {
    "taps one early": taps_early,
    "one norm for all keys": key_norms,
    "scaled target": target_scaled,
}
BEDS = 14
SEED = 7  # of the lesson's ward
# Which draw lies in which bed: beds 1 to 7 are the lesson's core, and bed 1 is worked out there.
PLACES = (7, 4, 5, 6, 11, 13, 14, 1, 2, 3, 8, 9, 10, 12)


class Patient:
    """A bed of the ward: a service with one mistake, which is not named."""

    def __init__(self, cause: str):
        self._mistake = {**CAUSES, **QUIET}[cause]

    def service(self, healthy: Service) -> Service:
        """Return the patient as it comes in, nothing left in it from an earlier answer."""
        return self._mistake(healthy)

    def distance(self, tokens: int = 3) -> float:
        """Return the total variation between its texts of `tokens` tokens and the target's own, by
        enumeration: the same mistake in random models of two tokens."""
        target, drafters = toy_models()
        healthy = Service(target, drafters["dspark"], costs=CostTable([1, 2, 3], [1.0, 0.9, 0.8]))

        def text(path) -> tuple[int, ...]:
            sick = self.service(healthy)
            return tuple(
                generate(
                    sick.target,
                    sick.drafter,
                    torch.tensor([[0]]),
                    max_new_tokens=tokens,
                    temperature=1.0,
                    stop_token_ids=(),
                    generator=path,
                    rule=sick.rule,
                ).token_ids
            )

        return total_variation(
            summed(outcomes(text)),
            output_distribution(self.service(healthy).target, None, None, tokens),
        )


def ward(seed: int = SEED) -> dict[int, str]:
    """Draw which cause lies in which bed, 1 to BEDS, by the seed."""
    drawn = random.Random(seed).sample(sorted(CAUSES), BEDS)
    return {bed: drawn[place - 1] for bed, place in enumerate(PLACES, start=1)}


def admit(seed: int = SEED) -> dict[int, Patient]:
    """Return the patients of a ward by bed."""
    return {bed: Patient(cause) for bed, cause in ward(seed).items()}
