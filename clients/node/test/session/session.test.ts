/** Sessions on a real daemon: what is submitted survives, what is appended is read back in order. */

import assert from "node:assert/strict";
import { mkdirSync, readdirSync, statSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";

import { NotDurable, Refused, connect } from "walld-client";

import { Daemon, until } from "../support/daemon.js";

/** For the tests that do not kill it. */
const shared = await Daemon.started({ after });

test("a journal is promised, and calls of which nobody knows are told or left out", async () => {
  const client = shared.client();
  const session = client.session("promised");
  await assert.rejects(session.submit("q", { calls: "reply" as "journal" }), /calls of submit: got "reply"/);
  const turn = await session.submit("q", { calls: "journal" });
  const [submitted] = await session.events();
  assert.equal((submitted!["payload"] as Record<string, unknown>)["calls"], "journal");
  const reply = await turn.reply();
  reply.token("I look. ");
  reply.tool("look", {}, { callId: "c1" });
  const risk = { side_effect: "read", resume_policy: "rerun-after-check" };
  const of = { turn: turn.turnId };
  await session.append("tool_intent", { call_id: "c1", tool: "look", arguments: {}, ...risk }, of);
  await session.append("tool_started", { call_id: "c1" }, of);
  const told = (await session.messages({ format: "openai" }))!;
  assert.deepEqual(told.map((one) => one["role"]), ["user", "assistant", "tool"]);
  assert.equal(told[2]!["content"], "This call is still running.");
  const known = (await session.messages({ format: "openai", unknown: "drop" }))!;
  assert.deepEqual(known.map((one) => one["role"]), ["user"]);
  reply.end();
  await turn.interrupted("done");
});

test("a turn: submitted, its reply's message appended, completed", async () => {
  const client = shared.client();
  const session = client.session("chat-1");
  assert.equal(await session.messages(), null);
  const prompt = { parts: ["What ", "half \ud83d of it?"], at: Date.now() };
  const turn = await session.submit(prompt, { messageId: "m-17", model: "m-1", meta: { from: "web" } });
  assert.equal(turn.state, "submitted");
  const again = await session.submit(prompt, { messageId: "m-17" });
  assert.equal(again.turnId, turn.turnId);
  await assert.rejects(session.submit("something else", { messageId: "m-17" }), (error) => {
    return error instanceof Refused && error.code === "message_id_taken";
  });
  await turn.workerStarted();
  const reply = await turn.reply({ meta: { model: "m-1" } });
  assert.deepEqual(turn.streamIds, [reply.streamId]);
  assert.equal(reply.turnId, turn.turnId);
  reply.token("Some ");
  reply.token("weather.");
  reply.end("stop");
  await turn.completed();
  const messages = (await session.messages())!;
  assert.deepEqual(messages.map((one) => [one["role"], one["content"]]), [
    ["user", prompt],
    ["assistant", "Some weather."],
  ]);
  assert.equal(await client.recover("chat-1"), null);
  const found = await session.turn({ streamId: reply.streamId });
  assert.equal(found.turnId, turn.turnId);
  assert.equal(found.state, "completed");
  assert.equal((await session.turn(turn.turnId)).messageId, "m-17");
  await assert.rejects(session.turn("nobody"), Refused);
  const types = (await session.events()).map((one) => one["type"]);
  assert.equal(types[0], "turn_submitted");
  assert.ok(types.includes("turn_completed"));
});

test("a message that was first submitted with attachments is the same without; a number is none", async () => {
  const session = shared.client().session("attached");
  const payload = { message_id: "m-1", content: "see", attachments: [{ name: "a.txt" }] };
  await session.append("turn_submitted", payload, { id: "t-1", turn: "t-1", key: "m-1", once: true });
  assert.equal((await session.submit("see", { messageId: "m-1" })).turnId, "t-1");
  await assert.rejects(session.submit("another", { messageId: "m-1" }), /message_id_taken/);
  for (const content of [42, true]) {
    await assert.rejects(session.submit(content), (error) => {
      return error instanceof Refused && error.code === "bad_payload" && error.message.includes("content");
    });
  }
});

test("what was submitted is there after SIGKILL of the daemon", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const turn = await client.session("kept").submit("remember me");
  await daemon.kill();
  await daemon.start();
  const messages = (await client.session("kept").messages())!;
  assert.equal(messages[0]!["content"], "remember me");
  assert.equal((await client.session("kept").turn(turn.turnId)).state, "submitted");
});

