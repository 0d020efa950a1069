/** A session tree: any entry may be gone on from, and the model is given the path to the leaf alone. */
import { setTimeout as sleep } from "node:timers/promises";

import { connect } from "walld-client";

const client = connect();
const [name = "tree-1", verb = "path", ...words] = process.argv.slice(2);
const tree = client.session(name);
const verbs: Record<string, (...given: string[]) => Promise<unknown>> = {
  say: async (...text) => {
    const turn = await tree.submit(text.join(" "));
    const reply = await turn.reply();
    for (const word of `You said: ${text.join(" ")}.`.split(/(?<= )/)) await sleep(20, reply.token(word));
    reply.end();
    return turn.completed();
  },
  model: (model) => tree.changeModel(model!),
  label: (id, text) => tree.label(id!, text ?? null),
  branch: (id, summary) => tree.branch(id ?? null, summary ? { summary } : {}),
  compact: (firstKept, summary) => tree.compact({ firstKept: firstKept!, summary: summary! }),
  fork: async (id, other) => (await tree.fork(id!, other!)).messages(),
  tree: () => tree.project("tree"),
  path: () => tree.messages({ format: "openai" }),
};
await tree.adopt(); // what a run that was killed had said stands in the tree
console.log(JSON.stringify(await verbs[verb]!(...words)));
await client.close();
