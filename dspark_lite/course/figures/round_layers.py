"""What each lesson adds to a living round: times, coins, caches, bars, forecasts, wires."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from ..measure.recorded_rounds import RecordedDraft, RecordedRound
from .round_stage import BOX, EDGE, Stage, appear, fitted, said

READING = 8e9 / 3.35e12 * 1e3  # milliseconds in which the 16-bit weights of Qwen3-4B reach an H100
MULTIPLYING = 8e9 / 990e12 * 1e3  # and in which they are multiplied for one token, by data sheet


def verdict(draft: RecordedDraft) -> str:
    """Return what became of a judged draft."""
    return "kept." if draft.kept else "refused."


def _judge_by_coin(draft: RecordedDraft) -> str:
    """Return the sentence of a draft's coin."""
    chance = min(1.0, draft.p / draft.q)
    return (
        f"{said(draft.text)}: p {draft.p:.2f}, q {draft.q:.2f}, so it is kept with chance {chance:.2f}. "
        f"The coin shows {draft.coin:.2f}: {verdict(draft)}"
    )


def _add_owed(r: RecordedRound, refused: bool) -> str:
    """Return the sentence of the target's own draw."""
    if refused:
        return f"{said(r.added)} is drawn from what is owed, the blue areas."
    return f"All are kept: the bonus {said(r.added)} is drawn from p."


def _forget(r: RecordedRound) -> str:
    """Return the sentence of what the caches lose."""
    if r.accepted == len(r.drafts):
        return "Nothing was refused, so nothing is rubbed out."
    sizes = (f"the {owner}'s goes from {size[1]} to {size[2]}" for owner, size in r.caches.items())
    return f"What was refused is rubbed out of both caches: {' tokens, '.join(sizes)} tokens."


def draw_time(stage: Stage, r: RecordedRound, at: SimpleNamespace) -> None:
    """Add a bar of the time in which the weights arrive, and on the same scale the multiplications of each token."""
    y, full, tokens = stage.floor + 18, stage.width - 2 * EDGE, len(r.drafts) + 1
    sliver = full * MULTIPLYING / READING
    leaves = {} if at.next is None else {at.next: {"opacity": 0}}
    stage.text(
        EDGE,
        y - 6,
        f"all weights arrive from memory, once: {READING:.2f} ms",
        appear(at.read) | leaves,
        size=11,
        opacity=0,
    )
    stage.rect(
        EDGE,
        y,
        full,
        16,
        "sky",
        at={at.read: {"sx": 1, "ms": 2300, "ease": "linear"}} | leaves,
        sx=0,
    )
    for k in range(tokens):
        moves = {at.read: {"opacity": 1, "ms": 60, "wait": 260 * (k + 1)}} | leaves
        stage.rect(EDGE + k * sliver, y + 20, sliver - 0.5, 16, "refused", at=moves, opacity=0)
    label = f"multiplied for {tokens} tokens: {tokens * MULTIPLYING:.3f} ms, on the same scale"
    stage.text(
        EDGE + tokens * sliver + 6,
        y + 32,
        label,
        appear(at.read, wait=2100) | leaves,
        size=11,
        opacity=0,
    )
    stage.text(EDGE, y + 54, "modelled: Qwen3-4B on an H100, by data sheet", size=10.5, fill="soft")


