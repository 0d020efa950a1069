"""Open sessions: their files, checkpoints, forks, and turns of processes that are gone."""
