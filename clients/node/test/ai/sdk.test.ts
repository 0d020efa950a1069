/** The real `ai` package on a model server on loopback: a recovered reply holds what the package delivered. */

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test, type TestContext } from "node:test";
import { setImmediate } from "node:timers/promises";

import { extractReasoningMiddleware, stepCountIs, streamText, wrapLanguageModel } from "ai";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import { walldMiddleware, walldSseSink } from "walld-client/ai";

import { OF_MODEL, VENDORS, comparable, delivered, modelCalls, modelOf, recovered, said, spoken, weather } from "./models.js";
import { Daemon, PACKAGE } from "../support/daemon.js";
import { ModelServer } from "./modelServer.js";

/** None of these tests kills it. */
const shared = await Daemon.started({ after });

async function setUp(t: TestContext) {
  return { daemon: shared, client: shared.client(), replay: await ModelServer.started(t) };
}

const [SAID, THOUGHT] = ["It is cold.", "Is it?"];
/** [model, status, kind of the error, the provider's reason] */
const SCENES: [string, string, string | null, string | null][] = [
  ["text", "live", null, null],
  ["think", "live", null, null],
  ["tool", "live", null, null],
  ["emoji", "live", null, null],
  ["text:eof3", "errored", "no_terminal_event", null],
  ["text:eof0", "errored", "no_terminal_event", null],
  ["think:eof2", "errored", "no_terminal_event", null],
  ["tool:eof3", "errored", "no_terminal_event", null],
  ["text:cut4", "errored", "AI_APICallError", null],
  ["tool:cut3", "errored", "AI_APICallError", null],
  ["text:err4", "errored", "overloaded_error", null],
];

for (const vendor of VENDORS) {
  test(`${vendor}: the program sees what it saw without, and that is what comes back`, async (t) => {
    const { client, replay } = await setUp(t);
    for (const [name, status, kind] of SCENES) {
      const plain = await delivered(modelOf(replay, vendor, name, null));
      const reply = client.reply(`${vendor} ${name}`);
      const wrapped = await delivered(modelOf(replay, vendor, name, reply));
      assert.deepEqual(comparable(wrapped), comparable(plain), name);
      if (status === "errored") assert.equal(reply.end(), 0, name);
      const found = (await client.recover(reply.sessionId))!;
      assert.equal(found.status, status, name);
      assert.equal(found.error?.kind ?? null, kind, `${name}: ${JSON.stringify(found.error)}`);
      assert.equal(found.text, said(wrapped.parts, "text-delta"), name);
      assert.equal(recovered(found, "reasoning"), said(wrapped.parts, "reasoning-delta"), name);
      const given = wrapped.parts.filter((part) => part["type"] === "tool-input-delta");
      const calls = found.segments.filter((one) => one.kind === "tool");
      if (name.startsWith("tool")) {
        assert.equal(calls.length, 1);
        assert.equal(calls[0]!.arguments, given.map((part) => part["delta"]).join(""), name);
        assert.equal(calls[0]!.name, "weather");
        const marker = status === "live" || kind === "no_terminal_event" || kind === "AI_APICallError" ? 1 : 0;
        const models = found.segments.length - spoken(found).length;
        assert.equal(found.events - models, 1 + given.length + marker, `${name}: each event once`);
      }
      reply.end();
    }
  });

  test(`${vendor}: a run of two steps is one reply, the tool's result in its place`, async (t) => {
    const { client, replay } = await setUp(t);
    const reply = client.reply("agent");
    const run = { tools: { weather }, stopWhen: stepCountIs(3) };
    const { parts } = await delivered(modelOf(replay, vendor, "tool", reply), run);
    assert.equal(replay.requests, 2);
    const found = (await client.recover("agent"))!;
    assert.deepEqual(spoken(found).map((one) => [one.kind, one.step]), [["tool", 0], ["text", 1]]);
    assert.deepEqual(spoken(found)[0]!.result, { city: "Oslo", degrees: 4 });
    assert.equal(spoken(found)[0]!.outcome, "done");
    assert.equal(spoken(found)[1]!.text, said(parts, "text-delta"));
    assert.equal(found.attempts, 1);
    const told = Object.values(modelCalls(found));
    assert.equal(told.length, 2, "of each step");
    for (const one of told) {
      assert.deepEqual([one["model"], one["provider"], one["request_id"]], ["m", ...OF_MODEL[vendor]]);
      assert.match(String(one["tools_hash"]), /^[0-9a-f]{64}$/);
      assert.equal(one["tools_hash"], told[0]!["tools_hash"]);
      if (vendor !== "chat") assert.equal((one["usage"] as Record<string, number>)["output_tokens"], 1);
      assert.equal(one["status"], undefined, "that it is whole its end says");
    }
    reply.end("stop");
    assert.equal(await client.recover("agent"), null);
  });
}

