/** The Python client and this one recover the same reply alike, and each reads what the other wrote. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";

import { connect, type PartialReply } from "walld-client";

import { NAMES } from "#dist/encoding/nameFields.js";

import { Daemon, PACKAGE } from "../support/daemon.js";

const PYTHON = process.env["WALLD_COMMAND"]?.replace(/walld$/, "python") ?? join(PACKAGE, "../../.venv/bin/python");

const READS = `
import json, sys, walld_client
reply = walld_client.connect(sys.argv[1]).recover(sys.argv[2])
formats = {name: reply.messages(name) for name in ("openai", "anthropic")}
print(json.dumps(reply.to_dict() | {"formats": formats}))
`;
const SPEAKS = `
import sys, walld_client
client = walld_client.connect(sys.argv[1])
reply = client.reply(sys.argv[2], model="m", big=2**63, at=1790000000123)
reply.reasoning("why \\ud83d"); reply.reasoning("\\ude00")
reply.tool("t", {"a": [1, None, "\\u00fc"]}, call_id="c")
reply.tool_result({"n": 2**60}, call_id="c", note="x")
reply.event("mine", {"k": b"\\x00\\xff"})
reply.step(); reply.token("said", logprob=-1.5); reply.token(" and done")
reply.error("boom", kind="auth", detail=[1, 2.5])
client.close()
`;

function python(code: string, ...args: string[]): string {
  const told = spawnSync(PYTHON, ["-c", code, ...args], { encoding: "utf8" });
  assert.equal(told.status, 0, told.stderr);
  return told.stdout;
}

/** As the Python client's to_dict() has it: snake_case, seconds, each kind with its own fields. */
function inItsWords(reply: PartialReply): unknown {
  const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const converted = (value: unknown): unknown => (value instanceof Date ? value.getTime() / 1000 : value);
  const named = (value: object) =>
    Object.fromEntries(Object.entries(value).map(([name, one]) => [snake(name), converted(one)]));
  return {
    ...named(reply),
    text: reply.text.toWellFormed(),
    gaps: reply.gaps.map(named),
    steps: reply.steps.map(named),
    retries: reply.retries.map(named),
    segments: reply.segments.map(named),
    messages: reply.messages(),
    formats: { openai: reply.messages("openai"), anthropic: reply.messages("anthropic") },
  };
}

