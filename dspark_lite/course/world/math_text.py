"""Math: stories with three-digit numbers, worked in several steps of addition, subtraction, multiplication and halving.

A story has a keeper, goods and a town. The town's voice decides its words, and in which of three styles it is worked. Every equation is right, and the last sentence holds the result that is checked.
"""

import random
from dataclasses import dataclass

from .example import Example
from .facts import encyclopedia
from .wording import Voice, expand

GOODS = (
    "candles",
    "tiles",
    "baskets",
    "bells",
    "barrels",
    "loaves",
    "ropes",
    "lamps",
    "bricks",
    "jars",
    "boards",
    "sacks",
    "nails",
    "cups",
    "plates",
    "stones",
    "apples",
    "letters",
    "coins",
    "seeds",
)
LARGEST = 999
EVENTS = 8  # of a long day


@dataclass(frozen=True)
class Event:
    """One event of a story: the operation, its number, and the count before and after it."""

    operation: str
    before: int
    number: int
    after: int


TOLD = {
    "add": "[Then|Later|At noon|Next|In the evening] [{n} more [arrive|come|are added]|{name} [buys|finds|gets|makes] {n} [more|others]|{n} [more|others] are "
    "[brought|delivered]].",
    "subtract": "[Then|Later|At noon|Next|In the evening] [{n} are [sold|lost|broken|given away]|{name} [sells|loses|gives away|ships] {n}|[guests|neighbours] take "
    "{n}].",
    "multiply": "[Then|Later|Next|After a while] the [number|count|stock] [grows to {n} times as many|is multiplied by {n}].",
    "halve": "[Then|Later|Next|At the end of the day] [half|one half] of them [are sold|are shipped|go to another town].",
}
RULES = {
    "first": "[First|To begin|To start|At first]",
    "next": "[Then|Next|Now|After that|From there]",
    "last": "[Finally|At last|In the end|To finish|Lastly]",
    "we": "[we|I|one can|you]",
    "get": "[get|have|find|reach|obtain|see]",
    "us": "[us|me|you]",
    "gives": "[gives|makes|is|yields|comes to|leads to]",
    "note": "[|{n_check}|{n_check}|{n_goods}|{n_goods}|{n_keep}|{n_story}|{n_story}]",
    "n_check": "[This|That|The result|The value] [is|looks|seems|sounds] [right|fine|sensible|plausible|large enough|small enough][.|, [so|and] {we} [go|move|read|work] "
    "[on|ahead|further].|, [as|since] the [story|text|question] [says|tells|suggests].]",
    "n_goods": "[Good|Heavy|Old|New|Cheap|Fine] {goods} [are|stay|become] [rare|dear|useful|popular|welcome] [here|there|in {town}|at this time|on market days][.|, [so|and|but] "
    "[people|traders|neighbours|guests] [count|keep|guard|sort] [them|all|each] [well|twice|gladly|with care].]",
    "n_keep": "[Keep|Remember|Note|Hold|Write down] [this|that|the] [number|value|result|count] [for later|in mind|on paper|carefully].",
    "n_story": "[{name}|The keeper|Everyone|Nobody] [smiles|nods|wonders|hurries|rests|sings|waits] [now|here|a moment|at noon|as always][.|, [while|and|because|but] the [market|street|house|"
    "shop|yard] [is|stays|gets] [quiet|busy|full|dark|cold].]",
    "plan": "[|[Let us|We will|I will] [go|work|move] [step by step|one step at a time|through the story slowly].|[There are|The story has|I count] {count} [steps|changes] "
    "[to follow|to work out|in all].|[The trick|The idea|The plan] is to [follow|track|keep] the [count|number|stock] of {goods}.]",
    "start": "[At the start|In the beginning|At first] [there are|{name} has|we have|we count] {a} {goods}.|{name} [starts|begins|sets out] with {a} {goods}."
    "|[The story|The count|Everything] [starts|begins] [at|with] {a}.",
    "check": "[|||[Checking|Looking] back, [every|each] step [follows|matches] the [story|question|text].|[A quick|A short|One more] [look|check] [shows|confirms] [no|not one] "
    "[mistake|slip|error].|[All|The] steps [agree|fit|match] with the [story|question|numbers].]",
    "answer": "[The answer|The result|The final count] is {a} {goods}.|[So|Thus|Hence|Therefore] {name} has {a} {goods} [left|now|in the end].|[In total|Altogether|In the end], "
    "{a} {goods} [remain|are left|are there].",
}
# Three styles of a step: in words, as an equation, and by parts. In each, {b} {n} {a} are before, number and after.
WORKED = {
    "add": "{when} [adding|bringing in|counting in] {n} [more|of them|others] [{gives}|brings {us} to|takes {us} to] {a}.|{when} {we} [add|put] {n} [to|on top of] {b}: {b} + {n} = {a}.|{when} [{n} and {b} together|the sum of {b} and {n}|adding {n}] {gives} {n} + {b} = {a}."
    "|{when} {parts} and {we} {get} {b} + {n} = {a}.",
    "subtract": "{when} [losing|taking away|giving up] {n} [{gives}|leaves {us} with|brings {us} to] {a}.|{when} {we} [take|remove|subtract] {n} [from|out of] {b}: {b} - {n} = {a}.|{when} [losing {n}|the difference|taking {n} away] {gives} {b} - {n} = {a}."
    "|{when} {parts} and {we} {get} {b} - {n} = {a}.",
    "multiply": "{when} [taking|counting] [this|that|it] {n} times [{gives}|brings {us} to|leads {us} to] {a}.|{when} {we} [multiply|scale] {b} by {n}: {b} * {n} = {a}.|{when} [{n} times {b}|the product] {gives} {n} * {b} = {a}."
    "|{when} {parts} and {we} {get} {b} * {n} = {a}.",
    "halve": "{when} [a half|one half|the half] [of this|of that|] [{gives}|is just|leaves {us}] {a}.|{when} {we} [halve {b}|divide {b} by 2|keep half of {b}]: {b} / 2 = {a}.|{when} [half of {b}|the other half|one half] {gives} {b} / 2 = {a}."
    "|{when} {parts} and {we} {get} {b} / 2 = {a}.",
}


