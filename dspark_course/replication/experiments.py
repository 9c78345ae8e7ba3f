"""What was varied to test why a claim does not hold here, a table: what it was, and what came out under each condition."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dspark_lite.common.estimates import Estimate, paired
from dspark_lite.common.formats import interval
from dspark_lite.common.names import DOMAINS, DRAFTER_LABELS
from dspark_lite.common.recorded import read
from dspark_lite.scheduling.calibration import survivals, survived
from ..measure.evaluation import relative_gain, row_tally
from ..measure.gates import SMALL_LM_LENGTH, SMALL_LM_LENGTHS
from ..measure.studies import DEEP_HEADS, DEEP_HEADS_TWO_PASSES, DEPTHS, HEADS, LATENCY, TABLE_1
from . import our_results, recorded_serving, worlds
from .our_results import gains
from .quantities import acceptance, ahead, falls

QUALITY = our_results.MEASUREMENTS.parent / "target_quality.json"
CAUSES = our_results.MEASUREMENTS.parent / "causes.json"
WITH_NAME = "dspark, told the name"
CURE = "diagnosis-5-full-length"  # the recipe of lesson 07 that copies names
MANY = 4096  # requests under way, to which the costs of a step are extended
DIAGNOSIS = our_results.MEASUREMENTS.parent / "diagnosis.json"


def answer_entropy() -> dict[str, float]:
    """How much choice the target's answers leave, by domain: the mean entropy in nats per token at temperature 1."""
    return {row["domain"]: row["entropy_nats"] for row in quality()["rows"]}


def quality() -> dict:
    """What `python -m dspark_lite quality` measured of the target."""
    return read(QUALITY, f"python -m dspark_lite quality --json {QUALITY.name}")


def diagnosis() -> dict:
    """What was measured once of drafters around a function's name; no script measures it anew."""
    return read(DIAGNOSIS, f"git restore assets/measurements/{DIAGNOSIS.name}")


def first_position(recipe: str) -> float:
    """The share of a recipe's first drafts that are accepted, in the mean over the domains."""
    return float(np.mean([first_draft(recipe, domain) for domain in DOMAINS]))


def first_draft(recipe: str, domain: str) -> float:
    """The share of a recipe's first drafts that are accepted in a domain."""
    return our_results.conditional_acceptance(recipe, domain)[0].value


def told_names() -> dict[str, dict]:
    """What `make causes` measured of code answers, by drafter; WITH_NAME is DSpark that is told the function's name."""
    return {row["drafter"]: row for row in read(CAUSES, "make causes")["told_names"]}


def told_gain(ours: str, theirs: str) -> Estimate:
    """How much longer one drafter of `told_names` accepts than another, on code."""
    return relative_gain(*([row_tally(told_names()[name])] for name in (ours, theirs)))


def in_the_name(drafter: str) -> tuple[int, int]:
    """How many of a drafter's refusals on code fell on a token of the function's name, and how many there were."""
    in_name, refused = np.sum(told_names()[drafter]["refusals"], 0)
    return int(in_name), int(refused)


def first_draft_lead(ours: str) -> Estimate:
    """How many more of a drafter's first drafts on code are accepted than of DFlash's, of the drafters of `told_names`."""
    counts = [[np.array(told_names()[name]["position_counts"], dtype=float)] for name in (ours, "dflash")]
    return paired(lambda a, b: acceptance(a[0], 1) - acceptance(b[0], 1), *counts)


def overheads_by_context() -> dict[int, float]:
    """How much longer DSpark's rounds are than DFlash's at draft length 16, by the tokens of the context: the target's pass grows
    with them, the head's loop does not."""
    measured = our_results.measured(LATENCY)
    contexts = sorted({row["context"] for row in measured["rows"]})
    ours, theirs = (np.median(our_results.round_times(measured, name, 16), 0) for name in ("dspark", "dflash"))
    return dict(zip(contexts, (ours / theirs - 1).tolist()))


