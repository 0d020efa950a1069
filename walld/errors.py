"""What can go wrong, as types.

    WalldError
    +-- ConfigError      a setting is malformed or out of bounds (names the key, both values)
    +-- DirectoryTaken   another daemon owns the data directory
    +-- UnsafePath       a directory or socket somebody else could have planted
    +-- FormatError      bytes on disk are not what FORMAT.md says
    +-- ProtocolError    a peer broke the protocol (code, message, got, limit)

Peers get `code`; people get the sentence. Our own bugs are AssertionError and stop the daemon.
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "DirectoryTaken",
    "FormatError",
    "ProtocolError",
    "UnsafePath",
    "WalldError",
]


class WalldError(Exception):
    """Base of what walld raises for the world's sake."""


class ConfigError(WalldError):
    """A setting cannot be used."""


class DirectoryTaken(WalldError):
    """Another daemon holds LOCK of the data directory."""


class UnsafePath(WalldError):
    """A path is owned or writable by somebody who must not be able to touch it."""


class FormatError(WalldError):
    """A file is damaged or of another version."""


class ProtocolError(WalldError):
    """A peer sent what the protocol does not allow."""

    def __init__(self, code: str, message: str, got: object = "", limit: object = "") -> None:
        super().__init__(f"{message} (got {got}, limit {limit})")
        self.code = code
        self.message = message
        self.got = str(got)
        self.limit = str(limit)
