"""Load every form of a draft and compare; inspect every released draft: `make drafts`.

Each tiny drafter is written in every form that it has and loaded again. Every draft, every number
of accepted drafts and every token is compared with the drafter's own; the exit code is 1 if one
differs. Each released draft is inspected on a Hub on loopback that has its config and its tensors'
shapes. The results go to assets/measurements/drafts.json and docs/drafts.md; a stopped run resumes.
"""

import argparse
import json
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from dspark_lite.common.files import ROOT, read_json, write_json
from dspark_lite.course.measure.draft_summary import summarise, target_shape
from dspark_lite.course.measure.journal import Journal, header, journal_path
from dspark_lite.course.result_files import reference
from dspark_lite.decoding.rounds import generate
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter
from dspark_lite.models.export import export
from tools.errors import report_errors
from tools.hub_server import Hub, write_headers
from tools.judges.judge_speculators import FILLING, TINY
from tools.judges.questions import lab_of, prompts_of

MEASURED = ROOT / "assets" / "measurements" / "drafts.json"
SHARED_TENSORS = ("embed_tokens.weight", "lm_head.weight")
HEADS = ("markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov")


def without_shared(source, folder):
    """Copy a draft without embedding and LM head; return the copy's folder."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: value for name, value in tensors.items() if name not in SHARED_TENSORS},
        folder / "model.safetensors",
    )
    return folder


def set_config(folder, **fields):
    """Change fields of a draft's config; one set to `...` is removed."""
    config = read_json(folder / "config.json") | fields
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in config.items() if value is not ...})
    )


def forms(scratch):
    """Yield (drafter, form, folder of the drafter, function that writes the form and returns its
    folder) for every case."""
    for name, tiny in TINY.items():
        own, place = EMBEDDED / tiny, scratch / name
        yield (
            name,
            "DeepSpec without embedding and LM head",
            own,
            partial(without_shared, own, place / "bare"),
        )
        yield name, "speculators", own, partial(in_speculators, own, place / "speculators")
        yield (
            name,
            "speculators without embedding and LM head",
            own,
            partial(bare_in_speculators, own, place),
        )
    filling = scratch / "filling"
    shutil.copytree(EMBEDDED / TINY["dflash"], filling)
    set_config(filling, sample_from_anchor=False)
    yield FILLING, "z-lab DFlash", filling, partial(z_lab, filling, scratch / "z-lab")
    older = partial(in_speculators, filling, scratch / "older", sample_from_anchor=...)
    yield FILLING, "speculators without sample_from_anchor", filling, older


def in_speculators(own, folder, **fields):
    """Write a draft in the form of speculators; return its folder."""
    export(str(own), "speculators", folder)
    set_config(folder, **fields)
    return folder


def bare_in_speculators(own, folder):
    """Write a draft in the form of speculators without embedding and LM head; return its folder."""
    return without_shared(in_speculators(own, folder / "whole"), folder / "bare-speculators")


def z_lab(own, folder):
    """Write a DFlash as z-lab publishes one: fields nested, neither embedding nor LM head."""
    without_shared(own, folder)
    config = read_json(folder / "config.json")
    nested = {name: config[name] for name in ("mask_token_id", "target_layer_ids")}
    removed = dict.fromkeys([*nested, "sample_from_anchor", *HEADS], ...)
    set_config(
        folder,
        architectures=["DFlashDraftModel"],
        auto_map={"AutoModel": "dflash.DFlashDraftModel"},
        dflash_config=nested,
        **removed,
    )
    return folder


def played(lab, folder, prompts, temperature, max_new_tokens):
    """Return for each prompt [1, n] the text, and what is drafted and how much accepted in each
    round."""
    drafter, found = load_drafter(str(folder), lab.target), []
    for seed, ids in enumerate(prompts):
        answer = generate(
            lab.target,
            drafter,
            ids,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            generator=torch.Generator().manual_seed(seed),
        )
        found.append(
            [answer.token_ids, [[one.draft_tokens, one.accepted] for one in answer.rounds]]
        )
    return found


def compared(lab, journal, scratch, tokens):
    """Return a row for each form: in how many of the prompts everything is equal, greedily and
    sampled."""
    prompts, rows = [lab.encode(prompt) for prompt in prompts_of(lab)], []

    def kept(key, write):
        if key not in journal:
            folder = write()
            journal.add(
                key,
                [played(lab, folder, prompts, temperature, tokens) for temperature in (0.0, 1.0)],
            )
        return journal[key]

    for name, form, own, write in forms(scratch):
        pairs = zip(
            kept((name, "itself"), lambda own=own: own), kept((name, form), write), strict=True
        )
        greedy, sampled = (sum(a == b for a, b in zip(*pair, strict=True)) for pair in pairs)
        rows.append(
            {
                "drafter": name,
                "form": form,
                "greedy": greedy,
                "sampled": sampled,
                "of": len(prompts),
            }
        )
        print(
            f"{name:28} {form:44} greedy {greedy}, sampled {sampled} of {len(prompts)}", flush=True
        )
    return rows


def inspected(scratch):
    """Return a row for each released draft: what `inspect` says, whether it fits the first target,
    and the bytes fetched."""
    manifest, targets = (reference(f"released_{what}.json") for what in ("manifest", "targets"))
    target_name, rows = next(iter(targets)), []
    (scratch / target_name).mkdir(parents=True)
    (scratch / target_name / "config.json").write_text(json.dumps(targets[target_name]["config"]))
    target = target_shape(str(scratch / target_name))
    target.name = target_name
    for name, entry in manifest.items():
        write_headers(scratch / name, entry["config"], entry["tensors"])
        with Hub({name: {"main": scratch / name}}) as hub, hub.used_here(scratch / "home" / name):
            summary = summarise(name)
            fit = summary.fit(target)
        config = summary.draft.config
        rows.append(
            {
                "draft": name,
                "target": entry["target"],
                "form": summary.draft.publisher,
                "kind": summary.draft.kind.architecture,
                "layers": config.num_hidden_layers,
                "taps": list(config.target_layer_ids),
                "of_layers": config.num_target_layers,
                "hidden_size": config.hidden_size,
                "vocabulary": config.vocab_size,
                "bytes": summary.size,
                "fetched": hub.bytes_sent,
                "asked": target_name,
                "fits": fit.fits,
                "reason": fit.reason,
            }
        )
        print(f"{name:40} {hub.bytes_sent:8,} bytes fetched of {summary.size:,}", flush=True)
    return rows


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--prompts", type=int, default=10, metavar="N", help="a domain (default: %(default)s)"
    )
    parser.add_argument(
        "--tokens", type=int, default=40, metavar="N", help="longest answer (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=MEASURED, metavar="FILE")
    options = parser.parse_args(arguments)
    lab = lab_of(options)
    journal = Journal(
        journal_path(options.out), {"prompts": options.prompts, "tokens": options.tokens}
    )
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "inspected": inspected(Path(folder) / "hub"),
            "forms": compared(lab, journal, Path(folder), options.tokens),
        }
    write_json(
        options.out, {**header(lab), "prompts": options.prompts, "tokens": options.tokens, **found}
    )
    journal_path(options.out).unlink()
    return (
        1
        if any(row["greedy"] < row["of"] or row["sampled"] < row["of"] for row in found["forms"])
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
