"""The command line: which daemon it finds, what it takes, its exit codes, where it prints to."""

import json
import os
import socket
import subprocess
import sys

import pytest
from damaged_directory import DamagedDirectory

import walld
from walld.cli import main

pytestmark = pytest.mark.usefixtures("alone")


# --- no daemon, or none that answers --------------------------------------------------------------


def test_a_daemon_that_says_nothing_is_given_up(tmp_path, capsys):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "mute"))
        listening.listen()
        arguments = ["status", "--socket", str(tmp_path / "mute"), "--timeout", "0.05"]
        assert main(arguments) == 1
    assert "no answer within 0.05 s" in capsys.readouterr().err


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