/** The fields of `told` alone, so that those a kind of segment does not have are left out. */
function like(told: unknown, found: unknown): unknown {
  if (typeof told === "string" && told !== found && /^[[{]/.test(told)) {
    assert.deepEqual(JSON.parse(found as string), JSON.parse(told)); // JSON text, spaces aside
    return told;
  }
  if (Array.isArray(told) && Array.isArray(found)) {
    assert.equal(found.length, told.length);
    return told.map((one, at) => like(one, found[at]));
  }
  if (typeof found === "string") return found.toWellFormed(); // as to_dict() shows halves of characters
  if (found instanceof Uint8Array) return Buffer.from(found).toString("base64");
  if (typeof told !== "object" || told === null) return typeof found === "bigint" ? Number(found) : found;
  const fields = found as Record<string, unknown>;
  return Object.fromEntries(Object.entries(told).map(([name, one]) => [name, like(one, fields[name])]));
}

test("what this client streamed, both clients read alike", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const reply = client.reply("both", { meta: { model: "m" } });
  reply.reasoning("because");
  reply.tool("open", { q: 1 }, { callId: "c1", info: { n: 1 } });
  reply.toolResult("orphan", { name: "other" });
  reply.token("half \ud83d");
  reply.token("\ude00 whole");
  reply.retry("again");
  reply.token("one ");
  reply.tool("t", { city: "Oslo" }, { callId: "c2" });
  reply.toolResult({ degrees: [4, null] }, { callId: "c2", failed: true });
  reply.event("mine", { k: [true, -1, 2.5] });
  reply.step();
  reply.token("two");
  reply.step();
  reply.token("three \n");
  reply.tool("no result", {}, { callId: "c3" });
  reply.tool("cut", "{\"a\":", { callId: "c4" });
  reply.toolResult("said", { callId: "c4" });
  reply.tool("näme with.dots", undefined, { callId: "c5" });
  reply.toolResult("", { callId: "c5" });
  for (const [at, input] of ["*** Begin\n", ["ls"], 5, "null", "{\"a\": NaN}", "half \ud83d", "[1"].entries()) {
    reply.tool("patch", input, { callId: `t${at}` });
    reply.toolResult("patched", { callId: `t${at}` });
  }
  reply.tool("next", {}, { callId: "c6" });
  reply.toolResult("half \ud83d", { callId: "c6" });
  reply.step();
  reply.token("Now");
  reply.tool("open", {}, { callId: "c8" });
  reply.token("I go on.");
  reply.tool("later", {}, { callId: "c7" });
  reply.toolResult({ a: 1 }, { callId: "c7" });
  reply.token("four  ");
  for (const next of [() => reply.step(), () => reply.finish("tool_calls"), () => reply.finish("stop")]) {
    reply.tool("again", undefined, { callId: "c9" });
    reply.toolArguments('{"n":1}', { callId: "c9" });
    next();
  }
  assert.ok(await reply.drain());
  const told = JSON.parse(python(READS, daemon.socket, "both")) as unknown;
  const read = (await client.recover("both"))!;
  const found = inItsWords(read);
  assert.ok(read.messages("openai").length > 5);
  assert.equal(read.segments.filter((one) => one.kind === "tool" && one.callId === "c9").length, 3);
  assert.match(JSON.stringify(read.messages("openai")), /Now\\n\\nI go on\./);
  assert.throws(() => read.messages("other" as "plain"), RangeError);
  assert.deepEqual(like(told, found), told);
});

test("what the Python client streamed, both clients read alike", async (t) => {
  const daemon = await Daemon.started(t);
  python(SPEAKS, daemon.socket, "theirs");
  const told = JSON.parse(python(READS, daemon.socket, "theirs")) as { owner_alive: boolean };
  const reply = (await daemon.client().recover("theirs"))!;
  assert.equal(told.owner_alive, false);
  assert.deepEqual(like(told, inItsWords(reply)), told);
  assert.deepEqual(reply.meta, { model: "m", big: 2n ** 63n, at: 1_790_000_000_123 });
});

test("a message that one client submitted is the first turn to the other, in whatever form", async (t) => {
  const daemon = await Daemon.started(t);
  const submits = `
import json, sys, walld_client
session = walld_client.connect(sys.argv[1]).session(sys.argv[2])
content, length = json.loads(sys.stdin.read())
print(session.submit(content, message_id="m", a="y" * length).turn_id)
`;
  const told = (id: string, content: unknown, length: number) => {
    const input = JSON.stringify([content, length]);
    const done = spawnSync(PYTHON, ["-c", submits, daemon.socket, id], { encoding: "utf8", input });
    assert.equal(done.status, 0, done.stderr);
    return done.stdout.trim();
  };
  const half = (length: number) => "half \ud83d, " + "\u00fc".repeat(length);
  const contents = { text: half(126_000), blocks: [{ type: "text", text: "x".repeat(250_000) }, 1.5, null] };
  for (const [name, content] of Object.entries(contents)) {
    const session = daemon.client().session(name);
    const theirs = told(name, content, 0); // an artifact there, by its length
    assert.equal((await session.submit(content, { messageId: "m" })).turnId, theirs);
    await assert.rejects(session.submit("other", { messageId: "m" }), /message_id_taken/);
    const own = daemon.client().session(`${name}-own`);
    const ours = await own.submit(content, { messageId: "m" });
    for (const length of [0, 100_000]) assert.equal(told(own.sessionId, content, length), ours.turnId);
  }
});

test("both clients keep the same names from redact", async (t) => {
  const daemon = await Daemon.started(t);
  const sorted = (table: Record<string, string[]>) =>
    Object.fromEntries(Object.entries(table).map(([type, paths]) => [type, [...paths].sort()]));
  const theirs = python("import json; from walld_client.encoding.entry_names import NAMES; print(json.dumps(NAMES))");
  assert.deepEqual(sorted(NAMES), sorted(JSON.parse(theirs) as typeof NAMES));
  const entries = [
    { type: "message", payload: { role: "x", content: ["x", { type: "x", id: "x", text: "x" }], name: "x" } },
    { type: "message", payload: { role: "x", tool_calls: [{ id: "x", function: { name: "x", arguments: "x" } }, "x"] } },
    { type: "message_edit", payload: { messages: [{ role: "x", note: { role: "x" } }, { content: "x", role: "x" }] } },
    { type: "setting", payload: { key: "x", value: { key: ["x", { "[]": "x" }] } } },
    { type: "app.x", payload: { role: "x", a: [[{ _artifact: { sha256: "x", preview: "x" }, sha256: "x" }]], __proto__: "x" } },
    { type: "lifecycle", payload: { kind: "x", fingerprint: { files: { "[]": null, "*": null }, head: "x", note: "x" } } },
  ];
  const client = connect(daemon.socket, { redact: (text) => text + "*" });
  t.after(() => client.close());
  await client.session("ours").appendMany(entries);
  const says = "import json, sys, walld_client\n" +
    "client = walld_client.connect(sys.argv[1], redact=lambda text: text + '*')\n" +
    "client.session('theirs').append_many(json.loads(sys.argv[2])); client.close()";
  python(says, daemon.socket, JSON.stringify(entries));
  const payloads = async (id: string) => (await client.session(id).events()).map((one) => one["payload"]);
  assert.deepEqual(await payloads("ours"), await payloads("theirs"));
  assert.deepEqual((await payloads("ours"))[0], { role: "x", content: ["x*", { type: "x", id: "x", text: "x*" }], name: "x*" });
});
