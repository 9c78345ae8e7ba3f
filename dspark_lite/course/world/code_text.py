"""Code: a small function, and what it does with an example, traced line by line.

A function keeps some numbers of a list, changes each and reduces them. Names, comments and turns of phrase depend on
the project that the function is for. Every trace is what the function really does, and functions are run to be checked.
"""

import random
from dataclasses import dataclass

from .example import Example
from .wording import Voice, expand

PROJECTS = (
    "amber",
    "basalt",
    "cobalt",
    "dahlia",
    "ember",
    "fjord",
    "garnet",
    "heron",
    "indigo",
    "juniper",
    "kestrel",
    "lichen",
    "maple",
    "nectar",
    "opal",
    "pebble",
    "quartz",
    "raven",
    "saffron",
    "thistle",
    "umber",
    "violet",
    "willow",
    "zephyr",
)
VERBS = "get|find|compute|make|build|collect|gather|measure"
NOUNS = "total|result|score|value|amount|summary|answer|report"
# Each test, change and reduction: how it is asked for, its code, and what it does to a number.
TESTS = {
    "even": ("{x} % 2 == 0", lambda x, k: x % 2 == 0),
    "odd": ("{x} % 2 == 1", lambda x, k: x % 2 == 1),
    "greater than {k}": ("{x} > {k}", lambda x, k: x > k),
    "smaller than {k}": ("{x} < {k}", lambda x, k: x < k),
    "different from {k}": ("{x} != {k}", lambda x, k: x != k),
}
CHANGES = {
    "": ("{x}", lambda x, k: x),
    "doubled": ("{x} * 2", lambda x, k: x * 2),
    "plus {k}": ("{x} + {k}", lambda x, k: x + k),
    "minus {k}": ("{x} - {k}", lambda x, k: x - k),
    "times {k}": ("{x} * {k}", lambda x, k: x * k),
}
REDUCTIONS = {
    "sum": "the sum",
    "count": "the count",
    "largest": "the largest",
    "last": "the last",
    "smallest": "the smallest",
}
RULES = {
    "intro": "[Here is|This is|Below is|You will find] [the|a|one] [short|small|simple|clear|plain] [function|solution|version|helper][.|:| for {project}.| you [can|may] "
    "[use|copy|change].]",
    "explain": "[{e_plan}|{e_plan}|{e_data}|{e_data}|{e_style}|{e_style}|{e_use}|{e_use}]",
    "e_plan": "[The|One] [idea|plan|trick|point] is to [read|scan|visit|check] [each|every] [number|item|value|entry] [once|in turn|in order] and [to |][keep|store|carry|hold] [a "
    "running|the current|one small|the only] [result|value|total|state].",
    "e_data": "[Bad|Empty|Short|Long|Odd] [lists|inputs|values|records] [are|stay|remain] [rare|common|harmless|welcome|possible] [in|for|with] {project}, [so|and|but] [we|you|it] "
    "[need|want|use|have] [no|few|some|more] [tests|checks|guards|notes] [here|there|yet|now].",
    "e_style": "[I|We|Most teams|Some people] [like|prefer|avoid|choose] [short|plain|long|clear|old] [names|loops|lines|helpers] [here|in {project}|as always|by habit][.|, [since|because|and] "
    "[they|these|such things] [read|age|travel|work] [well|badly|slowly|nicely].]",
    "e_use": "[In|For|With] {project}, [such|these|small|most] [helpers|functions|tools|scripts] [run|live|wait|start] [at night|on a server|in tests|by hand|each hour][.|, [and|so|but] "
    "[nobody|everyone|the team|a reader] [minds|sees|likes|checks] [the cost|the result|the speed|them].]",
    "doc": "[Return|Give|Compute|Work out] {reduction} of the {test} [numbers|values|items|entries]{changed}.",
    "loop_note": "[  # [go|walk|run|step] [through|over] [every|each|all] [one|item|entry|number]|  # [look|check|visit] [at every|each|all] [number|one|value]]",
    "test_note": "[  # [keep|take|use|want] [only|just] the {test} [ones|values|numbers|items]|  # [skip|drop|ignore|leave] [the|all] [others|rest|other values]]",
    "step_note": "[  # [update|change|adjust|move] the [result|state|running value]|  # [remember|store|keep|note] [it|this one|what we have]]",
    "trace": "[Let us|We can|I will|Now we] [trace|follow|run|try|test] it [with|on] {data}.|[With|On|For] {data} [it|the function|the loop] [does|works|goes|runs] [as follows|like "
    "this|step by step].|[To see|To check] [it|how it works], [take|use|try|pass] {data}.",
    "keep": "[{v} is {test}|{v} [passes|counts|qualifies|fits]|[keep|take|use] {v}]",
    "skip": "[{v} is not {test}|{v} [fails|drops out|is skipped]|[skip|drop|ignore] {v}], [{out} [stays|remains|is still] {state}|[no|without] change|nothing happens|so [go|move] on].",
    "becomes": "[becomes|is now|changes to|grows to|turns into]",
    "tail": "[|[It|The function|This helper] [runs|walks|goes] through the [list|data|input] [once|one time], [so|and] it is [quick|fast|cheap|light].|[An|Any] empty [list|input] "
    "[gives|returns|yields] {empty}.|[You|We] [can|may|might|could] [rename|reuse|extend|simplify] it [later|freely|as needed|for {project}].|[Tell|Ask] me [if|when] [you need|you "
    "want|there is] [more|a change|another version].]",
}
NUMBERS = (2, 60)  # of the examples that are traced


