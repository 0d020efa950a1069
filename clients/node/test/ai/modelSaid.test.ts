/** What the middleware says of a model's call: whose answer it is, what it took, of which class its error is. */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { convertArrayToReadableStream } from "ai/test";
import { toolsHash } from "walld-client";
import { walldMiddleware } from "walld-client/ai";

import { modelCalls } from "./models.js";
import { Daemon } from "../support/daemon.js";

const shared = await Daemon.started({ after });
const client = shared.client();
const MODEL = { modelId: "asked", provider: "p" };
const END = { type: "finish", finishReason: { unified: "stop" } };

async function read(reply: ReturnType<typeof client.reply>, parts: unknown[], params: object = {}): Promise<void> {
  const doStream = () => Promise.resolve({ stream: convertArrayToReadableStream<unknown>(parts) });
  const options = { doStream, params: { prompt: [], ...params }, model: MODEL };
  for await (const _ of (await walldMiddleware(reply).wrapStream(options)).stream);
}

/** Of its newest step. */
async function told(sessionId: string): Promise<Record<string, unknown> | undefined> {
  return Object.values(modelCalls((await client.recover(sessionId))!)).at(-1);
}

test("each is said once, with the first word; what does not fit is left out", async () => {
  const tools = [{ type: "function", name: "weather", inputSchema: {} }];
  const metadata = { type: "response-metadata", id: "r1", modelId: "answered" };
  const reply = client.reply("once");
  await read(reply, [metadata, metadata, { type: "text-delta", id: "1", delta: "x" }, { ...END, usage: 7 }], { tools });
  const found = (await client.recover("once"))!;
  assert.deepEqual(found.segments.map((one) => one.name ?? one.text), ["model_call", "x"]);
  assert.deepEqual(await told("once"), { model: "answered", provider: "p", tools_hash: toolsHash(tools), request_id: "r1" });
  await read(client.reply("asked"), [{ type: "response-metadata", id: "y".repeat(257) }, END]);
  assert.deepEqual(await told("asked"), { model: "asked", provider: "p" });
});

test("numbers of the SDK's, of today's providers and of former ones", async () => {
  const parts = { inputTokens: { total: 9, cacheRead: 4, cacheWrite: 2 }, outputTokens: { total: 5, text: 3, reasoning: 2 } };
  const whole = { input_tokens: 9, output_tokens: 5, cache_read_tokens: 4, cache_write_tokens: 2, reasoning_tokens: 2 };
  const former = { inputTokens: 9, outputTokens: 5, cachedInputTokens: 4, totalTokens: 14 };
  const unknown = { inputTokens: { total: NaN }, outputTokens: { total: undefined } };
  const cases = [[parts, whole], [former, { input_tokens: 9, output_tokens: 5, cache_read_tokens: 4 }], [unknown, undefined]];
  for (const [at, [usage, numbers]] of cases.entries()) {
    await read(client.reply(`usage ${at}`), [{ ...END, usage }]);
    assert.deepEqual((await told(`usage ${at}`))!["usage"], numbers);
  }
});

test("the class of an error", async () => {
  const call = (fields: object) => Object.assign(new Error("no"), { name: "AI_APICallError" }, fields);
  const unreadable = Object.defineProperty(new Error("x"), "code", { get: () => assert.fail("not to be read") });
  const cases: [unknown, string][] = [
    [call({ statusCode: 429 }), "rate_limit"],
    [call({ statusCode: 400, data: { error: { code: "context_length_exceeded" } } }), "context_length"],
    [call({ statusCode: 529, data: { error: { type: "overloaded_error" } } }), "provider"],
    [call({ statusCode: 500 }), "provider"],
    [new DOMException("late", "TimeoutError"), "timeout"],
    [new Error("prompt is too long: 7 tokens"), "context_length"],
    ["quota", "rate_limit"],
    [new Error("no"), "other"],
    [unreadable, "other"],
  ];
  for (const [at, [error, word]] of cases.entries()) {
    const options = { doStream: () => Promise.reject(error), params: { prompt: [] }, model: MODEL };
    await assert.rejects(walldMiddleware(client.reply(`class ${at}`)).wrapStream(options), (thrown) => thrown === error);
    assert.deepEqual(await told(`class ${at}`), { model: "asked", provider: "p", status: "error", error_class: word }, `${at}`);
  }
});

test("what the program aborts is cancelled, whatever its reason is, but for a timeout", async () => {
  const reasons: [unknown, object][] = [
    [new Error("enough"), { status: "cancelled" }],
    [new DOMException("late", "TimeoutError"), { status: "error", error_class: "timeout" }],
  ];
  for (const [at, [reason, ending]] of reasons.entries()) {
    const stop = AbortSignal.abort(reason);
    const options = { doStream: () => Promise.reject(reason), params: { prompt: [], abortSignal: stop }, model: MODEL };
    await assert.rejects(walldMiddleware(client.reply(`aborted ${at}`)).wrapGenerate({ ...options, doGenerate: options.doStream }));
    assert.deepEqual(await told(`aborted ${at}`), { model: "asked", provider: "p", ...ending });
  }
});

test("in a session it outlives the reply, of an answer that came at once, too", async () => {
  const session = client.session("kept");
  const turn = await session.submit("q");
  const reply = await turn.reply();
  const answer = { content: [{ type: "text", text: "x" }], finishReason: { unified: "stop" }, response: { id: "r", modelId: "m" } };
  const doGenerate = () => Promise.resolve({ ...answer, usage: { inputTokens: 3, outputTokens: 1 } });
  await walldMiddleware(reply).wrapGenerate({ doGenerate, params: { prompt: [] }, model: MODEL });
  reply.end();
  await turn.completed();
  const [kept, ...more] = await session.find("model_call");
  const { model, provider, request_id, usage, status } = kept!.payload;
  assert.deepEqual([model, provider, request_id, status], ["m", "p", "r", "complete"]);
  assert.deepEqual(usage, { input_tokens: 3, output_tokens: 1 });
  assert.equal(more.length, 0);
});
