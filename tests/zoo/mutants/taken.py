"""Planted bugs: connections, processes and events on their way into the daemon."""

from __future__ import annotations

from .mutant import DAEMON, ENGINE, Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "a failed send closes the connection",
        DAEMON + "transport/connections.py",
        "            sent = 0  # I2: the reading side finds out what is wrong\n",
        "            self.close(peer)\n            return\n",
        "I2",
        "1891",
    ),
    Mutant(
        "a reset ends a connection before it is read to its end",
        DAEMON + "transport/socket_reader.py",
        "            peer = by_fd.get(fd)\n"
        "            if peer is not None:\n"
        "                if fair_queue.is_paused:\n",
        "            peer = by_fd.get(fd)\n"
        "            if peer is not None and _ & select.EPOLLHUP:\n"
        "                self._connections.close(peer)\n"
        "            elif peer is not None:\n"
        "                if fair_queue.is_paused:\n",
        "I2",
        "961",
    ),
    Mutant(
        "silence for three seconds is taken for death",
        DAEMON + "transport/socket_reader.py",
        "        for process in self._liveness.overdue(now):\n",
        '        heard = self.__dict__.setdefault("heard", {})\n'
        "        for stream in list(self._engine.registry.by_no.values()):\n"
        "            if heard.setdefault(stream.no, (stream.next_seq, now))[0] != "
        "stream.next_seq:\n"
        "                heard[stream.no] = stream.next_seq, now\n"
        "            if now - heard[stream.no][1] > 3 and stream.owner is not None:\n"
        '                self._engine.orphan(stream, "agent_lost")\n'
        "        for process in self._liveness.overdue(now):\n",
        "L2",
        "1891",
    ),
    Mutant(
        "the end of a connection is taken for the death of its process",
        DAEMON + "transport/connections.py",
        "        self._liveness.leave(process, event_loop.now())\n\n    def refuse(",
        "        self._liveness.leave(process, event_loop.now())\n"
        "        if not process.connections:\n"
        '            self._engine.lose(process, "agent_lost")\n\n    def refuse(',
        "L2",
        "223",
    ),
    Mutant(
        "the death of a process is never noticed",
        DAEMON + "transport/liveness.py",
        "            self._exited.append(pidfd)\n",
        "            assert pidfd not in self._exited\n",
        "L2",
        "528",
    ),
    Mutant(
        "the end of one connection forgets a producer that has another",
        ENGINE + "registry.py",
        "        if not producer.streams and not producer.connections:\n",
        "        if not producer.streams:\n",
        "P2",
        "1891",
    ),
    Mutant(
        "what was taken already is taken again",
        ENGINE + "event_handlers.py",
        "        elif event.seq < stream.next_seq:\n",
        "        elif event.seq < stream.written_seq:\n",
        "P2",
        "1046",
    ),
    Mutant(
        "of a run that overlaps what was taken nothing is taken",
        ENGINE + "event_handlers.py",
        "            event = self._fresh_part(event, stream.next_seq)\n",
        "            event = event\n",
        "P2",
        "104",
    ),
    Mutant(
        "tokens join a run of reasoning",
        ENGINE + "stream.py",
        "        if run is None or run.kind != kind or first_seq != self.next_seq:\n",
        "        if run is None or first_seq != self.next_seq:\n",
        "P11",
        "1891",
    ),
    Mutant(
        "another event does not end a run",
        ENGINE + "stream.py",
        "        if self._run is not None:\n"
        "            self._close_run()\n"
        "        self.waiting.append(_Waiting(seq",
        "        self.waiting.append(_Waiting(seq",
        "S1",
        "1891",
    ),
    Mutant(
        "a gap is not said",
        "walld/replies/fold.py",
        "            if first_seq > self.last_seq + 1:\n",
        "            if first_seq > self.last_seq + 1 and self.run is None:\n",
        "P10",
        "1891",
    ),
)
