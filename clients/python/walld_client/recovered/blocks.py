"""The content of a message as blocks: reads any dialect, writes a provider's.

Owns: which blocks are text, pictures in the shapes of both providers, what stands for content that
a provider cannot be sent. Refuses: calls and their results (`provider.py`), reading artifacts.

Read: text, or a list of text and blocks. Text is `text`, and `input_text` and `output_text` of
OpenAI's Responses; a picture is `image_url` (Chat), `input_image` (Responses), or `image` with a
`source` (Anthropic) or with `data` and `mimeType` (MCP).

Invariant: what is sent to a provider is a block it knows. Any other of the user's is a note that
it was there: a question about a picture that is not sent must not look like one about nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from walld_client.encoding import wtf8

__all__ = [
    "anthropic_block",
    "anthropic_result",
    "attached_blocks",
    "blocks_of",
    "openai_block",
    "plain_result",
    "text_block",
]

_TEXTS: Final = frozenset(("text", "input_text", "output_text"))
_PICTURE: Final = "picture"
"""Here alone: {"type", "url", "detail"?, "source"?}, the URL None where there is none."""
_OTHER: Final = {"type": "content"}
"""Here alone: what is no block at all."""
_OPENAI: Final = {"text": "text", "input_audio": "input_audio", "file": "file"}
_ANTHROPIC: Final = {"text": "text", "document": "source", "search_result": "content"}
"""Blocks that each takes, and the field that what they hold stands in."""
_PICTURES: Final = frozenset(("image/gif", "image/jpeg", "image/png", "image/webp"))
"""What Anthropic takes as bytes: it refuses a request with any other."""
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


def text_block(text: str) -> dict[str, Any]:
    """Text as both providers take it."""
    return {"type": "text", "text": text}


def blocks_of(content: object) -> Iterator[dict[str, Any]]:
    """Content as blocks with a type each, text and pictures in one shape; empty text is none."""
    for block in content if isinstance(content, list) else [content]:
        if block is None:
            continue
        if isinstance(block, str):
            block = text_block(block)
        elif isinstance(block, dict) and isinstance(named := block.get("_artifact"), dict):
            block = text_block(_stand_in(named))
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            yield _OTHER
        elif block["type"] in _TEXTS:
            text = block.get("text")
            if not isinstance(text, str):
                yield _OTHER
            elif text.strip():
                yield text_block(wtf8.scrub(text))
        else:
            safe = wtf8.jsonable(block)
            assert isinstance(safe, dict)
            yield _picture(safe) or safe


def attached_blocks(attached: object) -> Iterator[dict[str, Any]]:
    """What was attached to a message, each as a note: an application's own shapes are its own."""
    for one in attached if isinstance(attached, list) else []:
        is_artifact = isinstance(one, dict) and isinstance(one.get("_artifact"), dict)
        name = one.get("name") if isinstance(one, dict) else None
        told = f" {name}" if isinstance(name, str) and name else ""
        yield from blocks_of(one if is_artifact else f"[attachment{told}: not shown]")


def openai_block(block: dict[str, Any]) -> dict[str, Any]:
    """One of `blocks_of` in a user's message of OpenAI's Chat."""
    if block["type"] == _PICTURE and block["url"] is not None:
        detail = {"detail": block["detail"]} if isinstance(block.get("detail"), str) else {}
        return {"type": "image_url", "image_url": {"url": block["url"]} | detail}
    return block if _is_whole(block, _OPENAI) else _not_shown(block)


def anthropic_block(block: dict[str, Any]) -> dict[str, Any]:
    """One of `blocks_of` in a user's message of Anthropic's."""
    if block["type"] == _PICTURE:
        source = block.get("source")
        if not isinstance(source, dict) and block["url"] is not None:
            held = _DATA_URL.fullmatch(block["url"])
            source = {"type": "url", "url": block["url"]}
            if held is not None:
                source = {"type": "base64", "media_type": held[1], "data": held[2]}
        if not isinstance(source, dict) or not _is_taken(source):
            return _not_shown(block)
        return {"type": "image", "source": source}
    return block if _is_whole(block, _ANTHROPIC) else _not_shown(block)


def plain_result(content: object) -> object:
    """What a tool gave as text where it is blocks, of which some are text or pictures."""
    is_artifact = isinstance(content, dict) and isinstance(content.get("_artifact"), dict)
    blocks = list(blocks_of(content)) if isinstance(content, list) or is_artifact else []
    if blocks and all(block["type"] in ("text", _PICTURE) for block in blocks):
        shown = [block if block["type"] == "text" else _not_shown(block) for block in blocks]
        return "\n".join(block["text"] for block in shown)
    return content


def anthropic_result(content: object) -> list[dict[str, Any]]:
    """What a tool gave as blocks of Anthropic's, where it is text and pictures; else none."""
    blocks = list(blocks_of(content)) if isinstance(content, list) else []
    if not all(block["type"] in ("text", _PICTURE) for block in blocks):
        return []
    shown = [anthropic_block(block) for block in blocks]
    return shown if any(block["type"] == "image" for block in shown) else []


def _is_whole(block: dict[str, Any], fields: dict[str, str]) -> bool:
    """Another dialect may have a block of that name in another shape."""
    kind = block["type"]
    return kind in fields and isinstance(block.get(fields[kind]), (str, list, dict))


def _is_taken(source: dict[str, Any]) -> bool:
    kind, url = source.get("type"), source.get("url")
    if kind == "base64":
        media_type = source.get("media_type")
        is_picture = isinstance(media_type, str) and media_type in _PICTURES
        return is_picture and isinstance(source.get("data"), str)
    if kind == "url":
        return isinstance(url, str) and not url.startswith("data:")
    return isinstance(kind, str)


def _picture(block: dict[str, Any]) -> dict[str, Any] | None:
    """A picture of any dialect, None for any other block."""
    kind, url = block["type"], block.get("image_url")
    if kind in ("image_url", "input_image"):
        held = url if isinstance(url, dict) else block | {"url": url}
        told = held.get("url")
        made = {"type": _PICTURE, "url": told if isinstance(told, str) else None}
        return made | ({"detail": held["detail"]} if "detail" in held else {})
    if kind != "image":
        return None
    source = block.get("source")
    if not isinstance(source, dict):
        return {"type": _PICTURE, "url": _data_url(block.get("mimeType"), block.get("data"))}
    url = source.get("url") if source.get("type") == "url" else None
    if source.get("type") == "base64":
        url = _data_url(source.get("media_type"), source.get("data"))
    return {"type": _PICTURE, "url": url if isinstance(url, str) else None, "source": source}


def _data_url(media_type: object, held: object) -> str | None:
    if isinstance(media_type, str) and isinstance(held, str):
        return f"data:{media_type};base64,{held}"
    return None


def _not_shown(block: dict[str, Any]) -> dict[str, Any]:
    return text_block(f"[{block['type']}: not shown]")


def _stand_in(named: dict[str, Any]) -> str:
    """What is said of an artifact: how it begins, and that this is not all of it."""
    name, size, preview = (named.get(field) for field in ("name", "size", "preview"))
    told = f" {name}" if isinstance(name, str) and name else ""
    told += f", {size} bytes" if isinstance(size, int) else ""
    if isinstance(preview, str) and preview.strip():
        return f"{preview}\n[artifact{told}: only its beginning is shown]"
    return f"[artifact{told}: not shown]"
