"""The target's own quality: how often it is right, and how uncertain its answers are."""

import sys

import numpy as np
import torch
from tqdm import tqdm

from .lab import Lab, held_out
from .measurements import header
from .sampling import probabilities
from .training.answers import is_right, write_answers
from .training.tokenizer import chat_ids


@torch.inference_mode()
def target_quality(lab: Lab, prompts: int) -> dict:
    """Greedy answers of the target that are right (math, code), and its mean entropy in nats a token at temperature
    1."""
    rows = []
    for domain in tqdm(lab.prompts, desc="target quality", unit="domain", file=sys.stderr):
        wanted = held_out(domain, prompts)
        ids = [chat_ids(lab.tokenizer, example.prompt) for example in wanted]
        row = {"domain": domain, "prompts": prompts}
        if domain != "chat":
            greedy = write_answers(lab.target, ids, 0.0, lab.max_new_tokens, lab.seed)
            right = [is_right(example, lab.decode(answer)) for example, answer in zip(wanted, greedy)]
            row["right"] = sum(right) / prompts
        answers = write_answers(lab.target, ids, 1.0, lab.max_new_tokens, lab.seed)
        row["entropy_nats"] = answer_entropy(lab.target, ids, answers)
        row["answer_tokens"] = float(np.mean([len(answer) for answer in answers]))
        rows.append(row)
    return {**header(lab), "rows": rows}


def answer_entropy(target, prompts: list[list[int]], answers: list[list[int]]) -> float:
    """Mean entropy in nats of the target's next-token distribution over all answer tokens."""
    total, count = 0.0, 0
    for prompt, answer in zip(prompts, answers):
        step = target.model(input_ids=torch.tensor([prompt + answer], device=target.device))
        probs = probabilities(step.logits[0, len(prompt) - 1:-1], 1.0)
        total += torch.special.entr(probs).sum().item()
        count += len(answer)
    return total / count
