/**
 * A program whose request is refused until the SDK gives up, and that leaves then. Arguments: socket,
 * session, base URL, model, and how it leaves: `end` of the event loop, `exit`, `throw`, `close`; or, at
 * the first text of an answer, `away` and, after an abort, `abort`.
 */

import { setImmediate } from "node:timers/promises";

import { streamText } from "ai";
import { connect } from "walld-client";

import { modelOf } from "./models.js";

const [socket, session, url, name, how] = process.argv.slice(2);
const client = connect(socket);
const reply = client.reply(session!);
await reply.drain();
const model = modelOf({ url: url! }, "chat", name!, reply);
const abort = new AbortController();
const options = { maxRetries: 2, abortSignal: abort.signal, onError: () => undefined };
const run = streamText({ model, prompt: "weather?", ...options });
for await (const part of run.fullStream) {
  if (part.type === "text-delta") {
    if (how === "abort") abort.abort();
    await setImmediate(); // the SDK hears of it
    process.exit(0);
  }
  if (part.type !== "error") continue;
  console.log("refused", (part.error as Error).name);
  if (how === "exit") process.exit(0);
  if (how === "throw") throw part.error;
}
if (how === "close") {
  await client.close();
  console.log("closed");
  setInterval(() => undefined, 1000); // it leaves only when it is killed
}
