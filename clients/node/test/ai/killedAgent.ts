/**
 * A program on the real `ai` package that is killed: prints each delta it is given, synchronously,
 * and SIGKILLs itself at the k-th. Arguments: socket, session, base URL, vendor, model, k.
 */

import { writeSync } from "node:fs";

import { streamText } from "ai";
import { connect } from "walld-client";

import { modelOf } from "./models.js";
import type { Wire } from "./vendorWires.js";

const [socket, session, url, vendor, name, k] = process.argv.slice(2);
const client = connect(socket);
const reply = client.reply(session!);
await reply.drain();
const model = modelOf({ url: url! }, vendor as Wire, name!, reply);
let deltas = 0;
for await (const part of streamText({ model, prompt: "weather?" }).fullStream) {
  const given = part.type === "tool-input-delta" ? part.delta : "text" in part ? part.text : "";
  if (typeof given !== "string" || given === "") continue;
  writeSync(1, `${part.type} ${JSON.stringify(given)}\n`);
  deltas += 1;
  if (deltas === Number(k)) {
    writeSync(1, "killed\n");
    process.kill(process.pid, "SIGKILL");
  }
}
