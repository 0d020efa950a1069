"""A session's ledger in a test: events given ids and parents as the daemon gives them."""

from __future__ import annotations

from typing import Any

from walld.sessions.state.events import Event, Problem
from walld.sessions.state.session_state import SessionState, Undo

INTENT = {"tool": "bash", "side_effect": "read", "resume_policy": "replay-from-event"}


class Log:
    """Events that were accepted, and the state they gave."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.state = SessionState()
        self.undos: list[Undo] = []

    def offer(self, type: str, payload: dict[str, Any], **more: Any) -> Problem | None:  # noqa: A002
        """Append it, or say why not. Its id is e<seq>, its time 1000 x seq, unless given."""
        seq = self.state.last_seq + 1
        fields = {"id": f"e{seq}", "at_ms": 1000 * seq} | more
        event = Event(seq=seq, type=type, payload=payload, **fields)
        problem = self.state.check(event, is_new=True)
        if problem is not None:
            return problem
        fields["parent"] = self.state.parent_for(event)
        event = Event(seq=seq, type=type, payload=payload, **fields)
        self.undos.append(self.state.apply(event))
        self.events.append(event)
        return None

    def stand(self, type: str, payload: dict[str, Any], **more: Any) -> str:  # noqa: A002
        """What an older walld took, whether it could come today or not; its id."""
        seq = self.state.last_seq + 1
        fields = {"id": f"e{seq}", "at_ms": 1000 * seq, "parent": self.state.leaf} | more
        event = Event(seq=seq, type=type, payload=payload, **fields)
        self.undos.append(self.state.apply(event))
        self.events.append(event)
        return event.id

    def add(self, type: str, payload: dict[str, Any], **more: Any) -> str:  # noqa: A002
        """Append it; its id."""
        problem = self.offer(type, payload, **more)
        assert problem is None, problem
        return self.events[-1].id

    def say(self, role: str, content: Any, **more: Any) -> str:
        """A message of no turn."""
        return self.add("message", {"role": role, "content": content, **more})

    def submit(self, turn: str, content: Any = "hello", **more: Any) -> str:
        """A turn, its message id m-<turn>."""
        payload = {"message_id": f"m-{turn}", "content": content, **more}
        return self.add("turn_submitted", payload, turn=turn)

    def tool(self, turn: str, call_id: str, *types: str, **intent: Any) -> None:
        """An intent and what follows, by the rest of the type's name."""
        self.add("tool_intent", {**INTENT, "call_id": call_id, **intent}, turn=turn)
        for one in types:
            payload: dict[str, Any] = {"call_id": call_id}
            kind, _, state = one.partition(":")
            if kind == "approval":
                payload["state"] = state
            elif kind == "finished":
                payload |= {"result": "done", "failed": state == "failed"}
            name = kind if kind == "observation" else f"tool_{kind}"
            self.add(name, payload, turn=turn)


def contents(messages: list[dict[str, Any]] | None) -> list[Any] | None:
    """What messages say."""
    return None if messages is None else [message["content"] for message in messages]
