/** Parts of an answer that are neither text nor a call with arguments, and answers that go on. */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { convertArrayToReadableStream } from "ai/test";
import { walldMiddleware, walldSseSink } from "walld-client/ai";

import { delivered, modelCalls, modelOf, spoken } from "./models.js";
import { ModelServer } from "./modelServer.js";
import { Daemon } from "../support/daemon.js";

const shared = await Daemon.started({ after });
const client = shared.client();
const END = { type: "finish", finishReason: { unified: "stop", raw: "end_turn" } };
type Reply = ReturnType<typeof client.reply>;

async function read(reply: Reply, parts: unknown[], options: { continues?: boolean } = {}): Promise<void> {
  const doStream = () => Promise.resolve({ stream: convertArrayToReadableStream<unknown>(parts) });
  const { stream } = await walldMiddleware(reply, options).wrapStream({ doStream, params: { prompt: [] } });
  for await (const _ of stream);
}

async function whole(reply: Reply, content: unknown[]): Promise<void> {
  const doGenerate = () => Promise.resolve({ content, finishReason: END.finishReason });
  await walldMiddleware(reply).wrapGenerate({ doGenerate, params: { prompt: [] } });
}

async function shown(reply: Reply, chunks: unknown[]): Promise<void> {
  const texts = chunks.map((one) => `data: ${JSON.stringify(one)}\n\n`);
  await walldSseSink(reply)({ stream: convertArrayToReadableStream(texts) });
}

async function found(name: string) {
  return (await client.recover(name))!;
}

/** Kind and what it holds of each. */
async function told(name: string) {
  return spoken(await found(name)).map((one) => (one.kind === "custom" ? [one.name, one.result] : [one.kind, one.text]));
}

test("a call without arguments is whole once it came", async () => {
  const start = { type: "tool-input-start", id: "c", toolName: "now" };
  const ways: Record<string, unknown[]> = {
    "an input of nothing": [{ type: "tool-call", toolCallId: "c", toolName: "now", input: "" }],
    "of white space": [{ type: "tool-call", toolCallId: "c", toolName: "now", input: " " }],
    "begun before": [start, { type: "tool-call", toolCallId: "c", toolName: "now", input: "" }],
    "an empty delta": [
      start,
      { type: "tool-input-delta", id: "c", delta: "" },
      { type: "tool-call", toolCallId: "c", toolName: "now", input: "{}" },
    ],
  };
  for (const [name, parts] of Object.entries(ways)) {
    await read(client.reply(name), [...parts, END]);
    const [call] = spoken(await found(name));
    assert.deepEqual([call!.arguments, call!.argumentsComplete], ["{}", true], name);
  }
  await whole(client.reply("whole none"), ways["an input of nothing"]!);
  assert.equal(spoken(await found("whole none"))[0]!.arguments, "{}");
  await read(client.reply("cut none"), [start]);
  assert.equal(spoken(await found("cut none"))[0]!.argumentsComplete, false, "nobody knows");
});

test("what must be sent back with a thought is kept, in its place", async () => {
  const signed = { anthropic: { signature: "SIG" } };
  const parts = [
    { type: "reasoning-start", id: "0" },
    { type: "reasoning-delta", id: "0", delta: "one" },
    { type: "reasoning-delta", id: "0", delta: "", providerMetadata: signed },
    { type: "reasoning-end", id: "0" },
    { type: "text-delta", id: "1", delta: "I look." },
    { type: "reasoning-start", id: "2", providerMetadata: { anthropic: { redactedData: "RED" } } },
    { type: "reasoning-end", id: "2" },
    { type: "reasoning-start", id: "3", providerMetadata: { openai: { itemId: "rs", reasoningEncryptedContent: null } } },
    { type: "reasoning-end", id: "3", providerMetadata: { openai: { itemId: "rs", reasoningEncryptedContent: "gAAA" } } },
    { type: "tool-call", toolCallId: "c", toolName: "f", input: "{}", providerMetadata: { google: { thoughtSignature: "TS" } } },
  ];
  await read(client.reply("signed"), [...parts, END]);
  assert.deepEqual(await told("signed"), [
    ["reasoning", "one"],
    ["signature", signed],
    ["text", "I look."],
    ["signature", { anthropic: { redactedData: "RED" } }],
    ["signature", { openai: { reasoningEncryptedContent: "gAAA" } }],
    ["tool", ""],
    ["signature", { google: { thoughtSignature: "TS" } }],
  ]);
  await whole(client.reply("signed whole"), [{ type: "reasoning", text: "one", providerMetadata: signed }]);
  assert.deepEqual(await told("signed whole"), [["reasoning", "one"], ["signature", signed]]);
});

