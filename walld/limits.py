"""Every bound of the daemon, with its unit, in one table. `walld config` prints them.

Owns: the numbers and the relations between them (asserted below). Refuses: where a value came
from (`daemon/settings.py`).
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- the wire ---
FRAME_BYTES_MAX: Final = 1 * MIB
"""Longest message. A client splits longer text."""
TEXT_BYTES_MAX: Final = FRAME_BYTES_MAX - 4 * KIB
"""Longest text, arguments or result of one event: leaves room for ids in the same frame."""
ID_BYTES_MAX: Final = 1 * KIB
"""Longest session, stream, turn or call id, in UTF-8 bytes."""
FRAME_SECONDS_MAX: Final = 10.0
"""A frame that was begun must be whole after this (slow-loris)."""
BEGUN_BYTES_FREE: Final = 64 * KIB
BEGUN_FRAMES_PER_UID_MAX: Final = 64
"""Agents' connections of one uid that may hold more than that of a frame which is not whole."""
ACK_BYTES_MAX: Final = 64 * KIB
"""Acks waiting for a peer that does not read: beyond, it gets none until it reads."""
ACK_STREAMS_MAX: Final = 4000
"""Streams named in one Ack: what moved beyond goes in the next frame, at most 84 KB each."""
UNHEARD_STREAMS_MAX: Final = 1000
"""Released streams whose Ack a peer has not read: beyond, it is not read either until it does."""
ANSWER_CHUNK_BYTES: Final = 256 * KIB
ANSWER_HELD_BYTES_MAX: Final = 1 * MIB
"""Lines of a session's file that an answer holds: one with more reads them again as it is sent."""
ANSWER_PAGE_BYTES: Final = 256 * KIB
"""Of lines read again at a time, and a line more."""
ANSWER_PAGED_BYTES: Final = 3 * MIB
"""What such an answer holds at most beside lines that wait for the file: a page, twice."""
VIEW_BYTES_MAX: Final = 112 * MIB
"""Of the events that a view is made of and its answer: of one long session at a time. A longer one
is refused.
"""
TAIL_INDEX_BYTES_MAX: Final = 64 * MIB
"""Of indexes of sessions whose last messages were asked for: the one asked longest ago goes."""
KEPT_FOLDS_BYTES_MAX: Final = 32 * MIB
"""Of folds of long unreleased replies that the gate asks for: the one asked longest ago goes."""
SCRAPES_MAX: Final = 16
"""Connections of the metrics port at a time: one more takes the place of the oldest."""
SCRAPE_SECONDS_MAX: Final = 10.0
"""How long one of them may say nothing, or read nothing of its answer."""
SCRAPE_BYTES_MAX: Final = 8 * KIB
"""Longest request there, in all."""
METRICS_RETRY_SECONDS: Final = 2.0
"""Between two tries to listen at a metrics port that another process has."""
LOG_QUEUE_BYTES_MAX: Final = 1 * MIB
"""Log lines that wait for somebody to read them: more are dropped, and counted."""
LOG_DRAIN_SECONDS: Final = 1.0
"""So long an end waits for them to be read."""
LOG_RETRY_SECONDS: Final = 1.0
"""Between two tries to write one that failed."""
PEERS_RESERVE_FDS: Final = 256
"""File descriptors never given to peers: segments, partials, pidfds, metrics."""
PEERS_UID_SHARE_MAX: Final = 0.9
"""Share of the peers that one uid may hold."""
CONNECTIONS_PER_PRODUCER_MAX: Final = 32
"""Agents' connections of one: what was said on each earlier one is read before a new one."""
REQUESTS_PER_UID_MAX: Final = 8
"""Queries of one uid that are answered at a time; the others wait their turn."""
ASKING_SLICE_SECONDS: Final = 0.0005
"""Requests of one uid are carried out so long before the loop has its turn."""
ASKING_REST_SECONDS: Final = 0.001
"""And so long they wait then, while an agent waits for its ack."""
ASKING_BYTES_PER_SECOND: Final = 32 * MIB
"""Long requests of one uid, while another waits for a flush: longer than a slice at that pace."""
IN_FLIGHT_BYTES_MAX: Final = 64 * MIB
"""Requests of one uid that are not answered, refused ones too, and answers that are not read:
beyond, no long answer more is begun."""
REQUESTS_BYTES_MAX: Final = 32 * MIB
"""Of that, requests: beyond, no long one more is read."""
UNREAD_SECONDS_MAX: Final = 1.0
"""So long nothing of an answer is read before it is given up, where another waits for its room."""
READ_SECONDS_MAX: Final = 10.0
"""So long one is read at most, there."""
ANSWER_SECONDS_MAX: Final = 30.0
"""So long nothing of an answer may be read, where nobody waits."""
LOST_LINES_MAX: Final = 20
"""Of the log, a second, about what clients say is lost; the metric counts all."""
LIVE_STREAM_BYTES: Final = 1280
"""Memory of a live stream, beside its ids and its `meta`."""
LIVE_BYTES_PER_UID_MAX: Final = 64 * MIB
"""Live streams of one uid, by their memory: about 48,000 that have no `meta`."""
REFUSED_STREAMS_MAX: Final = 1000
"""Numbers of a producer that are known to be refused, so that each is said once."""

