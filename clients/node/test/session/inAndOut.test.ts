/**
 * What goes in comes out: what a program says beside its steps, calls and branches is in the views, and what names an
 * entry is taken wherever its id is. As `tests/acceptance/views/test_in_and_out.py` has it of the Python client.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Refused } from "walld-client";

import { Daemon } from "../support/daemon.js";

const shared = await Daemon.started({ after });
const INFO = { model: "m-2", node: { name: "écrire", depth: [1, null, 2.5] }, empty: "" };
type Call = Record<string, unknown> & { id: string; arguments: string };

const contents = (said: Record<string, unknown>[] | null) => said?.map((one) => one["content"]);

test("what steps are told, why attempts began, and what stands beside a call and its result", async () => {
  const client = shared.client();
  const reply = client.reply("told", { autoRelease: false });
  reply.token("one");
  reply.step(INFO);
  reply.token("two");
  reply.tool("both", {}, { callId: "c1", info: { at: "call" } });
  reply.toolResult("r", { callId: "c1", info: { at: "result" } });
  reply.tool("call alone", {}, { callId: "c2", info: { at: "call" } });
  reply.toolResult("r", { callId: "c2" });
  reply.tool("result alone", {}, { callId: "c3" });
  reply.toolResult("r", { callId: "c3", info: { at: "result" } });
  await reply.drain();
  let found = (await client.recover("told"))!;
  assert.deepEqual(found.steps.map(({ at: _, ...one }) => one), [{ attempt: 0, step: 1, seq: 2, info: INFO }]);
  assert.deepEqual(found.messages().map((one) => one._wal_info), [undefined, INFO]);
  const beside = found.segments.filter((one) => one.kind === "tool").map((one) => [one.info, one.resultInfo]);
  assert.deepEqual(beside, [
    [{ at: "call" }, { at: "result" }],
    [{ at: "call" }, null],
    [{ at: "result" }, { at: "result" }],
  ]);
  reply.retry("529: overloaded", { step: true });
  reply.token("two anew");
  reply.retry();
  reply.token("anew");
  await reply.drain();
  found = (await client.recover("told"))!;
  assert.deepEqual(found.retries.map(({ attempt, reason, step }) => [attempt, reason, step]), [
    [1, "529: overloaded", true],
    [2, null, false],
  ]);
  assert.deepEqual(found.steps.map((one) => [one.attempt, one.info]), [[0, INFO], [1, INFO]]);
  assert.deepEqual(found.messages().map((one) => [one.content, one._wal_info]), [["anew", undefined]]);
  reply.cancel();
});

test("a branch is found by its name", async () => {
  const session = shared.client().session("named");
  const first = await session.message("user", "m0");
  for (const name of ["one", "two"]) {
    await session.branch(first, { name });
    await session.message("assistant", `on ${name}`);
  }
  assert.deepEqual(contents(await session.messages({ branch: "one" })), ["m0", "on one"]);
  assert.deepEqual(contents(await session.messages({ branch: "two", last: 1 }))!.at(-1), "on two");
  assert.deepEqual((await session.events(0, { branch: "one" })).at(-1)!.payload["content"], "on one");
  assert.deepEqual(contents(await (await session.fork("one", "named fork")).messages()), ["m0", "on one"]);
  await session.branch("one");
  await session.message("user", "more");
  assert.deepEqual(contents(await session.messages({ branch: "one" })), ["m0", "on one", "more"]);
  assert.deepEqual(contents(await session.messages({ branch: "two" })), ["m0", "on two"]);
  await session.branch(null, { name: "none" });
  assert.deepEqual(contents(await session.messages({ branch: "none" })), []);
  const three = { branch: "three" };
  for (const ask of [() => session.branch("three"), () => session.messages(three), () => session.events(0, three)]) {
    await assert.rejects(ask(), (error) => error instanceof Refused && error.message.includes("three"));
  }
});

test("calls have one shape, whoever spoke of them", async () => {
  const session = shared.client().session("shapes");
  const args = { city: "Oslo", n: [1, null] };
  const long = { text: "x".repeat(300_000) };
  const fn = { name: "weather", arguments: JSON.stringify(args) };
  const meta = (call: object) => ({ meta: { tool_calls: [call] } });
  await session.message("assistant", "", meta({ id: "c1", type: "function", function: fn }));
  await session.message("assistant", "", meta({ id: "c2", name: "weather", arguments: args }));
  await session.message("assistant", "", meta({ id: "c3", type: "tool_use", name: "weather", input: args }));
  await session.message("assistant", "", meta({ id: "c6", name: "weather", arguments: long }));
  const turn = await session.submit("q");
  await turn.intent("weather", args, { sideEffect: "read", resumePolicy: "never-rerun", callId: "c4" });
  const reply = await turn.reply();
  reply.tool("weather", args, { callId: "c5" });
  await reply.drain();
  const calls = (await session.messages())!.flatMap((one) => (one["tool_calls"] ?? []) as Call[]);
  assert.deepEqual(calls.map((one) => one.id).sort(), ["c1", "c2", "c3", "c4", "c5", "c6"]);
  for (const one of calls) {
    assert.equal(one["name"], "weather", one.id);
    assert.deepEqual(JSON.parse(one.arguments), one.id === "c6" ? long : args, one.id);
    assert.equal(one["arguments_complete"], true, one.id);
  }
  assert.deepEqual(calls.find((one) => one.id === "c1")!["function"], fn);
  reply.end();
  await turn.completed();
});

test("an edit of the content keeps the role", async () => {
  const session = shared.client().session("edited");
  const first = await session.message("system", "be good");
  await session.submit("q", { messageId: "m-1" });
  await session.message("developer", "d", { id: "d" });
  await session.edit(first, "be better");
  await session.edit("m-1", { content: "another q" });
  await session.edit("d", [{ type: "text", text: "dd" }]);
  assert.deepEqual((await session.messages())!.map((one) => [one["role"], one["content"]]), [
    ["system", "be better"],
    ["user", "another q"],
    ["developer", [{ type: "text", text: "dd" }]],
  ]);
  await assert.rejects(session.edit("nobody", "z"), Refused);
  await assert.rejects(session.edit(first, { mine: 1 }), TypeError);
});

test("an entry is taken wherever an id is", async () => {
  const client = shared.client();
  const session = client.session("entries");
  const first = await session.message("user", "m0");
  const second = await session.message("user", "m1");
  await session.label(second, "here");
  await session.append("note", {}, { cause: first, correlation: second, parent: second });
  await session.appendMany([{ type: "note", parent: second, cause: first }]);
  assert.deepEqual(contents(await session.messages({ branch: first })), ["m0"]);
  assert.equal((await session.events(0, { branch: first })).at(-1)!.id, first.id);
  assert.deepEqual(contents(await (await session.fork(first, "entries fork")).messages()), ["m0"]);
  await session.compact({ summary: "sum", firstKept: second });
  await session.branch(second);
  const turn = await session.submit("q");
  const risk = { sideEffect: "none", resumePolicy: "never-rerun" } as const;
  const call = await turn.intent("look", {}, risk);
  await turn.toolStarted(call);
  await turn.toolFinished(call, "r");
  await turn.observation(call, "r");
  const other = await turn.intent("look", { n: 1 }, risk);
  await turn.decision(other, "allow");
  await turn.approval(other, "granted");
  await session.settle(other, "did_not_run");
  const retry = await session.submit("q", { retryOf: { id: turn.turnId, seq: 0, isNew: false } });
  const again = await retry.intent("look", { n: 2 }, { ...risk, supersedes: other });
  const reply = await retry.reply({ parent: second });
  reply.tool("look", {}, { callId: again });
  reply.toolResult("r", { callId: again });
  reply.end();
  const events = await session.events();
  const payloads = (type: string) => events.filter((one) => one.type === type).map((one) => one.payload);
  assert.equal(payloads("label")[0]!["target"], second.id);
  assert.deepEqual(payloads("tool_started").map((one) => one["call_id"]), [call.id]);
  assert.deepEqual(payloads("tool_intent").at(-1)!["supersedes"], other.id);
  const noted = events.filter((one) => one.type === "note").map((one) => [one.parent, one["cause"]]);
  assert.deepEqual(noted, [[second.id, first.id], [second.id, first.id]]);
  await assert.rejects(session.fork(first, second as unknown as string), TypeError);
});
