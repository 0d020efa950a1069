"""What was said and what was promised of it, kept apart from all code under test.

Owns: the history of every stream as its application knows it, and the judgement of what a daemon
says is left of it. Refuses: how a reply is stored, folded or sent: it knows seqs, texts and acks.

Invariants: SIM1 nothing synced is missing; SIM2 nothing written is lost by the death of a process;
SIM3 nothing is invented; SIM4 in order, each once, gaps said; SIM9 what was released does not come
back, what was not is not deleted; SIM14 saying it again changes nothing.
A reply is called what its application made of it (SIM3).
L2 whose process is there is alive, and nobody else; P5 what was released is in no file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from walld_client.wire.messages import Recovered

__all__ = [
    "BOUND_SECONDS",
    "KILL_SECONDS",
    "POWER_SECONDS",
    "REST_SECONDS",
    "Oracle",
    "Promise",
    "Story",
    "Wrong",
]


BOUND_SECONDS = 3.0
KILL_SECONDS = 2 * BOUND_SECONDS
"""What a process had sent that has been dead for so long, the death of the daemon does not take."""
POWER_SECONDS = 4 * BOUND_SECONDS
"""Nor does power: two bounds are promised, and time is counted."""
REST_SECONDS = 30.0
"""Within which all must be delivered once trouble is over."""


class Wrong(AssertionError):
    """A promise was broken."""


@dataclass(slots=True, eq=False)
class Story:
    """One stream. seqs count from 0, the start."""

    uid: int
    stream_id: str
    session_id: str
    said: dict[int, tuple[str, str]] = field(default_factory=dict)
    """seq: (kind, text) of every event but start, end and release."""
    next_seq: int = 1
    """One past the highest seq that was used for it."""
    released: bool = False
    """The application has said that its copy is safe."""
    release_kept: bool = False
    """The release itself is known synced."""
    synced: int = -1
    """Highest seq its process was told is synced."""
    taken: int = -1
    """Highest seq the kernel had when its process was killed; only then."""
    killed_at: float | None = None
    ending: str = ""
    """How its application ended it: end, leave, cancel or error; "" where it did not."""
    end_seq: int = 0
    """The seq of that."""
    resolved: bool = False
    """Somebody resolved it and was told so, and no power was cut since."""
    turn_id: str | None = None
    """The turn it is a reply of."""
    given_up: bool = False
    """Somebody asked to resolve it, or to delete its session."""

    @property
    def is_dead(self) -> bool:
        """Its process is gone: nobody can send it again."""
        return self.killed_at is not None

    def is_older(self, now: float, seconds: float) -> bool:
        """Its process has been gone for so long."""
        return self.killed_at is not None and now - self.killed_at >= seconds

    @property
    def is_whole(self) -> bool:
        """Its application ended it well."""
        return self.ending in ("end", "leave")


_ENDED = {
    "end": ("complete", "stop", None, None),
    "leave": ("complete", None, None, None),
    "cancel": ("cancelled", None, "stopped", None),
    "error": ("errored", None, None, "it broke"),
}
"""By how it was ended: (status, finish_reason, lost_reason, message of its error)."""


class Promise(NamedTuple):
    """What held of a stream at one moment. floor: the seq up to which it must be there."""

    floor: int
    is_dead: bool
    is_done: bool
    """Released or resolved, for certain."""


class Oracle:
    """All stories, and what may be asked of them now."""

    def __init__(self) -> None:
        self.stories: dict[tuple[int, str], Story] = {}
        self.checks = 0

    def begin(self, uid: int, stream_id: str, session_id: str, turn_id: str | None = None) -> Story:
        """A stream begins."""
        story = self.stories[uid, stream_id] = Story(uid, stream_id, session_id, turn_id=turn_id)
        return story

    def crashed(self, now: float, *, hurts: bool) -> None:
        """A daemon died: what dead agents had sent counts only where it had the time to be kept."""
        for story in self.stories.values():
            if not story.is_older(now, KILL_SECONDS) or hurts:
                story.taken = -1

    def stopped(self) -> None:
        """A daemon was stopped and ended in peace: what the dead had sent is kept for good."""
        for story in self.stories.values():
            if story.is_dead and not story.released:
                story.synced = max(story.synced, story.taken)

    def power_was_cut(self, now: float, *, hurts: bool) -> None:
        """What was written and not synced may be gone, what was resolved is back perhaps.

        hurts: nothing is promised of when something written is synced.
        """
        for story in self.stories.values():
            story.resolved = False
            if not story.is_older(now, POWER_SECONDS) or hurts:
                story.taken = -1

    def if_it_ended(
        self,
        now: float,
        told: dict[tuple[int, str], int],
        sent: dict[tuple[int, str], int],
        *,
        power: bool,
        hurts: bool,
    ) -> dict[tuple[int, str], Promise]:
        """What would have to hold if the daemon, or with it the machine, were gone now.

        told: how far living processes know to be synced. sent: how far they had sent it long ago.
        """
        safe_seconds = POWER_SECONDS if power else KILL_SECONDS
        found = {}
        for key, story in self.stories.items():
            floor = synced = max(story.synced, told.get(key, -1))
            if not hurts:
                taken = story.taken if story.is_older(now, safe_seconds) else -1
                floor = max(floor, taken, sent.get(key, -1))
            is_told = key in told and story.released and synced >= story.next_seq - 1
            is_done = story.release_kept or is_told or (story.resolved and not power)
            found[key] = Promise(floor, story.is_dead, is_done)
        return found

    def promises(self, *, settled: bool = False) -> dict[tuple[int, str], Promise]:
        """What must hold from now on. settled: agents that live have delivered everything."""
        found = {}
        for key, story in self.stories.items():
            floor = story.synced
            if story.is_dead:
                floor = max(floor, story.taken)
            elif settled:
                floor = story.next_seq - 1
            delivered = settled and story.released and not story.is_dead
            is_done = delivered or story.release_kept or story.resolved
            found[key] = Promise(floor, story.is_dead, is_done)
        return found

    def check(
        self,
        found: list[Recovered],
        where: str,
        promises: dict[tuple[int, str], Promise],
        *,
        rotten: bool,
        spoiled: bool,
    ) -> None:
        """Judge all replies a daemon knows of. Raises Wrong.

        promises: of before the question; a story that began later has none. rotten: bytes were
        damaged on purpose, and the daemon has said that something is damaged: then things may be
        missing, tombstones too, but nothing may be altered. spoiled: power has put garbage where a
        header was, which walld takes for damage: then a gap may be called so, and nothing more.
        """
        self.checks += 1
        by_key: dict[tuple[int, str], Recovered] = {}
        for reply in found:
            key = reply.uid, reply.stream_id
            if key in by_key:
                raise Wrong(f"{where}: {key} is there twice")
            if key not in self.stories:
                raise Wrong(f"{where}: {key} was never begun (SIM3)")
            by_key[key] = reply
        for key, story in self.stories.items():
            reply = by_key.get(key)
            promise = promises.get(key, Promise(-1, False, False))
            floor = promise.floor
            if reply is None:
                # A release that was said and perhaps not kept may or may not have happened.
                if floor >= 0 and not story.released and not rotten:
                    raise Wrong(f"{where}: {key} is gone, seqs up to {floor} were promised (SIM1)")
                continue
            if promise.is_done and not rotten:
                raise Wrong(f"{where}: {key} was released and is back (SIM9)")
            if not rotten and reply.owner_alive and promise.is_dead:
                raise Wrong(f"{where}: {key} is called alive, its process is gone (L2)")
            if not rotten and not reply.owner_alive and not story.is_dead:
                raise Wrong(f"{where}: {key} is called lost, its process is there (L2)")
            for gap in reply.gaps:
                if gap.verdict == "corrupt" and not (rotten or spoiled):
                    raise Wrong(
                        f"{where}: {key} seqs {gap.first_seq}..{gap.last_seq} corrupt (SIM5)"
                    )
            self._compare(where, story, reply, floor, rotten)
            if not rotten:
                self._compare_ending(where, story, reply)

    def not_erased(self, files: dict[str, bytes]) -> str:
        """Something released, and known to be, that a file still holds (P5); "" for nothing."""
        kept = [path for path in files if path.startswith(("wal/", "partials/"))]
        for (_, stream_id), story in self.stories.items():
            if story.released and not story.is_dead and story.turn_id is None:
                name = stream_id.encode()
                path = next((path for path in kept if name in files[path]), None)
                if path is not None:
                    return f"{stream_id} in {path}"
        return ""

    def _compare_ending(self, where: str, story: Story, reply: Recovered) -> None:
        """SIM3: ended as its application ended it, or not at all."""
        error = reply.error.message if reply.error is not None else None
        said = reply.status, reply.finish_reason, reply.lost_reason, error
        if story.ending and reply.last_seq >= story.end_seq:
            wanted = _ENDED[story.ending]
            # What a full disk dropped is missing of a reply that was ended all the same.
            is_whole = wanted[0] == "complete" and not reply.gaps
            is_wrong = said != wanted or (is_whole and reply.partial)
        else:
            wanted = ("live" if reply.owner_alive else "crashed", None, reply.lost_reason, None)
            is_wrong = said != wanted
        if is_wrong:
            key = story.uid, story.stream_id
            raise Wrong(f"{where}: {key} is called {said}, it is {wanted} (SIM3)")

    def _compare(
        self, where: str, story: Story, reply: Recovered, floor: int, rotten: bool
    ) -> None:
        key = story.uid, story.stream_id
        covered: set[int] = set()
        missing: set[int] = set()
        for gap in reply.gaps:
            missing.update(range(gap.first_seq, gap.last_seq + 1))
        last_first = 0
        for piece in reply.segments:
            if piece.kind == "gap":
                continue
            if piece.first_seq <= last_first:
                raise Wrong(f"{where}: {key} segment at {piece.first_seq} out of order (SIM4)")
            last_first = piece.first_seq
            seqs = range(piece.first_seq, piece.last_seq + 1)
            if piece.kind in ("text", "reasoning"):
                said = [story.said.get(seq) for seq in seqs]
                wanted = "".join(one[1] for one in said if one and one[0] == piece.kind)
                if any(one is None or one[0] != piece.kind for one in said):
                    raise Wrong(f"{where}: {key} has {piece.kind} at {seqs}, said {said} (SIM3)")
                if piece.text.decode("utf-8", "surrogatepass") != wanted:
                    raise Wrong(f"{where}: {key} {seqs}: {piece.text!r}, said {wanted!r} (SIM3)")
                covered.update(seqs)
        for seq, (kind, text) in story.said.items():
            if seq > reply.last_seq:
                if seq <= floor and not rotten:
                    raise Wrong(f"{where}: {key} ends at {reply.last_seq}, {floor} promised (SIM1)")
            elif kind in ("text", "reasoning") and (seq in covered) == (seq in missing):
                raise Wrong(f"{where}: {key} seq {seq} {text!r}: neither there nor a gap (SIM4)")
            if seq in missing and seq <= floor and not rotten:
                raise Wrong(f"{where}: {key} seq {seq} is a gap, {floor} was promised (SIM1)")
        # Where damage took the end of a reply nobody knows how much: one seq stands for it.
        feared = rotten and story.next_seq in missing
        if reply.last_seq >= story.next_seq + feared:
            raise Wrong(f"{where}: {key} seq {reply.last_seq} was never sent (SIM3)")
