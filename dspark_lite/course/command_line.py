"""The command line, dspark-lite or python -m dspark_lite: every command, its options, and what it prints."""

import argparse
import os
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ..common.about import REPOSITORY, VERSION
from ..common.errors import CheckpointError, DSparkLiteError, RequestError, near_miss
from ..common.files import IN_CLONE, ROOT, write_json, write_text


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; without a command, list them.

    Wrong input ends in one sentence on stderr and exit code 2. What a command measured is written
    to --json. The exit code is 1 if the command finds that something does not fit and was not asked
    to write anything to --out.
    """
    parser = build_parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help()
        return 0
    (command, *_) = sys.argv[1:] if arguments is None else arguments
    if command not in COMMANDS and (hint := near_miss(command, COMMANDS)):
        print(f"dspark_lite: there is no command {command!r}{hint}", file=sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    options.own_process = arguments is None
    for stream in (sys.stdout, sys.stderr):
        # A console that lacks a character shows another in its place.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        _check_results(options)
        measured = options.run(options)
        if getattr(options, "json", None):
            write_json(options.json, measured)
        if measured is not None and measured.get("interrupted"):
            raise KeyboardInterrupt
        return (
            0
            if measured is None or measured.get("fits", True) or getattr(options, "out", None)
            else 1
        )
    except DSparkLiteError as error:
        print(f"dspark_lite: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that cannot be written to
        print(
            f"dspark_lite: {error.filename or 'a file'} cannot be read or written ({error.strerror or error}); what was saved is kept",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("dspark_lite: stopped; what was saved is kept", file=sys.stderr)
        return 130


def _check_results(options) -> None:
    """Raise DSparkLiteError, before a command measures, if it could not write its results."""
    files = [path for name in ("json", "out") if (path := getattr(options, name, None))]
    if files:
        from .measure.journal import check_writable

        for path in files:
            check_writable(path)


GROUPS = {  # a purpose, and the commands for it in the order in which they are needed
    "Work through the lessons": ("lab", "progress", "judge", "demo"),
    "See what a draft brings": ("inspect", "evaluate", "bench", "sweep"),
    "Make a draft and serve it": ("train", "calibrate", "profile", "export"),
    "Check this machine and this code": ("doctor", "parity"),
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of every command and its options."""
    lines = []
    for purpose, names in GROUPS.items():
        lines += ["", f"{purpose}:", *(f"  {name:10} {COMMANDS[name][0]}" for name in names)]
    parser = argparse.ArgumentParser(
        prog="dspark-lite",
        usage="%(prog)s COMMAND [OPTIONS]",
        description="\n".join(["Build, prove and measure DSpark.", *lines]),
        epilog="dspark-lite COMMAND --help lists the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    commands = parser.add_subparsers(
        required=True, prog="dspark-lite", metavar="COMMAND", help=argparse.SUPPRESS
    )
    for name, (description, run, options) in COMMANDS.items():
        sentence = f"{description[0].upper()}{description[1:]}."
        command = commands.add_parser(name, description=sentence)
        command.set_defaults(run=run)
        for option, settings in options.items():
            command.add_argument(option, **settings)
    return parser


def _lab(prompts: int, seed: int | None = 0, target: str | None = None, fast: bool = False):
    from .measure.lab import setup

    if prompts < 1:
        raise RequestError(f"--prompts is {prompts}; at least one prompt a domain is needed")
    return setup(seed=seed or 0, prompts=prompts, target=target, fast=fast)


def _demo(options) -> None:
    from ..decoding.rounds import generate
    from ..decoding.sampling import check_temperature

    check_temperature(options.temperature)
    lab = _lab(1, options.seed, options.target)
    drafter = None if options.drafter == "plain" else lab.drafter(options.drafter)
    prompt = lab.prompts["math"][0] if options.prompt is None else options.prompt
    if not prompt.strip():
        raise RequestError("the prompt is empty; give at least one word")
    if any("\ud800" <= letter <= "\udfff" for letter in prompt):
        raise RequestError("the prompt holds bytes that are no UTF-8; give it as UTF-8 text")
    decode = partial(
        generate,
        lab.target,
        input_ids=lab.encode(prompt),
        max_new_tokens=lab.max_new_tokens,
        temperature=options.temperature,
    )
    result = decode(drafter=drafter, generator=lab.generator(), gamma=options.gamma)
    print(f"{prompt}\n\n{lab.decode(result.token_ids)}\n")
    for number, r in enumerate(result.rounds, 1):
        accepted, added = (
            lab.tokenizer.decode(tokens)
            for tokens in (r.draft_tokens[: r.accepted], r.tokens[r.accepted :])
        )
        print(f"round {number:2}: {r.accepted} of {r.proposed} accepted  {accepted!r} + {added!r}")
    print(f"\n{options.drafter}: {_decoded(result)}, accepted length {result.accepted_length:.2f}")
    if drafter is not None:
        plain = decode(drafter=None, generator=lab.generator())
        print(f"plain: {_decoded(plain)}; {_comparison(plain, result, options.temperature)}")
    print(f"on {lab.device_name}")


