"""A text that acts on the terminal of whoever prints it as it is, and what nobody may print."""

from __future__ import annotations

import re

__all__ = ["CONTROL", "EVIL", "SHOWN"]

EVIL = "\x1b[2J\x1b]0;owned\x07\x1b]8;;http://x\x1b\\\x9b31m\u202egnp\u2066\u200b\r\b"
SHOWN = "[2J"
"""What is left of it to be read, in every form."""
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""All but tabs and the ends of lines."""
