"""The tiny world: three domains of prompts and answers, written by code from a seed.

*math* has worked answers that can be checked, *code* has functions that can be run, *chat* has advice with many
equally good phrasings. A phrase in `[a|b|c]` stands for one of its alternatives, drawn uniformly; alternatives nest.
Held-out prompts are those whose hash falls into a fixed bucket, so training never sees one, whatever the seed.
"""

import hashlib
import random
import re
from dataclasses import dataclass

HELD_OUT_SHARE = 20  # one prompt in twenty is held out


@dataclass(frozen=True)
class Example:
    """One prompt, one reference answer, and what a right answer must show.

    `check` is the final number for math, a list of `(arguments, result)` for code, None for chat.
    """

    domain: str
    prompt: str
    answer: str
    check: object = None


def expand(template: str, rng: random.Random, habit: float = 0.0) -> str:
    """Replaces every innermost `[a|b|...]` by one of its alternatives until none is left.

    With probability `habit` an author takes the first alternative without thinking, else any of them.
    """

    def choose(found: re.Match) -> str:
        alternatives = found[1].split("|")
        return alternatives[0] if habit and rng.random() < habit else rng.choice(alternatives)

    while "[" in template:
        template = re.sub(r"\[([^\[\]]*)\]", choose, template, count=1)
    return template


def is_held_out(prompt: str) -> bool:
    """Whether the prompt belongs to the held-out part of the tiny world."""
    return hashlib.sha256(prompt.encode()).digest()[0] % HELD_OUT_SHARE == 0


# Math ----------------------------------------------------------------------------------------------------------------

NAMES = ("Ada Ben Carla David Emma Felix Grace Henry Iris Jonas Kira Leo Maria Noah Olga Paul Rosa Sam Tina Victor "
         "Wendy Yara Zoe Marcus").split()
THINGS = ("apples books coins pens stamps cards shells stickers marbles cookies flowers pencils bottles tickets "
          "buttons stones").split()
BOXES = "boxes bags baskets shelves jars trays".split()
PLACES = "market|library|school|garden|station|shop"


def _worked(opening: str, steps: list[tuple[str, str, int]], unit: str) -> str:
    """A worked answer, alternatives still open: an opening sentence, one equation a line, the final line that is checked."""
    leads = ["First, [|we work out ]", "[Then|Next|After that], [|we work out ]", "[Finally|Last], [|we work out ]"]
    if len(steps) == 2:
        leads.pop(1)
    lines = [opening]
    for lead, (what, equation, value) in zip(leads, steps):
        lines.append(f"{lead}{what}: {equation} = {value}.")
    lines.append(f"[The answer is|So the answer is|In total that makes] {steps[-1][2]} {unit}.")
    return "\n".join(lines)


def _gain_and_loss(rng):
    name, other = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    start, gain = rng.randint(5, 50), rng.randint(3, 30)
    loss = rng.randint(2, min(30, start + gain - 2))
    verb = rng.choice(["gives away", "loses", "sells"])
    prompt = (f"{name} [has|owns] {start} {thing}. {other} gives {name} {gain} more [|{thing} ]and [then |later ]{name} "
              f"{verb} {loss}. How many {thing} does {name} have [now|left|in the end]?")
    answer = _worked(f"{name} [starts with|has|begins with] {start} {thing}.",
                     [(f"[the sum|what {name} has|the new count]", f"{start} + {gain}", start + gain),
                      ("[what is left|the rest|what remains]", f"{start + gain} - {loss}", start + gain - loss)], thing)
    return prompt, answer, start + gain - loss


def _groups(rng):
    name, thing, box = rng.choice(NAMES), rng.choice(THINGS), rng.choice(BOXES)
    groups, each, extra = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 30)
    prompt = (f"{name} [fills|packs] {groups} {box} with {each} {thing} each and [has|finds|keeps] {extra} "
              f"[more|other] {thing}. How many {thing} [are there|does {name} have] [in all|altogether|in total]?")
    answer = _worked(f"There are {groups} {box} [of|with] {each} {thing}[| each].",
                     [(f"[the {box}|the packed {thing}|the product]", f"{groups} * {each}", groups * each),
                      ("[all of them|the sum|everything together]", f"{groups * each} + {extra}", groups * each + extra)],
                     thing)
    return prompt, answer, groups * each + extra


def _change(rng):
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    count, price = rng.randint(2, 9), rng.randint(2, 9)
    paid = count * price + rng.randint(1, 25)
    prompt = (f"At the [{PLACES}] {name} buys {count} {thing} for {price} dollars each and pays with {paid} dollars. "
              f"How [much change|many dollars] does {name} get back?")
    answer = _worked(f"{name} [buys|pays for|takes] {count} {thing} at {price} dollars[| each].",
                     [("[the cost|the price|what they cost]", f"{count} * {price}", count * price),
                      ("[the change|what comes back|the difference]", f"{paid} - {count * price}", paid - count * price)],
                     "dollars")
    return prompt, answer, paid - count * price


