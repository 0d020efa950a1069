"""Planted bugs: sessions, their turns, and the replies that become lines of them."""

from __future__ import annotations

from .mutant import DAEMON, ENGINE, LEDGER, Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "sessions: a turn's reply goes and its messages do not come",
        "walld/engine/turn_commit.py",
        "append(ledger, messages, None,",
        "append(ledger, [], None,",
        "N2",
        "390",
    ),
    Mutant(
        "sessions: the log lets go before the file of a session is synced",
        LEDGER + "store.py",
        "        try:\n            file.sync()\n        except OSError:\n",
        "        try:\n            file.size()\n        except OSError:\n",
        "E1",
        "390",
    ),
    Mutant(
        "sessions: the log lets go though the file was not written",
        DAEMON + "session_store/checkpoints.py",
        "            await self._files.thread.run(partial(self._put, *key, begun))\n",
        "            try:\n"
        "                await self._files.thread.run(partial(self._put, *key, begun))\n"
        "            except OSError as error:\n"
        '                _log.error("%s", error)\n',
        "N4",
        "390",
    ),
    Mutant(
        "sessions: an append is acknowledged before the flush",
        DAEMON + "api/sessions.py",
        "        return self._sessions.reached(level, uid=uid)\n",
        '        return self._sessions.reached("taken")\n',
        "P4",
        "s0",
    ),
    Mutant(
        "sessions: an append at synced is acknowledged when it is written",
        DAEMON + "api/sessions.py",
        "        return self._sessions.reached(level, uid=uid)\n",
        '        return self._sessions.reached("written")\n',
        "P4",
        "40",
    ),
    Mutant(
        "sessions: two open a session at once",
        DAEMON + "session_store/open_sessions.py",
        "            if not lock.locked() and self._opening.get(key) is lock:"
        "  # else it has passed on\n",
        "            if not lock.statistics().tasks_waiting:\n",
        "N1",
        "40",
    ),
    Mutant(
        "sessions: a start forgets the lines it finds in the log",
        DAEMON + "startup/session_replay.py",
        "            kept,\n            event_loop.now(),\n",
        "            kept[:0],\n            event_loop.now(),\n",
        "N3",
        "s1",
    ),
    Mutant(
        "sessions: a start keeps the lines behind a torn place",
        "walld/ledger/pending.py",
        "    return Joined(whole, cut)\n",
        "    return Joined(kept, [])\n",
        "H2",
        "127",
    ),
    Mutant(
        "sessions: after a start every open turn counts as lost",
        DAEMON + "session_store/open_sessions.py",
        "            if process is not None:\n",
        "            if process is not None and ledger.pending_bytes < 0:\n",
        "N5",
        "390",
    ),
    Mutant(
        "sessions: a turn is never interrupted",
        ENGINE + "session_log.py",
        "            self._disown(key)\n            self.lost(key, reason)\n",
        "            self._disown(key)\n",
        "N5",
        "s139",
    ),
    Mutant(
        "sessions: a released reply of a turn is not taken again after a restart",
        ENGINE + "resume.py",
        "        return resume.released and (not is_whole or is_leaving)\n",
        "        return resume.released\n",
        "P6",
        "s4",
    ),
    Mutant(
        "sessions: a delete leaves lines that wait for their file",
        ENGINE + "session_log.py",
        "        self.checkpointed(ledger, last_seq, list(ledger.closing), now)\n",
        "        assert last_seq >= 0\n",
        "P5",
        "s4",
    ),
    Mutant(
        "sessions: an entry that is there already is added again",
        ENGINE + "session_log.py",
        "    if entry.once and entry.id in state.ids:\n",
        "    if entry.once and entry.id in ():\n",
        "N1",
        "s2",
    ),
)
