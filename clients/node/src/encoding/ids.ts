/**
 * Checks ids, and makes a new one where the application gives none.
 *
 * Owns: what an id may be, and what is taken for one. Refuses: the path of one (`query/offline.ts`), meaning.
 *
 * A wrong id is the one thing a sending call throws for: it would hide a reply for ever, and it is
 * the program's mistake, not the daemon's.
 */

import { randomBytes } from "node:crypto";

import { ID_BYTES_MAX } from "../limits.ts";

/** `id` itself. Throws naming the field, what it got and the limit. */
export function checkedId(id: unknown, field: string): string {
  if (typeof id !== "string") throw new TypeError(`${field} must be a string, got ${typeof id}`);
  if (!id.isWellFormed()) throw new RangeError(`${field} holds a lone surrogate, no id may`);
  const length = Buffer.byteLength(id);
  if (length < 1 || length > ID_BYTES_MAX) {
    throw new RangeError(`${field} is ${length} bytes of UTF-8, must be 1 to ${ID_BYTES_MAX}`);
  }
  return id;
}

/** Where an entry stands in its session: taken wherever its id is. isNew: false where it was there already. */
export interface Entry {
  id: string;
  seq: number;
  isNew: boolean;
}

/** An entry, by itself or by its id. */
export type EntryId = string | Entry;

/** The id that was given, or that of the entry. */
export function idOf(given: EntryId): string;
export function idOf(given: EntryId | undefined): string | undefined;
export function idOf(given: EntryId | undefined): string | undefined {
  return typeof given === "object" ? given.id : given;
}

/** The same. Throws as `checkedId`. */
export function idIn(given: unknown, field: string): string {
  return checkedId(isEntry(given) ? given.id : given, field);
}

export function isEntry(given: unknown): given is Entry {
  return typeof given === "object" && given !== null && "id" in given && "seq" in given;
}

/** 32 hex digits: 12 of wall clock in milliseconds, so that ids sort by age, then random. */
export function newStreamId(): string {
  return Date.now().toString(16).padStart(12, "0") + randomBytes(10).toString("hex");
}

const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

/** 16 characters of a-z and 2-7: enough chance that no session draws one twice. */
export function newEntryId(): string {
  return Array.from(randomBytes(16), (byte) => BASE32[byte & 31]).join("");
}
