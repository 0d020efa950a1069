/**
 * Holds the event frames that are not yet known synced, to send them again to the next daemon.
 *
 * Owns: frames in memory, their order, their bytes and what is dropped when they are too many.
 * Refuses: sockets, time.
 *
 * In the order in which they came:
 *
 *     endings | sent | outgoing | kept | waiting
 *     `- the kernel's -'`------- not yet -------'
 *
 * `endings` and `kept` hold the frames a full ring does not drop (starts, moves, ends, releases)
 * once everything droppable around them is gone. `outgoing` was handed to the socket, which may
 * have written a part of it: it is never dropped, folded or reordered.
 *
 * What is folded, and what is kept where all around it goes, is moved to memory of its own kind: else
 * a few bytes would keep 64 KiB of what is gone.
 *
 * Invariants: frames of one stream leave in seq order; no frame is lost by `rewind`; `heldBytes` is
 * at most `bytesMax` after `makeRoom`, outgoing aside.
 */

import { CHUNK_BYTES, FOLD_AFTER_EVENTS } from "../limits.ts";
import { Slab } from "../wire/slab.ts";
import { Deque } from "./deque.ts";
import { bytesOf, folded, isEnding, isStart, moved, sizeOf, type Held } from "./eventFrames.ts";
import type { Stream } from "./stream.ts";

/** Room made beyond what is needed, so that a full ring is not trimmed at every event. */
const SLACK_BYTES = 16 * 1024;

export class Backlog {
  readonly bytesMax: number;
  /** All that is held, taken or not. */
  heldBytes = 0;
  /** Not yet taken by the kernel. */
  waitingBytes = 0;
  waitingEvents = 0;
  /** Never taken, lost. */
  droppedEvents = 0;
  /** Taken, but given up before they were known synced. */
  unheldEvents = 0;

  private endings = new Deque<Held>();
  private sent = new Deque<Held>();
  private outgoing: Held[] = [];
  private kept = new Deque<Held>();
  private waiting = new Deque<Held>();
  private loose = 0;
  private readonly foldedSlab = new Slab();
  private readonly keptSlab = new Slab();

  private readonly gaveUp: (stream: Stream) => void;

  /** gaveUp: told of each stream of which nothing is sent any more, because endings alone were too many. */
  constructor(bytesMax: number, gaveUp: (stream: Stream) => void) {
    this.bytesMax = bytesMax;
    this.gaveUp = gaveUp;
  }

  /** The kernel has taken everything. */
  get isClear(): boolean {
    return this.outgoing.length + this.kept.length + this.waiting.length === 0;
  }

  /** Something is held for a daemon, taken or not. */
  get holdsAny(): boolean {
    return !this.isClear || this.sent.length + this.endings.length > 0;
  }

  /** It is more than its bound. */
  get isFull(): boolean {
    return this.heldBytes > this.bytesMax;
  }

  // --- in ---

  /** A frame that the socket is given at this moment, with nothing before it. */
  remember(held: Held): void {
    this.sent.push(held);
    this.heldBytes += sizeOf(held);
    held.stream!.taken = held.seq;
  }

  /** The frame remembered last was not wholly taken. */
  unsend(): void {
    const held = this.sent.pop()!;
    held.stream!.taken = held.seq - 1;
    this.outgoing.push(held);
    this.waitingBytes += sizeOf(held);
    this.waitingEvents += held.count;
  }

  /** A frame that waits for the kernel. */
  hold(held: Held): void {
    this.waiting.push(held);
    this.waits(held, 1);
    this.heldBytes += sizeOf(held);
    this.loose += 1;
    if (this.loose >= FOLD_AFTER_EVENTS) this.fold();
  }

  private waits(held: Held, sign: 1 | -1): void {
    this.waitingBytes += sign * sizeOf(held);
    if (held.stream !== null) this.waitingEvents += sign * held.count;
  }

  private fold(): void {
    const loose: Held[] = [];
    for (; this.loose > 0; this.loose -= 1) loose.push(this.waiting.pop()!);
    let saved = 0;
    for (const held of loose) saved += sizeOf(held);
    for (const held of folded(loose.reverse())) {
      this.waiting.push(moved(held, this.foldedSlab));
      saved -= sizeOf(held);
    }
    this.heldBytes -= saved;
    this.waitingBytes -= saved;
  }

  // --- out ---

  /** The next frames to leave, as one piece; null where nothing waits. Then `taken` is called. */
  take(): Buffer | null {
    if (this.loose > 0) this.fold();
    const sizeMax = Math.min(CHUNK_BYTES, 1 + this.bytesMax / 8); // it cannot be dropped
    let size = 0;
    while (size < sizeMax) {
      const held = this.kept.shift() ?? this.waiting.shift();
      if (held === undefined) break;
      if (!this.leaves(held)) continue;
      this.outgoing.push(held);
      size += held.length;
    }
    if (this.outgoing.length === 0) return null;
    if (this.outgoing.length === 1) return bytesOf(this.outgoing[0]!);
    return Buffer.concat(this.outgoing.map(bytesOf));
  }