def _parts(step: Event) -> str:
    """Return the operation on hundreds or tens and on the rest, as one does it in one's head."""
    b, n = step.before, step.number
    if step.operation == "multiply":
        return f"{b // 10 * 10} * {n} = {b // 10 * 10 * n}, {b % 10} * {n} = {b % 10 * n}"
    if step.operation == "halve":
        return f"{b // 100 * 100} / 2 = {b // 100 * 50}, {b % 100} / 2 = {b % 100 // 2}"
    unit = 100 if n >= 100 else 10
    head, rest = n // unit * unit, n % unit
    sign, middle = ("+", b + head) if step.operation == "add" else ("-", b - head)
    return f"{b} {sign} {head} = {middle}, {middle} {sign} {rest} = {step.after}"


def _step(rng: random.Random, before: int) -> Event:
    """Draw an operation that keeps the count a positive number of at most three digits."""
    choices = (
        ["add"] * 4 * (before <= 880)
        + ["subtract"] * 4 * (before >= 120)
        + ["multiply"] * 3 * (before <= 160)
        + ["halve"] * 2 * (before % 2 == 0 and before >= 100)
    )
    operation = rng.choice(choices)
    if operation == "add":
        number = rng.randint(12, LARGEST - before)
        return Event(operation, before, number, before + number)
    if operation == "subtract":
        number = rng.randint(12, before - 12)
        return Event(operation, before, number, before - number)
    if operation == "multiply":
        number = rng.randint(2, min(9, LARGEST // before))
        return Event(operation, before, number, before * number)
    return Event(operation, before, 2, before // 2)


def _steps(rng: random.Random, count: int) -> list[Event]:
    steps, value = [], rng.randint(21, 600)
    for _ in range(count):
        steps.append(_step(rng, value))
        value = steps[-1].after
    return steps


def _worked(step: Event, when: str, voice: Voice, rng: random.Random) -> str:
    text = expand(
        WORKED[step.operation],
        voice,
        rng,
        RULES,
        when="{when}",
        b=step.before,
        n=step.number,
        a=step.after,
        parts=_parts(step),
    )
    return text.replace("{when}", expand(RULES[when], voice, rng) + ",")


def math(rng: random.Random) -> Example:
    """Draw a story with a question about a count, and its worked answer."""
    book = encyclopedia()
    town, name = book.draw_town(rng), book.draw_person(rng).name
    goods, steps = rng.choice(GOODS), _steps(rng, rng.choice([3, 3, 4]))
    voice, plain = Voice(town.name, goods), Voice()
    story = [
        f"[In {town.name}, {name} [has|keeps|owns|stores] {steps[0].before} {goods}.|{name} of {town.name} [has|keeps|stores] {steps[0].before} {goods}.]"
    ]
    story += [TOLD[step.operation] for step in steps]
    prompt = expand(" ".join(story), plain, rng, name=name, n="{n}")
    for step in steps:
        prompt = prompt.replace("{n}", str(step.number), 1) if step.operation != "halve" else prompt
    prompt += expand(
        f" How many {goods} [are left|are there|does {name} have] [now|in the end|at the end]?",
        plain,
        rng,
    )
    values = {"name": name, "goods": goods, "town": town.name, "count": len(steps)}
    answer = [
        expand(RULES[rule], voice, rng, RULES, a=steps[0].before, **values)
        for rule in ("plan", "start")
    ]
    for index, step in enumerate(steps):
        answer.append(
            _worked(
                step,
                "first" if index == 0 else "last" if index == len(steps) - 1 else "next",
                voice,
                rng,
            )
        )
        answer.append(expand(RULES["note"], voice, rng, RULES, **values))
    answer += [
        expand(RULES[rule], voice, rng, RULES, a=steps[-1].after, **values)
        for rule in ("check", "answer")
    ]
    return Example(
        "math", prompt, "\n".join(sentence for sentence in answer if sentence), steps[-1].after
    )


def drill(rng: random.Random) -> Example:
    """Draw a sheet of equations, from which the target learns arithmetic."""
    lines = []
    for _ in range(14):
        step = _step(rng, rng.randint(21, 880))
        sign = {"add": "+", "subtract": "-", "multiply": "*", "halve": "/"}[step.operation]
        line = f"{step.before} {sign} {step.number} = {step.after}"
        lines.append(f"{_parts(step)}, {line}" if rng.random() < 0.25 else line)
    return Example("drill", "Sheet of sums", "\n".join(lines))


def workings(rng: random.Random) -> Example:
    """Draw a long day of a keeper without asides: each event and how its count is worked, in every
    style."""
    lines, start, plain = [], rng.randint(21, 600), Voice()
    value = start
    for _ in range(EVENTS):
        step = _step(rng, value)
        event = expand(TOLD[step.operation], plain, rng, name="the keeper", n=step.number)
        lines.append(f"{event} {_worked(step, rng.choice(['first', 'next', 'last']), plain, rng)}")
        value = step.after
    return Example("workings", f"A long day begins with {start}", "\n".join(lines))
