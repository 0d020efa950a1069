"""Planted bugs: the ring of the client, what it sends again, what it gives up."""

from __future__ import annotations

from .mutant import CLIENT, Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "client: takes written for synced",
        CLIENT + "link/ack_handler.py",
        "        for number, _written, synced in ack.streams:\n",
        "        for number, synced, _synced in ack.streams:\n",
        "P2",
        "1580",
    ),
    Mutant(
        "client: lets go of frames that are not synced",
        CLIENT + "link/backlog.py",
        "                    if last > stream.synced and not stream.gone and seq not in "
        "stream.refused:\n",
        "                    if last > self.taken_seq(stream) and seq not in stream.refused:\n",
        "P2",
        "6",
    ),
    Mutant(
        "client: does not resend",
        CLIENT + "link/backlog.py",
        "        everything.extend(self.sent)\n",
        "",
        "P2",
        "s4",
    ),
    Mutant(
        "client: does not resend what was on its way",
        CLIENT + "link/backlog.py",
        "        everything.extend(\n"
        "            frame for frame in self.outgoing "
        "if frame[5] not in event_frames.GREETING_TAGS\n"
        "        )\n",
        "",
        "P2",
        "390",
    ),
    Mutant(
        "client: resends the newest first",
        CLIENT + "link/backlog.py",
        "        everything.extend(self.waiting)\n        self.waiting = everything ",
        "        self.waiting.extend(everything) ",
        "P2",
        "390",
    ),
    Mutant(
        "client: a token overtakes what waits after EAGAIN",
        CLIENT + "link/connection.py",
        "        self.flowing = False\n        self.backlog.unsend",
        "        self.backlog.unsend",
        "P2",
        "1142",
    ),
    Mutant(
        "client: an event overtakes what waits after EAGAIN",
        CLIENT + "link/link.py",
        "        self.backlog.hold(stream, frame)\n\n    def push",
        "        self.backlog.waiting.appendleft(frame)\n"
        "        self.backlog._waits(len(frame) + 48, 1)\n"
        "\n"
        "    def push",
        "P2",
        "1891",
    ),
    Mutant(
        "client: a send that was taken in part is sent again whole",
        CLIENT + "link/connection.py",
        "        self.backlog.unsend(stream, taken_bytes)\n",
        "        self.backlog.unsend(stream, 0)\n",
        "P1",
        "1142",
    ),
    Mutant(
        "client: an event that was taken in part counts as whole",
        CLIENT + "link/link.py",
        "        if taken != len(frame):\n",
        "        if not taken:\n",
        "P1",
        "1838",
    ),
    Mutant(
        "client: a send that was taken in part counts as whole",
        CLIENT + "reply/reply.py",
        "                        if taken != length + 19:\n",
        "                        if not taken:\n",
        "P1",
        "1155",
    ),
    Mutant(
        "client: the rest of a resend is begun anew",
        CLIENT + "link/backlog.py",
        "            self._out_at += taken\n",
        "            self._out_at += taken if taken == len(self._out) else 0\n",
        "P1",
        "1155",
    ),
    Mutant(
        "client: does not resume its streams",
        CLIENT + "link/connection.py",
        "        return [framing.encode(hello), *map(framing.encode, resumes)]\n",
        "        return [framing.encode(hello), *map(framing.encode, resumes[:0])]\n",
        "P2",
        "390",
    ),
    Mutant(
        "client: does not say that a stream it resumes is released",
        CLIENT + "link/connection.py",
        "s.next_seq, s.released, s.moved_to)\n",
        "s.next_seq, False, s.moved_to)\n",
        "P5",
        "390",
    ),
    Mutant(
        "client: forgets a stream once its release is sent",
        CLIENT + "link/registry.py",
        "        if stream.is_settled() or (stream.gone and",
        "        if stream.released or (stream.gone and",
        "P5",
        "1891",
    ),
    Mutant(
        "client: gives up a stream released while the daemon is away",
        CLIENT + "reply/send.py",
        "    if not stream.introduced and not link.is_pushing_next() and not is_wanted:\n",
        "    if not link.is_pushing_next() and not is_wanted:\n",
        "P5",
        "981",
    ),
    Mutant(
        "client: keeps its drains to itself when the daemon is another",
        CLIENT + "link/connection.py",
        "        for drain_id in self.acks.drains:\n            self.hold_drain(drain_id)\n",
        "",
        "P2",
        "1142",
    ),
    Mutant(
        "client: a with block that is left releases, though nothing was saved",
        CLIENT + "reply/reply.py",
        "                self._end(messages.End(ID, ID, True))\n",
        "                self._end(messages.End(ID, ID, True), released=self._auto_release)\n",
        "P6",
        "190",
    ),
    Mutant(
        "client: an error releases",
        CLIENT + "reply/reply.py",
        "        return self._end(app_error(message, kind, detail, self._redact))\n",
        "        return self._end(app_error(message, kind, detail, self._redact), released=True)\n",
        "P6",
        "1891",
    ),
    Mutant(
        "client: forgets the token that a failed send did not take",
        CLIENT + "link/backlog.py",
        "        self.hold(stream, frame)\n        if taken_bytes:\n",
        "        if taken_bytes:\n            self.hold(stream, frame)\n",
        "P2",
        "223",
    ),
    Mutant(
        "client: forgets what was sent when a send fails",
        CLIENT + "link/connection.py",
        "        self.backlog.rewind()\n        self.remember",
        "        self.backlog.sent.clear()\n        self.backlog.rewind()\n        self.remember",
        "P2",
        "223",
    ),
)
