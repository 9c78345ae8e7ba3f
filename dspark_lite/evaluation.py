"""Measuring: accepted length and conditional acceptance by domain, speed against plain decoding, the target's own quality.

Everything comes from rollouts of `generate`, never from teacher forcing. Intervals are percentile bootstraps over prompts.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from .checkpoints import write_atomically
from .decoding import Generation, generate
from .lab import Lab, held_out
from .sampling import check_temperature, probabilities
from .training.answers import is_right, write_answers
from .training.tokenizer import chat_ids

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over rounds and its bootstrap interval over prompts."""

    value: float
    low: float
    high: float


def rollouts(lab: Lab, drafter, prompts: list[str], *, temperature: float, policy=None, gamma: int | None = None, bar=None) -> list[Generation]:
    """One generation a prompt, each with its own seed, so that a longer list begins with the same generations."""
    found = []
    for index, prompt in enumerate(prompts):
        found.append(generate(lab.target, drafter, lab.encode(prompt), max_new_tokens=lab.max_new_tokens, temperature=temperature,
                              policy=policy, gamma=gamma, generator=lab.generator(lab.seed + index)))
        if bar is not None:
            bar.update(1)
    return found


def tally(generations: list[Generation]) -> np.ndarray:
    """Committed tokens and rounds of each generation, [N, 2]."""
    return np.array([[sum(r.committed for r in g.rounds), len(g.rounds)] for g in generations], dtype=float)


def bootstrap(statistic, groups: list[np.ndarray], seed: int = 0) -> Estimate:
    """A statistic of several groups of rows with its percentile interval; each resample redraws the rows of every group."""
    rng = np.random.default_rng(seed)
    draws = [statistic([group[rng.integers(0, len(group), len(group))] for group in groups]) for _ in range(RESAMPLES)]
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(statistic(groups)), float(low), float(high))


def mean_accepted_length(groups: list[np.ndarray]) -> float:
    """Committed tokens per round of each group of rows, averaged over the groups."""
    return float(np.mean([group[:, 0].sum() / group[:, 1].sum() for group in groups]))


def macro_gain(ours: list[np.ndarray], theirs: list[np.ndarray], seed: int = 0) -> Estimate:
    """How much longer ours accepts than theirs in the macro-average over domains, as a fraction.

    Both were measured on the same prompts, so a resample draws the same prompts for both.
    """
    paired = [np.concatenate([a, b], 1) for a, b in zip(ours, theirs)]

    def gain(groups):
        return mean_accepted_length([g[:, :2] for g in groups]) / mean_accepted_length([g[:, 2:] for g in groups]) - 1

    return bootstrap(gain, paired, seed)


def conditional_acceptance(generations: list[Generation], gamma: int) -> list[float | None]:
    """Of the rounds that reached position k, the share that accepted it; None where no round did.

    Rounds cut short by a stop token or the length limit count the positions they decided.
    """
    reached, kept = np.zeros(gamma), np.zeros(gamma)
    for r in (r for g in generations for r in g.rounds):
        kept[:r.accepted] += 1
        reached[:min(r.accepted + 1, r.proposed)] += 1
    return [float(k / n) if n else None for k, n in zip(kept, reached)]


def evaluate(lab: Lab, drafters: list[str], *, prompts: int, temperature: float = 1.0, gamma: int | None = None) -> dict:
    """Accepted length by drafter and domain with intervals, and the gain of DSpark over DFlash where both are there."""
    _check(lab, drafters, temperature)
    rows, tallies = [], {}
    with tqdm(total=len(drafters) * len(lab.prompts) * prompts, desc="evaluate", unit="prompt", file=sys.stderr) as bar:
        for name in drafters:
            drafter = lab.drafter(name)
            for domain, texts in lab.prompts.items():
                bar.set_postfix_str(f"{name} {domain}")
                generations = rollouts(lab, drafter, texts[:prompts], temperature=temperature, gamma=gamma, bar=bar)
                counts = tallies[name, domain] = tally(generations)
                length = bootstrap(mean_accepted_length, [counts])
                rows.append({"drafter": name, "domain": domain, "accepted_length": length.value, "low": length.low, "high": length.high,
                             "conditional_acceptance": conditional_acceptance(generations, gamma or drafter.gamma)})
    result = {**header(lab), "temperature": temperature, "prompts": prompts, "rows": rows}
    if {"dspark", "dflash"} <= set(drafters):
        gain = macro_gain([tallies["dspark", d] for d in lab.prompts], [tallies["dflash", d] for d in lab.prompts])
        result["dspark_over_dflash"] = vars(gain)
    return result


