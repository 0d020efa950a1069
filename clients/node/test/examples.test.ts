/** The examples, executed; each is under 30 lines. */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { Daemon, PACKAGE, Program, until } from "./support/daemon.js";
import { ModelServer } from "./ai/modelServer.js";
import { WORDS } from "./ai/vendorWires.js";

const FOLDER = join(PACKAGE, "examples");

test("each example is under 30 lines", () => {
  for (const name of readdirSync(FOLDER)) {
    const lines = readFileSync(join(FOLDER, name), "utf8").split("\n").length - 1;
    assert.ok(lines < 30, `${name}: ${lines} lines`);
  }
});

test("stream, kill, recover", async (t) => {
  const daemon = await Daemon.started(t);
  const file = join(daemon.home, "chat.jsonl");
  const env = { WALLD_SOCKET: daemon.socket, CHAT_FILE: file };
  const run = (name: string, ...args: string[]) => new Program(`examples/${name}.js`, args, env);
  assert.equal(await run("stream", "hello").ended(), 0);
  const killed = run("stream", "x".repeat(20), "killed");
  await until(async () => (await daemon.client().recover("chat-1"))?.text.includes("Nothing "), "some words");
  killed.process.kill("SIGKILL");
  await killed.ended();
  await until(async () => (await daemon.client().orphans()).length === 1, "an orphan");
  const first = run("recover");
  assert.equal(await first.ended(), 0);
  assert.match(first.lines.join("\n"), /^recovered [0-9a-f]{32}: You said: x{20}\. Nothing /);
  const again = run("recover");
  assert.equal(await again.ended(), 0);
  assert.deepEqual(again.lines, []);
  const saved = readFileSync(file, "utf8").trimEnd().split("\n").map((line) => JSON.parse(line));
  assert.equal(saved.length, 2);
  assert.equal(saved[0].content, "You said: hello. Nothing of this is lost.");
  assert.ok(saved[1]._wal_recovered && saved[1]._partial);
  assert.deepEqual(await daemon.client().recoverAll(), []);
});

test("agent and session", async (t) => {
  const daemon = await Daemon.started(t);
  const replay = await ModelServer.started(t);
  const file = join(daemon.home, "chat.jsonl");
  const env = { WALLD_SOCKET: daemon.socket, CHAT_FILE: file, MODEL_URL: replay.url };
  const agent = new Program("examples/agent.js", [], env);
  assert.equal(await agent.ended(), 0, agent.stderr);
  assert.equal(agent.lines.join("\n"), WORDS.join(""));
  assert.equal(JSON.parse(readFileSync(file, "utf8")).content, WORDS.join(""));
  for (let round = 0; round < 2; round += 1) {
    const session = new Program("examples/session.js", [], env);
    assert.equal(await session.ended(), 0, session.stderr);
    assert.deepEqual(session.lines, ["user: What is the weather?", "assistant: 4 degrees in Oslo."]);
  }
  assert.deepEqual(await daemon.client().recoverAll(), []);
});
