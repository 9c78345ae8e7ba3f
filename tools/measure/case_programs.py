"""The programs of the cases in assets/cases: with the fault of each suspect, without any, and how they are measured."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch

from dspark_lite.course.exercises import lesson_00, lesson_03, lesson_13
from dspark_lite.course.clinic import patients
from dspark_lite.course.own_decoder import small_engine, verifying
from dspark_lite.course.clinic.patients import Service
from dspark_lite.course.measure import studies, symptoms
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.replication import experiment_results as results
from dspark_lite.course.result_files import reference
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.decoding.rounds import generate
from dspark_lite.decoding.sampling import RandomSource
from dspark_lite.drafters import DSpark, Eagle3
from dspark_lite.losslessness.enumeration import outcomes, output_distribution, total_variation
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget, appendix_a
from dspark_lite.scheduling.policies import algorithm1, retrospective, threshold

Rows = dict[str, str]  # a measurement's result: {what: how much}


class Recorded(NamedTuple):
    """How a case is measured: a healthy program, one with the fault of each suspect, and {measurement: Rows} of a program."""

    healthy: object
    programs: dict[str, object]
    measure: Callable[[object], dict[str, Rows]]


# 02: a replacement drawn from p.

WORDS = ("the", "a", "my")
TARGET = torch.tensor([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.3, 0.5, 0.2]])  # after each word
DRAFTER = torch.tensor([[0.4, 0.45, 0.15], [0.3, 0.1, 0.6], [0.5, 0.3, 0.2]])
BLOCK = 2


def likeliest(table: torch.Tensor) -> torch.Tensor:
    """Return the table [V, V] at temperature 0."""
    return torch.nn.functional.one_hot(table.argmax(-1), table.shape[-1]).float()


class Rule(NamedTuple):
    """A verifier, and what drafts are really drawn from where DRAFTER is claimed."""

    verify: Callable = verifying.verify
    drawn: Callable[[torch.Tensor], torch.Tensor] = lambda table: table


def rule_measured(program: Rule) -> dict[str, Rows]:
    """Enumerate a round after the word "the", and texts of three words."""

    def a_round(path, tables=(TARGET, DRAFTER), anchor=0):
        target, claimed = tables
        drafts, last, drawn = [], anchor, program.drawn(claimed)
        for _ in range(BLOCK):
            last = verifying.draw(drawn[last], path)
            drafts.append(last)
        before = [anchor, *drafts]
        tokens = program.verify(target[before], claimed[before[:-1]], list(drafts), path)
        return tuple(drafts), tuple(tokens)

    def opening(which):
        return [sum(p for pair, p in pairs if which(*pair) == word) for word in range(len(WORDS))]

    def greedy_is_right(anchor):
        tables = likeliest(TARGET), likeliest(DRAFTER)
        ((_, tokens), _), *_ = outcomes(lambda path: a_round(path, tables, anchor))
        text = [anchor, *tokens]
        return text[1:] == TARGET[text[:-1]].argmax(-1).tolist()

    pairs = list(outcomes(a_round))
    texts = verifying.texts_of(
        [(list(tokens)[: BLOCK + 1], p) for (_, tokens), p in pairs], BLOCK, TARGET
    )[0]
    wanted = verifying.texts_of(
        [([word], float(TARGET[0, word])) for word in range(3)], BLOCK, TARGET
    )[0]
    length = sum(len(tokens) * p for (_, tokens), p in pairs)
    return {
        "greedy text": {
            f"after “{word}”": "right" if greedy_is_right(place) else "wrong"
            for place, word in enumerate(WORDS)
        },
        "tokens a round": {"mean": f"{length:.3f}"},
        "first word": {
            word: f"{share:.3f}"
            for word, share in zip(WORDS, opening(lambda drafts, tokens: tokens[0]))
        },
        "what is drafted": {
            word: f"{share:.3f}"
            for word, share in zip(WORDS, opening(lambda drafts, tokens: drafts[0]))
        },
        "distance of the text": {"total variation": f"{total_variation(texts, wanted):.3f}"},
    }


def case_02() -> Recorded:
    return Recorded(
        Rule(),
        {
            "after a refusal it draws from p": Rule(
                verifying.variant(correction=lambda p, q, k: p[k])
            ),
            "after a refusal it goes on": Rule(verifying.going_on),
            "the bonus comes from the row before": Rule(
                verifying.variant(bonus=lambda p, q: p[len(q) - 1])
            ),
            "the coin is tossed with p alone": Rule(
                verifying.variant(coin=lambda p, q, k, x: p[k, x])
            ),
            "the likeliest word is drafted, and q claimed": Rule(drawn=likeliest),
        },
        rule_measured,
    )


# 03: a refused draft stays in the small LM's cache.

GAMMA, WRITTEN, ANSWERS = 7, 40, 1  # drafts; tokens of an answer, answers of each domain


class Loop(NamedTuple):
    """Lesson 03's loop: how many positions too few the target's cache and the small LM's forget, which committed tokens
    count as unread, and what is added to the small LM's logits."""

    kept: tuple[int, int] = (0, 0)
    unread: Callable = lesson_03.still_unread
    noise: float = 0.0


