/** The link at its edges: refusals of a real daemon, and frames that no daemon of this version sends. */

import assert from "node:assert/strict";
import fs, { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { Refused, Unavailable, connect, type Client } from "walld-client";

import type { Held } from "#dist/link/eventFrames.js";
import { decodeBody, type Read } from "#dist/wire/codec.js";
import { Splitter, encodeFrame } from "#dist/wire/framing.js";
import { TAGGED, type MessageName } from "#dist/wire/messages.js";

import { Daemon, Program, until } from "../support/daemon.js";

const ALL = Object.keys(TAGGED) as MessageName[];

/** A peer that answers as the test says, and keeps what it heard of each connection. */
async function peer(t: TestContext, answer: (socket: Socket, word: Read, connection: number) => void) {
  const folder = mkdtempSync(join(tmpdir(), "walld-peer-"));
  const heard: Read[][] = [];
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    const words: Read[] = [];
    const number = heard.push(words);
    const splitter = new Splitter();
    sockets.push(socket.on("error", () => undefined));
    socket.on("data", (received: Buffer) => {
      for (const body of splitter.feed(received)) {
        const word = decodeBody(body, ALL);
        words.push(word);
        answer(socket, word, number);
      }
    });
  });
  const path = join(folder, "s");
  await new Promise<void>((resolve) => server.listen(path, resolve));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return { path, heard, sockets };
}

test("a stream id in use: the second reply is refused, the first goes on", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const first = client.reply("s", { streamId: "same" });
  const second = client.reply("s", { streamId: "same" });
  first.token("kept");
  second.token("not");
  await until(() => client.stats().refused > 0, "a refusal");
  assert.equal(second.token("late"), 0);
  assert.equal(client.stats().refusedReplies, 1);
  await assert.rejects(second.drain({ level: "synced" }), (error) => {
    return error instanceof Refused && error.code === "stream_owned" && /'same'.*release/.test(error.message);
  });
  assert.ok(await first.drain({ level: "synced" }));
  assert.equal((await client.recover({ streamId: "same" }))!.text, "kept");
  assert.equal(await first.drain({ level: "replicated", timeoutMs: 5000 }), false);
  first.cancel("user");
  assert.ok(client.release("same"), "the first one, which alone has that id");
});

for (const how of ["", "close"]) {
  test(`a program that waits for nothing hears of it at its end${how && ", in close()"}`, async (t) => {
    const daemon = await Daemon.started(t);
    const first = daemon.client().reply("s", { streamId: "same" });
    assert.ok(await first.drain());
    const program = new Program("test/support/secondProgram.js", [daemon.socket, how]);
    assert.equal(await program.ended(), 0, program.stderr);
    await until(() => program.stderr.includes("refused reply 'same' of session 's'"), "a warning");
  });
}

/** A client whose first `times` connections met a daemon of another version: the next attempt is due in a minute. */
async function refusedAsAnotherVersion(t: TestContext, times = Infinity) {
  const { path, heard } = await peer(t, (socket, word, connection) => {
    if (word.is !== "Hello" || connection > times) return;
    socket.end(encodeFrame("Error", { code: "version", message: "another version", got: "1", limit: "2" }));
  });
  const client = connect(path);
  t.after(() => client.close(0));
  const reply = client.reply("s");
  reply.token("x");
  await until(() => heard.length === 1 && !client.stats().connected, "the end of the connection");
  return { client, reply, heard };
}

test("a daemon of another version is left alone, and the events wait", async (t) => {
  const { client, reply, heard } = await refusedAsAnotherVersion(t);
  assert.equal(client.stats().backlog, 2);
  assert.equal(reply.sentSeq, -1);
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(heard.length, 1, "not tried again for a minute");
  await assert.rejects(client.recover("s"), Unavailable);
});

for (const last of ["close", "drain"] as const) {
  test(`${last} does not wait for the next attempt to be due`, async (t) => {
    const { client, reply, heard } = await refusedAsAnotherVersion(t, 1);
    if (last === "close") assert.equal(await client.close(5000), true);
    else assert.equal(await reply.drain({ timeoutMs: 50 }), false);
    await until(() => heard[1]?.some((word) => word.is === "Token") === true, "what waited");
  });
}

test("what cannot be read ends the connection, and what was said is said again", async (t) => {
  const { path, heard } = await peer(t, (socket, word, connection) => {
    if (word.is === "Hello" && connection === 1) socket.write("what is this?");
  });
  const client = connect(path);
  t.after(() => client.close(0));
  const reply = client.reply("s", { streamId: "twice", meta: { n: 1 } });
  reply.token("one");
  await until(() => heard.length === 2 && heard[1]!.length >= 4, "a second connection");
  const [hello, resume, start, token] = heard[1]!;
  assert.equal(hello!["role"], "agent");
  assert.equal(resume!.is, "Resume");
  const { is: _is, ...said } = start!;
  assert.deepEqual(resume!["start"], said);
  assert.deepEqual([resume!["held_from"], resume!["synced"], resume!["next_seq"]], [0, -1, 2]);
  assert.deepEqual(heard[1]!.slice(2, 4), heard[0]!.slice(1, 3), "byte for byte");
  assert.equal(Buffer.from(token!["text"] as Uint8Array).toString(), "one");
});