test("what a daemon had said is synced and the next one does not have is a break of its session", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const session = client.session("q");
  const whole = client.session("lost whole");
  for (const n of [0, 1, 2]) await session.submit(`hi ${n}`, { messageId: `m${n}` });
  const wal = join(daemon.data, "wal");
  const segment = join(wal, readdirSync(wal).sort().at(-1)!);
  const before = statSync(segment).size;
  await Promise.all([
    session.submit("the last", { messageId: "m3" }),
    whole.append("note", {}, { synced: true }),
  ]);
  await daemon.kill();
  truncateSync(segment, before);
  await daemon.start();
  const [events, state, wholeEvents] = await Promise.all([
    session.events(),
    session.state() as Promise<{ last_seq: number }>,
    whole.events(),
  ]);
  assert.deepEqual(events.map((one) => [one["type"], one["seq"]]), [
    ["turn_submitted", 1],
    ["turn_submitted", 2],
    ["turn_submitted", 3],
    ["lost", 5],
  ]);
  assert.deepEqual(events.at(-1)!["payload"], { first_seq: 4, last_seq: 4, told_seq: 4 });
  assert.equal(state.last_seq, 5);
  assert.deepEqual(wholeEvents.map((one) => [one["type"], one["seq"]]), [["lost", 2]]);
  const status = (await client.status()) as { lost_acked: number };
  assert.equal(status.lost_acked, 2);
});

test("entries: in order, once where asked, all or none", async () => {
  const client = shared.client();
  const session = client.session("log");
  const first = await session.message("user", "one", { meta: { source: "test" } });
  const second = await session.append("note", { n: 1 }, { key: "k", once: true, synced: true });
  const same = await session.append("note", { n: 2 }, { key: "k", once: true });
  assert.deepEqual([second.isNew, same.isNew, same.id], [true, false, second.id]);
  assert.ok(second.seq > first.seq);
  const many = await session.appendMany([
    { type: "message", payload: { role: "assistant", content: "two" } },
    { type: "note", payload: { n: 3 }, leaf: false, cause: first.id },
  ]);
  assert.deepEqual(many.map((one) => one.seq), [second.seq + 1, second.seq + 2]);
  assert.deepEqual(await session.appendMany([]), []);
  await assert.rejects(session.appendMany([], { expectedSeq: 999 }), /stale/);
  await assert.rejects(session.append("late", {}, { expectedSeq: 1 }), (error) => {
    return error instanceof Refused && error.code === "stale" && error.limit === String(many[1]!.seq);
  });
  await assert.rejects(session.append("odd", {}, { parent: "nobody" }), Refused);
  const listed = Object.fromEntries(Array.from({ length: 30_000 }, (_, n) => [`key-${n}`, n]));
  await assert.rejects(session.append("wide", listed), /the payload is \d+ bytes, limit 262144, and no field of it is long/);
  const events = await session.events(first.seq);
  assert.deepEqual(events.map((one) => one["type"]), ["note", "message", "note"]);
  assert.equal((await session.messages({ format: "openai" }))!.length, 2);
  const state = (await session.state()) as { leaf: unknown };
  assert.equal(state.leaf, many[0]!.id);
});

test("a submit that nobody takes is not known to be durable, and a reply goes on without it", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const session = client.session("away");
  const turn = await session.submit("first");
  await daemon.kill();
  const reply = await turn.reply();
  reply.token("said all the same");
  const next = await turn.reply();
  next.token("and this");
  await assert.rejects(session.submit("second", { messageId: "m-2", timeoutMs: 200 }), (error) => {
    return error instanceof NotDurable && error.messageId === "m-2" && error.message.includes("submit it again");
  });
  await daemon.start();
  assert.ok(await reply.drain({ timeoutMs: 10_000 }));
  const found = await client.recoverAll("away");
  assert.deepEqual(found.map((one) => one.text), ["said all the same", "and this"]);
});

