"""Each verb of a disk that a start uses fails once, in each way that passes: nothing comes of it.

And what an error that lasts may cost: never a start where a segment cannot be read.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from damaged_directory import LOG, DamagedDirectory, begin, flip, row, text
from unit.daemon.startup.failing_verbs import Verbs
from virtual_daemon import Home, Peer, asked, living, run, text_of
from walld_client.wire import messages as wire

from walld.disk.real import RealDisk
from walld.disk.retrying import RetryingDisk
from walld.partials import tombstone_file
from walld.partials.store import PartialStore
from walld.partials.tombstone_file import done_with
from walld.recovery.partial_scan import find_partials
from walld.wal.layout import Flag, segment_name
from walld.wal.log_scan import LogScan

Told = tuple[list[tuple[str, bytes, list[tuple[int, int, str]]]], Any]


def damaged(path: Path) -> None:
    """A log and partials of which a start has much to mend."""
    made = DamagedDirectory(path)
    made.segment()
    made.batch(row(1, 0, 3, begin(), text(1, "a ", "b ", "c "), flags=Flag.BEGIN))
    made.batch(row(9, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(9, 4, 5, text(4, "d ", "e ")))  # begun anew by its producer
    made.batch(
        row(10, 0, 2, begin("s2"), text(1, "x", "y"), flags=Flag.BEGIN),
        row(11, 0, 1, begin("dead"), text(1, "z"), flags=Flag.BEGIN),
    )
    made.batch(row(12, 0, 2, begin("lost"), text(1, "x", "y"), flags=Flag.BEGIN))
    made.batch(row(10, 3, 3, text(3, "z")), row(11, 2, 2, flags=Flag.RELEASED))
    made.segment()
    made.batch(row(10, 4, 4, text(4, "w")))
    made.batch(row(14, 0, 1, begin("k1"), text(1, "q"), flags=Flag.BEGIN))
    made.batch()
    made.partial(14, begin("k1"), text(1, "q"))
    made.partial(3, begin("k2"), text(1, "resolved"))
    flip(made.partial(4, begin("k3", "other"), text(1, "bad")), 30)
    made.partial(5, begin("k5", "other"), text(1, "one"))
    made.partial(5, begin("k5", "third"), text(1, "one", "two"))
    made.flip(5, -1)
    (path / "partials" / str(os.geteuid()) / "chat" / ".x.tmp").write_bytes(b"")
    (path / "wal" / segment_name(3)).write_bytes(b"cut short")
    tombstone_file._note(made.disk, LOG, [(3, 3)])
    made.close()


def with_session(path: Path) -> None:
    """Lines of a session that are in the log alone."""

    path.parent.mkdir()

    async def main() -> None:
        async with living(Home(path.parent)) as virtual:
            with Peer(virtual, "query") as asking, Peer(virtual) as agent:
                for number in range(3):
                    entry = wire.NewEntry("app.note", b"{}", f"e{number}")
                    asking.send(wire.Append(number + 1, "t", [entry], level="synced"))
                    await asking.hear(wire.Answer)
                agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"one"))
                await agent.drain("synced")
            await virtual.crash()

    run(main)


class Starts:
    """Starts on copies of a directory."""

    def __init__(self, path: Path, verbs: Verbs, made: Path) -> None:
        self._path = path
        self._verbs = verbs
        self._made = made
        self._number = 0
        self.told: list[tuple[str, str]] = []
        """The verbs of a start at which nothing fails."""
        self.well = self.of(-1, 0)

    def of(self, at: int, number: int, *, lasts: bool = False) -> Told:
        """What is told by a start where the verb with that index fails."""
        self._number += 1
        home = Home(self._path / str(self._number))
        shutil.copytree(self._made, home.data)
        heard: list[Told] = []
        self._verbs.fail(at, number, lasts=lasts)

        async def main() -> None:
            async with living(home) as virtual:
                self.told = self.told or self._verbs.told.copy()
                with anyio.move_on_after(30):
                    heard.append(await _heard(virtual))
                await virtual.crash()

        run(main)
        shutil.rmtree(home.data)
        return heard[0] if heard else ([], None)


async def _heard(virtual: Any) -> Told:
    answer = await asked(virtual, wire.Recover(1, "all"))
    replies = [
        (
            one.stream_id,
            text_of(one),
            [(gap.first_seq, gap.last_seq, gap.verdict) for gap in one.gaps],
        )
        for one in msgspec.convert(answer, list[wire.Recovered])
    ]
    return sorted(replies), await asked(virtual, wire.Events(1, "t"))


@pytest.fixture(params=[damaged, with_session])
def starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Starts:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)  # what is kept here is not too old
    request.param(tmp_path / "made" / "data")
    return Starts(tmp_path, Verbs(monkeypatch), tmp_path / "made" / "data")


@pytest.mark.parametrize(
    ("number", "every"),
    [
        (errno.EIO, 4),
        (errno.ESTALE, 11),
        (errno.EMFILE, 13),
        pytest.param(errno.EIO, 1, marks=pytest.mark.sweep),
    ],
)
def test_an_error_that_passes_changes_nothing(starts: Starts, number: int, every: int) -> None:
    for at in range(0, len(starts.told), every):
        assert starts.of(at, number) == starts.well, (at, starts.told[at])


@pytest.mark.sweep
def test_no_error_of_a_segment_is_a_reason_not_to_start(starts: Starts) -> None:
    """P9: from whichever moment on it cannot be read, what can be is served, and no more.

    But where its end could be neither synced nor read to be written again: the next start knows.
    """
    for at, (verb, path) in enumerate(starts.told):
        if not path.startswith("wal/") or verb not in ("open", "size", "read_at"):
            continue
        try:
            replies, events = starts.of(at, errno.EIO, lasts=True)
        except BaseExceptionGroup as group:
            told = group
            while isinstance(told.exceptions[0], BaseExceptionGroup):
                told = told.exceptions[0]
            (error,) = told.exceptions
            assert isinstance(error, OSError)
            assert error.filename == path
            assert at > starts.told.index(("open", path)), "what the scan meets ends no start"
            continue
        whole = {stream_id: said for stream_id, said, _ in starts.well[0]}
        for stream_id, said, _gaps in replies:
            assert said in whole[stream_id], (at, verb, path)
        assert events in (None, starts.well[1])


@pytest.mark.parametrize("place", ["segment", "partial", "directory", "list"])
def test_what_lasts_is_tried_three_times_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Each try of a bad sector may take half a minute."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    kept = made.partial(2, begin("k"), text(1, "y"))
    with RealDisk(str(made.path)) as disk:
        tombstone_file.write_down(disk, LOG, [7])
    made.close()
    verb = "list_dir" if place == "directory" else "open"
    path = {
        "segment": f"wal/{segment_name(1)}",
        "partial": str(kept.relative_to(made.path)),
        "directory": "partials",
        "list": tombstone_file.GONE_PATH,
    }[place]
    whole, tries = getattr(RealDisk, verb), list[str]()

    def planted(self: RealDisk, asked: str) -> Any:
        if asked == path:
            tries.append(asked)
            raise OSError(errno.EIO, os.strerror(errno.EIO), asked)
        return whole(self, asked)

    monkeypatch.setattr(RealDisk, verb, planted)
    with RealDisk(str(made.path)) as disk, suppress(OSError):
        patient = RetryingDisk(disk)
        done_with(patient, LOG, [], [], is_all=True)
        find_partials(PartialStore(patient))
        for _ in LogScan(patient, LOG):
            pass
    assert len(tries) == 3