@cache
def tiny():
    """Return the tiny lab, two prompts of each domain, and the target's own greedy answers to them."""
    lab = setup("tiny", prompts=ANSWERS)
    ids = [lab.encode(text) for texts in lab.prompts.values() for text in texts[:ANSWERS]]
    plain = [
        generate(lab.target, None, prompt, max_new_tokens=WRITTEN, stop_token_ids=()).token_ids
        for prompt in ids
    ]
    return lab, ids, plain


@torch.inference_mode()
def loop_measured(program: Loop) -> dict[str, Rows]:
    """Write greedy answers with the target and the small LM."""
    lab, prompts, plain = tiny()
    models = lab.target, lab.drafter("small_lm").model
    doubt = program.noise * torch.randn(
        lab.target.vocab_size, generator=torch.Generator().manual_seed(0)
    )
    # Of a round: drafts kept, entries too many in each cache, whether the round before was whole.
    right, rounds = 0, []
    for ids, wanted in zip(prompts, plain):
        answer, caches = [wanted[0]], [model.prefill(ids)[1] for model in models]
        unread, whole, before = answer[:], None, (0, 0)
        while len(answer) < WRITTEN:
            drafts, entering = [], unread
            for _ in range(GAMMA):
                logits = read(models[1], entering, caches[1])[-1] + doubt
                drafts.append(int(logits.argmax()))
                entering = drafts[-1:]
            choice = read(models[0], [answer[-1], *drafts], caches[0]).argmax(-1).tolist()
            kept = next((k for k, (x, y) in enumerate(zip(drafts, choice)) if x != y), GAMMA)
            tokens = [*drafts[:kept], choice[kept]]
            for model, cached, dropped, more in zip(
                models, caches, lesson_03.forget(GAMMA, kept), program.kept
            ):
                model.roll_back(cached, max(0, dropped - more))
            unread = program.unread(drafts, tokens)
            answer += tokens
            text = ids.shape[1] + len(answer) - 1
            small = text - len(lesson_03.still_unread(drafts, tokens)) + 1
            over = [c.get_seq_length() - size for c, size in zip(caches, (text, small))]
            rounds.append((kept, *(now - then for now, then in zip(over, before)), whole))
            before = over
            whole = kept == GAMMA
        right += answer[:WRITTEN] == wanted

    def mean(place, when=lambda one: True):
        chosen = [one[place] for one in rounds if when(one)]
        return sum(chosen) / len(chosen)

    def most(place):
        return max((one[place] for one in rounds), key=abs)

    return {
        "texts": {"the target's own": f"{right} of {len(prompts)}"},
        "tokens a round": {"mean": f"{1 + mean(0):.2f}"},
        "target's cache": {"a round adds, at most": f"{most(1):+d}"},
        "small LM's cache": {"a round adds, at most": f"{most(2):+d}"},
        "after which round": {
            "after a whole block": f"{1 + mean(0, lambda one: one[3] is True):.2f}",
            "after a refusal": f"{1 + mean(0, lambda one: one[3] is False):.2f}",
        },
    }


def read(model, tokens: list[int], cached) -> torch.Tensor:
    """Return logits [k, V] after each of k tokens that follow what the cache holds."""
    return model.verify(torch.tensor([tokens], device=model.device), cached).logits[0]


def case_03() -> Recorded:
    return Recorded(
        Loop(),
        {
            "a refused draft stays in the small LM's cache": Loop(kept=(0, 1)),
            "a refused draft stays in the target's cache": Loop(kept=(1, 0)),
            "the small LM never reads its last draft": Loop(
                unread=lambda drafts, tokens: tokens[-1:]
            ),
            "the small LM forgets one entry too many": Loop(kept=(0, -1)),
            "a worse small LM was loaded": Loop(noise=1.0),
        },
        loop_measured,
    )


# 11: `keep` one too many.

LENGTH, SLOTS = 16, 3