/** A client of a peer that does not read, with more than the kernel takes. */
async function stalled(t: TestContext) {
  const { path, sockets } = await peer(t, () => undefined);
  const client = connect(path, { backlogBytesMax: 1 << 20 });
  t.after(() => client.close(0));
  await until(() => sockets.length > 0, "a connection");
  sockets[0]!.pause();
  const reply = client.reply("s");
  for (let n = 0; n < 20_000; n += 1) reply.token("x".repeat(100));
  return { client, reply, socket: sockets[0]! };
}

test("a peer that never reads: events wait in the ring, and none of it blocks", async (t) => {
  const { client, reply } = await stalled(t);
  assert.ok(reply.sentSeq < 20_000);
  assert.ok(client.stats().unsyncedBytes <= 1 << 20);
  assert.equal(await reply.drain({ timeoutMs: 50 }), false);
  assert.equal(await client.close(50), false);
  assert.equal(await client.close(60_000), false, "as the one before");
});

test("a close beside another waits for that one, in its own time, and says the same", async (t) => {
  const { client, socket } = await stalled(t);
  const first = client.close(60_000);
  assert.equal(await client.close(10), false);
  const second = client.close(60_000);
  socket.resume();
  assert.deepEqual(await Promise.all([first, second]), [true, true]);
  assert.equal(await client.close(0), true);
});

test("a request that is answered by silence is Unavailable in time; one that waits finds the next daemon", async (t) => {
  const { path } = await peer(t, () => undefined);
  const silent = connect(path, { timeoutMs: 100 });
  t.after(() => silent.close(0));
  await assert.rejects(silent.recover("s"), /no welcome from walld at .* in time/);

  const daemon = await Daemon.started(t);
  const client = daemon.client({ timeoutMs: 20_000 });
  assert.equal(await client.recover("s"), null);
  await daemon.kill();
  const asked = client.recover("s");
  await daemon.start();
  assert.equal(await asked, null);
});

test("released before any daemon heard of it: nothing is sent", async (t) => {
  const daemon = new Daemon(t);
  const client = daemon.client();
  for (let n = 0; n < 100; n += 1) {
    const reply = client.reply("s");
    reply.token("gone");
    reply.end();
  }
  const last = client.reply("s", { streamId: "last" });
  last.token("here");
  await daemon.start();
  assert.ok(await last.drain({ timeoutMs: 10_000 }));
  assert.deepEqual((await client.recoverAll()).map((one) => one.streamId), ["last"]);
  assert.deepEqual([client.stats().dropped, client.stats().streams], [0, 1]);
});

test("a program ends though its daemon is frozen, in bounded time", async (t) => {
  const { path, heard, sockets } = await peer(t, (socket, word) => {
    if (word.is === "Hello") socket.pause();
  });
  const program = new Program("test/support/shortProgram.js", [path, "frozen", "flood"]);
  assert.equal(await program.ended(), 0, program.stderr);
  assert.ok(sockets.length >= 2, "it was given up, and tried again");
  assert.deepEqual(heard.slice(1).map((words) => words.map((one) => one.is)), [["Hello"]]);
});

test("a program that ends while its daemon is away for a moment waits for it", async (t) => {
  const { path, heard } = await peer(t, (socket, word, connection) => {
    if (connection === 1 && word.is === "Hello") socket.destroy();
  });
  const program = new Program("test/support/shortProgram.js", [path, "moment", "late"]);
  assert.equal(await program.ended(), 0, program.stderr);
  assert.equal(heard.length, 2);
  assert.equal(heard[1]!.filter((word) => word.is !== "Drain").at(-1)!.is, "End");
});

test("a program that says more once its event loop has run empty waits for it again", async (t) => {
  const { path, heard } = await peer(t, (socket, word, connection) => {
    if (connection === 1 && word.is === "End") socket.destroy();
  });
  const program = new Program("test/support/shortProgram.js", [path, "first", "again"]);
  assert.equal(await program.ended(), 0, program.stderr);
  const starts = heard[1]?.filter((one) => one.is === "Start") as unknown as { session_id: string }[];
  assert.equal(starts?.at(-1)?.session_id, "again");
  assert.equal(heard[1]!.filter((word) => word.is !== "Drain").at(-1)!.is, "End");
});

