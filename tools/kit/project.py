"""Judges a project: `python -m tools.kit.project policy|head|world FILE [--seed N]`; docs/projects.md says what is asked for.

Every judge says what it found, line by line, and whether that passes. The data are drawn from the seed: readers judge themselves with
the default, an instructor with another one.
"""

import argparse
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

import dspark_lite
from dspark_lite.common.errors import DSparkLiteError, RequestError
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.drafters.dspark import MarkovHead, transition_biases
from dspark_lite.losslessness import find_violation, output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling import algorithm1, survival, throughput
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.course.exercises.judge import run_file
from dspark_lite.course.data.answers import write_answers
from dspark_lite.course.world.example import is_held_out

EXACT = 1e-5


class Finding(NamedTuple):
    """What was asked, whether it passes, and what was seen."""

    asked: str
    passes: bool
    seen: str


def load(path: Path, *names: str):
    """A project's file as a module; raises RequestError where it cannot be run or lacks a name."""
    module = run_file(path)
    if missing := [name for name in names if not hasattr(module, name)]:
        raise RequestError(
            f"{path} has no {' and no '.join(missing)}; the project asks for {' and '.join(names)}"
        )
    return module


# A new policy.

TABLES = {
    "smooth": lambda batch, noise: 128 + batch,
    "tiles of 16": lambda batch, noise: 64 + 16 * ((batch + 15) // 16),
    "jagged": lambda batch, noise: (100 + batch) * (1 + 0.08 * noise),
}


def step(generator: torch.Generator, requests: int, gamma: int = 7) -> Proposal:
    """Blocks of a step [R, g] whose confidences are drawn: some requests are easy, some are not."""
    ease = 3 * torch.rand(requests, 1, generator=generator)
    logits = ease + torch.randn(requests, gamma, generator=generator)
    return Proposal(
        torch.zeros(requests, gamma, dtype=torch.long),
        torch.full((requests, gamma, 2), 0.5),
        logits,
    )


def expected(proposal: Proposal, lengths: torch.Tensor, table: CostTable) -> float:
    """Expected tokens per second of a step with these verification lengths [R]."""
    alive = survival(proposal.confidence)
    inside = torch.arange(alive.shape[1]) < lengths[:, None]
    return float(
        (len(alive) + alive[inside].sum()) * table.sps(len(alive), len(alive) + int(lengths.sum()))
    )


def judge_policy(module, seed: int) -> list[Finding]:
    """Lossless alone and in company; not worse than Algorithm 1 on a smooth table, better on one with steps."""
    generator, findings = torch.Generator().manual_seed(seed), []
    for requests, cases in ((1, 60), (2, 8)):
        found = find_violation(module.policy, cases=cases, seed=seed, requests=requests)
        seen = (
            f"{cases} random cases"
            if found is None
            else f"case {found.number} is off by a total variation of {found.distance:.3f}"
        )
        findings.append(
            Finding(
                f"lossless with {requests} request{'s' * (requests > 1)} in a step",
                found is None,
                seen,
            )
        )
    for name, seconds in TABLES.items():
        ratios = []
        for _ in range(60):
            proposal = step(generator, int(torch.randint(1, 33, (), generator=generator)))
            sizes = torch.arange(1, proposal.confidence.numel() + len(proposal.tokens) + 1)
            table = CostTable(
                sizes, 1000 / seconds(sizes, torch.rand(len(sizes), generator=generator))
            )
            ours, paper = (
                expected(proposal, policy(proposal), table)
                for policy in (module.policy(table), algorithm1(table))
            )
            best = float(throughput(survival(proposal.confidence), table)[1].max())
            ratios.append((ours / paper, ours / best))
        gain, share = (sum(column) / len(ratios) for column in zip(*ratios))
        least = 0.995 if name == "smooth" else 1.01
        findings.append(
            Finding(
                f"{name}: at least {least} of Algorithm 1's throughput",
                gain >= least,
                f"{gain:.3f}, {share:.3f} of the best",
            )
        )
    return findings


# A new head.

RANK, UPDATES, BATCH = 32, 200, 64
BLOCKS = {"to learn from": 24, "to be judged by": 6}  # answers in each domain
EVERY = 10  # committed tokens between two anchors


class Blocks(NamedTuple):
    """Blocks of a frozen drafter on the target's own answers: hidden states [N, g, H], base logits [N, g, V], the anchor and the answer's
    next tokens [N, g + 1], and what the target says at them, [N, g, V]."""

    hidden: torch.Tensor
    base: torch.Tensor
    tokens: torch.Tensor
    target: torch.Tensor


@torch.no_grad()
def blocks_of(lab, drafter, prompts: list[str]) -> Blocks:
    """The blocks after every few tokens of the target's answers to the prompts."""
    found, starts = [], [lab.encode(prompt) for prompt in prompts]
    for start, answer in zip(
        starts, write_answers(lab.target, [start[0].tolist() for start in starts], 0.0, 64, 0)
    ):
        ids = torch.cat([start, torch.tensor([answer])], 1)
        read = lab.target.read(ids, None, drafter.taps)
        probs = read.logits.softmax(-1)  # [1, n, V] of what comes after every token
        for at in range(start.shape[1], ids.shape[1] - drafter.gamma, EVERY):
            state = drafter.begin(ids[:, :at], read.features[:, :at])
            hidden = drafter.block_hidden(state, ids[:, at])
            found.append(
                (
                    hidden,
                    drafter.lm_head(hidden),
                    ids[:, at : at + drafter.gamma + 1],
                    probs[:, at : at + drafter.gamma],
                )
            )
    return Blocks(*(torch.cat(part) for part in zip(*found)))


def accepted(biases, blocks: Blocks) -> torch.Tensor:
    """The chance [N, g] that each draft is accepted where all before it were the answer's own."""
    return torch.minimum((blocks.base + biases).float().softmax(-1), blocks.target).sum(-1)


def tokens_per_round(biases, blocks: Blocks) -> float:
    """Tokens of a round, the target's own included, along the answer."""
    return float(1 + accepted(biases, blocks).cumprod(-1).sum(-1).mean())


def trained(head, blocks: Blocks, seed: int):
    """The head after some updates that raise the acceptance, the backbone frozen."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(head.parameters(), lr=3e-3)
    for _ in range(UPDATES):
        rows = torch.randint(len(blocks.base), (BATCH,), generator=generator)
        some = Blocks(*(part[rows] for part in blocks))
        loss = 1 - accepted(transition_biases(head, some.tokens[:, :-1], some.hidden), some).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return head.eval()


def judge_head(module, seed: int) -> list[Finding]:
    """Lossless in a toy drafter, and after a short training on a frozen DFlash better than none, with a part of the Markov head's gain."""
    target, drafters = toy_models()
    toy = drafters["dspark"]
    torch.manual_seed(seed)
    toy.markov_head, toy.confidence_head = (
        module.Head(target.vocab_size, 4, toy.config.hidden_size),
        None,
    )
    with torch.no_grad():
        off = total_variation(
            output_distribution(target, toy, None, 3), output_distribution(target, None, None, 3)
        )
    findings = [
        Finding("lossless, every outcome visited", off < EXACT, f"total variation {off:.0e}")
    ]
    lab = dspark_lite.setup("tiny", prompts=sum(BLOCKS.values()), seed=seed)
    drafter, count = lab.drafter("dflash"), BLOCKS["to learn from"]
    learn, judged = (
        blocks_of(lab, drafter, [text for texts in lab.prompts.values() for text in texts[part]])
        for part in (slice(count), slice(count, None))
    )
    size, width = learn.base.shape[-1], learn.hidden.shape[-1]
    found = {"no head": tokens_per_round(0.0, judged)}
    for name, kind in (("the Markov head", MarkovHead), ("yours", module.Head)):
        torch.manual_seed(seed)
        head = trained(kind(size, RANK, width), learn, seed)
        with torch.no_grad():
            found[name] = tokens_per_round(
                transition_biases(head, judged.tokens[:, :-1], judged.hidden), judged
            )
    findings.append(
        Finding(
            "more tokens per round than without a head",
            found["yours"] > found["no head"],
            ", ".join(f"{name} {value:.2f}" for name, value in found.items()),
        )
    )
    gain = {name: found[name] - found["no head"] for name in ("the Markov head", "yours")}
    findings.append(
        Finding(
            "at least a third of the Markov head's gain",
            gain["yours"] > 0 and gain["yours"] >= gain["the Markov head"] / 3,
            f"{gain['yours']:.2f} of {gain['the Markov head']:.2f}, with {len(learn.base)} blocks to learn from",
        )
    )
    return findings


# A new world.

DRAWN, LONGEST = 1000, 256
GUESSED = (
    0.3,
    0.97,
)  # the share of tokens that three tokens before them should tell: below it is noise, above it is a form to fill in


def guessed(learned: list[list[int]], judged: list[list[int]]) -> float:
    """The share of tokens that a table of three tokens guesses right."""
    table = defaultdict(Counter)
    for ids in learned:
        for at in range(3, len(ids)):
            table[tuple(ids[at - 3 : at])][ids[at]] += 1
    right = [
        ids[at]
        == max(table.get(tuple(ids[at - 3 : at]), {-1: 1}).items(), key=lambda item: item[1])[0]
        for ids in judged
        for at in range(3, len(ids))
    ]
    return sum(right) / max(1, len(right))


def judge_world(module, seed: int) -> list[Finding]:
    """Seeded, varied, checkable, readable for the tokenizer, split, and neither noise nor a form."""
    drawn, again = (
        [module.example(rng) for _ in range(DRAWN)]
        for rng in (random.Random(seed), random.Random(seed))
    )
    prompts, answers = [prompt for prompt, _, _ in drawn], [answer for _, answer, _ in drawn]
    right = sum(bool(module.is_right(check, answer)) for _, answer, check in drawn)
    others = sum(
        bool(module.is_right(check, answers[at - 1])) for at, (_, _, check) in enumerate(drawn)
    )
    tokenizer = dspark_lite.setup("tiny", prompts=1).tokenizer
    ids = [tokenizer(answer)["input_ids"] for answer in answers]
    whole = sum(tokenizer.decode(found) == answer for found, answer in zip(ids, answers))
    longest = max(
        len(tokenizer(prompt)["input_ids"]) + len(found) for prompt, found in zip(prompts, ids)
    )
    held_out = [is_held_out(prompt) for prompt in prompts]
    share = guessed(
        [found for found, out in zip(ids, held_out) if not out],
        [found for found, out in zip(ids, held_out) if out],
    )
    return [
        Finding("one seed, one world", drawn == again, f"{DRAWN} examples drawn twice"),
        Finding(
            "at least 95 % of the prompts are distinct",
            len(set(prompts)) >= 0.95 * DRAWN,
            f"{len(set(prompts))} of {DRAWN}",
        ),
        Finding("every reference answer is right", right == DRAWN, f"{right} of {DRAWN}"),
        Finding(
            "another example's answer is right in at most 10 %",
            others <= 0.1 * DRAWN,
            f"{others} of {DRAWN}",
        ),
        Finding(
            "the tiny tokenizer writes every answer back", whole == DRAWN, f"{whole} of {DRAWN}"
        ),
        Finding(
            f"prompt and answer have at most {LONGEST} tokens",
            longest <= LONGEST,
            f"the longest {longest}",
        ),
        Finding(
            "three tokens tell the next in {:.0%} to {:.0%}".format(*GUESSED),
            GUESSED[0] <= share <= GUESSED[1],
            f"{share:.0%} of the held-out answers, {sum(held_out)} of them",
        ),
    ]


JUDGES: dict[str, tuple[tuple[str, ...], Callable]] = {
    "policy": (("policy",), judge_policy),
    "head": (("Head",), judge_head),
    "world": (("example", "is_right"), judge_world),
}


def judge(kind: str, path: Path, seed: int) -> list[Finding]:
    """The findings on a project's file; raises RequestError where it cannot be judged."""
    names, judged_by = JUDGES[kind]
    if not path.is_file():
        raise RequestError(f"there is no {path}")
    try:
        return judged_by(load(path, *names), seed)
    except DSparkLiteError:
        raise
    except Exception as error:
        raise RequestError(f"your {kind} raised {type(error).__name__}: {error}") from error


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code, 1 where something does not pass."""
    parser = argparse.ArgumentParser(prog="project", description="Judge a project.")
    parser.add_argument("kind", choices=JUDGES)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of the data that it is judged by (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    try:
        findings = judge(options.kind, options.file, options.seed)
    except DSparkLiteError as error:
        print(f"project: {error}", file=sys.stderr)
        return 2
    width = max(len(finding.asked) for finding in findings)
    print(
        *(
            f"{'ok ' if passes else 'NO '} {asked:{width}}  {seen}"
            for asked, passes, seen in findings
        ),
        sep="\n",
    )
    return 0 if all(finding.passes for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
