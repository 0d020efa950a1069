"""Clients of one build and daemons of the other: each public verb, and a daemon that is replaced.

A verb that one lacks is `Unsupported(verb, version)`: never a hang, never a guess.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builds import HERE, Agent, Build, Daemon, same, settled, without_state


@pytest.mark.parametrize("names", [("old", "new"), ("new", "old")])
def test_a_client_of_one_and_daemons_of_both(
    names: tuple[str, str], old: Build, new: Build, tmp_path: Path, socket_path: str
) -> None:
    """The agent lives on while its daemon is killed, and the other build takes its place."""
    builds = {"old": old, "new": new}
    ours, theirs = (builds[name] for name in names)
    data, log = tmp_path / "data", tmp_path / "log"
    with Daemon(theirs, data, socket_path, log) as daemon, Agent(ours, socket_path, "a") as agent:
        agent.say("one")
        daemon.kill()
        with Daemon(ours, data, socket_path, log) as daemon:
            agent.say("two")
            daemon.kill()
        with Daemon(theirs, data, socket_path, log) as daemon:
            agent.say("three")
            told = ours.answers(socket_path)
            same(told, theirs.answers(socket_path))
            live = next(one for one in told["replies"] if one["stream_id"] == "a-live")
            assert (live["text"], live["gaps"]) == ("alive one two three", [])
            assert (live["owner_alive"], "a-live" in told["orphans"]) == (True, False)
            agent.kill()
            settled(daemon, [agent])
            done = ours.python(HERE / "verbs.py", socket_path, "a")
            assert done.returncode == 0, done.stderr
            outcomes = json.loads(done.stdout)
            assert {name: one for name, one in outcomes.items() if one is not True} == {}
            told = ours.answers(socket_path)
            same(told, theirs.answers(socket_path))
            assert [one["stream_id"] for one in told["replies"]] == ["a-cancelled", "a-half"]
            commands(ours, theirs, socket_path)
            daemon.terminate()


def commands(ours: Build, theirs: Build, socket_path: str) -> None:
    """Command lines of both builds at one daemon: the same words, the same exit codes."""
    for words in (
        ("ls",),
        ("recover", "a-cancelled"),
        ("recover", "a-kept"),
        ("session", "ls"),
        ("session", "show", "a-session"),
        ("resume-check", "a-session"),
        ("audit", "a-session"),
        ("resolve", "nobody's"),
    ):
        asked = [*words, "--json", "--socket", socket_path]
        one, other = ours.walld(*asked), theirs.walld(*asked)
        if "ls" in words:
            one, other = without_state(one), without_state(other)
        same(one, other)
        assert one[0] in (0, 1, 2, 3), one


@pytest.mark.parametrize("tag", [63, 80, 127])
@pytest.mark.parametrize("colour", ["sync", "aio"])
@pytest.mark.parametrize("whose", ["old", "new"])
def test_a_verb_that_the_daemon_lacks_is_unsupported(
    whose: str, colour: str, tag: int, daemons: dict[str, tuple[Daemon, str]], new: Build
) -> None:
    """This build's client, as one day's client would: with a request nobody knows yet."""
    daemon, version = daemons[whose]
    done = new.python(HERE / "fake_verb.py", daemon.socket_path, tag, colour)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["fake"] == ["Unsupported", "Fake", version]
    assert told["text"].startswith(f"walld {version} does not know Fake: update the older of")
    assert told["view"] == ["Unsupported", "Project horoscope", version]
    lacks = None if whose == "new" else ["Unsupported", "Project resume", version]
    assert told["policy"] == lacks, "an argument of a view that is there"
    refused = ["Refused", "", ""]  # there is no call, and no turn
    assert [told["settle"], told["resume"]] == [lacks or refused] * 2
    assert [told["grant until"], told["grant of"]] == [lacks] * 2
    assert told["approvals"] == (2 if lacks else 4), "an old gate would judge by none"
    lacks = None if whose == "new" else ["Unsupported", "Project messages", version]
    assert told.get("page") == lacks
    assert told["after"] is None, "the client goes on, with a daemon that lives"


def test_the_command_line_says_it_in_the_same_words(
    daemons: dict[str, tuple[Daemon, str]], new: Build
) -> None:
    daemon, version = daemons["old"]
    words = ("session", "settle", "s", "c", "--ran", "--socket", daemon.socket_path)
    code, said = new.walld(*words)
    assert code != 0
    text = f"walld {version} does not know Project resume: update the older of client and daemon"
    assert f"{text} (code bad_argument, got resume, limit " in said


def test_an_old_client_is_told_what_it_cannot_have(
    daemons: dict[str, tuple[Daemon, str]], old: Build
) -> None:
    daemon, version = daemons["new"]
    done = old.python(HERE / "fake_verb.py", daemon.socket_path, 63, "sync")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["fake"] == ["Refused", "", ""]
    assert f"walld {version} does not know this request" in told["text"]
    assert "a request of tag 48 to " in told["text"]
    assert told["after"] is None


@pytest.mark.parametrize("whose", ["old", "new"])
def test_fields_that_are_appended_later_are_passed_over(
    whose: str, daemons: dict[str, tuple[Daemon, str]], new: Build
) -> None:
    """A raw peer of the future: each message has two more fields than any build knows."""
    daemon, _ = daemons[whose]
    done = new.python(HERE / "future_peer.py", daemon.socket_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["refused"] == ["malformed_event", 1, 2], "an event nobody knows: it alone"
    assert told["texts"] == ["said by a later build"]
    assert told["drained"] == [7, "synced"]
    assert told["unknown"][0] == "bad_request"
    assert told["version"][0] == "version", "a later version of the protocol is not guessed at"
    assert told["version"][1:] == ["2", "1"]


def test_an_old_daemon_keeps_what_it_cannot_archive(
    daemons: dict[str, tuple[Daemon, str]], new: Build, tmp_path: Path
) -> None:
    """It would take a field of Delete that it does not know for nothing, and delete."""
    daemon, version = daemons["old"]
    at, folder, lines = ("--socket", daemon.socket_path), tmp_path / "to", tmp_path / "pi.jsonl"
    folder.mkdir()
    lines.write_text('{"type":"session","id":"s"}\n{"type":"message","message":{"role":"user"}}\n')
    assert new.walld("session", "import", lines, "--session", "to go", *at)[0] == 0
    before = new.walld("session", "events", "to go", *at)
    code, said = new.walld("session", "archive", "to go", "--to", folder, *at)
    text = f"walld {version} does not know DeleteAt: update the older of client and daemon"
    assert (code, text in said) == (1, True)
    assert [one.name for one in folder.iterdir() if one.name in said] != [], (
        "it is whole, and stays"
    )
    assert new.walld("session", "events", "to go", *at) == before
