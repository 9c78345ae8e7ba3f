"""Serve the tiny target with vLLM on this machine, without a GPU, and ask it as an application would: `make engine`.

vLLM's OpenAI server on loopback, plain and with each drafter, with and without its prefix cache, one request at a time and
several: streamed chat answers through the ordinary client, acceptance from the server's Prometheus metrics, both beside what
`generate` does with the same prompts. Minutes: the draft's kernels are interpreted. To assets/measurements/engine.json; logs stay in
build/engine.
"""

import argparse
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import ROOT, write_json
from tools.errors import report_errors
from dspark_lite.decoding.rounds import generate
from dspark_lite.course.measure.journal import header
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter
from tools.judges import environments
from tools.judges.questions import DRAFTERS, exported, lab_of, prompts_of
from tools.local_server import first_error, serving

MEASURED = ROOT / "assets" / "measurements" / "engine.json"
SCRATCH = ROOT / "build" / "engine"
COUNTERS = {
    "rounds": "vllm:spec_decode_num_drafts_total",
    "proposed": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
}
BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def settings():
    """The servers that are started: every drafter with and without prefix cache, and DSpark with several requests at once."""
    runs = [
        {"drafter": name, "prefix_cache": cache, "at_once": 1}
        for name in DRAFTERS
        for cache in (True, False)
    ]
    return [*runs, {"drafter": "dspark", "prefix_cache": True, "at_once": 4}]


def command(python, run, folder, port):
    """The words that start a server."""
    words = [
        python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--model",
        EMBEDDED / "tiny-target",
        "--served-model-name",
        "tiny-target",
        "--dtype",
        "float32",
        "--enforce-eager",
        "--max-model-len",
        512,
        "--max-num-seqs",
        8,
        "--enable-prefix-caching" if run["prefix_cache"] else "--no-enable-prefix-caching",
    ]
    if folder:
        words += [
            "--speculative-config",
            json.dumps({"method": "dspark", "model": str(folder), "num_speculative_tokens": 7}),
        ]
    return words


def counted(text, positions=7):
    """The counters of speculation in a page of Prometheus metrics: totals, and accepted drafts by position."""
    values = re.findall(r"^([\w:]+)(?:\{(.*)\})? (\S+)$", text, flags=re.M)
    found = {
        name: int(sum(float(value) for metric, _, value in values if metric == counter))
        for name, counter in COUNTERS.items()
    }
    found["accepted_by_position"] = [
        int(
            sum(
                float(value)
                for metric, labels, value in values
                if metric == BY_POSITION and f'position="{k}"' in labels
            )
        )
        for k in range(positions)
    ]
    return found


def ours(lab, name, prompts, max_new_tokens, positions=7):
    """Texts and counters of `generate` for the same prompts."""
    drafter = load_drafter(DRAFTERS[name], lab.target) if DRAFTERS[name] else None
    runs = [
        generate(lab.target, drafter, lab.encode(prompt), max_new_tokens=max_new_tokens)
        for prompt in prompts
    ]
    rounds = [r for run in runs for r in run.rounds] if drafter else []
    return [lab.decode(run.token_ids) for run in runs], {
        "rounds": len(rounds),
        "proposed": sum(r.proposed for r in rounds),
        "accepted": sum(r.accepted for r in rounds),
        "accepted_by_position": [sum(r.accepted > k for r in rounds) for k in range(positions)],
    }


def log_of(run):
    """Where a server's words are kept."""
    return SCRATCH / f"{'-'.join(str(value) for value in run.values())}.log"


def measure(run, prompts, max_new_tokens, texts, own):
    """One server asked all prompts: its texts beside ours, its counters beside our `own`."""
    python, log = environments.vllm_environment(), log_of(run)
    folder = DRAFTERS[run["drafter"]] and EMBEDDED / DRAFTERS[run["drafter"]]
    if run["drafter"] == "dflash":
        folder = exported("dflash", "vllm", SCRATCH)
    cases, answers = SCRATCH / "cases.json", SCRATCH / "answers.json"
    variables = environments.vllm_variables()
    with serving(lambda port: command(python, run, folder, port), log, variables) as address:
        cases.write_text(
            json.dumps(
                {
                    "url": f"{address}/v1",
                    "model": "tiny-target",
                    "prompts": prompts,
                    "max_new_tokens": max_new_tokens,
                    "at_once": run["at_once"],
                }
            )
        )
        environments.run(python, Path(__file__).with_name("engine_client.py"), cases, answers)
        theirs = counted(urllib.request.urlopen(f"{address}/metrics").read().decode())
    found = json.loads(answers.read_text())
    same = sum(one["text"].strip() == text.strip() for one, text in zip(found, texts, strict=True))
    return {
        **run,
        "same_texts": same,
        "of": len(texts),
        "vllm": theirs,
        "generate": own,
        "answers": found,
    }


def line(row):
    how = f"prefix cache {'on' if row['prefix_cache'] else 'off'}, {row['at_once']} at once"
    if "not_run" in row:
        return f"{row['drafter']:7} {how}: not run: {row['not_run']}"
    counts = (
        f", rounds {row['vllm']['rounds']} and {row['generate']['rounds']}, accepted {row['vllm']['accepted']} and "
        f"{row['generate']['accepted']}"
        if row["generate"]["rounds"]
        else ""
    )
    return f"{row['drafter']:7} {how}: {row['same_texts']} of {row['of']} texts{counts}"


def tried(run, prompts, max_new_tokens, own):
    """The row of a server; one that does not start or breaks down has the reason in it."""
    try:
        return measure(run, prompts, max_new_tokens, *own)
    except subprocess.CalledProcessError:  # the client's words are only that there was no answer
        return {
            **run,
            "not_run": f"the server started and broke down at a request ({first_error(log_of(run))})",
        }
    except (DSparkLiteError, OSError) as error:
        return {**run, "not_run": str(error)}


@report_errors
def main(arguments):
    """Start the servers one after the other and ask them; return the exit code: 1 where a text is not ours or no server ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--prompts", type=int, default=2, metavar="N", help="a domain (default: %(default)s)"
    )
    parser.add_argument(
        "--tokens", type=int, default=48, metavar="N", help="longest answer (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=MEASURED, metavar="FILE")
    options = parser.parse_args(arguments)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    lab = lab_of(options)
    prompts, rows = prompts_of(lab), []
    made = {
        **header(lab),
        "engine": f"vLLM {environments.VLLM}",
        "prompts": options.prompts,
        "tokens": options.tokens,
        "rows": rows,
    }
    own = {name: ours(lab, name, prompts, options.tokens) for name in DRAFTERS}
    for run in settings():
        rows.append(tried(run, prompts, options.tokens, own[run["drafter"]]))
        print(line(rows[-1]), flush=True)
        write_json(options.out, made)
    asked = [row for row in rows if "not_run" not in row]
    return 0 if asked and all(row["same_texts"] == row["of"] for row in asked) else 1


if __name__ == "__main__":
    sys.exit(main())
