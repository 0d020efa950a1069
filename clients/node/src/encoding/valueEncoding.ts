/**
 * Encodes the application's own values: info, meta, payload, detail, arguments and results.
 *
 * Owns: the promise that any value can be sent. Refuses: throwing. Values follow JSON.stringify: what
 * has a toJSON is what that gives, undefined and functions are left out (null in arrays). But bytes
 * stay bytes, and integers stay integers: a bigint within 64 bits, and a number beyond 32 bits such
 * as Date.now(), which would otherwise travel as a float. What fits nowhere is its String().
 */

import { decode, encode } from "@msgpack/msgpack";

import { INFO_BYTES_MAX } from "../limits.ts";
import { CycleFound, withoutCycles, type Trail } from "./cycleCheck.ts";
import * as wtf8 from "./wtf8.ts";

const DEPTH_MAX = 64;
const SHOWN_CHARS_MAX = 1024;
/** Deeper values are left as bytes: other programs of the same user may have sent them. */
const READ_DEPTH_MAX = 128;

/** `text` as msgpack can hold it: no lone surrogate, at most `bytesMax` bytes of UTF-8. */
export function clean(text: unknown, bytesMax: number): string {
  const safe = (typeof text === "string" ? text : shown(text)).toWellFormed();
  if (safe.length * 3 <= bytesMax) return safe;
  return wtf8.cut(Buffer.from(safe), bytesMax).toString();
}

/** Msgpack of `info` or `meta`; null where there is none. */
export function infoBytes(value: object | null | undefined): Uint8Array | null {
  return value === undefined || value === null || Object.keys(value).length === 0 ? null : valueBytes(value);
}

/** Msgpack of any value; of one that is too long, what it looks like and how long it is. */
export function valueBytes(value: unknown): Uint8Array {
  const encoded = packed(value);
  if (encoded.length <= INFO_BYTES_MAX) return encoded;
  const start = clean(jsonText(value).slice(0, SHOWN_CHARS_MAX), INFO_BYTES_MAX);
  return encode({ truncated_from: encoded.length, repr: start });
}

/** Msgpack of a value and 0, or of its encoding's beginning (as bin) and the true length. */
export function payloadBytes(value: unknown, bytesMax: number): [Uint8Array, number] {
  const encoded = packed(value);
  if (encoded.length <= bytesMax) return [encoded, 0];
  return [encode(encoded.slice(0, bytesMax - 5)), encoded.length];
}

/** JSON text of a value; a string is taken to be JSON text already. */
export function jsonText(value: unknown): string {
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value) ?? "null";
  } catch {
    // A loop, a bigint, a toJSON that throws: take it apart.
    return JSON.stringify(plain(value), (_key, one: unknown) =>
      typeof one === "bigint" ? String(one) : one,
    );
  }
}

/** What the application packed; the bytes themselves where they are no msgpack (cut ones). */
export function unpacked(bytes: Uint8Array | null): unknown {
  if (bytes === null) return null;
  try {
    return narrowed(decode(bytes, { useBigInt64: true }), 0);
  } catch {
    return bytes;
  }
}

function packed(value: unknown): Uint8Array {
  return encode(plain(value), { useBigInt64: true, maxDepth: DEPTH_MAX + 2 });
}

/** `value` out of nothing but what msgpack holds. */
export function plain(value: unknown): unknown {
  return withoutCycles((trail) => apart(value, 0, trail));
}

function apart(value: unknown, depth: number, trail: Trail): unknown {
  switch (typeof value) {
    case "string":
      return value.toWellFormed();
    case "boolean":
      return value;
    case "number":
      return Number.isSafeInteger(value) && Math.abs(value) > 0x7fffffff ? BigInt(value) : value;
    case "bigint":
      return value >= -(2n ** 63n) && value < 2n ** 64n ? value : String(value);
    case "object":
      break;
    default:
      return null;
  }
  if (value === null || value instanceof Uint8Array) return value;
  if (depth >= DEPTH_MAX) return kindOf(value);
  try {
    const { toJSON } = value as { toJSON?: (key: string) => unknown };
    const told = typeof toJSON === "function" ? toJSON.call(value, "") : value;
    if (typeof told !== "object" || told === null) return apart(told, depth + 1, trail);
    if (!trail.enters(value)) return kindOf(value);
    try {
      return told === value ? parts(value, depth + 1, trail) : apart(told, depth + 1, trail);
    } finally {
      trail.leaves(value);
    }
  } catch (error) {
    if (error instanceof CycleFound) throw error;
    return shown(value);
  }
}

/** What stands in an array or an object. */
function parts(value: object, depth: number, trail: Trail): unknown {
  if (Array.isArray(value)) return value.map((one) => apart(one, depth, trail));
  const fields: Record<string, unknown> = {};
  for (const [key, one] of Object.entries(value)) {
    if (one !== undefined && typeof one !== "function" && typeof one !== "symbol") {
      Object.defineProperty(fields, key.toWellFormed(), {
        value: apart(one, depth, trail), // as a property of its own, whatever its name is
        enumerable: true,
        configurable: true,
      });
    }
  }
  return fields;
}

/** Integers that fit a number as numbers. Throws where it nests too deep. */
function narrowed(value: unknown, depth: number): unknown {
  if (typeof value === "bigint") {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value;
  }
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return value;
  if (depth >= READ_DEPTH_MAX) throw new RangeError("too deep");
  if (Array.isArray(value)) return value.map((one) => narrowed(one, depth + 1));
  if (Object.getPrototypeOf(value) !== Object.prototype) return value; // an extension, a Date
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [key, narrowed(one, depth + 1)]),
  );
}

/** What stands for a part that is not taken apart. Not its String(), which takes an array apart. */
function kindOf(value: object): string {
  return Object.prototype.toString.call(value);
}

function shown(value: unknown): string {
  try {
    return String(value).slice(0, SHOWN_CHARS_MAX).toWellFormed();
  } catch {
    return `<${typeof value}>`;
  }
}
