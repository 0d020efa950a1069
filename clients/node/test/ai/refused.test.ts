/** Requests of the real `ai` package that are refused: asked again, given up, asked of another model. */

import assert from "node:assert/strict";
import { after, test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { stepCountIs } from "ai";
import { walldMiddleware, walldSseSink } from "walld-client/ai";

import { VENDORS, delivered, modelCalls, modelOf, said, spoken, weather } from "./models.js";
import { Daemon, Program, until } from "../support/daemon.js";
import { ModelServer } from "./modelServer.js";
import { WORDS } from "./vendorWires.js";

/** None of these tests kills it. */
const shared = await Daemon.started({ after });

async function setUp(t: TestContext) {
  return { client: shared.client(), replay: await ModelServer.started(t) };
}

test("a request that the SDK repeats is a new attempt, its text stands once", async (t) => {
  const { client, replay } = await setUp(t);
  const reply = client.reply("retried");
  const { parts } = await delivered(modelOf(replay, "chat", "text:busy1", reply), { maxRetries: 2 });
  assert.equal(replay.requests, 2);
  const found = (await client.recover("retried"))!;
  assert.equal(found.attempts, 2);
  assert.equal(found.status, "live");
  assert.equal(found.text, said(parts, "text-delta"));
  assert.equal(found.text, WORDS.join(""));
  assert.ok(reply.end() > 0, "the refusal is forgotten");
});

for (const vendor of VENDORS) {
  test(`${vendor}: a step that the SDK asks for again leaves the steps before it`, async (t) => {
    const { client, replay } = await setUp(t);
    const reply = client.reply(`${vendor} late`);
    const run = { tools: { weather }, stopWhen: stepCountIs(3), maxRetries: 2 };
    const { parts } = await delivered(modelOf(replay, vendor, "tool:late2", reply), run);
    assert.equal(replay.requests, 4);
    const found = (await client.recover(reply.sessionId))!;
    assert.equal(found.text, said(parts, "text-delta"));
    assert.equal(found.text, WORDS.join(""));
    assert.deepEqual([found.attempts, found.status, found.partial], [3, "live", false]);
    const current = spoken(found).filter((one) => one.attempt === found.attempts - 1);
    assert.deepEqual(current.map((one) => [one.kind, one.step]), [["tool", 0], ["text", 1]]);
    assert.deepEqual(current[0]!.result, { city: "Oslo", degrees: 4 });
    const roles = found.messages("openai").map((one) => one.role);
    assert.deepEqual(roles, ["assistant", "tool", "assistant"]);
    assert.ok(reply.end() > 0);
  });
}

for (const vendor of VENDORS) {
  test(`${vendor}: a stream that broke and that the program asks for again is a new attempt of its step`, async (t) => {
    const { client, replay } = await setUp(t);
    for (const [broken, kind] of [["cut4", "AI_APICallError"], ["eof4", "no_terminal_event"], ["err4", "overloaded_error"]]) {
      const reply = client.reply(`${vendor} ${broken}`);
      await delivered(modelOf(replay, vendor, "text", reply));
      const { parts } = await delivered(modelOf(replay, vendor, `text:${broken}`, reply));
      await delivered(modelOf(replay, vendor, "text", reply));
      const found = (await client.recover(reply.sessionId))!;
      assert.equal(found.text, WORDS.join("").repeat(2), broken);
      assert.deepEqual([found.status, found.attempts], ["live", 2], broken);
      const before = spoken(found).filter((one) => one.attempt === 0);
      assert.deepEqual(before.map((one) => [one.step, one.text]), [[1, said(parts, "text-delta")]], broken);
      assert.ok(reply.end() > 0, broken);

      const left = client.reply(`${vendor} ${broken} left`);
      await delivered(modelOf(replay, vendor, `text:${broken}`, left));
      assert.equal(left.end(), 0);
      const errored = (await client.recover(left.sessionId))!;
      assert.deepEqual([errored.status, errored.error?.kind], ["errored", kind], broken);
    }
  });
}

test("a request that is refused until the SDK gives up: the reply cannot be ended as whole", async (t) => {
  const { client, replay } = await setUp(t);
  const reply = client.reply("given up");
  const run = { tools: { weather }, stopWhen: stepCountIs(3), maxRetries: 1 };
  const { parts } = await delivered(modelOf(replay, "chat", "tool:late99", reply), run);
  assert.equal(replay.requests, 3);
  assert.equal((parts.find((part) => part["type"] === "error")!["error"] as Error).name, "AI_RetryError");
  assert.equal((await client.recover("given up"))!.status, "live", "the program may ask again");
  assert.equal(reply.end("stop"), 0);
  assert.ok(reply.hasEnded);
  const found = (await client.recover("given up"))!;
  assert.deepEqual([found.status, found.error!.kind], ["errored", "AI_APICallError"]);
  const told = Object.values(modelCalls(found)).at(-1)!;
  assert.deepEqual([told["model"], told["status"], told["error_class"]], ["tool:late99", "error", "provider"]);
  const current = spoken(found).filter((one) => one.attempt === found.attempts - 1);
  assert.deepEqual(current.map((one) => [one.kind, one.outcome]), [["tool", "done"]]);
  assert.ok(reply.release() > 0);
});

test("a program that leaves at that leaves the reply errored, however it leaves", async (t) => {
  const { client, replay } = await setUp(t);
  for (const how of ["end", "exit", "throw", "close"]) {
    const program = new Program("test/ai/leavingProgram.js", [shared.socket, how, replay.url, "text:busy99", how]);
    assert.equal(await program.line("refused"), "AI_RetryError");
    if (how === "close") {
      await program.line("closed");
      program.process.kill("SIGKILL");
    }
    await program.ended();
    const found = await until(async () => (await client.orphans(how))[0], "an orphan");
    assert.deepEqual([found.status, found.error?.kind], ["errored", "AI_APICallError"], how);
  }
});

test("one that nobody holds any more is errored too; run and using as well", async (t) => {
  const { client, replay } = await setUp(t);
  const refused = async (name: string) => {
    const reply = client.reply(name);
    await delivered(modelOf(replay, "chat", "text:busy99", reply));
    return reply;
  };
  (await refused("using"))[Symbol.dispose]();
  await (await refused("run")).run(() => undefined);
  await refused("left");
  const collect = (globalThis as { gc?: () => void }).gc;
  assert.ok(collect, "node --expose-gc");
  for (const name of ["using", "run", "left"]) {
    const found = await until(async () => {
      collect();
      await sleep(5);
      const one = (await client.recover(name))!;
      return one.status === "live" ? null : one;
    }, "an end");
    assert.deepEqual([found.status, found.error?.kind], ["errored", "AI_APICallError"], name);
  }
});

test("the program's own end of a refused reply stands", async (t) => {
  const { client, replay } = await setUp(t);
  const reply = client.reply("stopped");
  await delivered(modelOf(replay, "chat", "text:busy99", reply));
  assert.ok(reply.cancel("the user left") > 0);
  assert.equal((await client.recover("stopped"))!.status, "cancelled");
});

test("another model that answers for a refused one: its answer is the step's", async (t) => {
  const { client, replay } = await setUp(t);
  const reply = client.reply("another");
  const run = { tools: { weather }, stopWhen: stepCountIs(3) };
  await delivered(modelOf(replay, "chat", "tool:busy1", reply), run);
  await delivered(modelOf(replay, "anthropic", "tool:busy1", reply), run);
  const found = (await client.recover("another"))!;
  assert.deepEqual([found.attempts, found.text], [2, WORDS.join("")]);
  assert.deepEqual(spoken(found).map((one) => [one.kind, one.step]), [["tool", 0], ["text", 1]]);
  assert.equal(spoken(found)[0]!.outcome, "done");
  assert.ok(reply.end() > 0);
});

/** Things that a model may throw, and that cannot be read or shown. */
function unreadables(): [string, unknown][] {
  const loop: Record<string, unknown> = { code: 429 };
  loop["self"] = loop;
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  const named = Object.defineProperty(new Error("x"), "name", { get: () => assert.fail("its name") });
  const told = Object.defineProperty(new Error("x"), "message", { get: () => assert.fail("its message") });
  const shown = { toJSON: () => assert.fail("its JSON") };
  return Object.entries({ loop, big: { left: 2n ** 70n }, proxy, named, told, shown, bare: Object.create(null) });
}

test("whatever a model throws, the program gets just that, and it is an error of the reply", async () => {
  const client = shared.client();
  for (const [name, error] of unreadables()) {
    const streams = {
      part: () => Promise.resolve({ stream: ReadableStream.from([{ type: "error", error }]) }),
      thrown: () => Promise.resolve({ stream: new ReadableStream({ pull: (one) => one.error(error) }) }),
      refused: () => Promise.reject(error),
    };
    for (const [way, doStream] of Object.entries(streams)) {
      const reply = client.reply(`${name} ${way}`);
      const got: unknown[] = [];
      const work = async () => {
        const { stream } = await walldMiddleware(reply).wrapStream({ doStream, params: { prompt: [] } });
        for await (const part of stream) got.push(part);
        if (way === "part") throw error;
      };
      const thrown = await reply.run(work).then(() => [], (one: unknown) => [one]);
      assert.ok(thrown.length === 1 && Object.is(thrown[0], error), `${name} ${way}`);
      if (way === "part") assert.ok(Object.is((got[0] as { error: unknown }).error, error));
      const found = (await client.recover(reply.sessionId))!;
      assert.equal(found.status, "errored", `${name} ${way}`);
    }
  }
});

test("left at an error that cannot be read, the reply is errored by it", async () => {
  const client = shared.client();
  for (const [name, error] of unreadables()) {
    const reply = client.reply(`left at ${name}`);
    const stream = new ReadableStream({ pull: (one) => one.error(error) });
    const given = await walldMiddleware(reply).wrapStream({ doStream: async () => ({ stream }), params: { prompt: [] } });
    await given.stream.getReader().read().catch(() => undefined);
    assert.equal(reply.end(), 0, "it is not whole");
    const found = (await client.recover(reply.sessionId))!;
    assert.deepEqual([found.status, typeof found.error?.message], ["errored", "string"], name);
  }
});

test("the sink: a chunk that is no object keeps nothing behind it out", async () => {
  const client = shared.client();
  const reply = client.reply("no object");
  const chunks = ["null", "5", '"x"', '{"type":"text-delta","delta":"said"}', '{"type":"finish","finishReason":"stop"}'];
  await walldSseSink(reply)({ stream: ReadableStream.from(chunks.map((one) => `data: ${one}\n\n`)) });
  assert.ok(reply.end() > 0);
  await reply.drain();
  assert.equal(client.stats().late, 0);
});