test("a reason of the SDK's own is a terminal marker where it says a model's own end", async (t) => {
  const { client } = await setUp(t);
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const ends = ["stop", "length", "content-filter", "tool-calls"];
  for (const unified of [...ends, "other", "unknown", "error", "interrupted"]) {
    for (const raw of [undefined, "its own word", "error", "network_error"]) {
      const chunks = [
        { type: "stream-start", warnings: [] },
        { type: "text-start", id: "1" },
        { type: "text-delta", id: "1", delta: "Hello." },
        { type: "text-end", id: "1" },
        { type: "finish", finishReason: { unified, raw }, usage },
      ];
      const reply = client.reply(`${unified} ${raw}`);
      const doStream = () => Promise.resolve({ stream: simulateReadableStream({ chunks, chunkDelayInMs: null }) });
      const mock = new MockLanguageModelV3({ doStream: doStream as never });
      const model = wrapLanguageModel({ model: mock, middleware: walldMiddleware(reply) });
      const { parts } = await delivered(model);
      assert.equal(said(parts, "text-delta"), "Hello.");
      const isError = unified === "error" || /error/.test(raw ?? "");
      const isWhole = !isError && (raw !== undefined || ends.includes(unified));
      if (!isWhole) assert.equal(reply.end(), 0, reply.sessionId);
      const found = (await client.recover(reply.sessionId))!;
      assert.equal(found.status, isWhole ? "live" : "errored", reply.sessionId);
      const kind = isError ? "finish_reason_error" : "no_terminal_event";
      assert.equal(found.error?.kind ?? null, isWhole ? null : kind, reply.sessionId);
      assert.equal(found.finishReason, isWhole ? (raw ?? unified) : null, reply.sessionId);
      assert.equal(reply.end() > 0, isWhole);
    }
  }
});

/** What came of a body, and what ended it. */
async function bodyOf(response: Response): Promise<string> {
  let body = "";
  try {
    for await (const piece of response.body!) body += Buffer.from(piece).toString();
  } catch (error) {
    body += `thrown ${String(error)}`;
  }
  return body;
}

/** A model that counts how often it is asked for a part, and fails with `error` in the end. */
function counting(error: unknown) {
  const model = { asked: 0, doStream };
  function doStream() {
    let n = 0;
    const stream = new ReadableStream<unknown>(
      {
        pull(controller) {
          model.asked += 1;
          n += 1;
          if (n <= 3) controller.enqueue({ type: "text-delta", id: "1", delta: `${n}` });
          else controller.error(error);
        },
      },
      { highWaterMark: 0 },
    );
    return Promise.resolve({ stream, extra: "kept" });
  }
  return model;
}

