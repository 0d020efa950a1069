"""`walld run -- PROGRAM`: real daemons, programs and kills."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import BACKENDS, PATIENCE_SECONDS, environment, until, walld
from walld_client.start import start_daemon, status_of

SAYS = """
    import os, signal, sys, time, walld_client
    client = walld_client.connect()
    def say(session, text, released):
        reply = client.reply(session, auto_release=released)
        reply.token(text)
        if released:
            reply.end()
        assert reply.drain(level="synced", timeout=60)
        return reply
"""


class Place:
    """A socket and a data directory for `walld run`; what a test starts there ends with it."""

    def __init__(self, home: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="walld-run-"))
        self.socket = str(self.folder / "s")
        self.data = home / "data"
        self.started: list[subprocess.Popen[str]] = []

    def command(self, *program: str) -> list[str]:
        own = [sys.executable, "-m", "walld", "run", "--socket", self.socket]
        return [*own, "--data", str(self.data), "--", *program]

    def python(self, body: str) -> list[str]:
        return self.command(sys.executable, "-c", textwrap.dedent(SAYS) + textwrap.dedent(body))

    def start(self, command: list[str], **how: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True, **how
        )  # type: ignore[call-overload]
        self.started.append(process)
        return process  # type: ignore[no-any-return]

    def run(self, command: list[str]) -> tuple[int, str, str]:
        process = self.start(command)
        out, err = process.communicate(timeout=PATIENCE_SECONDS * 2)
        return process.returncode, out, err

    def status(self) -> dict[str, Any] | None:
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return status_of(self.socket)
            except walld_client.Unavailable:  # it ends, or the machine is busy
                assert time.monotonic() < give_up, self.log

    def daemon_pid(self) -> int | None:
        now = self.status()
        return None if now is None else now["pid"]

    def looks(self) -> int:
        """So often has the daemon that is there looked for users."""
        now = self.status()
        assert now is not None
        return now["users"]["looks"]  # type: ignore[no-any-return]

    def owner(self) -> bool:
        """Some daemon has the data directory."""
        try:
            fd = os.open(self.data / "LOCK", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def ended(self) -> None:
        """The daemon ends by itself."""
        until(lambda: self.daemon_pid() is None and not self.owner(), "the end of the daemon")

    @property
    def log(self) -> str:
        return Path(f"{self.socket}.log").read_text()

    def close(self) -> None:
        for process in self.started:
            process.kill()
        while (pid := self.daemon_pid()) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        for process in self.started:
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None
                with suppress(BrokenPipeError):
                    pipe.close()
        rmtree(self.folder)


@pytest.fixture
def place(tmp_path: Path, time_limit: None) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    found = process.stdout.readline()
    assert found, process.communicate()
    return found.rstrip("\n")


# --- a program, alone -----------------------------------------------------------------------------


def test_a_program_has_a_daemon_that_ends_with_it(place: Place) -> None:
    code, out, err = place.run(
        place.python("say('s', 'x', True); print(os.environ['WALLD_SOCKET'])")
    )
    assert (code, out, err) == (0, f"{place.socket}\n", "")
    assert place.daemon_pid() is None
    assert not place.owner(), "it is gone before `walld run` is"
    assert "unused: stopping" in place.log


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -PIPE $$"], 141),
        (["/nowhere/at-all"], 127),
        (["/"], 126),
    ],
)
def test_its_exit_code_is_the_programs(place: Place, program: list[str], code: int) -> None:
    assert place.run(place.command(*program))[0] == code
    assert place.daemon_pid() is None


def test_a_script_without_a_first_line_runs_as_the_shell_would_run_it(place: Place) -> None:
    script = place.folder / "script"
    script.write_text("echo $1\n")
    script.chmod(0o700)
    assert place.run(place.command(str(script), "it ran"))[:2] == (0, "it ran\n")


def test_it_passes_on_its_own_streams_and_nothing_in_their_way(place: Place) -> None:
    code, out, _ = place.run(place.command("sh", "-c", "ls -1 /proc/self/fd; exec 3<&-; exit 0"))
    assert code == 0
    assert [fd for fd in map(int, out.split()) if 3 < fd < 200] == []
    done = subprocess.run(
        place.command("cat"), env=environment(), input=b"in", capture_output=True, check=True
    )
    assert done.stdout == b"in"


def test_without_a_program_it_is_wrong_usage() -> None:
    done = walld("run", "--")
    assert done.returncode == 64
    assert "walld run -- PROGRAM" in done.stderr


def test_a_data_directory_that_cannot_be_is_125_and_runs_nothing(place: Place) -> None:
    place.data.write_text("a file")
    code, out, err = place.run(place.command("echo", "ran"))
    assert (code, out) == (125, "")
    assert "ended at its start with exit code 1" in err
    assert "there is something that is no directory" in err


def test_a_directory_of_a_daemon_at_another_socket_is_125_at_once(place: Place) -> None:
    other = str(place.folder / "other")
    with start_daemon(place.data, socket=other) as daemon:
        code, out, err = place.run(place.command("echo", "ran"))
        assert (code, out) == (125, "")
        text = f"walld: another walld (pid {daemon.pid}) owns {place.data} and listens at {other}, "
        text += f"not at {place.socket}: give that socket, stop it, or give another directory"
        assert err.startswith(text)
        assert err.count("\n") == 1
        now = status_of(other)
        assert now is not None
        assert now["pid"] == daemon.pid


def test_a_daemon_that_listens_and_is_stopped_is_named_by_its_socket(place: Place) -> None:
    with start_daemon(place.data, socket=place.socket) as daemon:
        assert daemon.pid is not None
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            code, out, err = place.run(place.command("echo", "ran"))
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
    assert (code, out) == (125, "")
    assert err.startswith("walld: no answer from walld within 1 s: ")
    assert f"a process listens at {place.socket} and may be stopped or busy" in err
    assert f"walld status --socket {place.socket}" in err
    assert err.count("\n") == 1


def test_without_options_it_is_where_clients_look(place: Place, tmp_path: Path) -> None:
    own = {"XDG_RUNTIME_DIR": str(place.folder), "XDG_STATE_HOME": str(tmp_path)}
    program = place.python("say('s', 'x', True)")
    command = [sys.executable, "-m", "walld", "run", *program[program.index("--") :]]
    done = subprocess.run(command, env=environment() | own, capture_output=True, check=True)
    assert done.stderr == b""
    assert "unused: stopping" in (place.folder / "walld/walld.sock.log").read_text()
    assert (tmp_path / "walld/LOCK").exists()


# --- what stays -----------------------------------------------------------------------------------


def test_what_is_not_released_keeps_the_daemon_which_is_said_in_one_line(place: Place) -> None:
    code, _, err = place.run(place.python("say('s', 'unsaved', False); os.kill(os.getpid(), 9)"))
    assert code == 137
    pid = place.daemon_pid()
    assert pid is not None
    assert err == (
        f"walld: the daemon stays (pid {pid}): 1 reply is not released; look: walld ls --socket "
        f"{place.socket}, walld recover SESSION --socket {place.socket}; stop it: kill {pid}\n"
    )
    got = walld("recover", "s", "--text", "--resolve", "--socket", place.socket)
    assert got.stdout.strip() == "unsaved"
    place.ended()


def test_words_that_nobody_has_read_at_the_death_of_the_program_count(place: Place) -> None:
    """The daemon stands while the program says everything and dies: all of it is in the kernel."""
    run = place.start(
        place.python("""
            print(os.getpid(), flush=True)
            input()
            reply = client.reply('s', auto_release=False)
            for number in range(200):
                reply.token(f'{number} ')
            os.kill(os.getpid(), 9)
        """)
    )
    program = int(line(run))  # `walld run` has had its answer from the daemon by then
    pid = place.daemon_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert run.stdin is not None
    run.stdin.write("go\n")
    run.stdin.flush()
    until(lambda: str(program) not in children(run.pid), "the death of the program")
    os.kill(pid, signal.SIGCONT)
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 137
    assert "1 reply is not released" in err
    got = walld("recover", "s", "--text", "--socket", place.socket)
    assert got.stdout.split() == [str(number) for number in range(200)]


def test_a_daemon_that_was_killed_comes_back_with_the_next_program(place: Place) -> None:
    first = place.start(place.python("say('s', 'kept', False); print('said', flush=True); input()"))
    assert line(first) == "said"
    pid = place.daemon_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    second = place.run(place.python("print(client.recover('s').text)"))
    assert second[:2] == (0, "kept\n")
    assert place.daemon_pid() not in (None, pid), "the first program is there"
    assert second[2] == "", "and says what stays"
    first.kill()


def test_a_daemon_of_the_operator_is_used_and_left_alone(place: Place) -> None:
    serve = [sys.executable, "-m", "walld", "serve", "--data", str(place.data)]
    serve += ["--socket", place.socket]
    process = place.start(serve)
    until(place.daemon_pid, "a daemon")
    assert place.run(place.python("say('s', 'unsaved', False)")) == (0, "", "")
    assert place.daemon_pid() == process.pid


@pytest.mark.parametrize("backend", BACKENDS)
def test_on_each_backend(place: Place, backend: str) -> None:
    env = environment() | {"WALLD_BACKEND": backend}
    command = place.python("say('s', 'x', True)")
    done = subprocess.run(command, env=env, capture_output=True, check=True, timeout=60)
    assert done.stderr == b""
    assert not place.owner()
    stays = place.python("say('s', 'x', False)")
    done = subprocess.run(stays, env=env, capture_output=True, check=True, timeout=60)
    assert b"1 reply is not released" in done.stderr
    pid = place.daemon_pid()
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    until(lambda: not place.owner(), "its end")
    until(lambda: "SIGTERM: stopping" in place.log, "its line")


def test_another_agent_that_is_connected_keeps_the_daemon(place: Place, tmp_path: Path) -> None:
    run = place.start(place.command("sh", "-c", "echo ready; read line"))
    assert line(run) == "ready"
    agent = Obedient(tmp_path, place.socket)
    try:
        agent.do("client.reply('s', stream_id='r').end()")
        _, err = run.communicate("end\n", timeout=PATIENCE_SECONDS)
        assert ": an agent is connected; look: walld ls" in err
        assert place.daemon_pid() is not None
    finally:
        agent.close()
    place.ended()


def test_a_daemon_that_cannot_look_for_users_says_so_once_and_stays(
    place: Place, tmp_path: Path
) -> None:
    serve = [sys.executable, "-m", "walld", "serve", "--data", str(place.data)]
    serve += ["--socket", place.socket, "--until-unused", str(tmp_path / "nowhere/users")]
    process = place.start(serve)
    until(place.daemon_pid, "a daemon")
    until(lambda: place.looks() > 3, "some looks")
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert err.count("cannot tell whether anybody uses this daemon, so it stays") == 1
    assert "No such file or directory" in err


# --- signals --------------------------------------------------------------------------------------


# None of them sleeps in pause(2): a signal just before it would be told only by the next one.
TELLS_SIGNALS = """
    import signal, sys, time
    def tell(number, frame):
        print(signal.Signals(number).name, flush=True)
    for name in sys.argv[1:]:
        signal.signal(getattr(signal, name), tell)
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
"""
PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")


def test_signals_are_passed_on_once(place: Place) -> None:
    command = place.command(sys.executable, "-c", textwrap.dedent(TELLS_SIGNALS), *PASSED_ON)
    run = place.start(command)
    assert line(run) == "ready"
    for name in PASSED_ON:
        run.send_signal(getattr(signal, name))
        assert line(run) == name
    run.send_signal(signal.SIGALRM)  # the program dies of it, as it would alone
    out, _ = run.communicate(timeout=PATIENCE_SECONDS)
    assert (run.returncode, out) == (128 + signal.SIGALRM, "")
    place.ended()


def test_what_is_ignored_stays_ignored(place: Place) -> None:
    nohup = place.start(["nohup", *place.command("sh", "-c", "echo ready; read line; exit 3")])
    assert line(nohup) == "ready"
    nohup.send_signal(signal.SIGHUP)
    out, _ = nohup.communicate("go\n", timeout=PATIENCE_SECONDS)
    assert (nohup.returncode, out) == (3, "")


class Terminal:
    """A shell with job control on a terminal of its own."""

    def __init__(self, place: Place) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.clear()
            os.environ.update(environment(), PS1="", TERM="dumb")
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.text = ""
        self.type("stty -echo; set -b; echo st''arted\n")
        self.expect("started")

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def expect(self, word: str) -> str:
        """Wait for a word; what stands before it."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while word not in self.text:
            assert time.monotonic() < give_up, (word, self.text)
            if select.select([self.fd], [], [], 0.1)[0]:
                self.text += os.read(self.fd, 4096).decode(errors="replace")
        before, _, self.text = self.text.partition(word)
        return before

    def between(self, first: str, last: str) -> str:
        self.expect(first)
        return self.expect(last)

    def close(self) -> None:
        os.close(self.fd)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(place: Place) -> Iterator[Terminal]:
    made = Terminal(place)
    yield made
    made.close()


