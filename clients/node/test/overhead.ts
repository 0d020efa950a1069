/**
 * What a chunk costs, measured here: `npm run bench`. Prints figures and decides nothing.
 *
 * token: reply.token() at 500 a second, as a model streams. bare: socket.write() of as many bytes to
 * a reader that reads. chunk: reading one part of a model's stream through the middleware, less the
 * same without it (medians, alternating, so that both see the same machine).
 */

import { connect as connectSocket, createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { walldMiddleware } from "walld-client/ai";

import { Daemon } from "./daemon.js";

const COUNT = 3000;
const TEXT = "token ";

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
  const server = createServer((one) => one.resume()).listen(path);
  const bare = connectSocket(path);
  await new Promise((resolve) => bare.once("connect", resolve));
  const frame = Buffer.alloc(19 + TEXT.length);
  for (let round = 0; round < 2; round += 1) {
    told("token", await paced(COUNT, () => reply.token(TEXT)));
    told("bare ", await paced(COUNT, () => bare.write(frame)));
  }
  bare.destroy();
  server.close();

  for (const pauseMs of [0, 2]) {
    const plain: number[] = [];
    const wrapped: number[] = [];
    const count = pauseMs === 0 ? 20_000 : COUNT;
    const options = { doStream: () => Promise.resolve({ stream: parts(count) }), params: { prompt: [] } };
    const through = (await walldMiddleware(reply).wrapStream(options)).stream.getReader();
    const without = parts(count).getReader();
    for (let n = 0; n < count; n += 1) {
      plain.push(await read(without));
      wrapped.push(await read(through));
      await (pauseMs === 0 && n % 100 !== 0 ? undefined : sleep(pauseMs));
    }
    told(`part without it, ${pauseMs} ms apart`, plain);
    told(`part with it,    ${pauseMs} ms apart`, wrapped);
  }
  console.log(JSON.stringify(client.stats()));
});
