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
from walld_client.errors import Refused, Unavailable, WalldError
from walld_client.partial import Gap, PartialReply, ReplyError, Segment
from walld_client.reply import Reply
from walld_client.stats import Stats
from walld_client.version import VERSION

__all__ = [
    "Client",
    "Gap",
    "PartialReply",
    "Refused",
    "Reply",
    "ReplyError",
    "Segment",
    "Stats",
    "Unavailable",
    "WalldError",
    "__version__",
    "check",
    "connect",
]

__version__ = VERSION
