/** Stream a reply. Kill it in the middle, then run recover: what was said is there. */
import { setTimeout as sleep } from "node:timers/promises";

import { connect } from "walld-client";

import { save } from "./store.ts";

const client = connect();

async function* model(prompt: string): AsyncGenerator<string> {
  for (const word of `You said: ${prompt}. Nothing of this is lost.`.split(/(?<= )/)) {
    await sleep(20);
    yield word;
  }
}

await client.reply("chat-1").run(async (reply) => {
  let content = "";
  for await (const text of model(process.argv[2] ?? "hello")) {
    reply.token(text); // 1. never waits, never throws for walld's sake
    process.stdout.write(text);
    content += text;
  }
  save({ role: "assistant", content, _wal_stream: reply.streamId }); // 2. your own copy, durable
  reply.end(); // 3. only now may walld forget it
});
