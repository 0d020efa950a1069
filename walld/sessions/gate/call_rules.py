"""What may be done with one call: rules, of which the first that holds says the word.

Owns: the rules, their order and what they look at. Refuses: finding the facts (`resume.py`).

`run` means: it never started, or to repeat it changes nothing, or a person said so. The words from
what may be done at once to what may not: `read_result`, `run`, `check_then_run`, `ask_user`,
`never`; where another process is at work, `never` means not now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from walld.sessions.state.account import UNDECLARED

__all__ = ["RULES", "STAGES", "WORDS", "CallFacts", "Rule", "rule_of"]

WORDS: Final = ("read_result", "run", "check_then_run", "ask_user", "never")
"""What may be done with a call, from the laxest to the strictest."""

_CLOSED: Final = ("result", "denied", "superseded")
_NOT_STARTED: Final = ("intended", "asked", "undecided", "approved", "approved_stale")
_MAY_HAVE_STARTED: Final = ("unknown", "unknown_granted", "intent_lost")
STAGES: Final = (*_CLOSED, *_NOT_STARTED, *_MAY_HAVE_STARTED)


class CallFacts(NamedTuple):
    """stage: one of `STAGES`; undecided: the last verdict of its policy is no known word;
    approved_stale: what was granted has expired, or was for something else; unknown: it may have
    started; unknown_granted: and behind that a person allowed it; intent_lost: and nobody knows
    what it was allowed.

    side_effect, resume_policy, idempotency: as declared, or `undeclared`; who declares no
    idempotency has an unsafe call. process, of the call: gone | running | unseen. policy_now, of
    who asks: not_given | allows | asks | denies. workspace, since it was last looked at: same |
    changed | unseen. worker, on its turn or reply: nobody | asker | other. child, the gate of the
    sub-agent's session whose work the call is: nobody (looked) | ok | check | blocked | at_work.
    """

    stage: str
    side_effect: str
    resume_policy: str
    idempotency: str = "unsafe"
    process: str = "gone"
    policy_now: str = "not_given"
    workspace: str = "unseen"
    worker: str = "nobody"
    child: str = "nobody"

    @property
    def may_have_started(self) -> bool:
        """Nobody knows that it did not."""
        return self.stage in _MAY_HAVE_STARTED

    @property
    def wants_grant(self) -> bool:
        """Its own policy, or that of who asks, wants a person's word before it runs."""
        return self.resume_policy == "require-user-confirmation" or self.policy_now == "asks"

    @property
    def asks_anew(self) -> bool:
        """Who asks wants a person's word for a call that may have started."""
        return self.may_have_started and self.policy_now == "asks"


class Rule(NamedTuple):
    """One rule. why: for programs, beside the word."""

    name: str
    holds: Callable[[CallFacts], bool]
    may: str
    why: str


RULES: Final = (
    Rule("M1", lambda c: c.stage in _CLOSED, "read_result", "settled"),
    Rule("M2", lambda c: c.worker == "other", "never", "at_work"),
    Rule("M3", lambda c: c.may_have_started and c.process == "running", "never", "still_runs"),
    Rule("M4", lambda c: c.policy_now == "denies", "never", "policy_denies"),
    Rule("M5", lambda c: c.stage in ("asked", "undecided"), "ask_user", "approval_pending"),
    Rule(
        "M6",
        lambda c: c.stage == "approved_stale" or (c.stage == "approved" and c.policy_now == "asks"),
        "ask_user",
        "approval_stale",
    ),
    Rule("M7", lambda c: c.stage == "intended" and c.wants_grant, "ask_user", "approval_pending"),
    Rule("C1", lambda c: c.child == "at_work", "never", "at_work"),
    Rule("C2", lambda c: c.child == "blocked", "never", "child"),
    Rule(
        "C3",
        lambda c: c.child == "check" and not (c.stage == "intent_lost" or c.asks_anew),
        "check_then_run",
        "child",
    ),
    Rule("M8", lambda c: not c.may_have_started, "run", "never_started"),
    Rule("M9", lambda c: c.stage == "intent_lost", "never", "intent_lost"),
    Rule("C4", lambda c: c.child == "ok" and not c.asks_anew, "run", "child"),
    Rule(
        "M10",
        lambda c: c.stage == "unknown_granted" and c.policy_now != "asks",
        "run",
        "granted",
    ),
    Rule("M11", lambda c: c.resume_policy == "never-rerun", "never", "may_have_run"),
    Rule("M12", lambda c: c.wants_grant, "ask_user", "may_have_run"),
    Rule("M13", lambda c: c.side_effect in ("none", "read"), "run", "nothing_to_repeat"),
    Rule(
        "M14",
        lambda c: UNDECLARED in (c.side_effect, c.resume_policy),
        "ask_user",
        "undeclared",
    ),
    Rule("M15", lambda c: c.process == "unseen", "ask_user", "cannot_see"),
    Rule(
        "M16",
        lambda c: c.side_effect == "workspace-write" and c.workspace != "same",
        "ask_user",
        "may_have_run",
    ),
    Rule("M17", lambda c: c.idempotency == "safe", "run", "safe"),
    Rule(
        "M18",
        lambda c: c.resume_policy == "replay-from-event" and c.side_effect != "workspace-write",
        "ask_user",
        "may_have_run",
    ),
    Rule("M19", lambda _: True, "check_then_run", "look_first"),
)
"""In order. The last one holds of every call, so that there is no gap."""


def rule_of(call: CallFacts) -> Rule:
    """The first that holds."""
    return next(rule for rule in RULES if rule.holds(call))
