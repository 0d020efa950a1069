/** A reply on a real daemon: every call, what comes back, and how a reply ends. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Refused, Unavailable, connect } from "walld-client";

import { Daemon, until } from "../support/daemon.js";

/** For the tests that do not kill it. */
const shared = await Daemon.started({ after });

test("what is known of the model's call is checked, and is the event that the Python client sends", async () => {
  const client = shared.client();
  const reply = client.reply("model's", { streamId: "of a model" });
  const about = { status: "error", model: "m\ud83d", usage: { input_tokens: 7, cost: 0.25 }, errorClass: "timeout" } as const;
  assert.equal(reply.modelCall(about), 1);
  assert.equal(reply.modelCall({ requestId: "\u{1f600}".repeat(256), toolsHash: "ab12", provider: "p" }), 2);
  const wrong: [object, RegExp][] = [
    [{}, /modelCall needs one of model, provider, .*, errorClass, got none/],
    [{ model: "" }, /^RangeError: model must be 1 to 256 characters, got ''/],
    [{ requestId: "x".repeat(257) }, /^RangeError: requestId must be 1 to 256 characters/],
    [{ usage: [7] }, /^TypeError: usage must be an object of numbers/],
    [{ usage: { input_tokens: -1 } }, /^RangeError: usage\["input_tokens"\] must be a number from 0, got -1/],
    [{ usage: { input_tokens: NaN } }, /must be a number from 0, got NaN/],
    [{ usage: { "": 1 } }, /usage must be with names of 1 to 256 characters, got ''/],
    [{ usage: Object.fromEntries(Array.from({ length: 33 }, (_, at) => [at, at])) }, /at most 32 numbers, got 33/],
    [{ status: "done" }, /^RangeError: status must be one of complete, partial, cancelled, error, got 'done'/],
    [{ errorKind: "timeout" }, /^TypeError: there is no option errorKind/],
  ];
  for (const [given, said] of wrong) assert.throws(() => reply.modelCall(given), (error) => said.test(String(error)));
  assert.ok(await reply.drain());
  const segments = (await client.recover("model's"))!.segments;
  assert.deepEqual(segments.map((one) => [one.kind, one.name]), [["custom", "model_call"], ["custom", "model_call"]]);
  const [first, second] = segments.map((one) => Object.entries(one.result as object));
  assert.deepEqual(first, [["model", "m\ufffd"], ["usage", { input_tokens: 7, cost: 0.25 }], ["status", "error"], ["error_class", "timeout"]]);
  assert.deepEqual(second!.map(([name]) => name), ["provider", "request_id", "tools_hash"]);
});

