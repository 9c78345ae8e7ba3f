"""Drafters, one a file. Each has `name`, `gamma`, `taps`, and begin / propose / extend."""

from .base import Proposal
from .dspark import DSpark, DSparkConfig
from .prompt_lookup import PromptLookup
from .small_lm import SmallLM

__all__ = ["DSpark", "DSparkConfig", "PromptLookup", "Proposal", "SmallLM"]
