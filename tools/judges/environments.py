"""Environments for outside programs: nothing of them comes into .venv."""

import __future__

import ast
import json
import re
import subprocess
import sys
import types
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "environments"
TORCH = "2.13.0"
CPU_WHEELS = ("--extra-index-url", "https://download.pytorch.org/whl/cpu")
# Requirements of vLLM and speculators that have no build for CPUs; text models need none of them.
WITHOUT = {"torch", "torchvision", "torchaudio", "torchcodec"}


def run(*words, **options):
    """Run a program quietly. Raise CalledProcessError, which holds what the program said."""
    words = [str(word) for word in words]
    return subprocess.run(words, check=True, capture_output=True, text=True, **options)


def pip(python, *words):
    """Run the pip of an environment."""
    return run(python, "-m", "pip", "-q", "--disable-pip-version-check", "--no-cache-dir", *words)


def environment(name, fill, anew=False):
    """Return the Python of an environment that `fill(python)` has filled, once or `anew`."""
    python, ready = BUILD / name / "bin" / "python", BUILD / name / "ready"
    if not python.exists():
        run(sys.executable, "-m", "venv", BUILD / name)
    if anew or not ready.exists():
        fill(python)
        ready.touch()
    return python


def for_cpus(name, package, *more):
    """Return the Python of an environment with a package on torch for CPUs, what it requires, and
    `more`."""

    def fill(python):
        wheels = BUILD / name / "wheels"
        pip(python, "download", "--no-deps", package, "-d", wheels)
        (wheel,) = wheels.glob("*.whl")
        pip(python, "install", f"torch=={TORCH}", *CPU_WHEELS)
        pip(python, "install", "--no-deps", wheel)
        pip(python, "install", *requirements(wheel), *more)

    return environment(name, fill)


def requirements(wheel):
    """Return what a wheel requires, without extras and without what has no build for CPUs."""
    with zipfile.ZipFile(wheel) as held:
        name = next(name for name in held.namelist() if name.endswith(".dist-info/METADATA"))
        lines = re.findall(r"^Requires-Dist: (.+)$", held.read(name).decode(), flags=re.M)
    return [
        line
        for line in lines
        if "extra ==" not in line and re.match(r"[\w.-]+", line)[0].lower() not in WITHOUT
    ]


def answer(judge, python, asked, scratch, **options):
    """Return what the file of a judge answers as JSON when the judge's own Python runs it: FILE
    CASES ANSWERS."""
    scratch.mkdir(parents=True, exist_ok=True)
    cases, answers = (scratch / f"{Path(judge).stem}_{what}.json" for what in ("cases", "answers"))
    cases.write_text(json.dumps(asked))
    run(python, judge, cases, answers, **options)
    return json.loads(answers.read_text())


def definitions(path, names, known):
    """Return a module that has only the named functions and classes of a file; they see one another
    and what is `known`.

    Raise ValueError if the file lacks one.
    """
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", None) in names]
    module = sys.modules[path.stem] = types.ModuleType(path.stem)
    vars(module).update({name: value for name, value in known.items() if not name.startswith("__")})
    later = __future__.annotations.compiler_flag
    exec(compile(tree, str(path), "exec", flags=later, dont_inherit=True), vars(module))
    if missing := set(names) - vars(module).keys():
        raise ValueError(f"{path.name} has no {', '.join(sorted(missing))} any more")
    return module
