"""`PYTHONPATH=tests python -m track_record`: writes `walld/TRACK_RECORD.md` anew."""

from track_record.page import PAGE, made

PAGE.write_text(made(), encoding="utf-8")