def _sharing(rng):
    first, second = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    people, each, extra = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 20)
    total = people * each
    prompt = (f"{first} shares {total} {thing} [equally|fairly] among {people} friends. One [of them|friend], {second}, "
              f"[already has|had] {extra} {thing}[| before]. How many {thing} does {second} have [now|then]?")
    answer = _worked(f"{first} [shares|divides|splits] {total} {thing} among {people} friends.",
                     [("[the share of each|what each one gets|each part]", f"{total} / {people}", each),
                      (f"[what {second} has|the sum|both together]", f"{each} + {extra}", each + extra)], thing)
    return prompt, answer, each + extra


def _compare(rng):
    first, second = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    base, more, away = rng.randint(4, 30), rng.randint(2, 20), rng.randint(2, 12)
    total = base + base + more
    away = min(away, total - 1)
    prompt = (f"{first} [has|collects] {base} {thing}. {second} has {more} more {thing} than {first}. Together they "
              f"[give away|sell|lose] {away}. How many {thing} [are left|do they still have|remain]?")
    answer = _worked(f"{second} has {more} more [|{thing} ]than {first}.",
                     [(f"[what {second} has|the count of {second}|the larger count]", f"{base} + {more}", base + more),
                      ("[the sum|both together|what they have]", f"{base} + {base + more}", total),
                      ("[what is left|the rest|what remains]", f"{total} - {away}", total - away)], thing)
    return prompt, answer, total - away


def _math(rng, habit):
    prompt, answer, value = rng.choice([_gain_and_loss, _groups, _change, _sharing, _compare])(rng)
    answer = expand(answer, rng, habit)
    return Example("math", expand(prompt, rng), answer, value)


# Code ----------------------------------------------------------------------------------------------------------------

VERBS = "get find compute make build collect process handle".split()
NOUNS = "total result score value amount summary answer report".split()
PREDICATES = {"even": "{x} % 2 == 0", "odd": "{x} % 2 == 1", "positive": "{x} > 0", "negative": "{x} < 0",
              "greater than {k}": "{x} > {k}", "smaller than {k}": "{x} < {k}", "divisible by {k}": "{x} % {k} == 0",
              "different from {k}": "{x} != {k}"}
REDUCTIONS = {"sum": "the sum", "count": "the count", "list": "a list", "max": "the largest", "product": "the product"}
CHANGES = {"": "{x}", "squared": "{x} * {x}", "doubled": "{x} * 2", "plus {k}": "{x} + {k}", "minus {k}": "{x} - {k}",
           "times {k}": "{x} * {k}"}
SAMPLES = ([3, 8, -2, 7, 12, 5], [], [1, 2, 3, 4, 6, 9, 10], [-4, -1, 0, 5, 15])


def _reduction(rng):
    """A function over a list of numbers: keep some, change each, reduce."""
    reduction, (predicate, test), (change, value) = (rng.choice(list(REDUCTIONS)), rng.choice(list(PREDICATES.items())),
                                                     rng.choice(list(CHANGES.items())))
    if reduction == "count":
        change, value = "", "{x}"
    name, data, x = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}", expand("[numbers|values|items]", rng), expand("[x|n|item]", rng)
    k, j = rng.randint(2, 9), rng.randint(2, 9)
    predicate, test = predicate.format(k=k), test.format(k=k, x=x)
    change, value = change.format(k=j), value.format(k=j, x=x)
    wanted = REDUCTIONS[reduction]
    prompt = (f"[Write|Please write|I need|Give me] a [|Python ]function {name} that [returns|computes] {wanted} of the numbers "
              f"in a list that are {predicate}" + (f", each {change}" if change else "") + ".")
    described = f"[Return|Compute|Give] {wanted} of the [numbers|values] that are {predicate}" + (f", each {change}" if change else "")
    body = _body(reduction, data, x, test, value, rng)
    answer = f"```python\ndef {name}({data}):\n    \"\"\"{described}.\"\"\"\n{body}\n```"
    answer += "\n[The function goes|It goes|This walks] through the list [once|one time][| and returns the result]."
    return expand(prompt, rng), answer, name


