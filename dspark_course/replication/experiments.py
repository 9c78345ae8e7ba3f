"""What was run to test why a claim does not hold here: each function names its recipes and says what came out."""

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
    return float(np.mean([our_results.conditional_acceptance(recipe, domain)[0].value for domain in DOMAINS]))


def first_draft_by_depth() -> str:
    """The first position of DSpark by depth, beside Eagle3's single layer."""
    depths = ", ".join(f"{first_position(recipe):.2f} with {layers} ({recipe})" for layers, recipe in DEPTHS.items())
    return (f"Depth was varied: of DSpark's first drafts, in the mean over the domains, {depths} layers are accepted; of "
            f"those of Eagle3's single layer {first_position(TABLE_1['eagle3']):.2f}")


def depth_and_memory() -> str:
    """`first_draft_by_depth`, and the head that remembers more than one token."""
    markov, rnn = (gains(HEADS[head], TABLE_1["eagle3"])["all"] for head in ("dspark", "dspark_rnn"))
    return (f"The head's memory was varied: the mean gain over Eagle3 is {interval(markov, 'percent')} with the Markov "
            f"head and {interval(rnn, 'percent')} with the RNN head ({HEADS['dspark_rnn']}). {first_draft_by_depth()}")


def layer_and_choice() -> str:
    """What head and loss together, and the last layer, bring by domain, beside how uncertain the target's answers are."""
    entropy = answer_entropy()
    head, layer = gains(TABLE_1["dspark"], TABLE_1["dflash"]), gains(DEPTHS[3], DEPTHS[2])
    parts = [f"on {domain} head and loss {head[domain].value:+.0%}, layer {layer[domain].value:+.0%}, {entropy[domain]:.2f} nats per token"
             for domain in DOMAINS]
    return (f"Head and loss were taken away together ({TABLE_1['dflash']}), then the third layer ({DEPTHS[2]}); what they had brought, and "
            f"the entropy of the target's answers: {'; '.join(parts)}. {head_or_losses()}")


def head_or_losses() -> str:
    """What the head and what DSpark's losses bring in the mean in the deep world, each exchanged alone."""
    parts = [interval(found["all"], "percent") for found in worlds.head_and_losses().values()]
    return ("In the deep world head and losses were exchanged one at a time, after one pass: the head brings {} with cross-entropy alone and {} "
            "with DSpark's losses, the losses bring {} without a head and {} with it".format(*parts))


def fall_by_head() -> str:
    """How far each head's conditional acceptance falls, by domain."""
    parts = [f"{DRAFTER_LABELS[head]} ({name}) " + ", ".join(f"{falls((domain,), name).value:+.2f}" for domain in DOMAINS)
             for head, name in HEADS.items()]
    return f"The head was varied: the fall on {', '.join(DOMAINS)} is {'; '.join(parts)}"


def full_training() -> str:
    """The RNN head over the Markov head as trained for Table 1."""
    found = gains(HEADS["dspark_rnn"], HEADS["dspark"])["all"]
    epochs = our_results.measured(HEADS["dspark_rnn"])["recipe"]["epochs"]
    there = ", ".join(f"{interval(gains(heads['dspark_rnn'], heads['dspark'])['all'], 'percent')} at draft length {length}"
                      for length, heads in DEEP_HEADS.items())
    longer = gains(DEEP_HEADS_TWO_PASSES["dspark_rnn"], DEEP_HEADS_TWO_PASSES["dspark"])["all"]
    anew = {row["drafter"]: np.mean(list(row["accepted_length"].values())) for row in diagnosis()["drafters"]}
    return (f"Training was made longer: trained as for Table 1 ({HEADS['dspark_rnn']}, {epochs} epochs at draft length 8) "
            f"the RNN head's gain over the Markov head is {interval(found, 'percent')}. Training was made another: after the training of "
            f"lesson 07 that copies names ({CURE}, one of each head) the RNN head commits {anew[CURE + '-rnn']:.2f} tokens per round in the "
            f"mean, the Markov head {anew[CURE]:.2f}. World and training were exchanged: in the deep world, after one pass, the RNN "
            f"head's gain is {there}, after two passes {interval(longer, 'percent')} at draft length {min(DEEP_HEADS)}")


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


def name_told(rival: str) -> str:
    """DSpark's gain on code over a rival, as it is and told the name."""
    parts = [f"{DRAFTER_LABELS[name]} " + "{} of {}".format(*in_the_name(name)) for name in ("dspark", rival)]
    as_it_is, told = (interval(told_gain(name, rival), "percent") for name in ("dspark", WITH_NAME))
    return (f"On code DSpark never learned to copy the function's name: refusals in it are {', '.join(parts)}. DSpark was told "
            f"the name (make causes, {len(told_names()['dspark']['rounds'])} prompts): its gain on code becomes {told}, from {as_it_is}")


def first_draft_told() -> str:
    """The first position of DSpark over DFlash's on code, as it is and told the name."""
    counts = {name: [np.array(row["position_counts"], dtype=float)] for name, row in told_names().items()}
    as_it_is, told = (paired(lambda a, b: acceptance(a[0], 1) - acceptance(b[0], 1), counts[name], counts["dflash"])
                      for name in ("dspark", WITH_NAME))
    heads = ", ".join(f"{our_results.conditional_acceptance(name, 'chat')[0].value:.3f} ({name})" for name in HEADS.values())
    return (f"DSpark was told the function's name (make causes): on code the share of its first drafts that is accepted, less DFlash's, is "
            f"then {interval(told, 'share')}, and was {interval(as_it_is, 'share')}. On chat the head was varied, and none reaches DFlash's "
            f"{our_results.conditional_acceptance(TABLE_1['dflash'], 'chat')[0].value:.3f}: {heads}")


