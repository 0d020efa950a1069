"""Every bound of the client, with its unit.

Owns: the numbers. Refuses: the daemon's own bounds (`walld/limits.py`); where both sides must
agree the value here holds until Welcome says otherwise.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "APPEND_BYTES_MAX",
    "ARTIFACT_CHUNK_BYTES",
    "BACKLOG_BYTES_MAX",
    "BACKLOG_BYTES_MIN",
    "BACKOFF_SECONDS_MAX",
    "BACKOFF_SECONDS_MIN",
    "CHECKPOINT_VALUE_BYTES_MAX",
    "CHORES_EVERY_OTHERS",
    "CHORES_EVERY_TOKENS",
    "CLOSE_SECONDS",
    "CONTENT_BYTES_MAX",
    "ENDED_STREAMS_MAX",
    "EVENTS_PAGE",
    "FOLD_AFTER_EVENTS",
    "GIT_SECONDS",
    "ID_BYTES_MAX",
    "INFO_BYTES_MAX",
    "NAME_BYTES_MAX",
    "OUTBOX_BYTES_MAX",
    "OUTBOX_ENTRIES_MAX",
    "PAYLOAD_BYTES_MAX",
    "PREVIEW_CHARS_MAX",
    "QUERIES_MAX",
    "READ_BYTES_MAX",
    "SEEN_MAX",
    "SHORT_FRAME_BYTES_MAX",
    "SHORT_TEXT_BYTES_MAX",
    "SUBMIT_SECONDS",
    "TEXT_BYTES_MAX",
    "TIMEOUT_SECONDS",
    "TRIM_FRAMES_MAX",
    "VERSION_BACKOFF_SECONDS",
    "WORKSPACE_BYTES_MAX",
]

KIB: Final = 1024
MIB: Final = 1024 * KIB

ID_BYTES_MAX: Final = 1 * KIB
"""Longest session, stream, turn or call id, in UTF-8 bytes."""
TEXT_BYTES_MAX: Final = 1 * MIB - 4 * KIB
"""Longest text, arguments or result of one event until Welcome says otherwise."""
SHORT_TEXT_BYTES_MAX: Final = 1 * KIB
"""Longest text that takes the short way to the kernel; also the longest that folds into a run."""
SHORT_FRAME_BYTES_MAX: Final = 2 * KIB
"""Longest frame of any other event that takes it: nobody counts it until the chores."""
INFO_BYTES_MAX: Final = 64 * KIB
"""Longest info, meta or detail: beyond it only the start of its repr travels."""
NAME_BYTES_MAX: Final = 1 * KIB
"""Longest tool name, event kind or error kind; the rest is cut off."""

BACKLOG_BYTES_MAX: Final = 16 * MIB
"""Default for what a process holds of events not yet known synced."""
BACKLOG_BYTES_MIN: Final = 64 * KIB
"""Least that may be given for it: below, one long text would be all it holds."""
CHORES_EVERY_TOKENS: Final = 2048
"""Acks are read, and the ring trimmed and measured, once in so many tokens of a stream: well below
one call in a thousand, so that p99.9 of a token is a token (at 1024, 13 of 12,594 calls were)."""
CHORES_EVERY_OTHERS: Final = 256
"""The same for events that take the long way; those are measured as they go."""
FOLD_AFTER_EVENTS: Final = 64
"""So many waiting events are looked over at once for tokens that fold into runs."""
TRIM_FRAMES_MAX: Final = 3072
"""Frames let go of in one round of chores: bounds what a single send may cost."""
READ_BYTES_MAX: Final = 16 * KIB
"""Read of the daemon's words in one round of chores."""
ENDED_STREAMS_MAX: Final = 4096
"""Replies that ended, are safe on disk and were not released: beyond, the oldest is forgotten."""
SEEN_MAX: Final = 256
"""Streams of its own a request names, the latest ones."""

PAYLOAD_BYTES_MAX: Final = 256 * KIB
"""Longest payload of an entry; longer content of it becomes an artifact."""
CONTENT_BYTES_MAX: Final = 240 * KIB
"""Longest content of a submitted message that stands in its payload: the rest of that has room for
names, and for what stands for a long `meta`.
"""
APPEND_BYTES_MAX: Final = 1 * MIB - 64 * KIB
"""What all payloads of one append hold together: they travel in one frame."""
WORKSPACE_BYTES_MAX: Final = APPEND_BYTES_MAX
"""What `resume_check` says of a workspace, as JSON text: it travels in one frame."""
ARTIFACT_CHUNK_BYTES: Final = 512 * KIB
PREVIEW_CHARS_MAX: Final = 1024
"""How much of an artifact's text stands in the event that names it."""
CHECKPOINT_VALUE_BYTES_MAX: Final = 32 * KIB
"""A longer value of a checkpoint is an artifact: named by its hash, it is stored once though it
comes again."""
EVENTS_PAGE: Final = 512
"""Events asked for at once."""
OUTBOX_BYTES_MAX: Final = 4 * MIB
"""Payloads of what was appended without waiting and is not answered; beyond it an append raises."""
OUTBOX_ENTRIES_MAX: Final = 4096
"""How many of them."""
QUERIES_MAX: Final = 64
"""Requests of a client that are answered side by side; more of them wait."""
SUBMIT_SECONDS: Final = 5.0
"""What a submit waits until it is synced."""
GIT_SECONDS: Final = 5.0
"""What `git status` may take; then whether the tree is dirty is not known."""

TIMEOUT_SECONDS: Final = 2.0
CLOSE_SECONDS: Final = 1.0
"""What close() and the end of the interpreter wait for the kernel to take the rest."""
BACKOFF_SECONDS_MIN: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 2.0
VERSION_BACKOFF_SECONDS: Final = 60.0
"""Between attempts at a daemon that does not speak our version."""

assert SHORT_TEXT_BYTES_MAX * FOLD_AFTER_EVENTS < TEXT_BYTES_MAX, "a run must fit a frame"
assert TRIM_FRAMES_MAX > CHORES_EVERY_TOKENS, "the ring must shrink faster than it grows"
assert SHORT_TEXT_BYTES_MAX * CHORES_EVERY_TOKENS * 8 <= BACKLOG_BYTES_MAX, "unmeasured is little"
