"""What `make judges` and `make engine` have in common: the drafters and prompts that other programs are asked about."""

import sys

from dspark_lite.common.errors import DSparkLiteError
from dspark_course.measure.journal import check_writable
from dspark_course.measure.lab import setup
from dspark_lite.models.export import export

DRAFTERS = {"plain": None, "dspark": "tiny-dspark", "dflash": "tiny-dflash"}


def lab_of(options):
    """The tiny lab with the prompts asked for; None, after a sentence, where it or the result's file cannot be had."""
    try:
        check_writable(options.out)
        return setup("tiny", prompts=options.prompts)
    except DSparkLiteError as error:
        print(error, file=sys.stderr)
        return None


def prompts_of(lab):
    """The prompts of all domains in turn."""
    return [prompt for of_domain in lab.prompts.values() for prompt in of_domain]


def exported(name, engine, scratch):
    """The folder of a tiny drafter in the form that an engine loads, written where it is missing."""
    folder = scratch / f"{DRAFTERS[name]}-{engine}"
    if not folder.exists():
        export(DRAFTERS[name], engine, folder)
    return folder