def greedy_excesses() -> np.ndarray:
    """By how much the raw confidence promises more than comes in greedy decoding, for which it was not trained, by position."""
    found = read(CAUSES, "make causes")["greedy"].values()
    logits, accepted = (np.concatenate([np.array(part[name]) for part in found]) for name in ("logits", "accepted"))
    return (survivals(logits) - survived(accepted, logits.shape[1])).mean(0)


def additive_step(world: str = "shallow") -> np.ndarray:
    """Seconds of DSpark's step, of each request and of each verified token in it: least relative squares over the measured loads."""
    costs = recorded_serving.engine_costs("dspark", world)
    requests, tokens = np.meshgrid(costs.requests, costs.tokens_per_request, indexing="ij")
    measured = np.asarray(costs.step_seconds)
    terms = np.stack([np.ones_like(measured), requests, requests * tokens], -1) / measured[..., None]
    return np.linalg.lstsq(terms.reshape(-1, 3), np.ones(measured.size), rcond=None)[0]


def seven_over_one(world: str = "shallow") -> tuple[float, float]:
    """(throughput of seven drafts over that of one with MANY requests under way; how many times as costly a verified token would have
    to be for one to give as much), in the fit of the measured costs."""
    heavy = max(row["concurrency"] for row in recorded_serving.rows("policies", drafter="dspark", policy="fixed 7"))
    one, seven = (recorded_serving.value("accepted_length", recorded_serving.row("policies", drafter="dspark", policy=f"fixed {count}",
                                                                                concurrency=heavy)) for count in (1, 7))
    step, request, token = additive_step(world)
    many = [committed / (step / MANY + request + verified * token) for committed, verified in ((one, 2), (seven, 8))]
    return many[1] / many[0], request * (seven - one) / (token * (8 * one - 2 * seven))


@dataclass(frozen=True)
class Varied:
    """What was varied, with its recipe or command, and {condition: what came out, in words}."""

    what: str
    found: Callable[[], dict[str, str]]

    def __call__(self) -> str:
        return f"{self.what}: {'; '.join(f'{condition} {value}' for condition, value in self.found().items())}"


def several(*experiments: Varied) -> Callable[[], str]:
    """Several experiments on one claim, as sentences."""
    return lambda: ". ".join(experiment() for experiment in experiments)


def percent(found: Estimate) -> str:
    """An estimate with its interval, in percent."""
    return interval(found, "percent")


def by_passes(world: str) -> dict[str, str]:
    """DSpark's mean gain over Eagle3 by passes over the answers, in a world."""
    return {f"after {passes}": percent(lead["all"]) for passes, lead in worlds.leads("eagle3", world).items()}


def rnn_over_markov() -> dict[str, str]:
    """The RNN head's mean gain over the Markov head under every training and in both worlds."""
    anew = {row["drafter"]: np.mean(list(row["accepted_length"].values())) for row in diagnosis()["drafters"]}
    deep = {f"in the deep world at draft length {length}": heads for length, heads in DEEP_HEADS.items()}
    trained = {"trained as for Table 1": HEADS, **deep, "there after two passes": DEEP_HEADS_TWO_PASSES}
    gained = {condition: percent(gains(heads["dspark_rnn"], heads["dspark"])["all"]) for condition, heads in trained.items()}
    return {**gained, f"after lesson 07's cure ({CURE})": f"{anew[CURE + '-rnn'] / anew[CURE] - 1:+.1%}"}


DEPTH = Varied("Depth in layers, first drafts accepted in the mean over the domains", lambda: {
    **{f"{layers} ({recipe})": f"{first_position(recipe):.2f}" for layers, recipe in DEPTHS.items()},
    "Eagle3's 1": f"{first_position(TABLE_1['eagle3']):.2f}"})
MEMORY = Varied("The head's memory, mean gain over Eagle3", lambda: {
    DRAFTER_LABELS[head]: percent(gains(HEADS[head], TABLE_1["eagle3"])["all"]) for head in ("dspark", "dspark_rnn")})
LAYER_AND_CHOICE = Varied("Head and loss together, then the third layer taken away; what each had brought, and the answers' entropy", lambda: {
    domain: f"{gains(TABLE_1['dspark'], TABLE_1['dflash'])[domain].value:+.0%}, {gains(DEPTHS[3], DEPTHS[2])[domain].value:+.0%}, "
            f"{answer_entropy()[domain]:.2f} nats per token" for domain in DOMAINS})
