"""An invented encyclopedia, drawn once from a fixed seed: towns, people, works and dishes, and what is true of them.

Nothing in it is real, so a model can know it only by having been trained on it. Some people and towns are spoken of
often, most seldom (Zipf's law): the tail is what a small model does not hold.
"""

import itertools
import random
from dataclasses import dataclass
from functools import cache

SEED = 2026
TOWNS, PEOPLE = 60, 240
ZIPF_EXPONENT, ZIPF_OFFSET = 0.7, 5.0  # the weight of rank r is (r + offset) ** -exponent

ONSETS = "b br c d dr f g h k kl l m n p r s st t tr v z".split()
VOWELS = "a e i o u ae ia o e".split()
CODAS = "l m n r s th nd rk ll sk".split()
TOWN_ENDINGS = "holm mere ford stad vik dorn wick burg moor gate".split()
RIVER_ENDINGS = "a e ava ine ona".split()

REGIONS = [
    "the northern hills",
    "the salt coast",
    "the long valley",
    "the eastern plain",
    "the lake country",
    "the high moor",
    "the southern islands",
    "the birch forest",
]
CRAFTS = [
    "glass",
    "pottery",
    "rope",
    "cheese",
    "paper",
    "silver",
    "linen",
    "clocks",
    "honey",
    "boats",
    "candles",
    "tiles",
    "saddles",
    "bells",
    "ink",
    "baskets",
]
FESTIVALS = [
    "the lantern night",
    "the feast of bread",
    "the boat race",
    "the kite day",
    "the wool fair",
    "the song week",
    "the apple dance",
    "the snow market",
    "the bridge supper",
    "the drum parade",
]
PROFESSIONS = [
    "painter",
    "doctor",
    "baker",
    "poet",
    "sailor",
    "teacher",
    "weaver",
    "gardener",
    "singer",
    "builder",
    "farmer",
    "judge",
    "printer",
    "hunter",
    "miller",
    "dancer",
    "carpenter",
    "astronomer",
    "beekeeper",
    "cook",
]
INSTRUMENTS = [
    "the flute",
    "the harp",
    "the drum",
    "the fiddle",
    "the horn",
    "the lute",
    "the organ",
    "the pipe",
]
WORK_KINDS = ["novel", "song", "play", "poem", "painting", "map", "statue", "opera"]
WORK_ADJECTIVES = [
    "Silent",
    "Golden",
    "Broken",
    "Hidden",
    "Second",
    "Burning",
    "Paper",
    "Winter",
    "Crooked",
    "Distant",
    "Hollow",
    "Scarlet",
    "Patient",
    "Sleeping",
    "Borrowed",
    "Endless",
]
WORK_NOUNS = [
    "Harbour",
    "Garden",
    "Mirror",
    "Tower",
    "Letter",
    "River",
    "Orchard",
    "Stranger",
    "Lantern",
    "Bridge",
    "Clock",
    "Forest",
    "Feather",
    "Window",
    "Island",
    "Shadow",
]
DISH_FORMS = ["soup", "bread", "stew", "pie", "dumplings", "cake", "porridge", "noodles"]
INGREDIENTS = [
    "barley",
    "plums",
    "onions",
    "trout",
    "walnuts",
    "cabbage",
    "mushrooms",
    "goat cheese",
    "pears",
    "leeks",
    "lentils",
    "mustard",
    "apples",
    "smoked eel",
    "chestnuts",
    "rye",
    "beets",
    "parsley",
]


@dataclass(frozen=True)
class Town:
    """A town and what is true of it."""

    name: str
    region: str
    river: str
    craft: str
    dish: str
    ingredient: str
    second_ingredient: str
    festival: str
    year: int


@dataclass(frozen=True)
class Person:
    """A person, the town they were born in, and the work they are known for."""

    name: str
    profession: str
    town: Town
    born: int
    instrument: str
    work: str
    work_kind: str
    work_year: int
    teacher: str


@dataclass(frozen=True)
class Encyclopedia:
    """All towns and people, the well-known ones first."""

    towns: tuple[Town, ...]
    people: tuple[Person, ...]

    def draw_town(self, rng: random.Random) -> Town:
        """Draw a town, the well-known ones more often."""
        return _draw(self.towns, rng)

    def draw_person(self, rng: random.Random) -> Person:
        """Draw a person, the well-known ones more often."""
        return _draw(self.people, rng)


def _draw(ranked: tuple, rng: random.Random):
    return rng.choices(ranked, cum_weights=_cumulative(len(ranked)))[0]


@cache
def _cumulative(count: int) -> tuple[float, ...]:
    return tuple(
        itertools.accumulate((rank + ZIPF_OFFSET) ** -ZIPF_EXPONENT for rank in range(count))
    )


def _names(rng: random.Random, count: int, endings: list[str], taken: set[str]) -> list[str]:
    """Return `count` new names of one or two syllables and an ending, none of them taken."""
    names = []
    while len(names) < count:
        syllables = [rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.choice([1, 2]))]
        name = ("".join(syllables) + rng.choice(endings)).capitalize()
        if name not in taken:
            taken.add(name)
            names.append(name)
    return names


@cache
def encyclopedia() -> Encyclopedia:
    """Return the encyclopedia: the same one in every process."""
    rng, taken = random.Random(SEED), set()
    towns = tuple(
        _town(rng, name, river, dish)
        for name, river, dish in zip(
            _names(rng, TOWNS, TOWN_ENDINGS, taken),
            _names(rng, TOWNS, RIVER_ENDINGS, taken),
            _names(rng, TOWNS, CODAS, taken),
        )
    )
    names = _names(rng, PEOPLE, [vowel + coda for vowel in "aeio" for coda in CODAS], taken)
    titles = rng.sample(list(itertools.product(WORK_ADJECTIVES, WORK_NOUNS)), PEOPLE)
    return Encyclopedia(
        towns,
        tuple(
            _person(rng, name, " ".join(title), towns, names) for name, title in zip(names, titles)
        ),
    )


def _town(rng: random.Random, name: str, river: str, dish: str) -> Town:
    first, second = rng.sample(INGREDIENTS, 2)
    return Town(
        name,
        rng.choice(REGIONS),
        river,
        rng.choice(CRAFTS),
        f"{dish.lower()} {rng.choice(DISH_FORMS)}",
        first,
        second,
        rng.choice(FESTIVALS),
        rng.randint(102, 498),
    )


def _person(
    rng: random.Random, name: str, title: str, towns: tuple[Town, ...], names: list[str]
) -> Person:
    born = rng.randint(502, 898)
    teacher = rng.choice([other for other in names if other != name])
    return Person(
        name,
        rng.choice(PROFESSIONS),
        rng.choice(towns),
        born,
        rng.choice(INSTRUMENTS),
        f"The {title}",
        rng.choice(WORK_KINDS),
        born + rng.randint(20, 60),
        teacher,
    )
