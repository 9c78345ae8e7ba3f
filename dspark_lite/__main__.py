"""python -m dspark_lite COMMAND: the commands stand in dspark_course/commands.py, as most of them measure or train."""

import sys

from dspark_course.commands import main

if __name__ == "__main__":
    sys.exit(main())
