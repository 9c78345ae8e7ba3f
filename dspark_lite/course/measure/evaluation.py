"""Accepted length and conditional acceptance, by domain or by benchmark, with intervals.

Everything comes from answers that were decoded, by `generate` or, with several slots, by the
serving engine; never from teacher forcing. Intervals are percentile bootstraps over prompts.
"""

import hashlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from ...common.errors import RequestError
from ...common.fingerprint import fingerprint
from ...decoding import Generation, Round
from ...decoding.proposal import draft_length
from ...decoding.sampling import check_temperature
from ...scheduling.policies import fixed
from ...serving.engine import Engine, Request
from ..estimates import Estimate, bootstrap, paired, share_of_rows
from ..world.prompt_files import Prompt
from .benchmarks import BENCHMARKS
from .journal import Journal, header, journal_path
from .lab import Lab, rollout

MIN_ROUNDS = 10  # below, a share says nothing


def rollouts(lab: Lab, drafter, prompts: list[str], *, temperature: float) -> list[Generation]:
    """Return `rollout`'s answer to each prompt."""
    return [
        rollout(lab, drafter, prompt, index, temperature=temperature)
        for index, prompt in enumerate(prompts)
    ]


def rollouts_side_by_side(
    lab: Lab, drafter, prompts: list[str], *, temperature: float
) -> list[Generation]:
    """Return `rollouts` by the serving engine, all prompts at once: the same distribution, other
    draws, a fraction of the time.

    Raise RequestError for a drafter that the engine cannot serve.
    """
    requests = {
        index: Request(lab.encode(prompt), lab.max_new_tokens, lab.seed + index)
        for index, prompt in enumerate(prompts)
    }
    answers = dict(_served(lab, drafter, requests, temperature, None, len(prompts)))
    return [answers[index] for index in range(len(prompts))]


def tally(generations: list[Generation]) -> np.ndarray:
    """Return committed tokens and rounds of each generation, [N, 2].

    A round commits the accepted drafts and the one token after them, the correction or bonus. As in
    the paper's evaluation, a round whose drafts held an accepted stop token counts them up to it
    and no bonus, and the first token, which the prompt's pass gives, belongs to no round. Tokens
    beyond the length limit are not counted.
    """
    counts = [[sum(r.committed for r in g.rounds), len(g.rounds)] for g in generations]
    return np.array(counts, dtype=float).reshape(-1, 2)


def position_counts(generations: list[Generation], gamma: int) -> np.ndarray:
    """Return how many rounds of each generation kept the draft at a position, and how many reached
    it, [N, gamma, 2].

    Drafts behind a stop token or the length limit are not counted: the answer has ended there.
    """
    counts = np.zeros((len(generations), gamma, 2))
    for row, generation in zip(counts, generations):
        for r in generation.rounds:
            cut_short = r.committed == r.accepted  # by the end of the answer: nothing was refused
            row[: r.accepted, 0] += 1
            row[: r.accepted if cut_short else min(r.accepted + 1, r.proposed), 1] += 1
    return counts


def acceptance_by_position(generations: list[Generation], gamma: int) -> list[float | None]:
    """Return, for each position, the share of rounds that accepted its draft among those that
    reached it; None where no round did."""
    return [
        float(accepted / reached) if reached else None
        for accepted, reached in position_counts(generations, gamma).sum(0)
    ]


def count_estimates(counts: np.ndarray) -> list[Estimate | None]:
    """Return `acceptance_by_position` with intervals, from `position_counts` [N, gamma, 2], which a
    row of `evaluate` carries; None where hardly a round came so far."""
    return [
        bootstrap(lambda groups: share_of_rows(groups[0]), [counts[:, k]])
        if counts[:, k, 1].sum() >= MIN_ROUNDS
        else None
        for k in range(counts.shape[1])
    ]


def mean_accepted_length(groups: list[np.ndarray]) -> np.ndarray:
    """Return committed tokens per round of each group of rows [..., N, 2], averaged over the
    groups: [...]."""
    return np.mean([share_of_rows(group) for group in groups], axis=0)


def relative_gain(ours: list[np.ndarray], theirs: list[np.ndarray]) -> Estimate:
    """Return how much longer one drafter is accepted than another in the macro-average over
    domains, as a fraction; both on the same prompts."""
    return paired(lambda a, b: mean_accepted_length(a) / mean_accepted_length(b) - 1, ours, theirs)


