/** Calls of sessions and turns on a real daemon: tools, the gate, claims, branches, artifacts. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import { Blocked, Refused, connect } from "walld-client";

import { Daemon, PACKAGE, Program, until } from "../support/daemon.js";

const daemon = await Daemon.started({ after });
const client = daemon.client({ timeoutMs: 10_000 });
const RISK = { sideEffect: "external-write", resumePolicy: "rerun-after-check" } as const;

/** What a Python program says on stderr. */
function python(code: string, ...args: string[]): string {
  const command = process.env["WALLD_COMMAND"]?.replace(/walld$/, "python") ?? join(PACKAGE, "../../.venv/bin/python");
  return spawnSync(command, ["-c", code, ...args], { encoding: "utf8" }).stderr;
}

/** A program that plays the first steps of the scenario, killed behind them. */
async function killed(sessionId: string, steps: number): Promise<void> {
  const program = new Program("test/support/play.js", [daemon.socket, sessionId, "0"]);
  for (let at = 0; at < steps; at += 1) program.process.stdin!.write("go\n");
  await until(() => program.lines.length === steps || program.process.exitCode !== null, `${steps} steps`);
  assert.equal(program.process.exitCode, null, program.stderr);
  program.process.kill("SIGKILL");
  await program.ended();
  await until(async () => ((await client.session(sessionId).resumeCheck())!.owner ?? null) === null, "no owner");
}

test("a call that may have run: the gate says check, a settlement lets it go on, one of several claims it", async () => {
  await killed("gate", 16);
  const session = client.session("gate");
  const gate = (await session.resumeCheck())!;
  assert.equal(gate.status, "check");
  assert.deepEqual(gate.calls.map((one) => [one.call_id, one.may]), [["c1", "check_then_run"]]);
  await assert.rejects(session.resume(), (error: Error) => {
    return error instanceof Blocked && error.status === "check" && error.calls[0]!["call_id"] === "c1";
  });
  await assert.rejects(session.settle("c9", "ran"), (error: Error) => {
    return error instanceof Refused && error.code === "unknown_call" && error.limit === "c1";
  });
  const first = await session.settle("c1", "did_not_run", { by: "ann", note: "seen in the log" });
  const same = await session.settle("c1", "did_not_run", { by: "bob" });
  assert.deepEqual([first.isNew, same.isNew, same.id], [true, false, first.id]);
  const turn = await session.resume();
  assert.equal(turn.messageId, "m1");
  assert.equal((await session.resume()).turnId, turn.turnId); // it is this process's already
  const said = python("import sys, walld_client\nwalld_client.connect(sys.argv[1]).session('gate').resume()", daemon.socket);
  assert.match(said, /already_resumed.*turn [a-z2-7]{16}, submitted, process [0-9]+ of boot/);
  await turn.completed();
  await assert.rejects(session.resume(), (error: Error) => {
    return error instanceof Refused && error.code === "nothing_to_resume" && error.got.includes("completed");
  });
});

test("names that every object has are no answers: types, call ids, options", async () => {
  const session = client.session("constructor");
  await session.append("constructor", { text: "x".repeat(300_000) });
  const turn = await session.submit("q");
  await turn.intent("t", {}, { ...RISK, callId: "constructor", fields: { toString: 1 } });
  await turn.toolStarted("constructor");
  await assert.rejects(session.resume(), Blocked);
  await assert.rejects(session.resume({ constructor: 1 } as object), /there is no option constructor/);
  await turn.completed();
});

test("a policy of now: words, or a function that is asked of each call", async () => {
  await killed("policy", 16);
  const session = client.session("policy");
  const denied = (await session.resumeCheck({ policy: { deploy: "deny" } }))!;
  assert.equal(denied.status, "blocked");
  const asked: unknown[] = [];
  const policy = async (call: Record<string, unknown>) => {
    asked.push(call["tool"]);
    return "ask" as const;
  };
  const told = (await session.resumeCheck({ policy }))!;
  assert.deepEqual(asked, ["deploy"]);
  assert.notEqual(told.status, "ok");
  await assert.rejects(session.resumeCheck({ policy: () => "maybe" as "ask" }), /policy must be one of allow, ask, deny/);
});

test("what was asked, said, is unknown and may be done is told as the command tells it", async () => {
  await killed("explained", 16);
  const session = client.session("explained");
  const told = (await session.explain())!;
  const said = daemon.walld("explain", "explained", "--json").replaceAll(` --socket ${daemon.socket}`, "");
  assert.deepEqual(told, JSON.parse(said));
  assert.equal(told.state, "cut");
  assert.deepEqual(told.unknown.map((one) => one["call_id"]), ["c1"]);
  assert.match(JSON.stringify(told.saying), /I deploy\./);
  const denied = (await session.explain({ policy: { deploy: "deny" }, workspace: { root: "/srv" } }))!;
  assert.equal(denied.state, "blocked");
  assert.equal(await client.session("never written").explain(), null);
});

