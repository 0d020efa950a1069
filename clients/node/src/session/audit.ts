/**
 * Compares a session's log with the application's own store.
 *
 * Owns: findings, their categories and the steps of a repair, as the Python client has them. Pure. Refuses: asking
 * (`auditing.ts`), changing a store: the application applies the steps to its own.
 *
 * walld cannot see that store, so it is asked when the audit runs, turn by turn, by id. Equal text elsewhere proves
 * nothing. Where it gives no answer the turn is `unknown` and nothing is repaired. A repair puts back what the user
 * said and a visible mark where work was cut off; never an answer.
 */

import type { Info } from "../reply/options.ts";

/** The other process that is at work on a turn, or who last advanced it: pid, streamId, sinceMs, seen, ... */
export type Owner = Record<string, unknown>;

/** A turn as the log has it: what `present` is asked about. */
export interface AuditedTurn {
  sessionId: string;
  turnId: string;
  messageId: string | null;
  state: string;
  /** Of the event that holds what the user said; 0: not known. */
  submittedSeq: number;
  reason: string | null;
  /** "daemon" where its process was gone, "app" where the program said so. */
  interruptedBy: string | null;
  /** Ends that came after the first. */
  collisions: number;
  streamIds: string[];
  /** What the user said, where the facts have it. */
  content: unknown;
  /** Ids of calls without a result. */
  unanswered: string[];
  retryOf: string | null;
  attachments: unknown[];
  /** The message that took its place since. */
  edited: Info | null;
  /** It was undone since, or left out of a list. */
  takenBack: boolean;
  /** The event with what the user said is lost to damage. */
  submissionLost: boolean;
  /** The model spoke last in it, to its end. */
  answered: boolean;
  owner: Owner | null;
  lastOwner: Owner | null;
}

/** Turn or message ids that your store holds, or who answers for one turn; null: cannot know. */
export type Present =
  | readonly string[]
  | ReadonlySet<string>
  | ((turn: AuditedTurn) => boolean | null | Promise<boolean | null>)
  | undefined;
/** What was answered, of each turn. */
export type Answers = (turn: AuditedTurn) => boolean | null;

type Category = "ok" | "repairable" | "unsafe_to_repair" | "unknown";

/** One thing that an audit has to say; `subject` is the call, artifact or event it is about. */
export interface Finding {
  kind: string;
  category: Category;
  sessionId: string;
  turnId: string | null;
  messageId: string | null;
  subject: string | null;
  detail: string;
  /** Of its turn, as that stands. */
  state: string | null;
  reason: string | null;
  /** The process at work on the turn or on a retry of it: what is missing may be about to come, and is `ok`. */
  owner: Owner | null;
}

/** What an audit found. collisions: turn ids with more than one end, and how many more. */
export interface Report {
  overall: "ok" | "warn" | "needs_manual_review";
  findings: Finding[];
  collisions: Record<string, number>;
  sessions: number;
  turns: number;
}

/** What to do to your store; whoever did `key` before does nothing. */
export interface RepairStep {
  key: string;
  /** "materialise_user_message" adds `message`; "mark_interrupted" adds a visible mark, `message` is a text for it. */
  op: "materialise_user_message" | "mark_interrupted";
  sessionId: string;
  turnId: string;
  messageId: string | null;
  submittedSeq: number;
  message: Record<string, unknown>;
  state: string | null;
  reason: string | null;
  owner: Owner | null;
  /**
   * The last reply of the turn, and of its newest retry: a store that has one of them whole has the answer, and needs
   * no mark.
   */
  streamIds: string[];
}

/** As the view of that name has it. */
export type AuditFacts = Record<string, unknown>;
type TurnRow = Record<string, unknown> & { turn_id: string; state: string };

const OF_THE_DAEMON = ["agent_lost", "host_restart"];
const PENDING = "turn_journal_pending_turn";
const INTERRUPTED = "turn_journal_interrupted_turn";
const OF_A_SESSION = {
  malformed: "turn_journal_malformed_event",
  artifacts_missing: "artifact_missing",
  chain_breaks: "chain_broken",
  unreadable: "session_unreadable",
};

