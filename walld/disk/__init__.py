"""The verbs that touch storage, on a kernel and simulated; the lock of a data directory."""
