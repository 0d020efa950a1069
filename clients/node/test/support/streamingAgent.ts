/**
 * An agent that kills itself: it streams numbered tokens and prints how many the kernel has taken.
 *
 * Arguments: socket, session, count, pause in ms (0: none), options as JSON. It SIGKILLs itself after
 * its last send, in the same tick, having written `sentSeq` to its standard output synchronously.
 */

import { writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { connect } from "walld-client";

const [socket, session, count, pauseMs, options = "{}"] = process.argv.slice(2);
const { size = 0, wait = true, backlogBytesMax } = JSON.parse(options) as {
  size?: number;
  wait?: boolean;
  backlogBytesMax?: number;
};

const client = connect(socket, backlogBytesMax === undefined ? {} : { backlogBytesMax });
const reply = client.reply(session!);
if (wait) await reply.drain();
for (let n = 1; n <= Number(count); n += 1) {
  reply.token(`${n}${"x".repeat(size)} `);
  if (Number(pauseMs) > 0) await sleep(Number(pauseMs));
}
const { backlog, dropped } = client.stats();
writeSync(1, `sent ${JSON.stringify({ sentSeq: reply.sentSeq, backlog, dropped })}\n`);
process.kill(process.pid, "SIGKILL");