def engine_measured(step) -> dict[str, Rows]:
    """Serve small_engine's prompts on a toy target; `step` is a step of the engine, or a step and a class of engine."""
    step, kind = step if isinstance(step, tuple) else (step, small_engine.SmallEngine)
    plain = small_engine.plain_answers()

    def serve(drafter, slots):
        target, drafters = small_engine.toy_models(vocab_size=11, gamma=small_engine.GAMMA)
        engine = kind(target, drafter(target, drafters), slots, LENGTH, small_engine.STOP)
        engine.waiting = list(enumerate(small_engine.PROMPTS))
        steps, over, added, firsts = 0, {}, [], {}
        while engine.waiting or engine.running:
            step(engine)
            steps += 1
            now = {number: engine.surplus(number) for number in engine.running}
            added += [size - over.get(number, 0) for number, size in now.items()]
            over = now
            firsts |= {n: answer[0] for n, answer in (engine.running | engine.answers).items()}
        right = sum(engine.answers[n] == wanted for n, wanted in plain.items())
        return right, steps, max(added, key=abs), sum(firsts[n] == w[0] for n, w in plain.items())

    many = f"of {len(plain)}"
    shared, alone = serve(small_engine.drafting, SLOTS), serve(small_engine.drafting, 1)
    mirror = serve(small_engine.never_wrong, SLOTS)
    return {
        "texts together": {"the target's own": f"{shared[0]} {many}"},
        "texts one by one": {"the target's own": f"{alone[0]} {many}"},
        "a drafter never refused": {
            "the target's own": f"{mirror[0]} {many}",
            "steps": str(mirror[1]),
        },
        "first tokens": {"the target's own": f"{shared[3]} {many}"},
        "what stays cached": {"a round adds, at most": f"{shared[2]:+d}"},
    }


class Neighbourly(small_engine.SmallEngine):
    """An engine whose requests see each other's keys."""

    def read(self, tokens):
        own, small_engine.own = (
            small_engine.own,
            lambda request, keys: (request[:, None] >= 0) & (keys >= 0),
        )
        try:
            return super().read(tokens)
        finally:
            small_engine.own = own


def case_11() -> Recorded:
    variant = small_engine.variant
    return Recorded(
        small_engine.step,
        {
            "one token too many is kept": variant(kept=lambda tokens, drafts: len(tokens) + 1),
            "one token too few is kept": variant(kept=lambda tokens, drafts: len(tokens) - 1),
            "the whole block is kept": variant(kept=lambda tokens, drafts: 1 + len(drafts)),
            "requests see each other": (small_engine.step, Neighbourly),
            "the first token comes from the wrong row": variant(row=0),
        },
        engine_measured,
    )


# 07: a drafter that is shown its labels while it learns.

# Tokens of a toy text, its length, that of a new text, steps of training.
STATES, SEEN, NEW, STEPS = 8, 4000, 2000, 60


class Training(NamedTuple):
    """A drafter that learns the next token from the last one: where its label stands (1: the next token), whether it is shown
    the label, whether it learns each place by heart, and how far its guesses are read beside their place."""

    label: int = 1
    shown: bool = False
    by_heart: bool = False
    read_off: int = 0


@cache
def toy_text() -> tuple[torch.Tensor, torch.Tensor]:
    """Return a table [V, V] of next-token probabilities, and a text drawn from it."""
    generator = torch.Generator().manual_seed(7)
    table = (2 * torch.randn(STATES, STATES, generator=generator)).softmax(-1)
    text = [0]
    for _ in range(SEEN + NEW):
        text.append(int(torch.multinomial(table[text[-1]], 1, generator=generator)))
    return table, torch.tensor(text)


def training_measured(program: Training) -> dict[str, Rows]:
    """Train a table of logits, and let it draft."""
    table, text = toy_text()
    read = torch.arange(1, SEEN)
    given, label = text[read], text[read + program.label]
    weights = torch.zeros(2 * STATES, STATES)  # a row for the token read, a row for the label shown
    heart = torch.zeros(SEEN, STATES)  # a row for each place of the text
    for part in (weights, heart):
        part.requires_grad_(True)

    def rows(given, shown):
        return weights[given] + (weights[STATES + shown] if program.shown else 0)

    optimiser = torch.optim.Adam([weights, heart], lr=0.3)
    with torch.enable_grad():
        for _ in range(STEPS):
            logits = rows(given, label) + (heart[read] if program.by_heart else 0)
            loss = torch.nn.functional.cross_entropy(logits, label)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    weights, loss = weights.detach(), loss.item()
    new = torch.arange(SEEN, SEEN + NEW - 1)

    def loss_on(logits):
        return f"{torch.nn.functional.cross_entropy(logits, text[new + program.label]):.2f}"

    blank = weights[text[new]]
    drafted = weights[:STATES].softmax(-1).roll(program.read_off, 0)
    kept = torch.minimum(drafted, table).sum(-1)[text[new]].mean()
    guess = drafted.argmax(-1)
    return {
        "training loss": {"at the end": f"{loss:.2f}"},
        "loss on new text": {"at the end": loss_on(rows(text[new], text[new + program.label]))},
        "label hidden": {"loss on new text": loss_on(blank)},
        "drafts kept": {"of the first draft": f"{kept:.0%}"},
        "guesses": {
            "the next token": f"{(guess[text[new]] == text[new + 1]).float().mean():.0%}",
            "the token it was given": f"{(guess[text[new]] == text[new]).float().mean():.0%}",
        },
    }


