"""One durable loop on a real daemon: killed behind a step, resumed and killed again, and finished.

Owns: the three lives of a program (`agent.py`), and what must hold of each. Refuses: which are
tried (`cases.py`).

What must hold is judged by what the program said that it did, by the lines that its effect left and
by the rules of the vendors; of walld's words those of the gate alone count, which is what is tried.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import fork_server
from daemon_process import PATIENCE_SECONDS, DaemonProcess, environment, until
from property.vendor_rules import check_sent

__all__ = ["Trial"]

_AGENT = Path(__file__).with_name("agent.py")
_FILE = "deployed.txt"
_REPEATABLE = ("none", "read")
_RERUN = ("replay-from-event", "rerun-after-check")


class Life:
    """One process, and what it told before it was killed or ended."""

    def __init__(self, spec: dict[str, Any], log: Path) -> None:
        self.told: list[dict[str, Any]] = []
        self.answer: str | None = None
        with log.open("ab") as errors:
            self.process = fork_server.start(
                [sys.executable, str(_AGENT), json.dumps(spec)],
                environment(),
                stdout=subprocess.PIPE,
                stderr=errors.fileno(),
            )
        self._stop, self._log, self._heard = spec["stop"], log, b""

    def go(self) -> bool:
        """Hear it until it stands behind its step, or has ended. False: it has."""
        while True:
            fact = self._hear()
            self.told.append(fact)
            if "done" in fact:
                self.answer = fact["done"]
                assert self.process.wait(PATIENCE_SECONDS) == 0
                return False
            if self._stop is not None and fact.get("did") == self._stop:
                return True

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        while b"\n" not in self._heard:
            ready = select.select([fd], [], [], PATIENCE_SECONDS)[0]
            assert ready, f"it says no more: {self.told[-1:]}"
            piece = os.read(fd, 65536)
            if not piece:
                text = self._log.read_text(errors="replace")[-3000:]
                raise AssertionError(f"it ended: {self.told[-3:]} {text}")
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        fact: dict[str, Any] = json.loads(line)
        return fact

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def all(self, kind: str) -> list[Any]:
        """What it told of a kind."""
        return [fact[kind] for fact in self.told if kind in fact]


class Trial:
    """A case in a session of its own."""

    def __init__(
        self,
        daemon: DaemonProcess,
        home: Path,
        name: str,
        case: dict[str, Any],
        *,
        reads: bool = True,
    ) -> None:
        """reads: its model looks at the messages; else the trial has to find that."""
        self.daemon, self.case, self.lives = daemon, case, list[Life]()
        home.mkdir()
        self.root = home / "tree"
        self.root.mkdir()
        (self.root / _FILE).write_text("")
        self.effects = home / "effects"
        self.effects.write_text("")
        self.log = home / "agent.log"
        self.session = daemon.reader.session(name)
        self.spec = case | {
            "socket": daemon.socket_path,
            "session": name,
            "root": str(self.root),
            "file": _FILE,
            "effects": str(self.effects),
            "saved": str(home / "saved"),
            "reads": reads,
            "asks": case["step"] in ("approval asked", "granted"),
        }

    def run(self) -> None:
        """All of it."""
        try:
            for stop in (self.case["step"], self.case["again"], None):
                life = self.live(stop)
                if life.answer is not None:
                    break
            assert self.lives[0].answer is None, "the first life is killed"
            self.check_end()
        finally:
            for life in self.lives:
                life.close()

    def live(self, stop: str | None) -> Life:
        life = Life(self.spec | {"stop": stop}, self.log)
        self.lives.append(life)
        is_stopped = life.go()
        if is_stopped:
            self.check_alive()
            life.kill()
            self.check_killed()
        for sent in life.all("sent"):
            check_sent(self.case["format"], sent)
        allowed = sum(
            one["may"] == "run" and one["outcome"] == "unknown"
            for every in self.lives
            for calls in every.all("resumed")
            for one in calls
        )
        if self.case["effect"] not in _REPEATABLE:
            assert self.count <= 1 + allowed, f"done {self.count} times, {1 + allowed} allowed"
        return life

    @property
    def count(self) -> int:
        return len(self.effects.read_text().splitlines())

    def gate(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.session.resume_check(workspace=self.root)
        return found

    # --- what must hold ---------------------------------------------------------------------------

    def check_alive(self) -> None:
        """It lives and stands behind a step: to anybody else the gate is shut."""
        did = self.lives[-1].all("did")[-1]
        gate = self.gate()
        if did == "user saved":
            assert gate is None
        elif did != "completed":
            assert gate is not None
            codes = {one["code"] for one in gate["reasons"]}
            assert (gate["status"], "at_work" in codes) == ("blocked", True), gate

    def check_killed(self) -> None:
        """The gate is not ok where a call may have run, or waits for a person's word."""

        def gone() -> bool:
            gate = self.gate()
            return gate is None or gate["owner"] is None

        until(gone, "its process is gone")
        gate, did = self.gate(), self.lives[-1].all("did")
        if gate is None:
            assert did == ["user saved"]
            return
        if self.may_have_run(did) and not self.may_repeat():
            assert gate["status"] != "ok", (did[-1], gate)
            calls = [one for one in gate["calls"] if one["outcome"] == "unknown"]
            assert calls, (did[-1], gate)
        if did[-1] == "approval asked":
            assert gate["status"] != "ok", gate
        for format in ("openai", "anthropic"):  # noqa: A001
            check_sent(format, self.session.messages(format))

    def may_have_run(self, did: list[str]) -> bool:
        """By what the program said: its newest call began, and nothing was booked of its end."""
        if self.case["booking"] == "reply alone":
            begins, ends = ("call said",), ("tool_result",)
        else:
            begins, ends = ("tool_started",), ("tool_finished",)
        begun = max((at for at, step in enumerate(did) if step in begins), default=-1)
        ended = max((at for at, step in enumerate(did) if step in ends), default=-1)
        return begun > ended

    def may_repeat(self) -> bool:
        if self.case["policy"] not in _RERUN:
            return False
        is_safe = self.case["idempotency"] == "safe"
        return is_safe or self.case["effect"] in _REPEATABLE

    def check_end(self) -> None:
        """It answered, and what it said of its effect is so."""
        answer = self.lives[-1].answer
        assert answer is not None
        told = self.session.messages("openai")
        assert check_sent("openai", told) == check_sent(
            "anthropic", self.session.messages("anthropic")
        )
        assert told[-1]["role"] == "assistant", told
        said = told[-1]["content"]
        assert said.startswith("All "), told
        if "is done." in said:
            assert self.count >= 1, said
        else:
            assert "may be done" in said or "is refused" in said, said
        gate = self.gate()
        assert gate is not None
        is_open = any(one["outcome"] == "unknown" for one in gate["calls"])
        assert is_open or gate["boundary"] in ("idle", "answered"), gate
        pending = [one["action"] for one in self.session.project("pending")]
        assert "answer_turn" not in pending, pending
