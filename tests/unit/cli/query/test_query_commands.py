"""What `status`, `recover` and `resolve` ask of a daemon, print and exit with. It is scripted."""

import json
import socket
import threading

import msgspec
import pytest
from damaged_directory import DamagedDirectory, begin, row, text
from walld_client.wire import framing
from walld_client.wire import messages as wire

from walld.cli import main
from walld.cli.inspect.offline import find
from walld.wal.layout import Flag

pytestmark = pytest.mark.usefixtures("alone")


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
    daemon = scripted(answer(1, [recovered]), answer(2, True), answer(3, []))
    arguments = ["recover", "chat", "--text", "--resolve", "--uid", "7", "--socket", daemon.path]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "Hi\n"
    _, recover, resolve, others = daemon.asked
    assert others == wire.Recover(3, "all", recovered.session_id, None, [], 7)
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


# --- session ls -----------------------------------------------------------------------------------


FACTS = [wire.SessionFacts("chat", 7, 3, 0, 99), wire.SessionFacts("other", 7, 1, 0, 50)]
UNKNOWN = framing.encode(wire.Error("unknown_projection", "there is no such view", id=2))


def old(scripted, *options):
    daemon = scripted(answer(1, FACTS), UNKNOWN)
    return main(["session", "ls", *options, "--socket", daemon.path])


def test_session_ls_of_a_daemon_that_knows_no_words(scripted, capsys):
    """0.1.0: the column is empty."""
    assert old(scripted) == 0
    told = capsys.readouterr()
    lines = [line.split()[-2:] for line in told.out.splitlines()]
    assert lines == [["STATE", "SESSION"], ["99", "chat"], ["50", "other"]]
    assert "where the sessions stand is not known" in told.err


def test_session_ls_as_json_of_a_daemon_that_knows_no_words(scripted, capsys):
    assert old(scripted, "--json") == 0
    assert [one["state"] for one in json.loads(capsys.readouterr().out)] == [None, None]


def test_what_needs_somebody_a_daemon_that_knows_no_words_cannot_tell(scripted, capsys):
    """No empty list."""
    assert old(scripted, "--needs") == 1
    told = capsys.readouterr()
    assert (told.out, "0.1.0" in told.err) == ("", True)


def words(**told):
    return [json.dumps(told).encode(), b"[]"]


def test_session_ls_asks_again_for_what_there_was_no_time_for(scripted, capsys):
    daemon = scripted(
        answer(1, FACTS), answer(2, words(other="waits")), answer(3, words(chat=None))
    )
    assert main(["session", "ls", "--needs", "--uid", "7", "--socket", daemon.path]) == 0
    lines = [line.split()[-2:] for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [["?", "chat"], ["waits", "other"]], "one that is not known may need somebody"
    asked = [(json.loads(one.arguments)["sessions"], one.uid) for one in daemon.asked[2:]]
    assert asked == [(["chat", "other"], 7), (["chat"], 7)]


def test_session_ls_ends_where_the_daemon_does_not_get_on(scripted, capsys):
    daemon = scripted(answer(1, FACTS), answer(2, words(other="done")), answer(3, words()))
    assert main(["session", "ls", "--json", "--socket", daemon.path]) == 0
    assert [one["state"] for one in json.loads(capsys.readouterr().out)] == [None, "done"]
