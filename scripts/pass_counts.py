"""Counts the passes of the released profile's models while a lesson runs; scripts/predict_t4.py plants it in the lesson's kernel.

A pass is one call of the target, of the small language model, of Eagle3's layer or of a block drafter's backbone, and its tokens
are those of all its rows. Passes that write an answer are kept apart, with the tokens that were written and those that a full
answer would have: answers here are cut short. Models of other profiles are not counted.
"""

from collections import Counter
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

from dspark_lite.common.files import write_json
from dspark_lite.common.names import PROFILES

ROLES = {name: role for role, name in PROFILES["released"].items() if role in ("target", "small_lm")}
ROUND = ("draft", "verify", "commit")  # what a decoder does in a round


class Writing:
    """Passes {role: {tokens: passes}} that write answers, how many tokens after the first these `have`, and how many they
    would have if they were full. (The first token of an answer comes from the pass over its prompt.)"""

    def __init__(self):
        self.passes: dict[str, Counter] = {}
        self.have, self.full = 0, 0


class PassCounts:
    """What a lesson has done so far. Answers may have `longest` tokens here and `really` where a reader runs the lesson; other
    limits are the lesson's own and hold there, too."""

    def __init__(self, longest: int, really: int):
        self.longest, self.really = longest, really
        self.once: dict[str, Counter] = {}  # passes that write no answer, by role and tokens
        self.writings: list[Writing] = []
        self.trained: list[str] = []  # recipes by which drafters of the released target were trained
        self.requests: list[tuple] = []  # (writing, answer, limit, stop tokens)
        self._current: Writing | None = None

    def add(self, role: str, tokens: int, writes: bool = True) -> None:
        """Counts a pass over so many tokens; one that `writes` no answer is no part of the writing that is under way."""
        passes = self._current.passes if self._current and writes else self.once
        passes.setdefault(role, Counter())[tokens] += 1

    @contextmanager
    def writing(self, writing: Writing | None):
        """Passes inside belong to this writing (None: to none)."""
        before, self._current = self._current, writing
        try:
            yield
        finally:
            self._current = before

    def new_writing(self) -> Writing:
        """A writing to which nothing belongs yet."""
        self.writings.append(Writing())
        return self.writings[-1]

    def limit(self, max_new_tokens: int) -> int:
        """The tokens that a full answer has where a reader runs the lesson."""
        return self.really if max_new_tokens == self.longest else max_new_tokens

    def ended(self, writing: Writing, tokens: int, max_new_tokens: int) -> None:
        """Takes down an answer that has ended after so many tokens."""
        writing.have += tokens - 1
        writing.full += self.limit(max_new_tokens) - 1

    def held(self) -> dict:
        """All of it, fit for JSON; answers that a lesson left unfinished stay as they are."""
        for writing, answer, longest, stop in self.requests:
            if len(answer.token_ids) >= longest or answer.token_ids[-1] in stop:
                self.ended(writing, len(answer.token_ids), longest)
        self.requests = []
        writings = [{"have": one.have, "full": one.full, "passes": one.passes} for one in self.writings if one.passes]
        return {"once": self.once, "writings": writings, "trained": self.trained}

    def write(self, path: str) -> None:
        """Writes it to a file."""
        write_json(Path(path), self.held())


def plant(counts: PassCounts, put=setattr) -> None:
    """Has everything that decodes and trains from now on tell `counts`; `put(owner, name, value)` puts the wrappers in place."""
    _plant_language_models(counts, put)
    _plant_drafters(counts, put)
    _plant_requests(counts, put)
    _plant_engine(counts, put)
    _plant_answers(counts, put)
    _plant_training(counts, put)


def _wrap(put, owner, name: str, around) -> None:
    """Puts `around(method, self, *arguments, **options)` in the place of a method or function."""
    method = getattr(owner, name)

    @wraps(method)
    def wrapped(*arguments, **options):
        return around(method, *arguments, **options)

    put(owner, name, wrapped)


