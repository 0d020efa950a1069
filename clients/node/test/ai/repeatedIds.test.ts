/** Model servers that use the same call ids again (`call_0` in each answer), with the real `ai` package. */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { generateText, stepCountIs, streamText, wrapLanguageModel } from "ai";
import { MockLanguageModelV3, convertArrayToReadableStream } from "ai/test";
import type { Reply } from "walld-client";
import { walldMiddleware } from "walld-client/ai";

import { weather } from "./models.js";
import { Daemon } from "../support/daemon.js";

/** None of these tests kills it. */
const shared = await Daemon.started({ after });

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const text = (delta: string) => [
  { type: "text-start", id: "1" },
  { type: "text-delta", id: "1", delta },
  { type: "text-end", id: "1" },
];
const call = (city: string) => ({
  type: "tool-call", toolCallId: "call_0", toolName: "weather", input: JSON.stringify({ city }),
});
const end = (unified: string) => ({ type: "finish", finishReason: { unified, raw: unified }, usage });
/** What a server says to the nth request; it is cut where the answer has no end. */
type Says = (request: number) => object[];

function modelOf(reply: Reply, says: Says) {
  let requests = 0;
  const doStream = () => {
    const parts = [{ type: "stream-start", warnings: [] }, ...says(requests++)];
    return Promise.resolve({ stream: convertArrayToReadableStream(parts) });
  };
  const doGenerate = () => {
    const parts = says(requests++) as { type: string; delta?: string; finishReason?: unknown }[];
    const content = parts.filter((one) => /tool-call|text-delta/.test(one.type)).map((one) =>
      one.type === "tool-call" ? one : { type: "text", text: one.delta! });
    return Promise.resolve({ content, finishReason: parts.at(-1)!.finishReason, usage, warnings: [] });
  };
  const model = new MockLanguageModelV3({ doStream: doStream as never, doGenerate: doGenerate as never });
  return wrapLanguageModel({ model, middleware: walldMiddleware(reply) });
}

const run = { tools: { weather }, stopWhen: stepCountIs(9), maxRetries: 0, onError: () => undefined };
type Messages = NonNullable<Parameters<typeof streamText>[0]["messages"]>;

/** Cities of the results that the program saw. */
async function streamed(model: ReturnType<typeof modelOf>, messages: Messages) {
  const result = streamText({ model, messages, ...run });
  const cities: string[] = [];
  for await (const part of result.fullStream) {
    if (part.type === "tool-result") cities.push((part.output as { city: string }).city);
  }
  return cities;
}

/** Cities asked for, those of the results that are kept, what became of each. */
async function kept(reply: Reply) {
  const found = (await shared.client().recover({ streamId: reply.streamId }))!;
  const calls = found.segments.filter((one) => one.kind === "tool");
  return {
    found,
    asked: calls.map((one) => (JSON.parse(one.arguments!) as { city: string }).city),
    told: calls.map((one) => (one.result as { city: string } | null)?.city ?? null),
  };
}

test("each call of a run has its own step's result", async () => {
  const client = shared.client();
  const says: Says = (n) => (n < 3 ? [call(`c${n}`), end("tool-calls")] : [...text("Done."), end("stop")]);
  const cities = ["c0", "c1", "c2"];
  const reply = client.reply("steps");
  assert.deepEqual(await streamed(modelOf(reply, says), [{ role: "user", content: "?" }]), cities);
  const { asked, told } = await kept(reply);
  assert.deepEqual([asked, told], [cities, cities]);
  reply.end();

  const whole = client.reply("whole steps");
  await generateText({ model: modelOf(whole, says), prompt: "?", tools: { weather }, stopWhen: stepCountIs(9) });
  const generated = await kept(whole);
  assert.deepEqual([generated.asked, generated.told], [cities, cities]);
  whole.end();
});

/** A turn of before, up to its result, whose call had the same id. */
const turnOf = (city: string): Messages => [
  { role: "user", content: "?" },
  { role: "assistant", content: [{ type: "tool-call", toolCallId: "call_0", toolName: "weather", input: { city } }] },
  { role: "tool", content: [{ type: "tool-result", toolCallId: "call_0", toolName: "weather", output: { type: "json", value: { city } } }] },
];
const HISTORY = turnOf("old");

test("each turn of a conversation has its own result", async () => {
  const client = shared.client();
  const messages: Messages = [];
  for (const turn of ["turn1", "turn2"]) {
    const says: Says = (n) => (n < 1 ? [call(turn), end("tool-calls")] : [...text("Done."), end("stop")]);
    const reply = client.reply(turn);
    const asked: Messages = [...messages, { role: "user", content: "?" }];
    assert.deepEqual([await streamed(modelOf(reply, says), asked), (await kept(reply)).told], [[turn], [turn]]);
    messages.push(...turnOf(turn), { role: "assistant", content: "Done." });
    reply.end();
  }
});

