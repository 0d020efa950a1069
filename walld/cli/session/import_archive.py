"""What an import needs of an archive before and beside its lines.

Owns: telling one from a file of lines, that nothing is sent before all of it was looked at, its
artifacts. Refuses: its text (`foreign/archive_text.py`), its lines (`import_file.py`).
"""

from __future__ import annotations

import zlib
from io import BufferedReader

from walld_client.session.artifacts import upload

from walld.cli.session.archive import lines_of
from walld.cli.session_client import SessionClient
from walld.errors import FormatError, WalldError
from walld.foreign import archive_text
from walld.foreign.archive_text import Archive
from walld.sessions.state.entries import line_event

__all__ = ["archive_of", "bring_artifacts"]

_GZIP = b"\x1f\x8b"
_PEEKED_BYTES = 4096
_HEADER = b'{"walld":'


def archive_of(file: BufferedReader, path: str) -> Archive | None:
    """None where it is none; FormatError where it is one that is not whole."""
    if not _is_of_walld(file.peek(_PEEKED_BYTES)):
        return None
    if not file.seekable():
        raise FormatError(f"{path}: an archive is read twice: give a file, and no pipe")
    try:
        return archive_text.read(lines_of(file, path))
    except FormatError as error:
        raise FormatError(f"{path}: {error}; nothing of it was imported") from None


def _is_of_walld(head: bytes) -> bool:
    """A compressed file whose text begins as an archive does, as far as that can be told."""
    if not head.startswith(_GZIP):
        return False
    try:
        begins = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, len(_HEADER))
    except zlib.error:
        return True  # damaged: an archive says what of it is right
    return not begins or begins == _HEADER


def bring_artifacts(
    asking: SessionClient, session_id: str, found: Archive, file: BufferedReader, path: str
) -> None:
    """They come before the entries that name them. WalldError where the session has begun anew."""
    own = {line_event(line).id for line in found.lines[1:]}
    there = {line_event(line).id for line in asking.lines(session_id) or ()}
    if there and own.isdisjoint(there):
        raise WalldError(
            f"session {session_id} was begun anew since {path} was made of it: --session names"
            " another one for what is in the file; nothing of it was imported"
        )
    if own <= there:
        return
    for _, content in archive_text.artifacts(lines_of(file, path)):
        asking.run(upload(session_id, content))
