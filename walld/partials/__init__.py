"""Partials: files that keep what is left of replies that nobody released."""
