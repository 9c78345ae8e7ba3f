"""The engine that a reader completes in lesson 11: requests in one cache, one ragged pass per step,
continuous batching; and the index tensors and the mask of such a pass, which the lesson asks for
first."""

import torch
from transformers import DynamicCache

from ...decoding.checks import until_stop
from ...decoding.rounds import generate
from ...decoding.sampling import probabilities
from ...drafters import SmallLM
from ...losslessness.toys import toy_models
from ...scheduling.policies import survival
from ..checkers.checking import Mistake, Unfinished, as_function, checker
from .my_dspark import algorithm_1
from .verifying import draw, verify


def index_tensors(starts, counts):
    """Return (request [N], position [N]) of a step's tokens."""
    request = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return request, starts[request] + torch.cat([torch.arange(count) for count in counts])


def own(request, key_request):
    """Return whether a key is of the token's request."""
    return request[:, None] == key_request


def before(position, key_position):
    """Return whether a key is not after the token."""
    return key_position <= position[:, None]


def may_see(request, position, key_request, key_position):
    """Return which keys [N, K] each token sees, bool."""
    return own(request, key_request) & before(position, key_position)


class SmallEngine:
    """Requests that share one ragged pass per step.

    `waiting` holds (number, prompt) in the order of arrival, `running` the answer so far by number,
    `answers` the finished ones; prompts and answers are lists of token ids. `sps(tokens)` gives the
    steps per second of a step that verifies `tokens` tokens. By default every step takes equally
    long, so whole blocks are verified.
    """

    def __init__(self, target, drafter, slots, longest, stop=(), temperature=0.0, generator=None):
        self.target = target
        self.drafter = drafter
        self.slots = slots
        self.longest = longest
        self.stop = stop
        self.temperature, self.generator = temperature, generator
        self.waiting, self.running, self.answers = [], {}, {}
        self.sps, self.chances, self.passes, self.prompts = lambda tokens: 1.0, {}, [], {}
        self.cache, self.states, self.entered = DynamicCache(config=target.config), {}, {}
        # Request and position of each cached token.
        self.keys = torch.zeros(2, 0, dtype=torch.long, device=target.device)

    def read(self, tokens):
        """Read tokens {number: list of k} in one pass, each after what its request has read. Return
        the target's distributions {number: [k, V]}."""
        device, counts = self.target.device, [len(part) for part in tokens.values()]
        starts = torch.tensor([(self.keys[0] == number).sum() for number in tokens])
        row, position = (part.to(device) for part in index_tensors(starts, torch.tensor(counts)))
        request = torch.tensor(list(tokens), device=device)[row]
        self.keys = torch.cat([self.keys, torch.stack([request, position])], 1)
        visible = may_see(request, position, *self.keys)  # [N, K]
        hidden = torch.zeros(visible.shape, dtype=self.target.dtype, device=device)
        hidden.masked_fill_(~visible, torch.finfo(self.target.dtype).min)
        flat = torch.tensor([token for part in tokens.values() for token in part], device=device)
        step = self.target.read(
            flat[None],
            self.cache,
            self.drafter.taps,
            attention_mask=hidden[None, None],
            position_ids=position[None],
        )
        features = [None] * len(counts) if step.features is None else step.features.split(counts, 1)
        self.entered = dict(zip(tokens, zip(flat[None].split(counts, 1), features)))
        self.passes.append(dict(zip(tokens, counts)))
        return dict(zip(tokens, probabilities(step.logits[0], self.temperature).split(counts)))

    def keep(self, number, count):
        """Keep the first `count` tokens that a request has just read, and show them to the drafter."""
        tokens, features = (
            None if part is None else part[:, :count] for part in self.entered[number]
        )
        read = (self.keys[0] == number).nonzero()[:, 0]
        self.keys[
            0, read[len(read) - self.entered[number][0].shape[1] + count :]
        ] = -1  # nobody's: no token sees it
        if number in self.states:
            self.drafter.extend(self.states[number], tokens, features)
        else:
            self.states[number] = self.drafter.begin(tokens, features)
            self.prompts[number] = count

    def draft(self, number):
        """Return a block after the newest token of a request: a list of g tokens, and the
        distributions [g, V] they were drawn from."""
        anchor = torch.tensor(self.running[number][-1:], device=self.target.device)
        proposal = self.drafter.propose(
            self.states[number], anchor, temperature=self.temperature, generator=self.generator
        )
        chances = proposal.confidence
        self.chances[number] = (
            torch.ones(len(proposal.tokens[0])) if chances is None else survival(chances)[0]
        )
        return proposal.tokens[0].tolist(), proposal.probs[0]

    def survivals(self):
        """Return the survival probabilities [R, g] of the blocks just drafted, a row for each
        request, in the order of `running`."""
        return torch.stack([self.chances[number] for number in self.running])

    def surplus(self, number):
        """Return how many more tokens of a running request are cached than belong to its text; the
        newest is read in the next step."""
        text = self.prompts[number] + len(self.running[number]) - 1
        return int((self.keys[0] == number).sum()) - text

    def complete(self, number):
        """Cut an answer after a stop token or at its longest length, and return whether it has ended
        there."""
        answer = until_stop(self.running[number], self.stop)[: self.longest]
        self.running[number] = answer
        return len(answer) == self.longest or answer[-1] in self.stop


