/**
 * Every limit of the client, with its unit.
 *
 * Owns: the numbers. Refuses: the daemon's own bounds; where both sides must agree the value here
 * holds until Welcome says otherwise.
 */

const KIB = 1024;
const MIB = 1024 * KIB;

/** Longest session, stream, turn or call id, in UTF-8 bytes. */
export const ID_BYTES_MAX = 1 * KIB;
/** Longest text, arguments or result of one event until Welcome says otherwise. */
export const TEXT_BYTES_MAX = 1 * MIB - 4 * KIB;
/** Longest text that folds into a run with its neighbours. */
export const SHORT_TEXT_BYTES_MAX = 1 * KIB;
/** Longest info, meta or detail: beyond it only the start of its JSON travels. */
export const INFO_BYTES_MAX = 64 * KIB;
/** Longest tool name, event kind or error kind; the rest is cut off. */
export const NAME_BYTES_MAX = 1 * KIB;
/** Longest reason or error message; the rest is cut off. */
export const REASON_BYTES_MAX = 64 * KIB;

/** Default for what a client holds of events not yet known synced. */
export const BACKLOG_BYTES_MAX = 16 * MIB;
/** Least that may be given for it: below, one long text would be all it holds. */
export const BACKLOG_BYTES_MIN = 64 * KIB;
/** What Node adds to a held frame: 90 bytes measured for a short text, up to 190 for others. */
export const FRAME_OVERHEAD_BYTES = 200;
/** So many waiting events are looked over at once for tokens that fold into runs. */
export const FOLD_AFTER_EVENTS = 64;
/** What is handed to the socket at once of what waits: while it is not taken it cannot be dropped. */
export const CHUNK_BYTES = 64 * KIB;
/** Replies that ended, are safe on disk and were not released: beyond, the oldest is forgotten. */
export const ENDED_STREAMS_MAX = 4096;
/** Streams of its own a request names, the latest ones. */
export const SEEN_MAX = 256;
/** Tool calls without a result a reply remembers by name. */
export const OPEN_TOOLS_MAX = 1024;

/** Longest payload of an entry; longer content of it becomes an artifact. */
export const PAYLOAD_BYTES_MAX = 256 * KIB;
/**
 * Longest content of a submitted message that stands in its payload: the rest of that has room for names, and for
 * what stands for a long `meta`.
 */
export const CONTENT_BYTES_MAX = 240 * KIB;
export const ARTIFACT_CHUNK_BYTES = 512 * KIB;
/** How much of an artifact's text stands in the event that names it. */
export const PREVIEW_CHARS_MAX = 1024;
/** Events asked for at once. */
export const EVENTS_PAGE = 512;
/** What `git status` may take, ms; then whether the tree is dirty is not known. */
export const GIT_MS = 5000;
/** What all payloads of one append hold together: they travel in one frame. */
export const APPEND_BYTES_MAX = 1 * MIB - 64 * KIB;
/** What `resumeCheck` says of a workspace, as JSON text: it travels in one frame. */
export const WORKSPACE_BYTES_MAX = APPEND_BYTES_MAX;

/** What a request waits, ms. */
export const TIMEOUT_MS = 2000;
/** What a submit waits until it is synced, ms. */
export const SUBMIT_MS = 5000;
/** What close() and the end of the process wait for the kernel to take the rest, ms. */
export const CLOSE_MS = 1000;
export const BACKOFF_MS_MIN = 50;
export const BACKOFF_MS_MAX = 2000;
/** What check() waits for a daemon that does not let this process in to say so, ms. */
export const KNOCK_MS = 50;
/** A connection of which the kernel takes nothing for so long is given up: its daemon is frozen. */
export const STALL_MS = 5000;
/** Between attempts at a daemon that does not speak our version. */
export const VERSION_BACKOFF_MS = 60_000;