test("everything a reply says comes back", async () => {
  const client = shared.client();
  const meta = { model: "m-1", at: Date.now(), big: 2n ** 63n, "half\ud83d": undefined, none: null };
  const reply = client.reply("chat-1", { streamId: "run-17", parent: "run-16", meta });
  assert.equal(reply.reasoning("because "), 1);
  assert.equal(reply.tool("weather", undefined, { callId: "c1", info: { a: [1n, 2.5] } }), 2);
  reply.toolArguments('{"city":', { callId: "c1" });
  reply.toolArguments('"Oslo"}', { callId: "c1" });
  reply.toolResult({ degrees: 4 }, { callId: "c1" });
  reply.tool("lookup", { q: 1 });
  reply.toolResult("nothing", { name: "lookup", failed: true });
  reply.event("progress", { done: 0.5, at: 1_790_000_000_123 });
  reply.step({ n: 2 });
  reply.token("4 degrees \ud83d");
  reply.token("\ude00 and \udc00 alone", { logprob: -0.25 });
  const last = reply.finish("stop");
  assert.equal(last, 12);
  assert.ok(await reply.drain({ level: "synced" }));
  assert.equal(reply.durableSeq, 12);
  assert.equal(reply.sentSeq, 12);

  const found = await client.recover("chat-1");
  assert.ok(found !== null);
  assert.equal(found.streamId, "run-17");
  assert.equal(found.parent, "run-16");
  assert.equal(found.status, "live");
  assert.ok(found.ownerAlive);
  assert.deepEqual(found.meta, { model: "m-1", at: meta.at, big: 2n ** 63n, none: null });
  assert.equal(found.text, "4 degrees \u{1f600} and \udc00 alone");
  assert.equal(found.lastSeq, 12);
  assert.equal(found.events, 12);
  assert.deepEqual(found.gaps, []);
  const kinds = found.segments.map((one) => one.kind);
  assert.deepEqual(kinds, ["reasoning", "tool", "tool", "custom", "text", "text"]);
  const [, weather, lookup, progress] = found.segments;
  assert.equal(weather!.arguments, '{"city":"Oslo"}');
  assert.deepEqual(weather!.result, { degrees: 4 });
  assert.deepEqual(weather!.info, { a: [1, 2.5] });
  assert.equal(lookup!.callId, "run-17:6");
  assert.equal(lookup!.outcome, "failed");
  assert.deepEqual(progress!.result, { done: 0.5, at: 1_790_000_000_123 });
  const messages = found.messages();
  assert.equal(messages.length, 2);
  assert.equal(messages[0]!.tool_calls!.length, 2);
  assert.equal(messages[1]!.content, found.text);
  assert.equal(messages[1]!._wal_seq, 10);
  assert.throws(() => found.toMessage(), RangeError);

  await assert.rejects(client.resolve("run-17"), (error: unknown) => {
    assert.ok(error instanceof Refused);
    assert.equal(error.code, "refused");
    return true;
  });
  reply.end();
  assert.equal(await client.recover("chat-1"), null);
});

test("a step that is done again leaves the steps before it, a whole retry does not", async () => {
  const client = shared.client();
  const reply = client.reply("again");
  reply.tool("weather", {}, { callId: "c" });
  reply.toolResult("4 degrees", { callId: "c" });
  reply.step();
  reply.token("Four de");
  reply.retry("cut", { step: true });
  reply.token("Four degrees.");
  const roles = async () => {
    const found = (await client.recover("again"))!;
    const told = found.messages("openai").map((one) => [one.role, one.content ?? null]);
    return [found.attempts, found.text, ...told];
  };
  const second = ["assistant", "Four degrees."];
  assert.deepEqual(await roles(), [2, "Four degrees.", ["assistant", null], ["tool", "4 degrees"], second]);
  reply.retry("all of it");
  reply.token("Five.");
  assert.deepEqual(await roles(), [3, "Five.", ["assistant", "Five."]]);
  reply.end();
});

test("five ends are five readings, and the first one wins", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const ended = (name: string) => client.reply(name, { streamId: name });
  const complete = ended("complete");
  complete.token("x");
  await complete.run(() => undefined);
  const cancelled = ended("cancelled");
  cancelled.cancel("user");
  assert.equal(cancelled.error("too late"), 0);
  assert.equal(cancelled.token("too late"), 0);
  const errored = ended("errored");
  errored.error("boom", { kind: "auth", detail: { code: 7 } });
  const thrown = ended("thrown");
  const boom = new TypeError("said so");
  await assert.rejects(
    thrown.run(() => {
      thrown.token("part");
      throw boom;
    }),
    (error) => error === boom,
  );
  const aborted = ended("aborted");
  const abort = new AbortController();
  abort.abort();
  await assert.rejects(aborted.run(() => abort.signal.throwIfAborted()));
  const left = ended("left");
  left.token("y");
  left[Symbol.dispose]();
  const left2 = ended("left-async");
  await left2[Symbol.asyncDispose]();
  const released = ended("kept");
  released.end();
  const manual = client.reply("manual", { autoRelease: false });
  assert.throws(() => manual.release(), RangeError);
  manual.end("stop");

  const seen = Object.fromEntries(
    (await client.recoverAll()).map((one) => [one.sessionId, [one.status, one.lostReason, one.error]]),
  );
  assert.deepEqual(seen, {
    complete: ["complete", null, null],
    cancelled: ["cancelled", "user", null],
    errored: ["errored", null, { message: "boom", kind: "auth", detail: { code: 7 } }],
    thrown: ["errored", null, { message: "said so", kind: "TypeError", detail: null }],
    aborted: ["cancelled", "cancelled: AbortError", null],
    left: ["cancelled", "left without an end", null],
    "left-async": ["cancelled", "left without an end", null],
    manual: ["complete", null, null],
  });
  assert.equal(client.stats().late, 2);
  assert.ok(client.release(manual.streamId));
  assert.equal(client.release(manual.streamId), false);
  assert.equal(client.release("nobody"), false);
  assert.equal(await client.hasPartial("manual"), false);
});