class WatchedEngine(SmallEngine):
    """A SmallEngine that raises Mistake where a step asks it for what does not fit."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.drafted = {}  # the length of each request's newest block

    def read(self, tokens):
        """Run the pass over the drafts that Algorithm 1 admits."""
        blocks = tokens.keys() & self.drafted.keys()
        lengths = dict(zip(self.running, algorithm_1(self.survivals(), self.sps))) if blocks else {}
        cut = any(lengths[number] < self.drafted[number] for number in blocks)
        if cut and all(len(tokens[number]) == 1 + self.drafted[number] for number in blocks):
            raise Mistake(
                f"the pass reads whole blocks, where algorithm_1 admits {sum(lengths.values())} of "
                f"{sum(self.drafted[number] for number in blocks)} drafts; cut each block to its length"
            )
        for number in blocks:
            if tokens[number][0] != self.running[number][-1]:
                raise Mistake(
                    f"the pass of request {number} starts without its anchor; read its newest token, then its drafts"
                )
            if cut and len(tokens[number]) != 1 + lengths[number]:
                raise Mistake(
                    f"the pass reads {len(tokens[number]) - 1} drafts of request {number}, where algorithm_1 admits "
                    f"{lengths[number]}; survivals and engine.sps alone decide, not the drafted words, or a draw helps decide "
                    "whether it is verified"
                )
            if not cut and len(tokens[number]) != 1 + self.drafted[number]:
                raise Mistake(
                    f"the pass of request {number} reads {len(tokens[number])} tokens; its newest token and its "
                    f"{self.drafted[number]} drafts are {1 + self.drafted[number]}"
                )
        return super().read(tokens)

    def draft(self, number):
        """Return the block and record its length."""
        tokens, q = super().draft(number)
        self.drafted[number] = len(tokens)
        return tokens, q

    def complete(self, number):
        """Return whether an answer of token ids has ended."""
        other = next((token for token in self.running[number] if not isinstance(token, int)), None)
        if other is not None:
            raise Mistake(
                f"the answer of request {number} holds a {type(other).__name__}; it is a list of token ids, so add what "
                "verify returns with +="
            )
        return super().complete(number)


def step(engine):
    """Run one step: admit, draft, schedule, verify all in one pass, commit, evict."""
    fill(engine)
    commit(engine)


def fill(engine, row=-1):
    """Admit requests while a slot is free: each prompt is read, the first token drawn from a `row`
    of it."""
    while engine.waiting and len(engine.running) < engine.slots:
        number, prompt = engine.waiting.pop(0)
        rows = engine.read({number: prompt})[number]
        engine.keep(number, len(prompt))
        engine.running[number] = [draw(rows[row], engine.generator)]


def commit(
    engine,
    kept=lambda tokens, drafts: len(tokens),
    written=lambda tokens: tokens,
    judge=verify,
    admit=lambda engine, blocks: algorithm_1(engine.survivals(), engine.sps),
):
    """Draft, verify and commit one step, after admission.

    `admit` chooses the lengths, `judge` accepts, `kept` counts the tokens that stay in the cache,
    and `written` edits the tokens that join the answer.
    """
    blocks = {number: engine.draft(number) for number in engine.running}
    lengths = admit(engine, blocks)
    blocks = {
        number: (drafts[:length], q[:length])
        for (number, (drafts, q)), length in zip(blocks.items(), lengths)
    }
    rows = engine.read(
        {number: [engine.running[number][-1], *drafts] for number, (drafts, _) in blocks.items()}
    )
    for number, (drafts, q) in blocks.items():
        tokens = judge(rows[number], q, drafts, engine.generator)
        engine.keep(number, kept(tokens, drafts))
        engine.running[number] += written(tokens)
        if engine.complete(number):
            engine.answers[number] = engine.running.pop(number)


def variant(row=-1, **changed):
    """Return a step that draws from another `row`, or commits in another way."""

    def wrong(engine):
        fill(engine, row)
        commit(engine, **changed)

    return wrong


def keeping_no_block(engine):
    """Commit without a call of `keep` after a block."""
    fill(engine)
    engine.keep = lambda number, count: None
    commit(engine)
    del engine.keep


WRONG_TEXT = {
    "refused drafts stay in the cache; of the block only the anchor and the accepted drafts may stay, as many as verify returned": variant(
        kept=lambda tokens, drafts: 1 + len(drafts)
    ),
    "one token too few stays: the anchor and the accepted drafts are as many as verify returned, for its last token was not read yet": variant(
        kept=lambda tokens, drafts: len(tokens) - 1
    ),
    "one token too many stays, the first refused draft; the last token that verify returned has not been read yet": variant(
        kept=lambda tokens, drafts: len(tokens) + 1
    ),
    "engine.keep is not called after a block, so all of it stays and the drafter never sees it; keep as many as verify returned": keeping_no_block,
    "the token that verify adds after the accepted drafts is missing from the answer": variant(
        written=lambda tokens: tokens[:-1] or tokens
    ),
    "the first token is drawn from the prompt's first row; the last row is what comes after the prompt": variant(
        row=0
    ),
}
SLOTS, LONGEST, GAMMA, MOST_STEPS = 3, 16, 3, 60
DRAWS = 20  # runs at temperature 1
STOP = (0,)  # the toy target's answers then end after 5 to 12 tokens
PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9, 1], [2, 2], [3, 1, 4, 1], [7, 3, 2], [8, 1]]


def served(step, drafter_of, prompts=PROMPTS, sps=None) -> tuple[dict[int, list[int]], int]:
    """Return the answers that an engine with this `step` gives on a toy target, and how many steps
    it takes; `sps` lets it schedule.

    Raise Mistake where it does not end, Unfinished where a step admits nothing.
    """
    target, drafters = toy_models(vocab_size=11, gamma=GAMMA)
    engine, steps = WatchedEngine(target, drafter_of(target, drafters), SLOTS, LONGEST, STOP), 0
    engine.waiting = list(enumerate(prompts))
    engine.sps = sps or engine.sps
    while engine.waiting or engine.running:
        lengths = {number: len(answer) for number, answer in engine.running.items()}
        step(engine)
        steps += 1
        if len(engine.waiting) == len(prompts):
            raise Unfinished
        for number, answer in engine.running.items():
            if len(answer) == lengths.get(number) < LONGEST and answer[-1] not in STOP:
                raise Mistake(
                    f"a step left the answer of request {number} as it was; commit all that verify returns, the target's own "
                    "token too, so that each answer grows"
                )
        if steps == MOST_STEPS:
            missing = len(prompts) - len(engine.answers)
            raise Mistake(
                f"after {MOST_STEPS} steps {missing} of {len(prompts)} requests have no answer; when engine.complete(number) "
                "holds, the answer moves from engine.running to engine.answers"
            )
    return engine.answers, steps


def drafting(target, drafters):
    """Return the toy DSpark, mostly wrong: its drafts must leave no trace."""
    return drafters["dspark"]


def never_wrong(target, drafters):
    """Return the target as its own drafter: every block is accepted, so steps can be counted."""
    return SmallLM(target, GAMMA)


def plain_answers(prompts=PROMPTS) -> dict[int, list[int]]:
    """Return the target's own greedy answers."""
    target, _ = toy_models(vocab_size=11, gamma=GAMMA)
    return {
        number: generate(
            target, None, torch.tensor([prompt]), max_new_tokens=LONGEST, stop_token_ids=STOP
        ).token_ids
        for number, prompt in enumerate(prompts)
    }


