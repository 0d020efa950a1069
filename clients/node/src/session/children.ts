/**
 * Joins the session of a sub-agent to the call that it works for.
 *
 * Owns: the entries that name each other, `child` in the parent's session and `child_of` in the child's, and their
 * order. Refuses: the result (`childResult.ts`), what follows of it for views and the gate (the daemon says).
 */

import { createHash } from "node:crypto";

import { shown } from "../encoding/argumentChecks.ts";
import { idOf, newEntryId } from "../encoding/ids.ts";
import * as values from "../encoding/valueEncoding.ts";
import { Refused } from "../errors.ts";
import { takeResult, type Joined, type OfCall } from "./childResult.ts";
import type { ChildOptions } from "./entries.ts";
import type { SessionLog } from "./log.ts";
import { gateNow, ofCall, oneCall } from "./settling.ts";

const HASH_CHARS = 32;
const JOINED = { leaf: false, synced: true };

/** The log of that session, which tells `session` the result of the call. */
export async function child(session: SessionLog, id: string, options: ChildOptions): Promise<SessionLog> {
  if (id === session.sessionId) {
    throw new RangeError(`id of child must be another session's, got ${shown(id)}, this one's`);
  }
  const callId = idOf(options.callId);
  const other = session.childOf(id);
  const of = await namedCall(session, id, options);
  // An older daemon knows no such view: Unsupported, since it would keep the entries unread.
  const known = (await other.project("child", { session: session.sessionId, of })) as Joined | null;
  const joined = { call_id: callId, of };
  const payload = { session: id, ...joined };
  const hash = createHash("sha256").update(values.jsonText(payload)).digest("hex");
  await session.append("child", payload, { id: `child:${hash.slice(0, HASH_CHARS)}`, once: true, ...JOINED });
  if (!known?.is_newest) await other.append("child_of", { session: session.sessionId, ...joined }, JOINED);
  if (known?.is_done) await takeResult(session, id, of);
  return other;
}

/** What names the call that is, or was, the work of that child. Refused where none is. */
async function namedCall(session: SessionLog, id: string, options: ChildOptions): Promise<OfCall> {
  const [callId, turn] = [idOf(options.callId), idOf(options.turn)];
  if (session.query.isOff) return { turn: turn ?? newEntryId(), call_id: callId };
  const gate = await gateNow(session);
  try {
    return ofCall(oneCall(gate, callId, options));
  } catch (error) {
    if (!(error instanceof Refused) || error.code !== "unknown_call") throw error;
    for (const { payload } of (await session.find("child")).reverse()) {
      const of = payload["of"] as OfCall | null | undefined; // of one that has its result
      const isIt = typeof of === "object" && of?.["call_id"] === callId && payload["session"] === id;
      if (isIt && (turn === undefined || turn === of["turn"])) return { ...of };
    }
    throw error;
  }
}
