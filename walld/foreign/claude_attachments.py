"""What Claude Code attaches to what is said: files, selections, memory, words of hooks.

Owns: which attachments the model was given something by, and what that was, as a message of the
user's. Refuses: where it stands (`claude.py`), what the program says of itself (its modes, tools
and budgets), which stays an event.

Claude Code sends these in the user's role, in the tags that are here, in words of its own that
stand in no file: those here are ours. What was typed while the model worked, and what teammates
said, is sent as it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from walld.foreign.entries import message
from walld.foreign.lines import as_text, rest, text_or_none

__all__ = ["attached"]

_HOOKS_HEARD: Final = ("SessionStart", "UserPromptSubmit")
"""Hooks whose output is told when all went well."""


def attached(value: dict[str, Any]) -> dict[str, Any] | None:
    """The message of a line with an attachment; None where the model was told nothing by it, or
    what that was does not stand in the line.
    """
    held = value.get("attachment")
    kind = held.get("type") if isinstance(held, dict) else None
    if not isinstance(held, dict) or not isinstance(kind, str):
        return None
    if kind == "queued_command" and isinstance(held.get("prompt"), (str, list)):
        foreign = rest(value, "attachment") | {"attachment": rest(held, "prompt")}
        return message("user", held["prompt"], foreign=foreign)
    if kind == "teammate_mailbox":
        mail = _mail(held.get("messages"))
        return message("user", mail, foreign=value) if mail else None
    told = _TOLD[kind](held) if kind in _TOLD else None
    if not told:
        return None
    text, *blocks = (told,) if isinstance(told, str) else told
    reminder = f"<system-reminder>\n{text}\n</system-reminder>"
    content = [{"type": "text", "text": reminder}, *blocks] if blocks else reminder
    return message("user", content, foreign=value)


def _mail(listed: object) -> str:
    """What teammates said, each in the tags in which Claude Code sends it."""
    told = []
    for one in _objects(listed):
        if (text := text_or_none(one.get("text"))) is not None:
            name = f' teammate_id="{one["from"]}"' if text_or_none(one.get("from")) else ""
            told.append(f"<teammate-message{name}>\n{text}\n</teammate-message>")
    return "\n\n".join(told)


_Told = str | tuple[Any, ...] | None
"""Text, and blocks behind it."""


def _file(held: dict[str, Any]) -> _Told:
    name, content = _name(held), held.get("content")
    if name is None:
        return None
    if isinstance(content, str):
        return f"The file {name}:\n{content}"
    file = content.get("file") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(file, dict):
        return None
    kind, data = content.get("type"), text_or_none(file.get("base64"))
    if kind == "image" and data is not None:
        return f"The file {name}:", _held("image", file.get("type"), data)
    if kind == "pdf" and data is not None:
        return f"The file {name}:", _held("document", "application/pdf", data)
    if kind == "notebook" and isinstance(file.get("cells"), list):
        return f"The cells of {name}:\n{as_text(file['cells'])}"
    if (text := file.get("content")) is None or not isinstance(text, str):
        return None
    start = file.get("startLine")
    part = f", from line {start} on" if isinstance(start, int) and start > 1 else ""
    return f"The file {name}{part}:\n{text}"


def _held(kind: str, media_type: object, data: str) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def _reference(held: dict[str, Any]) -> _Told:
    name = _name(held)
    return None if name is None else f"The file {name} was read; what is in it is not shown here."


def _directory(held: dict[str, Any]) -> _Told:
    name, content = _name(held), text_or_none(held.get("content"))
    return None if name is None or content is None else f"The directory {name}:\n{content}"


def _edited(held: dict[str, Any]) -> _Told:
    if (name := _name(held)) is None:
        return None
    snippet = text_or_none(held.get("snippet"))
    return f"{name} was changed meanwhile" + (f":\n{snippet}" if snippet is not None else ".")


def _selected(held: dict[str, Any]) -> _Told:
    name, content = _name(held), text_or_none(held.get("content"))
    if name is None or content is None:
        return None
    lines = f"lines {held.get('lineStart')} to {held.get('lineEnd')}"
    return f"The user selected {lines} of {name}:\n{content}"


def _opened(held: dict[str, Any]) -> _Told:
    return None if (name := _name(held)) is None else f"The user has {name} open in the editor."


def _memory(held: dict[str, Any]) -> _Told:
    content = held.get("content")
    holder = content if isinstance(content, dict) else held
    text = text_or_none(holder.get("content"))
    name = text_or_none(holder.get("path")) or _name(held)
    return None if text is None else f"{name or 'Memory'}:\n{text}"


def _memories(held: dict[str, Any]) -> _Told:
    told = (_memory(one) for one in _objects(held.get("memories")))
    return "\n\n".join(one for one in told if isinstance(one, str))


def _skills(held: dict[str, Any]) -> _Told:
    listed = _objects(held.get("skills"))
    told = ((one.get("name"), text_or_none(one.get("content"))) for one in listed)
    return "\n\n".join(f"The skill {name}:\n{text}" for name, text in told if text is not None)


def _resource(held: dict[str, Any]) -> _Told:
    content = held.get("content")
    listed = _objects(content.get("contents") if isinstance(content, dict) else None)
    texts = [text for one in listed if (text := text_or_none(one.get("text"))) is not None]
    where = f"The resource {held.get('uri')} of {held.get('server')}"
    return f"{where}:\n" + "\n".join(texts) if texts else None


def _diagnostics(held: dict[str, Any]) -> _Told:
    told = [
        f"{file.get('uri')}: {one.get('severity', 'note')}: {text}"
        for file in _objects(held.get("files"))
        for one in _objects(file.get("diagnostics"))
        if (text := text_or_none(one.get("message"))) is not None
    ]
    return "\n".join(["New diagnostics:", *told]) if told else None


def _tasks(held: dict[str, Any]) -> _Told:
    listed = held.get("content")
    return f"The tasks as they stand:\n{as_text(listed)}" if listed else None


def _plan(held: dict[str, Any]) -> _Told:
    text = text_or_none(held.get("planContent"))
    return None if text is None else f"The plan in {held.get('planFilePath')}:\n{text}"


def _text(held: dict[str, Any]) -> _Told:
    content = held.get("content")
    if isinstance(content, list):
        content = "\n".join(one for one in content if isinstance(one, str))
    return content if isinstance(content, str) and content.strip() else None


def _date(held: dict[str, Any]) -> _Told:
    date = text_or_none(held.get("newDate"))
    return None if date is None else f"The date is {date} now."


def _hook(held: dict[str, Any]) -> _Told:
    told = _text(held)
    return None if told is None else f"The hook {held.get('hookName')} says:\n{told}"


def _hook_success(held: dict[str, Any]) -> _Told:
    return _hook(held) if held.get("hookEvent") in _HOOKS_HEARD else None


def _hook_blocked(held: dict[str, Any]) -> _Told:
    error = held.get("blockingError")
    text = text_or_none(error.get("blockingError") if isinstance(error, dict) else error)
    return None if text is None else f"The hook {held.get('hookName')} refused:\n{text}"


def _hook_stopped(held: dict[str, Any]) -> _Told:
    text = text_or_none(held.get("message"))
    return None if text is None else f"The hook {held.get('hookName')} stopped it:\n{text}"


def _hook_late(held: dict[str, Any]) -> _Told:
    response = held.get("response")
    response = response if isinstance(response, dict) else {}
    output = response.get("hookSpecificOutput")
    more = output.get("additionalContext") if isinstance(output, dict) else None
    texts = [text for one in (response.get("systemMessage"), more) if (text := text_or_none(one))]
    return f"The hook {held.get('hookName')} says:\n" + "\n".join(texts) if texts else None


def _name(held: dict[str, Any]) -> str | None:
    """The path, as it was shown where that alone is there."""
    named = (text_or_none(held.get(field)) for field in ("filename", "path", "displayPath"))
    return next((one for one in named if one is not None), None)


def _objects(listed: object) -> list[dict[str, Any]]:
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


_TOLD: Final[dict[str, Callable[[dict[str, Any]], _Told]]] = {
    "file": _file,
    "already_read_file": _file,
    "new_file": _file,
    "compact_file_reference": _reference,
    "pdf_reference": _reference,
    "directory": _directory,
    "edited_text_file": _edited,
    "edited_image_file": _edited,
    "selected_lines_in_ide": _selected,
    "selected_lines_in_diff": _selected,
    "opened_file_in_ide": _opened,
    "nested_memory": _memory,
    "relevant_memories": _memories,
    "invoked_skills": _skills,
    "skill_listing": _text,
    "mcp_resource": _resource,
    "diagnostics": _diagnostics,
    "todo": _tasks,
    "todo_reminder": _tasks,
    "task_reminder": _tasks,
    "plan_file_reference": _plan,
    "critical_system_reminder": _text,
    "date_change": _date,
    "hook_additional_context": _hook,
    "hook_success": _hook_success,
    "hook_blocking_error": _hook_blocked,
    "hook_stopped_continuation": _hook_stopped,
    "async_hook_response": _hook_late,
}
"""Type -> what the model was told by one, where that stands in it."""
