"""python -m dspark_lite COMMAND: the commands stand in dspark_lite/course/command_line.py, as most of them measure or train."""

import sys

from dspark_lite.course.command_line import main

if __name__ == "__main__":
    sys.exit(main())
