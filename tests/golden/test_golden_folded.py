"""A directory of a disk that does not look at case is read for ever, wherever it is.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

import os
import shutil

import make_folded_v2
from daemon_process import MakeDaemon
from ledger_world import digest_of
from walld_client.query import offline

from walld.cli.inspect import directory_scan, fsck
from walld.cli.inspect.offline import find
from walld.disk.lock import Owner
from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore

FILES = make_folded_v2.FOLDED_V2
UID, SESSIONS = make_folded_v2.UID, make_folded_v2.SESSIONS


def test_the_files_are_those_that_were_written_then() -> None:
    """SHA-256 over names and bytes."""
    assert digest_of(FILES) == "1440bb5296822fdefe7b041cf6b36a65360634887204e3598baea837f95235a4"


def test_who_only_reads_knows_all_names() -> None:
    with RealDisk(str(FILES), read_only=True) as real:
        disk = directory_scan.named(real)
        rows = LedgerStore(disk).tree()
        assert sorted(row.session_id or "" for row in rows) == sorted(SESSIONS)
        for session in SESSIONS:
            reading = LedgerStore(disk).read(UID, session)
            assert (reading.breaks, len(reading.lines)) == ([], 1)
            assert f'"said in":"{session}"'.encode() in reading.lines[0]
        report = fsck.inspect(disk, str(FILES))
    assert (report.state, report.partials) == ("clean", 1)
    (found,) = find(str(FILES)).replies
    assert (found.session_id, found.stream_id) == ("Chat-1", make_folded_v2.STREAM)


def test_a_client_answers_without_a_daemon() -> None:
    told = {one: offline.has_partial(str(FILES), UID, one) for one in ("Chat-1", "chat-1", "x")}
    assert told == {"Chat-1": True, "chat-1": False, "x": False}


def test_a_start_on_a_disk_that_looks_at_case_gives_it_its_names(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    shutil.copytree(FILES, daemon.data, dirs_exist_ok=True)
    for path in [daemon.data, *daemon.data.rglob("*")]:
        os.chmod(path, 0o700 if path.is_dir() else 0o600)
    daemon.start()
    assert daemon.logged("names with capitals have the form of a disk that looks at case now")
    assert daemon.terminate() == 0
    names = {path.name for path in (daemon.data / "sessions" / str(UID)).iterdir()}
    assert names >= {"Chat-1", "chat-1"}
    assert (daemon.data / "partials" / str(UID) / "Chat-1" / make_folded_v2.STREAM).exists()
    assert (daemon.data / "LOCK").read_bytes().startswith(b"walld 1\n")
    owner = Owner(str(daemon.data), bytes(16))
    assert not owner.is_folded
    owner.close()
