from __future__ import annotations

import pytest

from nfs.mountstats import Operation, difference, parse

_HEAD = """\
device none mounted on /proc with fstype proc
device 127.0.0.1:/srv/a mounted on /mnt/a with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,hard
\tbytes:\t0 0 0 0 0 0 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t       WRITE: 3 4 0 9000 500 1 2 3 0
device 127.0.0.1:/srv/b mounted on /mnt/ab with fstype nfs4 statvers=1.1
\tper-op statistics
\t       WRITE: 7 7 0 70 70 1 2 3 0
"""


def test_operations_of_one_mount() -> None:
    found = parse(_HEAD, "/mnt/a")
    assert found == {"NULL": Operation(1, 1, 44, 24), "WRITE": Operation(3, 4, 9000, 500)}
    assert parse(_HEAD, "/mnt/ab")["WRITE"].asked == 7


def test_a_place_that_is_no_nfs_mount() -> None:
    for place in ("/proc", "/mnt", "/mnt/b"):
        with pytest.raises(KeyError):
            parse(_HEAD, place)


def test_what_came_between() -> None:
    before = parse(_HEAD, "/mnt/a")
    later = _HEAD.replace("WRITE: 3 4 0 9000 500", "WRITE: 5 6 0 13000 800")
    assert difference(before, parse(later, "/mnt/a")) == {"WRITE": Operation(2, 2, 4000, 300)}
    assert difference({}, before) == before
