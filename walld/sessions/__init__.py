"""Sessions: pure folds of a ledger's events into turns, trees, messages and every other view."""
