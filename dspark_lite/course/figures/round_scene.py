"""The scene of a living round: what a page shows at each step. living_round.js plays it, `round_stage.still` draws one step."""

from types import SimpleNamespace

from ...common.errors import RequestError
from ..measure.recorded_rounds import RecordedRound
from .round_layers import LAYERS
from .round_stage import BOX, EDGE, LETTER, NARROW, WIDE, Stage, appear, counted, said


def script(
    r: RecordedRound, last: bool, one_by_one: bool, words: SimpleNamespace
) -> SimpleNamespace:
    """Return the steps of a round, each with its sentence and its milliseconds, and at which step what happens."""
    steps = []

    def step(say: str, ms: int) -> int:
        steps.append({"say": say, "ms": ms})
        return len(steps) - 1

    drafts, at = r.drafts, SimpleNamespace(steps=steps)
    at.start = step(
        f"The anchor is {said(r.anchor)}: the newest word, which the target has not read yet.", 1100
    )
    if one_by_one:
        at.drafted = [step(words.draft(k, draft), 750) for k, draft in enumerate(drafts)]
    else:
        at.drafted = [step(words.block(drafts), 1700)] * len(drafts)
    at.seen = step(words.seen(r), 2200) if words.seen else at.drafted[-1]
    at.read = step(words.read(len(drafts) + 1), words.reading)
    at.judged = []
    for draft in drafts[: r.accepted + 1]:
        at.judged.append(step(words.judge(draft), 700 if draft.kept else 2000))
    refused = r.accepted < len(drafts)
    void = len(drafts) - r.accepted - 1
    says = f"After the first refusal everything is void: {counted(void, 'draft')} more."
    at.void = step(says, 1100) if void > 0 else at.judged[-1]
    at.added = step(words.add(r, refused), 1700)
    at.forgot = step(words.forget(r), 1900) if words.forget else at.added
    at.committed = step(words.commit(r), 1700)
    at.next = None if last else step(f"{said(r.added)} is the next anchor.", 1000)
    at.second = at.drafted[min(1, len(drafts) - 1)]
    return at


def base_words() -> SimpleNamespace:
    """Return the sentences of the steps; a layer says some of them otherwise."""
    return SimpleNamespace(
        draft=lambda k, draft: f"The drafter runs for slot {k + 1} and guesses {said(draft.text)}.",
        block=lambda drafts: f"The drafter guesses {counted(len(drafts), 'word')}.",
        seen=None,
        read=lambda count: f"One pass of the target reads all {count}, and predicts after each.",
        reading=1500,
        judge=lambda draft: (
            f"{said(draft.text)}: "
            + ("kept." if draft.kept else "refused. The target would not write it here.")
        ),
        add=lambda r, refused: (
            f"The target writes {said(r.added)} itself"
            + (
                ", in the refused word's place."
                if refused
                else ": all drafts were kept, so its last prediction is a bonus."
            )
        ),
        forget=None,
        commit=lambda r: (
            f"The round commits {counted(r.accepted + 1, 'token')}: {counted(r.accepted, 'draft')}, and one of the target's own."
        ),
    )


def draw_round(stage: Stage, r: RecordedRound, at: SimpleNamespace) -> None:
    """Add what every layer shows: the text so far, the anchor, the drafts and their verdicts, the target's pass and its own word."""
    end = len(r.drafts) + 1
    leaves = {} if at.next is None else {at.next: {"opacity": 0}}
    most = int((stage.width - 2 * EDGE) / LETTER) - 1
    so_far = r.before.replace("\n", "↵") or "(the answer begins)"
    so_far = so_far if len(so_far) <= most else "…" + so_far[-most:]
    stage.text(EDGE, 16, so_far, leaves, fill="soft", mono=True)
    stage.token(0, r.anchor, "ink", "ink", leaves)
    for row in range(0, end, stage.columns):
        x, y = stage.slot(row)
        width = min(stage.columns, end - row) * stage.cell - 6
        sweep = {
            at.read: {
                "sx": 1,
                "ms": 1000 if end <= stage.columns else 500,
                "wait": 0 if not row else 500,
            },
            at.committed: {"opacity": 0},
        }
        stage.rect(x, y - 9, width, 4, "ink", at=sweep, sx=0, round=2)
    for k, draft in enumerate(r.drafts, start=1):
        _draw_draft(stage, k, r, draft, at)
    refused = r.accepted < len(r.drafts)
    slot, drop = r.accepted + 1, BOX + 8 if refused else 0
    moves = {at.added: {"opacity": 1, "dy": 0}}
    if refused:
        moves[at.committed] = {"dy": -drop}
    if at.next is not None:
        (x, y), (to_x, to_y) = stage.slot(slot), stage.slot(0)
        moves[at.next] = {
            "dx": to_x - x,
            "dy": to_y - y - drop,
            "fill": "ink",
            "stroke": "ink",
            "ms": 700,
        }
    stage.token(slot, r.added, "added-box", "added", moves, dy=drop, opacity=0)


