"""The score of bets and cases, kept in my_progress.json beside the exercises that were passed."""

import html
from collections import Counter

from IPython.display import display

from ..checkers.progress import in_notebook, passed, save
from ..figures.widgets import web_metadata
from .questions import BELIEFS, by_lesson, lessons_with_a_case

BETS = "bets"  # their key in my_progress.json: {name: [choice, won, belief]}
CASES = "cases"  # the same: {lesson: whether its case was solved by what was measured}
WON, LOST, OPEN = "■", "□", "·"


def noted() -> dict[str, list]:
    """Return {name: [choice, won, belief]} of the bets that are settled."""
    return passed().get(BETS, {})


def note_bet(name: str, choice, won: bool, belief: str | None) -> None:
    """Keep a settled bet, in a notebook alone."""
    if in_notebook():
        save({**passed(), BETS: {**noted(), name: [choice, won, belief]}})


def noted_cases() -> dict[str, bool]:
    """Return {lesson: solved} of the cases that are closed."""
    return passed().get(CASES, {})


def note_case(lesson: str, solved: bool) -> None:
    """Keep a closed case, in a notebook alone; the first time counts."""
    if in_notebook():
        save({**passed(), CASES: {lesson: solved, **noted_cases()}})


def sentence(bets: dict[str, list]) -> str:
    """Return the score in a sentence: how many were won, and what the lost ones most often take for granted."""
    if not bets:
        return "No bet is settled yet."
    said = f"Your bets: {sum(won for _, won, _ in bets.values())} of {len(bets)} won"
    lost = Counter(belief for _, won, belief in bets.values() if not won and belief)
    if lost and (most := lost.most_common(1)[0])[1] > 1:
        said += f"; {BELIEFS[most[0]]} ({most[1]} times)"
    return said + "."


def score_numbers() -> dict:
    """Return what the web edition's score is drawn from: all bets by lesson, BELIEFS, lessons with a case."""
    return {"lessons": by_lesson(), "beliefs": BELIEFS, "cases": lessons_with_a_case()}


def show_score(lesson: str) -> None:
    """Draw the reader's bets and cases, a row a lesson up to `lesson` ("05"), and say what the bets have in common."""
    bets, cases, with_case = noted(), noted_cases(), lessons_with_a_case()
    mark = {True: WON, False: LOST, None: OPEN}
    said = f"{sentence(bets)} Your cases: {sum(cases.values())} of {len(with_case)} solved."
    rows = []
    for number in sorted({*by_lesson(), *with_case}):
        marks = [mark[bets.get(name, (None, None))[1]] for name in by_lesson().get(number, ())]
        if number in with_case:
            marks.append(f" case {mark[cases.get(number)]}")
        if number <= lesson:
            rows.append(" ".join([number, *marks]))
    text = "\n".join([said, *rows, f"{WON} won or solved  {LOST} not  {OPEN} open"])
    faces = {"text/html": f'<pre class="bets">{html.escape(text)}</pre>', "text/plain": text}
    display(faces, raw=True, metadata=web_metadata("score", score_numbers()))
