"""Ask programs that nobody here wrote whether they agree: `make judges`. Exit code 1 where one of them does not.

Everything is asked about the tiny checkpoints as committed: whole texts token for token, rounds one by one, files and fits number
for number. What is installed for it stands in build/environments. To assets/measurements/judges.json.
"""

import argparse
import json
import shutil
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import torch

from dspark_lite.common.files import ROOT, write_json
from tools.errors import report_errors
from dspark_lite.decoding.rounds import generate
from dspark_lite.course.exercises.lesson_08 import as_in_the_engine
from dspark_lite.course.measure.journal import header
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter
from dspark_lite.scheduling.policies import survival, top_k
from tools.judges import environments
from tools.judges.questions import DRAFTERS, exported, lab_of, prompts_of, rows_of
from tools.judges import judge_llama_cpp, judge_sglang, judge_transformers, speculators_cases

MEASURED = ROOT / "assets" / "measurements" / "judges.json"
SCRATCH = ROOT / "build" / "judges"
COUNTED = ("proposed", "accepted", "committed")  # of a round
SAME = 1e-3  # between two programs' draft logits in float32
BUDGET = "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py"
MISTAKEN = " with its mistake"


def loaded(lab):
    """Our drafters by name; None for plain decoding."""
    return {name: folder and load_drafter(folder, lab.target) for name, folder in DRAFTERS.items()}


def ours(lab, max_new_tokens, drafters):
    """What is asked of the engines, with our own answers by drafter: tokens, and by round the proposed and accepted drafts and how
    many tokens were committed; and the logits of the first block of the first prompt."""
    ids, answers = [lab.encode(prompt) for prompt in prompts_of(lab)], {}
    logits = {
        name: drafter and first_block(lab.target, drafter, ids[0])
        for name, drafter in drafters.items()
    }
    for name, drafter in drafters.items():
        runs = [
            generate(lab.target, drafter, prompt, max_new_tokens=max_new_tokens) for prompt in ids
        ]
        answers[name] = [
            {
                "tokens": run.token_ids,
                **{field: [getattr(r, field) for r in run.rounds] for field in COUNTED},
            }
            for run in runs
        ]
    return {
        "target": str(EMBEDDED / "tiny-target"),
        "drafters": {name: folder and str(EMBEDDED / folder) for name, folder in DRAFTERS.items()},
        "prompts": [prompt[0].tolist() for prompt in ids],
        "max_new_tokens": max_new_tokens,
        "stop": list(lab.stop_token_ids),
        "gamma": 7,
        "longest": 512,
        "answers": answers,
        "logits": logits,
    }


@torch.inference_mode()
def first_block(target, drafter, ids):
    """Logits [g][V] from which the first block after a prompt [1, n] is drawn greedily."""
    step, _ = target.prefill(ids, drafter.taps)
    state, anchor = drafter.begin(ids, step.features), step.logits[:, -1].argmax(-1)
    return drafter.draw_block(drafter.block_hidden(state, anchor), anchor, 0.0, None)[1][0].tolist()


def compared(judge, asked, found):
    """The lines of an engine: texts token for token, rounds one by one, and the first block's logits where it tells them."""
    rows = []
    for name, theirs in found["answers"].items():
        own = asked["answers"][name]
        texts = [
            [
                [token for token in answer["tokens"] if token not in asked["stop"]]
                for answer in answers
            ]
            for answers in (own, theirs)
        ]
        lines = {
            "greedy texts": [one == other for one, other in zip(*texts, strict=True)]
        }  # some leave the stop token out
        if asked["drafters"][name]:
            field, said = (
                ("accepted", "accepted drafts")
                if "accepted" in theirs[0]
                else ("committed", "tokens committed")
            )
            lines[f"{said} by round"] = [
                agreed for one, other in zip(own, theirs) for agreed in by_round(one, other, field)
            ]
        if found.get("logits", {}).get(name):
            both = (torch.tensor(one["logits"][name]) for one in (asked, found))
            lines["logits of the first block"] = torch.sub(*both).abs().amax(1).lt(SAME).tolist()
        rows += rows_of(
            judge, found["version"], {f"{name}, {what}": agreed for what, agreed in lines.items()}
        )
    return rows


def by_round(own, theirs, field):
    """Whether each round of an answer is the same. Our last block ends where the answer must; what an engine counts beyond does not."""
    if field == "committed":  # the target's own token is committed besides the drafts
        room = [count + 1 for count in own["proposed"]]
    else:
        room = list(map(min, own["proposed"], own["committed"]))
    return [
        None not in three and three[0] == min(three[1], three[2])
        for three in zip_longest(own[field], theirs[field], room)
    ]


