"""What bytes are in which there is no line of a session, and what to do about each.

Owns: names, by how a file begins. Refuses: opening and unpacking files (the command line).
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

__all__ = ["HEAD_BYTES", "Bytes", "array_of", "compressed", "kind_of", "other_kind"]

HEAD_BYTES: Final = 512
"""So much of the beginning of a file tells."""
_FIELDS_MAX: Final = 5
_FIELD_CHARS_MAX: Final = 40


class Bytes(NamedTuple):
    """name: what they are. do: what makes a session file of them, where something does."""

    name: str
    do: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.do}" if self.do else self.name


_COMPRESSED: Final = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_UNPACK: Final = "unpack it first"
_EXPORT: Final = "export its session as JSON lines first"
_MAGIC: Final[dict[bytes, Bytes]] = {
    **{
        magic: Bytes(f"compressed with {name}", f"unpack it first: {name} -dc FILE > OTHER")
        for magic, name in _COMPRESSED.items()
    },
    b"\x04\x22\x4d\x18": Bytes("compressed with lz4", "unpack it first: lz4 -dc FILE > OTHER"),
    b"\x1f\x9d": Bytes("compressed with compress", "unpack it first: zcat FILE > OTHER"),
    b"\xff\x06\x00\x00sNaPpY": Bytes("compressed with snappy", _UNPACK),
    b"PK\x03\x04": Bytes("a zip archive", _UNPACK),
    b"7z\xbc\xaf\x27\x1c": Bytes("a 7z archive", _UNPACK),
    b"Rar!\x1a\x07": Bytes("a rar archive", _UNPACK),
    b"SQLite format 3\x00": Bytes("a SQLite database", _EXPORT),
    b"PAR1": Bytes("a Parquet file", _EXPORT),
    b"walldwal": Bytes("a segment of walld's log", "walld salvage reads a data directory"),
    b"age-encryption.org/": Bytes("encrypted with age", "decrypt it first"),
    b"-----BEGIN PGP MESSAGE": Bytes("encrypted with PGP", "decrypt it first"),
    b"version https://git-lfs.github.com/": Bytes(
        "what Git LFS has in the place of a file", "git lfs pull brings the file"
    ),
    b"%PDF-": Bytes("a PDF"),
    b"\x89PNG\r\n": Bytes("a PNG picture"),
    b"\xff\xd8\xff": Bytes("a JPEG picture"),
    b"bplist00": Bytes("a property list"),
    b"\x7fELF": Bytes("a program"),
}
_TAR: Final = (257, b"ustar")
_DUCKDB: Final = (8, b"DUCK")
_UTF_32: Final = (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_MARK: Final = b"\xef\xbb\xbf"


def compressed(head: bytes) -> str | None:
    """Gzip | bzip2 | xz | zstd, which a reader may know; None for anything else."""
    return next((name for magic, name in _COMPRESSED.items() if head.startswith(magic)), None)


def kind_of(head: bytes) -> Bytes | None:
    """What they are for sure: no file of lines begins so. None where that is not told."""
    for magic, found in _MAGIC.items():
        if head.startswith(magic):
            return found
    if _stands(head, *_TAR):
        return Bytes("a tar archive", _UNPACK)
    if _stands(head, *_DUCKDB):
        return Bytes("a DuckDB database", _EXPORT)
    return _text_of_other_code(head)


def _stands(head: bytes, at: int, magic: bytes) -> bool:
    return head[at : at + len(magic)] == magic


def _text_of_other_code(head: bytes) -> Bytes | None:
    """UTF-16 and UTF-32, by their mark, or by the zeros beside an opening brace."""
    text = head[: len(head) // 4 * 4]
    if text.startswith((*_UTF_32, b"{\x00\x00\x00", b"\x00\x00\x00{")):
        return _in_code("UTF-32")
    if text.startswith(_UTF_16) or re.match(
        rb"(?:[{\[]\x00[^\x00]\x00|\x00[{\[]\x00[^\x00])", text
    ):
        return _in_code("UTF-16")
    return None


def _in_code(name: str) -> Bytes:
    return Bytes(f"text in {name}", f"make it UTF-8 first: iconv -f {name} -t UTF-8 FILE > OTHER")


def array_of(head: bytes) -> Bytes | None:
    """A JSON array, where its beginning looks like that of one."""
    if re.match(rb"\s*\[\s*[{\[\"\]]", head.removeprefix(_MARK)) is None:
        return None
    return Bytes("a JSON array and no lines", "make lines of it: jq -c '.[]' FILE > OTHER")


def other_kind(head: bytes, count: int, first: dict[str, Any] | None) -> Bytes:
    """What is in a file of which no line was understood. count: of its lines. first: of the objects
    in them.
    """
    if (told := kind_of(head)) is not None:
        return told
    if (told := array_of(head)) is not None:
        return told
    text = head.removeprefix(_MARK).lstrip()
    if not head.strip(b"\x00\r\n"):
        return Bytes("zeros", "its file system lost what was written")
    if first is not None:
        what = "one JSON object" if count == 1 else "JSON objects"
        return Bytes(f"{what} with {_fields(first)}")
    if text.startswith(b"{"):
        names = re.findall(rb'^(?:\{|[ \t]{1,4})\s*"([^"\\]+)"\s*:', text, re.MULTILINE)
        told_names = _fields({name.decode("utf-8", "replace"): None for name in names})
        return Bytes(
            f"a JSON object over several lines, or the beginning of one, with {told_names}"
        )
    if re.match(rb"<(!doctype|html|\?xml|[a-z]+[ >])", text, re.IGNORECASE):
        return Bytes("HTML or XML")
    if re.match(rb"(data|event|id|retry):", text):
        return Bytes("a stream of events (SSE)", "that is a reply, and no session")
    odd = sum((byte < 32 and byte not in b"\t\r\n\x1b") or byte > 126 for byte in head)
    if odd * 4 > len(head):
        return Bytes("no text")
    return Bytes("text of which no line is a JSON object")


def _fields(value: dict[str, Any]) -> str:
    names = [name[:_FIELD_CHARS_MAX] for name in list(value)[:_FIELDS_MAX]]
    if not names:
        return "no fields"
    return f"the fields {', '.join(names)}" + (", ..." if len(value) > _FIELDS_MAX else "")
