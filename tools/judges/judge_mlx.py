"""mlx-dspark as a judge, run by its own Python: judge_mlx.py CASES ANSWERS reads prompts and writes what it decodes.

Everything is computed in float32 and no drafter is quantised, which is not its default.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
from mlx_dspark import greedy_generate, load_drafter, load_target, speculative_generate


def in_float32(module):
    """The module with every floating parameter in float32."""
    module.apply(
        lambda value: value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value
    )
    return module


def main(cases, answers):
    """Decode every prompt with every drafter, greedily."""
    asked = json.loads(Path(cases).read_text())
    target, tokenizer = load_target(asked["target"], require_tap=True)
    in_float32(target.model)
    found = {}
    for name, folder in asked["drafters"].items():
        drafter = in_float32(load_drafter(folder, quantize=False)[0]) if folder else None
        found[name] = [
            decode(target, tokenizer, drafter, ids, asked["max_new_tokens"])
            for ids in asked["prompts"]
        ]
    Path(answers).write_text(json.dumps({"version": version("mlx-dspark"), "answers": found}))


def decode(target, tokenizer, drafter, ids, max_new_tokens):
    """Tokens, cut to the length asked for where a last round wrote more, and accepted drafts by round."""
    if drafter is None:
        return {
            "tokens": greedy_generate(
                target, tokenizer, prompt_ids=ids, max_new_tokens=max_new_tokens
            ).token_ids,
            "accepted": [],
        }
    accepted = []
    result = speculative_generate(
        target,
        tokenizer,
        drafter,
        prompt_ids=ids,
        max_new_tokens=max_new_tokens,
        max_draft_tokens=None,
        lookup_drafts=False,
        on_round=lambda **round_: accepted.append(round_["accepted"]),
    )
    return {"tokens": result.token_ids[:max_new_tokens], "accepted": accepted}


if __name__ == "__main__":
    main(*sys.argv[1:])
