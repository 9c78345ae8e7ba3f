"""python -m dspark_lite demo | bench | evaluate | quality | profile | calibrate | train | export | parity | doctor"""

import argparse
import sys
from pathlib import Path

from .common.errors import DSparkLiteError, RequestError


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; wrong input is answered by one sentence on stderr and exit code 2."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        _check_results(options)
        return options.run(options) or 0
    except DSparkLiteError as error:
        print(f"dspark_lite: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dspark_lite: stopped; what was saved is kept", file=sys.stderr)
        return 130


def _check_results(options) -> None:
    """Raises DSparkLiteError where what a command is to write could not be written: before it measures, not after."""
    files = [path for name in ("json", "out") if (path := getattr(options, name, None))]
    if files:
        from .measure.journal import check_writable

        for path in files:
            check_writable(path)


def build_parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    parser = argparse.ArgumentParser(prog="python -m dspark_lite", description="Build, prove and measure DSpark.")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, (says, add_options, run) in COMMANDS.items():
        command = commands.add_parser(name, help=says, description=says)
        add_options(command)
        command.set_defaults(run=run)
    return parser


def _measuring_options(measure, prompts: str, seed: str) -> None:
    measure.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    measure.add_argument("--prompts", type=int, metavar="N", help=f"default: {prompts}")
    measure.add_argument("--drafters", nargs="+", metavar="NAME",
                         help="names, folders or Hub ids (default: all of the profile)")
    measure.add_argument("--temperature", type=float, default=1.0)
    measure.add_argument("--seed", type=int, help=f"default: {seed}")


def _target_option(measure) -> None:
    measure.add_argument("--target", help="embedded checkpoint, folder or Hub id (default: that of the profile)")


def _lab(prompts: int, seed: int, target: str | None = None):
    from .measure.lab import setup

    if prompts < 1:
        raise RequestError(f"--prompts is {prompts}; at least one prompt a domain is needed")
    return setup(seed=seed, prompts=prompts, target=target)


def _demo_options(demo) -> None:
    demo.add_argument("prompt", nargs="?", help="what to ask (default: a held-out math prompt)")
    demo.add_argument("--drafter", default="dspark", help="embedded drafter, folder or Hub id; 'plain' for none")
    demo.add_argument("--target", help="embedded checkpoint, folder or Hub id (default: that of the profile)")
    demo.add_argument("--temperature", type=float, default=0.0)
    demo.add_argument("--gamma", type=int, help="drafts a round (default: the whole block)")
    demo.add_argument("--seed", type=int, default=0)


def _demo(options) -> None:
    from .decoding.rounds import generate
    from .decoding.sampling import check_temperature
    from .measure.lab import setup

    check_temperature(options.temperature)
    lab = setup(seed=options.seed, prompts=1, target=options.target)
    drafter = None if options.drafter == "plain" else lab.drafter(options.drafter)
    prompt = lab.prompts["math"][0] if options.prompt is None else options.prompt
    if not prompt.strip():
        raise RequestError("the prompt is empty; give at least one word")
    result = generate(lab.target, drafter, lab.encode(prompt), max_new_tokens=lab.max_new_tokens,
                      temperature=options.temperature, generator=lab.generator(), gamma=options.gamma)
    print(f"{prompt}\n\n{lab.decode(result.token_ids)}\n")
    for number, r in enumerate(result.rounds, 1):
        kept, added = (lab.tokenizer.decode(tokens) for tokens in (r.draft_tokens[:r.accepted], r.tokens[r.accepted:]))
        print(f"round {number:2}: {r.accepted} of {r.proposed} accepted  {kept!r} + {added!r}")
    print(f"\naccepted length {result.accepted_length:.2f}, {len(result.token_ids)} tokens in "
          f"{result.decode_seconds:.2f} s on {lab.device_name}")


def _evaluate_options(evaluate) -> None:
    evaluate.add_argument("--benchmark", nargs="+", metavar="NAME",
                          help="benchmarks of Table 1 instead of the embedded prompts; 'all' for the nine")
    evaluate.add_argument("--benchmark-dir", type=Path, metavar="DIR",
                          help="folder of NAME.jsonl, a `turns` list a line (default: fetch from the Hub)")
    evaluate.add_argument("--target", help="embedded checkpoint, folder or Hub id (default: that of the profile)")
    evaluate.add_argument("--max-new-tokens", type=int, metavar="N",
                          help="longest answer (default: 2048 on benchmarks, else that of the profile)")
    _measuring_options(evaluate, "200 a domain, the paper's count a benchmark", "0, on benchmarks the paper's")


