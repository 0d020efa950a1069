/**
 * Hashes the tools of a request, as the Python client does: by it two calls of a model are seen to have had the same.
 *
 * Owns: the one form of a JSON value that is hashed. Refuses: what a tool is.
 *
 * The form is Python's: keys in the order of their code points, no spaces, characters as they are, and of a number
 * below 0.0001 an exponent of two digits.
 */

import { createHash } from "node:crypto";

import { shown } from "./argumentChecks.ts";
import * as wtf8 from "./wtf8.ts";

/**
 * SHA-256, in hex digits, of the tools as a request has them, by what `JSON.stringify` makes of them. The order of the
 * tools counts, that of the keys does not. Throws TypeError or RangeError for what is no JSON.
 */
export function toolsHash(tools: unknown): string {
  const json = JSON.stringify(tools, (key, value: unknown) => {
    if (typeof value !== "number" || Number.isFinite(value)) return value;
    throw new RangeError(`${key || "tools"} must be a finite number to be JSON, got ${value}`);
  }) as string | undefined;
  if (json === undefined) throw new TypeError(`tools must be what JSON can hold, got ${shown(tools)}`);
  return createHash("sha256").update(wtf8.encode(form(JSON.parse(json)))).digest("hex");
}

function form(value: unknown): string {
  if (typeof value === "string") return quoted(value);
  if (typeof value === "number") return numeral(value);
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return `[${value.map(form).join(",")}]`;
  const fields = Object.entries(value).map(([key, one]) => ({ key: wtf8.encode(key), text: `${quoted(key)}:${form(one)}` }));
  fields.sort((one, other) => Buffer.compare(one.key, other.key)); // bytes of UTF-8 are in the order of code points
  return `{${fields.map((one) => one.text).join(",")}}`;
}

/** JSON.stringify, but half a character stands as it is. */
function quoted(text: string): string {
  const pieces = text.split(/(\p{Surrogate})/u);
  return `"${pieces.map((piece, at) => (at % 2 === 1 ? piece : JSON.stringify(piece).slice(1, -1))).join("")}"`;
}

function numeral(value: number): string {
  if (value === 0 || Math.abs(value) >= 1e-4) return JSON.stringify(value);
  return value.toExponential().replace(/-(\d)$/, "-0$1");
}
