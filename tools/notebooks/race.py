"""Record the race of lesson 00 on the tiny models and draw it: assets/measurements/race.json,
assets/figures/race.gif.

`python -m tools.notebooks.race` records and draws, `python -m tools.notebooks.race --draw` draws
what was recorded.
"""

import sys

from dspark_lite import generate
from dspark_lite.common.files import ROOT, write_atomically, write_json
from dspark_lite.course.result_files import read
from dspark_lite.course.figures.race import save_race
from dspark_lite.course.measure.lab import setup

RECORDED = ROOT / "assets" / "measurements" / "race.json"
PICTURE = ROOT / "assets" / "figures" / "race.gif"
PROMPTS = 20  # the one with the shortest answer is played, so that the animation stays small
TURNS = 5  # of each, in turn, so that a slow moment of the machine meets both


def record():
    """Decode one prompt plainly and with DSpark, greedily; return the race."""
    lab = setup("tiny", prompts=PROMPTS)
    drafter = lab.drafter("dspark")

    def written(ids, used):
        return generate(lab.target, used, ids, max_new_tokens=lab.max_new_tokens)

    prompt = min(
        lab.prompts["math"], key=lambda text: len(written(lab.encode(text), drafter).token_ids)
    )
    ids, runs = lab.encode(prompt), {"plain": [], "dspark": []}
    for _ in range(TURNS):
        for name, used in (("plain", None), ("dspark", drafter)):
            runs[name].append(written(ids, used))
    plain, drafted = runs["plain"][0], runs["dspark"][0]
    if plain.token_ids != drafted.token_ids:
        raise SystemExit("The two answers differ; nothing was written.")
    return {
        "prompt": prompt,
        "device": lab.device_name,
        "versions": lab.versions,
        "tokens": [
            lab.tokenizer.decode([token], skip_special_tokens=True) for token in plain.token_ids
        ],
        "rounds": [[r.accepted, r.committed] for r in drafted.rounds],
        **{
            f"{unit}_ms": 1e3 * min(one.decode_seconds / len(one.rounds) for one in runs[name])
            for unit, name in (("plain", "plain"), ("round", "dspark"))
        },
    }


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        write_json(RECORDED, record())
    run = read(RECORDED, "python -m tools.notebooks.race")
    write_atomically(PICTURE, lambda temporary: save_race(run, temporary))
