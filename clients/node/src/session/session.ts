/**
 * One session: appends entries to its log, and reads its views.
 *
 * Owns: appending, submitting, reading. Refuses: what is legal and what a view is (the daemon says),
 * artifacts: a payload above 256 KiB is a RangeError here, and content that another client put beside
 * the session is read back with `messages()` as the `_artifact` that names it.
 */

import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";

import { checkArgument, checkArguments, type Kinds } from "../encoding/argumentChecks.ts";
import { newEntryId } from "../encoding/ids.ts";
import { namesOf } from "../encoding/nameFields.ts";
import { redactedPayload, type Redact } from "../encoding/redact.ts";
import * as values from "../encoding/valueEncoding.ts";
import * as wtf8 from "../encoding/wtf8.ts";
import { isPassing, NotDurable, Refused, Unavailable } from "../errors.ts";
import { APPEND_BYTES_MAX, PAYLOAD_BYTES_MAX, SUBMIT_MS } from "../limits.ts";
import type { AskOptions, Asks } from "../query/query.ts";
import type { Info } from "../reply/options.ts";
import { decodeAnswer, type Fields } from "../wire/codec.ts";
import type { AppendOptions, Entry, OpenReply, SubmitOptions } from "./entries.ts";
import { Turn } from "./turn.ts";

const EVENTS_PAGE = 512;
const OF_AN_ENTRY: Kinds = {
  id: "id",
  parent: "id",
  turn: "id",
  key: "id",
  cause: "id",
  correlation: "id",
  once: "bool",
  leaf: "bool",
};
const OF_A_REQUEST: Kinds = { expectedSeq: "seq", synced: "bool", timeoutMs: "milliseconds" };
const OF_A_SUBMIT: Kinds = {
  messageId: "id",
  streamId: "id",
  model: "text",
  calls: "text",
  meta: "object",
  timeoutMs: "milliseconds",
};
const OF_MESSAGES: Kinds = { format: "text", branch: "id", compacted: "bool", unknown: "text" };

export class Session {
  readonly sessionId: string;
  private readonly query: Asks;
  private readonly redact: Redact | undefined;
  private readonly seen: () => Fields[];
  private readonly open: OpenReply;

  /** Made by `client.session`. @internal */
  constructor(
    sessionId: string,
    query: Asks,
    redact: Redact | undefined,
    seen: () => Fields[],
    open: OpenReply,
  ) {
    this.sessionId = sessionId;
    this.query = query;
    this.redact = redact;
    this.seen = seen;
    this.open = open;
  }

  /** Append an event; of a type of your own it is kept and in no message. */
  async append(type: string, payload: Info = {}, options: AppendOptions = {}): Promise<Entry> {
    const entry = this.entryOf(type, payload, options);
    const [placed] = await this.place([entry], options);
    return placed!;
  }

  /** Append all of them or none. */
  async appendMany(
    entries: readonly ({ type: string; payload?: Info } & AppendOptions)[],
    options: Pick<AppendOptions, "expectedSeq" | "synced" | "timeoutMs"> = {},
  ): Promise<Entry[]> {
    checkArgument(entries, "entries", "list");
    if (entries.length === 0 && options.expectedSeq === undefined) return [];
    return this.place(
      entries.map(({ type, payload = {}, ...one }) => this.entryOf(type, payload, one)),
      options,
    );
  }

  /** Append a message; `meta` is kept beside its role and content. */
  async message(
    role: string,
    content: unknown,
    options: AppendOptions & { meta?: Info } = {},
  ): Promise<Entry> {
    const { meta = {}, ...rest } = options;
    checkArgument(role, "role", "id");
    checkArguments({ meta }, { meta: "object" });
    return this.append("message", { ...meta, role, content }, rest);
  }

  /**
   * Take in the user's message; it survives the loss of power once this resolves.
   *
   * The same messageId and content give the first turn. NotDurable where that is not known in time.
   */
  async submit(content: unknown, options: SubmitOptions = {}): Promise<Turn> {
    checkArguments(options, OF_A_SUBMIT);
    const { calls } = options;
    if (calls !== undefined && calls !== "journal") {
      throw new RangeError(`calls of submit: got ${JSON.stringify(calls).slice(0, 80)}, limit "journal"`);
    }
    const began = performance.now();
    const turnId = newEntryId();
    const { streamId, model, meta, messageId = newEntryId(), timeoutMs = SUBMIT_MS } = options;
    const payload = {
      message_id: messageId,
      content,
      ...(streamId === undefined ? {} : { stream_id: streamId }),
      ...(model === undefined ? {} : { model }),
      ...(calls === undefined ? {} : { calls }),
      ...(meta === undefined ? {} : { meta }),
    };
    const how = { id: turnId, turn: turnId, key: messageId, once: true };
    const entry = this.entryOf("turn_submitted", payload, how);
    const sent = JSON.parse(textOf(entry["payload"] as Uint8Array)) as Info;
    try {
      const placed = await this.placeSubmitted(entry, messageId, sent, timeoutMs);
      if (!placed.isNew) return await this.first(placed, messageId, sent);
    } catch (error) {
      if (!isPassing(error)) throw error;
      const waitedMs = Math.round(performance.now() - began);
      throw new NotDurable(this.sessionId, turnId, messageId, waitedMs, error);
    }
    return this.turnOf(turnId, messageId, streamId === undefined ? [] : [streamId], "submitted");
  }