@dataclass(frozen=True)
class Task:
    """What a function does, with the names it uses."""

    reduction: str
    test: str
    change: str
    k: int
    j: int
    name: str
    data: str
    item: str
    out: str

    def keeps(self, value: int) -> bool:
        """Return whether the function takes a number into account."""
        return TESTS[self.test][1](value, self.k)

    def changed(self, value: int) -> int:
        """Return what the function makes of the number."""
        return CHANGES[self.change][1](value, self.j)

    def update(self, state: int, value: int) -> int:
        """Return the running result after a number that is kept."""
        value = self.changed(value)
        return {
            "sum": state + value,
            "count": state + 1,
            "largest": max(state, value),
            "last": value,
            "smallest": value if state == 0 else min(state, value),
        }[self.reduction]


def _task(rng: random.Random, voice: Voice) -> Task:
    reduction, change = rng.choice(list(REDUCTIONS)), rng.choice(list(CHANGES))
    if reduction == "count":
        change = ""
    return Task(
        reduction,
        rng.choice(list(TESTS)),
        change,
        rng.randint(5, 50),
        rng.randint(2, 9),
        f"{rng.choice(VERBS.split('|'))}_{rng.choice(NOUNS.split('|'))}",
        expand("[numbers|values|items|data|entries]", voice, rng),
        expand("[x|n|item|number|entry|value]", voice, rng),
        expand("[result|total|answer|state|best|out]", voice, rng),
    )


def source(task: Task, voice: Voice, rng: random.Random) -> str:
    """Return the function, with a docstring and perhaps comments."""
    x, out = task.item, task.out
    test = TESTS[task.test][0].format(x=x, k=task.k)
    value = CHANGES[task.change][0].format(x=x, j=task.j, k=task.j)
    update = {
        "sum": f"{out} = {out} + {value}",
        "count": f"{out} = {out} + 1",
        "largest": f"{out} = max({out}, {value})",
        "last": f"{out} = {value}",
        "smallest": f"{out} = {value} if {out} == 0 else min({out}, {value})",
    }[task.reduction]
    words = {
        "reduction": REDUCTIONS[task.reduction],
        "test": task.test.format(k=task.k),
        "changed": f", {task.change.format(k=task.j)}" if task.change else "",
    }
    notes = {
        rule: expand(RULES[rule], voice, rng, **words)
        for rule in ("doc", "loop_note", "test_note", "step_note")
    }
    return (
        f'def {task.name}({task.data}):\n    """{notes["doc"]}"""\n    {out} = 0\n    for {x} in {task.data}:{notes["loop_note"]}\n'
        f"        if {test}:{notes['test_note']}\n            {update}{notes['step_note']}\n    return {out}"
    )


