"""Replay recorded rounds on every machine: `make machines`. Two minutes; with --record, MTP-1's
rounds are recorded anew.

Writes assets/measurements/machines/replayed.json and prints its tables; --record writes
mtp_rounds.json beside it first. DSpark's rounds are those of `make confidence`.
"""

import argparse
import sys

import torch

from dspark_lite.common.files import write_json
from dspark_lite.common.fingerprint import fingerprint
from dspark_lite.course.formats import markdown
from dspark_lite.course.measure.evaluation import rollouts_side_by_side
from dspark_lite.course.measure.journal import check_writable, commit, header
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.measure.machines import CONTEXT, LOADS, NO_HOST, POLICIES, Machine
from dspark_lite.course.measure.serving_load import TEMPERATURE
from dspark_lite.course.replication.machine_results import (
    HEAD_LOADS,
    HEAD_MACHINES,
    MTP_ROUNDS,
    PROMPTS,
    REPLAYED,
    cpu_scatter,
    machines,
    published_steps,
    replay_all,
    replay_wrong_heads,
)
from tools.errors import report_errors


def record():
    """Record which draft of MTP-1 was accepted, round by round, on the first prompts of each
    domain, which the engine answers side by side; the round that the end of an answer cuts short
    is left out."""
    lab = setup("tiny", prompts=PROMPTS)
    drafter = lab.drafter("mtp")
    accepted = {
        domain: [
            "".join(
                str(r.accepted)
                for r in answer.rounds
                if r.committed > r.accepted and r.proposed == drafter.gamma
            )
            for answer in rollouts_side_by_side(lab, drafter, texts, temperature=TEMPERATURE)
        ]
        for domain, texts in lab.prompts.items()
    }
    settings = {"prompts": PROMPTS, "temperature": TEMPERATURE}
    weights = [fingerprint(lab.target), fingerprint(drafter)]
    write_json(MTP_ROUNDS, {**header(lab), **settings, "weights": weights, "accepted": accepted})


def plain_row(row: dict) -> dict:
    """Return a row with its estimates as JSON has them."""
    return {
        **row,
        "tokens_per_second": vars(row["tokens_per_second"]),
        "per_user": vars(row["per_user"]),
        "gains": {name: vars(found) for name, found in row["gains"].items()},
    }


