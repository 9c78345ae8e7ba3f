"""Is an answer right? What each domain's check asks for, found in the text or by running the code."""

import json
import subprocess
import sys

from .example import Example

RUN_SECONDS = 5  # that a generated function may take


def is_right(example: Example, answer: str) -> bool:
    """Whether an answer shows what its example asks for: the result in math's last line, every fact in chat, and in code a
    function with the right results whose trace ends in the right one."""
    if example.domain == "chat":
        return all(fact in answer for fact in example.check)
    lines = answer.strip().splitlines()
    if example.domain == "math":
        return bool(lines) and str(example.check) in lines[-1].replace(".", " ").split()
    name, cases, traced = example.check
    code = answer.split("```python\n")[-1].split("```")[0] if "```python\n" in answer else ""
    shown = answer.rpartition("```")[2].replace(".", " ").split()
    return bool(code) and str(traced) in shown and runs_right(code, name, cases)


def recalled(example: Example, answer: str) -> float:
    """The share of the facts a chat example asks for that its answer states."""
    return sum(fact in answer for fact in example.check) / len(example.check)


def runs_right(code: str, name: str, cases: list) -> bool:
    """Runs a generated function in a process of its own, isolated from this one and stopped after a few seconds."""
    program = (f"{code}\nimport json, sys\ncases = json.loads(sys.stdin.read())\n"
               f"assert all({name}(given) == wanted for given, wanted in cases)\n")
    try:
        finished = subprocess.run([sys.executable, "-I", "-S", "-c", program], input=json.dumps(cases), text=True,
                                  capture_output=True, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return finished.returncode == 0