test("as lazy as without, and the very same error", async (t) => {
  const { client } = await setUp(t);
  const error = { not: "an Error" };
  const model = counting(error);
  const reply = client.reply("lazy");
  const options = { doStream: model.doStream, params: { prompt: [] } };
  const { stream, extra } = await walldMiddleware(reply).wrapStream(options);
  assert.equal(extra, "kept");
  const reader = stream.getReader();
  for (let n = 1; n <= 3; n += 1) {
    assert.equal(model.asked, n - 1, "nothing is read that was not asked for");
    const { value } = await reader.read();
    assert.equal((value as { delta: string }).delta, `${n}`);
  }
  await assert.rejects(reader.read(), (thrown) => thrown === error);
  assert.equal(reply.end(), 0);
  const found = (await client.recover("lazy"))!;
  assert.equal(found.status, "errored");
  assert.equal(found.text, "123");

  const refused = new Error("no");
  const failing = { doStream: () => Promise.reject(refused), params: { prompt: [] } };
  const other = client.reply("refused");
  await assert.rejects(walldMiddleware(other).wrapStream(failing), (thrown) => thrown === refused);
  assert.equal(other.end(), 0);
  assert.equal((await client.recover("refused"))!.error!.message, "no");
});

test("reads that do not wait for each other read no more than was asked for, in order", async (t) => {
  const { client } = await setUp(t);
  const error = new Error("the end");
  const model = counting(error);
  const options = { doStream: model.doStream, params: { prompt: [] } };
  const { stream } = await walldMiddleware(client.reply("ahead")).wrapStream(options);
  const reader = stream.getReader();
  const delta = async () => ((await reader.read()).value as { delta: string }).delta;
  assert.deepEqual(await Promise.all([delta(), delta()]), ["1", "2"]);
  await setImmediate();
  assert.equal(model.asked, 2);
  const [third, fourth, fifth] = await Promise.allSettled([delta(), delta(), delta()]);
  assert.equal(third.status === "fulfilled" && third.value, "3");
  for (const one of [fourth, fifth]) assert.equal(one.status === "rejected" && one.reason, error);
  assert.equal(model.asked, 4);
  assert.equal((await client.recover("ahead"))!.text, "123");
});

test("a second read while the first one waits: two parts are read, not three", async (t) => {
  const { client } = await setUp(t);
  let model: ReadableStreamDefaultController<unknown>;
  const source = new ReadableStream<unknown>({ start: (controller) => void (model = controller) });
  const options = { doStream: () => Promise.resolve({ stream: source }), params: { prompt: [] } };
  const { stream } = await walldMiddleware(client.reply("waits")).wrapStream(options);
  const reader = stream.getReader();
  const reads: Promise<unknown>[] = [];
  for (let n = 0; n < 2; n += 1) {
    reads.push(reader.read());
    await setImmediate();
  }
  for (const delta of ["1", "2", "3"]) model!.enqueue({ type: "text-delta", id: "1", delta });
  await Promise.all(reads);
  await setImmediate();
  assert.equal((await client.recover("waits"))!.text, "12");
});

test("a cancel while a part is on its way reaches the model; the part is nobody's", async (t) => {
  const { client } = await setUp(t);
  const told: unknown[] = [];
  let model: ReadableStreamDefaultController<unknown>;
  const source = new ReadableStream<unknown>(
    {
      start: (controller) => void (model = controller),
      cancel: (reason) => void told.push(reason),
    },
    { highWaterMark: 0 },
  );
  const reply = client.reply("on its way");
  const options = { doStream: () => Promise.resolve({ stream: source }), params: { prompt: [] } };
  const reader = (await walldMiddleware(reply).wrapStream(options)).stream.getReader();
  const reading = reader.read();
  await setImmediate();
  model!.enqueue({ type: "text-delta", id: "1", delta: "late" });
  await reader.cancel("enough");
  assert.deepEqual(await reading, { done: true, value: undefined });
  await setImmediate(); // what is rejected and not handled fails the test
  assert.deepEqual(told, ["enough"]);
  reply[Symbol.dispose]();
  const found = (await client.recover("on its way"))!;
  assert.deepEqual([found.status, found.text], ["cancelled", ""]);
});

