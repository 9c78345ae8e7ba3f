"""Answers of the target itself: what drafters are trained on (temperature 1, thinking off), and the checks of them."""

import json
import subprocess
import sys
from pathlib import Path

import torch
from tqdm import tqdm

from .corpus import Example, examples
from .loop import write_lines
from .tokenizer import chat_ids

PARALLEL = 192  # answers written at once
CHUNK = 1536  # answers between two saves


@torch.inference_mode()
def write_answers(target, prompts: list[list[int]], temperature: float, max_new_tokens: int, seed: int) -> list[list[int]]:
    """Answers of the target (token ids, stop token included) to tokenised prompts, many at once, by transformers."""
    torch.manual_seed(seed)
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    answers: list[list[int]] = [[] for _ in prompts]
    for start in range(0, len(order), PARALLEL):
        rows = order[start:start + PARALLEL]
        padded = target.tokenizer.pad({"input_ids": [prompts[row] for row in rows]}, return_tensors="pt").to(target.device)
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {"do_sample": False}
        out = target.model.generate(**padded, max_new_tokens=max_new_tokens, pad_token_id=target.tokenizer.pad_token_id, **sampling)
        for row, tokens in zip(rows, out[:, padded["input_ids"].shape[1]:].tolist()):
            stops = [at for at, token in enumerate(tokens) if token in target.stop_token_ids]
            answers[row] = tokens[:stops[0] + 1] if stops else tokens
    return answers


def answered_rows(target, counts: dict[str, int], seed: int, max_new_tokens: int, path: Path) -> list[tuple[list[int], int]]:
    """(token ids, prompt length) of `counts` training prompts a domain with the target's own answers.

    Kept in `path` as JSON lines, a chunk at a time, so that a stopped run goes on where it was.
    """
    prompts = [chat_ids(target.tokenizer, example.prompt) for domain, count in counts.items() for example in examples(domain, count, seed)]
    # Domains are interleaved, so that every chunk (and every prefix of the file) holds all of them.
    order = torch.randperm(len(prompts), generator=torch.Generator().manual_seed(seed)).tolist()
    prompts = [prompts[index] for index in order]
    rows = [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    with tqdm(total=len(prompts), initial=len(rows), desc=f"answers at temperature 1 ({path.stem})", unit="answer") as bar:
        while len(rows) < len(prompts):
            chunk = prompts[len(rows):len(rows) + CHUNK]
            answers = write_answers(target, chunk, 1.0, max_new_tokens, seed + len(rows))
            rows += [(prompt + answer, len(prompt)) for prompt, answer in zip(chunk, answers)]
            write_lines(path, rows)
            bar.update(len(chunk))
    return rows


def is_right(example: Example, answer: str) -> bool:
    """Whether an answer shows what its example asks for: the final number, or a function that returns the right results."""
    if example.domain == "math":
        last_line = answer.strip().splitlines()[-1] if answer.strip() else ""
        return str(example.check) in last_line.replace(".", " ").split()
    name, cases = example.check
    code = answer.split("```python\n")[-1].split("```")[0] if "```python\n" in answer else ""
    return bool(code) and _runs_right(code, name, cases)


def _runs_right(code: str, name: str, cases: list) -> bool:
    """Runs a generated function in a process of its own, isolated from this one and stopped after five seconds."""
    program = f"{code}\nimport json, sys\ncases = json.loads(sys.stdin.read())\nassert all({name}(given) == wanted for given, wanted in cases)\n"
    try:
        done = subprocess.run([sys.executable, "-I", "-S", "-c", program], input=json.dumps(cases), text=True, capture_output=True, timeout=5)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
