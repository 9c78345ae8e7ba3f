"""Wrong input on the command line of a script."""

import sys
from functools import wraps

from dspark_lite.common.errors import DSparkLiteError


def report_errors(main):
    """Return the command line `main` so that a DSparkLiteError is one sentence on stderr and exit
    code 2, and None is exit code 0."""

    @wraps(main)
    def run(arguments=None):
        try:
            return main(arguments) or 0
        except DSparkLiteError as error:
            print(error, file=sys.stderr)
            return 2

    return run
