"""One model call of LangChain's, from its messages: chunks of one, or one that came whole.

Owns: what a message adds to a reply. Refuses: the events of `stream_events(version="v3")`
(`langchain_events.py`), whose call it is and how it ends (`langchain.py`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from walld_client.adapters.frameworks.model_call import ModelCall
from walld_client.adapters.wires.call_names import CallNames
from walld_client.adapters.wires.wire import call_name

__all__ = ["Chunks", "refusal_of"]

_OF_A_TEXT = {"type", "text", "index"}


class Chunks:
    """A model call under way, from LangChain's messages."""

    def __init__(self, call: ModelCall, run_id: str) -> None:
        self.call = call
        self._run_id = run_id
        self._own = CallNames()
        self._ids: dict[Any, str] = {}
        """Calls by the index that their chunks have."""
        self._given: dict[str, str] = {}
        """The ids that their provider gave them."""
        self._made: set[str] = set()
        """Those to which it has given none."""
        self._names: dict[str, str] = {}
        """What each call is called so far."""
        self._calls = 0
        self._whole: Counter[str] = Counter()
        """The ids of those that came whole."""
        self._has_refused = False

    def text(self, message: Any) -> None:
        """A chunk whose content is a str, with nothing beside it but calls."""
        if message.content:
            self.call.token(message.content)
        for one in getattr(message, "tool_call_chunks", None) or ():
            self._called(one)

    def chunk(self, message: Any) -> None:
        """A chunk whose content is a list, or that has something beside it."""
        chunks: list[Any] = getattr(message, "tool_call_chunks", None) or []
        if _is_of_arguments_alone(message, chunks) and chunks[0].get("index") in self._ids:
            self._called(chunks[0])
            return
        text = None if chunks else _text_alone(message)
        if text is not None:
            if text:
                self.call.token(text)
            return
        self._blocks(message.content_blocks, message)
        for one in chunks:
            self._called(one)
        if not chunks:
            self._function(message.additional_kwargs)

    def whole(self, message: Any) -> None:
        """A message that was not streamed."""
        self._blocks(message.content_blocks, message)
        calls = getattr(message, "tool_calls", None) or []
        unread = getattr(message, "invalid_tool_calls", None) or []
        told = self._whole.copy()
        for one in (*calls, *unread):
            if (given := one.get("id")) and told[given]:
                told[given] -= 1
            else:
                self._asked(one)
        if not calls and not unread:
            self._function(message.additional_kwargs)

    def _blocks(self, blocks: Any, message: Any) -> None:
        for block in blocks:
            kind = block.get("type", "")
            if kind == "text":
                if block.get("text"):
                    self.call.token(block["text"])
            elif kind == "reasoning":
                if block.get("reasoning"):
                    self.call.reasoning(block["reasoning"])
                self._signed(block)
            elif kind in ("tool_call", "invalid_tool_call"):
                # Of a chunk they stand among its chunks of calls too; without an id they are left.
                if block.get("id") and not getattr(message, "tool_call_chunks", None):
                    self._asked(block)
            elif kind == "server_tool_call_chunk":
                self._called(block, server=True)
            else:
                self._served(block)
        self._refused(blocks, message.additional_kwargs)
        self._spoken(message.additional_kwargs)

    def _signed(self, block: Any) -> None:
        """What has to be sent back with a thought. Its index says of which: events tell it late."""
        extras = block.get("extras")
        told = {**block, **extras} if isinstance(extras, dict) else block
        for name in ("signature", "encrypted_content"):
            if (signature := told.get(name)) and isinstance(signature, str):
                self.call.event("signature", {"index": block.get("index"), "signature": signature})

    def _spoken(self, beside: dict[str, Any]) -> None:
        """The words of an audio."""
        audio = beside.get("audio")
        words = audio.get("transcript") if isinstance(audio, dict) else None
        if words and isinstance(words, str):
            self.call.token(words, transcript=True)

    def _served(self, block: Any) -> None:
        """A call that its provider runs, the result of one, or what is no text and no call."""
        kind = block.get("type", "")
        if kind == "server_tool_call":
            name = call_name(block.get("name"))
            self.call.tool(name, block.get("args"), call_id=block["id"], server=True)
        elif kind == "server_tool_result":
            failed, result = block.get("status") == "error", block.get("output")
            call_id = block.get("tool_call_id")
            self.call.tool_result(result, call_id=call_id, failed=failed, server=True)
        elif kind == "non_standard":
            value = block.get("value")
            if isinstance(value, dict) and value.get("type") == "redacted_thinking":
                about = {"index": block.get("index"), "data": value.get("data")}
                self.call.event("redacted_thinking", about)
            elif value and not refusal_of(block):
                self.call.event("unknown_block", {"block": value})
        elif kind and not kind.endswith("_chunk"):
            self.call.event("unknown_block", {"block": block})

    def _refused(self, blocks: Any, beside: dict[str, Any]) -> None:
        """A refusal: a block of the content, or beside it, or both."""
        said = [one for one in map(refusal_of, blocks) if one]
        if not said and beside.get("refusal"):
            said = [beside["refusal"]]
        for one in said:
            self._has_refused = True
            self.call.token(one, refusal=True)

    def _called(self, chunk: Any, **about: Any) -> None:
        """A piece of a call; as a rule only the first has its id, or none has."""
        index, given, name = chunk.get("index"), chunk.get("id"), chunk.get("name")
        known = self._call_of(index, given, name) if given or name else self._ids.get(index)
        if known is None:
            known = self._ids[index] = self._begun(given, name, **about)
        elif given or name:
            self._told_again(known, given, name, **about)
        if arguments := chunk.get("args"):
            self.call.tool_arguments(arguments, call_id=known)

    def _call_of(self, index: Any, given: str | None, name: Any) -> str | None:
        """The call that this is a piece of; None: of one that begins."""
        known = self._ids.get(index)
        if known is not None and index is not None and given and self._given.get(known) == given:
            return known
        if given and ((known is not None and index is not None) or not name):
            others = [one for one, its in self._given.items() if its == given]
            if others:
                return others[-1]
        if known is None or (index is None and (given or name)):
            return None
        # An id that is new is late, or drawn for each piece; with a name it is another call's.
        return known if not given or not name or known in self._made else None

    def _begun(self, given: Any, name: Any, **about: Any) -> str:
        """What the call is called that begins."""
        call_id, more = self._named(given)
        self._names[call_id] = name if isinstance(name, str) else ""
        self.call.tool(call_name(name), call_id=call_id, **about, **more)
        return call_id

    def _named(self, given: Any) -> tuple[str, dict[str, str]]:
        if given:
            call_id, more = self._own.begin(given)
            self._given[call_id] = given
            return call_id, more
        self._calls += 1
        call_id, more = self._own.begin(f"{self._run_id}:{self._calls}")
        self._made.add(call_id)
        return call_id, more

    def _told_again(self, call_id: str, given: Any, name: Any, **about: Any) -> None:
        """An id may come late; a name too, or in pieces, and said again it is the same."""
        is_late = bool(given) and call_id in self._made
        if is_late:
            self._made.discard(call_id)
            self._given[call_id] = about["given_id"] = given
        had = self._names.get(call_id, "")
        is_more = bool(name) and name != had and isinstance(name, str)
        if is_more:
            self._names[call_id] = name if name.startswith(had) else had + name
        if is_late or is_more:
            self.call.tool(call_name(self._names.get(call_id)), call_id=call_id, **about)

    def _asked(self, block: Any) -> None:
        """A call that came whole; of one that LangChain could not read, the arguments as text."""
        arguments, given = block.get("args"), block.get("id")
        call_id, more = self._named(given)
        if given:
            self._whole[given] += 1
        is_read = not isinstance(arguments, str)
        self.call.tool(
            call_name(block.get("name")), arguments if is_read else None, call_id=call_id, **more
        )
        if arguments and not is_read:
            self.call.tool_arguments(arguments, call_id=call_id)

    def _function(self, beside: dict[str, Any]) -> None:
        """The one `function_call` of before there were tools."""
        function = beside.get("function_call")
        if function:
            name, arguments = function.get("name"), function.get("arguments")
            self._called({"index": "function_call", "name": name, "args": arguments})


def _is_of_arguments_alone(message: Any, chunks: Any) -> bool:
    """Does a message of Anthropic's hold one call chunk and nothing else?"""
    content = message.content
    if len(content) == len(chunks) == 1 and isinstance(content[0], dict):
        return bool(content[0].get("type") == "input_json_delta")
    return False


def _text_alone(message: Any) -> str | None:
    """That of a message with one and nothing else, which `content_blocks` take 3 us to say."""
    content = message.content
    if len(content) == 1 and isinstance(content[0], dict) and not message.additional_kwargs:
        text = content[0].get("text")
        if content[0].get("type") == "text" and content[0].keys() <= _OF_A_TEXT:
            return text if isinstance(text, str) else None
    return None


def refusal_of(block: Any) -> str | None:
    """The refusal of a block of OpenAI Responses: LangChain has no kind of its own for it."""
    if not isinstance(block, dict):
        return None
    said = block.get("value") if block.get("type") == "non_standard" else block
    if isinstance(said, dict) and said.get("type") == "refusal":
        return said.get("refusal") or None
    return None
