"""The command line: exit codes, what it asks of a daemon, what it takes. The daemon is scripted."""

import json
import os
import socket
import subprocess
import sys
import threading

import msgspec
import pytest
from damaged_directory import DamagedDirectory, begin, row, text
from walld_client.wire import framing
from walld_client.wire import messages as wire

import walld
from walld.cli import main
from walld.cli.demo import recording
from walld.cli.inspect.offline import find
from walld.wal.layout import Flag


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No settings of the machine the tests run on, and no daemon of it either."""
    for name in [name for name in os.environ if name.startswith("WALLD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


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
                        reply = framing.encode(
                            wire.Welcome(1, "0.1.0", b"L" * 16, 1 << 20, 1 << 19)
                        )
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
    status = {
        "state": "ready",
        "wal": {"segments": 3},
        "slow": False,
        "evil": "a\x1b[2J\u202eb",
        "none": [],
    }
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


def test_recover_asks_prints_and_resolves(scripted, capsys, tmp_path):
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "Hi"), flags=Flag.BEGIN))
    made.close()
    (recovered,) = find(str(made.path)).replies
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
        ["session", "repair", "s", "--data", "d", "--uid", "4294967295"],
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


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("recover chat --resolve", 1),
        ("status", 1),
        ("config", 1),
        ("fsck .", 66),
        ("salvage . --to new", 66),
        ("audit chat", 66),
    ],
)
def test_with_standard_output_closed_nothing_is_done(command, code):
    """`walld recover --resolve >&-` would remove what nobody has seen; 1 of `fsck` is "torn"."""
    closed = (
        "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    done = run_apart("-c", closed, "-m", "walld", *command.split())
    assert done.returncode == code
    assert done.stderr == "walld: standard output is closed: nothing can be printed; not run\n"


@pytest.mark.parametrize(("command", "code"), [("fsck", 66), ("config", 1)])
def test_a_reader_that_went_away_is_no_answer(tmp_path, command, code):
    """`walld fsck DIR --json | head -c 1`, under pipefail: 1 is "torn" there."""
    DamagedDirectory(tmp_path / "data").close()
    command = [command, str(tmp_path / "data")] if command == "fsck" else [command]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "walld", *command],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (code, b"")


@pytest.mark.parametrize("command", [["fsck"], ["salvage", "--to", "new"]])
def test_what_cannot_be_looked_at_is_not_called_torn(command, tmp_path, capsys):
    missing = str(tmp_path / "missing")
    command = [str(tmp_path / word) if word == "new" else word for word in command]
    assert main([*command, missing]) == 66
    assert "missing" in capsys.readouterr().err
    assert not (tmp_path / "new").exists(), "and nothing is begun"


# --- the demo's recording -------------------------------------------------------------------------


def test_recording_is_long_and_whole():
    made = recording.load()
    assert len(made) > 400
    assert [call.verb for call in made[-2:]] == ["finish", "end"]
    assert {call.verb for call in made} >= {"reasoning", "token", "tool", "tool_arguments"}
    assert json.loads(recording.text_of(made, "tool_arguments"))["path"]
    assert recording.text_of(made, "token").endswith("belong.")
