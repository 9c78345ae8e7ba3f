"""The lanes of a lesson's race, and who wins it."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from ...common.errors import RequestError
from ...losslessness.ties import same_or_tied
from ...models.checkpoints import EMBEDDED, load_drafter
from ..figures.lanes import Lane, lanes_figure
from ..figures.style import BLACK, DRAFTER_STYLES
from ..measure.lab import Lab, held_out_prompts, setup
from ..names import DOMAINS, DRAFTER_LABELS, PROFILES
from ..own_decoder.judge import assembled, run_file
from ..own_decoder.keep import EDITION
from ..replication import machine_results
from .decoders import Run, by_own, by_package, sharing, with_small_lm

TOKENS = 24  # of an answer, after the one that the prompt's pass brings
# The place of a prompt in each domain's held-out list. On these three the drafters' tokens a round
# are near the recorded means, so a race does not contradict what a lesson measures.
PROMPT = 28
SINCE = {  # the lesson whose race is the first with this lane
    "plain": "03",
    "small_lm": "03",
    "dflash": "04",
    "dspark": "05",
    "eagle3": "06",
}
PARTS = {  # the reader's functions that a lesson's race runs first
    "03": ("residual", "verify", "forget"),
    "04": ("block_pass",),
    "05": ("transition_bias", "draw_block"),
    "09": ("survival",),
    "10": ("algorithm_1",),
    "11": ("step",),
}
LESSONS = ("03", "04", "05", "06", "07", "09", "10", "11")
PLACES_SINCE = "09"  # the lesson since which the tokens that the target reads are shown
LOAD = 256  # requests under way on the machine that lesson 10's lane has the prices of
LIKELY = 0.5  # lesson 09's lane verifies a draft that survives with this chance or more


def race(lesson: str, lab: Lab | None = None, head: torch.nn.Module | None = None):
    """Run a lesson's race, draw it, and return the figure.

    Each lane writes the same greedy answers with the tiny models, one of each domain; its time is
    that of its median round, as often as it has rounds. Plain decoding and the course's drafters so
    far are the package's. The other lanes are made of the reader's my_dspark.py, with the course's
    functions where the reader's are missing or the file fails, which a printed sentence says. `lab`
    is used if it is the tiny one, on a CPU in float32; else such a lab is set up. `head` is lesson
    07's Markov head, trained on the lab's DFlash; it has a lane if the lab is used. Raise
    RequestError for a lesson without a race.
    """
    if lesson not in LESSONS:
        raise RequestError(f"lesson {lesson!r} has no race; {', '.join(LESSONS)} have one")
    tiny = _tiny(lab)
    head = head if tiny is lab else None
    try:
        mine, own = assembled()
        lanes = run_lanes(lesson, tiny, mine, head)
    except RequestError as error:
        print(f"{error}. Until you have mended it, the course's parts race for you.")
        mine, own = run_file(EDITION), []
        lanes = run_lanes(lesson, tiny, mine, head)
    parts = [name for since, names in PARTS.items() if since <= lesson for name in names]
    kept, missing = ([name for name in parts if (name in own) == yours] for yours in (True, False))
    if kept:
        print(
            f"Yours: {', '.join(kept)}." + f" The course's: {', '.join(missing)}." * bool(missing)
        )
    else:
        lanes = [_of_the_course(lane) if lane.label == "mine" else lane for lane in lanes]
    return lanes_figure(lesson, lanes, TOKENS, tiny.device_name, lesson >= PLACES_SINCE)


def _tiny(lab: Lab | None) -> Lab:
    """Return the lab if it is of the tiny models in float32 on a CPU, which a my_dspark.py needs,
    else such a lab."""
    fits = (
        lab is not None
        and lab.profile == "tiny"
        and (lab.device.type, lab.target.dtype) == ("cpu", torch.float32)
    )
    return lab if fits else setup("tiny", device="cpu", dtype="float32")


def _of_the_course(lane: Lane) -> Lane:
    """Return the reader's lane with the words for a file without a part in it."""
    return lane._replace(label="mine: the course's parts so far")


