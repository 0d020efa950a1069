/**
 * Encodes and splits frames: a u32 big-endian length, then that many bytes of msgpack.
 *
 * Owns: the length prefix and its limit. Sans-IO: bytes in, bodies out. Refuses: sockets, clocks.
 * Invariant: nothing is kept for a length that was not checked.
 */

import { Unreadable, encodeBody, type Fields } from "./codec.ts";
import type { MessageName } from "./messages.ts";
import { spoken } from "./slab.ts";

export const PROTOCOL_VERSION = 1;
/** Longest message, without its length prefix, until Welcome says otherwise. */
export const FRAME_BYTES_MAX = 1024 * 1024;

/** A length prefix above the limit: framing is lost and the connection must close. */
export class FrameTooLong extends Unreadable {
  override name = "FrameTooLong";

  constructor(got: number, limit: number) {
    super(`frame of ${got} bytes announced, at most ${limit} are taken`);
  }
}

/** One frame: length prefix and body. */
export function frameOf(body: Uint8Array): Buffer {
  const frame = spoken.room(4 + body.length);
  frame.writeUInt32BE(body.length, 0);
  frame.set(body, 4);
  return frame;
}

/** The frame of a message. */
export function encodeFrame(name: MessageName, fields: Fields): Buffer {
  return frameOf(encodeBody(name, fields));
}

/** What a connection receives, cut into bodies, however it arrives. */
export class Splitter {
  private pieces: Buffer[] = [];
  private held = 0;
  private needed = 4;

  /** The bodies that are whole now. Throws FrameTooLong at the first length above the limit. */
  feed(received: Buffer): Buffer[] {
    this.pieces.push(received);
    this.held += received.length;
    if (this.held < this.needed) return [];
    let rest = this.pieces.length === 1 ? received : Buffer.concat(this.pieces);
    const bodies: Buffer[] = [];
    for (;;) {
      this.needed = 4;
      if (rest.length < 4) break;
      const length = rest.readUInt32BE(0);
      if (length > FRAME_BYTES_MAX) throw new FrameTooLong(length, FRAME_BYTES_MAX);
      this.needed = 4 + length;
      if (rest.length < this.needed) break;
      bodies.push(rest.subarray(4, this.needed));
      rest = rest.subarray(this.needed);
    }
    this.pieces = rest.length > 0 ? [rest] : [];
    this.held = rest.length;
    return bodies;
  }
}