  /** A turn by its id, or by a stream of its replies. Refused where there is none. */
  async turn(which: string | { streamId: string }): Promise<Turn> {
    if (typeof which !== "string") checkArguments(which, { streamId: "id" });
    checkArgument(typeof which === "string" ? which : which.streamId, "turn", "id");
    const state = (await this.state()) as { turns?: TurnFacts[] } | null;
    const found = state?.turns?.find((turn) =>
      typeof which === "string"
        ? turn.turn_id === which
        : (turn.stream_ids ?? []).includes(which.streamId),
    );
    if (found === undefined) {
      const got = typeof which === "string" ? which : `stream ${which.streamId}`;
      throw new Refused("unknown_turn", got, `a turn of session ${this.sessionId}`);
    }
    return this.turnOf(found.turn_id, found.message_id ?? "", found.stream_ids ?? [], found.state);
  }

  /**
   * The messages up to the leaf, or up to entry `branch`. null: never written. A reply of a turn that is not
   * released stands in its turn. unknown: "drop" leaves out calls of which nobody knows whether they ran; the
   * model is told so else.
   */
  async messages(
    options: {
      format?: "plain" | "openai" | "anthropic";
      branch?: string;
      compacted?: boolean;
      unknown?: "say" | "drop";
    } = {},
  ): Promise<Record<string, unknown>[] | null> {
    checkArguments(options, OF_MESSAGES);
    const { format = "plain", branch, compacted = true, unknown = "say" } = options;
    const asked: Record<string, unknown> = { format, compacted };
    if (branch !== undefined) asked["branch"] = branch;
    if (unknown !== "say") asked["unknown"] = unknown;
    return (await this.project("messages", asked)) as Record<string, unknown>[] | null;
  }

  /** Events with seqs above `after`, as they stand in the log. */
  async events(after = 0): Promise<Record<string, unknown>[]> {
    checkArgument(after, "after", "seq");
    let found: Record<string, unknown>[] = [];
    let last: Uint8Array | undefined;
    for (let at = after; ; ) {
      const page = await this.lines(at, EVENTS_PAGE);
      if (last !== undefined && !(page[0] !== undefined && Buffer.from(last).equals(page[0]))) {
        // Deleted between two pages, perhaps begun anew.
        [found, last, at] = [[], undefined, after];
        continue;
      }
      found.push(...(last === undefined ? page : page.slice(1)).map(eventOf));
      if (page.length < EVENTS_PAGE) return found;
      // The last one comes once more: so the next page is seen to be of the same session.
      [last, at] = [page.at(-1)!, (found.at(-1)!["seq"] as number) - 1];
    }
  }

  /** Turns, tools, settings, model, leaf: where the session stands. null: never written. */
  state(): Promise<unknown> {
    return this.project("state");
  }

  /** A view of the session by name, as JSON says it; null where it was never written. */
  async project(name: string, args: Info = {}): Promise<unknown> {
    checkArgument(name, "name", "id");
    checkArgument(args, "args", "object");
    const fields = {
      session_id: this.sessionId,
      name,
      arguments: Buffer.from(values.jsonText(args)),
    };
    const answer = await this.query.ask("Project", () => ({ ...fields, seen: this.seen() }));
    const found = decodeAnswer(answer, "bin?") as Uint8Array | null;
    return found === null ? null : JSON.parse(textOf(found));
  }

  // --- within ---

  private entryOf(type: string, payload: Info, options: AppendOptions): Fields {
    checkArgument(type, "type", "id");
    checkArgument(payload, "payload", "object");
    checkArguments(options, OF_AN_ENTRY);
    const { id, key, once = false } = options;
    const json = values.jsonText(payload); // halves of characters are escapes in it
    const text = Buffer.from(this.redact ? redactedPayload(json, this.redact, namesOf(type)) : json);
    if (text.length > PAYLOAD_BYTES_MAX) {
      throw new RangeError(
        `payload of '${type}' is ${text.length} bytes of JSON, limit ${PAYLOAD_BYTES_MAX}: keep the ` +
          "long part elsewhere and name it in the payload",
      );
    }
    return {
      type,
      payload: text,
      id: id ?? newEntryId(),
      parent: options.parent ?? null,
      turn: options.turn ?? null,
      cause: options.cause ?? null,
      correlation: options.correlation ?? null,
      key: key ?? null,
      leaf: options.leaf ?? true,
      // An id that was drawn here is the client's own, so the entry may be sent twice and added once;
      // not where it has a key, which `once` would look at instead.
      once: once || (id === undefined && key === undefined),
      at_ms: Date.now(),
    };
  }

