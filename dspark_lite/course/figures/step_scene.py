"""Scenes of a step that several requests share: the budget of lesson 10 and the ragged pass of lesson 11.
living_round.js plays them like a round's."""

import torch

from ...scheduling.cost_table import CostTable
from ...scheduling.policies import schedule, throughput
from ..measure.recorded_rounds import RecordedRound
from .round_stage import EDGE, Stage, appear, counted, fitted, said

PAGES = {705: 8, 341: 8}  # width: columns of a block, its anchor included
MACHINE = 16  # a made-up machine: a step with B tokens lasts MACHINE + B milliseconds
SHADES = ("sky", "amber", "kept", "refused")  # of requests


def made_up_table(most: int) -> CostTable:
    """Return the cost table of the made-up machine up to `most` tokens, in steps a second."""
    sizes = list(range(1, most + 1))
    return CostTable(sizes, [1e3 / (MACHINE + size) for size in sizes])


def survivals(rounds: list[RecordedRound]) -> torch.Tensor:
    """Return the survival [R, g] of each draft: the product of the confidences up to it."""
    return torch.tensor([[d.confidence for d in r.drafts] for r in rounds]).cumprod(1)


class Sheet(Stage):
    """The shapes of a step on a page `width` pixels wide; `height` is set when they are all there."""

    def __init__(self, width: int):
        self.width, self.height, self.shapes = width, 0, []


def budget_scene(rounds: list[RecordedRound]) -> dict:
    """Return the scene of Algorithm 1 on one block of each request: drafts are admitted in the order of their survival, as long as
    each raises the expected tokens per second."""
    alive = survivals(rounds)
    requests, gamma = alive.shape
    table = made_up_table(requests * (gamma + 1))
    order, theta = throughput(alive, table)
    lengths = schedule(alive, table).tolist()
    admitted = [divmod(index, requests) for index in order.tolist()][: sum(lengths)]  # (k, request)
    steps = [
        (f"{requests} requests share one step. Each brings its anchor, which must go.", 1400),
        ("Each draft comes with its survival: how likely it and all before it are right.", 2200),
    ]
    for number, (k, r) in enumerate(admitted, start=1):
        draft = rounds[r].drafts[k]
        steps.append(
            (
                f"Draft {number}: {said(draft.text)} of request {r + 1} survives with {alive[r, k]:.2f}. "
                f"Expected tokens a second: {theta[number - 1]:.1f} → {theta[number]:.1f}.",
                420,
            )
        )
    stop = len(steps)
    budget = counted(len(admitted), "draft")
    if len(admitted) < alive.numel():
        fall = f"The next would lower {theta[len(admitted)]:.1f} to {theta[len(admitted) + 1]:.1f}: stop."
    else:
        fall = "Each draft has raised the expectation."
    steps.append((f"{fall} The budget is {budget}.", 2400))
    kept = sum(min(r.accepted, length) for r, length in zip(rounds, lengths))
    steps.append(
        (
            f"One pass reads {requests} anchors and {len(admitted)} drafts; {kept} of the drafts are kept.",
            2600,
        )
    )
    at = {(r, k): 2 + number for number, (k, r) in enumerate(admitted)}
    following = [divmod(index, requests)[::-1] for index in order.tolist()][sum(lengths) :][:1]
    sheets = [Sheet(width) for width in PAGES]
    for sheet in sheets:
        _budget_blocks(sheet, rounds, alive, lengths, at, following, stop)
        _expected_throughput(
            sheet, 6 + BLOCK_PITCH * len(rounds) + 24, theta[: len(admitted) + 2], stop
        )
    return _scene(
        "One step of several requests: the budget goes where survival is high", steps, sheets, stop
    )


BLOCK_PITCH = 50  # pixels from one request's block to the next


def _budget_blocks(sheet: Sheet, rounds, alive, lengths, at, following, stop: int) -> None:
    """Add the blocks of a step with survivals as bars, and verdicts. `following` is the draft (request, k) that would have gone
    in next, if any: it is framed while the walk stops."""
    cell = (sheet.width - 2 * EDGE) / (alive.shape[1] + 1)
    box = cell - 5
    for r, (block, length) in enumerate(zip(rounds, lengths)):
        y = 6 + BLOCK_PITCH * r
        for k in range(-1, alive.shape[1]):
            x = EDGE + cell * (k + 1)
            text = block.anchor if k < 0 else block.drafts[k].text
            words = fitted(text, box - 4, 6.4 if box > 50 else 5.9)
            size = 10.5 if box > 50 else 9.7
            if k < 0:
                sheet.rect(x, y, box, 24, "ink", "ink", round=4, thick=2)
                sheet.text(
                    x + box / 2, y + 16, words, fill="paper", size=size, anchor="middle", mono=True
                )
                continue
            moves = (
                {stop: {"opacity": 0.35}}
                if k >= length
                else {at[r, k]: {"fill": "added-box", "stroke": "added", "ms": 250}}
            )
            if k < length and k <= block.accepted:
                verdict = "kept" if k < block.accepted else "refused"
                moves[stop + 1] = {"fill": f"{verdict}-box", "stroke": verdict, "wait": 120 * k}
            elif k < length:
                moves[stop + 1] = {"opacity": 0.35, "wait": 120 * k}
            faded = {
                step: {"opacity": change["opacity"]}
                for step, change in moves.items()
                if "opacity" in change
            }
            if (r, k) in following:
                moves = {stop: {"stroke": "refused"}, stop + 1: {"stroke": "line", "opacity": 0.35}}
            sheet.rect(x, y, box, 24, "paper", "line", moves, round=4, thick=2)
            sheet.text(x + box / 2, y + 16, words, faded, size=size, anchor="middle", mono=True)
            value = alive[r, k].item()
            grows = {1: {"opacity": 1, "sx": value, "wait": 60 * k}} | faded
            sheet.rect(x, y + 28, box, 5, "sky", at=grows, opacity=0, sx=0)
            sheet.text(
                x + box / 2,
                y + 43,
                f"{value:.2f}".lstrip("0"),
                appear(1) | faded,
                size=9.7,
                anchor="middle",
                opacity=0,
            )


