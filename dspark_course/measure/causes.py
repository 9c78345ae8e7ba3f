"""Experiments on the lab's DSpark that test why a claim does not hold here: each takes away one suspected cause.

`tell_names` tells it the name of the function that it is about to write, which it never learned to copy; `unlike_training`
has it decode greedily, which its confidence head was not trained for. replication/experiments.py says what came out.
"""

import re
import sys
from contextlib import contextmanager, nullcontext

from tqdm import tqdm

from dspark_lite.decoding.rounds import Generation
from .confidence import observe_domains
from .evaluation import position_counts, rollout, tally

SURE = 1e4  # a transition bias beside which all others are nothing


def name_chain(lab, prompt: str) -> list[int]:
    """The tokens that a code answer to a prompt must copy, after that of `def`."""
    name = re.search(r"function (\w+)", prompt)[1]
    after, whole = (lab.tokenizer(f"```python\ndef{more}", add_special_tokens=False)["input_ids"] for more in ("", f" {name}"))
    return whole[len(after) - 1:]


@contextmanager
def told(drafter, chain: list[int]):
    """Inside, the sequential head makes each token of the chain certain after the one before it."""
    head = drafter.markov_head
    untold = head.step

    def step(previous, hidden, state):
        bias, state = untold(previous, hidden, state)
        for token, following in zip(chain, chain[1:]):
            bias[..., following] += SURE * (previous == token)
        return bias, state

    head.step = step
    try:
        yield drafter
    finally:
        del head.step


def refusals(answer: Generation, chain: list[int]) -> tuple[int, int]:
    """How many rounds of an answer refused a draft where a token of the name belonged, and how many refused one at all."""
    places, place = [], 1  # the first token belongs to no round
    for r in answer.rounds:
        if r.accepted < min(r.proposed, r.committed):
            places.append(place + r.accepted)
        place += r.committed
    return sum(answer.token_ids[at - 1] in chain[:-1] for at in places), len(places)


def tell_names(lab, prompts: int) -> list[dict]:
    """Code answers of DSpark as it is, of DSpark that is told the name, and of its rivals: a row each, with committed tokens,
    rounds, counts by position and refusals of every prompt."""
    return [_told_row(lab, name, prompts, telling) for name, telling in (("dspark", False), ("dspark", True), ("dflash", False), ("eagle3", False))]


def _told_row(lab, name: str, prompts: int, telling: bool) -> dict:
    drafter, answers, refused = lab.drafter(name), [], []
    texts = tqdm(lab.prompts["code"][:prompts], desc=name, unit="prompt", file=sys.stderr)
    for index, text in enumerate(texts):
        chain = name_chain(lab, text)
        with told(drafter, chain) if telling else nullcontext():
            answers.append(rollout(lab, drafter, text, index, temperature=1.0))
        refused.append(refusals(answers[-1], chain))
    committed, rounds = tally(answers).astype(int).T.tolist()
    return {"drafter": f"{name}, told the name" if telling else name, "committed": committed, "rounds": rounds, "refusals": refused,
            "position_counts": position_counts(answers, drafter.gamma).astype(int).tolist()}


def unlike_training(lab, prompts: int) -> dict:
    """What DSpark's raw confidence says in greedy decoding, and what is accepted, by domain."""
    found = observe_domains(lab, lab.drafter("dspark"), lambda texts: texts[:prompts], temperature=0.0)
    return {domain: {"logits": blocks.logits.round(3).tolist(), "accepted": blocks.accepted.tolist(), "prompts": blocks.prompts.tolist()}
            for domain, blocks in found.items()}
