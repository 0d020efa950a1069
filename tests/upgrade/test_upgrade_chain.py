"""One directory, the build before and this one in turn, everything killed between.

What a build was told to keep is answered the same by the next one, by clients of both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builds import Agent, Build, Daemon, offline, same, settled


def test_old_new_old_new(old: Build, new: Build, tmp_path: Path, socket_path: str) -> None:
    data, log, before = tmp_path / "data", tmp_path / "log", dict[str, Any]()
    for number, build in enumerate((old, new, old, new)):
        other, name = (new if build is old else old), f"r{number}"
        with Daemon(build, data, socket_path, log) as daemon:
            if before:
                same(before, build.answers(socket_path))
            with Agent(old if number < 2 else new, socket_path, name) as agent:
                agent.say("still")
                agent.kill()
                settled(daemon, [agent])
            if number:  # what the build before kept goes where this one is told so
                for stream in (f"r{number - 1}-kept", f"r{number - 1}-live"):
                    done = other.walld("resolve", stream, "--socket", socket_path)
                    assert done[0] == 0, done
            before = build.answers(socket_path)
            same(before, other.answers(socket_path))
            said = {one["stream_id"]: one["text"] for one in before["replies"]}
            assert said[f"{name}-live"] == "alive still"
            assert said[f"{name}-kept"] == "whole answer \U0001f600"
            assert f"{name}-released" not in said
            assert f"r{number - 1}-kept" not in said
            assert f"session {name}-gone" not in before
            assert len(before[f"session {name}-session"]["events"]) > 80
            daemon.kill()
        sessions = [f"{name}-{kind}" for kind in ("kept", "released", "live", "gone")]
        same(offline(old, data, sessions), offline(new, data, sessions))
    assert list((data / "sessions").rglob("snapshot"))
    assert b"never to be seen again" not in b"".join(
        path.read_bytes() for path in (data / "sessions").rglob("*") if path.is_file()
    )
