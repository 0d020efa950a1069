/**
 * Artifacts: content too long for an event, stored by its SHA-256.
 *
 * Owns: uploading in pieces, reading back. Refuses: what takes their place in a payload (`truncation.ts`), where
 * they are kept (the daemon's).
 */

import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { basename } from "node:path";
import { isDeepStrictEqual } from "node:util";

import * as wtf8 from "../encoding/wtf8.ts";
import { Refused, Unavailable } from "../errors.ts";
import { ARTIFACT_CHUNK_BYTES } from "../limits.ts";
import { decodeAnswer, type Fields } from "../wire/codec.ts";
import type { MessageName } from "../wire/messages.ts";
import type { Source } from "./entries.ts";
import { CALLS, JSON_TYPE, OF_A_CALL, heldOf, isObject, namedIn, previewOf } from "./truncation.ts";

const OFFSET_TRIES = 16;
const DIGEST = /^[0-9a-f]{64}$/i;
const LOST = ["artifact_missing", "artifact_changed"];

/** Who asks about one session. */
export interface AsksOfSession {
  ask(name: MessageName, fields: Fields): Promise<Uint8Array>;
}

/** The bytes of an artifact, read a piece at a time. */
interface Pieces {
  size: number;
  digest: Uint8Array;
  piece(offset: number): Promise<Uint8Array> | Uint8Array;
}

/** What names an artifact. */
export interface Described {
  sha256: string;
  size: number;
  media_type: string;
  name?: string;
  preview?: string;
}

/** Put bytes, or the file of that path, beside the session. */
export async function upload(
  session: AsksOfSession,
  source: Source,
  mediaType = "application/octet-stream",
  name: string | undefined = typeof source === "string" ? basename(source) : undefined,
): Promise<Described> {
  const pieces = typeof source === "string" ? await fileOf(source) : heldIn(source);
  await put(session, pieces);
  const described: Described = {
    sha256: Buffer.from(pieces.digest).toString("hex"),
    size: pieces.size,
    media_type: mediaType,
  };
  if (name !== undefined) described.name = name.toWellFormed();
  if (mediaType.startsWith("text/") || mediaType === JSON_TYPE) {
    described.preview = previewOf(await pieces.piece(0));
  }
  return described;
}

/** Put these bytes beside the session. */
export function putBeside(session: AsksOfSession, held: Uint8Array): Promise<void> {
  return put(session, heldIn(held));
}

/** The artifact's bytes, verified by the daemon; sessionId: where it is beside another session. */
export async function read(session: AsksOfSession, sha256: string, sessionId?: string): Promise<Uint8Array> {
  if (!DIGEST.test(sha256)) throw new RangeError(`sha256 is '${sha256.slice(0, 80)}', must be 64 hex digits`);
  const where = sessionId === undefined ? {} : { session_id: sessionId };
  const answer = await session.ask("GetArtifact", { sha256: Buffer.from(sha256, "hex"), ...where });
  return decodeAnswer(answer, "bin") as Uint8Array;
}

/** Is content, as JSON has it, what an entry has as `known`, itself or by the artifact that stands for it? */
export async function isSame(session: AsksOfSession, content: unknown, known: unknown): Promise<boolean> {
  if (isDeepStrictEqual(content, known)) return true;
  const named = namedIn(known);
  if (named === undefined) return false;
  const [held, kind] = heldOf(content);
  if (named["media_type"] !== kind) return false;
  if (named["sha256"] === createHash("sha256").update(held).digest("hex")) return true;
  if (kind !== JSON_TYPE) return false; // only JSON says the same value in many ways
  const found: Record<string, unknown> = { known };
  await resolve(session, found, ["known"]);
  return isDeepStrictEqual(content, found["known"]);
}

/**
 * A message with what of it was put beside the session: its content, its calls and results. What only looks so is
 * the application's own. Where an artifact is lost the rest is not: the message says so in `_artifact_lost`.
 */
export async function resolved(
  session: AsksOfSession,
  message: Record<string, unknown>,
): Promise<Record<string, unknown>> {
  const whole = { ...message };
  let lost = await resolve(session, whole, ["content", ...CALLS]);
  for (const name of CALLS) {
    const calls = whole[name];
    if (!Array.isArray(calls)) continue;
    const copies = calls.map((one) => (isObject(one) ? { ...one } : one));
    whole[name] = copies;
    for (const call of copies.filter(isObject)) lost = (await resolve(session, call, OF_A_CALL)) ?? lost;
  }
  return lost === undefined ? whole : { ...whole, _artifact_lost: lost };
}

