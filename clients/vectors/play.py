"""Plays `scenario.json` with the Python client: `python play.py SOCKET SESSION FROM`.

A step for each line of standard input, and a line of standard output behind each: so whoever plays
it may be killed between any two of them. The Node client has the same, `test/support/play.ts`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import walld_client

OWN = ("fields", "meta")
"""Options whose parts are the application's own: keywords of their own in Python."""


class Player:
    """The turn and the reply that steps are about, the sub-agent's session and its turn, the task.
    All but a reply are found again.
    """

    def __init__(self, session: Any) -> None:
        self.session, self.reply = session, None
        self.turn, self.child = newest_turn(session), None
        for event in session.find("child", last=1):
            of = event["payload"]["of"]
            named = {"call_id": of["call_id"], "turn": of["turn"]}
            self.child = session.child(event["payload"]["session"], **named)
        self.task: Any = None if self.child is None else newest_turn(self.child)

    def play(self, call: str, given: list[Any], options: dict[str, Any]) -> None:
        """One step. What is refused is the same to both clients."""
        subject, verb = call.split(".")
        on = getattr(self, subject)
        if on is None:
            return
        named = self.meant(options)
        for name in OWN:
            named |= named.pop(name, {})
        made = getattr(on, verb)(*self.meant(given), *named.pop("$given", ()), **named)
        if verb in ("submit", "resume"):
            setattr(self, "task" if subject == "child" else "turn", made)
        if verb == "child":
            self.child = made
        if verb == "reply":
            self.reply = made
        if self.reply is not None:
            self.reply.drain(10)

    def meant(self, value: Any) -> Any:
        """What stands for bytes, for a long text, for the turn at hand, for another session."""
        if value == "$turn":
            return self.turn.turn_id
        if value == "$task":
            return self.task.turn_id
        if value in ("$child", "$fork", "$stream"):
            return f"{self.session.session_id}-{value[1:]}"
        if isinstance(value, list):
            return [self.meant(one) for one in value]
        if not isinstance(value, dict):
            return value
        if "$bytes" in value:
            return value["$bytes"].encode()
        if "$repeat" in value:
            text, times = value["$repeat"]
            return text * times
        return {name: self.meant(one) for name, one in value.items()}


def newest_turn(session: Any) -> Any:
    """None where it has none."""
    turns = (session.state() or {}).get("turns")
    return session.turn(turns[-1]["turn_id"]) if turns else None


def main() -> None:
    """Step by step, from the one that is asked for."""
    socket, session_id, first = sys.argv[1:]
    steps = json.loads(Path(__file__).with_name("scenario.json").read_text("utf-8"))["steps"]
    client = walld_client.connect(socket, timeout=30)
    player = Player(client.session(session_id))
    for step, _ in zip(steps[int(first) :], sys.stdin, strict=False):
        try:
            player.play(*step)
            print("ok", flush=True)
        except (walld_client.Refused, walld_client.Blocked) as error:
            print(type(error).__name__, getattr(error, "code", ""), flush=True)
    client.close()


if __name__ == "__main__":
    main()