/** The turns in the facts of a session. */
export function turnsOf(sessionId: string, facts: AuditFacts): AuditedTurn[] {
  return ((facts["turns"] ?? []) as TurnRow[]).map((one): AuditedTurn => {
    const collisions = one["collisions"] ?? 0;
    const reason = (one["reason"] ?? null) as string | null;
    let by = (one["interrupted_by"] ?? null) as string | null;
    if (by === null && one.state === "interrupted") by = OF_THE_DAEMON.includes(reason ?? "") ? "daemon" : "app";
    return {
      sessionId,
      turnId: one.turn_id,
      messageId: (one["message_id"] ?? null) as string | null,
      state: one.state,
      submittedSeq: (one["submitted_seq"] ?? 0) as number,
      reason,
      interruptedBy: by,
      collisions: Array.isArray(collisions) ? collisions.length : (collisions as number),
      streamIds: [...((one["stream_ids"] ?? []) as string[])],
      content: one["content"] ?? null,
      unanswered: callIds(one["unanswered"]),
      retryOf: (one["retry_of"] ?? null) as string | null,
      attachments: [...((one["attachments"] ?? []) as unknown[])],
      edited: (one["edited"] ?? null) as Info | null,
      takenBack: one["taken_back"] === true,
      submissionLost: one["submission_lost"] === true,
      answered: one["answered"] === true,
      owner: ownerOf(one["owner"]),
      lastOwner: ownerOf(one["last_owner"]),
    };
  });
}

/** The report of one session, by its facts. answers: undefined where nobody was asked. */
export function reportOf(sessionId: string, facts: AuditFacts, answers: Answers | undefined): Report {
  const turns = turnsOf(sessionId, facts);
  const findings = findingsOf(sessionId, facts, turns, answers);
  const collided = turns.filter((one) => one.collisions > 0).map((one) => [one.turnId, one.collisions]);
  const collisions = Object.fromEntries(collided) as Record<string, number>;
  return { overall: overallOf(findings), findings, collisions, sessions: 1, turns: turns.length };
}

/** One report of sessions that were audited one by one. */
export function joined(reports: readonly Report[]): Report {
  const findings = reports.flatMap((one) => one.findings);
  return {
    overall: overallOf(findings),
    findings,
    collisions: Object.fromEntries(reports.flatMap((one) => Object.entries(one.collisions))),
    sessions: reports.reduce((sum, one) => sum + one.sessions, 0),
    turns: reports.reduce((sum, one) => sum + one.turns, 0),
  };
}

/** The steps that bring the application's store up to the log, in the log's order; done: keys of those that were. */
export function planOf(
  sessionId: string,
  facts: AuditFacts,
  answers: Answers,
  done: ReadonlySet<string>,
): RepairStep[] {
  const steps: RepairStep[] = [];
  const materialised = new Set<string>();
  const turns = turnsOf(sessionId, facts);
  const newest = newestOf(turns);
  for (const [turn, isPresent] of answered(turns, answers)) {
    const last = newest.get(turn.turnId)!;
    if (isPresent === null || (!isPresent && (turn.submissionLost || turn.takenBack))) continue;
    if (last.owner !== null) continue; // who is at work on it saves it
    const said = turn.messageId || turn.turnId;
    if (!isPresent && !materialised.has(said)) {
      materialised.add(said);
      steps.push(step(turn, "materialise_user_message", saidIn(turn)));
    }
    const isAnswered = turn.answered || last.answered || last.state === "completed";
    if (turn.state === "interrupted" && !isAnswered) {
      const message = { role: "system", content: `[interrupted: ${turn.reason || "unknown"}]` };
      const ends = new Set([turn, last].flatMap((of) => of.streamIds.slice(-1)));
      steps.push({ ...step(turn, "mark_interrupted", message), streamIds: [...ends] });
    }
  }
  return steps.filter((one) => !done.has(one.key));
}

function findingsOf(
  sessionId: string,
  facts: AuditFacts,
  turns: readonly AuditedTurn[],
  answers: Answers | undefined,
): Finding[] {
  const found: Finding[] = [];
  const newest = newestOf(turns);
  for (const [turn, isPresent] of answered(turns, answers ?? (() => null))) {
    const { owner } = newest.get(turn.turnId)!;
    // Without anybody to ask, a completed turn says nothing of the store.
    if (answers !== undefined || turn.state !== "completed") found.push(...ofTurn(turn, isPresent, owner));
    if (turn.owner === null) found.push(...unanswered(sessionId, turn.unanswered, turn)); // else they are being run
  }
  found.push(...unanswered(sessionId, callIds(facts["unanswered"]), undefined));
  for (const [name, kind] of Object.entries(OF_A_SESSION)) {
    for (const one of (facts[name] ?? []) as unknown[]) {
      const subject = typeof one === "string" ? one : JSON.stringify(one);
      found.push(finding({ kind, category: "unsafe_to_repair", sessionId, subject }));
    }
  }
  return found;
}

/**
 * Each turn with whether its message is there: a retry has the message of the turn that it is of, and whoever saved
 * that saved it once, by the id of either.
 */