def quoted(command: list[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in command)


def test_ctrl_c_is_one_interrupt_and_leaves_the_daemon_alone(
    place: Place, terminal: Terminal
) -> None:
    count = """
        import signal, time
        came = []
        signal.signal(signal.SIGINT, lambda *_: came.append(1))
        print("rea" + "dy", flush=True)
        while not came:
            time.sleep(0.01)
        time.sleep(0.5)  # a second one would come by then
        print("interrupts", len(came), client.recover("nobody"), flush=True)
    """
    terminal.type(quoted(place.python(count)) + "\n")
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("interrupts 1 None")


def test_a_terminal_that_goes_away_hangs_the_program_up(place: Place) -> None:
    """The kernel tells the leader of the session alone, which is `walld run` here."""
    told = place.folder / "told"
    body = f"""
        import signal, sys, time
        def tell(number, frame):
            open({str(told)!r}, "a").write(signal.Signals(number).name)
            sys.exit(0)
        signal.signal(signal.SIGHUP, tell)
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
    """
    command = place.command(sys.executable, "-c", textwrap.dedent(body))
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, environment())
    told_so_far = b""
    while b"ready\r\n" not in told_so_far:  # two writes: the second would fail on a closed terminal
        told_so_far += os.read(fd, 4096)
    os.close(fd)
    try:
        _, status = os.waitpid(pid, 0)
    except BaseException:
        os.killpg(pid, signal.SIGKILL)
        raise
    assert os.waitstatus_to_exitcode(status) == 0
    assert told.read_text() == "SIGHUP"
    place.ended()


