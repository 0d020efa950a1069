/** SIGKILL: of the agent, of the daemon, of neither when there is too much; what comes back. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { rename } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { type PartialReply } from "walld-client";

import { Daemon, Program, until } from "./support/daemon.js";

/** For the tests that do not kill it. */
const shared = await Daemon.started({ after });

/** What an agent of `count` numbered tokens has said up to `seq`. */
function said(seq: number, size = 0): string {
  return Array.from({ length: seq }, (_, n) => `${n + 1}${"x".repeat(size)} `).join("");
}

async function killed(daemon: Daemon, ...args: [string, number, number, object?]) {
  const [session, count, pauseMs, options = {}] = args;
  const told = [daemon.socket, session, String(count), String(pauseMs), JSON.stringify(options)];
  const agent = new Program("test/support/streamingAgent.js", told);
  const sent = JSON.parse(await agent.line("sent")) as { sentSeq: number; backlog: number };
  assert.equal(await agent.ended(), "SIGKILL");
  const client = daemon.client();
  const found = await until(async () => (await client.orphans(session))[0], "an orphan");
  return { ...sent, found: found as PartialReply, client };
}

test("an agent that is killed after k sends: every event the kernel has taken is back", async () => {
  for (const count of [1, 2, 17, 100, 250]) {
    const { sentSeq, backlog, found, client } = await killed(shared, `k-${count}`, count, 0);
    assert.equal(sentSeq, count, "the kernel had room, so nothing waited");
    assert.equal(backlog, 0);
    assert.equal(found.status, "crashed");
    assert.equal(found.text, said(count));
    assert.equal(found.lastSeq, count);
    assert.deepEqual(found.gaps, []);
    assert.ok(await client.resolve(found.streamId, found.lastSeq));
    assert.equal(await client.recover(`k-${count}`), null);
  }
});

test("an agent that says more at once than the kernel takes: sentSeq is what is back", async (t) => {
  for (const [count, size] of [[5000, 0], [400, 3000], [3, 500_000]] as const) {
    const { sentSeq, backlog, found } = await killed(shared, `flood-${count}`, count, 0, { size });
    t.diagnostic(`${count} of ${size} bytes at once: the kernel took ${sentSeq}`);
    if (size > 300_000) assert.ok(sentSeq < count, "no socket takes that much at once");
    assert.equal(sentSeq + backlog, count, "what was not taken is counted");
    assert.ok(found.lastSeq >= sentSeq, `${found.lastSeq} came back, ${sentSeq} were taken`);
    assert.equal(found.text, said(found.lastSeq, size));
  }
});

test("a process reads its own words, also those that a daemon's successor was not told yet", async (t) => {
  const daemon = await Daemon.started(t);
  const early = daemon.client();
  early.reply("early").token("before there is a connection");
  assert.equal((await early.recover("early"))?.text, "before there is a connection");

  const client = daemon.client();
  const link = client["link"] as unknown as {
    socket: object | null;
    timer: NodeJS.Timeout | undefined;
    later: () => void;
  };
  const session = client.session("s");
  const wanted: string[] = [];
  for (const at of [1, 2, 3]) {
    const turn = await session.submit(`question ${at}`, { messageId: `m${at}` });
    const answer = await turn.reply();
    answer.token(`answer ${at}`);
    answer.end();
    wanted.push(`question ${at}`, `answer ${at}`);
    const live = client.reply(`live-${at}`);
    live.token("said");
    await daemon.kill();
    await until(() => link.socket === null, "a client without a connection");
    clearTimeout(link.timer);
    link.later = () => undefined; // it does not try again by itself
    await daemon.start();
    if (at % 2 === 1) assert.equal((await client.recover(`live-${at}`))?.text, "said");
    else assert.equal(await client.hasPartial(`live-${at}`), true);
    live.end();
  }
  const contents = ((await session.messages()) as { content: string }[]).map((one) => one.content);
  assert.deepEqual(contents, wanted);
});

test("an agent that never lets its event loop turn has said nothing, and knows it", async () => {
  const agent = new Program("test/support/streamingAgent.js", [shared.socket, "mute", "10", "0", '{"wait":false}']);
  assert.deepEqual(JSON.parse(await agent.line("sent")), { sentSeq: -1, backlog: 11, dropped: 0 });
  await agent.ended();
  assert.equal(await shared.client().recover("mute"), null);
});

test("an agent that is killed from outside while it streams", async () => {
  const agent = new Program("test/support/streamingAgent.js", [shared.socket, "outside", "100000", "1"]);
  const client = shared.client();
  await until(async () => (await client.recover("outside"))?.text.includes("50 "), "fifty tokens");
  agent.process.kill("SIGKILL");
  await agent.ended();
  const found = (await until(async () => (await client.orphans("outside"))[0], "an orphan"))!;
  assert.equal(found.text, said(found.lastSeq));
});

