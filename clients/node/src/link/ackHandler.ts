/**
 * Handles the daemon's frames to an agent: acknowledgements, refusals, drains and errors.
 *
 * Owns: the meaning of Welcome, Ack, Refused, Drained and Error. Refuses: sockets.
 */

import { TEXT_BYTES_MAX } from "../limits.ts";
import { Unreadable, decodeBody } from "../wire/codec.ts";
import { Splitter } from "../wire/framing.ts";
import type { ToAgent } from "../wire/messages.ts";
import { LEVELS, type Level } from "./durability.ts";
import type { Stream } from "./stream.ts";
import type { StreamRegistry } from "./streamRegistry.ts";
import { warn } from "./warnings.ts";

const TO_AGENT = ["Welcome", "Ack", "Drained", "Refused", "Error"] as const;

/** What to do about a Start that is refused. Each of these is said, others once a code. */
const REMEDIES = new Map([
  [
    "stream_owned",
    "another reply of this streamId is not released: release it first (resolve it once its process is " +
      "gone), or give each reply an id of its own",
  ],
  [
    "stream_exists",
    "an earlier reply of this streamId is kept, and its process is gone: resolve it first, or give each " +
      "reply an id of its own",
  ],
]);

/** Somebody who waits until all that was sent so far is at `level`. */
export interface Drain {
  level: Level;
  done: (reached: boolean) => void;
}

export class AckHandler {
  /** What the next Hello attests. */
  log: Uint8Array = new Uint8Array(0);
  syncedNo = 0;
  textBytesMax = TEXT_BYTES_MAX;
  refusedEvents = 0;
  refusedReplies = 0;
  /** The daemon at the other end answered since the last `start`. */
  isWelcome = false;
  /** The code of an Error, after which the connection is of no use. */
  fatal = "";
  readonly drains = new Map<number, Drain>();
  private readonly registry: StreamRegistry;
  private splitter = new Splitter();
  private readonly toldCodes = new Set<string>();

  constructor(registry: StreamRegistry) {
    this.registry = registry;
  }

  /** A new connection: nothing was heard on it yet. */
  start(): void {
    this.splitter = new Splitter();
    this.isWelcome = false;
    this.fatal = "";
  }

  /** Bytes from the daemon. What cannot be understood sets `fatal`. */
  feed(received: Buffer): void {
    try {
      for (const body of this.splitter.feed(received)) {
        this.heard(decodeBody(body, TO_AGENT) as unknown as ToAgent);
      }
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      warn(`walld sent what this client cannot read, reconnecting: ${error.message}`);
      this.fatal = "unreadable";
    }
  }

  private heard(word: ToAgent): void {
    switch (word.is) {
      case "Ack":
        this.acked(word.log, word.synced_no, word.streams);
        break;
      case "Welcome":
        this.isWelcome = true;
        this.textBytesMax = Math.max(1024, word.text_bytes_max);
        break;
      case "Refused":
        this.refused(word.stream, word.seq, word.code, word.got, word.limit);
        break;
      case "Drained":
        this.drained(word.id, LEVELS.indexOf(word.level as Level));
        break;
      case "Error":
        this.fatal = word.code;
        warn(
          `walld ended the connection: ${word.message} ` +
            `(code ${word.code}, got ${word.got}, limit ${word.limit})`,
        );
    }
  }

  private acked(log: Uint8Array, syncedNo: number, streams: [number, number, number][]): void {
    if (Buffer.compare(log, this.log) !== 0) {
      this.log = Uint8Array.from(log); // what was received is one large buffer: keep none of it
      this.syncedNo = 0;
    }
    this.syncedNo = Math.max(this.syncedNo, syncedNo);
    for (const [number, , synced] of streams) {
      const stream = this.registry.byNumber.get(number);
      if (stream !== undefined && synced > stream.synced) {
        stream.synced = Math.min(synced, stream.nextSeq - 1);
        if (stream.terminal) this.registry.tidy(stream);
      }
    }
  }

  private refused(number: number, seq: number, code: string, got: string, limit: string): void {
    this.refusedEvents += 1;
    const stream = this.registry.byNumber.get(number);
    this.tell(stream, number, seq, `code ${code}, got ${got}, limit ${limit}`, code);
    if (number === 0) {
      this.drained(seq, -1); // not a stream: a Drain of a level this daemon does not have
      return;
    }
    if (stream === undefined) return;
    if (stream.refusal === undefined || seq === 0) stream.refusal = { code, got, limit };
    if (code !== "disk_full") stream.refused.add(seq); // another daemon may have room for it
    stream.lose(seq, seq);
    if (seq === 0 && !stream.gone) {
      this.refusedReplies += 1;
      stream.gone = true;
      this.registry.refused(stream);
    }
    this.registry.tidy(stream);
  }

  /** One line: which reply, why, and what to do. */
  private tell(stream: Stream | undefined, number: number, seq: number, sides: string, code: string): void {
    const remedy = seq === 0 && stream !== undefined ? REMEDIES.get(code) : undefined;
    if (remedy !== undefined) {
      if (stream!.gone) return;
      const { streamId, sessionId } = stream!;
      warn(`walld refused reply '${streamId}' of session '${sessionId}', nothing of it is kept: ${remedy} (${sides})`);
    } else if (!this.toldCodes.has(code)) {
      this.toldCodes.add(code);
      warn(
        `walld refused event ${seq} of reply '${stream?.streamId ?? number}' (${sides}); ` +
          "further refusals with this code are counted, not told",
      );
    }
  }

  private drained(id: number, rank: number): void {
    const drain = this.drains.get(id);
    this.drains.delete(id);
    drain?.done(rank >= LEVELS.indexOf(drain.level));
  }
}
