/**
 * Chooses the terminal event of a reply that ends without a whole answer: an error or a cancel.
 *
 * Owns: what is known of an unfinished answer's end, and whether the program was told. Refuses: sending it
 * (`link.ts`, `reply/reply.ts`), deciding that an answer is whole (the middleware does).
 *
 * No terminal event is sent while the answer may be asked for again. It holds no Reply: one that is
 * collected unended is abandoned, and must be collected for that.
 */

import { errorFields, errorName } from "../encoding/errorFields.ts";
import * as values from "../encoding/valueEncoding.ts";
import { REASON_BYTES_MAX } from "../limits.ts";
import type { Fields } from "../wire/codec.ts";

const ABORTED = "cancelled: AbortError";

/** The terminal event of a reply that is not whole. */
export interface TerminalEvent {
  readonly name: "AppError" | "End";
  readonly fields: Fields;
}

/** What somebody threw: an error, or a cancel where it is an AbortError. */
export function terminalEventOf(error: unknown, redact: (text: string) => string): TerminalEvent {
  if (errorName(error) === "AbortError") return cancelled(ABORTED);
  return { name: "AppError", fields: errorFields(error, redact) };
}

function cancelled(reason: string): TerminalEvent {
  return { name: "End", fields: { clean: false, reason: values.clean(reason, REASON_BYTES_MAX) } };
}

export class UnfinishedAnswer {
  private readonly redact: (text: string) => string;
  private known: TerminalEvent | undefined;
  private hasFailed = false;

  constructor(redact: ((text: string) => string) | undefined) {
    this.redact = redact ?? ((text) => text);
  }

  /** How it ended; undefined: it is under way, as far as is known. */
  get ending(): TerminalEvent | undefined {
    return this.known;
  }

  /** It failed or was aborted, so `end()` cannot mean that it is whole. */
  get isFailed(): boolean {
    return this.hasFailed;
  }

  /** It failed, with what the program is thrown. What is known stands. */
  fail(error: unknown): void {
    if (this.hasFailed) return;
    this.hasFailed = true;
    this.known = terminalEventOf(error, this.redact);
  }

  /** The program has aborted it. A timeout is a failure; all else is its wish, whatever it gave as reason. */
  abort(reason: unknown): void {
    if (this.known !== undefined) return;
    this.hasFailed = true;
    const isTimeout = errorName(reason) === "TimeoutError";
    this.known = isTimeout ? terminalEventOf(reason, this.redact) : cancelled(ABORTED);
  }

  /** The program reads it no further. */
  cut(reason: string): void {
    if (!this.hasFailed) this.known = cancelled(reason);
  }
}
