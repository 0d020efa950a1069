/**
 * Submits a user's message: a new turn, or the first one of the same message.
 *
 * Owns: what is sent of a message, and when another is the same. Refuses: what is done in a turn (`turn.ts`), what is
 * legal (the daemon says).
 *
 * The daemon compares what entries hold, and an artifact is another content to it than what it stands for. So the
 * form of a content follows from it alone, whatever `meta` is beside it; and where the first of its message has
 * another form all the same (former clients did it otherwise), it is sent in that form. Where the second one leaves
 * the attachments out, they are those of the first.
 */

import { isDeepStrictEqual } from "node:util";

import { idOf, newEntryId } from "../encoding/ids.ts";
import { isPassing, NotDurable, Refused } from "../errors.ts";
import { SUBMIT_MS } from "../limits.ts";
import type { Info } from "../reply/options.ts";
import { isSame, upload } from "./artifacts.ts";
import type { Entry, SessionEvent, SubmitOptions } from "./entries.ts";
import { draft, type Draft, type SessionLog } from "./log.ts";
import { present, type Facts } from "./turn.ts";

type Payload = Record<string, unknown>;

const SHOWN_CHARS_MAX = 200;

/** The user's message, synced before this resolves. */
export async function submit(session: SessionLog, content: unknown, options: SubmitOptions): Promise<Facts> {
  const began = performance.now();
  const { retryOf, streamId, model, calls, meta, timeoutMs = SUBMIT_MS } = options;
  const turnId = newEntryId();
  const messageId = options.messageId ?? newEntryId();
  const payload: Payload = {
    message_id: messageId,
    content: content ?? null,
    ...present({ stream_id: streamId, model, calls, meta: meta && Object.keys(meta).length > 0 ? meta : undefined }),
  };
  try {
    return await submitted(session.by(began + timeoutMs), turnId, payload, options);
  } catch (error) {
    if (!isPassing(error)) throw error;
    const waitedMs = Math.round(performance.now() - began);
    const asked = retryOf === undefined ? "submit" : "retry";
    throw new NotDurable(session.sessionId, turnId, messageId, waitedMs, error, asked);
  }
}

async function submitted(
  session: SessionLog,
  turnId: string,
  payload: Payload,
  { messageId, attachments = [], ...options }: SubmitOptions,
): Promise<Facts> {
  const retryOf = idOf(options.retryOf);
  const told = payload["message_id"] as string;
  const retried = retryOf === undefined ? undefined : await submittedAs(session, retryOf);
  if (retried !== undefined) {
    // A message id that was drawn is nobody's: a retry takes that of its turn.
    if (messageId === undefined) payload["message_id"] = retried["message_id"];
    payload["retry_of"] = retryOf;
  }
  const described = await attached(session, attachments);
  if (described.length > 0) payload["attachments"] = described;
  const key = retryOf === undefined ? { key: told } : {};
  const one = draft("turn_submitted", payload, { id: turnId, turn: turnId, once: true, ...key });
  let said = JSON.parse(session.told(one)) as Payload;
  const inherited = retried?.["attachments"];
  if (described.length === 0 && Array.isArray(inherited) && inherited.length > 0) {
    said = { ...said, attachments: inherited }; // redacted once, as they stand there
  }
  let entry: Entry;
  if (retried !== undefined && "content" in retried) {
    await checkSame(session, retryOf!, retried, said);
    entry = await placed(session, one, said, retried);
  } else {
    try {
      entry = await placed(session, one, said);
    } catch (error) {
      if (!(error instanceof Refused) || error.code !== "message_id_taken" || retryOf !== undefined) throw error;
      const first = await knownBy(session, told);
      if (!(await hasContent(session, said, first))) throw error;
      // What is left out is as it was.
      if (described.length === 0 && first["attachments"]) said = { ...said, attachments: first["attachments"] };
      entry = await placed(session, one, said, first);
    }
  }
  if (!entry.isNew) return firstOf(session, entry, told, said);
  const streamId = payload["stream_id"] as string | undefined;
  const streamIds = streamId === undefined ? [] : [streamId];
  return { turnId, messageId: payload["message_id"] as string, streamIds, state: "submitted" };
}