/** The memory behind all frames that a client holds. */
function memoryOf(client: Client): number {
  const { endings, sent, outgoing, kept, waiting } = client["link"].backlog as unknown as Record<string, Iterable<Held>>;
  const behind = new Set<ArrayBufferLike>();
  for (const queue of [endings!, sent!, outgoing!, kept!, waiting!]) for (const { memory } of queue) behind.add(memory.buffer);
  return [...behind].reduce((sum, one) => sum + one.byteLength, 0);
}

test("without a daemon what is held stays within its bound, and so does the memory behind it", (t) => {
  for (const [tokens, size] of [[1500, 1], [300, 20], [8, 2000]] as const) {
    const client = connect(join(tmpdir(), "nobody"), { backlogBytesMax: 1 << 18 });
    t.after(() => client.close(0));
    for (let n = 0; n < 300; n += 1) {
      const reply = client.reply(`s-${n}`);
      for (let at = 0; at < tokens; at += 1) reply.token("x".repeat(size));
      reply.cancel();
    }
    assert.ok(client.stats().dropped > 0 && client.stats().unsyncedBytes <= 1 << 18);
    const bytes = memoryOf(client);
    assert.ok(bytes <= 1 << 18, `${bytes} bytes behind ${client.stats().unsyncedBytes} that are held`);
  }
});

test("replies that were given up because there are too many are forgotten, also those whose Reply was gone before", async (t) => {
  const client = connect(join(tmpdir(), "nobody"), { backlogBytesMax: 1 << 16 });
  t.after(() => client.close(0));
  for (let n = 0; n < 5000; n += 1) {
    client.reply("s").cancel();
    if (n % 200 === 0) globalThis.gc!(), await new Promise(setImmediate);
  }
  const { streams, dropped, sent, backlog } = client.stats();
  assert.ok(streams < 1000, `${streams} streams of ${backlog} events`);
  assert.deepEqual([sent, dropped + backlog], [0, 10_000]);
});

/** A client with a reply that has a connection, and that connection. */
async function talking(t: TestContext) {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const reply = client.reply("s");
  await reply.drain();
  const link = client["link"] as unknown as { socket: Socket; descriptor: number };
  return { client, reply, link };
}

test("a token goes to the kernel past the socket; what it does not take at once is the socket's", async (t) => {
  const { client, reply, link } = await talking(t);
  let written = 0;
  const { write } = link.socket;
  link.socket.write = function (this: Socket, ...given: unknown[]) {
    written += 1;
    return (write as (...all: unknown[]) => boolean).apply(this, given);
  } as typeof write;
  for (let n = 1; n <= 100; n += 1) reply.token("1234567890".repeat(n % 10));
  assert.deepEqual([written, reply.sentSeq, client.stats().backlog], [0, 100, 0]);
  for (let n = 0; n < 20; n += 1) reply.token("x".repeat(50_000));
  assert.ok(written > 0 && reply.sentSeq < 120, "a frame that was taken in part is not sent");
  assert.ok(await reply.drain());
  const { text } = (await client.recover("s"))!;
  assert.equal(text.length, 10 * 450 + 20 * 50_000);
  assert.equal(client.stats().reconnects, 0, "no byte twice: its frames could not be read");
});

test("where the kernel takes nothing past the socket, the socket writes everything", async (t) => {
  const { client, reply, link } = await talking(t);
  reply.token("a");
  link.descriptor = -1; // a Node that does not tell it
  reply.token("b");
  link.descriptor = openSync("/dev/full", "w"); // write(2) fails
  t.after(() => closeSync(link.descriptor));
  reply.token("c");
  const { writeSync } = fs;
  t.after(() => ((fs.writeSync = writeSync), syncBuiltinESMExports()));
  fs.writeSync = (() => undefined) as never; // what tests of programs put there
  syncBuiltinESMExports();
  reply.token("d");
  assert.deepEqual([reply.sentSeq, client.stats().backlog], [4, 0]);
  assert.equal((await client.recover("s"))!.text, "abcd");
});

test("a connection that was closed a moment ago: its descriptor is another file's, which gets no token", async (t) => {
  const { client, reply, link } = await talking(t);
  reply.token("before ");
  const folder = mkdtempSync(join(tmpdir(), "walld-descriptor-"));
  const path = join(folder, "another");
  const was = link.descriptor;
  link.socket.destroy();
  const opened: number[] = [];
  t.after(() => {
    for (const one of opened) closeSync(one);
    rmSync(folder, { recursive: true });
  });
  while (!opened.includes(was) && opened.length < 100) opened.push(openSync(path, "a"));
  assert.equal(opened.at(-1), was, "the number came again");
  reply.token("behind");
  assert.equal(readFileSync(path, "utf8"), "");
  await until(() => reply.sentSeq === 2, "the next connection");
  assert.equal((await client.recover("s"))!.text, "before behind");
});
