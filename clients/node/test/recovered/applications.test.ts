/** Several applications of one user: each sweeps what is its own. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, test } from "node:test";

import { connect, type Client } from "walld-client";

import { Daemon } from "../support/daemon.js";

const daemon = await Daemon.started({ after });

function clientOf(t: { after(end: () => unknown): void }, app: string): Client {
  const client = connect(daemon.socket, { app, timeoutMs: 30_000 });
  t.after(() => client.close(0));
  return client;
}

test("who sweeps sees its own, who asks by an id or for all sees all", async (t) => {
  const [one, other, every] = [clientOf(t, "a"), clientOf(t, "b"), clientOf(t, "*")];
  const reply = one.reply("s", { streamId: "r" });
  reply.token("words");
  await reply.drain({ timeoutMs: 30_000 });
  assert.deepEqual((await one.recoverAll()).map((found) => [found.text, found.app]), [["words", "a"]]);
  assert.deepEqual(await other.recoverAll(), []);
  assert.deepEqual((await every.recoverAll()).map((found) => found.app), ["a"]);
  assert.equal((await other.recover("s"))?.text, "words");
  reply.end();
});

test("what has ended here and nobody saved is told to its own process", async (t) => {
  const client = clientOf(t, "a");
  const reply = client.reply("tab", { streamId: "closed" });
  reply.token("cut off");
  reply.cancel("tab closed");
  const goesOn = client.reply("tab");
  goesOn.token("on");
  const [found, ...more] = await client.unsaved("tab");
  assert.deepEqual([found?.streamId, found?.status, more.length], ["closed", "cancelled", 0]);
  assert.deepEqual(await client.unsaved("other"), []);
  assert.equal(client.release("closed"), true);
  assert.deepEqual(await client.unsaved(), []);
  goesOn.end();
});

test("where the program names none it is the main program's path", () => {
  const code = `import("walld-client").then(({ connect }) => {
    const client = connect("/nowhere/s");
    console.log(client.application.app);
    client.close(0);
  });`;
  const env = { ...process.env, WALLD_APP: "" };
  const done = spawnSync(process.execPath, ["-e", code], { env, encoding: "utf8" });
  assert.equal(done.stdout.trim(), `node in ${process.cwd()}`, done.stderr);
});
