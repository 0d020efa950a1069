/**
 * The gate's word on a session, asked and answered: what `resumeCheck` and `explain` send, and what a person says of
 * one call.
 *
 * Owns: those, and which call is meant. Refuses: judging (the daemon does), the claim of `resume`
 * (`resuming.ts`).
 */

import { setTimeout as sleep } from "node:timers/promises";

import { checkArgument } from "../encoding/argumentChecks.ts";
import { idOf, type EntryId } from "../encoding/ids.ts";
import { Refused } from "../errors.ts";
import { BACKOFF_MS_MIN } from "../limits.ts";
import type { Info } from "../reply/options.ts";
import { isSame } from "./artifacts.ts";
import type { Entry, Policy, PolicyWord, ResumeCheckOptions, SettleOptions } from "./entries.ts";
import { differing, isLong, workspaceFingerprint } from "./fingerprint.ts";
import { draft, type SessionLog } from "./log.ts";
import { present, secondsOf } from "./turn.ts";

/** A call without a result, as the gate judged it. */
export interface GateCall extends Record<string, unknown> {
  call_id: string;
  turn: string | null;
  stream: string | null;
  tool: string;
  state: string;
  may: string;
  why: string;
  settled: string | null;
  outcome?: string;
  /** The session of the sub-agent whose work it is. */
  child?: string | null;
  n?: number;
  of?: Record<string, unknown>;
}

/** What the gate says. */
export interface Gate extends Record<string, unknown> {
  status: string;
  reasons: (Record<string, unknown> & { verdict: string; call_id?: string })[];
  calls: GateCall[];
  as_of?: string;
  boundary?: string;
  owner?: { turn: string | null; pid: number } | null;
  own_turns?: string[];
  workspace?: { then?: { files?: Record<string, string | null> } | null } | null;
}

const POLICY_WORDS = ["allow", "ask", "deny"] as const;
/** Of a settlement in a session that others append to: each judges it anew. */
const TRIES_MAX = 32;
/** Of a settlement: not what it says of the call. */
const ASIDE = ["by", "note", "of"];
/** Of a settlement: what names the call. */
const NAMES = ["turn", "stream", "entry", "seq", "step", "place", "n", "call_id"];

/** What `explain` tells. Long texts are cut, and `..._cut` is their whole length; what a reply was saying is whole. */
export interface Explanation extends Record<string, unknown> {
  state: "live" | "waits" | "blocked" | "cut" | "done";
  asked: Record<string, unknown>[];
  done: Record<string, unknown>[];
  refused: Record<string, unknown>[];
  unknown: Record<string, unknown>[];
  saying: Record<string, unknown>[];
  /** Replies of turns that went, and that no message of the session has; of an older daemon undefined. */
  said_elsewhere?: Record<string, unknown>[];
  verified: Record<string, unknown>[];
  spent: Record<string, unknown>;
  may: Record<string, unknown>[];
}

/** May the work go on? null where nothing is kept of the id. */
export async function resumeCheck(log: SessionLog, options: ResumeCheckOptions): Promise<Gate | null> {
  return (await ofGate(log, "resume", options)) as Gate | null;
}

/** What was done, what is open, what may be done now. null where nothing is kept of the id. */
export async function explain(log: SessionLog, options: ResumeCheckOptions): Promise<Explanation | null> {
  return (await ofGate(log, "explain", options)) as Explanation | null;
}

async function ofGate(log: SessionLog, view: string, options: ResumeCheckOptions): Promise<unknown> {
  const args: Record<string, unknown> = {};
  if (options.workspace !== undefined) args["workspace"] = await compared(log, options.workspace);
  if (options.policy !== undefined) args["policy"] = await policyNow(log, options.policy);
  return log.project(view, args);
}

/** The gate without a look at artifacts. An older daemon, whose gate knows no policy, is Unsupported. */
export async function gateNow(log: SessionLog): Promise<Gate | null> {
  return (await log.project("resume", { missing_artifacts: [], policy: {} })) as Gate | null;
}

/** What the log has as the hashes of files, and up to which entry; undefined of a daemon that does not say. */
export async function knownFiles(log: SessionLog): Promise<[Record<string, string | null>, string | undefined]> {
  const gate = (await log.project("resume", { missing_artifacts: [] })) as Gate | null;
  return [{ ...gate?.workspace?.then?.files }, gate?.as_of];
}

