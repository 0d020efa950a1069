"""The engine: what is taken, queued, written, synced, released and kept. No file, no clock."""
