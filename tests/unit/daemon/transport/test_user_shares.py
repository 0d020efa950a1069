"""What all processes of a user may give between two flushes while another user waits."""

from __future__ import annotations

from walld import limits
from walld.daemon.transport.user_shares import UserShares


def test_a_user_has_one_share_of_a_flush_and_several_part_it() -> None:
    shares = UserShares()
    assert shares.left(7) == limits.USER_BYTES
    for uid in (7, 8):
        shares.gave(uid, limits.USER_BYTES)
        assert shares.left(uid) == 0
    shares.gave(9, limits.LITTLE_BYTES)
    shares.renew()
    assert shares.left(7) == shares.left(9) == limits.USER_BYTES // 2, "two of them gave much"
    shares.renew()
    assert shares.left(7) == limits.USER_BYTES


def test_where_each_write_takes_long_a_flush_may_hold_more() -> None:
    shares = UserShares()
    shares.wrote(0.02)
    shares.renew()
    assert shares.left(7) == limits.USER_BYTES, "once is no slow disk"
    shares.wrote(0.02)
    shares.renew()
    assert shares.left(7) == int(0.02 * limits.USER_BYTES_PER_SECOND) > limits.USER_BYTES
    shares.wrote(10.0)
    shares.renew()
    shares.wrote(10.0)
    shares.renew()
    assert shares.left(7) == limits.PARTS_BYTES, "and no more than beside one's own"
    shares.wrote(0.0)
    shares.renew()
    assert shares.left(7) == limits.USER_BYTES
