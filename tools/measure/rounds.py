"""Record the rounds that lessons without a model show: `python -m tools.measure.rounds` writes
assets/reference/recorded_rounds.json."""

from copy import copy

import dspark_lite
from dspark_lite.common.files import write_json
from dspark_lite.course.clinic.patients import Service, refused_kept
from dspark_lite.course.measure.recorded_rounds import RECORDED, as_json, record_rounds
from dspark_lite.course.result_files import REFERENCE

ANSWERS = {"greedy": ("math", 0.0), "sampled": ("chat", 1.0)}  # name: (domain, temperature)
STEP = [("math", 0), ("code", 0), ("chat", 0), ("chat", 1)]  # requests that share a step


def recorded(lab) -> dict[str, list[dict]]:
    """Return rounds of DSpark's answers to the first prompt of a domain, by name; under "step" one round each of some answers, under
    "sick" those of a drafter that keeps what was refused."""
    drafter = lab.drafter("dspark")
    healthy, request = Service(lab.target, drafter), lab.prompts["chat"][0]
    found = {
        name: record_rounds(lab, drafter, lab.prompts[domain][0], temperature=temperature)
        for name, (domain, temperature) in ANSWERS.items()
    }
    found["step"] = [
        r
        for domain, number in STEP
        for r in record_rounds(lab, drafter, lab.prompts[domain][number], count=1)
    ]
    sick, ward = refused_kept(healthy), copy(lab)
    ward.target = sick.target
    found["sick"] = record_rounds(ward, sick.drafter, request, temperature=0.0)
    return {name: as_json(rounds) for name, rounds in found.items()}


if __name__ == "__main__":
    write_json(REFERENCE / RECORDED, recorded(dspark_lite.setup("tiny", device="cpu")))
