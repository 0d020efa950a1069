"""Restores sessions at a start: lines of the log are pending again or go to their files.

Owns: the order of that. Refuses: which lines count (`session_replay.py`), deletes and forks that
were not finished (`finish_intents.py`), writing files (`session_store/checkpoints.py`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from walld.daemon.startup.session_replay import SessionReplay
from walld.ledger.pending import is_dense
from walld.recovery.possibly_lost_sessions import doubt_of

if TYPE_CHECKING:
    from walld.daemon.session_store.checkpoints import Checkpoints
    from walld.daemon.session_store.handles import Files
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.startup.finish_intents import IntentFinisher
    from walld.daemon.storage.reply_reader import ReplyReader
    from walld.disk.base import Disk
    from walld.engine.engine import Engine
    from walld.recovery.startup_recovery import RecoveredStorage

__all__ = ["restore_sessions"]

_log = logging.getLogger("walld.sessions")


async def restore_sessions(
    engine: Engine,
    files: Files,
    reader: ReplyReader,
    sessions: Sessions,
    intent_finisher: IntentFinisher,
    checkpoints: Checkpoints,
    recovered: RecoveredStorage,
    disk: Disk,
) -> None:
    """Before anybody asks. Lines are pending again up to where power tore them."""
    try:
        users = await files.thread.run(files.ledgers.users)
    except OSError as error:
        _log.error("who has sessions is not known: %s", error)
        users = None
    engine.session_logs.has(users)
    await intent_finisher.restore()
    doubt = await files.thread.run(partial(doubt_of, disk, recovered))
    sessions.in_doubt(doubt)
    found = SessionReplay(engine, files, reader, sessions, recovered, doubt)
    for key, streams in found.by_session().items():
        ledger = await found.restore(key, streams)
        if ledger is not None and (ledger.leaps or not is_dense(ledger.pending)):
            # Into the file, before anything comes behind it: once the damage is forgotten
            # (`walld fsck` was read, quarantine/ emptied) no start may take it for torn.
            await checkpoints.write_at_once(key, ledger)