def judge_answers(step, drafter_of, right: dict, sps=None) -> int:
    """Return the number of steps; raise Mistake unless the answers are the `right` ones."""
    answers, taken = served(step, drafter_of, sps=sps)
    if set(answers) != set(right):
        raise Mistake(f"{len(answers)} of {len(right)} requests are answered; each of them once")
    wrong = sum(answers[number] != right[number] for number in right)
    if wrong:
        cause = next(
            (
                sentence
                for sentence, known in WRONG_TEXT.items()
                if served(known, drafter_of, sps=sps)[0] == answers
            ),
            "",
        )
        raise Mistake(
            f"{wrong} of {len(right)} greedy answers are not the target's own"
            + (cause and f": {cause}")
        )
    return taken


def judge_draws(step) -> None:
    """Raise Mistake where an engine at temperature 1 writes the same whatever its generator draws."""
    target, drafters = toy_models(vocab_size=11, gamma=GAMMA)
    answers = set()
    for seed in range(DRAWS):
        engine = WatchedEngine(
            target,
            drafters["dspark"],
            SLOTS,
            2,
            temperature=1.0,
            generator=torch.Generator().manual_seed(seed),
        )
        engine.waiting = [(0, PROMPTS[0])]
        while engine.waiting or engine.running:
            step(engine)
        answers.add(tuple(engine.answers[0]))
    firsts = {first for first, _ in answers}
    if len(firsts) == 1:
        raise Mistake(
            "the greedy answers are right, but at temperature 1 the first token is always the same; draw it with draw"
        )
    if len(answers) == len(firsts):
        raise Mistake(
            "the greedy answers are right, but at temperature 1 nothing after the first token is drawn; verify draws it"
        )


