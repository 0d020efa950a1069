"""The text of an archived session, and the file of `tests/golden` that the first build wrote.

If a test of that file fails, the code is wrong, never the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from walld.cli.session.archive import lines_of
from walld.errors import FormatError
from walld.foreign import archive_text, detect
from walld.ledger.line import chain_of, make_line

(FILE,) = (Path(__file__).parents[2] / "golden" / "archive_v1").iterdir()
DIGEST = "0b3c0b8de43820138cad46ee462ca5c70d36ec876424bdb4cb3aec3aff891607"


def test_the_file_is_the_one_that_was_written_then() -> None:
    assert FILE.name == "h~00cacff6c3955f10b350d5185dfa235f2e5a46c7.3.walld.gz"
    assert (
        sha256(FILE.read_bytes()).hexdigest()
        == "46a7a60817f20f8d32b783760428ab42f5867bb6b46d1788aa7b469f2894b8d7"
    )


def test_it_holds_what_was_said_and_what_stood_beside_it() -> None:
    with open(FILE, "rb") as file:
        found = archive_text.read(lines_of(file, FILE.name))
        beside = list(archive_text.artifacts(lines_of(file, FILE.name)))
    assert (found.session_id, found.last_seq, found.artifacts) == ("chat/1", 3, [DIGEST])
    assert beside == [(DIGEST, b"kept beside it")]
    imported = detect.read(found.lines)
    assert (imported.format, imported.last_seq, imported.missing) == ("walld", 3, [])
    assert [one.payload.get("content") for one in imported.entries] == [
        "say it",
        None,
        "said é \U0001f600",
    ]


def test_the_same_lines_make_the_same_text() -> None:
    with open(FILE, "rb") as file:
        lines = list(lines_of(file, FILE.name))
    own = [line for line in lines if b'"seq":' in line[:10]]
    assert (
        list(archive_text.text("chat/1", 3, own, {DIGEST: b"kept beside it"}.__getitem__)) == lines
    )
    end = json.loads(lines[-1])["end"]
    assert end == {"lines": 5, "sha256": sha256(b"".join(lines[:-1])).hexdigest()}


OF_THE_HEADER = (
    "a later version",
    "lines of a later one",
    "no session",
    "an event too few",
    "its end alone",
)
"""What `artifacts`, which is asked behind `read`, does not look at."""


def made(artifacts: dict[str, bytes]) -> list[bytes]:
    """Of a session that names these."""
    lines: list[bytes] = []
    for digest in artifacts:
        payload = json.dumps({"sha256": digest, "size": 1}).encode()
        previous = chain_of(lines[-1]) if lines else bytes(16)
        seq = len(lines) + 1
        lines.append(make_line(seq, f"e-{seq}", 1, "artifact", payload, previous))
    return list(archive_text.text("s", len(lines), lines, artifacts.__getitem__))


def test_artifacts_of_any_length_come_back() -> None:
    held = [b"", b"x", b"y" * (192 * 1024), b"z" * (192 * 1024 + 1), bytes(700_000)]
    artifacts = {sha256(one).hexdigest(): one for one in held}
    text = made(artifacts)
    assert archive_text.read(text).artifacts == list(artifacts)
    assert dict(archive_text.artifacts(text)) == artifacts
    assert len(text) == 1 + 5 + (1 + 1 + 1 + 2 + 4) + 1


def ended(lines: list[bytes]) -> list[bytes]:
    """With an end that is right about them."""
    end = {"lines": len(lines), "sha256": sha256(b"".join(lines)).hexdigest()}
    return [*lines, json.dumps({"end": end}).encode() + b"\n"]


def broken() -> Iterator[tuple[str, list[bytes]]]:
    """Texts whose end is right about them, and that are none all the same; others' ends are not."""
    text = made({sha256(one).hexdigest(): one for one in (b"a" * 200_000, b"b")})
    header, first, second, piece, rest, other = text[:-1]
    yield "nothing", []
    yield "its end alone", ended([])
    yield "a later version", ended([header.replace(b'"archive":1', b'"archive":2'), first, second])
    yield "lines of a later one", ended([header.replace(b'"walld":1', b'"walld":2'), first])
    yield "no session", ended([header.replace(b'"s"', b"7"), first, second])
    yield "an event too few", ended([header, first])
    yield "half an artifact", ended([header, first, second, piece])
    yield "a half of another", ended([header, first, second, piece, other])
    yield "its halves the wrong way round", ended([header, first, second, rest, piece])
    yield "other bytes", ended([header, first, second, other.replace(b'"Yg=="', b'"Yw=="')])
    yield "no base64", ended([header, first, second, other.replace(b'"Yg=="', b'"?"')])
    yield "no JSON", ended([header, first, second, b'{"artifact":\n'])
    yield "no object", [*text[:-1], b"[]\n"]
    yield "a line less", [*text[:2], *text[3:]]
    yield "a line more", [*text[:2], *text[1:]]
    yield "something behind it", [*text, b"{}\n"]
    yield "a cut end", [*text[:-1], text[-1][:-1]]


@pytest.mark.parametrize(("what", "lines"), list(broken()))
def test_what_is_not_whole_is_refused(what: str, lines: list[bytes]) -> None:
    with pytest.raises(FormatError):
        archive_text.read(lines)
    if what not in OF_THE_HEADER:
        with pytest.raises(FormatError):
            list(archive_text.artifacts(lines))
