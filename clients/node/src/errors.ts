/**
 * The exceptions that a request can throw.
 *
 *     WalldError
 *     +-- Unavailable    walld cannot answer now: no daemon, no answer in time, still recovering
 *     |   +-- NotDurable   a submit of which nobody knows yet whether it survives
 *     +-- Refused        walld understood and says no (code, got, limit)
 *         +-- Unsupported  it is of a build that does not know what was asked (verb, version)
 *
 * Sending throws none: it never throws for the daemon's sake. Misuse is TypeError or RangeError.
 */

/** Base of what the client throws for the world's sake. */
export class WalldError extends Error {
  override name = "WalldError";
}

/** There is no answer, which is not the answer "nothing there". */
export class Unavailable extends WalldError {
  override name = "Unavailable";
}

/**
 * A submit was not known to be synced in time. It may have been taken and may become durable.
 *
 * Submitting again with the same `messageId` and content gives the first turn where there is one,
 * so it is safe.
 */
export class NotDurable extends Unavailable {
  override name = "NotDurable";
  readonly sessionId: string;
  readonly turnId: string;
  readonly messageId: string;

  constructor(sessionId: string, turnId: string, messageId: string, waitedMs: number, cause: Error) {
    super(
      `turn '${turnId}' of session '${sessionId}' is not known to be durable after ` +
        `${waitedMs} ms: ${cause.message}; submit it again with messageId '${messageId}'`,
      { cause },
    );
    this.sessionId = sessionId;
    this.turnId = turnId;
    this.messageId = messageId;
  }
}

/** Codes that say nothing of what was asked: they are of the moment, or of the session. */
const PASSING = ["recovering", "behind", "ledger_full", "disk_full", "unreadable", "internal", "unwritable"];

/** Asked again it may be done: it says nothing of what was asked. */
export function isPassing(error: unknown): error is Unavailable | Refused {
  return error instanceof Unavailable || (error instanceof Refused && PASSING.includes(error.code));
}

/** The daemon will not do it: `code` names why, `got` and `limit` are the two sides. */
export class Refused extends WalldError {
  override name = "Refused";
  readonly code: string;
  readonly got: string;
  readonly limit: string;

  constructor(code: string, got: string, limit: string, message = "") {
    const both = got || limit ? `, got ${got}, limit ${limit}` : "";
    super(`${message || code} (code ${code}${both})`);
    this.code = code;
    this.got = got;
    this.limit = limit;
  }
}

/**
 * The daemon is of a build that does not know what was asked, and nothing was done. `verb` is the request, and the
 * view where it is Project; `version` is that of the daemon.
 */
export class Unsupported extends Refused {
  override name = "Unsupported";
  readonly verb: string;
  readonly version: string;

  constructor(verb: string, version: string, code = "bad_request", got = "", limit = "") {
    super(code, got, limit, `walld ${version} does not know ${verb}: update the older of client and daemon`);
    this.verb = verb;
    this.version = version;
  }
}
