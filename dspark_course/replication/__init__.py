"""Recorded results beside the paper's: a reader for each kind of them, quantities, claims, settings, the ledger.

It may import `common`, `scheduling`, `models`, `serving`, `training`, `losslessness`, `making` and `measure`.
"""
