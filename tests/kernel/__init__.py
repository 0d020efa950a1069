"""Loops on the real kernel: they confirm what the simulation found, each with its own check."""
