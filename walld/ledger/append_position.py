"""Where in a session's file the next lines go, over what a crash left.

Owns: the decision, which reads and changes nothing, and so what a file begins and ends with.
Refuses: carrying it out (`store.py`).

A checkpoint that is repeated finds its own lines, or a part of them, or holes where a power cut
left pages out. They are written once more in the same place, whatever is there: it may be in the
page cache alone, and after another process's failed sync a sync proves nothing of it. What stands
out of order stays where it is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from walld.errors import FormatError, LedgerGap, NewerVersion
from walld.ledger.files import KEPT_BYTES_MAX
from walld.ledger.line import as_known, chain_of, chain_text, line_chain, line_seq, read_header
from walld.ledger.line_scan import FoundLine, find_line, fits, lines_between
from walld.ledger.out_of_order_lines import in_order
from walld.ledger.scan import End, end_of, read_lines
from walld.limits import LEDGER_LINE_BYTES_MAX

if TYPE_CHECKING:
    from walld.disk.base import File
    from walld.ledger.line import Header

__all__ = [
    "AppendPosition",
    "check_follows",
    "find_end",
    "find_place",
    "first_header",
    "whole_header",
]

_HEADER_BYTES_MAX: Final = 16 * 1024


class AppendPosition(NamedTuple):
    """The bytes [start, end) of a file of `size` bytes give way to `content`.

    is_lost: content does not bring all of them back; they are to be kept before they go.
    has_others: it brings lines back that the log has not.
    """

    start: int
    end: int
    size: int
    content: bytes
    is_lost: bool
    has_others: bool = False

    @property
    def fits(self) -> bool:
        """It can be written where it stands: nothing behind it has to move, or to come back."""
        is_long_enough = self.end == self.size or self.end - self.start == len(self.content)
        return is_long_enough and not self.has_others


def find_place(
    file: File, header: bytes, first_seq: int, lines: list[bytes], *, allow_gap: bool
) -> AppendPosition:
    """Where `lines`, the first of seq first_seq, go.

    LedgerGap where they do not follow what is there, FormatError where a line of the same seq is
    there that is another one, and this session's (`_compare`), NewerVersion.
    """
    size = file.size()
    found_header = whole_header(file, header)
    used_header = found_header or header
    found_end = end_of(file, size, used_header)
    if found_header is None and found_end is None:
        if not allow_gap:
            check_follows(file.path, FoundLine(0, 0, header), first_seq, lines[0])
        content = header + b"".join(lines)
        return AppendPosition(0, size, size, content, _is_lost(file, 0, size, content))
    last = found_end or End(FoundLine(0, 0, used_header), len(used_header))
    if last.line.seq < first_seq and not allow_gap:
        check_follows(file.path, last.line, first_seq, lines[0])
    if last.line.seq < first_seq and not _stands_for_another(last.line, first_seq, lines[0]):
        start = last.clean
    elif first_seq == 1 and found_header is not None:
        start = len(found_header)
    else:
        start, hiding = _start(file, size, used_header, first_seq, lines, last.line)
        if hiding and start - hiding[0][0] <= KEPT_BYTES_MAX:
            end = _compare(file, used_header, start, size, first_seq, lines)
            between = pairwise([*hiding, (start, start)])
            others = [file.read_at(until - at, at) for (_, at), (until, _) in between]
            content = b"".join([*others, *lines])
            return AppendPosition(hiding[0][0], end, size, content, is_lost=True, has_others=True)
    content = b"".join(lines)
    there = file.read_at(min(len(content), size - start), start)
    if not content.startswith(there):
        start = _behind_strays(file, start, size, first_seq)
        there = file.read_at(min(len(content), size - start), start)
    end = start + len(there)
    if content.startswith(there) and (end == size or _goes_on(file, end, size, lines[-1])):
        return AppendPosition(start, end, size, content, is_lost=False)
    end = _compare(file, used_header, start, size, first_seq, lines)
    return AppendPosition(start, end, size, content, _is_lost(file, start, end, content))


def _is_lost(file: File, start: int, end: int, content: bytes) -> bool:
    """Something of [start, end), which can be of any length, is not what content begins with."""
    length = end - start
    return length > len(content) or not content.startswith(file.read_at(length, start))


def whole_header(file: File, header: bytes) -> bytes | None:
    """The header line of a file, None where it is damaged. NewerVersion."""
    there = file.read_at(len(header), 0)
    if there == header:
        return header
    there = _first_line(file, len(header) + 4096, 0)
    try:
        found = _known_header(file, there, header)
    except NewerVersion:
        raise
    except FormatError:
        return None
    return there if found == read_header(header) else None


def find_end(file: File, size: int, header: bytes, known_seq: int = 0) -> End:
    """Where it ends; without a line with the header, which is no bytes long if damaged.

    Where that is before known_seq, all of it is read: a long block in a wrong place misleads.
    """
    there = whole_header(file, header)
    none = FoundLine(0 if there else -len(header), 0, there or header)
    end = end_of(file, size, none.line) or End(none, none.end)
    if end.line.seq < known_seq:
        reading = read_lines(file, size, none.line, is_headed=there is not None)
        return end._replace(line=reading.end)
    return end


def first_header(file: File) -> tuple[Header, bytes]:
    """Whose file it is, and its line that says so. NewerVersion; FormatError for damage."""
    there = _first_line(file, _HEADER_BYTES_MAX, 0)
    return _known_header(file, there, as_known(there)), there


def _known_header(file: File, there: bytes, expected: bytes) -> Header:
    """A later version, whose first event is chained to the header of this one, is damaged."""
    try:
        return read_header(there, file.path)
    except NewerVersion as error:
        first = _first_line(file, LEDGER_LINE_BYTES_MAX, len(there))
        if line_seq(first) != 1 or line_chain(first) != chain_text(chain_of(expected)):
            raise
        raise FormatError(
            f"{file.path}: header is {there[:80]!r}, expected {expected[:80]!r}, which its first "
            "event was made for: the line is damaged; it is kept"
        ) from error


def _first_line(file: File, most: int, offset: int) -> bytes:
    text = file.read_at(most, offset)
    return text[: text.find(b"\n") + 1]


def _stands_for_another(last: FoundLine, first_seq: int, line: bytes) -> bool:
    """Of the seq before, and no line that this one was made for: that may be there as well."""
    return last.seq == first_seq - 1 > 0 and line_chain(line) != chain_text(chain_of(last.line))


def _start(
    file: File, size: int, header: bytes, first_seq: int, lines: list[bytes], last: FoundLine
) -> tuple[int, list[tuple[int, int]]]:
    """The offset at which `lines` belong, in a file that ends with `last`, which is behind them or
    given out instead of the line which the first was made for.

    And where lines before that stand which would hide them, or that one: those of another session,
    say.
    """
    made_for = line_chain(lines[0])
    before = find_line(file, first_seq - 1, size) if first_seq > 1 else None
    if (
        before is not None
        and before.end <= last.offset
        and chain_text(chain_of(before.line)) == made_for
        and fits(file, before)
        and _goes_up(file, before, size, lines)
    ):
        return before.end, []  # else it may be a copy
    start, hiding = -1, list[tuple[int, int]]()
    whole = lines_between(file, 0, size)
    for found, _, is_given in in_order(whole, 0, chain_text(chain_of(header))):
        if found.seq == first_seq - 1:
            is_before = chain_text(chain_of(found.line)) == made_for
            if is_before and (is_given or hiding):
                return found.end, hiding
            if is_given:
                start = found.end
                hiding.append((found.offset, found.end))
        elif is_given and found.seq >= first_seq:
            hiding.append((found.offset, found.end))
            if found.line == lines[0]:
                break
    assert hiding or start >= 0, f"{file.path}: a line behind {first_seq} was there a moment ago"
    # The one before is damaged, or missing since a gap was allowed.
    return (start if start >= 0 else hiding[0][0]), []


def _goes_up(file: File, before: FoundLine, size: int, lines: list[bytes]) -> bool:
    """Behind `before`, and those of `lines` that follow it there, stands none of a lower seq."""
    follow = iter(lines)
    for found in lines_between(file, before.end, size):
        if found.line != next(follow, None):
            return found.seq > before.seq
    return True


def _behind_strays(file: File, start: int, size: int, first_seq: int) -> int:
    for found in lines_between(file, start, size):
        if found.offset != start or found.seq >= first_seq:
            break
        start = found.end
    return start


def check_follows(path: str, last: FoundLine, first_seq: int, line: bytes) -> None:
    """LedgerGap where a line is not the one behind `last`."""
    if first_seq > last.seq + 1:
        raise LedgerGap(
            f"{path}: line {first_seq} after {last.seq} at offset {last.offset}, expected "
            f"{last.seq + 1}: what lies between is in neither the log nor the file"
        )
    if line_chain(line) != chain_text(chain_of(last.line)):
        raise LedgerGap(
            f"{path}: line {first_seq} was made for another line before it than {last.seq} "
            f"at offset {last.offset}: chain is {line_chain(line)!r}, expected "
            f"{chain_text(chain_of(last.line))!r}: the line in the file was changed"
        )


def _goes_on(file: File, end: int, size: int, line: bytes) -> bool:
    """The file goes on behind `end` with the line that follows `line`."""
    found = next(lines_between(file, end, size), None)
    if found is None or found.offset != end:
        return False
    return line_chain(found.line) == chain_text(chain_of(line))


def _compare(
    file: File, header: bytes, start: int, size: int, first_seq: int, lines: list[bytes]
) -> int:
    """Where what is behind `lines` begins. FormatError where one of them is there differently.

    One that was made for another line before it than that of the log is another session's, say, and
    gives way, with those that follow it; not where all follows from the header on up to it.
    """
    next_strange = 0, b""
    for found in lines_between(file, start, size):
        is_strange = (found.seq, line_chain(found.line)) == next_strange
        if first_seq <= found.seq < first_seq + len(lines):
            line = lines[found.seq - first_seq]
            if found.line == line:
                continue
            is_same = line_chain(found.line) == line_chain(line)
            if is_same or (not is_strange and _is_own(file, header, found)):
                raise FormatError(
                    f"{file.path}: line {found.seq} at offset {found.offset} is "
                    f"{found.line[:200]!r}, the log has {line[:200]!r}: nothing was written; one "
                    "of them was changed behind walld's back"
                )
        elif not is_strange:
            return found.offset
        next_strange = found.seq + 1, chain_text(chain_of(found.line))
    return size


def _is_own(file: File, header: bytes, found: FoundLine) -> bool:
    """Each line follows the one before it, from the header on: it was this session's."""
    before = read_lines(file, found.offset, header)
    follows = line_chain(found.line) == chain_text(chain_of(before.end.line))
    return follows and not before.breaks and not before.torn_bytes