def _evaluate(options) -> None:
    from .common.files import write_json
    from .measure import benchmarks
    from .measure.evaluation import evaluate

    names = list(benchmarks.BENCHMARKS) if options.benchmark == ["all"] else options.benchmark or []
    for name in names:
        benchmarks.check_benchmark(name)
    if options.benchmark_dir and not names:
        raise RequestError("--benchmark-dir is given without --benchmark; name the benchmarks to take from it")
    if options.target and not options.drafters:
        raise RequestError("--target is given without --drafters; name the drafters that belong to it")
    embedded = 200 if options.prompts is None else options.prompts
    lab = _lab(embedded, (benchmarks.BENCHMARK_SEED if names else 0) if options.seed is None else options.seed, options.target)
    prompts = {name: benchmarks.load_benchmark(name, options.benchmark_dir, options.prompts) for name in names}
    longest = benchmarks.MAX_NEW_TOKENS if names and options.max_new_tokens is None else options.max_new_tokens
    measured = evaluate(lab, options.drafters or lab.drafters, prompts or lab.prompts, temperature=options.temperature,
                        max_new_tokens=longest, path=options.json)
    for row in measured["rows"]:
        print(_evaluation_line(row))
    if "dspark_over_dflash" in measured:
        gain = measured["dspark_over_dflash"]
        print(f"DSpark over DFlash, macro-average: {gain['value']:+.1%} [{gain['low']:+.1%}, {gain['high']:+.1%}]")
    if options.json:
        write_json(options.json, measured)


def _evaluation_line(row: dict) -> str:
    """A row of `evaluate` for a reader."""
    rates = " ".join("  - " if rate is None else f"{rate:.2f}" for rate in row["conditional_acceptance"])
    length = "no round" if row["accepted_length"] is None else \
        f"accepted length {row['accepted_length']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
    skipped = f"  {row['skipped']} prompts too long" if row["skipped"] else ""
    return f"{row['drafter']:14} {row.get('benchmark', row['domain']):5} {length}  by position {rates}{skipped}"


def _bench_options(bench) -> None:
    bench.add_argument("--scheduler", action="store_true", help="only the scheduler: Algorithm 1 against a literal loop")
    bench.add_argument("--shapes", choices=("released", "tiny"),
                       help="only memory and time of random weights: of the released shapes on a GPU, or of tiny ones")
    bench.add_argument("--breakdown", action="store_true",
                       help="only where a round's time goes: drafting, verification, acceptance, commit; and Python's share of it")
    _measuring_options(bench, "20 a domain, 3 with --breakdown", "0")


def _bench(options) -> None:
    from .common.files import write_json
    from .measure.lab import versions
    from .measure.speed import bench, bench_scheduler

    if options.shapes:
        _bench_shapes(options)
        return
    if options.breakdown:
        _bench_breakdown(options)
        return
    if options.scheduler:
        rows = bench_scheduler()
        for row in rows:
            print(f"{row['requests']:5} requests, gamma {row['gamma']}: {row['milliseconds']:.3f} ms, literal loop "
                  f"{row['loop_milliseconds']:.1f} ms, {row['ratio']:.0f} times faster")
        if options.json:
            write_json(options.json, {"device": "CPU (1 thread)", "versions": versions(), "rows": rows})
        return
    prompts = 20 if options.prompts is None else options.prompts
    lab = _lab(prompts, options.seed or 0)
    measured = bench(lab, options.drafters or lab.drafters, prompts=prompts, temperature=options.temperature)
    for row in measured["rows"]:
        print(f"{row['drafter']:14} {row['domain']:5} {row['tokens_per_second']:8.1f} tokens/s  "
              f"{row['speedup']:.2f} x plain  accepted length {row['accepted_length']:.2f}")
    for name, speedup in measured["macro_speedup"].items():
        print(f"{name:14} macro-average {speedup:.2f} x plain")
    for name, times in measured["draft_milliseconds_by_context"].items():
        costs = ", ".join(f"{value:.2f} ms at {context} tokens" for context, value in times.items())
        print(f"{name:14} draft time a round: {costs}")
    print(f"on {measured['device']}, temperature {options.temperature}, decoding only")
    if options.json:
        write_json(options.json, measured)


