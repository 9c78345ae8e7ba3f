"""The drafters, one file each.

Each has `name`, `gamma`, `taps` and the methods begin, propose and extend.
"""

from .layers import DraftConfig
from .dspark import DSpark, DSparkConfig
from .eagle3 import Eagle3, Eagle3Config
from .gemma4 import Gemma4DSpark
from .mtp import MTP
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
    "PromptLookup",
    "SmallLM",
]
