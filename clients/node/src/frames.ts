/**
 * Event frames as the client holds them: plain text written by hand, waiting text folded into runs.
 *
 * Owns: the bytes of a plain Token or Reasoning, and which frames fold. Refuses: sockets, order.
 *
 * Why by hand: a token is one buffer, filled once. The result is ordinary msgpack:
 *
 *     0       4    5    6   7        11  12      16  17       19
 *     length  94   tag  ce  stream   ce  seq     c5  length   text
 */

import { FRAME_OVERHEAD_BYTES, SHORT_TEXT_BYTES_MAX } from "./limits.ts";
import type { Stream } from "./stream.ts";
import { encodeFrame } from "./wire/framing.ts";
import { room } from "./wire/slab.ts";

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

/** A frame that is sent and held: `count` events of `stream` from `seq` on. No stream: a Drain. */
export interface Held {
  readonly stream: Stream | null;
  readonly tag: number;
  readonly seq: number;
  readonly count: number;
  readonly frame: Buffer;
}

/** What a held frame occupies. */
export function sizeOf(held: Held): number {
  return held.frame.length + FRAME_OVERHEAD_BYTES;
}

/** What a full ring does not drop: where a reply begins, belongs and ends. */
export function isEnding(tag: number): boolean {
  return tag === START || tag === MOVE || tag === APP_ERROR || tag === END || tag === RELEASE;
}

/** Resume brings it again, so of what was sent it need not be kept. */
export function isStart(tag: number): boolean {
  return tag === START;
}

/** The frame of a Token or Reasoning without info. `text` is a string without lone halves, or bytes. */
export function textFrame(tag: number, number: number, seq: number, text: string | Buffer): Buffer {
  const length = typeof text === "string" ? Buffer.byteLength(text) : text.length;
  const at = length <= SHORT ? TEXT_AT : TEXT_AT + 2;
  const frame = room(at + length);
  frame.writeUInt32BE(at - 4 + length, 0);
  frame[4] = 0x94;
  frame[5] = tag;
  frame[6] = 0xce;
  frame.writeUInt32BE(number, 7);
  frame[11] = 0xce;
  frame.writeUInt32BE(seq, 12);
  if (length <= SHORT) {
    frame[16] = 0xc5;
    frame.writeUInt16BE(length, 17);
  } else {
    frame[16] = 0xc6;
    frame.writeUInt32BE(length, 17);
  }
  if (typeof text === "string") frame.write(text, at);
  else text.copy(frame, at);
  return frame;
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
    held.frame[4] === 0x94 &&
    held.frame.length <= SHORT_TEXT_BYTES_MAX + TEXT_AT
  );
}

function runOf(run: Held[]): Held {
  const first = run[0]!;
  const texts = run.map((held) => held.frame.subarray(TEXT_AT));
  const frame = encodeFrame("Run", {
    stream: first.stream!.number,
    seq: first.seq,
    kind: first.tag,
    lengths: Buffer.from(texts.flatMap((text) => varint(text.length))),
    text: Buffer.concat(texts),
  });
  return { stream: first.stream, tag: RUN, seq: first.seq, count: run.length, frame };
}

function varint(value: number): number[] {
  const bytes: number[] = [];
  for (; value >= 0x80; value >>>= 7) bytes.push((value & 0x7f) | 0x80);
  bytes.push(value);
  return bytes;
}