def draw_coins(stage: Stage, r: RecordedRound, at: SimpleNamespace) -> None:
    """Add a bar from 0 to 1 under each judged draft, green up to its chance to be kept, with its coin, and the areas of p and q in
    the slot that is judged."""
    for k, draft in enumerate(r.drafts[: r.accepted + 1], start=1):
        (x, y), now, chance = stage.under(k), at.judged[k - 1], min(1.0, draft.p / draft.q)
        until = at.committed
        stage.rect(x, y, stage.box * chance, 8, "kept", at=appear(now, until), opacity=0)
        stage.rect(x, y, stage.box, 8, "none", "line", appear(now, until), opacity=0)
        at_coin = x + stage.box * draft.coin
        falls = {now: {"opacity": 1, "dy": 0, "ms": 350, "wait": 100}, until: {"opacity": 0}}
        stage.path([(at_coin, y - 4), (at_coin, y + 12)], "ink", falls, thick=3, opacity=0, dy=-12)
        stage.text(x, y + 22, f"keep {chance:.2f}", appear(now, until), size=10.5, opacity=0)
        bars = [(text, min(p, q), max(q - p, 0), max(p - q, 0)) for text, p, q, _ in draft.top]
        end = k == r.accepted + 1
        until = at.committed if end else at.judged[k] if k < len(at.judged) else at.added
        title = f"slot {k}: {said(draft.text)} was drawn from q"
        drawn = {draft.text: now} | ({r.added: at.added} if end else {})
        _areas(
            stage,
            [*bars, ("others", *draft.rest)],
            title,
            now,
            until,
            drawn,
        )
    if r.bonus:
        rest = 1 - sum(p for _, p in r.bonus)
        bars = [(text, 0, 0, p) for text, p in r.bonus] + [("others", 0, 0, rest)]
        _areas(
            stage, bars, "the bonus is drawn from p", at.added, at.committed, {r.added: at.added}
        )


def _areas(stage: Stage, bars: list[tuple], title: str, now: int, until: int, drawn: dict) -> None:
    """Add bars (text, kept, refused, owed) at the foot of a stage from step `now` on, and a frame around the bar of each text that
    was `drawn`, {text: since which step}."""
    foot, high = stage.floor + 122, 74
    gap = (stage.width - 2 * EDGE) / len(bars)
    scale = high / max(kept + max(refused, owed) for _, kept, refused, owed in bars)
    seen, hidden = appear(now, until), {"opacity": 0}
    stage.text(EDGE, stage.floor + 12, title, seen, size=11.5, **hidden)
    x = EDGE
    for role, name in (
        ("kept", "kept: min(p, q)"),
        ("refused", "refused: q − p"),
        ("added", "owed: p − q"),
    ):
        stage.rect(x, stage.floor + 21, 9, 9, role, at=seen, **hidden)
        stage.text(x + 13, stage.floor + 30, name, seen, size=10.5, **hidden)
        x += 24 + 5.7 * len(name)
    for k, (text, kept, refused, owed) in enumerate(bars):
        left, width = EDGE + k * gap + 4, min(gap - 10, 72)
        top = foot
        for role, part in (("kept", kept), ("refused", refused), ("added", owed)):
            if part * scale > 0.4:
                top -= part * scale
                stage.rect(left, top, width, part * scale, role, at=seen, **hidden)
        stage.path([(left, foot), (left + width, foot)], "line", seen, **hidden)
        words = text if text == "others" else fitted(text, gap - 4, 6.4)
        stage.text(
            left + width / 2,
            foot + 13,
            words,
            seen,
            size=10.5,
            anchor="middle",
            mono=True,
            **hidden,
        )
        if text in drawn:
            stage.rect(
                left - 3,
                top - 4,
                width + 6,
                foot - top + 8,
                "none",
                "ink",
                appear(drawn[text], until),
                thick=2,
                **hidden,
            )


