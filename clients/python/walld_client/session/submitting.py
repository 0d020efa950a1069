"""The steps of `submit` and `resume`: a new turn, or the first one of the same message.

Owns: what is sent of a message, and when another is the same. Refuses: what is done in a turn
(`turn_steps.py`), what is legal (the daemon says), sockets.

The daemon compares what entries hold, and an artifact is another content to it than what it stands
for. So the form of a content follows from it alone, whatever `meta` is beside it; and where the
first of its message has another form all the same (former clients looked at both, that of Node has
no artifacts), it is sent in that form. Where the second one leaves the attachments out, they are
those of the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from walld_client.argument_checks import (
    Dict,
    EntryId,
    Ident,
    PathOrDict,
    Seconds,
    Sources,
    as_declared,
)
from walld_client.encoding.value_encoding import brief
from walld_client.errors import Blocked, NotDurable, Refused, Unavailable
from walld_client.ids import id_of, new_entry_id
from walld_client.limits import BACKOFF_SECONDS_MIN
from walld_client.query.requests import is_passing
from walld_client.session import artifacts, entries
from walld_client.session.entries import Draft, Entry, draft
from walld_client.session.session_steps import SessionSteps, of_call, one_call
from walld_client.session.turn_steps import TurnSteps, find_turn
from walld_client.steps import Done, Steps, within
from walld_client.wire import messages as wire

__all__ = ["resume", "submit"]

_SHOWN_CHARS_MAX = 200
_CHECKED = ("ran", "did_not_run")
_JOURNAL = "journal"
"""As `calls`: the program writes an intent before it runs a call."""


@as_declared
def submit(
    session: SessionSteps,
    content: Any,
    *,
    message_id: Ident | None,
    retry_of: EntryId | None,
    stream_id: Ident | None,
    attachments: Sources,
    model: str | None,
    calls: str | None,
    timeout: Seconds,
    meta: dict[str, Any],
) -> Steps[TurnSteps]:
    """The user's message, synced before this returns. Its turn, or the first one of that id."""
    if calls not in (None, _JOURNAL):
        raise ValueError(f"calls of submit: got {calls!r:.80}, limit {_JOURNAL!r} | None")
    began = time.monotonic()
    turn_id = new_entry_id()
    told = new_entry_id() if message_id is None else message_id
    payload: dict[str, Any] = {"message_id": told, "content": content}
    if stream_id is not None:
        payload["stream_id"] = stream_id
    if model is not None:
        payload["model"] = model
    if calls is not None:
        payload["calls"] = calls
    if meta:
        payload["meta"] = meta
    retried = None if retry_of is None else id_of(retry_of)
    steps = _submit(session, turn_id, payload, retried, message_id is None, attachments)
    try:
        return (yield from within(timeout, steps))
    except (Unavailable, Refused) as error:
        if not is_passing(error):
            raise
        waited = time.monotonic() - began
        is_retry = retry_of is not None
        raise NotDurable(
            session.session_id, turn_id, told, waited, str(error), is_retry=is_retry
        ) from error


@as_declared
def resume(
    session: SessionSteps,
    *,
    workspace: PathOrDict | None,
    policy: Mapping[str, str] | Callable[[dict[str, Any]], str] | None,
    checked: Dict | None,
    accept: str | None,
    timeout: Seconds,
) -> Steps[TurnSteps]:
    """The gate, and behind its ok a new turn that goes on with the newest one, synced."""
    for word in (checked or {}).values():
        if word not in _CHECKED:
            raise ValueError(f"checked must be of {', '.join(_CHECKED)}, got {brief(word)}")
    if accept not in (None, "check"):
        raise ValueError(f"accept must be 'check' or None, got {brief(accept)}")
    began = time.monotonic()
    judged = _Judged(
        session,
        workspace,
        policy,
        {id_of(name): word for name, word in (checked or {}).items()},
        accept == "check",
        began + timeout,
    )
    try:
        return (yield from within(timeout, _resume(judged)))
    except Unavailable as error:
        if judged.sent is None:
            raise
        raise NotDurable(
            session.session_id,
            judged.turn_id,
            judged.message_id,
            time.monotonic() - began,
            str(error),
            is_claim=True,
        ) from error


