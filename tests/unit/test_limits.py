"""The bounds of the daemon are those that `clients/PROTOCOL.md` tells who writes a client."""

from __future__ import annotations

import pytest
from unit.client.wire.test_messages import rows

from walld import limits


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("body of a frame", limits.FRAME_BYTES_MAX),
        ("text, arguments, delta, result or payload of one event", limits.TEXT_BYTES_MAX),
        ("a session, stream, turn or parent id, an `app`", limits.ID_BYTES_MAX),
        ("a frame that was begun is whole within", int(limits.FRAME_SECONDS_MAX)),
        ("unread Acks and refusals a peer may pile up", limits.ACK_BYTES_MAX),
        ("live streams of a user, by their memory", limits.LIVE_BYTES_PER_UID_MAX),
        ("a chunk of an Answer", limits.ANSWER_CHUNK_BYTES),
    ],
)
def test_the_table_of_limits(what: str, number: int) -> None:
    (row,) = [row for row in rows() if row[0] == what]
    assert row[1].split()[0] == str(number)
