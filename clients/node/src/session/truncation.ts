/**
 * Shortens payloads that are too long, and marks what was cut: the same, byte for byte, as the Python client does.
 *
 * Owns: which field that is, the description of an artifact in its place, and reading one. Refuses: sending the
 * bytes (`artifacts.ts`).
 *
 * A payload above the limit gives up its longest field to an artifact until it fits; the field then holds
 * {"_artifact": {sha256, size, media_type, preview}}. A field that is a text to whoever reads the event (what was
 * observed, a summary, a reason) stays one, its beginning, and `_artifact` stands beside it. Ids and names give
 * nothing up.
 */

import { createHash } from "node:crypto";

import * as values from "../encoding/valueEncoding.ts";
import * as wtf8 from "../encoding/wtf8.ts";
import { APPEND_BYTES_MAX, CONTENT_BYTES_MAX, PAYLOAD_BYTES_MAX, PREVIEW_CHARS_MAX } from "../limits.ts";

type Payload = Record<string, unknown>;
type Place = [holder: Payload, name: string];

export const JSON_TYPE = "application/json";
const TEXT_TYPE = "text/plain; charset=utf-8";
/** Lists of a message whose parts hold what is long of a call. */
export const CALLS = ["tool_calls", "tool_results"];
export const OF_A_CALL = ["arguments", "result"];
const MESSAGES = ["messages", "replacement"];
/** Fields that stay a text. */
const TEXTS = new Map([
  ["observation", "text"],
  ["branch_summary", "text"],
  ["compaction", "summary"],
  ["turn_interrupted", "reason"],
]);
/** What is of no use but as it is: who reads it compares it, or looks into it. */
const KEPT = new Map<string, string[]>(Object.entries({
  message: ["role"],
  message_edit: ["target"],
  label: ["target", "text"],
  branch_summary: ["target"],
  setting: ["key"],
  model_change: ["model"],
  compaction: ["first_kept"],
  leaf: ["target", "name"],
  turn_submitted: ["message_id", "attachments", "model", "retry_of", "stream_id", "calls"],
  turn_assistant_started: ["stream_id"],
  tool_intent: ["call_id", "tool"],
  tool_decision: ["call_id", "verdict"],
  tool_finished: ["call_id", "files"],
  observation: ["call_id"],
  artifact: ["sha256", "media_type"],
  lifecycle: ["fingerprint"],
}));
/** Shorter than that, what would stand for a field is no shorter. */
const LONG = 4 * PREVIEW_CHARS_MAX;
/** What stands around a list of messages in a payload. */
const AROUND_BYTES = 1024;
/** A message whose content is an artifact: its preview, every letter an escape, and its name. */
const NAMED_BYTES = 8 * 1024;

export interface FitOptions {
  bytesMax?: number;
  /** A field that gives way by its own length: first where that is too long, else last. */
  own?: string;
  /** One that stays as it is. */
  kept?: string;
}

/**
 * The payload as JSON text that fits an entry, and what is to be put beside the session for it.
 *
 * json: of an object. RangeError where nothing of a payload that is too long is long itself and may give way.
 */
export function fit(json: string, type: string, options: FitOptions = {}): [text: Uint8Array, beside: Uint8Array[]] {
  const { bytesMax = PAYLOAD_BYTES_MAX, own, kept } = options;
  let text: Uint8Array = Buffer.from(json);
  const beside: Uint8Array[] = [];
  if (text.length <= bytesMax && (own === undefined || text.length <= CONTENT_BYTES_MAX)) return [text, beside];
  const payload = JSON.parse(json) as Payload;
  let isDue = own !== undefined && isTooLong(payload[own]);
  while (text.length > bytesMax || isDue) {
    const [holder, name]: Place = isDue ? [payload, own!] : longest(payload, type, own, kept);
    isDue = false;
    const value = holder[name];
    const isText = holder === payload && TEXTS.get(type) === name && typeof value === "string";
    const [held, kind] = heldOf(value);
    const isDone = isText ? "_artifact" in payload : namedIn(value) !== undefined;
    if (held.length < LONG || isDone) throw new RangeError(tooLong(payload, type, text.length, name, held.length));
    const sha256 = createHash("sha256").update(held).digest("hex");
    const preview = previewOf(held);
    const named = { _artifact: { sha256, size: held.length, media_type: kind, preview } };
    Object.assign(holder, isText ? { [name]: preview, ...named } : { [name]: named });
    beside.push(held);
    text = bytesOf(payload);
  }
  return [text, beside];
}

/**
 * How long each of these may be, that all fit one request: shorter than an entry may be where all of them would not;
 * as long as an entry where nothing of one is long.
 */
export function shares(payloads: readonly object[], type: string): number {
  const share = Math.min(PAYLOAD_BYTES_MAX, Math.floor(APPEND_BYTES_MAX / payloads.length));
  try {
    for (const payload of payloads) fit(values.jsonText(payload), type, { bytesMax: share });
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return PAYLOAD_BYTES_MAX;
  }
  return share;
}