def over_eagle3() -> str:
    """`name_told` on code, `depth_and_memory`, the shallow world's drafters trained as the deep world's, and training there."""
    return f"{name_told('eagle3')}. {depth_and_memory()}. {trained_alike()}. {trained_longer()}"


def trained_alike() -> str:
    """DSpark's mean gain over Eagle3 in the shallow world, both trained as in the deep world, by passes over the answers."""
    return ("The training was exchanged for the deep world's, each drafter at the learning rate that a search found: the gain in the mean is "
            f"{_mean_gain_by_passes('shallow')}")


def trained_longer() -> str:
    """DSpark's mean gain over Eagle3 in the deep world, by passes over the answers."""
    return f"The world was exchanged for a deep one and training was varied there: the gain in the mean is {_mean_gain_by_passes('deep')}"


def _mean_gain_by_passes(world: str) -> str:
    parts = [f"{interval(lead['all'], 'percent')} after {passes}" for passes, lead in worlds.leads("eagle3", world).items()]
    return f"{', '.join(parts)} passes"


def rise_by_domain() -> str:
    """How far Eagle3's conditional acceptance rises, beside where it begins, by domain."""
    rises = [(domain, our_results.conditional_acceptance(TABLE_1["eagle3"], domain)[0].value,
              interval(ahead(domain, ("eagle3", 7), ("eagle3", 1)), "share")) for domain in DOMAINS]
    return ("The domain was varied: Eagle3 begins at "
            + "; ".join(f"{first:.3f} on {domain} and rises by {rise}" for domain, first, rise in rises))


def small_lm_by_world() -> str:
    """The accepted length of each world's small LM by domain, as its gates were measured."""
    return "; ".join(f"in the {world} world " + ", ".join(f"{worlds.recorded_gates(world)[SMALL_LM_LENGTHS, domain]['value']:.2f} on {domain}"
                                                         for domain in DOMAINS) for world in worlds.WORLDS)


def rival_by_domain() -> str:
    """How good the small LM's first draft is, beside DSpark's gain over it, by domain."""
    over = gains(TABLE_1["dspark"], TABLE_1["small_lm"])
    parts = [f"{our_results.conditional_acceptance(TABLE_1['small_lm'], domain)[0].value:.3f} on {domain}, where DSpark's gain is "
             f"{over[domain].value:+.0%}" for domain in DOMAINS]
    return (f"The domain was varied: the small LM's first draft is accepted with {'; '.join(parts)}. The world was exchanged: "
            f"a small LM that drafts {SMALL_LM_LENGTH} tokens commits per round, of {SMALL_LM_LENGTH + 1} at most, "
            f"{small_lm_by_world()}. DSpark was not set beside the deep one")


def overhead_by_context() -> str:
    """How much longer DSpark's rounds are than DFlash's at draft length 16, by the length of the context."""
    measured = our_results.measured(LATENCY)
    contexts = sorted({row["context"] for row in measured["rows"]})
    times = {name: our_results.round_times(measured, name, 16) for name in ("dspark", "dflash")}  # [turns, contexts]
    parts = [f"{found:+.1%} at {context}" for context, found in zip(contexts, np.divide(*(np.median(t, 0) for t in times.values())) - 1)]
    return ("The context was varied, which makes the target's pass longer and the head's loop not: at draft length 16 a round is longer by "
            f"{', '.join(parts)} tokens")


def greedy_excess() -> str:
    """By how much the raw confidence promises more than comes in greedy decoding, by position."""
    found = read(CAUSES, "make causes")["greedy"].values()
    logits, accepted = (np.concatenate([np.array(part[name]) for part in found]) for name in ("logits", "accepted"))
    excess = (survivals(logits) - survived(accepted, logits.shape[1])).mean(0)
    return (f"The sampling was varied: in greedy decoding, for which it was not trained, the same head promises more than comes at every "
            f"position, by {excess.min():.1%} to {excess.max():.1%} (make causes, {len(accepted)} blocks)" if excess.min() > 0 else
            f"The sampling was varied: in greedy decoding the excess is {excess.min():+.1%} to {excess.max():+.1%} (make causes)")


def additive_step(world: str = "shallow") -> np.ndarray:
    """Seconds of DSpark's step, of each request and of each verified token in it: least relative squares over the measured loads."""
    costs = recorded_serving.engine_costs("dspark", world)
    requests, tokens = np.meshgrid(costs.requests, costs.tokens_per_request, indexing="ij")
    measured = np.asarray(costs.step_seconds)
    terms = np.stack([np.ones_like(measured), requests, requests * tokens], -1) / measured[..., None]
    return np.linalg.lstsq(terms.reshape(-1, 3), np.ones(measured.size), rcond=None)[0]


def one_against_seven() -> str:
    """What seven drafts give over one on a busier server than the measured one, and how costly a token would have to be."""
    heavy = max(row["concurrency"] for row in recorded_serving.rows("policies", drafter="dspark", policy="fixed 7"))
    one, seven = (recorded_serving.value("accepted_length", recorded_serving.row("policies", drafter="dspark", policy=f"fixed {count}",
                                                                                concurrency=heavy)) for count in (1, 7))
    step, request, token = additive_step()
    many = [committed / (step / MANY + request + verified * token) for committed, verified in ((one, 2), (seven, 8))]
    turning = request * (seven - one) / (token * (8 * one - 2 * seven))  # times as costly a token, with a step's own cost shared by all
    return (f"The load was varied in a fit of the measured costs ({1e3 * request:.2f} ms per request, {1e3 * token:.2f} ms per verified "
            f"token): with {MANY:,} requests under way 7 drafts give {many[1] / many[0]:.2f} times the throughput of 1. If a verified token "
            f"cost more than {turning:.1f} times as much as here, and a request the same, one draft would give more")