def evaluate(
    lab: Lab,
    drafters,
    prompts: dict[str, list[str]],
    *,
    temperature: float = 1.0,
    gamma: int | None = None,
    max_new_tokens: int | None = None,
    slots: int = 1,
    path: Path | None = None,
) -> dict:
    """Return a row for each drafter and domain or benchmark (`_row`), and DSpark's gain over DFlash
    if both are there.

    `drafters` are names, folders or Hub ids, or {label: one of these or a drafter}; `prompts` are
    keyed by domain or benchmark. With several `slots` the serving engine answers that many prompts
    side by side. A journal beside `path`, the JSON to be, keeps finished prompts, and the same call
    resumes. Before the first answer, raise DSparkLiteError for settings other than the journal's,
    CheckpointError for a drafter that does not fit, RequestError for one that cannot draft `gamma`
    tokens or be served.
    """
    check_temperature(temperature)
    max_new_tokens = lab.max_new_tokens if max_new_tokens is None else max_new_tokens
    if max_new_tokens < 1:
        raise RequestError(f"max_new_tokens is {max_new_tokens}; it must be 1 or more")
    labelled = drafters if isinstance(drafters, dict) else {name: name for name in drafters}
    decoding = {"temperature": temperature, "gamma": gamma, "max_new_tokens": max_new_tokens}
    settings = _settings(lab, labelled, decoding, slots)
    journal = Journal(journal_path(path) if path else None, settings)
    rows = _rows_by_journal(journal, lab, labelled, prompts, decoding, slots)
    return {
        **header(lab),
        **decoding,
        "slots": slots,
        "prompts": {name: len(texts) for name, texts in prompts.items()},
        "rows": rows,
        **_gain(rows),
    }


def _settings(lab: Lab, drafters: dict, decoding: dict, slots: int) -> dict:
    """Return what identifies an evaluation in its journal. Load every drafter once, so that none
    fails midway."""
    weights = {
        label: fingerprint(_checked(lab, drafter, decoding["gamma"], slots))
        for label, drafter in drafters.items()
    }
    return {
        "target": lab.target.name,
        "drafters": sorted(drafters),
        **decoding,
        "slots": slots,
        "seed": lab.seed,
        "weights": {"target": fingerprint(lab.target), **weights},
    }


def _gain(rows: list[dict]) -> dict:
    """Return {"dspark_over_dflash": `relative_gain`} if the rows have both drafters, else {}."""
    ours, theirs = (
        [row_tally(row) for row in rows if row["drafter"] == label]
        for label in ("dspark", "dflash")
    )
    return {"dspark_over_dflash": vars(relative_gain(ours, theirs))} if ours and theirs else {}


def _rows_by_journal(
    journal: Journal,
    lab: Lab,
    drafters: dict,
    prompts: dict[str, list[str]],
    decoding: dict,
    slots: int,
) -> list[dict]:
    """Return the rows of `evaluate`; answer the prompts that the journal lacks, with the settings
    `decoding`, and add them."""
    counted = _counts if slots == 1 else partial(_counts_side_by_side, slots=slots)
    keys = {
        (label, name): [prompt_key(label, name, index, text) for index, text in enumerate(texts)]
        for label in drafters
        for name, texts in prompts.items()
    }
    finished = sum(key in journal for some in keys.values() for key in some)
    rows, total = [], sum(map(len, keys.values()))
    with tqdm(
        total=total, initial=finished, desc="evaluate", unit="prompt", file=sys.stderr
    ) as bar:
        for (label, name), some in keys.items():
            bar.set_postfix_str(f"{label} {name}")
            drafter = _loaded(lab, drafters[label])
            missing = {key[2]: key for key in some if key not in journal}
            for index, counts in counted(
                lab, drafter, {index: prompts[name][index] for index in missing}, **decoding
            ):
                journal.add(missing[index], counts)
                bar.update(1)
            rows.append(
                _row(
                    label, name, [journal[key] for key in some], decoding["gamma"] or drafter.gamma
                )
            )
    return rows


def row_tally(row: dict) -> np.ndarray:
    """Return the `tally` [N, 2] that a row of an evaluation carries, for intervals of any
    comparison."""
    return np.array([row["committed"], row["rounds"]], dtype=float).T


def _loaded(lab: Lab, drafter):
    return lab.drafter(drafter) if isinstance(drafter, (str, Path)) else drafter


def _checked(lab: Lab, drafter, gamma: int | None, slots: int):
    """Return the loaded drafter. Raise RequestError if it cannot draft `gamma` tokens, or the
    engine cannot serve it in `slots`."""
    loaded = _loaded(lab, drafter)
    draft_length(gamma, loaded.gamma)
    if slots != 1:
        # its slots take memory only when a request comes
        Engine(lab.target, loaded, slots=slots, capacity=1)
    return loaded


def prompt_key(label: str, name: str, index: int, text: str | Prompt) -> tuple:
    """Return a prompt's name in the journal; another text in the same place is another prompt."""
    text = text if isinstance(text, str) else text.key
    return label, name, index, hashlib.sha256(text.encode()).hexdigest()[:12]