test("a retry is a new attempt, a move another session", async () => {
  const client = shared.client();
  const reply = client.reply("old");
  reply.token("Hel");
  reply.retry("overloaded");
  reply.token("Hello");
  reply.move("new");
  assert.equal(reply.sessionId, "new");
  const found = await client.recover("new");
  assert.equal(found!.text, "Hello");
  assert.equal(found!.attempts, 2);
  assert.equal(found!.segments[0]!.text, "Hel");
  assert.equal(await client.recover("old"), null);
});

test("text longer than a frame is split, other content is cut and says so", async () => {
  const client = shared.client();
  const reply = client.reply("long");
  const text = "\u{1f600}ü".repeat(400_000);
  assert.equal(reply.token(text), 3);
  const result = "r".repeat(2 * 1024 * 1024);
  reply.tool("t", {}, { callId: "c" });
  reply.toolResult(result, { callId: "c" });
  assert.ok(await reply.drain());
  const found = await client.recover("long");
  assert.equal(found!.text, text);
  const tool = found!.segments.at(-1)!;
  assert.equal(tool.truncated, result.length);
  assert.ok((tool.result as string).length > 1_000_000);
});

test("mistakes of the program are thrown, nothing else is", (t) => {
  const client = connect("/nowhere/at/all");
  t.after(() => client.close());
  assert.throws(() => client.reply(""), RangeError);
  assert.throws(() => client.reply("\ud83d"), RangeError);
  assert.throws(() => client.reply("s", { streamId: "x".repeat(1025) }), RangeError);
  const reply = client.reply("s");
  assert.throws(() => reply.token(7 as unknown as string), TypeError);
  assert.throws(() => reply.drain({ level: "soon" as "synced" }), RangeError);
  const loop: Record<string, unknown> = {};
  loop["self"] = loop;
  const hostile = { toJSON: () => { throw new Error("no"); }, toString: () => { throw new Error("no"); } };
  for (const value of [loop, hostile, () => 1, Symbol("s"), undefined, NaN, 10n ** 30n, "\ud83d", new Map([[1, 2]]), new Date(NaN), Object.create(null)]) {
    assert.ok(reply.event("any", value) > 0);
    assert.ok(reply.tool("t", value) > 0);
    assert.ok(reply.toolResult(value) > 0);
    assert.ok(reply.token("x", { value }) > 0);
  }
});

/** Nodes that name their parent: back at the root in as many ways as it has children. */
function tree(): object {
  const root = { name: "root", seen: new Date(0), children: [] as object[] };
  for (const name of ["a", "b"]) root.children.push({ name, parent: root, seen: root.seen, children: [] });
  return root;
}

test("a value that has itself within it in two ways is sent, each part of it once", async () => {
  const at = "1970-01-01T00:00:00.000Z";
  const children = ["a", "b"].map((name) => ({ name, parent: "[object Object]", seen: at, children: [] }));
  const told = { name: "root", seen: at, children };
  const reply = shared.client().reply("looped", { meta: { tree: tree() } });
  reply.tool("t", tree(), { callId: "c" });
  reply.toolResult(tree(), { callId: "c" });
  reply.event("e", tree());
  const all: unknown[][] = Array.from({ length: 100 }, () => []);
  for (const one of all) one.push(...all); // as many ways through it as there are orders of its parts
  reply.event("all", all);
  reply.error("no", { detail: tree() });
  const found = await shared.client().recover("looped");
  assert.deepEqual(found!.meta, { tree: told });
  assert.deepEqual(JSON.parse(found!.segments[0]!.arguments!), told);
  assert.deepEqual(found!.segments[0]!.result, told);
  assert.deepEqual(found!.error!.detail, told);
});