# --- intake ---
READ_BYTES_MAX: Final = 16 * KIB
"""Read from one connection in a turn."""
DOOR_READ_BYTES: Final = 1 * KIB
"""Read at a time from one that has not said Hello: its events wait for their turns."""
SWEEP_SLICE_SECONDS: Final = 0.001
"""A sweep yields to the event loop this often."""
SHARE_BYTES: Final = 256 * KIB
"""Read from one connection between two flushes, so that no flush is one agent's alone."""
CROWD_BYTES: Final = 4 * MIB
"""Read from all together between two flushes before each process is given but a part."""
PARTS_BYTES: Final = 256 * KIB
"""Those parts together, and while somebody waits for a flush."""
USER_BYTES: Final = 16 * KIB
"""Read from all processes of a user between two flushes, little things too, while another waits."""
USER_BYTES_PER_SECOND: Final = 8 * MIB
"""Or so much for each second that the disk's last write took, up to PARTS_BYTES."""
LITTLE_BYTES: Final = 1 * KIB
"""Read from each process between two flushes, whatever the others give."""
STREAM_BYTES: Final = 1 * KIB
"""And from a process with many live streams, so much for each of them, up to CROWD_BYTES."""
EVENT_BYTES: Final = 1000
"""An event that does not fold is as much work as so many bytes of short tokens."""
ASKED_SECONDS: Final = 0.25
"""So long after somebody waited for a flush others are thought to wait again."""
BUSY_READ_BYTES: Final = 4 * KIB
"""A sweep in which some connection gave more than this is followed by the next without a rest."""
SOCKET_BYTES_MAX: Final = 16 * MIB
"""More than a socket holds unread: who has given so much gives what was sent since."""
REST_SECONDS_MIN: Final = 0.010
REST_SECONDS_MAX: Final = 0.100
"""The rest between sweeps is as long as the last sweep, within these.

Whoever sends to a daemon that sleeps pays for waking it, ten times what the send costs: the least
rest is longer than the pause between two tokens of a few replies together, and short beside what
a first drain waits for its disk.
"""
RECONNECT_GRACE_SECONDS: Final = 30.0
"""Only for peers whose pid cannot be seen."""

# --- when to flush ---
FLUSH_BOUND_MS_DEFAULT: Final = 3000
FLUSH_BOUND_MS_MAX: Final = 3000
FLUSH_BOUND_MS_MIN: Final = 20
LINGER_MS_MAX: Final = 250
LINGER_COST_FACTOR: Final = 20
"""Linger is this many times what the last flush cost: 5 % overhead wherever the cost lies."""
SYNC_PERIOD_MS: Final = 1000
"""Written bytes nobody waits for are synced after this, or 20 x the last sync, within the bound."""
TELL_SYNCED_SECONDS: Final = 1.0
"""So long after a sync an empty batch says how far it reached; under load the next flush has."""
ACK_PERIOD_SECONDS: Final = 0.25

