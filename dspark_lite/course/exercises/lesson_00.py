"""Checkers of lesson 00: a greedy speculative decoder in twelve lines, and the accepted length."""

import torch

from ...decoding import Generation, Round
from ..checkers.checking import Comparison, Exercise, Mistake, finished
from ..checkers.random_cases import Cases, number, numbers
from ..own_decoder.my_dspark import speculate

VOCABULARY = 7
MOST_PASSES = 60  # of the big model, for at most 12 tokens


class WatchedModel:
    """A language model made of a random table: ids [1, n] -> logits [1, n, V] that depend on all tokens so far. It counts its passes."""

    def __init__(self, table: torch.Tensor):
        self.table, self.passes = table, 0

    def __call__(self, ids):
        self.passes += 1
        if self.passes > MOST_PASSES:
            raise Mistake(
                "your loop does not end: a round must add at least one token to `ids`, big's own, also where no guess is right"
            )
        if getattr(ids, "ndim", None) != 2:
            raise Mistake("`big` and `little` read ids of shape [1, n]; pass on `draft` as it is")
        return self.table[ids.long().cumsum(1) % VOCABULARY]


class DecodingComparison(Comparison):
    """A step of functions like `speculate`: compared are the ids that they return and how often the big model has run."""

    def result(self, function, case: tuple):
        """Return the ids and the number of the big model's passes."""

        def watched(seed, start, count, gamma):
            big, little = models(seed)
            return [
                read_ids(
                    finished(function(big, little, torch.tensor([start]), count, gamma)),
                    self.otherwise,
                ),
                [big.passes],
            ]

        return super().result(watched, case)


def models(seed: int) -> tuple[WatchedModel, WatchedModel]:
    """Return a big model and a little one that often agrees with it."""
    generator = torch.Generator().manual_seed(seed)
    big, noise = torch.rand(2, VOCABULARY, VOCABULARY, generator=generator)
    return WatchedModel(big), WatchedModel(big + 0.25 * noise)


def read_ids(answer, otherwise: str) -> list[float]:
    """Return the ids of an answer [1, n] as a list; raise Mistake for anything else."""
    if not isinstance(answer, torch.Tensor):
        raise Mistake(
            f"a value of type {type(answer).__name__} cannot be read as the answer here; {otherwise}"
        )
    return answer.flatten().tolist()


def decoding(
    judge=lambda guess, want: int((guess == want[:-1]).cumprod(0).sum()),
    added=lambda guess, want, right: torch.cat([guess[:right], want[right : right + 1]]),
    rows=lambda big, draft, n: big(draft)[0, n - 1 :],
    joined=lambda ids, new: torch.cat([ids, new[None]], 1),
    cut=True,
):
    """Return a decoder like `speculate` with one of its decisions taken in another way."""

    def wrong(big, little, ids, count, gamma=7):
        end = ids.shape[1] + count
        while ids.shape[1] < end:
            draft = ids
            for _ in range(gamma):
                draft = torch.cat([draft, little(draft)[:, -1:].argmax(-1)], 1)
            want = rows(big, draft, ids.shape[1]).argmax(-1)
            guess = draft[0, ids.shape[1] :]
            ids = joined(ids, added(guess, want, judge(guess, want)))
        return ids[:, :end] if cut else ids

    return wrong


def model_case(generator):
    """Draw other models, starts, lengths and blocks."""
    start = numbers(generator, number(generator, 1, 4), 0, VOCABULARY - 1)
    return number(generator, 100, 10**6), start, number(generator, 1, 6), number(generator, 1, 4)


def one_pass_per_guess(big, draft, n):
    """Return the same rows from a pass of the big model for each of them."""
    return torch.stack([big(draft[:, :end])[0, -1] for end in range(n, draft.shape[1] + 1)])


def matching(guess, want):
    """Return all guesses that match, the first wrong one or not."""
    return int((guess == want[:-1]).sum())


