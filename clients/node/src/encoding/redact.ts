/**
 * Applies the application's `redact` to every text of a value before it leaves the process.
 *
 * Owns: finding the texts. Refuses: which values are redacted (`reply/reply.ts`, `session/session.ts`),
 * which texts of an entry are names (`nameFields.ts`).
 */

import { REASON_BYTES_MAX } from "../limits.ts";
import { NONE, isName, underKey, underList, type Names } from "./nameFields.ts";
import * as values from "./valueEncoding.ts";

export type Redact = (text: string) => string;

/** A text in JSON, and the colon behind it if it is a key. */
const LITERAL = /"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?/g;
/** The same, and where a list or an object begins and ends. */
const MARK = /"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?|[[\]{}]/g;

/**
 * `value` with every text in it changed by `redact`; keys stay. It is out of what JSON has, or
 * `values.plain` gives: of a Date its fields alone would be looked at, and a loop has no end.
 */
export function redacted(value: unknown, redact: Redact): unknown {
  if (typeof value === "string") return redact(value);
  if (Array.isArray(value)) return value.map((one) => redacted(one, redact));
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, redacted(one, redact)]));
}

/**
 * JSON text: each text in it as it is meant, then all of it as it is sent.
 *
 * A key with a newline is not found in its JSON, and `"password": "..."` in no text of its own.
 */
export function redactedJson(text: string, redact: Redact): string {
  try {
    JSON.parse(text);
  } catch {
    return redact(text); // not whole, or none
  }
  return redact(redactedTexts(text, redact));
}

/** JSON, each text in it changed; keys stay, and numbers as they are written. However deep it nests. */
function redactedTexts(json: string, redact: Redact): string {
  return json.replace(LITERAL, (literal, colon?: string) =>
    colon === undefined ? changed(literal, redact) : literal,
  );
}

/** The same of the payload of an entry: what it names stays. */
export function redactedPayload(json: string, redact: Redact, names: Names): string {
  const around: { names: Names; isList: boolean }[] = [];
  let next = names; // of the value that comes
  return json.replace(MARK, (mark, colon?: string) => {
    if (mark === "{" || mark === "[") {
      around.push({ names: next, isList: mark === "[" });
      next = mark === "[" ? underList(next) : NONE;
      return mark;
    }
    if (mark === "}" || mark === "]") {
      around.pop();
      const within = around.at(-1);
      next = within?.isList ? underList(within.names) : NONE;
      return mark;
    }
    if (colon === undefined) return isName(next) ? mark : changed(mark, redact);
    const key = JSON.parse(mark.slice(0, mark.length - colon.length)) as string;
    next = underKey(key, around.at(-1)!.names);
    return mark;
  });
}

function changed(literal: string, redact: Redact): string {
  const text = JSON.parse(literal) as string;
  const said = redact(text);
  return said === text ? literal : JSON.stringify(said);
}

/** Why something ended, in a length that fits; without it where `redact` fails: it ends. */
export function reasonOf(text: string | undefined, redact: Redact | undefined): string | null {
  if (text === undefined) return null;
  try {
    return values.clean(redact === undefined ? text : redact(text), REASON_BYTES_MAX);
  } catch {
    return null;
  }
}
