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
HELLO_BYTES_MAX: Final = 4 * KIB
"""Longest Hello, of which nearly all is the client's name and version."""
TEXT_BYTES_MAX: Final = FRAME_BYTES_MAX - 4 * KIB
"""Longest text, arguments or result of one event: leaves room for ids in the same frame."""
ID_BYTES_MAX: Final = 1 * KIB
"""Longest session, stream, turn or call id, in UTF-8 bytes."""
FRAME_SECONDS_MAX: Final = 10.0
"""A frame that was begun must be whole after this (slow-loris)."""
BEGUN_BYTES_FREE: Final = 64 * KIB
"""An agent's connection may always hold so much of a frame that is not whole."""
BEGUN_FRAMES_PER_UID_MAX: Final = 64
"""Agents' connections of one uid that may hold more than BEGUN_BYTES_FREE."""
ACK_BYTES_MAX: Final = 64 * KIB
"""Acks waiting for a peer that does not read: beyond, it gets none until it reads."""
ACK_STREAMS_MAX: Final = 4000
"""Streams named in one Ack: what moved beyond goes in the next frame, at most 84 KB each."""
UNHEARD_STREAMS_MAX: Final = 1000
"""Released streams whose Ack a peer has not read: beyond, it is not read either until it does."""
ANSWER_CHUNK_BYTES: Final = 256 * KIB
"""Longest piece of an answer in one frame."""

# --- long answers ---
ANSWER_HELD_BYTES_MAX: Final = 1 * MIB
"""Lines of a session's file that an answer holds: one with more reads them again as it is sent."""
ANSWER_PAGE_BYTES: Final = 256 * KIB
"""Lines of the file that such an answer reads at a time, and one line more."""
ANSWER_PAGED_BYTES: Final = 3 * MIB
"""What such an answer holds at most beside lines that wait for the file: a page, twice."""
VIEW_BYTES_MAX: Final = 112 * MIB
"""Of the events that a view with words is made of and its answer: of one long session at a time. A
longer one is refused, and pages tell it.
"""
JUDGED_BYTES_MAX: Final = 512 * MIB
"""The same of views without words, which have no pages: some 500,000 events of any length."""
FORK_BYTES_MAX: Final = 256 * MIB
"""Of the events that a fork copies and its lines: some 100 MB of words, or 200,000 events."""
TAIL_INDEX_BYTES_MAX: Final = 64 * MIB
"""All indexes of sessions whose last messages were asked for: the one asked longest ago goes."""
KEPT_FOLDS_BYTES_MAX: Final = 32 * MIB
"""All folds of long unreleased replies that views ask for: the one asked longest ago goes."""
STANDINGS_MAX: Final = 10_000
"""Sessions of which it is kept where they stand, about 500 bytes each: the one asked longest ago
goes.
"""

# --- metrics and log lines ---
SCRAPES_MAX: Final = 16
"""Connections of the metrics port at a time: one more takes the place of the oldest."""
SCRAPE_SECONDS_MAX: Final = 10.0
"""How long one of them may say nothing, or read nothing of its answer."""
SCRAPE_BYTES_MAX: Final = 8 * KIB
"""Longest request at the metrics port, in all."""
METRICS_RETRY_SECONDS: Final = 2.0
"""Between two tries to listen at a metrics port that another process has."""
LOG_LINES_PER_SECOND_MAX: Final = 20
"""Log lines of a kind that peers cause, by what they do wrong or say is lost; metrics count all."""
LOG_QUEUE_BYTES_MAX: Final = 1 * MIB
"""Log lines that wait for somebody to read them: more are dropped, and counted."""
LOG_DRAIN_SECONDS: Final = 1.0
"""How long an end waits for them to be read."""
LOG_RETRY_SECONDS: Final = 1.0
"""Between two tries to write a log line, where a write failed."""

# --- peers, and what one uid may have in flight ---
PEERS_RESERVE_FDS: Final = 256
"""File descriptors never given to peers: segments, partials, pidfds, metrics."""
PEERS_UID_SHARE_MAX: Final = 0.9
"""Share of the peers that one uid may hold."""
CONNECTIONS_PER_PRODUCER_MAX: Final = 32
"""Agents' connections of one producer: each earlier one is read before a new one is."""
REQUESTS_PER_UID_MAX: Final = 8
"""Queries of one uid that are answered at a time; the others wait their turn."""
ASKING_SLICE_SECONDS: Final = 0.0005
"""How long requests of one uid are carried out before the loop has its turn."""
ASKING_REST_SECONDS: Final = 0.001
"""How long they wait behind such a slice, while an agent waits for its ack."""
ASKING_BYTES_PER_SECOND: Final = 4 * MIB
"""Pace of one uid's long requests and answers while another user waits for a flush. One is long
where it takes more than a slice at this pace."""
ANSWER_REST_SECONDS_MAX: Final = 0.25
"""Longest rest behind an answer at that pace."""
IN_FLIGHT_BYTES_MAX: Final = 64 * MIB
"""Requests of one uid that are not answered, refused ones too, and answers that are not read:
beyond, no long answer more is begun."""
REQUESTS_BYTES_MAX: Final = 32 * MIB
"""The part of IN_FLIGHT_BYTES_MAX that requests may take: beyond, no long one more is read."""
UNREAD_SECONDS_MAX: Final = 1.0
"""An answer of which nothing is read for so long is given up where another waits for its room."""
READ_SECONDS_MAX: Final = 10.0
"""One that is read slowly is given up after so long, where another waits for its room."""
ANSWER_SECONDS_MAX: Final = 30.0
"""One of which nothing is read for so long is given up where nobody waits, too."""
LIVE_STREAM_BYTES: Final = 1280
"""Memory of a live stream, beside its ids and its `meta`."""
LIVE_BYTES_PER_UID_MAX: Final = 64 * MIB
"""Live streams of one uid, by their memory: about 48,000 that have no `meta`."""
REFUSED_STREAMS_MAX: Final = 1000
"""Numbers of a producer that are known to be refused, so that each is said once."""

