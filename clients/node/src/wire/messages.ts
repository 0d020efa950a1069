/**
 * The message tables of the walld protocol: names, tags, fields in their order, types and defaults.
 *
 * Owns: the tables, in the words of `clients/PROTOCOL.md` (a test compares the two) and the types of
 * what is received. Refuses: bytes (`codec.ts`), I/O, meaning.
 *
 * Evolution: fields are only ever appended, with a default; a receiver ignores elements it does not
 * know. Tags are never used again.
 */

/** Messages that begin with their tag. */
export const TAGGED = {
  Hello: [0, 'version int, role str, producer bin, log bin = "", synced_no int = 0, client str = ""'],
  Welcome: [1, "version int, daemon str, log bin, frame_bytes_max int, text_bytes_max int"],
  Start: [
    2,
    "stream int, seq int, stream_id str, session_id str, turn_id str? = nil, parent str? = nil, " +
      "meta bin? = nil, at_ms int = 0, app str? = nil",
  ],
  Token: [3, "stream int, seq int, text bin, info bin? = nil"],
  Reasoning: [4, "stream int, seq int, text bin, info bin? = nil"],
  Run: [5, "stream int, seq int, kind int, lengths bin, text bin"],
  Tool: [
    6,
    "stream int, seq int, call_id str, name str, arguments bin? = nil, info bin? = nil, " +
      "truncated_from int = 0",
  ],
  ToolArguments: [7, "stream int, seq int, call_id str, delta bin"],
  ToolResult: [
    8,
    "stream int, seq int, call_id str?, name str?, result bin, json bool = false, " +
      "failed bool = false, info bin? = nil, truncated_from int = 0",
  ],
  Step: [9, "stream int, seq int, info bin? = nil"],
  Custom: [10, "stream int, seq int, kind str, payload bin, truncated_from int = 0"],
  Retry: [11, "stream int, seq int, reason str? = nil, step bool = false"],
  Move: [12, "stream int, seq int, session_id str"],
  Finish: [13, "stream int, seq int, reason str? = nil"],
  AppError: [14, "stream int, seq int, message str, kind str? = nil, detail bin? = nil"],
  End: [15, "stream int, seq int, clean bool, finish_reason str? = nil, reason str? = nil"],
  Release: [16, "stream int, seq int"],
  Resume: [17, "start Start, held_from int, synced int, next_seq int, released bool = false, moved_to str? = nil"],
  Drain: [18, "id int, level str"],
  Ack: [32, "log bin, batch_no int, synced_no int, streams [(int, int, int)]"],
  Drained: [33, "id int, level str"],
  Refused: [34, "stream int, seq int, code str, got str, limit str"],
  Error: [35, 'code str, message str, got str = "", limit str = "", id int = 0'],
  Recover: [
    48,
    "id int, which str, session_id str? = nil, stream_id str? = nil, seen [Seen] = [], " +
      "uid int? = nil",
  ],
  HasPartial: [49, "id int, session_id str, seen [Seen] = []"],
  Resolve: [
    50,
    "id int, stream_id str, last_seq int? = nil, uid int? = nil, seen [Seen] = []",
  ],
  Status: [51, "id int"],
  Metrics: [52, "id int"],
  List: [53, 'id int, prefix str = "", uid int? = nil'],
  Append: [
    54,
    "id int, session_id str, entries [NewEntry], expected_seq int? = nil, level str = written, " +
      "seen [Seen] = [], unowned bool = false, in_order bool = false",
  ],
  Events: [
    55,
    "id int, session_id str, after int = 0, limit int = 0, uid int? = nil, seen [Seen] = [], " +
      "breaks bool = false",
  ],
  Project: [
    56,
    "id int, session_id str, name str, arguments bin = b'{}', uid int? = nil, seen [Seen] = [], " +
      "breaks bool = false",
  ],
  Sessions: [57, 'id int, prefix str = "", uid int? = nil'],
  Delete: [58, "id int, session_id str, uid int? = nil, seen [Seen] = []"],
  Fork: [59, "id int, session_id str, new_id str, at str? = nil, whole bool = false, seen [Seen] = []"],
  PutArtifact: [60, "id int, session_id str, sha256 bin, size int, offset int, chunk bin"],
  GetArtifact: [61, "id int, session_id str, sha256 bin, uid int? = nil"],
  Attest: [62, "id int, session_id str, receipt bin"],
  DeleteAt: [81, "id int, session_id str, last_seq int, uid int? = nil, seen [Seen] = []"],
  Answer: [64, 'id int, chunk bin, last bool = true, receipt bin = "", new_directory int = 0'],
} as const;

