"""The times that lessons 03, 05 and 06 show, from one recording: drafts and verifications by
length, and the parts of a round.

`python -m tools.measure.clocks` records them on the tiny models. A reader may take them on another
machine.
"""

import torch

from ...common.files import ROOT
from ...common.timing import time_interleaved
from ...decoding.sampling import probabilities
from ..result_files import read
from .draft_times import draft_times, verification_times
from .lab import Lab

RECORDED = ROOT / "assets" / "measurements" / "clocks.json"
WRITTEN_BY = "python -m tools.measure.clocks"
TIMED = ("small_lm", "mtp", "eagle3", "dflash", "dspark")


def recorded() -> dict:
    """Return what `measured` found on the tiny models."""
    file = read(RECORDED, WRITTEN_BY)
    return {
        **file,
        "draft": {name: _by_number(cost) for name, cost in file["draft"].items()},
        "verify": _by_number(file["verify"]),
    }


def _by_number(cost: dict[str, float]) -> dict[int, float]:
    """Return {length: ms} with the lengths as numbers, which JSON has as texts."""
    return {int(length): spent for length, spent in cost.items()}


def measured(lab: Lab, repeats: int = 12) -> dict:
    """Return least milliseconds on the lab's device, by what they are of.

    "draft": {drafter: {drafts: ms}}; "verify": {drafts: ms}, 0 drafts being a plain pass; "parts":
    `round_parts`.
    """
    prompt_ids = lab.encode(lab.prompts["chat"][0])
    names = [name for name in TIMED if name in lab.drafters]
    gamma = lab.drafter("dspark").gamma
    draft, _, _ = draft_times(lab, names, prompt_ids, gamma, repeats)
    return {
        "device": lab.device_name,
        "draft": draft,
        "verify": verification_times(lab, prompt_ids, gamma, repeats),
        "parts": round_parts(lab, prompt_ids, repeats),
    }


@torch.inference_mode()
def round_parts(lab: Lab, prompt_ids: torch.Tensor, repeats: int) -> dict[str, float]:
    """Return the least milliseconds of the parts of DSpark's round after a prompt [1, n], in turn,
    and of draws without the head."""
    dspark = lab.drafter("dspark")
    read_ids, anchor = prompt_ids[:, :-1], prompt_ids[:, -1]
    output, cache = lab.target.prefill(read_ids, dspark.taps)
    state = dspark.begin(read_ids, output.features)
    hidden = dspark.block_hidden(state, anchor)
    block = torch.cat([anchor[:, None], anchor.new_zeros(1, dspark.gamma)], 1)

    def verify_and_forget():
        lab.target.verify(block, cache, dspark.taps)
        lab.target.roll_back(cache, dspark.gamma + 1)

    work = {
        "backbone, one pass": lambda: dspark.block_hidden(state, anchor),
        "draw the slots independently": lambda: probabilities(dspark.lm_head(hidden), 1.0)[
            0
        ].multinomial(1),
        "draw the block with the head": lambda: dspark.draw_block(
            hidden, anchor, 1.0, lab.generator()
        ),
        "target, verify the block": verify_and_forget,
    }
    timed = time_interleaved(work, lab.device, repeats=repeats)
    return {part: min(spent) for part, spent in timed.items()}
