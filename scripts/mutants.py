"""Does a test notice? Applies each mutation of tests/mutants.json to a copy of the package and runs the test named for it.

A mutant is killed where that test fails, and has survived where it passes. The exit code is 1 unless all are killed.
"""

import argparse
import compileall
import importlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = ROOT / "tests" / "mutants.json"
COPIED, LINKED = ("dspark_lite", "dspark_course", "tests", "scripts", "conftest.py", "pyproject.toml"), ("assets", "recipes", "notebooks")
# Imported once, before processes are forked: what the package and its tests are slow to import.
SLOW = ("torch", "torch.distributed.tensor", "torch.nn.attention.flex_attention", "torch.utils.flop_counter", "accelerate", "hypothesis",
        "transformers.models.qwen3.modeling_qwen3", "scipy.stats", "scipy.optimize", "matplotlib.pyplot", "ipywidgets", "httpx")
VERDICTS = {pytest.ExitCode.OK: "survived", pytest.ExitCode.TESTS_FAILED: "killed"}


class MutantError(Exception):
    """A mutant that cannot be made or judged; the message says what to change in the data file."""


def copy_tree(folder):
    """Put into a folder what tests need of the repository: a copy of what is mutated or run, links to the rest."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    for package in ("dspark_lite", "dspark_course"):
        compileall.compile_dir(folder / package, quiet=1)  # once, for all tests


def mutated(text, mutant):
    """Return a file's text with the mutation; its original must stand there once."""
    if text.count(mutant["original"]) != 1:
        raise MutantError(f"{mutant['file']} holds {mutant['original']!r} {text.count(mutant['original'])} times; a mutant needs what "
                          "stands there once")
    return text.replace(mutant["original"], mutant["mutated"])


def run_test(folder, test):
    """Run one test on the copy, in a process of its own, and end with pytest's exit code."""
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    sys.path[:] = [str(folder), *(path for path in sys.path if Path(path).resolve() not in (ROOT, ROOT / "scripts"))]
    sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", test]))


def verdict(folder, mutant):
    """Return what becomes of a mutant: "killed" or "survived"."""
    path = folder / mutant["file"]
    original, written = path.read_text(), path.stat().st_mtime_ns
    path.write_text(mutated(original, mutant))
    try:
        process = multiprocessing.get_context("fork").Process(target=run_test, args=(folder, f"tests/{mutant['test']}"))
        process.start()
        process.join()
    finally:
        path.write_text(original)
        os.utime(path, ns=(written, written))  # so that its byte code counts again
    if process.exitcode not in VERDICTS:
        raise MutantError(f"{mutant['test']} cannot be run on the mutant of {mutant['file']} (pytest's exit code {process.exitcode}); "
                          "name a test that there is and a mutation that can be imported")
    return VERDICTS[process.exitcode]


def line(mutant, found):
    """Return a mutant's row of the table."""
    return " | ".join(("", f"`{mutant['file']}`", f"`{mutant['original']}`", f"`{mutant['mutated']}`", f"`{mutant['test']}`", found, "")).strip()


def main(arguments=None):
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="WORD", default=[""], help="only mutants of files whose name holds one of these")
    options = parser.parse_args(arguments)
    mutants = [mutant for mutant in json.loads(MUTANTS.read_text()) if any(word in mutant["file"] for word in options.only)]
    sys.dont_write_bytecode = True  # a mutant's would be taken for the original's where both are of one second and size
    for name in SLOW:
        importlib.import_module(name)
    print("| file | original | mutated | test | |", "|---|---|---|---|---|", sep="\n")
    killed = 0
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary).resolve()
            copy_tree(folder)
            for mutant in mutants:
                found = verdict(folder, mutant)
                killed += found == "killed"
                print(line(mutant, found), flush=True)
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"\n{killed} of {len(mutants)} mutants killed")
    return 0 if killed == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
