/**
 * Encodes event frames, plain text by hand, and folds text that waits into runs.
 *
 * Owns: the bytes of a plain Token or Reasoning, and which frames fold. Refuses: sockets, order.
 *
 * Why by hand: a token is bytes in a slab, filled once, without an object of its own: where the caches
 * are cold, as between the tokens of a model, making one costs more than writing them. The result is
 * ordinary msgpack:
 *
 *     0       4    5    6   7        11  12      16  17       19
 *     length  94   tag  ce  stream   ce  seq     c5  length   text
 */

import { FRAME_OVERHEAD_BYTES, SHORT_TEXT_BYTES_MAX } from "../limits.ts";
import { encodeFrame } from "../wire/framing.ts";
import { SHARED_BYTES_MAX, spoken, type Slab } from "../wire/slab.ts";
import type { Stream } from "./stream.ts";

export const TOKEN = 3;
export const REASONING = 4;
const RUN = 5;
const START = 2;
const MOVE = 12;
const APP_ERROR = 14;
const END = 15;
const RELEASE = 16;

const TEXT_AT = 19;
const SHORT = 0xffff;
/** Longest text, in UTF-16 units, that is written byte by byte: beyond, a call of Buffer is faster. */
const BY_HAND_MAX = 64;

/**
 * A frame that is sent and held: `count` events of `stream` from `seq` on. No stream: a Drain. Its bytes
 * are `length` of `memory`, which it may share with others, from `at` on.
 */
export interface Held {
  readonly stream: Stream | null;
  readonly tag: number;
  readonly seq: number;
  readonly count: number;
  readonly memory: Buffer;
  readonly at: number;
  readonly length: number;
}

export function heldFrame(stream: Stream | null, tag: number, seq: number, count: number, frame: Buffer): Held {
  return { stream, tag, seq, count, memory: frame, at: 0, length: frame.length };
}

/** The bytes of a held frame. */
export function bytesOf({ memory, at, length }: Held): Buffer {
  return memory.subarray(at, at + length);
}

/** The same frame in `slab`, among others that leave when it does; as it is where it shares memory with none. */
export function moved(held: Held, slab: Slab): Held {
  if (held.length > SHARED_BYTES_MAX) return held;
  const at = slab.reserve(held.length);
  held.memory.copy(slab.memory, at, held.at, held.at + held.length);
  slab.keep(held.length);
  return { ...held, memory: slab.memory, at };
}

/** What a held frame occupies. */
export function sizeOf(held: Held): number {
  return held.length + FRAME_OVERHEAD_BYTES;
}

/** What a full ring does not drop: where a reply begins, belongs and ends. */
export function isEnding(tag: number): boolean {
  return tag === START || tag === MOVE || tag === APP_ERROR || tag === END || tag === RELEASE;
}

/** Resume brings it again, so of what was sent it need not be kept. */
export function isStart(tag: number): boolean {
  return tag === START;
}

/** A Token or Reasoning without info. `text` is a string without lone halves, or bytes. */
export function heldText(stream: Stream, tag: number, seq: number, text: string | Buffer): Held {
  if (typeof text !== "string" || text.length > BY_HAND_MAX) {
    return heldFrame(stream, tag, seq, 1, textFrame(tag, stream.number, seq, text));
  }
  const at = spoken.reserve(TEXT_AT + 3 * text.length);
  const memory = spoken.memory;
  const length = writeText(memory, at + TEXT_AT, text);
  writeHead(memory, at, tag, stream.number, seq, length);
  spoken.keep(TEXT_AT + length);
  return { stream, tag, seq, count: 1, memory, at, length: TEXT_AT + length };
}

function textFrame(tag: number, number: number, seq: number, text: string | Buffer): Buffer {
  const length = typeof text === "string" ? Buffer.byteLength(text) : text.length;
  const textAt = length <= SHORT ? TEXT_AT : TEXT_AT + 2;
  const frame = spoken.room(textAt + length);
  writeHead(frame, 0, tag, number, seq, length);
  if (typeof text === "string") frame.write(text, textAt);
  else text.copy(frame, textAt);
  return frame;
}

/** All that is before the text. */
function writeHead(into: Buffer, at: number, tag: number, number: number, seq: number, length: number): void {
  const isShort = length <= SHORT;
  writeU32(into, at, (isShort ? TEXT_AT : TEXT_AT + 2) - 4 + length);
  into[at + 4] = 0x94;
  into[at + 5] = tag;
  into[at + 6] = 0xce;
  writeU32(into, at + 7, number);
  into[at + 11] = 0xce;
  writeU32(into, at + 12, seq);
  if (isShort) {
    into[at + 16] = 0xc5;
    into[at + 17] = length >>> 8;
    into[at + 18] = length;
  } else {
    into[at + 16] = 0xc6;
    writeU32(into, at + 17, length);
  }
}

function writeU32(into: Buffer, at: number, value: number): void {
  into[at] = value >>> 24;
  into[at + 1] = value >>> 16;
  into[at + 2] = value >>> 8;
  into[at + 3] = value;
}

/** Its length in bytes. Most tokens are ASCII; what is not begins again, the way of Buffer. */
function writeText(into: Buffer, at: number, text: string): number {
  for (let n = 0; n < text.length; n += 1) {
    const code = text.charCodeAt(n);
    if (code > 0x7f) return into.write(text, at);
    into[at + n] = code;
  }
  return text.length;
}

/**
 * The same events in fewer frames.
 *
 * Within a stream order is kept; a stream's token may pass another stream's event, because only
 * (stream, seq) orders anything. A Drain is passed by nothing.
 */
export function folded(held: readonly Held[]): Held[] {
  const out: Held[][] = [];
  const open = new Map<Stream, Held[]>();
  for (const one of held) {
    if (one.stream === null) {
      open.clear();
      out.push([one]);
    } else if (!folds(one)) {
      open.delete(one.stream);
      out.push([one]);
    } else {
      const run = open.get(one.stream);
      if (run !== undefined && run[0]!.tag === one.tag && run[0]!.seq + run.length === one.seq) {
        run.push(one);
      } else {
        const begun = [one];
        open.set(one.stream, begun);
        out.push(begun);
      }
    }
  }
  return out.map((run) => (run.length === 1 ? run[0]! : runOf(run)));
}

/** A plain short text. One with info has five elements and stays as it is. */
function folds(held: Held): boolean {
  return (
    (held.tag === TOKEN || held.tag === REASONING) &&
    held.memory[held.at + 4] === 0x94 &&
    held.length <= SHORT_TEXT_BYTES_MAX + TEXT_AT
  );
}

function runOf(run: Held[]): Held {
  const first = run[0]!;
  const texts = run.map(({ memory, at, length }) => memory.subarray(at + TEXT_AT, at + length));
  const frame = encodeFrame("Run", {
    stream: first.stream!.number,
    seq: first.seq,
    kind: first.tag,
    lengths: Buffer.from(texts.flatMap((text) => varint(text.length))),
    text: Buffer.concat(texts),
  });
  return heldFrame(first.stream, RUN, first.seq, run.length, frame);
}

function varint(value: number): number[] {
  const bytes: number[] = [];
  for (; value >= 0x80; value >>>= 7) bytes.push((value & 0x7f) | 0x80);
  bytes.push(value);
  return bytes;
}
