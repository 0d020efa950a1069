/**
 * What a chunk costs, measured here: `npm run bench`. Prints figures and decides nothing.
 *
 * Back to back, and 2 ms apart as models stream, which leaves every cache cold. part: reading one part of
 * a model's stream, through the middleware and without it. token: reply.token(). bare: as many bytes by
 * socket.write() and by write(2), to a process that reads every 10 ms, as the daemon does: the floor.
 * All in turns of BLOCK, so that they see the same machine. No node:test around it: what that hangs on
 * every promise costs a part more than the middleware does.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeSync } from "node:fs";
import { connect as connectSocket, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { walldMiddleware } from "walld-client/ai";

import { Daemon, type Scope } from "../support/daemon.js";

const TURNS = { 0: 200, 2: 30 };
const BLOCK = 100;
const TEXT = "token ";
const READER = `const { readSync } = require("fs"), memory = Buffer.alloc(1 << 16);
  require("net").createServer({ pauseOnConnect: true }, ({ _handle: { fd } }) => setInterval(() => {
    try { readSync(fd, memory); } catch {}
  }, 10)).listen(process.argv[1], () => console.log("up"));
  process.stdin.on("end", () => process.exit()).resume();`;

function told(name: string, ns: number[]): void {
  const sorted = ns.toSorted((a, b) => a - b);
  const at = (share: number) => (sorted[Math.floor(sorted.length * share)]! / 1000).toFixed(1);
  console.log(`${name}: p50 ${at(0.5)} us, p99 ${at(0.99)} us, p99.9 ${at(0.999)} us (${sorted.length})`);
}

function parts(): ReadableStream<unknown> {
  return new ReadableStream<unknown>(
    { pull: (controller) => controller.enqueue({ type: "text-delta", id: "1", delta: TEXT }) },
    { highWaterMark: 0 },
  );
}

async function bare(t: Scope, path: string): Promise<Socket> {
  const server = spawn(process.execPath, ["-e", READER, path], { stdio: ["pipe", "pipe", "inherit"] });
  await once(server.stdout, "data");
  const socket = connectSocket(path);
  await once(socket, "connect");
  t.after(async () => void (socket.destroy(), server.stdin.end()));
  return socket;
}

async function measure(t: Scope): Promise<void> {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const reply = client.reply("bench");
  await reply.drain();
  const doStream = () => Promise.resolve({ stream: parts() });
  const through = (await walldMiddleware(reply).wrapStream({ doStream, params: { prompt: [] } })).stream.getReader();
  const without = parts().getReader();
  const frame = Buffer.alloc(19 + TEXT.length);
  const [socket, other] = [await bare(t, join(daemon.home, "one")), await bare(t, join(daemon.home, "two"))];
  const { fd } = (other as unknown as { _handle: { fd: number } })._handle;

  const ways: Record<string, () => unknown> = {
    "part without it   ": () => without.read(),
    "part with it      ": () => through.read(),
    "token             ": () => reply.token(TEXT),
    "bare socket.write ": () => socket.write(frame),
    "bare write(2)     ": () => writeSync(fd, frame),
  };
  for (const pauseMs of [0, 2] as const) {
    const took = Object.entries(ways).map(([name, way]) => ({ name, way, ns: [] as number[] }));
    for (let turn = 0; turn < TURNS[pauseMs]; turn += 1) {
      for (const { way, ns } of turn % 2 === 0 ? took : took.toReversed()) {
        for (let n = 0; n < BLOCK; n += 1) {
          if (pauseMs > 0 || n === 0) await sleep(2);
          const began = process.hrtime.bigint();
          const given = way();
          if (given instanceof Promise) await given;
          ns.push(Number(process.hrtime.bigint() - began));
        }
      }
    }
    for (const { name, ns } of took) told(`${pauseMs} ms apart: ${name}`, ns);
  }
  console.log(JSON.stringify(client.stats()));
}

const ends: (() => Promise<void>)[] = [];
try {
  await measure({ after: (end) => ends.unshift(end) });
} finally {
  for (const end of ends) await end();
}
