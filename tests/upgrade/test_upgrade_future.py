"""A directory of a later format is refused with one line that names both versions; nothing changes.

A build that writes what an earlier one may not pass over raises the version in LOCK first, so the
earlier one refuses the directory. A file of a later version below a LOCK of this one is refused as
well, where what it holds is not elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from builds import PATIENCE_SECONDS, Agent, Build, Daemon, same, settled


@pytest.fixture(scope="module")
def filled(new: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of this build at rest."""
    home = tmp_path_factory.mktemp("filled")
    with Daemon(new, home / "data", str(home / "s"), home / "log") as daemon:
        with Agent(new, str(home / "s"), "r") as agent:
            agent.kill()
            settled(daemon, [agent])
        daemon.terminate()
    return home / "data"


def later_lock(data: Path) -> None:
    lock = data / "LOCK"
    lock.write_bytes(lock.read_bytes().replace(b"walld 1\n", b"walld 3\n"))


def later_segment(data: Path) -> None:
    raise_version(max((data / "wal").glob("*.wal")), 64)


def later_snapshots(data: Path) -> None:
    found = list(data.rglob("snapshot"))
    assert found, "there are none to raise"
    for path in found:
        raise_version(path, 48)


def later_session(data: Path) -> None:
    (path,) = data.glob("sessions/*/r-session/events.jsonl")
    header, lines = path.read_bytes().split(b"\n", 1)
    (chain,) = re.findall(rb'^[^\n]*"chain":"([^"]*)"', lines)[:1]
    later = header.replace(b'{"walld":1,', b'{"walld":2,')
    path.write_bytes(later + b"\n" + rechained(lines, later + b"\n", chain))


def rechained(lines: bytes, header: bytes, chain: bytes) -> bytes:
    """The first event chained to another header, and each behind it to the one before."""
    made, before = [], header
    for line in lines.splitlines(keepends=True):
        digest = hashlib.sha256(before).digest()[:16]
        fresh = base64.b64encode(digest).rstrip(b"=")
        body = line[: line.rindex(b',"crc":"')]
        start = body.rindex(b'"chain":"') + len(b'"chain":"')
        body = body[:start] + fresh + body[start + len(chain) :]
        before = body + b',"crc":"%08x"}\n' % zlib.crc32(body)
        made.append(before)
    return b"".join(made)


def raise_version(path: Path, header_bytes: int) -> None:
    """Version 2 in a header that is otherwise as it was, and whole."""
    content = bytearray(path.read_bytes())
    struct.pack_into("<H", content, 8, 2)
    struct.pack_into("<I", content, header_bytes - 4, zlib.crc32(content[: header_bytes - 4]))
    path.write_bytes(content)


def contents(data: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in data.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (later_lock, r"LOCK: a LOCK of version 3, this walld reads 1 and 2: run the one that"),
        (later_segment, r"wal/\d{20}\.wal: a segment of version 2, this walld reads 1: run the"),
    ],
)
def test_a_start_on_a_later_directory_is_refused(
    change: Callable[[Path], None],
    says: str,
    filled: Path,
    new: Build,
    tmp_path: Path,
    socket_path: str,
) -> None:
    data = tmp_path / "data"
    shutil.copytree(filled, data)
    change(data)
    before = contents(data)
    # Not by `start_daemon`, which quotes the last lines: it ends, and its whole stderr is judged.
    done = subprocess.run(
        [sys.executable, "-m", "walld", "serve", "--data", data, "--socket", socket_path],
        env=new.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert re.search(says, line), line
    assert contents(data) == before, "nothing was written there"
    code, told = new.walld("recover", "nobody's", "--data", data, "--json")
    assert code == 1, f"{told}: nothing of it is not proven"


def test_a_session_of_a_later_version_is_refused_and_all_else_is_served(
    filled: Path, new: Build, old: Build, tmp_path: Path, socket_path: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(filled, data)
    later_session(data)
    (path,) = data.glob("sessions/*/r-session/events.jsonl")
    before = path.read_bytes()
    for build in (new, old):
        with Daemon(build, data, socket_path, tmp_path / "log") as daemon:
            told = build.answers(socket_path)
            for question in ("events", "messages", "state", "resume_check"):
                answer = told["session r-session"][question]
                assert re.search(r"Unavailable: .*version 2.*\b1\b", answer), answer
            assert len(told["session r-fork"]["events"]) > 60
            assert "r-kept" in told["orphans"]
            daemon.terminate()
        assert path.read_bytes() == before


def test_snapshots_of_a_later_version_are_made_anew(
    filled: Path, new: Build, old: Build, tmp_path: Path, socket_path: str
) -> None:
    """They hold nothing that the events do not."""
    told = []
    for name, change in (("as it was", None), ("later", later_snapshots)):
        data = tmp_path / name
        shutil.copytree(filled, data)
        if change is not None:
            change(data)
        for build in (new, old):
            with Daemon(build, data, socket_path, tmp_path / "log") as daemon:
                told.append(build.answers(socket_path))
                daemon.terminate()
    for one in told[1:]:
        same(told[0], one)
