r"""Escapes a stranger's text for terminals and log lines.

Owns: which characters may move a cursor, end a line or turn the reading order, and how they are
shown. Refuses: where the text goes.

Recovered text, ids and error messages come from agents and models; printed raw they could rewrite a
terminal or fake a log line. What is escaped is shown as `\xNN`, `\uNNNN` or `\UNNNNNNNN`, and a
backslash stands for itself: the result is for people, JSON output is for programs.
"""

from __future__ import annotations

import re

__all__ = ["escaped", "escaped_line"]

# C0, DEL and C1; zero-width and direction marks; line and paragraph separators; the byte order
# mark; tags; lone surrogates, which no encoder takes.
_UNSAFE = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    r"\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_in_text = re.compile(f"[{_UNSAFE}]")
_in_line = re.compile(f"[\t\n{_UNSAFE}]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _shown(match: re.Match[str]) -> str:
    character = match.group()
    short = _SHORT.get(character)
    if short is not None:
        return short
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escaped(text: str) -> str:
    """For a block of text: tabs and newlines stay, everything else that could act is shown."""
    return _in_text.sub(_shown, text)


def escaped_line(text: str) -> str:
    """For one line or one cell: tabs and newlines are shown too."""
    return _in_line.sub(_shown, text)