def _decoded(result) -> str:
    """Return an answer's tokens, passes of the target and seconds in words."""
    return f"{len(result.token_ids)} tokens in {len(result.rounds)} passes of the target, {result.decode_seconds:.2f} s"


def _comparison(plain, drafted, temperature: float) -> str:
    """Return in words whether a drafter changed the answer; two random draws differ and say nothing."""
    if temperature:
        return "another draw from the same distribution"
    return (
        "the same text"
        if plain.token_ids == drafted.token_ids
        else "another text from a near-tie on, as happens in 16 bit"
    )


def _benchmarks(options) -> list[str]:
    """Return the benchmarks that --benchmark names, checked; [] without the option."""
    from .measure import benchmarks

    names = list(benchmarks.BENCHMARKS) if options.benchmark == ["all"] else options.benchmark or []
    for name in names:
        benchmarks.check_benchmark(name)
    if options.benchmark_dir and not names:
        raise RequestError(
            "--benchmark-dir is given without --benchmark; name the benchmarks to take from it"
        )
    return names


def _own_prompts(path: Path, prompts: int, held_out: bool) -> dict[str, list]:
    """Return the first prompts of a reader's file, by the file's name; with `held_out`, of those
    that no training reads. Rows that hold none are counted on stderr."""
    from .world.example import is_held_out
    from .world.prompt_files import read_prompts

    found, unread = read_prompts(path)
    if held_out:
        found = [prompt for prompt in found if is_held_out(prompt.text)]
        if not found:
            raise RequestError(
                f"{path} has no held-out prompt, one in twenty; leave out --held-out"
            )
    if unread.lines:
        print(f"{unread.sentence} and were passed over", file=sys.stderr)
    return {path.stem: found[:prompts]}


def _check_new_tokens(count: int) -> None:
    """Raise RequestError for a longest answer without tokens."""
    if count < 1:
        raise RequestError(f"--max-new-tokens is {count}; it must be 1 or more")


def _prompted_lab(options, prompts: int | None):
    """Return the lab of a command that takes `prompts` prompts of each domain, or of each benchmark
    or the file that is named (None: 200, as in the paper)."""
    from .measure import benchmarks

    names, seed = _benchmarks(options), options.seed
    own = options.prompts_file
    if own and names:
        raise RequestError("--prompts-file and --benchmark both name prompts; give one of them")
    texts = (
        _own_prompts(own, prompts or 200, options.held_out)
        if own
        else {
            name: benchmarks.load_benchmark(name, options.benchmark_dir, prompts) for name in names
        }
    )
    lab = _lab(
        200 if prompts is None else prompts,
        benchmarks.BENCHMARK_SEED if names and seed is None else seed,
        options.target,
    )
    if texts:
        lab.prompts = texts
    if names:
        lab.max_new_tokens = benchmarks.MAX_NEW_TOKENS
    if options.max_new_tokens is not None:
        _check_new_tokens(options.max_new_tokens)
        lab.max_new_tokens = options.max_new_tokens
    return lab


def _check_drafters_of(options) -> None:
    """Raise RequestError if a target is named and none of its drafters."""
    if options.target and not options.drafters:
        raise RequestError(
            "--target is given without --drafters; name the drafters that belong to it, or prompt_lookup"
        )


def _evaluate(options) -> dict:
    from .measure.evaluation import evaluate

    _check_drafters_of(options)
    lab = _prompted_lab(options, options.prompts)
    for name, texts in lab.prompts.items():
        if options.prompts is not None and len(texts) < options.prompts:
            print(
                f"{name} has {len(texts)} prompts, fewer than the {options.prompts} asked for; all are taken",
                file=sys.stderr,
            )
    measured = evaluate(
        lab,
        options.drafters or lab.drafters,
        lab.prompts,
        temperature=options.temperature,
        slots=options.slots,
        path=options.json,
    )
    for row in measured["rows"]:
        print(_evaluation_line(row))
    if gain := measured.get("dspark_over_dflash"):
        print(
            f"DSpark over DFlash, macro-average: {gain['value']:+.1%} [{gain['low']:+.1%}, {gain['high']:+.1%}]"
        )
    return measured


