"""Judges by its characters whether a text ends where a reply ends.

Owns: open code fences, and the last line and last character of a text in any script. Refuses:
evidence other than text (`verdict.py`).

Why categories and not a list of sentence ends: a list is never whole (danda, shad, pada lingsa),
while "a letter, a digit or a mark may go on" holds in every script of Unicode. So a text is
unfinished where it ends in one of those, or in a sign after which more must come; anything else
(sentence ends, ellipses, emoji, symbols, a closed table row) ends it. What cannot be told, a list
item or a URL without a full stop, counts as unfinished: showing a whole reply as maybe cut is the
smaller mistake. Scripts that end no sentence with a sign (Thai, Lao) always count as unfinished.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

__all__ = ["Unfinished", "fence_open", "is_blank", "is_surely_said", "unfinished"]

Unfinished = Literal["mid_structure", "mid_sentence"]

TAIL_BYTES_MAX: Final = 4096
"""How far back the last line and the line before it are looked for."""
CITATION_CHARACTERS_MAX: Final = 128
EMOTICON_CHARACTERS_MAX: Final = 8

_FENCE = re.compile(
    rb"^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(`{3,}|~{3,})([^\n]*)$", re.MULTILINE
)
_FENCE_LINE = re.compile(r"[ \t>]*(?:`{3,}|~{3,})$")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_RULE = re.compile(r"\s*(?:-[ \t]*){3,}$|\s*(?:\*[ \t]*){3,}$|\s*(?:_[ \t]*){3,}$|\s*={3,}$")
_EMPTY_ITEM = re.compile(r"\s*(?:>\s*)*[-*+•](?:\s+\[[ xX]?\]?)?$|\s*(?:>\s*)+$")
_NUMBERED = re.compile(r"\s*(?:>\s*)*(\d{1,9})[.)](?:\s+\S|$)")
_CITATION = re.compile(r"(?:\s*(?:\[\^?[\w,. -]{1,12}\]|【[^【】]{1,60}】|[⁰¹²³⁴-⁹]))+$")

_QUOTES = frozenset("\"'`*_~")
"""ASCII signs that close what they opened: quotes, code and emphasis."""
_JOINERS = frozenset(
    ",;:/\\&@#%=+<"  # ASCII
    "،؛٪՝፣፤፥፦᠂᠈꓾꛵"  # Arabic, Armenian, Ethiopic, Mongolian, Lisu, Bamum
    "、，；：・﹐﹑﹔﹕"  # East Asian
    "·•‰′″≤≥≈≠→⇒"
)
"""Signs that are neither letter nor digit and still have something after them."""
_ENDS_AFTER: Final = {";": "GREEK", ":": "ARMENIAN"}
"""Question mark of Greek and full stop of Armenian as keyboards type them."""
_WAVES = frozenset("〜〰")
"""Dashes by category, but how Japanese drawls out the end of a sentence."""
_INVISIBLE: Final = "".join(map(chr, filter(lambda point: chr(point).isspace(), range(0x3001)))) + (
    "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
"""White space of every script, and what only steers its direction or its breaks."""
_EMOJI_SUFFIX: Final = "\ufe0e\ufe0f" + "".join(
    map(chr, (*range(0x1F3FB, 0x1F400), *range(0xE0020, 0xE0080)))
)
"""Variation selectors, skin tones, tags: part of the emoji before them."""
_FLAG_HALVES: Final = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_EMOTICON = re.compile(
    r"(?:(?<=\s)|^)"
    r"(?:[:;]['’]?-?[()\[\]DPpOo3*/|]+|=[)(D]+|[xX]D+|<3+|\^[._-]?\^|[oO>][._-][oO<])$"
)
# No pattern here is tried at every place of a long text, and none repeats a repetition: whoever
# writes the text must not be able to choose how long judging it takes.


def is_blank(text: bytes) -> bool:
    """True where nothing but white space was said."""
    stripped = text.strip()
    # Only beyond ASCII is there white space that bytes do not know.
    return not stripped or (stripped[0] >= 0x80 and not _decoded(stripped).strip(_INVISIBLE))


def is_surely_said(beginning: bytes) -> bool:
    """True where a text that begins so is not blank, however it goes on."""
    end = len(beginning)
    for back in range(1, min(4, end) + 1):
        byte = beginning[-back]
        if byte < 0x80 or byte >= 0xC0:
            end -= back * (byte >= 0xC0)  # a character that may go on
            break
    return not is_blank(beginning[:end])


def fence_open(text: bytes) -> bool:
    """True where the last code fence that was opened is not closed."""
    if b"```" not in text and b"~~~" not in text:
        return False
    fence = b""
    for match in _FENCE.finditer(text):
        sign, info = match[1], match[2]
        if not fence:
            # A backtick behind the fence makes it inline code: `` ```like this``` ``.
            if sign[:1] == b"~" or b"`" not in info:
                fence = sign
        elif sign[:1] == fence[:1] and len(sign) >= len(fence) and not info.strip():
            fence = b""
    return bool(fence)


def unfinished(text: bytes) -> Unfinished | None:
    """Why this text cannot be the end of a reply; None where it can.

    The caller has asked `fence_open`: a fence on the last line is a closing one.
    """
    tail = _decoded(text[-TAIL_BYTES_MAX:]).rstrip(_INVISIBLE)
    line = tail.rpartition("\n")[2]
    if _FENCE_LINE.match(line):
        return None
    if _structure_open(tail, line):
        return "mid_structure"
    if not _may_go_on(tail) or _EMOTICON.search(line[-EMOTICON_CHARACTERS_MAX:]):
        return None
    near = tail[-CITATION_CHARACTERS_MAX:]
    citation = _CITATION.search(near)
    if citation is not None and not _may_go_on(near[: citation.start()] or ","):
        return None
    return "mid_sentence"


def _decoded(text: bytes) -> str:
    """As text. Halves of a character join up; what stays half is U+FFFD."""
    start = 0
    while start < min(4, len(text)) and text[start] & 0xC0 == 0x80:
        start += 1
    try:
        decoded = text[start:].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace")
    if decoded.isascii():
        return decoded
    return decoded.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _structure_open(tail: str, line: str) -> bool:
    """True where the last line of the markdown is one that announces another."""
    lines = [before for before in tail[: len(tail) - len(line)].split("\n") if before.strip()]
    above = lines[-1] if lines else ""
    if _HEADING.match(line) or _RULE.match(line) or _EMPTY_ITEM.match(line):
        return True
    number = _NUMBERED.match(line)
    if number and line.strip().rstrip(".)").isdigit():
        # "3." under "2. …" is an item without words; "42." may well be an answer.
        previous = [int(found[1]) for before in lines if (found := _NUMBERED.match(before))]
        return bool(previous) and int(number[1]) == previous[-1] + 1
    return _table_open(above.strip(), line.strip())


def _table_open(above: str, row: str) -> bool:
    """True where `row` is a table's header, its delimiter, or a row with cells missing."""
    if "|" not in row:
        return False
    if "-" in row and set(row) <= set("|:- \t"):
        return True
    if above.startswith("|"):
        return not row.endswith("|") or row.count("|") < above.count("|")
    return row.startswith("|") and row.endswith("|")