test("what is no part is handed on as it is, through tee and pipeThrough too", async (t) => {
  const { client } = await setUp(t);
  const odd = [null, 7, { type: "finish", finishReason: null }, { type: "text-delta", id: "1", delta: "x" }];
  const source = ReadableStream.from<unknown>(odd);
  const reply = client.reply("odd");
  const options = { doStream: () => Promise.resolve({ stream: source }), params: { prompt: [] } };
  const { stream } = await walldMiddleware(reply).wrapStream(options);
  const seen: unknown[][] = [[], []];
  const [one, two] = stream.pipeThrough(new TransformStream()).tee();
  await Promise.all([one, two].map(async (branch, n) => {
    for await (const part of branch) seen[n]!.push(part);
  }));
  assert.deepEqual(seen, [odd, odd]);
  assert.equal((await client.recover("odd"))!.text, "x");
});

test("a prompt repeats the results of all steps: each is recorded once, and only those of this reply", async (t) => {
  const { client } = await setUp(t);
  const reply = client.reply("steps");
  const middleware = walldMiddleware(reply);
  const result = (id: string) => ({ role: "tool", content: [{ type: "tool-result", toolCallId: id, toolName: "t", output: { type: "json", value: { id } } }] });
  const prompts = [[result("before")], [result("before"), result("c1")], [result("before"), result("c1"), result("c2")]];
  for (const [n, prompt] of prompts.entries()) {
    const said = [
      { type: "tool-call", toolCallId: `c${n + 1}`, toolName: "t", input: "{}" },
      { type: "finish", finishReason: { unified: "tool-calls", raw: "tool_use" } },
    ];
    const stream = new ReadableStream<unknown>({
      start(controller) {
        for (const part of said) controller.enqueue(part);
        controller.close();
      },
    });
    const options = { doStream: () => Promise.resolve({ stream }), params: { prompt } };
    for await (const _part of (await middleware.wrapStream(options)).stream);
  }
  const found = (await client.recover("steps"))!;
  assert.deepEqual(
    found.segments.map((one) => [one.kind, one.step, one.callId, one.outcome]),
    [["tool", 0, "c1", "done"], ["tool", 1, "c2", "done"], ["tool", 2, "c3", "unknown"]],
  );
  assert.equal(found.events, 3 + 3 + 2 + 2, "calls, ends, results, steps");
});

test("recorded streams of a vendor", async (t) => {
  const { client, replay } = await setUp(t);
  const folder = process.env["WALLD_RECORDED"];
  const own = join(PACKAGE, "../../walld/cli/demo/reply.sse");
  const others = ["basic_response", "tool_use_response", "incomplete_partial_json_response"]
    .map((name) => join(folder ?? "", `sse/anthropic-${name}.sse`))
    .filter((path) => existsSync(path));
  if (others.length === 0) t.diagnostic("WALLD_RECORDED names no folder with sse/anthropic-*.sse: one recording only");
  for (const path of [own, ...others]) {
    replay.file = readFileSync(path);
    const plain = await delivered(modelOf(replay, "anthropic", "file", null));
    const reply = client.reply(path);
    const { parts, thrown } = await delivered(modelOf(replay, "anthropic", "file", reply));
    assert.deepEqual(comparable({ parts, thrown }), comparable(plain));
    const found = (await client.recover(path))!;
    assert.ok(found.text.length > 0);
    assert.equal(found.text, said(parts, "text-delta"));
    const deltas = parts.filter((part) => part["type"] === "tool-input-delta").map((part) => part["delta"]);
    const calls = found.segments.filter((one) => one.kind === "tool").map((one) => one.arguments ?? "");
    assert.equal(calls.join(""), deltas.join(""), path);
    reply.end();
  }
});