def _evaluation_line(row: dict) -> str:
    """Return a row of `evaluate` as a line."""
    rates = " ".join(
        "  - " if rate is None else f"{rate:.2f}" for rate in row["conditional_acceptance"]
    )
    length = (
        "no round"
        if row["accepted_length"] is None
        else f"accepted length {row['accepted_length']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
    )
    skipped = f"  {row['skipped']} prompts too long" if row["skipped"] else ""
    return f"{row['drafter']:14} {row.get('benchmark', row['domain']):5} {length}  by position {rates}{skipped}"


def _bench(options) -> dict:
    if options.shapes:
        from .measure.random_weights import measure_shapes, shapes_report

        measured = measure_shapes(options.shapes, options.drafters, seed=options.seed or 0)
        print(*shapes_report(measured), sep="\n")
        return measured
    from .measure.speed import bench

    prompts = 20 if options.prompts is None else options.prompts
    _check_drafters_of(options)
    lab = _lab(prompts, options.seed, options.target, options.fast)
    if options.prompts_file:
        lab.prompts = _own_prompts(options.prompts_file, prompts, options.held_out)
    if options.max_new_tokens is not None:
        _check_new_tokens(options.max_new_tokens)
        lab.max_new_tokens = options.max_new_tokens
    measured = bench(
        lab, options.drafters or lab.drafters, prompts=prompts, temperature=options.temperature
    )
    for row in measured["rows"]:
        print(
            f"{row['drafter']:14} {row['domain']:5} {row['tokens_per_second']:8.1f} tokens/s  "
            f"{row['speedup']:.2f} x plain  accepted length {row['accepted_length']:.2f}"
        )
    for name, speedup in measured["macro_speedup"].items():
        print(f"{name:14} macro-average {speedup:.2f} x plain")
    (fastest,) = measured["macro_speedup"].keys() - measured["leads"].keys()
    for name, lead in measured["leads"].items():
        print(
            f"{fastest} over {name}, mean of domains: {lead['value']:+.0%} ({lead['low']:+.0%} to {lead['high']:+.0%})"
        )
    print(f"on {measured['device']}, temperature {options.temperature}, decoding only")
    return measured


def _profile(options) -> dict:
    from .measure.journal import header
    from .measure.step_time import PROFILE_CONTEXT, PROFILE_SIZES, profile

    if (options.out is None) == (options.check is None):
        raise RequestError(
            "give either --out FILE to measure a cost table or --check FILE to check one"
        )
    if (options.sizes or options.monotone) if options.format == "additive" else options.requests:
        raise RequestError(
            "--sizes and --monotone belong to --format table, --requests to --format additive; leave the others out"
        )
    names = _benchmarks(options)
    if options.check:
        return _check_costs(options)
    lab = _lab(1, target=options.target)
    context = PROFILE_CONTEXT if options.context is None else options.context
    text = _text_of(lab, names, options.benchmark_dir)
    if options.format == "additive":
        return _profile_additive(options, lab, context, text)
    table, spent = profile(lab.target, options.sizes or PROFILE_SIZES, context=context, text=text)
    for size, speed in zip(table.batch_tokens.tolist(), table.steps_per_second.tolist()):
        print(
            f"{size:5} tokens: {1e3 / speed:8.3f} ms, {speed:8.1f} steps/s, {size * speed:9.1f} tokens/s"
        )
    print(f"{lab.target.name} on {lab.device_name}, {context} tokens of context; {OWN_STEPS}")
    (table.monotone() if options.monotone else table).save(options.out)
    return {**header(lab), "context": context, "benchmarks": names, "milliseconds": spent}


def _check_costs(options) -> dict:
    """Check that a stored cost table is of this device, this target and these versions."""
    from ..common.origin import why_stale
    from ..scheduling.additive_costs import load_costs
    from .measure.journal import header

    costs, lab = load_costs(options.check), _lab(1, target=options.target)
    if costs.origin is None:
        raise RequestError(
            f"{options.check} does not say where it was measured, so nothing can be checked; measure it again with "
            "python -m dspark_lite profile"
        )
    reason = why_stale(costs.origin, lab.target)
    print(reason or f"the cost table was measured here: {lab.target.name} on {lab.device_name}")
    return {**header(lab), "origin": costs.origin.fields(), "fits": reason is None}


