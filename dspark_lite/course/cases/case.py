"""A case in a notebook: the reader takes at most three measurements, then accuses a suspect.

It is played by bets/bet.js, here by anywidget and in the web edition without a kernel. Where anywidget is not
installed, the case stands as text, and `measure` and `accuse` play it.
"""

from ...common.errors import RequestError
from ..bets.bet import BetWidget, in_solutions
from ..bets.score import note_case
from ..figures import widgets
from ..own_decoder.keep import own_file
from . import records
from .own_file import SEED, own_file_case
from .records import MAX_MEASUREMENTS


class Case:
    """A case of assets/cases: the measurements that were `taken`, the suspects that were `accused`, in their order."""

    def __init__(self, number: str, record: dict):
        self.number, self.record = number, record
        self.taken, self.accused = [], []
        self.widget = None

    def show(self) -> None:
        """Display the case."""
        scene = records.scene(self.number, self.record)
        faces = {"text/markdown": self.still(), "text/plain": self.record["story"]}
        self.widget = widgets.play(BetWidget, "case", scene, faces)
        if self.widget:
            self.widget.observe(lambda change: self.play(**change.new), "chosen")

    def play(self, taken: list[str], accused: list[str]) -> None:
        """Take over what was measured and who was accused, and note a case that is closed."""
        if (taken, accused) == (self.taken, self.accused):
            return  # the widget's echo
        self.taken, self.accused = list(taken), list(accused)
        if self.is_closed:
            note_case(self.number, records.is_solved(self.record, self.taken, self.accused))
        if self.widget:
            self.widget.chosen = {"taken": self.taken, "accused": self.accused}

    @property
    def is_closed(self) -> bool:
        """Return whether the cause was accused."""
        return self.record["cause"] in self.accused

    def measure(self, name: str) -> None:
        """Take a measurement and print it. Raise RequestError for one that is not there, and after MAX_MEASUREMENTS."""
        if name not in self.record["measurements"]:
            there = ", ".join(self.record["measurements"])
            raise RequestError(f"There is no measurement {name!r}; there are {there}.")
        if name not in self.taken:
            if len(self.taken) == MAX_MEASUREMENTS:
                raise RequestError(
                    f"All {MAX_MEASUREMENTS} measurements are taken; accuse somebody."
                )
            self.play([*self.taken, name], self.accused)
        print(*self.record["measurements"][name]["result"], sep="\n")
        print(f"Measurements left: {MAX_MEASUREMENTS - len(self.taken)}.")

    def accuse(self, suspect: str) -> None:
        """Accuse a suspect and print what speaks against it, or the verdict. Raise RequestError for one that is not there."""
        if suspect not in self.record["suspects"]:
            there = "; ".join(self.record["suspects"])
            raise RequestError(f"{suspect!r} is no suspect; these are: {there}.")
        if suspect not in self.accused:
            self.play(self.taken, [*self.accused, suspect])
        print(records.answer(self.record, self.taken, suspect))
        if self.is_closed:
            print(self.record["why"])
            for name, measurement in self.record["measurements"].items():
                print(f"- {name}: {measurement['tells']}")

    def still(self) -> str:
        """Return the markdown that stands where no widget runs: the case, in the solutions with the verdict."""
        record, solved = self.record, in_solutions()
        parts = [f"**Case {self.number}: {record['title']}**", record["story"]]
        if "seen" in record:
            parts.append(fenced(record["seen"]))
        if not solved:
            said = [f"- {name}: {m['does']}" for name, m in record["measurements"].items()]
            parts += [
                f"Measure at most {MAX_MEASUREMENTS} of these:",
                "\n".join(said),
                "Then accuse one:",
            ]
            return "\n\n".join([*parts, "\n".join(f"- {name}" for name in record["suspects"])])
        for name, measurement in record["measurements"].items():
            parts += [f"*{name}*: {measurement['tells']}", fenced(measurement["result"])]
        for suspect, against in record["suspects"].items():
            said = [f"{why} ({name})" for name, why in against.items()]
            if said:
                parts.append(f"Not “{suspect}”: {' '.join(said)}")
        return "\n\n".join([*parts, f"It is “{record['cause']}”. {record['why']}"])

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
    shown = Case(number, records.read_case(number) if recorded else own_file_case(seed))
    shown.show()
    if not shown.widget:
        print(
            'No buttons here? Write NAME.measure("...") or NAME.accuse("...") in a cell, with the name of this case.'
        )
    return shown