def test_job_control_stops_and_continues_the_program(place: Place, terminal: Terminal) -> None:
    program = ["sh", "-c", "echo rea''dy; read line; echo got $line; exit 5"]
    terminal.type(quoted(place.command(*program)) + "\n")
    terminal.expect("ready")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.type("echo at-the-''prompt\n")
    terminal.expect("at-the-prompt")
    terminal.type("fg\n")
    terminal.expect("sh")
    until(lambda: os.tcgetpgrp(terminal.fd) != terminal.pid, "a terminal that is the program's")
    terminal.type("words\n")
    terminal.expect("got words")
    terminal.type("echo code-$?\n")
    terminal.expect("code-5")
    place.ended()


def test_a_stop_sent_to_it_alone_stops_the_program(place: Place, terminal: Terminal) -> None:
    """`kill -TSTP` and `kill -CONT` of the process that the shell knows."""
    body = "import os,time;print('pid',os.getpid(),flush=True)\nwhile True: time.sleep(0.05)"
    terminal.type(quoted(place.command(sys.executable, "-c", body)) + " &\n")
    terminal.expect("pid ")
    terminal.type("echo run-$!-\n")
    run = int(terminal.between("run-", "-"))
    (program,) = [int(pid) for pid in children(run) if is_python(int(pid), "time.sleep(0.05)")]
    os.kill(run, signal.SIGTSTP)
    until(lambda: state(program) == "T" and state(run) == "T", "both stopped")
    os.kill(run, signal.SIGCONT)
    until(lambda: state(program) != "T" and state(run) != "T", "both going on")
    os.kill(run, signal.SIGTERM)
    place.ended()


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def is_python(pid: int, word: str) -> bool:
    return word in Path(f"/proc/{pid}/cmdline").read_text()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# --- kill -9 of each of them ----------------------------------------------------------------------


