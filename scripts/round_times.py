"""Milliseconds of a round at batch 1 and one thread, of an earlier commit and of this checkout's two paths, by turns in one run.

    python scripts/round_times.py [--commit 6efe99b] [--turns 20] [--json FILE]

The commit is checked out into a worktree under build/; a process of its own decodes with each of the two packages, one answer
after the other. Both write the same tokens in the same rounds. The fast path is compiled before the first turn.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
CONTEXTS, NEW_TOKENS = (200, 1500), 24
DRAFTERS = ("plain", "tiny-dspark")


def serve() -> None:
    """Decodes what a line of stdin asks for; answers with the seconds of every round. Runs with the package of either commit."""
    import torch

    from dspark_lite import generate, load_drafter, load_target

    torch.set_num_threads(1)
    target = load_target("tiny-target")
    drafters = {name: None if name == "plain" else load_drafter(name, target) for name in DRAFTERS}
    for line in sys.stdin:
        asked = json.loads(line)
        generator = torch.Generator().manual_seed(asked["seed"])
        ids = torch.randint(target.vocab_size, (1, asked["context"]), generator=generator)
        options = {"fast": True} if asked["path"] == "fast" else {}
        made = generate(target, drafters[asked["drafter"]], ids, max_new_tokens=NEW_TOKENS, temperature=1.0, stop_token_ids=(),
                        generator=generator, **options)
        print(json.dumps([made.token_ids, [r.draft_seconds + r.verify_seconds for r in made.rounds]]), flush=True)


def worktree(commit: str) -> Path:
    """A checkout of the commit under build/."""
    folder = ROOT / "build" / "rounds" / commit
    if not folder.exists():
        subprocess.run(["git", "-C", ROOT, "worktree", "prune"], check=True)
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", folder, commit], check=True, stdout=subprocess.DEVNULL)
    return folder


class Worker:
    """A process that decodes with the package of one checkout."""

    def __init__(self, folder: Path):
        environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen([sys.executable, __file__, "--serve"], cwd=folder, env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **asked) -> list:
        """Tokens and seconds of an answer's rounds."""
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def measure(commit: str, turns: int) -> list[dict]:
    """One row for each drafter and context: median milliseconds of a round of the commit, the eager and the fast path."""
    before, now = Worker(worktree(commit)), Worker(ROOT)
    works = {commit: (before, "eager"), "eager": (now, "eager"), "fast": (now, "fast")}
    rows = []
    for drafter in DRAFTERS:
        for context in CONTEXTS:
            spent = {name: [] for name in works}
            for seed in range(turns + 1):
                tokens = {}
                for name, (worker, path) in works.items():
                    tokens[name], seconds = worker.ask(drafter=drafter, context=context, path=path, seed=seed)
                    spent[name] += seconds if seed else []  # the first turn compiles and warms up
                if len({tuple(one) for one in tokens.values()}) > 1:
                    print(f"{drafter} at {context} tokens, seed {seed}: the texts differ", file=sys.stderr)
            times = {name: 1e3 * float(np.median(one)) for name, one in spent.items()}
            rows.append({"drafter": drafter, "context": context, "milliseconds": times,
                         "ratio": {name: times[name] / times[commit] for name in ("eager", "fast")}})
            print(f"{drafter:12} {context:5} tokens of context: " + ", ".join(f"{name} {value:.2f} ms" for name, value in times.items())
                  + "".join(f"; {name} {value:.2f} of {commit}" for name, value in rows[-1]["ratio"].items()), flush=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default="6efe99b")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
    else:  # the workers import the package of their own checkout, so it is not imported above
        sys.path.insert(0, str(ROOT))
        from dspark_lite.common.files import write_json
        from dspark_course.measure.journal import check_writable

        if options.json:
            check_writable(options.json)
        measured = {"commit": options.commit, "turns": options.turns, "rows": measure(options.commit, options.turns)}
        if options.json:
            write_json(options.json, measured)