HEAD_OR_LOSSES = Varied("Head and losses exchanged one at a time in the deep world, mean gain after one pass", lambda: {
    condition: percent(found["all"]) for condition, found in worlds.head_and_losses().items()})
FALL_BY_HEAD = Varied(f"The head, fall of conditional acceptance on {', '.join(DOMAINS)}", lambda: {
    f"{DRAFTER_LABELS[head]} ({recipe})": ", ".join(f"{falls((domain,), recipe).value:+.2f}" for domain in DOMAINS)
    for head, recipe in HEADS.items()})
RNN_OVER_MARKOV = Varied("Training and world, the RNN head's mean gain over the Markov head", rnn_over_markov)
REFUSED_IN_NAME = Varied("Refusals on code in the function's name (make causes)", lambda: {
    DRAFTER_LABELS[name]: "{} of {}".format(*in_the_name(name)) for name in ("dspark", "dflash", "eagle3")})
NAME_TOLD = {rival: Varied(f"DSpark was told the function's name (make causes), gain on code over {DRAFTER_LABELS[rival]}", lambda rival=rival: {
    "as it is": percent(told_gain("dspark", rival)), "told": percent(told_gain(WITH_NAME, rival))}) for rival in ("dflash", "eagle3")}
FIRST_DRAFT_TOLD = Varied("DSpark was told the function's name (make causes), first drafts on code less DFlash's", lambda: {
    "as it is": interval(first_draft_lead("dspark"), "share"), "told": interval(first_draft_lead(WITH_NAME), "share")})
FIRST_DRAFT_BY_HEAD = Varied("The head, first drafts accepted on chat", lambda: {
    recipe: f"{first_draft(recipe, 'chat'):.3f}" for recipe in (TABLE_1["dflash"], *HEADS.values())})
TRAINED_ALIKE = Varied("The training exchanged for the deep world's, DSpark's mean gain over Eagle3 by passes", lambda: by_passes("shallow"))
TRAINED_LONGER = Varied("The world exchanged for the deep one, DSpark's mean gain over Eagle3 by passes", lambda: by_passes("deep"))
RISE_BY_DOMAIN = Varied("The domain, where Eagle3's conditional acceptance begins and how far it rises", lambda: {
    domain: f"{first_draft(TABLE_1['eagle3'], domain):.3f}, {interval(ahead(domain, ('eagle3', 7), ('eagle3', 1)), 'share')}"
    for domain in DOMAINS})
RIVAL_BY_DOMAIN = Varied("The domain, the small LM's first draft and DSpark's gain over it", lambda: {
    domain: f"{first_draft(TABLE_1['small_lm'], domain):.3f}, {gains(TABLE_1['dspark'], TABLE_1['small_lm'])[domain].value:+.0%}"
    for domain in DOMAINS})
SMALL_LM_BY_WORLD = Varied(f"The world, tokens per round of a small LM that drafts {SMALL_LM_LENGTH}, of {SMALL_LM_LENGTH + 1} at most", lambda: {
    world: ", ".join(f"{worlds.recorded_gates(world)[SMALL_LM_LENGTHS, domain]['value']:.2f} on {domain}" for domain in DOMAINS)
    for world in worlds.WORLDS})
OVERHEAD_BY_CONTEXT = Varied("The context's tokens, how much longer a round is at draft length 16", lambda: {
    str(context): f"{found:+.1%}" for context, found in overheads_by_context().items()})
GREEDY_EXCESS = Varied("Greedy decoding, for which the head was not trained, promises more than comes (make causes)", lambda: {
    "by": f"{greedy_excesses().min():+.1%} to {greedy_excesses().max():+.1%} over the positions"})
ONE_AGAINST_SEVEN = Varied("The load, in a fit of the measured costs, throughput of 7 drafts over that of 1", lambda: {
    f"with {MANY:,} requests under way": f"{seven_over_one()[0]:.2f}",
    "no gain once verifying a token costs more than here by a factor of": f"{seven_over_one()[1]:.1f}"})
