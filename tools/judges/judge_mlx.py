"""mlx-dspark decodes every prompt with each drafter, greedily: texts and accepted drafts by round.

Everything is computed in float32 and no drafter is quantised, which is not its default. `ask` runs
here, `main` in its own environment: judge_mlx.py CASES ANSWERS.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

MLX = "0.20.3"


def ask(lab, options):
    """Return the rows of this judge."""
    from tools.judges import environments, questions

    package = "mlx-dspark" if options.newest else f"mlx-dspark=={MLX}"
    python = environments.environment(
        "mlx",
        lambda python: environments.pip(python, "install", "--upgrade", "mlx[cpu]", package),
        anew=options.newest,
    )
    asked = questions.asked_of_engines(lab, options.tokens, questions.loaded(lab))
    found = environments.answer(__file__, python, asked, questions.SCRATCH)
    return questions.compared("mlx-dspark", asked, found)


def main(cases, answers):
    """Decode every prompt with every drafter."""
    from mlx_dspark import load_drafter, load_target

    asked, found = json.loads(Path(cases).read_text()), {}
    target, tokenizer = load_target(asked["target"], require_tap=True)
    in_float32(target.model)
    for name, folder in asked["drafters"].items():
        drafter = in_float32(load_drafter(folder, quantize=False)[0]) if folder else None
        found[name] = [
            decode(
                target, tokenizer, drafter, prompt_ids=ids, max_new_tokens=asked["max_new_tokens"]
            )
            for ids in asked["prompts"]
        ]
    Path(answers).write_text(json.dumps({"version": version("mlx-dspark"), "answers": found}))


def in_float32(module):
    """Return the module with every floating parameter in float32."""
    import mlx.core as mx

    def widened(value):
        return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value

    module.apply(widened)
    return module


def decode(target, tokenizer, drafter, **asked):
    """Return tokens, cut to the length asked for if a last round wrote more, and accepted drafts by
    round."""
    from mlx_dspark import greedy_generate, speculative_generate

    if drafter is None:
        return {"tokens": greedy_generate(target, tokenizer, **asked).token_ids, "accepted": []}
    accepted = []
    result = speculative_generate(
        target,
        tokenizer,
        drafter,
        **asked,
        max_draft_tokens=None,
        lookup_drafts=False,
        on_round=lambda **round_: accepted.append(round_["accepted"]),
    )
    return {"tokens": result.token_ids[: asked["max_new_tokens"]], "accepted": accepted}


if __name__ == "__main__":
    main(*sys.argv[1:])
