"""A reply under two numbers is told of in the same way by a start and by who reads without one."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from damaged_directory import DamagedDirectory, begin, row, text
from virtual_daemon import Home, living, recovered, run, text_of

from walld.cli import main
from walld.cli.inspect.offline import find
from walld.wal.layout import EPOCH_STREAMS_BITS, Flag

EARLIER, LATER = text(1, "a ", "b ", "c "), text(4, "d ", "e ")
Told = tuple[bytes, list[tuple[int, int, str]]]


pytestmark = pytest.mark.usefixtures("no_daemon_writes_it")


def made_at(path: Path, *, later: bool = True) -> DamagedDirectory:
    """Batch 1 could not be read at a start, so its producer began anew as 9, and said more."""
    made = DamagedDirectory(path)
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    made.batch(row(9, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(9, 4, 5, LATER)) if later else None
    made.batch()
    return made


def without_a_daemon(data: Path) -> Told:
    replies = find(str(data)).replies
    (reply,) = [one for one in replies if one.stream_id == "s1"]
    return text_of(reply), [(gap.first_seq, gap.last_seq, gap.verdict) for gap in reply.gaps]


def by_a_daemon(home: Home) -> list[Told]:
    """At two starts, before it is kept and after."""
    told: list[Told] = []

    async def main_walld() -> None:
        for _ in range(2):
            async with living(home) as virtual:
                for _ in range(2):
                    reply = await recovered(virtual, "s1")
                    assert reply is not None
                    gaps = [(gap.first_seq, gap.last_seq, gap.verdict) for gap in reply.gaps]
                    told.append((text_of(reply), gaps))

    run(main_walld)
    return told


def told_by_all(made: DamagedDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """What everybody says, who must say the same; also of what salvage took."""
    made.close()
    first = without_a_daemon(made.path)
    main(["salvage", str(made.path), "--to", str(tmp_path / "new" / "data"), "--json"])
    taken = json.loads(capsys.readouterr().out)["taken"]
    assert [one["stream_id"] for one in taken] == ["s1"]
    for data in (made.path, tmp_path / "new" / "data"):
        assert without_a_daemon(data) == first, data
    assert by_a_daemon(Home(tmp_path / "new")) == [first] * 4
    assert by_a_daemon(Home(tmp_path)) == [first] * 4
    assert without_a_daemon(made.path) == first
    return first


@pytest.mark.parametrize("kept", [0, 1, 9])
def test_it_is_one_reply_for_everybody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: int
) -> None:
    """kept: the number of which there is a partial."""
    made = made_at(tmp_path / "data")
    if kept:
        made.partial(kept, begin(), LATER if kept == 9 else EARLIER)
    assert main(["fsck", str(made.path)]) == 0
    capsys.readouterr()
    assert told_by_all(made, tmp_path, capsys) == (b"a b c d e ", [])


def test_salvage_of_a_whole_directory_lost_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = made_at(tmp_path / "data")
    made.close()
    assert main(["salvage", str(made.path), "--to", str(tmp_path / "new")]) == 0
    assert "seqs 0 to 5, from segment 1\n" in capsys.readouterr().out


@pytest.mark.parametrize("later", [True, False])
def test_what_damage_took_of_its_end_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], later: bool
) -> None:
    """Where nothing stands in the log behind its new beginning, only its partial can tell."""
    made = made_at(tmp_path / "data", later=later)
    first_seq = 6 if later else 4
    number = made.batch(row(9, first_seq, first_seq, text(first_seq, "x ")))
    made.batch()
    made.flip(number, 5)
    text_there = b"a b c d e " if later else b"a b c "
    gap = (first_seq, first_seq, "corrupt")
    assert told_by_all(made, tmp_path, capsys) == (text_there, [gap])


def test_damage_beside_it_took_nothing_of_what_stands_under_the_earlier_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    made.batch(row(9, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(5, 0, 1, begin("s5"), text(1, "y"), flags=Flag.BEGIN))
    made.batch(row(9, 4, 5, LATER))
    made.batch()
    made.flip(3, 5)
    made.close()
    assert main(["fsck", str(made.path), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert [one["lost"] for one in report["damage"]] == [[]]
    assert main(["salvage", str(made.path), "--to", str(tmp_path / "new"), "--json"]) == 1
    account = json.loads(capsys.readouterr().out)
    assert [one["lost"] for one in account["missing"]] == [[]]
    assert [one["gaps"] for one in account["taken"]] == [[]]


def test_an_earlier_part_that_is_damaged_is_a_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "a "), flags=Flag.BEGIN))
    made.batch(row(1, 2, 3, text(2, "b ", "c ")))
    made.batch(row(9, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(9, 4, 5, LATER))
    made.batch()
    made.flip(2, 5)
    assert told_by_all(made, tmp_path, capsys) == (b"a d e ", [(2, 3, "corrupt")])


@pytest.mark.parametrize("of", ["the earlier", "the later"])
def test_a_part_that_is_in_a_partial_alone_is_of_it_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], of: str
) -> None:
    """Its segment went, or could not be read when the partial was made."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    if of == "the earlier":
        made.partial(1, begin(), EARLIER)
        made.batch(row(9, 0, 0, begin(), flags=Flag.BEGIN))
        made.batch(row(9, 4, 5, LATER))
    else:
        made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
        made.partial(9, begin(), LATER)
    made.batch()
    assert main(["fsck", str(made.path)]) == 0
    capsys.readouterr()
    assert told_by_all(made, tmp_path, capsys) == (b"a b c d e ", [])


