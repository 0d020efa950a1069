/**
 * Checks the arguments of calls that may wait or that begin something, before anything is sent.
 *
 * Owns: the kinds of arguments, and the errors that name the argument, what it takes and what came.
 * Refuses: what an entry may hold (the daemon says).
 */

import { inspect } from "node:util";

import { checkedId } from "./ids.ts";

type Check = (value: unknown, name: string) => unknown;

const KINDS = {
  id: checkedId,
  text: kind("a string", (value) => typeof value === "string"),
  bool: kind("true or false", (value) => typeof value === "boolean"),
  object: kind("an object", (value) => Object(value) === value && !Array.isArray(value)),
  list: kind("an array", Array.isArray),
  seq: kind("an integer from 0 to 9007199254740991", (value) => {
    return Number.isSafeInteger(value) && (value as number) >= 0;
  }),
  milliseconds: kind("a finite number of milliseconds, 1000000000000 at most", (value) => {
    return Number.isFinite(value) && Math.abs(value as number) <= 1e12;
  }),
} satisfies Record<string, Check>;

export type Kinds = Readonly<Record<string, keyof typeof KINDS>>;

/** Throws where one of these is there and of another kind. What is undefined was not given. */
export function checkArguments(given: object, kinds: Kinds): void {
  KINDS.object(given, "the argument of options");
  for (const [name, kind] of Object.entries(kinds)) {
    const value = (given as Record<string, unknown>)[name];
    if (value !== undefined) KINDS[kind](value, name);
  }
}

/** Throws where it is not there, too. */
export function checkArgument(value: unknown, name: string, kind: keyof typeof KINDS): void {
  KINDS[kind](value, name);
}

function kind(wanted: string, fits: (value: unknown) => boolean): Check {
  return (value, name) => {
    if (fits(value)) return value;
    const shown = inspect(value, { depth: 0, maxStringLength: 30, breakLength: Infinity });
    throw new TypeError(`${name} must be ${wanted}, got ${shown.slice(0, 80)}`);
  };
}
