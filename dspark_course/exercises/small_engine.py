"""The engine that a reader completes in lesson 11: requests in one cache, one ragged pass per step, continuous batching."""

import torch
from transformers import DynamicCache

from dspark_lite.decoding.rounds import generate, until_stop
from dspark_lite.decoding.sampling import probabilities
from dspark_lite.drafters import SmallLM
from dspark_lite.losslessness.toys import toy_models
from .checking import Mistake, Unfinished, as_function, checker
from .ragged import index_tensors, may_see
from .verifying import draw, verify


class SmallEngine:
    """Requests that share one ragged pass per step.

    `waiting` holds (number, prompt) in the order of arrival, `running` the answer so far by number, `answers` the
    finished ones; prompts and answers are lists of token ids.
    """

    def __init__(self, target, drafter, slots, longest, stop=(), temperature=0.0, generator=None):
        self.target, self.drafter, self.slots, self.longest, self.stop = target, drafter, slots, longest, stop
        self.temperature, self.generator = temperature, generator
        self.waiting, self.running, self.answers = [], {}, {}
        self.cache, self.states, self.entered = DynamicCache(config=target.config), {}, {}
        self.keys = torch.zeros(2, 0, dtype=torch.long, device=target.device)  # request and position of what is cached

    def read(self, tokens):
        """One pass over tokens {number: list of k}, each after what its request has read; distributions {number: [k, V]}."""
        device, counts = self.target.device, [len(part) for part in tokens.values()]
        starts = torch.tensor([(self.keys[0] == number).sum() for number in tokens])
        row, position = (part.to(device) for part in index_tensors(starts, torch.tensor(counts)))
        request = torch.tensor(list(tokens), device=device)[row]
        self.keys = torch.cat([self.keys, torch.stack([request, position])], 1)
        visible = may_see(request, position, *self.keys)  # [N, K]
        hidden = torch.zeros(visible.shape, dtype=self.target.dtype, device=device)
        hidden.masked_fill_(~visible, torch.finfo(self.target.dtype).min)
        flat = torch.tensor([token for part in tokens.values() for token in part], device=device)
        step = self.target.read(flat[None], self.cache, self.drafter.taps, attention_mask=hidden[None, None],
                                position_ids=position[None])
        features = [None] * len(counts) if step.features is None else step.features.split(counts, 1)
        self.entered = dict(zip(tokens, zip(flat[None].split(counts, 1), features)))
        return dict(zip(tokens, probabilities(step.logits[0], self.temperature).split(counts)))

    def keep(self, number, count):
        """Leaves the first `count` of the tokens that a request has just read, and shows them to the drafter."""
        tokens, features = (None if part is None else part[:, :count] for part in self.entered[number])
        read = (self.keys[0] == number).nonzero()[:, 0]
        self.keys[0, read[len(read) - self.entered[number][0].shape[1] + count:]] = -1  # nobody's: no token sees it
        if number in self.states:
            self.drafter.extend(self.states[number], tokens, features)
        else:
            self.states[number] = self.drafter.begin(tokens, features)

    def draft(self, number):
        """A block after the newest token of a request: a list of g tokens, and the distributions [g, V] they were drawn from."""
        anchor = torch.tensor(self.running[number][-1:], device=self.target.device)
        proposal = self.drafter.propose(self.states[number], anchor, temperature=self.temperature, generator=self.generator)
        return proposal.tokens[0].tolist(), proposal.probs[0]

    def complete(self, number):
        """Cuts an answer after a stop token or at its longest length, and says whether it has ended there."""
        answer = until_stop(self.running[number], self.stop)[:self.longest]
        self.running[number] = answer
        return len(answer) == self.longest or answer[-1] in self.stop


STILL_WAITING = "requests that were admitted still wait; take each off engine.waiting"


class WatchedEngine(SmallEngine):
    """A SmallEngine that raises Mistake where a step asks it for what does not fit."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.admitted, self.passes = [], 0  # requests in the order in which their prompts were read; passes over drafts in this step
        self.drafted = {}  # the length of each request's newest block

    def read(self, tokens):
        """The pass, where it is the step's only one over drafts and starts with each anchor."""
        known = [number for number in tokens if number in self.admitted]
        if any((number, list(tokens[number])) in self.waiting for number in known):
            raise Mistake(STILL_WAITING)
        self.passes += bool(known)
        if self.passes > 1:
            raise Mistake("a step passes over drafts more than once; it is one round, and one engine.read takes the newest token and the "
                          "drafts of all requests")
        for number in known:
            if number in self.running and tokens[number][0] != self.running[number][-1]:
                raise Mistake(f"the pass of request {number} starts without its anchor; read its newest token, then its drafts")
            if number in self.drafted and len(tokens[number]) != 1 + self.drafted[number]:
                raise Mistake(f"the pass of request {number} reads {len(tokens[number])} tokens; its newest token and its "
                              f"{self.drafted[number]} drafts are {1 + self.drafted[number]}")
        self.admitted += [number for number in tokens if number not in known]
        if self.admitted != sorted(self.admitted):
            raise Mistake(f"request {self.admitted[-1]} was admitted before one that came earlier; take the first of engine.waiting")
        return super().read(tokens)

    def draft(self, number):
        """The block, where the drafter has seen the prompt."""
        if number not in self.states:
            raise Mistake(f"request {number} was read, but not kept; engine.keep(number, len(prompt)) shows the drafter its prompt")
        tokens, q = super().draft(number)
        self.drafted[number] = len(tokens)
        return tokens, q

    def complete(self, number):
        """Whether an answer of token ids has ended."""
        other = next((token for token in self.running[number] if not isinstance(token, int)), None)
        if other is not None:
            raise Mistake(f"the answer of request {number} holds a {type(other).__name__}; it is a list of token ids, so add what "
                          "verify returns with +=")
        return super().complete(number)