class _Judged:
    """One claim, from its first judgement on.

    turn_id: of the turn that it would be. named: the one that it goes on with, and no other, once
    that was judged. sent: the claim as it was sent; it may stand in the log.
    """

    def __init__(
        self,
        session: SessionSteps,
        workspace: PathOrDict | None,
        policy: Mapping[str, str] | Callable[[dict[str, Any]], str] | None,
        checked: dict[str, str],
        accepts_check: bool,
        until: float,
    ) -> None:
        self.session, self.turn_id = session, new_entry_id()
        self.workspace, self.policy = workspace, policy
        self.checked, self.accepts_check = checked, accepts_check
        self.until = until
        self.named: str | None = None
        self.calls: list[dict[str, Any]] = []
        self.sent: wire.NewEntry | None = None
        self.message_id = ""

    def gate(self) -> Steps[tuple[int, dict[str, Any], dict[str, Any]]]:
        """(the seq that it is judged at, the gate's word, the newest turn). Refused, Blocked."""
        session = self.session
        state = yield from session.state()
        # With a policy, if an empty one: an older daemon, whose gate has no owners, is Unsupported.
        told = yield from session.resume_check(self.workspace, self.policy or {})
        turns = [] if state is None else state["turns"]
        if state is None or told is None or not turns:
            raise Refused("nothing_to_resume", "no turn", "a turn that was not completed")
        turn = turns[-1]
        owner = told["owner"]
        newest = turn["turn_id"]
        is_worked_on = owner is not None and owner["turn"] == newest
        if self.named not in (None, newest) or (is_worked_on and turn.get("retry_of")):
            who = yield from _claimed_by(session, turn, owner if is_worked_on else None)
            limit = f"{self.named or turn.get('retry_of')} is the newest turn"
            raise Refused("already_resumed", who, limit)
        # A session at which somebody is may grow as fast as it is asked for: that keeps it from
        # nobody, unless the turn is one that was not there yet, perhaps the claim that won.
        is_known = owner is not None and owner["turn"] in (None, *(one["turn_id"] for one in turns))
        if not is_known:
            yield from self._check_still(state["last_seq"])
        self.named = newest
        if turn["state"] == "completed" or told["boundary"] == "answered":
            got = "completed" if turn["state"] == "completed" else "answered"
            raise Refused("nothing_to_resume", f"turn {newest}, {got}", "a turn without an end")
        self._check(told)
        return state["last_seq"], told, turn

    def _check_still(self, seq: int) -> Steps[None]:
        """Raises Refused (`stale`) where state and gate were not told of the same log."""
        after = yield from self.session.state()
        if after is None or after["last_seq"] != seq:
            got = "no session" if after is None else str(after["last_seq"])
            text = "the session grew while it was judged, each time until the timeout"
            raise Refused("stale", got, str(seq), text)

    def _check(self, told: Mapping[str, Any]) -> None:
        """Raises Blocked where something keeps it that the caller has not looked at."""
        left = [
            reason
            for reason in told["reasons"]
            if reason["verdict"] != "check"
            or not (self.accepts_check or reason.get("call_id") in self.checked)
        ]
        if left:
            blocks = any(one["verdict"] == "blocked" for one in left)
            raise Blocked("blocked" if blocks else "check", left, told["calls"])
        self.calls = [
            one
            for one in told["calls"]
            if one["may"] != "read_result" and one["call_id"] not in self.checked
        ]

    def settled(self, told: Mapping[str, Any]) -> list[Draft]:
        """What the caller has looked at."""
        return [
            draft("tool_settled", {"of": of_call(one_call(told, name)), "word": word}, leaf=False)
            for name, word in self.checked.items()
        ]

    def again(self, error: Unavailable | Refused) -> Steps[None]:
        """The pause before it is asked once more. Raises `error` where its time is over."""
        if time.monotonic() + BACKOFF_SECONDS_MIN > self.until:
            raise error
        yield Done(lambda: time.sleep(BACKOFF_SECONDS_MIN))


def _resume(judged: _Judged) -> Steps[TurnSteps]:
    """By compare-and-set: what was judged is so when the turn stands in the log, or is judged anew.

    Of several that resume at once one wins, since the others' log has moved on then. A claim whose
    answer was lost may stand there: that is looked for before anything else is said of it.
    """
    while True:
        try:
            yield from _claimed(judged)
        except (Refused, Unavailable) as error:
            is_taken = judged.sent is not None and (yield from _is_taken(judged, judged.sent))
            if not is_taken:
                is_stale = isinstance(error, Refused) and error.code == "stale"
                if not is_stale and (isinstance(error, Refused) or judged.sent is None):
                    raise
                yield from judged.again(error)
                continue
        turn = yield from find_turn(judged.session, judged.turn_id, None)
        turn.calls = judged.calls
        return turn