def _text_of(lab, names: list[str], folder: Path | None):
    """Return the token ids [n] of the prompts of these benchmarks, one after the other; None where
    none is named."""
    import torch

    from .measure.benchmarks import load_benchmark

    texts = [text for name in names for text in load_benchmark(name, folder)]
    return torch.cat([lab.encode(text)[0] for text in texts]) if texts else None


def _profile_additive(options, lab, context: int, text) -> dict:
    from ..common.origin import Origin
    from .measure.journal import header
    from .measure.step_time import PROFILE_REQUESTS, additive_fit, profile_steps

    costs, spent = profile_steps(
        lab.target, options.requests or PROFILE_REQUESTS, context=context, text=text
    )
    table, error = additive_fit(costs, Origin.of(lab.target))
    for requests, row in zip(costs.requests, costs.step_seconds):
        print(
            f"{requests:5.0f} requests: "
            + " ".join(f"{1e3 * seconds:8.3f}" for seconds in row)
            + " ms"
        )
    print(
        f"{lab.target.name} on {lab.device_name}, {context} tokens of context, 1 to {costs.tokens_per_request[-1]:.0f} tokens of each request\n"
        f"largest relative error of the sum: {error:.1%}; {OWN_STEPS}"
    )
    table.save(options.out)
    cells = [
        {"requests": r, "tokens_of_each": k, "milliseconds": times}
        for (r, k), times in spent.items()
    ]
    return {**header(lab), "context": context, "largest_relative_error": error, "cells": cells}


def _calibrate(options) -> dict:
    from ..scheduling.calibration import STS
    from .measure.confidence import calibrate, check_stored
    from .measure.journal import journal_path

    if (options.out is None) == (options.check is None):
        raise RequestError(
            "give either --out FILE to fit a calibration or --check FILE to check one"
        )
    stored = STS.load(options.check) if options.check else None
    lab = _prompted_lab(options, 2 * options.prompts)
    drafter = lab.drafter(options.drafter)
    if stored is None:
        sts, measured = calibrate(lab, drafter, temperature=options.temperature, path=options.out)
        sts.save(options.out)
        journal_path(options.out).unlink()
    else:
        measured = check_stored(lab, drafter, stored, temperature=options.temperature)
    for row in measured["rows"]:
        print(
            f"{row['domain']:5} position {row['position']}: temperature {row['temperature']:.2f}  ECE {row['ece_before']:.2%} -> "
            f"{row['ece_after']:.2%}  AUC {row['auc_before']:.3f} -> {row['auc_after']:.3f}  Brier {row['brier_after']:.3f}"
        )
    print(measured["verdict"])
    return measured


def _sweep(options) -> dict:
    from .measure.threshold_sweep import SWEPT_THRESHOLDS, sweep, sweep_lines

    lab = _prompted_lab(options, options.prompts)
    measured = sweep(
        lab,
        lab.drafter(options.drafter),
        thresholds=options.thresholds or SWEPT_THRESHOLDS,
        temperature=options.temperature,
        path=options.json,
    )
    print(*sweep_lines(measured), sep="\n")
    return measured


def _train(options) -> None:
    """Estimate a training, search for its rate, or run it, as the options say."""
    from ..common.devices import named_device
    from ..training.devices import keep_freed_memory, training_device
    from .data.recipes import load_recipe, read_changes

    if options.device is not None:
        named_device(options.device)
    changes = read_changes(options.set)
    named = {"target": options.target, "data.dataset": options.data and str(options.data)}
    changes |= {field: value for field, value in named.items() if value is not None}
    recipe = load_recipe(options.recipe, changes)
    if options.estimate:
        _print_estimate(recipe, options)
        return
    if options.own_process:
        keep_freed_memory(training_device(options.device))
    if options.search:
        _search_rate(recipe, changes, options)
    else:
        _train_recipe(recipe, changes, options)


def _build_folder(options) -> Path:
    """Return the folder of a training's answers, saves and pictures: beside its checkpoint, where
    --out names one."""
    from .data.recipes import BUILD

    return options.folder / "training" if options.folder else BUILD


def _print_estimate(recipe, options) -> None:
    """Print what the training of a drafter takes."""
    from ..training.devices import processes, training_device
    from .data.estimate import estimate, with_own_prompts

    if recipe.kind == "draft" and processes().is_main_process:
        device, count = training_device(options.device), processes().num_processes
        lines = estimate(with_own_prompts(recipe), device, count, options.minutes)
        print(*lines, sep="\n", flush=True)