/** The same of a transcript: its messages, and the tools of each turn. */
export async function resolvedTurns(session: AsksOfSession, turns: unknown): Promise<unknown> {
  for (const turn of turns as Record<string, Record<string, unknown>[] | undefined>[]) {
    for (const said of turn["messages"] ?? []) {
      for (const name of ["message", "edited"]) {
        if (isObject(said[name])) said[name] = await resolved(session, said[name]);
      }
    }
    for (const tool of turn["tools"] ?? []) {
      const observations = { ...((tool["observations"] ?? []) as unknown[]) } as Record<string, unknown>;
      let lost = await resolve(session, observations, Object.keys(observations));
      tool["observations"] = Object.values(observations);
      lost = (await resolve(session, tool, OF_A_CALL)) ?? lost;
      if (lost !== undefined) tool["_artifact_lost"] = lost;
    }
  }
  return turns;
}

/** Fields that an artifact stands for get what it holds. Why one is lost. */
async function resolve(
  session: AsksOfSession,
  holder: Record<string, unknown>,
  names: readonly string[],
): Promise<string | undefined> {
  let lost: string | undefined;
  for (const name of names) {
    const named = namedIn(holder[name]);
    const sha256 = named?.["sha256"];
    if (named === undefined || typeof sha256 !== "string" || !DIGEST.test(sha256)) continue;
    try {
      // What a sub-agent said last stands beside its own session.
      const where = named["session"];
      const text = wtf8.decode(await read(session, sha256, typeof where === "string" ? where : undefined));
      holder[name] = named["media_type"] === JSON_TYPE ? JSON.parse(text) : text;
    } catch (error) {
      if (error instanceof SyntaxError) continue; // no JSON, though it was called that
      if (!(error instanceof Refused) || !LOST.includes(error.code)) throw error;
      lost = error.code;
    }
  }
  return lost;
}

/**
 * All of it. Others who send the same bytes make one upload with this: each goes on from where it is, and only
 * refusals in a row that lead back are too many.
 */
async function put(session: AsksOfSession, source: Pieces): Promise<void> {
  let [offset, tries] = [0, OFFSET_TRIES];
  for (;;) {
    const chunk = await source.piece(offset);
    if (chunk.length === 0 && source.size > offset) {
      throw new RangeError(`the file became shorter while it was read: ${offset} bytes`);
    }
    let isWhole: boolean;
    try {
      const fields = { sha256: source.digest, size: source.size, offset, chunk };
      isWhole = decodeAnswer(await session.ask("PutArtifact", fields), "bool") as boolean;
    } catch (error) {
      // A piece whose answer was lost, or another who sends the same.
      if (!(error instanceof Refused) || error.code !== "artifact_offset" || !/^[0-9]+$/.test(error.limit)) throw error;
      const at = offset;
      offset = Number(error.limit);
      tries = offset <= at ? tries - 1 : OFFSET_TRIES;
      if (tries === 0) throw error;
      continue;
    }
    [offset, tries] = [offset + chunk.length, OFFSET_TRIES];
    if (isWhole) return;
    if (offset >= source.size) {
      throw new Unavailable(`walld took all ${offset} bytes of an artifact and has it not whole`);
    }
  }
}

function heldIn(held: Uint8Array): Pieces {
  return {
    size: held.length,
    digest: createHash("sha256").update(held).digest(),
    piece: (offset) => held.subarray(offset, offset + ARTIFACT_CHUNK_BYTES),
  };
}

/** A file of the application's, read twice: once for its hash. One that changes is refused. */
async function fileOf(path: string): Promise<Pieces> {
  const hash = createHash("sha256");
  let size = 0;
  await withFile(path, async (file) => {
    for (;;) {
      const chunk = await pieceOf(file, size, ARTIFACT_CHUNK_BYTES);
      if (chunk.length === 0) return;
      hash.update(chunk);
      size += chunk.length;
    }
  });
  const piece = (offset: number): Promise<Uint8Array> => {
    const bytesMax = Math.min(ARTIFACT_CHUNK_BYTES, Math.max(size - offset, 0));
    return withFile(path, (file) => pieceOf(file, offset, bytesMax));
  };
  return { size, digest: hash.digest(), piece };
}

async function pieceOf(file: FileHandle, offset: number, bytesMax: number): Promise<Uint8Array> {
  const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(bytesMax), 0, bytesMax, offset);
  return buffer.subarray(0, bytesRead);
}

/**
 * The file, read. RangeError where it is none: a pipe would be waited for, a device read to an end that it has not;
 * neither gives the same bytes twice.
 */
async function withFile<T>(path: string, work: (file: FileHandle) => Promise<T>): Promise<T> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if ((await file.stat()).isFile()) return await work(file);
    throw new RangeError(`'${path}' is no file: an artifact is bytes or a regular file`);
  } finally {
    await file.close();
  }
}
