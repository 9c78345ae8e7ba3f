"""Draw the held-out prompts that `setup` hands out: `python -m tools.measure.held_out` writes
assets/reference/held_out_prompts.json."""

from dspark_lite.common.files import write_json
from dspark_lite.course.measure.lab import HELD_OUT_PROMPTS, held_out
from dspark_lite.course.names import DOMAINS
from dspark_lite.course.result_files import REFERENCE

PROMPTS = 100  # a domain: the most that lessons ask for

if __name__ == "__main__":
    drawn = {
        domain: [example.prompt for example in held_out(domain, PROMPTS)] for domain in DOMAINS
    }
    write_json(REFERENCE / HELD_OUT_PROMPTS, drawn)