def _search_rate(recipe, changes: dict, options) -> None:
    """Train for some steps with each rate and print its loss."""
    from .data.recipes import search

    _print_estimate(recipe, options)
    losses = search(
        options.recipe,
        options.search,
        options.steps,
        changes=changes,
        device=options.device,
        build=_build_folder(options),
    )
    _print_search(losses)


def _train_recipe(recipe, changes: dict, options) -> None:
    """Train, draw the losses and evaluate a drafter. What cannot be written is refused first."""
    from ..training.devices import processes, training_device
    from .data.recipes import checkpoint_folder, train
    from .measure.journal import check_writable

    build = _build_folder(options)
    out = checkpoint_folder(recipe, options.folder, build)
    check_writable(out / "config.json")
    _print_estimate(recipe, options)
    written = train(
        options.recipe,
        changes=changes,
        device=options.device,
        out=out,
        build=build,
        endpoint=options.endpoint,
        minutes=options.minutes,
    )
    if processes().is_main_process:
        print(f"written to {written}")
        _draw_losses(build / recipe.name)
        if recipe.kind == "draft" and recipe.evaluate:
            path = build / recipe.name / "evaluation.json"
            _evaluate_trained(recipe, out, path, training_device(options.device).type)


def _print_search(losses: dict[float, float]) -> None:
    """Print the loss of each rate, and which is the best."""
    for rate, loss in losses.items():
        best = ", the best" if loss == min(losses.values()) else ""
        print(f"rate {rate:g}: {loss:.4f} on the answers held out{best}")


def _draw_losses(folder: Path) -> None:
    """Draw the loss curves of every log in a training's folder, beside it."""
    from ..training.train import read_log
    from .figures.lesson_07 import loss_curves  # draws with matplotlib, which nothing before needs

    for log in sorted(folder.rglob("log.jsonl")):
        picture = log.with_name("loss.png")
        loss_curves(read_log(log)).savefig(picture)
        print(f"loss curves: {picture}")


def _evaluate_trained(recipe, folder: Path, path: Path, device: str) -> None:
    """Print and write the accepted length of a trained drafter on as many held-out prompts as the
    recipe says: of its data set, else of each domain of the tiny world."""
    from .measure.evaluation import evaluate
    from .measure.lab import setup
    from .world.prompts import held_out_of

    data = recipe.data
    if not data.dataset:
        lab = setup("tiny", prompts=recipe.evaluate, target=recipe.target, device=device)
    else:
        lab = setup("released", prompts=1, target=recipe.target, device=device)
        name = Path(data.dataset.partition("@")[0]).stem
        lab.prompts = {name: held_out_of(data, recipe.evaluate)}
        lab.max_new_tokens, lab.enable_thinking = data.max_new_tokens, data.enable_thinking
        if not lab.prompts[name]:
            print(f"{data.dataset} has no held-out prompts, one in twenty: nothing to evaluate on")
            return
    measured = evaluate(lab, {recipe.name: str(folder)}, lab.prompts, temperature=data.temperature)
    write_json(path, measured)
    for row in measured["rows"]:
        print(_evaluation_line(row))
    print(f"written to {path}")


def _export(options) -> None:
    from ..models.export import export

    print(export(options.draft, options.engine, options.folder, options.target))


def _shape_or_reason(name: str):
    """Return a target's shape by its config.json, or the sentence why it is none."""
    from .measure.draft_summary import target_shape

    try:
        return target_shape(name)
    except CheckpointError as error:
        return str(error)


def _inspect(options) -> dict:
    from .measure.draft_summary import Fit, summarise

    shapes = {name: _shape_or_reason(name) for name in options.target or []}
    depths = [shape.num_layers for shape in shapes.values() if not isinstance(shape, str)]
    summary = summarise(options.draft, depths[0] if depths else None)
    print(*summary.lines(), sep="\n")
    fits = [
        Fit(name, False, shape) if isinstance(shape, str) else summary.fit(shape)
        for name, shape in shapes.items()
    ]
    for fit in fits:
        print(
            f"target      {fit.target}: {'fits' if fit.fits else 'does not fit'}"
            + (f"; {fit.reason}" if fit.reason else "")
        )
    return {
        "form": summary.draft.publisher,
        "kind": summary.draft.kind.architecture,
        "bytes": summary.size,
        "targets": [fit._asdict() for fit in fits],
        "fits": all(fit.fits for fit in fits),
    }


def _parity(options) -> dict:
    from ..losslessness.parity import check_case

    reports = [check_case(folder) for folder in options.folders]
    print(*reports, sep="\n")
    return {"fits": all(report.passed for report in reports)}


