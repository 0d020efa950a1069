"""The steps of one session's calls: read, fork, delete.

Owns: the meaning of each call in views. Refuses: sockets and waiting (`steps.py`), what is appended
(`append_steps.py`), turns (`turn_steps.py`), folding (the daemon's).

`session.py` and `aio_session.py` make methods of the functions here, so their texts are written
for the application.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal

from walld_client.argument_checks import (
    Beginning,
    Count,
    Dict,
    EntryId,
    Files,
    Ident,
    Name,
    OnlyWith,
    Path,
    PathOrDict,
    Place,
    Seq,
    Time,
    as_declared,
    wrong,
)
from walld_client.encoding.value_encoding import brief
from walld_client.errors import Refused, Unavailable, Unsupported
from walld_client.ids import id_of
from walld_client.limits import BACKOFF_SECONDS_MIN, EVENTS_PAGE, ID_BYTES_MAX
from walld_client.query.damage_log import told
from walld_client.query.requests import decode_page, decode_placed, decode_view
from walld_client.query.views import asked_view
from walld_client.recovered.provider import FORMATS, in_format
from walld_client.session import artifacts, entries
from walld_client.session.adopting import adopted, orphans
from walld_client.session.append_queue import AppendQueue
from walld_client.session.append_steps import Appending, Redact, Seen
from walld_client.session.entries import Entry, MessagePage, draft
from walld_client.session.fingerprint import (
    differing,
    fingerprint_pieces,
    is_long,
    workspace_fingerprint,
)
from walld_client.steps import Asked, Done, Steps
from walld_client.wire import messages as wire

__all__ = ["SessionSteps", "of_call", "one_call"]

_log = logging.getLogger("walld")
_SETTLED = ("ran", "did_not_run", "granted", "denied")
_OF_RAN = OnlyWith("word", ("ran",))
_OF_GRANTED = OnlyWith("word", ("granted",))
_TOLD = ("illegal_tool", "unknown_tool")
"""The call has a result already, or no journal has the call."""
_TRIES_MAX = 32
"""Of a settlement in a session that others append to: each judges it anew."""
_ASIDE = frozenset(("by", "note"))
"""Of a settlement: not what it says of the call."""
_NAMES = ("turn", "stream", "entry", "seq", "step", "place", "n", "call_id")
"""Of a settlement: what names the call."""
_POLICY_WORDS = ("allow", "ask", "deny")


class SessionSteps(Appending):
    """A session of one client."""

    __slots__ = ("_parent",)

    def __init__(
        self,
        session_id: str,
        redact: Redact,
        seen: Seen,
        append_queue: AppendQueue | None,
        app: str | None = None,
    ) -> None:
        super().__init__(session_id, redact, seen, append_queue, app)
        self._parent: SessionSteps | None = None
        """Of a session that `child` gave: the one that it works for."""

    # --- reading ---

    def messages(
        self,
        format: str = "plain",  # noqa: A002
        branch: EntryId | None = None,
        compacted: bool = True,
        unknown: Literal["say", "drop"] = "say",
        *,
        last: Count | None = None,
        before: str | None = None,
    ) -> Steps[MessagePage | None]:
        """The messages up to the leaf, or up to entry `branch`, or to the last one of the branch
        that is called so. None: never written.

        "plain": as they were appended, tool results included. "openai", "anthropic": safe to send.
        A reply of a turn that is not released stands in its turn. unknown: "drop" leaves out calls
        that may have run, or still run, and of which nobody said more; the model is told else.
        Long content is whole in each. Where its artifact is lost, "plain" keeps what names it
        beside `_artifact_lost`, and a provider is sent its beginning and a note.

        last: only so many, counted as "plain" has them, and some more where the first of them
        belongs to what stands before it: a result to its call, a call to its turn, a message to one
        that is sent as the same. before: `.before` of a page, for the page in front of it; None
        there says that it is the first. What is appended meanwhile is in no such page. Refused,
        code `stale`: the session has left the branch of that page.
        """
        if before is not None and last is None:
            raise ValueError("before needs last, the number of messages before it")
        if format not in FORMATS:
            raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
        if unknown not in ("say", "drop"):
            raise ValueError(f"unknown must be 'say' or 'drop', got {unknown!r:.80}")
        asked: dict[str, Any] = {"compacted": compacted}
        if unknown != "say":
            asked["unknown"] = unknown
        if branch is not None:
            asked["branch"] = branch
        if last is not None:
            asked["last"] = last
        if before is not None:
            asked["before"] = before
        try:
            found = yield from self.project("messages", **asked)
        except Refused as error:
            if error.code != "unknown_entry" or branch is None:
                raise
            asked["branch"] = yield from self.tip_of(branch, error)
            if asked["branch"] is None:
                return MessagePage()
            found = yield from self.project("messages", **asked)
        if found is None:
            return None
        listed = found if last is None else found["messages"]
        whole = []
        for one in listed:
            told = yield from artifacts.resolved(self.session_id, one, format != "plain")
            whole.append(told)
        page = MessagePage(in_format(whole, format))
        page.before = None if last is None else found["before"]
        return page

    def find(
        self,
        type: Name,  # noqa: A002
        key_prefix: Beginning | None = None,
        last: Count | None = None,
        *,
        key: Ident | None = None,
    ) -> Steps[list[dict[str, Any]]]:
        """Events of a type, those of a key or whose key begins so, the last n of them, in order.

        The daemon knows where the first and the newest event of a key are; for a prefix it reads
        the log, with `last` from its end.
        """
        if key is not None and key_prefix is not None:
            raise ValueError(f"find takes a key or a prefix, got {key!r} and {key_prefix!r}")
        arguments = {"type": type, "key": key, "key_prefix": key_prefix, "last": last}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        return (yield from self.project("find", **arguments)) or []

    def events(self, after: Seq = 0, branch: EntryId | None = None) -> Steps[list[dict[str, Any]]]:
        """Events with seqs above `after`, as they stand in the log.

        branch: only those on the path from the root to that entry, or to the last of the branch of
        that name.
        """
        found: list[dict[str, Any]] = []
        breaks: list[dict[str, Any]] = []
        first = after if branch is None else 0
        at, last = first, b""
        while True:
            page, more = yield from self._page(at, EVENTS_PAGE)
            if last and page[:1] != [last]:  # deleted between two pages, perhaps begun anew
                found, breaks, at, last = [], [], first, b""
                continue
            found += map(entries.read_json, page[1:] if last else page)
            breaks += [one for one in more if one not in breaks]
            if len(page) < EVENTS_PAGE:
                break
            # The last one comes once more: so the next page is seen to be of the same session.
            at, last = found[-1]["seq"] - 1, page[-1]
        self.breaks = told(self.session_id, breaks)
        if branch is None or not found:
            return found
        try:
            path = _path(found, id_of(branch), self.session_id)
        except Refused as error:
            tip = yield from self.tip_of(branch, error)
            path = [] if tip is None else _path(found, tip, self.session_id)
        return [one for one in path if one["seq"] > after]

    def state(self) -> Steps[dict[str, Any] | None]:
        """Turns, tools, settings, model, leaf: where the session stands. None: never written."""
        found: dict[str, Any] | None = yield from self.project("state")
        return found

    def project(self, /, name: Name, **arguments: Any) -> Steps[Any]:
        """A view of the session by name; None where it was never written.

        messages, state, turn, tree, branches, transcript, trace, audit, eval, pending, resume,
        explain, edit_target, find. A transcript has what was put beside the session; the others
        have what names it.
        """
        yield from self.delivered()
        text = entries.json_text(arguments)
        session_id = self.session_id
        answer = yield from asked_view(session_id, name, text, self._seen, breaks=True)
        found, breaks = decode_view(answer)
        if name != "turn":  # told without reading the session
            self.breaks = told(session_id, breaks)
        view = None if found is None else entries.read_json(found)
        if name == "transcript" and view is not None:
            return (yield from artifacts.resolved_turns(session_id, view))
        return view

    def read_artifact(self, sha256: str) -> Steps[bytes]:
        """The bytes of an artifact, by its hash in hex. Refused where it is gone or changed."""
        return (yield from artifacts.read(self.session_id, sha256))

    # --- the files beside it ---

    def checkpoint_workspace(self, root: Path, files: Files = ()) -> Steps[Entry]:
        """Remember what the workspace is now, for `resume_check` to compare.

        files: beside those that the session knows by now, which are hashed anew; the log gets the
        hashes that it does not have.
        """
        known, _ = yield from self._known_files()
        given = [os.fspath(one) for one in files]
        found = yield Done(lambda: workspace_fingerprint(root, [*known, *given]))
        found["files"] = {
            path: hashed
            for path, hashed in found["files"].items()
            if path not in known or known[path] != hashed
        }
        *parts, last = [
            draft("lifecycle", {"kind": "workspace_checkpoint", "fingerprint": one})
            for one in fingerprint_pieces(found)
        ]
        for one in parts:  # no request has room for all of them; the last one says that it is done
            yield from self.appended([one])
        return (yield from self.appended([last]))[0]

    def resume_check(
        self,
        workspace: PathOrDict | None = None,
        policy: Mapping[str, str] | Callable[[dict[str, Any]], str] | None = None,
    ) -> Steps[dict[str, Any] | None]:
        """May the work go on? What the gate says; None where nothing is kept of the id: also
        of one without a log whose replies were resolved or went for their age.

        workspace: its root, or a fingerprint made elsewhere, to compare with what it was. policy:
        what you allow now: {tool: "allow" | "ask" | "deny"}, "*" for any other tool, or a function
        that gives such a word for a call as `calls` has it. Unsupported where the daemon knows of
        no policy.
        """
        return (yield from self._of_gate("resume", workspace, policy))

    def explain(
        self,
        workspace: PathOrDict | None = None,
        policy: Mapping[str, str] | Callable[[dict[str, Any]], str] | None = None,
    ) -> Steps[dict[str, Any] | None]:
        """What was done, what was being said, what is unknown, what may be done now.

        state: live | waits | blocked | cut | done. asked, done, refused, unknown, saying, spent,
        verified; may: a row for each thing that is open, with the commands, or the Python, for it.
        Long texts are cut, and their length is told. Arguments are those of `resume_check`. None
        where nothing is kept of the id; Unsupported where the daemon knows no such view.
        """
        return (yield from self._of_gate("explain", workspace, policy))

    def _of_gate(
        self,
        view: str,
        workspace: PathOrDict | None,
        policy: Mapping[str, str] | Callable[[dict[str, Any]], str] | None,
    ) -> Steps[dict[str, Any] | None]:
        arguments: dict[str, Any] = {}
        if workspace is not None:
            arguments["workspace"] = yield from self._compared(workspace)
        if policy is not None:
            arguments["policy"] = yield from self._policy_now(policy)
        found: dict[str, Any] | None = yield from self.project(view, **arguments)
        return found

    def settle(
        self,
        call_id: EntryId,
        word: Literal["ran", "did_not_run", "granted", "denied"],
        *,
        result: Annotated[Any, _OF_RAN] = None,
        note: str | None = None,
        by: str | None = None,
        scope: Annotated[Dict, _OF_GRANTED] | None = None,
        expires_at: Annotated[Time, _OF_GRANTED] | None = None,
        turn: EntryId | None = None,
        stream_id: Ident | None = None,
        n: Count | None = None,
        force: bool = False,
    ) -> Steps[Entry]:
        """Say what became of a call of which nobody knows, or whether it may run; synced.

        ran, did_not_run: it did; the model is told so, of one that ran with `result` where you have
        it. granted: it may run, though it may have run before; until `expires_at`, seconds since
        1970, and for a call with these fields of its intent (`scope`). denied: it may not. by: who
        says it. turn, stream_id: of the call, where several have that id; n: the n-th of that id,
        as `resume_check` counts them. The newest word counts. What the newest says already, whoever
        says it now (`by`, `note`), is that entry; else it is a new one: a later `expires_at` renews
        a grant.

        Refused: `unknown_call`, none that is open has that id; `ambiguous_call`, several have it;
        `call_at_work`, its process lives, unless `force` says otherwise; `stale`, the session grew
        each time that it was judged.
        """
        if word not in _SETTLED:
            raise ValueError(f"word must be one of {', '.join(_SETTLED)}, got {brief(word)}")
        call_id, turn = id_of(call_id), None if turn is None else id_of(turn)
        tries = 0
        while True:
            tries += 1
            state = yield from self.state()
            # An older daemon knows no policy: Unsupported, since it would keep the entry unread.
            gate = yield from self.project("resume", missing_artifacts=[], policy={})
            call = one_call(gate, call_id, turn, stream_id, n)
            if call["why"] in ("at_work", "still_runs") and not force:
                limit = "a call at which nobody is; or force=True"
                raise Refused("call_at_work", call_id, limit, "its process lives: ask it")
            said = {"result": result, "note": note, "by": by, "scope": scope}
            said["expires_at"] = expires_at
            payload = {"of": of_call(call), "word": word}
            payload |= {name: value for name, value in said.items() if value is not None}
            first = (yield from self._said_before(payload)) if call["settled"] == word else None
            if first is not None:
                return (
                    yield from self.append(
                        "tool_settled", payload, id=first, once=True, leaf=False, synced=True
                    )
                )
            try:
                return (
                    yield from self.append(
                        "tool_settled",
                        payload,
                        leaf=False,
                        synced=True,
                        expected_seq=None if state is None else state["last_seq"],
                    )
                )
            except Refused as error:
                if error.code != "stale" or tries == _TRIES_MAX:
                    raise  # else somebody said more of it meanwhile: what was judged is no more
                yield Done(lambda: time.sleep(BACKOFF_SECONDS_MIN))

    def adopt(self, stream_id: Ident | None = None) -> Steps[list[Entry]]:
        """What a process that is gone had said becomes messages of the session, once; then its
        replies are resolved. The entries, in their order; none where nothing is left to adopt.

        stream_id: that reply alone, whichever application's; else all of this session that are this
        application's or name none. A message that was cut has `_partial`; in a turn it stands where
        it stood as a reply, and calls are as open as before. Killed anywhere within, or run twice:
        the same entries (`STREAM:SEQ` of each step's first event).
        Refused: its owner lives.
        """
        yield from self.delivered()
        made: list[Entry] = []
        for reply in (yield from orphans(self, stream_id, self._app)):
            tree = yield from self.project("tree")
            made += yield from adopted(self, reply, tree)
        return made

    def _said_before(self, payload: dict[str, Any]) -> Steps[str | None]:
        """The newest entry of that call, where it says the same, whoever said it, and why."""
        told = entries.read_json(entries.json_text(self.told(draft("tool_settled", payload))))
        call = told.pop("of")
        for event in reversed((yield from self.find("tool_settled"))):
            kept = dict(event["payload"])
            of = kept.pop("of", None)
            if not isinstance(of, dict) or any(call.get(one) != of.get(one) for one in _NAMES):
                continue
            for name in (told.keys() | kept.keys()) - _ASIDE:
                is_same = artifacts.is_same(self.session_id, told.get(name), kept.get(name))
                if not (yield from is_same):
                    return None
            return str(event["id"])
        return None

    def reads_grants(self) -> Steps[None]:
        """Unsupported where the daemon would keep a grant's scope and end and judge by neither.

        A daemon that knows no policy is such a one. It is asked once.
        """
        if not self._reads_grants:
            yield from self.project("resume", missing_artifacts=[], policy={})
            self._reads_grants = True

    def _policy_now(
        self, policy: Mapping[str, str] | Callable[[dict[str, Any]], str]
    ) -> Steps[dict[str, Any]]:
        """As the daemon takes it. A function is asked of the calls that are open now; one that
        comes until the gate is asked is to be asked about.
        """
        if not callable(policy):
            if not isinstance(policy, Mapping):
                raise wrong("policy", "a dict or a function or None", policy)
            words = {name: _policy_word(word) for name, word in policy.items()}
            return {"tools": words}
        gate = (yield from self.project("resume", missing_artifacts=[], policy={})) or {}
        calls = [
            {"turn": one["turn"], "call_id": one["call_id"], "word": _policy_word(policy(one))}
            for one in gate.get("calls", ())
            if one["may"] != "read_result"
        ]
        return {"tools": {"*": "ask"}, "calls": calls}

    def _compared(self, workspace: PathOrDict) -> Steps[Mapping[str, Any]]:
        """What the workspace is now, without the files that are as the log has them."""
        if isinstance(workspace, Mapping) and not is_long(workspace):
            return workspace
        known, as_of = yield from self._known_files()
        if isinstance(workspace, Mapping):
            now = workspace
        else:
            root = workspace
            now = yield Done(lambda: workspace_fingerprint(root, known))
        return now if as_of is None else differing(now, known, as_of)

    def _known_files(self) -> Steps[tuple[dict[str, Any], str | None]]:
        """What the log has as the hashes of files, as the gate says, and up to which entry that is;
        None of a daemon that does not say. No artifact is looked at.
        """
        gate = (yield from self.project("resume", missing_artifacts=[])) or {}
        then = (gate.get("workspace") or {}).get("then") or {}
        return dict(then.get("files") or ()), gate.get("as_of")

    @as_declared
    def forked(self, at: Place | None, new_id: Ident, whole: bool) -> Steps[SessionSteps]:
        """The session that `fork` makes."""
        other = SessionSteps(new_id, self._redact, self._seen, self._append_queue, self._app)
        yield from self.delivered()
        try:
            yield from self._forked(None if at is None else id_of(at), new_id, whole)
        except Refused as error:
            if error.code != "unknown_entry" or at is None:
                raise
            tip = yield from self.tip_of(at, error)
            yield from self._forked("" if tip is None else tip, new_id, whole)
        return other

    def _forked(self, at: str | None, new_id: str, whole: bool) -> Steps[None]:
        session_id, seen = self.session_id, self._seen
        answer = yield Asked(
            lambda request_id: wire.Fork(
                request_id, session_id, new_id, at, whole, seen(session_id)
            ),
            again=False,
        )
        decode_placed(answer)

    @as_declared
    def child(
        self,
        id: Ident,  # noqa: A002
        *,
        call_id: EntryId,
        turn: EntryId | None = None,
        stream_id: Ident | None = None,
        n: Count | None = None,
    ) -> Steps[SessionSteps]:
        """The session of the sub-agent whose work a call is; `session.child` says what follows."""
        if id == self.session_id:
            raise ValueError(f"id of child must be another session's, got {brief(id)}, this one's")
        call_id, turn = id_of(call_id), None if turn is None else id_of(turn)
        other = self._child(id)
        of = yield from self.named_call(id, call_id, turn, stream_id, n)
        # An older daemon knows no such view: Unsupported, since it would keep the entries unread.
        known = yield from other.project("child", session=self.session_id, of=of)
        joined = {"call_id": call_id, "of": of}
        payload = {"session": id} | joined
        name = "child:" + sha256(entries.json_text(payload)).hexdigest()[:32]
        yield from self.append("child", payload, id=name, once=True, leaf=False, synced=True)
        if known is None or not known["is_newest"]:
            payload = {"session": self.session_id} | joined
            yield from other.append("child_of", payload, leaf=False, synced=True)
        if known is not None and known["is_done"]:
            yield from self.take_result(id, of)
        return other

    # --- within ---

    def named_call(
        self,
        child: str,
        call_id: str,
        turn: str | None,
        stream_id: str | None,
        n: int | None,
    ) -> Steps[dict[str, Any]]:
        """What names the call that is, or was, the work of that child. Refused where none is."""
        gate = yield from self.project("resume", missing_artifacts=[], policy={})
        try:
            return of_call(one_call(gate, call_id, turn, stream_id, n))
        except Refused as error:
            if error.code != "unknown_call":
                raise
            for event in reversed((yield from self.find("child"))):  # of one that has its result
                of = event["payload"].get("of")
                is_it = isinstance(of, dict) and event["payload"].get("session") == child
                if is_it and of.get("call_id") == call_id and turn in (None, of.get("turn")):
                    return dict(of)
            raise

    def take_result(self, child: str, of: Mapping[str, Any]) -> Steps[None]:
        """What that child has said last becomes the result of the call, if it is done."""
        yield from self._child(child).tell_parent(session=self.session_id, of=of)

    def tell_parent(self, **named: Any) -> Steps[None]:
        """Once the work for a call is done, the call has its result in the parent's log.

        named: the call; else the newest. That this fails is no failure of the child: until it is
        told the parent's views look here.
        """
        if (parent := self._parent) is None:
            return
        try:
            told = yield from self.project("child", **named)
            if told is None or not told["is_done"] or told["session"] != parent.session_id:
                return
            of, name = told["of"], f"{self.session_id}:{told['turn']}:result"
            said = yield from artifacts.resolved(self.session_id, {"content": told["result"]})
            if of.get("turn") is None or "_artifact_lost" in said:
                return  # no journal has the call, or the words are gone
            if len(encoded := name.encode("utf-8", "surrogatepass")) > ID_BYTES_MAX:
                name = "result:" + sha256(encoded).hexdigest()
            payload = {"call_id": of["call_id"], "result": said["content"]}
            yield from parent.append(
                "tool_finished", payload, id=name, once=True, turn=of["turn"], leaf=False
            )
        except (Refused, Unavailable) as error:
            if not isinstance(error, Refused) or error.code not in _TOLD:
                text = "session %r: its parent has no result yet: %s"
                _log.warning(text, self.session_id, error)

    def _child(self, child: str) -> SessionSteps:
        other = SessionSteps(child, self._redact, self._seen, self._append_queue, self._app)
        other._parent = self
        return other

    def edit_target(self, name: str, *, with_role: bool) -> Steps[dict[str, str]]:
        """What an edit of a message that is named so changes, or why nothing; role: its role."""
        asked = {"role": True} if with_role else {}
        found: dict[str, str] | None = yield from self.project("edit_target", of=name, **asked)
        return {"target": name} if found is None else found

    def tip_of(self, branch: str | Entry, refused: Refused) -> Steps[str | None]:
        """The last entry of the branch of that name; None before the first.

        refused: what is raised where there is none, and where the daemon knows no such view.
        """
        try:
            named = yield from self.project("branches")
        except Unsupported:
            raise refused from None
        if named is None or (name := id_of(branch)) not in named:
            raise refused
        tip: str | None = named[name]["leaf"]
        return tip

    def turn_facts(
        self, turn_id: str | None, stream_id: str | None
    ) -> Steps[dict[str, Any] | None]:
        """What is told of the turn of that id, or of the one that a stream replies to."""
        found: dict[str, Any] | None
        found = yield from self.project("turn", turn_id=turn_id, stream_id=stream_id)
        return found

    def line(self, seq: int) -> Steps[dict[str, Any]]:
        """The event of that seq. Refused (`lost_entry`) where it was lost to damage, or deleted."""
        found = yield from self.lines(seq - 1, 1)
        event: dict[str, Any] = entries.read_json(found[0]) if found else {}
        if event.get("seq") != seq:
            text = "the entry was lost to damage, or deleted with its session"
            limit = f"an entry that session {self.session_id!r} has"
            raise Refused("lost_entry", f"seq {seq}", limit, text)
        return event

    def lines(self, after: int, limit: int = EVENTS_PAGE) -> Steps[list[bytes]]:
        """The first lines with seqs above `after`, as they stand in the log."""
        return (yield from self._page(after, limit))[0]

    def _page(self, after: int, limit: int) -> Steps[tuple[list[bytes], list[dict[str, Any]]]]:
        """Lines, and what is missing from them."""
        yield from self.delivered()
        session_id, seen = self.session_id, self._seen
        answer = yield Asked(
            lambda request_id: wire.Events(
                request_id, session_id, after, limit, None, seen(session_id), breaks=True
            )
        )
        lines, breaks = decode_page(answer)
        return lines or [], breaks


def _path(events: Sequence[dict[str, Any]], branch: str, session_id: str) -> list[dict[str, Any]]:
    """The events from the root to entry `branch`, as the daemon's views follow it.

    An entry whose parent was lost to damage hangs on the one before it.
    """
    places: dict[str, int] = {}
    parents: list[int] = []
    for place, one in enumerate(events):
        parent = one.get("parent")
        parents.append(-1 if parent is None else places.get(parent, place - 1))
        places.setdefault(one["id"], place)
    if branch not in places:
        raise Refused("unknown_entry", f"branch {branch}", f"an entry of session {session_id!r}")
    path, place = [], places[branch]
    while place >= 0:
        path.append(events[place])
        place = parents[place]
    return path[::-1]


def _policy_word(word: object) -> str:
    if not isinstance(word, str) or word not in _POLICY_WORDS:
        raise ValueError(f"policy must be one of {', '.join(_POLICY_WORDS)}, got {brief(word)}")
    return word


def of_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """What names a call of the gate in a `tool_settled`."""
    if "of" in call:
        return dict(call["of"])
    where = "stream" if call["turn"] is None else "turn"
    return {where: call[where], "call_id": call["call_id"]}


def one_call(
    gate: Mapping[str, Any] | None,
    call_id: str,
    turn: str | None = None,
    stream_id: str | None = None,
    n: int | None = None,
) -> dict[str, Any]:
    """The call that is meant, as the gate judges it. Raises Refused."""
    calls: list[dict[str, Any]] = [] if gate is None else gate["calls"]
    which = {"turn": turn, "stream": stream_id, "n": n}
    given = {name: value for name, value in which.items() if value is not None}
    of_id = [
        one
        for one in calls
        if one["call_id"] == call_id and (one["may"] != "read_result" or one["settled"] is not None)
    ]
    found = [one for one in of_id if all(one.get(name) == given[name] for name in given)]
    if not found and of_id:
        fits = {name for name in given if any(one.get(name) == given[name] for one in of_id)}
        wrong_ones = [name for name in given if name not in fits] or list(given)
        got = ", ".join(f"{name} {given[name]}" for name in wrong_ones)
        there = [", ".join(f"{name} {one.get(name)}" for name in wrong_ones) for one in of_id]
        text = f"no open call {call_id} is of that {' and '.join(wrong_ones)}"
        raise Refused("unknown_call", got, "; ".join(dict.fromkeys(there)), text)
    if not found:
        names = ", ".join(sorted({one["call_id"] for one in calls if one["may"] != "read_result"}))
        raise Refused(
            "unknown_call", call_id, names or "no call is open", "no open call has that id"
        )
    if len(found) > 1:
        places = ", ".join(_named(one) for one in found)
        text = "several calls have that id: turn=, stream_id=, n= (--turn, --stream, --n) say which"
        raise Refused("ambiguous_call", call_id, places, text)
    return found[0]


def _named(call: Mapping[str, Any]) -> str:
    place = call["turn"] or call["stream"] or "no turn"
    number = f", n {call['n']}" if "n" in call else ""
    return f"{call['tool']} ({call['state']}) of {place}{number}"