def draw_caches(stage: Stage, r: RecordedRound, at: SimpleNamespace) -> None:
    """Add the entries of the target's cache and of the drafter's under the tokens that they belong to: written, and rubbed out."""
    for lane, (owner, sizes) in enumerate(r.caches.items()):
        down = 14 + 34 * lane
        written = sizes[1] - sizes[0]
        behind = int(owner == "drafter" and written > len(r.drafts))  # it catches up on a token
        stays = sizes[2] - sizes[0] - behind
        for k in range(written - behind):
            x, y = stage.under(k)
            now = at.read if owner == "target" else at.drafted[min(k, len(r.drafts) - 1)]
            moves = {now: {"opacity": 1, "sx": 1, "wait": 60 * k if owner == "target" else 0}}
            if k >= stays:
                moves[at.forgot] = {
                    "opacity": 0,
                    "sx": 0,
                    "wait": 130 * (written - behind - 1 - k),
                    "ms": 350,
                }
                rubbed = {
                    at.forgot: {"opacity": 1, "wait": 130 * (written - behind - 1 - k)},
                    at.committed: {"opacity": 0},
                }
                stage.path(
                    [(x, y + down + 12), (x + stage.box, y + down + 4)],
                    "refused",
                    rubbed,
                    thick=2,
                    opacity=0,
                )
                stage.rect(
                    x, y + down, stage.box, 16, "none", "line", rubbed, dash="2 3", opacity=0
                )
            if at.next is not None and k < stays:
                moves[at.next] = {"opacity": 0}
            role = "sky" if owner == "target" else "amber"
            stage.rect(x, y + down, stage.box, 16, role, at=moves, opacity=0, sx=0, round=2)
        x, y = stage.under(0)
        marks = (0, at.read if owner == "target" else at.drafted[-1], at.forgot)
        for place, (begins, size) in enumerate(zip(marks, sizes)):
            until = marks[place + 1] if place < 2 else None
            seen = appear(begins, until)
            stage.text(x, y + down - 4, f"{owner}'s cache: {size} tokens", seen, size=11, opacity=0)


def _bars(
    stage: Stage, k: int, r: RecordedRound, now: int, before: int | None, until: dict
) -> None:
    """Add the likeliest words of slot k as bars behind their names: from step `before` on dashed, by the base logits, from `now` on
    filled, by q."""
    draft = r.drafts[k - 1]
    rows = sorted(draft.top, key=lambda row: (row[0] != draft.text, -max(row[2], row[3] or 0)))[:3]
    x, y = stage.under(k)
    for line, (text, _, q, base) in enumerate(
        sorted(rows, key=lambda row: -max(row[2], row[3] or 0))
    ):
        top, full = y + 17 * line, stage.box
        moves = {now: {"opacity": 1, "sx": max(q, 0.004), "ms": 600}} | until
        if before is not None:
            stage.rect(
                x,
                top,
                max(full * base, 0.5),
                14,
                "none",
                "line",
                appear(before) | until,
                dash="3 2",
                opacity=0,
            )
        begins = 0.004 if before is None else max(base, 0.004)
        stage.rect(x, top, full, 14, "sky", at=moves, opacity=0, sx=begins)
        drawn = {now: {"opacity": 1, "bold": text == draft.text}} | until
        stage.text(
            x + 2,
            top + 11,
            fitted(text, full - 4, 6.4),
            ({} if before is None else appear(before)) | drawn,
            size=10.5,
            mono=True,
            opacity=0,
        )
        if text == draft.text:
            stage.rect(
                x - 1,
                top - 1,
                full + 2,
                16,
                "none",
                "ink",
                appear(now, wait=500) | until,
                thick=1.6,
                opacity=0,
            )


def draw_collide(stage: Stage, r: RecordedRound, at: SimpleNamespace) -> None:
    """Add each slot's likeliest words by the drafter. All slots draw at the same moment."""
    leaves = {at.committed: {"opacity": 0}}
    for k in range(1, len(r.drafts) + 1):
        _bars(stage, k, r, at.drafted[0], None, leaves)


def draw_push(stage: Stage, r: RecordedRound, at: SimpleNamespace) -> None:
    """Add each slot's likeliest words by the base logits, and how the token drawn before pushes them."""
    leaves = {at.committed: {"opacity": 0}}
    for k in range(1, len(r.drafts) + 1):
        now = at.drafted[k - 1]
        _bars(stage, k, r, now, at.start, leaves)
        (x, y), (to_x, to_y) = stage.slot(k - 1), stage.under(k)
        moves = {
            now: {"opacity": 1, "ms": 300},
            (at.drafted[k] if k < len(r.drafts) else at.read): {"opacity": 0},
        }
        if to_x > x:  # else the next slot begins a row
            start, ends = (x + stage.box - 10, y + BOX + 2), (to_x + 14, to_y - 5)
            middle = (start[1] + ends[1]) / 2
            stage.path(
                [start, (start[0], middle), (ends[0], middle), ends],
                "refused",
                moves,
                thick=2,
                tip=True,
                opacity=0,
            )