/** Arrays without a tag, inside others. */
export const INNER = {
  Seen: "producer bin, stream int, seq int",
  NewEntry:
    "type str, payload bin, id str, parent str? = nil, turn str? = nil, cause str? = nil, " +
    "correlation str? = nil, key str? = nil, leaf bool = true, once bool = false, at_ms int = 0",
  Placed: "seq int, id str, is_new bool = true",
  SessionFacts: 'session_id str, uid int, last_seq int, last_at_ms int, bytes int, trouble str = ""',
  Recovered:
    "stream_id str, session_id str, uid int, turn_id str?, parent str?, meta bin?, status str, " +
    "owner_alive bool, lost_reason str?, error ReplyError?, finish_reason str?, " +
    "started_at_ms int, last_event_at_ms int, last_seq int, gaps [Gap], attempts int, " +
    "events int, partial bool, partial_reason str?, segments [RecoveredSegment], doubt str? = nil, " +
    "app str? = nil, steps [StepBegun] = [], retries [Retried] = []",
  StepBegun: "attempt int, step int, seq int, at_ms int, info bin? = nil",
  Retried: "attempt int, seq int, at_ms int, reason str? = nil, step bool = false",
  Gap: "first_seq int, last_seq int, verdict str",
  ReplyError: "message str, kind str? = nil, detail bin? = nil",
  RecoveredSegment:
    'kind str, step int, attempt int, first_seq int, last_seq int, at_ms int, text bin = "", ' +
    "call_id str? = nil, name str? = nil, arguments bin? = nil, " +
    "arguments_complete bool = false, result bin? = nil, result_json bool = false, " +
    "outcome str? = nil, truncated_from int = 0, info bin? = nil, verdict str? = nil, " +
    "result_info bin? = nil",
} as const;

export type MessageName = keyof typeof TAGGED;
export type InnerName = keyof typeof INNER;

/** The daemon's words to an agent. */
export type ToAgent =
  | { is: "Welcome"; version: number; daemon: string; log: Uint8Array; text_bytes_max: number }
  | { is: "Ack"; log: Uint8Array; synced_no: number; streams: [number, number, number][] }
  | { is: "Drained"; id: number; level: string }
  | { is: "Refused"; stream: number; seq: number; code: string; got: string; limit: string }
  | WireError;

/** The daemon's words to a query client. */
export type ToQuery =
  | { is: "Welcome"; version: number; daemon: string }
  | WireAnswer
  | WireError;

export interface WireAnswer {
  is: "Answer";
  id: number;
  chunk: Uint8Array;
  last: boolean;
  receipt: Uint8Array;
}

export interface WireError {
  is: "Error";
  code: string;
  message: string;
  got: string;
  limit: string;
  id: number;
}

export interface WireRecovered {
  stream_id: string;
  session_id: string;
  uid: number;
  turn_id: string | null;
  parent: string | null;
  meta: Uint8Array | null;
  status: string;
  owner_alive: boolean;
  lost_reason: string | null;
  error: { message: string; kind: string | null; detail: Uint8Array | null } | null;
  finish_reason: string | null;
  started_at_ms: number;
  last_event_at_ms: number;
  last_seq: number;
  gaps: { first_seq: number; last_seq: number; verdict: string }[];
  attempts: number;
  events: number;
  partial: boolean;
  partial_reason: string | null;
  segments: WireSegment[];
  doubt: string | null;
  app: string | null;
  steps: { attempt: number; step: number; seq: number; at_ms: number; info: Uint8Array | null }[];
  retries: { attempt: number; seq: number; at_ms: number; reason: string | null; step: boolean }[];
}

export interface WireSegment {
  kind: string;
  step: number;
  attempt: number;
  first_seq: number;
  last_seq: number;
  at_ms: number;
  text: Uint8Array;
  call_id: string | null;
  name: string | null;
  arguments: Uint8Array | null;
  arguments_complete: boolean;
  result: Uint8Array | null;
  result_json: boolean;
  outcome: string | null;
  truncated_from: number;
  info: Uint8Array | null;
  verdict: string | null;
  result_info: Uint8Array | null;
}
