"""Results beside the paper's: a reader for each kind of result, quantities, claims, settings, the ledger."""
