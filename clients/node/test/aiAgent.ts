/**
 * A program on the real `ai` package that is killed: prints each delta it is given, synchronously,
 * and SIGKILLs itself at frame k. Arguments: socket, session, base URL, model, k.
 */

import { writeSync } from "node:fs";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { streamText, wrapLanguageModel } from "ai";
import { connect } from "walld-client";
import { walldMiddleware } from "walld-client/ai";

const [socket, session, baseURL, name, k] = process.argv.slice(2);
const client = connect(socket);
const reply = client.reply(session!);
await reply.drain();
const provider = createOpenAICompatible({ name: "replay", baseURL: baseURL!, apiKey: "none" });
const model = wrapLanguageModel({ model: provider(name!), middleware: walldMiddleware(reply) });
let frames = 0;
for await (const part of streamText({ model, prompt: "weather?" }).fullStream) {
  if (part.type === "text-delta" || part.type === "reasoning-delta") {
    writeSync(1, `${part.type} ${JSON.stringify(part.text)}\n`);
    frames += 1;
    if (frames === Number(k)) {
      writeSync(1, "killed\n");
      process.kill(process.pid, "SIGKILL");
    }
  }
}