for (const [what, messages] of [
  ["behind an answer", [...HISTORY, { role: "assistant", content: "a" }, { role: "user", content: "?" }]],
  ["the last of the prompt", HISTORY],
] as [string, Messages][]) {
  test(`a result of history is not of a call that was cut: ${what}`, async () => {
    const client = shared.client();
    for (const how of ["failed", "left"]) {
      const says: Says = (n) => {
        if (n > 0) return [...text("I look it up. "), ...text("Done."), end("stop")];
        const broken = [...text("I look it up. "), { type: "tool-input-start", id: "call_0", toolName: "weather" }];
        return how === "left" ? broken : [...broken, { type: "error", error: new Error("cut") }];
      };
      const reply = client.reply(`${what} ${how}`);
      const model = modelOf(reply, says);
      for (let asked = 0; asked < 2; asked += 1) {
        const isLeft = how === "left" && asked === 0;
        for await (const part of streamText({ model, messages, ...run }).fullStream) {
          if (isLeft && part.type === "tool-input-start") break;
        }
      }
      const found = (await client.recover({ streamId: reply.streamId }))!;
      assert.equal(found.text, "I look it up. Done.", how);
      const cut = found.segments.find((one) => one.kind === "tool")!;
      assert.deepEqual([cut.attempt, cut.outcome, cut.result ?? null], [0, "unknown", null], how);
      assert.ok(reply.end() > 0);
    }
  });
}

/** Two calls of one id in one answer: whole; in pieces, one behind the other; in pieces, mixed. */
const begun = { type: "tool-input-start", id: "call_0", toolName: "weather" };
const piece = (delta: string) => ({ type: "tool-input-delta", id: "call_0", delta });
const TWO: Record<string, object[]> = {
  whole: [call("a"), call("b")],
  "in pieces": ["a", "b"].flatMap((city) => [begun, piece('{"city":'), piece(`"${city}"}`), call(city)]),
  mixed: [begun, piece('{"city":'), begun, piece('{"city":"b"}'), piece('"a"}'), call("a"), call("b")],
};

for (const [how, parts] of Object.entries(TWO)) {
  test(`two calls of one id in one answer stay two, each with its result: ${how}`, async () => {
    const client = shared.client();
    const says: Says = (n) => (n < 1 ? [...parts, end("tool-calls")] : [...text("Done."), end("stop")]);
    const reply = client.reply(`two calls ${how}`);
    const cities = await streamed(modelOf(reply, says), [{ role: "user", content: "?" }]);
    const { asked, told, found } = await kept(reply);
    assert.deepEqual([cities.sort(), asked, told], [["a", "b"], ["a", "b"], ["a", "b"]]);
    const calls = found.segments.filter((one) => one.kind === "tool");
    assert.deepEqual(calls.map((one) => one.callId), ["call_0", "call_0#2"]);
    assert.deepEqual(calls.map((one) => one.info ?? null), [null, { given_id: "call_0" }]);
    assert.equal(found.text, "Done.");
    reply.end();
  });
}

test("the program's own results of two calls of one id: by name, then in order", async () => {
  const reply = shared.client().reply("own results");
  reply.tool("f", { a: 1 }, { callId: "k" });
  reply.tool("g", { b: 2 }, { callId: "k#2", info: { given_id: "k" } });
  reply.toolResult("of g", { callId: "k", name: "g" });
  reply.toolResult("of f", { callId: "k" });
  const found = (await shared.client().recover({ streamId: reply.streamId }))!;
  assert.deepEqual(found.segments.map((one) => [one.name, one.result]), [["f", "of f"], ["g", "of g"]]);
  reply.end();
});

test("where a prompt has two new results of one id, neither is the call's", async () => {
  const client = shared.client();
  const reply = client.reply("two");
  const says: Says = (n) => (n < 1 ? [call("c"), end("tool-calls")] : [...text("Done."), end("stop")]);
  const model = modelOf(reply, says);
  const [, asking, told] = HISTORY;
  for (const messages of [[HISTORY[0]!], [HISTORY[0]!, asking!, told!, told!]]) {
    const result = streamText({ model, messages, maxRetries: 0 });
    await result.consumeStream();
  }
  const { told: cities, found } = await kept(reply);
  assert.deepEqual([cities, found.text], [[null], "Done."]);
  reply.end();
});