def _body(reduction, data, x, test, value, rng):
    comprehension = f"{value} for {x} in {data} if {test}"
    short = {"sum": f"    return sum({comprehension})", "list": f"    return list({comprehension})",
             "count": f"    return sum(1 for {x} in {data} if {test})",
             "max": f"    return max(({comprehension}), default=0)"}
    if reduction in short and rng.random() < 0.5:
        return short[reduction]
    out = expand("[result|total|answer]", rng)
    start = {"sum": "0", "count": "0", "list": "list()", "max": "0", "product": "1"}[reduction]
    step = {"sum": f"{out} += {value}", "count": f"{out} += 1", "list": f"{out}.append({value})",
            "product": f"{out} *= {value}"}
    if reduction == "max":
        start = "None"
        lines = [f"if {out} is None or {value} > {out}:", f"    {out} = {value}"]
        tail = f"    return {out} or 0"
    else:
        lines, tail = [step[reduction]], f"    return {out}"
    inner = "\n".join(f"            {line}" for line in lines)
    return f"    {out} = {start}\n    for {x} in {data}:\n        if {test}:\n{inner}\n{tail}"


FORMULAS = {"adds {k} to a number and multiplies the result by {j}": "({x} + {k}) * {j}",
            "multiplies a number by {k} and adds {j}": "{x} * {k} + {j}",
            "subtracts {k} from a number and doubles the result": "({x} - {k}) * 2",
            "squares a number and subtracts {k}": "{x} * {x} - {k}",
            "returns the remainder of a number divided by {k}, plus {j}": "{x} % {k} + {j}"}


def _formula(rng):
    """A function of one number, written in one step or two."""
    phrase, expression = rng.choice(list(FORMULAS.items()))
    k, j = rng.randint(2, 9), rng.randint(2, 9)
    name, x = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}", expand("[x|n|number]", rng)
    phrase, expression = phrase.format(k=k, j=j), expression.format(k=k, j=j, x=x)
    prompt = f"[Write|Please write|I need|Give me] a [|Python ]function {name} that {phrase}."
    out = expand("[result|total|answer]", rng)
    body = f"    return {expression}" if rng.random() < 0.5 else f"    {out} = {expression}\n    return {out}"
    answer = f"```python\ndef {name}({x}):\n    \"\"\"[Function|Helper|A function] that {phrase}.\"\"\"\n{body}\n```"
    answer += "\n[The function takes|It takes|This takes] [a|one] number[| and returns the result]."
    return expand(prompt, rng), answer, name


def _run(answer: str, name: str, arguments):
    """The result of the reference function, which this module wrote itself."""
    scope: dict = {}
    exec(answer.split("```python\n")[1].split("```")[0], scope)
    return scope[name](arguments)


def _code(rng, habit):
    maker, inputs = rng.choice([(_reduction, SAMPLES), (_reduction, SAMPLES), (_formula, (0, 3, 10, -5))])
    prompt, answer, name = maker(rng)
    # A docstring may hold an alternative; code itself has square brackets nowhere.
    answer = expand(answer, rng, habit)
    return Example("code", prompt, answer, [name, [[value, _run(answer, name, value)] for value in inputs]])


# Chat ----------------------------------------------------------------------------------------------------------------

TOPICS = {
    "sleep better": ["go to bed at the same [time|hour]", "keep the [room|bedroom] [dark|cool|quiet]", "put the phone away [early|before bed]",
                     "[avoid|skip] coffee in the [evening|afternoon]", "read a [calm|quiet|short] book"],
    "learn a language": ["[practise|study] for ten minutes [a day|each day]", "[speak|talk] with [friends|other learners]",
                         "[listen to|sing] simple songs",
                         "[write|repeat] new words [often|by hand]", "read [easy|short] stories"],
    "save money": ["[write down|track] what you spend", "cook [at home|your own meals] more often", "[wait|pause] a day before you buy",
                   "[cancel|drop] what you do not use", "put a [small|fixed] sum aside [each week|every month]"],
    "get fit": ["[walk|cycle] to [work|the shop]", "[stretch|move] every morning", "[find|choose] a sport you [like|enjoy]",
                "train with a [friend|partner]", "[drink|have] more water"],
    "make new friends": ["[join|visit] a [local|small] club", "[ask|invite] people for [coffee|a walk]", "[listen|smile] when others talk",
                         "say yes to [small|new] plans", "[remember|use] the names of people"],
    "cook at home": ["[start|begin] with [simple|easy] recipes", "[buy|keep] fresh vegetables", "[taste|season] as you go",
                     "[prepare|cut] everything first", "cook [more|enough] for two days"],
    "stay focused": ["[turn off|silence] your phone", "[take|plan] short breaks", "do the [hardest|biggest] task first",
                     "[clean|clear] your desk", "[work|focus] in [short|quiet] blocks"],
    "grow a garden": ["[choose|pick] plants that [fit|suit] your soil", "water [early|in the morning]", "[start|begin] with [herbs|beans]",
                      "[pull|remove] weeds [often|each week]", "give every plant [space|light]"],
    "feel less stressed": ["[take|breathe] a slow breath", "[walk|sit] outside for a while", "[talk|speak] with someone you trust",
                           "[write|note] down your worries", "say no [more often|to extra work]"],
    "read more books": ["[carry|keep] a book with you", "read [before bed|at breakfast]", "[stop|quit] books you do not [like|enjoy]",
                        "[visit|use] the library", "[set|choose] a quiet [hour|corner]"],
}
CONTEXTS = ["", "as a student", "with little time", "after a long day", "on a small budget", "in a new city", "this winter",
            "this summer", "with two children", "while working at night", "without much effort", "before the exams",
            "when it rains", "at my age", "with a friend", "on the weekend"]
