/** Requests to a daemon that is frozen or busy: how long a call waits, what memory it keeps, where it connects. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import { Worker } from "node:worker_threads";

import { Unavailable, connect } from "walld-client";

import { decodeBody } from "#dist/wire/codec.js";
import { Splitter, encodeFrame } from "#dist/wire/framing.js";
import { Daemon, Program } from "../support/daemon.js";

/** A daemon that is frozen, with a client that it does not know yet. */
async function frozen(t: TestContext, timeoutMs: number) {
  const daemon = await Daemon.started(t);
  daemon.signal("SIGSTOP");
  return { daemon, client: daemon.client({ timeoutMs }) };
}

test("a request waits as long as it may, also on a connection that a more patient one began", async (t) => {
  const { daemon, client } = await frozen(t, 300);
  const patient = client.session("s").append("x", {}, { timeoutMs: 20_000 });
  await assert.rejects(client.recover("s"), /no welcome from walld at .* in time/);
  daemon.signal("SIGCONT");
  assert.equal((await patient).seq, 1);
});

test("and on one that a less patient one began", async (t) => {
  const { daemon, client } = await frozen(t, 300);
  const hasty = client.recover("s");
  const patient = client.session("s").append("x", {}, { timeoutMs: 20_000 });
  await assert.rejects(hasty, Unavailable);
  daemon.signal("SIGCONT");
  assert.equal((await patient).seq, 1);
});

test("nothing is kept of requests that a frozen daemon did not take in time", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const session = client.session("s");
  await session.append("x");
  const { current } = client["query"] as unknown as { current: { socket: { destroyed: boolean } } };
  daemon.signal("SIGSTOP");
  const patient = session.append("x", {}, { timeoutMs: 20_000 });
  const asked = Array.from({ length: 8 }, () => session.append("x", { text: "x".repeat(200_000) }, { timeoutMs: 200 }));
  // All at once: timers of one moment may fire in another order, and an answer nobody waits for yet is unhandled.
  await Promise.all(asked.map((one) => assert.rejects(one, /no answer from walld within 200 ms/)));
  await assert.rejects(session.append("x", {}, { timeoutMs: 200 }), /no welcome from walld at .* in time/);
  assert.ok(!current.socket.destroyed, "somebody waits for his answer there");
  daemon.signal("SIGCONT");
  assert.equal((await patient).seq, 2);
  assert.ok(current.socket.destroyed);
  assert.ok((await session.append("x")).seq > 2);
});

test("a program ends though a frozen daemon does not take what it asked", async (t) => {
  const daemon = await Daemon.started(t);
  const program = new Program("test/support/shortProgram.js", [daemon.socket, "asks", "ask"]);
  await program.line("asking");
  daemon.signal("SIGSTOP");
  program.process.stdin!.end();
  assert.equal(await program.ended(), 0, program.stderr);
});

test("a program at its limit of open files is told so, and what it says is delivered later", async (t) => {
  const daemon = await Daemon.started(t);
  const limited = ["-c", 'ulimit -n 64; exec "$0" "$@"', process.execPath];
  const program = new Program("test/support/limitedProgram.js", [daemon.socket, "limited"], {}, ["sh", ...limited]);
  assert.match(await program.line("asked "), /^this process has no descriptor left to ask walld at .*EMFILE/);
  assert.equal(await program.line("waiting "), "2");
  program.process.stdin!.end();
  assert.equal(await program.line("dropped "), "0");
  assert.equal(await program.ended(), 0, program.stderr);
  assert.equal((await daemon.client().recover("limited"))?.text, "one ");
  assert.match(program.stderr, /WalldWarning: walld at .* cannot be reached: .*EMFILE/);
});

test("as long as it takes is no 1 ms", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client({ timeoutMs: 1e12 });
  daemon.signal("SIGSTOP");
  const reply = client.reply("s");
  for (let n = 0; n < 1000; n += 1) reply.token("x".repeat(1000));
  const waiting = Promise.all([client.recover("none"), client.session("s").append("x", {}, { timeoutMs: 2 ** 31 }), reply.drain({ timeoutMs: 1e12 })]);
  const last = daemon.client();
  last.reply("s").token("x".repeat(1_000_000));
  const closed = last.close(1e12);
  setTimeout(() => daemon.signal("SIGCONT"), 100);
  const [found, placed, isThere] = await waiting;
  assert.deepEqual([found, placed.seq, isThere, await closed], [null, 1, true, true]);
});

test("a socket whose name is a number is no port", async (t) => {
  const heard: Buffer[] = [];
  const server = createServer((socket) => socket.on("data", (bytes: Buffer) => heard.push(bytes)));
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  const client = connect(String((server.address() as AddressInfo).port));
  t.after(() => client.close(0));
  const reply = client.reply("s");
  reply.token("a secret");
  await assert.rejects(client.recover("s"), /connect ENOENT/);
  assert.match(await client.check(), /^not recoverable: no walld at 0*[0-9]+: connect ENOENT/);
  assert.equal(await reply.drain({ timeoutMs: 200 }), false);
  assert.deepEqual(heard, []);
});