def asked_of(script, python, asked, **options):
    """What a script answers that runs in an environment of its own."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    cases, answers = (SCRATCH / f"{Path(script).stem}_{what}.json" for what in ("cases", "answers"))
    cases.write_text(json.dumps(asked))
    environments.run(python, Path(__file__).with_name(script), cases, answers, **options)
    return json.loads(answers.read_text())


def with_transformers(lab, options):
    return judge_transformers.judge(lab, prompts_of(lab), options.tokens)


def with_sglang(lab, options):
    return judge_sglang.judge(SCRATCH / "sglang", options.newest)


def with_mlx(lab, options):
    asked = ours(lab, options.tokens, loaded(lab))
    return compared(
        "mlx-dspark",
        asked,
        asked_of("judge_mlx.py", environments.mlx_environment(options.newest), asked),
    )


def with_llama_cpp(lab, options):
    asked = ours(lab, options.tokens, loaded(lab))
    asked["drafters"] |= {
        name: str(exported(name, "llama.cpp", SCRATCH))
        for name, folder in DRAFTERS.items()
        if folder
    }
    return compared("llama.cpp", asked, judge_llama_cpp.judge(asked, SCRATCH / "llama.cpp"))


def with_vllm(lab, options):
    """Every drafter with its kernel called layer by layer, and as it is, beside ours with its mistake; and its shares of a budget."""
    drafters, python = loaded(lab), environments.vllm_environment()
    asked = ours(
        lab,
        options.tokens,
        drafters
        | {
            f"{name}{MISTAKEN}": as_in_the_engine(drafter)
            for name, drafter in drafters.items()
            if drafter
        },
    )
    asked["drafters"]["dflash"] = str(exported("dflash", "vllm", SCRATCH))
    asked["mended"] = [name for name, folder in asked["drafters"].items() if folder]
    asked["drafters"] |= {f"{name}{MISTAKEN}": asked["drafters"][name] for name in asked["mended"]}
    variables = environments.vllm_variables(VLLM_ENABLE_V1_MULTIPROCESSING="0")
    agreed = shares(next(python.parent.parent.glob(f"lib/python*/site-packages/{BUDGET}")))
    return [
        *compared("vLLM", asked, asked_of("judge_vllm.py", python, asked, env=variables)),
        *rows_of(
            "vLLM", environments.VLLM, {"a verification budget's shares, random steps": agreed}
        ),
    ]


def with_speculators(lab, options):
    prompts = [lab.encode(prompt) for prompt in prompts_of(lab)]
    shutil.rmtree(SCRATCH / "speculators", ignore_errors=True)
    asked, drafted, ours = speculators_cases.cases(lab.target, prompts, SCRATCH / "speculators")
    found = asked_of("judge_speculators.py", environments.speculators_environment(), asked)
    return rows_of(
        "speculators",
        found["version"],
        speculators_cases.compared(lab.target, asked, drafted, ours),
    )


def shares(file, gamma=7, most=8):
    """Whether vLLM, by its function in a `file`, and we give each request as much of a step's budget: a truth a case."""
    generator, agreed = torch.Generator().manual_seed(0), []
    assign = judge_sglang.definitions(
        file, ("_assign_draft_token_budget",), {"torch": torch}
    )._assign_draft_token_budget
    for case in range(judge_sglang.CASES):
        requests = 1 + case % most
        confidence, lengths = (
            torch.rand(requests, gamma, generator=generator).pow(0.5),
            torch.full((requests,), gamma, dtype=torch.int32),
        )
        budget = int(torch.randint(requests * gamma, (), generator=generator))
        assign(confidence, torch.arange(requests), lengths, budget, gamma)  # in place
        agreed.append(lengths.tolist() == top_k(survival(confidence), budget).tolist())
    return agreed


JUDGES = {
    "transformers": with_transformers,
    "SGLang": with_sglang,
    "mlx-dspark": with_mlx,
    "llama.cpp": with_llama_cpp,
    "vLLM": with_vllm,
    "speculators": with_speculators,
}


def heard(name, lab, options):
    """The lines of a judge; one that could not be had or broke down is named with its reason, never left out."""
    try:
        return JUDGES[name](lab, options)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines() or [str(error)]
        return [{"judge": name, "not_run": said[-1]}]
    except (
        Exception
    ) as error:  # another program's insides: whatever breaks there is that judge's own
        return [
            {"judge": name, "not_run": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        ]


def line(row):
    if "not_run" in row:
        return f"{row['judge']:13} not run: {row['not_run']}"
    verdict = "agreed" if row["agreed"] == row["of"] else "DISAGREED"
    return f"{row['judge']:13} {row['version']:10} {row['compared']:66} {row['agreed']:5} of {row['of']:5} {verdict}"


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=JUDGES, default=list(JUDGES), help="default: all of them"
    )
    parser.add_argument(
        "--newest",
        action="store_true",
        help="the newest versions of SGLang and mlx-dspark instead of the pinned ones",
    )
    parser.add_argument(
        "--prompts", type=int, default=6, metavar="N", help="a domain (default: %(default)s)"
    )
    parser.add_argument(
        "--tokens", type=int, default=64, metavar="N", help="longest answer (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=MEASURED, metavar="FILE")
    options = parser.parse_args(arguments)
    lab = lab_of(options)
    made, rows = {**header(lab), "prompts": options.prompts, "tokens": options.tokens}, []
    earlier = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for name in JUDGES:
        if name in options.only:
            found = [{**row, "commit": made["commit"]} for row in heard(name, lab, options)]
            print(*map(line, found), sep="\n", flush=True)
        else:
            found = [row for row in earlier if row["judge"] == name] or [
                {"judge": name, "not_run": "not asked yet", "commit": made["commit"]}
            ]
        rows += found
    write_json(options.out, {**made, "rows": rows})
    return (
        1
        if any(
            "not_run" not in row and row["agreed"] < row["of"]
            for row in rows
            if row["judge"] in options.only
        )
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
