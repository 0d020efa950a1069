/**
 * Receipts of a client: what it was told of its sessions, to be shown to the next daemon.
 *
 * Owns: the last receipt of each session. Refuses: what one says, which the daemon alone knows; when it is
 * shown (`query.ts`).
 *
 * A batch at the end of a log can go without a trace. Who was told that it is synced lives, and knows.
 */

/** Of more, those that were appended to longest ago are forgotten. */
const SESSIONS_MAX = 4096;

/** Of one client, over all its connections. */
export class Receipts {
  private readonly bySession = new Map<string, Uint8Array>();
  /** Sessions whose receipt the daemon at hand did not give, and has not seen. */
  private unshown = new Set<string>();

  /** To a daemon that may be another one. */
  connected(): void {
    this.unshown = new Set(this.bySession.keys());
  }

  /** The newest of that session, from the daemon at hand. */
  keep(sessionId: string, receipt: Uint8Array): void {
    this.forget(sessionId);
    this.bySession.set(sessionId, Uint8Array.from(receipt)); // not the buffer that it came in
    if (this.bySession.size <= SESSIONS_MAX) return;
    for (const oldest of this.bySession.keys()) {
      this.forget(oldest);
      return;
    }
  }

  /** What the daemon at hand is to see, once, before it is asked about that session. */
  toShow(sessionId: string): Uint8Array | undefined {
    return this.unshown.delete(sessionId) ? this.bySession.get(sessionId) : undefined;
  }

  /** It could not be looked at: it is shown with the next request. */
  notSeen(sessionId: string): void {
    if (this.bySession.has(sessionId)) this.unshown.add(sessionId);
  }

  private forget(sessionId: string): void {
    this.bySession.delete(sessionId);
    this.unshown.delete(sessionId);
  }
}
