"""Log lines: one event one line, whatever a stranger put into it."""

import io
import json
import logging
import os

import pytest

from walld import limits
from walld.daemon.ops import logs

EVIL = "a\nb\x1b[2J\u202e\ud83d\x7f"


@pytest.fixture
def root():
    logger = logging.getLogger()
    kept, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = kept
    logger.setLevel(level)


def logged(root, log_format, env=None, stream=None):
    stream = stream or io.StringIO()
    logs.configure(log_format, env or {}, stream)
    logging.getLogger("walld.x").warning("flush %s", EVIL, extra={"lag_ms": 3, "id": EVIL})
    return stream


def test_text(root):
    line = logged(root, "text").getvalue()
    assert line.count("\n") == 1
    at, level, rest = line.split(" ", 2)
    assert at.endswith("Z")
    assert level == "warning"
    shown = "a\\nb\\x1b[2J\\u202e\\ud83d\\x7f"
    assert rest == f"walld.x: flush {shown} lag_ms=3 id={shown}\n"


def test_json(root):
    line = logged(root, "json").getvalue()
    assert line.count("\n") == 1
    assert line.isascii()
    assert "\x7f" not in line
    row = json.loads(line)
    assert row["message"] == "flush " + EVIL
    assert (row["level"], row["logger"], row["lag_ms"], row["id"]) == (
        "warning",
        "walld.x",
        3,
        EVIL,
    )


def test_priority_only_when_the_stream_is_the_journal(root, tmp_path):
    path = tmp_path / "log"
    with open(path, "w") as stream:
        status = os.fstat(stream.fileno())
        env = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        logged(root, "text", env, stream)
        logging.getLogger("walld.x").error("bad")
        logging.getLogger("walld.x").info("well")
        logs.flush()
    warning, error, info = path.read_text().splitlines()
    assert warning.startswith("<4>walld.x: flush ")
    assert error == "<3>walld.x: bad"
    assert info == "<6>walld.x: well"
    assert not logged(root, "text", {"JOURNAL_STREAM": "1:2"}).getvalue().startswith("<")


def test_an_exception_stays_on_its_line(root):
    stream = io.StringIO()
    logs.configure("text", {}, stream)
    try:
        raise OSError(28, "No space\nleft")
    except OSError:
        logging.getLogger("walld").exception("write failed")
    assert stream.getvalue().count("\n") == 1
    assert "trace=Traceback" in stream.getvalue()
    logs.configure("json", {}, stream)
    try:
        raise ValueError("x")
    except ValueError:
        logging.getLogger("walld").exception("again")
    assert "ValueError: x" in json.loads(stream.getvalue().splitlines()[1])["trace"]


def test_values_are_cut(root):
    stream = io.StringIO()
    logs.configure("json", {}, stream)
    logging.getLogger("walld").info("x" * 100_000, extra={"id": "y" * 100_000})
    assert len(stream.getvalue()) < 2000


def test_what_peers_cause_is_said_sparingly(root, monkeypatch):
    """And what else there was is counted; what the daemon itself has to say is all said."""
    now = [100.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    logs.configure("text", {}, stream)
    logs.configure("text", {}, stream)  # once more is no second filter
    loggers = [logging.getLogger(name) for name in ("walld.transport", "walld")]
    for logger in loggers:
        for number in range(50):
            logger.warning("line %d", number)
    now[0] += 1
    loggers[0].warning("later")
    lines = stream.getvalue().splitlines()
    said = sum("walld.transport: line" in line for line in lines)
    assert said == limits.LOG_LINES_PER_SECOND_MAX
    assert sum("walld: line" in line for line in lines) == 50
    assert lines[-1].endswith("walld.transport: later more=30")
