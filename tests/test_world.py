"""The tiny world's text: what it states is true, the same in every process, and held out by prompt."""

import random
import re

import pytest
from hypothesis import given, strategies as st

from dspark_lite.course.measure.lab import held_out_prompts
from dspark_lite.course.names import DOMAINS
from dspark_lite.course.world import chat_text, math_text
from dspark_lite.course.world.example import Example, is_held_out, is_right
from dspark_lite.course.world.examples import MAKERS, examples
from dspark_lite.course.world.facts import encyclopedia
from dspark_lite.course.world.wording import Voice, expand, fashion, parse

EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def drawn(domain, count=150):
    """Some examples of a domain."""
    return examples(domain, count, seed=5)


@pytest.mark.parametrize("domain", MAKERS)
def test_examples_are_the_same_for_a_seed_and_others_for_another(domain):
    assert examples(domain, 12, 5) == examples(domain, 30, 5)[:12] != examples(domain, 12, 6)


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_held_out_prompt_is_ever_trained_on(domain):
    drawn_apart = [example.prompt for example in examples(domain, 40, 2026, held_out=True)]
    apart = set(drawn_apart)
    # read from the file that tools/measure/held_out.py writes
    assert drawn_apart == held_out_prompts(domain, 40)
    assert len(apart) == 40 and apart.isdisjoint(example.prompt for example in drawn(domain, 1500))


@pytest.mark.slow(reason="draws a hundred held-out prompts a domain")
@pytest.mark.parametrize("domain", DOMAINS)
def test_all_stored_held_out_prompts_are_those_that_would_be_drawn(domain):
    stored = held_out_prompts(domain, 100)
    assert stored == [example.prompt for example in examples(domain, 100, 2026, held_out=True)]


@pytest.mark.parametrize(
    "domain", ("math", "code", "math_retold", "code_retold", "drill", "workings", "snippet")
)
def test_every_equation_is_right(domain):
    equations = [found for example in drawn(domain) for found in EQUATION.findall(example.answer)]
    assert len(equations) > 150
    work = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}
    for left, sign, right, result in equations:
        assert work[sign](int(left), int(right)) == int(result)


@pytest.mark.parametrize("domain", DOMAINS)
def test_reference_and_retold_answers_are_right_and_spoiled_ones_are_not(domain):
    for example in drawn(f"{domain}_retold", 25):
        assert is_right(example, example.answer) and not is_held_out(example.prompt)
    for example in drawn(domain, 25):
        assert is_right(example, example.answer)
        if domain == "chat":
            spoiled = example.answer.replace(example.check[0], "nothing")
        else:
            result = example.check if domain == "math" else example.check[2]
            spoiled = re.sub(rf"\b{result}\b", str(result + 1), example.answer)
        assert not is_right(example, spoiled)


def test_in_a_fashion_a_voice_likes_other_words_and_afterwards_its_own():
    def said():
        return [
            expand("[one|two|three|four]", Voice("a town"), random.Random(seed))
            for seed in range(200)
        ]

    usual = said()
    with fashion("retold"):
        retold = said()
    assert (
        said() == usual
        and abs(usual.count("one") - retold.count("one"))
        + abs(usual.count("two") - retold.count("two"))
        > 20
    )


def test_a_function_that_does_something_else_is_wrong():
    example = next(e for e in drawn("code") if e.check[1][0][1])
    spoiled = re.sub(r"    return \w+", "    return 0", example.answer)
    assert not is_right(example, spoiled) and not is_right(example, "no code at all")


def test_a_number_that_contains_the_result_is_not_the_result():
    example = Example("math", "", "", 12)
    said = [is_right(example, f"So\nthe answer is {number}.") for number in (12, 112, 120, 3)]
    assert said == [True, False, False, False]


def test_a_function_that_does_not_end_is_wrong(monkeypatch):
    monkeypatch.setattr("dspark_lite.course.world.example.RUN_SECONDS", 0.5)
    answer = "```python\ndef f(x):\n    while True:\n        pass\n```\nf(1) gives 1"
    assert not is_right(Example("code", "", "", ["f", [[1, 1]], 1]), answer)