def _may_go_on(tail: str) -> bool:
    """True where the last character, seen through what closes behind it, ends nothing."""
    while tail := tail.rstrip(_INVISIBLE):
        last = tail[-1]
        category = unicodedata.category(last)
        if not (category in {"Pe", "Pf", "Pi"} or last in _QUOTES):
            return _character_may_go_on(tail)
        rest = tail[:-1]
        # “ closes in German and opens in English: with nothing or a space before it, it opens.
        if category not in {"Pe", "Pf"} and (not rest or rest[-1].isspace()):
            return True
        tail = rest
    return False


def _character_may_go_on(tail: str) -> bool:
    flag_halves = len(tail) - len(tail.rstrip(_FLAG_HALVES))
    if flag_halves:
        return flag_halves % 2 == 1
    last = tail[-1]
    if last in {"\N{ZERO WIDTH JOINER}", "\N{REPLACEMENT CHARACTER}"}:
        return True  # half an emoji, half a character
    if last == "\N{COMBINING ENCLOSING KEYCAP}":
        return False
    bare = tail.rstrip(_EMOJI_SUFFIX)
    if bare != tail:
        return bare[-1:].isdigit()  # a keycap without its cap
    if last in _ENDS_AFTER:
        return not _in_script(tail[:-1], _ENDS_AFTER[last])
    if last == "/":
        return "://" not in tail.split()[-1]
    category = unicodedata.category(last)
    if category == "Sc":
        # "5 €" is an amount, "$x$" is closed mathematics.
        return tail.rpartition("\n")[2].count(last) % 2 == 1
    return (
        category[0] in "LNM"
        or category in {"Pd", "Ps", "Pc"} - ({"Pd"} if last in _WAVES else set())
        or last in _JOINERS
    )


def _in_script(text: str, script: str) -> bool:
    letters = [character for character in text[-8:] if character.isalpha()]
    return bool(letters) and unicodedata.name(letters[-1], "").startswith(script)
