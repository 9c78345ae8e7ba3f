"""python -m dspark_lite demo | bench | evaluate | quality | train | parity | doctor"""

import argparse
import sys
from pathlib import Path

from .errors import DSparkLiteError, RequestError


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; wrong input is answered by one sentence on stderr and exit code 2."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options) or 0
    except DSparkLiteError as error:
        print(f"dspark_lite: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dspark_lite: stopped; what was saved is kept", file=sys.stderr)
        return 130


def build_parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    parser = argparse.ArgumentParser(prog="python -m dspark_lite", description="Build, prove and measure DSpark.")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name, run, description):
        added = commands.add_parser(name, help=description, description=description)
        added.set_defaults(run=run)
        return added

    demo = command("demo", _demo, "answer one prompt and show every round")
    demo.add_argument("prompt", nargs="?", help="what to ask (default: a held-out math prompt)")
    demo.add_argument("--drafter", default="dspark", help="embedded drafter, folder or Hub id; 'plain' for none")
    demo.add_argument("--target", help="embedded checkpoint, folder or Hub id (default: that of the profile)")
    demo.add_argument("--temperature", type=float, default=0.0)
    demo.add_argument("--gamma", type=int, help="drafts a round (default: the whole block)")
    demo.add_argument("--seed", type=int, default=0)

    for name, run, description, count in (("evaluate", _evaluate, "accepted length by domain, with intervals", 200),
                                          ("bench", _bench, "decoding speed against plain decoding, batch 1", 20)):
        measure = command(name, run, description)
        measure.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
        measure.add_argument("--prompts", type=int, default=count, metavar="N", help="held-out prompts a domain (default: %(default)s)")
        measure.add_argument("--drafters", nargs="+", metavar="NAME", help="default: all of the profile")
        measure.add_argument("--temperature", type=float, default=1.0)
        measure.add_argument("--seed", type=int, default=0)

    quality = command("quality", _quality, "is the target right, and how uncertain is it?")
    quality.add_argument("--json", type=Path, metavar="FILE")
    quality.add_argument("--prompts", type=int, default=200, metavar="N")

    train = command("train", _train, "train what a recipe describes; a stopped run resumes")
    train.add_argument("recipe", help="a name in recipes/ or a JSON file")
    train.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    train.add_argument("--out", type=Path, help="checkpoint folder (default: assets/checkpoints/NAME)")

    parity = command("parity", _parity, "compare with folders of reference tensors")
    parity.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")

    command("doctor", _doctor, "what this machine has and which profile it gets")
    return parser


def _lab(prompts: int, seed: int):
    from .lab import setup

    if prompts < 1:
        raise RequestError(f"--prompts is {prompts}; at least one prompt a domain is needed")
    return setup(seed=seed, prompts=prompts)


def _demo(options) -> None:
    from .decoding import generate
    from .lab import PROFILES, Lab, choose_profile, setup
    from .checkpoints import load_drafter, load_target
    from .sampling import check_temperature

    check_temperature(options.temperature)
    lab = setup(seed=options.seed, prompts=1)
    if options.target:
        lab = Lab(lab.profile, load_target(options.target), lab.prompts, options.seed)
    known = PROFILES[choose_profile()]
    drafter = None if options.drafter == "plain" else load_drafter(known.get(options.drafter, options.drafter), lab.target)
    prompt = lab.prompts["math"][0] if options.prompt is None else options.prompt
    if not prompt.strip():
        raise RequestError("the prompt is empty; give at least one word")
    if lab.tokenizer is None:
        raise RequestError(f"{options.target} has no tokenizer.json, so it cannot read text; use it from Python with token ids")
    result = generate(lab.target, drafter, lab.encode(prompt), max_new_tokens=lab.max_new_tokens, temperature=options.temperature,
                      generator=lab.generator(), gamma=options.gamma)
    print(f"{prompt}\n\n{lab.decode(result.token_ids)}\n")
    for number, r in enumerate(result.rounds, 1):
        kept = lab.tokenizer.decode(r.draft_tokens[:r.accepted])
        print(f"round {number:2}: {r.accepted} of {r.proposed} accepted  {kept!r} + {lab.tokenizer.decode(r.tokens[r.accepted:])!r}")
    print(f"\naccepted length {result.accepted_length:.2f}, {len(result.token_ids)} tokens in {result.decode_seconds:.2f} s on {lab.device_name}")


def _evaluate(options) -> None:
    from .evaluation import evaluate, write_json

    lab = _lab(options.prompts, options.seed)
    measured = evaluate(lab, options.drafters or lab.drafters, prompts=options.prompts, temperature=options.temperature)
    for row in measured["rows"]:
        rates = " ".join("  - " if rate is None else f"{rate:.2f}" for rate in row["conditional_acceptance"])
        length = f"{row['accepted_length']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        print(f"{row['drafter']:14} {row['domain']:5} accepted length {length}  by position {rates}")
    if "dspark_over_dflash" in measured:
        gain = measured["dspark_over_dflash"]
        print(f"DSpark over DFlash, macro-average: {gain['value']:+.1%} [{gain['low']:+.1%}, {gain['high']:+.1%}]")
    if options.json:
        write_json(options.json, measured)


def _bench(options) -> None:
    from .evaluation import bench, write_json

    lab = _lab(options.prompts, options.seed)
    measured = bench(lab, options.drafters or lab.drafters, prompts=options.prompts, temperature=options.temperature)
    for row in measured["rows"]:
        print(f"{row['drafter']:14} {row['domain']:5} {row['tokens_per_second']:8.1f} tokens/s  {row['speedup']:.2f} x plain  "
              f"accepted length {row['accepted_length']:.2f}")
    for name, speedup in measured["macro_speedup"].items():
        print(f"{name:14} macro-average {speedup:.2f} x plain")
    for name, times in measured["draft_milliseconds_by_context"].items():
        print(f"{name:14} draft time a round: " + ", ".join(f"{value:.2f} ms at {context} tokens" for context, value in times.items()))
    print(f"on {measured['device']}, temperature {options.temperature}, decoding only")
    if options.json:
        write_json(options.json, measured)


def _quality(options) -> None:
    from .evaluation import target_quality, write_json

    measured = target_quality(_lab(options.prompts, 0), options.prompts)
    for row in measured["rows"]:
        right = f"{row['right']:.1%} right (greedy), " if "right" in row else ""
        print(f"{row['domain']:5} {right}{row['entropy_nats']:.3f} nats a token, {row['answer_tokens']:.1f} tokens an answer")
    if options.json:
        write_json(options.json, measured)


def _train(options) -> None:
    from .training.recipes import train

    print(f"written to {train(options.recipe, device=options.device, out=options.out)}")


def _parity(options) -> int:
    from .parity import check_case

    reports = [check_case(folder) for folder in options.folders]
    print(*reports, sep="\n")
    return 0 if all(report.passed for report in reports) else 1


def _doctor(options) -> None:
    import torch

    from .lab import choose_profile, versions

    print(" ".join(f"{name} {version}" for name, version in versions().items()))
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        print(f"GPU {torch.cuda.get_device_name()}: {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    else:
        print(f"no GPU; {torch.get_num_threads()} CPU threads")
    print(f"profile: {choose_profile()}")


if __name__ == "__main__":
    sys.exit(main())
