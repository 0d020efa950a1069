"""Formats log lines as text or JSON: one event a line, escaped.

Owns: the format of a line, and how many a second peers can cause. Refuses: writing it
(`log_queue.py`), deciding what is worth a line, and payload: callers log ids, counts and errors,
never what an agent said; as a last guard each value is cut.

Invariants: no control character of a stranger reaches the terminal or starts a line of its own.
Under journald each line starts with `<N>`, its priority, and has no time: the journal has one.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

from walld import limits
from walld.daemon.ops.log_queue import QueuedHandler
from walld.escape import escaped_line

__all__ = ["configure", "dropped_lines", "flush", "to_journal"]

VALUE_CHARACTERS_MAX: Final = 500
_OF_OTHERS: Final = ("walld.transport", "walld.requests", "walld.signals")
"""Loggers of what peers do wrong, and of what other processes send."""

_PRIORITIES: Final = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; anything else came in as `extra`."""


def to_journal(env: Mapping[str, str], stream: TextIO) -> bool:
    """True where `stream` is the one that systemd connected to the journal (JOURNAL_STREAM)."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return env.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _cut(text: str) -> str:
    if len(text) <= VALUE_CHARACTERS_MAX:
        return text
    return f"{text[:VALUE_CHARACTERS_MAX]}… ({len(text)} characters)"


def _priority(level: int) -> int:
    return next((number for least, number in _PRIORITIES if level >= least), 7)


class _Line(logging.Formatter):
    """Base of both formats: time, level, logger, message, `extra` fields, the exception."""

    def __init__(self, *, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        fields = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        line = self._line(record, _cut(record.getMessage()), fields)
        return f"<{_priority(record.levelno)}>{line}" if self._journal else line

    def _line(self, record: logging.LogRecord, message: str, fields: dict[str, object]) -> str:
        raise NotImplementedError

    def _trace(self, record: logging.LogRecord) -> str | None:
        return self.formatException(record.exc_info) if record.exc_info else None

    def _at(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Text(_Line):
    def _line(self, record: logging.LogRecord, message: str, fields: dict[str, object]) -> str:
        parts = [] if self._journal else [self._at(record), record.levelname.lower()]
        parts.append(f"{record.name}: {escaped_line(message)}")
        parts.extend(f"{key}={escaped_line(_cut(str(value)))}" for key, value in fields.items())
        trace = self._trace(record)
        if trace is not None:
            parts.append(f"trace={escaped_line(trace)}")
        return " ".join(parts)


class _Json(_Line):
    def _line(self, record: logging.LogRecord, message: str, fields: dict[str, object]) -> str:
        row: dict[str, object] = {
            "at": self._at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        for key, value in fields.items():
            plain = value is None or isinstance(value, (bool, int, float))
            row[key] = value if plain else _cut(str(value))
        trace = self._trace(record)
        if trace is not None:
            row["trace"] = trace
        return json.dumps(row).replace("\x7f", "\\u007f")


class _Sparing(logging.Filter):
    """So many lines a second pass; the first behind them says how many `more` there were.

    For what anybody can cause who may connect, as often as he likes: metrics count each.
    """

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._passed = self._more = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is one of them."""
        if (second := int(time.monotonic())) != self._second:
            self._second, self._passed = second, 0
        if self._passed >= limits.LOG_LINES_PER_SECOND_MAX:
            self._more += 1
            return False
        self._passed += 1
        if self._more:
            record.__dict__["more"], self._more = self._more, 0
        return True


def configure(log_format: str, env: Mapping[str, str], stream: TextIO | None = None) -> None:
    """Send every log line of this process to `stream` (stderr) in that format.

    Where stderr is closed they go nowhere: no reason not to serve.
    """
    stream = stream or sys.stderr
    journal = stream is not None and to_journal(env, stream)
    sink = logging.NullHandler() if stream is None else _handler(stream)
    sink.setFormatter(_Json(journal=journal) if log_format == "json" else _Text(journal=journal))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        if isinstance(old, QueuedHandler):
            old.close()
    root.addHandler(sink)
    root.setLevel(logging.INFO)
    for name in _OF_OTHERS:
        logging.getLogger(name).filters[:] = [_Sparing()]


def _handler(stream: TextIO) -> logging.Handler:
    try:
        stream.fileno()
    except (OSError, ValueError):  # in memory: nobody is waited for
        return logging.StreamHandler(stream)
    return QueuedHandler(stream)


def flush() -> None:
    """Wait for the lines so far to be written, for a moment: what is printed next stands behind."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def dropped_lines() -> int:
    """How many found no room, since nobody read the log."""
    handlers = logging.getLogger().handlers
    return sum(handler.dropped for handler in handlers if isinstance(handler, QueuedHandler))