def test_a_partial_that_was_moved_elsewhere_is_of_it_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.partial(1, begin(session_id="moved"), EARLIER)
    made.batch(row(9, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(9, 4, 5, LATER))
    made.batch()
    assert told_by_all(made, tmp_path, capsys) == (b"a b c d e ", [])


def test_what_is_missing_between_its_parts_is_put_down_to_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "a "), flags=Flag.BEGIN))
    made.batch(row(9, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(9, 4, 5, LATER))
    made.batch()
    assert told_by_all(made, tmp_path, capsys) == (b"a d e ", [(2, 3, "unknown")])


@pytest.mark.parametrize("session_id", ["other", "chat"])
def test_of_two_of_several_under_one_id_each_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], session_id: str
) -> None:
    """As a start keeps them; or it is said that one is not."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    another = msgspec.structs.replace(begin(session_id=session_id), producer=b"q" * 16)
    made.batch(row(9, 0, 5, another, LATER, flags=Flag.BEGIN))
    made.batch()
    made.close()
    new = tmp_path / "new"
    code = main(["salvage", str(made.path), "--to", str(new)])
    found = find(str(new))
    texts = sorted(map(text_of, found.replies))
    if session_id == "other":
        assert (code, texts, found.doubts) == (0, [b"a b c ", b"d e "], [])
    else:
        assert (code, texts) == (1, [b"d e "])
        assert "another has its id in the same session" in capsys.readouterr().out
        assert found.doubts


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("flag", [Flag.RELEASED, Flag.RESOLVED])
@pytest.mark.parametrize("is_unwritten", [False, True])
def test_what_ended_under_its_later_number_is_told_by_nobody(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flag: int,
    is_kept: bool,
    is_unwritten: bool,
) -> None:
    """By its tombstone, or by one that is all there is of the later number."""
    anew = 2 << EPOCH_STREAMS_BITS
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    if is_unwritten:
        made.batch(row(anew, 0, 0, begin(), flags=flag | Flag.BEGIN))
    else:
        made.batch(row(anew, 0, 0, begin(), flags=Flag.BEGIN))
        made.batch(row(anew, 4, 5, LATER), row(anew, 6, 6, flags=flag))
    made.batch()
    if is_kept:
        made.partial(1, begin(), EARLIER)
    made.close()
    new = tmp_path / "new" / "data"
    assert main(["fsck", str(made.path)]) == 0
    assert main(["salvage", str(made.path), "--to", str(new)]) == 0
    assert find(str(made.path)).replies == []
    assert find(str(new)).replies == []

    async def main_walld() -> None:
        for home in (Home(tmp_path), Home(tmp_path / "new")):
            async with living(home) as virtual:
                assert await recovered(virtual, "s1") is None

    run(main_walld)
    assert find(str(made.path)).replies == []