def _check(lab: Lab, drafters: list[str], temperature: float) -> None:
    """Raises for what would otherwise stop a long measurement midway."""
    check_temperature(temperature)
    for name in drafters:
        lab.check_drafter(name)


def bench(lab: Lab, drafters: list[str], *, prompts: int, temperature: float = 1.0) -> dict:
    """Tokens a second in decoding alone, batch 1, and the ratio to plain decoding in the same run.

    Drafters take turns prompt by prompt, so that a slow moment of the machine meets all of them.
    """
    _check(lab, drafters, temperature)
    held = {"plain": None, **{name: lab.drafter(name) for name in drafters}}
    rows = []
    with tqdm(total=len(held) * len(lab.prompts) * prompts, desc="bench", unit="prompt", file=sys.stderr) as bar:
        for domain, texts in lab.prompts.items():
            runs = {name: [] for name in held}
            for drafter in held.values():
                rollouts(lab, drafter, texts[:1], temperature=temperature)  # the first run of a shape pays for memory
            for index, text in enumerate(texts[:prompts]):
                for name, drafter in held.items():
                    runs[name].append(generate(lab.target, drafter, lab.encode(text), max_new_tokens=lab.max_new_tokens, temperature=temperature,
                                               generator=lab.generator(lab.seed + index)))
                    bar.update(1)
            speeds = {name: tokens_per_second(found) for name, found in runs.items()}
            for name, found in runs.items():
                rows.append({"drafter": name, "domain": domain, "tokens_per_second": speeds[name], "speedup": speeds[name] / speeds["plain"],
                             "accepted_length": mean_accepted_length([tally(found)])})
    macro = {name: float(np.mean([row["speedup"] for row in rows if row["drafter"] == name])) for name in held}
    return {**header(lab), "temperature": temperature, "prompts": prompts, "rows": rows, "macro_speedup": macro,
            "draft_milliseconds_by_context": {name: draft_time(lab, held[name]) for name in drafters if held[name].taps}}


def tokens_per_second(generations: list[Generation]) -> float:
    """Tokens committed in rounds over the seconds of all rounds; the prompt's pass is not decoding."""
    return sum(r.committed for g in generations for r in g.rounds) / sum(g.decode_seconds for g in generations)


@torch.inference_mode()
def draft_time(lab: Lab, drafter, contexts=(100, 1500), repeats: int = 40) -> dict[str, float]:
    """Median milliseconds of one round's draft work (propose, then extend by four tokens) at several context lengths."""
    width, found = len(drafter.taps) * lab.target.hidden_size, {}
    generator = lab.generator()
    for context in contexts:
        features = torch.randn(1, context, width, device=lab.device, dtype=lab.target.dtype, generator=generator)
        ids = torch.zeros(1, context, dtype=torch.long, device=lab.device)
        state, seconds = drafter.begin(ids, features), []
        for _ in range(repeats):
            started = time.perf_counter()
            drafter.propose(state, ids[:, 0], temperature=1.0, generator=generator).tokens.tolist()
            drafter.extend(state, ids[:, :4], features[:, :4])
            seconds.append(time.perf_counter() - started)
        found[str(context)] = float(np.median(seconds) * 1e3)
    return found


@torch.inference_mode()
def target_quality(lab: Lab, prompts: int) -> dict:
    """Greedy answers of the target that are right (math, code), and its mean entropy in nats a token at temperature 1."""
    rows = []
    for domain in tqdm(lab.prompts, desc="target quality", unit="domain", file=sys.stderr):
        wanted = held_out(domain, prompts)
        ids = [chat_ids(lab.tokenizer, example.prompt) for example in wanted]
        row = {"domain": domain, "prompts": prompts}
        if domain != "chat":
            greedy = write_answers(lab.target, ids, 0.0, lab.max_new_tokens, lab.seed)
            row["right"] = sum(is_right(example, lab.decode(answer)) for example, answer in zip(wanted, greedy)) / prompts
        answers = write_answers(lab.target, ids, 1.0, lab.max_new_tokens, lab.seed)
        row["entropy_nats"], row["answer_tokens"] = answer_entropy(lab.target, ids, answers), float(np.mean([len(a) for a in answers]))
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


def header(lab: Lab) -> dict:
    """What every measurement carries: device, versions, seed, profile."""
    return {"device": lab.device_name, "versions": lab.versions, "seed": lab.seed, "profile": lab.profile}


def write_json(path: Path, measured: dict) -> None:
    """Writes a measurement, whole or not at all."""
    write_atomically(path, lambda temporary: temporary.write_text(json.dumps(measured, indent=1) + "\n"))
