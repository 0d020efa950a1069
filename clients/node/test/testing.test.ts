/** `walld-client/testing`: a daemon that is killed in the middle of a reply, and its errors. */

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { connect } from "walld-client";
import { NotStarted, startDaemon } from "walld-client/testing";

import { PACKAGE } from "./support/daemon.js";

process.env["WALLD_COMMAND"] ??= join(PACKAGE, "../../.venv/bin/walld");

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** A thread of the daemon writes its log, so a line may come behind what it is about, and a kill loses it. */
async function logged(daemon: { log: string }, line: RegExp): Promise<void> {
  const until = performance.now() + 30_000;
  while (!line.test(daemon.log) && performance.now() < until) await sleep(10);
  assert.match(daemon.log, line);
}

test("a daemon that is killed in the middle of a reply, and the next one has all of it", async (t) => {
  const daemon = await startDaemon();
  t.after(() => daemon.close());
  const first = daemon.pid!;
  const client = connect(daemon.socket);
  const reply = client.reply("s");
  reply.token("before ");
  assert.ok(await reply.drain({ level: "synced", timeoutMs: 30_000 }));
  await logged(daemon, /ready: /);
  await daemon.kill();
  assert.equal(daemon.pid, undefined);
  assert.ok(!alive(first));
  reply.token("meanwhile ");
  await daemon.restart();
  assert.notEqual(daemon.pid, first);
  reply.token("after");
  assert.ok(await reply.drain({ level: "synced", timeoutMs: 30_000 }));
  const other = connect(daemon.socket, { timeoutMs: 30_000 });
  assert.equal((await other.recover("s"))!.text, "before meanwhile after");
  await other.close();
  await client.close();
  await logged(daemon, /ready: .*ready: /s);
});

test("a stop is its exit code, and a close removes what was made for it alone", async (t) => {
  const home = mkdtempSync(join(tmpdir(), "walld-test-"));
  t.after(() => rmSync(home, { recursive: true }));
  const dir = join(home, "data");
  const daemon = await startDaemon({ dir, options: ["--flush-bound-ms", "100"] });
  const { pid, socket } = daemon;
  assert.equal(await daemon.stop(), 0);
  assert.equal(await daemon.stop(), null);
  assert.match(daemon.log, /SIGTERM: stopping/);
  await daemon.close();
  assert.ok(!existsSync(daemon.logPath));
  assert.ok(!alive(pid!));
  assert.ok(!existsSync(socket));
  assert.ok(existsSync(join(dir, "LOCK")));
  const again = await startDaemon({ dir });
  t.after(() => again.close());
  assert.equal(again.dir, dir);
});

test("two for one directory: the second is told that it is in use", async (t) => {
  const first = await startDaemon();
  t.after(() => first.close());
  await assert.rejects(startDaemon({ dir: first.dir }), (error: NotStarted) => {
    assert.ok(error instanceof NotStarted);
    assert.equal(error.exitCode, 1);
    assert.match(error.message, /another walld owns this data directory/);
    return true;
  });
  const client = connect(first.socket);
  assert.equal((await client.status())["pid"], first.pid);
  await client.close();
});

test("a socket that another daemon answers at is not taken for one's own", async (t) => {
  const first = await startDaemon();
  t.after(() => first.close());
  await assert.rejects(startDaemon({ socket: first.socket }), /another process answers at this socket/);
});

test("what cannot start says why", async () => {
  await assert.rejects(startDaemon({ command: ["/nowhere/walld"] }), /cannot run \/nowhere\/walld: .*ENOENT/);
  await assert.rejects(startDaemon({ options: ["--flush-bound-ms", "x"] }), (error: NotStarted) => {
    assert.equal(error.exitCode, 64);
    assert.match(error.log, /flush_bound_ms from --flush-bound-ms: got 'x'/);
    return true;
  });
  await assert.rejects(startDaemon({ command: ["sleep"], options: [] }), /ended at its start with 1/);
  await assert.rejects(startDaemon({ command: ["sh", "-c", "exec sleep 60"], timeoutMs: 300 }), /within 300 ms/);
  await assert.rejects(startDaemon({ socket: `/tmp/${"x".repeat(110)}` }), {
    name: "RangeError",
    message: /at most 107 bytes, .* has 115/,
  });
});
