"""What was run to test why a claim does not hold here: each function names its recipes and says what came out."""

import numpy as np

from ..common.formats import interval
from ..common.names import DOMAINS, DRAFTER_LABELS
from ..common.recorded import read
from ..measure.studies import DEPTHS, HEADS, TABLE_1
from . import our_results
from .our_results import gains
from .quantities import falls

QUALITY = our_results.MEASUREMENTS.parent / "target_quality.json"


def answer_entropy() -> dict[str, float]:
    """How much choice the target's answers leave, by domain: the mean entropy in nats per token at temperature 1."""
    return {row["domain"]: row["entropy_nats"] for row in quality()["rows"]}


def quality() -> dict:
    """What `python -m dspark_lite quality` measured of the target."""
    return read(QUALITY, f"python -m dspark_lite quality --json {QUALITY.name}")


def first_position(recipe: str) -> float:
    """The share of a recipe's first drafts that are accepted, in the mean over the domains."""
    return float(np.mean([our_results.conditional_acceptance(recipe, domain)[0].value for domain in DOMAINS]))


def first_draft_by_depth() -> str:
    """The first position of DSpark by depth, beside Eagle3's single layer."""
    depths = ", ".join(f"{first_position(recipe):.2f} with {layers} ({recipe})" for layers, recipe in DEPTHS.items())
    return (f"Depth was varied: of DSpark's first drafts, in the mean over the domains, {depths} layers are accepted; of "
            f"those of Eagle3's single layer {first_position(TABLE_1['eagle3']):.2f}. Training Eagle3 and block drafters "
            "on equally many anchors was not tried yet")


def depth_and_memory() -> str:
    """`first_draft_by_depth`, and the head that remembers more than one token."""
    markov, rnn = (gains(HEADS[head], TABLE_1["eagle3"])["all"] for head in ("dspark", "dspark_rnn"))
    return (f"The head's memory was varied: the mean gain over Eagle3 is {interval(markov, 'percent')} with the Markov "
            f"head and {interval(rnn, 'percent')} with the RNN head ({HEADS['dspark_rnn']}). {first_draft_by_depth()}")


def layer_and_choice() -> str:
    """What the head and the last layer bring by domain, beside how uncertain the target's answers are."""
    entropy = answer_entropy()
    head, layer = gains(TABLE_1["dspark"], TABLE_1["dflash"]), gains(DEPTHS[3], DEPTHS[2])
    parts = [f"on {domain} {head[domain].value:+.0%}, {layer[domain].value:+.0%}, {entropy[domain]:.2f} nats per token"
             for domain in DOMAINS]
    return (f"Head and third layer were taken away in turn ({TABLE_1['dflash']}, {DEPTHS[2]}): what the head brings, what "
            f"the layer brings, beside the entropy of the target's answers: {'; '.join(parts)}")


def fall_by_head() -> str:
    """How far each head's conditional acceptance falls, by domain."""
    parts = [f"{DRAFTER_LABELS[head]} ({name}) " + ", ".join(f"{falls((domain,), name).value:+.2f}" for domain in DOMAINS)
             for head, name in HEADS.items()]
    return f"The head was varied: the fall on {', '.join(DOMAINS)} is {'; '.join(parts)}"


def full_training() -> str:
    """The RNN head over the Markov head as trained for Table 1."""
    found = gains(HEADS["dspark_rnn"], HEADS["dspark"])["all"]
    epochs = our_results.measured(HEADS["dspark_rnn"])["recipe"]["epochs"]
    return (f"Training was made longer: trained as for Table 1 ({HEADS['dspark_rnn']}, {epochs} epochs at draft length 8) "
            f"the RNN head's gain over the Markov head is {interval(found, 'percent')}")