def _judge(options) -> dict:
    from .checkers.progress import completion_page
    from .measure.lab import setup
    from .own_decoder.judge import judge, report
    from .own_decoder.keep import own_file

    lab, file = setup("tiny", prompts=options.prompts), options.file or own_file()
    findings = judge(file, lab, options.prompts)
    print(report(findings))
    page = options.page or (file.with_suffix(".html") if options.file is None else None)
    if page and all(finding.right for finding in findings):
        write_text(page, completion_page(file, findings, lab.device_name))
        print(f"A page to keep or to hand in: {page}")
    return {
        "fits": all(finding.right for finding in findings),
        "findings": [finding._asdict() for finding in findings],
    }


def _progress(options) -> dict:
    from .checkers.progress import progress, progress_file

    score = progress()
    print(
        *(
            f"lesson {lesson}  {right:2} of {count:2}  {'#' * right}{'.' * (count - right)}"
            for lesson, right, count in score
        ),
        sep="\n",
    )
    done, exercises = sum(right for _, right, _ in score), sum(count for *_, count in score)
    print(f"{done} of {exercises} exercises that have a checker, from {progress_file().resolve()}")
    return {"lessons": {lesson: {"passed": right, "of": count} for lesson, right, count in score}}


def _doctor(options) -> dict:
    from .measure.doctor import examine, machine_report

    examination = examine()
    print(*machine_report(examination), sep="\n")
    return examination


def _lessons(options) -> None:
    """Replace this process by JupyterLab on the lessons."""
    if not IN_CLONE:
        raise DSparkLiteError(
            "the lessons are notebooks in the repository, which this installed copy is not; run `git clone "
            f"https://github.com/{REPOSITORY}` and `make lab` in it, or open them in Colab from its README"
        )
    if find_spec("jupyterlab") is None:
        raise DSparkLiteError(
            "JupyterLab is not installed here; run `pip install jupyterlab ipykernel`, or "
            "`python course.py lab`, which installs it into .venv"
        )
    os.chdir(ROOT)
    lab = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb",
        *options.arguments,
    ]
    # On Windows, execv would give the console back while JupyterLab still writes to it.
    if os.name == "nt":
        sys.exit(subprocess.call(lab))
    os.execv(sys.executable, lab)


def _file(says: str, **settings) -> dict:
    return {"type": Path, "metavar": "FILE", "help": says, **settings}


def _count(says: str, **settings) -> dict:
    return {"type": int, "metavar": "N", "help": says, **settings}


def _seed(says: str, **settings) -> dict:
    def seed(text: str) -> int:
        if not 0 <= (value := int(text)) < 2**63:
            raise argparse.ArgumentTypeError(f"{text} is no seed; seeds are 0 to 2^63 - 1")
        return value

    return {"type": seed, "metavar": "N", "help": says, **settings}


def _share(text: str) -> float:
    """Return a confidence, from 0 to 1. Raise ArgumentTypeError for anything else."""
    if not 0 <= (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no confidence; give a number from 0 to 1")
    return value


def _url(text: str) -> str:
    """Return the URL of a server. Raise ArgumentTypeError for anything else."""
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no URL; give one such as http://localhost:8000"
        )
    return text


def _switch(says: str) -> dict:
    return {"action": "store_true", "help": says}


