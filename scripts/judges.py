"""Ask programs that nobody here wrote whether they agree: `make judges`. Exit code 1 where one of them does not.

Everything is asked about the tiny checkpoints as committed: whole texts token for token, rounds one by one, files and fits number
for number. What is installed for it stands in build/environments. To assets/measurements/judges.json.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import environments  # noqa: E402
import judge_sglang  # noqa: E402
import judge_transformers  # noqa: E402

from dspark_lite.common.errors import DSparkLiteError  # noqa: E402
from dspark_lite.common.files import ROOT, write_json  # noqa: E402
from dspark_lite.decoding.rounds import generate  # noqa: E402
from dspark_lite.measure.journal import check_writable, header  # noqa: E402
from dspark_lite.measure.lab import setup  # noqa: E402
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter  # noqa: E402
from dspark_lite.models.export import export  # noqa: E402

MEASURED = ROOT / "assets" / "measurements" / "judges.json"
SCRATCH = ROOT / "build" / "judges"
DRAFTERS = {"plain": None, "dspark": "tiny-dspark", "dflash": "tiny-dflash"}


def prompts_of(lab):
    """The prompts of all domains in turn."""
    return [prompt for of_domain in lab.prompts.values() for prompt in of_domain]


def ours(lab, max_new_tokens):
    """What is asked of the engines, with our own answers: tokens and accepted drafts by round, by drafter."""
    ids = [lab.encode(prompt) for prompt in prompts_of(lab)]
    answers = {}
    for name, folder in DRAFTERS.items():
        drafter = load_drafter(folder, lab.target) if folder else None
        runs = [generate(lab.target, drafter, prompt, max_new_tokens=max_new_tokens) for prompt in ids]
        answers[name] = [{"tokens": run.token_ids, "accepted": [r.accepted for r in run.rounds]} for run in runs]
    return {"target": str(EMBEDDED / "tiny-target"), "drafters": {name: folder and str(EMBEDDED / folder) for name, folder in DRAFTERS.items()},
            "prompts": [prompt[0].tolist() for prompt in ids], "max_new_tokens": max_new_tokens, "stop": list(lab.stop_token_ids),
            "gamma": 7, "longest": 512, "answers": answers}


def compared(judge, asked, found):
    """The lines of an engine: texts token for token; rounds one by one where it tells them, else how many an answer took."""
    rows = []
    for name, theirs in found["answers"].items():
        own = asked["answers"][name]
        line = {"judge": judge, "version": found["version"]}
        same = [written(one, asked["stop"]) == written(other, asked["stop"]) for one, other in zip(own, theirs, strict=True)]
        rows.append({**line, "compared": f"{name}, greedy texts", "agreed": sum(same), "of": len(same)})
        if asked["drafters"][name] and "accepted" in theirs[0]:
            pairs = [pair for one, other in zip(own, theirs) for pair in zip(padded(one, other), padded(other, one))]
            rows.append({**line, "compared": f"{name}, accepted drafts by round", "agreed": sum(a == b for a, b in pairs), "of": len(pairs)})
        elif asked["drafters"][name]:
            same = [len(one["accepted"]) == other["rounds"] for one, other in zip(own, theirs)]
            rows.append({**line, "compared": f"{name}, rounds of an answer", "agreed": sum(same), "of": len(same)})
    return rows


def written(answer, stop):
    """The tokens of an answer without the stop token, which some engines leave out."""
    return [token for token in answer["tokens"] if token not in stop]


def padded(answer, other):
    """Accepted drafts by round, with None for rounds that only the other answer has."""
    return answer["accepted"] + [None] * (len(other["accepted"]) - len(answer["accepted"]))


def asked_of(script, python, asked, **options):
    """What a script answers that runs in an environment of its own."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    cases, answers = SCRATCH / "cases.json", SCRATCH / f"{Path(script).stem}.json"
    cases.write_text(json.dumps(asked))
    environments.run(python, ROOT / "scripts" / script, cases, answers, **options)
    return json.loads(answers.read_text())


def with_transformers(lab, options):
    return judge_transformers.judge(lab, prompts_of(lab), options.tokens)


def with_sglang(lab, options):
    return judge_sglang.judge(SCRATCH / "sglang", options.newest)


def with_mlx(lab, options):
    asked = ours(lab, options.tokens)
    return compared("mlx-dspark", asked, asked_of("judge_mlx.py", environments.mlx_environment(options.newest), asked))


def with_vllm(lab, options):
    asked = ours(lab, options.tokens)
    folder = SCRATCH / "tiny-dflash"
    if not folder.exists():
        export("tiny-dflash", "vllm", folder)
    asked["drafters"]["dflash"] = str(folder)
    variables = environments.vllm_variables(VLLM_ENABLE_V1_MULTIPROCESSING="0")
    return compared("vLLM", asked, asked_of("judge_vllm.py", environments.vllm_environment(), asked, env=variables))


JUDGES = {"transformers": with_transformers, "SGLang": with_sglang, "mlx-dspark": with_mlx, "vLLM": with_vllm}


def heard(name, lab, options):
    """The lines of a judge; one that could not be had or broke down is named with its reason, never left out."""
    try:
        return JUDGES[name](lab, options)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines() or [str(error)]
        return [{"judge": name, "not_run": said[-1]}]
    except Exception as error:  # another program's insides: whatever breaks there is that judge's own
        return [{"judge": name, "not_run": f"{type(error).__name__}: {' '.join(str(error).split())}"}]


def recorded(path):
    """The rows of an earlier run by judge, for those that are not asked this time."""
    held = json.loads(path.read_text())["rows"] if path.exists() else []
    return {name: [row for row in held if row["judge"] == name] for name in JUDGES}


def line(row):
    """A row for a reader."""
    if "not_run" in row:
        return f"{row['judge']:13} not run: {row['not_run']}"
    verdict = "agreed" if row["agreed"] == row["of"] else "DISAGREED"
    return f"{row['judge']:13} {row['version']:10} {row['compared']:66} {row['agreed']:5} of {row['of']:5} {verdict}"


def main(arguments=None):
    """Ask the judges; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=JUDGES, default=list(JUDGES), help="default: all of them")
    parser.add_argument("--newest", action="store_true", help="the newest versions of SGLang and mlx-dspark instead of the pinned ones")
    parser.add_argument("--prompts", type=int, default=6, metavar="N", help="a domain (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="longest answer (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=MEASURED, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        check_writable(options.out)
        lab = setup("tiny", prompts=options.prompts)
    except DSparkLiteError as error:
        print(error, file=sys.stderr)
        return 2
    made, rows, earlier = {**header(lab), "prompts": options.prompts, "tokens": options.tokens}, [], recorded(options.out)
    for name in JUDGES:
        if name in options.only:
            found = [{**row, "commit": made["commit"]} for row in heard(name, lab, options)]
            print(*map(line, found), sep="\n", flush=True)
        else:
            found = earlier[name] or [{"judge": name, "not_run": "not asked yet", "commit": made["commit"]}]
        rows += found
    write_json(options.out, {**made, "rows": rows})
    return 1 if any("not_run" not in row and row["agreed"] < row["of"] for row in rows if row["judge"] in options.only) else 0


if __name__ == "__main__":
    sys.exit(main())
