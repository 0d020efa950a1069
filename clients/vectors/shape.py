"""How a vector is written down, so that a client in any language can read it.

Owns: the JSON shape of messages and bytes. Refuses: which vectors there are.

Bytes are `{"hex": …}`. Long ones are `{"parts": [hex | {"hex": …, "times": n}, …]}`: the parts one
behind the other, each `times` times. Text carries its meaning beside its bytes, as a JSON string in
which a lone surrogate is escaped.
"""

from __future__ import annotations

from typing import Any

import msgspec
from walld_client.wire import framing

__all__ = ["bytes_of", "encoded", "fields_of", "in_parts"]

_LONG = 4096
_TEXT_FIELDS = ("text", "delta", "arguments", "result")


def bytes_of(vector: dict[str, Any]) -> bytes:
    """The bytes that a vector stands for."""
    if "hex" in vector:
        return bytes.fromhex(vector["hex"])
    pieces = []
    for part in vector["parts"]:
        if isinstance(part, str):
            pieces.append(bytes.fromhex(part))
        else:
            pieces.append(bytes.fromhex(part["hex"]) * part["times"])
    return b"".join(pieces)


def in_parts(*parts: bytes | tuple[bytes, int]) -> dict[str, Any]:
    """Bytes by construction."""
    return {
        "parts": [
            part.hex() if isinstance(part, bytes) else {"hex": part[0].hex(), "times": part[1]}
            for part in parts
        ]
    }


def encoded(message: msgspec.Struct) -> dict[str, Any]:
    """The frame of a message: hex, or parts where a long run of one byte stands in it."""
    frame = framing.encode(message)
    if len(frame) <= _LONG:
        return {"hex": frame.hex()}
    filler = _filler(message)
    start = frame.index(filler)
    return in_parts(frame[:start], (filler[:1], len(filler)), frame[start + len(filler) :])


def fields_of(message: msgspec.Struct) -> dict[str, Any]:
    """The fields by name, as JSON."""
    return {
        name: _plain(getattr(message, name), text=name in _TEXT_FIELDS)
        for name in message.__struct_fields__
    }


def _filler(message: msgspec.Struct) -> bytes:
    """The long field of a message that is made of one byte, repeated."""
    for name in message.__struct_fields__:
        value = getattr(message, name)
        value = value.encode() if isinstance(value, str) else value
        if isinstance(value, bytes) and len(value) > _LONG // 2 and len(set(value)) == 1:
            return value
    raise AssertionError(f"a long {type(message).__name__} must repeat one byte")


def _plain(value: object, *, text: bool = False) -> Any:
    if isinstance(value, bytes):
        if len(value) > _LONG // 2:
            return {"parts": [{"hex": value[:1].hex(), "times": len(value)}]}
        meaning = {"text": value.decode("utf-8", "surrogatepass")} if text else {}
        return {"hex": value.hex(), **meaning}
    if isinstance(value, msgspec.Struct):
        return {"message": type(value).__name__, "fields": fields_of(value)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
