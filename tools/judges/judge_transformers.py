"""transformers decodes plainly and with our small LM as its assistant, and its acceptance rule is
enumerated beside ours."""

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
from tools.judges.questions import prompts_of, rows_of

CASES = 200  # random blocks of the acceptance rule
SAME = 1e-5  # total variation that float32 probabilities leave
# transformers 5.0 asks whether the drafter has stopped by itself; here it never has.
ASKS = "is_done_candidate" in inspect.signature(utils._speculative_sampling).parameters
STOPPED = {"is_done_candidate": False} if ASKS else {}


def ask(lab, options):
    """Return the rows of this judge."""
    prompts = [lab.encode(prompt) for prompt in prompts_of(lab)]
    small = load_drafter("tiny-small-lm", lab.target)
    texts, rounds = assisted(lab.target, small, prompts, options.tokens)
    lines = {
        "small LM, greedy texts (assisted generation)": texts,
        "small LM, accepted drafts by round": rounds,
        "plain, greedy texts (generate)": plain(lab.target, prompts, options.tokens),
        "the acceptance rule, exact distributions (_speculative_sampling)": acceptance(),
    }
    return rows_of("transformers", transformers.__version__, lines)


def written(target, ids, max_new_tokens, **options):
    """Return the token ids of a prompt [1, n] and transformers' greedy answer."""
    options |= {"max_new_tokens": max_new_tokens, "attention_mask": torch.ones_like(ids)}
    return target.model.generate(ids, do_sample=False, **options)[0].tolist()


def plain(target, prompts, max_new_tokens):
    """Return for each prompt [1, n] whether plain decoding writes what transformers writes."""
    return [
        ids[0].tolist() + generate(target, None, ids, max_new_tokens=max_new_tokens).token_ids
        == written(target, ids, max_new_tokens)
        for ids in prompts
    ]


def assisted(target, small, prompts, max_new_tokens):
    """Return whether texts are the same, a truth a prompt, and how many drafts were accepted, a
    truth a round.

    transformers drafts from the prompt on and we after the token that the prompt's own pass gives,
    so it begins with that token. Its last round drafts no further than the answer may go and is
    left out.
    """
    texts, rounds, helper = [], [], small.model.model
    for ids in prompts:
        ours = generate(target, small, ids, max_new_tokens=max_new_tokens)
        begun = torch.cat([ids, torch.tensor([ours.token_ids[:1]])], 1)
        with constant_drafts(helper, small.gamma), matches() as accepted:
            theirs = written(target, begun, max_new_tokens - 1, assistant_model=helper)
        texts.append(theirs == ids[0].tolist() + ours.token_ids)
        rounds += [r.accepted == number for r, number in zip(ours.rounds[:-1], accepted)]
    return texts, rounds


def constant_drafts(model, count):
    """Make an assistant draft `count` tokens in every round, however sure it is of them."""
    return patch.multiple(
        model.generation_config,
        num_assistant_tokens=count,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )


@contextmanager
def matches():
    """Collect how many drafts assisted generation accepts in each round."""
    found, update = [], AssistedCandidateGenerator.update_candidate_strategy

    def noting(self, input_ids, scores, num_matches):
        found.append(int(num_matches))
        return update(self, input_ids, scores, num_matches)

    with patch.object(AssistedCandidateGenerator, "update_candidate_strategy", noting):
        yield found


class Driven:
    """torch for transformers' rule, with coins and draws that follow a path of choices."""

    def __init__(self, path):
        self.path = path

    def __getattr__(self, name):
        return getattr(torch, name)

    def rand_like(self, ratio):
        """Return numbers that accept a prefix of drafts, whose length the path has chosen by the
        ratios p / q."""
        accepted = self.path.accepted_prefix_length(ratio.reshape(1, -1).clamp(max=1))
        refused = torch.arange(ratio.numel()) >= accepted
        return (refused * (2.0 + ratio.max())).reshape(ratio.shape)

    def multinomial(self, probs, num_samples):
        """Return one token that the path chooses."""
        return self.path.draw(probs)[:, None]


def theirs(draft_logits, target_logits, tokens):
    """Return {(accepted, next token): probability} of transformers' rule for one block [1, g]."""

    def play(path):
        with patch.object(utils, "torch", Driven(path)):
            valid, accepted = utils._speculative_sampling(
                tokens, draft_logits, tokens.shape[1], target_logits, **STOPPED
            )
        return int(accepted), int(valid[0, -1])

    return summed(outcomes(play))


def ours(draft_logits, target_logits, tokens, rule=accept):
    """Return {(accepted, next token): probability} of our rule."""

    def play(path):
        verdict = rule(target_logits.softmax(-1), draft_logits.softmax(-1), tokens, None, path)
        return verdict.accepted.item(), verdict.next_token.item()

    return summed(outcomes(play))


def acceptance(cases=CASES, rule=accept, vocabulary=5, gamma=3):
    """Return for random blocks whether both rules do the same, by the exact distribution of what
    they may do."""
    generator, agreed = torch.Generator().manual_seed(0), []
    for _ in range(cases):
        draft, target = (
            2 * torch.randn(1, length, vocabulary, generator=generator)
            for length in (gamma, gamma + 1)
        )
        block = draft, target, torch.randint(vocabulary, (1, gamma), generator=generator)
        agreed.append(total_variation(theirs(*block), ours(*block, rule)) < SAME)
    return agreed
