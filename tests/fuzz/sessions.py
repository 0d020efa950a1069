"""A session as it is read back: any bytes as its file, as the base of a snapshot, as a delta.

Input: a byte for how the rest is meant; a file also as lines whose crc is made right, so that what
is behind it is met too.
Oracle: a second reader, written from FORMAT.md alone, finds the same lines; where no break and no
torn end is said, the file is its header and these lines, each chained to the one before. A line is
an event or a FormatError; a snapshot is a state or a FormatError, and a state gives itself again.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from zlib import crc32

from wal_files import BytesFile

from walld.errors import FormatError
from walld.ledger.line import header_line
from walld.ledger.scan import read_lines
from walld.sessions.state.entries import line_event
from walld.sessions.state.session_state import SessionState
from walld.sessions.views.projections import PROJECTIONS, project

__all__ = ["HEADER", "one", "simply_read"]

HEADER = header_line(1000, "fuzz")


def one(data: bytes) -> None:
    """One input."""
    kind, raw = (data[0] % 4 if data else 0), data[1:]
    if kind == 0:
        _file(raw)
    elif kind == 3:
        _file(b"".join(map(_sealed, raw.split(b"\n"))))
    else:
        _snapshot(raw, as_delta=kind == 2)


def _file(raw: bytes) -> None:
    content = HEADER + raw
    reading = read_lines(BytesFile("x", content), len(content), HEADER)
    assert reading.lines == list(simply_read(raw)), "the simple reader finds others"
    if not reading.breaks and not reading.torn_bytes:
        assert content == HEADER + b"".join(reading.lines)
        _check_chain(reading.lines)
    events = []
    for line in reading.lines:
        try:
            events.append(line_event(line))
        except FormatError:
            return
    state = SessionState()
    for event in events:
        assert event.seq > state.last_seq
        try:
            state.apply(event)
        except FormatError:
            return  # too much is missing before it
    for name in PROJECTIONS:
        json.dumps(project(name, events, {}))


def _sealed(line: bytes) -> bytes:
    body = line.rpartition(b',"crc":"')[0] or line
    return b'%b,"crc":"%08x"}\n' % (body, crc32(body))


def simply_read(raw: bytes) -> list[bytes]:
    """The lines that a reader gives out of what stands behind the header."""
    given: list[bytes] = []
    last, before, looks = 0, HEADER, 0
    whole = list(_whole(raw))
    for at, (end, seq, piece) in enumerate(whole):
        if seq <= last:
            continue
        behind = list(_behind(whole, at + 1, end + 256 * 1024))
        seqs = [seq, *(one[1] for one in behind)]
        if not _follows(piece, before) and seqs != sorted(set(seqs)):
            nexts = [one for one in behind if one[1] == last + 1 and _follows(one[2], before)]
            if behind[0] in nexts:
                continue
            if looks < 100:
                looks += 1
                first, *others = _runs([whole[at], *behind], last)
                with_it = _most([first, *(one for one in others if one[0] > first[-1])])
                without = _most(others)
                if without > with_it or (without == with_it and nexts):
                    continue
        given.append(piece)
        last, before = seq, piece
    return given


def _whole(raw: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(where it ends, seq, bytes) of each whole line."""
    end = 0
    for text in raw.split(b"\n")[:-1]:
        end += len(text) + 1
        for piece in (text + b"\n", text[max(0, text.rfind(b'{"seq":', 1)) :] + b"\n"):
            if seq := _seq(piece):
                yield end, seq, piece
                break


def _behind(
    whole: list[tuple[int, int, bytes]], first: int, until: int
) -> Iterator[tuple[int, int, bytes]]:
    for one in whole[first:]:
        yield one
        if one[0] >= until:
            return


def _runs(whole: list[tuple[int, int, bytes]], last: int) -> list[list[int]]:
    """The seqs above `last` of lines that stand behind one another and follow so."""
    runs: list[list[int]] = []
    before = b""
    for _, seq, piece in whole:
        if runs and _follows(piece, before) and seq > runs[-1][-1]:
            runs[-1].append(seq)
        else:
            runs.append([seq])
        before = piece
    return [left for run in runs if (left := [seq for seq in run if seq > last])]


def _most(runs: list[list[int]]) -> int:
    """Of all ways to leave some runs out so that the rest grows, the lines that the best leaves."""
    best: list[int] = []
    for at, run in enumerate(runs):
        best.append(len(run) + max((best[k] for k in range(at) if runs[k][-1] < run[0]), default=0))
    return max(best, default=0)


def _follows(line: bytes, before: bytes) -> bool:
    chain = b64encode(sha256(before).digest()[:16]).rstrip(b"=")
    return line.rpartition(b',"crc":"')[0].endswith(b',"chain":"%b"' % chain)


def _seq(piece: bytes) -> int:
    """Of a whole line: its own bytes up to the crc have that crc."""
    body, mark, rest = piece.rpartition(b',"crc":"')
    if not mark or len(rest) != 8 + len(b'"}\n') or rest[8:] != b'"}\n':
        return 0
    if b"%08x" % crc32(body) != rest[:8] or not body.startswith(b'{"seq":'):
        return 0
    digits = body[7:].split(b",", 1)[0]
    said = body[7 + len(digits) :].startswith(b',"id":"')
    if not said or not digits.isdigit() or len(digits) > 19 or digits[:1] == b"0":
        return 0
    return int(digits)


def _check_chain(lines: list[bytes]) -> None:
    before = HEADER
    for line in lines:
        chain = b64encode(sha256(before).digest()[:16]).rstrip(b"=")
        assert b',"chain":"%b","crc":"' % chain in line, "a break that nobody said"
        before = line


def _snapshot(raw: bytes, *, as_delta: bool) -> None:
    try:
        if as_delta:
            state = SessionState()
            state.apply_delta(raw)
            assert SessionState.from_base(state.to_base()).last_seq == state.last_seq
        else:
            state = SessionState.from_base(raw)
            again = SessionState.from_base(state.to_base())
            assert (again.last_seq, again.leaf) == (state.last_seq, state.leaf)
    except FormatError:
        return