  /** The kernel has all that was outgoing. */
  taken(): void {
    for (const held of this.outgoing) {
      this.waits(held, -1);
      if (held.stream === null) {
        this.heldBytes -= sizeOf(held);
      } else {
        this.sent.push(held);
        held.stream.taken = held.seq + held.count - 1;
      }
    }
    this.outgoing = [];
  }

  /** False for a frame nobody needs any more; it is off the books then. */
  private leaves(held: Held): boolean {
    const stream = held.stream;
    if (stream === null) return true;
    if (isNeeded(held, stream)) {
      if (isStart(held.tag)) stream.introduced = true;
      return true;
    }
    this.waits(held, -1);
    this.heldBytes -= sizeOf(held);
    stream.taken = held.seq + held.count - 1;
    stream.heldFrom = stream.taken + 1;
    if (stream.gone && !stream.released) this.droppedEvents += held.count;
    return false;
  }

  // --- the end of a connection ---

  /** The connection is gone: everything held waits for the next one, in order, unchanged. */
  rewind(streams: Iterable<Stream>): void {
    this.trim();
    const everything = new Deque<Held>();
    for (const queue of [this.endings, this.sent, this.outgoing, this.kept, this.waiting]) {
      for (const held of queue) everything.push(held);
    }
    for (const queue of [this.endings, this.sent]) for (const held of queue) this.waits(held, 1);
    this.waiting = everything;
    this.endings.clear();
    this.sent.clear();
    this.outgoing = [];
    this.kept.clear();
    for (const stream of streams) stream.rewind();
  }

  /** Take every Drain out of what waits, to be asked again behind it. */
  dropDrains(): void {
    if (this.loose > 0) this.fold();
    const others = new Deque<Held>();
    for (const held of this.waiting) {
      if (held.stream === null) {
        this.waits(held, -1);
        this.heldBytes -= sizeOf(held);
      } else {
        others.push(held);
      }
    }
    this.waiting = others;
  }

  // --- the books ---

  /** Let go of what is synced, from the oldest on. */
  trim(): void {
    for (const queue of [this.endings, this.sent]) {
      for (let held = queue.first; held !== undefined; held = queue.first) {
        const stream = held.stream!;
        if (isNeeded(held, stream)) break;
        stream.heldFrom = Math.max(stream.heldFrom, held.seq + held.count);
        queue.shift();
        this.heldBytes -= sizeOf(held);
      }
    }
  }

  // --- too much ---

  /**
   * Drop the oldest until the ring fits again. True where an event was lost by it.
   *
   * What the kernel has taken goes first: it is lost only if the daemon dies now, too.
   */
  makeRoom(): boolean {
    if (!this.isFull) return false;
    const droppedEvents = this.droppedEvents;
    const goal = Math.max(0, this.bytesMax - Math.min(SLACK_BYTES, this.bytesMax / 8));
    while (this.heldBytes > goal && this.sent.length > 0) this.dropSent();
    while (this.heldBytes > goal && this.waiting.length > 0) this.dropWaiting();
    while (this.isFull && this.endings.length + this.kept.length > 0) this.giveUp();
    return this.droppedEvents > droppedEvents;
  }

  private dropSent(): void {
    const held = this.sent.shift()!;
    const stream = held.stream!;
    if (!stream.gone && isEnding(held.tag) && !isStart(held.tag)) {
      this.endings.push(moved(held, this.keptSlab));
      return;
    }
    this.heldBytes -= sizeOf(held);
    stream.heldFrom = Math.max(stream.heldFrom, held.seq + held.count);
    if (isNeeded(held, stream)) this.unheldEvents += held.count;
  }

  private dropWaiting(): void {
    const held = this.waiting.shift()!;
    this.loose = Math.min(this.loose, this.waiting.length);
    const stream = held.stream;
    if (stream === null || (!stream.gone && isEnding(held.tag))) {
      this.kept.push(moved(held, this.keptSlab));
      return;
    }
    this.waits(held, -1);
    this.heldBytes -= sizeOf(held);
    if (!stream.gone) {
      stream.heldFrom = Math.max(stream.heldFrom, held.seq + held.count);
      stream.forgo(held.seq, held.seq + held.count - 1);
      this.droppedEvents += held.count;
    }
  }

  /** Nothing but endings is left: memory is bounded all the same, so whole replies go. */
  private giveUp(): void {
    const wasSent = this.endings.length > 0;
    const held = (wasSent ? this.endings : this.kept).shift()!;
    this.heldBytes -= sizeOf(held);
    if (!wasSent) this.waits(held, -1);
    const { stream } = held;
    if (stream === null) return;
    if (wasSent) this.unheldEvents += 1;
    else this.droppedEvents += 1;
    stream.lose(held.seq, stream.nextSeq - 1);
    stream.gone = true;
    this.gaveUp(stream);
  }
}

/** Neither synced nor refused, and of a stream that is sent at all. */
function isNeeded(held: Held, stream: Stream): boolean {
  return !stream.gone && held.seq + held.count - 1 > stream.synced && !stream.refused.has(held.seq);
}
