"""What judges are asked about the tiny drafters, our own answers, and how an engine's answers are
compared with ours."""

from itertools import zip_longest

import torch

from dspark_lite.common.files import ROOT
from dspark_lite.course.measure.journal import check_writable
from dspark_lite.course.measure.lab import setup
from dspark_lite.decoding.rounds import generate
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter
from dspark_lite.models.export import export

SCRATCH = ROOT / "build" / "judges"
DRAFTERS = {"plain": None, "dspark": "tiny-dspark", "dflash": "tiny-dflash"}
COUNTED = ("proposed", "accepted", "committed")  # of a round
SAME = 1e-3  # between two programs' draft logits in float32


def lab_of(options):
    """Return the tiny lab with the prompts asked for. Raise DSparkLiteError if the result's file
    cannot be written."""
    check_writable(options.out)
    return setup("tiny", prompts=options.prompts)


def prompts_of(lab):
    """Return the prompts of all domains in turn."""
    return [prompt for of_domain in lab.prompts.values() for prompt in of_domain]


def loaded(lab):
    """Return our drafters by name; None for plain decoding."""
    return {name: folder and load_drafter(folder, lab.target) for name, folder in DRAFTERS.items()}


def exported(name, engine):
    """Return the folder of a tiny drafter in the form that an engine loads; write it if it is
    missing."""
    folder = SCRATCH / f"{DRAFTERS[name]}-{engine}"
    if not folder.exists():
        export(DRAFTERS[name], engine, folder)
    return str(folder)


def asked_of_engines(lab, max_new_tokens, drafters):
    """Return what engines are asked, with our own answers by drafter.

    "answers" holds tokens and by round the proposed, accepted and committed tokens; "logits" those
    [g][V] of the first block of the first prompt.
    """
    ids = [lab.encode(prompt) for prompt in prompts_of(lab)]
    answers = {name: [] for name in drafters}
    for name, drafter in drafters.items():
        for prompt in ids:
            run = generate(lab.target, drafter, prompt, max_new_tokens=max_new_tokens)
            rounds = {field: [getattr(r, field) for r in run.rounds] for field in COUNTED}
            answers[name].append({"tokens": run.token_ids, **rounds})
    return {
        "target": str(EMBEDDED / "tiny-target"),
        "drafters": {name: folder and str(EMBEDDED / folder) for name, folder in DRAFTERS.items()},
        "prompts": [prompt[0].tolist() for prompt in ids],
        "max_new_tokens": max_new_tokens,
        "stop": list(lab.stop_token_ids),
        "gamma": 7,
        "longest": 512,
        "answers": answers,
        "logits": {name: d and first_block(lab.target, d, ids[0]) for name, d in drafters.items()},
    }


@torch.inference_mode()
def first_block(target, drafter, ids):
    """Return the logits [g][V] from which the first block after a prompt [1, n] is drawn
    greedily."""
    output, _ = target.prefill(ids, drafter.taps)
    state, anchor = drafter.begin(ids, output.features), output.logits[:, -1].argmax(-1)
    return drafter.draw_block(drafter.block_hidden(state, anchor), anchor, 0.0, None)[1][0].tolist()


def rows_of(judge, version, compared):
    """Return a row for each {what was compared: a truth a case}: how many agreed."""
    return [
        {
            "judge": judge,
            "version": version,
            "compared": what,
            "agreed": sum(agreed),
            "of": len(agreed),
        }
        for what, agreed in compared.items()
    ]


def compared(judge, asked, found):
    """Return the rows of an engine: texts token for token, rounds one by one, logits of the first
    block if it gives them."""
    lines = {}
    for name, theirs in found["answers"].items():
        own = asked["answers"][name]
        texts = [  # some leave the stop token out
            [[token for token in text["tokens"] if token not in asked["stop"]] for text in answers]
            for answers in (own, theirs)
        ]
        lines[f"{name}, greedy texts"] = [a == b for a, b in zip(*texts, strict=True)]
        if asked["drafters"][name]:
            field, says = "committed", "tokens committed"
            if "accepted" in theirs[0]:
                field, says = "accepted", "accepted drafts"
            lines[f"{name}, {says} by round"] = [
                same for pair in zip(own, theirs) for same in by_round(*pair, field)
            ]
        if found.get("logits", {}).get(name):
            both = (torch.tensor(answer["logits"][name]) for answer in (asked, found))
            apart = torch.sub(*both).abs().amax(1)
            lines[f"{name}, logits of the first block"] = apart.lt(SAME).tolist()
    return rows_of(judge, found["version"], lines)


def by_round(own, theirs, field):
    """Return for each round of an answer whether it is the same.

    Our last block ends where the answer ends; what an engine counts beyond does not matter.
    """
    room = list(map(min, own["proposed"], own["committed"]))
    if field == "committed":  # the target's own token is committed besides the drafts
        room = [count + 1 for count in own["proposed"]]
    return [
        None not in three and three[0] == min(three[1], three[2])
        for three in zip_longest(own[field], theirs[field], room)
    ]