/** The turn of that id, or of that stream. Refused where there is none. */
export async function findTurn(
  session: SessionLog,
  which: { turnId: string } | { streamId: string },
): Promise<Facts> {
  const facts = await session.turnFacts(which);
  if (facts === null) {
    const got = "turnId" in which ? which.turnId : `stream ${which.streamId}`;
    throw new Refused("unknown_turn", got, `a turn of session ${session.sessionId}`);
  }
  return {
    turnId: facts.turn_id,
    messageId: facts.message_id ?? "",
    streamIds: facts.stream_ids ?? [],
    state: facts.state,
  };
}

/** What was submitted as that turn. Refused where there is none. */
export async function submittedAs(session: SessionLog, turnId: string): Promise<Payload> {
  const facts = await session.turnFacts({ turnId });
  if (facts === null) {
    throw new Refused("unknown_turn", `retry_of ${turnId}`, `a turn of session ${session.sessionId}`);
  }
  if (facts.submitted_seq === undefined) return { ...facts }; // switched off
  const line = await lineOf(session, facts.submitted_seq, `retry_of ${turnId}`);
  return { ...line.payload, message_id: facts.message_id };
}

/** The entry that submitted it: a message that is lost is not known to be the same. */
export async function lineOf(session: SessionLog, seq: number, named: string): Promise<SessionEvent> {
  try {
    return await session.line(seq);
  } catch (error) {
    if (!(error instanceof Refused) || error.code !== "lost_entry") throw error;
    const limit = "a message that is there: submit it anew, with another messageId and no retryOf";
    const text = `the message (entry ${seq}) was lost to damage, or deleted with its session`;
    throw new Refused("lost_entry", named, limit, text);
  }
}

/** first: an entry of the same message, whose content has the form that is sent. */
async function placed(session: SessionLog, one: Draft, said: Payload, first?: Payload): Promise<Entry> {
  const sent = first === undefined ? said : { ...said, content: first["content"] };
  const how = first === undefined ? { own: "content" } : { kept: "content" };
  const entry = await session.fitted(one, JSON.stringify(sent), how);
  return (await session.place([entry], { synced: true }))[0]!;
}

/** The turn that took this message id before. Refused where its content is another. */
async function firstOf(session: SessionLog, entry: Entry, messageId: string, sent: Payload): Promise<Facts> {
  const line = await lineOf(session, entry.seq, `message_id ${messageId}`);
  if (line.type === "turn_submitted" && (await hasContent(session, sent, line.payload))) {
    return findTurn(session, { turnId: line.turn ?? entry.id });
  }
  const limit = `the content it was first submitted with (entry ${entry.id}, seq ${entry.seq})`;
  throw new Refused("message_id_taken", messageId, limit);
}

/** What was first submitted as that message; empty where its key does not find it. */
async function knownBy(session: SessionLog, messageId: string): Promise<Payload> {
  const found = await session.find("turn_submitted", { key: messageId });
  const first = found.find(({ payload }) => payload["message_id"] === messageId && !payload["retry_of"]);
  return first?.payload ?? {};
}

/** Does an entry have the content that is sent, in whatever form? */
async function hasContent(session: SessionLog, sent: Payload, kept: Payload): Promise<boolean> {
  return "content" in kept && (await isSame(session, sent["content"], kept["content"]));
}

/** A retry is of the same message: another one would be seen nowhere. */
async function checkSame(session: SessionLog, retryOf: string, retried: Payload, sent: Payload): Promise<void> {
  for (const name of ["message_id", "content", "attachments"]) {
    const [got, limit] = [orNothing(sent[name]), orNothing(retried[name])];
    if (isDeepStrictEqual(got, limit) || (name === "content" && (await hasContent(session, sent, retried)))) continue;
    const text = `${name} of turn ${retryOf}, its retry_of`;
    throw new Refused("message_id_taken", shown(got), `${shown(limit)}, ${text}`);
  }
}

function orNothing(value: unknown): unknown {
  const isEmpty = value === "" || (Array.isArray(value) && value.length === 0);
  return isEmpty ? null : (value ?? null);
}

function shown(value: unknown): string {
  return JSON.stringify(value).slice(0, SHOWN_CHARS_MAX);
}

/** Bytes and files become artifacts; an object is the application's own description. */
async function attached(session: SessionLog, attachments: NonNullable<SubmitOptions["attachments"]>): Promise<unknown[]> {
  const described: unknown[] = [];
  for (const one of attachments) {
    const isSource = typeof one === "string" || one instanceof Uint8Array;
    described.push(isSource ? { _artifact: await upload(session, one) } : { ...(one as Info) });
  }
  return described;
}