test("a call that is the work of a sub-agent has what that said last, once, whoever says it", async () => {
  const results = async (name: string) => {
    return (await client.session(name).events()).filter((one) => one.type === "tool_finished");
  };
  for (const [name, way] of [["by child", "child"], ["by resume", "resume"]] as const) {
    const session = client.session(name);
    const turn = await session.submit("go", { calls: "journal" });
    await turn.intent("spawn", {}, { ...RISK, callId: "k" });
    const child = await session.child(`${name}/c`, { callId: "k" });
    assert.equal(child.sessionId, `${name}/c`);
    await turn.toolStarted("k");
    const task = await client.session(`${name}/c`).submit("look"); // it does not know whose child it is
    const reply = await task.reply();
    reply.token("4 degrees");
    reply.end();
    await task.completed();
    assert.deepEqual(await results(name), []);
    const said = async () => (await session.messages({ format: "openai" }))!.at(-1)!["content"];
    assert.equal(await said(), "4 degrees", "views look into the child");
    for (let times = 0; times < 2; times += 1) {
      if (way === "child") await session.child(`${name}/c`, { callId: "k", turn: turn.turnId });
      else assert.deepEqual((await session.resume()).calls, []);
      const [told, ...more] = await results(name);
      assert.deepEqual([told!.id, told!.payload], [`${name}/c:${task.turnId}:result`, { call_id: "k", result: "4 degrees" }]);
      assert.equal(more.length, 0);
    }
    const of = { turn: turn.turnId, call_id: "k" };
    const links = [...(await session.find("child")), ...(await child.find("child_of"))];
    const joined = (other: string) => ({ session: other, call_id: "k", of });
    assert.deepEqual(links.map((one) => one.payload), [joined(`${name}/c`), joined(name)]);
  }
  const session = client.session("by child");
  await assert.rejects(session.child("by child", { callId: "k" }), /^RangeError: id of child must be another session's/);
  await assert.rejects(session.child("x", { callId: "k9" }), (error) => error instanceof Refused && error.code === "unknown_call");
  await assert.rejects(session.child("x", {} as { callId: string }), /^TypeError: callId must be a string/);
  assert.equal(await client.session("x").state(), null, "nothing is written");
});

test("what a sub-agent said at length stands whole in its parent", async () => {
  const session = client.session("long parent");
  const turn = await session.submit("go", { calls: "journal" });
  await turn.intent("spawn", {}, { ...RISK, callId: "k" });
  const child = await session.child("long child", { callId: "k" });
  await turn.toolStarted("k");
  const task = await child.submit("look");
  await child.message("assistant", "4 degrees ".repeat(30_000), { turn: task.turnId });
  const whole = async () => ((await session.messages())!.at(-1)!["tool_calls"] as { result: string }[])[0]!.result.length;
  assert.equal(await whole(), 300_000, "of the child, while nobody has said it");
  await task.completed();
  assert.equal(await whole(), 300_000);
  assert.equal((await session.resumeCheck())!.calls[0]?.may ?? "read_result", "read_result");
});

test("what a killed process had said is adopted once, and the call in it stays open", async () => {
  await killed("adopted", 12);
  const session = client.session("adopted");
  const [entry, ...more] = await session.adopt();
  assert.equal(more.length, 0);
  assert.equal(entry!.id, "adopted-stream:1");
  assert.deepEqual(await session.adopt(), []);
  const last = (await session.messages())!.at(-1)!;
  assert.deepEqual([last["content"], last["_partial"]], ["I deploy.", true]);
  const reply = client.reply("adopted", { streamId: "of the living" });
  reply.token("not yet");
  await assert.rejects(session.adopt({ streamId: "of the living" }), /its owner is alive/);
  reply.end();
});

test("what was cut behind a whole sentence is no answer once it is adopted", async () => {
  await killed("a sentence", 11);
  const session = client.session("a sentence");
  assert.equal((await session.resumeCheck())!.boundary, "before_intent");
  const [entry] = await session.adopt();
  const last = (await session.messages())!.at(-1)!;
  assert.deepEqual([last["content"], last["_partial_reason"]], ["I deploy.", "end_missing"]);
  assert.equal(entry!.id, "a sentence-stream:1");
  assert.equal((await session.resumeCheck())!.boundary, "before_intent");
  assert.equal((await client.repairPlan("a sentence", { present: ["m1"] }))[0]!.op, "mark_interrupted");
});

test("a call's events are its journal; its process is named; a failure is told in both ways", async () => {
  const session = client.session("journal");
  const turn = await session.submit("q");
  const intent = await turn.intent("run", { n: 1 }, { ...RISK, fields: { cwd: "/srv" } });
  await assert.rejects(turn.intent("run", {}, { ...RISK, fields: { said: 1 } }), /said of tool_intent is not the application's/);
  await assert.rejects(turn.intent("run", {}, {} as typeof RISK), /sideEffect must be one of none, read/);
  const folder = mkdtempSync(join(tmpdir(), "walld-files-"));
  const file = join(folder, "a.txt");
  writeFileSync(file, "written");
  await turn.toolStarted(intent.id, { pid: process.pid });
  await turn.toolFinished(intent.id, { code: 1 }, { outcome: "failed", exitCode: 1, files: [file, join(folder, "none")] });
  rmSync(folder, { recursive: true });
  const payloads = (await session.events()).map((one) => one.payload);
  assert.deepEqual(payloads[1]!["cwd"], "/srv");
  assert.deepEqual(Object.keys(payloads[2]!), ["call_id", "pid", "start", "boot", "namespace"]);
  const hash = createHash("sha256").update("written").digest("hex");
  const told = { call_id: intent.id, result: { code: 1 }, failed: true, outcome: "failed", exit_code: 1 };
  assert.deepEqual(payloads[3], { ...told, files: { [file]: hash, [join(folder, "none")]: null } });
  await assert.rejects(turn.toolFinished(intent.id, 1, { failed: true, outcome: "done" }), /contradict each other/);
  await turn.completed();
});

test("an intent names the call of its answer, by its place in the reply", async () => {
  const session = client.session("places");
  const turn = await session.submit("q");
  const reply = await turn.reply({ streamId: "places" });
  const parted = [() => reply.step(), () => reply.finish(), () => reply.toolResult("x", { callId: "c" }), () => 0];
  for (const next of parted) {
    reply.tool("run", {}, { callId: "c" });
    await turn.intent("run", undefined, { ...RISK, callId: "c" });
    await turn.toolStarted("c");
    await turn.toolFinished("c");
    next();
  }
  reply.cancel();
  const said = (await session.events()).map((one) => one.payload["said"]).filter((one) => one !== undefined);
  assert.deepEqual(said, ["places:1", "places:3", "places:5", "places:7"]);
  await turn.completed();
});

test("pages, finds, edits and forks", async () => {
  const session = client.session("tree");
  for (let at = 0; at < 5; at += 1) await session.message(at % 2 ? "assistant" : "user", `m${at}`, { id: `e${at}`, key: `k${at}` });
  const page = (await session.messages({ last: 2 }))!;
  const before = (await session.messages({ last: 2, before: page.before! }))!;
  assert.deepEqual([...before, ...page].map((one) => one["content"]), ["m1", "m2", "m3", "m4"]);
  await assert.rejects(session.messages({ before: page.before! }), /before needs last/);
  assert.deepEqual((await session.find("message", { keyPrefix: "k", last: 1 })).map((one) => one.id), ["e4"]);
  await assert.rejects(session.edit("nobody", { role: "user", content: "x" }), (error: Error) => {
    return error instanceof Refused && error.code === "unknown_target";
  });
  await assert.rejects(session.edit("e0", { mine: "x" }), /or its content/);
  await session.edit("e4", { role: "user", content: "another" });
  await session.branch("e1");
  await session.message("user", "m5", { id: "e5" });
  assert.deepEqual((await session.events(0, { branch: "e5" })).map((one) => one.id).filter((id) => /^e/.test(id)), ["e0", "e1", "e5"]);
  await assert.rejects(session.events(0, { branch: "nobody" }), /unknown_entry/);
  const fork = await session.fork("e1", "tree-2");
  assert.deepEqual((await fork.messages())!.map((one) => one["content"]), ["m0", "m1"]);
  await fork.message("user", "of its own");
  assert.equal((await session.messages())!.length, 3);
});

test("long content is whole again where it is read; an artifact is a file's bytes or no file", async () => {
  const session = client.session("long");
  const long = "half \ud83d, " + "\u00fc".repeat(200_000);
  await session.message("user", long);
  await session.message("assistant", [{ type: "text", text: long.toWellFormed() }]);
  const told = (await session.messages())!.map((one) => one["content"]);
  assert.deepEqual(told, [long, [{ type: "text", text: long.toWellFormed() }]]);
  const kept = (await session.events())[0]!.payload["content"] as { _artifact: { size: number } };
  assert.equal(kept._artifact.size, 400_010);
  const folder = mkdtempSync(join(tmpdir(), "walld-artifact-"));
  const bytes = Buffer.alloc(1_300_000, "piece");
  writeFileSync(join(folder, "a.bin"), bytes);
  const artifact = await session.artifact(join(folder, "a.bin"), { mediaType: "text/plain" });
  await assert.rejects(session.artifact(folder), /is no file|EISDIR/);
  rmSync(folder, { recursive: true });
  assert.equal(artifact.size, bytes.length);
  assert.ok(bytes.equals(await session.readArtifact(artifact.sha256)));
  assert.equal((await session.find("artifact"))[0]!.payload["name"], "a.bin");
  await assert.rejects(session.readArtifact("0".repeat(64)), /artifact_missing/);
  await assert.rejects(session.readArtifact("xyz"), /must be 64 hex digits/);
  await assert.rejects(session.message("user", [1, { n: NaN }]), /content\[1\]\['n'\] of a message is NaN or infinite/);
});

test("a workspace is fingerprinted as the other client does, and one that changed is told by the gate", async (t) => {
  const session = client.session("workspace");
  await session.submit("q");
  const git = (folder: string, ...words: string[]) =>
    execFileSync("git", ["-C", folder, "-c", "user.name=n", "-c", "user.email=e", ...words], { stdio: "pipe" });
  for (const kind of ["folder", "clean", "dirty"]) {
    const folder = mkdtempSync(join(tmpdir(), "walld-workspace-"));
    t.after(() => rmSync(folder, { recursive: true }));
    for (const name of ["a", "b", "\u00fc c", "moved"]) writeFileSync(join(folder, name), `the text of ${name}`);
    if (kind !== "folder") {
      git(folder, "init", "-q", "-b", "main");
      git(folder, "add", ".");
      git(folder, "commit", "-q", "-m", "first");
    }
    if (kind !== "clean") {
      renameSync(join(folder, "moved"), join(folder, "was moved"));
      rmSync(join(folder, "b"));
      chmodSync(join(folder, "\u00fc c"), 0o755);
      symlinkSync("a", join(folder, "link"));
      mkdirSync(join(folder, "deep"));
      writeFileSync(join(folder, "deep", "new"), "new");
    }
    if (kind === "dirty") git(folder, "add", "-A", "moved", "was moved");
    await session.checkpointWorkspace(folder, { files: ["a", "none"] });
    const says =
      "import sys, walld_client\nsession = walld_client.connect(sys.argv[1]).session('workspace')\n" +
      "session.checkpoint_workspace(sys.argv[2], files=['a', 'none'])";
    assert.equal(python(says, daemon.socket, folder), "");
    const [ours, theirs] = (await session.find("lifecycle", { last: 2 })).map((one) => one.payload["fingerprint"] as object);
    assert.deepEqual({ ...theirs, files: {} }, { ...ours, files: {} }, kind);
    const seen = ours as { head: string | null; dirty: boolean | null; changes: object | null; kinds?: object };
    assert.deepEqual([seen.head !== null, seen.dirty], { folder: [false, null], clean: [true, false], dirty: [true, true] }[kind]);
    if (kind === "dirty") assert.equal(Object.keys(seen.changes!).length, 6, JSON.stringify(seen.changes));
    if (kind !== "clean") assert.deepEqual({ ...seen.kinds }, { link: "link", "\u00fc c": "executable" });
    const codes = async () => (await session.resumeCheck({ workspace: folder }))!.reasons.map((one) => one["code"]);
    assert.ok(!(await codes()).includes("workspace_changed"), kind);
    writeFileSync(join(folder, "a"), "changed");
    assert.ok((await codes()).includes("workspace_changed"), `${kind}: ${String(await codes())}`);
  }
});

test("walld switched off: every call answers", async () => {
  process.env["WALLD_ENABLED"] = "0";
  const off = connect();
  delete process.env["WALLD_ENABLED"];
  const session = off.session("off");
  const turn = await session.submit("q", { attachments: [Buffer.from("x")] });
  await turn.intent("t", {}, RISK);
  assert.equal(await session.resumeCheck(), null);
  assert.equal(await session.explain(), null);
  assert.equal(await session.messages({ last: 3 }), null);
  assert.deepEqual(await session.adopt(), []);
  const child = await session.child("off-c", { callId: "k" });
  assert.ok((await (await child.submit("q")).completed()).id);
  assert.equal((await session.fork(null, "off-2")).sessionId, "off-2");
  await assert.rejects(session.resume(), /nothing_to_resume/);
  assert.equal((await session.turn("t-1")).turnId, "t-1");
  assert.notEqual((await session.submit("q", { retryOf: turn.turnId })).turnId, turn.turnId);
  assert.deepEqual([await off.sessions(), await off.delete("off"), (await off.audit()).overall], [[], false, "ok"]);
  assert.deepEqual(await off.repairPlan("off", { present: [] }), []);
  await assert.rejects(session.readArtifact("0".repeat(64)), /artifact_missing/);
});
