/** Answers of the real `ai` package that the program leaves: by break, cancel, abort or timeout; and asks again. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { after, test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { generateText, streamText } from "ai";
import { convertArrayToReadableStream } from "ai/test";
import type { Reply } from "walld-client";
import { walldMiddleware, walldSseSink } from "walld-client/ai";

import { VENDORS, delivered, modelOf, said, spoken } from "./models.js";
import { Daemon, Program, until } from "../support/daemon.js";
import { ModelServer } from "./modelServer.js";
import { WORDS, type Wire } from "./vendorWires.js";

/** None of these tests kills it. */
const shared = await Daemon.started({ after });
const WHOLE = WORDS.join("");

async function setUp(t: TestContext) {
  return { client: shared.client(), replay: await ModelServer.started(t) };
}

interface Part {
  type: string;
  delta?: string;
}
type Asked = { prompt: readonly unknown[]; abortSignal?: AbortSignal };
/** What is used of a language model here. */
interface Streams {
  doStream(options: Asked): PromiseLike<{ stream: ReadableStream<Part> }>;
}
const PROMPT = [{ role: "user", content: [{ type: "text", text: "?" }] }];

async function streamOf(model: unknown, abortSignal?: AbortSignal) {
  const asked = { prompt: PROMPT, ...(abortSignal ? { abortSignal } : {}) };
  return (await (model as Streams).doStream(asked)).stream;
}

/** Read up to the first text; what it is. */
async function firstText(stream: ReadableStream<Part>) {
  const reader = stream.getReader();
  for (;;) {
    const { value } = await reader.read();
    if (value?.type === "text-delta") return { reader, text: value.delta! };
  }
}

/** As `AbortSignal.timeout` gives it, but when the test wants it. */
const TIMEOUT = new DOMException("The operation was aborted due to timeout", "TimeoutError");

async function aborted(model: unknown, reason: unknown): Promise<void> {
  const abort = new AbortController();
  const { reader } = await firstText(await streamOf(model, abort.signal));
  abort.abort(reason);
  await assert.rejects(reader.read(), { name: reason === undefined ? "AbortError" : "TimeoutError" });
}

async function abortedRun(model: unknown, reason: unknown): Promise<void> {
  const abort = new AbortController();
  const onChunk = ({ chunk }: { chunk: { type: string } }): void => {
    if (chunk.type === "text-delta") abort.abort(reason);
  };
  await delivered(model as never, { abortSignal: abort.signal, onChunk });
}

/** The ways to leave an answer behind its first text. The body stays open: no more comes. */
const WAYS: Record<string, (model: unknown) => Promise<unknown>> = {
  break: async (model) => {
    const run = streamText({ model: model as never, prompt: "?", maxRetries: 0, onError: () => undefined });
    for await (const _text of run.textStream) break;
  },
  "no read": async (model) => (await firstText(await streamOf(model))).reader.releaseLock(),
  cancel: async (model) => (await firstText(await streamOf(model))).reader.cancel("enough"),
  abort: (model) => aborted(model, undefined),
  timeout: (model) => aborted(model, TIMEOUT),
  "abort of a run": (model) => abortedRun(model, undefined),
  "timeout of a run": (model) => abortedRun(model, TIMEOUT),
};
/** How the reply ends where the program leaves it at that; does `end()` stand? */
const ENDS: Record<string, [string, string | null, boolean]> = {
  break: ["cancelled", null, true],
  "no read": ["cancelled", null, true],
  cancel: ["cancelled", null, true],
  abort: ["cancelled", null, false],
  timeout: ["errored", "TimeoutError", false],
  "abort of a run": ["cancelled", null, false],
  "timeout of a run": ["errored", "TimeoutError", false],
};
/** Frames up to the first text, and no more. */
const HOLDS: Record<Wire, string> = { chat: "text:hold2", anthropic: "text:hold3", responses: "text:hold3" };

