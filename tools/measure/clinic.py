"""Take the charts of lesson 14's patients on the tiny models: `make clinic`. To
assets/measurements/clinic.json.

The cost table is a line through the step times that `make confidence` recorded, so take the charts
again after that.
"""

import argparse
import sys

from dspark_lite.common.files import write_json
from dspark_lite.course.clinic import patients
from dspark_lite.course.measure.journal import check_writable, header
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.measure.symptoms import CHART_ANSWERS, CHART_ROUNDS, price_table, take_chart
from dspark_lite.course.replication.clinic_results import CLINIC, as_row, step_milliseconds
from tools.errors import report_errors


@report_errors
def main(arguments):
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(arguments)
    check_writable(CLINIC)
    lab = setup("tiny", prompts=CHART_ANSWERS)
    drafter, charts = lab.drafter("dspark"), {}
    healthy = patients.Service(
        lab.target, drafter, lab.encode, costs=price_table(step_milliseconds(drafter.gamma + 1))
    )
    for cause in (*patients.CAUSES, *patients.QUIET):
        patient = patients.Patient(cause)
        charts[cause] = as_row(
            take_chart(patient.service(healthy), lab.prompts, distance=patient.distance())
        )
        print(cause, flush=True)
    write_json(
        CLINIC,
        {
            **header(lab),
            "drafter": drafter.name,
            "answers": CHART_ANSWERS,
            "rounds": CHART_ROUNDS,
            "charts": charts,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
