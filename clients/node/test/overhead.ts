/**
 * What a chunk costs, measured here: `npm run bench`. Prints figures and decides nothing.
 *
 * token: reply.token() at 500 a second, as a model streams. bare: socket.write() of as many bytes to
 * a process that sleeps until they come, as the daemon does: waking it is most of that. part: reading
 * one part of a model's stream, through the middleware and without it, by turns of BLOCK parts, so
 * that both see the same machine and neither the caches that the other has just warmed.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect as connectSocket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { walldMiddleware } from "walld-client/ai";

import { Daemon } from "./daemon.js";

const COUNT = 3000;
const BLOCK = 100;
const TEXT = "token ";
const READER = `require("net").createServer((one) => one.resume()).listen(process.argv[1], () => console.log("up"));
  process.stdin.on("end", () => process.exit()).resume();`;

function told(name: string, ns: number[]): void {
  const sorted = ns.toSorted((a, b) => a - b);
  const at = (share: number) => (sorted[Math.floor(sorted.length * share)]! / 1000).toFixed(1);
  console.log(`${name}: p50 ${at(0.5)} us, p99 ${at(0.99)} us, p99.9 ${at(0.999)} us (${sorted.length})`);
}

async function paced(count: number, call: () => void): Promise<number[]> {
  const ns: number[] = [];
  for (let n = 0; n < count; n += 1) {
    const began = process.hrtime.bigint();
    call();
    ns.push(Number(process.hrtime.bigint() - began));
    await sleep(2);
  }
  return ns;
}

function parts(count: number): ReadableStream<unknown> {
  let n = 0;
  return new ReadableStream<unknown>(
    {
      pull(controller) {
        n += 1;
        if (n > count) controller.close();
        else controller.enqueue({ type: "text-delta", id: "1", delta: TEXT });
      },
    },
    { highWaterMark: 0 },
  );
}

async function read(reader: ReadableStreamDefaultReader<unknown>): Promise<number> {
  const began = process.hrtime.bigint();
  await reader.read();
  return Number(process.hrtime.bigint() - began);
}

test("overhead", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const reply = client.reply("bench");
  await reply.drain();
  const path = join(daemon.home, "bare");
  const server = spawn(process.execPath, ["-e", READER, path], { stdio: ["pipe", "pipe", "inherit"] });
  await once(server.stdout, "data");
  const bare = connectSocket(path);
  await once(bare, "connect");
  const frame = Buffer.alloc(19 + TEXT.length);
  for (let round = 0; round < 2; round += 1) {
    told("token", await paced(COUNT, () => reply.token(TEXT)));
    told("bare ", await paced(COUNT, () => bare.write(frame)));
  }
  bare.destroy();
  server.stdin.end();

  for (const pauseMs of [0, 2]) {
    const count = pauseMs === 0 ? 20_000 : COUNT;
    const options = { doStream: () => Promise.resolve({ stream: parts(count) }), params: { prompt: [] } };
    const through = (await walldMiddleware(reply).wrapStream(options)).stream.getReader();
    const plain = { reader: parts(count).getReader(), ns: [] as number[] };
    const wrapped = { reader: through, ns: [] as number[] };
    for (let n = 0; n < count / BLOCK; n += 1) {
      for (const { reader, ns } of n % 2 === 0 ? [plain, wrapped] : [wrapped, plain]) {
        for (let m = 0; m < BLOCK; m += 1) {
          await (pauseMs === 0 && m > 0 ? undefined : sleep(pauseMs));
          ns.push(await read(reader));
        }
      }
    }
    told(`part without it, ${pauseMs} ms apart`, plain.ns);
    told(`part with it,    ${pauseMs} ms apart`, wrapped.ns);
  }
  console.log(JSON.stringify(client.stats()));
});