def draw_forecast(stage: Stage, r: RecordedRound, at: SimpleNamespace) -> None:
    """Add each draft's confidence and the survival of the prefix up to it, the product."""
    alive, high = 1.0, 44
    x, y = stage.under(0)
    for down, role, name in ((14, "sky", "confidence"), (32, "ink", "survival")):
        stage.rect(
            x,
            y + down - 8,
            8,
            8,
            role,
            at=appear(at.seen) | {at.committed: {"opacity": 0}},
            opacity=0,
        )
        stage.text(
            x + 11,
            y + down,
            name[: int((stage.cell - 9) / 5.4)],
            appear(at.seen) | {at.committed: {"opacity": 0}},
            size=10.5,
            opacity=0,
        )
    for k, draft in enumerate(r.drafts, start=1):
        alive *= draft.confidence
        x, y = stage.under(k)
        pale = {} if k <= r.accepted + 1 else {at.void: {"opacity": 0.3}}
        for left, role, value in ((2, "sky", draft.confidence), (stage.box / 2 + 2, "ink", alive)):
            width, wait = stage.box / 2 - 6, 130 * k
            moves = (
                {at.seen: {"opacity": 1, "sy": 1, "ms": 600, "wait": wait}}
                | pale
                | {at.committed: {"opacity": 0}}
            )
            stage.rect(
                x + left,
                y + high * (1 - value),
                width,
                max(high * value, 0.5),
                role,
                at=moves,
                sy=0,
                opacity=0,
            )
            stage.text(
                x + left + width / 2,
                y + high + 12,
                f"{value:.2f}".lstrip("0"),
                appear(at.seen, wait=wait) | pale | {at.committed: {"opacity": 0}},
                size=10.5,
                anchor="middle",
                opacity=0,
            )
        stage.path(
            [(x, y + high), (x + stage.box, y + high)],
            "line",
            appear(at.seen) | {at.committed: {"opacity": 0}},
            opacity=0,
        )


def draw_wire(stage: Stage, r: RecordedRound, at: SimpleNamespace) -> None:
    """Add the feature that each pass reads beside a word: the target's beside the anchor, then the output of the pass before, by wire;
    when the target has read the block, its features replace those of kept tokens, and the others are thrown away."""
    for k in range(len(r.drafts) + 1):
        x, y = stage.under(k)
        middle = (x + stage.box / 2, y + 12)
        own = {at.drafted[k - 1]: {"opacity": 1}} if 0 < k < len(r.drafts) else {}
        seen = own | {at.committed: {"opacity": 0}}
        if own:
            stage.rect(
                middle[0] - 7,
                y + 5,
                14,
                14,
                "amber",
                "amber",
                seen if k > r.accepted else own | {at.added: {"opacity": 0}},
                round=7,
                thick=2,
                opacity=0,
            )
        if k <= r.accepted:
            shown = appear(at.start if k == 0 else at.added, at.next, wait=90 * k)
            stage.rect(
                middle[0] - 7, y + 5, 14, 14, "added", "added", shown, round=7, thick=2, opacity=0
            )
        elif own:
            cross = appear(at.added, at.committed)
            for way in (-1, 1):
                stage.path(
                    [(middle[0] - 6, y + 12 - 6 * way), (middle[0] + 6, y + 12 + 6 * way)],
                    "ink",
                    cross,
                    thick=2,
                    opacity=0,
                )
        before = stage.under(k - 1) if k else (x, y)
        if own and before[1] == y:
            wire = [(before[0] + stage.box / 2 + 8, y + 12), (middle[0] - 10, y + 12)]
            stage.path(
                wire,
                "amber",
                {at.drafted[k - 1]: {"opacity": 1, "sx": 1}, at.added: {"opacity": 0}},
                thick=2,
                tip=True,
                sx=0,
                opacity=0,
            )
    x = EDGE
    for fill, name in (
        ("added", "the target's feature"),
        ("amber", "the drafter's own output"),
    ):
        stage.rect(x, stage.floor + 5, 11, 11, fill, fill, round=6, thick=2)
        stage.text(x + 16, stage.floor + 15, name, size=10.5)
        x += 30 + 5.7 * len(name)