def trace(task: Task, numbers: list[int], voice: Voice, rng: random.Random) -> list[str]:
    """Return sentences that follow the function through its loop, and the result."""
    state, lines = 0, [expand(RULES["trace"], voice, rng, data=numbers)]
    for value in numbers:
        words = {"v": value, "test": task.test.format(k=task.k), "out": task.out}
        if task.keeps(value):
            state = task.update(state, value)
            changed = (
                f", {CHANGES[task.change][0].format(x=value, k=task.j)} = {task.changed(value)}"
                if task.change
                else ""
            )
            lines.append(
                expand(RULES["keep"], voice, rng, **words)
                + changed
                + expand(f", [{task.out}|it] {{becomes}} {state}.", voice, rng, RULES)
            )
        else:
            lines.append(expand(RULES["skip"], voice, rng, state=state, **words))
    return [
        *lines,
        expand(f"[The result is|It returns|So we get|In the end it gives] {state}.", voice, rng),
    ]


def _request(rng: random.Random) -> tuple[Task, list[int], str, str]:
    """Draw a task, the numbers it is tried on, the project it is for, and the words that ask for
    it."""
    project = rng.choice(PROJECTS)
    task = _task(rng, Voice(project))
    numbers = [rng.randint(*NUMBERS) for _ in range(rng.choice([2, 3, 3, 4]))]
    words = {
        "reduction": REDUCTIONS[task.reduction],
        "test": task.test.format(k=task.k),
        "changed": f", each {task.change.format(k=task.j)}" if task.change else "",
    }
    prompt = expand(
        f"[Write|Please write|I need|Give me] a [|Python ]function {task.name} for {project} that [returns|computes|gives] {{reduction}} of the {{test}} numbers in a "
        f"list{{changed}}[, and trace it on| and show what it does with|. Follow it through] {{numbers}}.",
        Voice(),
        rng,
        numbers=numbers,
        **words,
    )
    return task, numbers, project, prompt


def code(rng: random.Random) -> Example:
    """Draw a request for a function with a traced example, and the answer."""
    task, numbers, project, prompt = _request(rng)
    voice, values = Voice(project), {"project": project, "empty": 0}
    explained = " ".join(
        expand(RULES["explain"], voice, rng, RULES, **values) for _ in range(rng.choice([2, 3, 3]))
    )
    answer = (
        expand(RULES["intro"], voice, rng, **values)
        + f" {explained}\n```python\n{source(task, voice, rng)}\n```\n"
        + "\n".join(trace(task, numbers, voice, rng))
    )
    tail = expand(RULES["tail"], voice, rng, **values)
    samples = [numbers, [], [rng.randint(*NUMBERS) for _ in range(6)], [4, 7, 11, 30, 51]]
    cases = [[sample, _result(task, sample)] for sample in samples]
    return Example(
        "code",
        prompt,
        answer + (f"\n{tail}" if tail else ""),
        [task.name, cases, _result(task, numbers)],
    )


def snippet(rng: random.Random) -> Example:
    """Draw a request with nothing but the function and its trace as the answer."""
    task, numbers, project, prompt = _request(rng)
    voice = Voice(project)
    lines = [f"```python\n{source(task, voice, rng)}\n```", *trace(task, numbers, voice, rng)]
    return Example("snippet", f"Only code and trace. {prompt}", "\n".join(lines))


def _result(task: Task, numbers: list[int]) -> int:
    state = 0
    for value in numbers:
        if task.keeps(value):
            state = task.update(state, value)
    return state
