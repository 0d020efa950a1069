/** Sessions against a program's own store: audit, repair plan, startup behind a kill at each call of the store; delete. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";

import { startup, type Report, type Store } from "walld-client";

import { Daemon, PACKAGE, Program, until } from "../support/daemon.js";

/** A store of a program's own, in the order in which rows came. It may throw at its nth change, which a kill is like. */
class Rows implements Store {
  readonly rows = new Map<string, Record<string, unknown>>();
  private left: number;

  constructor(left = Infinity) {
    this.left = left;
  }

  allows(left: number): void {
    this.left = left;
  }

  async has(key: string): Promise<boolean> {
    return this.rows.has(key);
  }

  save(_sessionId: string, message: Record<string, unknown>): void {
    if ((this.left -= 1) < 0) throw new Error("killed");
    this.rows.set(message["_key"] as string, message);
  }

  async mark(sessionId: string, turn: string, reason: string): Promise<void> {
    this.save(sessionId, { role: "system", content: `[interrupted: ${reason}]`, _key: `${turn}:interrupted` });
  }

  get said(): unknown[] {
    return [...this.rows.values()].map((one) => one["content"]);
  }
}

/** Programs that played the first steps of the scenario, and were killed in a reply with an open call. */
async function crashed(daemon: Daemon, ...names: string[]): Promise<void> {
  for (const name of names) {
    const program = new Program("test/support/play.js", [daemon.socket, name, "0"]);
    for (let at = 0; at < 16; at += 1) program.process.stdin!.write("go\n");
    await until(() => program.lines.length === 16 || program.process.exitCode !== null, "16 steps");
    assert.equal(program.process.exitCode, null, program.stderr);
    program.process.kill("SIGKILL");
    await program.ended();
    await until(async () => (await daemon.client().orphans(name)).length === 1, "an orphan");
  }
}

test("a store gets what a crash left, whichever change it was killed at, and once", async (t) => {
  for (let changes = 0; changes < 3; changes += 1) {
    const daemon = await Daemon.started(t);
    await crashed(daemon, "app/1");
    await daemon.client().session("other").submit("of another program");
    const client = daemon.client();
    const store = new Rows(changes);
    await assert.rejects(startup(client, store, { prefix: "app/" }), /killed/);
    store.allows(Infinity);
    const made = await startup(client, store, { prefix: "app/" });
    assert.deepEqual(store.said, ["deploy it \ud83d", "I deploy.", "[interrupted: agent_lost]"]);
    assert.deepEqual(made.adopted, ["app/1-stream"]);
    assert.equal(made.gates["app/1"]!.status, "check");
    assert.equal(made.report.overall, "needs_manual_review"); // the call may have run
    const again = await startup(client, store, { prefix: "app/" });
    assert.deepEqual([again.adopted, again.saved, again.marked], [[], 0, []]);
    assert.equal(store.rows.size, 3);
  }
});

test("a whole answer is never marked, an open call without a log told, however often it runs", async (t) => {
  const daemon = await Daemon.started(t);
  const python = process.env["WALLD_COMMAND"]?.replace(/walld$/, "python") ?? join(PACKAGE, "../../.venv/bin/python");
  const code = `
import os, sys, walld_client
client = walld_client.connect(sys.argv[1], app="a")
def asked(name, **named):
    return client.session(name).submit("q", message_id=name).reply(stream_id=f"{name}-r", **named)
ended, saved, cut = asked("ended", auto_release=False), asked("saved"), asked("cut")
alone = client.reply("alone", stream_id="alone-r")
alone.tool("deploy", {}, call_id="c")
alone.drain(30, "synced")
for one in (ended, saved, cut):
    one.token("said")
ended.end()
for one in (ended, saved, cut):
    one.drain(30, "synced")
os.kill(os.getpid(), 9)
`;
  assert.equal(spawnSync(python, ["-c", code, daemon.socket], { encoding: "utf8" }).signal, "SIGKILL");
  const client = daemon.client({ app: "a" });
  await until(async () => (await client.orphans()).length === 4, "four orphans");
  const store = new Rows();
  store.save("saved", { _key: "saved-r", role: "assistant", content: "said" });
  const marked: string[] = [];
  for (let run = 0; run < 3; run += 1) {
    const made = await startup(client, store);
    marked.push(...made.marked);
    assert.deepEqual([made.kept, Object.keys(made.gates)], [["alone-r"], ["alone"]]); // told until it is settled
  }
  await client.session("alone").settle("c", "did_not_run");
  assert.deepEqual((await startup(client, store)).adopted, ["alone-r"]);
  const [cut] = await client.repairPlan("cut", { present: ["cut"] });
  assert.deepEqual(marked, [cut!.turnId]);
  assert.deepEqual(cut!.streamIds, ["cut-r"]);
  assert.equal((await client.session("ended").resumeCheck())!.boundary, "answered");
});