check_speculate = Exercise(
    speculate,
    DecodingComparison(
        Cases([(seed, [seed % 7, 3, 1], 12, 2 + seed % 3) for seed in range(6)], model_case),
        {
            "you counted all the guesses that match. After the first wrong one the others follow a text that does not exist: count up to "
            "the first difference": decoding(judge=matching),
            "the text is right, but `big` runs once for each guess. One pass over the whole draft predicts after every one of its tokens": decoding(
                rows=one_pass_per_guess
            ),
            "`want` begins one row too late: the prediction that judges the first guess stands at the last known token, row n - 1": (
                decoding(rows=lambda big, draft, n: big(draft)[0, n:]),
                decoding(
                    judge=lambda guess, want: int((guess == want).cumprod(0).sum()),
                    rows=lambda big, draft, n: big(draft)[0, n:],
                ),
            ),
            "you kept every guess; keep those up to the first wrong one": (
                decoding(judge=lambda guess, want: len(guess)),
                decoding(
                    added=lambda guess, want, right: torch.cat([guess, want[right : right + 1]])
                ),
            ),
            "you kept no guess: the text is right, but every round adds one token only, and that is plain decoding with extra work": (
                decoding(judge=lambda guess, want: 0),
                decoding(added=lambda guess, want, right: want[:1]),
            ),
            "you kept the first wrong guess, too; the big model's own token takes its place": (
                decoding(
                    added=lambda guess, want, right: torch.cat(
                        [guess[: right + 1], want[right : right + 1]]
                    )
                ),
                decoding(added=lambda guess, want, right: guess[: right + 1]),
            ),
            "the token that you add is the little model's; after the right guesses comes the big model's own, want[right]": decoding(
                added=lambda guess, want, right: torch.cat(
                    [
                        guess[:right],
                        guess[right : right + 1] if right < len(guess) else want[right:],
                    ]
                )
            ),
            "the token that you add comes from the last row; after a wrong guess that row follows a text that does not exist: want[right]": decoding(
                added=lambda guess, want, right: torch.cat([guess[:right], want[-1:]])
            ),
            "you added all that the big model wrote from there on; only its next token is sure, for the rest follows wrong guesses": decoding(
                added=lambda guess, want, right: torch.cat([guess[:right], want[right:]])
            ),
            "`argmin` is the place of the first wrong guess, and 0 where none is wrong: a block that is right to its end would be lost": decoding(
                judge=lambda guess, want: int((guess == want[:-1]).int().argmin())
            ),
            "`want` has one row more than there are guesses: guess k is judged by row k, so compare with want[:-1], not with want[1:]": decoding(
                judge=lambda guess, want: int((guess == want[1:]).cumprod(0).sum())
            ),
            "hole 1: you took all rows of `big`; those before the last known token predict known tokens. Take the rows from n - 1 on": decoding(
                rows=lambda big, draft, n: big(draft)[0]
            ),
            "hole 2: `guess` has gamma entries and `want` one more; compare with want[:-1]": decoding(
                judge=lambda guess, want: int((guess == want).cumprod(0).sum())
            ),
            "hole 3: `ids` is [1, n] and the new tokens are [more]; [None] in front of them adds the missing dimension, and "
            "want[right:right + 1] keeps its own": (
                decoding(joined=lambda ids, new: torch.cat([ids, new], 1)),
                decoding(added=lambda guess, want, right: torch.cat([guess[:right], want[right]])),
            ),
            "the last round may write past the end; return ids[:, :end]": decoding(cut=False),
        },
        "hole 1: the likeliest token in each of the big model's last gamma + 1 rows; hole 2: how many guesses are right before the first "
        "wrong one; hole 3: those guesses and the big model's next token, joined to `ids`",
    ),
)


def example_answers() -> list[Generation]:
    """Return two answers, one of four rounds and one of two; the end of the first cut its last
    round."""
    # Of each round: proposed, accepted, committed.
    outcomes = [[(7, 5, 6), (7, 0, 1), (7, 7, 8), (7, 3, 3)], [(7, 2, 3), (7, 1, 2)]]
    rounds = [
        [Round(*outcome, [0] * outcome[0], [0] * outcome[2]) for outcome in answer]
        for answer in outcomes
    ]
    return [Generation([0] * (1 + sum(r.committed for r in answer)), answer) for answer in rounds]


def answers_case(generator):
    """Draw two to five answers, the last round of each cut short now and then."""

    def answer():
        rounds = []
        for accepted in numbers(generator, number(generator, 1, 6), 0, 7):
            cut = number(generator, 0, 1) * (accepted > 0)
            rounds.append(Round(7, accepted, accepted + 1 - cut, [0] * 7, [0] * 8))
        return Generation([0] * (1 + sum(r.committed for r in rounds)), rounds)

    return ([answer() for _ in range(number(generator, 2, 5))],)


def accepted_length(answers):
    """Return the mean number of committed tokens per round, over the rounds of all answers."""
    rounds = _rounds(answers)
    return sum(r.committed for r in rounds) / len(rounds)


def _rounds(answers) -> list[Round]:
    """Return the rounds of all answers."""
    return [r for answer in answers for r in answer.rounds]


def _mean(of_round, choose=_rounds):
    """Return a wrong function: the mean over the chosen rounds of another number of each."""
    return lambda answers: sum(map(of_round, choose(answers))) / len(choose(answers))


check_accepted_length = Exercise(
    accepted_length,
    Comparison(
        Cases([(example_answers(),)], answers_case),
        {
            "you averaged the accepted drafts; the token that the target adds counts too": _mean(
                lambda r: r.accepted
            ),
            "you added one to every round's accepted drafts; the end of an answer cuts the last round short, so read "
            "`committed`": _mean(lambda r: r.accepted + 1),
            "you averaged the drafts that were proposed: these are guesses, not tokens of the answer": (
                _mean(lambda r: r.proposed),
                _mean(lambda r: r.proposed + 1),
            ),
            "that is the mean of the answers' own means; let every round weigh the same, whichever answer it belongs to": lambda answers: (
                sum(accepted_length([answer]) for answer in answers) / len(answers)
            ),
            "you left out last rounds; a round that was cut short counts like any other": (
                _mean(lambda r: r.committed, lambda answers: _rounds(answers)[:-1]),
                _mean(
                    lambda r: r.committed,
                    lambda answers: [r for answer in answers for r in answer.rounds[:-1]],
                ),
            ),
            "the first token of an answer comes from the prompt's own pass and belongs to no round": lambda answers: (
                sum(len(answer.token_ids) for answer in answers) / len(_rounds(answers))
            ),
            "return one number over all answers, not one for each": lambda answers: [
                accepted_length([answer]) for answer in answers
            ],
            "that is the share of drafts accepted; divide by the number of rounds, not by the drafts proposed": lambda answers: (
                sum(r.accepted for r in _rounds(answers))
                / sum(r.proposed for r in _rounds(answers))
            ),
            "you divided by the number of answers; divide by the number of rounds": lambda answers: (
                sum(r.committed for r in _rounds(answers)) / len(answers)
            ),
            "that is rounds per token; turn the fraction over": lambda answers: (
                len(_rounds(answers)) / sum(r.committed for r in _rounds(answers))
            ),
        },
        "this is not tau, the tokens that rounds added to the answers, per round",
    ),
)
