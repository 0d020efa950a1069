/** Answers of the real `ai` package that are not streamed: generateText through the middleware. */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { generateText, stepCountIs } from "ai";
import { walldMiddleware } from "walld-client/ai";

import { OF_MODEL, VENDORS, delivered, modelCalls, modelOf, recovered, spoken, weather } from "./models.js";
import { Daemon } from "../support/daemon.js";
import { ModelServer } from "./modelServer.js";
import { ARGUMENTS, THOUGHTS, WORDS } from "./vendorWires.js";

/** None of these tests kills it. */
const shared = await Daemon.started({ after });
const TOOLS = { tools: { weather }, stopWhen: stepCountIs(3) };

for (const vendor of VENDORS) {
  test(`${vendor}: generateText gives what it gave without, and that is what comes back`, async (t) => {
    const client = shared.client();
    const replay = await ModelServer.started(t);
    for (const scene of ["text", "think"]) {
      const plain = await generateText({ model: modelOf(replay, vendor, scene, null), prompt: "?" });
      const reply = client.reply(`${vendor} ${scene}`);
      const wrapped = await generateText({ model: modelOf(replay, vendor, scene, reply), prompt: "?" });
      assert.deepEqual(wrapped.content, plain.content);
      assert.deepEqual([wrapped.finishReason, wrapped.rawFinishReason], [plain.finishReason, plain.rawFinishReason]);
      const found = (await client.recover(reply.sessionId))!;
      assert.equal(found.text, WORDS.join(""));
      assert.equal(recovered(found, "reasoning"), scene === "think" ? THOUGHTS.join("") : "");
      assert.deepEqual([found.status, found.partial], ["live", false]);
      assert.equal(found.finishReason, plain.rawFinishReason ?? plain.finishReason);
      assert.ok(reply.end() > 0);
    }
  });

  test(`${vendor}: a run of generateText is one reply, a step that is asked again stands once`, async (t) => {
    const client = shared.client();
    const replay = await ModelServer.started(t);
    const reply = client.reply(`${vendor} run`);
    const model = modelOf(replay, vendor, "tool:late1", reply);
    const { text } = await generateText({ model, prompt: "?", maxRetries: 1, ...TOOLS });
    assert.equal(replay.requests, 3);
    const found = (await client.recover(reply.sessionId))!;
    assert.deepEqual([found.text, found.attempts, found.status], [text, 2, "live"]);
    const current = spoken(found).filter((one) => one.attempt === 1);
    assert.deepEqual(current.map((one) => [one.kind, one.step]), [["tool", 0], ["text", 1]]);
    assert.deepEqual(JSON.parse(current[0]!.arguments!), { city: "Oslo" });
    assert.deepEqual(current[0]!.result, { city: "Oslo", degrees: 4 });
    const { "0.1": failed, "1.1": last } = modelCalls(found);
    assert.deepEqual([failed!["status"], failed!["error_class"]], ["error", "provider"]);
    assert.deepEqual([last!["model"], last!["provider"], last!["request_id"]], ["m", ...OF_MODEL[vendor]]);
    if (vendor !== "chat") assert.equal(typeof (last!["usage"] as Record<string, number>)["input_tokens"], "number");
    assert.ok(reply.end() > 0);
  });
}

test("generateText that is refused until the SDK gives up: the reply cannot be ended as whole", async (t) => {
  const client = shared.client();
  const replay = await ModelServer.started(t);
  const reply = client.reply("refused");
  const model = modelOf(replay, "chat", "text:busy99", reply);
  await assert.rejects(generateText({ model, prompt: "?", maxRetries: 1 }), { name: "AI_RetryError" });
  assert.equal(reply.end(), 0);
  assert.equal((await client.recover("refused"))!.error!.kind, "AI_APICallError");
});

test("an answer of no known shape is handed on as it is", async () => {
  const client = shared.client();
  const reply = client.reply("odd");
  const odd = { content: [{ type: "source" }, { type: "text", text: "x" }, null], extra: "kept" };
  const options = { doGenerate: () => Promise.resolve(odd), params: { prompt: [] } };
  assert.equal(await walldMiddleware(reply).wrapGenerate(options), odd);
  assert.equal((await client.recover("odd"))!.text, "x");
});

test("a whole answer whose finish reason is an error", async () => {
  const client = shared.client();
  const content = [{ type: "text", text: "half" }];
  for (const finishReason of [{ unified: "error" }, { unified: "error", raw: "BROKEN" }, { unified: "other", raw: "error" }]) {
    const reply = client.reply(`broken ${JSON.stringify(finishReason)}`);
    const options = { doGenerate: () => Promise.resolve({ content, finishReason }), params: { prompt: [] } };
    await walldMiddleware(reply).wrapGenerate(options);
    assert.equal(reply.end(), 0);
    const found = (await client.recover(reply.sessionId))!;
    assert.deepEqual([found.status, found.text, found.finishReason], ["errored", "half", null]);
    assert.equal(found.error!.kind, "finish_reason_error");
  }
});

/** What throws where somebody looks at it. */
function trap(name: string): object {
  return Object.defineProperty({}, name, {
    enumerable: true,
    get() {
      throw new Error("not to be read");
    },
  });
}

