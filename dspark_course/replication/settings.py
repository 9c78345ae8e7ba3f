"""The paper's settings beside ours. A setting is a choice: there is nothing in it to replicate.

Ours are read from the recipes, configs and measurements themselves. The paper's are those of its text_claims or, where its
text has no number, what it says in words or what the released configs hold.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from dspark_course.common import paper
from dspark_course.common.recorded import reference
from dspark_lite.losslessness import toys
from dspark_course.measure import inspection
from dspark_lite.common.fingerprint import network
from dspark_lite.scheduling import policies
from dspark_lite.training.losses import RELEASED_DECAY
from ..measure import shapes, studies
from ..measure.studies import LENGTH_STUDY, TABLE_1
from ..making.answers import Sampling
from ..making.recipes import load_recipe
from . import our_results, recorded_serving
from .experiments import quality

DRAFTERS = ("eagle3", "dflash", "dspark")


@dataclass(frozen=True)
class Setting:
    """A choice of the paper's authors and ours, from the recipe of our DSpark of Table 1; `theirs` is None where the text
    claim named `name` has it. Either gives words, a number or a list of numbers."""

    section: str
    name: str
    ours: Callable[[dict], object]
    theirs: Callable[[], object] | None = None

    def paper(self) -> str:
        """The paper's value in words."""
        return listed(self.theirs() if self.theirs else paper.claim(self.name))

    def here(self) -> str:
        """Our value in words."""
        return listed(self.ours(recipe("dspark")))


def listed(value) -> str:
    """A number or a list of numbers in words; words as they are."""
    if isinstance(value, str):
        return value
    return ", ".join(f"{number:,.10g}" for number in (value if isinstance(value, list) else [value]))


def recipe(drafter: str) -> dict:
    """The recipe from which a measured drafter of Table 1 was trained."""
    return our_results.measured(TABLE_1[drafter])["recipe"]


def samples(recipe: dict) -> list[int]:
    """Training prompts of each domain, in the paper's order."""
    return [recipe["data"]["prompts"][domain] for domain in ("chat", "math", "code")]


def mix(recipe: dict) -> list[float]:
    """The domains' shares of the training prompts in percent; the tiny world has no instructions."""
    return [round(100 * count / sum(samples(recipe)), 1) for count in samples(recipe)] + [0]


def epochs(recipe: dict) -> str:
    """Epochs of Table 1 and of the study of draft lengths."""
    study = our_results.measured(LENGTH_STUDY["dspark", 8])["recipe"]
    return f"{recipe['epochs']}; {study['epochs']}{' more' if 'initial' in study else ''} in the study of draft lengths"


def answer_sampling(recipe: dict) -> str:
    """How the answers that drafters learn from were drawn."""
    drawn = Sampling.of(recipe["data"])
    return f"temperature {drawn.temperature:g}, top-k {drawn.top_k or 'off'}, top-p {drawn.top_p:g}"


def weight_by_position(decay: float) -> str:
    """The weight of position k in the losses."""
    return f"exp(-(k-1)/{decay:g})"


def optimiser(recipe: dict) -> str:
    """What moved the drafter's weights, at which peak rates."""
    muon = f"; Muon {recipe['matrix_rate']:g} for matrices" if recipe.get("matrix_rate") is not None else ""
    return f"AdamW {recipe['learning_rate']:g}{muon}"


def own_weights(tensors: dict[str, tuple[int, ...]]) -> int:
    """Weights of a target or a drafter without embedding and LM head, from its tensors' shapes."""
    return sum(prod(shape) for name, shape in tensors.items() if "embed_tokens" not in name and "lm_head" not in name)


def shares(target: dict, drafters: dict[str, dict]) -> str:
    """Sizes of drafters in percent of a target's, embeddings and LM head left out, from the shapes of their tensors."""
    return ", ".join(f"{paper.LABELS[name]} {own_weights(found) / own_weights(target):.1%}" for name, found in drafters.items())


