"""A bet: the reader chooses before a cell measures, and the answer appears to those who have chosen.

It is an anywidget, whose module bet.js also plays in the web edition. Where anywidget is not installed the question stands as
text, and `choose` takes the answer.
"""

import os
from numbers import Real
from pathlib import Path

from traitlets import Any, link

from ...common.errors import RequestError
from ..figures.widgets import Player, module, play, styles
from .questions import BELIEFS, is_right, question, wrong_choice
from .score import note_bet

HERE = Path(__file__).parent


class BetWidget(Player):
    """The choices of a question, or the verdict on the one that was taken (`scene["answer"]`)."""

    _esm = module(HERE / "bet.js")
    _css = styles(HERE / "bet.css")
    chosen = Any(None, allow_none=True).tag(sync=True)


class Bet:
    """A question of assets/bets, the reader's choice (None before there is one) and the answer (None before it is found)."""

    def __init__(self, name: str):
        self.name, self.asked = name, question(name)
        self.options = [option["text"] for option in self.asked.get("options", ())]
        self.chosen = self.answer = None
        self.widgets = []

    def show(self, told: str = "") -> None:
        """Display the question, or with `self.answer` the verdict; in the web edition and on GitHub, too."""
        scene = {"name": self.name, "beliefs": BELIEFS, **self.asked}
        if self.answer is not None:
            scene |= {"answer": self.answer, "told": told}
        faces = {"text/markdown": self.still(told), "text/plain": self.asked["question"]}
        widget = play(BetWidget, "bet", scene, faces)
        if widget:
            widget.chosen = self.chosen
            widget.observe(lambda change: self.choose(change.new), "chosen")
            if self.widgets:
                link((self.widgets[0], "chosen"), (widget, "chosen"))
            self.widgets.append(widget)

    def choose(self, choice) -> None:
        """Take the reader's choice: an option's text, or a number. Raise RequestError for an option that is not there."""
        if self.options and choice not in self.options:
            raise RequestError(f"{choice!r} is no option; these are {', '.join(self.options)}.")
        if not self.options and not isinstance(choice, Real):
            raise RequestError(f"{choice!r} is no number; choose a number of {self.asked['unit']}.")
        self.chosen = choice
        for widget in self.widgets:
            widget.chosen = choice
        self.note()

    def settle(self, answer, told: str = "") -> None:
        """Give the answer: an option's text, or a number; `told` says how it was found, in one line.

        It is shown to readers who have chosen, and in the solutions; others are asked once more.
        """
        if self.options and answer not in self.options:
            raise RequestError(
                f"{answer!r} answers {self.name!r}, but its options are {self.options}."
            )
        self.answer = getattr(answer, "item", lambda: answer)()
        self.note()
        self.show(told)

    def note(self) -> None:
        """Keep the score of a bet that is made and settled."""
        if self.chosen is None or self.answer is None:
            return
        right = is_right(self.asked, self.chosen, self.answer)
        wrong = {} if right else wrong_choice(self.asked, self.chosen, self.answer)
        note_bet(self.name, self.chosen, right, wrong.get("betrays"))

    def still(self, told: str) -> str:
        """Return the markdown that stands where no widget runs: the question and its options, or the verdict."""
        asked = self.asked
        if self.answer is not None and (self.chosen is not None or in_solutions()):
            right = f"{self.answer:.3g}" if "range" in asked else self.answer
            unit = f" {asked['unit']}" if "range" in asked else ""
            lines = [f"**{asked['question']}**", "", f"{right}{unit}" + f" ({told})" * bool(told)]
            if self.chosen is not None and not is_right(asked, self.chosen, self.answer):
                belief = wrong_choice(asked, self.chosen, self.answer).get("belief", "")
                lines.append(f"You bet on {self.chosen}. {belief}".strip())
            return "\n\n".join(filter(None, [*lines, asked["why"]]))
        if self.answer is not None:
            return "*The answer appears here once you have bet.*"
        if "range" in asked:
            low, high, _ = asked["range"]
            choices = f"A number from {low:g} to {high:g} {asked['unit']}."
        else:
            choices = "\n".join(f"- {option}" for option in self.options)
        return f"**Your bet: {asked['question']}**\n\n{choices}"

    def __repr__(self) -> str:
        return f"Bet({self.name!r}, chosen={self.chosen!r})"


def in_solutions() -> bool:
    """Return whether this kernel builds the edition with solutions (tools/notebooks/build.py sets DSPARK_BUILD)."""
    return os.environ.get("DSPARK_BUILD") == "solutions"


def bet(name: str) -> Bet:
    """Ask the question "NN name" of assets/bets; return the bet, to be settled by what a later cell finds."""
    asked = Bet(name)
    asked.show()
    if not asked.widgets:
        print(
            'No buttons here? Write your choice in a cell: NAME.choose("..."), with the name this bet was given.'
        )
    return asked
