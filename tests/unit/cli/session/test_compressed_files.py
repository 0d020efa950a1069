"""Compressed files as what they hold, by each package that reads zstd."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Callable
from typing import Any

import pytest

from walld.cli.session.compressed_file import unpacked
from walld.errors import NotUnderstood

ZSTD = ("compression.zstd", "backports.zstd", "zstandard")
READERS = ("gzip", "bzip2", "xz", *ZSTD)
TEXT = b"".join(b'{"line": %d}\n' % number for number in range(20_000))
SKIPPED = b"\x50\x2a\x4d\x18\x04\x00\x00\x00" + b"what"
"""A frame of zstd without content, as parallel compressors write them."""


def read(packed: bytes) -> bytes:
    file, _ = unpacked(io.BufferedReader(io.BytesIO(packed)), "a.jsonl.packed")
    return b"".join(iter(lambda: file.readline(1 << 26), b""))


@pytest.fixture(params=READERS)
def pack(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bytes]:
    """What compresses for one reader, where no other of its kind is to be had."""
    if request.param not in ZSTD:
        return {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}[request.param]
    module = only(request.param, monkeypatch)
    made: Any = module if request.param != "zstandard" else module.ZstdCompressor()
    compress: Callable[..., bytes] = made.compress
    return compress


def only(wanted: str | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The one reader of zstd, which it skips for where it is not installed."""
    for name in ZSTD:
        if name != wanted:
            monkeypatch.setitem(sys.modules, name, None)
    if wanted is None:
        return None
    why = f"{wanted} is not installed here: pip install '.[test]' brings it"
    if wanted == ZSTD[0]:
        why = f"{wanted} is Python's from 3.14 on, and this is {sys.version.split()[0]}"
    return pytest.importorskip(wanted, reason=why)


def test_it_is_read_whole(pack: Callable[..., bytes]) -> None:
    assert read(pack(TEXT)) == TEXT


def test_several_behind_each_other_are_one_text(pack: Callable[..., bytes]) -> None:
    assert read(pack(TEXT[:-7]) + pack(b"") + pack(TEXT[-7:])) == TEXT


def test_what_is_cut_anywhere_is_an_error(pack: Callable[..., bytes]) -> None:
    packed = pack(TEXT)
    for cut in (1, 9, len(packed) // 2, len(packed) - 7):
        with pytest.raises(NotUnderstood, match=r"a\.jsonl\.packed: .*cut or damaged"):
            read(packed[:-cut])
    with pytest.raises(NotUnderstood, match="cut or damaged"):
        read(packed + packed[: len(packed) // 2])


def test_garbage_within_is_an_error(pack: Callable[..., bytes]) -> None:
    packed = bytearray(pack(TEXT))
    packed[8:40] = bytes(32)
    with pytest.raises(NotUnderstood, match="cut or damaged"):
        read(bytes(packed))


@pytest.mark.parametrize("reader", ZSTD)
def test_frames_of_zstd_without_content_say_nothing(
    reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = only(reader, monkeypatch)
    made: Any = module if reader != "zstandard" else module.ZstdCompressor()
    assert read(made.compress(TEXT) + SKIPPED) == TEXT
    assert read(made.compress(TEXT) + SKIPPED + made.compress(b"end\n")) == TEXT + b"end\n"


def test_without_a_reader_of_zstd_the_error_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    only(None, monkeypatch)
    with pytest.raises(NotUnderstood) as raised:
        read(b"\x28\xb5\x2f\xfd\x04\x60\xbd\x19")
    told = str(raised.value)
    assert told.startswith("a.jsonl.packed: it is compressed with zstd")
    assert "walld[zstd]" in told
    assert "\n" not in told
