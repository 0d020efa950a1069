/** The examples, executed; each is under 30 lines. */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { API } from "typescript/unstable/sync";
import { isBlock, isStatement } from "typescript/unstable/ast/is";

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

test("designs of programs that keep sessions of their own are short: statements, as the compiler parses them", (t) => {
  const api = new API({ cwd: PACKAGE });
  t.after(() => api.close());
  const config = join(PACKAGE, "tsconfig.test.json");
  const { program } = api.updateSnapshot({ openProjects: [config] }).getProjects()[0]!;
  for (const [name, most] of [["session_tree.ts", 20], ["session_replay.ts", 25]] as const) {
    let statements = 0;
    const count = (node: Parameters<typeof isStatement>[0]): void => {
      if (isStatement(node) && !isBlock(node)) statements += 1;
      node.forEachChild(count);
    };
    count(program.getSourceFile(join(FOLDER, name))!);
    assert.ok(statements > 10 && statements <= most, `${name}: ${statements} statements, limit ${most}`);
  }
});

test("a session tree, killed in the middle of a word", async (t) => {
  const daemon = await Daemon.started(t);
  const env = { WALLD_SOCKET: daemon.socket };
  const run = async (...words: string[]): Promise<unknown> => {
    const program = new Program("examples/session_tree.js", ["t", ...words], env);
    assert.equal(await program.ended(), 0, program.stderr);
    return JSON.parse(program.lines[0]!);
  };
  const path = async () => ((await run("path")) as { content: string }[]).map((one) => one.content);
  await run("model", "small");
  await run("say", "task");
  const [root] = (await run("tree") as { nodes: { id: string; type: string }[] }).nodes.filter((one) => one.type === "turn_submitted");
  // Long enough that it is killed in the middle on any machine: a word comes every 20 ms.
  const long = ["x".repeat(20), "and", ...Array<string>(5_000).fill("more")];
  const killed = new Program("examples/session_tree.js", ["t", "say", ...long], env);
  await until(async () => (await daemon.client().recover("t"))?.text.includes("and "), "some words");
  killed.process.kill("SIGKILL");
  await killed.ended();
  await until(async () => (await daemon.client().orphans()).length === 1, "an orphan");
  const told = await path();
  assert.deepEqual(told.slice(0, 3), ["task", "You said: task.", long.join(" ")]);
  assert.match(told[3]!, /^You said: x{20} and/);
  assert.equal(told.length, 4);
  await run("label", root!.id, "begin");
  await run("branch", root!.id, "it was killed");
  await run("say", "another way");
  const [asked, ...rest] = await path();
  assert.match(asked!, /^task\n\n[^\n]+ a summary of what was left:\n\nit was killed\n\nanother way$/);
  assert.deepEqual(rest, ["You said: another way."]);
  const fork = (await run("fork", root!.id, "t-2")) as { content: string }[];
  assert.deepEqual(fork.map((one) => one.content), ["task"]);
  assert.deepEqual(await daemon.client().recoverAll(), []);
});

test("a task that is killed behind each of its entries does each step once", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const session = client.session("release-1");
  const env = { WALLD_SOCKET: daemon.socket };
  for (let entries = 1; entries < 14; entries += 1) {
    const file = join(daemon.home, `done-${entries}`);
    const killed = new Program("examples/session_replay.js", [file], env);
    await until(async () => (await session.events()).length >= entries || killed.process.exitCode !== null, "entries");
    killed.process.kill("SIGKILL");
    await killed.ended();
    await until(async () => ((await session.resumeCheck())?.owner ?? null) === null, "no owner");
    const last = new Program("examples/session_replay.js", [file], env);
    assert.equal(await last.ended(), 0, `${entries}: ${last.stderr}`);
    assert.equal(readFileSync(file, "utf8"), "build\nupload\nannounce\n", `killed at ${entries}`);
    assert.equal((await session.turn((await session.events()).at(-1)!.turn!)).state, "completed");
    await client.delete("release-1");
  }
});

test("stream, kill, recover", async (t) => {
  const daemon = await Daemon.started(t);
  const file = join(daemon.home, "chat.jsonl");
  const env = { WALLD_SOCKET: daemon.socket, CHAT_FILE: file };
  const run = (name: string, ...args: string[]) => new Program(`examples/${name}.js`, args, env);
  assert.equal(await run("stream", "hello").ended(), 0);
  const killed = run("stream", `${"x".repeat(20)} and${" more".repeat(5_000)}`);
  await until(async () => (await daemon.client().recover("chat-1"))?.text.includes("and "), "some words");
  killed.process.kill("SIGKILL");
  await killed.ended();
  await until(async () => (await daemon.client().orphans()).length === 1, "an orphan");
  const first = run("recover");
  assert.equal(await first.ended(), 0);
  assert.match(first.lines.join("\n"), /^recovered [0-9a-f]{32}: You said: x{20} and /);
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
