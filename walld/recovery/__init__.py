"""Startup recovery of a data directory: what is there, what is damaged, what may be lost."""