def case_07() -> Recorded:
    return Recorded(
        Training(),
        {
            "the labels stand one place too early": Training(label=0),
            "a slot is shown its own label": Training(shown=True),
            "the text was learned by heart": Training(by_heart=True),
            "guesses are read one slot off": Training(read_off=1),
        },
        training_measured,
    )


# 09: a confidence head that reads the token it judges. 10: a policy that looks past the stop.


class Scheduled(NamedTuple):
    """A drafter's tables, its confidences, a policy, and the rule; `late` lets the head read the token that it judges."""

    policy: Callable
    confidence: tuple[float, float]
    first: float
    late: bool = False
    rule: Callable = verifying.verify
    claimed: tuple = ()  # the table that is claimed, where drafts are drawn from another


class Judging(ToyDrafter):
    """A drafter whose head may read the token that it judges, or that claims another table than it draws from."""

    late, claimed = False, None

    def propose(self, state, anchor, **how):
        proposal = super().propose(state, anchor, **how)
        logits, probs = proposal.confidence_logits, proposal.probs
        if self.late:
            logits = self.confidence[proposal.tokens].logit()
        if self.claimed is not None:
            probs = self.claimed[torch.cat([anchor[:, None], proposal.tokens[:, :-1]], 1)]
        return Proposal(proposal.tokens, probs, logits)


def scheduled_measured(program: Scheduled, target, table) -> dict[str, Rows]:
    """Enumerate answers of a target over two words, 0 and 1, whose drafter draws from `table` [2, 2]."""

    def texts(program, target=target, table=table):
        drafter = Judging(table, program.first, program.confidence, gamma=2)
        drafter.late = program.late
        if program.claimed:
            drafter.claimed = torch.tensor(program.claimed)
        found = output_distribution(
            target, drafter, program.policy, length=2, rule=verifying.as_accept(program.rule)
        )
        wanted = output_distribution(target, None, None, length=2)
        second = sum(share for tokens, share in found.items() if tokens[1] == 1)
        return f"{total_variation(found, wanted):.3f}", f"{second:.3f}"

    onehot = likeliest(target.table)
    level = program._replace(confidence=(program.first, program.first))
    return {
        "greedy texts": {
            "total variation": texts(
                program._replace(claimed=()), ToyTarget(onehot), likeliest(torch.tensor(table))
            )[0]
        },
        "texts at temperature 1": {"total variation": texts(program)[0]},
        "seen": {
            "“no” as the second word": texts(program)[1],
            "by the target": f"{wanted_no(target):.3f}",
        },
        "whole blocks": {"total variation": texts(program._replace(policy=None))[0]},
        "equal confidences": {"total variation": texts(level)[0]},
        "another first draft": {
            "drafted “yes”": f"confidence {confidence_of_first(program, 0):.2f}",
            "drafted “no”": f"confidence {confidence_of_first(program, 1):.2f}",
        },
    }


def wanted_no(target) -> float:
    """Return how often the target's second word is 1."""
    wanted = output_distribution(target, None, None, length=2)
    return sum(share for tokens, share in wanted.items() if tokens[1] == 1)


def confidence_of_first(program: Scheduled, word: int) -> float:
    """Return the first draft's confidence if it is this word."""
    return program.confidence[word] if program.late else program.first


def one_place_on(proposal) -> torch.Tensor:
    """Verify a draft if the confidence of the draft after it is high."""
    return (proposal.confidence[:, 1:] >= 0.5).long().cumprod(-1).sum(-1)


def case_09() -> Recorded:
    half = [[0.5, 0.5], [0.5, 0.5]]
    right = Scheduled(threshold(0.5), (0.9, 0.1), 0.9)
    drawn = ((0.8, 0.2), (0.8, 0.2))
    return Recorded(
        right,
        {
            "the head reads the token that it judges": right._replace(late=True),
            "the head is too sure": right._replace(confidence=(0.99, 0.4), first=0.99),
            "the threshold reads the confidence of the next place": right._replace(
                policy=one_place_on
            ),
            "q is not what the drafts were drawn from": right._replace(claimed=drawn),
        },
        lambda program: scheduled_measured(program, ToyTarget(half), half),
    )


