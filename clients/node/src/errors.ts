/**
 * The exceptions that a request can throw.
 *
 *     WalldError
 *     +-- Unavailable    walld cannot answer now: no daemon, no answer in time, still recovering
 *     |   +-- NotDurable   a submit or resume of which nobody knows yet whether it survives
 *     +-- Blocked        the work must not go on yet (status, reasons, calls)
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
 * A submit or a resume was not known to be synced in time. It may have been taken and may become durable.
 *
 * Submitting again with the same `messageId` and content gives the first turn where there is one,
 * so it is safe. A retry of a turn is looked for with `session.turn(turnId)` instead. Of a resume, this
 * process resumes again: it is given that turn where it was taken.
 */
export class NotDurable extends Unavailable {
  override name = "NotDurable";
  readonly sessionId: string;
  readonly turnId: string;
  readonly messageId: string;

  constructor(
    sessionId: string,
    turnId: string,
    messageId: string,
    waitedMs: number,
    cause: Error,
    asked: "submit" | "retry" | "claim" = "submit",
  ) {
    const remedy = {
      submit: `submit it again with messageId '${messageId}'`,
      retry: `look for it with session.turn('${turnId}') before another retry`,
      claim: "call resume() again: where it was taken, that gives it",
    }[asked];
    super(
      `turn '${turnId}' of session '${sessionId}' is not known to be durable after ` +
        `${waitedMs} ms: ${cause.message}; ${remedy}`,
      { cause },
    );
    this.sessionId = sessionId;
    this.turnId = turnId;
    this.messageId = messageId;
  }
}

/**
 * The resume gate does not let the work go on; nothing was done.
 *
 * status: "blocked", or "check": somebody has to look first. reasons, calls: as `resumeCheck` gives them; of
 * "check" without those that the caller has answered.
 */
export class Blocked extends WalldError {
  override name = "Blocked";
  readonly status: "blocked" | "check";
  readonly reasons: Record<string, unknown>[];
  readonly calls: Record<string, unknown>[];

  constructor(status: "blocked" | "check", reasons: Record<string, unknown>[], calls: Record<string, unknown>[]) {
    super(`${status}: ${reasons.map((one) => String(one["message"])).join("; ")}`);
    this.status = status;
    this.reasons = reasons;
    this.calls = calls;
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
