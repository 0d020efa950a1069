/**
 * Answers without a daemon: yes, no or unknown, from the data directory alone.
 *
 * Owns: when "nothing there" is proven, and the path form of ids that FORMAT.md makes normative.
 * Refuses: reading a reply (`walld recover --data` does), locks, writing.
 *
 * The proof of "no": nobody listens, the WAL holds nothing but segment headers, one of which stands
 * behind the batch that LOCK calls synced, there is no partial, and quarantine/ holds nothing that
 * may have been of a reply. They are looked at in this order: a partial is synced before its segment
 * goes, so bytes that leave the WAL between two looks are seen in the second.
 */

import { createHash } from "node:crypto";
import { lstatSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const SEGMENT_HEADER_BYTES = 64;
const PREV_BATCH_NO_AT = 40;
/** Names in quarantine/: what is kept of a session's file, what was never finished, notes. */
const NO_REPLY = /^sessions\+|^\.|\.note$/;
const SAFE = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,95}$/;

/** True where connecting failed because there is no daemon, not because it is busy or closed. */
export function nobodyListens(error: unknown): boolean {
  const { code, syscall } = (error ?? {}) as NodeJS.ErrnoException;
  return syscall === "connect" && (code === "ENOENT" || code === "ECONNREFUSED");
}

/** Is something kept of this session, or (null) of any session of `uid`? null: cannot know. */
export function isKept(folder: string, uid: number, sessionId: string | null): boolean | null {
  const own = join(folder, "partials", String(uid));
  try {
    const syncedNo = syncedNoOf(join(folder, "LOCK"));
    const isEmpty = walIsEmpty(join(folder, "wal"), syncedNo);
    if (holdsSomething(sessionId === null ? own : join(own, pathName(sessionId)))) return true;
    return isEmpty && !tellsOfDamage(join(folder, "quarantine")) ? false : null;
  } catch {
    return null;
  }
}

/** The file name of a session or stream id. */
export function pathName(id: string): string {
  if (SAFE.test(id)) return id;
  return `h~${createHash("sha256").update(id, "utf8").digest("hex").slice(0, 40)}`;
}

/** The batch that LOCK names, 0 where there is none: a reader of the log checks its CRC. */
function syncedNoOf(lock: string): bigint {
  const found = /\nwritten\nsynced ([0-9]{20}) /.exec(contents(lock)?.toString("latin1") ?? "");
  return BigInt(found?.[1] ?? 0);
}

/**
 * Its segments hold nothing. A daemon always leaves one: where there is none it was taken, and where
 * none begins behind the batch that was synced that one was cut off.
 */
function walIsEmpty(wal: string, syncedNo: bigint): boolean {
  const entries = readdirSync(wal, { withFileTypes: true });
  const isEmpty = entries.every((entry) =>
    entry.isFile()
      ? lstatSync(join(wal, entry.name)).size <= SEGMENT_HEADER_BYTES
      : !entry.name.endsWith(".wal"),
  );
  const segments = entries.filter((entry) => entry.name.endsWith(".wal"));
  return isEmpty && segments.some((entry) => beginsBehind(join(wal, entry.name), syncedNo));
}

/** It has its header, and that says so: what was cut below it may have held anything. */
function beginsBehind(segment: string, syncedNo: bigint): boolean {
  const header = contents(segment);
  return header?.length === SEGMENT_HEADER_BYTES && header.readBigUInt64LE(PREV_BATCH_NO_AT) >= syncedNo;
}

/** Null where there is no such file. What is planted there is not followed or waited for. */
function contents(path: string): Buffer | null {
  return orIfAbsent(() => {
    if (!lstatSync(path).isFile()) throw new Error(`${path} is no regular file`);
    return readFileSync(path);
  }, null);
}

function tellsOfDamage(quarantine: string): boolean {
  return names(quarantine).some((name) => !NO_REPLY.test(name));
}

function holdsSomething(partials: string): boolean {
  return names(partials).length > 0;
}

/** None where there is no such directory. */
function names(directory: string): string[] {
  return orIfAbsent(() => readdirSync(directory), []);
}

function orIfAbsent<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return otherwise;
    throw error;
  }
}
