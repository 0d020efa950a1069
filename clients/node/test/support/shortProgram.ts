/**
 * A program that ends by itself right after it has sent something. Arguments: socket, session, and `exit` to
 * leave by process.exit(), `worker` to speak in two worker threads, `late` to speak once the first
 * connection has ended, `again` to do so once more when the event loop has run empty, `flood` to say more
 * than a kernel takes, `ask` to ask more than it takes, too.
 */

import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker, isMainThread, workerData } from "node:worker_threads";

import { connect, type Reply } from "walld-client";

const [socket, session, how] = process.argv.slice(2);

if (isMainThread && how === "worker") {
  for (const name of ["one", "two"]) new Worker(new URL(import.meta.url), { argv: [socket, session], workerData: name });
} else {
  const name = isMainThread ? session! : `${session}-${workerData as string}`;
  const client = connect(socket);
  const reply = client.reply(name);
  const lost = async (): Promise<void> => {
    let wasThere = false;
    for (;;) {
      const { connected, reconnects } = client.stats();
      if (reconnects > 0 || (wasThere && !connected)) break;
      wasThere ||= connected;
      await sleep(1);
    }
  };
  const speak = (spoken: Reply): void => {
    for (let n = 1; n <= 1000; n += 1) spoken.token(`${n} ${how === "flood" ? "x".repeat(2000) : ""}`);
    spoken.cancel("done");
  };
  if (how === "late") await lost();
  if (how === "ask") {
    await client.session(name).append("x");
    console.log("asking");
    await once(process.stdin.resume(), "end");
    const text = "x".repeat(200_000);
    const asked = Array.from({ length: 4 }, () => client.session(name).append("x", { text }, { timeoutMs: 300 }));
    await Promise.allSettled(asked);
  }
  speak(reply);
  if (how === "again") process.once("beforeExit", () => void lost().then(() => speak(client.reply("again"))));
  if (how === "exit") process.exit(0);
}