def case_10() -> Recorded:
    target, drafter, costs = appendix_a()
    right = Scheduled(algorithm1(costs), (0.9, 0.0), 0.8)
    return Recorded(
        right,
        {
            "the scheduler looks past its stop": right._replace(policy=retrospective(costs)),
            "the cost table is another machine's": right._replace(
                policy=algorithm1(type(costs)([1, 2, 3], [1.0, 0.99, 0.98]))
            ),
            "the head is too sure": right._replace(confidence=(1.0, 0.9), first=1.0),
            "the head reads the token that it judges": right._replace(late=True),
            "after a refusal it draws from p": right._replace(
                rule=verifying.variant(correction=lambda p, q, k: p[k])
            ),
        },
        lambda program: scheduled_measured(program, target, drafter.table.tolist()),
    )


# 13: a lag too short.


class Times(NamedTuple):
    """A loop of device and host, and their milliseconds for a step."""

    loop: Callable = lesson_13.pipelined
    device: float = 8.0
    host: float = 6.0
    kept: float = 4.0  # tokens of a round


def in_turn(device, host, steps):
    """Let the host work on a step's confidences before the next one starts."""
    budget = None
    for _ in range(steps):
        device.start(budget)
        budget = host(device.finish())


class Clocked:
    """A device whose steps, and a host whose searches, take the time that is given."""

    def __init__(self, times: Times):
        self.times, self.now, self.ends = times, 0.0, 0.0
        self.busy, self.worked = 0.0, 0.0

    def start(self, budget):
        self.ends = self.now + self.times.device
        self.busy += self.times.device

    def finish(self):
        self.now = max(self.now, self.ends)
        return "confidences"

    def host(self, confidences):
        self.now += self.times.host
        self.worked += self.times.host
        return "budget"


def times_measured(program: Times, steps: int = 200) -> dict[str, Rows]:
    """Run the loop by a clock that counts milliseconds."""
    clock = Clocked(program)
    program.loop(clock, clock.host, steps)
    return {
        "tokens a second": {"of a request": f"{1000 * steps * program.kept / clock.now:.0f}"},
        "tokens a round": {"mean": f"{program.kept:.1f}"},
        "the device alone": {"a step takes": f"{program.device:.0f} ms"},
        "the host alone": {"a search takes": f"{program.host:.0f} ms"},
        "at work": {
            "the device": f"{clock.busy / clock.now:.0%}",
            "the host": f"{clock.worked / clock.now:.0%}",
        },
    }


def case_13() -> Recorded:
    return Recorded(
        Times(),
        {
            "the host searches between two steps": Times(loop=in_turn),
            "the host has become slower than the device": Times(host=14.0),
            "a step of the device takes longer": Times(device=14.0),
            "the drafts have become worse": Times(kept=2.3),
        },
        times_measured,
    )


# 01 and 12: what others and we have recorded.


def public_run_measured(_) -> dict[str, Rows]:
    """Read the public run of lesson 01, and raise unless it contradicts itself as the case says."""
    public = reference("public_run.json")
    run = public["speed_run"]
    token = 1000 * run["plain_seconds"] / run["plain_tokens"]
    a_round = 1000 * run["dspark_seconds"] / run["dspark_rounds"]
    same = run["plain_seconds"] / run["dspark_seconds"]
    assert token > a_round and public["speedup"] > same > run["dspark_accepted_length"]
    return {
        "seen": {"times as fast": f"{public['speedup']:.2f}"},
        "tokens a round": {
            "printed": f"{run['dspark_accepted_length']:.2f}",
            "tokens over rounds": f"{run['dspark_tokens']} / {run['dspark_rounds']} = {run['dspark_tokens'] / run['dspark_rounds']:.2f}",
        },
        "the two answers": {
            "plain, tokens": str(run["plain_tokens"]),
            "DSpark, tokens": str(run["dspark_tokens"]),
            "to the same word, times as fast": f"{same:.2f}",
        },
        "a plain token": {"a pass over one token": f"{token:.0f} ms"},
        "a round": {"a draft, a pass over eight tokens": f"{a_round:.0f} ms"},
        "other prompts": {
            f"tokens a round, {domain}": f"{length:.2f}"
            for domain, length in public["accepted_length"].items()
        },
    }


def case_01() -> Recorded:
    return Recorded(None, {"plain decoding was slowed down": None}, public_run_measured)