def _claimed(judged: _Judged) -> Steps[None]:
    """One try. The turn that this process has claimed and not ended is that of this claim, too."""
    session = judged.session
    last_seq, told, newest = yield from judged.gate()
    if untold := [one for one in told["calls"] if _is_untold(one)]:
        for one in untold:
            yield from session.take_result(one["child"], of_call(one))
        last_seq, told, newest = yield from judged.gate()
    newest_id = newest["turn_id"]
    first = yield from _submitted(session, newest_id)
    judged.message_id = first["message_id"]
    if newest_id in told.get("own_turns", ()) and "claim" in first:
        # What is not open any more was said with the claim, or since.
        still = {one["call_id"] for one in told["calls"]}
        judged.checked = {name: word for name, word in judged.checked.items() if name in still}
        made = yield from session.made(judged.settled(told))
        if made:  # before the claim counts as sent: what is stale is judged anew, not passed over
            yield from session.placed(made, synced=True, expected_seq=last_seq)
        judged.turn_id, judged.sent = newest_id, _submission(newest_id, first)
        yield from session.placed([judged.sent], synced=True)  # it is there: that it is durable
        return
    drafts = judged.settled(told)
    if newest["state"] != "interrupted":  # its owner is gone, or asks
        drafts.append(draft("turn_interrupted", {"reason": "resumed"}, turn=newest_id))
    made = yield from session.made(drafts)
    # With the message of the turn that it goes on with, byte for byte.
    kept = ("message_id", "content", "attachments", "model", "calls", "meta")
    payload = {name: first[name] for name in kept if name in first}
    payload |= {"retry_of": newest_id, "claim": {"as_of": told["as_of"]}}
    judged.sent = _submission(judged.turn_id, payload)
    yield from session.placed([*made, judged.sent], synced=True, expected_seq=last_seq)


def _is_untold(call: Mapping[str, Any]) -> bool:
    """Its sub-agent is done, and was killed before it said so in this session."""
    is_told = call["state"] in ("finished", "failed", "observed")
    return bool(call.get("child")) and call["outcome"] == "done" and not is_told


def _submission(turn_id: str, payload: dict[str, Any]) -> wire.NewEntry:
    one = draft("turn_submitted", payload, id=turn_id, turn=turn_id, once=True)
    return entries.as_entry(one, entries.json_text(payload))


def _is_taken(judged: _Judged, sent: wire.NewEntry) -> Steps[bool]:
    """The claim stands in the log, durably. Raises Unavailable where nobody says so in time."""
    while True:
        try:
            if (yield from judged.session.turn_facts(judged.turn_id, None)) is None:
                return False
            yield from judged.session.placed([sent], synced=True)
        except Unavailable as error:
            yield from judged.again(error)
        else:
            return True


def _claimed_by(
    session: SessionSteps, turn: Mapping[str, Any], owner: Mapping[str, Any] | None
) -> Steps[str]:
    """Who has it, as the daemon says it of a retry. owner: who works on it now."""
    turn_id = turn["turn_id"]
    line = yield from _line(session, turn["submitted_seq"], f"turn {turn_id}")
    by = line.get("owner") or {"pid": 0, "boot": ""}
    pid = by["pid"] if owner is None else owner["pid"]
    of = f"process {pid} of boot {by['boot']}, since {line['at']}"
    return f"turn {turn_id}, {turn['state']}, {of}"


def _submit(
    session: SessionSteps,
    turn_id: str,
    payload: dict[str, Any],
    retry_of: str | None,
    is_drawn: bool,
    attachments: Sources,
) -> Steps[TurnSteps]:
    """is_drawn: the message id is nobody's, so a retry takes that of its turn."""
    told = payload["message_id"]
    retried: dict[str, Any] = {}
    if retry_of is not None:
        retried = yield from _submitted(session, retry_of)
        if is_drawn:
            payload["message_id"] = retried["message_id"]
        payload["retry_of"] = retry_of
    described = yield from _attached(session, attachments)
    inherited = {} if described else {"attachments": retried.get("attachments") or []}
    if described:
        payload["attachments"] = described
    key = None if retry_of is not None else told
    one = draft("turn_submitted", payload, id=turn_id, turn=turn_id, key=key, once=True)
    said = session.told(one)
    if inherited.get("attachments"):  # redacted once, as they stand there
        said = said | inherited
    if "content" in retried:
        yield from _check_same(session, retry_of, retried, said)
        entry = yield from _placed(session, one, said, retried)
    else:
        try:
            entry = yield from _placed(session, one, said)
        except Refused as refused:
            if refused.code != "message_id_taken" or retry_of is not None:
                raise
            first = yield from _known_by(session, told)
            if not (yield from _has_content(session, said, first)):
                raise
            if not described and first.get("attachments"):  # what is left out is as it was
                said = said | {"attachments": first["attachments"]}
            entry = yield from _placed(session, one, said, first)
    if entry.is_new:
        stream_id = payload.get("stream_id")
        streams = [] if stream_id is None else [stream_id]
        return TurnSteps(session, turn_id, payload["message_id"], streams)
    return (yield from _first(session, entry, told, said))


