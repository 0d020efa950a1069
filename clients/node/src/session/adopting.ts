/**
 * Adopts replies: what a process that is gone had said becomes entries of its session.
 *
 * Owns: which replies, the ids of their entries, the order of append and resolve. Refuses: the messages
 * (`recovered/entryMessages.ts`), what follows of their calls (the daemon).
 *
 * Invariant: a reply is resolved once its entries are synced, and an entry's id is its reply's stream and the first
 * seq of its step. So whoever is killed anywhere in it runs it again.
 */

import { isDeepStrictEqual } from "node:util";

import { Refused } from "../errors.ts";
import { APPEND_BYTES_MAX, EVENTS_PAGE } from "../limits.ts";
import { adoptedMessages } from "../recovered/entryMessages.ts";
import { repliesOf, type PartialReply, type PlainMessage } from "../recovered/partialReply.ts";
import { decodeAnswer, type Fields } from "../wire/codec.ts";
import type { Entry } from "./entries.ts";
import { draft, type SessionLog } from "./log.ts";
import { present } from "./turn.ts";

interface Node {
  id: string;
  seq: number;
  type: string;
  turn?: string | null;
  on_path: boolean;
}

/** The session's view of that name. */
interface Tree {
  nodes: Node[];
  leaf: string | null;
}

/** Where a reply's messages stand: turn undefined where that is lost to damage, parent undefined for the leaf. */
interface Place {
  turn?: string;
  parent?: string;
  leaf: boolean;
}

/** The entries, in their order; none where nothing is left to adopt. */
export async function adopt(session: SessionLog, streamId?: string): Promise<Entry[]> {
  const made: Entry[] = [];
  for (const reply of await orphans(session, streamId)) {
    const tree = (await session.project("tree")) as Tree | null;
    made.push(...(await adopted(session, reply, tree)));
  }
  return made;
}

/**
 * The entries of a reply, which is resolved then.
 *
 * An id that is taken by another entry (a stream id is free again once its reply is released), or by what was adopted
 * before the reply grew, has the seq of the last event of its step behind it: of one step the entry that came last is
 * shown.
 */
async function adopted(session: SessionLog, reply: PartialReply, tree: Tree | null): Promise<Entry[]> {
  const { turn, parent, leaf } = placeOf(reply, tree);
  const drafts = [];
  let above = parent;
  for (const message of adoptedMessages(reply)) {
    let id = "";
    for (id of namesOf(reply, message)) {
      if (tree === null || !(await isTaken(session, id, message, reply, tree))) break;
    }
    const how = { id, once: true, leaf, ...present({ turn, parent: above }) };
    drafts.push(draft("message", { ...message, _turn: reply.turnId }, how));
    if (parent !== undefined) above = id;
  }
  const made: Entry[] = [];
  for (const entries of requestsOf(await session.made(drafts))) {
    made.push(...(await session.place(entries, { synced: true })));
  }
  const fields = { stream_id: reply.streamId, last_seq: reply.lastSeq };
  decodeAnswer(await session.ask("Resolve", fields, { again: false }), "bool"); // false: somebody else did it meanwhile
  return made;
}

/** As the daemon places a reply that is released; leaf: whether that moves the leaf. */
function placeOf(reply: PartialReply, tree: Tree | null): Place {
  if (tree === null) return { leaf: true };
  const ids = new Set(tree.nodes.map((one) => one.id));
  const begun = tree.nodes.findLast((one) => one.type === "turn_submitted" && one.turn === reply.turnId);
  const turn = present({ turn: begun === undefined ? undefined : (reply.turnId ?? undefined) });
  const isThere = begun === undefined ? [null, tree.leaf].includes(reply.parent) : begun.on_path;
  if (reply.parent !== null && ids.has(reply.parent)) return { ...turn, parent: reply.parent, leaf: isThere };
  if (isThere || begun === undefined) return { ...turn, leaf: true };
  return { ...turn, parent: begun.id, leaf: false };
}

/** Ids to try for an entry of a reply, always the same ones. */
function* namesOf(reply: PartialReply, message: PlainMessage): Generator<string, never> {
  let name = `${reply.streamId}:${message._wal_seq}`;
  yield name;
  name += `:${message._wal_last_seq}`;
  yield name;
  name += `:${reply.startedAt.getTime()}`;
  for (;; name += "'") yield name;
}

/** Another entry has that id, of another reply of that name too, or one that says less of the step. */
async function isTaken(
  session: SessionLog,
  name: string,
  message: PlainMessage,
  reply: PartialReply,
  tree: Tree,
): Promise<boolean> {
  const node = tree.nodes.find((one) => one.id === name);
  if (node === undefined) return false;
  const line = await session.line(node.seq);
  const kept = line.payload;
  const wanted = [message._wal_stream, message._wal_seq, message._wal_started_at];
  const startedAt = kept["_wal_started_at"] ?? message._wal_started_at;
  if (!isDeepStrictEqual([kept["_wal_stream"], kept["_wal_seq"], startedAt], wanted)) return true;
  if (![null, reply.turnId].includes((line.turn ?? kept["_turn"] ?? null) as string | null)) return true;
  const lastSeq = kept["_wal_last_seq"];
  return !Number.isInteger(lastSeq) || (lastSeq as number) < message._wal_last_seq;
}

/**
 * Replies of the session whose process is gone: of this application and of none, or the one that is named. Refused
 * where that one's owner lives.
 */
async function orphans(session: SessionLog, streamId: string | undefined): Promise<PartialReply[]> {
  const which = streamId === undefined ? "orphans" : "all";
  const found = repliesOf(await session.ask("Recover", { which, stream_id: streamId ?? null }));
  if (streamId === undefined) {
    return found.filter((one) => session.app === null || one.app === null || one.app === session.app);
  }
  if (found.some((one) => one.lostReason === null)) {
    const text = "its owner is alive: only it may save and release it";
    throw new Refused("refused", streamId, "a reply whose owner is gone", text);
  }
  return found;
}

/** Of as many entries as one has room for. */
function requestsOf(entries: readonly Fields[]): Fields[][] {
  const requests: Fields[][] = [];
  let size = Infinity;
  for (const one of entries) {
    const length = (one["payload"] as Uint8Array).length;
    if (size + length > APPEND_BYTES_MAX || requests.at(-1)!.length === EVENTS_PAGE) {
      requests.push([]);
      size = 0;
    }
    requests.at(-1)!.push(one);
    size += length;
  }
  return requests;
}
