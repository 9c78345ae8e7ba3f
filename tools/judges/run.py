"""Ask programs that nobody here wrote whether they agree: `make judges`. The exit code is 1 if one
of them does not.

Everything is asked about the tiny checkpoints as committed: whole texts token for token, rounds one
by one, files and fits number for number. Each judge has a file with a function `ask`. What is
installed for it stands in build/environments. The rows go to assets/measurements/judges.json.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from dspark_lite.common.files import ROOT, read_json, write_json
from dspark_lite.course.measure.journal import header
from tools.errors import report_errors
from tools.judges import (
    judge_llama_cpp,
    judge_mlx,
    judge_sglang,
    judge_speculators,
    judge_transformers,
    judge_vllm,
)
from tools.judges.questions import lab_of

MEASURED = ROOT / "assets" / "measurements" / "judges.json"
JUDGES = {
    "transformers": judge_transformers.ask,
    "SGLang": judge_sglang.ask,
    "mlx-dspark": judge_mlx.ask,
    "llama.cpp": judge_llama_cpp.ask,
    "vLLM": judge_vllm.ask,
    "speculators": judge_speculators.ask,
}


def rows_or_reason(name, lab, options):
    """Return the rows of a judge; one that could not be installed or broke down has a row with the
    reason."""
    try:
        return JUDGES[name](lab, options)
    except subprocess.CalledProcessError as error:
        says = (error.stderr or error.stdout or "").strip().splitlines() or [str(error)]
        return [{"judge": name, "not_run": says[-1]}]
    except Exception as error:  # another program's insides may break in any way
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return [{"judge": name, "not_run": reason}]


def line(row):
    """Return a row as a line."""
    if "not_run" in row:
        return f"{row['judge']:13} not run: {row['not_run']}"
    verdict = "agreed" if row["agreed"] == row["of"] else "DISAGREED"
    what = f"{row['judge']:13} {row['version']:10} {row['compared']:66}"
    return f"{what} {row['agreed']:5} of {row['of']:5} {verdict}"


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    add = parser.add_argument
    add("--only", nargs="+", choices=JUDGES, default=list(JUDGES), help="default: all of them")
    add("--newest", action="store_true", help="newest SGLang and mlx-dspark, not those pinned")
    add("--prompts", type=int, default=6, metavar="N", help="a domain (default: %(default)s)")
    add("--tokens", type=int, default=64, metavar="N", help="of an answer (default: %(default)s)")
    add("--out", type=Path, default=MEASURED, metavar="FILE")
    options = parser.parse_args(arguments)
    lab = lab_of(options)
    made, rows, agreed = header(lab), [], True
    earlier = read_json(options.out)["rows"] if options.out.exists() else []
    for name in JUDGES:
        found = [row for row in earlier if row["judge"] == name]
        if name in options.only:
            found = [
                {**row, "commit": made["commit"]} for row in rows_or_reason(name, lab, options)
            ]
            print(*map(line, found), sep="\n", flush=True)
            agreed &= all("not_run" in row or row["agreed"] == row["of"] for row in found)
        rows += found or [{"judge": name, "not_run": "not asked yet", "commit": made["commit"]}]
    asked = {"prompts": options.prompts, "tokens": options.tokens}
    write_json(options.out, {**made, **asked, "rows": rows})
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