test("a session that cannot be written: a submit is not known to be durable, a reply goes on", async (t) => {
  const daemon = await Daemon.started(t);
  const session = daemon.client().session("bad");
  const turn = await session.submit("first");
  const file = join(daemon.data, "sessions", String(process.getuid!()), "bad", "events.jsonl");
  mkdirSync(file, { recursive: true });
  for (const size of [20_000, 1]) {
    const takesNoMore = async (): Promise<boolean> => {
      try {
        await session.append("x", { pad: "p".repeat(size) });
        return false;
      } catch (error) {
        return error instanceof Refused && error.code === "unwritable";
      }
    };
    await until(takesNoMore, "a session that takes no more");
  }
  await assert.rejects(session.submit("p".repeat(20_000), { messageId: "m-2" }), (error) => {
    return error instanceof NotDurable && error.messageId === "m-2";
  });
  const reply = await turn.reply();
  reply.token("an answer");
  reply.end();
  await turn.completed();
});

test("redact sees every text of a payload", async (t) => {
  const client = connect(shared.socket, { redact: (text) => text.replaceAll("secret", "***") });
  t.after(() => client.close());
  await client.session("s").message("user", { parts: ["a secret", 1, null] });
  assert.deepEqual((await client.session("s").messages())![0]!["content"], { parts: ["a ***", 1, null] });
});

test("redact sees no id: two messages are two, an edit is of its own message", async (t) => {
  const client = connect(shared.socket, { redact: (text) => text.replace(/\S+@\S+/g, "[mail]") });
  t.after(() => client.close());
  const session = client.session("mails");
  const first = await session.submit("from me@host", { messageId: "<1@host>", streamId: "r@host" });
  const second = await session.submit("another", { messageId: "<2@host>" });
  assert.notEqual(second.turnId, first.turnId);
  assert.equal((await session.submit("from me@host", { messageId: "<1@host>" })).turnId, first.turnId);
  assert.equal((await first.reply()).streamId, "r@host");
  await session.message("assistant", "an answer", { id: "a@host" });
  await session.append("message_edit", { target: "a@host", message: { role: "assistant", content: "you@host" } });
  const told = (await session.messages())!.map((one) => one["content"]);
  assert.deepEqual(told, ["from [mail]", "another", "[mail]"]);
  assert.equal((await session.turn({ streamId: "r@host" })).turnId, first.turnId);
});

