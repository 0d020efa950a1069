/**
 * Lists, deletes and audits sessions, and plans the repair of the application's store.
 *
 * Owns: asking for them. Refuses: one session's own calls (`session.ts`), the rules of an audit (`audit.ts`).
 */

import { inspect } from "node:util";

import { Refused, Unavailable } from "../errors.ts";
import type { Asks } from "../query/query.ts";
import { decodeAnswer } from "../wire/codec.ts";
import { resolved } from "./artifacts.ts";
import * as audit from "./audit.ts";
import type { SessionLog } from "./log.ts";

/**
 * A session that was written. bytes: of its events. trouble: why it cannot be read, "" where it can; sessionId is then
 * its directory's name where nothing else names it.
 */
export interface SessionInfo {
  sessionId: string;
  lastSeq: number;
  lastAt: Date;
  bytes: number;
  trouble: string;
}

interface WireFacts {
  session_id: string;
  last_seq: number;
  last_at_ms: number;
  bytes: number;
  trouble: string;
}

/** Makes the log of a session. */
type Logs = (sessionId: string) => SessionLog;

/** Those of this user whose id begins so. */
export async function sessions(query: Asks, prefix: string): Promise<SessionInfo[]> {
  const found = decodeAnswer(await query.ask("Sessions", { prefix }), "[SessionFacts]") as WireFacts[];
  return found.map((one) => ({
    sessionId: one.session_id,
    lastSeq: one.last_seq,
    lastAt: new Date(one.last_at_ms),
    bytes: one.bytes,
    trouble: one.trouble,
  }));
}

/** The report of one session, or of all. */
export async function audited(
  query: Asks,
  logs: Logs,
  sessionId: string | undefined,
  present: audit.Present,
): Promise<audit.Report> {
  const listed =
    sessionId === undefined ? await sessions(query, "") : [{ sessionId, trouble: "" }];
  const facts: [string, audit.AuditFacts][] = [];
  for (const one of listed) {
    const found = await factsOf(logs(one.sessionId), one.trouble);
    if (found !== null) facts.push([one.sessionId, found]);
  }
  const reports: audit.Report[] = [];
  for (const [id, one] of facts) reports.push(audit.reportOf(id, one, await answersOf(id, one, present)));
  return audit.joined(reports);
}

/** The repair of one session, what was put beside it included. */
export async function repairPlan(log: SessionLog, present: audit.Present): Promise<audit.RepairStep[]> {
  const facts = (await factsOf(log, "")) ?? {};
  const answers = (await answersOf(log.sessionId, facts, present)) ?? (() => null);
  const done = new Set(present === undefined || typeof present === "function" ? [] : present);
  const steps = audit.planOf(log.sessionId, facts, answers, done);
  for (const one of steps) {
    if (one.message["role"] === "user" && one.message["content"] === null && one.submittedSeq > 0) {
      one.message = { ...one.message, content: await saidAt(log, one.submittedSeq) };
    }
    one.message = await resolved(log, one.message);
  }
  return steps;
}

/** What keeps a session from being read is said, unless its breaks say it. null: never written. */
async function factsOf(log: SessionLog, trouble: string): Promise<audit.AuditFacts | null> {
  let found: audit.AuditFacts | null = null;
  try {
    found = (await log.project("audit")) as audit.AuditFacts | null;
  } catch (error) {
    if (trouble === "" || !(error instanceof Refused || error instanceof Unavailable)) throw error;
  }
  if (trouble === "" || ((found?.["chain_breaks"] ?? []) as unknown[]).length > 0) return found;
  return { ...found, unreadable: [trouble] };
}

/** What the program says of each turn, before anything is judged by it; undefined where nobody is asked. */
async function answersOf(
  sessionId: string,
  facts: audit.AuditFacts,
  present: audit.Present,
): Promise<audit.Answers | undefined> {
  if (present === undefined) return undefined;
  if (typeof present !== "function") {
    const ids = new Set(present);
    return (turn) => ids.has(turn.turnId) || (turn.messageId !== null && ids.has(turn.messageId));
  }
  const answers = new Map<string, boolean | null>();
  for (const turn of audit.turnsOf(sessionId, facts)) {
    const answer: unknown = await present(turn);
    if (answer !== null && typeof answer !== "boolean") {
      throw new TypeError(`what present answers must be true, false or null, got ${inspect(answer).slice(0, 80)}`);
    }
    answers.set(turn.turnId, answer);
  }
  return (turn) => answers.get(turn.turnId) ?? null;
}

/** The content of the turn that the event of that seq submitted. */
async function saidAt(log: SessionLog, seq: number): Promise<unknown> {
  const line = await log.line(seq).catch((error: unknown) => {
    if (error instanceof Refused && error.code === "lost_entry") return null;
    throw error;
  });
  if (line?.type === "turn_submitted") return line.payload["content"] ?? null;
  throw new Unavailable(`event ${seq} of session '${log.sessionId}' is not to be had`);
}