test("a part that nobody knows stands where it came", async () => {
  const text = (delta: string) => ({ type: "text-delta", id: "1", delta });
  const file = { type: "file", mediaType: "text/plain", data: "AAAA" };
  const strange = { type: "hologram", size: 3 };
  const known = [{ type: "stream-start", warnings: [] }, { type: "text-start", id: "1" }, { type: "raw", rawValue: 1 }];
  const expected = [["text", "a"], ["unknown_block", { block: file }], ["unknown_block", { block: strange }], ["text", "b"]];
  await read(client.reply("strange"), [...known, text("a"), file, strange, text("b"), { type: "text-end", id: "1" }, END]);
  assert.deepEqual(await told("strange"), expected);
  const content = [{ type: "text", text: "a" }, file, strange, { type: "text", text: "b" }];
  await whole(client.reply("strange whole"), content);
  assert.deepEqual(await told("strange whole"), expected);
  const own = [{ type: "start" }, { type: "data-weather", data: 4 }, { type: "message-metadata" }, { type: "start-step" }];
  const chunks = [...own, text("a"), file, strange, text("b"), { type: "finish-step" }, { type: "finish", finishReason: "stop" }];
  await shown(client.reply("strange shown"), chunks);
  assert.deepEqual(await told("strange shown"), expected);
});

test("an end that asks to be continued is not whole, whatever the program says", async (t) => {
  const replay = await ModelServer.started(t);
  const usage = { input_tokens: 1, output_tokens: 1 };
  const message = { id: "m", type: "message", role: "assistant", model: "m", content: [], stop_reason: null, usage };
  const events = [
    { type: "message_start", message },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "Let me see." } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Let me see." } },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: "pause_turn", stop_sequence: null }, usage },
    { type: "message_stop" },
  ];
  replay.file = Buffer.from(events.map((one) => `event: ${one.type}\ndata: ${JSON.stringify(one)}\n\n`).join(""));
  const reply = client.reply("paused", { autoRelease: false });
  await delivered(modelOf(replay, "anthropic", "file", reply));
  reply.end();
  const { status, partial, partialReason } = await found("paused");
  assert.deepEqual([status, partial, partialReason], ["complete", true, "provider_paused"]);
  const other = client.reply("paused and on", { autoRelease: false });
  await read(other, [{ type: "text-delta", id: "1", delta: "Let" }, { ...END, finishReason: { unified: "stop", raw: "pause_turn" } }]);
  await read(other, [{ type: "text-delta", id: "1", delta: " me." }, END]);
  other.end();
  assert.equal((await found("paused and on")).partial, false);
});

test("a program that says that an answer continues the one before", async () => {
  const half = [{ type: "text-delta", id: "1", delta: "Hello " }];
  const rest = [{ type: "text-delta", id: "1", delta: "world." }, END];
  const cases: [boolean | undefined, number, string][] = [[true, 1, "Hello world."], [false, 2, "world."], [undefined, 2, "world."]];
  for (const [continues, attempts, text] of cases) {
    const reply = client.reply(`continues ${continues}`, { autoRelease: false });
    await read(reply, half);
    await read(reply, rest, continues === undefined ? {} : { continues });
    assert.ok(reply.end() > 0);
    const one = await found(reply.sessionId);
    assert.deepEqual([one.status, one.attempts, one.text], ["complete", attempts, text]);
    if (continues === true) assert.equal(modelCalls(one)["0.0"]?.["status"], undefined, "nobody tells of the model here");
  }
  const alone = client.reply("continues nothing");
  await read(alone, rest, { continues: true });
  const found1 = await found("continues nothing");
  assert.deepEqual([found1.attempts, found1.text], [1, "world."]);
});

test("an answer that is continued behind a whole one is a step like any", async () => {
  const reply = client.reply("whole and on");
  for (const delta of ["One.", "Two."]) await read(reply, [{ type: "text-delta", id: "1", delta }, END], { continues: true });
  const steps = spoken(await found("whole and on")).map((one) => [one.text, one.step]);
  assert.deepEqual(steps, [["One.", 0], ["Two.", 1]]);
});

test("what continues is true or false", () => {
  const wrong = { continues: "yes" } as never;
  assert.throws(() => walldMiddleware(client.reply("wrong"), wrong), { name: "TypeError", message: /continues must be true or false, got 'yes'/ });
});
