"""Drafters, one a file; protocol.py says what each of them does."""

from .base import DraftConfig, Proposal
from .dspark import DSpark, DSparkConfig
from .eagle3 import Eagle3, Eagle3Config
from .gemma4 import Gemma4DSpark
from .mtp import MTP
from .prompt_lookup import PromptLookup
from .small_lm import SmallLM

__all__ = ["MTP", "DSpark", "DSparkConfig", "DraftConfig", "Eagle3", "Eagle3Config", "Gemma4DSpark", "PromptLookup", "Proposal", "SmallLM"]
