"""Compares a session's log with the application's own store.

Owns: findings, their categories and the steps of a repair. Pure. Refuses: asking
(`ledger_steps.py`), changing a store: the application applies the steps to its own.

walld cannot see that store, so it is asked when the audit runs, turn by turn, by id. Equal text
elsewhere proves nothing. Where it gives no answer the turn is `unknown` and nothing is repaired. A
repair puts back what the user said and a visible mark where work was cut off; never an answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from walld_client.argument_checks import Kind, as_declared, checked_list, wrong

__all__ = [
    "AuditedTurn",
    "AwaitedPresent",
    "Finding",
    "Present",
    "RepairStep",
    "Report",
    "checked_answer",
    "findings_of",
    "joined",
    "plan_of",
    "presence",
    "report_of",
    "turns_of",
]

PENDING = "turn_journal_pending_turn"
INTERRUPTED = "turn_journal_interrupted_turn"
MALFORMED = "turn_journal_malformed_event"
UNANSWERED = "tool_call_unanswered"
MISSING = "artifact_missing"
BROKEN = "chain_broken"
UNREADABLE = "session_unreadable"
Category = Literal["ok", "repairable", "unsafe_to_repair", "unknown"]
Overall = Literal["ok", "warn", "needs_manual_review"]
_REASONS_OF_THE_DAEMON = ("agent_lost", "host_restart")
_EXIT_CODES: dict[Overall, int] = {"ok": 0, "warn": 1, "needs_manual_review": 2}


class AuditedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as the log has it: what `present` is asked about.

    interrupted_by: "daemon" where its process was gone, "app" where the program said so.
    collisions: ends that came after the first. unanswered: ids of calls without a result.
    submitted_seq: of the event that holds what the user said. content: that, where the facts have
    it. attachments: what it was submitted with. edited: the message that took its place since.
    taken_back: it was undone since, or left out of a list. submission_lost: that event is lost to
    damage, with message_id; submitted_seq is of the first that is left. answered: the model spoke
    last in it, to its end. owner: the other process that is at work on it ({pid, since_ms, seen,
    ...}). last_owner: who last advanced it. These are not known of a daemon of before.
    """

    session_id: str
    turn_id: str
    message_id: str | None
    state: str
    submitted_seq: int = 0
    reason: str | None = None
    interrupted_by: str | None = None
    collisions: int = 0
    stream_ids: list[str] = []
    content: Any = None
    unanswered: list[str] = []
    retry_of: str | None = None
    attachments: list[Any] = []
    edited: dict[str, Any] | None = None
    taken_back: bool = False
    submission_lost: bool = False
    answered: bool = False
    owner: dict[str, Any] | None = None
    last_owner: dict[str, Any] | None = None


def _present(value: Any, name: str) -> Any:
    """Ids that are none would be found in no turn, and what the store holds called missing."""
    if callable(value):
        return value
    if isinstance(value, (str, bytes)) or not isinstance(value, Collection):
        raise wrong(name, "ids or a callable", value)
    return frozenset(checked_list(list(value), name, "ids", str))


