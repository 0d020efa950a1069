"""Converts messages of an application's store for a provider.

Owns: what is sent of each message, in each format. Refuses: which messages there are (the daemon's
`sessions/views/messages.py`, which uses this too), replies that are not in the ledger yet
(`projections.py`, by the same rules), reading artifacts (`artifacts.py`), inventing anything.

Read: text or blocks as content (`blocks.py`); calls as `tool_calls` (with name and arguments, or
with a `function`) or as `tool_use` blocks; results within a call, as messages of role `tool`, or as
`tool_result` blocks, which go before those within a call. A result that the daemon made, since
nobody gave one, is within its call and has its word in `synthetic`; `not_run` goes before a result
that was there when somebody said so. Safe to send:
- a call goes with its result or not at all, right before it, and only where its name is known; a
  result without its call does not go;
- no two equal roles in a row (but one `tool` message a call, as openai has it): what would be is
  joined; no empty message; no key a provider does not know; other roles do not go, nor does
  an answer of which its writer says that it failed (`_attempt`);
- no reasoning, but to Anthropic blocks of thinking with its signature, and what it ran itself with
  its result, where they stood (`said.py`), and none of a recovered reply; messages of one answer
  (`answer_of`) are one, whatever results stand between them;
- text that stood behind a call which is sent is the next message's; where that text is cut
  (`_wal_cut`), it does not go;
- a result that is longer than TOOL_RESULT_CHARS is its halves, unless the application chose these
  words for the model (its own `tool` message, an observation);
- a summary has a sentence before it that says so (`summaries.py`);
- anthropic begins with the user; it knows no system message: there it is a user's, in <system>
  tags;
- content that still stands beside the session as an artifact (it is lost, or whoever asks reads it
  himself) is its preview and a note; so is what was attached to a message of the user's, the
  system's or a tool's;
- calls as `calls.py` makes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from walld_client.recovered.blocks import (
    anthropic_block,
    anthropic_result,
    attached_blocks,
    blocks_of,
    openai_block,
    plain_result,
    text_block,
)
from walld_client.recovered.calls import (
    CallsOfId,
    ProviderCall,
    anthropic_results,
    openai_assistant,
    sendable_arguments,
    sendable_id,
)
from walld_client.recovered.plain_calls import with_plain_calls
from walld_client.recovered.said import (
    Said,
    answer_of,
    answer_parts,
    cut_behind_calls,
    is_served,
)
from walld_client.recovered.summaries import introduced

__all__ = [
    "FORMATS",
    "TOOL_RESULT_CHARS",
    "anthropic_messages",
    "blocks_alone",
    "in_format",
    "openai_messages",
    "set_apart",
]

FORMATS: Final = ("plain", "openai", "anthropic")

_SYSTEM: Final = frozenset(("system", "developer"))
_THINKING: Final = frozenset(("thinking", "redacted_thinking"))
_TOOL_BLOCKS: Final = frozenset(("tool_use", "tool_result"))
_CALL_BLOCKS: Final = frozenset(("tool_use", "toolCall"))
"""pi's, too: they say where a call stands that is listed."""
_RESULTS: Final = ("done", "failed", "timeout", "cancelled")  # no set: an outcome may be no word
_FAILED: Final = _RESULTS[1:]

TOOL_RESULT_CHARS: Final = 16_384
"""Of a result that a journal or a reply has, so many go to a provider."""
_GOES_ON: Final = "(the conversation goes on)"
_BLANK_LINE: Final = "\n\n"


def in_format(messages: list[dict[str, Any]], format: str) -> list[dict[str, Any]]:  # noqa: A002
    """Messages as they are, but for text that a call parts and calls, which have one shape; or as
    that provider takes them.
    """
    messages = [set_apart(message) for message in messages]
    if format == "openai":
        return openai_messages(messages)
    if format == "anthropic":
        return anthropic_messages(messages)
    return [with_plain_calls(message) for message in messages]


def set_apart(message: dict[str, Any]) -> dict[str, Any]:
    """The message with a blank line between text before and behind a call, where neither side has
    white space there: what the model said before and after would read as one word.

    `at` of a call stays the end of the text before it; `behind` is where the text behind it begins.
    """
    content, listed = message.get("content"), message.get("tool_calls")
    if not isinstance(content, str) or not isinstance(listed, list):
        return message
    calls = [one for one in listed if isinstance(one, dict) and type(one.get("at")) is int]
    places = {one["at"] for one in calls if _is_glued(content, one["at"])}
    if not places:
        return message
    cuts = sorted(places)

    def moved(one: Any) -> Any:
        if not isinstance(one, dict) or type(at := one.get("at")) is not int:
            return one
        before = len(_BLANK_LINE) * bisect_left(cuts, at)
        told = one | {"at": at + before}
        if at in places:
            told["behind"] = at + before + len(_BLANK_LINE)
        elif type(one.get("behind")) is int:
            told["behind"] = one["behind"] + before
        return told

    text = _BLANK_LINE.join(content[one:two] for one, two in pairwise([0, *cuts, len(content)]))
    return message | {"content": text, "tool_calls": [moved(one) for one in listed]}


