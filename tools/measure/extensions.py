"""Measure what block verification gains over the token rule on the tiny models: `make extensions`.
To assets/measurements/extensions.json."""

import argparse
import sys
from dataclasses import asdict

from dspark_lite.common.files import ROOT, write_json
from dspark_lite.course.measure.extensions import block_gain, watch
from dspark_lite.course.measure.journal import check_writable, header
from dspark_lite.course.measure.lab import setup
from tools.errors import report_errors

MEASURED = ROOT / "assets" / "measurements" / "extensions.json"
PROMPTS = 60  # a domain
TEMPERATURE = 1.0


def measure(lab, drafter):
    """Return a row for each domain."""
    rows = []
    for domain, texts in lab.prompts.items():
        blocks = watch(lab, drafter, texts, temperature=TEMPERATURE)
        rows.append(
            {
                "domain": domain,
                "prompts": len(texts),
                "blocks": len(blocks.token),
                "accepted_length": {
                    name: asdict(found) for name, found in block_gain(blocks).items()
                },
            }
        )
    return rows


def line(row):
    gain, token, block = (row["accepted_length"][name] for name in ("gain", "token", "block"))
    return (
        f"{row['domain']:5} accepted length {token['value']:.3f} by the token rule, {block['value']:.3f} by block verification: "
        f"{gain['value']:+.2%} [{gain['low']:+.2%}, {gain['high']:+.2%}]"
    )


@report_errors
def main(arguments):
    # --help says so and measures nothing
    argparse.ArgumentParser(description=__doc__.partition("\n\n")[0]).parse_args(arguments)
    check_writable(MEASURED)
    lab = setup("tiny", prompts=PROMPTS)
    rows = measure(lab, lab.drafter("dspark"))
    print(*map(line, rows), sep="\n")
    write_json(MEASURED, {**header(lab), "temperature": TEMPERATURE, "rows": rows})


if __name__ == "__main__":
    sys.exit(main())
