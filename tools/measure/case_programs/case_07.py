"""Case 07: a drafter that is shown its labels while it learns."""

from functools import cache
from typing import NamedTuple

import torch

from .recorded import Recorded, Rows

# Tokens of a toy text, its length, that of a new text, steps of training.
STATES, SEEN, NEW, STEPS = 8, 4000, 2000, 60


class Training(NamedTuple):
    """A drafter that learns the next token from the last one: where its label stands (1: the next token), whether it is shown
    the label, whether it learns each place by heart, and how far its guesses are read beside their place."""

    label: int = 1
    shown: bool = False
    by_heart: bool = False
    read_off: int = 0


@cache
def toy_text() -> tuple[torch.Tensor, torch.Tensor]:
    """Return a table [V, V] of next-token probabilities, and a text drawn from it."""
    generator = torch.Generator().manual_seed(7)
    table = (2 * torch.randn(STATES, STATES, generator=generator)).softmax(-1)
    text = [0]
    for _ in range(SEEN + NEW):
        text.append(int(torch.multinomial(table[text[-1]], 1, generator=generator)))
    return table, torch.tensor(text)


def training_measured(program: Training) -> dict[str, Rows]:
    """Train a table of logits, and let it draft."""
    table, text = toy_text()
    read = torch.arange(1, SEEN)
    given, label = text[read], text[read + program.label]
    weights = torch.zeros(2 * STATES, STATES)  # a row for the token read, a row for the label shown
    heart = torch.zeros(SEEN, STATES)  # a row for each place of the text
    for part in (weights, heart):
        part.requires_grad_(True)

    def rows(given, shown):
        return weights[given] + (weights[STATES + shown] if program.shown else 0)

    optimiser = torch.optim.Adam([weights, heart], lr=0.3)
    with torch.enable_grad():
        for _ in range(STEPS):
            logits = rows(given, label) + (heart[read] if program.by_heart else 0)
            loss = torch.nn.functional.cross_entropy(logits, label)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    weights, loss = weights.detach(), loss.item()
    new = torch.arange(SEEN, SEEN + NEW - 1)

    def loss_on(logits):
        return f"{torch.nn.functional.cross_entropy(logits, text[new + program.label]):.2f}"

    blank = weights[text[new]]
    drafted = weights[:STATES].softmax(-1).roll(program.read_off, 0)
    kept = torch.minimum(drafted, table).sum(-1)[text[new]].mean()
    guess = drafted.argmax(-1)
    return {
        "training loss": {"at the end": f"{loss:.2f}"},
        "loss on new text": {"at the end": loss_on(rows(text[new], text[new + program.label]))},
        "label hidden": {"loss on new text": loss_on(blank)},
        "drafts kept": {"of the first draft": f"{kept:.0%}"},
        "guesses": {
            "the next token": f"{(guess[text[new]] == text[new + 1]).float().mean():.0%}",
            "the token it was given": f"{(guess[text[new]] == text[new]).float().mean():.0%}",
        },
    }


def case_07() -> Recorded:
    return Recorded(
        Training(),
        {
            "the labels stand one place too early": Training(label=0),
            "a slot is shown its own label": Training(shown=True),
            "the text was learned by heart": Training(by_heart=True),
            "guesses are read one slot off": Training(read_off=1),
        },
        training_measured,
    )