def trainings_measured(_) -> dict[str, Rows]:
    """Read the gains of DSpark over Eagle3 on math, and raise unless the shipped training is the lucky one."""
    ours, theirs = studies.SEEDS["dspark"], studies.SEEDS["eagle3"]
    gains = [results.gains(*pair)["math"] for pair in zip(ours, theirs)]
    shipped = results.gains(studies.TABLE_1["dspark"], studies.TABLE_1["eagle3"])["math"]
    others = [gain.value for gain in gains if gain.value != shipped.value]
    made = [results.measured(run) for run in (*ours, *theirs)]
    tallies = [results.tallies(studies.TABLE_1[name])[0] for name in ("dspark", "eagle3")]
    halves = [gain_of(*(part[half::2] for part in tallies)) for half in (0, 1)]
    assert len(others) == 2 and max(others) < shipped.low < min(halves)
    same = {
        name: all(
            one == made[0]["recipe"]["data"][name]
            for one in (m["recipe"]["data"][name] for m in made)
        )
        for name in made[0]["recipe"]["data"]
    }
    assert all(same.values()) and all(m["prompts"] == made[0]["prompts"] for m in made)
    return {
        "seen": {"this pair of drafters": f"{shipped.value:+.1%}"},
        "interval over prompts": {
            "95 % of the resamples": f"{shipped.low:+.1%} to {shipped.high:+.1%}"
        },
        "two halves of the prompts": {
            name: f"{gain:+.1%}" for name, gain in zip(("even ones", "odd ones"), halves)
        },
        "what they learned from": {
            "answers": f"{sum(made[0]['recipe']['data']['prompts'].values()):,}, the same",
            "target": f"{made[0]['recipe']['target']}, the same",
        },
        "trained again": {
            f"training {number}": f"{gain.value:+.1%}" for number, gain in enumerate(gains, start=1)
        },
        "other texts": {
            domain: f"{gain.value:+.1%}"
            for domain, gain in results.gains(
                studies.TABLE_1["dspark"], studies.TABLE_1["eagle3"]
            ).items()
        },
    }


def gain_of(ours, theirs) -> float:
    """Return how much longer ours accepts, from tokens and rounds [N, 2] of each prompt."""
    (tokens, rounds), (other, others) = ours.sum(0), theirs.sum(0)
    return (tokens / rounds) / (other / others) - 1


def case_12() -> Recorded:
    return Recorded(None, {"a lucky seed": None}, trainings_measured)


# 00: a wrong guess is kept.

BRICKS, TAIL = 0, 200  # the prompt of the case among those of math; tokens of an answer at most


def twelve_lines_measured(speculate) -> dict[str, Rows]:
    """Write with lesson 00's twelve lines, or with one of their faults."""
    lab = tiny()[0]
    big, little = (
        (lambda ids: lab.target.model(input_ids=ids).logits),
        (lambda ids: lab.drafter("small_lm").model.model(input_ids=ids).logits),
    )
    ids = lab.encode(lab.prompts["math"][BRICKS])
    plain = generate(lab.target, None, ids, max_new_tokens=TAIL).token_ids
    again = generate(lab.target, None, ids, max_new_tokens=TAIL).token_ids
    passes = []

    def counted(ids):
        return passes.append(ids.shape[1]) or big(ids)

    with torch.inference_mode():
        mine, alone, mirror = (
            found(ids)[0, ids.shape[1] :].tolist()
            for found in (
                lambda ids: speculate(counted, little, ids, len(plain)),
                lambda ids: speculate(big, little, ids, 32, gamma=1),
                lambda ids: speculate(big, big, ids, 32),
            )
        )

    def same(found):
        return "the target's" if found == plain[: len(found)] else "another"

    return {
        "seen": {
            "the target": lab.decode(plain).splitlines()[-1],
            "the twelve lines": lab.decode(mine).splitlines()[-1],
        },
        "the target again": {"text": same(again)},
        "blocks of one guess": {"text": same(alone)},
        "a guesser never wrong": {"text": same(mirror)},
        "passes": {"for as many tokens": str(len(passes))},
    }


def case_00() -> Recorded:
    decoding = lesson_00.decoding
    return Recorded(
        lesson_00.speculate,
        {
            "guesses count that match after a wrong one": decoding(
                judge=lambda guess, want: int((guess == want[:-1]).sum())
            ),
            "one guess too many is kept": decoding(
                judge=lambda guess, want: min(
                    len(guess), 1 + int((guess == want[:-1]).cumprod(0).sum())
                )
            ),
            "the target's own token comes from the row before": decoding(
                added=lambda guess, want, right: torch.cat(
                    [guess[:right], want[max(right - 1, 0) : max(right, 1)]]
                )
            ),
        },
        twelve_lines_measured,
    )


# 04, 05 and 06: a drafter that is read, biased or fed wrongly.