def rounded(value):
    """Return a value of JSON with six digits of each number."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else value


def summary(found: dict) -> str:
    """Return four short tables, as docs/scheduling.md shows them: the numbers of each machine,
    what Algorithm 1 verifies and gains over whole blocks at each load, what it gains with a wrong
    head, and how far the model is from published steps."""
    return "\n\n".join(
        [
            numbers_table(found["machines"]),
            gains_table(list(found["machines"]), found["rows"]),
            wrong_heads_table(found["wrong_heads"]),
            published_table(found["published"], found["published_without_host"]),
        ]
    )


def numbers_table(machines: dict[str, dict]) -> str:
    """Return the seconds of a DSpark step on each machine, and how many requests fit, as markdown."""
    head = ["machine", "", "fixed", "a request", "a token", "after", "requests that fit"]
    rows = []
    for name, machine in machines.items():
        verify, draft = (machine["steps"]["dspark"][part] for part in ("verify", "draft"))
        rows.append(
            [
                name,
                machine["kind"],
                f"{1e3 * (verify['fixed'] + draft['fixed']):.1f} ms",
                f"{1e3 * (verify['per_request'] + draft['per_request']):.3f} ms",
                f"{1e3 * verify['per_token']:.4f} ms",
                f"{verify['free']:.0f} tokens",
                machine["most_requests"] or "-",
            ]
        )
    return markdown(head, rows)


def gains_table(names: list[str], replayed: list[dict]) -> str:
    """Return what Algorithm 1 verifies and gains on each machine at each load, as markdown."""
    rows = []
    for name in names:
        by_load = {
            row["load"]: row
            for row in replayed
            if (row["machine"], row["policy"]) == (name, "algorithm1")
        }
        rows.append([name, *(_gain(by_load.get(load)) for load in LOADS)])
    return markdown(["Algorithm 1 on", *(f"{load} under way" for load in LOADS)], rows)


def wrong_heads_table(replayed: list[dict]) -> str:
    """Return what Algorithm 1 gains with each wrong head, as markdown."""
    by_head = {}
    for row in replayed:
        by_head.setdefault(row["head"], []).append(_gain(row))
    places = (f"{name}, {load} under way" for name in HEAD_MACHINES for load in HEAD_LOADS)
    return markdown(["a head", *places], [[head, *cells] for head, cells in by_head.items()])


def published_table(published: list[dict], without_host: list[dict]) -> str:
    """Return the model's seconds over published ones, run by run, and those of the roofline alone,
    as markdown."""
    rows = []
    for run in dict.fromkeys(step["run"] for step in published):
        steps = [step for step in published if step["run"] == run]
        bare = [step["ratio"] for step in without_host if step["run"] == run]
        rows.append(
            [
                run,
                f"{steps[0]['requests']:.0f} to {steps[-1]['requests']:.0f}",
                ", ".join(f"{step['ratio']:.2f}" for step in steps),
                f"{min(bare):.2f} to {max(bare):.2f}",
            ]
        )
    return markdown(["published step", "requests", "model / published", "roofline alone"], rows)


def _gain(row: dict | None) -> str:
    if row is None:
        return "does not fit"
    low, high = (100 * row["gains"]["whole"][end] for end in ("low", "high"))
    gained = f"{100 * row['gains']['whole']['value']:+.1f} % [{low:.1f}, {high:.1f}]"
    return f"{row['drafts']:.1f}; {gained}".replace("-0.0", "0.0").replace("+0.0", "0.0")


def tables(found: dict) -> str:
    """Return the tables of what was replayed, and the model beside published steps, as markdown."""
    parts = []
    for name, machine in found["machines"].items():
        rows = [row for row in found["rows"] if row["machine"] == name]
        loads = sorted({row["load"] for row in rows})
        by_place = {(row["policy"], row["load"]): row for row in rows}
        body = []
        for policy in POLICIES:
            if (policy, loads[0]) not in by_place:
                continue
            cells = [by_place[policy, load] for load in loads]
            body.append([policy, *(_cell(row) for row in cells)])
        parts += [f"**{name}** ({machine['kind']})", markdown(["policy", *map(str, loads)], body)]
    head = ["published", "requests", "published (ms)", "model (ms)", "ratio", "without host"]
    lines = [
        [
            row["run"],
            f"{row['requests']:.0f}",
            f"{row['published']:.1f}",
            f"{row['modelled']:.1f}",
            f"{row['ratio']:.2f}",
            f"{bare['ratio']:.2f}",
        ]
        for row, bare in zip(found["published"], found["published_without_host"])
    ]
    return "\n\n".join([*parts, markdown(head, lines), summary(found)])


def _cell(row: dict) -> str:
    rate, whole = row["tokens_per_second"], row["gains"]["whole"]
    return (
        f"{rate['value']:,.0f} [{rate['low']:,.0f}, {rate['high']:,.0f}]; "
        f"{row['drafts']:.1f} drafts; {100 * whole['value']:+.1f} %"
    )


def machine_fields(machine: Machine) -> dict:
    """Return what the file records of a machine: its kind and source, the most requests that it
    holds (None: not known), and the coefficients of its steps, {way of drafting: fields}."""
    return {
        "kind": machine.kind,
        "source": machine.source,
        "most_requests": machine.most,
        "steps": {
            way: {"verify": vars(step.verify), "draft": vars(step.draft), "drafted": step.drafted}
            for way, step in machine.steps.items()
        },
    }


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="record MTP-1's rounds first")
    options = parser.parse_args(arguments)
    check_writable(REPLAYED)
    if options.record:
        record()
    torch.set_num_threads(1)
    found = {
        "commit": commit(),
        "prompts": PROMPTS,
        "context": CONTEXT,
        "machines": {name: machine_fields(machine) for name, machine in machines().items()},
        "cpu_scatter": cpu_scatter(),
        "published": published_steps(),
        "published_without_host": published_steps(NO_HOST),
        "rows": [plain_row(row) for row in replay_all()],
        "wrong_heads": [plain_row(row) for row in replay_wrong_heads()],
    }
    found = rounded(found)
    write_json(REPLAYED, found)
    print(tables(found))


if __name__ == "__main__":
    sys.exit(main())