def _plant_language_models(counts: PassCounts, put) -> None:
    from dspark_lite.decoding.target import Target

    def init(method, self, model, tokenizer=None, name="target"):
        method(self, model, tokenizer, name)
        if name in ROLES:
            def hook(module, arguments, options):
                rows, length = (arguments[0] if arguments else options["input_ids"]).shape
                counts.add(ROLES[name], rows * length)
            model.base_model.register_forward_pre_hook(hook, with_kwargs=True)

    _wrap(put, Target, "__init__", init)


def _plant_drafters(counts: PassCounts, put) -> None:
    import dspark_lite
    from dspark_course.measure import lab
    from dspark_lite.drafters.autoregressive import Autoregressive
    from dspark_lite.drafters.backbone import Backbone
    from dspark_lite.models import checkpoints

    def load(method, name, target):
        drafter = method(name, target)
        if target.name in ROLES and drafter.taps:
            drafter.__dict__["counted_as"] = drafter.name
        return drafter

    def one_pass(method, self, cache, tokens, *others):
        if role := self.__dict__.get("counted_as"):
            counts.add(role, len(tokens) * getattr(self.config, "block_size", 1))
        return method(self, cache, tokens, *others)

    for module in (checkpoints, dspark_lite, lab):
        _wrap(put, module, "load_drafter", load)
    _wrap(put, Backbone, "block_hidden", one_pass)
    _wrap(put, Autoregressive, "next_hidden", one_pass)


def _plant_rounds(counts: PassCounts, put, decoder: type) -> None:
    """Passes in the rounds of a decoder belong to its `counted` writing."""
    def around(method, self, *arguments):
        with counts.writing(self.counted):
            return method(self, *arguments)

    for part in ROUND:
        _wrap(put, decoder, part, around)


def _plant_requests(counts: PassCounts, put) -> None:
    from dspark_lite.decoding import rounds

    def init(method, self, *arguments, **options):
        method(self, *arguments, **options)
        self.counted = counts.new_writing()
        counts.requests.append((self.counted, self.answer, self.max_new_tokens, self.stop))

    _wrap(put, rounds._Request, "__init__", init)
    _plant_rounds(counts, put, rounds._Request)


def _plant_engine(counts: PassCounts, put) -> None:
    from dspark_lite.serving import engine

    def of(one):
        if "counted" not in one.__dict__:
            one.counted = counts.new_writing()
        return one.counted

    def init(method, self, served, running):
        method(self, served, running)
        self.counted = of(served)

    def end(method, self, answer, reason):
        if reason in ("stop", "length"):
            counts.ended(of(self), len(answer.token_ids), answer.request.max_new_tokens)
        return method(self, answer, reason)

    _wrap(put, engine._Batch, "__init__", init)
    _plant_rounds(counts, put, engine._Batch)
    _wrap(put, engine.Engine, "_end", end)


def _plant_answers(counts: PassCounts, put) -> None:
    """Answers that transformers writes, rows together: each batch ends with its longest answer."""
    from dspark_course.making import answers

    def write(method, target, prompts, temperature, max_new_tokens, seed, **options):
        if target.name not in ROLES:
            return method(target, prompts, temperature, max_new_tokens, seed, **options)
        writing, generate = counts.new_writing(), target.model.generate

        def batch(input_ids, **settings):
            with counts.writing(writing):
                out = generate(input_ids=input_ids, **settings)
            writing.passes["target"][input_ids.numel()] -= 1  # the prompts' own pass writes no more in a longer answer
            counts.add("target", input_ids.numel())
            counts.ended(writing, out.shape[1] - input_ids.shape[1], max_new_tokens)
            return out

        target.model.generate = batch
        try:
            return method(target, prompts, temperature, max_new_tokens, seed, **options)
        finally:
            del target.model.generate

    _wrap(put, answers, "write_answers", write)


def _plant_training(counts: PassCounts, put) -> None:
    from dspark_lite.training import drafts

    def train(method, recipe, target, *arguments, **options):
        if target.name in ROLES:
            counts.trained.append(recipe["name"])
        return method(recipe, target, *arguments, **options)

    _wrap(put, drafts, "train_draft", train)
