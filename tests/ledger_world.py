"""Sessions made up for tests: lines that fit, and what a reader without walld makes of a file."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from walld.ledger.line import chain_of, chain_text, header_line, make_line

UID = 1000
SESSION = "chat/7"
AT_MS = 1_795_353_611_123


def lines_of(count: int, *, uid: int = UID, session: str = SESSION, size: int = 20) -> list[bytes]:
    """A session of so many messages, as a daemon makes them."""
    previous, lines = chain_of(header_line(uid, session)), []
    for seq in range(1, count + 1):
        payload = b'{"role":"user","content":"%b %d"}' % (b"x" * size, seq)
        parent = f"e{seq - 1}" if seq > 1 else None
        line = make_line(seq, f"e{seq}", AT_MS + seq, "message", payload, previous, parent=parent)
        lines.append(line)
        previous = chain_of(line)
    return lines


def newer(text: bytes, version: int) -> bytes:
    """The same file as a later version would begin it: its first event is chained to its header."""
    header, first, *rest = text.splitlines(keepends=True)
    later = header.replace(b'{"walld":1', b'{"walld":%d' % version)
    body, _, _ = first.replace(
        chain_text(chain_of(header)), chain_text(chain_of(later))
    ).rpartition(b',"crc":"')
    return b"".join([later, b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body)), *rest])


def digest_of(folder: Path, look: Callable[[bytes], object] = bytes) -> str:
    """SHA-256 over names and bytes of the files below it. look: is shown the bytes of each."""
    whole = sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            whole.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
            look(path.read_bytes())
    return whole.hexdigest()


def verify(text: bytes) -> list[dict[str, Any]]:
    """The events of a file, by FORMAT.md and the standard library alone."""
    header, *lines = text.splitlines(keepends=True)
    assert json.loads(header)["walld"] == 1
    before, found = header, []
    for seq, line in enumerate(lines, 1):
        event = json.loads(line)
        assert line.endswith(b'"}\n')
        assert event["seq"] == seq
        chain = base64.b64encode(sha256(before).digest()[:16]).decode().rstrip("=")
        assert event["chain"] == chain
        body, _, _ = line.rpartition(b',"crc":"')
        assert event["crc"] == f"{zlib.crc32(body):08x}"
        found.append(event)
        before = line
    return found
