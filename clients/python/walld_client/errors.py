"""The errors that requests raise.

    WalldError
    +-- Unavailable   walld cannot answer now: no daemon, no answer in time, still recovering
    |   +-- NotDurable   a submit or resume of which nobody knows yet whether it survives
    +-- Blocked       the work must not go on yet (status, reasons, calls)
    +-- Refused       walld understood and says no (code, got, limit)
        +-- Unsupported   it is of a build that does not know what was asked (verb, version)

Sending raises neither: it never raises for the daemon's sake. Misuse is ValueError or TypeError.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Blocked", "NotDurable", "Refused", "Unavailable", "Unsupported", "WalldError"]


class WalldError(Exception):
    """Base of what the client raises for the world's sake."""


class Unavailable(WalldError):
    """There is no answer, which is not the answer "nothing there"."""


class NotDurable(Unavailable):
    """A submit or a resume was not known to be synced in time. It may have been taken and may
    become durable.

    turn_id: of the turn that it would be; where its message was submitted before, that stands.

    Submitting again with the same `message_id` and content gives the first turn where there is
    one, so it is safe. A retry of a turn is looked for with `session.turn(turn_id)` instead. Of a
    resume, this process resumes again: it is given that turn where it was taken.
    """

    def __init__(
        self,
        session_id: str,
        turn_id: str,
        message_id: str,
        waited: float,
        reason: str,
        *,
        is_retry: bool = False,
        is_claim: bool = False,
    ) -> None:
        remedy = f"submit it again with message_id={message_id!r}"
        if is_retry:
            remedy = f"look for it with session.turn({turn_id!r}) before another retry"
        if is_claim:
            remedy = "call resume() again: where it was taken, that gives it"
        super().__init__(
            f"turn {turn_id!r} of session {session_id!r} is not known to be durable after"
            f" {waited:.3f} s: {reason}; {remedy}"
        )
        self.session_id = session_id
        self.turn_id = turn_id
        self.message_id = message_id
        self.waited = waited


class Blocked(WalldError):
    """The resume gate does not let the work go on; nothing was done.

    status: "blocked", or "check": somebody has to look first. reasons, calls: as `resume_check`
    gives them; of `check` without those that the caller has answered.
    """

    def __init__(
        self, status: str, reasons: list[dict[str, Any]], calls: list[dict[str, Any]]
    ) -> None:
        super().__init__(f"{status}: " + "; ".join(one["message"] for one in reasons))
        self.status = status
        self.reasons = reasons
        self.calls = calls


class Refused(WalldError):
    """The daemon will not do it: `code` names why, `got` and `limit` are the two sides."""

    def __init__(self, code: str, got: str, limit: str, message: str = "") -> None:
        both = f", got {got}, limit {limit}" if got or limit else ""
        super().__init__(f"{message or code} (code {code}{both})")
        self.code = code
        self.got = got
        self.limit = limit


class Unsupported(Refused):
    """The daemon is of a build that does not know what was asked; nothing was done.

    verb: the request, and the view where it is Project. version: of that daemon.
    """

    def __init__(
        self, verb: str, version: str, code: str = "bad_request", got: str = "", limit: str = ""
    ) -> None:
        text = f"walld {version} does not know {verb}: update the older of client and daemon"
        super().__init__(code, got, limit, text)
        self.verb = verb
        self.version = version
