"""The target's own quality: how often it is right, and how uncertain its answers are."""

import sys

import numpy as np
import torch
from tqdm import tqdm

from dspark_lite.decoding.sampling import probabilities
from ..making.answers import write_answers
from ..world.example import is_right, recalled
from ..world.tokenizer import chat_ids
from .journal import header
from .lab import Lab, held_out

ANSWER_TOKENS = 400  # whole answers: one that is cut shows no result
CERTAIN, UNCERTAIN = 0.01, 0.67  # nats: below and above, as Wang et al. (2025) sort the tokens of Qwen3-8B's reasoning


@torch.inference_mode()
def target_quality(lab: Lab, prompts: int) -> dict:
    """By domain: the share of greedy answers that are right and of facts that chat recalls, the mean entropy in nats per token at temperature 1, the
    shares of tokens that are nearly certain and that are uncertain, and the mean length of an answer."""
    rows = []
    for domain in tqdm(lab.prompts, desc="target quality", unit="domain", file=sys.stderr):
        wanted = held_out(domain, prompts)
        ids = [chat_ids(lab.tokenizer, example.prompt) for example in wanted]
        greedy = list(map(lab.decode, write_answers(lab.target, ids, 0.0, ANSWER_TOKENS, lab.seed)))
        row = {"domain": domain, "prompts": prompts, "right": sum(map(is_right, wanted, greedy)) / prompts}
        if domain == "chat":
            row["recalled"] = float(np.mean(list(map(recalled, wanted, greedy))))
        answers = write_answers(lab.target, ids, 1.0, ANSWER_TOKENS, lab.seed)
        entropies = token_entropies(lab.target, ids, answers)
        row["entropy_nats"] = float(entropies.mean())
        row["certain"], row["uncertain"] = float((entropies < CERTAIN).mean()), float((entropies > UNCERTAIN).mean())
        row["answer_tokens"] = float(np.mean([len(answer) for answer in answers]))
        rows.append(row)
    return {**header(lab), "rows": rows}


def token_entropies(target, prompts: list[list[int]], answers: list[list[int]]) -> np.ndarray:
    """Entropy in nats of the target's next-token distribution at each answer token [N], all answers end to end."""
    entropies = []
    for prompt, answer in zip(prompts, answers):
        step = target.model(input_ids=torch.tensor([prompt + answer], device=target.device))
        probs = probabilities(step.logits[0, len(prompt) - 1:-1], 1.0)
        entropies.append(torch.special.entr(probs).sum(-1).cpu().numpy())
    return np.concatenate(entropies)
