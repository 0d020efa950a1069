"""One call of a real SDK in a process of its own, and what walld has of it.

Owns: the nursery's processes, what a program told, and the form in which that is compared with a
recovered reply. Refuses: what programs do (`programs/`), what a test expects.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from daemon_process import DaemonProcess, environment, until
from walld_client import PartialReply

from adapters.answers import answer, joined, told
from adapters.replay import Replay
from walld.replies.model_facts import step_records

__all__ = [
    "Nursery",
    "Trial",
    "check_gate_behind_a_tool",
    "check_kept_before_it_is_handed_on",
    "check_killed_behind_each_frame",
    "check_killed_in_a_tool",
    "check_model_call",
    "check_two_replies",
    "kept",
    "wants",
]

PROGRAMS = Path(__file__).parent / "programs"


def wants(*distributions: str) -> None:
    """Skips a module whose SDKs are not installed. By their distributions: a folder of the tests
    may be called as a package of theirs is."""
    for one in distributions:
        try:
            importlib.metadata.version(one)
        except importlib.metadata.PackageNotFoundError:
            why = f"{one} is not installed here: `make test-adapters` installs it"
            pytest.skip(why, allow_module_level=True)


def kept(reply: PartialReply) -> dict[str, Any]:
    """Text, reasoning and calls of a recovered reply's last attempt, in the form of
    `answers.told`."""
    state: dict[str, Any] = {"text": "", "reasoning": "", "calls": {}}
    for segment in reply.segments:
        if segment.attempt != reply.attempts - 1:
            continue
        if segment.kind in ("text", "reasoning"):
            state[segment.kind] += segment.text
        elif segment.kind == "tool":
            state["calls"][segment.call_id] = [segment.name, segment.arguments or ""]
    return joined(state)


def check_killed_behind_each_frame(
    programs: Nursery, daemon: DaemonProcess, wire: str, scenario: str, what: str
) -> None:
    """What is recovered is what the program had got."""
    frames = answer(wire, scenario)
    spoken = [at for at, frame in enumerate(frames, 1) if frame.said]
    for place in spoken:
        expected = told(frames[:place])
        model = f"{scenario}:frames:hold{place}"
        trial = programs.run_until(expected, provider=wire, what=what, model=model)
        trial.kill()
        reply = daemon.orphan(trial.words("stream")[0][0])
        assert kept(reply) == trial.told == joined(expected)
        assert reply.status == "crashed"


def check_kept_before_it_is_handed_on(
    programs: Nursery, daemon: DaemonProcess, scenario: str, **spec: Any
) -> None:
    """A program that is killed with an event in its hands, before it asks for the next one, has
    that event in walld: behind each that says something.
    """
    spec["model"] = f"{scenario}:frames"
    lines = programs.run(**spec).done().lines
    begun = [at for at, one in enumerate(lines) if one[0] == "stream"]
    first = lines[: begun[1]] if len(begun) > 1 else lines  # of an agent: its first answer
    words = [one for one in first if one[0] in ("text", "reasoning", "call", "arguments")]
    for count in range(1, len(words) + 1):
        trial = programs.run(**spec, freeze=count)
        until(lambda trial=trial: trial.words("frozen"), f"{count}: {words}")
        trial.kill()
        reply = daemon.orphan(trial.words("stream")[0][0])
        assert kept(reply) == trial.told, (count, words)
        assert reply.status == "crashed"


def check_two_replies(trial: Trial, daemon: DaemonProcess) -> list[PartialReply]:
    """Of an agent with a call, its tool and a second call: each is whole, and the results are where
    they belong.
    """
    assert trial.raised is None, trial.lines
    first, second = replies = [daemon.orphan(one) for one in trial.ids]
    tools = [one for one in first.segments if one.kind == "tool"]
    assert [(one.call_id, one.result, one.outcome) for one in tools] == [
        ("call_a", "4 degrees in Oslo", "done"),
        ("call_b", "4 degrees in Rome", "done"),
    ]
    started = [one.result for one in first.segments if one.name == "tool_started"]
    assert sorted(one["call_id"] for one in started) == ["call_a", "call_b"]
    assert second.text == trial.words("answer")[0][0] == "4 degrees in Oslo and 5 in Rome."
    for reply in replies:
        assert (reply.status, reply.partial, reply.error) == ("complete", False, None)
        check_model_call(reply)
    return replies


def check_model_call(reply: PartialReply, *known: str) -> None:
    """It says what its model took, that it came to its end, and more that its SDK tells."""
    (record,) = step_records(reply, set()).values()
    assert record["status"] == "complete"
    assert record["usage"]["input_tokens"] > 0
    assert record["usage"]["output_tokens"] > 0
    assert set(known) <= record.keys()


def check_killed_in_a_tool(trial: Trial, daemon: DaemonProcess) -> None:
    """An agent whose tools never answer, killed there: the calls are whole, one is known to have
    begun, none is taken as done."""
    until(lambda: trial.words("running") or trial.words("raised"), "a tool that runs")
    assert trial.raised is None, trial.lines
    trial.kill()
    reply = daemon.orphan(trial.words("stream")[0][0])
    tools = [one for one in reply.segments if one.kind == "tool"]
    assert [one.call_id for one in tools] == ["call_a", "call_b"]
    assert {(one.arguments_complete, one.outcome) for one in tools} == {(True, "unknown")}
    started = {one.result["call_id"] for one in reply.segments if one.name == "tool_started"}
    running = {"Oslo": "call_a", "Rome": "call_b"}
    assert {running[city] for (city,) in trial.words("running")} <= started
    assert (reply.status, reply.partial_reason) == ("crashed", "tool_open")


def check_gate_behind_a_tool(programs: Nursery, daemon: DaemonProcess, **spec: Any) -> None:
    """An agent that is killed while its tool runs, without a line of its own about the call: what
    the gate says is what `tool_effects` says of the tool, and without that a person is asked. What
    that cannot say is refused before there is an answer.
    """
    external = {"weather": ("external-write", "rerun-after-check")}
    words = {}
    for name, effects in (("declared", external), ("undeclared", None)):
        session = f"{name}-{os.urandom(8).hex()}"
        trial = programs.run(**spec | {"session": session, "tool_effects": effects, "stall": True})
        until(
            lambda trial=trial: trial.words("running") or trial.words("raised"), "a tool that runs"
        )
        assert trial.raised is None, trial.lines
        trial.kill()
        daemon.orphan(trial.words("stream")[0][0])
        gate = daemon.reader.session(session).resume_check()
        calls = [(one["call_id"], one["tool"], one["may"], one["why"]) for one in gate["calls"]]
        words[name] = gate["status"], calls
    wrong = {"weather": ("external", "rerun-after-check")}
    trial = programs.run(**spec | {"tool_effects": wrong, "stall": True})
    trial.ended()
    (raised,) = trial.words("raised")
    assert "tool_effects['weather']: side_effect must be one of none, read," in " ".join(raised)
    asked = [(one, "weather", "ask_user", "undeclared") for one in ("call_a", "call_b")]
    assert words == {
        "declared": ("check", [(*one[:2], "check_then_run", "look_first") for one in asked]),
        "undeclared": ("blocked", asked),
    }


class Trial:
    """One program that runs, or has run."""

    def __init__(self, out: Path, pid: int, nursery: Nursery) -> None:
        self.out = out
        self.pid = pid
        self._nursery = nursery

    @property
    def lines(self) -> list[list[Any]]:
        """What it has told so far."""
        text = self.out.read_text() if self.out.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def words(self, kind: str) -> list[list[Any]]:
        """What it has told of a kind."""
        return [rest for first, *rest in self.lines if first == kind]

    @property
    def told(self) -> dict[str, Any]:
        """What the SDK has given it of the answer."""
        state: dict[str, Any] = {"text": "", "reasoning": "", "calls": {}}
        for kind, *rest in self.lines:
            if kind == "call":
                state["calls"][rest[1]] = [rest[0], ""]
            elif kind == "arguments":
                state["calls"][rest[1]][1] += rest[0]
            elif kind in ("text", "reasoning"):
                state[kind] += rest[0]
        return joined(state)

    @property
    def raised(self) -> str | None:
        """The exception's name, where the SDK raised one."""
        found = self.words("raised")
        return found[0][0] if found else None

    @property
    def ids(self) -> list[str]:
        """The stream ids it was given."""
        return list(self.words("ids")[0][0])

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.ended() == -signal.SIGKILL, self.lines

    def ended(self) -> int:
        """Its exit code."""
        return int(self._nursery.hear()["exit"])

    def done(self) -> Trial:
        """Wait until it has come to its end by itself."""
        assert self.ended() == 0, self.lines
        return self