_KIND = Kind((), "ids or a callable", _present, is_optional=True)
Present = Annotated[Collection[str] | Callable[[AuditedTurn], bool | None] | None, _KIND]
"""Turn or message ids that the application's store holds, or who answers for one turn."""
AwaitedPresent = Annotated[
    Collection[str] | Callable[[AuditedTurn], bool | Awaitable[bool | None] | None] | None, _KIND
]
"""The same where an event loop can await the answer."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an audit has to say; `subject` is the call, artifact or event it is about.

    state, reason: of its turn, as that stands. owner: the process that is at work on the turn or on
    a retry of it: what is missing may be about to come, and is `ok`.
    """

    kind: str
    category: Category
    session_id: str
    turn_id: str | None = None
    message_id: str | None = None
    subject: str | None = None
    detail: str = ""
    state: str | None = None
    reason: str | None = None
    owner: dict[str, Any] | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found. collisions: turn ids with more than one end, and how many more."""

    overall: Overall
    findings: list[Finding]
    collisions: dict[str, int]
    sessions: int
    turns: int

    @property
    def exit_code(self) -> int:
        """0 ok, 1 warn, 2 needs manual review."""
        return _EXIT_CODES[self.overall]

    def to_dict(self) -> dict[str, Any]:
        """Every field, for JSON."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class RepairStep(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to the application's store; whoever did `key` before does nothing.

    op: "materialise_user_message" adds `message`; "mark_interrupted" adds a visible mark, `message`
    is a text for it that stands behind the turn. state, reason: of the turn. owner: the process
    that last advanced it (turn, pid, boot, since_ms; seen: it lives, and asks), None where an older
    daemon does not tell. A turn that another process is at work on is in no plan. stream_ids: the
    last reply of the turn, and of its newest retry: a store that has one of them whole has the
    answer, and needs no mark.
    """

    key: str
    op: str
    session_id: str
    turn_id: str
    message_id: str | None
    submitted_seq: int
    message: dict[str, Any]
    state: str | None = None
    reason: str | None = None
    owner: dict[str, Any] | None = None
    stream_ids: list[str] = []


def turns_of(session_id: str, facts: Mapping[str, Any]) -> list[AuditedTurn]:
    """The turns in the facts of a session."""
    return [_turn(session_id, one) for one in facts.get("turns") or ()]


def _turn(session_id: str, one: Mapping[str, Any]) -> AuditedTurn:
    collisions = one.get("collisions") or 0
    by = one.get("interrupted_by")
    if by is None and one.get("state") == "interrupted":
        by = "daemon" if one.get("reason") in _REASONS_OF_THE_DAEMON else "app"
    return AuditedTurn(
        session_id=session_id,
        turn_id=one["turn_id"],
        message_id=one.get("message_id"),
        state=one["state"],
        submitted_seq=one.get("submitted_seq") or 0,
        reason=one.get("reason"),
        interrupted_by=by,
        collisions=collisions if isinstance(collisions, int) else len(collisions),
        stream_ids=list(one.get("stream_ids") or ()),
        content=one.get("content"),
        unanswered=[_call_id(call) for call in one.get("unanswered") or ()],
        retry_of=one.get("retry_of"),
        attachments=list(one.get("attachments") or ()),
        edited=one.get("edited"),
        taken_back=one.get("taken_back") is True,
        submission_lost=one.get("submission_lost") is True,
        answered=one.get("answered") is True,
        owner=one.get("owner"),
        last_owner=one.get("last_owner"),
    )


def _call_id(call: str | Mapping[str, Any]) -> str:
    return call if isinstance(call, str) else str(call["call_id"])


def presence(present: AwaitedPresent) -> Callable[[AuditedTurn], bool | None]:
    """Who answers whether the application's store holds a turn's message."""
    if present is None:
        return lambda turn: None
    if callable(present):
        return lambda turn: checked_answer(present(turn))
    ids = frozenset(present)
    return lambda turn: turn.turn_id in ids or turn.message_id in ids


def checked_answer(answer: object) -> bool | None:
    """What a program's own `present` said. Anything else would count as yes, and be called ok."""
    if answer is None or isinstance(answer, bool):
        return answer
    wanted = "True, False or None"
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()  # nobody will await it
        wanted += " without being awaited (walld_client.aio awaits it)"
    raise wrong("what present answers", wanted, answer)


def _answers(
    turns: Iterable[AuditedTurn], present: AwaitedPresent
) -> list[tuple[AuditedTurn, bool | None]]:
    """Each turn with whether its message is there: a retry has the message of the turn that it is
    of, and whoever saved that saved it once, by the id of either.
    """
    asked = presence(present)
    answered = [(turn, asked(turn)) for turn in turns]
    saved = {turn.message_id for turn, is_present in answered if is_present} - {None}
    return [(turn, True if turn.message_id in saved else said) for turn, said in answered]


def findings_of(
    session_id: str, facts: Mapping[str, Any], present: AwaitedPresent
) -> list[Finding]:
    """All there is to say of one session."""
    found: list[Finding] = []
    turns = turns_of(session_id, facts)
    newest = _newest(turns)
    for turn, is_present in _answers(turns, present):
        owner = newest[turn.turn_id].owner
        # Without anybody to ask, a completed turn says nothing of the store.
        if present is not None or turn.state != "completed":
            found.extend(_of_turn(turn, is_present, owner))
        if turn.owner is None:  # else the calls are being run
            found.extend(_unanswered(session_id, turn.unanswered, turn))
    found.extend(_unanswered(session_id, map(_call_id, facts.get("unanswered") or ()), None))
    for name, kind in (
        ("malformed", MALFORMED),
        ("artifacts_missing", MISSING),
        ("chain_breaks", BROKEN),
        ("unreadable", UNREADABLE),
    ):
        found += [_of_session(session_id, kind, one) for one in facts.get(name) or ()]
    return found


@as_declared
def report_of(facts: Mapping[str, Mapping[str, Any]], present: AwaitedPresent) -> Report:
    """The report of sessions, by the facts of each."""
    findings: list[Finding] = []
    collisions: dict[str, int] = {}
    turns = 0
    for session_id, one in facts.items():
        findings += findings_of(session_id, one, present)
        for turn in turns_of(session_id, one):
            turns += 1
            if turn.collisions:
                collisions[turn.turn_id] = turn.collisions
    return Report(
        overall=_overall({one.category for one in findings}),
        findings=findings,
        collisions=collisions,
        sessions=len(facts),
        turns=turns,
    )


def joined(reports: Collection[Report]) -> Report:
    """One report of sessions that were audited one by one."""
    return Report(
        overall=_overall({one.category for report in reports for one in report.findings}),
        findings=[one for report in reports for one in report.findings],
        collisions={turn: more for one in reports for turn, more in one.collisions.items()},
        sessions=sum(one.sessions for one in reports),
        turns=sum(one.turns for one in reports),
    )


