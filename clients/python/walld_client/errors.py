"""What a request can raise, as types.

    WalldError
    +-- Unavailable   walld cannot answer now: no daemon, no answer in time, still recovering
    +-- Refused       walld understood and says no (code, got, limit)

Sending raises neither: it never raises for the daemon's sake. Misuse is ValueError or TypeError.
"""

from __future__ import annotations

__all__ = ["Refused", "Unavailable", "WalldError"]


class WalldError(Exception):
    """Base of what the client raises for the world's sake."""


class Unavailable(WalldError):
    """There is no answer, which is not the answer "nothing there"."""


class Refused(WalldError):
    """The daemon will not do it: `code` names why, `got` and `limit` are the two sides."""

    def __init__(self, code: str, got: str, limit: str, message: str = "") -> None:
        super().__init__(f"{message or code} (code {code}, got {got}, limit {limit})")
        self.code = code
        self.got = got
        self.limit = limit
