"""What messages say of calls: outcomes, results, and calls that no message names.

Owns: the account's words in the items of a message, synthetic results, messages made of a journal's
calls and of what is left of replies that went. Refuses: the account (`state/account.py`), edits,
undos and compactions (`messages.py`), a provider's shape (the client's `provider.py`).

A call that only the journal names stands at its intent, in an assistant message without text;
parallel ones share a message. It goes with the entry before it, and is no entry: no undo counts it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

from walld.sessions.state.account import Calls, Unreleased
from walld.sessions.state.call_account import CallAccount

__all__ = ["journal_messages", "messages_of_gone_replies", "with_results", "without_unknown"]

_MAY_HAVE_RUN: Final = (
    "No result was recorded: the work stopped while this call may have been running. It may have"
    " taken effect. Check before you do it again."
)
_ENDS: Final = ("finished", "failed", "observed", "denied")
_UNKNOWN: Final = ("unknown", "running")  # no set: what an application says may be no word
_NOT_KEPT: Final = " Its arguments were not kept."
_CUT_OFF: Final = "This call was cut off ({}); what it had done by then is not known."


def with_results(
    message: dict[str, Any], calls: Calls, shown: Container[int] = ()
) -> dict[str, Any]:
    """The message with what the account knows of its calls; itself where it names none.

    shown: ids of the application's own results in the list: those stand there.
    """
    if message.get("role") != "assistant":
        return message
    of_item, changed = calls.of_item, dict[str, Any]()
    for name in ("tool_calls", "content"):
        listed = message.get(name)
        if not isinstance(listed, list):
            continue
        told = [
            one if (call := of_item.get(id(one))) is None else _facts(one, call, calls, shown)
            for one in listed
        ]
        changed[name] = told
    return message | changed if changed else message


def journal_messages(named: Sequence[CallAccount], calls: Calls) -> list[dict[str, Any]]:
    """Calls that no message names, which stand in a row, as messages."""
    messages: list[dict[str, Any]] = []
    group: list[CallAccount] = []
    for call in named:
        assert call.intent is not None, "its journal names it"
        seq = call.intent.seq
        item = {"id": call.call_id, "name": call.name, "arguments": call.arguments}
        item = _facts(item, call, calls)
        if group and group[0].turn == call.turn and not any(_ended(one, seq) for one in group):
            messages[-1]["tool_calls"].append(item)
            group.append(call)
            continue
        group = [call]
        told = {"role": "assistant", "content": "", "tool_calls": [item], "_turn": call.turn}
        messages.append(told | {"_wal_journal": call.intent.id})
    return messages


def messages_of_gone_replies(calls: Calls) -> list[tuple[Unreleased, dict[str, Any]]]:
    """Of turns' replies that went, messages of the calls that nothing else names."""
    found: dict[str, tuple[Unreleased, dict[str, Any]]] = {}
    for call in calls.calls:
        event = call.model_call
        if event is None or not call.is_of_gone_reply or call.turn not in calls.turns:
            continue
        if event.id not in found:
            told = {"role": "assistant", "content": "", "tool_calls": [], "_turn": call.turn}
            told["_wal_journal"] = event.id
            found[event.id] = Unreleased(call.stream or "", call.turn, [told], True), told
        item: dict[str, Any] = {"id": call.call_id, "name": call.name, "arguments": None}
        item["arguments_complete"] = False
        found[event.id][1]["tool_calls"].append(_facts(item, call, calls))
    return list(found.values())


def without_unknown(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the calls of which nobody knows whether they ran; their messages stay."""
    kept = []
    for message in messages:
        changed = {
            name: [one for one in listed if not _is_unknown(one)]
            for name in ("tool_calls", "content")
            if isinstance(listed := message.get(name), list)
        }
        if "_wal_journal" not in message or changed["tool_calls"]:
            kept.append(message | changed if changed else message)
    return kept


def _is_unknown(one: object) -> bool:
    return isinstance(one, dict) and one.get("synthetic") in _UNKNOWN


def _ended(call: CallAccount, seq: int) -> bool:
    never = seq + 1
    told = [call.seqs.get(stage, never) for stage in _ENDS]
    return min(*told, call.answered_seq or never) < seq


def _facts(
    item: dict[str, Any], call: CallAccount, calls: Calls, shown: Container[int] = ()
) -> dict[str, Any]:
    outcome = call.outcome
    facts = {**item, "outcome": outcome, "turn": call.turn}
    if call.child is not None:
        facts["child"] = call.child_session
    if call.message is not None and id(call.message) in shown and outcome != "not_run":
        return facts
    has_result, result = call.result()
    if call.superseded_by is not None:
        facts["superseded_by"] = call.superseded_by.call_id
    elif has_result:
        facts["result"] = result
        if call.message is not None or call.is_observed:
            facts["observed"] = True
    elif not call.is_served and (made := _synthetic(call, outcome, calls)) is not None:
        word, text = made
        facts["synthetic"] = word
        facts["result"] = text + (_NOT_KEPT if call.is_of_gone_reply else "")
    return facts


def _synthetic(call: CallAccount, outcome: str, calls: Calls) -> tuple[str, str] | None:
    """The word and the text that stand for a result nobody gave; None of a call that cannot have
    run, since the model decides anew.
    """
    if outcome == "denied" or (outcome == "unknown" and call.is_denied_late):
        who, why = call.denied_by()
        told = f": {why}" if isinstance(why, str) and why else ""
        late = "; it may have run before that" if outcome == "unknown" else ""
        return "denied", f"{who} rejected {call.name}{told}{late}"
    if outcome == "unknown":
        is_at_work = call.turn in calls.turns and call.turn not in calls.ended
        is_at_work = call.still_runs or (is_at_work and not call.is_told)
        return (
            ("running", "This call is still running.") if is_at_work else (outcome, _MAY_HAVE_RUN)
        )
    if outcome == "not_run":
        return "not_run", "This call did not run."
    if outcome == "done":
        return "ran", "This call ran; its result was not recorded."
    if outcome == "failed":
        return "failed", "This call failed; its result was not recorded."
    return (outcome, _CUT_OFF.format(outcome)) if outcome in ("timeout", "cancelled") else None
