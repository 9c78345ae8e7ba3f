"""Measure the cases of assets/cases on code that has the fault: `python -m tools.measure.cases [NN ...]`.

The script writes into assets/cases/NN.json what the program of the cause gives beside the healthy one (tools/measure/case_programs/),
and raises where a measurement is said to speak against a suspect whose program gives the very same.
"""

import argparse
import sys

from dspark_lite.common.files import write_json
from dspark_lite.course.cases.own_file import own_file_case
from dspark_lite.course.cases.records import FOLDER, read_case
from dspark_lite.course.own_decoder.keep import EDITION
from tools.errors import report_errors
from tools.measure.case_programs import CASES
from tools.measure.case_programs.recorded import Rows


def table(here: Rows, healthy: Rows | None) -> list[str]:
    """Return the lines of a result, beside that of a healthy program if there is one."""
    columns = {"here": here} | ({"healthy": healthy} if healthy else {})
    wide = max(map(len, here)) + 1
    cells = {name: max(len(name), *map(len, rows.values())) + 2 for name, rows in columns.items()}
    head = " " * wide + "".join(f"{name:>{cells[name]}}" for name in columns)
    body = [
        f"{what:{wide}}" + "".join(f"{rows[what]:>{cells[name]}}" for name, rows in columns.items())
        for what in here
    ]
    return [line.rstrip() for line in ([head, *body] if healthy else body)]


def results(number: str) -> dict[str, list[str]]:
    """Return {measurement: lines} of a case, measured now. Raise ValueError where it cannot speak as the case says."""
    found, recorded = read_case(number), CASES[number]()
    given = {suspect: recorded.measure(program) for suspect, program in recorded.programs.items()}
    here = given[found["cause"]]
    for suspect, against in found["suspects"].items():
        for name in against:
            if suspect in given and given[suspect][name] == here[name]:
                raise ValueError(f"case {number}: {name} does not speak against {suspect}")
    healthy = recorded.measure(recorded.healthy) if recorded.healthy else dict.fromkeys(here)
    return {
        name: table(rows, None if name == "seen" else healthy[name]) for name, rows in here.items()
    }


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("numbers", nargs="*", metavar="NN", default=[*CASES, "14"])
    for number in parser.parse_args(arguments).numbers:
        if number == "14":
            write_json(FOLDER / "14.json", own_file_case(path=EDITION))
            continue
        found = read_case(number)
        lines = results(number)
        found |= {"seen": lines.pop("seen")} if "seen" in lines else {}
        for name, result in lines.items():
            found["measurements"][name]["result"] = result
        write_json(FOLDER / f"{number}.json", found)
        print(number, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