/** Say what became of a call of which nobody knows, or whether it may run; synced. */
export async function settle(
  log: SessionLog,
  callId: string,
  word: string,
  options: SettleOptions,
): Promise<Entry> {
  const { result, note, by, scope, expiresAt, force = false } = options;
  for (let tries = 1; ; tries += 1) {
    const state = (await log.project("state")) as { last_seq: number } | null;
    const call = oneCall(await gateNow(log), callId, options);
    if (["at_work", "still_runs"].includes(call.why) && !force) {
      const limit = "a call at which nobody is; or force: true";
      throw new Refused("call_at_work", callId, limit, "its process lives: ask it");
    }
    const said = present({ result: result ?? undefined, note, by, scope, expires_at: secondsOf(expiresAt) });
    const payload = { of: ofCall(call), word, ...said };
    const first = call.settled === word ? await saidBefore(log, payload) : undefined;
    if (first !== undefined) {
      return log.append("tool_settled", payload, { id: first, once: true, leaf: false, synced: true });
    }
    try {
      const how = present({ expectedSeq: state?.last_seq });
      return await log.append("tool_settled", payload, { leaf: false, synced: true, ...how });
    } catch (error) {
      // Else somebody said more of it meanwhile: what was judged is no more.
      if (!(error instanceof Refused) || error.code !== "stale" || tries === TRIES_MAX) throw error;
      await sleep(BACKOFF_MS_MIN);
    }
  }
}

/** What names a call of the gate in a `tool_settled`. */
export function ofCall(call: GateCall): Record<string, unknown> {
  if (call.of !== undefined) return { ...call.of };
  return { ...(call.turn === null ? { stream: call.stream } : { turn: call.turn }), call_id: call.call_id };
}

/** The call that is meant, as the gate judges it. Throws Refused. */
export function oneCall(
  gate: Gate | null,
  callId: string,
  which: { turn?: EntryId; streamId?: string; n?: number } = {},
): GateCall {
  const calls = gate?.calls ?? [];
  const given: Record<string, unknown> = present({ turn: idOf(which.turn), stream: which.streamId, n: which.n });
  const names = Object.keys(given);
  const ofId = calls.filter((one) => one.call_id === callId && (one.may !== "read_result" || one.settled !== null));
  const found = ofId.filter((one) => names.every((name) => one[name] === given[name]));
  if (found.length === 0 && ofId.length > 0) {
    const misfits = names.filter((name) => !ofId.some((one) => one[name] === given[name]));
    const wrong = misfits.length > 0 ? misfits : names;
    const got = wrong.map((name) => `${name} ${String(given[name])}`).join(", ");
    const places = ofId.map((one) => wrong.map((name) => `${name} ${String(one[name])}`).join(", "));
    const text = `no open call ${callId} is of that ${wrong.join(" and ")}`;
    throw new Refused("unknown_call", got, [...new Set(places)].join("; "), text);
  }
  if (found.length === 0) {
    const open = calls.filter((one) => one.may !== "read_result").map((one) => one.call_id);
    const ids = [...new Set(open)].sort().join(", ");
    throw new Refused("unknown_call", callId, ids || "no call is open", "no open call has that id");
  }
  if (found.length > 1) {
    const text = "several calls have that id: turn, streamId, n (--turn, --stream, --n) say which";
    throw new Refused("ambiguous_call", callId, found.map(named).join(", "), text);
  }
  return found[0]!;
}

function named(call: GateCall): string {
  const number = call.n === undefined ? "" : `, n ${call.n}`;
  return `${call.tool} (${call.state}) of ${call.turn || call.stream || "no turn"}${number}`;
}

/** The newest entry of that call, where it says the same, whoever said it, and why. */
async function saidBefore(log: SessionLog, payload: Info): Promise<string | undefined> {
  const told = JSON.parse(log.told(draft("tool_settled", payload))) as Record<string, unknown>;
  const call = told["of"] as Record<string, unknown>;
  for (const event of (await log.find("tool_settled")).reverse()) {
    const kept = event.payload;
    const of = kept["of"] as Record<string, unknown> | undefined;
    if (typeof of !== "object" || of === null || NAMES.some((name) => call[name] !== of[name])) continue;
    for (const name of new Set([...Object.keys(told), ...Object.keys(kept)])) {
      if (!ASIDE.includes(name) && !(await isSame(log, told[name] ?? null, kept[name] ?? null))) return undefined;
    }
    return event.id;
  }
  return undefined;
}

/** As the daemon takes it. A function is asked of the calls that are open now; one that comes later is to be asked about. */
async function policyNow(log: SessionLog, policy: Policy): Promise<Record<string, unknown>> {
  if (typeof policy !== "function") {
    for (const word of Object.values(policy)) checkArgument(word, "policy", POLICY_WORDS);
    return { tools: { ...policy } };
  }
  const calls: Record<string, unknown>[] = [];
  for (const one of (await gateNow(log))?.calls ?? []) {
    if (one.may === "read_result") continue;
    const word: PolicyWord = await policy(one);
    checkArgument(word, "policy", POLICY_WORDS);
    calls.push({ turn: one.turn, call_id: one.call_id, word });
  }
  return { tools: { "*": "ask" }, calls };
}

/** What the workspace is now, without the files that are as the log has them. */
async function compared(log: SessionLog, workspace: string | Info): Promise<object> {
  if (typeof workspace !== "string" && !isLong(workspace)) return workspace;
  const [known, asOf] = await knownFiles(log);
  const now = typeof workspace === "string" ? await workspaceFingerprint(workspace, Object.keys(known)) : workspace;
  return asOf === undefined ? now : differing(now, known, asOf);
}