def step(engine):
    """One step: admit, draft, verify all in one pass, commit, evict."""
    fill(engine)
    commit(engine)


def fill(engine):
    """Admits requests while a slot is free."""
    while engine.waiting and len(engine.running) < engine.slots:
        admit(engine)


def admit(engine, row=-1):
    """The request that has waited longest: its prompt is read, its first token drawn from a `row` of it."""
    number, prompt = engine.waiting.pop(0)
    rows = engine.read({number: prompt})[number]
    engine.keep(number, len(prompt))
    engine.running[number] = [draw(rows[row], engine.generator)]


def commit(engine, kept=lambda tokens, drafts: len(tokens), written=lambda tokens: tokens, judge=verify):
    """Everything after admission; `judge` gives tokens, `kept` of what was read stay, and what is `written` joins the answer."""
    blocks = {number: engine.draft(number) for number in engine.running}
    rows = engine.read({number: [engine.running[number][-1], *drafts] for number, (drafts, _) in blocks.items()})
    for number, (drafts, q) in blocks.items():
        tokens = judge(rows[number], q, drafts, engine.generator)
        engine.keep(number, kept(tokens, drafts))
        engine.running[number] += written(tokens)
        if engine.complete(number):
            engine.answers[number] = engine.running.pop(number)


def variant(begin=lambda engine: len(engine.running) < engine.slots, row=-1, **changed):
    """A step that admits while `begin(engine)` holds, draws from another `row`, or commits in another way."""
    def wrong(engine):
        while engine.waiting and begin(engine):
            admit(engine, row)
        commit(engine, **changed)
    return wrong


def keeping_no_block(engine):
    """Never calls keep after a block."""
    fill(engine)
    engine.keep = lambda number, count: None
    commit(engine)
    del engine.keep


def saving_before_the_cut(engine):
    """Puts the answer aside before `complete` has cut it."""
    uncut = engine.complete

    def complete(number):
        whole = engine.running[number]
        ended = uncut(number)
        engine.running[number] = whole
        return ended

    engine.complete = complete
    step(engine)
    del engine.complete


def ending_by_length(engine):
    """Asks for the length alone where `complete` also looks for a stop token and cuts."""
    engine.complete = lambda number: len(engine.running[number]) >= engine.longest
    step(engine)
    del engine.complete


def admitting_last(engine):
    """Admits at the end of a step, so that a new request waits for the next one."""
    if engine.running:
        commit(engine)
    fill(engine)


def batch_by_batch(engine):
    """Fills the slots only when all of them are free."""
    if not engine.running:
        for _ in range(min(engine.slots, len(engine.waiting))):
            admit(engine)
    commit(engine)


WRONG_TEXT = {
    "refused drafts stay in the cache; of the block only the anchor and the accepted drafts may stay, as many as verify returned":
        variant(kept=lambda tokens, drafts: 1 + len(drafts)),
    "engine.keep is not called after a block, so all of it stays and the drafter never sees it; keep as many as verify returned":
        keeping_no_block,
    "the answer is put aside before engine.complete(number) has cut it at its end; call that first":
        saving_before_the_cut,
    "answers run on past their stop token or longest length; engine.complete(number) cuts them there and says whether they end":
        ending_by_length,
    "the token that verify adds after the accepted drafts is missing from the answer":
        variant(written=lambda tokens: tokens[:-1] or tokens),
    "the first token is drawn from the prompt's first row; the last row is what comes after the prompt":
        variant(row=0),
}
TOO_SLOW = {
    "you fill the slots only when all are free; a waiting request takes a slot as soon as one is":
        batch_by_batch,
    "requests are served one at a time; admit while fewer than `slots` run":
        variant(begin=lambda engine: not engine.running),
    "requests are admitted at the end of a step; admit first, so that they are drafted for and verified in the same step":
        admitting_last,
    "one request is admitted per step; as many as there are free slots":
        lambda engine: (engine.waiting and len(engine.running) < engine.slots and admit(engine), commit(engine)),
}
SLOTS, LONGEST, GAMMA, MOST_STEPS = 3, 16, 3, 60
DRAWS = 20  # runs at temperature 1
STOP = (0,)  # the toy target's answers then end after 5 to 12 tokens
PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9, 1], [2, 2], [3, 1, 4, 1], [7, 3, 2], [8, 1]]