def _placed(
    session: SessionSteps,
    one: Draft,
    payload: dict[str, Any],
    first: Mapping[str, Any] | None = None,
) -> Steps[Entry]:
    """first: an entry of the same message, whose content has the form that is sent."""
    own, kept = ("content", None) if first is None else (None, "content")
    if first is not None:
        payload = payload | {"content": first["content"]}
    fitted = artifacts.fitted(session.session_id, payload, one.type, own=own, kept=kept)
    text = yield from fitted
    (entry,) = yield from session.placed([entries.as_entry(one, text)], synced=True)
    return entry


def _first(
    session: SessionSteps, entry: Entry, message_id: str, sent: dict[str, Any]
) -> Steps[TurnSteps]:
    """The turn that took this message id before. Refused where its content is another."""
    line = yield from _line(session, entry.seq, f"message_id {message_id}")
    kept = line.get("payload") or {}
    is_it = line.get("type") == "turn_submitted"
    if not is_it or not (yield from _has_content(session, sent, kept)):
        raise Refused(
            "message_id_taken",
            message_id,
            f"the content it was first submitted with (entry {entry.id}, seq {entry.seq})",
        )
    return (yield from find_turn(session, line.get("turn") or entry.id, None))


def _known_by(session: SessionSteps, message_id: str) -> Steps[dict[str, Any]]:
    """What was first submitted as that message; empty where its key does not find it."""
    for event in (yield from session.find("turn_submitted", key=message_id)):
        payload: dict[str, Any] = event["payload"]
        if payload.get("message_id") == message_id and payload.get("retry_of") is None:
            return payload
    return {}


def _has_content(
    session: SessionSteps, sent: Mapping[str, Any], kept: Mapping[str, Any]
) -> Steps[bool]:
    """Does an entry have the content that is sent, in whatever form?"""
    if "content" not in kept:
        return False
    content = entries.read_json(entries.json_text(sent["content"]))
    return (yield from artifacts.is_same(session.session_id, content, kept["content"]))


def _submitted(session: SessionSteps, turn_id: str) -> Steps[dict[str, Any]]:
    """What was submitted as that turn. Refused where there is none."""
    facts = yield from session.turn_facts(turn_id, None)
    if facts is None:
        limit = f"a turn of session {session.session_id}"
        raise Refused("unknown_turn", f"retry_of {turn_id}", limit)
    if "submitted_seq" not in facts:  # switched off
        return dict(facts)
    line = yield from _line(session, facts["submitted_seq"], f"retry_of {turn_id}")
    return dict(line["payload"]) | {"message_id": facts["message_id"]}


def _line(session: SessionSteps, seq: int, named: str) -> Steps[dict[str, Any]]:
    """The entry that submitted it: a message that is lost is not known to be the same."""
    try:
        return (yield from session.line(seq))
    except Refused as error:
        if error.code != "lost_entry":
            raise
        limit = "a message that is there: submit it anew, with another message_id and no retry_of"
        text = f"the message (entry {seq}) was lost to damage, or deleted with its session"
        raise Refused("lost_entry", named, limit, text) from None


def _check_same(
    session: SessionSteps,
    retry_of: str | None,
    retried: Mapping[str, Any],
    sent: Mapping[str, Any],
) -> Steps[None]:
    """A retry is of the same message: another one would be seen nowhere."""
    has_content = yield from _has_content(session, sent, retried)
    sent = entries.read_json(entries.json_text(sent))
    for name in ("message_id", "content", "attachments"):
        got, limit = sent.get(name), retried.get(name)
        is_same = (got or None) == (limit or None)
        if not (is_same or (name == "content" and has_content)):
            text = f"{name} of turn {retry_of}, its retry_of"
            raise Refused("message_id_taken", _shown(got), f"{_shown(limit)}, {text}")


def _shown(value: Any) -> str:
    return entries.json_text(value).decode()[:_SHOWN_CHARS_MAX]


def _attached(
    session: SessionSteps,
    attachments: Sources,
) -> Steps[list[Any]]:
    """Bytes and files become artifacts; a dict is the application's own description."""
    described: list[Any] = []
    for one in attachments:
        if isinstance(one, Mapping):
            described.append(dict(one))
        else:
            put = yield from artifacts.upload(session.session_id, one)
            described.append({"_artifact": put})
    return described
