"""The resume gate: whether a session may go on, and what may be done with each call."""
