"""What may be done next with a session that stopped: a row for each thing that is open.

Owns: the rows, their words and the commands to type. Refuses: what may be done with a call
(`resume.py`), which turn is to be gone on with (an argument), where a directory is: `DIR` in a
command is the application's, `DATA` the daemon's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from walld.sessions.gate.settle_targets import command_line, settle_command
from walld.sessions.state.account import Unreleased

__all__ = ["DATA", "DIR", "next_steps"]

DIR: Final = "DIR"
DATA: Final = "DATA"
"""In a command, as values of --workspace and --data, and of fsck."""
_ACTIONS: Final = {"run": "run", "check_then_run": "check"}
_OF_WORDS: Final = {
    "ran": "it ran",
    "did_not_run": "it did not run",
    "granted": "it may run, though it may have run before",
}
_ENDS: Final = ("ran", "did_not_run")
_OF_DECISION: Final = {"granted": "yes, it may run", "denied": "no, it may not"}
_OF_CALLS: Final = {
    "never_started": "it never started: who resumes may run it",
    "granted": "it may have run, and a person allowed it since: who resumes may run it",
    "nothing_to_repeat": "it may have run, and to run it again changes nothing",
    "safe": "it may have run, and it is safe to run it again",
    "approval_pending": "it waits for a yes or a no",
    "approval_stale": (
        "what allowed it has expired, was for something else, or the policy that was given asks"
        " anew: a yes or a no"
    ),
    "policy_denies": "the policy that was given denies it",
    "intent_lost": "it may have run, and what it was allowed is lost: say what became of it",
    "undeclared": "it may have run, and nobody said what it does: say what became of it",
    "cannot_see": "it may have run, and its process cannot be seen from here: look, then say so",
    "look_first": "it may have run: look whether it took effect, then say so",
    "still_runs": "the process that it started still runs: wait for its end, or end it",
}
_OF_LEFT: Final = {
    "never_started": "it never started, and no turn is left to run it: nothing is to be done",
    "granted": "it may have run, and no turn is left to run it again: say what became of it",
}
"""The same where no turn is to be gone on with: what may run then, nobody runs."""
_OF_CHILDREN: Final = {
    "run": "it is the work of session {}, which may go on there",
    "check_then_run": "it is the work of session {}, where something is to be looked at first",
    "never": "it is the work of session {}, which cannot go on yet",
}
_ABOUT_CALLS: Final = (
    *("turn", "call_id", "n", "tool", "arguments", "arguments_cut", "side_effect", "since_ms"),
    "child",
)
_MAY_HAVE_RUN: Final = "it may have run: look whether it took effect, then say so"
_OF_WORK: Final = frozenset(("at_work", "owner_unseen"))
_OF_WORKSPACE: Final = frozenset(("workspace_not_compared", "workspace_changed"))
_OF_FILE: Final = frozenset(("session_damaged", "log_unreadable"))
_PYTHON: Final = {
    "workspace_changed": "checkpoint_workspace({root})",
    "workspace_unknown": "checkpoint_workspace({root})",
    "budget_exhausted": 'append("budget", {{"remaining": N}})',
    "artifact_missing": "artifact(data)",
    "artifact_changed": "artifact(data)",
}
"""Code of a reason -> the call of a session that mends it, where no command does."""
_GO_ON: Final = {
    "ok": ("go on: who resumes gets its open calls", ""),
    "check": ("go on, once what is to be looked at was looked at", 'accept="check"'),
    "blocked": ("go on, once nothing stands in the way", ""),
}


def next_steps(
    session: str,
    gate: Mapping[str, Any],
    replies: Sequence[Unreleased],
    turn: str | None,
) -> list[dict[str, Any]]:
    """In the order in which they are taken: who is at work, calls, replies, what else stands in the
    way, turns.

    gate: what `resume()` said. turn: that stopped and is to be gone on with. A row is {action,
    what, code, turn, call_id, n, tool, stream_id, since_ms, commands: [{what, command}], python};
    what it is not about is None. since_ms: of a call, or of who is at work. That of a call has its
    arguments, arguments_cut and side_effect, too. action: wait | decide | check | settle | run |
    adopt | mend | resume. python: the expression that does it on a `client`, where no command does.
    """
    python = f"client.session({session!r})."
    root = _root_of(gate)
    rows = [_of_worker(one) for one in gate["reasons"] if one["code"] in _OF_WORK]
    rows += [
        _of_call(session, one, gate["calls"], is_resumed=turn is not None)
        for one in gate["calls"]
        if one["may"] != "read_result" and one["why"] != "at_work"
    ]
    still = [one for one in replies if one.status != "live" or not one.owner_alive]
    rows += [_of_reply(session, one) for one in still]
    for reason in gate["reasons"]:
        code = reason["code"]
        if code in _OF_WORK or reason.get("of_child") is not None:
            continue  # who is at work has a row; what is to be done for a child its call names
        if "why" in reason and "call_id" in reason:
            continue  # a call's own row
        mend = _PYTHON.get(code)
        rows.append(
            _row(
                "mend",
                reason["message"],
                _commands_for(reason.get("session", session), code, root),
                code=code,
                turn=reason.get("turn"),
                call_id=reason.get("call_id"),
                stream_id=reason.get("stream_id"),
                python=None if mend is None else python + mend.format(root=repr(root or "DIR")),
            )
        )
    if turn is not None and gate["owner"] is None and not gate["own_turns"]:
        what, more = _GO_ON[gate["status"]]
        if gate["workspace"]["then"] is not None:
            more = ", ".join(filter(None, (f"workspace={root or DIR!r}", more)))
        rows.append(_row("resume", what, turn=turn, python=f"{python}resume({more})"))
    return rows


def _row(action: str, what: str, commands: Sequence[tuple[str, str]] = (), **about: Any) -> Any:
    row: dict[str, Any] = {"action": action, "what": what}
    row |= dict.fromkeys(("code", "turn", "call_id", "n", "tool", "stream_id", "since_ms"))
    row |= {"commands": [{"what": of, "command": one} for of, one in commands], "python": None}
    return row | about


def _of_worker(reason: Mapping[str, Any]) -> dict[str, Any]:
    where = ""
    while (below := reason.get("of_child")) is not None:
        where, reason = f" of session {reason['session']}", below
    what = f"turn {reason['turn']}{where}"
    if reason["stream_id"] is not None:
        what = f"reply {reason['stream_id']}{where}"
    text = f"process {reason['pid']} is at work on {what}: wait for its end, or end it"
    if reason["code"] != "at_work":
        text = f"the process at work on {what} cannot be seen from here: wait, it may come back"
    about = {name: reason[name] for name in ("code", "turn", "stream_id", "since_ms")}
    return dict(_row("wait", text, **about))


def _of_call(
    session: str, call: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], *, is_resumed: bool
) -> dict[str, Any]:
    """is_resumed: a turn may be gone on with, and what may run with it; else it is settled."""
    why = call["why"]
    action = _ACTIONS.get(call["may"], "settle")
    is_left = action == "run" and why != "child" and not is_resumed
    if is_left:
        action = "settle"
    if why == "still_runs":
        action = "wait"
    elif not is_left and call["settle"] and "ran" not in call["settle"] and action == "settle":
        action = "decide"
    says = _OF_DECISION if action == "decide" else _OF_WORDS
    words, python = () if action == "run" else call["settle"], None
    what = _OF_CALLS.get(why, _MAY_HAVE_RUN)
    if is_left:  # a grant changes nothing
        what = _OF_LEFT.get(why, what)
        words = [one for one in words if one in _ENDS] or ["did_not_run"]
    if why == "child":
        what = _OF_CHILDREN[call["may"]].format(call["child"])
        action = "wait" if call["may"] == "never" else action
        commands = [_explain_child(call["child"])]
        python = f"client.session({call['child']!r}).resume()" if action == "run" else None
    else:
        commands = [(says[word], settle_command(session, call, calls, word)) for word in words]
    about = {name: call[name] for name in _ABOUT_CALLS}
    about |= {"stream_id": call["stream"], "code": why, "python": python}
    return dict(_row(action, what, commands, **about))


def _of_reply(session: str, reply: Unreleased) -> dict[str, Any]:
    about: dict[str, Any] = {"turn": reply.turn, "stream_id": reply.stream_id}
    if reply.owner_alive:
        what = "it has ended, and its process, which lives, has yet to release it"
        return dict(_row("wait", what, **about))
    of_it, last_seq = [("--stream", reply.stream_id)], reply.facts.get("last_seq")
    seen = [] if last_seq is None else [("--last-seq", str(last_seq))]
    commands = [
        ("print it whole", command_line("recover", [session], of_it)),
        ("make messages of it", command_line("session adopt", [session], of_it)),
        ("throw it away", command_line("resolve", [reply.stream_id], seen)),
    ]
    return dict(_row("adopt", "its process is gone, and nobody has it yet", commands, **about))


def _commands_for(session: str, code: str, root: str | None) -> list[tuple[str, str]]:
    if code in _OF_WORKSPACE:
        folder = [("--workspace", root or DIR)]
        return [("compare it with what is there", command_line("explain", [session], folder))]
    if code in _OF_FILE:
        mend = command_line("session repair", [session], [("--data", DATA)])
        return [("see what it cost", f"walld fsck {DATA}"), ("with no daemon on it", mend)]
    return [_explain_child(session)] if code == "child_unreadable" else []


def _explain_child(session: str) -> tuple[str, str]:
    return "see where that stands", command_line("explain", [session])


def _root_of(gate: Mapping[str, Any]) -> str | None:
    """Where the workspace was, where that was a git tree; else nobody wrote it down."""
    then = gate["workspace"]["then"]
    root = None if then is None else then.get("root")
    return root if isinstance(root, str) else None