test("the sink of a UI message stream: the body is untouched, and comes back", async (t) => {
  const { client, replay } = await setUp(t);
  for (const name of ["think", "text:eof3", "text:err4", "text:cut4", "tool"]) {
    const reply = client.reply(`ui ${name}`);
    const isTool = name === "tool";
    const ask = (model: ReturnType<typeof modelOf>) =>
      streamText({ model, prompt: "?", maxRetries: 0, onError: () => undefined, ...(isTool ? { tools: { weather }, stopWhen: stepCountIs(3) } : {}) });
    const withoutIds = (body: string) => body.replace(/"messageId":"[^"]*"/g, "");
    const plain = await ask(modelOf(replay, "anthropic", name, null)).toUIMessageStreamResponse({ sendReasoning: true });
    let sink: Promise<void> | undefined;
    const response = ask(modelOf(replay, "anthropic", name, null)).toUIMessageStreamResponse({
      sendReasoning: true,
      consumeSseStream: (options) => (sink = walldSseSink(reply)(options)),
    });
    const body = await bodyOf(response);
    await sink;
    assert.equal(withoutIds(body), withoutIds(await bodyOf(plain)));
    const chunks = body.split("\n\n").filter((one) => one.startsWith("data: {")).map((one) => JSON.parse(one.slice(6)));
    const text = (type: string) => chunks.map((one) => (one.type === type ? one.delta : "")).join("");
    if (name.includes(":")) assert.equal(reply.end(), 0, name);
    const found = (await client.recover(reply.sessionId))!;
    assert.equal(found.text, text("text-delta"), name);
    assert.equal(recovered(found, "reasoning"), text("reasoning-delta"), name);
    const expected: Record<string, [string, string | null]> = {
      think: ["live", null],
      "text:eof3": ["errored", "no_terminal_event"],
      "text:err4": ["errored", "Error"],
      "text:cut4": ["errored", "AI_APICallError"],
      tool: ["live", null],
    };
    assert.deepEqual([found.status, found.error?.kind ?? null], expected[name], name);
    if (isTool) {
      assert.deepEqual(spoken(found).map((one) => [one.kind, one.step]), [["tool", 0], ["text", 1]]);
      assert.deepEqual(spoken(found)[0]!.result, { city: "Oslo", degrees: 4 });
    }
  }
});

test("what cannot be recorded is told, and changes nothing", async (t) => {
  const client = shared.client({ redact: () => { throw new Error("redact failed"); } });
  const replay = await ModelServer.started(t);
  const plain = await delivered(modelOf(replay, "chat", "think", null));
  const wrapped = await delivered(modelOf(replay, "chat", "think", client.reply("odd")));
  assert.deepEqual(comparable(wrapped), comparable(plain));
});

test("first among other middleware it records what the program gets, last what they are given", async (t) => {
  const { client } = await setUp(t);
  const extract = extractReasoningMiddleware({ tagName: "think" });
  for (const [order, text, reasoning] of [["first", SAID, THOUGHT], ["last", `<think>${THOUGHT}</think>${SAID}`, ""]] as const) {
    const reply = client.reply(`${order} of two`);
    const own = walldMiddleware(reply);
    const chunks = [
      { type: "text-start", id: "1" },
      ...[`<th`, `ink>${THOUGHT}`, "</think>", SAID].map((delta) => ({ type: "text-delta", id: "1", delta })),
      { type: "text-end", id: "1" },
      { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage: {} },
    ];
    const model = wrapLanguageModel({
      model: new MockLanguageModelV3({ doStream: async () => ({ stream: simulateReadableStream({ chunks }) }) as never }),
      middleware: order === "first" ? [own, extract] : [extract, own],
    });
    const { parts } = await delivered(model);
    assert.equal(said(parts, "text-delta"), SAID);
    const found = (await client.recover(reply.sessionId))!;
    assert.deepEqual([recovered(found, "text"), recovered(found, "reasoning")], [text, reasoning], order);
    reply.end();
  }
});
