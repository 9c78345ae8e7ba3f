"""What `make judges`, `make engine` and `make drafts` have in common: who and what is asked, and a table's rows."""

from dspark_lite.course.measure.journal import check_writable
from dspark_lite.course.measure.lab import setup
from dspark_lite.models.export import export

DRAFTERS = {"plain": None, "dspark": "tiny-dspark", "dflash": "tiny-dflash"}


def lab_of(options):
    """The tiny lab with the prompts asked for, where the result's file can be written."""
    check_writable(options.out)
    return setup("tiny", prompts=options.prompts)


def prompts_of(lab):
    """The prompts of all domains in turn."""
    return [prompt for of_domain in lab.prompts.values() for prompt in of_domain]


def rows_of(judge, version, compared):
    """A row for each {what was compared: a truth a case}: how many agreed."""
    return [
        {
            "judge": judge,
            "version": version,
            "compared": what,
            "agreed": sum(agreed),
            "of": len(agreed),
        }
        for what, agreed in compared.items()
    ]


def exported(name, engine, scratch):
    """The folder of a tiny drafter in the form that an engine loads, written where it is missing."""
    folder = scratch / f"{DRAFTERS[name]}-{engine}"
    if not folder.exists():
        export(DRAFTERS[name], engine, folder)
    return folder