@torch.inference_mode()
def run_lanes(lesson: str, lab: Lab, mine, head=None) -> list[Lane]:
    """Return the lanes of a lesson from top to bottom. `mine` is a whole my_dspark.py as a
    module."""
    texts = [held_out_prompts(domain, PROMPT + 1)[PROMPT] for domain in DOMAINS]
    prompts = [lab.encode(text)[0].tolist() for text in texts]
    drafters = {
        name: None if name == "plain" else load_drafter(PROFILES["tiny"][name], lab.target)
        for name, since in SINCE.items()
        if since <= lesson
    }
    writers = {
        DRAFTER_LABELS[name]: partial(by_package, lab.target, drafter)
        for name, drafter in drafters.items()
    } | own_writers(lesson, lab, mine, drafters, head)
    runs = {label: [] for label in writers}
    for write in writers.values():
        write(prompts[0], 1)  # no lane pays for what is slow the first time alone
    for ids in prompts:  # all lanes in turn, so that a slow moment of the machine hits all
        for label, write in writers.items():
            runs[label].append(write(ids, TOKENS))
    if lesson >= "11":
        together = sharing(lab.target, drafters["dspark"], mine, prompts, TOKENS)
        runs["mine, three answers at once"] = [together]
    plain = [run.texts[0] for run in runs[DRAFTER_LABELS["plain"]]]
    colours = {DRAFTER_LABELS[name]: DRAFTER_STYLES[name][0] for name in drafters}
    return [
        _lane(label, colours.get(label, BLACK), found, _lossless(lab.target, prompts, found, plain))
        for label, found in runs.items()
    ]


def own_writers(lesson: str, lab: Lab, mine, drafters: dict, head) -> dict[str, Callable]:
    """Return the reader's lanes of a lesson, which write one answer at a time: {label: function of
    a prompt's ids and the number of tokens, which returns a Run}."""

    def blocks(name, sps=None, weights=None, **instead):
        draft = mine.Draft(EMBEDDED / PROFILES["tiny"][name])
        draft.w |= weights or {}
        return partial(
            by_own,
            lab.target,
            mine,
            lambda ids, count: mine.generate(lab.target.model, draft, ids, count, sps=sps),
            **instead,
        )

    if lesson == "03":
        small = drafters["small_lm"]
        models = lab.target.model, small.model.model
        return {
            "mine": partial(
                by_own, lab.target, mine, partial(with_small_lm, mine, models, small.gamma)
            )
        }
    if lesson == "04":  # no head yet, so each slot is drawn by itself
        return {"mine": blocks("dflash", transition_bias=lambda draft, previous: 0.0)}
    lanes = {"mine": blocks("dspark")}
    if head is not None:
        weights = {f"markov_head.{name}": tensor for name, tensor in head.state_dict().items()}
        lanes["mine, with my head"] = blocks("dflash", weights=weights)
    if lesson >= "09":
        lanes["mine, likely drafts only"] = blocks("dspark", sps=len, algorithm_1=likely)
    if lesson >= "10":
        lanes["mine, Algorithm 1"] = blocks("dspark", sps=full_machine)
    return lanes


def likely(survivals, sps) -> list[int]:
    """Return the number of drafts of each request that survive with LIKELY or more, for survivals
    [R, g]; the price of a step has no say."""
    return (survivals >= LIKELY).sum(1).tolist()


def full_machine(tokens: int) -> float:
    """Return the steps a second of lesson 10's V4-Flash with LOAD requests, if `tokens` tokens
    of each are verified, the anchor included."""
    step = machine_results.machines()[machine_results.V4_FLASH].step("dspark")
    return 1 / step.seconds(LOAD, LOAD * tokens)


def _lossless(target, prompts: list[list[int]], runs: list[Run], plain: list[list[int]]) -> bool:
    """Return whether the texts of runs are plain decoding's, ties in rounding aside."""
    texts = [text for run in runs for text in run.texts]
    return all(
        same_or_tied(target, torch.tensor([ids]), text, wanted)
        for ids, text, wanted in zip(prompts, texts, plain, strict=True)
    )


def _lane(label: str, colour: str, runs: list[Run], lossless: bool) -> Lane:
    """Return the lane of some runs, whose passes all last as long as the median one."""
    tokens, rounds, passes, verified = (
        sum(getattr(run, name) for run in runs)
        for name in ("tokens", "rounds", "passes", "verified")
    )
    seconds = [spent for run in runs for spent in run.seconds]
    milliseconds = 1e3 * median(seconds) * passes / tokens
    return Lane(label, colour, tokens / rounds, milliseconds, verified / tokens, lossless)
