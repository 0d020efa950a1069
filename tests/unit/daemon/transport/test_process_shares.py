"""What a process may give between two flushes while others wait, or where much has come."""

from __future__ import annotations

import pytest

from walld import limits
from walld.daemon.transport.process_shares import ProcessShares
from walld.engine.engine import Engine
from walld.engine.flush_schedule import FlushSchedule
from walld.engine.stream import Process, Stream
from walld.wal.records import Begin, Owner

MUCH = limits.PARTS_BYTES


class World:
    """Parts of an engine in which something waits for a flush."""

    def __init__(self) -> None:
        self.engine = Engine(FlushSchedule(3000, None))
        self.engine.schedule.offered(0.0)
        self.parts = ProcessShares(self.engine)
        self.now = 100.0

    @staticmethod
    def process(pid: int, uid: int = 7) -> Process:
        return Process(uid, Owner("boot", pid, 0, 0), visible=True)

    def asks(self, process: Process | None) -> None:
        uid = None if process is None else process.uid
        self.engine.askers.append((uid, process))
        self.parts.look(self.now)

    def gives(self, process: Process, most: int = 1 << 30) -> int:
        """All it is let give, as long tokens, or so many bytes of them."""
        given = 0
        while given < most and (count := self.parts.turn_bytes(process)):
            assert count <= limits.READ_BYTES_MAX
            self.parts.gave(process, count, 0, 0)
            self.engine.counters.received_bytes += count
            self.parts.look(self.now)
            given += count
        return given

    def flush(self, *, withheld: bool = False) -> None:
        self.parts.renew(withheld=withheld)
        self.parts.look(self.now)


def live(number: int) -> Stream:
    owner = Owner("boot", 1, 0, 0)
    begin = Begin(7, bytes(16), number, f"r{number}", "s", None, None, None, 0, owner)
    return Stream(number, begin, None)