def _is_glued(content: str, at: int) -> bool:
    return 0 < at < len(content) and not (content[at - 1].isspace() or content[at].isspace())


def openai_messages(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chat messages: system, user, assistant (with tool_calls), one tool message a result ..."""
    sent: list[dict[str, Any]] = []
    for said in _told(messages):
        if said.role == "assistant":
            sent += openai_assistant(said.text, said.calls)
            continue
        blocks = [openai_block(block) for block in said.blocks]
        # Text where there is nothing else; a system message has nothing else.
        has_text_alone = said.role == "system" or all(one["type"] == "text" for one in blocks)
        told = "\n\n".join(one["text"] for one in blocks if one["type"] == "text")
        sent.append({"role": said.role, "content": told if has_text_alone else blocks})
    return sent


def anthropic_messages(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of content blocks: user, assistant (tool_use ...), user (tool_result ...) ..."""
    sent: list[dict[str, Any]] = []
    for said in _told(messages):
        role = said.role
        if role == "assistant":
            blocks = said.assistant_content()
        elif role == "system":
            role, blocks = "user", [text_block(f"<system>\n{said.text}\n</system>")]
        else:
            blocks = [anthropic_block(block) for block in said.blocks]
        if not sent and role == "assistant":
            sent.append({"role": "user", "content": [text_block(_GOES_ON)]})
        if sent and sent[-1]["role"] == role:
            sent[-1]["content"] += blocks
        else:
            sent.append({"role": role, "content": blocks})
        if said.calls:
            sent.append(anthropic_results(said.calls))
    return sent


def _told(messages: Iterable[dict[str, Any]]) -> list[Said]:
    """What may be sent, no side twice in a row unless a result stands between."""
    told: list[Said] = []
    for whole in _read(messages):
        whole.settle()
        for said in cut_behind_calls(whole) if whole.role == "assistant" else [whole]:
            _add(told, said)
    _tidy_last(told)
    if told and told[-1].role == "assistant" and not told[-1].calls:
        told[-1].strip()  # a provider refuses a last message that ends in white space
    return told


def _add(told: list[Said], said: Said) -> None:
    if not said.parts:
        return
    if told and told[-1].role != said.role:
        _tidy_last(told)
    if told and told[-1].role == said.role and not told[-1].calls:
        told[-1].parts += said.parts
    else:
        _tidy_last(told)
        told.append(said)


def _tidy_last(told: list[Said]) -> None:
    """Nothing more is joined to it: it goes where something is left of it."""
    if told and told[-1].role == "assistant":
        told[-1].tidy()
        if not told[-1].parts:
            told.pop()


def _read(messages: Iterable[dict[str, Any]]) -> list[Said]:
    """Each message by itself, or each answer, the results with their calls."""
    said: list[Said] = []
    open_calls: dict[str, CallsOfId[ProviderCall | None, tuple[object, bool]]] = {}
    within: list[tuple[ProviderCall, dict[str, Any], bool]] = []
    taken: set[str] = set()
    for message in messages:
        role = message.get("role")
        role = "system" if role in _SYSTEM else role
        if role == "tool":
            _answer(open_calls, message, _with_attached(message))
            continue
        if role not in ("user", "assistant", "system") or "_attempt" in message:
            continue
        one = Said(role, answer=answer_of(message), is_cut=bool(message.get("_wal_cut")))
        blocks = list(blocks_of(message.get("content")))
        if role != "assistant":
            blocks = introduced(message, blocks)
            blocks += attached_blocks(message.get("attachments"))
        if role == "assistant":
            calls = _calls(message, blocks, open_calls, within, taken)
            one.parts = answer_parts(message, blocks, calls)
        else:
            one.parts = [
                block
                for block in blocks
                if block["type"] not in _THINKING | _TOOL_BLOCKS
                and (role == "user" or block["type"] == "text")
            ]
            for block in blocks:
                if block["type"] == "tool_result":
                    _answer(open_calls, block, block.get("content"))
        if one.answer is not None and said and said[-1].answer == one.answer:
            said[-1].parts += one.parts
        else:
            said.append(one)
    for of_id in open_calls.values():
        for answered, given in of_id.pairs():
            if answered is not None:
                _answered(answered, *given)
    for call, told, is_failed in within:
        if not call.answered or told.get("synthetic") == "not_run":
            _answered(call, told.get("result"), is_failed)
            if not told.get("observed") and "synthetic" not in told:
                _in_halves(call, told.get("_result_sha256"))
    return said


def _with_attached(result: dict[str, Any]) -> object:
    """What a tool gave, and a note of each file that went with it."""
    content, notes = result.get("content"), list(attached_blocks(result.get("attachments")))
    return [*(content if isinstance(content, list) else [content]), *notes] if notes else content


def _calls(
    message: dict[str, Any],
    blocks: list[dict[str, Any]],
    open_calls: dict[str, CallsOfId[ProviderCall | None, tuple[object, bool]]],
    within: list[tuple[ProviderCall, dict[str, Any], bool]],
    taken: set[str],
) -> list[ProviderCall]:
    """The calls of a message that can be sent once they have a result. within: those the message
    itself brings.
    """
    listed = message.get("tool_calls")
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    alone, both = blocks_alone(found, [one for one in blocks if one["type"] in _CALL_BLOCKS])
    found += [one for one in alone if one["type"] == "tool_use"]
    standing = {id(item): block for block, item in both} | {id(one): one for one in alone}
    served = [block.get("id") for block in blocks if is_served(block)]
    calls = []
    for one in found:
        if one.get("id") in served:
            continue  # the provider ran it: it goes as it came
        function = one.get("function")
        told = function if isinstance(function, dict) else one
        given, name = one.get("id"), told.get("name")
        named = "input" if one.get("type") == "tool_use" else "arguments"
        arguments = sendable_arguments(told.get(named))
        if not isinstance(given, str):
            continue
        named_so = open_calls.setdefault(given, CallsOfId())
        if not isinstance(name, str) or not name or "_artifact" in arguments:
            named_so.say(None, one.get("turn"))  # its arguments may stand beside the session
            continue
        call = ProviderCall(sendable_id(given, len(taken), taken), str(name), arguments)
        calls.append(call)
        at = one.get("at")
        call.at = at if isinstance(at, int) and at >= 0 else None
        call.behind = behind if type(behind := one.get("behind")) is int else None
        call.block = standing.get(id(one))
        word = one.get("synthetic")
        if "superseded_by" in one:
            named_so.say(None, one.get("turn"))
            continue  # a later call of the same message tells
        if one.get("outcome") in _RESULTS or isinstance(word, str):
            is_failed = one.get("outcome") in _FAILED or (word is not None and word != "ran")
            within.append((call, one, is_failed))
        named_so.say(call, one.get("turn"))
    return calls


def blocks_alone(
    items: list[dict[str, Any]], blocks: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[tuple[dict[str, Any], dict[str, Any]]]]:
    """`tool_use` blocks that no item of the message's `tool_calls` says too, and those that one
    does, each with that item: some programs keep both forms of a call.
    """
    by_id: dict[object, list[dict[str, Any]]] = {}
    for item in items if blocks else ():
        if isinstance(item.get("id"), str):
            by_id.setdefault(item["id"], []).append(item)
    alone, both = [], []
    for block in blocks:
        named = by_id.get(block["id"]) if isinstance(block.get("id"), str) else None
        if named:
            both.append((block, named.pop(0)))
        else:
            alone.append(block)
    return alone, both


def _in_halves(call: ProviderCall, whole: object) -> None:
    """A long result without its middle. whole: hash of the artifact that has all of it."""
    text = call.result
    if len(text) <= TOOL_RESULT_CHARS:
        return
    half, left_out = TOOL_RESULT_CHARS // 2, len(text) - TOOL_RESULT_CHARS
    said = f"[... {left_out:,} of {len(text):,} characters left out"
    said += f"; whole: artifact sha256:{whole}]" if isinstance(whole, str) else "]"
    call.result, call.blocks = f"{text[:half]}\n{said}\n{text[-half:]}", ()


def _answer(
    open_calls: dict[str, CallsOfId[ProviderCall | None, tuple[object, bool]]],
    told: dict[str, Any],
    content: object,
) -> None:
    """A result to the open call it names; one that names none is an orphan."""
    for name in ("tool_call_id", "tool_use_id", "call_id", "id"):
        given = told.get(name)
        if isinstance(given, str) and given in open_calls:
            failed = told.get("is_error") is True or told.get("outcome") in _FAILED
            open_calls[given].answer((content, failed))
            return


def _answered(call: ProviderCall, content: object, failed: bool) -> None:
    call.answer(plain_result(content), failed, anthropic_result(content))