def _bench_breakdown(options) -> None:
    from .common.files import write_json
    from .measure.speed import breakdown

    prompts = 3 if options.prompts is None else options.prompts
    lab = _lab(prompts, options.seed or 0)
    measured = breakdown(lab, options.drafters or lab.drafters, prompts=prompts, temperature=options.temperature)
    for row in measured["rows"]:
        total = row["round_milliseconds"]
        parts = ", ".join(f"{part} {spent:.2f} ({spent / total:.0%})" for part, spent in row["milliseconds"].items())
        python = row["python_milliseconds"]
        print(f"{row['drafter']:14} {total:6.2f} ms a round: {parts}; Python {python:.2f} ({python / total:.0%}) of it, "
              "operators the rest")
    print(f"on {measured['device']}, temperature {options.temperature}, means over all rounds")
    if options.json:
        write_json(options.json, measured)


def _bench_shapes(options) -> None:
    from .common.files import write_json
    from .measure.random_weights import measure_shapes, shapes_report

    measured = measure_shapes(options.shapes, options.drafters, seed=options.seed or 0)
    print(*shapes_report(measured), sep="\n")
    if options.json:
        write_json(options.json, measured)


def _quality_options(quality) -> None:
    quality.add_argument("--json", type=Path, metavar="FILE")
    quality.add_argument("--prompts", type=int, default=200, metavar="N")


def _quality(options) -> None:
    from .common.files import write_json
    from .measure.target_quality import target_quality

    measured = target_quality(_lab(options.prompts, 0), options.prompts)
    for row in measured["rows"]:
        right = f"{row['right']:.1%} right (greedy), " if "right" in row else ""
        answers = f"{row['entropy_nats']:.3f} nats a token, {row['answer_tokens']:.1f} tokens an answer"
        print(f"{row['domain']:5} {right}{answers}")
    if options.json:
        write_json(options.json, measured)


def _world_options(world) -> None:
    world.add_argument("--json", type=Path, metavar="FILE", help="also write them here")
    world.add_argument("--prompts", type=int, default=60, metavar="N", help="held-out prompts a domain (default: %(default)s)")
    world.add_argument("--drafters", nargs=2, metavar=("FULL", "ONE_LAYER"), help="two DSparks, for the gates on depth and on answers' ends")


def _world(options) -> None:
    from .common.files import write_json
    from .measure.gates import gate_line, measure_gates

    drafters = dict(zip(("full", "one_layer"), options.drafters)) if options.drafters else None
    measured = measure_gates(_lab(options.prompts, 0), options.prompts, drafters)
    for row in measured["gates"]:
        print(gate_line(row))
    if options.json:
        write_json(options.json, measured)


def _profile_options(profile) -> None:
    profile.add_argument("--out", type=Path, required=True, metavar="FILE", help="cost table in SGLang's format")
    profile.add_argument("--json", type=Path, metavar="FILE", help="also write device, versions and every repeat here")
    profile.add_argument("--sizes", nargs="+", type=int, metavar="B", help="tokens in a batch (default: 1 to 64, then every 8th to 256)")
    profile.add_argument("--context", type=int, metavar="N", help="committed tokens before them (default: 256)")
    profile.add_argument("--monotone", action="store_true", help="write the nearest table that never rises with B")
    profile.add_argument("--format", choices=("table", "additive"), default="table",
                         help="by tokens alone, or the sum of what requests and tokens cost (default: %(default)s)")
    profile.add_argument("--requests", nargs="+", type=int, metavar="R", help="requests in a step, additive alone (default: 1 2 4 8 16)")
    _target_option(profile)