test("a part that cannot be read keeps nothing behind it out, whole or in a prompt", async () => {
  const client = shared.client();
  const reply = client.reply("odd parts");
  const middleware = walldMiddleware(reply);
  const called = ["a", "b"].map((id) => ({ type: "tool-call", toolCallId: id, toolName: "w", input: "{}" }));
  const texts = [{ type: "text", text: "the beginning" }, null, trap("type"), { type: "text", text: " and the end" }];
  const odd = Object.defineProperties({ content: [...texts, ...called] }, {
    finishReason: Object.getOwnPropertyDescriptor(trap("finishReason"), "finishReason")!,
  });
  const asked = (prompt: unknown[]) =>
    middleware.wrapGenerate({ doGenerate: () => Promise.resolve(odd), params: { prompt } });
  assert.equal(await asked([]), odd);
  const told = (toolCallId: string) => ({
    type: "tool-result", toolCallId, toolName: "w", output: { type: "text", value: toolCallId },
  });
  await asked([trap("role"), { role: "tool", content: [told("a"), trap("type"), null, told("b")] }]);
  const found = (await client.recover("odd parts"))!;
  assert.equal(found.text, "the beginning and the end".repeat(2));
  const tools = found.segments.filter((one) => one.kind === "tool" && one.step === 0);
  assert.deepEqual(tools.map((one) => one.result), ["a", "b"]);
  assert.ok(reply.end() > 0);
});

test("a provider's result keeps its class, its getters and its private fields", async () => {
  const client = shared.client();
  const words = () => ReadableStream.from([{ type: "finish", finishReason: { unified: "stop", raw: "stop" } }]);
  class Result {
    readonly #id = "r-1";
    stream: ReadableStream<unknown> = words();
    get id(): string {
      return this.#id;
    }
  }
  const given = [
    new Result(),
    Object.freeze(new Result()),
    { stream: words(), get id() { return "r-1"; } },
    Object.assign(trap("response"), { stream: words(), id: "r-1" }),
  ];
  for (const [at, one] of given.entries()) {
    const reply = client.reply(`result ${at}`);
    const options = { doStream: () => Promise.resolve(one), params: { prompt: [] } };
    const got = await walldMiddleware(reply).wrapStream(options);
    if (at !== 1) assert.equal(got.id, "r-1");
    assert.equal(got instanceof Result, at < 2);
    for await (const _ of got.stream) void _;
    assert.equal((await client.recover(reply.sessionId))!.finishReason, "stop");
    assert.ok(reply.end() > 0);
  }
});

test("a call that a stream was cut behind, and that a whole answer repeats, is said again", async (t) => {
  const client = shared.client();
  const replay = await ModelServer.started(t);
  const reply = client.reply("repeated");
  const cut = modelOf(replay, "responses", "tool:cut5", reply);
  await delivered(cut);
  await generateText({ model: modelOf(replay, "responses", "tool", reply), prompt: "?" });
  const found = (await client.recover("repeated"))!;
  const calls = spoken(found).map((one) => [one.attempt, one.name, one.arguments]);
  const whole = ARGUMENTS.join("");
  assert.deepEqual(calls, [[0, "weather", whole], [1, "weather", whole]]);
  assert.ok(reply.end() > 0);
});

test("a prompt of no known shape is handed on, and what can be read of it is recorded", async () => {
  const client = shared.client();
  const called = ["a", "b", "c"].map((id) => ({ type: "tool-call", toolCallId: id, toolName: "w", input: "{}" }));
  const told = (toolCallId: string, output: unknown) => ({ type: "tool-result", toolCallId, toolName: "w", output });
  const trap = Object.defineProperty({ role: "tool" }, "content", {
    get: () => {
      throw new Error("not for you");
    },
  });
  const results = [null, told("a", { value: "x" }), told("b", null), told("c", { type: "text", value: "y" })];
  const prompts: unknown[] = [undefined, null, 5, [null, 7], [{ role: "tool", content: results }, trap]];
  for (const prompt of prompts) {
    const reply = client.reply("odd prompt");
    const middleware = walldMiddleware(reply);
    const answer = { content: called, finishReason: { unified: "tool-calls" } };
    const ask = (given: unknown) =>
      middleware.wrapGenerate({ doGenerate: () => Promise.resolve(answer), params: { prompt: given as never } });
    await ask([]);
    assert.equal(await ask(prompt), answer);
    const stream = new ReadableStream({ start: (controller) => controller.close() });
    const asked = { doStream: () => Promise.resolve({ stream }), params: { prompt: prompt as never } };
    await (await middleware.wrapStream(asked)).stream.cancel();
    const found = (await client.recover({ streamId: reply.streamId }))!;
    const first = found.segments.filter((one) => one.kind === "tool" && one.step === 0);
    const expected = prompt === prompts.at(-1) ? ["x", null, "y"] : [null, null, null];
    assert.deepEqual(first.map((one) => one.result ?? null), expected);
    reply.cancel("over");
  }
});

test("an answer without a stream, or without params, is what it was", async () => {
  const middleware = walldMiddleware(shared.client().reply("no stream"));
  for (const odd of [{ stream: null }, { stream: {} }]) {
    const options = { doStream: () => Promise.resolve(odd as never), params: undefined as never };
    assert.equal(await middleware.wrapStream(options), odd);
  }
});
