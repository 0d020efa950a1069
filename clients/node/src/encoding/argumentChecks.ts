/**
 * Checks the arguments of calls that may wait or that begin something, before anything is sent.
 *
 * Owns: the kinds of arguments, and the errors that name the argument, what it takes and what came.
 * Refuses: what an entry may hold (the daemon says).
 */

import { inspect } from "node:util";

import { checkedId, idIn } from "./ids.ts";

type Check = (value: unknown, name: string) => unknown;

const objects = kind("an array of objects", (value) => Array.isArray(value) && value.every(isObject));
const KINDS = {
  id: checkedId,
  /** Of an entry, or what has the id of one: a turn, a call. */
  entry: idIn,
  text: kind("a string", (value) => typeof value === "string"),
  bool: kind("true or false", (value) => typeof value === "boolean"),
  object: kind("an object", isObject),
  list: kind("an array", Array.isArray),
  objects,
  /** A value of the application's own: whatever it is. */
  any: (value) => value,
  /** What names begin with; nothing is the beginning of all. */
  beginning: (value, name) => (value === "" ? value : checkedId(value, name)),
  /** Nothing is before the first entry. */
  place: (value, name) => (value === "" ? value : idIn(value, name)),
  count: kind("an integer from 1 to 9007199254740991", (value) => {
    return Number.isSafeInteger(value) && (value as number) >= 1;
  }),
  /** Of a process: below 0 a signal's, and Windows has 32 bits. */
  exitCode: kind("an integer from -2147483648 to 4294967295", (value) => {
    return Number.isSafeInteger(value) && (value as number) >= -(2 ** 31) && (value as number) < 2 ** 32;
  }),
  date: kind("a valid Date", (value) => value instanceof Date && value.getTime() >= 0),
  source: kind("bytes or a path", (value) => typeof value === "string" || value instanceof Uint8Array),
  sources: kind("an array of bytes, paths or objects", (value) => {
    return Array.isArray(value) && value.every((one) => typeof one === "string" || isObject(one));
  }),
  paths: kind("an array of paths", isPaths),
  fileHashes: kind("an array of paths, or an object", (value) => isPaths(value) || isObject(value)),
  pathOrObject: kind("a path or an object", (value) => typeof value === "string" || isObject(value)),
  functionOrObject: kind("an object or a function", (value) => typeof value === "function" || isObject(value)),
  present: kind("ids or a function", (value) => typeof value === "function" || isIds(value)),
  entryOrObjects: (value, name) => (Array.isArray(value) ? objects(value, name) : idIn(value, name)),
  seq: kind("an integer from 0 to 9007199254740991", (value) => {
    return Number.isSafeInteger(value) && (value as number) >= 0;
  }),
  milliseconds: kind("a finite number of milliseconds, 1000000000000 at most", (value) => {
    return Number.isFinite(value) && Math.abs(value as number) <= 1e12;
  }),
} satisfies Record<string, Check>;

/** What an argument may be: a kind, one of several words, or either of the two or null. */
export type KindName = keyof typeof KINDS;
export type Kind = KindName | `${KindName}?` | readonly string[];
export type Kinds = Readonly<Record<string, Kind>>;

/** Throws where one of these is there and of another kind. What is undefined was not given. */
export function checkArguments(given: object, kinds: Kinds): void {
  KINDS.object(given, "the argument of options");
  for (const [name, kind] of Object.entries(kinds)) {
    const value = (given as Record<string, unknown>)[name];
    if (value !== undefined) checkArgument(value, name, kind);
  }
}

/** Throws where it is not there, too. */
export function checkArgument(value: unknown, name: string, kind: Kind): void {
  if (typeof kind !== "string") {
    if (kind.includes(value as string)) return;
    throw new RangeError(`${name} must be one of ${kind.join(", ")}, got ${shown(value)}`);
  }
  if (value === null && kind.endsWith("?")) return;
  KINDS[kind.replace("?", "") as KindName](value, name);
}

/** Options that belong to some words of another argument: else they would be kept and mean nothing. */
export type OnlyWith = Readonly<Record<string, readonly [other: string, words: readonly string[]]>>;

interface Checked {
  given?: Kinds;
  options?: Kinds;
  onlyWith?: OnlyWith;
}

/** The same of a call: what it takes by place must be there, and an option it does not know is a mistake. */
export function checkCall(call: Checked, given: object, options: object = {}): void {
  for (const [name, kind] of Object.entries(call.given ?? {})) {
    checkArgument((given as Record<string, unknown>)[name], name, kind);
  }
  const known = call.options ?? {};
  checkArguments(options, known);
  checkWords(call.onlyWith ?? {}, { ...given, ...options });
  const other = Object.keys(options).find((name) => !Object.hasOwn(known, name));
  if (other === undefined) return;
  throw new TypeError(`there is no option ${other}, only ${Object.keys(known).join(", ") || "none"}`);
}

function checkWords(rules: OnlyWith, values: Record<string, unknown>): void {
  for (const [name, [other, words]] of Object.entries(rules)) {
    const word = values[other];
    if ((values[name] ?? null) === null || words.includes(word as string)) continue;
    throw new RangeError(`${name} is of ${other} ${words.join(" or ")}, got it with ${shown(word)}`);
  }
}

function kind(wanted: string, fits: (value: unknown) => boolean): Check {
  return (value, name) => {
    if (fits(value)) return value;
    throw new TypeError(`${name} must be ${wanted}, got ${shown(value)}`);
  };
}

function isObject(value: unknown): boolean {
  return Object(value) === value && !Array.isArray(value);
}

/** Ids that are none would be found in no turn, and what the store holds called missing. */
function isIds(value: unknown): boolean {
  const isListed = Array.isArray(value) || value instanceof Set;
  return isListed && [...value].every((one) => typeof one === "string");
}

function isPaths(value: unknown): boolean {
  return Array.isArray(value) && value.every((one) => typeof one === "string");
}

/** What a value looks like, in a few letters. */
export function shown(value: unknown): string {
  return inspect(value, { depth: 0, maxStringLength: 30, breakLength: Infinity }).slice(0, 80);
}