function answered(turns: readonly AuditedTurn[], answers: Answers): [AuditedTurn, boolean | null][] {
  const said = turns.map((turn): [AuditedTurn, boolean | null] => [turn, answers(turn)]);
  const saved = new Set(said.filter(([, isPresent]) => isPresent).map(([turn]) => turn.messageId));
  saved.delete(null);
  return said.map(([turn, isPresent]) => [turn, saved.has(turn.messageId) ? true : isPresent]);
}

/** Turn id to the last turn of its user message: whether that was answered, it says. */
function newestOf(turns: readonly AuditedTurn[]): Map<string, AuditedTurn> {
  const first = new Map<string, string>();
  const last = new Map<string, AuditedTurn>();
  for (const turn of turns) {
    const root = turn.retryOf === null ? turn.turnId : (first.get(turn.retryOf) ?? turn.retryOf);
    first.set(turn.turnId, root);
    last.set(root, turn);
  }
  return new Map([...first].map(([turnId, root]) => [turnId, last.get(root)!]));
}

/** The user's message as the session tells it. */
function saidIn(turn: AuditedTurn): Record<string, unknown> {
  const message = { role: "user", content: turn.content };
  if (turn.edited !== null) return { ...message, ...turn.edited };
  return turn.attachments.length > 0 ? { ...message, attachments: turn.attachments } : message;
}

function ofTurn(turn: AuditedTurn, isPresent: boolean | null, owner: Owner | null): Finding[] {
  const byApp = turn.state === "interrupted" && turn.interruptedBy !== "daemon";
  let [kind, category, detail]: [string, Category, string] = [PENDING, "ok", ""];
  if (owner !== null && !isPresent) {
    detail =
      (owner["seen"] ?? true)
        ? `process ${String(owner["pid"])} is at work on it`
        : "its process cannot be seen, and may come back";
  } else if (isPresent === null) {
    [category, detail] = ["unknown", "nobody said whether it was saved"];
  } else if (!isPresent && turn.submissionLost) {
    [category, detail] = ["unsafe_to_repair", `what was submitted is lost to damage; the turn is ${turn.state}`];
  } else if (!isPresent && turn.takenBack) {
    return [];
  } else if (!isPresent) {
    [kind, category] = [byApp ? INTERRUPTED : PENDING, "repairable"];
    detail = `submitted and not saved; the turn is ${turn.state}`;
  } else if (turn.state === "interrupted") {
    [kind, detail] = [INTERRUPTED, "saved; the turn was interrupted"];
  } else {
    return [];
  }
  if (turn.reason) detail += ` (${turn.reason})`;
  return [finding({ kind, category, sessionId: turn.sessionId, ...named(turn), detail, owner })];
}

function unanswered(sessionId: string, calls: readonly string[], turn: AuditedTurn | undefined): Finding[] {
  const detail = "the call has no result: what it did is unknown";
  return calls.map((subject) =>
    finding({ kind: "tool_call_unanswered", category: "unsafe_to_repair", sessionId, ...named(turn), subject, detail }),
  );
}

function named(turn: AuditedTurn | undefined): Partial<Finding> {
  if (turn === undefined) return {};
  return { turnId: turn.turnId, messageId: turn.messageId, state: turn.state, reason: turn.reason };
}

function finding(one: Partial<Finding> & Pick<Finding, "kind" | "category" | "sessionId">): Finding {
  const nothing = { turnId: null, messageId: null, subject: null, detail: "", state: null, reason: null, owner: null };
  return { ...nothing, ...one };
}

function step(turn: AuditedTurn, op: RepairStep["op"], message: Record<string, unknown>): RepairStep {
  return {
    key: `${turn.turnId}:${op}`,
    op,
    sessionId: turn.sessionId,
    turnId: turn.turnId,
    messageId: turn.messageId,
    submittedSeq: turn.submittedSeq,
    message: { ...message, _turn: turn.turnId, _message_id: turn.messageId },
    state: turn.state,
    reason: turn.reason,
    owner: turn.lastOwner,
    streamIds: [],
  };
}

/** In this client's words. */
function ownerOf(told: unknown): Owner | null {
  const camel = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
  if (told === undefined || told === null) return null;
  return Object.fromEntries(Object.entries(told).map(([name, one]) => [camel(name), one as unknown]));
}

function callIds(calls: unknown): string[] {
  return ((calls ?? []) as (string | { call_id: unknown })[]).map((one) =>
    typeof one === "string" ? one : String(one.call_id),
  );
}

function overallOf(findings: readonly Finding[]): Report["overall"] {
  const categories = new Set(findings.map((one) => one.category));
  if (categories.has("unsafe_to_repair")) return "needs_manual_review";
  return categories.has("repairable") || categories.has("unknown") ? "warn" : "ok";
}