def _draw_draft(stage: Stage, k: int, r: RecordedRound, draft, at: SimpleNamespace) -> None:
    """Add one draft: it appears, is judged, and is committed or fades."""
    drawn, judged = at.drafted[k - 1], k <= r.accepted + 1
    together = at.drafted[0] == at.drafted[-1]
    moves = {drawn: {"opacity": 1, "wait": 90 * k if together else 0}}
    x, y = stage.slot(k)
    if draft.kept:
        moves[at.judged[k - 1]] = {"fill": "kept-box", "stroke": "kept"}
        tick = [(x + stage.box / 2 + dx, y + BOX + dy) for dx, dy in ((-7, 11), (-2, 16), (8, 5))]
        ends = {} if at.next is None else {at.next: {"opacity": 0}}
        stage.path(
            tick,
            "kept",
            appear(at.judged[k - 1]) | {at.committed: {"opacity": 0}},
            thick=2.5,
            opacity=0,
        )
        moves |= ends
    elif judged:
        moves[at.judged[k - 1]] = {"fill": "refused-box", "stroke": "refused"}
        moves[at.committed] = {"opacity": 0, "dy": -8}
    else:
        moves[at.void] = {"opacity": 0.35, "wait": 80 * (k - r.accepted - 2)}
        moves[at.committed] = {"opacity": 0}
    stage.token(k, draft.text, "paper", "line", moves, opacity=0)
    if judged and not draft.kept:
        strike = {
            at.judged[k - 1]: {"sx": 1, "opacity": 1, "ms": 600, "wait": 350},
            at.committed: {"opacity": 0},
        }
        stage.path(
            [(x - 2, y + BOX / 2), (x + stage.box + 2, y + BOX / 2)],
            "refused",
            strike,
            thick=3,
            sx=0,
            opacity=0,
        )


def round_scene(layer: str, rounds: list[RecordedRound]) -> dict:
    """Return the scene of rounds in a row with the layer of a lesson, one of LAYERS: what living_round.js plays.

    "rounds" holds for each its "steps" and its shapes for a wide and a narrow page; "pages" the sizes of both; "telling" is the
    step that stands before anything moves; "told" says in sentences how each round ends.
    """
    if layer not in LAYERS:
        raise RequestError(f"there is no layer {layer!r}; the layers are {', '.join(LAYERS)}")
    if not rounds:
        raise RequestError("a living round needs at least one recorded round")
    if layer in ("forecast", "losses") and any(
        draft.confidence is None for r in rounds for draft in r.drafts
    ):
        raise RequestError(f"the layer {layer} needs a drafter with a confidence head")
    if layer == "push" and any(
        row[3] is None for r in rounds for draft in r.drafts for row in draft.top
    ):
        raise RequestError("the layer push needs a drafter with a sequential head")
    if layer == "left" and not all("drafter" in r.caches for r in rounds):
        raise RequestError("the layer left needs a drafter with a cache of its own")
    shown = LAYERS[layer]
    words = SimpleNamespace(**{**vars(base_words()), **shown.sentences})
    found, tellings, told = [], [], [f"{shown.title}."]
    for number, r in enumerate(rounds):
        at = script(r, number == len(rounds) - 1, shown.one_by_one, words)
        stages = [Stage(page, len(r.drafts) + 2, shown.zone, shown.foot) for page in (WIDE, NARROW)]
        for stage in stages:
            draw_round(stage, r, at)
            shown.draw(stage, r, at)
        found.append({"steps": at.steps, "drawings": [stage.shapes for stage in stages]})
        told.append(at.steps[at.committed]["say"])
        tellings.append(getattr(at, shown.telling))
    sizes = [[stage.width, stage.height] for stage in stages]
    return {
        "title": shown.title,
        "told": " ".join(told),
        "pages": sizes,
        "telling": tellings[0],
        "rounds": found,
    }