def plan_of(session_id: str, facts: Mapping[str, Any], present: AwaitedPresent) -> list[RepairStep]:
    """The steps that bring the application's store up to the log, in the log's order."""
    done = frozenset() if present is None or callable(present) else frozenset(present)
    steps: list[RepairStep] = []
    materialised: set[str] = set()
    turns = turns_of(session_id, facts)
    newest = _newest(turns)
    for turn, is_present in _answers(turns, present):
        last = newest[turn.turn_id]
        if is_present is None or (not is_present and (turn.submission_lost or turn.taken_back)):
            continue
        if last.owner is not None:  # who is at work on it saves it
            continue
        if not is_present and (said := turn.message_id or turn.turn_id) not in materialised:
            materialised.add(said)
            steps.append(_step(turn, "materialise_user_message", _said(turn)))
        is_answered = turn.answered or last.answered or last.state == "completed"
        if turn.state == "interrupted" and not is_answered:
            message = {"role": "system", "content": f"[interrupted: {turn.reason or 'unknown'}]"}
            step = _step(turn, "mark_interrupted", message)
            ends = dict.fromkeys(one for of in (turn, last) for one in of.stream_ids[-1:])
            steps.append(msgspec.structs.replace(step, stream_ids=list(ends)))
    return [step for step in steps if step.key not in done]


def _newest(turns: Iterable[AuditedTurn]) -> dict[str, AuditedTurn]:
    """Turn id -> the last turn of its user message: whether that was answered, it says."""
    first: dict[str, str] = {}
    last: dict[str, AuditedTurn] = {}
    for turn in turns:
        of = turn.retry_of
        root = turn.turn_id if of is None else first.get(of, of)
        first[turn.turn_id], last[root] = root, turn
    return {turn_id: last[root] for turn_id, root in first.items()}


def _said(turn: AuditedTurn) -> dict[str, Any]:
    """The user's message as the session tells it."""
    message: dict[str, Any] = {"role": "user", "content": turn.content}
    if turn.edited is not None:
        return message | turn.edited
    return message | ({"attachments": turn.attachments} if turn.attachments else {})


def _of_turn(
    turn: AuditedTurn, is_present: bool | None, owner: dict[str, Any] | None
) -> Iterable[Finding]:
    by_app = turn.state == "interrupted" and turn.interrupted_by != "daemon"
    category: Category
    if owner is not None and not is_present:
        kind, category, detail = PENDING, "ok", _at_work(owner)
    elif is_present is None:
        kind, category, detail = PENDING, "unknown", "nobody said whether it was saved"
    elif turn.submission_lost and not is_present:
        kind, category = PENDING, "unsafe_to_repair"
        detail = f"what was submitted is lost to damage; the turn is {turn.state}"
    elif not is_present and turn.taken_back:
        return
    elif not is_present:
        kind, category = INTERRUPTED if by_app else PENDING, "repairable"
        detail = f"submitted and not saved; the turn is {turn.state}"
    elif turn.state == "interrupted":
        kind, category, detail = INTERRUPTED, "ok", "saved; the turn was interrupted"
    else:
        return
    if turn.reason:
        detail += f" ({turn.reason})"
    yield Finding(
        kind=kind,
        category=category,
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        message_id=turn.message_id,
        detail=detail,
        state=turn.state,
        reason=turn.reason,
        owner=owner,
    )


def _at_work(owner: Mapping[str, Any]) -> str:
    who = f"process {owner.get('pid')} is at work on it"
    return who if owner.get("seen", True) else "its process cannot be seen, and may come back"


def _unanswered(
    session_id: str, calls: Iterable[str], turn: AuditedTurn | None
) -> Iterable[Finding]:
    for call_id in calls:
        yield Finding(
            kind=UNANSWERED,
            category="unsafe_to_repair",
            session_id=session_id,
            turn_id=None if turn is None else turn.turn_id,
            message_id=None if turn is None else turn.message_id,
            subject=call_id,
            detail="the call has no result: what it did is unknown",
            state=None if turn is None else turn.state,
            reason=None if turn is None else turn.reason,
        )


def _of_session(session_id: str, kind: str, one: object) -> Finding:
    """An artifact, a break, an event or a session that nothing can put back."""
    shown = one if isinstance(one, str) else msgspec.json.encode(one).decode()
    return Finding(kind=kind, category="unsafe_to_repair", session_id=session_id, subject=shown)


def _overall(categories: Collection[str]) -> Overall:
    if "unsafe_to_repair" in categories:
        return "needs_manual_review"
    if "repairable" in categories or "unknown" in categories:
        return "warn"
    return "ok"


def _step(turn: AuditedTurn, op: str, message: dict[str, Any]) -> RepairStep:
    return RepairStep(
        key=f"{turn.turn_id}:{op}",
        op=op,
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        message_id=turn.message_id,
        submitted_seq=turn.submitted_seq,
        state=turn.state,
        reason=turn.reason,
        owner=turn.last_owner,
        message=message | {"_turn": turn.turn_id, "_message_id": turn.message_id},
    )
