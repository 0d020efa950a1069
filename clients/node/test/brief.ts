/**
 * A program that ends by itself right after it has spoken. Arguments: socket, session, and `exit` to
 * leave by process.exit(), `worker` to speak in two worker threads, `late` to speak once the first
 * connection has ended, `flood` to say more than a kernel takes, `ask` to ask more than it takes, too.
 */

import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker, isMainThread, workerData } from "node:worker_threads";

import { connect } from "walld-client";

const [socket, session, how] = process.argv.slice(2);

if (isMainThread && how === "worker") {
  for (const name of ["one", "two"]) new Worker(new URL(import.meta.url), { argv: [socket, session], workerData: name });
} else {
  const name = isMainThread ? session! : `${session}-${workerData as string}`;
  const client = connect(socket);
  const reply = client.reply(name);
  if (how === "late") {
    let wasThere = false;
    for (;;) {
      const { connected, reconnects } = client.stats();
      if (reconnects > 0 || (wasThere && !connected)) break;
      wasThere ||= connected;
      await sleep(1);
    }
  }
  if (how === "ask") {
    await client.session(name).append("x");
    console.log("asking");
    await once(process.stdin.resume(), "end");
    const text = "x".repeat(200_000);
    const asked = Array.from({ length: 4 }, () => client.session(name).append("x", { text }, { timeoutMs: 300 }));
    await Promise.allSettled(asked);
  }
  for (let n = 1; n <= 1000; n += 1) reply.token(`${n} ${how === "flood" ? "x".repeat(2000) : ""}`);
  reply.cancel("done");
  if (how === "exit") process.exit(0);
}
