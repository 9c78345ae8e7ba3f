"""One prompt of the tiny world, its reference answer, and whether an answer is right: what its check asks for, found in the text or by
running the code."""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass

HELD_OUT_SHARE = 20  # one prompt in twenty is held out
RUN_SECONDS = 5  # that a generated function may take


@dataclass(frozen=True)
class Example:
    """A prompt and its reference answer.

    `check` is the final number for math, [name, [[arguments, result], ...]] for code, and the facts that have to be
    found in the answer for chat.
    """

    domain: str
    prompt: str
    answer: str
    check: object = None


def is_held_out(prompt: str) -> bool:
    """Return whether the prompt belongs to the held-out part of the tiny world: decided by its
    hash, whatever the seed."""
    return hashlib.sha256(prompt.encode()).digest()[0] % HELD_OUT_SHARE == 0


def is_right(example: Example, answer: str) -> bool:
    """Return whether an answer shows what its example asks for: the result in math's last line,
    every fact in chat, and in code a function with the right results whose trace ends in the right
    one."""
    if example.domain == "chat":
        return all(fact in answer for fact in example.check)
    lines = answer.strip().splitlines()
    if example.domain == "math":
        return bool(lines) and str(example.check) in lines[-1].replace(".", " ").split()
    name, cases, traced = example.check
    code = answer.split("```python\n")[-1].split("```")[0] if "```python\n" in answer else ""
    shown = answer.rpartition("```")[2].replace(".", " ").split()
    return bool(code) and str(traced) in shown and runs_right(code, name, cases)


def runs_right(code: str, name: str, cases: list) -> bool:
    """Run a generated function in a process of its own, isolated from this one and stopped after a
    few seconds; return whether its results are right."""
    program = (
        f"{code}\nimport json, sys\ncases = json.loads(sys.stdin.read())\n"
        f"assert all({name}(given) == wanted for given, wanted in cases)\n"
    )
    try:
        finished = subprocess.run(
            [sys.executable, "-I", "-S", "-c", program],
            input=json.dumps(cases),
            text=True,
            capture_output=True,
            timeout=RUN_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False
    return finished.returncode == 0
