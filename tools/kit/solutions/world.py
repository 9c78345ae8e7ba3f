"""A world of shopping lists: what is bought, what it costs, and what is left."""

THINGS = {
    "apples": 2,
    "pears": 3,
    "loaves": 4,
    "eggs": 1,
    "cheeses": 9,
    "lemons": 2,
    "cakes": 8,
    "fish": 7,
}
NAMES = ["Ann", "Bob", "Cleo", "Dan", "Eve", "Finn"]


def example(rng):
    """Return (prompt, answer, check): somebody buys three things; `check` is what is left of the
    money."""
    name, bought = rng.choice(NAMES), rng.sample(sorted(THINGS), 3)
    counts = [rng.randint(1, 6) for _ in bought]
    costs = [count * THINGS[thing] for thing, count in zip(bought, counts)]
    money = sum(costs) + rng.randint(1, 40)
    listed = ", ".join(
        f"{count} {thing} at {THINGS[thing]}" for thing, count in zip(bought, counts)
    )
    lines = [
        f"{count} {thing}: {count} * {THINGS[thing]} = {cost}."
        for thing, count, cost in zip(bought, counts, costs)
    ]
    answer = "\n".join(
        [
            *lines,
            f"In all: {' + '.join(map(str, costs))} = {sum(costs)}.",
            f"Left: {money} - {sum(costs)} = {money - sum(costs)}.",
        ]
    )
    return f"{name} has {money} coins and buys {listed}. What is left?", answer, money - sum(costs)


def is_right(check, answer):
    """Return whether the last line ends in the right number."""
    return answer.strip().rstrip(".").split()[-1:] == [str(check)]
