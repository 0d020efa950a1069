/**
 * What each call of a session and of its turns takes, by place and as options.
 *
 * Owns: the table. `clients/vectors/calls.json` is made of the signatures of the Python client and says the same
 * (a test compares the two); the types of the options are held to it here. Refuses: the checks themselves
 * (`argumentChecks.ts`), what an entry may hold (the daemon says).
 */

import type { Kind, Kinds, OnlyWith } from "../encoding/argumentChecks.ts";
import type * as types from "./entries.ts";

export const SIDE_EFFECTS = ["none", "read", "workspace-write", "external-write", "network", "process"] as const;
export const RESUME_POLICIES = [
  "replay-from-event",
  "rerun-after-check",
  "require-user-confirmation",
  "never-rerun",
] as const;
export const IDEMPOTENCY = ["safe", "conditional", "unsafe"] as const;
export const OUTCOMES = ["done", "failed", "timeout", "cancelled"] as const;
export const APPROVALS = ["asked", "granted", "denied"] as const;
export const SETTLED = ["ran", "did_not_run", "granted", "denied"] as const;
const FORMATS = ["plain", "openai", "anthropic"] as const;

/** A kind for each option that a type has, and no other. */
type Of<T> = { readonly [name in keyof T]-?: Kind };

const ENTRY: Of<types.EntryOptions> = {
  id: "entry",
  parent: "entry",
  turn: "entry",
  key: "id",
  cause: "entry",
  correlation: "entry",
  once: "bool",
  leaf: "bool",
};
const PLACE: Of<types.PlaceOptions> = { expectedSeq: "seq", synced: "bool", timeoutMs: "milliseconds" };
const APPEND: Of<types.AppendOptions> = { ...ENTRY, ...PLACE };
const FIELDS: Of<types.OwnFields> = { fields: "object" };
const INTENT: Of<types.IntentOptions> = {
  sideEffect: SIDE_EFFECTS,
  resumePolicy: RESUME_POLICIES,
  callId: "entry",
  idempotency: IDEMPOTENCY,
  key: "text",
  supersedes: "entry",
  ...FIELDS,
};
const DECISION: Of<types.DecisionOptions> = { reason: "text", ...FIELDS };
const APPROVAL: Of<types.ApprovalOptions> = { by: "text", scope: "object", expiresAt: "date", ...FIELDS };
const STARTED: Of<types.StartedOptions> = { pid: "count", ...FIELDS };
const FINISHED: Of<types.FinishedOptions> = {
  failed: "bool",
  outcome: OUTCOMES,
  exitCode: "exitCode",
  files: "fileHashes",
  ...FIELDS,
};
const SUBMIT: Of<types.SubmitOptions> = {
  messageId: "id",
  retryOf: "entry",
  streamId: "id",
  attachments: "sources",
  model: "text",
  calls: "text",
  meta: "object",
  timeoutMs: "milliseconds",
};
const MESSAGES: Of<types.MessagesOptions> = {
  format: FORMATS,
  branch: "entry",
  compacted: "bool",
  unknown: ["say", "drop"],
  last: "count",
  before: "text",
};
const SETTLE: Of<types.SettleOptions> = {
  result: "any",
  note: "text",
  by: "text",
  scope: "object",
  expiresAt: "date",
  turn: "entry",
  streamId: "id",
  n: "count",
  force: "bool",
};
const CHILD: Of<types.ChildOptions> = { callId: "entry", turn: "entry", streamId: "id", n: "count" };
const RESUME_CHECK: Of<types.ResumeCheckOptions> = { workspace: "pathOrObject", policy: "functionOrObject" };
const RESUME: Of<types.ResumeOptions> = {
  ...RESUME_CHECK,
  checked: "object",
  accept: ["check"],
  timeoutMs: "milliseconds",
};

/** given: by place, and needed. options: by name. onlyWith: those that belong to some words of another argument. */
export interface Call {
  readonly given?: Kinds;
  readonly options?: Kinds;
  readonly onlyWith?: OnlyWith;
}

export const CLIENT_CALLS = {
  sessions: { given: { prefix: "beginning" } },
  delete: { given: { sessionId: "id" } },
  audit: { given: { sessionId: "id?" }, options: { present: "present" } },
  repairPlan: { given: { sessionId: "id" }, options: { present: "present" } },
  startup: { given: { client: "any", store: "any" }, options: { prefix: "beginning" } },
} as const satisfies Record<string, Call>;

export const SESSION_CALLS = {
  append: { given: { type: "id", payload: "object" }, options: APPEND },
  appendMany: { given: { entries: "objects" }, options: PLACE },
  message: { given: { role: "id", content: "any" }, options: { ...APPEND, meta: "object" } },
  submit: { given: { content: "any" }, options: SUBMIT },
  resume: { options: RESUME },
  edit: { given: { target: "entryOrObjects", message: "any" } },
  undo: { given: { n: "count" } },
  label: { given: { id: "entry", text: "text?" } },
  setting: { given: { key: "text", value: "any" } },
  changeModel: { given: { model: "text" } },
  branch: { given: { at: "entry?" }, options: { name: "text", summary: "text" } },
  compact: { options: { summary: "text", firstKept: "entry", replacement: "objects" } },
  fork: { given: { at: "place?", newId: "id" }, options: { whole: "bool" } },
  child: { given: { id: "id" }, options: CHILD },
  artifact: { given: { source: "source" }, options: { mediaType: "text", name: "text", turn: "entry" } },
  readArtifact: { given: { sha256: "text" } },
  messages: { options: MESSAGES },
  find: { given: { type: "id" }, options: { key: "id", keyPrefix: "beginning", last: "count" } },
  events: { given: { after: "seq" }, options: { branch: "entry" } },
  project: { given: { name: "id", args: "object" } },
  checkpointWorkspace: { given: { root: "text" }, options: { files: "paths" } },
  resumeCheck: { options: RESUME_CHECK },
  explain: { options: RESUME_CHECK },
  settle: {
    given: { callId: "entry", word: SETTLED },
    options: SETTLE,
    onlyWith: { result: ["word", ["ran"]], scope: ["word", ["granted"]], expiresAt: ["word", ["granted"]] },
  },
  adopt: { options: { streamId: "id" } },
} as const satisfies Record<string, Call>;

export const TURN_CALLS = {
  workerStarted: { options: FIELDS },
  reply: { options: { streamId: "id", parent: "entry", autoRelease: "bool", meta: "object" } },
  completed: { options: FIELDS },
  interrupted: { given: { reason: "text" }, options: FIELDS },
  intent: { given: { tool: "text", args: "any" }, options: INTENT },
  decision: { given: { callId: "entry", verdict: "text" }, options: DECISION },
  approval: { given: { callId: "entry", state: APPROVALS }, options: APPROVAL },
  toolStarted: { given: { callId: "entry" }, options: STARTED },
  toolFinished: { given: { callId: "entry", result: "any" }, options: FINISHED },
  observation: { given: { callId: "entry", text: "text" }, options: FIELDS },
} as const satisfies Record<string, Call>;
