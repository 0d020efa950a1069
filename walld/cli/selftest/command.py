"""`walld selftest`: which durability classes can this directory's mount honour?

Owns: what the probes mean for the classes sent, written and synced, and the table. Exit 0 all three
are honoured, 1 not, 128 and the signal that ended it. Refuses: touching the directory, which a
process does that may hang (`trials.py`); promising what cannot be seen from here: whether a device
keeps what it acknowledges shows when power is lost, not before.

Everything is tried in a folder of its own inside the directory, which is removed again, also where
a signal ends it. What had no time, or has not returned, is not proven.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import walld_client

from walld.cli.exit_codes import CANNOT, DONE
from walld.cli.progress import Progress
from walld.cli.selftest.mounts import Mount, Opinion, opinion
from walld.cli.selftest.probes import Latency, Probe
from walld.cli.selftest.termination import Ended, ending, held, opened
from walld.cli.selftest.torn_write import Kills
from walld.cli.selftest.trials import PROBES, SYNC, WRITERS
from walld.cli.selftest.watchdog import Watched
from walld.cli.show import as_json
from walld.escape import escaped_line

__all__ = ["Report", "Result", "run"]

NOT_PROVEN = "not proven"
_NO_TIME = "no time left"
_FAST_SYNC_US = 100
_FAST = (
    "fdatasync takes less than 100 us at the median: the device may not flush for real, "
    "which cannot be known from here"
)
_FOR_SYNCED = (SYNC, "directory sync", "rename")
_FOR_LATER = (*_FOR_SYNCED, WRITERS)
"""What a class behind `sent` needs."""


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
    seen: Opinion = field(default_factory=lambda: opinion(None))
    probes: list[Probe] = field(default_factory=list)
    latency: Latency | None = None
    kills: Kills | None = None
    client: str = ""
    notes: list[str] = field(default_factory=list)


def run(options: argparse.Namespace) -> int:
    """Exit 0 or 1."""
    report = Report(options.directory)
    try:
        with ending():
            _try(report, options)
    except Ended as end:
        return end.code
    report.client = walld_client.check()
    _judge(report)
    if options.json:
        print(as_json(_plain(report)))
    else:
        for line in _lines(report):
            print(line)
    is_good = all(one.verdict == "yes" for one in report.classes.values())
    return DONE if is_good else CANNOT


def _try(report: Report, options: argparse.Namespace) -> None:
    """All that is tried, in a folder that goes again, also where a signal ends it."""
    folder = os.path.join(options.directory, f"walld-selftest-{secrets.token_hex(4)}")
    with held() as before:
        try:
            watched = Watched(options.directory, folder, options.seconds)
        except OSError as error:
            report.probes.append(Probe("write", None, f"no process can be started: {error}"))
            return
        bar = Progress("probing", options.seconds)
        heard = _Heard(report, watched.begun, bar)
        try:
            with opened(before), bar:
                is_gone = watched.follow(heard)
        except Ended as end:
            if not watched.end(end.signal):
                print(f"walld: {escaped_line(_stays(folder))}", file=sys.stderr)
            raise
    heard.raise_trouble()
    why = "its process died" if time.monotonic() < watched.deadline else _NO_TIME
    _what_is_missing(report, heard, why, is_gone)
    if not is_gone or (why != _NO_TIME and not heard.is_done):
        report.notes.append(_stays(folder))


def _stays(folder: str) -> str:
    return f"{folder} may stay, as the process that made it did not end as it should: remove it"


class _Heard:
    """Puts what is told into a report."""

    def __init__(self, report: Report, begun: float, bar: Progress) -> None:
        self._report = report
        self._bar = bar
        self._begun = self.since = begun
        self.step = "mount"
        self.is_done = False
        self._error: OSError | None = None
        self._bug: str | None = None

    def __call__(self, kind: str, value: Any) -> None:
        report = self._report
        if kind == "step":
            self.step, self.since = value, time.monotonic()
        elif kind == "mount":
            report.seen = opinion(value)
            report.mount = _mount_facts(value)
            report.notes += report.seen.notes
        elif kind == "probe":
            report.probes.append(value)
        elif kind == "latency":
            report.latency = value
        elif kind == "kills":
            report.kills = value
        elif kind == "note":
            report.notes.append(value)
        elif kind == "error":
            self._error = value
        elif kind == "bug":
            self._bug = value
        else:
            self.is_done = True
        self._bar.reached(time.monotonic() - self._begun, self.step)

    def raise_trouble(self) -> None:
        """No such directory is a mistake, not a finding."""
        if self._error is not None:
            raise self._error
        if self._bug is not None:
            raise RuntimeError(self._bug)


def _mount_facts(mount: Mount | None) -> dict[str, object]:
    if mount is None:
        return {}
    facts: dict[str, object] = mount._asdict()
    return facts | {"options": sorted(mount.options), "read_only": mount.is_read_only}


def _what_is_missing(report: Report, heard: _Heard, why: str, is_gone: bool) -> None:
    """What was not tried to its end, as probes of which nothing is known."""
    names = {probe.name for probe in report.probes}
    if "write" in names:
        return  # nothing else could be tried
    after = f"{time.monotonic() - heard.since:.1f} s"
    if not is_gone:
        said = f"has not returned for {after}: the disk hangs, or is that slow"
        report.probes.append(Probe(heard.step, None, said))
    elif not heard.is_done and not (why == _NO_TIME and heard.step == WRITERS and report.kills):
        said = f"{why}: it was not over after {after}"
        report.probes.append(Probe(heard.step, None, said))
    names.add(heard.step)
    if SYNC in names and report.latency is None and heard.is_done:
        return  # a sync that failed ends it all
    tried = names | ({SYNC} if report.latency else set()) | ({WRITERS} if report.kills else set())
    said = f"not tried: {why}" if is_gone else f"not tried: `{heard.step}` has not returned"
    missing = [name for name in (*PROBES, SYNC, WRITERS) if name not in tried]
    report.probes += [Probe(name, None, said) for name in missing]


# --- what it means --------------------------------------------------------------------------------


def _judge(report: Report) -> None:
    """Each class rests on the one before it."""
    failed = {probe.name: probe.said for probe in report.probes if probe.is_good is False}
    unproven = {probe.name: probe.said for probe in report.probes if probe.is_good is None}
    unproven.pop("read without waiting", None)  # walld does without it
    sent = Result("yes", "a daemon can own the directory; what the kernel has, it reads")
    for name, said in unproven.items():
        if name not in _FOR_LATER and sent.verdict == "yes":
            sent = Result(NOT_PROVEN, f"{name}: {said}")
    for name, said in failed.items():
        if name not in _FOR_LATER and sent.verdict != "no":
            sent = Result("no", said)
    report.classes["sent"] = sent
    report.classes["written"] = written = _written(report, sent, unproven.get(WRITERS))
    report.classes["synced"] = _synced(report, written, failed, unproven)
    if report.latency is not None and report.latency.sync_p50 < _FAST_SYNC_US:
        report.notes.append(_FAST)


def _written(report: Report, sent: Result, unproven: str | None) -> Result:
    kills = report.kills
    if sent.verdict == "no":
        return sent
    if kills is not None and (kills.lost or kills.corrupt):
        text = f"of {kills.batches} batches {kills.lost} are gone, {kills.corrupt} called corrupt"
        return Result("no", f"{text}, after {kills.kills} kills")
    if sent.verdict != "yes":
        return sent
    if kills is None or not kills.kills:
        trouble = kills.trouble if kills is not None else None
        return Result(NOT_PROVEN, trouble or f"no writer was killed: {unproven or 'not tried'}")
    trouble = kills.trouble or unproven
    if trouble is not None:
        return Result(NOT_PROVEN, trouble)
    text = f"{kills.kills} writers killed ({kills.torn} torn), all of {kills.batches} batches there"
    return Result("yes", text)


def _synced(
    report: Report, written: Result, failed: dict[str, str], unproven: dict[str, str]
) -> Result:
    seen = report.seen
    if written.verdict == "no":
        return Result("no", seen.why if seen.synced == "no" else written.why)
    for name in _FOR_SYNCED:
        if name in failed:
            return Result("no", failed[name])
    if seen.synced != "yes":
        return Result(seen.synced, seen.why)
    for name in _FOR_SYNCED:
        if name in unproven:
            return Result(NOT_PROVEN, f"{name}: {unproven[name]}")
    if report.latency is None or written.verdict != "yes":
        return Result(NOT_PROVEN, written.why)
    return Result("yes", f"{seen.why}; files, names and renames can be synced")


# --- how it is said -------------------------------------------------------------------------------


def _plain(report: Report) -> dict[str, object]:
    shown = asdict(report)
    del shown["seen"]
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
