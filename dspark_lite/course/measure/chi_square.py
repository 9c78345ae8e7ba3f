"""Is a decoder lossless on a real vocabulary? Enumeration is out of reach there, so rounds are run
and counted."""

import copy

import torch

from ...common.errors import RequestError
from ...decoding.lockstep import play_round
from ...decoding.proposal import Proposal, draft_length
from ...decoding.rounds import Sequence, generate
from ...decoding.sampling import Randomness, accept, probabilities
from ...drafters.dspark import Backbone

MIN_EXPECTED = 5  # draws that a cell should expect before its chi-square term can be trusted
MAX_ROWS = 256  # rounds in one batch
# logits in one batch: a vocabulary of 150,000 tokens leaves room for fewer rounds
MAX_LOGITS = 2**25


@torch.inference_mode()
def up_to_a_fork(
    target, drafter, prompt_ids: torch.Tensor, max_new_tokens: int = 40
) -> torch.Tensor:
    """Return the prompt [1, n] with the beginning of its greedy answer, up to the anchor after
    which the target hesitates and the drafter disagrees with it most (entropy times total
    variation): there a wrong decoder shows soonest."""
    answer = generate(
        target, None, prompt_ids, max_new_tokens=max_new_tokens, stop_token_ids=()
    ).token_ids
    text = torch.cat([prompt_ids, torch.tensor([answer], device=prompt_ids.device)], 1)
    best = (-1.0, 0)
    for length in range(prompt_ids.shape[1], text.shape[1]):
        anchor = text[:, length]
        output, cache = target.prefill(text[:, :length], drafter.taps)
        p = probabilities(target.verify(anchor[:, None], cache).logits[0, -1], 1.0)
        state = drafter.begin(text[:, :length], output.features)
        q = drafter.propose(state, anchor, temperature=1.0, generator=None).probs[0, 0]
        best = max(best, (float(torch.special.entr(p).sum() * (p - q).abs().sum()), length))
    return text[:, : best[1]]


@torch.inference_mode()
def after_anchor(target, prompt_ids: torch.Tensor, temperature: float) -> tuple[int, torch.Tensor]:
    """Return the anchor, the most probable token after prompt_ids [1, n], and the target's
    probabilities [V] of the next."""
    output, cache = target.prefill(prompt_ids)
    anchor = output.logits[:, -1].argmax(-1)
    return anchor.item(), probabilities(
        target.verify(anchor[:, None], cache).logits[0, -1], temperature
    )


def passing_once(drafter: Backbone) -> Backbone:
    """Return a copy of a block drafter, for rounds that all begin at the same place: the first
    one's pass serves them all."""
    hidden = []

    def block_hidden(self, cache, anchor):
        if not hidden:
            hidden.append(type(drafter).block_hidden(self, cache, anchor))
        return hidden[0]

    once = copy.copy(drafter)
    once.__class__ = type(type(drafter).__name__, (type(drafter),), {"block_hidden": block_hidden})
    return once


class _SamePrompt(Sequence):
    """Many rows after the same prompt [1, n] and anchor, its most probable next token. The target
    reads the prompt once, and in a round each block once, however many rows have drafted it; a
    block drafter makes its pass once, and its draws in every round. Nothing stays committed, so
    every round starts from the same place."""

    def __init__(self, target, drafter, prompt_ids: torch.Tensor, rows: int, **options):
        if isinstance(drafter, Backbone):
            drafter = passing_once(drafter)
        step, self.prompt = target.prefill(prompt_ids, drafter.taps)
        features = None if step.features is None else step.features.expand(rows, -1, -1)
        state = drafter.begin(prompt_ids.expand(rows, -1), features)
        super().__init__(
            target,
            drafter,
            self.prompt,
            state,
            step.logits[:, -1].argmax(-1).expand(rows),
            **options,
        )

    def read(self, block: Proposal) -> torch.Tensor:
        """Return the logits [B, k+1, V] after the anchor and the drafts [B, k] of each row."""
        self.entering = torch.cat([self.anchor[:, None], block.tokens], 1)
        blocks, block_of = self.entering.unique(dim=0, return_inverse=True)
        self.cache = copy.deepcopy(self.prompt)
        self.cache.batch_repeat_interleave(len(blocks))
        step = self.target.verify(blocks, self.cache, self.drafter.taps)
        self.features = None if step.features is None else step.features[block_of]
        return step.logits[block_of]

    def keep(self, counts: list[int], next_token: torch.Tensor) -> None:
        """Forget the round."""
        super().keep([0], self.anchor)


@torch.inference_mode()
def next_token_counts(
    target,
    drafter,
    prompt_ids: torch.Tensor,
    draws: int,
    temperature: float,
    generator: Randomness,
    gamma: int | None = None,
    accept=accept,
) -> torch.Tensor:
    """Return how often each token [V] came after the anchor in `draws` rounds.

    The prompt [1, n] and the anchor, its most probable next token, are the same in every round; the
    first token that a round commits is counted, which a block of `gamma` drafts (None: whole ones)
    decides however short it is. `accept` is the rule under test.
    """
    gamma = draft_length(gamma, drafter.gamma)
    rows = max(1, min(draws, MAX_ROWS, MAX_LOGITS // (target.vocab_size * (gamma + 1))))
    same = _SamePrompt(
        target,
        drafter,
        prompt_ids,
        rows,
        temperature=temperature,
        generator=generator,
        gamma=gamma,
        rule=accept,
    )
    counts = torch.zeros(target.vocab_size, dtype=torch.long)
    for start in range(0, draws, rows):
        first = torch.tensor([outcome.tokens[0] for outcome in play_round([same])])
        counts += torch.bincount(first[: draws - start], minlength=target.vocab_size)
    return counts.to(prompt_ids.device)


def pooled_cells(counts: torch.Tensor, probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return observed and expected counts [cells], the most probable first; cells that expect fewer
    than five draws are one.

    Raise RequestError where fewer than two cells are left: then there is nothing to compare.
    """
    order = probs.argsort(descending=True)
    expected = probs[order].double().cpu()
    expected *= counts.sum().item() / expected.sum()
    observed = counts[order].double().cpu()
    single = int((expected >= MIN_EXPECTED).sum())
    # The rest is one cell; where even together it expects too few draws, it joins the last cell of
    # its own.
    if expected[single:].sum() < MIN_EXPECTED:
        single -= 1
    if single < 1:
        raise RequestError(
            f"only one cell expects {MIN_EXPECTED} draws; take more draws, a higher temperature or "
            "another prompt"
        )
    pool = [
        torch.cat([cells[:single], cells[single:].sum(0, keepdim=True)])
        for cells in (observed, expected)
    ]
    return pool[0], pool[1]


def chi_square(counts: torch.Tensor, probs: torch.Tensor) -> float:
    """Return the chance (p-value) of counts [V] at least this far from probs [V], if they were
    drawn from probs."""
    from scipy.stats import chisquare  # slow to import, and needed here only

    if counts[probs == 0].any():
        return 0.0  # a token that cannot come has come; pooled with others it would go unnoticed
    observed, expected = pooled_cells(counts, probs)
    return float(chisquare(observed.numpy(), expected.numpy()).pvalue)
