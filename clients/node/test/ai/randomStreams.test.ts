/** Random model streams: the middleware changes nothing the program sees, and the reply holds all of it. */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import type { PartialReply } from "walld-client";
import { walldMiddleware } from "walld-client/ai";

import { recovered } from "./models.js";
import { Daemon } from "../support/daemon.js";

const STREAMS = 300;
const WORDS = [
  "a", "hello ", "\u{1f600}", "\n", "", '{"a":', "1}", "\ud83d", "\ude00", "\u0000", "\u00fc".repeat(50), "data: x",
];
/** None of these tests kills it. */
const shared = await Daemon.started({ after });

type Part = Record<string, unknown> & { type: string };
interface Run {
  parts: Part[];
  /** What the stream throws behind them. */
  thrown: Error | null;
  /** Behind how many parts the program leaves. */
  leaves: number;
}

/** Numbers from 0 to below 1, the same for the same seed (mulberry32). */
function chanceOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Texts, thoughts and calls whose pieces come in any order among each other. */
function runOf(seed: number): Run {
  const chance = chanceOf(seed);
  const below = (most: number): number => Math.floor(chance() * most);
  const text = (): string => Array.from({ length: below(4) }, () => WORDS[below(WORDS.length)]!).join("");
  const blocks = Array.from({ length: below(5) }, (_, number) => blockOf(`b${number}`, below(4), text, below));
  const parts: Part[] = [{ type: "stream-start", warnings: [] }];
  for (let left = blocks.filter((one) => one.length > 0); left.length > 0; left = left.filter((one) => one.length > 0)) {
    parts.push(left[below(left.length)]!.shift()!);
    if (chance() < 0.05) parts.push({ type: "raw", rawValue: text() });
  }
  const end = chance();
  if (end < 0.1) parts.push({ type: "error", error: new Error("said within the stream") });
  if (end < 0.8) parts.push({ type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage: {} });
  const thrown = chance() < 0.15 ? new TypeError("thrown by the stream") : null;
  return { parts, thrown, leaves: chance() < 0.2 ? below(8) : Infinity };
}

function blockOf(id: string, kind: number, text: () => string, below: (most: number) => number): Part[] {
  const pieces = Array.from({ length: below(5) }, text);
  if (kind < 2) {
    const name = kind === 0 ? "text" : "reasoning";
    const deltas = pieces.map((delta) => ({ type: `${name}-delta`, id, delta }));
    return [{ type: `${name}-start`, id }, ...deltas, { type: `${name}-end`, id }];
  }
  const call = { type: "tool-call", toolCallId: id, toolName: "tool", input: pieces.join("") };
  if (kind === 2) return [call];
  const deltas = pieces.map((delta) => ({ type: "tool-input-delta", id, delta }));
  const streamed = [{ type: "tool-input-start", id, toolName: "tool" }, ...deltas, { type: "tool-input-end", id }];
  return below(2) === 0 ? streamed : [...streamed, call];
}

/** A stream that gives a part when one is asked for, and counts. */
function streamOf({ parts, thrown }: Run) {
  const given = { count: 0, cancelled: undefined as unknown };
  const stream = new ReadableStream<Part>(
    {
      pull(controller) {
        if (given.count < parts.length) controller.enqueue(parts[given.count++]!);
        else if (thrown !== null) controller.error(thrown);
        else controller.close();
      },
      cancel(reason) {
        given.cancelled = reason;
      },
    },
    { highWaterMark: 0 },
  );
  return { stream, given };
}

/** Each part with how many the model had given by then; what was thrown; why it was cancelled. */
async function seen(run: Run, wrap: (stream: ReadableStream<Part>) => Promise<ReadableStream<unknown>>) {
  const { stream, given } = streamOf(run);
  const reader = (await wrap(stream)).getReader();
  const found: unknown[] = [given.count];
  try {
    for (let count = 0; count < run.leaves; count += 1) {
      const { done, value } = await reader.read();
      found.push(done, value, given.count);
      if (done) return found;
    }
    await reader.cancel("enough");
    found.push(given.cancelled);
  } catch (error) {
    found.push(error);
  }
  return found;
}

/** No input at all is one of none. */
function given(input: string): string {
  return input.trim() === "" ? "{}" : input;
}

function check(found: PartialReply, { parts, leaves }: Run): void {
  const read = parts.slice(0, leaves);
  const said = (type: string): string => read.map((part) => (part.type === type ? part["delta"] : "")).join("");
  assert.equal(found.text, said("text-delta"));
  assert.equal(recovered(found, "reasoning"), said("reasoning-delta"));
  const calls = new Map<unknown, string>();
  for (const part of read) {
    if (part.type === "tool-input-start") calls.set(part["id"], "");
    if (part.type === "tool-input-delta") calls.set(part["id"], calls.get(part["id"])! + String(part["delta"]));
    if (part.type === "tool-call") calls.set(part["toolCallId"], given(part["input"] as string));
  }
  const segments = found.segments.filter((one) => one.kind === "tool");
  assert.deepEqual(segments.map((one) => one.arguments ?? ""), [...calls.values()]);
}

test("any stream is what the program sees without, when it asks for it, and what comes back", async () => {
  const client = shared.client();
  for (let seed = 0; seed < STREAMS; seed += 1) {
    const run = runOf(seed);
    const plain = await seen(run, (stream) => Promise.resolve(stream));
    const reply = client.reply(`any ${seed}`);
    const wrapped = await seen(run, async (stream) => {
      const doStream = () => Promise.resolve({ stream });
      return (await walldMiddleware(reply).wrapStream({ doStream, params: { prompt: [] } })).stream;
    });
    assert.deepEqual(wrapped, plain, `seed ${seed}`);
    for (const [at, one] of wrapped.entries()) assert.ok(Object.is(one, plain[at]), `seed ${seed}: ${at} is a copy`);
    check((await client.recover(reply.sessionId))!, run);
    const read = run.parts.slice(0, run.leaves);
    const isLeft = run.leaves <= run.parts.length; // that is the program's own word
    const isWhole = isLeft || (run.thrown === null && read.at(-1)!.type === "finish");
    assert.equal(reply.end() > 0, isWhole && !read.some((one) => one.type === "error"), `seed ${seed}`);
  }
});