test("an audit and a plan say what those of the Python client say", async (t) => {
  const daemon = await Daemon.started(t);
  await crashed(daemon, "s1", "s2");
  const client = daemon.client();
  await client.session("s3").message("user", "x");
  const python = process.env["WALLD_COMMAND"]?.replace(/walld$/, "python") ?? join(PACKAGE, "../../.venv/bin/python");
  const code = `
import json, sys, msgspec, walld_client
client = walld_client.connect(sys.argv[1])
def presents():
    yield None
    yield ["m1"]
    yield lambda turn: False if turn.session_id == "s1" else None
told = []
for present in presents():
    told.append([client.audit(present=present).to_dict(), client.audit("s2", present=present).to_dict()])
    told.append(msgspec.to_builtins(client.repair_plan("s1", present=present)))
told.append([[one.session_id, one.last_seq, one.bytes] for one in client.sessions("s")])
print(json.dumps(told))
`;
  const { stdout, stderr } = spawnSync(python, ["-c", code, daemon.socket], { encoding: "utf8" });
  const theirs = JSON.parse(stdout || stderr) as unknown[];
  const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const inWords = (value: object, ...names: string[]): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(value).map(([name, one]) => [
        names.includes(name) ? name : snake(name),
        name === "owner" && one !== null ? inWords(one as object) : (one as unknown),
      ]),
    );
  const told = (report: Report) => ({ ...report, findings: report.findings.map((one) => inWords(one)) });
  const ours: unknown[] = [];
  const [step] = await client.repairPlan("s1", { present: () => false });
  const fields = ["boot", "pid", "seen", "sinceMs", "streamId", "turn"];
  assert.deepEqual(Object.keys(step!.owner!).sort(), fields); // in this client's words
  const isThere = (turn: { sessionId: string }) => (turn.sessionId === "s1" ? false : null);
  for (const present of [undefined, ["m1"], isThere]) {
    const how = present === undefined ? {} : { present };
    ours.push([told(await client.audit(undefined, how)), told(await client.audit("s2", how))]);
    ours.push((await client.repairPlan("s1", { present })).map((one) => inWords(one)));
  }
  ours.push((await client.sessions("s")).map((one) => [one.sessionId, one.lastSeq, one.bytes]));
  assert.deepEqual(JSON.parse(JSON.stringify(ours)), theirs);
  await assert.rejects(client.audit("s1", { present: (() => 1) as never }), /what present answers must be true, false or null, got 1/);
  await assert.rejects(client.audit(undefined, { present: "m1" as never }), /present must be ids or a function/);
});

test("what is deleted is gone, and no daemon is given any of it again", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const session = client.session("gone");
  const turn = await session.submit("q");
  const reply = await turn.reply();
  reply.token("said");
  reply.cancel();
  await reply.drain({ level: "synced" });
  assert.equal(await client.delete("gone"), true);
  assert.equal(await client.delete("gone"), false);
  assert.equal(await session.messages(), null);
  await daemon.kill();
  await daemon.start();
  const other = client.reply("other");
  other.token("to the next daemon");
  assert.ok(await other.drain({ timeoutMs: 10_000 }));
  assert.deepEqual(await client.recoverAll("gone"), []);
  assert.deepEqual(await client.sessions(), []);
  assert.equal((await client.status())["lost_acked"], 0);
  assert.equal(client.release(reply.streamId), false);
});
