"""Measure what lies beyond the paper on the tiny models: `make beyond`. To assets/measurements/beyond.json.

Block verification beside the token rule, and the confidence that an estimator finds beside the confidence head's, both on the blocks
of the same answers.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import ROOT, write_json
from dspark_course.measure.beyond import auc_by_position, block_gain, estimated_logits, watch
from dspark_course.measure.journal import check_writable, header
from dspark_course.measure.lab import setup

MEASURED = ROOT / "assets" / "measurements" / "beyond.json"


def measure(lab, drafter, temperature):
    """A row a domain."""
    rows = []
    for domain, texts in lab.prompts.items():
        blocks = watch(lab, drafter, texts, temperature=temperature)
        rows.append({"domain": domain, "prompts": len(texts), "blocks": len(blocks.token),
                     "accepted_length": {name: asdict(found) for name, found in block_gain(blocks).items()},
                     "auc": {"confidence head": auc_by_position(blocks, blocks.logits),
                             "estimator": auc_by_position(blocks, estimated_logits(blocks))}})
    return rows


def line(row):
    """A row for a reader."""
    gain, token, block = (row["accepted_length"][name] for name in ("gain", "token", "block"))
    head, estimated = (" ".join(f"{value:.3f}" for value in row["auc"][name]) for name in ("confidence head", "estimator"))
    return (f"{row['domain']:5} accepted length {token['value']:.3f} by the token rule, {block['value']:.3f} by block verification: "
            f"{gain['value']:+.2%} [{gain['low']:+.2%}, {gain['high']:+.2%}]\n      AUC of survival by position, confidence head {head}\n"
            f"                                        estimator {estimated}")


def main(arguments=None):
    """Measure; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=60, metavar="N", help="a domain (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=MEASURED, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        check_writable(options.out)
        lab = setup("tiny", prompts=options.prompts)
        rows = measure(lab, lab.drafter("dspark"), options.temperature)
    except DSparkLiteError as error:
        print(error, file=sys.stderr)
        return 2
    print(*map(line, rows), sep="\n")
    write_json(options.out, {**header(lab), "temperature": options.temperature, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
