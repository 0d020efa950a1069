/**
 * What a program with a store of its own does as it starts: the one order that is right.
 *
 * Owns: the order of saving, marking, resolving and auditing, and what is said of it. Refuses: the store (the
 * application's), what a plan or an audit says (`audit.ts`).
 *
 * Session by session: what the user said and the store lacks, then what the dead process had said, then the mark
 * behind it, then the reply is resolved: so a store that keeps its rows in the order in which they came has them as
 * they were. Of a reply with an open call the gate is asked before it goes; where its session has no log, in which
 * that call would stay, the reply stays until somebody settles the call. At last the audit, which finds what nothing
 * can put back.
 *
 * Invariants: each step is one that may be done again, under a key of its own; a reply is resolved behind the last of
 * its saves. So whoever is killed anywhere in it runs it again, and who runs it twice changes nothing.
 */

import { checkCall } from "../encoding/argumentChecks.ts";
import { Refused } from "../errors.ts";
import { entryMessages } from "../recovered/entryMessages.ts";
import type { PartialReply } from "../recovered/partialReply.ts";
import { joined, type AuditedTurn, type Present, type RepairStep, type Report } from "./audit.ts";
import type { SessionInfo } from "./auditing.ts";
import { CLIENT_CALLS } from "./calls.ts";
import type { Gate } from "./settling.ts";

/**
 * Your own store of messages, by key: saving one that is there replaces it. Each call may be awaited.
 *
 * The key of a message is its `_key`: `STREAM:SEQ` of what a reply had said, the message id of what a user said (or,
 * without one, its turn's id), `TURN:interrupted` of a mark. Where it has a reply's stream id, the program saved that
 * reply whole itself: it is resolved, and no more.
 */
export interface Store {
  /** It is saved. */
  has(key: string): boolean | Promise<boolean>;
  /** Keep it under its `_key`, durably. */
  save(sessionId: string, message: Record<string, unknown>): void | Promise<void>;
  /** Show that the work stopped here. turn: its id, or of a reply without one its stream's. */
  mark(sessionId: string, turn: string, reason: string): void | Promise<void>;
}

/** What was done. */
export interface Startup {
  /** Stream ids of replies that were saved and resolved. */
  adopted: string[];
  /**
   * Stream ids of replies that were saved and not resolved: nothing else would say of their open calls; each run says
   * so, until `settle()`.
   */
  kept: string[];
  /** Messages. */
  saved: number;
  /** Turns, or streams of replies without one. */
  marked: string[];
  /** Of sessions with a call that may have run in a reply of either, what the gate said before. */
  gates: Record<string, Gate | null>;
  /** Of the audit behind all. */
  report: Report;
}

/** What of a client it needs. */
interface Asked {
  orphans(): Promise<PartialReply[]>;
  sessions(prefix?: string): Promise<SessionInfo[]>;
  audit(sessionId: string | undefined, options: { present: Present }): Promise<Report>;
  repairPlan(sessionId: string, options: { present: Present }): Promise<RepairStep[]>;
  resolve(streamId: string, lastSeq: number): Promise<boolean>;
  session(sessionId: string): { resumeCheck(): Promise<Gate | null> };
}

/**
 * Bring your store up to what a crash left, and let walld forget it. Killed within, run again.
 *
 * prefix: of the ids of the sessions that this store is of: others are left alone. Say it where the user has sessions
 * of other programs, which nothing else tells apart. Replies are those that `client.orphans()` sees. Throws
 * Unavailable where walld cannot know now: nothing is lost, run it later.
 */
export async function startup(client: Asked, store: Store, options: { prefix?: string } = {}): Promise<Startup> {
  checkCall(CLIENT_CALLS.startup, { client, store }, options);
  const { prefix = "" } = options;
  const made: Startup = { adopted: [], kept: [], saved: 0, marked: [], gates: {}, report: joined([]) };
  const orphans = (await client.orphans()).filter((one) => one.sessionId.startsWith(prefix));
  const listed = (await client.sessions(prefix)).map((one) => one.sessionId);
  for (const sessionId of new Set([...listed, ...orphans.map((one) => one.sessionId)])) {
    const replies = orphans.filter((one) => one.sessionId === sessionId);
    const isListed = listed.includes(sessionId);
    const plan = isListed ? await planOf(client, store, sessionId) : [];
    await broughtUp(client, store, sessionId, replies, isListed, plan, made);
  }
  const reports: Report[] = [];
  for (const name of prefix === "" ? [undefined] : listed) {
    reports.push(await client.audit(name, { present: presenceOf(store) }));
  }
  return { ...made, report: joined(reports) };
}

async function broughtUp(
  client: Asked,
  store: Store,
  sessionId: string,
  orphans: readonly PartialReply[],
  isListed: boolean,
  plan: readonly RepairStep[],
  made: Startup,
): Promise<void> {
  const messages = plan
    .filter((one) => one.op === "materialise_user_message")
    .map((one): Record<string, unknown> => ({ ...one.message, _key: one.messageId || one.turnId }));
  for (const reply of orphans) {
    if (await store.has(reply.streamId)) continue;
    const said = entryMessages(reply);
    messages.push(...said.map((one) => ({ ...one, _key: `${reply.streamId}:${one._wal_seq}`, _turn: reply.turnId })));
  }
  for (const message of messages) await store.save(sessionId, message);
  made.saved += messages.length;
  const marks = new Map<string, string>();
  for (const one of plan) {
    if (one.op !== "mark_interrupted" || (await hasAny(store, one.streamIds))) continue;
    marks.set(one.turnId, one.reason || "unknown");
  }
  for (const reply of orphans) {
    const isSilent = reply.turnId === null && reply.messages().length === 0;
    if (isSilent) marks.set(reply.streamId, reply.lostReason || "unknown");
  }
  for (const [turn, reason] of marks) {
    if (await store.has(`${turn}:interrupted`)) continue;
    await store.mark(sessionId, turn, reason);
    made.marked.push(turn);
  }
  for (const reply of orphans) {
    // It grew, or its owner is back: the next run has it, or its owner.
    await unlessRefused(async () => {
      if (reply.segments.some((one) => one.kind === "tool" && one.outcome === "unknown")) {
        made.gates[sessionId] = await client.session(sessionId).resumeCheck();
        if (!isListed) {
          made.kept.push(reply.streamId);
          return;
        }
      }
      await client.resolve(reply.streamId, reply.lastSeq);
      made.adopted.push(reply.streamId);
    });
  }
}

/** It has one of these replies whole: the program saved it before it was killed. */
async function hasAny(store: Store, streamIds: readonly string[]): Promise<boolean> {
  for (const streamId of streamIds) if (await store.has(streamId)) return true;
  return false;
}

/** None where the session cannot be read: the audit says so. What one is refused keeps no other from its turn. */
async function planOf(client: Asked, store: Store, sessionId: string): Promise<RepairStep[]> {
  return (await unlessRefused(() => client.repairPlan(sessionId, { present: presenceOf(store) }))) ?? [];
}

async function unlessRefused<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Refused) return undefined;
    throw error;
  }
}

/** What the store says of a turn's message. */
function presenceOf(store: Store): (turn: AuditedTurn) => boolean | Promise<boolean> {
  return (turn) => store.has(turn.messageId || turn.turnId);
}
