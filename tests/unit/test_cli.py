"""The command line: exit codes, offline reading of real files, a scripted daemon for the rest."""

import json
import os
import socket
import subprocess
import sys
import threading

import msgspec
import pytest
from walld_client.wire import framing
from walld_client.wire import messages as wire

import walld
from walld.cli import main
from walld.cli.demo import recording
from walld.cli.offline import find
from walld.daemon import peers
from walld.disk.real import RealDisk
from walld.partials.store import PartialFacts, PartialStore
from walld.replies.merge import seqs_of
from walld.wal.encode import BatchBuilder
from walld.wal.files import SegmentFiles
from walld.wal.layout import Flag
from walld.wal.records import (
    Begin,
    Happened,
    Owner,
    Text,
    Thought,
    encode_item,
    join_items,
    pack_body,
)

LOG = b"L" * 16
GONE = Owner("another boot", 1, 0, 0)
EVIL = "a\x1b[2J\u202eb"


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No settings of the machine the tests run on, and no daemon of it either."""
    for name in [name for name in os.environ if name.startswith("WALLD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


# --- a data directory ---------------------------------------------------------------------------


def begin(stream_id="s1", session_id="chat", uid=1000, owner=GONE, at_ms=1_700_000_000_000):
    return Begin(uid, b"p" * 16, 1, stream_id, session_id, None, None, None, at_ms, owner)


def text(first_seq, *tokens, kind=3):
    joined = "".join(tokens).encode("utf-8", "surrogatepass")
    lengths = bytes(len(token.encode("utf-8", "surrogatepass")) for token in tokens)
    return {3: Text, 4: Thought}[kind](first_seq, 500, lengths, joined)


def ended(seq):
    return Happened(900, wire.End(1, seq, True, "stop"))


def record(stream_no, first_seq, last_seq, items, flags=0):
    body = pack_body(stream_no, join_items([encode_item(item) for item in items]))
    return stream_no, first_seq, last_seq, flags, body


class Directory:
    """Writes segments and partials as the daemon does."""

    def __init__(self, path):
        self.path = str(path)
        self.disk = RealDisk(self.path)
        self.disk.make_dir("wal")
        self.disk.make_dir("partials")
        self.files = SegmentFiles(self.disk, LOG)
        self.batch_no = 0
        self.segment_id = 0
        self.offset = 0

    def segment(self):
        self.segment_id += 1
        self.files.create(self.segment_id, self.batch_no, 1, again=False)
        self.offset = 64

    def batch(self, *records):
        builder = BatchBuilder()
        for one in records:
            builder.add(*one)
        self.batch_no += 1
        sealed = builder.seal(self.batch_no)
        self.files.write(self.segment_id, sealed, max(self.batch_no - 1, 0), self.offset)
        self.offset += len(sealed)

    def partial(self, stream_no, items, stream_id="s1", session_id="chat", uid=1000, log=LOG):
        last_seq = seqs_of(items[-1])[1]
        facts = PartialFacts(
            log, stream_no, 1_700_000_000_000, 1_700_000_001_000, 0, last_seq, "agent_lost"
        )
        body = join_items([encode_item(item) for item in items])
        PartialStore(self.disk).write(uid, session_id, stream_id, facts, body)

    def segment_path(self, number=1):
        return os.path.join(self.path, SegmentFiles.path(number))

    def close(self):
        self.files.close()
        self.disk.close()


@pytest.fixture
def directory(tmp_path):
    made = Directory(tmp_path / "data")
    made.segment()
    yield made
    made.close()


def test_offline_recovers_what_segments_and_partials_hold(directory, capsys):
    directory.batch(record(1, 0, 2, [begin(), text(1, "Hel", "lo ")], Flag.BEGIN))
    directory.batch(record(1, 3, 3, [text(3, "wor")]))
    assert main(["recover", "chat", "--data", directory.path, "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["text"], reply["status"], reply["last_seq"]) == ("Hello wor", "crashed", 3)
    assert (reply["lost_reason"], reply["owner_alive"]) == ("host_restart", False)
    assert reply["messages"][0]["content"] == "Hello wor"
    assert reply["messages"][0]["_wal_recovered"] is True
    assert main(["recover", "chat", "--data", directory.path, "--text"]) == 0
    assert capsys.readouterr().out == "Hello wor\n"
    assert main(["recover", "--stream", "s1", "--data", directory.path]) == 0
    assert "crashed (host_restart) owner gone" in capsys.readouterr().out


def test_a_partial_and_later_records_are_one_reply(directory, capsys):
    directory.partial(1, [begin(), text(1, "a", "b")])
    directory.batch(record(1, 2, 4, [text(2, "b", "c", "d")]))
    (reply,) = find(directory.path).replies
    assert (reply.last_seq, reply.events, reply.gaps) == (4, 4, [])
    assert b"".join(part.text for part in reply.segments) == b"abcd"
    directory.batch(record(1, 4, 4, [], Flag.RESOLVED))
    assert find(directory.path).replies == []


def test_released_is_gone_and_nothing_is_proven(directory, capsys):
    directory.batch(record(1, 0, 1, [begin(), text(1, "x")], Flag.BEGIN))
    directory.batch(record(1, 2, 3, [ended(2)], Flag.TERMINAL | Flag.RELEASED))
    assert main(["recover", "chat", "--data", directory.path]) == 3
    assert main(["recover", "chat", "--data", directory.path, "--json"]) == 3
    assert capsys.readouterr().out == "null\n"
    assert main(["ls", "--data", directory.path]) == 0


def test_a_partial_of_another_log_keeps_to_itself(directory):
    directory.batch(record(1, 0, 1, [begin("other"), text(1, "x")], Flag.BEGIN))
    directory.partial(1, [begin(), text(1, "a")], log=b"M" * 16)
    assert sorted(reply.stream_id for reply in find(directory.path).replies) == ["other", "s1"]


def test_a_carried_record_is_no_second_copy(directory):
    directory.batch(record(1, 0, 2, [begin(), text(1, "a", "b")], Flag.BEGIN))
    directory.batch(record(1, 3, 3, [text(3, "c")]))
    carried = record(1, 0, 3, [begin(), text(1, "a", "b", "c")], Flag.BEGIN | Flag.CARRIED)
    directory.batch(carried)
    (reply,) = find(directory.path).replies
    assert (reply.events, reply.segments[0].text) == (3, b"abc")


def test_damage_is_a_doubt_and_never_nothing(directory, capsys):
    directory.batch(record(1, 0, 1, [begin(), text(1, "x")], Flag.BEGIN))
    directory.batch(record(2, 0, 1, [begin("s2", "chat2"), text(1, "y")], Flag.BEGIN))
    directory.batch(record(2, 2, 2, [text(2, "z")]))
    with open(directory.segment_path(), "r+b") as file:
        file.seek(64 + 60)
        file.write(b"\xff\xff\xff")
    assert main(["recover", "chat", "--data", directory.path]) == 1
    assert "corrupt" in capsys.readouterr().err
    assert main(["recover", "chat2", "--data", directory.path, "--text"]) == 0
    assert main(["ls", "--data", directory.path]) == 1
    assert main(["dump", "--data", directory.path]) == 1
    assert "hole offset=64" in capsys.readouterr().out


def test_a_damaged_partial_is_a_doubt(directory, capsys):
    directory.partial(1, [begin(), text(1, "x")])
    path = os.path.join(directory.path, "partials/1000/chat/s1")
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    assert main(["recover", "chat", "--data", directory.path]) == 1
    assert main(["dump", "--data", directory.path]) == 1
    assert "damaged" in capsys.readouterr().out


def test_a_torn_tail_is_no_doubt(directory):
    directory.batch(record(1, 0, 1, [begin(), text(1, "x")], Flag.BEGIN))
    directory.batch(record(1, 2, 2, [text(2, "y" * 100)]))
    with open(directory.segment_path(), "r+b") as file:
        file.truncate(directory.offset - 20)
    found = find(directory.path)
    assert found.doubts == []
    assert [reply.last_seq for reply in found.replies] == [1]


def test_reading_writes_nothing_and_gives_the_same_twice(directory, capsys):
    directory.batch(record(1, 0, 1, [begin(), text(1, "x")], Flag.BEGIN))
    directory.partial(7, [begin("s7"), text(1, "x")], "s7")

    def everything():
        return sorted(
            (folder, name, os.stat(os.path.join(folder, name)).st_mtime_ns)
            for folder, _, names in os.walk(directory.path)
            for name in [*names, "."]
        )

    before = everything()
    outputs = set()
    for _ in range(2):
        assert main(["ls", "--data", directory.path, "--json"]) == 0
        assert main(["recover", "chat", "--data", directory.path, "--json"]) == 0
        assert main(["dump", "--data", directory.path, "--items", "--json"]) == 0
        outputs.add(capsys.readouterr().out)
    assert len(outputs) == 1
    assert everything() == before


def test_owner_that_lives_is_seen(directory):
    pid = os.getpid()
    pidfd = os.pidfd_open(pid)
    try:
        me = peers.describe(pid, pidfd, peers.boot_id())
    finally:
        os.close(pidfd)
    directory.batch(record(1, 0, 1, [begin(owner=me), text(1, "x")], Flag.BEGIN))
    (reply,) = find(directory.path).replies
    assert (reply.status, reply.owner_alive, reply.lost_reason) == ("live", True, None)


def test_two_users_with_one_session(directory, capsys):
    directory.batch(record(1, 0, 1, [begin(uid=1), text(1, "mine")], Flag.BEGIN))
    directory.batch(record(2, 0, 1, [begin("s2", uid=2), text(1, "yours")], Flag.BEGIN))
    assert main(["recover", "chat", "--data", directory.path]) == 1
    assert "--uid" in capsys.readouterr().err
    arguments = ["recover", "chat", "--data", directory.path, "--uid", "2", "--text"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "yours\n"
    assert main(["ls", "--data", directory.path, "--uid", "1", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["uid"], listed["stream_id"]) == (1, "s1")
    assert "text" not in listed


def test_nothing_a_stranger_wrote_acts_on_the_terminal(directory, capsys):
    directory.batch(record(1, 0, 1, [begin(EVIL, EVIL), text(1, EVIL, "\ud83d")], Flag.BEGIN))
    directory.partial(7, [begin("s7", EVIL), text(1, EVIL)], "s7", EVIL)
    for arguments in (
        ["ls"],
        ["ls", "--json"],
        ["recover", EVIL],
        ["recover", EVIL, "--json"],
        ["recover", EVIL, "--text"],
        ["dump", "--items"],
        ["dump", "--items", "--json"],
    ):
        assert main([*arguments, "--data", directory.path]) == 0
        output = capsys.readouterr().out
        assert not set(output) & {"\x1b", "\u202e", "\ud83d"}, arguments
        assert "[2J" in output


def test_dump_shows_every_layer(directory, capsys):
    directory.batch(
        record(1, 0, 2, [begin(), text(1, "Hel", "lo")], Flag.BEGIN),
        record(2, 0, 0, [begin("s2")], Flag.BEGIN),
    )
    directory.batch(record(1, 3, 3, [ended(3)], Flag.TERMINAL))
    directory.partial(9, [begin("s9"), text(1, "kept")], "s9")
    assert main(["dump", "--data", directory.path, "--items"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith("directory ")
    assert lines[1].startswith("segment wal/00000000000000000001.wal size=")
    assert lines[2] == f"header log={LOG.hex()} epoch=1 prev_batch_no=0"
    assert [line.split()[0] for line in lines[3:]] == [
        *("batch", "record", "begin", "text", "record", "begin", "batch", "record", "end"),
        *("partial", "begin", "text"),
    ]
    assert "stream_no=1 seqs=0..2" in lines[4]
    assert "flags=begin" in lines[4]
    assert lines[6].endswith("text=Hello")
    assert main(["dump", "--items", "--json", directory.segment_path()]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["what"] for row in rows][:3] == ["segment", "header", "batch"]


def test_dump_says_which_body_does_not_verify(directory, capsys):
    """Its batch is whole: walld itself wrote it under another number."""
    one = record(1, 0, 1, [begin(), text(1, "x")], Flag.BEGIN)
    directory.batch((2, *one[1:]), record(3, 0, 0, [begin("s3")], Flag.BEGIN))
    assert main(["dump", "--data", directory.path, "--items"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    kinds = ["batch", "record", "damaged", "begin", "text", "record", "begin"]
    assert [line.split()[0] for line in lines[3:]] == kinds
    assert "does not verify" in lines[5]


def test_dump_of_a_directory_that_is_not_there(tmp_path, capsys):
    assert main(["dump", "--data", str(tmp_path / "none")]) == 1
    assert main(["recover", "chat", "--data", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err


# --- a daemon, as far as the wire goes ------------------------------------------------------------


class Scripted:
    """Answers Welcome, then each request with what the test says; counts on no clock."""

    def __init__(self, path, answers):
        self.path = str(path)
        self.asked = []
        self._answers = list(answers)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        peer, _ = self._listening.accept()
        with peer:
            buffer = b""
            decode = msgspec.msgpack.Decoder(wire.FromQuery).decode
            while data := peer.recv(65536):
                frames, buffer = framing.split(buffer + data)
                for frame in frames:
                    message = decode(frame)
                    self.asked.append(message)
                    if isinstance(message, wire.Hello):
                        reply = framing.encode(wire.Welcome(1, "0.1.0", LOG, 1 << 20, 1 << 19))
                    else:
                        reply = self._answers.pop(0)
                        if reply is None:
                            return
                    peer.sendall(reply)

    def close(self):
        self._thread.join(10)
        self._listening.close()


@pytest.fixture
def scripted(tmp_path):
    made = []

    def make(*answers):
        made.append(Scripted(tmp_path / "walld.sock", answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


def answer(number, value):
    packed = msgspec.msgpack.encode(value)
    half = len(packed) // 2
    return framing.encode(wire.Answer(number, packed[:half], False)) + framing.encode(
        wire.Answer(number, packed[half:])
    )


def test_status_in_three_forms(scripted, capsys, tmp_path):
    status = {"state": "ready", "wal": {"segments": 3}, "slow": False, "evil": EVIL, "none": []}
    socket_path = str(tmp_path / "walld.sock")
    scripted(answer(1, status))
    assert main(["status", "--socket", socket_path]) == 0
    output = capsys.readouterr().out
    assert "wal.segments  3" in output
    assert "\x1b" not in output


def test_status_as_json(scripted, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("WALLD_SOCKET", str(tmp_path / "walld.sock"))
    scripted(answer(1, {"state": "disk_full"}))
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"state": "disk_full"}


def test_status_as_metrics(scripted, capsys, tmp_path):
    daemon = scripted(answer(1, "# HELP a b\na 1\n"))
    assert main(["status", "--prometheus", "--socket", daemon.path]) == 0
    assert capsys.readouterr().out == "# HELP a b\na 1\n"


def test_recover_asks_prints_and_resolves(scripted, capsys, directory):
    directory.batch(record(1, 0, 1, [begin(), text(1, "Hi")], Flag.BEGIN))
    (recovered,) = find(directory.path).replies
    daemon = scripted(answer(1, [recovered]), answer(2, True))
    arguments = ["recover", "chat", "--text", "--resolve", "--uid", "7", "--socket", daemon.path]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "Hi\n"
    _, recover, resolve = daemon.asked
    assert recover == wire.Recover(1, "latest", "chat", None, [], 7)
    assert resolve == wire.Resolve(2, "s1", 1, 7)


def test_recover_exit_codes(scripted, capsys):
    daemon = scripted(answer(1, []))
    assert main(["recover", "chat", "--socket", daemon.path]) == 3
    assert "nothing to recover" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (framing.encode(wire.Error("recovering", "segment 3 of 9", id=1)), "still reading its log"),
        (framing.encode(wire.Error("not_allowed", "only root", "7", "0", 1)), "got 7, limit 0"),
        (b"\xff\xff\xff\xff", "not a walld daemon"),
        (b"\x00\x00\x00\x01\xc1", "not an answer this walld understands"),
        (None, "hung up"),
    ],
)
def test_recover_that_cannot_know_is_one(scripted, capsys, reply, said):
    daemon = scripted(reply)
    assert main(["recover", "chat", "--socket", daemon.path]) == 1
    assert said in capsys.readouterr().err


def test_a_daemon_that_says_nothing_is_given_up(tmp_path, capsys):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "mute"))
        listening.listen()
        arguments = ["status", "--socket", str(tmp_path / "mute"), "--timeout", "0.05"]
        assert main(arguments) == 1
    assert "no answer within 0.05 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (answer(1, True), 0, "removed s1"),
        (answer(1, False), 0, "nothing to remove"),
        (framing.encode(wire.Error("refused", "it has grown", "12", "8", 1)), 1, "got 12, limit 8"),
    ],
)
def test_resolve_exit_codes(scripted, capsys, reply, code, said):
    daemon = scripted(reply)
    arguments = ["resolve", "s1", "--last-seq", "8", "--socket", daemon.path]
    assert main(arguments) == code
    assert said in "".join(capsys.readouterr())
    assert daemon.asked[1] == wire.Resolve(1, "s1", 8, None)


def test_no_daemon_anywhere_names_every_place(capsys, tmp_path):
    assert main(["ls"]) == 1
    said = capsys.readouterr().err
    assert str(tmp_path / "run/walld/walld.sock") in said
    assert f"walld-{os.geteuid()}" in said


def test_a_folder_of_somebody_else_is_not_used(tmp_path, capsys):
    folder = tmp_path / f"walld-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "walld.sock"))
        listening.listen()
        assert main(["status", "--timeout", "0.05"]) == 1
        assert "not yours alone" in capsys.readouterr().err


# --- grammar ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nope"],
        ["recover"],
        ["recover", "a", "--json", "--text"],
        ["recover", "a", "--data", "/d", "--resolve"],
        ["recover", "a", "--data", "/d", "--socket", "/s"],
        ["recover", "a" * 1025],
        ["recover", "\udcff"],
        ["resolve"],
        ["resolve", "a", "--last-seq", "-1"],
        ["resolve", "a", "--last-seq", "x"],
        ["ls", "--timeout", "0"],
        ["ls", "--uid", "-5"],
        ["status", "--json", "--prometheus"],
        ["status", "--js"],
        ["config", "--flush-bound-ms", "3001"],
        ["serve", "--metrics", "yes"],
        ["serve", "--config", "/nowhere.toml"],
    ],
)
def test_wrong_usage_is_64(arguments, capsys):
    assert main(arguments) == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err


def test_help_and_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"walld {walld.__version__}\n"
    assert main(["serve", "--help"]) == 0
    assert "--flush-linger-ms" in capsys.readouterr().out


def test_config_prints_value_origin_and_limits(capsys, tmp_path):
    file = tmp_path / "walld.toml"
    file.write_text("reclaim_seconds = 5")
    assert main(["config", "--config", str(file), "--flush-linger-ms", "100"]) == 0
    rows = {
        line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line
    }
    assert rows["flush_linger_ms"] == ["100", "--flush-linger-ms"]
    assert rows["reclaim_seconds"] == ["5", str(file)]
    assert rows["retention_seconds"] == ["604800", "default"]
    assert rows["segment_bytes_max"] == ["16", "MiB"]
    assert main(["config", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["settings"]["metrics"] == {"value": "off", "origin": "default"}
    assert shown["limits"]["FLUSH_BOUND_MS_MAX"] == 3000


def run_apart(*arguments, **kwargs):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **kwargs,
    )


def test_reading_commands_start_without_what_serve_needs():
    script = (
        "import sys; from walld.cli import main; main(['status', '--socket', '/nowhere']);"
        "heavy = {'anyio', 'asyncio', 'uvloop', 'trio', 'prometheus_client'};"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = run_apart("-c", script)
    assert done.stdout.strip() == ""
    assert "no daemon answers (/nowhere" in done.stderr


def test_python_without_asserts_is_refused():
    done = run_apart("-O", "-m", "walld", "--version")
    assert done.returncode == 1
    assert "python -O" in done.stderr


@pytest.mark.parametrize("command", ["recover chat --resolve", "status", "fsck .", "config"])
def test_with_standard_output_closed_nothing_is_done(command):
    """`walld recover --resolve >&-` would remove what nobody has seen."""
    closed = (
        "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    done = run_apart("-c", closed, "-m", "walld", *command.split())
    assert done.returncode == 1
    assert done.stderr == "walld: standard output is closed: nothing can be printed; not run\n"


@pytest.mark.parametrize("command", [["fsck"], ["salvage", "--to", "new"]])
def test_what_cannot_be_looked_at_is_not_called_torn(command, tmp_path, capsys):
    missing = str(tmp_path / "missing")
    command = [str(tmp_path / word) if word == "new" else word for word in command]
    assert main([*command, missing]) == 66
    assert "missing" in capsys.readouterr().err
    assert not (tmp_path / "new").exists(), "and nothing is begun"


def test_a_reader_that_leaves_is_no_traceback(directory):
    for number in range(1, 400):
        directory.batch(record(number, 0, 0, [begin(f"s{number}")], Flag.BEGIN))
    with subprocess.Popen(
        [sys.executable, "-m", "walld", "dump", "--items", "--data", directory.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as dump:
        dump.stdout.readline()
        dump.stdout.close()
        assert dump.stderr.read() == b""
        assert dump.wait(30) == 1


# --- the demo's recording -------------------------------------------------------------------------


def test_recording_is_long_and_whole():
    made = recording.load()
    assert len(made) > 400
    assert [call.verb for call in made[-2:]] == ["finish", "end"]
    assert {call.verb for call in made} >= {"reasoning", "token", "tool", "tool_arguments"}
    assert json.loads(recording.text_of(made, "tool_arguments"))["path"]
    assert recording.text_of(made, "token").endswith("belong.")
