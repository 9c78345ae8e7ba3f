"""Models small enough to enumerate: tables, and real models at toy size."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from ..decoding.proposal import Drafter, Proposal
from ..decoding.sampling import draw
from ..decoding.target import Target, TargetOutput
from ..drafters import (
    MTP,
    DSpark,
    DSparkConfig,
    Eagle3,
    Eagle3Config,
    MTPConfig,
    PromptLookup,
    SmallLM,
)
from ..scheduling.cost_table import CostTable


class ToyTarget:
    """A target that is a table [V, V] of next-token probabilities after each token."""

    def __init__(self, table):
        self.table = torch.as_tensor(table, dtype=torch.float32)
        self.vocab_size = len(self.table)
        self.max_positions = 1 << 20
        self.device = torch.device("cpu")
        self.stop_token_ids = ()

    def prefill(self, input_ids, taps=()):
        """Return logits [B, 1, V] after the prompt, and no cache."""
        return TargetOutput(self.table[input_ids[:, -1:]].log(), None), None

    def verify(self, token_ids, cache, taps=()):
        """Return logits [B, k, V] after each of token_ids [B, k]."""
        return TargetOutput(self.table[token_ids].log(), None)

    def roll_back(self, cache, dropped):
        """Do nothing: there is no cache."""


class ToyDrafter(Drafter):
    """A drafter that is two tables: next-token probabilities [V, V], and confidences [V].

    `confidence` belongs to the position after each drafted token, `first_confidence` to position 1.
    """

    name = "toy"
    taps = ()

    def __init__(self, table, first_confidence: float, confidence, gamma: int):
        self.table, self.gamma = torch.as_tensor(table, dtype=torch.float32), gamma
        self.first_confidence = first_confidence
        self.confidence = torch.as_tensor(confidence, dtype=torch.float32)

    def begin(self, prompt_ids, features=None):
        """Do nothing: there is no state."""

    def extend(self, state, token_ids, features=None):
        """Do nothing: there is no state."""

    def propose(self, state, anchor, *, gamma=None, temperature, generator):
        """Draft a block token by token."""
        previous, drawn = anchor, []
        confidence = torch.full(anchor.shape, self.first_confidence)
        for _ in range(gamma or self.gamma):
            probs = self.table[previous]
            previous = draw(probs, generator)
            drawn.append((previous, probs, confidence.logit()))
            confidence = self.confidence[previous]
        return Proposal(*(torch.stack(part, 1) for part in zip(*drawn)))


def appendix_a() -> tuple[ToyTarget, ToyDrafter, CostTable]:
    """Return the example of the paper's Appendix A: a target (0.7, 0.3), a drafter and SPS(1..3).

    The drafter is accepted with probability 0.8. Its confidence in the second position is 0.9 after
    a drafted 0, and 0 after a drafted 1, so the drafted token tips the retrospective choice. The
    first new token comes from the prompt's pass; the example is about the second.
    """
    target = ToyTarget([[0.7, 0.3]] * 2)
    drafter = ToyDrafter([[0.5, 0.5]] * 2, first_confidence=0.8, confidence=[0.9, 0.0], gamma=2)
    return target, drafter, CostTable([1, 2, 3], [1.0, 0.5, 0.45])


def random_case(
    generator: torch.Generator, requests: int = 1
) -> tuple[ToyTarget, ToyDrafter, CostTable]:
    """Return a random target and drafter, and a cost table for `requests` requests.

    The vocabulary has two tokens, a block two drafts.
    """

    def uniform(*shape):
        return torch.rand(shape, generator=generator)

    target, table = ToyTarget(_pairs(0.1 + 0.8 * uniform(2))), _pairs(0.1 + 0.8 * uniform(2))
    drafter = ToyDrafter(table, uniform(1).item(), uniform(2).round(decimals=1), gamma=2)
    sizes = torch.arange(1, 3 * requests + 1)
    seconds = 1 + uniform(len(sizes)).cumsum(0) * uniform(1)
    jags = 0.8 + 0.4 * uniform(len(sizes))
    return target, drafter, CostTable(sizes, 1 / seconds * jags)


def _pairs(first: torch.Tensor) -> torch.Tensor:
    """Return distributions [n, 2] from the probabilities [n] of the first of two tokens."""
    return torch.stack([first, 1 - first], 1)


def toy_models(
    seed: int = 0, vocab_size: int = 2, gamma: int = 2
) -> tuple[Target, dict[str, object]]:
    """Return a random Qwen3 target over `vocab_size` tokens, and a drafter of each kind by name.

    All are real models at toy size. The last token is also the mask, so that every token can be
    drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = dict(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    target = Target(_random_language_model(3, shape, generator))
    drafters = {
        "small_lm": SmallLM(Target(_random_language_model(1, shape, generator)), gamma),
        "prompt_lookup": PromptLookup(vocab_size, gamma),
    }
    shape |= dict(num_hidden_layers=1, rms_norm_eps=1e-6, rope_theta=1e4, num_target_layers=3)
    untrained = {}
    for name, rank, head in (
        ("dflash", 0, "vanilla"),
        ("dspark", 4, "vanilla"),
        ("dspark_gated", 4, "gated"),
        ("dspark_rnn", 4, "rnn"),
    ):
        untrained[name] = DSpark(
            DSparkConfig(
                **shape,
                target_layer_ids=(0, 1),
                block_size=gamma,
                mask_token_id=vocab_size - 1,
                markov_rank=rank,
                markov_head_type=head,
                enable_confidence_head=rank > 0,
            )
        )
    untrained["eagle3"] = Eagle3(Eagle3Config(**shape, target_layer_ids=(0, 1), ttt_length=gamma))
    untrained["mtp"] = MTP(MTPConfig(**shape, target_layer_ids=(2,)))
    return target, drafters | {
        name: _randomised(drafter.requires_grad_(False).eval(), generator)
        for name, drafter in untrained.items()
    }


def _random_language_model(layers: int, shape: dict, generator) -> Qwen3ForCausalLM:
    """Return a random Qwen3 with these layers."""
    config = Qwen3Config(
        **shape,
        num_hidden_layers=layers,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
    )
    return _randomised(Qwen3ForCausalLM(config).requires_grad_(False), generator)


def _randomised(model, generator):
    """Set weights so large that every context gives another distribution, and biases to zero.

    Return the model.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
        elif name.endswith("bias"):
            parameter.zero_()
    return model