def _profile(options) -> None:
    from .common.files import write_json
    from .measure.journal import header
    from .measure.step_time import PROFILE_CONTEXT, PROFILE_SIZES, profile

    if (options.sizes or options.monotone) if options.format == "additive" else options.requests:
        raise RequestError("--sizes and --monotone belong to --format table, --requests to --format additive; leave the others out")
    lab = _lab(1, 0, options.target)
    context = PROFILE_CONTEXT if options.context is None else options.context
    if options.format == "additive":
        _profile_additive(options, lab, context)
        return
    table, spent = profile(lab.target, options.sizes or PROFILE_SIZES, context=context)
    for size, speed in zip(table.batch_tokens.tolist(), table.steps_per_second.tolist()):
        print(f"{size:5} tokens: {1e3 / speed:8.3f} ms, {speed:8.1f} steps/s, {size * speed:9.1f} tokens/s")
    print(f"{lab.target.name} on {lab.device_name}, {context} tokens of context")
    (table.monotone() if options.monotone else table).save(options.out)
    if options.json:
        write_json(options.json, {**header(lab), "context": context, "milliseconds": spent})


def _profile_additive(options, lab, context: int) -> None:
    from .common.files import write_json
    from .measure.additive_profile import PROFILE_REQUESTS, additive_fit, profile_steps
    from .measure.journal import header

    costs, spent = profile_steps(lab.target, options.requests or PROFILE_REQUESTS, context=context)
    table, error = additive_fit(costs)
    for requests, row in zip(costs.requests, costs.step_seconds):
        print(f"{requests:5.0f} requests: " + " ".join(f"{1e3 * seconds:8.3f}" for seconds in row) + " ms")
    print(f"{lab.target.name} on {lab.device_name}, {context} tokens of context, 1 to {costs.tokens_per_request[-1]:.0f} tokens of each request\n"
          f"largest relative error of the sum: {error:.1%}")
    table.save(options.out)
    if options.json:
        cells = [{"requests": r, "tokens_of_each": k, "milliseconds": times} for (r, k), times in spent.items()]
        write_json(options.json, {**header(lab), "context": context, "largest_relative_error": error, "cells": cells})


def _calibrate_options(calibrate) -> None:
    calibrate.add_argument("--out", type=Path, metavar="FILE", help="write the calibration in SGLang's format")
    calibrate.add_argument("--check", type=Path, metavar="FILE", help="does this calibration fit fresh rollouts? Exit code 1 if not")
    calibrate.add_argument("--json", type=Path, metavar="FILE", help="also write ECE, AUC and Brier by position here")
    calibrate.add_argument("--drafter", default="dspark", help="embedded drafter, folder or Hub id")
    calibrate.add_argument("--prompts", type=int, default=100, metavar="N", help="a domain, to fit on and again to report on (default: 100)")
    calibrate.add_argument("--temperature", type=float, default=1.0)
    calibrate.add_argument("--seed", type=int, default=0)
    _target_option(calibrate)


def _calibrate(options) -> int:
    from .common.files import write_json
    from .measure.confidence import calibrate, check_stored
    from .scheduling.calibration import STS

    if (options.out is None) == (options.check is None):
        raise RequestError("give either --out FILE to fit a calibration or --check FILE to check one")
    stored = STS.load(options.check) if options.check else None
    lab = _lab(2 * options.prompts, options.seed, options.target)
    drafter = lab.drafter(options.drafter)
    if stored is None:
        sts, measured = calibrate(lab, drafter, temperature=options.temperature)
        sts.save(options.out)
    else:
        measured = check_stored(lab, drafter, stored, temperature=options.temperature)
    for row in measured["rows"]:
        print(f"{row['domain']:5} position {row['position']}: temperature {row['temperature']:.2f}  ECE {row['ece_before']:.2%} -> "
              f"{row['ece_after']:.2%}  AUC {row['auc_before']:.3f} -> {row['auc_after']:.3f}  Brier {row['brier_after']:.3f}")
    print(measured["verdict"])
    if options.json:
        write_json(options.json, measured)
    return 0 if measured["fits"] else 1


