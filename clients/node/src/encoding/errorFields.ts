/**
 * Turns whatever a program threw into the error of a reply.
 *
 * Owns: the error's kind and message. Refuses: throwing, whatever it is given.
 */

import { NAME_BYTES_MAX, REASON_BYTES_MAX } from "../limits.ts";
import type { Fields } from "../wire/codec.ts";
import * as values from "./valueEncoding.ts";

/** The fields of an AppError. */
export function errorFields(error: unknown, redact: (text: string) => string): Fields {
  let message = "";
  try {
    message = redact(error instanceof Error ? error.message : String(error));
  } catch {
    // The application's redact, or a String() that throws: its own exception must go on.
  }
  const kind = values.clean(errorName(error), NAME_BYTES_MAX);
  return { message: values.clean(message, REASON_BYTES_MAX), kind };
}

/** What kind of error it is. */
export function errorName(error: unknown): string {
  try {
    const name = (error as { name?: unknown } | null | undefined)?.name;
    return typeof name === "string" ? name : typeof error;
  } catch {
    return typeof error; // a getter of its own
  }
}
