"""The target's quality: how often it is right, and how uncertain its answers are. Gates are bounds that target and text must meet
before drafters are compared, each beside the figure of the real world that it comes from."""

import sys

import numpy as np
import torch
from tqdm import tqdm

from dspark_lite.decoding.sampling import probabilities
from ..data.answers import write_answers
from ..world.example import is_right, recalled
from ..world.tokenizer import chat_ids
from .evaluation import evaluate
from .journal import header
from .lab import Lab, held_out

ANSWER_TOKENS = 400  # whole answers: one that is cut shows no result
CERTAIN, UNCERTAIN = (
    0.01,
    0.67,
)  # nats: below and above, as Wang et al. (2025) sort the tokens of Qwen3-8B's reasoning
SMALL_LM_LENGTH = 4  # drafts per round of the small LM, as in the public notebook
SMALL_LM_LENGTHS = (
    f"accepted length of the small LM, {SMALL_LM_LENGTH} drafts per round"  # a gate's name
)
CERTAIN_THERE, UNCERTAIN_THERE = (
    "a little over half",
    "a fifth",
)  # of Qwen3-8B's tokens as it reasons (Wang et al., arXiv 2506.01939)
NOTEBOOK = {
    "math": 2.30,
    "code": 3.06,
    "chat": 2.40,
}  # Qwen3-0.6B under Qwen3-4B, draft length 4, as a public notebook measured it


@torch.inference_mode()
def target_quality(lab: Lab, prompts: int) -> dict:
    """Return by domain: the share of right greedy answers and of facts that chat recalls, the mean entropy in nats per token at
    temperature 1, the shares of nearly certain and of uncertain tokens, and the mean length of an answer."""
    rows = []
    for domain in tqdm(lab.prompts, desc="target quality", unit="domain", file=sys.stderr):
        wanted = held_out(domain, prompts)
        ids = [chat_ids(lab.tokenizer, example.prompt) for example in wanted]
        greedy = list(map(lab.decode, write_answers(lab.target, ids, 0.0, ANSWER_TOKENS, lab.seed)))
        row = {
            "domain": domain,
            "prompts": prompts,
            "right": sum(map(is_right, wanted, greedy)) / prompts,
        }
        if domain == "chat":
            row["recalled"] = float(np.mean(list(map(recalled, wanted, greedy))))
        answers = write_answers(lab.target, ids, 1.0, ANSWER_TOKENS, lab.seed)
        entropies = token_entropies(lab.target, ids, answers)
        row["entropy_nats"] = float(entropies.mean())
        row["certain"], row["uncertain"] = (
            float((entropies < CERTAIN).mean()),
            float((entropies > UNCERTAIN).mean()),
        )
        row["answer_tokens"] = float(np.mean([len(answer) for answer in answers]))
        rows.append(row)
    return {**header(lab), "rows": rows}


def token_entropies(target, prompts: list[list[int]], answers: list[list[int]]) -> np.ndarray:
    """Return entropy in nats of the target's next-token distribution at each answer token [N], all answers end to end."""
    entropies = []
    for prompt, answer in zip(prompts, answers):
        step = target.model(input_ids=torch.tensor([prompt + answer], device=target.device))
        probs = probabilities(step.logits[0, len(prompt) - 1 : -1], 1.0)
        entropies.append(torch.special.entr(probs).sum(-1).cpu().numpy())
    return np.concatenate(entropies)


def gate(
    name: str,
    domain: str,
    value: float,
    at_least: float | None = None,
    at_most: float | None = None,
    real: str = "",
) -> dict:
    """Return something measured, in a domain or in "all", the bounds within which it has to lie (None: no bound), the real
    world's figure, and whether the bounds are met."""
    met = (at_least is None or at_least <= value) and (at_most is None or value <= at_most)
    return {
        "name": name,
        "domain": domain,
        "value": value,
        "at_least": at_least,
        "at_most": at_most,
        "real": real,
        "met": met,
    }


def target_gates(rows: list[dict]) -> list[dict]:
    """Return gates on what `target_quality` measured: right answers, recalled facts, entropy of chat against math, tokens that
    are certain."""
    by_domain = {row["domain"]: row for row in rows}
    real = {
        domain: "" if domain == "chat" else "{} (Qwen3-8B)" for domain in by_domain
    }  # counted in reasoning, of which chat has none
    right = [
        gate("answers that are right", domain, row["right"], at_least=0.9)
        for domain, row in by_domain.items()
        if domain != "chat"
    ]
    right += [gate("facts recalled", "chat", by_domain["chat"]["recalled"], at_least=0.9)]
    ratio = by_domain["chat"]["entropy_nats"] / by_domain["math"]["entropy_nats"]
    certain = [
        gate(
            "tokens below 0.01 nat",
            domain,
            row["certain"],
            at_most=0.3 if domain == "chat" else 0.6,
            real=real[domain].format(CERTAIN_THERE),
        )
        for domain, row in by_domain.items()
    ]
    uncertain = [
        gate(
            "tokens above 0.67 nat (reported)",
            domain,
            row["uncertain"],
            real=real[domain].format(UNCERTAIN_THERE),
        )
        for domain, row in by_domain.items()
    ]
    return [
        *right,
        gate("entropy of chat over that of math", "chat", ratio, at_least=2.0),
        *certain,
        *uncertain,
    ]


def small_lm_gates(rows: list[dict]) -> list[dict]:
    """Return gates on the small LM's accepted length with as many drafts, rows of `evaluate`."""
    return [
        gate(
            SMALL_LM_LENGTHS,
            row["domain"],
            row["accepted_length"],
            2.0,
            3.5,
            f"{NOTEBOOK[row['domain']]:.2f}, Qwen3-0.6B under Qwen3-4B",
        )
        for row in rows
    ]


def measure_gates(lab: Lab, prompts: int) -> dict:
    """Measure all gates over `prompts` held-out prompts a domain."""
    measured = target_quality(lab, prompts)
    gates = target_gates(measured["rows"]) + small_lm_gates(
        evaluate(lab, ["small_lm"], lab.prompts, gamma=SMALL_LM_LENGTH)["rows"]
    )
    return {
        **{key: value for key, value in measured.items() if key != "rows"},
        "prompts": prompts,
        "quality": measured["rows"],
        "gates": gates,
    }


def gate_line(row: dict) -> str:
    """Return a gate as a line for a reader."""
    bounds = " and ".join(
        f"{words} {row[name]:g}"
        for name, words in (("at_least", "at least"), ("at_most", "at most"))
        if row[name] is not None
    )
    verdict = f"{'met' if row['met'] else 'NOT MET'} ({bounds})" if bounds else "reported"
    return f"{row['name']:62} {row['domain']:5} {row['value']:6.3f}  {verdict}" + (
        f"; real: {row['real']}" if row["real"] else ""
    )
