"""What the daemon reads of a session before it keeps calls there, and how long that takes."""

from __future__ import annotations

from typing import Any

import pytest
from partial_reply import call, reply

from walld.daemon.session_store.released_calls import _said_in_message
from walld.sessions.state.events import Event


class Looked(dict[str, Any]):
    """Counts how often anybody looks at one."""

    count = 0

    def get(self, *given: Any) -> Any:
        Looked.count += 1
        return super().get(*given)


def message(stream: str, **said: list[Any]) -> Event:
    payload = {"role": "assistant", "content": "", "_wal_stream": stream, **said}
    return Event(seq=1, id="r:1", type="message", payload=payload)


@pytest.mark.parametrize("same_id", [True, False])
def test_each_call_of_an_entry_is_looked_at_a_few_times(same_id: bool) -> None:
    Looked.count = 0
    names = ["c" if same_id else f"c{number}" for number in range(100)]
    recovered = reply(*(call(seq, name) for seq, name in enumerate(names, 1)))
    said = [Looked(id=name, seq=seq) for seq, name in enumerate(names, 1) if seq % 2]
    found = _said_in_message(
        message(recovered.stream_id, tool_calls=said), recovered, list(recovered.segments)
    )
    assert found == set(range(1, 101, 2))
    assert Looked.count < 500


def test_an_entry_of_before_has_no_seqs_and_any_may_stand_in_it() -> None:
    recovered = reply(call(1, "c1"), call(2, "c2"), call(3, "c3"))
    odd: list[Any] = [{"id": ["c2"], "seq": 2}, {"id": "c3", "seq": {}}, {"id": "c3", "seq": None}]
    said = message(recovered.stream_id, tool_calls=[{"id": "c1"}, *odd, "no call"])
    assert _said_in_message(said, recovered, list(recovered.segments)) == {1}
