"""`walld selftest`: which durability classes can this directory's mount honour?

Owns: the order of the probes within a bounded time, what they mean for the classes sent, written
and synced, and the table. Exit 0 all three are honoured, 1 not, 128 and the signal that ended it.
Refuses: promising what cannot be seen from here: whether a device keeps what it acknowledges shows
when power is lost, not before.

Everything is tried in a folder of its own inside the directory, which is removed again, also where
a signal ends it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import walld_client

from walld.cli import probes
from walld.cli.ended import Ended, ending, held, opened
from walld.cli.mounts import Mount, Opinion, mount_of, opinion
from walld.cli.probes import Latency, Probe
from walld.cli.progress import Progress
from walld.cli.run import CANNOT, DONE
from walld.cli.show import as_json
from walld.cli.torn_write import Kills, kill_writers
from walld.disk.real import RealDisk
from walld.errors import WalldError
from walld.escape import escaped_line

__all__ = ["Report", "Result", "run"]

NOT_PROVEN = "not proven"
_FAST_SYNC_US = 100
_FAST = (
    "fdatasync takes less than 100 us at the median: the device may not flush for real, "
    "which cannot be known from here"
)
_SHARE = {"latency": 0.25, "kills": 0.9}
"""At which share of the time each of the two long probes ends."""


@dataclass(slots=True)
class Result:
    """A durability class. verdict: yes, no or not proven."""

    verdict: str
    why: str


@dataclass(slots=True)
class Report:
    """All that selftest has to say."""

    directory: str
    classes: dict[str, Result] = field(default_factory=dict)
    mount: dict[str, object] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)
    latency: Latency | None = None
    kills: Kills | None = None
    client: str = ""
    notes: list[str] = field(default_factory=list)


def run(options: argparse.Namespace) -> int:
    """Exit 0 or 1."""
    report = Report(options.directory)
    mount = mount_of(options.directory)
    seen = opinion(mount)
    report.mount = _mount_facts(mount)
    report.notes += seen.notes
    try:
        with ending():
            _try(report, options)
    except Ended as end:
        return end.code
    report.client = walld_client.check()
    _judge(report, seen)
    if options.json:
        print(as_json(_plain(report)))
    else:
        for line in _lines(report):
            print(line)
    is_good = all(one.verdict == "yes" for one in report.classes.values())
    return DONE if is_good else CANNOT


def _try(report: Report, options: argparse.Namespace) -> None:
    """All that is tried, in a folder that goes again, also where a signal ends it."""
    begun = time.monotonic()
    with held() as before:
        try:
            folder = tempfile.mkdtemp(prefix="walld-selftest-", dir=options.directory)
        except OSError as error:
            os.stat(options.directory)  # not there at all is a mistake, not a finding
            report.probes.append(Probe("write", False, f"nothing can be made there: {error}"))
            return
        try:
            with opened(before), Progress("probing", options.seconds) as bar:
                _try_all(report, folder, begun, options.seconds, bar)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if os.path.lexists(folder):
                report.notes.append(f"{folder} could not be removed: remove it")


def _mount_facts(mount: Mount | None) -> dict[str, object]:
    if mount is None:
        return {}
    facts: dict[str, object] = mount._asdict()
    return facts | {"options": sorted(mount.options), "read_only": mount.is_read_only}


def _try_all(report: Report, folder: str, begun: float, seconds: float, bar: Progress) -> None:
    """Every probe in the folder, the short ones first."""
    try:
        with RealDisk(folder) as disk:
            bar.reached(0, "directory")
            report.probes += [
                probes.exclusive(disk),
                probes.space(disk),
                probes.directory_sync(disk),
                probes.rename(disk),
                probes.read_cached(disk),
            ]
            bar.reached(time.monotonic() - begun, "lock")
            report.probes.append(probes.lock(folder))
            bar.reached(time.monotonic() - begun, "latency of syncs")
            try:
                report.latency = probes.latency(disk, begun + seconds * _SHARE["latency"])
            except OSError as error:
                report.probes.append(Probe("sync", False, f"fdatasync or write fails: {error}"))
                return
            with suppress(OSError):
                disk.unlink("latency")
    except (OSError, WalldError) as error:
        report.probes.append(Probe("write", False, str(error)))
        return
    bar.reached(time.monotonic() - begun, "killing writers")
    report.kills = _kill(folder, begun, seconds, bar)


def _kill(folder: str, begun: float, seconds: float, bar: Progress) -> Kills:
    """Writers killed in slices, so that the bar moves."""
    total = Kills()
    until = begun + seconds * _SHARE["kills"]
    while total.trouble is None and (not total.kills or time.monotonic() < until):
        part = kill_writers(folder, min(until, time.monotonic() + 0.5))
        for name in ("kills", "torn", "batches", "lost", "corrupt"):
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.trouble = part.trouble
        bar.reached(time.monotonic() - begun, "killing writers")
    return total


# --- what it means --------------------------------------------------------------------------------


def _judge(report: Report, seen: Opinion) -> None:
    """Each class rests on the one before it."""
    failed = {probe.name: probe.said for probe in report.probes if probe.is_good is False}
    for_synced = ("directory sync", "rename", "sync")
    daemon = [said for name, said in failed.items() if name not in for_synced]
    sent = Result("yes", "a daemon can own the directory; what the kernel has, it reads")
    if daemon:
        sent = Result("no", daemon[0])
    report.classes["sent"] = sent
    report.classes["written"] = written = _written(report, sent)
    report.classes["synced"] = _synced(report, written, failed, seen)
    if report.latency is not None and report.latency.sync_p50 < _FAST_SYNC_US:
        report.notes.append(_FAST)


def _written(report: Report, sent: Result) -> Result:
    kills = report.kills
    if sent.verdict == "no":
        return Result("no", sent.why)
    if kills is None or not kills.kills:
        why = "no writer was killed" if kills is None else kills.trouble or "no writer was killed"
        return Result(NOT_PROVEN, why)
    if kills.lost or kills.corrupt:
        text = f"of {kills.batches} batches {kills.lost} are gone, {kills.corrupt} called corrupt"
        return Result("no", f"{text}, after {kills.kills} kills")
    if kills.trouble is not None:
        return Result(NOT_PROVEN, kills.trouble)
    text = f"{kills.kills} writers killed ({kills.torn} torn), all of {kills.batches} batches there"
    return Result("yes", text)


def _synced(report: Report, written: Result, failed: dict[str, str], seen: Opinion) -> Result:
    if written.verdict == "no":
        return Result("no", seen.why if seen.synced == "no" else written.why)
    for name in ("sync", "directory sync", "rename"):
        if name in failed:
            return Result("no", failed[name])
    if seen.synced != "yes":
        return Result(seen.synced, seen.why)
    if report.latency is None or written.verdict != "yes":
        return Result(NOT_PROVEN, written.why)
    return Result("yes", f"{seen.why}; files, names and renames can be synced")


# --- how it is said -------------------------------------------------------------------------------


def _plain(report: Report) -> dict[str, object]:
    shown = asdict(report)
    shown["probes"] = [probe._asdict() for probe in report.probes]
    shown["latency"] = None if report.latency is None else report.latency._asdict()
    return shown


def _lines(report: Report) -> Iterator[str]:
    yield f"{escaped_line(report.directory)}:"
    rows = [("CLASS", "HONOURED", "WHY")]
    rows += [(name, one.verdict, one.why) for name, one in report.classes.items()]
    for name, verdict, why in rows:
        yield f"  {name:<9}{verdict:<12}{escaped_line(why)}"
    yield ""
    if report.mount:
        facts = report.mount
        text = f"{facts['kind']} of {facts['source']} at {facts['point']}"
        yield f"  mount: {escaped_line(text)}"
    for probe in report.probes:
        word = {True: "yes", False: "no", None: "-"}[probe.is_good]
        yield f"  {probe.name}: {word}: {escaped_line(probe.said)}"
    found = report.latency
    if found is not None:
        for name, values in (("write", found[1:4]), ("fdatasync", found[4:7])):
            p50, p99, most = values
            yield f"  {name}: p50 {p50:.0f} us, p99 {p99:.0f} us, max {most:.0f} us"
    yield f"  a client started here: {escaped_line(report.client)}"
    for note in report.notes:
        yield f"  note: {escaped_line(note)}"