/** Whoever accepts there says no and is gone, at once: in a thread of its own, before a Hello comes. */
const SEES_OFF = `
  const { createServer } = require("node:net");
  const { parentPort, workerData } = require("node:worker_threads");
  const seen = () => Atomics.add(workerData.seen, 0, 1);
  const server = createServer((socket) => socket.on("error", () => {}).end(workerData.no, seen));
  server.listen({ path: workerData.path }, () => parentPort.postMessage("listening"));
`;

/** The path of such a door; `seen` counts those it has said no to. */
async function seenOff(t: TestContext, seen = new Int32Array(new SharedArrayBuffer(4))): Promise<string> {
  const home = mkdtempSync(join(tmpdir(), "walld-no-"));
  t.after(() => rmSync(home, { recursive: true }));
  const path = join(home, "s");
  const fields = { id: 0, code: "foreign_uid", message: "not this uid", got: "65534", limit: "mapped" };
  const door = new Worker(SEES_OFF, { eval: true, workerData: { path, no: encodeFrame("Error", fields), seen } });
  t.after(() => door.terminate());
  await once(door, "message");
  return path;
}

test("who is not let in is told why, and never called recoverable", async (t) => {
  const path = await seenOff(t);
  const warnings: string[] = [];
  const listen = (warning: Error): void => void warnings.push(warning.message);
  process.on("warning", listen);
  t.after(() => process.off("warning", listen));
  const client = connect(path);
  t.after(() => client.close(0));
  for (let n = 0; n < 20; n += 1) {
    await assert.rejects(client.recover("s"), /walld ended the connection: not this uid \(code foreign_uid/);
    assert.match(await client.check(), /^not recoverable: at .*\/s walld ended .* foreign_uid.*; 0 events wait/);
  }
  const reply = client.reply("s");
  reply.token("x");
  assert.equal(await reply.drain({ timeoutMs: 300 }), false);
  assert.match(await client.check(), /^not recoverable: at .* foreign_uid.*; [02] events wait in memory$/);
  assert.match(warnings.join("\n"), /ended the connection: not this uid/);
});

test("a program that is too busy to hear it is not called recoverable either", async (t) => {
  const seen = new Int32Array(new SharedArrayBuffer(4));
  /** 60 ms at least, and until the door has said no so often, however slow its thread is. */
  const busy = (count: number): void => {
    const begun = performance.now();
    const isOver = (): boolean => Atomics.load(seen, 0) >= count || performance.now() > begun + 20_000;
    while (performance.now() < begun + 60 || !isOver());
  };
  const client = connect(await seenOff(t, seen));
  t.after(() => client.close(0));
  let count = Atomics.load(seen, 0) + 1;
  const atOnce = client.check();
  busy(count);
  assert.match(await atOnce, /^not recoverable: at .* foreign_uid/);
  count = Atomics.load(seen, 0) + 1;
  const inATurn = client.check();
  setImmediate(() => busy(count));
  assert.match(await inATurn, /^not recoverable: at .* foreign_uid/);
  const nobody = connect(join(tmpdir(), "walld-no-one", "s"));
  t.after(() => nobody.close(0));
  await immediate(); // behind it timers come before what the kernel says
  const alone = nobody.check();
  busy(0);
  assert.match(await alone, /^not recoverable: no walld at /);
});

/** Whoever listens there says `answer` to each request, which no daemon can be made to say at will. */
async function saying(t: TestContext, answer: (id: number, socket: Socket) => void): Promise<string> {
  const home = mkdtempSync(join(tmpdir(), "walld-says-"));
  const server = createServer((socket) => {
    const splitter = new Splitter();
    socket.on("error", () => undefined);
    socket.on("data", (bytes: Buffer) => {
      for (const body of splitter.feed(bytes)) {
        const word = decodeBody(body, ["Hello", "Resolve"]) as unknown as { is: string; id: number };
        if (word.is === "Resolve") answer(word.id, socket);
        else {
          const about = { version: 1, daemon: "d", log: Buffer.alloc(16), frame_bytes_max: 1 << 20, text_bytes_max: 1000 };
          socket.write(encodeFrame("Welcome", about));
        }
      }
    });
  });
  const path = join(home, "s");
  await once(server.listen(path), "listening");
  t.after(() => {
    server.close();
    rmSync(home, { recursive: true });
  });
  return path;
}

const notYet = (id: number, code = "recovering") => encodeFrame("Error", { code, message: "wait", id });

test("a daemon that cannot know yet is asked again while there is time", async (t) => {
  let asked = 0;
  const path = await saying(t, (id, socket) => {
    asked += 1;
    const code = ["recovering", "behind"][asked - 1];
    socket.write(code === undefined ? encodeFrame("Answer", { id, chunk: Buffer.from([0xc3]) }) : notYet(id, code));
  });
  const client = connect(path, { timeoutMs: 20_000 });
  t.after(() => client.close(0));
  assert.equal(await client.resolve("r", 8), true);
  assert.equal(asked, 3);
});

test("and who has no time left is told that it cannot", async (t) => {
  let asked = 0;
  const path = await saying(t, (id, socket) => {
    asked += 1;
    if (asked === 1) socket.write(notYet(id));
  });
  const client = connect(path, { timeoutMs: 3_000 });
  t.after(() => client.close(0));
  await assert.rejects(client.resolve("r", 8), /cannot know now: wait/);
  assert.equal(asked, 2);
});
