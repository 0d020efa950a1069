/**
 * A program that sends a reply to a browser and is killed: prints each chunk of the body as it comes,
 * synchronously, and SIGKILLs itself at the k-th. Arguments: socket, session, base URL, model, k.
 */

import { writeSync } from "node:fs";

import { streamText } from "ai";
import { connect } from "walld-client";
import { walldSseSink } from "walld-client/ai";

import { modelOf } from "./models.js";

const [socket, session, url, name, k] = process.argv.slice(2);
const reply = connect(socket).reply(session!);
await reply.drain();
const result = streamText({ model: modelOf({ url: url! }, "anthropic", name!, null), prompt: "weather?" });
const response = result.toUIMessageStreamResponse({ sendReasoning: true, consumeSseStream: walldSseSink(reply) });
const reader = response.body!.getReader();
for (let chunks = 1; ; chunks += 1) {
  const { done, value } = await reader.read();
  if (done) break;
  writeSync(1, value);
  if (chunks === Number(k)) process.kill(process.pid, "SIGKILL");
}
