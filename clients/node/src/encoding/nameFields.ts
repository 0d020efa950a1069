/**
 * Lists which texts of an entry are names. `redact` must not change these: walld and readers look things
 * up by them.
 *
 * Owns: the table of them by the type of the entry, the same as that of the Python client (`names.py`).
 * Refuses: what is done with the others (`redact.ts`).
 *
 * A name is an id, a hash, a word out of a list (a role, a policy, a verdict), the name of a tool, a model, a
 * branch or a setting, a path of the workspace. Changed, it would name something else, or nothing.
 */

/** The steps of paths as a tree; NAMED in it where one ends. A text there is a name. */
export type Names = Map<string, Names>;

const NAMED = "";
const LIST = "[]";
const EVERY = "*";

const IDS = ["id", "call_id", "tool_call_id", "tool_use_id"];
const OF_CONTENT = within("content.[]", ["type", ...IDS]);
const OF_A_CALL = ["type", ...IDS, "name", "outcome", "function.name"];
const OF_ATTACHMENTS = within("attachments.[]", ["sha256", "media_type"]);
const MESSAGE = [
  "role",
  ...IDS,
  "outcome",
  ...["_message_id", "_turn", "_compaction", "_branch_summary", "_wal_stream", "_partial_reason"],
  ...OF_CONTENT,
  ...within("tool_calls.[]", OF_A_CALL),
  ...within("tool_results.[]", OF_A_CALL),
  ...OF_ATTACHMENTS,
];
const LEFT_BEHIND = [
  ...["as_of", "started.[]", "mixed.[]"],
  ...within("calls.[]", ["turn", "call_id", "tool", "side_effect", "resume_policy", "as_of"]),
];
const OF_GONE = [
  ...["call_id", "name", "outcome", "arguments_hash"],
  ...["side_effect", "resume_policy", "idempotency"],
];

/**
 * Type to paths of names: `[]` is each part of a list, `*` what each key has. Types that are not here are the
 * application's own and have none. Wherever `_artifact` stands its hash and media type are names too.
 */
export const NAMES: Record<string, string[]> = {
  message: MESSAGE,
  message_edit: ["target", "message_id", ...within("message", MESSAGE), ...within("messages.[]", MESSAGE)],
  undo: [],
  label: ["target"],
  branch_summary: ["target"],
  setting: ["key"],
  model_change: ["model"],
  compaction: ["first_kept", ...within("replacement.[]", MESSAGE)],
  leaf: ["target", "name"],
  forked: ["session", "at", ...LEFT_BEHIND],
  imported: ["begun", "ended", ...LEFT_BEHIND],
  turn_submitted: ["message_id", "retry_of", "stream_id", "model", ...OF_CONTENT, ...OF_ATTACHMENTS],
  turn_worker_started: ["stream_id"],
  turn_assistant_started: ["stream_id"],
  turn_completed: ["stream_id"],
  turn_interrupted: ["stream_id"],
  tool_intent: [
    ...["call_id", "tool", "side_effect", "resume_policy", "effect", "idempotency"],
    ...["supersedes", "said"],
  ],
  tool_decision: ["call_id", "verdict"],
  tool_approval: ["call_id", "state"],
  tool_settled: ["of.turn", "of.stream", "of.entry", "of.call_id", "word"],
  child: ["session", "call_id", "of.turn", "of.stream", "of.entry", "of.call_id"],
  child_of: ["session", "call_id", "of.turn", "of.stream", "of.entry", "of.call_id"],
  queued: ["kind", "message_id"],
  dequeued: ["target"],
  tool_progress: ["call_id"],
  session_info: ["cwd", "version"],
  compaction_failed: [],
  model_call: [
    ...["stream", "status", "error_class", "error_kind", "finish_reason"],
    ...["model", "provider", "request_id", "tools_hash"],
    ...within("calls.[]", OF_GONE),
    ...within("results.[]", OF_GONE),
  ],
  tool_started: ["call_id", "boot"],
  tool_finished: ["call_id", "outcome", "files.*"],
  observation: ["call_id", "of_turn", "of_call"],
  artifact: ["sha256", "media_type"],
  verification: ["name"],
  budget: [],
  lifecycle: ["kind", "state", ...within("fingerprint", ["root", "head", "branch", "changes.*", "kinds.*", "files.*"])],
};

function within(place: string, paths: string[]): string[] {
  return paths.map((path) => `${place}.${path}`);
}

function tree(paths: string[]): Names {
  const top: Names = new Map();
  for (const path of paths) {
    let place = top;
    for (const step of path.split(".")) {
      if (!place.has(step)) place.set(step, new Map());
      place = place.get(step)!;
    }
    place.set(NAMED, new Map());
  }
  return top;
}

export const NONE: Names = new Map();
const ARTIFACT = tree(["sha256", "media_type"]);
const TREES = new Map(Object.entries(NAMES).map(([type, paths]) => [type, tree(paths)]));

/** The names in a payload of that type. */
export function namesOf(type: string): Names {
  return TREES.get(type) ?? NONE;
}

/** Is a text in this place one? */
export function isName(names: Names): boolean {
  return names.has(NAMED);
}

/** The names in what a key has. */
export function underKey(key: string, names: Names): Names {
  if (key === "_artifact") return ARTIFACT;
  const isKey = key !== NAMED && key !== LIST && key !== EVERY;
  return (isKey ? names.get(key) : undefined) ?? names.get(EVERY) ?? NONE;
}

/** The names in each part of a list. */
export function underList(names: Names): Names {
  return names.get(LIST) ?? NONE;
}
