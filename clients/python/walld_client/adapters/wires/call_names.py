"""Names of an answer's tool calls in its reply. No I/O.

Owns: that each has a name of its own. Refuses: which event is of which call (the folds), and whose
a result is (`open_calls.py`, `model_call.py`).

A provider's id is a call's name as long as no other call of the answer has it. Some servers, and
proxies between, give an id twice in one answer: the next call is `<id>#2` then, and info says the
provider's id, {"given_id": id}. So is that of an id which comes when the call has a name already.
"""

from __future__ import annotations

__all__ = ["CallNames"]


class CallNames:
    """The names that are taken."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._times: dict[str, int] = {}
        """How often each id was given, so that no search for a free name is a long one."""

    def begin(self, given: str) -> tuple[str, dict[str, str]]:
        """A call of this id begins: its name, and what info says of it."""
        times = self._times.get(given, 0) + 1
        name = given if times == 1 else f"{given}#{times}"
        while name in self._taken:
            times += 1
            name = f"{given}#{times}"
        self._times[given] = times
        self._taken.add(name)
        return name, {} if name == given else {"given_id": given}
