"""Predict, run, explain: a guess made before a measurement, kept and shown beside the result, never graded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """A question and the reader's guess; `...` where there is none."""

    question: str
    guess: object = ...

    def beside(self, result) -> None:
        """Prints the guess above what was measured."""
        print(self.question)
        print(f"  you said   {'nothing yet' if self.guess is ... else self.guess}")
        print(f"  measured   {result}")


def predict(question: str, guess=...) -> Prediction:
    """Keeps a guess until its result is there; any value will do, and none is right or wrong here."""
    print("Kept." if guess is not ... else "Replace the dots with your guess before you run on.")
    return Prediction(question, guess)