def _expected_throughput(sheet: Sheet, top: float, theta, stop: int) -> None:
    """Add expected tokens a second `theta` by drafts admitted, as points below `top`; the last one is refused at `stop`."""
    high = 60
    title = (
        f"expected tokens a second, by drafts admitted (modelled: a step lasts {MACHINE} + B ms)"
    )
    sheet.text(
        EDGE,
        top - 8,
        title if sheet.width > 500 else title.partition(":")[0] + ")",
        size=10.5,
        fill="soft",
    )
    low, most = theta.min().item(), theta.max().item()
    wide = (sheet.width - 2 * EDGE - 12) / max(1, len(theta) - 1)
    for number, value in enumerate(theta.tolist()):
        x, y = EDGE + 6 + wide * number, top + 6 + high * (1 - (value - low) / (most - low))
        last = number == len(theta) - 1
        seen = appear(stop if last else 1 + number, ms=200)
        role = "refused" if last else "added"
        sheet.rect(
            x - 3.5,
            y - 3.5,
            7,
            7,
            "paper" if last else role,
            role,
            seen,
            round=3.5,
            thick=2,
            opacity=0,
        )
        if number >= len(theta) - 2:  # the last two differ by less than the eye sees
            sheet.text(
                x,
                y + (17 if last else -8),
                f"{value:.1f}",
                seen,
                size=9.7,
                anchor="end" if last else "middle",
                opacity=0,
            )
    sheet.height = top + high + 16


def ragged_scene(rounds: list[RecordedRound]) -> dict:
    """Return the scene of a pass over blocks of different lengths: padded to a rectangle, then packed into one row with a mask."""
    alive = survivals(rounds)
    lengths = schedule(alive, made_up_table(alive.numel() + len(rounds))).tolist()
    tokens, padded = sum(lengths) + len(rounds), len(rounds) * (max(lengths) + 1)
    cut = ", ".join(map(str, lengths))
    steps = [
        (f"Scheduled for a made-up machine, the blocks are cut to {cut} drafts, each behind its anchor: {counted(tokens, 'token')}.", 2000),
        (f"A rectangle would carry {padded} tokens: the dotted {padded - tokens} are padding, computed and thrown away.", 2400),
        (f"Packed into one row, the pass carries {tokens}.", 2600),
        ("The mask keeps requests apart: each token sees the tokens of its own request up to itself (and its own cache, not drawn).", 3000),
    ]  # fmt: skip
    sheets = [Sheet(width) for width in PAGES]
    for sheet in sheets:
        _ragged(sheet, rounds, lengths, tokens)
    return _scene(
        "The ragged pass: blocks of different lengths in one row, and its mask", steps, sheets, 3
    )


def _ragged(sheet: Sheet, rounds, lengths, tokens: int) -> None:
    """Add the blocks as rows, which move into one, and the mask under it."""
    small = min(15.0, (sheet.width - 2 * EDGE) / tokens)
    cell = min(40.0, (sheet.width - 2 * EDGE) / (max(lengths) + 1))
    row_y, start = 6, EDGE + (sheet.width - 2 * EDGE - small * tokens) / 2
    mask_y, place, own = row_y + 28, 0, []
    for r, length in enumerate(lengths):
        own += [r] * (length + 1)
        for k in range(max(lengths) + 1):
            x, y = EDGE + cell * k, 6 + 30 * r
            if k > length:
                sheet.rect(x, y, cell - 4, 20, "none", "line", appear(1, 2), dash="2 3", opacity=0)
                continue
            scale = (small - 2) / (cell - 4)
            moves = {
                2: {
                    "dx": start + small * place - x,
                    "dy": row_y - y,
                    "sx": scale,
                    "ms": 1100,
                    "wait": 40 * place,
                }
            }
            sheet.rect(
                x,
                y,
                cell - 4,
                20,
                SHADES[r % 4],
                "ink" if k == 0 else "none",
                moves,
                round=3,
                thick=2,
            )
            place += 1
    sheet.rect(
        start - 2,
        mask_y - 2,
        small * tokens + 2,
        small * tokens + 2,
        "none",
        "line",
        appear(3),
        opacity=0,
    )
    for query, row in enumerate(own):
        for key in range(own.index(row), query + 1):
            x, y, seen = start + small * key, mask_y + small * query, appear(3, wait=50 * query)
            sheet.rect(x, y, small - 2, small - 2, SHADES[row % 4], at=seen, opacity=0)
    sheet.height = max(6 + 30 * len(rounds), mask_y + small * tokens + 6)


def _scene(title: str, steps: list[tuple[str, int]], sheets: list[Sheet], telling: int) -> dict:
    """Return a scene of one round."""
    shown = {
        "steps": [{"say": say, "ms": ms} for say, ms in steps],
        "drawings": [sheet.shapes for sheet in sheets],
    }
    sizes = [[sheet.width, sheet.height] for sheet in sheets]
    told = f"{title}. {steps[-1][0]}"
    return {"title": title, "told": told, "pages": sizes, "telling": telling, "rounds": [shown]}


STEP_LAYERS = {"budget": budget_scene, "ragged": ragged_scene}
