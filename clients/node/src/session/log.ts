/**
 * Appends entries to one session, and reads its lines and views: what all its calls are made of.
 *
 * Owns: drafts as they travel, the requests Append, Events and Project, and the time that several of them have
 * together. Refuses: what a call means (`session.ts`, `turn.ts`), which part of a long payload is put beside the
 * session (`truncation.ts`), what is legal and what a view is (the daemon says).
 */

import { idOf, newEntryId } from "../encoding/ids.ts";
import { namesOf } from "../encoding/nameFields.ts";
import { redactedPayload, type Redact } from "../encoding/redact.ts";
import * as values from "../encoding/valueEncoding.ts";
import { Refused, Unavailable, Unsupported } from "../errors.ts";
import { APPEND_BYTES_MAX } from "../limits.ts";
import type { Asks, AskOptions } from "../query/query.ts";
import { decodeAnswer, type Fields } from "../wire/codec.ts";
import type { MessageName } from "../wire/messages.ts";
import { putBeside } from "./artifacts.ts";
import type { AppendOptions, Entry, EntryOptions, PlaceOptions, SessionEvent } from "./entries.ts";
import { fit, type FitOptions } from "./truncation.ts";

/** What is said to a model. Elsewhere NaN is null: no work stops for a number that a tool gave. */
const SAID = new Map([
  ["message", ["content"]],
  ["message_edit", ["message", "messages"]],
  ["compaction", ["replacement"]],
  ["turn_submitted", ["content"]],
]);
const DEPTH_MAX = 200;

/** An entry before its payload is text. `fields` are those of the wire's NewEntry. */
export interface Draft {
  type: string;
  payload: object;
  fields: Fields;
}

/** What a turn is told to be by the view of that name. */
export interface TurnFacts {
  turn_id: string;
  message_id?: string;
  stream_ids?: string[];
  state: string;
  submitted_seq?: number;
  retry_of?: string;
}

/** An entry to append. */
export function draft(type: string, payload: object, options: EntryOptions = {}): Draft {
  const { id, key, once = false } = options;
  const fields = {
    id: idOf(id) ?? newEntryId(),
    parent: idOf(options.parent) ?? null,
    turn: idOf(options.turn) ?? null,
    cause: idOf(options.cause) ?? null,
    correlation: idOf(options.correlation) ?? null,
    key: key ?? null,
    leaf: options.leaf ?? true,
    // An id that was drawn here is the client's own, so the entry may be sent twice and added once;
    // not where it has a key, which `once` would look at instead.
    once: once || (id === undefined && key === undefined),
    at_ms: Date.now(),
  };
  return { type, payload, fields };
}

/** The entry as it travels. */
export function asEntry(one: Draft, payload: Uint8Array): Fields {
  return { type: one.type, payload, ...one.fields };
}

export class SessionLog {
  readonly sessionId: string;
  /** Whose replies are adopted; null: everybody's. */
  readonly app: string | null;
  readonly query: Asks;
  private readonly redact: Redact | undefined;
  private readonly seen: (sessionId: string) => Fields[];
  /** When all that is asked here is to be answered. */
  private readonly until: number;
  /** Of a session that `child` gave: the one that it works for. */
  readonly parent: SessionLog | undefined;
  private hasReadGrants = false;

  constructor(
    sessionId: string,
    query: Asks,
    redact: Redact | undefined,
    seen: (sessionId: string) => Fields[],
    app: string | null,
    until = Infinity,
    parent?: SessionLog,
  ) {
    this.sessionId = sessionId;
    this.query = query;
    this.redact = redact;
    this.seen = seen;
    this.app = app;
    this.until = until;
    this.parent = parent;
  }

  /** The same log, all of whose requests together are answered by then (of `performance.now()`). */
  by(until: number): SessionLog {
    return new SessionLog(this.sessionId, this.query, this.redact, this.seen, this.app, until, this.parent);
  }

  /** The log of another session of the same client. */
  of(sessionId: string): SessionLog {
    return new SessionLog(sessionId, this.query, this.redact, this.seen, this.app, this.until);
  }

  /** The log of a session that works for a call of this one. */
  childOf(sessionId: string): SessionLog {
    return new SessionLog(sessionId, this.query, this.redact, this.seen, this.app, this.until, this);
  }

  /** Ask about this session, behind what this process has sent to it. */
  ask(name: MessageName, fields: Fields, options: AskOptions = {}): Promise<Uint8Array> {
    const how = { ...options };
    if (this.until !== Infinity) {
      const leftMs = Math.max(this.until - performance.now(), 1);
      how.timeoutMs = Math.min(how.timeoutMs ?? leftMs, leftMs);
    }
    const asked = () => ({ session_id: this.sessionId, ...fields, seen: this.seen(this.sessionId) });
    return this.query.ask(name, asked, how);
  }

  // --- appending ---

  async append(type: string, payload: object, options: AppendOptions = {}): Promise<Entry> {
    return (await this.appended([draft(type, payload, options)], options))[0]!;
  }

  /** All of them or none. */
  async appended(drafts: readonly Draft[], options: PlaceOptions = {}): Promise<Entry[]> {
    return this.place(await this.made(drafts), options);
  }

  /** Drafts as they travel; what is too long is put beside the session. */
  async made(drafts: readonly Draft[], bytesMax?: number): Promise<Fields[]> {
    const travelling: Fields[] = [];
    for (const one of drafts) {
      travelling.push(await this.fitted(one, this.told(one), bytesMax === undefined ? {} : { bytesMax }));
    }
    return travelling;
  }

