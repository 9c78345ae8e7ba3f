"""You are the drafter: a reader guesses an author's next words, and the author is the target.

The text is the beginning of a novel (assets/games/drafter.json). Two drafters without a model guess the same words: prompt
lookup, and a table of bigrams that is counted from the rest of the text.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from ...common.files import ROOT, read_json
from ...drafters import PromptLookup
from .widgets import Player, module, play, styles

HERE = Path(__file__).parent
PASSAGE = ROOT / "assets" / "games" / "drafter.json"
GAMMA, ROUNDS = 7, 12  # drafts in a block, rounds of a game


class DrafterGame(Player):
    """A player of `game_scene`."""

    _esm = module(HERE / "drafter_game.js")
    _css = styles(HERE / "game.css")


def drafter_game():
    """Show the game; return the widget (None without anywidget). Where no widget runs, the text stands, and what the two
    drafters reach."""
    scene = game_scene()
    others = "; ".join(
        f"{name} {len(scene['words']) / len(ends):.2f}" for name, ends in scene["others"].items()
    )
    question = f"“{' '.join(scene['given'])} …” How many of the next seven words can you guess?"
    reached = f"Words a round over the next {len(scene['words'])} words: {others}."
    face = f"> {question}\n>\n> {scene['source']}\n\n{reached}"
    return play(
        DrafterGame,
        "drafter_game",
        scene,
        {"text/markdown": face, "text/plain": f"{question} {reached}"},
    )


def game_scene() -> dict:
    """Return the passage, the words that are known and those to guess, and where the rounds of other drafters end."""
    passage = read_json(PASSAGE)
    text = passage["text"].replace("—", "— ").split()
    begin = passage["given"]
    end = begin + passage["played"]
    spoken = [letters(word) for word in text]
    bigrams = Bigrams([spoken[:begin], spoken[end:]])
    drafters = {
        "prompt lookup": lambda known: PromptLookup(0).continuation(known, GAMMA),
        "bigram table": bigrams.continuation,
    }
    return {
        "source": f"{passage['author']}, {passage['title']} ({passage['year']})",
        "given": text[:begin],
        "words": text[begin:end],
        "gamma": GAMMA,
        "rounds": ROUNDS,
        "others": {name: round_ends(spoken, begin, end, draft) for name, draft in drafters.items()},
    }


def letters(word: str) -> str:
    """Return what counts of a word: its letters, in lower case."""
    return re.sub("[^a-z]", "", word.lower())


class Bigrams:
    """The words that follow each word in some texts."""

    def __init__(self, texts: list[list[str]]):
        self.follows = defaultdict(Counter)
        for text in texts:
            for word, following in zip(text, text[1:]):
                self.follows[word][following] += 1

    def continuation(self, known: list[str]) -> list[str]:
        """Return up to GAMMA words after `known`, each the most frequent one after the word before it."""
        drafts, last = [], known[-1]
        while len(drafts) < GAMMA and last in self.follows:
            last = self.follows[last].most_common(1)[0][0]
            drafts.append(last)
        return drafts


def round_ends(text: list[str], begin: int, end: int, draft: Callable) -> list[int]:
    """Return after how many words each round ends, if `draft(known)` guesses the words of `text` from `begin` to `end`.

    A round keeps the drafts before the first that is wrong, and adds the text's own word.
    """
    ends, at = [], begin
    while at < end:
        drafts = draft(text[:at])[: end - at - 1]
        wrong = (place for place, word in enumerate(drafts) if word != text[at + place])
        at += next(wrong, len(drafts)) + 1
        ends.append(at - begin)
    return ends