def served(step, drafter_of) -> tuple[dict[int, list[int]], list[int]]:
    """The answers that an engine with this `step` gives on a toy target, and how many requests run after each step.

    Raises Mistake where it runs too many requests or does not end, Unfinished where a step answers nothing and runs nothing.
    """
    target, drafters = toy_models(vocab_size=11, gamma=GAMMA)
    engine, steps = WatchedEngine(target, drafter_of(target, drafters), SLOTS, LONGEST, STOP), []
    engine.waiting = list(enumerate(PROMPTS))
    while engine.waiting or engine.running:
        engine.passes, before = 0, {number: len(answer) for number, answer in engine.running.items()}
        step(engine)
        steps.append(len(engine.running))
        if len(engine.waiting) == len(PROMPTS):
            raise Mistake(STILL_WAITING) if engine.running or engine.answers else Unfinished
        if len(engine.running) > SLOTS:
            raise Mistake(f"{len(engine.running)} requests run at once in {SLOTS} slots; admit while a slot is free")
        for number, answer in engine.running.items():
            if len(answer) == before.get(number) < LONGEST and answer[-1] not in STOP:
                raise Mistake(f"a step left the answer of request {number} as it was; commit all that verify returns, the target's own "
                              "token too, so that each answer grows")
        if len(steps) == MOST_STEPS:
            missing = len(PROMPTS) - len(engine.answers)
            raise Mistake(f"after {MOST_STEPS} steps {missing} of {len(PROMPTS)} requests have no answer; when engine.complete(number) "
                          "holds, the answer moves from engine.running to engine.answers")
    return engine.answers, steps


def drafting(target, drafters):
    """The toy DSpark, mostly wrong: its drafts must leave no trace."""
    return drafters["dspark"]


def never_wrong(target, drafters):
    """The target as its own drafter: every block is accepted, so steps can be counted."""
    return SmallLM(target, GAMMA)


def plain_answers() -> dict[int, list[int]]:
    """The target's own greedy answers."""
    target, _ = toy_models(vocab_size=11, gamma=GAMMA)
    return {number: generate(target, None, torch.tensor([prompt]), max_new_tokens=LONGEST, stop_token_ids=STOP).token_ids
            for number, prompt in enumerate(PROMPTS)}


def likely_cause(outcome, known: dict) -> str:
    """What the known mistake with the same outcome does, as the end of a sentence."""
    return next((f": {sentence}" for sentence, wrong in known.items() if outcome(wrong)), "")


def judge_answers(step, drafter_of, right: dict) -> list[int]:
    """How many requests run after each step; raises Mistake unless the answers are the `right` ones."""
    answers, taken = served(step, drafter_of)
    if set(answers) != set(right):
        raise Mistake(f"{len(answers)} of {len(right)} requests are answered; each of them once")
    wrong = sum(answers[number] != right[number] for number in right)
    if wrong:
        cause = likely_cause(lambda known: served(known, drafter_of)[0] == answers, WRONG_TEXT)
        raise Mistake(f"{wrong} of {len(right)} greedy answers are not the target's own{cause}")
    return taken


def judge_draws(step) -> None:
    """Raises Mistake where an engine at temperature 1 writes the same whatever its generator draws."""
    target, drafters = toy_models(vocab_size=11, gamma=GAMMA)
    answers = set()
    for seed in range(DRAWS):
        engine = WatchedEngine(target, drafters["dspark"], SLOTS, 2, temperature=1.0, generator=torch.Generator().manual_seed(seed))
        engine.waiting = [(0, PROMPTS[0])]
        while engine.waiting or engine.running:
            engine.passes = 0
            step(engine)
        answers.add(tuple(engine.answers[0]))
    firsts = {first for first, _ in answers}
    if len(firsts) == 1:
        raise Mistake("the greedy answers are right, but at temperature 1 the first token is always the same; draw it with draw")
    if len(answers) == len(firsts):
        raise Mistake("the greedy answers are right, but at temperature 1 nothing after the first token is drawn; verify draws it")


@checker
def check_engine(learners):
    """Checks a function like `step` on a toy target: its answers, the steps it needs, and that it draws above temperature 0."""
    right, needed = plain_answers(), len(served(step, never_wrong)[1])
    judge_answers(as_function(learners), drafting, right)
    taken = judge_answers(learners, never_wrong, right)
    if len(taken) > needed:
        cause = likely_cause(lambda known: served(known, never_wrong)[1] == taken, TOO_SLOW)
        raise Mistake(f"the answers are right, but with a drafter that is never wrong they took {len(taken)} steps where "
                      f"{needed} are enough{cause}")
    judge_draws(learners)


def engine_in_use(learners, done: bool):
    """The learner's `step` if it is right, else the reference, so that the cells below run either way."""
    print("From here on your own step runs the engine." if done else "Until yours is right, ours runs the engine below.")
    return learners if done else step
