"""Benchmarks: prompts from a folder and from rows of the Hub, and every way in which a file can be wrong."""

import json

import pytest

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.course.measure.benchmarks import (
    BENCHMARKS,
    Benchmark,
    load_benchmark,
    prompt_of_row,
)
from dspark_lite.course.paper import numbers

ROWS = {  # a row of each benchmark as the Hub has it, and what its prompt must hold
    "gsm8k": ({"question": "Two and two?", "answer": "#### 4"}, ["Two and two?\n", "\\boxed{}"]),
    "math500": (
        {"problem": "Is $1$ prime?", "solution": "", "answer": "no"},
        ["Is $1$ prime?\n", "\\boxed{}"],
    ),
    "aime25": (
        {"problem_idx": 1, "problem": "Find $n$.", "answer": 7},
        ["Find $n$.\n", "step by step"],
    ),
    "humaneval": ({"task_id": "0", "prompt": "def f(x):\n"}, ["```python\ndef f(x):\n\n```"]),
    "mbpp": ({"task_id": 2, "prompt": "Write a function."}, ["Write a function."]),
    "livecodebench": (
        {"question_content": "Sum them.", "starter_code": ""},
        ["Sum them.", "standard input"],
    ),
    "mt-bench": ({"prompt": ["First turn.", "Second turn."], "prompt_id": 1}, ["First turn."]),
    "alpaca": (
        {"instruction": "Sort.", "input": "3, 1", "output": "1, 3"},
        ["Sort.\n\nInput:\n3, 1"],
    ),
    "arena-hard-v2": ({"uid": "a", "prompt": "Explain."}, ["Explain."]),
}


@pytest.fixture
def folder(tmp_path):
    """Write lines, given as they are or as objects, to humaneval.jsonl; return the folder."""

    def write(*lines):
        encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        (tmp_path / "humaneval.jsonl").write_bytes(b"".join(line + b"\n" for line in encoded))
        return tmp_path

    return write


def test_the_nine_are_those_of_table_1():
    domains = numbers()["table1"]["domains"]
    plain = {
        domain: sorted(name.lower().replace(" ", "-") for name in names)
        for domain, names in domains.items()
    }
    assert plain == {
        domain: sorted(name for name, b in BENCHMARKS.items() if b.domain == domain)
        for domain in domains
    }
    assert sum(benchmark.samples for benchmark in BENCHMARKS.values()) == 3030


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_row_of_the_hub_becomes_a_prompt(name):
    row, parts = ROWS[name]
    prompt = prompt_of_row(name, row)
    assert all(part in prompt for part in parts) and "Second turn" not in prompt
    if BENCHMARKS[name].domain == "math":
        assert prompt.endswith("put your final answer within \\boxed{}.")
    with pytest.raises(
        DSparkLiteError, match=f"a row of {name} on the Hub lacks a field .* it has other"
    ):
        prompt_of_row(name, {"other": "x"})
    for changed in (None, 1) if name != "mt-bench" else (None, [], [""], [1]):
        with pytest.raises(DSparkLiteError, match="the layout has changed"):
            prompt_of_row(name, {field: changed for field in row})


def test_optional_parts_of_rows():
    assert prompt_of_row("alpaca", {"instruction": "Sing.", "input": ""}) == "Sing."
    assert "class Solution:" in prompt_of_row(
        "livecodebench", {"question_content": "q", "starter_code": "class Solution:"}
    )


def test_first_turns_of_a_folder_in_order(folder):
    held = folder(
        {"turns": ["one\u2028still one", "later"]},
        b"",
        {"turns": ["two"], "id": 4},
        {"turns": ["größer"]},
    )
    assert load_benchmark("humaneval", held) == ["one\u2028still one", "two", "größer"]


def test_a_cut_is_shuffled_with_the_papers_seed_and_a_shorter_cut_is_its_beginning(folder):
    texts = [f"prompt {number}" for number in range(200)]
    held = folder(*({"turns": [text]} for text in texts))
    paper = load_benchmark("humaneval", held)
    assert (
        len(paper) == BENCHMARKS["humaneval"].samples
        and set(paper) < set(texts)
        and paper != texts[:164]
    )
    assert load_benchmark("humaneval", held, 5) == paper[:5]
    assert (
        load_benchmark("humaneval", held, 200) == load_benchmark("humaneval", held, 1000) == texts
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"turns": ["a"]', "is not JSON"),
        (b'{"turns": ["\xff"]}', "is not JSON"),
        ({"prompt": "a"}, "has no `turns`"),
        ({"turns": []}, "has no `turns`"),
        ({"turns": "a"}, "has no `turns`"),
        ({"turns": ["a", 1]}, "has no `turns`"),
        (["a"], "has no `turns`"),
        ({"turns": [" "]}, "has an empty first turn"),
    ],
)
def test_a_malformed_line_is_named_by_file_and_number(folder, line, sentence):
    held = folder({"turns": ["fine"]}, b"", line, {"turns": ["fine"]})
    with pytest.raises(DSparkLiteError, match=f"humaneval.jsonl, line 3 {sentence}"):
        load_benchmark("humaneval", held)


def test_what_is_missing_is_told(folder, tmp_path):
    with pytest.raises(
        DSparkLiteError, match="there is no benchmark 'mmlu'; benchmarks are gsm8k, math500"
    ):
        load_benchmark("mmlu", tmp_path)
    with pytest.raises(
        DSparkLiteError, match="humaneval.jsonl is missing; the folder holds no .jsonl file"
    ):
        load_benchmark("humaneval", tmp_path)
    held = folder(b"", b"  ")
    with pytest.raises(
        DSparkLiteError, match="mbpp.jsonl is missing; the folder holds humaneval.jsonl"
    ):
        load_benchmark("mbpp", held)
    with pytest.raises(DSparkLiteError, match="humaneval.jsonl holds no prompts"):
        load_benchmark("humaneval", held)


def test_rows_come_through_the_datasets_library(tmp_path, monkeypatch):
    """A folder stands for the Hub: the library reads it by the same call."""
    rows = [{"question": f"{number}?", "answer": "#### 1"} for number in range(6)]
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def source(folder):
        found = {"path": str(folder), "split": "test", "cache_dir": str(tmp_path / "cache")}
        monkeypatch.setitem(
            BENCHMARKS, "gsm8k", Benchmark("math", 4, found, BENCHMARKS["gsm8k"].prompt)
        )

    source(tmp_path / "hub")
    prompts = load_benchmark("gsm8k")
    assert len(prompts) == 4 and set(prompts) < {prompt_of_row("gsm8k", row) for row in rows}
    assert load_benchmark("gsm8k", count=2) == prompts[:2]
    source(tmp_path / "nowhere")
    with pytest.raises(
        DSparkLiteError, match="gsm8k could not be fetched from the Hub .*--benchmark-dir"
    ):
        load_benchmark("gsm8k")