  /** The entry of that payload; what is too long of it is put beside the session. */
  async fitted(one: Draft, json: string, options: FitOptions = {}): Promise<Fields> {
    const [text, beside] = fit(json, one.type, options);
    for (const held of beside) await putBeside(this, held);
    return asEntry(one, text);
  }

  /** The payload of a draft as JSON text, as `redact` leaves it. */
  told(one: Draft): string {
    for (const name of SAID.get(one.type) ?? []) {
      const where = notFinite((one.payload as Record<string, unknown>)[name], name, new Set());
      if (where === "") continue;
      throw new RangeError(`${where} of a ${one.type} is NaN or infinite, which JSON cannot hold`);
    }
    const json = values.jsonText(one.payload); // halves of characters are escapes in it
    return this.redact ? redactedPayload(json, this.redact, namesOf(one.type)) : json;
  }

  /** Append what is ready to travel. */
  async place(entries: readonly Fields[], options: PlaceOptions = {}): Promise<Entry[]> {
    const size = entries.reduce((sum, one) => sum + (one["payload"] as Uint8Array).length, 0);
    if (size > APPEND_BYTES_MAX) {
      throw new RangeError(
        `${entries.length} entries are ${size} bytes together, limit ${APPEND_BYTES_MAX}: all or ` +
          "none are appended, so append fewer at once",
      );
    }
    const { expectedSeq, synced = false, timeoutMs } = options;
    const how: AskOptions = { again: expectedSeq === undefined && entries.every((one) => one["once"]) };
    if (timeoutMs !== undefined) how.timeoutMs = timeoutMs;
    const level = synced ? "synced" : "written";
    const answer = await this.ask("Append", { entries, expected_seq: expectedSeq ?? null, level }, how);
    const placed = placedIn(answer);
    if (placed.length !== entries.length) {
      throw new Unavailable(`walld placed ${placed.length} of ${entries.length} entries`);
    }
    return placed;
  }

  // --- reading ---

  /** A view of the session by name; null where it was never written. */
  async project(name: string, args: object = {}): Promise<unknown> {
    const answer = await this.ask("Project", { name, arguments: Buffer.from(values.jsonText(args)) });
    const found = decodeAnswer(answer, "bin?") as Uint8Array | null;
    return found === null ? null : JSON.parse(textOf(found));
  }

  /**
   * Unsupported where the daemon would keep a grant's scope and end and judge by neither: one that knows no policy is
   * such a one. It is asked once.
   */
  async readsGrants(): Promise<void> {
    if (this.hasReadGrants) return;
    await this.project("resume", { missing_artifacts: [], policy: {} });
    this.hasReadGrants = true;
  }

  /** Events of a type, in order. */
  async find(type: string, args: { key?: string; key_prefix?: string; last?: number } = {}): Promise<SessionEvent[]> {
    return ((await this.project("find", { type, ...args })) ?? []) as SessionEvent[];
  }

  /** What is told of the turn of that id, or of the one that a stream replies to. */
  async turnFacts(which: { turnId: string } | { streamId: string }): Promise<TurnFacts | null> {
    const [turn_id, stream_id] = "turnId" in which ? [which.turnId, null] : [null, which.streamId];
    return (await this.project("turn", { turn_id, stream_id })) as TurnFacts | null;
  }

  /** The first lines with seqs above `after`, as they stand in the log. */
  async lines(after: number, limit: number): Promise<Uint8Array[]> {
    const answer = await this.ask("Events", { after, limit });
    return (decodeAnswer(answer, "[bin]?") as Uint8Array[] | null) ?? [];
  }

  /**
   * The last entry of the branch of that name; null before the first.
   *
   * refused: what is thrown where there is none, and where the daemon knows no such view.
   */
  async tipOf(branch: string, refused: unknown): Promise<string | null> {
    let named: Record<string, { leaf: string | null }> | null;
    try {
      named = (await this.project("branches")) as typeof named;
    } catch (error) {
      throw error instanceof Unsupported ? refused : error;
    }
    if (named === null || !Object.hasOwn(named, branch)) throw refused;
    return named[branch]!.leaf;
  }

  /** The event of that seq. Refused (`lost_entry`) where it was lost to damage, or deleted. */
  async line(seq: number): Promise<SessionEvent> {
    const [line] = (await this.lines(seq - 1, 1)).map(eventOf);
    if (line?.seq === seq) return line;
    const text = "the entry was lost to damage, or deleted with its session";
    throw new Refused("lost_entry", `seq ${seq}`, `an entry that session '${this.sessionId}' has`, text);
  }
}

/** The answer to Append and Fork. */
export function placedIn(answer: Uint8Array): Entry[] {
  const placed = decodeAnswer(answer, "[Placed]") as { id: string; seq: number; is_new: boolean }[];
  return placed.map((one) => ({ id: one.id, seq: one.seq, isNew: one.is_new }));
}

export function eventOf(line: Uint8Array): SessionEvent {
  return JSON.parse(textOf(line)) as SessionEvent;
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("utf8");
}

/** Where in `value`, which is called `name`, a NaN or an infinity stands; "" where none does. */
function notFinite(value: unknown, name: string, met: Set<object>, depth = 0): string {
  if (typeof value === "number") return Number.isFinite(value) ? "" : name;
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return "";
  if (depth >= DEPTH_MAX || met.has(value)) return "";
  met.add(value);
  for (const [key, one] of Object.entries(value)) {
    const place = Array.isArray(value) ? `${name}[${key}]` : `${name}['${key.slice(0, 100)}']`;
    const found = notFinite(one, place, met, depth + 1);
    if (found !== "") return found;
  }
  return "";
}
