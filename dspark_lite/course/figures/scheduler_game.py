"""Be the scheduler: a reader sends drafts of recorded blocks on a clock, with Algorithm 1 beside.

Whoever peeks at the outcome before choosing changes the output. The game shows it on the paper's Appendix A, served
beside the requests: by Algorithm 1 in an honest step, by the policy that takes the top, which has seen the drafted word, in a
step with a peek.
"""

from pathlib import Path

import numpy as np
import torch

from ...losslessness import marginal, output_distribution
from ...losslessness.toys import appendix_a
from ...scheduling import algorithm1, retrospective, schedule, survival
from ..replication.block_replay import stored_blocks
from .step_scene import MACHINE, made_up_table
from .widgets import Player, module, play, styles

HERE = Path(__file__).parent
REQUESTS = (2, 3, 4, 5, 6, 6, 4, 2)  # in each step
ANSWERS = 75  # of the test request, in each step
SEED = 0


class SchedulerGame(Player):
    """A player of `game_scene`."""

    _esm = module(HERE / "scheduler_game.js")
    _css = styles(HERE / "game.css")


def scheduler_game():
    """Show the game; return the widget (None without anywidget). Where no widget runs, a table of the first step stands."""
    scene = game_scene()
    first = scene["steps"][0]
    rows = [
        f"| {number} | {' · '.join(f'{chance:.2f}' for chance in alive)} | {length} |"
        for number, (alive, length) in enumerate(zip(first["alive"], first["lengths"]), start=1)
    ]
    question = (
        f"A step lasts {MACHINE} ms and 1 ms for each token, anchors included. Which drafts would you send? "
        "The number of each is the chance that it and all before it are kept."
    )
    head = ["| request | survival of its drafts | Algorithm 1 sends |", "|---|---|---|"]
    return play(
        SchedulerGame,
        "scheduler_game",
        scene,
        {"text/markdown": "\n".join([question, "", *head, *rows]), "text/plain": question},
    )


def game_scene() -> dict:
    """Return the steps: survivals, accepted drafts and Algorithm 1's lengths of recorded blocks; and how often the test
    request says 0, honestly scheduled and after a peek."""
    logits, accepted = stored_blocks()
    chosen = np.random.default_rng(SEED).permutation(len(accepted))[: sum(REQUESTS)]
    table = made_up_table(max(REQUESTS) * (1 + logits.shape[-1]))
    steps = []
    for blocks in np.split(chosen, np.cumsum(REQUESTS)[:-1]):
        alive = survival(torch.sigmoid(logits[blocks]))
        steps.append(
            {
                "alive": alive.double().numpy().round(2).tolist(),
                "accepted": accepted[blocks].tolist(),
                "lengths": schedule(alive, table).tolist(),
            }
        )
    return {"machine": MACHINE, "steps": steps, "answers": ANSWERS, "test": test_request()}


def test_request() -> dict:
    """Return of Appendix A's request the target's share of the word 0, and how many of ANSWERS say 0 in each step, drawn from
    the exactly counted output of each policy."""
    target, drafter, table = appendix_a()
    generator = np.random.default_rng(SEED)
    zeros = {}
    for name, policy in (("honest", algorithm1(table)), ("peeked", retrospective(table))):
        share = marginal(output_distribution(target, drafter, policy, length=2), 1)[0]
        zeros[name] = generator.binomial(ANSWERS, min(share, 1.0), len(REQUESTS)).tolist()
    return {"target": round(target.table[0, 0].item(), 4), **zeros}