def overlap(draft: RecordedDraft) -> float:
    """Return the area that p and q of a slot share: the chance that its draft is kept."""
    return sum(min(p, q) for _, p, q, _ in draft.top) + draft.rest[0]


def draw_losses(stage: Stage, r: RecordedRound, at: SimpleNamespace) -> None:
    """Add under each judged slot the overlap of p and q as a green bar, which L1 pulls to the right; q of the word that the target
    writes there, which cross-entropy pulls; and the confidence as a tick, which its loss pulls to the end of the green."""
    for k, draft in enumerate(r.drafts[: r.accepted + 1], start=1):
        (x, y), now = stage.under(k), at.judged[k - 1]
        seen = appear(now, at.next)
        shared, written = overlap(draft), draft.text if draft.kept else r.added
        q = next((row[2] for row in draft.top if row[0] == written), 0.0)
        for down, value, role in ((0, shared, "kept"), (24, q, "sky")):
            grown = {now: {"opacity": 1, "sx": 1, "ms": 600}} | (
                {} if at.next is None else {at.next: {"opacity": 0}}
            )
            stage.rect(x, y + down, max(stage.box * value, 0.5), 10, role, at=grown, sx=0)
            stage.rect(x, y + down, stage.box, 10, "none", "line", seen, opacity=0)
        tick = x + stage.box * draft.confidence
        stage.path([(tick, y - 3), (tick, y + 13)], "ink", seen, thick=3, opacity=0)
        for down, words in ((20, f"{shared:.2f}"), (44, f"{q:.2f}")):
            stage.text(x, y + down, words, seen, size=10.5, opacity=0)
    rows = (
        ("kept", "overlap of p and q: L1 pulls it to 1; tick: confidence, pulled to the overlap"),
        ("sky", "q of the word that the target wrote: cross-entropy pulls it to 1"),
    )
    for line, (role, words) in enumerate(rows):
        y = stage.floor + 12 + 28 * line
        stage.rect(EDGE, y - 9, 10, 10, role)
        half = len(words) if stage.width > 400 else words.find(":") + 1
        stage.text(EDGE + 15, y, words[:half], size=10.5)
        stage.text(EDGE + 15, y + 13, words[half:].strip(), size=10.5)


def draw_left(stage: Stage, r: RecordedRound, at: SimpleNamespace) -> None:
    """Add a bar of the target's cache and one of the draft's, in tokens; red is what no committed token owns."""
    most = max(size for sizes in r.caches.values() for size in sizes)
    for lane, owner in enumerate(("target", "drafter")):
        sizes, y = r.caches[owner], stage.floor + 24 + 34 * lane
        names = {"target": "the target's cache", "drafter": "the draft's cache"}
        full = stage.width - 2 * EDGE
        owned = min(sizes[2], r.caches["target"][2])
        role = "sky" if owner == "target" else "amber"
        stage.text(
            EDGE,
            y - 4,
            f"{names[owner]}: {sizes[2]} tokens",
            appear(at.committed),
            size=11,
            opacity=0,
        )
        grown = {at.committed: {"opacity": 1, "sx": 1, "ms": 700}}
        stage.rect(EDGE, y, full * owned / most, 12, role, at=grown, sx=0)
        if over := sizes[2] - owned:
            lit = appear(at.committed, wait=700)
            left, width = EDGE + full * owned / most, full * over / most
            stage.rect(left, y, width, 12, "refused", at=lit, opacity=0)
            words = f"{over} that nobody owns"
            stage.text(
                EDGE + full, y - 4, words, lit, size=11, fill="refused", anchor="end", opacity=0
            )