test("what redact is given is what is sent", async () => {
  const client = shared.client({ redact: (text) => text.replaceAll("secret", "***") });
  const reply = client.reply("private");
  reply.token("a secret");
  reply.tool("t", { key: "secret" }, { callId: "c" });
  reply.toolResult("secret", { callId: "c" });
  reply.error("the secret failed");
  const found = await client.recover("private");
  assert.equal(found!.text, "a ***");
  assert.equal(found!.segments[1]!.arguments, '{"key":"***"}');
  assert.equal(found!.segments[1]!.result, "***");
  assert.equal(found!.error!.message, "the *** failed");
});

test("redact is given what JSON, reasons and details hold", async () => {
  const secret = '-----BEGIN KEY-----\nMII"x\\y';
  const client = shared.client({ redact: (text) => text.replaceAll(secret, "***") });
  const reply = client.reply("deep");
  reply.tool("t", { a: [secret, 1, { b: `say ${secret}` }] }, { callId: "c" });
  reply.tool("t", JSON.stringify({ a: secret }), { callId: "d" });
  reply.toolResult({ key: secret }, { callId: "c" });
  const deep = (text: string): string => "[".repeat(5000) + JSON.stringify(text) + "]".repeat(5000);
  reply.tool("t", deep("plain"), { callId: "e" });
  reply.tool("t", `{ "n": 12345678901234567890, "s": ${JSON.stringify(secret)} }`, { callId: "g" });
  reply.tool("t", deep(secret), { callId: "f" }); // neither overflows the stack
  reply.retry(`because ${secret}`);
  reply.finish(secret);
  reply.error("no", { detail: { headers: [secret] } });
  const found = await client.recover("deep");
  const told = JSON.stringify(found);
  assert.ok(!told.includes("BEGIN"), told);
  assert.equal(found!.finishReason, "***");
  assert.ok(found!.segments.some((one) => one.arguments === deep("plain")), "nothing to hide: as it is");
  const around = found!.segments.find((one) => one.callId === "g");
  assert.equal(around!.arguments, '{ "n": 12345678901234567890, "s": "***" }', "numbers as they are written");
});

test("a reply that nobody holds any more is abandoned", async () => {
  const client = shared.client();
  (() => client.reply("left", { streamId: "left" }).token("x"))();
  const collect = (globalThis as { gc?: () => void }).gc;
  assert.ok(collect, "node --expose-gc");
  const found = await until(async () => {
    collect();
    await sleep(5);
    const one = await client.recover("left");
    return one!.status === "cancelled" ? one : null;
  }, "an end");
  assert.equal(found!.lostReason, "abandoned");
  assert.ok(client.release("left"));
});

test("no daemon: requests cannot know, events wait for it", async (t) => {
  const daemon = new Daemon(t);
  const client = daemon.client();
  const warnings: string[] = [];
  const listen = (warning: Error): void => void warnings.push(warning.message);
  process.on("warning", listen);
  t.after(() => process.off("warning", listen));
  const reply = client.reply("early");
  for (let n = 0; n < 500; n += 1) reply.token(`${n} `);
  assert.equal(reply.sentSeq, -1);
  assert.equal(client.stats().backlog, 501);
  assert.ok(client.stats().backlogBytes < 40_000, "tokens that wait are folded");
  await assert.rejects(client.recover("early"), Unavailable);
  assert.equal(await client.hasPartial("early"), null);
  assert.match(await client.check(), /^not recoverable: no walld/);
  await daemon.start();
  assert.ok(await reply.drain({ timeoutMs: 10_000 }));
  const found = await client.recover("early");
  assert.equal(found!.text, Array.from({ length: 500 }, (_, n) => `${n} `).join(""));
  assert.equal(reply.sentSeq, 500);
  assert.match(await client.check(), /^recoverable: walld at .* has taken all 501 events/);
  const own = warnings.filter((text) => text.includes(daemon.socket));
  assert.equal(own.length, 1, own.join("\n"));
  assert.match(own[0]!, /cannot be reached.*ENOENT.*uid/);
});
