"""The life of every move, from its choice to its outcome, as one value: the ledger."""