TEMPERATURE = "0 is greedy (default: %(default)s)"
JSON_OPTION = _file("also write the measurement here, as JSON")
BENCHMARK_OPTIONS = {
    "--benchmark": {
        "nargs": "+",
        "metavar": "NAME",
        "help": "benchmarks of Table 1 instead of the embedded prompts; 'all' for the nine",
    },
    "--benchmark-dir": {
        "type": Path,
        "metavar": "DIR",
        "help": "folder of NAME.jsonl, a `turns` list a line (default: fetch from the Hub)",
    },
}
PROMPTS_FILE_OPTION = _file(
    "prompts of your own, JSON lines or plain text, instead of the embedded ones"
)
HELD_OUT_OPTION = _switch(
    "of --prompts-file, only the prompts that no training reads, one in twenty"
)
PROMPTED_OPTIONS = {
    **BENCHMARK_OPTIONS,
    "--prompts-file": PROMPTS_FILE_OPTION,
    "--held-out": HELD_OUT_OPTION,
    "--temperature": {"type": float, "default": 1.0, "help": TEMPERATURE},
    "--seed": _seed("seed (default: 0; on benchmarks the paper's)"),
    "--max-new-tokens": _count(
        "longest answer (default: 2048 on benchmarks, else that of the profile)"
    ),
}
# What a cost table of this package is of, said wherever one is written.
OWN_STEPS = "steps of eager transformers, not of a serving engine, whose own costs its own profiler measures"
TARGET_OPTION = {"help": "embedded checkpoint, folder or Hub id (default: that of the profile)"}
DRAFTER_OPTION = {"default": "dspark", "help": "embedded drafter, folder or Hub id"}
DRAFTERS_OPTION = {
    "nargs": "+",
    "metavar": "NAME",
    "help": "names, folders or Hub ids (default: all of the profile)",
}
COMMANDS = {  # name: what it does, what runs it, its options
    "demo": (
        "answer one prompt and show every round",
        _demo,
        {
            "prompt": {"nargs": "?", "help": "what to ask (default: a held-out math prompt)"},
            "--drafter": {
                **DRAFTER_OPTION,
                "help": "embedded drafter, folder or Hub id; 'plain' for none",
            },
            "--target": TARGET_OPTION,
            "--temperature": {"type": float, "default": 0.0, "help": TEMPERATURE},
            "--gamma": _count("drafts a round (default: the whole block)"),
            "--seed": _seed("seed (default: 0)", default=0),
        },
    ),
    "evaluate": (
        "measure accepted length by domain or benchmark, with intervals",
        _evaluate,
        {
            **PROMPTED_OPTIONS,
            "--target": TARGET_OPTION,
            "--json": JSON_OPTION,
            "--prompts": _count(
                "prompts (default: 200 per domain; per benchmark the paper's number)"
            ),
            "--slots": {
                "type": int,
                "default": 1,
                "help": "prompts answered side by side by the serving engine (default: one by one)",
            },
            "--drafters": DRAFTERS_OPTION,
        },
    ),
    "bench": (
        "measure decoding speed against plain decoding, batch 1",
        _bench,
        {
            "--shapes": {
                "choices": ("released", "tiny"),
                "help": "measure only memory and time, with random weights: of the released shapes on a GPU, or of tiny ones",
            },
            "--fast": _switch(
                "decode on the fast path, plain decoding too: fixed shapes, compiled; the first answers take a minute longer"
            ),
            "--json": JSON_OPTION,
            "--target": TARGET_OPTION,
            "--prompts-file": PROMPTS_FILE_OPTION,
            "--held-out": HELD_OUT_OPTION,
            "--prompts": _count("prompts per domain, or of the file (default: 20)"),
            "--max-new-tokens": _count("longest answer (default: that of the profile)"),
            "--drafters": DRAFTERS_OPTION,
            "--temperature": {"type": float, "default": 1.0, "help": TEMPERATURE},
            "--seed": _seed("seed (default: 0)"),
        },
    ),
    "profile": (
        "measure a target's cost table SPS(B) in SGLang's format, or check one",
        _profile,
        {
            "--out": _file("write the cost table here, in SGLang's format"),
            "--check": _file(
                "check that this cost table is of this device, this target and these versions; exit code 1 if not"
            ),
            "--json": JSON_OPTION,
            **BENCHMARK_OPTIONS,
            "--sizes": _count(
                "tokens in a batch (default: 1 to 64, then every 8th to 256)",
                nargs="+",
                metavar="B",
            ),
            "--context": _count("committed tokens before the batch (default: 256)"),
            "--monotone": _switch("write the nearest table that never rises with B"),
            "--target": TARGET_OPTION,
            "--format": {
                "choices": ("table", "additive"),
                "default": "table",
                "help": "cost by tokens alone, or as the sum of what requests and tokens cost (default: %(default)s)",
            },
            "--requests": _count(
                "requests in a step, for --format additive (default: 1 2 4 8 16)",
                nargs="+",
                metavar="R",
            ),
        },
    ),
    "calibrate": (
        "fit temperatures to a confidence head, or check stored ones",
        _calibrate,
        {
            "--out": _file("write the calibration here, in SGLang's format"),
            "--check": _file("check that this calibration fits fresh rollouts; exit code 1 if not"),
            "--json": JSON_OPTION,
            "--drafter": DRAFTER_OPTION,
            "--prompts": _count(
                "prompts per domain or benchmark to fit on, and as many to report on (default: 100)",
                default=100,
            ),
            "--target": TARGET_OPTION,
            **PROMPTED_OPTIONS,
        },
    ),
    "sweep": (
        "measure what a static confidence threshold saves and costs (Figure 5)",
        _sweep,
        {
            "--json": JSON_OPTION,
            "--drafter": DRAFTER_OPTION,
            "--target": TARGET_OPTION,
            **PROMPTED_OPTIONS,
            "--thresholds": {
                "nargs": "+",
                "type": _share,
                "metavar": "C",
                "help": "thresholds (default: 0 to 0.9 by tenths)",
            },
            "--prompts": _count("prompts per domain or benchmark (default: 60)", default=60),
        },
    ),
    "train": (
        "train what a recipe describes; the same command resumes a stopped training",
        _train,
        {
            "recipe": {
                "nargs": "?",
                "default": "own",
                "help": "a name in assets/recipes/ or a JSON file, whose name is the recipe's (default: own, for --target and --data)",
            },
            "--target": {
                "metavar": "NAME",
                "help": "the model to draft for: folder or Hub id (default: that of the recipe)",
            },
            "--data": {
                "metavar": "FILE",
                "help": "prompts: a file of JSON lines or plain text, a folder, or a data set on the Hub (default: those of the recipe)",
            },
            "--device": {"help": "cpu or cuda (default: cuda where there is one)"},
            "--set": {
                "action": "append",
                "default": [],
                "metavar": "FIELD=VALUE",
                "help": "change a field of the recipe, as in --set seed=2 --set loss.l1=0.5; may be given more than once",
            },
            "--out": {
                "dest": "folder",
                "type": Path,
                "metavar": "OUT",
                "help": "checkpoint folder (default: assets/checkpoints/NAME in a clone, build/checkpoints/NAME elsewhere, unless it has a "
                "checkpoint of another recipe)",
            },
            "--endpoint": {
                "type": _url,
                "metavar": "URL",
                "help": "let an OpenAI-compatible server with the target write the answers",
            },
            "--search": {
                "nargs": "+",
                "type": float,
                "metavar": "RATE",
                "help": "only compare these rates of Muon by short trainings, on answers that are held out",
            },
            "--steps": _count(
                "updates of each training of --search (default: %(default)s)", default=100
            ),
            "--minutes": {
                "type": float,
                "metavar": "N",
                "help": "minutes that all runs together may take, about; then the checkpoint is saved, and a drafter evaluated",
            },
            "--estimate": _switch("only print the disk, memory and time that it would take"),
        },
    ),
    "export": (
        "write a draft in the format of vLLM, SGLang, llama.cpp or speculators, and print how to serve with it",
        _export,
        {
            "draft": {"help": "embedded draft, folder or Hub id"},
            "--for": {
                "dest": "engine",
                "required": True,
                "metavar": "ENGINE",
                "help": "vllm, sglang, llama.cpp or speculators",
            },
            "--out": {
                "dest": "folder",
                "type": Path,
                "required": True,
                "metavar": "OUT",
                "help": "a new folder",
            },
            "--target": {
                "default": "TARGET",
                "help": "what its model card and the printed command call the target",
            },
        },
    ),
    "judge": (
        "check that the decoder in my_dspark.py is lossless and is DSpark; exit code 1 if not",
        _judge,
        {
            "file": {
                "nargs": "?",
                "type": Path,
                "metavar": "FILE",
                "help": "the file to check (default: my_dspark.py in this folder)",
            },
            "--page": _file(
                "write a page on a right decoder here (default, without FILE: my_dspark.html in this folder)"
            ),
            "--json": JSON_OPTION,
            "--prompts": _count("prompts per domain (default: %(default)s)", default=3),
        },
    ),
    "progress": (
        "list the exercises passed in the notebooks of this folder",
        _progress,
        {"--json": JSON_OPTION},
    ),
    "inspect": (
        "show what a draft is and which target it fits, without loading its weights; exit code 1 if it does not fit",
        _inspect,
        {
            "draft": {"help": "embedded draft, folder or Hub id"},
            "--target": {
                **TARGET_OPTION,
                "nargs": "+",
                "metavar": "NAME",
                "help": "targets: embedded checkpoint, folder or Hub id",
            },
            "--json": JSON_OPTION,
        },
    ),
    "parity": (
        "compare this package with folders of reference tensors",
        _parity,
        {"folders": {"nargs": "+", "type": Path, "metavar": "FOLDER", "help": "reference tensors"}},
    ),
    "doctor": (
        "show which models fit this machine, and which versions it has",
        _doctor,
        {"--json": JSON_OPTION},
    ),
    "lab": (
        "open the lessons in JupyterLab",
        _lessons,
        {"arguments": {"nargs": "*", "help": "after --: arguments for JupyterLab"}},
    ),
}