def rollout_journal(path: Path | None, lab: Lab, drafter, temperature: float) -> Journal:
    """Return the journal of rollouts beside the results file `path`. Without a path it stores
    nothing."""
    if path is None:
        return Journal(None, {})
    return Journal(
        journal_path(path),
        {
            "target": lab.target.name,
            "temperature": temperature,
            "max_new_tokens": lab.max_new_tokens,
            "seed": lab.seed,
            "weights": [fingerprint(lab.target), fingerprint(drafter)],
        },
    )


def room_for(lab: Lab, input_ids: torch.Tensor, max_new_tokens: int) -> int:
    """Return how many new tokens a prompt [1, n] may have; 0 or less if it fills the target's
    positions."""
    return min(max_new_tokens, lab.target.max_positions - input_ids.shape[1])


def rollout_with_room(
    lab: Lab, drafter, prompt: str, index: int, *, max_new_tokens: int, **options
) -> Generation | None:
    """Return `rollout`'s answer of at most `max_new_tokens`; None if the prompt leaves no position
    for one."""
    room = room_for(lab, lab.encode(prompt), max_new_tokens)
    if room < 1:
        return None
    return rollout(lab, drafter, prompt, index, max_new_tokens=room, **options)


def _round_counts(answer: Generation) -> list[list[int]]:
    """Return [proposed, accepted, committed] of each round."""
    return [[r.proposed, r.accepted, r.committed] for r in answer.rounds]


def _counts(
    lab, drafter, texts: dict[int, str], temperature, gamma, max_new_tokens
) -> Iterator[tuple[int, list | None]]:
    """Answer prompts one after another; yield the index of each and its `_round_counts`, None where
    an answer has no room."""
    for index, text in texts.items():
        answer = rollout_with_room(
            lab,
            drafter,
            text,
            index,
            temperature=temperature,
            gamma=gamma,
            max_new_tokens=max_new_tokens,
        )
        yield index, None if answer is None else _round_counts(answer)


def _counts_side_by_side(
    lab, drafter, texts: dict[int, str], temperature, gamma, max_new_tokens, slots
) -> Iterator[tuple[int, list | None]]:
    """Yield the same as `_counts` by the serving engine, as answers end; the draws of a prompt
    depend on its seed alone."""
    requests = {}
    for index, text in texts.items():
        input_ids = lab.encode(text)
        if (room := room_for(lab, input_ids, max_new_tokens)) < 1:
            yield index, None
        else:
            requests[index] = Request(input_ids, room, lab.seed + index)
    for index, answer in _served(lab, drafter, requests, temperature, gamma, slots):
        yield index, _round_counts(answer)


def _served(
    lab, drafter, requests: dict[int, Request], temperature, gamma, slots
) -> Iterator[tuple[int, Generation]]:
    """Return the index and the answer of each request by the serving engine, as answers end."""
    capacity = (
        max(
            (request.input_ids.shape[1] + request.max_new_tokens for request in requests.values()),
            default=0,
        )
        + drafter.gamma
        + 1
    )
    engine = Engine(
        lab.target,
        drafter,
        policy=gamma and fixed(gamma),
        slots=slots,
        capacity=capacity,
        temperature=temperature,
    )
    indices = {engine.submit(request): index for index, request in requests.items()}
    while not engine.idle:
        yield from ((indices[answer.id], answer) for answer in engine.step().answers)


def _row(label: str, name: str, found: list, gamma: int) -> dict:
    """Return a row of `evaluate` from the `_round_counts` of each prompt of a domain or benchmark.

    It holds the accepted length with its interval, the conditional acceptance by position, the
    committed tokens and rounds of each prompt, `position_counts`, and how many prompts were skipped
    because the target has no position left for an answer. None stands where no prompt gave a round.
    """
    generations = [
        Generation(rounds=[Round(*counts) for counts in rounds])
        for rounds in found
        if rounds is not None
    ]
    counts = tally(generations)
    length = bootstrap(mean_accepted_length, [counts])
    value, low, high = (
        None if np.isnan(number) else number for number in (length.value, length.low, length.high)
    )
    where = (
        {"benchmark": name, "domain": BENCHMARKS[name].domain}
        if name in BENCHMARKS
        else {"domain": name}
    )
    return {
        "drafter": label,
        **where,
        "accepted_length": value,
        "low": low,
        "high": high,
        "conditional_acceptance": acceptance_by_position(generations, gamma),
        "committed": counts[:, 0].astype(int).tolist(),
        "rounds": counts[:, 1].astype(int).tolist(),
        "position_counts": position_counts(generations, gamma).astype(int).tolist(),
        "skipped": len(found) - len(generations),
    }
