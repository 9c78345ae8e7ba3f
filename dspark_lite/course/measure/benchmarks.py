"""The nine benchmarks of Table 1 by name, from a folder of JSON lines or from the Hub.

DeepSpec keeps the very prompts of the paper as NAME.jsonl in its folder eval_datasets. Prompts made
from rows of the Hub follow the wording that is usual for each benchmark; that of livecodebench is
ours.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from ...common.errors import DSparkLiteError, near_miss

BENCHMARK_SEED = 980406  # of the shuffle, and plus the index of a sample of its random draws
MAX_NEW_TOKENS = 2048
BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{{}}."
FUNCTION = "Write a solution to the following problem and make sure that it passes the tests:\n```python\n{prompt}\n```"
LIVECODEBENCH = "https://huggingface.co/datasets/livecodebench/code_generation_lite/resolve/main"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark's domain, the paper's number of samples, the keyword arguments with which
    `datasets.load_dataset` finds its rows, and how a row becomes a prompt."""

    domain: str
    samples: int
    source: dict
    prompt: Callable[[dict], str]


def _text(row: dict, field: str) -> str:
    if not isinstance(row[field], str):
        raise TypeError(f"{field!r} is no text")
    return row[field]


def _filled(template: str) -> Callable[[dict], str]:
    """Return a template filled with texts of a row."""
    fields = [field for _, field, *_ in Formatter().parse(template) if field]
    return lambda row: template.format(**{field: _text(row, field) for field in fields})


def _program(row: dict) -> str:
    start = _text(row, "starter_code")
    ending = (
        f"Start from this code:\n```python\n{start}\n```"
        if start
        else "Read from standard input and write to standard output."
    )
    return f"Write a Python program that solves this problem.\n\n{_text(row, 'question_content')}\n\n{ending}"


def _instruction(row: dict) -> str:
    context = _text(row, "input")
    return _text(row, "instruction") + (f"\n\nInput:\n{context}" if context else "")


BENCHMARKS = {
    "gsm8k": Benchmark(
        "math",
        500,
        {"path": "openai/gsm8k", "name": "main", "split": "test"},
        _filled("{question}" + BOXED),
    ),
    "math500": Benchmark(
        "math",
        500,
        {"path": "HuggingFaceH4/MATH-500", "split": "test"},
        _filled("{problem}" + BOXED),
    ),
    "aime25": Benchmark(
        "math", 30, {"path": "MathArena/aime_2025", "split": "train"}, _filled("{problem}" + BOXED)
    ),
    "humaneval": Benchmark(
        "code", 164, {"path": "openai/openai_humaneval", "split": "test"}, _filled(FUNCTION)
    ),
    "mbpp": Benchmark(
        "code",
        256,
        {"path": "google-research-datasets/mbpp", "name": "sanitized", "split": "test"},
        _filled("{prompt}"),
    ),
    # The repository holds a loading script, which `datasets` no longer runs: its files are named
    # one by one.
    "livecodebench": Benchmark(
        "code",
        500,
        {
            "path": "json",
            "split": "train",
            "data_files": [f"{LIVECODEBENCH}/test{part}.jsonl" for part in ("", 2, 3, 4, 5, 6)],
        },
        _program,
    ),
    "mt-bench": Benchmark(
        "chat",
        80,
        {"path": "HuggingFaceH4/mt_bench_prompts", "split": "train"},
        lambda row: row["prompt"][0],
    ),
    "alpaca": Benchmark("chat", 500, {"path": "tatsu-lab/alpaca", "split": "train"}, _instruction),
    "arena-hard-v2": Benchmark(
        "chat",
        500,
        {
            "path": "lmarena-ai/arena-hard-auto",
            "split": "train",
            "data_files": "data/arena-hard-v2.0/question.jsonl",
        },
        _filled("{prompt}"),
    ),
}


def load_benchmark(name: str, folder: Path | None = None, count: int | None = None) -> list[str]:
    """Return `count` prompts of a benchmark (None: as many as the paper took), from
    `folder`/NAME.jsonl or else from the Hub.

    Where there are more, they are shuffled with the paper's seed and cut. Raise DSparkLiteError for
    a name, a file, a line or a row that is not as it must be.
    """
    check_benchmark(name)
    prompts = prompts_from_hub(name) if folder is None else prompts_from_folder(name, folder)
    count = BENCHMARKS[name].samples if count is None else count
    if len(prompts) > count:
        random.Random(BENCHMARK_SEED).shuffle(prompts)
    return prompts[:count]


def check_benchmark(name: str) -> None:
    """Raise DSparkLiteError if a name is none of the nine benchmarks."""
    if name not in BENCHMARKS:
        raise DSparkLiteError(
            f"there is no benchmark {name!r}; benchmarks are {', '.join(BENCHMARKS)}"
            + near_miss(name, BENCHMARKS)
        )


def prompts_from_folder(name: str, folder: Path) -> list[str]:
    """Return first turns of all lines of `folder`/NAME.jsonl, each an object with `turns`, a list
    of strings."""
    path = Path(folder) / f"{name}.jsonl"
    if not path.is_file():
        names = (
            ", ".join(sorted(other.name for other in path.parent.glob("*.jsonl")))
            or "no .jsonl file"
        )
        raise DSparkLiteError(f"{path} is missing; the folder holds {names}")
    lines = path.read_bytes().splitlines()
    prompts = [
        _first_turn(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not prompts:
        raise DSparkLiteError(f"{path} holds no prompts; it needs a line with `turns` for each")
    return prompts


def _first_turn(line: bytes, where: str) -> str:
    try:
        row = json.loads(line)
    except ValueError as error:  # not JSON, or not UTF-8
        raise DSparkLiteError(
            f"{where} is not JSON ({error}); a line is an object with `turns`, a list of strings"
        ) from None
    turns = row.get("turns") if isinstance(row, dict) else None
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
        raise DSparkLiteError(
            f"{where} has no `turns`, a list of strings of which the first is the prompt"
        )
    if not turns[0].strip():
        raise DSparkLiteError(f"{where} has an empty first turn; it must be the prompt")
    return turns[0]


def prompts_from_hub(name: str) -> list[str]:
    """Return prompts of all rows of a benchmark on the Hub, through the datasets library."""
    import datasets  # a second to import, and needed here alone

    try:
        rows = datasets.load_dataset(**BENCHMARKS[name].source)
    except Exception as error:  # the library raises many kinds; the reader needs one sentence
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DSparkLiteError(
            f"{name} could not be fetched from the Hub ({reason}); check the network, or give a "
            "folder of JSON lines (--benchmark-dir)"
        ) from error
    return [prompt_of_row(name, row) for row in rows]


def prompt_of_row(name: str, row: dict) -> str:
    """Return the prompt of a row of a benchmark on the Hub. Raise DSparkLiteError if the row lacks
    a field."""
    try:
        prompt = BENCHMARKS[name].prompt(row)
    except (KeyError, IndexError, TypeError) as error:
        raise DSparkLiteError(
            f"a row of {name} on the Hub lacks a field ({error}), it has {', '.join(row)}: the "
            "layout has changed; give a folder of JSON lines (--benchmark-dir)"
        ) from None
    if not isinstance(prompt, str) or not prompt.strip():
        raise DSparkLiteError(
            f"a row of {name} on the Hub makes no prompt: the layout has changed; give a folder of "
            "JSON lines (--benchmark-dir)"
        )
    return prompt