BLOCKS_OF = 32  # tokens of an answer


class Fixed(RandomSource):
    """A source whose every draw is the same token."""

    def __init__(self, token: int = 5):
        self.token = token

    def draw(self, probs):
        return torch.full(probs.shape[:-1], self.token)


@torch.inference_mode()
def chart(drafter) -> dict[str, Rows]:
    """Write greedy answers with a drafter."""
    lab, prompts, plain = tiny()
    answers = [
        generate(lab.target, drafter, ids, max_new_tokens=BLOCKS_OF, stop_token_ids=())
        for ids in prompts
    ]
    right = sum(a.token_ids == wanted[:BLOCKS_OF] for a, wanted in zip(answers, plain))
    rounds = [r for a in answers for r in a.rounds[:-1]]  # the last one may be cut
    kept = [r.accepted for r in rounds]
    later = [r for a in answers for r in a.rounds[3:-1]]
    early = [r for a in answers for r in a.rounds[:2]]
    reached = [min(k, drafter.gamma - 1) for k in kept]

    def mean(values):
        return sum(values) / len(values)

    return {
        "texts": {"the target's own": f"{right} of {len(prompts)}"},
        "tokens a round": {"mean": f"{1 + mean(kept):.2f}"},
        "early and late": {
            "tokens a round, rounds 1 and 2": f"{1 + mean([r.accepted for r in early]):.2f}",
            "from round 4 on": f"{1 + mean([r.accepted for r in later]):.2f}",
        },
        "first and later drafts": {
            "first drafts kept": f"{mean([k > 0 for k in kept]):.0%}",
            "later ones, once judged": f"{sum(max(k - 1, 0) for k in kept) / max(sum(reached), 1):.0%}",
        },
    }


def service(name: str) -> Service:
    """Return the tiny target with a drafter of the lab."""
    lab = tiny()[0]
    return Service(lab.target, lab.drafter(name), lab.encode)


def slots_measured(program) -> dict[str, Rows]:
    """Measure a DFlash with a fault."""
    lab, prompts, plain = tiny()
    served = program(service("dflash"))
    reacts = symptoms.reactions(served, prompts[0])
    own, next_one = symptoms.place_of_drafts(served, prompts[0], plain[0])
    moves = {True: "moves", False: "stays"}
    found = chart(served.drafter)
    return {
        "texts": found["texts"],
        "first and later drafts": found["first and later drafts"],
        "another anchor": {"the block": moves[reacts["anchor"]]},
        "newest features blanked": {"the block": moves[reacts["newest features"]]},
        "where the drafts fit": {
            "in their own place": f"{own:.0%}",
            "one place on": f"{next_one:.0%}",
        },
    }


def one_slot_on(served: Service) -> Service:
    """Read each slot as the guess for the place before its own."""

    def block_hidden(self, state, anchor):
        return DSpark.block_hidden(self, state, anchor).roll(-1, 1)

    return replace(served, drafter=patients.altered(served.drafter, block_hidden=block_hidden))


def case_04() -> Recorded:
    return Recorded(
        lambda served: served,
        {
            "slots are read one place off": one_slot_on,
            "the target's embedding was not handed over": patients.embedding_empty,
            "the block begins with a mask, not the anchor": patients.mask_for_anchor,
            "features enter one token late": patients.features_late,
            "positions start anew in every pass": patients.positions_restart,
        },
        slots_measured,
    )


def head_measured(program) -> dict[str, Rows]:
    """Measure a DSpark with a fault."""
    lab, prompts, _ = tiny()
    served = program(service("dspark"))
    drafter, ids = served.drafter, prompts[0]
    with torch.inference_mode():
        features = lab.target.prefill(ids[:, :-1], drafter.taps)[0].features
        hidden = drafter.block_hidden(drafter.begin(ids[:, :-1], features), ids[:, -1])
        one, other = (
            drafter.draw_block(hidden, torch.tensor([token]), 1.0, Fixed())[1] for token in (7, 9)
        )
        sure = drafter.draw_block(hidden, ids[:, -1], 1.0, lab.generator())[2].amax(-1).mean()
    moved = ((one - other).abs().amax(-1) > 1e-4)[0].tolist()
    found = chart(drafter)
    return {
        "texts": found["texts"],
        "tokens a round": found["tokens a round"],
        "first and later drafts": found["first and later drafts"],
        "another anchor, the same guesses": {
            "slot 1": "moves" if moved[0] else "stays",
            "slots 2 to 7": "move"
            if all(moved[1:])
            else "stay"
            if not any(moved[1:])
            else "some move",
        },
        "how sure it is": {"chance of the likeliest token": f"{sure:.0%}"},
    }


