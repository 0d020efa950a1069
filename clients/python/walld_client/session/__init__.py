"""Sessions: entries, turns, artifacts, views, audit, and appends that nobody waits for."""
