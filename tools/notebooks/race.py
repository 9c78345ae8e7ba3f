"""Record the races of the tiny models: assets/measurements/race.json, which the web edition's first
page plays, and one of them as a picture that moves, assets/figures/race.gif of lesson 00.

`python -m tools.notebooks.race` records and draws, `python -m tools.notebooks.race --draw` draws
what was recorded.
"""

import sys

from dspark_lite import generate
from dspark_lite.common.files import ROOT, write_atomically, write_json
from dspark_lite.course.figures.race import save_race
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.result_files import read

RECORDED = ROOT / "assets" / "measurements" / "race.json"
PICTURE = ROOT / "assets" / "figures" / "race.gif"
PROMPTS = 20  # the one with the shortest answer is played, so that the animation stays small
TURNS = 5  # of each, in turn, so that a slow moment of the machine meets both


DRAFTERS = ("dspark", "eagle3", "dflash", "prompt_lookup")
DRAWN = ("math", "dspark")  # the race of the picture


def record():
    """Decode a prompt of each domain plainly and with each drafter, greedily; return the races.

    A race has the `tokens` of an answer as texts, the milliseconds of a plain pass and of a round, and
    for each round the drafts kept and the tokens committed.
    """
    lab = setup("tiny", prompts=PROMPTS)
    return {
        "device": lab.device_name,
        "versions": lab.versions,
        "races": {domain: _race(lab, texts) for domain, texts in lab.prompts.items()},
    }


def _race(lab, prompts):
    """Return the race on the prompt with the shortest answer."""
    used = {"plain": None} | {name: lab.drafter(name) for name in DRAFTERS}

    def written(ids, drafter):
        return generate(lab.target, drafter, ids, max_new_tokens=lab.max_new_tokens)

    first = used["dspark"]
    prompt = min(prompts, key=lambda text: len(written(lab.encode(text), first).token_ids))
    ids, runs = lab.encode(prompt), {name: [] for name in used}
    for _ in range(TURNS):
        for name, drafter in used.items():
            runs[name].append(written(ids, drafter))
    tokens = runs["plain"][0].token_ids
    if different := [name for name, found in runs.items() if found[0].token_ids != tokens]:
        raise SystemExit(f"Other answers than plain decoding's: {different}; nothing was written.")
    ms = {
        name: 1e3 * min(answer.decode_seconds / len(answer.rounds) for answer in found)
        for name, found in runs.items()
    }
    return {
        "prompt": prompt,
        "tokens": [lab.tokenizer.decode([t], skip_special_tokens=True) for t in tokens],
        "plain_ms": ms["plain"],
        "drafters": {
            name: {
                "round_ms": ms[name],
                "rounds": [[r.accepted, r.committed] for r in runs[name][0].rounds],
            }
            for name in DRAFTERS
        },
    }


def one_race(recorded, domain, drafter):
    """Return one race as figures/race.py draws it."""
    race = recorded["races"][domain]
    run = race["drafters"][drafter]
    return {"tokens": race["tokens"], "plain_ms": race["plain_ms"], **run}


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        write_json(RECORDED, record())
    run = read(RECORDED, "python -m tools.notebooks.race")
    drawn = one_race(run, *DRAWN)
    write_atomically(PICTURE, lambda temporary: save_race(drawn, temporary))