class Nursery:
    """Forks programs of one module, one at a time."""

    def __init__(self, home: Path, module: str, daemon: DaemonProcess, replay: Replay) -> None:
        self._home = home
        self._daemon = daemon
        self._replay = replay
        self._count = 0
        self.log_path = home / f"{module}.log"
        command = [sys.executable, str(PROGRAMS / "nursery.py"), module]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=environment()
                | {
                    "LANGSMITH_TRACING": "false",
                    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                    "OPENAI_AGENTS_DISABLE_TRACING": "1",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def run(self, **spec: Any) -> Trial:
        """Start a program."""
        self._count += 1
        out = self._home / f"told{self._count}"
        spec |= {
            "out": str(out),
            "base": self._replay.url,
            "socket": self._daemon.socket_path,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(spec).encode() + b"\n")
        self._process.stdin.flush()
        return Trial(out, self.hear()["pid"], self)

    def run_until(self, told: dict[str, Any], **spec: Any) -> Trial:
        """Start a program, and wait until the SDK has given it so much of the answer."""
        trial = self.run(**spec)
        wanted = joined(told)
        until(lambda: trial.told == wanted or trial.words("raised"), f"{wanted}: {trial.lines}")
        assert trial.raised is None, trial.lines
        return trial

    def hear(self) -> Any:
        """Its next word."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log_path.read_text(errors="replace")[-4000:]
        return json.loads(line)

    def close(self) -> None:
        """The end of the test."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