def test_nobody_is_held_while_nobody_waits_and_little_has_come() -> None:
    world = World()
    bulk = world.process(1)
    world.parts.look(world.now)
    assert not world.parts.is_tight
    assert world.gives(bulk, limits.CROWD_BYTES // 2) >= limits.CROWD_BYTES // 2


def test_while_somebody_else_waits_all_together_give_little_more_than_one_part() -> None:
    world = World()
    quiet, floods = world.process(1), [world.process(pid) for pid in range(2, 22)]
    world.asks(quiet)
    for flush in range(3):
        given = [world.gives(flood) for flood in floods]
        if flush:  # the first time nobody knows how many give much
            assert sum(given) <= MUCH + len(floods) * limits.LITTLE_BYTES
            assert max(given) <= 2 * min(given), "in even parts"
        assert world.parts.turn_bytes(quiet) > 0, "who says little is read"
        world.flush()


def test_who_alone_waits_waits_for_nobody() -> None:
    """A bulk load that drains now and then."""
    world = World()
    bulk, other = world.process(1), world.process(2)
    world.asks(bulk)
    assert world.gives(bulk, 4 * MUCH) >= 4 * MUCH
    world.flush()
    world.asks(other)
    world.asks(bulk)
    assert world.gives(bulk, 4 * MUCH) <= MUCH
    world.now += 2 * limits.ASKED_SECONDS
    world.flush()
    world.asks(bulk)
    assert world.gives(bulk, 4 * MUCH) >= 4 * MUCH


def test_a_request_waits_beside_everybody() -> None:
    world = World()
    world.asks(None)
    assert world.gives(world.process(1)) <= MUCH + limits.LITTLE_BYTES


def test_beyond_a_crowd_also_where_nobody_waits() -> None:
    world = World()
    floods = [world.process(pid) for pid in range(1, 60)]
    given = sum(world.gives(flood, limits.CROWD_BYTES // 10) for flood in floods)
    most = limits.CROWD_BYTES + len(floods) * limits.PARTS_BYTES
    assert limits.CROWD_BYTES < given < most
    assert world.parts.turn_bytes(world.process(99)) > 0


def test_a_process_of_many_live_streams_has_a_little_for_each() -> None:
    world = World()
    many = world.process(1)
    many.streams = {number: live(number) for number in range(2000)}
    world.asks(world.process(2))
    assert world.gives(many) >= 2000 * limits.STREAM_BYTES
    world.flush()
    many.streams = {number: live(number) for number in range(6000)}
    assert world.gives(many) <= limits.CROWD_BYTES, "and no more than a crowd"


def test_beside_another_user_who_waits_all_processes_and_streams_are_one_users() -> None:
    """I4. Little things, too: 20 processes that begin short replies, each with live streams."""
    world = World()
    many = [world.process(pid) for pid in range(1, 200)]
    for process in many:
        process.streams = {number: live(number) for number in range(100)}
    world.asks(world.process(300, uid=8))
    for _ in range(3):
        assert 0 < sum(map(world.gives, many)) <= limits.USER_BYTES + limits.BUSY_READ_BYTES
        assert world.parts.turn_bytes(world.process(301, uid=8)) > 0
        world.flush()
    world.now += 2 * limits.ASKED_SECONDS
    world.parts.look(world.now)
    assert sum(map(world.gives, many)) > MUCH, "nobody waits any more"


def test_a_request_of_another_user_waits_beside_all_processes_too() -> None:
    world = World()
    many = [world.process(pid) for pid in range(1, 40)]
    world.engine.askers.append((8, None))
    world.parts.look(world.now)
    assert 0 < sum(map(world.gives, many)) <= limits.USER_BYTES + limits.BUSY_READ_BYTES
    world.flush()
    world.now += 2 * limits.ASKED_SECONDS
    world.engine.askers.append((7, None))
    world.parts.look(world.now)
    assert sum(map(world.gives, many)) > limits.USER_BYTES + limits.BUSY_READ_BYTES, "their own"


def test_events_that_do_not_fold_count_as_the_work_they_are() -> None:
    world = World()
    flood = world.process(1)
    world.asks(world.process(2))
    events = 0
    while count := world.parts.turn_bytes(flood):
        world.parts.gave(flood, count, max(1, count // 25), 0)
        events += max(1, count // 25)
    assert events * limits.EVENT_BYTES < 1.5 * MUCH


def test_tokens_of_many_streams_count_as_the_records_they_are() -> None:
    """I4. 10,000 streams of a word each: an ack of another user took 4.4 times as long (p99)."""
    world = World()
    many = world.process(1)
    world.asks(world.process(2, uid=8))
    many.work_per_byte = limits.FOLD_BYTES // 20
    folds = 0
    while count := world.parts.turn_bytes(many):
        world.parts.gave(many, count, 0, -(-count // 20))
        folds += -(-count // 20)
    a_turn = 256 // 20 + 1
    assert 0 < folds * limits.FOLD_BYTES <= limits.USER_BYTES + a_turn * limits.FOLD_BYTES


def test_who_is_read_first_behind_a_flush_gives_no_more_of_dear_events() -> None:
    """Nothing waits for a flush yet, so none is known to come that would let it go on."""
    world = World()
    dear = world.process(1)
    dear.work_per_byte = limits.EVENT_BYTES // 25
    world.asks(world.process(2, uid=8))
    world.engine.schedule.flush_begun()
    world.engine.schedule.flush_ended()
    count = world.parts.turn_bytes(dear)
    assert 0 < count * dear.work_per_byte <= limits.USER_BYTES + 256 * dear.work_per_byte


def test_all_that_have_exited_are_one_process_of_their_user() -> None:
    world = World()
    dead = [world.process(pid) for pid in range(1, 101)]
    for process in dead:
        process.has_exited = True
    world.asks(world.process(200))
    assert sum(map(world.gives, dead)) <= MUCH
    strange = world.process(300, uid=8)
    strange.has_exited = True
    assert world.gives(strange) > 0


@pytest.mark.parametrize("withheld", [False, True])
def test_while_much_is_not_synced_who_gave_much_gives_no_more(withheld: bool) -> None:
    world = World()
    flood, quiet = world.process(1), world.process(2)
    world.asks(quiet)
    world.gives(flood)
    world.gives(quiet, limits.LITTLE_BYTES // 2)
    world.flush(withheld=withheld)
    assert bool(world.parts.turn_bytes(flood)) is not withheld
    assert world.parts.turn_bytes(quiet)


def test_where_no_flush_would_let_it_go_on_nobody_is_held() -> None:
    """P7: a disk that is full or hangs; and where nothing waits no flush comes."""
    for ease in ("disk_full", "is_stuck", "idle"):
        world = World()
        flood = world.process(1)
        world.asks(world.process(2))
        world.gives(flood)
        assert not world.parts.turn_bytes(flood)
        if ease == "idle":
            world.engine.schedule.flush_begun()
            world.engine.schedule.flush_ended()
        else:
            setattr(world.engine if ease == "disk_full" else world.parts, ease, True)
        assert world.parts.turn_bytes(flood) == limits.BUSY_READ_BYTES
