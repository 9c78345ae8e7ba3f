"""Cases 01 and 12: what others and we have recorded."""

from dspark_lite.course.measure import studies
from dspark_lite.course.replication import experiment_results as results
from dspark_lite.course.result_files import reference

from .recorded import Recorded, Rows


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
