"""A case in a notebook: the reader takes at most three measurements, then accuses a suspect.

It is played by bets/bet.js, here by anywidget and in the web edition without a kernel. Where anywidget is not
installed, the case stands as text, and `measure` and `accuse` play it.
"""

from dspark_lite.common.errors import RequestError
from ..bets.asking import BetWidget, in_solutions
from ..bets.score import note_case
from ..exercises.keep import own_file
from ..figures import widgets
from . import files
from .files import MOST
from .own_file import SEED, own_file_case


class Case:
    """A case of assets/cases: the measurements that were `taken`, the suspects that were `accused`, in their order."""

    def __init__(self, number: str, found: dict):
        self.number, self.found = number, found
        self.taken, self.accused = [], []
        self.widget = None

    def show(self) -> None:
        """Display the case."""
        scene = files.scene(self.number, self.found)
        faces = {"text/markdown": self.still(), "text/plain": self.found["story"]}
        self.widget = widgets.play(BetWidget, "case", scene, faces)
        if self.widget:
            self.widget.observe(lambda change: self.play(**change.new), "chosen")

    def play(self, taken: list[str], accused: list[str]) -> None:
        """Take over what was measured and who was accused, and note a case that is closed."""
        if (taken, accused) == (self.taken, self.accused):
            return  # the widget's echo
        self.taken, self.accused = list(taken), list(accused)
        if self.is_closed:
            note_case(self.number, files.is_solved(self.found, self.taken, self.accused))
        if self.widget:
            self.widget.chosen = {"taken": self.taken, "accused": self.accused}

    @property
    def is_closed(self) -> bool:
        """Return whether the cause was accused."""
        return self.found["cause"] in self.accused

    def measure(self, name: str) -> None:
        """Take a measurement and print it. Raise RequestError for one that is not there, and after MOST."""
        if name not in self.found["measurements"]:
            there = ", ".join(self.found["measurements"])
            raise RequestError(f"There is no measurement {name!r}; there are {there}.")
        if name not in self.taken:
            if len(self.taken) == MOST:
                raise RequestError(f"All {MOST} measurements are taken; accuse somebody.")
            self.play([*self.taken, name], self.accused)
        print(*self.found["measurements"][name]["result"], sep="\n")
        print(f"Measurements left: {MOST - len(self.taken)}.")

    def accuse(self, suspect: str) -> None:
        """Accuse a suspect and print what speaks against it, or the verdict. Raise RequestError for one that is not there."""
        if suspect not in self.found["suspects"]:
            there = "; ".join(self.found["suspects"])
            raise RequestError(f"{suspect!r} is no suspect; these are: {there}.")
        if suspect not in self.accused:
            self.play(self.taken, [*self.accused, suspect])
        print(files.answer(self.found, self.taken, suspect))
        if self.is_closed:
            print(self.found["why"])
            for name, measurement in self.found["measurements"].items():
                print(f"- {name}: {measurement['tells']}")

    def still(self) -> str:
        """Return the markdown that stands where no widget runs: the case, in the solutions with the verdict."""
        found, solved = self.found, in_solutions()
        parts = [f"**Case {self.number}: {found['title']}**", found["story"]]
        if "seen" in found:
            parts.append(fenced(found["seen"]))
        if not solved:
            said = [f"- {name}: {m['does']}" for name, m in found["measurements"].items()]
            parts += [f"Measure at most {MOST} of these:", "\n".join(said), "Then accuse one:"]
            return "\n\n".join([*parts, "\n".join(f"- {name}" for name in found["suspects"])])
        for name, measurement in found["measurements"].items():
            parts += [f"*{name}*: {measurement['tells']}", fenced(measurement["result"])]
        for suspect, against in found["suspects"].items():
            said = [f"{why} ({name})" for name, why in against.items()]
            if said:
                parts.append(f"Not “{suspect}”: {' '.join(said)}")
        return "\n\n".join([*parts, f"It is “{found['cause']}”. {found['why']}"])

    def __repr__(self) -> str:
        return f"Case({self.number!r}, taken={self.taken}, accused={self.accused})"


def fenced(lines: list[str]) -> str:
    """Return lines as markdown shows them unchanged."""
    return "\n".join(["```text", *lines, "```"])


def case(number: str, seed: int | None = None) -> Case:
    """Show the case of a lesson ("03") and return it. With a seed, which case 14 takes, it is made of the reader's own my_dspark.py.

    The course's file with the lesson's seed was measured beforehand.
    """
    recorded = seed is None or (seed == SEED and not own_file().is_file())
    shown = Case(number, files.read_case(number) if recorded else own_file_case(seed))
    shown.show()
    if not shown.widget:
        print(
            'No buttons here? Write NAME.measure("...") or NAME.accuse("...") in a cell, with the name of this case.'
        )
    return shown
