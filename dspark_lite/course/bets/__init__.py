"""Bets: what a reader expects before something is measured, what the measurement says, and the score."""

from .bet import bet
from .score import show_score

__all__ = ["bet", "show_score"]
