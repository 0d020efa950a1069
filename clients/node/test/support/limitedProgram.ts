/**
 * A program at its limit of open files: it opens all it may, then says something and asks something, and
 * frees them when it is told a line. Arguments: socket, session. Its lines: what it was answered, how many
 * events waited then, and how many were dropped in the end.
 */

import { closeSync, openSync } from "node:fs";
import { once } from "node:events";
import { connect as dial, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { connect } from "walld-client";

const [socket, session] = process.argv.slice(2) as [string, string];
const files: number[] = [];
const sockets: Socket[] = [];

/** Files first; then sockets, one of which the runtime may still have had room for. */
async function takeAll(): Promise<void> {
  try {
    for (;;) files.push(openSync("/dev/null", "r"));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EMFILE") throw error;
  }
  for (;;) {
    const one = dial({ path: socket });
    sockets.push(one);
    const failed = once(one, "error").then(() => true);
    failed.catch(() => undefined);
    if (await Promise.race([failed, once(one, "connect").then(() => false, () => true)])) return;
  }
}

await takeAll();
const client = connect(socket, { timeoutMs: 500 });
const reply = client.reply(session);
reply.token("one ");
console.log(`asked ${await client.recover(session).catch((error: Error) => error.message)}`);
console.log(`waiting ${client.stats().backlog}`);
await once(process.stdin.resume(), "end");
for (const one of sockets) one.destroy();
for (const file of files) closeSync(file);
while (client.stats().backlog > 0) await sleep(5);
console.log(`dropped ${client.stats().dropped}`);
