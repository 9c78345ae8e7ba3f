"""The paper's settings beside ours. A setting is a choice: there is nothing in it to replicate.

Ours are read from the recipes, configs and measurements themselves. The paper's are those of its text_claims or, where its
text has no number, what it says in words or what the released configs hold.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from ..common import paper
from ..losslessness import toys
from ..measure import studies
from ..measure.studies import LENGTH_STUDY, TABLE_1
from ..models import inspection
from ..models.shapes import reference
from ..scheduling import policies
from ..training.answers import Sampling
from ..training.losses import DECAY
from ..training.recipes import load_recipe
from . import our_results, recorded_serving
from .experiments import quality

RELEASED_TARGET, RELEASED = "Qwen/Qwen3-4B", {
    "eagle3": "deepseek-ai/eagle3_qwen3_4b_ttt7", "dflash": "deepseek-ai/dflash_qwen3_4b_block7",
    "dspark": "deepseek-ai/dspark_qwen3_4b_block7"}


@dataclass(frozen=True)
class Setting:
    """A choice of the paper's authors and ours; `theirs` is None where the text claim named `name` has it."""

    section: str
    name: str
    ours: Callable[[], str]
    theirs: Callable[[], str] | None = None

    def paper(self) -> str:
        """The paper's value in words."""
        return self.theirs() if self.theirs else listed(paper.claim(self.name))


def listed(value) -> str:
    """A number or a list of numbers in words."""
    return ", ".join(f"{number:,.10g}" for number in (value if isinstance(value, list) else [value]))


def recipe(drafter: str = "dspark") -> dict:
    """The recipe from which a measured drafter of Table 1 was trained."""
    return our_results.measured(TABLE_1[drafter])["recipe"]


def measured_target_config() -> dict:
    """The config of the target that the measured drafters were trained for."""
    return load_recipe(recipe()["target"])["config"]


def layers() -> str:
    """Layers of the three drafters."""
    return listed([recipe(name)["config"]["num_hidden_layers"] for name in RELEASED])


def samples() -> dict[str, int]:
    """Training prompts of each domain, in the paper's order."""
    prompts = recipe()["data"]["prompts"]
    return {domain: prompts[domain] for domain in ("chat", "math", "code")}


def mix() -> str:
    """The domains' shares of the training prompts in percent; the tiny world has no instructions."""
    return listed([round(100 * count / sum(samples().values()), 1) for count in samples().values()] + [0])


def epochs() -> str:
    """Epochs of Table 1 and of the study of draft lengths."""
    study = our_results.measured(LENGTH_STUDY["dspark", 8])["recipe"]
    more = " more" if "initial" in study else ""
    return f"{recipe()['epochs']}; {study['epochs']}{more} in the study of draft lengths"


def contexts() -> str:
    """Contexts at which rounds were timed."""
    return listed(sorted({row["context"] for row in our_results.measured(studies.LATENCY)["rows"]}))


def answer_length() -> str:
    """Tokens of an answer on average, by domain."""
    return ", ".join(f"{row['domain']} {row['answer_tokens']:.0f}" for row in quality()["rows"])


def answer_sampling() -> str:
    """How the answers that drafters learn from were drawn."""
    drawn = Sampling.of(recipe()["data"])
    return f"temperature {drawn.temperature:g}, top-k {drawn.top_k or 'off'}, top-p {drawn.top_p:g}"


def weight_by_position(decay: float) -> str:
    """The weight of position k in the losses."""
    return f"exp(-(k-1)/{decay:g})"


def optimiser() -> str:
    """What moved the drafter's weights, at which peak rates."""
    matrices = recipe().get("matrix_rate")
    muon = f"; Muon {matrices:g} for matrices" if matrices is not None else ""
    return f"AdamW {recipe()['learning_rate']:g}{muon}"


def layer_weights(config: dict) -> int:
    """Weights of a Qwen3 without embedding and LM head."""
    hidden, head = config["hidden_size"], config["head_dim"]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    attention = hidden * head * 2 * (heads + groups) + 2 * head  # q, k, v, o; norms of q and k
    return config["num_hidden_layers"] * (attention + 3 * hidden * config["intermediate_size"] + 2 * hidden) + hidden