/**
 * A list, of messages mostly, as lists that an entry holds each, or `bytesMax`. One that no entry holds counts as
 * what is left of it once its content is an artifact.
 */
export function inPieces<T>(listed: readonly T[], bytesMax: number = PAYLOAD_BYTES_MAX): T[][] {
  const pieces: T[][] = [[]];
  let size = 0;
  for (const one of listed) {
    let length = bytesOf(one).length + 1;
    if (length > PAYLOAD_BYTES_MAX - AROUND_BYTES) length = NAMED_BYTES;
    if (pieces.at(-1)!.length > 0 && size + length > bytesMax - AROUND_BYTES) {
      pieces.push([]);
      size = 0;
    }
    pieces.at(-1)!.push(one);
    size += length;
  }
  return pieces;
}

/** What names the artifact that stands for a value. */
export function namedIn(value: unknown): Payload | undefined {
  if (!isObject(value) || Object.keys(value).length !== 1) return undefined;
  return isObject(value["_artifact"]) ? value["_artifact"] : undefined;
}

/** What an artifact holds for a value, and its media type. */
export function heldOf(value: unknown): [Uint8Array, string] {
  return typeof value === "string" ? [wtf8.encode(value), TEXT_TYPE] : [bytesOf(value), JSON_TYPE];
}

/** How it begins, as text. */
export function previewOf(start: Uint8Array): string {
  const bytesMax = 4 * PREVIEW_CHARS_MAX;
  const text = wtf8.decode(wtf8.cut(Buffer.from(start.subarray(0, bytesMax + 1)), bytesMax)).toWellFormed();
  return Array.from(text).slice(0, PREVIEW_CHARS_MAX).join("");
}

export function isObject(value: unknown): value is Payload {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function bytesOf(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value) ?? "null");
}

function isTooLong(value: unknown): boolean {
  return bytesOf(value).length > CONTENT_BYTES_MAX && namedIn(value) === undefined;
}

/** Why it does not fit: a field that is kept as it is, or none that is long. */
function tooLong(payload: Payload, type: string, size: number, name: string, length: number): string {
  const said = `the payload is ${size} bytes, limit ${PAYLOAD_BYTES_MAX}, and `;
  const kept = (KEPT.get(type) ?? []).filter((one) => one in payload).map((one) => [one, bytesOf(payload[one]).length]);
  const [most, mostBytes] = kept.reduce((one, other) => (other[1]! > one[1]! ? other : one), ["", 0]);
  if ((mostBytes as number) > length) {
    return `${said}${most} of ${type}, which no artifact can stand for, is ${mostBytes}`;
  }
  return `${said}no field of it is long ('${name}' is ${length}): put it into an artifact`;
}

/** The place that is to give way: within a call rather than all calls, which folds look at. */
function longest(payload: Payload, type: string, own: string | undefined, kept: string | undefined): Place {
  const length = ([holder, name]: Place): number => bytesOf(holder[name]).length;
  const longestOf = (found: Place[]): Place | undefined => {
    const lengths = found.map(length);
    return found[lengths.indexOf(Math.max(...lengths))];
  };
  const fixed = [kept, ...(KEPT.get(type) ?? []), ...(TEXTS.has(type) ? ["_artifact"] : [])];
  let found = placesOf(payload).filter(([holder, name]) => holder !== payload || !fixed.includes(name));
  const others = found.filter(([holder, name]) => name !== own || holder !== payload);
  if (others.some((one) => length(one) >= LONG && namedIn(one[0][one[1]]) === undefined)) found = others;
  // Nothing at all may give way: then nothing is long.
  const [holder, name] = longestOf(found) ?? [{ payload: null }, "payload"];
  const calls = holder[name];
  if (holder === payload && CALLS.includes(name) && Array.isArray(calls)) {
    const within = calls.filter(isObject).flatMap((call): Place[] => {
      const long = OF_A_CALL.filter((field) => field in call && namedIn(call[field]) === undefined);
      return long.map((field) => [call, field]);
    });
    const inner = longestOf(within);
    if (inner !== undefined && length(inner) >= LONG) return inner;
  }
  return [holder, name];
}

/** Where an artifact may stand: fields, and those of messages, which folds look into. */
function placesOf(payload: Payload): Place[] {
  return Object.entries(payload).flatMap(([name, value]): Place[] => {
    const fieldsOf = (one: Payload): Place[] => Object.keys(one).map((inner) => [one, inner]);
    if (name === "message" && isObject(value)) return fieldsOf(value);
    if (MESSAGES.includes(name) && Array.isArray(value)) return value.filter(isObject).flatMap(fieldsOf);
    return [[payload, name]];
  });
}
