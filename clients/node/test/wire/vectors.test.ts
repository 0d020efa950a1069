/** The wire: every vector of clients/vectors, the tables of PROTOCOL.md, and a real daemon's answers. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";

import { bytesOf as heldBytes, heldText } from "#dist/link/eventFrames.js";
import { Stream } from "#dist/link/stream.js";
import { Unreadable, decodeAnswer, decodeBody, encodeBody } from "#dist/wire/codec.js";
import { FRAME_BYTES_MAX, Splitter, encodeFrame } from "#dist/wire/framing.js";
import { INNER, TAGGED, type MessageName } from "#dist/wire/messages.js";
import * as wtf8 from "#dist/encoding/wtf8.js";

import { Daemon, PACKAGE, until } from "../support/daemon.js";

interface Part {
  hex?: string;
  times?: number;
  parts?: (string | Part)[];
}
interface Vector extends Part {
  name: string;
  message: MessageName;
  fields: Record<string, unknown>;
  canonical: boolean;
}
interface Case extends Part {
  name: string;
  role: "agent" | "query" | null;
  before: Part[] | string[];
  answer: Record<string, unknown>;
  closes: boolean;
}

const clients = join(PACKAGE, "..");
const documentOf = (name: string) => JSON.parse(readFileSync(join(clients, "vectors", name), "utf8"));
const { frames, texts } = documentOf("frames.json") as {
  frames: Vector[];
  texts: { name: string; pieces: string[]; shown: string }[];
};
const { cases } = documentOf("malformed.json") as { cases: Case[] };
const ALL = Object.keys(TAGGED) as MessageName[];

function bytesOf(vector: Part | string): Buffer {
  if (typeof vector === "string") return Buffer.from(vector, "hex");
  if (vector.parts !== undefined) return Buffer.concat(vector.parts.map(bytesOf));
  const once = Buffer.from(vector.hex!, "hex");
  return vector.times === undefined ? once : Buffer.concat(Array(vector.times).fill(once));
}

/** What a vector's field stands for. */
function meant(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(meant);
  if (typeof value !== "object" || value === null) return value;
  if ("message" in value && "fields" in value) {
    const fields = (value as unknown as Vector).fields;
    return Object.fromEntries(Object.entries(fields).map(([name, one]) => [name, meant(one)]));
  }
  if ("text" in value) assert.deepEqual(wtf8.encode(value.text as string), bytesOf(value as Part));
  return bytesOf(value as Part);
}

