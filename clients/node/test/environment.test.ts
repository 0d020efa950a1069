/** The client in its environment: no daemon, switched off, the end of a program, threads, the socket's path. */

import assert from "node:assert/strict";
import { chmodSync, chownSync, existsSync, lchownSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createServer } from "node:net";
import { after, test, type TestContext } from "node:test";
import { spawnSync } from "node:child_process";

import { Unavailable, connect } from "walld-client";

import { isKept, pathName } from "#dist/query/offline.js";
import { checkWay, findSocket, socketCandidates } from "#dist/link/socketPath.js";

import { Daemon, PACKAGE, Program } from "./support/daemon.js";

/** The first segment of the log 00..., without a batch. */
const EMPTY_SEGMENT = Buffer.from(`77616c6c6477616c0100000040000000${"00".repeat(16)}0100${"00".repeat(14)}01${"00".repeat(11)}eb7fc1f8`, "hex");

/** For the tests that do not kill it. */
const shared = await Daemon.started({ after });

const THOUSAND = Array.from({ length: 1000 }, (_, n) => `${n + 1} `).join("");

function folder(t: TestContext): string {
  const made = mkdtempSync(join(tmpdir(), "walld-around-"));
  t.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** With other variables of the environment, while the test runs. */
function environment(t: TestContext, given: Record<string, string>): void {
  const before = { ...process.env };
  Object.assign(process.env, given);
  t.after(() => {
    for (const name of Object.keys(given)) delete process.env[name];
    Object.assign(process.env, before);
  });
}

test("a program that ends by itself waits for the kernel to take its last words", async () => {
  const program = new Program("test/support/shortProgram.js", [shared.socket, "brief"]);
  assert.equal(await program.ended(), 0);
  const found = (await shared.client().recover("brief"))!;
  assert.equal(found.text, THOUSAND);
  assert.equal(found.status, "cancelled");
});

test("process.exit() waits for nothing: what the event loop never sent is not there", async () => {
  assert.equal(await new Program("test/support/shortProgram.js", [shared.socket, "exited", "exit"]).ended(), 0);
  assert.equal(await shared.client().recover("exited"), null);
});

test("without a daemon a program ends all the same", async (t) => {
  const began = performance.now();
  const program = new Program("test/support/shortProgram.js", [join(folder(t), "nobody"), "alone"]);
  assert.equal(await program.ended(), 0);
  assert.match(program.stderr, /WalldWarning: walld at .*nobody: it cannot be reached/);
  t.diagnostic(`${Math.round(performance.now() - began)} ms`);
});

test("each worker thread is a producer of its own", async () => {
  assert.equal(await new Program("test/support/shortProgram.js", [shared.socket, "threads", "worker"]).ended(), 0);
  for (const name of ["one", "two"]) {
    assert.equal((await shared.client().recover(`threads-${name}`))!.text, THOUSAND);
  }
});

test("switched off, every call is there and touches nothing", async (t) => {
  environment(t, { WALLD_ENABLED: "0" });
  const client = connect("/nowhere");
  const reply = client.reply("s", { streamId: "mine" });
  assert.equal(reply.streamId, "mine");
  assert.match(client.reply("s").streamId, /^[0-9a-f]{32}$/);
  assert.throws(() => client.reply(""), RangeError);
  assert.deepEqual([reply.token("x"), reply.tool("t", {}), reply.step(), reply.end()], [0, 0, 0, 0]);
  assert.equal(await reply.drain(), true);
  assert.equal(await client.recover("s"), null);
  assert.deepEqual(await client.orphans(), []);
  assert.equal(await client.hasPartial("s"), false);
  assert.equal(await client.resolve("mine"), false);
  const session = client.session("s");
  const turn = await session.submit("hello", { messageId: "m" });
  await turn.workerStarted();
  const inTurn = await turn.reply();
  assert.equal(inTurn.end(), 0);
  assert.equal(await session.messages(), null);
  assert.deepEqual(await session.events(), []);
  assert.equal(client.stats().streams, 0);
  assert.match(await client.check(), /switched off/);
  assert.equal(await client.close(), true);
});

test("without a daemon the data directory says yes, no, or unknown", async (t) => {
  const daemon = await Daemon.started(t);
  const agent = new Program("test/support/streamingAgent.js", [daemon.socket, "kept", "5", "0"]);
  await agent.ended();
  await daemon.client().recover("kept");
  await daemon.kill();
  const client = connect(join(folder(t), "nobody"), { data: daemon.data });
  t.after(() => client.close());
  assert.notEqual(await client.hasPartial("kept"), false);
  await assert.rejects(client.recover("kept"), Unavailable);

  const empty = folder(t);
  mkdirSync(join(empty, "wal"));
  const segment = join(empty, "wal", "00000000000000000001.wal");
  writeFileSync(segment, EMPTY_SEGMENT);
  const other = connect(join(folder(t), "nobody"), { data: empty });
  t.after(() => other.close());
  assert.equal(await other.recover("kept"), null);
  assert.equal(await other.hasPartial("kept"), false);
  const lock = `walld 1\nepoch ${"1".padStart(20, "0")}\nlog ${"0".repeat(32)}\nwritten\n`.padEnd(160);
  writeFileSync(segment, EMPTY_SEGMENT);
  writeFileSync(join(empty, "LOCK"), lock);
  mkdirSync(join(empty, "quarantine"));
  writeFileSync(join(empty, "quarantine", "sessions+0+S+events.jsonl.0.9"), "");
  assert.equal(await other.hasPartial("kept"), false);
  flip(segment, 48);
  assert.equal(await other.hasPartial("kept"), null, "a header that does not verify is none");
  flip(segment, 48);
  for (const name of ["quarantine", "partials", "wal"]) {
    symlinkSync("/nowhere/else", join(empty, "link"));
    if (existsSync(join(empty, name))) renameSync(join(empty, name), join(empty, "aside"));
    renameSync(join(empty, "link"), join(empty, name));
    assert.equal(await other.hasPartial("kept"), null, `${name}/ may be anywhere`);
    rmSync(join(empty, name));
    if (existsSync(join(empty, "aside"))) renameSync(join(empty, "aside"), join(empty, name));
    assert.equal(await other.hasPartial("kept"), false);
  }
  writeFileSync(join(empty, "LOCK"), lock.replace("log 00", "log 0f"));
  assert.equal(await other.hasPartial("kept"), null, "a segment of another log");
  writeFileSync(join(empty, "LOCK"), lock);
  writeFileSync(join(empty, "quarantine", "batches-3-7"), "");
  assert.equal(await other.hasPartial("kept"), null, "any reply may have been in those");
  const partial = join(empty, "partials", String(process.geteuid!()), pathName("a/b"));
  mkdirSync(partial, { recursive: true });
  writeFileSync(join(partial, "x"), "x");
  assert.equal(await other.hasPartial("a/b"), true);
  await assert.rejects(other.recover("a/b"), /something is kept: `walld recover --data/);
  assert.equal(isKept(join(empty, "nowhere"), 0, null), null);
});

test("each directory of the vectors is told as they say", (t) => {
  const document = JSON.parse(readFileSync(join(PACKAGE, "..", "vectors", "directories.json"), "utf8"));
  type Answer = boolean | null;
  type Directory = { name: string; files: Record<string, string>; kept: Answer; of?: Record<string, Answer> };
  const directories = document.directories as Directory[];
  assert.ok(directories.length > 100);
  for (const { name, files, kept, of } of directories) {
    const data = folder(t);
    for (const [path, content] of Object.entries(files)) {
      mkdirSync(dirname(join(data, path)), { recursive: true });
      writeFileSync(join(data, path), content, "hex");
    }
    assert.equal(isKept(data, 0, "S"), kept, name);
    for (const [session, own] of Object.entries(of ?? {})) assert.equal(isKept(data, 0, session), own, name);
    if (of === undefined) assert.equal(isKept(data, 0, null), kept, name);
  }
});

test("what is planted in the place of LOCK is not followed or waited for, and proves nothing", (t) => {
  const data = folder(t);
  const lock = join(data, "LOCK");
  mkdirSync(join(data, "wal"));
  writeFileSync(join(data, "wal", "00000000000000000001.wal"), EMPTY_SEGMENT);
  // Another process: whoever waits there waits for ever, and no timer of its own comes.
  const code = "import { isKept } from '#dist/query/offline.js'; console.log(isKept(process.argv[1], 0, 's'))";
  const asked = () => {
    const command = ["--input-type=module", "-e", code, data];
    return spawnSync(process.execPath, command, { cwd: PACKAGE, encoding: "utf8", timeout: 20_000 }).stdout;
  };
  assert.equal(asked(), "false\n");
  assert.equal(spawnSync("mkfifo", [lock]).status, 0);
  assert.equal(asked(), "null\n", "a fifo that nobody writes to");
  rmSync(lock);
  symlinkSync("/dev/zero", lock);
  assert.equal(asked(), "null\n", "a link to what has no end");
  rmSync(lock);
  writeFileSync(join(data, "other"), "");
  symlinkSync(join(data, "other"), lock);
  assert.equal(asked(), "null\n", "a link to a file");
  rmSync(lock);
  mkdirSync(lock);
  assert.equal(asked(), "null\n", "a directory");
});

function flip(path: string, at: number): void {
  const bytes = readFileSync(path);
  bytes[at]! ^= 1;
  writeFileSync(path, bytes);
}

test("ids become the names that FORMAT.md says", () => {
  const python = process.env["WALLD_COMMAND"]?.replace(/walld$/, "python") ?? join(PACKAGE, "../../.venv/bin/python");
  const ids = ["chat-1", ".", "..", "a/b", "-", "x".repeat(96), "x".repeat(97), "ü", "h~", "a b", "\n"];
  const code = "import json,sys; from walld_client.paths import path_name; print(json.dumps([path_name(i) for i in json.load(sys.stdin)]))";
  const told = spawnSync(python, ["-c", code], { input: JSON.stringify(ids), encoding: "utf8" });
  assert.equal(told.status, 0, told.stderr);
  assert.deepEqual(ids.map(pathName), JSON.parse(told.stdout));
});

test("the socket is where the variables say, and a folder that others can use is not trusted", (t) => {
  const base = folder(t);
  const uid = process.geteuid!();
  assert.deepEqual(socketCandidates({ XDG_RUNTIME_DIR: "/x", TMPDIR: "/y" }, 7), [
    "/x/walld/walld.sock",
    "/run/walld/walld.sock",
    "/y/walld-7/walld.sock",
  ]);
  assert.deepEqual(socketCandidates({ XDG_RUNTIME_DIR: "rel", TMPDIR: "rel" }, 7), [
    "/run/walld/walld.sock",
    "/tmp/walld-7/walld.sock",
  ]);
  if (existsSync("/run/walld/walld.sock")) {
    t.diagnostic("a walld of this machine listens in /run/walld: the folder below the temporary one is not looked at");
    return;
  }
  environment(t, { XDG_RUNTIME_DIR: "", TMPDIR: base });
  const own = join(base, `walld-${uid}`);
  mkdirSync(own, { mode: 0o700 });
  writeFileSync(join(own, "walld.sock"), "");
  assert.equal(findSocket(undefined), join(own, "walld.sock"));
  assert.equal(findSocket("/given"), "/given");
  chmodSync(own, 0o750);
  assert.throws(() => findSocket(undefined), /only uid .* can use, its socket is not trusted/);
  rmSync(own, { recursive: true });
  const real = join(base, "real");
  mkdirSync(real, { mode: 0o700 });
  writeFileSync(join(real, "walld.sock"), "");
  symlinkSync(real, own);
  assert.throws(() => findSocket(undefined), /not trusted/);
  process.env["WALLD_SOCKET"] = "/named";
  assert.equal(findSocket(undefined), "/named");
  delete process.env["WALLD_SOCKET"];
});

test("the version is said once", () => {
  const told = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8")) as { version: string };
  const source = readFileSync(join(PACKAGE, "dist/link/producer.js"), "utf8");
  assert.ok(source.includes(`VERSION = "${told.version}"`));
});

const isRoot = process.geteuid!() === 0;
const needsRoot = isRoot ? false : "only root may give a folder to another user";
const THIEF = 61002;

/** A folder below one where root alone may write: below /tmp the way is anybody's already. */
function rootsFolder(t: TestContext): string {
  const made = mkdtempSync("/run/walld-node-");
  chmodSync(made, 0o755);
  t.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

for (const way of ["a folder that a group may write", "a link of another user", "a folder below another user's"]) {
  test(`nothing is said where another user may swap the socket: ${way}`, { skip: needsRoot }, async (t) => {
    const base = rootsFolder(t);
    const his = join(base, "his");
    let path: string;
    if (way.includes("link")) {
      mkdirSync(join(base, "real"));
      symlinkSync("real", his);
      lchownSync(his, THIEF, THIEF);
      path = join(his, "s");
    } else {
      mkdirSync(join(his, "walld"), { recursive: true });
      if (way.includes("group")) {
        chmodSync(his, 0o775);
        chownSync(his, 0, THIEF);
      } else chownSync(his, THIEF, THIEF);
      path = join(his, "walld", "s");
    }
    let came = 0;
    const server = createServer((peer) => {
      came += 1;
      peer.destroy();
    });
    await new Promise<void>((done) => server.listen(path, done));
    t.after(() => server.close());
    const warned: string[] = [];
    const listen = (warning: Error): void => void warned.push(warning.message);
    process.on("warning", listen);
    t.after(() => process.off("warning", listen));
    const client = connect(path, { timeoutMs: 500 });
    const reply = client.reply("chat");
    reply.token("a secret");
    const told = new RegExp(`${his} is of uid .* this process is uid 0: .*nothing was sent`);
    await assert.rejects(client.recover("chat"), (error) => error instanceof Unavailable && told.test(error.message));
    assert.equal(await reply.drain({ timeoutMs: 200 }), false);
    assert.ok(client.stats().backlog > 0, "it waits, as without a daemon");
    assert.ok(warned.some((line) => told.test(line)), warned.join("; "));
    assert.equal(came, 0);
    await client.close(0);
  });
}

test("a folder that root gave to a daemon of another user is taken, and WALLD_SOCKET_UID", { skip: needsRoot }, async (t) => {
  const base = rootsFolder(t);
  const given = join(base, "walld");
  mkdirSync(given);
  writeFileSync(join(given, "s"), "");
  chownSync(given, THIEF, THIEF);
  chownSync(join(given, "s"), THIEF, THIEF);
  checkWay(join(given, "s"));
  chownSync(join(given, "s"), THIEF + 1, THIEF);
  assert.throws(() => checkWay(join(given, "s")), { code: "EPERM" });
  const open = join(base, "open");
  mkdirSync(open);
  chmodSync(open, 0o1777);
  writeFileSync(join(open, "s"), "");
  checkWay(join(open, "s"));
  chownSync(join(open, "s"), THIEF, THIEF);
  assert.throws(() => checkWay(join(open, "s")), { code: "EPERM" });
  environment(t, { WALLD_SOCKET_UID: String(THIEF) });
  checkWay(join(open, "s"));
  checkWay(join(base, "nothing", "s")); // connect(2) says that it is not there
});
