"""The drafters, one file each.

Each is a `Drafter` (decoding/proposal.py): `name`, `gamma`, `taps`, and the methods `begin`,
`propose` and `extend`. layers.py has the layers that trained drafters share.
"""

from .dspark import DSpark, DSparkConfig
from .eagle3 import Eagle3, Eagle3Config
from .gemma4 import Gemma4DSpark
from .layers import DraftConfig
from .mtp import MTP, MTPConfig
from .prompt_lookup import PromptLookup
from .small_lm import SmallLM

__all__ = [
    "MTP",
    "DSpark",
    "DSparkConfig",
    "DraftConfig",
    "Eagle3",
    "Eagle3Config",
    "Gemma4DSpark",
    "MTPConfig",
    "PromptLookup",
    "SmallLM",
]