/** As `meant` has it: bytes are Buffers. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return Buffer.from(value);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, plain(one)]));
}

test("every frame reads as its fields, and is written as it stands", () => {
  assert.equal(new Set(frames.map((one) => one.message)).size, ALL.length);
  for (const vector of frames) {
    const frame = bytesOf(vector);
    const [body, ...others] = new Splitter().feed(frame);
    assert.equal(others.length, 0);
    const { is, ...read } = decodeBody(body!, ALL);
    const fields = meant({ message: vector.message, fields: vector.fields }) as Record<string, unknown>;
    assert.equal(is, vector.message, vector.name);
    assert.deepEqual(plain(read), fields, vector.name);
    assert.equal(encodeFrame(vector.message, fields).equals(frame), vector.canonical, vector.name);
  }
});

test("every frame is read whole however it arrives", () => {
  const all = frames.filter((one) => one.parts === undefined).map(bytesOf);
  const stream = Buffer.concat(all);
  for (const size of [1, 7, 4096, stream.length]) {
    const splitter = new Splitter();
    const bodies: Buffer[] = [];
    for (let at = 0; at < stream.length; at += size) {
      bodies.push(...splitter.feed(stream.subarray(at, at + size)));
    }
    assert.deepEqual(bodies, all.map((frame) => frame.subarray(4)));
  }
  const long = Buffer.alloc(4);
  long.writeUInt32BE(FRAME_BYTES_MAX + 1, 0);
  assert.throws(() => new Splitter().feed(long), Unreadable);
});

test("pieces of text join", () => {
  for (const { name, pieces, shown } of texts) {
    assert.equal(wtf8.decode(bytesOf({ parts: pieces })).toWellFormed(), shown, name);
  }
  for (const text of ["", "plain", "ü€\u{1f600}", "\ud83d", "\udc00\ud83dx", "a\ud83d\u{1f600}\udfff€"]) {
    assert.equal(wtf8.decode(wtf8.encode(text)), text);
    assert.equal(wtf8.encode(text).length, Buffer.byteLength(text));
  }
  assert.equal(wtf8.decode(Buffer.from("ff41eda0", "hex")), "\ufffdA\ufffd\ufffd");
  assert.deepEqual(wtf8.cut(Buffer.from("aü€"), 5), Buffer.from("aü"));
});

test("text frames written by hand are ordinary ones", () => {
  const stream = new Stream(2 ** 32 - 1, {});
  const few = ["", "ü", "plain", "ab\u{1f600}€c", "x".repeat(64), "€".repeat(64), "x".repeat(65), `${"x".repeat(63)}\u{1f600}`];
  for (const text of [...few, "x".repeat(65_535), "x".repeat(65_536)]) {
    for (const given of [text, Buffer.from(text)]) {
      const frame = heldBytes(heldText(stream, 4, 7, given));
      heldText(stream, 3, 1, "the next one leaves it alone");
      assert.equal(frame.readUInt32BE(0), frame.length - 4);
      const read = decodeBody(frame.subarray(4), ALL);
      assert.deepEqual(plain(read), {
        is: "Reasoning", stream: 2 ** 32 - 1, seq: 7, text: Buffer.from(text), info: null,
      });
    }
  }
});

test("integers travel as integers, and none is rounded", () => {
  const at = Date.now();
  const frame = encodeFrame("Start", { stream: 1, seq: 0, stream_id: "a", session_id: "b", at_ms: at });
  assert.equal(frame[frame.length - 10], 0xcf, "uint64, no float");
  const beyond = Buffer.from("9523c403414243cf0020000000000000", "hex"); // 2^53 where a number may be
  assert.throws(() => decodeBody(beyond, ["Error"]), Unreadable);
  assert.throws(() => decodeAnswer(Buffer.from("91cf0020000000000000", "hex"), "[int]"), Unreadable);
  assert.deepEqual(decodeAnswer(Buffer.from("91cf001fffffffffffff", "hex"), "[int]"), [2 ** 53 - 1]);
  assert.throws(() => encodeBody("Drain", { id: 1.5, level: "x" }), TypeError);
  assert.throws(() => encodeBody("Drain", { id: 1 }), TypeError);
});

test("the tables are those of PROTOCOL.md", () => {
  const protocol = readFileSync(join(clients, "PROTOCOL.md"), "utf8");
  const rows = [...protocol.matchAll(/^\|(.+)\|$/gm)].map((row) =>
    row[1]!.split("|").map((cell) => cell.trim()),
  );
  for (const [name, [tag, fields]] of Object.entries(TAGGED)) {
    const row = rows.find((one) => one[0] === String(tag) && one[1] === name);
    assert.equal(row?.[2], fields, name);
  }
  for (const [name, fields] of Object.entries(INNER)) {
    assert.equal(rows.find((one) => one[0] === name)?.[1], fields, name);
  }
  const told = rows.filter((row) => /^\d+$/.test(row[0]!)).length;
  assert.equal(told, ALL.length, "a message that this client has no table of");
});

test("no bytes break the reader", () => {
  let seed = 1;
  const next = (bound: number) => (seed = (seed * 48_271) % 2_147_483_647) % bound;
  for (let round = 0; round < 3_000; round += 1) {
    const frame = Buffer.from(bytesOf(frames[next(frames.length)]!).subarray(0, 2048));
    for (let n = next(4); n >= 0; n -= 1) frame[next(frame.length)] = next(256);
    try {
      for (const body of new Splitter().feed(frame)) decodeBody(body, ALL);
    } catch (error) {
      assert.ok(error instanceof Unreadable, String(error));
    }
  }
});

test("malformed.json: what a real daemon answers is read as it says", async (t) => {
  const daemon = await Daemon.started(t);
  for (const one of cases) {
    const socket = connect(daemon.socket);
    const heard: Record<string, unknown>[] = [];
    const splitter = new Splitter();
    let isOver = false;
    socket.on("data", (received: Buffer) => {
      heard.push(...splitter.feed(received).map((body) => decodeBody(body, ALL)));
    });
    socket.on("error", () => undefined).on("close", () => (isOver = true));
    if (one.role !== null) {
      const producer = Buffer.alloc(16, cases.indexOf(one) + 1);
      socket.write(encodeFrame("Hello", { version: 1, role: one.role, producer }));
    }
    for (const before of one.before) socket.write(bytesOf(before as Part));
    socket.write(bytesOf(one));
    const { message, got, ...rest } = one.answer;
    const answer = await until(
      () => heard.find((word) => word["is"] === message && word["code"] === rest["code"]),
      `${one.name}: ${JSON.stringify(one.answer)}`,
    );
    for (const [name, value] of Object.entries({ ...rest, ...(got === null ? {} : { got }) })) {
      if (value !== null) assert.equal(answer[name], value, `${one.name}: ${name}`);
    }
    if (one.closes) await until(() => isOver, `${one.name}: the end`);
    socket.destroy();
  }
});
