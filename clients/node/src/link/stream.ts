/**
 * The state of one stream: its names, and how far it is sent and acknowledged.
 *
 * Owns: the stream's number, names and positions. Refuses: sending, and the rules of a reply.
 *
 * It outlives the Reply object: a reply that ended may be released by id much later, and what it
 * sent may have to be sent again.
 */

import type { Fields } from "../wire/codec.ts";
import type { UnfinishedAnswer } from "./terminalEvents.ts";

export class Stream {
  readonly number: number;
  readonly streamId: string;
  readonly turnId: string | null;
  /** The fields of its Start, which a Resume repeats. */
  readonly start: Fields;
  sessionId: string;
  /** Seq of its next event. */
  nextSeq = 0;
  /** Highest seq the kernel has, for the daemon at hand; after a loss, the highest that is synced. */
  taken = -1;
  /** Up to here the daemon has nothing more to say, -1 if none; gaps are covered. */
  synced = -1;
  /** Lowest seq that is not known to be safe and never will be. */
  private firstLost = Infinity;
  /** Lowest seq the ring still holds, nextSeq if none. */
  heldFrom = 0;
  /** The latest run of seqs that no daemon gets any more. */
  private forgoneFrom = -1;
  private forgoneTo = -1;
  /** Its Start was given to a connection. */
  introduced = false;
  /** A model's answer that is not whole, and may be asked for again: it ends at that where it is left. */
  unfinished: UnfinishedAnswer | undefined;
  /** It ended, in whatever way. */
  terminal = false;
  released = false;
  /** Nothing of it is sent any more: given up, refused, or released before any daemon heard of it. */
  gone = false;
  /** A Reply object still stands for it. */
  owned = true;
  /** Up to here its session was deleted from here: no daemon is to have that. */
  deletedTo = -1;
  /** Seqs the daemon refused: intact but illegal, so never sent again. */
  readonly refused = new Set<number>();
  /** Of the first event that was refused, for want of room too; of the Start where that was. */
  refusal: { code: string; got: string; limit: string } | undefined;

  constructor(number: number, start: Fields) {
    this.number = number;
    this.start = start;
    this.streamId = start["stream_id"] as string;
    this.sessionId = start["session_id"] as string;
    this.turnId = (start["turn_id"] as string | undefined) ?? null;
  }

  /** Where its moves have brought it, null where it never moved. */
  get movedTo(): string | null {
    return this.sessionId === this.start["session_id"] ? null : this.sessionId;
  }

  /** Highest seq up to which every event is known safe on disk, -1 if none. */
  get durable(): number {
    return Math.min(this.synced, this.firstLost - 1);
  }

  /** Up to here a daemon is to have it, -1 if none: it was told that this is synced. */
  get attested(): number {
    return this.synced > this.deletedTo ? this.synced : -1;
  }

  /** Highest seq that a daemon has or will be given, now or by the next connection. */
  get due(): number {
    let seq = this.nextSeq - 1;
    if (this.forgoneTo === seq) seq = this.forgoneFrom - 1;
    while (this.refused.has(seq)) seq -= 1;
    return Math.max(seq, 0); // its Start goes before all else, if only in a Resume
  }

  /** These were dropped before any daemon is known to have them: none gets them any more. */
  forgo(firstSeq: number, lastSeq: number): void {
    this.lose(firstSeq, lastSeq);
    if (firstSeq > this.forgoneTo + 1) this.forgoneFrom = firstSeq;
    this.forgoneTo = Math.max(this.forgoneTo, lastSeq);
  }

  /**
   * The connection is gone. What a full ring dropped is held by nobody: only what is synced is known
   * to be there.
   */
  rewind(): void {
    this.lose(0, this.heldFrom - 1);
    this.taken = Math.min(this.heldFrom - 1, this.synced);
    if (this.heldFrom >= this.nextSeq && this.nextSeq > this.synced + 1) {
      this.forgo(this.synced + 1, this.nextSeq - 1);
    }
  }

  /** These were dropped, refused, or given up; what is known synced of them is safe. */
  lose(firstSeq: number, lastSeq: number): void {
    const first = Math.max(firstSeq, this.synced + 1);
    if (first <= lastSeq) this.firstLost = Math.min(this.firstLost, first);
  }

  /** No daemon has said a word to its Start. */
  get isUnheard(): boolean {
    return this.synced < 0 && !this.gone;
  }

  /** Nothing more is taken of it. */
  get isLate(): boolean {
    return this.terminal || this.gone;
  }

  /** Released and all of it acknowledged: nothing is left to do for it. */
  get isSettled(): boolean {
    if (!this.released) return false;
    let seq = this.synced;
    while (this.refused.has(seq + 1)) seq += 1; // no ack is due for what was refused
    return seq >= this.nextSeq - 1;
  }
}
