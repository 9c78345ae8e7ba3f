"""Case 14: the reader's own my_dspark.py with one secret line changed."""

import random
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch

from ...decoding.rounds import generate
from ...losslessness.enumeration import LOSSY_DISTANCE, total_variation
from ...models.checkpoints import EMBEDDED
from ..measure.lab import setup
from ..names import PROFILES
from ..own_decoder import verifying
from ..own_decoder.judge import run_file, visited
from ..own_decoder.keep import EDITION, own_file, split

SEED = 3  # of the lesson
TOKENS = 40  # of an answer


class Slip(NamedTuple):
    """A function of my_dspark.py, a piece of its text, what takes its place, and what that does."""

    function: str
    old: str
    new: str
    why: str


SLIPS = {
    "features of refused drafts stay": Slip(
        "generate",
        "draft.extend(features[:len(new)])",
        "draft.extend(features)",
        "The draft reads words that the text does not have, and more of them with every round. The target knows nothing of it.",
    ),
    "the correction is drawn from p": Slip(
        "verify",
        "draw(residual(p[k], q[k]), generator)",
        "draw(p[k], generator)",
        "What was offered too often gets a second chance. At temperature 0 nothing shows: there the replacement is the same.",
    ),
    "every slot is biased by the anchor": Slip(
        "draw_block",
        "previous = drafts[-1] if drafts else anchor",
        "previous = anchor",
        "Only the first slot stands after the anchor. The others no longer follow their own block.",
    ),
    "the bonus comes from the row before": Slip(
        "verify",
        "draw(p[len(drafts)], generator)",
        "draw(p[len(drafts) - 1], generator)",
        "That row has judged the last draft. So the last draft is written twice wherever a whole block is kept.",
    ),
    "the target forgets one token too many": Slip(
        "generate",
        "forget(len(drafts), len(new) - 1)[0]:",
        "forget(len(drafts), len(new) - 1)[0] + 1:",
        "A token of the text is missing from what the target has read, and every later one stands a place too far back.",
    ),
}
MEASUREMENTS = {
    "verify, every outcome": (
        "enumerate its rounds at temperature 1",
        "This sees a lossy rule, and nothing of what stands around it.",
    ),
    "greedy text": (
        "compare an answer with plain decoding's",
        "This sees what changes the target's text. It sees neither a drafter's slip nor a wrong draw of the right token.",
    ),
    "tokens a round": (
        "count them in the same answer",
        "This sees that drafts are worse, and not why. A wrong text has rounds of its own.",
    ),
    "what the draft remembers": (
        "compare its context with the text, at the end",
        "This sees features that belong to no text. It sees nothing of the target's cache.",
    ),
    "another anchor, the same hidden states": (
        "draw a block after two anchors",
        "Greedy drafts are kept fixed, so only slot 1 may move. This sees what the head reads.",
    ),
}


def complete(text: str) -> bool:
    """Return whether a reader's file has all functions that a slip changes, and the others that they need."""
    try:
        pieces = split(text)[1]
    except SyntaxError:
        return False
    return split(EDITION.read_text(encoding="utf-8"))[1].keys() <= pieces.keys()


def with_slip(text: str, slip: Slip) -> str:
    """Return a file's text with a slip; where it is written in other words than the course's, the course's function takes the place of
    the reader's."""
    if text.count(slip.old) == 1:
        return text.replace(slip.old, slip.new)
    piece = split(text)[1][slip.function]
    changed = split(EDITION.read_text(encoding="utf-8"))[1][slip.function].source.replace(
        slip.old, slip.new
    )
    lines = text.split("\n")
    return "\n".join([*lines[: piece.start], changed, *lines[piece.end :]])


@torch.inference_mode()
def measure(text: str, lab) -> dict[str, list[str]]:
    """Return what each measurement gives of a my_dspark.py."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "my_dspark.py"
        path.write_text(text, encoding="utf-8")
        mine = run_file(path)
    with visited(mine):
        distance = total_variation(verifying.texts(mine.verify)[0], verifying.target_texts())
    draft = mine.Draft(EMBEDDED / PROFILES["tiny"]["dspark"])
    ids = lab.encode(lab.prompts["chat"][0])[0].tolist()
    plain = generate(
        lab.target, None, torch.tensor([ids]), max_new_tokens=TOKENS, stop_token_ids=()
    ).token_ids
    tokens, rounds = mine.generate(lab.target.model, draft, ids, TOKENS)
    hidden = mine.block_pass(draft, tokens[-1])
    mine.draw = lambda probs, generator: 5
    rows = [mine.draw_block(draft, hidden, anchor, 1.0, None)[1] for anchor in (7, 9)]
    moved = ((rows[0] - rows[1]).abs().amax(-1) > 1e-5).tolist()
    return {
        "verify, every outcome": ["lossy" if distance > LOSSY_DISTANCE else "lossless"],
        "greedy text": ["the target's" if tokens == plain else "another"],
        "tokens a round": [f"{sum(rounds) / len(rounds):.2f}"],
        "what the draft remembers": [f"{draft.length - len(ids) - len(tokens) + 1:+d} tokens"],
        "another anchor, the same hidden states": [f"{sum(moved)} of {len(moved)} slots move"],
    }


def own_file_case(seed: int = SEED, path: Path | None = None) -> dict:
    """Return the case of a file (the reader's, or the course's where it is not complete) with a slip drawn by the seed."""
    path = path or own_file()
    text, whose = path.read_text(encoding="utf-8") if path.is_file() else "", "Your own"
    if not complete(text):
        text, whose = EDITION.read_text(encoding="utf-8"), "The course's own"
    lab = setup("tiny", prompts=1)
    given = {name: measure(with_slip(text, slip), lab) for name, slip in SLIPS.items()}
    cause = random.Random(seed).choice(list(SLIPS))
    here, healthy = given[cause], measure(text, lab)
    return {
        "title": "One line is another",
        "story": f"{whose} my_dspark.py, with one line changed. It runs, and nothing raises.",
        "measurements": {
            name: {
                "does": does,
                "tells": tells,
                "result": [f"here     {here[name][0]}", f"healthy  {healthy[name][0]}"],
            }
            for name, (does, tells) in MEASUREMENTS.items()
        },
        "suspects": {
            suspect: {
                name: f"it would be: {found[name][0]}."
                for name in MEASUREMENTS
                if found[name] != here[name]
            }
            for suspect, found in given.items()
        },
        "cause": cause,
        "why": SLIPS[cause].why,
    }
