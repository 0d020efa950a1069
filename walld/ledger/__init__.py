"""Files of sessions: their events, their snapshots, their artifacts."""