def judge_step(learners) -> None:
    """Raise Mistake unless a function like `step` gives plain decoding's answers, in no more steps
    than it needs, and draws above temperature 0."""
    right, needed = plain_answers(), served(step, never_wrong)[1]
    judge_answers(as_function(learners), drafting, right)
    taken = judge_answers(learners, never_wrong, right)
    if taken > needed:
        raise Mistake(
            f"the answers are right, but with a drafter that is never wrong they took {taken} steps where {needed} are enough"
        )
    judge_draws(learners)


def falling(tokens: int) -> float:
    """Return steps per second that fall with the tokens, so that doubtful drafts do not pay."""
    return 1 / (4 + tokens)


def judge_schedule(learners) -> None:
    """Raise Mistake unless a function like `step` verifies what Algorithm 1 admits where tokens
    cost time, and nothing else."""
    judge_answers(as_function(learners), drafting, plain_answers(), falling)


@checker
def check_engine(learners):
    """Check a function like `step` on a toy target: its answers, the steps it needs, and that it
    draws above temperature 0."""
    judge_step(learners)


@checker
def check_scheduled(learners):
    """Check a function like `step`, which cuts blocks to what Algorithm 1 admits: first as
    `check_engine`, then where tokens cost time."""
    judge_step(learners)
    judge_schedule(learners)


def engine_in_use(learners, done: bool):
    """Return the learner's `step` if it is right, else the reference, so that the cells below run
    either way."""
    print(
        "From here on your own step runs the engine."
        if done
        else "Until yours is right, ours runs the engine below."
    )
    return learners if done else step
