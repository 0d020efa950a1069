"""What a person reads without a daemon: ls, recover, dump, fsck and salvage over any files.

Input: a byte for what is planted (a segment, a partial, steps of `shapes.py`, items that verify in
a segment and in a partial), the rest is its content.
Oracle: each command ends with one of its exit codes; what it prints holds no character that acts
on a terminal, and is the same when asked again; no file has changed.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

from walld.cli import entry_point as cli_run
from walld.cli.inspect import directory_scan
from walld.disk.lock_record import LockRecord, lock_record
from walld.errors import FormatError
from walld.partials.file import PartialFacts, pack_partial
from walld.partials.names import place_of
from walld.wal.layout import segment_name
from walld.wal.records import Begin, decode_items

from . import shapes

__all__ = ["one"]

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
CODES = {0, 1, 2, 3}
_parse = functools.cache(cli_run.parse)
"""The same few command lines each time."""
_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
_home = tempfile.TemporaryDirectory(prefix="walld-fuzz-", dir=_memory)


def one(data: bytes) -> None:
    """One input."""
    kind, raw = (data[0] % 4 if data else 0), data[1:]
    folder = Path(_home.name) / "data"
    shutil.rmtree(folder, ignore_errors=True)
    files = _planted(kind, raw)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    data_path = str(folder)
    commands = [
        ["ls", "--data", data_path],
        ["recover", "s", "--data", data_path],
        ["ls", "--data", data_path, "--json"],
        ["dump", "--data", data_path, "--items"],
        ["fsck", data_path],
    ]
    chosen = commands if crc32(raw) % 8 == 0 else [commands[crc32(raw) % 5], commands[3]]
    for command in chosen:
        said = _run(command)
        assert _run(command) == said, "asked twice"
    if crc32(raw) % 16 == 1:
        shutil.rmtree(f"{data_path}-new", ignore_errors=True)
        _run(["salvage", data_path, "--to", f"{data_path}-new", "--json"])
        _run(["ls", "--data", f"{data_path}-new"])
    for name, content in files.items():
        assert (folder / name).read_bytes() == content, "reading changes nothing"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == set(files)


def _run(command: list[str]) -> tuple[int, str]:
    out = io.StringIO()
    with (
        patch.object(cli_run, "parse", _parse),
        # No daemon is writing: what ends in a hole stays so.
        patch.object(directory_scan, "TAIL_WAIT_SECONDS", 0.0),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        code = cli_run.run(tuple(command))
    text = out.getvalue()
    assert code in CODES, (command, code, text)
    assert not CONTROL.search(text), (command, text)
    return code, text


def _planted(kind: int, raw: bytes) -> dict[str, bytes]:
    """Path -> content of a data directory."""
    number = shapes.named(raw) if kind == 0 else 1
    segment = f"wal/{segment_name(number)}"
    files = {"LOCK": lock_record(LockRecord(1, shapes.LOG)), segment: shapes.HEADER}
    if kind == 0:
        files[segment] = raw
    elif kind == 1:
        files["partials/0/s/r"] = raw
    elif kind == 2:
        files[segment] = shapes.segment(raw)
    else:
        files[segment] = shapes.segment(shapes.seed(raw[: 1 << 16][:65535]))
        files.update(_partial(raw))
    return files


def _partial(raw: bytes) -> dict[str, bytes]:
    """The same items as a partial of a later stream, where they begin as one does."""
    try:
        items = decode_items(raw)
    except FormatError:
        items = []
    begin = items[0] if items and isinstance(items[0], Begin) else None
    uid = begin.uid % (1 << 32) if begin is not None else 0
    facts = PartialFacts(shapes.LOG, 7, 1, 2, 0, 9, "agent_lost")
    return {f"partials/{uid}/s/r": pack_partial(uid, facts, raw, place_of("s", "r"))}