def biased_by_the_first(served: Service) -> Service:
    """Give every slot the bias of the anchor."""

    def draw_block(self, hidden, anchor, temperature, generator):
        head, drafter = patients.altered(self.markov_head), patients.altered(self)
        head.step = lambda previous, hidden, state: type(head).step(head, anchor, hidden, state)
        drafter.markov_head = head
        return DSpark.draw_block(drafter, hidden, anchor, temperature, generator)

    return replace(served, drafter=patients.altered(served.drafter, draw_block=draw_block))


def case_05() -> Recorded:
    return Recorded(
        lambda served: served,
        {
            "every slot is biased by the anchor": biased_by_the_first,
            "the head was not loaded": patients.head_left_out,
            "the norm before the LM head is missing": patients.norm_missing,
            "features enter one token late": patients.features_late,
            "the block begins with a mask, not the anchor": patients.mask_for_anchor,
        },
        head_measured,
    )


def chain_measured(program) -> dict[str, Rows]:
    """Measure an Eagle3 with a fault."""
    lab, prompts, _ = tiny()
    drafter = program(service("eagle3").drafter)
    found, ids = chart(drafter), prompts[0]
    with torch.inference_mode():
        features = lab.target.prefill(ids[:, :-1], drafter.taps)[0].features
        state = drafter.begin(ids[:, :-1], features)
        before = state.cache.length
        drafter.propose(state, ids[:, -1], temperature=0.0, generator=None)
        left = state.cache.length - before
        blanked = torch.cat([features[:, :-1], 0 * features[:, -1:]], 1)
        usual, unfed, other = (
            drafter.propose(
                drafter.begin(ids[:, :-1], given),
                ids[:, -1],
                temperature=1.0,
                generator=Fixed(token),
            ).probs[0]
            for given, token in ((features, 5), (blanked, 5), (features, 6))
        )
    moves = {True: "move", False: "stay"}
    return {
        "first and later drafts": found["first and later drafts"],
        "early and late": found["early and late"],
        "newest features blanked": {
            "the first draft's chances": moves[not torch.allclose(usual[0], unfed[0], atol=1e-4)]
        },
        "another first draft": {
            "the second draft's chances": moves[not torch.allclose(usual[1], other[1], atol=1e-4)]
        },
        "cells left by a block": {"in the draft's cache": f"{left:+d}"},
    }


def never_taken_back(eagle3):
    """Leave the cells of its own passes in the cache."""

    def draw_chain(self, state, anchor, length, temperature, generator):
        drawn = Eagle3.draw_chain(self, state, anchor, length, temperature, generator)
        state.cache.advance(length)
        return drawn

    return patients.altered(eagle3, draw_chain=draw_chain)


def stale_feature(eagle3):
    """Let every pass read the target's last feature, where later ones should read the pass
    before."""

    def draw_chain(self, state, anchor, length, temperature, generator):
        waiting = state.waiting
        again = patients.altered(
            self,
            next_hidden=lambda self, cache, token, hidden: Eagle3.next_hidden(
                self, cache, token, waiting
            ),
        )
        return Eagle3.draw_chain(again, state, anchor, length, temperature, generator)

    return patients.altered(eagle3, draw_chain=draw_chain)


def token_before(eagle3):
    """Let every pass but the first read the token before the newest."""

    def draw_chain(self, state, anchor, length, temperature, generator):
        seen = [anchor]

        def next_hidden(self, cache, token, hidden):
            seen.append(token)
            return Eagle3.next_hidden(self, cache, seen[-2], hidden)

        again = patients.altered(self, next_hidden=next_hidden)
        return Eagle3.draw_chain(again, state, anchor, length, temperature, generator)

    return patients.altered(eagle3, draw_chain=draw_chain)


def blind(eagle3):
    """Leave out the target's features: they are not handed over."""

    def project(self, features):
        return 0 * Eagle3.project(self, features)

    return patients.altered(eagle3, project=project)


def case_06() -> Recorded:
    return Recorded(
        lambda eagle3: eagle3,
        {
            "every pass reads the target's last feature": stale_feature,
            "the cells of its own passes are never taken back": never_taken_back,
            "the target's features do not arrive": blind,
            "every pass reads the token before the newest": token_before,
            "nothing is wrong: chains fade": lambda eagle3: eagle3,
        },
        chain_measured,
    )


CASES = {
    "00": case_00,
    "01": case_01,
    "02": case_02,
    "03": case_03,
    "04": case_04,
    "05": case_05,
    "06": case_06,
    "07": case_07,
    "09": case_09,
    "10": case_10,
    "11": case_11,
    "12": case_12,
    "13": case_13,
}
