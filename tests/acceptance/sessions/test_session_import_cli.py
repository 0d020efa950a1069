"""`walld session import` against a real daemon, and what the gate of the session says then."""

from __future__ import annotations

import argparse
import bz2
import gzip
import importlib
import json
import lzma
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from daemon_process import DaemonProcess, environment
from walld_client.wire import messages as wire

from walld.cli.client import Daemon
from walld.cli.session import import_file
from walld.cli.session_client import SessionClient
from walld.errors import WalldError

HOSTILE = "chat\x1b]0;owned\x07\u202e/../é"
IMPORT_WORDS = frozenset(("begun", "ended"))
SAID = "red \x1b[31m and \u202e back"


def of_import(event: dict[str, Any]) -> bool:
    """It says that an import began, or has ended."""
    return event["type"] == "imported" and not event["payload"].keys().isdisjoint(IMPORT_WORDS)


def test_import_export_and_again(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    lines = [
        {"type": "session", "id": "s", "timestamp": "2025-11-20T23:33:50.805Z", "cwd": "/x"},
        {"type": "message", "message": {"role": "user", "content": SAID}},
        {"type": "message", "message": {"role": "user", "content": "y" * 300_000}},
        {"type": "of another time", "what": SAID},
    ]
    file = tmp_path / "pi.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in lines) + 'no json\xff\n{"torn')
    code, out, _ = cli("session", "import", str(file), "--session", HOSTILE, "--json")
    told = json.loads(out)
    assert (code, told["format"], told["new"], told["not_understood"]) == (
        0,
        "pi",
        told["entries"],
        3,
    )
    code, out, _ = cli("session", "import", str(file), "--session", HOSTILE)
    assert "0 entries from pi" in out
    assert "not understood: 1 lines (torn), kept as foreign.pi" in out
    kept = daemon.reader.session(HOSTILE).find("foreign.pi")
    assert [one["payload"]["line"] for one in kept][-1] == '{"torn'
    messages = daemon.reader.session(HOSTILE).messages()
    assert messages is not None
    assert [one["content"] for one in messages] == [SAID, "y" * 300_000]
    exported = daemon.cli("session", "export", HOSTILE, "--socket", daemon.socket_path).stdout
    said = daemon.cli("session", "export", HOSTILE, "--socket", daemon.socket_path).stderr
    assert b"1 artifacts that these lines name stay here" in said
    own = tmp_path / "own.jsonl"
    own.write_bytes(exported)
    for new in (len(exported.splitlines()) - 1, 0):
        code, out, _ = cli("session", "import", str(own), "--session", "copy", "--json")
        assert (code, json.loads(out)["new"], json.loads(out)["format"]) == (0, new, "walld")

    def plain(session_id: str) -> list[Any]:
        names = ("id", "parent", "type", "payload", "at", "leaf", "key", "turn")
        events = daemon.reader.session(session_id).events()
        return [{name: one.get(name) for name in names} for one in events if not of_import(one)]

    assert plain("copy") == plain(HOSTILE)


CODEX = [
    {"type": "session_meta", "payload": {"id": "s", "cwd": "/w"}},
    {
        "type": "response_item",
        "payload": {"type": "message", "role": "user", "content": "of a packed file"},
    },
    {"type": "dream", "payload": {"type": "deep"}},
    {"type": "dream", "payload": {"type": "deep"}},
    {
        "type": "realtime_item",
        "payload": {"type": "transcript_segment", "role": "user", "text": "spoken"},
    },
]
ROLLOUT = "".join(
    json.dumps({"timestamp": "2026-10-02T09:00:00.000Z", **one}) + "\n" for one in CODEX
).encode()


def zstd_compress() -> Callable[[bytes], bytes]:
    """Of Python itself or the test's package; skips where neither is here."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            compress: Callable[[bytes], bytes] = importlib.import_module(name).compress
            return compress
    version = sys.version.split()[0]
    pytest.skip(f"Python {version} has no zstd, and backports.zstd of the extra zstd is not here")


@pytest.mark.parametrize("packed", ["gzip", "bzip2", "xz", "zstd", None])
@pytest.mark.parametrize("of", ["auto", "codex"])
def test_a_compressed_file_is_read(
    daemon: DaemonProcess,
    cli: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    packed: str | None,
    of: str,
) -> None:
    own = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, None: bytes}
    pack = own.get(packed) or zstd_compress()
    file = tmp_path / "rollout.jsonl.packed"
    file.write_bytes(pack(ROLLOUT))
    words = ("session", "import", str(file), "--session", "s", "--format", of)
    code, out, err = cli(*words)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "s: 5 entries from codex" + (f" ({packed})" if packed else ""),
        "  of types that walld does not know, kept as foreign.codex: dream.deep 2",
        "  spoken, and in no message: 1 entries (codex.realtime_item)",
    ]
    told = [one["content"] for one in daemon.reader.session("s").messages() or ()]
    assert told == ["of a packed file"]
    again = json.loads(cli(*words, "--json")[1])
    assert (again["new"], again["unknown_types"]) == (0, {"dream.deep": 2})


def test_what_was_attached_and_is_in_no_message_is_named(
    cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    place = {"sessionId": "s", "isSidechain": False, "timestamp": "2026-10-02T09:00:00.000Z"}
    attached = ["plan_mode", "plan_mode", "command_permissions", "opened_file_in_ide"]
    lines: list[dict[str, Any]] = [
        {
            "type": "user",
            "uuid": "u",
            "parentUuid": None,
            "message": {"role": "user", "content": "q"},
        }
    ] + [
        {"type": "attachment", "uuid": f"a{n}", "parentUuid": f"a{n - 1}" if n else "u"}
        | {"attachment": {"type": kind, "filename": "/w/a.py"}}
        for n, kind in enumerate(attached)
    ]
    file = tmp_path / "claude.jsonl"
    file.write_text("".join(json.dumps(one | place) + "\n" for one in lines))
    assert cli("session", "import", str(file), "--session", "s")[1].splitlines() == [
        "s: 5 entries from claude",
        "  attached, and in no message: plan_mode 2, command_permissions 1 (claude.attachment)",
    ]


def test_a_file_without_a_session_makes_none(
    cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    packed = gzip.compress(ROLLOUT, mtime=0)
    within = gzip.compress(lzma.compress(ROLLOUT))
    wrong = {
        "zstd": b"\x28\xb5\x2f\xfd\x04\x60\xbd\x19",
        "gzip, and cut or damaged": packed[:-9],
        "xz, and cut or damaged": lzma.compress(ROLLOUT)[:-9],
        "bzip2, and cut or damaged": bz2.compress(ROLLOUT)[:-9],
        "it is compressed with xz": within,
        "a JSON array": json.dumps(CODEX).encode(),
        "text in UTF-16": ROLLOUT.decode().encode("utf-16"),
        "a SQLite database": b"SQLite format 3\0" + bytes(4080),
        "zeros": bytes(4096),
        "there is no line in it": b"",
    }
    file = tmp_path / "what"
    for what, content in wrong.items():
        file.write_bytes(content)
        for of in ("auto", "codex"):
            words = ("session", "import", str(file), "--session", "s", "--format", of)
            code, out, err = cli(*words)
            assert (code, out, len(err.splitlines())) == (65, "", 1), (what, err)
            assert what in err, err
            assert err.startswith(f"walld: {file}: "), err
    file.write_bytes(ROLLOUT)
    code, out, err = cli("session", "import", str(file), "--session", "s", "--format", "pi")
    assert (code, out, "they look like codex" in err) == (65, "", True)
    assert json.loads(cli("session", "ls", "--json")[1]) == []


def test_a_packed_file_through_a_pipe(daemon: DaemonProcess) -> None:
    words = ("session", "import", "/dev/stdin", "--session", "s", "--socket", daemon.socket_path)
    program = [sys.executable, "-m", "walld", *words]
    done = subprocess.run(
        program,
        input=gzip.compress(ROLLOUT),
        env=environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout[:30]) == (0, b"s: 5 entries from codex (gzip)"), done


def test_an_entry_that_hangs_on_nothing_is_named(
    cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    def said(id_: str, parent: str | None) -> str:
        message = {"role": "user", "content": id_}
        one = {"type": "message", "id": id_, "parentId": parent, "message": message}
        return json.dumps(one) + "\n"

    file = tmp_path / "pi.jsonl"
    file.write_text('{"type":"session","version":3}\n' + said("a", "b") + said("b", "a"))
    words = ("session", "import", str(file), "--session", "s")
    code, out, _ = cli(*words)
    assert code == 0
    assert "1 entries whose parent is not above them (a)" in out
    assert json.loads(cli(*words, "--json")[1])["orphans"] == ["a"]


def test_no_line_ends_an_import(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """What no entry can hold, or this session contradicts, is kept as its text and counted."""
    fields = {f"k{number}": "v" * 10 for number in range(20_000)}
    pi = [
        {"type": "session", "version": 3, "id": "s", "cwd": "/x"},
        {"type": "custom", "id": "a", "parentId": None, **fields},
        {
            "type": "message",
            "id": "b",
            "parentId": "a",
            "message": {"role": "user", "content": "on"},
        },
    ]
    file = tmp_path / "pi.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in pi))
    for new in (3, 0):
        code, out, err = cli("session", "import", str(file), "--session", "many", "--json")
        told = json.loads(out)
        assert (code, told["new"], told["reasons"]) == (0, new, {"too_large": 1}), err
    session = daemon.reader.session("many")
    (kept,) = session.find("foreign.pi")
    assert (kept["id"], kept["payload"]["reason"], kept["payload"]["line_number"]) == (
        "a",
        "too_large",
        2,
    )
    whole = session.read_artifact(kept["payload"]["line"]["_artifact"]["sha256"])
    assert json.loads(whole) == pi[1]
    assert [one["content"] for one in session.messages() or ()] == ["on"]

    session.submit("mine", message_id="m")
    own = [
        {"walld": 1, "uid": 0, "session": "x"},
        {"seq": 1, "id": "o1", "type": "turn_submitted", "turn": "t9"}
        | {"payload": {"message_id": "m", "content": "theirs"}},
        {
            "seq": 2,
            "id": "o2",
            "parent": "o1",
            "type": "turn_completed",
            "turn": "t9",
            "payload": {},
        },
        {"seq": 3, "id": "o3", "parent": "o2", "type": "BAD", "payload": {}},
        {"seq": 4, "id": "o4", "parent": "o3", "type": "note", "payload": {"n": 10**400}},
        {
            "seq": 5,
            "id": "o5",
            "parent": "o4",
            "type": "turn_completed",
            "turn": "zz",
            "payload": {},
        },
        {"seq": 6, "id": "o6", "parent": "o5", "type": "undo", "payload": {"n": 0}},
        {"seq": 7, "id": "o7", "parent": "o6", "type": "message", "payload": {"role": "user"}},
    ]
    file.write_text("".join(json.dumps(one) + "\n" for one in own))
    code, out, err = cli("session", "import", str(file), "--session", "many", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["new"], told["not_understood"]) == (7, sum(told["reasons"].values()))
    assert told["reasons"]["message_id_taken"] == told["reasons"]["bad_type"] == 1
    types = [one["type"] for one in session.events(after=6) if not of_import(one)]
    assert types[0] == types[2] == types[4] == types[5] == "foreign.walld"
    assert types[-1] == "message"


def export(daemon: DaemonProcess, to: Path, session_id: str = "source") -> None:
    """As `walld session export` writes it."""
    done = daemon.cli("session", "export", session_id, "--socket", daemon.socket_path)
    to.write_bytes(done.stdout)


def gate_of(daemon: DaemonProcess, session_id: str) -> tuple[str, list[tuple[str, str]]]:
    gate = daemon.reader.session(session_id).resume_check()
    assert gate is not None
    return gate["status"], [(tool["call_id"], tool["may"]) for tool in gate["tools"]]


def test_an_import_owns_no_turn_and_is_repeated_while_the_source_goes_on(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """The command has ended each time, and interrupts nothing."""
    source, own = daemon.reader.session("source"), tmp_path / "own.jsonl"

    def copied() -> list[str]:
        export(daemon, own)
        code, out, err = cli("session", "import", str(own), "--session", "copy", "--json")
        assert (code, json.loads(out)["not_understood"]) == (0, 0), out + err
        events = daemon.reader.session("copy").events()
        return [one["type"] for one in events if not of_import(one)]

    turn = source.submit("pay")
    turn.worker_started()
    turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun", call_id="p")
    assert copied() == ["turn_submitted", "turn_worker_started", "tool_intent"]
    turn.tool_started("p")
    assert copied()[3:] == ["tool_started"]
    assert gate_of(daemon, "copy") == gate_of(daemon, "source") == ("blocked", [("p", "never")])
    turn.tool_finished("p", "paid")
    turn.completed()
    assert copied()[4:] == ["tool_finished", "turn_completed"]
    assert gate_of(daemon, "copy") == ("ok", [])
    assert not any("owner" in one for one in daemon.reader.session("copy").events())


def test_an_import_that_was_killed_keeps_the_gate_shut_until_it_is_repeated(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """What it brought looks like a session whose call never started."""
    source, own = daemon.reader.session("source"), tmp_path / "own.jsonl"
    turn = source.submit("pay")
    turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun", call_id="p")
    for _ in range(12):
        source.append_many([{"type": "note", "payload": {"text": "x" * 100}}] * 500)
    turn.tool_started("p")
    export(daemon, own)
    command = [sys.executable, "-m", "walld", "session", "import", str(own), "--session"]
    for name in (f"copy {n}" for n in range(20)):  # until one was killed in the middle
        whole = [*command, name, "--socket", daemon.socket_path]
        importing, copy = subprocess.Popen(whole, env=environment()), daemon.reader.session(name)
        while not copy.events() and importing.poll() is None:
            pass
        importing.kill()
        if importing.wait() == -signal.SIGKILL and 3 < len(copy.events()) < 6000:
            break
    status, tools = gate_of(daemon, name)
    assert (status, tools) == ("blocked", [("p", "never")])
    code, out, _ = cli("resume-check", name)
    assert code == 1
    assert "an import has not ended: repeat it" in out
    last = source.events()[-1]["id"]
    fork = copy.fork(None, "fork")
    assert gate_of(daemon, fork.session_id) == ("blocked", [("p", "never")])
    assert cli("session", "import", str(own), "--session", name)[0] == 0
    assert gate_of(daemon, name) == gate_of(daemon, "source")
    copy.append("imported", {"begun": last})
    assert "import_unfinished" in cli("resume-check", name)[1]
    copy.append("imported", {"ended": last})
    assert "import_unfinished" not in cli("resume-check", name)[1]


def test_the_gate_of_an_import_knows_what_its_file_lacks(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """A line taken out of an export, whatever it was, lets no call run again that may have run."""
    session, own = daemon.reader.session("source"), tmp_path / "own.jsonl"
    turn = session.submit("pay")
    turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun", call_id="p")
    session.message("user", "secret")
    turn.tool_started("p")
    session.message("user", "after")
    exported = daemon.cli("session", "export", "source", "--socket", daemon.socket_path).stdout
    head, *lines = exported.splitlines(keepends=True)
    for lost in (0, 2, 3, 4):  # the last: cut between two lines
        own.write_bytes(b"".join([head, *lines[:lost], *lines[lost + 1 :]]))
        code, out, err = cli("session", "import", str(own), "--session", f"no {lost}", "--json")
        assert (code, json.loads(out)["missing"]) == (0, [[lost + 1, lost + 1]]), err
        assert gate_of(daemon, f"no {lost}") == ("blocked", [("p", "never")]), lost
        fork = daemon.reader.session(f"no {lost}").fork(None, f"fork {lost}")
        assert gate_of(daemon, fork.session_id) == ("blocked", [("p", "never")]), lost
    code, out, _ = cli("session", "import", str(own), "--session", "said")
    assert "missing in the file: seqs 5 to 5" in out
    told = daemon.reader.session("no 2").messages() or ()
    assert [one["content"] for one in told if "_wal_journal" not in one] == ["pay", "after"]


def test_what_a_session_contradicts_is_told_to_its_gate(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """Somebody ended the turn in the copy; then its call started in the source."""
    session, own = daemon.reader.session("source"), tmp_path / "own.jsonl"
    turn = session.submit("pay")
    turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun", call_id="p")
    words = ("session", "import", str(own), "--session", "copy", "--json")

    export(daemon, own)
    assert cli(*words)[0] == 0
    daemon.reader.session("copy").turn(turn.turn_id).interrupted("operator")
    assert gate_of(daemon, "copy") == ("ok", [("p", "replay")])
    turn.tool_started("p")
    export(daemon, own)
    for doubted in (1, 0):
        told = json.loads(cli(*words)[1])
        assert (told["reasons"], told["doubted"]) == ({"illegal_tool": doubted}, doubted) or (
            doubted == 0
        )
        assert gate_of(daemon, "copy") == ("blocked", [("p", "never")])


def test_what_became_of_a_call_without_its_intent_comes_with_the_next_import(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """The copy has another turn of that message, so the call's turn is text there."""
    source, own = daemon.reader.session("source"), tmp_path / "own.jsonl"
    mine = daemon.reader.session("copy").submit("mine", message_id="m")
    mine.completed()
    turn = source.submit("pay", message_id="m")
    turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun", call_id="p")
    turn.tool_started("p")

    def imported() -> tuple[str, list[tuple[str, str]]]:
        export(daemon, own)
        assert cli("session", "import", str(own), "--session", "copy")[0] == 0
        return gate_of(daemon, "copy")

    assert imported() == ("blocked", [("p", "never")])
    turn.tool_finished("p", "paid")
    assert imported() == ("ok", [])


def own_lines(to: Path, *lines: dict[str, Any]) -> None:
    """A file of walld's own lines, each on the one before."""
    parent, made = None, [json.dumps({"walld": 1, "last_seq": len(lines)})]
    for seq, line in enumerate(lines, 1):
        one = {"seq": seq, "id": f"{to.stem}.{seq}", "parent": parent, "payload": {}} | line
        parent = one["id"]
        made.append(json.dumps(one))
    to.write_text("".join(line + "\n" for line in made))


def test_an_id_that_other_words_have_is_no_entry_of_the_file(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """Applications that count their entries give the same ids: the other's calls are not its."""
    here, own = daemon.reader.session("here"), tmp_path / "own.jsonl"
    turn = here.submit("look", message_id="m")
    turn.intent("ls", {}, side_effect="read", resume_policy="replay-from-event", call_id="p")
    (intent,) = here.find("tool_intent")
    turn.tool_started("p")
    turn.tool_finished("p", "listed")
    turn.completed()
    here.message("user", "mine", id="1")
    call = {"call_id": "p", "tool": "pay"} | {"side_effect": "external-write"}
    lines = [
        {"id": turn.turn_id, "type": "turn_submitted", "turn": turn.turn_id}
        | {"payload": {"message_id": "other", "content": "pay"}},
        {"id": intent["id"], "type": "tool_intent", "turn": turn.turn_id}
        | {"payload": call | {"resume_policy": "never-rerun"}},
        {"type": "tool_started", "turn": turn.turn_id, "payload": {"call_id": "p"}},
        {"id": "1", "type": "message", "payload": {"role": "user", "content": "theirs"}},
        {"type": "message", "payload": {"role": "assistant", "content": "to theirs"}},
    ]
    own_lines(own, *lines)
    words = ("session", "import", str(own), "--session", "here", "--json")
    reasons = {"duplicate_id": 3, "unknown_turn": 1}
    for new in (5, 0):
        code, out, err = cli(*words)
        told = json.loads(out)
        assert (code, told["new"], told["reasons"]) == (0, new, reasons), err
        assert gate_of(daemon, "here") == ("blocked", [("p", "never")])
    kept = [json.loads(one["payload"]["line"]) for one in here.find("foreign.walld")]
    assert [one["id"] for one in kept] == [turn.turn_id, intent["id"], f"{own.stem}.3", "1"]
    said = [one["content"] for one in here.messages() or () if "_wal_journal" not in one]
    assert said == ["look", "mine", "to theirs"]
    finished = {"type": "tool_finished", "turn": turn.turn_id, "payload": {"call_id": "p"}}
    own_lines(own, *lines, finished)
    assert (cli(*words)[0], gate_of(daemon, "here")) == (0, ("ok", []))


def test_a_message_that_another_turn_submitted_is_text(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """Sent again in another session: what hangs on the first turn of it is not ended by that."""
    source, own = daemon.reader.session("source"), tmp_path / "own.jsonl"
    here = daemon.reader.session("here")
    here.submit("pay", message_id="m").completed()
    turn = source.submit("pay", message_id="m")
    turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun", call_id="p")
    turn.tool_started("p")
    source.message("user", "after")
    export(daemon, own)
    code, out, err = cli("session", "import", str(own), "--session", "here", "--json")
    told = json.loads(out)
    assert (code, told["reasons"]) == (0, {"message_id_taken": 1, "unknown_turn": 2}), err
    assert gate_of(daemon, "here") == ("blocked", [("p", "never")])
    assert [one["content"] for one in here.messages() or ()] == ["pay", "after"]


def test_an_import_that_was_killed_is_ended_by_one_of_the_file_as_it_has_grown(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """Its last line was torn then: nothing of the file has that line's name any more."""
    own = tmp_path / "own.jsonl"
    lines = [{"type": "note", "payload": {"n": n}} for n in range(3)]
    own_lines(own, *lines)
    whole = own.read_text()
    own.write_text(whole[:-20])
    assert cli("session", "import", str(own), "--session", "here")[0] == 0
    here = daemon.reader.session("here")
    begun = [one for one in here.find("imported") if "begun" in one["payload"]]
    here.append("imported", {"begun": begun[0]["payload"]["begun"]})
    assert "import_unfinished" in cli("resume-check", "here")[1]
    own.write_text(whole)
    assert cli("session", "import", str(own), "--session", "here")[0] == 0
    assert "import_unfinished" not in cli("resume-check", "here")[1]


class _Deletes(SessionClient):
    """Somebody deletes the session behind the second request that appends to it."""

    appended = 0

    def ask(self, make: Callable[[int], Any], *given: Any, **named: Any) -> bytes:
        answer = super().ask(make, *given, **named)
        self.appended += isinstance(made := make(0), wire.Append)
        if isinstance(made, wire.Append) and self.appended == 2:
            super().ask(lambda number: wire.Delete(number, made.session_id))
        return answer


def test_a_session_that_is_deleted_within_an_import_is_not_taken_for_imported(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """Lines that hang on nothing by name would be a session of their own behind the delete."""
    file, texts = tmp_path / "conversation.jsonl", [f"line {number}" for number in range(900)]
    file.write_text("".join(json.dumps({"role": "user", "content": one}) + "\n" for one in texts))
    options = argparse.Namespace(
        file=str(file), format="gptme", session="copy", json=False, follow=False
    )
    with (
        Daemon(daemon.socket_path, 10) as asked,
        pytest.raises(WalldError, match=r"copy was deleted while \S+ was imported"),
    ):
        import_file.run(_Deletes(asked, None), options)
    copy = daemon.reader.session("copy")
    reasons = [reason["code"] for reason in copy.resume_check()["reasons"]]
    assert reasons == ["import_unfinished"]
    daemon.reader.delete("copy")
    assert cli("session", "import", str(file), "--format", "gptme", "--session", "copy")[0] == 0
    assert [message["content"] for message in copy.messages()] == texts
    assert copy.resume_check()["status"] == "ok"


def test_a_line_without_an_end_ends_the_import(daemon: DaemonProcess) -> None:
    words = ("session", "import", "/dev/zero", "--session", "s", "--socket", daemon.socket_path)
    done = daemon.cli(*words)
    assert done.returncode == 1
    assert b"/dev/zero, line 1: more than 67108864 bytes" in done.stderr
    assert daemon.reader.session("s").messages() is None


def test_a_compaction_from_a_lost_entry_on_still_stands(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """As in the session that lost it, and in a fork of that."""
    session, own = daemon.reader.session("source"), tmp_path / "own.jsonl"
    ids = [session.message("user", f"m{number}").id for number in range(6)]
    session.compact("SUMMARY", ids[3])
    session.message("user", "m6")
    exported = daemon.cli("session", "export", "source", "--socket", daemon.socket_path).stdout
    lines = exported.splitlines(keepends=True)
    own.write_bytes(b"".join(line for line in lines if b'"m3"' not in line))
    assert cli("session", "import", str(own), "--session", "copy")[0] == 0
    said = [one["content"] for one in daemon.reader.session("copy").messages() or ()]
    assert said == ["SUMMARY", "m6"]
    assert cli("session", "import", str(own), "--session", "copy")[0] == 0
    assert [one["content"] for one in daemon.reader.session("copy").messages() or ()] == said


def _halves(folder: Path, packed: bool = False) -> str:
    """A Codex file that goes on from another one beside it."""

    def rollout(thread: str, first: int, said: str, **more: Any) -> Path:
        spoken = {"type": "message", "role": "user", "content": said}
        lines = [("session_meta", {"id": thread} | more), ("response_item", spoken)]
        file = folder / f"rollout-{thread}.jsonl"
        text = "".join(
            json.dumps({"ordinal": first + place, "type": kind, "payload": payload}) + "\n"
            for place, (kind, payload) in enumerate(lines)
        ).encode()
        file.write_bytes(gzip.compress(text) if packed and first else text)
        return file

    rollout("aa", 0, "the first half")
    base = {"thread_id": "aa", "end_ordinal_exclusive": 2, "end_byte_offset": 99}
    return str(rollout("bb", 2, "the second half", history_base=base))


def test_a_part_that_is_in_another_file_is_missing_or_followed(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = _halves(tmp_path)
    told = json.loads(cli("session", "import", file, "--session", "half", "--json")[1])
    assert told["missing"] == [{"ordinals": [0, 1], "thread": "aa", "bytes": 99}]
    out = cli("session", "import", file, "--session", "half")[1]
    assert "missing in the file: lines 0 to 1, in the file of thread aa; --follow takes" in out
    whole = ("session", "import", file, "--session", "whole", "--follow")
    assert json.loads(cli(*whole, "--json")[1])["missing"] == []
    assert "missing" not in cli(*whole)[1]
    said = [one["content"] for one in daemon.reader.session("whole").messages() or ()]
    assert said == ["the first half", "the second half"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("first", [[], ["--follow"]])
def test_a_file_is_not_imported_both_with_what_is_beside_it_and_without(
    daemon: DaemonProcess,
    cli: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    first: list[str],
    packed: bool,
) -> None:
    """The first half would stand behind the second, or the second twice."""
    words = ("session", "import", _halves(tmp_path, packed), "--session", "s")
    assert cli(*words, *first)[0] == 0
    before = daemon.reader.session("s").messages()
    other = [] if first else ["--follow"]
    code, out, err = cli(*words, *other)
    assert (code, out) == (1, "")
    assert f"session s has {words[2]} by an import {'with' if first else 'without'} --follow" in err
    assert daemon.reader.session("s").messages() == before
    assert "0 entries" in cli(*words, *first)[1]
    assert cli(*words[:-1], "other", *other)[0] == 0


def test_a_file_without_parents_says_that_its_order_was_taken(
    cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    lines = [{"type": "session", "version": 3, "id": "s"}] + [
        {"type": "message", "id": name, "message": {"role": "user", "content": name}}
        for name in ("a", "b")
    ]
    file = tmp_path / "pi.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    told = json.loads(cli("session", "import", str(file), "--session", "s", "--json")[1])
    assert told["notes"] == ["no_parents"]
    assert "its lines name no parents" in cli("session", "import", str(file), "--session", "s")[1]
