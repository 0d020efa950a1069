"""The track record: rows of runs and bugs in `docs/data/`, and the page that adds them up."""