for (const vendor of VENDORS) {
  for (const [way, leave] of Object.entries(WAYS)) {
    test(`${vendor}, ${way}: asked again with the same reply, its text stands once`, async (t) => {
      const { client, replay } = await setUp(t);
      const reply = client.reply(`${vendor} ${way}`);
      await delivered(modelOf(replay, vendor, "text", reply)); // a step before it, which stands
      await leave(modelOf(replay, vendor, HOLDS[vendor], reply));
      assert.equal(reply.hasEnded, false);
      const { parts } = await delivered(modelOf(replay, vendor, "text", reply));
      assert.equal(said(parts, "text-delta"), WHOLE);
      const found = (await client.recover(reply.sessionId))!;
      assert.deepEqual([found.status, found.attempts, found.text], ["live", 2, WHOLE.repeat(2)]);
      assert.deepEqual(spoken(found).map((one) => [one.attempt, one.step]), [[1, 0], [0, 1], [1, 1]]);
      assert.ok(reply.end() > 0);
    });

    test(`${vendor}, ${way}: left at that, the reply is not whole; end() is the program's word`, async (t) => {
      const { client, replay } = await setUp(t);
      const [status, kind, endStands] = ENDS[way]!;
      const left = async (name: string) => {
        const reply = client.reply(`${vendor} ${way} ${name}`);
        await leave(modelOf(replay, vendor, HOLDS[vendor], reply));
        return reply;
      };
      const check = async (reply: Reply) => {
        const found = (await client.recover(reply.sessionId))!;
        assert.deepEqual([found.status, found.error?.kind ?? null], [status, kind], reply.sessionId);
        assert.deepEqual([found.partial, found.text], [true, WORDS[0]], reply.sessionId);
      };
      const run = await left("run");
      assert.equal(await run.run(() => 7), 7);
      await check(run);
      const using = await left("using");
      using[Symbol.dispose]();
      await check(using);
      const ended = await left("end");
      assert.equal(ended.end() > 0, endStands);
      if (endStands) assert.equal(await client.recover(ended.sessionId), null);
      else await check(ended);
    });
  }
}

test("an abort that nobody has told the middleware of: end() is refused all the same", async (t) => {
  const { client, replay } = await setUp(t);
  const reply = client.reply("untold");
  const abort = new AbortController();
  await firstText(await streamOf(modelOf(replay, "chat", HOLDS.chat, reply), abort.signal));
  abort.abort("the user's wish");
  assert.equal(reply.end(), 0);
  const found = (await client.recover("untold"))!;
  assert.deepEqual([found.status, found.text], ["cancelled", WORDS[0]]);
});

test("an abort behind the answer's end takes nothing back", async (t) => {
  const { client, replay } = await setUp(t);
  const abort = new AbortController();
  const reply = client.reply("behind");
  await delivered(modelOf(replay, "chat", "text", reply), { abortSignal: abort.signal });
  abort.abort();
  assert.ok(reply.end() > 0);
});

test("a program that ends in the middle of an answer has crashed; what it aborted before is cancelled", async (t) => {
  const { client, replay } = await setUp(t);
  for (const [how, status] of [["away", "crashed"], ["abort", "cancelled"]] as const) {
    const program = new Program("test/ai/leavingProgram.js", [shared.socket, how, replay.url, HOLDS.chat, how]);
    await program.ended();
    const found = await until(async () => (await client.orphans(how))[0], "an orphan");
    assert.deepEqual([found.status, found.partial, found.text], [status, true, WORDS[0]]);
  }
});

test("who leaves behind the terminal marker has all of it", async (t) => {
  const { client, replay } = await setUp(t);
  const reply = client.reply("all of it");
  const stream = await streamOf(modelOf(replay, "chat", "text", reply));
  for await (const part of stream) if (part.type === "finish") break;
  await reply.run(() => undefined);
  const found = (await client.recover("all of it"))!;
  assert.deepEqual([found.status, found.partial, found.text], ["complete", false, WHOLE]);
});

test("what still comes of an answer that was left is nobody's", async (t) => {
  const { client } = await setUp(t);
  const reply = client.reply("late");
  const middleware = walldMiddleware(reply);
  const ask = (stream: ReadableStream<unknown>) =>
    middleware.wrapStream({ doStream: () => Promise.resolve({ stream }), params: { prompt: PROMPT } });
  const text = (delta: string) => ({ type: "text-delta", id: "1", delta });
  let old: ReadableStreamDefaultController<unknown>;
  const left = (await ask(new ReadableStream({ start: (given) => void (old = given) }))).stream.getReader();
  old!.enqueue(text("A"));
  await left.read();
  const pending = left.read(); // as SDKs do that read ahead
  const finish = { type: "finish", finishReason: { unified: "stop", raw: "stop" } };
  const again = (await ask(convertArrayToReadableStream([text("A"), text("B"), finish]))).stream.getReader();
  await again.read();
  old!.enqueue(text("late"));
  await pending;
  const failing = left.read();
  old!.error(new Error("late too"));
  await assert.rejects(failing, { message: "late too" });
  while (!(await again.read()).done);
  const found = (await client.recover("late"))!;
  assert.deepEqual([found.text, found.attempts, found.partial], ["AB", 2, false]);
  assert.ok(reply.end() > 0);
});

test("two answers at the same time: the later one is the reply's, and that is told", async (t) => {
  const { client, replay } = await setUp(t);
  const reply = client.reply("two");
  const model = modelOf(replay, "chat", "text", reply);
  const warned = once(process, "warning");
  await Promise.all([generateText({ model, prompt: "?" }), generateText({ model, prompt: "?" })]);
  assert.match(((await warned)[0] as Error).message, /answers at the same time need a reply each/);
  assert.equal((await client.recover("two"))!.text, WHOLE);
});