test("redact changes texts and nothing else: dates, bytes, loops", async (t) => {
  const loop: Record<string, unknown> = { text: "secret" };
  loop["self"] = loop;
  const payload = { at: new Date(0), url: new URL("http://a/secret"), n: [2 ** 40, 0.5], loop };
  const told = await Promise.all(["secret", "none"].map(async (word) => {
    const client = connect(shared.socket, { redact: (text) => text.replaceAll(word, "***") });
    t.after(() => client.close());
    const session = client.session(`redact-${word}`);
    await session.append("x", payload);
    const reply = client.reply(session.sessionId);
    assert.ok(reply.error("no", { detail: { ...payload, bytes: Buffer.from("b") } }) > 0);
    assert.ok(await reply.drain());
    return JSON.stringify([(await session.events())[0]!["payload"], (await client.recover(session.sessionId))!.error]);
  }));
  assert.match(told[1]!, /"at":"1970-01-01T00:00:00.000Z","url":"http:\/\/a\/secret","n":\[1099511627776,/);
  assert.match(told[1]!, /"bytes":\{"type":"Buffer","data":\[98\]\}/);
  assert.equal(told[0], told[1]!.replaceAll("secret", "***"));
});

test("events are of one session where it is deleted between two pages", async () => {
  const client = shared.client();
  for (const anew of [0, 3]) {
    const session = client.session(`paged-${anew}`);
    for (let at = 0; at < 600; at += 1) await session.append("before");
    const asked = (session as unknown as { log: { query: { ask: (...given: unknown[]) => Promise<unknown> } } }).log.query;
    const ask = asked.ask.bind(asked);
    let pages = 0;
    asked.ask = async (kind, ...more) => {
      const answer = await ask(kind, ...more);
      if (kind !== "Events" || (pages += 1) > 1) return answer;
      shared.walld("session", "delete", session.sessionId);
      for (let at = 0; at < anew; at += 1) await session.append("behind");
      return answer;
    };
    const types = (await session.events()).map((one) => one["type"]);
    asked.ask = ask;
    assert.deepEqual(types, Array<string>(anew).fill("behind"));
  }
});

test("what is given of another kind is named, and nothing is sent", async () => {
  const client = shared.client();
  const session = client.session("given");
  const turn = await session.submit("hi");
  const before = await session.events();
  const any = (value: unknown): never => value as never;
  const long = "x".repeat(3_000_000);
  const calls: [() => Promise<unknown>, RegExp][] = [
    [() => session.events(any("1")), /^after must be an integer from 0 .*, got '1'$/],
    [() => session.events(-1), /^after must be .*, got -1$/],
    [() => session.events(NaN), /^after must be .*, got NaN$/],
    [() => session.events(any(2n ** 64n)), /^after must be .*, got 18446744073709551616n$/],
    [() => session.append(any(5)), /^type must be a string, got number/],
    [() => session.append(long), /^type is 3000000 bytes of UTF-8, must be 1 to 1024$/],
    [() => session.append("\ud800"), /^type holds a lone surrogate/],
    [() => session.append("a", any([1])), /^payload must be an object, got \[ 1 \]$/],
    [() => session.append("a", any(null)), /^payload must be an object, got null$/],
    [() => session.append("a", {}, { id: any(5) }), /^id must be a string, got number/],
    [() => session.append("a", {}, { once: any(1) }), /^once must be true or false, got 1$/],
    [() => session.append("a", {}, { leaf: any("no") }), /^leaf must be true or false, got 'no'$/],
    [() => session.append("a", {}, { synced: any("yes") }), /^synced must be true or false/],
    [() => session.append("a", {}, { expectedSeq: any("1") }), /^expectedSeq must be .*, got '1'$/],
    [() => session.append("a", {}, { expectedSeq: 2 ** 64 }), /^expectedSeq must be an integer/],
    [() => session.append("a", {}, { timeoutMs: NaN }), /^timeoutMs must be a finite number/],
    [() => session.appendMany(any({ type: "a" })), /^entries must be an array of objects, got/],
    [() => session.appendMany([any({ type: 5 })]), /^type must be a string, got number/],
    [() => session.message(any(true), "x"), /^role must be a string, got boolean/],
    [() => session.message("user", "x", { meta: any(5) }), /^meta must be an object, got 5$/],
    [() => session.submit("x", { messageId: any(5) }), /^messageId must be a string, got number/],
    [() => session.submit("x", { model: any(5) }), /^model must be a string, got 5$/],
    [() => session.submit("x", { timeoutMs: any("5") }), /^timeoutMs must be .*, got '5'$/],
    [() => session.turn(any(5)), /^the argument of options must be an object, got 5$/],
    [() => session.turn({ streamId: any(5) }), /^streamId must be a string, got number/],
    [() => session.messages({ branch: any(5) }), /^branch must be a string, got number/],
    [() => session.messages({ compacted: any(5) }), /^compacted must be true or false, got 5$/],
    [() => session.project(any(5)), /^name must be a string, got number/],
    [() => session.project("state", any("x")), /^args must be an object, got 'x'$/],
    [() => turn.interrupted(any(5)), /^reason must be a string, got 5$/],
    [() => client.recover(any(5)), /^sessionId must be a string, got number/],
    [() => client.recover(any(null)), /^sessionId must be a string, got object/],
    [() => client.resolve("x", any("5")), /^lastSeq must be an integer from 0/],
    [() => client.resolve("x", -1), /^lastSeq must be an integer from 0/],
    [() => client.close(Infinity), /^timeoutMs must be a finite number of milliseconds/],
    [async () => client.release(any(5)), /^streamId must be a string, got number/],
    [async () => client.reply("given", { meta: any(5) }), /^meta must be an object, got 5$/],
    [async () => client.reply("given", { turnId: any(null) }), /^turnId must be a string, got object/],
    [async () => client.reply("given", { autoRelease: any(1) }), /^autoRelease must be true or false, got 1$/],
    [async () => connect(any(9)), /^socket must be a string, got 9$/],
    [async () => connect("x", { timeoutMs: Infinity }), /^timeoutMs must be a finite number/],
    [async () => connect("x", { timeoutMs: any("5") }), /^timeoutMs must be .*, got '5'$/],
    [async () => connect("x", { backlogBytesMax: Infinity }), /^backlogBytesMax must be an integer/],
    [async () => connect("x", { data: any(5) }), /^data must be a string, got 5$/],
    [() => turn.reply({ parent: any(5) }), /^parent must be a string, got number/],
    [() => turn.reply({ autoRelease: any(0) }), /^autoRelease must be true or false, got 0$/],
  ];
  for (const [call, said] of calls) {
    await assert.rejects(call(), (error: Error) => {
      assert.match(error.message, said);
      return error instanceof TypeError || error instanceof RangeError;
    });
  }
  assert.deepEqual(await session.events(), before);
});
