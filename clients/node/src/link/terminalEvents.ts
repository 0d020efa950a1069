/**
 * A model's answer in a reply, as long as it is not whole: how the reply ends where it is left at that.
 *
 * Owns: what is known of the answer's end, and whether the program was told. Refuses: saying it
 * (`link.ts`, `reply.ts`), deciding that an answer is whole (the middleware does).
 *
 * Nothing of it is said while the answer may be asked for again. It holds no Reply: one that is
 * collected unended is abandoned, and must be collected for that.
 */

import { failureOf, nameOf } from "../encoding/errorFields.ts";
import * as opaque from "../encoding/valueEncoding.ts";
import { REASON_BYTES_MAX } from "../limits.ts";
import type { Fields } from "../wire/codec.ts";

const ABORTED = "cancelled: AbortError";

/** The terminal event of a reply that is not whole. */
export interface Ending {
  readonly name: "AppError" | "End";
  readonly fields: Fields;
}

/** What somebody threw: an error, or a cancel where it is an AbortError. */
export function endingOf(error: unknown, redact: (text: string) => string): Ending {
  if (nameOf(error) === "AbortError") return cancelled(ABORTED);
  return { name: "AppError", fields: failureOf(error, redact) };
}

function cancelled(reason: string): Ending {
  return { name: "End", fields: { clean: false, reason: opaque.clean(reason, REASON_BYTES_MAX) } };
}

export class Unfinished {
  private readonly redact: (text: string) => string;
  private known: Ending | undefined;
  private hasFailed = false;

  constructor(redact: ((text: string) => string) | undefined) {
    this.redact = redact ?? ((text) => text);
  }

  /** How it ended; undefined: it is under way, as far as is known. */
  get ending(): Ending | undefined {
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
    this.known = endingOf(error, this.redact);
  }

  /** The program has aborted it. A timeout is a failure; all else is its wish, whatever it gave as reason. */
  abort(reason: unknown): void {
    if (this.known !== undefined) return;
    this.hasFailed = true;
    const isTimeout = nameOf(reason) === "TimeoutError";
    this.known = isTimeout ? endingOf(reason, this.redact) : cancelled(ABORTED);
  }

  /** The program reads it no further. */
  cut(reason: string): void {
    if (!this.hasFailed) this.known = cancelled(reason);
  }
}