test("the daemon is killed mid stream: the agent goes on, nothing is lost, nothing is double", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const reply = client.reply("outlived");
  const other = client.reply("outlived-too");
  let n = 0;
  for (let life = 0; life < 3; life += 1) {
    for (let k = 0; k < 300; k += 1) {
      n += 1;
      assert.equal(reply.token(`${n} `), n);
      other.reasoning(`${n} `);
      if (k % 50 === 0) await sleep(3);
      if (k === 150) await daemon.kill();
    }
    assert.ok(reply.sentSeq < n);
    await daemon.start();
    assert.ok(await reply.drain({ timeoutMs: 20_000, level: "synced" }));
    assert.equal(reply.sentSeq, n);
    assert.equal(reply.durableSeq, n);
    const found = await client.recover("outlived");
    assert.equal(found!.text, said(n));
    assert.deepEqual(found!.gaps, []);
    assert.equal((await client.recover("outlived-too"))!.segments[0]!.text, said(n));
  }
  assert.equal(client.stats().reconnects, 3);
  assert.equal(client.stats().dropped, 0);
  const status = await client.status();
  assert.equal(status["lost_acked"], 0);
  reply.end();
  other.end();
  assert.equal(await client.recover("outlived"), null);
  await until(() => client.stats().streams === 0, "acks of both releases");
  assert.equal(client.stats().unsyncedBytes, 0, "what is synced is let go of");
});

test("a full ring drops the oldest, and every reader sees the gap", async (t) => {
  const daemon = new Daemon(t);
  const client = daemon.client({ backlogBytesMax: 128 * 1024 });
  const reply = client.reply("overflow");
  const count = 2000;
  for (let n = 1; n <= count; n += 1) reply.token(`${n} ${"x".repeat(1100)} `);
  const { dropped, backlog, backlogBytes } = client.stats();
  assert.ok(dropped > 0);
  assert.equal(dropped + backlog, count + 1);
  assert.ok(backlogBytes <= 128 * 1024, `${backlogBytes} bytes`);
  reply.cancel("done");
  await daemon.start();
  assert.ok(await reply.drain({ timeoutMs: 20_000, level: "synced" }));
  assert.equal(reply.durableSeq, 0, "an Ack covers gaps, durableSeq does not");
  const found = (await client.recover("overflow"))!;
  const lost = found.gaps.reduce((sum, gap) => sum + gap.lastSeq - gap.firstSeq + 1, 0);
  assert.equal(lost, client.stats().dropped);
  assert.equal(found.gaps.length, 1);
  assert.equal(found.gaps[0]!.firstSeq, 1);
  assert.equal(found.gaps[0]!.verdict, "dropped");
  assert.ok(found.partial);
  assert.equal(found.status, "cancelled");
  assert.equal(found.lastSeq, count + 1);
  const expected = Array.from({ length: count - lost }, (_, n) => `${lost + n + 1} ${"x".repeat(1100)} `);
  assert.equal(found.text, expected.join(""));
});

test("a reply that moved begins anew where it is, with a daemon that has nothing of it", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const reply = client.reply("s");
  reply.token("first");
  reply.move("t");
  assert.ok(await reply.drain({ level: "synced" }));
  await daemon.kill();
  await rename(daemon.data, `${daemon.data}.away`);
  await daemon.start();
  reply.token("behind");
  assert.ok(await reply.drain({ level: "synced" }));
  await assert.rejects(client.recover("s"), /another log/, "its log was another one");
  assert.equal((await client.recover("t"))!.text, "behind");
});

test("nothing is called not there on an empty directory to a client that knows of another log", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const reply = client.reply("s");
  reply.token("elsewhere now");
  assert.ok(await reply.drain({ level: "synced" }));
  reply.end();
  assert.ok(await reply.drain({ level: "synced" }));
  const row = join(daemon.data, "quarantine", `other-log.${process.getuid!()}`);
  await daemon.kill();
  await rename(daemon.data, `${daemon.data}.away`);
  await daemon.start();
  await assert.rejects(client.recover("s"), /another log/, "the connection that asks says so");
  assert.equal(await client.hasPartial("s"), null);
  await assert.rejects(client.session("s").events(), /another log/);
  await until(() => existsSync(row), "a row that outlives this daemon");
  await daemon.kill();
  await daemon.start();
  await assert.rejects(daemon.client().recover("s"), /another log/);
  await daemon.kill();
  await rename(row, `${daemon.data}.row`);
  await daemon.start();
  assert.equal(await client.recover("s"), null, "somebody has looked");
  assert.equal(await client.hasPartial("s"), false);
  assert.equal(existsSync(row), false);
});

test("two clients of one process share a connection, each asks for itself", async () => {
  const [one, two] = [shared.client(), shared.client()];
  const first = one.reply("first");
  const second = two.reply("second");
  first.token("a");
  second.token("b");
  assert.equal((await two.recover("first"))!.text, "a");
  assert.equal((await one.recover("second"))!.text, "b");
  assert.equal(one.stats().sent, two.stats().sent);
  await one.close();
  second.token("c");
  assert.ok(await second.drain());
  assert.equal((await two.recover("second"))!.text, "bc");
});
