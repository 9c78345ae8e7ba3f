"""Recorded results beside the paper's: a reader for each kind of them, quantities, claims, settings, the ledger."""
