"""Any bytes where bytes of a stranger or of a damaged disk are read: four targets, one corpus.

`python -m fuzz TARGET` runs one (with atheris where that is installed, else by plain mutation);
`test_fuzz.py` replays the corpus and lets hypothesis try for a moment. Each target's module has
its oracle. What failed once, and is mended, joins the corpus.
"""
