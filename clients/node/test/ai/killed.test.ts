/** SIGKILL of a program on the real `ai` package: its recovered reply holds what the SDK had delivered. */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { VENDORS, recovered } from "./models.js";
import { Daemon, Program, until } from "../support/daemon.js";
import { ModelServer } from "./modelServer.js";
import { ARGUMENTS, THOUGHTS, WORDS, framesOf } from "./vendorWires.js";

/** None of these tests kills it. */
const shared = await Daemon.started({ after });

const PIECES = [...WORDS, ...THOUGHTS, ...ARGUMENTS].map((piece) => `:${JSON.stringify(piece)}`);

/**
 * How many frames there are up to the k-th that gives the program something. The server says no more
 * than that, so the SDK cannot have read on.
 */
function framesUpTo(k: number, frames: string[]): number {
  const given = frames.flatMap((frame, n) => (PIECES.some((piece) => frame.includes(piece)) ? [n + 1] : []));
  return given[k - 1]!;
}

/** [scene, how many deltas it has] */
const SCENES: [string, number][] = [
  ["text", WORDS.length],
  ["think", THOUGHTS.length + WORDS.length],
  ["tool", ARGUMENTS.length],
];

/** Each delta of the first vendor; of the others, whose frames differ but not what is done with them, three. */
function killsOf(vendor: string, count: number): number[] {
  if (vendor === VENDORS[0]) return Array.from({ length: count }, (_, n) => n + 1);
  return [1, Math.ceil(count / 2), count];
}

for (const vendor of VENDORS) {
  for (const [scene, count] of SCENES) {
    const kills = killsOf(vendor, count);
    test(`${vendor}, ${scene}: SIGKILL at ${kills.length} of ${count} deltas`, async (t) => {
      const replay = await ModelServer.started(t);
      const client = shared.client();
      for (const k of kills) {
        const session = `${vendor} ${scene} ${k}`;
        const name = `${scene}:hold${framesUpTo(k, framesOf(vendor, scene))}`;
        const agent = new Program("test/ai/killedAgent.js", [shared.socket, session, replay.url, vendor, name, String(k)]);
        await agent.line("killed");
        assert.equal(await agent.ended(), "SIGKILL");
        const found = await until(async () => (await client.orphans(session))[0], "an orphan");
        const told = (type: string) =>
          agent.lines
            .filter((line) => line.startsWith(type))
            .map((line) => JSON.parse(line.slice(type.length + 1)))
            .join("");
        assert.equal(recovered(found, "reasoning"), told("reasoning-delta"), session);
        assert.equal(found.text, told("text-delta"), session);
        const calls = found.segments.filter((one) => one.kind === "tool");
        assert.equal(calls.map((one) => one.arguments).join(""), told("tool-input-delta"), session);
        assert.deepEqual(calls.map((one) => one.name), scene === "tool" ? ["weather"] : []);
        assert.equal(found.status, "crashed");
        assert.equal(agent.lines.length, k + 1, "a line for each delta, and the last one");
      }
    });
  }
}

for (const [scene, count] of SCENES) {
  test(`the sink, ${scene}: SIGKILL at each chunk of the body`, async (t) => {
    const replay = await ModelServer.started(t);
    const client = shared.client();
    for (let k = 1; k <= count + 6; k += 1) {
      const session = `sink ${scene} ${k}`;
      const agent = new Program("test/ai/killedSink.js", [shared.socket, session, replay.url, scene, String(k)]);
      const how = await agent.ended();
      if (how === 0) break; // the body has no k-th chunk
      assert.equal(how, "SIGKILL", agent.stderr);
      const found = await until(async () => (await client.orphans(session))[0], "an orphan");
      const chunks = agent.lines
        .filter((line) => line.startsWith("data: {"))
        .map((line) => JSON.parse(line.slice(6)) as Record<string, string>);
      const sent = (type: string, field: string) =>
        chunks.map((one) => (one["type"] === type ? one[field] : "")).join("");
      const calls = found.segments.filter((one) => one.kind === "tool");
      const told = [
        [recovered(found, "reasoning"), sent("reasoning-delta", "delta")],
        [found.text, sent("text-delta", "delta")],
        [calls.map((one) => one.arguments).join(""), sent("tool-input-delta", "inputTextDelta")],
      ];
      // The SDK makes the copy at its own pace: it may be ahead of the body, never behind it.
      for (const [back, body] of told) assert.ok(back!.startsWith(body!), `${session}: ${back} of ${body}`);
    }
  });
}
