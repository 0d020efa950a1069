"""Damage to a session's file that the log has let go of: said, kept, never skipped (P9, H1, N1)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import walld_client
from daemon_process import DaemonProcess, walld
from ledger_world import newer

from walld.ledger.line import read_line

Change = Callable[[list[bytes]], list[bytes]]


def changed(daemon: DaemonProcess, change: Change, session_id: str = "s") -> list[bytes]:
    """The daemon is restarted with other lines in the file; those it had, header included."""
    assert daemon.terminate() == 0
    path = daemon.events_path(session_id)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(list(lines))))
    daemon.start()
    return lines


def flipped(line: bytes) -> bytes:
    middle = len(line) // 2
    return line[:middle] + bytes([line[middle] ^ 1]) + line[middle + 1 :]


def flip_last(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-1], flipped(lines[-1])]


def pay(session: Any) -> Any:
    """A turn whose call has begun to pay, as far as the log knows."""
    turn = session.submit("pay", message_id="m")
    turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun", call_id="k")
    turn.tool_started("k")
    return turn


def breaks(session: Any) -> list[tuple[int, int, str]]:
    found = session.state()["chain_breaks"]
    return [(one["first_seq"], one["last_seq"], one["why"]) for one in found]


def kept(daemon: DaemonProcess) -> list[bytes]:
    found = (daemon.data / "quarantine").glob("sessions+*")
    return [path.read_bytes() for path in found if path.suffix != ".note"]


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_damaged_last_line_is_no_torn_end(daemon: DaemonProcess, has_snapshot: bool) -> None:
    session = daemon.reader.session("s")
    pay(session)
    assert [one["may"] for one in session.resume_check()["tools"]] == ["never"]

    def spoil(lines: list[bytes]) -> list[bytes]:
        if not has_snapshot:
            daemon.events_path("s").with_name("snapshot").unlink()
        return flip_last(lines)

    lines = changed(daemon, spoil)
    session = daemon.reader.session("s")
    assert breaks(session) == [(3, 3, "damaged")]
    gate = session.resume_check()
    assert gate["status"] == "blocked"
    assert [one["may"] for one in gate["tools"]] == ["never"]
    assert "session_damaged" in [one["code"] for one in gate["reasons"]]
    assert kept(daemon) == [flipped(lines[-1])], "before anything is written over it"
    found = walld("fsck", str(daemon.data), "--json")
    assert found.returncode == 2, found.stdout
    assert session.append("note", {}).seq == 4, "its seq is not given again"
    assert daemon.reader.audit("s").overall == "needs_manual_review"
    for _ in range(2):
        daemon.restart()  # what was appended is in the log alone
        assert [one["seq"] for one in session.events()] == [1, 2, 4]
        assert breaks(session) == [(3, 3, "damaged")]
    assert daemon.terminate() == 0
    daemon.start()
    assert [one["seq"] for one in session.events()] == [1, 2, 4]
    assert breaks(session) == [(3, 3, "missing")]
    assert [one["may"] for one in session.resume_check()["tools"]] == ["never"]
    assert kept(daemon) == [flipped(lines[-1])]


def test_lines_that_are_gone_from_the_end_are_missed(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    session.message("user", "before")
    turn = session.submit("a question", message_id="m")
    turn.completed()
    changed(daemon, lambda lines: lines[:-2])
    session = daemon.reader.session("s")
    for _ in range(2):
        assert breaks(session) == [(2, 3, "missing")]
    assert session.turn(turn.turn_id).state == "completed", "the snapshot knows"
    with pytest.raises(walld_client.Refused, match=r"entry 2.* was lost.*lost_entry"):
        session.submit("a question", message_id="m")  # it is known, and not begun anew
    assert session.state()["last_seq"] == 3
    assert session.append("note", {}, expected_seq=3).seq == 4
    assert walld("fsck", str(daemon.data)).returncode == 2
    daemon.restart()
    assert breaks(daemon.reader.session("s")) == [(2, 3, "missing")]


def test_a_salvaged_session_that_lost_its_end_says_so_and_gives_its_seqs_to_nothing(
    daemon: DaemonProcess,
) -> None:
    session = daemon.reader.session("s")
    pay(session)
    lines = changed(daemon, flip_last)
    assert daemon.terminate() == 0
    new = daemon.home / "new"
    assert walld("salvage", str(daemon.data), "--to", str(new)).returncode == 1
    daemon.data = new
    for _ in range(2):
        daemon.start()
        session = daemon.reader.session("s")
        assert breaks(session) == [(len(lines) - 1, len(lines) - 1, "missing")]
        assert session.resume_check()["status"] == "blocked"
        assert daemon.terminate() == 0
    daemon.start()
    assert daemon.reader.session("s").append("note", {}).seq == len(lines)
    daemon.restart()
    assert breaks(daemon.reader.session("s")) == [(len(lines) - 1, len(lines) - 1, "missing")]


def test_a_call_whose_start_may_be_lost_is_to_be_settled(daemon: DaemonProcess) -> None:
    """What is pending says what the gate says: nobody decides about a call that may have run."""
    pay(daemon.reader.session("s"))
    changed(daemon, lambda lines: lines[:-1])
    session = daemon.reader.session("s")
    (called,) = [one for one in session.project("pending") if "call_id" in one]
    assert (called["action"], called["state"]) == ("settle_tool", "intended")
    (judged,) = session.resume_check()["tools"]
    assert (judged["state"], judged["may"]) == ("intended", "never")


def test_ten_damaged_lines_at_the_end(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    for number in range(30):
        session.message("user", f"text {number}")
    changed(daemon, lambda lines: [*lines[:-10], *map(flipped, lines[-10:])])
    session = daemon.reader.session("s")
    assert breaks(session) == [(21, 30, "damaged")]
    assert len(session.messages()) == 20
    assert session.message("user", "more").seq == 31


@pytest.mark.parametrize(
    ("stray", "size"),
    [(slice(14, 15), 1), (slice(3, 9), 1), (slice(23, 24), 1), (slice(3, 20), 2000)],
)
def test_what_is_appended_behind_a_copy_of_earlier_lines_is_kept_and_told(
    daemon: DaemonProcess, stray: slice, size: int
) -> None:
    """The file ends with the last line that is given out, whichever stands behind it (J4)."""
    session = daemon.reader.session("s")
    for number in range(23):
        session.message("user", f"{number}" * size)

    def spoil(lines: list[bytes]) -> list[bytes]:
        daemon.events_path("s").with_name("snapshot").unlink(missing_ok=True)
        return [*lines, *lines[stray]]

    changed(daemon, spoil)
    session = daemon.reader.session("s")
    order = [(seq, seq - 1, "order") for seq in range(stray.start, stray.stop)]
    assert breaks(session) == order
    for seq in (24, 25):
        assert session.append("note", {}, synced=True).seq == seq
        assert breaks(session) == order, "beside what is pending, too"
        daemon.restart()
        assert [one["seq"] for one in session.events()] == list(range(1, seq + 1))
        assert breaks(session) == order
        assert session.resume_check()["status"] == "blocked"
    assert daemon.terminate() == 0
    daemon.start()
    assert [one["seq"] for one in session.events()] == list(range(1, 26))
    assert breaks(session) == order
    assert daemon.terminate() == 0
    assert walld("session", "repair", "s", "--data", str(daemon.data)).returncode == 0
    assert walld("fsck", str(daemon.data)).returncode == 0
    daemon.start()
    assert [one["seq"] for one in session.events()] == list(range(1, 26))
    assert breaks(session) == []


def test_a_torn_write_of_lines_that_the_log_has_is_no_damage(daemon: DaemonProcess) -> None:
    """A power cut may leave of them what it likes: also what ends in a newline."""
    session = daemon.reader.session("s")
    session.message("user", "in the file")
    assert daemon.terminate() == 0
    daemon.start()
    session = daemon.reader.session("s")
    for number in range(3):
        session.message("user", f"in the log {number}")
    lines = [json.dumps(one) for one in session.events()]
    daemon.kill()
    path = daemon.events_path("s")
    before = path.read_bytes()
    assert before.count(b"\n") == 2, "the rest is in the log alone"
    for torn in (b"\0" * 600 + b"\n", b'{"seq":2,"id":"x"}\n{"seq":3', b"\n\n", b'{"seq":2,'):
        path.write_bytes(before + torn)
        assert walld("fsck", str(daemon.data)).returncode == 1
        daemon.start()
        session = daemon.reader.session("s")
        assert breaks(session) == []
        assert [json.dumps(one) for one in session.events()] == lines
        daemon.kill()


def test_without_its_events_a_session_is_damaged_and_not_unwritten(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    pay(session)
    assert daemon.terminate() == 0
    daemon.events_path("s").unlink()
    daemon.start()
    client = daemon.reader
    session = client.session("s")
    assert session.messages() == []
    assert breaks(session) == [(1, 3, "missing")]
    assert session.resume_check()["status"] == "blocked"
    assert client.audit().overall == "needs_manual_review"
    assert walld("fsck", str(daemon.data)).returncode == 2
    assert session.append("note", {}).seq > 3
    daemon.restart()
    client = daemon.reader
    assert breaks(client.session("s")) == [(1, 3, "missing")]
    assert client.delete("s")
    assert client.session("s").messages() is None
    assert client.session("s").message("user", "anew").seq == 1


def test_a_damaged_end_is_kept_once(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    for number in range(5):
        session.message("user", f"text {number}")
    lines = changed(daemon, lambda lines: [*lines[:2], flipped(lines[2]), *lines[3:]])
    for _ in range(2):
        session = daemon.reader.session("s")
        assert breaks(session) == [(2, 2, "damaged")]
        assert kept(daemon) == [flipped(lines[2])]
        assert read_line(lines[3]).seq == 3
        daemon.restart()


def test_a_session_whose_header_is_damaged_or_newer_is_listed(daemon: DaemonProcess) -> None:
    client = daemon.reader
    for name in ("fine", "hurt", "later"):
        client.session(name).message("user", "kept")
    changed(daemon, lambda lines: [b"?" + lines[0][1:], *lines[1:]], "hurt")
    changed(daemon, lambda lines: [newer(b"".join(lines), 2)], "later")
    client = daemon.reader
    told = {one.session_id: one.trouble for one in client.sessions()}
    assert list(told) == ["fine", "hurt", "later"]
    assert told["fine"] == ""
    assert "header" in told["hurt"]
    assert "version 2" in told["later"]
    assert [one["content"] for one in client.session("hurt").messages()] == ["kept"]
    found = client.audit(present=[])
    assert found.overall == "needs_manual_review"
    kinds = {one.session_id: one.kind for one in found.findings}
    assert kinds == {"hurt": "chain_broken", "later": "session_unreadable"}
    assert found.sessions == 3
    asked = ("--socket", daemon.socket_path)
    audited = walld("audit", "--all", *asked)
    assert audited.returncode == 2
    (broken,) = [line for line in audited.stdout.splitlines() if "chain_broken" in line]
    assert "why header" in broken, "in words, not in JSON"
    assert "{" not in broken
    gate = walld("resume-check", "hurt", *asked)
    assert gate.stdout.count("file is damaged") == 1, "once, not as a reason and as a break"
    listed = walld("session", "ls", "--json", *asked)
    troubles = {one["session_id"]: one["trouble"] for one in json.loads(listed.stdout)}
    assert troubles == told
    shown = walld("session", "ls", *asked)
    assert {"fine", "hurt", "later"} <= set(shown.stdout.split())
    assert "session hurt: cannot be read as it is" in shown.stderr


def test_a_damaged_version_is_a_damaged_header(daemon: DaemonProcess) -> None:
    """One bit of it made the session one of a later walld, which nothing here may read or mend."""
    session = daemon.reader.session("s")
    session.message("user", "kept")
    changed(daemon, lambda lines: [lines[0].replace(b'"walld":1', b'"walld":9'), *lines[1:]])
    assert breaks(session) == [(1, 0, "header")]
    assert session.message("user", "more").seq == 2
    (listed,) = daemon.reader.sessions()
    assert (listed.session_id, listed.last_seq) == ("s", 2)
    assert "header" in listed.trouble
    assert daemon.terminate() == 0
    assert walld("fsck", str(daemon.data)).returncode == 2
    assert walld("session", "repair", "s", "--data", str(daemon.data)).returncode == 0
    assert walld("fsck", str(daemon.data)).returncode == 0
    daemon.start()
    assert [one["content"] for one in session.messages()] == ["kept", "more"]
    assert breaks(session) == []


def test_a_repair_ends_the_reporting_and_keeps_the_bytes(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    pay(session)
    session.message("user", "behind it")
    at_end = daemon.reader.session("end")
    pay(at_end)
    lines = changed(daemon, lambda lines: [*lines[:2], flipped(lines[2]), *lines[3:]])
    ended = changed(daemon, flip_last, "end")
    repair = ("session", "repair", "s", "--data", str(daemon.data))
    assert "another walld owns this data directory" in walld(*repair).stderr
    assert breaks(daemon.reader.session("s")) == [(2, 2, "damaged")]
    assert daemon.terminate() == 0
    told = walld(*repair, "--json")
    assert told.returncode == 0, told.stderr
    assert [one["first_seq"] for one in json.loads(told.stdout)["breaks"]] == [2]
    assert "nothing to repair" in walld(*repair).stdout
    shown = walld("session", "repair", "end", "--data", str(daemon.data)).stdout
    assert "events 3 to 3 are missing" in shown
    assert walld("session", "repair", "no", "--data", str(daemon.data)).returncode == 3
    assert walld("fsck", str(daemon.data)).returncode == 0
    daemon.start()
    for name, seqs in (("s", [1, 3, 4]), ("end", [1, 2])):
        session = daemon.reader.session(name)
        assert breaks(session) == []
        assert [one["seq"] for one in session.events()] == seqs
        reasons = [one["code"] for one in session.resume_check()["reasons"]]
        assert "session_damaged" not in reasons
    gate = daemon.reader.session("end").resume_check()
    assert [one["may"] for one in gate["tools"]] == ["never"], "it may have started, for ever"
    assert daemon.reader.session("end").append("note", {}).seq == 4
    assert sorted(kept(daemon)) == sorted([flipped(lines[2]), flipped(ended[-1])])


def test_lines_in_the_log_are_no_matter_for_a_repair(daemon: DaemonProcess) -> None:
    daemon.reader.session("s").message("user", "in the log")
    daemon.kill()
    told = walld("session", "repair", "s", "--data", str(daemon.data))
    assert told.returncode == 1
    assert "has lines in the log" in told.stderr


def test_a_path_goes_on_behind_what_is_lost(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    for number in range(9):
        session.message("user", f"text {number}")
    changed(daemon, lambda lines: [*lines[:4], flipped(lines[4]), *lines[5:]])
    session = daemon.reader.session("s")
    events = session.events()
    assert len(events) == 8
    assert session.events(branch=events[-1]["id"]) == events
    assert len(session.messages(branch=events[-1]["id"])) == 8
    asked = ("s", "--socket", daemon.socket_path)
    for verb in ("show", "events", "messages", "tree", "state", "trace"):
        assert "events 4 to 4 are missing" in walld("session", verb, *asked).stderr, verb
    assert session.message("user", "goes on").seq == 10
    assert session.messages()[-1]["content"] == "goes on"


def test_every_read_tells_and_the_log_is_told_once(
    daemon: DaemonProcess, caplog: pytest.LogCaptureFixture
) -> None:
    session = daemon.reader.session("told")
    for number in range(9):
        session.message("user", f"text {number}")
    assert session.messages() is not None
    assert session.breaks == []
    changed(daemon, lambda lines: [*lines[:4], flipped(lines[4]), *lines[5:]], "told")
    with caplog.at_level(logging.WARNING, "walld"):
        for read in (
            lambda one: one.messages(),
            lambda one: one.events(),
            lambda one: one.find("message"),
            *(
                lambda one, view=view: one.project(view)
                for view in ("transcript", "tree", "trace", "eval", "pending", "audit", "resume")
            ),
        ):
            session = daemon.reader.session("told")
            read(session)
            (one,) = session.breaks
            assert (one["first_seq"], one["last_seq"], one["why"]) == (4, 4, "damaged")
    said = [one.message for one in caplog.records if "is damaged" in one.message]
    assert said == ["session 'told' is damaged (damaged): events 4 to 4 are missing"]


def test_a_plan_that_may_lack_a_message_is_told(
    daemon: DaemonProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """The turn that was lost cannot be in it, and somebody might take it for the whole."""
    session = daemon.reader.session("planned")
    for number in range(3):
        session.submit(f"q{number}", message_id=f"m{number}")
    changed(daemon, lambda lines: [*lines[:2], flipped(lines[2]), *lines[3:]], "planned")
    with caplog.at_level(logging.WARNING, "walld"):
        steps = daemon.reader.repair_plan("planned", present=[])
    assert [one.message_id for one in steps] == ["m0", "m2"]
    said = [one.message for one in caplog.records if "is damaged" in one.message]
    assert said == ["session 'planned' is damaged (damaged): events 2 to 2 are missing"]


@pytest.mark.parametrize("state", ["worker_started", "interrupted"])
def test_a_turn_whose_submission_is_lost_is_in_no_plan(daemon: DaemonProcess, state: str) -> None:
    """A later line of it is left: the plan of the others is to be had, and the audit says it."""
    session = daemon.reader.session("planned")
    session.submit("q0", message_id="m0")
    turn = session.submit("q1", message_id="m1")
    turn.worker_started() if state == "worker_started" else turn.interrupted("why")
    session.submit("q2", message_id="m2")
    changed(daemon, lambda lines: [*lines[:2], flipped(lines[2]), *lines[3:]], "planned")
    steps = daemon.reader.repair_plan("planned", present=[])
    assert [one.message["content"] for one in steps] == ["q0", "q2"]
    report = daemon.reader.audit("planned", present=["m0", "m2"])
    told = [(one.turn_id, one.category) for one in report.findings if one.turn_id]
    assert told == [(turn.turn_id, "unsafe_to_repair")]


@pytest.mark.parametrize("whole", [False, True])
def test_a_fork_of_a_damaged_session_says_what_it_lacks(daemon: DaemonProcess, whole: bool) -> None:
    session = daemon.reader.session("s")
    pay(session)
    changed(daemon, flip_last)
    fork = daemon.reader.session("s").fork(None, "fork", whole=whole)
    again = fork.fork(None, "again", whole=whole)
    for one in (fork, again):
        assert one.state()["forked_from"]["missing"] == [[3, 3]]
        assert one.state()["chain_breaks"] == [], "its own file is whole"
        assert [tool["may"] for tool in one.resume_check()["tools"]] == ["never"]
        turn = one.submit("another", message_id=f"m {one.session_id}")
        turn.intent("pay", {}, side_effect="none", resume_policy="never-rerun", call_id="new")
        assert [tool["may"] for tool in one.resume_check()["tools"]] == ["never", "replay"]


def test_an_export_says_that_the_end_is_lost(daemon: DaemonProcess, tmp_path: Path) -> None:
    """An import of it has the gate of the session; also once a repair has cut the end out."""
    session, own = daemon.reader.session("s"), tmp_path / "own.jsonl"
    pay(session)
    changed(daemon, flip_last)
    for copy in ("copy", "of repaired"):
        exported = daemon.cli("session", "export", "s", "--socket", daemon.socket_path).stdout
        own.write_bytes(exported)
        assert exported.splitlines()[0] == b'{"walld": 1, "last_seq": 3}'
        words = ("session", "import", str(own), "--session", copy, "--json")
        done = daemon.cli(*words, "--socket", daemon.socket_path)
        assert done.returncode == 0, done.stderr
        gate = daemon.reader.session(copy).resume_check()
        assert gate is not None
        assert (gate["status"], [tool["may"] for tool in gate["tools"]]) == ("blocked", ["never"])
        assert daemon.terminate() == 0
        walld("session", "repair", "s", "--data", str(daemon.data))
        daemon.start()


def test_a_fork_of_what_is_damaged_says_what_it_lacks(daemon: DaemonProcess) -> None:
    """Its gate is not shut for it: the source's is."""
    session = daemon.reader.session("s")
    for number in range(4):
        session.message("user", str(number))
    changed(daemon, lambda lines: [*lines[:2], flipped(lines[2]), *lines[3:]])
    done = daemon.cli("session", "fork", "s", "fork", "--socket", daemon.socket_path)
    assert (done.returncode, done.stdout) == (0, b"fork: 4 events\n")
    lost = "of session s, or of what that came from: they are lost"
    said = f"walld: fork lacks events 2 to 2 {lost}\n"
    assert done.stderr.decode() == said
    done = daemon.cli("session", "fork", "fork", "again", "--socket", daemon.socket_path)
    assert b"again lacks events 2 to 2" in done.stderr


@pytest.mark.parametrize("left", [0, 1], ids=["nothing", "header"])
def test_a_file_that_lost_all_does_not_begin_anew(daemon: DaemonProcess, left: int) -> None:
    """Nor is that forgotten once something is appended, without a snapshot either."""
    pay(daemon.reader.session("s"))

    def spoil(lines: list[bytes]) -> list[bytes]:
        daemon.events_path("s").with_name("snapshot").unlink()
        return lines[:left]

    changed(daemon, spoil)
    # Of one who was told nothing: who was, knows how many there were (a receipt).
    with closing(walld_client.connect(daemon.socket_path, timeout=30)) as stranger:
        session = stranger.session("s")
        assert session.resume_check()["status"] == "blocked"
        assert session.append("a").seq == 2
        assert (1, 1, "missing") in breaks(session)
        assert session.resume_check()["status"] == "blocked"
        assert daemon.terminate() == 0
        daemon.start()
        session = stranger.session("s")
        assert (1, 1, "missing") in breaks(session)
        assert session.resume_check()["status"] == "blocked"
