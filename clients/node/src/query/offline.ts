/**
 * Tells from the data directory, without a daemon, whether a session has unreleased replies: yes, no
 * or unknown.
 *
 * Owns: when "nothing there" is proven, and the path form of ids that FORMAT.md makes normative.
 * Refuses: reading a reply (`walld recover --data` does), locks, writing.
 *
 * The proof of "no": nobody listens, LOCK verifies, the WAL holds nothing but segment headers of the
 * log that LOCK names, one of which stands behind the batch that LOCK calls synced and none behind the
 * first that must be there, partials/ was not taken away and holds none, and quarantine/ holds nothing
 * that may have been of a reply. Of one session: its names are looked for in both forms, that of a disk
 * which does not look at case too. They are read in this order: a partial is synced before its segment goes,
 * so bytes that leave the WAL between two reads are seen in the second. A link in the place of a directory
 * is not followed: what belongs there may be anywhere.
 */

import { createHash } from "node:crypto";
import { existsSync, lstatSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const SEGMENT_HEADER_BYTES = 64;
/** What a segment's header begins with in this version: magic, version; and its length at 12. */
const MAGIC = "walldwal";
const VERSION = 1;
/** Bytes of a CRC-32, lowest bit first. */
const CRC_POLYNOMIAL = 0xedb88320;
const SEGMENT_NAME = /^[0-9]{20}\.wal$/;
const SEGMENT_ID_MAX = (1n << 63n) - 1n;
const BATCH_NO_MAX = (1n << 40n) - 1n;
/** Of an older version; behind those may stand some of a later record. */
const LOCK_BYTES_OLD = 128;
const LOCK_BYTES = 160;
const LOCK =
  /^walld ([12])\nepoch ([0-9]{1,20})\nlog ([0-9a-f]{32})\n(?:written\n(?:synced ([0-9]{20}) (?:first ([0-9]{20}) )?([0-9a-f]{8})\n)?(directories\n)?)? *$/;
/** Names in quarantine/: what is kept of a session's file, that all of them are gone, what was never finished, notes. */
const NO_REPLY = /^sessions(\+|$)|^\.|\.note$/;
/** Clients of that uid know of another log than this directory has. */
const OTHER_LOG = /^other-log\.([0-9]+)$/;
const SAFE = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,95}$/;

/** True where connecting failed because there is no daemon, not because it is busy or closed. */
export function nobodyListens(error: unknown): boolean {
  const { code, syscall } = (error ?? {}) as NodeJS.ErrnoException;
  return syscall === "connect" && (code === "ENOENT" || code === "ECONNREFUSED");
}

interface Lock {
  /** Null where there is no LOCK. */
  logUuid: string | null;
  /** 0 where it names no batch. */
  syncedNo: bigint;
  /** 0 where it does not say which is the first batch that must be there. */
  firstNo: bigint;
  /** `partials/` was there. */
  hadDirs: boolean;
  /** A disk that does not look at case has the directory, or had it. */
  isFolded: boolean;
}

/** Is something kept of this session, or (null) of any session of `uid`? null: cannot know. */
export function isKept(folder: string, uid: number, sessionId: string | null): boolean | null {
  const own = ["partials", String(uid)];
  try {
    const lock = lockOf(join(folder, "LOCK"));
    const isEmpty = lock !== null && walIsEmpty(join(folder, "wal"), lock);
    const isThere = holdsOf(folder, own, sessionId === null ? null : pathName(sessionId), lock);
    if (isThere !== false) return isThere;
    if (lock?.hadDirs && !existsSync(join(folder, "partials"))) return null;
    return isEmpty && !tellsOfDamage(join(folder, "quarantine"), uid) ? false : null;
  } catch {
    return null;
  }
}

/** The file name of a session or stream id. */
export function pathName(id: string): string {
  if (SAFE.test(id)) return id;
  return `h~${createHash("sha256").update(id, "utf8").digest("hex").slice(0, 40)}`;
}

/** The same name on a disk that does not look at case: `Chat-1` is `@chat-1` there. */
export function foldedName(name: string): string {
  return name.replace(/[A-Z]/g, (capital) => `@${capital.toLowerCase()}`);
}

/** What `isKept` says of partials alone. */
function holdsOf(folder: string, own: string[], session: string | null, lock: Lock | null): boolean | null {
  if (session === null) return holdsSomething(folder, own);
  const forms = [session, foldedName(session)];
  if (!lock?.isFolded) return forms.some((name) => holdsSomething(folder, [...own, name]));
  // By the names that are listed: asked for one, a disk that does not look at case gives another session's.
  const listed = holdsSomething(folder, own) ? names(join(folder, ...own)) : [];
  if (forms.some((name) => listed.includes(name) && holdsSomething(folder, [...own, name]))) return true;
  // A start that was killed had not renamed it yet: a build that did not know such disks may have put replies of both there.
  const isOther = (name: string) => name !== session && name !== name.toLowerCase() && name.toLowerCase() === session.toLowerCase();
  return listed.some(isOther) ? null : false;
}