# --- reading agents' sockets ---
READ_BYTES_MAX: Final = 16 * KIB
"""Read from one connection in a turn."""
DOOR_READ_BYTES: Final = 1 * KIB
"""Read at a time from one that has not said Hello (`acceptor.py`): its events wait their turn."""
SWEEP_SLICE_SECONDS: Final = 0.001
"""A sweep yields to the event loop this often."""
SHARE_BYTES: Final = 256 * KIB
"""Read from one connection between two flushes, so that no flush is one agent's alone."""
CROWD_BYTES: Final = 4 * MIB
"""Read from all together between two flushes before each process has only a part."""
PARTS_BYTES: Final = 256 * KIB
"""All such parts together. Processes have parts while somebody waits for a flush, too."""
USER_BYTES: Final = 8 * KIB
"""Read from all processes of other users between two flushes, little things too, while one user
waits. Those of them that gave much share it evenly."""
USER_BYTES_PER_SECOND: Final = 8 * MIB
"""Or so much for each second that the disk's last write took, up to PARTS_BYTES."""
LITTLE_BYTES: Final = 1 * KIB
"""Read from each process between two flushes, whatever the other processes give."""
STREAM_BYTES: Final = 1 * KIB
"""The same for each live stream of a process, up to CROWD_BYTES."""
EVENT_BYTES: Final = 1000
"""An event that does not fold is as much work as so many bytes of short tokens."""
FOLD_BYTES: Final = 500
"""The same of all tokens of one stream that came in one read, beyond theirs: a record for them."""
ASKED_SECONDS: Final = 0.25
"""Who waited for a flush is taken to wait again for so long after that."""
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
RETURN_SECONDS: Final = 10.0
"""So long behind a start no reply is proven absent while a living process that has some is away:
clients try at least each 2 s. One that never comes, but lives, delays each "nothing" so long.
"""

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
"""Agents are not read above this share of the queue, until it is at half."""
UNSYNCED_BYTES_MAX: Final = 8 * MIB
"""Written and not synced: beyond, no flush begins; above half of it a sync is begun at once."""
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
CHILD_DEPTH_MAX: Final = 8
"""Sessions of sub-agents below each other that a view looks into."""
CHILDREN_MAX: Final = 64
"""Those that are not done, and that one view looks into, on all ways down."""
CHECKPOINT_BYTES: Final = 64 * KIB
"""A checkpoint is due when so many bytes of a session's lines wait for its file."""
CHECKPOINT_SECONDS: Final = 60.0
"""Or when the first of them has waited so long."""
CHECKPOINT_LINES: Final = 50
"""Or when so many lines wait: a start folds these again behind a snapshot."""
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
"""Longest log behind a segment that a start could not read; such a log is scanned in a second."""
RESERVE_BYTES: Final = 1 * MIB
DISK_RETRY_SECONDS: Final = 1.0
DISK_RETRY_SECONDS_MAX: Final = 8.0
"""Between two tries at a new segment, each of which may leave one behind: doubled up to here."""
OTHER_LOGS_PER_UID_MAX: Final = 8
"""Other logs that clients of one uid may name, and are remembered (`recovery/other_logs.py`)."""
OTHER_LOGS_UIDS_MAX: Final = 1024
"""Uids of which they are remembered. Of more the oldest are forgotten, and count anew."""
RECLAIM_SECONDS_DEFAULT: Final = 30.0
RETENTION_SECONDS_DEFAULT: Final = 7 * 24 * 3600.0
"""Running time, not time of a clock (`partials/ages.py`)."""

# --- sessions ---
ARTIFACT_BYTES_MAX: Final = 64 * MIB
"""Largest artifact: it is verified, and answered, as a whole in memory."""
ARTIFACT_UPLOADS_PER_UID_MAX: Final = 16
"""Artifacts of one uid that are not whole yet: the one that was begun first makes room."""

assert TEXT_BYTES_MAX < FRAME_BYTES_MAX < BATCH_BYTES_MAX // 2 + 1, "a frame must fit a batch"
assert BATCH_BYTES_CUT < BATCH_BYTES_MAX < UNSYNCED_BYTES_MAX < QUEUE_BYTES_MAX
assert BATCH_BYTES_MAX < SEGMENT_BYTES_MAX
assert HELLO_BYTES_MAX < BEGUN_BYTES_FREE, "a newcomer collects nothing worth counting"
assert 2 * LEDGER_PAYLOAD_BYTES_MAX < LEDGER_LINE_BYTES_MAX <= BATCH_BYTES_MAX
assert SEGMENTS_MAX < PEERS_RESERVE_FDS
assert 2 * (ANSWER_PAGE_BYTES + LEDGER_LINE_BYTES_MAX) <= ANSWER_PAGED_BYTES < IN_FLIGHT_BYTES_MAX
assert FRAME_BYTES_MAX < REQUESTS_BYTES_MAX < IN_FLIGHT_BYTES_MAX, "answers wait for no request"
assert LINGER_MS_MAX * 2 <= FLUSH_BOUND_MS_MAX
assert BUSY_READ_BYTES < READ_BYTES_MAX
assert BUSY_READ_BYTES <= USER_BYTES <= PARTS_BYTES
assert REST_SECONDS_MAX * 1000 < LINGER_MS_MAX