def drafter_weights(shapes: dict[str, tuple[int, ...]]) -> int:
    """Weights of a drafter without embedding and LM head, from its tensors' shapes."""
    return sum(prod(shape) for name, shape in shapes.items() if not name.startswith(("embed_tokens", "lm_head")))


def shares(target: dict, shapes: dict[str, dict]) -> str:
    """Sizes of drafters in percent of a target's, embeddings and LM head left out; `shapes` are tensors' by drafter."""
    whole = layer_weights(target)
    return ", ".join(f"{paper.LABELS[name]} {drafter_weights(found) / whole:.1%}" for name, found in shapes.items())


def our_shares() -> str:
    """`shares` of the drafters of Table 1."""
    stored = {name: inspection.stored(TABLE_1[name]) for name in RELEASED}
    return shares(measured_target_config(), {name: {tensor: entry.shape for tensor, entry in found.items()}
                                             for name, found in stored.items()})


def released_shares() -> str:
    """`shares` of the released drafters of Qwen3-4B."""
    return shares(reference("released_targets.json")[RELEASED_TARGET]["config"],
                  {name: inspection.manifest()[hub]["tensors"] for name, hub in RELEASED.items()})


def released_config(key: str) -> str:
    """A value of the released DSpark's config."""
    return f"{listed(inspection.manifest()[RELEASED['dspark']]['config'][key])} (released config)"


def mtp_budget() -> str:
    """Tokens that MTP-1 verifies per request and step."""
    return listed(recorded_serving.value("budget", recorded_serving.rows("policies", drafter="mtp")[-1]))


def appendix_confidence() -> str:
    """a1 and c2 of the example in case 1."""
    _, drafter, _ = toys.appendix_a()
    return listed([drafter.first_confidence, round(drafter.confidence[0].item(), 6)])


SETTINGS = (
    Setting("3.1", "Markov head rank", lambda: listed(recipe()["config"]["markov_rank"])),
    Setting("3.3", "default loss weights ce, tv, conf", lambda: listed(list(recipe()["loss"].values()))),
    Setting("3.3", "weight of position k in the losses",
            lambda: weight_by_position(recipe()["loss"].get("position_decay", DECAY)),
            lambda: weight_by_position(paper.claim("block size of the offline experiments"))),
    Setting("3.3", "anchors of a row", lambda: listed(recipe()["config"]["num_anchors"]),
            lambda: released_config("num_anchors")),
    Setting("4.1", "block size of the offline experiments", lambda: listed(recipe()["config"]["block_size"])),
    Setting("4.1", "drafter layers Eagle3, DFlash, DSpark", layers),
    Setting("4.1", "drafters' share of the target's weights without embeddings (Qwen3-4B)", our_shares, released_shares),
    Setting("4.1", "vocabulary", lambda: listed(measured_target_config()["vocab_size"]), lambda: released_config("vocab_size")),
    Setting("4.1", "training samples", lambda: listed(sum(samples().values()))),
    Setting("4.1", "training epochs", epochs),
    Setting("4.1", "training mix chat, math, code, instruction following", mix),
    Setting("4.1", "sampling of the answers trained on", answer_sampling, lambda: "each target's recommended parameters"),
    Setting("4.1", "tokens of an answer, mean", answer_length, lambda: "not stated"),
    Setting("4.1", "optimiser and peak learning rate", optimiser, lambda: "not stated"),
    Setting("4.1", "sampling temperature", lambda: listed(our_results.measured(TABLE_1["dspark"])["temperature"])),
    Setting("4.3.2", "latency batch size", lambda: listed(our_results.measured(studies.LATENCY)["batch"])),
    Setting("4.3.2", "latency context lengths", contexts),
    Setting("5.1", "production block size", lambda: listed(recipe()["config"]["block_size"])),
    Setting("5.1", "production drafter MoE layers", lambda: listed(recipe()["config"].get("num_experts", 0))),
    Setting("5.1", "production sliding window", lambda: str(recipe()["config"].get("sliding_window") or "none")),
    Setting("5.2", "steps of delay of the scheduler capacity estimate", lambda: listed(policies.LAG)),
    Setting("5.4", "MTP-1 verification budget", mtp_budget),
    Setting("A", "appendix example SPS(1..3)", lambda: listed(toys.appendix_a()[2].steps_per_second.tolist())),
    Setting("A", "appendix example a1, c2 case 1", appendix_confidence),
)
