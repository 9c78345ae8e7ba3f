"""Predict, run, explain: a guess made before there is a result, kept and shown beside it, never
graded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """A question and the reader's guess; `...`, also as a part, None or an empty text where there
    is none."""

    question: str
    guess: object = ...

    @property
    def is_made(self) -> bool:
        """Whether there is a guess."""
        if isinstance(self.guess, (tuple, list)):
            return all(part is not ... for part in self.guess)
        return self.guess is not ... and self.guess is not None and bool(str(self.guess).strip())

    def beside(self, result, label: str = "measured") -> None:
        """Prints the guess above the result; `label` says how it was found, where nothing was
        measured."""
        print(self.question)
        print(f"  you said   {self.guess if self.is_made else 'nothing yet'}")
        print(f"  {label:9}  {result}")


def predict(question: str, *guess) -> Prediction:
    """Keeps a guess until its result is there; any value will do, several as a tuple, and none is
    right or wrong here."""
    prediction = Prediction(question, guess if len(guess) > 1 else guess[0] if guess else ...)
    print("Kept." if prediction.is_made else "Replace the dots with your guess before you run on.")
    return prediction
