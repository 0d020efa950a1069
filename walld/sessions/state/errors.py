"""The errors of views, as types.

Owns: the errors of projections. Refuses: problems of events (`events.py`), which are no errors of
whoever folds them.
"""

from __future__ import annotations

from walld.errors import ProtocolError

__all__ = ["BadArgument", "UnknownProjection"]


class UnknownProjection(ProtocolError):
    """There is no view of that name."""

    def __init__(self, got: object, limit: object) -> None:
        super().__init__("unknown_projection", "there is no such view of a session", got, limit)


class BadArgument(ProtocolError):
    """An argument of a view cannot be used. The message names it."""

    def __init__(self, name: str, got: object, limit: object, code: str = "bad_argument") -> None:
        super().__init__(code, f"argument {name} cannot be used", got, limit)