def _train_options(train) -> None:
    train.add_argument("recipe", help="a name in recipes/ or a JSON file")
    train.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    train.add_argument("--out", dest="folder", type=Path, metavar="OUT", help="checkpoint folder (default: assets/checkpoints/NAME)")
    train.add_argument("--endpoint", metavar="URL",
                       help="an OpenAI-compatible server that has the target writes the answers")
    train.add_argument("--search", nargs="+", type=float, metavar="RATE",
                       help="only compare these rates of Muon by short trainings, on answers that are held out")
    train.add_argument("--steps", type=int, default=100, metavar="N", help="updates of each of them (default: %(default)s)")
    train.add_argument("--estimate", action="store_true", help="only print what it would take: disk, memory, time")


def _train(options) -> None:
    from .measure.journal import check_writable
    from .models.checkpoints import EMBEDDED
    from .training.estimate import estimate
    from .training.parallel import processes, training_device
    from .training.recipes import BUILD, check_recipe, load_recipe, search, train

    recipe = load_recipe(options.recipe)
    check_recipe(recipe)
    main_process = processes().is_main_process
    if recipe["kind"] == "draft" and main_process:
        print(*estimate(recipe, training_device(options.device), processes().num_processes), sep="\n", flush=True)
    if options.estimate:
        return
    if options.search:
        losses = search(options.recipe, options.search, options.steps, device=options.device)
        for rate, loss in losses.items():
            print(f"rate {rate:g}: {loss:.4f} on the answers held out{', the best' if loss == min(losses.values()) else ''}")
        return
    folder = options.folder or EMBEDDED / recipe["name"]
    check_writable(folder / "config.json")
    written = train(options.recipe, device=options.device, out=folder, endpoint=options.endpoint)
    if main_process:
        print(f"written to {written}")
        for log in sorted((BUILD / recipe["name"]).rglob("log.jsonl")):
            print(f"loss curves: {_draw_losses(log)}")


def _draw_losses(log: Path) -> Path:
    """Draws the losses of a log beside it and returns the picture's path."""
    from .figures.lesson_07 import loss_curves
    from .training.loop import read_log

    picture = log.with_name("loss.png")
    loss_curves(read_log(log)).savefig(picture)
    return picture


def _export_options(export) -> None:
    export.add_argument("draft", help="embedded draft, folder or Hub id")
    export.add_argument("--for", dest="engine", required=True, metavar="ENGINE", help="vllm, sglang or llama.cpp")
    export.add_argument("--out", dest="folder", type=Path, required=True, metavar="OUT", help="a new folder")
    export.add_argument("--target", default="TARGET", help="what its model card and the printed command call the target")


def _export(options) -> None:
    from .models.export import export

    print(export(options.draft, options.engine, options.folder, options.target))


def _parity_options(parity) -> None:
    parity.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")


def _parity(options) -> int:
    from .losslessness.parity import check_case

    reports = [check_case(folder) for folder in options.folders]
    print(*reports, sep="\n")
    return 0 if all(report.passed for report in reports) else 1


def _doctor_options(doctor) -> None:
    doctor.add_argument("--json", type=Path, metavar="FILE", help="also write it here")


def _doctor(options) -> None:
    from .common.files import write_json
    from .measure.doctor import examine, machine_report

    found = examine()
    print(*machine_report(found), sep="\n")
    if options.json:
        write_json(options.json, found)


COMMANDS = {  # name: what it does, its options, what runs it
    "demo": ("answer one prompt and show every round", _demo_options, _demo),
    "evaluate": ("accepted length by domain or benchmark, with intervals", _evaluate_options, _evaluate),
    "bench": ("decoding speed against plain decoding, batch 1", _bench_options, _bench),
    "quality": ("is the target right, and how uncertain is it?", _quality_options, _quality),
    "world": ("is the tiny world like the real one? Its gates, each beside the real figure", _world_options, _world),
    "profile": ("measure the cost table SPS(B) of a target; a file for SGLang", _profile_options, _profile),
    "calibrate": ("fit temperatures to a confidence head, or check stored ones", _calibrate_options, _calibrate),
    "train": ("train what a recipe describes; a stopped run resumes", _train_options, _train),
    "export": ("write a draft as vLLM, SGLang or llama.cpp loads it, and print how to serve with it", _export_options, _export),
    "parity": ("compare with folders of reference tensors", _parity_options, _parity),
    "doctor": ("what this machine has, what fits, how long downloads take; nothing is downloaded",
               _doctor_options, _doctor),
}


if __name__ == "__main__":
    sys.exit(main())
