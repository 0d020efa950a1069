/**
 * Gives a call the result that its sub-agent has come to: in the parent's log, once.
 *
 * Owns: that entry and its id, which follows from the child's turn, so whoever says it first says it for all. Refuses:
 * which call that is (`children.ts`), when the work is done (the daemon says).
 */

import { createHash } from "node:crypto";

import { Refused, Unavailable } from "../errors.ts";
import { ID_BYTES_MAX } from "../limits.ts";
import { warn } from "../link/warnings.ts";
import { resolved } from "./artifacts.ts";
import type { SessionLog } from "./log.ts";

/** What names a call in a `tool_settled`. */
export type OfCall = Record<string, unknown>;

/** The view `child` of a child's session. */
export interface Joined {
  session: string;
  of: OfCall;
  turn: string | null;
  is_newest: boolean;
  is_done: boolean;
  result: unknown;
}

/** The call has a result already, or no journal has the call. */
const TOLD = ["illegal_tool", "unknown_tool"];

/** What that child has said last becomes the result of the call, if it is done. */
export function takeResult(session: SessionLog, child: string, of: OfCall): Promise<void> {
  return tellParent(session.childOf(child), { session: session.sessionId, of });
}

/**
 * Once the work for a call is done, the call has its result in the parent's log.
 *
 * named: the call; else the newest. That this fails is no failure of the child: until it is told the parent's views
 * look here.
 */
export async function tellParent(child: SessionLog, named: { session?: string; of?: OfCall } = {}): Promise<void> {
  const { parent } = child;
  if (parent === undefined) return;
  try {
    const told = (await child.project("child", named)) as Joined | null;
    if (told === null || !told.is_done || told.session !== parent.sessionId) return;
    const said = await resolved(child, { content: told.result });
    const turn = told.of["turn"];
    if (typeof turn !== "string" || "_artifact_lost" in said) return; // no journal has the call, or the words are gone
    const payload = { call_id: told.of["call_id"], result: said["content"] };
    const id = idOf(`${child.sessionId}:${told.turn}:result`);
    await parent.append("tool_finished", payload, { id, once: true, turn, leaf: false });
  } catch (error) {
    if (!(error instanceof Refused) && !(error instanceof Unavailable)) throw error;
    if (error instanceof Refused && TOLD.includes(error.code)) return;
    warn(`session '${child.sessionId}': its parent has no result yet: ${error.message}`);
  }
}

function idOf(name: string): string {
  if (Buffer.byteLength(name) <= ID_BYTES_MAX) return name;
  return `result:${createHash("sha256").update(name).digest("hex")}`;
}
