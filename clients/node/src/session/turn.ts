/**
 * One turn of a session, from its submission to its end: appends its state changes and the events of its tools, and
 * opens its reply.
 *
 * Owns: those events. Refuses: submitting (`submitting.ts`), what is legal (the daemon says). `state` is what this
 * object knows: it moves with the calls made here, and is looked up anew by `session.turn()`.
 */

import { checkArgument, checkCall } from "../encoding/argumentChecks.ts";
import { idOf, newEntryId, newStreamId } from "../encoding/ids.ts";
import { isPassing } from "../errors.ts";
import { warn } from "../link/warnings.ts";
import type { Info, ReplyOptions } from "../reply/options.ts";
import type { Reply } from "../reply/reply.ts";
import { tellParent } from "./childResult.ts";
import { RESUME_POLICIES, SIDE_EFFECTS, TURN_CALLS as CALLS } from "./calls.ts";
import type * as types from "./entries.ts";
import { filePieces, fileHashes } from "./fingerprint.ts";
import { draft, type SessionLog } from "./log.ts";
import { namedProcess } from "./processName.ts";

/** Opens a reply in the session of a turn. */
export type OpenReply = (options: ReplyOptions) => Reply;

export interface Facts {
  turnId: string;
  messageId: string;
  streamIds: string[];
  state: string;
  calls?: Record<string, unknown>[];
}

/** Fields of a call's events that are not the application's to give. */
const RESERVED = ["call_id", "effect", "of_call", "of_turn", "said"];
/** Whose calls an intent is looked for in: the newest. */
const REPLIES_MAX = 16;

export class Turn {
  /** Its id; also the id of the entry that submitted it. */
  readonly turnId: string;
  /** The id of the user's message: what a resubmit is known by. */
  readonly messageId: string;
  /** The session it belongs to. */
  readonly sessionId: string;
  /** The streams of its replies, that of the submit first. */
  readonly streamIds: string[];
  /** submitted, worker_started, assistant_started, completed or interrupted. */
  state: string;
  /** Of a turn that `resume()` gave: the calls without a result, as the gate judged them. */
  readonly calls: Record<string, unknown>[];
  private readonly log: SessionLog;
  private readonly open: OpenReply;
  /** Call id to the newest event of it. */
  private readonly latest = new Map<string, string>();
  private readonly replies: Reply[] = [];
  /** Calls that this object saw intended, with an effect that is no external write. */
  private readonly within = new Set<string>();

  /** Made by `session.submit`, `session.resume` and `session.turn`. @internal */
  constructor(log: SessionLog, open: OpenReply, facts: Facts) {
    this.log = log;
    this.open = open;
    this.sessionId = log.sessionId;
    this.turnId = facts.turnId;
    this.messageId = facts.messageId;
    this.streamIds = [...facts.streamIds];
    this.state = facts.state;
    this.calls = facts.calls ?? [];
  }

  /** A worker has taken it up. fields: the application's own, here as in the calls below. */
  async workerStarted(options: types.OwnFields = {}): Promise<types.Entry> {
    checkCall(CALLS.workerStarted, {}, options);
    return this.moved("worker_started", { ...options.fields });
  }

  /**
   * Open the reply of this turn. Its `end()` appends the messages to the session.
   *
   * Without a streamId it is that of the submit, while no reply has taken it.
   */
  async reply(
    options: { streamId?: string; parent?: types.EntryId; autoRelease?: boolean; meta?: Info } = {},
  ): Promise<Reply> {
    checkCall(CALLS.reply, {}, options);
    const isFresh = this.state === "submitted" || this.state === "worker_started";
    const streamId = options.streamId ?? (isFresh ? this.streamIds[0] : undefined) ?? newStreamId();
    const how = { turn: this.turnId, once: true };
    try {
      await this.log.append("turn_assistant_started", { stream_id: streamId }, how);
    } catch (error) {
      // A reply never fails for the daemon's sake; it names its turn.
      if (!isPassing(error)) throw error;
      warn(`turn '${this.turnId}': that its reply began is not in the log: ${error.message}`);
    }
    this.reached("assistant_started"); // the next one is not to have this one's id
    if (!this.streamIds.includes(streamId)) this.streamIds.push(streamId);
    const reply = this.open({ ...options, streamId, turnId: this.turnId });
    this.replies.push(reply);
    if (this.replies.length > REPLIES_MAX) this.replies.shift();
    return reply;
  }