def our_shares(recipe: dict) -> str:
    """`shares` of the drafters of Table 1."""
    target, *drafters = ({tensor: entry.shape for tensor, entry in inspection.stored(name).items()}
                         for name in (recipe["target"], *(TABLE_1[name] for name in DRAFTERS)))
    return shares(target, dict(zip(DRAFTERS, drafters)))


def released(drafter: str) -> dict:
    """Config and shapes of tensors of a released drafter of Qwen3-4B."""
    return reference("released_manifest.json")[shapes.RELEASED_MODELS[drafter]]


def released_shares() -> str:
    """`shares` of the released drafters of Qwen3-4B."""
    target = {name: value.shape for name, value in network(shapes.module("target")).named_parameters()}
    return shares(target, {name: released(name)["tensors"] for name in DRAFTERS})


def released_config(key: str) -> str:
    """A value of the released DSpark's config."""
    return f"{listed(released('dspark')['config'][key])} (released config)"


def appendix_confidence(_: dict) -> list[float]:
    """a1 and c2 of the example in case 1."""
    _, drafter, _ = toys.appendix_a()
    return [drafter.first_confidence, round(drafter.confidence[0].item(), 6)]


SETTINGS = (
    Setting("3.1", "Markov head rank", lambda r: r["config"]["markov_rank"]),
    Setting("3.3", "default loss weights ce, tv, conf", lambda r: list(r["loss"].values())),
    Setting("3.3", "weight of position k in the losses", lambda r: weight_by_position(r["loss"].get("position_decay", RELEASED_DECAY)),
            lambda: weight_by_position(paper.claim("block size of the offline experiments"))),
    Setting("3.3", "anchors of a row", lambda r: r["config"]["num_anchors"], lambda: released_config("num_anchors")),
    Setting("4.1", "block size of the offline experiments", lambda r: r["config"]["block_size"]),
    Setting("4.1", "drafter layers Eagle3, DFlash, DSpark",
            lambda _: [recipe(name)["config"]["num_hidden_layers"] for name in DRAFTERS]),
    Setting("4.1", "drafters' share of the target's weights without embeddings (Qwen3-4B)", our_shares, released_shares),
    Setting("4.1", "vocabulary", lambda r: load_recipe(r["target"])["config"]["vocab_size"], lambda: released_config("vocab_size")),
    Setting("4.1", "training samples", lambda r: sum(samples(r))),
    Setting("4.1", "training epochs", epochs),
    Setting("4.1", "training mix chat, math, code, instruction following", mix),
    Setting("4.1", "sampling of the answers trained on", answer_sampling, lambda: "each target's recommended parameters"),
    Setting("4.1", "tokens of an answer, mean",
            lambda _: ", ".join(f"{row['domain']} {row['answer_tokens']:.0f}" for row in quality()["rows"]), lambda: "not stated"),
    Setting("4.1", "optimiser and peak learning rate", optimiser, lambda: "not stated"),
    Setting("4.1", "sampling temperature", lambda _: our_results.measured(TABLE_1["dspark"])["temperature"]),
    Setting("4.3.2", "latency batch size", lambda _: our_results.measured(studies.LATENCY)["batch"]),
    Setting("4.3.2", "latency context lengths",
            lambda _: sorted({row["context"] for row in our_results.measured(studies.LATENCY)["rows"]})),
    Setting("5.1", "production block size", lambda r: r["config"]["block_size"]),
    Setting("5.1", "production drafter MoE layers", lambda r: r["config"].get("num_experts", 0)),
    Setting("5.1", "production sliding window", lambda r: str(r["config"].get("sliding_window") or "none")),
    Setting("5.2", "steps of delay of the scheduler capacity estimate", lambda _: policies.LAG),
    Setting("5.4", "MTP-1 verification budget",
            lambda _: recorded_serving.value("budget", recorded_serving.rows("policies", drafter="mtp")[-1])),
    Setting("A", "appendix example SPS(1..3)", lambda _: toys.appendix_a()[2].steps_per_second.tolist()),
    Setting("A", "appendix example a1, c2 case 1", appendix_confidence),
)