def test_kill_9_of_walld_run_leaves_the_program_its_daemon(place: Place) -> None:
    run = place.start(
        place.python("""
            print("pid", os.getpid(), flush=True)
            input()
            say('s', 'x', True)
            print("said", flush=True)
            input()
        """)
    )
    assert line(run).startswith("pid ")
    run.kill()
    run.wait()
    pid = place.daemon_pid()
    assert pid is not None
    looks = place.looks()
    until(lambda: place.looks() > looks + 3, "three looks")
    assert run.stdin is not None
    run.stdin.write("go\n")
    run.stdin.flush()
    assert line(run) == "said"
    assert place.daemon_pid() == pid
    run.communicate()  # its input ends, and so it does
    place.ended()


@pytest.mark.parametrize("after_ms", [100, 250, 400, 550])
def test_kill_9_of_walld_run_at_any_moment_leaves_no_daemon_over(
    place: Place, after_ms: int
) -> None:
    run = place.start(place.command("sh", "-c", "exit 0"))
    time.sleep(after_ms / 1000)
    run.kill()
    run.communicate()
    # It may be starting still: what counts is that none is there once it has had a look.
    give_up = time.monotonic() + PATIENCE_SECONDS
    quiet = 0
    while quiet < 30:
        assert time.monotonic() < give_up, place.log
        quiet = quiet + 1 if place.daemon_pid() is None and not place.owner() else 0
        time.sleep(0.05)
    assert place.run(place.python("say('s', 'x', True)")) == (0, "", "")