  /** It is done. A second end is kept in the log, changes nothing and is reported. */
  async completed(options: types.OwnFields = {}): Promise<types.Entry> {
    checkCall(CALLS.completed, {}, options);
    const entry = await this.moved("completed", { ...options.fields });
    await tellParent(this.log);
    return entry;
  }

  /** It ended before it was done. */
  async interrupted(reason: string, options: types.OwnFields = {}): Promise<types.Entry> {
    checkCall(CALLS.interrupted, { reason }, options);
    return this.moved("interrupted", { reason, ...options.fields });
  }

  // --- tools ---

  /** A tool is about to be called. */
  async intent(tool: string, args: unknown, options: types.IntentOptions): Promise<types.Entry> {
    checkCall(CALLS.intent, { tool, args }, options);
    const { sideEffect, resumePolicy, idempotency, key, supersedes, fields } = options;
    checkArgument(sideEffect, "sideEffect", SIDE_EFFECTS);
    checkArgument(resumePolicy, "resumePolicy", RESUME_POLICIES);
    const drawn = newEntryId();
    const callId = idOf(options.callId) ?? drawn;
    this.within.delete(callId);
    const isExternal = ["external-write", "network", "process"].includes(sideEffect);
    const said = this.saidAt(callId);
    const told = {
      tool,
      arguments: args ?? null,
      side_effect: isExternal ? "external-write" : sideEffect,
      resume_policy: resumePolicy,
      // Daemons of 0.1.0 take the four words alone.
      ...(sideEffect === "network" || sideEffect === "process" ? { effect: sideEffect } : {}),
      ...present({ idempotency, key, supersedes: idOf(supersedes), said }),
    };
    const entry = await this.ofTool("tool_intent", callId, told, fields, { id: drawn });
    if (!isExternal) this.within.add(callId);
    return entry;
  }

  /** What a policy said of the call. */
  async decision(callId: types.EntryId, verdict: string, options: types.DecisionOptions = {}): Promise<types.Entry> {
    checkCall(CALLS.decision, { callId, verdict }, options);
    const told = { verdict, ...present({ reason: options.reason }) };
    return this.ofTool("tool_decision", callId, told, options.fields);
  }

  /**
   * A person was asked, or has said.
   *
   * Unsupported, and nothing is appended, where a grant has a scope or an end and the daemon is of a build that would
   * let the call run all the same.
   */
  async approval(
    callId: types.EntryId,
    state: "asked" | "granted" | "denied",
    options: types.ApprovalOptions = {},
  ): Promise<types.Entry> {
    checkCall(CALLS.approval, { callId, state }, options);
    const { by, scope, expiresAt, fields } = options;
    if (state === "granted" && (scope !== undefined || expiresAt !== undefined)) await this.log.readsGrants();
    const told = { state, ...present({ by, scope, expires_at: secondsOf(expiresAt) }) };
    return this.ofTool("tool_approval", callId, told, fields);
  }

  /**
   * The effect may happen from here on.
   *
   * For what may be an external write this waits until it is synced: a host that lost its power must not believe that
   * nothing was done. A call whose intent this object did not see (the turn was found again, or submitted again) may
   * be one. pid: while that process is there the gate does not let the call run again.
   */
  async toolStarted(callId: types.EntryId, options: types.StartedOptions = {}): Promise<types.Entry> {
    checkCall(CALLS.toolStarted, { callId }, options);
    const told = options.pid === undefined ? {} : namedProcess(options.pid);
    const synced = !this.within.has(idOf(callId));
    const entry = await this.ofTool("tool_started", callId, told, options.fields, { synced });
    this.within.delete(idOf(callId)); // the next one of that id is another call
    return entry;
  }

