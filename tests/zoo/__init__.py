"""Planted bugs, each of which the simulation must find."""
