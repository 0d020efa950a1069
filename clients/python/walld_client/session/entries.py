"""Entries of a session: what an application appends, as the wire takes it.

Owns: payloads as JSON text, the checks of an entry, what comes back of it. Refuses: asking
(`session_steps.py`), what a type means (the daemon knows), content that is too long
(`artifacts.py`).

A lone surrogate survives: it travels as an escape, which every reader of JSON gives back as it
was. What JSON cannot hold at all is its repr.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from walld_client.argument_checks import Dict, EntryId, Ident, Name, as_declared
from walld_client.encoding import value_encoding
from walld_client.encoding.cycle_check import Trail, taken_apart
from walld_client.errors import Unavailable
from walld_client.ids import Entry, new_entry_id
from walld_client.limits import APPEND_BYTES_MAX, PAYLOAD_BYTES_MAX
from walld_client.wire import messages

__all__ = [
    "Artifact",
    "Draft",
    "Entry",
    "MessagePage",
    "as_entry",
    "check_said",
    "check_size",
    "draft",
    "in_pieces",
    "json_text",
    "read_json",
]

_T = TypeVar("_T")

_SAID = {
    "message": ("content",),
    "message_edit": ("message", "messages"),
    "compaction": ("replacement",),
    "turn_submitted": ("content",),
}
"""What is said to a model. Elsewhere NaN is null: no work stops for a number that a tool gave."""
_DEPTH_MAX = 200
_REPR_CHARS_MAX = 1024
_PARTS = (Mapping, list, tuple, set, frozenset, msgspec.Struct)
_AROUND_BYTES = 1024
"""What stands around a list of messages in a payload."""
_NAMED_BYTES = 8 * 1024
"""A message whose content is an artifact: its preview, every letter an escape, and its name."""


class MessagePage(list[dict[str, Any]]):
    """Messages, in order. before: `messages(last=n, before=...)` takes it for the page in front of
    these; None where nothing stands there, or all were asked for.
    """

    before: str | None = None


class Artifact(Entry, frozen=True):
    """An entry that names an artifact. sha256: hex, what `read_artifact` takes."""

    sha256: str = ""
    size: int = 0


class Draft(msgspec.Struct, frozen=True):
    """An entry before its payload is text. `fields` are those of the wire's NewEntry."""

    type: str
    payload: dict[str, Any]
    fields: dict[str, Any]


@as_declared
def draft(
    type: Name,  # noqa: A002
    payload: Dict,
    *,
    id: EntryId | None = None,  # noqa: A002
    key: Ident | None = None,
    once: bool = False,
    leaf: bool = True,
    parent: EntryId | None = None,
    turn: EntryId | None = None,
    cause: EntryId | None = None,
    correlation: EntryId | None = None,
) -> Draft:
    """An entry to append. Raises TypeError or ValueError for what is none.

    An id that is drawn here is the client's own, so the entry may be sent twice and added once;
    not where it has a key, which `once` would look at instead.
    """
    fields = {
        "id": new_entry_id() if id is None else id,
        "key": key,
        "once": once or (id is None and key is None),
        "leaf": leaf,
        "parent": parent,
        "turn": turn,
        "cause": cause,
        "correlation": correlation,
        "at_ms": time.time_ns() // 1_000_000,
    }
    return Draft(type, dict(payload), fields)


def as_entry(one: Draft, payload: bytes) -> messages.NewEntry:
    """The entry as it travels."""
    return messages.NewEntry(one.type, payload, **one.fields)


def check_size(entries: Sequence[messages.NewEntry]) -> None:
    """ValueError where the entries do not fit one request."""
    size = sum(len(entry.payload) for entry in entries)
    if size > APPEND_BYTES_MAX:
        raise ValueError(
            f"{len(entries)} entries are {size} bytes together, limit {APPEND_BYTES_MAX}:"
            " all or none are appended, so append fewer at once"
        )


def check_said(type: str, payload: Mapping[str, Any]) -> None:  # noqa: A002
    """ValueError where what is said to a model holds a number that JSON cannot hold."""
    for name in _SAID.get(type, ()):
        if where := _not_finite(payload.get(name), name, {}):
            raise ValueError(f"{where} of a {type} is NaN or infinite, which JSON cannot hold")


def in_pieces(listed: Sequence[_T], bytes_max: int = PAYLOAD_BYTES_MAX) -> list[list[_T]]:
    """A list, of messages mostly, as lists that an entry holds each, or `bytes_max`.

    One that no entry holds counts as what is left of it once its content is an artifact.
    """
    pieces: list[list[_T]] = [[]]
    size = 0
    for one in listed:
        length = len(json_text(one)) + 1
        if length > PAYLOAD_BYTES_MAX - _AROUND_BYTES:
            length = _NAMED_BYTES
        if pieces[-1] and size + length > bytes_max - _AROUND_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(one)
        size += length
    return pieces


def json_text(value: object) -> bytes:
    """JSON text in one line. A lone surrogate becomes its escape. ValueError where too deep."""
    try:
        return msgspec.json.encode(value, enc_hook=value_encoding.held)
    except Exception:  # a lone surrogate, a key that is no str, a loop: take it apart
        try:
            plain = taken_apart(lambda trail: _plain(value, 0, trail))
            text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
            return text.encode("utf-8", "backslashreplace")  # \ud83d, as JSON has it too
        except RecursionError:
            text = f"nests far too deep to be JSON text: an entry has {_DEPTH_MAX} levels at most"
            raise ValueError(f"a {type(value).__name__} {text}") from None


def read_json(text: bytes) -> Any:
    """The value of JSON text of the daemon's, lone surrogates and long numbers included."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(text.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"walld answered what this client cannot read: {error}") from error


def _plain(value: object, depth: int, trail: Trail) -> object:
    """`value` out of nothing but what JSON holds, every text as it is."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, _PARTS):
        return repr(value)[:_REPR_CHARS_MAX]
    if depth >= _DEPTH_MAX:
        raise RecursionError
    if not trail.enters(value):
        return value_encoding.kind_of(value)
    fields = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
    try:
        if isinstance(fields, Mapping):
            return {
                key if isinstance(key, str) else str(key): _plain(one, depth + 1, trail)
                for key, one in fields.items()
            }
        return [_plain(one, depth + 1, trail) for one in fields]
    finally:
        trail.leaves(value)


def _not_finite(value: object, name: str, met: dict[int, object], depth: int = 0) -> str:
    """Where in `value`, which is called `name`, a NaN or an infinity stands; "" where none does.

    met: what was looked into, once is enough.
    """
    if isinstance(value, float):
        return "" if math.isfinite(value) else name
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = enumerate(value)
    if inner and depth < _DEPTH_MAX and id(value) not in met:
        met[id(value)] = value
        for key, one in inner:
            place = f"{name}[{value_encoding.clean(repr(key), 100)}]"
            if found := _not_finite(one, place, met, depth + 1):
                return found
    return ""