/** What LOCK says; null where that does not verify, so that it may have named any batch. */
function lockOf(path: string): Lock | null {
  const raw = contents(path)?.subarray(0, LOCK_BYTES);
  if (raw === undefined) return { logUuid: null, syncedNo: 0n, firstNo: 0n, hadDirs: false, isFolded: false };
  const text = raw.toString("latin1");
  const found = LOCK.exec(text) ?? LOCK.exec(text.slice(0, LOCK_BYTES_OLD));
  if (found === null || ![LOCK_BYTES_OLD, LOCK_BYTES].includes(raw.length)) return null;
  const [, version, epoch, log, synced, first, crc, directories] = found;
  const told = { hadDirs: directories !== undefined, isFolded: version === "2" };
  if (crc === undefined) return { logUuid: log!, syncedNo: 0n, firstNo: 0n, ...told };
  const named = Buffer.concat([
    Buffer.from(log!, "hex"),
    Buffer.from((first === undefined ? "" : epoch!.padStart(20, "0")) + synced! + (first ?? ""), "latin1"),
  ]);
  if (Number.parseInt(crc, 16) !== crc32(named)) return null;
  return { logUuid: log!, syncedNo: BigInt(synced!), firstNo: BigInt(first ?? 0), ...told };
}

/**
 * Its segments hold nothing. A daemon always leaves one: where there is none it was taken, and where
 * none begins behind the batch that was synced that one was cut off. Only the newest can have been cut
 * short at its birth: a start renames the one that it finds.
 */
function walIsEmpty(wal: string, lock: Lock): boolean {
  checkDirectory(wal);
  const entries = readdirSync(wal, { withFileTypes: true }).filter((entry) => entry.name.endsWith(".wal"));
  if (!entries.every((entry) => entry.isFile() && SEGMENT_NAME.test(entry.name))) return false;
  const names = entries.map((entry) => entry.name).sort();
  const sizes = names.map((name) => lstatSync(join(wal, name)).size);
  if (sizes.some((size) => size > SEGMENT_HEADER_BYTES)) return false;
  if (sizes.slice(0, -1).some((size) => size < SEGMENT_HEADER_BYTES)) return false;
  return beginsBehind(names.map((name) => [BigInt(name.slice(0, 20)), contents(join(wal, name))]), lock);
}

/**
 * One of these headers says so, and each that verifies is of this log and of its segment. One that
 * does not is no header at all: what stood behind it would be there. And LOCK names no batch before
 * them that must be there still.
 */
function beginsBehind(starts: [bigint, Buffer | null][], { logUuid, syncedNo, firstNo }: Lock): boolean {
  let lastNo = -1n;
  for (const [segmentId, start] of starts) {
    if (start?.length !== SEGMENT_HEADER_BYTES || start.readUInt32LE(60) !== crc32(start.subarray(0, 60))) continue;
    const isRead = start.toString("latin1", 0, 8) === MAGIC && start.readUInt16LE(8) === VERSION;
    const ofLog = start.toString("hex", 16, 32);
    logUuid ??= ofLog;
    if (!isRead || start.readUInt32LE(12) !== SEGMENT_HEADER_BYTES) return false;
    if (ofLog !== logUuid || start.readBigUInt64LE(32) !== segmentId) return false;
    const beforeNo = start.readBigUInt64LE(40);
    if (segmentId > SEGMENT_ID_MAX || beforeNo > BATCH_NO_MAX) return false;
    if (beforeNo > lastNo) lastNo = beforeNo;
  }
  return lastNo >= syncedNo && (firstNo === 0n || lastNo < firstNo);
}

function crc32(bytes: Buffer): number {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
  }
  return ~crc >>> 0;
}

/** Null where there is no such file. What is planted there is not followed or waited for. */
function contents(path: string): Buffer | null {
  return orIfAbsent(() => {
    if (!lstatSync(path).isFile()) throw new Error(`${path} is no regular file`);
    return readFileSync(path);
  }, null);
}

/** Something there may be of a reply of `uid`; what clients of others know of is not. */
function tellsOfDamage(quarantine: string, uid: number): boolean {
  return names(quarantine).some((name) => {
    const other = OTHER_LOG.exec(name);
    return other === null ? !NO_REPLY.test(name) : other[1] === String(uid);
  });
}

/** The innermost of these directories does; each must be one, as far as they are there. */
function holdsSomething(folder: string, inside: string[]): boolean {
  const kept = inside.map((_, at) => names(join(folder, ...inside.slice(0, at + 1))));
  return kept[kept.length - 1]!.length > 0;
}

/** None where nothing has that name. A link to a directory is not followed. */
function names(directory: string): string[] {
  return orIfAbsent(() => {
    checkDirectory(directory);
    return readdirSync(directory);
  }, []);
}

function checkDirectory(path: string): void {
  if (!lstatSync(path).isDirectory()) throw new Error(`${path} is no directory`);
}

function orIfAbsent<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return otherwise;
    throw error;
  }
}
