"""Record the rounds that lessons without a model show: `python -m tools.measure.rounds` writes
assets/reference/recorded_rounds.json."""

import dspark_lite
from dspark_lite.common.files import write_json
from dspark_lite.course.measure.recorded_rounds import RECORDED, as_json, record_rounds
from dspark_lite.course.result_files import REFERENCE

ANSWERS = {"greedy": ("math", 0.0), "sampled": ("chat", 1.0)}  # name: (domain, temperature)


def recorded(lab) -> dict[str, list[dict]]:
    """Return rounds of DSpark's answers to the first prompt of a domain, by name."""
    drafter = lab.drafter("dspark")
    return {
        name: as_json(record_rounds(lab, drafter, lab.prompts[domain][0], temperature=temperature))
        for name, (domain, temperature) in ANSWERS.items()
    }


if __name__ == "__main__":
    write_json(REFERENCE / RECORDED, recorded(dspark_lite.setup("tiny", device="cpu")))
