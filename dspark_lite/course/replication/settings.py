"""The paper's settings beside ours. A setting is a choice: there is nothing in it to replicate.

Our values come from a recipe or a measurement; values to be counted or put in words are typed here, and a test counts them again.
The paper's are those of its text_claims or, where its text has no number, its words or the released configs.
"""

from typing import NamedTuple

from .. import paper
from . import experiment_results


class Setting(NamedTuple):
    """A choice of the paper's authors and ours. `results` names fields of measurements as {measurement[field]}; `words` is the paper's
    value, None where the text claim `name` has it."""

    section: str
    name: str
    results: str
    words: str | None = None

    def paper(self) -> str:
        """Return the paper's value in words."""
        return self.words or listed(paper.claim(self.name))

    def here(self) -> str:
        """Return our value in words. Raise DSparkLiteError if a measurement is missing."""
        return self.results.format_map(_Measurements())


class _Measurements(dict):
    """Our measurements by name."""

    def __missing__(self, name: str) -> dict:
        return experiment_results.measured(name)


def listed(value) -> str:
    """Return a number or a list of numbers in words."""
    return ", ".join(
        f"{number:,.10g}" for number in (value if isinstance(value, list) else [value])
    )


SETTINGS = (
    Setting("3.1", "Markov head rank", "{tiny-dspark[recipe][config][markov_rank]}"),
    Setting(
        "3.3",
        "default loss weights ce, tv, conf",
        "{tiny-dspark[recipe][loss][cross_entropy]:g}, {tiny-dspark[recipe][loss][l1]:g}, "
        "{tiny-dspark[recipe][loss][confidence]:g}; cross-entropy alone in the first "
        "{tiny-dspark[recipe][loss][cross_entropy_first]:.0%} of the training",
    ),
    Setting("3.3", "weight of position k in the losses", "exp(-(k-1)/7)", "exp(-(k-1)/7)"),
    Setting(
        "3.3",
        "anchors of a row",
        "{tiny-dspark[recipe][config][num_anchors]}",
        "512 (released config)",
    ),
    Setting(
        "4.1", "block size of the offline experiments", "{tiny-dspark[recipe][config][block_size]}"
    ),
    Setting(
        "4.1",
        "drafter layers Eagle3, DFlash, DSpark",
        "{tiny-eagle3[recipe][config][num_hidden_layers]}, "
        "{tiny-dflash[recipe][config][num_hidden_layers]}, {tiny-dspark[recipe][config][num_hidden_layers]}",
    ),
    Setting(
        "4.1",
        "drafters' share of the target's weights without embeddings (Qwen3-4B)",
        "Eagle3 7.7%, DFlash 21.7%, DSpark 29.1%",
        "Eagle3 4.1%, DFlash 14.8%, DSpark 16.9%",
    ),
    Setting("4.1", "vocabulary", "3,584", "151,936 (released config)"),
    Setting("4.1", "training samples", "8,400"),
    Setting(
        "4.1",
        "training epochs",
        "{tiny-dspark[recipe][epochs]}; {tiny-dspark-length-8[recipe][epochs]} more in the study of draft lengths",
    ),
    Setting("4.1", "training mix chat, math, code, instruction following", "33.3, 33.3, 33.3, 0"),
    Setting(
        "4.1",
        "sampling of the answers trained on",
        "temperature 1, top-k off, top-p 1",
        "each target's recommended parameters",
    ),
    Setting("4.1", "tokens of an answer, mean", "math 149, code 202, chat 145", "not stated"),
    Setting(
        "4.1",
        "optimiser and peak learning rate",
        "AdamW {tiny-dspark[recipe][learning_rate]}; Muon {tiny-dspark[recipe][matrix_rate]} for matrices",
        "not stated",
    ),
    Setting("4.1", "sampling temperature", "{tiny-dspark[temperature]:g}"),
    Setting("4.3.2", "latency batch size", "{round_latency[batch]}"),
    Setting("4.3.2", "latency context lengths", "256, 512, 1,024"),
    Setting("5.1", "production block size", "{tiny-dspark[recipe][config][block_size]}"),
    Setting("5.1", "production drafter MoE layers", "0"),
    Setting("5.1", "production sliding window", "none"),
    Setting("5.2", "steps of delay of the scheduler capacity estimate", "2"),
    Setting("5.4", "MTP-1 verification budget", "1.996875"),
    Setting("A", "appendix example SPS(1..3)", "1, 0.5, 0.45"),
    Setting("A", "appendix example a1, c2 case 1", "0.8, 0.9"),
)