def test_a_child_that_outlives_the_program_keeps_the_daemon(place: Place) -> None:
    """It inherits the hold, as the program did."""
    code, _, err = place.run(
        place.python(f"""
            if os.fork() == 0:
                os.setsid()
                null = os.open(os.devnull, os.O_RDWR)
                for fd in range(3):
                    os.dup2(null, fd)
                for _ in range(6000):
                    if os.path.exists({str(place.folder / "go")!r}):
                        break
                    time.sleep(0.01)
                say('child', 'x', True)
                open({str(place.folder / "done")!r}, "w").close()
                os._exit(0)
            os._exit(4)
        """)
    )
    assert (code, err) == (4, "")
    assert place.daemon_pid() is not None
    (place.folder / "go").touch()
    until((place.folder / "done").exists, "the child's words")
    place.ended()


# --- several --------------------------------------------------------------------------------------


def test_two_side_by_side_share_one_and_the_last_ends_it(place: Place) -> None:
    body = "say(str(os.getpid()), 'x', True); print('said', flush=True); input()"
    one, other = (place.start(place.python(body)) for _ in range(2))
    assert (line(one), line(other)) == ("said", "said")
    until(lambda: "listening on" in place.log, "its line")
    assert place.log.count("listening on") == 1
    one.communicate("end\n", timeout=PATIENCE_SECONDS)
    pid = place.daemon_pid()
    assert pid is not None
    os.kill(pid, 0)
    other.communicate("end\n", timeout=PATIENCE_SECONDS)
    assert (one.returncode, other.returncode) == (0, 0)
    place.ended()


def test_one_within_another_uses_its_daemon(place: Place) -> None:
    inner = quoted([sys.executable, "-m", "walld", "run", "--", "sh", "-c", "echo $WALLD_SOCKET"])
    assert place.run(place.command("sh", "-c", inner)) == (0, f"{place.socket}\n", "")
    place.ended()
    assert place.log.count("listening on") == 1


ROUNDS = int(os.environ.get("WALLD_RUN_ROUNDS", "6"))
"""Of each of two lanes."""
KILLS = int(os.environ.get("WALLD_RUN_KILLS", "6"))


