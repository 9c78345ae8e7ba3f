"""Grade a project: `python -m tools.kit.project policy|head|world FILE [--seed N]`;
docs/projects.md says what is asked for.

A grader prints what it found, line by line, and whether that passes. The data are drawn from the
seed: readers use the default, an instructor another one.
"""

import argparse
import random
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import torch

import dspark_lite
from dspark_lite.common.errors import DSparkLiteError, RequestError
from dspark_lite.course.data.answers import write_answers
from dspark_lite.course.own_decoder.judge import run_file
from dspark_lite.course.world.example import is_held_out
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.drafters.dspark import MarkovHead, transition_biases
from dspark_lite.losslessness import find_violation, output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling import algorithm1, survival, throughput
from dspark_lite.scheduling.cost_table import CostTable
from tools.errors import report_errors

EXACT = 1e-5


class Finding(NamedTuple):
    """What was asked, whether it passes, and what was seen."""

    asked: str
    passes: bool
    seen: str


# A new policy.

TABLES = {
    "smooth": lambda batch, noise: 128 + batch,
    "tiles of 16": lambda batch, noise: 64 + 16 * ((batch + 15) // 16),
    "jagged": lambda batch, noise: (100 + batch) * (1 + 0.08 * noise),
}


def step(generator: torch.Generator, requests: int, gamma: int = 7) -> Proposal:
    """Return blocks of a step [R, g] whose confidences are drawn: some requests are easy, some are
    not."""
    ease = 3 * torch.rand(requests, 1, generator=generator)
    logits = ease + torch.randn(requests, gamma, generator=generator)
    tokens = torch.zeros(requests, gamma, dtype=torch.long)
    return Proposal(tokens, torch.full((requests, gamma, 2), 0.5), logits)


def expected(proposal: Proposal, lengths: torch.Tensor, table: CostTable) -> float:
    """Return the expected tokens per second of a step with these verification lengths [R]."""
    alive = survival(proposal.confidence)
    inside = torch.arange(alive.shape[1]) < lengths[:, None]
    speed = table.sps(len(alive), len(alive) + int(lengths.sum()))
    return float((len(alive) + alive[inside].sum()) * speed)


def grade_policy(module, seed: int) -> list[Finding]:
    """Return whether a policy is lossless alone and in company, no worse than Algorithm 1 on a
    smooth table, better on steps."""
    generator, findings = torch.Generator().manual_seed(seed), []
    for requests, cases in ((1, 60), (2, 8)):
        found = find_violation(module.policy, cases=cases, seed=seed, requests=requests)
        seen = f"{cases} random cases"
        if found is not None:
            seen = f"case {found.number} is off by a total variation of {found.distance:.3f}"
        asked = f"lossless with {requests} request{'s' * (requests > 1)} in a step"
        findings.append(Finding(asked, found is None, seen))
    for name, seconds in TABLES.items():
        ratios = []
        for _ in range(60):
            proposal = step(generator, int(torch.randint(1, 33, (), generator=generator)))
            sizes = torch.arange(1, proposal.confidence.numel() + len(proposal.tokens) + 1)
            noise = torch.rand(len(sizes), generator=generator)
            table = CostTable(sizes, 1000 / seconds(sizes, noise))
            ours = expected(proposal, module.policy(table)(proposal), table)
            paper = expected(proposal, algorithm1(table)(proposal), table)
            best = float(throughput(survival(proposal.confidence), table)[1].max())
            ratios.append((ours / paper, ours / best))
        gain, share = (sum(column) / len(ratios) for column in zip(*ratios))
        least = 0.995 if name == "smooth" else 1.01
        asked = f"{name}: at least {least} of Algorithm 1's throughput"
        findings.append(Finding(asked, gain >= least, f"{gain:.3f}, {share:.3f} of the best"))
    return findings


# A new head.

RANK, UPDATES, BATCH = 32, 200, 64
BLOCKS = {"to learn from": 24, "to be graded by": 6}  # answers in each domain
EVERY = 10  # committed tokens between two anchors


class Blocks(NamedTuple):
    """Blocks of a frozen drafter on the target's own answers: hidden states [N, g, H], base logits
    [N, g, V], the anchor and the answer's next tokens [N, g + 1], and the target's probabilities at
    them [N, g, V]."""

    hidden: torch.Tensor
    base: torch.Tensor
    tokens: torch.Tensor
    target: torch.Tensor


@torch.no_grad()
def blocks_of(lab, drafter, prompts: list[str]) -> Blocks:
    """Return the blocks after every few tokens of the target's answers to the prompts."""
    found, starts = [], [lab.encode(prompt) for prompt in prompts]
    answers = write_answers(lab.target, [start[0].tolist() for start in starts], 0.0, 64, 0)
    for start, answer in zip(starts, answers):
        ids = torch.cat([start, torch.tensor([answer])], 1)
        read = lab.target.read(ids, None, drafter.taps)
        probs = read.logits.softmax(-1)  # [1, n, V] of what comes after every token
        for at in range(start.shape[1], ids.shape[1] - drafter.gamma, EVERY):
            end = at + drafter.gamma
            state = drafter.begin(ids[:, :at], read.features[:, :at])
            hidden = drafter.block_hidden(state, ids[:, at])
            found.append((hidden, drafter.lm_head(hidden), ids[:, at : end + 1], probs[:, at:end]))
    return Blocks(*(torch.cat(part) for part in zip(*found)))


def accepted(biases, blocks: Blocks) -> torch.Tensor:
    """Return the chance [N, g] that each draft is accepted if all before it were the answer's
    own."""
    return torch.minimum((blocks.base + biases).float().softmax(-1), blocks.target).sum(-1)


def biases_of(head, blocks: Blocks) -> torch.Tensor:
    """Return the biases [N, g, V] of a head along the answer."""
    return transition_biases(head, blocks.tokens[:, :-1], blocks.hidden)


def tokens_per_round(biases, blocks: Blocks) -> float:
    """Return the tokens of a round along the answer, the target's own included."""
    return float(1 + accepted(biases, blocks).cumprod(-1).sum(-1).mean())


def trained(head, blocks: Blocks, seed: int):
    """Return the head after some updates that raise the acceptance, the backbone frozen."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(head.parameters(), lr=3e-3)
    for _ in range(UPDATES):
        rows = torch.randint(len(blocks.base), (BATCH,), generator=generator)
        some = Blocks(*(part[rows] for part in blocks))
        loss = 1 - accepted(biases_of(head, some), some).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return head.eval()


def grade_head(module, seed: int) -> list[Finding]:
    """Return whether a head is lossless in a toy drafter, and after a short training on a frozen
    DFlash better than none, with a third of the Markov head's gain."""
    target, drafters = toy_models()
    toy = drafters["dspark"]
    torch.manual_seed(seed)
    toy.markov_head = module.Head(target.vocab_size, 4, toy.config.hidden_size)
    toy.confidence_head = None
    with torch.no_grad():
        wanted, found = (output_distribution(target, drafter, None, 3) for drafter in (None, toy))
    off = total_variation(found, wanted)
    lab = dspark_lite.setup("tiny", prompts=sum(BLOCKS.values()), seed=seed)
    drafter, count = lab.drafter("dflash"), BLOCKS["to learn from"]
    learn, unseen = (
        blocks_of(lab, drafter, [text for texts in lab.prompts.values() for text in texts[part]])
        for part in (slice(count), slice(count, None))
    )
    found = {"no head": tokens_per_round(0.0, unseen)}
    for name, kind in (("the Markov head", MarkovHead), ("yours", module.Head)):
        torch.manual_seed(seed)
        head = kind(learn.base.shape[-1], RANK, learn.hidden.shape[-1])
        trained(head, learn, seed)
        with torch.no_grad():
            found[name] = tokens_per_round(biases_of(head, unseen), unseen)
    mine, markov = (found[name] - found["no head"] for name in ("yours", "the Markov head"))
    return [
        Finding("lossless, every outcome visited", off < EXACT, f"total variation {off:.0e}"),
        Finding(
            "more tokens per round than without a head",
            mine > 0,
            ", ".join(f"{name} {value:.2f}" for name, value in found.items()),
        ),
        Finding(
            "at least a third of the Markov head's gain",
            mine > 0 and mine >= markov / 3,
            f"{mine:.2f} of {markov:.2f}, with {len(learn.base)} blocks to learn from",
        ),
    ]


# A new world.

DRAWN, LONGEST = 1000, 256
# The share of tokens that the three before them should tell: below it is noise, above it is a form to fill in.
GUESSED = (0.3, 0.97)


def guessed(learned: list[list[int]], unseen: list[list[int]]) -> float:
    """Return the share of tokens that a table of the three tokens before guesses right."""
    table, right, count = defaultdict(Counter), 0, 0
    for ids in learned:
        for at in range(3, len(ids)):
            table[tuple(ids[at - 3 : at])][ids[at]] += 1
    for ids in unseen:
        for at in range(3, len(ids)):
            known = table.get(tuple(ids[at - 3 : at]))
            right += bool(known) and known.most_common(1)[0][0] == ids[at]
            count += 1
    return right / max(1, count)


def grade_world(module, seed: int) -> list[Finding]:
    """Return whether a world is seeded, varied, checkable, readable for the tokenizer, split, and
    neither noise nor a form."""
    dice = random.Random(seed), random.Random(seed)
    drawn, again = ([module.example(rng) for _ in range(DRAWN)] for rng in dice)
    prompts, answers, checks = zip(*drawn)
    right = sum(bool(module.is_right(*pair)) for pair in zip(checks, answers))
    shifted = [answers[-1], *answers[:-1]]
    others = sum(bool(module.is_right(*pair)) for pair in zip(checks, shifted))
    tokenizer = dspark_lite.setup("tiny", prompts=1).tokenizer
    ids, asked = ([tokenizer(text)["input_ids"] for text in texts] for texts in (answers, prompts))
    whole = sum(tokenizer.decode(found) == answer for found, answer in zip(ids, answers))
    longest = max(len(prompt) + len(answer) for prompt, answer in zip(asked, ids))
    held_out = list(map(is_held_out, prompts))
    parts = (
        [found for found, out in zip(ids, held_out) if out is which] for which in (False, True)
    )
    share, distinct = guessed(*parts), len(set(prompts))
    low, high = GUESSED
    share_seen = f"{share:.0%} of the held-out answers, {sum(held_out)} of them"
    rows = [
        ("one seed, one world", drawn == again, f"{DRAWN} examples drawn twice"),
        ("at least 95 % of the prompts are distinct", distinct >= 0.95 * DRAWN, distinct),
        ("every reference answer is right", right == DRAWN, right),
        ("another example's answer is right in at most 10 %", others <= 0.1 * DRAWN, others),
        ("the tiny tokenizer writes every answer back", whole == DRAWN, whole),
        (
            f"prompt and answer have at most {LONGEST} tokens",
            longest <= LONGEST,
            f"the longest {longest}",
        ),
        (
            f"three tokens tell the next in {low:.0%} to {high:.0%}",
            low <= share <= high,
            share_seen,
        ),
    ]
    return [
        Finding(name, passes, f"{seen} of {DRAWN}" if isinstance(seen, int) else seen)
        for name, passes, seen in rows
    ]


GRADERS = {  # the names that a file must have, and who grades it
    "policy": (("policy",), grade_policy),
    "head": (("Head",), grade_head),
    "world": (("example", "is_right"), grade_world),
}


def grade(kind: str, path: Path, seed: int) -> list[Finding]:
    """Return the findings on a project's file. Raise RequestError if it cannot be graded."""
    names, grader = GRADERS[kind]
    if not path.is_file():
        raise RequestError(f"there is no {path}")
    module = run_file(path)
    if missing := [name for name in names if not hasattr(module, name)]:
        lacks, asks = " and no ".join(missing), " and ".join(names)
        raise RequestError(f"{path} has no {lacks}; the project asks for {asks}")
    try:
        return grader(module, seed)
    except DSparkLiteError:
        raise
    except Exception as error:
        raise RequestError(f"your {kind} raised {type(error).__name__}: {error}") from error


@report_errors
def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="project", description="Grade a project.")
    parser.add_argument("kind", choices=GRADERS)
    parser.add_argument("file", type=Path, metavar="FILE")
    says = "of the data that it is graded by (default: %(default)s)"
    parser.add_argument("--seed", type=int, default=0, help=says)
    options = parser.parse_args(arguments)
    findings = grade(options.kind, options.file, options.seed)
    width = max(len(finding.asked) for finding in findings)
    for asked, passes, seen in findings:
        print(f"{'ok ' if passes else 'NO '} {asked:{width}}  {seen}")
    return 0 if all(finding.passes for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