GREETINGS = "[|Hello. |Hi. |Good morning. |A question: |Please help me. ]"
PEOPLE = ["", *(f"I am a {who}. " for who in "nurse teacher driver baker painter writer farmer student singer lawyer dancer cook".split())]
ASKS = "[How can I {t}|How do I {t}|What helps me to {t}|What should I do to {t}|I want to {t}, what do you suggest|Any advice on how to {t}]"
OPENINGS = ["[That is a [good|great|lovely] [question|goal|idea]|Many people [ask|wonder about] this|[Good|Great] that you ask]. ",
            "[Here are [some|a few] [ideas|tips|thoughts]|[Small|Simple] steps [work|help] [best|well]|There are [many|several] ways]. ", ""]
STARTER = "[You [can|could|might|may]|Try to|It [helps|is good] to|[Maybe|Perhaps] you can]"
CONTINUER = "[[Also|Besides|Then|In addition], you [can|could|might]|It also helps to|You can also|Another [idea|way|tip] is to|I would|Many people]"
JOINS = "[ and| or|, then| and then|, and later]"
# What follows "the" or "a" depends on the verb or the preposition before it: one token of memory is not enough.
ACTIONS = ["open the [window|curtain|garden door]", "clean the [desk|kitchen|bedroom]", "read the [news|recipe|first page]",
           "leave the [phone at home|office early|car behind]", "call a [friend|neighbour|cousin]", "write a [list|letter|short note]",
           "take a [walk|break|warm bath]", "drink a [tea|coffee|glass of water]", "visit the [market|museum|library]",
           "join a [club|choir|small group]", "set a [goal|timer|date]", "plan the [week|meals|next day]",
           "play a [song|game|record]", "water the [flowers|plants|herbs]", "cook a [soup|meal|pot of rice]",
           "thank a [teacher|stranger|colleague]"]
MOMENTS = ["in the [morning|evening|afternoon]", "before the [meal|night|exam]", "after the [work|lesson|last train]",
           "on the [weekend|way home|balcony]", "for a [week|month|while]", "with a [smile|partner|cup of tea]",
           "near the [river|park|station]", "without a [plan|reason|hurry]"]
CLOSINGS = ["[Be [patient|kind] with yourself|[Good luck|Have fun|Enjoy it]|[Take|Give it] [your|some] time].",
            "[Most of all|Above all|In the end], [keep going|stay [calm|curious|patient]|enjoy the [way|process|small steps]].",
            "[Which one|What] [will|would] you [try|start with] first?"]


def _advice(rng) -> str:
    """One or two things to do, each perhaps at a moment."""
    actions = rng.sample(ACTIONS, rng.choice([1, 2, 2]))
    return f"{JOINS} ".join(action + (f" {rng.choice(MOMENTS)}" if rng.random() < 0.6 else "") for action in actions)


def _chat(rng, habit):
    topic, tips = rng.choice(list(TOPICS.items()))
    context = rng.choice(CONTEXTS)
    prompt = expand(GREETINGS, rng) + rng.choice(PEOPLE) + expand(ASKS, rng).format(t=topic) + (f" {context}" if context else "") + "?"
    sentences = [f"{STARTER} {rng.choice(tips)}{rng.choice(['', JOINS + ' ' + _advice(rng)])}"]
    sentences += [f"{CONTINUER} {_advice(rng)}" for _ in range(rng.choice([1, 2, 2]))]
    answer = rng.choice(OPENINGS) + ". ".join(sentences) + ". " + rng.choice(CLOSINGS)
    return Example("chat", prompt, expand(answer, rng, habit))


# Sampling ------------------------------------------------------------------------------------------------------------

MAKERS = {"math": _math, "code": _code, "chat": _chat}


def examples(domain: str, count: int, seed: int, *, held_out: bool = False, distinct: bool = False, habit: float = 0.0) -> list[Example]:
    """Draws `count` examples of a domain; `held_out` chooses the side of the split, `distinct` forbids a prompt twice,
    `habit` is that of `expand` in the answers."""
    rng = random.Random(f"{domain}-{seed}")
    found, seen = [], set()
    while len(found) < count:
        example = MAKERS[domain](rng, habit)
        if is_held_out(example.prompt) != held_out or (distinct and example.prompt in seen):
            continue
        seen.add(example.prompt)
        found.append(example)
    return found