def test_two_hops_are_asked_for_by_the_person_and_answered_by_the_town():
    book = encyclopedia()
    homes = {person.name: person.town for person in book.people}
    hops = r"(?:the town where|the home town of|the birthplace of) "
    asked = [
        (e, name)
        for e in drawn("chat", 800)
        for name in homes
        if re.search(rf"{hops}{name}\b", e.prompt) and e.check[-1] != homes[name].name
    ]
    assert len(asked) > 50
    about_town = sum(
        e.check[-1] in map(str, chat_text.town_values(homes[name]).values()) for e, name in asked
    )
    assert about_town > 0.5 * len(asked)


def test_the_encyclopedia_has_some_thousand_facts_and_no_name_twice():
    book = encyclopedia()
    facts = len(book.towns) * len(chat_text.TOWN_FACTS) + len(book.people) * len(
        chat_text.ASKED_OF_PERSON
    )
    names = [entry.name for entry in (*book.towns, *book.people)] + [
        town.river for town in book.towns
    ]
    assert facts >= 2000 and len(set(names)) == len(names)
    assert len({person.work for person in book.people}) == len(book.people)


def test_the_well_known_are_spoken_of_more_often():
    rng, book = random.Random(0), encyclopedia()
    ranks = [book.people.index(book.draw_person(rng)) for _ in range(4000)]
    head, tail = (
        sum(low <= rank < low + 24 for rank in ranks) for low in (0, len(book.people) - 24)
    )
    assert head > 3 * tail > 0


def test_no_text_holds_a_template():
    for domain in MAKERS:
        for example in drawn(domain, 60):
            text = example.prompt + (
                example.answer if domain not in ("code", "code_retold", "snippet") else ""
            )
            assert not re.search(r"[{}|]|\[(?!\d)|  ", text), text


def test_a_days_counts_are_carried_from_event_to_event():
    for example in drawn("workings", 40):
        count = int(example.prompt.split()[-1])
        for line in example.answer.splitlines():
            worked = [(int(left), int(right)) for left, _, right, _ in EQUATION.findall(line)]
            assert not worked or any(count in pair for pair in worked)
            count = int(re.findall(r"\d+", line)[-1])


def test_a_quiz_states_what_is_asked_for_and_never_a_held_out_question():
    book = encyclopedia()
    known = {
        str(value)
        for entries, values in (
            (book.towns, chat_text.town_values),
            (book.people, chat_text.person_values),
        )
        for entry in entries
        for value in values(entry).values()
    }
    lines = [
        re.match(
            r"(.*?[.?]) ([A-Z0-9].*)",
            line.removeprefix("Good morning. ").removeprefix("Excuse me. "),
        )
        for example in drawn("quiz", 40)
        for line in example.answer.splitlines()
    ]
    assert len(lines) > 280 and all(
        line and any(fact in line[2] for fact in known) for line in lines
    )
    asked = {example.prompt for example in examples("chat", 40, 2026, held_out=True)}
    answers = "\n".join(example.answer for example in drawn("quiz", 300))
    assert not any(prompt + " " in answers for prompt in asked)


@given(st.integers(0, 10**6))
def test_a_voice_takes_each_alternative_and_likes_some_better(seed):
    template, rng = "[a|b [c|d]|{e}]", random.Random(seed)
    texts = [expand(template, Voice("x"), rng, {"e": "[f|g]"}) for _ in range(200)]
    assert set(texts) <= {"a", "b c", "b d", "f", "g"} and len(set(texts)) > 1


def test_voices_differ_and_stay_the_same():
    def share(key):
        rng = random.Random(1)
        return sum(expand("[left|right]", Voice(key), rng) == "left" for _ in range(2000)) / 2000

    shares = [share(f"town {number}") for number in range(8)]
    assert max(shares) - min(shares) > 0.2 and share("town 0") == shares[0]


@pytest.mark.parametrize("template", ["[a|b", "a]", "[a|[b]"])
def test_brackets_that_do_not_match_are_refused(template):
    with pytest.raises(ValueError, match="bracket"):
        parse(template)


def test_an_unknown_name_is_named():
    with pytest.raises(KeyError, match="nowhere"):
        expand("{nowhere}", Voice(), random.Random(0))


@given(st.integers(0, 10**6), st.integers(21, 880))
def test_counts_stay_positive_and_have_three_digits(seed, before):
    rng = random.Random(seed)
    for _ in range(6):
        step = math_text._step(rng, before)
        assert 1 <= step.after <= 999 and step.before == before
        before = step.after
