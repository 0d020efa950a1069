"""Tracks the processes behind connections and streams, and notices their exit.

Owns: one pidfd for each process of interest, and the reconnect grace of those that cannot be seen.
Refuses: sockets and what follows from a death (`socket_reader.py`), the questions to the kernel
(`credentials.py`).

Invariants
- L1 A process is watched while it has a connection, an unreleased stream or an open turn, and no
  longer.
- L2 Alive or gone is the kernel's word (its pidfd is readable once it has exited). A clock decides
  only for a peer whose pid cannot be seen from here, and not while any connection of it is there:
  the producer that each of them names tells which are one process's.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from walld import limits
from walld.daemon.transport import credentials
from walld.engine.stream import Process

if TYPE_CHECKING:
    import socket

    from walld.wal.records import Owner

__all__ = ["Liveness"]

_Key = tuple[int, int, int]
_NOTICES_MAX = 64
_UNSEEN_BYTES = 6
"""Of its producer: the name of a process that cannot be seen. JSON holds it as an int."""


class Liveness:
    """Watched processes. Their pidfds stand in a selector of their own."""

    def __init__(self, boot: str) -> None:
        self._selector = select.epoll()
        self._boot = boot
        self._watched: dict[_Key, tuple[Process, int]] = {}
        self._unseen: dict[_Key, Process] = {}
        """Those whose pid cannot be seen, and that have said who they are."""
        self._pidfds: dict[int, Process] = {}
        self._exited: list[int] = []
        self._graces: dict[Process, float] = {}
        self._by_uid: dict[int, int] = {}

    def __len__(self) -> int:
        """Descriptors that are open for them."""
        return len(self._pidfds)

    def of_uid(self, uid: int) -> int:
        """How many of those are of that user's processes."""
        return self._by_uid.get(uid, 0)

    @staticmethod
    def _key(process: Process) -> _Key:
        return process.uid, process.owner.pid, process.owner.pidfd_inode

    # --- coming ---------------------------------------------------------------------------------

    def of_peer(self, accepted: socket.socket, who: credentials.PeerCredentials) -> Process:
        """The process that connected."""
        pidfd = credentials.open_pidfd(accepted, who.pid)
        inode = 0 if pidfd is None else os.fstat(pidfd).st_ino
        found = self._watched.get((who.uid, who.pid, inode)) if who.pid > 0 else None
        if found is None:
            return self._watch(who.uid, credentials.describe(who.pid, pidfd, self._boot), pidfd)
        if pidfd is not None:
            os.close(pidfd)
        return found[0]

    def known_as(self, process: Process, producer: bytes) -> Process:
        """Whose a connection is that has said its producer: of one that the kernel does not name,
        that of the other connections that say the same.
        """
        name = int.from_bytes(producer[:_UNSEEN_BYTES], "big")
        if process.owner.pid > 0 or not name:
            return process
        process.named(name)
        return self._unseen.setdefault(self._key(process), process)

    def of_owner(self, uid: int, owner: Owner, now: float) -> Process | None:
        """The living process that `owner` of a stored stream names, None where it is gone."""
        if owner.boot_id != self._boot:
            return None  # before all else: another process may have its numbers now
        found = self._watched.get((uid, owner.pid, owner.pidfd_inode))
        if found is not None:
            return found[0]
        if owner.pid <= 0:
            process = self._watch(uid, owner, None)
            if owner.pidfd_inode:
                process = self._unseen.setdefault(self._key(process), process)
            self.leave(process, now)
            return process
        pidfd = credentials.find_process(owner)
        return None if pidfd is None else self._watch(uid, owner, pidfd)

    def _watch(self, uid: int, owner: Owner, pidfd: int | None) -> Process:
        process = Process(uid, owner, visible=owner.pid > 0 and pidfd is not None)
        if pidfd is not None and process.visible:
            self._watched[self._key(process)] = (process, pidfd)
            self._pidfds[pidfd] = process
            self._by_uid[uid] = self.of_uid(uid) + 1
            self._selector.register(pidfd, select.EPOLLIN)
        elif pidfd is not None:
            os.close(pidfd)
        return process

    # --- going ----------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Readable when one of them has exited."""
        return self._selector.fileno()

    @property
    def have_exited(self) -> bool:
        """`next_exited` has some."""
        return bool(self._exited)

    def notice(self) -> None:
        """Look who has exited by now: `next_exited` has them."""
        for pidfd, _ in self._selector.poll(0, _NOTICES_MAX):
            self._selector.unregister(pidfd)
            self._exited.append(pidfd)

    def next_exited(self) -> Process | None:
        """A process that has exited and is not watched any more, None where there is none."""
        if not self._exited:
            return None
        pidfd = self._exited.pop()
        process = self._pidfds.pop(pidfd)
        self._by_uid[process.uid] -= 1
        del self._watched[self._key(process)]
        os.close(pidfd)
        process.visible = False
        process.has_exited = True
        return process

    def leave(self, process: Process, now: float) -> None:
        """A connection of it ended: it may be of no interest now, or have to come back in time."""
        if not process.visible:
            if not process.connections and not process.queries:
                self._graces[process] = now + limits.RECONNECT_GRACE_SECONDS
            return
        if process.connections or process.queries or process.streams or process.turns:
            return
        if self._key(process) not in self._watched:
            return  # by the end of another of its connections
        _, pidfd = self._watched.pop(self._key(process))
        del self._pidfds[pidfd]
        self._by_uid[process.uid] -= 1
        if pidfd in self._exited:
            self._exited.remove(pidfd)
        else:
            self._selector.unregister(pidfd)
        os.close(pidfd)

    def forget(self, process: Process) -> None:
        """It is lost: nothing waits for it to come back."""
        self._graces.pop(process, None)

    def overdue(self, now: float) -> list[Process]:
        """Processes that cannot be seen and have not come back in time."""
        late = []
        for process, until in list(self._graces.items()):
            if process.connections or process.queries:
                del self._graces[process]
            elif now >= until:
                del self._graces[process]
                if self._unseen.get(self._key(process)) is process:
                    del self._unseen[self._key(process)]
                late.append(process)
        return late

    def drop_idle(self, now: float) -> None:
        """L1, also for those whose last stream was released after their last connection ended."""
        for process, _ in list(self._watched.values()):
            self.leave(process, now)

    def close(self) -> None:
        """Watch nobody any more."""
        for pidfd in self._pidfds:
            os.close(pidfd)
        self._pidfds.clear()
        self._selector.close()
