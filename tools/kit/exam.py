"""An exam on paper, and its key: `python -m tools.kit.exam --seed N` writes build/exam/questions.md
and build/exam/key.md.

The questions are public, their numbers are drawn from the seed, and the key is computed by the
package: nobody who reads this repository knows a term's answers, as long as the seed is kept. Each
question ends in a reason to be given, which is what the marks are for.
"""

import argparse
import random
import sys

import torch

from dspark_lite.common.files import ROOT, write_text
from dspark_lite.decoding.sampling import residual
from dspark_lite.losslessness import marginal, output_distribution
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget
from dspark_lite.scheduling import global_optimum, retrospective, schedule, survival, throughput
from dspark_lite.scheduling.calibration import survived
from dspark_lite.scheduling.cost_table import CostTable

OUT = ROOT / "build" / "exam"


def shares(rng: random.Random, count: int) -> list[float]:
    """Return probabilities in tenths, none of them 0, that sum to 1."""
    cuts = sorted(rng.sample(range(1, 10), count - 1))
    return [(high - low) / 10 for low, high in zip([0, *cuts], [*cuts, 10])]


def listed(values, digits: int = 2) -> str:
    return ", ".join(f"{float(value):.{digits}f}" for value in values)


def rule(rng):
    """Ask for the accept rule's results on three tokens."""
    p = q = shares(rng, 3)
    while p == q:
        q = shares(rng, 3)
    p, q = torch.tensor(p), torch.tensor(q)
    return (
        f"The target's distribution over three tokens is {listed(p, 1)}, the drafter's {listed(q, 1)}. With which probability is "
        "each token kept when it was drafted? How often is a draft kept? From which distribution comes the token after a refusal? "
        "Say why the result has the target's distribution.",
        f"kept {listed((p / q).clamp(max=1))}; {torch.minimum(p, q).sum():.2f} of all drafts; {listed(residual(p, q))} after a "
        "refusal. min(p, q) is what was drafted and kept, the residual draws what is missing of p, in just the share that was "
        "refused.",
    )


def speed(rng):
    """Ask for the time of a token."""
    draft, check, plain, tau = (
        rng.randint(2, 9),
        rng.randint(22, 30),
        rng.randint(18, 21),
        rng.randint(20, 50) / 10,
    )
    gain = tau * plain / (draft + check)
    return (
        f"A pass of the target over one token takes {plain} ms, over a block {check} ms; drafting the block takes {draft} ms. A "
        f"round commits {tau} tokens in the mean. How many times as fast is that as plain decoding, and how many tokens per round "
        "would break even? Say what happens to the gain on a full server.",
        f"{gain:.2f} times; {(draft + check) / plain:.2f} tokens. On a full server a token in the batch costs nearly its full "
        "price, the pass over a block takes longer, and the gain shrinks or turns.",
    )


def caches(rng):
    """Ask what two caches forget."""
    gamma = rng.randint(5, 9)
    kept = rng.randint(1, gamma - 2)
    return (
        f"A small language model drafts {gamma} tokens, the target keeps {kept} of them. How many positions must each cache forget? "
        f"And if all {gamma} had been kept? Say which of the two caches may be wrong without anybody's text changing.",
        f"The target {gamma - kept}, the drafter {gamma - 1 - kept}: it never read its own last draft. If all are kept, none, and "
        "the drafter has its last draft still to read. The drafter's may be wrong: it only proposes, and costs speed.",
    )


def collision(rng):
    """Ask about two slots that do not know of each other."""
    share = rng.choice([0.2, 0.3, 0.4, 0.6, 0.7])
    both = share**2 + (1 - share) ** 2
    return (
        f'The target writes "of course" with probability {share} and "no problem" with {1 - share:.1f}. A parallel drafter '
        "draws both words at once, each with the right share. How often does it draft a pair that the target never writes? How "
        "often is the second draft kept, given that the first was? Say what a sequential head changes, and what it does not.",
        f"{1 - both:.2f}; {both:.2f}, as the second matches the first that often. The head's bias shifts the second slot by the "
        "first word drawn, and the pairs fit; the backbone still runs once, and the committed text was the target's before, too.",
    )


def block(rng):
    """Ask for survival and its sum."""
    said = [rng.randint(5, 9) / 10 for _ in range(4)]
    alive = survival(torch.tensor([said]))[0]
    kept = torch.tensor(survived([rng.randint(0, 4) for _ in range(8)], 4)).float().mean(0)
    return (
        f"A confidence head says {listed(said, 1)} of the four drafts of a block. What is the chance that each prefix survives, and "
        f"how many tokens does the round commit in expectation? Of eight such blocks, the shares {listed(kept, 3)} survived: is the "
        "head too sure or not sure enough at each position, and what can eight blocks show?",
        f"{listed(alive, 3)}; {1 + alive.sum():.2f} with the target's own token. Too sure where the first numbers are larger; of "
        "eight blocks a share is off by up to a third by chance alone, so hardly anything.",
    )


