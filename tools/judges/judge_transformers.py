"""transformers as a judge: its assisted generation beside our small LM, its acceptance rule beside ours."""

import inspect
from contextlib import contextmanager
from unittest.mock import patch

import torch
import transformers
from transformers.generation import utils
from transformers.generation.candidate_generator import AssistedCandidateGenerator

from dspark_lite.decoding.rounds import generate
from dspark_lite.decoding.sampling import accept
from dspark_lite.losslessness.enumeration import outcomes, summed, total_variation
from dspark_lite.models.checkpoints import load_drafter
from tools.judges.questions import rows_of

CASES = 200  # random blocks of the acceptance rule
# transformers 5.0 asks whether the drafter has stopped by itself; here it never has.
STOPPED = (
    {"is_done_candidate": False}
    if "is_done_candidate" in inspect.signature(utils._speculative_sampling).parameters
    else {}
)
SAME = 1e-5  # total variation that float32 probabilities leave


def judge(lab, prompts, max_new_tokens):
    """The lines of this judge."""
    prompts = [lab.encode(prompt) for prompt in prompts]
    texts, rounds = assisted(
        lab.target, load_drafter("tiny-small-lm", lab.target), prompts, max_new_tokens
    )
    return rows_of(
        "transformers",
        transformers.__version__,
        {
            "small LM, greedy texts (assisted generation)": texts,
            "small LM, accepted drafts by round": rounds,
            "plain, greedy texts (generate)": plain(lab.target, prompts, max_new_tokens),
            "the acceptance rule, exact distributions (_speculative_sampling)": acceptance(),
        },
    )


def plain(target, prompts, max_new_tokens):
    """Whether plain decoding writes what transformers writes, for each prompt [1, n]."""
    theirs = [
        target.model.generate(
            ids, max_new_tokens=max_new_tokens, do_sample=False, attention_mask=torch.ones_like(ids)
        )
        for ids in prompts
    ]
    return [
        generate(target, None, ids, max_new_tokens=max_new_tokens).token_ids
        == out[0, ids.shape[1] :].tolist()
        for ids, out in zip(prompts, theirs)
    ]


def assisted(target, small, prompts, max_new_tokens):
    """Whether texts are the same, a truth a prompt, and how many drafts were accepted, a truth a round.

    transformers drafts from the prompt on and we after the token that the prompt's own pass gives, so it begins with that
    token; its last round drafts no further than the answer may go and is left out.
    """
    texts, rounds = [], []
    for ids in prompts:
        ours = generate(target, small, ids, max_new_tokens=max_new_tokens)
        begun = torch.cat([ids, torch.tensor([ours.token_ids[:1]])], 1)
        with constant_drafts(small.model.model, small.gamma), matches() as accepted:
            theirs = target.model.generate(
                begun,
                assistant_model=small.model.model,
                do_sample=False,
                max_new_tokens=max_new_tokens - 1,
                attention_mask=torch.ones_like(begun),
            )
        texts.append(theirs[0, ids.shape[1] :].tolist() == ours.token_ids)
        rounds += [r.accepted == number for r, number in zip(ours.rounds[:-1], accepted)]
    return texts, rounds


@contextmanager
def constant_drafts(model, count):
    """Has an assistant draft `count` tokens in every round, however sure it is of them."""
    with patch.multiple(
        model.generation_config,
        num_assistant_tokens=count,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    ):
        yield


@contextmanager
def matches():
    """Collects how many drafts assisted generation accepts in each round."""
    found, update = [], AssistedCandidateGenerator.update_candidate_strategy

    def noting(self, input_ids, scores, num_matches):
        found.append(int(num_matches))
        return update(self, input_ids, scores, num_matches)

    with patch.object(AssistedCandidateGenerator, "update_candidate_strategy", noting):
        yield found


class Driven:
    """torch for transformers' rule, its two random calls replaced: coins and draws follow a path of choices."""

    def __init__(self, path):
        self.path = path

    def __getattr__(self, name):
        return getattr(torch, name)

    def rand_like(self, ratio):
        """Numbers that accept a prefix of so many drafts and no more, which the path has chosen by the ratios p / q."""
        accepted = self.path.accepted_prefix_length(ratio.reshape(1, -1).clamp(max=1))
        return torch.where(torch.arange(ratio.numel()) < accepted, 0.0, 2.0 + ratio.max()).reshape(
            ratio.shape
        )

    def multinomial(self, probs, num_samples):
        """One token that the path chooses."""
        return self.path.draw(probs)[:, None]


def theirs(draft_logits, target_logits, tokens):
    """{(accepted, next token): probability} of transformers' rule for one block [1, g]."""

    def play(path):
        with patch.object(utils, "torch", Driven(path)):
            valid, accepted = utils._speculative_sampling(
                tokens, draft_logits, tokens.shape[1], target_logits, **STOPPED
            )
        return int(accepted), int(valid[0, -1])

    return summed(outcomes(play))


def ours(draft_logits, target_logits, tokens, rule=accept):
    """{(accepted, next token): probability} of our rule."""

    def play(path):
        verdict = rule(target_logits.softmax(-1), draft_logits.softmax(-1), tokens, None, path)
        return verdict.accepted.item(), verdict.next_token.item()

    return summed(outcomes(play))


def acceptance(cases=CASES, rule=accept, vocabulary=5, gamma=3):
    """Whether both rules do the same with random blocks, by the exact distribution of what they may do: a truth a case."""
    generator, agreed = torch.Generator().manual_seed(0), []
    for _ in range(cases):
        draft, target = (
            2 * torch.randn(1, length, vocabulary, generator=generator)
            for length in (gamma, gamma + 1)
        )
        tokens = torch.randint(vocabulary, (1, gamma), generator=generator)
        agreed.append(
            total_variation(theirs(draft, target, tokens), ours(draft, target, tokens, rule)) < SAME
        )
    return agreed
