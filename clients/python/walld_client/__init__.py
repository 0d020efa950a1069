"""The thin client of walld: stream a reply so that no crash can lose it.

Owns: the public names and nothing else.

    client = walld_client.connect()
    with client.reply("session-1") as reply:
        for piece in model:
            reply.token(piece)
        save(...)       # the application's own copy
        reply.end()     # walld may forget it now
"""

from __future__ import annotations

from walld_client.client import Client, check, connect
from walld_client.errors import NotDurable, Refused, Unavailable, Unsupported, WalldError
from walld_client.recovered.partial import Gap, PartialReply, ReplyError, Segment
from walld_client.reply.reply import Reply
from walld_client.session.audit import AuditedTurn, Finding, RepairStep, Report
from walld_client.session.entries import Artifact, Entry
from walld_client.session.fingerprint import workspace_fingerprint
from walld_client.session.ledger_steps import SessionInfo
from walld_client.session.session import Session
from walld_client.session.turn import Turn
from walld_client.stats import Stats
from walld_client.version import VERSION

__all__ = [
    "Artifact",
    "AuditedTurn",
    "Client",
    "Entry",
    "Finding",
    "Gap",
    "NotDurable",
    "PartialReply",
    "Refused",
    "RepairStep",
    "Reply",
    "ReplyError",
    "Report",
    "Segment",
    "Session",
    "SessionInfo",
    "Stats",
    "Turn",
    "Unavailable",
    "Unsupported",
    "WalldError",
    "__version__",
    "check",
    "connect",
    "workspace_fingerprint",
]

__version__ = VERSION