  /**
   * What the call gave. outcome: else failed where `failed` is said, or done. Files that its entry has no room for
   * are told in entries of type lifecycle before it.
   */
  async toolFinished(
    callId: types.EntryId,
    result: unknown = null,
    options: types.FinishedOptions = {},
  ): Promise<types.Entry> {
    checkCall(CALLS.toolFinished, { callId, result }, options);
    const { failed = false, outcome, exitCode, files = [] } = options;
    if (failed && outcome === "done") {
      throw new RangeError("failed: true and outcome 'done' contradict each other");
    }
    const isFailed = failed || (outcome !== undefined && outcome !== "done");
    const told: Record<string, unknown> = {
      result,
      ...(isFailed ? { failed: true } : {}), // also for readers of 0.1.0, which know no outcome
      ...present({ outcome, exit_code: exitCode }),
    };
    const written = isListed(files) ? await fileHashes(files) : files;
    if (Object.keys(written).length > 0) {
      const pieces = filePieces(written);
      told["files"] = pieces.pop();
      for (const piece of pieces) {
        const part = { kind: "files_written", fingerprint: { part: true, files: piece } };
        await this.log.append("lifecycle", part, { turn: this.turnId });
      }
    }
    return this.ofTool("tool_finished", callId, told, options.fields);
  }

  /** What the model is told of the result. */
  async observation(callId: types.EntryId, text: string, options: types.OwnFields = {}): Promise<types.Entry> {
    checkCall(CALLS.observation, { callId, text }, options);
    return this.ofTool("observation", callId, { text }, options.fields);
  }

  // --- within ---

  private async moved(state: string, payload: Info): Promise<types.Entry> {
    const entry = await this.log.append(`turn_${state}`, payload, { turn: this.turnId });
    this.reached(state);
    return entry;
  }

  private reached(state: string): void {
    if (this.state !== "completed" && this.state !== "interrupted") this.state = state;
  }

  /** Where a reply of this turn said the call: "stream:seq". */
  private saidAt(callId: string): string | undefined {
    for (const reply of this.replies.toReversed()) {
      const seq = reply.calls.begunAt(callId);
      if (seq !== undefined) return `${reply.streamId}:${seq}`;
    }
    return undefined;
  }

  /**
   * An event of a call; its cause is the call's event before, as far as this object saw, and an intent's the place in
   * the reply that said the call.
   */
  private async ofTool(
    type: string,
    of: types.EntryId,
    told: Record<string, unknown>,
    fields: Info = {},
    options: { id?: string; synced?: boolean } = {},
  ): Promise<types.Entry> {
    const taken = Object.keys(fields).filter((name) => RESERVED.includes(name) || Object.hasOwn(told, name));
    if (taken.length > 0) {
      throw new TypeError(`${taken.sort().join(", ")} of ${type} is not the application's to give`);
    }
    const callId = idOf(of);
    const cause = (told["said"] as string | undefined) ?? this.latest.get(callId);
    const one = draft(type, { call_id: callId, ...told, ...fields }, {
      once: true,
      turn: this.turnId,
      ...present({ id: options.id, cause }),
    });
    const [entry] = await this.log.appended([one], { synced: options.synced ?? false });
    this.latest.set(callId, entry!.id);
    return entry!;
  }
}

function isListed(files: types.FinishedOptions["files"] & object): files is readonly string[] {
  return Array.isArray(files);
}

/** What of it was given. */
export function present<T extends object>(given: T): { [name in keyof T]?: Exclude<T[name], undefined> } {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as never;
}

/** As JSON has a moment: seconds since 1970. */
export function secondsOf(date: Date | undefined): number | undefined {
  return date === undefined ? undefined : date.getTime() / 1000;
}
