"""The score of the bets, kept in my_progress.json beside the exercises that were passed."""

import html
from collections import Counter

from IPython.display import display

from ..exercises.progress import in_notebook, passed, save
from ..figures.widgets import web_metadata
from .questions import BELIEFS, by_lesson

BETS = "bets"  # their key in my_progress.json: {name: [choice, won, belief]}
WON, LOST, OPEN = "■", "□", "·"


def noted() -> dict[str, list]:
    """Return {name: [choice, won, belief]} of the bets that are settled."""
    return passed().get(BETS, {})


def note_bet(name: str, choice, won: bool, belief: str | None) -> None:
    """Keep a settled bet, in a notebook alone."""
    if in_notebook():
        save({**passed(), BETS: {**noted(), name: [choice, won, belief]}})


def sentence(bets: dict[str, list]) -> str:
    """Return the score in a sentence: how many were won, and what the lost ones most often take for granted."""
    if not bets:
        return "No bet is settled yet."
    said = f"Your bets: {sum(won for _, won, _ in bets.values())} of {len(bets)} won"
    lost = Counter(belief for _, won, belief in bets.values() if not won and belief)
    if lost and (most := lost.most_common(1)[0])[1] > 1:
        said += f"; {BELIEFS[most[0]]} ({most[1]} times)"
    return said + "."


def show_score(lesson: str) -> None:
    """Draw the reader's bets, a row a lesson up to `lesson` ("05"), and say what they have in common."""
    bets = noted()
    rows = []
    for number, names in by_lesson().items():
        if number <= lesson:
            marks = [OPEN if name not in bets else WON if bets[name][1] else LOST for name in names]
            rows.append(f"{number} {' '.join(marks)}")
    text = "\n".join([sentence(bets), *rows, f"{WON} won  {LOST} lost  {OPEN} open"])
    faces = {"text/html": f'<pre class="bets">{html.escape(text)}</pre>', "text/plain": text}
    numbers = {"lessons": by_lesson(), "beliefs": BELIEFS}
    display(faces, raw=True, metadata=web_metadata("score", numbers))