def _pushed(k: int, draft: RecordedDraft) -> str:
    """Return the sentence of a draw after a push."""
    base = next(row[3] for row in draft.top if row[0] == draft.text)
    return (
        f"Slot {k + 1}: the token before it pushes the bars, from dashed to blue. {said(draft.text)} is drawn, whose bar went "
        f"from {base:.2f} to {draft.q:.2f}."
    )


@dataclass(frozen=True)
class Layer:
    """What a lesson adds to a round: what it draws, the pixels that it takes under each row and under all rows, and the sentences
    that it says otherwise. `title` says what is in motion, `telling` which moment stands before anything moves."""

    title: str
    draw: Callable = lambda stage, r, at: None
    zone: int = 0
    foot: int = 0
    one_by_one: bool = False  # whether the drafter draws its words one after the other
    telling: str = "added"
    sentences: dict = field(default_factory=dict)


LAYERS = {
    "words": Layer("A block is drafted, judged, struck out at the first refusal, and committed"),
    "time": Layer(
        "A round, and the time that its pass takes",
        draw_time,
        foot=78,
        sentences={
            "read": lambda count: (
                f"One pass reads all {count}. It waits for the weights; multiplying takes a sliver of that time."
            ),
            "reading": 3000,
        },
    ),
    "coins": Layer(
        "A round of random draws: the areas of p and q, and a coin for each draft",
        draw_coins,
        zone=26,
        foot=142,
        sentences={"judge": _judge_by_coin, "add": _add_owed},
    ),
    "caches": Layer(
        "A round and both caches: what is written, and what is rubbed out",
        draw_caches,
        zone=66,
        one_by_one=True,
        telling="forgot",
        sentences={"forget": _forget},
    ),
    "collide": Layer(
        "A round whose slots draw at once",
        draw_collide,
        zone=54,
        sentences={
            "block": lambda drafts: (
                f"All {len(drafts)} slots draw at once; none knows what the others draw."
            ),
            "judge": lambda draft: (
                f"{said(draft.text)}, drawn with q {draft.q:.2f}. After the words before it the target gives it {draft.p:.2f}: {verdict(draft)}"
            ),
        },
    ),
    "push": Layer(
        "A round in which each drawn token pushes the bars of the next slot",
        draw_push,
        zone=54,
        one_by_one=True,
        telling="second",
        sentences={
            "draft": _pushed,
        },
    ),
    "forecast": Layer(
        "A round with its forecast: confidence and survival of each draft",
        draw_forecast,
        zone=62,
        sentences={
            "seen": lambda r: (
                "Before the target reads the block, the head says how sure each draft is. Survival is the product up to there."
            ),
            "judge": lambda draft: (
                f"{said(draft.text)}, confidence {draft.confidence:.2f}: {verdict(draft)}"
            ),
        },
    ),
    "wire": Layer(
        "A round whose drafter reads its own output",
        draw_wire,
        zone=26,
        foot=22,
        one_by_one=True,
        sentences={
            "draft": lambda k, draft: (
                f"Pass {k + 1} of the drafter reads "
                f"{'the anchor and the target’s feature' if k == 0 else 'the last draft and its own output'}"
                f", and guesses {said(draft.text)}."
            ),
            "add": lambda r, refused: (
                f"The target writes {said(r.added)}. Its features replace the drafter's own outputs for the kept words; the others are thrown away."
            ),
        },
    ),
    "losses": Layer(
        "A round, and what the three losses of a training would pull on in each slot",
        draw_losses,
        zone=50,
        foot=60,
        sentences={
            "judge": lambda draft: (
                f"{said(draft.text)} stood in a slot where p and q share {overlap(draft):.2f}, so a draft is kept that often; "
                f"the head said {draft.confidence:.2f}. {verdict(draft).capitalize()}"
            ),
        },
    ),
    "left": Layer(
        "Rounds of a sick drafter: what stays in its cache",
        draw_left,
        foot=84,
        telling="committed",
        sentences={
            "commit": lambda r: (
                f"The text grew by {r.accepted + 1}, the draft's cache by {r.caches['drafter'][2] - r.caches['drafter'][0]}."
            ),
        },
    ),
}
