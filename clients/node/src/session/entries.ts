/**
 * The types of a session's entries and of the options of its calls.
 *
 * Owns: those types, and `EntryLog`, by which a turn appends without knowing the session.
 * Refuses: appending (`session.ts`).
 */

import type { Info, ReplyOptions } from "../reply/options.ts";
import type { Reply } from "../reply/reply.ts";

/** Where an entry stands in its session. isNew: false where it was there already. */
export interface Entry {
  id: string;
  seq: number;
  isNew: boolean;
}

export interface AppendOptions {
  id?: string;
  /** The entry it hangs on; without it the leaf of that moment. */
  parent?: string;
  turn?: string;
  /** What `find` looks for. */
  key?: string;
  /** Where its key (or, without one, its id) is there already, the first entry stands. */
  once?: boolean;
  /** What is appended next hangs on it. Default true. */
  leaf?: boolean;
  cause?: string;
  correlation?: string;
  /** Refused (`stale`) where the session is at another. */
  expectedSeq?: number;
  /** Wait until it survives the loss of power, not only of a process. */
  synced?: boolean;
  timeoutMs?: number;
}

export interface SubmitOptions {
  messageId?: string;
  streamId?: string;
  model?: string;
  /** Promises an intent before each run of a tool: a call without one has not started. */
  calls?: "journal";
  meta?: Info;
  timeoutMs?: number;
}

/** Where a turn appends its events. */
export interface EntryLog {
  append(type: string, payload: Info, options: AppendOptions): Promise<Entry>;
}

/** Opens a reply in the session of a turn. */
export type OpenReply = (options: ReplyOptions) => Reply;
