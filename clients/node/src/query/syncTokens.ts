/**
 * Keeps the last sync token of each session, which a client shows to the next daemon. The wire calls it a
 * receipt (PROTOCOL.md, "Receipts").
 *
 * Owns: the last one of each session, and which log the agent's connection was told of. Refuses: the
 * content of one, which the daemon alone knows; when it is shown (`query.ts`).
 *
 * The end of a log can be lost without a trace. A client that was told it is synced can still prove it.
 */

/** Of more, those that were appended to longest ago are forgotten. */
const SESSIONS_MAX = 4096;
/** Tokens that begin alike are of one daemon: the greater is the later. */
const ONE_DAEMON_BYTES = 8;

/** Of one client, over all its connections. */
export class SyncTokens {
  /** The log that the last Ack named to the agent's connection; empty before one came. */
  readonly log: () => Uint8Array;
  private readonly bySession = new Map<string, Buffer>();

  constructor(log: () => Uint8Array = () => new Uint8Array(0)) {
    this.log = log;
  }

  /** The newest of that session: answers may overtake each other. */
  keep(sessionId: string, received: Uint8Array): void {
    const before = this.bySession.get(sessionId);
    let receipt: Buffer = Buffer.from(received); // not the buffer that it came in
    if (before !== undefined && isOfOneDaemon(before, receipt) && before.compare(receipt) > 0) receipt = before;
    this.bySession.delete(sessionId);
    this.bySession.set(sessionId, receipt);
    if (this.bySession.size <= SESSIONS_MAX) return;
    for (const oldest of this.bySession.keys()) {
      this.bySession.delete(oldest);
      return;
    }
  }

  /** Undefined: nothing of it was told, or too long ago. */
  of(sessionId: string): Uint8Array | undefined {
    return this.bySession.get(sessionId);
  }

  /** Of which there is one. */
  sessions(): Set<string> {
    return new Set(this.bySession.keys());
  }
}

function isOfOneDaemon(one: Buffer, other: Buffer): boolean {
  return one.subarray(0, ONE_DAEMON_BYTES).equals(other.subarray(0, ONE_DAEMON_BYTES));
}
