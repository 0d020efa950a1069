/**
 * The types of a session's entries and of the options of its calls.
 *
 * Owns: those types. Refuses: which values are taken (`calls.ts`), appending (`log.ts`).
 */

import type { Entry, EntryId } from "../encoding/ids.ts";
import type { Info } from "../reply/options.ts";

export type { Entry, EntryId };

/** An entry that names an artifact. sha256: hex, what `readArtifact` takes. */
export interface Artifact extends Entry {
  sha256: string;
  size: number;
}

/** An event as it stands in the log. */
export interface SessionEvent {
  seq: number;
  id: string;
  type: string;
  payload: Record<string, unknown>;
  parent?: string;
  turn?: string;
  [field: string]: unknown;
}

export interface AppendOptions {
  id?: EntryId;
  /** The entry it hangs on; without it the leaf of that moment. */
  parent?: EntryId;
  turn?: EntryId;
  /** What `find` looks for. */
  key?: string;
  /** Where its key (or, without one, its id) is there already, the first entry stands. */
  once?: boolean;
  /** What is appended next hangs on it. Default true. */
  leaf?: boolean;
  cause?: EntryId;
  correlation?: EntryId;
  /** Refused (`stale`) where the session is at another. */
  expectedSeq?: number;
  /** Wait until it survives the loss of power, not only of a process. */
  synced?: boolean;
  timeoutMs?: number;
}

/** Of one entry of `appendMany`. */
export type EntryOptions = Omit<AppendOptions, "expectedSeq" | "synced" | "timeoutMs">;
/** Of the request that appends. */
export type PlaceOptions = Pick<AppendOptions, "expectedSeq" | "synced" | "timeoutMs">;

/** Bytes, or the path of a regular file. */
export type Source = Uint8Array | string;

export interface SubmitOptions {
  messageId?: string;
  /** A new turn on the message of that turn. */
  retryOf?: EntryId;
  streamId?: string;
  /** Bytes or paths, kept beside the session, or objects of your own. */
  attachments?: readonly (Source | Info)[];
  model?: string;
  /** Promises an intent before each run of a tool: a call without one has not started. */
  calls?: "journal";
  meta?: Info;
  timeoutMs?: number;
}

export interface MessagesOptions {
  format?: "plain" | "openai" | "anthropic";
  /** Up to that entry, or to the last of the branch that is called so; not up to the leaf. */
  branch?: EntryId;
  compacted?: boolean;
  /** "drop" leaves out calls of which nobody knows whether they ran; the model is told so else. */
  unknown?: "say" | "drop";
  /** Only so many, and some more where the first of them belongs to what stands before it. */
  last?: number;
  /** `before` of a page, for the page in front of it. */
  before?: string;
}

/** Messages, in order. before: what `messages` takes for the page in front of these; null: there is none. */
export type MessagePage = Record<string, unknown>[] & { before: string | null };

export type SideEffect = "none" | "read" | "workspace-write" | "external-write" | "network" | "process";
export type ResumePolicy =
  | "replay-from-event"
  | "rerun-after-check"
  | "require-user-confirmation"
  | "never-rerun";

/** fields: the application's own, kept beside what the event says. */
export interface OwnFields {
  fields?: Info;
}

export interface IntentOptions extends OwnFields {
  sideEffect: SideEffect;
  resumePolicy: ResumePolicy;
  /** Without one the entry's own id is it. */
  callId?: EntryId;
  /** To run it twice is to run it once; or is so by `key`; or is not, as where nothing is said. */
  idempotency?: "safe" | "conditional" | "unsafe";
  /** What the other side knows it by. A call of a retry with the same key takes the place of this one. */
  key?: string;
  /** The id of an open call of an earlier turn of the same message, of which this one takes the place. */
  supersedes?: EntryId;
}

export interface DecisionOptions extends OwnFields {
  reason?: string;
}

export interface ApprovalOptions extends OwnFields {
  by?: string;
  /** What was allowed, by fields of the intent (`tool`, `arguments`): a call of which one is another was not. */
  scope?: Info;
  /** Behind it the user is asked anew before the call runs. */
  expiresAt?: Date;
}

export interface StartedOptions extends OwnFields {
  /** Of the process that it runs in, where that may outlive this one. */
  pid?: number;
}

export interface FinishedOptions extends OwnFields {
  failed?: boolean;
  outcome?: "done" | "failed" | "timeout" | "cancelled";
  exitCode?: number;
  /** Those it wrote, which are hashed, or their hashes by path. */
  files?: readonly string[] | Readonly<Record<string, string | null>>;
}

export interface SettleOptions {
  /** What the call gave, where you have it. */
  result?: unknown;
  note?: string;
  by?: string;
  scope?: Info;
  expiresAt?: Date;
  /** Of the call, where several have that id. */
  turn?: EntryId;
  streamId?: string;
  /** The n-th of that id, as `resumeCheck` counts them. */
  n?: number;
  /** Though its process lives. */
  force?: boolean;
}

/** The call that a child works for. */
export interface ChildOptions {
  callId: EntryId;
  /** Of the call, where several have that id. */
  turn?: EntryId;
  streamId?: string;
  /** The n-th of that id, as `resumeCheck` counts them. */
  n?: number;
}

/** What you allow now: a word for each tool, "*" for any other; or who says it of a call of the gate. */
export type Policy =
  | Readonly<Record<string, PolicyWord>>
  | ((call: Record<string, unknown>) => PolicyWord | Promise<PolicyWord>);
export type PolicyWord = "allow" | "ask" | "deny";

export interface ResumeCheckOptions {
  /** Its root, or a fingerprint made elsewhere, to compare with what it was. */
  workspace?: string | Info;
  policy?: Policy;
}

export interface ResumeOptions extends ResumeCheckOptions {
  /** The calls that you looked at, and what became of each. */
  checked?: Readonly<Record<string, "ran" | "did_not_run">>;
  /** Go on though the gate says check. */
  accept?: "check";
  timeoutMs?: number;
}
