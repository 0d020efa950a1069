"""The thin client of walld: stream a reply so that no crash can lose it.

Owns: the public names and nothing else.

    client = walld_client.connect()
    with client.reply("session-1") as reply:
        for piece in model:
            reply.token(piece)
        save(...)       # the application's own copy
        reply.end()     # walld may forget it now

A name is loaded when it is first used (`preload` loads all). Errors are there at once, and so are
the hooks of a fork and of the end of the process: their place among those of the program is where
it imports this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from walld_client import link_registry as _link_registry  # noqa: F401 - registers the hooks
from walld_client.errors import (
    Blocked,
    NotDurable,
    Refused,
    Unavailable,
    Unsupported,
    WalldError,
)
from walld_client.first_use import loading as _loading
from walld_client.version import VERSION

if TYPE_CHECKING:
    from walld_client.client import Client, check, connect
    from walld_client.encoding.model_words import tools_hash
    from walld_client.ids import Entry
    from walld_client.recovered.partial import (
        Gap,
        PartialReply,
        ReplyError,
        Retried,
        Segment,
        StepBegun,
    )
    from walld_client.reply.reply import Reply
    from walld_client.session.audit import AuditedTurn, Finding, RepairStep, Report
    from walld_client.session.entries import Artifact, MessagePage
    from walld_client.session.fingerprint import workspace_fingerprint
    from walld_client.session.ledger_steps import SessionInfo
    from walld_client.session.session import Session
    from walld_client.session.store_repair import Startup, Store, startup
    from walld_client.session.turn import Turn
    from walld_client.stats import Stats

__all__ = [
    "Artifact",
    "AuditedTurn",
    "Blocked",
    "Client",
    "Entry",
    "Finding",
    "Gap",
    "MessagePage",
    "NotDurable",
    "PartialReply",
    "Refused",
    "RepairStep",
    "Reply",
    "ReplyError",
    "Report",
    "Retried",
    "Segment",
    "Session",
    "SessionInfo",
    "Startup",
    "Stats",
    "StepBegun",
    "Store",
    "Turn",
    "Unavailable",
    "Unsupported",
    "WalldError",
    "__version__",
    "check",
    "connect",
    "startup",
    "tools_hash",
    "workspace_fingerprint",
]

__version__ = VERSION

_MODULES = {
    "Artifact": "session.entries",
    "AuditedTurn": "session.audit",
    "Client": "client",
    "Entry": "ids",
    "Finding": "session.audit",
    "Gap": "recovered.partial",
    "MessagePage": "session.entries",
    "PartialReply": "recovered.partial",
    "RepairStep": "session.audit",
    "Reply": "reply.reply",
    "ReplyError": "recovered.partial",
    "Report": "session.audit",
    "Retried": "recovered.partial",
    "Segment": "recovered.segments",
    "Session": "session.session",
    "SessionInfo": "session.ledger_steps",
    "Startup": "session.store_repair",
    "Stats": "stats",
    "StepBegun": "recovered.partial",
    "Store": "session.store_repair",
    "Turn": "session.turn",
    "check": "client",
    "connect": "client",
    "startup": "session.store_repair",
    "tools_hash": "encoding.model_words",
    "workspace_fingerprint": "session.fingerprint",
}
"""Where a public name is defined."""
_SUBMODULES = frozenset(
    {
        "argument_checks",
        "client",
        "encoding",
        "ids",
        "paths",
        "query",
        "recovered",
        "reply",
        "session",
        "stats",
        "steps",
        "wire",
    }
)
"""Attributes of this package that need no import of their own."""

if not TYPE_CHECKING:  # a type checker would take every name for one of this package

    def __getattr__(name: str) -> object:
        """A public name or a module of this package that is used for the first time."""
        module = name if name in _SUBMODULES else _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with _loading():
            found = importlib.import_module(f"{__name__}.{module}")
        if name in _MODULES:
            found = globals()[name] = getattr(found, name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_SUBMODULES})