  private async place(
    entries: Fields[],
    options: Pick<AppendOptions, "expectedSeq" | "synced" | "timeoutMs">,
  ): Promise<Entry[]> {
    const size = entries.reduce((sum, one) => sum + (one["payload"] as Uint8Array).length, 0);
    if (size > APPEND_BYTES_MAX) {
      throw new RangeError(
        `${entries.length} entries are ${size} bytes together, limit ${APPEND_BYTES_MAX}: all or ` +
          "none are appended, so append fewer at once",
      );
    }
    checkArguments(options, OF_A_REQUEST);
    const { expectedSeq, synced = false, timeoutMs } = options;
    const how: AskOptions = { again: expectedSeq === undefined && entries.every((one) => one["once"]) };
    if (timeoutMs !== undefined) how.timeoutMs = timeoutMs;
    const fields = {
      session_id: this.sessionId,
      entries,
      expected_seq: expectedSeq ?? null,
      level: synced ? "synced" : "written",
    };
    const answer = await this.query.ask("Append", () => ({ ...fields, seen: this.seen() }), how);
    const placed = decodeAnswer(answer, "[Placed]") as { id: string; seq: number; is_new: boolean }[];
    if (placed.length !== entries.length) {
      throw new Unavailable(`walld placed ${placed.length} of ${entries.length} entries`);
    }
    return placed.map((one) => ({ id: one.id, seq: one.seq, isNew: one.is_new }));
  }

  /**
   * What is submitted, in the form that the first of its message has where that is another one: to the daemon
   * an artifact, as the Python client makes of long content, is another content than what it stands for. So are
   * attachments, which that client knows.
   */
  private async placeSubmitted(
    entry: Fields,
    messageId: string,
    sent: Info,
    timeoutMs: number,
  ): Promise<Entry> {
    const began = performance.now();
    try {
      return (await this.place([entry], { synced: true, timeoutMs }))[0]!;
    } catch (error) {
      if (!(error instanceof Refused) || error.code !== "message_id_taken") throw error;
      const found = await this.project("find", { type: "turn_submitted", key: messageId });
      const known = (found ?? []) as { payload: Info }[];
      const first = known.find(({ payload }) => payload["message_id"] === messageId && !payload["retry_of"]);
      if (first === undefined || !isSame(sent["content"], first.payload["content"])) throw error;
      const { content, attachments } = first.payload;
      const payload = Buffer.from(JSON.stringify({ ...sent, content, attachments }));
      const leftMs = Math.max(timeoutMs - (performance.now() - began), 1);
      return (await this.place([{ ...entry, payload }], { synced: true, timeoutMs: leftMs }))[0]!;
    }
  }

  /** The turn that took this message id before. Refused where its content is another. */
  private async first(entry: Entry, messageId: string, sent: Info): Promise<Turn> {
    const [line] = (await this.lines(entry.seq - 1, 1)).map(eventOf);
    if (line?.["seq"] !== entry.seq) {
      const limit = "a message that is there: submit it anew, with another messageId";
      const text = `the message (entry ${entry.seq}) was lost to damage, or deleted with its session`;
      throw new Refused("lost_entry", messageId, limit, text);
    }
    const kept = (line?.["payload"] ?? {}) as Record<string, unknown>;
    if (line?.["type"] !== "turn_submitted" || !isSame(sent["content"], kept["content"])) {
      throw new Refused(
        "message_id_taken",
        messageId,
        `the content it was first submitted with (entry ${entry.id}, seq ${entry.seq})`,
      );
    }
    return this.turn((line["turn"] as string | undefined) ?? entry.id);
  }

  private async lines(after: number, limit: number): Promise<Uint8Array[]> {
    const fields = { session_id: this.sessionId, after, limit };
    const answer = await this.query.ask("Events", () => ({ ...fields, seen: this.seen() }));
    return (decodeAnswer(answer, "[bin]?") as Uint8Array[] | null) ?? [];
  }

  private turnOf(turnId: string, messageId: string, streamIds: string[], state: string): Turn {
    return new Turn(this, this.open, { turnId, messageId, streamIds: [...streamIds], state });
  }
}

interface TurnFacts {
  turn_id: string;
  message_id?: string;
  stream_ids?: string[];
  state: string;
}

/** Is content what an entry has as `known`, itself or by the artifact that stands for it? */
function isSame(content: unknown, known: unknown): boolean {
  if (isDeepStrictEqual(content, known)) return true;
  const named = (known as { _artifact?: { sha256?: unknown; media_type?: unknown } } | null)?._artifact;
  const isText = typeof content === "string";
  if (named?.media_type !== (isText ? "text/plain; charset=utf-8" : "application/json")) return false;
  const held = isText ? wtf8.encode(content) : JSON.stringify(content);
  return createHash("sha256").update(held).digest("hex") === named.sha256;
}

function eventOf(line: Uint8Array): Record<string, unknown> {
  return JSON.parse(textOf(line)) as Record<string, unknown>;
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("utf8");
}
