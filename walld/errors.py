"""The error types of the daemon and the command line.

    WalldError
    +-- ConfigError      a setting is malformed or out of bounds (names the key, both values)
    +-- DirectoryTaken   another daemon owns the data directory
    |   +-- TakenOver    meanwhile: nothing is changed there any more (an OSError, too)
    +-- NoData           the data directory holds nothing, and data is expected (--expect-data)
    +-- UnsafePath       a directory or socket somebody else could have planted
    |   +-- SharedFile   a file that has another name: never written to (an OSError, too)
    +-- FormatError      bytes on disk are not what FORMAT.md says
    |   +-- NewerVersion a later walld wrote them: kept, never written to
    |   +-- Misplaced    a partial that stands under another's names
    |   +-- LedgerGap    lines that do not follow what a session's file ends with
    |   +-- NotUnderstood  a file to import of which nothing is a session of a known format
    +-- ProtocolError    a peer broke the protocol (code, message, got, limit)
    +-- Refusal          a request cannot be done (the same four); its connection goes on

Peers get `code`; people get the sentence. Our own bugs are AssertionError and stop the daemon.
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "DirectoryTaken",
    "FormatError",
    "LedgerGap",
    "Misplaced",
    "NewerVersion",
    "NoData",
    "NotUnderstood",
    "ProtocolError",
    "Refusal",
    "SharedFile",
    "TakenOver",
    "UnsafePath",
    "WalldError",
]


class WalldError(Exception):
    """Base of what walld raises for the world's sake."""


class ConfigError(WalldError):
    """A setting cannot be used."""


class DirectoryTaken(WalldError):
    """Another daemon holds LOCK of the data directory."""


class TakenOver(DirectoryTaken, OSError):
    """Another daemon has raised the epoch of a directory that was ours."""


class NoData(WalldError):
    """There is nothing where data is expected: a mount that is not there, another path."""


class UnsafePath(WalldError):
    """A path is owned or writable by somebody who must not be able to touch it."""


class SharedFile(UnsafePath, OSError):
    """A file has another name as well: who made that has other bytes there once it is written."""


class FormatError(WalldError):
    """A file is damaged or of another version."""


class NewerVersion(FormatError):
    """A file that a later walld wrote."""


class Misplaced(FormatError):
    """A partial that is whole, and not of the names it stands under."""


class LedgerGap(FormatError):
    """Lines for a session's file that do not follow its last one: what lay between is lost."""


class ProtocolError(WalldError):
    """A peer sent what the protocol does not allow."""

    def __init__(self, code: str, message: str, got: object = "", limit: object = "") -> None:
        super().__init__(f"{message} (got {got}, limit {limit})")
        self.code = code
        self.message = message
        self.got = str(got)
        self.limit = str(limit)


class Refusal(WalldError):
    """A request cannot be answered, or what it asks for not be done."""

    def __init__(self, code: str, message: str, got: object = "", limit: object = "") -> None:
        super().__init__(message)
        self.code, self.got, self.limit = code, str(got), str(limit)


class NotUnderstood(FormatError):
    """A file to import in which there is no line of a session; says what its bytes are."""