test("a call of an answer that was left, run all the same: its result makes that the step before", async (t) => {
  const { client } = await setUp(t);
  const reply = client.reply("taken");
  const middleware = walldMiddleware(reply);
  const call = { type: "tool-call", toolCallId: "c", toolName: "t", input: "{}" };
  const output = { type: "text", value: "4 degrees" };
  const result = { role: "tool", content: [{ type: "tool-result", toolCallId: "c", toolName: "t", output }] };
  const text = { type: "text-delta", id: "1", delta: "Four." };
  for (const [part, prompt] of [[call, PROMPT], [text, [...PROMPT, result]]] as const) {
    const stream = convertArrayToReadableStream<unknown>([part]);
    const options = { doStream: () => Promise.resolve({ stream }), params: { prompt } };
    for await (const _part of (await middleware.wrapStream(options)).stream) break;
  }
  const found = (await client.recover("taken"))!;
  assert.deepEqual(found.segments.map((one) => [one.kind, one.step, one.attempt]), [["tool", 0, 0], ["text", 1, 0]]);
  assert.equal(found.segments[0]!.result, "4 degrees");
});

test("the program's own retry behind an answer that it left is not said again", async (t) => {
  const { client, replay } = await setUp(t);
  const reply = client.reply("own");
  await WAYS["break"]!(modelOf(replay, "chat", HOLDS.chat, reply));
  reply.retry("too slow");
  await delivered(modelOf(replay, "chat", "text", reply));
  const found = (await client.recover("own"))!;
  assert.deepEqual([found.attempts, found.text, found.segments.at(-1)!.step], [2, WHOLE, 0]);
});

test("a reply that nobody holds any more is abandoned, though its request's signal lives", async (t) => {
  const { client, replay } = await setUp(t);
  const abort = new AbortController();
  await (async () => {
    const model = modelOf(replay, "chat", HOLDS.chat, client.reply("held"));
    const run = streamText({ model, prompt: "?", abortSignal: abort.signal, onError: () => undefined });
    for await (const _text of run.textStream) break;
  })();
  replay.hangUp();
  const collect = (globalThis as { gc?: () => void }).gc!;
  const found = await until(async () => {
    collect();
    await sleep(5);
    const one = (await client.recover("held"))!;
    return one.status === "live" ? null : one;
  }, "an end");
  assert.equal(found.partial, true);
  abort.abort();
});

/** A UI message stream of these chunks, as the SDK hands it to a sink. */
async function sunk(reply: Reply, chunks: object[]): Promise<void> {
  const events = [...chunks.map((one) => JSON.stringify(one)), "[DONE]"].map((one) => `data: ${one}\n\n`);
  await walldSseSink(reply)({ stream: convertArrayToReadableStream(events) });
}

test("the sink: which of the SDK's reasons is an end", async (t) => {
  const { client } = await setUp(t);
  const [step, over] = [{ type: "start-step" }, { type: "finish-step" }];
  const text = { type: "text-delta", id: "1", delta: "Hello." };
  const expected: Record<string, string | null> = {
    stop: null,
    other: null,
    unknown: "no_terminal_event",
    interrupted: "no_terminal_event",
    error: "finish_reason_error",
  };
  for (const [finishReason, kind] of Object.entries(expected)) {
    const reply = client.reply(`ui ${finishReason}`);
    await sunk(reply, [step, text, over, step, text, over, { type: "finish", finishReason }]);
    assert.equal(reply.hasEnded, false);
    if (kind !== null) assert.equal(reply.end(), 0, finishReason);
    const found = (await client.recover(reply.sessionId))!;
    assert.deepEqual([found.error?.kind ?? null, found.attempts, found.text], [kind, 1, "Hello.Hello."]);
    assert.equal(reply.end() > 0, kind === null);
  }
});

test("the sink: a run that was aborted, and one that broke, are asked for again", async (t) => {
  const { client } = await setUp(t);
  const [step, over] = [{ type: "start-step" }, { type: "finish-step" }];
  const text = (delta: string) => ({ type: "text-delta", id: "1", delta });
  const reply = client.reply("ui again");
  await sunk(reply, [step, text("One."), over, step, text("Tw"), { type: "abort" }]);
  await sunk(reply, [step, text("Two"), { type: "error", errorText: "no" }, over, { type: "finish", finishReason: "error" }]);
  await sunk(reply, [step, text("Two."), over, { type: "finish", finishReason: "stop" }]);
  const found = (await client.recover("ui again"))!;
  assert.deepEqual([found.text, found.attempts], ["One.Two.", 3]);
  assert.ok(reply.end() > 0);

  const left = client.reply("ui aborted");
  await sunk(left, [step, text("On"), { type: "abort", reason: "enough" }]);
  assert.equal(left.end(), 0);
  assert.equal((await client.recover("ui aborted"))!.status, "cancelled");
});