def by_hand(rng):
    """Ask for Algorithm 1's lengths of two requests."""
    while True:  # until the first fall is not the end of the story
        said = torch.tensor([[rng.randint(4, 9) / 10 for _ in range(3)] for _ in range(2)])
        speeds = [100]
        for _ in range(7):
            speeds.append(speeds[-1] - rng.choice([2, 3, 4, 5, 14]))
        table, alive = CostTable(range(1, 9), speeds), survival(said)
        if not torch.equal(schedule(alive, table), global_optimum(alive, table)):
            break
    return (
        f"Two requests have blocks of three drafts with the confidences {listed(said[0], 1)} and {listed(said[1], 1)}. A step with "
        f"1, 2, ..., 8 tokens is made {', '.join(map(str, speeds))} times a second. Which drafts does Algorithm 1 admit? Which "
        "lengths have the highest throughput of all? Say why one may not take those.",
        f"Algorithm 1: {schedule(alive, table).tolist()}; the highest: {global_optimum(alive, table).tolist()}; theta along the "
        f"order {listed(throughput(alive, table)[1], 1)}. Behind the first fall stand survivals that were computed from drafts "
        "already drawn: a draw would decide whether it is verified.",
    )


def appendix(rng):
    """Ask for the example of Appendix A with other numbers."""
    share, drafted = rng.choice([(0.7, 0.4), (0.6, 0.4), (0.8, 0.6), (0.6, 0.3)])
    kept = min(share, drafted) + min(1 - share, 1 - drafted)
    drafter = ToyDrafter(
        [[drafted, 1 - drafted]] * 2, first_confidence=kept, confidence=[0.9, 0.0], gamma=2
    )
    table, target = CostTable([1, 2, 3], [1.0, 0.5, 0.45]), ToyTarget([[share, 1 - share]] * 2)
    found = marginal(output_distribution(target, drafter, retrospective(table), length=2), 1)[0]
    return (
        f"The target writes the word 0 with probability {share}, the drafter with {drafted}; a first draft is kept with {kept:.1f}. "
        "After a drafted 0 the second draft is trusted with 0.9, after a drafted 1 not at all. A step with 1, 2, 3 tokens is made "
        "1, 0.5, 0.45 times a second. A scheduler takes the lengths with the highest throughput. With which probability does it "
        "write a 0? Say which test would have found that, and which not.",
        f"{found:.2f} in place of {share}. Enumeration, or a test of the distribution of draws; at temperature 0 nothing shows.",
    )


def ragged(rng):
    """Ask for the layout of a ragged batch."""
    starts, counts = [rng.randint(2, 9) for _ in range(3)], [rng.randint(1, 3) for _ in range(3)]
    position = [start + k for start, count in zip(starts, counts) for k in range(count)]
    request = [r for r, count in enumerate(counts) for _ in range(count)]
    last = sum(counts) - 1
    return (
        f"Three requests have {', '.join(map(str, starts))} tokens in one cache and bring {', '.join(map(str, counts))} tokens into "
        "the next pass. Write down request and position of every token. How many keys does the last of them see? Say what would go "
        "wrong if one compared positions alone.",
        f"request {request}, position {position}; {position[last] + 1} keys, its own among them. Tokens would see other requests' "
        "keys of lower position.",
    )


QUESTIONS = {
    "The accept rule on three tokens (lesson 02).": rule,
    "The time of a token (lesson 01).": speed,
    "What two caches forget (lesson 03).": caches,
    "Two slots that do not know of each other (lesson 04).": collision,
    "Survival and its sum (lesson 09).": block,
    "Algorithm 1 on two requests (lesson 10).": by_hand,
    "Appendix A with other numbers (lesson 10).": appendix,
    "A ragged batch (lesson 11).": ragged,
}


def exam(seed: int) -> tuple[str, str]:
    """Return the sheet and its key."""
    rng = random.Random(seed)
    pairs = [(title, *question(rng)) for title, question in QUESTIONS.items()]
    sheet = [f"**{number}.** {text}\n" for number, (_, text, _) in enumerate(pairs, 1)]
    key = [f"**{number}.** {of} {text}\n" for number, (of, _, text) in enumerate(pairs, 1)]
    marks = "Three points a question: two for the numbers, one for the reason.\n"
    pages = ["# Speculative decoding\n", marks, *sheet], [f"# Key, seed {seed}\n", *key]
    return tuple(map("\n".join, pages))


def main(arguments: list[str] | None = None) -> int:
    says = "Write an exam and its key to build/exam."
    parser = argparse.ArgumentParser(prog="exam", description=says)
    says = "of the numbers; keep it to yourself"
    parser.add_argument("--seed", type=int, required=True, help=says)
    seed = parser.parse_args(arguments).seed
    for name, text in zip(("questions.md", "key.md"), exam(seed)):
        write_text(OUT / name, text)
    folder = OUT.relative_to(ROOT)
    print(f"{len(QUESTIONS)} questions in {folder}/questions.md, the answers in key.md.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
