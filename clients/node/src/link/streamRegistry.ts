/**
 * Finds the streams of a link by number, by the application's id and by session.
 *
 * Owns: which streams are known, and when a stream is forgotten. Refuses: sending.
 *
 * A stream is forgotten once it is released and acknowledged. One that ended, is safe and was never
 * released stays known, so that `client.release(streamId)` finds it later; of those whose Reply
 * object is gone the latest ENDED_STREAMS_MAX stay.
 */

import { ENDED_STREAMS_MAX, SEEN_MAX } from "../limits.ts";
import type { Stream } from "./stream.ts";

export class StreamRegistry {
  readonly byNumber = new Map<number, Stream>();
  private readonly byId = new Map<string, Stream>();
  private readonly ended = new Set<Stream>();
  private forgottenEvents = 0;

  add(stream: Stream): void {
    this.byNumber.set(stream.number, stream);
    this.byId.set(stream.streamId, stream);
  }

  /** The latest stream of that id. */
  named(streamId: string): Stream | undefined {
    return this.byId.get(streamId);
  }

  /** No daemon has it: its id is again that of the one before, which may be released by it. */
  refused(stream: Stream): void {
    if (this.byId.get(stream.streamId) !== stream) return;
    for (const other of this.byNumber.values()) {
      if (other.streamId === stream.streamId && !other.gone) this.byId.set(stream.streamId, other);
    }
  }

  /** Forget it, or note that it may be forgotten, if it has come that far. */
  tidy(stream: Stream): void {
    if (!this.byNumber.has(stream.number)) return;
    if (stream.isSettled || (stream.gone && (stream.released || !stream.owned))) {
      this.forget(stream);
    } else if (stream.terminal && !stream.owned && stream.synced >= stream.nextSeq - 1) {
      this.ended.add(stream);
      if (this.ended.size > ENDED_STREAMS_MAX) {
        const [oldest] = this.ended;
        if (oldest !== undefined) this.forget(oldest);
      }
    }
  }

  /** Streams a request is about, the latest SEEN_MAX; of more, those that are not safe yet. */
  asked(sessionId: string | null, streamId: string | null): Stream[] {
    if (streamId !== null) {
      const stream = this.byId.get(streamId);
      return stream === undefined ? [] : [stream];
    }
    const all = [...this.byNumber.values()];
    // The messages of a turn's reply go to the session of the turn, wherever the reply has moved.
    const found = all.filter(
      (one) =>
        sessionId === null ||
        one.sessionId === sessionId ||
        (one.turnId !== null && one.start["session_id"] === sessionId),
    );
    if (found.length <= SEEN_MAX) return found;
    return found.filter((one) => one.synced < one.nextSeq - 1).slice(-SEEN_MAX);
  }

  /** All that are known of a session. */
  ofSession(sessionId: string): Stream[] {
    return [...this.byNumber.values()].filter((one) => one.sessionId === sessionId);
  }

  /** Ids of what has ended and is not released, in the order of their begin. */
  unreleased(sessionId: string | undefined): string[] {
    return [...this.byNumber.values()]
      .filter((one) => one.terminal && !one.released && !one.gone)
      .filter((one) => sessionId === undefined || one.sessionId === sessionId)
      .map((one) => one.streamId);
  }

  /** Events that were ever given a seq here. */
  get events(): number {
    let events = this.forgottenEvents;
    for (const stream of this.byNumber.values()) events += stream.nextSeq;
    return events;
  }

  private forget(stream: Stream): void {
    this.forgottenEvents += stream.nextSeq;
    this.byNumber.delete(stream.number);
    this.ended.delete(stream);
    if (this.byId.get(stream.streamId) === stream) this.byId.delete(stream.streamId);
  }
}