# --- memory ---
QUEUE_BYTES_MAX: Final = 64 * MIB
QUEUE_HIGH_SHARE: Final = 0.75
"""Intake stops reading above this share of the queue and goes on below half of it."""
UNSYNCED_BYTES_MAX: Final = 8 * MIB
LEDGER_BYTES_MAX: Final = 8 * MIB
"""Lines of sessions, all together, that are not in their files yet."""
LEDGER_FAILING_BYTES_MAX: Final = 512 * KIB
"""Of one session whose file cannot be written: the rest is for those whose files can."""
LEDGER_PAYLOAD_BYTES_MAX: Final = 256 * KIB
"""Payload of one entry of a session: what is longer is an artifact."""
LEDGER_LINE_BYTES_MAX: Final = 1 * MIB
"""A line with it, all ids and their escapes: what is longer in a session's file is no line."""
LEDGER_DEPTH_MAX: Final = 200
"""Lists and objects in each other in a payload: every view must be able to tell it again."""
LEDGER_ENTRIES_MAX: Final = 1000
"""Entries of one request: all are taken in one step, and agents are read behind it."""
LEDGER_LOST_MAX: Final = 1000
"""Seqs that are left out for one receipt, as many as a request may append."""
CHECKPOINT_BYTES: Final = 64 * KIB
"""So many bytes of a session's lines wait for its file at most, and not longer than: """
CHECKPOINT_SECONDS: Final = 60.0
CHECKPOINT_LINES: Final = 50
"""Or so many of them: what is folded again behind a snapshot."""
INDEX_ENTRIES_MAX: Final = 128
"""Records of one stream before those behind them are folded into one."""

# --- disk ---
BATCH_BYTES_CUT: Final = 256 * KIB
"""A batch is cut before it passes this; one write(2), one stable NFS WRITE."""
BATCH_BYTES_MAX: Final = 2 * MIB
SEGMENT_BYTES_MAX: Final = 16 * MIB
SEGMENT_SECONDS_MAX: Final = 600.0
SEGMENTS_MAX: Final = 64
"""Of a log whose live bytes would fit into fewer: beyond, the oldest is emptied. Each is open."""
LOG_HELD_BYTES_MAX: Final = 256 * MIB
"""A log that waits for a start which can read what one could not; scanned in a second."""
RESERVE_BYTES: Final = 1 * MIB
DISK_RETRY_SECONDS: Final = 1.0
DISK_RETRY_SECONDS_MAX: Final = 8.0
"""Between two tries at a new segment, each of which may leave one behind: doubled up to here."""
OTHER_LOGS_PER_UID_MAX: Final = 8
OTHER_LOGS_UIDS_MAX: Final = 1024
"""Whose words of other logs are remembered. Of more the oldest are forgotten, and count anew."""
RECLAIM_SECONDS_DEFAULT: Final = 30.0
RETENTION_SECONDS_DEFAULT: Final = 7 * 24 * 3600.0

# --- sessions ---
ARTIFACT_BYTES_MAX: Final = 64 * MIB
"""Largest artifact: it is verified, and answered, as a whole in memory."""
ARTIFACT_UPLOADS_PER_UID_MAX: Final = 16
"""Artifacts of one uid that are not whole yet: the one that was begun first makes room."""

assert TEXT_BYTES_MAX < FRAME_BYTES_MAX < BATCH_BYTES_MAX // 2 + 1, "a frame must fit a batch"
assert BATCH_BYTES_CUT < BATCH_BYTES_MAX < UNSYNCED_BYTES_MAX < QUEUE_BYTES_MAX
assert BATCH_BYTES_MAX < SEGMENT_BYTES_MAX
assert 2 * LEDGER_PAYLOAD_BYTES_MAX < LEDGER_LINE_BYTES_MAX <= BATCH_BYTES_MAX
assert SEGMENTS_MAX < PEERS_RESERVE_FDS
assert 2 * (ANSWER_PAGE_BYTES + LEDGER_LINE_BYTES_MAX) <= ANSWER_PAGED_BYTES < IN_FLIGHT_BYTES_MAX
assert FRAME_BYTES_MAX < REQUESTS_BYTES_MAX < IN_FLIGHT_BYTES_MAX, "answers wait for no request"
assert LINGER_MS_MAX * 2 <= FLUSH_BOUND_MS_MAX
assert BUSY_READ_BYTES < READ_BYTES_MAX
assert BUSY_READ_BYTES <= USER_BYTES <= PARTS_BYTES
assert REST_SECONDS_MAX * 1000 < LINGER_MS_MAX