def test_whoever_comes_while_a_daemon_ends_has_one(place: Place) -> None:
    """Two lanes, each beginning its next program just when a daemon may be about to end."""
    body = place.python("say(sys.argv[1] if len(sys.argv) > 1 else 'x', 'x', True)")

    def keep_going(lane: int) -> Callable[[], None]:
        state: dict[str, object] = {"left": ROUNDS, "process": None, "wait": 0.0}

        def step() -> None:
            process = state["process"]
            if isinstance(process, subprocess.Popen):
                if process.poll() is None:
                    return
                out, err = process.communicate()
                assert (process.returncode, out, err) == (0, "", ""), place.log
                state["process"] = None
                # Around a look of the daemon, which comes each 0.2 s: from 0 to 0.3 s.
                rest = (int(state["left"]) * 7 + lane * 3) % 16  # type: ignore[call-overload]
                state["wait"] = time.monotonic() + rest * 0.02
            elif int(state["left"]) and time.monotonic() >= float(state["wait"]):  # type: ignore[call-overload,arg-type]
                state["left"] = int(state["left"]) - 1  # type: ignore[call-overload]
                state["process"] = place.start([*body, f"lane-{lane}"])

        step.state = state  # type: ignore[attr-defined]
        return step

    lanes = [keep_going(lane) for lane in range(2)]
    while any(lane.state["left"] or lane.state["process"] for lane in lanes):  # type: ignore[attr-defined]
        for lane in lanes:
            lane()
        time.sleep(0.005)
    place.ended()
    assert "another walld" not in place.log, "one of them starts it"


def test_what_is_unreleased_is_there_after_many(place: Place) -> None:
    """Programs that leave something behind, and daemons that are killed between them."""
    for number in range(4):
        code, _, err = place.run(place.python(f"say('s{number}', 'text {number}', False)"))
        assert code == 0
        assert f"{number + 1} repl" in err
        pid = place.daemon_pid()
        assert pid is not None
        if number % 2:
            os.kill(pid, signal.SIGKILL)
    done = place.run(
        place.python("""
            for reply in client.recover_all():
                print(reply.text)
                client.resolve(reply.stream_id, reply.last_seq)
        """)
    )
    assert done == (0, "".join(f"text {number}\n" for number in range(4)), "")
    assert place.daemon_pid() is None


def test_no_kill_loses_what_was_synced_or_leaves_a_daemon_over(place: Place) -> None:
    """Pairs of programs; a program, its `walld run` or the daemon is killed at some moment."""
    chance = random.Random(27)
    body = place.python(
        "print('pid', os.getpid(), flush=True); say(sys.argv[1], sys.argv[1], False);"
        "print('synced', flush=True)"
    )
    synced: set[str] = set()
    for number in range(KILLS):
        pair = [place.start([*body, f"{number}-{one}"]) for one in "ab"]
        time.sleep(chance.uniform(0, 1.2))
        victim = chance.choice(("run", "program", "daemon", "nobody"))
        if victim == "run":
            pair[0].kill()
        elif victim == "program":
            for child in children(pair[0].pid):
                if is_python(int(child), "client.reply"):
                    os.kill(int(child), signal.SIGKILL)
        elif victim == "daemon" and (pid := place.daemon_pid()) is not None:
            os.kill(pid, signal.SIGKILL)
            # Who waits for a daemon now has the one of the next `walld run`.
            assert place.run(place.command("sh", "-c", "sleep 0.5"))[0] == 0
        for one, process in zip("ab", pair, strict=True):
            out, err = process.communicate(timeout=PATIENCE_SECONDS * 2)
            if "synced" in out:
                synced.add(f"{number}-{one}")
            elif victim == "daemon":  # killed in its start, and whichever started it ran no program
                assert process.returncode == 125, (one, out, err, place.log)
            else:
                assert process is pair[0], (victim, out, err, place.log)
    assert len(synced) >= KILLS
    code, out, err = place.run(
        place.python("""
            for reply in client.recover_all():
                print(reply.text)
                client.resolve(reply.stream_id)
        """)
    )
    assert (code, err) == (0, "")
    assert synced <= set(out.split())
    place.ended()


def test_status_says_who_is_there(place: Place) -> None:
    run = place.start(place.command("sh", "-c", "echo ready; read line"))
    assert line(run) == "ready"
    told = json.loads(walld("status", "--json", "--socket", place.socket).stdout)
    assert told["users"]["path"] == f"{place.socket}.users"
    until(lambda: place.looks() > 0, "a look")
    now = place.status()
    assert now is not None
    assert now["users"]["held"] is True
